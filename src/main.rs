//! See `rbt::driver`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(rbt::driver::main(std::env::args_os()))
}
