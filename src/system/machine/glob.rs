//! Paths by shell pattern: `*`, `?` and `[a-z]` match within a component, `**` matches any number of components.
//!
//! Attach points have their own wildcards: see [`crate::system::matches`].

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

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
    let plain = |text: &str| text.split('/').filter(|part| !part.is_empty() && *part != ".").collect::<Vec<_>>().join("/");
    matcher(&plain(pattern)).is_some_and(|glob| glob.is_match(plain(path)))
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
    let like = matcher(part);
    for entry in fs::read_dir(here).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.as_bytes().starts_with(b".") && !part.starts_with('.') {
            continue;
        }
        if anywhere && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            descend(at.join(&name), parts, found);
        } else if !anywhere && like.as_ref().is_some_and(|glob| glob.is_match(&name)) {
            descend(at.join(&name), rest, found);
        }
    }
}

/// Compiles a pattern; an invalid one matches its own text.
fn matcher(pattern: &str) -> Option<GlobMatcher> {
    // Braces are not part of a pattern: the shell expands them.
    let plain = pattern.replace('{', "[{]").replace('}', "[}]");
    let build = |text: &str| GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build();
    let glob = build(&plain).or_else(|_| build(&globset::escape(pattern)));
    glob.ok().map(|glob| glob.compile_matcher())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

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
