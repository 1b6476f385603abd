//! Answers to queries about a kernel, and their parts, which may differ between kernels.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::questions::{Question, digest, portable_digest_of_binary, retval_by_name};
use crate::system::kernel_types::Prototype;
use crate::system::{Binary, BinaryFile, Function, Marker, MatchingFunction, Missing, TargetInfo, Tracepoint, TracepointField};
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
/// The end of the name of a system call that stands for those of later kernels, whose numbers rbt does not know.
pub(in crate::system) const LATER: &str = "_rbt_later";
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
    pub(super) name: String,
    pub(super) number: u16,
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
pub(super) enum Named<'a> {
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

pub(super) fn set(number: &mut u32, change: Option<Change>) {
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

    pub(super) fn each_named(&mut self, visit: &mut dyn FnMut(StructPosition, Named)) {
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
            Answer::Tracepoints(Ok(events)) => {
                let later: Vec<(String, String)> = events.extract_if(.., |(_, event)| event.ends_with(LATER)).collect();
                vary_list(events, how(&Part::Names), |(_, event)| event.push_str(ADDED));
                // their program is for names that no kernel has yet
                events.extend(later);
            }
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
    pub(super) fn digest(mut self, free: &BTreeSet<Part>) -> u128 {
        // the sites that are found elsewhere are compared by name
        if free.contains(&Part::All) || self.is_searched(free) {
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
            return portable_digest_of_binary(binary);
        }
        if let Answer::Other(known) = self { known } else { digest(&self) }
    }

    /// Is it about sites that are found where the code runs? If their places must be the same, it does not matter whether names do.
    fn is_searched(&self, free: &BTreeSet<Part>) -> bool {
        match self {
            Answer::Files(_) | Answer::Binary(_) | Answer::Markers(_) => free.contains(&Part::Places),
            Answer::Functions(_) | Answer::Tracepoints(_) => free.contains(&Part::Places) || free.contains(&Part::Names),
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

    pub(super) fn number(&self, part: &Part) -> Option<u32> {
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
        other => portable_digest_of_binary(&other),
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
