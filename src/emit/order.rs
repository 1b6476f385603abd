//! Compares, searches and joins memory.

use inkwell::values::{BasicValueEnum, IntValue, PointerValue};

use super::{Builder, Cmp, MAX_WALKED_ITERATIONS};
use crate::types::Int;

const BYTE: Int = Int { bytes: 1, signed: false };
const U64: Int = Int { bytes: 8, signed: false };
/// Words that are processed without a branch.
const BLOCK: u32 = 8;

/// The members of the memory of a hash: the hash, the number of words in it, and 1 until a word was 0.
const HASH: u32 = 0;
const NUMBER: u32 = 8;
const INSIDE: u32 = 16;
const SUMS_SIZE: u32 = 24;

impl<'c> Builder<'_, 'c> {
    /// -1, 0 or 1: at the first byte that differs among `n`, the byte of `a` is less, no byte differs, or it is
    /// greater.
    pub fn order_bytes(&mut self, a: PointerValue<'c>, b: PointerValue<'c>, n: u32) -> IntValue<'c> {
        self.once_for_all("order", a, b, n, |e, a, b| e.order_bytes_here(a, b, n))
    }

    /// 1 if two lists of this many words are equal up to their first zero.
    pub fn same_words(&mut self, a: PointerValue<'c>, b: PointerValue<'c>, words: u32) -> IntValue<'c> {
        if self.scope.at_max_call_depth {
            return self.same_words_by_blocks(a, b, words);
        }
        let name = format!("same_words_{words}");
        self.call_on_memory(&name, [(a, words * 8), (b, words * 8)], |e, a, b| e.same_words_by_blocks(a, b, words))
    }

    /// The same, inline. A branch costs the verifier more than anything else, and it combines each path from one with those of
    /// the surrounding code, so there is only one branch for several words.
    fn same_words_by_blocks(&mut self, a: PointerValue<'c>, b: PointerValue<'c>, words: u32) -> IntValue<'c> {
        let (difference, inside) = (self.scalar_slot(), self.scalar_slot());
        let (none, one) = (self.int(0), self.int(1));
        self.store(difference, 0, 8, none);
        self.store(inside, 0, 8, one);
        let by_call = self.calls_for_blocks(words);
        self.count((words / BLOCK).into(), |e, i| {
            let at = e.mul(i, e.int((BLOCK * 8).into()));
            let (a, b) = (e.offset_by(a, at), e.offset_by(b, at));
            if by_call {
                let ends = e.call_on_memory("same_block", [(a, BLOCK * 8), (b, BLOCK * 8)], |e, a, b| {
                    let (difference, inside) = (e.scalar_slot(), e.scalar_slot());
                    e.store(difference, 0, 8, none);
                    e.store(inside, 0, 8, one);
                    e.compare_words((a, b), BLOCK, (difference, inside));
                    let differs = e.cmp(Cmp::Ne, e.load(difference, 0, U64), none);
                    e.or(e.shl(differs, one), e.xor(e.load(inside, 0, U64), one))
                });
                let ends = e.opaque(ends);
                e.if_(ends, |e| {
                    let differs = e.shr(ends, one, false);
                    e.store(difference, 0, 8, differs);
                    e.store(inside, 0, 8, none);
                    e.break_();
                });
                return;
            }
            e.compare_words((a, b), BLOCK, (difference, inside));
            let (differ, inside) = (e.load(difference, 0, U64), e.load(inside, 0, U64));
            let done = e.opaque(e.or(differ, e.xor(inside, one)));
            e.if_(done, |e| e.break_());
        });
        let (a, b) = (self.offset(a, words / BLOCK * BLOCK * 8), self.offset(b, words / BLOCK * BLOCK * 8));
        self.compare_words((a, b), words % BLOCK, (difference, inside));
        let difference = self.load(difference, 0, U64);
        self.cmp(Cmp::Eq, difference, none)
    }

    /// Adds to `difference` the bits in which two lists of this many words differ, as long as `inside` is 1; it
    /// becomes 0 at the first zero. There is no branch.
    fn compare_words(
        &mut self,
        (a, b): (PointerValue<'c>, PointerValue<'c>),
        words: u32,
        (difference, inside): (PointerValue<'c>, PointerValue<'c>),
    ) {
        for i in 0..words {
            let (wa, wb) = (self.load(a, i * 8, U64), self.load(b, i * 8, U64));
            let (differs, here) = (self.load(difference, 0, U64), self.load(inside, 0, U64));
            let differs = self.or(differs, self.mul(self.xor(wa, wb), here));
            self.store(difference, 0, 8, differs);
            self.end_at_zero(wa, inside);
        }
    }

    /// Makes `inside`, which is 1, 0 if the word is 0, and returns it.
    fn end_at_zero(&mut self, word: IntValue<'c>, inside: PointerValue<'c>) -> IntValue<'c> {
        let negative = self.or(word, self.sub(self.int(0), word));
        let here = self.and(self.load(inside, 0, U64), self.sign_bit(negative));
        self.store(inside, 0, 8, here);
        here
    }

    /// 1 if the number is negative, hidden from LLVM, which would use a branch otherwise. To be multiplied by: for a mask of all
    /// ones or zeros, the verifier of newer kernels follows both (`maybe_fork_scalars` of kernel/bpf/verifier.c).
    pub fn sign_bit(&self, number: IntValue<'c>) -> IntValue<'c> {
        self.opaque(self.shr(self.opaque(number), self.int(63), false))
    }

    /// The hash and the number of the words of a list up to its first zero, at most this many. There is one branch for several
    /// words: see [`Self::same_words`].
    pub fn hash_words(&mut self, list: PointerValue<'c>, words: u32, seed: IntValue<'c>) -> [IntValue<'c>; 2] {
        let by_call = self.calls_for_blocks(words);
        let sums = self.alloc_known("hash_sums", SUMS_SIZE);
        let (none, one) = (self.int(0), self.int(1));
        for (member, value) in [(HASH, seed), (NUMBER, none), (INSIDE, one)] {
            self.store(sums, member, 8, value);
        }
        self.count((words / BLOCK).into(), |e, i| {
            let block = e.offset_by(list, e.mul(i, e.int((BLOCK * 8).into())));
            let inside = if by_call {
                e.call_on_memory("hash_block", [(block, BLOCK * 8), (sums, SUMS_SIZE)], |e, block, sums| e.add_to_hash(block, BLOCK, sums))
            } else {
                e.add_to_hash(block, BLOCK, sums)
            };
            let done = e.cmp(Cmp::Eq, e.opaque(inside), none);
            e.if_(done, |e| e.break_());
        });
        let rest = self.offset(list, words / BLOCK * BLOCK * 8);
        self.add_to_hash(rest, words % BLOCK, sums);
        [self.load(sums, HASH, U64), self.load(sums, NUMBER, U64)]
    }

    /// Adds words to a hash, and returns 0 if one of them was 0.
    fn add_to_hash(&mut self, list: PointerValue<'c>, words: u32, sums: PointerValue<'c>) -> IntValue<'c> {
        let (hash, number, inside) = (self.scalar_slot(), self.scalar_slot(), self.scalar_slot());
        let members = [(HASH, hash), (NUMBER, number), (INSIDE, inside)];
        for (member, slot) in members {
            let value = self.load(sums, member, U64);
            self.store(slot, 0, 8, value);
        }
        for i in 0..words {
            let word = self.load(list, i * 8, U64);
            let here = self.end_at_zero(word, inside);
            let before = self.load(hash, 0, U64);
            let mixed = self.mix_hash(before, word);
            // after the zero, it stays
            let after = self.xor(before, self.mul(self.xor(before, mixed), here));
            self.store(hash, 0, 8, after);
            let more = self.add(self.load(number, 0, U64), here);
            self.store(number, 0, 8, more);
        }
        for (member, slot) in members {
            let value = self.load(slot, 0, U64);
            self.store(sums, member, 8, value);
        }
        self.load(inside, 0, U64)
    }

    /// Does a function process each block of a list? The verifier checks such a function once, and a block in the loop as often
    /// as the loop has turns.
    fn calls_for_blocks(&self, words: u32) -> bool {
        words >= 3 * BLOCK && self.target.atomic_fetch.holds() && !self.scope.at_max_call_depth
    }

    /// Adds a word to a hash: FNV-1a's multiplier, with the high half folded in.
    pub fn mix_hash(&self, hash: IntValue<'c>, word: IntValue<'c>) -> IntValue<'c> {
        let h = self.mul(self.xor(hash, word), self.int(0x0000_0100_0000_01b3));
        self.add(self.xor(h, self.shr(h, self.int(29), false)), self.int(0x9e37_79b9_7f4a_7c15))
    }

    fn order_bytes_here(&mut self, a: PointerValue<'c>, b: PointerValue<'c>, n: u32) -> IntValue<'c> {
        let result = self.scalar_slot();
        let zero = self.int(0);
        self.store(result, 0, 8, zero);
        self.each_word(n, |e, at, int| {
            let (pa, pb) = (e.offset_by(a, at), e.offset_by(b, at));
            let (wa, wb) = (e.load(pa, 0, int), e.load(pb, 0, int));
            let differs = e.xor(wa, wb);
            e.if_(differs, |e| {
                // the first byte is the lowest: with reversed bytes, words compare as their bytes do
                let turn = |e: &Builder<'_, 'c>, w| if int.bytes == 1 { w } else { e.swap_bytes(w, int.bytes) };
                let less = e.cmp(Cmp::Ult, turn(e, wa), turn(e, wb));
                let order = e.select(less, e.int(u64::MAX), e.int(1));
                e.store(result, 0, 8, order);
            });
            differs
        });
        self.load(result, 0, U64)
    }

    /// The position of one string in another, both in memory of these capacities: counted from 1; 0 if it does not
    /// occur.
    pub fn find_text(&mut self, text: PointerValue<'c>, cap: u32, wanted: PointerValue<'c>, wanted_cap: u32) -> IntValue<'c> {
        let text = match self.rematerialize(text) {
            text if self.checks_once() && !self.is_scratch(text) => {
                let ptr = self.alloc(cap.max(self.options.on_stack_limit + 1));
                self.copy(ptr, text, cap, 8);
                self.rematerialize(ptr)
            }
            text => text,
        };
        if self.scope.at_max_call_depth || !self.is_scratch(text) {
            return self.find_text_here(text, cap, wanted, wanted_cap);
        }
        // the wanted text is mostly a literal: one function serves all literals of similar length
        let (wanted, size) = if self.is_scratch(wanted) {
            (self.rematerialize(wanted), wanted_cap)
        } else {
            let size = wanted_cap.next_power_of_two().max(self.options.on_stack_limit + 1);
            let ptr = self.alloc(size);
            self.copy(ptr, wanted, wanted_cap, 8);
            (self.rematerialize(ptr), size)
        };
        if !self.is_scratch(wanted) {
            return self.find_text_here(text, cap, wanted, wanted_cap);
        }
        let name = format!("text_in_text_{cap}_{size}");
        self.call_on_memory(&name, [(text, cap), (wanted, size)], |e, text, wanted| e.find_text_here(text, cap, wanted, size))
    }

    fn find_text_here(&mut self, text: PointerValue<'c>, cap: u32, wanted: PointerValue<'c>, wanted_cap: u32) -> IntValue<'c> {
        // each position is tried in a call of its own, so that the verifier walks only one
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
                    // if the text ends here, later positions are too short as well
                    let stop = e.cmp(Cmp::Eq, have, e.int(0));
                    e.ret(Some(stop));
                });
            });
            let found = e.add(at, e.int(1));
            e.store(*ctx, 16, 8, found);
            e.int(1)
        });
        let ctx = self.callback_args();
        self.store_ptr(ctx, 0, text);
        self.store_ptr(ctx, 8, wanted);
        let zero = self.int(0);
        self.store(ctx, 16, 8, zero);
        let times = self.int(cap.into());
        self.bpf_loop(times, from, ctx, MAX_WALKED_ITERATIONS);
        let found = self.load(ctx, 16, U64);
        self.hide_range(found)
    }
}
