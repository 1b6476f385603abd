//! The machine: its answers, its CPU, its cgroups, users and privileges.

pub mod arch;
pub mod cgroup;
pub mod constants;
pub mod container;
pub mod glob;
pub mod kernel_only;
pub mod kubernetes;
pub mod live;
pub mod operands;
pub mod perf;
pub mod procfs;
pub mod programs;
pub mod rights;
pub mod users;

/// The name of this machine: in a pod that of the node, because the pod's own name would say nothing about the machine.
pub fn host_name() -> String {
    let node = kubernetes::node_name(&|name| std::env::var(name).ok());
    node.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned())
}
