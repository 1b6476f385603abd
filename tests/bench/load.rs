//! Makes load: this program runs a tight loop of one cheap system call. It also measures rbt while it prints millions of such
//! events.

#![allow(unsafe_code)] // openat(2) without a wrapper

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use crate::process::{attached, go, has_kprobes, interrupt, ms, pause};
use crate::stats::{Samples, rounds};

/// The first argument of a process that makes load.
pub const WORD: &str = "--load";

/// The path that a load opens. It is relative to a file that is not a directory, so the kernel reads the name but does not look
/// it up.
pub const NAME: &std::ffi::CStr = c"var/lib/some/where/a-file.txt";

/// The third argument of a load that renames itself instead of opening a file.
const RENAME: &str = "rename";

/// Runs a load with the arguments `N [GAP [rename]]`. It waits for a line, and then makes N calls with GAP nanoseconds between
/// them, or as fast as possible.
pub fn work(args: &[String]) -> ExitCode {
    let number = |i: usize| args.get(i).and_then(|a| a.parse::<u64>().ok());
    let rename = args.get(2).is_some_and(|a| a == RENAME);
    let (Some(calls), gap) = (number(0), number(1).unwrap_or(0)) else { return ExitCode::FAILURE };
    // The load uses one CPU, and the reader uses its siblings. SAFETY: These are system calls on local variables.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
        let mut byte = 0u8;
        libc::read(0, (&raw mut byte).cast(), 1);
        let since = Instant::now();
        for i in 0..calls {
            while gap > 0 && (since.elapsed().as_nanos() as u64) < i * gap {
                std::hint::spin_loop();
            }
            match rename {
                false => libc::syscall(libc::SYS_openat, -1, NAME.as_ptr(), 0, i & 0xffff),
                true => libc::prctl(libc::PR_SET_NAME, NAME.as_ptr()).into(),
            };
        }
        // CPU time excludes the time of other processes.
        let mut took: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut took);
        println!("{}", took.tv_sec * 1_000_000_000 + took.tv_nsec);
    }
    ExitCode::SUCCESS
}

/// Starts a load that waits for [`go`].
pub fn start(calls: u64, gap: u64) -> Child {
    again(&[WORD, &calls.to_string(), &gap.to_string()])
}

fn again(args: &[&str]) -> Child {
    let me = std::env::current_exe().expect("this program");
    let mut command = Command::new(me);
    command.args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a load")
}

/// Starts the calls of a load, waits for its end, and returns the nanoseconds per call.
pub fn finish(mut load: Child, calls: u64) -> f64 {
    go(&mut load);
    let out = load.wait_with_output().expect("the load's end").stdout;
    let ns: f64 = String::from_utf8_lossy(&out).trim().parse().expect("nanoseconds");
    ns / calls as f64
}

const CALLS: u64 = 1_000_000;

/// Checks that the sum of printed and lost events is the number of all events.
pub fn printf() {
    let mut bare = Samples::default();
    for _ in 0..rounds(3) {
        bare.add(finish(start(CALLS, 0), CALLS));
    }
    bare.show("the call alone", "ns");
    for (what, format, gap) in [
        ("an int, as fast as possible", r#"printf("%d\n", args.mode)"#, 0),
        ("an int, every 4 us", r#"printf("%d\n", args.mode)"#, 4000),
        ("a file name, as fast as possible", r#"printf("%s\n", str(args.filename))"#, 0),
        ("a file name, every 4 us", r#"printf("%s\n", str(args.filename))"#, 4000),
    ] {
        million(what, format, gap, &bare);
    }
}

fn million(what: &str, print: &str, gap: u64, bare: &Samples) {
    let file = std::env::temp_dir().join(format!("rbt-bench-{}", std::process::id()));
    let path = file.to_str().expect("a plain path");
    let [mut call, mut lost, mut rate, mut tail]: [Samples; 4] = Default::default();
    for _ in 0..rounds(3) {
        let load = start(CALLS, gap);
        let program = format!("tracepoint:syscalls:sys_enter_openat /pid == {}/ {{ {print} }}", load.id());
        let rbt = attached(&["-o", path, "-e", &program], Stdio::null(), Stdio::piped());
        let since = Instant::now();
        call.add(finish(load, CALLS));
        let end = Instant::now();
        let said = interrupt(rbt);
        tail.add(ms(end));
        let text = std::fs::read(path).expect("the output");
        let lines = text.split(|b| *b == b'\n').filter(|l| !l.is_empty()).count() as u64;
        let missing =
            said.lines().find_map(|l| l.strip_prefix("WARNING: Total lost event count: ")?.trim().parse::<u64>().ok()).unwrap_or(0);
        assert_eq!(lines + missing, CALLS, "printed {lines}, reported as lost {missing}: {said}");
        lost.add(missing as f64 * 100.0 / CALLS as f64);
        rate.add(lines as f64 / since.elapsed().as_secs_f64() / 1e6);
    }
    let _ = std::fs::remove_file(&file);
    println!("  {what}: {print}");
    call.show_beside("  a traced call", "ns", bare, "of the call alone");
    rate.show("  printed, millions per second", "M/s");
    lost.show("  lost and reported", "%");
    tail.show("  from the last call to rbt's exit", "ms");
}

/// The first argument of a process that makes a flood of calls.
pub const FLOOD: &str = "--flood";

/// Runs a flood with the argument `N`. It waits for a line, and then makes N calls from two threads on each CPU.
pub fn flood(args: &[String]) -> ExitCode {
    let Some(calls) = args.first().and_then(|a| a.parse::<u64>().ok()) else { return ExitCode::FAILURE };
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
    let threads = 2 * std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let since = Instant::now();
    std::thread::scope(|s| {
        for i in 0..threads {
            s.spawn(move || {
                for _ in i * calls / threads..(i + 1) * calls / threads {
                    // SAFETY: The call only returns a number.
                    unsafe { libc::syscall(libc::SYS_getppid) };
                }
            });
        }
    });
    println!("{}", since.elapsed().as_nanos());
    ExitCode::SUCCESS
}

/// Measures ten million events at once, which are read from a pipe at about 30 MB/s.
pub fn burst() {
    const CALLS: u64 = 10_000_000;
    let [mut call, mut lost, mut rate, mut tail]: [Samples; 4] = Default::default();
    for _ in 0..rounds(3) {
        let load = again(&[FLOOD, &CALLS.to_string()]);
        let program = format!("tracepoint:syscalls:sys_enter_getppid /pid == {}/ {{ @made = count(); printf(\"%d\\n\", tid) }}", load.id());
        let mut rbt = attached(&["-q", "-v", "-f", "json", "-e", &program], Stdio::piped(), Stdio::piped());
        let out = rbt.stdout.take().expect("a pipe");
        let reader = std::thread::spawn(move || {
            let (mut printed, mut last) = (0u64, String::new());
            for line in BufReader::with_capacity(64 << 10, Slow(out)).lines() {
                let line = line.expect("text");
                match line.starts_with("{\"type\": \"printf\"") {
                    true => printed += 1,
                    false => last += &line,
                }
            }
            (printed, last)
        });
        let since = Instant::now();
        call.add(finish(load, CALLS));
        let end = Instant::now();
        interrupt(rbt);
        let (printed, last) = reader.join().expect("the output's end");
        tail.add(ms(end));
        let number = |name: &str| -> u64 {
            let digits = last.split(&format!("\"{name}\": ")).nth(1).unwrap_or_else(|| panic!("no {name} in {last}"));
            digits.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{name}: {last}"))
        };
        let (sent, dropped, missed) = (number("sent"), number("dropped"), number("missed"));
        assert_eq!((number("@made"), sent), (CALLS - missed, CALLS - missed), "{last}");
        assert_eq!(printed + dropped, sent, "printed {printed}, reported as lost {dropped}: {last}");
        lost.add(dropped as f64 * 100.0 / CALLS as f64);
        rate.add(printed as f64 / since.elapsed().as_secs_f64() / 1e6);
    }
    println!("  sent events = printed events + reported losses, exactly");
    call.show("time per call, over all CPUs", "ns");
    rate.show("printed, millions per second", "M/s");
    lost.show("lost and reported", "%");
    tail.show("from the last call to the end of the output", "ms");
}

/// A pipe with a slow reader.
struct Slow<R>(R);

impl<R: Read> Read for Slow<R> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        pause(2);
        self.0.read(to)
    }
}

/// Measures the overhead of a tracepoint, with perf and with the raw tracepoint that replaces it.
pub fn lowered() {
    against(&[
        ("a system call", "", "raw_syscalls", "tracepoint:syscalls:sys_enter_openat { @ = count() }"),
        ("an event", RENAME, "raw_tracepoint", "tracepoint:task:task_rename { @ = count() }"),
    ]);
}

/// Measures the overhead of a probe on a kernel function, with a breakpoint and with the trampoline that replaces it.
pub fn kprobe() {
    if !has_kprobes() {
        println!("  not measured, because the kernel has no kprobes (use tests/vm/vmrun.sh for a kernel with kprobes)");
        return;
    }
    against(&[
        ("a function", RENAME, "fentry", "kprobe:__set_task_comm { @ = count() }"),
        ("its return", RENAME, "fentry", "kretprobe:__set_task_comm { @ = count() }"),
    ]);
}

/// Measures rows. Each has a load, the mechanism that is used unless it is disabled, and the script.
fn against(rows: &[(&str, &str, &str, &str)]) {
    for (what, call, feature, program) in rows {
        println!("  {what}: {program}");
        let [mut bare, mut perf, mut raw]: [Samples; 3] = Default::default();
        let once = || finish(again(&[WORD, &CALLS.to_string(), "0", call]), CALLS);
        let traced = |args: &[&str]| {
            let rbt = attached(args, Stdio::null(), Stdio::piped());
            let took = once();
            interrupt(rbt);
            took
        };
        for _ in 0..rounds(7) {
            let alone = once();
            bare.add(alone);
            perf.add(traced(&["-q", "--no-feature", feature, "-e", program]) - alone);
            raw.add(traced(&["-q", "-e", program]) - alone);
        }
        bare.show("  the call alone", "ns");
        perf.show("  overhead without the replacement", "ns");
        raw.show_beside("  overhead with the replacement", "ns", &perf, "of that");
    }
}
