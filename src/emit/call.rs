//! BPF subprograms: functions that programs call.
//!
//! A subprogram receives a frame in the scratch memory of its caller, the program's context, and a few numbers. The caller
//! writes all other arguments to the frame and reads results from it. The verifier checks a subprogram again at each call, so
//! it knows the frame. LLVM may inline a small one.

use inkwell::module::Linkage;
use inkwell::values::{BasicMetadataValueEnum, BasicValueEnum, FunctionValue, IntValue, PointerValue};

use super::callback::{FinishedFunction, SubprogramKind};
use super::mem::U64;
use super::{Builder, Cmp, Operand, ok};
use crate::bug;
use crate::types::Type;

/// Number of arguments that are passed in registers: BPF has five, and two are taken.
pub const IN_NUMBERS: usize = 3;
/// A frame starts with a word for the use of caller and callee, and the number of the site that fired, with the weight.
const FRAME_HEAD: u32 = 16;
/// Stack for the temporaries of a subprogram; all frames of a chain together have 512 bytes.
const STACK: u32 = 32;

/// A finished subprogram.
#[derive(Clone, Copy)]
pub struct Subprogram<'c> {
    function: FunctionValue<'c>,
    /// Size of its frame in bytes; 0 if it needs none.
    frame: u32,
    uses_context: bool,
}

impl<'a, 'c> Builder<'a, 'c> {
    /// Starts a subprogram with this many numeric parameters (at most [`IN_NUMBERS`]), and returns it with them.
    pub fn begin_subprogram(&self, name: &str, numbers: usize) -> (Self, Vec<IntValue<'c>>) {
        let mut kinds = vec![false, false];
        kinds.resize(2 + numbers, true);
        let mut inner = self.begin_inner(name, &kinds, SubprogramKind::Static);
        let params = inner.fun.function.get_params();
        let (Some(BasicValueEnum::PointerValue(frame)), Some(BasicValueEnum::PointerValue(ctx))) = (params.first(), params.get(1)) else {
            bug!("a subprogram gets a frame and the context")
        };
        let stack_slot = inner.fun.slot;
        ok(inner.b.build_store(stack_slot, *frame));
        let (outer, f) = (&self.fun, &mut inner.fun);
        (f.sites, f.own_frames, f.context) = (outer.sites.clone(), outer.own_frames, Some(*ctx));
        f.temporaries.start_above(FRAME_HEAD);
        f.temporaries.set_stack_used(self.options.stack_limits.max_temporary_bytes.saturating_sub(STACK));
        if self.passes_site() {
            let ptr = inner.scratch_at(0);
            let site = inner.load(ptr, 8, U64);
            inner.fun.site = Some(site);
        }
        let numbers = params.iter().skip(2).filter_map(|p| if let BasicValueEnum::IntValue(v) = p { Some(*v) } else { None });
        (inner, numbers.collect())
    }

    /// Ends the subprogram.
    pub fn end_subprogram(self) -> Subprogram<'c> {
        let (zero, uses_context) = (self.int(0), self.fun.used_context.get());
        let FinishedFunction { function, scratch } = self.end_inner(zero, false);
        Subprogram { function, frame: scratch.unwrap_or(0), uses_context }
    }

    /// Allocates the frame of a call and returns its offset in the scratch memory, if it needs a frame.
    pub fn frame(&mut self, callee: &Subprogram<'c>) -> Option<u32> {
        if callee.frame == 0 {
            return None;
        }
        let frame = self.alloc_scratch(callee.frame);
        if self.passes_site() {
            let site = self.site_and_weight();
            let ptr = self.scratch_at(frame);
            self.store(ptr, 8, 8, site);
        }
        Some(frame)
    }

    /// The address of an offset in scratch memory, computed again at each use.
    pub fn scratch_address(&mut self, offset: u32) -> PointerValue<'c> {
        let ptr = self.scratch_at(offset);
        self.fun.temporaries.set_place(ptr, offset);
        ptr
    }

    /// Calls a subprogram and returns its result.
    pub fn call_subprogram(&mut self, callee: &Subprogram<'c>, frame: Option<u32>, numbers: &[IntValue<'c>]) -> IntValue<'c> {
        let frame = match frame {
            Some(offset) => self.scratch_at(offset),
            None => self.null(),
        };
        let ctx = if callee.uses_context { self.ctx() } else { self.null() };
        let mut args: Vec<BasicMetadataValueEnum> = vec![frame.into(), ctx.into()];
        args.extend(numbers.iter().map(|n| BasicMetadataValueEnum::from(*n)));
        let call = ok(self.b.build_call(callee.function, &args, ""));
        match call.try_as_basic_value().basic() {
            Some(BasicValueEnum::IntValue(v)) => v,
            _ => bug!("a subprogram gives a number"),
        }
    }

    /// Calls a function of numbers that the verifier checks only once, separately: for code that would occur in many places.
    /// `body` builds it at the first call; it has no scratch memory and no context.
    pub(super) fn outlined(&mut self, name: &str, args: &[IntValue<'c>], body: impl FnOnce(&mut Self, &[IntValue<'c>])) {
        // An outlined function within another one needs no frame; there are few.
        if self.scope.outlining {
            return body(self, args);
        }
        self.global(name, args, |e, numbers| {
            e.scoped(|s| s.outlining = true, |e| body(e, numbers));
            e.int(0)
        });
    }

    /// Calls a function from numbers to a number that the verifier checks once, separately. `body` builds it at the first call;
    /// it has no scratch memory and no context.
    pub(super) fn global(
        &mut self,
        name: &str,
        args: &[IntValue<'c>],
        body: impl FnOnce(&mut Self, &[IntValue<'c>]) -> IntValue<'c>,
    ) -> IntValue<'c> {
        let function = match self.module.get_function(name) {
            Some(f) => f,
            None => {
                let mut inner = self.begin_inner(name, &vec![true; args.len()], SubprogramKind::Global);
                let params = inner.fun.function.get_params();
                let numbers: Vec<IntValue<'c>> =
                    params.iter().filter_map(|p| if let BasicValueEnum::IntValue(v) = p { Some(*v) } else { None }).collect();
                let value = body(&mut inner, &numbers);
                inner.end_inner(value, false).function
            }
        };
        let args: Vec<BasicMetadataValueEnum> = args.iter().map(|n| BasicMetadataValueEnum::from(*n)).collect();
        self.call_function(function, &args)
    }

    /// Calls a function of two memory areas, given with their sizes, that the verifier checks only once. `body` builds it at
    /// the first call and returns its result. Both areas must be writable, because the kernel requires that of memory that is
    /// passed to such a function.
    pub fn call_on_memory(
        &mut self,
        name: &str,
        args: [(PointerValue<'c>, u32); 2],
        body: impl FnOnce(&mut Self, PointerValue<'c>, PointerValue<'c>) -> IntValue<'c>,
    ) -> IntValue<'c> {
        let function = match self.module.get_function(name) {
            Some(f) => f,
            None => {
                let types = args.map(|(_, size)| self.debug.bytes_at(size));
                // The kernel accepts pointers in such functions since Linux 5.12, which also brought atomics that fetch.
                let kind = if self.target.atomic_fetch.holds() { SubprogramKind::GlobalWithMemory(types) } else { SubprogramKind::Static };
                let mut inner = self.begin_inner(name, &[false, false], kind);
                let params = inner.fun.function.get_params();
                let (Some(BasicValueEnum::PointerValue(a)), Some(BasicValueEnum::PointerValue(b))) = (params.first(), params.get(1)) else {
                    bug!("it gets two pointers")
                };
                let (a, b) = (*a, *b);
                // The verifier considers null pointers possible.
                for p in [a, b] {
                    let found = inner.not_null(p);
                    let is_zero = inner.cmp(Cmp::Eq, found, inner.int(0));
                    inner.if_(is_zero, |e| {
                        let zero = e.int(0);
                        e.ret(Some(zero));
                    });
                }
                let value = body(&mut inner, a, b);
                inner.end_inner(value, false).function
            }
        };
        let args = args.map(|(p, _)| BasicMetadataValueEnum::from(p));
        let call = ok(self.b.build_call(function, &args, ""));
        match call.try_as_basic_value().basic() {
            Some(BasicValueEnum::IntValue(v)) => v,
            _ => bug!("it gives a number"),
        }
    }

    /// In a split program, calls a function of memory and a number, which the verifier checks only once, and otherwise has the code
    /// here. `body` builds it, and returns its result. The memory is the program's own or that of an element: see
    /// [`Builder::call_on_memory`].
    pub fn on_memory_and_number(
        &mut self,
        name: &str,
        (memory, size): (PointerValue<'c>, u32),
        number: IntValue<'c>,
        body: impl FnOnce(&mut Self, PointerValue<'c>, IntValue<'c>) -> IntValue<'c>,
    ) -> IntValue<'c> {
        if !self.checks_once() {
            return body(self, memory, number);
        }
        let function = match self.module.get_function(name) {
            Some(f) => f,
            None => {
                let types = [self.debug.bytes_at(size), self.debug.long()];
                let mut inner = self.begin_inner(name, &[false, true], SubprogramKind::GlobalWithMemory(types));
                let params = inner.fun.function.get_params();
                let (Some(BasicValueEnum::PointerValue(memory)), Some(BasicValueEnum::IntValue(number))) = (params.first(), params.get(1))
                else {
                    bug!("it gets a pointer and a number")
                };
                let (memory, number) = (*memory, *number);
                let found = inner.not_null(memory);
                let value = inner.scoped(
                    |s| s.outlining = true,
                    |e| {
                        let is_zero = e.cmp(Cmp::Eq, found, e.int(0));
                        e.if_(is_zero, |e| {
                            let zero = e.int(0);
                            e.ret(Some(zero));
                        });
                        body(e, memory, number)
                    },
                );
                inner.end_inner(value, false).function
            }
        };
        self.call_function(function, &[memory.into(), number.into()])
    }

    /// Calls a function from a pointer to a pointer that the verifier checks with its callers. `body` builds it at the first
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
                let start = self.llcx.append_basic_block(function, "body");
                let b = self.llcx.create_builder();
                b.position_at_end(start);
                b.set_current_debug_location(self.debug.start_of(scope));
                let around = std::mem::replace(&mut self.b, b);
                if let Some(BasicValueEnum::PointerValue(arg)) = function.get_first_param() {
                    let result = body(self, arg);
                    ok(self.b.build_return(Some(&result)));
                }
                self.b = around;
                function
            }
        };
        let call = ok(self.b.build_call(function, &[arg.into()], ""));
        match call.try_as_basic_value().basic() {
            Some(BasicValueEnum::PointerValue(p)) => p,
            _ => bug!("it gives a pointer"),
        }
    }

    /// Calls a function that the verifier checks with its callers, so that it may get and return pointers to elements and
    /// records. `body` builds it at the first call; it has no scratch memory and no context.
    pub(super) fn shared_part(
        &mut self,
        name: &str,
        args: &[BasicValueEnum<'c>],
        body: impl FnOnce(&mut Self, &[BasicValueEnum<'c>]) -> IntValue<'c>,
    ) -> IntValue<'c> {
        let function = match self.module.get_function(name) {
            Some(f) => f,
            None => {
                let numbers: Vec<bool> = args.iter().map(|arg| arg.is_int_value()).collect();
                let mut inner = self.begin_inner(name, &numbers, SubprogramKind::Static);
                self.never_inline(inner.fun.function);
                let params = inner.fun.function.get_params();
                let value = inner.scoped(|s| s.outlining = true, |e| body(e, &params));
                inner.end_inner(value, false).function
            }
        };
        // LLVM requires a location of a call of such a function, and prologues have none.
        if self.b.get_current_debug_location().is_none() {
            self.at(0, 1, 1);
        }
        let args: Vec<BasicMetadataValueEnum> = args.iter().map(|arg| BasicMetadataValueEnum::from(*arg)).collect();
        self.call_function(function, &args)
    }

    /// Should code that occurs in many places be put into a function?
    pub fn shares_code(&self) -> bool {
        self.program.is_long && !self.scope.at_max_call_depth && !self.scope.outlining
    }

    /// Is the program so long that its body is split? Code that is followed by the verifier many times is then put into a function
    /// that it checks once, which may take longer to run.
    pub fn is_split(&self) -> bool {
        self.program.is_split
    }

    /// Does [`Builder::on_memory_and_number`] call a function? It does not get the weight of the run, and kernels accept pointers in
    /// such functions since Linux 5.12.
    pub fn checks_once(&self) -> bool {
        self.program.is_split && !self.program.weighted && self.shares_code() && self.target.atomic_fetch.holds()
    }

    /// Computes a number from another, in a long program by a function that the verifier checks once.
    pub fn computed(&mut self, name: &str, from: IntValue<'c>, body: impl FnOnce(&mut Self, IntValue<'c>) -> IntValue<'c>) -> IntValue<'c> {
        if !self.shares_code() || from.is_const() {
            return body(self, from);
        }
        self.global(name, &[from], |e, args| match args {
            [from] => e.scoped(|s| s.outlining = true, |e| body(e, *from)),
            _ => bug!("it gets a number"),
        })
    }

    /// A result in memory.
    pub fn result_at(&mut self, ty: &Type, frame: u32, offset: u32) -> Operand<'c> {
        Operand::mem(ty.clone(), self.scratch_address(frame + offset))
    }
}
