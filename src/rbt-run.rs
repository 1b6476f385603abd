//! See `rbt::runner`.

use std::process::ExitCode;

/// The C library calls it before `main`.
#[used]
#[allow(unsafe_code)] // the section's contents are called
#[unsafe(link_section = ".init_array")]
static GUARD: extern "C" fn() = rbt::streams::guard_stdout;

fn main() -> ExitCode {
    ExitCode::from(rbt::runner::main(std::env::args_os()))
}
