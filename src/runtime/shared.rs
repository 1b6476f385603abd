//! Memory shared between running programs and this process.
#![allow(unsafe_code)] // memory shared with programs

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::codegen::artifact::{
    CUT_REASONS, FAILURES_SECTION, Failures, GATES_SECTION, Gate, ProbeCounters, STATE_SECTION, State, TALLIES_SECTION,
};

/// A gate's rate is first halved after some runs, and then after each of this many parts of their number.
const STEPS: u64 = 8;

/// [`State`], [`ProbeCounters`]s and [`Failures`], mapped.
pub(super) struct Shared {
    state: *const State,
    /// Used if the object has no state, so that there is always memory to read.
    _own: Option<Box<State>>,
    /// The counters of all probes, for each CPU; their total number, and the number per CPU.
    counters: *const ProbeCounters,
    length: usize,
    counters_per_cpu: usize,
    /// The failures on all CPUs, for each problem; their total number.
    failures: *const Failures,
    failure_count: usize,
    /// By probe.
    gates: *const Gate,
    gate_count: usize,
}

impl Shared {
    /// Initial state without shared memory. `probes` is the number of [`ProbeCounters`] per CPU.
    pub fn none(probes: usize) -> Self {
        let state = Box::<State>::default();
        Self {
            state: &*state,
            _own: Some(state),
            counters: ptr::null(),
            length: 0,
            counters_per_cpu: probes.max(1),
            failures: ptr::null(),
            failure_count: 0,
            gates: ptr::null(),
            gate_count: 0,
        }
    }

    /// Sets the section of this name. False if it is not mapped, or too small.
    ///
    /// # Safety
    ///
    /// `mapped` is null, or points to `size` bytes that outlive this object.
    pub unsafe fn set(&mut self, name: &str, mapped: *mut c_void, size: usize) -> bool {
        if mapped.is_null() {
            return false;
        }
        match name {
            STATE_SECTION if size < size_of::<State>() => return false,
            STATE_SECTION => (self.state, self._own) = (mapped.cast_const().cast(), None),
            TALLIES_SECTION => (self.counters, self.length) = (mapped.cast_const().cast(), size / size_of::<ProbeCounters>()),
            GATES_SECTION => {
                (self.gates, self.gate_count) = (mapped.cast_const().cast(), size / size_of::<Gate>());
                (0..self.gate_count).for_each(|gate| self.set_gate(gate, 0, u64::MAX));
            }
            FAILURES_SECTION => (self.failures, self.failure_count) = (mapped.cast_const().cast(), size / size_of::<Failures>()),
            _ => return false,
        }
        true
    }

    /// The same for use by another thread, as long as this object lives.
    pub fn flags(&self) -> Flags {
        Flags { state: self.state }
    }

    /// The sum of these probes' counters on all CPUs.
    pub fn probe_counters(&self, probes: &[usize]) -> ProbeCounters {
        let cpus = self.length / self.counters_per_cpu;
        let mut sum = ProbeCounters::default();
        for at in
            (0..cpus).flat_map(|cpu| probes.iter().filter(|p| **p < self.counters_per_cpu).map(move |p| cpu * self.counters_per_cpu + p))
        {
            self.add(&mut sum, at);
        }
        sum
    }

    /// The sum of all counters.
    pub fn total_counters(&self) -> ProbeCounters {
        let mut sum = ProbeCounters::default();
        (0..self.length).for_each(|at| self.add(&mut sum, at));
        sum
    }

    /// `at` is less than `length`.
    fn add(&self, sum: &mut ProbeCounters, index: usize) {
        // SAFETY: within the mapping, and for the rest as below
        let counters = unsafe { self.counters.add(index) };
        let load = |of: *const u64| unsafe { AtomicU64::from_ptr(of.cast_mut()) }.load(Ordering::Relaxed);
        unsafe {
            sum.sent += load(&raw const (*counters).sent);
            sum.dropped += load(&raw const (*counters).dropped);
            sum.missed += load(&raw const (*counters).missed);
            sum.refused += load(&raw const (*counters).refused);
            sum.unstored += load(&raw const (*counters).unstored);
            sum.cut += load(&raw const (*counters).cut);
            sum.unread += load(&raw const (*counters).unread);
            sum.unkept += load(&raw const (*counters).unkept);
            sum.ran += load(&raw const (*counters).ran);
            sum.thinned += load(&raw const (*counters).thinned);
            sum.sampled_out += load(&raw const (*counters).sampled_out);
        }
    }

    /// The failures at this place of the script, on each CPU. `problems` is the total number of places.
    pub fn failures(&self, problem: usize, problems: usize) -> Vec<Failures> {
        let cpus = self.failure_count / problems.max(1);
        let ours = (problem * cpus..(problem + 1) * cpus).filter(|at| *at < self.failure_count);
        let load = |at: usize| {
            // SAFETY: within the mapping, and for the rest as below
            let (count, returned) = unsafe {
                let failures = self.failures.add(at);
                (&raw const (*failures).count, &raw const (*failures).returned)
            };
            let count = unsafe { AtomicU64::from_ptr(count.cast_mut()) }.load(Ordering::Acquire);
            let returned = unsafe { AtomicI64::from_ptr(returned.cast_mut()) }.load(Ordering::Relaxed);
            Failures { count, returned, ..Failures::default() }
        };
        ours.map(load).collect()
    }

    fn state(&self) -> &State {
        // SAFETY: the mapping lives as long as the object, which `Loaded` owns too; all fields are atomic
        unsafe { &*self.state }
    }

    /// Makes programs return at once after this.
    pub fn stop(&self) {
        self.state().stopped.store(1, Ordering::SeqCst);
    }

    /// Undoes [`Shared::stop`].
    pub fn go(&self) {
        self.state().stopped.store(0, Ordering::SeqCst);
    }

    /// Loops of programs end at their next iteration, and so do the programs; or, if false, they continue.
    pub fn interrupt(&self, now: bool) {
        self.flags().interrupt(now);
    }

    /// Have the programs been stopped?
    pub fn stopped(&self) -> bool {
        self.state().stopped.load(Ordering::SeqCst) != 0
    }

    /// See [`State::ended`]: the status, if a program has ended the run.
    pub fn ended(&self) -> Option<u8> {
        self.flags().ended()
    }

    /// Resets the end that a program requested.
    pub fn reset_end(&self) {
        self.state().ended.store(0, Ordering::SeqCst);
    }

    /// Which copy of a double-buffered map is written to: 0 or 1.
    pub fn generation(&self, bit: u32) -> usize {
        (self.state().generations.load(Ordering::SeqCst) >> bit & 1) as usize
    }

    /// Programs write to the other buffer after this.
    pub fn switch(&self, bit: u32) {
        self.state().generations.fetch_xor(1 << bit, Ordering::SeqCst);
    }

    /// Sets a probe's sampling rate (one in two to the power of `shift` runs), and the number of runs that pass at this rate
    /// until the next call. After them, the rate is halved again and again.
    pub fn set_gate(&self, gate: usize, shift: u64, free: u64) {
        if gate < self.gate_count {
            // SAFETY: within the mapping, which lives as long as the object; its fields are atomic
            let gate = unsafe { &*self.gates.add(gate) };
            gate.shift.store(shift, Ordering::Relaxed);
            gate.free.store(free, Ordering::Relaxed);
            gate.step.store((free / STEPS).checked_ilog2().unwrap_or(0).into(), Ordering::Relaxed);
            gate.passed.store(0, Ordering::Relaxed);
        }
    }

    /// Tells whether the limit of events may drop runs of a probe.
    pub fn set_keeps_events(&self, gate: usize, keeps: bool) {
        if gate < self.gate_count {
            // SAFETY: as above
            let gate = unsafe { &*self.gates.add(gate) };
            gate.keeps_events.store(keeps.into(), Ordering::Relaxed);
        }
    }

    /// Notes that entries of calls are not traced for some time.
    pub fn refuse_entries(&self, gate: usize) {
        if gate < self.gate_count {
            // SAFETY: as above
            unsafe { &*self.gates.add(gate) }.has_refused.store(1, Ordering::Relaxed);
        }
    }

    /// How many more events may pass. Negative if several programs took the last one at the same time.
    pub fn event_tokens(&self) -> i64 {
        self.state().event_tokens.load(Ordering::Relaxed).cast_signed()
    }

    /// Lets this many more events pass.
    pub fn add_event_tokens(&self, tokens: u64) {
        self.state().event_tokens.fetch_add(tokens, Ordering::Relaxed);
    }

    /// The next run that a limit concerns and the next lost record wake this process.
    pub fn await_notice(&self) {
        self.state().awaited.store(1, Ordering::SeqCst);
    }

    /// The next stack wakes this process if there are this many.
    pub fn await_stacks(&self, stacks: u64) {
        self.state().awaited_stacks.store(stacks, Ordering::SeqCst);
    }

    /// The number of running programs that may sleep.
    pub fn sleepers(&self) -> u64 {
        self.state().sleepers.load(Ordering::SeqCst)
    }

    /// See [`State::stacks`].
    pub fn stacks(&self) -> u64 {
        self.state().stacks.load(Ordering::SeqCst)
    }

    /// See [`State::cut_stacks`].
    pub fn cut_stacks(&self) -> [u64; CUT_REASONS] {
        std::array::from_fn(|i| self.state().cut_stacks.get(i).map_or(0, |of| of.load(Ordering::SeqCst)))
    }

    /// Number of unfinished changes by sleepable programs to one of the copies.
    pub fn changing(&self, bit: u32, generation: usize) -> u64 {
        let at = 2 * bit as usize + generation;
        self.state().changing.get(at).map_or(0, |n| n.load(Ordering::SeqCst))
    }
}

/// The part of [`Shared`] that the thread emptying the ring needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flags {
    state: *const State,
}

// SAFETY: only atomics are used
unsafe impl Send for Flags {}
// SAFETY: the same
unsafe impl Sync for Flags {}

impl Flags {
    fn state(&self) -> &State {
        // SAFETY: as in `Shared`
        unsafe { &*self.state }
    }

    /// Should the next record wake the reader?
    pub fn set_sleeps(&self, sleeps: bool) {
        // SeqCst: programs must see the flag before the ring is read
        self.state().reader_sleeps.store(sleeps.into(), Ordering::SeqCst);
    }

    /// Has a program told something since the last call? See [`State::noticed`].
    pub fn take_notice(&self) -> bool {
        self.state().noticed.swap(0, Ordering::SeqCst) != 0
    }

    /// See [`Shared::interrupt`].
    pub fn interrupt(&self, now: bool) {
        self.state().interrupted.store(now.into(), Ordering::SeqCst);
    }

    /// The address of [`State::interrupted`].
    pub fn interrupted(&self) -> *mut u64 {
        self.state().interrupted.as_ptr()
    }

    /// See [`State::ended`]: the status, if a program has ended the run.
    pub fn ended(&self) -> Option<u8> {
        let ended = self.state().ended.load(Ordering::SeqCst);
        (ended & State::ENDED != 0).then_some(ended as u8)
    }
}
