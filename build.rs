//! Links the C and C++ libraries that LLVM and libbpf need into the binary, where their archives are installed.
//!
//! The crates that bind them ask for `-lstdc++`, `-lzstd` and so on, which a linker answers from the first folder that
//! has a library of that name, shared or not. So a folder of our own with nothing but the archives comes first. Not so
//! with LLVM's shared library, which brings the same ones as shared libraries.
//!
//! And puts the scripts of `one-liners` into the binary, as a table that `scripts` includes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// All but libc's own and libgcc_s, which every system has.
const LIBRARIES: &[&str] = &["stdc++", "zstd", "lzma", "elf", "z"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CC");
    scripts();
    let here = Path::new(&env::var_os("OUT_DIR").unwrap_or_default()).join("archives");
    let _ = fs::remove_dir_all(&here);
    if env::var_os("CARGO_FEATURE_STATIC_LLVM").is_none() || fs::create_dir_all(&here).is_err() {
        return;
    }
    for name in LIBRARIES {
        let file = format!("lib{name}.a");
        // without one, the shared library will do
        if let Some(archive) = archive(&file) {
            let _ = std::os::unix::fs::symlink(archive, here.join(file));
        }
    }
    println!("cargo:rustc-link-search=native={}", here.display());
    // Ahead of the bindings, which list LLVM's polyhedral optimizer first: an analysis key that both define would be found
    // there, and with it come 1.5 MB of code and options that are set up at each start.
    println!("cargo:rustc-link-lib=static:-bundle=LLVMAnalysis");
}

/// Where the C compiler finds it: a name alone is its way to say that it does not.
fn archive(file: &str) -> Option<PathBuf> {
    let cc = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let out = Command::new(cc).arg(format!("-print-file-name={file}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(out.stdout).ok()?.trim());
    path.is_absolute().then_some(path)
}

/// Writes the table of scripts: names in order, each with its text.
fn scripts() {
    let folder = Path::new(&env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("one-liners");
    println!("cargo:rerun-if-changed={}", folder.display());
    let files = fs::read_dir(&folder).into_iter().flatten().flatten().map(|e| e.path());
    let mut files: Vec<PathBuf> = files.filter(|p| p.extension().is_some_and(|e| e == "bt")).collect();
    files.sort();
    let row = |p: &PathBuf| {
        let name = p.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        format!("    Script {{ name: {name:?}, text: include_str!({:?}) }},\n", p.display().to_string())
    };
    let table = format!("&[\n{}]\n", files.iter().map(row).collect::<String>());
    let to = Path::new(&env::var_os("OUT_DIR").unwrap_or_default()).join("scripts.rs");
    // never into a file that a copy of this folder may share
    let _ = fs::remove_file(&to);
    fs::write(to, table).unwrap_or_else(|e| panic!("the table of scripts cannot be written: {e}"));
}
