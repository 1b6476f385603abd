//! Prints a map every second until a key is pressed.

use std::io::{self, Write};
use std::time::Duration;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::interrupts;

/// The terminal's lines and columns (ioctl_tty(2), TIOCGWINSZ).
pub fn size() -> (usize, usize) {
    let size = tcgetwinsize(io::stdout()).ok();
    let or = |n: Option<u16>, usual: usize| n.filter(|n| *n != 0).map_or(usual, usize::from);
    (or(size.map(|s| s.ws_row), 24), or(size.map(|s| s.ws_col), 80))
}

/// Keys are not shown and wait to be read one by one while it lives: so what is typed while nobody reads, Ctrl-D too, is there
/// when somebody does.
pub struct Keys {
    before: Termios,
}

impl Keys {
    /// Of standard input. `interrupts`: Ctrl-C is a signal.
    pub fn take(interrupts: bool) -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut keys = before.clone();
        keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        keys.local_modes.set(LocalModes::ISIG, interrupts && keys.local_modes.contains(LocalModes::ISIG));
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &keys);
        Ok(Self { before })
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.before);
    }
}

/// Another screen, until it is dropped.
struct Screen {
    _keys: Keys,
}

impl Screen {
    fn take() -> io::Result<Self> {
        let keys = Keys::take(false)?;
        let _ = io::stdout().write_all(b"\x1b[?1049h\x1b[?25l");
        Ok(Self { _keys: keys })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = io::stdout();
        let _ = out.write_all(b"\x1b[?25h\x1b[?1049l").and_then(|()| out.flush());
    }
}

/// Repeatedly prints the result of `draw` for a number of lines and columns: the first `head` lines, and the end of the rest,
/// where the largest values of a map are.
///
/// Errors: those of `draw`, and of the terminal.
pub fn refresh<E: From<io::Error>>(
    every: Duration,
    head: usize,
    mut draw: impl FnMut(usize, usize) -> Result<Vec<u8>, E>,
) -> Result<(), E> {
    let screen = Screen::take()?;
    loop {
        let (rows, columns) = size();
        let text = draw(rows, columns)?;
        let mut page = b"\x1b[H".to_vec();
        let text = String::from_utf8_lossy(&text);
        let (fits, all) = (rows.saturating_sub(1), text.lines().count());
        let hidden = head..head + all.saturating_sub(fits);
        for (_, line) in text.lines().enumerate().filter(|(at, _)| !hidden.contains(at)).take(fits) {
            page.extend(line.chars().take(columns).collect::<String>().as_bytes());
            page.extend_from_slice(b"\x1b[K\r\n");
        }
        page.extend_from_slice(b"\x1b[J");
        let mut out = io::stdout();
        out.write_all(&page).and_then(|()| out.flush())?;
        if key(every) || interrupts::taken() {
            drop(screen);
            return Ok(());
        }
    }
}

/// Has a key been pressed, within this time? It is read.
fn key(within: Duration) -> bool {
    if !interrupts::readable(within) {
        return false;
    }
    // one alone: what is typed after it is for the prompt
    let (mut first, mut more) = ([0u8; 1], [0u8; 16]);
    let read = rustix::io::read(io::stdin(), &mut first);
    // an arrow is several
    if first == [b'\x1b'] && interrupts::readable(Duration::from_millis(10)) {
        let _ = rustix::io::read(io::stdin(), &mut more);
    }
    read.is_ok()
}
