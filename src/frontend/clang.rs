//! Compiles C for BPF, with the machine's clang.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::fs::{Access, access};

use super::c_headers::{Folder, Headers, VMLINUX};
use super::c_objects::{Compilation, prerequisites};
use crate::diag::{Diagnostic, Span, plural};
use crate::failure::reason;
use crate::system::machine::arch::Arch;

/// The program, which is searched for in `PATH`.
const CLANG: &str = "clang";
/// The name of rbt's own headers in messages and debug information. The name of their directory changes.
const OWN: &str = "/rbt";
/// The file that receives the names of included files.
const INCLUDED: &str = "included";

/// Compiles a source file with this text to an object. Code: `bad-import`.
pub(super) fn compile(path: &Path, text: &str, headers: Headers<'_>) -> Result<Vec<u8>, Diagnostic> {
    let fault = |why: String| Diagnostic::error("bad-import", Span::default(), format!("cannot import {}: {why}", path.display()));
    let beside = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folders: Vec<PathBuf> = headers.folders.iter().cloned().chain([beside.to_owned()]).collect();
    let arguments = arguments(headers.arch);
    let clang = find();
    let compilation = Compilation { path, text, arguments: &arguments, folders: &folders, headers, compiler: clang.as_deref() };
    if let Some(object) = compilation.load() {
        return Ok(object);
    }
    let Some(clang) = &clang else {
        return Err(fault("there is no clang to compile it".into())
            .help("install clang, or compile the file elsewhere and import the object: clang -target bpf -O2 -g -c x.bpf.c -o x.bpf.o"));
    };
    let no_headers = |why: String| fault(format!("its headers cannot be written: {why}"));
    let mut own = Folder::new().map_err(|e| no_headers(reason(&e)))?;
    let run = |own: &Folder| {
        run(clang, &arguments, &folders, (own, headers.arch), path).map_err(|e| fault(format!("clang does not start: {}", reason(&e))))
    };
    let mut done = run(&own)?;
    if !done.status.success() && String::from_utf8_lossy(&done.stderr).contains(&format!("'{VMLINUX}' file not found")) {
        own.add_vmlinux(headers).map_err(|why| no_headers(format!("{VMLINUX}: {why}")))?;
        done = run(&own)?;
    }
    if done.status.success() {
        let rule = std::fs::read_to_string(own.path().join(INCLUDED)).unwrap_or_default();
        compilation.save(&done.stdout, prerequisites(&rule), own.path(), own.types.clone());
        return Ok(done.stdout);
    }
    let text = String::from_utf8_lossy(&done.stderr).replace(&own.path().display().to_string(), OWN);
    let mut errors = text.lines().filter(|line| line.contains("error:"));
    let first = errors.next().or(text.lines().next()).unwrap_or("it gives no reason");
    let more = match errors.count() {
        0 => String::new(),
        others => format!(" (and {})", plural(others, "other error", "other errors")),
    };
    Err(fault(format!("clang rejects it: {first}{more}")))
}

/// The arguments that are the same for all files.
fn arguments(arch: &Arch) -> Vec<String> {
    // -g makes clang describe functions and types, which linking requires
    let fixed = ["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-fno-color-diagnostics", "-Wall"].map(str::to_owned);
    fixed.into_iter().chain([format!("-D__TARGET_ARCH_{}", arch.folder)]).collect()
}

fn run(clang: &Path, arguments: &[String], folders: &[PathBuf], (own, arch): (&Folder, &Arch), path: &Path) -> std::io::Result<Output> {
    let mut command = Command::new(clang);
    command.args(arguments);
    for folder in folders {
        command.arg("-I").arg(folder);
    }
    // rbt's own headers follow those of the machine
    command.arg("-idirafter").arg(own.path()).args(["-idirafter", &format!("/usr/include/{}-linux-gnu", arch.name)]);
    command.arg(format!("-fdebug-prefix-map={}={OWN}", own.path().display()));
    command.args(["-MD", "-MT", "rbt", "-MF"]).arg(own.path().join(INCLUDED));
    command.args(["-x", "c", "-c"]).arg(path).args(["-o", "-"]);
    command.stdin(Stdio::null()).output()
}

/// The path of clang.
fn find() -> Option<PathBuf> {
    let path = env::var_os("PATH");
    let folders = env::split_paths(path.as_deref().unwrap_or(OsStr::new("/usr/bin:/bin")));
    let mut files = folders.map(|folder| folder.join(CLANG));
    files.find(|file| file.is_file() && access(file, Access::EXEC_OK).is_ok())
}
