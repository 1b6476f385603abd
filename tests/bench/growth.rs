//! Measures how the cost of a run grows with the number of probes, the number of keys, and the length of the script.
//!
//! Each table has a row for each size: the median of the time without that of an empty run, the time per unit, the memory, and the
//! exponent: 1 if the time is proportional to the size since the row before, 2 if it grows with its square.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use crate::process::{Cost, command, run};
use crate::stats::{Samples, rounds, target};

const PROBES: &[usize] = &[1, 10, 100, 1_000, 10_000];
const KEYS: &[usize] = &[100, 1_000, 10_000, 100_000, 1_000_000];
const LINES: &[usize] = &[10, 100, 1_000, 10_000];

/// A size is omitted if, at this growth, a run would take longer, in milliseconds.
const MAX_RUN: f64 = 60_000.0;
/// Permits so many probes.
const MANY: &str = "config = { max_probes = 20000; max_bpf_progs = 20000 }";
/// A difference below this, in milliseconds, is noise: no exponent is computed from it.
const NOISE: f64 = 5.0;

/// A table: what grows, the unit, and a function from a size to the arguments of a run.
type Table<'a> = (&'a str, &'a str, &'a dyn Fn(usize) -> Vec<String>);

/// A statement of a script, by its number.
type Statement = (&'static str, fn(usize) -> String);

const STATEMENTS: &[Statement] = &[
    ("assignments", |i| format!("@m[{i}] = {i};")),
    ("aggregations with two keys", |i| format!("@c[comm, {i}] = count();")),
    ("conditions", |i| format!("if (pid > {i}) {{ @n[{i}]++; }}")),
    ("printf of constants", |i| format!("printf(\"{i} %d\\n\", {i});")),
    ("printf of values", |i| format!("printf(\"{i} %d %s\\n\", pid, comm);")),
    ("sums in variables", |i| format!("$v = pid * {i} + cpu;")),
    ("divisions by a variable", |i| format!("$v = {i} / pid;")),
    ("loops", |i| format!("for $i : 0..{} {{ @n += {i}; }}", i % 5)),
    ("searches of texts", |i| format!("if (strcontains(comm, \"text {i}\")) {{ @n++; }}")),
];

/// Those of a probe that may run often.
const IN_TRACEPOINT: &[Statement] = &[
    ("aggregations", |i| format!("@c[{i}] = count();")),
    ("extremes", |i| format!("@m[{i}] = max(args.pid + {i});")),
    ("conditions", |i| format!("if (args.pid > {i}) {{ @n[{i}]++; }}")),
    ("mixed statements", mixed),
    ("stacks in keys", |i| format!("@k[kstack, {i}] = count();")),
    ("choices", |i| format!("@n = args.pid > {i} ? {i} : args.pid; if (args.pid == {i}) {{ @a++; }} else {{ @b = {i}; }}")),
];

fn mixed(i: usize) -> String {
    match i % 6 {
        0 => format!("@c[comm, {i}] = count();"),
        1 => format!("printf(\"{i} %d %s\\n\", pid, comm);"),
        2 => format!("if (args.pid > {i}) {{ @n[{i}]++; }}"),
        3 => format!("@m[{i}] = max(args.pid + {i});"),
        4 => format!("@h = hist(args.pid + {i});"),
        _ => format!("$v = pid * {i}; @z[{i}] = $v;"),
    }
}

pub fn growth() {
    let folder = std::env::temp_dir().join(format!("rbt-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let empty = arguments(&folder, "begin { exit(); }");
    let library = library(&folder);
    let points = |n: usize| (0..n).map(|i| format!("uprobe:{}:f{i}", library.display())).collect::<Vec<_>>();

    let shared = |n: usize| arguments(&folder, &format!("{MANY}\n{} {{ @ = count(); }}\nbegin {{ exit(); }}\n", points(n).join(",\n")));
    table(&empty, PROBES, ("probes with one body", "probe", &shared));
    let own = |n: usize| {
        let bodies = points(n).into_iter().enumerate();
        let text = bodies.fold(format!("{MANY}\nbegin {{ exit(); }}\n"), |mut text, (i, point)| {
            let _ = writeln!(text, "{point} {{ @[{i}] = count(); }}");
            text
        });
        arguments(&folder, &text)
    };
    table(&empty, &PROBES[..4], ("probes with a body each", "probe", &own));

    let keys = |n: usize| {
        let config = format!("config = {{ max_map_keys = {}; }}", (2 * n).max(4_096));
        arguments(&folder, &format!("{config} begin {{ for $i : 0..{n} {{ @[$i] = count(); }} exit(); }}"))
    };
    table(&empty, KEYS, ("keys written and printed", "key", &keys));

    let config = "config = { max_map_keys = 20000; print_maps_on_exit = false }";
    let rows = STATEMENTS.iter().map(|row| (row, "", format!("{config}\nbegin {{\n")));
    let probe = "tracepoint:syscalls:sys_enter_getpgid";
    let rows =
        rows.chain(IN_TRACEPOINT.iter().map(|row| (row, " in a tracepoint", format!("{config}\nbegin {{ exit(); }}\n{probe} {{\n"))));
    for ((name, statement), place, head) in rows {
        let lines = |n: usize| {
            let body: String = (0..n).map(|i| format!("  {}\n", statement(i))).collect();
            arguments(&folder, &format!("{head}{body}  exit();\n}}\n"))
        };
        let last = table(&empty, LINES, (&format!("lines: {name}{place}"), "line", &lines));
        if let Some(each) = last {
            target(&format!("{name}{place}, per line"), each, 0.15, "ms");
        }
    }
    let _ = std::fs::remove_dir_all(folder);
}

/// Prints a table, and returns the time per unit at its largest size, unless that was omitted.
fn table(empty: &[String], sizes: &[usize], (what, unit, of): Table) -> Option<f64> {
    println!("  {what}");
    let mut before: Option<(usize, f64)> = None;
    let mut last = None;
    for n in sizes.iter().copied() {
        if let Some((m, took)) = before
            && took * (n / m) as f64 > MAX_RUN
        {
            println!("  {n:>10}   omitted: it would take {:.0} s", took * (n / m) as f64 / 1e3);
            return None;
        }
        let args = of(n);
        let [mut time, mut rss, mut base]: [Samples; 3] = Default::default();
        for _ in 0..rounds(if before.is_some_and(|(_, took)| took > 300.0) { 1 } else { 3 }) {
            base.add(start(empty).wall);
            let cost = start(&args);
            time.add(cost.wall);
            rss.add(cost.rss);
        }
        let took = time.median() - base.median();
        let exponent = before.filter(|(_, earlier)| *earlier > NOISE && took > NOISE);
        let exponent = exponent.map(|(m, earlier)| (took / earlier).ln() / (n as f64 / m as f64).ln());
        let exponent = exponent.map_or_else(|| "-".into(), |e| format!("{e:.2}"));
        println!("  {n:>10} {took:10.1} ms  {:10.2} us per {unit:6} {:8.1} MiB   exponent {exponent}", took * 1e3 / n as f64, rss.median());
        before = Some((n, took));
        last = Some(took / n as f64);
    }
    last
}

/// Runs rbt without what it keeps between runs, so that each run compiles its script.
fn start(args: &[String]) -> Cost {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut rbt: Command = command(&args);
    rbt.env("RBT_CACHE", "");
    run(rbt)
}

fn arguments(folder: &Path, script: &str) -> Vec<String> {
    let file = folder.join(format!("{:x}.bt", script.len()));
    std::fs::write(&file, script).expect("a script");
    vec!["-q".into(), "--no-warnings".into(), file.display().to_string()]
}

/// A library that no process maps, with as many functions as there are probes at most.
fn library(folder: &Path) -> std::path::PathBuf {
    let most = PROBES.iter().max().copied().unwrap_or(0);
    let text: String = (0..most).map(|i| format!("void f{i}(void) {{}}\n")).collect();
    let (source, file) = (folder.join("growth.c"), folder.join("growth.so"));
    std::fs::write(&source, text).expect("a source");
    let status = Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).args([&file, &source]).status();
    assert!(status.is_ok_and(|status| status.success()), "cc is needed");
    file
}
