//! rbt's own programs, which track the followed processes and Python interpreters.

use std::sync::Arc;

use super::ScriptCx;
use super::artifact::Follower;
use crate::emit::{SignalOffsets, TaskOffsets};
use crate::system::{TargetInfo, TypeName};
use crate::types::{Struct, Type};

impl ScriptCx<'_, '_> {
    /// The programs that follow processes and their interpreters, each with its raw tracepoint, if the script needs them.
    pub(super) fn followers(&self) -> Vec<Follower> {
        if !self.cx.uses_followed_map() && !self.cx.uses_python() {
            return Vec::new();
        }
        let Some(offsets_of_task) = offsets(self.env.sys) else { return Vec::new() };
        let named = |follows: bool, tracepoint: &str| {
            let what = if follows { "follow" } else { "python" };
            Follower { function: format!("{what}_{tracepoint}"), tracepoint: tracepoint.to_owned(), follows }
        };
        let mut programs = Vec::new();
        if self.cx.uses_followed_map() {
            let (fork, exit) = (named(true, "sched_process_fork"), named(true, "sched_process_exit"));
            self.cx.follow_fork(&fork.function, offsets_of_task);
            self.cx.follow_exit(&exit.function, offsets_of_task);
            programs.extend([fork, exit]);
        }
        if self.cx.uses_python() {
            let (fork, exit) = (named(false, "sched_process_fork"), named(false, "sched_process_exit"));
            self.cx.python_fork(&fork.function, offsets_of_task);
            self.cx.python_exit(&exit.function, offsets_of_task);
            programs.extend([fork, exit]);
        }
        programs
    }
}

/// None if the kernel has no BTF.
fn offsets(sys: &dyn TargetInfo) -> Option<TaskOffsets> {
    let (task, signal) = (structure("task_struct", sys)?, structure("signal_struct", sys)?);
    Some(TaskOffsets {
        tgid: sys.member(&task, "tgid")?.offset,
        signal: sys.member(&task, "signal")?.offset,
        live: sys.member(&signal, "live")?.offset,
    })
}

/// None if the kernel has no BTF.
pub(super) fn signal_offsets(sys: &dyn TargetInfo) -> Option<SignalOffsets> {
    let (task, signal, pending) = (structure("task_struct", sys)?, structure("signal_struct", sys)?, structure("sigpending", sys)?);
    let set = sys.member(&pending, "signal")?.offset;
    Some(SignalOffsets {
        signal: sys.member(&task, "signal")?.offset,
        process: sys.member(&signal, "shared_pending")?.offset + set,
        thread: sys.member(&task, "pending")?.offset + set,
    })
}

fn structure(name: &str, sys: &dyn TargetInfo) -> Option<Arc<Struct>> {
    if let Type::Struct(structure) = sys.type_named(TypeName::Struct, name)? { Some(structure) } else { None }
}
