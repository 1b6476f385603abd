//! Numbers of the system's interface by name: errors, signals, system calls. The names are constants in the program.

use super::{Accepts, Builtin, Lower, Param, Returns, Use, control};
use crate::emit::{Cmp, Emit, IntValue, Operand};
use crate::probes::Caps;
use crate::system::syscalls;
use crate::types::{Int, Type};

/// Bytes of a name, as the language has it.
const ROOM: usize = 64;
/// The last error number, `EHWPOISON` of include/uapi/asm-generic/errno.h.
const LAST_ERROR: usize = 133;
/// `_NSIG` of include/uapi/asm-generic/signal.h.
const LAST_SIGNAL: usize = 64;
/// A number above all system calls.
const LAST_CALL: usize = 511;

pub(super) const ROWS: &[Builtin] = &[
    Builtin {
        name: "strerror",
        params: &[Param::new("error", Accepts::Int)],
        returns: Returns::Always(Type::Str(ROOM as u32)),
        needs: Caps::NONE,
        risky: false,
        lower: Lower::Code(|e, u, args| {
            let n = number(e, args);
            let n = e.fit(n, Int { bytes: 4, signed: true });
            let negative = e.cmp(Cmp::Slt, n, e.int(0));
            let n = e.select(negative, e.sub(e.int(0), n), n);
            look_up(e, u, n, "strerror", LAST_ERROR, |n| error(n).unwrap_or_else(|| "Unknown error".into()))
        }),
        doc: "What an error number means, as strerror(3) has it; its sign does not matter.",
        example: "tracepoint:syscalls:sys_exit_openat /args.ret < 0/ { @[strerror(args.ret)] = count(); }",
    },
    Builtin {
        name: "signal_name",
        params: &[Param::new("signal", Accepts::Int)],
        returns: Returns::Always(Type::Str(ROOM as u32)),
        needs: Caps::NONE,
        risky: false,
        lower: Lower::Code(|e, u, args| {
            let n = number(e, args);
            look_up(e, u, n, "signal_name", LAST_SIGNAL, |n| control::signal_name(n as i32).unwrap_or_else(|| "N/A".into()))
        }),
        doc: "A signal's name (SIGKILL); N/A for a number that is none.",
        example: "tracepoint:syscalls:sys_enter_kill { printf(\"%s to %d\\n\", signal_name(args.sig), args.pid); }",
    },
    Builtin {
        name: "syscall_name",
        params: &[Param::new("number", Accepts::Int)],
        returns: Returns::Always(Type::Str(ROOM as u32)),
        needs: Caps::NONE,
        risky: false,
        lower: Lower::Code(|e, u, args| {
            let n = number(e, args);
            look_up(e, u, n, "syscall_name", LAST_CALL, |n| syscalls::call(n as u32).unwrap_or("Unknown syscall").into())
        }),
        doc: "A system call's name by its number, as the C library has it.",
        example: "tracepoint:raw_syscalls:sys_enter { @[syscall_name(args.id)] = count(); }",
    },
];

fn number<'c>(e: &Emit<'c>, args: &[Operand<'c>]) -> IntValue<'c> {
    args.first().map_or(e.int(0), |a| e.scalar(a))
}

/// The n-th name of 0 ..= `last`; that of `last + 1` for all above.
fn look_up<'c>(e: &mut Emit<'c>, u: &Use, n: IntValue<'c>, key: &str, last: usize, name: impl Fn(usize) -> String) -> Operand<'c> {
    let names = e.once_ptr(key, |e| {
        let mut table = Vec::with_capacity((last + 2) * ROOM);
        for n in 0..=last + 1 {
            let mut text = name(n).into_bytes();
            text.truncate(ROOM - 1);
            text.resize(ROOM, 0);
            table.extend(text);
        }
        e.text(&table)
    });
    let n = e.at_most(n, last as u64 + 1);
    let by = e.mul(n, e.int(ROOM as u64));
    Operand::mem(u.ty.clone(), e.offset_by(names, by))
}

/// The C library's text for an error; none for a number that it does not know.
#[allow(unsafe_code)] // only the C library has the texts
fn error(n: usize) -> Option<String> {
    let mut buffer = [0 as libc::c_char; 256];
    // SAFETY: the buffer is as long as is said, and the text that is put there ends in NUL
    let text = unsafe {
        if libc::strerror_r(n as i32, buffer.as_mut_ptr(), buffer.len()) != 0 {
            return None;
        }
        std::ffi::CStr::from_ptr(buffer.as_ptr()).to_string_lossy().into_owned()
    };
    (!text.starts_with("Unknown error")).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_texts() {
        assert_eq!(error(2).as_deref(), Some("No such file or directory"));
        assert_eq!((error(41), error(LAST_ERROR + 1)), (None, None));
        assert!(error(LAST_ERROR).is_some());
    }

    #[test]
    fn names_fit() {
        assert!((0..=LAST_ERROR).filter_map(error).all(|t| t.len() < ROOM));
        assert!(syscalls::call(LAST_CALL as u32).is_none());
    }
}
