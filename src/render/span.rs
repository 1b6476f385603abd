//! A span that has ended, as a line: start, duration, thread, name, values.

use super::spell;
use super::style::Style;
use super::time::strftime;
use crate::timeline::{Phase, Span, Track};

/// Columns of the duration and the thread.
const DURATION: usize = 10;
const THREAD: usize = 22;

/// Appends the line; a span that begins has none.
pub fn text(span: &Span, style: Style, to: &mut Vec<u8>) {
    if span.phase == Phase::Begin {
        return;
    }
    let start = strftime("%H:%M:%S.%f", span.start_ns).unwrap_or_default();
    let mark = if span.phase.is_open() { ">" } else { "" };
    let duration = format!("{mark}{}", super::duration(span.end_ns - span.start_ns));
    let mut thread = Vec::new();
    match &span.track {
        Track::Thread(tid) => {
            style.text(&span.thread.comm, &mut thread);
            thread.extend_from_slice(format!("/{tid}").as_bytes());
        }
        Track::Named(name) => style.text(name, &mut thread),
    }
    to.extend_from_slice(format!("{start} {duration:>DURATION$} ").as_bytes());
    let width = String::from_utf8_lossy(&thread).chars().count();
    to.extend_from_slice(&thread);
    to.extend(std::iter::repeat_n(b' ', THREAD.saturating_sub(width) + 1 + 2 * span.depth));
    style.text(&span.name, to);
    for (name, value) in &span.values {
        to.push(b' ');
        style.text(name.as_bytes(), to);
        to.push(b'=');
        spell::value(value, style, to);
    }
    to.push(b'\n');
}
