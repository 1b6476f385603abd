//! Prints a map every second until a key is pressed.
#![allow(unsafe_code)] // termios(3), read(2)

use std::io::{self, Write};
use std::time::Duration;

use super::interrupts;

/// The terminal's lines and columns (ioctl_tty(2), TIOCGWINSZ).
pub fn size() -> (usize, usize) {
    // SAFETY: writes to a struct of ours
    let size = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        libc::ioctl(1, libc::TIOCGWINSZ, &raw mut size);
        size
    };
    let or = |n: u16, usual: usize| if n == 0 { usual } else { n.into() };
    (or(size.ws_row, 24), or(size.ws_col, 80))
}

/// Keys are not shown and wait to be read one by one while it lives: so what is typed while nobody reads, Ctrl-D too, is there
/// when somebody does.
pub struct Keys {
    before: libc::termios,
}

impl Keys {
    /// Of standard input. `interrupts`: Ctrl-C is a signal.
    pub fn take(interrupts: bool) -> io::Result<Self> {
        // SAFETY: reads and writes structs of ours
        unsafe {
            let mut before: libc::termios = std::mem::zeroed();
            if libc::tcgetattr(0, &mut before) != 0 {
                return Err(io::Error::last_os_error());
            }
            let mut keys = before;
            keys.c_lflag &= !(libc::ICANON | libc::ECHO);
            if !interrupts {
                keys.c_lflag &= !libc::ISIG;
            }
            libc::tcsetattr(0, libc::TCSADRAIN, &keys);
            Ok(Self { before })
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // SAFETY: what was there before
        unsafe { libc::tcsetattr(0, libc::TCSADRAIN, &self.before) };
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

/// Shows what `draw` gives for so many lines and columns, again and again: a head of `head` lines, and of what does not fit
/// the end, where a map's largest values are.
///
/// Errors: those of `draw`, and a terminal that will not.
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
    let (mut first, mut more) = (0u8, [0u8; 16]);
    // SAFETY: the bytes outlive the calls, which are told how many there are
    unsafe {
        let read = libc::read(0, (&raw mut first).cast(), 1);
        // an arrow is several
        if first == b'\x1b' && interrupts::readable(Duration::from_millis(10)) {
            libc::read(0, more.as_mut_ptr().cast(), more.len());
        }
        read >= 0
    }
}
