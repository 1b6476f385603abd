//! The parts of perf_event_open(2) that probes need.
#![allow(unsafe_code)] // perf_event_open(2) and its ioctls

use crate::probes::{NO_KPROBES, SamplePeriod};
use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use libbpf_sys::perf_event_attr;

use crate::system::syscalls::{event, perf_event_open};

/// `_IO('$', 1)` of `include/uapi/linux/perf_event.h`.
const IOC_DISABLE: libc::c_ulong = 0x2401;
const IOC_ENABLE: libc::c_ulong = 0x2400;
/// `_IOW('$', 8, __u32)`
const IOC_SET_BPF: libc::c_ulong = 0x4004_2408;

/// `HW_BREAKPOINT_X` of include/uapi/linux/hw_breakpoint.h
const BREAKPOINT_X: u32 = 4;

/// The process and the CPU of an event: perf_event_open's `pid` and `cpu`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    /// A thread's id, or -1 for all.
    pub pid: i32,
    /// A CPU's number, or -1 for all (of one thread).
    pub cpu: i32,
}

impl Scope {
    /// For events whose programs run on every CPU whatever CPU the event is on: tracepoints and uprobes.
    pub const ALL_PROCESSES: Scope = Scope { pid: -1, cpu: 0 };
}

fn open(attr: &perf_event_attr, scope: Scope) -> io::Result<OwnedFd> {
    perf_event_open(attr, scope.pid, scope.cpu)
}

/// A tracepoint by its ID in tracefs.
pub(super) fn tracepoint(id: u64) -> io::Result<OwnedFd> {
    // without a period: it only counts, and its CPU does not prepare unread samples
    open(&event(libbpf_sys::PERF_TYPE_TRACEPOINT, id), Scope::ALL_PROCESSES)
}

/// A place in a file, or the return of the function that starts there. `semaphore`: offset of a counter that the kernel
/// increments while the probe is attached, or 0. `pid`: only in that process.
pub(super) fn uprobe(path: &CStr, offset: u64, semaphore: u64, ret: bool, pid: Option<u32>) -> io::Result<OwnedFd> {
    const DEVICE: &str = "/sys/bus/event_source/devices/uprobe";
    let unreadable = || io::Error::other(format!("{DEVICE}: not as expected"));
    let (ty, retprobe) = dynamic(DEVICE)?;
    // `config:32-63`: kernel/trace/trace_event_perf.c, PERF_UPROBE_REF_CTR_OFFSET_SHIFT (Linux 4.20)
    let counter = match semaphore {
        0 => 0,
        at => {
            let bits = fs::read_to_string(format!("{DEVICE}/format/ref_ctr_offset"))
                .map_err(|_| io::Error::other("this kernel cannot raise a marker's semaphore"))?;
            let bits = bits.trim().trim_start_matches("config:");
            let first: u32 = bits.split('-').next().and_then(|b| b.parse().ok()).ok_or_else(unreadable)?;
            at.checked_shl(first).filter(|c| c >> first == at).ok_or_else(unreadable)?
        }
    };
    let config = counter | if ret { retprobe } else { 0 };
    let mut attr = event(ty, config);
    attr.__bindgen_anon_3.uprobe_path = path.as_ptr() as u64;
    attr.__bindgen_anon_4.probe_offset = offset;
    open(&attr, pid.map_or(Scope::ALL_PROCESSES, |pid| Scope { pid: pid as i32, cpu: -1 }))
}

/// A kernel function with an offset, or an address; or the return of the function.
pub(super) fn kprobe(function: Option<&CStr>, place: u64, ret: bool) -> io::Result<OwnedFd> {
    const DEVICE: &str = "/sys/bus/event_source/devices/kprobe";
    if !std::path::Path::new(DEVICE).exists() {
        return Err(io::Error::other(NO_KPROBES));
    }
    let (ty, retprobe) = dynamic(DEVICE)?;
    let mut attr = event(ty, if ret { retprobe } else { 0 });
    attr.__bindgen_anon_3.kprobe_func = function.map_or(0, |f| f.as_ptr() as u64);
    attr.__bindgen_anon_4.probe_offset = place;
    open(&attr, Scope::ALL_PROCESSES)
}

/// The type of a PMU for dynamic probes, and the flag for returns.
fn dynamic(device: &str) -> io::Result<(u32, u64)> {
    let number = |name: &str| -> io::Result<String> { Ok(fs::read_to_string(format!("{device}/{name}"))?.trim().to_owned()) };
    let unreadable = || io::Error::other(format!("{device}: not as expected"));
    let ty = number("type")?.parse().map_err(|_| unreadable())?;
    let bit: u32 = number("format/retprobe")?.trim_start_matches("config:").parse().map_err(|_| unreadable())?;
    Ok((ty, 1u64.checked_shl(bit).ok_or_else(unreadable)?))
}

/// An event that fires as it counts: the CPU clock counts CPU time or, on one CPU and for all threads, wall time.
/// Threads that a traced thread creates are traced too.
pub(super) fn counter(ty: u32, config: u64, every: SamplePeriod, scope: Scope) -> io::Result<OwnedFd> {
    let mut attr = event(ty, config);
    match every {
        SamplePeriod::Frequency(hz) => {
            attr.__bindgen_anon_1.sample_freq = hz;
            attr.set_freq(1);
        }
        SamplePeriod::Period(count) => attr.__bindgen_anon_1.sample_period = count,
    }
    if scope.cpu < 0 {
        attr.set_inherit(1);
        attr.set_inherit_thread(1);
        // until Linux 5.12, either child processes are included or new threads are not; the program filters out the
        // former
        match open(&attr, scope) {
            Err(why) if matches!(why.raw_os_error(), Some(libc::EINVAL | libc::E2BIG)) => attr.set_inherit_thread(0),
            done => return done,
        }
    }
    open(&attr, scope)
}

/// An event that fires on each such access to memory; threads that a traced thread creates are traced too.
pub(super) fn breakpoint(address: u64, length: u64, mode: u32, scope: Scope) -> io::Result<OwnedFd> {
    let mut attr = event(libbpf_sys::PERF_TYPE_BREAKPOINT, 0);
    attr.bp_type = mode;
    attr.__bindgen_anon_1.sample_period = 1;
    attr.__bindgen_anon_3.bp_addr = address;
    // the length of an instruction does not matter: the kernel expects that of a word
    attr.__bindgen_anon_4.bp_len = if mode == BREAKPOINT_X { size_of::<usize>() as u64 } else { length };
    if scope.cpu < 0 {
        attr.set_inherit(1);
    }
    open(&attr, scope)
}

fn ioctl(event: &OwnedFd, request: libc::c_ulong, argument: libc::c_int) -> io::Result<()> {
    // SAFETY: these requests take a number, no pointer
    match unsafe { libc::ioctl(event.as_raw_fd(), request, argument) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Attaches a program without a link: there is no cookie, but Linux 4.1 supports it.
pub(super) fn set_program(event: &OwnedFd, program: i32) -> io::Result<()> {
    ioctl(event, IOC_SET_BPF, program)?;
    ioctl(event, IOC_ENABLE, 0)
}

/// Disables the event.
pub(super) fn disable(event: &OwnedFd) {
    // If an event cannot be disabled, its program is stopped anyway; the event ends with its descriptor.
    let _ = ioctl(event, IOC_DISABLE, 0);
}
