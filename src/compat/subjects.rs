//! The scripts to check: files, directories, patterns, and names of tools.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::cli::{self, Program};
use crate::failure::{Failure, reason};
use crate::progress::Progress;
use crate::system::machine::glob;

/// A script.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its name in reports.
    pub name: String,
    /// The location of its text, or why it is unknown.
    pub program: Result<Program, String>,
}

/// The scripts that words refer to, each once, in order; those of a directory by name.
///
/// Errors: a directory without scripts, and a pattern without matches.
pub fn subjects(words: &[OsString], progress: &Progress) -> Result<Vec<Subject>, Failure> {
    let mut found = Vec::new();
    for word in words {
        let before = found.len();
        let path = Path::new(word);
        if path.is_dir() && cli::tool(word).is_none() {
            folder(path, &mut found, progress);
            if found.len() == before {
                let failure = Failure::new(format!("there are no scripts below {}", path.display()));
                return Err(failure.code("no-scripts").help("in a directory, scripts are files *.bt; name other files explicitly"));
            }
            continue;
        }
        if let Some(pattern) = word.to_str().filter(|word| glob::is_pattern(word) && !path.exists()) {
            let base = if pattern.starts_with('/') { Path::new("/") } else { Path::new("") };
            for file in glob::paths(base, pattern) {
                if file.is_dir() {
                    folder(&file, &mut found, progress);
                } else {
                    found.push(file_subject(file));
                }
            }
            if found.len() == before {
                let failure = Failure::new(format!("no file matches {}", path.display()));
                return Err(failure.code("no-scripts").help("check the pattern; `*` and `?` do not cross a `/`, `**` does"));
            }
            continue;
        }
        found.push(match Program::of(word.clone()) {
            Program::File(path) => file_subject(path),
            Program::Tool(script) => Subject { name: script.name.into(), program: Ok(Program::Tool(script)) },
            program @ (Program::Stdin | Program::Text(_) | Program::Composed(_)) => {
                Subject { name: crate::diag::PROGRAM_NAME.into(), program: Ok(program) }
            }
        });
    }
    let mut seen = BTreeSet::new();
    found.retain(|s| seen.insert(s.name.clone()));
    Ok(found)
}

fn file_subject(path: PathBuf) -> Subject {
    Subject { name: shown(&path), program: Ok(Program::File(path)) }
}

/// A path in unambiguous form: bytes that are not UTF-8 as `\xff`.
fn shown(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let chunks = bytes.utf8_chunks().map(|c| {
        let odd: String = c.invalid().iter().map(|b| format!("\\x{b:02x}")).collect();
        c.valid().to_owned() + &odd
    });
    chunks.collect()
}

/// Types of file systems in which only the kernel creates files (include/uapi/linux/magic.h).
const PSEUDO_FILE_SYSTEMS: [i64; 8] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0xcafe_4a11, // bpf
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x7363_6673, // securityfs
];

/// Is it a directory of processes or devices, such as /proc, which has no scripts?
fn is_of_kernel(folder: &Path) -> bool {
    rustix::fs::statfs(folder).is_ok_and(|fs| PSEUDO_FILE_SYSTEMS.contains(&fs.f_type))
}

/// All `*.bt` files in a directory and its subdirectories, except for hidden ones and file systems of the kernel. Links
/// to directories are not followed, because they may form loops.
fn folder(path: &Path, found: &mut Vec<Subject>, progress: &Progress) {
    progress.at(&format!("looking for scripts in {}", path.display()));
    let listed = std::fs::read_dir(path).and_then(|dir| dir.collect::<Result<Vec<_>, _>>());
    let mut entries = match listed {
        Ok(entries) => entries,
        Err(e) => {
            let why = format!("cannot read the directory: {}", reason(&e));
            found.push(Subject { name: shown(path), program: Err(why) });
            return;
        }
    };
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (name, path) = (entry.file_name(), if path == Path::new(".") { entry.file_name().into() } else { entry.path() });
        if name.as_bytes().starts_with(b".") {
            continue;
        }
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            if is_of_kernel(&path) {
                continue;
            }
            folder(&path, found, progress);
        } else if path.extension().is_some_and(|e| e == "bt") && !path.is_dir() {
            found.push(file_subject(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_select_scripts() {
        let dir = std::env::temp_dir().join(format!("rbt-subjects-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("sub/.hidden")).unwrap();
        std::fs::create_dir_all(dir.join("empty")).unwrap();
        for file in ["b.bt", "a.bt", "sub/c.bt", "sub/.hidden/d.bt", "notes"] {
            std::fs::write(dir.join(file), "begin { }").unwrap();
        }
        std::os::unix::fs::symlink("..", dir.join("sub/loop")).unwrap();
        let at = |word: &str| OsString::from(dir.join(word));
        let names = |words: &[OsString]| -> Vec<String> {
            let all = subjects(words, &Progress::on_stderr()).unwrap();
            all.iter().map(|s| s.name.replace(&format!("{}/", dir.display()), "")).collect()
        };
        assert_eq!(names(&[dir.clone().into(), at("a.bt"), "opensnoop".into()]), ["a.bt", "b.bt", "sub/c.bt", "opensnoop"]);
        assert_eq!(names(&[at("**/*.bt")]), ["a.bt", "b.bt", "sub/c.bt"]);
        assert_eq!(names(&[at("?.bt"), at("none.bt"), at("notes")]), ["a.bt", "b.bt", "none.bt", "notes"]);
        assert!(subjects(&[at("empty")], &Progress::on_stderr()).unwrap_err().message.contains("no scripts below"));
        assert!(subjects(&[at("*.c")], &Progress::on_stderr()).unwrap_err().message.contains("no file matches"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
