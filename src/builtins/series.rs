//! Time series: one number for each of the last intervals.

use std::collections::BTreeMap;

use super::count::{extreme_cmp, has_sign, literal, number, pointer, row};
use super::{Accepts, Aggregate, Builtin, CallInfo, Monotonicity, Param, Sharing, StateCodec};
use crate::diag::Diagnostic;
use crate::emit::shared::LoadConstants;
use crate::emit::{Builder, Cmp, Helper, IntValue, PointerValue};
use crate::state::{self, AggregateState, Interval};
use crate::types::{Agg, Int};
use crate::value::{MapViewKind, Series, Stats, Value};

/// How an interval's values become one: the last of them, or a function of all.
const REDUCTIONS: &[&str] = &["last", "avg", "max", "min", "sum"];
const LAST: i64 = 0;
const AVG: i64 = 1;
const MAX: i64 = 2;
const MIN: i64 = 3;

/// Maximum number of intervals.
const MAX_INTERVALS: i64 = 1_000_000;
const U64: Int = Int { bytes: 8, signed: false };

pub(super) const ROWS: &[Builtin] = &[row(
    "tseries",
    &[
        Param::new("n", Accepts::Int),
        Param::new("interval", Accepts::LitInt),
        Param::new("count", Accepts::LitInt),
        Param::optional("function", Accepts::LitStr),
    ],
    &Aggregate {
        layout,
        update: |e, u, slot, args| {
            let Some(agg) = u.agg.as_ref() else { return };
            let (slot, v) = (pointer(e, &slot), number(e, args));
            let [interval, count, how] = parameters(agg);
            let name = format!("tseries_{interval}_{count}_{how}{}", if agg.signed { "_signed" } else { "" });
            e.on_memory_and_number(&name, (slot, agg.size), v, |e, slot, v| {
                update(e, agg, slot, v);
                e.int(0)
            });
        },
        sharing: Sharing::Never,
        merge: |agg, slots| Value::Series(merge(agg, slots)),
        state_codec: &StateCodec { is_additive: false, size, save, load },
        kind: MapViewKind::Series,
        measures: false,
        monotonicity: Monotonicity::Either,
        kernel_read: None,
    },
    "Keeps a time series of the last `count` intervals of `interval` nanoseconds. For each interval, it stores the last value of the argument, or the result of the function: \"avg\", \"max\", \"min\" or \"sum\". Intervals begin at multiples of their length since 1970 (UTC).",
    "config = { unstable_tseries = enable; } tracepoint:syscalls:sys_exit_read /args.ret > 0/ { @ = tseries(args.ret, 100ms, 20, \"sum\"); }",
)];

fn layout(f: &CallInfo) -> Result<Agg, Diagnostic> {
    let interval = literal(f, 1, "interval", 1..=i64::MAX)?;
    let count = literal(f, 2, "count", 1..=MAX_INTERVALS)?;
    let how = match f.text(3) {
        None => LAST,
        Some(text) => match REDUCTIONS.iter().skip(1).position(|how| how.as_bytes() == text) {
            Some(i) => i as i64 + 1,
            None => {
                let message = format!("{} has no function \"{}\"", f.name, String::from_utf8_lossy(text));
                return Err(Diagnostic::error("invalid-keyword", f.span(3), message).help("use \"avg\", \"max\", \"min\" or \"sum\""));
            }
        },
    };
    let (signed, params) = (has_sign(f), vec![interval, count, how]);
    let size = size(signed, &params).unwrap_or_default();
    Ok(Agg { function: f.name.into(), signed, params, size })
}

fn size(_: bool, params: &[i64]) -> Option<u32> {
    match params {
        [interval, count @ 1..=MAX_INTERVALS, how] if *interval > 0 && (0..REDUCTIONS.len() as i64).contains(how) => {
            Some((count * words(*how) * 8) as u32)
        }
        _ => None,
    }
}

/// Words of an interval: its time (for `last` the time of the value, otherwise the number of the interval plus one; zero if
/// unused), the value, and for `avg` the count.
fn words(how: i64) -> i64 {
    if how == AVG { 3 } else { 2 }
}

fn parameters(agg: &Agg) -> [i64; 3] {
    agg.params.as_slice().try_into().unwrap_or([1, 1, LAST])
}

fn update<'c>(e: &mut Builder<'_, 'c>, agg: &Agg, slot: PointerValue<'c>, v: IntValue<'c>) {
    let [interval, count, how] = parameters(agg);
    let now = unix_time(e);
    let number = e.div(now, e.int(interval as u64), false, false);
    let index = e.div(number, e.int(count as u64), false, true);
    let index = e.at_most(index, count as u64 - 1);
    let index = e.opaque(index);
    let ptr = e.offset_by(slot, e.mul(index, e.int(words(how) as u64 * 8)));
    if how == LAST {
        e.store(ptr, 0, 8, now);
        e.store(ptr, 8, 8, v);
        return;
    }
    let tag = e.add(number, e.int(1));
    let old = e.load(ptr, 0, U64);
    let fresh = e.cmp(Cmp::Ne, old, tag);
    e.if_(fresh, |e| {
        let neutral = e.int(neutral(how, agg.signed));
        e.store(ptr, 8, 8, neutral);
        if how == AVG {
            let zero = e.int(0);
            e.store(ptr, 16, 8, zero);
        }
        e.store(ptr, 0, 8, tag);
    });
    if how == MIN || how == MAX {
        let now = e.load(ptr, 8, U64);
        let better = e.cmp(extreme_cmp(agg.signed, how == MAX), v, now);
        e.if_(better, |e| e.store(ptr, 8, 8, v));
    } else {
        let v = e.weighted(v);
        e.atomic_add(e.offset(ptr, 8), v);
        if how == AVG {
            let weight = e.weight();
            e.atomic_add(e.offset(ptr, 16), weight);
        }
    }
}

/// Nanoseconds since 1970: intervals begin at round times of the wall clock.
pub(super) fn unix_time<'c>(e: &mut Builder<'_, 'c>) -> IntValue<'c> {
    let now = e.call(Helper::KtimeGetBootNs, &[]);
    let ahead = e.start(std::mem::offset_of!(LoadConstants, unix_offset));
    e.add(now, ahead)
}

/// The neutral element of the function.
fn neutral(how: i64, signed: bool) -> u64 {
    match (how, signed) {
        (MIN, true) => i64::MAX as u64,
        (MIN, false) => u64::MAX,
        (MAX, true) => i64::MIN as u64,
        (_, _) => 0,
    }
}

/// An interval, merged from the words of all CPUs.
#[derive(Clone, Copy)]
struct Bucket {
    start: u64,
    value: u64,
    count: u64,
}

/// Starts are times of the wall clock.
fn merge(agg: &Agg, slots: &[&[u8]]) -> Series {
    let [interval, _, how] = parameters(agg);
    let value = |b: Bucket| match how {
        AVG => Stats { count: b.count, total: b.value, signed: agg.signed }.average(),
        _ if agg.signed => Value::Int(b.value as i64),
        _ => Value::Uint(b.value),
    };
    let buckets = intervals(agg, slots).into_iter().map(|(n, b)| (i128::from(n) * i128::from(interval.max(1)), value(b)));
    Series { interval: interval.max(1) as u64, buckets: buckets.collect() }
}

fn save(agg: &Agg, slots: &[&[u8]]) -> AggregateState {
    let [_, _, how] = parameters(agg);
    let saved = |b: Bucket| Interval {
        value: if agg.signed { i128::from(b.value as i64) } else { i128::from(b.value) },
        count: (how == AVG).then_some(b.count),
        at_ns: (how == LAST).then_some(b.start),
    };
    let intervals = intervals(agg, slots).into_iter().map(|(n, b)| (n, saved(b))).collect();
    AggregateState { intervals: Some(intervals), ..AggregateState::default() }
}

/// An interval is at the position where a program would have put it.
fn load(agg: &Agg, of: &AggregateState) -> Result<Vec<u64>, String> {
    let [interval, count, how] = parameters(agg);
    let words_of_one = words(how) as usize;
    let mut words = vec![0; count as usize * words_of_one];
    for (number, saved) in of.intervals.as_ref().ok_or("`intervals` is missing")? {
        let when = match how {
            LAST => saved.at_ns.filter(|at| *at > 0 && at / interval as u64 == *number),
            _ => number.checked_add(1),
        };
        let when = when.ok_or_else(|| format!("interval {number} has no such time"))?;
        let value = state::word(saved.value, agg.signed)?;
        let at = (*number % count as u64) as usize * words_of_one;
        let of_it = [when, value, saved.count.unwrap_or(0)];
        match words.get_mut(at..at + words_of_one) {
            Some(slot) if slot.first() == Some(&0) => slot.iter_mut().zip(of_it).for_each(|(to, word)| *to = word),
            _ => return Err(format!("interval {number} is not one of the last {count}")),
        }
    }
    Ok(words)
}

/// The last intervals, by number.
fn intervals(agg: &Agg, slots: &[&[u8]]) -> BTreeMap<u64, Bucket> {
    let [interval, count, how] = parameters(agg);
    let (interval, words) = (interval.max(1) as u64, words(how) as usize);
    let mut found: BTreeMap<u64, Bucket> = BTreeMap::new();
    for slot in slots {
        for i in 0..count as usize {
            let word = |n: usize| super::word(slot, i * words + n);
            let new = Bucket { start: word(0), value: word(1), count: if how == AVG { word(2) } else { 0 } };
            if new.start != 0 {
                let number = if how == LAST { new.start / interval } else { new.start - 1 };
                found.entry(number).and_modify(|b| *b = joined(*b, new, how, agg.signed)).or_insert(new);
            }
        }
    }
    // intervals that a processor has not overwritten yet may be older than the others' window
    let last = found.keys().next_back().copied().unwrap_or(0);
    found.retain(|n, _| last - n < count as u64);
    found
}

fn joined(a: Bucket, b: Bucket, how: i64, signed: bool) -> Bucket {
    // an inverted sign bit makes signed order unsigned
    let order = |n: u64| n ^ u64::from(signed) << 63;
    let by = |take: bool| if take { b } else { a };
    match how {
        LAST => by(b.start > a.start),
        MAX => by(order(b.value) > order(a.value)),
        MIN => by(order(b.value) < order(a.value)),
        _ => Bucket { start: a.start, value: a.value.wrapping_add(b.value), count: a.count.wrapping_add(b.count) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(how: i64, count: i64, slots: &[&[i64]]) -> Vec<(i128, i128)> {
        let agg = Agg { function: "tseries".into(), signed: true, params: vec![10, count, how], size: (count * words(how) * 8) as u32 };
        let bytes: Vec<Vec<u8>> = slots.iter().map(|s| s.iter().flat_map(|w| w.to_le_bytes()).collect()).collect();
        let slots: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
        merge(&agg, &slots).buckets.into_iter().map(|(at, v)| (at, v.number().unwrap())).collect()
    }

    #[test]
    fn processors_merge() {
        // two intervals: numbers 4 and 5, stored as 5 and 6
        assert_eq!(merged(4, 2, &[&[5, 7, 6, 1], &[5, -9, 0, 0]]), [(40, -2), (50, 1)]);
        assert_eq!(merged(MAX, 2, &[&[5, 7, 6, 1], &[5, -9, 6, 3]]), [(40, 7), (50, 3)]);
        assert_eq!(merged(MIN, 2, &[&[5, 7, 6, 1], &[5, -9, 6, 3]]), [(40, -9), (50, 1)]);
        assert_eq!(merged(AVG, 1, &[&[5, 7, 2], &[5, -3, 2]]), [(40, 1)]);
        // the later of two values in one interval
        assert_eq!(merged(LAST, 2, &[&[41, 1, 0, 0], &[49, 2, 55, 3]]), [(40, 2), (50, 3)]);
        assert_eq!(merged(LAST, 2, &[&[0, 0, 0, 0]]), []);
    }

    #[test]
    fn omits_old_intervals() {
        assert_eq!(merged(4, 2, &[&[5, 7, 6, 1], &[9, 2, 0, 0]]), [(80, 2)]);
    }
}
