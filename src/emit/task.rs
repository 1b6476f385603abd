//! The current task.

use std::mem::offset_of;

use inkwell::values::IntValue;

use super::shared::{IN_NAMESPACE, LoadConstants};
use super::{Builder, Cmp, Helper};
use crate::types::Int;

const U64: Int = Int { bytes: 8, signed: false };

impl<'c> Builder<'_, 'c> {
    /// The IDs of the current task in the PID namespace of rbt: process ID << 32 | thread ID. 0 for a task that is not
    /// directly in it.
    pub fn ns_pid_tgid(&mut self) -> IntValue<'c> {
        if !self.options.namespace_at_run {
            return self.ids_in(self.options.namespace);
        }
        let initial = self.ids_in(None);
        self.once("late_ns_pid_tgid", |e| {
            let is_inside = e.is_in_late_namespace();
            let ids = |e: &mut Self| {
                let (dev, ino) = (e.start(offset_of!(LoadConstants, namespace_dev)), e.start(offset_of!(LoadConstants, namespace_ino)));
                e.ids_in_namespace(dev, ino)
            };
            e.choose(is_inside, ids, |_| initial)
        })
    }

    /// Is rbt in a PID namespace other than the initial one? This is known when the program is loaded.
    fn is_in_late_namespace(&mut self) -> IntValue<'c> {
        let ino = self.start(offset_of!(LoadConstants, namespace_ino));
        self.cmp(Cmp::Ne, ino, self.int(0))
    }

    /// The same in this namespace (device and inode), or in the initial one.
    pub fn ids_in(&mut self, namespace: Option<(u64, u64)>) -> IntValue<'c> {
        let Some((dev, ino)) = namespace else {
            return self.once("pid_tgid", |e| e.call(Helper::GetCurrentPidTgid, &[]));
        };
        self.once("ns_pid_tgid", |e| e.ids_in_namespace(e.int(dev), e.int(ino)))
    }

    fn ids_in_namespace(&mut self, dev: IntValue<'c>, ino: IntValue<'c>) -> IntValue<'c> {
        // struct bpf_pidns_info: u32 pid (of the thread), u32 tgid
        let ptr = self.alloc_known("ns_pid_tgid", 8);
        self.store(ptr, 0, 8, self.int(0));
        let size = self.int(8);
        self.call(Helper::GetNsCurrentPidTgid, &[dev.into(), ino.into(), ptr.into(), size.into()]);
        self.load(ptr, 0, U64)
    }

    /// In a PID namespace, `then` gets the key of the current process by its number in that namespace.
    pub(super) fn if_in_namespace(&mut self, then: impl FnOnce(&mut Self, IntValue<'c>)) {
        let with_key = |e: &mut Self| {
            let key = e.namespace_key();
            then(e, key);
        };
        if self.options.namespace_at_run {
            let is_inside = self.is_in_late_namespace();
            self.if_(is_inside, with_key);
        } else if self.options.namespace.is_some() {
            with_key(self);
        }
    }

    /// In a PID namespace, a value from the key of the current process by its number in that namespace; otherwise 0.
    pub(super) fn of_namespace_key(&mut self, value: impl FnOnce(&mut Self, IntValue<'c>) -> IntValue<'c>) -> IntValue<'c> {
        let with_key = |e: &mut Self| {
            let key = e.namespace_key();
            value(e, key)
        };
        if self.options.namespace_at_run {
            let is_inside = self.is_in_late_namespace();
            return self.choose(is_inside, with_key, |e| e.int(0));
        }
        if self.options.namespace.is_some() { with_key(self) } else { self.int(0) }
    }

    fn namespace_key(&mut self) -> IntValue<'c> {
        let ids = self.ns_pid_tgid();
        let tgid = self.shr(ids, self.int(32), false);
        self.or(tgid, self.int(IN_NAMESPACE.into()))
    }
}
