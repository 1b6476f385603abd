//! The privileges of this process: capabilities, and kernel lockdown.

use std::sync::Once;

use rustix::process::{Resource, Rlimit, setrlimit};

use crate::input::line;

/// A capability that tracing needs.
pub struct Capability {
    /// Its name in `capabilities(7)`.
    pub name: &'static str,
    /// Its bit (include/uapi/linux/capability.h).
    pub bit: u32,
    /// What rbt needs it for.
    pub doc: &'static str,
}

/// The capabilities that rbt uses.
pub const CAPABILITIES: &[Capability] = &[
    Capability { name: "CAP_SYS_ADMIN", bit: 21, doc: "all of BPF and perf; mounting tracefs" },
    Capability { name: "CAP_BPF", bit: 39, doc: "loading programs and maps" },
    Capability { name: "CAP_PERFMON", bit: 38, doc: "attaching to events, reading kernel memory" },
    Capability { name: "CAP_DAC_READ_SEARCH", bit: 2, doc: "reading tracefs and other users' binaries" },
    Capability { name: "CAP_DAC_OVERRIDE", bit: 1, doc: "the same, through permissions of files" },
    Capability { name: "CAP_SYS_PTRACE", bit: 19, doc: "symbols of other users' processes" },
    Capability { name: "CAP_SYSLOG", bit: 34, doc: "addresses of kernel symbols" },
    Capability { name: "CAP_SYS_RESOURCE", bit: 24, doc: "raising limits (needed for maps before Linux 5.11)" },
];

/// The effective capabilities, as bits. capget(2) works without /proc.
pub fn effective() -> u64 {
    rustix::thread::capabilities(None).map_or(0, |sets| sets.effective.bits())
}

/// Is this capability effective?
pub fn holds(capability: &str) -> bool {
    let held = effective();
    CAPABILITIES.iter().any(|c| c.name == capability && held >> c.bit & 1 == 1)
}

/// The command that grants capabilities to rbt: those that it already has, and the missing ones.
pub fn setcap_command(missing: &[&str]) -> String {
    let held = effective();
    let required = CAPABILITIES.iter().filter(|c| held >> c.bit & 1 == 1 || missing.contains(&c.name));
    let names: Vec<String> = required.map(|c| c.name.to_lowercase()).collect();
    let program = std::env::current_exe().map_or_else(|_| "rbt".into(), |path| path.display().to_string());
    format!("sudo setcap {}=ep {program}", names.join(","))
}

/// The remedy for a missing capability.
pub fn lacking(capability: &str) -> String {
    format!("{capability} is missing: run as root, or {}", setcap_command(&[capability]))
}

/// If the kernel hides the addresses of its symbols from this process, the reason and the remedy (`kallsyms_show_value` in
/// kernel/ksyms_common.c).
pub fn hidden_symbols() -> Option<String> {
    hidden(effective(), number("/proc/sys/kernel/kptr_restrict")?, paranoid())
}

fn hidden(held: u64, restrict: i64, paranoid: Option<i64>) -> Option<String> {
    let may = CAPABILITIES.iter().any(|c| c.name == "CAP_SYSLOG" && held >> c.bit & 1 == 1);
    match restrict {
        0 if paranoid.is_some_and(|level| level <= 1) => None,
        0 | 1 if may => None,
        0 | 1 => Some(format!("CAP_SYSLOG is missing: {}", setcap_command(&["CAP_SYSLOG"]))),
        _ => Some("/proc/sys/kernel/kptr_restrict hides them from everyone: as root, sysctl kernel.kptr_restrict=1".into()),
    }
}

/// The restriction of perf for unprivileged users. Debian and Ubuntu have levels above 2, which need CAP_SYS_ADMIN where
/// mainline needs CAP_PERFMON.
pub fn paranoid() -> Option<i64> {
    number("/proc/sys/kernel/perf_event_paranoid")
}

fn number(path: &str) -> Option<i64> {
    line(path)?.parse().ok()
}

/// The lockdown mode: `none`, `integrity` or `confidentiality`; `None` if the kernel has no lockdown or securityfs is not
/// mounted.
pub fn lockdown() -> Option<String> {
    let text = std::fs::read_to_string("/sys/kernel/security/lockdown").ok()?;
    Some(chosen(&text)?.to_string())
}

/// Returns the word in brackets of `none [integrity] confidentiality`.
fn chosen(text: &str) -> Option<&str> {
    text.split_whitespace().find_map(|w| w.strip_prefix('[')?.strip_suffix(']'))
}

/// Removes the limit of locked memory if that is permitted: kernels before 5.11 count maps and programs of all of a user's
/// processes as such, and refuse more with EPERM. If this fails, the operation that exceeds the limit reports an error.
pub fn lock_memory_without_limit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_hidden_as_the_kernel_does() {
        let syslog = 1 << 34;
        assert_eq!(hidden(0, 0, Some(1)), None);
        assert!(hidden(0, 0, Some(2)).unwrap().starts_with("CAP_SYSLOG is missing: sudo setcap "));
        assert!(hidden(0, 0, None).is_some());
        assert_eq!(hidden(syslog, 0, Some(3)), None);
        assert_eq!(hidden(syslog, 1, Some(3)), None);
        assert!(hidden(0, 1, Some(-1)).is_some());
        assert!(hidden(syslog, 2, Some(-1)).unwrap().contains("kptr_restrict"));
    }

    #[test]
    fn the_mode_is_in_brackets() {
        assert_eq!(chosen("none [integrity] confidentiality\n"), Some("integrity"));
        assert_eq!(chosen(""), None);
    }
}
