//! Functions that a helper calls back.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

use inkwell::basic_block::BasicBlock;
use inkwell::debug_info::{DILocation, DIType};
use inkwell::module::Linkage;
use inkwell::types::BasicMetadataTypeEnum;
use inkwell::values::{BasicValueEnum, FunctionValue, IntValue, PointerValue};

use super::mem::U64;
use super::{Cmp, Emit, Fun, ok};

/// Most turns of a loop where the kernel has nothing that makes them (`bpf_loop`, Linux 5.17): the verifier walks each.
pub const WALKED_TURNS: u64 = 512;

/// Bytes that [`Emit::lend`] writes.
pub const LENT: u32 = 24;

/// The function under construction when a callback was begun.
pub struct Outer<'c> {
    pub(super) fun: Option<Fun<'c>>,
    pub(super) start: BasicBlock<'c>,
    block: Option<BasicBlock<'c>>,
    place: Option<DILocation<'c>>,
}

/// How the verifier looks at a function.
#[derive(Clone, Copy)]
pub(super) enum Seen<'c> {
    /// At each call anew, with what it knows there ("static").
    WithCaller,
    /// Once, knowing of its parameters only that they are numbers ("global").
    ByItself,
    /// The same; of the first parameter this says what it is.
    WithContext(DIType<'c>),
    /// Once, knowing what the two parameters are pointers to.
    OfMemory([DIType<'c>; 2]),
}

impl<'c> Emit<'c> {
    /// A function for a helper to call: its parameters are numbers (true) or pointers. `body` gets them and gives what it
    /// returns. In it there is no scratch memory, no context and no way out of the program.
    pub fn callback(
        &mut self,
        name: &str,
        numbers: &[bool],
        body: impl FnOnce(&mut Self, &[BasicValueEnum<'c>]) -> IntValue<'c>,
    ) -> PointerValue<'c> {
        if let Some(f) = self.module.get_function(name) {
            return f.as_global_value().as_pointer_value();
        }
        let (outer, params) = self.begin_callback(name, numbers);
        let value = body(self, &params);
        self.end_callback(outer, value)
    }

    /// Starts a function for a helper to call: what follows is its body.
    pub fn begin_callback(&mut self, name: &str, numbers: &[bool]) -> (Outer<'c>, Vec<BasicValueEnum<'c>>) {
        let outer = self.begin_inner(name, numbers, Seen::WithCaller);
        let params = self.fun_ref().function.get_params();
        (outer, params)
    }

    /// Calls a function of a number and a pointer with each of 0 .. `times` until it gives 1, as `bpf_loop` does; gives the
    /// number of calls.
    pub fn bpf_loop(&mut self, times: IntValue<'c>, callback: PointerValue<'c>, at: PointerValue<'c>) -> IntValue<'c> {
        if self.loops {
            let none = self.int(0);
            return self.call(super::Helper::Loop, &[times.into(), callback.into(), at.into(), none.into()]);
        }
        let ty = self.i64t().fn_type(&[self.i64t().into(), self.ptrt().into()], false);
        let most = self.int(WALKED_TURNS);
        let beyond = self.cmp(Cmp::Ugt, times, most);
        let times = self.select(beyond, most, times);
        // out of LLVM's sight, or it would look for inequality: the verifier then finds no end
        let made = self.entry_alloca();
        let zero = self.int(0);
        self.store_volatile(made, zero);
        self.while_(
            |e| {
                let i = e.load_volatile(made, U64);
                e.cmp(Cmp::Ult, i, times)
            },
            |e| {
                let i = e.load_volatile(made, U64);
                let next = e.add(i, e.int(1));
                e.store_volatile(made, next);
                let call = ok(e.b.build_indirect_call(ty, callback, &[i.into(), at.into()], ""));
                if let Some(BasicValueEnum::IntValue(stop)) = call.try_as_basic_value().basic() {
                    e.if_(stop, |e| e.break_());
                }
            },
            |_| (),
        );
        self.load_volatile(made, U64)
    }

    /// A function within the module, at whose end the one under construction now goes on.
    pub(super) fn begin_inner(&mut self, name: &str, numbers: &[bool], seen: Seen<'c>) -> Outer<'c> {
        let types: Vec<BasicMetadataTypeEnum> = numbers.iter().map(|n| if *n { self.i64t().into() } else { self.ptrt().into() }).collect();
        let linkage = match seen {
            Seen::WithCaller => Linkage::Internal,
            Seen::ByItself | Seen::WithContext(_) | Seen::OfMemory(_) => Linkage::External,
        };
        let function = self.module.add_function(name, self.i64t().fn_type(&types, false), Some(linkage));
        let (block, place) = (self.b.get_insert_block(), self.b.get_current_debug_location());
        let scope = match seen {
            // without its parameters: the kernel would want names for them
            Seen::WithCaller => self.describe_function(function, name, true, &[]),
            Seen::ByItself => {
                self.never_inline(function);
                let types = vec![self.long(); numbers.len()];
                self.describe_function(function, name, false, &types)
            }
            Seen::OfMemory(types) => {
                self.never_inline(function);
                self.describe_function(function, name, false, &types)
            }
            Seen::WithContext(context) => {
                self.never_inline(function);
                let mut types = vec![self.long(); numbers.len()];
                if let Some(first) = types.first_mut() {
                    *first = context;
                }
                self.describe_function(function, name, false, &types)
            }
        };
        let entry = self.cx.append_basic_block(function, "entry");
        let start = self.cx.append_basic_block(function, "body");
        let exit = self.cx.append_basic_block(function, "exit");
        self.b.unset_current_debug_location();
        self.b.position_at_end(entry);
        let result = ok(self.b.build_alloca(self.i64t(), "result"));
        // a return without a value sets R0 as well: the verifier follows it, though the caller never looks
        let zero = self.int(0);
        ok(self.b.build_store(result, zero));
        let slot = ok(self.b.build_alloca(self.ptrt(), "slot"));
        let fun = Fun {
            function,
            scope,
            scopes: BTreeMap::new(),
            entry,
            exit,
            result,
            acquire: (entry, start),
            slot,
            scratch_used: false,
            scratch_top: 8,
            scratch_max: 8,
            stack: Vec::new(),
            stack_bytes: self.room.temporaries,
            places: HashMap::new(),
            skewed: HashMap::new(),
            kept: HashMap::new(),
            once: vec![HashMap::new()],
            loops: Vec::new(),
            sites: Vec::new(),
            site: None,
            context: None,
            used_context: Cell::new(false),
            own_frames: 0,
            section: None,
            can_sleep: false,
            sleeps: false,
        };
        let outer = self.fun.replace(fun);
        self.b.position_at_end(start);
        self.at(0, 1, 1);
        Outer { fun: outer, start, block, place }
    }

    /// Ends it; the function's address, as a helper takes it. What it returns is 0 or 1, and the verifier must see that: it
    /// refuses a callback that may give more (`check_func_call` and `prepare_func_exit` of kernel/bpf/verifier.c), and LLVM,
    /// which knows the range of a condition's byte, returns the byte as it is.
    pub fn end_callback(&mut self, outer: Outer<'c>, value: IntValue<'c>) -> PointerValue<'c> {
        let (function, max, used) = self.end_inner(outer, value, true);
        if let (true, Some(f)) = (used, &mut self.fun) {
            f.scratch_used = true;
            f.scratch_max = f.scratch_max.max(max);
        }
        function.as_global_value().as_pointer_value()
    }

    /// Ends it; gives it, how much scratch memory it takes, and whether it takes any.
    /// With `one_bit`, what it returns is cut to its lowest bit where LLVM cannot take that back.
    pub(super) fn end_inner(&mut self, outer: Outer<'c>, value: IntValue<'c>, one_bit: bool) -> (FunctionValue<'c>, u32, bool) {
        let f = self.fun_ref();
        let (function, entry, exit, result, max, used) = (f.function, f.entry, f.exit, f.result, f.scratch_max, f.scratch_used);
        self.ret(Some(value));
        ok(self.b.build_unconditional_branch(exit)); // the block after a return needs an end, too
        self.b.position_at_end(entry);
        ok(self.b.build_unconditional_branch(outer.start));
        self.b.position_at_end(exit);
        let value = ok(self.b.build_load(self.i64t(), result, "")).into_int_value();
        let value = if one_bit { self.and(self.opaque(value), self.int(1)) } else { value };
        ok(self.b.build_return(Some(&value)));
        self.fun = outer.fun;
        if let Some(b) = outer.block {
            self.b.position_at_end(b);
        }
        match outer.place {
            Some(p) => self.b.set_current_debug_location(p),
            None => self.b.unset_current_debug_location(),
        }
        (function, max, used)
    }

    /// Writes down what a callback needs of the program that it is called from: see [`Emit::borrow`]. `at` has
    /// [`LENT`] bytes of stack.
    pub fn lend(&mut self, at: PointerValue<'c>) {
        let slot = self.scratch_at(0);
        self.store_ptr(at, 0, slot);
        let ctx = self.ctx();
        self.store_ptr(at, 8, ctx);
        let site = self.site();
        self.store(at, 16, 8, site);
    }

    /// In a callback: the scratch memory, context and site of the program, and room above what `outer` has in use.
    pub fn borrow(&mut self, outer: &Outer<'c>, at: PointerValue<'c>) {
        let slot = self.load_ptr(at, 0);
        let home = self.fun_ref().slot;
        ok(self.b.build_store(home, slot));
        let context = self.load_ptr(at, 8);
        let site = self.load(at, 16, super::mem::U64);
        if let Some(of) = &outer.fun {
            let (top, sites, frames) = (of.scratch_top, of.sites.clone(), of.own_frames);
            let f = self.fun();
            (f.scratch_top, f.scratch_max, f.sites, f.own_frames) = (top, top, sites, frames);
            f.scratch_used = true;
            f.context = Some(context);
            f.site = Some(site);
        }
    }

    /// Stack for what a callback of ours is handed: 24 bytes, which are free again once the helper has returned;
    /// one after the other, all share them.
    pub(super) fn handed(&mut self) -> PointerValue<'c> {
        self.alloc_known("handed", 24)
    }

    /// How many elements a map holds now.
    pub(super) fn count_elements(&mut self, map: PointerValue<'c>) -> IntValue<'c> {
        // counted in scratch memory: of a number on the stack the verifier would follow each value it may come to
        let each = self.callback("count_element", &[false, false, false, false], |e, params| {
            if let Some(BasicValueEnum::PointerValue(at)) = params.get(3) {
                let total = e.load_ptr(*at, 0);
                let now = e.load(total, 0, super::mem::U64);
                let more = e.add(now, e.int(1));
                e.store(total, 0, 8, more);
            }
            e.int(0)
        });
        let offset = self.alloc_scratch(8);
        let total = self.scratch_at(offset);
        let zero = self.int(0);
        self.store(total, 0, 8, zero);
        let at = self.handed();
        self.store_ptr(at, 0, total);
        self.call(super::Helper::ForEachMapElem, &[map.into(), each.into(), at.into(), zero.into()]);
        let total = self.scratch_at(offset);
        self.load(total, 0, super::mem::U64)
    }
}
