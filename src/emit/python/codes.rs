//! Sends the name, file and line table of a code object to user space.

use std::mem::offset_of;

use inkwell::values::{BasicValueEnum, IntValue, PointerValue};

use super::super::mem::U64;
use super::super::shared::{CODE_HASH, CODE_ID, CODE_RECORD, Code, Process, Reason};
use super::super::{Builder, Cmp, Helper, MAX_WALKED_ITERATIONS};
use super::{U32, Walk};
use crate::bug;
use crate::system::binary::python::Layout;

/// Bytes of a line table per record, and the maximum number of records per table.
const CHUNK_SIZE: u64 = 4096;
const MAX_CHUNKS: u64 = 16;

impl<'c> Builder<'_, 'c> {
    /// Sends the data of the code object that was read, and returns its ID.
    pub(super) fn send_code(&mut self, slot: IntValue<'c>) -> IntValue<'c> {
        self.global("python_code", &[slot], |e, args| {
            let slot = e.first(args);
            let walk = e.walk(slot);
            let record = e.offset(walk, at!(record));
            let unknown = e.int(Reason::UnknownCode as u64);
            let head = e.int(CODE_RECORD.into());
            e.store(record, offset_of!(Code, head) as u32, 8, head);
            // the hash covers everything from here to the table
            let from = offset_of!(Code, minor) as u32;
            let hashed = offset_of!(Code, table) as u32 - from;
            let (n, null) = (e.int(hashed.into()), e.int(0));
            let to = e.offset(record, from);
            e.call(Helper::ProbeReadKernel, &[to.into(), n.into(), null.into()]);
            let (minor, line) = (e.load(walk, layout!(minor), U32), e.code_word(walk, layout!(code_line), U32));
            e.store(record, offset_of!(Code, minor) as u32, 4, minor);
            e.store(record, offset_of!(Code, line) as u32, 4, line);
            let (name, file) = (e.code_word(walk, layout!(code_name), U64), e.code_word(walk, layout!(code_file), U64));
            e.read_text_heads(walk, [name, file]);
            let text = |e: &mut Self, member: u32, i: u32, to: usize, cap: usize, head: usize| {
                let addr = e.code_word(walk, member, U64);
                let length = e.load(walk, at!(texts) + i * 16, U64);
                e.read_python_text((walk, record), (addr, length), (to as u32, cap as u64), head as u32, unknown);
            };
            text(e, layout!(code_name), 0, offset_of!(Code, name), size_of_val(&Code::EMPTY.name), offset_of!(Code, name_bytes));
            text(e, layout!(code_file), 1, offset_of!(Code, file), size_of_val(&Code::EMPTY.file), offset_of!(Code, file_bytes));
            let table = e.code_word(walk, layout!(code_table), U64);
            let size = e.word_at(walk, table, layout!(bytes_size));
            let size = e.at_most(size, CHUNK_SIZE * MAX_CHUNKS);
            e.store(record, offset_of!(Code, table_bytes) as u32, 4, size);
            // the hash so far
            const ID: u32 = offset_of!(Code, id) as u32;
            let head = e.hash_head(slot, (from, hashed));
            e.store(record, ID, 8, head);
            let start = e.add(table, e.load(walk, layout!(bytes_start), U32));
            e.each_piece("python_hash_piece", (slot, start), |e, record, slot, from, (_, n)| {
                let before = e.load(record, ID, U64);
                let hashed = e.read_piece(slot, from, n, before);
                e.store(record, ID, 8, hashed);
                e.int(0)
            });
            let id = e.or(e.and(e.load(record, ID, U64), e.int(CODE_HASH)), e.int(CODE_ID));
            e.store(record, ID, 8, id);
            e.each_piece("python_send_piece", (slot, start), |e, record, slot, from, (at, n)| {
                let zero = e.int(0);
                e.read_piece(slot, from, n, zero);
                e.store(record, offset_of!(Code, piece_at) as u32, 4, at);
                let fixed = e.int(offset_of!(Code, table) as u64);
                let lost = e.send_raw(record, e.add(fixed, n));
                e.if_(lost, |e| e.store(record, ID, 8, zero));
                lost
            });
            let lost = e.cmp(Cmp::Eq, e.load(record, ID, U64), e.int(0));
            e.if_(lost, |e| e.ret(Some(unknown)));
            let (map, key, value) = (e.python_codes(), e.offset(walk, at!(key)), e.offset(record, offset_of!(Code, id) as u32));
            e.update(map, key, value);
            id
        })
    }

    /// The hash of this many bytes of the record.
    fn hash_head(&mut self, slot: IntValue<'c>, (from, bytes): (u32, u32)) -> IntValue<'c> {
        self.global("python_head", &[slot], |e, args| {
            let slot = e.first(args);
            let walk = e.walk(slot);
            let (at, seed) = (e.offset(walk, at!(record) + from), e.int(0xcbf2_9ce4_8422_2325));
            e.hash_of_code(at, bytes / 8, seed)
        })
    }

    fn hash_of_code(&mut self, ptr: PointerValue<'c>, words: u32, before: IntValue<'c>) -> IntValue<'c> {
        if self.target.loop_helper.holds() {
            let state = self.callback_args();
            self.store_ptr(state, 0, ptr);
            self.store(state, 8, 8, before);
            let each = self.callback(&format!("python_hash_{words}"), &[true, false], |e, params| {
                let (Some(BasicValueEnum::IntValue(i)), Some(BasicValueEnum::PointerValue(state))) = (params.first(), params.get(1)) else {
                    bug!("a turn gets a number and a pointer")
                };
                let i = e.at_most(*i, u64::from(words) - 1);
                let ptr = e.load_ptr(*state, 0);
                let word = e.load(e.offset_by(ptr, e.mul(i, e.int(8))), 0, U64);
                let mixed = e.mix_hash(e.load(*state, 8, U64), word);
                e.store(*state, 8, 8, mixed);
                e.int(0)
            });
            let words = self.int(words.into());
            self.bpf_loop(words, each, state, MAX_WALKED_ITERATIONS);
            return self.load(state, 8, U64);
        }
        let hash = self.scalar_slot();
        self.store(hash, 0, 8, before);
        self.count(words.into(), |e, i| {
            let word = e.load(e.offset_by(ptr, e.mul(i, e.int(8))), 0, U64);
            let mixed = e.mix_hash(e.load(hash, 0, U64), word);
            e.store(hash, 0, 8, mixed);
        });
        self.load(hash, 0, U64)
    }

    /// Runs `body` for each piece of the line table whose size is in the record, until it returns 1: with the record, the
    /// slot, the piece's address, and its start and length. It runs once if the table is empty.
    fn each_piece(
        &mut self,
        name: &str,
        (slot, start): (IntValue<'c>, IntValue<'c>),
        body: impl FnOnce(&mut Self, PointerValue<'c>, IntValue<'c>, IntValue<'c>, (IntValue<'c>, IntValue<'c>)) -> IntValue<'c>,
    ) {
        self.bounded_loop(name, MAX_CHUNKS, &[slot, start], |e, i, numbers| {
            let &[slot, start] = numbers else { bug!("it gets two numbers") };
            let walk = e.walk(slot);
            let record = e.offset(walk, at!(record));
            let at = e.mul(i, e.int(CHUNK_SIZE));
            // the verifier does not track the range of a number in memory
            let place = e.offset(record, offset_of!(Code, table_bytes) as u32);
            let size = e.load_volatile(place, U32);
            let n = e.at_most(e.sub(size, at), CHUNK_SIZE);
            let from = e.add(start, at);
            let ended = body(e, record, slot, from, (at, n));
            let done = e.cmp(Cmp::Uge, e.add(at, e.int(CHUNK_SIZE)), size);
            e.or(ended, done)
        });
    }

    /// Reads a piece of a line table into the record, with zeros if it cannot be read, and returns its hash.
    fn read_piece(&mut self, slot: IntValue<'c>, from: IntValue<'c>, size: IntValue<'c>, hash: IntValue<'c>) -> IntValue<'c> {
        self.global("python_piece", &[slot, from, size, hash], |e, args| {
            let &[slot, from, size, before] = args else { bug!("it gets four numbers") };
            let walk = e.walk(slot);
            let to = e.offset(walk, at!(record) + offset_of!(Code, table) as u32);
            let (all, null) = (e.int(CHUNK_SIZE), e.int(0));
            e.call(Helper::ProbeReadKernel, &[to.into(), all.into(), null.into()]);
            let size = e.at_most(size, CHUNK_SIZE);
            e.call(Helper::ProbeReadUser, &[to.into(), size.into(), from.into()]);
            e.hash_of_code(to, (CHUNK_SIZE / 8) as u32, before)
        })
    }

    /// Copies the characters of a string, at their width, to the record.
    fn read_python_text(
        &mut self,
        (walk, record): (PointerValue<'c>, PointerValue<'c>),
        (addr, length): (IntValue<'c>, IntValue<'c>),
        (to, cap): (u32, u64),
        head: u32,
        unknown: IntValue<'c>,
    ) {
        let state = self.word_at(walk, addr, layout!(text_state));
        let width = self.and(self.shr(state, self.int(2), false), self.int(7));
        let compact = self.and(self.shr(state, self.int(5), false), self.int(1));
        let ascii = self.and(self.shr(state, self.int(6), false), self.int(1));
        let odd = self.or(self.cmp(Cmp::Eq, compact, self.int(0)), self.cmp(Cmp::Ugt, width, self.int(4)));
        self.if_(odd, |e| e.ret(Some(unknown)));
        let (plain, other) = (self.load(walk, layout!(text_ascii), U32), self.load(walk, layout!(text_compact), U32));
        let from = self.add(addr, self.select(ascii, plain, other));
        let length = self.at_most(length, cap + 1);
        let wanted = self.mul(length, width);
        let bytes = self.at_most(wanted, cap);
        let ptr = self.offset(record, to);
        let r = self.call(Helper::ProbeReadUser, &[ptr.into(), bytes.into(), from.into()]);
        let failed = self.cmp(Cmp::Ne, r, self.int(0));
        self.if_(failed, |e| e.ret(Some(unknown)));
        self.store(record, head, 4, bytes);
        let cut = self.cmp(Cmp::Ugt, wanted, self.int(cap));
        let shape = self.or(width, self.shl(cut, self.int(8)));
        self.store(record, head + 4, 4, shape);
    }
}
