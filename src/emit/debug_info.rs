//! Debug information: source positions in the script, and the types of functions, data and maps for the kernel and libbpf (LLVM
//! converts them to BTF).

use inkwell::AddressSpace;
use inkwell::context::Context;
use inkwell::debug_info::{
    AsDIScope, DICompileUnit, DIFile, DILocation, DIScope, DISubprogram, DIType, DWARFEmissionKind, DWARFSourceLanguage, DebugInfoBuilder,
};
use inkwell::module::Module;
use inkwell::values::{FunctionValue, GlobalValue};
use llvm_sys::debuginfo::{
    LLVMDIBuilderCreateLexicalBlockFile, LLVMDIBuilderCreatePointerType, LLVMDIBuilderCreateReplaceableCompositeType,
    LLVMMetadataReplaceAllUsesWith,
};
use llvm_sys::prelude::{LLVMContextRef, LLVMMetadataRef};

use super::builder::FunctionCx;
use super::{KernelType, MapDef};
use crate::bug;
use crate::diag::{Source, short_names};
use crate::linked::{CType, Signature};

/// For a longer script, the object contains only the line numbers, not the text.
const MAX_LINES: usize = 1000;

unsafe extern "C" {
    /// Creates a file with its text. In `debug_info.cpp`.
    fn rbt_source_file(context: LLVMContextRef, name: *const u8, name_size: usize, text: *const u8, text_size: usize) -> LLVMMetadataRef;
}

/// The file of the debug information, with the text of the script: otherwise LLVM opens a file of that name to print source
/// lines.
fn source_file<'c>(cx: &'c Context, name: &str, source: &Source) -> DIFile<'c> {
    // LLVM searches its string table from the start for each line (BTFStringTable::addString).
    let text = if source.text.lines().nth(MAX_LINES).is_some() { "\n" } else { source.text.as_str() };
    // SAFETY: LLVM copies both strings, and DIFile is a transparent wrapper of a metadata reference (inkwell 0.11)
    unsafe {
        let md = rbt_source_file(cx.raw(), name.as_ptr(), name.len(), text.as_ptr(), text.len());
        std::mem::transmute::<LLVMMetadataRef, DIFile<'c>>(md)
    }
}

/// The scope of code in another file, which was imported.
fn in_file<'c>(di: &DebugInfoBuilder<'c>, scope: DIScope<'c>, file: DIFile<'c>) -> DIScope<'c> {
    // SAFETY: both belong to the builder's module, and DIScope is a transparent wrapper of a metadata reference (inkwell 0.11)
    unsafe {
        let md = LLVMDIBuilderCreateLexicalBlockFile(di.as_mut_ptr(), scope.as_mut_ptr(), file.as_mut_ptr(), 0);
        std::mem::transmute::<LLVMMetadataRef, DIScope<'c>>(md)
    }
}

/// The module's debug information.
pub(super) struct DebugInfo<'c> {
    cx: &'c Context,
    di: DebugInfoBuilder<'c>,
    unit: DICompileUnit<'c>,
    /// The files of the script's sources.
    files: Vec<DIFile<'c>>,
}

impl<'c> DebugInfo<'c> {
    /// Creates the debug information of a module with these sources.
    pub fn new(cx: &'c Context, module: &Module<'c>, sources: &[Source]) -> Self {
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
        let files = sources.iter().zip(short_names(sources)).map(|(s, name)| source_file(cx, &name, s)).collect();
        Self { cx, di, unit, files }
    }

    /// Completes the debug information.
    pub fn finalize(&self) {
        self.di.finalize();
    }

    /// The position of a line and column, from 1, of the source with this index, within a function.
    pub fn location(&self, function: &mut FunctionCx<'c>, source: u16, line: u32, column: u32) -> DILocation<'c> {
        let function_scope = function.scope.as_debug_info_scope();
        let scope = match self.files.get(usize::from(source)) {
            Some(file) if source > 0 => *function.scopes.entry(source).or_insert_with(|| in_file(&self.di, function_scope, *file)),
            _ => function_scope,
        };
        self.di.create_debug_location(self.cx, line, column, scope, None)
    }

    /// The first line of a function.
    pub fn start_of(&self, function: DISubprogram<'c>) -> DILocation<'c> {
        self.di.create_debug_location(self.cx, 1, 1, function.as_debug_info_scope(), None)
    }

    /// The file of the script itself.
    fn file(&self) -> DIFile<'c> {
        self.files.first().copied().unwrap_or_else(|| self.unit.get_file())
    }

    /// Describes a function with these parameters and a numeric result. The kernel does not need the parameters of programs and
    /// of functions that it checks with their callers.
    pub fn describe_function(&self, function: FunctionValue<'c>, name: &str, internal: bool, params: &[DIType<'c>]) -> DISubprogram<'c> {
        let long = self.long();
        let ty = self.di.create_subroutine_type(self.file(), Some(long), params, 0);
        let scope = self.di.create_function(self.unit.as_debug_info_scope(), name, None, self.file(), 1, ty, internal, true, 1, 0, true);
        for (i, ty) in (0..).zip(params) {
            // The kernel requires names for them in BTF.
            let (name, file) = (format!("arg{i}"), self.file());
            self.di.create_parameter_variable(scope.as_debug_info_scope(), &name, i + 1, file, 1, *ty, true, 0);
        }
        function.set_subprogram(scope);
        scope
    }

    /// Describes a function of the kernel.
    pub fn describe_kernel_function(&self, function: FunctionValue<'c>, name: &str, result: KernelType, params: &[KernelType]) {
        let described: Vec<DIType> = params.iter().filter_map(|t| self.kernel_type(*t)).collect();
        let ty = self.di.create_subroutine_type(self.file(), self.kernel_type(result), &described, 0);
        let unit = self.unit.as_debug_info_scope();
        let scope = self.di.create_function(unit, name, None, self.file(), 1, ty, false, false, 1, 0, true);
        function.set_subprogram(scope);
    }

    fn kernel_type(&self, ty: KernelType) -> Option<DIType<'c>> {
        let name = match ty {
            KernelType::Nothing => return None,
            KernelType::Number => return Some(self.long()),
            KernelType::Anything => return Some(self.void_pointer()),
            KernelType::Struct(name) => name,
        };
        // The name suffices: libbpf and the kernel check nothing else.
        let scope = self.unit.as_debug_info_scope();
        let target = self.di.create_struct_type(scope, name, self.file(), 1, 0, 8, 0, None, &[], 0, None, "");
        Some(self.di.create_pointer_type("", target.as_type(), 64, 64, AddressSpace::default()).as_type())
    }

    /// Describes a function of an imported object, in the form that the linker compares with that object's description.
    pub fn describe_foreign_function(&self, function: FunctionValue<'c>, name: &str, signature: &Signature) {
        let params: Vec<DIType> = signature.params.iter().filter_map(|(_, ty)| self.c_type(ty)).collect();
        let ty = self.di.create_subroutine_type(self.file(), self.c_type(&signature.result), &params, 0);
        let unit = self.unit.as_debug_info_scope();
        let scope = self.di.create_function(unit, name, None, self.file(), 1, ty, false, false, 1, 0, true);
        function.set_subprogram(scope);
    }

    /// A type in C; none for `void`. Structures have only their names, by which the linker compares them.
    fn c_type(&self, ty: &CType) -> Option<DIType<'c>> {
        let (scope, file) = (self.unit.as_debug_info_scope(), self.file());
        Some(match ty {
            CType::Void => return None,
            CType::Bool => self.basic("char", 8),
            CType::Int(int) => self.basic("int", u64::from(int.bytes) * 8),
            CType::Enum(name, int) => {
                let bits = u64::from(int.bytes) * 8;
                self.di.create_enumeration_type(scope, name, file, 1, bits, 8, &[], self.basic("int", bits)).as_type()
            }
            CType::Struct { name, union: false } => {
                self.di.create_struct_type(scope, name, file, 1, 0, 8, 0, None, &[], 0, None, "").as_type()
            }
            CType::Struct { name, union: true } => self.di.create_union_type(scope, name, file, 1, 0, 8, 0, &[], 0, "").as_type(),
            CType::Array(elem, count) => {
                let elem = self.c_type(elem)?;
                self.di.create_array_type(elem, 0, 8, std::slice::from_ref(&(0..i64::from(*count)))).as_type()
            }
            CType::Pointer(to) => match self.c_type(to) {
                Some(to) => self.di.create_pointer_type("", to, 64, 64, AddressSpace::default()).as_type(),
                None => self.void_pointer(),
            },
        })
    }

    /// `void *`: a pointer to no type.
    fn void_pointer(&self) -> DIType<'c> {
        // SAFETY: no pointee means void; the name has no bytes; DIType as below
        unsafe {
            let md = LLVMDIBuilderCreatePointerType(self.di.as_mut_ptr(), std::ptr::null_mut(), 64, 64, 0, c"".as_ptr(), 0);
            std::mem::transmute::<LLVMMetadataRef, DIType<'c>>(md)
        }
    }

    /// A placeholder for a type that is decided later: see [`DebugInfo::decide`].
    pub fn undecided(&self) -> DIType<'c> {
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
            std::mem::transmute::<LLVMMetadataRef, DIType<'c>>(md)
        }
    }

    /// Replaces the placeholder by a number, or by a pointer to a struct with this name.
    pub fn decide(&self, undecided: DIType<'c>, pointer_to: Option<&str>) {
        let ty = match pointer_to {
            Some(name) => {
                let scope = self.unit.as_debug_info_scope();
                let ty = self.di.create_struct_type(scope, name, self.file(), 0, 0, 8, 0, None, &[], 0, None, "").as_type();
                self.di.create_pointer_type("", ty, 64, 64, AddressSpace::default()).as_type()
            }
            None => self.long(),
        };
        // SAFETY: the first is a temporary node that nothing else replaces; it is not used afterwards.
        unsafe { LLVMMetadataReplaceAllUsesWith(undecided.as_mut_ptr(), ty.as_mut_ptr()) }
    }

    fn basic(&self, name: &str, bits: u64) -> DIType<'c> {
        const DW_ATE_SIGNED: u32 = 5;
        match self.di.create_basic_type(name, bits, DW_ATE_SIGNED, 0) {
            Ok(t) => t.as_type(),
            Err(e) => bug!("a basic type: {e}"),
        }
    }

    /// A pointer to an area of this size in bytes.
    pub fn bytes_at(&self, size: u32) -> DIType<'c> {
        let of =
            self.di.create_array_type(self.basic("char", 8), u64::from(size) * 8, 8, std::slice::from_ref(&(0..i64::from(size)))).as_type();
        self.di.create_pointer_type("", of, 64, 64, AddressSpace::default()).as_type()
    }

    pub fn long(&self) -> DIType<'c> {
        self.basic("long", 64)
    }

    /// Describes the data of a module as words. libbpf can map only data that BTF describes.
    pub fn describe_data(&self, name: &str, global: GlobalValue<'c>, size: u32) {
        let words = i64::from(size.div_ceil(8));
        let shape = self.di.create_array_type(self.long(), words as u64 * 64, 64, std::slice::from_ref(&(0..words))).as_type();
        let scope = self.unit.as_debug_info_scope();
        let var = self.di.create_global_variable_expression(scope, name, "", self.file(), 0, shape, false, None, None, 64);
        global.set_metadata(var.as_metadata_value(self.cx), 0);
    }

    /// Describes an array of this number of characters.
    pub fn describe_text(&self, name: &str, global: GlobalValue<'c>, size: u64) {
        let shape = self.di.create_array_type(self.basic("char", 8), size * 8, 8, std::slice::from_ref(&(0..size as i64))).as_type();
        let scope = self.unit.as_debug_info_scope();
        let var = self.di.create_global_variable_expression(scope, name, "", self.file(), 0, shape, false, None, None, 8);
        global.set_metadata(var.as_metadata_value(self.cx), 0);
    }

    /// Describes a map in the form that libbpf reads: an anonymous struct whose members are pointers to arrays, whose lengths
    /// are the numbers (`__uint` of libbpf's `bpf_helpers.h`).
    pub fn describe_map(&self, name: &str, global: GlobalValue<'c>, def: MapDef) {
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
}
