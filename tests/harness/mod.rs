//! Runs every file under `tests/cases`, one line per case, in three runs: `cargo test --test cases` on this machine,
//! `cargo test --test long` on this machine what takes seconds a case, `cargo test --test vm` in virtual machines with other
//! kernels. A plain `cargo test` includes only the first; `.ci/run` runs all three.
//!
//! ```text
//! cargo test --test cases                      those of this machine, except the long ones
//! cargo test --test cases -- run::maps         those whose name contains run::maps
//! cargo test --test cases -- --list            their names
//! cargo test --test vm -- vm-6.1::stacks       some of those in a virtual machine
//! UPDATE=1 cargo test --test cases -- NAME     rewrite EXPECT_EXACT to what was printed
//! RBT_TEST_REQUIRE=all cargo test              a case that cannot run here is a failure
//! RBT_TEST_KERNEL=5.10 cargo test --test vm …  another kernel in the virtual machine (tests/vm/matrix.sh: several)
//! RBT_TEST_TIMES=FILE cargo test …             append the seconds of each case to FILE, and those of each machine's boot
//! ```
//!
//! | folder | what | name |
//! |---|---|---|
//! | `cases/run/*.case` | programs on a real kernel | `run::FILE::NAME`, `vm-6.1::FILE::NAME`, `vm-6.12::…` |
//! | `cases/cli/*.case` | arguments, status, output; same form | `cli::FILE::NAME` |
//! | `cases/oneliner/*.case` | the script of that name under a load made for it; same form | `oneliner::FILE::NAME` |
//! | `cases/check/*.bt` | a script and its diagnostics | `check::FILE` |
//! | `one-liners/*.bt` without a file there, `rbt` lines in README's fences and man pages' `.EX`, scripts in the latter | run for two seconds without complaint | `example::…` |
//!
//! # A `.case` file
//!
//! Blocks, each a list of `KEY value`; a value goes on over the indented lines that follow (their
//! common indent is dropped; a `|` before each line keeps leading blanks and empty lines). A block
//! starts at `NAME`; keys before the first `NAME` are the file's defaults. `#` in column one is a
//! comment.
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
//! What is run: `rbt -e PROG ARGS…` in a folder of its own.
//!
//! | key | meaning |
//! |---|---|
//! | `NAME` | letters, digits, `_`; unique within its file |
//! | `PROG` | the program, given by `-e` before `ARGS`, or where `ARGS` says `{{prog}}` |
//! | `ARGS` | more arguments, split as a shell does; without `PROG`, all of them |
//! | `SH` | instead of both: a shell command, with `$RBT` |
//! | `FILE` | first line a name, then its content: a file in the case's folder |
//! | `ENV` | `A=b` a line |
//! | `STDIN` | rbt's standard input (else empty) |
//! | `SETUP` | shell, to its end, before |
//! | `BEFORE` | shell, started before and ended after; rbt starts once it printed a line (or 0.3 s) |
//! | `AFTER` | shell, started when rbt says that it is attached; ended after |
//! | `SIGNAL` | sent to rbt once `AFTER` ended (default INT; `none`) |
//! | `NEEDS` | comma list: `root x86_64 aarch64 btf cgroup2 kprobe kprobe_multi kprobe_session fentry override bpf_loop for_each uprobe uprobe_multi aslr tools otlp postgresql kernel>=6.6 viztracer duckdb speedscope`, a loaded module `module:NAME` or the types of one `types:NAME`, or a command's name; `!` before one: its absence |
//! | `HOST` | `yes`/`no`: run on this machine (default yes) |
//! | `LONG` | `yes`/`no`: on this machine, run only by `cargo test --test long` (default no); for cases of more than four seconds |
//! | `VM` | `no` (the default), `yes`, one of `vm/kernels` or several: run in a virtual machine with such a kernel; `matrix`: only where tests/vm/matrix.sh does |
//! | `TIMEOUT` | seconds (default 20; six times that in the virtual machine) |
//! | `STATUS` | exit status (default 0); 128+N for a signal; `nonzero`, `any` |
//!
//! What is expected of standard output, or with `ERR` in place of `EXPECT` of standard error:
//!
//! | key | each line of it |
//! |---|---|
//! | `EXPECT` | is a whole line there |
//! | `EXPECT_HAS` | is part of a line |
//! | `EXPECT_RE` | is a regular expression that some line matches |
//! | `EXPECT_ALL` | the value is one expression over the whole text (`(?m)` and `(?s)` as needed) |
//! | `EXPECT_NOT` | is an expression that no line may match |
//! | `EXPECT_EXACT` | the value is the whole text, but for a last newline |
//!
//! The first three are found in the order written, with any lines between.
//!
//! In all values `{{tmp}}` is the case's folder, `{{fix}}` its own copy of `tests/fixtures`, compiled,
//! `{{rbt}}` the program, `{{root}}` the project, `{{before_pid}}` and `{{after_pid}}` those processes;
//! shells have `$CASE_TMP`, `$FIX`, `$RBT`, `$BEFORE_PID`, `$AFTER_PID`.

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
#[allow(dead_code, reason = "each test binary is of one kind")]
pub enum Runs {
    /// Those for this machine, except the long ones.
    Cases,
    /// Those for this machine that take long, and those that travel through bundles.
    Long,
    /// Those for virtual machines.
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
        // Not a failure even if nothing may be skipped, because the case runs elsewhere.
        Verdict::Skip(why) if case.vm.iter().any(|k| k != vm::MATRIX) => {
            Ok(Completion::ignored_with(format!("needs {why}: run in the virtual machine, by `cargo test --test vm`")))
        }
        ran @ (Verdict::Pass | Verdict::Skip(_) | Verdict::Fail(_)) => verdict(ran),
    }
}

/// The result of a case.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// As expected.
    Pass,
    /// Skipped: the missing requirement.
    Skip(String),
    /// Failed: the report.
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

/// All cases of these directories, and the files that cannot be read, with the reason.
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

/// The published examples work: each file of `one-liners` without cases of its own, each `rbt …` line in the pages and, in
/// `man`, each script.
fn examples() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut text = String::from("NEEDS root\nERR_NOT error\\[|panicked\n");
    let mut add = |name: String, shown: &Shown| {
        let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        text += &format!("\nNAME {name}\n");
        if let Some(needs) = shown.needs() {
            text += &format!("NEEDS root, {needs}\n");
        }
        // a command and a build end by themselves, however slow the machine is
        let long = match shown {
            Shown::Command(c) if c.starts_with("build ") => 100,
            Shown::Command(c) if c.contains(" -c ") => 15,
            Shown::Command(_) | Shown::Script(_) => 2,
        };
        if long > 15 {
            text += "TIMEOUT 120\nLONG yes\n";
        }
        let wait = format!("timeout --foreground --preserve-status -s INT {long} \"$RBT\"");
        // what runs until it is interrupted is interrupted soon after it is attached
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
    /// The files that examples without probes need.
    fn of_files(&self) -> Option<&'static str> {
        match self {
            Self::Command(c) if c.starts_with("fmt") => Some("printf 'begin {}\\n' | tee old.bt > a.bt"),
            Self::Command(c) if c.starts_with("snapshot") || c.starts_with("check") || c.contains(" --against ") => Some(
                "mkdir scripts kernels; printf 'begin {}\\n' | tee a.bt > scripts/a.bt; $RBT snapshot -q -o k.rbts 2> told; cp k.rbts kernels",
            ),
            Self::Command(_) | Self::Script(_) => None,
        }
    }

    /// Is it a run of one script, without a command whose end ends it, and without the shell's help?
    fn is_endless_run(&self) -> bool {
        match self {
            Self::Command(c) => {
                let script = c.starts_with('/') || c.starts_with("-e ") || c.starts_with("-f json");
                script && !c.contains(" -c ") && !c.contains(" -p ") && !self.is_for_shell()
            }
            Self::Script(_) => false,
        }
    }

    /// Does the command have signs of the shell outside of quotes?
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

    /// The requirements, in addition to a kernel with tracing.
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

/// The examples of a page with their line numbers: in Markdown, the fenced lines that start with `rbt`; in roff, those between
/// `.EX` and `.EE`, or the entire block as a script if it has no such line.
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

/// Renders a line of roff, as far as the pages use it (groff_char(7)).
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

/// Would libtest run a trial with this name? (libtest decides in the same way, but only later.)
fn selected(args: &Arguments, name: &str) -> bool {
    let hit = |f: &str| if args.exact { name == f } else { name.contains(f) };
    args.filter.as_deref().is_none_or(hit) && !args.skip.iter().any(|s| hit(s))
}
