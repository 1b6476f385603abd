//! Replaces the frames of the interpreter's loop by Python frames.
//!
//! The rule of a frame says whether it belongs to the loop ([`INTERPRETER`]). If so, the walk marks the frame, and
//! records where it ends. After a walk that found such frames, the program walks the Python frames as for `pystack`
//! (`emit/python/`) and merges the two: the Python frames that each call of the loop ran take its place. Since Python
//! 3.12, the frame by which C code entered the loop is on the C stack, and its address shows to which call the frames
//! belong. Before 3.12, the calls are matched with their frames in order; at the first and the last instructions of the
//! loop, a call has no frame.
//!
//! The table of the loop's file says which interpreter it is and how it is laid out ([`INTERPRETERS`]); so rbt does not
//! search for interpreters until a walk has found one.

use std::mem::offset_of;

use inkwell::values::{IntValue, PointerValue};

use super::super::python::CALL_OF_LOOP;
use super::super::shared::{BEFORE_FIRST, CODE_ID, OFFSETS, PYTHON_REASON, Process, Reason, State, TOO_LARGE};
use super::super::{Builder, Cmp, Helper};
use super::layout::*;
use super::memory::*;
use super::{U64, UnwindTarget};

/// Set in the word of a frame of the loop during the walk.
const LOOP_FRAME: u64 = 1 << 62;
/// A value of [`INTERPRETER_STATE`] during the merge: it is beyond the native frames.
const PAST_NATIVE_FRAMES: u64 = 2;

impl<'c> Builder<'_, 'c> {
    /// Marks the recorded frame if its rule has this flag; the walk has reached its caller's frame. `at` is the walk's
    /// memory, advanced by a word for each frame before this one.
    pub(super) fn note_loop(
        &mut self,
        limit: u32,
        state: PointerValue<'c>,
        ptr: PointerValue<'c>,
        flags: IntValue<'c>,
        addr: IntValue<'c>,
    ) {
        let is_loop = self.cmp(Cmp::Ne, self.and(flags, self.int(INTERPRETER.into())), self.int(0));
        let wanted = self.and(is_loop, self.load(state, INTERPRETS, U64));
        self.if_(wanted, |e| {
            let marked = e.or(e.load(ptr, SIZE, U64), e.int(LOOP_FRAME));
            e.store(ptr, SIZE, 8, marked);
            let end = e.load(state, STACK, U64);
            e.store(ptr, ends(limit), 8, end);
            e.store(state, LOOP, 8, addr);
            let loops = e.add(e.load(state, LOOPS, U64), e.int(1));
            e.store(state, LOOPS, 8, loops);
        });
    }

    /// Counts the stack once if its frame belongs to the loop and Python frames are needed, but the probe has no room
    /// for them.
    pub(super) fn note_left_out(&mut self, state: PointerValue<'c>, flags: IntValue<'c>) {
        let is_loop = self.cmp(Cmp::Ne, self.and(flags, self.int(INTERPRETER.into())), self.int(0));
        let first = self.cmp(Cmp::Eq, self.load(state, LOOPS, U64), self.int(0));
        let wanted = self.and(self.and(is_loop, first), self.load(state, INTERPRETS, U64));
        self.if_(wanted, |e| {
            let one = e.int(1);
            e.store(state, LOOPS, 8, one);
            let counters = e.state(offset_of!(State, cut_stacks));
            let counter = e.offset(counters, Reason::LeftOut.number() as u32 * 8);
            e.atomic_add(counter, one);
        });
    }

    /// Replaces the marked frames by Python frames. `thread`: see [`Builder::python_stack`].
    pub(super) fn put_python_frames(&mut self, limit: u32, state: PointerValue<'c>, slot: IntValue<'c>, target: &UnwindTarget) {
        let Some(thread) = target.thread else { return };
        // a walk that was cut has not found all of them
        let cut = self.and(self.cmp(Cmp::Ne, self.load(state, REASON, U64), self.int(0)), self.load(state, INTERPRETS, U64));
        let nonzero = self.or(self.cmp(Cmp::Ne, self.load(state, LOOP, U64), self.int(0)), cut);
        self.if_(nonzero, |e| {
            // one after the other, because nested calls are limited
            e.global(&format!("unwind_python_{limit}"), &[slot], |e, numbers| {
                let state = e.walk_memory_of(limit, numbers);
                e.walk_to_merge(slot_of(numbers), limit, thread, |e| e.interpreter(limit, state, target));
                e.int(0)
            });
            e.global(&format!("unwind_merge_{limit}"), &[slot], |e, numbers| {
                let state = e.walk_memory_of(limit, numbers);
                e.merge(limit, state, slot_of(numbers));
                e.int(0)
            });
        });
    }

    /// The data of the interpreter that the walk found; leaves the function if there are none.
    fn interpreter(&mut self, limit: u32, state: PointerValue<'c>, target: &UnwindTarget) -> PointerValue<'c> {
        let known = self.map_of_unwinding(INTERPRETED);
        let key = self.offset(state, TAG);
        let found = self.call_ptr(Helper::MapLookupElem, &[known.into(), key.into()]);
        let is_null = self.cmp(Cmp::Eq, self.not_null(found), self.int(0));
        let some_loop = self.cmp(Cmp::Ne, self.load(state, LOOP, U64), self.int(0));
        let look = self.and(is_null, some_loop);
        self.if_(look, |e| {
            let slot = e.load(state, STATE_SLOT, U64);
            e.global(&format!("unwind_interpreter_{limit}"), &[slot], |e, numbers| {
                let state = e.walk_memory_of(limit, numbers);
                e.find_interpreter(limit, state, target);
                e.int(0)
            });
        });
        let found = self.call_ptr(Helper::MapLookupElem, &[known.into(), key.into()]);
        let is_null = self.cmp(Cmp::Eq, self.not_null(found), self.int(0));
        self.if_(is_null, |e| e.leave());
        found
    }

    /// Finds the interpreter by the mapping of the loop.
    fn find_interpreter(&mut self, limit: u32, state: PointerValue<'c>, target: &UnwindTarget) {
        let (addr, reason) = (self.load(state, LOOP, U64), self.load(state, REASON, U64));
        self.find_page(limit, state, addr, target);
        self.store(state, REASON, 8, reason);
        let value = self.load(state, VALUE, U64);
        let number = self.and(value, self.int((1 << NUMBER_SHIFT) - 1));
        self.store(state, READ, 8, number);
        let (map, key) = (self.map_of_unwinding(INTERPRETERS), self.offset(state, READ));
        let found = self.call_ptr(Helper::MapLookupElem, &[map.into(), key.into()]);
        let is_present = self.and(self.not_null(found), self.shr(value, self.int(63), false));
        let is_zero = self.cmp(Cmp::Eq, is_present, self.int(0));
        self.if_(is_zero, |e| e.leave());
        const { assert!(size_of::<Process>() <= WINDOW_SIZE as usize) };
        let process = self.offset(state, WINDOW);
        self.copy(process, found, size_of::<Process>() as u32, 8);
        let is_zero = self.int(NO_WINDOW);
        self.store(state, WINDOW_AT, 8, is_zero);
        let first = self.shl(self.load(state, PGOFF, U64), self.int(PAGE_SHIFT));
        let base = self.sub(self.load(state, MISS_START, U64), first);
        for member in [offset_of!(Process, runtime), offset_of!(Process, code_type)] {
            let at = self.load(process, member as u32, U64);
            // 0 stays: an unsupported version
            let there = self.select(at, self.add(at, base), at);
            self.store(process, member as u32, 8, there);
        }
        let (known, key) = (self.map_of_unwinding(INTERPRETED), self.offset(state, TAG));
        self.update(known, key, process);
    }

    fn merge(&mut self, limit: u32, state: PointerValue<'c>, slot: IntValue<'c>) {
        let zero = self.int(0);
        for word in [NATIVE, INTERPRETED_AT, MERGED, INTERPRETER_STATE] {
            self.store(state, word, 8, zero);
        }
        self.skip_unfinished_first_call(limit, state, slot);
        let (to, size, from) = (self.offset(state, native_words_offset(limit)), self.int(u64::from(limit) * 8), self.offset(state, SIZE));
        self.call(Helper::ProbeReadKernel, &[to.into(), size.into(), from.into()]);
        self.bounded_loop(&format!("unwind_merge_turn_{limit}"), limit.into(), &[slot], |e, _, slot| {
            e.global(&format!("unwind_merge_step_{limit}"), slot, |e, numbers| {
                let state = e.walk_memory_of(limit, numbers);
                e.merge_step(limit, state, slot_of(numbers))
            })
        });
        let more = self.cmp(Cmp::Ult, self.load(state, NATIVE, U64), self.load(state, COUNT, U64));
        let merged = self.load(state, MERGED, U64);
        self.store(state, COUNT, 8, merged);
        self.if_(more, |e| {
            // see end_unwinding
            let one = e.int(1);
            e.store(state, IP, 8, one);
        });
    }

    /// If the order of calls of the loop identifies them, the first call may not have a frame yet, or no longer has
    /// one.
    fn skip_unfinished_first_call(&mut self, limit: u32, state: PointerValue<'c>, slot: IntValue<'c>) {
        let calls = self.calls_of_loop(slot);
        let loops = self.load(state, LOOPS, U64);
        let one_less = self.cmp(Cmp::Eq, self.add(calls, self.int(1)), loops);
        let is_complete = self.cmp(Cmp::Eq, self.load(state, REASON, U64), self.int(0));
        let is_complete = self.and(is_complete, self.cmp(Cmp::Ult, self.load(state, COUNT, U64), self.int(limit.into())));
        let has_calls = self.cmp(Cmp::Ne, calls, self.int(0));
        let leave = self.and(self.and(one_less, is_complete), has_calls);
        self.if_(leave, |e| {
            let first = e.and(e.load(state, SIZE, U64), e.int(!LOOP_FRAME));
            e.store(state, SIZE, 8, first);
        });
    }

    /// Emits the next frame; 1 if there is none.
    fn merge_step(&mut self, limit: u32, state: PointerValue<'c>, slot: IntValue<'c>) -> IntValue<'c> {
        let native = self.load(state, NATIVE, U64);
        let done = self.cmp(Cmp::Uge, native, self.load(state, COUNT, U64));
        self.if_(done, |e| e.merge_beyond(limit, state, slot));
        let beyond = self.cmp(Cmp::Uge, native, self.int(limit.into()));
        self.if_(beyond, |e| e.leave());
        let index = self.frame_index(native, limit);
        let ptr = self.offset_by(state, self.mul(index, self.int(8)));
        let word = self.load(ptr, native_words_offset(limit), U64);
        let is_loop = self.and(word, self.int(LOOP_FRAME));
        let itself = self.and(word, self.int(!LOOP_FRAME));
        let plain = self.cmp(Cmp::Eq, is_loop, self.int(0));
        self.if_(plain, |e| e.emit_frame(limit, state, itself, true));
        let end = self.load(ptr, ends(limit), U64);
        let index = self.scalar_slot();
        let first = self.load(state, INTERPRETED_AT, U64);
        self.store(index, 0, 8, first);
        let within = self.load(state, INTERPRETER_STATE, U64);
        let starts = self.cmp(Cmp::Eq, within, self.int(0));
        self.if_(starts, |e| {
            let [id, offset] = e.python_entry(slot, first);
            let called = e.cmp(Cmp::Eq, id, e.int(CALL_OF_LOOP));
            e.if_(called, |e| {
                // of an outer call
                let other = e.cmp(Cmp::Uge, offset, end);
                e.if_(other, |e| e.emit_frame(limit, state, itself, true));
                let next = e.add(first, e.int(1));
                e.store(index, 0, 8, next);
                e.store(state, INTERPRETED_AT, 8, next);
            });
        });
        let index = self.load(index, 0, U64);
        let [id, offset] = self.python_entry(slot, index);
        let is_zero = self.or(self.cmp(Cmp::Eq, id, self.int(0)), self.cmp(Cmp::Eq, id, self.int(CALL_OF_LOOP)));
        self.if_(is_zero, |e| e.emit_frame(limit, state, itself, true));
        let next = self.add(index, self.int(1));
        self.store(state, INTERPRETED_AT, 8, next);
        let [after, _] = self.python_entry(slot, next);
        let last = self.or(self.cmp(Cmp::Eq, after, self.int(0)), self.cmp(Cmp::Eq, after, self.int(CALL_OF_LOOP)));
        let last = self.or(last, self.and(id, self.int(1)));
        let going_on = self.cmp(Cmp::Eq, last, self.int(0));
        self.store(state, INTERPRETER_STATE, 8, going_on);
        let frame = self.python_word(id, offset);
        self.if_else(last, |e| e.emit_frame(limit, state, frame, true), |e| e.emit_frame(limit, state, frame, false));
        self.int(0)
    }

    /// Emits the next of the Python frames that the native walk did not reach because it was cut.
    fn merge_beyond(&mut self, limit: u32, state: PointerValue<'c>, slot: IntValue<'c>) {
        let is_complete = self.cmp(Cmp::Eq, self.load(state, REASON, U64), self.int(0));
        self.if_(is_complete, |e| e.leave());
        let index = self.load(state, INTERPRETED_AT, U64);
        let [id, offset] = self.python_entry(slot, index);
        let is_zero = self.cmp(Cmp::Eq, id, self.int(0));
        self.if_(is_zero, |e| e.leave());
        let within = self.load(state, INTERPRETER_STATE, U64);
        let first = self.cmp(Cmp::Ne, within, self.int(PAST_NATIVE_FRAMES));
        self.if_(first, |e| {
            let beyond = e.int(PAST_NATIVE_FRAMES);
            e.store(state, INTERPRETER_STATE, 8, beyond);
            let gap = e.int(PYTHON_REASON | Reason::Gap as u64);
            e.emit_frame(limit, state, gap, false);
        });
        let next = self.add(index, self.int(1));
        self.store(state, INTERPRETED_AT, 8, next);
        let called = self.cmp(Cmp::Eq, id, self.int(CALL_OF_LOOP));
        self.if_(called, |e| e.continue_with_caller());
        let frame = self.python_word(id, offset);
        self.emit_frame(limit, state, frame, false);
    }

    /// The word of a Python frame, or of the reason why there is none.
    fn python_word(&mut self, id: IntValue<'c>, offset: IntValue<'c>) -> IntValue<'c> {
        let id = self.and(id, self.int(!1));
        let offset = self.and(offset, self.int(u32::MAX.into()));
        let before = self.cmp(Cmp::Ugt, offset, self.int(i32::MAX as u64));
        let half = self.shr(offset, self.int(1), false);
        let large = self.cmp(Cmp::Ugt, half, self.int(TOO_LARGE));
        let half = self.select(large, self.int(TOO_LARGE), half);
        let half = self.select(before, self.int(BEFORE_FIRST), half);
        let minor = self.shl(self.and(offset, self.int(0xff)), self.int(8));
        let reason = self.or(self.or(id, self.int(PYTHON_REASON)), minor);
        let is_code = self.cmp(Cmp::Uge, id, self.int(CODE_ID));
        let code = self.or(self.and(id, self.int(!OFFSETS)), half);
        self.select(is_code, code, reason)
    }

    /// Emits a frame, and leaves the step. `done`: the native frame is finished.
    fn emit_frame(&mut self, limit: u32, state: PointerValue<'c>, word: IntValue<'c>, done: bool) {
        let merged = self.load(state, MERGED, U64);
        let full = self.cmp(Cmp::Uge, merged, self.int(limit.into()));
        self.if_(full, |e| e.leave());
        let index = self.frame_index(merged, limit);
        let ptr = self.offset_by(state, self.mul(index, self.int(8)));
        self.store(ptr, SIZE, 8, word);
        let next = self.add(merged, self.int(1));
        self.store(state, MERGED, 8, next);
        if done {
            let next = self.add(self.load(state, NATIVE, U64), self.int(1));
            self.store(state, NATIVE, 8, next);
        }
        self.continue_with_caller();
    }
}

/// Offset in the walk's memory of the ends of frames, a word for each frame; only frames of the loop have one.
fn ends(limit: u32) -> u32 {
    SIZE + (limit + 1) * 8
}

/// Offset in the walk's memory of a copy of the frames' words.
fn native_words_offset(limit: u32) -> u32 {
    ends(limit) + limit * 8
}

/// The size of a walk with this many frames: the frames, and what the merge needs. See [`Builder::frame_index`].
pub(super) fn walk_size(limit: u32) -> u32 {
    native_words_offset(limit) + limit.next_power_of_two() * 8
}

pub(super) fn slot_of<'c>(numbers: &[IntValue<'c>]) -> IntValue<'c> {
    match numbers.first() {
        Some(slot) => *slot,
        None => crate::bug!("the function gets a slot"),
    }
}
