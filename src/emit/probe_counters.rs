//! Counters of each probe: what it sent, and what it lost or failed to do.

use std::mem::offset_of;

use inkwell::values::IntValue;

use super::mem::U64;
use super::shared::{LoadConstants, ProbeCounters, State, TALLIES_SECTION};
use super::{Builder, Cmp};

/// `E2BIG` of errno(3), which a full hash map returns (`kernel/bpf/hashtab.c`).
const FULL: i64 = -7;

impl<'c> Builder<'_, 'c> {
    /// Counts a record to send.
    pub(super) fn count_sent(&mut self) {
        self.bump_counter(offset_of!(ProbeCounters, sent));
    }

    /// Counts a record that did not fit into the ring buffer.
    pub(super) fn count_dropped(&mut self) {
        let name = format!("count_dropped_{}", self.program.probe);
        self.outlined(&name, &[], |e, _| {
            e.bump_counter(offset_of!(ProbeCounters, dropped));
            e.notify_if_awaited();
        });
    }

    /// Counts a run that ends before the script's code starts.
    pub(super) fn count_missed(&mut self) {
        self.bump_counter(offset_of!(ProbeCounters, missed));
    }

    /// Counts a run that passed its gate.
    pub fn count_ran(&mut self) {
        self.bump_counter(offset_of!(ProbeCounters, ran));
        self.notify_if_awaited();
    }

    /// Counts a run that a limit dropped.
    pub(super) fn count_thinned(&mut self) {
        self.bump_counter(offset_of!(ProbeCounters, thinned));
    }

    /// Counts a run that the weights of others stand for.
    pub(super) fn count_sampled_out(&mut self) {
        self.bump_counter(offset_of!(ProbeCounters, sampled_out));
    }

    /// Counts a map update that failed, by the reason.
    pub fn refused(&mut self, returned: IntValue<'c>) {
        let failed = self.cmp(Cmp::Slt, returned, self.int(0));
        self.if_(failed, |e| {
            let name = format!("count_refused_{}", e.program.probe);
            e.outlined(&name, &[returned], |e, args| {
                let Some(&returned) = args.first() else { return };
                let full = e.cmp(Cmp::Eq, returned, e.int(FULL as u64));
                e.if_else(
                    full,
                    |e| e.bump_counter(offset_of!(ProbeCounters, refused)),
                    |e| e.bump_counter(offset_of!(ProbeCounters, unstored)),
                );
            });
        });
    }

    /// Counts a stack that was stored in its table or refused, by the result of the update.
    pub fn stack_kept(&mut self, returned: IntValue<'c>) {
        let failed = self.cmp(Cmp::Slt, returned, self.int(0));
        self.if_else(
            failed,
            |e| {
                let name = format!("count_unkept_{}", e.program.probe);
                e.outlined(&name, &[returned], |e, args| {
                    let Some(&returned) = args.first() else { return };
                    let full = e.cmp(Cmp::Eq, returned, e.int(FULL as u64));
                    e.if_else(
                        full,
                        |e| e.bump_counter(offset_of!(ProbeCounters, unkept)),
                        |e| e.bump_counter(offset_of!(ProbeCounters, unstored)),
                    );
                });
            },
            |e| {
                let kept = e.state(offset_of!(State, stacks));
                let one = e.int(1);
                e.atomic_add(kept, one);
                e.notify_if_stacks_awaited();
            },
        );
    }

    /// Counts text that is longer than the settings allow: `over` says whether it is.
    pub fn cut(&mut self, over: IntValue<'c>) {
        self.if_(over, |e| e.count_out_of_line("cut", offset_of!(ProbeCounters, cut)));
    }

    /// Counts a read of memory that failed.
    pub(super) fn count_unread(&mut self) {
        self.count_out_of_line("unread", offset_of!(ProbeCounters, unread));
    }

    /// The same in a separate function, for rare events.
    fn count_out_of_line(&mut self, name: &str, what: usize) {
        let name = format!("count_{name}_{}", self.program.probe);
        self.outlined(&name, &[], |e, _| e.bump_counter(what));
    }

    /// Adds one to a member of this probe's [`ProbeCounters`] on this CPU.
    fn bump_counter(&mut self, what: usize) {
        let probes = self.options.probes.max(self.program.probe + 1);
        let of_cpu = probes * size_of::<ProbeCounters>() as u32;
        let all = self.data_global("tallies", TALLIES_SECTION, of_cpu);
        let cpu = self.cpu();
        let cpu = self.opaque(cpu);
        let cpus = self.start(offset_of!(LoadConstants, cpus));
        let known = self.cmp(Cmp::Ult, cpu, cpus);
        self.if_(known, |e| {
            let ptr = e.offset_by(all, e.mul(cpu, e.int(of_cpu.into())));
            let ptr = e.offset(ptr, e.program.probe * size_of::<ProbeCounters>() as u32 + what as u32);
            let one = e.int(1);
            if e.program.overlaps() {
                return e.atomic_add(ptr, one);
            }
            // a plain addition saves some 20 ns
            let now = e.load(ptr, 0, U64);
            let more = e.add(now, one);
            e.store(ptr, 0, 8, more);
        });
    }
}
