//! Steps from a frame to its caller's: by the rows of a file's table and their rules, or by the frame pointer.

use inkwell::values::{IntValue, PointerValue};

use super::super::{Builder, Cmp, Helper};
use super::layout::*;
use super::memory::*;
use super::{I32, U32, U64};
use crate::types::Int;

impl<'c> Builder<'_, 'c> {
    /// Finds the caller's frame by the frame pointer, for code without a table; leaves the step.
    pub(super) fn follow_frame_pointer(&mut self, limit: u32, i: IntValue<'c>, state: PointerValue<'c>) {
        let first = self.and(self.cmp(Cmp::Eq, i, self.int(0)), self.load(state, AT_ENTRY, U64));
        self.if_(first, |e| {
            let sp = e.load(state, STACK, U64);
            if e.links() {
                let caller = e.load(state, THIRD, U64);
                e.set_frame(state, (caller, sp), sp, None);
            } else {
                let caller = e.read_by_call(limit, state, sp);
                let above = e.add(sp, e.int(8));
                e.set_frame(state, (caller, sp), above, None);
            }
        });
        let fp = self.load(state, FRAME, U64);
        let sp = self.load(state, STACK, U64);
        let end = self.cmp(Cmp::Eq, fp, self.int(0));
        self.if_(end, |e| e.end_of_frame_pointers(state));
        let below = self.cmp(Cmp::Ult, fp, sp);
        self.if_(below, |e| e.stop(state, CUT_NO_INFORMATION));
        let next = self.read_by_call(limit, state, fp);
        let addr = self.add(fp, self.int(8));
        let caller = self.read_by_call(limit, state, addr);
        let above = self.add(fp, self.int(16));
        let slot = if self.links() { above } else { addr };
        self.set_frame(state, (caller, slot), above, Some(next));
    }

    pub(super) fn set_frame(
        &mut self,
        state: PointerValue<'c>,
        (ip, slot): (IntValue<'c>, IntValue<'c>),
        sp: IntValue<'c>,
        fp: Option<IntValue<'c>>,
    ) {
        let ip = self.unsigned_address(state, ip);
        self.store(state, IP, 8, ip);
        self.store(state, SLOT, 8, slot);
        self.store(state, STACK, 8, sp);
        if let Some(fp) = fp {
            self.store(state, FRAME, 8, fp);
            // a called function's frame may be anywhere below its return address
            let bound = self.int(self.links().into());
            self.store(state, BOUND, 8, bound);
        }
        let one = self.int(1);
        self.store(state, CALL, 8, one);
        self.store(state, CHAINED, 8, one);
        self.continue_with_caller();
    }

    /// A return address without the bits that sign it.
    fn unsigned_address(&self, state: PointerValue<'c>, addr: IntValue<'c>) -> IntValue<'c> {
        match self.target.unwind.and_then(|target| target.task_size) {
            Some(_) => self.and(addr, self.load(state, MASK, U64)),
            None => addr,
        }
    }

    /// A word of the stack; ends the walk if it cannot be read. It is usually in the window, where reading it costs less than the
    /// call of a function.
    pub(super) fn read_stack(&mut self, limit: u32, state: PointerValue<'c>, addr: IntValue<'c>) -> IntValue<'c> {
        let within = self.sub(addr, self.load(state, WINDOW_AT, U64));
        let inside = self.cmp(Cmp::Ule, within, self.int(u64::from(WINDOW_SIZE) - 8));
        self.choose(inside, |e| e.word_of_window(state, within), |e| e.read_by_call(limit, state, addr))
    }

    /// The same, for words that few frames need: it is less code.
    fn read_by_call(&mut self, limit: u32, state: PointerValue<'c>, addr: IntValue<'c>) -> IntValue<'c> {
        let slot = self.load(state, STATE_SLOT, U64);
        let word = self.global(&format!("unwind_read_{limit}"), &[slot, addr], |e, numbers| {
            let state = e.walk_memory_of(limit, numbers);
            let Some(addr) = numbers.get(1) else { crate::bug!("the function gets an address") };
            e.read_by_window(state, *addr)
        });
        let failed = self.cmp(Cmp::Ne, self.load(state, REASON, U64), self.int(0));
        self.if_(failed, |e| e.leave());
        word
    }

    fn word_of_window(&mut self, state: PointerValue<'c>, within: IntValue<'c>) -> IntValue<'c> {
        let within = self.and(self.opaque(within), self.int(u64::from(WINDOW_SIZE) - 1));
        self.load(self.offset_by(state, within), WINDOW, U64)
    }

    /// A word of the stack from the window, which moves to the word if it is outside. Sets [`REASON`] if it cannot be
    /// read.
    fn read_by_window(&mut self, state: PointerValue<'c>, addr: IntValue<'c>) -> IntValue<'c> {
        let within = self.sub(addr, self.load(state, WINDOW_AT, U64));
        let inside = self.cmp(Cmp::Ule, within, self.int(u64::from(WINDOW_SIZE) - 8));
        self.if_(inside, |e| {
            let word = e.word_of_window(state, within);
            e.ret(Some(word));
        });
        let moved = self.read_user_into(state, WINDOW, WINDOW_SIZE, addr);
        self.if_(moved, |e| {
            e.store(state, WINDOW_AT, 8, addr);
            let word = e.load(state, WINDOW, U64);
            e.ret(Some(word));
        });
        // the window would exceed the end of the stack
        let no_window = self.int(NO_WINDOW);
        self.store(state, WINDOW_AT, 8, no_window);
        let read = self.read_user_into(state, READ, 8, addr);
        self.if_(read, |e| {
            let word = e.load(state, READ, U64);
            e.ret(Some(word));
        });
        let reason = self.int(CUT_UNREADABLE);
        self.store(state, REASON, 8, reason);
        self.int(0)
    }

    /// Copies memory of the process into the walk's; 1 if it could be read.
    fn read_user_into(&mut self, state: PointerValue<'c>, to: u32, size: u32, addr: IntValue<'c>) -> IntValue<'c> {
        let (to, size) = (self.offset(state, to), self.int(size.into()));
        let error = self.call(Helper::ProbeReadUser, &[to.into(), size.into(), addr.into()]);
        self.cmp(Cmp::Eq, error, self.int(0))
    }

    /// An element of an array; leaves the function if there is none.
    pub(super) fn element_at(&mut self, map: &str, index: IntValue<'c>) -> PointerValue<'c> {
        let map = self.map_of_unwinding(map);
        self.element_of_array(map, index)
    }

    pub(super) fn element_of_array(&mut self, map: PointerValue<'c>, index: IntValue<'c>) -> PointerValue<'c> {
        let key = self.alloc_known("unwind_key", 8);
        self.store(key, 0, 4, index);
        let element = self.call_ptr(Helper::MapLookupElem, &[map.into(), key.into()]);
        let is_null = self.cmp(Cmp::Eq, self.not_null(element), self.int(0));
        self.if_(is_null, |e| e.leave());
        element
    }

    /// A block of the pools, by number; leaves the function if there is none.
    pub(super) fn block(&mut self, number: IntValue<'c>) -> PointerValue<'c> {
        let pool = self.shr(number, self.int(u64::from(POOL_BLOCKS.ilog2())), false);
        let pool = self.element_at(POOLS, pool);
        let index = self.and(number, self.int(u64::from(POOL_BLOCKS) - 1));
        self.element_of_array(pool, index)
    }

    /// The entry of a page in a file; leaves the step if the page has no rows.
    pub(super) fn page_rows(&mut self, limit: u32, state: PointerValue<'c>, i: IntValue<'c>, value: IntValue<'c>) -> IntValue<'c> {
        let number = self.and(value, self.int((1 << NUMBER_SHIFT) - 1));
        let no_room = self.cmp(Cmp::Eq, number, self.int(NO_ROOM.into()));
        self.if_(no_room, |e| e.stop(state, CUT_NO_ROOM));
        let file = self.element_at(TABLE, self.add(number, self.int(FILES.into())));
        let pages = self.load(file, 12, U32);
        let without = self.cmp(Cmp::Eq, pages, self.int(0));
        self.if_(without, |e| e.follow_frame_pointer(limit, i, state));
        let page = self.shr(value, self.int(NUMBER_SHIFT), false);
        let page = self.and(page, self.int(u64::from(u32::MAX)));
        let within = self.sub(page, self.load(file, 8, U32));
        let outside = self.cmp(Cmp::Uge, within, pages);
        self.if_(outside, |e| e.no_information(limit, i, state));
        let position = self.add(self.load(file, 0, U64), within);
        let block = self.block(self.shr(position, self.int(u64::from(BLOCK_WORDS.ilog2())), false));
        let word = self.and(self.opaque(position), self.int(u64::from(BLOCK_WORDS) - 1));
        let ptr = self.offset_by(block, self.mul(word, self.int(8)));
        let entry = self.load(ptr, 0, U64);
        let empty = self.cmp(Cmp::Eq, entry, self.int(0));
        self.if_(empty, |e| e.no_information(limit, i, state));
        entry
    }

    /// Ends the walk if there is no information about the code, unless this is the end by convention, or the beginning.
    pub(super) fn no_information(&mut self, limit: u32, i: IntValue<'c>, state: PointerValue<'c>) {
        let first = self.and(self.cmp(Cmp::Eq, i, self.int(0)), self.load(state, AT_ENTRY, U64));
        self.if_(first, |e| e.follow_frame_pointer(limit, i, state));
        let end = self.cmp(Cmp::Eq, self.load(state, FRAME, U64), self.int(0));
        self.if_(end, |e| e.end_of_frame_pointers(state));
        self.stop(state, CUT_NO_INFORMATION);
    }

    /// Ends the walk if the frame pointer is 0. By convention, this is the outermost frame, but only in a chain of frame pointers: other
    /// code may not set the register at all.
    fn end_of_frame_pointers(&mut self, state: PointerValue<'c>) {
        if !self.links() {
            let otherwise = self.cmp(Cmp::Eq, self.load(state, CHAINED, U64), self.int(0));
            self.if_(otherwise, |e| e.stop(state, CUT_NO_INFORMATION));
        }
        self.stop(state, 0);
    }

    /// The number of the rule for an address, from the rows of its page: that of the last row at or before it.
    pub(super) fn find_row(&mut self, entry: IntValue<'c>, addr: IntValue<'c>) -> IntValue<'c> {
        /// Pages with more rows take four more steps.
        const MAX_ROWS_PER_SHORT_SEARCH: u64 = 256;
        let count = self.shr(entry, self.int(u64::from(COUNT_SHIFT)), false);
        let position = self.and(entry, self.int((1 << COUNT_SHIFT) - 1));
        let block = self.block(self.shr(position, self.int(u64::from(BLOCK_ROWS.ilog2())), false));
        let first = self.and(position, self.int(u64::from(BLOCK_ROWS) - 1));
        let byte = self.and(addr, self.int((1 << PAGE_SHIFT) - 1));
        let found = self.scalar_slot();
        let zero = self.int(0);
        self.store(found, 0, 8, zero);
        let many = self.cmp(Cmp::Ugt, count, self.int(MAX_ROWS_PER_SHORT_SEARCH));
        self.if_(many, |e| e.search_rows(block, (first, count), byte, found, 2048));
        let max = u64::from(BLOCK_ROWS) - 1;
        // for a page with few rows, the first steps are unnecessary
        self.search_steps(block, (first, count), byte, found, 128, 1);
        let at = self.add(first, self.load(found, 0, U64));
        let at = self.and(self.opaque(at), self.int(max));
        let row = self.load(self.offset_by(block, self.mul(at, self.int(4))), 0, U32);
        self.shr(row, self.int(u64::from(RULE_SHIFT)), false)
    }

    pub(super) fn search_rows(
        &mut self,
        block: PointerValue<'c>,
        rows: (IntValue<'c>, IntValue<'c>),
        byte: IntValue<'c>,
        found: PointerValue<'c>,
        from: u64,
    ) {
        self.search_steps(block, rows, byte, found, from, 256);
    }

    /// Steps of a binary search, without branches, which a processor could not predict.
    pub(super) fn search_steps(
        &mut self,
        block: PointerValue<'c>,
        (first, count): (IntValue<'c>, IntValue<'c>),
        byte: IntValue<'c>,
        found: PointerValue<'c>,
        from: u64,
        to: u64,
    ) {
        let max = u64::from(BLOCK_ROWS) - 1;
        let mut step = from;
        while step >= to {
            let known = self.load(found, 0, U64);
            let next = self.add(known, self.int(step));
            let at = self.and(self.opaque(self.add(first, next)), self.int(max));
            let row = self.load(self.offset_by(block, self.mul(at, self.int(4))), 0, U32);
            let start = self.and(row, self.int((1 << RULE_SHIFT) - 1));
            // by the sign bits: it starts at or before the byte, and belongs to the page
            let before = self.sub(self.sub(start, byte), self.int(1));
            let inside = self.sub(next, count);
            let both = self.opaque(self.and(before, inside));
            let take = self.mul(self.sign_bit(both), self.int(step));
            let sum = self.add(known, self.opaque(take));
            self.store(found, 0, 8, sum);
            step /= 2;
        }
    }

    /// Steps to the caller's frame by a rule, and returns the rule's flags.
    pub(super) fn apply_rule(
        &mut self,
        limit: u32,
        state: PointerValue<'c>,
        i: IntValue<'c>,
        (rule, ip): (IntValue<'c>, IntValue<'c>),
    ) -> IntValue<'c> {
        let rule = self.element_at(TABLE, self.add(rule, self.int(RULES.into())));
        let u8 = Int { bytes: 1, signed: false };
        let (kind, fp_kind, ra_kind, flags) =
            (self.load(rule, 0, u8), self.load(rule, 1, u8), self.load(rule, 2, u8), self.load(rule, 3, u8));
        let (signal, third_kind) = (self.and(flags, self.int(1)), self.and(self.shr(flags, self.int(1), false), self.int(3)));
        let (cfa_offset, second) = (self.load(rule, 4, I32), self.load(rule, 8, I32));
        let (fp_offset, ra_offset, third_offset) = (self.load(rule, 12, I32), self.load(rule, 16, I32), self.load(rule, 20, I32));
        let is = |e: &Self, kind: IntValue<'c>, what: u8| e.cmp(Cmp::Eq, kind, e.int(what.into()));
        let unknown = is(self, kind, CFA_UNKNOWN);
        self.if_(unknown, |e| e.no_information(limit, i, state));
        if self.links() {
            let chain = is(self, kind, CFA_CHAIN);
            self.if_(chain, |e| e.follow_frame_pointer(limit, i, state));
        }
        let unsupported = is(self, kind, CFA_UNSUPPORTED);
        self.if_(unsupported, |e| e.stop(state, CUT_UNSUPPORTED));
        let outermost = is(self, ra_kind, RA_NONE);
        self.if_(outermost, |e| e.stop(state, 0));
        let (sp, fp) = (self.load(state, STACK, U64), self.load(state, FRAME, U64));
        let by_fp = self.or(is(self, kind, CFA_FP), is(self, kind, CFA_AT_FP));
        let base = self.select(by_fp, fp, sp);
        let (cfa_slot, next_fp) = (self.scalar_slot(), self.scalar_slot());
        self.store(cfa_slot, 0, 8, base);
        if self.links() {
            let bound = self.cmp(Cmp::Ne, self.load(state, BOUND, U64), self.int(0));
            let inexact = self.and(bound, self.cmp(Cmp::Eq, by_fp, self.int(0)));
            self.if_(inexact, |e| {
                // by convention, the frame pointer points to where the caller's is stored
                let stored = e.and(is(e, kind, CFA_SP), is(e, fp_kind, FP_AT_CFA));
                let not = e.cmp(Cmp::Eq, stored, e.int(0));
                e.if_(not, |e| e.stop(state, CUT_NO_INFORMATION));
                let sp = e.sub(e.sub(fp, fp_offset), cfa_offset);
                e.store(cfa_slot, 0, 8, sp);
            });
        } else {
            let by_other = self.cmp(Cmp::Uge, kind, self.int(CFA_THIRD.into()));
            self.if_(by_other, |e| {
                let value = e.other_register(limit, state, second);
                e.store(cfa_slot, 0, 8, value);
            });
        }
        let addr = self.add(self.load(cfa_slot, 0, U64), cfa_offset);
        self.store(cfa_slot, 0, 8, addr);
        let stored = self.or(is(self, kind, CFA_AT_SP), is(self, kind, CFA_AT_FP));
        self.if_(stored, |e| {
            let value = e.read_by_call(limit, state, addr);
            let value = e.add(value, second);
            e.store(cfa_slot, 0, 8, value);
        });
        let plt = is(self, kind, CFA_PLT);
        self.if_(plt, |e| {
            let within = e.and(ip, e.int(15));
            let pushed = e.cmp(Cmp::Uge, within, second);
            let value = e.add(addr, e.shl(pushed, e.int(3)));
            e.store(cfa_slot, 0, 8, value);
        });
        let cfa = self.load(cfa_slot, 0, U64);
        self.store(next_fp, 0, 8, fp);
        let changed = self.cmp(Cmp::Ne, fp_kind, self.int(FP_SAME.into()));
        self.if_(changed, |e| {
            let from_cfa = is(e, fp_kind, FP_AT_CFA);
            let from_sp = is(e, fp_kind, FP_AT_SP);
            let base = e.select(from_sp, sp, fp);
            let base = e.select(from_cfa, cfa, base);
            let addr = e.add(base, fp_offset);
            let value = e.read_stack(limit, state, addr);
            e.store(next_fp, 0, 8, value);
        });
        let from_sp = is(self, ra_kind, RA_AT_SP);
        let base = self.select(from_sp, sp, cfa);
        let addr = self.add(base, ra_offset);
        // only the frame of a signal may be elsewhere
        let mut upward = self.or(self.cmp(Cmp::Ugt, cfa, sp), signal);
        let caller = if self.links() {
            // a function that called another one has saved its return address
            let leaf = self.and(is(self, ra_kind, RA_LINK), self.cmp(Cmp::Eq, self.load(state, CALL, U64), self.int(0)));
            upward = self.or(upward, self.and(leaf, self.cmp(Cmp::Eq, cfa, sp)));
            let lost = self.and(is(self, ra_kind, RA_LINK), self.cmp(Cmp::Eq, leaf, self.int(0)));
            self.if_(lost, |e| e.stop(state, CUT_CORRUPT));
            let caller = self.choose(leaf, |e| e.third_register(limit, state), |e| e.read_stack(limit, state, addr));
            self.unsigned_address(state, caller)
        } else {
            let in_register = is(self, ra_kind, RA_FIRST_FRAME);
            upward = self.or(upward, self.and(in_register, self.cmp(Cmp::Eq, cfa, sp)));
            let from_stack = |e: &mut Self| e.read_stack(limit, state, addr);
            self.choose(in_register, |e| e.other_register(limit, state, ra_offset), from_stack)
        };
        // the address, not the value: few frames need it
        let saved = self.cmp(Cmp::Ne, third_kind, self.int(THIRD_SAME.into()));
        self.if_(saved, |e| {
            let (from_sp, from_fp) = (is(e, third_kind, THIRD_AT_SP), is(e, third_kind, THIRD_AT_FP));
            let base = e.select(from_sp, sp, cfa);
            let base = e.select(from_fp, fp, base);
            let addr = e.add(base, third_offset);
            e.store(state, THIRD_AT, 8, addr);
        });
        let not = self.cmp(Cmp::Eq, upward, self.int(0));
        self.if_(not, |e| e.stop(state, CUT_CORRUPT));
        let fp = self.load(next_fp, 0, U64);
        let slot = if self.links() { cfa } else { addr };
        let zero = self.int(0);
        for (word, value) in [(IP, caller), (STACK, cfa), (FRAME, fp), (SLOT, slot), (BOUND, zero), (CHAINED, zero)] {
            self.store(state, word, 8, value);
        }
        // as after a signal, a return address of 0 is then no end
        let inferred = self.and(self.shr(flags, self.int(INFERRED_SHIFT), false), self.int(1));
        let lost = self.and(inferred, self.cmp(Cmp::Eq, caller, self.int(0)));
        let call = self.xor(self.or(signal, lost), self.int(1));
        self.store(state, CALL, 8, call);
        flags
    }

    /// The value of the third register ([`THIRD_REGISTER`]), or of that at an offset in `struct pt_regs` in the first frame or the second.
    /// In a function of its own, because few frames need it, and others need the stack.
    fn other_register(&mut self, limit: u32, state: PointerValue<'c>, which: IntValue<'c>) -> IntValue<'c> {
        /// The largest frame of a function that calls another one while a register leads to its caller.
        const MAX_FRAME: u64 = 16 << 10;
        let slot = self.load(state, STATE_SLOT, U64);
        let value = self.global(&format!("unwind_register_{limit}"), &[slot, which], |e, numbers| {
            let state = e.walk_memory_of(limit, numbers);
            let Some(which) = numbers.get(1) else { crate::bug!("the function gets a register") };
            let third = e.cmp(Cmp::Eq, *which, e.int(i64::from(THIRD_REGISTER).cast_unsigned()));
            e.if_(third, |e| {
                let value = e.third_register(limit, state);
                e.ret(Some(value));
            });
            let at = e.and(e.opaque(*which), e.int(u64::from(MAX_FIRST_FRAME)));
            let value = e.load(e.offset_by(state, at), REGISTERS, U64);
            // A function in assembly may call another one that keeps the register, as those of OpenSSL's ciphers. A register that points
            // elsewhere has another value by now.
            let count = e.load(state, COUNT, U64);
            let callers = e.cmp(Cmp::Ne, count, e.int(1));
            let far = e.cmp(Cmp::Uge, e.sub(value, e.load(state, STACK, U64)), e.int(MAX_FRAME));
            let lost = e.or(e.cmp(Cmp::Ugt, count, e.int(2)), e.and(callers, far));
            e.if_(lost, |e| {
                let reason = e.int(CUT_UNSUPPORTED);
                e.store(state, REASON, 8, reason);
            });
            value
        });
        let failed = self.cmp(Cmp::Ne, self.load(state, REASON, U64), self.int(0));
        self.if_(failed, |e| e.leave());
        value
    }

    /// The value of the third register in the current frame.
    fn third_register(&mut self, limit: u32, state: PointerValue<'c>) -> IntValue<'c> {
        let saved = self.load(state, THIRD_AT, U64);
        let is_saved = self.cmp(Cmp::Ne, saved, self.int(0));
        self.choose(is_saved, |e| e.read_by_call(limit, state, saved), |e| e.load(state, THIRD, U64))
    }
}
