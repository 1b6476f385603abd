//! Gates of probes: user space lets only some of their runs pass. See `runtime/throttle.rs`.
//!
//! A run that passes has a weight, the number of runs for which it stands. Counts, sums and histograms use it
//! ([`Builder::weighted`]).

use std::mem::offset_of;

use super::mem::U64;
use super::shared::{GATES_SECTION, Gate, State};
use super::{Builder, Cmp, Helper, IntValue, PointerValue};

impl<'c> Builder<'_, 'c> {
    /// Ends the program unless the probe's gate lets this run pass. `refused` emits code for the path that ends.
    ///
    /// It decides at random, by a probability that depends on earlier runs only. So a run that passes with the probability
    /// 1/2^n stands for 2^n runs, and sums of such weights are right on average, whatever the runs count.
    pub fn pass_gate(&mut self, gate: u32, refused: &dyn Fn(&mut Self)) {
        let ptr = self.gate(gate);
        let leave = |e: &mut Self| {
            refused(e);
            e.ret(None);
        };
        let word = |e: &mut Self, of: usize| e.load_volatile(e.offset(ptr, of as u32), U64);
        let asked = word(self, offset_of!(Gate, shift));
        let closed = self.cmp(Cmp::Uge, asked, self.int(Gate::CLOSED));
        self.if_(closed, |e| {
            e.count_thinned();
            leave(e);
        });
        // the closer the passed runs are to using up the limit, the fewer pass
        let (passed, free) = (word(self, offset_of!(Gate, passed)), word(self, offset_of!(Gate, free)));
        let few = self.cmp(Cmp::Ult, passed, free);
        let more = self.choose(
            few,
            |e| e.int(0),
            |e| {
                let step = word(e, offset_of!(Gate, step));
                let steps = e.shr(e.sub(passed, free), step, false);
                e.add(steps, e.int(1))
            },
        );
        let most = self.int(Gate::MAX_SHIFT);
        let shift = self.add(asked, more);
        let over = self.cmp(Cmp::Ugt, shift, most);
        let shift = self.select(over, most, shift);
        let some = self.cmp(Cmp::Ne, shift, self.int(0));
        self.if_(some, |e| {
            let random = e.call(Helper::GetPrandomU32, &[]);
            let mask = e.sub(e.shl(e.int(1), shift), e.int(1));
            let others = e.and(random, mask);
            e.if_(others, |e| {
                e.count_sampled_out();
                leave(e);
            });
        });
        let one = self.int(1);
        self.atomic_add(self.offset(ptr, offset_of!(Gate, passed) as u32), one);
        self.count_ran();
        self.set_weight(shift);
    }

    /// Ends the program if the limit of events for this second is reached. `refused` emits code for the path that ends.
    pub fn pass_event(&mut self, refused: &dyn Fn(&mut Self)) {
        self.take_token(
            |_| (),
            |e| {
                refused(e);
                e.ret(None);
            },
        );
    }

    /// The same, unless user space has told that all runs of the probe have to pass.
    pub fn pass_event_unless_kept(&mut self, gate: u32, refused: &dyn Fn(&mut Self)) {
        let keeps = self.offset(self.gate(gate), offset_of!(Gate, keeps_events) as u32);
        let keeps = self.load_volatile(keeps, U64);
        let may_drop = self.cmp(Cmp::Eq, keeps, self.int(0));
        self.if_(may_drop, |e| e.pass_event(refused));
    }

    /// The same, unless this number says that the run belongs to an event that passed.
    pub fn pass_event_unless(&mut self, is_counted: IntValue<'c>) {
        let is_own = self.cmp(Cmp::Eq, is_counted, self.int(0));
        self.if_(is_own, |e| e.pass_event(&|_| ()));
    }

    /// Emits `then` for a record within the limit of events for this second.
    pub fn if_event_passes(&mut self, then: impl FnOnce(&mut Self)) {
        self.take_token(then, |_| ());
    }

    /// Takes a token for an event, or emits `none` if there is none. A run that finds no token only reads.
    fn take_token(&mut self, then: impl FnOnce(&mut Self), none: impl FnOnce(&mut Self)) {
        let tokens = self.state(offset_of!(State, event_tokens));
        let left = self.load_volatile(tokens, U64);
        let some_left = self.cmp(Cmp::Sgt, left, self.int(0));
        self.if_else(
            some_left,
            |e| {
                let one_less = e.int(u64::MAX);
                e.atomic_add(tokens, one_less);
                e.notify_if_awaited();
                then(e);
            },
            |e| {
                e.count_thinned();
                none(e);
            },
        );
    }

    pub(super) fn gate(&self, gate: u32) -> PointerValue<'c> {
        let size = size_of::<Gate>() as u32;
        let all = self.data_global("gates", GATES_SECTION, self.options.probes.max(gate + 1) * size);
        self.offset(all, gate * size)
    }
}
