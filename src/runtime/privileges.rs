//! What the kernel asks for before it loads a program, and which of it is missing.
#![allow(unsafe_code)]

use std::fs;

/// The kernel did not permit something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotPermitted {
    /// What was tried: `load the programs`.
    pub what: String,
    /// What is missing, and the remedy.
    pub missing: String,
}

impl std::fmt::Display for NotPermitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "not permitted to {}: {}", self.what, self.missing)
    }
}

impl std::error::Error for NotPermitted {}

/// Numbers of `include/uapi/linux/capability.h`.
const SYS_ADMIN: u64 = 1 << 21;
const PERFMON: u64 = 1 << 38;
const BPF: u64 = 1 << 39;

/// What this process lacks to trace; none when it should be allowed to.
pub fn missing() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    let user = unsafe { libc::geteuid() };
    explain(effective(&status)?, &lockdown, user)
}

fn effective(status: &str) -> Option<u64> {
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}

fn explain(caps: u64, lockdown: &str, user: u32) -> Option<String> {
    if caps & SYS_ADMIN == 0 {
        let lacks: Vec<&str> =
            [(BPF, "CAP_BPF"), (PERFMON, "CAP_PERFMON")].iter().filter(|(bit, _)| caps & bit == 0).map(|(_, name)| *name).collect();
        if !lacks.is_empty() {
            let names = lacks.join(" and ");
            let remedy = if user == 0 { "give the container these capabilities" } else { "run as root, for instance with sudo" };
            return Some(format!("{names} (or CAP_SYS_ADMIN) is missing; {remedy}"));
        }
    }
    if lockdown.contains("[confidentiality]") {
        return Some("the kernel is locked down for confidentiality, which forbids tracing; see kernel_lockdown(7)".into());
    }
    None
}

/// Raises what limits us, as far as we may: locked memory (kernels before 5.11 count maps as such) without bound, open
/// files to three per site, one per map and some.
pub(super) fn raise_limits(sites: usize, maps: usize) {
    // SAFETY: plain system calls on a struct of ours. Where they fail the old limit holds, and what then runs into it
    // says so.
    unsafe {
        let all = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        libc::setrlimit(libc::RLIMIT_MEMLOCK, &all);
        let wanted = (3 * sites + maps + 50) as libc::rlim_t;
        let mut files: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut files) == 0 && files.rlim_cur < wanted {
            let raised = libc::rlimit { rlim_cur: wanted, rlim_max: files.rlim_max.max(wanted) };
            if libc::setrlimit(libc::RLIMIT_NOFILE, &raised) != 0 {
                files.rlim_cur = files.rlim_max;
                libc::setrlimit(libc::RLIMIT_NOFILE, &files);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_is_missing() {
        assert_eq!(effective("Name:\tx\nCapEff:\t000001ffffffffff\n"), Some(0x1ff_ffff_ffff));
        assert_eq!(explain(u64::MAX, "none [integrity] confidentiality", 0), None);
        assert_eq!(explain(BPF | PERFMON, "", 1000), None);
        assert!(explain(BPF, "", 1000).unwrap().starts_with("CAP_PERFMON (or"));
        assert!(explain(0, "", 0).unwrap().contains("container"));
        assert!(explain(u64::MAX, "none integrity [confidentiality]", 0).unwrap().contains("locked down"));
    }
}
