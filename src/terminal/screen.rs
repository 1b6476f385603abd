//! The terminal's alternate screen, redrawn repeatedly, and single key presses.
#![allow(unsafe_code)] // tcsetattr(3) in a signal handler

use std::io::{self, Write};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

use crate::terminal::escape::visible;

/// The alternate screen, without a cursor, and with lines that are cut instead of wrapped.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &[u8] = b"\x1b[?7h\x1b[?25h\x1b[?1049l";

/// The modes of standard input before the screen was set up, for [`abandon`].
static BEFORE: AtomicPtr<libc::termios> = AtomicPtr::new(ptr::null_mut());

/// While it lives, typed keys are not echoed and can be read one by one. Keys typed while no reader waits, including
/// Ctrl-D, are kept.
pub struct Keys {
    before: Termios,
}

impl Keys {
    /// Takes standard input. `interrupts`: Ctrl-C is a signal.
    pub fn take(interrupts: bool) -> io::Result<Self> {
        Self::taken(interrupts, true)
    }

    fn taken(interrupts: bool, suspends: bool) -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut keys = before.clone();
        keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        keys.local_modes.set(LocalModes::ISIG, interrupts && keys.local_modes.contains(LocalModes::ISIG));
        if !suspends {
            keys.special_codes[SpecialCodeIndex::VSUSP] = 0;
        }
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &keys);
        Ok(Self { before })
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.before);
    }
}

/// The alternate screen, until it is dropped.
pub struct Screen {
    keys: Option<Keys>,
}

impl Screen {
    /// Takes standard output. Without a terminal on standard input there are no keys. `interrupts` as for
    /// [`Keys::take`].
    pub fn take(interrupts: bool) -> io::Result<Self> {
        let mut modes = std::mem::MaybeUninit::<libc::termios>::uninit();
        // SAFETY: fills the given memory, or fails
        if unsafe { libc::tcgetattr(libc::STDIN_FILENO, modes.as_mut_ptr()) } == 0 {
            // SAFETY: the call above filled it
            let modes = Box::into_raw(Box::new(unsafe { modes.assume_init() }));
            BEFORE.store(modes, Ordering::SeqCst);
        }
        // a stopped process would not restore the terminal
        let keys = Keys::taken(interrupts, false).ok();
        let mut out = io::stdout();
        out.write_all(ENTER).and_then(|()| out.flush())?;
        Ok(Self { keys })
    }

    /// Are there keys?
    pub fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    /// Shows lines from the top, replacing the previous ones: all at once, so that nothing flickers.
    pub fn show<'l>(&self, lines: impl Iterator<Item = &'l str>, columns: usize) -> io::Result<()> {
        let mut out = io::stdout();
        out.write_all(&page(lines, columns)).and_then(|()| out.flush())
    }
}

/// What the terminal receives for these lines.
fn page<'l>(lines: impl Iterator<Item = &'l str>, columns: usize) -> Vec<u8> {
    // terminals that support it draw the enclosed output in one step
    let mut page = b"\x1b[?2026h\x1b[H".to_vec();
    for line in lines {
        let (text, width) = fitted(line, columns);
        page.extend(text);
        // after a full line, the cursor is still on the last character, which this would erase
        page.extend_from_slice(if width < columns { b"\x1b[K\r\n" } else { b"\r\n" });
    }
    page.extend_from_slice(b"\x1b[J\x1b[?2026l");
    page
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.keys = None;
        let mut out = io::stdout();
        let _ = out.write_all(LEAVE).and_then(|()| out.flush());
        let modes = BEFORE.swap(ptr::null_mut(), Ordering::SeqCst);
        if !modes.is_null() {
            // SAFETY: it came from a box, and is not owned elsewhere now
            drop(unsafe { Box::from_raw(modes) });
        }
    }
}

/// Restores the terminal in a signal handler that ends the process. Makes only calls of signal-safety(7).
pub fn abandon() {
    let modes = BEFORE.swap(ptr::null_mut(), Ordering::SeqCst);
    if !modes.is_null() {
        // SAFETY: the modes are never freed after this; both calls are allowed in a handler
        unsafe {
            libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, modes);
            libc::write(libc::STDOUT_FILENO, LEAVE.as_ptr().cast(), LEAVE.len());
        }
    }
}

/// The start of a line that fits, and its width. Colors and emphasis stay (`ESC [ … m`) and have no width; other control
/// characters are escaped. A number that does not fit is replaced by `>`: its first digits would be another number.
fn fitted(line: &str, columns: usize) -> (Vec<u8>, usize) {
    let (mut to, mut rest, mut taken, mut styled) = (Vec::new(), line, 0, false);
    // the length and the width of what precedes the number that is being copied, with its unit or as a range
    let mut number: Option<(usize, usize)> = None;
    while let Some(c) = rest.chars().next() {
        if let Some(style) = style_at(rest) {
            to.extend_from_slice(style.as_bytes());
            rest = rest.get(style.len()..).unwrap_or_default();
            styled = true;
            continue;
        }
        if !(c.is_alphanumeric() || matches!(c, '.' | '-' | '%')) {
            number = None;
        }
        if taken == columns {
            if let Some((before, width)) = number {
                to.truncate(before);
                to.push(b'>');
                taken = width + 1;
            }
            break;
        }
        let (one, after) = rest.split_at(c.len_utf8());
        let from = to.len();
        if c.is_ascii_digit() {
            number = number.or(Some((from, taken)));
        }
        visible(one.as_bytes(), &mut to);
        taken += String::from_utf8_lossy(to.get(from..).unwrap_or_default()).chars().count();
        if taken > columns {
            taken -= String::from_utf8_lossy(to.get(from..).unwrap_or_default()).chars().count();
            to.truncate(from);
            break;
        }
        rest = after;
    }
    if styled {
        to.extend_from_slice(b"\x1b[0m");
    }
    (to, taken)
}

/// The sequence at the start of a text, if it only changes colors and emphasis (ECMA-48, SGR).
fn style_at(text: &str) -> Option<&str> {
    let parameters = text.strip_prefix("\x1b[")?;
    let end = parameters.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    parameters.get(end..)?.starts_with('m').then(|| text.get(..end + 3)).flatten()
}

/// Divides the rows of a screen among blocks that need this many: none gets more than it needs, and none less than an
/// equal share of the rows, unless it needs less.
pub fn shares(needs: &[usize], max_lines: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..needs.len()).collect();
    let need = |index: usize| needs.get(index).copied().unwrap_or(0);
    order.sort_by_key(|index| need(*index));
    let mut given = vec![0; needs.len()];
    let mut left = max_lines;
    for (done, index) in order.iter().enumerate() {
        let share = need(*index).min(left / (needs.len() - done));
        left -= share;
        if let Some(given) = given.get_mut(*index) {
            *given = share;
        }
    }
    given
}

/// The key that was pressed within this time: its first byte. None if there was none; 0 at the end of standard input.
pub fn key(within: Duration) -> Option<u8> {
    if !readable(within) {
        return None;
    }
    // a single byte: what is typed after it is left for the next reader
    let (mut first, mut more) = ([0u8; 1], [0u8; 16]);
    let read = rustix::io::read(io::stdin(), &mut first);
    // an arrow key sends several bytes
    if first == [b'\x1b'] && readable(Duration::from_millis(10)) {
        let _ = rustix::io::read(io::stdin(), &mut more);
    }
    read.ok().and(first.first().copied())
}

/// Waits until standard input is readable or at its end; false if a signal or the timeout came first.
pub fn readable(within: Duration) -> bool {
    let stdin = io::stdin();
    let within = Timespec::try_from(within).ok();
    poll(&mut [PollFd::new(&stdin, PollFlags::IN)], within.as_ref()).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &str, columns: usize) -> String {
        String::from_utf8(fitted(line, columns).0).unwrap()
    }

    #[test]
    fn lines_are_cut_without_their_colors() {
        assert_eq!(text("abcdef", 3), "abc");
        assert_eq!(text("a\u{1b}[38;5;55m██\u{1b}[0mb", 2), "a\u{1b}[38;5;55m█\u{1b}[0m");
        assert_eq!(text("░▒▓", 3), "░▒▓");
    }

    #[test]
    fn a_full_line_keeps_its_last_character() {
        let shown = page(["@: 123", "@: 12", "@: 1234"].into_iter(), 6);
        assert_eq!(String::from_utf8(shown).unwrap(), "\x1b[?2026h\x1b[H@: 123\r\n@: 12\x1b[K\r\n@: >\x1b[K\r\n\x1b[J\x1b[?2026l");
    }

    #[test]
    fn numbers_are_not_cut() {
        assert_eq!(text("@x[a]: 12345", 12), "@x[a]: 12345");
        assert_eq!(text("@x[a]: 12345", 11), "@x[a]: >");
        assert_eq!(text("█ 215-6458, x", 9), "█ >");
        assert_eq!(text("@: 12K", 5), "@: >");
        assert_eq!(text("@: 1.5", 4), "@: >");
        assert_eq!(text("@: 12 34", 5), "@: 12");
        assert_eq!(text("\u{1b}[38;5;55m█\u{1b}[0m 12", 3), "\u{1b}[38;5;55m█\u{1b}[0m >\u{1b}[0m");
        assert_eq!(fitted("@: 123", 5), (b"@: >".to_vec(), 4));
        assert_eq!(fitted("12345", 5).1, 5);
    }

    #[test]
    fn escapes_control_characters() {
        assert_eq!(text("a\u{1b}[2Jb\r\u{7}", 80), "a\\x1b[2Jb\\r\\x07");
        assert_eq!(text("\u{1b}]0;title\u{7}", 80), "\\x1b]0;title\\x07");
        assert_eq!(text("\u{1b}[1", 80), "\\x1b[1");
        // an escape that would be cut is omitted
        assert_eq!(text("ab\u{1b}c", 4), "ab");
    }

    #[test]
    fn rows_are_shared() {
        assert_eq!(shares(&[10, 3, 50], 30), [10, 3, 17]);
        assert_eq!(shares(&[10, 10], 30), [10, 10]);
        assert_eq!(shares(&[50, 50, 50], 10), [3, 3, 4]);
        assert!(shares(&[], 10).is_empty());
        assert_eq!(shares(&[5, 5], 0), [0, 0]);
    }
}
