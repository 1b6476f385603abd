//! The order of a map's entries, and `print()`'s two limits on them.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::value::{MapView, Value};

/// Entries as they are shown: ascending by what was aggregated or, where the values are no numbers, by key; the last
/// `top` of them (0: all). Equal ones are ordered by key, so the same map always looks the same.
///
/// `div` is not applied: see [`divide`]. Statistics ignore both, as [`divide`] does.
pub fn arrange(view: &MapView) -> Vec<&(Value, Value)> {
    let mut weighed: Vec<(Option<i128>, &(Value, Value))> = view.entries.iter().map(|e| (weight(&e.1), e)).collect();
    let by_value = weighed.iter().all(|(w, _)| w.is_some());
    weighed.sort_by(|(wa, a), (wb, b)| {
        let values = if by_value { wa.cmp(wb) } else { Ordering::Equal };
        values.then_with(|| compare(&a.0, &b.0))
    });
    let ignores_top = matches!(view.entries.first(), Some((_, Value::Stats(_))));
    let skip = match view.top {
        Some(top) if top > 0 && !ignores_top => weighed.len().saturating_sub(usize::try_from(top).unwrap_or(usize::MAX)),
        Some(_) | None => 0,
    };
    weighed.into_iter().skip(skip).map(|(_, e)| e).collect()
}

/// Integers and averages divided, toward zero; all else as it was. (A histogram's counts: `hist::rows`.)
pub fn divide(value: &Value, div: Option<u64>) -> Cow<'_, Value> {
    let Some(div) = div.filter(|d| *d > 1) else { return Cow::Borrowed(value) };
    match value {
        Value::Int(v) => Cow::Owned(Value::Int((i128::from(*v) / i128::from(div)) as i64)),
        Value::Uint(v) => Cow::Owned(Value::Uint(v / div)),
        Value::Avg(s) => Cow::Owned(divide(&s.average(), Some(div)).into_owned()),
        Value::None
        | Value::Bool(_)
        | Value::Ptr(_)
        | Value::Enum { .. }
        | Value::Str { .. }
        | Value::Bytes(_)
        | Value::List(_)
        | Value::Tuple(_)
        | Value::Record(_)
        | Value::Text(_)
        | Value::Stack(_)
        | Value::Hist(_)
        | Value::Stats(_) => Cow::Borrowed(value),
    }
}

/// What an entry is sorted by when its value is a number or an aggregation.
fn weight(value: &Value) -> Option<i128> {
    match value {
        Value::Int(v) => Some(i128::from(*v)),
        Value::Uint(v) => Some(i128::from(*v)),
        Value::Avg(s) | Value::Stats(s) => weight(&s.average()),
        Value::Hist(h) => Some(h.counts.iter().map(|c| i128::from(*c)).sum()),
        Value::None
        | Value::Bool(_)
        | Value::Ptr(_)
        | Value::Enum { .. }
        | Value::Str { .. }
        | Value::Bytes(_)
        | Value::List(_)
        | Value::Tuple(_)
        | Value::Record(_)
        | Value::Text(_)
        | Value::Stack(_) => None,
    }
}

/// Numbers by value with their sign, strings bytewise, tuples from the left, stacks by address from the leaf.
fn compare(a: &Value, b: &Value) -> Ordering {
    if let (Some(x), Some(y)) = (number(a), number(b)) {
        return x.cmp(&y);
    }
    if let (Some(x), Some(y)) = (bytes(a), bytes(b)) {
        return x.cmp(y);
    }
    match (a, b) {
        (Value::Tuple(x) | Value::List(x), Value::Tuple(y) | Value::List(y)) => all(x.iter(), y.iter()),
        (Value::Record(x), Value::Record(y)) => all(x.iter().map(|f| &f.1), y.iter().map(|f| &f.1)),
        (Value::Stack(x), Value::Stack(y)) => x.frames.iter().map(|f| f.addr).cmp(y.frames.iter().map(|f| f.addr)),
        // One map's keys are all of one type; where a part of it could not be decoded, kinds stay together.
        (_, _) => kind(a).cmp(&kind(b)),
    }
}

fn all<'a>(a: impl ExactSizeIterator<Item = &'a Value>, b: impl ExactSizeIterator<Item = &'a Value>) -> Ordering {
    let lengths = a.len().cmp(&b.len());
    a.zip(b).map(|(x, y)| compare(x, y)).find(|o| o.is_ne()).unwrap_or(lengths)
}

fn number(value: &Value) -> Option<i128> {
    match value {
        Value::Bool(v) => Some(i128::from(*v)),
        Value::Int(v) => Some(i128::from(*v)),
        Value::Uint(v) | Value::Ptr(v) => Some(i128::from(*v)),
        Value::Enum { value, .. } => Some(i128::from(*value)),
        Value::None
        | Value::Str { .. }
        | Value::Bytes(_)
        | Value::List(_)
        | Value::Tuple(_)
        | Value::Record(_)
        | Value::Text(_)
        | Value::Stack(_)
        | Value::Hist(_)
        | Value::Stats(_)
        | Value::Avg(_) => None,
    }
}

fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Str { bytes, .. } | Value::Bytes(bytes) => Some(bytes),
        Value::Text(text) => Some(text.as_bytes()),
        Value::None
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Ptr(_)
        | Value::Enum { .. }
        | Value::List(_)
        | Value::Tuple(_)
        | Value::Record(_)
        | Value::Stack(_)
        | Value::Hist(_)
        | Value::Stats(_)
        | Value::Avg(_) => None,
    }
}

/// A rank per kind, which keeps [`compare`] a total order.
fn kind(value: &Value) -> u8 {
    match value {
        Value::None => 0,
        Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Ptr(_) | Value::Enum { .. } => 1,
        Value::Str { .. } | Value::Bytes(_) | Value::Text(_) => 2,
        Value::List(_) | Value::Tuple(_) => 3,
        Value::Record(_) => 4,
        Value::Stack(_) => 5,
        Value::Hist(_) => 6,
        Value::Stats(_) | Value::Avg(_) => 7,
    }
}
