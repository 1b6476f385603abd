//! User space's side of double-buffered maps; `emit/double_buffer.rs` describes the scheme.

use std::time::{Duration, Instant};

use anyhow::Context;

use super::grace_period;
use super::shared::Shared;

/// How long to wait for a program that is preempted during a change. (A change itself does not sleep.)
const TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// Switches programs to the other copies of these maps, given by their bits. When this returns, no program writes to the old
/// ones.
pub(super) fn switch(state: &Shared, bits: &[u32]) -> anyhow::Result<()> {
    let old: Vec<(u32, usize)> = bits.iter().map(|bit| (*bit, state.generation(*bit))).collect();
    bits.iter().for_each(|bit| state.switch(*bit));
    grace_period::wait_for_programs().context("waiting for programs to leave a map")?;
    let since = Instant::now();
    while old.iter().any(|(bit, generation)| state.changing(*bit, *generation) != 0) && since.elapsed() < TIMEOUT {
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
