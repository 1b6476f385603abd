//! The scripts to check: files, directories, patterns, and names of tools.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::cli::{self, Program};
use crate::failure::{Failure, reason};

/// A script.
#[derive(Clone, Debug)]
pub struct Subject {
    /// As reports call it.
    pub name: String,
    /// Where its text is, or why that cannot be known.
    pub program: Result<Program, String>,
}

/// What words mean, each script once, in their order; those of a folder by name.
///
/// Errors: a folder without scripts, and a pattern that nothing matches.
pub fn subjects(words: &[OsString]) -> Result<Vec<Subject>, Failure> {
    let mut found = Vec::new();
    for word in words {
        let before = found.len();
        let path = Path::new(word);
        if path.is_dir() && cli::saved(word).is_none() {
            folder(path, &mut found);
            if found.len() == before {
                let failure = Failure::new(format!("there are no scripts below {}", path.display()));
                return Err(failure.code("no-scripts").help("in a directory, scripts are files *.bt; name other files explicitly"));
            }
            continue;
        }
        if is_pattern(word) && !path.exists() {
            let mut files = glob(word);
            files.sort();
            for file in files {
                if file.is_dir() {
                    folder(&file, &mut found);
                } else {
                    found.push(of_file(file));
                }
            }
            if found.len() == before {
                let failure = Failure::new(format!("no file matches {}", path.display()));
                return Err(failure.code("no-scripts").help("check the pattern; `*` and `?` do not cross a `/`, `**` does"));
            }
            continue;
        }
        found.push(match Program::of(word.clone()) {
            Program::File(path) => of_file(path),
            Program::Saved(script) => Subject { name: script.name.into(), program: Ok(Program::Saved(script)) },
            program @ (Program::Stdin | Program::Text(_) | Program::Made(_)) => {
                Subject { name: crate::diag::PROGRAM_NAME.into(), program: Ok(program) }
            }
        });
    }
    let mut seen = BTreeSet::new();
    found.retain(|s| seen.insert(s.name.clone()));
    Ok(found)
}

fn of_file(path: PathBuf) -> Subject {
    Subject { name: shown(&path), program: Ok(Program::File(path)) }
}

/// A path, so that no two look the same: what is not UTF-8 as `\xff`.
fn shown(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let chunks = bytes.utf8_chunks().map(|c| {
        let odd: String = c.invalid().iter().map(|b| format!("\\x{b:02x}")).collect();
        c.valid().to_owned() + &odd
    });
    chunks.collect()
}

/// All `*.bt` of a folder and of those in it, but for hidden ones. Links to folders are not followed: they may lead back.
fn folder(path: &Path, found: &mut Vec<Subject>) {
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
            folder(&path, found);
        } else if path.extension().is_some_and(|e| e == "bt") && !path.is_dir() {
            found.push(of_file(path));
        }
    }
}

fn is_pattern(word: &OsString) -> bool {
    word.as_bytes().iter().any(|b| matches!(b, b'*' | b'?'))
}

/// Files and folders that match.
fn glob(pattern: &OsString) -> Vec<PathBuf> {
    let bytes = pattern.as_bytes();
    let start = if bytes.starts_with(b"/") { PathBuf::from("/") } else { PathBuf::new() };
    let parts: Vec<&[u8]> = bytes.split(|b| *b == b'/').filter(|p| !p.is_empty()).collect();
    let mut found = Vec::new();
    descend(start, &parts, &mut found);
    found
}

fn descend(at: PathBuf, parts: &[&[u8]], found: &mut Vec<PathBuf>) {
    let Some((part, rest)) = parts.split_first() else {
        if at.exists() {
            found.push(at);
        }
        return;
    };
    if !part.iter().any(|b| matches!(b, b'*' | b'?')) {
        return descend(at.join(OsString::from_vec(part.to_vec())), rest, found);
    }
    let anywhere = *part == b"**";
    if anywhere {
        descend(at.clone(), rest, found);
    }
    let here = if at.as_os_str().is_empty() { Path::new(".") } else { &at };
    for entry in std::fs::read_dir(here).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.as_bytes().starts_with(b".") && !part.starts_with(b".") {
            continue;
        }
        let is_folder = entry.file_type().is_ok_and(|t| t.is_dir());
        if anywhere && is_folder {
            descend(at.join(&name), parts, found);
        } else if !anywhere && like(part, name.as_bytes()) && (rest.is_empty() || is_folder) {
            descend(at.join(&name), rest, found);
        }
    }
}

/// Does a path match a pattern? `*` and `?` stay within a part, `**` is any number of parts.
pub fn path_like(pattern: &str, path: &str) -> bool {
    fn go(pattern: &[&str], path: &[&str]) -> bool {
        match (pattern.split_first(), path.split_first()) {
            (None, None) => true,
            (Some((&"**", rest)), _) => go(rest, path) || path.split_first().is_some_and(|(_, after)| go(pattern, after)),
            (Some((part, rest)), Some((name, after))) => like(part.as_bytes(), name.as_bytes()) && go(rest, after),
            (None, Some(_)) | (Some(_), None) => false,
        }
    }
    let parts = |text: &'_ str| text.split('/').filter(|p| !p.is_empty() && *p != ".").map(str::to_owned).collect::<Vec<_>>();
    let (pattern, path) = (parts(pattern), parts(path));
    go(&pattern.iter().map(String::as_str).collect::<Vec<_>>(), &path.iter().map(String::as_str).collect::<Vec<_>>())
}

/// `*` is any run of bytes, `?` any one.
fn like(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // where to go on when what follows the last `*` does not match
    let mut again = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                again = Some((p + 1, n));
                p += 1;
            }
            Some(c) if *c == b'?' || name.get(n) == Some(c) => {
                p += 1;
                n += 1;
            }
            _ => match again {
                Some((after, from)) => {
                    (p, n) = (after, from + 1);
                    again = Some((after, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|b| *b == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, want) in [
            ("*.bt", "a.bt", true),
            ("*.bt", "a.bt2", false),
            ("a?c*", "abcd", true),
            ("*a*b", "xaybzb", true),
            ("a", "ab", false),
            ("", "", true),
        ] {
            assert_eq!(like(pattern.as_bytes(), name.as_bytes()), want, "{pattern} {name}");
        }
        for (pattern, path, want) in [
            ("net/*.bt", "net/a.bt", true),
            ("net/*.bt", "./net/a.bt", true),
            ("net/*.bt", "net/x/a.bt", false),
            ("net/**/*.bt", "net/a.bt", true),
            ("**/*.bt", "a/b/c.bt", true),
            ("**", "a/b", true),
            ("*.bt", "net/a.bt", false),
        ] {
            assert_eq!(path_like(pattern, path), want, "{pattern} {path}");
        }
    }

    #[test]
    fn words_mean_scripts() {
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
            let all = subjects(words).unwrap();
            all.iter().map(|s| s.name.replace(&format!("{}/", dir.display()), "")).collect()
        };
        assert_eq!(names(&[dir.clone().into(), at("a.bt"), "opensnoop".into()]), ["a.bt", "b.bt", "sub/c.bt", "opensnoop"]);
        assert_eq!(names(&[at("**/*.bt")]), ["a.bt", "b.bt", "sub/c.bt"]);
        assert_eq!(names(&[at("?.bt"), at("none.bt"), at("notes")]), ["a.bt", "b.bt", "none.bt", "notes"]);
        assert!(subjects(&[at("empty")]).unwrap_err().message.contains("no scripts below"));
        assert!(subjects(&[at("*.c")]).unwrap_err().message.contains("no file matches"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
