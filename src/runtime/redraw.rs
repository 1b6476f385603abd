//! Redraws the screen of `--watch` during the run.

use super::context::RunContext;
use super::watch::Stream;
use crate::diag::plural;
use crate::host::Host;

/// Draws the screen if it is time to, or if its size has changed. True if the run is to end.
pub(super) fn redraw(context: &mut RunContext) -> bool {
    let Some(watch) = &mut context.watch else { return false };
    if watch.quit() {
        return true;
    }
    let Some(maps) = watch.due() else { return false };
    let views = maps.into_iter().filter_map(|map| context.map(map).ok()).collect();
    if let Some(watch) = &context.watch
        && let Err(why) = watch.draw(views)
    {
        context.broken = Some(why);
    }
    false
}

/// Restores the terminal, and prints the output of the meantime.
pub(super) fn end(context: &mut RunContext) {
    let Some(watch) = context.watch.take() else { return };
    let (lines, dropped) = watch.end();
    if dropped > 0 {
        context.warn(&format!(
            "note: {} not repeated here; -o FILE keeps all output",
            plural(dropped, "earlier line of output was", "earlier lines of output were")
        ));
    }
    let mut before = None;
    for (stream, line) in lines {
        if before.replace(stream).is_some_and(|before| before != stream) {
            context.flush(true);
        }
        match stream {
            Stream::Output => context.rendered.out.extend_from_slice(line.as_bytes()),
            Stream::Messages => context.rendered.err.extend_from_slice(line.as_bytes()),
        }
    }
    context.flush(true);
}
