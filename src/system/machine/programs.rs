//! The loaded BPF programs and their functions, which `fentry:bpf:…` can attach to.
//!
//! The code uses `bpf(2)` directly, with the structures of the kernel's `include/uapi/linux/bpf.h`. It skips programs that are
//! unloaded while it reads the list.

#![allow(unsafe_code)] // bpf(2)

use crate::failure::reason;
use crate::system::syscalls;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::system::Missing;
use crate::system::kernel_types::btf::{Blob, Kind};

/// A function of a BPF program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProgramFunction {
    /// The ID of the program, as in `bpftool prog`.
    pub program: u32,
    /// Its name in the program's BTF: the program itself, or a function that it calls.
    pub name: String,
}

const PROG_GET_NEXT_ID: u32 = 11;
const PROG_GET_FD_BY_ID: u32 = 13;
const OBJ_GET_INFO_BY_FD: u32 = 15;
const BTF_GET_FD_BY_ID: u32 = 19;

/// Limits for values from the kernel.
const MAX_FUNCTIONS: u32 = 1 << 16;
const MAX_BTF: u32 = 16 << 20;

/// `union bpf_attr` for commands that take an ID.
#[repr(C)]
#[derive(Default)]
struct ById {
    id: u32,
    next: u32,
    flags: u32,
}

/// `union bpf_attr` for `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
struct InfoByFd {
    fd: u32,
    length: u32,
    info: u64,
}

/// `struct bpf_prog_info`, up to `nr_func_info`.
#[repr(C)]
#[derive(Default)]
struct ProgInfo {
    ty: u32,
    id: u32,
    tag: u64,
    lengths: [u32; 2],
    instructions: [u64; 2],
    load_time: u64,
    created_by_uid: u32,
    nr_map_ids: u32,
    map_ids: u64,
    name: [u8; 16],
    ifindex: u32,
    flags: u32,
    netns: [u64; 2],
    nr_jited: [u32; 2],
    jited: [u64; 2],
    btf_id: u32,
    func_info_rec_size: u32,
    func_info: u64,
    nr_func_info: u32,
    pad: u32,
}

/// `struct bpf_btf_info`, up to `id`.
#[repr(C)]
#[derive(Default)]
struct BtfInfo {
    btf: u64,
    size: u32,
    id: u32,
}

/// The functions of all programs with BTF, by program. Needs CAP_SYS_ADMIN (`bpf_prog_get_next_id` of kernel/bpf/syscall.c).
pub fn functions() -> Result<Vec<ProgramFunction>, Missing> {
    let mut all = Vec::new();
    let mut last = 0;
    loop {
        last = match next(last) {
            Ok(Some(id)) => id,
            Ok(None) => break,
            Err(e) => {
                let help = (e.raw_os_error() == Some(libc::EPERM)).then(|| "the kernel shows this to root only: run with sudo".into());
                return Err(Missing { what: format!("cannot list the loaded BPF programs: {}", reason(&e)), help });
            }
        };
        all.extend(program_functions(last).unwrap_or_default().into_iter().map(|name| ProgramFunction { program: last, name }));
    }
    Ok(all)
}

/// The ID of the next program.
fn next(after: u32) -> io::Result<Option<u32>> {
    let mut attr = ById { id: after, ..ById::default() };
    match call(PROG_GET_NEXT_ID, &mut attr) {
        Ok(_) => Ok(Some(attr.next)),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Names of a program's functions; empty without BTF.
fn program_functions(id: u32) -> io::Result<Vec<String>> {
    let program = open(id)?;
    let mut about = ProgInfo::default();
    info(&program, &mut about)?;
    let (count, size) = (about.nr_func_info, about.func_info_rec_size);
    if about.btf_id == 0 || count == 0 || count > MAX_FUNCTIONS || !(8..=256).contains(&size) {
        return Ok(Vec::new());
    }
    let mut records = vec![0u8; count as usize * size as usize];
    let info_request =
        ProgInfo { nr_func_info: count, func_info_rec_size: size, func_info: records.as_mut_ptr() as u64, ..ProgInfo::default() };
    info(&program, &mut { info_request })?;
    let Some(types) = types(about.btf_id)? else { return Ok(Vec::new()) };
    let word = |r: &[u8]| Some(u32::from_ne_bytes(r.get(4..8)?.try_into().ok()?));
    let names = records.chunks_exact(size as usize).filter_map(|record| {
        let entry = types.entry(word(record)?).filter(|e| e.kind == Kind::Func)?;
        types.string(entry.name).filter(|n| !n.is_empty()).map(str::to_owned)
    });
    Ok(names.collect())
}

/// Opens the program with this ID.
///
/// Errors: the program does not exist (or no longer does), or permission is missing.
pub fn open(id: u32) -> io::Result<OwnedFd> {
    descriptor(PROG_GET_FD_BY_ID, id)
}

fn types(id: u32) -> io::Result<Option<Blob>> {
    let btf = descriptor(BTF_GET_FD_BY_ID, id)?;
    let mut about = BtfInfo::default();
    info(&btf, &mut about)?;
    if about.size > MAX_BTF {
        return Ok(None);
    }
    let mut bytes = vec![0u8; about.size as usize];
    info(&btf, &mut BtfInfo { btf: bytes.as_mut_ptr() as u64, size: about.size, id: 0 })?;
    Ok(Blob::from_vec(bytes, None).ok())
}

fn descriptor(command: u32, id: u32) -> io::Result<OwnedFd> {
    let fd = call(command, &mut ById { id, ..ById::default() })?;
    // SAFETY: these commands return a new descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Fills `about`, whose buffers must have the declared sizes.
fn info<T>(fd: &OwnedFd, about: &mut T) -> io::Result<()> {
    let mut attr = InfoByFd { fd: fd.as_raw_fd() as u32, length: size_of::<T>() as u32, info: std::ptr::from_mut(about) as u64 };
    call(OBJ_GET_INFO_BY_FD, &mut attr).map(|_| ())
}

fn call<T>(command: u32, attr: &mut T) -> io::Result<i32> {
    // SAFETY: `attr` begins as the kernel's union for this command does; the memory that it points to is in the callers' frames
    // and has the declared sizes.
    unsafe { syscalls::bpf(command, attr) }
}
