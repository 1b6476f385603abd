//! The order of a map's entries, and the arguments of `print()` that change their numbers.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use super::decimal::{self, Fraction};
use crate::value::{FrameTable, MapView, Stack, Stats, Unit, Value};

/// Entries in the order of printing: ascending by the requested field, or by the aggregated value, or by key if the values
/// are not numbers; the last `top` of them (0: all). Equal entries are sorted by key, so the output is deterministic.
///
/// It does not apply `div`: see [`divide`]. Series ignore both.
pub fn sort_entries(view: &MapView) -> Vec<&(Value, Value)> {
    let by = view.show.by.as_deref();
    let mut sorted = sort(view, by);
    let first = view.entries.first().map(|(_, value)| value);
    let ignores_top = by.is_none() && matches!(first, Some(Value::Series(_)));
    let skip = match view.show.top {
        Some(top) if top > 0 && !ignores_top => sorted.len().saturating_sub(usize::try_from(top).unwrap_or(usize::MAX)),
        Some(_) | None => 0,
    };
    sorted.drain(..skip);
    sorted
}

/// Sorts entries by the weight of the value, if all have one, then by key.
fn sort<'a>(view: &'a MapView, by: Option<&str>) -> Vec<&'a (Value, Value)> {
    let weight = |(_, value): &(Value, Value)| weight(value, by);
    let bounds = view.entries.iter().try_fold((i128::MAX, i128::MIN), |(low, high), entry| {
        let weight = weight(entry)?;
        Some((low.min(weight), high.max(weight)))
    });
    let (low, high) = bounds.unwrap_or_default();
    let above = |entry: &(Value, Value)| bounds.and_then(|_| weight(entry)).unwrap_or(low).wrapping_sub(low) as u128;
    // the number of bits of a weight
    let weights = u128::BITS - (high.wrapping_sub(low) as u128).leading_zeros();
    let Some(room) = u64::BITS.checked_sub(weights) else {
        let mut weighed: Vec<(u128, &(Value, Value))> = view.entries.iter().map(|entry| (above(entry), entry)).collect();
        weighed.sort_by(|(wa, a), (wb, b)| wa.cmp(wb).then_with(|| compare(&a.0, &b.0)));
        return weighed.into_iter().map(|(_, entry)| entry).collect();
    };
    // The weight and the beginning of the key are one number: most comparisons read nothing else.
    let starts = Some(view).filter(|view| view.entries.len() >= MANY).and_then(|view| StackStarts::of(view, room));
    let number = |entry: &(Value, Value)| match &starts {
        Some(starts) => (above(entry) as u64).checked_shl(starts.size()).unwrap_or(0) | starts.number(&entry.0),
        None => above(entry) as u64,
    };
    let mut numbered: Vec<(u64, &(Value, Value))> = view.entries.iter().map(|entry| (number(entry), entry)).collect();
    // an unstable sort needs no memory; equal entries stay in their order
    let place = std::ptr::from_ref::<(Value, Value)>;
    numbered.sort_unstable_by(|(na, a), (nb, b)| na.cmp(nb).then_with(|| compare(&a.0, &b.0)).then_with(|| place(a).cmp(&place(b))));
    numbered.into_iter().map(|(_, entry)| entry).collect()
}

/// The number of entries from which on [`StackStarts`] are worth their cost.
const MANY: usize = 1000;

/// The beginnings of the stacks with which keys begin, as numbers in the order of [`compare`].
struct StackStarts<'a> {
    /// The table that most stacks share.
    table: &'a Arc<FrameTable>,
    /// The addresses of all frames, ascending. An address has a rank, which is above 0.
    addresses: Vec<u64>,
    /// The ranks of the table's frames.
    ranks: Vec<u32>,
    /// The number of bits of a rank.
    bits: u32,
    /// The ranks of the addresses with which all stacks begin that have their frames in the table. The others are few, such as
    /// those for lost stacks.
    same: Vec<u32>,
    /// The number of frames after these that a number has.
    frames: u32,
}

impl<'a> StackStarts<'a> {
    /// Numbers of at most this many bits. None if keys begin with something else, or stacks do not share their frames.
    fn of(view: &'a MapView, bits: u32) -> Option<Self> {
        let stacks = || view.entries.iter().map(|(key, _)| leading_stack(key));
        let table = stacks().flatten().map(|stack| stack.frames.numbers().0).find(|table| table.is_shared())?;
        let (mut used, mut addresses) = (vec![false; table.len()], Vec::new());
        for stack in stacks() {
            let stack = stack?;
            let (of, numbers) = stack.frames.numbers();
            if !Arc::ptr_eq(table, of) {
                addresses.extend(stack.frames.iter().map(|frame| frame.addr));
                continue;
            }
            for number in numbers.iter() {
                if !std::mem::replace(used.get_mut(number as usize)?, true) {
                    addresses.push(table.get(number).addr);
                }
            }
        }
        addresses.sort_unstable();
        addresses.dedup();
        let bits_of_rank = u32::BITS - u32::try_from(addresses.len()).ok()?.leading_zeros();
        let frames = bits.checked_div(bits_of_rank)?;
        let mut starts = Self { table, addresses, ranks: Vec::new(), bits: bits_of_rank, same: Vec::new(), frames };
        starts.ranks = (0..table.len() as u32).map(|number| starts.rank(table.get(number).addr)).collect();
        let mut sharing = stacks().flatten().filter(|stack| Arc::ptr_eq(table, stack.frames.numbers().0));
        let mut same: Vec<u32> = starts.ranks(sharing.next()?).collect();
        for stack in sharing {
            let len = same.iter().zip(starts.ranks(stack)).take_while(|(a, b)| *a == b).count();
            same.truncate(len);
        }
        Some(Self { same, ..starts })
    }

    /// The rank of an address, which is not less than those of lower ones.
    fn rank(&self, address: u64) -> u32 {
        self.addresses.partition_point(|other| *other < address) as u32 + 1
    }

    /// The ranks of the frames of a stack.
    fn ranks(&self, stack: &Stack) -> impl Iterator<Item = u32> {
        let (of, numbers) = stack.frames.numbers();
        let shares = Arc::ptr_eq(self.table, of);
        numbers.iter().map(move |number| match self.ranks.get(number as usize) {
            Some(rank) if shares => *rank,
            _ => self.rank(of.get(number).addr),
        })
    }

    /// The number of bits of a number.
    fn size(&self) -> u32 {
        self.bits * self.frames
    }

    fn number(&self, key: &Value) -> u64 {
        let Some(stack) = leading_stack(key) else { return 0 };
        let mut ranks = self.ranks(stack);
        for expected in &self.same {
            // the end of a stack is before all frames
            match ranks.next().unwrap_or(0).cmp(expected) {
                Ordering::Less => return 0,
                Ordering::Equal => {}
                // the greatest number
                Ordering::Greater => return u64::MAX.checked_shr(u64::BITS - self.size()).unwrap_or(0),
            }
        }
        (0..self.frames).fold(0, |all, _| all << self.bits | u64::from(ranks.next().unwrap_or(0)))
    }
}

/// The stack with which a key begins.
fn leading_stack(key: &Value) -> Option<&Stack> {
    if let Value::Tuple(parts) = key {
        return leading_stack(parts.first()?);
    }
    if let Value::Stack(stack) = key { Some(stack) } else { None }
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
            // stacks share their frames
            let [(table, a), (other, b)] = [x, y].map(|stack| stack.frames.numbers());
            let same = if Arc::ptr_eq(table, other) { a.iter().zip(b.iter()).take_while(|(a, b)| a == b).count() } else { 0 };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::value::{Frame, FramesBuilder, MapViewKind, ShowOptions, StackMode};

    /// Stacks of few frames, of which several have the same address, in a map with weights of this many bits.
    fn view(seed: u64, weights: u32, in_tuples: bool) -> MapView {
        let mut numbers = Random::new(seed);
        let mut random = |below: u64| numbers.below(below);
        let table = Arc::new(FrameTable::default());
        let mut all = FramesBuilder::new(Arc::clone(&table), 0);
        let numbers: Vec<u32> = (0..40).map(|_| all.push(Frame { addr: random(25) << random(60), ..Frame::default() })).collect();
        let mut entries = Vec::new();
        for _ in 0..3000 {
            let mut frames = FramesBuilder::new(Arc::clone(&table), 0);
            frames.push_number(numbers[0]);
            frames.push_number(numbers[1]);
            (0..random(30)).for_each(|_| frames.push_number(numbers[random(if weights == 0 { 2 } else { 40 }) as usize]));
            let stack = Value::Stack(Stack { mode: StackMode::Raw, kernel: false, frames: frames.finish() });
            let stack = match random(9) {
                0 => Value::Stack(Stack {
                    mode: StackMode::Raw,
                    kernel: false,
                    frames: (0..random(3)).map(|_| Frame { addr: random(25), ..Frame::default() }).collect(),
                }),
                _ => stack,
            };
            let key = if in_tuples { Value::Tuple(vec![stack, Value::Uint(random(3))]) } else { stack };
            let weight = if weights == 0 { 7 } else { random(4) << (weights - 2) };
            entries.push((key, Value::Uint(weight)));
        }
        MapView {
            name: "@".into(),
            kind: MapViewKind::Map,
            measures: false,
            keyed: true,
            set: true,
            entries,
            show: ShowOptions::default(),
            weights: None,
        }
    }

    #[test]
    fn numbers_of_stacks_have_the_order_of_stacks() {
        for (seed, weights) in [0, 2, 30, 58, 59, 63, 64].into_iter().enumerate() {
            for in_tuples in [false, true] {
                let view = view(seed as u64 + 1, weights, in_tuples);
                assert!(StackStarts::of(&view, 64 - weights).is_some());
                let mut expected: Vec<&(Value, Value)> = view.entries.iter().collect();
                expected.sort_by(|a, b| weight(&a.1, None).cmp(&weight(&b.1, None)).then_with(|| compare(&a.0, &b.0)));
                let sorted = sort_entries(&view);
                assert!(sorted.iter().zip(&expected).all(|(a, b)| std::ptr::eq(*a, *b)), "{weights} {in_tuples}");
                assert_eq!(sorted.len(), view.entries.len());
            }
        }
    }
}
