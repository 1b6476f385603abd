//! Rows of a histogram: bounds of a bucket from its index and scale, labels, bars.

use crate::value::{Hist, Scale};

use super::integers::decimal;

/// Width of the bar of the greatest count, in columns.
const BAR: u64 = 52;

/// A row, for both formats.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// Minimum, or none if unbounded.
    pub min: Option<i128>,
    /// Maximum (inclusive), or none if unbounded.
    pub max: Option<i128>,
    /// `[2, 4)`.
    pub label: String,
    /// The number to print, divided if requested.
    pub count: u64,
    /// Width of the bar in columns.
    pub bar: u64,
}

/// The rows from the first to the last bucket with samples, including those between.
///
/// `div` divides the counts of a logarithmic histogram; a linear one ignores it. Bars are of the undivided counts.
pub fn rows(hist: &Hist, div: u64) -> Vec<Row> {
    let Some(first) = hist.counts.iter().position(|c| *c != 0) else { return Vec::new() };
    let last = hist.counts.iter().rposition(|c| *c != 0).unwrap_or(first);
    let largest = hist.counts.iter().copied().max().unwrap_or(1).max(1);
    let div = match hist.scale {
        Scale::Log2 { .. } => div.max(1),
        Scale::Linear { .. } => 1,
    };
    let row = |(index, count): (usize, &u64)| {
        let bounds_of_bucket = bounds(hist.scale, index as u64);
        let label = label(&bounds_of_bucket, &bounds_of_bucket);
        let Bounds { min, max, .. } = bounds_of_bucket;
        let bar = (u128::from(*count) * u128::from(BAR) / u128::from(largest)) as u64;
        Row { min, max, label, count: count / div, bar }
    };
    hist.counts.iter().enumerate().skip(first).take(last - first + 1).map(row).collect()
}

/// Appends rows as text: label in 16 columns, count in 8, the bar.
pub fn text(hist: &Hist, div: u64, to: &mut Vec<u8>) {
    for row in rows(hist, div) {
        to.extend_from_slice(row.label.as_bytes());
        to.extend(std::iter::repeat_n(b' ', 16usize.saturating_sub(row.label.len())));
        let mut count = Vec::with_capacity(20);
        decimal(&mut count, row.count);
        to.extend(std::iter::repeat_n(b' ', 8usize.saturating_sub(count.len())));
        to.extend_from_slice(&count);
        to.extend_from_slice(b" |");
        to.extend(std::iter::repeat_n(b'@', row.bar as usize));
        to.extend(std::iter::repeat_n(b' ', BAR.saturating_sub(row.bar) as usize));
        to.extend_from_slice(b"|\n");
    }
}

/// The values of a bucket.
pub struct Bounds {
    /// Minimum, or none if unbounded.
    pub min: Option<i128>,
    /// Maximum (inclusive), or none if unbounded.
    pub max: Option<i128>,
    /// The minimum in the form for labels.
    from: String,
    /// The value just above the maximum in the form for labels.
    to: String,
}

/// The bounds of the bucket with this index.
pub fn bounds(scale: Scale, index: u64) -> Bounds {
    match scale {
        Scale::Log2 { k } => log2(index, k),
        Scale::Linear { min, max, step } => linear(index, min, max, step),
    }
}

/// The label of the buckets from one to another: `[2, 4)`, or `[2]` for a single value.
pub fn label(first: &Bounds, last: &Bounds) -> String {
    if first.min.is_some() && first.min == last.max {
        return format!("[{}]", first.from);
    }
    format!("{}{}, {})", if first.min.is_some() { "[" } else { "(" }, first.from, last.to)
}

/// Replaces an open bound.
const OPEN: &str = "...";

/// Bucket 0 has the negative values; the next 2^k have one value each; then there are 2^k for each power of two.
fn log2(index: u64, k: u8) -> Bounds {
    let Some(index) = index.checked_sub(1) else {
        return Bounds { min: None, max: Some(-1), from: OPEN.into(), to: "0".into() };
    };
    let (low, _) = log2_start(index, k);
    let (high, _) = log2_start(index + 1, k);
    Bounds { min: Some(low), max: Some(high - 1), from: log2_label(index, k), to: log2_label(index + 1, k) }
}

/// The least value of a nonnegative bucket and the power of two that is its width; `index` is relative to the bucket of
/// 0.
fn log2_start(index: u64, k: u8) -> (i128, u32) {
    let per_power = 1u64 << k;
    if index < per_power {
        return (i128::from(index), 0);
    }
    // At most 64 powers of two, whatever the number of buckets.
    let power = ((index >> k) - 1).min(64) as u32;
    (i128::from(per_power + (index & (per_power - 1))) << power, power)
}

/// A suffix per ten powers of two of the bucket's width: with k = 0 that is `1K` for 1024; with finer buckets the
/// suffix starts where no bound would need a fraction.
fn log2_label(index: u64, k: u8) -> String {
    let (start, power) = log2_start(index, k);
    let decade = power / 10;
    let suffix = ["", "K", "M", "G", "T", "P", "E"].get(decade as usize).copied().unwrap_or("");
    format!("{}{suffix}", start >> (10 * decade))
}

/// Bucket 0 has the values below `min`, and the last all values beyond the last whole bucket below `max`.
fn linear(index: u64, min: i64, max: i64, step: i64) -> Bounds {
    let step = i128::from(step.max(1));
    let min = i128::from(min);
    let Some(inner) = index.checked_sub(1) else {
        return Bounds { min: None, max: Some(min - 1), from: OPEN.into(), to: linear_label(min, step) };
    };
    let low = min + i128::from(inner) * step;
    if i128::from(inner) >= (i128::from(max) - min) / step {
        return Bounds { min: Some(low), max: None, from: linear_label(low, step), to: OPEN.into() };
    }
    let high = low + step;
    Bounds { min: Some(low), max: Some(high - 1), from: linear_label(low, step), to: linear_label(high, step) }
}

fn linear_label(number: i128, step: i128) -> String {
    const K: i128 = 1024;
    const M: i128 = K * K;
    if step % K != 0 || number == 0 {
        number.to_string()
    } else if number % M == 0 {
        format!("{}M", number / M)
    } else if number % K == 0 {
        format!("{}K", number / K)
    } else {
        number.to_string()
    }
}
