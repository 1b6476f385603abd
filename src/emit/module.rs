//! The module under construction, and its fixed properties.

use std::cell::{Cell, LazyCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};

use inkwell::AddressSpace;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::context::Context;
use inkwell::debug_info::{DISubprogram, DIType};
use inkwell::module::{Linkage, Module};
use inkwell::targets::TargetMachine;
use inkwell::types::{IntType, PointerType};
use inkwell::values::{FunctionValue, GlobalValue, IntValue, PointerValue};

use super::debug_info::DebugInfo;
use super::unwind::UnwindTarget;
use super::{Errors, Helper, MapDef, Problem, Slots, ThreadTable};
use crate::diag::Diagnostic;
use crate::system::machine::arch::{Arch, HERE};

/// A property of the target kernel that is determined when code first depends on it: a test of the kernel takes a tenth of a
/// millisecond.
pub struct Asked<'k>(LazyCell<bool, Box<dyn FnOnce() -> bool + 'k>>);

impl<'k> Asked<'k> {
    /// A property that this function determines.
    pub fn when_needed(ask: impl FnOnce() -> bool + 'k) -> Self {
        Self(LazyCell::new(Box::new(ask)))
    }

    /// Does the kernel have the property?
    pub fn holds(&self) -> bool {
        *self.0
    }
}

impl From<bool> for Asked<'_> {
    fn from(known: bool) -> Self {
        Self::when_needed(move || known)
    }
}

/// The features of the target kernel that affect code.
pub struct TargetFeatures<'k> {
    /// Its processor.
    pub arch: &'static Arch,
    /// It accepts instructions of BPF CPU version 4.
    pub v4: bool,
    /// Its atomic instructions can return the old value: see `acquire_scratch`.
    pub atomic_fetch: Asked<'k>,
    /// Its trampolines do not prevent recursion, so programs do: see `enter_alone`.
    pub checks_recursion: Asked<'k>,
    /// Helpers that it may lack, each with whether it has it, and the requirement.
    pub newer_helpers: Vec<(Helper, Asked<'k>, &'static str)>,
    /// Programs can add map elements in any context.
    pub allocates_in_any_context: Asked<'k>,
    /// It has a helper for loops: see [`Builder::bpf_loop`](super::Builder::bpf_loop).
    pub loop_helper: Asked<'k>,
    /// Walks along stacks use that helper: see `bounded_loop`.
    pub walks_by_loop_helper: bool,
    /// The code itself, not a function, compares numbers with their bounds: see [`Builder::at_most`](super::Builder::at_most).
    pub inline_bounds: bool,
    /// It supports sleepable programs in user space.
    pub may_sleep: Asked<'k>,
    /// It may give programs per-CPU stacks, even those on uprobes: see `avoid_private_stack`.
    pub shared_stacks: Asked<'k>,
    /// Parameters of unwinding with tables; `None` if user stacks follow frame pointers.
    pub unwind: Option<UnwindTarget>,
}

impl Default for TargetFeatures<'_> {
    fn default() -> Self {
        Self {
            arch: HERE,
            v4: false,
            atomic_fetch: true.into(),
            checks_recursion: false.into(),
            newer_helpers: Vec::new(),
            allocates_in_any_context: true.into(),
            loop_helper: true.into(),
            walks_by_loop_helper: true,
            inline_bounds: true,
            may_sleep: true.into(),
            shared_stacks: true.into(),
            unwind: None,
        }
    }
}

/// Limits that keep a program within its 512 bytes of stack. How much LLVM spills is known only when the object is complete; a
/// program that exceeds the stack is compiled again with lower limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackLimits {
    /// Maximum stack for the temporaries of a function; others are in the scratch arena.
    pub max_temporary_bytes: u32,
    /// LLVM must not keep values for reuse, which it might spill: the code is longer and uses less stack.
    pub avoid_value_reuse: bool,
}

/// The options of the run that affect code.
#[derive(Clone, Debug)]
pub struct CodegenOptions {
    /// The license that the kernel sees.
    pub license: String,
    /// The PID namespace of process IDs, by device and inode: see [`Builder::ns_pid_tgid`](super::Builder::ns_pid_tgid).
    pub namespace: Option<(u64, u64)>,
    /// It is not known yet: [`LoadConstants::namespace_ino`](super::shared::LoadConstants::namespace_ino).
    pub namespace_at_run: bool,
    /// Larger values are in the scratch arena.
    pub on_stack_limit: u32,
    /// The limits for the stack.
    pub stack_limits: StackLimits,
    /// Which failures of helpers are reported: 0 none, 1 those that lose data, 2 all.
    pub warning_level: u8,
    /// Count failed reads of memory.
    pub counts_unread: bool,
    /// Records have the time at which they were made: see `ring::stamped`.
    pub timestamps: bool,
    /// Records begin with an [`Origin`](super::shared::Origin).
    pub origins: bool,
    /// Some processes are followed.
    pub follows_processes: bool,
    /// Whether processes are followed is not known yet: [`LoadConstants::follows`](super::shared::LoadConstants::follows).
    pub follows_at_run: bool,
    /// Number of probes, for their counters.
    pub probes: u32,
    /// Capacity of a stack map; 0 for the default.
    pub max_stacks: u64,
    /// Statements of a long program that come out alike share a function.
    pub shares_statements: bool,
    /// So do all those of a program that runs often, even if the calls take longer than their own code.
    pub shares_often: bool,
    /// The shapes of those that did not come out alike, although they were expected to.
    pub unlike: BTreeSet<u64>,
    /// The greatest number of pieces that a long body is split into.
    pub max_pieces: u64,
    /// Other objects will be linked with this one, so its symbols need descriptions.
    pub is_linked: bool,
}

impl Default for CodegenOptions {
    fn default() -> Self {
        Self {
            license: "GPL".into(),
            namespace: None,
            namespace_at_run: false,
            on_stack_limit: 32,
            stack_limits: StackLimits { max_temporary_bytes: 256, avoid_value_reuse: false },
            warning_level: 1,
            counts_unread: false,
            timestamps: false,
            origins: false,
            follows_processes: false,
            follows_at_run: false,
            probes: 0,
            max_stacks: 0,
            shares_statements: true,
            shares_often: false,
            unlike: BTreeSet::new(),
            max_pieces: 1,
            is_linked: false,
        }
    }
}

/// The module under construction, which the [`Builder`](super::Builder)s of its functions share.
pub struct CodegenCx<'c> {
    pub(super) llcx: &'c Context,
    pub(super) machine: TargetMachine,
    pub(super) module: Module<'c>,
    pub(super) debug: DebugInfo<'c>,
    /// Errors of LLVM's back end. Boxed, because LLVM stores the address.
    pub(super) errors: Box<Errors>,
    /// The features of the kernel.
    pub target: TargetFeatures<'c>,
    /// The options of the run.
    pub options: CodegenOptions,
    pub(super) maps: RefCell<BTreeMap<String, (GlobalValue<'c>, MapDef)>>,
    pub(super) data_globals: RefCell<BTreeMap<String, GlobalValue<'c>>>,
    pub(super) string_globals: RefCell<HashMap<Vec<u8>, GlobalValue<'c>>>,
    /// By number of the script's map.
    pub(super) slots: RefCell<BTreeMap<usize, Slots>>,
    /// The tables of maps whose key is the current thread, by number of the script's map.
    pub(super) thread_tables: RefCell<BTreeMap<usize, ThreadTable>>,
    /// The script's maps with two copies, and the indices of their bits.
    pub(super) double_buffered: RefCell<BTreeMap<usize, u32>>,
    /// The limits of the stack maps in use.
    pub(super) stacks: RefCell<BTreeSet<u32>>,
    /// The largest size that a program needs of a slot of the scratch arena.
    pub(super) scratch_size: Cell<u32>,
    pub(super) problems: RefCell<Vec<Problem>>,
    /// The numbers of the elements of [`LIMITS`](super::shared::LIMITS), by name.
    pub(super) limits: RefCell<BTreeMap<String, u32>>,
    /// Calls of helpers that the kernel lacks.
    pub(super) missing_helper_errors: RefCell<Vec<Diagnostic>>,
    pub(super) next_event: Cell<u32>,
    /// A program is not [`is_once`](super::ProgramCx::is_once).
    pub(super) runs_again: Cell<bool>,
    /// A program may run often, or its code may: it is neither [`is_once`](super::ProgramCx::is_once) nor long and rare.
    pub(super) runs_often: Cell<bool>,
    /// Some functions may share their code with others.
    pub(super) shared_functions: Cell<bool>,
}

impl<'c> CodegenCx<'c> {
    pub(super) fn i64t(&self) -> IntType<'c> {
        self.llcx.i64_type()
    }

    pub(super) fn ptrt(&self) -> PointerType<'c> {
        self.llcx.ptr_type(AddressSpace::default())
    }

    /// A constant.
    pub fn int(&self, value: u64) -> IntValue<'c> {
        self.i64t().const_int(value, false)
    }

    /// The null pointer.
    pub fn null(&self) -> PointerValue<'c> {
        self.ptrt().const_null()
    }

    /// The next record's index.
    pub fn new_event(&self) -> u32 {
        self.next_event.replace(self.next_event.get() + 1)
    }

    /// Constant bytes in read-only memory, NUL included by the caller.
    pub fn text(&self, bytes: &[u8]) -> PointerValue<'c> {
        let mut texts = self.string_globals.borrow_mut();
        if let Some(g) = texts.get(bytes) {
            return g.as_pointer_value();
        }
        let value = self.llcx.const_string(bytes, false);
        let g = self.module.add_global(value.get_type(), None, &format!("text_{}", texts.len()));
        g.set_initializer(&value);
        g.set_constant(true);
        g.set_alignment(8);
        g.set_section(Some(".rodata.text"));
        if self.options.is_linked {
            // the linker requires a description of other symbols
            g.set_linkage(Linkage::Internal);
        }
        texts.insert(bytes.to_vec(), g);
        g.as_pointer_value()
    }

    /// Global data in its own section, which libbpf turns into a map. The loader or the reader changes it, so LLVM must
    /// not rely on its initial value.
    pub(super) fn data_global(&self, name: &str, section: &str, size: u32) -> PointerValue<'c> {
        if let Some(g) = self.data_globals.borrow().get(name) {
            return g.as_pointer_value();
        }
        let ty = self.i64t().array_type(size.div_ceil(8));
        // another object may have a variable `state`
        let symbol = if self.options.is_linked { format!("rbt_{name}") } else { name.to_owned() };
        let g = self.module.add_global(ty, None, &symbol);
        g.set_initializer(&ty.const_zero());
        g.set_section(Some(section));
        g.set_alignment(8);
        g.set_externally_initialized(true);
        g.set_linkage(Linkage::External);
        if section.starts_with(".rodata") {
            g.set_constant(true);
        }
        self.debug.describe_data(&symbol, g, size);
        self.data_globals.borrow_mut().insert(name.into(), g);
        g.as_pointer_value()
    }

    /// Describes a function: see [`DebugInfo::describe_function`].
    pub(super) fn describe_function(
        &self,
        function: FunctionValue<'c>,
        name: &str,
        internal: bool,
        params: &[DIType<'c>],
    ) -> DISubprogram<'c> {
        let scope = self.debug.describe_function(function, name, internal, params);
        self.attribute(function, "nounwind");
        scope
    }

    /// Prevents inlining of a function.
    pub(super) fn never_inline(&self, function: FunctionValue<'c>) {
        self.attribute(function, "noinline");
    }

    /// Marks a function of rbt itself, which may be the same in other scripts: few passes suffice for it (`passes.cpp`), and its
    /// code is reused (`subroutines.cpp`). It has no place in the script.
    pub(super) fn mark_as_subroutine(&self, function: FunctionValue<'c>) {
        function.add_attribute(AttributeLoc::Function, self.llcx.create_string_attribute("rbt-subroutine", ""));
    }

    /// It is part of a program that runs once or rarely, or a piece of a long one: few passes are run on it. Unless it is `alone`, the
    /// same holds for functions that it uses.
    pub(super) fn mark_as_rare(&self, function: FunctionValue<'c>, alone: bool) {
        let value = if alone { "alone" } else { "" };
        function.add_attribute(AttributeLoc::Function, self.llcx.create_string_attribute("rbt-rare", value));
    }

    /// It may share its code with others: see `alike.cpp`.
    pub(super) fn mark_as_alike(&self, function: FunctionValue<'c>, shape: u64) {
        self.shared_functions.set(true);
        function.add_attribute(AttributeLoc::Function, self.llcx.create_string_attribute("rbt-alike", &shape.to_string()));
    }

    /// Marks the function of a loop in such a function: see [`Builder::share_within`](super::Builder::share_within).
    pub(super) fn mark_as_inner(&self, function: FunctionValue<'c>, row: u32) {
        function.add_attribute(AttributeLoc::Function, self.llcx.create_string_attribute("rbt-inner", &row.to_string()));
    }

    fn attribute(&self, function: FunctionValue<'c>, name: &str) {
        let kind = Attribute::get_named_enum_kind_id(name);
        function.add_attribute(AttributeLoc::Function, self.llcx.create_enum_attribute(kind, 0));
    }
}
