//! Tests that the binary runs without any files of the machine, and that uninstalled packages leave no files behind.
//!
//! These tests require a binary that contains LLVM. If the binary uses LLVM's shared library, they are ignored.

#![cfg_attr(not(feature = "static-llvm"), allow(dead_code, unused_imports))]

use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

/// The binary under test.
fn rbt() -> PathBuf {
    env::var_os("RBT_TEST_BIN").map_or_else(|| env!("CARGO_BIN_EXE_rbt").into(), PathBuf::from)
}

/// A directory that is removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("rbt-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self(path)
    }

    /// All files below it, except the records of package managers.
    fn contents(&self) -> String {
        let script = "cd \"$1\" && find . \\( -path ./var/lib/dpkg -o -path ./rpmdb \\) -prune -o -print | sort";
        said(Command::new("sh").args(["-c", script, "sh"]).arg(&self.0))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the output of a command. If the command fails, the test fails.
fn said(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(status.success(), "{command:?}: {status}\n{}", String::from_utf8_lossy(&stderr));
    String::from_utf8_lossy(&stdout).into_owned()
}

/// Runs a program in a root directory to which only /proc, /sys and /dev are added.
fn in_root(root: &Path, program: &[&str]) -> String {
    let script = "root=$1; shift; for d in proc sys dev; do mkdir -p \"$root/$d\"; mount --rbind \"/$d\" \"$root/$d\"; done
        exec chroot \"$root\" \"$@\"";
    let mut unshare = Command::new("unshare");
    // Without this setting, rbt would leave its cache in the root.
    unshare.env("RBT_CACHE", "").args(["--mount", "sh", "-ec", script, "sh"]).arg(root).args(program);
    let out = said(&mut unshare);
    for made in ["proc", "sys", "dev"] {
        // The mounts disappear when the program ends.
        fs::remove_dir(root.join(made)).unwrap_or_else(|e| panic!("{made}: {e}"));
    }
    out
}

/// A script that needs a user's name and the local time. A C library reads files to find them.
const SCRIPT: &str = "begin { printf(\"<%s> %s\\n\", username, strftime(\"%Z\", nsecs)); }
    tracepoint:syscalls:sys_enter_write /pid == cpid/ { @writes = count(); }";

#[test]
#[cfg_attr(not(feature = "static-llvm"), ignore = "needs the feature static-llvm")]
fn needs_no_library() {
    let bytes = fs::read(rbt()).expect("the binary");
    let file = elf::FileHeader64::<object::Endianness>::parse(&*bytes).expect("an ELF file");
    let endian = file.endian().expect("an order of bytes");
    let segments = file.program_headers(endian, &*bytes).expect("segments");
    assert!(!segments.iter().any(|s| s.p_type(endian) == elf::PT_INTERP), "the binary names a dynamic linker");
    let entries = segments.iter().find_map(|s| s.dynamic(endian, &*bytes).expect("entries")).unwrap_or_default();
    assert!(!entries.iter().any(|e| e.tag(endian) == elf::DT_NEEDED), "the binary needs libraries");
}

#[test]
#[cfg_attr(not(feature = "static-llvm"), ignore = "needs the feature static-llvm")]
fn runs_in_an_empty_root() {
    let root = Folder::new("root");
    fs::copy(rbt(), root.0.join("rbt")).expect("a copy of the binary");
    let out = in_root(&root.0, &["/rbt", "-e", SCRIPT, "-c", "/rbt -V"]);
    let lines: Vec<&str> = out.lines().filter(|l| !l.is_empty()).collect();
    assert_eq!(lines, ["<> UTC", concat!("rbt v", env!("CARGO_PKG_VERSION")), "@writes: 1"]);
    assert_eq!(root.contents(), ".\n./rbt\n");
}

/// Sends a signal while the C library is still relocating the binary.
#[test]
#[cfg_attr(not(feature = "static-llvm"), ignore = "needs the feature static-llvm")]
fn keeps_the_earliest_signal() {
    let script = "self:signal:SIGUSR1 { print(\"caught\"); exit(); } interval:s:20 { print(\"lost\"); exit(); }";
    let commands = ["handle SIGUSR1 nostop noprint pass", "starti", "stepi 200", "signal SIGUSR1"];
    let folder = Folder::new("earliest");
    // gdb writes about threads at any moment, also within a line of the program, so the program writes to a file.
    let printed = folder.0.join("printed");
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch"]).args(commands.iter().flat_map(|c| ["-ex", c])).arg("--args").arg(rbt());
    let log = said(gdb.args(["-q", "-e", script, "-o"]).arg(&printed));
    let out = fs::read_to_string(&printed).unwrap_or_else(|e| panic!("{}: {e}\n{log}", printed.display()));
    assert_eq!(out.trim(), "caught", "{log}");
}

#[test]
#[cfg_attr(not(feature = "static-llvm"), ignore = "needs the feature static-llvm")]
fn packages_can_be_installed_and_removed() {
    let dist = Folder::new("dist");
    said(Command::new("tests/release/make.sh").arg("-q").arg("-b").arg(rbt()).arg(&dist.0));
    said(Command::new("sha256sum").args(["--quiet", "-c", "SHA256SUMS"]).current_dir(&dist.0));
    let package = |end: &str| {
        let files = fs::read_dir(&dist.0).expect("a folder").flatten().map(|e| e.path());
        files.filter(|p| p.to_string_lossy().ends_with(end)).collect::<Vec<_>>().pop().unwrap_or_else(|| panic!("no {end}"))
    };

    let readme = fs::read_to_string("README.md").expect("README.md");
    for end in [".deb", ".rpm", ".tar.gz"] {
        let path = package(end);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // On another architecture, the names in README differ.
        assert!(readme.contains(&*name) || !cfg!(target_arch = "x86_64"), "README.md does not say how to install {name}");
    }

    let root = Folder::new("deb");
    for folder in ["info", "updates"] {
        fs::create_dir_all(root.0.join("var/lib/dpkg").join(folder)).expect("a folder");
    }
    fs::write(root.0.join("var/lib/dpkg/status"), "").expect("a file");
    let before = root.contents();
    let dpkg = || {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg(format!("--root={}", root.0.display())).arg("--log=/dev/null");
        dpkg
    };
    said(dpkg().arg("-i").arg(package(".deb")));
    check_installed(&root, "usr/share/zsh/vendor-completions/_rbt");
    said(dpkg().args(["--purge", "rbt"]));
    assert_eq!(root.contents(), before);

    let root = Folder::new("rpm");
    let before = root.contents();
    let rpm = || {
        let mut rpm = Command::new("rpm");
        rpm.arg("--root").arg(&root.0).args(["--dbpath", "/rpmdb"]);
        rpm
    };
    // On Debian, no package provides the dependencies that every RPM has.
    said(rpm().args(["--nodeps", "-i"]).arg(package(".rpm")));
    check_installed(&root, "usr/share/zsh/site-functions/_rbt");
    said(rpm().args(["--nodeps", "-e", "rbt"]));
    // No package owns the directories that every system has.
    let left = root.contents().lines().filter(|l| !root.0.join(l).is_dir()).collect::<Vec<_>>().join("\n");
    assert_eq!((left.as_str(), before.as_str()), ("", ".\n"));

    let archive = said(Command::new("tar").arg("tzf").arg(package(".tar.gz")));
    for name in ["rbt", "LICENSE-MIT", "THIRD-PARTY", "Containerfile", "man/rbt.1", "completions/rbt.bash", "completions/_rbt"] {
        assert!(archive.lines().any(|l| l.split_once('/').is_some_and(|(_, rest)| rest == name)), "{name}: {archive}");
    }
}

/// Checks that the files of a package exist and that its binary runs.
fn check_installed(root: &Folder, zsh: &str) {
    let all = [
        "usr/share/man/man1/rbt.1.gz",
        "usr/share/man/man7/rbt-language.7.gz",
        "usr/share/bash-completion/completions/rbt",
        "usr/share/fish/vendor_completions.d/rbt.fish",
        "usr/share/doc/rbt/LICENSE-APACHE",
        "usr/share/doc/rbt/THIRD-PARTY.gz",
        zsh,
    ];
    for file in all {
        assert!(fs::metadata(root.0.join(file)).is_ok_and(|m| m.is_file() && m.len() > 0), "{file}");
    }
    let out = in_root(&root.0, &["/usr/bin/rbt", "-e", SCRIPT, "-c", "/usr/bin/rbt -V"]);
    assert!(out.ends_with("@writes: 1\n"), "{out}");
}
