//! Constant expressions of C: in `#if`, in array lengths, in enum values, in macros.

use super::lex::{Interner, Kind, Token};
use super::parse::Parser;
use super::types::Types;
use crate::types::Int;

/// `int`
const INT: Int = Int { bytes: 4, signed: true };
/// `long`
const LONG: Int = Int { bytes: 8, signed: true };
/// `unsigned long`
const SIZE: Int = Int { bytes: 8, signed: false };

/// An integer of C: a value within its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// The value.
    pub value: i128,
    /// Its type.
    pub int: Int,
}

impl Number {
    /// Wraps a value into a type.
    pub fn new(value: i128, int: Int) -> Self {
        let bits = u32::from(int.bytes.clamp(1, 8)) * 8;
        let low = value & ((1i128 << bits) - 1);
        let value = if int.signed && low >> (bits - 1) & 1 == 1 { low - (1i128 << bits) } else { low };
        Self { value, int }
    }

    fn truth(value: bool) -> Self {
        Self { value: value.into(), int: INT }
    }

    /// The value's bits as the program stores an integer.
    pub fn bits(self) -> i64 {
        self.value as i64
    }
}

/// Evaluates the condition of an `#if` after macro expansion: remaining names are zero, and all numbers have 64 bits.
pub fn condition(tokens: &[Token], names: &Interner) -> Result<bool, String> {
    let mut types = Types::default();
    let mut parser = Parser::new(tokens, names, &mut types, None);
    parser.preprocessing = true;
    let n = parser.constant()?;
    if parser.is_at_end() { Ok(n.value != 0) } else { Err(format!("`{}` is too large", parser.text())) }
}

/// The precedence of operators.
fn level(op: &str) -> u8 {
    match op {
        "||" => 1,
        "&&" => 2,
        "|" => 3,
        "^" => 4,
        "&" => 5,
        "==" | "!=" => 6,
        "<" | ">" | "<=" | ">=" => 7,
        "<<" | ">>" => 8,
        "+" | "-" => 9,
        "*" | "/" | "%" => 10,
        _ => 0,
    }
}

impl Parser<'_> {
    /// A constant expression without commas.
    pub fn constant(&mut self) -> Result<Number, String> {
        self.deeper(|p| {
            let cond = p.operators(1)?;
            if !p.accept("?") {
                return Ok(cond);
            }
            let then = if p.is(":") { cond } else { p.constant()? };
            p.require(":")?;
            let other = p.constant()?;
            let int = p.common(then, other);
            Ok(Number::new(if cond.value != 0 { then.value } else { other.value }, int))
        })
    }

    fn operators(&mut self, min_precedence: u8) -> Result<Number, String> {
        let mut left = self.unary()?;
        loop {
            let (op, level) = (self.text(), level(self.text()));
            if level < min_precedence || level == 0 || !self.is_punct() {
                return Ok(left);
            }
            self.at += 1;
            let right = self.deeper(|p| p.operators(level + 1))?;
            left = self.apply(op, left, right)?;
        }
    }

    fn promote(&self, n: Number) -> Int {
        if self.preprocessing {
            Int { bytes: 8, signed: n.int.signed }
        } else if n.int.bytes < 4 {
            INT
        } else {
            n.int
        }
    }

    /// The usual arithmetic conversions.
    fn common(&self, a: Number, b: Number) -> Int {
        let (a, b) = (self.promote(a), self.promote(b));
        if a.bytes != b.bytes {
            return if a.bytes > b.bytes { a } else { b };
        }
        Int { bytes: a.bytes, signed: a.signed && b.signed }
    }

    fn apply(&self, op: &str, a: Number, b: Number) -> Result<Number, String> {
        let int = self.common(a, b);
        let (x, y) = (Number::new(a.value, int).value, Number::new(b.value, int).value);
        let value = match op {
            "||" => return Ok(Number::truth(a.value != 0 || b.value != 0)),
            "&&" => return Ok(Number::truth(a.value != 0 && b.value != 0)),
            "==" => return Ok(Number::truth(x == y)),
            "!=" => return Ok(Number::truth(x != y)),
            "<" => return Ok(Number::truth(x < y)),
            ">" => return Ok(Number::truth(x > y)),
            "<=" => return Ok(Number::truth(x <= y)),
            ">=" => return Ok(Number::truth(x >= y)),
            "|" => x | y,
            "^" => x ^ y,
            "&" => x & y,
            "+" => x + y,
            "-" => x - y,
            "*" => x.wrapping_mul(y),
            "<<" | ">>" => {
                let int = self.promote(a);
                let shift = u32::try_from(b.value).ok().filter(|n| *n < 64).unwrap_or(63);
                return Ok(Number::new(if op == "<<" { a.value << shift } else { a.value >> shift }, int));
            }
            "/" | "%" if y == 0 => return Err("it divides by zero".into()),
            "/" => x / y,
            _ => x % y,
        };
        Ok(Number::new(value, int))
    }

    fn unary(&mut self) -> Result<Number, String> {
        let Some(token) = self.peek() else { return Err("it ends too early".into()) };
        let text = self.text();
        match token.kind {
            Kind::Number => {
                self.at += 1;
                let n = literal(text).ok_or_else(|| format!("`{text}` is not an integer"))?;
                Ok(if self.preprocessing { Number { int: Int { bytes: 8, ..n.int }, ..n } } else { n })
            }
            Kind::Char => {
                self.at += 1;
                let bytes = unquote(text).ok_or_else(|| format!("{text} is not a character"))?;
                let value = bytes.iter().fold(0i128, |n, b| n << 8 | i128::from(*b));
                let value = if let [one] = bytes.as_slice() { i128::from(*one as i8) } else { value };
                Ok(Number::new(value, INT))
            }
            Kind::Word => self.word(text),
            Kind::Punct => self.prefixed(text),
            Kind::Text | Kind::End => Err(format!("{text} is not an integer")),
        }
    }

    fn prefixed(&mut self, op: &str) -> Result<Number, String> {
        self.at += 1;
        if op == "(" {
            if !self.preprocessing && self.starts_type() {
                let ty = self.type_name()?;
                self.require(")")?;
                let n = self.deeper(Self::unary)?;
                let int = match self.types.int(&ty) {
                    Some(_) if ty == super::types::Ty::Bool => return Ok(Number::truth(n.value != 0)),
                    Some(int) => int,
                    None => SIZE, // a pointer
                };
                return Ok(Number::new(n.value, int));
            }
            let n = self.constant()?;
            self.require(")")?;
            return Ok(n);
        }
        if !matches!(op, "-" | "+" | "~" | "!") {
            return Err(format!("`{op}` is not expected"));
        }
        let n = self.deeper(Self::unary)?;
        let int = self.promote(n);
        Ok(match op {
            "-" => Number::new(-n.value, int),
            "~" => Number::new(!n.value, int),
            "!" => Number::truth(n.value == 0),
            _ => Number::new(n.value, int),
        })
    }

    fn word(&mut self, text: &str) -> Result<Number, String> {
        let Some(token) = self.peek() else { return Err("it ends too early".into()) };
        self.at += 1;
        if self.preprocessing {
            if self.is("(") {
                return Err(format!("there is no macro `{text}`"));
            }
            let value = i128::from(text == "true");
            return Ok(Number { value, int: LONG });
        }
        match text {
            "sizeof" | "_Alignof" | "__alignof__" | "__alignof" | "alignof" => {
                let paren = self.accept("(");
                if !paren || !self.starts_type() {
                    return Err(format!("`{text}` needs a type here"));
                }
                let ty = self.type_name()?;
                let ty = self.completed(ty);
                self.require(")")?;
                let (size, align) = self.types.shape(&ty).ok_or("its size is unknown")?;
                Ok(Number::new(if text == "sizeof" { size.into() } else { align.into() }, SIZE))
            }
            "__builtin_offsetof" => {
                self.require("(")?;
                let ty = self.type_name()?;
                self.require(",")?;
                let offset = self.member_offset(ty)?;
                self.require(")")?;
                Ok(Number::new(offset.into(), SIZE))
            }
            "__builtin_choose_expr" | "__builtin_constant_p" | "__builtin_types_compatible_p" => Err(format!("`{text}` is not understood")),
            "true" => Ok(Number::truth(true)),
            "false" => Ok(Number::truth(false)),
            "__extension__" => self.deeper(Self::unary),
            _ => {
                if let Some((tag, value)) = self.types.variants.get(&token.sym) {
                    let int = self.types.tags.get(*tag).map_or(INT, |t| t.int);
                    return Ok(Number::new((*value).into(), if int.bytes <= 4 { Int { bytes: 4, ..int } } else { int }));
                }
                match self.sys.and_then(|s| s.enumerator(text)) {
                    Some((e, value)) => Ok(Number::new(value.into(), e.int)),
                    None => self.fail_at(1, format!("`{text}` is not a constant")),
                }
            }
        }
    }
}

/// Parses a preprocessing number: decimal, octal, hexadecimal or binary, with suffixes.
pub fn literal(text: &str) -> Option<Number> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(['u', 'l']);
    let suffix = lower.get(digits.len()..)?;
    let (digits, radix) = if let Some(hex) = digits.strip_prefix("0x") {
        (hex, 16)
    } else if let Some(binary) = digits.strip_prefix("0b") {
        (binary, 2)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (digits, 8)
    } else {
        (digits, 10)
    };
    let value = u64::from_str_radix(&digits.replace('\'', ""), radix).ok()?;
    let unsigned = suffix.contains('u');
    let long = suffix.contains('l');
    // C11, 6.4.4.1: the first type of the list that can represent it; decimal numbers stay signed
    let types =
        [(INT, !long && !unsigned), (Int { bytes: 4, signed: false }, !long && (unsigned || radix != 10)), (LONG, !unsigned), (SIZE, true)];
    let fits = |int: &Int| Number::new(value.into(), *int).value == i128::from(value);
    let (int, _) = types.into_iter().find(|(int, allowed)| *allowed && fits(int))?;
    Some(Number { value: value.into(), int })
}

/// The bytes of a string literal or character constant.
pub fn unquote(text: &str) -> Option<Vec<u8>> {
    let from = text.find(['"', '\''])?;
    let inner = text.get(from + 1..text.len().checked_sub(1)?)?;
    let mut out = Vec::new();
    let mut bytes = inner.bytes().peekable();
    while let Some(b) = bytes.next() {
        if b != b'\\' {
            out.push(b);
            continue;
        }
        out.push(match bytes.next()? {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'v' => 11,
            b'e' => 27,
            b'x' => {
                let mut n = 0u32;
                while let Some(d) = bytes.peek().and_then(|b| char::from(*b).to_digit(16)) {
                    n = n << 4 | d;
                    n &= 0xff;
                    bytes.next();
                }
                n as u8
            }
            first @ b'0'..=b'7' => {
                let mut n = u32::from(first - b'0');
                for _ in 0..2 {
                    let Some(d) = bytes.peek().and_then(|b| char::from(*b).to_digit(8)) else { break };
                    n = n << 3 | d;
                    bytes.next();
                }
                n as u8
            }
            other => other,
        });
    }
    Some(out)
}
