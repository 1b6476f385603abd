//! Well-known constants that BTF lacks: `SIGKILL`, `O_CREAT`, `AF_INET`.
//!
//! They are part of the kernel's interface for user space, so they never change. They apply only if the script, its headers and
//! enums do not define the name.

use super::arch::{Arch, HERE};

/// A group starts with `[header] description`. A row has a name, its value, and values of other architectures: `aarch64=16384`,
/// or `none` if it does not exist there.
const TABLE: &str = include_str!("constants.txt");

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Its name in C.
    pub name: &'static str,
    /// Its value.
    pub value: i64,
    /// The header that defines it; empty if only the kernel uses it.
    pub header: &'static str,
    /// The description of its group.
    pub group: &'static str,
}

/// All constants of this machine, by group.
pub fn all() -> impl Iterator<Item = Constant> {
    of(HERE)
}

/// All constants of an architecture, by group.
pub fn of(arch: &Arch) -> impl Iterator<Item = Constant> {
    let (mut header, mut group) = ("", "");
    TABLE.lines().filter_map(move |line| {
        if let Some((h, g)) = line.strip_prefix('[').and_then(|l| l.split_once("] ")) {
            (header, group) = (h, g);
            return None;
        }
        let mut words = line.split(' ');
        let (name, usual) = (words.next()?, words.next()?);
        let own = words.find_map(|w| w.split_once('=').filter(|(name, _)| *name == arch.name));
        let value = own.map_or(usual, |(_, value)| value).parse().ok()?;
        Some(Constant { name, value, header, group })
    })
}

/// The constant of this machine with this name.
pub fn find(name: &str) -> Option<Constant> {
    find_on(HERE, name)
}

/// The constant of an architecture with this name.
pub fn find_on(arch: &Arch, name: &str) -> Option<Constant> {
    of(arch).find(|c| c.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::machine::arch;
    use std::collections::{BTreeMap, BTreeSet};
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn names_are_unique() {
        let mut seen = BTreeSet::new();
        for c in all() {
            assert!(seen.insert(c.name), "{} stands twice", c.name);
            assert!(!c.group.is_empty());
        }
        let others = if cfg!(target_arch = "x86_64") { 0 } else { 3 };
        let rows = TABLE.lines().filter(|l| !l.starts_with('[')).count();
        assert!(seen.len() + others >= rows, "{} of {rows} rows can be read", seen.len());
        assert_eq!(find("SIGKILL").map(|c| c.value), Some(9));
        assert_eq!(find("sigkill"), None);
        let on = |name: &str| find_on(arch::named(name).unwrap(), "O_DIRECTORY").map(|c| c.value);
        assert_eq!((on("x86_64"), on("aarch64")), (Some(0o200_000), Some(0o40_000)));
    }

    /// The values by the compiler, and the names that it does not know.
    fn compile(header: &str, names: &[&str], to: &std::path::Path) -> Option<Result<BTreeMap<String, i64>, BTreeSet<String>>> {
        let prints: String = names.iter().map(|n| format!("printf(\"{n} %lld\\n\", (long long)({n}));\n")).collect();
        // This header needs another one before it.
        let before = if *header == *"linux/if.h" { "#include <sys/socket.h>\n" } else { "" };
        let text = format!("#define _GNU_SOURCE\n{before}#include <{header}>\nint printf(const char *, ...);\nint main() {{\n{prints}}}\n");
        let mut cc = Command::new("cc");
        cc.args(["-w", "-fmax-errors=0", "-xc", "-", "-o"]).arg(to).env("LC_ALL", "C");
        let mut cc = cc.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().ok()?;
        cc.stdin.take()?.write_all(text.as_bytes()).ok()?;
        let done = cc.wait_with_output().ok()?;
        if !done.status.success() {
            let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
            let unknown: BTreeSet<String> =
                names.iter().filter(|n| stderr.contains(&format!("'{n}' undeclared"))).map(|n| (*n).to_owned()).collect();
            return (!unknown.is_empty()).then_some(Err(unknown));
        }
        let out = Command::new(to).output().ok()?;
        let rows = String::from_utf8_lossy(&out.stdout).into_owned();
        Some(Ok(rows.lines().filter_map(|l| l.split_once(' ')).filter_map(|(n, v)| Some((n.to_owned(), v.parse().ok()?))).collect()))
    }

    /// Compares with the headers of this machine, which may be older and lack some names.
    #[test]
    fn values_are_those_of_the_headers() {
        let mut groups: BTreeMap<&str, Vec<Constant>> = BTreeMap::new();
        for c in all().filter(|c| !c.header.is_empty()) {
            groups.entry(c.header).or_default().push(c);
        }
        let to = std::env::temp_dir().join(format!("rbt-constants.{}", std::process::id()));
        let mut compared = 0;
        for (header, constants) in &groups {
            let mut names: Vec<&str> = constants.iter().map(|c| c.name).collect();
            let mut answer = compile(header, &names, &to);
            if let Some(Err(unknown)) = &answer {
                names.retain(|n| !unknown.contains(*n));
                answer = compile(header, &names, &to);
            }
            let Some(Ok(values)) = answer else {
                eprintln!("not compared: no compiler, or no <{header}>");
                continue;
            };
            for c in constants.iter().filter(|c| values.contains_key(c.name)) {
                assert_eq!(Some(&c.value), values.get(c.name), "{} of <{header}>", c.name);
                compared += 1;
            }
        }
        let _ = std::fs::remove_file(&to);
        eprintln!("{compared} of {} compared", all().count());
    }
}
