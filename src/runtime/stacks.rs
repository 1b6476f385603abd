//! Stacks by ID. Programs store them in tables of fixed size. Before a table is full, rbt copies its stacks to memory and
//! empties it, so the number of stacks in a run is not limited. An ID depends on the frames only, so a stack that recurs after
//! it was copied has the same ID.

use std::collections::{BTreeMap, HashSet};
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use super::load::{Loaded, MapFd};
use super::maps;
use super::shared::Shared;
use super::word_hash::WordHash;
use crate::codegen::artifact::Manifest;
use crate::types::Type;

/// Number of stacks in memory before unused ones are discarded.
const MAX_STACKS: usize = 1 << 16;
/// The interval between two checks while a table fills up.
const WAIT_WHILE_FILLING: Duration = Duration::from_millis(10);
/// The maximum time that a program may take from finding a stack in its table to storing its id in a map or a record.
const GRACE_PERIOD: Duration = Duration::from_secs(2);

/// The stacks of a run.
pub(super) struct Stacks {
    /// Tables by limit.
    tables: BTreeMap<u32, MapFd>,
    /// Maps of the script that may hold stack ids.
    stack_maps: Vec<MapFd>,
    /// Stacks by limit and id.
    by_id: BTreeMap<u32, KeptStacks>,
    start: Instant,
    /// The counters of [`Shared::stacks`] when the tables were last emptied, and the number of further stacks until the
    /// next time.
    at: u64,
    capacity: u64,
    /// See [`MAX_STACKS`].
    evict_above: usize,
}

impl Stacks {
    /// `shared`: other runs use the same tables, so nothing is removed from them.
    pub fn new(loaded: &Loaded, manifest: &Manifest, shared: bool) -> Self {
        let of_map = |(i, map): (usize, &crate::codegen::artifact::Map)| {
            let deferred = |ty: &Type| ty.contains_deferred(&|_| true);
            let holds = deferred(&map.value) || map.key.as_ref().is_some_and(deferred);
            let both = [loaded.maps.get(i).copied(), loaded.second_copies.get(i).copied().flatten()];
            if holds { both } else { [None, None] }
        };
        let capacity = loaded.stacks.values().map(|t| u64::from(t.max_entries) / 2).min().unwrap_or(0);
        Self {
            tables: loaded.stacks.clone(),
            stack_maps: manifest.maps.iter().enumerate().flat_map(of_map).flatten().collect(),
            by_id: loaded.stacks.keys().map(|limit| (*limit, KeptStacks::default())).collect(),
            start: Instant::now(),
            at: loaded.state.stacks(),
            capacity: if shared || capacity == 0 { u64::MAX } else { capacity },
            evict_above: MAX_STACKS,
        }
    }

    /// The frames' addresses.
    pub fn frames(&self, limit: u32, id: u64) -> Option<Vec<u64>> {
        match self.by_id.get(&limit).and_then(|stacks| stacks.get(id)) {
            Some(frames) => Some(frames),
            None => maps::stack(*self.tables.get(&limit)?, id),
        }
    }

    /// How long to wait at most until the next [`Stacks::make_room`]; `longest` if it has nothing to do. A program tells when the
    /// tables begin to fill up.
    pub fn max_wait(&self, state: &Shared, longest: Duration) -> Duration {
        if self.capacity == u64::MAX {
            return longest;
        }
        let some = self.at.saturating_add(self.capacity / 4);
        state.await_stacks(some);
        // read after this was set, so that none is missed
        if state.stacks() >= some { WAIT_WHILE_FILLING } else { longest }
    }

    /// Makes room in the tables if it is time to. `idle`: all existing records have been processed.
    pub fn make_room(&mut self, state: &Shared, idle: bool) {
        let now = state.stacks();
        if now.wrapping_sub(self.at) < self.capacity {
            return;
        }
        self.at = now;
        let now = self.since_start();
        for (limit, table) in &self.tables {
            let stacks = self.by_id.entry(*limit).or_default();
            // stacks that cannot be taken out stay, and new ones are counted as not kept
            let _ = maps::take_stacks(*table, |id, frames| stacks.insert(id, &frames, now));
        }
        if idle && self.len() > self.evict_above {
            self.discard_unused();
        }
    }

    fn len(&self) -> usize {
        self.by_id.values().map(|stacks| stacks.len).sum()
    }

    /// In milliseconds; it starts again after 49 days.
    fn since_start(&self) -> u32 {
        self.start.elapsed().as_millis() as u32
    }

    /// Discards stacks that no map refers to. Every value that looks like an ID counts as one.
    fn discard_unused(&mut self) {
        let mut held: HashSet<u64, WordHash> = HashSet::default();
        for map in &self.stack_maps {
            let is_known = |id: &u64| self.by_id.values().any(|stacks| stacks.find(*id).is_some());
            let scanned = maps::scan(*map, |bytes| {
                held.extend(bytes.windows(8).filter_map(|w| Some(u64::from_ne_bytes(w.try_into().ok()?))).filter(is_known));
            });
            if scanned.is_err() {
                return;
            }
        }
        let now = self.since_start();
        let is_new = |stored_at: u32| u128::from(now.wrapping_sub(stored_at)) < GRACE_PERIOD.as_millis();
        self.by_id.values_mut().for_each(|stacks| stacks.retain(|id, stored_at| held.contains(&id) || is_new(stored_at)));
        self.evict_above = MAX_STACKS.max(self.len().saturating_mul(2));
    }
}

/// Stacks of one table. Each takes its difference from an address to the next, as numbers of variable length, in an array that all
/// share: a million of 18 frames take 70 MB.
#[derive(Default)]
struct KeptStacks {
    /// A hash table by ID, whose length is a power of two. An element is zero, or the place of a stack in `bytes`, with half of the
    /// hash in its upper half. So neither a search nor a longer table reads other stacks.
    index: Vec<u64>,
    /// The number of stacks.
    len: usize,
    hash: WordHash,
    /// An unused byte. Then, for each stack, its ID, when it was stored, the number of frames, and the differences.
    bytes: Vec<u8>,
}

/// Bytes of an ID and of a time.
const ID: usize = size_of::<u64>();
const TIME: usize = size_of::<u32>();

/// The shortest hash table.
const MIN_LEN: usize = 64;

impl KeptStacks {
    /// Adds a stack, or notes that it was stored again. `now`: milliseconds since [`Stacks::start`].
    fn insert(&mut self, id: u64, frames: &[u64], now: u32) {
        let place = match self.find(id) {
            Some(place) => place,
            None => {
                // an unused byte, because zero is no place; stacks beyond the first 4 GiB are not kept
                self.bytes.resize(self.bytes.len().max(1), 0);
                let Ok(place) = u32::try_from(self.bytes.len()) else { return };
                self.add(id, place);
                self.bytes.extend(id.to_le_bytes());
                self.bytes.extend([0; TIME]);
                write_number(&mut self.bytes, frames.len() as u64);
                let mut last = 0u64;
                for frame in frames {
                    let difference = frame.wrapping_sub(last) as i64;
                    // the sign is the lowest bit
                    write_number(&mut self.bytes, (difference << 1 ^ difference >> 63) as u64);
                    last = *frame;
                }
                place
            }
        };
        if let Some(time) = self.bytes.get_mut(place as usize + ID..).and_then(<[u8]>::first_chunk_mut) {
            *time = now.to_le_bytes();
        }
    }

    fn get(&self, id: u64) -> Option<Vec<u64>> {
        let (_, _, mut bytes) = self.head(self.find(id)?)?;
        let count = usize::try_from(read_number(&mut bytes)?).ok()?;
        // each has a byte at least
        let mut frames = Vec::with_capacity(count.min(bytes.len()));
        let mut last = 0u64;
        for _ in 0..count {
            let number = read_number(&mut bytes)?;
            last = last.wrapping_add(number >> 1 ^ (number & 1).wrapping_neg());
            frames.push(last);
        }
        Some(frames)
    }

    /// The place of a stack.
    fn find(&self, id: u64) -> Option<u32> {
        let hash = self.hash.hash_one(id) as u32;
        let elements = self.probe(hash).map_while(|at| self.index.get(at).copied().filter(|element| *element > 0));
        let mut places = elements.filter(|element| (*element >> u32::BITS) as u32 == hash).map(|element| element as u32);
        places.find(|place| self.head(*place).is_some_and(|(of, ..)| of == id))
    }

    /// Where elements with this hash may be in the table, in order.
    fn probe(&self, hash: u32) -> impl Iterator<Item = usize> + use<> {
        let len = self.index.len();
        (0..len).map(move |step| (hash as usize).wrapping_add(step) & (len - 1))
    }

    /// Adds a stack to the table, which has none of this ID.
    fn add(&mut self, id: u64, place: u32) {
        self.len += 1;
        // less than three quarters of the table are in use, so that a search is short
        if self.len * 4 > self.index.len() * 3 {
            let longer = vec![0; (self.index.len() * 2).max(MIN_LEN)];
            let old = std::mem::replace(&mut self.index, longer);
            old.into_iter().filter(|element| *element > 0).for_each(|element| self.add_element(element));
        }
        let hash = self.hash.hash_one(id) as u32;
        self.add_element(u64::from(hash) << u32::BITS | u64::from(place));
    }

    fn add_element(&mut self, element: u64) {
        let empty = self.probe((element >> u32::BITS) as u32).find(|at| self.index.get(*at) == Some(&0));
        if let Some(to) = empty.and_then(|at| self.index.get_mut(at)) {
            *to = element;
        }
    }

    /// The ID and the time of a stack, and what follows them.
    fn head(&self, place: u32) -> Option<(u64, u32, &[u8])> {
        let (id, rest) = self.bytes.get(place as usize..)?.split_first_chunk()?;
        let (time, rest) = rest.split_first_chunk()?;
        Some((u64::from_le_bytes(*id), u32::from_le_bytes(*time), rest))
    }

    /// Keeps some stacks, by ID and the time when they were stored.
    fn retain(&mut self, keeps: impl Fn(u64, u32) -> bool) {
        let old = std::mem::take(self);
        let mut place = 1;
        while let Some((id, time, mut rest)) = old.head(place) {
            let frames = read_number(&mut rest).unwrap_or(0);
            (0..frames).for_each(|_| _ = read_number(&mut rest));
            let end = old.bytes.len() - rest.len();
            if keeps(id, time) {
                self.bytes.resize(self.bytes.len().max(1), 0);
                self.add(id, self.bytes.len() as u32);
                self.bytes.extend(old.bytes.get(place as usize..end).unwrap_or_default());
            }
            place = end as u32;
        }
    }
}

/// Appends a number: seven bits in each byte, the lowest first.
fn write_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads a number and moves `bytes` behind it.
#[inline]
fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let (mut number, mut shift) = (0u64, 0u32);
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        shift += 7;
        if *byte < 0x80 {
            return Some(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_stacks_are_equal_and_small() {
        let edges = [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1, 0x7f, 0x80, 0x3fff, 0x4000];
        let far: Vec<u64> = edges.iter().flat_map(|x| edges.iter().flat_map(move |y| [*x, *y, x.wrapping_sub(*y)])).collect();
        let near = |n: u64| (0..18).map(|i| 0x5555_5555_1234 + n + i * 0x777).collect::<Vec<u64>>();
        let mut stacks = KeptStacks::default();
        assert_eq!(stacks.get(1), None);
        stacks.insert(1, &far, 5);
        stacks.insert(2, &[], 5);
        for n in 3..1000 {
            stacks.insert(n, &near(n), 5);
        }
        stacks.insert(7, &near(7), 6);
        let most = stacks.bytes.len();
        assert!(most <= 58 * stacks.len, "{most}");
        assert_eq!((stacks.get(1), stacks.get(2)), (Some(far.clone()), Some(Vec::new())));
        assert!((3..1000).all(|n| stacks.get(n) == Some(near(n))));
        stacks.retain(|id, time| id < 3 || time == 6 || id == 900);
        assert_eq!(stacks.len, 4);
        assert!(stacks.bytes.len() < most / 10);
        assert_eq!((stacks.get(1), stacks.get(2), stacks.get(7)), (Some(far), Some(Vec::new()), Some(near(7))));
        assert_eq!((stacks.get(900), stacks.get(901)), (Some(near(900)), None));
        stacks.insert(901, &near(1), 7);
        assert_eq!(stacks.get(901), Some(near(1)));
    }
}
