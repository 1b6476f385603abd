//! Notices the removal of the cgroup to which a run is limited. No task is in it after that, and a new cgroup of the
//! same name has another ID, so nothing more is traced.

use std::time::{Duration, Instant};

use crate::settings::{CgroupFilter, Invocation, Settings};
use crate::system::machine::cgroup;

/// The interval between two checks.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The cgroup to watch, until its removal is reported.
pub(super) struct Watch {
    filter: Option<CgroupFilter>,
    checked_at: Instant,
}

impl Watch {
    /// Nothing is watched if no warnings are wanted.
    pub(super) fn new(settings: &Settings, invocation: &Invocation) -> Self {
        Self { filter: invocation.cgroup.clone().filter(|_| settings.warning_level > 0), checked_at: Instant::now() }
    }

    /// Is a removal still to be noticed?
    pub(super) fn is_active(&self) -> bool {
        self.filter.is_some()
    }

    /// The warning, once; checks only at intervals.
    pub(super) fn warning(&mut self, at_end: bool) -> Option<String> {
        if !at_end && self.checked_at.elapsed() < POLL_INTERVAL {
            return None;
        }
        self.checked_at = Instant::now();
        let gone = self.filter.take_if(|c| !cgroup::is_cgroup_path(&c.path, c.id))?;
        Some(format!("WARNING: the cgroup {} was removed: no further tasks are traced", gone.path.display()))
    }
}
