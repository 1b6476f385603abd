//! Makes what cargo alone does not.
//!
//! - The C++ of `src/emit`, compiled.
//! - The tools, `one-liners/*.bt`, as a table that `tools` includes.
//! - With the feature `static-llvm`, a binary that needs nothing from the machine it runs on: not even a C library.
//!
//! rustc can link all of a program statically (`crt-static`), but only for every crate at once, procedural macros
//! among them, which are shared libraries. So the linker is told to, and only for the binaries of this package.
//! What it then needs is an archive of each library that some crate asks for by `-l`. It takes the first folder that
//! has a library of that name, shared or not, and one shared library makes a binary that dies before `main`: so a
//! folder of our own comes first, in which everything is an archive.
//!
//! Tests are linked to the C library that the machine has. For it, the folder has linker scripts that refer to a name
//! which binaries and tests find in different folders.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Libraries that the crates for LLVM and libbpf ask for.
const LIBRARIES: &[&str] = &["stdc++", "zstd", "lzma", "elf", "z", "ffi"];

/// Libraries that LLVM asks for, for parts of it that rbt does not have: an empty archive will do.
const UNUSED: &[&str] = &["z3", "xml2"];

/// The C library and its companions as crates ask for them, and their archives.
const LIBC: &[(&str, &str)] =
    &[("c", "c"), ("m", "m"), ("rt", "rt"), ("dl", "dl"), ("util", "util"), ("pthread", "pthread"), ("gcc_s", "gcc_eh")];

/// A part of a linker script, beside the linker's own: the constructors of LLVM's global objects are in a section that does not
/// run before `main`. There are 350 of them, all over the code of LLVM, and most starts of rbt do not need LLVM.
/// `src/emit/constructors.cpp` runs them.
const LATE: &str = "\
SECTIONS {
  .late_init_array : {
    rbt_late_start = .;
    KEEP(*libLLVM*.a:(.init_array .init_array.*))
    KEEP(*libllvm_sys-*.rlib:(.init_array .init_array.*))
    KEEP(*librbt-passes.a:(.init_array .init_array.*))
    rbt_late_end = .;
  }
} INSERT BEFORE .init_array;
";

/// What is written in C++.
const PASSES: &[&str] = &["src/emit/passes.cpp", "src/emit/codegen.cpp", "src/emit/constructors.cpp", "src/emit/idle_passes.cpp"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    tools(&out);
    let linked = env::var_os("CARGO_FEATURE_STATIC_LLVM").is_some();
    passes(linked);
    if linked {
        link_statically(&out).unwrap_or_else(|e| panic!("{}: {e}", out.display()));
    }
}

/// Compiles the choice of LLVM's passes; where LLVM becomes part of the binary, without those that never do anything.
fn passes(linked: bool) {
    let config = env::var_os("DEP_LLVM_19_CONFIG_PATH").unwrap_or_else(|| "llvm-config-19".into());
    let flags = Command::new(&config).arg("--cxxflags").output();
    let flags = flags.unwrap_or_else(|e| panic!("{}: {e}", config.display()));
    let mut build = cc::Build::new();
    // llvm-sys links the library of C++
    build.cpp(true).cpp_link_stdlib(None).opt_level(2);
    // LLVM's headers have unused parameters, and LLVM no type information
    build.warnings(false).flag("-fno-rtti").flag("-ffunction-sections");
    for flag in String::from_utf8_lossy(&flags.stdout).split_whitespace() {
        build.flag(flag);
    }
    for source in if linked { PASSES } else { &PASSES[..3] } {
        println!("cargo::rerun-if-changed={source}");
        build.file(source);
    }
    // Where LLVM's library has a symbol as well, the linker would keep it, and the library, in programs that do not use it.
    build.flag("-fvisibility=hidden").flag("-fvisibility-inlines-hidden");
    build.compile("rbt-passes");
    if linked {
        // The object of those that do nothing has to be read before LLVM's. Only rbt is to have it: rbt-run has no LLVM.
        println!("cargo::rustc-link-arg-bin=rbt=-Wl,--undefined=rbt_idle_passes");
    }
}

fn link_statically(out: &Path) -> std::io::Result<()> {
    let [all, binaries, others] = ["all", "binaries", "others"].map(|name| out.join(name));
    for folder in [&all, &binaries, &others] {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder)?;
    }
    for name in LIBRARIES {
        // a crate brings what is not installed at all
        let archive = format!("lib{name}.a");
        if let Some(archive) = find(&archive).or_else(|| find(&format!("lib{name}.so")).and_then(|_| installed(&archive))) {
            symlink(archive, all.join(format!("lib{name}.a")))?;
        }
    }
    for name in UNUSED {
        fs::write(all.join(format!("lib{name}.a")), "!<arch>\n")?;
    }
    for (name, archive) in LIBC {
        fs::write(all.join(format!("lib{name}.so")), format!("INPUT(-lrbt-{name})\n"))?;
        if let Some(archive) = installed(&format!("lib{archive}.a")) {
            symlink(archive, binaries.join(format!("librbt-{name}.a")))?;
        }
        // the newer C libraries have most of these as archives alone, which are empty
        let shared = find(&format!("lib{name}.so")).or_else(|| find(&format!("lib{name}.a")));
        let shared = shared.map(|path| format!("INPUT({})\n", path.display())).unwrap_or_default();
        fs::write(others.join(format!("librbt-{name}.so")), shared)?;
    }
    println!("cargo::rustc-link-search=native={}", all.display());
    // Ahead of the bindings, which list LLVM's polyhedral optimizer first: an analysis key that both define would be found
    // there, and with it come 1.5 MB of code and options that are set up at each start.
    println!("cargo::rustc-link-lib=static:-bundle=LLVMAnalysis");

    let binary = |arg: &str| println!("cargo::rustc-link-arg-bins={arg}");
    binary("-static-pie");
    // src/startup/entry.rs
    binary("-Wl,--entry=rbt_entry");
    // 1.6 MB of relocations in their short form: 40 kB
    binary("-Wl,-z,pack-relative-relocs");
    binary(&format!("-L{}", binaries.display()));
    let late = out.join("late.ld");
    fs::write(&late, LATE)?;
    // rbt-run has no LLVM, and an empty section there would be amid those that become read-only
    println!("cargo::rustc-link-arg-bin=rbt=-Wl,-T,{}", late.display());
    // for a linker that does not look back at archives: these need each other
    binary("-Wl,--start-group,-lgcc_s,-lgcc,-lc,--end-group");
    if env::var_os("PROFILE").is_some_and(|p| p == "release") {
        // LLVM's templates make many functions of equal code: 3 MB
        let same = "-Wl,--icf=all";
        if linker_takes(same, out) {
            binary(same);
        }
        // what is in the binary: `cargo bench -- size`
        let map = out.join("rbt.map");
        println!("cargo::rustc-link-arg-bin=rbt=-Wl,-Map={}", map.display());
        println!("cargo::rustc-env=RBT_LINK_MAP={}", map.display());
    }
    println!("cargo::rustc-link-arg=-L{}", others.display());
    Ok(())
}

/// [`find`], of what must be there.
fn installed(file: &str) -> Option<PathBuf> {
    let found = find(file);
    if found.is_none() {
        println!(
            "cargo::error=rbt is linked statically, and {file} is not installed. `tests/setup.sh build` installs it on Debian; \
             `--no-default-features --features dynamic-llvm` does without"
        );
    }
    found
}

/// Where the C compiler of the target finds a library: a name alone is its way to say that it does not.
fn find(file: &str) -> Option<PathBuf> {
    let cc = cc::Build::new().try_get_compiler().ok()?;
    let out = cc.to_command().arg(format!("-print-file-name={file}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(out.stdout).ok()?.trim());
    path.is_absolute().then_some(path)
}

/// Does the linker that rustc uses know an option? LLVM's does, which rustc has brought for x86_64 since 1.90.
fn linker_takes(arg: &str, out: &Path) -> bool {
    let source = out.join("empty.rs");
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.arg(&source).arg("-o").arg(out.join("empty")).arg("-C").arg(format!("link-arg={arg}"));
    rustc.arg("--target").arg(env::var_os("TARGET").unwrap_or_default());
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        rustc.arg("-C").arg(format!("linker={}", linker.display()));
    }
    fs::write(&source, "fn main() {}").is_ok() && rustc.output().is_ok_and(|run| run.status.success())
}

/// Writes the table of tools: names in order, each with its text.
fn tools(out: &Path) {
    let folder = Path::new(&env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("one-liners");
    println!("cargo::rerun-if-changed={}", folder.display());
    let files = fs::read_dir(&folder).into_iter().flatten().flatten().map(|e| e.path());
    let mut files: Vec<PathBuf> = files.filter(|p| p.extension().is_some_and(|e| e == "bt")).collect();
    files.sort();
    let row = |p: &PathBuf| {
        let name = p.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        format!("    Tool {{ name: {name:?}, text: include_str!({:?}) }},\n", p.display().to_string())
    };
    let table = format!("&[\n{}]\n", files.iter().map(row).collect::<String>());
    let to = out.join("tools.rs");
    // never into a file that a copy of this folder may share
    let _ = fs::remove_file(&to);
    fs::write(to, table).unwrap_or_else(|e| panic!("the table of tools cannot be written: {e}"));
}
