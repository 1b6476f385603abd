//! Sends cases of `run` through bundles: what `rbt build` and `rbt-run` make of a script must be what `rbt` makes of it.
//!
//! A case travels if rbt runs its script as it is: not with options that concern this machine, and not if messages on standard error
//! or a failure are expected, which come from the compiler. `cargo test --test long` sends some cases, the same ones each time; with
//! `RBT_TRAVEL=all`, it sends all.

use super::case::{Case, Status};
use super::need;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Without `RBT_TRAVEL=all`, one of so many cases travels.
const ONE_OF: u64 = 12;

/// One of so many cases that travel has variants.
const WITH_VARIANTS: u64 = 4;

/// Options that `rbt build` does not take, and those for which nothing runs.
const STAY: &[&str] = &[
    "-p",
    "--pid",
    "-l",
    "-d",
    "--debug",
    "--cgroup",
    "--container",
    "--expect",
    "--report",
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
    "--follow",
    "-I",
    "--include",
    "--no-feature",
];

/// What of an option's words is for whom.
enum For {
    Run,
    Both,
}

/// Options that `rbt-run` takes, and whether they have a value.
const OF_RUN: &[(&str, bool, For)] = &[
    ("-f", true, For::Both),
    ("--format", true, For::Both),
    ("-c", true, For::Both),
    ("--unsafe", false, For::Both),
    ("-o", true, For::Run),
    ("-B", true, For::Run),
    ("-q", false, For::Run),
    ("-v", false, For::Run),
    ("--strict", false, For::Run),
    ("--duration", true, For::Run),
    ("--dry-run", false, For::Run),
    ("--map-layout", true, For::Both),
    ("--no-warnings", false, For::Both),
    ("--propagate-status", false, For::Run),
];

/// Arguments of `rbt build` and of `rbt-run`, from those of rbt; none if the case does not travel.
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

/// Does this case travel, and is it one of those that are sent?
pub fn is_sent(case: &Case) -> bool {
    let plain =
        case.host && case.group == "run" && case.text("PROG").is_some() && case.text("SH").is_none() && case.text("STDIN").is_none();
    let words = || shlex::split(case.text("ARGS").unwrap_or("")).unwrap_or_default();
    plain
        && matches!(case.status, Status::Is(0))
        && case.expect.iter().all(|e| !e.err)
        && !case.text("ARGS").is_some_and(|args| args.contains("{{prog}}"))
        // addresses of the kernel hold until it starts again
        && !case.mentions(&["kaddr("])
        && split(&words()).is_some()
        && (std::env::var("RBT_TRAVEL").is_ok_and(|v| v == "all") || hash(&case.full_name()).is_multiple_of(ONE_OF))
}

/// Variants for other kernels take a debug build several seconds: some of the cases have them.
pub fn kernels(case: &Case) -> &'static [&'static str] {
    if hash(&case.full_name()).is_multiple_of(ONE_OF * WITH_VARIANTS) { &[] } else { &["--this-kernel"] }
}

/// FNV-1a: the same on every machine.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// The runner under test, which is beside rbt, by a name in this directory that makes it `rbt` for scripts that print the name of their
/// own process.
pub fn runner(directory: &Path) -> Result<PathBuf, String> {
    let called = directory.join("runner/rbt");
    let made = std::fs::create_dir_all(directory.join("runner")).and_then(|()| symlink(need::rbt().with_file_name("rbt-run"), &called));
    made.map_err(|e| format!("{}: {e}", called.display()))?;
    Ok(called)
}
