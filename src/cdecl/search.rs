//! Finds headers in the directories of the script, the user, the kernel and the platform, in the order of a C compiler.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::builtin;
use crate::system::TargetInfo;

/// Maximum size of a header in bytes.
const MAX_HEADER_SIZE: usize = 8 << 20;

/// The owner of the headers in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The user's (`-I`, `CPATH`) and the platform's: their declarations take precedence over the kernel's BTF.
    User,
    /// The kernel's: BTF takes precedence, and they are read only if BTF lacks something.
    Kernel,
}

/// A directory to search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Its path.
    pub path: PathBuf,
    /// Its owner.
    pub owner: Owner,
}

/// The directories, and the headers found in them.
pub struct Search<'a> {
    sys: &'a dyn TargetInfo,
    folders: Vec<Folder>,
    /// Kernel headers are skipped.
    defer: bool,
    files: BTreeMap<PathBuf, Option<Rc<str>>>,
}

/// The result of a search.
#[derive(Debug, PartialEq, Eq)]
pub enum HeaderLookup {
    /// The file; the numbers of directories start at 1.
    File {
        /// Its path.
        path: PathBuf,
        /// The number of the directory, after which `#include_next` continues.
        folder: usize,
    },
    /// A kernel header that is not read yet.
    Deferred,
    /// The header does not exist.
    NotFound,
}

impl<'a> Search<'a> {
    /// Searches these directories; with `defer`, kernel headers are found, but not read.
    pub fn new(sys: &'a dyn TargetInfo, folders: Vec<Folder>, defer: bool) -> Self {
        Self { sys, folders, defer, files: BTreeMap::new() }
    }

    /// Searches for a header: first in `beside` (the including file's directory, for names in quotes), then in the
    /// directories after the first `from - 1`.
    pub fn find(&mut self, name: &str, beside: Option<&Path>, from: usize) -> HeaderLookup {
        let name = Path::new(name);
        if let Some(beside) = beside {
            let path = beside.join(name);
            if self.read(&path).is_some() {
                let kernel = self.folders.iter().position(|f| path.starts_with(&f.path));
                return HeaderLookup::File { path, folder: kernel.map_or(0, |i| i + 1) };
            }
        }
        if name.is_absolute() {
            let path = name.to_owned();
            return if self.read(&path).is_some() { HeaderLookup::File { path, folder: 0 } } else { HeaderLookup::NotFound };
        }
        // the compiler's own headers come first
        if from == 0 && name.to_str().is_some_and(|n| builtin::header(n).is_some()) {
            return HeaderLookup::File { path: Path::new(builtin::FOLDER).join(name), folder: 0 };
        }
        for i in from.saturating_sub(1)..self.folders.len() {
            let Some(folder) = self.folders.get(i) else { break };
            let (path, owner) = (folder.path.join(name), folder.owner);
            if self.read(&path).is_some() {
                return if owner == Owner::Kernel && self.defer {
                    HeaderLookup::Deferred
                } else {
                    HeaderLookup::File { path, folder: i + 1 }
                };
            }
        }
        HeaderLookup::NotFound
    }

    /// Is a header in this directory (counted from 0) one of the kernel's? Those of its user-space interface are, too.
    pub fn is_kernels(&self, path: &Path, folder: usize) -> bool {
        let Some(folder) = self.folders.get(folder) else { return false };
        let part = path.strip_prefix(&folder.path).ok().and_then(|p| p.components().next());
        let part = part.and_then(|c| c.as_os_str().to_str()).unwrap_or_default();
        folder.owner == Owner::Kernel || (path.starts_with("/usr/include") && matches!(part, "linux" | "asm" | "asm-generic"))
    }

    /// Why a header in quotes cannot be read although it exists.
    pub fn unread(&self, name: &str, beside: &Path) -> Option<String> {
        let path = beside.join(name);
        let large = || format!("it has more than {} megabytes, which is the limit", MAX_HEADER_SIZE >> 20);
        self.sys.file_unread(&path).or_else(|| self.sys.file(&path).map(|_| large()))
    }

    /// Reads a file's text.
    pub fn read(&mut self, path: &Path) -> Option<Rc<str>> {
        if let Some(known) = self.files.get(path) {
            return known.clone();
        }
        let built_in = path.strip_prefix(builtin::FOLDER).ok().and_then(Path::to_str).and_then(builtin::header);
        let text = match built_in {
            Some(text) => Some(Rc::from(text)),
            None => self.sys.file(path).filter(|t| t.len() <= MAX_HEADER_SIZE).map(Rc::from),
        };
        self.files.insert(path.to_owned(), text.clone());
        text
    }
}
