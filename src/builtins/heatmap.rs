//! Heat maps: a histogram for each of the last intervals.
//!
//! A slot has the number of its newest interval plus one, then a cell for each bucket of each interval. An interval's
//! cells are used again by a later one, so the upper bits of a cell hold the number of the lap in which it was counted,
//! and the lower bits its count. Nothing has to be cleared when an interval begins, and an update is one atomic
//! instruction: neither a program that interrupts another nor one on another processor loses a count.

use std::collections::BTreeMap;

use super::count::{has_sign, literal, number, pointer, row, update_max};
use super::hist::{linear, linear_index_code, linear_size, log2_buckets, log2_index_code};
use super::series::unix_time;
use super::{Accepts, Aggregate, Builtin, CallInfo, Monotonicity, Param, Sharing, StateCodec};
use crate::diag::Diagnostic;
use crate::emit::{Builder, Cmp, IntValue, PointerValue};
use crate::state::AggregateState;
use crate::types::{Agg, Int};
use crate::value::{HeatMap, MapViewKind, Scale, Value};

const U64: Int = Int { bytes: 8, signed: false };
const SECOND: i64 = 1_000_000_000;

/// Maximum length of an interval, which keeps a cell's count within [`COUNT_BITS`].
const MAX_INTERVAL: i64 = 24 * 3600 * SECOND;
/// Default number of intervals: with logarithmic buckets, a slot fits into per-CPU memory.
const DEFAULT_COUNT: i64 = 60;
/// Maximum number of cells: the kernel allocates at most 4 MiB for an element (KMALLOC_MAX_SIZE).
const MAX_CELLS: i64 = 500_000;

/// Number of bits of a cell for the count. The others are the lowest bits of the lap's number.
const COUNT_BITS: u32 = 40;
const MAX_COUNT: u64 = (1 << COUNT_BITS) - 1;

pub(super) const ROWS: &[Builtin] = &[row(
    "heatmap",
    &[
        Param::new("n", Accepts::Int),
        Param::optional("interval", Accepts::LitInt),
        Param::optional("count", Accepts::LitInt),
        Param::optional("k or min", Accepts::LitInt),
        Param::optional("max", Accepts::LitInt),
        Param::optional("step", Accepts::LitInt),
    ],
    &Aggregate {
        layout,
        update: |e, u, slot, args| {
            let Some(agg) = u.agg.as_ref() else { return };
            let (slot, v) = (pointer(e, &slot), number(e, args));
            let signed = args.first().and_then(|a| a.ty.as_int()).is_some_and(|i| i.signed);
            update(e, agg, slot, v, signed);
        },
        sharing: Sharing::WithFetch,
        merge: |agg, slots| {
            let HeatMapParams { interval, buckets, scale, .. } = form(&agg.params).unwrap_or(EMPTY);
            let dense = |of: BTreeMap<u32, u64>| (0..buckets).map(|i| of.get(&i).copied().unwrap_or(0)).collect();
            let columns = columns(agg, slots).into_iter().map(|(n, of)| (i128::from(n) * i128::from(interval), dense(of)));
            Value::HeatMap(Box::new(HeatMap { interval, scale, columns: columns.collect() }))
        },
        state_codec: &StateCodec {
            is_additive: false,
            size: |_, params| form(params).map(|form| form.size()),
            save: |agg, slots| AggregateState { columns: Some(columns(agg, slots)), ..AggregateState::default() },
            load,
        },
        kind: MapViewKind::HeatMap,
        measures: false,
        monotonicity: Monotonicity::Either,
        kernel_read: None,
    },
    "Keeps a histogram for each of the last `count` intervals (60) of `interval` nanoseconds (1s). Intervals begin at multiples of their \
     length since 1970 (UTC). Buckets are those of `hist` with `k`, or those of `lhist` from `min` to `max`. As text, it has a column for each interval and a row for each bucket, and shades show the counts.",
    "tracepoint:syscalls:sys_exit_read /args.ret > 0/ { @bytes = heatmap(args.ret, 100ms, 50); }",
)];

/// The parameters of a call.
#[derive(Clone, Copy)]
struct HeatMapParams {
    interval: u64,
    count: u64,
    /// Buckets of an interval.
    buckets: u32,
    scale: Scale,
}

const EMPTY: HeatMapParams = HeatMapParams { interval: 1, count: 1, buckets: 0, scale: Scale::Log2 { k: 0 } };

impl HeatMapParams {
    fn cells(&self) -> u64 {
        self.count * u64::from(self.buckets)
    }

    /// Bytes of a slot.
    fn size(&self) -> u32 {
        (8 + self.cells() * 8) as u32
    }
}

/// None if the parameters are invalid.
fn form(params: &[i64]) -> Option<HeatMapParams> {
    let [interval @ 1..=MAX_INTERVAL, count @ 1..=MAX_CELLS, buckets @ ..] = params else { return None };
    let (buckets, scale) = match buckets {
        [k @ 0..=5] => (log2_buckets(*k as u32), Scale::Log2 { k: *k as u8 }),
        [min, max, step] => (linear_size(buckets).ok()? / 8, Scale::Linear { min: *min, max: *max, step: *step }),
        _ => return None,
    };
    let form = HeatMapParams { interval: *interval as u64, count: *count as u64, buckets, scale };
    (form.cells() <= MAX_CELLS as u64).then_some(form)
}

fn layout(f: &CallInfo) -> Result<Agg, Diagnostic> {
    let interval = if f.args.len() > 1 { literal(f, 1, "interval", 1..=MAX_INTERVAL)? } else { SECOND };
    let count = if f.args.len() > 2 { literal(f, 2, "count", 1..=MAX_CELLS)? } else { DEFAULT_COUNT };
    let mut params = vec![interval, count];
    match f.args.len() {
        0..=3 => params.push(0),
        4 => params.push(literal(f, 3, "k", 0..=5)?),
        5 => {
            let message = format!("{} has a min and a max, but no step", f.name);
            return Err(Diagnostic::error("arity", f.span, message).help("linear buckets take three numbers: min, max, step"));
        }
        _ => params.extend(linear(f, 3)?.0),
    }
    match form(&params) {
        Some(form) => Ok(Agg { function: f.name.into(), signed: has_sign(f), size: form.size(), params }),
        None => {
            let message = format!("{} can have at most {MAX_CELLS} cells: intervals times buckets", f.name);
            Err(Diagnostic::error("out-of-range", f.span, message).help("keep fewer intervals, or use fewer buckets"))
        }
    }
}

fn update<'c>(e: &mut Builder<'_, 'c>, agg: &Agg, slot: PointerValue<'c>, v: IntValue<'c>, signed: bool) {
    let form = form(&agg.params).unwrap_or(EMPTY);
    let now = unix_time(e);
    let number = e.div(now, e.int(form.interval), false, false);
    let newest = e.add(number, e.int(1));
    e.on_memory_and_number("update_max", (slot, 8), newest, |e, slot, newest| {
        update_max(e, slot, newest);
        e.int(0)
    });

    let bucket = match form.scale {
        Scale::Log2 { k } => log2_index_code(e, v, k.into(), signed),
        Scale::Linear { min, max, step } => linear_index_code(e, v, [min, max, step], signed),
    };
    let column = e.div(number, e.int(form.count), false, true);
    let index = e.add(e.mul(column, e.int(form.buckets.into())), bucket);
    let index = e.at_most(index, form.cells().saturating_sub(1));
    let index = e.opaque(index);
    let cell = e.offset_by(e.offset(slot, 8), e.shl(index, e.int(3)));

    let round = e.div(number, e.int(form.count), false, false);
    let round = e.shl(round, e.int(COUNT_BITS.into()));
    let old = e.load_volatile(cell, U64);
    let stale = e.cmp(Cmp::Ugt, e.xor(old, round), e.int(MAX_COUNT));
    e.if_else(
        stale,
        |e| {
            let first = e.or(round, e.weight());
            if !e.target.atomic_fetch.holds() {
                return e.store(cell, 0, 8, first);
            }
            let found = e.compare_exchange(cell, old, first);
            // another update has started the lap
            let begun = e.cmp(Cmp::Ne, found, old);
            e.if_(begun, |e| {
                let weight = e.weight();
                e.atomic_add(cell, weight);
            });
        },
        |e| {
            let weight = e.weight();
            e.atomic_add(cell, weight);
        },
    );
}

/// The counts of the last nonempty intervals, by number and bucket.
fn columns(agg: &Agg, slots: &[&[u8]]) -> BTreeMap<u64, BTreeMap<u32, u64>> {
    let form = form(&agg.params).unwrap_or(EMPTY);
    let mut found: BTreeMap<u64, BTreeMap<u32, u64>> = BTreeMap::new();
    let end = slots.iter().map(|slot| super::word(slot, 0)).max().unwrap_or(0);
    for number in end.saturating_sub(form.count)..end {
        let (round, first) = (number / form.count, (number % form.count) as usize * form.buckets as usize);
        for bucket in 0..form.buckets {
            let of_lap = |cell: &u64| (cell ^ round << COUNT_BITS) <= MAX_COUNT;
            let cells = slots.iter().map(|slot| super::word(slot, 1 + first + bucket as usize)).filter(of_lap);
            let count = cells.fold(0u64, |n, cell| n.saturating_add(cell & MAX_COUNT));
            if count > 0 {
                found.entry(number).or_default().insert(bucket, count);
            }
        }
    }
    found
}

fn load(agg: &Agg, of: &AggregateState) -> Result<Vec<u64>, String> {
    let form = form(&agg.params).ok_or("there are no such parameters")?;
    let mut words = vec![0; 1 + form.cells() as usize];
    let columns = of.columns.as_ref().ok_or("`columns` is missing")?;
    let newest = columns.keys().next_back().copied();
    if let (Some(head), Some(newest)) = (words.first_mut(), newest) {
        *head = newest.checked_add(1).ok_or_else(|| format!("interval {newest} is in no time"))?;
    }
    for (number, buckets) in columns {
        if newest.is_some_and(|newest| newest - number >= form.count) {
            return Err(format!("interval {number} is not one of the last {}", form.count));
        }
        let (round, first) = (number / form.count, (number % form.count) * u64::from(form.buckets));
        for (bucket, count) in buckets {
            let cell = words.get_mut(1 + first as usize + *bucket as usize).filter(|_| *bucket < form.buckets);
            *cell.ok_or_else(|| format!("there is no bucket {bucket}"))? = match count {
                0..=MAX_COUNT => round << COUNT_BITS | count,
                _ => return Err(format!("{count} does not fit into {COUNT_BITS} bits")),
            };
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agg(count: i64) -> Agg {
        let params = vec![10, count, 0, 3, 1];
        let size = form(&params).unwrap().size();
        Agg { function: "heatmap".into(), signed: false, params, size }
    }

    fn slot(agg: &Agg, columns: &[(u64, &[(u32, u64)])]) -> Vec<u8> {
        let columns = columns.iter().map(|(n, of)| (*n, of.iter().copied().collect())).collect();
        let words = load(agg, &AggregateState { columns: Some(columns), ..AggregateState::default() }).unwrap();
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    fn merged(agg: &Agg, slots: &[&[u8]]) -> Vec<(u64, Vec<(u32, u64)>)> {
        columns(agg, slots).into_iter().map(|(n, of)| (n, of.into_iter().collect())).collect()
    }

    #[test]
    fn processors_merge() {
        let agg = agg(3);
        let (one, other) = (slot(&agg, &[(7, &[(0, 1), (4, 2)]), (8, &[(1, 3)])]), slot(&agg, &[(7, &[(4, 5)]), (9, &[(2, 1)])]));
        assert_eq!(merged(&agg, &[&one, &other]), [(7, vec![(0, 1), (4, 7)]), (8, vec![(1, 3)]), (9, vec![(2, 1)])]);
        assert_eq!(merged(&agg, &[&vec![0; agg.size as usize]]), []);
        assert_eq!(merged(&agg, &[]), []);
    }

    #[test]
    fn omits_cells_of_earlier_laps() {
        let agg = agg(3);
        // 7 and 10 share their cells, and so would 7 + 3 << 24
        let (old, new) = (slot(&agg, &[(7, &[(0, 1)]), (8, &[(1, 1)])]), slot(&agg, &[(10, &[(2, 1)])]));
        assert_eq!(merged(&agg, &[&old, &new]), [(8, vec![(1, 1)]), (10, vec![(2, 1)])]);
    }

    #[test]
    fn rejects_states_that_do_not_fit_a_slot() {
        let agg = agg(3);
        let load = |columns: &[(u64, u32, u64)]| {
            let columns = columns.iter().map(|(n, bucket, count)| (*n, BTreeMap::from([(*bucket, *count)]))).collect();
            super::load(&agg, &AggregateState { columns: Some(columns), ..AggregateState::default() })
        };
        assert!(load(&[(1, 0, 1), (4, 0, 1)]).unwrap_err().contains("not one of the last 3"));
        assert!(load(&[(1, 5, 1)]).unwrap_err().contains("no bucket 5"));
        assert!(load(&[(1, 0, 1 << 40)]).unwrap_err().contains("40 bits"));
        assert!(load(&[(u64::MAX, 0, 1)]).is_err());
        assert!(super::load(&agg, &AggregateState::default()).is_err());
    }

    #[test]
    fn parameters_are_bounded() {
        assert!(form(&[1, MAX_CELLS, 0]).is_none() && form(&[0, 1, 0]).is_none() && form(&[1, 1, 6]).is_none());
        assert!(form(&[SECOND, DEFAULT_COUNT, 0]).is_some_and(|form| form.size() <= 32 << 10));
    }
}
