//! Raises the stack limit, because scripts and debug information may nest deeply.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::failure::Failure;

/// The usual limit.
const USUAL_LIMIT: u64 = 8 << 20;
/// With less, even a simple script overflows the stack.
const MIN_LIMIT: u64 = 1 << 20;

/// Raises the limit of the stack to the usual size, as far as allowed: the kernel checks it when the stack grows, so it
/// applies immediately. Errors: it is far too low, and cannot be raised.
pub(crate) fn raise_stack_limit() -> Result<(), Failure> {
    let limit = getrlimit(Resource::Stack);
    let Some(now) = limit.current.filter(|now| *now < USUAL_LIMIT) else { return Ok(()) };
    let set = |current, maximum| setrlimit(Resource::Stack, Rlimit { current, maximum }).is_ok();
    let hard = limit.maximum.unwrap_or(u64::MAX);
    if set(Some(USUAL_LIMIT), limit.maximum.map(|hard| hard.max(USUAL_LIMIT))) || set(limit.maximum, limit.maximum) && hard >= MIN_LIMIT {
        return Ok(());
    }
    if now >= MIN_LIMIT {
        return Ok(());
    }
    let message = format!("the stack limit is too low: {} KiB", hard / 1024);
    Err(Failure::new(message).code("no-stack").help("raise it: `ulimit -s 8192`"))
}
