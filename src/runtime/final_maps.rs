//! Keeps the contents of maps for expectations, even if the script empties the maps at the end.

use anyhow::Context;

use crate::codegen::artifact::Manifest;
use crate::value::MapView;

/// What is kept of them.
#[derive(Default)]
pub(super) struct Kept {
    rows: Vec<Row>,
    /// `end` has run: what is emptied now was only shown before.
    pub ending: bool,
}

struct Row {
    /// Index in the manifest.
    map: usize,
    /// How often it was emptied before the end.
    times: u64,
    /// As it was before `end` emptied it.
    view: Option<MapView>,
}

impl Kept {
    /// The contents of these maps, in this order.
    pub fn new(manifest: &Manifest, names: &[String]) -> Self {
        let index = |name: &String| manifest.maps.iter().position(|m| m.name == *name);
        let rows = names.iter().filter_map(index).map(|map| Row { map, times: 0, view: None }).collect();
        Self { rows, ending: false }
    }

    /// Keeps the contents of a map that is about to be emptied; `read` returns them.
    pub fn emptied(&mut self, map: usize, read: impl FnOnce() -> anyhow::Result<MapView>) -> anyhow::Result<()> {
        let Some(row) = self.rows.iter_mut().find(|row| row.map == map) else { return Ok(()) };
        if !self.ending {
            row.times += 1;
        } else if row.view.is_none() {
            // the first time: later there is nothing left in it
            row.view = Some(read().context("keeping a map")?);
        }
        Ok(())
    }

    /// How often each was emptied before the end.
    pub fn times(&self) -> Vec<u64> {
        self.rows.iter().map(|row| row.times).collect()
    }

    /// The contents of each map; `read` returns the current ones.
    pub fn views(self, mut read: impl FnMut(usize) -> anyhow::Result<MapView>) -> anyhow::Result<Vec<MapView>> {
        self.rows.into_iter().map(|row| row.view.map_or_else(|| read(row.map), Ok)).collect()
    }
}
