//! Measures the time and the memory of a run that writes a large document, and the size of the file.

use std::fs;
use std::path::PathBuf;

use crate::process::{command, run};
use crate::stats::{Samples, rounds, target};

const ROWS: u64 = 100_000;
const SPANS: u64 = 5_000_000;
/// The maximum memory, which must not depend on the number of events. Data of up to four times the size of the ring buffer waits
/// to be written.
const PAGE_MIB: f64 = 256.0;
const TIMELINE_MIB: f64 = 512.0;

/// Measures a page with a hundred thousand rows.
pub fn page() {
    let script = format!("config = {{ max_map_keys = {ROWS} }} begin {{ for $i : 0..{ROWS} {{ @[$i] = $i; }} exit(); }}");
    measure(rounds(5), PAGE_MIB, "it.html", &["-e", &script], |page| {
        let all = b"\"more_rows\":0";
        assert!(page.windows(all.len()).any(|bytes| bytes == all), "the page lacks rows");
    });
}

/// Measures ten million events for Perfetto, at a rate at which none is lost.
pub fn timeline() {
    let script = format!(
        "config = {{ perf_rb_pages = 16384 }} interval:ms:1 {{ for $i : 0..100 {{ if (@n < {SPANS}) {{ @n++; span_on(\"t\", \"a\"); span_end_on(\"t\", \"a\"); }} }} \
         if (@n >= {SPANS}) {{ exit(); }} }}"
    );
    measure(1, TIMELINE_MIB, "it.pftrace", &["-f", "perfetto", "-e", &script], |trace| {
        let packets = packets(&trace);
        assert!(packets >= 2 * SPANS, "{packets} packets: events were lost");
    });
}

fn measure(rounds: usize, most_mib: f64, name: &str, args: &[&str], check: impl Fn(Vec<u8>)) {
    let file: PathBuf = std::env::temp_dir().join(format!("rbt-bench-{}-{name}", std::process::id()));
    let path = file.to_str().expect("a plain path");
    let [mut wall, mut memory, mut size]: [Samples; 3] = Default::default();
    for _ in 0..rounds {
        let cost = run(command(&[&["-q", "-o", path], args].concat()));
        wall.add(cost.wall);
        memory.add(cost.rss);
        let written = fs::read(&file).expect("the document");
        size.add(written.len() as f64 / 1e6);
        check(written);
    }
    let _ = fs::remove_file(&file);
    wall.show(name, "ms");
    size.show("  size", "MB");
    memory.show("  peak resident memory", "MiB");
    target("memory", memory.median(), most_mib, "MiB");
}

/// Counts the packets of a trace. Each packet is field 1 of the trace, and its length precedes it
/// (protobuf.dev/programming-guides/encoding).
fn packets(trace: &[u8]) -> u64 {
    let (mut number, mut rest) = (0, trace);
    while let [tag, after @ ..] = rest {
        assert_eq!(*tag, 1 << 3 | 2, "packet {number}");
        let bytes = after.iter().position(|byte| byte & 0x80 == 0).expect("a length") + 1;
        let length = after[..bytes].iter().rev().fold(0usize, |length, byte| length << 7 | usize::from(byte & 0x7f));
        rest = after.get(bytes + length..).expect("a whole packet");
        number += 1;
    }
    number
}
