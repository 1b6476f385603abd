//! Decodes the bytes of a record or a map to a [`Value`], by [`Type`].
//!
//! Missing bytes at the end of the input count as zeros: records come from outside this process, so their lengths are
//! not trusted.

use std::borrow::Cow;

use crate::types::{Deferred, Enum, Field, Int, Record, Type};
use crate::value::Value;

/// The value in `bytes`, in host byte order (rbt supports little-endian machines only).
///
/// `tags` decodes values of [`Type::Deferred`]; it gets exactly the bytes of the undecoded form. An aggregation is
/// merged from all CPUs before it has a value, so it decodes to [`Value::None`] here, like `args` and `void`.
pub fn decode(ty: &Type, bytes: &[u8], tags: &mut dyn FnMut(&Deferred, &[u8]) -> Value) -> Value {
    match ty {
        Type::Void | Type::Agg(_) | Type::Args => Value::None,
        Type::Bool => Value::Bool(bytes.first().is_some_and(|b| *b != 0)),
        Type::Int(int) => integer(*int, word(bytes, int.bytes.into())),
        Type::Enum(e) => enumerator(e, e.int, word(bytes, e.int.bytes.into())),
        Type::Ptr(..) => Value::Ptr(word(bytes, 8)),
        Type::Str(capacity) => string(bytes, *capacity as usize),
        Type::Buf(capacity) => {
            let length = (word(bytes, 4) as usize).min(*capacity as usize);
            Value::Bytes(exactly(after(bytes, 4), length).into_owned())
        }
        Type::Array(elem, count) => {
            let size = elem.size() as usize;
            let count = if size == 0 { 0 } else { *count as usize };
            Value::List((0..count).map(|i| decode(elem, after(bytes, i.saturating_mul(size)), tags)).collect())
        }
        // Its members are unknown here; a struct that will be printed comes as a record.
        Type::Struct(s) => Value::Bytes(exactly(bytes, s.size as usize).into_owned()),
        Type::Record(r) => record(r, bytes, tags),
        Type::Tuple(elems) => {
            let offsets = Type::tuple_offsets(elems);
            Value::Tuple(elems.iter().zip(offsets).map(|(e, at)| decode(e, after(bytes, at as usize), tags)).collect())
        }
        Type::Deferred(tag) => tags(tag, &exactly(bytes, tag.size as usize)),
    }
}

fn record(record: &Record, bytes: &[u8], tags: &mut dyn FnMut(&Deferred, &[u8]) -> Value) -> Value {
    let bytes = bytes.get(..record.size as usize).unwrap_or(bytes);
    let mut field = |f: &Field| {
        let at = after(bytes, f.offset as usize);
        let value = match (f.bits, f.ty.as_int()) {
            (Some((offset, width)), Some(int)) => scalar(&f.ty, bit_field(at, offset, width, int.signed)),
            (Some(_), None) | (None, _) => decode(&f.ty, at, tags),
        };
        (f.name.clone(), value)
    };
    let selected = record.variants.as_ref().and_then(|variants| {
        let discriminant = record.fields.get(variants.discriminant)?;
        let value = word(after(bytes, discriminant.offset as usize), discriminant.ty.as_int()?.bytes.into());
        Some((variants, variants.selected(value)?))
    });
    let has = |index: usize| {
        selected.is_none_or(|(variants, chosen)| {
            index == chosen || index != variants.discriminant && variants.values.iter().all(|(other, _)| *other != index)
        })
    };
    Value::Record(record.fields.iter().enumerate().filter(|(index, _)| has(*index)).map(|(_, f)| field(f)).collect())
}

/// Bits `offset` to `offset + width`, extended by sign.
fn bit_field(bytes: &[u8], offset: u8, width: u8, signed: bool) -> u64 {
    let from = after(bytes, usize::from(offset / 8));
    let mut raw = [0u8; 16];
    for (to, b) in raw.iter_mut().zip(from) {
        *to = *b;
    }
    let width = width.min(64);
    let value = (u128::from_le_bytes(raw) >> (offset % 8)) as u64;
    match 64 - u32::from(width) {
        64 => 0,
        unused if signed => ((value << unused) as i64 >> unused) as u64,
        unused => value << unused >> unused,
    }
}

/// A scalar from a register's 64 bits.
fn scalar(ty: &Type, bits: u64) -> Value {
    match ty {
        Type::Bool => Value::Bool(bits != 0),
        Type::Int(int) => integer(Int { bytes: 8, signed: int.signed }, bits),
        Type::Enum(e) => enumerator(e, Int { bytes: 8, signed: e.int.signed }, bits),
        Type::Ptr(..) => Value::Ptr(bits),
        Type::Void
        | Type::Str(_)
        | Type::Buf(_)
        | Type::Array(..)
        | Type::Struct(_)
        | Type::Record(_)
        | Type::Tuple(_)
        | Type::Deferred(_)
        | Type::Agg(_)
        | Type::Args => Value::None,
    }
}

fn integer(int: Int, raw: u64) -> Value {
    if int.signed { Value::Int(sign_extend(int, raw)) } else { Value::Uint(raw) }
}

fn enumerator(e: &Enum, int: Int, raw: u64) -> Value {
    let value = if int.signed { sign_extend(int, raw) } else { raw as i64 };
    let name = e.variants.iter().find(|(_, v)| *v == value).map(|(name, _)| name.clone());
    if name.is_none() && !int.signed && value < 0 { Value::Uint(raw) } else { Value::Enum { name, value } }
}

fn sign_extend(int: Int, raw: u64) -> i64 {
    let unused = 64 - 8 * u32::from(int.bytes.clamp(1, 8));
    (raw << unused) as i64 >> unused
}

/// The string up to its NUL; it counts as cut if there is none.
fn string(bytes: &[u8], capacity: usize) -> Value {
    let text = bytes.get(..capacity).unwrap_or(bytes);
    match text.iter().position(|b| *b == 0) {
        Some(end) => Value::Str { bytes: text.get(..end).unwrap_or(text).to_vec(), cut: false },
        None => Value::Str { bytes: text.to_vec(), cut: text.len() == capacity && capacity > 0 },
    }
}

/// The first `size` (at most 8) bytes as an unsigned number.
fn word(bytes: &[u8], size: usize) -> u64 {
    let mut raw = [0u8; 8];
    for (to, b) in raw.iter_mut().zip(bytes.iter().take(size)) {
        *to = *b;
    }
    u64::from_le_bytes(raw)
}

fn after(bytes: &[u8], offset: usize) -> &[u8] {
    bytes.get(offset..).unwrap_or(&[])
}

/// This many bytes, padded with zeros.
fn exactly(bytes: &[u8], size: usize) -> Cow<'_, [u8]> {
    match bytes.get(..size) {
        Some(all) => Cow::Borrowed(all),
        None => {
            let mut padded = bytes.to_vec();
            padded.resize(size, 0);
            Cow::Owned(padded)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Agg, Space, Struct, Variants};
    use std::sync::Arc;

    fn plain(ty: &Type, bytes: &[u8]) -> Value {
        decode(ty, bytes, &mut |tag, bytes| Value::Text(format!("{}:{bytes:?}", tag.tag)))
    }

    fn field(name: &str, offset: u32, bits: Option<(u8, u8)>, ty: Type) -> Field {
        Field { name: name.into(), offset, bits, ty }
    }

    fn s(text: &str, cut: bool) -> Value {
        Value::Str { bytes: text.into(), cut }
    }

    #[test]
    fn integers() {
        assert_eq!(plain(&Type::int(1), &[0xff]), Value::Int(-1));
        assert_eq!(plain(&Type::uint(1), &[0xff, 0xff]), Value::Uint(255));
        assert_eq!(plain(&Type::int(2), &[0, 0x80]), Value::Int(-32768));
        assert_eq!(plain(&Type::int(4), &[0xfe, 0xff, 0xff, 0xff, 1]), Value::Int(-2));
        assert_eq!(plain(&Type::U64, &u64::MAX.to_le_bytes()), Value::Uint(u64::MAX));
        assert_eq!(plain(&Type::I64, &(-9i64).to_le_bytes()), Value::Int(-9));
        assert_eq!(plain(&Type::Bool, &[2]), Value::Bool(true));
        assert_eq!(plain(&Type::Void.ptr(Space::User), &[1, 2, 0, 0, 0, 0, 0, 0]), Value::Ptr(0x201));
    }

    #[test]
    fn short_input_ends_in_zeros() {
        assert_eq!(plain(&Type::U64, &[7]), Value::Uint(7));
        assert_eq!(plain(&Type::I64, &[]), Value::Int(0));
        assert_eq!(plain(&Type::Str(16), b"ab"), s("ab", false));
        assert_eq!(plain(&Type::Buf(8), &[3, 0, 0, 0, 9]), Value::Bytes(vec![9, 0, 0]));
        assert_eq!(plain(&Type::Tuple(vec![Type::U64, Type::U64]), &[1]), Value::Tuple(vec![Value::Uint(1), Value::Uint(0)]));
        let tag = Type::Deferred(Arc::new(Deferred { tag: "t".into(), size: 3, params: [0, 0], text: String::new() }));
        assert_eq!(plain(&tag, &[5]), Value::Text("t:[5, 0, 0]".into()));
        assert_eq!(plain(&tag, &[5, 6, 7, 8]), Value::Text("t:[5, 6, 7]".into()));
    }

    #[test]
    fn strings() {
        assert_eq!(plain(&Type::Str(4), b"abc\0"), s("abc", false));
        assert_eq!(plain(&Type::Str(4), b"a\0bc"), s("a", false));
        assert_eq!(plain(&Type::Str(4), b"abcdef\0"), s("abcd", true));
        assert_eq!(plain(&Type::Str(0), b"x"), s("", false));
        assert_eq!(plain(&Type::Buf(4), &[2, 0, 0, 0, 0, 1, 9, 9]), Value::Bytes(vec![0, 1]));
        assert_eq!(plain(&Type::Buf(2), &[0xff, 0xff, 0xff, 0xff, 1, 2, 3]), Value::Bytes(vec![1, 2]));
    }

    #[test]
    fn enums() {
        let e = |signed| {
            let variants = vec![("LOW".to_string(), -1), ("A".to_string(), 1), ("B".to_string(), 1)];
            Type::Enum(Arc::new(Enum { name: "e".into(), int: Int { bytes: 4, signed }, variants }))
        };
        let named = |name: &str, value| Value::Enum { name: Some(name.into()), value };
        assert_eq!(plain(&e(false), &[1, 0, 0, 0]), named("A", 1));
        assert_eq!(plain(&e(true), &[0xff; 4]), named("LOW", -1));
        assert_eq!(plain(&e(false), &[0xff; 4]), Value::Enum { name: None, value: 0xffff_ffff });
        let wide = Enum { name: "w".into(), int: Int { bytes: 8, signed: false }, variants: vec![("A".to_string(), 1)] };
        assert_eq!(plain(&Type::Enum(Arc::new(wide)), &[0xff; 8]), Value::Uint(u64::MAX));
    }

    #[test]
    fn arrays_and_tuples() {
        let list = Value::List(vec![Value::Int(1), Value::Int(-1)]);
        assert_eq!(plain(&Type::Array(Box::new(Type::int(2)), 2), &[1, 0, 0xff, 0xff]), list);
        assert_eq!(plain(&Type::Array(Box::new(Type::Void), u32::MAX), &[]), Value::List(vec![]));
        let tuple = Type::Tuple(vec![Type::uint(1), Type::uint(4), Type::Str(3), Type::uint(2)]);
        let bytes = [1, 9, 9, 9, 2, 0, 0, 0, b'h', b'i', 0, 9, 3, 0];
        let parts = vec![Value::Uint(1), Value::Uint(2), s("hi", false), Value::Uint(3)];
        assert_eq!(plain(&tuple, &bytes), Value::Tuple(parts));
    }

    #[test]
    fn records() {
        let signed = Type::int(4);
        let fields = vec![
            field("a", 0, None, Type::uint(4)),
            field("x", 4, Some((0, 3)), Type::uint(4)),
            field("y", 4, Some((3, 5)), signed.clone()),
            field("z", 4, Some((12, 1)), Type::Bool),
            field("w", 6, Some((4, 12)), signed),
        ];
        let record = Type::Record(Arc::new(Record { name: "r".into(), size: 8, fields, variants: None }));
        let word: u32 = 0b101 | 0b11110 << 3 | 1 << 12 | 0x7ff << 20;
        let bytes = [&7u32.to_le_bytes()[..], &word.to_le_bytes()].concat();
        let expected =
            [("a", Value::Uint(7)), ("x", Value::Uint(5)), ("y", Value::Int(-2)), ("z", Value::Bool(true)), ("w", Value::Int(0x7ff))];
        assert_eq!(plain(&record, &bytes), Value::Record(expected.map(|(n, v)| (n.to_string(), v)).into()));
    }

    #[test]
    fn unions_overlap() {
        let fields = vec![field("whole", 0, None, Type::uint(2)), field("low", 0, None, Type::uint(1))];
        let union = Type::Record(Arc::new(Record { name: "u".into(), size: 2, fields, variants: None }));
        let expected = vec![("whole".into(), Value::Uint(0x201)), ("low".into(), Value::Uint(1))];
        assert_eq!(plain(&union, &[1, 2, 3]), Value::Record(expected));
    }

    #[test]
    fn variants_exclude_each_other() {
        let fields = vec![
            field("discriminant", 0, None, Type::uint(1)),
            field("None", 0, None, Type::uint(1)),
            field("One", 1, None, Type::uint(1)),
            field("Some", 0, None, Type::uint(1)),
        ];
        let variants = Some(Variants { discriminant: 0, values: vec![(1, Some(2)), (2, Some(3)), (3, None)] });
        let of = |variants| Type::Record(Arc::new(Record { name: "e".into(), size: 2, fields: fields.clone(), variants }));
        let one = |name: &str, value| Value::Record(vec![(name.into(), Value::Uint(value))]);
        assert_eq!(plain(&of(variants.clone()), &[2, 9]), one("None", 2));
        assert_eq!(plain(&of(variants.clone()), &[3, 9]), one("One", 9));
        assert_eq!(plain(&of(variants), &[7, 9]), one("Some", 7));
        // a value of the discriminant that no variant has
        let damaged = plain(&of(Some(Variants { discriminant: 0, values: vec![(1, Some(2))] })), &[1, 9]);
        assert!(matches!(damaged, Value::Record(fields) if fields.len() == 4));
    }

    #[test]
    fn types_without_a_value() {
        let agg = Agg { function: "count".into(), signed: false, params: vec![], size: 8 };
        assert_eq!(plain(&Type::Agg(Arc::new(agg)), &[1; 8]), Value::None);
        assert_eq!((plain(&Type::Void, &[]), plain(&Type::Args, &[1])), (Value::None, Value::None));
        let opaque = Type::Struct(Arc::new(Struct { name: "s".into(), union: false, size: 2, id: 1 }));
        assert_eq!(plain(&opaque, &[1]), Value::Bytes(vec![1, 0]));
    }
}
