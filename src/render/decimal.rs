//! Exact decimal fractions of integers of any size. Programs in the kernel compute with integers only, so a fraction arrives
//! here as two integers.

/// A fraction: numerator and denominator.
pub type Fraction = (i128, i128);

/// `-12.35`: the given number of decimals, rounded half away from zero. As in C, `inf`, `-inf` and `nan` if the denominator
/// is zero.
pub fn fixed((num, den): Fraction, places: usize) -> String {
    if den == 0 {
        return match num.signum() {
            0 => "nan",
            1 => "inf",
            _ => "-inf",
        }
        .into();
    }
    let (n, d) = (num.unsigned_abs(), den.unsigned_abs());
    let mut rest = n % d;
    let mut digits = (n / d).to_string().into_bytes();
    let int_digits = digits.len();
    for _ in 0..places {
        rest *= 10;
        digits.push(b'0' + (rest / d) as u8);
        rest %= d;
    }
    let mut int_digits = int_digits;
    if rest >= d - rest {
        int_digits += usize::from(carry(&mut digits));
    }
    let zero = digits.iter().all(|b| *b == b'0');
    let mut text = String::with_capacity(digits.len() + 2);
    if (num < 0) != (den < 0) && !(zero && num == 0) {
        text.push('-');
    }
    for (i, b) in digits.iter().enumerate() {
        if i == int_digits {
            text.push('.');
        }
        text.push(char::from(*b));
    }
    text
}

/// Adds one to the last digit; returns true if the number grew by a digit.
fn carry(digits: &mut Vec<u8>) -> bool {
    for b in digits.iter_mut().rev() {
        if *b < b'9' {
            *b += 1;
            return false;
        }
        *b = b'0';
    }
    digits.insert(0, b'1');
    true
}

/// Nanoseconds in readable form: `999 ns`, `1.50 us`, `12.00 ms`, `59.99 s`, then `1m05s`, `2h07m`, `3d04h`. `places`
/// are those of `us`, `ms` and `s`; 2 by default.
pub fn duration(ns: Fraction, places: Option<usize>) -> String {
    let places = places.unwrap_or(2).min(MAX_PLACES);
    for (name, size, most, places) in
        [("ns", 1, 1000, 0), ("us", 1_000, 1000, places), ("ms", 1_000_000, 1000, places), ("s", SECOND, 60, places)]
    {
        if below(ns, size, most, places) {
            return format!("{} {name}", fixed((ns.0, ns.1.saturating_mul(size)), places));
        }
    }
    if ns.1 == 0 {
        return fixed(ns, 0);
    }
    let seconds = rounded(ns, SECOND, 0).unsigned_abs();
    let sign = if (ns.0 < 0) != (ns.1 < 0) { "-" } else { "" };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match (hours, days) {
        (0, _) => format!("{sign}{minutes}m{:02}s", seconds % 60),
        (_, 0) => format!("{sign}{hours}h{:02}m", minutes % 60),
        (_, _) => format!("{sign}{days}d{:02}h", hours % 24),
    }
}

/// Bytes with binary prefixes: `512 B`, `4.0 KiB`, `1.5 GiB`. `places` are those of all but `B`; 1 by default.
pub fn size(bytes: Fraction, places: Option<usize>) -> String {
    let places = places.unwrap_or(1).min(MAX_PLACES);
    if bytes.1 == 0 {
        return fixed(bytes, 0);
    }
    let names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    for (i, name) in names.iter().enumerate() {
        let unit = 1i128 << (10 * i);
        let places = if i == 0 { 0 } else { places };
        if i + 1 == names.len() || below(bytes, unit, 1024, places) {
            return format!("{} {name}", fixed((bytes.0, bytes.1.saturating_mul(unit)), places));
        }
    }
    fixed(bytes, 0)
}

const SECOND: i128 = 1_000_000_000;
/// Limit of decimals, so that products with the power of ten fit in 128 bits.
const MAX_PLACES: usize = 9;

/// Is it less than `limit` units after rounding to these places?
fn below(value: Fraction, unit: i128, limit: i128, places: usize) -> bool {
    value.1 != 0 && rounded(value, unit, places).abs() < limit * power(places)
}

fn power(places: usize) -> i128 {
    10i128.pow(places.min(MAX_PLACES) as u32)
}

/// The value in `10^-places` of a unit, rounded half away from zero.
fn rounded((num, den): Fraction, unit: i128, places: usize) -> i128 {
    let n = num.unsigned_abs().saturating_mul(power(places).unsigned_abs());
    let d = den.unsigned_abs().saturating_mul(unit.unsigned_abs()).max(1);
    let q = n / d + u128::from(n % d >= d - n % d);
    let q = i128::try_from(q).unwrap_or(i128::MAX);
    if (num < 0) != (den < 0) { -q } else { q }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        assert_eq!(fixed((7, 2), 2), "3.50");
        assert_eq!(fixed((-7, 2), 1), "-3.5");
        assert_eq!(fixed((7, -2), 0), "-4");
        assert_eq!(fixed((2, 3), 6), "0.666667");
        assert_eq!(fixed((999_999, 1000), 2), "1000.00");
        assert_eq!(fixed((0, 5), 2), "0.00");
        assert_eq!(fixed((1, 3), 40).len(), 42);
        assert_eq!(fixed((i128::from(u64::MAX), 1), 1), "18446744073709551615.0");
        assert_eq!((fixed((0, 0), 2), fixed((1, 0), 2), fixed((-1, 0), 2)), ("nan".into(), "inf".into(), "-inf".into()));
    }

    #[test]
    fn rounds_like_c() {
        for num in -2000..2000 {
            for den in [1, 3, 7, 9, 11, 13, 1000] {
                // except for ties, where C's rounding depends on the last bit of its binary fraction
                if num * 1000 % den != 0 {
                    let expected = format!("{:.2}", f64::from(num) / f64::from(den));
                    assert_eq!(fixed((num.into(), den.into()), 2), expected, "{num} / {den}");
                }
            }
        }
    }

    #[test]
    fn durations() {
        let of = |ns: i128| duration((ns, 1), None);
        let all = [0, 7, 999, 1000, 1500, 999_994, 999_995, 1_234_567, 59_994_999_999, 59_995_000_000, 60_000_000_000, 3_599_600_000_000];
        let expected =
            ["0 ns", "7 ns", "999 ns", "1.00 us", "1.50 us", "999.99 us", "1.00 ms", "1.23 ms", "59.99 s", "1m00s", "1m00s", "1h00m"];
        assert_eq!(all.map(of), expected);
        assert_eq!((of(-1500), of(-90_000_000_000)), ("-1.50 us".into(), "-1m30s".into()));
        assert_eq!((of(7_620_000_000_000), of(273_600_000_000_000)), ("2h07m".into(), "3d04h".into()));
        assert_eq!(duration((1_234_567, 1), Some(0)), "1 ms");
        assert_eq!(duration((10, 3), None), "3 ns");
        assert_eq!(duration((0, 0), None), "nan");
        assert_eq!(of(i128::from(u64::MAX)), "213503d23h");
    }

    #[test]
    fn sizes() {
        let of = |bytes: i128| size((bytes, 1), None);
        assert_eq!(
            [0, 1023, 1024, 4096, 1536, 1 << 20, (1 << 20) - 1].map(of),
            ["0 B", "1023 B", "1.0 KiB", "4.0 KiB", "1.5 KiB", "1.0 MiB", "1.0 MiB"]
        );
        assert_eq!((of(-2048), of(i128::from(u64::MAX))), ("-2.0 KiB".into(), "16.0 EiB".into()));
        assert_eq!(size((1 << 30, 1), Some(3)), "1.000 GiB");
    }
}
