//! Functions that BPF helpers call back.

use inkwell::debug_info::DIType;
use inkwell::module::Linkage;
use inkwell::types::BasicMetadataTypeEnum;
use inkwell::values::{BasicValueEnum, FunctionValue, IntValue, PointerValue};

use super::builder::{Blocks, FunctionCx};
use super::mem::U64;
use super::temporaries::Temporaries;
use super::{Builder, Cmp, Helper, ok};
use crate::bug;

/// Maximum number of iterations of a loop if the kernel lacks `bpf_loop` (Linux 5.17): the verifier follows each.
pub const MAX_WALKED_ITERATIONS: u64 = 512;

/// Bytes of the arguments that [`Builder::save_program_state`] writes for a callback.
pub const CALLBACK_ARGUMENTS: u32 = 24;

/// The first of the parameters of a function that shares its code that pass numbers (`FIRST_NUMBER` of `alike.cpp`).
const ROW_PARAMETER: u32 = 3;

/// How the verifier checks a function.
#[derive(Clone, Copy)]
pub(super) enum SubprogramKind<'c> {
    /// At each call, with the state at that call ("static").
    Static,
    /// Once, with no knowledge of its parameters except that they are numbers ("global").
    Global,
    /// The same, with a type for the first parameter.
    GlobalWithContext(DIType<'c>),
    /// Once, with the pointer types of its two parameters.
    GlobalWithMemory([DIType<'c>; 2]),
}

/// A finished function.
pub(super) struct FinishedFunction<'c> {
    pub function: FunctionValue<'c>,
    /// The amount of scratch memory that it uses, if any.
    pub scratch: Option<u32>,
}

impl<'a, 'c> Builder<'a, 'c> {
    /// Builds a function for a helper to call. Its parameters are numbers (true) or pointers. `body` receives them and returns
    /// the result. The function has no scratch memory and no context, and cannot end the program.
    pub fn callback(
        &mut self,
        name: &str,
        numbers: &[bool],
        body: impl FnOnce(&mut Self, &[BasicValueEnum<'c>]) -> IntValue<'c>,
    ) -> PointerValue<'c> {
        if let Some(f) = self.module.get_function(name) {
            return f.as_global_value().as_pointer_value();
        }
        let (mut inner, params) = self.begin_callback(name, numbers);
        let value = body(&mut inner, &params);
        self.end_callback(inner, value)
    }

    /// Starts a function that a helper calls. The result is the function with its parameters.
    pub fn begin_callback(&self, name: &str, numbers: &[bool]) -> (Self, Vec<BasicValueEnum<'c>>) {
        let inner = self.begin_inner(name, numbers, SubprogramKind::Static);
        let params = inner.fun.function.get_params();
        (inner, params)
    }

    /// Calls a function of a number and a pointer with each of 0 .. `times` until it returns 1, as `bpf_loop` does. The result
    /// is the number of calls. Without `bpf_loop`, they are at most `limit`, of up to [`MAX_WALKED_ITERATIONS`].
    pub fn bpf_loop(&mut self, times: IntValue<'c>, callback: PointerValue<'c>, ptr: PointerValue<'c>, limit: u64) -> IntValue<'c> {
        if self.target.loop_helper.holds() {
            let none = self.int(0);
            return self.call(Helper::Loop, &[times.into(), callback.into(), ptr.into(), none.into()]);
        }
        let ty = self.i64t().fn_type(&[self.i64t().into(), self.ptrt().into()], false);
        // Hidden from LLVM, which would otherwise compare for inequality, and the verifier could not prove that the loop ends.
        let iterations = self.entry_alloca();
        let zero = self.int(0);
        self.store_volatile(iterations, zero);
        self.while_(
            |e| {
                // The comparison with a constant shows the verifier that the loop ends: on 5.10, numbers on the stack that it need not
                // know exactly are equal to it, and if it does not know `times` either, a turn seems to change nothing.
                let i = e.load_volatile(iterations, U64);
                e.cmp(Cmp::Ult, i, e.int(limit))
            },
            |e| {
                // loaded again, so that LLVM does not merge the comparisons
                let i = e.load_volatile(iterations, U64);
                let done = e.cmp(Cmp::Uge, i, times);
                e.if_(done, |e| e.break_());
                let next = e.add(i, e.int(1));
                e.store_volatile(iterations, next);
                let call = ok(e.b.build_indirect_call(ty, callback, &[i.into(), ptr.into()], ""));
                if let Some(BasicValueEnum::IntValue(stop)) = call.try_as_basic_value().basic() {
                    e.if_(stop, |e| e.break_());
                }
            },
            |_| (),
        );
        self.load_volatile(iterations, U64)
    }

    /// Calls `turn` with each of 0 .. `max` and these numbers until it returns 1, and returns the number of calls. The verifier
    /// checks `turn` once, unless the kernel lacks `bpf_loop` or the program has no room for its function. `turn` may be part of this function, so it must not return early.
    pub(super) fn bounded_loop(
        &mut self,
        name: &str,
        max: u64,
        numbers: &[IntValue<'c>],
        turn: impl FnOnce(&mut Self, IntValue<'c>, &[IntValue<'c>]) -> IntValue<'c>,
    ) -> IntValue<'c> {
        if self.target.loop_helper.holds() && self.target.walks_by_loop_helper {
            let ptr = self.alloc_kept(8 * numbers.len() as u32);
            for (place, number) in (0..).zip(numbers) {
                self.store(ptr, 8 * place, 8, *number);
            }
            let callback = self.callback(name, &[true, false], |e, params| {
                let (Some(BasicValueEnum::IntValue(i)), Some(BasicValueEnum::PointerValue(ptr))) = (params.first(), params.get(1)) else {
                    bug!("a turn gets a number and a pointer")
                };
                let numbers: Vec<IntValue<'c>> = (0..).zip(numbers).map(|(place, _)| e.load(*ptr, 8 * place, U64)).collect();
                turn(e, *i, &numbers)
            });
            let max = self.int(max);
            return self.bpf_loop(max, callback, ptr, MAX_WALKED_ITERATIONS);
        }
        let iterations = self.scalar_slot();
        let zero = self.int(0);
        self.store(iterations, 0, 8, zero);
        self.count(max, |e, i| {
            let done = turn(e, i, numbers);
            let next = e.add(i, e.int(1));
            e.store(iterations, 0, 8, next);
            e.if_(done, |e| e.break_());
        });
        self.load(iterations, 0, U64)
    }

    /// Starts a function for the use of this one: it belongs to the same program and has the same properties.
    pub(super) fn begin_inner(&self, name: &str, numbers: &[bool], kind: SubprogramKind<'c>) -> Self {
        let types: Vec<BasicMetadataTypeEnum> = numbers.iter().map(|n| if *n { self.i64t().into() } else { self.ptrt().into() }).collect();
        let linkage = match kind {
            SubprogramKind::Static => Linkage::Internal,
            SubprogramKind::Global | SubprogramKind::GlobalWithContext(_) | SubprogramKind::GlobalWithMemory(_) => Linkage::External,
        };
        let function = self.module.add_function(name, self.i64t().fn_type(&types, false), Some(linkage));
        let scope = match kind {
            // Without parameters, because the kernel would require names for them.
            SubprogramKind::Static => self.describe_function(function, name, true, &[]),
            SubprogramKind::Global => {
                self.never_inline(function);
                self.mark_as_subroutine(function);
                let types = vec![self.debug.long(); numbers.len()];
                self.describe_function(function, name, false, &types)
            }
            SubprogramKind::GlobalWithMemory(types) => {
                self.never_inline(function);
                self.mark_as_subroutine(function);
                self.describe_function(function, name, false, &types)
            }
            SubprogramKind::GlobalWithContext(context) => {
                self.never_inline(function);
                let mut types = vec![self.debug.long(); numbers.len()];
                if let Some(first) = types.first_mut() {
                    *first = context;
                }
                self.describe_function(function, name, false, &types)
            }
        };
        let entry = self.llcx.append_basic_block(function, "entry");
        let start = self.llcx.append_basic_block(function, "body");
        let exit = self.llcx.append_basic_block(function, "exit");
        let b = self.llcx.create_builder();
        b.position_at_end(entry);
        let result = ok(b.build_alloca(self.i64t(), "result"));
        // A function without a result also sets R0: the verifier tracks it, though the caller ignores it.
        ok(b.build_store(result, self.int(0)));
        let slot = ok(b.build_alloca(self.ptrt(), "slot"));
        b.position_at_end(start);
        let blocks = Blocks { entry, exit, result, slot, scratch_claim: (entry, start) };
        let temporaries = Temporaries::new(self.options.stack_limits.max_temporary_bytes);
        let fun = FunctionCx::new(function, scope, blocks, temporaries);
        let mut inner = Builder { cx: self.cx, b, program: self.program, fun, scope: self.scope };
        inner.at(0, 1, 1);
        inner
    }

    /// Lets this function of a loop, whose caller shares its code with others, read what differs: the place of a row of numbers is at
    /// this offset from its last parameter (`alike.cpp`).
    pub fn share_within(&mut self, row: u32) {
        self.fun.is_alike = true;
        self.mark_as_inner(self.fun.function, row);
    }

    /// The parameter with the place of a row of numbers, in a function that shares its code with others.
    pub fn row_place(&self) -> Option<IntValue<'c>> {
        let param = self.fun.function.get_nth_param(ROW_PARAMETER).filter(|_| self.fun.is_alike)?;
        if let BasicValueEnum::IntValue(place) = param { Some(place) } else { None }
    }

    /// Ends the callback and returns its address for a helper. The result must be 0 or 1 in a form that the verifier
    /// understands: it rejects a callback with another range (`check_func_call` and `prepare_func_exit` of
    /// kernel/bpf/verifier.c), and LLVM knows the range of a condition and returns its byte without a mask.
    pub fn end_callback(&mut self, inner: Self, value: IntValue<'c>) -> PointerValue<'c> {
        let FinishedFunction { function, scratch } = inner.end_inner(value, true);
        if let Some(max) = scratch {
            self.fun.temporaries.share_scratch(max);
        }
        function.as_global_value().as_pointer_value()
    }

    /// Ends the function. With `one_bit`, its result is masked to the lowest bit, hidden from LLVM.
    pub(super) fn end_inner(mut self, value: IntValue<'c>, one_bit: bool) -> FinishedFunction<'c> {
        let FunctionCx { function, entry, exit, result, scratch_claim: (_, start), .. } = self.fun;
        self.ret(Some(value));
        ok(self.b.build_unconditional_branch(exit)); // the block after a return needs an end, too
        self.b.position_at_end(entry);
        ok(self.b.build_unconditional_branch(start));
        self.b.position_at_end(exit);
        let value = ok(self.b.build_load(self.i64t(), result, "")).into_int_value();
        let value = if one_bit { self.and(self.opaque(value), self.int(1)) } else { value };
        ok(self.b.build_return(Some(&value)));
        let temporaries = &self.fun.temporaries;
        FinishedFunction { function, scratch: temporaries.scratch_used.then_some(temporaries.scratch_max) }
    }

    /// Stores the state of the program that a callback needs: see [`Builder::restore_program_state`]. `at` has [`CALLBACK_ARGUMENTS`] bytes of
    /// stack.
    pub fn save_program_state(&mut self, ptr: PointerValue<'c>) {
        let slot = self.scratch_at(0);
        self.store_ptr(ptr, 0, slot);
        self.save_context(ptr);
        let site = self.site_and_weight();
        self.store(ptr, 16, 8, site);
    }

    /// The same without the context, for a callback that may not need it.
    pub fn save_state_without_context(&mut self, ptr: PointerValue<'c>) {
        let slot = self.scratch_at(0);
        self.store_ptr(ptr, 0, slot);
        let site = self.site_and_weight();
        self.store(ptr, 16, 8, site);
    }

    /// Adds the context to what [`Builder::save_state_without_context`] has stored.
    pub fn save_context(&mut self, ptr: PointerValue<'c>) {
        let ctx = self.ctx();
        self.store_ptr(ptr, 8, ctx);
    }

    /// Does the function use the context, so far?
    pub fn uses_context(&self) -> bool {
        self.fun.used_context.get()
    }

    /// Gives a callback the scratch memory, context and site of the program; its scratch memory starts after that of `outer`.
    pub fn restore_program_state(&mut self, outer: &Self, ptr: PointerValue<'c>) {
        let slot = self.load_ptr(ptr, 0);
        let stack_slot = self.fun.slot;
        ok(self.b.build_store(stack_slot, slot));
        let context = self.load_ptr(ptr, 8);
        let site = self.load(ptr, 16, U64);
        let (saved, f) = (&outer.fun, &mut self.fun);
        f.temporaries.start_above(saved.temporaries.scratch_top());
        f.temporaries.scratch_used = true;
        (f.sites, f.own_frames) = (saved.sites.clone(), saved.own_frames);
        (f.context, f.site) = (Some(context), Some(site));
    }

    /// Stack for the arguments of a callback: 24 bytes, which are free again when the helper has returned, so all callbacks
    /// share them.
    pub(super) fn callback_args(&mut self) -> PointerValue<'c> {
        self.alloc_known("callback_args", 24)
    }

    /// The current number of elements of a map.
    pub(super) fn count_elements(&mut self, map: PointerValue<'c>) -> IntValue<'c> {
        // Counted in scratch memory: for a number on the stack, the verifier would follow each possible value.
        let each = self.callback("count_element", &[false, false, false, false], |e, params| {
            if let Some(BasicValueEnum::PointerValue(ptr)) = params.get(3) {
                let total = e.load_ptr(*ptr, 0);
                let now = e.load(total, 0, U64);
                let more = e.add(now, e.int(1));
                e.store(total, 0, 8, more);
            }
            e.int(0)
        });
        let offset = self.alloc_scratch(8);
        let total = self.scratch_at(offset);
        let zero = self.int(0);
        self.store(total, 0, 8, zero);
        let ptr = self.callback_args();
        self.store_ptr(ptr, 0, total);
        self.call(Helper::ForEachMapElem, &[map.into(), each.into(), ptr.into(), zero.into()]);
        let total = self.scratch_at(offset);
        self.load(total, 0, U64)
    }
}
