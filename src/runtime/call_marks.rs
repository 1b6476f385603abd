//! User space's side of the marks of calls; `emit/call_marks.rs` describes them.
#![allow(unsafe_code)] // memory shared with programs

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use super::load::MapFd;
use super::maps;
use super::test_run;
use crate::codegen::artifact::{CALL_MARKS, MarkCell, RECENT_CALL_MARKS};

/// The marks of unfinished calls, if a limit concerns calls.
#[derive(Clone, Copy)]
pub(super) struct CallMarks {
    /// Those that returns remove, and the others.
    maps: [Option<MapFd>; 2],
    first: *const MarkCell,
    count: usize,
}

impl CallMarks {
    /// The cells of the mapped section, and the maps of the other marks by their names.
    ///
    /// # Safety
    ///
    /// `mapped` is null, or points to `size` bytes that outlive the result.
    pub unsafe fn new(map: &dyn Fn(&str) -> Option<MapFd>, mapped: *mut c_void, size: usize) -> Self {
        let count = if mapped.is_null() { 0 } else { size / size_of::<MarkCell>() };
        Self { maps: [CALL_MARKS, RECENT_CALL_MARKS].map(map), first: mapped.cast_const().cast(), count }
    }

    fn cells(&self) -> &[MarkCell] {
        if self.count == 0 {
            return &[];
        }
        // SAFETY: within the mapping, which lives as long as the object; all members are atomic
        unsafe { std::slice::from_raw_parts(self.first, self.count) }
    }

    /// Removes the marks of a gate.
    pub fn forget(&self, gate: u32) {
        self.remove_if(&|_, of| of == gate);
    }

    /// Removes the marks of threads that have ended during a call. In a PID namespace, where the IDs in the marks are unknown, they
    /// remain.
    pub fn forget_ended_threads(&self) {
        static KNOWS_IDS: OnceLock<bool> = OnceLock::new();
        if self.maps.iter().any(Option::is_some) && *KNOWS_IDS.get_or_init(|| test_run::own_id() == u64::from(std::process::id())) {
            self.remove_if(&|thread, _| has_ended(thread));
        }
    }

    /// Removes the marks of these threads and gates.
    fn remove_if(&self, which: &dyn Fn(u32, u32) -> bool) {
        self.free_if(which);
        let is_one = |key: &[u8]| thread_and_gate_of(key).is_some_and(|(thread, gate)| which(thread, gate));
        let [marks, recent] = self.maps;
        if let Some(map) = marks {
            let _ = maps::remove_if(map, &is_one, &|key| self.removed(key));
        }
        if let Some(map) = recent {
            let _ = maps::remove_if(map, &is_one, &|_| ());
        }
    }

    /// A mark with this key was removed from a map: its cell may be free for others.
    fn removed(&self, key: &[u8]) {
        let word = |at: usize| Some(u64::from_ne_bytes(key.get(at..)?.first_chunk().copied()?));
        let cell = word(0).zip(word(8)).and_then(|(owner, frame)| self.cells().get(MarkCell::index(owner, frame)));
        if let Some(cell) = cell {
            let less = |n: u64| n.checked_sub(1);
            let _ = cell.overflow.fetch_update(Ordering::SeqCst, Ordering::Relaxed, less);
        }
    }

    fn free_if(&self, which: &dyn Fn(u32, u32) -> bool) {
        for cell in self.cells() {
            let owner = cell.owner.load(Ordering::Acquire);
            if owner_of(owner).is_some_and(|(thread, gate)| which(thread, gate)) {
                // unless a program has removed it, and another thread has taken the cell
                let _ = cell.owner.compare_exchange(owner, 0, Ordering::SeqCst, Ordering::Relaxed);
            }
        }
    }
}

/// The thread and the gate of a cell with a mark.
fn owner_of(owner: u64) -> Option<(u32, u32)> {
    let is_owned = owner & (MarkCell::OWNED | MarkCell::TAKEN) == MarkCell::OWNED;
    is_owned.then_some((owner as u32, ((owner & !MarkCell::OWNED) >> 32) as u32))
}

fn has_ended(thread: u32) -> bool {
    // SAFETY: signal 0 only asks
    let failed = unsafe { libc::kill(thread.cast_signed(), 0) } != 0;
    failed && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// The thread and the gate in the key of [`CALL_MARKS`](crate::codegen::artifact::CALL_MARKS).
fn thread_and_gate_of(key: &[u8]) -> Option<(u32, u32)> {
    let word = u64::from_ne_bytes(key.first_chunk().copied()?);
    Some((word as u32, (word >> 32) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_name_their_threads_and_gates() {
        let key = [7u64 << 32 | 4711, 0xffff_8000_0000_1234].map(u64::to_ne_bytes).concat();
        assert_eq!((thread_and_gate_of(&key), thread_and_gate_of(&key[..6])), (Some((4711, 7)), None));
    }

    #[test]
    fn cells_of_a_gate_and_of_ended_threads_become_free() {
        let (own, ended) = (u64::from(std::process::id()), 1 << 30);
        let owners = [7 << 32 | own, 7 << 32 | ended, 8 << 32 | own, 8 << 32 | ended].map(|owner| owner | MarkCell::OWNED);
        let cells: Vec<MarkCell> =
            owners.into_iter().chain([MarkCell::TAKEN]).map(|o| MarkCell { owner: o.into(), ..Default::default() }).collect();
        let marks = CallMarks { maps: [None; 2], first: cells.as_ptr(), count: cells.len() };
        let left = || cells.iter().map(|cell| cell.owner.load(Ordering::Relaxed)).collect::<Vec<_>>();
        marks.free_if(&|thread, _| has_ended(thread));
        assert_eq!(left(), [owners[0], 0, owners[2], 0, MarkCell::TAKEN]);
        marks.forget(7);
        assert_eq!(left(), [0, 0, owners[2], 0, MarkCell::TAKEN]);
    }
}
