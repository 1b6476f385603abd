//! User space's side of double-buffered maps; `emit/double_buffer.rs` describes the scheme.

use std::time::{Duration, Instant};

use anyhow::Context;

use super::grace_period;
use super::shared::Shared;

/// How long to wait for a program that is preempted during a change. (A change itself does not sleep.)
const TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// Switches programs to the other map. When this returns, no program writes to the old one.
pub(super) fn switch(state: &Shared, bit: u32) -> anyhow::Result<()> {
    let generation = state.generation(bit);
    state.switch(bit);
    grace_period::wait_for_programs().context("waiting for programs to leave a map")?;
    let since = Instant::now();
    while state.changing(bit, generation) != 0 && since.elapsed() < TIMEOUT {
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
