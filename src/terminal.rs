//! Colors and emphasis on a terminal.

use anstyle::{AnsiColor, Style};

/// Emphasis: the subject of a line.
pub const BOLD: Style = Style::new().bold();
/// What may be skipped: comments, hints, skipped cells.
pub const DIM: Style = Style::new().dimmed();
/// Errors and failed cells.
pub const ERROR: Style = AnsiColor::Red.on_default().bold();
/// Warnings.
pub const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// Places that belong to a message.
pub const NOTE: Style = AnsiColor::Cyan.on_default().bold();
/// Remedies.
pub const HELP: Style = AnsiColor::Green.on_default().bold();
/// Cells about which nothing is known.
pub const UNKNOWN: Style = AnsiColor::Magenta.on_default().bold();
/// What passed.
pub const OK: Style = AnsiColor::Green.on_default();
/// What did not pass.
pub const FAILED: Style = AnsiColor::Red.on_default();
/// The name of a thing, in a list.
pub const NAME: Style = AnsiColor::Cyan.on_default();

/// The text in a style, or as it is where there is no color.
pub fn paint(text: &str, style: Style, color: bool) -> String {
    if color { format!("{style}{text}{style:#}") } else { text.to_string() }
}
