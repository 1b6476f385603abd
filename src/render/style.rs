//! The style in which values are written.

use crate::terminal::escape::visible;

/// The style of values.
#[derive(Clone, Copy)]
pub struct Style<'a> {
    /// Appended to a string that was cut.
    pub trailer: &'a [u8],
    /// Without spaces between parts: for a key in JSON.
    pub compact: bool,
    /// With control characters escaped, which a terminal would interpret.
    pub visible: bool,
}

impl Style<'_> {
    /// Appends a text from the traced system.
    pub fn text(&self, text: &[u8], to: &mut Vec<u8>) {
        if self.visible { visible(text, to) } else { to.extend_from_slice(text) }
    }
}
