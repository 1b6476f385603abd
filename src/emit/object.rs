//! The start and the end of a module: its target, and the ELF object made from it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Once;

use inkwell::OptimizationLevel;
use inkwell::context::{AsContextRef, Context};
use inkwell::memory_buffer::MemoryBuffer;
use inkwell::module::{FlagBehavior, Module};
use inkwell::targets::{CodeModel, InitializationConfig, RelocMode, Target, TargetMachine, TargetTriple};
use llvm_sys::LLVMDiagnosticSeverity;
use llvm_sys::core::{
    LLVMContextSetDiagnosticHandler, LLVMContextSetDiscardValueNames, LLVMDisposeMessage, LLVMGetDiagInfoDescription,
    LLVMGetDiagInfoSeverity,
};
use llvm_sys::prelude::{LLVMDiagnosticInfoRef, LLVMMemoryBufferRef, LLVMModuleRef};
use llvm_sys::target_machine::{LLVMCodeGenFileType, LLVMTargetMachineRef};

use super::debug_info::DebugInfo;
use super::known_code::{Callbacks, KnownCode};
use super::shared::{LIMITS, SCRATCH, SCRATCH_SLOTS};
use super::{CodegenCx, CodegenOptions, Problem, TargetFeatures};
use crate::bug;
use crate::diag::{Diagnostic, Source};

/// The number of functions of statements that may remain: the kernel allows 256 functions of all kinds.
const MAX_SHARED: usize = 80;
/// Messages of LLVM's back end. They are collected because its own handler would end the process.
pub(super) type Errors = Vec<String>;

/// LLVM could not generate code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmitError {
    /// Its messages; a place is `script:line:column`, with the script's name from
    /// [`short_names`](crate::diag::short_names).
    pub messages: Vec<String>,
    /// Problems for which the kernel would refuse the object, found before it is loaded.
    pub diagnostics: Vec<Diagnostic>,
    /// The shapes of statements that were expected to share functions and did not: see [`CodegenOptions::unlike`].
    pub unlike: BTreeSet<u64>,
}

impl From<Vec<Diagnostic>> for EmitError {
    fn from(diagnostics: Vec<Diagnostic>) -> Self {
        Self { diagnostics, ..Self::default() }
    }
}

impl From<Vec<String>> for EmitError {
    fn from(messages: Vec<String>) -> Self {
        Self { messages, ..Self::default() }
    }
}

impl EmitError {
    /// A function alone needs more stack than the kernel allows.
    pub fn is_for_stack(&self) -> bool {
        self.messages.iter().any(|m| m.contains("stack limit"))
    }

    /// A function is longer than the range of its branches, which is 16 bits before Linux 6.6 (`codegen.cpp`).
    pub fn is_for_length(&self) -> bool {
        self.messages.iter().any(|m| m.contains("branch range exceeded"))
    }
}

/// A finished object.
pub struct BuiltObject {
    /// The ELF file.
    pub elf: Vec<u8>,
    /// Failures that programs report, in order of their counters.
    pub problems: Vec<Problem>,
    /// Number of kinds of records.
    pub events: u32,
    /// The module before optimization, if requested.
    pub ir: Option<String>,
    /// The module after optimization, if requested.
    pub optimized: Option<String>,
    /// BPF assembly.
    pub assembly: Option<String>,
}

/// What to keep besides the object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dumps {
    /// LLVM IR before optimization.
    pub ir: bool,
    /// LLVM IR after.
    pub optimized: bool,
    /// BPF assembly.
    pub assembly: bool,
    /// Run LLVM's verifier even if nothing is dumped.
    pub verify: bool,
}

/// The passes that a module gets, as `passes.cpp` numbers them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
enum Passes {
    /// Those of `default<O2>`.
    Full,
    /// Only those that do not extend live ranges: no hoisting, no reuse of values computed elsewhere.
    Lean,
    /// A few: all programs run once, and further passes would take longer than they save.
    Once,
}

extern "C" fn collect(info: LLVMDiagnosticInfoRef, errors: *mut c_void) {
    // SAFETY: LLVM passes the pointer given with the handler, which outlives the context's use
    unsafe {
        if LLVMGetDiagInfoSeverity(info) != LLVMDiagnosticSeverity::LLVMDSError {
            return;
        }
        let text = LLVMGetDiagInfoDescription(info);
        let message = CStr::from_ptr(text).to_string_lossy().into_owned();
        LLVMDisposeMessage(text);
        (*errors.cast::<Errors>()).push(message);
    }
}

/// Adds the shape in a mark: see [`CodegenCx::mark_as_alike`].
extern "C" fn give_up(unlike: *mut c_void, mark: *const c_char, len: usize) {
    // SAFETY: the pointer given with this function, and a text that lives during the call
    let (unlike, mark) = unsafe { (&mut *unlike.cast::<BTreeSet<u64>>(), std::slice::from_raw_parts(mark.cast::<u8>(), len)) };
    unlike.extend(std::str::from_utf8(mark).ok().and_then(|mark| mark.parse::<u64>().ok()));
}

unsafe extern "C" {
    /// Runs LLVM's passes over a module. `rarely`: as for `rbt_generate`. `known` may be null. In `passes.cpp`.
    fn rbt_optimize(module: LLVMModuleRef, machine: LLVMTargetMachineRef, passes: Passes, rarely: bool, known: *const Callbacks);
    /// Generates an object or assembly; null if there is none. Loops' back edges are jumps. `rarely`: no code runs often.
    /// `known`: as for the passes. In `codegen.cpp`.
    fn rbt_generate(
        module: LLVMModuleRef,
        machine: LLVMTargetMachineRef,
        kind: LLVMCodeGenFileType,
        rarely: bool,
        known: *const Callbacks,
    ) -> LLVMMemoryBufferRef;
    /// Lets functions that are marked as alike share their code where it is. If more than `max` remain, `give_up` gets the marks of
    /// those that should not be functions, and the result is false. In `alike.cpp`.
    fn rbt_share_alike(
        module: LLVMModuleRef,
        max: usize,
        give_up: extern "C" fn(*mut c_void, *const c_char, usize),
        data: *mut c_void,
    ) -> bool;
    /// Runs the constructors of LLVM's global objects, unless they ran before `main`. In `constructors.cpp`.
    fn rbt_construct_llvm();
}

/// A context for a module. LLVM is initialized here, not when rbt starts. Only dumps need the names of values.
pub fn new_context(dumps: Dumps) -> Context {
    static CONSTRUCTED: Once = Once::new();
    // SAFETY: called once, and every other use of LLVM needs a context
    CONSTRUCTED.call_once(|| unsafe { rbt_construct_llvm() });
    let context = Context::create();
    let is_dumped = dumps.ir || dumps.optimized || dumps.assembly;
    // SAFETY: the context is valid
    unsafe { LLVMContextSetDiscardValueNames((&context).as_ctx_ref(), i32::from(!is_dumped)) };
    context
}

/// LLVM's back end for this processor.
fn target_machine(cpu: &str) -> TargetMachine {
    Target::initialize_bpf(&InitializationConfig { asm_parser: false, asm_printer: true, ..Default::default() });
    let triple = TargetTriple::create("bpfel");
    let machine = Target::from_triple(&triple).ok().and_then(|target| {
        target.create_target_machine(&triple, cpu, "", OptimizationLevel::Default, RelocMode::Default, CodeModel::Default)
    });
    match machine {
        Some(machine) => machine,
        None => bug!("LLVM was built without its BPF target"),
    }
}

impl<'c> CodegenCx<'c> {
    /// A module for a script, whose own source is the first.
    pub fn new(llcx: &'c Context, sources: &[Source], target: TargetFeatures<'c>, options: CodegenOptions) -> Self {
        let mut errors: Box<Errors> = Box::default();
        // SAFETY: the box lives as long as this value, which the context outlives; nothing is compiled after that
        unsafe {
            LLVMContextSetDiagnosticHandler(llcx.as_ctx_ref(), Some(collect), std::ptr::from_mut::<Errors>(&mut *errors).cast());
        }
        let machine = target_machine(if target.v4 { "v4" } else { "v3" });
        let module: Module<'c> = llcx.create_module("rbt");
        module.set_triple(&machine.get_triple());
        module.set_data_layout(&machine.get_target_data().get_data_layout());
        let three = llcx.i32_type().const_int(3, false);
        module.add_basic_value_flag("Debug Info Version", FlagBehavior::Warning, three);
        // BTF without DWARF: see MCObjectFileInfo and DwarfDebug, which emit no DWARF when CodeView is requested
        module.add_basic_value_flag("CodeView", FlagBehavior::Warning, llcx.i32_type().const_int(1, false));
        let debug = DebugInfo::new(llcx, &module, sources);
        let text = llcx.const_string(options.license.as_bytes(), true);
        let license = module.add_global(text.get_type(), None, "LICENSE");
        license.set_initializer(&text);
        license.set_section(Some("license"));
        if options.is_linked {
            debug.describe_text("LICENSE", license, options.license.len() as u64 + 1);
        }
        Self {
            llcx,
            machine,
            module,
            debug,
            errors,
            target,
            options,
            maps: RefCell::default(),
            data_globals: RefCell::default(),
            string_globals: RefCell::default(),
            slots: RefCell::default(),
            thread_tables: RefCell::default(),
            double_buffered: RefCell::default(),
            stacks: RefCell::default(),
            scratch_size: Cell::default(),
            problems: RefCell::default(),
            limits: RefCell::default(),
            missing_helper_errors: RefCell::default(),
            next_event: Cell::default(),
            runs_again: Cell::default(),
            runs_often: Cell::default(),
            shared_functions: Cell::default(),
        }
    }

    /// Finishes the module: optimizes it and creates the object. What is in `known` is not compiled again, and does not occur in
    /// dumps.
    pub fn build(mut self, dumps: Dumps, mut known: Option<&mut KnownCode>) -> Result<BuiltObject, EmitError> {
        let lacking = self.missing_helper_errors.take();
        if !lacking.is_empty() {
            return Err(lacking.into());
        }
        let mut maps = self.maps.take();
        if let Some((_, def)) = maps.get_mut(SCRATCH) {
            def.value_size = self.scratch_size.get();
            def.max_entries = SCRATCH_SLOTS;
        }
        if let Some((_, def)) = maps.get_mut(LIMITS) {
            def.max_entries = self.limits.borrow().len() as u32;
        }
        for (name, (global, def)) in &maps {
            self.debug.describe_map(name, *global, *def);
        }
        self.debug.finalize();
        if self.shared_functions.get() {
            let mut unlike = BTreeSet::new();
            let data = std::ptr::from_mut::<BTreeSet<u64>>(&mut unlike).cast();
            // SAFETY: the functions have only calls as users, the builders are gone, and the set outlives the call
            if !unsafe { rbt_share_alike(self.module.as_mut_ptr(), MAX_SHARED, give_up, data) } {
                return Err(EmitError { unlike, ..EmitError::default() });
            }
        }
        let text = |m: &Module| m.print_to_string().to_string();
        let ir = dumps.ir.then(|| text(&self.module));
        // a malformed module makes the back end abort, which cannot be prevented
        if let Err(e) = self.module.verify() {
            return Err(vec![e.to_string()].into());
        }
        let passes = match (self.options.stack_limits.avoid_value_reuse, self.runs_again.get()) {
            (true, _) => Passes::Lean,
            (false, true) => Passes::Full,
            (false, false) => Passes::Once,
        };
        let rarely = !self.options.stack_limits.avoid_value_reuse && !self.runs_often.get();
        let key = known
            .as_deref()
            .filter(|known| known.has_modules() && dumps == Dumps::default())
            .map(|_| (self.module.write_bitcode_to_memory().as_slice().to_vec(), format!("{passes:?} {rarely} {}", self.target.v4)));
        if let Some(result) = key.as_ref().and_then(|key| known.as_deref()?.module(key)) {
            let elf = result.clone()?;
            return Ok(BuiltObject { elf, ..self.built_object() });
        }
        let callbacks = known.as_deref_mut().map(|known| {
            known.start();
            known.callbacks()
        });
        let reused: *const Callbacks = callbacks.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the module is well-formed, all live as long as this value, and nothing else uses the known code
        unsafe { rbt_optimize(self.module.as_mut_ptr(), self.machine.as_mut_ptr(), passes, rarely, reused) };
        let optimized = dumps.optimized.then(|| text(&self.module));
        let generate = |kind| {
            // SAFETY: as above, and the function returns a buffer of its own
            let buffer = unsafe { rbt_generate(self.module.as_mut_ptr(), self.machine.as_mut_ptr(), kind, rarely, reused) };
            // SAFETY: not null, and nothing else has it
            (!buffer.is_null()).then(|| unsafe { MemoryBuffer::new(buffer) })
        };
        let assembly = match dumps.assembly {
            true => generate(LLVMCodeGenFileType::LLVMAssemblyFile).map(|b| String::from_utf8_lossy(b.as_slice()).into_owned()),
            false => None,
        };
        let object = generate(LLVMCodeGenFileType::LLVMObjectFile).map(|buffer| buffer.as_slice().to_vec());
        let result = match object {
            _ if !self.errors.is_empty() => Err(std::mem::take(&mut *self.errors)),
            Some(elf) => Ok(elf),
            None => bug!("LLVM's BPF target emits no objects"),
        };
        if let Some(known) = known {
            if result.is_ok() {
                known.finish();
            }
            if let Some(key) = key {
                known.keep_module(key, result.clone());
            }
        }
        Ok(BuiltObject { elf: result?, ir, optimized, assembly, ..self.built_object() })
    }

    /// What the object is described by, without the object.
    fn built_object(&self) -> BuiltObject {
        let (problems, events) = (self.problems.take(), self.next_event.get());
        BuiltObject { elf: Vec::new(), problems, events, ir: None, optimized: None, assembly: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        /// A name in the lists of passes of `codegen.cpp` that no pass of the back end has; null if there is none.
        fn rbt_unknown_pass(machine: LLVMTargetMachineRef) -> *const std::ffi::c_char;
    }

    /// A pass with another name would not be left out.
    #[test]
    fn passes_to_leave_out_exist() {
        let _context = new_context(Dumps::default());
        for cpu in ["v3", "v4"] {
            let machine = target_machine(cpu);
            // SAFETY: the machine is valid, and the text is a constant
            let unknown = unsafe { rbt_unknown_pass(machine.as_mut_ptr()).as_ref().map(|name| CStr::from_ptr(name)) };
            assert_eq!(unknown, None);
        }
    }
}
