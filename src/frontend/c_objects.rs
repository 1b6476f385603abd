//! Keeps the objects of imported C sources between runs.
//!
//! An object depends on the text, the arguments, the compiler, and the files that it includes, which clang lists. If none of
//! them has changed, clang does not run. It does not even need to be installed any more.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::c_headers::Headers;
use crate::input;
use crate::system::cache::{self, CacheFile, Kind, rbt_itself};
use crate::system::portability::questions::digest;

const KIND: Kind = Kind { form: "rbt-c-object-1", prefix: "c-object-", max_bytes: 8 << 20, max_files: 128, max_total: 64 << 20 };
/// Variables with directories that clang searches.
const VARIABLES: [&str; 2] = ["CPATH", "C_INCLUDE_PATH"];
/// The number of components in the name of a header, as sources write it, that may be hidden by other files.
const COMPONENTS: usize = 3;

/// A compilation.
pub(super) struct Compilation<'a> {
    pub path: &'a Path,
    pub text: &'a str,
    pub arguments: &'a [String],
    /// The directories that are searched first.
    pub folders: &'a [PathBuf],
    pub headers: Headers<'a>,
    /// The compiler, if there is one.
    pub compiler: Option<&'a Path>,
}

/// The contents of a file.
#[derive(Serialize, Deserialize)]
struct CacheEntry {
    compiler: String,
    /// The included files, and the digests of their texts.
    files: Vec<(PathBuf, u64)>,
    /// Identifies the kernel's types, if their header is included.
    types: Option<String>,
    /// The names of rbt's own headers that are included.
    own: Vec<PathBuf>,
    object: Vec<u8>,
}

impl Compilation<'_> {
    fn file(&self) -> Option<CacheFile> {
        let variables: Vec<_> = VARIABLES.iter().map(env::var_os).collect();
        let place = (env::current_dir().ok()?, self.path, self.path.canonicalize().ok()?);
        let key = format!("{:032x}", digest(&(rbt_itself()?, self.text, self.arguments, self.folders, place, variables)));
        CacheFile::new(KIND, key)
    }

    /// The object of an earlier compilation, if it would be the same now.
    pub fn load(&self) -> Option<Vec<u8>> {
        let (bytes, start) = self.file()?.load()?;
        let kept: CacheEntry = postcard::from_bytes(bytes.get(start..)?).ok()?;
        let same_compiler = match self.compiler {
            Some(compiler) => identify(compiler)? == kept.compiler,
            None => true,
        };
        let same = same_compiler
            && kept.files.iter().all(|(path, digest)| digest_of(path) == Some(*digest))
            && !self.is_hidden(&kept)
            && kept.types.is_none_or(|types| self.headers.identify_types().is_ok_and(|now| now == types));
        same.then_some(kept.object)
    }

    /// Keeps an object. `included` are the files that clang lists, `own` the directory of rbt's own headers.
    pub fn save(&self, object: &[u8], included: Vec<PathBuf>, own: &Path, types: Option<String>) {
        let _ = self.try_save(object, included, own, types);
    }

    fn try_save(&self, object: &[u8], included: Vec<PathBuf>, own: &Path, types: Option<String>) -> Option<()> {
        let compiler = identify(self.compiler?)?;
        let (ours, others): (Vec<_>, Vec<_>) = included.into_iter().partition(|path| path.starts_with(own));
        let own = ours.iter().filter_map(|path| Some(path.strip_prefix(own).ok()?.to_owned())).collect();
        let files: Option<Vec<_>> = others.into_iter().map(|path| Some((digest_of(&path)?, path))).collect();
        let files: Vec<_> = files?.into_iter().map(|(digest, path)| (path, digest)).collect();
        // clang may have read a newer text
        let read = (self.path.to_owned(), cache::digest(self.text.as_bytes()));
        if !files.contains(&read) {
            return None;
        }
        let entry = CacheEntry { compiler, files, types, own, object: object.to_owned() };
        self.file()?.save(&postcard::to_allocvec(&entry).ok()?);
        Some(())
    }

    /// Is there a new file that may hide an included one?
    fn is_hidden(&self, kept: &CacheEntry) -> bool {
        let files = || kept.files.iter().map(|(path, _)| path.as_path());
        let known: BTreeSet<PathBuf> = files().filter_map(|path| path.canonicalize().ok()).collect();
        files().chain(kept.own.iter().map(PathBuf::as_path)).any(|path| {
            let parts: Vec<_> = path.components().collect();
            (1..=COMPONENTS.min(parts.len())).any(|n| {
                let name: PathBuf = parts.iter().skip(parts.len() - n).collect();
                let mut places = self.folders.iter().filter_map(|folder| folder.join(&name).canonicalize().ok());
                places.any(|place| !known.contains(&place) && place.is_file())
            })
        })
    }
}

/// Identifies a program by its file.
fn identify(program: &Path) -> Option<String> {
    let real = program.canonicalize().ok()?;
    Some(format!("{} {}", real.display(), cache::unchanged(&real.metadata().ok()?, SystemTime::now())?))
}

fn digest_of(path: &Path) -> Option<u64> {
    Some(cache::digest(&input::read_regular(path, input::TEXT).ok()?))
}

/// The files in a rule of make that clang wrote: `object: file file`, with continued lines.
pub(super) fn prerequisites(rule: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut file = String::new();
    let mut chars = rule.split_once(": ").map_or("", |(_, files)| files).chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek().copied()) {
            ('\\', Some(next @ (' ' | '#'))) | ('$', Some(next @ '$')) => {
                file.push(next);
                chars.next();
            }
            ('\\', Some('\n')) => {}
            (' ' | '\n', _) => files.extend(Some(std::mem::take(&mut file)).filter(|file| !file.is_empty())),
            _ => file.push(c),
        }
    }
    files.extend(Some(file).filter(|file| !file.is_empty()));
    files.into_iter().map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::prerequisites;
    use std::path::Path;

    #[test]
    fn rules_of_make() {
        let files = prerequisites("rbt: a.c /usr/b.h \\\n  with\\ space.h \\\n  $$HOME\\#1.h c\\d.h\n");
        let wanted = ["a.c", "/usr/b.h", "with space.h", "$HOME#1.h", "c\\d.h"];
        assert_eq!(files, wanted.map(Path::new));
        assert!(prerequisites("").is_empty() && prerequisites("rbt:\n").is_empty());
    }
}
