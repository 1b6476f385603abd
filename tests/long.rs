//! The cases under `tests/cases` that take long, on this machine; `harness/mod.rs` describes them.

mod harness;

fn main() -> std::process::ExitCode {
    harness::main(harness::Runs::Long)
}
