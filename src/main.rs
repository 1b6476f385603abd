//! See `rbt::driver`.

rbt::run_before_main!();

fn main() -> ! {
    rbt::startup::exit::end(rbt::driver::main(std::env::args_os()))
}
