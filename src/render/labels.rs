//! Keys of maps as labels of metrics.

use std::fmt::Write as _;

use super::TextFormatter;
use crate::value::Value;

/// The values of a series' labels: one for each part of its key.
pub type Labels = Vec<String>;

/// Converts keys to labels.
#[derive(Default)]
pub struct LabelFormatter(TextFormatter);

impl LabelFormatter {
    /// The labels of a key. Different strings have different labels: bytes that are not UTF-8 are escaped, and blanks are kept.
    pub fn labels(&self, keyed: bool, key: &Value) -> Labels {
        key_parts(keyed, key).iter().map(|part| self.label(part)).collect()
    }

    fn label(&self, part: &Value) -> String {
        if let Value::Str { bytes, cut: false } = part { escaped(bytes) } else { self.0.format(part).trim().to_string() }
    }
}

/// The parts of a key; none if the map has no keys.
pub fn key_parts(keyed: bool, key: &Value) -> &[Value] {
    if !keyed {
        return &[];
    }
    if let Value::Tuple(parts) = key { parts } else { std::slice::from_ref(key) }
}

/// Text in which bytes that are not UTF-8 appear as `\xff`. Backslashes before such a byte, or before text that looks like one, are
/// doubled.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for (at, c) in chunk.valid().char_indices() {
            let after = chunk.valid().get(at..).unwrap_or_default().trim_start_matches('\\');
            let is_byte = if after.is_empty() { !chunk.invalid().is_empty() } else { looks_like_byte(after) };
            if c == '\\' && is_byte {
                text.push('\\');
            }
            text.push(c);
        }
        chunk.invalid().iter().for_each(|byte| {
            let _ = write!(text, "\\x{byte:02x}");
        });
    }
    text
}

fn looks_like_byte(text: &str) -> bool {
    let digits = text.strip_prefix('x').and_then(|digits| digits.as_bytes().get(..2));
    digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_strings_have_different_labels() {
        let all: [(&[u8], &str); 8] = [
            (b" a", " a"),
            (b"a\xff", "a\\xff"),
            (b"a\\xff", "a\\\\xff"),
            (b"a\\\\xff", "a\\\\\\\\xff"),
            (b"a\\\xff", "a\\\\\\xff"),
            (b"\\", "\\"),
            (b"\\xg0", "\\xg0"),
            (b"\\x", "\\x"),
        ];
        for (bytes, label) in all {
            assert_eq!(escaped(bytes), label, "{bytes:?}");
        }
    }
}
