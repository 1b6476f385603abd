//! The lower bound of the measurements: the six typical programs, each hand-written for its purpose.
//!
//! Like the programs of rbt, all are raw tracepoints of all system calls, and return at once unless the call is openat(2). They
//! do only what the script requires. They do not count losses, distinguish 32-bit calls, or wake the reader.

#![allow(unsafe_code)] // direct bpf(2) calls

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libbpf_sys as sys;

use crate::asm::{Asm, helper};

const HASH: u32 = 1;
const ARRAY: u32 = 2;
const PERCPU_HASH: u32 = 5;
const PERCPU_ARRAY: u32 = 6;
const RINGBUF: u32 = 27;
const RAW_TRACEPOINT: u32 = 17;

/// The number of openat(2) on x86-64.
const OPENAT: i32 = libc::SYS_openat as i32;
/// Offsets in x86-64's `struct pt_regs`.
const R10: i32 = 56;
const SI: i32 = 104;
const ORIG_AX: i32 = 120;

/// A running hand-written program, which is detached when it is dropped.
pub struct Floor {
    pub programs: Vec<OwnedFd>,
    _links: Vec<OwnedFd>,
    _maps: Vec<OwnedFd>,
}

fn map(ty: u32, key: u32, value: u32, entries: u32) -> OwnedFd {
    // SAFETY: There are no options. The call returns a new descriptor.
    unsafe {
        let fd = sys::bpf_map_create(ty, c"floor".as_ptr(), key, value, entries, std::ptr::null());
        assert!(fd >= 0, "bpf_map_create: {fd}");
        OwnedFd::from_raw_fd(fd)
    }
}

/// Task storage for a number. The kernel requires BTF of its key and its value.
fn task_storage() -> OwnedFd {
    const TASK_STORAGE: u32 = 29;
    const NO_PREALLOC: u32 = 1;
    /// `BTF_KIND_INT`
    const INT: u32 = 1 << 24;
    const SIGNED: u32 = 1 << 24;
    // include/uapi/linux/btf.h: a header of 24 bytes, the types `int` and `long`, and their names
    let types = [1, INT, 4, SIGNED | 32, 5, INT, 8, SIGNED | 64];
    let names = b"\0int\0long\0";
    let size = size_of_val(&types) as u32;
    let header = [0xeb9f | 1 << 16, 24, 0, size, size, names.len() as u32];
    let btf: Vec<u8> = header.iter().chain(&types).flat_map(|word| word.to_ne_bytes()).chain(*names).collect();
    // SAFETY: The BTF and the options outlive the calls, which return new descriptors.
    unsafe {
        let types = sys::bpf_btf_load(btf.as_ptr().cast(), btf.len() as u64, std::ptr::null_mut());
        assert!(types >= 0, "bpf_btf_load: {types}");
        let types = OwnedFd::from_raw_fd(types);
        let opts = sys::bpf_map_create_opts {
            sz: size_of::<sys::bpf_map_create_opts>() as u64,
            btf_fd: types.as_raw_fd() as u32,
            btf_key_type_id: 1,
            btf_value_type_id: 2,
            map_flags: NO_PREALLOC,
            ..Default::default()
        };
        let fd = sys::bpf_map_create(TASK_STORAGE, c"floor".as_ptr(), 4, 8, 0, &opts);
        assert!(fd >= 0, "bpf_map_create: {fd}");
        OwnedFd::from_raw_fd(fd)
    }
}

fn attach(event: &std::ffi::CStr, asm: &Asm) -> (OwnedFd, OwnedFd) {
    let insns = asm.done();
    let mut log = vec![0u8; 1 << 16];
    // SAFETY: The instructions outlive the call. The call returns new descriptors.
    unsafe {
        let load = |log: &mut [u8]| {
            let mut opts = sys::bpf_prog_load_opts {
                sz: size_of::<sys::bpf_prog_load_opts>() as u64,
                log_level: u32::from(!log.is_empty()),
                log_size: log.len() as u32,
                log_buf: if log.is_empty() { std::ptr::null_mut() } else { log.as_mut_ptr().cast() },
                ..Default::default()
            };
            sys::bpf_prog_load(RAW_TRACEPOINT, c"floor".as_ptr(), c"GPL".as_ptr(), insns.as_ptr(), insns.len() as u64, &mut opts)
        };
        let mut fd = load(&mut []);
        if fd < 0 {
            fd = load(&mut log);
        }
        assert!(fd >= 0, "{}", String::from_utf8_lossy(&log));
        let program = OwnedFd::from_raw_fd(fd);
        let link = sys::bpf_raw_tracepoint_open(event.as_ptr(), fd);
        assert!(link >= 0, "bpf_raw_tracepoint_open: {link}");
        (program, OwnedFd::from_raw_fd(link))
    }
}

fn at_work(programs: &[(&std::ffi::CStr, &Asm)], maps: Vec<OwnedFd>) -> Floor {
    let (programs, links) = programs.iter().map(|(event, asm)| attach(event, asm)).unzip();
    Floor { programs, _links: links, _maps: maps }
}

const ENTER: &std::ffi::CStr = c"sys_enter";
const EXIT: &std::ffi::CStr = c"sys_exit";

/// Sets r6 to the context, and continues only if the call is openat(2).
fn enter() -> Asm {
    let mut a = Asm::default();
    a.mov(6, 1).load(1, 6, 8).jump_nei(1, OPENAT, "out");
    a
}

fn out(a: &mut Asm) {
    a.label("out").movi(0, 0).exit();
}

/// Loads the call's argument in `register` into r`to`.
fn argument(a: &mut Asm, to: u8, register: i32, below: i32) {
    a.load(3, 6, 0).addi(3, register).stack(1, below).movi(2, 8).call(helper::READ_KERNEL).load(to, 10, -below as i16);
}

/// Emits `*(u64 *)r0 += 1` on per-CPU memory.
fn increment(a: &mut Asm) {
    a.load(1, 0, 0).addi(1, 1).store(0, 0, 1);
}

/// Adds one to the cell of log2(r7) in a per-CPU array.
fn bucket(a: &mut Asm, map: i32) {
    a.movi(8, 0).jump_eqi(7, 0, "zero").log2(8, 7).addi(8, 1).label("zero");
    a.store32(10, -8, 8).stack(2, 8).map(1, map).call(helper::MAP_LOOKUP).jump_eqi(0, 0, "out");
    increment(a);
}

/// A program that returns at once, which shows the cost of the measurement itself.
pub fn empty() -> Floor {
    let mut a = Asm::default();
    a.movi(0, 0).exit();
    at_work(&[(ENTER, &a)], Vec::new())
}

/// `@[comm] = count()`
pub fn count(_: u32) -> Floor {
    let counts = map(PERCPU_HASH, 16, 8, 4096);
    let fd = counts.as_raw_fd();
    let mut a = enter();
    a.stack(1, 16).movi(2, 16).call(helper::COMM).stack(2, 16).map(1, fd).call(helper::MAP_LOOKUP).jump_eqi(0, 0, "new");
    increment(&mut a);
    out(&mut a);
    a.label("new").storei(10, -24, 1).stack(2, 16).stack(3, 24).movi(4, 0).map(1, fd).call(helper::MAP_UPDATE).movi(0, 0).exit();
    at_work(&[(ENTER, &a)], vec![counts])
}

/// `@ = hist(args.mode)`
pub fn hist(_: u32) -> Floor {
    let buckets = map(PERCPU_ARRAY, 4, 8, 65);
    let mut a = enter();
    argument(&mut a, 7, R10, 8);
    a.mov32(7, 7);
    bucket(&mut a, buckets.as_raw_fd());
    out(&mut a);
    at_work(&[(ENTER, &a)], vec![buckets])
}

/// `printf("%d\n", args.mode)`
pub fn print_int(_: u32) -> Floor {
    let ring = map(RINGBUF, 0, 0, 16 << 20);
    let mut a = enter();
    argument(&mut a, 7, R10, 8);
    a.map(1, ring.as_raw_fd()).movi(2, 16).movi(3, 0).call(helper::RINGBUF_RESERVE).jump_eqi(0, 0, "out");
    a.storei(0, 0, 0).store(0, 8, 7).mov(1, 0).movi(2, 1).call(helper::RINGBUF_SUBMIT);
    out(&mut a);
    at_work(&[(ENTER, &a)], vec![ring])
}

/// `printf("%s\n", str(args.filename))`. Reads the string into per-CPU memory and sends its actual length.
pub fn print_str(_: u32) -> Floor {
    let (ring, buffer) = (map(RINGBUF, 0, 0, 16 << 20), map(PERCPU_ARRAY, 4, 2048, 1));
    let mut a = enter();
    argument(&mut a, 7, SI, 8);
    a.movi(1, 0).store32(10, -8, 1).stack(2, 8).map(1, buffer.as_raw_fd()).call(helper::MAP_LOOKUP).jump_eqi(0, 0, "out");
    a.mov(8, 0).storei(8, 0, 0).mov(1, 8).addi(1, 8).movi(2, 1025).mov(3, 7).call(helper::READ_USER_STR);
    a.jump_slei(0, 0, "out").mov(3, 0).addi(3, 8).mov(2, 8).movi(4, 1).map(1, ring.as_raw_fd()).call(helper::RINGBUF_OUTPUT);
    out(&mut a);
    at_work(&[(ENTER, &a)], vec![ring, buffer])
}

/// `@start[tid] = nsecs` at the entry, and `@ = hist(nsecs - @start[tid]); delete(@start[tid])` at the exit
pub fn elapsed(_: u32) -> Floor {
    let (starts, buckets) = (map(HASH, 8, 8, 4096), map(PERCPU_ARRAY, 4, 8, 65));
    let mut a = enter();
    a.call(helper::PID_TGID).mov32(0, 0).store(10, -8, 0).call(helper::KTIME_GET_NS).store(10, -16, 0);
    a.stack(2, 8).stack(3, 16).movi(4, 0).map(1, starts.as_raw_fd()).call(helper::MAP_UPDATE);
    out(&mut a);
    let mut b = Asm::default();
    b.mov(6, 1);
    argument(&mut b, 7, ORIG_AX, 8);
    b.jump_nei(7, OPENAT, "out").call(helper::PID_TGID).mov32(0, 0).store(10, -16, 0);
    b.stack(2, 16).map(1, starts.as_raw_fd()).call(helper::MAP_LOOKUP).jump_eqi(0, 0, "out").load(9, 0, 0);
    b.call(helper::KTIME_GET_NS).mov(7, 0).sub(7, 9);
    bucket(&mut b, buckets.as_raw_fd());
    b.stack(2, 16).map(1, starts.as_raw_fd()).call(helper::MAP_DELETE);
    out(&mut b);
    at_work(&[(ENTER, &a), (EXIT, &b)], vec![starts, buckets])
}

/// The same, with a table of threads in place of the hash map. A cell has an owner and a value. Calls whose cell another thread
/// has are not measured.
pub fn elapsed_by_table(_: u32) -> Floor {
    let (cells, buckets) = (map(ARRAY, 4, 16, 4096), map(PERCPU_ARRAY, 4, 8, 65));
    let cell = |a: &mut Asm| {
        a.mov(1, 7).andi(1, 4095).store32(10, -8, 1).stack(2, 8).map(1, cells.as_raw_fd()).call(helper::MAP_LOOKUP);
        a.jump_eqi(0, 0, "out").mov(9, 0);
    };
    let mut a = enter();
    a.call(helper::PID_TGID).mov32(7, 0).call(helper::KTIME_GET_NS).mov(8, 0);
    cell(&mut a);
    a.load(1, 9, 0).jump_eq(1, 7, "own").movi(0, 0).cmpxchg(9, 0, 7).jump_nei(0, 0, "out").label("own").store(9, 8, 8);
    out(&mut a);
    let mut b = Asm::default();
    b.mov(6, 1);
    argument(&mut b, 7, ORIG_AX, 8);
    b.jump_nei(7, OPENAT, "out").call(helper::PID_TGID).mov32(7, 0);
    cell(&mut b);
    b.load(1, 9, 0).jump_ne(1, 7, "out").load(8, 9, 8).storei(9, 0, 0).call(helper::KTIME_GET_NS).mov(7, 0).sub(7, 8);
    bucket(&mut b, buckets.as_raw_fd());
    out(&mut b);
    at_work(&[(ENTER, &a), (EXIT, &b)], vec![cells, buckets])
}

/// The same, with the kernel's task storage. An element stays, and is zero between two calls.
pub fn elapsed_by_task_storage(_: u32) -> Floor {
    let (starts, buckets) = (task_storage(), map(PERCPU_ARRAY, 4, 8, 65));
    let element = |a: &mut Asm, flags: i32| {
        a.call(helper::CURRENT_TASK).mov(2, 0).movi(3, 0).movi(4, flags).map(1, starts.as_raw_fd()).call(helper::TASK_STORAGE_GET);
        a.jump_eqi(0, 0, "out").mov(9, 0);
    };
    let mut a = enter();
    a.call(helper::KTIME_GET_NS).mov(8, 0);
    element(&mut a, 1);
    a.store(9, 0, 8);
    out(&mut a);
    let mut b = Asm::default();
    b.mov(6, 1);
    argument(&mut b, 7, ORIG_AX, 8);
    b.jump_nei(7, OPENAT, "out");
    element(&mut b, 0);
    b.load(8, 9, 0).jump_eqi(8, 0, "out").storei(9, 0, 0).call(helper::KTIME_GET_NS).mov(7, 0).sub(7, 8);
    bucket(&mut b, buckets.as_raw_fd());
    out(&mut b);
    at_work(&[(ENTER, &a), (EXIT, &b)], vec![starts, buckets])
}

/// `/pid == 1/`
pub fn reject(_: u32) -> Floor {
    let counts = map(PERCPU_ARRAY, 4, 8, 1);
    let mut a = enter();
    a.call(helper::PID_TGID).shri(0, 32).jump_nei(0, 1, "out");
    a.movi(1, 0).store32(10, -8, 1).stack(2, 8).map(1, counts.as_raw_fd()).call(helper::MAP_LOOKUP).jump_eqi(0, 0, "out");
    increment(&mut a);
    out(&mut a);
    at_work(&[(ENTER, &a)], vec![counts])
}
