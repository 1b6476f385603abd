//! Formats integers without Rust's formatting machinery, because `printf` may run a million times a second.

/// Appends a number in decimal.
pub fn decimal(to: &mut Vec<u8>, value: u64) {
    unsigned(to, value, 10, false);
}

/// Appends a number in decimal, with a minus sign if it is negative.
pub fn signed(to: &mut Vec<u8>, value: i64) {
    if value < 0 {
        to.push(b'-');
    }
    decimal(to, value.unsigned_abs());
}

/// Appends a number in lowercase hexadecimal, without a prefix.
pub fn hex(to: &mut Vec<u8>, value: u64) {
    unsigned(to, value, 16, false);
}

/// Appends a number in lowercase hexadecimal after `0x`.
pub fn address(to: &mut Vec<u8>, value: u64) {
    to.extend_from_slice(b"0x");
    hex(to, value);
}

/// Appends a byte as two lowercase hexadecimal digits.
pub fn hex_byte(to: &mut Vec<u8>, byte: u8) {
    to.push(digit(byte >> 4, false));
    to.push(digit(byte & 15, false));
}

/// Appends a number in base 8, 10 or 16.
pub fn unsigned(to: &mut Vec<u8>, mut value: u64, base: u64, upper: bool) {
    let start = to.len();
    loop {
        to.push(digit((value % base) as u8, upper));
        value /= base;
        if value == 0 {
            break;
        }
    }
    if let Some(digits) = to.get_mut(start..) {
        digits.reverse();
    }
}

fn digit(value: u8, upper: bool) -> u8 {
    match (value, upper) {
        (0..=9, _) => b'0' + value,
        (_, false) => b'a' + value - 10,
        (_, true) => b'A' + value - 10,
    }
}
