//! A script's declarations as a [`TargetInfo`] in front of the target's own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::types::{Tag, TagKind, index};
use super::{Declarations, Unit, builtin};
use crate::system::binary::instructions::Placed;
use crate::system::kernel::functions::{Functions, Symbols};
use crate::system::kernel_types::{KernelTypes, Prototype};
use crate::system::machine::programs::ProgramFunction;
use crate::system::{
    Argument, Binary, CMacro, Feature, Function, HeaderFolder, Home, Inlined, Line, Marker, Missing, TargetInfo, Tracepoint, TypeName,
};
use crate::types::{Enum, Field, Int, Record, Struct, Type};

/// What a reading says of a name.
enum Said {
    /// By the script or a header that is not the kernel's: it counts.
    Own(Type),
    /// By a header of the kernel's: what BTF says counts more.
    Kernels(Type),
}

/// Is it of this kind, with its braces?
fn is(tag: &Tag, kind: TypeName) -> bool {
    let same = match kind {
        TypeName::Struct => tag.kind == TagKind::Struct,
        TypeName::Union => tag.kind == TagKind::Union,
        TypeName::Enum => tag.kind == TagKind::Enum,
        TypeName::Plain => false,
    };
    same && tag.complete
}

impl Unit<'_> {
    fn named(&self, kind: TypeName, name: &str, sys: &dyn TargetInfo) -> Option<Said> {
        let sym = self.pre.names.known(name)?;
        let view = self.view(sys);
        if kind == TypeName::Plain {
            let ty = self.types.typedefs.get(&sym)?;
            return Some(Said::Own(view.ty(ty, 0)));
        }
        let index = *self.types.by_name.get(&sym)?;
        let tag = self.types.tags.get(index)?;
        if !is(tag, kind) {
            return None;
        }
        let ty = view.tag(index);
        Some(if self.pre.is_kernels(tag.place) { Said::Kernels(ty) } else { Said::Own(ty) })
    }

    /// Names of what was declared, but for headers of the kernel.
    fn each_named(&self, kind: TypeName, each: &mut dyn FnMut(&str)) {
        for index in self.types.by_name.values() {
            if let Some(tag) = self.types.tags.get(*index).filter(|tag| is(tag, kind) && !self.pre.is_kernels(tag.place)) {
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
    /// A constant of a kernel header that the script includes and this machine need not have.
    fn well_known(&self, name: &str) -> Option<CMacro> {
        let value = builtin::KERNELS.iter().filter(|(header, _)| self.text.contains(&format!("<{header}>"))).find_map(|(_, all)| {
            let (_, value) = all.iter().find(|(n, _)| *n == name)?;
            Some(*value)
        })?;
        Some(CMacro::Int(value, Int { bytes: 4, signed: true }))
    }

    /// The reading that declares this struct.
    fn with_owner<T>(&self, of: &Struct, ask: impl FnOnce(&Unit<'_>) -> Option<T>) -> Option<Option<T>> {
        let first = self.unit.borrow();
        if index(of, first.first).is_some() {
            return Some(ask(&first));
        }
        drop(first);
        let late = self.late.get()?.as_ref()?.borrow();
        index(of, late.first)?;
        Some(ask(&late))
    }
}

impl TargetInfo for Declarations<'_> {
    fn arch(&self) -> &'static crate::system::machine::arch::Arch {
        self.sys.arch()
    }

    fn type_named(&self, kind: TypeName, name: &str) -> Option<Type> {
        let said = self.unit.borrow().named(kind, name, self.sys);
        match said {
            Some(Said::Own(ty)) => Some(ty),
            Some(Said::Kernels(ty)) => Some(self.sys.type_named(kind, name).unwrap_or(ty)),
            None => self.sys.type_named(kind, name).or_else(|| match self.late()?.borrow().named(kind, name, self.sys)? {
                Said::Own(ty) | Said::Kernels(ty) => Some(ty),
            }),
        }
    }

    fn type_in_binary(&self, path: &Path, kind: TypeName, name: &str) -> Option<Type> {
        // What the script says itself counts more than the binary's debug information.
        match self.unit.borrow().named(kind, name, self.sys) {
            Some(Said::Own(_)) => None,
            _ => self.sys.type_in_binary(path, kind, name),
        }
    }

    fn types_missing_in_binary(&self, path: &Path) -> Option<Missing> {
        self.sys.types_missing_in_binary(path)
    }

    fn enumerator_in_binary(&self, path: &Path, name: &str) -> Option<(Arc<Enum>, i64)> {
        match self.unit.borrow().enumerator(name, self.sys) {
            Some(_) => None,
            None => self.sys.enumerator_in_binary(path, name),
        }
    }

    fn source_line(&self, path: &Path, file: &str, line: u32, column: Option<u32>) -> Result<Line, Missing> {
        self.sys.source_line(path, file, line, column)
    }

    fn never_returns(&self, path: &Path, function: &Function) -> bool {
        self.sys.never_returns(path, function)
    }

    fn inlined(&self, path: &Path, function: &str) -> Option<Inlined> {
        self.sys.inlined(path, function)
    }

    fn arguments(&self, path: &Path, function: &Function) -> Result<Option<Vec<Argument>>, Missing> {
        self.sys.arguments(path, function)
    }

    fn member(&self, of: &Struct, name: &str) -> Option<Field> {
        let own = self.with_owner(of, |unit| unit.view(self.sys).member(of, name));
        own.unwrap_or_else(|| self.sys.member(of, name))
    }

    fn expand(&self, of: &Struct) -> Option<Record> {
        let own = self.with_owner(of, |unit| unit.view(self.sys).expand(of));
        own.unwrap_or_else(|| self.sys.expand(of))
    }

    fn enumerator(&self, name: &str) -> Option<(Arc<Enum>, i64)> {
        let own = self.unit.borrow().enumerator(name, self.sys);
        own.or_else(|| self.sys.enumerator(name)).or_else(|| self.late()?.borrow().enumerator(name, self.sys))
    }

    fn type_names(&self, kind: TypeName, each: &mut dyn FnMut(&str)) {
        self.unit.borrow().each_named(kind, each);
        self.sys.type_names(kind, each);
    }

    fn types_missing(&self) -> Option<Missing> {
        self.sys.types_missing()
    }

    fn file(&self, path: &Path) -> Option<String> {
        self.sys.file(path)
    }

    fn header_folders(&self) -> Vec<HeaderFolder> {
        self.sys.header_folders()
    }

    fn c_macro(&self, name: &str) -> Option<CMacro> {
        let found = self.unit.borrow_mut().constant(name, self.sys);
        let found = found.or_else(|| self.late()?.borrow_mut().constant(name, self.sys));
        found.or_else(|| self.well_known(name)).or_else(|| self.sys.c_macro(name))
    }

    /// Headers that are not there, or a declaration that was not understood.
    fn why_unknown(&self, name: &str) -> Option<String> {
        let unit = self.unit.borrow();
        let broken = unit.faults.iter().filter(|f| f.place.file != 0).find(|f| {
            let text = unit.pre.files.get(f.place.file as usize).map_or("", |f| &f.text);
            let near = text.get(f.place.at.saturating_sub(2000) as usize..f.place.at as usize).unwrap_or_default();
            near.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|w| w == name)
        });
        if let Some(fault) = broken {
            return Some(format!("{}: {}", unit.shown(fault.place), fault.message));
        }
        let mut absent: Vec<&str> = unit.pre.absent.iter().filter(|a| a.place.file == 0).map(|a| a.name.as_str()).collect();
        absent.dedup();
        if absent.is_empty() {
            return self.sys.why_unknown(name);
        }
        let list = absent.iter().map(|n| format!("<{n}>")).collect::<Vec<_>>().join(", ");
        let (is, has) = if absent.len() == 1 { ("is", "it") } else { ("are", "one of them") };
        Some(format!("{list} {is} not installed; if {has} has it, install the kernel's headers or define it in the script"))
    }

    fn tracepoints(&self) -> Result<&[(String, String)], Missing> {
        self.sys.tracepoints()
    }

    fn is_dynamic_tracepoint(&self, category: &str, name: &str) -> bool {
        self.sys.is_dynamic_tracepoint(category, name)
    }

    fn has_tracepoint(&self, category: &str, name: &str) -> Result<bool, Missing> {
        self.sys.has_tracepoint(category, name)
    }

    fn tracepoint(&self, category: &str, name: &str) -> Result<Option<Tracepoint>, Missing> {
        self.sys.tracepoint(category, name)
    }

    fn raw_tracepoints(&self) -> Result<&[(String, String)], Missing> {
        self.sys.raw_tracepoints()
    }

    fn raw_tracepoint(&self, name: &str) -> Option<Vec<(String, Type)>> {
        self.sys.raw_tracepoint(name)
    }

    fn syscall_number(&self, name: &str) -> Option<u32> {
        self.sys.syscall_number(name)
    }

    fn hidden_symbols(&self) -> Option<String> {
        self.sys.hidden_symbols()
    }

    fn loads_on_demand(&self, module: &str) -> bool {
        self.sys.loads_on_demand(module)
    }

    fn kernel_place(&self, module: &str, function: &str, by: u64) -> Result<Placed, Missing> {
        self.sys.kernel_place(module, function, by)
    }

    fn kernel_symbol(&self, name: &str) -> Option<u64> {
        self.sys.kernel_symbol(name)
    }

    fn describes_function(&self, name: &str) -> bool {
        self.sys.describes_function(name)
    }
    fn kernel_function(&self, name: &str) -> Option<u32> {
        self.sys.kernel_function(name)
    }

    fn kernel_variable(&self, name: &str) -> Option<String> {
        self.sys.kernel_variable(name)
    }

    fn may_call(&self, function: &str, program_type: u32) -> bool {
        self.sys.may_call(function, program_type)
    }

    fn functions(&self) -> Result<&Functions, Missing> {
        self.sys.functions()
    }

    fn function_homes(&self, name: &str) -> Result<Vec<Home>, Missing> {
        self.sys.function_homes(name)
    }

    fn kernel_types(&self) -> Option<&KernelTypes> {
        self.sys.kernel_types()
    }

    fn prototype(&self, module: Option<&str>, name: &str) -> Option<Prototype> {
        self.sys.prototype(module, name)
    }

    fn described_functions(&self, each: &mut dyn FnMut(&str, &str)) {
        self.sys.described_functions(each);
    }

    fn running_programs(&self) -> Result<Vec<ProgramFunction>, Missing> {
        self.sys.running_programs()
    }

    fn text_symbols(&self, name: &str) -> Symbols {
        self.sys.text_symbols(name)
    }

    fn has_module(&self, name: &str) -> bool {
        self.sys.has_module(name)
    }

    fn resolve_binary(&self, name: &str, pid: Option<u32>) -> Result<Vec<PathBuf>, Missing> {
        self.sys.resolve_binary(name, pid)
    }

    fn regular_file(&self, name: &str) -> Option<PathBuf> {
        self.sys.regular_file(name)
    }

    fn binary(&self, path: &Path) -> Result<Arc<Binary>, Missing> {
        self.sys.binary(path)
    }

    fn markers(&self, path: &Path) -> Result<Vec<Marker>, Missing> {
        self.sys.markers(path)
    }

    fn error_injectable(&self, function: &str) -> Option<bool> {
        self.sys.error_injectable(function)
    }

    fn has(&self, feature: Feature) -> bool {
        self.sys.has(feature)
    }

    fn pid_namespace(&self) -> Option<(u64, u64)> {
        self.sys.pid_namespace()
    }

    fn possible_cpus(&self) -> u32 {
        self.sys.possible_cpus()
    }

    fn online_cpus(&self) -> Vec<u32> {
        self.sys.online_cpus()
    }

    fn counts(&self, ty: u32, config: u64) -> Option<bool> {
        self.sys.counts(ty, config)
    }

    fn most_samples(&self) -> Option<u64> {
        self.sys.most_samples()
    }

    fn cgroup_id(&self, path: &str) -> Result<u64, Missing> {
        self.sys.cgroup_id(path)
    }
}

#[cfg(test)]
mod tests {
    /// A question with an answer of its own would otherwise be forgotten here without a word.
    #[test]
    fn every_question_is_passed_on() {
        let (questions, answers) = (include_str!("../system/mod.rs"), include_str!("overlay.rs"));
        let of_trait = questions.split("pub trait System {").nth(1).and_then(|t| t.split("\n}\n").next()).unwrap_or_default();
        let names = of_trait.lines().filter_map(|l| l.trim().strip_prefix("fn ")?.split('(').next());
        let lost: Vec<&str> = names.filter(|n| !answers.contains(&format!("self.sys.{n}("))).collect();
        assert!(lost.is_empty(), "not passed on: {lost:?}");
    }
}
