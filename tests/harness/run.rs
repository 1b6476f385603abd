//! Runs one case and checks its results.

#![allow(unsafe_code)] // signals, and a descriptor across fork

use super::Verdict;
use super::case::{Case, Expect, Status, Want};
use super::need;
use super::travel;
use regex::Regex;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// The descriptor to which rbt writes `attached`.
const NOTIFY: i32 = 3;

/// Runs a case.
pub fn run(case: &Case) -> Verdict {
    run_in(case, Place::new(case))
}

/// Runs a case from a bundle.
pub fn travel(case: &Case) -> Verdict {
    run_in(case, Place { travels: true, ..Place::new(case) })
}

fn run_in(case: &Case, place: Place) -> Verdict {
    if let Some(need) = need::missing(&case.needs) {
        return Verdict::Skip(need);
    }
    match attempt(case, &place) {
        Ok(()) => Verdict::Pass,
        Err(e) => Verdict::Fail(e),
    }
}

fn attempt(case: &Case, place: &Place) -> Result<(), String> {
    for (name, body) in &case.files {
        let file = place.dir.join(name);
        if let Some(parent) = file.parent() {
            let _ = std::fs::create_dir_all(parent);
        }
        std::fs::write(file, place.fill(body)).map_err(|e| format!("FILE {name}: {e}"))?;
    }
    if !super::vm::is_inside() {
        travel::build(case)?;
    }
    if let Some(setup) = case.text("SETUP") {
        let out = place.shell(&format!("set -e\n{}", place.fill(setup))).output().map_err(|e| format!("SETUP: {e}"))?;
        if !out.status.success() {
            return Err(format!("SETUP: {}\n{}", out.status, text(&out.stderr)));
        }
    }
    let mut place = place.clone();
    let _before = before(case, &mut place)?;
    let after = after(case, &mut place)?;
    let mut cmd = command(case, &place)?;
    let shown = show(&cmd);
    let end = watch(case, &mut cmd, &place, after, limit(case, super::vm::slowness()))?;
    let bad = judge(case, &place, &end);
    if bad.is_empty() {
        return Ok(());
    }
    let mut report = bad.join("\n");
    let _ = write!(report, "\n{}:{}\n$ {shown}\nstatus {}, {:.2} s", case.file.display(), case.name, end.status, end.seconds);
    for (name, t) in [("stdout", &end.out), ("stderr", &end.err)] {
        let _ = write!(report, "\n--- {name}\n{}", cut(t));
    }
    Err(report)
}

// ---------------------------------------------------------------- the processes

/// A case's directory, and the values of its placeholders.
#[derive(Clone)]
struct Place {
    dir: PathBuf,
    words: Vec<(&'static str, String)>,
    /// The script runs from a bundle.
    travels: bool,
    _owner: Arc<Remove>,
}

/// What has another name or number on each processor.
const OF_ARCH: [(&str, &str); 5] = if cfg!(target_arch = "aarch64") {
    [("sys", "__arm64_sys"), ("nr_umask", "166"), ("nr_getppid", "173"), ("first", "el0t_64_sync"), ("entry", "el0_svc")]
} else {
    [
        ("sys", "__x64_sys"),
        ("nr_umask", "95"),
        ("nr_getppid", "110"),
        ("first", "entry_SYSCALL_64_after_hwframe"),
        ("entry", "do_syscall_64"),
    ]
};

struct Remove(PathBuf);

impl Drop for Remove {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Place {
    fn new(case: &Case) -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("rbt-case.{}.{n}.{}", std::process::id(), case.name));
        let _ = std::fs::create_dir_all(&dir);
        copy_fixtures(case, &dir.join("fix"));
        let mut words = vec![
            ("tmp", dir.display().to_string()),
            ("fix", dir.join("fix").display().to_string()),
            ("rbt", need::rbt().display().to_string()),
            ("root", env!("CARGO_MANIFEST_DIR").into()),
        ];
        words.extend(case.text("BUNDLE").map(|_| ("bundle", travel::bundle_path(case).display().to_string())));
        words.extend(OF_ARCH.iter().map(|(word, value)| (*word, value.to_string())));
        Place { _owner: Arc::new(Remove(dir.clone())), dir, words, travels: false }
    }

    fn fill(&self, text: &str) -> String {
        self.words.iter().fold(text.into(), |t: String, (w, v)| t.replace(&format!("{{{{{w}}}}}"), v))
    }

    fn shell(&self, script: &str) -> Command {
        let mut c = Command::new("sh");
        c.arg("-c").arg(script).stdin(Stdio::null());
        self.dress(&mut c);
        c
    }

    fn dress(&self, c: &mut Command) {
        let env = [
            ("CASE_TMP", "tmp"),
            ("FIX", "fix"),
            ("RBT", "rbt"),
            ("BUNDLE", "bundle"),
            ("BEFORE_PID", "before_pid"),
            ("AFTER_PID", "after_pid"),
        ];
        for (name, word) in env {
            if let Some((_, v)) = self.words.iter().find(|(w, _)| *w == word) {
                c.env(name, v);
            }
        }
        // No colors, and no variables of the caller (cargo's library path makes every process search many directories).
        c.env_remove("RBT_COLOR")
            .env_remove("GITHUB_ACTIONS")
            .env_remove("LD_LIBRARY_PATH")
            .env("NO_COLOR", "1")
            .env("TERM", "dumb")
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC");
        c.current_dir(&self.dir).process_group(0);
    }
}

/// A process that is killed with its group when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        kill_group(self.0.id(), libc::SIGKILL);
        let _ = self.0.wait();
    }
}

fn kill_group(pid: u32, signal: i32) {
    // SAFETY: This is a system call. We created the group and have not reaped it.
    unsafe { libc::kill(-(pid as i32), signal) };
}

/// Asks a child to end.
pub fn terminate(child: &Child) {
    // SAFETY: This is a system call. The child has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
}

/// The time that a case may take.
pub fn limit(case: &Case, slowness: f64) -> Duration {
    Duration::from_secs_f64(case.timeout * slowness)
}

fn before(case: &Case, place: &mut Place) -> Result<Option<Running>, String> {
    let Some(script) = case.text("BEFORE") else { return Ok(None) };
    let mut c = place.shell(&place.fill(script));
    c.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = c.spawn().map_err(|e| format!("BEFORE: {e}"))?;
    place.words.push(("before_pid", child.id().to_string()));
    let (tx, rx) = mpsc::channel();
    if let Some(out) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut lines = BufReader::new(out).lines();
            let _ = tx.send(lines.next());
            lines.for_each(drop);
        });
    }
    let _ = rx.recv_timeout(Duration::from_millis(300));
    Ok(Some(Running(child)))
}

/// Starts AFTER, which waits for a line on its input. The traced program can thus contain its PID.
fn after(case: &Case, place: &mut Place) -> Result<Option<Running>, String> {
    let Some(script) = case.text("AFTER") else { return Ok(None) };
    let mut c = place.shell("read go || exit 0; eval \"$AFTER\"");
    c.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // The current placeholders are replaced here. The shell replaces the PID, which only it knows.
    c.env("AFTER", place.fill(script).replace("{{after_pid}}", "$$"));
    let child = c.spawn().map_err(|e| format!("AFTER: {e}"))?;
    place.words.push(("after_pid", child.id().to_string()));
    Ok(Some(Running(child)))
}

fn command(case: &Case, place: &Place) -> Result<Command, String> {
    let prog = case.text("PROG").map(|p| place.fill(p));
    let mut c = match case.text("SH") {
        Some(script) => {
            let mut c = place.shell(&place.fill(script));
            if let Some(p) = prog {
                c.env("PROG", p);
            }
            c
        }
        None => {
            let line = place.fill(case.text("ARGS").unwrap_or(""));
            let mut words = shlex::split(&line).ok_or_else(|| format!("ARGS: unbalanced quotes: {line}"))?;
            if let Some(p) = prog {
                match words.iter().position(|w| w == "{{prog}}") {
                    Some(i) => words[i] = p,
                    None => drop(words.splice(0..0, ["-e".into(), p])),
                }
            }
            let mut c = Command::new(need::rbt());
            if place.travels {
                words = build(case, place, &words)?;
                c = Command::new(travel::runner(&place.dir)?);
            }
            if case.text("AFTER").is_some() {
                c.arg("--notify-fd").arg(NOTIFY.to_string());
            }
            c.args(words);
            place.dress(&mut c);
            c
        }
    };
    for line in case.text("ENV").unwrap_or("").lines() {
        let (k, v) = line.split_once('=').ok_or_else(|| format!("ENV: expected A=b, not {line}"))?;
        c.env(k, place.fill(v));
    }
    c.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(c)
}

/// Builds the bundle of a case, and returns the arguments of `rbt-run`.
fn build(case: &Case, place: &Place, words: &[String]) -> Result<Vec<String>, String> {
    let bundle = place.dir.join("travel.bundle").display().to_string();
    let (own, mut run) = travel::split(words).ok_or("the case does not travel")?;
    let mut c = Command::new(need::rbt());
    c.args(["build", "-q", "-o", &bundle]).args(travel::kernels(case)).args(own);
    place.dress(&mut c);
    for (name, value) in case.text("ENV").unwrap_or("").lines().filter_map(|line| line.split_once('=')) {
        c.env(name, place.fill(value));
    }
    let out = c.stdin(Stdio::null()).output().map_err(|e| e.to_string())?;
    if !out.status.success() {
        return Err(format!("$ {}\n{}\n{}", show(&c), out.status, text(&out.stderr)));
    }
    run.push(bundle);
    Ok(run)
}

fn show(c: &Command) -> String {
    let words = std::iter::once(c.get_program()).chain(c.get_args()).map(|w| w.to_string_lossy().into_owned());
    words.map(|w| shlex::try_quote(&w).map(|q| q.into_owned()).unwrap_or(w)).collect::<Vec<_>>().join(" ")
}

/// The result of a run.
struct End {
    out: String,
    err: String,
    status: i32,
    seconds: f64,
}

/// Runs the command until it ends. AFTER starts when rbt reports `attached`, and SIGNAL is sent when AFTER has ended.
fn watch(case: &Case, cmd: &mut Command, place: &Place, mut after: Option<Running>, limit: Duration) -> Result<End, String> {
    let started = Instant::now();
    let (notify, theirs) = std::io::pipe().map_err(|e| e.to_string())?;
    let fd = theirs.as_raw_fd();
    if after.is_some() {
        // SAFETY: dup2 is safe between fork and exec.
        unsafe {
            cmd.pre_exec(move || match libc::dup2(fd, NOTIFY) {
                -1 => Err(std::io::Error::last_os_error()),
                _ if fd == NOTIFY => match libc::fcntl(fd, libc::F_SETFD, 0) {
                    -1 => Err(std::io::Error::last_os_error()),
                    _ => Ok(()),
                },
                _ => Ok(()),
            });
        }
    }
    let mut rbt = Running(cmd.spawn().map_err(|e| format!("cannot start {}: {e}", show(cmd)))?);
    drop(theirs);
    let (tx, attached) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        if BufReader::new(notify).read_line(&mut line).is_ok() && line.trim_end() == "attached" {
            let _ = tx.send(());
        }
    });
    if let Some(mut input) = rbt.0.stdin.take() {
        let text = place.fill(case.text("STDIN").unwrap_or(""));
        std::thread::spawn(move || input.write_all(text.as_bytes()));
    }
    let (out, err) = (drain(rbt.0.stdout.take()), drain(rbt.0.stderr.take()));
    let mut signalled = false;
    let mut timed_out = false;
    let status = loop {
        if let Some(s) = rbt.0.try_wait().map_err(|e| e.to_string())? {
            break s.code().unwrap_or_else(|| 128 + s.signal().unwrap_or(0));
        }
        if started.elapsed() > limit {
            timed_out = true;
            kill_group(rbt.0.id(), libc::SIGKILL);
            let _ = rbt.0.wait();
            break 124;
        }
        if let Some(a) = &mut after {
            if attached.try_recv().is_ok()
                && let Some(mut go) = a.0.stdin.take()
            {
                let _ = go.write_all(b"go\n");
            }
            if !signalled && a.0.stdin.is_none() && matches!(a.0.try_wait(), Ok(Some(_))) {
                signalled = true;
                if let Some(s) = case.signal {
                    // SAFETY: The process is our child and has not been waited for.
                    unsafe { libc::kill(rbt.0.id() as i32, s) };
                }
            }
        }
        std::thread::sleep(Duration::from_millis(3));
    };
    let seconds = started.elapsed().as_secs_f64();
    let end = End { out: out.finish(), err: err.finish(), status, seconds };
    if timed_out {
        let waiting = match &after {
            Some(a) if a.0.stdin.is_some() => " (rbt did not report that it is attached)",
            _ => "",
        };
        let (o, e) = (cut(&end.out), cut(&end.err));
        return Err(format!(
            "out of time after {:.0} s{waiting}\n{}:{}\n$ {}\n--- stdout\n{o}\n--- stderr\n{e}",
            limit.as_secs_f64(),
            case.file.display(),
            case.name,
            show(cmd)
        ));
    }
    Ok(end)
}

/// Collects the text of a pipe in a thread.
struct Drain {
    text: Arc<Mutex<Vec<u8>>>,
    done: mpsc::Receiver<()>,
}

impl Drain {
    /// Returns the text. It does not wait for long, because a remaining process may hold the pipe open.
    fn finish(self) -> String {
        let _ = self.done.recv_timeout(Duration::from_secs(2));
        let t = self.text.lock().map(|t| t.clone()).unwrap_or_default();
        text(&t)
    }
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> Drain {
    let text = Arc::new(Mutex::new(Vec::new()));
    let (tx, done) = mpsc::channel();
    let into = text.clone();
    if let Some(mut pipe) = pipe {
        std::thread::spawn(move || {
            let mut buf = [0; 65536];
            while let Ok(n) = pipe.read(&mut buf) {
                if n == 0 {
                    break;
                }
                if let Ok(mut t) = into.lock() {
                    t.extend_from_slice(&buf[..n]);
                }
            }
            let _ = tx.send(());
        });
    }
    Drain { text, done }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Shortens a text to at most its first and last 2000 characters.
fn cut(t: &str) -> String {
    let (head, tail) = (t.char_indices().nth(2000), t.char_indices().nth_back(2000));
    match (head, tail) {
        (Some((h, _)), Some((e, _))) if h < e => format!("{}\n[… {} bytes …]\n{}", &t[..h], e - h, &t[e..]),
        _ => t.into(),
    }
}

// ---------------------------------------------------------------- results

fn judge(case: &Case, place: &Place, end: &End) -> Vec<String> {
    let mut bad = Vec::new();
    let fine = match case.status {
        Status::Is(n) => end.status == n,
        Status::NonZero => end.status != 0,
        Status::Any => true,
    };
    if !fine {
        bad.push(format!("status {}, not {:?}", end.status, case.status));
    }
    for err in [false, true] {
        let all = if err { &end.err } else { &end.out };
        let lines: Vec<&str> = all.lines().collect();
        let mut from = 0;
        for e in case.expect.iter().filter(|e| e.err == err) {
            if let Err(why) = compare(e, place, all, &lines, &mut from) {
                let stream = if err { "stderr" } else { "stdout" };
                bad.push(format!("{stream}: {why}"));
                if let (Want::Exact(at), Some(_)) = (&e.want, std::env::var_os("UPDATE")) {
                    update(case, at.clone(), all, err);
                }
            }
        }
    }
    bad
}

fn compare(e: &Expect, place: &Place, all: &str, lines: &[&str], from: &mut usize) -> Result<(), String> {
    let want = place.fill(&e.text);
    let re = |w: &str| Regex::new(w).map_err(|e| e.to_string());
    let mut find = |hit: &dyn Fn(&str) -> bool, what: &str| match lines.iter().skip(*from).position(|l| hit(l)) {
        Some(i) => {
            *from += i + 1;
            Ok(())
        }
        None if lines.iter().any(|l| hit(l)) => Err(format!("{what} comes too early: {want:?}")),
        None => Err(format!("no {what}: {want:?}")),
    };
    match e.want {
        Want::Line => find(&|l| l.trim_end() == want.trim_end(), "line"),
        Want::Has => find(&|l| l.contains(&want), "line that contains"),
        Want::Re => {
            let re = re(&want)?;
            find(&|l| re.is_match(l), "line that matches")
        }
        Want::Not => {
            let re = re(&want)?;
            lines.iter().find(|l| re.is_match(l)).map_or(Ok(()), |l| Err(format!("must not match {want:?}: {l:?}")))
        }
        Want::All => re(&want)?.is_match(all).then_some(()).ok_or(format!("the output does not match {want:?}")),
        Want::Exact(_) => match all == want || all.strip_suffix('\n') == Some(&want) {
            true => Ok(()),
            false => Err(format!("the output is not exactly\n{want}\n---")),
        },
    }
}

type Update = (PathBuf, std::ops::Range<usize>, String);
static UPDATES: Mutex<Vec<Update>> = Mutex::new(Vec::new());

fn update(case: &Case, at: std::ops::Range<usize>, all: &str, err: bool) {
    let mut new = String::from(if err { "ERR_EXACT\n" } else { "EXPECT_EXACT\n" });
    let body = all.strip_suffix('\n').unwrap_or(all);
    body.split('\n').for_each(|l| new += &format!("  |{l}\n"));
    if let Ok(mut u) = UPDATES.lock() {
        u.push((case.file.clone(), at, new));
    }
}

/// With `UPDATE=1`, writes the actual output to the files. It starts at the end of each file, so that line numbers stay valid.
pub fn write_updates() {
    let Ok(mut list) = UPDATES.lock() else { return };
    list.sort_by_key(|(file, at, _)| (file.clone(), std::cmp::Reverse(at.start)));
    for (file, at, new) in list.drain(..) {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let mut lines: Vec<String> = text.lines().map(|l| format!("{l}\n")).collect();
        lines.splice(at, [new]);
        let _ = std::fs::write(&file, lines.concat());
        eprintln!("updated {}", file.display());
    }
}

// ---------------------------------------------------------------- fixtures

/// The directory of the `tests/fixtures` that were compiled for a processor.
fn fixtures(arch: &str) -> PathBuf {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // When cargo builds for another processor, its directory is below that of the target. The fixtures are built by the host's
    // tests, so their directory is outside of it.
    let cross = own.parent().filter(|target| target.ends_with(format!("{arch}-unknown-linux-gnu"))).and_then(Path::parent);
    let folder = cross.map_or_else(|| own.to_owned(), |target| target.join("tmp"));
    folder.join(if arch == "x86_64" { "fixtures".into() } else { format!("fixtures-{arch}") })
}

/// Copies the fixtures for a case. A uprobe applies to a file, and another case may run the same file.
fn copy_fixtures(case: &Case, to: &Path) {
    if !case.mentions(&["{{fix}}", "$FIX"]) {
        return;
    }
    let _ = std::fs::create_dir_all(to);
    for file in std::fs::read_dir(fixtures(std::env::consts::ARCH)).into_iter().flatten().flatten() {
        // A large fixture is copied only if the case mentions its name.
        let large = file.metadata().is_ok_and(|m| m.len() > 256 << 10);
        if large && !case.mentions(&[&super::stem(&file.path())]) {
            continue;
        }
        if let Err(e) = std::fs::copy(file.path(), to.join(file.file_name())) {
            eprintln!("{}: {e}", file.path().display());
        }
    }
}

/// A compiler, its options, and the additional options for a shared library.
type Compiler = (String, Vec<String>, &'static [&'static str]);

/// The compiler of a source file for a processor. If this machine has another processor, it is a cross compiler.
fn compiler(extension: &std::ffi::OsStr, arch: &str) -> Option<Compiler> {
    const C: &[&str] = &["-g", "-O1", "-fno-omit-frame-pointer", "-Wall"];
    const SHARED: &[&str] = &["-shared", "-fPIC"];
    const RUST: &[&str] = &["-g", "-Copt-level=1", "-Cforce-frame-pointers=yes", "--edition=2024"];
    let native = arch == std::env::consts::ARCH;
    let gnu = |name: &str, own: &str| if native { own.into() } else { format!("{arch}-linux-gnu-{name}") };
    let words = |words: &[&str]| words.iter().map(|w| w.to_string()).collect::<Vec<_>>();
    let (program, mut options, shared) = match extension.to_str()? {
        "c" => (gnu("gcc", "cc"), words(C), SHARED),
        "cc" => (gnu("g++", "c++"), words(C), SHARED),
        "rs" => ("rustc".into(), words(RUST), &["--crate-type=cdylib"][..]),
        "go" => ("go".into(), words(&["build"]), &[][..]),
        _ => return None,
    };
    if program == "rustc" && !native {
        options.extend([format!("--target={arch}-unknown-linux-gnu"), format!("-Clinker={}", gnu("gcc", "cc"))]);
    }
    super::need::missing(std::slice::from_ref(&program)).is_none().then_some((program, options, shared))
}

/// Compiles `NAME.c` to `NAME`, and `libNAME.c` to a shared library. C++ (`.cc`), Rust (`.rs`) and Go (`.go`) are compiled in the
/// same way if their compilers are installed. A first line `// cc: …` adds options.
pub fn build_fixtures(arch: &str) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let to = fixtures(arch);
    let _ = std::fs::create_dir_all(&to);
    let newest = |p: &Path| p.metadata().and_then(|m| m.modified()).ok();
    let mut sources: Vec<_> = std::fs::read_dir(from).into_iter().flatten().flatten().map(|e| e.path()).collect();
    // Libraries are compiled first, because programs may link with them.
    sources.sort_by_key(|p| (!super::stem(p).starts_with("lib"), p.clone()));
    for src in &sources {
        let Some((program, always, shared)) = src.extension().and_then(|e| compiler(e, arch)) else { continue };
        let name = super::stem(src);
        let lib = name.starts_with("lib");
        let out = to.join(if lib { format!("{name}.so") } else { name });
        if newest(&out) > newest(src) {
            continue;
        }
        let text = std::fs::read_to_string(src).unwrap_or_default();
        let flags = text.lines().next().and_then(|l| l.strip_prefix("// cc:")).unwrap_or("");
        let mut c = Command::new(program);
        c.args(always);
        if lib {
            c.args(shared);
        }
        c.env("GO111MODULE", "off").env("GOARCH", if arch == "aarch64" { "arm64" } else { "amd64" });
        c.arg("-o").arg(&out).arg(src).args(flags.split_whitespace()).current_dir(&to);
        match c.status() {
            Ok(s) if s.success() => {}
            other => eprintln!("fixture {}: {other:?}", src.display()),
        }
    }
}
