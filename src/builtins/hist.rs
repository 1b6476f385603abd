//! Histograms: the bucket of a value, in the kernel and in user space.

use super::count::{has_sign, literal, number, pointer, row};
use super::{Accepts, Aggregate, Builtin, CallInfo, Monotonicity, Param, Sharing, StateCodec};
use crate::diag::Diagnostic;
use crate::emit::{Builder, Cmp, IntValue, Operand};
use crate::state::AggregateState;
use crate::types::Agg;
use crate::value::{Hist, MapViewKind, Scale, Value};

/// Maximum number of inner buckets of a linear histogram.
const MAX_BUCKETS: i64 = 1000;

pub(super) const ROWS: &[Builtin] = &[
    row(
        "hist",
        &[Param::new("n", Accepts::Int), Param::optional("k", Accepts::LitInt)],
        &Aggregate {
            layout: |f| {
                let k = if f.args.len() > 1 { literal(f, 1, "k", 0..=5)? } else { 0 };
                Ok(Agg { function: f.name.into(), signed: has_sign(f), params: vec![k], size: log2_buckets(k as u32) * 8 })
            },
            update: |e, u, slot, args| {
                let k = u.agg.as_ref().and_then(|a| a.params.first()).map_or(0, |k| *k as u64);
                let signed = args.first().and_then(|a| a.ty.as_int()).is_some_and(|i| i.signed);
                let index = log2_index_code(e, number(e, args), k, signed);
                bump(e, &slot, index);
            },
            sharing: Sharing::Always,
            state_codec: &StateCodec {
                is_additive: true,
                size: |_, params| match params {
                    [k @ 0..=5] => Some(log2_buckets(*k as u32) * 8),
                    _ => None,
                },
                save,
                load,
            },
            merge: |agg, slots| {
                let k = agg.params.first().map_or(0, |k| *k as u8);
                Value::Hist(Box::new(Hist { scale: Scale::Log2 { k }, counts: counts(agg, slots) }))
            },
            kind: MapViewKind::Hist,
            measures: false,
            monotonicity: Monotonicity::Either,
            kernel_read: None,
        },
        "Keeps a histogram with one bucket per power of two, or with 2^k buckets per power of two (k from 0 to 5).",
        "tracepoint:syscalls:sys_exit_read { @bytes = hist(args.ret); }",
    ),
    row(
        "lhist",
        &[
            Param::new("n", Accepts::Int),
            Param::new("min", Accepts::LitInt),
            Param::new("max", Accepts::LitInt),
            Param::new("step", Accepts::LitInt),
        ],
        &Aggregate {
            layout: |f| {
                let (params, size) = linear(f, 1)?;
                Ok(Agg { function: f.name.into(), signed: has_sign(f), params: params.to_vec(), size })
            },
            update: |e, u, slot, args| {
                let [min, max, step] = u.agg.as_ref().map_or([0, 1, 1], |a| bounds(a));
                let signed = args.first().and_then(|a| a.ty.as_int()).is_some_and(|i| i.signed);
                let index = linear_index_code(e, number(e, args), [min, max, step], signed);
                bump(e, &slot, index);
            },
            sharing: Sharing::Always,
            state_codec: &StateCodec { is_additive: true, size: |_, params| linear_size(params).ok(), save, load },
            merge: |agg, slots| {
                let [min, max, step] = bounds(agg);
                Value::Hist(Box::new(Hist { scale: Scale::Linear { min, max, step }, counts: counts(agg, slots) }))
            },
            kind: MapViewKind::Hist,
            measures: false,
            monotonicity: Monotonicity::Either,
            kernel_read: None,
        },
        "Keeps a histogram with equal buckets from min to max, one bucket below min, and one from max upward.",
        "profile:hz:99 { @ = lhist(cpu, 0, 64, 1); }",
    ),
];

/// Minimum, maximum and step, which are the arguments from `first` on, and the size of such a histogram in bytes.
pub(super) fn linear(f: &CallInfo, first: usize) -> Result<([i64; 3], u32), Diagnostic> {
    let min = literal(f, first, "min", 0..=i64::MAX)?;
    let max = literal(f, first + 1, "max", 0..=i64::MAX)?;
    let step = literal(f, first + 2, "step", 1..=i64::MAX)?;
    if max < min {
        return Err(Diagnostic::error("out-of-range", f.span(first + 1), format!("{}'s max is below its min", f.name)));
    }
    if step > max - min {
        let message = format!("{}'s step of {step} is wider than its range of {}", f.name, max - min);
        return Err(Diagnostic::error("out-of-range", f.span(first + 2), message));
    }
    linear_size(&[min, max, step]).map(|size| ([min, max, step], size)).map_err(|inner| {
        let message = format!("{} can have at most {MAX_BUCKETS} buckets, but these parameters make {inner}", f.name);
        Diagnostic::error("out-of-range", f.span, message).help("use a wider step")
    })
}

fn bounds(agg: &Agg) -> [i64; 3] {
    agg.params.as_slice().try_into().unwrap_or([0, 1, 1])
}

/// Bytes of a linear histogram, or the number of its inner buckets if it has too many.
pub(super) fn linear_size(params: &[i64]) -> Result<u32, i64> {
    let [min, max, step] = params else { return Err(0) };
    match max.checked_sub(*min).filter(|_| *min >= 0 && *step > 0).map_or(0, |range| range / step) {
        inner @ 1..=MAX_BUCKETS => Ok((inner as u32 + 2) * 8),
        inner => Err(inner),
    }
}

/// Number of buckets of a logarithmic histogram: one for negative numbers, 2^k for the numbers below 2^k, and 2^k for
/// each power from there to 2^63.
pub(super) const fn log2_buckets(k: u32) -> u32 {
    1 + (1 << k) + ((64 - k) << k)
}

/// Index 0: negative numbers; 1 + v: numbers below 2^k; above: computed from the power above k, and the next k bits.
pub(super) fn log2_index_code<'c>(e: &mut Builder<'_, 'c>, v: IntValue<'c>, k: u64, signed: bool) -> IntValue<'c> {
    let name = format!("log2_bucket_{k}{}", if signed { "_signed" } else { "" });
    e.computed(&name, v, |e, v| log2_index_inline(e, v, k, signed))
}

fn log2_index_inline<'c>(e: &mut Builder<'_, 'c>, v: IntValue<'c>, k: u64, signed: bool) -> IntValue<'c> {
    let of_positive = |e: &mut Builder<'_, 'c>| {
        let small = e.cmp(Cmp::Ult, v, e.int(1 << k));
        e.choose(
            small,
            |e| e.add(v, e.int(1)),
            |e| {
                let top = e.highest_bit(v);
                let above = e.sub(top, e.int(k));
                let next = e.and(e.shr(v, above, false), e.int((1 << k) - 1));
                let power = e.shl(e.add(above, e.int(1)), e.int(k));
                e.add(e.add(power, next), e.int(1))
            },
        )
    };
    if !signed {
        return of_positive(e);
    }
    let negative = e.cmp(Cmp::Slt, v, e.int(0));
    e.choose(negative, |e| e.int(0), of_positive)
}

/// Index 0: below min; last index: max and above.
pub(super) fn linear_index_code<'c>(e: &mut Builder<'_, 'c>, v: IntValue<'c>, [min, max, step]: [i64; 3], signed: bool) -> IntValue<'c> {
    let inline = |e: &mut Builder<'_, 'c>, v| linear_index_inline(e, v, [min, max, step], signed);
    if !e.is_split() {
        return inline(e, v);
    }
    let name = format!("linear_bucket_{min}_{max}_{step}{}", if signed { "_signed" } else { "" });
    e.computed(&name, v, inline)
}

fn linear_index_inline<'c>(e: &mut Builder<'_, 'c>, v: IntValue<'c>, [min, max, step]: [i64; 3], signed: bool) -> IntValue<'c> {
    let last = (max - min) / step + 1;
    let (lower, upper) = if signed { (Cmp::Slt, Cmp::Sge) } else { (Cmp::Ult, Cmp::Uge) };
    let below = e.cmp(lower, v, e.int(min as u64));
    let above = e.cmp(upper, v, e.int(max as u64));
    e.choose(
        below,
        |e| e.int(0),
        |e| {
            e.choose(
                above,
                |e| e.int(last as u64),
                |e| {
                    let offset = e.sub(v, e.int(min as u64));
                    let inner = e.div(offset, e.int(step as u64), false, false);
                    e.add(inner, e.int(1))
                },
            )
        },
    )
}

/// Counts in a bucket; the index is bounded again where the verifier tracks it.
fn bump<'c>(e: &mut Builder<'_, 'c>, slot: &Operand<'c>, index: IntValue<'c>) {
    let buckets = u64::from(slot.ty.size() / 8);
    let index = e.at_most(index, buckets - 1);
    let index = e.opaque(index);
    let ptr = e.offset_by(pointer(e, slot), e.shl(index, e.int(3)));
    let weight = e.weight();
    e.atomic_add(ptr, weight);
}

fn counts(agg: &Agg, slots: &[&[u8]]) -> Vec<u64> {
    (0..agg.size as usize / 8).map(|i| slots.iter().fold(0u64, |n, s| n.wrapping_add(super::word(s, i)))).collect()
}

fn save(agg: &Agg, slots: &[&[u8]]) -> AggregateState {
    AggregateState { buckets: AggregateState::sparse(counts(agg, slots)), ..AggregateState::default() }
}

fn load(agg: &Agg, of: &AggregateState) -> Result<Vec<u64>, String> {
    of.dense(agg.size as usize / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rule in plain code, with which tests also compare the kernel's code (`tests/cases`).
    fn log2_index(v: i128, k: u32) -> u32 {
        match u64::try_from(v) {
            Err(_) => 0,
            Ok(v) if v < 1 << k => v as u32 + 1,
            Ok(v) => {
                let top = v.ilog2();
                ((top - k + 1) << k) + ((v >> (top - k)) as u32 & ((1 << k) - 1)) + 1
            }
        }
    }

    #[test]
    fn buckets_suffice_exactly() {
        for k in 0..=5 {
            assert_eq!(log2_index(u64::MAX.into(), k) + 1, log2_buckets(k));
        }
        assert_eq!(log2_buckets(0), 66);
    }

    #[test]
    fn buckets_follow_each_other() {
        for k in 0..=5 {
            let mut last = 0;
            for v in (-1..5000).chain((13..64).flat_map(|p| [(1i128 << p) - 1, 1 << p, (1 << p) + 1])) {
                let index = log2_index(v, k);
                assert!(index >= last, "{v}");
                if v < 5000 {
                    assert!(index <= last + 1, "{v}");
                }
                last = index;
            }
        }
    }

    #[test]
    fn processors_merge() {
        let agg = Agg { function: "hist".into(), signed: false, params: vec![0], size: 24 };
        let slot: Vec<u8> = [1u64, 0, 2].iter().flat_map(|n| n.to_le_bytes()).collect();
        assert_eq!(counts(&agg, &[&slot, &slot]), [2, 0, 4]);
    }
}
