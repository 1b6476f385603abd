//! Bytes of a record or a map to a [`Value`], by [`Type`].
//!
//! Input that is too short counts as followed by zeros: a record comes from outside this process, so nothing about its
//! length is taken for granted.

use std::borrow::Cow;

use crate::types::{Enum, Field, Int, Record, Tagged, Type};
use crate::value::Value;

/// The value that `bytes` hold, in host byte order (little-endian is all we run on).
///
/// `tags` decodes what [`Type::Tagged`] stands for; it is given exactly the tag's size in bytes. An aggregation is
/// merged from all CPUs before it has a value, so it decodes to [`Value::None`] here, as `args` and `void` do.
pub fn decode(ty: &Type, bytes: &[u8], tags: &mut dyn FnMut(&Tagged, &[u8]) -> Value) -> Value {
    match ty {
        Type::Void | Type::Agg(_) | Type::Args => Value::None,
        Type::Bool => Value::Bool(bytes.first().is_some_and(|b| *b != 0)),
        Type::Int(int) => integer(*int, word(bytes, int.bytes.into())),
        Type::Enum(e) => enumerator(e, word(bytes, e.int.bytes.into())),
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
        // Its members are not known here; a struct that is meant to be shown comes as a record.
        Type::Struct(s) => Value::Bytes(exactly(bytes, s.size as usize).into_owned()),
        Type::Record(r) => record(r, bytes, tags),
        Type::Tuple(elems) => {
            let offsets = Type::tuple_offsets(elems);
            Value::Tuple(elems.iter().zip(offsets).map(|(e, at)| decode(e, after(bytes, at as usize), tags)).collect())
        }
        Type::Tagged(tag) => tags(tag, &exactly(bytes, tag.size as usize)),
    }
}

fn record(record: &Record, bytes: &[u8], tags: &mut dyn FnMut(&Tagged, &[u8]) -> Value) -> Value {
    let bytes = bytes.get(..record.size as usize).unwrap_or(bytes);
    let mut field = |f: &Field| {
        let at = after(bytes, f.offset as usize);
        let value = match (f.bits, f.ty.as_int()) {
            (Some((offset, width)), Some(int)) => scalar(&f.ty, bit_field(at, offset, width, int.signed)),
            (Some(_), None) | (None, _) => decode(&f.ty, at, tags),
        };
        (f.name.clone(), value)
    };
    Value::Record(record.fields.iter().map(&mut field).collect())
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
        Type::Enum(e) => enumerator(&Enum { int: Int { bytes: 8, signed: e.int.signed }, ..Enum::clone(e) }, bits),
        Type::Ptr(..) => Value::Ptr(bits),
        Type::Void
        | Type::Str(_)
        | Type::Buf(_)
        | Type::Array(..)
        | Type::Struct(_)
        | Type::Record(_)
        | Type::Tuple(_)
        | Type::Tagged(_)
        | Type::Agg(_)
        | Type::Args => Value::None,
    }
}

fn integer(int: Int, raw: u64) -> Value {
    if int.signed { Value::Int(sign_extend(int, raw)) } else { Value::Uint(raw) }
}

fn enumerator(e: &Enum, raw: u64) -> Value {
    let value = if e.int.signed { sign_extend(e.int, raw) } else { raw as i64 };
    let name = e.variants.iter().find(|(_, v)| *v == value).map(|(name, _)| name.clone());
    Value::Enum { name, value }
}

fn sign_extend(int: Int, raw: u64) -> i64 {
    let unused = 64 - 8 * u32::from(int.bytes.clamp(1, 8));
    (raw << unused) as i64 >> unused
}

/// Up to its NUL; cut, when there is none.
fn string(bytes: &[u8], capacity: usize) -> Value {
    let room = bytes.get(..capacity).unwrap_or(bytes);
    match room.iter().position(|b| *b == 0) {
        Some(end) => Value::Str { bytes: room.get(..end).unwrap_or(room).to_vec(), cut: false },
        None => Value::Str { bytes: room.to_vec(), cut: room.len() == capacity && capacity > 0 },
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

fn after(bytes: &[u8], at: usize) -> &[u8] {
    bytes.get(at..).unwrap_or(&[])
}

/// So many bytes, with zeros for those that are missing.
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
