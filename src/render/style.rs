//! The style in which values are written.

use crate::diag::visible;

/// How values are spelled.
#[derive(Clone, Copy)]
pub struct Style<'a> {
    /// Ends a string that was cut.
    pub trailer: &'a [u8],
    /// Without the spaces between parts: a key in JSON.
    pub tight: bool,
    /// With control characters escaped: a terminal would obey them.
    pub visible: bool,
}

impl Style<'_> {
    /// Appends a text that the traced system chose.
    pub fn text(&self, text: &[u8], to: &mut Vec<u8>) {
        if self.visible { visible(text, to) } else { to.extend_from_slice(text) }
    }
}
