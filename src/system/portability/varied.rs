//! A target that answers like another one, except for some parts of answers, to find out their effect on the code.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::answers::{ADDED, ADDED_SYSCALL, Answer, Change, LATER, Part, unmoved};
use super::forward::forward;
use super::questions::Question;
use super::requirements::{RecordedAnswer, key};
use crate::system::binary::instructions::InstructionBoundary;
use crate::system::kernel::functions::{Functions, Symbols};
use crate::system::kernel_types::{KernelTypes, Prototype};
use crate::system::machine::arch::Arch;
use crate::system::machine::programs::ProgramFunction;
use crate::system::{
    AmbiguousType, Argument, Binary, BinaryFile, CMacro, Feature, Function, FunctionLocation, HeaderFolder, Inlined, Line, Marker,
    MatchingFunction, Missing, NoLocation, TargetInfo, Tracepoint, TypeName,
};
use crate::types::{Enum, Field, Int, Record, Struct, Type};

/// The changed parts of answers, by the number of the query, and sizes by the ID of the struct.
#[derive(Clone, Debug, Default)]
pub struct Variation {
    /// Parts of answers.
    pub parts: HashMap<(usize, Part), Change>,
    /// Sizes of structs.
    pub sizes: HashMap<u32, u32>,
}

/// The start of the names of entries of system calls.
const ENTER: &str = "sys_enter_";
/// The start of the names of exits of system calls.
const EXIT: &str = "sys_exit_";
/// The category of both.
const SYSCALLS: &str = "syscalls";

/// See the module's note.
pub struct VariedTarget<'a> {
    sys: &'a dyn TargetInfo,
    answers: HashMap<Question, Answer>,
    lacks: BTreeSet<Feature>,
    renamed: &'static [RenamedMember],
    machine: Option<Machine>,
    later_calls: bool,
}

/// A member that had another name and type in earlier kernels.
#[derive(Debug)]
pub struct RenamedMember {
    /// The name of the struct.
    pub structure: &'static str,
    /// The name of the member.
    pub name: &'static str,
    /// The earlier name.
    pub earlier: &'static str,
    /// The earlier type.
    pub ty: fn() -> Type,
}

/// Properties of a machine besides its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// [`TargetInfo::pid_namespace`]
    pub namespace: Option<(u64, u64)>,
    /// [`TargetInfo::possible_cpus`]
    pub cpus: u32,
}

impl<'a> VariedTarget<'a> {
    /// Answers like `sys`, to which these queries were made.
    pub fn new(sys: &'a dyn TargetInfo, record: &[RecordedAnswer], variation: &Variation) -> Self {
        let changed = |(index, one): (usize, &RecordedAnswer)| {
            let answer = one.changed(&|part| variation.parts.get(&(index, part.clone())).copied(), &variation.sizes);
            (one.key(), answer)
        };
        Self { answers: record.iter().enumerate().map(changed).collect(), ..Self::like(sys) }
    }

    /// Answers like `sys`, without these features (limits apply), and on such a machine.
    pub fn without(sys: &'a dyn TargetInfo, lacks: BTreeSet<Feature>, machine: Machine) -> Self {
        Self { lacks, machine: Some(machine), ..Self::like(sys) }
    }

    /// Answers like `sys`, but a pattern that matches system calls also matches one of a later kernel, whose number is unknown.
    pub fn with_later_calls(sys: &'a dyn TargetInfo) -> Self {
        Self { later_calls: true, ..Self::like(sys) }
    }

    fn like(sys: &'a dyn TargetInfo) -> Self {
        Self { sys, answers: HashMap::new(), lacks: BTreeSet::new(), renamed: &[], machine: None, later_calls: false }
    }

    /// With the earlier names of these members.
    pub fn with_earlier_names(self, renamed: &'static [RenamedMember]) -> Self {
        Self { renamed, ..self }
    }

    /// A function as it was before it was moved.
    fn original(&self, path: &Path, function: &Function) -> Function {
        let binary = self.sys.binary(unmoved(path)).ok();
        let found = binary.as_ref().and_then(|binary| binary.functions_named(&function.name).next());
        found.unwrap_or(function).clone()
    }

    fn known(&self, question: Question) -> Option<&Answer> {
        self.answers.get(&key(question))
    }
}

impl TargetInfo for VariedTarget<'_> {
    fn for_messages(&self) -> &dyn TargetInfo {
        self.sys.for_messages()
    }

    fn has(&self, feature: Feature) -> bool {
        if self.lacks.contains(&feature) {
            return feature.is_limit();
        }
        if let Some(Answer::Feature(has)) = self.known(Question::Has(feature)) { *has } else { self.sys.has(feature) }
    }

    fn possible_cpus(&self) -> u32 {
        if let Some(Answer::Cpus(n)) = self.known(Question::PossibleCpus) {
            return *n;
        }
        self.machine.map_or_else(|| self.sys.possible_cpus(), |machine| machine.cpus)
    }

    fn pid_namespace(&self) -> Option<(u64, u64)> {
        if let Some(Answer::Namespace(of)) = self.known(Question::PidNamespace) {
            return *of;
        }
        self.machine.map_or_else(|| self.sys.pid_namespace(), |machine| machine.namespace)
    }

    fn type_named(&self, kind: TypeName, name: &str) -> Option<Type> {
        let known = self.known(Question::TypeNamed(kind, name.into()));
        if let Some(Answer::Type(ty)) = known { ty.clone() } else { self.sys.type_named(kind, name) }
    }

    fn member(&self, structure: &Struct, name: &str) -> Option<Field> {
        let known = self.known(Question::Member(structure.clone(), name.into()));
        if let Some(Answer::Field(field)) = known {
            return field.clone();
        }
        for member in self.renamed.iter().filter(|member| member.structure == structure.name) {
            if name == member.name {
                return None;
            }
            if name == member.earlier {
                let now = self.sys.member(structure, member.name)?;
                return Some(Field { name: name.into(), ty: (member.ty)(), ..now });
            }
        }
        self.sys.member(structure, name)
    }

    fn expand(&self, structure: &Struct) -> Option<Record> {
        if let Some(Answer::Record(record)) = self.known(Question::Expand(structure.clone())) {
            record.clone()
        } else {
            self.sys.expand(structure)
        }
    }

    fn prototype(&self, module: Option<&str>, name: &str) -> Option<Prototype> {
        let known = self.known(Question::Prototype(module.map(Into::into), name.into()));
        if let Some(Answer::Prototype(of)) = known { of.clone() } else { self.sys.prototype(module, name) }
    }

    fn tracepoint(&self, category: &str, name: &str) -> Result<Option<Tracepoint>, Missing> {
        let known = self.known(Question::Tracepoint(category.into(), name.into()));
        // the records of all exits of system calls have the same fields
        let later = || name.strip_suffix(LATER).filter(|_| self.later_calls);
        let name = if name.starts_with(EXIT) { name.strip_suffix(ADDED).or_else(later).unwrap_or(name) } else { name };
        if let Some(Answer::Tracepoint(of)) = known { of.clone() } else { self.sys.tracepoint(category, name) }
    }

    fn raw_tracepoint(&self, name: &str) -> Option<Vec<(String, Type)>> {
        let known = self.known(Question::RawTracepoint(name.into()));
        if let Some(Answer::Params(params)) = known { params.clone() } else { self.sys.raw_tracepoint(name) }
    }

    fn enumerator(&self, name: &str) -> Option<(Arc<Enum>, i64)> {
        let known = self.known(Question::Enumerator(name.into()));
        if let Some(Answer::Enumerator(of)) = known { of.clone() } else { self.sys.enumerator(name) }
    }

    fn type_names(&self, kind: TypeName, each: &mut dyn FnMut(&str)) {
        self.sys.type_names(kind, each);
    }

    fn described_functions(&self, each: &mut dyn FnMut(&str, &str)) {
        self.sys.described_functions(each);
    }

    fn functions(&self) -> Result<&Functions, Missing> {
        self.sys.functions()
    }

    fn tracepoints(&self) -> Result<&[(String, String)], Missing> {
        self.sys.tracepoints()
    }

    fn raw_tracepoints(&self) -> Result<&[(String, String)], Missing> {
        self.sys.raw_tracepoints()
    }

    fn matching_tracepoints(&self, category: &str, name: &str) -> Result<Vec<(String, String)>, Missing> {
        let known = self.known(Question::MatchingTracepoints(category.into(), name.into()));
        let mut all =
            if let Some(Answer::Tracepoints(all)) = known { all.clone()? } else { self.sys.matching_tracepoints(category, name)? };
        for event in [ENTER, EXIT].into_iter().filter(|_| self.later_calls) {
            let last = all.iter().rfind(|(category, name)| category == SYSCALLS && name.starts_with(event));
            all.extend(last.map(|(category, name)| (category.clone(), format!("{name}{LATER}"))));
        }
        Ok(all)
    }

    fn matching_functions(&self, name: &str, module: &str) -> Result<Vec<MatchingFunction>, Missing> {
        let known = self.known(Question::MatchingFunctions(name.into(), module.into()));
        if let Some(Answer::Functions(all)) = known { all.clone() } else { self.sys.matching_functions(name, module) }
    }

    fn syscall_number(&self, name: &str) -> Option<u32> {
        let known = self.sys.syscall_number(name);
        known.or_else(|| name.ends_with(ADDED).then_some(ADDED_SYSCALL))
    }

    fn resolve_binary(&self, name: &str, pid: Option<u32>) -> Result<Vec<BinaryFile>, Missing> {
        let known = self.known(Question::ResolveBinary(name.into())).filter(|_| pid.is_none());
        if let Some(Answer::Files(files)) = known { files.clone() } else { self.sys.resolve_binary(name, pid) }
    }

    fn binary(&self, path: &Path) -> Result<Arc<Binary>, Missing> {
        let known = self.known(Question::Binary(unmoved(path).into()));
        let binary = if let Some(Answer::Binary(binary)) = known { binary.clone() } else { self.sys.binary(unmoved(path)) };
        let moved =
            |binary: Arc<Binary>| if binary.path == path { binary } else { Arc::new(Binary { path: path.into(), ..(*binary).clone() }) };
        binary.map(|binary| if path == unmoved(path) { binary } else { moved(binary) })
    }

    fn markers(&self, path: &Path) -> Result<Vec<Marker>, Missing> {
        let known = self.known(Question::Markers(unmoved(path).into()));
        if let Some(Answer::Markers(markers)) = known { markers.clone() } else { self.sys.markers(unmoved(path)) }
    }

    fn arch_of_binary(&self, path: &Path) -> &'static Arch {
        self.sys.arch_of_binary(unmoved(path))
    }

    fn type_in_binary(&self, path: &Path, offset: u64, kind: TypeName, name: &str) -> Result<Option<Type>, AmbiguousType> {
        self.sys.type_in_binary(unmoved(path), offset, kind, name)
    }

    fn enumerators_in_binary(&self, path: &Path, offset: u64, name: &str) -> Vec<(Arc<Enum>, i64)> {
        self.sys.enumerators_in_binary(unmoved(path), offset, name)
    }

    fn arguments(&self, path: &Path, function: &Function) -> Result<Option<Vec<Argument>>, Missing> {
        self.sys.arguments(unmoved(path), &self.original(path, function))
    }

    fn source_line(&self, path: &Path, file: &str, line: u32, column: Option<u32>) -> Result<Line, Missing> {
        self.sys.source_line(unmoved(path), file, line, column)
    }

    fn inlined(&self, path: &Path, function: &str) -> Option<Inlined> {
        self.sys.inlined(unmoved(path), function)
    }

    fn never_returns(&self, path: &Path, function: &Function) -> bool {
        self.sys.never_returns(unmoved(path), &self.original(path, function))
    }

    fn retval(&self, path: &Path, function: &Function) -> Result<Option<Int>, NoLocation> {
        self.sys.retval(unmoved(path), &self.original(path, function))
    }

    fn result_type(&self, path: &Path, function: &Function) -> Option<Type> {
        self.sys.result_type(unmoved(path), &self.original(path, function))
    }

    fn types_missing_in_binary(&self, path: &Path) -> Option<Missing> {
        self.sys.types_missing_in_binary(unmoved(path))
    }

    fn kernel_types(&self) -> Option<&KernelTypes> {
        self.sys.kernel_types()
    }

    forward! { sys, |_| ();
        knows_cgroups() -> bool;
        matching_raw_tracepoints(module: &str, name: &str) -> Result<Vec<(String, String)>, Missing>;
        arch() -> &'static Arch;
        types_missing() -> Option<Missing>;
        describes_function(name: &str) -> bool;
        kernel_function(name: &str) -> Option<u32>;
        may_call(function: &str, program_type: u32) -> bool;
        has_tracepoint(category: &str, name: &str) -> Result<bool, Missing>;
        kernel_variable(name: &str) -> Option<String>;
        function_homes(name: &str) -> Result<Vec<FunctionLocation>, Missing>;
        text_symbols(name: &str) -> Symbols;
        error_injectable(function: &str) -> Option<bool>;
        kernel_place(module: &str, function: &str, by: u64) -> Result<InstructionBoundary, Missing>;
        has_module(name: &str) -> bool;
        loads_on_demand(module: &str) -> bool;
        is_dynamic_tracepoint(category: &str, name: &str) -> bool;
        regular_file(name: &str) -> Option<PathBuf>;
        counts(ty: u32, config: u64) -> Option<bool>;
        cgroup_id(path: &str) -> Result<u64, Missing>;
        types_identity() -> Option<String>;
        forget_searches() -> ();
        event_id(category: &str, name: &str) -> Result<Option<u64>, Missing>;
        c_macro(name: &str) -> Option<CMacro>;
        why_unknown(name: &str) -> Option<String>;
        file(path: &Path) -> Option<String>;
        file_unread(path: &Path) -> Option<String>;
        header_folders() -> Vec<HeaderFolder>;
        hidden_symbols() -> Option<String>;
        most_samples() -> Option<u64>;
        online_cpus() -> Vec<u32>;
        kernel_symbol(name: &str) -> Option<u64>;
        running_programs() -> Result<Vec<ProgramFunction>, Missing>;
    }
}
