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

/// Does this set of bits have a capability?
pub fn holds(caps: u64, name: &str) -> bool {
    CAPABILITIES.iter().any(|c| c.name == name && caps >> c.bit & 1 == 1)
}

/// Capabilities that are missing to load and attach any BPF program: CAP_SYS_ADMIN, or CAP_BPF with CAP_PERFMON
/// (since Linux 5.8).
pub fn missing(caps: u64) -> Vec<&'static str> {
    if holds(caps, "CAP_SYS_ADMIN") {
        return Vec::new();
    }
    ["CAP_BPF", "CAP_PERFMON"].into_iter().filter(|c| !holds(caps, c)).collect()
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
    fn two_capabilities_or_one_will_do() {
        assert_eq!(missing(0), ["CAP_BPF", "CAP_PERFMON"]);
        assert_eq!(missing(1 << 39), ["CAP_PERFMON"]);
        assert!(missing(1 << 39 | 1 << 38).is_empty());
        assert!(missing(1 << 21).is_empty());
    }

    #[test]
    fn the_mode_is_in_brackets() {
        assert_eq!(chosen("none [integrity] confidentiality\n"), Some("integrity"));
        assert_eq!(chosen(""), None);
    }
}
