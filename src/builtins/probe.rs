//! Information about the probe itself.

use super::{Builtin, CallInfo, Codegen, Lit, Returns, memory};
use crate::diag::Diagnostic;
use crate::emit::Operand;
use crate::probes::{ArgRef, ContextFeatures, search, timer};
use crate::types::Type;

/// Names of probes are padded to a multiple of this size in bytes, so that probes that differ only in their names can share a
/// program.
const NAME_STEP: u32 = 64;
/// The least size of a name that a run of a bundle may replace by another.
const LATE_NAME: u32 = 128;

macro_rules! numbered {
    ($($n:literal $name:literal $example:literal;)*) => {
        &[$(Builtin {
            name: $name,
            params: &[],
            returns: Returns::Always(Type::U64),
            needs: ContextFeatures::ARGN,
            risky: false,
            codegen: Codegen::Context(ArgRef::Index($n)),
            doc: "An argument of the traced function or raw tracepoint, numbered from 0.",
            example: $example,
        },)*]
    };
}

pub(super) const NUMBERED: &[Builtin] = numbered! {
    0 "arg0" "uprobe:libc:malloc { @ = hist(arg0); }";
    1 "arg1" "uprobe:libc:calloc { @ = hist(arg0 * arg1); }";
    2 "arg2" "uprobe:libc:memcpy { @ = hist(arg2); }";
    3 "arg3" "uprobe:libc:qsort { @[arg3] = count(); }";
    4 "arg4" "uprobe:libc:setvbuf { @[arg4] = count(); }";
    5 "arg5" "uprobe:libc:mmap { @[arg5] = count(); }";
    6 "arg6" "rawtracepoint:sched_switch { @[arg0] = count(); } // arg6 where there are as many";
    7 "arg7" "rawtracepoint:sched_switch { @[arg0] = count(); } // arg7 where there are as many";
    8 "arg8" "rawtracepoint:sched_switch { @[arg0] = count(); } // arg8 where there are as many";
    9 "arg9" "rawtracepoint:sched_switch { @[arg0] = count(); } // arg9 where there are as many";
    10 "arg10" "rawtracepoint:sched_switch { @[arg0] = count(); } // arg10 where there are as many, as in a marker";
    11 "arg11" "rawtracepoint:sched_switch { @[arg0] = count(); } // arg11 where there are as many, as in a marker";
};

pub(super) const ROWS: &[Builtin] = &[
    Builtin {
        name: "probe",
        params: &[],
        returns: Returns::By(|f| {
            if timer::argument_of(&f.site.name, &f.site.attach).is_some() {
                return Err(Diagnostic::error("not-constant", f.span, "the name of this probe is not known yet"));
            }
            let room = (f.site.name.len() as u32 + 1).next_multiple_of(NAME_STEP);
            let varies = f.invocation.late_bound.names && search::is_searched(&f.site.attach);
            Ok(Type::Str(if varies { room.max(LATE_NAME) } else { room }))
        }),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Either(
            |f| Ok(Lit::Str(f.site.name.as_bytes().to_vec())),
            |e, u, _| {
                let room = u.ty.size() as usize;
                let mut table = Vec::new();
                for name in e.site_names() {
                    let mut name = name.as_bytes().to_vec();
                    name.truncate(room - 1);
                    name.resize(room, 0);
                    table.extend(name);
                }
                let sites = e.site_names().len() as u64;
                let ptr = e.once_ptr(&format!("probe_{room}"), |e| {
                    if let Some(name) = e.late_name(room as u32) {
                        return name;
                    }
                    let names = e.text(&table);
                    if sites < 2 {
                        return names;
                    }
                    let site = e.site();
                    let site = e.at_most(site, sites - 1);
                    let by = e.mul(site, e.int(room as u64));
                    e.offset_by(names, by)
                });
                Operand::mem(u.ty.clone(), ptr)
            },
        ),
        doc: "Full name of the probe, with wildcards expanded.",
        example: "tracepoint:syscalls:sys_enter_* { @[probe] = count(); }",
    },
    Builtin {
        name: "probetype",
        params: &[],
        returns: Returns::By(|f| Ok(Type::Str(f.site.kind.probetype().len() as u32 + 1))),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Fold(|f| Ok(Lit::Str(f.site.kind.probetype().as_bytes().to_vec()))),
        doc: "Kind of the probe, such as tracepoint.",
        example: "begin { printf(\"%s\\n\", probetype); }",
    },
    Builtin {
        name: "args",
        params: &[],
        returns: Returns::Always(Type::Args),
        needs: ContextFeatures::ARGS,
        risky: false,
        codegen: Codegen::Context(ArgRef::All(Vec::new())),
        doc: "The arguments of the probe as a record. `args.name` is one of them. `print(args)` prints all of them, and a map can store them.",
        example: "tracepoint:syscalls:sys_enter_openat { print(args); }",
    },
    Builtin {
        name: "retval",
        params: &[],
        returns: Returns::By(retval_type),
        needs: ContextFeatures::RETVAL,
        risky: false,
        codegen: Codegen::Context(ArgRef::Retval),
        doc: "Return value of the traced function. It is unsigned, except for fexit and declared results of less than 32 bits: cast it, as in `(int32)retval < 0`. Of a tuple, struct or enum of Rust or Go, it is the first number, such as the discriminant: 1 for `Some` of Option<u8>. Of an object in memory, it is the address.",
        example: "uretprobe:/bin/bash:readline { printf(\"%s\\n\", str(retval)); }",
    },
    Builtin {
        name: "ctx",
        params: &[],
        returns: Returns::By(|f| Ok(memory::context_type(f))),
        needs: ContextFeatures::CTX,
        risky: false,
        codegen: Codegen::Context(ArgRef::Ctx),
        doc: "Context of the probe: a pointer to the registers (struct pt_regs). In perf events, the registers are in ctx.regs, and the other members are ctx.sample_period and ctx.addr.",
        example: "profile:hz:99 { printf(\"%p\\n\", ctx); }",
    },
];

fn retval_type(f: &CallInfo) -> Result<Type, crate::diag::Diagnostic> {
    let env = f.env();
    Ok(f.site.kind.context(f.site, &env)?.retval.unwrap_or(Type::U64))
}
