//! What the checker accepts, the verifier accepts, and what scripts print is right: scripts made up at random, the same
//! ones in every run. `cargo bench --bench generate` tries as many as are wanted.
//!
//! Unsafe: a system call that has no safe wrapper here.

#![allow(unsafe_code)]

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::process::{Command, ExitCode};

#[path = "gen/mod.rs"]
mod generate;

/// How many of a kind, and how many at a time: each time is a process of its own.
const KINDS: &[(&str, u64, u64)] = &[("wild", 500, 125), ("exact", 250, 125)];

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
    libtest_mimic::run(&args, trials).exit_code()
}

fn run(work: &str) -> Result<Completion, Failed> {
    // SAFETY: takes nothing and cannot fail
    if unsafe { libc::geteuid() } != 0 {
        let required = std::env::var("RBT_TEST_REQUIRE").is_ok_and(|v| v == "all");
        return if required {
            Err("skipped, and RBT_TEST_REQUIRE=all: needs root".into())
        } else {
            Ok(Completion::ignored_with("needs root"))
        };
    }
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let out = Command::new(me).env(generate::WORK, work).output().map_err(|e| e.to_string())?;
    if out.status.success() {
        return Ok(Completion::Completed);
    }
    let said = String::from_utf8_lossy(&out.stdout);
    Err(format!("{}\n{said}\n{}", out.status, String::from_utf8_lossy(&out.stderr)).into())
}
