//! Maps whose key is the current thread: most of their elements are in a table, at a place that follows from the thread's ID.
//!
//! In a hash map, a look-up takes some 40 ns, and adding and removing an element takes 290. In the table, all of it takes 10. A
//! cell belongs to at most one thread at a time ([`Cell::owner`]). If another thread has it, the element goes into the hash map.
//! An element never moves:
//!
//! - A thread takes a cell only if it is free and no element of its threads is in the hash map ([`Cell::overflow`]). So a
//!   thread whose cell shows neither has no element.
//! - Only programs in a thread change the elements of this thread, and a thread runs on one CPU at a time. Threads compete
//!   for a free cell by an atomic exchange.
//! - An interrupt may run a program between the steps of another in the same thread. A cell whose value is not yet
//!   written is marked ([`Cell::TAKEN`]), so that program uses the hash map; the first one removes what it left there.
//! - The idle tasks of all CPUs, and tasks outside rbt's PID namespace, share the ID 0. They use the hash map.
//!
//! The kernel's task storage was the alternative. A hand-written pair of probes adds 593 ns to a call with a hash map, 300 with
//! task storage, and 272 with a table (Linux 6.18). Task storage loses the elements of threads that have ended, which a
//! script prints. Not all types of programs may use it, and user space can only find its elements by visiting all tasks.

use std::mem::offset_of;

use inkwell::AtomicOrdering;
use inkwell::AtomicRMWBinOp;
use inkwell::values::{IntValue, PointerValue};
use serde::{Deserialize, Serialize};

use super::shared::{Cell, THREADS_SECTION};
use super::{Builder, Cmp, CodegenCx, Operand, ok};
use crate::types::{Int, Type};

const U32: Int = Int { bytes: 4, signed: false };
/// `ENOENT` of errno(3).
const MISSING: i64 = -2;

/// The part of the tables that belongs to a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadTable {
    /// Index of its first cell.
    pub first: u32,
    /// Number of cells: a power of two.
    pub cells: u32,
}

impl ThreadTable {
    /// Size of all tables up to this one, in bytes.
    pub fn end(&self) -> u64 {
        (u64::from(self.first) + u64::from(self.cells)) * size_of::<Cell>() as u64
    }
}

impl CodegenCx<'_> {
    /// Gives the script's map with this number a table. Programs are built later.
    pub fn declare_thread_table(&self, id: usize, cells: u32) {
        let mut tables = self.thread_tables.borrow_mut();
        let first = tables.values().map(|table| table.cells).sum();
        tables.insert(id, ThreadTable { first, cells });
    }

    /// The table of the script's map with this number, if it has one.
    pub fn thread_table(&self, id: usize) -> Option<ThreadTable> {
        self.thread_tables.borrow().get(&id).copied()
    }
}

impl<'c> Builder<'_, 'c> {
    /// The address of an element of the script's map with this number, or null. `map` is its hash map, or the current copy.
    pub fn script_element(&mut self, id: usize, map: PointerValue<'c>, key: PointerValue<'c>) -> PointerValue<'c> {
        let Some(cell) = self.cell(id, key) else { return self.lookup(map, key) };
        let stack_slot = self.scalar_slot();
        let in_cell = self.owns(cell);
        self.if_else(
            in_cell,
            |e| e.spill_ptr(stack_slot, e.offset(cell.ptr, VALUE)),
            |e| {
                let null = e.null();
                e.spill_ptr(stack_slot, null);
                let overflow = e.overflow(cell);
                e.if_(overflow, |e| {
                    let found = e.lookup(map, key);
                    e.spill_ptr(stack_slot, found);
                });
            },
        );
        self.load_spilled_ptr(stack_slot)
    }

    /// Removes an element of the script's map with this number. Returns 0 or a negative error.
    pub fn remove_script_element(&mut self, id: usize, map: PointerValue<'c>, key: PointerValue<'c>) -> IntValue<'c> {
        let Some(cell) = self.cell(id, key) else { return self.delete(map, key) };
        let in_cell = self.owns(cell);
        self.choose(
            in_cell,
            |e| {
                let free = e.int(0);
                e.set_owner(cell, free);
                e.int(0)
            },
            |e| {
                let overflow = e.overflow(cell);
                e.choose(overflow, |e| e.remove_from_hash(cell, map, key), |e| e.int(MISSING as u64))
            },
        )
    }

    /// Adds an element, which does not exist, to the script's map with this number. `insert` adds it to the hash map, and
    /// returns 0 or a negative error.
    pub fn add_script_element(
        &mut self,
        id: usize,
        (map, key): (PointerValue<'c>, PointerValue<'c>),
        (op, ty): (&Operand<'c>, &Type),
        insert: impl FnOnce(&mut Self) -> IntValue<'c>,
    ) {
        let Some(cell) = self.cell(id, key) else {
            insert(self);
            return;
        };
        let taken = self.take(cell);
        self.if_else(
            taken,
            |e| {
                e.store_value(e.offset(cell.ptr, VALUE), 8, op, ty);
                e.set_owner(cell, cell.owned);
                // a program that interrupted this one may have added the element
                let overflow = e.overflow(cell);
                e.if_(overflow, |e| {
                    e.remove_from_hash(cell, map, key);
                });
            },
            |e| {
                // first, so that no program that interrupts this one misses the element
                e.add_overflow(cell, 1);
                let r = insert(e);
                let failed = e.cmp(Cmp::Slt, r, e.int(0));
                e.if_(failed, |e| e.add_overflow(cell, u64::MAX));
            },
        );
    }

    /// The cell of a thread: none if the map has no table.
    fn cell(&mut self, id: usize, key: PointerValue<'c>) -> Option<ThreadCell<'c>> {
        let table = self.thread_table(id)?;
        let bytes = self.thread_tables.borrow().values().map(ThreadTable::end).max().unwrap_or(0);
        let all = self.data_global("threads", THREADS_SECTION, bytes as u32);
        let thread = self.load(key, 0, U32);
        // as `Cell::index`
        let hash = self.and(self.mul(thread, self.int(Cell::MULTIPLIER.into())), self.int(u32::MAX.into()));
        let index = self.shr(hash, self.int(Cell::shift(table.cells).into()), false);
        let offset = self.mul(index, self.int(size_of::<Cell>() as u64));
        let ptr = self.offset_by(self.offset(all, table.first * size_of::<Cell>() as u32), offset);
        let owned = self.or(thread, self.int(Cell::OWNED.into()));
        Some(ThreadCell { ptr, thread, owned })
    }

    /// Is the thread's element in its cell?
    fn owns(&mut self, cell: ThreadCell<'c>) -> IntValue<'c> {
        let owner = self.load_volatile(self.offset(cell.ptr, OWNER), U32);
        self.cmp(Cmp::Eq, owner, cell.owned)
    }

    fn overflow(&mut self, cell: ThreadCell<'c>) -> IntValue<'c> {
        self.load_volatile(self.offset(cell.ptr, OVERFLOW), U32)
    }

    /// Takes the cell, if it is free. Returns 1 if it did; then it is marked until it has a value.
    fn take(&mut self, cell: ThreadCell<'c>) -> IntValue<'c> {
        let owner = self.load_volatile(self.offset(cell.ptr, OWNER), U32);
        let overflow = self.overflow(cell);
        let is_free = self.cmp(Cmp::Eq, self.or(owner, overflow), self.int(0));
        let has_id = self.cmp(Cmp::Ne, cell.thread, self.int(0));
        self.choose(
            self.and(is_free, has_id),
            |e| {
                let mark = e.or(cell.owned, e.int(Cell::TAKEN.into()));
                let (free, mark) = (e.narrow(e.int(0), 4), e.narrow(mark, 4));
                let before = e.compare_exchange(e.offset(cell.ptr, OWNER), free, mark);
                let before = e.extend(before, U32);
                e.cmp(Cmp::Eq, before, e.int(0))
            },
            |e| e.int(0),
        )
    }

    /// Sets the owner of a cell that this thread has.
    fn set_owner(&mut self, cell: ThreadCell<'c>, owner: IntValue<'c>) {
        let (ptr, owner) = (self.offset(cell.ptr, OWNER), self.narrow(owner, 4));
        self.publish(ptr, owner);
    }

    /// Stores a number after all earlier accesses to memory.
    pub(super) fn publish(&mut self, ptr: PointerValue<'c>, value: IntValue<'c>) {
        if self.target.arch.ordered_stores {
            self.compiler_barrier();
            self.store_volatile(ptr, value);
        } else {
            ok(self.b.build_atomicrmw(AtomicRMWBinOp::Xchg, ptr, value, AtomicOrdering::SequentiallyConsistent));
        }
    }

    fn add_overflow(&mut self, cell: ThreadCell<'c>, more: u64) {
        let more = self.narrow(self.int(more), 4);
        self.atomic_add(self.offset(cell.ptr, OVERFLOW), more);
    }

    fn remove_from_hash(&mut self, cell: ThreadCell<'c>, map: PointerValue<'c>, key: PointerValue<'c>) -> IntValue<'c> {
        let r = self.delete(map, key);
        let removed = self.cmp(Cmp::Eq, r, self.int(0));
        self.if_(removed, |e| e.add_overflow(cell, u64::MAX));
        r
    }

    /// LLVM moves no memory access across this.
    fn compiler_barrier(&self) {
        let ty = self.llcx.void_type().fn_type(&[], false);
        let asm = self.llcx.create_inline_asm(ty, String::new(), "~{memory}".into(), true, false, None, false);
        ok(self.b.build_indirect_call(ty, asm, &[], ""));
    }
}

const OWNER: u32 = offset_of!(Cell, owner) as u32;
const OVERFLOW: u32 = offset_of!(Cell, overflow) as u32;
const VALUE: u32 = offset_of!(Cell, value) as u32;

/// A thread's cell.
#[derive(Clone, Copy)]
struct ThreadCell<'c> {
    ptr: PointerValue<'c>,
    /// The ID of the thread.
    thread: IntValue<'c>,
    /// The owner if the cell has the thread's element.
    owned: IntValue<'c>,
}
