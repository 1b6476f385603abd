//! The current task.

use inkwell::values::IntValue;

use super::{Builder, Helper};
use crate::types::Int;

const U64: Int = Int { bytes: 8, signed: false };

impl<'c> Builder<'_, 'c> {
    /// The IDs of the current task in the PID namespace of rbt: process ID << 32 | thread ID. 0 for a task that is not
    /// directly in it.
    pub fn ns_pid_tgid(&mut self) -> IntValue<'c> {
        self.ids_in(self.options.namespace)
    }

    /// The same in this namespace (device and inode), or in the initial one.
    pub fn ids_in(&mut self, namespace: Option<(u64, u64)>) -> IntValue<'c> {
        let Some((dev, ino)) = namespace else {
            return self.once("pid_tgid", |e| e.call(Helper::GetCurrentPidTgid, &[]));
        };
        self.once("ns_pid_tgid", |e| {
            // struct bpf_pidns_info: u32 pid (of the thread), u32 tgid
            let ptr = e.alloc_known("ns_pid_tgid", 8);
            let zero = e.int(0);
            e.store(ptr, 0, 8, zero);
            let (dev, ino, size) = (e.int(dev), e.int(ino), e.int(8));
            e.call(Helper::GetNsCurrentPidTgid, &[dev.into(), ino.into(), ptr.into(), size.into()]);
            e.load(ptr, 0, U64)
        })
    }
}
