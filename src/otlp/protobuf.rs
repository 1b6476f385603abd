//! The wire format of Protocol Buffers, as far as rbt writes it: <https://protobuf.dev/programming-guides/encoding>.

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH: u32 = 2;

/// A message under construction. Fields with default values are written as well, because some of them are optional.
#[derive(Clone, Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    /// The bytes of the message.
    pub fn bytes(self) -> Vec<u8> {
        self.0
    }

    fn raw(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    fn key(&mut self, field: u32, wire: u32) {
        self.raw(u64::from(field << 3 | wire));
    }

    /// `uint64`, `int64`, `bool` and enumerations.
    pub fn varint(&mut self, field: u32, n: u64) {
        self.key(field, VARINT);
        self.raw(n);
    }

    /// `fixed64` and `sfixed64`
    pub fn fixed(&mut self, field: u32, n: u64) {
        self.key(field, FIXED64);
        self.0.extend_from_slice(&n.to_le_bytes());
    }

    /// `double`
    pub fn double(&mut self, field: u32, n: f64) {
        self.fixed(field, n.to_bits());
    }

    /// `bytes`, `string` and messages that are complete.
    pub fn data(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, LENGTH);
        self.raw(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A message.
    pub fn message(&mut self, field: u32, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.data(field, &inner.0);
    }

    /// `repeated fixed64` and `repeated double`, packed.
    pub fn packed(&mut self, field: u32, all: impl ExactSizeIterator<Item = u64>) {
        self.key(field, LENGTH);
        self.raw(all.len() as u64 * 8);
        all.for_each(|n| self.0.extend_from_slice(&n.to_le_bytes()));
    }
}

/// The value of a field of a message; numbers are those of `varint` and `fixed64` fields.
#[derive(Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// A number.
    Number(u64),
    /// Bytes, a string or a message.
    Data(&'a [u8]),
}

/// The fields of a message up to the first that is malformed.
pub fn fields(mut bytes: &[u8]) -> impl Iterator<Item = (u64, Field<'_>)> {
    std::iter::from_fn(move || {
        let key = take_varint(&mut bytes)?;
        let value = match (key & 7) as u32 {
            VARINT => Field::Number(take_varint(&mut bytes)?),
            FIXED64 => Field::Number(u64::from_le_bytes(take(&mut bytes, 8)?.try_into().ok()?)),
            LENGTH => {
                let length = usize::try_from(take_varint(&mut bytes)?).ok()?;
                Field::Data(take(&mut bytes, length)?)
            }
            _ => return None,
        };
        Some((key >> 3, value))
    })
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
    fn fields_are_read_as_they_were_written() {
        let mut message = Message::default();
        message.varint(1, 300);
        message.fixed(2, u64::MAX);
        message.message(16, |m| m.data(1, b"a"));
        let bytes = message.bytes();
        // the example of the specification: field 1 with 300
        assert_eq!(bytes[..3], [0x08, 0xac, 0x02]);
        let all: Vec<_> = fields(&bytes).collect();
        assert_eq!(all, [(1, Field::Number(300)), (2, Field::Number(u64::MAX)), (16, Field::Data(&[10, 1, b'a']))]);
        assert_eq!(fields(&[0x0a, 0xff]).count(), 0);
        assert_eq!(fields(&[0xff; 20]).count(), 0);
    }
}
