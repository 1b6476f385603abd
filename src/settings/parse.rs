//! Parses the values of settings.

use std::time::Duration;

use super::Overhead;
use crate::units;

pub(super) fn parse_word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(w, _)| w.eq_ignore_ascii_case(text)).map(|(_, value)| *value);
    found.ok_or_else(|| one_of(words.iter().map(|(w, _)| *w)))
}

pub(super) fn name_of<T: PartialEq>(value: T, words: &[(&'static str, T)]) -> &'static str {
    words.iter().find(|(_, v)| *v == value).map_or("", |(w, _)| w)
}

pub(super) fn one_of<'a>(words: impl Iterator<Item = &'a str>) -> String {
    format!("expected one of {}", words.map(|w| format!("`{w}`")).collect::<Vec<_>>().join(", "))
}

/// Parses `true` or `false` in any of the words that scripts use.
pub fn parse_bool(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "on" | "yes" => Ok(true),
        "0" | "false" | "off" | "no" => Ok(false),
        _ => Err("expected `true` or `false`".to_string()),
    }
}

/// Parses a time: seconds, or a number with its unit, such as `1.5s` or `500ms`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let error = || "expected seconds (5, 0.5) or a time with a unit (200ms, 10s, 2m)".to_string();
    let plain = text.trim();
    let end = plain.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(plain.len());
    let (number, unit) = plain.split_at(end);
    let factor = units::duration(if unit.is_empty() { "s" } else { unit }).ok_or_else(error)?;
    let (int, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| text.parse::<u64>().map_err(|_| error());
    let ns = digits(int)?.checked_mul(factor).filter(|_| fraction.len() <= 9).ok_or_else(error)?;
    let part = u128::from(digits(fraction)?) * u128::from(factor) / 10u128.pow(fraction.len() as u32);
    ns.checked_add(part as u64).map(Duration::from_nanos).ok_or_else(error)
}

/// The inverse of [`parse_duration`].
pub(super) fn write_duration(time: Duration) -> String {
    let ns = time.as_nanos();
    if ns == 0 {
        return "0".into();
    }
    let unit = units::DURATIONS.iter().rev().find(|(_, factor)| ns.is_multiple_of(u128::from(*factor)));
    unit.map_or_else(|| format!("{ns}ns"), |(name, factor)| format!("{}{name}", ns / u128::from(*factor)))
}

/// Parses `1%`, `0.5%` or `2%machine`; `0` is no limit.
///
/// # Errors
/// It is invalid, or out of range.
pub fn parse_overhead(text: &str) -> Result<Option<Overhead>, String> {
    let error = || "expected a percentage of one CPU or of the machine, such as 1%, 0.5% or 2%machine".to_string();
    if text.trim() == "0" {
        return Ok(None);
    }
    let (number, unit) = text.trim().split_once('%').ok_or_else(error)?;
    let of_machine = match unit {
        "" => false,
        "machine" => true,
        _ => return Err(error()),
    };
    let plain = number.starts_with(|c: char| c.is_ascii_digit()) && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let percent: f64 = number.parse().ok().filter(|_| plain).ok_or_else(error)?;
    let millipercent = percent * 1000.0;
    if !(1.0..=1e8).contains(&millipercent) {
        return Err("the percentage must be from 0.001 to 100000".into());
    }
    Ok(Some(Overhead { millipercent: millipercent.round() as u32, of_machine }))
}

/// The inverse of [`parse_overhead`].
pub fn write_overhead(limit: Option<Overhead>) -> String {
    limit.map_or_else(|| "0".into(), |o| format!("{}%{}", f64::from(o.millipercent) / 1000.0, if o.of_machine { "machine" } else { "" }))
}

/// Suffixes of sizes, in bytes.
const SIZES: [([&str; 2], u64); 3] = [(["K", "KiB"], 1 << 10), (["M", "MiB"], 1 << 20), (["G", "GiB"], 1 << 30)];

/// Parses a number per second: `500/s`, or only the number.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let number = text.strip_suffix("/s").unwrap_or(text);
    parse_int(number).map_err(|_| "expected a number per second, such as 500/s, 1e6/s or 500".to_string())
}

/// Parses a nonnegative integer in any form that scripts use (`1024`, `0x400`, `0b1`, `02000`, `1_000`, `1e6`, `5ms` in
/// nanoseconds) or with `K`, `M` or `G` for powers of 1024.
pub fn parse_int(text: &str) -> Result<u64, String> {
    let error = || "expected a number such as 1024, 0x400, 64K or 1e6".to_string();
    let plain: String = text.trim().chars().filter(|c| *c != '_').collect();
    let radix = |digits: &str, radix| u64::from_str_radix(digits, radix).map_err(|_| error());
    if let Some(hex) = plain.strip_prefix("0x").or_else(|| plain.strip_prefix("0X")) {
        return radix(hex, 16);
    }
    if let Some(bits) = plain.strip_prefix("0b") {
        return radix(bits, 2);
    }
    if plain.len() > 1 && plain.starts_with('0') && plain.bytes().all(|b| b.is_ascii_digit()) {
        return radix(&plain, 8);
    }
    let end = plain.find(|c: char| !c.is_ascii_digit()).unwrap_or(plain.len());
    let (digits, suffix) = plain.split_at(end);
    let n: u64 = digits.parse().map_err(|_| error())?;
    let size = SIZES.iter().find(|(names, _)| names.contains(&suffix)).map(|(_, bytes)| *bytes);
    let power = || 10u64.checked_pow(suffix.strip_prefix(['e', 'E'])?.parse().ok()?);
    let factor = units::factor(suffix).or(size).or_else(power).ok_or_else(error)?;
    n.checked_mul(factor).ok_or_else(|| "too large".to_string())
}
