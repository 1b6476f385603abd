//! Measures the speed of rbt. `cargo bench` measures all items, and `cargo bench -- NAME...` some of them.
//!
//! Every figure is the median of several runs, with the minimum, the maximum and the number of runs. Absolute times depend on the
//! machine. Ratios can be compared between machines. Each compares rbt with a reference that is measured in turn in the same run,
//! such as an empty process, a hand-written BPF program, or an older mechanism of the kernel.
//!
//! `RBT_BENCH_BIN` names a binary to use instead of the one that cargo built. `RBT_BENCH_ROUNDS` multiplies the number of runs.

#![allow(unsafe_code)] // geteuid

mod asm;
mod attach;
mod documents;
mod floor;
mod kernel;
mod keys;
mod load;
mod process;
mod size;
mod stack;
mod stats;
mod toll;
mod usdt;

use std::process::ExitCode;

/// The items. Each has a name, a description, and a function that measures it.
const ITEMS: &[(&str, &str, fn())] = &[
    ("size", "the binary's bytes, by the crate and the library that they come from", size::size),
    ("startup", "begin { exit() }, from spawn to exit", process::startup),
    ("count", "tracepoint:syscalls:sys_enter_openat { @[comm] = count() }", process::count),
    ("wildcard", "tracepoint:syscalls:sys_enter_* { @[probe] = count() }", process::wildcard),
    ("keys", "maps of 100 to a million keys: started, written, printed, cleared, and their memory", keys::keys),
    ("long", "scripts of 5,000 and 10,000 lines of map initialisation, compiled and loaded", process::long),
    ("list", "-l over all tracepoints", process::list),
    ("attach", "1, 100 and 1,000 probes of each kind, to and from the kernel", attach::attach),
    ("printf", "a million printf events to a file", load::printf),
    ("burst", "ten million printf events from all CPUs at once, with a slow reader: none lost in silence", load::burst),
    ("page", "a page in HTML of a map with a hundred thousand rows: its time, memory and size", documents::page),
    ("timeline", "ten million events into a file for Perfetto, none lost, in bounded memory", documents::timeline),
    ("toll", "one system call traced: what the others pay, and what it pays", toll::toll),
    ("lowered", "a tracepoint against the raw one that serves it", load::lowered),
    ("kprobe", "a function of the kernel by breakpoint, and by the trampoline that serves it", load::kprobe),
    ("stack", "user stacks by tables: a walk, against frame pointers; the first whole one; their memory", stack::stack),
    ("usdt", "a marker's event by a trap, and by the call that the kernel makes of a five-byte nop", usdt::usdt),
    ("event", "nanoseconds per event in the kernel, and of the same by hand", kernel::event),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if args.first().map(String::as_str) == Some(load::WORD) {
        return load::work(&args[1..]);
    }
    if args.first().map(String::as_str) == Some(load::FLOOD) {
        return load::flood(&args[1..]);
    }
    let unknown = args.iter().find(|a| !ITEMS.iter().any(|(name, ..)| name == a));
    if let Some(unknown) = unknown {
        eprintln!("there is no item `{unknown}`; there are:");
        ITEMS.iter().for_each(|(name, what, _)| eprintln!("  {name:10}{what}"));
        return ExitCode::FAILURE;
    }
    // SAFETY: The call takes no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("NOTHING IS MEASURED: tracing needs root. Run `sudo -E cargo bench`.");
        return ExitCode::FAILURE;
    }
    println!("binary: {}, {:.2} MB\n", process::rbt(), process::size() as f64 / 1e6);
    for (name, what, measure) in ITEMS {
        if args.is_empty() || args.iter().any(|a| a == name) {
            println!("{name}: {what}");
            measure();
            println!();
        }
    }
    ExitCode::SUCCESS
}
