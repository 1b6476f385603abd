//! Writes messages of protocol buffers (<https://protobuf.dev/programming-guides/encoding/>).

/// A message under construction.
#[derive(Clone, Debug, Default)]
pub struct Message(Vec<u8>);

const VARINT: u64 = 0;
const LENGTH: u64 = 2;

impl Message {
    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    /// An unsigned number, an enumeration or a bool.
    pub fn uint(&mut self, field: u32, n: u64) -> &mut Self {
        self.varint(u64::from(field) << 3 | VARINT);
        self.varint(n);
        self
    }

    /// A signed number (`int64`, `int32`).
    pub fn int(&mut self, field: u32, n: i64) -> &mut Self {
        self.uint(field, n as u64)
    }

    /// Bytes, or a complete message.
    pub fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Self {
        self.varint(u64::from(field) << 3 | LENGTH);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// A string: U+FFFD replaces bytes that are not UTF-8.
    pub fn text(&mut self, field: u32, text: &[u8]) -> &mut Self {
        self.bytes(field, String::from_utf8_lossy(text).as_bytes())
    }

    /// A message.
    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut Message)) -> &mut Self {
        let mut inner = Message::default();
        write(&mut inner);
        self.bytes(field, &inner.0)
    }

    /// Unsigned numbers, packed.
    pub fn packed(&mut self, field: u32, numbers: impl IntoIterator<Item = u64>) -> &mut Self {
        let mut packed = Message::default();
        numbers.into_iter().for_each(|n| packed.varint(n));
        self.bytes(field, &packed.0)
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_specification_has_it() {
        let mut m = Message::default();
        m.uint(1, 150).text(2, b"testing").message(3, |inner| {
            inner.uint(1, 150);
        });
        assert_eq!(m.written(), b"\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01");
        let mut m = Message::default();
        m.int(16, -2).text(1, b"\xff");
        assert_eq!(m.written(), b"\x80\x01\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x0a\x03\xef\xbf\xbd");
    }
}
