//! Stacks by ID. Programs store them in tables of fixed size. Before a table is full, rbt copies its stacks to memory and
//! empties it, so the number of stacks in a run is not limited. An ID depends on the frames only, so a stack that recurs after
//! it was copied has the same ID.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use super::load::{Loaded, MapFd};
use super::maps;
use super::poll::MAX_WAIT;
use super::shared::Shared;
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
    frames: Box<[u64]>,
    stored_at: Instant,
}

/// The stacks of a run.
pub(super) struct Stacks {
    /// Tables by limit.
    tables: BTreeMap<u32, MapFd>,
    /// Maps of the script that may hold stack ids.
    stack_maps: Vec<MapFd>,
    /// Stacks by limit and id.
    by_id: HashMap<(u32, u64), StoredStack>,
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
            by_id: HashMap::new(),
            at: loaded.state.stacks(),
            capacity: if shared || capacity == 0 { u64::MAX } else { capacity },
            evict_above: MAX_STACKS,
        }
    }

    /// The frames' addresses.
    pub fn frames(&self, limit: u32, id: u64) -> Option<Vec<u64>> {
        match self.by_id.get(&(limit, id)) {
            Some(taken) => Some(taken.frames.to_vec()),
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
        let when = Instant::now();
        for (limit, table) in &self.tables {
            // stacks that cannot be taken out stay, and new ones are counted as not kept
            let _ = maps::take_stacks(*table, |id, frames| {
                self.by_id.insert((*limit, id), StoredStack { frames: frames.into(), stored_at: when });
            });
        }
        if idle && self.by_id.len() > self.evict_above {
            self.discard_unused();
        }
    }

    /// Discards stacks that no map refers to. Every value that looks like an ID counts as one.
    fn discard_unused(&mut self) {
        let ids: HashSet<u64> = self.by_id.keys().map(|(_, id)| *id).collect();
        let mut held = HashSet::new();
        for map in &self.stack_maps {
            let scanned = maps::scan(*map, |bytes| {
                held.extend(bytes.windows(8).filter_map(|w| Some(u64::from_ne_bytes(w.try_into().ok()?))).filter(|id| ids.contains(id)));
            });
            if scanned.is_err() {
                return;
            }
        }
        self.by_id.retain(|(_, id), taken| held.contains(id) || taken.stored_at.elapsed() < GRACE_PERIOD);
        self.evict_above = MAX_STACKS.max(self.by_id.len().saturating_mul(2));
    }
}
