//! Loops check periodically whether they must end. A flag ([`Builder::interrupted`]) is not enough: the thread that sets it may
//! be waiting for the CPU that the program occupies, or for the end of the interrupt in which the program runs.

use inkwell::values::{IntValue, PointerValue};

use super::shared::State;
use super::{Builder, Cmp, Helper};
use crate::types::{Int, Space};

const U64: Int = Int { bytes: 8, signed: false };

/// The number of iterations between two checks: a power of two. They take tens of microseconds.
const ITERATIONS: u64 = 1 << 12;
/// Time limit in nanoseconds, from the first check, for the loops of a program that interrupts other code. While it
/// runs, its CPU does nothing else. Without interrupts, other CPUs wait as soon as they need that CPU.
const MAX_NS: u64 = 1_000_000_000;
/// Bytes of memory for the iterations so far, and for the time at which they must end.
const SIZE: u32 = 16;
const END: u32 = 8;

/// The signals that request the end of rbt: see [`crate::runtime`].
const ENDING: u64 = (1 << (libc::SIGINT - 1)) | (1 << (libc::SIGTERM - 1));
/// By this signal, the kernel ends all threads of a process.
const KILLING: u64 = 1 << (libc::SIGKILL - 1);

/// Offsets of a task's pending signals, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct SignalOffsets {
    /// `task_struct.signal`
    pub signal: u32,
    /// `signal_struct.shared_pending.signal`
    pub process: u32,
    /// `task_struct.pending.signal`
    pub thread: u32,
}

/// When the loops of a program must end, other than by the flag.
#[derive(Clone, Copy, Debug)]
pub enum LoopLimit {
    /// The time limit is reached.
    Clock,
    /// rbt runs the program itself, and has a pending signal. The offsets are unknown without BTF.
    Signals(Option<SignalOffsets>),
}

impl<'c> Builder<'_, 'c> {
    /// Reserves scratch memory for the state of [`Builder::loop_limit_reached`], and returns its offset.
    pub fn alloc_loop_state(&mut self) -> u32 {
        self.alloc_scratch(SIZE)
    }

    /// Copies that state from one offset in scratch memory to another: a function continues with the state of its
    /// caller. Without a source, the state is initialized.
    pub fn copy_loop_state(&mut self, from: Option<u32>, to: Option<u32>) {
        let Some(to) = to else { return };
        for word in [0, END] {
            let value = match from {
                Some(from) => {
                    let from = self.scratch_at(from);
                    self.load(from, word, U64)
                }
                None => self.int(0),
            };
            let to = self.scratch_at(to);
            self.store(to, word, 8, value);
        }
    }

    /// Counts an iteration: must the loop end here?
    pub fn loop_limit_reached(&mut self, offset: u32, limit: LoopLimit) -> IntValue<'c> {
        let ptr = self.scratch_at(offset);
        let iterations = self.load(ptr, 0, U64);
        let iterations = self.add(iterations, self.int(1));
        self.store(ptr, 0, 8, iterations);
        let since = self.and(iterations, self.int(ITERATIONS - 1));
        let look = self.cmp(Cmp::Eq, since, self.int(0));
        self.choose(
            look,
            |e| match limit {
                LoopLimit::Clock => {
                    let done = e.overdue(ptr);
                    // the next iteration, perhaps of an enclosing loop, checks again
                    e.if_(done, |e| {
                        let before = e.int(ITERATIONS - 1);
                        e.store(ptr, 0, 8, before);
                    });
                    done
                }
                LoopLimit::Signals(of) => of.map_or(e.int(0), |of| e.signaled(of)),
            },
            |e| e.int(0),
        )
    }

    /// The first call sets the deadline.
    fn overdue(&mut self, ptr: PointerValue<'c>) -> IntValue<'c> {
        let now = self.call(Helper::KtimeGetNs, &[]);
        let end = self.load(ptr, END, U64);
        let later = self.add(now, self.int(MAX_NS));
        self.choose(
            end,
            |e| e.cmp(Cmp::Ugt, now, end),
            |e| {
                e.store(ptr, END, 8, later);
                e.int(0)
            },
        )
    }

    /// Does the current process have a pending signal that ends a run? Its handler, which may not run before the
    /// program ends, sets the flag again.
    fn signaled(&mut self, of: SignalOffsets) -> IntValue<'c> {
        let task = self.call(Helper::GetCurrentTask, &[]);
        let addr = self.add(task, self.int(of.thread.into()));
        let thread = self.read_int(Space::Kernel, addr, U64);
        let thread = self.and(thread, self.int(KILLING));
        let addr = self.add(task, self.int(of.signal.into()));
        let signal = self.read_int(Space::Kernel, addr, U64);
        let addr = self.add(signal, self.int(of.process.into()));
        let process = self.read_int(Space::Kernel, addr, U64);
        let process = self.and(process, self.int(ENDING | KILLING));
        let either = self.or(thread, process);
        let signaled = self.cmp(Cmp::Ne, either, self.int(0));
        self.if_(signaled, |e| {
            let (flag, one) = (e.state(std::mem::offset_of!(State, interrupted)), e.int(1));
            e.store(flag, 0, 8, one);
        });
        signaled
    }
}
