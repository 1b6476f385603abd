//! Addresses and registers.

use super::{Accepts, Builtin, CallInfo, Codegen, Lit, Param, Returns};
use crate::diag::Diagnostic;
use crate::emit::{Cmp, Helper, Operand, PERF_CONTEXT};
use crate::probes::{ContextFeatures, FileLocation, iter};
use crate::system::{Feature, TypeName};
use crate::types::{Int, Space, Type};

const U64: Int = Int { bytes: 8, signed: false };

/// The layout behind a perf event's context (include/linux/perf_event.h). Programs see `struct bpf_perf_event_data`
/// (include/uapi/linux/bpf_perf_event.h), but only if they read it directly, without a variable.
/// Members that only the visible structure has, and their paths in this one.
const SHOWN_MEMBERS: &[(&str, &[&str])] = &[("sample_period", &["data", "period"]), ("addr", &["data", "addr"])];

/// The path to a member that a structure only appears to have.
pub fn shown_member(structure: &str, member: &str) -> Option<&'static [&'static str]> {
    let row = SHOWN_MEMBERS.iter().find(|(name, _)| *name == member)?;
    (structure == PERF_CONTEXT).then_some(row.1)
}

pub(super) const ROWS: &[Builtin] = &[
    Builtin {
        name: "reg",
        params: &[Param::new("name", Accepts::LitStr)],
        returns: Returns::By(|f| {
            let name = String::from_utf8_lossy(f.text(0).unwrap_or_default()).into_owned();
            let arch = f.sys.arch();
            match arch.register(&name) {
                Some(offset) => {
                    f.bind_consts(&[i64::from(offset)]);
                    Ok(Type::U64)
                }
                None => {
                    let d = Diagnostic::error("unknown-register", f.span(0), format!("{} has no register `{name}`", arch.name));
                    Err(match arch.others_with_register(&name) {
                        Some(other) => {
                            d.help(format!("`{name}` is a register of {other}; arg0, arg1, …, retval and func exist on every architecture"))
                        }
                        None => d.suggest(&name, arch.registers.iter().map(|(n, _)| *n)),
                    })
                }
            }
        }),
        needs: ContextFeatures::REGS,
        risky: false,
        codegen: Codegen::Code(|e, u, _| Operand::u64(e.load_ctx(u.const_at(0) as u32, U64))),
        doc: "Returns the value of a register at the probe. On x86_64, the registers are r8 to r15, ax, bx, cx, dx, si, di, bp, sp, ip, pc, cs, ss, flags, orig_rax. On aarch64, they are x0 to x30, fp, lr, sp, pc, ip, pstate, orig_x0.",
        example: "profile:hz:99 { @[reg(\"ip\")] = count(); }",
    },
    Builtin {
        name: "usermode",
        params: &[],
        returns: Returns::By(|f| {
            // Without registers, it is only known that rbt itself ran begin and end.
            let special = f.site.kind.probetype() != f.site.kind.name();
            let (at, bits) = f.sys.arch().mode;
            let known = f.site.kind.offers().contains(ContextFeatures::REGS);
            f.bind_consts(&[known.into(), special.into(), at.into(), bits as i64, f.sys.arch().user_is_zero.into()]);
            Ok(Type::uint(1))
        }),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, _| {
            if u.const_at(0) == 0 {
                return Operand::reg(u.ty.clone(), e.int(u.const_at(1) as u64));
            }
            let register = e.load_ctx(u.const_at(2) as u32, U64);
            let mode = e.and(register, e.int(u.const_at(3) as u64));
            let user = if u.const_at(4) == 1 { Cmp::Eq } else { Cmp::Ne };
            Operand::reg(u.ty.clone(), e.cmp(user, mode, e.int(0)))
        }),
        doc: "1 if the CPU was in user mode when the probe fired, 0 otherwise. It is 0 in probes without registers, and 1 in begin and end.",
        example: "profile:hz:99 { @[usermode] = count(); }",
    },
    Builtin {
        name: "kptr",
        params: &[Param::new("pointer", Accepts::Addr)],
        returns: Returns::By(|f| Ok(pointer(f, Space::Kernel))),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, args| Operand::reg(u.ty.clone(), args.first().map_or(e.int(0), |a| e.scalar(a)))),
        doc: "Marks a pointer as an address in kernel memory.",
        example: "begin { printf(\"%p\\n\", kptr(0)); }",
    },
    Builtin {
        name: "uptr",
        params: &[Param::new("pointer", Accepts::Addr)],
        returns: Returns::By(|f| Ok(pointer(f, Space::User))),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, args| Operand::reg(u.ty.clone(), args.first().map_or(e.int(0), |a| e.scalar(a)))),
        doc: "Marks a pointer as an address in the memory of the current process.",
        example: "tracepoint:syscalls:sys_enter_prctl /args.option == 15/ { printf(\"%s\\n\", str(uptr(args.arg2))); }",
    },
    Builtin {
        name: "kaddr",
        params: &[Param::new("symbol", Accepts::LitStr)],
        returns: Returns::Always(Type::U64),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Fold(|f| {
            let name = String::from_utf8_lossy(f.text(0).unwrap_or_default()).into_owned();
            match f.sys.kernel_symbol(&name) {
                Some(addr) => Ok(Lit::Int(addr as i64)),
                None => Err(match f.sys.hidden_symbols() {
                    Some(why) => {
                        let d = Diagnostic::error("no-kernel-symbol", f.span(0), "the kernel hides symbol addresses from this user");
                        d.help(why)
                    }
                    None => Diagnostic::error("no-kernel-symbol", f.span(0), format!("the kernel has no symbol `{name}`")),
                }),
            }
        }),
        doc: "Returns the address of a kernel symbol. rbt looks it up in /proc/kallsyms when it checks the script.",
        example: "begin { printf(\"%p\\n\", kaddr(\"vfs_read\")); }",
    },
    Builtin {
        name: "percpu_kaddr",
        params: &[Param::new("symbol", Accepts::LitStr), Param::optional("cpu", Accepts::Int)],
        returns: Returns::By(per_cpu_address),
        needs: ContextFeatures::NONE,
        risky: false,
        // kept: the address of the kernel's offsets of the CPUs' areas, the symbol's own offset, and the number of CPUs
        codegen: Codegen::Code(|e, u, args| {
            let cpu = match args.get(1) {
                Some(cpu) => e.scalar(cpu),
                None => e.cpu(),
            };
            let there = e.cmp(Cmp::Ult, cpu, e.int(u.const_at(2) as u64));
            let (table, symbol) = (e.int(u.const_at(0) as u64), e.int(u.const_at(1) as u64));
            let addr = e.choose(
                there,
                |e| {
                    let at = e.add(table, e.mul(cpu, e.int(8)));
                    let area = e.read_int(Space::Kernel, at, U64);
                    e.add(area, symbol)
                },
                |e| e.int(0),
            );
            Operand::u64(addr)
        }),
        doc: "Returns the address of a CPU's copy of a per-CPU kernel variable. The default is the current CPU. The address is 0 if the CPU does not exist.",
        example: "begin { printf(\"%p\\n\", percpu_kaddr(\"runqueues\", 0)); }",
    },
    Builtin {
        name: "container_of",
        params: &[Param::new("pointer", Accepts::Addr), Param::new("type", Accepts::Any), Param::new("member", Accepts::Any)],
        returns: Returns::By(|f| Ok(f.args.get(1).map_or(Type::U64, |t| t.ty.clone().ptr(Space::Unknown)))),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Source("macro container_of(ptr, type, member) { (typeof(type) *)((uint8 *)ptr - offsetof(type, member)) }"),
        doc: "Returns a pointer to the structure that contains a member, from a pointer to the member: `container_of(pointer, typeof(struct name), member)`.",
        example: "begin { print(container_of(&curtask.pid, typeof(struct task_struct), pid) == curtask); }",
    },
    Builtin {
        name: "write_user",
        params: &[Param::new("to", Accepts::Addr), Param::new("from", Accepts::StrOrAddr), Param::new("length", Accepts::Int)],
        returns: Returns::By(|f| match f.int(2) {
            Some(n) if !(0..=f.settings.max_strlen as i64).contains(&n) => {
                let message = format!("{} writes up to {} bytes", f.name, f.settings.max_strlen);
                Err(Diagnostic::error("out-of-range", f.span(2), message).help("raise it with the setting max_strlen"))
            }
            _ => {
                f.bind_consts(&[f.settings.max_strlen as i64]);
                Ok(Type::Bool)
            }
        }),
        needs: ContextFeatures::NONE,
        risky: true,
        codegen: Codegen::Effect(|e, u, args| {
            let (Some(to), Some(from), Some(n)) = (args.first(), args.get(1), args.get(2)) else { return Operand::void() };
            let most = u.int(2).unwrap_or(u.const_at(0)).max(0) as u64;
            let to = e.scalar(to);
            let n = e.scalar(n);
            let (addr, space) = e.address(from);
            let bytes = e.alloc(most as u32);
            let nothing = e.cmp(Cmp::Eq, n, e.int(0));
            let done = e.choose(
                nothing,
                |e| e.int(1),
                |e| {
                    // the kernel's helper does not accept a length that may be 0, so the code shows the verifier that
                    // it is not
                    let less = e.sub(n, e.int(1));
                    let less = e.at_most(less, most.saturating_sub(1));
                    let n = e.add(less, e.int(1));
                    e.read_bounded(space, bytes, n, addr);
                    let r = e.call(Helper::ProbeWriteUser, &[to.into(), bytes.into(), n.into()]);
                    e.cmp(Cmp::Eq, r, e.int(0))
                },
            );
            Operand::reg(u.ty.clone(), done)
        }),
        doc: "Writes bytes to the memory of the current process. It returns true on success.",
        example: "uprobe:libc:getenv /comm == \"nobody\"/ { write_user(arg0, \"HOME\", 5); }",
    },
    Builtin {
        name: "unwatch",
        params: &[Param::new("address", Accepts::Addr)],
        returns: Returns::Always(Type::Void),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Effect(|_, _, _| Operand::void()),
        doc: "Does nothing, because watchpoints end with the run. It exists for compatibility with older scripts.",
        example: "begin { unwatch(0); }",
    },
    Builtin {
        name: "uaddr",
        params: &[Param::new("symbol", Accepts::LitStr)],
        returns: Returns::By(user_address),
        needs: ContextFeatures::BINARY,
        risky: false,
        // kept: the symbol's address, and how to find the load address of the binary: 0 it does not move, 1 the probe
        // is at its entry (then the entry's address, and the register that holds the current one), 2 at its return
        codegen: Codegen::Code(|e, u, _| {
            let symbol = e.int(u.const_at(0) as u64);
            let here = match u.const_at(1) {
                0 => return Operand::reg(u.ty.clone(), symbol),
                1 => e.load_ctx(u.const_at(3) as u32, U64),
                _ => {
                    let ctx = e.ctx();
                    e.call(Helper::GetFuncIp, &[ctx.into()])
                }
            };
            let moved = e.sub(here, e.int(u.const_at(2) as u64));
            Operand::reg(u.ty.clone(), e.add(moved, symbol))
        }),
        doc: "Returns the address of a symbol of the probed binary in the current process, as a pointer to an integer of the symbol's size.",
        example: "uprobe:/bin/bash:readline { printf(\"%s\\n\", str(*uaddr(\"ps1_prompt\"))); }",
    },
    Builtin {
        name: "bswap",
        params: &[Param::new("integer", Accepts::Int)],
        returns: Returns::By(|f| {
            let arg = f.args.first();
            let bytes = match arg.and_then(|a| a.lit.as_ref()).filter(|_| arg.is_some_and(|a| a.ty == Type::I64)) {
                // a literal is as wide as necessary
                Some(Lit::Int(n)) => [1u8, 2, 4].into_iter().find(|b| n >> (8 * b - 1) == n >> 63).unwrap_or(8),
                _ => arg.and_then(|a| a.ty.as_int()).map_or(8, |i| i.bytes),
            };
            Ok(Type::uint(bytes))
        }),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, args| {
            let v = args.first().map_or(e.int(0), |a| e.scalar(a));
            let bytes = u.ty.size() as u8;
            let v = if bytes < 2 { e.fit(v, Int { bytes: 1, signed: false }) } else { e.swap_bytes(v, bytes) };
            Operand::reg(u.ty.clone(), v)
        }),
        doc: "Returns an integer with its bytes in reverse order.",
        example: "begin { printf(\"%x\\n\", bswap((uint16)0x1234)); }",
    },
];

fn pointer(f: &CallInfo, space: Space) -> Type {
    match f.args.first().map(|a| &a.ty) {
        Some(Type::Ptr(to, _)) => Type::Ptr(to.clone(), space),
        _ => Type::Ptr(Box::new(Type::Void), space),
    }
}

/// The kernel stores a symbol's offset within each CPU's area, and the positions of the areas in an array
/// (mm/percpu.c).
fn per_cpu_address(f: &CallInfo) -> Result<Type, Diagnostic> {
    let name = String::from_utf8_lossy(f.text(0).unwrap_or_default()).into_owned();
    let per_cpu = f.sys.kernel_variable(&name).is_some_and(|section| section.starts_with(".data..percpu"));
    if !per_cpu {
        let d = Diagnostic::error("no-kernel-symbol", f.span(0), format!("the kernel has no per-CPU variable `{name}`"));
        return Err(d.help("the kernel's BTF must describe it"));
    }
    let (Some(symbol), Some(table)) = (f.sys.kernel_symbol(&name), f.sys.kernel_symbol("__per_cpu_offset")) else {
        let d = Diagnostic::error("no-kernel-symbol", f.span(0), "this kernel does not provide the addresses of its variables");
        return Err(d.help("it was built without CONFIG_KALLSYMS_ALL, or /proc/kallsyms is not readable"));
    };
    f.bind_consts(&[table as i64, symbol as i64, f.sys.possible_cpus().into()]);
    Ok(Type::U64)
}

fn user_address(f: &CallInfo) -> Result<Type, Diagnostic> {
    let name = String::from_utf8_lossy(f.text(0).unwrap_or_default()).into_owned();
    let Some(FileLocation { path, offset, ret, .. }) = f.site.attach.file_location() else {
        return Err(Diagnostic::error("unsupported-in-probe", f.span, format!("{} needs a probe on a user-space binary", f.name)));
    };
    if ret && !f.sys.has(Feature::UprobeMulti) {
        // as for `func`: see the `context` of uretprobe
        let d = Diagnostic::error("unsupported-in-probe", f.span, format!("{} cannot be used in return probes on this kernel", f.name));
        return Err(d.help("a newer kernel supports it"));
    }
    let binary = f.sys.binary(path).map_err(|m| Diagnostic { help: m.help, ..Diagnostic::error("unavailable", f.span, m.what) })?;
    let object = binary.objects.iter().find(|(n, _, _)| *n == name).map(|(_, addr, size)| (*addr, *size));
    let Some((addr, size)) = object.or_else(|| binary.functions_named(&name).next().map(|s| (s.addr, 8))) else {
        let names = binary.objects.iter().map(|(n, _, _)| n.as_str());
        let d = Diagnostic::error("unknown-symbol", f.span(0), format!("{} has no symbol `{name}`", path.display()));
        return Err(d.suggest(&name, names));
    };
    match binary.addr_of_offset(offset) {
        Some(here) if binary.pie => f.bind_consts(&[addr as i64, if ret { 2 } else { 1 }, here as i64, f.sys.arch().ip.into()]),
        _ => f.bind_consts(&[addr as i64, 0]),
    }
    let bytes = match size {
        1 | 2 | 4 => size as u8,
        _ => 8,
    };
    Ok(Type::uint(bytes).ptr(Space::User))
}

/// `struct pt_regs *` or the context of a perf event, if the kernel's types are known.
pub(super) fn context_type(f: &CallInfo) -> Type {
    let env = f.env();
    let found = match f.site.attach.objects() {
        Some((objects, _)) => iter::context_struct(objects, f.sys),
        None => f.sys.type_named(TypeName::Struct, f.site.kind.program(f.site, &env).row().ctx_struct),
    };
    match found {
        Some(context) => context.ptr(Space::Kernel),
        None => Type::U64,
    }
}
