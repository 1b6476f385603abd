//! A script's declarations as a [`TargetInfo`] in front of the target's own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::types::{Tag, TagKind, index};
use super::{Declarations, Unit, builtin};
use crate::system::binary::instructions::InstructionBoundary;
use crate::system::kernel::functions::{Functions, Symbols};
use crate::system::kernel_types::{KernelTypes, Prototype};
use crate::system::machine::programs::ProgramFunction;
use crate::system::portability::forward::forward;
use crate::system::{
    AmbiguousType, Argument, Binary, BinaryFile, CMacro, Feature, Function, FunctionLocation, HeaderFolder, Inlined, Line, Marker,
    MatchingFunction, Missing, NoLocation, TargetInfo, Tracepoint, TypeName,
};
use crate::types::{Enum, Field, Int, Record, Struct, Type};

/// The definition of a name in a unit.
enum Definition {
    /// By the script or a header that is not the kernel's: it takes precedence over BTF.
    Own(Type),
    /// By a header of the kernel: BTF takes precedence.
    Kernels(Type),
}

/// Is it of this kind, and complete?
fn matches_kind(tag: &Tag, kind: TypeName) -> bool {
    let same = match kind {
        TypeName::Struct => tag.kind == TagKind::Struct,
        TypeName::Union => tag.kind == TagKind::Union,
        TypeName::Enum => tag.kind == TagKind::Enum,
        TypeName::Plain => false,
    };
    same && tag.complete
}

impl Unit<'_> {
    fn named(&self, kind: TypeName, name: &str, sys: &dyn TargetInfo) -> Option<Definition> {
        let sym = self.pre.names.known(name)?;
        let view = self.view(sys);
        if kind == TypeName::Plain {
            let ty = self.types.typedefs.get(&sym)?;
            return Some(Definition::Own(view.ty(ty, 0)));
        }
        let index = *self.types.by_name.get(&sym)?;
        let tag = self.types.tags.get(index)?;
        if !matches_kind(tag, kind) {
            return None;
        }
        let ty = view.tag(index);
        Some(if self.pre.is_kernels(tag.pos) { Definition::Kernels(ty) } else { Definition::Own(ty) })
    }

    /// Visits the names of declarations, except for those of kernel headers.
    fn each_named(&self, kind: TypeName, each: &mut dyn FnMut(&str)) {
        for index in self.types.by_name.values() {
            if let Some(tag) = self.types.tags.get(*index).filter(|tag| matches_kind(tag, kind) && !self.pre.is_kernels(tag.pos)) {
                each(&tag.name);
            }
        }
    }

    fn enumerator(&self, name: &str, sys: &dyn TargetInfo) -> Option<(Arc<Enum>, i64)> {
        let (tag, value) = self.types.variants.get(&self.pre.names.known(name)?)?;
        if let Type::Enum(e) = self.view(sys).tag(*tag) { Some((e, *value)) } else { None }
    }
}

impl Declarations<'_> {
    /// A constant of a kernel header that the script includes; the header need not exist on this machine.
    fn well_known(&self, name: &str) -> Option<CMacro> {
        let value = builtin::KERNELS.iter().filter(|(header, _)| self.text.contains(&format!("<{header}>"))).find_map(|(_, all)| {
            let (_, value) = all.iter().find(|(n, _)| *n == name)?;
            Some(*value)
        })?;
        Some(CMacro::Int(value, Int { bytes: 4, signed: true }))
    }

    /// Calls `ask` with the unit that declares this struct.
    fn with_owner<T>(&self, structure: &Struct, ask: impl FnOnce(&Unit<'_>) -> Option<T>) -> Option<Option<T>> {
        let first = self.unit.borrow();
        if index(structure, first.first).is_some() {
            return Some(ask(&first));
        }
        drop(first);
        let late = self.late.get()?.as_ref()?.borrow();
        index(structure, late.first)?;
        Some(ask(&late))
    }
}

impl TargetInfo for Declarations<'_> {
    fn for_messages(&self) -> &dyn TargetInfo {
        self.sys.for_messages()
    }

    fn type_named(&self, kind: TypeName, name: &str) -> Option<Type> {
        let declared = self.unit.borrow().named(kind, name, self.sys);
        match declared {
            Some(Definition::Own(ty)) => Some(ty),
            Some(Definition::Kernels(ty)) => Some(self.sys.type_named(kind, name).unwrap_or(ty)),
            None => self.sys.type_named(kind, name).or_else(|| match self.late()?.borrow().named(kind, name, self.sys)? {
                Definition::Own(ty) | Definition::Kernels(ty) => Some(ty),
            }),
        }
    }

    fn type_in_binary(&self, path: &Path, offset: u64, kind: TypeName, name: &str) -> Result<Option<Type>, AmbiguousType> {
        // The script's declarations take precedence over the binary's debug information.
        match self.unit.borrow().named(kind, name, self.sys) {
            Some(Definition::Own(_)) => Ok(None),
            _ => self.sys.type_in_binary(path, offset, kind, name),
        }
    }

    fn enumerators_in_binary(&self, path: &Path, offset: u64, name: &str) -> Vec<(Arc<Enum>, i64)> {
        match self.unit.borrow().enumerator(name, self.sys) {
            Some(_) => Vec::new(),
            None => self.sys.enumerators_in_binary(path, offset, name),
        }
    }

    fn member(&self, structure: &Struct, name: &str) -> Option<Field> {
        let declared = self.with_owner(structure, |unit| unit.view(self.sys).member(structure, name));
        declared.unwrap_or_else(|| self.sys.member(structure, name))
    }

    fn expand(&self, structure: &Struct) -> Option<Record> {
        let declared = self.with_owner(structure, |unit| unit.view(self.sys).expand(structure));
        declared.unwrap_or_else(|| self.sys.expand(structure))
    }

    fn enumerator(&self, name: &str) -> Option<(Arc<Enum>, i64)> {
        let declared = self.unit.borrow().enumerator(name, self.sys);
        declared.or_else(|| self.sys.enumerator(name)).or_else(|| self.late()?.borrow().enumerator(name, self.sys))
    }

    fn type_names(&self, kind: TypeName, each: &mut dyn FnMut(&str)) {
        self.unit.borrow().each_named(kind, each);
        self.sys.type_names(kind, each);
    }

    fn c_macro(&self, name: &str) -> Option<CMacro> {
        let found = self.unit.borrow_mut().constant(name, self.sys);
        let found = found.or_else(|| self.late()?.borrow_mut().constant(name, self.sys));
        found.or_else(|| self.well_known(name)).or_else(|| self.sys.c_macro(name))
    }

    /// Missing headers, or a declaration that was not understood.
    fn why_unknown(&self, name: &str) -> Option<String> {
        let unit = self.unit.borrow();
        let broken = unit.errors.iter().filter(|f| f.pos.file != 0).find(|f| {
            let text = unit.pre.files.get(f.pos.file as usize).map_or("", |f| &f.text);
            let near = text.get(f.pos.at.saturating_sub(2000) as usize..f.pos.at as usize).unwrap_or_default();
            near.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|w| w == name)
        });
        if let Some(fault) = broken {
            return Some(format!("{}: {}", unit.shown(fault.pos), fault.message));
        }
        let mut absent: Vec<&str> = unit.pre.missing_headers.iter().filter(|a| a.pos.file == 0).map(|a| a.name.as_str()).collect();
        absent.dedup();
        if absent.is_empty() {
            return self.sys.why_unknown(name);
        }
        let list = absent.iter().map(|n| format!("<{n}>")).collect::<Vec<_>>().join(", ");
        let (is, has) = if absent.len() == 1 { ("is", "it") } else { ("are", "one of them") };
        Some(format!("{list} {is} not installed; if {has} has it, install the kernel's headers or define it in the script"))
    }

    forward! { sys, |_| ();
        knows_cgroups() -> bool;
        matching_tracepoints(category: &str, name: &str) -> Result<Vec<(String, String)>, Missing>;
        matching_raw_tracepoints(module: &str, name: &str) -> Result<Vec<(String, String)>, Missing>;
        matching_functions(name: &str, module: &str) -> Result<Vec<MatchingFunction>, Missing>;
        arch() -> &'static crate::system::machine::arch::Arch;
        types_missing_in_binary(path: &Path) -> Option<Missing>;
        source_line(path: &Path, file: &str, line: u32, column: Option<u32>) -> Result<Line, Missing>;
        never_returns(path: &Path, function: &Function) -> bool;
        retval(path: &Path, function: &Function) -> Result<Option<Int>, NoLocation>;
        result_type(path: &Path, function: &Function) -> Option<Type>;
        inlined(path: &Path, function: &str) -> Option<Inlined>;
        arguments(path: &Path, function: &Function) -> Result<Option<Vec<Argument>>, Missing>;
        types_missing() -> Option<Missing>;
        types_identity() -> Option<String>;
        forget_searches() -> ();
        event_id(category: &str, name: &str) -> Result<Option<u64>, Missing>;
        file(path: &Path) -> Option<String>;
        file_unread(path: &Path) -> Option<String>;
        header_folders() -> Vec<HeaderFolder>;
        tracepoints() -> Result<&[(String, String)], Missing>;
        is_dynamic_tracepoint(category: &str, name: &str) -> bool;
        has_tracepoint(category: &str, name: &str) -> Result<bool, Missing>;
        tracepoint(category: &str, name: &str) -> Result<Option<Tracepoint>, Missing>;
        raw_tracepoints() -> Result<&[(String, String)], Missing>;
        raw_tracepoint(name: &str) -> Option<Vec<(String, Type)>>;
        syscall_number(name: &str) -> Option<u32>;
        hidden_symbols() -> Option<String>;
        loads_on_demand(module: &str) -> bool;
        kernel_place(module: &str, function: &str, by: u64) -> Result<InstructionBoundary, Missing>;
        kernel_symbol(name: &str) -> Option<u64>;
        describes_function(name: &str) -> bool;
        kernel_function(name: &str) -> Option<u32>;
        kernel_variable(name: &str) -> Option<String>;
        may_call(function: &str, program_type: u32) -> bool;
        functions() -> Result<&Functions, Missing>;
        function_homes(name: &str) -> Result<Vec<FunctionLocation>, Missing>;
        kernel_types() -> Option<&KernelTypes>;
        prototype(module: Option<&str>, name: &str) -> Option<Prototype>;
        described_functions(each: &mut dyn FnMut(&str, &str)) -> ();
        running_programs() -> Result<Vec<ProgramFunction>, Missing>;
        text_symbols(name: &str) -> Symbols;
        has_module(name: &str) -> bool;
        resolve_binary(name: &str, pid: Option<u32>) -> Result<Vec<BinaryFile>, Missing>;
        regular_file(name: &str) -> Option<PathBuf>;
        binary(path: &Path) -> Result<Arc<Binary>, Missing>;
        arch_of_binary(path: &Path) -> &'static crate::system::machine::arch::Arch;
        markers(path: &Path) -> Result<Vec<Marker>, Missing>;
        error_injectable(function: &str) -> Option<bool>;
        has(feature: Feature) -> bool;
        pid_namespace() -> Option<(u64, u64)>;
        possible_cpus() -> u32;
        online_cpus() -> Vec<u32>;
        counts(ty: u32, config: u64) -> Option<bool>;
        most_samples() -> Option<u64>;
        cgroup_id(path: &str) -> Result<u64, Missing>;
    }
}
