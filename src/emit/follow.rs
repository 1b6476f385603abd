//! The followed processes: the command of `-c` or the process of `-p`, and their descendants. A map holds their IDs.
//! The fork of a followed process adds an ID, and the exit of its last thread removes it, so a later change of parents
//! has no effect.

use inkwell::values::{IntValue, PointerValue};

use super::shared::{FOLLOWED, LoadConstants, MAX_FOLLOWED};
use super::{Builder, Cmp, CodegenCx, Helper, MapDef, MapKind, NO_PREALLOC, ProgramCx, ProgramType, SectionDef};
use crate::types::{Int, Space};

const U64: Int = Int { bytes: 8, signed: false };
const I32: Int = Int { bytes: 4, signed: true };

/// Offsets of a task's members in bytes.
#[derive(Clone, Copy, Debug)]
pub struct TaskOffsets {
    /// `task_struct.tgid`
    pub tgid: u32,
    /// `task_struct.signal`
    pub signal: u32,
    /// `signal_struct.live`
    pub live: u32,
}

impl<'c> CodegenCx<'c> {
    /// Does a program look up followed processes?
    pub fn uses_followed_map(&self) -> bool {
        self.maps.borrow().contains_key(FOLLOWED)
    }

    /// The program of the tracepoint `sched_process_fork`, whose arguments are the parent and the child.
    pub fn follow_fork(&self, name: &str, of: TaskOffsets) {
        let mut e = self.begin_program(name, SectionDef::of(ProgramType::RawTracepoint), &[], ProgramCx::default());
        let (parent, child) = (e.load_ctx(0, U64), e.load_ctx(8, U64));
        let parent = e.member(parent, of.tgid);
        let followed = e.is_followed(parent);
        let followed = e.or_initially_followed(followed);
        e.if_(followed, |e| {
            let child = e.member(child, of.tgid);
            // A new thread has the ID of its process.
            let other = e.cmp(Cmp::Ne, child, parent);
            e.if_(other, |e| {
                let (map, key, value) = (e.followed_map(), e.alloc(8), e.alloc(8));
                let one = e.int(1);
                e.store(key, 0, 4, child);
                e.store(value, 0, 8, one);
                let r = e.update(map, key, value);
                let failed = e.cmp(Cmp::Slt, r, e.int(0));
                e.if_(failed, |e| e.problem("a new process is not followed, because there are too many"));
            });
        });
        e.end_program(0);
    }

    /// The program of the tracepoint `sched_process_exit`.
    pub fn follow_exit(&self, name: &str, of: TaskOffsets) {
        self.forget_ended(name, self.followed_map(), of);
    }

    /// A program of the tracepoint `sched_process_exit`, whose argument is the task, that removes a process from a map by
    /// process ID when its last thread ends.
    pub(super) fn forget_ended(&self, name: &str, map: PointerValue<'c>, of: TaskOffsets) {
        let mut e = self.begin_program(name, SectionDef::of(ProgramType::RawTracepoint), &[], ProgramCx::default());
        let task = e.load_ctx(0, U64);
        e.return_unless_last_thread(task, of);
        let tgid = e.member(task, of.tgid);
        let key = e.alloc(8);
        e.store(key, 0, 4, tgid);
        e.delete(map, key);
        e.if_in_namespace(|e, id| {
            e.store(key, 0, 4, id);
            e.delete(map, key);
        });
        e.end_program(0);
    }

    fn followed_map(&self) -> PointerValue<'c> {
        let flags = if self.target.allocates_in_any_context.holds() { NO_PREALLOC } else { 0 };
        self.declare_map(FOLLOWED, MapDef { kind: MapKind::Hash, key_size: 4, value_size: 8, max_entries: MAX_FOLLOWED, flags })
    }
}

impl<'c> Builder<'_, 'c> {
    /// The ID of the current process in the initial namespace.
    pub fn tgid(&mut self) -> IntValue<'c> {
        let both = self.once("pid_tgid", |e| e.call(Helper::GetCurrentPidTgid, &[]));
        self.shr(both, self.int(32), false)
    }

    /// Returns if the current process is this process of rbt.
    pub fn return_if_own_process(&mut self) {
        let own = self.start(std::mem::offset_of!(LoadConstants, rbt_pid));
        let tgid = self.tgid();
        let ours = self.cmp(Cmp::Eq, tgid, own);
        self.if_(ours, |e| e.ret(None));
    }

    /// Is the current process followed? If none is, all are.
    pub fn followed(&mut self) -> IntValue<'c> {
        if self.options.follows_at_run {
            return self.once("followed", |e| {
                let follows = e.start(std::mem::offset_of!(LoadConstants, follows));
                let follows = e.cmp(Cmp::Ne, follows, e.int(0));
                e.choose(follows, Self::look_up_current, |e| e.int(1))
            });
        }
        if !self.options.follows_processes {
            return self.int(1);
        }
        self.once("followed", Self::look_up_current)
    }

    fn look_up_current(&mut self) -> IntValue<'c> {
        let tgid = self.tgid();
        let followed = self.is_followed(tgid);
        self.or_initially_followed(followed)
    }

    /// Returns if other threads of the task's process are still running.
    pub(super) fn return_unless_last_thread(&mut self, task: IntValue<'c>, of: TaskOffsets) {
        let addr = self.add(task, self.int(of.signal.into()));
        let signal = self.read_int(Space::Kernel, addr, U64);
        let live = self.member(signal, of.live);
        let more = self.cmp(Cmp::Ne, live, self.int(0));
        self.if_(more, |e| e.ret(None));
    }

    /// Reads an `int` member of a kernel structure.
    pub(super) fn member(&mut self, of: IntValue<'c>, offset: u32) -> IntValue<'c> {
        let addr = self.add(of, self.int(offset.into()));
        self.read_int(Space::Kernel, addr, I32)
    }

    /// Also true for the first followed processes. In a PID namespace, only their numbers in that namespace are known.
    fn or_initially_followed(&mut self, followed: IntValue<'c>) -> IntValue<'c> {
        if self.options.namespace.is_none() && !self.options.namespace_at_run {
            return followed;
        }
        // LLVM would merge the pointers of two lookups whose results are combined.
        self.choose(followed, |e| e.int(1), |e| e.of_namespace_key(Self::is_followed))
    }

    fn is_followed(&mut self, tgid: IntValue<'c>) -> IntValue<'c> {
        let (map, key) = (self.followed_map(), self.alloc(8));
        self.store(key, 0, 4, tgid);
        let found = self.call_ptr(Helper::MapLookupElem, &[map.into(), key.into()]);
        self.not_null(found)
    }
}
