//! Records the queries to a target, so that they can be repeated later to see whether the answers are still the same.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashSet};
use std::fmt::{Debug, Display, Write};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::forward::forward;
use crate::system::binary::instructions::InstructionBoundary;
use crate::system::binary::{elf, string_layouts};
use crate::system::cache;
use crate::system::kernel::functions::{Functions, Symbols};
use crate::system::kernel_types::{KernelTypes, Prototype};
use crate::system::machine::arch::Arch;
use crate::system::machine::programs::ProgramFunction;
use crate::system::{
    AmbiguousType, Argument, Binary, BinaryFile, CMacro, Feature, Function, FunctionLocation, HeaderFolder, Inlined, Line, Marker,
    MatchingFunction, Missing, NoLocation, TargetInfo, Tracepoint, TypeName,
};
use crate::types::{self, Enum, Field, Int, Struct, Type};

/// A query that can be stored and repeated: one of those that code generation makes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Question {
    /// [`TargetInfo::arch`]
    Arch,
    /// [`TargetInfo::has`]
    Has(Feature),
    /// [`TargetInfo::possible_cpus`]
    PossibleCpus,
    /// [`TargetInfo::pid_namespace`]
    PidNamespace,
    /// [`TargetInfo::type_named`]
    TypeNamed(TypeName, String),
    /// [`TargetInfo::types_missing`]
    TypesMissing,
    /// [`TargetInfo::member`]
    Member(Struct, String),
    /// [`TargetInfo::expand`]
    Expand(Struct),
    /// [`TargetInfo::prototype`]
    Prototype(Option<String>, String),
    /// [`TargetInfo::describes_function`]
    DescribesFunction(String),
    /// [`TargetInfo::kernel_function`]
    KernelFunction(String),
    /// [`TargetInfo::may_call`]
    MayCall(String, u32),
    /// [`TargetInfo::has_tracepoint`]
    HasTracepoint(String, String),
    /// [`TargetInfo::tracepoint`]
    Tracepoint(String, String),
    /// [`TargetInfo::raw_tracepoint`]
    RawTracepoint(String),
    /// [`TargetInfo::syscall_number`]
    SyscallNumber(String),
    /// [`TargetInfo::binary`]
    Binary(PathBuf),
    /// The debug information and the code of a binary.
    Contents(PathBuf),
    /// [`TargetInfo::retval`] of a function, by its name
    Retval(PathBuf, String),
    /// [`TargetInfo::enumerator`]
    Enumerator(String),
    /// [`TargetInfo::kernel_variable`]
    KernelVariable(String),
    /// [`TargetInfo::type_names`]
    TypeNames(TypeName),
    /// [`TargetInfo::described_functions`]
    DescribedFunctions,
    /// [`TargetInfo::functions`]
    Functions,
    /// [`TargetInfo::function_homes`]
    FunctionHomes(String),
    /// [`TargetInfo::text_symbols`]
    TextSymbols(String),
    /// [`TargetInfo::error_injectable`]
    ErrorInjectable(String),
    /// [`TargetInfo::kernel_place`]
    KernelPlace(String, String, u64),
    /// [`TargetInfo::has_module`]
    HasModule(String),
    /// [`TargetInfo::loads_on_demand`]
    LoadsOnDemand(String),
    /// [`TargetInfo::tracepoints`]
    Tracepoints,
    /// [`TargetInfo::matching_tracepoints`]
    MatchingTracepoints(String, String),
    /// [`TargetInfo::matching_raw_tracepoints`]
    MatchingRawTracepoints(String, String),
    /// [`TargetInfo::matching_functions`]
    MatchingFunctions(String, String),
    /// [`TargetInfo::is_dynamic_tracepoint`]
    IsDynamicTracepoint(String, String),
    /// [`TargetInfo::raw_tracepoints`]
    RawTracepoints,
    /// [`TargetInfo::resolve_binary`]
    ResolveBinary(String),
    /// [`TargetInfo::regular_file`]
    RegularFile(String),
    /// [`TargetInfo::markers`]
    Markers(PathBuf),
    /// [`TargetInfo::counts`]
    Counts(u32, u64),
    /// [`TargetInfo::cgroup_id`]
    CgroupId(String),
}

impl Question {
    /// Do the kernel's types alone determine the answer?
    pub(super) fn is_of_types(&self) -> bool {
        match self {
            Question::TypeNamed(..)
            | Question::TypesMissing
            | Question::Member(..)
            | Question::Expand(..)
            | Question::Prototype(..)
            | Question::DescribesFunction(..)
            | Question::KernelFunction(..)
            | Question::RawTracepoint(..)
            | Question::Enumerator(..)
            | Question::KernelVariable(..)
            | Question::TypeNames(..) => true,
            Question::Arch
            | Question::Has(..)
            | Question::PossibleCpus
            | Question::PidNamespace
            | Question::MayCall(..)
            | Question::HasTracepoint(..)
            | Question::Tracepoint(..)
            | Question::SyscallNumber(..)
            | Question::Binary(..)
            | Question::Contents(..)
            | Question::Retval(..)
            | Question::DescribedFunctions
            | Question::Functions
            | Question::FunctionHomes(..)
            | Question::TextSymbols(..)
            | Question::ErrorInjectable(..)
            | Question::KernelPlace(..)
            | Question::HasModule(..)
            | Question::LoadsOnDemand(..)
            | Question::Tracepoints
            | Question::MatchingTracepoints(..)
            | Question::MatchingRawTracepoints(..)
            | Question::MatchingFunctions(..)
            | Question::IsDynamicTracepoint(..)
            | Question::RawTracepoints
            | Question::ResolveBinary(..)
            | Question::RegularFile(..)
            | Question::Markers(..)
            | Question::Counts(..)
            | Question::CgroupId(..) => false,
        }
    }

    /// The digest of a target's answer.
    pub fn answer(&self, sys: &dyn TargetInfo) -> u128 {
        match self {
            Question::Arch => digest(&sys.arch().name),
            Question::Has(feature) => digest(&sys.has(*feature)),
            Question::PossibleCpus => digest(&sys.possible_cpus()),
            Question::PidNamespace => digest(&sys.pid_namespace()),
            Question::TypeNamed(kind, name) => digest(&sys.type_named(*kind, name)),
            Question::TypesMissing => digest(&sys.types_missing()),
            Question::Member(of, name) => digest(&sys.member(of, name)),
            Question::Expand(of) => digest(&sys.expand(of)),
            Question::Prototype(module, name) => digest(&sys.prototype(module.as_deref(), name)),
            Question::DescribesFunction(name) => digest(&sys.describes_function(name)),
            Question::KernelFunction(name) => digest(&sys.kernel_function(name)),
            Question::MayCall(function, program) => digest(&sys.may_call(function, *program)),
            Question::HasTracepoint(category, name) => digest(&sys.has_tracepoint(category, name)),
            Question::Tracepoint(category, name) => digest(&sys.tracepoint(category, name)),
            Question::RawTracepoint(name) => digest(&sys.raw_tracepoint(name)),
            Question::SyscallNumber(name) => digest(&sys.syscall_number(name)),
            Question::Binary(path) | Question::Contents(path) => digest_of_binary(&sys.binary(path)),
            // it does not tell versions of debug information apart, which the contents of the binary do
            Question::Retval(path, function) => digest(&(digest_of_binary(&sys.binary(path)), retval_by_name(sys, path, function))),
            Question::Enumerator(name) => digest(&sys.enumerator(name)),
            Question::KernelVariable(name) => digest(&sys.kernel_variable(name)),
            Question::TypeNames(kind) => digest_of_names(&|each| sys.type_names(*kind, each)),
            Question::DescribedFunctions => digest_of_pairs(&|each| sys.described_functions(each)),
            Question::Functions => digest_of_functions(sys.functions()),
            Question::FunctionHomes(name) => digest(&sys.function_homes(name)),
            Question::TextSymbols(name) => digest(&sys.text_symbols(name)),
            Question::ErrorInjectable(name) => digest(&sys.error_injectable(name)),
            Question::KernelPlace(module, function, by) => digest(&sys.kernel_place(module, function, *by)),
            Question::HasModule(name) => digest(&sys.has_module(name)),
            Question::LoadsOnDemand(name) => digest(&sys.loads_on_demand(name)),
            Question::Tracepoints => digest(&sys.tracepoints()),
            Question::MatchingTracepoints(category, name) => digest(&sys.matching_tracepoints(category, name)),
            Question::MatchingRawTracepoints(module, name) => digest(&sys.matching_raw_tracepoints(module, name)),
            Question::MatchingFunctions(name, module) => digest(&sys.matching_functions(name, module)),
            Question::IsDynamicTracepoint(category, name) => digest(&sys.is_dynamic_tracepoint(category, name)),
            Question::RawTracepoints => digest(&sys.raw_tracepoints()),
            Question::ResolveBinary(name) => digest(&sys.resolve_binary(name, None)),
            Question::RegularFile(name) => digest(&sys.regular_file(name)),
            Question::Markers(path) => digest(&sys.markers(path)),
            Question::Counts(ty, config) => digest(&sys.counts(*ty, *config)),
            Question::CgroupId(path) => digest(&sys.cgroup_id(path)),
        }
    }
}

/// The digest of a value's `Debug` text. It is the same in every run of one build of rbt.
pub fn digest(value: &impl Debug) -> u128 {
    let mut halves = DoubleHasher([DefaultHasher::new(), DefaultHasher::new()]);
    halves.0[1].write_u8(1);
    // writing to a digest does not fail
    let _ = write!(halves, "{value:?}");
    let [low, high] = halves.0.map(|half| half.finish());
    u128::from(high) << 64 | u128::from(low)
}

/// The same for a binary, whose list of functions would take `Debug` a long time. Without a build ID, the debug information of two
/// files may differ although their code is the same. So the file is identified, as this machine has it.
fn digest_of_binary(answer: &Result<Arc<Binary>, Missing>) -> u128 {
    digest_of_binary_with(answer, &|path| {
        let unchanged = cache::unchanged(&path.metadata().ok()?, SystemTime::now());
        unchanged.or_else(|| contents(path))
    })
}

/// The same for files of any machine, whose contents are compared.
pub(super) fn portable_digest_of_binary(answer: &Result<Arc<Binary>, Missing>) -> u128 {
    digest_of_binary_with(answer, &contents)
}

fn contents(path: &Path) -> Option<String> {
    Some(format!("{:x}", cache::digest(&elf::map(path).ok()?)))
}

fn digest_of_binary_with(answer: &Result<Arc<Binary>, Missing>, identify: &dyn Fn(&Path) -> Option<String>) -> u128 {
    match answer {
        Ok(binary) => {
            let mut hasher = DefaultHasher::new();
            (&binary.functions, &binary.objects).hash(&mut hasher);
            let file = if binary.build_id.is_empty() { identify(&binary.path) } else { None };
            digest(&(binary.pie, &binary.segments, &binary.build_id, file, hasher.finish()))
        }
        Err(missing) => digest(missing),
    }
}

/// The type of a function's result in a binary, if both exist, and whether it is text.
pub(super) fn retval_by_name(sys: &dyn TargetInfo, path: &Path, function: &str) -> Result<(Option<Int>, bool), NoLocation> {
    let binary = sys.binary(path).ok();
    let Some(found) = binary.as_ref().and_then(|binary| binary.functions_named(function).next()) else { return Ok((None, false)) };
    Ok((sys.retval(path, found)?, sys.result_type(path, found).is_some_and(|ty| string_layouts::is_text(sys, &ty))))
}

type ListNames<'a> = dyn Fn(&mut dyn FnMut(&str)) + 'a;
type ListPairs<'a> = dyn Fn(&mut dyn FnMut(&str, &str)) + 'a;

/// The same for lists, which are visited name by name in any order.
fn digest_of_names(list: &ListNames) -> u128 {
    let mut names = BTreeSet::new();
    list(&mut |name| {
        names.insert(name.to_owned());
    });
    digest(&names)
}

fn digest_of_pairs(list: &ListPairs) -> u128 {
    let mut names = BTreeSet::new();
    list(&mut |name, of| {
        names.insert((name.to_owned(), of.to_owned()));
    });
    digest(&names)
}

fn digest_of_functions(list: Result<&Functions, Missing>) -> u128 {
    match list {
        Ok(list) => digest(&list.all().map(|f| (f.module, f.name)).collect::<Vec<_>>()),
        Err(missing) => digest(&missing),
    }
}

/// Two 64-bit hashers with different seeds.
struct DoubleHasher([DefaultHasher; 2]);

impl Write for DoubleHasher {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.iter_mut().for_each(|half| half.write(text.as_bytes()));
        Ok(())
    }
}

/// The queries to a target and its answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`TargetInfo::types_identity`]
    types: Option<String>,
    /// The queries, in order, with digests of the answers.
    answers: Vec<(Question, u128)>,
}

impl Record {
    /// Does a target give the same answers? Queries about types are not repeated if the identity of the types is the
    /// same.
    pub fn holds_for(&self, sys: &dyn TargetInfo) -> bool {
        let same_types = self.types.is_some() && self.types == sys.types_identity();
        self.answers.iter().all(|(question, answer)| same_types && question.is_of_types() || question.answer(sys) == *answer)
    }

    /// The queries, in order.
    pub fn into_questions(self) -> impl Iterator<Item = Question> {
        self.answers.into_iter().map(|(question, _)| question)
    }
}

/// A target in front of another, which records the queries to it.
pub struct Recorder<'a> {
    sys: &'a dyn TargetInfo,
    queried: RefCell<HashSet<Question>>,
    /// In order, with the digests of the answers.
    answers: RefCell<Vec<(Question, u128)>>,
    /// There was a query that is not a [`Question`].
    unrecorded: Cell<bool>,
    /// There was a query whose answer is valid for one machine only, or until the next boot.
    local: Cell<Option<&'static str>>,
}

impl<'a> Recorder<'a> {
    /// Passes queries on to `sys`.
    pub fn new(sys: &'a dyn TargetInfo) -> Self {
        Self { sys, queried: RefCell::default(), answers: RefCell::default(), unrecorded: Cell::new(false), local: Cell::new(None) }
    }

    /// The queries; none if one of them cannot be stored.
    pub fn recorded(self) -> Option<Record> {
        (!self.unrecorded.get()).then(|| Record { types: self.sys.types_identity(), answers: self.answers.take() })
    }

    /// The queries, except for those that only affect messages, and those about headers, which are part of the script.
    ///
    /// # Errors
    /// A query whose answer is valid here only.
    pub fn portable(self) -> Result<Record, &'static str> {
        match self.local.get() {
            Some(what) => Err(what),
            None => Ok(Record { types: self.sys.types_identity(), answers: self.answers.take() }),
        }
    }

    fn local(&self, what: &'static str) {
        self.unrecorded.set(true);
        self.local.set(Some(what));
    }

    /// Records a query about the contents of a binary.
    fn contents(&self, path: &Path) {
        self.record_as(Question::Contents(path.into()), || digest_of_binary(&self.sys.binary(path)));
    }

    /// Records a query, and returns its answer.
    fn record<T: Debug>(&self, question: Question, answer: T) -> T {
        self.record_as(question, || digest(&answer));
        answer
    }

    fn record_as(&self, question: Question, digest: impl FnOnce() -> u128) {
        if self.queried.borrow_mut().insert(question.clone()) {
            self.answers.borrow_mut().push((question, digest()));
        }
    }
}

impl TargetInfo for Recorder<'_> {
    fn for_messages(&self) -> &dyn TargetInfo {
        self.sys.for_messages()
    }

    fn arch(&self) -> &'static Arch {
        let arch = self.sys.arch();
        self.record_as(Question::Arch, || digest(&arch.name));
        arch
    }

    // it affects a note only
    fn knows_cgroups(&self) -> bool {
        self.sys.knows_cgroups()
    }

    fn has(&self, feature: Feature) -> bool {
        self.record(Question::Has(feature), self.sys.has(feature))
    }

    fn possible_cpus(&self) -> u32 {
        self.record(Question::PossibleCpus, self.sys.possible_cpus())
    }

    fn pid_namespace(&self) -> Option<(u64, u64)> {
        self.record(Question::PidNamespace, self.sys.pid_namespace())
    }

    fn type_named(&self, kind: TypeName, name: &str) -> Option<Type> {
        self.record(Question::TypeNamed(kind, name.into()), self.sys.type_named(kind, name))
    }

    fn types_missing(&self) -> Option<Missing> {
        self.record(Question::TypesMissing, self.sys.types_missing())
    }

    fn member(&self, structure: &Struct, name: &str) -> Option<Field> {
        self.record(Question::Member(structure.clone(), name.into()), self.sys.member(structure, name))
    }

    fn expand(&self, structure: &Struct) -> Option<types::Record> {
        self.record(Question::Expand(structure.clone()), self.sys.expand(structure))
    }

    fn prototype(&self, module: Option<&str>, name: &str) -> Option<Prototype> {
        self.record(Question::Prototype(module.map(Into::into), name.into()), self.sys.prototype(module, name))
    }

    fn describes_function(&self, name: &str) -> bool {
        self.record(Question::DescribesFunction(name.into()), self.sys.describes_function(name))
    }

    fn kernel_function(&self, name: &str) -> Option<u32> {
        self.record(Question::KernelFunction(name.into()), self.sys.kernel_function(name))
    }

    fn may_call(&self, function: &str, program_type: u32) -> bool {
        self.record(Question::MayCall(function.into(), program_type), self.sys.may_call(function, program_type))
    }

    fn has_tracepoint(&self, category: &str, name: &str) -> Result<bool, Missing> {
        self.record(Question::HasTracepoint(category.into(), name.into()), self.sys.has_tracepoint(category, name))
    }

    fn tracepoint(&self, category: &str, name: &str) -> Result<Option<Tracepoint>, Missing> {
        self.record(Question::Tracepoint(category.into(), name.into()), self.sys.tracepoint(category, name))
    }

    fn raw_tracepoint(&self, name: &str) -> Option<Vec<(String, Type)>> {
        self.record(Question::RawTracepoint(name.into()), self.sys.raw_tracepoint(name))
    }

    fn syscall_number(&self, name: &str) -> Option<u32> {
        self.record(Question::SyscallNumber(name.into()), self.sys.syscall_number(name))
    }

    fn binary(&self, path: &Path) -> Result<Arc<Binary>, Missing> {
        let binary = self.sys.binary(path);
        self.record_as(Question::Binary(path.into()), || digest_of_binary(&binary));
        binary
    }

    fn enumerator(&self, name: &str) -> Option<(Arc<Enum>, i64)> {
        self.record(Question::Enumerator(name.into()), self.sys.enumerator(name))
    }

    fn kernel_variable(&self, name: &str) -> Option<String> {
        self.record(Question::KernelVariable(name.into()), self.sys.kernel_variable(name))
    }

    fn type_names(&self, kind: TypeName, each: &mut dyn FnMut(&str)) {
        self.record_as(Question::TypeNames(kind), || digest_of_names(&|each| self.sys.type_names(kind, each)));
        self.sys.type_names(kind, each);
    }

    fn described_functions(&self, each: &mut dyn FnMut(&str, &str)) {
        self.record_as(Question::DescribedFunctions, || digest_of_pairs(&|each| self.sys.described_functions(each)));
        self.sys.described_functions(each);
    }

    fn functions(&self) -> Result<&Functions, Missing> {
        self.record_as(Question::Functions, || digest_of_functions(self.sys.functions()));
        self.sys.functions()
    }

    fn function_homes(&self, name: &str) -> Result<Vec<FunctionLocation>, Missing> {
        self.record(Question::FunctionHomes(name.into()), self.sys.function_homes(name))
    }

    fn text_symbols(&self, name: &str) -> Symbols {
        self.record(Question::TextSymbols(name.into()), self.sys.text_symbols(name))
    }

    fn error_injectable(&self, function: &str) -> Option<bool> {
        self.record(Question::ErrorInjectable(function.into()), self.sys.error_injectable(function))
    }

    fn kernel_place(&self, module: &str, function: &str, offset: u64) -> Result<InstructionBoundary, Missing> {
        self.record(Question::KernelPlace(module.into(), function.into(), offset), self.sys.kernel_place(module, function, offset))
    }

    fn has_module(&self, name: &str) -> bool {
        self.record(Question::HasModule(name.into()), self.sys.has_module(name))
    }

    fn loads_on_demand(&self, module: &str) -> bool {
        self.record(Question::LoadsOnDemand(module.into()), self.sys.loads_on_demand(module))
    }

    fn tracepoints(&self) -> Result<&[(String, String)], Missing> {
        self.record(Question::Tracepoints, self.sys.tracepoints())
    }

    fn matching_tracepoints(&self, category: &str, name: &str) -> Result<Vec<(String, String)>, Missing> {
        self.record(Question::MatchingTracepoints(category.into(), name.into()), self.sys.matching_tracepoints(category, name))
    }

    fn matching_raw_tracepoints(&self, module: &str, name: &str) -> Result<Vec<(String, String)>, Missing> {
        self.record(Question::MatchingRawTracepoints(module.into(), name.into()), self.sys.matching_raw_tracepoints(module, name))
    }

    fn matching_functions(&self, name: &str, module: &str) -> Result<Vec<MatchingFunction>, Missing> {
        self.record(Question::MatchingFunctions(name.into(), module.into()), self.sys.matching_functions(name, module))
    }

    fn is_dynamic_tracepoint(&self, category: &str, name: &str) -> bool {
        self.record(Question::IsDynamicTracepoint(category.into(), name.into()), self.sys.is_dynamic_tracepoint(category, name))
    }

    fn raw_tracepoints(&self) -> Result<&[(String, String)], Missing> {
        self.record(Question::RawTracepoints, self.sys.raw_tracepoints())
    }

    fn resolve_binary(&self, name: &str, pid: Option<u32>) -> Result<Vec<BinaryFile>, Missing> {
        let found = self.sys.resolve_binary(name, pid);
        match pid {
            Some(_) => self.local("a file of the process of -p"),
            None => self.record_as(Question::ResolveBinary(name.into()), || digest(&found)),
        }
        found
    }

    fn regular_file(&self, name: &str) -> Option<PathBuf> {
        self.record(Question::RegularFile(name.into()), self.sys.regular_file(name))
    }

    fn markers(&self, path: &Path) -> Result<Vec<Marker>, Missing> {
        self.record(Question::Markers(path.into()), self.sys.markers(path))
    }

    fn counts(&self, ty: u32, config: u64) -> Option<bool> {
        self.record(Question::Counts(ty, config), self.sys.counts(ty, config))
    }

    fn cgroup_id(&self, path: &str) -> Result<u64, Missing> {
        self.record(Question::CgroupId(path.into()), self.sys.cgroup_id(path))
    }

    fn type_in_binary(&self, path: &Path, offset: u64, kind: TypeName, name: &str) -> Result<Option<Type>, AmbiguousType> {
        self.contents(path);
        self.sys.type_in_binary(path, offset, kind, name)
    }

    fn enumerators_in_binary(&self, path: &Path, offset: u64, name: &str) -> Vec<(Arc<Enum>, i64)> {
        self.contents(path);
        self.sys.enumerators_in_binary(path, offset, name)
    }

    fn arguments(&self, path: &Path, function: &Function) -> Result<Option<Vec<Argument>>, Missing> {
        self.contents(path);
        self.sys.arguments(path, function)
    }

    fn source_line(&self, path: &Path, file: &str, line: u32, column: Option<u32>) -> Result<Line, Missing> {
        self.contents(path);
        self.sys.source_line(path, file, line, column)
    }

    fn inlined(&self, path: &Path, function: &str) -> Option<Inlined> {
        self.contents(path);
        self.sys.inlined(path, function)
    }

    fn retval(&self, path: &Path, function: &Function) -> Result<Option<Int>, NoLocation> {
        let question = Question::Retval(path.into(), function.name.clone());
        self.record_as(question.clone(), || question.answer(self.sys));
        self.sys.retval(path, function)
    }

    fn result_type(&self, path: &Path, function: &Function) -> Option<Type> {
        let question = Question::Retval(path.into(), function.name.clone());
        self.record_as(question.clone(), || question.answer(self.sys));
        let ty = self.sys.result_type(path, function)?;
        // the layout of the text is that of this file
        if string_layouts::is_text(self.sys, &ty) {
            self.contents(path);
        }
        Some(ty)
    }

    fn never_returns(&self, path: &Path, function: &Function) -> bool {
        self.contents(path);
        self.sys.never_returns(path, function)
    }

    // queries for messages, for headers, and of user space
    forward! { sys, |me| me.unrecorded.set(true);
        arch_of_binary(path: &Path) -> &'static Arch;
        types_missing_in_binary(path: &Path) -> Option<Missing>;
        types_identity() -> Option<String>;
        forget_searches() -> ();
        event_id(category: &str, name: &str) -> Result<Option<u64>, Missing>;
        c_macro(name: &str) -> Option<CMacro>;
        why_unknown(name: &str) -> Option<String>;
        file(path: &Path) -> Option<String>;
        file_unread(path: &Path) -> Option<String>;
        header_folders() -> Vec<HeaderFolder>;
        kernel_types() -> Option<&KernelTypes>;
        hidden_symbols() -> Option<String>;
        most_samples() -> Option<u64>;
        online_cpus() -> Vec<u32>;
    }

    forward! { sys, |me| me.local("the address of a kernel symbol");
        kernel_symbol(name: &str) -> Option<u64>;
    }

    forward! { sys, |me| me.local("the list of BPF programs");
        running_programs() -> Result<Vec<ProgramFunction>, Missing>;
    }
}

/// The subject of a query, for messages.
impl Display for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Question::Arch => write!(f, "the processor architecture"),
            Question::Has(feature) => write!(f, "the kernel feature \"{}\"", feature.title()),
            Question::PossibleCpus => write!(f, "the number of possible CPUs"),
            Question::PidNamespace => write!(f, "the PID namespace"),
            Question::TypeNamed(_, name) => write!(f, "the type {name}"),
            Question::TypesMissing => write!(f, "the availability of kernel types (BTF)"),
            Question::Member(of, name) => write!(f, "the member {name} of {}", of.name),
            Question::Expand(of) => write!(f, "the members of {}", of.name),
            Question::Prototype(_, name) | Question::DescribesFunction(name) => write!(f, "the prototype of the kernel function {name}"),
            Question::KernelFunction(name) | Question::MayCall(name, _) => write!(f, "the kernel function {name} that BPF programs call"),
            Question::HasTracepoint(category, name)
            | Question::Tracepoint(category, name)
            | Question::IsDynamicTracepoint(category, name) => write!(f, "the tracepoint {category}:{name}"),
            Question::RawTracepoint(name) => write!(f, "the raw tracepoint {name}"),
            Question::SyscallNumber(name) => write!(f, "the number of the system call {name}"),
            Question::Binary(path) => write!(f, "the file {}", path.display()),
            Question::Contents(path) => write!(f, "the contents of the file {}", path.display()),
            Question::Retval(_, function) => write!(f, "the result of the function {function}"),
            Question::Enumerator(name) => write!(f, "the constant {name}"),
            Question::KernelVariable(name) => write!(f, "the kernel variable {name}"),
            Question::TypeNames(_) => write!(f, "the list of the kernel's types"),
            Question::DescribedFunctions => write!(f, "the list of the kernel's functions in BTF"),
            Question::Functions => write!(f, "the list of traceable kernel functions"),
            Question::FunctionHomes(name) | Question::TextSymbols(name) | Question::ErrorInjectable(name) => {
                write!(f, "the kernel function {name}")
            }
            Question::KernelPlace(_, function, by) => write!(f, "the instruction at {function}+{by}"),
            Question::HasModule(name) | Question::LoadsOnDemand(name) => write!(f, "the kernel module {name}"),
            Question::Tracepoints => write!(f, "the list of tracepoints"),
            Question::MatchingTracepoints(category, name) => write!(f, "the tracepoints that match {category}:{name}"),
            Question::MatchingRawTracepoints(module, name) => write!(f, "the raw tracepoints that match {module}:{name}"),
            Question::MatchingFunctions(name, _) => write!(f, "the kernel functions that match {name}"),
            Question::RawTracepoints => write!(f, "the list of raw tracepoints"),
            Question::ResolveBinary(name) => write!(f, "the path of {name}"),
            Question::RegularFile(name) => write!(f, "the file {name}"),
            Question::Markers(path) => write!(f, "the markers of {}", path.display()),
            Question::Counts(..) => write!(f, "the perf events of the processor"),
            Question::CgroupId(path) => write!(f, "the ID of the cgroup {path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::fake::Fake;

    #[test]
    fn answers_can_be_compared_again() {
        let fake = Fake::new("").unwrap();
        let recorder = Recorder::new(&fake);
        recorder.has(Feature::Loop);
        recorder.has(Feature::Loop);
        recorder.possible_cpus();
        let recorded = recorder.recorded().unwrap();
        assert_eq!(recorded.answers.len(), 2);
        assert!(recorded.holds_for(&fake));
        assert!(!recorded.holds_for(&Fake::new("cpus 77").unwrap()));
    }

    #[test]
    fn a_pattern_depends_on_what_matches_it() {
        let before = Fake::new("tracepoint a:one { int n; }").unwrap();
        let recorder = Recorder::new(&before);
        recorder.matching_tracepoints("a", "o*").unwrap();
        let recorded = recorder.recorded().unwrap();
        assert!(recorded.holds_for(&Fake::new("tracepoint a:one { int n; } tracepoint a:two { int n; }").unwrap()));
        assert!(!recorded.holds_for(&Fake::new("tracepoint a:one { int n; } tracepoint a:other { int n; }").unwrap()));
        assert!(!recorded.holds_for(&Fake::new("tracepoint a:two { int n; }").unwrap()));
    }

    #[test]
    fn questions_for_messages_are_not_recorded() {
        let fake = Fake::new("tracepoint a:one { int n; }").unwrap();
        let recorder = Recorder::new(&fake);
        assert_eq!(recorder.for_messages().tracepoints().unwrap().len(), 1);
        assert!(recorder.recorded().unwrap().answers.is_empty());
    }

    #[test]
    fn unrepeatable_questions_are_not_recorded() {
        let fake = Fake::new("").unwrap();
        let recorder = Recorder::new(&fake);
        recorder.online_cpus();
        assert_eq!(recorder.recorded(), None);
    }
}
