//! Tests rbt with many randomly changed scripts. None of them may cause a panic, a stack overflow or a hang.
//!
//! The bytes or words of scripts in the repository are changed at random. Each changed script is parsed, checked for a synthetic
//! machine and for this one, compiled, and formatted by fmt. The result of fmt must parse and have the same meaning, words and
//! comments. If it is formatted again, it must not change.
//!
//! ```text
//! cargo test --test mutate                                             run the tests, with a few thousand inputs
//! cargo test --release --test mutate -- long COUNT [SEED [FROM]]       try COUNT scripts of a seed, starting at number FROM
//! cargo test --release --test mutate -- show SEED NUMBER               print a script
//! cargo test --release --test mutate -- damage COUNT [SEED]            try COUNT files with damaged call frame information
//! cargo test --release --test mutate -- objects COUNT [SEED]           try COUNT damaged BPF objects
//! RBT_MUTATE_COMPILE=N cargo test …                                    compile only one in N of the scripts (default 1)
//! ```
//!
//! Other inputs are changed in the same way: documents with the states of runs are merged, descriptions of bundles are read, and
//! call frame information is compiled. Damaged BPF objects are linked.
//! Names of processes and functions are composed of characters that have a meaning in an
//! output format, and are rendered in all formats.
//!
//! The scripts run in separate processes. If a process crashes or hangs, its script is reported, and the run continues. A number
//! of a seed means the same script as long as the scripts of the repository do not change.

#![allow(unsafe_code)] // setrlimit

mod bundles;
mod change;
mod corpus;
mod frames;
mod names;
mod objects;
mod states;
mod work;

use libtest_mimic::{Arguments, Trial};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The maximum CPU time of one script. It is longer for a debug build, which is slow.
const LIMIT: Duration = Duration::from_secs(if cfg!(debug_assertions) { 60 } else { 20 });

/// The maximum address space of one worker in bytes.
const MEMORY: u64 = 4 << 30;

fn main() -> ExitCode {
    rbt::parts::provide_all();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: u64| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    match args.first().map(String::as_str) {
        Some("long") => {
            let tally = run(&corpus::scripts(), number(2, 1), number(3, 0), number(1, 1_000_000), None);
            println!("{tally}");
            return if tally.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        Some("show") => {
            print!("{}", change::script(&corpus::scripts(), number(1, 1), number(2, 0)));
            return ExitCode::SUCCESS;
        }
        Some("damage") => {
            let done = frames::run(number(2, 1), number(1, 10_000));
            println!("{}", done.as_ref().map_or_else(|e| e.clone(), |n| format!("{n} tables with rows")));
            return if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        Some("objects") => {
            let done = objects::run(number(2, 1), number(1, 1000));
            println!("{}", done.as_ref().map_or_else(String::clone, |()| "linked".into()));
            return if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        Some("work") => {
            // With this limit, a script that needs too much memory does not affect others.
            let most = libc::rlimit { rlim_cur: MEMORY, rlim_max: MEMORY };
            // SAFETY: reads the limits, which live until it returns.
            unsafe { libc::setrlimit(libc::RLIMIT_AS, &most) };
            work::work(number(1, 1), number(2, 0), number(3, 1));
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let args = Arguments::from_args();
    let unchanged = Trial::test("mutate::unchanged", || {
        let faults: Vec<String> = corpus::scripts().iter().filter_map(|s| work::fmt(s).err().map(|e| format!("{e}\n{s}"))).collect();
        if faults.is_empty() { Ok(()) } else { Err(faults.join("\n────\n").into()) }
    });
    let changed = Trial::test("mutate::changed", || {
        let tally = run(&corpus::scripts(), 1, 0, 1500, Some(Duration::from_secs(15)));
        if tally.failures.is_empty() && tally.done > 0 { Ok(()) } else { Err(tally.to_string().into()) }
    });
    let states = Trial::test("mutate::states", || states::run(1, 1500).map_err(Into::into));
    let frames = Trial::test("mutate::frames", || frames::run(1, 500).map(drop).map_err(Into::into));
    let bundles = Trial::test("mutate::bundles", || bundles::run(1, 1500).map_err(Into::into));
    let objects = Trial::test("mutate::objects", || objects::run(1, 300).map_err(Into::into));
    let names = Trial::test("mutate::names", || names::run(1, 3000).map_err(Into::into));
    let bounded = Trial::test("mutate::frames_are_bounded", || frames::bounded().map_err(Into::into));
    libtest_mimic::run(&args, vec![unchanged, changed, states, bundles, frames, objects, names, bounded]).exit_code()
}

/// The results of many scripts.
#[derive(Default)]
struct Tally {
    done: u64,
    /// The numbers of scripts that were parsed, checked and compiled.
    passed: [u64; 3],
    failures: Vec<String>,
    seconds: u64,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let [parsed, checked, compiled] = self.passed;
        let (done, seconds, failures) = (self.done, self.seconds, self.failures.len());
        write!(f, "{done} scripts in {seconds} s: {parsed} parsed, {checked} checked, {compiled} compiled, {failures} failures")?;
        self.failures.iter().try_for_each(|e| write!(f, "\n{e}"))
    }
}

/// Runs `count` scripts of a seed. With `time`, it runs fewer scripts if the time is over, because `cargo test` must end.
fn run(scripts: &[String], seed: u64, from: u64, count: u64, time: Option<Duration>) -> Tally {
    let begin = Instant::now();
    let mut tally = Tally::default();
    let mut next = from;
    let end = from.saturating_add(count);
    let mut told = Instant::now();
    while next < end && time.is_none_or(|t| begin.elapsed() < t) && tally.failures.len() < 50 {
        let Ok((mut child, lines)) = worker(scripts, seed, next, end - next) else {
            tally.failures.push("cannot start a worker".into());
            break;
        };
        let (mut since, mut waits) = (Duration::ZERO, 0);
        // Each line of a worker is the number of a script that it starts, or a result of that script.
        let why = loop {
            if time.is_some_and(|t| begin.elapsed() >= t) {
                break None;
            }
            let line = match lines.recv_timeout(LIMIT) {
                Ok(line) => line,
                Err(mpsc::RecvTimeoutError::Timeout) if used(child.id()) < since + LIMIT && waits < 100 => {
                    waits += 1;
                    continue;
                }
                Err(mpsc::RecvTimeoutError::Timeout) => break Some(format!("hangs: over {LIMIT:?}")),
                Err(mpsc::RecvTimeoutError::Disconnected) => match child.wait() {
                    Ok(status) if status.success() => break None,
                    status => break Some(format!("crashed: {status:?}")),
                },
            };
            match line.split_once(' ') {
                Some(("passed", stage)) => tally.passed[stage.parse::<usize>().unwrap_or(0).min(2)] += 1,
                Some(("failed", what)) => tally.failures.push(failure(scripts, seed, next - 1, &what.replace('\u{1}', "\n"))),
                _ => {
                    next = line.parse::<u64>().unwrap_or(next) + 1;
                    if next.is_multiple_of(64) {
                        since = used(child.id());
                    }
                    waits = 0;
                    tally.done += 1;
                }
            }
            tally.seconds = begin.elapsed().as_secs();
            if time.is_none() && told.elapsed() > Duration::from_secs(60) {
                told = Instant::now();
                eprintln!("at {next}: {}", tally.to_string().lines().next().unwrap_or(""));
            }
        };
        let _ = child.kill();
        let _ = child.wait();
        match why {
            Some(why) => tally.failures.push(failure(scripts, seed, next.saturating_sub(1), &why)),
            None => break,
        }
    }
    tally.seconds = begin.elapsed().as_secs();
    tally
}

/// The CPU time that a process has used. On a busy machine, the elapsed time would be misleading.
fn used(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0))
}

fn failure(scripts: &[String], seed: u64, number: u64, what: &str) -> String {
    let script = change::script(scripts, seed, number);
    let text = format!("── seed {seed}, number {number}: {what}\n{script}\n──");
    eprintln!("{text}");
    text
}

fn worker(scripts: &[String], seed: u64, from: u64, count: u64) -> std::io::Result<(Child, mpsc::Receiver<String>)> {
    let words = [seed, from, count].map(|n| n.to_string());
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command.arg("work").args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    // The worker reads the scripts from its input, because the files may have changed in the meantime.
    if let Some(stdin) = child.stdin.take() {
        serde_json::to_writer(stdin, scripts)?;
    }
    let (to, lines) = mpsc::sync_channel(1000);
    if let Some(out) = child.stdout.take() {
        std::thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).try_for_each(|l| to.send(l)));
    }
    Ok((child, lines))
}
