//! Searches and joins strings, and compares bytes.

use super::{Accepts, Builtin, CallInfo, CallSite, Codegen, Param, Returns};
use crate::diag::Diagnostic;
use crate::emit::{Builder, Cmp, Operand, PointerValue, Repr};
use crate::probes::ContextFeatures;
use crate::system::Feature;
use crate::types::{Space, Type};

/// Size of two joined strings, as defined by the language.
const JOINED_SIZE: u32 = 1024;

pub(super) const ROWS: &[Builtin] = &[
    Builtin {
        name: "strstr",
        params: &[Param::new("haystack", Accepts::Str), Param::new("needle", Accepts::Str)],
        returns: Returns::Always(Type::I64),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, args| {
            let (Some(haystack), Some(needle)) = (args.first(), args.get(1)) else { return Operand::void() };
            let (cap, wanted_cap) = (haystack.ty.size(), needle.ty.size());
            let (text, wanted) = (e.in_memory(haystack), e.in_memory(needle));
            let place = e.find_text(text, cap, wanted, wanted_cap);
            Operand::reg(u.ty.clone(), e.sub(place, e.int(1)))
        }),
        doc: "Returns the offset of the second string in the first, or -1 if the first does not contain it.",
        example: "tracepoint:syscalls:sys_enter_openat { @[strstr(str(args.filename), \"etc\")] = count(); }",
    },
    Builtin {
        name: "str_concat",
        params: &[Param::new("a", Accepts::Str), Param::new("b", Accepts::Str)],
        returns: Returns::By(|f| {
            // limited, so that it can be a key
            let short =
                f.sys.has(Feature::ShortKeys).then(|| 2 * u32::try_from(f.settings.max_strlen).unwrap_or(JOINED_SIZE).min(JOINED_SIZE));
            Ok(Type::Str(short.map_or(JOINED_SIZE, |n| n.min(JOINED_SIZE))))
        }),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(join),
        doc: "Joins two strings. The result has at most 1023 bytes.",
        example: "tracepoint:syscalls:sys_enter_openat { @[str_concat(comm, str_concat(\": \", str(args.filename)))] = count(); }",
    },
    Builtin {
        name: "memcmp",
        params: &[Param::new("a", Accepts::Printable), Param::new("b", Accepts::Printable), Param::new("length", Accepts::LitInt)],
        returns: Returns::By(compared),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, args| {
            let (Some(a), Some(b)) = (args.first(), args.get(1)) else { return Operand::void() };
            let n = u.const_at(0).max(0) as u32;
            if n == 0 {
                return Operand::reg(u.ty.clone(), e.int(0));
            }
            let (p, q) = (bytes(e, a, n), bytes(e, b, n));
            Operand::reg(u.ty.clone(), e.order_bytes(p, q, n))
        }),
        doc: "Compares the first bytes of two values, or of the memory at two pointers. It returns 0 if they are equal, and -1 or 1 otherwise.",
        example: "begin { printf(\"%d\\n\", memcmp(\"abc\", \"abd\", 2)); }",
    },
];

fn join<'c>(e: &mut Builder<'_, 'c>, u: &CallSite, args: &[Operand<'c>]) -> Operand<'c> {
    let (Some(a), Some(b)) = (args.first(), args.get(1)) else { return Operand::void() };
    let (first, second) = (a.ty.size().min(JOINED_SIZE), b.ty.size().min(JOINED_SIZE));
    let ((a, a_space), (b, b_space)) = (e.address(a), e.address(b));
    // the second may begin anywhere up to the end of the first
    let size = (first + second).max(JOINED_SIZE).next_multiple_of(8) + 8;
    let to = e.alloc(size);
    e.zero(to, size, 8);
    let n = e.read_text(a_space, to, first, None, a);
    let before = text_bytes(e, n, first);
    let place = e.offset_by(to, before);
    let n = e.read_text(b_space, place, second, None, b);
    let after = text_bytes(e, n, second);
    let all = e.add(e.add(before, after), e.int(1));
    let all = e.at_most(all, u.ty.size().into());
    Operand { ty: u.ty.clone(), repr: Repr::Mem(to, Some(all)) }
}

/// The number of bytes that a read returned, without the NUL; 0 if it failed.
fn text_bytes<'c>(e: &mut Builder<'_, 'c>, n: crate::emit::IntValue<'c>, max: u32) -> crate::emit::IntValue<'c> {
    let is_positive = e.cmp(Cmp::Sgt, n, e.int(0));
    let n = e.select(is_positive, e.sub(n, e.int(1)), e.int(0));
    e.at_most(n, max.into())
}

/// The number of bytes to compare.
fn compared(f: &CallInfo) -> Result<Type, Diagnostic> {
    let Some(n) = f.int(2) else { return Ok(Type::int(4)) };
    if !(0..=f.settings.max_strlen as i64).contains(&n) {
        let message = format!("{} compares up to {} bytes", f.name, f.settings.max_strlen);
        return Err(Diagnostic::error("out-of-range", f.span(2), message).help("raise it with the setting max_strlen"));
    }
    let mut least = n;
    for (i, a) in f.args.iter().take(2).enumerate() {
        match &a.ty {
            Type::Ptr(..) => {}
            Type::Void | Type::Agg(_) | Type::Args | Type::Struct(_) => {
                return Err(Diagnostic::error(
                    "type-mismatch",
                    f.span(i),
                    format!("{} takes a value or a pointer, but this is {}", f.name, a.ty),
                ));
            }
            Type::Buf(room) => least = least.min((*room).into()),
            Type::Bool
            | Type::Int(_)
            | Type::Enum(_)
            | Type::Str(_)
            | Type::Array(..)
            | Type::Record(_)
            | Type::Tuple(_)
            | Type::Deferred(_) => least = least.min(a.ty.size().into()),
        }
    }
    f.bind_consts(&[least]);
    Ok(Type::int(4))
}

/// A value's first bytes in memory that the program may read.
fn bytes<'c>(e: &mut Builder<'_, 'c>, op: &Operand<'c>, n: u32) -> PointerValue<'c> {
    let Type::Ptr(_, space) = op.ty else {
        let ptr = e.in_memory(op);
        // a buffer's length precedes it
        return if matches!(op.ty, Type::Buf(_)) { e.offset(ptr, 4) } else { ptr };
    };
    let addr = e.scalar(op);
    let to = e.alloc(n);
    let space = if space == Space::Unknown { e.program.space } else { space };
    e.read(space, to, n, addr);
    to
}
