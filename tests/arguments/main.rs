//! Compares the arguments of user functions with those that gdb shows for the same call. They must be equal or rejected, but
//! never wrong.
//!
//! ```text
//! cargo test --test arguments                          compare test programs, built by each compiler at -O0 to -O3
//! RBT_ARGUMENTS_OF='./redis-server --test-memory 1' \
//!   cargo test --test arguments -- --nocapture         compare your program, and print counts and differences
//! ```
//!
//! The limits for one program are `RBT_ARGUMENTS_FUNCTIONS` functions (default 1500) and `RBT_ARGUMENTS_SECONDS` seconds (default
//! 60).

#[path = "../harness/need.rs"]
#[allow(dead_code)]
mod need;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use rbt::system::machine::live::Live;
use rbt::system::{Source, TargetInfo};
use serde_json::{Value, json};

/// A way to build a program.
struct Build {
    /// The DWARF option, or an empty string for the compiler's default.
    name: &'static str,
    compiler: &'static str,
    /// The compiler's options.
    flags: &'static [&'static str],
    levels: &'static [&'static str],
    /// The extension of the source file.
    ending: &'static str,
    /// The command that packs the split debug information. gdb supports few packages, so it reads the unpacked files.
    packed: Option<&'static str>,
}

const C: Build = Build { name: "", compiler: "gcc", flags: &["-g", "-o"], levels: C_LEVELS, ending: "c", packed: None };
const C_LEVELS: &[&str] = &["-O0", "-Og", "-O1", "-O2", "-O3"];
const CLANG_LEVELS: &[&str] = &["-O0", "-O1", "-O2", "-O3"];
/// The optimization levels of builds that differ from others only in where their debug information is.
const FEW: &[&str] = &["-O0", "-O2"];
const PACKAGE: Option<&str> = Some("llvm-dwp-19");
const SPLIT_4: &[&str] = &["-g", "-gdwarf-4", "-gsplit-dwarf", "-o"];
const SPLIT_5: &[&str] = &["-g", "-gdwarf-5", "-gsplit-dwarf", "-o"];

const BUILDS: &[Build] = &[
    C,
    Build { compiler: "clang", levels: CLANG_LEVELS, ..C },
    Build { compiler: "g++", flags: &["-g", "-std=c++17", "-o"], ending: "cc", ..C },
    Build { compiler: "clang++", flags: &["-g", "-std=c++17", "-o"], levels: CLANG_LEVELS, ending: "cc", ..C },
    Build {
        compiler: "rustc",
        flags: &["-g", "--edition=2021", "-Coverflow-checks=off", "-o"],
        levels: &["-Copt-level=0", "-Copt-level=1", "-Copt-level=2", "-Copt-level=3"],
        ending: "rs",
        ..C
    },
    Build { compiler: "go", flags: &["build", "-o"], levels: &["-gcflags=all=-N -l", "-gcflags=-l"], ending: "go", ..C },
    Build { name: "gcc-split-4", flags: SPLIT_4, levels: FEW, ..C },
    Build { name: "gcc-split-5", flags: SPLIT_5, levels: FEW, ..C },
    Build { name: "gcc-package-4", flags: SPLIT_4, levels: FEW, packed: PACKAGE, ..C },
    Build { name: "gcc-package-5", flags: SPLIT_5, levels: FEW, packed: PACKAGE, ..C },
    Build { name: "clang-split-4", compiler: "clang", flags: SPLIT_4, levels: FEW, ..C },
    Build { name: "clang-split-5", compiler: "clang", flags: SPLIT_5, levels: FEW, ..C },
    Build { name: "clang-package-5", compiler: "clang", flags: SPLIT_5, levels: FEW, packed: PACKAGE, ..C },
    Build { name: "g++-split-4", compiler: "g++", flags: SPLIT_4, levels: FEW, ending: "cc", ..C },
    // llvm-dwp 14 and 19 do not finish with the output of g++ -O2.
    Build { name: "g++-package-5", compiler: "g++", flags: SPLIT_5, levels: &["-O0"], ending: "cc", packed: PACKAGE },
    Build {
        name: "g++-types-4",
        compiler: "g++",
        flags: &["-g", "-gdwarf-4", "-fdebug-types-section", "-o"],
        levels: FEW,
        ending: "cc",
        ..C
    },
];

fn main() -> ExitCode {
    rbt::parts::provide_all();
    let mut args = Arguments::from_args();
    args.test_threads.get_or_insert(2);
    let trials = match std::env::var("RBT_ARGUMENTS_OF") {
        Ok(command) => vec![Trial::test("given", move || {
            let words: Vec<&str> = command.split_whitespace().collect();
            let (program, rest) = words.split_first().ok_or("RBT_ARGUMENTS_OF is empty")?;
            let (list, program) = places(Path::new(program), "")?;
            let counts = compare(&program, rest, &list)?;
            println!("{}", counts.told());
            counts.verdict()
        })],
        Err(_) => made(),
    };
    libtest_mimic::run(&args, trials).exit_code()
}

fn made() -> Vec<Trial> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("arguments");
    let mut trials = Vec::new();
    for build in BUILDS {
        for level in build.levels {
            let named = if build.name.is_empty() { build.compiler } else { build.name };
            let name = format!("{named}::{}", level.trim_start_matches("-").replace(' ', ""));
            let folder = folder.join(name.replace([':', '='], "-"));
            trials.push(Trial::ignorable_test(name, move || {
                let tools: Vec<String> = ["gdb", build.compiler].into_iter().chain(build.packed).map(String::from).collect();
                if let Some(lacking) = need::missing(&tools) {
                    return match need::required() {
                        true => Err(format!("skipped, and RBT_TEST_REQUIRE=all: needs {lacking}").into()),
                        false => Ok(Completion::ignored_with(format!("needs {lacking}"))),
                    };
                }
                let program = built(&folder, build, level)?;
                // A Go program includes its runtime, whose functions are excluded.
                let start = if build.ending == "go" { "main." } else { "" };
                let (list, program) = places(&program, start)?;
                if build.packed.is_some() {
                    shell(&folder, "rm program.dwp && mv away/*.dwo .")?;
                }
                let counts = compare(&program, &[], &list)?;
                // The test must fail if almost nothing is compared.
                if counts.of("equal") < 10 {
                    return Err(format!("only {}", counts.told()).into());
                }
                counts.verdict().map(|()| Completion::Completed)
            }));
        }
    }
    trials
}

fn built(folder: &Path, build: &Build, level: &str) -> Result<PathBuf, Failed> {
    let Build { compiler, flags, ending, .. } = build;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/arguments/calls.{ending}"));
    let out = folder.join("program");
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder)?;
    let (before, rest) = if *compiler == "go" { (&flags[..1], &flags[1..]) } else { (&flags[..0], *flags) };
    let mut command = Command::new(compiler);
    let made = command.args(before).arg(level).args(rest).arg(&out).arg(source).env("GO111MODULE", "off").current_dir(folder).output()?;
    if !made.status.success() {
        return Err(format!("{compiler} {level}: {}", String::from_utf8_lossy(&made.stderr)).into());
    }
    if let Some(tool) = build.packed {
        shell(folder, &format!("{tool} -e program -o program.dwp && mkdir away && mv *.dwo away"))?;
    }
    Ok(out)
}

fn shell(folder: &Path, command: &str) -> Result<(), Failed> {
    let done = Command::new("sh").args(["-c", command]).current_dir(folder).output()?;
    if done.status.success() { Ok(()) } else { Err(format!("{command}: {}", String::from_utf8_lossy(&done.stderr)).into()) }
}

/// The result of a comparison.
struct Counts {
    /// The number of functions that were called.
    functions: usize,
    verdicts: BTreeMap<String, usize>,
    refused: BTreeMap<String, usize>,
    wrong: Vec<String>,
}

impl Counts {
    fn of(&self, verdict: &str) -> usize {
        self.verdicts.get(verdict).copied().unwrap_or(0)
    }

    fn told(&self) -> String {
        let mut text = format!("functions {}", self.functions);
        for verdict in ["equal", "entry", "refused", "silent", "wrong", "fault"] {
            let _ = write!(text, ", {verdict} {}", self.of(verdict));
        }
        for (why, n) in &self.refused {
            let _ = write!(text, "\n  {n} refused: {why}");
        }
        self.wrong.iter().for_each(|w| text += &format!("\n  {w}"));
        text
    }

    fn verdict(&self) -> Result<(), Failed> {
        if self.of("wrong") + self.of("fault") > 0 { Err(self.told().into()) } else { Ok(()) }
    }
}

fn number(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(usual)
}

/// Returns the arguments of all functions whose names start with this text, as lines for oracle.py, and the path of the program.
fn places(program: &Path, start: &str) -> Result<(String, PathBuf), Failed> {
    let said = |m: rbt::system::Missing| Failed::from(m.what);
    let program = std::fs::canonicalize(program)?;
    let live = Live::new();
    let binary = live.binary(&program).map_err(said)?;
    let (mut places, mut seen) = (String::new(), std::collections::BTreeSet::new());
    for function in binary.functions.iter().filter(|f| f.name.starts_with(start)) {
        let known = live.arguments(&program, function).map_err(said)?.unwrap_or_default();
        if known.is_empty() || !seen.insert(function.addr) {
            continue;
        }
        let args: Vec<Value> = known
            .iter()
            .map(|a| match &a.location {
                Ok(place) => json!({ "name": a.name, "pieces": place.pieces.iter().map(piece).collect::<Vec<_>>() }),
                Err(why) => json!({ "name": a.name, "why": why.to_string() }),
            })
            .collect();
        let _ = writeln!(places, "{}", json!({ "name": function.name, "address": function.addr, "args": args }));
        if seen.len() >= number("RBT_ARGUMENTS_FUNCTIONS", 1500) {
            break;
        }
    }
    Ok((places, program))
}

fn compare(program: &Path, args: &[&str], places: &str) -> Result<Counts, Failed> {
    let list =
        std::env::temp_dir().join(format!("rbt-arguments-{}-{}", std::process::id(), program.display().to_string().replace('/', "-")));
    let answers = list.with_extension("answers");
    std::fs::write(&list, places)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/arguments/oracle.py");
    let out = Command::new("gdb")
        .args(["-nx", "-q", "-batch", "-x"])
        .arg(script)
        .arg("--args")
        .arg(program)
        .args(args)
        .env("PLACES", &list)
        .env("ANSWERS", &answers)
        .env("TIMEOUT", number("RBT_ARGUMENTS_SECONDS", 60).to_string())
        .stdin(Stdio::null())
        .output()?;
    let said = std::fs::read_to_string(&answers).unwrap_or_default();
    for file in [&list, &answers] {
        let _ = std::fs::remove_file(file);
    }
    let mut counts = Counts { functions: 0, verdicts: BTreeMap::new(), refused: BTreeMap::new(), wrong: Vec::new() };
    let mut called = std::collections::BTreeSet::new();
    for told in said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let verdict = told["verdict"].as_str().unwrap_or("?").to_owned();
        match verdict.as_str() {
            "refused" => *counts.refused.entry(told["why"].to_string()).or_default() += 1,
            "wrong" | "fault" => counts.wrong.push(told.to_string()),
            _ => {}
        }
        if ["equal", "entry", "refused", "silent", "wrong"].contains(&verdict.as_str()) {
            called.insert(told["function"].to_string());
        }
        *counts.verdicts.entry(verdict).or_default() += 1;
    }
    counts.functions = called.len();
    if counts.verdicts.is_empty() {
        return Err(format!("gdb printed nothing: {}", String::from_utf8_lossy(&out.stderr)).into());
    }
    Ok(counts)
}

fn piece(p: &rbt::system::Piece) -> Value {
    match p.from {
        Source::Register { register, above } => json!({ "size": p.size, "register": register, "above": above }),
        Source::Memory { register, offset, indirect } => json!({ "size": p.size, "register": register, "by": offset, "then": indirect }),
        Source::Padding => json!({ "size": p.size }),
    }
}
