//! Load, attach, run.

use super::{Checked, Front};
use crate::cli::{Failure, Run};
use crate::codegen::Compiled;
use crate::runtime::child::Child;
use crate::system::System;

/// Forks the `-c` command, which waits until it is let go.
pub(super) fn child(command: &str) -> Result<Child, Failure> {
    Child::prepare(command).map_err(|e| Failure::new(format!("{e:#}")))
}

/// Loads and runs.
pub(super) fn start(
    _run: &Run,
    _checked: Checked,
    _compiled: Compiled,
    _child: Option<Child>,
    _sys: &dyn System,
    _front: &mut Front,
) -> Result<u8, Failure> {
    Err(Failure::new("not wired yet").status(255))
}
