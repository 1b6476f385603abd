//! Detects traced files that change during the run. A probe attaches to a file, not to its name: if the file is replaced, for
//! example by a package upgrade, processes that start afterward are not traced.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::codegen::artifact::{AttachSite, Manifest};

/// The traced files in their original state.
pub(super) struct Files(Vec<(PathBuf, State)>);

/// The identity of a file, and the time of its last change: stat(2).
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    file: (u64, u64),
    written: (i64, i64),
}

fn state(path: &Path) -> Option<State> {
    let meta = fs::metadata(path).ok()?;
    Some(State { file: (meta.dev(), meta.ino()), written: (meta.mtime(), meta.mtime_nsec()) })
}

impl Files {
    /// The files in their current state.
    pub(super) fn of(manifest: &Manifest) -> Self {
        let paths: BTreeSet<&Path> = manifest.programs.iter().flat_map(|p| &p.sites).filter_map(|s| s.attach.binary()).collect();
        Self(paths.into_iter().filter_map(|path| Some((path.to_owned(), state(path)?))).collect())
    }

    /// Has the file of a site changed since? A file that is gone has.
    pub(super) fn has_changed(&self, site: &AttachSite) -> bool {
        let of = |path: &Path| self.0.iter().any(|(known, before)| known == path && state(path) != Some(*before));
        site.attach.binary().is_some_and(of)
    }

    /// Notes about files that have changed since. A file that is gone is not reported: it cannot be started.
    pub(super) fn notes(&self) -> Vec<String> {
        let note = |(path, before): &(PathBuf, State)| {
            let now = state(path).filter(|now| now != before)?;
            let path = path.display();
            Some(if now.file != before.file {
                format!("note: {path} was replaced during the run: processes started since run the new file, which is not traced")
            } else {
                format!("note: {path} was modified during the run: its probes may be at the wrong places")
            })
        };
        self.0.iter().filter_map(note).collect()
    }
}
