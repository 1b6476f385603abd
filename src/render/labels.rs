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
    /// The labels of a key. Different keys have different labels, except for values whose text is equal, such as stacks that differ only
    /// in addresses.
    pub fn labels(&self, keyed: bool, key: &Value) -> Labels {
        key_parts(keyed, key).iter().map(|part| self.label(part)).collect()
    }

    fn label(&self, value: &Value) -> String {
        let parts = |values: &[Value]| values.iter().map(|value| self.part(value)).collect::<Vec<_>>();
        match value {
            Value::Str { bytes, cut: false } => escaped(bytes, |_| true),
            Value::Str { bytes, cut: true } => format!("{}{}", escaped(bytes, |_| true), self.0.format(&CUT)),
            Value::Bytes(bytes) => escaped(bytes, |c| matches!(c, ' '..='~')),
            Value::Text(text) => text.to_string(),
            Value::List(values) => format!("[{}]", parts(values).join(",")),
            Value::Tuple(values) => format!("({})", parts(values).join(", ")),
            Value::Record(fields) => {
                let fields: Vec<String> = fields.iter().map(|(name, value)| format!(".{name} = {}", self.part(value))).collect();
                if fields.is_empty() { "{}".into() } else { format!("{{ {} }}", fields.join(", ")) }
            }
            Value::None
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Float { .. }
            | Value::Ptr(_)
            | Value::Enum { .. }
            | Value::Stack(_)
            | Value::Hist(_)
            | Value::Stats(_)
            | Value::Avg(_)
            | Value::Percentiles(_)
            | Value::Series(_)
            | Value::HeatMap(_) => self.0.format(value).trim().to_string(),
        }
    }

    /// A value within another one. A text in which its end is not clear is in quotation marks.
    fn part(&self, value: &Value) -> String {
        let label = self.label(value);
        if !matches!(value, Value::Str { .. } | Value::Text(_) | Value::Bytes(_) | Value::Stack(_)) {
            return label;
        }
        let is_clear = !label.is_empty() && label.trim() == label && !label.contains(['"', ',', '(', ')', '[', ']', '{', '}', '\n']);
        if is_clear { label } else { format!("\"{}\"", label.replace('\\', "\\\\").replace('"', "\\\"")) }
    }
}

/// A string that was cut, of which no byte remains.
const CUT: Value = Value::Str { bytes: Vec::new(), cut: true };

/// The parts of a key; none if the map has no keys.
pub fn key_parts(keyed: bool, key: &Value) -> &[Value] {
    if !keyed {
        return &[];
    }
    if let Value::Tuple(parts) = key { parts } else { std::slice::from_ref(key) }
}

/// Text in which bytes that are not UTF-8, and characters that are not kept, appear as `\xff`. Backslashes before such a byte, or before
/// text that looks like one, are doubled.
fn escaped(bytes: &[u8], keeps: fn(char) -> bool) -> String {
    let mut text = String::new();
    let byte = |text: &mut String, byte: &u8| {
        let _ = write!(text, "\\x{byte:02x}");
    };
    for chunk in bytes.utf8_chunks() {
        for (at, c) in chunk.valid().char_indices() {
            if !keeps(c) {
                c.encode_utf8(&mut [0; 4]).as_bytes().iter().for_each(|b| byte(&mut text, b));
                continue;
            }
            let after = chunk.valid().get(at..).unwrap_or_default().trim_start_matches('\\');
            let is_byte = match after.chars().next() {
                Some(next) => !keeps(next) || looks_like_byte(after),
                None => !chunk.invalid().is_empty(),
            };
            if c == '\\' && is_byte {
                text.push('\\');
            }
            text.push(c);
        }
        chunk.invalid().iter().for_each(|b| byte(&mut text, b));
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
            assert_eq!(escaped(bytes, |_| true), label, "{bytes:?}");
        }
    }

    #[test]
    fn different_keys_have_different_labels() {
        let text = |text: &str| Value::Str { bytes: text.into(), cut: false };
        let bytes = |bytes: &[u8]| Value::Bytes(bytes.into());
        let pair = |a: &str, b: &str| Value::Tuple(vec![text(a), text(b)]);
        let record = |values: &[(&str, &str)]| Value::Record(values.iter().map(|(name, value)| (name.to_string(), text(value))).collect());
        let cut = |bytes: &[u8]| Value::Str { bytes: bytes.into(), cut: true };
        let keys = [
            pair("a, b", "c"),
            pair("a", "b, c"),
            pair("\"a\", b", "c"),
            pair("a\\", "\", c"),
            pair("", ""),
            pair("", " "),
            pair(" a", "b"),
            pair("a", "b"),
            Value::List(vec![text("a,b"), text("c")]),
            Value::List(vec![text("a"), text("b,c")]),
            Value::List(vec![text("a],[b")]),
            Value::List(vec![Value::List(vec![text("a")]), Value::List(vec![text("b")])]),
            record(&[("x", "1, .y = 2"), ("y", "3")]),
            record(&[("x", "1"), ("y", "2, .y = 3")]),
            Value::Text(" a".into()),
            Value::Text("a".into()),
            bytes(b"\\x01"),
            bytes(b"\x01"),
            bytes(b"\\\x01"),
            bytes("\u{e9}".as_bytes()),
            bytes(b"\xe9"),
            cut(b"x\xfe"),
            cut(b"x\xff"),
        ];
        let formatter = LabelFormatter::default();
        // the key is one part of several
        let labels: Vec<String> = keys.iter().map(|key| formatter.label(key)).collect();
        let different: std::collections::BTreeSet<&String> = labels.iter().collect();
        assert_eq!(different.len(), keys.len(), "{labels:#?}");
        assert_eq!(labels.first().map(String::as_str), Some("(\"a, b\", c)"));
    }
}
