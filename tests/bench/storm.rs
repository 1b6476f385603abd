//! Measures a promise of 1 % while a program causes a storm of events: the speed of this program, and of another one on another
//! CPU, before, during and after the storm.

#![allow(unsafe_code)] // affinities, clocks and cheap calls

use std::process::{Child, Command, ExitCode, Stdio};

use crate::process::{attached, interrupt};
use crate::stats::{Samples, rounds};

/// The first argument of a process that this file starts.
pub const WORD: &str = "--storm";

/// The length of a slice in milliseconds. The work of each slice is counted by itself.
const SLICE: u64 = 250;
/// The slices of a run.
const SLICES: u64 = 32;
/// The slices that have a storm.
const STORM: std::ops::Range<u64> = 8..24;
/// The time in milliseconds between the start of the processes and their first slice.
const DELAY: u64 = 300;

/// A source of events.
struct Case {
    name: &'static str,
    /// What the program does repeatedly, by its argument.
    work: &'static str,
    script: &'static str,
    /// Is only the storm's process traced?
    one_process: bool,
}

const CASES: &[Case] = &[
    Case { name: "a uprobe in a busy loop", work: "function", script: "uprobe:libc:toupper { @ = count(); }", one_process: true },
    Case {
        name: "sched_switch with a stack",
        work: "switch",
        script: "tracepoint:sched:sched_switch { @[kstack] = count(); }",
        one_process: false,
    },
    Case {
        name: "raw_syscalls with printf",
        work: "call",
        script: r#"tracepoint:raw_syscalls:sys_enter { printf("%s %d\n", comm, args.id); }"#,
        one_process: false,
    },
];

fn now() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the variable is local
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn pin(cpu: usize) {
    // SAFETY: the set is local, and its size is that of its type
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// Runs a process with the arguments `WORK CPU START`. It prints how often it worked in each slice.
pub fn work(args: &[String]) -> ExitCode {
    let number = |i: usize| args.get(i).and_then(|a| a.parse::<u64>().ok());
    let (Some(what), Some(cpu), Some(start)) = (args.first(), number(1), number(2)) else { return ExitCode::FAILURE };
    pin(cpu as usize);
    let storms = what != "bystander";
    if what == "switch" {
        std::thread::spawn(|| {
            loop {
                // SAFETY: the call has no arguments
                unsafe { libc::sched_yield() };
            }
        });
    }
    let mut counts = vec![0u64; SLICES as usize];
    while now() < start {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let mut number = 1u64;
    loop {
        let slice = (now() - start) / (SLICE * 1_000_000);
        let Some(count) = counts.get_mut(slice as usize) else { break };
        if storms && !STORM.contains(&slice) {
            std::thread::sleep(std::time::Duration::from_millis(1));
            continue;
        }
        for _ in 0..32 {
            // SAFETY: the calls have no side effects
            number = match what.as_str() {
                "function" => unsafe { libc::toupper(std::hint::black_box(b'a'.into())) as u64 },
                "switch" => unsafe { libc::sched_yield() as u64 },
                "call" => unsafe { libc::syscall(libc::SYS_getppid) as u64 },
                // a usual program computes more than it calls
                _ => {
                    let sum =
                        (0..2_000).fold(number, |n, i| std::hint::black_box(n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i)));
                    unsafe { libc::syscall(libc::SYS_getppid) };
                    sum
                }
            };
        }
        *count += 32;
    }
    std::hint::black_box(number);
    println!("{}", counts.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
    ExitCode::SUCCESS
}

fn start(what: &str, cpu: usize, at: u64) -> Child {
    let me = std::env::current_exe().expect("this program");
    Command::new(me).args([WORD, what, &cpu.to_string(), &at.to_string()]).stdout(Stdio::piped()).spawn().expect("a load")
}

fn finish(load: Child) -> Vec<f64> {
    let out = load.wait_with_output().expect("the load's end").stdout;
    String::from_utf8_lossy(&out).split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// The slices of both programs, and how many steps rbt took.
fn measure(case: &Case, options: Option<&[&str]>) -> (Vec<f64>, Vec<f64>, usize) {
    let at = now() + (DELAY + 1_500) * 1_000_000;
    let storm = start(case.work, 0, at);
    let bystander = start("bystander", 1, at);
    let pid = storm.id().to_string();
    let rbt = options.map(|options| {
        let only: &[&str] = if case.one_process { &["-p", &pid] } else { &[] };
        attached(&[options, only, &["-o", "/dev/null", "-e", case.script]].concat(), Stdio::null(), Stdio::piped())
    });
    let (storm, bystander) = (finish(storm), finish(bystander));
    let steps = rbt.map_or(0, |rbt| interrupt(rbt).lines().filter(|line| line.starts_with("LIMIT: ")).count());
    (storm, bystander, steps)
}

pub fn storm() {
    for case in CASES {
        let [mut mean, mut worst, mut unlimited, mut steps, mut before, mut during, mut after]: [Samples; 7] = Default::default();
        for _ in 0..rounds(3) {
            let sum = |slices: &[f64], part: std::ops::Range<u64>| -> f64 {
                slices.get(part.start as usize..part.end as usize).map_or(f64::NAN, |part| part.iter().sum())
            };
            let (alone, bystander_alone, _) = measure(case, None);
            let (storm, bystander, told) = measure(case, Some(&["--max-overhead", "1%"]));
            let (free, ..) = measure(case, Some(&[]));
            mean.add(sum(&storm, STORM) / sum(&alone, STORM) * 100.0);
            unlimited.add(sum(&free, STORM) / sum(&alone, STORM) * 100.0);
            let typical = sum(&alone, STORM) / (STORM.end - STORM.start) as f64;
            let slowest = storm.get(STORM.start as usize..STORM.end as usize).unwrap_or_default();
            worst.add(slowest.iter().copied().fold(f64::INFINITY, f64::min) / typical * 100.0);
            for (samples, part) in [(&mut before, 0..STORM.start), (&mut during, STORM), (&mut after, STORM.end..SLICES)] {
                samples.add(sum(&bystander, part.clone()) / sum(&bystander_alone, part) * 100.0);
            }
            steps.add(told as f64);
        }
        println!("  {}: {}", case.name, case.script);
        unlimited.show("  speed of the storm, without a limit", "%");
        mean.show("  speed of the storm, at most 1 %", "%");
        worst.show(&format!("    in the slowest {SLICE} ms"), "%");
        before.show("  another program before the storm", "%");
        during.show("    during the storm", "%");
        after.show("    after the storm", "%");
        steps.show("  reported steps", "");
    }
}
