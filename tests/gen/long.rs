//! Scripts by the thousand: `cargo bench --bench generate -- N [SEED]`.
//!
//! Each is checked, compiled and loaded in this process. What fails is made small and written down, with its seed, in
//! `target/tmp/generated`, and the run goes on; with the same numbers it comes out the same. `-- show SEED` prints a script, `-- try SEED` has one
//! go with times.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

mod machine;
mod rng;
mod shrink;
mod tree;
mod wild;

use machine::{Machine, Outcome, Spent};
use wild::Wild;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let number = |i: usize| args.get(i).and_then(|a| a.parse::<u64>().ok());
    let machine = Machine::new();
    let fixture = fixture();
    let wild = Wild::new(&machine, &fixture);
    match args.first().map(String::as_str) {
        Some("show") => {
            println!("{}", wild::text(&wild.script(number(1).unwrap_or(0))));
            ExitCode::SUCCESS
        }
        Some("try") => {
            let seed = number(1).unwrap_or(0);
            let nodes = wild.script(seed);
            println!("{}", wild::text(&nodes));
            let (outcome, spent) = machine.try_script(&wild::text(&nodes), false);
            println!("{}: {}\n{spent:?}", outcome.class(), outcome.story());
            ExitCode::SUCCESS
        }
        _ => long(&machine, &wild, number(0).unwrap_or(500), number(1).unwrap_or(1)),
    }
}

fn fixture() -> String {
    let fixture = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tmp/fixtures/args");
    fixture.display().to_string()
}

fn long(machine: &Machine, wild: &Wild, n: u64, first: u64) -> ExitCode {
    println!("attach points: {}", wild.points().join(" "));
    let (mut spent, mut making, mut failed) = (Spent::default(), Duration::ZERO, 0);
    let mut slowest: Vec<(Duration, u64)> = Vec::new();
    for seed in first..first + n {
        let since = Instant::now();
        let nodes = wild.script(seed);
        making += since.elapsed();
        let text = wild::text(&nodes);
        let (outcome, took) = machine.try_script(&text, false);
        spent.check += took.check;
        spent.compile += took.compile;
        spent.load += took.load;
        spent.run += took.run;
        slowest.push((took.total(), seed));
        if !matches!(outcome, Outcome::Fine(..)) {
            failed += 1;
            report(machine, seed, &outcome, nodes);
        }
        if (seed - first) % 100 == 99 {
            slowest.sort_by(|a, b| b.cmp(a));
            slowest.truncate(5);
            let done = seed - first + 1;
            let per = |d: Duration| d.as_secs_f64() * 1e3 / done as f64;
            println!(
                "{done} done, {failed} failed; ms each: generate {:.1}, check {:.1}, compile {:.1}, load {:.1}, unload {:.1}; slowest {:?}",
                per(making),
                per(spent.check),
                per(spent.compile),
                per(spent.load),
                per(spent.run),
                slowest.iter().map(|(d, s)| (d.as_millis(), *s)).collect::<Vec<_>>()
            );
            let _ = std::io::stdout().flush();
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Makes it small, and writes it down.
fn report(machine: &Machine, seed: u64, outcome: &Outcome, nodes: Vec<tree::Node>) {
    let class = outcome.class();
    println!("seed {seed}: {class}");
    let since = Instant::now();
    let code = |o: &Outcome| match o {
        // the same complaint
        Outcome::Check(said) => said.split(']').next().unwrap_or("").to_string(),
        Outcome::Refused(why, _) => why.rsplit(": ").next().unwrap_or("").chars().filter(|c| c.is_alphabetic()).take(30).collect(),
        _ => String::new(),
    };
    let wanted = code(outcome);
    let mut tries = 0;
    let small = shrink::shrink(nodes, &mut |text| {
        tries += 1;
        // a long search is for later
        if since.elapsed() > Duration::from_secs(120) {
            return false;
        }
        let now = machine.try_script(text, false).0;
        now.class() == class && code(&now) == wanted
    });
    let text = wild::text(&small);
    let (last, _) = machine.try_script(&text, false);
    let story = format!("seed {seed}: {class}\n{text}\n{}\n", last.story());
    println!("{story}");
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tmp/generated");
    let _ = std::fs::create_dir_all(&dir);
    let _ = std::fs::write(dir.join(format!("{class}-{seed}.txt")), story);
}
