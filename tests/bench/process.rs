//! Measures the time and memory of entire runs of rbt, as a user sees them.

#![allow(unsafe_code)] // wait4(2), signals

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::stats::{Samples, rounds, target};

/// The measured binary.
pub fn rbt() -> String {
    std::env::var("RBT_BENCH_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_rbt").into())
}

/// The size of the measured binary in bytes.
pub fn size() -> u64 {
    std::fs::metadata(rbt()).map(|m| m.len()).unwrap_or(0)
}

/// Makes a command that runs rbt with these arguments and without input.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(rbt());
    command.args(args).stdin(Stdio::null());
    command
}

/// The cost of a run: the milliseconds from before the spawn to its end, the peak resident memory in MiB, and the page faults.
pub struct Cost {
    pub wall: f64,
    pub rss: f64,
    pub faults: f64,
}

pub fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Runs a command until it ends, and discards its output. A failed run aborts the benchmark, because its time is meaningless.
pub fn run(mut command: Command) -> Cost {
    let name = format!("{command:?}");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let since = Instant::now();
    #[allow(clippy::zombie_processes)] // wait4 reaps the child, and returns its cost
    let child = command.spawn().unwrap_or_else(|e| panic!("{name}: {e}"));
    let (mut status, mut usage) = (0, unsafe { std::mem::zeroed::<libc::rusage>() });
    // SAFETY: The child is ours and nothing else waits for it. Both variables are local.
    unsafe { libc::wait4(child.id() as i32, &mut status, 0, &mut usage) };
    let wall = ms(since);
    assert_eq!(status, 0, "{name} failed");
    Cost { wall, rss: usage.ru_maxrss as f64 / 1024.0, faults: usage.ru_minflt as f64 }
}

pub fn startup() {
    let [mut nothing, mut version, mut wall, mut rss, mut faults]: [Samples; 5] = Default::default();
    for _ in 0..rounds(60) {
        let one = |s: &mut Samples, cost: Cost| s.add(cost.wall);
        one(&mut nothing, run(Command::new("/bin/true")));
        one(&mut version, run(command(&["-V"])));
        let cost = run(command(&["-e", "begin { exit() }"]));
        wall.add(cost.wall);
        rss.add(cost.rss);
        faults.add(cost.faults);
    }
    nothing.show("/bin/true", "ms");
    version.show("rbt -V", "ms");
    wall.show_beside("begin { exit() }", "ms", &nothing, "of /bin/true");
    rss.show("  peak resident memory", "MiB");
    faults.show("  minor page faults", "");
    target("wall", wall.median(), 12.0, "ms");
    target("memory", rss.median(), 40.0, "MiB");
}

/// Measures the stages of a first start, for which nothing is kept, and of a later one.
pub fn first() {
    let folder = std::env::temp_dir().join(format!("rbt-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let kept = folder.display().to_string();
    // The first of these runs fills the cache.
    staged(&kept);
    let (mut nothing, mut first, mut later) = (Samples::default(), Stages::default(), Stages::default());
    for _ in 0..rounds(40) {
        nothing.add(run(Command::new("/bin/true")).wall);
        first.add(staged(""));
        later.add(staged(&kept));
    }
    nothing.show("/bin/true", "ms");
    first.show("first start");
    later.show("later start");
    target("first start", first.wall.median(), 8.0, "ms");
    target("later start", later.wall.median(), 4.0, "ms");
    let _ = std::fs::remove_dir_all(folder);
}

/// The stages of a run in milliseconds, in order, and the whole run.
#[derive(Default)]
struct Stages {
    stages: Vec<(String, Samples)>,
    /// The rest: the start and the end of the process.
    rest: Samples,
    wall: Samples,
}

impl Stages {
    fn add(&mut self, (stages, wall): (Vec<(String, f64)>, f64)) {
        self.rest.add(wall - stages.iter().map(|(_, took)| took).sum::<f64>());
        self.wall.add(wall);
        for (name, took) in stages {
            match self.stages.iter_mut().find(|(known, _)| *known == name) {
                Some((_, samples)) => samples.add(took),
                None => {
                    let mut samples = Samples::default();
                    samples.add(took);
                    self.stages.push((name, samples));
                }
            }
        }
    }

    fn show(&self, name: &str) {
        self.wall.show(name, "ms");
        for (stage, samples) in &self.stages {
            samples.show(&format!("  {stage}"), "ms");
        }
        self.rest.show("  start and end of the process", "ms");
    }
}

/// Runs a script that ends at once, with this cache.
fn staged(cache: &str) -> (Vec<(String, f64)>, f64) {
    let mut rbt = command(&["-v", "-e", "begin { exit() }"]);
    let since = Instant::now();
    let out = rbt.env("RBT_CACHE", cache).output().expect("rbt");
    let wall = ms(since);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    let stage = |line: &str| {
        let (name, took) = line.strip_suffix(" ms")?.rsplit_once(' ')?;
        Some((name.trim().to_owned(), took.parse().ok()?))
    };
    let stages: Vec<(String, f64)> = said.lines().filter_map(stage).collect();
    assert!(stages.iter().any(|(name, _)| name == "load"), "{said}");
    (stages, wall)
}

/// Measures long scripts. The time must be linear in the length. The scripts are compiled and loaded, but do not run.
pub fn long() {
    const LINES: [usize; 2] = [5_000, 10_000];
    let folder = std::env::temp_dir().join(format!("rbt-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let scripts = LINES.map(|lines| {
        let path = folder.join(format!("{lines}.bt"));
        let body: String = (0..lines).map(|i| format!("  @m[{i}] = {i};\n")).collect();
        std::fs::write(&path, format!("begin {{\n{body}}}\n")).expect("a script");
        path.display().to_string()
    });
    let mut times: [Samples; 2] = Default::default();
    for _ in 0..rounds(3) {
        for (samples, script) in times.iter_mut().zip(&scripts) {
            samples.add(run(command(&["--dry-run", script])).wall);
        }
    }
    let [short, long] = &times;
    short.show(&format!("{} lines", LINES[0]), "ms");
    long.show_beside(&format!("{} lines", LINES[1]), "ms", short, "of half as many lines");
    let _ = std::fs::remove_dir_all(folder);
}

/// Times in milliseconds since the spawn.
#[derive(Default)]
struct Times {
    attached: Samples,
    result: Samples,
    exit: Samples,
    /// The time until the last descriptor of a probe is closed, which happens in the background.
    detached: Samples,
}

impl Times {
    /// Adds a run with `-c true`, in which the map is printed when the child ends.
    fn add(&mut self, args: &[&str]) {
        let (mut from, to) = pipe();
        let since = Instant::now();
        let mut child = with_fd(command(args), &to).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("rbt");
        drop(to);
        let mut word = [0; 9];
        from.read_exact(&mut word).expect("attached");
        self.attached.add(ms(since));
        let mut out = child.stdout.take().expect("a pipe");
        out.read_exact(&mut [0]).expect("a result");
        self.result.add(ms(since));
        assert!(child.wait().expect("rbt").success());
        self.exit.add(ms(since));
        // Orphans of rbt become our children (see `adopt`).
        while unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } > 0 {}
        self.detached.add(ms(since));
    }

    fn show(&self, name: &str) {
        self.attached.show(&format!("{name}: until attached"), "ms");
        self.result.show(&format!("{name}: until the first result"), "ms");
        self.exit.show(&format!("{name}: until exit"), "ms");
        self.detached.show(&format!("{name}: until all probes are detached"), "ms");
    }

    fn show_beside(&self, name: &str, other: &Times, what: &str) {
        self.show(name);
        let ratio = |a: &Samples, b: &Samples| a.median() / b.median();
        println!(
            "  {:44} {:10.2} x until attached, {:.2} x until exit, {:.2} x until detached, {what}",
            "",
            ratio(&self.attached, &other.attached),
            ratio(&self.exit, &other.exit),
            ratio(&self.detached, &other.detached)
        );
    }
}

/// Makes orphaned descendants our children, so that their end is visible.
pub fn adopt() {
    // SAFETY: The call sets an attribute of this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

pub fn pipe() -> (File, OwnedFd) {
    let mut fds = [0; 2];
    // SAFETY: The array has room for two descriptors. Both are new and ours.
    unsafe {
        assert_eq!(libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (File::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1]))
    }
}

/// Passes a descriptor to the program, with its number in `--notify-fd`.
pub fn with_fd(mut command: Command, to: &OwnedFd) -> Command {
    const NUMBER: i32 = 100; // above the descriptors that spawning itself uses
    let raw = to.as_raw_fd();
    command.args(["--notify-fd", &NUMBER.to_string()]);
    // SAFETY: This is a system call between fork and exec.
    unsafe {
        command.pre_exec(move || match libc::dup2(raw, NUMBER) {
            NUMBER => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    command
}

/// Starts rbt and returns when its probes are attached.
pub fn attached(args: &[&str], stdout: Stdio, stderr: Stdio) -> Child {
    let (mut from, to) = pipe();
    let child = with_fd(command(args), &to).stdout(stdout).stderr(stderr).spawn().expect("rbt");
    drop(to);
    let mut word = [0; 9];
    from.read_exact(&mut word).unwrap_or_else(|e| panic!("{args:?} was not attached: {e}"));
    child
}

/// Does the kernel support breakpoints on functions?
pub fn has_kprobes() -> bool {
    std::fs::read_to_string("/sys/bus/event_source/devices/kprobe/type").is_ok()
}

pub fn count() {
    adopt();
    const PROGRAM: &str = "tracepoint:syscalls:sys_enter_openat { @[comm] = count() }";
    let (mut raw, mut perf) = (Times::default(), Times::default());
    for _ in 0..rounds(20) {
        raw.add(&["-c", "true", "-e", PROGRAM]);
        perf.add(&["--no-feature", "raw_syscalls", "-c", "true", "-e", PROGRAM]);
    }
    perf.show("with perf");
    raw.show_beside("by default", &perf, "of perf tracepoints");
}

pub fn wildcard() {
    adopt();
    // With perf, this uses few probes, because hundreds take half a minute to detach.
    const FEW: &str = "tracepoint:syscalls:sys_enter_epoll* { @[probe] = count() }";
    const ALL: &str = "tracepoint:syscalls:sys_enter_* { @[probe] = count() }";
    let probes = |program: &str| {
        let text = command(&["-l", program.split(' ').next().expect("a pattern")]).output().expect("rbt").stdout;
        text.iter().filter(|b| **b == b'\n').count()
    };
    let (few, all) = (probes(FEW), probes(ALL));
    let (mut raw, mut perf) = (Times::default(), Times::default());
    for i in 0..rounds(15) {
        raw.add(&["-c", "true", "-e", ALL]);
        if i < rounds(4) {
            perf.add_silent(&["--no-feature", "raw_syscalls", "-c", "true", "-e", FEW]);
        }
    }
    perf.show(&format!("{few} with perf"));
    raw.show(&format!("{all} by default"));
    let each = |t: &Times, n: usize| t.detached.median() / n as f64;
    println!("  {:44} {:10.4} x of perf tracepoints, per probe, until all probes are detached", "", each(&raw, all) / each(&perf, few));
}

impl Times {
    /// Adds a run that may not print anything.
    fn add_silent(&mut self, args: &[&str]) {
        let since = Instant::now();
        let mut child = attached(args, Stdio::null(), Stdio::null());
        self.attached.add(ms(since));
        assert!(child.wait().expect("rbt").success());
        self.result.add(ms(since));
        self.exit.add(ms(since));
        while unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } > 0 {}
        self.detached.add(ms(since));
    }
}

pub fn list() {
    let (mut walk, mut all, mut nothing, mut lines) = (Samples::default(), Samples::default(), Samples::default(), 0);
    let root = ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"].into_iter().find(|p| std::fs::read_dir(p).is_ok());
    for _ in 0..rounds(20) {
        if let Some(root) = root {
            let since = Instant::now();
            let categories = std::fs::read_dir(root).expect("readable").flatten();
            let found = categories.filter_map(|c| std::fs::read_dir(c.path()).ok()).flatten().flatten().count();
            assert!(found > 0);
            walk.add(ms(since));
        }
        nothing.add(run(command(&["-V"])).wall);
        let since = Instant::now();
        let out = command(&["-l", "tracepoint:*"]).output().expect("rbt").stdout;
        all.add(ms(since));
        lines = out.iter().filter(|b| **b == b'\n').count();
    }
    let what = format!("rbt -l 'tracepoint:*' ({lines} lines)");
    // rbt does not need a mounted tracefs.
    if root.is_some() {
        walk.show("reading the directories of tracefs alone", "ms");
    }
    nothing.show("rbt -V", "ms");
    all.show_beside(&what, "ms", &nothing, "of rbt -V");
}

/// Sends SIGINT to a process, waits for its end, and returns its standard error.
pub fn interrupt(mut child: Child) -> String {
    // SAFETY: The process is our child and has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let mut said = String::new();
    if let Some(mut err) = child.stderr.take() {
        let _ = err.read_to_string(&mut said);
    }
    assert!(child.wait().expect("rbt").success(), "{said}");
    said
}

/// Starts the calls of a waiting load.
pub fn go(child: &mut Child) {
    child.stdin.take().expect("a pipe").write_all(b"\n").expect("the load is there");
}

pub fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}
