//! Addresses that print as symbols.

use super::{Accepts, Builtin, Codegen, Decoder, Param, Returns};
use crate::emit::{Builder, IntValue, Operand};
use crate::probes::{ArgRef, ContextFeatures};
use crate::types::{Deferred, Space, Type};
use crate::value::{Frame, Value};

/// The address only.
const KERNEL: &str = "ksym_t";
/// The address, and its process.
const USER: &str = "usym_t";

pub(super) const ROWS: &[Builtin] = &[
    Builtin {
        name: "ksym",
        params: &[Param::new("address", Accepts::Addr)],
        returns: Returns::By(|f| {
            f.warn_of_hidden_symbols();
            Ok(Deferred::plain(KERNEL, 8))
        }),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, args| {
            let addr = args.first().map_or(e.int(0), |a| e.scalar(a));
            operand(e, addr, &u.ty)
        }),
        doc: "Returns the name of the kernel function or object at an address. If only the module is known, it is `module+0xADDRESS`, a form that addr2line accepts. rbt resolves the name when it prints it.",
        example: "begin { printf(\"%s\\n\", ksym(kaddr(\"vfs_read\"))); }",
    },
    Builtin {
        name: "usym",
        params: &[Param::new("address", Accepts::Addr)],
        returns: Returns::By(|_| Ok(Deferred::plain(USER, 16))),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, args| {
            let addr = args.first().map_or(e.int(0), |a| e.scalar(a));
            operand(e, addr, &u.ty)
        }),
        doc: "Returns the name of the function or object at an address of the current process. rbt resolves the name when it prints it.",
        example: "uprobe:libc:malloc { printf(\"%s\\n\", usym(reg(\"ip\"))); }",
    },
    Builtin {
        name: "func",
        params: &[],
        returns: Returns::By(|f| {
            let env = f.env();
            let user = f.site.kind.context(f.site, &env)?.space == Some(Space::User);
            if !user {
                f.warn_of_hidden_symbols();
            }
            Ok(if user { Deferred::plain(USER, 16) } else { Deferred::plain(KERNEL, 8) })
        }),
        needs: ContextFeatures::FUNC,
        risky: false,
        codegen: Codegen::Context(ArgRef::Func),
        doc: "Name of the traced function.",
        example: "uprobe:libc:malloc { @[func] = count(); }",
    },
];

pub(super) const DECODERS: &[Decoder] = &[
    Decoder {
        name: KERNEL,
        size: 8,
        from_int: false,
        decode: |_, bytes, host| {
            let addr = super::word(bytes, 0);
            shown(addr, host.kernel_symbol(addr))
        },
    },
    Decoder {
        name: USER,
        size: 16,
        from_int: false,
        decode: |_, bytes, host| {
            let addr = super::word(bytes, 0);
            shown(addr, host.user_symbol(super::word(bytes, 1) as u32, addr))
        },
    },
];

/// Is it a user-space address?
pub(super) fn is_of_user(tag: &Deferred) -> bool {
    tag.tag == USER
}

/// An address in the form that `ty` requires.
pub fn operand<'c>(e: &mut Builder<'_, 'c>, addr: IntValue<'c>, ty: &Type) -> Operand<'c> {
    let ptr = e.alloc(ty.size());
    e.store(ptr, 0, 8, addr);
    if ty.size() > 8 {
        let both = e.ns_pid_tgid();
        let pid = e.shr(both, e.int(32), false);
        e.store(ptr, 8, 8, pid);
    }
    Operand::mem(ty.clone(), ptr)
}

fn shown(addr: u64, frame: Option<Frame>) -> Value {
    let known = frame.and_then(|f| f.in_module().or(f.symbol));
    // as bpftrace prints it, without 0x for zero
    Value::Text(known.unwrap_or_else(|| if addr == 0 { "0".into() } else { format!("{addr:#x}") }))
}
