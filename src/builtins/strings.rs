//! Strings and bytes: reading, measuring, comparing, searching.

use std::hash::{Hash, Hasher};

use super::{Accepts, Builtin, CallInfo, CallSite, Codegen, Lit, Param, Returns};
use crate::diag::Diagnostic;
use crate::emit::{Builder, Cmp, IntValue, Operand, PointerValue, Repr};
use crate::probes::ContextFeatures;
use crate::system::binary::string_layouts::{self, StringLayout};
use crate::types::{Int, Space, Type};

const BYTE: Int = Int { bytes: 1, signed: false };
const U64: Int = Int { bytes: 8, signed: false };
/// Maximum length of a literal to search for.
const MAX_NEEDLE_LEN: usize = 127;

pub(super) const ROWS: &[Builtin] = &[
    Builtin {
        name: "str",
        params: &[Param::new("data", Accepts::TextOrAddr), Param::optional("length", Accepts::Int)],
        returns: Returns::By(str_type),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Known(known_text, str_value),
        doc: "Reads a NUL-terminated string from an address, at most max_strlen bytes. A length lowers this limit. It includes the NUL, except for literals. For a string type of Go, Rust or C++ (string, &str, PathBuf, std::string) it returns the text. User memory that is not resident, such as an untouched literal, may read as \"\".",
        example: "tracepoint:syscalls:sys_enter_openat { printf(\"%s %s\\n\", comm, str(args.filename)); }",
    },
    Builtin {
        name: "buf",
        params: &[Param::new("data", Accepts::TextOrAddr), Param::optional("length", Accepts::Int)],
        returns: Returns::By(buf_type),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(buf_value),
        doc: "Reads bytes from an address, zeros included. The length is optional for arrays. %r, %rx and %rh print the bytes. User memory that is not resident, such as an untouched constant, may read as zeros.",
        example: "tracepoint:syscalls:sys_enter_write { printf(\"%r\\n\", buf(args.buf, args.count)); }",
    },
    Builtin {
        name: "strlen",
        params: &[Param::new("string", Accepts::TextOrAddr)],
        returns: Returns::By(|f| {
            if let Some(a) = f.args.first().filter(|a| a.ty.as_int().is_some() && !matches!(a.ty, Type::Ptr(..))) {
                let message = format!("strlen takes a string, but this is {}", a.ty);
                return Err(Diagnostic::error("type-mismatch", a.span, message).help("for an address, use strlen(str(…))"));
            }
            refuse_arrays_without_text(f)?;
            if !bind_text_location(f)? {
                f.bind_consts(&[f.settings.max_strlen as i64]);
            }
            Ok(Type::U64)
        }),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(strlen),
        doc: "Returns the length of a string in bytes, without the NUL.",
        example: "tracepoint:syscalls:sys_enter_openat { @ = hist(strlen(str(args.filename))); }",
    },
    Builtin {
        name: "strcap",
        params: &[Param::new("string", Accepts::Str)],
        returns: Returns::Always(Type::I64),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Fold(|f| Ok(Lit::Int(f.args.first().map_or(0, |a| a.ty.size()).into()))),
        doc: "Returns the maximum length of a string value in bytes.",
        example: "begin { printf(\"%d\\n\", strcap(comm)); }",
    },
    Builtin {
        name: "strncmp",
        params: &[Param::new("a", Accepts::Str), Param::new("b", Accepts::Str), Param::new("length", Accepts::LitInt)],
        returns: Returns::By(|f| match f.int(2) {
            Some(n) if n < 0 => Err(Diagnostic::error("out-of-range", f.span(2), "a length cannot be negative")),
            _ => Ok(Type::U64),
        }),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(strncmp),
        doc: "Compares at most `length` bytes of two strings. It returns 0 if they are equal, and 1 otherwise.",
        example: "tracepoint:syscalls:sys_enter_openat /strncmp(\"ssh\", comm, 3) == 0/ { @[comm] = count(); }",
    },
    Builtin {
        name: "strcontains",
        params: &[Param::new("haystack", Accepts::Str), Param::new("needle", Accepts::Str)],
        returns: Returns::By(|f| match f.text(1) {
            Some(needle) if needle.len() > MAX_NEEDLE_LEN => {
                let message = format!("a literal to search for can have at most {MAX_NEEDLE_LEN} bytes, but this one has {}", needle.len());
                Err(Diagnostic::error("too-long", f.span(1), message))
            }
            _ => Ok(Type::Bool),
        }),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(strcontains),
        doc: "Returns true if the first string contains the second.",
        example: "tracepoint:syscalls:sys_enter_openat /strcontains(str(args.filename), \"etc\")/ { @[comm] = count(); }",
    },
];

fn size_limit(f: &CallInfo) -> u32 {
    u32::try_from(f.settings.max_strlen).unwrap_or(u32::MAX).max(1)
}

/// A literal length, if there is one, limited by the settings.
fn literal_length(f: &CallInfo, max: u32) -> Result<Option<u32>, Diagnostic> {
    let Some(n) = f.int(1) else { return Ok(None) };
    match u32::try_from(n) {
        Ok(n) if n <= max => Ok(Some(n)),
        _ if n < 0 => Err(Diagnostic::error("out-of-range", f.span(1), "a length cannot be negative")),
        _ => {
            let message = format!("{} is truncated to {max} bytes by max_strlen = {}", f.name, f.settings.max_strlen);
            f.warn(Diagnostic::warning("length-clamped", f.span(1), message).help("set RBT_MAX_STRLEN or `config = { max_strlen = … }`"));
            Ok(Some(max))
        }
    }
}

/// Keeps the location of the first argument's text, if it is a string struct or points to one.
fn bind_text_location(f: &CallInfo) -> Result<bool, Diagnostic> {
    let Some((data, structure)) = f.args.first().and_then(|a| Some((a, string_layouts::structure(&a.ty)?))) else { return Ok(false) };
    let place = string_layouts::string_layout(f.sys, structure);
    if let Some(place) = place {
        f.bind_consts(&place.numbers());
    } else if string_layouts::is_only_declared(structure) {
        return Err(Diagnostic::error("type-mismatch", data.span, format!("the members of {} are unknown", data.ty))
            .help(string_layouts::ONLY_DECLARED));
    }
    Ok(place.is_some())
}

/// The address and the length of such a struct's text, at the location that [`keep_place`] found.
fn text_of<'c>(e: &mut Builder<'_, 'c>, u: &CallSite, data: &Operand<'c>) -> Option<(IntValue<'c>, IntValue<'c>)> {
    let place = StringLayout::from_numbers(&u.consts)?;
    let (addr, length) = match (data.repr, &data.ty) {
        (Repr::Mem(ptr, _), Type::Struct(_)) => (e.load(ptr, place.data, U64), e.load(ptr, place.length, U64)),
        _ => {
            let (base, _) = e.address(data);
            let word = |e: &mut Builder<'_, 'c>, offset: u32| {
                let addr = e.add(base, e.int(offset.into()));
                e.read_int(Space::User, addr, U64)
            };
            let (addr, length) = (word(e, place.data), word(e, place.length));
            if place.short {
                let first = e.read_int(Space::User, base, BYTE);
                let long = e.and(first, e.int(1));
                let (within, few) = (e.add(base, e.int(1)), e.shr(first, e.int(1), false));
                (e.select(long, addr, within), e.select(long, length, few))
            } else {
                (addr, length)
            }
        }
    };
    let addr = e.add(addr, e.int(place.header.into()));
    // an uninitialized string has a length of 0
    let some = e.cmp(Cmp::Uge, length, e.int(place.tail.into()));
    let length = if place.tail == 0 { length } else { e.select(some, e.sub(length, e.int(place.tail.into())), length) };
    Some((addr, length))
}

/// The text of such a struct, at most `requested` bytes.
fn counted<'c>(e: &mut Builder<'_, 'c>, u: &CallSite, text: (IntValue<'c>, IntValue<'c>), requested: Option<IntValue<'c>>) -> Operand<'c> {
    let cap = u.ty.size();
    let (addr, length) = text;
    let length = match requested {
        Some(requested) => {
            let less = e.cmp(Cmp::Ult, requested, length);
            e.select(less, requested, length)
        }
        None => length,
    };
    let max = cap.saturating_sub(1).into();
    let exceeds = e.cmp(Cmp::Ugt, length, e.int(max));
    e.cut(exceeds);
    let length = e.at_most(length, max);
    let to = e.alloc(cap + 1);
    if e.scope.pads_strings {
        e.zero(to, (cap + 1).next_multiple_of(8), 8);
    } else {
        let nul = e.int(0);
        e.store(to, 0, 1, nul);
    }
    // the address of an empty text may be invalid
    let nonzero = e.cmp(Cmp::Ne, length, e.int(0));
    let read = e.choose(
        nonzero,
        |e| {
            let size = e.add(length, e.int(1));
            e.read_str_bounded(Space::User, to, size, addr)
        },
        |e| e.int(1),
    );
    Operand { ty: u.ty.clone(), repr: Repr::Mem(to, Some(read)) }
}

/// Refuses arrays whose elements are not bytes.
fn refuse_arrays_without_text(f: &CallInfo) -> Result<(), Diagnostic> {
    match f.args.first() {
        Some(a) if matches!(&a.ty, Type::Array(elem, _) if elem.size() != 1) => {
            let message = format!("{} takes text, but this is {}", f.name, a.ty);
            Err(Diagnostic::error("type-mismatch", a.span, message)
                .help("print the array itself, one of its elements, or its bytes by buf()"))
        }
        _ => Ok(()),
    }
}

fn str_type(f: &CallInfo) -> Result<Type, Diagnostic> {
    refuse_arrays_without_text(f)?;
    let max = size_limit(f);
    if bind_text_location(f)? {
        // one more byte than requested, for the NUL
        return Ok(Type::Str(literal_length(f, max)?.map_or(max, |n| n.saturating_add(1).min(max)).max(1)));
    }
    let length = literal_length(f, max)?;
    if let Some(text) = written(f).filter(|_| f.args.len() < 2 || length.is_some()) {
        let size = u32::try_from(text.len()).unwrap_or(max);
        return Ok(Type::Str(length.map_or(size, |n| n.min(size)).saturating_add(1)));
    }
    let capacity = match f.args.first().map(|a| &a.ty) {
        Some(Type::Str(cap)) if f.args.len() < 2 => return Ok(Type::Str(*cap)),
        Some(Type::Array(elem, n)) if elem.size() == 1 && *n > 0 && f.args.len() < 2 => (*n).min(max),
        // one more byte than the text may have, for the NUL
        Some(Type::Str(n)) => n.saturating_add(1).min(max),
        Some(Type::Array(elem, n)) if elem.size() == 1 && *n > 0 => n.saturating_add(1).min(max),
        _ => max,
    };
    Ok(Type::Str(length.map_or(capacity, |n| n.min(capacity)).max(1)))
}

/// The literal of the result, if the argument is one, such as `$1`.
fn known_text(f: &CallInfo) -> Option<Lit> {
    let text = written(f)?;
    let length = if f.args.len() > 1 { usize::try_from(f.int(1)?).ok()? } else { text.len() };
    Some(Lit::Str(text.get(..length).unwrap_or(&text).to_vec()))
}

/// A literal as text: an integer, which is not an address, as its digits.
fn written(f: &CallInfo) -> Option<Vec<u8>> {
    let number = || f.args.first().filter(|a| matches!(a.ty, Type::Int(_))).and_then(|_| f.int(0)).map(|n| n.to_string().into_bytes());
    f.text(0).map(<[u8]>::to_vec).or_else(number)
}

fn str_value<'c>(e: &mut Builder<'_, 'c>, u: &CallSite, args: &[Operand<'c>]) -> Operand<'c> {
    let (Some(data), cap) = (args.first(), u.ty.size()) else { return Operand::void() };
    if let Some(text) = text_of(e, u, data) {
        let requested = u.int(1).map(|n| e.int(n.max(0) as u64)).or_else(|| args.get(1).map(|n| e.scalar(n)));
        return counted(e, u, text, requested);
    }
    if let (Type::Str(_), Repr::Mem(..), None) = (&data.ty, data.repr, args.get(1)) {
        return data.clone();
    }
    let requested = match u.int(1) {
        Some(n) => Some(e.int(n.max(0) as u64)),
        None => args.get(1).map(|n| e.scalar(n)),
    };
    let (addr, space) = e.address(data);
    if matches!(&data.ty, Type::Array(..) | Type::Str(_)) && data.ty.size() > 0 {
        let text = e.array_text(space, addr, data.ty.size().min(cap), requested);
        return Operand { ty: u.ty.clone(), ..text };
    }
    let Some(requested) = requested else {
        let text = e.read_string(space, addr, cap);
        if let Repr::Mem(_, Some(read)) = text.repr {
            let exceeds = e.cmp(Cmp::Sgt, read, e.int(cap.into()));
            e.cut(exceeds);
        }
        return text;
    };
    // room for the text and its NUL
    let size = if u.int(1).is_some() { e.int(cap.into()) } else { e.at_most(requested, cap.into()) };
    let to = e.alloc(cap + 1);
    if e.scope.pads_strings {
        e.zero(to, (cap + 1).next_multiple_of(8), 8);
    } else {
        // a length of 0 reads nothing
        let nul = e.int(0);
        e.store(to, 0, 1, nul);
    }
    let len = e.read_str_bounded(space, to, size, addr);
    if u.int(1).is_none() {
        let more = e.cmp(Cmp::Ugt, requested, e.int(cap.into()));
        let full = e.cmp(Cmp::Sge, len, e.int(cap.into()));
        let exceeds = e.and(more, full);
        e.cut(exceeds);
    }
    Operand { ty: u.ty.clone(), repr: Repr::Mem(to, Some(len)) }
}

fn buf_type(f: &CallInfo) -> Result<Type, Diagnostic> {
    // as in bpftrace, the length takes four bytes of the limit
    let max = size_limit(f).saturating_sub(4).max(1);
    let text = bind_text_location(f)?;
    if let Some(n) = literal_length(f, max)? {
        return Ok(Type::Buf(n.max(1)));
    }
    match f.args.first().map(|a| &a.ty) {
        _ if f.args.len() > 1 || text => Ok(Type::Buf(max)),
        Some(Type::Array(elem, n)) if *n > 0 => Ok(Type::Buf(elem.size().saturating_mul(*n).min(max))),
        Some(Type::Buf(cap)) => Ok(Type::Buf(*cap)),
        _ => Err(Diagnostic::error("arity", f.span, format!("{} needs a length, except for arrays", f.name))),
    }
}

fn buf_value<'c>(e: &mut Builder<'_, 'c>, u: &CallSite, args: &[Operand<'c>]) -> Operand<'c> {
    let (Some(data), cap) = (args.first(), u.ty.size().saturating_sub(4)) else { return Operand::void() };
    if let (Type::Buf(_), None) = (&data.ty, args.get(1)) {
        return data.clone();
    }
    let text = text_of(e, u, data);
    let len = match (u.int(1), args.get(1)) {
        _ if text.is_some() => {
            let length = text.map_or(e.int(0), |(_, length)| length);
            let requested = u.int(1).map(|n| e.int(n.max(0) as u64)).or_else(|| args.get(1).map(|n| e.scalar(n)));
            let length = requested.map_or(length, |requested| {
                let less = e.cmp(Cmp::Ult, requested, length);
                e.select(less, requested, length)
            });
            let exceeds = e.cmp(Cmp::Ugt, length, e.int(cap.into()));
            e.cut(exceeds);
            e.at_most(length, cap.into())
        }
        (None, Some(n)) => {
            let n = e.scalar(n);
            if !matches!(data.ty, Type::Array(..)) {
                let exceeds = e.cmp(Cmp::Ugt, n, e.int(cap.into()));
                e.cut(exceeds);
            }
            e.at_most(n, cap.into())
        }
        (Some(n), _) => e.int((n.max(0) as u64).min(cap.into())),
        (None, None) => e.int(cap.into()),
    };
    let (addr, space) = text.map_or_else(|| e.address(data), |(addr, _)| (addr, Space::User));
    let to = e.alloc(cap + 4);
    let is_array = text.is_none() && (matches!(u.literals.get(1), Some(Some(_))) || args.get(1).is_none());
    if e.scope.pads_strings && !is_array {
        e.zero(to, (cap + 4).next_multiple_of(8), 8);
    }
    e.store(to, 0, 4, len);
    let bytes = e.offset(to, 4);
    e.read_bounded(space, bytes, len, addr);
    let sent_size = e.add(len, e.int(4));
    Operand { ty: u.ty.clone(), repr: Repr::Mem(to, Some(sent_size)) }
}

fn strlen<'c>(e: &mut Builder<'_, 'c>, u: &CallSite, args: &[Operand<'c>]) -> Operand<'c> {
    let Some(text) = args.first() else { return Operand::void() };
    if let Some((_, length)) = text_of(e, u, text) {
        return Operand::u64(length);
    }
    let text = match (&text.ty, text.repr) {
        (Type::Str(_), Repr::Mem(..)) => text.clone(),
        (ty, _) => {
            let max = (u.const_at(0) as u32).max(1);
            let (addr, space) = e.address(text);
            if matches!(ty, Type::Str(_) | Type::Array(..)) && ty.size() > 0 {
                e.array_text(space, addr, ty.size().min(max), None)
            } else {
                e.read_string(space, addr, max)
            }
        }
    };
    let Repr::Mem(ptr, read) = text.repr else { return Operand::u64(e.int(0)) };
    if let Some(read) = read {
        let is_positive = e.cmp(Cmp::Sgt, read, e.int(0));
        let before = e.sub(read, e.int(1));
        return Operand::u64(e.select(is_positive, before, e.int(0)));
    }
    Operand::u64(e.text_len(ptr, text.ty.size()))
}

fn strncmp<'c>(e: &mut Builder<'_, 'c>, u: &CallSite, args: &[Operand<'c>]) -> Operand<'c> {
    let (Some(a), Some(b)) = (args.first(), args.get(1)) else { return Operand::void() };
    let n = u.int(2).map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX));
    let n = n.min(a.ty.size()).min(b.ty.size());
    let same = match (u.text(0), u.text(1)) {
        (Some(literal), _) => same_as_literal(e, b, literal, n),
        (_, Some(literal)) => same_as_literal(e, a, literal, n),
        _ => {
            let (p, q) = (e.in_memory(a), e.in_memory(b));
            e.same_text(p, q, n)
        }
    };
    Operand::u64(e.xor(same, e.int(1)))
}

/// Are the first `n` bytes equal to the literal, or do both end before that? The text is compared in words.
fn same_as_literal<'c>(e: &mut Builder<'_, 'c>, text: &Operand<'c>, literal: &[u8], n: u32) -> IntValue<'c> {
    let ptr = e.in_memory(text);
    let mut bytes = literal.to_vec();
    bytes.push(0);
    bytes.truncate(n as usize);
    e.starts_with(ptr, &bytes)
}

fn strcontains<'c>(e: &mut Builder<'_, 'c>, u: &CallSite, args: &[Operand<'c>]) -> Operand<'c> {
    let (Some(haystack), Some(needle)) = (args.first(), args.get(1)) else { return Operand::void() };
    let cap = haystack.ty.size();
    let text = e.in_memory(haystack);
    let found = match u.text(1) {
        Some([]) => e.int(1),
        // in place of a table and code for each literal
        Some(literal) if e.checks_once() && !literal.contains(&0) => {
            let needle_ptr = e.in_memory(needle);
            let place = e.find_text(text, cap, needle_ptr, needle.ty.size());
            e.cmp(Cmp::Ne, place, e.int(0))
        }
        Some(literal) => {
            let (table, mask) = automaton(literal);
            let name = format!("contains_{:x}", number_of(literal));
            let last = e.once_for_all(&name, text, text, cap, |e, text, _| {
                let table = e.text(&table);
                let state = e.scalar_slot();
                let start = e.int(0);
                e.store(state, 0, 8, start);
                let step = |e: &mut Builder<'_, 'c>, from: PointerValue<'c>, offset: u32| {
                    let c = e.load(from, offset, BYTE);
                    let now = e.load(state, 0, U64);
                    let cell = e.or(e.shl(now, e.int(8)), c);
                    let cell = e.opaque(cell);
                    let cell = e.offset_by(table, e.and(cell, e.int(mask)));
                    let next = e.load(cell, 0, BYTE);
                    e.store(state, 0, 8, next);
                };
                // an exit after every eighth byte: the verifier stores a state for each, and has a limit
                e.count((cap / 8).into(), |e, i| {
                    let from = e.offset_by(text, e.shl(i, e.int(3)));
                    for offset in 0..8 {
                        step(e, from, offset);
                    }
                    let now = e.load(state, 0, U64);
                    let done = e.cmp(Cmp::Uge, now, e.int(literal.len() as u64));
                    e.if_(done, |e| e.break_());
                });
                for offset in cap / 8 * 8..cap {
                    step(e, text, offset);
                }
                e.load(state, 0, U64)
            });
            e.cmp(Cmp::Eq, last, e.int(literal.len() as u64))
        }
        None => {
            let needle_ptr = e.in_memory(needle);
            let place = e.find_text(text, cap, needle_ptr, needle.ty.size());
            e.cmp(Cmp::Ne, place, e.int(0))
        }
    };
    Operand::reg(u.ty.clone(), found)
}

/// A number for the name of a literal's function: equal for equal bytes.
fn number_of(literal: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    literal.hash(&mut hasher);
    hasher.finish()
}

/// Knuth, Morris and Pratt's automaton: a byte per state and input byte, the next state. State n means found, n + 1
/// that the text has ended; both are final. Also returns the mask of all indices.
fn automaton(needle: &[u8]) -> (Vec<u8>, u64) {
    let n = needle.len();
    let rows = (n + 2).next_power_of_two();
    let mut table = vec![0u8; rows * 256];
    // the state after all but the first byte of what has matched so far
    let mut fallback = 0;
    for (state, byte) in needle.iter().enumerate() {
        table.copy_within(fallback * 256..fallback * 256 + 256, state * 256);
        if state > 0 {
            fallback = usize::from(table[fallback * 256 + usize::from(*byte)]);
        }
        table[state * 256 + usize::from(*byte)] = (state + 1) as u8;
    }
    for state in 0..n {
        table[state * 256] = (n + 1) as u8;
    }
    table[n * 256..(n + 1) * 256].fill(n as u8);
    table[(n + 1) * 256..(n + 2) * 256].fill((n + 1) as u8);
    let mask = (table.len() - 1) as u64;
    (table, mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn automaton_agrees_with_a_search() {
        let texts = ["", "a", "ab", "abab", "aabaab", "aaab", "abcabcabd", "xxabcabdyy", "aaaaaaab", "mississippi"];
        let needles = ["a", "b", "ab", "aab", "abab", "abcabd", "ssi", "issip", "aaab", "zz"];
        for text in texts {
            for needle in needles {
                let (table, mask) = automaton(needle.as_bytes());
                let end = text.bytes().chain(*b"\0garbage ab").fold(0usize, |s, c| table[(s << 8 | usize::from(c)) & mask as usize].into());
                assert_eq!(end == needle.len(), text.contains(needle), "{needle} in {text}");
            }
        }
    }
}
