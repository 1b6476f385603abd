//! The text of a stack: a newline, then a line per frame, leaf first.

use crate::value::{Frame, Stack, StackMode};

use super::integers::{address, decimal, hex};
use super::style::Style;

/// Appends the stack. If it is tight, frames are not indented, as in a JSON key.
pub fn stack(stack: &Stack, style: Style, to: &mut Vec<u8>) {
    to.push(b'\n');
    for frame in stack.frames.iter() {
        match stack.mode {
            StackMode::Bpftrace => {
                if !style.compact {
                    to.extend_from_slice(b"        ");
                }
                plain(frame, style, to);
            }
            StackMode::Perf => perf(frame, stack.kernel, style, to),
            // it has no address
            StackMode::Raw | StackMode::BuildId if frame.interpreted => interpreted(frame, style, to),
            StackMode::Raw => match &frame.symbol {
                // a text in place of a frame
                Some(word) if frame.addr == 0 => style.text(word.as_bytes(), to),
                _ => hex(to, frame.addr),
            },
            StackMode::BuildId => build_id(frame, style, to),
        }
        to.push(b'\n');
    }
}

/// `sym+OFF@file:LINE`, `[inlined] sym@file:LINE`, `module+0xaddr` or `0xaddr`.
fn plain(frame: &Frame, style: Style, to: &mut Vec<u8>) {
    if frame.interpreted {
        return interpreted(frame, style, to);
    }
    let Some(symbol) = &frame.symbol else {
        match frame.in_module() {
            Some(place) => style.text(place.as_bytes(), to),
            None => address(to, frame.addr),
        }
        return;
    };
    if frame.inlined {
        to.extend_from_slice(b"[inlined] ");
        style.text(symbol.as_bytes(), to);
    } else if frame.addr == 0 {
        // a text in place of a frame
        style.text(symbol.as_bytes(), to);
    } else {
        with_offset(symbol, frame.offset, style, to);
    }
    if let Some((file, line)) = &frame.source {
        to.push(b'@');
        style.text(file.as_bytes(), to);
        to.push(b':');
        decimal(to, u64::from(*line));
    }
}

/// TAB, address, `sym+OFF (module)`, as `perf script` prints it. A kernel frame has no module.
fn perf(frame: &Frame, kernel: bool, style: Style, to: &mut Vec<u8>) {
    to.push(b'\t');
    if frame.interpreted || frame.addr == 0 && frame.symbol.is_some() {
        return interpreted(frame, style, to);
    }
    hex(to, frame.addr);
    to.push(b' ');
    let Some(symbol) = &frame.symbol else {
        match (frame.in_module(), &frame.module) {
            (Some(place), Some(module)) => style.text(format!("{place} ({module})").as_bytes(), to),
            _ => {
                address(to, frame.addr);
                to.extend_from_slice(b" ([unknown])");
            }
        }
        return;
    };
    if frame.inlined {
        style.text(symbol.as_bytes(), to);
        to.extend_from_slice(b" (inlined)");
        return;
    }
    with_offset(symbol, frame.offset, style, to);
    if !kernel {
        to.extend_from_slice(b" (");
        style.text(frame.module.as_deref().unwrap_or("[unknown]").as_bytes(), to);
        to.push(b')');
    }
}

/// `function (file:LINE)`
fn interpreted(frame: &Frame, style: Style, to: &mut Vec<u8>) {
    style.text(frame.symbol.as_deref().unwrap_or_default().as_bytes(), to);
    let Some((file, line)) = &frame.source else { return };
    to.extend_from_slice(b" (");
    style.text(file.as_bytes(), to);
    if *line > 0 {
        to.push(b':');
        decimal(to, u64::from(*line));
    }
    to.push(b')');
}

fn build_id(frame: &Frame, style: Style, to: &mut Vec<u8>) {
    match &frame.build_id {
        Some((id, offset)) => {
            to.extend_from_slice(id.as_bytes());
            to.push(b' ');
            address(to, *offset);
        }
        None => match &frame.symbol {
            // a text in place of a frame
            Some(text) if frame.addr == 0 => style.text(text.as_bytes(), to),
            _ => hex(to, frame.addr),
        },
    }
}

fn with_offset(symbol: &str, offset: u64, style: Style, to: &mut Vec<u8>) {
    style.text(symbol.as_bytes(), to);
    to.push(b'+');
    decimal(to, offset);
}
