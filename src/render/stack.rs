//! A stack's text: a newline, then a line per frame, leaf first.

use crate::value::{Frame, Stack, StackMode};

use super::digits::{address, decimal, hex};

/// Appends the stack. `tight` leaves out the spaces that indent a frame: a JSON key has none.
pub fn stack(stack: &Stack, tight: bool, to: &mut Vec<u8>) {
    to.push(b'\n');
    for frame in &stack.frames {
        match stack.mode {
            StackMode::Bpftrace => {
                if !tight {
                    to.extend_from_slice(b"        ");
                }
                plain(frame, to);
            }
            StackMode::Perf => perf(frame, stack.kernel, to),
            StackMode::Raw => hex(to, frame.addr),
            StackMode::BuildId => build_id(frame, to),
        }
        to.push(b'\n');
    }
}

/// `sym+OFF@file:LINE`, `[inlined] sym@file:LINE`, `module+0xaddr` or `0xaddr`.
fn plain(frame: &Frame, to: &mut Vec<u8>) {
    let Some(symbol) = &frame.symbol else {
        match frame.in_module() {
            Some(place) => to.extend_from_slice(place.as_bytes()),
            None => address(to, frame.addr),
        }
        return;
    };
    if frame.inlined {
        to.extend_from_slice(b"[inlined] ");
        to.extend_from_slice(symbol.as_bytes());
    } else {
        with_offset(symbol, frame.offset, to);
    }
    if let Some((file, line)) = &frame.source {
        to.push(b'@');
        to.extend_from_slice(file.as_bytes());
        to.push(b':');
        decimal(to, u64::from(*line));
    }
}

/// TAB, address, `sym+OFF (module)`: what `perf script` writes. A frame of the kernel has no module.
fn perf(frame: &Frame, kernel: bool, to: &mut Vec<u8>) {
    to.push(b'\t');
    hex(to, frame.addr);
    to.push(b' ');
    let Some(symbol) = &frame.symbol else {
        match (frame.in_module(), &frame.module) {
            (Some(place), Some(module)) => to.extend_from_slice(format!("{place} ({module})").as_bytes()),
            _ => {
                address(to, frame.addr);
                to.extend_from_slice(b" ([unknown])");
            }
        }
        return;
    };
    if frame.inlined {
        to.extend_from_slice(symbol.as_bytes());
        to.extend_from_slice(b" (inlined)");
        return;
    }
    with_offset(symbol, frame.offset, to);
    if !kernel {
        to.extend_from_slice(b" (");
        to.extend_from_slice(frame.module.as_deref().unwrap_or("[unknown]").as_bytes());
        to.push(b')');
    }
}

fn build_id(frame: &Frame, to: &mut Vec<u8>) {
    match &frame.build_id {
        Some((id, offset)) => {
            to.extend_from_slice(id.as_bytes());
            to.push(b' ');
            address(to, *offset);
        }
        None => hex(to, frame.addr),
    }
}

fn with_offset(symbol: &str, offset: u64, to: &mut Vec<u8>) {
    to.extend_from_slice(symbol.as_bytes());
    to.push(b'+');
    decimal(to, offset);
}
