//! See `rbt::runner`.

use std::process::ExitCode;

rbt::run_before_main!();

fn main() -> ExitCode {
    ExitCode::from(rbt::runner::main(&rbt::runner::FULL, std::env::args_os()))
}
