//! The text of a stack: a newline, then a line per frame, leaf first.

use std::sync::Arc;

use crate::value::{Frame, FrameTable, Stack, StackMode};

use super::integers::{address, decimal, hex};
use super::style::Style;

/// Appends the stack. If it is tight, frames are not indented, as in a JSON key.
pub fn stack(stack: &Stack, style: Style, to: &mut Vec<u8>) {
    to.push(b'\n');
    stack.frames.iter().for_each(|frame| line(frame, stack, style, to));
}

fn line(frame: &Frame, stack: &Stack, style: Style, to: &mut Vec<u8>) {
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

/// The number of bytes of lines that are kept.
const MAX_TEXT: usize = 4 << 20;

/// The lines of frames that many stacks share.
pub struct Lines<'a> {
    style: Style<'a>,
    /// Of user stacks, and of kernel stacks.
    kinds: [LinesOfKind; 2],
}

#[derive(Default)]
struct LinesOfKind {
    /// The frames, and the mode of the stacks.
    of: Option<(Arc<FrameTable>, StackMode)>,
    /// The places of lines in `text`, by the number of the frame. A line that is not known is empty.
    places: Vec<(u32, u32)>,
    text: Vec<u8>,
}

impl<'a> Lines<'a> {
    /// No lines yet.
    pub fn new(style: Style<'a>) -> Self {
        Self { style, kinds: Default::default() }
    }

    /// Appends a stack, as [`stack`] does.
    pub fn stack(&mut self, stack: &Stack, to: &mut Vec<u8>) {
        let (table, numbers) = stack.frames.numbers();
        if !table.is_shared() {
            return self::stack(stack, self.style, to);
        }
        let [user, kernel] = &mut self.kinds;
        let kind = if stack.kernel { kernel } else { user };
        let (known, mode) = kind.of.get_or_insert_with(|| (Arc::clone(table), stack.mode));
        if !Arc::ptr_eq(known, table) || *mode != stack.mode {
            return self::stack(stack, self.style, to);
        }
        to.push(b'\n');
        for number in numbers.iter() {
            let index = number as usize;
            if index >= kind.places.len() {
                kind.places.resize(table.len().max(index + 1), (0, 0));
            }
            let Some(place) = kind.places.get_mut(index) else { continue };
            if place.0 == place.1 {
                if kind.text.len() > MAX_TEXT {
                    line(table.get(number), stack, self.style, to);
                    continue;
                }
                let start = kind.text.len();
                line(table.get(number), stack, self.style, &mut kind.text);
                *place = (start as u32, kind.text.len() as u32);
            }
            to.extend_from_slice(kind.text.get(place.0 as usize..place.1 as usize).unwrap_or_default());
        }
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
