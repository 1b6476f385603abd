//! `rbt-run` is the runner alone: neither the compiler nor the checker, nor a library that only they need, is in it.

use object::{Object, ObjectSymbol};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names of modules and libraries that a runner does not need, as symbols spell them.
const COMPILER: &[&str] = &["LLVM", "llvm", "inkwell", "pest", "rustyline", "rbt4sema", "rbt6syntax", "rbt5cdecl", "rbt3fmt", "rbt4repl"];

/// Symbols of a program. Drop glue and the like of a type name its module too, but refer to no code of it.
fn functions(path: &Path) -> Vec<String> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file = object::File::parse(&*bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let symbols = file.symbols().filter(|s| s.size() > 0 && s.kind() == object::SymbolKind::Text);
    symbols.filter_map(|s| s.name().ok().map(String::from)).collect()
}

fn of_compiler(path: &Path) -> Vec<String> {
    let is =
        |name: &String| COMPILER.iter().any(|word| name.contains(word)) && !name.contains("drop_in_place") && !name.contains("drop_glue");
    functions(path).into_iter().filter(is).collect()
}

#[test]
#[cfg_attr(
    all(feature = "static-llvm", debug_assertions),
    ignore = "without link-time optimization, the constructors of LLVM's archives keep their code: run it with dynamic-llvm or --release"
)]
fn the_runner_has_no_compiler_in_it() {
    let [rbt, runner] = [env!("CARGO_BIN_EXE_rbt"), env!("CARGO_BIN_EXE_rbt-run")].map(PathBuf::from);
    if functions(&runner).is_empty() {
        return; // stripped
    }
    assert!(of_compiler(&rbt).len() > 1000, "the names of the compiler's functions are spelled in another way");
    let found = of_compiler(&runner);
    assert!(found.is_empty(), "{} functions of the compiler: {:#?}", found.len(), found.get(..40).unwrap_or(&found));
    let libraries = Command::new("ldd").arg(&runner).output();
    let libraries = libraries.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    assert!(!libraries.contains("LLVM"), "{libraries}");
}
