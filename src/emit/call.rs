//! Functions that programs call: BPF subprograms.
//!
//! One gets a frame in its caller's scratch memory, the program's context and a few numbers; all else is put into the frame
//! before the call, and found there after it. The verifier walks it anew from each call, so it knows what the frame is.
//! LLVM may put a small one in place of its call.

use inkwell::debug_info::AsDIScope;
use inkwell::module::Linkage;
use inkwell::values::{BasicMetadataValueEnum, BasicValueEnum, FunctionValue, IntValue, PointerValue};

use super::callback::Seen;
use super::mem::U64;
use super::{Emit, Operand, Outer, ok};
use crate::bug;
use crate::types::Type;

/// So many numbers are given in registers: BPF has five for arguments, and two are taken.
pub const IN_NUMBERS: usize = 3;
/// A frame starts with a word for the caller and the callee to agree about, and the number of the site that fired.
const FRAME_HEAD: u32 = 16;
/// Stack that a subprogram's own temporaries may take; all frames together have 512 bytes.
const STACK: u32 = 32;

/// A finished subprogram.
#[derive(Clone, Copy)]
pub struct Subprogram<'c> {
    function: FunctionValue<'c>,
    /// Bytes of its frame; 0 when it needs none.
    frame: u32,
}

impl<'c> Emit<'c> {
    /// Starts a subprogram that gets so many numbers (at most [`IN_NUMBERS`]): what follows is its body.
    pub fn begin_subprogram(&mut self, name: &str, numbers: usize) -> (Outer<'c>, Vec<IntValue<'c>>) {
        let mut kinds = vec![false, false];
        kinds.resize(2 + numbers, true);
        let outer = self.begin_inner(name, &kinds, Seen::WithCaller);
        let params = self.fun_ref().function.get_params();
        let (Some(BasicValueEnum::PointerValue(frame)), Some(BasicValueEnum::PointerValue(ctx))) = (params.first(), params.get(1)) else {
            bug!("a subprogram gets a frame and the context")
        };
        let home = self.fun_ref().slot;
        ok(self.b.build_store(home, *frame));
        if let Some(of) = &outer.fun {
            let (sites, frames) = (of.sites.clone(), of.own_frames);
            let many = sites.len() > 1;
            let budget = self.room.temporaries;
            let f = self.fun();
            (f.sites, f.own_frames, f.context) = (sites, frames, Some(*ctx));
            (f.scratch_top, f.scratch_max) = (FRAME_HEAD, FRAME_HEAD);
            f.stack_bytes = budget.saturating_sub(STACK);
            if many {
                let at = self.scratch_at(0);
                let site = self.load(at, 8, U64);
                self.fun().site = Some(site);
            }
        }
        let numbers = params.iter().skip(2).filter_map(|p| if let BasicValueEnum::IntValue(v) = p { Some(*v) } else { None });
        (outer, numbers.collect())
    }

    /// Ends it.
    pub fn end_subprogram(&mut self, outer: Outer<'c>) -> Subprogram<'c> {
        let none = self.int(0);
        let (function, max, used) = self.end_inner(outer, none, false);
        Subprogram { function, frame: if used { max } else { 0 } }
    }

    /// Memory for the frame of a call: its offset in the scratch memory, if one is needed.
    pub fn frame(&mut self, of: &Subprogram<'c>) -> Option<u32> {
        if of.frame == 0 {
            return None;
        }
        let frame = self.alloc_scratch(of.frame);
        let many = self.fun_ref().sites.len() > 1;
        if many {
            let site = self.site();
            let at = self.scratch_at(frame);
            self.store(at, 8, 8, site);
        }
        Some(frame)
    }

    /// A place in scratch memory that is made anew wherever it is used.
    pub fn place(&mut self, offset: u32) -> PointerValue<'c> {
        let at = self.scratch_at(offset);
        self.fun().places.insert(at, offset);
        at
    }

    /// Calls it; gives the number that it returns.
    pub fn call_subprogram(&mut self, of: &Subprogram<'c>, frame: Option<u32>, numbers: &[IntValue<'c>]) -> IntValue<'c> {
        let frame = match frame {
            Some(offset) => self.scratch_at(offset),
            None => self.null(),
        };
        let ctx = self.ctx();
        let mut args: Vec<BasicMetadataValueEnum> = vec![frame.into(), ctx.into()];
        args.extend(numbers.iter().map(|n| BasicMetadataValueEnum::from(*n)));
        let call = ok(self.b.build_call(of.function, &args, ""));
        match call.try_as_basic_value().basic() {
            Some(BasicValueEnum::IntValue(v)) => v,
            _ => bug!("a subprogram gives a number"),
        }
    }

    /// Calls a function of numbers that the verifier looks at once, by itself, however often it is called: for what would
    /// stand in many places. `body` makes it at its first call; it has no scratch memory and no context.
    pub(super) fn outlined(&mut self, name: &str, args: &[IntValue<'c>], body: impl FnOnce(&mut Self, &[IntValue<'c>])) {
        // one within another takes no frame of its own: there are few
        if self.outlining {
            return body(self, args);
        }
        let function = match self.module.get_function(name) {
            Some(f) => f,
            None => {
                self.outlining = true;
                let outer = self.begin_inner(name, &vec![true; args.len()], Seen::ByItself);
                let params = self.fun_ref().function.get_params();
                let numbers: Vec<IntValue<'c>> =
                    params.iter().filter_map(|p| if let BasicValueEnum::IntValue(v) = p { Some(*v) } else { None }).collect();
                body(self, &numbers);
                self.outlining = false;
                let none = self.int(0);
                self.end_inner(outer, none, false).0
            }
        };
        let args: Vec<BasicMetadataValueEnum> = args.iter().map(|n| BasicMetadataValueEnum::from(*n)).collect();
        ok(self.b.build_call(function, &args, ""));
    }

    /// Calls a function of two pieces of memory, given with their sizes, that the verifier looks at once, however often it is
    /// called. `body` makes it at its first call, and gives the number that it returns. The memory must be such that may be
    /// written to: the kernel asks that of what a function that it looks at by itself is given.
    pub(super) fn of_memory(
        &mut self,
        name: &str,
        args: [(PointerValue<'c>, u32); 2],
        body: impl FnOnce(&mut Self, PointerValue<'c>, PointerValue<'c>) -> IntValue<'c>,
    ) -> IntValue<'c> {
        let function = match self.module.get_function(name) {
            Some(f) => f,
            None => {
                let types = args.map(|(_, size)| self.bytes_at(size));
                // pointers for such functions came with atomics that fetch, in Linux 5.12
                let seen = if self.fetches { Seen::OfMemory(types) } else { Seen::WithCaller };
                let outer = self.begin_inner(name, &[false, false], seen);
                let params = self.fun_ref().function.get_params();
                let (Some(BasicValueEnum::PointerValue(a)), Some(BasicValueEnum::PointerValue(b))) = (params.first(), params.get(1)) else {
                    bug!("it gets two pointers")
                };
                let (a, b) = (*a, *b);
                // which the verifier takes for possible
                for p in [a, b] {
                    let there = self.not_null(p);
                    let none = self.cmp(super::Cmp::Eq, there, self.int(0));
                    self.if_(none, |e| {
                        let zero = e.int(0);
                        e.ret(Some(zero));
                    });
                }
                let value = body(self, a, b);
                self.end_inner(outer, value, false).0
            }
        };
        let args = args.map(|(p, _)| BasicMetadataValueEnum::from(p));
        let call = ok(self.b.build_call(function, &args, ""));
        match call.try_as_basic_value().basic() {
            Some(BasicValueEnum::IntValue(v)) => v,
            _ => bug!("it gives a number"),
        }
    }

    /// Calls a function from a pointer to a pointer that the verifier looks at with its callers. `body` makes it at its first
    /// call.
    pub(super) fn small(
        &mut self,
        name: &str,
        arg: PointerValue<'c>,
        body: impl FnOnce(&mut Self, PointerValue<'c>) -> PointerValue<'c>,
    ) -> PointerValue<'c> {
        let function = match self.module.get_function(name) {
            Some(f) => f,
            None => {
                let ty = self.ptrt().fn_type(&[self.ptrt().into()], false);
                let function = self.module.add_function(name, ty, Some(Linkage::Internal));
                let scope = self.describe_function(function, name, true, &[]);
                self.never_inline(function);
                let (here, place) = (self.here(), self.b.get_current_debug_location());
                let start = self.cx.append_basic_block(function, "body");
                self.b.position_at_end(start);
                let at = self.di.create_debug_location(self.cx, 1, 1, scope.as_debug_info_scope(), None);
                self.b.set_current_debug_location(at);
                if let Some(BasicValueEnum::PointerValue(arg)) = function.get_first_param() {
                    let result = body(self, arg);
                    ok(self.b.build_return(Some(&result)));
                }
                self.b.position_at_end(here);
                match place {
                    Some(place) => self.b.set_current_debug_location(place),
                    None => self.b.unset_current_debug_location(),
                }
                function
            }
        };
        let call = ok(self.b.build_call(function, &[arg.into()], ""));
        match call.try_as_basic_value().basic() {
            Some(BasicValueEnum::PointerValue(p)) => p,
            _ => bug!("it gives a pointer"),
        }
    }

    /// A result in memory.
    pub fn result_at(&mut self, ty: &Type, frame: u32, offset: u32) -> Operand<'c> {
        Operand::mem(ty.clone(), self.place(frame + offset))
    }
}
