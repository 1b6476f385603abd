//! Measures the time of BPF programs in nanoseconds. The kernel measures it while a process enables BPF_ENABLE_STATS.

#![allow(unsafe_code)] // bpf(2), and system calls that are measured

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Stdio;

use libbpf_sys as sys;

use crate::floor::{self, Floor};
use crate::load;
use crate::process::{attached, interrupt, pause};
use crate::stats::{Samples, rounds};

/// The number of calls. Nothing reads the output of the hand-written programs, so it must fit into a ring buffer of 16 MiB.
const CALLS: u64 = 200_000;

/// Creates the hand-written program.
type ByHand = fn(u32) -> Floor;

/// Scripts and their hand-written equivalents.
const TYPICAL: &[(&str, &str, ByHand)] = &[
    ("count by comm", "tracepoint:syscalls:sys_enter_openat { @[comm] = count() }", floor::count),
    ("histogram of an argument", "tracepoint:syscalls:sys_enter_openat { @ = hist(args.mode) }", floor::hist),
    ("printf of an integer", r#"tracepoint:syscalls:sys_enter_openat { printf("%d\n", args.mode) }"#, floor::print_int),
    ("printf of a file name", r#"tracepoint:syscalls:sys_enter_openat { printf("%s\n", str(args.filename)) }"#, floor::print_str),
    (
        "time between two probes",
        "tracepoint:syscalls:sys_enter_openat { @s[tid] = nsecs }
         tracepoint:syscalls:sys_exit_openat /@s[tid]/ { @ = hist(nsecs - @s[tid]); delete(@s, tid) }",
        floor::elapsed,
    ),
    ("a predicate that rejects", "tracepoint:syscalls:sys_enter_openat /pid == 1/ { @ = count() }", floor::reject),
];

/// Enables the kernel's statistics while the returned descriptor is open.
pub fn counting() -> OwnedFd {
    // SAFETY: the call returns a new descriptor.
    unsafe {
        let fd = sys::bpf_enable_stats(sys::BPF_STATS_RUN_TIME);
        assert!(fd >= 0, "BPF_ENABLE_STATS: {fd}");
        OwnedFd::from_raw_fd(fd)
    }
}

pub fn event() {
    let _stats = counting();
    let mut empty = Samples::default();
    for _ in 0..rounds(5) {
        let nothing = floor::empty();
        empty.add(per_event(&nothing.programs));
    }
    empty.show("a program that returns at once", "ns");
    println!("  (this cost of the measurement is subtracted below)");
    let counting = empty.median();
    for (what, script, by_hand) in TYPICAL {
        let (mut ours, mut floor, mut programs) = (Samples::default(), Samples::default(), 0);
        for _ in 0..rounds(5) {
            let hand = by_hand(0);
            programs = hand.programs.len();
            let counting = counting * programs as f64;
            floor.add(per_event(&hand.programs) - counting);
            drop(hand);
            let before = ids();
            let rbt = attached(&["-q", "-e", script], Stdio::null(), Stdio::piped());
            let new: Vec<OwnedFd> = ids().difference(&before).filter_map(|id| open(*id)).collect();
            assert_eq!(new.len(), programs, "{what}: other programs came meanwhile");
            ours.add(per_event(&new) - counting);
            drop(new);
            interrupt(rbt);
        }
        let programs = if programs > 1 { format!(" ({programs} programs)") } else { String::new() };
        floor.show(&format!("{what}, hand-written{programs}"), "ns");
        ours.show_beside(&format!("{what}, rbt"), "ns", &floor, "of the hand-written program");
    }
}

/// The mean time of one run under load, summed over programs.
fn per_event(programs: &[OwnedFd]) -> f64 {
    pause(5);
    let load = load::start(CALLS, 0);
    let before: Vec<(u64, u64)> = programs.iter().map(times).collect();
    load::finish(load, CALLS);
    let means = programs.iter().zip(before).map(|(program, (ns, runs))| {
        let now = times(program);
        (now.0 - ns) as f64 / (now.1 - runs).max(1) as f64
    });
    means.sum()
}

/// The nanoseconds and the runs of a program so far.
pub fn times(program: &OwnedFd) -> (u64, u64) {
    let mut info = sys::bpf_prog_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: the kernel writes at most `len` bytes.
    let error = unsafe { sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut len) };
    assert_eq!(error, 0, "bpf_prog_get_info_by_fd");
    (info.run_time_ns, info.run_cnt)
}

/// The IDs of all loaded programs.
pub fn ids() -> BTreeSet<u32> {
    let (mut all, mut id) = (BTreeSet::new(), 0);
    // SAFETY: the call writes the next ID to our variable.
    while unsafe { sys::bpf_prog_get_next_id(id, &mut id) } == 0 {
        all.insert(id);
    }
    all
}

pub fn open(id: u32) -> Option<OwnedFd> {
    // SAFETY: the call returns a new descriptor.
    unsafe {
        let fd = sys::bpf_prog_get_fd_by_id(id);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
    }
}
