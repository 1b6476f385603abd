//! The privileges that loading a program needs, and which of them are missing.
#![allow(unsafe_code)] // geteuid(2), getrlimit(2), setrlimit(2)

use crate::system::TargetInfo;
use crate::system::machine::rights::{self, CAPABILITIES};

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

/// What this process lacks to trace; none when it should be allowed to.
pub fn missing() -> Option<String> {
    // SAFETY: no more than a question
    let user = unsafe { libc::geteuid() };
    explain(&lacking(rights::effective()), rights::lockdown().as_deref(), user)
}

/// Why perf_event_open(2) denies what the capabilities that [`missing`] knows should allow.
pub(super) fn perf_denied() -> Option<String> {
    let admin = CAPABILITIES.iter().any(|c| c.name == "CAP_SYS_ADMIN" && rights::effective() >> c.bit & 1 == 1);
    let level = rights::paranoid().filter(|level| *level > 2 && !admin)?;
    let grant = rights::grant(&["CAP_SYS_ADMIN"]);
    Some(format!(
        "with kernel.perf_event_paranoid = {level}, this kernel requires CAP_SYS_ADMIN: {grant}; \
         or, as root, sysctl kernel.perf_event_paranoid=2"
    ))
}

/// Why maps are denied to one who may load programs: kernels before 5.11 count them as the user's locked memory
/// (RLIMIT_MEMLOCK of getrlimit(2)). That version came with the helper that is asked for.
pub(super) fn memory_denied(sys: &dyn TargetInfo) -> Option<String> {
    if sys.types_missing().is_some() || sys.enumerator("BPF_FUNC_ktime_get_coarse_ns").is_some() {
        return None;
    }
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the call fills a struct of ours.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } == 0;
    (known && limit.rlim_cur != libc::RLIM_INFINITY).then(|| {
        format!(
            "before Linux 5.11, maps count as locked memory, which is limited to {} KiB. CAP_SYS_RESOURCE lifts the limit: {}; \
             or, before this program is started, as root, prlimit --memlock=unlimited --pid $$",
            limit.rlim_cur >> 10,
            rights::grant(&["CAP_SYS_RESOURCE"])
        )
    })
}

/// CAP_SYS_ADMIN, or since Linux 5.8 these two.
fn lacking(held: u64) -> Vec<&'static str> {
    let lacks = |name| CAPABILITIES.iter().any(|c| c.name == name && held >> c.bit & 1 == 0);
    if lacks("CAP_SYS_ADMIN") { ["CAP_BPF", "CAP_PERFMON"].into_iter().filter(|name| lacks(*name)).collect() } else { Vec::new() }
}

fn explain(lacks: &[&str], lockdown: Option<&str>, user: u32) -> Option<String> {
    if !lacks.is_empty() {
        let names = lacks.join(" and ");
        let remedy = match user {
            0 => "give the container these capabilities".to_owned(),
            _ => format!("run as root, for example with sudo, or give rbt the capabilities: {}", rights::grant(lacks)),
        };
        let verb = if lacks.len() > 1 { "are" } else { "is" };
        return Some(format!("{names} (or CAP_SYS_ADMIN) {verb} missing; {remedy}"));
    }
    (lockdown == Some("confidentiality"))
        .then(|| "the kernel is locked down for confidentiality, which forbids tracing; see kernel_lockdown(7)".into())
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
        assert_eq!(lacking(u64::MAX), [""; 0]);
        assert_eq!(lacking(1 << 38 | 1 << 39), [""; 0]);
        assert_eq!(lacking(1 << 39), ["CAP_PERFMON"]);
        assert_eq!(lacking(0), ["CAP_BPF", "CAP_PERFMON"]);
        assert_eq!(explain(&[], Some("integrity"), 0), None);
        assert!(explain(&["CAP_PERFMON"], None, 1000).unwrap().starts_with("CAP_PERFMON (or"));
        assert!(explain(&["CAP_BPF", "CAP_PERFMON"], None, 0).unwrap().contains("container"));
        assert!(explain(&[], Some("confidentiality"), 0).unwrap().contains("locked down"));
    }
}
