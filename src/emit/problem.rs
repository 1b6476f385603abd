//! Failures that must not be silent. Programs count them in place, and send each as a record, so that it is reported among the
//! output of the same moment. Records of frequent failures would displace those of the script: each place sends a bounded
//! number per second and CPU, and none while more than a small part of the ring buffer is in use. Further failures are only
//! counted.

use std::mem::offset_of;

use inkwell::values::{IntValue, PointerValue};

use super::shared::{FAILURE_PERIOD_SHIFT, FAILURES_SECTION, Failures, LoadConstants, MAX_FAILURE_RECORDS};
use super::{Builder, Cmp, Helper};
use crate::diag::Span;
use crate::types::Int;

/// A failure that programs report: a place in the script, and the operation that can fail there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The helper that failed, or none.
    pub helper: Option<&'static str>,
    /// The failure, if it is not that of a helper.
    pub text: String,
    /// The place.
    pub span: Span,
}

impl<'c> Builder<'_, 'c> {
    /// Which failures are reported here: see [`CodegenOptions`](super::CodegenOptions).
    pub fn warning_level(&self) -> u8 {
        if self.program.quiet { 0 } else { self.options.warning_level }
    }

    /// Reports a helper that returned an error, if failures of this level are reported: 1 for those that lose
    /// something, 2 for reads that fall back to zero.
    pub fn check(&mut self, helper: Helper, returned: IntValue<'c>, level: u8) {
        if level >= 2 && self.options.counts_unread {
            let failed = self.cmp(Cmp::Slt, returned, self.int(0));
            self.if_(failed, Self::count_unread);
        }
        if level > self.warning_level() {
            return;
        }
        let problem = self.new_problem(helper);
        let failed = self.cmp(Cmp::Slt, returned, self.int(0));
        self.if_(failed, |e| e.report(problem, returned));
    }

    /// The number of the failures of this helper at this place of the script.
    pub(super) fn new_problem(&self, helper: Helper) -> IntValue<'c> {
        self.add_problem(Problem { helper: Some(helper.name()), text: String::new(), span: self.scope.span })
    }

    fn add_problem(&self, problem: Problem) -> IntValue<'c> {
        let mut problems = self.problems.borrow_mut();
        problems.push(problem);
        self.int(problems.len() as u64 - 1)
    }

    /// Reports a helper that found nothing.
    pub fn failed(&mut self, helper: Helper) {
        let (problem, zero) = (self.new_problem(helper), self.int(0));
        self.report(problem, zero);
    }

    /// Reports a failure that has a text, also without warnings: it remains part of JSON.
    pub fn problem(&mut self, text: &str) {
        if self.program.quiet {
            return;
        }
        let problem = self.add_problem(Problem { helper: None, text: text.into(), span: self.scope.span });
        let zero = self.int(0);
        self.report(problem, zero);
    }

    /// Counts a failure with this number in `problems` on this CPU, keeps the helper's return value, and sends a record of it.
    pub(super) fn report(&mut self, problem: IntValue<'c>, returned: IntValue<'c>) {
        let name = if self.program.overlaps() { "count_failure_atomic" } else { "count_failure" };
        self.outlined(name, &[problem, returned], |e, args| {
            let (Some(&problem), Some(&returned)) = (args.first(), args.get(1)) else { return };
            const SIZE: u64 = size_of::<Failures>() as u64;
            let all = e.data_global("failures", FAILURES_SECTION, SIZE as u32);
            let cpu = e.cpu();
            let (cpu, problem) = (e.opaque(cpu), e.opaque(problem));
            let (cpus, problems) = (e.start(offset_of!(LoadConstants, cpus)), e.start(offset_of!(LoadConstants, problems)));
            let known = e.cmp(Cmp::Ult, cpu, cpus);
            e.if_(known, |e| {
                // the verifier checks this function separately, for any number
                let known = e.cmp(Cmp::Ult, problem, problems);
                e.if_(known, |e| {
                    // a shift instead of a product: for the product of a known and an unknown number, the verifier of
                    // Linux 6.1 knows no bounds, and LLVM may swap the factors
                    let shift = e.start(offset_of!(LoadConstants, failures_shift));
                    let index = e.add(e.shl(problem, shift), cpu);
                    let ptr = e.offset_by(all, e.mul(index, e.int(SIZE)));
                    let ptr = e.rematerialize(ptr);
                    e.store(ptr, offset_of!(Failures, returned) as u32, 8, returned);
                    let one = e.int(1);
                    if e.program.overlaps() {
                        e.atomic_add(ptr, one);
                    } else {
                        let now = e.load(ptr, 0, Int { bytes: 8, signed: false });
                        let more = e.add(now, one);
                        e.store(ptr, offset_of!(Failures, count) as u32, 8, more);
                    }
                    e.limited(ptr, |e| e.send_failure(problem, returned));
                });
            });
        });
    }

    /// Does something at most [`MAX_FAILURE_RECORDS`] times per period. A program that interrupts another at this place may
    /// make it a few more.
    fn limited(&mut self, failures: PointerValue<'c>, send: impl FnOnce(&mut Self)) {
        const WORD: Int = Int { bytes: 8, signed: false };
        let (period, sent) = (offset_of!(Failures, period) as u32, offset_of!(Failures, sent) as u32);
        let now = self.call(Helper::KtimeGetNs, &[]);
        let now = self.shr(now, self.int(FAILURE_PERIOD_SHIFT.into()), false);
        let last = self.load(failures, period, WORD);
        let new = self.cmp(Cmp::Ne, now, last);
        self.if_(new, |e| {
            e.store(failures, period, 8, now);
            let zero = e.int(0);
            e.store(failures, sent, 8, zero);
        });
        let before = self.load(failures, sent, WORD);
        let few = self.cmp(Cmp::Ult, before, self.int(MAX_FAILURE_RECORDS));
        self.if_(few, |e| {
            let after = e.add(before, e.int(1));
            e.store(failures, sent, 8, after);
            send(e);
        });
    }
}
