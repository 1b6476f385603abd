//! Parses the literals of numbers and strings.

use crate::diag::{Diagnostic, Span};
use crate::units;

/// The value of an integer in a script: `10`, `1_000`, `017`, `0xff`, `1e6`, `5ul`, `100ms` (nanoseconds). The error
/// describes the problem.
pub fn parse_int(text: &str) -> Result<u64, String> {
    let too_large = || format!("`{text}` does not fit in 64 bits");
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return digits(text, hex, 16);
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (int, rest) = text.split_at(end);
    let octal = int.len() > 1 && int.starts_with('0');
    let mut value = digits(text, int, if octal { 8 } else { 10 })?;
    let mut suffix = rest;
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let end = exponent.find(|c: char| !c.is_ascii_digit()).unwrap_or(exponent.len());
        let (power, after) = exponent.split_at(end);
        if power.is_empty() {
            return Err(format!("`{text}` has no digits in its exponent"));
        }
        let power = power.parse::<u32>().map_err(|_| too_large())?;
        value = 10u64.checked_pow(power).and_then(|p| p.checked_mul(value)).or((value == 0).then_some(0)).ok_or_else(too_large)?;
        suffix = after;
    }
    if suffix.is_empty() {
        return Ok(value);
    }
    if let Some(scale) = units::duration(suffix) {
        return value.checked_mul(scale).ok_or_else(too_large);
    }
    let of_c = suffix.to_ascii_lowercase();
    if !units::TYPES_OF_C.contains(&of_c.as_str()) {
        Err(format!("`{text}` has an unknown suffix `{suffix}`"))
    } else if of_c.starts_with('l') && i64::try_from(value).is_err() {
        Err(format!("`{text}` does not fit in a signed 64-bit integer"))
    } else {
        Ok(value)
    }
}

fn digits(text: &str, part: &str, base: u32) -> Result<u64, String> {
    if part.is_empty() {
        return Err(format!("`{text}` is not a number: it has no digits"));
    }
    if part.starts_with('_') || part.ends_with('_') {
        return Err(format!("`{text}` is not a number: `_` is allowed between digits only"));
    }
    let mut value = 0u64;
    for c in part.chars().filter(|c| *c != '_') {
        let kind = match base {
            8 => "an octal",
            16 => "a hexadecimal",
            _ => "a decimal",
        };
        let digit = c.to_digit(base).ok_or_else(|| format!("`{c}` is not {kind} digit in `{text}`"))?;
        let next = value.checked_mul(u64::from(base)).and_then(|v| v.checked_add(u64::from(digit)));
        value = next.ok_or_else(|| format!("`{text}` does not fit in 64 bits"))?;
    }
    Ok(value)
}

/// The bytes of a quoted string; `span` is that of the literal, including the quotes. An invalid escape is reported at
/// its place and dropped.
pub fn unescape(quoted: &str, span: Span, diags: &mut Vec<Diagnostic>) -> Vec<u8> {
    let body = quoted.strip_prefix('"').and_then(|s| s.strip_suffix('"')).unwrap_or(quoted).as_bytes();
    let mut out = Vec::with_capacity(body.len());
    let mut pos = 0;
    while let Some(byte) = body.get(pos) {
        if *byte != b'\\' {
            out.push(*byte);
            pos += 1;
            continue;
        }
        let rest = body.get(pos + 1..).unwrap_or(&[]);
        let (result, length) = escape(rest);
        match result {
            Ok(value) => out.push(value),
            Err(message) => {
                let start = span.start + 1 + pos as u32;
                let place = Span { start, end: start + 1 + length as u32, ..span };
                let help = r#"the escapes are \n \t \r \" \\ \NNN (octal) and \xNN; write \\ for a backslash"#;
                diags.push(Diagnostic::error("bad-escape", place, message).help(help));
            }
        }
        pos += 1 + length;
    }
    out
}

/// The byte of an escape, and the length of the text after the backslash.
fn escape(rest: &[u8]) -> (Result<u8, String>, usize) {
    let Some(first) = rest.first() else { return (Err("a backslash with nothing after it".into()), 0) };
    let run = |from: usize, max_digits: usize, base: u32| {
        let part = rest.get(from..).unwrap_or(&[]).iter();
        let values: Vec<u32> = part.take(max_digits).map_while(|b| char::from(*b).to_digit(base)).collect();
        (values.iter().fold(0, |v, d| v * base + d), values.len())
    };
    match first {
        b'n' => (Ok(b'\n'), 1),
        b't' => (Ok(b'\t'), 1),
        b'r' => (Ok(b'\r'), 1),
        b'"' | b'\\' => (Ok(*first), 1),
        b'0'..=b'7' => {
            let (value, length) = run(0, 3, 8);
            (u8::try_from(value).map_err(|_| format!("the octal escape `\\{value:o}` is over 255")), length)
        }
        b'x' => match run(1, 2, 16) {
            (_, 0) => (Err("`\\x` needs one or two hexadecimal digits".into()), 1),
            (value, length) => (Ok(value as u8), 1 + length),
        },
        _ => {
            let text = String::from_utf8_lossy(rest);
            let shown = text.chars().next().unwrap_or(' ');
            (Err(format!("`\\{shown}` is not an escape")), shown.len_utf8().min(rest.len()))
        }
    }
}
