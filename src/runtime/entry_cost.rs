//! The cost of entering and leaving a program, which the kernel's run-time statistics do not contain. rbt measures it
//! once per machine, with programs that do nothing, and keeps the result in the cache.
#![allow(unsafe_code)] // bpf(2), calls of a function of ours

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::{attach, perf};
use crate::codegen::artifact::{AttachSite, Program};
use crate::emit::EntryKind;
use crate::system::TargetInfo;
use crate::system::cache::{CacheFile, Kind, digest};
use crate::system::kernel::functions::KERNEL;

const KIND: Kind = Kind { form: "rbt-entry-costs-7", prefix: "entry-costs-", max_bytes: 4096, max_files: 4, max_total: 1 << 20 };
/// Calls per measurement, which takes up to a millisecond: of a function with a breakpoint, and of the kernel.
const TRAPS: u32 = 50;
const CALLS: u32 = 400;
/// The least of this many measurements counts: other activity adds to it.
const TRIALS: u32 = 5;
/// Detaching takes the kernel a tenth of a second, and the probes of the script could not be attached meanwhile.
const DETACH_AFTER: Duration = Duration::from_millis(500);

/// Nanoseconds by mechanism if they cannot be measured: those of a machine of 2023 without mitigations.
const DEFAULT_COSTS: Costs =
    Costs { trap: 2000.0, emulated: 1000.0, nop: 450.0, back: 1000.0, tracepoint: 150.0, raw: 40.0, kprobe: 120.0, trampoline: 30.0 };
/// The cost of an event's interrupt.
const INTERRUPT: f64 = 1500.0;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Costs {
    /// A breakpoint in a process's code, at an instruction that the kernel steps over by a second trap.
    trap: f64,
    /// The same at an instruction that the kernel emulates.
    emulated: f64,
    /// The same at a `nop` of five bytes, such as those of USDT probes, which newer kernels replace by a call.
    nop: f64,
    /// The return of a function, in addition to the breakpoint at its entry.
    back: f64,
    /// A tracepoint with its record.
    tracepoint: f64,
    /// A tracepoint without a record.
    raw: f64,
    /// A probe on a kernel function, by a breakpoint that is optimized to a jump, or by the function tracer.
    kprobe: f64,
    /// A trampoline.
    trampoline: f64,
}

/// The costs on this machine, and where they come from.
static COSTS: OnceLock<(Costs, String)> = OnceLock::new();

/// For each program, the nanoseconds to enter and to leave it. Programs at the same place in user space share the breakpoint
/// there, and a return has one of its own in addition.
pub(super) fn of(programs: &[Program], sys: &dyn TargetInfo) -> Vec<f64> {
    let costs = || COSTS.get_or_init(|| known(sys)).0;
    let place = |program: &Program| program.sites.first()?.attach.file_location().map(|l| (l.path.to_owned(), l.offset, l.ret));
    let places: Vec<_> = programs.iter().map(place).collect();
    let with = |same: &dyn Fn(&(PathBuf, u64, bool)) -> bool| places.iter().flatten().filter(|place| same(place)).count().max(1) as f64;
    let of = |(program, place): (&Program, &Option<(PathBuf, u64, bool)>)| match (program.ty.row().entry, place) {
        (EntryKind::Trap, Some((path, offset, ret))) => {
            let costs_of_trap = match Instruction::of_sites(program) {
                Instruction::Stepped => costs().trap,
                Instruction::Emulated => costs().emulated,
                Instruction::Nop => costs().nop,
            };
            let breakpoint = costs_of_trap / with(&|(p, o, _)| p == path && o == offset);
            let back = if *ret { costs().back / with(&|(p, o, r)| p == path && o == offset && *r) } else { 0.0 };
            breakpoint + back
        }
        (EntryKind::Trap, None) => costs().trap,
        (EntryKind::Tracepoint, _) => costs().tracepoint,
        (EntryKind::RawTracepoint, _) => costs().raw,
        (EntryKind::Kprobe, _) => costs().kprobe,
        (EntryKind::Trampoline, _) => costs().trampoline,
        (EntryKind::Interrupt, _) => INTERRUPT,
        (EntryKind::Call, _) => 0.0,
    };
    programs.iter().zip(&places).map(of).collect()
}

/// Finds the costs, before the probes of the script, which might run meanwhile, are attached.
pub(super) fn prepare(sys: &dyn TargetInfo) {
    COSTS.get_or_init(|| known(sys));
}

/// The message for `-v`, if a cost was needed.
pub(super) fn message() -> Option<String> {
    let (costs, source) = COSTS.get()?;
    let each: Vec<String> = NAMES.iter().zip(costs.numbers()).map(|(name, ns)| format!("{name} {ns:.0}")).collect();
    Some(format!("entry costs in ns ({source}): {}", each.join(", ")))
}

/// The names of [`Costs::numbers`].
const NAMES: [&str; 8] = ["uprobe", "emulated", "nop", "its return", "tracepoint", "raw tracepoint", "kprobe", "trampoline"];

impl Costs {
    fn numbers(&self) -> [f64; 8] {
        [self.trap, self.emulated, self.nop, self.back, self.tracepoint, self.raw, self.kprobe, self.trampoline]
    }

    fn of(numbers: [f64; 8]) -> Self {
        let [trap, emulated, nop, back, tracepoint, raw, kprobe, trampoline] = numbers;
        Self { trap, emulated, nop, back, tracepoint, raw, kprobe, trampoline }
    }
}

/// From the cache, or measured.
fn known(sys: &dyn TargetInfo) -> (Costs, String) {
    let system = rustix::system::uname();
    let of = format!("{:?} {:?} {:?}", system.release(), system.version(), system.machine());
    let file = CacheFile::new(KIND, format!("{:016x}", digest(of.as_bytes())));
    if let Some((bytes, start)) = file.as_ref().and_then(CacheFile::load)
        && let Some(costs) = bytes.get(start..).and_then(parse)
    {
        return (costs, "from the cache".into());
    }
    let since = Instant::now();
    let Some(costs) = measure(sys) else { return (DEFAULT_COSTS, "not measured".into()) };
    let took = format!("measured in {:.1} ms", since.elapsed().as_secs_f64() * 1e3);
    if let Some(file) = file {
        file.save(costs.numbers().map(|ns| format!("{ns}")).join(" ").as_bytes());
    }
    (costs, took)
}

fn parse(bytes: &[u8]) -> Option<Costs> {
    let words: Vec<f64> = std::str::from_utf8(bytes).ok()?.split(' ').map(|w| w.parse().ok()).collect::<Option<_>>()?;
    let numbers = words.try_into().ok()?;
    let costs = Costs::of(numbers);
    numbers.iter().all(|ns| (1.0..1e6).contains(ns)).then_some(costs)
}

/// None if nothing can be measured. What the kernel lacks or does not permit has its default.
///
/// All probes but the raw tracepoint stay attached up to the end, and a cost is what the next one adds: detaching takes long. They are
/// on this process, or on calls of the kernel that are rare.
fn measure(sys: &dyn TargetInfo) -> Option<Costs> {
    let mut attached: Vec<OwnedFd> = Vec::new();
    let mut added = |turn: fn(), times: u32, attach: &dyn Fn() -> io::Result<Vec<OwnedFd>>| -> Option<f64> {
        let before = nanoseconds(turn, times);
        attached.extend(attach().ok()?);
        Some(nanoseconds(turn, times) - before)
    };
    let uprobe = |function: Target, ret: bool| {
        let (path, offset) = probe_location(function)?;
        let program = nothing(libbpf_sys::BPF_PROG_TYPE_KPROBE, 0, 0)?;
        let event = perf::uprobe(&path, offset, 0, ret, Some(std::process::id()))?;
        attach::on_event(event, program.as_raw_fd(), 0)
    };
    let tracepoint = || {
        let found = sys.tracepoint("syscalls", "sys_enter_getpgid").map_err(|missing| io::Error::other(missing.what))?;
        let id = found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?.id;
        let program = nothing(libbpf_sys::BPF_PROG_TYPE_TRACEPOINT, 0, 0)?;
        attach::on_event(perf::tracepoint(id)?, program.as_raw_fd(), 0)
    };
    let function = |call: &str| format!("{}{call}", sys.arch().syscall_function);
    let kprobe = || {
        let program = nothing(libbpf_sys::BPF_PROG_TYPE_KPROBE, 0, 0)?;
        let event = perf::kprobe(Some(&CString::new(function("getsid"))?), 0, false)?;
        attach::on_event(event, program.as_raw_fd(), 0)
    };
    let trampoline = || {
        let found = sys.kernel_types().and_then(|types| types.function(Some(KERNEL), &function("sched_get_priority_min")));
        let id = found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?.id;
        let program = nothing(libbpf_sys::BPF_PROG_TYPE_TRACING, libbpf_sys::BPF_TRACE_FENTRY, id)?;
        Ok(vec![attach::to_target(program.as_raw_fd())?])
    };
    let (trap, back) = (added(call, TRAPS, &|| uprobe(target, false)), added(call, TRAPS, &|| uprobe(target, true)));
    let emulated = added(call_emulated, TRAPS, &|| uprobe(emulated_target, false));
    let nop = added(call_nop, TRAPS, &|| uprobe(nop_target, false));
    let raw = raw_tracepoint().ok();
    let tracepoint = added(getpgid, CALLS, &tracepoint);
    let kprobe = added(getsid, CALLS, &kprobe);
    let trampoline = added(sched_get_priority_min, CALLS, &trampoline);
    // without a thread, they are detached at once
    let _ = std::thread::Builder::new().name("rbt-detach".into()).stack_size(1 << 16).spawn(move || {
        std::thread::sleep(DETACH_AFTER);
        drop(attached);
    });
    let measured = [trap, emulated, nop, back, tracepoint, raw, kprobe, trampoline];
    let or_default = |(ns, usual): (Option<f64>, f64)| ns.filter(|ns| *ns >= usual * MIN_SHARE).map_or(usual, |ns| ns.min(1e5));
    let all: Vec<f64> = measured.into_iter().zip(DEFAULT_COSTS.numbers()).map(or_default).collect();
    measured.iter().any(Option::is_some).then(|| all.try_into().ok().map(Costs::of)).flatten()
}

/// The least share of the default that is believed. Below it, other activity has hidden the cost, such as another tracer that was
/// attached to the same calls during the first measurement only, and the default is safer.
const MIN_SHARE: f64 = 1.0 / 3.0;

/// It is detached at once, because it would add to the others.
fn raw_tracepoint() -> io::Result<f64> {
    let before = nanoseconds(getpgid, CALLS);
    let program = nothing(libbpf_sys::BPF_PROG_TYPE_RAW_TRACEPOINT, 0, 0)?;
    let _link = attach::raw_tracepoint("sys_enter", program.as_raw_fd(), 0)?;
    Ok(nanoseconds(getpgid, CALLS) - before)
}

/// The nanoseconds of one call, at best: processor time, since other processes may use the CPU in the meantime.
fn nanoseconds(turn: fn(), times: u32) -> f64 {
    let trial = || {
        let since = processor_time();
        (0..times).for_each(|_| turn());
        processor_time().saturating_sub(since).as_nanos() as f64 / f64::from(times)
    };
    (0..TRIALS).map(|_| trial()).fold(f64::INFINITY, f64::min)
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// How the kernel executes the instruction at a breakpoint: arch/x86/kernel/uprobes.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Instruction {
    Nop,
    Emulated,
    Stepped,
}

/// The maximum number of sites whose instructions are read.
const MAX_READ_SITES: usize = 64;

impl Instruction {
    /// The most expensive one at the sites of a program.
    fn of_sites(program: &Program) -> Self {
        let sites = &program.sites;
        let of = |site: &AttachSite| site.attach.file_location().map_or(Self::Stepped, |l| Self::at(l.path, l.offset));
        if sites.len() > MAX_READ_SITES { Self::Stepped } else { sites.iter().map(of).max().unwrap_or(Self::Stepped) }
    }

    /// The one in a file. If it is unknown, the most expensive way, so that the limit holds in any case.
    fn at(path: &Path, offset: u64) -> Self {
        let mut code = [0; 5];
        match std::fs::File::open(path).and_then(|file| file.read_exact_at(&mut code, offset)) {
            Ok(()) if cfg!(target_arch = "x86_64") => Self::of(code),
            _ => Self::Stepped,
        }
    }

    fn of(code: [u8; 5]) -> Self {
        match code {
            [0x0f, 0x1f, 0x44, 0, 0] => Self::Nop,
            // nop, push of a register, calls and jumps
            [0x90 | 0x50..=0x57 | 0xe8 | 0xe9 | 0xeb | 0x70..=0x7f, ..] | [0x41, 0x50..=0x57, ..] | [0x0f, 0x80..=0x8f, ..] => {
                Self::Emulated
            }
            _ => Self::Stepped,
        }
    }
}

type Target = extern "C" fn();

/// Starts with an instruction that the kernel steps over.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn target() {
    std::arch::naked_asm!("lea eax, [rdi + 1]", "ret")
}

/// Starts with one that it emulates.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn emulated_target() {
    std::arch::naked_asm!("push rax", "pop rax", "ret")
}

#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn nop_target() {
    std::arch::naked_asm!(".byte 0x0f, 0x1f, 0x44, 0, 0", "ret")
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(never)]
extern "C" fn target() {
    std::hint::black_box(());
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(never)]
extern "C" fn emulated_target() {
    std::hint::black_box(1);
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(never)]
extern "C" fn nop_target() {
    std::hint::black_box(2);
}

fn call() {
    std::hint::black_box(target as Target)();
}

fn call_emulated() {
    std::hint::black_box(emulated_target as Target)();
}

fn call_nop() {
    std::hint::black_box(nop_target as Target)();
}

/// Few programs make these calls, and few scripts trace them. Both answer 0 for a group or a session whose leader is
/// outside the PID namespace of the caller, which rustix 1.1 takes for impossible: a container's first process.
fn getpgid() {
    // SAFETY: a call without memory
    unsafe { libc::getpgid(0) };
}

fn getsid() {
    // SAFETY: a call without memory
    unsafe { libc::getsid(0) };
}

fn sched_get_priority_min() {
    // SAFETY: a call without memory
    unsafe { libc::sched_get_priority_min(libc::SCHED_OTHER) };
}

/// The executable of this process, and the offset of a function in it.
fn probe_location(function: Target) -> io::Result<(std::ffi::CString, u64)> {
    let addr = function as usize as u64;
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

/// A program that returns 0. `attach_type` and `function`, an ID in the kernel's types, are 0 except for a trampoline.
fn nothing(ty: libbpf_sys::bpf_prog_type, attach_type: u32, function: u32) -> io::Result<OwnedFd> {
    // `r0 = 0; exit`: BPF_ALU64 | BPF_MOV | BPF_K, BPF_JMP | BPF_EXIT
    let code: [u64; 2] = [0xb7, 0x95];
    let mut opts = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as u64,
        expected_attach_type: attach_type,
        attach_btf_id: function,
        ..Default::default()
    };
    // SAFETY: the instructions and the options outlive the call
    let fd =
        unsafe { libbpf_sys::bpf_prog_load(ty, std::ptr::null(), c"GPL".as_ptr(), code.as_ptr().cast(), code.len() as u64, &raw mut opts) };
    // SAFETY: new, and not owned elsewhere
    if fd < 0 { Err(io::Error::from_raw_os_error(-fd)) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd) }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_told_apart() {
        let of = |code: &[u8]| {
            let mut bytes = [0xcc; 5];
            bytes[..code.len()].copy_from_slice(code);
            Instruction::of(bytes)
        };
        for code in [&[0x55][..], &[0x41, 0x57], &[0x90], &[0xe9], &[0x74], &[0x0f, 0x85]] {
            assert_eq!(of(code), Instruction::Emulated, "{code:x?}");
        }
        // lea, endbr64, mov, a shorter nop, and a push of memory
        for code in [&[0x8d, 0x47, 1][..], &[0xf3, 0x0f, 0x1e, 0xfa], &[0x41, 0x89], &[0x0f, 0x1f, 0x40, 0], &[0xff, 0x35]] {
            assert_eq!(of(code), Instruction::Stepped, "{code:x?}");
        }
        assert_eq!(of(&[0x0f, 0x1f, 0x44, 0, 0]), Instruction::Nop);
    }

    #[test]
    fn parses_costs() {
        let costs =
            Costs { trap: 1000.5, emulated: 400.0, nop: 300.0, back: 600.0, tracepoint: 150.0, raw: 40.0, kprobe: 99.0, trampoline: 12.25 };
        assert_eq!(parse(b"1000.5 400 300 600 150 40 99 12.25"), Some(costs));
        for text in [
            "",
            "1 2 3",
            "1 2 3 4 5 6 7",
            "1 2 3 4 5 6 7 8 9",
            "a b c d e f g h",
            "NaN 1 1 1 1 1 1 1",
            "0 1 1 1 1 1 1 1",
            "-5 10 10 10 10 10 10 10",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
