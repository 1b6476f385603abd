//! `printf`'s format strings: parsed once, then applied to each event's arguments.
//!
//! Differences from C, beside the conversions `r`, `rx`, `rh` and `gr`: an integer is as wide as it is unless `hh` or
//! `h` says otherwise; `%p` of zero is `0`; the `0` flag fills any conversion. Other differences from bpftrace:
//! [`super::DIFFERENCES`].

use crate::types::{Int, Type};
use crate::value::Value;

use super::digits::{hex_byte, unsigned};
use super::{gfp, text};

/// A part of a format string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Goes out as it is.
    Text(Vec<u8>),
    /// Shows the next argument.
    Spec(Spec),
}

/// A conversion with its modifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Bytes from the format's start to the `%`.
    pub offset: usize,
    /// As written, `%-8s`: for messages.
    pub source: String,
    /// `-`: at the left of its width.
    pub left: bool,
    /// `+`: a sign before positive numbers too.
    pub plus: bool,
    /// A space where a sign would be.
    pub space: bool,
    /// `#`: prefix `0` or `0x`.
    pub alt: bool,
    /// `0`: filled with zeros.
    pub zero: bool,
    /// Least number of columns (bytes).
    pub width: usize,
    /// Most bytes of text or of a buffer, least digits of a number.
    pub precision: Option<usize>,
    /// Bits of an integer that count: 8, 16 or 64 by the length modifier.
    pub bits: u32,
    /// Bits in which a negative number is shown without a sign: 64 until [`bind`] knows better.
    pub natural: u32,
    /// How the argument is shown.
    pub conversion: Conversion,
}

/// What a conversion's letters mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// `d`, `i`
    Signed,
    /// `u`
    Unsigned,
    /// `o`
    Octal,
    /// `x`
    Hex,
    /// `X`
    UpperHex,
    /// `c`
    Char,
    /// `p`
    Pointer,
    /// `s`: anything
    Text,
    /// `r`: printable bytes kept
    Escaped,
    /// `rx`: each byte as `\xHH`
    EscapedAll,
    /// `rh`: each byte as `HH`, a space between
    HexBytes,
    /// `gr`: names of allocation flags
    Gfp,
}

/// What is wrong with a format string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatError {
    /// Bytes from the format's start to the `%`.
    pub offset: usize,
    /// Names the conversion, in the user's terms.
    pub message: String,
}

/// Longest width and precision that are taken: more is a slip, and would fill memory.
const LIMIT: usize = 65_535;

/// Splits a format string into pieces; texts are never empty, and two never follow one another.
pub fn parse(format: &[u8]) -> Result<Vec<Piece>, FormatError> {
    let mut pieces = Vec::new();
    let mut literal = Vec::new();
    let mut cursor = Cursor { bytes: format, at: 0 };
    while let Some(b) = cursor.next() {
        if b != b'%' {
            literal.push(b);
        } else if cursor.eat(b'%') {
            literal.push(b'%');
        } else {
            let spec = spec(&mut cursor)?;
            if !literal.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Spec(spec));
        }
    }
    if !literal.is_empty() {
        pieces.push(Piece::Text(literal));
    }
    Ok(pieces)
}

/// The conversions, in order: one per argument.
pub fn specs(pieces: &[Piece]) -> impl Iterator<Item = &Spec> {
    pieces.iter().filter_map(|p| match p {
        Piece::Spec(spec) => Some(spec),
        Piece::Text(_) => None,
    })
}

/// Tells the conversions their arguments' types, so that `%x` of a negative `int32` has eight digits as in C, and that
/// of an `int64` sixteen. (Narrower ones count as `int32`: C's integer promotion.)
pub fn bind(pieces: &mut [Piece], types: &[Type]) {
    let specs = pieces.iter_mut().filter_map(|p| match p {
        Piece::Spec(spec) => Some(spec),
        Piece::Text(_) => None,
    });
    for (spec, ty) in specs.zip(types) {
        if let Some(Int { bytes, signed: true }) = ty.as_int() {
            spec.natural = (8 * u32::from(bytes)).clamp(32, 64);
        }
    }
}

/// The text of `pieces` with `args`; `text` is what `%s` shows.
pub fn format(pieces: &[Piece], args: &[Value], text: &dyn Fn(&Value) -> Vec<u8>) -> Vec<u8> {
    let mut to = Vec::with_capacity(64);
    format_into(pieces, args, text, &mut to);
    to
}

/// As [`format`], appended.
///
/// An argument that its conversion cannot show (check should have refused it) becomes `!{message}`.
pub fn format_into(pieces: &[Piece], args: &[Value], text: &dyn Fn(&Value) -> Vec<u8>, to: &mut Vec<u8>) {
    let mut args = args.iter();
    for piece in pieces {
        match piece {
            Piece::Text(bytes) => to.extend_from_slice(bytes),
            Piece::Spec(spec) => match args.next() {
                Some(value) => spec.show(value, text, to),
                None => to.extend_from_slice(b"!{missing argument}"),
            },
        }
    }
}

impl Spec {
    /// Can it show a value of this type? An aggregation has to be read as an integer first.
    pub fn accepts(&self, ty: &Type) -> bool {
        match self.conversion {
            Conversion::Text => true,
            Conversion::Escaped | Conversion::EscapedAll | Conversion::HexBytes => matches!(ty, Type::Buf(_)),
            Conversion::Signed
            | Conversion::Unsigned
            | Conversion::Octal
            | Conversion::Hex
            | Conversion::UpperHex
            | Conversion::Char
            | Conversion::Pointer
            | Conversion::Gfp => ty.is_scalar(),
        }
    }

    /// What [`Spec::accepts`], in words: `an integer`.
    pub fn expects(&self) -> &'static str {
        match self.conversion {
            Conversion::Text => "any value",
            Conversion::Escaped | Conversion::EscapedAll | Conversion::HexBytes => "a buffer, as of buf()",
            Conversion::Signed
            | Conversion::Unsigned
            | Conversion::Octal
            | Conversion::Hex
            | Conversion::UpperHex
            | Conversion::Char
            | Conversion::Pointer
            | Conversion::Gfp => "an integer, bool, enum or pointer",
        }
    }

    fn show(&self, value: &Value, text: &dyn Fn(&Value) -> Vec<u8>, to: &mut Vec<u8>) {
        let start = to.len();
        match self.conversion {
            Conversion::Text => {
                match value {
                    Value::Str { bytes, cut: false } => to.extend_from_slice(bytes),
                    value => to.extend_from_slice(&text(value)),
                }
                to.truncate(start.saturating_add(self.precision.unwrap_or(usize::MAX)).min(to.len()));
                self.fill(start, start, to);
            }
            Conversion::Escaped | Conversion::EscapedAll | Conversion::HexBytes => match value {
                Value::Bytes(bytes) => {
                    let bytes = bytes.get(..self.precision.unwrap_or(usize::MAX)).unwrap_or(bytes);
                    self.buffer(bytes, to);
                    self.fill(start, start, to);
                }
                _ => to.extend_from_slice(b"!{not a buffer}"),
            },
            Conversion::Signed
            | Conversion::Unsigned
            | Conversion::Octal
            | Conversion::Hex
            | Conversion::UpperHex
            | Conversion::Char
            | Conversion::Pointer
            | Conversion::Gfp => match bits(value) {
                Some(raw) => self.integer(raw, to),
                None => to.extend_from_slice(b"!{not an integer}"),
            },
        }
    }

    fn buffer(&self, bytes: &[u8], to: &mut Vec<u8>) {
        if self.conversion == Conversion::Escaped {
            return text::escaped(bytes, to);
        }
        let spaced = self.conversion == Conversion::HexBytes;
        for (i, b) in bytes.iter().enumerate() {
            if !spaced {
                to.extend_from_slice(b"\\x");
            } else if i > 0 {
                to.push(b' ');
            }
            hex_byte(to, *b);
        }
    }

    /// `raw` is the argument's 64 bits, extended by its own sign.
    fn integer(&self, raw: u64, to: &mut Vec<u8>) {
        let start = to.len();
        let signed = match self.bits {
            8 => i64::from(raw as u8 as i8),
            16 => i64::from(raw as u16 as i16),
            _ => raw as i64,
        };
        let plain = match self.bits {
            8 => raw & 0xff,
            16 => raw & 0xffff,
            // Only a value that fits its type's width loses bits here: those of its sign.
            _ if self.natural == 32 && raw as i64 == i64::from(raw as i32) => raw & 0xffff_ffff,
            _ => raw,
        };
        match self.conversion {
            Conversion::Signed => {
                if signed < 0 {
                    to.push(b'-');
                } else if self.plus {
                    to.push(b'+');
                } else if self.space {
                    to.push(b' ');
                }
                self.digits(start, signed.unsigned_abs(), 10, to);
            }
            Conversion::Unsigned => self.digits(start, plain, 10, to),
            Conversion::Octal => {
                if self.alt && plain != 0 {
                    to.push(b'0');
                }
                self.digits(start, plain, 8, to);
            }
            Conversion::Hex | Conversion::UpperHex => {
                if self.alt && plain != 0 {
                    to.extend_from_slice(if self.conversion == Conversion::Hex { b"0x" } else { b"0X" });
                }
                self.digits(start, plain, 16, to);
            }
            Conversion::Pointer => {
                if raw != 0 {
                    to.extend_from_slice(b"0x");
                }
                self.digits(start, raw, 16, to);
            }
            Conversion::Char => {
                to.push(raw as u8);
                self.fill(start, start, to);
            }
            Conversion::Gfp => {
                gfp::flags(plain, to);
                self.fill(start, start, to);
            }
            // Not integers: see `show`.
            Conversion::Text | Conversion::Escaped | Conversion::EscapedAll | Conversion::HexBytes => {}
        }
    }

    /// Appends digits after the sign or prefix that starts at `start`.
    fn digits(&self, start: usize, value: u64, base: u64, to: &mut Vec<u8>) {
        let first = to.len();
        // In C, no digit at all stands for zero with a precision of zero.
        if !(value == 0 && self.precision == Some(0)) {
            unsigned(to, value, base, self.conversion == Conversion::UpperHex);
        }
        if let Some(least) = self.precision {
            // The prefix of `%#o` is one of its digits.
            let from = if self.conversion == Conversion::Octal { start } else { first };
            insert(first, least.saturating_sub(to.len() - from), b'0', to);
        }
        self.fill(start, first, to);
    }

    /// Widens what was appended since `start`; zeros go in at `body`, behind a sign or prefix.
    fn fill(&self, start: usize, body: usize, to: &mut Vec<u8>) {
        let missing = self.width.saturating_sub(to.len().saturating_sub(start));
        if missing == 0 {
        } else if self.left {
            to.extend(std::iter::repeat_n(b' ', missing));
        } else if self.zero && (self.precision.is_none() || !self.counts_digits()) {
            insert(body, missing, b'0', to);
        } else {
            insert(start, missing, b' ', to);
        }
    }

    /// Is its precision a number of digits? Then C has no zeros fill the width.
    fn counts_digits(&self) -> bool {
        match self.conversion {
            Conversion::Signed
            | Conversion::Unsigned
            | Conversion::Octal
            | Conversion::Hex
            | Conversion::UpperHex
            | Conversion::Pointer => true,
            Conversion::Char | Conversion::Text | Conversion::Escaped | Conversion::EscapedAll | Conversion::HexBytes | Conversion::Gfp => {
                false
            }
        }
    }
}

/// Puts `count` times `byte` at `at`.
fn insert(at: usize, count: usize, byte: u8, to: &mut Vec<u8>) {
    if count > 0 && at <= to.len() {
        to.splice(at..at, std::iter::repeat_n(byte, count));
    }
}

/// The 64 bits of a value that a register can hold.
fn bits(value: &Value) -> Option<u64> {
    match value {
        Value::Bool(v) => Some(u64::from(*v)),
        Value::Int(v) => Some(*v as u64),
        Value::Uint(v) | Value::Ptr(v) => Some(*v),
        Value::Enum { value, .. } => Some(*value as u64),
        Value::Avg(stats) => bits(&stats.average()),
        Value::None
        | Value::Str { .. }
        | Value::Bytes(_)
        | Value::List(_)
        | Value::Tuple(_)
        | Value::Record(_)
        | Value::Text(_)
        | Value::Stack(_)
        | Value::Hist(_)
        | Value::Stats(_) => None,
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let b = self.peek()?;
        self.at += 1;
        Some(b)
    }

    fn eat(&mut self, b: u8) -> bool {
        let found = self.peek() == Some(b);
        self.at += usize::from(found);
        found
    }

    /// Digits, none of which is also zero; one over the limit when it is passed.
    fn number(&mut self) -> usize {
        let mut n = 0usize;
        while let Some(b @ b'0'..=b'9') = self.peek() {
            n = (n * 10 + usize::from(b - b'0')).min(LIMIT + 1);
            self.at += 1;
        }
        n
    }
}

/// After the `%`.
fn spec(cursor: &mut Cursor) -> Result<Spec, FormatError> {
    let offset = cursor.at - 1;
    let mut spec = Spec {
        offset,
        source: String::new(),
        left: false,
        plus: false,
        space: false,
        alt: false,
        zero: false,
        width: 0,
        precision: None,
        bits: 64,
        natural: 64,
        conversion: Conversion::Text,
    };
    loop {
        match cursor.peek() {
            Some(b'-') => spec.left = true,
            Some(b'+') => spec.plus = true,
            Some(b' ') => spec.space = true,
            Some(b'#') => spec.alt = true,
            Some(b'0') => spec.zero = true,
            _ => break,
        }
        cursor.at += 1;
    }
    let fail = |message: String| Err(FormatError { offset, message });
    spec.width = cursor.number();
    if cursor.eat(b'.') {
        spec.precision = Some(if cursor.peek() == Some(b'-') { LIMIT + 1 } else { cursor.number() });
    }
    if cursor.peek() == Some(b'*') {
        return fail("`*` is not supported in a format string: write the number".into());
    }
    if spec.width > LIMIT || spec.precision.is_some_and(|p| p > LIMIT) {
        return fail(format!("a width or precision must be a number from 0 to {LIMIT}"));
    }
    if cursor.eat(b'h') {
        spec.bits = if cursor.eat(b'h') { 8 } else { 16 };
    } else if cursor.eat(b'l') {
        cursor.eat(b'l');
    } else {
        for b in *b"Ljzt" {
            if cursor.eat(b) {
                break;
            }
        }
    }
    let Some(letter) = cursor.next() else {
        return fail("the format string ends within a conversion; a percent sign is written `%%`".into());
    };
    spec.conversion = match letter {
        b'd' | b'i' => Conversion::Signed,
        b'u' => Conversion::Unsigned,
        b'o' => Conversion::Octal,
        b'x' => Conversion::Hex,
        b'X' => Conversion::UpperHex,
        b'c' => Conversion::Char,
        b'p' => Conversion::Pointer,
        b's' => Conversion::Text,
        b'r' if cursor.eat(b'x') => Conversion::EscapedAll,
        b'r' if cursor.eat(b'h') => Conversion::HexBytes,
        b'r' => Conversion::Escaped,
        b'g' if cursor.eat(b'r') => Conversion::Gfp,
        b'e' | b'E' | b'f' | b'F' | b'g' | b'G' | b'a' | b'A' => {
            return fail(format!("`%{}` is not supported: there are no floating-point values", char::from(letter)));
        }
        b'n' => return fail("`%n` is not supported: a format string only reads".into()),
        other => {
            let shown = if other.is_ascii_graphic() { char::from(other).to_string() } else { format!("\\x{other:02x}") };
            return fail(format!("`%{shown}` is not a conversion; a percent sign is written `%%`"));
        }
    };
    spec.source = String::from_utf8_lossy(cursor.bytes.get(offset..cursor.at).unwrap_or_default()).into_owned();
    Ok(spec)
}
