//! Runs the cases under `tests/cases` that need other kernels, in virtual machines. `harness/mod.rs` describes them.

mod harness;

fn main() -> std::process::ExitCode {
    harness::main(harness::Runs::Machines)
}
