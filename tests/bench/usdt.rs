//! Measures the event of a marker, with the trap that replaces a one-byte nop and with the call that replaces a five-byte nop.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::process::{attached, interrupt, ms};
use crate::stats::{Samples, rounds};

const EVENTS: u32 = 1_000_000;

pub fn usdt() {
    let folder = std::env::temp_dir().join(format!("rbt-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (source, markers) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/markers.c"), folder.join("markers"));
    let status = Command::new("cc").args(["-O1", "-o"]).args([&markers, &source]).status().expect("cc");
    assert!(status.success(), "cc");
    let script = format!("usdt:{}:quick {{ @ = count(); }}", markers.display());
    let nanoseconds = |options: Option<&[&str]>| {
        let rbt = options.map(|o| attached(&[o, &["-q", "-e", &script]].concat(), Stdio::null(), Stdio::piped()));
        let since = Instant::now();
        let status = Command::new(&markers).arg(EVENTS.to_string()).stdout(Stdio::null()).status().expect("the program");
        let took = ms(since);
        assert!(status.success(), "the program");
        if let Some(rbt) = rbt {
            interrupt(rbt);
        }
        took * 1e6 / f64::from(EVENTS)
    };
    let [mut alone, mut trap, mut call]: [Samples; 3] = Default::default();
    for _ in 0..rounds(5) {
        alone.add(nanoseconds(None));
        trap.add(nanoseconds(Some(&["--no-feature", "optimized_uprobe"])));
        call.add(nanoseconds(Some(&[])));
    }
    alone.show("an event, not traced", "ns");
    trap.show("  with a trap", "ns");
    call.show_beside("  with a call, if the kernel supports it", "ns", &trap, "of the trap");
    let _ = std::fs::remove_dir_all(folder);
}
