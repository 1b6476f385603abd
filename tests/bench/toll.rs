//! Measures the overhead of tracing one system call, for the traced call and for other calls. `RBT_PEER` names another tracer
//! that accepts `-e SCRIPT`. It and rbt are measured in turn.

use std::process::{Child, Command, Stdio};

use crate::floor::{self, Floor};
use crate::load;
use crate::process::{attached, interrupt, pause};
use crate::stats::{Samples, rounds};

const CALLS: u64 = 300_000;

const ENTRY: &str = "tracepoint:syscalls:sys_enter_CALL { @ = count(); }";
const EXIT: &str = "tracepoint:syscalls:sys_exit_CALL { @ = count(); }";
const PAIR: &str = "tracepoint:syscalls:sys_enter_CALL { @s[tid] = nsecs; }
    tracepoint:syscalls:sys_exit_CALL /@s[tid]/ { @ = hist(nsecs - @s[tid]); delete(@s, tid); }";

/// The mechanisms, each with its name and the options that disable all others.
const MECHANISMS: &[(&str, &[&str])] = &[("chosen by rbt", &[]), ("perf tracepoint", &["--no-feature", "fentry,raw_syscalls"])];

pub fn toll() {
    for (what, script) in [("entry", ENTRY), ("exit", EXIT), ("entry and exit", PAIR)] {
        // The load opens files.
        for (which, call) in [("not traced", "getsid"), ("traced", "openat")] {
            let script = script.replace("CALL", call);
            let mut bare = Samples::default();
            let mut with: Vec<Samples> = MECHANISMS.iter().map(|_| Samples::default()).collect();
            let (peer, mut with_peer) = (std::env::var("RBT_PEER").ok(), Samples::default());
            for _ in 0..rounds(3) {
                bare.add(load::finish(load::start(CALLS, 0), CALLS));
                for ((_, options), samples) in MECHANISMS.iter().zip(&mut with) {
                    let rbt = attached(&[options, ["-q", "-e", script.as_str()].as_slice()].concat(), Stdio::null(), Stdio::piped());
                    samples.add(load::finish(load::start(CALLS, 0), CALLS));
                    interrupt(rbt);
                    pause(150);
                }
                if let Some(peer) = &peer {
                    let peer = start_peer(peer, &script);
                    with_peer.add(load::finish(load::start(CALLS, 0), CALLS));
                    interrupt(peer);
                    pause(150);
                }
            }
            println!("  {what} of one call, for a call that is {which}");
            bare.show("    the call alone", "ns");
            for ((name, _), samples) in MECHANISMS.iter().zip(&with) {
                samples.show_beside(&format!("    {name}"), "ns", &bare, "of the call alone");
            }
            if peer.is_some() {
                with_peer.show_beside("    RBT_PEER", "ns", &bare, "of the call alone");
            }
        }
    }
}

/// The forms of a pair of probes that measures the time between them: with the options of rbt, or hand-written.
const PAIRS: &[(&str, Pair)] = &[
    ("rbt", Pair::Rbt(&[])),
    ("rbt, with a hash map", Pair::Rbt(&["--no-feature", "thread_table"])),
    ("hand-written", Pair::ByHand(floor::elapsed_by_table)),
    ("hand-written, with task storage", Pair::ByHand(floor::elapsed_by_task_storage)),
    ("hand-written, with a hash map", Pair::ByHand(floor::elapsed)),
];

enum Pair {
    Rbt(&'static [&'static str]),
    ByHand(fn(u32) -> Floor),
}

/// Measures what a pair of probes adds to the call that it measures.
pub fn pair() {
    let script = PAIR.replace("CALL", "openat");
    let mut bare = Samples::default();
    let mut with: Vec<Samples> = PAIRS.iter().map(|_| Samples::default()).collect();
    for _ in 0..rounds(5) {
        let alone = load::finish(load::start(CALLS, 0), CALLS);
        bare.add(alone);
        for ((_, pair), samples) in PAIRS.iter().zip(&mut with) {
            let (mut rbt, mut by_hand) = (None, None);
            match pair {
                Pair::Rbt(options) => {
                    rbt = Some(attached(&[options, ["-q", "-e", script.as_str()].as_slice()].concat(), Stdio::null(), Stdio::piped()))
                }
                Pair::ByHand(make) => by_hand = Some(make(0)),
            }
            samples.add(load::finish(load::start(CALLS, 0), CALLS) - alone);
            rbt.map(interrupt);
            drop(by_hand);
            pause(150);
        }
    }
    bare.show("the call alone", "ns");
    let hash = with.last().map_or(f64::NAN, Samples::median);
    for ((name, _), samples) in PAIRS.iter().zip(&with) {
        samples.show(&format!("{name} adds"), "ns");
        println!("  {:44} {:10.2} x    of the hand-written pair with a hash map", "", samples.median() / hash);
    }
}

fn start_peer(peer: &str, script: &str) -> Child {
    let mut command = Command::new(peer);
    let child = command.args(["-e", script]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    // The other tracer does not report when it is attached.
    pause(2500);
    child.expect("RBT_PEER")
}
