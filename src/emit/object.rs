//! The module's frame: target, debug information that leads back to the script, BTF of the maps, and the ELF object.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_void};

use inkwell::OptimizationLevel;
use inkwell::context::{AsContextRef, Context};
use inkwell::debug_info::{AsDIScope, DIFile, DIScope, DISubprogram, DIType, DWARFEmissionKind, DWARFSourceLanguage, DebugInfoBuilder};
use inkwell::memory_buffer::MemoryBuffer;
use inkwell::module::{FlagBehavior, Linkage, Module};
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{CodeModel, FileType, InitializationConfig, RelocMode, Target, TargetMachine, TargetTriple};
use inkwell::values::{AsValueRef, FunctionValue, GlobalValue, PointerValue};
use inkwell::{AddressSpace, GlobalVisibility, attributes::AttributeLoc};
use llvm_sys::LLVMDiagnosticSeverity;
use llvm_sys::core::{
    LLVMContextSetDiagnosticHandler, LLVMDisposeMessage, LLVMGetDiagInfoDescription, LLVMGetDiagInfoSeverity, LLVMValueAsMetadata,
};
use llvm_sys::debuginfo::{
    LLVMDIBuilderCreateLexicalBlockFile, LLVMDIBuilderCreatePointerType, LLVMDIBuilderCreateReplaceableCompositeType,
    LLVMMetadataReplaceAllUsesWith,
};
use llvm_sys::prelude::LLVMDiagnosticInfoRef;

use super::shared::{SCRATCH, SCRATCH_SLOTS};
use super::{Emit, MapDef, Problem};
use crate::bug;
use crate::diag::{Diagnostic, Source, short_names};

/// Messages of LLVM's back end, collected: its own handler would end the process.
pub(super) type Errors = Vec<String>;

/// LLVM could not make code of what it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmitError {
    /// Its messages; where they name a place, it is `script:line:column`, the script by its [`short_names`].
    pub messages: Vec<String>,
    /// What the kernel would refuse, found here before it is asked.
    pub told: Vec<Diagnostic>,
}

impl From<Vec<Diagnostic>> for EmitError {
    fn from(told: Vec<Diagnostic>) -> Self {
        Self { messages: Vec::new(), told }
    }
}

impl From<Vec<String>> for EmitError {
    fn from(messages: Vec<String>) -> Self {
        Self { messages, told: Vec::new() }
    }
}

impl EmitError {
    /// A function alone takes more stack than there is.
    pub fn is_for_stack(&self) -> bool {
        self.messages.iter().any(|m| m.contains("stack limit"))
    }
}

/// A finished object.
pub struct Built {
    /// The ELF file.
    pub elf: Vec<u8>,
    /// Failures that programs report, in order of their counters.
    pub problems: Vec<Problem>,
    /// How many kinds of record there are.
    pub events: u32,
    /// Module before optimization, when asked for.
    pub ir: Option<String>,
    /// After.
    pub optimized: Option<String>,
    /// BPF assembly.
    pub assembly: Option<String>,
}

/// What to keep besides the object.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dumps {
    /// LLVM IR before optimization.
    pub ir: bool,
    /// LLVM IR after.
    pub optimized: bool,
    /// BPF assembly.
    pub assembly: bool,
    /// Run LLVM's verifier even where nothing is dumped.
    pub verify: bool,
}

extern "C" fn collect(info: LLVMDiagnosticInfoRef, errors: *mut c_void) {
    // SAFETY: LLVM hands back the pointer given with the handler, which outlives the context's use
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

/// Of a longer script the object has the lines' numbers only, not their text.
const MOST_LINES: usize = 3000;

/// The file of the debug information, with the script's text inside: otherwise LLVM opens a file of that name to print
/// source lines. LLVM 19's C API cannot say this, its IR can.
fn source_file<'c>(cx: &'c Context, name: &str, source: &Source) -> Option<DIFile<'c>> {
    let escape = |text: &str| {
        let mut out = String::with_capacity(text.len() + 16);
        for b in text.bytes() {
            match b {
                b' '..=b'~' if b != b'"' && b != b'\\' => out.push(char::from(b)),
                _ => out.push_str(&format!("\\{b:02X}")),
            }
        }
        out
    };
    // LLVM's table of strings is searched from its start for each line (BTFStringTable::addString)
    let text = if source.text.lines().nth(MOST_LINES).is_some() { "\n" } else { source.text.as_str() };
    let ir = format!("!f = !{{!0}}\n!0 = !DIFile(filename: \"{}\", directory: \"\", source: \"{}\")\n", escape(name), escape(text));
    let mut bytes = ir.into_bytes();
    bytes.push(0);
    let buffer = MemoryBuffer::create_from_memory_range_copy(&bytes, "source");
    let module = cx.create_module_from_ir(buffer).ok()?;
    let node = *module.get_global_metadata("f").first()?;
    // SAFETY: the node belongs to the context, and DIFile is a transparent wrapper of a metadata reference (inkwell 0.11)
    unsafe {
        let md = LLVMValueAsMetadata(node.as_value_ref());
        Some(std::mem::transmute::<llvm_sys::prelude::LLVMMetadataRef, DIFile<'c>>(md))
    }
}

/// A scope's part that is in another file: what was imported.
fn in_file<'c>(di: &DebugInfoBuilder<'c>, scope: DIScope<'c>, file: DIFile<'c>) -> DIScope<'c> {
    // SAFETY: both belong to the builder's module, and DIScope is a transparent wrapper of a metadata reference (inkwell 0.11)
    unsafe {
        let md = LLVMDIBuilderCreateLexicalBlockFile(di.as_mut_ptr(), scope.as_mut_ptr(), file.as_mut_ptr(), 0);
        std::mem::transmute::<llvm_sys::prelude::LLVMMetadataRef, DIScope<'c>>(md)
    }
}

/// Passes that make no value live longer than it did: no hoisting, no reuse of what was computed elsewhere.
const LEAN: &str = "function(sroa,simplifycfg,instcombine<no-verify-fixpoint>,simplifycfg,adce),globaldce";

impl<'c> Emit<'c> {
    /// A module for a script, whose own source is the first. `v4`: the kernel takes instructions of BPF's CPU version 4.
    pub fn new(cx: &'c Context, sources: &[Source], v4: bool, license: &str) -> Self {
        Target::initialize_bpf(&InitializationConfig { asm_parser: false, asm_printer: true, ..Default::default() });
        let mut errors: Box<Errors> = Box::default();
        // SAFETY: the box lives as long as this Emit, which the context outlives; after it nothing is compiled
        unsafe {
            LLVMContextSetDiagnosticHandler(cx.as_ctx_ref(), Some(collect), std::ptr::from_mut::<Errors>(&mut *errors).cast());
        }
        let triple = TargetTriple::create("bpfel");
        let machine = Target::from_triple(&triple).ok().and_then(|t| {
            t.create_target_machine(
                &triple,
                if v4 { "v4" } else { "v3" },
                "",
                OptimizationLevel::Default,
                RelocMode::Default,
                CodeModel::Default,
            )
        });
        let machine: TargetMachine = match machine {
            Some(m) => m,
            None => bug!("LLVM was built without its BPF target"),
        };
        let module: Module<'c> = cx.create_module("rbt");
        module.set_triple(&triple);
        module.set_data_layout(&machine.get_target_data().get_data_layout());
        let three = cx.i32_type().const_int(3, false);
        module.add_basic_value_flag("Debug Info Version", FlagBehavior::Warning, three);
        // BTF without DWARF: see MCObjectFileInfo and DwarfDebug, which stay away when CodeView is asked for
        module.add_basic_value_flag("CodeView", FlagBehavior::Warning, cx.i32_type().const_int(1, false));
        let (di, unit) = module.create_debug_info_builder(
            true,
            DWARFSourceLanguage::C,
            sources.first().map_or(crate::diag::PROGRAM_NAME, |s| &s.name),
            "",
            "rbt",
            true,
            "",
            0,
            "",
            DWARFEmissionKind::Full,
            0,
            false,
            false,
            "",
            "",
        );
        let files = sources
            .iter()
            .zip(short_names(sources))
            .map(|(s, name)| source_file(cx, &name, s).unwrap_or_else(|| unit.get_file()))
            .collect();
        let text = cx.const_string(license.as_bytes(), true);
        let license = module.add_global(text.get_type(), None, "LICENSE");
        license.set_initializer(&text);
        license.set_section(Some("license"));
        Self {
            cx,
            machine,
            b: cx.create_builder(),
            module,
            di,
            unit,
            files,
            errors,
            maps: BTreeMap::new(),
            data: BTreeMap::new(),
            slots: BTreeMap::new(),
            doubles: BTreeMap::new(),
            overlaps: false,
            apart: false,
            announces: false,
            texts: HashMap::new(),
            fun: None,
            scratch_size: 0,
            v4,
            fetches: true,
            checks_recursion: false,
            lacks: Vec::new(),
            lacking: Vec::new(),
            allocates: true,
            loops: true,
            may_sleep: true,
            namespace: None,
            outlining: false,
            on_stack_limit: 32,
            room: super::Room { temporaries: 256, lean: false },
            pad: true,
            space: crate::types::Space::Unknown,
            at_entry: false,
            deep: false,
            trusts: false,
            shared_stacks: true,
            warning_level: 1,
            counts_unread: false,
            follows: false,
            by_hand: false,
            long: false,
            problems: Vec::new(),
            next_event: 0,
            probes: 0,
            probe: 0,
            max_stacks: 0,
            stacks: Default::default(),
            span: Default::default(),
        }
    }

    /// What is emitted from here on comes from this line and column, from 1, of the source of this index.
    pub fn at(&mut self, source: u16, line: u32, column: u32) {
        let Some(f) = &mut self.fun else { return };
        let own = f.scope.as_debug_info_scope();
        let scope = match self.files.get(usize::from(source)) {
            Some(file) if source > 0 => *f.scopes.entry(source).or_insert_with(|| in_file(&self.di, own, *file)),
            _ => own,
        };
        let here = self.di.create_debug_location(self.cx, line, column, scope, None);
        self.b.set_current_debug_location(here);
    }

    /// The script's own file.
    pub(super) fn file(&self) -> DIFile<'c> {
        self.files.first().copied().unwrap_or_else(|| self.unit.get_file())
    }

    /// Says what a function is: one of such parameters, that gives a number. The kernel does not ask for the parameters of programs and of functions
    /// that it looks at with their callers, so they are left out.
    pub(super) fn describe_function(
        &mut self,
        function: FunctionValue<'c>,
        name: &str,
        internal: bool,
        params: &[DIType<'c>],
    ) -> DISubprogram<'c> {
        let long = self.long();

        let ty = self.di.create_subroutine_type(self.file(), Some(long), params, 0);
        let scope = self.di.create_function(self.unit.as_debug_info_scope(), name, None, self.file(), 1, ty, internal, true, 1, 0, true);
        for (i, ty) in (0..).zip(params) {
            // the kernel wants names for them in BTF
            let (name, file) = (format!("arg{i}"), self.file());
            self.di.create_parameter_variable(scope.as_debug_info_scope(), &name, i + 1, file, 1, *ty, true, 0);
        }
        function.set_subprogram(scope);
        self.attribute(function, "nounwind");
        scope
    }

    /// The function stays one.
    pub(super) fn never_inline(&self, function: FunctionValue<'c>) {
        self.attribute(function, "noinline");
    }

    fn attribute(&self, function: FunctionValue<'c>, name: &str) {
        let kind = inkwell::attributes::Attribute::get_named_enum_kind_id(name);
        function.add_attribute(AttributeLoc::Function, self.cx.create_enum_attribute(kind, 0));
    }

    /// `void *`: a pointer to no type.
    pub(super) fn void_pointer(&self) -> DIType<'c> {
        // SAFETY: no pointee means void; the name has no bytes; DIType as below
        unsafe {
            let md = LLVMDIBuilderCreatePointerType(self.di.as_mut_ptr(), std::ptr::null_mut(), 64, 64, 0, c"".as_ptr(), 0);
            std::mem::transmute::<llvm_sys::prelude::LLVMMetadataRef, DIType<'c>>(md)
        }
    }

    /// A type that is decided later: see [`Emit::decide`].
    pub(super) fn undecided(&self) -> DIType<'c> {
        const DW_TAG_STRUCTURE_TYPE: u32 = 0x13;
        let (name, file) = ("undecided", self.file());
        // SAFETY: the strings are read with their lengths; DIType is a transparent wrapper of a metadata reference (inkwell 0.11)
        unsafe {
            let md = LLVMDIBuilderCreateReplaceableCompositeType(
                self.di.as_mut_ptr(),
                DW_TAG_STRUCTURE_TYPE,
                name.as_ptr().cast(),
                name.len(),
                self.unit.as_debug_info_scope().as_mut_ptr(),
                file.as_mut_ptr(),
                1,
                0,
                64,
                64,
                0,
                name.as_ptr().cast(),
                0,
            );
            std::mem::transmute::<llvm_sys::prelude::LLVMMetadataRef, DIType<'c>>(md)
        }
    }

    /// Decides it: a number, or a pointer to a struct of this name.
    pub(super) fn decide(&self, undecided: DIType<'c>, pointer_to: Option<&str>) {
        let ty = match pointer_to {
            Some(name) => {
                let scope = self.unit.as_debug_info_scope();
                let ty = self.di.create_struct_type(scope, name, self.file(), 0, 0, 8, 0, None, &[], 0, None, "").as_type();
                self.di.create_pointer_type("", ty, 64, 64, AddressSpace::default()).as_type()
            }
            None => self.long(),
        };
        // SAFETY: the first is a temporary node that nothing else replaces, and is gone after this
        unsafe { LLVMMetadataReplaceAllUsesWith(undecided.as_mut_ptr(), ty.as_mut_ptr()) }
    }

    /// libbpf tells the verifier to look at a hidden function with its callers.
    pub(super) fn hide(&self, function: FunctionValue<'c>) {
        function.as_global_value().set_visibility(GlobalVisibility::Hidden);
    }

    fn basic(&self, name: &str, bits: u64) -> DIType<'c> {
        const DW_ATE_SIGNED: u32 = 5;
        match self.di.create_basic_type(name, bits, DW_ATE_SIGNED, 0) {
            Ok(t) => t.as_type(),
            Err(e) => bug!("a basic type: {e}"),
        }
    }

    /// A pointer to so many bytes.
    pub(super) fn bytes_at(&self, size: u32) -> DIType<'c> {
        let of =
            self.di.create_array_type(self.basic("char", 8), u64::from(size) * 8, 8, std::slice::from_ref(&(0..i64::from(size)))).as_type();
        self.di.create_pointer_type("", of, 64, 64, AddressSpace::default()).as_type()
    }

    pub(super) fn long(&self) -> DIType<'c> {
        self.basic("long", 64)
    }

    /// Global data in a section of its own, which libbpf makes a map of: the loader or the reader changes it, so LLVM must
    /// not believe its first value.
    pub(super) fn data_global(&mut self, name: &str, section: &str, size: u32) -> PointerValue<'c> {
        if let Some(g) = self.data.get(name) {
            return g.as_pointer_value();
        }
        let ty = self.i64t().array_type(size.div_ceil(8));
        let g = self.module.add_global(ty, None, name);
        g.set_initializer(&ty.const_zero());
        g.set_section(Some(section));
        g.set_alignment(8);
        g.set_externally_initialized(true);
        g.set_linkage(Linkage::External);
        if section.starts_with(".rodata") {
            g.set_constant(true);
        }
        // libbpf lets only what BTF describes be mapped
        let words = i64::from(size.div_ceil(8));
        let shape = self.di.create_array_type(self.long(), words as u64 * 64, 64, std::slice::from_ref(&(0..words))).as_type();
        let scope = self.unit.as_debug_info_scope();
        let var = self.di.create_global_variable_expression(scope, name, "", self.file(), 0, shape, false, None, None, 64);
        g.set_metadata(var.as_metadata_value(self.cx), 0);
        self.data.insert(name.into(), g);
        g.as_pointer_value()
    }

    /// A map's definition as libbpf reads it: an anonymous struct whose members are pointers to arrays of as many
    /// elements as the number says (`__uint` of libbpf's `bpf_helpers.h`).
    fn describe_map(&self, name: &str, global: GlobalValue<'c>, def: MapDef) {
        let int = self.basic("int", 32);
        let scope = self.unit.as_debug_info_scope();
        let number = |n: u32| {
            let array = self.di.create_array_type(int, u64::from(n) * 32, 32, std::slice::from_ref(&(0..i64::from(n)))).as_type();
            self.di.create_pointer_type("", array, 64, 64, AddressSpace::default()).as_type()
        };
        let ring = def.key_size == 0;
        let all = [
            ("type", def.kind as u32, true),
            ("key_size", def.key_size, !ring),
            ("value_size", def.value_size, !ring),
            ("max_entries", def.max_entries, true),
            ("map_flags", def.flags, def.flags != 0),
        ];
        let members: Vec<DIType> = all
            .iter()
            .filter(|(_, _, wanted)| *wanted)
            .enumerate()
            .map(|(i, (name, n, _))| {
                self.di.create_member_type(scope, name, self.file(), 0, 64, 64, i as u64 * 64, 0, number(*n)).as_type()
            })
            .collect();
        let bits = members.len() as u64 * 64;
        let ty = self.di.create_struct_type(scope, "", self.file(), 0, bits, 64, 0, None, &members, 0, None, "").as_type();
        let var = self.di.create_global_variable_expression(scope, name, "", self.file(), 0, ty, false, None, None, 64);
        global.set_metadata(var.as_metadata_value(self.cx), 0);
    }

    /// Finishes the module: optimizes it and makes the object.
    pub fn build(mut self, dumps: Dumps) -> Result<Built, EmitError> {
        if !self.lacking.is_empty() {
            return Err(self.lacking.into());
        }
        if let Some((_, def)) = self.maps.get_mut(SCRATCH) {
            def.value_size = self.scratch_size;
            def.max_entries = SCRATCH_SLOTS;
        }
        for (name, (global, def)) in &self.maps {
            self.describe_map(name, *global, *def);
        }
        self.di.finalize();
        let text = |m: &Module| m.print_to_string().to_string();
        let ir = dumps.ir.then(|| text(&self.module));
        // a malformed module makes the back end abort, which no handler can stop
        if let Err(e) = self.module.verify() {
            return Err(vec![e.to_string()].into());
        }
        let passes = if self.room.lean { LEAN } else { "default<O2>" };
        if let Err(e) = self.module.run_passes(passes, &self.machine, PassBuilderOptions::create()) {
            return Err(vec![e.to_string()].into());
        }
        let optimized = dumps.optimized.then(|| text(&self.module));
        let write = |kind| self.machine.write_to_memory_buffer(&self.module, kind);
        let assembly = match dumps.assembly {
            true => write(FileType::Assembly).ok().map(|b| String::from_utf8_lossy(b.as_slice()).into_owned()),
            false => None,
        };
        let object = write(FileType::Object);
        if !self.errors.is_empty() {
            return Err(std::mem::take(&mut *self.errors).into());
        }
        match object {
            Ok(buffer) => {
                Ok(Built { elf: buffer.as_slice().to_vec(), problems: self.problems, events: self.next_event, ir, optimized, assembly })
            }
            Err(e) => Err(vec![e.to_string()].into()),
        }
    }
}
