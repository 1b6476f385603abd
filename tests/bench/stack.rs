//! Measures user stacks with unwind tables: the cost of a walk, the time until the first complete stack, the memory, and printing.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::kernel::{counting, ids, open, times};
use crate::process::{attached, command, interrupt, ms, pause};
use crate::stats::{Samples, rounds, target};

/// The numbers of frames of the traced program, in addition to those of its start.
const DEPTHS: [u32; 4] = [5, 20, 50, 100];

const CALLS: u64 = 100_000;

const BY_TABLES: &str = "tracepoint:syscalls:sys_enter_getppid { @[ustack] = count(); }";
const BY_FRAME_POINTERS: &str = "config = { unwind_tables = false } tracepoint:syscalls:sys_enter_getppid { @[ustack] = count(); }";
const WITHOUT: &str = "tracepoint:syscalls:sys_enter_getppid { @[nsecs & 1] = count(); }";

pub fn stack() {
    let folder = std::env::temp_dir().join(format!("rbt-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    walk(&folder);
    rates(&folder);
    first_whole(&folder);
    processes();
    let _ = std::fs::remove_dir_all(folder);
}

/// Measures how long a million distinct stacks take to print to a file, from the signal to the end of rbt.
pub fn stacks() {
    let folder = std::env::temp_dir().join(format!("rbt-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let program = compiled_program(&folder, "branches");
    let printed = folder.join("printed");
    let script = format!("config = {{ max_map_keys = 2000000 }} uprobe:{}:last_of_the_calls {{ @[ustack] = count(); }}", program.display());
    let [mut took, mut memory, mut text]: [Samples; 3] = Default::default();
    for _ in 0..rounds(3) {
        let out = std::fs::File::create(&printed).expect("a file");
        #[allow(clippy::zombie_processes)] // wait4 reaps it
        let rbt = attached(&["-q", "-e", &script], out.into(), Stdio::null());
        let status = Command::new(&program).arg("1000000").status().expect("the program");
        assert!(status.success(), "the program");
        let since = Instant::now();
        memory.add(end(&rbt));
        took.add(ms(since) / 1e3);
        text.add(std::fs::metadata(&printed).expect("a file").len() as f64 / 1e6);
    }
    text.show("text", "MB");
    took.show("from the signal to the end", "s");
    memory.show("peak resident memory", "MiB");
    target("a million distinct stacks", took.median(), 5.0, "s");
    target("a million distinct stacks", memory.median(), 300.0, "MiB");
    let _ = std::fs::remove_dir_all(folder);
}

/// Sends SIGINT to rbt, waits for its end, and returns its peak resident memory in MiB.
fn end(rbt: &Child) -> f64 {
    let pid = rbt.id() as libc::pid_t;
    // SAFETY: the structure consists of numbers
    let (mut status, mut usage) = (0, unsafe { std::mem::zeroed::<libc::rusage>() });
    // SAFETY: the process is our child and has not been waited for; both variables are local
    unsafe {
        libc::kill(pid, libc::SIGINT);
        libc::wait4(pid, &mut status, 0, &mut usage);
    }
    assert_eq!(status, 0, "rbt");
    usage.ru_maxrss as f64 / 1024.0
}

/// Measures the nanoseconds of the walk alone, as the difference between a program with a stack and one without.
fn walk(folder: &Path) {
    let _counting = counting();
    let deep = compiled(folder);
    let mut by_depth = Vec::new();
    for depth in DEPTHS {
        let [mut tables, mut pointers]: [Samples; 2] = Default::default();
        for _ in 0..rounds(5) {
            let without = per_event(WITHOUT, &deep, depth);
            tables.add(per_event(BY_TABLES, &deep, depth) - without);
            pointers.add(per_event(BY_FRAME_POINTERS, &deep, depth) - without);
        }
        pointers.show(&format!("{depth} frames, with the kernel's frame pointer walk"), "ns");
        tables.show_beside(&format!("{depth} frames, with tables"), "ns", &pointers, "of the kernel's walk");
        by_depth.push((depth, tables.median()));
    }
    let at = |wanted| by_depth.iter().find(|(depth, _)| *depth == wanted).map_or(f64::NAN, |(_, ns)| *ns);
    target("a stack of 20 frames", at(20), 3000.0, "ns");
    target("each further frame", (at(100) - at(20)) / 80.0, 100.0, "ns");
}

/// Measures the slowdown of the traced program while its stacks are counted.
fn rates(folder: &Path) {
    let deep = compiled(folder);
    let run = |script: Option<&str>| {
        let rbt = script.map(|s| attached(&["-q", "-e", s], Stdio::null(), Stdio::piped()));
        let since = Instant::now();
        let status = Command::new(&deep).args(["20", "300000"]).status().expect("the program");
        assert!(status.success(), "the program");
        let took = ms(since);
        if let Some(rbt) = rbt {
            interrupt(rbt);
        }
        took
    };
    let [mut alone, mut sampled, mut each]: [Samples; 3] = Default::default();
    for _ in 0..rounds(5) {
        alone.add(run(None));
        sampled.add(run(Some("profile:hz:99 { @[ustack] = count(); }")));
        each.add(run(Some(BY_TABLES)));
    }
    alone.show("300,000 system calls from 20 frames, not traced", "ms");
    sampled.show_beside("  with stacks at 99 Hz", "ms", &alone, "of the program alone");
    each.show_beside("  with a stack of each call", "ms", &alone, "of the program alone");
}

/// Measures the time from the start of rbt to the first stack that reaches the start of the program.
fn first_whole(folder: &Path) {
    let source = folder.join("large.rs");
    let functions = (0..20_000).map(|n| format!("pub fn f{n}(v: &mut Vec<u32>) {{ v.sort_by_key(|x| x % {}); v.push({n}); }}\n", n + 1));
    std::fs::write(&source, functions.collect::<String>()).expect("a source file");
    let rustc = Command::new("rustc").args(["--print", "sysroot"]).output().ok().and_then(|out| String::from_utf8(out.stdout).ok());
    let rustc = rustc.map(|root| Path::new(root.trim()).join("bin/rustc"));
    let python = ("a running Python", Some(PathBuf::from("/usr/bin/python3")), vec!["-c".into(), "while True: str(1)".into()]);
    let large = (
        "a running rustc",
        rustc,
        vec!["--crate-type=lib".into(), "-O".into(), "--emit=metadata,obj".into(), source.display().to_string()],
    );
    for (what, program, args) in [python, large] {
        let Some(program) = program.filter(|p| p.exists()) else {
            println!("  {what}: not measured, because it is not installed");
            continue;
        };
        let [mut cold, mut warm]: [Samples; 2] = Default::default();
        for _ in 0..rounds(5) {
            let cache = folder.join("cache");
            let _ = std::fs::remove_dir_all(&cache);
            let traced = Command::new(&program).args(&args).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            let mut traced = traced.expect("the program");
            pause(1000);
            cold.add(time_to_whole(traced.id(), &cache));
            warm.add(time_to_whole(traced.id(), &cache));
            let _ = traced.kill();
            let _ = traced.wait();
        }
        cold.show(&format!("{what}, without a cache"), "ms");
        warm.show_beside(&format!("{what}, again"), "ms", &cold, "of the first time");
    }
}

fn time_to_whole(pid: u32, cache: &Path) -> f64 {
    let since = Instant::now();
    let script = "profile:hz:999 { print(ustack); }";
    let mut rbt = command(&["-q", "-p", &pid.to_string(), "-e", script]);
    let mut rbt = rbt.env("RBT_CACHE", cache).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("rbt");
    let mut lines = BufReader::new(rbt.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let starts = |line: &String| ["_start+", "__clone3+", "clone3+", "clone+"].iter().any(|name| line.trim_start().starts_with(name));
    assert!(lines.any(|line| starts(&line)), "no stack was whole");
    let took = ms(since);
    // rbt keeps names for the next run when it ends, and must be able to print until then
    std::thread::spawn(move || lines.for_each(drop));
    interrupt(rbt);
    took
}

/// Measures the memory of the tables of all running processes, with many additional processes.
fn processes() {
    const MANY: usize = 500;
    let python = ["-c", "import json, re, time\nwhile True: time.sleep(1); str(json)"];
    let mut others: Vec<Child> = Vec::new();
    let mut shown = Vec::new();
    for more in [0, MANY] {
        others.extend((0..more).filter_map(|_| Command::new("/usr/bin/python3").args(python).spawn().ok()));
        pause(if more > 0 { 20_000 } else { 0 });
        let script = "tracepoint:sched:sched_switch { @[ustack] = count(); }";
        let mut rbt = attached(&["-q", "-e", script], Stdio::null(), Stdio::piped());
        pause(5000);
        shown.push((more, resident(rbt.id()), maps(rbt.id())));
        let _ = rbt.kill();
        let _ = rbt.wait();
    }
    for other in &mut others {
        let _ = other.kill();
        let _ = other.wait();
    }
    for (more, resident, maps) in shown {
        println!("  {more:3} more processes: rbt {resident:.1} MiB resident, maps {maps:.1} MiB");
    }
}

/// The resident memory of a process in MiB.
fn resident(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}

/// The memory of all BPF maps of a process in MiB, as the kernel reports it.
fn maps(pid: u32) -> f64 {
    let infos = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let texts = infos.filter_map(|entry| std::fs::read_to_string(entry.path()).ok()).filter(|text| text.contains("map_type:"));
    let mut all = std::collections::BTreeMap::new();
    for text in texts {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        all.insert(field("map_id:"), field("memlock:").unwrap_or(0));
    }
    all.values().sum::<u64>() as f64 / f64::from(1 << 20)
}

fn compiled(folder: &Path) -> PathBuf {
    compiled_program(folder, "deep")
}

fn compiled_program(folder: &Path, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/bench/programs/{name}.c"));
    let program = folder.join(name);
    // The program has frame pointers and unwind tables.
    let flags = ["-O2", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-o"];
    let status = Command::new("cc").args(flags).args([&program, &source]).status().expect("cc");
    assert!(status.success(), "cc");
    program
}

/// The mean time of one run of a BPF program while the traced program makes calls.
fn per_event(script: &str, deep: &Path, depth: u32) -> f64 {
    let before = ids();
    let rbt = attached(&["-q", "-e", script], Stdio::null(), Stdio::piped());
    let new: Vec<_> = ids().difference(&before).filter_map(|id| open(*id)).collect();
    let calls = |n: u64| {
        let status = Command::new(deep).args([depth.to_string(), n.to_string()]).status().expect("the program");
        assert!(status.success(), "the program");
    };
    // These calls load the tables, and bring frequently read data into the caches.
    calls(1000);
    pause(300);
    let then: Vec<(u64, u64)> = new.iter().map(times).collect();
    calls(CALLS);
    // Excludes other programs of the run, such as the one that follows mappings, which run less often.
    let means = new.iter().zip(then).map(|(program, then)| (times(program), then)).filter(|(now, then)| now.1 - then.1 >= CALLS / 2);
    let sum = means.map(|(now, then)| (now.0 - then.0) as f64 / (now.1 - then.1) as f64).sum();
    drop(new);
    interrupt(rbt);
    sum
}
