//! Prints a map every second until a key is pressed.

use std::io;
use std::time::Duration;

use super::interrupts;
use crate::terminal;
use crate::terminal::screen::{Screen, key};

/// Repeatedly prints the result of `draw` for a number of lines and columns: the first `head` lines, and the end of the rest,
/// where the largest values of a map are.
///
/// Errors: those of `draw`, and of the terminal.
pub fn refresh<E: From<io::Error>>(
    every: Duration,
    head: usize,
    mut draw: impl FnMut(usize, usize) -> Result<Vec<u8>, E>,
) -> Result<(), E> {
    let screen = Screen::take(false)?;
    loop {
        let (rows, columns) = terminal::size(io::stdout());
        let text = draw(rows, columns)?;
        let text = String::from_utf8_lossy(&text);
        let (fits, all) = (rows.saturating_sub(1), text.lines().count());
        let hidden = head..head + all.saturating_sub(fits);
        let lines = text.lines().enumerate().filter(|(at, _)| !hidden.contains(at)).take(fits);
        screen.show(lines.map(|(_, line)| line), columns)?;
        if key(every).is_some() || interrupts::interrupted() {
            return Ok(());
        }
    }
}
