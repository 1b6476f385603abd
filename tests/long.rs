//! Runs the slow cases under `tests/cases` on this machine. `harness/mod.rs` describes them.

mod harness;

fn main() -> std::process::ExitCode {
    harness::main(harness::Runs::Long)
}
