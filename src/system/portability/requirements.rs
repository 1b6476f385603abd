//! What a compiled script requires of any kernel that runs it.
//!
//! The queries made when it was compiled are repeated, by name: an ID is valid for one kernel build only. The answers
//! are compared by digests, which leave out the parts that may differ: numbers for which the code has relocations, and
//! facts that were shown to have no effect on the code.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::questions::{Question, digest, digest_of_binary, retval_by_name};
use crate::system::kernel_types::Prototype;
use crate::system::machine::live::BINARY_IDS;
use crate::system::{Binary, BinaryFile, Feature, Function, Marker, MatchingFunction, Missing, TargetInfo, Tracepoint, TracepointField};
use crate::types::{Enum, Field, Record, Struct, Type};

/// A part of an answer that may differ between kernels.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Part {
    /// The offset of a member.
    Offset,
    /// The size of a struct in the answer's types, by its place.
    Size(StructPosition),
    /// The names and values of the enumerations in it.
    Variants,
    /// A field of a tracepoint.
    Field(String),
    /// The offset of a field of a tracepoint.
    FieldOffset(String),
    /// More fields of a tracepoint.
    MoreFields,
    /// All fields of a tracepoint except these.
    OtherFields(BTreeSet<String>),
    /// The name of a function's parameter, and its type, which has the size of a register.
    Param(u16),
    /// More parameters.
    MoreParams,
    /// The parameters from this one on.
    ParamsFrom(u16),
    /// A feature, which may be missing.
    Feature,
    /// The number of processors.
    Cpus,
    /// The number of processors, up to this limit.
    AtMost(u32),
    /// The PID namespace.
    Namespace,
    /// Paths of files, and places in them.
    Places,
    /// Names that a pattern matches, or by which files are found.
    Names,
    /// Everything.
    All,
}

/// The end of the names that are added to an answer to find out whether the code depends on the set.
pub(in crate::system) const ADDED: &str = "_rbt";
/// The number of an added system call.
pub(in crate::system) const ADDED_SYSCALL: u32 = 1000;
/// The start of the path of a file that has been moved to find out whether the code depends on the path.
const MOVED: &str = "/rbt-moved";

/// Where a file was before it was moved.
pub(in crate::system) fn unmoved(path: &Path) -> &Path {
    let before = path.as_os_str().as_bytes().strip_prefix(MOVED.as_bytes()).filter(|rest| rest.starts_with(b"/"));
    before.map_or(path, |rest| Path::new(OsStr::from_bytes(rest)))
}

fn moved(path: &Path) -> PathBuf {
    let mut to = OsString::from(MOVED);
    to.push(path);
    to.into()
}

/// How [`Part::Names`] varies.
pub mod names {
    use super::Change;

    /// There are more names.
    pub const MORE: Change = Change::To(1);
    /// The first half of them. (The mechanism may depend on whether there are many.)
    pub const FIRST: Change = Change::To(2);
    /// The other half.
    pub const LAST: Change = Change::To(3);
}

/// The place of a struct in the types of an answer: the field or parameter, and its number within that type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StructPosition {
    name: String,
    number: u16,
}

/// An answer, reduced to its relevant parts.
#[derive(Clone, Debug)]
pub(in crate::system) enum Answer {
    Type(Option<Type>),
    Field(Option<Field>),
    Record(Option<Record>),
    Prototype(Option<Prototype>),
    Params(Option<Vec<(String, Type)>>),
    Tracepoint(Result<Option<Tracepoint>, Missing>),
    Enumerator(Option<(Arc<Enum>, i64)>),
    Feature(bool),
    Cpus(u32),
    Namespace(Option<(u64, u64)>),
    Files(Result<Vec<BinaryFile>, Missing>),
    Binary(Result<Arc<Binary>, Missing>),
    Markers(Result<Vec<Marker>, Missing>),
    Functions(Result<Vec<MatchingFunction>, Missing>),
    Tracepoints(Result<Vec<(String, String)>, Missing>),
    Other(u128),
}

/// How a part of an answer is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is left out; a number becomes zero.
    Omit,
    /// It becomes this number; a set gets this as an additional member.
    To(u32),
}

/// A struct or enumeration in a type.
enum Named<'a> {
    Struct(&'a mut Struct),
    Enum(&'a mut Enum),
}

fn walk(ty: &mut Type, name: &str, number: &mut u16, visit: &mut dyn FnMut(StructPosition, Named)) {
    match ty {
        Type::Struct(of) => {
            visit(StructPosition { name: name.into(), number: *number }, Named::Struct(Arc::make_mut(of)));
            *number = number.saturating_add(1);
        }
        Type::Enum(of) => visit(StructPosition { name: name.into(), number: *number }, Named::Enum(Arc::make_mut(of))),
        Type::Ptr(to, _) | Type::Array(to, _) => walk(to, name, number, visit),
        Type::Record(of) => Arc::make_mut(of).fields.iter_mut().for_each(|field| walk(&mut field.ty, name, number, visit)),
        Type::Tuple(parts) => parts.iter_mut().for_each(|part| walk(part, name, number, visit)),
        Type::Void | Type::Bool | Type::Int(_) | Type::Str(_) | Type::Buf(_) | Type::Deferred(_) | Type::Agg(_) | Type::Args => {}
    }
}

fn set(number: &mut u32, change: Option<Change>) {
    match change {
        Some(Change::Omit) => *number = 0,
        Some(Change::To(other)) => *number = other,
        None => {}
    }
}

impl Answer {
    /// A target's answer to a query.
    #[allow(clippy::wildcard_enum_match_arm)] // most queries are handled alike
    pub fn query(question: &Question, sys: &dyn TargetInfo) -> Self {
        match question {
            Question::TypeNamed(kind, name) => Answer::Type(sys.type_named(*kind, name)),
            Question::Member(of, name) => Answer::Field(sys.member(of, name)),
            Question::Expand(of) => Answer::Record(sys.expand(of)),
            Question::Prototype(module, name) => Answer::Prototype(sys.prototype(module.as_deref(), name)),
            Question::RawTracepoint(name) => Answer::Params(sys.raw_tracepoint(name)),
            Question::Tracepoint(category, name) => Answer::Tracepoint(sys.tracepoint(category, name)),
            Question::Enumerator(name) => Answer::Enumerator(sys.enumerator(name)),
            Question::Has(feature) => Answer::Feature(sys.has(*feature)),
            Question::PossibleCpus => Answer::Cpus(sys.possible_cpus()),
            Question::PidNamespace => Answer::Namespace(sys.pid_namespace()),
            Question::ResolveBinary(name) => Answer::Files(sys.resolve_binary(name, None)),
            Question::Binary(path) => Answer::Binary(sys.binary(path)),
            Question::Markers(path) => Answer::Markers(sys.markers(path)),
            Question::MatchingFunctions(name, module) => Answer::Functions(sys.matching_functions(name, module)),
            Question::MatchingTracepoints(category, name) => Answer::Tracepoints(sys.matching_tracepoints(category, name)),
            Question::Contents(path) => Answer::Other(digest_of_contents(sys.binary(path))),
            Question::Retval(path, function) => Answer::Other(digest(&retval_by_name(sys, path, function))),
            // its number is valid for one kernel build only
            Question::KernelFunction(name) => Answer::Other(sys.kernel_function(name).is_some().into()),
            // by its digest, as for the same kernel
            other => Answer::Other(other.answer(sys)),
        }
    }

    fn each_type(&mut self, visit: &mut dyn FnMut(&str, &mut Type)) {
        match self {
            Answer::Type(Some(ty)) => visit("", ty),
            Answer::Field(Some(field)) => visit("", &mut field.ty),
            Answer::Record(Some(record)) => record.fields.iter_mut().for_each(|field| visit(&field.name, &mut field.ty)),
            Answer::Prototype(Some(of)) => {
                visit("", &mut of.returns);
                of.params.iter_mut().for_each(|(name, ty)| visit(name, ty));
            }
            Answer::Params(Some(params)) => params.iter_mut().for_each(|(name, ty)| visit(name, ty)),
            Answer::Tracepoint(Ok(Some(of))) => of.fields.iter_mut().for_each(|f| visit(&f.field.name, &mut f.field.ty)),
            Answer::Type(None)
            | Answer::Field(None)
            | Answer::Record(None)
            | Answer::Prototype(None)
            | Answer::Params(None)
            | Answer::Tracepoint(_)
            | Answer::Enumerator(_)
            | Answer::Feature(_)
            | Answer::Cpus(_)
            | Answer::Namespace(_)
            | Answer::Files(_)
            | Answer::Binary(_)
            | Answer::Markers(_)
            | Answer::Functions(_)
            | Answer::Tracepoints(_)
            | Answer::Other(_) => {}
        }
    }

    fn each_named(&mut self, visit: &mut dyn FnMut(StructPosition, Named)) {
        let mut numbers: HashMap<String, u16> = HashMap::new();
        self.each_type(&mut |name, ty| walk(ty, name, numbers.entry(name.into()).or_default(), visit));
    }

    /// The structs in it.
    pub fn structs(&self) -> Vec<(StructPosition, Struct)> {
        let mut found = Vec::new();
        self.clone().each_named(&mut |place, named| {
            if let Named::Struct(structure) = named {
                found.push((place, structure.clone()));
            }
        });
        found
    }

    /// Its parts, and their values if they are numbers.
    pub fn parts(&self) -> Vec<(Part, Option<u32>)> {
        let mut parts: Vec<(Part, Option<u32>)> = match self {
            Answer::Field(Some(field)) => vec![(Part::Offset, Some(field.offset))],
            Answer::Tracepoint(Ok(Some(of))) => {
                let both = |f: &TracepointField| {
                    let name = f.field.name.clone();
                    [(Part::Field(name.clone()), None), (Part::FieldOffset(name), Some(f.field.offset))]
                };
                of.fields.iter().flat_map(both).chain([(Part::MoreFields, None)]).collect()
            }
            Answer::Prototype(Some(Prototype { params, .. })) | Answer::Params(Some(params)) => {
                let in_register = params.iter().zip(0u16..).filter(|((_, ty), _)| is_in_register(ty));
                in_register.map(|(_, number)| (Part::Param(number), None)).chain([(Part::MoreParams, None)]).collect()
            }
            Answer::Feature(true) => vec![(Part::Feature, None)],
            Answer::Cpus(n) => vec![(Part::Cpus, Some(*n))],
            Answer::Namespace(_) => vec![(Part::Namespace, None)],
            Answer::Files(Ok(_)) | Answer::Binary(Ok(_)) | Answer::Markers(Ok(_)) => vec![(Part::Places, None), (Part::Names, None)],
            Answer::Functions(Ok(_)) | Answer::Tracepoints(Ok(_)) => vec![(Part::Names, None)],
            Answer::Type(_)
            | Answer::Field(None)
            | Answer::Record(_)
            | Answer::Prototype(None)
            | Answer::Params(None)
            | Answer::Tracepoint(_)
            | Answer::Enumerator(_)
            | Answer::Feature(false)
            | Answer::Files(Err(_))
            | Answer::Binary(Err(_))
            | Answer::Markers(Err(_))
            | Answer::Functions(Err(_))
            | Answer::Tracepoints(Err(_))
            | Answer::Other(_) => Vec::new(),
        };
        let mut varies = matches!(self, Answer::Enumerator(Some(_)));
        self.clone().each_named(&mut |place, named| match named {
            Named::Struct(of) => parts.push((Part::Size(place), Some(of.size))),
            Named::Enum(_) => varies = true,
        });
        parts.extend(varies.then_some((Part::Variants, None)));
        parts
    }

    /// Changes parts.
    pub fn change(&mut self, how: &dyn Fn(&Part) -> Option<Change>) {
        match self {
            Answer::Field(Some(field)) => set(&mut field.offset, how(&Part::Offset)),
            Answer::Tracepoint(Ok(Some(of))) => {
                of.fields.retain_mut(|f| {
                    set(&mut f.field.offset, how(&Part::FieldOffset(f.field.name.clone())));
                    how(&Part::Field(f.field.name.clone())).is_none()
                });
                if how(&Part::MoreFields).is_some() {
                    of.fields.push(added_field(&of.fields));
                }
            }
            Answer::Prototype(Some(Prototype { params, .. })) | Answer::Params(Some(params)) => {
                for (number, (name, ty)) in (0u16..).zip(params.iter_mut()).filter(|(_, (_, ty))| is_in_register(ty)) {
                    if how(&Part::Param(number)).is_some() {
                        (*name, *ty) = (ADDED.into(), Type::U64);
                    }
                }
                if how(&Part::MoreParams).is_some() {
                    params.push((ADDED.into(), Type::U64));
                }
            }
            Answer::Feature(has) => *has &= how(&Part::Feature).is_none(),
            Answer::Cpus(n) => set(n, how(&Part::Cpus)),
            Answer::Namespace(of) => match how(&Part::Namespace) {
                Some(Change::Omit) => *of = None,
                Some(Change::To(n)) => *of = Some((n.into(), n.into())),
                None => {}
            },
            Answer::Enumerator(Some((of, _))) => vary(Arc::make_mut(of), how(&Part::Variants)),
            Answer::Files(Ok(files)) => {
                if how(&Part::Places).is_some() {
                    files.iter_mut().for_each(|file| file.path = moved(&file.path));
                }
                if how(&Part::Names).is_some() {
                    files.iter_mut().for_each(|file| file.named = moved(&file.named));
                }
            }
            Answer::Binary(Ok(binary)) => {
                if how(&Part::Places).is_some() {
                    move_functions(Arc::make_mut(binary));
                }
                if how(&Part::Names) == Some(names::MORE) {
                    add_functions(Arc::make_mut(binary));
                }
            }
            Answer::Markers(Ok(markers)) => {
                if how(&Part::Places).is_some() {
                    markers.iter_mut().for_each(move_marker);
                }
                if how(&Part::Names) == Some(names::MORE) {
                    let more = markers.clone().into_iter().map(|marker| Marker { name: marker.name + ADDED, ..marker });
                    markers.extend(more.collect::<Vec<_>>());
                }
            }
            Answer::Functions(Ok(functions)) => vary_list(functions, how(&Part::Names), |function| function.name.push_str(ADDED)),
            Answer::Tracepoints(Ok(events)) => vary_list(events, how(&Part::Names), |(_, event)| event.push_str(ADDED)),
            Answer::Type(_)
            | Answer::Field(None)
            | Answer::Record(_)
            | Answer::Prototype(None)
            | Answer::Params(None)
            | Answer::Tracepoint(_)
            | Answer::Enumerator(None)
            | Answer::Files(Err(_))
            | Answer::Binary(Err(_))
            | Answer::Markers(Err(_))
            | Answer::Functions(Err(_))
            | Answer::Tracepoints(Err(_))
            | Answer::Other(_) => {}
        }
        self.each_named(&mut |place, named| match named {
            Named::Struct(of) => set(&mut of.size, how(&Part::Size(place))),
            Named::Enum(of) => vary(of, how(&Part::Variants)),
        });
    }

    /// The digest of what must be the same elsewhere. IDs are valid for one kernel build only.
    fn digest(mut self, free: &BTreeSet<Part>) -> u128 {
        // the sites that are found elsewhere are compared by name
        let is_searched = free.contains(&Part::Places) || free.contains(&Part::Names);
        if free.contains(&Part::All) || is_searched && self.is_of_places() {
            return 0;
        }
        self.change(&|part| free.contains(part).then_some(Change::Omit));
        let needed = free.iter().find_map(|part| if let Part::OtherFields(needed) = part { Some(needed) } else { None });
        if let (Answer::Tracepoint(Ok(Some(of))), Some(needed)) = (&mut self, needed) {
            of.fields.retain(|f| needed.contains(&f.field.name));
        }
        let first = free.iter().find_map(|part| if let Part::ParamsFrom(first) = part { Some(usize::from(*first)) } else { None });
        if let (Answer::Prototype(Some(Prototype { params, .. })) | Answer::Params(Some(params)), Some(first)) = (&mut self, first) {
            params.truncate(first);
        }
        self.each_named(&mut |_, named| {
            if let Named::Struct(structure) = named {
                structure.id = 0;
            }
        });
        match &mut self {
            Answer::Prototype(Some(structure)) => structure.id = 0,
            Answer::Tracepoint(Ok(Some(structure))) => structure.id = 0,
            Answer::Type(_)
            | Answer::Field(_)
            | Answer::Record(_)
            | Answer::Prototype(None)
            | Answer::Params(_)
            | Answer::Tracepoint(_)
            | Answer::Enumerator(_)
            | Answer::Feature(_)
            | Answer::Cpus(_)
            | Answer::Namespace(_)
            | Answer::Files(_)
            | Answer::Binary(_)
            | Answer::Markers(_)
            | Answer::Functions(_)
            | Answer::Tracepoints(_)
            | Answer::Other(_) => {}
        }
        if let Answer::Binary(binary) = &self {
            return digest_of_binary(binary);
        }
        if let Answer::Other(known) = self { known } else { digest(&self) }
    }

    /// Is it about the places and names of sites?
    fn is_of_places(&self) -> bool {
        match self {
            Answer::Files(_) | Answer::Binary(_) | Answer::Markers(_) | Answer::Functions(_) | Answer::Tracepoints(_) => true,
            Answer::Type(_)
            | Answer::Field(_)
            | Answer::Record(_)
            | Answer::Prototype(_)
            | Answer::Params(_)
            | Answer::Tracepoint(_)
            | Answer::Enumerator(_)
            | Answer::Feature(_)
            | Answer::Cpus(_)
            | Answer::Namespace(_)
            | Answer::Other(_) => false,
        }
    }

    fn number(&self, part: &Part) -> Option<u32> {
        self.parts().into_iter().find(|(p, _)| p == part)?.1
    }
}

/// Does a parameter of this type have one register?
fn is_in_register(ty: &Type) -> bool {
    ty.is_scalar() || matches!(ty, Type::Ptr(..))
}

/// A field after these.
fn added_field(fields: &[TracepointField]) -> TracepointField {
    let end = fields.iter().map(|f| f.field.offset.saturating_add(f.field.ty.size())).max().unwrap_or(8).next_multiple_of(8);
    let field = Field { name: ADDED.into(), offset: end, bits: None, ty: Type::U64 };
    TracepointField { field, decl: format!("u64 {ADDED}"), loc: None }
}

fn vary(enumeration: &mut Enum, change: Option<Change>) {
    match change {
        Some(Change::Omit) => enumeration.variants.clear(),
        Some(Change::To(n)) => enumeration.variants.push((format!("rbt_{n}"), n.into())),
        None => {}
    }
}

/// The digest of the contents of a binary, which its build ID determines if it has one.
fn digest_of_contents(binary: Result<Arc<Binary>, Missing>) -> u128 {
    match binary {
        Ok(binary) if !binary.build_id.is_empty() => digest(&binary.build_id),
        other => digest_of_binary(&other),
    }
}

/// Moves functions and data by different distances.
fn move_functions(binary: &mut Binary) {
    for (function, n) in binary.functions.iter_mut().zip(1u64..) {
        let by = 16 * (n % 1009 + 1);
        function.addr = function.addr.wrapping_add(by);
        function.offset = function.offset.wrapping_add(by);
    }
    for ((_, address, _), n) in binary.objects.iter_mut().zip(1u64..) {
        *address = address.wrapping_add(8 * (n % 1009 + 1));
    }
}

fn add_functions(binary: &mut Binary) {
    let more: Vec<Function> = (binary.functions.iter().cloned())
        .flat_map(|function| {
            let (addr, offset) = (function.addr.wrapping_add(8), function.offset.wrapping_add(8));
            let named = |name: String| Function { name, addr, offset, ..function.clone() };
            [named(format!("{}{ADDED}", function.name)), named(format!("{ADDED}{}", function.name))]
        })
        .collect();
    binary.functions.extend(more);
    binary.functions.sort();
}

fn move_marker(marker: &mut Marker) {
    const BY: u64 = 48;
    for place in [&mut marker.addr, &mut marker.offset] {
        *place = place.wrapping_add(BY);
    }
    for place in [&mut marker.semaphore, &mut marker.optimized].into_iter().filter(|place| **place != 0) {
        *place = place.wrapping_add(BY);
    }
}

/// Changes a list of names.
fn vary_list<T: Clone>(all: &mut Vec<T>, change: Option<Change>, add_to_name: impl Fn(&mut T)) {
    match change {
        Some(names::MORE) => {
            if let Some(mut last) = all.last().cloned() {
                add_to_name(&mut last);
                all.push(last);
            }
        }
        Some(names::FIRST) => all.truncate(all.len().div_ceil(2)),
        Some(names::LAST) => {
            all.drain(..all.len().div_ceil(2).min(all.len().saturating_sub(1)));
        }
        Some(_) | None => {}
    }
}

/// A query with one target's answer, with the IDs of that target.
#[derive(Clone, Debug)]
pub struct RecordedAnswer {
    question: Question,
    answer: Answer,
}

impl RecordedAnswer {
    /// The same query with the same target.
    pub fn new(question: Question, sys: &dyn TargetInfo) -> Self {
        let answer = Answer::query(&question, sys);
        Self { question, answer }
    }

    /// The parts of the answer that may differ elsewhere, with their values if they are numbers.
    pub fn parts(&self) -> Vec<(Part, Option<u32>)> {
        // the contents of a binary must be identical, so the parts of its structs are fixed
        let of_binary = matches!(&self.question, Question::Member(of, _) | Question::Expand(of) if of.id >= BINARY_IDS);
        if of_binary { Vec::new() } else { self.answer.parts() }
    }

    /// The number of parameters.
    pub fn params(&self) -> u16 {
        let (Answer::Prototype(Some(Prototype { params, .. })) | Answer::Params(Some(params))) = &self.answer else { return 0 };
        params.len().try_into().unwrap_or(u16::MAX)
    }

    /// The name of a parameter, and the structs in its type.
    pub fn param(&self, number: u16) -> Option<(String, Vec<Struct>)> {
        let (Answer::Prototype(Some(Prototype { params, .. })) | Answer::Params(Some(params))) = &self.answer else { return None };
        let (name, ty) = params.get(usize::from(number))?;
        Some((name.clone(), Answer::Type(Some(ty.clone())).structs().into_iter().map(|(_, of)| of).collect()))
    }

    /// The struct whose members it is about.
    pub fn subject(&self) -> Option<&Struct> {
        if let Question::Member(of, _) | Question::Expand(of) = &self.question { Some(of) } else { None }
    }

    /// Does the answer lack this part if these parts are omitted?
    pub fn lacks(&self, part: &Part, omitted: &BTreeSet<Part>) -> bool {
        match part {
            Part::FieldOffset(name) => omitted.contains(&Part::Field(name.clone())),
            Part::Size(place) => {
                let mut rest = self.answer.clone();
                rest.change(&|part| omitted.contains(part).then_some(Change::Omit));
                !rest.structs().iter().any(|(other, _)| other == place)
            }
            Part::Offset
            | Part::Variants
            | Part::Field(_)
            | Part::MoreFields
            | Part::OtherFields(_)
            | Part::Param(_)
            | Part::MoreParams
            | Part::ParamsFrom(_)
            | Part::Feature
            | Part::Cpus
            | Part::AtMost(_)
            | Part::Namespace
            | Part::Places
            | Part::Names
            | Part::All => false,
        }
    }

    /// The struct at a place of the answer.
    pub fn structure(&self, place: &StructPosition) -> Option<Struct> {
        self.answer.structs().into_iter().find(|(p, _)| p == place).map(|(_, of)| of)
    }

    /// The alignment of the number in bytes.
    pub fn align(&self, part: &Part) -> u32 {
        match (&self.answer, part) {
            (Answer::Field(Some(field)), Part::Offset) => field.ty.align(),
            (Answer::Tracepoint(Ok(Some(of))), Part::FieldOffset(name)) => {
                of.fields.iter().find(|f| f.field.name == *name).map_or(8, |f| if f.loc.is_some() { 4 } else { f.field.ty.align() })
            }
            (Answer::Cpus(_), _) => 1,
            _ => 8,
        }
    }

    /// Is it about the layout of a system call's record, which never changes?
    pub fn is_fixed(&self) -> bool {
        matches!(&self.question, Question::Tracepoint(category, _) if category == "syscalls")
    }

    /// The query without the size of a struct.
    pub(in crate::system) fn key(&self) -> Question {
        key(self.question.clone())
    }

    /// Is it the same query?
    pub fn asks(&self, question: &Question) -> bool {
        self.key() == key(question.clone())
    }

    /// The answer with changed parts, and with changed sizes of structs, by ID.
    pub(in crate::system) fn changed(&self, how: &dyn Fn(&Part) -> Option<Change>, sizes: &HashMap<u32, u32>) -> Answer {
        let mut answer = self.answer.clone();
        answer.change(how);
        answer.each_named(&mut |_, named| {
            if let Named::Struct(structure) = named {
                set(&mut structure.size, sizes.get(&structure.id).copied().map(Change::To));
            }
        });
        answer
    }

    /// The kernel feature that it queries.
    pub fn feature(&self) -> Option<Feature> {
        if let Question::Has(feature) = self.question { Some(feature) } else { None }
    }

    /// Its subject, for comparison with another target's.
    pub fn name(&self) -> String {
        self.question.to_string()
    }
}

/// A query without the size of a struct.
pub(in crate::system) fn key(mut question: Question) -> Question {
    if let Question::Member(structure, _) | Question::Expand(structure) = &mut question {
        structure.size = 0;
    }
    question
}

/// One of the [`Requirements`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Requirement {
    /// The query; the ID of a struct in it is an index in [`Requirements::structs`].
    question: Question,
    /// Parts of the answer that may differ.
    free: BTreeSet<Part>,
    /// The digest of the rest.
    digest: u128,
}

/// The answers that a kernel must give.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Requirements {
    asked: Vec<Requirement>,
    /// Structs that queries are about: their places in earlier answers.
    structs: Vec<(u32, StructPosition)>,
    /// Numbers in answers for which the code has relocations.
    numbers: Vec<(u32, Part)>,
}

/// The answer of a kernel that does not fit.
#[derive(Clone, Debug)]
pub struct Difference(pub Question);

/// The bit of the ID of a struct that no answer contains.
const FOREIGN: u32 = 1 << 31;

impl Requirements {
    /// The requirements of these queries. The parts in `free` may differ; `numbers` are the parts with relocations.
    pub fn new(record: &[RecordedAnswer], free: &BTreeSet<(usize, Part)>, numbers: &[(usize, Part)]) -> Self {
        let mut structs: Vec<(u32, StructPosition)> = Vec::new();
        let mut known: HashMap<u32, u32> = HashMap::new();
        let mut requirements = Vec::new();
        for (index, one) in record.iter().enumerate() {
            let mut question = one.question.clone();
            if let Question::Member(structure, _) | Question::Expand(structure) = &mut question {
                structure.size = 0;
                structure.id = known.get(&structure.id).copied().unwrap_or(structure.id | FOREIGN);
            }
            let free: BTreeSet<Part> = free.iter().filter(|(structure, _)| *structure == index).map(|(_, part)| part.clone()).collect();
            let digest = one.answer.clone().digest(&free);
            let is_unused = free.contains(&Part::All);
            requirements.push(Requirement { question, free, digest });
            if is_unused {
                continue;
            }
            for (place, structure) in one.answer.structs() {
                known.entry(structure.id).or_insert_with(|| {
                    structs.push((index as u32, place));
                    structs.len() as u32 - 1
                });
            }
        }
        let numbers = numbers.iter().map(|(index, part)| (*index as u32, part.clone())).collect();
        Self { asked: requirements, structs, numbers }
    }

    /// The kernel's numbers, for relocations.
    ///
    /// # Errors
    /// The answers that do not fit.
    pub fn of(&self, sys: &dyn TargetInfo) -> Result<Vec<u32>, Vec<Difference>> {
        let (mut answers, mut differences) = (Vec::with_capacity(self.asked.len()), Vec::new());
        for one in &self.asked {
            let answer = self
                .question(&one.question, &answers)
                .filter(|_| !one.free.contains(&Part::All))
                .map(|question| Answer::query(&question, sys));
            // without the struct, the difference is in the query that returned it
            let fits = answer.as_ref().is_none_or(|answer| self.fits(one, answer));
            if !fits {
                differences.push(Difference(one.question.clone()));
            }
            answers.push(answer);
        }
        if !differences.is_empty() {
            return Err(differences);
        }
        let is_unused = |of: u32| self.asked.get(of as usize).is_some_and(|one| one.free.contains(&Part::All));
        let number = |(of, part): &(u32, Part)| {
            if is_unused(*of) { Some(0) } else { answers.get(*of as usize).and_then(Option::as_ref).and_then(|answer| answer.number(part)) }
        };
        let unknown = |(of, _): &(u32, Part)| self.asked.get(*of as usize).map(|one| Difference(one.question.clone()));
        self.numbers.iter().map(|n| number(n).ok_or_else(|| unknown(n).into_iter().collect())).collect()
    }

    fn fits(&self, one: &Requirement, answer: &Answer) -> bool {
        // a feature that the code does not use may be present
        if let (Question::Has(feature), Answer::Feature(has)) = (&one.question, answer)
            && *has != feature.is_limit()
            && one.digest == digest(&Answer::Feature(feature.is_limit()))
        {
            return true;
        }
        let at_most = one.free.iter().find_map(|part| if let Part::AtMost(n) = part { Some(*n) } else { None });
        if let (Some(max), Answer::Cpus(n)) = (at_most, answer) {
            return *n <= max;
        }
        answer.clone().digest(&one.free) == one.digest
    }

    /// The query, with the IDs of the kernel that gave these answers.
    #[allow(clippy::wildcard_enum_match_arm)] // the others have no IDs
    fn question(&self, question: &Question, answers: &[Option<Answer>]) -> Option<Question> {
        let of = |of: &Struct| {
            // the contents of the binary must be identical
            if of.id >= BINARY_IDS {
                return None;
            }
            if of.id & FOREIGN != 0 {
                return Some(Struct { id: of.id & !FOREIGN, ..of.clone() });
            }
            let (index, place) = self.structs.get(of.id as usize)?;
            let answer = answers.get(*index as usize)?.as_ref()?;
            answer.structs().into_iter().find(|(p, _)| p == place).map(|(_, of)| of)
        };
        match question {
            Question::Member(structure, name) => Some(Question::Member(of(structure)?, name.clone())),
            Question::Expand(structure) => Some(Question::Expand(of(structure)?)),
            other => Some(other.clone()),
        }
    }

    /// The files and the matches of patterns that must be the same.
    #[allow(clippy::wildcard_enum_match_arm)] // the others are not about places
    pub fn fixed_places(&self) -> impl Iterator<Item = String> {
        let is_fixed = |one: &&Requirement| match one.question {
            Question::MatchingTracepoints(..) | Question::MatchingFunctions(..) => one.free.is_empty(),
            Question::Binary(..) | Question::Markers(..) | Question::ResolveBinary(..) => one.free.is_empty(),
            Question::Contents(..) | Question::MatchingRawTracepoints(..) => true,
            _ => false,
        };
        self.asked.iter().filter(is_fixed).map(|one| one.question.to_string())
    }

    /// Must a kernel's answer agree in such a part?
    pub fn knows(&self, part: &Part) -> bool {
        let of = |one: &Requirement| match (part, &one.question) {
            (Part::Namespace, Question::PidNamespace) | (Part::Cpus, Question::PossibleCpus) => !one.free.contains(part),
            _ => false,
        };
        self.asked.iter().any(of)
    }

    /// The meaning of a number, for messages.
    pub fn number_name(&self, number: usize) -> String {
        let Some((of, part)) = self.numbers.get(number) else { return "a number".into() };
        let question = self.asked.get(*of as usize).map(|one| one.question.to_string()).unwrap_or_default();
        match part {
            Part::Offset | Part::FieldOffset(_) => format!("the offset of {question}"),
            Part::Size(_) => format!("the size of {question}"),
            Part::Variants
            | Part::Field(_)
            | Part::MoreFields
            | Part::OtherFields(_)
            | Part::Param(_)
            | Part::MoreParams
            | Part::ParamsFrom(_)
            | Part::Feature
            | Part::Cpus
            | Part::AtMost(_)
            | Part::Namespace
            | Part::Places
            | Part::Names
            | Part::All => question,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::fake::Fake;

    #[test]
    fn moved_files_are_found() {
        let path = Path::new("/usr/lib/libc.so.6");
        assert_eq!(unmoved(&moved(path)), path);
        assert_eq!(unmoved(path), path);
    }

    #[test]
    fn halves_have_all_names_once() {
        let all: Vec<u8> = (0..7).collect();
        let half = |change| {
            let mut half = all.clone();
            vary_list(&mut half, Some(change), |_| ());
            half
        };
        assert_eq!([half(names::FIRST), half(names::LAST)].concat(), all);
        assert_eq!(half(names::MORE).len(), 8);
        let mut one = vec![1];
        vary_list(&mut one, Some(names::LAST), |_| ());
        assert_eq!(one, [1]);
    }

    #[test]
    fn sites_that_are_searched_may_differ() {
        let of = |text: &str| Fake::new(text).unwrap();
        let here = of("binary /bin/demo { main 0x1000 32; }");
        let questions = [Question::Binary("/bin/demo".into()), Question::Contents("/bin/demo".into())];
        let answers: Vec<RecordedAnswer> = questions.into_iter().map(|question| RecordedAnswer::new(question, &here)).collect();
        let there = of("binary /bin/demo { main 0x2000 32; }");
        let with = |answers: &[RecordedAnswer], free: &[Part]| {
            let free = free.iter().map(|part| (0, part.clone())).collect();
            Requirements::new(answers, &free, &[]).of(&there).is_ok()
        };
        assert!(!with(&answers[..1], &[]));
        assert!(with(&answers[..1], &[Part::Places]));
        // its debug information must be that of the build
        assert!(!with(&answers, &[Part::Places]));
    }

    #[test]
    fn more_fields_and_other_parameters_may_be_free() {
        const HERE: &str = "struct inode { int n; }; struct dentry { int d; };
            tracepoint a:one { int n; long wide; }
            function int vfs_unlink(struct inode *dir, struct dentry *dentry);";
        let here = Fake::new(HERE).unwrap();
        let questions = [Question::Tracepoint("a".into(), "one".into()), Question::Prototype(None, "vfs_unlink".into())];
        let answers: Vec<RecordedAnswer> = questions.into_iter().map(|question| RecordedAnswer::new(question, &here)).collect();
        assert_eq!(answers[1].param(0).unwrap().0, "dir");
        let fits = |free: &[(usize, Part)], there: &str| {
            let free = free.iter().cloned().collect();
            Requirements::new(&answers, &free, &[]).of(&Fake::new(there).unwrap()).is_ok()
        };
        let free = [(0, Part::OtherFields(["n".to_string()].into())), (1, Part::Param(0)), (1, Part::ParamsFrom(2))];
        for (there, is_free) in [
            (HERE.to_string(), true),
            (HERE.replace("long wide;", ""), true),
            (HERE.replace("long wide;", "long wide; int more;"), true),
            (HERE.replace("struct inode *dir", "void *other"), true),
            (HERE.replace("struct dentry *dentry", "struct dentry *dentry, int more, long other"), true),
            (HERE.replace("int n; long", "short n; long"), false),
            (HERE.replace("int n; long", "long"), false),
            (HERE.replace("struct dentry *dentry", "struct inode *dentry"), false),
            (HERE.replace("struct inode *dir, ", ""), false),
            // it is in several registers, or in none
            (HERE.replace("struct inode *dir", "struct inode dir"), false),
        ] {
            assert_eq!(fits(&free, &there), is_free, "{there}");
            assert_eq!(fits(&[], &there), there == HERE, "{there}");
        }
    }

    #[test]
    fn parts_of_omitted_fields_are_lacking() {
        let here = Fake::new("struct s { int n; }; tracepoint a:one { int n; } function int f(struct s *a, struct s *b);").unwrap();
        let of = |question| RecordedAnswer::new(question, &here);
        let field = of(Question::Tracepoint("a".into(), "one".into()));
        let offset = Part::FieldOffset("n".into());
        assert!(field.lacks(&offset, &[Part::Field("n".into())].into()) && !field.lacks(&offset, &BTreeSet::new()));
        let function = of(Question::Prototype(None, "f".into()));
        let size = |name: &str| Part::Size(StructPosition { name: name.into(), number: 0 });
        let omitted = [Part::Param(0)].into();
        assert!(function.lacks(&size("a"), &omitted) && !function.lacks(&size("b"), &omitted));
    }
}
