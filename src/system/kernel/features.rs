//! The BPF features of the running kernel, found by trying them.
//!
//! Each test takes one or two small system calls (under 0.2 ms), and runs only when needed: see also `known_features`. The structures of `bpf(2)` are
//! those of the kernel's `include/uapi/linux/bpf.h`; a kernel rejects what it does not know.

#![allow(unsafe_code)] // bpf(2)

use crate::system::syscalls;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::system::Feature;
use crate::system::kernel::{known_features, preemption, prog_type};
use crate::system::machine::rights;

/// Caches the results of one run.
#[derive(Default)]
pub struct Features {
    known: RefCell<BTreeMap<Feature, bool>>,
    calls: RefCell<BTreeMap<(u32, u32), bool>>,
}

impl Features {
    /// Tests a feature, at most once. Without permission to test it, it counts as missing.
    pub fn has(&self, feature: Feature) -> bool {
        if let Some(known) = self.known.borrow().get(&feature) {
            return *known;
        }
        let answer = known_features::get(feature).unwrap_or_else(|| {
            let Answer { holds, lasts } = probe(feature);
            if lasts {
                known_features::learn(feature, holds);
            }
            holds
        });
        self.known.borrow_mut().insert(feature, answer);
        answer
    }

    /// May a program of this type call the kernel function with this BTF ID? Types that need a target are tested with it.
    pub fn may_call(&self, function: u32, program_type: u32, target: Option<LoadTarget>) -> bool {
        *self.calls.borrow_mut().entry((function, program_type)).or_insert_with(|| may_call(function, program_type, target))
    }
}

/// May this user load programs at all?
pub(in crate::system) fn may_ask() -> io::Result<()> {
    load(prog_type::RAW_TRACEPOINT, 0, &RETURN_ZERO, None).map(|_| ())
}

/// The result of a test.
#[derive(Clone, Copy, Debug)]
struct Answer {
    holds: bool,
    /// No other condition has this result, and it is valid until the next boot.
    lasts: bool,
}

fn probe(feature: Feature) -> Answer {
    let holds = match feature {
        Feature::ShortKeys => return short_keys(),
        Feature::AllocatesAnywhere => return allocates_anywhere(),
        // the administrator can change it
        Feature::PreemptedPrograms => return Answer { holds: preemption::preempts_programs(), lasts: false },
        // Only creating a link is conclusive: older kernels load the program and ignore an unknown `expected_attach_type`.
        Feature::UprobeMulti => uprobe_multi(),
        Feature::KprobeMulti => kprobe_multi(TRACE_KPROBE_MULTI),
        Feature::KprobeSession => kprobe_multi(TRACE_KPROBE_SESSION),
        // These tests need the ID of a function: see `trampoline` and `takes_argument`.
        Feature::Trampoline | Feature::NumberPointers => false,
        // The kernel's types show these: see `Live`.
        Feature::RecursionCheck | Feature::SocketCookie | Feature::StructArguments | Feature::ManyArguments => false,
        // The kernel registers this directory with CONFIG_KPROBE_EVENTS (kernel/events/core.c).
        Feature::Kprobe => std::path::Path::new("/sys/bus/event_source/devices/kprobe/type").exists(),
        // The change that added the cookie to the link also added the helper to these program types (5.15 and 6.10). So if the
        // verifier accepts the helper, the link has a cookie.
        Feature::PerfCookie => load(prog_type::TRACEPOINT, 0, &CALL_GET_ATTACH_COOKIE, None).is_ok(),
        Feature::RawTracepointCookie => load(prog_type::RAW_TRACEPOINT, 0, &CALL_GET_ATTACH_COOKIE, None).is_ok(),
        // Signed division sets the offset field, which must be 0 for older verifiers.
        Feature::CpuV4 => load(prog_type::RAW_TRACEPOINT, 0, &SIGNED_DIVISION, None).is_ok(),
        Feature::Fetch => load(prog_type::RAW_TRACEPOINT, 0, &FETCH_ADD, None).is_ok(),
        Feature::SleepingUprobes => load_with(prog_type::KPROBE, 0, SLEEPABLE, &RETURN_ZERO, None).is_ok(),
        Feature::Override => load(prog_type::KPROBE, 0, &CALL_OVERRIDE, None).is_ok(),
        // The magic number in the machine's byte order. The types are parsed only when they are needed.
        Feature::Btf => {
            let mut magic = [0; 2];
            std::fs::File::open("/sys/kernel/btf/vmlinux").and_then(|mut f| io::Read::read_exact(&mut f, &mut magic)).is_ok()
                && u16::from_ne_bytes(magic) == 0xeb9f
        }
        // The kernel's types show this: see `Live`.
        Feature::SharedStacks => true,
        Feature::Loop => offers(&CALL_LOOP),
        Feature::ForEach => offers(&CALL_FOR_EACH),
        Feature::PercpuLookup => offers(&CALL_PERCPU_LOOKUP),
        Feature::Tai => offers(&CALL_TAI),
        Feature::AncestorCgroup => load(prog_type::RAW_TRACEPOINT, 0, &CALL_ANCESTOR_CGROUP, None).is_ok(),
    };
    // Other mounts may hide a file. A test that fails may lack memory or permission.
    let is_a_file = matches!(feature, Feature::Kprobe | Feature::Btf);
    Answer { holds, lasts: holds && !is_a_file && feature != Feature::SharedStacks }
}

fn short_keys() -> Answer {
    const HASH: u32 = 1;
    let mut attr = MapCreate { map_type: HASH, key_size: crate::system::SHORT_KEY + 1, value_size: 4, max_entries: 1, flags: 0 };
    match bpf(MAP_CREATE, &mut attr) {
        Ok(_) => Answer { holds: false, lasts: true },
        Err(e) if e.raw_os_error() == Some(libc::E2BIG) => Answer { holds: true, lasts: true },
        Err(_) => Answer { holds: false, lasts: false },
    }
}

/// Does the kernel have this helper? A valid call would need a callback with function info, and so BTF. The log of an invalid
/// call shows the reason for the rejection: the arguments if the helper exists, else the helper.
fn offers(call: &[Insn]) -> bool {
    let mut log = [0u8; 4096];
    match load(prog_type::RAW_TRACEPOINT, 0, call, Some(&mut log)) {
        Ok(_) => true,
        Err(_) => {
            let log = String::from_utf8_lossy(&log);
            let refused = ["invalid func ", "unknown func ", "cannot use helper "].iter().any(|t| log.contains(t));
            // If the log is empty, the verifier did not run (no permission).
            !log.trim_matches('\0').is_empty() && !refused
        }
    }
}

/// May a program of a counter use a map that allocates elements? Such a program may run in any interrupt, so the verifier
/// rejects this if it is not safe (`check_map_prog_compatibility` of kernel/bpf/verifier.c).
fn allocates_anywhere() -> Answer {
    const HASH: u32 = 1;
    const NO_PREALLOC: u32 = 1;
    const MAP_FD: u8 = 1 << 4; // BPF_PSEUDO_MAP_FD as source register
    let mut attr = MapCreate { map_type: HASH, key_size: 4, value_size: 4, max_entries: 1, flags: NO_PREALLOC };
    // without an answer, elements that are allocated in advance are right everywhere
    let Ok(map) = bpf(MAP_CREATE, &mut attr) else { return Answer { holds: false, lasts: false } };
    // r1 = map; r0 = 0
    let use_it = [Insn(0x18, MAP_FD | 1, 0, map.as_raw_fd()), Insn(0, 0, 0, 0), Insn(0xb7, 0, 0, 0), EXIT];
    let holds = load(prog_type::PERF_EVENT, 0, &use_it, None).is_ok();
    Answer { holds, lasts: holds }
}

/// Makes a call without arguments. The verifier checks whether the program may make the call before it checks the arguments,
/// and the log shows the reason (`check_kfunc_call` of kernel/bpf/verifier.c).
fn may_call(function: u32, program_type: u32, target: Option<LoadTarget>) -> bool {
    const KERNEL_FUNCTION: u8 = 2 << 4; // BPF_PSEUDO_KFUNC_CALL as source register
    let call = [Insn(0x85, KERNEL_FUNCTION, 0, function as i32), Insn(0xb7, 0, 0, 0), EXIT];
    let mut log = [0u8; 4096];
    let loaded = match target {
        Some(target) => load_for(program_type, target, &call, Some(&mut log)),
        None => load(program_type, 0, &call, Some(&mut log)),
    };
    match loaded {
        Ok(_) => true,
        Err(_) => {
            let log = String::from_utf8_lossy(&log);
            !log.trim_matches('\0').is_empty() && !log.contains("is not allowed") && !log.contains("not supported")
        }
    }
}

/// Creates a link for `/`, which is not a regular file. A kernel with these links returns EBADF
/// (`bpf_uprobe_multi_link_attach`); one without them returns EINVAL before.
fn uprobe_multi() -> bool {
    const TRACE_UPROBE_MULTI: u32 = 48;
    let Ok(program) = load(prog_type::KPROBE, TRACE_UPROBE_MULTI, &RETURN_ZERO, None) else { return false };
    let offsets = [0u64];
    let mut attr = LinkCreateUprobeMulti {
        program: program.as_raw_fd() as u32,
        attach_type: TRACE_UPROBE_MULTI,
        path: c"/".as_ptr() as u64,
        offsets: offsets.as_ptr() as u64,
        count: 1,
        ..Default::default()
    };
    bpf(LINK_CREATE, &mut attr).is_err_and(|e| e.raw_os_error() == Some(libc::EBADF))
}

/// May a program on the function with this BTF ID read its n-th argument?
pub fn takes_argument(function: u32, n: u32) -> bool {
    // r0 = *(u64 *)(r1 + 8 n); r0 = 0
    tracing(function, &[Insn(0x79, 0x10, (8 * n) as i16, 0), Insn(0xb7, 0, 0, 0), EXIT]).is_ok()
}

/// What a program is loaded for: the value of `enum bpf_attach_type`, and the BTF ID of the function or the typedef.
#[derive(Clone, Copy, Debug)]
pub struct LoadTarget(u32, u32);

impl LoadTarget {
    /// The entry of a function (`BPF_TRACE_FENTRY`).
    fn entry(function: u32) -> Self {
        Self(24, function)
    }

    /// A raw tracepoint, by the typedef that describes it (`BPF_TRACE_RAW_TP`).
    pub fn raw_tracepoint(typedef: u32) -> Self {
        Self(23, typedef)
    }

    /// A hook of security modules, by the function that represents it (`BPF_LSM_MAC`).
    pub fn lsm(function: u32) -> Self {
        Self(27, function)
    }
}

/// Loads a program on the function with this BTF ID.
fn tracing(function: u32, insns: &[Insn]) -> io::Result<OwnedFd> {
    load_for(prog_type::TRACING, LoadTarget::entry(function), insns, None)
}

fn load_for(prog_type: u32, target: LoadTarget, insns: &[Insn], log: Option<&mut [u8]>) -> io::Result<OwnedFd> {
    let LoadTarget(expected_attach_type, attach_btf_id) = target;
    let load = ProgLoad { expected_attach_type, ..ProgLoad::new(prog_type, insns, log) };
    bpf(PROG_LOAD, &mut TracingLoad { load, attach_btf_id, ..Default::default() })
}

/// Can a program be loaded and attached on the function with this BTF ID? It is detached at once.
pub fn trampoline(function: u32) -> bool {
    let Ok(program) = tracing(function, &RETURN_ZERO) else { return false };
    let mut attr = RawTracepointOpen { name: 0, program: program.as_raw_fd() as u32, pad: 0 };
    const RAW_TRACEPOINT_OPEN: u32 = 17;
    bpf(RAW_TRACEPOINT_OPEN, &mut attr).is_ok()
}

/// `BPF_TRACE_KPROBE_MULTI` and `BPF_TRACE_KPROBE_SESSION` of `enum bpf_attach_type`.
const TRACE_KPROBE_MULTI: u32 = 42;
const TRACE_KPROBE_SESSION: u32 = 56;

/// Creates a link for addresses that cannot be read. A kernel with these links returns EFAULT (`bpf_kprobe_multi_link_attach`);
/// one without them returns EINVAL or EOPNOTSUPP before.
fn kprobe_multi(attach_type: u32) -> bool {
    let Ok(program) = load(prog_type::KPROBE, attach_type, &RETURN_ZERO, None) else { return false };
    let mut attr =
        LinkCreateKprobeMulti { program: program.as_raw_fd() as u32, attach_type, count: 1, addresses: !0xfff, ..Default::default() };
    bpf(LINK_CREATE, &mut attr).is_err_and(|e| e.raw_os_error() == Some(libc::EFAULT))
}

const LINK_CREATE: u32 = 28;

/// `struct bpf_insn`: opcode, registers (destination in the low bits), offset, immediate.
#[repr(C)]
#[derive(Clone, Copy)]
struct Insn(u8, u8, i16, i32);

const EXIT: Insn = Insn(0x95, 0, 0, 0);
const RETURN_ZERO: [Insn; 2] = [Insn(0xb7, 0, 0, 0), EXIT];
/// r0 = bpf_get_attach_cookie(ctx); r0 = 0
const CALL_GET_ATTACH_COOKIE: [Insn; 3] = [Insn(0x85, 0, 0, 174), Insn(0xb7, 0, 0, 0), EXIT];
/// r0 = bpf_for_each_map_elem(ctx, ?, ?, ?)
const CALL_FOR_EACH: [Insn; 3] = [Insn(0x85, 0, 0, 164), Insn(0xb7, 0, 0, 0), EXIT];
/// The same without arguments; r0 = bpf_map_lookup_percpu_elem(); r0 = 0
const CALL_PERCPU_LOOKUP: [Insn; 3] = [Insn(0x85, 0, 0, 195), Insn(0xb7, 0, 0, 0), EXIT];
/// r0 = bpf_ktime_get_tai_ns(); r0 = 0
const CALL_TAI: [Insn; 3] = [Insn(0x85, 0, 0, 208), Insn(0xb7, 0, 0, 0), EXIT];
/// r1 = 0; r0 = bpf_get_current_ancestor_cgroup_id(r1); r0 = 0
const CALL_ANCESTOR_CGROUP: [Insn; 4] = [Insn(0xb7, 1, 0, 0), Insn(0x85, 0, 0, 123), Insn(0xb7, 0, 0, 0), EXIT];
/// r2 = 0; r0 = bpf_override_return(ctx, r2); r0 = 0
const CALL_OVERRIDE: [Insn; 4] = [Insn(0xb7, 2, 0, 0), Insn(0x85, 0, 0, 58), Insn(0xb7, 0, 0, 0), EXIT];
/// r0 = bpf_loop(ctx, ?, ?, ?)
const CALL_LOOP: [Insn; 3] = [Insn(0x85, 0, 0, 181), Insn(0xb7, 0, 0, 0), EXIT];
/// r0 = 4; r0 s/= 2 (BPF_ALU64 | BPF_DIV | BPF_K, off 1); r0 = 0
const SIGNED_DIVISION: [Insn; 4] = [Insn(0xb7, 0, 0, 4), Insn(0x37, 0, 1, 2), Insn(0xb7, 0, 0, 0), EXIT];

/// r1 = 0; *(u64 *)(r10 - 8) = r1; r1 = atomic_fetch_add((u64 *)(r10 - 8), r1); r0 = 0
const FETCH_ADD: [Insn; 5] = [Insn(0xb7, 1, 0, 0), Insn(0x7b, 0x1a, -8, 0), Insn(0xdb, 0x1a, -8, 1), Insn(0xb7, 0, 0, 0), EXIT];

/// `union bpf_attr` for BPF_MAP_CREATE, up to `map_flags`.
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

/// `union bpf_attr` for BPF_PROG_LOAD, up to `expected_attach_type`.
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

impl ProgLoad {
    /// The verifier writes to `log`. Both slices must outlive the call of bpf(2).
    fn new(prog_type: u32, insns: &[Insn], log: Option<&mut [u8]>) -> Self {
        let (log_level, log_size, log_buf) = log.map_or((0, 0, 0), |l| (1, l.len() as u32, l.as_mut_ptr() as u64));
        Self {
            prog_type,
            insn_cnt: insns.len() as u32,
            insns: insns.as_ptr() as u64,
            license: c"GPL".as_ptr() as u64,
            log_level,
            log_size,
            log_buf,
            ..Default::default()
        }
    }
}

/// The same, up to `attach_btf_id`.
#[repr(C)]
#[derive(Default)]
struct TracingLoad {
    load: ProgLoad,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
}

/// `union bpf_attr` for BPF_RAW_TRACEPOINT_OPEN.
#[repr(C)]
struct RawTracepointOpen {
    name: u64,
    program: u32,
    pad: u32,
}

/// `union bpf_attr` for BPF_LINK_CREATE with `uprobe_multi`.
#[repr(C)]
#[derive(Default)]
struct LinkCreateUprobeMulti {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    ref_ctr_offsets: u64,
    cookies: u64,
    count: u32,
    multi_flags: u32,
    pid: u32,
    pad: u32,
}

/// `union bpf_attr` for BPF_LINK_CREATE with `kprobe_multi`.
#[repr(C)]
#[derive(Default)]
struct LinkCreateKprobeMulti {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    multi_flags: u32,
    count: u32,
    symbols: u64,
    addresses: u64,
    cookies: u64,
}

fn load(prog_type: u32, expected_attach_type: u32, insns: &[Insn], log: Option<&mut [u8]>) -> io::Result<OwnedFd> {
    load_with(prog_type, expected_attach_type, 0, insns, log)
}

/// `BPF_F_SLEEPABLE`.
const SLEEPABLE: u32 = 1 << 4;

fn load_with(prog_type: u32, expected_attach_type: u32, flags: u32, insns: &[Insn], log: Option<&mut [u8]>) -> io::Result<OwnedFd> {
    bpf(PROG_LOAD, &mut ProgLoad { prog_flags: flags, expected_attach_type, ..ProgLoad::new(prog_type, insns, log) })
}

const MAP_CREATE: u32 = 0;
const PROG_LOAD: u32 = 5;

/// Calls bpf(2) with a command that returns a descriptor.
fn bpf<T>(command: u32, attr: &mut T) -> io::Result<OwnedFd> {
    rights::lock_memory_without_limit();
    // SAFETY: `attr` begins as the kernel's union for this command does; the memory that it points to outlives the call. A
    // returned descriptor is new, so nothing else owns it.
    unsafe { syscalls::bpf(command, attr).map(|fd| OwnedFd::from_raw_fd(fd)) }
}
