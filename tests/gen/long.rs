//! Scripts made up at random, as many as wanted: `cargo bench --bench generate -- wild 50000 [SEED [SECONDS]]`, `stress` in
//! place of `wild` for those of the second generator, `exact` for those of which it is known what they print. With
//! `RBT_GENERATE_TELL` set, what the checker refuses of `stress` ones is told. What fails is made small (for so many seconds: 0 where a
//! machine is slow) and printed with its seed, and kept in `target/tmp/generated`; the same seed gives the same script.
//! `-- show wild SEED` prints one, `-- try wild SEED` has it go. For another kernel: `-- make stress 2000 SEED SNAPSHOT FOLDER`
//! here, and there, in a virtual machine, `-- load FOLDER`.

#[path = "mod.rs"]
mod generate;

fn main() -> std::process::ExitCode {
    let args: Vec<String> = match std::env::var(generate::WORK) {
        Ok(work) => work.split(' ').map(String::from).collect(),
        Err(_) => std::env::args().skip(1).filter(|a| a != "--bench").collect(),
    };
    generate::main(&args)
}
