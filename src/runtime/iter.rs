//! Iterators: a link is created for a kind of object, and each read of it visits all objects once.
//!
//! Source: `struct bpf_link_info`'s `iter` and `union bpf_iter_link_info` of include/uapi/linux/bpf.h; kernel/bpf/bpf_iter.c.
#![allow(unsafe_code)] // bpf(2)

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libbpf_sys::{BPF_CGROUP_ITER_DESCENDANTS_PRE, BPF_TRACE_ITER, bpf_iter_link_info, bpf_link_create_opts};

/// The number of objects between two reads of the records. Each object writes a byte.
const OBJECTS: usize = 256;

/// Creates a link for a kind of object, limited to the process `pid` if that is given and the kernel supports it (Linux 6.1;
/// the program also filters).
pub(super) fn link(name: &str, pid: Option<u32>, program: RawFd) -> io::Result<OwnedFd> {
    let mut chosen = bpf_iter_link_info::default();
    if let Some(pid) = pid {
        chosen.task.pid = pid;
        match create(program, Some(&mut chosen)) {
            Err(why) if matches!(why.raw_os_error(), Some(libc::EINVAL | libc::E2BIG)) => return create(program, None),
            made => return made,
        }
    }
    if name == "cgroup" {
        // this one needs an order; parents precede their children, from the root
        chosen.cgroup.order = BPF_CGROUP_ITER_DESCENDANTS_PRE;
        return create(program, Some(&mut chosen));
    }
    create(program, None)
}

fn create(program: RawFd, chosen: Option<&mut bpf_iter_link_info>) -> io::Result<OwnedFd> {
    let mut opts = bpf_link_create_opts { sz: size_of::<bpf_link_create_opts>() as u64, ..Default::default() };
    if let Some(chosen) = chosen {
        opts.iter_info_len = size_of::<bpf_iter_link_info>() as u32;
        opts.iter_info = chosen;
    }
    // SAFETY: what the options point to outlives the call
    owned(unsafe { libbpf_sys::bpf_link_create(program, 0, BPF_TRACE_ITER, &opts) })
}

/// Creates a reader. Each read visits further objects.
pub(super) fn reader(link: &OwnedFd) -> io::Result<File> {
    // SAFETY: takes numbers
    owned(unsafe { libbpf_sys::bpf_iter_create(link.as_raw_fd()) }).map(File::from)
}

/// Visits further objects; false at the end.
pub(super) fn read_objects(reader: &mut File) -> io::Result<bool> {
    let mut bytes = [0; OBJECTS];
    loop {
        match reader.read(&mut bytes) {
            Ok(n) => return Ok(n > 0),
            // very many objects were skipped without a byte: the next read continues there
            Err(why) if matches!(why.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => {}
            Err(why) => return Err(why),
        }
    }
}

/// Keeps a link beyond the run, as a file of the BPF file system.
pub(super) fn pin(link: &OwnedFd, path: &Path) -> io::Result<()> {
    let shown = path.display();
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path outlives the call
    match unsafe { libbpf_sys::bpf_obj_pin(link.as_raw_fd(), name.as_ptr()) } {
        0 => Ok(()),
        error => Err(match -error {
            libc::EEXIST => io::Error::other(format!("{shown} exists; remove it first, or choose another name")),
            libc::ENOENT => io::Error::other(format!("the directory of {shown} does not exist; create it first")),
            libc::EPERM | libc::EINVAL => {
                io::Error::other(format!("{shown} is not on a BPF file system; mount one: mount -t bpf bpf /sys/fs/bpf"))
            }
            errno => io::Error::from_raw_os_error(errno),
        }),
    }
}

/// libbpf's functions return a descriptor or a negative errno.
fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: new, and not owned elsewhere
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
