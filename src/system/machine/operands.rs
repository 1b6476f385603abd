//! Assembler operands: the part that processors share.

/// The location of a value. Registers are offsets in a probe's context.
#[derive(Clone, Debug, PartialEq)]
pub enum At {
    /// A constant.
    Number(i64),
    /// In a register.
    Register(u32),
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

/// Parses a number, or a symbol with an offset in bytes.
pub(super) fn displacement(text: &str) -> Option<(Option<String>, i64)> {
    if let Some(offset) = number(text) {
        return Some((None, offset));
    }
    let cut = text.rfind(['+', '-']).filter(|at| *at > 0).unwrap_or(text.len());
    let (name, offset) = text.split_at_checked(cut)?;
    let offset = if offset.is_empty() { 0 } else { number(offset.strip_prefix('+').unwrap_or(offset))? };
    (name.starts_with(|c: char| c.is_alphabetic() || "_.".contains(c)) && !name.contains(char::is_whitespace))
        .then(|| (Some(name.to_owned()), offset))
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
