//! Aggregations that keep one or two numbers per CPU, and code shared by all aggregations.

use super::{Accepts, Aggregate, Builtin, CallInfo, Codegen, KernelRead, Monotonicity, Param, Returns, Sharing, StateCodec};
use crate::diag::Diagnostic;
use crate::emit::{Builder, Cmp, IntValue, Operand, PointerValue, Repr};
use crate::probes::ContextFeatures;
use crate::state::{self, AggregateState};
use crate::types::{Agg, Int, Type};
use crate::value::{MapViewKind, Stats, Value};

const U64: Int = Int { bytes: 8, signed: false };
const N: &[Param] = &[Param::new("n", Accepts::Int)];

pub(super) const ROWS: &[Builtin] = &[
    row(
        "count",
        &[],
        &Aggregate {
            layout: |f| Ok(Agg { signed: false, ..layout(f, 8) }),
            update: |e, _, slot, _| {
                let weight = e.weight();
                e.atomic_add(pointer(e, &slot), weight);
            },
            sharing: Sharing::Always,
            merge: |_, slots| Value::Uint(total(slots, 0)),
            state_codec: &StateCodec {
                is_additive: true,
                size: |_, params| params.is_empty().then_some(8),
                save: |_, slots| AggregateState { count: Some(total(slots, 0)), ..AggregateState::default() },
                load: |_, of| Ok(vec![of.count_word()?]),
            },
            kind: MapViewKind::Map,
            measures: false,
            monotonicity: Monotonicity::Raises,
            kernel_read: Some(&ADDED),
        },
        "Counts events.",
        "tracepoint:syscalls:sys_enter_openat { @[comm] = count(); }",
    ),
    row(
        "sum",
        N,
        &Aggregate {
            layout: |f| Ok(layout(f, 8)),
            update: |e, _, slot, args| {
                let n = e.weighted(number(e, args));
                e.atomic_add(pointer(e, &slot), n);
            },
            sharing: Sharing::Always,
            merge: |agg, slots| signed(agg, total(slots, 0)),
            state_codec: &StateCodec {
                is_additive: true,
                size: |_, params| params.is_empty().then_some(8),
                save: |agg, slots| AggregateState { sum: signed(agg, total(slots, 0)).number(), ..AggregateState::default() },
                load: |agg, of| Ok(vec![of.sum_word(agg.signed)?]),
            },
            kind: MapViewKind::Map,
            measures: true,
            monotonicity: Monotonicity::RaisesUnsigned,
            kernel_read: Some(&ADDED),
        },
        "Keeps the sum of the values of its argument.",
        "tracepoint:syscalls:sys_exit_read /args.ret > 0/ { @[comm] = sum(args.ret); }",
    ),
    row(
        "min",
        N,
        &Aggregate {
            layout: |f| Ok(layout(f, 16)),
            update: |e, _, slot, args| keep_extreme(e, &slot, args, false),
            sharing: Sharing::WithFetch,
            merge: |agg, slots| extreme(agg, slots, false),
            state_codec: &StateCodec {
                is_additive: false,
                size: two_words,
                save: |agg, slots| AggregateState { min: best(agg, slots, false), ..AggregateState::default() },
                load: |agg, of| load_extreme(agg, of.min, false),
            },
            kind: MapViewKind::Map,
            measures: true,
            monotonicity: Monotonicity::Lowers,
            kernel_read: Some(&KernelRead {
                init: [0, 0],
                step: |e, now, slot| pick(e, now, &slot, false),
                finish: |_, [value, _]| value,
                quotient: None,
            }),
        },
        "Keeps the minimum of its argument.",
        "tracepoint:syscalls:sys_exit_read { @[comm] = min(args.ret); }",
    ),
    row(
        "max",
        N,
        &Aggregate {
            layout: |f| Ok(layout(f, 16)),
            update: |e, _, slot, args| keep_extreme(e, &slot, args, true),
            sharing: Sharing::WithFetch,
            merge: |agg, slots| extreme(agg, slots, true),
            state_codec: &StateCodec {
                is_additive: false,
                size: two_words,
                save: |agg, slots| AggregateState { max: best(agg, slots, true), ..AggregateState::default() },
                load: |agg, of| load_extreme(agg, of.max, true),
            },
            kind: MapViewKind::Map,
            measures: true,
            monotonicity: Monotonicity::Raises,
            kernel_read: Some(&KernelRead {
                init: [0, 0],
                step: |e, now, slot| pick(e, now, &slot, true),
                finish: |_, [value, _]| value,
                quotient: None,
            }),
        },
        "Keeps the maximum of its argument.",
        "tracepoint:syscalls:sys_exit_read { @[comm] = max(args.ret); }",
    ),
    row(
        "avg",
        N,
        &Aggregate {
            layout: |f| Ok(layout(f, 16)),
            update: |e, _, slot, args| add_up(e, &slot, args),
            sharing: Sharing::Always,
            merge: |agg, slots| Value::Avg(stats_of(agg, slots)),
            state_codec: &SAVED_STATS,
            kind: MapViewKind::Stats,
            measures: true,
            monotonicity: Monotonicity::Either,
            kernel_read: Some(&KernelRead {
                init: [0, 0],
                // the second accumulator's highest bit marks a signed sum
                step: |e, [sum, count], slot| {
                    let sign = if is_signed(&slot.ty) { e.int(1 << 63) } else { e.int(0) };
                    let count = add(e, &count, &slot, 8);
                    let count = e.or(e.scalar(&count), sign);
                    [add(e, &sum, &slot, 0), Operand::u64(count)]
                },
                finish: |e, [sum, count]| Operand::u64(quotient(e, &sum, &count)),
                quotient: Some(|e, [sum, count]| {
                    let count = e.and(e.scalar(&count), e.int(u64::MAX >> 1));
                    // the average of no values is zero
                    let none = e.cmp(Cmp::Eq, count, e.int(0));
                    [sum, Operand::u64(e.add(count, none))]
                }),
            }),
        },
        "Keeps the average of its argument. It is an integer. %.2f prints it with decimals.",
        "tracepoint:syscalls:sys_exit_read /args.ret > 0/ { @[comm] = avg(args.ret); }",
    ),
    row(
        "stats",
        N,
        &Aggregate {
            layout: |f| Ok(layout(f, 16)),
            update: |e, _, slot, args| add_up(e, &slot, args),
            sharing: Sharing::Always,
            merge: |agg, slots| Value::Stats(stats_of(agg, slots)),
            state_codec: &SAVED_STATS,
            kind: MapViewKind::Stats,
            measures: false,
            monotonicity: Monotonicity::Either,
            kernel_read: None,
        },
        "Keeps the count, average and total of its argument.",
        "tracepoint:syscalls:sys_exit_read /args.ret > 0/ { @[comm] = stats(args.ret); }",
    ),
];

/// The common part of these rows.
pub(super) const fn row(
    name: &'static str,
    params: &'static [Param],
    aggregate: &'static Aggregate,
    doc: &'static str,
    example: &'static str,
) -> Builtin {
    let codegen = Codegen::Aggregate(aggregate);
    Builtin { name, params, returns: Returns::Always(Type::Void), needs: ContextFeatures::NONE, risky: false, codegen, doc, example }
}

/// The sum of the processors' sums.
const ADDED: KernelRead =
    KernelRead { init: [0, 0], step: |e, [sum, other], slot| [add(e, &sum, &slot, 0), other], finish: |_, [sum, _]| sum, quotient: None };

/// A layout without parameters.
fn layout(f: &CallInfo, size: u32) -> Agg {
    Agg { function: f.name.into(), signed: has_sign(f), params: Vec::new(), size }
}

/// Is the aggregated value signed?
pub(super) fn has_sign(f: &CallInfo) -> bool {
    f.args.first().and_then(|a| a.ty.as_int()).is_some_and(|i| i.signed)
}

fn is_signed(ty: &Type) -> bool {
    matches!(ty, Type::Agg(a) if a.signed)
}

pub(super) fn pointer<'c>(e: &Builder<'_, 'c>, slot: &Operand<'c>) -> PointerValue<'c> {
    match slot.repr {
        Repr::Mem(ptr, _) => ptr,
        Repr::None | Repr::Reg(_) | Repr::At(..) => e.null(),
    }
}

pub(super) fn number<'c>(e: &Builder<'_, 'c>, args: &[Operand<'c>]) -> IntValue<'c> {
    args.first().map_or(e.int(0), |a| e.scalar(a))
}

// --- kernel side ------------------------------------------------------------------------------------------------

/// The slot belongs to this processor, but another program can preempt this one there, so additions are atomic.
fn add_up<'c>(e: &mut Builder<'_, 'c>, slot: &Operand<'c>, args: &[Operand<'c>]) {
    let (ptr, n, weight) = (pointer(e, slot), e.weighted(number(e, args)), e.weight());
    e.atomic_add(ptr, n);
    e.atomic_add(e.offset(ptr, 8), weight);
}

/// Maximum number of retries after another CPU has updated the slot. Each time the slot received a better value from another
/// run of a program, so the final value is at least as good.
pub(super) const MAX_RETRIES: u64 = 64;

/// Slot: the value in the form of [`rank`], then whether one exists. The initial zero has the lowest rank.
fn keep_extreme<'c>(e: &mut Builder<'_, 'c>, slot: &Operand<'c>, args: &[Operand<'c>], largest: bool) {
    let (ptr, n) = (pointer(e, slot), number(e, args));
    let n = e.xor(n, e.int(rank(is_signed(&slot.ty), largest)));
    e.on_memory_and_number("keep_extreme", (ptr, 16), n, |e, ptr, n| {
        update_max(e, ptr, n);
        let set = e.load(ptr, 8, U64);
        let first = e.cmp(Cmp::Eq, set, e.int(0));
        e.if_(first, |e| {
            let one = e.int(1);
            e.store(ptr, 8, 8, one);
        });
        e.int(0)
    });
}

/// Raises a word to `n` if that is larger.
pub(super) fn update_max<'c>(e: &mut Builder<'_, 'c>, ptr: PointerValue<'c>, n: IntValue<'c>) {
    let now = e.load_volatile(ptr, U64);
    let better = e.cmp(Cmp::Ugt, n, now);
    e.if_(better, |e| {
        if !e.target.atomic_fetch.holds() {
            return e.store(ptr, 0, 8, n);
        }
        let old = e.compare_exchange(ptr, now, n);
        let failed = e.cmp(Cmp::Ne, old, now);
        e.if_(failed, |e| {
            e.count(MAX_RETRIES, |e, _| {
                let now = e.load_volatile(ptr, U64);
                let better = e.cmp(Cmp::Ugt, n, now);
                e.if_(better, |e| {
                    e.compare_exchange(ptr, now, n);
                });
            });
        });
    });
}

/// The mask that turns a value into an unsigned number that is larger for better values; applying it again restores the
/// value.
fn rank(signed: bool, largest: bool) -> u64 {
    let sign = if signed { 1 << 63 } else { 0 };
    if largest { sign } else { !sign }
}

pub(super) fn extreme_cmp(signed: bool, largest: bool) -> Cmp {
    match (signed, largest) {
        (true, true) => Cmp::Sgt,
        (true, false) => Cmp::Slt,
        (false, true) => Cmp::Ugt,
        (false, false) => Cmp::Ult,
    }
}

fn pick<'c>(e: &mut Builder<'_, 'c>, [value, set]: [Operand<'c>; 2], slot: &Operand<'c>, largest: bool) -> [Operand<'c>; 2] {
    let ptr = pointer(e, slot);
    let (ranked, here_set) = (e.load(ptr, 0, U64), e.load(ptr, 8, U64));
    let candidate = e.xor(ranked, e.int(rank(is_signed(&slot.ty), largest)));
    let (value, set) = (e.scalar(&value), e.scalar(&set));
    let better = e.cmp(extreme_cmp(is_signed(&slot.ty), largest), candidate, value);
    let first = e.cmp(Cmp::Eq, set, e.int(0));
    let take = e.and(e.or(better, first), here_set);
    [Operand::u64(e.select(take, candidate, value)), Operand::u64(e.or(set, here_set))]
}

fn add<'c>(e: &Builder<'_, 'c>, to: &Operand<'c>, slot: &Operand<'c>, offset: u32) -> Operand<'c> {
    let here = e.load(pointer(e, slot), offset, U64);
    Operand::u64(e.add(e.scalar(to), here))
}

fn quotient<'c>(e: &mut Builder<'_, 'c>, sum: &Operand<'c>, count: &Operand<'c>) -> IntValue<'c> {
    let (sum, marked) = (e.scalar(sum), e.scalar(count));
    let count = e.and(marked, e.int(u64::MAX >> 1));
    let is_zero = e.cmp(Cmp::Eq, count, e.int(0));
    // all ones if the sum is negative
    let below = e.and(e.shr(sum, e.int(63), true), e.shr(marked, e.int(63), true));
    let size = e.sub(e.xor(sum, below), below);
    let quotient = e.choose(is_zero, |e| e.int(0), |e| e.div(size, count, false, false));
    e.sub(e.xor(quotient, below), below)
}

// --- user side --------------------------------------------------------------------------------------------------

/// Sum over the processors of the word at this index.
fn total(slots: &[&[u8]], index: usize) -> u64 {
    slots.iter().fold(0, |sum, slot| sum.wrapping_add(super::word(slot, index)))
}

fn signed(agg: &Agg, n: u64) -> Value {
    if agg.signed { Value::Int(n as i64) } else { Value::Uint(n) }
}

pub(super) fn stats_of(agg: &Agg, slots: &[&[u8]]) -> Stats {
    Stats { total: total(slots, 0), count: total(slots, 1), signed: agg.signed }
}

fn extreme(agg: &Agg, slots: &[&[u8]], largest: bool) -> Value {
    signed(agg, best_word(agg, slots, largest).unwrap_or(0))
}

/// None without values.
fn best_word(agg: &Agg, slots: &[&[u8]], largest: bool) -> Option<u64> {
    let best = slots.iter().filter(|s| super::word(s, 1) != 0).map(|s| super::word(s, 0)).max();
    best.map(|best| best ^ rank(agg.signed, largest))
}

fn best(agg: &Agg, slots: &[&[u8]], largest: bool) -> Option<i128> {
    best_word(agg, slots, largest).and_then(|word| signed(agg, word).number())
}

fn load_extreme(agg: &Agg, of: Option<i128>, largest: bool) -> Result<Vec<u64>, String> {
    of.map_or(Ok(vec![0, 0]), |n| Ok(vec![state::word(n, agg.signed)? ^ rank(agg.signed, largest), 1]))
}

fn two_words(_: bool, params: &[i64]) -> Option<u32> {
    params.is_empty().then_some(16)
}

/// Sum and count.
const SAVED_STATS: StateCodec = StateCodec {
    is_additive: true,
    size: two_words,
    save: |agg, slots| {
        let of = stats_of(agg, slots);
        AggregateState { count: Some(of.count), sum: of.sum().number(), ..AggregateState::default() }
    },
    load: |agg, of| Ok(vec![of.sum_word(agg.signed)?, of.count_word()?]),
};

/// Checks a literal parameter's range.
pub(super) fn literal(f: &CallInfo, i: usize, what: &str, range: std::ops::RangeInclusive<i64>) -> Result<i64, Diagnostic> {
    match f.int(i) {
        Some(n) if range.contains(&n) => Ok(n),
        Some(n) => Err(Diagnostic::error(
            "out-of-range",
            f.span(i),
            match *range.end() {
                i64::MAX => format!("{}'s {what} must be at least {}, but it is {n}", f.name, range.start()),
                end => format!("{}'s {what} must be from {} to {end}, but it is {n}", f.name, range.start()),
            },
        )),
        None => Err(Diagnostic::error("not-constant", f.span(i), format!("{}'s {what} must be a constant", f.name))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extremes(name: &str, signed: bool, cpus: &[[i64; 2]]) -> Value {
        let ranked: Vec<[i64; 2]> = cpus.iter().map(|[n, set]| [n ^ rank(signed, name == "max") as i64, *set]).collect();
        merge(name, signed, &ranked)
    }

    fn merge(name: &str, signed: bool, cpus: &[[i64; 2]]) -> Value {
        let slots: Vec<Vec<u8>> = cpus.iter().map(|c| c.iter().flat_map(|w| w.to_le_bytes()).collect()).collect();
        let slots: Vec<&[u8]> = slots.iter().map(Vec::as_slice).collect();
        let Codegen::Aggregate(row) = &super::super::find(name).unwrap().codegen else { panic!() };
        (row.merge)(&Agg { function: name.into(), signed, params: vec![], size: 16 }, &slots)
    }

    #[test]
    fn processors_merge() {
        assert_eq!(merge("count", false, &[[3, 0], [4, 0]]), Value::Uint(7));
        assert_eq!(merge("sum", true, &[[-3, 0], [1, 0]]), Value::Int(-2));
        assert_eq!(merge("sum", false, &[[-1, 0], [0, 0]]), Value::Uint(u64::MAX));
        assert_eq!(extremes("min", true, &[[5, 1], [-5, 1], [-9, 0]]), Value::Int(-5));
        assert_eq!(extremes("min", false, &[[5, 1], [-5, 1]]), Value::Uint(5));
        assert_eq!(extremes("max", true, &[[-7, 1], [-5, 1], [0, 0]]), Value::Int(-5));
        assert_eq!(extremes("max", false, &[[0, 0], [0, 0]]), Value::Uint(0));
        assert_eq!(merge("avg", true, &[[-10, 2], [3, 1]]), Value::Avg(Stats { count: 3, total: -7i64 as u64, signed: true }));
        assert_eq!(merge("stats", false, &[[10, 2], [3, 1]]), Value::Stats(Stats { count: 3, total: 13, signed: false }));
    }
}
