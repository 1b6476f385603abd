//! Percentiles with bounded error: a histogram whose buckets are narrow everywhere.
//!
//! A bucket is 1/16 of its power of two wide, and its values print as the middle of the bucket, so they are off by at most half
//! a bucket, which is 1/32 of the value. Below 32 each value has its own bucket. Count, average, total, minimum and maximum are
//! exact. (Gil Tene's HDR histogram and DTrace's llquantize use such buckets as well.)

use super::count::{has_sign, number, pointer, row, stats_of};
use super::{Accepts, Aggregate, Builtin, Monotonicity, Param, Sharing, StateCodec};
use crate::emit::{Builder, Cmp, IntValue, PointerValue};
use crate::state::{self, AggregateState};
use crate::types::{Agg, Int};
use crate::value::{MapViewKind, Percentiles, Stats, Value};

/// Buckets per power of two: 2^K.
const K: u64 = 4;
/// Number of buckets of one sign: a bucket each for the numbers below 2^K, and 2^K for each power from there to 2^63.
const BUCKETS: u64 = (1 << K) + ((64 - K) << K);
/// Words before the buckets: the total, the greatest value, and the least value with inverted bits. The latter two are
/// stored in a form in which zero, the initial value, is below all values.
const HEAD: u64 = 3;
const MAX_OFFSET: u32 = 8;
const MIN_OFFSET: u32 = 16;
const U64: Int = Int { bytes: 8, signed: false };

/// Per mille, and the name.
const POINTS: &[(u128, &str)] = &[(500, "p50"), (900, "p90"), (990, "p99"), (999, "p99.9")];

pub(super) const ROWS: &[Builtin] = &[row(
    "percentiles",
    &[Param::new("n", Accepts::Int)],
    &Aggregate {
        layout: |f| {
            let signed = has_sign(f);
            Ok(Agg { function: f.name.into(), signed, params: Vec::new(), size: size(signed) })
        },
        update: |e, u, slot, args| {
            let signed = u.agg.as_ref().is_some_and(|a| a.signed);
            update(e, pointer(e, &slot), number(e, args), signed);
        },
        sharing: Sharing::Never,
        merge: |agg, slots| Value::Percentiles(Box::new(merge(agg, slots))),
        state_codec: &StateCodec { is_additive: true, size: |signed, params| params.is_empty().then(|| size(signed)), save, load },
        kind: MapViewKind::Percentiles,
        measures: false,
        monotonicity: Monotonicity::Either,
        kernel_read: None,
    },
    "Keeps the distribution of its argument: count, average, total, minimum, maximum, and the 50th, 90th, 99th and 99.9th percentile. \
     Percentiles are accurate to 1/32 (3 %), and exact below 32.",
    "tracepoint:syscalls:sys_enter_read { @start[tid] = nsecs; } tracepoint:syscalls:sys_exit_read /@start[tid]/ \
              { @ns[comm] = percentiles(nsecs - @start[tid]); delete(@start, tid); } end { print(@ns, 10, 1, \"p99\", \"duration\"); clear(@ns); clear(@start); }",
)];

fn size(signed: bool) -> u32 {
    ((HEAD + if signed { 2 * BUCKETS } else { BUCKETS }) * 8) as u32
}

/// Zero for a value that is stored unchanged, or the sign mask for one that must become unsigned.
fn bias(signed: bool) -> u64 {
    u64::from(signed) << 63
}

fn update<'c>(e: &mut Builder<'_, 'c>, slot: PointerValue<'c>, v: IntValue<'c>, signed: bool) {
    let total = e.weighted(v);
    e.atomic_add(slot, total);
    let up = e.xor(v, e.int(bias(signed)));
    let down = e.xor(up, e.int(u64::MAX));
    for (offset, candidate) in [(MAX_OFFSET, up), (MIN_OFFSET, down)] {
        let now = e.load(slot, offset, U64);
        let more = e.cmp(Cmp::Ugt, candidate, now);
        e.if_(more, |e| e.store(slot, offset, 8, candidate));
    }
    let index = if signed {
        let sign = e.shr(v, e.int(63), true);
        let magnitude = e.sub(e.xor(v, sign), sign);
        let index = index_code(e, magnitude);
        e.add(index, e.and(sign, e.int(BUCKETS)))
    } else {
        index_code(e, v)
    };
    let index = e.at_most(index, if signed { 2 * BUCKETS } else { BUCKETS } - 1);
    let index = e.opaque(index);
    let ptr = e.offset_by(e.offset(slot, 8 * HEAD as u32), e.shl(index, e.int(3)));
    let weight = e.weight();
    e.atomic_add(ptr, weight);
}

/// Below 2^K the number itself; above, computed from the power above K and the next K bits.
fn index_code<'c>(e: &mut Builder<'_, 'c>, v: IntValue<'c>) -> IntValue<'c> {
    let small = e.cmp(Cmp::Ult, v, e.int(1 << K));
    e.choose(
        small,
        |_| v,
        |e| {
            let above = e.sub(e.highest_bit(v), e.int(K));
            let next = e.and(e.shr(v, above, false), e.int((1 << K) - 1));
            e.add(e.shl(e.add(above, e.int(1)), e.int(K)), next)
        },
    )
}

/// The middle of a bucket.
fn middle(index: u64) -> i128 {
    if index < 1 << K {
        return index.into();
    }
    let above = (index >> K) - 1;
    let first = i128::from((1 << K) + (index & ((1 << K) - 1))) << above;
    first + ((1i128 << above) - 1) / 2
}

fn counts(agg: &Agg, slots: &[&[u8]]) -> Vec<u64> {
    (HEAD as usize..agg.size as usize / 8).map(|i| slots.iter().fold(0u64, |n, s| n.wrapping_add(super::word(s, i)))).collect()
}

/// The least and the greatest value.
fn extremes(agg: &Agg, slots: &[&[u8]]) -> (i128, i128) {
    let extreme = |word: usize, turned: u64| {
        let max = slots.iter().map(|s| super::word(s, word)).max().unwrap_or(0) ^ turned ^ bias(agg.signed);
        if agg.signed { i128::from(max as i64) } else { i128::from(max) }
    };
    (extreme(2, u64::MAX), extreme(1, 0))
}

fn save(agg: &Agg, slots: &[&[u8]]) -> AggregateState {
    let counts = counts(agg, slots);
    let any = counts.iter().any(|n| *n > 0);
    let (min, max) = Some(extremes(agg, slots)).filter(|_| any).unzip();
    AggregateState {
        sum: stats_of(agg, slots).sum().number(),
        min,
        max,
        buckets: AggregateState::sparse(counts),
        ..AggregateState::default()
    }
}

fn load(agg: &Agg, of: &AggregateState) -> Result<Vec<u64>, String> {
    let counts = of.dense((agg.size as usize / 8).saturating_sub(HEAD as usize))?;
    let extremes = match (of.min, of.max) {
        (Some(min), Some(max)) if min <= max => {
            [state::word(max, agg.signed)? ^ bias(agg.signed), !(state::word(min, agg.signed)? ^ bias(agg.signed))]
        }
        (None, None) if counts.iter().all(|n| *n == 0) => [0, 0],
        (_, _) => return Err("`min` and `max` do not fit the buckets".into()),
    };
    Ok([of.sum_word(agg.signed)?].into_iter().chain(extremes).chain(counts).collect())
}

fn merge(agg: &Agg, slots: &[&[u8]]) -> Percentiles {
    let counts = counts(agg, slots);
    let count = counts.iter().fold(0u64, |n, c| n.wrapping_add(*c));
    let stats = Stats { count, ..stats_of(agg, slots) };
    let signed = |n: i128| if agg.signed { Value::Int(n as i64) } else { Value::Uint(n as u64) };
    let (min, max) = if count == 0 { (0, 0) } else { extremes(agg, slots) };

    // from the most negative value upward
    let (positive, negative) = counts.split_at((BUCKETS as usize).min(counts.len()));
    let numbered = |side: &[u64]| side.iter().copied().enumerate().map(|(i, c)| (middle(i as u64), c)).collect::<Vec<_>>();
    let ascending = numbered(negative).into_iter().rev().map(|(v, c)| (-v, c)).chain(numbered(positive));
    let mut wanted = POINTS.iter().map(|(mille, name)| ((u128::from(count) * mille).div_ceil(1000), *name)).peekable();
    let mut points = vec![("min", signed(min))];
    let samples: Vec<(i128, u64)> = ascending.filter(|(_, n)| *n > 0).map(|(value, n)| (value.clamp(min, max), n)).collect();
    let mut seen = 0u128;
    for (value, n) in &samples {
        seen += u128::from(*n);
        while let Some((_, name)) = wanted.next_if(|(rank, _)| *rank <= seen && count > 0) {
            points.push((name, signed(*value)));
        }
    }
    points.extend(wanted.map(|(_, name)| (name, signed(0))));
    points.push(("max", signed(max)));
    Percentiles { stats, points, samples }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// [`index_code`] in plain code, with which tests also compare the kernel's code (`tests/cases`).
    fn index(v: u64) -> u64 {
        if v < 1 << K {
            return v;
        }
        let above = u64::from(v.ilog2()) - K;
        ((above + 1) << K) + ((v >> above) & ((1 << K) - 1))
    }

    fn merged(values: &[i64], signed: bool) -> Percentiles {
        let mut words = vec![0u64; (HEAD + if signed { 2 * BUCKETS } else { BUCKETS }) as usize];
        for v in values {
            let up = *v as u64 ^ bias(signed);
            words[0] = words[0].wrapping_add(*v as u64);
            words[1] = words[1].max(up);
            words[2] = words[2].max(!up);
            let side = if signed && *v < 0 { BUCKETS + index(v.unsigned_abs()) } else { index(*v as u64) };
            words[(HEAD + side) as usize] += 1;
        }
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let agg = Agg { function: "percentiles".into(), signed, params: vec![], size: bytes.len() as u32 };
        merge(&agg, &[&bytes, &vec![0; bytes.len()]])
    }

    fn numbers(p: &Percentiles) -> Vec<i128> {
        p.points.iter().map(|(_, v)| v.number().unwrap()).collect()
    }

    #[test]
    fn error_is_bounded() {
        let mut random = Random::new(88172645463325252);
        let mut last = 0;
        for i in 0..100_000u64 {
            let number = random.number();
            let v = if i < 5000 { i } else { number >> (number & 63) };
            let off = middle(index(v)).abs_diff(i128::from(v));
            assert!(off * 32 <= u128::from(v), "{v}");
            assert!(v >= 32 || off == 0, "{v}");
            if i < 5000 {
                assert!(index(v) == last || index(v) == last + 1, "{v}");
                last = index(v);
            }
        }
        assert_eq!(index(u64::MAX) + 1, BUCKETS);
    }

    #[test]
    fn ranks() {
        assert_eq!(numbers(&merged(&[], true)), [0; 6]);
        assert_eq!(numbers(&merged(&[7], false)), [7; 6]);
        let hundred: Vec<i64> = (1..=20).collect();
        assert_eq!(numbers(&merged(&hundred, false)), [1, 10, 18, 20, 20, 20]);
        let both: Vec<i64> = (-10..10).collect();
        assert_eq!(numbers(&merged(&both, true)), [-10, -1, 7, 9, 9, 9]);
        assert_eq!(numbers(&merged(&[-5, -5, -3], true)), [-5, -5, -3, -3, -3, -3]);
        assert_eq!(numbers(&merged(&[i64::MIN, i64::MAX], true))[0], i64::MIN.into());
        assert_eq!(numbers(&merged(&[-1], false))[5], u64::MAX.into());
    }

    #[test]
    fn totals() {
        let p = merged(&[-4, 1], true);
        assert_eq!(p.stats, Stats { count: 2, total: -3i64 as u64, signed: true });
    }
}
