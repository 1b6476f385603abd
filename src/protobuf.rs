//! The wire format of Protocol Buffers, as far as rbt writes and reads it:
//! <https://protobuf.dev/programming-guides/encoding>.

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH: u32 = 2;
const FIXED32: u32 = 5;

/// A message under construction. Fields with default values are written as well, because some of them are optional.
#[derive(Clone, Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    /// An empty message with space for this number of bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    fn key(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field) << 3 | u64::from(wire));
    }

    /// `uint64`, `uint32`, `bool` and enumerations.
    pub fn uint(&mut self, field: u32, n: u64) -> &mut Self {
        self.key(field, VARINT);
        self.varint(n);
        self
    }

    /// `int64` and `int32`.
    pub fn int(&mut self, field: u32, n: i64) -> &mut Self {
        self.uint(field, n as u64)
    }

    /// `fixed64` and `sfixed64`.
    pub fn fixed(&mut self, field: u32, n: u64) -> &mut Self {
        self.key(field, FIXED64);
        self.0.extend_from_slice(&n.to_le_bytes());
        self
    }

    /// `double`
    pub fn double(&mut self, field: u32, n: f64) -> &mut Self {
        self.fixed(field, n.to_bits())
    }

    /// `bytes`, or a message that is complete.
    pub fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Self {
        self.key(field, LENGTH);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// `string`: U+FFFD replaces bytes that are not UTF-8.
    pub fn text(&mut self, field: u32, text: &[u8]) -> &mut Self {
        self.bytes(field, String::from_utf8_lossy(text).as_bytes())
    }

    /// A message, which is written in place: `fill` appends its fields.
    pub fn message(&mut self, field: u32, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.key(field, LENGTH);
        // most messages are so short that their length takes one byte
        let place = self.0.len();
        self.0.push(0);
        fill(self);
        let length = self.0.len() - place - 1;
        match self.0.get_mut(place) {
            Some(byte) if length < 0x80 => *byte = length as u8,
            Some(_) | None => {
                let mut prefix = Self::default();
                prefix.varint(length as u64);
                self.0.splice(place..=place, prefix.0);
            }
        }
        self
    }

    /// `repeated uint64` and `repeated int64`, packed.
    pub fn packed(&mut self, field: u32, numbers: impl IntoIterator<Item = u64>) -> &mut Self {
        let mut packed = Self::default();
        numbers.into_iter().for_each(|n| packed.varint(n));
        self.bytes(field, &packed.0)
    }

    /// `repeated fixed64` and `repeated double`, packed.
    pub fn packed_fixed(&mut self, field: u32, numbers: impl IntoIterator<Item = u64>) -> &mut Self {
        let packed: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
        self.bytes(field, &packed)
    }

    /// Complete fields.
    pub fn append(&mut self, fields: &[u8]) -> &mut Self {
        self.0.extend_from_slice(fields);
        self
    }

    /// The bytes written so far.
    pub fn written(&self) -> &[u8] {
        &self.0
    }

    /// The bytes of the message.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// The value of a field of a message; numbers are those of varints and of fields with a fixed size.
#[derive(Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// A number.
    Number(u64),
    /// Bytes, a string or a message.
    Data(&'a [u8]),
}

/// Is this a message? Texts such as HTML and JSON are none.
pub fn is_message(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while !rest.is_empty() {
        if take_field(&mut rest).is_none() {
            return false;
        }
    }
    true
}

/// The fields of a message up to the first that is malformed.
pub fn fields(mut bytes: &[u8]) -> impl Iterator<Item = (u64, Field<'_>)> {
    std::iter::from_fn(move || take_field(&mut bytes))
}

fn take_field<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Field<'a>)> {
    let key = take_varint(bytes)?;
    let value = match (key & 7) as u32 {
        VARINT => Field::Number(take_varint(bytes)?),
        FIXED64 => Field::Number(u64::from_le_bytes(take(bytes, 8)?.try_into().ok()?)),
        LENGTH => {
            let length = usize::try_from(take_varint(bytes)?).ok()?;
            Field::Data(take(bytes, length)?)
        }
        FIXED32 => Field::Number(u32::from_le_bytes(take(bytes, 4)?.try_into().ok()?).into()),
        _ => return None,
    };
    Some((key >> 3, value))
}

fn take<'a>(bytes: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(n)?;
    *bytes = rest;
    Some(taken)
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut n = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *take(bytes, 1)?.first()?;
        n |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(n);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_examples_of_the_specification() {
        let mut m = Message::default();
        m.uint(1, 150).text(2, b"testing").message(3, |inner| {
            inner.uint(1, 150);
        });
        assert_eq!(m.written(), b"\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01");
        let mut m = Message::default();
        m.int(16, -2).text(1, b"\xff");
        assert_eq!(m.written(), b"\x80\x01\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x0a\x03\xef\xbf\xbd");
    }

    #[test]
    fn lengths_of_nested_messages_are_exact() {
        for length in [0, 1, 124, 125, 126, 127, 128, 300, 20_000] {
            let text = vec![b'x'; length];
            let mut message = Message::default();
            message.message(1, |outer| {
                outer.message(2, |inner| {
                    inner.bytes(3, &text).uint(4, 1);
                });
                outer.uint(5, 2);
            });
            let bytes = message.uint(6, 3).written().to_vec();
            let all: Vec<_> = fields(&bytes).collect();
            let [(1, Field::Data(outer)), (6, Field::Number(3))] = all[..] else { panic!("{all:?}") };
            let outer: Vec<_> = fields(outer).collect();
            let [(2, Field::Data(inner)), (5, Field::Number(2))] = outer[..] else { panic!("{outer:?}") };
            assert_eq!(fields(inner).collect::<Vec<_>>(), [(3, Field::Data(&text)), (4, Field::Number(1))]);
        }
    }

    #[test]
    fn fields_round_trip() {
        let mut message = Message::default();
        message.uint(1, 300).fixed(2, u64::MAX).message(16, |m| {
            m.bytes(1, b"a");
        });
        let bytes = message.into_bytes();
        // the example of the specification: field 1 with 300
        assert_eq!(bytes[..3], [0x08, 0xac, 0x02]);
        let all: Vec<_> = fields(&bytes).collect();
        assert_eq!(all, [(1, Field::Number(300)), (2, Field::Number(u64::MAX)), (16, Field::Data(&[10, 1, b'a']))]);
        assert_eq!(fields(&[0x0a, 0xff]).count(), 0);
        assert_eq!(fields(&[0xff; 20]).count(), 0);
        assert!(is_message(&bytes) && is_message(b"") && !is_message(&bytes[..bytes.len() - 1]));
        assert!(![&b"<html>"[..], b"{}", b"ok", b"OK\n", b"\n", b"login required"].into_iter().any(is_message));
    }
}
