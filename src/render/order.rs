//! The order of a map's entries, and the arguments of `print()` that change their numbers.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use super::decimal::{self, Fraction};
use crate::value::{MapView, Stats, Unit, Value};

/// Entries in the order of printing: ascending by the requested field, or by the aggregated value, or by key if the values
/// are not numbers; the last `top` of them (0: all). Equal entries are sorted by key, so the output is deterministic.
///
/// It does not apply `div`: see [`divide`]. Series ignore both.
pub fn sort_entries(view: &MapView) -> Vec<&(Value, Value)> {
    let by = view.show.by.as_deref();
    let weights = || view.entries.iter().map(|(_, value)| weight(value, by));
    // The sorted array has a copy of each weight, and most weights are small.
    let mut sorted = if weights().any(|weight| weight.is_none()) {
        sort(view, |_| ())
    } else if weights().flatten().all(|weight| i64::try_from(weight).is_ok()) {
        sort(view, |value| weight(value, by).unwrap_or(0) as i64)
    } else {
        sort(view, |value| weight(value, by))
    };
    let first = view.entries.first().map(|(_, value)| value);
    let ignores_top = by.is_none() && matches!(first, Some(Value::Series(_)));
    let skip = match view.show.top {
        Some(top) if top > 0 && !ignores_top => sorted.len().saturating_sub(usize::try_from(top).unwrap_or(usize::MAX)),
        Some(_) | None => 0,
    };
    sorted.drain(..skip);
    sorted
}

/// Sorts entries by the weight of the value, then by key.
fn sort<W: Ord>(view: &MapView, weight: impl Fn(&Value) -> W) -> Vec<&(Value, Value)> {
    let mut weighed: Vec<(W, &(Value, Value))> = view.entries.iter().map(|entry| (weight(&entry.1), entry)).collect();
    weighed.sort_by(|(wa, a), (wb, b)| wa.cmp(wb).then_with(|| compare(&a.0, &b.0)));
    weighed.into_iter().map(|(_, entry)| entry).collect()
}

/// Divides integers, averages, points of a distribution and the counts of heat maps, rounding toward zero; other values,
/// such as series, stay. (Counts of a histogram: `hist::rows`.)
pub fn divide(value: &Value, div: Option<u64>) -> Cow<'_, Value> {
    let Some(div) = div.filter(|d| *d > 1) else { return Cow::Borrowed(value) };
    let by = |v: &Value| divide(v, Some(div)).into_owned();
    if let Value::Int(v) = value {
        Cow::Owned(Value::Int((i128::from(*v) / i128::from(div)) as i64))
    } else if let Value::Uint(v) = value {
        Cow::Owned(Value::Uint(v / div))
    } else if let Value::Avg(s) = value {
        Cow::Owned(by(&s.average()))
    } else if let Value::Percentiles(_) = value {
        let fields = value.fields().unwrap_or_default().into_iter();
        Cow::Owned(Value::Record(fields.map(|(name, v)| (name.into(), if name == COUNT { v } else { by(&v) })).collect()))
    } else if let Value::HeatMap(h) = value {
        let mut h = h.clone();
        h.columns.iter_mut().flat_map(|(_, counts)| counts).for_each(|n| *n /= div);
        Cow::Owned(Value::HeatMap(h))
    } else {
        Cow::Borrowed(value)
    }
}

/// Converts numbers to text with their unit, except for counts of something else.
pub fn with_unit(value: &Value, unit: Option<Unit>) -> Cow<'_, Value> {
    let Some(unit) = unit else { return Cow::Borrowed(value) };
    let by = |v: &Value| with_unit(v, Some(unit)).into_owned();
    let text = |f: Fraction| match unit {
        Unit::Duration => decimal::duration(f, None),
        Unit::Size => decimal::size(f, None),
    };
    if let Value::Int(_) | Value::Uint(_) | Value::Avg(_) = value {
        fraction(value).map_or(Cow::Borrowed(value), |f| Cow::Owned(Value::Text(text(f))))
    } else if let Some(fields) = value.fields() {
        let part = |(name, v): (&str, Value)| {
            // the decimals of an average are still known here
            let v = match (value, name) {
                (Value::Stats(s), AVERAGE) => by(&Value::Avg(*s)),
                (_, COUNT) => v,
                (_, _) => by(&v),
            };
            (name.to_string(), v)
        };
        Cow::Owned(Value::Record(fields.into_iter().map(part).collect()))
    } else if let Value::Record(fields) = value {
        Cow::Owned(Value::Record(fields.iter().map(|(name, v)| (name.clone(), if name == COUNT { v.clone() } else { by(v) })).collect()))
    } else {
        Cow::Borrowed(value)
    }
}

/// Names of [`Value::fields`] that do not have the unit of the measured values, or are quotients.
const COUNT: &str = "count";
const AVERAGE: &str = "average";

/// A number as a fraction: an average as total and count, a pair as its quotient.
pub fn fraction(value: &Value) -> Option<Fraction> {
    if let Value::Avg(s) = value {
        return Some(quotient(s));
    }
    if let Value::Tuple(pair) = value {
        let [a, b] = pair.as_slice() else { return None };
        return Some((a.number()?, b.number()?));
    }
    Some((value.number()?, 1))
}

/// Zero if there are no values.
fn quotient(s: &Stats) -> Fraction {
    (s.sum().number().unwrap_or(0), i128::from(s.count).max(1))
}

/// The sort key of an entry whose value is a number or an aggregation.
fn weight(value: &Value, by: Option<&str>) -> Option<i128> {
    if let Some(fields) = value.fields() {
        let default = if let Value::Stats(_) = value { AVERAGE } else { COUNT };
        let field = |name: &str| fields.iter().find(|(n, _)| *n == name).and_then(|(_, v)| v.number());
        return by.and_then(field).or_else(|| field(default));
    }
    if let Value::Int(_) | Value::Uint(_) = value {
        value.number()
    } else if let Value::Float { value: f, .. } = value {
        Some(rank(*f))
    } else if let Value::Avg(s) = value {
        s.average().number()
    } else if let Value::Hist(h) = value {
        Some(h.counts.iter().map(|c| i128::from(*c)).sum())
    } else if let Value::HeatMap(h) = value {
        Some(h.columns.iter().flat_map(|(_, counts)| counts).map(|c| i128::from(*c)).sum())
    } else {
        None
    }
}

/// An integer with the order of [`f64::total_cmp`].
fn rank(f: f64) -> i128 {
    let bits = f.to_bits() as i64;
    i128::from(bits ^ ((bits >> 63) as u64 >> 1) as i64)
}

/// Numbers by signed value, strings bytewise, tuples from the left, stacks by address from the leaf.
fn compare(a: &Value, b: &Value) -> Ordering {
    if let (Some(x), Some(y)) = (a.number(), b.number()) {
        return x.cmp(&y);
    }
    if let (Value::Float { value: x, .. }, Value::Float { value: y, .. }) = (a, b) {
        return x.total_cmp(y);
    }
    if let (Some(x), Some(y)) = (bytes(a), bytes(b)) {
        return x.cmp(y);
    }
    match (a, b) {
        (Value::Tuple(x) | Value::List(x), Value::Tuple(y) | Value::List(y)) => all(x.iter(), y.iter()),
        (Value::Record(x), Value::Record(y)) => all(x.iter().map(|f| &f.1), y.iter().map(|f| &f.1)),
        (Value::Stack(x), Value::Stack(y)) => {
            // Stacks share their frames.
            let same = x.frames.iter().zip(&y.frames).take_while(|(x, y)| Arc::ptr_eq(x, y)).count();
            let [x, y] = [x, y].map(|stack| stack.frames.iter().skip(same).map(|f| f.addr));
            x.cmp(y)
        }
        // All keys of a map have one type; if a part could not be decoded, kinds stay together.
        (_, _) => kind(a).cmp(&kind(b)),
    }
}

fn all<'a>(a: impl ExactSizeIterator<Item = &'a Value>, b: impl ExactSizeIterator<Item = &'a Value>) -> Ordering {
    let lengths = a.len().cmp(&b.len());
    a.zip(b).map(|(x, y)| compare(x, y)).find(|o| o.is_ne()).unwrap_or(lengths)
}

fn bytes(value: &Value) -> Option<&[u8]> {
    if let Value::Str { bytes, .. } | Value::Bytes(bytes) = value {
        Some(bytes)
    } else if let Value::Text(text) = value {
        Some(text.as_bytes())
    } else {
        None
    }
}

/// A rank per kind, which keeps [`compare`] a total order.
fn kind(value: &Value) -> u8 {
    match value {
        Value::None => 0,
        Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Float { .. } | Value::Ptr(_) | Value::Enum { .. } => 1,
        Value::Str { .. } | Value::Bytes(_) | Value::Text(_) => 2,
        Value::List(_) | Value::Tuple(_) => 3,
        Value::Record(_) => 4,
        Value::Stack(_) => 5,
        Value::Hist(_) => 6,
        Value::Stats(_) | Value::Avg(_) | Value::Percentiles(_) | Value::Series(_) | Value::HeatMap(_) => 7,
    }
}
