//! rbt's own programs, which track the followed processes.

use super::ScriptCx;
use crate::emit::TaskOffsets;
use crate::system::{TargetInfo, TypeName};
use crate::types::Type;

impl ScriptCx<'_, '_> {
    /// The programs that follow processes, each with its raw tracepoint, if the script needs them.
    pub(super) fn followers(&self) -> Vec<(String, String)> {
        if !self.cx.asks_followed() {
            return Vec::new();
        }
        let Some(of) = offsets(self.env.sys) else { return Vec::new() };
        let named = |tracepoint: &str| (format!("follow_{tracepoint}"), tracepoint.to_owned());
        let (fork, exit) = (named("sched_process_fork"), named("sched_process_exit"));
        self.cx.follow_fork(&fork.0, of);
        self.cx.follow_exit(&exit.0, of);
        vec![fork, exit]
    }
}

/// None where the kernel has no BTF.
fn offsets(sys: &dyn TargetInfo) -> Option<TaskOffsets> {
    let structure = |name| if let Type::Struct(id) = sys.type_named(TypeName::Struct, name)? { Some(id) } else { None };
    let (task, signal) = (structure("task_struct")?, structure("signal_struct")?);
    Some(TaskOffsets {
        tgid: sys.member(&task, "tgid")?.offset,
        signal: sys.member(&task, "signal")?.offset,
        live: sys.member(&signal, "live")?.offset,
    })
}
