//! The directories of C headers on this machine.

use crate::system::machine::arch::HERE;
use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::failure::reason;
use crate::input;
use crate::system::HeaderFolder;

/// Environment variables with the path of the kernel's headers, and of their generated part.
pub const SOURCE: [&str; 2] = ["RBT_KERNEL_SOURCE", "BPFTRACE_KERNEL_SOURCE"];
/// See [`SOURCE`].
pub const BUILD: [&str; 2] = ["RBT_KERNEL_BUILD", "BPFTRACE_KERNEL_BUILD"];

/// Reads a regular file as text; invalid UTF-8 is replaced.
pub fn text(path: &Path) -> Option<String> {
    Some(match String::from_utf8(input::read_regular(path, input::TEXT).ok()?) {
        Ok(text) => text,
        Err(other) => String::from_utf8_lossy(other.as_bytes()).into_owned(),
    })
}

/// Why [`text`] does not read a file that exists.
pub fn unread(path: &Path) -> Option<String> {
    let refused = input::read_regular(path, input::TEXT).err()?;
    (refused.kind() != std::io::ErrorKind::NotFound).then(|| reason(&refused))
}

/// The header directories: those of the kernel in the order of its build, `CPATH` and `C_INCLUDE_PATH`, and the
/// platform's.
pub fn folders() -> Vec<HeaderFolder> {
    let mut all: Vec<HeaderFolder> = kernel().into_iter().map(|path| HeaderFolder { path, kernel: true }).collect();
    for var in ["CPATH", "C_INCLUDE_PATH"] {
        let value = std::env::var_os(var).unwrap_or_default();
        all.extend(
            value
                .as_bytes()
                .split(|b| *b == b':')
                .filter(|p| !p.is_empty())
                .map(|p| HeaderFolder { path: PathBuf::from(std::ffi::OsStr::from_bytes(p)), kernel: false }),
        );
    }
    let platform = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    all.extend(["/usr/local/include", &platform, "/usr/include"].map(|path| HeaderFolder { path: path.into(), kernel: false }));
    all
}

fn kernel() -> Vec<PathBuf> {
    let var = |names: [&str; 2]| names.iter().find_map(std::env::var_os).filter(|v| !v.is_empty()).map(PathBuf::from);
    let (source, build) = match var(SOURCE) {
        Some(source) => (source.clone(), var(BUILD).unwrap_or(source)),
        None => {
            let Some(release) = release() else { return Vec::new() };
            let modules = Path::new("/lib/modules").join(release);
            let (source, build) = (modules.join("source"), modules.join("build"));
            if source.is_dir() { (source, build) } else { (build.clone(), build) }
        }
    };
    if !source.is_dir() {
        return Vec::new();
    }
    // `arch/` directories have the kernel's names.
    let arch = HERE.folder;
    let (arch_include, generated) = (format!("arch/{arch}/include"), format!("arch/{arch}/include/generated"));
    let all = [
        source.join(&arch_include),
        build.join(&generated),
        source.join("include"),
        build.join("include"),
        source.join(arch_include).join("uapi"),
        build.join(generated).join("uapi"),
        source.join("include/uapi"),
        build.join("include/generated/uapi"),
    ];
    let mut kept: Vec<PathBuf> = Vec::new();
    for path in all {
        if path.is_dir() && !kept.contains(&path) {
            kept.push(path);
        }
    }
    kept
}

/// `uname -r`
pub(in crate::system) fn release() -> Option<String> {
    Some(uname()?.0)
}

/// `uname -r` and `uname -m`
pub(in crate::system) fn uname() -> Option<(String, String)> {
    let name = rustix::system::uname();
    let text = |field: &CStr| field.to_str().ok().map(str::to_owned);
    Some((text(name.release())?, text(name.machine())?))
}
