//! The state of a run: the contents of its maps, without loss.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;

use super::context::RunContext;
use super::load::MapFd;
use super::maps;
use crate::host::Host;
use crate::state::{Map, State};

impl RunContext<'_> {
    /// Completes the state of a run that is over.
    pub(super) fn state(&mut self, mut state: Box<State>, not_attached: &BTreeSet<String>) -> anyhow::Result<Box<State>> {
        let saved = std::mem::take(&mut self.final_contents);
        let (emptied, cleared) = (saved.clear_count(), saved.cleared());
        state.maps = saved.contents(|map| {
            let (_, fd) = self.map_at(map)?;
            self.saved_at(map, fd)
        })?;
        for (index, (emptied, cleared)) in emptied.into_iter().zip(cleared).enumerate() {
            let in_part = cleared && self.is_shown_in_part(index)?;
            if let Some(map) = state.maps.get_mut(index) {
                (map.emptied, map.cleared, map.shown_in_part) = (emptied, cleared, in_part);
            }
        }
        state.end_ns = now();
        state.boot_ns = self.boot_to_unix_ns;
        state.probes.clone_from(&self.counts);
        state.not_attached = not_attached.iter().cloned().collect();
        state.printed = std::mem::take(&mut self.printed);
        state.prints_maps = self.settings.print_maps_on_exit;
        Ok(state)
    }

    /// Did `end` print elements of this map that it cleared, or does the run print the zeros that are left, but nobody the map?
    fn is_shown_in_part(&mut self, index: usize) -> anyhow::Result<bool> {
        let row = self.manifest.maps.get(index).context("no such map in the manifest")?;
        if self.printed.iter().any(|printed| printed.map == row.name) {
            return Ok(false);
        }
        let prints_rest = self.settings.print_maps_on_exit && !self.cleared_at_end.contains(&index);
        let rest = self.map(index)?;
        Ok(row.read_at_end || prints_rest && rest.set && !rest.entries.is_empty())
    }

    /// Called before a map is cleared, of which this is the copy in use: keeps what a state or a scrape needs.
    pub(super) fn save(&mut self, map: usize, fd: MapFd) -> anyhow::Result<()> {
        let (mut saved, in_end) = (std::mem::take(&mut self.final_contents), self.in_end);
        let done = saved.emptied(map, in_end, || self.saved_at(map, fd));
        self.final_contents = saved;
        done?;
        self.read_map(map, fd)
    }

    pub(super) fn saved_at(&mut self, map: usize, fd: MapFd) -> anyhow::Result<Map> {
        let manifest = self.manifest;
        let row = manifest.maps.get(map).context("no such map in the manifest")?;
        let mut saved = maps::saved(row, fd, self)?;
        saved.set = saved.set || self.other_is_set(map);
        saved.weights = self.weights(row);
        if self.cleared_at_end.contains(&map) {
            saved.entries.clear();
        }
        Ok(saved)
    }
}

/// Nanoseconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}
