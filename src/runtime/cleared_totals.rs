//! The contents of maps when they were cleared, so that counters do not go back while the state is exported.
//!
//! A script may clear a map whose keys never recur, so each map has a limit: the first `max_series` keys are kept
//! individually, and the values of all others are combined into one sum. The choice is final, because a counter that
//! moved into the sum would go back.

use std::collections::BTreeMap;

use crate::builtins;
use crate::state::{AggregateState, Entry, Map, OtherKeys};
use crate::types::{Agg, Type};

/// The totals, by map.
pub(super) struct ClearedTotals {
    /// Maximum number of keys of a map that are kept individually.
    max_keys: usize,
    maps: BTreeMap<usize, Sums>,
}

#[derive(Default)]
struct Sums {
    entries: BTreeMap<String, Kept>,
    /// The sum for all other keys.
    other: Option<AggregateState>,
}

/// A key that is kept individually.
#[derive(Default)]
struct Kept {
    /// None if the map was not cleared since the key was seen.
    total: Option<Entry>,
    /// Its value with the current contents, within [`ClearedTotals::add_to`].
    now: Option<Entry>,
}

impl ClearedTotals {
    pub fn new(max_series: u64) -> Self {
        Self { max_keys: usize::try_from(max_series).unwrap_or(usize::MAX), maps: BTreeMap::new() }
    }

    /// Adds the contents of a map that is about to be cleared.
    pub fn add_contents(&mut self, map: usize, contents: Map) {
        let Some(agg) = adds(&contents.value) else { return };
        let sums = self.maps.entry(map).or_default();
        for entry in contents.entries {
            match sums.find(&entry, self.max_keys) {
                Some(kept) => kept.total = Some(sum(agg, kept.total.take(), entry)),
                None => sums.other = added(agg, sums.other.take(), entry.counted),
            }
        }
        sums.other = added(agg, sums.other.take(), contents.other.map(|other| other.counted));
    }

    /// Adds the previous contents of a map to its current ones.
    pub fn add_to(&mut self, map: usize, contents: &mut Map) {
        let Map { value, entries, .. } = contents;
        let Some(agg) = adds(value) else { return };
        let sums = self.maps.entry(map).or_default();
        let (mut other, mut keys) = (sums.other.clone(), 0);
        for entry in std::mem::take(entries) {
            match sums.find(&entry, self.max_keys) {
                Some(kept) => kept.now = Some(sum(agg, kept.total.clone(), entry)),
                None => (other, keys) = (added(agg, other, entry.counted), keys + 1),
            }
        }
        *entries = sums.entries.values_mut().filter_map(|kept| kept.now.take().or_else(|| kept.total.clone())).collect();
        contents.other = other.map(|counted| OtherKeys { counted, keys });
    }
}

impl Sums {
    /// The entry of a key that is kept individually.
    fn find(&mut self, entry: &Entry, max_keys: usize) -> Option<&mut Kept> {
        let (id, has_room) = (id(entry), self.entries.len() < max_keys);
        if has_room { Some(self.entries.entry(id).or_default()) } else { self.entries.get_mut(&id) }
    }
}

fn id(entry: &Entry) -> String {
    serde_json::to_string(&entry.key).unwrap_or_default()
}

/// The aggregation of a map whose values are sums.
fn adds(value: &Type) -> Option<&Agg> {
    let agg = value.aggregation()?;
    builtins::aggregate(&agg.function).is_some_and(|(_, row)| row.state_codec.is_additive).then_some(agg)
}

fn sum(agg: &Agg, known: Option<Entry>, entry: Entry) -> Entry {
    let counted = added(agg, known.and_then(|known| known.counted), entry.counted);
    Entry { counted, ..entry }
}

/// A sum that does not fit is reset, as Prometheus expects of a counter.
fn added(agg: &Agg, known: Option<AggregateState>, counted: Option<AggregateState>) -> Option<AggregateState> {
    match (known, counted) {
        (Some(known), Some(counted)) => Some(builtins::add(agg, &known, &counted).unwrap_or(counted)),
        (known, counted) => known.or(counted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    fn map(keys: std::ops::Range<u64>) -> Map {
        let agg = Agg { function: "count".into(), signed: false, params: Vec::new(), size: 8 };
        let counted = || Some(AggregateState { count: Some(1), ..AggregateState::default() });
        let entries = keys.map(|key| Entry { key: Value::Uint(key), value: None, counted: counted() }).collect();
        let value = Type::Agg(agg.into());
        Map { name: "@".into(), key: Some(Type::U64), value, set: true, adds: false, emptied: 0, cleared: false, entries, other: None }
    }

    /// The count of each key, and that of all other keys with their number.
    type Shown = (Vec<(Value, Option<u64>)>, Option<(Option<u64>, u64)>);

    fn shown(cleared: &mut ClearedTotals, keys: std::ops::Range<u64>) -> Shown {
        let mut now = map(keys);
        cleared.add_to(0, &mut now);
        let entries = now.entries.into_iter().map(|entry| (entry.key, entry.counted.and_then(|counted| counted.count)));
        (entries.collect(), now.other.map(|other| (other.counted.count, other.keys)))
    }

    #[test]
    fn keys_seen_before_clearing_stay_separate() {
        let mut cleared = ClearedTotals::new(2);
        let one = |key, n| (Value::Uint(key), Some(n));
        // 7 is seen before the map is cleared
        assert_eq!(shown(&mut cleared, 7..8), (vec![one(7, 1)], None));
        cleared.add_contents(0, map(0..5));
        assert_eq!(shown(&mut cleared, 0..0), (vec![one(0, 1)], Some((Some(4), 0))));
        cleared.add_contents(0, map(100..1100));
        assert_eq!(shown(&mut cleared, 7..9), (vec![one(0, 1), one(7, 1)], Some((Some(1005), 1))));
        cleared.add_contents(0, map(7..9));
        assert_eq!(shown(&mut cleared, 0..0), (vec![one(0, 1), one(7, 1)], Some((Some(1005), 0))));
        assert_eq!(cleared.maps[&0].entries.len(), 2);
    }
}
