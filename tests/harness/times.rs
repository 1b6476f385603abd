//! Records the duration of each case in the file that RBT_TEST_TIMES names.

use std::io::Write as _;
use std::time::{Duration, Instant};

/// Runs a case and records its duration.
pub fn take<T>(name: &str, what: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = what();
    note(name, begun.elapsed());
    result
}

/// Records the duration of a case.
pub fn note(name: &str, took: Duration) {
    let Some(file) = std::env::var_os("RBT_TEST_TIMES") else { return };
    // A single write in append mode keeps the lines of several threads intact.
    let line = format!("{:.3}\t{name}\n", took.as_secs_f64());
    let open = std::fs::OpenOptions::new().append(true).create(true).open(&file);
    if let Err(e) = open.and_then(|mut file| file.write_all(line.as_bytes())) {
        eprintln!("{}: {e}", file.display());
    }
}
