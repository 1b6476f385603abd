//! Numbers of system calls, by the names of their tracepoints.
//!
//! A tracepoint has the name of the kernel's function (`SYSCALL_DEFINEn(newfstat, …)`), which is usually the name of the call,
//! but not always: `newfstat` is `fstat`, `umount` is `umount2`. Numbers never change on an architecture, so its row has them.

use crate::system::machine::arch::{Arch, HERE};

/// The number of a system call, or `None` if the architecture lacks it.
pub fn number(arch: &Arch, name: &str) -> Option<u32> {
    let at = arch.calls.binary_search_by(|(n, _)| (*n).cmp(name)).ok()?;
    arch.calls.get(at).map(|(_, number)| *number)
}

/// The name of the call's tracepoint.
pub fn name(number: u32) -> Option<&'static str> {
    HERE.calls.iter().find(|(_, n)| *n == number).map(|(name, _)| *name)
}

/// The name of the call in user space (`include/uapi/asm/unistd_64.h`).
pub fn call(number: u32) -> Option<&'static str> {
    HERE.other_calls.iter().find(|(_, n)| *n == number).map(|(name, _)| *name).or_else(|| name(number))
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn sorted_and_known() {
        for (name, call) in [
            ("read", libc::SYS_read),
            ("newfstat", libc::SYS_fstat),
            ("newstat", libc::SYS_stat),
            ("newlstat", libc::SYS_lstat),
            ("newuname", libc::SYS_uname),
            ("sendfile64", libc::SYS_sendfile),
            ("umount", libc::SYS_umount2),
            ("openat2", libc::SYS_openat2),
        ] {
            assert_eq!(number(HERE, name).map(i64::from), Some(call), "{name}");
        }
        assert_eq!((number(HERE, "fstat"), number(HERE, "")), (None, None));
        assert_eq!(name(5), Some("newfstat"));
    }
}
