//! Tries any number of random scripts: `cargo bench --bench generate -- wild 50000 [SEED [SECONDS]]`. Use `stress` instead of
//! `wild` for the second generator, and `exact` for scripts with known output. A failing script is reduced for at most SECONDS,
//! printed with its seed, and stored in `target/tmp/generated`. Use 0 SECONDS if the machine is slow. The same seed yields the
//! same script.
//!
//! `-- show wild SEED` prints a script, and `-- try wild SEED` runs it. For `stress` scripts, `RBT_GENERATE_TELL` prints the
//! errors of sema, and `RBT_GENERATE_WITH=TEXT` tries only scripts that contain a text. To test another kernel, run `-- make
//! stress 2000 SEED SNAPSHOT FOLDER` on this machine, and `-- load FOLDER` in a virtual machine. With
//! `RBT_GENERATE_WITHOUT_TABLES`, user stacks follow frame pointers: an emulated machine takes 10 s to verify the walk by tables.

#[path = "mod.rs"]
mod generate;

fn main() -> std::process::ExitCode {
    let args: Vec<String> = match std::env::var(generate::WORK) {
        Ok(work) => work.split(' ').map(String::from).collect(),
        Err(_) => std::env::args().skip(1).filter(|a| a != "--bench").collect(),
    };
    generate::main(&args)
}
