//! What this process may do: capabilities, and what the kernel is locked against.

/// A capability that tracing wants.
pub struct Capability {
    /// As `capabilities(7)` spells it.
    pub name: &'static str,
    /// Its bit (include/uapi/linux/capability.h).
    pub bit: u32,
    /// What it is for here.
    pub doc: &'static str,
}

/// Those that matter to a tracer.
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

/// The effective capabilities, as bits. None held where /proc cannot be read.
pub fn effective() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let hex = status.lines().find_map(|l| l.strip_prefix("CapEff:")).unwrap_or("");
    u64::from_str_radix(hex.trim(), 16).unwrap_or(0)
}

/// The lockdown mode in force: `none`, `integrity` or `confidentiality`; none where the kernel has no lockdown or
/// securityfs is not mounted.
pub fn lockdown() -> Option<String> {
    let text = std::fs::read_to_string("/sys/kernel/security/lockdown").ok()?;
    Some(chosen(&text)?.to_string())
}

/// The word in brackets of `none [integrity] confidentiality`.
fn chosen(text: &str) -> Option<&str> {
    text.split_whitespace().find_map(|w| w.strip_prefix('[')?.strip_suffix(']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_is_in_brackets() {
        assert_eq!(chosen("none [integrity] confidentiality\n"), Some("integrity"));
        assert_eq!(chosen(""), None);
    }
}
