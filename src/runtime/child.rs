//! The command of `-c`: forked before rbt attaches the probes, and started afterward.
//!
//! `run` decides what the end of the command means for the run.
//!
//! Unsafe: `fork`, and the calls after it. Between `fork` and `execve` the child only makes system calls, because a lock that
//! another thread held at the fork (such as malloc's) is never released in the child (signal-safety(7)).
#![allow(unsafe_code)] // see above

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, bail};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, pidfd_send_signal, waitpid};

use crate::system::binary::{elf, locate};

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this status.
    Code(i32),
    /// It was killed by this signal.
    Signal(i32),
}

impl Exit {
    /// The value of a shell's `$?`: the status, or 128 + the signal.
    pub fn status(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// A child process. If it is dropped before [`Child::start`], it is killed and reaped, and its program never runs; if
/// it is dropped after, it gets SIGTERM unless it has exited.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    pidfd: OwnedFd,
    /// Lets the child exec when opened; `None` after that.
    gate: Option<Gate>,
    /// Receives the errno of a failed exec; a successful exec closes it.
    exec_error: File,
    /// The name for messages.
    program: String,
    exit: Option<Exit>,
}

impl Child {
    /// Splits `command` as a shell splits words (quotes and backslashes, no expansions), looks its program up on PATH and
    /// forks. The child waits before its exec, so that probes can be attached to [`Child::pid`] first.
    ///
    /// Call it on a thread that lives as long as the run: the child gets SIGTERM (`PR_SET_PDEATHSIG`) when the thread
    /// that forked it ends.
    ///
    /// Errors name the command: empty, unbalanced quotes, not found, not executable.
    pub fn prepare(command: &str) -> anyhow::Result<Self> {
        let Some(words) = shlex::split(command) else { bail!("-c: unbalanced quotes in `{command}`") };
        let Some(program) = words.first().filter(|w| !w.is_empty()) else { bail!("-c: the command is empty") };
        let path = locate::command(program).map_err(|m| match m.help {
            Some(help) => anyhow::anyhow!("-c: {}; {help}", m.what),
            None => anyhow::anyhow!("-c: {}", m.what),
        })?;
        let image = Image::new(&path, &words)?;

        let gate = Gate::new()?;
        let (failed_read, failed_write) = pipe_with(PipeFlags::CLOEXEC).context("-c: pipe")?;
        let parent = rustix::process::getpid().as_raw_pid();
        // SAFETY: the child runs nothing but `become_program`, which makes only async-signal-safe calls.
        let pid = match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()).context("-c: cannot fork"),
            0 => unsafe { become_program(&image, parent, &gate, failed_write.as_raw_fd()) },
            pid => pid,
        };
        let Some(pid) = Pid::from_raw(pid) else { bail!("-c: fork gave no process") };
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).inspect_err(|_| {
            // our own child, not reaped yet, so the pid still belongs to it
            let _ = kill_process(pid, Signal::KILL).and_then(|()| waitpid(Some(pid), WaitOptions::empty()).map(drop));
        });
        Ok(Self {
            pid,
            pidfd: pidfd.context("-c: pidfd_open (Linux 5.3)")?,
            gate: Some(gate),
            exec_error: File::from(failed_read),
            program: path.display().to_string(),
            exit: None,
        })
    }

    /// The program's file.
    pub fn program(&self) -> &Path {
        Path::new(&self.program)
    }

    /// Its process id; the program will have the same.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_pid() as u32
    }

    /// A pidfd: readable (`POLLIN`) when the child has exited.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Returns once the child has done all its work before exec, so that probes attached after this see none of it.
    pub fn wait_until_ready(&self) {
        if let Some(gate) = &self.gate {
            gate.wait_for_child();
        }
    }

    /// Lets the child exec, and returns when it has. Further calls do nothing.
    ///
    /// Errors: those of `execve`, with the program's name; the child is then gone.
    pub fn start(&mut self) -> anyhow::Result<()> {
        let Some(gate) = self.gate.take() else { return Ok(()) };
        gate.open();
        let mut errno = Vec::new();
        let read = self.exec_error.read_to_end(&mut errno);
        let errno = <[u8; 4]>::try_from(errno.as_slice()).ok().map(i32::from_ne_bytes);
        let why = match (errno, read) {
            (Some(errno), _) => io::Error::from_raw_os_error(errno),
            (None, Err(why)) => why,
            (None, Ok(_)) => return Ok(()),
        };
        self.kill_and_reap();
        if why.raw_os_error() == Some(libc::ENOEXEC) {
            if let Some(machine) = elf::machine_of(Path::new(&self.program)) {
                bail!("-c: cannot run {}: it is a program for {machine}; run it on such a machine", self.program);
            }
            bail!("-c: cannot run {0}: not a program, nor a script with a `#!` line; run it by a shell: -c 'sh {0}'", self.program);
        }
        if why.kind() == io::ErrorKind::NotFound {
            bail!("-c: cannot run {}: its interpreter does not exist; check its `#!` line", self.program);
        }
        Err(why).with_context(|| format!("-c: cannot run {}", self.program))
    }

    /// The exit status, if the child has ended. It does not wait, and may be called again.
    pub fn exited(&mut self) -> anyhow::Result<Option<Exit>> {
        if self.exit.is_none() {
            self.exit = self.wait(WaitOptions::NOHANG).with_context(|| format!("-c: waiting for {}", self.program))?;
        }
        Ok(self.exit)
    }

    /// Sends SIGTERM to a running child; does nothing if it has exited.
    pub fn stop(&mut self) {
        if self.exit.is_none() {
            self.signal(Signal::TERM);
        }
    }

    /// Waits for our own child, whose pid cannot be reused until it is reaped here.
    fn wait(&self, how: WaitOptions) -> io::Result<Option<Exit>> {
        loop {
            let status = match waitpid(Some(self.pid), how) {
                Ok(Some((_, status))) => status,
                Ok(None) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(why) => return Err(why.into()),
            };
            match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => return Ok(Some(Exit::Code(code))),
                (None, Some(signal)) => return Ok(Some(Exit::Signal(signal))),
                // A stopped child is not reported without UNTRACED; wait again.
                (None, None) if how.contains(WaitOptions::NOHANG) => return Ok(None),
                (None, None) => {}
            }
        }
    }

    /// Sends through the pidfd, so the signal cannot reach another process. Failure means that the process is gone,
    /// which is fine.
    fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }

    fn kill_and_reap(&mut self) {
        if self.exit.is_none() {
            self.signal(Signal::KILL);
            self.exit = self.wait(WaitOptions::empty()).ok().flatten();
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.gate.take().is_some() {
            self.kill_and_reap();
        } else if matches!(self.exited(), Ok(None)) {
            self.stop();
        }
    }
}

/// The arguments of `execve`, prepared before the fork.
struct Image {
    path: CString,
    argv: Vec<*const libc::c_char>,
    /// Owns what `argv` points to.
    _words: Vec<CString>,
}

impl Image {
    fn new(path: &Path, words: &[String]) -> anyhow::Result<Self> {
        let words = words.iter().map(|w| CString::new(w.as_bytes())).collect::<Result<Vec<_>, _>>().context("-c: a NUL in the command")?;
        let argv = words.iter().map(|w| w.as_ptr()).chain([std::ptr::null()]).collect();
        Ok(Self { path: CString::new(path.as_os_str().as_bytes()).context("-c: a NUL in the path")?, argv, _words: words })
    }

    fn path(&self) -> &CStr {
        &self.path
    }
}

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

/// The child's life up to the exec of its program. Never returns.
///
/// SAFETY: for the child of a fork only. All calls are on signal-safety(7)'s list or bare system calls.
unsafe fn become_program(image: &Image, parent: libc::pid_t, gate: &Gate, failed: RawFd) -> ! {
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
        // The parent may have died before the line above.
        if libc::getppid() != parent {
            libc::_exit(127);
        }
        // Exec resets our handlers, but ignored signals stay ignored, and Rust ignores SIGPIPE; blocked signals stay
        // blocked, too. Signals that were ignored before rbt started (nohup's SIGHUP) are rightly inherited.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        // Of the signals that the parent blocks, the one that reports its death.
        let mut parent_death = none;
        libc::sigaddset(&mut parent_death, libc::SIGTERM);
        libc::sigprocmask(libc::SIG_UNBLOCK, &parent_death, std::ptr::null_mut());
        gate.wait();
        // Only now: until the child is released, the terminal's SIGINT is for the parent to handle.
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::execve(image.path().as_ptr(), image.argv.as_ptr(), environ);
        let errno = *libc::__errno_location();
        libc::write(failed, (&raw const errno).cast(), 4);
        libc::_exit(127)
    }
}

/// The word in shared memory on which the child waits. It is a futex, because the probes see only the exit of that system
/// call, which few scripts trace; a pipe would add a read to every program whose reads are counted.
#[derive(Debug)]
struct Gate(std::ptr::NonNull<AtomicU32>);

impl Gate {
    const SIZE: usize = 4096;

    fn new() -> anyhow::Result<Self> {
        // SAFETY: a new mapping, zeroed (so a valid AtomicU32), shared with the children forked after this.
        let page = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), Self::SIZE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        match std::ptr::NonNull::new(page.cast()).filter(|_| page != libc::MAP_FAILED) {
            Some(word) => Ok(Self(word)),
            None => Err(io::Error::last_os_error()).context("-c: mmap"),
        }
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: mapped as long as this lives.
        unsafe { self.0.as_ref() }
    }

    /// No child waits yet.
    const EMPTY: u32 = 0;
    /// The child waits.
    const WAITING: u32 = 1;
    const OPEN: u32 = 2;

    fn open(&self) {
        self.set(Self::OPEN);
    }

    /// Returns once the child waits, or should have by now.
    fn wait_for_child(&self) {
        if self.word().load(Ordering::Acquire) == Self::EMPTY {
            let limit = libc::timespec { tv_sec: 0, tv_nsec: 200_000_000 };
            self.futex(libc::FUTEX_WAIT, Self::EMPTY, &limit);
        }
    }

    /// Returns once the gate is open. Safe after a fork: it only makes system calls.
    fn wait(&self) {
        self.set(Self::WAITING);
        while self.word().load(Ordering::Acquire) == Self::WAITING {
            self.futex(libc::FUTEX_WAIT, Self::WAITING, std::ptr::null());
        }
    }

    fn set(&self, value: u32) {
        // The value never decreases: the parent may have opened the gate before the child arrived.
        self.word().fetch_max(value, Ordering::AcqRel);
        self.futex(libc::FUTEX_WAKE, 1, std::ptr::null());
    }

    fn futex(&self, op: libc::c_int, value: u32, limit: *const libc::timespec) {
        // SAFETY: the word is mapped; errors (futex(2): it is another value, a signal came) are noticed by reading the
        // word again.
        unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), op, value, limit) };
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // SAFETY: our own mapping; nothing refers to it any longer.
        unsafe { libc::munmap(self.0.as_ptr().cast(), Self::SIZE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(child: &mut Child) -> Exit {
        let mut poll = libc::pollfd { fd: child.fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        assert_eq!(unsafe { libc::poll(&mut poll, 1, 10_000) }, 1);
        child.exited().unwrap().unwrap()
    }

    fn run(command: &str) -> Exit {
        let mut child = Child::prepare(command).unwrap();
        assert_eq!(child.exited().unwrap(), None);
        child.start().unwrap();
        wait(&mut child)
    }

    #[test]
    fn statuses() {
        assert_eq!(run("true"), Exit::Code(0));
        assert_eq!(run("sh -c 'exit 7'").status(), 7);
        assert_eq!(run(r#"sh -c 'kill -9 $$'"#).status(), 137);
    }

    #[test]
    fn words_keep_their_quotes() {
        assert_eq!(run(r#"sh -c 'test "$1" = "a b" && test $# = 2' sh "a b" c\ d"#), Exit::Code(0));
    }

    #[test]
    fn signals_are_reset() {
        // SIGPIPE is 13 (bit 12); the blocked and ignored sets do not contain the signals that rbt handles.
        let script = r#"sh -c 'while read k v; do case $k in SigBlk:) b=$v;; SigIgn:) i=$v;; esac; done < /proc/self/status; test $b = 0000000000000000 && test $((0x$i & 0x1000)) = 0'"#;
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&mut set, libc::SIGINT);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        }
        assert_eq!(run(script), Exit::Code(0));
    }

    #[test]
    fn unstarted_child_never_runs() {
        let path = std::env::temp_dir().join(format!("rbt-child-{}", std::process::id()));
        let child = Child::prepare(&format!("touch {}", path.display())).unwrap();
        let pid = child.pid();
        drop(child);
        assert!(!path.exists());
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn outliving_child_is_reported_to_end() {
        let mut child = Child::prepare("sleep 60").unwrap();
        child.start().unwrap();
        child.stop();
        assert_eq!(wait(&mut child), Exit::Signal(libc::SIGTERM));
    }

    #[test]
    fn errors_name_the_command() {
        let error = |c: &str| Child::prepare(c).map(|_| ()).unwrap_err().to_string();
        assert!(error("no-such-command-here 1").contains("no-such-command-here"));
        assert!(error("/etc/passwd").contains("`/etc/passwd`: it is not executable"));
        assert!(error("/etc").contains("directory"));
        assert!(error("sh -c 'x").contains("quotes"));
        assert!(error("  ").contains("empty"));
    }

    #[test]
    fn exec_failure_is_reported() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("rbt-noexec-{}", std::process::id()));
        std::fs::write(&path, "neither\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut child = Child::prepare(path.to_str().unwrap()).unwrap();
        let error = child.start().unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        assert!(error.contains("#!"), "{error}");
    }
}
