//! Lists the functions that a start from the cache runs, for the linker: `cargo bench --bench speed -- list-functions`.
//!
//! It runs rbt instruction by instruction (ptrace(2)), and finds the functions in the linker's map.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use regex::Regex;

use crate::process;

/// The argument that requests the list.
pub const WORD: &str = "list-functions";

/// The list, which `build.rs` reads.
const LIST: &str = "src/startup/functions.txt";

const HEADER: &str = "\
# The functions that a start from the cache runs, in the order of their first call. The linker places them next to each other, so
# that a start touches few pages. Asterisks replace hashes, which differ between compilers. A function that no longer exists has
# no effect. `cargo bench --bench speed -- list-functions` writes this file.
";

/// A pattern is omitted if it matches more than this many times the code that runs.
const WASTE: u64 = 3;

/// A function in the linker's map.
struct Function {
    start: u64,
    size: u64,
    pattern: String,
}

pub fn list() -> ExitCode {
    let Some(Ok(map)) = option_env!("RBT_LINK_MAP").map(std::fs::read_to_string) else {
        eprintln!("no linker map found (an optimized build with the feature static-llvm writes one)");
        return ExitCode::FAILURE;
    };
    let functions = functions(&map);
    let (mut all, mut used) = (BTreeMap::<&str, u64>::new(), BTreeMap::<&str, u64>::new());
    for f in &functions {
        *all.entry(&f.pattern).or_default() += f.size;
    }
    let (mut order, mut seen) = (Vec::new(), BTreeSet::new());
    for address in run().expect("ptrace") {
        let Some(f) = functions.partition_point(|f| f.start <= address).checked_sub(1).map(|i| &functions[i]) else { continue };
        if address < f.start + f.size && seen.insert(f.start) {
            let of_pattern = used.entry(&f.pattern).or_default();
            if *of_pattern == 0 {
                order.push(f.pattern.as_str());
            }
            *of_pattern += f.size;
        }
    }
    order.retain(|pattern| used[pattern] * WASTE >= all[pattern]);
    let to = Path::new(env!("CARGO_MANIFEST_DIR")).join(LIST);
    std::fs::write(&to, format!("{HEADER}{}\n", order.join("\n"))).expect(LIST);
    println!("{} functions, {} bytes", order.len(), order.iter().map(|pattern| all[pattern]).sum::<u64>());
    ExitCode::SUCCESS
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
        let name = Some(name).filter(|name| name.contains('_') && !name.starts_with("startup"))?;
        let name = hashes.iter().fold(name.to_owned(), |name, (hash, by)| hash.replace_all(&name, *by).into_owned());
        Some(Function { start, size, pattern: format!(".text.{name}") })
    };
    let mut functions: Vec<Function> = map.lines().filter_map(function).collect();
    functions.sort_by_key(|f| f.start);
    functions
}

/// The addresses of the instructions that a second start runs, as in the map, in the order of their first run.
fn run() -> io::Result<Vec<u64>> {
    let folder = std::env::temp_dir().join(format!("rbt-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let rbt = || {
        let mut rbt = process::command(&["-e", "begin { exit() }"]);
        rbt.env("RBT_CACHE", &folder).stdout(Stdio::null()).stderr(Stdio::null());
        rbt
    };
    rbt().status()?;
    let addresses = step(&mut rbt());
    std::fs::remove_dir_all(&folder)?;
    addresses
}

/// Runs a program instruction by instruction.
fn step(program: &mut Command) -> io::Result<Vec<u64>> {
    // SAFETY: the call only changes the state of the new process, and takes no further arguments
    unsafe {
        program.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    let first = program.spawn()?.id() as libc::pid_t;
    let none = std::ptr::null_mut::<libc::c_void>();
    let (mut status, mut base) = (0, None);
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
        let base = *base.get_or_insert_with(|| {
            let options = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
            // SAFETY: the thread is stopped
            unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, first, none, options) };
            let maps = std::fs::read_to_string(format!("/proc/{first}/maps")).unwrap_or_default();
            maps.split('-').next().and_then(|start| u64::from_str_radix(start, 16).ok()).unwrap_or(0)
        });
        let address = instruction(thread)?.wrapping_sub(base);
        if seen.insert(address) {
            order.push(address);
        }
        let signal = match libc::WSTOPSIG(status) {
            libc::SIGTRAP | libc::SIGSTOP => 0,
            signal => signal,
        };
        // SAFETY: the thread is stopped
        unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, thread, none, signal) };
    }
}

/// The address of the next instruction of a stopped thread.
fn instruction(thread: libc::pid_t) -> io::Result<u64> {
    const NT_PRSTATUS: usize = 1;
    // SAFETY: the structure consists of numbers
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    let mut to = libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: size_of_val(&registers) };
    // SAFETY: the kernel writes at most this many bytes
    if unsafe { libc::ptrace(libc::PTRACE_GETREGSET, thread, NT_PRSTATUS, &raw mut to) } != 0 {
        return Err(io::Error::last_os_error());
    }
    #[cfg(target_arch = "x86_64")]
    return Ok(registers.rip);
    #[cfg(target_arch = "aarch64")]
    return Ok(registers.pc);
}
