//! Marks of calls: if the entry of a call passes its gate, the return passes as well.
//!
//! Most marks are in a table, at a place that follows from the thread, the gate and the frame, because a look-up in a hash
//! map takes some 40 ns, and adding and removing an element takes 290. As in `thread_table.rs`, a cell belongs to one call at a
//! time ([`MarkCell::owner`]). If another call has it, the mark goes into a hash map. User space removes the marks of threads that
//! have ended. A call that finds the map full is counted as dropped, because its return may not pass.
//!
//! Where returns do not remove marks, the hash map forgets the oldest ones instead.

use std::mem::offset_of;

use inkwell::values::{IntValue, PointerValue};

use super::map::{MapDef, MapKind};
use super::mem::U64;
use super::shared::{CALL_MARKS, Gate, MARK_CELLS, MARKS_SECTION, MAX_CALL_MARKS, MarkCell, RECENT_CALL_MARKS};
use super::{Builder, Cmp};

/// The maximum number of marks in a hash map that forgets the oldest ones.
const MAX_RECENT_MARKS: u32 = 16384;
/// In a mark, beside the shift of the weight plus one: the entry was an event.
const IS_EVENT: u64 = 1 << 8;

/// A call whose entry and return have probes.
#[derive(Clone, Copy)]
pub struct Call<'c> {
    /// The gate of the entry.
    pub gate: u32,
    /// Identifies it among the unfinished calls of its thread; none if there is only one.
    pub frame: Option<IntValue<'c>>,
    /// The return removes the mark. Otherwise, it remains until the next call with the same place.
    pub is_removed: bool,
    /// The mark may be in the table: only if the return removes it.
    pub has_table: bool,
}

/// The place of a call's mark in the table.
#[derive(Clone, Copy)]
struct PlaceInTable<'c> {
    cell: PointerValue<'c>,
    frame: Option<IntValue<'c>>,
    /// The owner if the cell has the mark.
    owned: IntValue<'c>,
}

impl<'c> Builder<'_, 'c> {
    /// The entry of a call passed, so its return will pass as well, with the same weight. `is_event`: so did its event, to which the
    /// return belongs.
    pub fn mark_call(&mut self, call: Call<'c>, is_event: bool) {
        let flag = if is_event { IS_EVENT } else { 0 };
        let mark = self.add(self.weight_shift(), self.int(flag + 1));
        let Some(place) = self.place_in_table(call) else {
            let (map, key) = self.place_in_map(call);
            let value = self.alloc(8);
            self.store(value, 0, 8, mark);
            let r = self.update(map, key, value);
            let failed = self.cmp(Cmp::Slt, r, self.int(0));
            self.if_(failed, |e| e.count_unmarked(call));
            return;
        };
        let is_own = self.has_mark(place);
        self.if_else(
            is_own,
            // that of an earlier call that has not returned
            |e| e.set_mark(place, mark),
            |e| {
                let taken = e.take_cell(place);
                e.if_else(
                    taken,
                    |e| {
                        if let Some(frame) = place.frame {
                            e.store_volatile(e.offset(place.cell, FRAME), frame);
                        }
                        e.set_mark(place, mark);
                        e.publish(e.offset(place.cell, OWNER), place.owned);
                    },
                    |e| e.mark_in_map(call, place, mark),
                );
            },
        );
    }

    /// The entry of a call did not pass, so its return will not pass either: removes the mark of an earlier call that has not
    /// returned, and notes that returns without a mark do not pass any more.
    pub fn refuse_call(&mut self, call: Call<'c>) {
        let refuses = self.offset(self.gate(call.gate), offset_of!(Gate, has_refused) as u32);
        let known = self.load_volatile(refuses, U64);
        let first = self.cmp(Cmp::Eq, known, self.int(0));
        self.if_(first, |e| {
            let one = e.int(1);
            e.store(refuses, 0, 8, one);
            let is_unmarked = e.offset(e.gate(call.gate), offset_of!(Gate, has_unmarked) as u32);
            let has_unmarked = e.load_volatile(is_unmarked, U64);
            e.if_(has_unmarked, |e| e.count_thinned());
        });
        let Some(place) = self.place_in_table(call) else {
            let (map, key) = self.place_in_map(call);
            let mark = self.lookup(map, key);
            let is_there = self.not_null(mark);
            self.if_(is_there, |e| {
                e.delete(map, key);
            });
            return;
        };
        let is_own = self.has_mark(place);
        self.if_else(
            is_own,
            |e| e.free_cell(place),
            |e| {
                let overflow = e.overflow_of_marks(place);
                e.if_(overflow, |e| e.remove_from_map(call, place));
            },
        );
    }

    /// Ends the program unless the entry of the call passed. As long as no entry was refused, every return passes: those of
    /// calls that were entered before the entries were traced, and those in another process than the entry. `is_last`: no
    /// other probe asks for the mark. The result is not zero if the entry was an event.
    pub fn pass_marked_call(&mut self, call: Call<'c>, is_last: bool) -> IntValue<'c> {
        let marked = match self.place_in_table(call) {
            None => self.mark_of_map(call, is_last, |_| ()),
            Some(place) => {
                let is_own = self.has_mark(place);
                self.choose(
                    is_own,
                    |e| {
                        let mark = e.load_volatile(e.offset(place.cell, MARK), U64);
                        if is_last {
                            e.free_cell(place);
                        }
                        mark
                    },
                    |e| {
                        let overflow = e.overflow_of_marks(place);
                        e.choose(
                            overflow,
                            |e| e.mark_of_map(call, is_last, |e| e.add_overflow_of_marks(place, u64::MAX)),
                            |e| e.unmarked(call),
                        )
                    },
                )
            }
        };
        self.count_ran();
        let shift = self.and(marked, self.int(IS_EVENT - 1));
        self.set_weight(self.sub(shift, self.int(1)));
        self.and(marked, self.int(IS_EVENT))
    }

    /// The mark of a call without one; ends the program if entries were refused.
    fn unmarked(&mut self, call: Call<'c>) -> IntValue<'c> {
        let has_refused = self.load_volatile(self.offset(self.gate(call.gate), offset_of!(Gate, has_refused) as u32), U64);
        // the entry was counted as dropped
        self.if_(has_refused, |e| e.ret(None));
        self.int(1)
    }

    fn mark_of_map(&mut self, call: Call<'c>, is_last: bool, removed: impl FnOnce(&mut Self)) -> IntValue<'c> {
        let (map, key) = self.place_in_map(call);
        let found = self.lookup(map, key);
        self.if_found(
            found,
            |e| {
                let mark = e.load(found, 0, U64);
                if is_last {
                    e.delete(map, key);
                    removed(e);
                }
                mark
            },
            |e| e.unmarked(call),
        )
    }

    fn mark_in_map(&mut self, call: Call<'c>, place: PlaceInTable<'c>, mark: IntValue<'c>) {
        let (map, key) = self.place_in_map(call);
        let found = self.lookup(map, key);
        let is_there = self.not_null(found);
        self.if_else(
            is_there,
            |e| e.store(found, 0, 8, mark),
            |e| {
                e.add_overflow_of_marks(place, 1);
                let value = e.alloc(8);
                e.store(value, 0, 8, mark);
                let r = e.update(map, key, value);
                let failed = e.cmp(Cmp::Slt, r, e.int(0));
                e.if_(failed, |e| {
                    e.add_overflow_of_marks(place, u64::MAX);
                    e.count_unmarked(call);
                });
            },
        );
    }

    /// Counts a call as dropped because its mark could not be stored: its return does not pass. As long as no entry was refused, it
    /// passes; then the first refusal counts it.
    fn count_unmarked(&mut self, call: Call<'c>) {
        let gate = self.gate(call.gate);
        let has_refused = self.load_volatile(self.offset(gate, offset_of!(Gate, has_refused) as u32), U64);
        self.if_else(
            has_refused,
            |e| e.count_thinned(),
            |e| {
                let one = e.int(1);
                e.store_volatile(e.offset(gate, offset_of!(Gate, has_unmarked) as u32), one);
            },
        );
    }

    fn remove_from_map(&mut self, call: Call<'c>, place: PlaceInTable<'c>) {
        let (map, key) = self.place_in_map(call);
        let r = self.delete(map, key);
        let removed = self.cmp(Cmp::Eq, r, self.int(0));
        self.if_(removed, |e| e.add_overflow_of_marks(place, u64::MAX));
    }

    /// The thread, and the gate from bit 32 on.
    fn thread_and_gate(&mut self, call: Call<'c>) -> IntValue<'c> {
        // in a PID namespace, the threads outside of it have the ID 0
        let both = self.ids_in(None);
        let tid = self.and(both, self.int(u32::MAX.into()));
        self.or(tid, self.int(u64::from(call.gate) << 32))
    }

    fn place_in_map(&mut self, call: Call<'c>) -> (PointerValue<'c>, PointerValue<'c>) {
        let (name, kind, max_entries) = match call.is_removed {
            true => (CALL_MARKS, MapKind::Hash, MAX_CALL_MARKS),
            false => (RECENT_CALL_MARKS, MapKind::LruHash, MAX_RECENT_MARKS),
        };
        let map = self.declare_map(name, MapDef { kind, key_size: 16, value_size: 8, max_entries, flags: 0 });
        let key = self.alloc(16);
        let word = self.thread_and_gate(call);
        self.store(key, 0, 8, word);
        self.store(key, 8, 8, call.frame.unwrap_or_else(|| self.int(0)));
        (map, key)
    }

    fn place_in_table(&mut self, call: Call<'c>) -> Option<PlaceInTable<'c>> {
        if !call.has_table {
            return None;
        }
        let all = self.data_global("mark_cells", MARKS_SECTION, MARK_CELLS * size_of::<MarkCell>() as u32);
        let word = self.thread_and_gate(call);
        let mixed = match call.frame {
            Some(frame) => self.add(word, self.mul(frame, self.int(MarkCell::FRAME_MULTIPLIER))),
            None => word,
        };
        let hash = self.mul(mixed, self.int(MarkCell::MULTIPLIER));
        let index = self.shr(hash, self.int(MarkCell::SHIFT.into()), false);
        let cell = self.offset_by(all, self.mul(index, self.int(size_of::<MarkCell>() as u64)));
        let owned = self.or(word, self.int(MarkCell::OWNED));
        Some(PlaceInTable { cell, frame: call.frame, owned })
    }

    /// Does the cell have the mark of the call?
    fn has_mark(&mut self, place: PlaceInTable<'c>) -> IntValue<'c> {
        let owner = self.load_volatile(self.offset(place.cell, OWNER), U64);
        let is_owner = self.cmp(Cmp::Eq, owner, place.owned);
        match place.frame {
            Some(frame) => {
                let of_cell = self.load_volatile(self.offset(place.cell, FRAME), U64);
                self.and(is_owner, self.cmp(Cmp::Eq, of_cell, frame))
            }
            None => is_owner,
        }
    }

    /// Takes the cell, if it is free and no mark that belongs into it is in the map. Returns 1 if it did; then it is taken until it
    /// has a mark.
    fn take_cell(&mut self, place: PlaceInTable<'c>) -> IntValue<'c> {
        let owner = self.load_volatile(self.offset(place.cell, OWNER), U64);
        let overflow = self.overflow_of_marks(place);
        let is_free = self.cmp(Cmp::Eq, self.or(owner, overflow), self.int(0));
        // the idle tasks of all CPUs have the ID 0
        let thread = self.and(place.owned, self.int(u32::MAX.into()));
        let has_id = self.cmp(Cmp::Ne, thread, self.int(0));
        self.choose(
            self.and(is_free, has_id),
            |e| {
                let before = e.compare_exchange(e.offset(place.cell, OWNER), e.int(0), e.int(MarkCell::TAKEN));
                e.cmp(Cmp::Eq, before, e.int(0))
            },
            |e| e.int(0),
        )
    }

    fn set_mark(&mut self, place: PlaceInTable<'c>, mark: IntValue<'c>) {
        self.store_volatile(self.offset(place.cell, MARK), mark);
    }

    fn free_cell(&mut self, place: PlaceInTable<'c>) {
        let free = self.int(0);
        self.publish(self.offset(place.cell, OWNER), free);
    }

    fn overflow_of_marks(&mut self, place: PlaceInTable<'c>) -> IntValue<'c> {
        self.load_volatile(self.offset(place.cell, OVERFLOW), U64)
    }

    fn add_overflow_of_marks(&mut self, place: PlaceInTable<'c>, more: u64) {
        let more = self.int(more);
        self.atomic_add(self.offset(place.cell, OVERFLOW), more);
    }
}

const OWNER: u32 = offset_of!(MarkCell, owner) as u32;
const FRAME: u32 = offset_of!(MarkCell, frame) as u32;
const MARK: u32 = offset_of!(MarkCell, mark) as u32;
const OVERFLOW: u32 = offset_of!(MarkCell, overflow) as u32;
