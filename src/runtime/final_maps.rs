//! Keeps the contents of maps for expectations and for a state, even if the script clears the maps at the end.

use anyhow::Context;

use crate::codegen::artifact::Manifest;

/// The contents that are kept of each map.
pub(super) struct FinalMaps<T> {
    rows: Vec<Row<T>>,
}

struct Row<T> {
    /// Index in the manifest.
    map: usize,
    /// How often it was cleared before the end.
    clear_count: u64,
    /// Its contents before `end` cleared it.
    contents: Option<T>,
}

impl<T> Default for FinalMaps<T> {
    fn default() -> Self {
        Self { rows: Vec::new() }
    }
}

impl<T> FinalMaps<T> {
    /// Keeps the contents of these maps, in this order.
    pub fn new(manifest: &Manifest, names: &[String]) -> Self {
        let index = |name: &String| manifest.maps.iter().position(|m| m.name == *name);
        let rows = names.iter().filter_map(index).map(|map| Row { map, clear_count: 0, contents: None }).collect();
        Self { rows }
    }

    /// Keeps the contents of a map that is about to be cleared; `read` returns them. If the run is `ending`, `end` has
    /// run, and maps that are cleared then were only shown before.
    pub fn emptied(&mut self, map: usize, ending: bool, read: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<()> {
        let Some(row) = self.rows.iter_mut().find(|row| row.map == map) else { return Ok(()) };
        if !ending {
            row.clear_count += 1;
        } else if row.contents.is_none() {
            // only the first time: later the map is already empty
            row.contents = Some(read().context("keeping a map")?);
        }
        Ok(())
    }

    /// Has `end` cleared this map?
    pub fn is_cleared(&self, map: usize) -> bool {
        self.rows.iter().any(|row| row.map == map && row.contents.is_some())
    }

    /// Was each map cleared at the end?
    pub fn cleared(&self) -> Vec<bool> {
        self.rows.iter().map(|row| row.contents.is_some()).collect()
    }

    /// How often each map was cleared before the end.
    pub fn clear_count(&self) -> Vec<u64> {
        self.rows.iter().map(|row| row.clear_count).collect()
    }

    /// The contents of each map; `read` returns the current ones.
    pub fn contents(self, mut read: impl FnMut(usize) -> anyhow::Result<T>) -> anyhow::Result<Vec<T>> {
        self.rows.into_iter().map(|row| row.contents.map_or_else(|| read(row.map), Ok)).collect()
    }
}
