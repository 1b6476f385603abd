//! The report of a script's tests and benchmarks, in the familiar forms of googletest and Google Benchmark.

use std::time::Duration;

use anstyle::Style;

use crate::output::TestEvent;
use crate::terminal::{FAILED, OK, paint};

/// Minimum width of the names, and of the time, in columns.
const NAMES: usize = 41;
const NUMBERS: usize = 15;

/// Appends the text form. Colors are always used, as in bpftrace.
pub fn text(event: &TestEvent, to: &mut Vec<u8>) {
    let mut say = |text: String| to.extend_from_slice(text.as_bytes());
    match event {
        TestEvent::Tests { tests } => say(format!("{} Running {tests} tests.\n", tag(OK, "=========="))),
        TestEvent::Started { name } => say(format!("{} {name}\n", tag(OK, " RUN      "))),
        TestEvent::Tested { name, passed, took, output } => {
            if !passed {
                to.extend_from_slice(output);
                if output.last().is_some_and(|b| *b != b'\n') {
                    to.push(b'\n');
                }
            }
            let tag = if *passed { tag(OK, "       OK ") } else { tag(FAILED, "  FAILED  ") };
            to.extend_from_slice(format!("{tag} {name} ({})\n", time(*took)).as_bytes());
        }
        TestEvent::Over { tests, failed } => {
            say(format!("{} {} ran.\n", tag(OK, "=========="), count(*tests)));
            say(format!("{} {}.\n", tag(OK, "  PASSED  "), count(tests.saturating_sub(failed.len()))));
            if !failed.is_empty() {
                say(format!("{} {}, listed below:\n", tag(FAILED, "  FAILED  "), count(failed.len())));
                failed.iter().for_each(|name| say(format!("{} {name}\n", tag(FAILED, "  FAILED  "))));
            }
        }
        TestEvent::Benches { widest } => {
            let head = row("Benchmark", *widest, "Time(ns)", "Iterations");
            say(format!("{head}{}\n", "-".repeat(head.trim_end_matches('\n').len())));
        }
        TestEvent::Benched { name, widest, average, times } => say(row(name, *widest, &average.to_string(), &times.to_string())),
        TestEvent::BenchSkipped { name, widest } => say(row(name, *widest, "skipped", "")),
        TestEvent::BenchFailed { name, widest, output } => {
            say(row(name, *widest, "failed", ""));
            to.extend_from_slice(output);
        }
    }
}

fn tag(style: Style, text: &str) -> String {
    paint(&format!("[{text}]"), style, true)
}

fn count(tests: usize) -> String {
    format!("{tests} test{}", if tests == 1 { "" } else { "s" })
}

/// The time in the largest unit in which it is at least one.
fn time(took: Duration) -> String {
    let ns = took.as_nanos();
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "μs")];
    units.iter().find(|(n, _)| ns >= *n).map_or_else(|| format!("{ns} ns"), |(n, unit)| format!("{} {unit}", ns / n))
}

fn row(name: &str, widest: usize, time: &str, times: &str) -> String {
    let line = format!("{name:names$}{time:<NUMBERS$}{times}", names = NAMES.max(widest + 1));
    format!("{}\n", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (ns, expected) in [(0, "0 ns"), (999, "999 ns"), (1000, "1 μs"), (2_999_999, "2 ms"), (7_000_000_000, "7 s")] {
            assert_eq!(time(Duration::from_nanos(ns)), expected);
        }
    }

    #[test]
    fn rows_are_columns() {
        assert_eq!(row("a", 1, "12", "345"), format!("a{}12{}345\n", " ".repeat(40), " ".repeat(13)));
        let long = "n".repeat(60);
        assert_eq!(row(&long, 60, "1", "2"), format!("{long} 1{}2\n", " ".repeat(14)));
    }
}
