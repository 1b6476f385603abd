//! User space's side of tables of threads; `emit/thread_table.rs` describes them.
#![allow(unsafe_code)] // memory shared with programs

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use anyhow::Context;

use crate::codegen::artifact::{Cell, ThreadTable};

/// The mapped cells of one map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cells {
    first: *const Cell,
    count: u32,
}

// SAFETY: only atomics are used
unsafe impl Send for Cells {}
// SAFETY: the same
unsafe impl Sync for Cells {}

impl Cells {
    /// The cells of a map in the mapped section.
    ///
    /// # Safety
    ///
    /// `mapped` is null, or points to `size` bytes that outlive the result.
    pub unsafe fn new(table: ThreadTable, mapped: *mut c_void, size: usize) -> anyhow::Result<Self> {
        let fits = !mapped.is_null() && table.cells.is_power_of_two() && table.cells > 1 && table.end() <= size as u64;
        fits.then_some(()).context("the object's table of threads cannot be mapped")?;
        // SAFETY: within the mapping
        let first = unsafe { mapped.cast_const().cast::<Cell>().add(table.first as usize) };
        Ok(Self { first, count: table.cells })
    }

    fn all(&self) -> &[Cell] {
        // SAFETY: within the mapping, which lives as long as the object; all members are atomic
        unsafe { std::slice::from_raw_parts(self.first, self.count as usize) }
    }

    fn of(&self, thread: u32) -> Option<&Cell> {
        self.all().get(Cell::index(thread, self.count))
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        u64::from(self.count) * size_of::<Cell>() as u64
    }

    /// Passes the thread and the value of each element to `each`.
    pub fn each(&self, mut each: impl FnMut(u32, u64)) {
        self.all().iter().filter_map(element).for_each(|(thread, value)| each(thread, value));
    }

    /// The value of this thread's element.
    pub fn value(&self, thread: u32) -> Option<u64> {
        self.of(thread).and_then(element).filter(|(owner, _)| *owner == thread).map(|(_, value)| value)
    }

    /// Removes all elements.
    pub fn clear(&self) {
        for cell in self.all() {
            let owner = cell.owner.load(Ordering::Acquire);
            if owner_of(owner).is_some() {
                // unless a program has removed it, and another thread has taken the cell
                let _ = cell.owner.compare_exchange(owner, 0, Ordering::SeqCst, Ordering::Relaxed);
            }
        }
    }

    /// Sets all values to zero.
    pub fn zero(&self) {
        self.all().iter().filter(|cell| element(cell).is_some()).for_each(|cell| cell.value.store(0, Ordering::SeqCst));
    }

    /// Called after an element was removed from the hash map.
    pub fn removed_from_hash(&self, thread: u32) {
        if let Some(cell) = self.of(thread) {
            cell.overflow.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// The thread that owns a cell with a value.
fn owner_of(owner: u32) -> Option<u32> {
    (owner & (Cell::OWNED | Cell::TAKEN) == Cell::OWNED).then_some(owner & !Cell::OWNED)
}

/// The thread and the value of a cell, which belong together.
fn element(cell: &Cell) -> Option<(u32, u64)> {
    loop {
        let owner = cell.owner.load(Ordering::Acquire);
        let thread = owner_of(owner)?;
        let value = cell.value.load(Ordering::Acquire);
        if cell.owner.load(Ordering::Acquire) == owner {
            return Some((thread, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn cells(all: &[Cell]) -> Cells {
        Cells { first: all.as_ptr(), count: all.len() as u32 }
    }

    fn put(all: &[Cell], owner: u32, value: u64) {
        let cell = &all[Cell::index(owner & !(Cell::OWNED | Cell::TAKEN), all.len() as u32)];
        cell.owner.store(owner, Ordering::Relaxed);
        cell.value.store(value, Ordering::Relaxed);
    }

    #[test]
    fn consecutive_threads_have_cells_of_their_own_in_different_cache_lines() {
        for cells in [4096, 65536] {
            let places: Vec<usize> = (70_000..70_000 + cells / 2).map(|thread| Cell::index(thread, cells)).collect();
            assert!(places.iter().all(|place| *place < cells as usize));
            let distinct: BTreeSet<&usize> = places.iter().collect();
            assert!(distinct.len() > places.len() * 9 / 10, "{} of {}", distinct.len(), places.len());
            let in_one_line = |pair: &[usize]| pair[0] / 4 == pair[1] / 4;
            assert!(!places.windows(2).any(in_one_line));
        }
    }

    #[test]
    fn elements_are_read_zeroed_and_removed() {
        let all: Vec<Cell> = (0..4096).map(|_| Cell::default()).collect();
        let cells = cells(&all);
        put(&all, 17 | Cell::OWNED, 5);
        put(&all, 18 | Cell::OWNED, 6);
        // an element that a program is about to write
        put(&all, 19 | Cell::OWNED | Cell::TAKEN, 7);
        let read = || {
            let mut found = BTreeSet::new();
            cells.each(|thread, value| assert!(found.insert((thread, value))));
            found
        };
        assert_eq!(read(), BTreeSet::from([(17, 5), (18, 6)]));
        assert_eq!([17, 18, 19, 0].map(|thread| cells.value(thread)), [Some(5), Some(6), None, None]);
        cells.zero();
        assert_eq!(read(), BTreeSet::from([(17, 0), (18, 0)]));
        cells.clear();
        assert!(read().is_empty());
        assert_eq!(all[Cell::index(19, 4096)].owner.load(Ordering::Relaxed), 19 | Cell::OWNED | Cell::TAKEN);
    }

    #[test]
    fn a_table_lies_within_its_section() {
        let all: Vec<Cell> = (0..6).map(|_| Cell::default()).collect();
        let new = |first, cells| {
            let mapped = all.as_ptr().cast_mut().cast();
            // SAFETY: the cells outlive the result
            unsafe { Cells::new(ThreadTable { first, cells }, mapped, all.len() * size_of::<Cell>()) }.is_ok()
        };
        assert!(new(0, 4) && new(2, 4));
        assert!(!new(3, 4) && !new(0, 8) && !new(0, 3) && !new(0, 0) && !new(0, 1) && !new(u32::MAX, 2));
    }
}
