//! Records what is asked of a target, so that somebody can ask again later and see whether the answers are still the same.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt::{Debug, Write};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::binary::instructions::Placed;
use super::forward::forward;
use super::kernel::functions::{Functions, Symbols};
use super::kernel_types::{KernelTypes, Prototype};
use super::machine::arch::Arch;
use super::machine::programs::ProgramFunction;
use super::{
    Argument, Binary, CMacro, Feature, Function, HeaderFolder, Home, Inlined, Line, Marker, Missing, TargetInfo, Tracepoint, TypeName,
};
use crate::types::{self, Enum, Field, Struct, Type};

/// A question that can be kept and asked again: one of those that code generation asks.
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
}

impl Question {
    /// Do the kernel's types alone decide the answer?
    fn is_of_types(&self) -> bool {
        match self {
            Question::TypeNamed(..)
            | Question::TypesMissing
            | Question::Member(..)
            | Question::Expand(..)
            | Question::Prototype(..)
            | Question::DescribesFunction(..)
            | Question::KernelFunction(..)
            | Question::RawTracepoint(..) => true,
            Question::Arch
            | Question::Has(..)
            | Question::PossibleCpus
            | Question::PidNamespace
            | Question::MayCall(..)
            | Question::HasTracepoint(..)
            | Question::Tracepoint(..)
            | Question::SyscallNumber(..)
            | Question::Binary(..) => false,
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
            Question::Binary(path) => digest_of_binary(&sys.binary(path)),
        }
    }
}

/// The digest of all that a value's `Debug` shows. It is the same in every run of one build of rbt.
pub fn digest(value: &impl Debug) -> u128 {
    let mut halves = DoubleHasher([DefaultHasher::new(), DefaultHasher::new()]);
    halves.0[1].write_u8(1);
    // writing to a digest does not fail
    let _ = write!(halves, "{value:?}");
    let [low, high] = halves.0.map(|half| half.finish());
    u128::from(high) << 64 | u128::from(low)
}

/// The same for a binary, whose list of functions `Debug` would take long to show.
fn digest_of_binary(answer: &Result<Arc<Binary>, Missing>) -> u128 {
    match answer {
        Ok(binary) => {
            let mut hasher = DefaultHasher::new();
            (&binary.functions, &binary.objects).hash(&mut hasher);
            digest(&(&binary.path, binary.pie, &binary.segments, hasher.finish()))
        }
        Err(missing) => digest(missing),
    }
}

/// Two digests of 64 bits, which differ from the start.
struct DoubleHasher([DefaultHasher; 2]);

impl Write for DoubleHasher {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.iter_mut().for_each(|half| half.write(text.as_bytes()));
        Ok(())
    }
}

/// What a target was asked and what it answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`TargetInfo::types_identity`]
    types: Option<String>,
    /// The questions, in order, with digests of the answers.
    answers: Vec<(Question, u128)>,
}

impl Record {
    /// Does a target give the same answers? Questions about types are not asked if their identity is the same.
    pub fn holds_for(&self, sys: &dyn TargetInfo) -> bool {
        let same_types = self.types.is_some() && self.types == sys.types_identity();
        self.answers.iter().all(|(question, answer)| same_types && question.is_of_types() || question.answer(sys) == *answer)
    }
}

/// A target in front of another, which records what it is asked.
pub struct Recorder<'a> {
    sys: &'a dyn TargetInfo,
    asked: RefCell<HashSet<Question>>,
    /// In order, with the digests of the answers.
    answers: RefCell<Vec<(Question, u128)>>,
    /// Something was asked that is no [`Question`].
    unrecorded: Cell<bool>,
}

impl<'a> Recorder<'a> {
    /// Answers as `sys` does.
    pub fn new(sys: &'a dyn TargetInfo) -> Self {
        Self { sys, asked: RefCell::default(), answers: RefCell::default(), unrecorded: Cell::new(false) }
    }

    /// What was asked; none if a question cannot be kept.
    pub fn recorded(self) -> Option<Record> {
        (!self.unrecorded.get()).then(|| Record { types: self.sys.types_identity(), answers: self.answers.take() })
    }

    /// Records a question, and passes on its answer.
    fn record<T: Debug>(&self, question: Question, answer: T) -> T {
        self.record_as(question, || digest(&answer));
        answer
    }

    fn record_as(&self, question: Question, digest: impl FnOnce() -> u128) {
        if self.asked.borrow_mut().insert(question.clone()) {
            self.answers.borrow_mut().push((question, digest()));
        }
    }
}

impl TargetInfo for Recorder<'_> {
    fn arch(&self) -> &'static Arch {
        let arch = self.sys.arch();
        self.record_as(Question::Arch, || digest(&arch.name));
        arch
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

    fn member(&self, of: &Struct, name: &str) -> Option<Field> {
        self.record(Question::Member(of.clone(), name.into()), self.sys.member(of, name))
    }

    fn expand(&self, of: &Struct) -> Option<types::Record> {
        self.record(Question::Expand(of.clone()), self.sys.expand(of))
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

    forward! { sys, |me| me.unrecorded.set(true);
        type_in_binary(path: &Path, kind: TypeName, name: &str) -> Option<Type>;
        types_missing_in_binary(path: &Path) -> Option<Missing>;
        enumerator_in_binary(path: &Path, name: &str) -> Option<(Arc<Enum>, i64)>;
        arguments(path: &Path, function: &Function) -> Result<Option<Vec<Argument>>, Missing>;
        source_line(path: &Path, file: &str, line: u32, column: Option<u32>) -> Result<Line, Missing>;
        inlined(path: &Path, function: &str) -> Option<Inlined>;
        never_returns(path: &Path, function: &Function) -> bool;
        types_identity() -> Option<String>;
        enumerator(name: &str) -> Option<(Arc<Enum>, i64)>;
        c_macro(name: &str) -> Option<CMacro>;
        why_unknown(name: &str) -> Option<String>;
        type_names(kind: TypeName, each: &mut dyn FnMut(&str)) -> ();
        file(path: &Path) -> Option<String>;
        header_folders() -> Vec<HeaderFolder>;
        tracepoints() -> Result<&[(String, String)], Missing>;
        is_dynamic_tracepoint(category: &str, name: &str) -> bool;
        raw_tracepoints() -> Result<&[(String, String)], Missing>;
        kernel_variable(name: &str) -> Option<String>;
        functions() -> Result<&Functions, Missing>;
        function_homes(name: &str) -> Result<Vec<Home>, Missing>;
        kernel_types() -> Option<&KernelTypes>;
        described_functions(each: &mut dyn FnMut(&str, &str)) -> ();
        text_symbols(name: &str) -> Symbols;
        error_injectable(function: &str) -> Option<bool>;
        running_programs() -> Result<Vec<ProgramFunction>, Missing>;
        has_module(name: &str) -> bool;
        loads_on_demand(module: &str) -> bool;
        hidden_symbols() -> Option<String>;
        kernel_place(module: &str, function: &str, by: u64) -> Result<Placed, Missing>;
        kernel_symbol(name: &str) -> Option<u64>;
        resolve_binary(name: &str, pid: Option<u32>) -> Result<Vec<PathBuf>, Missing>;
        regular_file(name: &str) -> Option<PathBuf>;
        markers(path: &Path) -> Result<Vec<Marker>, Missing>;
        counts(ty: u32, config: u64) -> Option<bool>;
        most_samples() -> Option<u64>;
        online_cpus() -> Vec<u32>;
        cgroup_id(path: &str) -> Result<u64, Missing>;
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::*;

    #[test]
    fn questions_are_asked_again() {
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
    fn what_cannot_be_asked_again_is_known() {
        let fake = Fake::new("").unwrap();
        let recorder = Recorder::new(&fake);
        recorder.online_cpus();
        assert_eq!(recorder.recorded(), None);
    }
}
