//! Random scripts in any number: `cargo bench --bench generate -- wild 50000 [SEED [SECONDS]]`. `stress` instead of `wild` uses
//! the second generator; `exact` generates scripts with known output. A script that fails is reduced (for at most SECONDS; 0 if
//! the machine is slow), printed with its seed, and stored in `target/tmp/generated`; the same seed yields the same script.
//! `-- show wild SEED` prints one, `-- try wild SEED` runs it. Of `stress` scripts, `RBT_GENERATE_TELL` prints the errors of
//! sema, and `RBT_GENERATE_WITH=TEXT` tries only those with a text. For another kernel: `-- make stress 2000 SEED SNAPSHOT
//! FOLDER` here, and in a virtual machine `-- load FOLDER`.

#[path = "mod.rs"]
mod generate;

fn main() -> std::process::ExitCode {
    let args: Vec<String> = match std::env::var(generate::WORK) {
        Ok(work) => work.split(' ').map(String::from).collect(),
        Err(_) => std::env::args().skip(1).filter(|a| a != "--bench").collect(),
    };
    generate::main(&args)
}
