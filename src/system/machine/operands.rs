//! Assembler operands: the part that processors share.

/// The location of a value. Registers are offsets in a probe's context.
#[derive(Clone, Debug, PartialEq)]
pub enum At {
    /// A constant.
    Number(i64),
    /// In a register.
    Register(u32),
    /// In the second byte of a register.
    SecondByte(u32),
    /// In memory, at the sum of these parts; the index is scaled.
    Memory {
        /// The address of a symbol.
        symbol: Option<String>,
        /// The base register.
        base: Option<u32>,
        /// The index register and its scale.
        index: Option<(u32, u32)>,
        /// The displacement in bytes.
        offset: i64,
    },
    /// Unknown.
    Unknown,
}

/// Parses the sum of a symbol and offsets in bytes: `table+8`, or `4+-28`, as GCC writes the second word of a slot.
pub(super) fn displacement(text: &str) -> Option<(Option<String>, i64)> {
    let (mut symbol, mut offset, mut rest) = (None, 0i64, text);
    loop {
        let term = rest.trim_start_matches(['+', '-']);
        let negative = rest.get(..rest.len() - term.len())?.matches('-').count() % 2 == 1;
        let (value, after) = term.split_at_checked(term.find(['+', '-']).unwrap_or(term.len()))?;
        match number(value) {
            Some(n) => offset = offset.wrapping_add(if negative { n.wrapping_neg() } else { n }),
            None if rest.len() == text.len() && term.len() == text.len() && is_symbol(value) => symbol = Some(value.to_owned()),
            None => return None,
        }
        if after.is_empty() {
            return Some((symbol, offset));
        }
        rest = after;
    }
}

fn is_symbol(name: &str) -> bool {
    name.starts_with(|c: char| c.is_alphabetic() || "_.".contains(c)) && !name.contains(char::is_whitespace)
}

/// Parses a decimal or hexadecimal number.
pub(super) fn number(text: &str) -> Option<i64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |t| (true, t));
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    } as i64;
    Some(if negative { value.wrapping_neg() } else { value })
}
