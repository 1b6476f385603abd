//! Resolves the name in a probe or in `-c` to a file: a path, a glob, a command, a library.
//!
//! `elf` reads the contents of the file.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::failure::reason;
use crate::input;
use crate::system::{
    Missing,
    binary::ldcache,
    binary::root::{BinaryFile, Root, has_ended, missing, process_ended},
    machine::{glob, procfs, rights},
};

/// Returns the ELF files with this name. With `pid`, names are resolved in the file system of
/// that process, and a library is first sought among its mapped files; `*` stands for all executable files that it has mapped,
/// and the empty name for its program.
///
/// A name with a slash is a path or a glob. A name without one is a command on PATH, a library (`libc`, `libc.so.6`,
/// `libstdc++`) or, last, a file in the working directory.
///
/// Errors: no file found, or the file is not ELF. The message says what was tried.
pub fn resolve(name: &str, pid: Option<u32>) -> Result<Vec<BinaryFile>, Missing> {
    if name.is_empty() && pid.is_none() {
        return Err(missing("the binary's name is empty", "name a path, a command or a library: /bin/bash, bash, libc"));
    }
    let root = Root::of(pid)?;
    if let Some(pid) =
        pid.filter(|pid| fs::read_link(procfs::file(*pid, "root")).is_err_and(|why| why.kind() == ErrorKind::PermissionDenied))
    {
        return Err(hidden(pid));
    }
    let found = within(name, pid, &root);
    // If the process ended meanwhile, its files cannot be found.
    match (pid, found) {
        (Some(pid), Err(_)) if has_ended(pid) => Err(process_ended(pid)),
        (_, found) => found,
    }
}

/// Resolves a name in another file tree. Names without a slash are sought there too; relative paths are not.
pub fn resolve_in(name: &str, tree: &Path) -> Result<Vec<BinaryFile>, Missing> {
    let prefix = fs::canonicalize(tree).ok().filter(|p| p.is_dir());
    let prefix = prefix.ok_or_else(|| missing(format!("{} is not a directory", tree.display()), "name the root of a directory tree"))?;
    let prefix = if prefix == Path::new("/") { PathBuf::new() } else { prefix };
    within(name, None, &Root { prefix, pid: None })
}

fn within(name: &str, pid: Option<u32>, root: &Root) -> Result<Vec<BinaryFile>, Missing> {
    let mapped = pid.map(|pid| mapped_files(pid, root)).unwrap_or_default();
    match (pid, name) {
        (Some(pid), "") => return program(pid, root).map(|path| vec![path.into()]),
        (Some(_), "*") => return Ok(mapped.into_iter().filter(|path| is_elf(path)).map(BinaryFile::from).collect()),
        (None, "*") => return Err(missing("`*` as a binary needs a process", "give one with -p, or name the binary")),
        _ => {}
    }
    if glob::is_pattern(name) {
        return matching(name, root);
    }
    if name.contains('/') {
        let found = root.find(Path::new(name)).ok_or_else(|| match root.prefix.as_os_str().is_empty() && Path::new(name).exists() {
            true => missing(format!("{name} is not a regular file"), "name a program or a shared library"),
            false => {
                unreadable(name, root).unwrap_or_else(|| missing(format!("{name} does not exist{}", root.describe()), "check the path"))
            }
        })?;
        return elf(found).map(|path| vec![root.named(path, Path::new(name))]);
    }

    let library = || library(name, root, &mapped);
    let command = || root.command(name).and_then(|path| Some(root.named(root.find(&path)?, &path)));
    let found = if name.starts_with("lib") { library().or_else(command) } else { command().or_else(library) };
    let here = || Some(BinaryFile::new(fs::canonicalize(name).ok().filter(|p| p.is_file())?, name));
    if let Some(file) = found.or_else(here) {
        return Ok(vec![BinaryFile { path: elf(file.path)?, ..file }]);
    }
    if let Some(denied) = unreadable("/", root) {
        return Err(denied);
    }
    Err(missing(
        format!("{name} is neither a command on PATH, nor a library known to ld.so, nor a file here{}", root.describe()),
        "give the binary's full path",
    ))
}

/// The error for a path that this process may not follow; `None` if the path can be followed, or leads nowhere.
fn unreadable(name: &str, root: &Root) -> Option<Missing> {
    let path = PathBuf::from(root.outside(name));
    fs::metadata(&path).err().filter(|why| why.kind() == ErrorKind::PermissionDenied)?;
    let capability = if path.starts_with("/proc") { "CAP_SYS_PTRACE" } else { "CAP_DAC_READ_SEARCH" };
    let help = if rights::holds(capability) { "check its permissions".into() } else { rights::lacking(capability) };
    Some(missing(format!("cannot read {name}{}: permission denied", root.describe()), help))
}

/// The error for a process of another user (proc(5), ptrace(2): PTRACE_MODE_READ).
fn hidden(pid: u32) -> Missing {
    Missing { what: format!("cannot read the program of process {pid}: permission denied"), help: Some(rights::lacking("CAP_SYS_PTRACE")) }
}

/// Returns the program of a process, as a path that can be opened here. If no path leads to it (it was deleted, or it is in a
/// mount namespace that is not visible), the path is the kernel's link.
fn program(pid: u32, root: &Root) -> Result<PathBuf, Missing> {
    let link = procfs::file(pid, "exe");
    let target = fs::read_link(&link).map_err(|why| {
        if why.kind() == ErrorKind::PermissionDenied {
            return hidden(pid);
        }
        missing(format!("process {pid} runs no program"), "it is a kernel thread")
    })?;
    let inode = |path: &Path| fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    let found = root.find(&target).filter(|path| inode(path) == inode(&link));
    elf(found.unwrap_or(link))
}

/// Commands that exist only in the shell.
const SHELL_WORDS: [&str; 10] = ["cd", "export", "source", ".", "for", "while", "if", "ulimit", "set", "exec"];

/// Returns the program that a shell would run for `name`. Errors: not found, a directory, not executable. `-c` needs the reason
/// before it forks.
pub fn command(name: &str) -> Result<PathBuf, Missing> {
    if !name.contains('/') {
        return Root::of(None)?.command(name).ok_or_else(|| {
            let help = match name.contains('=') || SHELL_WORDS.contains(&name) {
                true => "rbt does not run the command in a shell; if it needs one, use sh -c '…'",
                false => "check its spelling, or give its full path",
            };
            missing(format!("command `{name}` is not found on PATH"), help)
        });
    }
    let meta = fs::metadata(name).map_err(|why| missing(format!("cannot run `{name}`: {}", reason(&why)), "check the path"))?;
    if meta.is_dir() {
        return Err(missing(format!("cannot run `{name}`: it is a directory"), "name a program in it"));
    }
    if meta.permissions().mode() & 0o111 == 0 {
        return Err(missing(format!("cannot run `{name}`: it is not executable"), format!("chmod +x {name}")));
    }
    Ok(PathBuf::from(name))
}

fn matching(pattern: &str, root: &Root) -> Result<Vec<BinaryFile>, Missing> {
    // Programs are not searched for recursively.
    let each = pattern.replace("**", "*");
    let (base, absolute) = if pattern.starts_with('/') { (root.outside("/"), true) } else { (OsString::new(), false) };
    let base = Path::new(&base);
    let found = glob::paths(base, &each);
    let within = |path: &Path| if absolute { Path::new("/").join(path.strip_prefix(base).unwrap_or(path)) } else { path.to_owned() };
    let found = found.iter().map(|path| within(path));
    let mut files: Vec<BinaryFile> = found.filter_map(|path| Some(root.named(root.find(&path)?, &path))).collect();
    let matched = files.len();
    // a link comes after the file itself
    files.sort_by(|a, b| (&a.path, a.named != a.path, &a.named).cmp(&(&b.path, b.named != b.path, &b.named)));
    files.dedup_by(|a, b| a.path == b.path);
    files.retain(|file| is_elf(&file.path));
    match (files.is_empty(), matched) {
        (false, _) => Ok(files),
        (true, 0) => Err(missing(format!("no file matches {pattern}{}", root.describe()), "check the pattern, or name one file")),
        (true, n) => Err(missing(format!("{n} files match {pattern}, none of them ELF"), "name programs or libraries")),
    }
}

/// Finds a library by name: one that the process has mapped, else one that ld.so knows, else one in a standard directory. Files
/// for this machine (class and instruction set) come first, then newer versions.
fn library(name: &str, root: &Root, mapped: &[PathBuf]) -> Option<BinaryFile> {
    let matches = |file: &Path| file.file_name().is_some_and(|f| names_library(name, &f.to_string_lossy()));
    let best = |mut files: Vec<BinaryFile>| {
        files.retain(|file| is_elf(&file.path));
        // The sort is stable, so it keeps ld.so's preference among equals.
        files.sort_by_cached_key(|file| (!is_native(&file.path), std::cmp::Reverse(version(&file.path))));
        files.into_iter().next()
    };
    let found = |paths: Vec<PathBuf>| best(paths.iter().filter_map(|path| Some(root.named(root.find(path)?, path))).collect());
    let cached = || ldcache::libraries(root).into_iter().filter(|(soname, _)| names_library(name, soname)).map(|(_, path)| path);
    let listed = |dir: String| root.list(&dir).into_iter().map(move |file| Path::new(&dir).join(file)).filter(|file| matches(file));
    best(mapped.iter().filter(|path| matches(path)).cloned().map(BinaryFile::from).collect())
        .or_else(|| found(cached().collect()))
        .or_else(|| found(ldcache::directories(root).into_iter().flat_map(listed).collect()))
}

/// Does a file (or soname) match the user's name? `libc` matches `libc.so`, `libc.so.6` and `libc-2.31.so`. `libc.so` also
/// matches `libc.so.6`, because the `libc.so` of a development package may be a linker script.
fn names_library(name: &str, file: &str) -> bool {
    let base = name.strip_suffix(".so").unwrap_or(name);
    let Some(rest) = file.strip_prefix(base) else { return file == name };
    let versioned = rest.strip_prefix('-').and_then(|r| r.strip_suffix(".so")).is_some_and(|v| v.starts_with(|c: char| c.is_ascii_digit()));
    file == name || (!base.contains(".so") && (rest == ".so" || rest.starts_with(".so.") || versioned))
}

/// The version numbers after `.so` in a file's name.
fn version(file: &Path) -> Vec<u64> {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let numbers = name.split_once(".so").map(|(_, v)| v.to_owned()).unwrap_or_default();
    numbers.split('.').filter_map(|n| n.parse().ok()).collect()
}

/// Returns the files that a process has mapped as executable, by address, without duplicates. `maps` has paths as seen from
/// here if possible, else (in another mount namespace) as seen by the process; the inode distinguishes the two.
fn mapped_files(pid: u32, root: &Root) -> Vec<PathBuf> {
    let maps = fs::read(procfs::file(pid, "maps")).unwrap_or_default();
    let mut files: Vec<PathBuf> = Vec::new();
    for line in maps.split(|b| *b == b'\n') {
        // address perms offset dev inode path
        let mut parts = line.splitn(6, |b| *b == b' ');
        let executable = parts.nth(1).is_some_and(|perms| perms.get(2) == Some(&b'x'));
        let inode: Option<u64> = parts.nth(2).and_then(|i| std::str::from_utf8(i).ok()?.parse().ok());
        let path = parts.next().map(|path| Path::new(OsStr::from_bytes(path.trim_ascii_start())));
        let (Some(inode), Some(path), true) = (inode, path.filter(|p| p.is_absolute()), executable) else { continue };
        let is_it = |file: &PathBuf| fs::metadata(file).is_ok_and(|m| m.ino() == inode);
        let file = fs::canonicalize(path).ok().filter(is_it).or_else(|| root.find(path).filter(is_it));
        files.extend(file.filter(|file| !files.contains(file)));
    }
    files
}

/// Returns the file if it is ELF, else the error.
fn elf(path: PathBuf) -> Result<PathBuf, Missing> {
    let mut start = [0; 4];
    input::open_regular(&path)
        .and_then(|(mut file, _)| file.read(&mut start))
        .map_err(|why| missing(format!("cannot read {}: {}", path.display(), reason(&why)), "check its permissions"))?;
    if start == object::elf::ELFMAG { Ok(path) } else { Err(crate::system::binary::elf::not_elf(&path)) }
}

fn is_elf(path: &Path) -> bool {
    header(path).is_some_and(|h| h.starts_with(&object::elf::ELFMAG))
}

/// Does the file have the class, byte order and instruction set of rbt itself?
fn is_native(path: &Path) -> bool {
    let kind = |h: [u8; 20]| (h[4], h[5], [h[18], h[19]]);
    header(path).map(kind) == header(Path::new("/proc/self/exe")).map(kind)
}

fn header(path: &Path) -> Option<[u8; 20]> {
    let mut header = [0; 20];
    input::open_regular(path).and_then(|(mut file, _)| file.read_exact(&mut header)).ok()?;
    Some(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, pid: Option<u32>) -> PathBuf {
        let found = resolve(name, pid).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].path.clone()
    }

    #[test]
    fn commands_and_paths() {
        let bash = fs::canonicalize("/bin/bash").unwrap();
        assert_eq!(one("bash", None), bash);
        assert_eq!(one("/bin/bash", None), bash);
        assert_eq!(one("/bin/bas[h]", None), bash);
        assert_eq!(one("bash", Some(std::process::id())), bash);
        let named = |name: &str| resolve(name, None).unwrap()[0].named.clone();
        assert_eq!(named("/bin/bash"), Path::new("/bin/bash"));
        assert_eq!(named("bash"), Root::default().command("bash").unwrap());
    }

    #[test]
    fn libraries() {
        let libc = one("libc.so.6", None);
        assert!(libc.starts_with("/usr") || libc.starts_with("/lib"));
        assert_eq!(one("libc", None), libc);
        assert_eq!(one("libc.so", None), libc);
        assert_eq!(one("libc", Some(std::process::id())), libc);
        assert!(is_native(&libc));
        assert!(one("libstdc++", None).to_string_lossy().contains("libstdc++.so.6"));
    }

    #[test]
    fn library_names() {
        assert!(names_library("libc", "libc.so.6") && names_library("libc", "libc-2.31.so") && names_library("libc.so", "libc.so.6"));
        assert!(names_library("libssl.so.3", "libssl.so.3") && names_library("libstdc++", "libstdc++.so.6.0.30"));
        assert!(
            !names_library("libcrypt", "libcrypto.so.3")
                && !names_library("libssl.so.1", "libssl.so.1.1")
                && !names_library("libc", "libc-client.so")
        );
    }

    #[test]
    fn everything_mapped() {
        let all = resolve("*", Some(std::process::id())).unwrap();
        assert!(all.contains(&fs::canonicalize("/proc/self/exe").unwrap().into()), "{all:?}");
        assert!(all.contains(&one("libc", None).into()));
        assert!(resolve("*", None).is_err());
    }

    #[test]
    fn processes_with_another_root() {
        use std::os::unix::fs::symlink;
        let dir = std::env::temp_dir().join(format!("rbt-root-{}", std::process::id()));
        fs::create_dir_all(dir.join("usr/lib")).unwrap();
        fs::copy("/proc/self/exe", dir.join("usr/lib/libx.so.1.2")).unwrap();
        let _ = symlink("/usr/lib", dir.join("lib"));
        let _ = symlink("../lib/libx.so.1.2", dir.join("usr/lib/libx.so"));
        let _ = symlink("/loop", dir.join("loop"));
        let root = Root { prefix: dir.clone(), pid: None };
        let file = dir.join("usr/lib/libx.so.1.2");
        let found = [
            root.find(Path::new("/lib/libx.so")),
            root.find(Path::new("/../../lib/libx.so.1.2")),
            root.find(Path::new("/loop")),
            library("libx", &root, &[]).map(|file| file.path),
        ];
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(found, [Some(file.clone()), Some(file.clone()), None, Some(file)]);
    }

    #[test]
    fn errors() {
        let what = |name: &str, pid| resolve(name, pid).unwrap_err().what;
        assert!(what("/no/such", None).contains("/no/such does not exist"));
        assert!(what("no-such-command", None).contains("neither a command"));
        assert!(what("/etc/hostname", None).contains("not an ELF file"));
        assert!(what("/etc/host*", None).contains("none of them ELF"));
        assert!(what("/no/such/*", None).contains("no file matches"));
        assert!(what("bash", Some(u32::MAX)).contains("process 4294967295 does not exist"));
        assert!(resolve("", None).is_err());
        let script = std::env::temp_dir().join(format!("rbt-script-{}", std::process::id()));
        fs::write(&script, "#!/bin/sh -e\n").unwrap();
        let error = resolve(script.to_str().unwrap(), None).unwrap_err();
        fs::remove_file(&script).unwrap();
        assert!(error.help.unwrap().contains("/bin/sh"));
    }
}
