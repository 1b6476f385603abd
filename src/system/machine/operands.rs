//! Operands of instructions, as assemblers write them: what the rows of processors share.

/// Where a value is. Registers are offsets in a probe's context.
#[derive(Clone, Debug, PartialEq)]
pub enum At {
    /// It is this number.
    Number(i64),
    /// In a register.
    Register(u32),
    /// The sum of what is there; an index is scaled.
    Memory {
        /// A symbol's address.
        symbol: Option<String>,
        /// A register.
        base: Option<u32>,
        /// A register and what it is multiplied by.
        index: Option<(u32, u32)>,
        /// Bytes.
        by: i64,
    },
    /// Nobody knows.
    Unknown,
}

/// A number, or a symbol and a number of bytes from it.
pub(super) fn displacement(text: &str) -> Option<(Option<String>, i64)> {
    if let Some(by) = number(text) {
        return Some((None, by));
    }
    let cut = text.rfind(['+', '-']).filter(|at| *at > 0).unwrap_or(text.len());
    let (name, by) = text.split_at_checked(cut)?;
    let by = if by.is_empty() { 0 } else { number(by.strip_prefix('+').unwrap_or(by))? };
    (name.starts_with(|c: char| c.is_alphabetic() || "_.".contains(c)) && !name.contains(char::is_whitespace))
        .then(|| (Some(name.to_owned()), by))
}

/// Decimal or hexadecimal.
pub(super) fn number(text: &str) -> Option<i64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |t| (true, t));
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    } as i64;
    Some(if negative { value.wrapping_neg() } else { value })
}
