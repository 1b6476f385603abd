//! Lists the functions that starts run, for the linker: `cargo bench --bench speed -- list-functions`.
//!
//! It sets a breakpoint at the start of each function in the linker's map (ptrace(2)), and removes the breakpoint when a thread
//! reaches it. So a start takes a second, instead of minutes instruction by instruction.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use regex::Regex;

use crate::process;

/// The argument that requests the lists.
pub const WORD: &str = "list-functions";

/// The lists, which `build.rs` reads.
const START: &str = "src/startup/functions.txt";
const COMPILATION: &str = "src/startup/compile_functions.txt";

const START_HEADER: &str = "\
# The functions that a start from the cache runs, in the order of their first call. The linker places them next to each other, so
# that a start touches few pages. Asterisks replace hashes, which differ between compilers. A function that no longer exists has
# no effect. `cargo bench --bench speed -- list-functions` writes this file.
";

const COMPILATION_HEADER: &str = "\
# The functions that a start without the cache runs, beyond those of functions.txt and in the same form. They follow those.
";

/// The script of a start that does nothing else.
const NOTHING: &str = "begin { exit() }";

/// Scripts that are typical: they count by a key, show a distribution, print events, measure the time of a call, and take stacks.
const TYPICAL: &[&str] = &[
    NOTHING,
    "tracepoint:syscalls:sys_enter_openat { @[comm] = count(); } begin { exit() }",
    "tracepoint:syscalls:sys_exit_read /args.ret > 0/ { @bytes[comm] = hist(args.ret); } begin { exit() }",
    "tracepoint:syscalls:sys_enter_openat { printf(\"%d %s %s\\n\", pid, comm, str(args.filename)); } begin { exit() }",
    "tracepoint:syscalls:sys_enter_read { @start[tid] = nsecs; }
     tracepoint:syscalls:sys_exit_read /@start[tid]/ { @us = hist((nsecs - @start[tid]) / 1000); delete(@start[tid]); } begin { exit() }",
    "profile:hz:99 { @[kstack, comm] = count(); } begin { exit() }",
    "tracepoint:sched:sched_switch { @[ustack] = count(); } interval:s:1 { print(@, 10); clear(@); } begin { exit() }",
];

/// A pattern is omitted if it matches more than this many times the code that runs.
const WASTE: u64 = 3;

/// A function in the linker's map.
struct Function {
    start: u64,
    size: u64,
    pattern: String,
}

pub fn list() -> ExitCode {
    let map = std::env::var("RBT_LINK_MAP").ok().or(option_env!("RBT_LINK_MAP").map(String::from)).map(std::fs::read_to_string);
    let Some(Ok(map)) = map else {
        eprintln!("no linker map found (an optimized build with the feature static-llvm writes one; RBT_LINK_MAP names another)");
        return ExitCode::FAILURE;
    };
    let functions = functions(&map);
    let starts = runs(&functions, &[NOTHING], true).expect("ptrace");
    let from_cache = patterns(&functions, &starts, &BTreeSet::new());
    write(START, START_HEADER, &from_cache);
    let starts = runs(&functions, TYPICAL, false).expect("ptrace");
    write(COMPILATION, COMPILATION_HEADER, &patterns(&functions, &starts, &from_cache.iter().map(|(pattern, _)| *pattern).collect()));
    ExitCode::SUCCESS
}

fn write(list: &str, header: &str, patterns: &[(&str, u64)]) {
    let to = Path::new(env!("CARGO_MANIFEST_DIR")).join(list);
    let lines: String = patterns.iter().map(|(pattern, _)| format!("{pattern}\n")).collect();
    std::fs::write(&to, format!("{header}{lines}")).expect(list);
    println!("{list}: {} functions, {} bytes", patterns.len(), patterns.iter().map(|(_, size)| size).sum::<u64>());
}

/// The patterns of the functions that ran, in their order, each with the size of all functions that match.
fn patterns<'f>(functions: &'f [Function], ran: &[usize], except: &BTreeSet<&str>) -> Vec<(&'f str, u64)> {
    let (mut all, mut used) = (BTreeMap::<&str, u64>::new(), BTreeMap::<&str, u64>::new());
    for f in functions {
        *all.entry(&f.pattern).or_default() += f.size;
    }
    let mut order = Vec::new();
    for f in ran.iter().filter_map(|i| functions.get(*i)).filter(|f| !except.contains(&*f.pattern)) {
        let of_pattern = used.entry(&f.pattern).or_insert_with(|| {
            order.push(f.pattern.as_str());
            0
        });
        *of_pattern += f.size;
    }
    order.into_iter().filter(|pattern| used[pattern] * WASTE >= all[pattern]).map(|pattern| (pattern, all[pattern])).collect()
}

/// The functions of the map by address. LLVM's linker writes `address address size alignment file:(section)`.
fn functions(map: &str) -> Vec<Function> {
    let hashes = [("17h[0-9a-f]{16}E", "17h*"), ("Cs[0-9A-Za-z]+_", "Cs*_"), (r"\.llvm\.[0-9]+$", ".llvm.*")]
        .map(|(hash, by)| (Regex::new(hash).expect(hash), by));
    let function = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let start = u64::from_str_radix(words.next()?, 16).ok()?;
        let size = u64::from_str_radix(words.nth(1)?, 16).ok()?;
        let (_, section) = words.nth(1)?.split_once(":(")?;
        // constructors do not have names of their own, nor do the functions of a file with a single section
        let name = section.strip_suffix(')')?.strip_prefix(".text.")?;
        let name = Some(name).filter(|name| name.contains('_') && !name.starts_with("startup") && size > 0)?;
        let name = hashes.iter().fold(name.to_owned(), |name, (hash, by)| hash.replace_all(&name, *by).into_owned());
        Some(Function { start, size, pattern: format!(".text.{name}") })
    };
    let mut functions: Vec<Function> = map.lines().filter_map(function).collect();
    functions.sort_by_key(|f| f.start);
    functions.dedup_by_key(|f| f.start);
    functions
}

/// The functions that runs of these scripts reach, by their numbers, in the order of the first call. `again`: in their second runs.
fn runs(functions: &[Function], scripts: &[&str], again: bool) -> io::Result<Vec<usize>> {
    let folder = std::env::temp_dir().join(format!("rbt-bench-{}", std::process::id()));
    let (mut order, mut seen) = (Vec::new(), BTreeSet::new());
    for script in scripts {
        std::fs::create_dir_all(&folder)?;
        let rbt = || {
            let mut rbt = process::command(&["-e", script]);
            rbt.env("RBT_CACHE", &folder).stdout(Stdio::null()).stderr(Stdio::null());
            rbt
        };
        if again {
            rbt().status()?;
        }
        let reached = reached(&mut rbt(), functions);
        std::fs::remove_dir_all(&folder)?;
        order.extend(reached?.into_iter().filter(|i| seen.insert(*i)));
    }
    Ok(order)
}

/// The instruction of a breakpoint, and how far the program counter is behind its start when it has run.
#[cfg(target_arch = "x86_64")]
const BREAKPOINT: (&[u8], u64) = (&[0xcc], 1);
#[cfg(target_arch = "aarch64")]
const BREAKPOINT: (&[u8], u64) = (&0xd420_0000_u32.to_le_bytes(), 0);

/// Runs a program with breakpoints, and returns the functions that it reaches, in the order of their first call.
fn reached(program: &mut Command, functions: &[Function]) -> io::Result<Vec<usize>> {
    // SAFETY: the call only changes the state of the new process, and takes no further arguments
    unsafe {
        program.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    #[allow(clippy::zombie_processes)] // waitpid reaps it
    let first = program.spawn()?.id() as libc::pid_t;
    let none = std::ptr::null_mut::<libc::c_void>();
    let (mut status, mut program) = (0, None);
    let (mut seen, mut order) = (BTreeSet::new(), Vec::new());
    loop {
        // SAFETY: the kernel writes a number
        let thread = unsafe { libc::waitpid(-1, &mut status, libc::__WALL) };
        if thread < 0 {
            return Err(io::Error::last_os_error());
        }
        if !libc::WIFSTOPPED(status) {
            if thread == first {
                return Ok(order);
            }
            continue;
        }
        let mut signal = libc::WSTOPSIG(status);
        match &program {
            None => {
                // A forked process has the breakpoints, too.
                let options = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK | libc::PTRACE_O_EXITKILL;
                // SAFETY: the thread is stopped
                unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, first, none, options) };
                program = Some(Breakpoints::set(first, functions)?);
            }
            // not the report of a new thread
            Some(breakpoints) if signal == libc::SIGTRAP && status >> 16 == 0 => {
                if let Some(function) = breakpoints.remove(thread)?
                    && seen.insert(function)
                {
                    order.push(function);
                }
            }
            Some(_) => {}
        }
        if matches!(signal, libc::SIGTRAP | libc::SIGSTOP) {
            signal = 0;
        }
        // SAFETY: the thread is stopped
        unsafe { libc::ptrace(libc::PTRACE_CONT, thread, none, signal) };
    }
}

/// The breakpoints of a program.
struct Breakpoints<'f> {
    /// The address of the program.
    base: u64,
    functions: &'f [Function],
    /// The code that each replaces.
    code: Vec<[u8; BREAKPOINT.0.len()]>,
}

impl<'f> Breakpoints<'f> {
    /// Sets a breakpoint at each function of a program that has not run yet.
    fn set(process: libc::pid_t, functions: &'f [Function]) -> io::Result<Self> {
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps"))?;
        let base = maps.split('-').next().and_then(|start| u64::from_str_radix(start, 16).ok()).unwrap_or(0);
        let memory = memory(process)?;
        let mut code = vec![[0; BREAKPOINT.0.len()]; functions.len()];
        for (f, code) in functions.iter().zip(&mut code) {
            memory.read_exact_at(code, base + f.start)?;
            memory.write_all_at(BREAKPOINT.0, base + f.start)?;
        }
        Ok(Self { base, functions, code })
    }

    /// Removes the breakpoint that has stopped a thread, and returns the function.
    fn remove(&self, thread: libc::pid_t) -> io::Result<Option<usize>> {
        let Some(address) = program_counter(thread, None)?.checked_sub(BREAKPOINT.1) else { return Ok(None) };
        let found = self.functions.binary_search_by_key(&address.wrapping_sub(self.base), |f| f.start);
        let Some((function, code)) = found.ok().and_then(|i| Some((i, self.code.get(i)?))) else { return Ok(None) };
        // Another thread may have removed it meanwhile, which makes no difference.
        memory(thread)?.write_all_at(code, address)?;
        program_counter(thread, Some(address))?;
        Ok(Some(function))
    }
}

fn memory(process: libc::pid_t) -> io::Result<File> {
    File::options().read(true).write(true).open(format!("/proc/{process}/mem"))
}

/// The program counter of a stopped thread. `to`: its new value.
fn program_counter(thread: libc::pid_t, to: Option<u64>) -> io::Result<u64> {
    const NT_PRSTATUS: usize = 1;
    // SAFETY: the structure consists of numbers
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    let mut part = libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: size_of_val(&registers) };
    // SAFETY: the kernel writes at most this many bytes
    if unsafe { libc::ptrace(libc::PTRACE_GETREGSET, thread, NT_PRSTATUS, &raw mut part) } != 0 {
        return Err(io::Error::last_os_error());
    }
    #[cfg(target_arch = "x86_64")]
    let counter = &mut registers.rip;
    #[cfg(target_arch = "aarch64")]
    let counter = &mut registers.pc;
    let before = *counter;
    if let Some(to) = to {
        *counter = to;
        // SAFETY: the kernel reads what it has written
        if unsafe { libc::ptrace(libc::PTRACE_SETREGSET, thread, NT_PRSTATUS, &raw mut part) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(before)
}
