//! Measures maps with many keys: the cost of adding, printing and clearing a key, the start time, and the memory. `RBT_PEER`
//! names another tracer that accepts `-q -e SCRIPT`. Its `count()` and rbt's are measured in turn.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::process::{command, interrupt, run};
use crate::stats::{Samples, rounds, target};

const SIZES: [u64; 4] = [100, 4_096, 100_000, 1_000_000];

/// The kinds of values in addition to plain numbers, whose keys cost the kernel least.
const VALUES: [&str; 3] = ["count()", "max($i)", "hist($i)"];
const PLAIN: &str = "1";
const COUNT: &str = VALUES[0];

/// The maximum number of histograms. A million of them would take 600 MB.
const MAX_HISTOGRAMS: u64 = 100_000;

/// The minimum time. A shorter time cannot be distinguished from the noise of a process start.
const LEAST_NS: f64 = 1e7;

pub fn keys() {
    let peer = std::env::var("RBT_PEER").ok();
    for n in SIZES {
        let plain = Measured::of(n, PLAIN, &mut |script| command(&["-q", "-e", script]));
        plain.show(n, PLAIN, None);
        for value in VALUES.into_iter().filter(|v| n <= MAX_HISTOGRAMS || !v.starts_with("hist")) {
            let measured = Measured::of(n, value, &mut |script| command(&["-q", "-e", script]));
            measured.show(n, value, Some(&plain));
            if value == COUNT && Some(&n) == SIZES.last() {
                measured.judge();
            }
        }
        if let Some(peer) = &peer {
            let other = Measured::of(n, COUNT, &mut |script| {
                let mut command = Command::new(peer);
                command.args(["-q", "-e", script]).stdin(Stdio::null());
                command
            });
            other.show(n, "count(), RBT_PEER", Some(&plain));
        }
    }
}

/// The results for one kind of value: the milliseconds of entire runs, and the memory of the map in MB. Each of the last three
/// times is relative to the previous one.
#[derive(Default)]
struct Measured {
    started: Samples,
    written: Samples,
    printed: Samples,
    cleared: Samples,
    /// The total of start, keys and print.
    all: Samples,
    memory: Samples,
}

impl Measured {
    fn of(n: u64, value: &str, tracer: &mut dyn FnMut(&str) -> Command) -> Self {
        let mut m = Self::default();
        let mut wall = |when: &str, last: &str| run(tracer(&script(n, value, when, last))).wall;
        for _ in 0..rounds(5) {
            // This condition is always false, but the compiler does not know it.
            let started = wall("if (nsecs == 0)", "");
            let written = wall("", "");
            let printed = wall("", "print(@);");
            m.cleared.add(wall("", "clear(@);") - written);
            m.started.add(started);
            m.written.add(written - started);
            m.printed.add(printed - written);
            m.all.add(printed);
        }
        m.memory.add(memory(tracer(&script(n, value, "", "").replace("exit();", "printf(\"written\\n\");"))));
        m
    }

    fn show(&self, n: u64, value: &str, plain: Option<&Self>) {
        println!("  {n} keys of {value}");
        let each = |s: &Samples| s.median() * 1e6 / n as f64;
        let row = |what: &str, of: &dyn Fn(&Self) -> &Samples| {
            of(self).show(&format!("  {what}"), "ms");
            let (ns, beside) = (each(of(self)), plain.map(|p| each(of(p))));
            match beside {
                _ if ns * (n as f64) < LEAST_NS => {}
                Some(other) if other > 0.0 => println!("  {:44} {ns:10.2} ns   per key, {:.2} x of a plain key", "", ns / other),
                _ => println!("  {:44} {ns:10.2} ns   per key", ""),
            }
        };
        self.started.show("  start, without writing keys", "ms");
        row("written", &|m| &m.written);
        row("printed", &|m| &m.printed);
        row("cleared", &|m| &m.cleared);
        self.memory.show("  memory of all maps", "MB");
    }

    /// Checks the targets for a million keys.
    fn judge(&self) {
        target("time per new key", self.written.median() / 1e3, 1.0, "us");
        target("start, write, read and print", self.all.median() / 1e3, 3.0, "s");
        target("clear", self.cleared.median() / 1e3, 0.3, "s");
    }
}

/// Makes a script whose map has room for twice the keys, so that the benchmark would notice if keys were rejected early.
fn script(n: u64, value: &str, when: &str, last: &str) -> String {
    let config = format!("config = {{ max_map_keys = {}; print_maps_on_exit = false }}", (2 * n).max(4_096));
    let write = format!("for $i : 0..{n} {{ @[$i] = {value}; }}");
    let write = if when.is_empty() { write } else { format!("{when} {{ {write} }}") };
    format!(
        "{config} begin {{ {write} exit(); }} interval:s:100 {{ @[1] = {value_again}; }} end {{ {last} }}",
        value_again = value.replace("$i", "1")
    )
}

/// The memory of a tracer's maps in MB, as the kernel reports it after the script has printed a line.
fn memory(mut tracer: Command) -> f64 {
    let mut child = tracer.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a tracer");
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    out.read_line(&mut line).expect("a line");
    let folder = format!("/proc/{}/fdinfo", child.id());
    let mut maps = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("the tracer is there").flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let field = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)).and_then(|v| v.trim().parse::<f64>().ok());
        if let (Some(id), Some(bytes)) = (field("map_id:"), field("memlock:")) {
            maps.insert(id as u64, bytes / 1e6);
        }
    }
    interrupt(child);
    maps.values().sum()
}
