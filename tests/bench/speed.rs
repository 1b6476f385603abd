//! Measures the speed of rbt. `cargo bench` measures all items, and `cargo bench -- NAME...` some of them.
//!
//! Every figure is the median of several runs, with the minimum, the maximum and the number of runs. Absolute times depend on the
//! machine. Ratios can be compared between machines. Each compares rbt with a reference that is measured in turn in the same run,
//! such as an empty process, a hand-written BPF program, or an older mechanism of the kernel.
//!
//! `RBT_BENCH_BIN` names a binary to use instead of the one that cargo built, and `RBT_LINK_MAP` its linker map. `RBT_BENCH_ROUNDS`
//! multiplies the number of runs.

#![allow(unsafe_code)] // geteuid

mod asm;
mod attach;
mod documents;
mod floor;
mod functions;
mod growth;
mod kernel;
mod keys;
mod load;
mod process;
mod size;
mod stack;
mod stats;
mod storm;
mod toll;
mod usdt;

use std::process::ExitCode;

/// The items. Each has a name, a description, and a function that measures it.
const ITEMS: &[(&str, &str, fn())] = &[
    ("size", "the size of the binary, by crate and library", size::size),
    ("startup", "begin { exit() }, from the spawn to the exit", process::startup),
    ("first", "begin { exit() } without and with what earlier runs have kept, by stage", process::first),
    ("count", "tracepoint:syscalls:sys_enter_openat { @[comm] = count() }", process::count),
    ("wildcard", "tracepoint:syscalls:sys_enter_* { @[probe] = count() }", process::wildcard),
    ("keys", "maps with 100 to a million keys: start, write, print and clear times, and memory", keys::keys),
    ("growth", "cost by number of probes, number of keys and length of the script, with exponents", growth::growth),
    ("long", "compile and load scripts with 5,000 and 10,000 lines of map initialization", process::long),
    ("list", "list all tracepoints with -l", process::list),
    ("attach", "attach and detach 1, 100 and 1,000 probes of each kind", attach::attach),
    ("printf", "write a million printf events to a file", load::printf),
    ("burst", "ten million printf events from all CPUs at once, with a slow reader; all losses must be reported", load::burst),
    ("page", "an HTML page of a map with a hundred thousand rows: time, memory and size", documents::page),
    ("timeline", "write ten million events to a file for Perfetto, without losses and in bounded memory", documents::timeline),
    ("toll", "the overhead of tracing one system call, for this call and for others", toll::toll),
    ("pair", "the overhead of a pair of probes that measures the time between them, by thread", toll::pair),
    ("lowered", "a tracepoint compared with the raw tracepoint that replaces it", load::lowered),
    ("kprobe", "a kernel function, with a breakpoint and with the trampoline that replaces it", load::kprobe),
    ("stack", "user stacks with unwind tables: walks, the first complete stack, and memory", stack::stack),
    ("stacks", "print a million distinct stacks to a file: time and memory", stack::stacks),
    ("usdt", "a marker's event, with a trap and with the call that replaces a five-byte nop", usdt::usdt),
    ("storm", "a promise of 1 % during a storm of events: the speed of the storm and of another program", storm::storm),
    ("event", "nanoseconds per event in the kernel, compared with hand-written programs", kernel::event),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if args.first().map(String::as_str) == Some(load::WORD) {
        return load::work(&args[1..]);
    }
    if args.first().map(String::as_str) == Some(load::FLOOD) {
        return load::flood(&args[1..]);
    }
    if args.first().map(String::as_str) == Some(storm::WORD) {
        return storm::work(&args[1..]);
    }
    if args.first().map(String::as_str) == Some(functions::WORD) {
        return functions::list();
    }
    let unknown = args.iter().find(|a| !ITEMS.iter().any(|(name, ..)| name == a));
    if let Some(unknown) = unknown {
        eprintln!("unknown item `{unknown}`. The items are:");
        ITEMS.iter().for_each(|(name, what, _)| eprintln!("  {name:10}{what}"));
        return ExitCode::FAILURE;
    }
    // SAFETY: The call takes no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("nothing is measured, because tracing needs root. Run `sudo -E cargo bench`.");
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
