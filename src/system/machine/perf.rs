//! What perf_event_open(2) allows on this machine.

use crate::input::line;
use crate::system::syscalls::{event, perf_event_open};

/// Does the machine support this event (`type` and `config` of the system call)? `None` if the kernel does not say.
pub fn counts(ty: u32, config: u64) -> Option<bool> {
    let refused = match perf_event_open(&event(ty, config), 0, -1) {
        Ok(_) => return Some(true),
        Err(refused) => refused,
    };
    // Without such a counter, the kernel reports that the event does not exist.
    match refused.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => Some(false),
        _ => None,
    }
}

/// Maximum rate of samples per second, which the kernel lowers if they take too long.
pub fn most_samples() -> Option<u64> {
    line("/proc/sys/kernel/perf_event_max_sample_rate")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_counts_page_faults_and_no_unknown_event() {
        const SOFTWARE: u32 = 1;
        const PAGE_FAULTS: u64 = 2;
        match counts(SOFTWARE, PAGE_FAULTS) {
            Some(counted) => assert!(counted),
            None => return eprintln!("skipped: needs perf_event_open"),
        }
        assert_eq!(counts(SOFTWARE, 1 << 20), Some(false));
        assert!(most_samples().is_some_and(|n| n > 0));
    }
}
