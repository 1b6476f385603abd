//! Names of numbers: errors, signals, system calls. The names are constants in the program.

use super::{Accepts, Builtin, CallSite, Codegen, Decoder, EmitFn, Param, Returns, control};
use crate::diag::Diagnostic;
use crate::emit::{Builder, Cmp, IntValue, Operand};
use crate::probes::ContextFeatures;
use crate::system::events::syscalls;
use crate::types::{Deferred, Enum, Int, Type};
use crate::value::Value;

/// Size of a name in bytes, as defined by the language.
const NAME_SIZE: usize = 64;
/// The last error number, `EHWPOISON` of include/uapi/asm-generic/errno.h.
const LAST_ERROR: usize = 133;
/// `_NSIG` of include/uapi/asm-generic/signal.h.
const LAST_SIGNAL: usize = 64;
/// A number above all system calls.
const LAST_CALL: usize = 511;

/// A number; the type holds the names.
const FLAGS: &str = "flags_t";

/// By number; include/uapi/asm-generic/errno-base.h and errno.h.
#[rustfmt::skip]
const ERRORS: &[&str] = &[
    "", "EPERM", "ENOENT", "ESRCH", "EINTR", "EIO", "ENXIO", "E2BIG", "ENOEXEC", "EBADF", "ECHILD", "EAGAIN", "ENOMEM", "EACCES",
    "EFAULT", "ENOTBLK", "EBUSY", "EEXIST", "EXDEV", "ENODEV", "ENOTDIR", "EISDIR", "EINVAL", "ENFILE", "EMFILE", "ENOTTY",
    "ETXTBSY", "EFBIG", "ENOSPC", "ESPIPE", "EROFS", "EMLINK", "EPIPE", "EDOM", "ERANGE", "EDEADLK", "ENAMETOOLONG", "ENOLCK",
    "ENOSYS", "ENOTEMPTY", "ELOOP", "", "ENOMSG", "EIDRM", "ECHRNG", "EL2NSYNC", "EL3HLT", "EL3RST", "ELNRNG", "EUNATCH", "ENOCSI",
    "EL2HLT", "EBADE", "EBADR", "EXFULL", "ENOANO", "EBADRQC", "EBADSLT", "", "EBFONT", "ENOSTR", "ENODATA", "ETIME", "ENOSR",
    "ENONET", "ENOPKG", "EREMOTE", "ENOLINK", "EADV", "ESRMNT", "ECOMM", "EPROTO", "EMULTIHOP", "EDOTDOT", "EBADMSG", "EOVERFLOW",
    "ENOTUNIQ", "EBADFD", "EREMCHG", "ELIBACC", "ELIBBAD", "ELIBSCN", "ELIBMAX", "ELIBEXEC", "EILSEQ", "ERESTART", "ESTRPIPE",
    "EUSERS", "ENOTSOCK", "EDESTADDRREQ", "EMSGSIZE", "EPROTOTYPE", "ENOPROTOOPT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT",
    "EOPNOTSUPP", "EPFNOSUPPORT", "EAFNOSUPPORT", "EADDRINUSE", "EADDRNOTAVAIL", "ENETDOWN", "ENETUNREACH", "ENETRESET",
    "ECONNABORTED", "ECONNRESET", "ENOBUFS", "EISCONN", "ENOTCONN", "ESHUTDOWN", "ETOOMANYREFS", "ETIMEDOUT", "ECONNREFUSED",
    "EHOSTDOWN", "EHOSTUNREACH", "EALREADY", "EINPROGRESS", "ESTALE", "EUCLEAN", "ENOTNAM", "ENAVAIL", "EISNAM", "EREMOTEIO",
    "EDQUOT", "ENOMEDIUM", "EMEDIUMTYPE", "ECANCELED", "ENOKEY", "EKEYEXPIRED", "EKEYREVOKED", "EKEYREJECTED", "EOWNERDEAD",
    "ENOTRECOVERABLE", "ERFKILL", "EHWPOISON",
];

/// By number; strsignal(3).
#[rustfmt::skip]
const SIGNALS: &[&str] = &[
    "", "Hangup", "Interrupt", "Quit", "Illegal instruction", "Trace/breakpoint trap", "Aborted", "Bus error",
    "Floating point exception", "Killed", "User defined signal 1", "Segmentation fault", "User defined signal 2", "Broken pipe",
    "Alarm clock", "Terminated", "Stack fault", "Child exited", "Continued", "Stopped (signal)", "Stopped", "Stopped (tty input)",
    "Stopped (tty output)", "Urgent I/O condition", "CPU time limit exceeded", "File size limit exceeded", "Virtual timer expired",
    "Profiling timer expired", "Window changed", "I/O possible", "Power failure", "Bad system call",
];
/// The first signal for the use of programs: the C library reserves the two before it.
const FIRST_REAL_TIME: usize = 34;

fn signal(n: usize) -> String {
    match SIGNALS.get(n) {
        Some(text) if !text.is_empty() => (*text).to_owned(),
        _ if (FIRST_REAL_TIME..=LAST_SIGNAL).contains(&n) => format!("Real-time signal {}", n - FIRST_REAL_TIME),
        _ if n <= LAST_SIGNAL => format!("Unknown signal {n}"),
        _ => "N/A".to_owned(),
    }
}

/// A function that returns the name of a number.
const fn name_of(name: &'static str, params: &'static [Param], doc: &'static str, example: &'static str, lower: EmitFn) -> Builtin {
    Builtin {
        name,
        params,
        returns: Returns::Always(Type::Str(NAME_SIZE as u32)),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(lower),
        doc,
        example,
    }
}

pub(super) const ROWS: &[Builtin] = &[
    name_of(
        "strerror",
        &[Param::new("error", Accepts::Int)],
        "Returns the description of an error number, in bpftrace's words. It ignores the sign.",
        "tracepoint:syscalls:sys_exit_openat /args.ret < 0/ { @[strerror(args.ret)] = count(); }",
        |e, u, args| {
            let n = error_number(e, args);
            look_up(e, u, n, "strerror", LAST_ERROR, |n| error(n).unwrap_or_else(|| "Unknown error".into()))
        },
    ),
    name_of(
        "error_name",
        &[Param::new("error", Accepts::Int)],
        "Returns the name of an error number, such as ENOENT. It ignores the sign. The name is empty if the number is unknown.",
        "tracepoint:syscalls:sys_exit_openat /args.ret < 0/ { @[error_name(args.ret)] = count(); }",
        |e, u, args| {
            let n = error_number(e, args);
            look_up(e, u, n, "error_name", LAST_ERROR, |n| ERRORS.get(n).copied().unwrap_or_default().into())
        },
    ),
    Builtin {
        name: "flags",
        params: &[Param::new("value", Accepts::Int)],
        returns: Returns::By(|f| match f.args.first().map(|a| &a.ty) {
            Some(Type::Enum(e)) => Ok(Deferred::with(FLAGS, 8, [e.bytes_in_c().into(), 0], &spelt(e))),
            Some(ty) => {
                let d = Diagnostic::error("type-mismatch", f.span(0), format!("{} takes a value of an enum, but this is {ty}", f.name));
                Err(d.help("cast it to the enum that names the bits: `flags((enum name)value)`"))
            }
            None => Ok(Deferred::plain(FLAGS, 8)),
        }),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, args| {
            let n = number(e, args);
            let at = e.alloc(8);
            e.store(at, 0, 8, n);
            Operand::mem(u.ty.clone(), at)
        }),
        doc: "Prints an enum value as the names of its bits, separated by |. Bits without a name are in hexadecimal. If names share bits, the name with the most bits is used. rbt finds the names when it prints them.",
        example: "enum lock { SH = 1, EX = 2, NB = 4, UN = 8 } tracepoint:syscalls:sys_enter_flock { print(flags((enum lock)args.cmd)); }",
    },
    name_of(
        "signal_name",
        &[Param::new("signal", Accepts::Int)],
        "Returns the description of a signal, as strsignal(3) does (`Killed`), or N/A if the number is unknown.",
        "tracepoint:syscalls:sys_enter_kill { printf(\"%s to %d\\n\", signal_name(args.sig), args.pid); }",
        |e, u, args| {
            let n = number(e, args);
            look_up(e, u, n, "signal_name", LAST_SIGNAL, signal)
        },
    ),
    name_of(
        "signal_constant",
        &[Param::new("signal", Accepts::Int)],
        "Returns the name of a signal (SIGKILL), or N/A if the number is unknown.",
        "tracepoint:syscalls:sys_enter_kill { printf(\"%s to %d\\n\", signal_constant(args.sig), args.pid); }",
        |e, u, args| {
            let n = number(e, args);
            look_up(e, u, n, "signal_constant", LAST_SIGNAL, |n| control::signal_name(n as i32).unwrap_or_else(|| "N/A".into()))
        },
    ),
    name_of(
        "syscall_name",
        &[Param::new("number", Accepts::Int)],
        "Returns the name of a system call from its number.",
        "tracepoint:raw_syscalls:sys_enter { @[syscall_name(args.id)] = count(); }",
        |e, u, args| {
            let n = number(e, args);
            look_up(e, u, n, "syscall_name", LAST_CALL, |n| syscalls::call(n as u32).unwrap_or("Unknown syscall").into())
        },
    ),
];

pub(super) const DECODERS: &[Decoder] = &[Decoder {
    name: FLAGS,
    size: 8,
    from_int: false,
    decode: |tag, bytes, _| Value::Text(named_bits(low(super::word(bytes, 0), tag.params[0]), &tag.text)),
}];

/// Names and values of an enum, as the tag stores them: those with the most bits first, otherwise in the order of
/// declaration.
fn spelt(e: &Enum) -> String {
    let mut variants: Vec<_> = e.variants.iter().map(|(name, value)| (name, *value as u64)).collect();
    variants.sort_by_key(|(_, value)| std::cmp::Reverse(value.count_ones()));
    variants.iter().map(|(name, value)| format!("{name}={} ", low(*value, e.bytes_in_c().into()))).collect()
}

/// The low bytes of a number, without its sign extension.
fn low(value: u64, bytes: u32) -> u64 {
    if bytes >= 8 { value } else { value & ((1 << (8 * bytes)) - 1) }
}

fn named_bits(value: u64, spelt: &str) -> String {
    let variants = spelt.split_ascii_whitespace().filter_map(|v| v.split_once('=')).filter_map(|(n, v)| Some((n, v.parse::<u64>().ok()?)));
    let mut left = value;
    let mut found = Vec::new();
    for (name, bits) in variants {
        if bits != 0 && left & bits == bits {
            found.push((bits, name.to_string()));
            left &= !bits;
        } else if bits == 0 && value == 0 {
            return name.into();
        }
    }
    found.sort_by_key(|(bits, _)| *bits);
    if left != 0 || value == 0 {
        found.push((left, if left == 0 { "0".into() } else { format!("{left:#x}") }));
    }
    found.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join("|")
}

fn number<'c>(e: &Builder<'_, 'c>, args: &[Operand<'c>]) -> IntValue<'c> {
    args.first().map_or(e.int(0), |a| e.scalar(a))
}

/// The number of an error of either sign.
fn error_number<'c>(e: &Builder<'_, 'c>, args: &[Operand<'c>]) -> IntValue<'c> {
    let n = e.fit(number(e, args), Int { bytes: 4, signed: true });
    let negative = e.cmp(Cmp::Slt, n, e.int(0));
    e.select(negative, e.sub(e.int(0), n), n)
}

/// The n-th name of 0 ..= `last`; that of `last + 1` for all above. The index is masked, not only compared: after a
/// comparison the verifier follows both paths with their bounds, and each further name would double the number of
/// states.
fn look_up<'c>(
    e: &mut Builder<'_, 'c>,
    u: &CallSite,
    n: IntValue<'c>,
    key: &str,
    last: usize,
    name: impl Fn(usize) -> String,
) -> Operand<'c> {
    let rows = (last + 2).next_power_of_two();
    let names = e.once_ptr(key, |e| {
        let mut table = Vec::with_capacity(rows * NAME_SIZE);
        for n in 0..rows {
            let mut text = name(n.min(last + 1)).into_bytes();
            text.truncate(NAME_SIZE - 1);
            text.resize(NAME_SIZE, 0);
            table.extend(text);
        }
        e.text(&table)
    });
    let n = e.at_most(n, last as u64 + 1);
    let n = e.hide_range(n);
    let n = e.and(n, e.int(rows as u64 - 1));
    let offset = e.mul(n, e.int(NAME_SIZE as u64));
    Operand::mem(u.ty.clone(), e.offset_by(names, offset))
}

/// Errors whose description in bpftrace differs from that of the C library, by number.
const OTHER_WORDS: &[(usize, &str)] = &[
    (5, "I/O error"),
    (9, "Bad file number"),
    (11, "Try again (operation would block)"),
    (12, "Out of memory"),
    (18, "Cross-device link"),
    (23, "File table overflow"),
    (25, "Not a typewriter"),
    (33, "Math argument out of domain of func"),
    (34, "Math result not representable"),
    (35, "Resource deadlock would occur"),
    (37, "No record locks available"),
    (38, "Invalid system call number"),
    (40, "Too many symbolic links encountered"),
    (74, "Not a data message"),
    (84, "Illegal byte sequence"),
    (95, "Operation not supported on transport endpoint"),
    (102, "Network dropped connection because of reset"),
    (122, "Quota exceeded"),
    (125, "Operation Canceled"),
];

/// The description of an error; none for an unknown number.
#[allow(unsafe_code)] // only the C library has the texts
fn error(n: usize) -> Option<String> {
    if let Ok(at) = OTHER_WORDS.binary_search_by_key(&n, |(n, _)| *n) {
        return OTHER_WORDS.get(at).map(|(_, text)| (*text).to_string());
    }
    let mut buffer = [0 as libc::c_char; 256];
    // SAFETY: the buffer has the given length, and the text in it ends in NUL
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
    fn errors_have_names() {
        for (n, name) in [(0, ""), (2, "ENOENT"), (41, ""), (110, "ETIMEDOUT"), (LAST_ERROR, "EHWPOISON")] {
            assert_eq!(ERRORS.get(n), Some(&name), "{n}");
        }
        assert_eq!(ERRORS.len(), LAST_ERROR + 1);
    }

    #[test]
    fn bits_are_reported_once() {
        let int = Int { bytes: 4, signed: false };
        let variants = [("A", 1), ("B", 2), ("AB", 3), ("C", 0x10), ("AGAIN", 1)].map(|(n, v)| (n.to_string(), v)).to_vec();
        let spelt = spelt(&Enum { name: "e".into(), int, variants });
        for (value, text) in [(0, "0"), (1, "A"), (3, "AB"), (0x13, "AB|C"), (0x32, "B|C|0x20"), (0x40, "0x40")] {
            assert_eq!(named_bits(value, &spelt), text);
        }
        assert_eq!(named_bits(0, "NONE=0 A=1 "), "NONE");
        assert_eq!(named_bits(1, "NONE=0 A=1 "), "A");
    }

    #[test]
    fn names_fit() {
        assert!((0..=LAST_ERROR).filter_map(error).all(|t| t.len() < NAME_SIZE));
        assert!(syscalls::call(LAST_CALL as u32).is_none());
    }
}
