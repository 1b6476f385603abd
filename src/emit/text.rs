//! Bytes and strings in memory: writing, measuring, comparing.

use inkwell::values::{IntValue, PointerValue};

use super::mem::U64;
use super::{Builder, Cmp};
use crate::types::Int;

impl<'c> Builder<'_, 'c> {
    /// Does memory start with these bytes? Compared in words.
    pub fn starts_with(&mut self, ptr: PointerValue<'c>, bytes: &[u8]) -> IntValue<'c> {
        let mut pos = 0;
        let mut differs = self.int(0);
        let max_align = self.aligned(ptr) as usize;
        while pos < bytes.len() {
            let n = [8usize, 4, 2, 1].into_iter().find(|n| pos + n <= bytes.len() && *n <= max_align).unwrap_or(1);
            let mut word = [0u8; 8];
            word[..n].copy_from_slice(&bytes[pos..pos + n]);
            let have = self.load(ptr, pos as u32, Int { bytes: n as u8, signed: false });
            let expected = self.int(u64::from_le_bytes(word));
            differs = self.or(differs, self.xor(have, expected));
            pos += n;
        }
        self.cmp(Cmp::Eq, differs, self.int(0))
    }

    /// Are the first `n` bytes equal, or both strings equal up to a NUL before that? 1 or 0.
    pub fn same_text(&mut self, a: PointerValue<'c>, b: PointerValue<'c>, n: u32) -> IntValue<'c> {
        let differ = self.once_for_all("texts_differ", a, b, n, |e, a, b| e.texts_differ(a, b, n));
        self.cmp(Cmp::Eq, differ, self.int(0))
    }

    /// 0 if they are equal.
    fn texts_differ(&mut self, a: PointerValue<'c>, b: PointerValue<'c>, n: u32) -> IntValue<'c> {
        let differs = self.entry_alloca();
        let zero = self.int(0);
        self.store(differs, 0, 8, zero);
        self.each_word(n, |e, at, int| {
            let (pa, pb) = (e.offset_by(a, at), e.offset_by(b, at));
            let (wa, wb) = (e.load(pa, 0, int), e.load(pb, 0, int));
            let nul = e.zero_byte(wa, int.bytes);
            // all bytes up to the first NUL, or all bytes
            let counts = e.xor(nul, e.sub(nul, e.int(1)));
            let now = e.and(e.xor(wa, wb), counts);
            e.store(differs, 0, 8, now);
            e.or(nul, now)
        });
        self.load(differs, 0, U64)
    }

    /// A walk over `n` bytes at two addresses; long walks use a function that they share. The verifier notes a jump per
    /// word for each walk that it follows, and rejects more than 8192.
    pub fn once_for_all(
        &mut self,
        name: &str,
        a: PointerValue<'c>,
        b: PointerValue<'c>,
        n: u32,
        walk: impl FnOnce(&mut Self, PointerValue<'c>, PointerValue<'c>) -> IntValue<'c>,
    ) -> IntValue<'c> {
        let (a, b) = (self.rematerialize(a), self.rematerialize(b));
        if n > 64 && self.is_scratch(a) && self.is_scratch(b) {
            self.call_on_memory(&format!("{name}_{n}"), [(a, n), (b, n)], walk)
        } else {
            walk(self, a, b)
        }
    }

    /// The number of bytes before the first NUL, or of all bytes.
    pub fn text_len(&mut self, text: PointerValue<'c>, cap: u32) -> IntValue<'c> {
        self.once_for_all("text_len", text, text, cap, |e, text, _| e.walk_text(text, cap))
    }

    fn walk_text(&mut self, text: PointerValue<'c>, cap: u32) -> IntValue<'c> {
        let len = self.entry_alloca();
        let all = self.int(cap.into());
        self.store(len, 0, 8, all);
        self.each_word(cap, |e, at, int| {
            let p = e.offset_by(text, at);
            let w = e.load(p, 0, int);
            let nul = e.zero_byte(w, int.bytes);
            e.if_(nul, |e| {
                let up_to = e.xor(nul, e.sub(nul, e.int(1)));
                let index = e.shr(e.highest_bit(up_to), e.int(3), false);
                let n = e.add(at, index);
                e.store(len, 0, 8, n);
            });
            nul
        });
        self.load(len, 0, U64)
    }

    /// A word whose lowest set bit is the highest bit of the first zero byte among this many bytes of `word`; 0 if there is
    /// no such byte.
    fn zero_byte(&self, word: IntValue<'c>, bytes: u8) -> IntValue<'c> {
        let (ones, tops) = if bytes == 1 { (0x01, 0x80) } else { (0x0101_0101_0101_0101, 0x8080_8080_8080_8080) };
        let borrowed = self.sub(word, self.int(ones));
        self.and(self.and(borrowed, self.xor(word, self.int(u64::MAX))), self.int(tops))
    }

    /// Runs `body` for pieces of the `n` bytes, until it returns a nonzero value; it gets a piece's offset and width.
    /// Long memory is read in words (a piece may overlap the one before): each exit of a loop is another state for the
    /// verifier, which allows 8192. Short memory may be on the stack, where words at unaligned addresses are not
    /// allowed.
    pub(super) fn each_word(&mut self, n: u32, body: impl Fn(&mut Self, IntValue<'c>, Int) -> IntValue<'c>) {
        let width = if n <= 64 { 1 } else { 8 };
        let int = Int { bytes: width as u8, signed: false };
        self.count(n.div_ceil(width).into(), |e, i| {
            let at = e.mul(i, e.int(width.into()));
            let at = if n.is_multiple_of(width) {
                at
            } else {
                let last = e.int((n - width).into());
                let beyond = e.cmp(Cmp::Ugt, at, last);
                e.select(beyond, last, at)
            };
            let stop = body(e, at, int);
            e.if_(stop, |e| e.break_());
        });
    }

    /// Are `n` bytes of memory equal?
    pub fn same_bytes(&mut self, a: PointerValue<'c>, b: PointerValue<'c>, n: u32) -> IntValue<'c> {
        if n <= 64 {
            let mut differs = self.int(0);
            let mut pos = 0;
            let max_align = self.aligned(a).min(self.aligned(b));
            while pos < n {
                let w = [8u32, 4, 2, 1].into_iter().find(|w| pos + w <= n && *w <= max_align).unwrap_or(1);
                let int = Int { bytes: w as u8, signed: false };
                let (va, vb) = (self.load(a, pos, int), self.load(b, pos, int));
                differs = self.or(differs, self.xor(va, vb));
                pos += w;
            }
            return self.cmp(Cmp::Eq, differs, self.int(0));
        }
        let differ = self.once_for_all("bytes_differ", a, b, n, |e, a, b| e.bytes_differ(a, b, n));
        self.cmp(Cmp::Eq, differ, self.int(0))
    }

    /// 0 if the bytes are equal.
    fn bytes_differ(&mut self, a: PointerValue<'c>, b: PointerValue<'c>, n: u32) -> IntValue<'c> {
        let differs = self.entry_alloca();
        let zero = self.int(0);
        self.store(differs, 0, 8, zero);
        self.each_word(n, |e, at, int| {
            let (pa, pb) = (e.offset_by(a, at), e.offset_by(b, at));
            let now = e.xor(e.load(pa, 0, int), e.load(pb, 0, int));
            e.store(differs, 0, 8, now);
            now
        });
        self.load(differs, 0, U64)
    }
}
