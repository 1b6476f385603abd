//! Rows of Go's own table of functions, by which its runtime unwinds.

use std::ops::Range;

use super::{Cfa, Fp, Rule};
use crate::system::binary::file::{Segment, bytes_of};
use crate::system::binary::go::{Depths, StackUse, depths};
use crate::system::machine::arch::Unwind;
use crate::system::machine::arch::instructions::Frame;

/// Bytes of the return address.
const WORD: i32 = 8;
/// `push %rbp`
const PUSH: u8 = 0x55;
/// `mov %rbp, n(%rsp)` without an offset, with one of one byte, and with one of four.
const SAVE: &[u8] = b"\x48\x89\x2c\x24";
const SAVE_NEAR: &[u8] = b"\x48\x89\x6c\x24";
const SAVE_FAR: &[u8] = b"\x48\x89\xac\x24";

/// Calls `each` for the parts of functions in order, with their rules. Code that only its instructions describe is left out.
pub(super) fn rows(data: &[u8], segments: &[Segment], arch: &Unwind, mut each: impl FnMut(Range<u64>, Rule)) {
    let mut before: Option<Depths> = None;
    let mut add = |f: &Depths, end: u64| {
        let code = bytes_of(data, segments, &f.function);
        rows_of(f, code, arch, |range, rule| {
            if range.start < range.end.min(end) {
                each(range.start..range.end.min(end), rule);
            }
        });
    };
    depths(data, |f| {
        // the byte before is looked up for a return address that is a function's start
        let spare = u64::from(f.stack == StackUse::Signals);
        if let Some(before) = before.take() {
            add(&before, f.function.start.saturating_sub(spare));
        }
        before = (f.stack != StackUse::Signals).then_some(f);
    });
    if let Some(last) = before {
        add(&last, u64::MAX);
    }
}

fn rows_of(f: &Depths, code: &[u8], arch: &Unwind, mut each: impl FnMut(Range<u64>, Rule)) {
    let start = f.function.start;
    let above = |depth: i32, saved: bool| {
        let fp = if saved { Fp::AtCfa(-2 * WORD) } else { Fp::Same };
        depth.checked_add(WORD).map(|size| Rule { cfa: Cfa::Sp(size), fp, ..Rule::UNKNOWN })
    };
    match f.stack {
        StackUse::Outermost => {
            let end = f.parts.last().map_or(start, |(end, _)| *end);
            return each(start..end, Rule::OUTERMOST);
        }
        StackUse::Switches => {
            // at the start, the stack is still that of the caller
            if let Some(rule) = above(0, false) {
                each(start..start.saturating_add(1), rule);
            }
        }
        StackUse::Plain | StackUse::Signals => {}
    }
    // where the frame pointer was saved
    let mut saved = None;
    let (mut at, mut last) = (start, 0);
    for &(end, depth) in &f.parts {
        if last == 0 && depth > 0 && saved.is_none() {
            saved = saved_from(code, at - start, depth).map(|from| start + from);
        }
        let (from, middle) = (at, saved.unwrap_or(end).clamp(at, end));
        (at, last) = (end, depth);
        if depth < 0 {
            continue;
        }
        for (range, saved) in [(from..middle, false), (middle..end, saved.is_some() && depth > 0)] {
            let rule = match f.stack {
                // the frame pointer stays
                StackUse::Switches if saved => Some(Rule::from_frame(Frame::Set(2 * WORD), arch)),
                StackUse::Switches => Some(Rule::UNKNOWN),
                StackUse::Plain | StackUse::Outermost | StackUse::Signals => above(depth, saved),
            };
            let range = if f.stack == StackUse::Switches { range.start.max(start + 1)..range.end } else { range };
            if let Some(rule) = rule.filter(|_| range.start < range.end) {
                each(range, rule);
            }
        }
    }
}

/// The offset from which the caller's frame pointer is below the return address, if the code here saves it: the stack pointer has
/// just moved by this many bytes.
fn saved_from(code: &[u8], at: u64, depth: i32) -> Option<u64> {
    let place = usize::try_from(at).ok()?;
    let (before, rest) = code.split_at_checked(place)?;
    if depth == WORD && before.last() == Some(&PUSH) {
        return Some(at);
    }
    let (offset, size) = if rest.starts_with(SAVE) {
        (0, SAVE.len())
    } else if let Some(rest) = rest.strip_prefix(SAVE_NEAR) {
        (i32::from(rest.first()?.cast_signed()), SAVE_NEAR.len() + 1)
    } else {
        (i32::from_le_bytes(*rest.strip_prefix(SAVE_FAR)?.first_chunk()?), SAVE_FAR.len() + 4)
    };
    (offset == depth - WORD).then_some(at + size as u64)
}
