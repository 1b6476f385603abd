//! Checks what the command line requires of the machine: privileges, a process, a cgroup.

use crate::cli::Run;
use crate::failure::Failure;
use crate::runtime;
use crate::settings::CgroupFilter;
use crate::system::machine::{cgroup, container, procfs};

/// Checked before loading, because the kernel's error would be less clear.
pub(crate) fn require_privileges() -> Result<(), Failure> {
    match runtime::missing_privileges() {
        Some(text) => Err(Failure::from_text(&text).code("no-permission")),
        None => Ok(()),
    }
}

pub(crate) fn require_process(option: &str, pid: u32) -> Result<(), Failure> {
    // A thread that is not a process has a directory too, but is not listed: its Tgid differs.
    let status = std::fs::read_to_string(procfs::file(pid, "status"));
    match status {
        Ok(text) if text.contains(&format!("\nTgid:\t{pid}\n")) => Ok(()),
        Ok(_) => Err(Failure::new(format!("{option} {pid}: this is a thread, not a process"))
            .code("no-process")
            .help("use the ID of its process: Tgid in /proc/PID/status")),
        Err(_) => Err(Failure::new(format!("{option} {pid}: there is no such process"))
            .code("no-process")
            .help("`pgrep NAME` finds the ID of a process")),
    }
}

/// The cgroup that limits the run.
pub(crate) fn require_cgroup(run: &Run) -> Result<Option<CgroupFilter>, Failure> {
    let found = match (&run.cgroup, &run.container) {
        (Some(path), _) => cgroup::find(path),
        (None, Some(name)) => container::find(name),
        (None, None) => return Ok(None),
    };
    match found {
        Ok(found) => Ok(Some(CgroupFilter { id: found.id, path: found.path, level: found.level })),
        Err(missing) => Err(Failure { help: missing.help, ..Failure::new(missing.what).code("no-cgroup") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_looked_up() {
        assert!(require_process("-p", std::process::id()).is_ok());
        assert!(require_process("-p", 4_194_000).unwrap_err().message.contains("no such process"));
    }
}
