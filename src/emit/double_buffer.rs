//! Maps with two copies, so that the reader sees one consistent moment while programs continue to write.
//!
//! A bit of [`State::generations`] selects the copy that programs write to. The reader flips the bit, waits until all programs
//! that may have seen the old value have ended, and then has the other copy for itself: no update is lost, and none appears
//! twice. The kernel waits for programs under the RCU lock. A sleepable program is not under that lock, so it announces a
//! change before making it ([`State::changing`]).

use inkwell::values::{IntValue, PointerValue};
use inkwell::{AtomicOrdering, AtomicRMWBinOp};

use super::shared::{MOMENTS, State};
use super::{Builder, Cmp, CodegenCx, MapDef, ok};
use crate::types::Int;

const U64: Int = Int { bytes: 8, signed: false };

/// A change of an element in progress.
struct ElementUpdate<'c> {
    map: PointerValue<'c>,
    announced: Option<PointerValue<'c>>,
}

impl CodegenCx<'_> {
    /// Declares the second copy of the script's map with this number; false if the maximum is reached.
    pub fn double_script_map(&self, id: usize, def: MapDef) -> bool {
        let n = self.double_buffered.borrow().len();
        if n >= MOMENTS {
            return false;
        }
        self.declare_map(&second(id), def);
        self.double_buffered.borrow_mut().insert(id, n as u32);
        true
    }

    /// The index of the bit of a map that has two copies.
    pub fn double(&self, id: usize) -> Option<u32> {
        self.double_buffered.borrow().get(&id).copied()
    }
}

impl<'c> Builder<'_, 'c> {
    /// The script's map with this number; if it has two copies, the one that programs currently write to.
    pub fn script_map(&mut self, id: usize) -> PointerValue<'c> {
        match self.double(id) {
            None => self.map(&first(id)),
            Some(n) => {
                let bit = self.generation(n);
                self.one_of(id, bit)
            }
        }
    }

    /// Runs `body`, which changes an element of the map that it receives.
    pub fn change<T>(&mut self, id: usize, body: impl FnOnce(&mut Self, PointerValue<'c>) -> T) -> T {
        let change = self.begin_change(id);
        let result = body(self, change.map);
        if let Some(counter) = change.announced {
            self.withdraw(counter);
        }
        result
    }

    fn begin_change(&mut self, id: usize) -> ElementUpdate<'c> {
        let (Some(n), true) = (self.double(id), self.program.can_sleep_on(self)) else {
            return ElementUpdate { map: self.script_map(id), announced: None };
        };
        // If the announced copy is outdated, the announcement is withdrawn and made again. The bit flips at most once in tens
        // of milliseconds, so three attempts suffice.
        const MAX_ATTEMPTS: usize = 3;
        let mut bit = self.generation(n);
        let mut counter = self.announce_copy(n, bit);
        for _ in 0..MAX_ATTEMPTS {
            let now = self.generation(n);
            let stack_slot = self.scalar_slot();
            self.store(stack_slot, 0, 8, bit);
            let outdated = self.cmp(Cmp::Ne, now, bit);
            self.if_(outdated, |e| {
                e.withdraw(counter);
                e.announce_copy(n, now);
                e.store(stack_slot, 0, 8, now);
            });
            bit = self.load(stack_slot, 0, U64);
            counter = self.counter(n, bit);
        }
        ElementUpdate { map: self.one_of(id, bit), announced: Some(counter) }
    }

    /// Iterates over all elements of the script's map with this number by a helper; `call` receives the map. For two copies,
    /// the two calls must not be merged: the verifier requires one map for each call.
    pub fn over_script_map(&mut self, id: usize, mut call: impl FnMut(&mut Self, PointerValue<'c>) -> IntValue<'c>) -> IntValue<'c> {
        let Some(n) = self.double(id) else {
            let map = self.map(&first(id));
            return call(self, map);
        };
        let bit = self.generation(n);
        let stack_slot = self.scalar_slot();
        let branch = self.begin_if(bit);
        for (i, name) in [second(id), first(id)].iter().enumerate() {
            if i == 1 {
                self.else_(&branch);
            }
            let map = self.map(name);
            let r = self.scoped(|s| s.keeps_calls_separate = true, |e| call(e, map));
            self.store(stack_slot, 0, 8, r);
        }
        self.end_if(branch);
        self.load(stack_slot, 0, U64)
    }

    /// The current copy: 0 or 1.
    fn generation(&mut self, n: u32) -> IntValue<'c> {
        let word = self.state(std::mem::offset_of!(State, generations));
        let word = self.load_volatile(word, U64);
        let bit = self.shr(word, self.int(n.into()), false);
        self.and(bit, self.int(1))
    }

    fn one_of(&mut self, id: usize, bit: IntValue<'c>) -> PointerValue<'c> {
        let (a, b) = (self.map(&first(id)), self.map(&second(id)));
        let set = self.cmp_bit(Cmp::Ne, bit, self.int(0));
        ok(self.b.build_select(set, b, a, "")).into_pointer_value()
    }

    fn counter(&mut self, n: u32, bit: IntValue<'c>) -> PointerValue<'c> {
        let counters = self.state(std::mem::offset_of!(State, changing) + 16 * n as usize);
        self.offset_by(counters, self.shl(bit, self.int(3)))
    }

    fn announce_copy(&mut self, n: u32, bit: IntValue<'c>) -> PointerValue<'c> {
        let counter = self.counter(n, bit);
        self.ordered_add(counter, 1);
        counter
    }

    fn withdraw(&mut self, counter: PointerValue<'c>) {
        self.ordered_add(counter, u64::MAX);
    }

    /// Adds to the number of running sleepable programs ([`State::sleepers`]).
    pub(super) fn count_sleeper(&mut self, more: u64) {
        let counter = self.state(std::mem::offset_of!(State, sleepers));
        self.ordered_add(counter, more);
    }

    /// Adds to a counter, as a full memory barrier.
    fn ordered_add(&mut self, counter: PointerValue<'c>, more: u64) {
        let more = self.int(more);
        if !self.target.atomic_fetch.holds() {
            self.atomic_add(counter, more);
            return;
        }
        // An atomic operation that returns the old value is a full barrier; one that does not is not (for example on ARM).
        let old = ok(self.b.build_atomicrmw(AtomicRMWBinOp::Add, counter, more, AtomicOrdering::SequentiallyConsistent));
        self.opaque(old);
    }

    /// The current number of elements in the script's map with this number.
    pub fn elements(&mut self, id: usize) -> IntValue<'c> {
        self.over_script_map(id, |e, map| e.count_elements(map))
    }
}

/// The name of the first copy in the object.
fn first(id: usize) -> String {
    format!("map_{id}")
}

/// The name of the second copy, by which the loader finds it.
pub fn second(id: usize) -> String {
    format!("map_{id}_second")
}
