//! What a compiled script requires of any kernel that runs it.
//!
//! The queries made when it was compiled are repeated, by name: an ID is valid for one kernel build only. The answers
//! are compared by digests, which leave out the parts that may differ: numbers for which the code has relocations, and
//! facts that were shown to have no effect on the code.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::answers::{Answer, Change, LATER, Named, Part, StructPosition, set};
use super::questions::{Question, digest};
use crate::system::kernel_types::Prototype;
use crate::system::machine::glob;
use crate::system::machine::live::BINARY_IDS;
use crate::system::{Feature, Missing, TargetInfo};
use crate::types::Struct;

/// A query with one target's answer, with the IDs of that target.
#[derive(Clone, Debug)]
pub struct RecordedAnswer {
    question: Question,
    answer: Answer,
    contents: Option<u128>,
}

impl RecordedAnswer {
    /// The same query with the same target.
    pub fn new(question: Question, sys: &dyn TargetInfo) -> Self {
        let answer = Answer::query(&question, sys);
        let contents = sufficient_contents(&question, sys);
        Self { question, answer, contents }
    }

    /// The parts of the answer that may differ elsewhere, with their values if they are numbers.
    pub fn parts(&self) -> Vec<(Part, Option<u32>)> {
        // the contents of a binary must be identical, so the parts of its structs are fixed
        let of_binary = matches!(&self.question, Question::Member(of, _) | Question::Expand(of) if of.id >= BINARY_IDS);
        if of_binary {
            return Vec::new();
        }
        let mut parts = self.answer.parts();
        if let Question::ResolveBinary(name) = &self.question
            && name.contains('/')
            && !glob::is_pattern(name)
        {
            // the file's path in the names of probes is the one in the script
            parts.retain(|(part, _)| *part != Part::Names);
        }
        parts
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
        is_record_of_call(&self.question)
    }

    /// The query without the size of a struct.
    pub(in crate::system) fn key(&self) -> Question {
        key(self.question.clone())
    }

    /// Is it the same query?
    pub fn asks(&self, question: &Question) -> bool {
        self.key() == key(question.clone())
    }

    /// Is it about a system call that no kernel has yet?
    pub fn is_of_later_call(&self) -> bool {
        matches!(&self.question, Question::Tracepoint(_, name) if name.ends_with(LATER))
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
    /// See [`sufficient_contents`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    contents: Option<u128>,
}

/// If the contents of a file determine the answer: their digest. A file with the same build ID has the same code, although its debug
/// information may have been removed.
fn sufficient_contents(question: &Question, sys: &dyn TargetInfo) -> Option<u128> {
    let Question::Retval(path, _) = question else { return None };
    let has_id = sys.binary(path).is_ok_and(|binary| !binary.build_id.is_empty());
    has_id.then(|| digest(&Answer::query(&Question::Contents(path.clone()), sys)))
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

/// Does the build of a kernel with its modules determine the answer? Besides types, this is the case for the records of system calls,
/// whose fields have types.
fn is_constant(question: &Question) -> bool {
    question.is_of_types() || is_record_of_call(question)
}

fn is_record_of_call(question: &Question) -> bool {
    matches!(question, Question::Tracepoint(category, _) if category == "syscalls")
}

/// What a build of a kernel answers to the queries of [`Requirements`]: see `kept_answers.rs`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConstantAnswers {
    /// Positions of queries whose answers do not fit.
    differences: Vec<u32>,
    /// For each of the numbers: the one of an answer about types.
    numbers: Vec<Option<u32>>,
}

/// The answer of a kernel that does not fit.
#[derive(Clone, Debug)]
pub struct Difference(pub Question);

impl Difference {
    /// Is it only about a file?
    pub fn is_of_file(&self) -> bool {
        let is_of_contents = matches!(self.0, Question::Contents(..) | Question::Binary(..) | Question::Markers(..) | Question::Retval(..));
        is_of_contents || matches!(self.0, Question::ResolveBinary(..) | Question::RegularFile(..))
    }

    /// Do the kernel's types alone determine the answer?
    pub fn is_of_types(&self) -> bool {
        self.0.is_of_types()
    }

    /// Is it about the machine, not its kernel?
    pub fn is_of_machine(&self) -> bool {
        self.is_of_file() || matches!(self.0, Question::CgroupId(..) | Question::PidNamespace | Question::Counts(..))
    }

    /// Why this machine cannot answer: its user, for example, may not read the description.
    #[allow(clippy::wildcard_enum_match_arm)] // the others can be answered, or differ in the reason
    pub fn unanswered(&self, sys: &dyn TargetInfo) -> Option<Missing> {
        match &self.0 {
            Question::HasTracepoint(category, name) => sys.has_tracepoint(category, name).err(),
            Question::Tracepoint(category, name) => sys.tracepoint(category, name).err(),
            Question::MatchingTracepoints(category, name) => sys.matching_tracepoints(category, name).err(),
            Question::MatchingRawTracepoints(module, name) => sys.matching_raw_tracepoints(module, name).err(),
            Question::MatchingFunctions(name, module) => sys.matching_functions(name, module).err(),
            Question::FunctionHomes(name) => sys.function_homes(name).err(),
            Question::CgroupId(path) => sys.cgroup_id(path).err(),
            _ => None,
        }
    }
}

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
            requirements.push(Requirement { question, free, digest, contents: one.contents });
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
        self.query(sys, None).0
    }

    /// Can these be answers to its queries?
    pub(super) fn can_have(&self, answers: &ConstantAnswers) -> bool {
        answers.numbers.len() == self.numbers.len()
    }

    /// The same, with what the constant answers say; none if they may be others later. If they are known, `known`, they are not queried.
    pub(super) fn query(
        &self,
        sys: &dyn TargetInfo,
        known: Option<&ConstantAnswers>,
    ) -> (Result<Vec<u32>, Vec<Difference>>, Option<ConstantAnswers>) {
        let (mut constant, mut lasts) = (ConstantAnswers::default(), true);
        let (mut answers, mut differences) = (Vec::with_capacity(self.asked.len()), Vec::new());
        for (index, one) in self.asked.iter().enumerate() {
            let is_constant = is_constant(&one.question);
            let (answer, fits) = match known.filter(|_| is_constant) {
                Some(known) => (None, !known.differences.contains(&(index as u32))),
                None => self.answer(one, &answers, sys),
            };
            if !fits {
                differences.push(Difference(one.question.clone()));
                constant.differences.extend(is_constant.then_some(index as u32));
                // it could not be read
                lasts &= !is_record_of_call(&one.question);
            }
            answers.push(answer);
        }
        let asked = |of: u32| self.asked.get(of as usize);
        let is_constant = |of: u32| asked(of).is_some_and(|one| is_constant(&one.question));
        let number = |index: usize, of: u32, part: &Part| match known.filter(|_| is_constant(of)) {
            Some(known) => known.numbers.get(index).copied().flatten(),
            None => answers.get(of as usize).and_then(Option::as_ref).and_then(|answer| answer.number(part)),
        };
        let numbers: Vec<Option<u32>> = self.numbers.iter().enumerate().map(|(i, (of, part))| number(i, *of, part)).collect();
        constant.numbers = self.numbers.iter().zip(&numbers).map(|((of, _), number)| number.filter(|_| is_constant(*of))).collect();
        let constant = lasts.then_some(constant);
        if !differences.is_empty() {
            return (Err(differences), constant);
        }
        let is_unused = |of: u32| asked(of).is_some_and(|one| one.free.contains(&Part::All));
        let needed = |((of, _), number): (&(u32, Part), Option<u32>)| {
            let number = if is_unused(*of) { Some(0) } else { number };
            number.ok_or_else(|| asked(*of).map(|one| Difference(one.question.clone())).into_iter().collect())
        };
        (self.numbers.iter().zip(numbers).map(needed).collect(), constant)
    }

    /// The answer to one query, and whether it fits.
    fn answer(&self, one: &Requirement, answers: &[Option<Answer>], sys: &dyn TargetInfo) -> (Option<Answer>, bool) {
        let question = self.question(&one.question, answers).filter(|_| !one.free.contains(&Part::All));
        let answer = question.map(|question| Answer::query(&question, sys));
        // without the struct, the difference is in the query that returned it
        let has_contents = || one.contents.is_some() && one.contents == sufficient_contents(&one.question, sys);
        let fits = answer.as_ref().is_none_or(|answer| self.fits(one, answer)) || has_contents();
        (answer, fits)
    }

    fn fits(&self, one: &Requirement, answer: &Answer) -> bool {
        // a feature that the code does not use may be present
        if let (Question::Has(feature), Answer::Feature(has)) = (&one.question, answer)
            && *has != feature.is_limit()
            && one.digest == digest(&Answer::Feature(feature.is_limit()))
        {
            return true;
        }
        // so may a function that it does not call
        if matches!(one.question, Question::MayCall(..)) && one.digest == digest(&false) {
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

    /// The matches of patterns, and the cgroups, that must be the same.
    #[allow(clippy::wildcard_enum_match_arm)] // the others are not about places
    pub fn fixed_places(&self) -> impl Iterator<Item = String> {
        let is_fixed = |one: &&Requirement| match one.question {
            Question::MatchingTracepoints(..) | Question::MatchingFunctions(..) => one.free.is_empty(),
            Question::ResolveBinary(..) => one.free.is_empty(),
            Question::MatchingRawTracepoints(..) | Question::CgroupId(..) => true,
            _ => false,
        };
        self.asked.iter().filter(is_fixed).map(|one| one.question.to_string())
    }

    /// The requirements of files' contents: of their debug information, or of the places in them. Each has the query about another file.
    #[allow(clippy::wildcard_enum_match_arm)] // the others are not about contents
    fn of_files(&self) -> impl Iterator<Item = (&Path, &Requirement, fn(PathBuf) -> Question)> {
        self.asked.iter().filter_map(|one| match &one.question {
            Question::Contents(path) => Some((path.as_path(), one, Question::Contents as fn(PathBuf) -> Question)),
            Question::Binary(path) if !one.free.contains(&Part::Places) => Some((path.as_path(), one, Question::Binary as _)),
            Question::Markers(path) if !one.free.contains(&Part::Places) => Some((path.as_path(), one, Question::Markers as _)),
            _ => None,
        })
    }

    /// Does the code depend on the contents of a file?
    pub fn fixes(&self, file: &Path) -> bool {
        self.of_files().any(|(path, ..)| path == file)
    }

    /// Does another file have the contents that one of them must have?
    pub fn has_contents_of(&self, fixed: &Path, other: &Path, sys: &dyn TargetInfo) -> bool {
        self.of_files()
            .filter(|(path, ..)| *path == fixed)
            .all(|(_, one, query)| Answer::query(&query(other.into()), sys).digest(&one.free) == one.digest)
    }

    /// The files whose contents must be the same, because the code depends on their debug information or on places in them.
    pub fn fixed_files(&self) -> impl Iterator<Item = &Path> {
        self.of_files().map(|(path, ..)| path)
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
    fn only_files_that_are_looked_for_have_other_names() {
        let answer = Answer::Files(Ok(vec![PathBuf::from("/bin/demo").into()]));
        let varies = |name: &str| {
            let answer = RecordedAnswer { question: Question::ResolveBinary(name.into()), answer: answer.clone(), contents: None };
            answer.parts().iter().any(|(part, _)| *part == Part::Names)
        };
        assert_eq!(["demo", "/bin/demo", "/bin/d*"].map(varies), [true, false, true]);
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
    fn functions_that_the_code_does_not_call_may_be_callable() {
        let may_call = |callable: bool| {
            let question = Question::MayCall("bpf_task_from_pid".into(), 1);
            let answer = Answer::Other(digest(&callable));
            Requirements::new(&[RecordedAnswer { question, answer, contents: None }], &BTreeSet::new(), &[])
        };
        let fits = |required: &Requirements, callable: bool| required.fits(&required.asked[0], &Answer::Other(digest(&callable)));
        assert!(fits(&may_call(false), true) && fits(&may_call(false), false));
        assert!(fits(&may_call(true), true) && !fits(&may_call(true), false));
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
