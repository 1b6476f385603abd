//! `printf`'s format strings: parsed once, then applied to the arguments of each event.
//!
//! As in C, an integer conversion without a length modifier prints the low 32 bits of its argument. Differences from C, apart
//! from the conversions `r`, `rx`, `rh`, `gr`, `T` and `B`: `%p` of zero is `0`, and the `0` flag pads any conversion.
//! [`super::DIFFERENCES`] lists differences from bpftrace.

use crate::types::Type;
use crate::value::Value;

use super::decimal::{self, Fraction};
use super::gfp;
use super::integers::{hex_byte, unsigned};
use super::order::fraction;
use super::value_text;

/// A part of a format string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Literal text.
    Text(Vec<u8>),
    /// Prints the next argument.
    ConversionSpec(ConversionSpec),
}

/// A conversion with its modifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversionSpec {
    /// Bytes from the format's start to the `%`.
    pub offset: usize,
    /// As written, `%-8s`: for messages.
    pub source: String,
    /// `-`: left-aligned in its width.
    pub left_aligned: bool,
    /// `+`: a sign before positive numbers, too.
    pub plus: bool,
    /// A space in place of a plus sign.
    pub space: bool,
    /// `#`: prefix `0` or `0x`.
    pub alt: bool,
    /// `0`: padded with zeros.
    pub zero: bool,
    /// Minimum number of columns (bytes).
    pub width: usize,
    /// Maximum number of bytes of a text or a buffer; minimum number of digits of a number.
    pub precision: Option<usize>,
    /// Number of low bits of an integer that are printed: 32, or 8, 16 or 64 by the length modifier.
    pub bits: u32,
    /// The form of the argument.
    pub conversion: Conversion,
}

/// The meaning of a conversion's letters.
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
    /// `f`: with decimals
    Fixed,
    /// `T`: nanoseconds as a duration
    Duration,
    /// `B`: bytes with a binary prefix
    Size,
}

/// An error in a format string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatError {
    /// Bytes from the format's start to the `%`.
    pub offset: usize,
    /// Names the conversion, in the user's terms.
    pub message: String,
}

/// Maximum width and precision. Larger ones are mistakes, and would exhaust memory.
const LIMIT: usize = 65_535;

/// Splits a format string into pieces; texts are never empty, and never adjacent.
pub fn parse(format: &[u8]) -> Result<Vec<Piece>, FormatError> {
    split(format).map(|(pieces, _)| pieces)
}

/// The first `%` that does not begin a conversion, as written up to the invalid character: `% y`. It is literal text.
pub fn invalid_conversion(format: &[u8]) -> Option<String> {
    split(format).ok()?.1
}

fn split(format: &[u8]) -> Result<(Vec<Piece>, Option<String>), FormatError> {
    let (mut pieces, mut lone) = (Vec::new(), None);
    let mut literal = Vec::new();
    let mut cursor = Cursor { bytes: format, at: 0 };
    while let Some(b) = cursor.next() {
        if b != b'%' {
            literal.push(b);
            continue;
        }
        let start = cursor.at;
        match conversion(&mut cursor)? {
            Directive::ConversionSpec(spec) => {
                if !literal.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut literal)));
                }
                pieces.push(Piece::ConversionSpec(spec));
            }
            Directive::Percent => literal.push(b'%'),
            Directive::Nothing => {
                let written = format.get(start - 1..cursor.at).unwrap_or_default();
                lone.get_or_insert_with(|| written.escape_ascii().to_string());
                literal.push(b'%');
                cursor.at = start;
            }
        }
    }
    if !literal.is_empty() {
        pieces.push(Piece::Text(literal));
    }
    Ok((pieces, lone))
}

/// The conversions, in order: one per argument.
pub fn specs(pieces: &[Piece]) -> impl Iterator<Item = &ConversionSpec> {
    pieces.iter().filter_map(|p| match p {
        Piece::ConversionSpec(spec) => Some(spec),
        Piece::Text(_) => None,
    })
}

/// Appends the text for `%s` and `%c` of the argument of this number, from 0.
pub type Text<'t> = &'t dyn Fn(usize, &Value, &mut Vec<u8>);

/// The text of `pieces` with `args`; `text` provides that of `%s`.
pub fn format(pieces: &[Piece], args: &[Value], text: Text) -> Vec<u8> {
    let mut to = Vec::with_capacity(64);
    format_into(pieces, args, text, &mut to);
    to
}

/// Like [`format()`], but appends.
///
/// An argument that its conversion cannot print (the checker should have rejected it) becomes `!{message}`.
pub fn format_into(pieces: &[Piece], args: &[Value], text: Text, to: &mut Vec<u8>) {
    let mut args = args.iter().enumerate();
    for piece in pieces {
        match piece {
            Piece::Text(bytes) => to.extend_from_slice(bytes),
            Piece::ConversionSpec(spec) => match args.next() {
                Some((i, value)) => spec.show(value, &|v, to| text(i, v, to), to),
                None => to.extend_from_slice(b"!{missing argument}"),
            },
        }
    }
}

/// The kind of text that a conversion produces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConversionKind {
    Anything,
    Buffers,
    Integers,
    Fractions,
}

impl Conversion {
    fn shows(self) -> ConversionKind {
        match self {
            Conversion::Text => ConversionKind::Anything,
            Conversion::Escaped | Conversion::EscapedAll | Conversion::HexBytes => ConversionKind::Buffers,
            Conversion::Signed
            | Conversion::Unsigned
            | Conversion::Octal
            | Conversion::Hex
            | Conversion::UpperHex
            | Conversion::Char
            | Conversion::Pointer
            | Conversion::Gfp => ConversionKind::Integers,
            Conversion::Fixed | Conversion::Duration | Conversion::Size => ConversionKind::Fractions,
        }
    }
}

impl ConversionSpec {
    /// Can it print a value of this type? An aggregation must be read as an integer first.
    pub fn accepts(&self, ty: &Type) -> bool {
        match self.conversion.shows() {
            ConversionKind::Anything => true,
            ConversionKind::Buffers => matches!(ty, Type::Buf(_)),
            ConversionKind::Integers => ty.is_scalar(),
            ConversionKind::Fractions => {
                let float = matches!(ty, Type::Deferred(tag) if tag.is_float());
                ty.is_scalar() || float && self.conversion == Conversion::Fixed
            }
        }
    }

    /// Does it print fractions? Then a quotient arrives as a pair of its two numbers.
    pub fn takes_fractions(&self) -> bool {
        self.conversion.shows() == ConversionKind::Fractions
    }

    /// A description of what [`ConversionSpec::accepts`]: `an integer`.
    pub fn expects(&self) -> &'static str {
        match self.conversion.shows() {
            ConversionKind::Anything => "any value",
            ConversionKind::Buffers => "a buffer, as of buf()",
            ConversionKind::Integers => "an integer, bool, enum or pointer",
            ConversionKind::Fractions if self.conversion == Conversion::Fixed => {
                "a floating-point number, an integer, a quotient of integers or an average"
            }
            ConversionKind::Fractions => "an integer, a quotient of integers or an average",
        }
    }

    fn show(&self, value: &Value, text: &dyn Fn(&Value, &mut Vec<u8>), to: &mut Vec<u8>) {
        let start = to.len();
        match self.conversion.shows() {
            ConversionKind::Anything => {
                self.precise(value, text, to);
                self.fill(start, start, to);
            }
            ConversionKind::Buffers => {
                let Value::Bytes(bytes) = value else {
                    to.extend_from_slice(b"!{not a buffer}");
                    return;
                };
                let bytes = bytes.get(..self.precision.unwrap_or(usize::MAX)).unwrap_or(bytes);
                self.buffer(bytes, to);
                self.fill(start, start, to);
            }
            ConversionKind::Integers => match bits(value) {
                Some(raw) if self.conversion == Conversion::Char => {
                    text(&Value::Str { bytes: vec![raw as u8], cut: false }, to);
                    self.fill(start, start, to);
                }
                Some(raw) => self.integer(raw, to),
                None => to.extend_from_slice(b"!{not an integer}"),
            },
            ConversionKind::Fractions => match (value, fraction(value)) {
                (Value::Float { value, .. }, _) => self.decimals(&fixed(*value, self.precision.unwrap_or(6)), to),
                (_, Some(f)) => self.fraction(f, to),
                (_, None) => to.extend_from_slice(b"!{not a number}"),
            },
        }
    }

    /// Truncates a text to the precision in bytes, which counts the bytes of the text itself and not of its escapes.
    fn precise(&self, value: &Value, text: &dyn Fn(&Value, &mut Vec<u8>), to: &mut Vec<u8>) {
        let start = to.len();
        let Some(most) = self.precision else { return text(value, to) };
        let Value::Str { bytes, cut } = value else {
            text(value, to);
            to.truncate(start.saturating_add(most).min(to.len()));
            return;
        };
        let kept = bytes.get(..most).unwrap_or(bytes);
        text(&Value::Str { bytes: kept.to_vec(), cut: false }, to);
        if *cut && most > kept.len() {
            let end = to.len().saturating_add(most - kept.len());
            to.truncate(start);
            text(value, to);
            to.truncate(end.min(to.len()));
        }
    }

    fn fraction(&self, f: Fraction, to: &mut Vec<u8>) {
        let text = if self.conversion == Conversion::Duration {
            decimal::duration(f, self.precision)
        } else if self.conversion == Conversion::Size {
            decimal::size(f, self.precision)
        } else {
            decimal::fixed(f, self.precision.unwrap_or(6))
        };
        self.decimals(&text, to);
    }

    /// Appends a number in its text form, with its sign and width.
    fn decimals(&self, text: &str, to: &mut Vec<u8>) {
        let start = to.len();
        if !text.starts_with('-') {
            self.sign(to);
        }
        let body = to.len() + usize::from(text.starts_with('-'));
        to.extend_from_slice(text.as_bytes());
        // padding with zeros would turn `inf` into another word
        let number = text.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit());
        self.widen(start, body, self.zero && number, to);
    }

    /// The prefix of a nonnegative number.
    fn sign(&self, to: &mut Vec<u8>) {
        if self.plus {
            to.push(b'+');
        } else if self.space {
            to.push(b' ');
        }
    }

    fn buffer(&self, bytes: &[u8], to: &mut Vec<u8>) {
        if self.conversion == Conversion::Escaped {
            return value_text::escaped(bytes, to);
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
        let unused = 64 - self.bits;
        let signed = (raw << unused) as i64 >> unused;
        let plain = raw << unused >> unused;
        match self.conversion {
            Conversion::Signed => {
                if signed < 0 {
                    to.push(b'-');
                } else {
                    self.sign(to);
                }
                self.digits(start, signed.unsigned_abs(), 10, to);
            }
            Conversion::Unsigned => self.digits(start, plain, 10, to),
            Conversion::Octal => {
                // in C the prefix is a digit: a zero without other digits gets it
                if self.alt && (plain != 0 || self.precision == Some(0)) {
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
            Conversion::Gfp => {
                gfp::flags(raw, to);
                self.fill(start, start, to);
            }
            // Not integers: see `show`.
            Conversion::Text
            | Conversion::Char
            | Conversion::Escaped
            | Conversion::EscapedAll
            | Conversion::HexBytes
            | Conversion::Fixed
            | Conversion::Duration
            | Conversion::Size => {}
        }
    }

    /// Appends digits after the sign or prefix that starts at `start`.
    fn digits(&self, start: usize, value: u64, base: u64, to: &mut Vec<u8>) {
        let first = to.len();
        // In C, zero has no digits if the precision is zero.
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

    /// Pads the text appended since `start`; zeros are inserted at `body`, after a sign or prefix.
    fn fill(&self, start: usize, body: usize, to: &mut Vec<u8>) {
        self.widen(start, body, self.zero && (self.precision.is_none() || !self.counts_digits()), to);
    }

    fn widen(&self, start: usize, body: usize, zeros: bool, to: &mut Vec<u8>) {
        let missing = self.width.saturating_sub(to.len().saturating_sub(start));
        if missing == 0 {
        } else if self.left_aligned {
            to.extend(std::iter::repeat_n(b' ', missing));
        } else if zeros {
            insert(body, missing, b'0', to);
        } else {
            insert(start, missing, b' ', to);
        }
    }

    /// Is its precision a number of digits? Then C does not pad with zeros.
    pub fn counts_digits(&self) -> bool {
        self.conversion.shows() == ConversionKind::Integers && !matches!(self.conversion, Conversion::Char | Conversion::Gfp)
    }
}

/// Inserts `count` bytes `byte` at `at`.
fn insert(offset: usize, count: usize, byte: u8, to: &mut Vec<u8>) {
    if count > 0 && offset <= to.len() {
        to.splice(offset..offset, std::iter::repeat_n(byte, count));
    }
}

/// The 64 bits of a value that a register can hold.
fn bits(value: &Value) -> Option<u64> {
    let average = if let Value::Avg(stats) = value { Some(stats.average()) } else { None };
    average.as_ref().unwrap_or(value).number().map(|n| n as u64)
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

    fn accept(&mut self, b: u8) -> bool {
        let found = self.peek() == Some(b);
        self.at += usize::from(found);
        found
    }

    /// Digits, possibly none, which means zero; one above the limit if it is exceeded.
    fn number(&mut self) -> usize {
        let mut n = 0usize;
        while let Some(b @ b'0'..=b'9') = self.peek() {
            n = (n * 10 + usize::from(b - b'0')).min(LIMIT + 1);
            self.at += 1;
        }
        n
    }
}

/// The directive after a `%`.
enum Directive {
    ConversionSpec(ConversionSpec),
    /// Another `%`: both are one percent sign.
    Percent,
    Nothing,
}

/// Parses the directive after a `%`.
fn conversion(cursor: &mut Cursor) -> Result<Directive, FormatError> {
    let offset = cursor.at - 1;
    let mut spec = ConversionSpec {
        offset,
        source: String::new(),
        left_aligned: false,
        plus: false,
        space: false,
        alt: false,
        zero: false,
        width: 0,
        precision: None,
        bits: 32,
        conversion: Conversion::Text,
    };
    loop {
        match cursor.peek() {
            Some(b'-') => spec.left_aligned = true,
            Some(b'+') => spec.plus = true,
            Some(b' ') => spec.space = true,
            Some(b'#') => spec.alt = true,
            Some(b'0') => spec.zero = true,
            _ => break,
        }
        cursor.at += 1;
    }
    let fail = |message: String| Err(FormatError { offset, message });
    // no argument provides a width: bpftrace ignores the asterisk
    if !cursor.accept(b'*') {
        spec.width = cursor.number();
    }
    if cursor.accept(b'.') {
        spec.precision = Some(cursor.number());
    }
    if cursor.peek() == Some(b'*') {
        return fail("`*` is not supported in a format string: write the number".into());
    }
    if cursor.accept(b'h') {
        spec.bits = if cursor.accept(b'h') { 8 } else { 16 };
    } else if cursor.accept(b'l') {
        cursor.accept(b'l');
        spec.bits = 64;
    } else if b"jzt".iter().any(|b| cursor.accept(*b)) {
        spec.bits = 64;
    } else {
        cursor.accept(b'L'); // of C's floating-point conversions: it does not widen integers
    }
    let Some(letter) = cursor.next() else { return Ok(Directive::Nothing) };
    spec.conversion = match letter {
        b'd' | b'i' => Conversion::Signed,
        b'u' => Conversion::Unsigned,
        b'o' => Conversion::Octal,
        b'x' => Conversion::Hex,
        b'X' => Conversion::UpperHex,
        b'c' => Conversion::Char,
        b'p' => {
            spec.bits = 64;
            Conversion::Pointer
        }
        b's' => Conversion::Text,
        b'r' if cursor.accept(b'x') => Conversion::EscapedAll,
        b'r' if cursor.accept(b'h') => Conversion::HexBytes,
        b'r' => Conversion::Escaped,
        b'g' if cursor.accept(b'r') => Conversion::Gfp,
        b'f' | b'F' => Conversion::Fixed,
        b'T' => Conversion::Duration,
        b'B' => Conversion::Size,
        b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
            return fail(format!("`%{}` is not supported: use `%f` for decimals", char::from(letter)));
        }
        b'n' => return fail("`%n` is not supported".into()),
        b'%' => return Ok(Directive::Percent),
        _ => return Ok(Directive::Nothing),
    };
    if spec.width > LIMIT || spec.precision.is_some_and(|p| p > LIMIT) {
        return fail(format!("a width or precision must be a number from 0 to {LIMIT}"));
    }
    spec.source = String::from_utf8_lossy(cursor.bytes.get(offset..cursor.at).unwrap_or_default()).into_owned();
    Ok(Directive::ConversionSpec(spec))
}

/// A floating-point number with this many decimals, as C prints it.
fn fixed(f: f64, places: usize) -> String {
    if f.is_nan() { "nan".into() } else { format!("{f:.places$}") }
}

#[cfg(test)]
#[allow(unsafe_code)] // compares with C's snprintf
mod tests {
    use super::super::style::Style;
    use super::*;
    use crate::host::Reader;
    use crate::render::{RenderOptions, find};
    use crate::types::Space;

    fn show(format: &str, args: &[Value]) -> String {
        let renderer = (find("text").unwrap().make)(&RenderOptions::default());
        let pieces = parse(format.as_bytes()).unwrap();
        assert_eq!(specs(&pieces).count(), args.len());
        String::from_utf8(super::format(&pieces, args, &|_, v, to| renderer.text(v, Reader::Program, to))).unwrap()
    }

    fn int(format: &str, v: i64) -> String {
        show(format, &[Value::Int(v)])
    }

    fn string(format: &str, text: &str) -> String {
        show(format, &[Value::Str { bytes: text.into(), cut: false }])
    }

    fn buffer(format: &str, bytes: &[u8]) -> String {
        show(format, &[Value::Bytes(bytes.into())])
    }

    #[test]
    fn pieces() {
        assert_eq!(parse(b""), Ok(vec![]));
        assert_eq!(parse(b"a%%b"), Ok(vec![Piece::Text(b"a%b".into())]));
        let pieces = parse(b"a %-8s%d\n").unwrap();
        assert_eq!(specs(&pieces).map(|s| (s.offset, s.source.as_str())).collect::<Vec<_>>(), [(2, "%-8s"), (6, "%d")]);
        assert_eq!(show("\u{1b}[31m100%%\n", &[]), "\u{1b}[31m100%\n");
    }

    #[test]
    fn as_c_formats_integers() {
        // Compare each of these with the C library.
        for format in [
            "%d", "%5d", "%-5d|", "%05d", "%+d", "% d", "%+05d", "%.3d", "%8.3d", "%-8.3d|", "%08.3d", "%.0d", "%i", "%u", "%x", "%X",
            "%#x", "%#X", "%#o", "%o", "%#.3o", "%#.o", "%#.0o", "%#5.o|", "%#.0x", "%+.0d", "%.u", "%#10x", "%#010x", "%-#10x|",
            "%-010d|", "%-+010d|", "%+010d", "% 010d", "%hhd", "%hd", "%hhu", "%hu", "%hhx", "%hho", "%#hx", "%ld", "%lld", "%jd", "%zd",
            "%td", "%lu", "%lx", "%llx", "%08lx", "%5.0u", "%c", "%3c", "%-3c|",
        ] {
            for v in [
                0i64,
                1,
                -1,
                -6,
                42,
                -42,
                127,
                128,
                255,
                256,
                65535,
                65536,
                123_456,
                -123_456,
                i64::from(i32::MAX),
                i64::from(i32::MIN),
                i64::from(u32::MAX) - 5,
                1 << 31,
                1 << 32,
                0x12_3456_7890,
                -0x12_3456_7890,
                i64::MAX,
                i64::MIN,
            ] {
                // C takes the low 32 bits of an argument without a modifier in the format.
                let mut expected = [0u8; 64];
                let c = std::ffi::CString::new(format).unwrap();
                let length = unsafe { libc::snprintf(expected.as_mut_ptr().cast(), 64, c.as_ptr(), v) };
                let expected = &expected[..length as usize];
                let pieces = parse(format.as_bytes()).unwrap();
                let ours = super::format(&pieces, &[Value::Int(v)], &|_, v, to| {
                    value_text::value(v, Style { trailer: b"", compact: false, visible: false }, to)
                });
                assert_eq!(ours, expected, "{format} of {v}");
                let unsigned = super::format(&pieces, &[Value::Uint(v as u64)], &|_, v, to| {
                    value_text::value(v, Style { trailer: b"", compact: false, visible: false }, to)
                });
                assert_eq!(unsigned, expected, "{format} of {}", v as u64);
            }
        }
    }

    #[test]
    fn widths_of_integers() {
        // as bpftrace 0.26 prints them
        assert_eq!(int("%d", 0x12_3456_7890), "878082192");
        assert_eq!(int("%lld", i64::MIN), "-9223372036854775808");
        assert_eq!(show("%d", &[Value::Uint(4_294_967_290)]), "-6");
        assert_eq!(show("%u", &[Value::Int(-6)]), "4294967290");
        assert_eq!(show("%llu", &[Value::Uint(u64::MAX)]), "18446744073709551615");
        assert_eq!(show("%Ld %Lx", &[Value::Int(-6), Value::Int(-6)]), "-6 fffffffa");
        assert_eq!(show("%s %p %hhp", &[Value::Int(-6), Value::Int(-6), Value::Int(-6)]), "-6 0xfffffffffffffffa 0xfffffffffffffffa");
    }

    #[test]
    fn percent_signs_alone() {
        // as in bpftrace 0.26
        let text = |format: &str| String::from_utf8(super::format(&parse(format.as_bytes()).unwrap(), &[], &|_, _, _| {})).unwrap();
        for (format, expected) in [
            ("100%", "100%"),
            ("%\n", "%\n"),
            ("50% yes", "50% yes"),
            ("% ]", "% ]"),
            ("%-5l", "%-5l"),
            ("%z", "%z"),
            ("%5%", "%"),
            ("% %d", "%d"),
            ("%%", "%"),
            ("%.-1d", "%.-1d"),
            ("%\u{e9}", "%\u{e9}"),
        ] {
            assert_eq!(text(format), expected, "{format}");
        }
        assert_eq!(string("%5s%\n", "ab"), "   ab%\n");
        assert_eq!(int("%d%%%", 5), "5%%");
        assert_eq!(invalid_conversion(b"%d 50%\n %y"), Some("%\\n".into()));
        assert_eq!(invalid_conversion(b"%d%% %5%"), None);
    }

    #[test]
    fn other_scalars() {
        assert_eq!(show("%d %d", &[Value::Bool(true), Value::Ptr(16)]), "1 16");
        let state = Value::Enum { name: Some("TCP_LISTEN".into()), value: 10 };
        assert_eq!(show("%d %s", &[state.clone(), state]), "10 TCP_LISTEN");
        assert_eq!(
            show("%p %p %10p|%-10p|", &[Value::Ptr(0xabc), Value::Int(0), Value::Ptr(1), Value::Ptr(2)]),
            "0xabc 0        0x1|0x2       |"
        );
        assert_eq!(show("%c%3c|%-3c|", &[Value::Int(65), Value::Int(66), Value::Int(67)]), "A  B|C  |");
        assert_eq!(int("%s", -5), "-5");
    }

    #[test]
    fn texts() {
        assert_eq!(string("%s", "abc"), "abc");
        assert_eq!(string("%6s|", "abc"), "   abc|");
        assert_eq!(string("%-6s|", "abc"), "abc   |");
        assert_eq!(string("%06s|", "abc"), "000abc|");
        assert_eq!(string("%.2s|", "abc"), "ab|");
        assert_eq!(string("%5.2s|", "abc"), "   ab|");
        assert_eq!(string("%.9s|", "abc"), "abc|");
        assert_eq!(string("%.s|", "abc"), "|");
        assert_eq!(string("%2s|", "abc"), "abc|");
        let cut = |format| show(format, &[Value::Str { bytes: b"abc".into(), cut: true }]);
        assert_eq!((cut("%s"), cut("%.3s"), cut("%7s")), ("abc..".into(), "abc".into(), "  abc..".into()));
        let pair = Value::Tuple(vec![Value::Int(1), Value::Bool(true)]);
        assert_eq!(show("%12s|", &[pair]), "   (1, true)|");
    }

    #[test]
    fn buffers() {
        assert_eq!(buffer("%r", b"a\0\n~\xff"), r"a\x00\x0a~\xff");
        assert_eq!(buffer("%rx", b"a\0"), r"\x61\x00");
        assert_eq!(buffer("%rh", b"a\0\xff"), "61 00 ff");
        assert_eq!(buffer("%6r|", b"ab"), "    ab|");
        assert_eq!(buffer("%-6rh|", b"\x01"), "01    |");
        assert_eq!(buffer("%.1rx", b"ab"), r"\x61");
        assert_eq!(buffer("%rest", b"a"), "aest");
        assert_eq!(buffer("%rh%%", b""), "%");
    }

    #[test]
    fn allocation_flags() {
        assert_eq!(int("%gr", 0), "0");
        assert_eq!(int("%gr", 0xcc0), "GFP_KERNEL");
        assert_eq!(int("%gr", 0xdc0), "GFP_KERNEL|__GFP_ZERO");
        assert_eq!(int("%gr", 0x820), "GFP_ATOMIC");
        assert_eq!(int("%gr", 0x14_0cca), "GFP_HIGHUSER_MOVABLE|__GFP_COMP");
        assert_eq!(int("%gr", 0x1c_20ca | 0x400), "GFP_TRANSHUGE");
        assert_eq!(int("%gr", 0x8000_0000), "0x80000000");
        assert_eq!(int("%gr", 0x4000_0cc0), "GFP_KERNEL|0x40000000");
        assert_eq!(int("%12gr|", 0x800), "  GFP_NOWAIT|");
    }

    #[test]
    fn refusals() {
        let fails = |format: &str, at: usize, needle: &str| {
            let error = parse(format.as_bytes()).unwrap_err();
            assert!(error.offset == at && error.message.contains(needle), "{error:?}");
        };
        fails("a %e", 2, "`%e` is not supported: use `%f` for decimals");
        fails("%5.2g", 0, "`%g`");
        fails("%n", 0, "`%n`");
        fails("%.*s", 0, "`*`");
        fails("%99999999999999999999d", 0, "width");
    }

    #[test]
    fn types() {
        let accepts = |format: &str, ty: &Type| specs(&parse(format.as_bytes()).unwrap()).all(|s| s.accepts(ty));
        let pointer = Type::Void.ptr(Space::User);
        let numbers = "%d%i%u%o%x%X%c%p%s%gr";
        assert!(accepts(numbers, &Type::U64) && accepts(numbers, &Type::Bool) && accepts(numbers, &pointer));
        assert!(accepts("%s", &Type::Str(16)) && accepts("%s", &Type::Tuple(vec![])));
        assert!(!accepts("%d", &Type::Str(16)) && !accepts("%r", &Type::U64) && !accepts("%d", &Type::Buf(4)));
        assert!(accepts("%r%rx%rh%s", &Type::Buf(4)));
    }

    #[test]
    fn fractions() {
        let pair = |n, d| Value::Tuple(vec![Value::Int(n), Value::Int(d)]);
        let average = Value::Avg(crate::value::Stats { count: 4, total: 10, signed: false });
        assert_eq!(show("%f %.2f %.0f", &[Value::Int(3), pair(2, 3), pair(5, 2)]), "3.000000 0.67 3");
        assert_eq!(show("%.1f %d %T %B", &[average.clone(), average.clone(), average.clone(), average]), "2.5 2 3 ns 3 B");
        assert_eq!(
            show("%8.2f|%-8.2f|%08.2f|%+.1f|% .1f", &[pair(-7, 2), pair(7, 2), pair(-7, 2), pair(7, 2), pair(7, 2)]),
            "   -3.50|3.50    |-0003.50|+3.5| 3.5"
        );
        assert_eq!(show("%06.1f|%6.1f", &[pair(1, 0), pair(0, 0)]), "   inf|   nan");
        assert_eq!(
            show("%T|%10T|%-10T|%.1T", &[Value::Int(1500), Value::Int(-1500), Value::Int(7), pair(3_000_000, 2)]),
            "1.50 us|  -1.50 us|7 ns      |1.5 ms"
        );
        assert_eq!(show("%B %.2B", &[Value::Uint(4096), Value::Uint(1 << 31)]), "4.0 KiB 2.00 GiB");
    }

    #[test]
    fn mismatches_show_themselves() {
        assert_eq!(string("%d", "a"), "!{not an integer}");
        assert_eq!(int("%r", 1), "!{not a buffer}");
        assert_eq!(super::format(&parse(b"%d").unwrap(), &[], &|_, _, _| {}), b"!{missing argument}");
    }
}
