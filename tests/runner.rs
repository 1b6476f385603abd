//! Checks that `rbt-run` contains only the runner, without the compiler, the checker, or a library that only they need.

use object::{Object, ObjectSymbol};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Modules and crates that the runner does not need, as symbol names spell them.
const COMPILER: &[&str] = &["inkwell", "pest", "rustyline", "rbt4sema", "rbt6syntax", "rbt5cdecl", "rbt3fmt", "rbt4repl"];

/// Parts of these modules that the runner shares: the operators of expectations.
const SHARED: &[&str] = &["rbt6syntax3ast"];

/// Is this a function of LLVM? rbt calls only LLVM's C interface. Without link-time optimization, a static link keeps the
/// constructors in LLVM's archives and the C++ functions that they refer to.
fn is_llvm(name: &str) -> bool {
    name.starts_with("LLVM") || cfg!(not(feature = "static-llvm")) && name.contains("4llvm")
}

/// The function symbols of a program.
fn functions(path: &Path) -> Vec<String> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file = object::File::parse(&*bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let symbols = file.symbols().filter(|s| s.size() > 0 && s.kind() == object::SymbolKind::Text);
    symbols.filter_map(|s| s.name().ok().map(String::from)).collect()
}

/// The functions of the compiler in a program. The drop glue of a type is excluded. Its symbol also names the type's module, but
/// it does not refer to code of that module.
fn of_compiler(path: &Path) -> Vec<String> {
    let drops = |name: &str| name.contains("drop_in_place") || name.contains("drop_glue");
    let shared = |name: &str| SHARED.iter().any(|word| name.contains(word));
    let is = |name: &String| is_llvm(name) || COMPILER.iter().any(|word| name.contains(word)) && !drops(name) && !shared(name);
    functions(path).into_iter().filter(is).collect()
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "a release has no symbols")]
fn runner_contains_no_compiler() {
    let [rbt, runner] = [env!("CARGO_BIN_EXE_rbt"), env!("CARGO_BIN_EXE_rbt-run")].map(PathBuf::from);
    assert!(of_compiler(&rbt).len() > 1000, "the compiler's functions have other names than COMPILER expects");
    let found = of_compiler(&runner);
    assert!(found.is_empty(), "{} functions of the compiler: {:#?}", found.len(), found.get(..40).unwrap_or(&found));
    let libraries = Command::new("ldd").arg(&runner).output();
    let libraries = libraries.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    assert!(!libraries.contains("LLVM"), "{libraries}");
}
