//! Finds the file that a process has mapped at an address, in the kernel's tree of mappings.

use inkwell::values::{IntValue, PointerValue};

use super::super::{Builder, Cmp, Helper};
use super::layout::*;
use super::memory::*;
use super::{MappingTree, U32, U64, UnwindTarget};
use crate::types::Space;

impl<'c> Builder<'_, 'c> {
    /// Looks up a page that is not in the cache, and stores its value in [`VALUE`].
    pub(super) fn find_page(&mut self, limit: u32, state: PointerValue<'c>, addr: IntValue<'c>, target: &UnwindTarget) {
        self.store(state, MISS_ADDR, 8, addr);
        let slot = self.load(state, STATE_SLOT, U64);
        // one after the other, because the stack for nested calls is limited
        self.global(&format!("unwind_find_mapping_{limit}"), &[slot], |e, numbers| {
            let state = e.walk_memory_of(limit, numbers);
            let zero = e.int(0);
            e.store(state, MAPPING, 8, zero);
            match target.tree {
                MappingTree::Maple(root) => e.find_in_maple_tree(limit, state, root),
                MappingTree::RedBlack(root, node) => e.find_in_red_black_tree(limit, state, root, node, target.vma),
            }
            e.int(0)
        });
        self.global(&format!("unwind_find_page_{limit}"), &[slot], |e, numbers| {
            let state = e.walk_memory_of(limit, numbers);
            let zero = e.int(0);
            for word in [VALUE, MISS_START, MISS_END, MISS_FILE, MISS_FILE + 8, MISS_FILE + 16] {
                e.store(state, word, 8, zero);
            }
            let mapping = e.load(state, MAPPING, U64);
            e.note_mapping(state, mapping, target);
            let (addr, start, end) = (e.load(state, MISS_ADDR, U64), e.load(state, MISS_START, U64), e.load(state, MISS_END, U64));
            let inside = e.and(e.cmp(Cmp::Ule, start, addr), e.cmp(Cmp::Ult, addr, end));
            e.if_else(inside, |e| e.use_mapping(state, target), |e| e.stop(state, CUT_NOT_CODE));
            e.int(0)
        });
    }

    /// Descends the maple tree (lib/maple_tree.c, `mtree_range_walk`) to the mapping that may hold the address.
    pub(super) fn find_in_maple_tree(&mut self, limit: u32, state: PointerValue<'c>, root: u32) {
        /// A tree of height 5 has more mappings than any process.
        const HEIGHT: u64 = 6;
        let addr = self.add(self.load(state, MM, U64), self.int(root.into()));
        let root = self.read_or_zero(Space::Kernel, addr);
        self.store(state, MAPPING, 8, root);
        self.descend(limit, state, HEIGHT, Self::descend_maple_tree);
    }

    /// Calls `turn`, in a function that the verifier checks once, until it returns 1.
    fn descend(
        &mut self,
        limit: u32,
        state: PointerValue<'c>,
        height: u64,
        turn: impl FnOnce(&mut Self, PointerValue<'c>) -> IntValue<'c>,
    ) {
        let slot = self.load(state, STATE_SLOT, U64);
        self.count(height, |e, _| {
            let done = e.global(&format!("unwind_level_{limit}"), &[slot], |e, numbers| {
                let state = e.walk_memory_of(limit, numbers);
                turn(e, state)
            });
            e.if_(done, |e| e.break_());
        });
    }

    /// Goes to the next level; 1 if there is none.
    fn descend_maple_tree(&mut self, state: PointerValue<'c>) -> IntValue<'c> {
        /// `maple_leaf_64`, `maple_arange_64` of `enum maple_type`; the other kind of node is `maple_range_64`.
        const LEAF: u64 = 1;
        const ARANGE: u64 = 3;
        /// `MAPLE_RANGE64_SLOTS`, `MAPLE_ARANGE64_SLOTS`
        const SLOTS: [u64; 2] = [16, 10];
        let entry = self.load(state, MAPPING, U64);
        // no mapping there; or an address space with a single mapping, and no node
        let none = self.cmp(Cmp::Ule, entry, self.int(u64::from(NODE_SIZE)));
        self.if_(none, |e| e.leave());
        let kind = self.and(self.shr(entry, self.int(3), false), self.int(0xf));
        let (to, size) = (self.offset(state, NODE), self.int(NODE_SIZE.into()));
        let node = self.and(entry, self.int(!u64::from(NODE_SIZE - 1)));
        self.call(Helper::ProbeReadKernel, &[to.into(), size.into(), node.into()]);
        let slot = self.first_pivot_from(state, SLOTS[0] - 1);
        // the parent's address, and the pivots
        let is_arange = self.cmp(Cmp::Eq, kind, self.int(ARANGE));
        let first = self.select(is_arange, self.int(8 * SLOTS[1]), self.int(8 * SLOTS[0]));
        let addr = self.add(first, self.mul(slot, self.int(8)));
        let addr = self.and(self.opaque(addr), self.int(u64::from(NODE_SIZE) - 8));
        let next = self.load(self.offset_by(state, addr), NODE, U64);
        self.store(state, MAPPING, 8, next);
        self.cmp(Cmp::Ule, kind, self.int(LEAF))
    }

    /// The number of pivots before the first that is not below the address. It has no branches, because the verifier
    /// would follow each path. A pivot of zero means the node's end. After the pivots of a smaller node come kernel
    /// addresses, which are above all addresses in user space.
    fn first_pivot_from(&mut self, state: PointerValue<'c>, pivots: u64) -> IntValue<'c> {
        let one = self.int(1);
        let addr = self.sub(self.load(state, MISS_ADDR, U64), one);
        let (mut slot, mut all_before) = (self.int(0), self.int(u64::MAX));
        for i in 0..pivots as u32 {
            let pivot = self.sub(self.load(state, NODE + 8 + 8 * i, U64), one);
            // by the sign bits: the pivot is below the address, and not in the upper half, or zero
            let below = self.and(self.sub(pivot, addr), self.xor(pivot, self.int(u64::MAX)));
            all_before = self.and(all_before, below);
            slot = self.add(slot, self.shr(all_before, self.int(63), false));
        }
        self.opaque(slot)
    }

    /// Descends the red-black tree (mm/mmap.c, `find_vma`, before Linux 6.1) to the mapping that may hold the address.
    pub(super) fn find_in_red_black_tree(&mut self, limit: u32, state: PointerValue<'c>, root: u32, member: u32, vma: [u32; 4]) {
        /// The limit for mappings is usually 65,530; such a tree is at most twice as high as a balanced one.
        const HEIGHT: u64 = 32;
        let at = self.add(self.load(state, MM, U64), self.int(root.into()));
        let root = self.read_or_zero(Space::Kernel, at);
        self.store(state, NODE, 8, root);
        self.descend(limit, state, HEIGHT, |e, state| e.descend_red_black_tree(state, member, vma));
    }

    /// Goes to the next level; 1 if there is none, or if the mapping is found.
    fn descend_red_black_tree(&mut self, state: PointerValue<'c>, member: u32, vma: [u32; 4]) -> IntValue<'c> {
        /// `rb_node.rb_right`, `rb_left`
        const RIGHT: u64 = 8;
        const LEFT: u64 = 16;
        let node = self.load(state, NODE, U64);
        let is_zero = self.cmp(Cmp::Eq, node, self.int(0));
        self.if_(is_zero, |e| e.leave());
        let mapping = self.sub(node, self.int(member.into()));
        let read = |e: &mut Self, offset: u32| {
            let at = e.add(mapping, e.int(offset.into()));
            e.read_or_zero(Space::Kernel, at)
        };
        let (start, end) = (read(self, vma[0]), read(self, vma[1]));
        let addr = self.load(state, MISS_ADDR, U64);
        let before = self.cmp(Cmp::Ult, addr, start);
        let after = self.cmp(Cmp::Uge, addr, end);
        let here = self.cmp(Cmp::Eq, self.or(before, after), self.int(0));
        self.if_(here, |e| {
            e.store(state, MAPPING, 8, mapping);
            e.leave();
        });
        let side = self.select(before, self.int(LEFT), self.int(RIGHT));
        let at = self.add(node, side);
        let next = self.read_or_zero(Space::Kernel, at);
        self.store(state, NODE, 8, next);
        self.int(0)
    }

    pub(super) fn note_mapping(&mut self, state: PointerValue<'c>, vma: IntValue<'c>, of: &UnwindTarget) {
        let read = |e: &mut Self, base: IntValue<'c>, offset: u32| {
            let addr = e.add(base, e.int(offset.into()));
            e.read_or_zero(Space::Kernel, addr)
        };
        let [start, end, pgoff, file] = of.vma;
        for (member, to) in [(start, MISS_START), (end, MISS_END), (pgoff, PGOFF), (file, FILE)] {
            let value = read(self, vma, member);
            self.store(state, to, 8, value);
        }
        if let Some(flags) = of.vm_flags {
            let value = read(self, vma, flags);
            self.store(state, VM_FLAGS, 8, value);
        }
        let file = self.load(state, FILE, U64);
        let nonzero = self.cmp(Cmp::Ne, file, self.int(0));
        self.if_(nonzero, |e| {
            let inode = read(e, file, of.inode);
            let [ino, size, sb, generation] = of.inode_members;
            let (ino, size, sb) = (read(e, inode, ino), read(e, inode, size), read(e, inode, sb));
            let generation = read(e, inode, generation);
            let dev = read(e, sb, of.dev);
            let dev = e.or(e.and(dev, e.int(u64::from(u32::MAX))), e.shl(generation, e.int(32)));
            for (value, to) in [(ino, MISS_FILE), (dev, MISS_FILE + 8), (size, MISS_FILE + 16)] {
                e.store(state, to, 8, value);
            }
        });
    }

    /// Computes the page's value from its mapping.
    pub(super) fn use_mapping(&mut self, state: PointerValue<'c>, target: &UnwindTarget) {
        let (addr, start) = (self.load(state, MISS_ADDR, U64), self.load(state, MISS_START, U64));
        let within = self.sub(addr, start);
        let nonzero = self.cmp(Cmp::Ne, self.load(state, FILE, U64), self.int(0));
        self.if_else(
            nonzero,
            |e| {
                let (inodes, key) = (e.map_of_unwinding(INODES), e.offset(state, MISS_FILE));
                let number = e.call_ptr(Helper::MapLookupElem, &[inodes.into(), key.into()]);
                let there = e.not_null(number);
                e.if_else(
                    there,
                    |e| {
                        let number = e.load(number, 0, U32);
                        let first = e.shl(e.load(state, PGOFF, U64), e.int(PAGE_SHIFT));
                        let offset = e.add(within, first);
                        e.set_page_value(state, number, offset);
                    },
                    |e| e.report_miss(state),
                );
            },
            |e| {
                let at = e.add(e.load(state, MM, U64), e.int(target.vdso.into()));
                let vdso = e.read_or_zero(Space::Kernel, at);
                let is_vdso = e.cmp(Cmp::Eq, vdso, start);
                e.if_else(
                    is_vdso,
                    |e| {
                        let number = e.int(VDSO.into());
                        e.set_page_value(state, number, within);
                    },
                    |e| {
                        let no_file = e.int(NO_FILE);
                        e.store(state, VALUE, 8, no_file);
                    },
                );
            },
        );
    }

    pub(super) fn set_page_value(&mut self, state: PointerValue<'c>, file: IntValue<'c>, offset: IntValue<'c>) {
        let number = self.shr(offset, self.int(PAGE_SHIFT), false);
        let number = self.and(number, self.int(u64::from(u32::MAX)));
        let value = self.or(self.or(file, self.shl(number, self.int(NUMBER_SHIFT))), self.int(IN_FILE));
        self.store(state, VALUE, 8, value);
    }

    /// Reports a file without a table to user space, and ends the walk.
    pub(super) fn report_miss(&mut self, state: PointerValue<'c>) {
        let reason = self.int(CUT_NOT_LOADED);
        self.store(state, REASON, 8, reason);
        // once for each process, since a process that ends may make the file unreachable
        let (tag, ino) = (self.load(state, MM, U64), self.load(state, MISS_FILE, U64));
        let key = self.xor(self.mul(tag, self.int(GOLDEN)), ino);
        self.store(state, MISS_KEY, 8, key);
        let (missed, key) = (self.map_of_unwinding(MISSED), self.offset(state, MISS_KEY));
        let known = self.call_ptr(Helper::MapLookupElem, &[missed.into(), key.into()]);
        let is_known = self.not_null(known);
        self.if_(is_known, |e| e.leave());
        self.update(missed, key, key);
        let (ring, size, flags) = (self.map_of_unwinding(MISSES), self.int(size_of::<MissingTable>() as u64), self.int(0));
        let ptr = self.offset(state, MISS);
        self.call(Helper::RingbufOutput, &[ring.into(), ptr.into(), size.into(), flags.into()]);
        self.leave();
    }
}
