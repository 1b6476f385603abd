//! Runs random scripts to check that the verifier accepts the scripts that sema accepts, and that their output is correct. The
//! scripts are the same in every run. `cargo bench --bench generate` tries any number of them. A second, independent generator
//! makes the `stress` scripts.
//!
//! The scripts of `gen/constants.rs` compare constant folding with the compiled program.
//!
//! If bpftrace is installed, the scripts of `bpftrace.list` run in bpftrace and in rbt. `RBT_TEST_BPFTRACE` can name the bpftrace
//! binary.
//!
//! This file uses unsafe code for a system call that has no safe wrapper here.

#![allow(unsafe_code)]

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::process::{Command, ExitCode};

#[path = "gen/constants.rs"]
mod constants;
#[path = "gen/mod.rs"]
mod generate;

/// The kinds of scripts, the number of scripts of each, and the number that one process runs.
const KINDS: &[(&str, u64, u64)] = &[("wild", 500, 125), ("stress", 250, 125), ("exact", 250, 125)];

fn main() -> ExitCode {
    if let Ok(work) = std::env::var(generate::WORK) {
        let args: Vec<String> = work.split(' ').map(String::from).collect();
        return generate::main(&args);
    }
    let mut args = Arguments::from_args();
    args.test_threads.get_or_insert(2);
    let mut trials = Vec::new();
    for (kind, n, at_once) in KINDS {
        for first in (1..=*n).step_by(*at_once as usize) {
            let work = format!("{kind} {at_once} {first}");
            let name = format!("{kind}::{first}_to_{}", first + at_once - 1);
            trials.push(Trial::ignorable_test(name, move || run(&work)));
        }
    }
    for (i, script) in constants::scripts().into_iter().enumerate() {
        trials.push(Trial::ignorable_test(format!("constants::{}", i + 1), move || agree(&script)));
    }
    for (i, (script, differs)) in scripts().into_iter().enumerate() {
        trials.push(Trial::ignorable_test(format!("bpftrace::{}", i + 1), move || compare(&script, &differs)));
    }
    libtest_mimic::run(&args, trials).exit_code()
}

/// The scripts of `bpftrace.list`, each with the reason why its output differs. The reason is empty if the output is equal.
fn scripts() -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for line in include_str!("bpftrace.list").lines() {
        match (line.strip_prefix("# differs: "), all.last_mut()) {
            (Some(why), Some(last)) => last.1 = why.into(),
            _ if line.starts_with('#') || line.is_empty() => {}
            _ => all.push((line.into(), String::new())),
        }
    }
    all
}

fn compare(script: &str, differs: &str) -> Result<Completion, Failed> {
    let bpftrace = std::env::var("RBT_TEST_BPFTRACE").unwrap_or_else(|_| "bpftrace".into());
    let Ok(theirs) = Command::new(&bpftrace).args(["-q", "--no-warnings", "-e", script]).output() else {
        // bpftrace may not be installed.
        return Ok(Completion::ignored_with("needs bpftrace"));
    };
    let ours = Command::new(env!("CARGO_BIN_EXE_rbt")).args(["-q", "-e", script]).output().map_err(|e| e.to_string())?;
    if !theirs.status.success() {
        return Ok(Completion::ignored_with("bpftrace rejects it"));
    }
    let lines = |out: &[u8]| -> Vec<String> {
        String::from_utf8_lossy(out).lines().map(|l| l.trim_end().to_string()).filter(|l| !l.is_empty()).collect()
    };
    let (a, b) = (lines(&theirs.stdout), lines(&ours.stdout));
    match (a == b, differs.is_empty()) {
        // Another version of bpftrace may not have a known difference.
        (true, _) | (false, false) => Ok(Completion::Completed),
        (false, true) => Err(format!("{script}\nbpftrace: {a:#?}\nrbt: {b:#?}\n{}", String::from_utf8_lossy(&ours.stderr)).into()),
    }
}

/// The result of a test without root, because programs cannot run then.
fn without_root() -> Option<Result<Completion, Failed>> {
    // SAFETY: The call takes no arguments and cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        return None;
    }
    let required = std::env::var("RBT_TEST_REQUIRE").is_ok_and(|v| v == "all");
    Some(if required { Err("skipped, and RBT_TEST_REQUIRE=all: needs root".into()) } else { Ok(Completion::ignored_with("needs root")) })
}

/// Constant folding and the program agree in all comparisons.
fn agree(script: &constants::Script) -> Result<Completion, Failed> {
    if let Some(answer) = without_root() {
        return answer;
    }
    let out = Command::new(env!("CARGO_BIN_EXE_rbt")).args(["-q", "-e", &script.text]).output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&out.stdout);
    let failed: Vec<&str> = said.lines().filter_map(|l| script.rows.get(l.parse::<usize>().ok()?)).map(String::as_str).collect();
    let ended = said.lines().any(|l| l == "end");
    if ended && failed.is_empty() && out.status.success() {
        return Ok(Completion::Completed);
    }
    Err(format!("{}: {failed:#?}\n{}", out.status, String::from_utf8_lossy(&out.stderr)).into())
}

fn run(work: &str) -> Result<Completion, Failed> {
    if let Some(answer) = without_root() {
        return answer;
    }
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let out = Command::new(me).env(generate::WORK, work).output().map_err(|e| e.to_string())?;
    if out.status.success() {
        return Ok(Completion::Completed);
    }
    let said = String::from_utf8_lossy(&out.stdout);
    Err(format!("{}\n{said}\n{}", out.status, String::from_utf8_lossy(&out.stderr)).into())
}
