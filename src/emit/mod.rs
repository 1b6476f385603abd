//! BPF code in our words: the only user of inkwell and LLVM.
//!
//! [`Emit`] is a module and the function under construction in it. Its methods name BPF and memory ideas, never a
//! builtin. Scalars are 64-bit registers, extended by their type's sign; everything else is memory.
//!
//! - `mod.rs`: values, arithmetic, functions
//! - `flow.rs`: branches, loops, what is computed once
//! - `mem.rs`: allocation off the 512-byte stack, loads, stores; `text.rs`: strings
//! - `map.rs`: maps; `ring.rs`: records; `tally.rs`: what is counted; `helper.rs`: kernel helpers; `kernel.rs`: its functions
//! - `task.rs`: the current task
//! - `bits.rs`: bits and bounds; `callback.rs`: functions that helpers call; `call.rs`: functions that programs call
//! - `chunk.rs`: pieces of long programs; `order.rs`: memory compared and searched
//! - `object.rs`: the module's frame (target, debug information, ELF)

#![allow(unsafe_code)] // GEPs and the parts of LLVM's C API that inkwell does not wrap

mod bench;
mod bits;
mod call;
mod callback;
mod chunk;
mod double_buffer;
mod flow;
mod follow;
pub mod helper;
pub mod kernel;
mod map;
mod mem;
mod object;
mod order;
mod problem;
mod program;
mod ring;
mod session;
pub mod shared;
mod tally;
mod task;
mod text;

pub use call::{IN_NUMBERS, Subprogram};
pub use callback::{LENT, Outer, WALKED_TURNS};
pub use chunk::Chunk;
pub use double_buffer::{Change, second};
pub use flow::{Branch, Turn};
pub use follow::TaskOffsets;
pub use helper::{Helper, helper_name};
pub use inkwell::context::Context;
pub use inkwell::values::{BasicMetadataValueEnum as BasicMetadataValue, BasicValueEnum as BasicValue, IntValue, PointerValue};
pub use kernel::KernelType;
pub use map::{MARK, MapDef, MapKind, NO_PREALLOC, Slots};
pub use mem::Mark;
pub use mem::align_at;
pub use object::{Built, Dumps, EmitError};
pub use problem::Problem;
pub use program::{ProgramRow, ProgramType, Section};
pub use ring::RecordField;

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

use inkwell::basic_block::BasicBlock;
use inkwell::builder::{Builder, BuilderError};
use inkwell::debug_info::{DICompileUnit, DIFile, DIScope, DISubprogram, DebugInfoBuilder};
use inkwell::module::{Linkage, Module};
use inkwell::targets::TargetMachine;
use inkwell::types::{IntType, PointerType};
use inkwell::values::{BasicValueEnum, FunctionValue, GlobalValue};
use inkwell::{AddressSpace, IntPredicate};

use crate::bug;
use crate::diag::Diagnostic;
use crate::types::{Int, Space, Type};

/// A value while code is emitted.
#[derive(Clone, Debug)]
pub struct Operand<'c> {
    /// Its type.
    pub ty: Type,
    /// Where it is.
    pub repr: Repr<'c>,
}

/// Where a value is.
#[derive(Clone, Copy, Debug)]
pub enum Repr<'c> {
    /// Nowhere: no value.
    None,
    /// In a register of 64 bits, extended by the type's sign.
    Reg(IntValue<'c>),
    /// In memory the program may read directly, `Type::size()` bytes; for strings and buffers that were just read, how
    /// many bytes of it matter (a string's NUL included).
    Mem(PointerValue<'c>, Option<IntValue<'c>>),
    /// At an address of this space, not read yet (structs, arrays, and strings inside them).
    At(IntValue<'c>, Space),
}

impl<'c> Operand<'c> {
    /// No value.
    pub fn void() -> Self {
        Self { ty: Type::Void, repr: Repr::None }
    }

    /// A scalar; the caller has extended it by the type's sign.
    pub fn reg(ty: Type, value: IntValue<'c>) -> Self {
        Self { ty, repr: Repr::Reg(value) }
    }

    /// `uint64`.
    pub fn u64(value: IntValue<'c>) -> Self {
        Self::reg(Type::U64, value)
    }

    /// A value in memory.
    pub fn mem(ty: Type, ptr: PointerValue<'c>) -> Self {
        Self { ty, repr: Repr::Mem(ptr, None) }
    }

    /// A value not read yet.
    pub fn at(ty: Type, addr: IntValue<'c>, space: Space) -> Self {
        Self { ty, repr: Repr::At(addr, space) }
    }
}

/// Comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as LLVM names them
pub enum Cmp {
    Eq,
    Ne,
    Ult,
    Ule,
    Ugt,
    Uge,
    Slt,
    Sle,
    Sgt,
    Sge,
}

/// What is done to keep a program within its 512 bytes of stack. How much LLVM spills is known only when the object is made:
/// a program that turns out to take too much is compiled again with less room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes that the temporaries of a function may take; others lie in the scratch arena.
    pub temporaries: u32,
    /// LLVM is not to keep values for reuse, which it would have to spill: the code is longer, and takes less stack.
    pub lean: bool,
}

/// A module, and the function under construction in it.
pub struct Emit<'c> {
    cx: &'c Context,
    machine: TargetMachine,
    module: Module<'c>,
    b: Builder<'c>,
    di: DebugInfoBuilder<'c>,
    unit: DICompileUnit<'c>,
    /// One for each of the script's sources.
    files: Vec<DIFile<'c>>,
    errors: Box<object::Errors>,
    maps: BTreeMap<String, (GlobalValue<'c>, MapDef)>,
    data: BTreeMap<String, GlobalValue<'c>>,
    /// By number of the script's map.
    slots: BTreeMap<usize, Slots>,
    /// The script's maps that are there twice, and their bits.
    doubles: BTreeMap<usize, u32>,
    /// The program under construction may run on a CPU where it has begun and has not ended: its task was preempted, and another
    /// came by. The kernel counts others as missed (`recursion_misses`) rather than let them.
    overlaps: bool,
    /// Helpers' calls are not to be merged with equal ones.
    apart: bool,
    /// The program under construction may sleep: see `double_buffer.rs`.
    announces: bool,
    texts: HashMap<Vec<u8>, GlobalValue<'c>>,
    fun: Option<Fun<'c>>,
    scratch_size: u32,
    v4: bool,
    /// The kernel's atomic instructions give back what was there: see `acquire_scratch`.
    pub fetches: bool,
    /// Trampolines do not keep a program from calling itself, so programs do: see `enter_alone`.
    pub checks_recursion: bool,
    /// Helpers that the kernel has not, each with what would have it.
    pub lacks: Vec<(Helper, &'static str)>,
    /// Calls of those.
    lacking: Vec<Diagnostic>,
    /// Maps may get memory for elements wherever a program runs.
    pub allocates: bool,
    /// The kernel makes a loop's turns: see [`Emit::bpf_loop`].
    pub loops: bool,
    /// The kernel lets programs in user space sleep.
    pub may_sleep: bool,
    /// Within [`Emit::outlined`].
    outlining: bool,
    /// Values over so many bytes live in the scratch arena.
    pub on_stack_limit: u32,
    /// How the stack is shared between temporaries and what LLVM spills.
    pub room: Room,
    /// Strings that are read are zero behind their NUL (for keys and comparisons): off where only their bytes travel.
    pub pad: bool,
    /// See [`Emit::own_ids`].
    pub namespace: Option<(u64, u64)>,
    /// Helper failures to report: 0 none, 1 those that lose something, 2 all.
    pub warning_level: u8,
    /// Reads of memory that fail are counted.
    pub counts_unread: bool,
    /// There are processes to follow.
    pub follows: bool,
    /// The program under construction is run by hand, at the begin or the end: it sends nothing once a program has asked for
    /// the end of the run.
    pub by_hand: bool,
    /// All sites of the program are at functions' first instructions, where the stack pointer leads to the return address.
    pub at_entry: bool,
    /// So deep in functions that one more calls no other: the kernel calls eight at most.
    pub deep: bool,
    /// Pointers are wanted as the verifier knows them, not as numbers to calculate with.
    pub trusts: bool,
    /// The kernel may give programs a stack per CPU, a uprobe's too: see `keep_own_stack`.
    pub shared_stacks: bool,
    /// What pointers from this probe lead into when nothing else says.
    pub space: Space,
    /// The program is long: what stands in many places becomes a function.
    pub long: bool,
    problems: Vec<Problem>,
    next_event: u32,
    /// How many probes there are, and the number of the one under construction: for what is counted of each.
    pub probes: u32,
    /// See [`Emit::probes`].
    pub probe: u32,
    /// Stacks that a table holds; 0: as many as are cheap.
    pub max_stacks: u64,
    /// Limits of the stack maps asked for.
    pub stacks: std::collections::BTreeSet<u32>,
    /// Where the code being emitted comes from: byte offsets in the script.
    pub span: crate::diag::Span,
}

/// The function under construction.
struct Fun<'c> {
    function: FunctionValue<'c>,
    scope: DISubprogram<'c>,
    /// The same in another file, by source.
    scopes: BTreeMap<u16, DIScope<'c>>,
    /// Holds the allocas; branches to the body at the end.
    entry: BasicBlock<'c>,
    exit: BasicBlock<'c>,
    result: PointerValue<'c>,
    /// Where the scratch slot is taken, when one is needed: an empty block and the block after it.
    acquire: (BasicBlock<'c>, BasicBlock<'c>),
    /// The slot's address, or null.
    slot: PointerValue<'c>,
    scratch_used: bool,
    scratch_top: u32,
    scratch_max: u32,
    /// Stack memory: slots of 8, 16 or 32 bytes; true while in use.
    stack: Vec<(PointerValue<'c>, u32, bool)>,
    stack_bytes: u32,
    /// Where in the scratch arena an address of it lies.
    places: HashMap<PointerValue<'c>, u32>,
    /// Addresses that are not multiples of eight, and what they are multiples of.
    skewed: HashMap<PointerValue<'c>, u32>,
    /// Stack that is kept, by what it is for.
    kept: HashMap<String, PointerValue<'c>>,
    /// Values already computed, by scope.
    once: Vec<HashMap<String, BasicValueEnum<'c>>>,
    loops: Vec<flow::Loop<'c>>,
    /// Number of sites, their names, and the register that says which one fired.
    sites: Vec<String>,
    site: Option<IntValue<'c>>,
    /// The program's context, where it is not the function's own parameter.
    context: Option<PointerValue<'c>>,
    /// Something asked for the context.
    used_context: Cell<bool>,
    /// See [`Emit::own_frames`].
    own_frames: u64,
    /// The program that it is, or is of; none for functions that several programs call.
    section: Option<Section>,
    /// The program may sleep, so that what it reads may have to be brought into memory first; and whether it does.
    can_sleep: bool,
    sleeps: bool,
}

/// Building an instruction fails only when the builder stands nowhere or types are off: ours to get right.
fn ok<T>(r: Result<T, BuilderError>) -> T {
    match r {
        Ok(v) => v,
        Err(e) => bug!("LLVM builder: {e}"),
    }
}

impl<'c> Emit<'c> {
    fn fun(&mut self) -> &mut Fun<'c> {
        match &mut self.fun {
            Some(f) => f,
            None => bug!("no function is under construction"),
        }
    }

    fn fun_ref(&self) -> &Fun<'c> {
        match &self.fun {
            Some(f) => f,
            None => bug!("no function is under construction"),
        }
    }

    fn i64t(&self) -> IntType<'c> {
        self.cx.i64_type()
    }

    fn ptrt(&self) -> PointerType<'c> {
        self.cx.ptr_type(AddressSpace::default())
    }

    /// Starts a program; `sites` are the values that `probe` may have in it.
    pub fn begin_program(&mut self, name: &str, section: Section, sites: &[String]) {
        self.begin(name, Some(section), sites);
    }

    /// Starts a function that a program of several parts calls: see [`Emit::session`]. It ends as a program does.
    pub fn begin_part(&mut self, name: &str, sites: &[String]) {
        self.begin(name, None, sites);
        self.keep_apart();
    }

    fn begin(&mut self, name: &str, section: Option<Section>, sites: &[String]) {
        let ty = self.i64t().fn_type(&[self.ptrt().into()], false);
        let linkage = if section.is_some() { Linkage::External } else { Linkage::Internal };
        let function = self.module.add_function(name, ty, Some(linkage));
        function.set_section(section.as_ref().map(|s| s.name(false)).as_deref());
        let scope = self.describe_function(function, name, section.is_none(), &[]);
        let row = section.as_ref().map(|s| s.ty.row());
        let in_user_space = row.is_some_and(|row| row.in_user_space);
        let entry = self.cx.append_basic_block(function, "entry");
        let acquire = self.cx.append_basic_block(function, "acquire");
        let body = self.cx.append_basic_block(function, "body");
        let exit = self.cx.append_basic_block(function, "exit");
        self.b.position_at_end(entry);
        let result = ok(self.b.build_alloca(self.i64t(), "result"));
        let slot = ok(self.b.build_alloca(self.ptrt(), "slot"));
        self.announces = in_user_space && self.may_sleep && !self.shared_stacks;
        self.overlaps = row.is_some_and(|row| row.overlaps);
        self.fun = Some(Fun {
            function,
            scope,
            scopes: BTreeMap::new(),
            entry,
            exit,
            result,
            acquire: (acquire, body),
            slot,
            scratch_used: false,
            scratch_top: 8,
            scratch_max: 8,
            stack: Vec::new(),
            stack_bytes: 0,
            places: HashMap::new(),
            skewed: HashMap::new(),
            kept: HashMap::new(),
            once: vec![HashMap::new()],
            loops: Vec::new(),
            sites: sites.to_vec(),
            site: None,
            context: None,
            used_context: Cell::new(false),
            own_frames: row.map_or(0, |row| row.own_frames),
            section,
            can_sleep: self.announces,
            sleeps: false,
        });
        self.b.position_at_end(body);
        self.at(0, 1, 1);
        if in_user_space && self.shared_stacks {
            self.keep_own_stack();
        }
    }

    /// Has the program run on the task's own stack. Since Linux 6.13 the JIT may give a program one stack per CPU instead
    /// (kernel/bpf/verifier.c, `bpf_enable_priv_stack`), on the ground that no program of its type runs twice at a time on a
    /// CPU. A uprobe's does, when its task sleeps or is preempted and another comes to the same place: the two then write
    /// over each other's stack, and the kernel crashes. Programs with a tail call are left out of this; so here is one
    /// that never happens.
    fn keep_own_stack(&mut self) {
        let never = self.start(std::mem::offset_of!(shared::Start, never));
        // programs that share such a map must be attached in the same way
        let name = if self.row().is_some_and(|row| row.multi) { "none_multi" } else { "none" };
        let programs = self.declare_map(name, MapDef { kind: MapKind::ProgArray, key_size: 4, value_size: 4, max_entries: 1, flags: 0 });
        self.if_(never, |e| {
            let (ctx, first) = (e.ctx(), e.int(0));
            e.call(Helper::TailCall, &[ctx.into(), programs.into(), first.into()]);
        });
    }

    /// From here on scratch memory may be needed: a run that has returned before pays nothing for it.
    pub fn allow_scratch_here(&mut self) {
        if self.fun_ref().scratch_used {
            return;
        }
        // the old place is passed through
        let (old, after) = self.fun_ref().acquire;
        let here = self.here();
        let acquire = self.new_block("acquire");
        let next = self.new_block("work");
        self.b.position_at_end(old);
        ok(self.b.build_unconditional_branch(after));
        self.b.position_at_end(here);
        ok(self.b.build_unconditional_branch(acquire));
        self.fun().acquire = (acquire, next);
        self.b.position_at_end(next);
    }

    /// Ends the program; `default` is what it returns when the script does not say.
    pub fn end_program(&mut self, default: u64) {
        let exit = self.fun_ref().exit;
        ok(self.b.build_unconditional_branch(exit));
        let f = self.fun_ref();
        let (entry, result, slot, used) = (f.entry, f.result, f.slot, f.scratch_used);
        let (acquire, after) = f.acquire;
        self.b.position_at_end(entry);
        let zero = self.int(default);
        ok(self.b.build_store(result, zero));
        ok(self.b.build_store(slot, self.ptrt().const_null()));
        let busy = (self.checks_recursion && self.in_trampoline()).then(|| self.enter_alone());
        let sleeps = self.fun_ref().sleeps;
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
        self.scratch_size = self.scratch_size.max(if used { self.fun_ref().scratch_max.next_multiple_of(8) } else { 0 });
        self.b.unset_current_debug_location();
        if let Some(f) = self.fun.take()
            && f.sleeps
        {
            f.function.set_section(f.section.map(|s| s.name(true)).as_deref());
        }
    }

    fn first_acquire(&self) -> BasicBlock<'c> {
        match self.fun_ref().entry.get_next_basic_block() {
            Some(b) => b,
            None => bug!("a program has an acquire block after its entry"),
        }
    }

    /// The program's context: its only parameter.
    pub fn ctx(&self) -> PointerValue<'c> {
        self.fun_ref().used_context.set(true);
        if let Some(context) = self.fun_ref().context {
            return context;
        }
        match self.fun_ref().function.get_first_param() {
            Some(BasicValueEnum::PointerValue(p)) => p,
            _ => bug!("a program's parameter is a pointer"),
        }
    }

    /// Is this a program that a trampoline calls?
    pub fn in_trampoline(&self) -> bool {
        self.row().is_some_and(|row| row.by_trampoline)
    }

    /// Does `bpf_get_func_ip` tell it the traced function, of a trampoline?
    pub fn knows_function(&self) -> bool {
        self.row().is_some_and(|row| row.knows_function)
    }

    /// What is known of the type of the program under construction.
    fn row(&self) -> Option<&'static ProgramRow> {
        self.fun_ref().section.as_ref().map(|s| s.ty.row())
    }

    /// Is this a program that a raw tracepoint calls?
    pub fn in_raw_tracepoint(&self) -> bool {
        self.own_frames() > 0 && !self.in_trampoline()
    }

    /// With so many frames of its own does a kernel stack start that is taken here.
    pub fn own_frames(&self) -> u64 {
        self.fun_ref().own_frames
    }

    /// The values that `probe` may have here.
    pub fn site_names(&self) -> &[String] {
        &self.fun_ref().sites
    }

    /// Says which site fired, where the program found out by itself.
    pub fn set_site(&mut self, index: IntValue<'c>) {
        self.fun().site = Some(index);
    }

    /// Index of the site that fired: 0 where there is one only; the link's cookie where the program has not said.
    pub fn site(&mut self) -> IntValue<'c> {
        if self.fun_ref().sites.len() < 2 {
            return self.int(0);
        }
        if let Some(site) = self.fun_ref().site {
            return site;
        }
        self.once("site", |e| {
            let ctx = e.ctx();
            e.call(Helper::GetAttachCookie, &[ctx.into()])
        })
    }

    // --- constants and arithmetic -------------------------------------------------------------------------------

    /// A constant.
    pub fn int(&self, value: u64) -> IntValue<'c> {
        self.i64t().const_int(value, false)
    }

    /// The null pointer.
    pub fn null(&self) -> PointerValue<'c> {
        self.ptrt().const_null()
    }

    /// A comparison, as a bool in a register (0 or 1).
    pub fn cmp(&self, op: Cmp, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        let bit = self.cmp_bit(op, a, b);
        ok(self.b.build_int_z_extend(bit, self.i64t(), ""))
    }

    fn cmp_bit(&self, op: Cmp, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        let p = match op {
            Cmp::Eq => IntPredicate::EQ,
            Cmp::Ne => IntPredicate::NE,
            Cmp::Ult => IntPredicate::ULT,
            Cmp::Ule => IntPredicate::ULE,
            Cmp::Ugt => IntPredicate::UGT,
            Cmp::Uge => IntPredicate::UGE,
            Cmp::Slt => IntPredicate::SLT,
            Cmp::Sle => IntPredicate::SLE,
            Cmp::Sgt => IntPredicate::SGT,
            Cmp::Sge => IntPredicate::SGE,
        };
        ok(self.b.build_int_compare(p, a, b, ""))
    }

    /// `a + b`
    pub fn add(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        ok(self.b.build_int_add(a, b, ""))
    }

    /// `a - b`
    pub fn sub(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        ok(self.b.build_int_sub(a, b, ""))
    }

    /// `a * b`
    pub fn mul(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        ok(self.b.build_int_mul(a, b, ""))
    }

    /// `a & b`
    pub fn and(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        ok(self.b.build_and(a, b, ""))
    }

    /// `a | b`
    pub fn or(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        ok(self.b.build_or(a, b, ""))
    }

    /// `a ^ b`
    pub fn xor(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        ok(self.b.build_xor(a, b, ""))
    }

    /// `a << b`; BPF uses the low six bits of `b`, and so does this (LLVM alone leaves more undefined).
    pub fn shl(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        let b = self.and(b, self.int(63));
        ok(self.b.build_left_shift(a, b, ""))
    }

    /// `a >> b`, of a signed value or not; low six bits of `b`.
    pub fn shr(&self, a: IntValue<'c>, b: IntValue<'c>, signed: bool) -> IntValue<'c> {
        let b = self.and(b, self.int(63));
        ok(self.b.build_right_shift(a, b, signed, ""))
    }

    /// `a / b` or `a % b`; of a zero `b`, LLVM leaves it undefined: the caller has seen to that.
    /// Signed division is built from unsigned, truncating toward zero, where the CPU version lacks it or the divisor may be -1: of the
    /// least number divided by -1, LLVM's `sdiv` is undefined and some kernels trap. Here it is itself, and the remainder 0.
    pub fn div(&self, a: IntValue<'c>, b: IntValue<'c>, signed: bool, remainder: bool) -> IntValue<'c> {
        // Of `a * b / a != b` and `-1 / a < b` LLVM makes a multiplication of 128 bits, which BPF does not have.
        let a = if remainder || (a.is_const() && b.is_const()) { a } else { self.opaque(a) };
        let has_sdiv = self.v4 && b.get_sign_extended_constant().is_some_and(|n| n != 0 && n != -1);
        match (signed, remainder) {
            (false, false) => ok(self.b.build_int_unsigned_div(a, b, "")),
            (false, true) => ok(self.b.build_int_unsigned_rem(a, b, "")),
            (true, false) if has_sdiv => ok(self.b.build_int_signed_div(a, b, "")),
            (true, true) if has_sdiv => ok(self.b.build_int_signed_rem(a, b, "")),
            (true, _) => {
                let (sa, sb) = (self.shr(a, self.int(63), true), self.shr(b, self.int(63), true));
                let magnitude = |v, s| self.sub(self.xor(v, s), s);
                let (ua, ub) = (magnitude(a, sa), magnitude(b, sb));
                if remainder {
                    magnitude(ok(self.b.build_int_unsigned_rem(ua, ub, "")), sa)
                } else {
                    magnitude(ok(self.b.build_int_unsigned_div(ua, ub, "")), self.xor(sa, sb))
                }
            }
        }
    }

    /// `c != 0 ? a : b`, both already computed.
    pub fn select(&self, c: IntValue<'c>, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        let bit = self.cmp_bit(Cmp::Ne, c, self.int(0));
        let BasicValueEnum::IntValue(v) = ok(self.b.build_select(bit, a, b, "")) else {
            bug!("a select of integers is one");
        };
        v
    }

    /// Cuts a value to a width and extends it again by the sign: what a cast does.
    pub fn fit(&self, value: IntValue<'c>, int: Int) -> IntValue<'c> {
        if int.bytes >= 8 {
            return value;
        }
        let narrow = self.narrow(value, int.bytes);
        let wide = self.i64t();
        if int.signed { ok(self.b.build_int_s_extend(narrow, wide, "")) } else { ok(self.b.build_int_z_extend(narrow, wide, "")) }
    }

    fn narrow(&self, value: IntValue<'c>, bytes: u8) -> IntValue<'c> {
        match bytes {
            8 => value,
            n => ok(self.b.build_int_truncate(value, self.width(n), "")),
        }
    }

    fn width(&self, bytes: u8) -> IntType<'c> {
        match bytes {
            1 => self.cx.i8_type(),
            2 => self.cx.i16_type(),
            4 => self.cx.i32_type(),
            _ => self.cx.i64_type(),
        }
    }

    /// Hides a value's origin from LLVM, so that a bound put on it afterwards is kept where the verifier sees it.
    pub fn opaque(&self, value: IntValue<'c>) -> IntValue<'c> {
        let ty = self.i64t().fn_type(&[self.i64t().into()], false);
        let asm = self.cx.create_inline_asm(ty, String::new(), "=r,0".into(), true, false, None, false);
        let call = ok(self.b.build_indirect_call(ty, asm, &[value.into()], ""));
        match call.try_as_basic_value().basic() {
            Some(BasicValueEnum::IntValue(v)) => v,
            _ => bug!("an asm of i64 gives i64"),
        }
    }

    /// An address as a number like others, so that the verifier lets the program calculate with it: it takes what comes out
    /// of a change of the bytes' order for any number (`check_alu_op` of kernel/bpf/verifier.c). What it leads to can then be
    /// had through helpers alone.
    pub fn mere_number(&self, addr: IntValue<'c>) -> IntValue<'c> {
        let hidden = self.opaque(self.swap_bytes(addr, 8));
        self.swap_bytes(hidden, 8)
    }

    /// A pointer's address as a number.
    pub fn addr(&self, ptr: PointerValue<'c>) -> IntValue<'c> {
        ok(self.b.build_ptr_to_int(ptr, self.i64t(), ""))
    }

    /// The number in a scalar operand.
    pub fn scalar(&self, op: &Operand<'c>) -> IntValue<'c> {
        match op.repr {
            Repr::Reg(v) => v,
            Repr::Mem(ptr, _) => match op.ty.as_int() {
                Some(int) => self.load(ptr, 0, int),
                None => self.addr(ptr),
            },
            Repr::At(addr, _) => addr,
            Repr::None => self.int(0),
        }
    }
}
