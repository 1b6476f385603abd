//! The machine: CPUs, memory nodes, random numbers.

use super::{Builtin, Codegen, Lit, Returns};
use crate::emit::{Helper, Operand};
use crate::probes::ContextFeatures;
use crate::types::Type;

pub(super) const ROWS: &[Builtin] = &[
    Builtin {
        name: "cpu",
        params: &[],
        returns: Returns::Always(Type::U64),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, _, _| Operand::u64(e.once("cpu", |e| e.cpu()))),
        doc: "Number of the CPU that runs the probe.",
        example: "profile:hz:99 { @ = lhist(cpu, 0, 64, 1); }",
    },
    Builtin {
        name: "ncpus",
        params: &[],
        returns: Returns::Always(Type::U64),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Fold(|f| Ok(Lit::Int(f.sys.possible_cpus().into()))),
        doc: "Maximum number of CPUs that this machine can have online.",
        example: "begin { printf(\"%d\\n\", ncpus); }",
    },
    Builtin {
        name: "numaid",
        params: &[],
        returns: Returns::Always(Type::U64),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, _, _| Operand::u64(e.once("numaid", |e| e.call(Helper::GetNumaNodeId, &[])))),
        doc: "Number of the current CPU's NUMA node.",
        example: "profile:hz:99 { @[numaid] = count(); }",
    },
    Builtin {
        name: "rand",
        params: &[],
        returns: Returns::Always(Type::U64),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, _, _| {
            let v = e.call(Helper::GetPrandomU32, &[]);
            Operand::u64(e.and(v, e.int(u32::MAX.into())))
        }),
        doc: "A 32-bit pseudorandom number. Each use yields a new one.",
        example: "tracepoint:syscalls:sys_enter_read /rand % 100 == 0/ { @[comm] = count(); }",
    },
];
