//! Gates of probes: user space lets only some of their runs pass. See `runtime/throttle.rs`.

use std::mem::offset_of;

use super::map::{MapDef, MapKind};
use super::mem::U64;
use super::shared::{CALL_MARKS, GATES_SECTION, Gate, State};
use super::{Builder, Cmp, Helper, PointerValue};

/// Unfinished calls whose entry passed. The oldest are forgotten, so that threads that never return do not fill the
/// map.
const MAX_MARKS: u32 = 16384;
/// A random number is below this.
const RANDOM: u64 = 1 << 32;

impl<'c> Builder<'_, 'c> {
    /// Ends the program unless the probe's gate lets this run pass: at random, and while there are tokens. `refused`
    /// emits code for the path that ends.
    pub fn pass_gate(&mut self, gate: u32, refused: &dyn Fn(&mut Self)) {
        let ptr = self.gate(gate);
        let leave = |e: &mut Self| {
            e.count_thinned();
            refused(e);
            e.ret(None);
        };
        let sampled = self.load(self.offset(ptr, offset_of!(Gate, one_in) as u32), 0, U64);
        let all = self.cmp(Cmp::Eq, sampled, self.int(1));
        let some = self.cmp(Cmp::Eq, all, self.int(0));
        self.if_(some, |e| {
            let random = e.call(Helper::GetPrandomU32, &[]);
            let random = e.and(random, e.int(RANDOM - 1));
            let product = e.mul(random, sampled);
            let not = e.cmp(Cmp::Uge, product, e.int(RANDOM));
            let closed = e.cmp(Cmp::Eq, sampled, e.int(0));
            let not = e.or(not, closed);
            e.if_(not, leave);
        });
        self.take_token(self.offset(ptr, offset_of!(Gate, tokens) as u32), &leave);
        self.count_ran();
    }

    /// Ends the program if the limit of events for this second is reached. `refused` emits code for the path that ends.
    pub fn pass_event(&mut self, refused: &dyn Fn(&mut Self)) {
        let tokens = self.state(offset_of!(State, event_tokens));
        self.take_token(tokens, &|e| {
            e.count_thinned();
            refused(e);
            e.ret(None);
        });
    }

    /// Takes a token, or emits `none`, which leaves, if there is none. A run that finds no token only reads.
    fn take_token(&mut self, tokens: PointerValue<'c>, none: &dyn Fn(&mut Self)) {
        let left = self.load_volatile(tokens, U64);
        let none_left = self.cmp(Cmp::Sle, left, self.int(0));
        self.if_(none_left, none);
        let one_less = self.int(u64::MAX);
        self.atomic_add(tokens, one_less);
    }

    /// The entry of a call passed, so its return will pass as well.
    pub fn mark_call(&mut self, gate: u32) {
        let (map, key) = self.call_mark(gate);
        let one = self.alloc(8);
        let value = self.int(1);
        self.store(one, 0, 8, value);
        self.update(map, key, one);
    }

    /// The entry of a call did not pass, so its return will not pass either. (An earlier call may not have returned.)
    pub fn unmark_call(&mut self, gate: u32) {
        let (map, key) = self.call_mark(gate);
        let mark = self.lookup(map, key);
        let there = self.cmp(Cmp::Ne, self.addr(mark), self.int(0));
        self.if_(there, |e| {
            e.delete(map, key);
        });
    }

    /// Ends the program unless the entry of the call passed.
    pub fn pass_marked_call(&mut self, gate: u32) {
        let (map, key) = self.call_mark(gate);
        let mark = self.lookup(map, key);
        let is_null = self.cmp(Cmp::Eq, self.addr(mark), self.int(0));
        self.if_(is_null, |e| {
            e.count_thinned();
            e.ret(None);
        });
        self.delete(map, key);
        self.count_ran();
    }

    fn call_mark(&mut self, gate: u32) -> (PointerValue<'c>, PointerValue<'c>) {
        let def = MapDef { kind: MapKind::LruHash, key_size: 8, value_size: 8, max_entries: MAX_MARKS, flags: 0 };
        let map = self.declare_map(CALL_MARKS, def);
        let both = self.ns_pid_tgid();
        let tid = self.and(both, self.int(u32::MAX.into()));
        let word = self.or(tid, self.int(u64::from(gate) << 32));
        let key = self.alloc(8);
        self.store(key, 0, 8, word);
        (map, key)
    }

    fn gate(&self, gate: u32) -> PointerValue<'c> {
        let size = size_of::<Gate>() as u32;
        let all = self.data_global("gates", GATES_SECTION, self.options.probes.max(gate + 1) * size);
        self.offset(all, gate * size)
    }
}
