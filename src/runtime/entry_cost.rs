//! The cost of entering and leaving a program, which the kernel's run-time statistics do not contain. rbt measures it
//! once per machine, with programs that do nothing, and keeps the result in the cache.
#![allow(unsafe_code)] // bpf(2), calls of a function of ours

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use super::{attach, perf};
use crate::codegen::artifact::Program;
use crate::emit::EntryKind;
use crate::system::cache::{CacheFile, Kind, digest};

const KIND: Kind = Kind { form: "rbt-entry-costs-4", prefix: "entry-costs-", max_bytes: 4096, max_files: 4, max_total: 1 << 20 };
const ITERATIONS: u32 = 1000;
/// The least of this many measurements counts: other activity adds to it.
const TRIALS: u32 = 5;

/// Nanoseconds by mechanism if they cannot be measured: those of a machine of 2023 without mitigations.
const DEFAULT_COSTS: Costs = Costs { trap: 2000.0, back: 1000.0, tracepoint: 150.0, raw: 40.0 };
/// The cost of a trampoline, which rbt's own processes do not trigger.
const TRAMPOLINE: f64 = 30.0;
/// The cost of a probe on a kernel function, by a breakpoint that is optimized to a jump, or by the function tracer.
const KPROBE: f64 = 120.0;
/// The cost of an event's interrupt.
const INTERRUPT: f64 = 1500.0;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Costs {
    /// A breakpoint in a process's code.
    trap: f64,
    /// The return of a function, in addition to the breakpoint at its entry.
    back: f64,
    /// A tracepoint with its record.
    tracepoint: f64,
    /// A tracepoint without a record.
    raw: f64,
}

/// For each program, the nanoseconds to enter and to leave it. Programs at the same place in user space share the breakpoint
/// there, and a return has one of its own in addition.
pub(super) fn of(programs: &[Program]) -> Vec<f64> {
    static COSTS: OnceLock<Costs> = OnceLock::new();
    let costs = || *COSTS.get_or_init(|| known().unwrap_or(DEFAULT_COSTS));
    let place = |program: &Program| program.sites.first()?.attach.file_location().map(|l| (l.path.to_owned(), l.offset, l.ret));
    let places: Vec<_> = programs.iter().map(place).collect();
    let with = |same: &dyn Fn(&(PathBuf, u64, bool)) -> bool| places.iter().flatten().filter(|place| same(place)).count().max(1) as f64;
    let of = |(program, place): (&Program, &Option<(PathBuf, u64, bool)>)| match (program.ty.row().entry, place) {
        (EntryKind::Trap, Some((path, offset, ret))) => {
            let breakpoint = costs().trap / with(&|(p, o, _)| p == path && o == offset);
            let back = if *ret { costs().back / with(&|(p, o, r)| p == path && o == offset && *r) } else { 0.0 };
            breakpoint + back
        }
        (EntryKind::Trap, None) => costs().trap,
        (EntryKind::Tracepoint, _) => costs().tracepoint,
        (EntryKind::RawTracepoint, _) => costs().raw,
        (EntryKind::Kprobe, _) => KPROBE,
        (EntryKind::Trampoline, _) => TRAMPOLINE,
        (EntryKind::Interrupt, _) => INTERRUPT,
        (EntryKind::Call, _) => 0.0,
    };
    programs.iter().zip(&places).map(of).collect()
}

/// From the cache, or measured.
fn known() -> Option<Costs> {
    let system = rustix::system::uname();
    let of = format!("{:?} {:?} {:?}", system.release(), system.version(), system.machine());
    let file = CacheFile::new(KIND, format!("{:016x}", digest(of.as_bytes())));
    if let Some((bytes, start)) = file.as_ref().and_then(CacheFile::load)
        && let Some(costs) = bytes.get(start..).and_then(parse)
    {
        return Some(costs);
    }
    let costs = measure().ok()?;
    if let Some(file) = file {
        file.save(format!("{} {} {} {}", costs.trap, costs.back, costs.tracepoint, costs.raw).as_bytes());
    }
    Some(costs)
}

fn parse(bytes: &[u8]) -> Option<Costs> {
    let words: Vec<f64> = std::str::from_utf8(bytes).ok()?.split(' ').map(|w| w.parse().ok()).collect::<Option<_>>()?;
    match words.as_slice() {
        [trap, back, tracepoint, raw] if words.iter().all(|w| (1.0..1e6).contains(w)) => {
            Some(Costs { trap: *trap, back: *back, tracepoint: *tracepoint, raw: *raw })
        }
        _ => None,
    }
}

fn measure() -> io::Result<Costs> {
    let plain = nanoseconds(call);
    let (path, offset) = probe_location()?;
    let at_target = |ret: bool| -> io::Result<f64> {
        let program = nothing(libbpf_sys::BPF_PROG_TYPE_KPROBE)?;
        let event = perf::uprobe(&path, offset, 0, ret, Some(std::process::id()))?;
        let _link = attach::on_event(event, program.as_raw_fd(), 0)?;
        Ok(nanoseconds(call) - plain)
    };
    let (trap, both) = (at_target(false)?, at_target(true)?);
    let plain = nanoseconds(enter_kernel);
    let raw = {
        let program = nothing(libbpf_sys::BPF_PROG_TYPE_RAW_TRACEPOINT)?;
        let _link = attach::raw_tracepoint("sys_enter", program.as_raw_fd(), 0)?;
        nanoseconds(enter_kernel) - plain
    };
    let min = |ns: f64, min: f64| ns.clamp(min, 1e5);
    // The record of a tracepoint costs this in addition.
    let tracepoint = min(raw, 10.0) + DEFAULT_COSTS.tracepoint - DEFAULT_COSTS.raw;
    Ok(Costs { trap: min(trap, 100.0), back: min(both - trap, 10.0), tracepoint, raw: min(raw, 10.0) })
}

/// The nanoseconds of one call, at best: processor time, since other processes may use the CPU in the meantime.
fn nanoseconds(turn: fn()) -> f64 {
    let trial = || {
        let since = processor_time();
        (0..ITERATIONS).for_each(|_| turn());
        processor_time().saturating_sub(since).as_nanos() as f64 / f64::from(ITERATIONS)
    };
    (0..TRIALS).map(|_| trial()).fold(f64::INFINITY, f64::min)
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Starts with an instruction that the kernel steps over by a second trap. (It emulates others, such as `push`, which
/// is several times cheaper. With the cost of the more expensive case, the limit holds for both.)
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn target() {
    std::arch::naked_asm!("lea eax, [rdi + 1]", "ret")
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(never)]
extern "C" fn target() {
    std::hint::black_box(());
}

fn call() {
    let function: extern "C" fn() = std::hint::black_box(target);
    function();
}

fn enter_kernel() {
    let _ = rustix::process::getppid();
}

/// The executable of this process, and the offset of [`target`] in it.
fn probe_location() -> io::Result<(std::ffi::CString, u64)> {
    let addr = target as extern "C" fn() as usize as u64;
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let found = maps.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let (from, to) = (number(from)?, number(to)?);
        let offset = number(words.nth(1)?)?;
        (from..to).contains(&addr).then_some(addr - from + offset)
    });
    let offset = found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
    Ok((c"/proc/self/exe".to_owned(), offset))
}

/// A program that returns 0.
fn nothing(ty: libbpf_sys::bpf_prog_type) -> io::Result<OwnedFd> {
    // `r0 = 0; exit`: BPF_ALU64 | BPF_MOV | BPF_K, BPF_JMP | BPF_EXIT
    let code: [u64; 2] = [0xb7, 0x95];
    // SAFETY: the instructions outlive the call
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(ty, std::ptr::null(), c"GPL".as_ptr(), code.as_ptr().cast(), code.len() as u64, std::ptr::null_mut())
    };
    // SAFETY: new, and not owned elsewhere
    if fd < 0 { Err(io::Error::from_raw_os_error(-fd)) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd) }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_costs() {
        assert_eq!(parse(b"1000.5 600 150 40"), Some(Costs { trap: 1000.5, back: 600.0, tracepoint: 150.0, raw: 40.0 }));
        for text in ["", "1 2 3", "1 2 3 4 5", "a b c d", "NaN 1 1 1", "0 1 1 1", "-5 10 10 10", "1e9 1 1 1"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
