//! Runs the same scripts in rbt and bpftrace, and compares the output.
//!
//! ```text
//! RBT_TEST_BPFTRACE=/path/to/bpftrace cargo test --test oracle              compare the tables in this directory
//! RBT_TEST_BPFTRACE=… cargo test --test oracle -- operators                 compare the tables whose name contains operators
//! RBT_TEST_BPFTRACE=… cargo test --test oracle -- made-up 1000 [SEED]       compare 1000 random rows
//! ```
//!
//! With RBT_ORACLE_TELL=1, it also prints the differences that the tables explain, and the random rows that only one of the
//! tracers rejects.
//!
//! If RBT_TEST_BPFTRACE is not set, the test is skipped with a message. The standard output, as text and as JSON, and the exit
//! status must be equal. The results of bpftrace are cached in target/tmp/oracle until the bpftrace binary changes.
//!
//! # A table
//!
//! Each line is a row:
//!
//! - A line that starts with `$ ` is a shell command, in which `$T` is the tracer and `$F` is the directory of the compiled
//!   fixtures. The tracer does not receive `-q`. The command runs once.
//! - A line that names a probe is a script, which runs with `-q -e`.
//! - Any other line consists of statements, which run in the block of a `begin` probe. Such rows are combined into one script if
//!   possible.
//!
//! The indented lines after a row apply to it. `differs REASON` means that the output must differ. `args WORDS` adds arguments
//! after the script. `mask REGEX` matches text that may differ, and can be repeated. `sorted` ignores the order of lines. `text`
//! omits the comparison as JSON.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

mod batch;
mod made_up;
mod made_up_values;
#[path = "../gen/rng.rs"]
mod rng;
mod row;
mod run;

use batch::Verdict;
use row::Row;
use run::Tracers;

/// The number of rows that are compared in parallel. A tracer waits for the kernel most of the time.
const AT_ONCE: usize = 4;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let Some(theirs) = std::env::var_os("RBT_TEST_BPFTRACE").map(PathBuf::from) else {
        println!("skipped: RBT_TEST_BPFTRACE does not name a bpftrace to compare with");
        return ExitCode::SUCCESS;
    };
    if !run::fixtures().join("args").exists() {
        println!("{} is empty: run `cargo test --test cases -- stacks` first, which compiles the fixtures", run::fixtures().display());
        return ExitCode::FAILURE;
    }
    let tracers = match Tracers::new(&theirs) {
        Ok(tracers) => tracers,
        Err(e) => {
            println!("{}: {e}", theirs.display());
            return ExitCode::FAILURE;
        }
    };
    if args.first().is_some_and(|a| a == "made-up") {
        let number = |i: usize, otherwise: u64| args.get(i).and_then(|n| n.parse().ok()).unwrap_or(otherwise);
        let (n, first) = (number(1, 1000), number(2, 1));
        let rows = made_up::rows(n / 2, first).into_iter().chain(made_up_values::rows(n.div_ceil(2), first)).collect();
        return report(&tracers, rows, false);
    }
    match tables() {
        Ok(rows) => {
            let wanted = |r: &Row| args.is_empty() || args.iter().any(|a| r.name.contains(a.as_str()));
            report(&tracers, rows.into_iter().filter(wanted).collect(), true)
        }
        Err(e) => {
            println!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// The rows of all tables.
fn tables() -> Result<Vec<Row>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle");
    let files = std::fs::read_dir(&folder).map_err(|e| e.to_string())?;
    let mut files: Vec<PathBuf> = files.flatten().map(|f| f.path()).filter(|f| f.extension().is_some_and(|e| e == "list")).collect();
    files.sort();
    let mut rows = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(|e| e.to_string())?;
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        rows.extend(row::read(&stem, &text)?);
    }
    Ok(rows)
}

/// Compares all rows, and prints the differences and their number.
fn report(tracers: &Tracers, rows: Vec<Row>, refusals: bool) -> ExitCode {
    let batches = batch::batches(rows);
    let (next, counts) = (AtomicUsize::new(0), Mutex::new(Counts::default()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(rows) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for (row, verdict) in batch::compare(tracers, rows) {
                        counts.lock().unwrap_or_else(std::sync::PoisonError::into_inner).add(&row, &verdict, refusals);
                    }
                }
            });
        }
    });
    let counts = counts.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    println!(
        "{} compared: {} equal ({} of them rejected by both), {} differ as expected, {} rejected by one, {} differ",
        counts.all, counts.equal, counts.both_refuse, counts.explained, counts.one_refuses, counts.wrong
    );
    if counts.wrong == 0 && (!refusals || counts.one_refuses == 0) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[derive(Default)]
struct Counts {
    all: usize,
    equal: usize,
    both_refuse: usize,
    explained: usize,
    one_refuses: usize,
    wrong: usize,
}

impl Counts {
    fn add(&mut self, row: &Row, verdict: &Verdict, refusals: bool) {
        self.all += 1;
        let tell = std::env::var_os("RBT_ORACLE_TELL").is_some();
        match (verdict, &row.differs) {
            (Verdict::Equal, None) => self.equal += 1,
            (Verdict::BothRefuse, None) => {
                self.equal += 1;
                self.both_refuse += 1;
            }
            (Verdict::Equal | Verdict::BothRefuse, Some(_)) => {
                self.wrong += 1;
                println!("{}: does not differ, although `differs` expects it\n  {}\n", row.name, row.text);
            }
            (Verdict::Differs(how) | Verdict::OneRefuses(how), Some(why)) => {
                self.explained += 1;
                if tell {
                    println!("{}: {why}\n{how}\n  {}\n", row.name, row.text);
                }
            }
            (Verdict::OneRefuses(how), None) => {
                self.one_refuses += 1;
                if refusals || tell {
                    println!("{}: {how}\n  {}\n", row.name, row.text);
                }
            }
            (Verdict::Differs(how), None) => {
                self.wrong += 1;
                println!("{}: {how}\n  {}\n", row.name, row.text);
            }
        }
    }
}
