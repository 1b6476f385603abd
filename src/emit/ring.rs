//! Records, which programs send to user space.

use std::mem::offset_of;

use inkwell::values::{BasicValueEnum, IntValue, PointerValue};

use super::mem::U64;
use super::shared::{FAILURE_RECORD, FAILURE_ROOM_SHIFT, Failure, Origin, RING, State};
use super::{Builder, Cmp, Helper, MapDef, MapKind, Operand, Repr};
use crate::types::{Int, Type};

const WORD: Int = Int { bytes: 4, signed: false };
/// `BPF_RB_NO_WAKEUP` and `BPF_RB_FORCE_WAKEUP` of `include/uapi/linux/bpf.h`.
const NO_WAKEUP: u64 = 1;
const FORCE_WAKEUP: u64 = 2;
/// `BPF_RB_AVAIL_DATA` and `BPF_RB_RING_SIZE`.
const AVAIL_DATA: u64 = 0;
const RING_SIZE: u64 = 1;
/// The index of the event, and a reserved word.
const HEAD: u32 = 8;
/// Number of values that [`Builder::record_of_numbers`] takes: a BPF function has five arguments, and one is the event.
const MAX_NUMBERS: usize = 4;

/// A record's stamp, the word after its index, counts units of 2^10 ns of the boot clock: its 32 bits last for 73 minutes.
const STAMP_SHIFT: u32 = 10;

/// The time of a stamp in nanoseconds, as the latest one that is not after `now`.
pub fn stamped(stamp: u32, now: u64) -> u64 {
    let units = now >> STAMP_SHIFT;
    let behind = (units as u32).wrapping_sub(stamp);
    units.wrapping_sub(behind.into()) << STAMP_SHIFT
}

/// A field of a record.
pub struct RecordField<'c> {
    /// Bytes from the record's start, a multiple of the type's alignment.
    pub offset: u32,
    /// Its value.
    pub value: Operand<'c>,
    /// The type as which it is stored.
    pub ty: Type,
    /// The bytes follow the fixed part; at `offset` are their `u32` offset and `u32` length.
    pub var: bool,
    /// The offset in scratch memory of the value's length, if it was spilled: see [`Builder::spill_length`].
    pub length: Option<u32>,
}

/// Room for the bytes of a string of this capacity behind a record's fixed part, such that the verifier can bound its
/// length with a mask.
fn var_room(ty: &Type) -> u32 {
    (ty.size() + 1).next_power_of_two()
}

impl<'c> Builder<'_, 'c> {
    fn ring(&self) -> PointerValue<'c> {
        self.declare_map(RING, MapDef { kind: MapKind::Ringbuf, key_size: 0, value_size: 0, max_entries: 4096, flags: 0 })
    }

    /// Writes a record with `size` fixed bytes and a variable part.
    pub fn record(&mut self, event: u32, size: u32, fields: &[RecordField<'c>]) {
        let event = self.int(event.into());
        let size = size.next_multiple_of(8);
        // a function that they share does not know the site
        if self.shares_code() && !self.options.origins {
            let numbers = fields.iter().map(|f| (f.ty.is_scalar() && !f.var).then(|| self.scalar(&f.value)));
            if let Some(numbers) = numbers.collect::<Option<Vec<_>>>().filter(|numbers| numbers.len() <= MAX_NUMBERS) {
                return self.record_of_numbers(event, size, fields, &numbers);
            }
        }
        self.unless_ended(|e| e.write_record(event, size, fields));
    }

    /// Builds code that is skipped after the end of the run in a program that rbt itself runs.
    fn unless_ended(&mut self, body: impl FnOnce(&mut Self)) {
        if !self.program.test_run {
            return body(self);
        }
        let status = self.state(offset_of!(State, ended));
        let ended = self.load(status, 0, Int { bytes: 8, signed: false });
        let continues = self.cmp(Cmp::Eq, ended, self.int(0));
        self.if_(continues, body);
    }

    /// Writes a record of numbers by a function that all records of this shape in the program share. In a long program, the
    /// time of LLVM and of the kernel grows with the number of instructions, and the kernel's also with its square where it
    /// replaces calls of helpers (`bpf_patch_insn_data` of kernel/bpf/core.c).
    fn record_of_numbers(&mut self, event: IntValue<'c>, size: u32, fields: &[RecordField<'c>], numbers: &[IntValue<'c>]) {
        let places: Vec<(u32, u8)> = fields.iter().map(|f| (f.offset, f.ty.size() as u8)).collect();
        let shape: String = places.iter().map(|(offset, bytes)| format!("_{offset}_{bytes}")).collect();
        let name = format!("send_{}{shape}", self.program.probe);
        let args: Vec<IntValue<'c>> = std::iter::once(event).chain(numbers.iter().copied()).collect();
        self.outlined(&name, &args, |e, args| {
            let Some((&event, numbers)) = args.split_first() else { return };
            e.unless_ended(|e| {
                e.write_fixed(event, size, |e, rec| {
                    for ((offset, bytes), number) in places.iter().zip(numbers) {
                        e.store(rec, *offset, *bytes, *number);
                    }
                });
            });
        });
    }

    fn write_record(&mut self, event: IntValue<'c>, size: u32, fields: &[RecordField<'c>]) {
        if !fields.iter().any(|f| f.var) {
            return self.write_fixed(event, size, |e, rec| fields.iter().for_each(|f| e.field(rec, f)));
        }
        self.count_sent();
        let extra: u32 = fields.iter().filter(|f| f.var).map(|f| var_room(&f.ty)).sum();
        let rec = self.alloc((size + extra).max(self.options.on_stack_limit + 1));
        self.head(rec, event);
        let mut end = self.int(size.into());
        for f in fields {
            if f.var {
                end = self.append(rec, end, f);
            } else {
                self.field(rec, f);
            }
        }
        let (ring, flags) = (self.ring(), self.int(NO_WAKEUP));
        let rec = self.rematerialize(rec);
        let r = self.call(Helper::RingbufOutput, &[ring.into(), rec.into(), end.into(), flags.into()]);
        let failed = self.cmp(Cmp::Ne, r, self.int(0));
        self.if_else(failed, |e| e.count_dropped(), |e| e.wake());
    }

    /// Writes a record of `size` bytes, whose fields `fill` stores.
    fn write_fixed(&mut self, event: IntValue<'c>, size: u32, fill: impl FnOnce(&mut Self, PointerValue<'c>)) {
        let rec = self.reserve(size);
        let reserved = self.not_null(rec);
        self.if_else(
            reserved,
            |e| {
                e.head(rec, event);
                fill(e, rec);
                e.submit(rec);
            },
            |e| e.count_dropped(),
        );
    }

    /// Reserves a record. The pointer is null if there was no room for it.
    fn reserve(&mut self, size: u32) -> PointerValue<'c> {
        if !self.shares_code() {
            self.count_sent();
            let (ring, n, flags) = (self.ring(), self.int(size.into()), self.int(0));
            return self.call_ptr(Helper::RingbufReserve, &[ring.into(), n.into(), flags.into()]);
        }
        let name = format!("reserve_{}_{size}", self.program.probe);
        let rec = self.shared_part(&name, &[], |e, _| {
            let rec = e.reserve(size);
            // Only the caller checks for null: otherwise the verifier of Linux 6.1 would follow its other path, too.
            e.addr(rec)
        });
        self.at_address(rec)
    }

    /// Submits a record, and wakes the reader if it sleeps.
    fn submit(&mut self, rec: PointerValue<'c>) {
        if !self.shares_code() {
            self.call_void(Helper::RingbufSubmit, rec, NO_WAKEUP);
            return self.wake();
        }
        let name = format!("submit_{}", self.program.probe);
        self.shared_part(&name, &[rec.into()], |e, args| {
            if let [BasicValueEnum::PointerValue(rec)] = args {
                e.submit(*rec);
            }
            e.int(0)
        });
    }

    /// Sends the first `size` bytes of memory, which form a complete record; 1 if there is no room.
    pub(super) fn send_raw(&mut self, record: PointerValue<'c>, size: IntValue<'c>) -> IntValue<'c> {
        let (ring, flags) = (self.ring(), self.int(NO_WAKEUP));
        let r = self.call(Helper::RingbufOutput, &[ring.into(), record.into(), size.into(), flags.into()]);
        let failed = self.cmp(Cmp::Ne, r, self.int(0));
        let sent = self.cmp(Cmp::Eq, r, self.int(0));
        self.if_(sent, |e| e.wake());
        failed
    }

    fn call_void(&mut self, helper: Helper, rec: PointerValue<'c>, flags: u64) {
        let flags = self.int(flags);
        self.call(helper, &[rec.into(), flags.into()]);
    }

    /// Bytes of a record before its fields: the index with a reserved word, and the origin.
    pub fn head_size(&self) -> u32 {
        HEAD + if self.options.origins { size_of::<Origin>() as u32 } else { 0 }
    }

    fn head(&mut self, rec: PointerValue<'c>, event: IntValue<'c>) {
        let head = self.stamped(event);
        self.store(rec, 0, 8, head);
        if self.options.origins {
            self.origin(rec);
        }
    }

    /// The first word of a record: the index of its event, and a stamp.
    fn stamped(&mut self, event: IntValue<'c>) -> IntValue<'c> {
        if !self.options.timestamps {
            return event;
        }
        let now = self.call(Helper::KtimeGetBootNs, &[]);
        let units = self.shr(now, self.int(STAMP_SHIFT.into()), false);
        self.or(event, self.shl(units, self.int(32)))
    }

    /// Writes a record of a failure, unless a small part of the ring is in use: the rest is for the script's own records.
    pub(super) fn send_failure(&mut self, problem: IntValue<'c>, returned: IntValue<'c>) {
        let head = self.int(FAILURE_RECORD.into());
        let head = self.stamped(head);
        let query = |e: &mut Self, what: u64| {
            let (ring, what) = (e.ring(), e.int(what));
            e.call(Helper::RingbufQuery, &[ring.into(), what.into()])
        };
        let used = query(self, AVAIL_DATA);
        let size = query(self, RING_SIZE);
        let part = self.shr(size, self.int(FAILURE_ROOM_SHIFT.into()), false);
        let has_room = self.cmp(Cmp::Ult, used, part);
        self.if_(has_room, |e| {
            let (ring, n, flags) = (e.ring(), e.int(size_of::<Failure>() as u64), e.int(0));
            let rec = e.call_ptr(Helper::RingbufReserve, &[ring.into(), n.into(), flags.into()]);
            let reserved = e.not_null(rec);
            e.if_(reserved, |e| {
                e.store(rec, offset_of!(Failure, head) as u32, 8, head);
                e.store(rec, offset_of!(Failure, problem) as u32, 8, problem);
                e.store(rec, offset_of!(Failure, returned) as u32, 8, returned);
                e.call_void(Helper::RingbufSubmit, rec, NO_WAKEUP);
                e.wake();
            });
        });
    }

    fn origin(&mut self, rec: PointerValue<'c>) {
        let place = |offset: usize| HEAD + offset as u32;
        let comm = place(offset_of!(Origin, comm));
        let zero = self.int(0);
        // before Linux 6.2 the helper does not zero the bytes after the NUL
        (0..2).for_each(|word| self.store(rec, comm + word * 8, 8, zero));
        let (at, size) = (self.offset(rec, comm), self.int(16));
        self.call(Helper::GetCurrentComm, &[at.into(), size.into()]);
        let now = self.call(Helper::KtimeGetBootNs, &[]);
        let task = self.call(Helper::GetCurrentPidTgid, &[]);
        let rec = self.rematerialize(rec);
        self.store(rec, place(offset_of!(Origin, boot_ns)), 8, now);
        self.store(rec, place(offset_of!(Origin, pid_tgid)), 8, task);
        let site = self.site();
        self.store(rec, place(offset_of!(Origin, site)), 8, site);
        let cgroup = self.call(Helper::GetCurrentCgroupId, &[]);
        let rec = self.rematerialize(rec);
        self.store(rec, place(offset_of!(Origin, cgroup)), 8, cgroup);
    }

    fn field(&mut self, rec: PointerValue<'c>, f: &RecordField<'c>) {
        let rec = self.rematerialize(rec);
        let ptr = self.offset(rec, f.offset);
        self.store_value(ptr, super::mem::common_align(f.offset, 8), &f.value, &f.ty);
    }

    /// Writes a string's or buffer's bytes at `end`, and returns the new end. A mask bounds the lengths, which the
    /// verifier can track through any number of them.
    fn append(&mut self, rec: PointerValue<'c>, end: IntValue<'c>, f: &RecordField<'c>) -> IntValue<'c> {
        let size = f.ty.size();
        let mask = self.int(u64::from(var_room(&f.ty)) - 1);
        let (from, len) = if let Repr::Mem(ptr, Some(len)) = f.value.repr {
            let parked = f.length.map(|offset| {
                let at = self.scratch_at(offset);
                self.load(at, 0, Int { bytes: 8, signed: true })
            });
            (self.rematerialize(ptr), parked.unwrap_or(len))
        } else {
            (self.in_memory(&f.value), self.int(size.into()))
        };
        // a failed read has a negative length, and no bytes
        let sign = self.shr(len, self.int(63), true);
        let len = self.and(len, self.xor(sign, self.int(u64::MAX)));
        let len = self.opaque(len);
        let len = self.and(len, mask);
        let rec = self.rematerialize(rec);
        let to = self.offset_by(rec, end);
        self.call(Helper::ProbeReadKernel, &[to.into(), len.into(), from.into()]);
        self.store(rec, f.offset, 4, end);
        self.store(rec, f.offset + 4, 4, len);
        self.add(end, len)
    }

    /// Stores the length of a string in scratch memory until the record is written. The verifier does not track values
    /// in scratch memory; for several lengths in registers it would follow every combination.
    pub fn spill_length(&mut self, op: &Operand<'c>) -> Option<u32> {
        let Repr::Mem(_, Some(len)) = op.repr else { return None };
        if len.is_const() {
            return None;
        }
        let offset = self.alloc_scratch(8);
        let ptr = self.scratch_at(offset);
        self.store(ptr, 0, 8, len);
        Some(offset)
    }

    /// Requests the end of the run by a flag besides the record, which may find no room. Programs that start after this
    /// return at once; the output of programs that are running on other CPUs still belongs to the run. The first status
    /// counts.
    pub fn end_run(&mut self, status: IntValue<'c>) {
        let low = self.and(status, self.int(0xff));
        let said = self.or(low, self.int(State::ENDED));
        let flag = self.state(offset_of!(State, ended));
        let before = self.load(flag, 0, Int { bytes: 8, signed: false });
        let first = self.cmp(Cmp::Eq, before, self.int(0));
        self.if_(first, |e| e.store(flag, 0, 8, said));
        let stopped = self.state(offset_of!(State, stopped));
        self.store(stopped, 0, 4, self.int(1));
    }

    /// Sets one of the `total` bytes that record which probes were hit: the `first`, or with `sites` that of the site
    /// that fired.
    pub fn hit(&mut self, total: u32, first: u32, sites: Option<u32>) {
        const BYTE: Int = Int { bytes: 1, signed: false };
        let bytes = self.data_global("hits", super::shared::HITS_SECTION, total);
        let mut ptr = self.offset(bytes, first);
        if let Some(sites) = sites {
            let site = self.site();
            let site = self.at_most(site, u64::from(sites.max(1)) - 1);
            ptr = self.offset_by(ptr, site);
        }
        // writing each time would move the cache line between CPUs
        let before = self.load(ptr, 0, BYTE);
        let first_time = self.cmp(Cmp::Eq, before, self.int(0));
        self.if_(first_time, |e| e.store(ptr, 0, 1, e.int(1)));
    }

    /// Ends the program if another has requested the end of the run ([`State::ended`]), even before the reader notices.
    pub fn return_if_ended(&mut self) {
        let status = self.state(offset_of!(State, ended));
        let ended = self.load(status, 0, Int { bytes: 8, signed: false });
        self.if_(ended, |e| e.ret(None));
    }

    /// Wakes the reader if it sleeps. The flag is read after the record is committed (which is a full barrier), and the
    /// reader reads the ring after it has set the flag: one of the two sees the other.
    fn wake(&mut self) {
        let flag = self.state(offset_of!(State, reader_sleeps));
        let sleeps = self.load_volatile(flag, WORD);
        self.if_(sleeps, |e| e.outlined("wake_reader", &[], |e, _| e.force_wakeup(&[(offset_of!(State, reader_sleeps), 4, 0)])));
    }

    /// Notifies user space if it waits for a limited run or a lost record ([`State::awaited`]).
    pub(super) fn notify_if_awaited(&mut self) {
        let awaited = self.load_volatile(self.state(offset_of!(State, awaited)), WORD);
        self.if_(awaited, |e| e.notify());
    }

    /// Notifies user space if a table of stacks fills up ([`State::awaited_stacks`]).
    pub(super) fn notify_if_stacks_awaited(&mut self) {
        let word = |e: &mut Self, of: usize| e.load_volatile(e.state(of), U64);
        let (stacks, awaited) = (word(self, offset_of!(State, stacks)), word(self, offset_of!(State, awaited_stacks)));
        let enough = self.cmp(Cmp::Uge, stacks, awaited);
        self.if_(enough, |e| e.notify());
    }

    fn notify(&mut self) {
        self.outlined("notify", &[], |e, _| {
            let notice =
                [(offset_of!(State, awaited), 4, 0), (offset_of!(State, awaited_stacks), 8, u64::MAX), (offset_of!(State, noticed), 4, 1)];
            e.force_wakeup(&notice);
        });
    }

    /// Wakes the reader by a record, which is discarded at once, after it has set these members of [`State`]: their offsets, sizes
    /// and values. Without room for the record nothing is set, so that the next program tries again.
    fn force_wakeup(&mut self, set: &[(usize, u8, u64)]) {
        let ring = self.ring();
        let (n, flags) = (self.int(8), self.int(0));
        let dummy_record = self.call_ptr(Helper::RingbufReserve, &[ring.into(), n.into(), flags.into()]);
        let reserved = self.not_null(dummy_record);
        self.if_(reserved, |e| {
            for (offset, size, value) in set {
                let (ptr, value) = (e.state(*offset), e.int(*value));
                e.store(ptr, 0, *size, value);
            }
            e.call_void(Helper::RingbufDiscard, dummy_record, FORCE_WAKEUP);
        });
    }

    pub(super) fn store_volatile(&mut self, ptr: PointerValue<'c>, value: IntValue<'c>) {
        if super::ok(self.b.build_store(ptr, value)).set_volatile(true).is_err() {
            crate::bug!("a store can be volatile");
        }
    }

    /// A load that LLVM must not omit.
    pub fn load_volatile(&mut self, ptr: PointerValue<'c>, int: Int) -> IntValue<'c> {
        use inkwell::values::BasicValue;
        let v = super::ok(self.b.build_load(self.width(int.bytes), ptr, ""));
        if let Some(i) = v.as_instruction_value()
            && i.set_volatile(true).is_err()
        {
            crate::bug!("a load can be volatile");
        }
        self.extend(v.into_int_value(), int)
    }
}
