//! Output that several runs of a process share.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use crate::diag;

/// Writes only whole lines, so that the lines of several runs do not mix, each with a name in front.
pub(super) struct PrefixWriter<W: Write> {
    /// May be empty.
    prefix: String,
    /// The start of an incomplete line.
    rest: Vec<u8>,
    out: W,
}

/// Held while lines are written.
static TURN: Mutex<()> = Mutex::new(());
/// A longer line is written in parts.
const LONGEST: usize = 64 << 10;

impl<W: Write> PrefixWriter<W> {
    pub fn new(name: &str, to: W) -> Self {
        let prefix = if name.is_empty() { String::new() } else { format!("{}: ", diag::plain(name)) };
        Self { prefix, rest: Vec::new(), out: to }
    }

    fn lines(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut text = Vec::with_capacity(bytes.len() + self.prefix.len());
        for line in bytes.split_inclusive(|b| *b == b'\n') {
            text.extend_from_slice(self.prefix.as_bytes());
            text.extend_from_slice(line);
        }
        if !text.is_empty() && !text.ends_with(b"\n") {
            text.push(b'\n');
        }
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        self.out.write_all(&text)
    }
}

impl<W: Write> Write for PrefixWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.rest.extend_from_slice(bytes);
        let end = self.rest.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        let end = if self.rest.len() - end > LONGEST { self.rest.len() } else { end };
        if end > 0 {
            let lines: Vec<u8> = self.rest.drain(..end).collect();
            self.lines(&lines)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W: Write> Drop for PrefixWriter<W> {
    fn drop(&mut self) {
        let rest = std::mem::take(&mut self.rest);
        // an error can no longer be reported
        let _ = self.lines(&rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_complete_lines() {
        let mut to = Vec::new();
        let mut out = PrefixWriter::new("a.bt", &mut to);
        for part in ["one ", "line\ntwo\nthr", "ee\n", "four"] {
            out.write_all(part.as_bytes()).unwrap();
        }
        drop(out);
        assert_eq!(String::from_utf8(to).unwrap(), "a.bt: one line\na.bt: two\na.bt: three\na.bt: four\n");
    }
}
