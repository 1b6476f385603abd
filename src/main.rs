//! See `rbt::driver`.

use std::process::ExitCode;

rbt::run_before_main!();

fn main() -> ExitCode {
    ExitCode::from(rbt::driver::main(std::env::args_os()))
}
