//! Where the temporaries of a function live: on its stack while there is room, and in its program's slot of the scratch arena.

use std::collections::HashMap;

use inkwell::values::PointerValue;

/// The first word of a slot says that it is taken.
const SLOT_HEAD: u32 = 8;

/// What a function has allocated.
#[derive(Default)]
pub(super) struct Temporaries<'c> {
    /// Some of the scratch memory is used.
    pub scratch_used: bool,
    scratch_top: u32,
    /// The most that was used at a time.
    pub scratch_max: u32,
    stack: Vec<StackSlot<'c>>,
    stack_bytes: u32,
    /// Where in the scratch arena an address of it lies.
    places: HashMap<PointerValue<'c>, u32>,
    /// Addresses that are not multiples of eight, and what they are multiples of.
    skewed: HashMap<PointerValue<'c>, u32>,
    /// Stack that is kept, by what it is for.
    pub kept: HashMap<String, PointerValue<'c>>,
}

/// A piece of the stack, of 8, 16 or 32 bytes.
struct StackSlot<'c> {
    at: PointerValue<'c>,
    size: u32,
    in_use: bool,
}

/// What was allocated up to some point: see [`Builder::release`](super::Builder::release).
pub struct Mark {
    scratch_top: u32,
    stack: Vec<bool>,
}

impl<'c> Temporaries<'c> {
    /// None yet, of a function that has so many bytes of its stack in use for other things.
    pub fn new(stack_bytes: u32) -> Self {
        Self { scratch_top: SLOT_HEAD, scratch_max: SLOT_HEAD, stack_bytes, ..Self::default() }
    }

    /// From here on, scratch memory is that above `top`.
    pub fn start_above(&mut self, top: u32) {
        (self.scratch_top, self.scratch_max) = (top, top);
    }

    /// Where free scratch memory starts.
    pub fn scratch_top(&self) -> u32 {
        self.scratch_top
    }

    /// Scratch memory: its offset.
    pub fn scratch(&mut self, size: u32) -> u32 {
        let offset = self.scratch_top;
        self.scratch_used = true;
        self.scratch_top += size.max(1).next_multiple_of(8);
        self.scratch_max = self.scratch_max.max(self.scratch_top);
        offset
    }

    /// A function that this one calls works in the same scratch memory, as far as `max`.
    pub fn share_scratch(&mut self, max: u32) {
        self.scratch_used = true;
        self.scratch_max = self.scratch_max.max(max);
    }

    /// A piece of the stack of this size that is free again.
    pub fn reuse(&mut self, size: u32) -> Option<PointerValue<'c>> {
        let slot = self.stack.iter_mut().find(|s| s.size == size && !s.in_use)?;
        slot.in_use = true;
        Some(slot.at)
    }

    /// Is there room for so much more on the stack, of which `budget` may be used in all?
    pub fn fits(&self, size: u32, budget: u32) -> bool {
        self.stack_bytes + size <= budget
    }

    /// Takes note of a new piece of the stack, in use.
    pub fn add(&mut self, at: PointerValue<'c>, size: u32) {
        self.use_stack(size);
        self.stack.push(StackSlot { at, size, in_use: true });
    }

    /// Takes note of stack that stays in use.
    pub fn use_stack(&mut self, bytes: u32) {
        self.stack_bytes += bytes;
    }

    /// So much of the stack counts as used.
    pub fn set_stack_used(&mut self, bytes: u32) {
        self.stack_bytes = bytes;
    }

    /// At least so much of the stack counts as used.
    pub fn use_stack_up_to(&mut self, bytes: u32) {
        self.stack_bytes = self.stack_bytes.max(bytes);
    }

    /// What is allocated now.
    pub fn mark(&self) -> Mark {
        Mark { scratch_top: self.scratch_top, stack: self.stack.iter().map(|s| s.in_use).collect() }
    }

    /// Gives back all that was allocated since the mark.
    pub fn release(&mut self, mark: &Mark) {
        self.scratch_top = mark.scratch_top;
        for (i, s) in self.stack.iter_mut().enumerate() {
            s.in_use = mark.stack.get(i).copied().unwrap_or(false);
        }
    }

    /// Takes note of where in scratch memory an address leads.
    pub fn set_place(&mut self, at: PointerValue<'c>, offset: u32) {
        self.places.insert(at, offset);
    }

    /// Where in scratch memory it leads, if it is known to.
    pub fn place_of(&self, at: PointerValue<'c>) -> Option<u32> {
        self.places.get(&at).copied()
    }

    /// Takes note of what an address is a multiple of.
    pub fn set_alignment(&mut self, at: PointerValue<'c>, align: u32) {
        if align < 8 {
            self.skewed.insert(at, align);
        }
    }

    /// What an address is known to be a multiple of.
    pub fn alignment(&self, at: PointerValue<'c>) -> u32 {
        self.skewed.get(&at).copied().unwrap_or(8)
    }
}
