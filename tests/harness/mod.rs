//! Runs the cases under `tests/cases`, in three runs. `cargo test --test cases` runs cases on this machine. `cargo test --test
//! long` runs the cases on this machine that take several seconds each. `cargo test --test vm` runs cases in virtual machines
//! with other kernels. A plain `cargo test` includes only the first run. `.ci/run` includes all three.
//!
//! ```text
//! cargo test --test cases                      the cases for this machine, except the long ones
//! cargo test --test cases -- run::maps         the cases whose name contains run::maps
//! cargo test --test cases -- --list            list the names of the cases
//! cargo test --test vm -- vm-6.1::stacks       some of the cases in a virtual machine
//! UPDATE=1 cargo test --test cases -- NAME     replace the values of EXPECT_EXACT by the actual output
//! RBT_TEST_REQUIRE=all cargo test              count a case that cannot run here as a failure
//! RBT_TEST_KERNEL=5.10 cargo test --test vm …  use another kernel in the virtual machine (tests/vm/matrix.sh uses several)
//! RBT_TEST_TIMES=FILE cargo test …             append the seconds of each case and of each machine's boot to FILE
//! ```
//!
//! | directory | contents | test name |
//! |---|---|---|
//! | `cases/run/*.case` | programs on a real kernel | `run::FILE::NAME`, `vm-6.1::FILE::NAME`, `vm-6.12::…` |
//! | `cases/cli/*.case` | arguments, status and output, in the same syntax | `cli::FILE::NAME` |
//! | `cases/oneliner/*.case` | the script of that name under a synthetic load, in the same syntax | `oneliner::FILE::NAME` |
//! | `cases/check/*.bt` | a script and its diagnostics | `check::FILE` |
//! | `one-liners/*.bt` without a file in `cases/oneliner`, `rbt` lines in README's fences and in the man pages' `.EX` blocks, and scripts in these blocks | each runs for two seconds without error messages | `example::…` |
//!
//! # A `.case` file
//!
//! A file consists of blocks. Each block is a list of `KEY value` lines. A value continues over the
//! indented lines that follow, without their common indentation. If these lines start with `|`,
//! leading blanks and empty lines are kept. A block starts at `NAME`. Keys before the first `NAME`
//! are the defaults of the file. A line that starts with `#` is a comment.
//!
//! ```text
//! NEEDS root
//! VM yes
//!
//! NAME count_by_comm
//! PROG tracepoint:syscalls:sys_enter_openat /pid == cpid/ { @[comm] = count(); }
//! ARGS -c 'cat /etc/hostname'
//! EXPECT_RE ^@\[cat\]: [1-9]
//! ```
//!
//! This case runs `rbt -e PROG ARGS…` in a directory of its own.
//!
//! | key | meaning |
//! |---|---|
//! | `NAME` | the name: letters, digits and `_`; unique within its file |
//! | `PROG` | the program, which `-e` passes before `ARGS`, or at `{{prog}}` in `ARGS` |
//! | `ARGS` | further arguments, split as by a shell; without `PROG`, all arguments |
//! | `SH` | a shell command, which replaces `PROG` and `ARGS`; it can use `$RBT` |
//! | `FILE` | a file in the case's directory: its name on the first line, and then its content |
//! | `ENV` | environment variables, one `A=b` on each line |
//! | `STDIN` | rbt's standard input (default: empty) |
//! | `SETUP` | a shell script, which ends before the case starts |
//! | `BUNDLE` | arguments of `rbt build`, which this machine runs even for a case in a virtual machine; the case can use `$BUNDLE`, the path of the bundle |
//! | `BEFORE` | a shell script that runs during the case; rbt starts when it has printed a line, or after 0.3 s |
//! | `AFTER` | a shell script that starts when rbt reports that its probes are attached, and is stopped at the end |
//! | `SIGNAL` | the signal that rbt receives when `AFTER` has ended (default `INT`), or `none` |
//! | `NEEDS` | requirements, separated by commas: `root x86_64 aarch64 btf cgroup2 kallsyms_all kprobe kprobe_multi kprobe_session fentry override bpf_loop for_each uprobe uprobe_multi aslr tools otlp postgresql kernel>=6.6 viztracer duckdb speedscope kubernetes-schemas`, a loaded module `module:NAME`, a file system `filesystem:NAME`, the types of a module `types:NAME`, or the name of a command; `!` before a requirement negates it |
//! | `HOST` | `yes` or `no`: run on this machine (default `yes`) |
//! | `LONG` | `yes` or `no`: on this machine, run only with `cargo test --test long` (default `no`); use it for cases that take more than four seconds |
//! | `VM` | `no` (default), `yes`, or names from `vm/kernels`: run in virtual machines with these kernels; `matrix`: run only with tests/vm/matrix.sh |
//! | `TIMEOUT` | the time limit in seconds (default 20); in a virtual machine, it is multiplied by six |
//! | `STATUS` | the exit status (default 0), which is 128+N for signal N; `nonzero`; or `any` |
//!
//! These keys describe the expected standard output. With `ERR` instead of `EXPECT`, they apply to standard error:
//!
//! | key | each line of the value |
//! |---|---|
//! | `EXPECT` | equals a line of the output |
//! | `EXPECT_HAS` | is part of a line |
//! | `EXPECT_RE` | is a regular expression that a line matches |
//! | `EXPECT_ALL` | the entire value is one expression that matches the output as a whole (with `(?m)` and `(?s)` if necessary) |
//! | `EXPECT_NOT` | is an expression that no line matches |
//! | `EXPECT_EXACT` | the entire value equals the output, except for a final newline |
//!
//! The output must contain the first three in the order of the file. Other lines may be between them.
//!
//! In all values, `{{tmp}}` is the directory of the case, `{{fix}}` is its copy of the compiled `tests/fixtures`, `{{rbt}}` is
//! the program, `{{root}}` is the project, and `{{before_pid}}` and `{{after_pid}}` are the PIDs of these processes. For the kernel of
//! this processor, `{{sys}}` is the prefix of the functions of system calls, `{{nr_umask}}` and `{{nr_getppid}}` are numbers of system
//! calls, and `{{first}}` and `{{entry}}` are the first function of a call and one that it calls. Shell scripts have the variables `$CASE_TMP`, `$FIX`, `$RBT`, `$BEFORE_PID` and `$AFTER_PID`.

mod case;
mod check;
mod need;
mod run;
mod times;
mod travel;
mod vm;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// The cases that a test binary runs.
#[derive(Clone, Copy, PartialEq)]
#[allow(dead_code, reason = "each test binary uses one of them")]
pub enum Runs {
    /// The cases for this machine, except the long ones.
    Cases,
    /// The long cases for this machine, and the cases that travel through bundles.
    Long,
    /// The cases for virtual machines.
    Machines,
}

/// The main function of a test binary.
pub fn main(runs: Runs) -> ExitCode {
    if let Some(list) = std::env::var_os("RBT_TEST_VM_BATCH") {
        return vm::inside(Path::new(&list));
    }
    let mut args = Arguments::from_args();
    // With more threads than CPUs, timing-dependent cases fail, and the run is not faster.
    args.test_threads.get_or_insert(2);
    if !args.list {
        run::build_fixtures(std::env::consts::ARCH);
    }
    let (cases, mut broken) = load();
    let mut trials = match runs {
        Runs::Machines => of_machines(&cases, &args),
        Runs::Cases | Runs::Long => of_host(cases, runs == Runs::Long),
    };
    for (name, error) in broken.drain(..) {
        trials.push(Trial::test(name, move || Err(error.into())));
    }
    let end = libtest_mimic::run(&args, trials);
    run::write_updates();
    end.exit_code()
}

fn of_machines(cases: &[Arc<case::Case>], args: &Arguments) -> Vec<Trial> {
    let trials = vm::trials(cases, |name| selected(args, name));
    trials.into_iter().map(|vm::Trial { name, case, batch }| Trial::ignorable_test(name, move || verdict(batch.result(&case)))).collect()
}

fn of_host(cases: Vec<Arc<case::Case>>, long: bool) -> Vec<Trial> {
    let mut trials = Vec::new();
    let sent: Vec<_> = cases.iter().filter(|case| long && travel::is_sent(case)).cloned().collect();
    for case in cases.into_iter().filter(|c| c.host && c.long == long) {
        trials.push(Trial::ignorable_test(case.full_name(), move || on_host(&case, times::take(&case.full_name(), || run::run(&case)))));
    }
    trials.extend(sent.into_iter().map(|case| {
        let name = format!("travel::{}", case.full_name());
        Trial::ignorable_test(name.clone(), move || on_host(&case, times::take(&name, || run::travel(&case))))
    }));
    for file in files("check", "bt").into_iter().filter(|_| !long) {
        let name = format!("check::{}", stem(&file));
        trials.push(Trial::ignorable_test(name.clone(), move || verdict(times::take(&name, || check::check(&file)))));
    }
    trials
}

/// The result of a case on this machine.
fn on_host(case: &case::Case, ran: Verdict) -> Result<Completion, Failed> {
    match ran {
        // This is not a failure even with RBT_TEST_REQUIRE=all, because the case runs in a virtual machine.
        Verdict::Skip(why) if case.vm.iter().any(|k| k != vm::MATRIX) => {
            Ok(Completion::ignored_with(format!("needs {why}: run in the virtual machine, by `cargo test --test vm`")))
        }
        ran @ (Verdict::Pass | Verdict::Skip(_) | Verdict::Fail(_)) => verdict(ran),
    }
}

/// The result of a case.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// The case passed.
    Pass,
    /// The case was skipped. The text names the missing requirement.
    Skip(String),
    /// The case failed. The text is the report.
    Fail(String),
}

fn verdict(v: Verdict) -> Result<Completion, Failed> {
    match v {
        Verdict::Pass => Ok(Completion::Completed),
        Verdict::Skip(why) if need::required() => Err(format!("skipped, and RBT_TEST_REQUIRE=all: needs {why}").into()),
        Verdict::Skip(why) => Ok(Completion::ignored_with(format!("needs {why}"))),
        Verdict::Fail(why) => Err(why.into()),
    }
}

/// Loads all cases, and returns the files that cannot be parsed with the reason.
fn load() -> (Vec<Arc<case::Case>>, Vec<(String, String)>) {
    let (mut cases, mut broken) = (Vec::new(), Vec::new());
    for group in ["run", "cli", "oneliner"] {
        for file in files(group, "case") {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            match case::parse(group, &file, &text) {
                Ok(list) => cases.extend(list.into_iter().map(Arc::new)),
                Err(e) => broken.push((format!("{group}::{}", stem(&file)), format!("{}: {e}", file.display()))),
            }
        }
    }
    match case::parse("example", Path::new("examples"), &examples()) {
        Ok(list) => cases.extend(list.into_iter().map(Arc::new)),
        Err(e) => broken.push(("example".into(), e)),
    }
    (cases, broken)
}

/// Makes cases of the published examples. These are the files of `one-liners` without their own cases, the `rbt …` lines in the
/// pages, and the scripts in `man`.
fn examples() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut text = String::from("NEEDS root\nERR_NOT error\\[|panicked\n");
    let mut add = |name: String, shown: &Shown| {
        let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        text += &format!("\nNAME {name}\n");
        if let Some(needs) = shown.needs() {
            text += &format!("NEEDS root, {needs}\n");
        }
        // Commands and builds end by themselves, so their limit allows for a slow machine.
        let long = match shown {
            Shown::Command(c) if c.starts_with("build ") => 100,
            Shown::Command(c) if c.contains(" -c ") => 15,
            Shown::Command(_) | Shown::Script(_) => 2,
        };
        if long > 15 {
            text += "TIMEOUT 120\nLONG yes\n";
        }
        let wait = format!("timeout --foreground --preserve-status -s INT {long} \"$RBT\"");
        // An example that runs until it is interrupted receives a signal soon after its probes are attached.
        let attached = "AFTER sleep 0.3\n";
        match shown {
            Shown::Command(c) if shown.is_endless_run() => text += &format!("{attached}ARGS {c}\n{}", shown.says()),
            Shown::Command(c) if shown.of_files().is_some() => {
                text += &format!("TIMEOUT 60\nSH {}; \"$RBT\" {c}\n", shown.of_files().unwrap_or_default());
            }
            Shown::Command(c) => text += &format!("SH {wait} {c}\n{}", shown.says()),
            Shown::Script(lines) => {
                let lines: String = lines.lines().map(|l| format!("  |{l}\n")).collect();
                text += &format!("FILE shown.bt\n{lines}{attached}ARGS shown.bt\n{}", shown.says());
            }
        }
    };
    let cased: Vec<String> = files("oneliner", "case").iter().map(|f| stem(f)).collect();
    for file in entries(&root.join("one-liners"), "bt").into_iter().filter(|f| !cased.contains(&stem(f))) {
        add(stem(&file), &Shown::Command(file.display().to_string()));
    }
    // An example on several pages runs only once.
    let mut seen = Vec::new();
    let pages = ["1", "7"].iter().flat_map(|section| entries(&root.join("man"), section));
    for page in pages.chain([root.join("README.md")]) {
        let roff = page.extension().is_some_and(|e| e != "md");
        for (line, shown) in shown(&std::fs::read_to_string(&page).unwrap_or_default(), roff) {
            if !seen.contains(&shown) {
                add(format!("{}_{line}", stem(&page)), &shown);
                seen.push(shown);
            }
        }
    }
    text
}

/// An example of a page.
#[derive(PartialEq, Eq)]
enum Shown {
    /// The text after `rbt`.
    Command(String),
    Script(String),
}

impl Shown {
    /// The shell command that makes the files that examples without probes need.
    fn of_files(&self) -> Option<&'static str> {
        match self {
            Self::Command(c) if c.starts_with("fmt") => Some("printf 'begin {}\\n' | tee old.bt > a.bt"),
            Self::Command(c) if c.starts_with("snapshot") || c.starts_with("check") || c.contains(" --against ") => Some(
                "mkdir scripts kernels; printf 'begin {}\\n' | tee a.bt > scripts/a.bt; $RBT snapshot -q -o k.rbts 2> told; cp k.rbts kernels",
            ),
            Self::Command(_) | Self::Script(_) => None,
        }
    }

    /// Does the example run a script until it is interrupted? Then it has no `-c` or `-p`, and needs no shell.
    fn is_endless_run(&self) -> bool {
        match self {
            Self::Command(c) => {
                let script = c.starts_with('/') || c.starts_with("-e ") || c.starts_with("-f json");
                script && !c.contains(" -c ") && !c.contains(" -p ") && !self.is_for_shell()
            }
            Self::Script(_) => false,
        }
    }

    /// Does the command contain special characters of the shell outside of quotes?
    fn is_for_shell(&self) -> bool {
        let Self::Command(c) = self else { return false };
        let mut quote = None;
        c.chars().any(|sign| match quote {
            Some(open) => {
                quote = Some(open).filter(|open| *open != sign);
                open == '"' && "$`\\".contains(sign)
            }
            None => {
                quote = Some(sign).filter(|sign| ['\'', '"'].contains(sign));
                "|&;<>$`*?#".contains(sign)
            }
        })
    }

    /// The requirements in addition to root.
    fn needs(&self) -> Option<&'static str> {
        match self {
            Self::Command(c) if c.contains("| jq ") => Some("jq"),
            Self::Command(_) | Self::Script(_) => None,
        }
    }

    /// The expected output.
    fn says(&self) -> &'static str {
        match self {
            // Examples that list or print information do not attach.
            Self::Command(c) if ["-l", "info", "help", "one-liners", "--test", "--bench"].iter().any(|w| c.starts_with(w)) => {
                "EXPECT_RE .\n"
            }
            Self::Command(c) if c.contains(" --help") => "EXPECT_RE ^Usage: rbt\n",
            Self::Command(c) if c.contains("| jq ") => "EXPECT_RE ^[^ ].* [0-9]+$\n",
            Self::Command(c) if c.starts_with("build ") => "ERR_RE ^Wrote \n",
            Self::Command(c) if c.starts_with("-f json") => "EXPECT_HAS \"attached_probes\"\n",
            Self::Command(_) | Self::Script(_) => "ERR_RE ^Attached [0-9]+ probe\n",
        }
    }
}

/// The examples of a page with their line numbers. In Markdown, these are the fenced lines that start with `rbt`. In roff, these
/// are such lines between `.EX` and `.EE`. A block without such a line is a script.
fn shown(page: &str, roff: bool) -> Vec<(usize, Shown)> {
    let (mut found, mut block, mut fenced) = (Vec::new(), Vec::new(), false);
    for (n, line) in page.lines().enumerate() {
        let was = fenced;
        fenced = if roff { line == ".EX" || fenced && line != ".EE" } else { fenced ^ line.starts_with("```") };
        if was && fenced {
            block.push((n + 1, if roff { typed(line) } else { line.into() }));
        }
        if was && !fenced {
            let block = std::mem::take(&mut block);
            let commands = block.iter().filter_map(|(n, l)| Some((*n, Shown::Command(l.strip_prefix("rbt ")?.into()))));
            let commands: Vec<_> = commands.collect();
            match block.first() {
                Some((n, _)) if roff && commands.is_empty() => {
                    let script: Vec<&str> = block.iter().map(|(_, l)| l.as_str()).collect();
                    found.push((*n, Shown::Script(script.join("\n"))));
                }
                _ => found.extend(commands),
            }
        }
    }
    found
}

/// Renders the escapes of groff_char(7) that the pages use.
fn typed(roff: &str) -> String {
    let signs = [("\\(aq", "'"), ("\\(dq", "\""), ("\\(ga", "`"), ("\\(ha", "^"), ("\\(ti", "~"), ("\\&", ""), ("\\-", "-"), ("\\e", "\\")];
    signs.iter().fold(roff.to_string(), |text, (from, to)| text.replace(from, to))
}

fn files(group: &str, ext: &str) -> Vec<PathBuf> {
    entries(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(group), ext)
}

fn entries(dir: &Path, ext: &str) -> Vec<PathBuf> {
    let mut list: Vec<_> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == ext))
        .collect();
    list.sort();
    list
}

fn stem(p: &Path) -> String {
    p.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Would libtest run a trial with this name? libtest decides in the same way, but only later.
fn selected(args: &Arguments, name: &str) -> bool {
    let hit = |f: &str| if args.exact { name == f } else { name.contains(f) };
    args.filter.as_deref().is_none_or(hit) && !args.skip.iter().any(|s| hit(s))
}
