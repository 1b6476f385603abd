//! Compiles C for BPF, with the machine's clang.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::diag::{Diagnostic, Span, plural};
use crate::failure::reason;
use crate::system::machine::arch::HERE;

/// The program, which is searched for in `PATH`.
const CLANG: &str = "clang";

/// Compiles a source file to an object. Code: `bad-import`.
pub(super) fn compile(path: &Path) -> Result<Vec<u8>, Diagnostic> {
    let fault = |why: String| Diagnostic::error("bad-import", Span::default(), format!("cannot import {}: {why}", path.display()));
    let mut command = Command::new(CLANG);
    // -g makes clang describe functions and types, which linking requires
    command.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-fno-color-diagnostics", "-Wall"]);
    command.arg(format!("-D__TARGET_ARCH_{}", HERE.folder)).args(["-idirafter", &format!("/usr/include/{}-linux-gnu", HERE.name)]);
    command.args(["-x", "c", "-c"]).arg(path).args(["-o", "-"]);
    let done = command.stdin(Stdio::null()).output().map_err(|e| {
        if e.kind() != ErrorKind::NotFound {
            return fault(format!("clang does not start: {}", reason(&e)));
        }
        fault("there is no clang to compile it".into())
            .help("install clang, or compile the file elsewhere and import the object: clang -target bpf -O2 -g -c x.bpf.c -o x.bpf.o")
    })?;
    if done.status.success() {
        return Ok(done.stdout);
    }
    let text = String::from_utf8_lossy(&done.stderr);
    let mut errors = text.lines().filter(|line| line.contains("error:"));
    let first = errors.next().or(text.lines().next()).unwrap_or("it gives no reason");
    let more = match errors.count() {
        0 => String::new(),
        others => format!(" (and {})", plural(others, "other error", "other errors")),
    };
    Err(fault(format!("clang rejects it: {first}{more}")))
}
