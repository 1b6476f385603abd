//! User space's side of the marks of calls; `emit/call_marks.rs` describes them.
#![allow(unsafe_code)] // memory shared with programs

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use super::load::MapFd;
use super::maps;
use super::test_run;
use crate::codegen::artifact::MarkCell;

/// Where the upper half of a word begins.
const UPPER_HALF: usize = if cfg!(target_endian = "little") { 4 } else { 0 };

/// The marks of unfinished calls, if a limit concerns calls.
#[derive(Clone, Copy)]
pub(super) struct CallMarks {
    map: Option<MapFd>,
    first: *const MarkCell,
    count: usize,
}

impl CallMarks {
    /// The cells of the mapped section, and the map of the other marks.
    ///
    /// # Safety
    ///
    /// `mapped` is null, or points to `size` bytes that outlive the result.
    pub unsafe fn new(map: Option<MapFd>, mapped: *mut c_void, size: usize) -> Self {
        let count = if mapped.is_null() { 0 } else { size / size_of::<MarkCell>() };
        Self { map, first: mapped.cast_const().cast(), count }
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
        self.free_if(&|_, of| of == gate);
        if let Some(map) = self.map {
            let _ = maps::remove_if(map, &|key| gate_of_key(key) == Some(gate));
        }
    }

    /// Frees the cells of threads that have ended during a call. In a PID namespace, where the IDs of the cells are unknown, they
    /// remain, and other calls use the map.
    pub fn forget_ended_threads(&self) {
        static KNOWS_IDS: OnceLock<bool> = OnceLock::new();
        if self.count > 0 && *KNOWS_IDS.get_or_init(|| test_run::own_id() == u64::from(std::process::id())) {
            self.free_if(&|thread, _| has_ended(thread));
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

/// The gate in the key of [`CALL_MARKS`](crate::codegen::artifact::CALL_MARKS).
fn gate_of_key(key: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(key.get(UPPER_HALF..)?.first_chunk().copied()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_name_their_gates() {
        let key = [7u64 << 32 | 4711, 0xffff_8000_0000_1234].map(u64::to_ne_bytes).concat();
        assert_eq!((gate_of_key(&key), gate_of_key(&key[..6])), (Some(7), None));
    }

    #[test]
    fn cells_of_a_gate_and_of_ended_threads_become_free() {
        let (own, ended) = (u64::from(std::process::id()), 1 << 30);
        let owners = [7 << 32 | own, 7 << 32 | ended, 8 << 32 | own, 8 << 32 | ended].map(|owner| owner | MarkCell::OWNED);
        let cells: Vec<MarkCell> =
            owners.into_iter().chain([MarkCell::TAKEN]).map(|o| MarkCell { owner: o.into(), ..Default::default() }).collect();
        let marks = CallMarks { map: None, first: cells.as_ptr(), count: cells.len() };
        let left = || cells.iter().map(|cell| cell.owner.load(Ordering::Relaxed)).collect::<Vec<_>>();
        marks.free_if(&|thread, _| has_ended(thread));
        assert_eq!(left(), [owners[0], 0, owners[2], 0, MarkCell::TAKEN]);
        marks.forget(7);
        assert_eq!(left(), [0, 0, owners[2], 0, MarkCell::TAKEN]);
    }
}
