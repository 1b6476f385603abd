//! Generates and tests random scripts. `wild` scripts use the entire grammar, and must pass sema, compile, and pass the verifier.
//! `stress` scripts come from a second generator. The verifier must accept those that sema accepts. `exact` scripts have known
//! output.

#![allow(clippy::wildcard_enum_match_arm)] // matches on one variant of a generated program

use rbt::codegen::artifact::Artifact;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

mod eval;
mod exact;
mod invent;
mod machine;
mod rng;
mod shrink;
mod stress;
mod tokens;
mod tree;
mod wild;

use exact::{S, Script};
use machine::{Machine, Outcome, Spent};
use stress::world::World;
use wild::Wild;

/// `KIND N FIRST [SECONDS]` tries N scripts, starting at seed FIRST, in a separate process, which is restarted if a script
/// crashes it. A failing script is reduced for at most SECONDS. `show KIND SEED` prints a script, and `try KIND SEED` runs it.
/// `make KIND N FIRST SNAPSHOT FOLDER` compiles scripts for the kernel of a snapshot, and `load FOLDER` loads them in that
/// kernel, because compiling in an emulated machine is far slower.
pub fn main(args: &[String]) -> ExitCode {
    let word = |i: usize| args.get(i).map_or("", String::as_str);
    let number = |i: usize, otherwise: u64| word(i).parse().unwrap_or(otherwise);
    match word(0) {
        "show" => println!("{}", text_of(word(1), number(2, 1))),
        "try" => {
            let (text, machine) = (text_of(word(1), number(2, 1)), Machine::new());
            let (outcome, spent) = attempt(&machine, word(1), number(2, 1), &text);
            println!("{text}\n{}: {}\n{spent:?}", outcome.class(), outcome.story());
        }
        "work" => return work(word(1), number(2, 500), number(3, 1), number(4, TIMEOUT)),
        "make" => return make(word(1), number(2, 500), number(3, 1), Path::new(word(4)), Path::new(word(5))),
        "load" => return load(Path::new(word(1))),
        kind @ ("wild" | "stress" | "exact") => return watch(kind, number(1, 500), number(2, 1), number(3, TIMEOUT)),
        _ => {
            println!("wild|stress|exact N [SEED [SECONDS]], show KIND SEED, try KIND SEED, make KIND N SEED SNAPSHOT FOLDER, load FOLDER");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn text_of(kind: &str, seed: u64) -> String {
    match kind {
        "exact" => invent::invent(seed).text(),
        "stress" => {
            let machine = Machine::new();
            stress::script(&World::new(&machine, &fixtures()), seed)
        }
        _ => {
            let machine = Machine::new();
            wild::text(&Wild::new(&machine, &fixture()).script(seed))
        }
    }
}

/// Runs `work` until all scripts are tried. A crash counts as a failure.
fn watch(kind: &str, n: u64, first: u64, patience: u64) -> ExitCode {
    let (mut from, mut failed) = (first, false);
    let Ok(me) = std::env::current_exe() else { return ExitCode::FAILURE };
    while from < first + n {
        let place = place().join(format!("at-{}", std::process::id()));
        let mut worker = Command::new(&me);
        worker.env(WORK, format!("work {kind} {} {from} {patience}", first + n - from)).env("RBT_GENERATE_AT", &place);
        let status = match worker.status() {
            Ok(status) => status,
            Err(e) => {
                println!("{e}");
                return ExitCode::FAILURE;
            }
        };
        let at: u64 = std::fs::read_to_string(&place).ok().and_then(|t| t.trim().parse().ok()).unwrap_or(from);
        let _ = std::fs::remove_file(&place);
        failed |= !status.success();
        match status.code() {
            Some(0 | 1) => break,
            _ => {
                println!("seed {at}: crash ({status})");
                from = at + 1;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The maximum time for reducing a failing script, in seconds.
const TIMEOUT: u64 = 120;

/// The arguments of a worker.
pub const WORK: &str = "RBT_GENERATE";

fn place() -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/tmp/generated");
    let _ = std::fs::create_dir_all(&dir);
    dir
}

/// The directory of programs for uprobes, which are the fixtures of the test suite if they are built.
fn fixtures() -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/tmp/fixtures").display().to_string()
}

/// A program for uprobes.
fn fixture() -> String {
    format!("{}/args", fixtures())
}

fn work(kind: &str, n: u64, first: u64, patience: u64) -> ExitCode {
    let machine = Machine::new();
    let wild = (kind == "wild").then(|| Wild::new(&machine, &fixture()));
    if let Some(wild) = &wild {
        println!("attach points: {}", wild.points().join(" "));
    }
    let world = (kind == "stress").then(|| World::new(&machine, &fixtures()));
    if let Some(world) = &world {
        println!("attach points: {}", world.points().iter().map(|p| p.text.as_str()).collect::<Vec<_>>().join(" "));
    }
    let at = std::env::var("RBT_GENERATE_AT").unwrap_or_default();
    let (mut spent, mut making) = (Spent::default(), Duration::ZERO);
    let (mut failed, mut skipped, mut complex) = (0, 0, 0);
    let with = std::env::var("RBT_GENERATE_WITH").ok();
    let mut slowest: Vec<(Duration, u64)> = Vec::new();
    for seed in first..first + n {
        if !at.is_empty() {
            let _ = std::fs::write(&at, seed.to_string());
        }
        let since = Instant::now();
        let (outcome, took) = match (&wild, &world) {
            (None, Some(world)) => {
                let text = stress::script(world, seed);
                making += since.elapsed();
                if with.as_ref().is_some_and(|with| !text.contains(with)) {
                    continue;
                }
                let (outcome, took) = machine.try_script(&text, false);
                match &outcome {
                    Outcome::Fine(..) if took.turns > 1 => println!("seed {seed}: compiled {} times", took.turns),
                    Outcome::Fine(..) => {}
                    Outcome::Check(said) => {
                        if std::env::var("RBT_GENERATE_TELL").is_ok() {
                            println!("seed {seed}: {}", said.lines().take(4).collect::<Vec<_>>().join(" / "));
                        }
                        skipped += 1;
                        continue;
                    }
                    Outcome::Complex(said) => {
                        println!("seed {seed}: {said}");
                        complex += 1;
                        continue;
                    }
                    _ => {
                        let small = tokens::shrink(&text, &mut same(&machine, &outcome, patience));
                        report(seed, &outcome, &small, &machine.try_script(&small, false).0);
                    }
                }
                (outcome, took)
            }
            (Some(wild), _) => {
                let nodes = wild.script(seed);
                making += since.elapsed();
                let (outcome, took) = machine.try_script(&wild::text(&nodes), false);
                if !matches!(outcome, Outcome::Fine(..)) {
                    let small = shrink::shrink(nodes, &mut same(&machine, &outcome, patience));
                    report(seed, &outcome, &wild::text(&small), &machine.try_script(&wild::text(&small), false).0);
                }
                (outcome, took)
            }
            (None, None) => {
                let script = invent::invent(seed);
                making += since.elapsed();
                if eval::expected(&script).is_err() {
                    skipped += 1;
                    continue;
                }
                let (outcome, took) = compare(&machine, &script);
                if !matches!(outcome, Outcome::Fine(..)) {
                    let small = smaller(&machine, script, &outcome, patience);
                    report(seed, &outcome, &small.text(), &compare(&machine, &small).0);
                }
                (outcome, took)
            }
        };
        failed += u64::from(!matches!(outcome, Outcome::Fine(..)));
        spent.add(took);
        slowest.push((took.total(), seed));
        if (seed - first) % 100 == 99 || seed + 1 == first + n {
            slowest.sort_by(|a, b| b.cmp(a));
            slowest.truncate(3);
            let done = seed - first + 1;
            let per = |d: Duration| d.as_secs_f64() * 1e3 / done as f64;
            println!(
                "{kind}: {done} done, {failed} failed, {skipped} skipped, {complex} too complex; ms of CPU each: generate {:.1}, check {:.1}, compile {:.1}, load {:.1}, run {:.1}; slowest {:?}",
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

fn attempt(machine: &Machine, kind: &str, seed: u64, text: &str) -> (Outcome, Spent) {
    if kind == "exact" { compare(machine, &invent::invent(seed)) } else { machine.try_script(text, false) }
}

/// Writes the scripts, and their compiled form for the kernel of a snapshot, to a directory, by seed.
fn make(kind: &str, n: u64, first: u64, snapshot: &Path, folder: &Path) -> ExitCode {
    let machine = match Machine::of(snapshot) {
        Ok(machine) => machine,
        Err(said) => {
            println!("{said}");
            return ExitCode::FAILURE;
        }
    };
    let text: Box<dyn Fn(u64) -> String> = match kind {
        "stress" => {
            let world = World::new(&machine, &fixtures());
            Box::new(move |seed| stress::script(&world, seed))
        }
        _ => {
            let wild = Wild::new(&machine, &fixture());
            Box::new(move |seed| wild::text(&wild.script(seed)))
        }
    };
    let _ = std::fs::create_dir_all(folder);
    let tell = std::env::var("RBT_GENERATE_TELL").is_ok();
    let (mut made, mut skipped, mut failed) = (0, 0, 0);
    for seed in first..first + n {
        let text = text(seed);
        match machine.make(&text, &mut Spent::default()) {
            Ok(artifact) => {
                let elf = std::fs::write(folder.join(format!("{seed}.o")), &artifact.elf);
                let rest = Artifact { elf: Vec::new(), ..artifact };
                let rest = serde_json::to_vec(&rest).map(|json| std::fs::write(folder.join(format!("{seed}.json")), json));
                let script = std::fs::write(folder.join(format!("{seed}.bt")), &text);
                if !matches!((elf, rest, script), (Ok(()), Ok(Ok(())), Ok(()))) {
                    println!("cannot write into {}", folder.display());
                    return ExitCode::FAILURE;
                }
                made += 1;
            }
            Err(Outcome::Check(said)) => {
                if tell {
                    println!("seed {seed}: {}", said.lines().take(4).collect::<Vec<_>>().join(" / "));
                }
                skipped += 1;
            }
            Err(outcome) => {
                failed += 1;
                report(seed, &outcome, &text, &outcome);
            }
        }
    }
    println!("{kind}: {made} made, {failed} failed, {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Loading a program that takes longer is reported. An emulated machine needs minutes for some.
const SLOW_LOAD: Duration = Duration::from_secs(10);

/// Loads the output of `make` in this kernel.
fn load(folder: &Path) -> ExitCode {
    let machine = Machine::new();
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    let mut seeds: Vec<u64> =
        files.filter(|p| p.extension().is_some_and(|e| e == "o")).filter_map(|p| p.file_stem()?.to_str()?.parse().ok()).collect();
    seeds.sort_unstable();
    let (mut spent, mut failed, mut complex) = (Spent::default(), 0, 0);
    for (done, seed) in (1..).zip(&seeds) {
        let file = |extension: &str| folder.join(format!("{seed}.{extension}"));
        let made = (std::fs::read(file("json")).ok().and_then(|json| serde_json::from_slice(&json).ok()), std::fs::read(file("o")));
        let (Some(rest), Ok(elf)) = made else {
            println!("seed {seed}: cannot read its files");
            return ExitCode::FAILURE;
        };
        let artifact = Artifact { elf, ..rest };
        let since = Instant::now();
        let mut outcome = machine.take(&artifact, &mut spent);
        let text = std::fs::read_to_string(file("bt")).unwrap_or_default();
        let again = match outcome {
            Outcome::Complex(_) => text.contains("unroll"),
            Outcome::VerifierError(..) => true,
            _ => false,
        };
        if !matches!(outcome, Outcome::Fine(..)) && (again || artifact.manifest.programs.iter().any(|p| p.lowered.is_some())) {
            // Tries again without the mechanisms that the kernel rejected, as a run of rbt does.
            println!("seed {seed}: the kernel rejected it: tries without some mechanisms");
            outcome = machine.try_script(&text, false).0;
        }
        if since.elapsed() >= SLOW_LOAD {
            println!("seed {seed}: took {:.0} s of wall time", since.elapsed().as_secs_f64());
        }
        if let Outcome::Complex(said) = &outcome {
            println!("seed {seed}: {said}");
            complex += 1;
        } else if !matches!(outcome, Outcome::Fine(..)) {
            failed += 1;
            report(*seed, &outcome, &text, &outcome);
        }
        if done % 100 == 0 || done == seeds.len() {
            println!(
                "{done} loaded, {failed} failed, {complex} too complex, the last is {seed}; ms each: {:.1}",
                spent.load.as_secs_f64() * 1e3 / done as f64
            );
        }
    }
    if failed == 0 && !seeds.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns a function that checks whether a text fails in the same way. After `patience` seconds, it always returns false.
fn same<'a>(machine: &'a Machine, outcome: &Outcome, patience: u64) -> impl FnMut(&str) -> bool + 'a {
    let since = Instant::now();
    let wanted = (outcome.class(), complaint(outcome));
    move |text| {
        let now = (since.elapsed().as_secs() < patience).then(|| machine.try_script(text, false).0);
        now.is_some_and(|now| (now.class(), complaint(&now)) == wanted)
    }
}

/// The message of an outcome, without numbers and names.
fn complaint(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Check(said) => said.split(']').next().unwrap_or("").to_string(),
        Outcome::VerifierError(why, _) => why.rsplit(": ").next().unwrap_or("").chars().filter(|c| c.is_alphabetic()).take(30).collect(),
        _ => String::new(),
    }
}

fn report(seed: u64, outcome: &Outcome, text: &str, last: &Outcome) {
    let class = outcome.class();
    let story = format!("seed {seed}: {class}\n{text}\n{}\n", last.story());
    println!("{story}");
    let _ = std::fs::write(place().join(format!("{class}-{seed}.txt")), story);
}

/// Runs a script and compares its output with the expected one.
fn compare(machine: &Machine, script: &Script) -> (Outcome, Spent) {
    let Ok((wanted, divided)) = eval::expected(script) else { return (Outcome::Wrong("runs too long".into()), Spent::default()) };
    let (outcome, spent) = machine.try_script(&script.text(), true);
    let Outcome::Fine(out, err) = &outcome else { return (outcome, spent) };
    let (out, err) = (String::from_utf8_lossy(out), String::from_utf8_lossy(err));
    if *out != wanted {
        let mut story = String::new();
        for (i, (a, b)) in wanted.lines().zip(out.lines()).enumerate().filter(|(_, (a, b))| a != b).take(3) {
            let _ = writeln!(story, "line {}: {b:?}, not {a:?}", i + 1);
        }
        let _ = writeln!(
            story,
            "{} lines, not {}\n--- printed\n{out}\n--- expected\n{wanted}\n--- errors\n{err}",
            out.lines().count(),
            wanted.lines().count()
        );
        return (Outcome::Wrong(story), spent);
    }
    let told = told(&err);
    if told != divided {
        return (Outcome::Wrong(format!("{told} divisions by 0 were reported, not {divided}\n{err}")), spent);
    }
    (outcome, spent)
}

/// The number of divisions by 0 that were reported. The total of a place, if there is one, includes its other reports.
fn told(err: &str) -> u64 {
    let mut places: BTreeMap<&str, u64> = BTreeMap::new();
    for line in err.lines().filter(|l| l.contains("by 0")) {
        let total = line.strip_suffix(" times in total").and_then(|before| before.rsplit(' ').next()?.parse().ok());
        let place = places.entry(line.split(": ").next().unwrap_or_default()).or_default();
        *place = total.unwrap_or(*place + 1);
    }
    places.values().sum()
}

/// Does the first probe still assign each map that the script uses, and thereby determine its type?
fn sound(script: &Script) -> bool {
    let text = script.text();
    let first = |name: &String| {
        let sets = |s: &S| matches!(s, S::SetMap(n, ..) | S::Aggregate(n, ..) if n == name);
        script.probes.first().is_some_and(|(_, body)| body.iter().any(sets))
    };
    script.maps.keys().filter(|name| eval::mentions(&text, name)).all(first)
}

/// Removes statements as long as the script fails in the same way.
fn smaller(machine: &Machine, mut script: Script, outcome: &Outcome, patience: u64) -> Script {
    let since = Instant::now();
    let wanted = (outcome.class(), complaint(outcome));
    loop {
        let mut any = false;
        let mut at = script.probes.iter().map(|(_, b)| exact_size(b)).sum::<usize>();
        while at > 0 && since.elapsed().as_secs() < patience {
            at -= 1;
            let mut less = script.clone();
            let mut left = at;
            for (_, body) in &mut less.probes {
                if drop_one(body, &mut left) {
                    break;
                }
            }
            if !sound(&less) || eval::expected(&less).is_err() {
                continue;
            }
            let now = compare(machine, &less).0;
            if (now.class(), complaint(&now)) == wanted {
                (script, any) = (less, true);
            }
        }
        if !any {
            break;
        }
    }
    // Removes the maps and macros that are no longer used.
    let text = script.text();
    let mut less = script.clone();
    less.maps.retain(|name, _| eval::mentions(&text, name));
    less.macros.retain(|m| text.matches(&format!("{}(", m.name)).count() > 1);
    if compare(machine, &less).0.class() == wanted.0 { less } else { script }
}

fn exact_size(stmts: &[S]) -> usize {
    stmts.iter().map(|s| 1 + bodies(s).iter().map(|b| exact_size(b)).sum::<usize>()).sum()
}

fn bodies(s: &S) -> Vec<&Vec<S>> {
    match s {
        S::If(_, a, b) => vec![a, b],
        S::Range(_, _, _, a) | S::Each(_, _, a) | S::While(_, a) | S::Unroll(_, a) | S::Scope(a) => vec![a],
        _ => Vec::new(),
    }
}

/// Removes the statement with this number, in the order of the text.
fn drop_one(stmts: &mut Vec<S>, at: &mut usize) -> bool {
    let mut i = 0;
    while i < stmts.len() {
        if *at == 0 {
            let gone = stmts.remove(i);
            // The contents of a scope replace it.
            if let S::Scope(inner) = gone {
                stmts.splice(i..i, inner);
            }
            return true;
        }
        *at -= 1;
        let inner: Vec<&mut Vec<S>> = match &mut stmts[i] {
            S::If(_, a, b) => vec![a, b],
            S::Range(_, _, _, a) | S::Each(_, _, a) | S::While(_, a) | S::Unroll(_, a) | S::Scope(a) => vec![a],
            _ => Vec::new(),
        };
        for body in inner {
            if drop_one(body, at) {
                return true;
            }
        }
        i += 1;
    }
    false
}
