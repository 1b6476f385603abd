//! A span that has ended, as a line: start, duration, thread, name, values.

use super::style::Style;
use super::time::strftime;
use super::value_text;
use crate::timeline::{Phase, Span, Track};

/// Width in columns of the duration and the thread.
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
    write_track(span, style, &mut thread);
    to.extend_from_slice(format!("{start} {duration:>DURATION$} ").as_bytes());
    let width = String::from_utf8_lossy(&thread).chars().count();
    to.extend_from_slice(&thread);
    to.extend(std::iter::repeat_n(b' ', THREAD.saturating_sub(width) + 1 + 2 * span.depth));
    style.text(&span.name, to);
    write_values(span, style, to);
    to.push(b'\n');
}

/// For documents: without control characters.
const DOCUMENT: Style<'_> = Style { trailer: b"..", compact: false, visible: true };

/// `comm/tid`, the name of the track, or both.
pub fn track(span: &Span) -> String {
    write_to_string(|to| write_track(span, DOCUMENT, to))
}

/// `a=1 b=2`
pub fn values(span: &Span) -> String {
    write_to_string(|to| write_values(span, DOCUMENT, to)).trim_start().into()
}

/// The name, without control characters.
pub fn name(span: &Span) -> String {
    write_to_string(|to| DOCUMENT.text(&span.name, to))
}

fn write_to_string(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut to = Vec::new();
    write(&mut to);
    String::from_utf8_lossy(&to).into_owned()
}

fn write_track(span: &Span, style: Style, to: &mut Vec<u8>) {
    if let Track::Thread(tid) | Track::BelowThread(tid, _) = &span.track {
        style.text(&span.thread.comm, to);
        to.extend_from_slice(format!("/{tid}").as_bytes());
    }
    if let Some(name) = span.track.name() {
        if matches!(span.track, Track::BelowThread(..)) {
            to.push(b' ');
        }
        style.text(&name, to);
    }
}

fn write_values(span: &Span, style: Style, to: &mut Vec<u8>) {
    for (name, value) in &span.values {
        to.push(b' ');
        style.text(name.as_bytes(), to);
        to.push(b'=');
        value_text::value(value, style, to);
    }
}
