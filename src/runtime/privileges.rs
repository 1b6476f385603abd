//! The privileges that loading a program needs, and which of them are missing.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::cost;
use crate::system::TargetInfo;
use crate::system::machine::rights::{self, CAPABILITIES};

/// The kernel did not permit an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not permitted to {what}: {missing}")]
pub struct NotPermitted {
    /// The operation: `load the programs`.
    pub what: String,
    /// What is missing, and the remedy.
    pub missing: String,
}

/// The privileges for tracing that this process lacks; none if it should be allowed to trace.
pub fn missing() -> Option<String> {
    explain(&lacking(rights::effective()), rights::lockdown().as_deref(), rustix::process::geteuid().as_raw())
}

/// Why perf_event_open(2) fails although the capabilities of [`missing`] are present.
pub(super) fn perf_denied() -> Option<String> {
    let admin = CAPABILITIES.iter().any(|c| c.name == "CAP_SYS_ADMIN" && rights::effective() >> c.bit & 1 == 1);
    let level = rights::paranoid().filter(|level| *level > 2 && !admin)?;
    let grant = rights::setcap_command(&["CAP_SYS_ADMIN"]);
    Some(format!(
        "with kernel.perf_event_paranoid = {level}, this kernel requires CAP_SYS_ADMIN: {grant}; \
         or, as root, sysctl kernel.perf_event_paranoid=2"
    ))
}

/// Why creating maps fails although the process may load programs: kernels before 5.11 count maps as the user's locked memory
/// (RLIMIT_MEMLOCK of getrlimit(2)). A helper that is new in 5.11 identifies these kernels.
pub(super) fn memory_denied(sys: &dyn TargetInfo) -> Option<String> {
    if sys.types_missing().is_some() || sys.enumerator("BPF_FUNC_ktime_get_coarse_ns").is_some() {
        return None;
    }
    getrlimit(Resource::Memlock).current.map(|limit| {
        format!(
            "before Linux 5.11, maps count as locked memory, which is limited to {} KiB. CAP_SYS_RESOURCE lifts the limit: {}; \
             or, before this program is started, as root, prlimit --memlock=unlimited --pid $$",
            limit >> 10,
            rights::setcap_command(&["CAP_SYS_RESOURCE"])
        )
    })
}

/// Requires that the kernel measures the cost of programs.
///
/// # Errors
/// [`NotPermitted`], or an error of the kernel.
pub(super) fn require_statistics(what: &str) -> anyhow::Result<()> {
    match cost::measure() {
        Ok(_) => Ok(()),
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
            let grant = rights::setcap_command(&["CAP_SYS_ADMIN"]);
            let missing = format!(
                "the kernel measures the cost of programs only with CAP_SYS_ADMIN: {grant}; or, as root, sysctl kernel.bpf_stats_enabled=1"
            );
            Err(NotPermitted { what: what.into(), missing }.into())
        }
        Err(e) => Err(anyhow::Error::new(e).context("the kernel cannot measure the cost of programs")),
    }
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
            _ => format!("run as root, for example with sudo, or give rbt the capabilities: {}", rights::setcap_command(lacks)),
        };
        let verb = if lacks.len() > 1 { "are" } else { "is" };
        return Some(format!("{names} (or CAP_SYS_ADMIN) {verb} missing; {remedy}"));
    }
    (lockdown == Some("confidentiality"))
        .then(|| "the kernel is locked down for confidentiality, which forbids tracing; see kernel_lockdown(7)".into())
}

/// Raises the limits as far as permitted: that of locked memory, and that of open files to three per site, one per map and
/// some more.
pub(super) fn raise_limits(sites: usize, maps: usize) {
    rights::lock_memory_without_limit();
    let wanted = (3 * sites + maps + 50) as u64;
    let files = getrlimit(Resource::Nofile);
    if files.current.is_some_and(|now| now < wanted) {
        let raised = Rlimit { current: Some(wanted), maximum: files.maximum.map(|hard| hard.max(wanted)) };
        let _ = setrlimit(Resource::Nofile, raised).or_else(|_| setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files }));
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
