//! What was counted under each key since the series of a run began: exported counters do not go back when the script deletes
//! a key or clears a map, nor when a run continues an earlier one.
//!
//! Totals grow by what the contents of a map have grown since they were last read. Each map has `max_series` places for keys
//! that are exported individually; what is counted under all others is one sum, which never goes back either. A key that
//! is gone keeps its place and its total until another key needs the place, and all exporters have that total. It gets a
//! place again once all exporters have seen that its series ended, because the new series would else seem to continue the old one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use crate::builtins;
use crate::render::{LabelFormatter, Labels};
use crate::state::{AggregateState, Entry, Map, OtherKeys};
use crate::types::{Agg, Type};

/// A key that is absent because the map was cleared is gone after this time: Prometheus shows a series without samples
/// as long as that.
const MAX_ABSENCE: Duration = Duration::from_secs(300);

/// The totals, by map.
pub(super) struct Totals {
    /// Maximum number of keys of a map that are exported individually.
    max_keys: usize,
    began: Instant,
    formatter: LabelFormatter,
    maps: BTreeMap<usize, Sums>,
    /// The current reading by an exporter, or the next one.
    reading: Reading,
    /// The last reading whose data all exporters have, or later data.
    confirmed: Reading,
}

/// The number of a reading of all maps by an exporter, from 1.
pub(super) type Reading = u64;

#[derive(Default)]
struct Sums {
    /// The keys with a place, by their labels: keys with equal labels are one series.
    entries: BTreeMap<Labels, Kept>,
    /// The keys whose series ended, and the first reading without them.
    ended: BTreeMap<Labels, Reading>,
    /// The sum for all other keys.
    other: Option<AggregateState>,
    /// The contents of the map when they were last read, unless it was cleared since.
    last: BTreeMap<KeyId, (Labels, AggregateState)>,
}

/// What tells keys apart.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum KeyId {
    /// Its bytes, if its labels may change, for example when the name of a container becomes known.
    Bytes(Vec<u8>),
    Labels(Labels),
}

/// A key with a place.
struct Kept {
    /// The key with its total.
    entry: Entry,
    /// When it was last present, as a time since the totals began.
    present_at: Duration,
    /// The script has deleted it.
    is_deleted: bool,
    /// The first reading with its total.
    changed_in: Reading,
}

impl Totals {
    pub fn new(max_series: u64) -> Self {
        let max_keys = usize::try_from(max_series).unwrap_or(usize::MAX);
        Self { max_keys, began: Instant::now(), formatter: LabelFormatter::default(), maps: BTreeMap::new(), reading: 1, confirmed: 0 }
    }

    /// Begins a reading of all maps. All exporters have the data of the reading `confirmed`.
    pub fn begin_reading(&mut self, confirmed: Reading) {
        self.confirmed = confirmed;
    }

    /// Ends the reading, and returns its number.
    pub fn end_reading(&mut self) -> Reading {
        self.reading += 1;
        self.reading - 1
    }

    /// Adds the contents of a map that is about to be cleared.
    pub fn add_contents(&mut self, map: usize, mut contents: Map) {
        self.update(self.began.elapsed(), map, &mut contents, false);
        if let Some(sums) = self.maps.get_mut(&map) {
            sums.last.clear();
        }
    }

    /// Adds the totals of an earlier run. The series of keys that find no place end.
    pub fn add_earlier(&mut self, map: usize, earlier: Map) {
        let Map { key, value, entries, other, .. } = earlier;
        let Some(agg) = counter(&value) else { return };
        let (now, sums) = (self.began.elapsed(), self.maps.entry(map).or_default());
        for entry in entries {
            let labels = self.formatter.labels(key.is_some(), &entry.key);
            if sums.entries.contains_key(&labels) || sums.entries.len() < self.max_keys {
                sums.add(agg, labels, entry, Some((now, self.reading)));
            } else {
                sums.ended.insert(labels, self.reading);
            }
        }
        sums.other = added(agg, sums.other.take(), other.map(|other| other.counted));
    }

    /// Replaces the current contents of a map by the totals.
    pub fn replace(&mut self, map: usize, contents: &mut Map) {
        self.update(self.began.elapsed(), map, contents, true);
    }

    /// Does so at this time. Series end only if the totals are exported: one that ended and began again between two
    /// exports would seem to continue.
    fn update(&mut self, now: Duration, map: usize, contents: &mut Map, is_exported: bool) {
        let Map { key, value, entries, key_bytes, other, .. } = contents;
        let Some(agg) = counter(value) else { return };
        let sums = self.maps.entry(map).or_default();
        let mut key_bytes = std::mem::take(key_bytes).into_iter();
        let mut read: BTreeMap<KeyId, (Labels, Entry)> = BTreeMap::new();
        for entry in std::mem::take(entries) {
            let labels = self.formatter.labels(key.is_some(), &entry.key);
            let id = key_bytes.next().map_or_else(|| KeyId::Labels(labels.clone()), KeyId::Bytes);
            let counted = read.remove(&id).and_then(|(_, known)| known.counted);
            let counted = added(agg, counted, entry.counted);
            read.insert(id, (labels, Entry { counted, ..entry }));
        }
        let (mut last, mut present): (BTreeMap<KeyId, _>, BTreeMap<Labels, Entry>) = (BTreeMap::new(), BTreeMap::new());
        for (id, (labels, entry)) in read {
            let Some(counted) = entry.counted.clone() else { continue };
            let grown = match sums.last.get(&id) {
                Some((_, before)) if !has_fallen(agg, &counted, before) => counted.minus(before),
                _ => counted.clone(),
            };
            let known = present.remove(&labels).and_then(|known| known.counted);
            present.insert(labels.clone(), Entry { counted: added(agg, known, Some(grown)), ..entry });
            last.insert(id, (labels, counted));
        }
        let before: BTreeSet<&Labels> = sums.last.values().map(|(labels, _)| labels).collect();
        for (labels, kept) in &mut sums.entries {
            if present.contains_key(labels) {
                (kept.present_at, kept.is_deleted) = (now, false);
            } else {
                kept.is_deleted |= before.contains(labels);
            }
        }
        sums.ended.retain(|_, reading| *reading > self.confirmed);
        let mut gone = if is_exported { sums.gone(now, self.confirmed) } else { VecDeque::new() };
        let mut keys = 0;
        for (labels, grown) in present {
            let has_place = sums.entries.contains_key(&labels)
                || !sums.ended.contains_key(&labels) && (sums.entries.len() < self.max_keys || sums.remove_first(&mut gone, self.reading));
            keys += u64::from(!has_place);
            sums.add(agg, labels, grown, has_place.then_some((now, self.reading)));
        }
        sums.last = last;
        *entries = sums.entries.values().map(|kept| kept.entry.clone()).collect();
        *other = sums.other.clone().map(|counted| OtherKeys { counted, keys });
    }
}

impl Sums {
    /// Adds to a key with a place, at this time and for this reading, or to the sum of all others.
    fn add(&mut self, agg: &Agg, labels: Labels, grown: Entry, place: Option<(Duration, Reading)>) {
        let Some((present_at, changed_in)) = place else {
            self.other = added(agg, self.other.take(), grown.counted);
            return;
        };
        match self.entries.get_mut(&labels) {
            Some(kept) => {
                kept.entry.counted = added(agg, kept.entry.counted.take(), grown.counted);
                kept.changed_in = changed_in;
            }
            None => {
                self.entries.insert(labels, Kept { entry: grown, present_at, is_deleted: false, changed_in });
            }
        }
    }

    /// The keys whose places others may take, those that were present the longest time ago first.
    fn gone(&self, now: Duration, confirmed: Reading) -> VecDeque<Labels> {
        let is_gone = |kept: &Kept| kept.changed_in <= confirmed && (kept.is_deleted || now.saturating_sub(kept.present_at) > MAX_ABSENCE);
        let mut gone: Vec<(Duration, &Labels)> =
            self.entries.iter().filter(|(_, kept)| is_gone(kept)).map(|(labels, kept)| (kept.present_at, labels)).collect();
        gone.sort();
        gone.into_iter().map(|(_, labels)| labels.clone()).collect()
    }

    /// Ends the series of the first of these keys. Its total is not added to the sum of other keys: that would count it
    /// a second time in the increase over all series.
    fn remove_first(&mut self, gone: &mut VecDeque<Labels>, reading: Reading) -> bool {
        let Some(labels) = gone.pop_front() else { return false };
        let is_removed = self.entries.remove(&labels).is_some();
        self.ended.insert(labels, reading);
        is_removed
    }
}

/// The aggregation of a map whose values are exported as totals.
fn counter(value: &Type) -> Option<&Agg> {
    value.aggregation().filter(|agg| builtins::is_counter(agg))
}

/// Has a sum fallen? Then its key was deleted, and has come back.
fn has_fallen(agg: &Agg, now: &AggregateState, before: &AggregateState) -> bool {
    let of = |state: &AggregateState, bucket: u32| state.buckets.as_ref().and_then(|all| all.get(&bucket).copied()).unwrap_or(0);
    now.count < before.count
        || !agg.signed && now.sum < before.sum
        || before.buckets.iter().flatten().any(|(bucket, n)| of(now, *bucket) < *n)
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
    use crate::random::Random;
    use crate::value::Value;

    const SECOND: Duration = Duration::from_secs(1);

    fn count(n: u64) -> AggregateState {
        AggregateState { count: Some(n), ..AggregateState::default() }
    }

    fn map(contents: &BTreeMap<u64, u64>) -> Map {
        let agg = Agg { function: "count".into(), signed: false, params: Vec::new(), size: 8 };
        let entry = |(key, n): (&u64, &u64)| Entry { key: Value::Uint(*key), value: None, counted: Some(count(*n)) };
        Map::new("@", Some(Type::U64), Type::Agg(agg.into()), contents.iter().map(entry).collect())
    }

    fn ones(keys: std::ops::Range<u64>) -> BTreeMap<u64, u64> {
        keys.map(|key| (key, 1)).collect()
    }

    /// The count of each key, and that of all other keys with their number.
    type Shown = (BTreeMap<u64, u64>, Option<(u64, u64)>);

    /// What the only exporter reads, which has the data of its previous reading.
    fn shown(totals: &mut Totals, now: Duration, contents: &BTreeMap<u64, u64>) -> Shown {
        let confirmed = totals.reading - 1;
        read(totals, now, contents, confirmed)
    }

    fn read(totals: &mut Totals, now: Duration, contents: &BTreeMap<u64, u64>, confirmed: Reading) -> Shown {
        let mut now_there = map(contents);
        totals.begin_reading(confirmed);
        totals.update(now, 0, &mut now_there, true);
        totals.end_reading();
        let entry = |entry: Entry| {
            let Value::Uint(key) = entry.key else { panic!("{:?}", entry.key) };
            (key, entry.counted.unwrap().count.unwrap())
        };
        (now_there.entries.into_iter().map(entry).collect(), now_there.other.map(|other| (other.counted.count.unwrap(), other.keys)))
    }

    #[test]
    fn keys_keep_their_places_when_a_map_is_cleared() {
        let mut totals = Totals::new(2);
        let all = |all: &[(u64, u64)]| all.iter().copied().collect::<BTreeMap<_, _>>();
        // 7 is seen before the map is cleared
        assert_eq!(shown(&mut totals, SECOND, &ones(7..8)), (all(&[(7, 1)]), None));
        totals.add_contents(0, map(&all(&[(0, 1), (1, 1), (2, 1), (7, 1)])));
        assert_eq!(shown(&mut totals, SECOND, &ones(0..0)), (all(&[(0, 1), (7, 1)]), Some((2, 0))));
        totals.add_contents(0, map(&ones(100..1100)));
        assert_eq!(shown(&mut totals, SECOND, &ones(7..9)), (all(&[(0, 1), (7, 2)]), Some((1003, 1))));
        totals.add_contents(0, map(&ones(7..9)));
        assert_eq!(shown(&mut totals, SECOND, &ones(0..0)), (all(&[(0, 1), (7, 2)]), Some((1003, 0))));
        // a key that was absent for a long time leaves its place to another
        assert_eq!(shown(&mut totals, 2 * MAX_ABSENCE, &ones(20..22)), (all(&[(20, 1), (21, 1)]), Some((1003, 0))));
    }

    #[test]
    fn a_series_continues_when_its_key_returns_and_leaves_its_place_to_another() {
        let mut totals = Totals::new(2);
        let all = |all: &[(u64, u64)]| all.iter().copied().collect::<BTreeMap<_, _>>();
        assert_eq!(shown(&mut totals, SECOND, &all(&[(1, 801)])).0, all(&[(1, 801)]));
        assert_eq!(shown(&mut totals, 2 * SECOND, &all(&[])).0, all(&[(1, 801)]));
        assert_eq!(shown(&mut totals, 3 * SECOND, &all(&[(1, 4)])).0, all(&[(1, 805)]));
        // deleted and counted again since the last time
        assert_eq!(shown(&mut totals, 4 * SECOND, &all(&[(1, 2)])).0, all(&[(1, 807)]));
        assert_eq!(shown(&mut totals, 5 * SECOND, &all(&[(1, 3), (2, 1), (3, 10)])), (all(&[(1, 808), (2, 1)]), Some((10, 1))));
        // what was counted without a place stays where it was counted
        assert_eq!(shown(&mut totals, 6 * SECOND, &all(&[(2, 1), (3, 15)])), (all(&[(2, 1), (3, 5)]), Some((10, 0))));
        assert_eq!(shown(&mut totals, 7 * SECOND, &all(&[(2, 1), (4, 1)])), (all(&[(2, 1), (4, 1)]), Some((10, 0))));
    }

    /// Only what is counted after the name of a key has become known belongs to the series with the name.
    #[test]
    fn names_that_become_known_count_nothing_twice() {
        let mut totals = Totals::new(10);
        let mut read = |all: &[(u8, &str, u64)]| {
            let agg = Agg { function: "count".into(), signed: false, params: Vec::new(), size: 8 };
            let entry = |(_, name, n): &(u8, &str, u64)| Entry { key: Value::Text((*name).into()), value: None, counted: Some(count(*n)) };
            let mut map = Map::new("@", Some(Type::U64), Type::Agg(agg.into()), all.iter().map(entry).collect());
            map.key_bytes = all.iter().map(|(id, ..)| vec![*id]).collect();
            totals.begin_reading(0);
            totals.update(SECOND, 0, &mut map, true);
            totals.end_reading();
            let entry = |entry: Entry| {
                let Value::Text(name) = entry.key else { panic!("{:?}", entry.key) };
                (name, entry.counted.unwrap().count.unwrap())
            };
            map.entries.into_iter().map(entry).collect::<BTreeMap<String, u64>>()
        };
        let all = |all: &[(&str, u64)]| all.iter().map(|(name, n)| ((*name).to_string(), *n)).collect::<BTreeMap<_, _>>();
        assert_eq!(read(&[(1, "1d", 10), (2, "web", 5)]), all(&[("1d", 10), ("web", 5)]));
        // two keys of one name
        assert_eq!(read(&[(1, "web", 13), (2, "web", 5)]), all(&[("1d", 10), ("web", 8)]));
        assert_eq!(read(&[(1, "web", 13), (2, "web", 5)]), all(&[("1d", 10), ("web", 8)]));
        // another key keeps the name
        assert_eq!(read(&[(1, "api", 14), (2, "web", 5)]), all(&[("1d", 10), ("web", 8), ("api", 1)]));
        // one of two keys of a name is deleted
        assert_eq!(read(&[(1, "api", 14), (2, "api", 5)]).get("api"), Some(&1));
        assert_eq!(read(&[(1, "api", 14)]).get("api"), Some(&1));
    }

    #[test]
    fn churn_does_not_fill_the_combined_series() {
        let mut totals = Totals::new(100);
        for step in 0..1000 {
            let contents = ones(step * 10..step * 10 + 20);
            let (keys, other) = shown(&mut totals, SECOND * u32::try_from(step).unwrap(), &contents);
            assert!(other.is_none() && contents.keys().all(|key| keys.get(key) == Some(&1)), "{step}: {keys:?} {other:?}");
        }
        assert_eq!((totals.maps[&0].entries.len(), totals.maps[&0].last.len()), (100, 20));
    }

    /// What a receiver adds up: a series that falls or returns began at 0.
    #[derive(Default)]
    struct Receiver {
        last: BTreeMap<u64, u64>,
        sum: u64,
        other: u64,
        has: Reading,
    }

    impl Receiver {
        fn receive(&mut self, (found, other): Shown, reading: Reading) {
            for (key, n) in &found {
                let known = self.last.get(key).copied().unwrap_or(0);
                self.sum += if *n < known { *n } else { n - known };
            }
            (self.last, self.has) = (found, reading);
            self.other = other.map_or(self.other, |(n, _)| n);
        }
    }

    /// Two exporters read at different times, and one of them often cannot deliver: both receivers get all that was counted.
    #[test]
    fn series_end_when_all_exporters_have_their_totals() {
        for seed in 1u64..400 {
            let mut numbers = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut totals = Totals::new(1 + seed % 4);
            let (mut contents, mut truth) = (BTreeMap::new(), 0);
            let mut receivers = [Receiver::default(), Receiver::default()];
            for step in 0..300 {
                let now = SECOND * step * 10;
                let who = match numbers.below(10) {
                    0 => 0,
                    1 => 1,
                    2 => {
                        // no reader can know what it does not see
                        read(&mut totals, now, &contents, receivers[0].has.min(receivers[1].has));
                        contents.remove(&numbers.below(8));
                        read(&mut totals, now, &contents, receivers[0].has.min(receivers[1].has));
                        continue;
                    }
                    _ => {
                        let n = 1 + numbers.below(5);
                        *contents.entry(numbers.below(8)).or_default() += n;
                        truth += n;
                        continue;
                    }
                };
                let reading = totals.reading;
                let found = read(&mut totals, now, &contents, receivers[0].has.min(receivers[1].has));
                if who == 0 || numbers.below(3) > 0 {
                    receivers[who].receive(found, reading);
                    assert_eq!(receivers[who].sum + receivers[who].other, truth, "{seed}, step {step}, receiver {who}");
                }
            }
        }
    }

    /// Fewer places than in the run before: series end, but nothing is counted twice.
    #[test]
    fn series_without_a_place_end_with_their_run() {
        let mut totals = Totals::new(1);
        totals.add_earlier(0, map(&[(1, 5), (2, 3)].into()));
        assert_eq!(shown(&mut totals, SECOND, &[(2, 1)].into()), ([(1, 5)].into(), Some((1, 1))));
    }

    /// It may fall, so it is not a counter: it has the values that the map holds.
    #[test]
    fn a_signed_sum_is_what_the_map_holds() {
        let agg = Agg { function: "sum".into(), signed: true, params: Vec::new(), size: 8 };
        let mut totals = Totals::new(1);
        let contents = |sums: &[i128]| {
            let entry = |(key, sum): (u64, &i128)| Entry {
                key: Value::Uint(key),
                value: None,
                counted: Some(AggregateState { sum: Some(*sum), ..AggregateState::default() }),
            };
            Map::new("@", Some(Type::U64), Type::Agg(agg.clone().into()), (1..).zip(sums).map(entry).collect())
        };
        for sums in [&[5i128, 7][..], &[-3, 7], &[], &[4]] {
            let mut map = contents(sums);
            totals.replace(0, &mut map);
            let found: Vec<i128> = map.entries.iter().map(|entry| entry.counted.as_ref().unwrap().sum.unwrap()).collect();
            assert_eq!((found.as_slice(), map.other.is_some()), (sums, false));
            totals.add_contents(0, map);
            totals.add_earlier(0, contents(sums));
        }
    }

    #[test]
    fn histograms_continue() {
        let agg = Agg { function: "lhist".into(), signed: false, params: vec![0, 8, 2], size: 8 * 6 };
        let mut totals = Totals::new(10);
        let mut shown = |buckets: &[(u32, u64)]| {
            let state = AggregateState { buckets: Some(buckets.iter().copied().collect()), ..AggregateState::default() };
            let entry = Entry { key: Value::Uint(1), value: None, counted: Some(state) };
            let mut map = Map::new("@", Some(Type::U64), Type::Agg(agg.clone().into()), vec![entry]);
            totals.replace(0, &mut map);
            let counted = map.entries[0].counted.clone().unwrap();
            counted.buckets.unwrap().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(shown(&[(1, 2), (3, 4)]), [(1, 2), (3, 4)]);
        assert_eq!(shown(&[(1, 3), (3, 4)]), [(1, 3), (3, 4)]);
        // one bucket shows that the key was deleted
        assert_eq!(shown(&[(1, 9), (3, 1)]), [(1, 12), (3, 5)]);
    }

    /// Random sequences of what scripts and users do. The map is read before and after a change that removes counts,
    /// because no reader can know what it does not see.
    #[test]
    fn exported_counters_equal_what_was_counted() {
        for (seed, max_series, keys) in (1u64..300).map(|seed| (seed, [3, 10, 50][seed as usize % 3], 1 + seed % 20)) {
            let mut numbers = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut totals = Totals::new(max_series);
            let (mut contents, mut truth) = (BTreeMap::new(), BTreeMap::new());
            let (mut before, mut increases): (Shown, BTreeMap<u64, u64>) = Default::default();
            let mut other_before = 0;
            let mut look = |totals: &mut Totals, now, contents: &BTreeMap<u64, u64>, truth: &BTreeMap<u64, u64>| {
                let (found, other) = shown(totals, now, contents);
                assert!(found.len() <= max_series as usize);
                for (key, n) in &found {
                    let known = before.0.get(key).copied();
                    assert!(known.unwrap_or(0) <= *n, "{seed}: {key} fell from {known:?} to {n}");
                    *increases.entry(*key).or_default() += n - known.unwrap_or(0);
                }
                let other = other.map_or(0, |(n, _)| n);
                assert!(other >= other_before, "{seed}: the combined series fell from {other_before} to {other}");
                other_before = other;
                // places suffice: nothing is combined, and nothing ends
                if keys <= max_series {
                    assert_eq!((&found, other), (truth, 0), "{seed}");
                }
                assert_eq!(increases.values().sum::<u64>() + other, truth.values().sum::<u64>(), "{seed}");
                before.0 = found;
            };
            for step in 0..200 {
                let now = SECOND * step * 10;
                match numbers.below(12) {
                    0 => {
                        look(&mut totals, now, &contents, &truth);
                        contents.remove(&numbers.below(keys));
                        look(&mut totals, now, &contents, &truth);
                    }
                    // deleted and counted again
                    1 => {
                        look(&mut totals, now, &contents, &truth);
                        let key = numbers.below(keys);
                        if contents.get(&key).is_some_and(|n| *n > 1) {
                            contents.insert(key, 1);
                            *truth.entry(key).or_default() += 1;
                        }
                        look(&mut totals, now, &contents, &truth);
                    }
                    2 => {
                        totals.add_contents(0, map(&contents));
                        contents.clear();
                    }
                    3 => {
                        totals.add_contents(0, map(&contents));
                        contents.values_mut().for_each(|n| *n = 0);
                    }
                    // the run is replaced
                    4 => {
                        look(&mut totals, now, &contents, &truth);
                        let mut last = map(&contents);
                        totals.begin_reading(0);
                        totals.update(now, 0, &mut last, true);
                        totals = Totals::new(max_series);
                        totals.add_earlier(0, last);
                        contents.clear();
                    }
                    5 => look(&mut totals, now, &contents, &truth),
                    _ => {
                        let (key, n) = (numbers.below(keys), 1 + numbers.below(5));
                        *contents.entry(key).or_default() += n;
                        *truth.entry(key).or_default() += n;
                    }
                }
            }
            look(&mut totals, SECOND * 2000, &contents, &truth);
        }
    }
}
