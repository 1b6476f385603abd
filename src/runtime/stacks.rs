//! Stacks by ID. Programs store them in tables of fixed size. Before a table is full, rbt copies its stacks to memory and
//! empties it, so the number of stacks in a run is not limited. An ID depends on the frames only, so a stack that recurs after
//! it was copied has the same ID.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use super::load::{Loaded, MapFd};
use super::maps;
use super::poll::MAX_WAIT;
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

/// A stack in memory.
struct StoredStack {
    /// See [`pack`].
    frames: Box<[u8]>,
    /// Milliseconds since [`Stacks::start`].
    stored_at: u32,
}

/// The stacks of a run.
pub(super) struct Stacks {
    /// Tables by limit.
    tables: BTreeMap<u32, MapFd>,
    /// Maps of the script that may hold stack ids.
    stack_maps: Vec<MapFd>,
    /// Stacks by limit and id.
    by_id: BTreeMap<u32, HashMap<u64, StoredStack, WordHash>>,
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
            by_id: loaded.stacks.keys().map(|limit| (*limit, HashMap::default())).collect(),
            start: Instant::now(),
            at: loaded.state.stacks(),
            capacity: if shared || capacity == 0 { u64::MAX } else { capacity },
            evict_above: MAX_STACKS,
        }
    }

    /// The frames' addresses.
    pub fn frames(&self, limit: u32, id: u64) -> Option<Vec<u64>> {
        match self.by_id.get(&limit).and_then(|stacks| stacks.get(&id)) {
            Some(taken) => Some(unpack(&taken.frames)),
            None => maps::stack(*self.tables.get(&limit)?, id),
        }
    }

    /// How long to wait at most until the next [`Stacks::make_room`]; `longest` if it has nothing to do.
    pub fn max_wait(&self, state: &Shared, longest: Duration) -> Duration {
        if self.capacity == u64::MAX {
            return longest;
        }
        let filling = state.stacks().wrapping_sub(self.at) > self.capacity / 4;
        if filling { WAIT_WHILE_FILLING } else { MAX_WAIT }
    }

    /// Makes room in the tables if it is time to. `idle`: all existing records have been processed.
    pub fn make_room(&mut self, state: &Shared, idle: bool) {
        let now = state.stacks();
        if now.wrapping_sub(self.at) < self.capacity {
            return;
        }
        self.at = now;
        let stored_at = self.start.elapsed().as_millis() as u32;
        for (limit, table) in &self.tables {
            let stacks = self.by_id.entry(*limit).or_default();
            // stacks that cannot be taken out stay, and new ones are counted as not kept
            let _ = maps::take_stacks(*table, |id, frames| {
                stacks.insert(id, StoredStack { frames: pack(&frames), stored_at });
            });
        }
        if idle && self.len() > self.evict_above {
            self.discard_unused();
        }
    }

    fn len(&self) -> usize {
        self.by_id.values().map(HashMap::len).sum()
    }

    /// Discards stacks that no map refers to. Every value that looks like an ID counts as one.
    fn discard_unused(&mut self) {
        let mut held: HashSet<u64, WordHash> = HashSet::default();
        for map in &self.stack_maps {
            let is_known = |id: &u64| self.by_id.values().any(|stacks| stacks.contains_key(id));
            let scanned = maps::scan(*map, |bytes| {
                held.extend(bytes.windows(8).filter_map(|w| Some(u64::from_ne_bytes(w.try_into().ok()?))).filter(is_known));
            });
            if scanned.is_err() {
                return;
            }
        }
        let now = self.start.elapsed().as_millis() as u32;
        let is_new = |taken: &StoredStack| u128::from(now.wrapping_sub(taken.stored_at)) < GRACE_PERIOD.as_millis();
        self.by_id.values_mut().for_each(|stacks| stacks.retain(|id, taken| held.contains(id) || is_new(taken)));
        self.evict_above = MAX_STACKS.max(self.len().saturating_mul(2));
    }
}

/// A stack in a third of its size: the differences between its addresses, as numbers of variable length.
fn pack(frames: &[u64]) -> Box<[u8]> {
    let (mut bytes, mut last) = (Vec::with_capacity(4 * frames.len()), 0u64);
    for frame in frames {
        let difference = frame.wrapping_sub(last) as i64;
        // the sign is the lowest bit
        let mut rest = (difference << 1 ^ difference >> 63) as u64;
        while rest >= 0x80 {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
        last = *frame;
    }
    bytes.into()
}

fn unpack(bytes: &[u8]) -> Vec<u64> {
    let (mut frames, mut last) = (Vec::with_capacity(bytes.len() / 2), 0u64);
    let (mut number, mut shift) = (0u64, 0);
    for byte in bytes {
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if *byte < 0x80 {
            last = last.wrapping_add(number >> 1 ^ (number & 1).wrapping_neg());
            frames.push(last);
            (number, shift) = (0, 0);
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_stacks_are_equal_and_small() {
        let edges = [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1, 0x7f, 0x80, 0x3fff, 0x4000];
        let all = edges.iter().flat_map(|x| edges.iter().flat_map(move |y| [*x, *y, x.wrapping_sub(*y)]));
        let all: Vec<u64> = all.collect();
        assert_eq!(unpack(&pack(&all)), all);
        assert!(unpack(&pack(&[])).is_empty());
        let near: Vec<u64> = (0..18).map(|i| 0x5555_5555_1234 + i * 0x777).collect();
        assert_eq!(unpack(&pack(&near)), near);
        assert!(pack(&near).len() <= 8 * near.len() / 3);
    }
}
