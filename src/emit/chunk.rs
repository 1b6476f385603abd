//! Chunks of long programs: global functions, which the verifier checks separately. So the time of verification grows linearly
//! with the length of a program, and no chunk has too many conditions.
//!
//! A chunk works in the program's scratch memory and finds it by the number of the slot, because the verifier does not track a
//! pointer across the call. It returns a number that tells the caller how to continue.

use inkwell::GlobalVisibility;
use inkwell::debug_info::DIType;
use inkwell::values::{BasicMetadataValueEnum, BasicValueEnum, FunctionValue, IntValue};

use super::builder::FunctionCx;
use super::callback::{FinishedFunction, SubprogramKind};
use super::mem::U64;
use super::{Builder, ok};
use crate::bug;

/// What a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkKind {
    /// A part of a long body.
    Piece,
    /// A statement like others of this shape. Those with the same code but for numbers share a function, which gets two more
    /// parameters (`alike.cpp`).
    Alike(u64),
}

/// A chunk under construction.
pub struct Chunk<'a, 'c> {
    /// Builds the body. The offsets of values in scratch memory stay the same.
    pub builder: Builder<'a, 'c>,
    /// The first parameter: the context, if the chunk needs it.
    first: DIType<'c>,
    kind: ChunkKind,
}

impl<'a, 'c> Builder<'a, 'c> {
    /// Starts a chunk.
    pub fn begin_chunk(&self, name: &str, kind: ChunkKind) -> Chunk<'a, 'c> {
        let first = self.debug.undecided();
        let numbers: &[bool] = match kind {
            ChunkKind::Piece => &[false, true, true],
            ChunkKind::Alike(_) => &[false, true, true, true, true],
        };
        let mut inner = self.begin_inner(name, numbers, SubprogramKind::GlobalWithContext(first));
        let is_rare = self.program.is_rare;
        if is_rare || self.program.has_cheap_pieces && kind == ChunkKind::Piece {
            self.mark_as_rare(inner.fun.function, !is_rare);
        }
        if let ChunkKind::Alike(shape) = kind {
            self.mark_as_alike(inner.fun.function, shape);
            inner.fun.is_alike = true;
        }
        let params = inner.fun.function.get_params();
        let (Some(BasicValueEnum::PointerValue(ctx)), Some(BasicValueEnum::IntValue(slot)), Some(BasicValueEnum::IntValue(site))) =
            (params.first(), params.get(1), params.get(2))
        else {
            bug!("a piece gets the context, a slot and a site")
        };
        // Otherwise LLVM drops unused parameters, and callers leave their registers uninitialized, which the verifier rejects.
        inner.opaque(inner.addr(*ctx));
        for number in params.iter().skip(1) {
            if let BasicValueEnum::IntValue(number) = number {
                inner.opaque(*number);
            }
        }
        let (outer, f) = (&self.fun, &mut inner.fun);
        (f.sites, f.section) = (outer.sites.clone(), outer.section.clone());
        // the chunk is a frame itself
        f.own_frames = if outer.own_frames > 0 { outer.own_frames + 1 } else { 0 };
        (f.slot_number, f.context, f.site) = (Some(*slot), Some(*ctx), Some(*site));
        f.temporaries.start_above(outer.temporaries.scratch_top());
        f.temporaries.set_stack_used(0);
        Chunk { builder: inner, first, kind }
    }

    /// Ends the chunk and calls it. The result is its return value.
    pub fn end_chunk(&mut self, chunk: Chunk<'a, 'c>, value: u64) -> IntValue<'c> {
        let Chunk { builder: mut inner, first, kind } = chunk;
        let context = inner.fun.used_context.get().then(|| inner.row().and_then(|row| row.context));
        if inner.fun.temporaries.scratch_used {
            inner.find_slot();
        }
        let value = self.int(value);
        let FinishedFunction { function, scratch } = inner.end_inner(value, false);
        self.debug.decide(first, context.flatten());
        if context == Some(None) {
            // libbpf makes the verifier check a hidden function with its callers.
            function.as_global_value().set_visibility(GlobalVisibility::Hidden);
        }
        if let Some(max) = scratch {
            self.fun.temporaries.share_scratch(max);
        }
        let ctx = if context.is_some() { self.ctx() } else { self.null() };
        let zero = self.int(0);
        let slot = if scratch.is_some() { self.slot_number() } else { zero };
        let site = if self.passes_site() { self.site_and_weight() } else { zero };
        match kind {
            ChunkKind::Piece => self.call_function(function, &[ctx.into(), slot.into(), site.into()]),
            ChunkKind::Alike(_) => self.call_function(function, &[ctx.into(), slot.into(), site.into(), zero.into(), zero.into()]),
        }
    }

    /// May what is compiled now share its code with statements that differ in numbers?
    pub fn is_alike(&self) -> bool {
        self.fun.is_alike
    }

    /// Can a chunk take the context?
    pub fn passes_context(&self) -> bool {
        self.row().is_some_and(|row| row.context.is_some())
    }

    /// The number of the slot that the program has claimed.
    pub(super) fn slot_number(&mut self) -> IntValue<'c> {
        if let Some(number) = self.fun.slot_number {
            self.fun.temporaries.scratch_used = true;
            return number;
        }
        let slot = self.scratch_at(0);
        let taken = self.load(slot, 0, U64);
        self.sub(taken, self.int(1))
    }

    /// Builds the search for the slot, before the body.
    fn find_slot(&mut self) {
        let here = self.current_block();
        let FunctionCx { entry, exit, result, slot: stack_slot, scratch_claim: (_, start), .. } = self.fun;
        let find = self.new_block("find");
        let Some(number) = self.fun.slot_number else { bug!("a chunk gets a slot") };
        let key = self.entry_alloca();
        self.b.position_at_end(find);
        self.store(key, 0, 4, number);
        let map = self.scratch_map();
        let elem = self.lookup(map, key);
        ok(self.b.build_store(stack_slot, elem));
        let found = ok(self.b.build_is_not_null(elem, ""));
        ok(self.b.build_conditional_branch(found, start, exit));
        self.b.position_at_end(entry);
        ok(self.b.build_store(result, self.int(0)));
        self.b.position_at_end(here);
        self.fun.scratch_claim.1 = find;
    }

    pub(super) fn call_function(&mut self, function: FunctionValue<'c>, args: &[BasicMetadataValueEnum<'c>]) -> IntValue<'c> {
        let call = ok(self.b.build_call(function, args, ""));
        match call.try_as_basic_value().basic() {
            Some(BasicValueEnum::IntValue(v)) => v,
            _ => bug!("a function gives a number"),
        }
    }
}
