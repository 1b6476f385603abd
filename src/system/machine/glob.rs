//! Paths by shell pattern: `*`, `?` and `[a-z]` match within a component, `**` matches any number of components.
//!
//! Attach points have their own wildcards: see [`crate::system::matches`].

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const ANY_PARTS: &str = "**";

/// Does a text contain pattern characters?
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Returns the paths below `base` that match, sorted. Names that start with a dot match only patterns that do. `**` does not
/// follow symbolic links to directories, to avoid loops.
pub fn paths(base: &Path, pattern: &str) -> Vec<PathBuf> {
    let parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty()).collect();
    let mut found = Vec::new();
    descend(base.to_owned(), &parts, &mut found);
    found.sort();
    found.dedup();
    found
}

/// Does a path match a pattern?
pub fn matches(pattern: &str, path: &str) -> bool {
    let parts = |text: &str| text.split('/').filter(|part| !part.is_empty() && *part != ".").map(String::from).collect::<Vec<_>>();
    let path = parts(path);
    // is each beginning of the path matched by the pattern so far?
    let mut reached = vec![false; path.len() + 1];
    reached[0] = true;
    let pattern = parts(pattern);
    for (at, part) in pattern.iter().enumerate() {
        if part == ANY_PARTS {
            let mut any = false;
            // at the end, it does not match the directory itself
            let last = at + 1 == pattern.len() && !path.is_empty();
            for here in &mut reached {
                let before = any;
                any |= *here;
                *here = if last { before } else { any };
            }
            continue;
        }
        let like = Matcher::new(part);
        for end in (1..=path.len()).rev() {
            reached[end] = reached[end - 1] && like.is_match(path[end - 1].as_ref());
        }
        reached[0] = false;
    }
    reached[path.len()]
}

fn descend(at: PathBuf, parts: &[&str], found: &mut Vec<PathBuf>) {
    let Some((part, rest)) = parts.split_first() else {
        found.extend(Some(at).filter(|path| path.exists()));
        return;
    };
    let anywhere = *part == ANY_PARTS;
    if anywhere {
        descend(at.clone(), rest, found);
    } else if !is_pattern(part) {
        return descend(at.join(part), rest, found);
    }
    let here = if at.as_os_str().is_empty() { Path::new(".") } else { &at };
    let like = Matcher::new(part);
    for entry in fs::read_dir(here).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.as_bytes().starts_with(b".") && !part.starts_with('.') {
            continue;
        }
        if anywhere && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            descend(at.join(&name), parts, found);
        } else if !anywhere && like.is_match(&name) {
            descend(at.join(&name), rest, found);
        }
    }
}

/// A pattern for one component of a path.
struct Matcher(Vec<Step>);

enum Step {
    /// `*`
    Any,
    /// `?`
    One,
    Exactly(char),
    /// `[a-z]`, or `[!a-z]` for characters outside of the ranges.
    Class(bool, Vec<(char, char)>),
}

impl Step {
    fn takes(&self, c: char) -> bool {
        match self {
            Step::Any | Step::One => true,
            Step::Exactly(own) => *own == c,
            Step::Class(within, ranges) => ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) == *within,
        }
    }
}

impl Matcher {
    /// Compiles a pattern; an invalid one matches its own text.
    fn new(pattern: &str) -> Self {
        Self(Self::steps(pattern).unwrap_or_else(|| pattern.chars().map(Step::Exactly).collect()))
    }

    fn steps(pattern: &str) -> Option<Vec<Step>> {
        let mut steps = Vec::new();
        let mut rest = pattern.chars();
        while let Some(c) = rest.next() {
            steps.push(match c {
                '*' => Step::Any,
                '?' => Step::One,
                '\\' => Step::Exactly(rest.next()?),
                '[' => {
                    let within = !rest.as_str().starts_with(['!', '^']);
                    if !within {
                        rest.next();
                    }
                    let mut ranges = Vec::new();
                    loop {
                        let low = rest.next()?;
                        if low == ']' && !ranges.is_empty() {
                            break;
                        }
                        let mut after = rest.clone();
                        let high = (after.next() == Some('-')).then(|| after.next()).flatten().filter(|c| *c != ']');
                        if high.is_some() {
                            rest = after;
                        }
                        ranges.push((low, high.unwrap_or(low)));
                    }
                    if ranges.iter().any(|(low, high)| low > high) {
                        return None;
                    }
                    Step::Class(within, ranges)
                }
                c => Step::Exactly(c),
            });
        }
        Some(steps)
    }

    fn is_match(&self, name: &OsStr) -> bool {
        let name: Vec<char> = name.to_string_lossy().chars().collect();
        // Where the last `*` is, and where its text ends: the only place to continue at, because any `*` before it has what it needs.
        let mut retry: Option<(usize, usize)> = None;
        let (mut step, mut at) = (0, 0);
        loop {
            match (self.0.get(step), name.get(at)) {
                (Some(Step::Any), _) => {
                    retry = Some((step, at));
                    step += 1;
                    continue;
                }
                (Some(takes), Some(c)) if takes.takes(*c) => {
                    (step, at) = (step + 1, at + 1);
                    continue;
                }
                (None, None) => return true,
                (Some(_) | None, Some(_)) | (Some(_), None) => {}
            }
            let Some((star, end)) = retry.filter(|(_, end)| *end < name.len()) else { return false };
            retry = Some((star, end + 1));
            (step, at) = (star + 1, end + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, path, expected) in [
            ("*.bt", "a.bt", true),
            ("*.bt", "a.bt2", false),
            ("a?c*", "abcd", true),
            ("*a*b", "xaybzb", true),
            ("a", "ab", false),
            ("", "", true),
            ("lib.so.[67]", "lib.so.6", true),
            ("lib.so.[!67]", "lib.so.6", false),
            ("a[", "a[", true),
            ("a[", "a", false),
            ("{a,b}", "a", false),
            ("{a,b}*", "{a,b}c", true),
            ("net/*.bt", "net/a.bt", true),
            ("net/*.bt", "./net/a.bt", true),
            ("net/*.bt", "net/x/a.bt", false),
            ("net/**/*.bt", "net/a.bt", true),
            ("**/*.bt", "a/b/c.bt", true),
            ("**", "a/b", true),
            ("*.bt", "net/a.bt", false),
            ("a/**", "a", false),
            ("a/**", "a/b/c", true),
            ("**/a/**/b", "x/a/y/a/z/b", true),
            ("**/a/**/b", "x/a/y/b/z", false),
            ("[]a]", "]", true),
            ("[a-]", "-", true),
            ("[^a-c]x", "dx", true),
            ("[^a-c]x", "bx", false),
            ("[c-a]", "[c-a]", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("?", "ä", true),
            ("*?*a", "ba", true),
            ("*ab", "aab", true),
            ("*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac", false),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn paths_below_a_base() {
        // The name of the base is not a pattern.
        let base = std::env::temp_dir().join(format!("rbt-glob[{}]*", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        fs::create_dir_all(base.join("sub/.hidden")).unwrap();
        for file in ["b", "a", "sub/a", "sub/.hidden/a"] {
            fs::write(base.join(file), "").unwrap();
        }
        fs::write(base.join(OsStr::from_bytes(b"\xff")), "").unwrap();
        std::os::unix::fs::symlink(".", base.join("sub/loop")).unwrap();
        let found = |pattern: &str| -> Vec<String> {
            let all = paths(&base, pattern);
            all.iter().map(|p| p.strip_prefix(&base).unwrap().to_string_lossy().into_owned()).collect()
        };
        assert_eq!(found("[ab]"), ["a", "b"]);
        assert_eq!(found("/*/a"), ["sub/a"]);
        assert_eq!(found("**/a"), ["a", "sub/a"]);
        assert_eq!(found("sub/l*/a"), ["sub/loop/a"], "a link that is named");
        assert_eq!(found("sub/.h*/a"), ["sub/.hidden/a"]);
        assert_eq!(found("?"), ["a", "b", "\u{fffd}"]);
        fs::remove_dir_all(&base).unwrap();
    }
}
