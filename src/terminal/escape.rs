//! Text of unknown origin, without what a terminal would obey.

/// Can it make a terminal show other text than there is? Control characters can, and so can the characters that end a
/// line or change the direction of writing (Unicode Standard Annex 9, "Trojan Source").
pub fn is_deceptive(c: char) -> bool {
    c.is_control() || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Appends a text as one line. Control characters are escaped as in C and `%r` (`\n`, `\x1b`), and so are bytes that are not
/// UTF-8, because a terminal could combine them with the following ones to control characters.
pub fn visible(text: &[u8], to: &mut Vec<u8>) {
    for chunk in text.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(at) = rest.find(is_deceptive) {
            let (before, after) = rest.split_at(at);
            to.extend_from_slice(before.as_bytes());
            let c = after.chars().next().unwrap_or_default();
            match c {
                '\n' => to.extend_from_slice(b"\\n"),
                '\r' => to.extend_from_slice(b"\\r"),
                '\t' => to.extend_from_slice(b"\\t"),
                c => after.bytes().take(c.len_utf8()).for_each(|b| hex(b, to)),
            }
            rest = after.get(c.len_utf8()..).unwrap_or_default();
        }
        to.extend_from_slice(rest.as_bytes());
        chunk.invalid().iter().for_each(|b| hex(*b, to));
    }
}

fn hex(byte: u8, to: &mut Vec<u8>) {
    to.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_control_characters() {
        let shown = |text: &[u8]| {
            let mut to = Vec::new();
            visible(text, &mut to);
            String::from_utf8(to).unwrap()
        };
        assert_eq!(shown(b"\x1b[31mX\n\r\t\0\x7f"), r"\x1b[31mX\n\r\t\x00\x7f");
        assert_eq!(shown("\u{9b}31m é 日本".as_bytes()), r"\xc2\x9b31m é 日本");
        // two halves of U+009B, printed one after the other
        assert_eq!((shown(b"\xc2"), shown(b"\x9b")), (r"\xc2".into(), r"\x9b".into()));
        for c in (0..=0x10FFFF).filter_map(char::from_u32) {
            let told = shown(c.to_string().as_bytes());
            assert!(!told.chars().any(is_deceptive), "{c:?}");
            assert_eq!(told == c.to_string(), !is_deceptive(c), "{c:?}");
        }
    }
}
