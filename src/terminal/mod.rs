//! Colors and emphasis on a terminal, and its capabilities.

pub mod escape;
pub mod screen;

use std::os::fd::AsFd;

use anstyle::{AnsiColor, Style};

/// Emphasis: the subject of a line.
pub const BOLD: Style = Style::new().bold();
/// Secondary text: comments, hints, skipped cells.
pub const DIM: Style = Style::new().dimmed();
/// Errors and failed cells.
pub const ERROR: Style = AnsiColor::Red.on_default().bold();
/// Warnings.
pub const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// Places that belong to a message.
pub const NOTE: Style = AnsiColor::Cyan.on_default().bold();
/// Remedies.
pub const HELP: Style = AnsiColor::Green.on_default().bold();
/// Unknown cells.
pub const UNKNOWN: Style = AnsiColor::Magenta.on_default().bold();
/// Passed.
pub const OK: Style = AnsiColor::Green.on_default();
/// Failed.
pub const FAILED: Style = AnsiColor::Red.on_default();
/// The name of a thing, in a list.
pub const NAME: Style = AnsiColor::Cyan.on_default();

/// The text in a style, or unchanged without color.
pub fn paint(text: &str, style: Style, color: bool) -> String {
    if color { format!("{style}{text}{style:#}") } else { text.to_string() }
}

/// The capabilities for drawing pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Canvas {
    /// Number of columns in a line.
    pub columns: usize,
    /// Maximum number of rows of a picture, without what explains it.
    pub rows: usize,
    /// Are characters beyond ASCII displayed?
    pub utf8: bool,
    /// Are there 256 colors?
    pub colors: bool,
}

impl Default for Canvas {
    fn default() -> Self {
        Self { columns: USUAL_COLUMNS, rows: MAX_ROWS, utf8: false, colors: false }
    }
}

/// For a terminal of unknown size, and for output elsewhere.
const USUAL_COLUMNS: usize = 80;
const USUAL_ROWS: usize = 24;
/// Maximum number of rows of a picture; more are joined.
const MAX_ROWS: usize = 40;

impl Canvas {
    /// The canvas of `out`. `color`: use colors if supported.
    pub fn of(out: impl AsFd, color: bool) -> Self {
        let named = |name: &str| std::env::var(name).unwrap_or_default();
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().map(named).find(|value| !value.is_empty()).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        let colors = color && (named("TERM").contains("256color") || !named("COLORTERM").is_empty());
        Self { columns: size(out).1, rows: MAX_ROWS, utf8: locale.contains("utf-8") || locale.contains("utf8"), colors }
    }
}

/// The lines and columns of a terminal (ioctl_tty(2), TIOCGWINSZ).
pub fn size(terminal: impl AsFd) -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(terminal).ok();
    let or = |n: Option<u16>, usual: usize| n.filter(|n| *n != 0).map_or(usual, usize::from);
    (or(size.map(|s| s.ws_row), USUAL_ROWS), or(size.map(|s| s.ws_col), USUAL_COLUMNS))
}
