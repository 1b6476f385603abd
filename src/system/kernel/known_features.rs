//! Features of the running kernel that earlier runs have found.
//!
//! Testing a feature takes one or two system calls, and a start needs 30 tests, including those of libbpf. Only answers that the
//! kernel cannot take back are kept, until the next boot. Most tests also fail for other reasons, such as a lack of memory, so
//! most kept answers are positive. The cache file depends on the privileges of the process, because a kernel hides features
//! from processes that may not use them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::input;
use crate::system::Feature;
use crate::system::cache::{CacheFile, Kind, rbt_itself};
use crate::system::machine::rights;
use crate::system::portability::questions::digest;

const KIND: Kind = Kind { form: "rbt-features-2", prefix: "features-", max_bytes: 16 << 10, max_files: 8, max_total: 1 << 20 };

/// Limits for the kept targets: their number, and the length of a name in bytes.
const MAX_TARGETS: usize = 64;
const MAX_NAME: usize = 128;

/// The kept answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Answers {
    features: BTreeMap<Feature, bool>,
    /// What libbpf has found to be supported, by its own numbers.
    of_libbpf: BTreeSet<u32>,
    /// The IDs in the kernel's own BTF of what programs were loaded for, by texts that name it.
    targets: BTreeMap<String, u32>,
}

/// The answers of this process: those of its cache file, and new ones.
#[derive(Debug)]
struct Known {
    file: Option<CacheFile>,
    answers: Answers,
    has_grown: bool,
}

impl Known {
    fn load(file: Option<CacheFile>) -> Self {
        let kept = file.as_ref().and_then(CacheFile::load);
        let answers = kept.and_then(|(bytes, start)| postcard::from_bytes(bytes.get(start..)?).ok());
        Self { file, answers: answers.unwrap_or_default(), has_grown: false }
    }

    fn learn(&mut self, feature: Feature, answer: bool) {
        self.has_grown |= self.answers.features.insert(feature, answer) != Some(answer);
    }

    fn learn_of_libbpf(&mut self, number: u32) {
        self.has_grown |= self.answers.of_libbpf.insert(number);
    }

    fn learn_target(&mut self, name: String, id: u32) {
        if self.answers.targets.len() < MAX_TARGETS && name.len() <= MAX_NAME {
            self.has_grown |= self.answers.targets.insert(name, id) != Some(id);
        }
    }

    fn save(&mut self) {
        if let (Some(file), true) = (&self.file, self.has_grown)
            && let Ok(bytes) = postcard::to_allocvec(&self.answers)
        {
            file.save(&bytes);
        }
        self.has_grown = false;
    }
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

fn known<T>(act: impl FnOnce(&mut Known) -> T) -> T {
    let mut known: MutexGuard<'_, Option<Known>> = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    act(known.get_or_insert_with(|| Known::load(file())))
}

/// The cache file for this build of rbt with its privileges, until the next boot. None if nothing is kept.
fn file() -> Option<CacheFile> {
    let boot = input::line("/proc/sys/kernel/random/boot_id")?;
    let user = rustix::process::geteuid().as_raw();
    let key = digest(&(rbt_itself()?, boot, user, rights::effective(), rights::lockdown()));
    CacheFile::new(KIND, format!("{key:032x}"))
}

/// The known answer for a feature.
pub fn get(feature: Feature) -> Option<bool> {
    known(|known| known.answers.features.get(&feature).copied())
}

/// Notes an answer that is valid until the next boot.
pub fn learn(feature: Feature, answer: bool) {
    known(|known| known.learn(feature, answer));
}

/// Is this feature of libbpf's list known to be supported?
pub fn libbpf_knows(number: u32) -> bool {
    known(|known| known.answers.of_libbpf.contains(&number))
}

/// Notes that a feature of libbpf's list is supported.
pub fn learn_of_libbpf(number: u32) {
    known(|known| known.learn_of_libbpf(number));
}

/// The ID of a target in the kernel's own BTF, by a text that names it: the kept one, or the one that `find` returns.
pub fn target(name: &str, find: impl FnOnce() -> Option<u32>) -> Option<u32> {
    if let Some(id) = known(|known| known.answers.targets.get(name).copied()) {
        return Some(id);
    }
    let id = find()?;
    known(|known| known.learn_target(name.to_owned(), id));
    Some(id)
}

/// Keeps new answers for later runs.
pub fn keep() {
    known(Known::save);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_kept_only_if_they_are_new() {
        let folder = std::env::temp_dir().join(format!("rbt-features-{}", std::process::id()));
        let file = || Some(CacheFile::at(KIND, &folder, "0123"));
        let mut first = Known::load(file());
        assert_eq!(first.answers, Answers::default());
        first.save();
        assert!(!folder.exists());
        first.learn(Feature::ShortKeys, false);
        first.learn(Feature::CpuV4, true);
        first.learn_of_libbpf(3);
        first.learn_target("fentry/vfs_read".into(), 7);
        first.learn_target("x".repeat(MAX_NAME + 1), 8);
        first.save();
        let mut later = Known::load(file());
        assert_eq!(later.answers, first.answers);
        assert_eq!(later.answers.features.get(&Feature::ShortKeys), Some(&false));
        assert_eq!(later.answers.targets, BTreeMap::from([("fentry/vfs_read".to_string(), 7)]));
        std::fs::remove_dir_all(&folder).unwrap();
        later.learn(Feature::CpuV4, true);
        later.learn_of_libbpf(3);
        later.learn_target("fentry/vfs_read".into(), 7);
        later.save();
        assert!(!folder.exists());
        (0..2 * MAX_TARGETS as u32).for_each(|n| later.learn_target(n.to_string(), n));
        assert_eq!(later.answers.targets.len(), MAX_TARGETS);
    }
}
