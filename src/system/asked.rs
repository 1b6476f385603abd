//! Notes what is asked of a system, with the answers: what a script depends on.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::functions::{Functions, Symbols};
use super::kernel_types::Prototype;
use super::programs::ProgramFunction;
use super::{
    Argument, Binary, CMacro, Feature, Function, HeaderFolder, Home, Inlined, Line, Marker, Missing, System, Tracepoint, TypeName,
};
use crate::types::{Enum, Field, Record, Struct, Type};

/// What was asked, by what; none: it is not there. What fails is not noted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Notes {
    /// Types by name.
    pub types: BTreeMap<(TypeName, String), Option<Type>>,
    /// Members, by their struct as C writes it, its id, and their name.
    pub members: BTreeMap<(String, u32, String), Option<Field>>,
    /// Structs of which all members were asked for.
    pub expanded: BTreeMap<(String, u32), Option<Record>>,
    /// Enumerators, with their enum and value.
    pub enumerators: BTreeMap<String, Option<(Arc<Enum>, i64)>>,
    /// Events, by category and name, with their records.
    pub tracepoints: BTreeMap<(String, String), Option<Tracepoint>>,
    /// Raw tracepoints, with their arguments.
    pub raw_tracepoints: BTreeMap<String, Option<Vec<(String, Type)>>>,
    /// Functions, with where they can be traced.
    pub functions: BTreeMap<String, Vec<Home>>,
    /// Prototypes, by module where one was named, and name.
    pub prototypes: BTreeMap<(Option<String>, String), Option<Prototype>>,
    /// Names that were looked for in the symbol table.
    pub symbols: BTreeMap<String, Symbols>,
    /// Functions that BPF programs may call, with their ids.
    pub kernel_functions: BTreeMap<String, Option<u32>>,
    /// Which of them programs of a type (`BPF_PROG_TYPE_…`) may call.
    pub callers: BTreeMap<(String, u32), bool>,
    /// Is a function described?
    pub described: BTreeMap<String, bool>,
    /// Global variables, with their sections.
    pub variables: BTreeMap<String, Option<String>>,
    /// Functions that may be made to return at once.
    pub injectable: BTreeMap<String, Option<bool>>,
    /// Modules.
    pub modules: BTreeMap<String, bool>,
    /// What BPF can do.
    pub features: BTreeMap<Feature, bool>,
    /// Binaries.
    pub binaries: BTreeSet<PathBuf>,
    /// The list of all functions that can be traced was asked for, as for a wildcard or a suggestion.
    pub all_functions: bool,
    /// The same of events.
    pub all_tracepoints: bool,
    /// The same of raw tracepoints.
    pub all_raw_tracepoints: bool,
}

/// Passes questions on, and notes them.
pub struct Asked<'a> {
    sys: &'a dyn System,
    notes: RefCell<Notes>,
}

impl<'a> Asked<'a> {
    /// Nothing is noted yet.
    pub fn new(sys: &'a dyn System) -> Self {
        Self { sys, notes: RefCell::default() }
    }

    /// What was noted.
    pub fn notes(self) -> Notes {
        self.notes.into_inner()
    }

    fn note<T>(&self, answer: T, to: impl FnOnce(&mut Notes, &T)) -> T {
        to(&mut self.notes.borrow_mut(), &answer);
        answer
    }
}

fn written(of: &Struct) -> String {
    format!("{} {}", if of.union { "union" } else { "struct" }, of.name)
}

impl System for Asked<'_> {
    fn type_named(&self, kind: TypeName, name: &str) -> Option<Type> {
        self.note(self.sys.type_named(kind, name), |n, a| {
            n.types.insert((kind, name.into()), a.clone());
        })
    }

    fn type_in_binary(&self, path: &Path, kind: TypeName, name: &str) -> Option<Type> {
        self.sys.type_in_binary(path, kind, name)
    }

    fn enumerator_in_binary(&self, path: &Path, name: &str) -> Option<(Arc<Enum>, i64)> {
        self.sys.enumerator_in_binary(path, name)
    }

    fn arguments(&self, path: &Path, function: &Function) -> Result<Option<Vec<Argument>>, Missing> {
        self.sys.arguments(path, function)
    }

    fn source_line(&self, path: &Path, file: &str, line: u32, column: Option<u32>) -> Result<Line, Missing> {
        self.sys.source_line(path, file, line, column)
    }

    fn inlined(&self, path: &Path, function: &str) -> Option<Inlined> {
        self.sys.inlined(path, function)
    }

    fn member(&self, of: &Struct, name: &str) -> Option<Field> {
        self.note(self.sys.member(of, name), |n, a| {
            n.members.insert((written(of), of.id, name.into()), a.clone());
        })
    }

    fn expand(&self, of: &Struct) -> Option<Record> {
        self.note(self.sys.expand(of), |n, a| {
            n.expanded.insert((written(of), of.id), a.clone());
        })
    }

    fn enumerator(&self, name: &str) -> Option<(Arc<Enum>, i64)> {
        self.note(self.sys.enumerator(name), |n, a| {
            n.enumerators.insert(name.into(), a.clone());
        })
    }

    fn c_macro(&self, name: &str) -> Option<CMacro> {
        self.sys.c_macro(name)
    }

    fn why_unknown(&self, name: &str) -> Option<String> {
        self.sys.why_unknown(name)
    }

    fn type_names(&self, kind: TypeName, each: &mut dyn FnMut(&str)) {
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

    fn tracepoints(&self) -> Result<&[(String, String)], Missing> {
        self.note(self.sys.tracepoints(), |n, _| n.all_tracepoints = true)
    }

    fn has_tracepoint(&self, category: &str, name: &str) -> Result<bool, Missing> {
        self.note(self.sys.has_tracepoint(category, name), |n, a| {
            if *a == Ok(false) {
                n.tracepoints.insert((category.into(), name.into()), None);
            }
        })
    }

    fn is_dynamic_tracepoint(&self, category: &str, name: &str) -> bool {
        self.sys.is_dynamic_tracepoint(category, name)
    }

    fn tracepoint(&self, category: &str, name: &str) -> Result<Option<Tracepoint>, Missing> {
        self.note(self.sys.tracepoint(category, name), |n, a| {
            if let Ok(found) = a {
                n.tracepoints.insert((category.into(), name.into()), found.clone());
            }
        })
    }

    fn raw_tracepoints(&self) -> Result<&[(String, String)], Missing> {
        self.note(self.sys.raw_tracepoints(), |n, _| n.all_raw_tracepoints = true)
    }

    fn raw_tracepoint(&self, name: &str) -> Option<Vec<(String, Type)>> {
        self.note(self.sys.raw_tracepoint(name), |n, a| {
            n.raw_tracepoints.insert(name.into(), a.clone());
        })
    }

    fn syscall_number(&self, name: &str) -> Option<u32> {
        self.sys.syscall_number(name)
    }

    fn kernel_function(&self, name: &str) -> Option<u32> {
        self.note(self.sys.kernel_function(name), |n, a| {
            n.kernel_functions.insert(name.into(), *a);
        })
    }

    fn describes_function(&self, name: &str) -> bool {
        self.note(self.sys.describes_function(name), |n, a| {
            n.described.insert(name.into(), *a);
        })
    }

    fn kernel_variable(&self, name: &str) -> Option<String> {
        self.note(self.sys.kernel_variable(name), |n, a| {
            n.variables.insert(name.into(), a.clone());
        })
    }

    fn may_call(&self, function: &str, program_type: u32) -> bool {
        self.note(self.sys.may_call(function, program_type), |n, a| {
            n.callers.insert((function.into(), program_type), *a);
        })
    }

    fn functions(&self) -> Result<&Functions, Missing> {
        self.note(self.sys.functions(), |n, _| n.all_functions = true)
    }

    fn function_homes(&self, name: &str) -> Result<Vec<Home>, Missing> {
        self.note(self.sys.function_homes(name), |n, a| {
            if let Ok(homes) = a {
                n.functions.insert(name.into(), homes.clone());
            }
        })
    }

    fn prototype(&self, module: Option<&str>, name: &str) -> Option<Prototype> {
        let key = (module.map(str::to_owned), name.to_owned());
        self.note(self.sys.prototype(module, name), |n, a| {
            n.prototypes.insert(key, a.clone());
        })
    }

    fn described_functions(&self, each: &mut dyn FnMut(&str, &str)) {
        self.sys.described_functions(each);
    }

    fn text_symbols(&self, name: &str) -> Symbols {
        self.note(self.sys.text_symbols(name), |n, a| {
            n.symbols.insert(name.into(), a.clone());
        })
    }

    fn error_injectable(&self, function: &str) -> Option<bool> {
        self.note(self.sys.error_injectable(function), |n, a| {
            n.injectable.insert(function.into(), *a);
        })
    }

    fn running_programs(&self) -> Result<Vec<ProgramFunction>, Missing> {
        self.sys.running_programs()
    }

    fn has_module(&self, name: &str) -> bool {
        self.note(self.sys.has_module(name), |n, a| {
            n.modules.insert(name.into(), *a);
        })
    }

    fn hidden_symbols(&self) -> Option<String> {
        self.sys.hidden_symbols()
    }

    fn kernel_symbol(&self, name: &str) -> Option<u64> {
        self.sys.kernel_symbol(name)
    }

    fn resolve_binary(&self, name: &str, pid: Option<u32>) -> Result<Vec<PathBuf>, Missing> {
        self.sys.resolve_binary(name, pid)
    }

    fn binary(&self, path: &Path) -> Result<Arc<Binary>, Missing> {
        self.note(self.sys.binary(path), |n, _| {
            n.binaries.insert(path.into());
        })
    }

    fn markers(&self, path: &Path) -> Result<Vec<Marker>, Missing> {
        self.note(self.sys.markers(path), |n, _| {
            n.binaries.insert(path.into());
        })
    }

    fn has(&self, feature: Feature) -> bool {
        self.note(self.sys.has(feature), |n, a| {
            n.features.insert(feature, *a);
        })
    }

    fn possible_cpus(&self) -> u32 {
        self.sys.possible_cpus()
    }

    fn online_cpus(&self) -> Vec<u32> {
        self.sys.online_cpus()
    }

    fn cgroup_id(&self, path: &str) -> Result<u64, Missing> {
        self.sys.cgroup_id(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::fake::Fake;

    /// A question with an answer of its own would otherwise be forgotten here without a word.
    #[test]
    fn every_question_is_passed_on() {
        let (questions, answers) = (include_str!("mod.rs"), include_str!("asked.rs"));
        let of_trait = questions.split("pub trait System {").nth(1).and_then(|t| t.split("\n}\n").next()).unwrap_or_default();
        let names = of_trait.lines().filter_map(|l| l.trim().strip_prefix("fn ")?.split('(').next());
        let lost: Vec<&str> = names.filter(|n| !answers.contains(&format!("self.sys.{n}("))).collect();
        assert!(lost.is_empty(), "not passed on: {lost:?}");
    }

    #[test]
    fn what_is_asked_is_noted() {
        let fake = Fake::new("struct task { int pid; }; tracepoint a:b { int x; } function int f(int y); feature Loop;").unwrap();
        let asked = Asked::new(&fake);
        let Some(Type::Struct(task)) = asked.type_named(TypeName::Struct, "task") else { panic!() };
        assert!(asked.member(&task, "pid").is_some() && asked.member(&task, "comm").is_none());
        assert!(asked.tracepoint("a", "b").unwrap().is_some() && !asked.has_tracepoint("a", "c").unwrap());
        assert!(asked.has(Feature::Loop) && asked.function_homes("f").unwrap().len() == 1);
        let notes = asked.notes();
        let members: Vec<_> = notes.members.iter().map(|((of, _, name), f)| (of.as_str(), name.as_str(), f.is_some())).collect();
        assert_eq!(members, [("struct task", "comm", false), ("struct task", "pid", true)]);
        assert!(notes.tracepoints[&("a".into(), "b".into())].is_some() && notes.tracepoints[&("a".into(), "c".into())].is_none());
        assert!(notes.features[&Feature::Loop] && notes.functions["f"][0].module == "vmlinux" && !notes.all_functions);
    }
}
