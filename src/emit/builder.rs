//! The function under construction: its start and its end, and the state that applies to a part of it.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::rc::Rc;

use inkwell::basic_block::BasicBlock;
use inkwell::builder::Builder as LlvmBuilder;
use inkwell::debug_info::{DIScope, DISubprogram};
use inkwell::module::Linkage;
use inkwell::values::{BasicValueEnum, FunctionValue, IntValue, PointerValue};

use super::LinkScope;
use super::temporaries::Temporaries;
use super::{CodegenCx, Helper, MapDef, MapKind, ProgramRow, ProgramType, SectionDef, flow, ok, shared};
use crate::bug;
use crate::diag::Span;
use crate::types::Space;

/// Builds a function of the module, and those within it that helpers and others call.
pub struct Builder<'a, 'c> {
    pub(super) cx: &'a CodegenCx<'c>,
    pub(super) b: LlvmBuilder<'c>,
    /// The program to which the function belongs.
    pub program: ProgramCx,
    pub(super) fun: FunctionCx<'c>,
    /// The properties of the part under construction.
    pub scope: Scope,
}

impl<'c> Deref for Builder<'_, 'c> {
    type Target = CodegenCx<'c>;

    fn deref(&self) -> &CodegenCx<'c> {
        self.cx
    }
}

/// The properties of a program, which hold for all of its functions.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProgramCx {
    /// The number of the probe, for its counters.
    pub probe: u32,
    /// The address space of this probe's pointers, if their types do not determine it.
    pub space: Space,
    /// All of its sites are at the first instructions of functions, where the stack pointer points to the return address.
    pub at_entry: bool,
    /// Bytes from where its sites appear to be to where they are, because a Go function checks its stack there.
    pub stack_check: u64,
    /// All of its sites are at the first instructions of functions of the kernel, where a register has the return address.
    pub at_kernel_entry: bool,
    /// rbt itself runs it, at the start or the end. It sends nothing after another program has ended the run.
    pub test_run: bool,
    /// It runs once or rarely, so passes that make its code faster would take longer than they save.
    pub is_rare: bool,
    /// It runs once, and so does each of its few statements.
    pub is_once: bool,
    /// It is long, so code that occurs in many places is put into a function.
    pub is_long: bool,
    /// It is so long that its body is split, and that the verifier's limit for all of its functions matters.
    pub is_split: bool,
    /// Its pieces get few passes, though they may run often. Most of their code calls functions, which get all passes, and there is
    /// so much of it that the other passes take most of the time of a compilation.
    pub has_cheap_pieces: bool,
    /// It has so many divisions by unknown numbers that a function does them. The kernel puts a check before each and moves the rest of
    /// the program to make room for it (`bpf_patch_insn_data` of kernel/bpf/core.c), so its time grows with the square of their
    /// number.
    pub divides_often: bool,
    /// Nothing reads its reports.
    pub quiet: bool,
    /// Its runs have weights: see `gate.rs`.
    pub weighted: bool,
    /// Maps that the loader fills have the names of its sites, and the numbers of its system calls: see `emit/sites.rs`.
    pub names_vary: bool,
    /// Its type, which the builder sets; `None` for a part of a program.
    pub ty: Option<ProgramType>,
}

/// The properties of the part under construction, which later parts do not share: see [`Builder::scoped`].
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// The source of the code, as byte offsets in the script.
    pub span: Span,
    /// Strings are padded with zeros after their NUL, as keys and comparisons require. Records contain only the bytes.
    pub pads_strings: bool,
    /// Pointers keep the type that the verifier knows, instead of becoming numbers for arithmetic.
    pub keeps_pointer_types: bool,
    /// Calls are nested so deeply that one more function must not call another: the kernel allows eight.
    pub at_max_call_depth: bool,
    /// LLVM must not merge equal calls of helpers.
    pub(super) keeps_calls_separate: bool,
    /// Within [`Builder::outlined`].
    pub(super) outlining: bool,
}

impl Scope {
    /// The properties at the start of a function.
    pub fn starting_at(span: Span) -> Self {
        Self {
            span,
            pads_strings: true,
            keeps_pointer_types: false,
            at_max_call_depth: false,
            keeps_calls_separate: false,
            outlining: false,
        }
    }
}

/// The state of the function.
pub(super) struct FunctionCx<'c> {
    pub function: FunctionValue<'c>,
    pub scope: DISubprogram<'c>,
    /// The same for other source files.
    pub scopes: BTreeMap<u16, DIScope<'c>>,
    /// The block with the allocas, which finally branches to the body.
    pub entry: BasicBlock<'c>,
    pub exit: BasicBlock<'c>,
    pub result: PointerValue<'c>,
    /// The place where the function claims its scratch slot if it needs one: an empty block, and the block after it.
    pub scratch_claim: (BasicBlock<'c>, BasicBlock<'c>),
    /// The slot's address, or null.
    pub slot: PointerValue<'c>,
    pub temporaries: Temporaries<'c>,
    /// Values already computed, by scope.
    pub cached_values: Vec<HashMap<String, BasicValueEnum<'c>>>,
    pub loops: Vec<flow::Loop<'c>>,
    /// The names of the program's sites, and the register with the index of the one that fired. If runs have weights, its
    /// upper half is the binary logarithm of the weight.
    pub sites: Rc<[String]>,
    pub site: Option<IntValue<'c>>,
    /// It is a [`ChunkKind::Alike`](super::ChunkKind::Alike).
    pub is_alike: bool,
    /// The number of the program's scratch slot, if it is a parameter of the function.
    pub slot_number: Option<IntValue<'c>>,
    /// The program's context, unless it is a parameter of the function.
    pub context: Option<PointerValue<'c>>,
    /// The function uses the context.
    pub used_context: Cell<bool>,
    /// See [`Builder::own_frames`].
    pub own_frames: u64,
    /// The program to which it belongs; none for functions that several programs call.
    pub section: Option<SectionDef>,
    /// The program may be sleepable, so that it can read memory that is not resident; and whether it is.
    pub can_sleep: bool,
    pub sleeps: bool,
}

impl<'c> FunctionCx<'c> {
    /// Creates a function with these blocks.
    pub fn new(function: FunctionValue<'c>, scope: DISubprogram<'c>, blocks: Blocks<'c>, temporaries: Temporaries<'c>) -> Self {
        let Blocks { entry, exit, result, slot, scratch_claim: acquire } = blocks;
        Self {
            function,
            scope,
            scopes: BTreeMap::new(),
            entry,
            exit,
            result,
            scratch_claim: acquire,
            slot,
            temporaries,
            cached_values: vec![HashMap::new()],
            loops: Vec::new(),
            sites: Rc::default(),
            site: None,
            is_alike: false,
            slot_number: None,
            context: None,
            used_context: Cell::new(false),
            own_frames: 0,
            section: None,
            can_sleep: false,
            sleeps: false,
        }
    }
}

/// The blocks at the start of a function.
pub(super) struct Blocks<'c> {
    pub entry: BasicBlock<'c>,
    pub exit: BasicBlock<'c>,
    pub result: PointerValue<'c>,
    pub slot: PointerValue<'c>,
    pub scratch_claim: (BasicBlock<'c>, BasicBlock<'c>),
}

impl<'c> CodegenCx<'c> {
    /// Starts a program; `sites` are the values that `probe` may have in it.
    pub fn begin_program(&self, name: &str, section: SectionDef, sites: &[String], program: ProgramCx) -> Builder<'_, 'c> {
        self.begin(name, Some(section), sites, program)
    }

    /// Starts a function that a program of several parts calls: see [`CodegenCx::session`]. It ends in the same way as a
    /// program.
    pub fn begin_part(&self, name: &str, sites: &[String], program: ProgramCx) -> Builder<'_, 'c> {
        let e = self.begin(name, None, sites, program);
        // If both parts were inlined, the stack would not suffice.
        self.never_inline(e.fun.function);
        e
    }

    fn begin(&self, name: &str, section: Option<SectionDef>, sites: &[String], program: ProgramCx) -> Builder<'_, 'c> {
        if !program.is_once {
            self.runs_again.set(true);
            if !(program.is_rare && program.is_long) {
                self.runs_often.set(true);
            }
        }
        let ty = self.i64t().fn_type(&[self.ptrt().into()], false);
        let linkage = if section.is_some() { Linkage::External } else { Linkage::Internal };
        let function = self.module.add_function(name, ty, Some(linkage));
        function.set_section(section.as_ref().map(|s| s.name(false)).as_deref());
        let scope = self.describe_function(function, name, section.is_none(), &[]);
        let entry = self.llcx.append_basic_block(function, "entry");
        let acquire = self.llcx.append_basic_block(function, "acquire");
        let body = self.llcx.append_basic_block(function, "body");
        let exit = self.llcx.append_basic_block(function, "exit");
        let b = self.llcx.create_builder();
        b.position_at_end(entry);
        let result = ok(b.build_alloca(self.i64t(), "result"));
        let slot = ok(b.build_alloca(self.ptrt(), "slot"));
        b.position_at_end(body);
        let blocks = Blocks { entry, exit, result, slot, scratch_claim: (acquire, body) };
        let program = ProgramCx { ty: section.as_ref().map(|s| s.ty), ..program };
        let fun = FunctionCx {
            sites: sites.into(),
            own_frames: program.row().map_or(0, |row| row.own_frames),
            can_sleep: program.can_sleep_on(self),
            section,
            ..FunctionCx::new(function, scope, blocks, Temporaries::new(0))
        };
        let mut e = Builder { cx: self, b, program, fun, scope: Scope::starting_at(Span::default()) };
        e.at(0, 1, 1);
        if program.row().is_some_and(|row| row.in_user_space) && self.target.shared_stacks.holds() {
            e.avoid_private_stack();
        }
        e
    }
}

impl ProgramCx {
    fn row(&self) -> Option<&'static ProgramRow> {
        self.ty.map(ProgramType::row)
    }

    /// Can it start on a CPU on which a previous run has not ended, because that run's task was preempted? For other programs,
    /// the kernel skips such a run and counts it (`recursion_misses`).
    pub(super) fn overlaps(&self) -> bool {
        self.row().is_some_and(|row| row.may_overlap)
    }

    /// Can it sleep on such a kernel? See `double_buffer.rs`.
    pub(super) fn can_sleep_on(&self, cx: &CodegenCx) -> bool {
        self.row().is_some_and(|row| row.in_user_space) && cx.target.may_sleep.holds() && !cx.target.shared_stacks.holds()
    }
}

impl<'c> Builder<'_, 'c> {
    /// Builds the code of `body` with properties that differ from those of the surrounding code.
    pub fn scoped<T>(&mut self, change: impl FnOnce(&mut Scope), body: impl FnOnce(&mut Self) -> T) -> T {
        let around = self.scope;
        change(&mut self.scope);
        let result = body(self);
        self.scope = around;
        result
    }

    /// Sets the source position of the following code: line and column, from 1, in the source with this index.
    pub fn at(&mut self, source: u16, line: u32, column: u32) {
        let here = self.cx.debug.location(&mut self.fun, source, line, column);
        self.b.set_current_debug_location(here);
    }

    /// Makes the program run on the stack of its task. Since Linux 6.13, the JIT may give a program one stack for each CPU
    /// instead (kernel/bpf/verifier.c, `bpf_enable_priv_stack`), because it assumes that a program of this type never runs
    /// twice on a CPU at a time. A program on a uprobe does, if its task sleeps or is preempted and another task hits the
    /// probe: the two overwrite each other's stack, and the kernel crashes. Programs with a tail call are exempt, so this adds
    /// one that never happens.
    fn avoid_private_stack(&mut self) {
        let never = self.start(std::mem::offset_of!(shared::LoadConstants, opaque_zero));
        // Programs that share such a map must be attached in the same way.
        let name = if self.row().is_some_and(|row| matches!(row.link, LinkScope::Functions | LinkScope::FileOffsets)) {
            "none_multi"
        } else {
            "none"
        };
        let programs = self.declare_map(name, MapDef { kind: MapKind::ProgArray, key_size: 4, value_size: 4, max_entries: 1, flags: 0 });
        self.if_(never, |e| {
            let (ctx, first) = (e.ctx(), e.int(0));
            e.call(Helper::TailCall, &[ctx.into(), programs.into(), first.into()]);
        });
    }

    /// Claims scratch memory here if the program needs it, so that a run that returns earlier does not pay for it.
    pub fn allow_scratch_here(&mut self) {
        if self.fun.temporaries.scratch_used {
            return;
        }
        // The old place becomes empty.
        let (old, after) = self.fun.scratch_claim;
        let here = self.current_block();
        let acquire = self.new_block("acquire");
        let next = self.new_block("work");
        self.b.position_at_end(old);
        ok(self.b.build_unconditional_branch(after));
        self.b.position_at_end(here);
        ok(self.b.build_unconditional_branch(acquire));
        self.fun.scratch_claim = (acquire, next);
        self.b.position_at_end(next);
    }

    /// Ends the program; `default` is its return value if the script does not set one.
    pub fn end_program(mut self, default: u64) {
        let exit = self.fun.exit;
        ok(self.b.build_unconditional_branch(exit));
        let f = &self.fun;
        let (entry, result, slot, used) = (f.entry, f.result, f.slot, f.temporaries.scratch_used);
        let (acquire, after) = f.scratch_claim;
        self.b.position_at_end(entry);
        let zero = self.int(default);
        ok(self.b.build_store(result, zero));
        ok(self.b.build_store(slot, self.ptrt().const_null()));
        let busy = (self.in_trampoline() && self.target.checks_recursion.holds()).then(|| self.enter_alone());
        let sleeps = self.fun.sleeps;
        if sleeps {
            self.count_sleeper(1);
        }
        let first = self.first_acquire();
        ok(self.b.build_unconditional_branch(first));
        self.b.position_at_end(acquire);
        if used {
            self.acquire_scratch(after);
        } else {
            ok(self.b.build_unconditional_branch(after));
        }
        self.b.position_at_end(exit);
        if used {
            self.release_scratch();
        }
        if let Some(busy) = busy {
            let free = self.int(0);
            self.store_volatile(busy, free);
        }
        if sleeps {
            self.count_sleeper(u64::MAX);
        }
        let value = ok(self.b.build_load(self.i64t(), result, "result"));
        ok(self.b.build_return(Some(&value)));
        if used {
            let size = self.fun.temporaries.scratch_max.next_multiple_of(8);
            self.scratch_size.set(self.scratch_size.get().max(size));
        }
        let FunctionCx { function, section, sleeps, .. } = self.fun;
        if sleeps {
            function.set_section(section.map(|s| s.name(true)).as_deref());
        }
    }

    fn first_acquire(&self) -> BasicBlock<'c> {
        match self.fun.entry.get_next_basic_block() {
            Some(b) => b,
            None => bug!("a program has an acquire block after its entry"),
        }
    }

    /// The program's context: its only parameter.
    pub fn ctx(&self) -> PointerValue<'c> {
        self.fun.used_context.set(true);
        if let Some(context) = self.fun.context {
            return context;
        }
        match self.fun.function.get_first_param() {
            Some(BasicValueEnum::PointerValue(p)) => p,
            _ => bug!("a program's parameter is a pointer"),
        }
    }

    /// Is this a program that a trampoline calls?
    pub fn in_trampoline(&self) -> bool {
        self.row().is_some_and(|row| row.by_trampoline)
    }

    /// Does a trampoline call it, and does `bpf_get_func_ip` return the traced function?
    pub fn knows_function(&self) -> bool {
        self.row().is_some_and(|row| row.knows_function)
    }

    /// The properties of the type of the program under construction.
    pub(super) fn row(&self) -> Option<&'static ProgramRow> {
        self.fun.section.as_ref().map(|s| s.ty.row())
    }

    /// Is this a program that a raw tracepoint calls?
    pub fn in_raw_tracepoint(&self) -> bool {
        self.own_frames() > 0 && !self.in_trampoline()
    }

    /// Is its context the registers of a task in user space?
    pub fn in_user_space(&self) -> bool {
        self.row().is_some_and(|row| row.in_user_space)
    }

    /// The number of BPF's own frames at the start of a kernel stack that this program records.
    pub fn own_frames(&self) -> u64 {
        self.fun.own_frames
    }

    /// The values that `probe` may have here.
    pub fn site_names(&self) -> &[String] {
        &self.fun.sites
    }

    /// Sets the site that fired, if the program itself determines it.
    pub fn set_site(&mut self, index: IntValue<'c>) {
        self.fun.site = Some(index);
    }

    /// Index of the site that fired: 0 if there is only one; the cookie of the link if the program has not set it.
    pub fn site(&mut self) -> IntValue<'c> {
        if self.fun.sites.len() < 2 {
            return self.int(0);
        }
        if let Some(site) = self.fun.site {
            return if self.program.weighted { self.and(site, self.int(u32::MAX.into())) } else { site };
        }
        self.once("site", |e| {
            let ctx = e.ctx();
            e.call(Helper::GetAttachCookie, &[ctx.into()])
        })
    }

    /// The functions of the program need [`Builder::site_and_weight`].
    pub(super) fn passes_site(&self) -> bool {
        self.fun.sites.len() > 1 || self.program.weighted
    }

    /// The index of the site, and in the upper half the binary logarithm of the weight.
    pub(super) fn site_and_weight(&mut self) -> IntValue<'c> {
        match self.fun.site {
            Some(both) if self.program.weighted => both,
            _ => self.site(),
        }
    }

    /// Sets the weight of this run: two to the power of `shift`.
    pub(super) fn set_weight(&mut self, shift: IntValue<'c>) {
        let site = self.site();
        let shift = self.shl(shift, self.int(32));
        self.fun.site = Some(self.or(site, shift));
    }

    /// A number that this run adds to a sum, times the weight of the run: it stands for runs that did not pass the gate.
    pub fn weighted(&self, n: IntValue<'c>) -> IntValue<'c> {
        if self.program.weighted { self.shl(n, self.weight_shift()) } else { n }
    }

    /// The binary logarithm of the weight of this run.
    pub(super) fn weight_shift(&self) -> IntValue<'c> {
        match self.fun.site {
            Some(both) if self.program.weighted => self.shr(both, self.int(32), false),
            _ => self.int(0),
        }
    }

    /// The weight of this run.
    pub fn weight(&self) -> IntValue<'c> {
        self.weighted(self.int(1))
    }
}
