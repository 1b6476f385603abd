fn main() {
    println!("{}", rbt::VERSION);
}
