//! Runs cases of the group `run` through bundles. `rbt build` and `rbt-run` must produce the output that `rbt` produces.
//!
//! A case travels through a bundle if rbt runs its script unchanged. It does not travel if it uses options that concern this
//! machine, or if it expects a failure or messages on standard error, which come from the compiler. `cargo test --test long` runs
//! some of the cases, the same ones each time. With `RBT_TRAVEL=all`, it runs all of them.

use super::case::{Case, Status};
use super::need;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Without `RBT_TRAVEL=all`, one case in this many travels.
const ONE_OF: u64 = 12;

/// One traveling case in this many has variants for other kernels.
const WITH_VARIANTS: u64 = 4;

/// Options that `rbt build` does not accept, and options with which rbt runs no script. Cases with these do not travel.
const STAY: &[&str] = &[
    "-l",
    "-d",
    "--debug",
    "--serve",
    "--otlp",
    "--test",
    "--bench",
    "--mode",
    "--emit",
    "--info",
    "--help",
    "-h",
    "-V",
    "--version",
    "--verify-llvm-ir",
    "--probe-filter",
    "--traceable-functions",
    "--watch",
    "-I",
    "--include",
    "--no-feature",
];

/// The commands that receive an option.
enum For {
    Run,
    Both,
}

/// Options that `rbt-run` accepts, whether they have a value, and the commands that receive them.
const OF_RUN: &[(&str, bool, For)] = &[
    ("-f", true, For::Both),
    ("--format", true, For::Both),
    ("-c", true, For::Run),
    ("-p", true, For::Run),
    ("--pid", true, For::Run),
    ("--cgroup", true, For::Run),
    ("--container", true, For::Run),
    ("--follow", false, For::Run),
    ("--unsafe", false, For::Both),
    ("-o", true, For::Run),
    ("-B", true, For::Run),
    ("-q", false, For::Run),
    ("-v", false, For::Run),
    ("--strict", false, For::Run),
    ("--duration", true, For::Run),
    ("--expect", true, For::Run),
    ("--expect-file", true, For::Run),
    ("--report", true, For::Run),
    ("--dry-run", false, For::Run),
    ("--map-layout", true, For::Both),
    ("--no-warnings", false, For::Both),
    ("--propagate-status", false, For::Run),
];

/// Splits the arguments of rbt into those of `rbt build` and those of `rbt-run`. Returns `None` if the case does not travel.
pub fn split(words: &[String]) -> Option<(Vec<String>, Vec<String>)> {
    let (mut build, mut run) = (Vec::new(), Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            build.push(word.clone());
            build.extend(words.by_ref().cloned());
            break;
        }
        if word == "-e" {
            build.push(word.clone());
            build.extend(words.next().cloned());
            continue;
        }
        if STAY.iter().any(|stay| word.starts_with(stay)) {
            return None;
        }
        let known = OF_RUN.iter().find(|(name, ..)| word == name || word.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')));
        let Some((name, valued, who)) = known else {
            build.push(word.clone());
            continue;
        };
        let mut taken = vec![word.clone()];
        if *valued && word == name {
            taken.extend(words.next().cloned());
        }
        if let For::Both = who {
            build.extend(taken.iter().cloned());
        }
        run.extend(taken);
    }
    Some((build, run))
}

/// Does a process on the command line choose the files of the probes?
fn traces_files_of_process(case: &Case) -> bool {
    let of_process = case.text("ARGS").is_some_and(|args| args.contains("{{before_pid}}"));
    of_process && ["uprobe:", "uretprobe:", "usdt:"].iter().any(|kind| case.text("PROG").is_some_and(|text| text.contains(kind)))
}

/// Does this case travel in this run?
pub fn is_sent(case: &Case) -> bool {
    let plain =
        case.host && case.group == "run" && case.text("PROG").is_some() && case.text("SH").is_none() && case.text("STDIN").is_none();
    let words = || shlex::split(case.text("ARGS").unwrap_or("")).unwrap_or_default();
    plain
        && matches!(case.status, Status::Is(0))
        && case.expect.iter().all(|e| !e.err)
        && !case.text("ARGS").is_some_and(|args| args.contains("{{prog}}"))
        // Kernel addresses are valid only until the next boot, and an option of a run has another capacity than a literal.
        && !case.mentions(&["kaddr(", "sizeof($t)"])
        && !traces_files_of_process(case)
        && split(&words()).is_some()
        && (std::env::var("RBT_TRAVEL").is_ok_and(|v| v == "all") || hash(&case.full_name()).is_multiple_of(ONE_OF))
}

/// The options of `rbt build` for kernels. A debug build needs several seconds for variants for other kernels, so only some
/// cases have them.
pub fn kernels(case: &Case) -> &'static [&'static str] {
    if hash(&case.full_name()).is_multiple_of(ONE_OF * WITH_VARIANTS) { &[] } else { &["--this-kernel"] }
}

/// The bundle of a case. Virtual machines can read it, too.
pub fn bundle_path(case: &Case) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.bundle", case.full_name().replace("::", ".")))
}

/// Builds the bundle of a case, if it has one.
pub fn build(case: &Case) -> Result<(), String> {
    let Some(args) = case.text("BUNDLE") else { return Ok(()) };
    let words = shlex::split(args).ok_or("BUNDLE: unbalanced quotes")?;
    let mut c = Command::new(need::rbt());
    c.args(["build", "-q", "-o"]).arg(bundle_path(case)).args(words).stdin(Stdio::null());
    let out = c.output().map_err(|e| format!("BUNDLE: {e}"))?;
    let text = String::from_utf8_lossy(&out.stderr);
    if out.status.success() { Ok(()) } else { Err(format!("BUNDLE: {}\n{text}", out.status)) }
}

/// The FNV-1a hash, which is the same on every machine.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// Creates a link to the runner under test, which is in the directory of rbt. The link is named `rbt`, so that scripts that print
/// the name of their own process print `rbt`. RBT_TEST_RUNNER names another runner (`rbt-run-small`, which cannot run all cases).
pub fn runner(directory: &Path) -> Result<PathBuf, String> {
    let called = directory.join("runner/rbt");
    let runner = need::rbt().with_file_name(std::env::var_os("RBT_TEST_RUNNER").unwrap_or_else(|| "rbt-run".into()));
    let made = std::fs::create_dir_all(directory.join("runner")).and_then(|()| symlink(runner, &called));
    made.map_err(|e| format!("{}: {e}", called.display()))?;
    Ok(called)
}
