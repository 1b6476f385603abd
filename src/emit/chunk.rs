//! Pieces of a long program: functions that the verifier looks at by themselves, so that a program of n times the length
//! takes it n times as long, and no piece has more conditions than it can bear.
//!
//! A piece works in the program's scratch memory, which it finds again by the slot's number: of a pointer the verifier would
//! forget in whose memory it leads. What it returns is a number that the caller acts upon.

use inkwell::basic_block::BasicBlock;
use inkwell::debug_info::DIType;
use inkwell::values::{BasicMetadataValueEnum, BasicValueEnum, FunctionValue, IntValue};

use super::callback::Seen;
use super::mem::U64;
use super::{Emit, Outer, ok};
use crate::bug;

/// A piece under construction.
pub struct Chunk<'c> {
    outer: Outer<'c>,
    /// What it gets first: the context, if it turns out to need that.
    first: DIType<'c>,
}

impl<'c> Emit<'c> {
    /// Starts a piece: what follows is its body, which finds all that lies in scratch memory where it was.
    pub fn begin_chunk(&mut self, name: &str) -> Chunk<'c> {
        let first = self.undecided();
        let outer = self.begin_inner(name, &[false, true, true], Seen::WithContext(first));
        let params = self.fun_ref().function.get_params();
        let (Some(BasicValueEnum::PointerValue(ctx)), Some(BasicValueEnum::IntValue(site))) = (params.first(), params.get(2)) else {
            bug!("a piece gets the context, a slot and a site")
        };
        // or LLVM sees that it needs none of some, and callers leave their registers empty, which the verifier minds
        self.opaque(self.addr(*ctx));
        let slot = params.get(1).and_then(|p| if let BasicValueEnum::IntValue(v) = p { Some(*v) } else { None });
        slot.into_iter().chain([*site]).for_each(|v| {
            self.opaque(v);
        });
        if let Some(of) = &outer.fun {
            let (top, sites, section) = (of.scratch_top, of.sites.clone(), of.section.clone());
            // it is a frame itself
            let frames = if of.own_frames > 0 { of.own_frames + 1 } else { 0 };
            let f = self.fun();
            (f.scratch_top, f.scratch_max, f.sites, f.own_frames, f.section) = (top, top, sites, frames, section);
            (f.context, f.site) = (Some(*ctx), Some(*site));
            f.stack_bytes = 0;
        }
        Chunk { outer, first }
    }

    /// Ends it, and calls it; gives the number that it returns.
    pub fn end_chunk(&mut self, chunk: Chunk<'c>, value: u64) -> IntValue<'c> {
        let Chunk { mut outer, first } = chunk;
        let f = self.fun_ref();
        let (used, context) = (f.scratch_used, f.used_context.get().then(|| self.row().and_then(|row| row.context)));
        if used {
            outer.start = self.find_slot(outer.start);
        }
        let value = self.int(value);
        let (function, max, _) = self.end_inner(outer, value, false);
        self.decide(first, context.flatten());
        if context == Some(None) {
            self.hide(function);
        }
        if used {
            let f = self.fun();
            f.scratch_used = true;
            f.scratch_max = f.scratch_max.max(max);
        }
        let ctx = if context.is_some() { self.ctx() } else { self.null() };
        let none = self.int(0);
        let slot = if used { self.slot_number() } else { none };
        let site = if self.fun_ref().sites.len() > 1 { self.site() } else { none };
        self.call_function(function, &[ctx.into(), slot.into(), site.into()])
    }

    /// The number of the slot that the program has taken.
    fn slot_number(&mut self) -> IntValue<'c> {
        let slot = self.scratch_at(0);
        let taken = self.load(slot, 0, U64);
        self.sub(taken, self.int(1))
    }

    /// Emits the search for the slot, before the body that starts at `start`; where that now starts.
    fn find_slot(&mut self, start: BasicBlock<'c>) -> BasicBlock<'c> {
        let here = self.here();
        let exit = self.fun_ref().exit;
        let (find, home) = (self.new_block("find"), self.fun_ref().slot);
        let Some(BasicValueEnum::IntValue(number)) = self.fun_ref().function.get_nth_param(1) else { bug!("a piece gets a slot") };
        let key = self.entry_alloca();
        self.b.position_at_end(find);
        self.store(key, 0, 4, number);
        let map = self.scratch_map();
        let elem = self.lookup(map, key);
        ok(self.b.build_store(home, elem));
        let there = ok(self.b.build_is_not_null(elem, ""));
        ok(self.b.build_conditional_branch(there, start, exit));
        let zero = self.int(0);
        let result = self.fun_ref().result;
        let entry = self.fun_ref().entry;
        self.b.position_at_end(entry);
        ok(self.b.build_store(result, zero));
        self.b.position_at_end(here);
        find
    }

    fn call_function(&mut self, function: FunctionValue<'c>, args: &[BasicMetadataValueEnum<'c>]) -> IntValue<'c> {
        let call = ok(self.b.build_call(function, args, ""));
        match call.try_as_basic_value().basic() {
            Some(BasicValueEnum::IntValue(v)) => v,
            _ => bug!("a function gives a number"),
        }
    }
}
