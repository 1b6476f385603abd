//! See `rbt::runner`.

rbt::run_before_main!();

fn main() -> ! {
    rbt::startup::exit::end(rbt::runner::main(&rbt::runner::SMALL, std::env::args_os()))
}
