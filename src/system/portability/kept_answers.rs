//! Answers about the kernel's types that the runs of a bundle keep.
//!
//! A start of a bundle searches the kernel's types for each struct and function on which its code depends, which takes 2 ms where they
//! can be mapped, and 10 ms where they are read. The answers are valid for one kernel with its modules, so they are kept, as numbers
//! for relocations, and places of the queries whose answers do not fit. So are those about the records of system calls, whose fields
//! have types. All other queries are repeated.

use std::collections::BTreeMap;

use super::questions::digest;
use super::requirements::{ConstantAnswers, Difference, Requirements};
use crate::system::TargetInfo;
use crate::system::cache::{CacheFile, Kind, rbt_itself};

const KIND: Kind = Kind { form: "rbt-answers-1", prefix: "answers-", max_bytes: 1 << 18, max_files: 128, max_total: 4 << 20 };

/// The answers for the variants of one bundle.
#[derive(Debug, Default)]
pub struct KeptAnswers {
    /// None if nothing is kept.
    file: Option<CacheFile>,
    /// By the number of the variant.
    known: BTreeMap<u32, ConstantAnswers>,
    has_grown: bool,
}

impl KeptAnswers {
    /// Of the bundle with this digest.
    pub fn of(bundle: &[u8; 32], sys: &dyn TargetInfo) -> Self {
        let file = || {
            let key = digest(&(rbt_itself()?, sys.types_identity()?, bundle));
            CacheFile::new(KIND, format!("{key:032x}"))
        };
        Self::load(file())
    }

    fn load(file: Option<CacheFile>) -> Self {
        let kept = file.as_ref().and_then(CacheFile::load);
        let known = kept.and_then(|(bytes, start)| postcard::from_bytes(bytes.get(start..)?).ok());
        Self { file, known: known.unwrap_or_default(), has_grown: false }
    }

    /// See [`Requirements::of`].
    ///
    /// # Errors
    /// As there.
    pub fn numbers(&mut self, variant: usize, requirements: &Requirements, sys: &dyn TargetInfo) -> Result<Vec<u32>, Vec<Difference>> {
        let Ok(variant) = u32::try_from(variant) else { return requirements.of(sys) };
        let known = self.known.get(&variant).filter(|known| requirements.can_have(known));
        let (numbers, answers) = requirements.query(sys, known);
        if let (None, Some(answers)) = (known, answers) {
            self.known.insert(variant, answers);
            self.has_grown = true;
        }
        numbers
    }

    /// Keeps new answers for later runs. Without types, there are none.
    pub fn keep(&mut self, sys: &dyn TargetInfo) {
        if let (Some(file), true) = (&self.file, std::mem::take(&mut self.has_grown))
            && sys.types_missing().is_none()
            && let Ok(bytes) = postcard::to_allocvec(&self.known)
        {
            file.save(&bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::answers::Part;
    use super::super::questions::Question;
    use super::super::requirements::RecordedAnswer;
    use super::*;
    use crate::system::TypeName;
    use crate::system::fake::Fake;
    use crate::types::Type;

    fn requirements(sys: &dyn TargetInfo) -> Requirements {
        let Some(Type::Struct(of)) = sys.type_named(TypeName::Struct, "task_struct") else { panic!() };
        let questions = [
            Question::TypeNamed(TypeName::Struct, "task_struct".into()),
            Question::Member((*of).clone(), "pid".into()),
            Question::Tracepoint("a".into(), "one".into()),
            Question::Tracepoint("syscalls".into(), "sys_enter_one".into()),
        ];
        let answers: Vec<RecordedAnswer> = questions.into_iter().map(|question| RecordedAnswer::new(question, sys)).collect();
        let numbers = [(1, Part::Offset), (2, Part::FieldOffset("n".into()))];
        let size = answers[0].parts().into_iter().map(|(part, _)| (0, part));
        let others = (2, Part::OtherFields(["n".to_string()].into()));
        Requirements::new(&answers, &size.chain(numbers.clone()).chain([others]).collect::<BTreeSet<_>>(), &numbers)
    }

    #[test]
    fn types_are_queried_once() {
        let folder = std::env::temp_dir().join(format!("rbt-answers-{}", std::process::id()));
        let load = || KeptAnswers::load(Some(CacheFile::at(KIND, &folder, "0123")));
        let here =
            Fake::new("struct task_struct { int a; int pid; }; tracepoint a:one { int n; } tracepoint syscalls:sys_enter_one { int n; }")
                .unwrap();
        let requirements = requirements(&here);
        let mut first = load();
        let numbers = first.numbers(0, &requirements, &here).unwrap();
        assert_eq!(Some(&numbers), requirements.of(&here).ok().as_ref());
        first.keep(&here);
        // other types would have another identity; what is not a type is queried again
        let moved = Fake::new("struct task_struct { int pid; }; tracepoint a:one { long more; int n; }").unwrap();
        let mut second = load();
        assert_eq!(second.known, first.known);
        let again = second.numbers(0, &requirements, &moved).unwrap();
        assert!(again[0] == numbers[0] && again[1] != numbers[1] && !second.has_grown);
        // which is what it says if nothing is kept
        assert_eq!(requirements.of(&moved).unwrap_err().len(), 1);
        let other = Fake::new("struct task_struct { int a; int pid; }; tracepoint a:one { long n; }").unwrap();
        assert!(second.numbers(0, &requirements, &other).is_err());
        // another variant
        assert!(second.numbers(1, &requirements, &here).is_ok() && second.has_grown);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn differences_are_kept() {
        let here =
            Fake::new("struct task_struct { int a; int pid; }; tracepoint a:one { int n; } tracepoint syscalls:sys_enter_one { int n; }")
                .unwrap();
        let requirements = requirements(&here);
        let without =
            Fake::new("struct task_struct { int a; }; tracepoint a:one { int n; } tracepoint syscalls:sys_enter_one { int n; }").unwrap();
        let mut kept = KeptAnswers::default();
        let names = |all: Vec<Difference>| all.into_iter().map(|difference| difference.0.to_string()).collect::<Vec<_>>();
        let first = names(kept.numbers(0, &requirements, &without).unwrap_err());
        assert_eq!((first.len(), names(kept.numbers(0, &requirements, &here).unwrap_err())), (1, first));
        // without a file
        kept.keep(&here);
        // damaged contents
        kept.known.insert(0, ConstantAnswers::default());
        assert!(kept.numbers(0, &requirements, &here).is_ok());
    }

    #[test]
    fn records_of_calls_that_cannot_be_read_are_not_kept() {
        let here =
            Fake::new("struct task_struct { int a; int pid; }; tracepoint a:one { int n; } tracepoint syscalls:sys_enter_one { int n; }");
        let here = here.unwrap();
        let none = Fake::new("no tracefs; struct task_struct { int a; int pid; };").unwrap();
        let mut kept = KeptAnswers::default();
        assert_eq!(kept.numbers(0, &requirements(&here), &none).unwrap_err().len(), 2);
        assert!(kept.known.is_empty() && kept.numbers(0, &requirements(&here), &here).is_ok());
    }

    #[test]
    fn missing_types_are_not_kept() {
        let folder = std::env::temp_dir().join(format!("rbt-answers-none-{}", std::process::id()));
        let here =
            Fake::new("struct task_struct { int a; int pid; }; tracepoint a:one { int n; } tracepoint syscalls:sys_enter_one { int n; }")
                .unwrap();
        let none = Fake::new("no types").unwrap();
        let mut kept = KeptAnswers::load(Some(CacheFile::at(KIND, &folder, "0123")));
        assert!(kept.numbers(0, &requirements(&here), &none).is_err());
        kept.keep(&none);
        assert!(!folder.exists());
    }
}
