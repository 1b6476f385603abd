//! Checks that `rbt-run` contains only the runner, without the compiler, the checker, or a library that only they need; and that
//! `rbt-run-small` does not contain the parts that it lacks either.

use object::{Object, ObjectSymbol};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Modules and crates that the runner does not need, as symbol names spell them.
const COMPILER: &[&str] = &["inkwell", "pest", "regex_automata", "rustyline", "rbt4sema", "rbt6syntax", "rbt5cdecl", "rbt3fmt", "rbt4repl"];

/// Parts of these modules that the runner shares: the operators of expectations.
const SHARED: &[&str] = &["rbt6syntax3ast"];

/// Modules and crates of the parts that the small runner lacks.
const PARTS: &[&str] =
    &["blazesym", "cpp_demangle", "httparse", "iced_x86", "inferno", "quick_xml", "rustls", "webpki", "6binary5dwarf", "6binary6unwind"];

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

/// Is it only the drop glue of a type?
fn drops(name: &str) -> bool {
    name.contains("drop_in_place") || name.contains("drop_glue")
}

/// The functions of the compiler in a program. The drop glue of a type is excluded. Its symbol also names the type's module, but
/// it does not refer to code of that module.
fn of_compiler(path: &Path) -> Vec<String> {
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

#[test]
#[cfg_attr(not(debug_assertions), ignore = "a release has no symbols")]
fn small_runner_contains_no_parts() {
    let [full, small] = [env!("CARGO_BIN_EXE_rbt-run"), env!("CARGO_BIN_EXE_rbt-run-small")].map(PathBuf::from);
    let in_full = functions(&full);
    let unknown: Vec<_> = PARTS.iter().filter(|part| !in_full.iter().any(|name| name.contains(*part))).collect();
    assert!(unknown.is_empty(), "the parts have other names than PARTS expects: {unknown:?}");
    let found: Vec<_> = functions(&small).into_iter().filter(|name| PARTS.iter().any(|part| name.contains(part)) && !drops(name)).collect();
    assert!(found.is_empty(), "{} functions of parts: {:#?}", found.len(), found.get(..40).unwrap_or(&found));
    assert!(of_compiler(&small).is_empty());
}
