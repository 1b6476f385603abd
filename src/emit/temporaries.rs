//! Where the temporaries of a function are stored: on its stack while there is room, then in its program's slot of the
//! scratch arena.

use std::collections::HashMap;

use inkwell::values::PointerValue;

/// The first word of a slot is set if the slot is claimed.
const SLOT_HEAD: u32 = 8;
/// The limit of the arena, which the kernel rejects; offsets have 32 bits.
const MAX_SCRATCH: u32 = !7;

/// The allocations of a function.
#[derive(Default)]
pub(super) struct Temporaries<'c> {
    /// Some of the scratch memory is used.
    pub scratch_used: bool,
    scratch_top: u32,
    /// The maximum that was in use at a time.
    pub scratch_max: u32,
    stack: Vec<StackSlot<'c>>,
    stack_bytes: u32,
    /// Offsets in the scratch arena of known addresses.
    scratch_offsets: HashMap<PointerValue<'c>, u32>,
    /// Alignments of addresses that are not multiples of eight.
    skewed: HashMap<PointerValue<'c>, u32>,
    /// Permanent pieces of the stack, by their purpose.
    pub kept: HashMap<String, PointerValue<'c>>,
}

/// A piece of the stack, of 8, 16 or 32 bytes.
struct StackSlot<'c> {
    ptr: PointerValue<'c>,
    size: u32,
    in_use: bool,
}

/// The allocations up to some point: see [`Builder::release`](super::Builder::release).
pub struct Mark {
    scratch_top: u32,
    stack: Vec<bool>,
}

impl<'c> Temporaries<'c> {
    /// No allocations, for a function that uses this many bytes of its stack for other purposes.
    pub fn new(stack_bytes: u32) -> Self {
        Self { scratch_top: SLOT_HEAD, scratch_max: SLOT_HEAD, stack_bytes, ..Self::default() }
    }

    /// Limits the following allocations to scratch memory above `top`.
    pub fn start_above(&mut self, top: u32) {
        (self.scratch_top, self.scratch_max) = (top, top);
    }

    /// The start of free scratch memory.
    pub fn scratch_top(&self) -> u32 {
        self.scratch_top
    }

    /// Allocates scratch memory. The result is its offset.
    pub fn scratch(&mut self, size: u32) -> u32 {
        let offset = self.scratch_top;
        self.scratch_used = true;
        self.scratch_top = self.scratch_top.saturating_add(size.max(1).next_multiple_of(8)).min(MAX_SCRATCH);
        self.scratch_max = self.scratch_max.max(self.scratch_top);
        offset
    }

    /// Reserves scratch memory up to `max` for a function that this one calls.
    pub fn share_scratch(&mut self, max: u32) {
        self.scratch_used = true;
        self.scratch_max = self.scratch_max.max(max);
    }

    /// A free piece of the stack of this size.
    pub fn reuse(&mut self, size: u32) -> Option<PointerValue<'c>> {
        let slot = self.stack.iter_mut().find(|s| s.size == size && !s.in_use)?;
        slot.in_use = true;
        Some(slot.ptr)
    }

    /// Do this many more bytes fit into the stack, of which `budget` bytes may be used?
    pub fn fits(&self, size: u32, budget: u32) -> bool {
        self.stack_bytes + size <= budget
    }

    /// Records a new piece of the stack as used.
    pub fn add(&mut self, ptr: PointerValue<'c>, size: u32) {
        self.use_stack(size);
        self.stack.push(StackSlot { ptr, size, in_use: true });
    }

    /// Records a piece of the stack as permanently used.
    pub fn use_stack(&mut self, bytes: u32) {
        self.stack_bytes += bytes;
    }

    /// Sets the used size of the stack.
    pub fn set_stack_used(&mut self, bytes: u32) {
        self.stack_bytes = bytes;
    }

    /// Raises the used size of the stack to at least this.
    pub fn use_stack_up_to(&mut self, bytes: u32) {
        self.stack_bytes = self.stack_bytes.max(bytes);
    }

    /// The current allocations.
    pub fn mark(&self) -> Mark {
        Mark { scratch_top: self.scratch_top, stack: self.stack.iter().map(|s| s.in_use).collect() }
    }

    /// Releases all allocations since the mark.
    pub fn release(&mut self, mark: &Mark) {
        self.scratch_top = mark.scratch_top;
        for (i, s) in self.stack.iter_mut().enumerate() {
            s.in_use = mark.stack.get(i).copied().unwrap_or(false);
        }
    }

    /// Records the offset in scratch memory of an address.
    pub fn set_place(&mut self, ptr: PointerValue<'c>, offset: u32) {
        self.scratch_offsets.insert(ptr, offset);
    }

    /// The offset in scratch memory of an address, if it is known.
    pub fn place_of(&self, ptr: PointerValue<'c>) -> Option<u32> {
        self.scratch_offsets.get(&ptr).copied()
    }

    /// Records the alignment of an address.
    pub fn set_alignment(&mut self, ptr: PointerValue<'c>, align: u32) {
        if align < 8 {
            self.skewed.insert(ptr, align);
        }
    }

    /// The known alignment of an address.
    pub fn alignment(&self, ptr: PointerValue<'c>) -> u32 {
        self.skewed.get(&ptr).copied().unwrap_or(8)
    }
}
