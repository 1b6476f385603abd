//! See `rbt::runner`.

use std::process::ExitCode;

/// The C library calls these before `main`, and before the constructors of libraries, which take milliseconds.
#[used]
#[allow(unsafe_code)] // the functions in this section are called
#[unsafe(link_section = ".preinit_array")]
static FIRST: [extern "C" fn(); 3] =
    [rbt::runtime::keep_user_signals, rbt::startup::entry::unblock_user_signals, rbt::streams::guard_stdout];

fn main() -> ExitCode {
    ExitCode::from(rbt::runner::main(&rbt::runner::FULL, std::env::args_os()))
}
