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

/// A change of an element that is under way.
struct Change<'c> {
    map: PointerValue<'c>,
    announced: Option<PointerValue<'c>>,
}

impl CodegenCx<'_> {
    /// Declares the second of the script's map of this number; false where there are as many as can be.
    pub fn double_script_map(&self, id: usize, def: MapDef) -> bool {
        let n = self.doubles.borrow().len();
        if n >= MOMENTS {
            return false;
        }
        self.declare_map(&second(id), def);
        self.doubles.borrow_mut().insert(id, n as u32);
        true
    }

    /// Which of those that are there twice it is.
    pub fn double(&self, id: usize) -> Option<u32> {
        self.doubles.borrow().get(&id).copied()
    }
}

impl<'c> Builder<'_, 'c> {
    /// The script's map of this number; of one that is there twice, the one that is written to now.
    pub fn script_map(&mut self, id: usize) -> PointerValue<'c> {
        match self.double(id) {
            None => self.map(&first(id)),
            Some(n) => {
                let bit = self.generation(n);
                self.one_of(id, bit)
            }
        }
    }

    /// Has `body` change an element of the script's map of this number, which it gets.
    pub fn change<T>(&mut self, id: usize, body: impl FnOnce(&mut Self, PointerValue<'c>) -> T) -> T {
        let change = self.begin_change(id);
        let made = body(self, change.map);
        if let Some(counter) = change.announced {
            self.take_back(counter);
        }
        made
    }

    fn begin_change(&mut self, id: usize) -> Change<'c> {
        let (Some(n), true) = (self.double(id), self.program.sleeps_on(self)) else {
            return Change { map: self.script_map(id), announced: None };
        };
        // Announced and then found outdated: taken back, and announced anew. The bit is turned over once in tens of
        // milliseconds at most, so three times will do.
        const TRIES: usize = 3;
        let mut bit = self.generation(n);
        let mut counter = self.announce(n, bit);
        for _ in 0..TRIES {
            let now = self.generation(n);
            let home = self.scalar_home();
            self.store(home, 0, 8, bit);
            let outdated = self.cmp(Cmp::Ne, now, bit);
            self.if_(outdated, |e| {
                e.take_back(counter);
                e.announce(n, now);
                e.store(home, 0, 8, now);
            });
            bit = self.load(home, 0, U64);
            counter = self.counter(n, bit);
        }
        Change { map: self.one_of(id, bit), announced: Some(counter) }
    }

    /// Has a helper go over all elements of the script's map of this number: `call` gets the map. Where there are two, the
    /// two calls stay two: the verifier wants one map for each.
    pub fn over_script_map(&mut self, id: usize, mut call: impl FnMut(&mut Self, PointerValue<'c>) -> IntValue<'c>) -> IntValue<'c> {
        let Some(n) = self.double(id) else {
            let map = self.map(&first(id));
            return call(self, map);
        };
        let bit = self.generation(n);
        let home = self.scalar_home();
        let branch = self.begin_if(bit);
        for (i, name) in [second(id), first(id)].iter().enumerate() {
            if i == 1 {
                self.else_(&branch);
            }
            let map = self.map(name);
            let r = self.scoped(|s| s.apart = true, |e| call(e, map));
            self.store(home, 0, 8, r);
        }
        self.end_if(branch);
        self.load(home, 0, U64)
    }

    /// 0 or 1.
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

    fn announce(&mut self, n: u32, bit: IntValue<'c>) -> PointerValue<'c> {
        let counter = self.counter(n, bit);
        self.ordered_add(counter, 1);
        counter
    }

    fn take_back(&mut self, counter: PointerValue<'c>) {
        self.ordered_add(counter, u64::MAX);
    }

    /// Adds to the number of programs at work that may sleep ([`State::sleepers`]).
    pub(super) fn count_sleeper(&mut self, more: u64) {
        let counter = self.state(std::mem::offset_of!(State, sleepers));
        self.ordered_add(counter, more);
    }

    /// Adds, in order with all around it.
    fn ordered_add(&mut self, counter: PointerValue<'c>, more: u64) {
        let more = self.int(more);
        if !self.target.fetches {
            self.atomic_add(counter, more);
            return;
        }
        // One that gives back what was there is ordered with all around it; the plain one is not (on ARM, say).
        let old = ok(self.b.build_atomicrmw(AtomicRMWBinOp::Add, counter, more, AtomicOrdering::SequentiallyConsistent));
        self.opaque(old);
    }

    /// How many elements the script's map of this number holds now.
    pub fn elements(&mut self, id: usize) -> IntValue<'c> {
        self.over_script_map(id, |e, map| e.count_elements(map))
    }
}

/// The names of the two in the object.
fn first(id: usize) -> String {
    format!("map_{id}")
}

/// See `first`; the loader finds it by this.
pub fn second(id: usize) -> String {
    format!("map_{id}_second")
}
