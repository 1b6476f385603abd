//! Memory compared, searched and joined.

use inkwell::values::{BasicValueEnum, IntValue, PointerValue};

use super::{Cmp, Emit, Helper};
use crate::types::Int;

const BYTE: Int = Int { bytes: 1, signed: false };
const U64: Int = Int { bytes: 8, signed: false };

impl<'c> Emit<'c> {
    /// -1, 0 or 1 as the first byte that differs among `n` is less in `a`, there is none, or it is greater.
    pub fn order_bytes(&mut self, a: PointerValue<'c>, b: PointerValue<'c>, n: u32) -> IntValue<'c> {
        self.once_for_all("order", a, b, n, |e, a, b| e.order_bytes_here(a, b, n))
    }

    fn order_bytes_here(&mut self, a: PointerValue<'c>, b: PointerValue<'c>, n: u32) -> IntValue<'c> {
        let result = self.scalar_home();
        let zero = self.int(0);
        self.store(result, 0, 8, zero);
        self.each_word(n, |e, at, int| {
            let (pa, pb) = (e.offset_by(a, at), e.offset_by(b, at));
            let (wa, wb) = (e.load(pa, 0, int), e.load(pb, 0, int));
            let differs = e.xor(wa, wb);
            e.if_(differs, |e| {
                // the first byte is the lowest: turned round, words compare as their bytes do
                let turn = |e: &Emit<'c>, w| if int.bytes == 1 { w } else { e.swap_bytes(w, int.bytes) };
                let less = e.cmp(Cmp::Ult, turn(e, wa), turn(e, wb));
                let order = e.select(less, e.int(u64::MAX), e.int(1));
                e.store(result, 0, 8, order);
            });
            differs
        });
        self.load(result, 0, U64)
    }

    /// Where one string begins in another, both in memory of these capacities: counted from 1, 0 when it does not.
    pub fn find_text(&mut self, text: PointerValue<'c>, cap: u32, wanted: PointerValue<'c>, wanted_cap: u32) -> IntValue<'c> {
        let text = self.fresh(text);
        if !self.is_scratch(text) {
            return self.find_text_here(text, cap, wanted, wanted_cap);
        }
        // what is looked for is mostly a literal: one function for all of about the same length
        let (wanted, room) = if self.is_scratch(wanted) {
            (self.fresh(wanted), wanted_cap)
        } else {
            let room = wanted_cap.next_power_of_two().max(self.on_stack_limit + 1);
            let at = self.alloc(room);
            self.copy(at, wanted, wanted_cap, 1);
            (self.fresh(at), room)
        };
        if !self.is_scratch(wanted) {
            return self.find_text_here(text, cap, wanted, wanted_cap);
        }
        let name = format!("text_in_text_{cap}_{room}");
        self.of_memory(&name, [(text, cap), (wanted, room)], |e, text, wanted| e.find_text_here(text, cap, wanted, room))
    }

    fn find_text_here(&mut self, text: PointerValue<'c>, cap: u32, wanted: PointerValue<'c>, wanted_cap: u32) -> IntValue<'c> {
        // each place is tried in a call of its own, so that the verifier walks one only
        let from = self.callback(&format!("find_text_{cap}_{wanted_cap}"), &[true, false], |e, params| {
            let (Some(BasicValueEnum::IntValue(at)), Some(BasicValueEnum::PointerValue(ctx))) = (params.first(), params.get(1)) else {
                return e.int(1);
            };
            let at = e.opaque(*at);
            let outside = e.cmp(Cmp::Uge, at, e.int(cap.into()));
            e.if_(outside, |e| {
                let stop = e.int(1);
                e.ret(Some(stop));
            });
            let (text, wanted) = (e.load_ptr(*ctx, 0), e.load_ptr(*ctx, 8));
            e.count(wanted_cap.into(), |e, i| {
                let c = e.load(e.offset_by(wanted, i), 0, BYTE);
                let end = e.cmp(Cmp::Eq, c, e.int(0));
                e.if_(end, |e| e.break_());
                let place = e.opaque(e.add(at, i));
                let outside = e.cmp(Cmp::Uge, place, e.int(cap.into()));
                e.if_(outside, |e| {
                    let stop = e.int(1);
                    e.ret(Some(stop));
                });
                let have = e.load(e.offset_by(text, place), 0, BYTE);
                let other = e.cmp(Cmp::Ne, c, have);
                e.if_(other, |e| {
                    // where the text ends, later places have no room either
                    let stop = e.cmp(Cmp::Eq, have, e.int(0));
                    e.ret(Some(stop));
                });
            });
            let found = e.add(at, e.int(1));
            e.store(*ctx, 16, 8, found);
            e.int(1)
        });
        let ctx = self.handed();
        self.store_ptr(ctx, 0, text);
        self.store_ptr(ctx, 8, wanted);
        let zero = self.int(0);
        self.store(ctx, 16, 8, zero);
        let times = self.int(cap.into());
        self.call(Helper::Loop, &[times.into(), from.into(), ctx.into(), zero.into()]);
        self.load(ctx, 16, U64)
    }

    /// Does memory start with these bytes? Compared in words.
    pub fn starts_with(&mut self, ptr: PointerValue<'c>, bytes: &[u8]) -> IntValue<'c> {
        let mut at = 0;
        let mut differs = self.int(0);
        let most = self.aligned(ptr) as usize;
        while at < bytes.len() {
            let n = [8usize, 4, 2, 1].into_iter().find(|n| at + n <= bytes.len() && *n <= most).unwrap_or(1);
            let mut word = [0u8; 8];
            word[..n].copy_from_slice(&bytes[at..at + n]);
            let have = self.load(ptr, at as u32, Int { bytes: n as u8, signed: false });
            let want = self.int(u64::from_le_bytes(word));
            differs = self.or(differs, self.xor(have, want));
            at += n;
        }
        self.cmp(Cmp::Eq, differs, self.int(0))
    }

    /// Are the first `n` bytes equal, or both strings equal up to a NUL before that? 1 or 0.
    pub fn same_text(&mut self, a: PointerValue<'c>, b: PointerValue<'c>, n: u32) -> IntValue<'c> {
        let differ = self.once_for_all("texts_differ", a, b, n, |e, a, b| e.texts_differ(a, b, n));
        self.cmp(Cmp::Eq, differ, self.int(0))
    }

    /// 0 when they are the same.
    fn texts_differ(&mut self, a: PointerValue<'c>, b: PointerValue<'c>, n: u32) -> IntValue<'c> {
        let differs = self.entry_alloca();
        let zero = self.int(0);
        self.store(differs, 0, 8, zero);
        self.each_word(n, |e, at, int| {
            let (pa, pb) = (e.offset_by(a, at), e.offset_by(b, at));
            let (wa, wb) = (e.load(pa, 0, int), e.load(pb, 0, int));
            let nul = e.zero_byte(wa, int.bytes);
            // all up to the first NUL, or all
            let counts = e.xor(nul, e.sub(nul, e.int(1)));
            let now = e.and(e.xor(wa, wb), counts);
            e.store(differs, 0, 8, now);
            e.or(nul, now)
        });
        self.load(differs, 0, U64)
    }

    /// A walk over `n` bytes of two places: where they are long, in a function that all such walks share. Each walk that the
    /// verifier follows has it note a jump per word, and it gives up at 8192 of them.
    pub fn once_for_all(
        &mut self,
        name: &str,
        a: PointerValue<'c>,
        b: PointerValue<'c>,
        n: u32,
        walk: impl FnOnce(&mut Self, PointerValue<'c>, PointerValue<'c>) -> IntValue<'c>,
    ) -> IntValue<'c> {
        let (a, b) = (self.fresh(a), self.fresh(b));
        if n > 64 && self.is_scratch(a) && self.is_scratch(b) {
            self.of_memory(&format!("{name}_{n}"), [(a, n), (b, n)], walk)
        } else {
            walk(self, a, b)
        }
    }

    /// Bytes before the first NUL, or all.
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

    /// The highest bit of the first byte that is zero, of a word's so many bytes; bits above it may be set as well. 0 when
    /// there is no such byte.
    fn zero_byte(&self, word: IntValue<'c>, bytes: u8) -> IntValue<'c> {
        let (ones, tops) = if bytes == 1 { (0x01, 0x80) } else { (0x0101_0101_0101_0101, 0x8080_8080_8080_8080) };
        let borrowed = self.sub(word, self.int(ones));
        self.and(self.and(borrowed, self.xor(word, self.int(u64::MAX))), self.int(tops))
    }

    /// `body` for the pieces of `n` bytes, until it gives something that is not 0; it gets a piece's offset and width. Long
    /// memory is walked by words (a piece may reach back into the one before): each way out of a loop is one more state
    /// for the verifier to come back to, and it gives up at 8192. What is short may lie on the stack, where it allows no
    /// word at an odd place.
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
            let mut at = 0;
            let most = self.aligned(a).min(self.aligned(b));
            while at < n {
                let w = [8u32, 4, 2, 1].into_iter().find(|w| at + w <= n && *w <= most).unwrap_or(1);
                let int = Int { bytes: w as u8, signed: false };
                let (va, vb) = (self.load(a, at, int), self.load(b, at, int));
                differs = self.or(differs, self.xor(va, vb));
                at += w;
            }
            return self.cmp(Cmp::Eq, differs, self.int(0));
        }
        let differ = self.once_for_all("bytes_differ", a, b, n, |e, a, b| e.bytes_differ(a, b, n));
        self.cmp(Cmp::Eq, differ, self.int(0))
    }

    /// 0 when the bytes are the same.
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

    /// Is it known to lie in scratch memory?
    pub(super) fn is_scratch(&self, ptr: PointerValue<'c>) -> bool {
        self.fun_ref().places.contains_key(&ptr)
    }
}
