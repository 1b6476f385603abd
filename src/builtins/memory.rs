//! Addresses and what is in registers.

use super::{Accepts, Builtin, Facts, Lit, Lower, Param, Returns};
use crate::diag::Diagnostic;
use crate::emit::{Helper, Operand};
use crate::probes::{Attach, Caps};
use crate::system::{Feature, TypeName};
use crate::types::{Int, Space, Type};

const U64: Int = Int { bytes: 8, signed: false };

/// x86-64's `struct pt_regs` (arch/x86/include/asm/ptrace.h): names, and offsets in bytes.
const REGISTERS: &[(&str, u32)] = &[
    ("r15", 0),
    ("r14", 8),
    ("r13", 16),
    ("r12", 24),
    ("bp", 32),
    ("bx", 40),
    ("r11", 48),
    ("r10", 56),
    ("r9", 64),
    ("r8", 72),
    ("ax", 80),
    ("cx", 88),
    ("dx", 96),
    ("si", 104),
    ("di", 112),
    ("orig_rax", 120),
    ("ip", IP),
    ("pc", IP),
    ("cs", CS),
    ("flags", 144),
    ("sp", SP),
    ("ss", 160),
];
const IP: u32 = 128;
const CS: u32 = 136;
pub(super) const SP: u32 = 152;

pub(super) const ROWS: &[Builtin] = &[
    Builtin {
        name: "reg",
        params: &[Param::new("name", Accepts::LitStr)],
        returns: Returns::By(|f| {
            let name = String::from_utf8_lossy(f.text(0).unwrap_or_default()).into_owned();
            match REGISTERS.iter().find(|(n, _)| *n == name) {
                Some((_, offset)) => {
                    f.keep(&[i64::from(*offset)]);
                    Ok(Type::U64)
                }
                None => Err(Diagnostic::error("unknown-register", f.span(0), format!("there is no register `{name}`"))
                    .suggest(&name, REGISTERS.iter().map(|(n, _)| *n))),
            }
        }),
        needs: Caps::REGS,
        risky: false,
        lower: Lower::Code(|e, u, _| Operand::u64(e.load_ctx(u.kept(0) as u32, U64))),
        doc: "A processor register's value where the probe fired: r8 to r15, ax, bx, cx, dx, si, di, bp, sp, ip, pc, cs, ss, flags, orig_rax.",
        example: "profile:hz:99 { @[reg(\"ip\")] = count(); }",
    },
    Builtin {
        name: "usermode",
        params: &[],
        returns: Returns::Always(Type::uint(1)),
        needs: Caps::REGS,
        risky: false,
        // user_mode() of arch/x86/include/asm/ptrace.h
        lower: Lower::Code(|e, u, _| {
            let cs = e.load_ctx(CS, U64);
            let ring = e.and(cs, e.int(3));
            Operand::reg(u.ty.clone(), e.cmp(crate::emit::Cmp::Ne, ring, e.int(0)))
        }),
        doc: "1 when the processor was in user mode where the probe fired, else 0.",
        example: "profile:hz:99 { @[usermode] = count(); }",
    },
    Builtin {
        name: "kptr",
        params: &[Param::new("pointer", Accepts::Addr)],
        returns: Returns::By(|f| Ok(pointer(f, Space::Kernel))),
        needs: Caps::NONE,
        risky: false,
        lower: Lower::Code(|e, u, args| Operand::reg(u.ty.clone(), args.first().map_or(e.int(0), |a| e.scalar(a)))),
        doc: "The same pointer, leading into the kernel's memory.",
        example: "begin { printf(\"%p\\n\", kptr(0)); }",
    },
    Builtin {
        name: "uptr",
        params: &[Param::new("pointer", Accepts::Addr)],
        returns: Returns::By(|f| Ok(pointer(f, Space::User))),
        needs: Caps::NONE,
        risky: false,
        lower: Lower::Code(|e, u, args| Operand::reg(u.ty.clone(), args.first().map_or(e.int(0), |a| e.scalar(a)))),
        doc: "The same pointer, leading into the process's memory.",
        example: "tracepoint:raw_syscalls:sys_enter { printf(\"%s\\n\", str(uptr(args.args[0]))); }",
    },
    Builtin {
        name: "kaddr",
        params: &[Param::new("symbol", Accepts::LitStr)],
        returns: Returns::Always(Type::U64),
        needs: Caps::NONE,
        risky: false,
        lower: Lower::Fold(|f| {
            let name = String::from_utf8_lossy(f.text(0).unwrap_or_default()).into_owned();
            match f.sys.kernel_symbol(&name) {
                Some(addr) => Ok(Lit::Int(addr as i64)),
                None => Err(Diagnostic::error("unknown-symbol", f.span(0), format!("the kernel has no symbol `{name}`"))),
            }
        }),
        doc: "Address of a kernel symbol, from /proc/kallsyms when the script is checked.",
        example: "begin { printf(\"%p\\n\", kaddr(\"vfs_read\")); }",
    },
    Builtin {
        name: "uaddr",
        params: &[Param::new("symbol", Accepts::LitStr)],
        returns: Returns::By(user_address),
        needs: Caps::BINARY,
        risky: false,
        // kept: the symbol's address, and how to find where the binary is: 0 it does not move, 1 the probe is at its
        // entry (then the entry's address), 2 at its return
        lower: Lower::Code(|e, u, _| {
            let symbol = e.int(u.kept(0) as u64);
            let here = match u.kept(1) {
                0 => return Operand::reg(u.ty.clone(), symbol),
                1 => e.load_ctx(IP, U64),
                _ => {
                    let ctx = e.ctx();
                    e.call(Helper::GetFuncIp, &[ctx.into()])
                }
            };
            let moved = e.sub(here, e.int(u.kept(2) as u64));
            Operand::reg(u.ty.clone(), e.add(moved, symbol))
        }),
        doc: "Address of a symbol of the probed binary in the current process, as a pointer to an integer of the symbol's size.",
        example: "uprobe:/bin/bash:readline { printf(\"%s\\n\", str(*uaddr(\"ps1_prompt\"))); }",
    },
    Builtin {
        name: "bswap",
        params: &[Param::new("integer", Accepts::Int)],
        returns: Returns::By(|f| {
            let int = f.args.first().and_then(|a| a.ty.as_int());
            Ok(Type::uint(int.map_or(8, |i| i.bytes)))
        }),
        needs: Caps::NONE,
        risky: false,
        lower: Lower::Code(|e, u, args| {
            let v = args.first().map_or(e.int(0), |a| e.scalar(a));
            let bytes = u.ty.size() as u8;
            let v = if bytes < 2 { e.fit(v, Int { bytes: 1, signed: false }) } else { e.swap_bytes(v, bytes) };
            Operand::reg(u.ty.clone(), v)
        }),
        doc: "An integer with its bytes in reverse order, in the same width.",
        example: "begin { printf(\"%x\\n\", bswap((uint16)0x1234)); }",
    },
];

fn pointer(f: &Facts, space: Space) -> Type {
    match f.args.first().map(|a| &a.ty) {
        Some(Type::Ptr(to, _)) => Type::Ptr(to.clone(), space),
        _ => Type::Ptr(Box::new(Type::Void), space),
    }
}

fn user_address(f: &Facts) -> Result<Type, Diagnostic> {
    let name = String::from_utf8_lossy(f.text(0).unwrap_or_default()).into_owned();
    let Attach::Uprobe { path, offset, ret, .. } = &f.site.attach else {
        return Err(Diagnostic::error("not-here", f.span, format!("{} needs a probe in a binary", f.name)));
    };
    if *ret && !f.sys.has(Feature::UprobeMulti) {
        // see the uretprobe's own context
        let d = Diagnostic::error("not-here", f.span, format!("{} cannot be used at returns on this kernel", f.name));
        return Err(d.help("a newer kernel offers it"));
    }
    let binary = f.sys.binary(path).map_err(|m| Diagnostic { help: m.help, ..Diagnostic::error("bad-binary", f.span, m.what) })?;
    let object = binary.objects.iter().find(|(n, _, _)| *n == name).map(|(_, addr, size)| (*addr, *size));
    let Some((addr, size)) = object.or_else(|| binary.functions_named(&name).next().map(|s| (s.addr, 8))) else {
        let names = binary.objects.iter().map(|(n, _, _)| n.as_str());
        let d = Diagnostic::error("unknown-symbol", f.span(0), format!("{} has no symbol `{name}`", path.display()));
        return Err(d.suggest(&name, names));
    };
    match binary.addr_of_offset(*offset) {
        Some(here) if binary.pie => f.keep(&[addr as i64, if *ret { 2 } else { 1 }, here as i64]),
        _ => f.keep(&[addr as i64, 0]),
    }
    let bytes = match size {
        1 | 2 | 4 => size as u8,
        _ => 8,
    };
    Ok(Type::uint(bytes).ptr(Space::User))
}

/// `struct pt_regs *`, where the kernel's types are known.
pub(super) fn context_type(f: &Facts) -> Type {
    match f.sys.type_named(TypeName::Struct, "pt_regs") {
        Some(regs) => regs.ptr(Space::Kernel),
        None => Type::U64,
    }
}
