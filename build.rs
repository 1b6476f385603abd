//! Performs the build steps that cargo does not provide.
//!
//! - It compiles the C++ files of `src/emit`.
//! - It writes the table of the tools, `one-liners/*.bt`, which the module `tools` includes, and that of libbpf's headers for BPF
//!   programs, which `frontend::c_headers` includes.
//! - With the feature `static-llvm`, it links binaries that need no library of the machine they run on, not even the C library.
//!
//! rustc can link a program statically (`crt-static`), but the option applies to all crates. Procedural macros are among them,
//! and they must be shared libraries. This script therefore passes the options for static linking to the linker itself, and only
//! for the binaries of this package. The linker then needs an archive of each library that a crate requests with `-l`. It uses
//! the first search directory that has a library of that name, static or shared. A binary that is linked with a single shared
//! library crashes before `main`. The script therefore puts a directory that contains only archives first in the search path.
//!
//! Tests are linked with the C library of the machine. For this library, the directory contains linker scripts instead of
//! archives. They refer to a name that binaries and tests find in different directories.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The libraries that the crates for LLVM and libbpf request.
const LIBRARIES: &[&str] = &["stdc++", "zstd", "lzma", "elf", "z", "ffi"];

/// The libraries that LLVM requests only for parts that rbt does not contain. An empty archive is sufficient for each.
const UNUSED: &[&str] = &["z3", "xml2"];

/// The names by which crates request the C library and its companions, each with the name of its archive.
const LIBC: &[(&str, &str)] =
    &[("c", "c"), ("m", "m"), ("rt", "rt"), ("dl", "dl"), ("util", "util"), ("pthread", "pthread"), ("gcc_s", "gcc_eh")];

/// An addition to the linker's default script. It places the constructors of LLVM's global objects in a separate section, so that
/// they do not run before `main`. LLVM has 350 of them in all parts of its code, and most runs of rbt do not need LLVM.
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

/// The binaries, and the lists of functions that a start of each runs, as patterns for the names of sections. The second list has
/// those that only a start without the cache runs.
const START_FUNCTIONS: &[(&str, &str, Option<&str>)] = &[
    ("rbt", "src/startup/functions.txt", Some("src/startup/compile_functions.txt")),
    ("rbt-run", RUNNER_FUNCTIONS, None),
    ("rbt-run-small", RUNNER_FUNCTIONS, None),
];
const RUNNER_FUNCTIONS: &str = "src/startup/runner_functions.txt";

/// An addition to the linker's script, which leaves out the tables for unwinding.
const NO_UNWINDING: &str =
    "SECTIONS { /DISCARD/ : { *(.eh_frame .eh_frame.* .gcc_except_table .gcc_except_table.*) } } INSERT BEFORE .text;\n";

/// The C++ source files.
const PASSES: &[&str] = &[
    "src/emit/passes.cpp",
    "src/emit/subroutines.cpp",
    "src/emit/alike.cpp",
    "src/emit/codegen.cpp",
    "src/emit/constructors.cpp",
    "src/emit/debug_info.cpp",
];

/// The header that they share.
const HEADER: &str = "src/emit/subroutines.h";

/// The C++ source file that only static binaries need.
const IDLE_PASSES: &str = "src/emit/idle_passes.cpp";

/// The table of LLVM's functions that static binaries do not contain, because rbt never needs them.
const UNUSED_FUNCTIONS: &str = "src/emit/unused_functions.txt";

/// The definitions of each kind of row in the table. They replace functions with other parameters and results, which compilers
/// permit for symbols of C.
const REPLACEMENTS: &[(&str, &str, &str)] = &[
    // A call ends the process.
    ("never", "void", "__builtin_trap();"),
    // The result is zero, or ignored.
    ("nothing", "long", "return 0;"),
    // The function is the one that runs a pass. It changes nothing.
    ("idle", "llvm::PreservedAnalyses", "return llvm::PreservedAnalyses::all();"),
];

/// The stub of compressed programs (`src/exe`).
const STUB: &str = "src/exe/stub.c";

/// The options of the C compiler for it: it runs without a C library, at any address, and before anything could be protected.
const STUB_FLAGS: &[&str] = &[
    "-std=gnu11",
    "-O2",
    "-ffreestanding",
    "-fpie",
    "-fvisibility=hidden",
    "-ffunction-sections",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    // a loop of memcpy would become a call of memcpy
    "-fno-tree-loop-distribute-patterns",
    "-DMAX_PARTS=8",
];

/// The linker's script for it: the entry is first. Anything in `.variables` would need memory of its own.
const STUB_LAYOUT: &str = "\
SECTIONS {
  .code : { *(.text.entry) *(.text .text.*) *(.rodata .rodata.*) }
  .variables : { *(.data .data.* .bss .bss.* .got .got.*) }
  /DISCARD/ : { *(*) }
}
";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    tools(&out);
    bpf_headers(&out);
    stub(&out).unwrap_or_else(|e| panic!("{STUB}: {e}"));
    let linked = env::var_os("CARGO_FEATURE_STATIC_LLVM").is_some();
    passes(linked, &out);
    // src/runtime/libbpf_features.rs defines the replacement of this function of libbpf.
    println!("cargo::rustc-link-arg-bins=-Wl,--wrap=feat_supported");
    if linked {
        link_statically(&out).unwrap_or_else(|e| panic!("{}: {e}", out.display()));
    }
}

/// Compiles the C++ files. If LLVM is linked into the binary, they include replacements of what rbt never needs.
fn passes(linked: bool, out: &Path) {
    let config = env::var_os("DEP_LLVM_19_CONFIG_PATH").unwrap_or_else(|| "llvm-config-19".into());
    let flags = Command::new(&config).arg("--cxxflags").output();
    let flags = flags.unwrap_or_else(|e| panic!("{}: {e}", config.display()));
    let mut build = cc::Build::new();
    // The crate llvm-sys links the C++ library.
    build.cpp(true).cpp_link_stdlib(None).opt_level(2);
    // LLVM's headers have unused parameters, and LLVM is compiled without type information.
    build.warnings(false).flag("-fno-rtti").flag("-ffunction-sections");
    for flag in String::from_utf8_lossy(&flags.stdout).split_whitespace() {
        build.flag(flag);
    }
    for source in PASSES.iter().copied().chain(linked.then_some(IDLE_PASSES)) {
        println!("cargo::rerun-if-changed={source}");
        build.file(source);
    }
    println!("cargo::rerun-if-changed={HEADER}");
    if linked {
        build.file(unused_functions(out));
    }
    // If LLVM's library also defined one of these symbols, the linker would keep the symbol and the library in programs that use
    // neither.
    build.flag("-fvisibility=hidden").flag("-fvisibility-inlines-hidden");
    build.compile("rbt-passes");
    if linked {
        // The linker must read the object with the empty passes before LLVM's objects. Only rbt needs it, because rbt-run does
        // not contain LLVM.
        println!("cargo::rustc-link-arg-bin=rbt=-Wl,--undefined=rbt_idle_passes,--undefined=rbt_unused_functions");
    }
}

/// Writes a C++ file with replacements of unused functions, and makes the linker use them.
fn unused_functions(out: &Path) -> PathBuf {
    println!("cargo::rerun-if-changed={UNUSED_FUNCTIONS}");
    let table = fs::read_to_string(UNUSED_FUNCTIONS).unwrap_or_else(|e| panic!("{UNUSED_FUNCTIONS}: {e}"));
    let mut source = String::from("#include \"llvm/IR/PassManager.h\"\nextern \"C\" {\nvoid rbt_unused_functions() {}\n");
    for row in table.lines().filter(|row| !row.is_empty() && !row.starts_with('#')) {
        let definition = row.split_once(' ').and_then(|(kind, symbol)| {
            let (_, result, body) = REPLACEMENTS.iter().find(|(name, ..)| *name == kind)?;
            println!("cargo::rustc-link-arg-bin=rbt=-Wl,--wrap={symbol}");
            Some(format!("{result} __wrap_{symbol}() {{ {body} }}\n"))
        });
        source += &definition.unwrap_or_else(|| panic!("{UNUSED_FUNCTIONS}: `{row}` is not a kind and a symbol"));
    }
    let path = out.join("unused_functions.cpp");
    fs::write(&path, source + "}\n").unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    path
}

/// Compiles the stub of compressed programs with zstd's decompressor, and writes its code to a file.
fn stub(out: &Path) -> std::io::Result<()> {
    println!("cargo::rerun-if-changed={STUB}");
    println!("cargo::rerun-if-env-changed=DEP_ZSTD_INCLUDE");
    let compiler = cc::Build::new().no_default_flags(true).try_get_compiler().map_err(std::io::Error::other)?;
    let run = |command: &mut Command| {
        let done = command.status()?;
        if done.success() { Ok(()) } else { Err(std::io::Error::other(format!("{command:?}: {done}"))) }
    };
    let [object, layout, linked] = ["stub.o", "stub.ld", "stub.elf"].map(|name| out.join(name));
    let zstd = env::var_os("DEP_ZSTD_INCLUDE").unwrap_or_default();
    run(compiler.to_command().args(STUB_FLAGS).arg("-isystem").arg(zstd).args(["-c", STUB, "-o"]).arg(&object))?;
    fs::write(&layout, STUB_LAYOUT)?;
    // Nothing relocates the code. If it depends on its address, it differs at another one.
    let mut codes = Vec::new();
    for address in ["0", "0x100000"] {
        let options = format!("-Wl,--gc-sections,--build-id=none,-e,entry,-T,{},--section-start=.code={address}", layout.display());
        run(compiler.to_command().args(["-nostdlib", "-static", &options]).arg(&object).arg("-o").arg(&linked))?;
        codes.push(code_of(&fs::read(&linked)?).ok_or_else(|| std::io::Error::other("its code is not one segment"))?);
    }
    if codes.first() != codes.last() {
        return Err(std::io::Error::other("it needs relocations"));
    }
    let to = out.join("stub.bin");
    let _ = fs::remove_file(&to);
    fs::write(to, codes.swap_remove(0))
}

/// The only segment of a program for 64 bits.
fn code_of(elf: &[u8]) -> Option<Vec<u8>> {
    const LOADED: u64 = 1;
    let number = |at: usize, size: usize| {
        let bytes = elf.get(at..at + size)?;
        Some(bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    };
    let (first, count) = (number(32, 8)? as usize, number(56, 2)? as usize);
    let mut segments = (0..count).map(|i| first + 56 * i).filter(|at| number(*at, 4) == Some(LOADED));
    let (Some(at), None) = (segments.next(), segments.next()) else { return None };
    let (start, in_file, in_memory) = (number(at + 8, 8)? as usize, number(at + 32, 8)?, number(at + 40, 8)?);
    (in_file == in_memory).then(|| elf.get(start..start + in_file as usize).map(Vec::from))?
}

fn link_statically(out: &Path) -> std::io::Result<()> {
    let [all, binaries, others] = ["all", "binaries", "others"].map(|name| out.join(name));
    for folder in [&all, &binaries, &others] {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder)?;
    }
    for name in LIBRARIES {
        // If a library is not installed in any form, a crate provides it.
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
        // Newer C libraries provide most of these only as archives, which are empty.
        let shared = find(&format!("lib{name}.so")).or_else(|| find(&format!("lib{name}.a")));
        let shared = shared.map(|path| format!("INPUT({})\n", path.display())).unwrap_or_default();
        fs::write(others.join(format!("librbt-{name}.so")), shared)?;
    }
    println!("cargo::rustc-link-search=native={}", all.display());
    // This library must precede those of the LLVM bindings, which list LLVM's polyhedral optimizer first. Both define an analysis
    // key. If the linker found the key in the optimizer, it would add 1.5 MB of code, and options that each start sets up.
    println!("cargo::rustc-link-lib=static:-bundle=LLVMAnalysis");

    let binary = |arg: &str| println!("cargo::rustc-link-arg-bins={arg}");
    binary("-static-pie");
    // src/startup/entry.rs defines it.
    binary("-Wl,--entry=rbt_entry");
    // The compact format reduces 1.6 MB of relocations to 40 kB.
    binary("-Wl,-z,pack-relative-relocs");
    binary(&format!("-L{}", binaries.display()));
    let late = out.join("late.ld");
    fs::write(&late, LATE)?;
    // rbt-run does not contain LLVM. The section would be empty there, between sections that become read-only.
    println!("cargo::rustc-link-arg-bin=rbt=-Wl,-T,{}", late.display());
    // In the profile `runner`, a panic ends the program (`src/startup/no_unwinding.rs`). Cargo gives build scripts only the name of
    // the profile that it inherits from, but this directory is PROFILE/build/PACKAGE/out.
    if out.ancestors().nth(3).and_then(Path::file_name).is_some_and(|profile| profile == "runner") {
        let tables = out.join("no_unwinding.ld");
        fs::write(&tables, NO_UNWINDING)?;
        for runner in ["rbt-run", "rbt-run-small"] {
            println!("cargo::rustc-link-arg-bin={runner}=-Wl,--no-eh-frame-hdr,-T,{}", tables.display());
            let map = out.join(format!("{runner}.map"));
            println!("cargo::rustc-link-arg-bin={runner}=-Wl,-Map={}", map.display());
        }
    }
    // These archives depend on each other, and some linkers search each archive only once.
    binary("-Wl,--start-group,-lgcc_s,-lgcc,-lc,--end-group");
    if env::var_os("PROFILE").is_some_and(|p| p == "release") {
        // LLVM's templates generate many functions with identical code. Merging them saves 3 MB.
        let same = "-Wl,--icf=all";
        if linker_takes(same, out) {
            binary(same);
        }
        // The code of a start is scattered over 30 MB. Each page of it that a start touches costs a fault, in which the kernel maps
        // 15 more.
        for (name, list, of_compilation) in START_FUNCTIONS {
            let start = out.join(format!("start-{name}.ld"));
            fs::write(&start, start_functions(list, *of_compilation))?;
            println!("cargo::rustc-link-arg-bin={name}=-Wl,-T,{}", start.display());
        }
        // `cargo bench -- size` reads the map to show the contents of the binary.
        let map = out.join("rbt.map");
        println!("cargo::rustc-link-arg-bin=rbt=-Wl,-Map={}", map.display());
        println!("cargo::rustc-env=RBT_LINK_MAP={}", map.display());
    }
    println!("cargo::rustc-link-arg=-L{}", others.display());
    Ok(())
}

/// An addition to the linker's default script, which places the functions of a start next to each other: those of each start, the
/// constructors of LLVM's global objects, which a start without the cache runs, and those of a compilation.
fn start_functions(list: &str, of_compilation: Option<&str>) -> String {
    let (start, compilation) = (sections(list), of_compilation.map(sections).unwrap_or_default());
    format!(
        "SECTIONS {{\n  .text.rbt_start : {{\n{start}    *(.text.startup .text.startup.*)\n{compilation}  }}\n}} INSERT BEFORE .text;\n"
    )
}

/// The lines of a linker's script for the sections in a list.
fn sections(path: &str) -> String {
    println!("cargo::rerun-if-changed={path}");
    let list = fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(|pattern| format!("    *({pattern})\n")).collect()
}

/// Calls [`find`] for a required library, and reports an error if it is missing.
fn installed(file: &str) -> Option<PathBuf> {
    let found = find(file);
    if found.is_none() {
        println!(
            "cargo::error=rbt is linked statically, but {file} is not installed. `tests/setup.sh build` installs it on Debian. \
             `--no-default-features --features dynamic-llvm` builds rbt without it"
        );
    }
    found
}

/// Returns the path at which the target's C compiler finds a library. If it does not find one, it prints only the name.
fn find(file: &str) -> Option<PathBuf> {
    let cc = cc::Build::new().try_get_compiler().ok()?;
    let out = cc.to_command().arg(format!("-print-file-name={file}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(out.stdout).ok()?.trim());
    path.is_absolute().then_some(path)
}

/// Checks whether the linker that rustc uses accepts an option. LLVM's linker does, which rustc includes for x86_64 since 1.90.
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

/// Writes the table of tools, sorted by name, each with its text.
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
    // Remove the file before writing it, because a copy of this directory may share it.
    let _ = fs::remove_file(&to);
    fs::write(to, table).unwrap_or_else(|e| panic!("the table of tools cannot be written: {e}"));
}

/// The headers of libbpf for BPF programs. The crate libbpf-sys, which contains libbpf, puts them in a directory.
const BPF_HEADERS: &[&str] = &["bpf_core_read.h", "bpf_endian.h", "bpf_helper_defs.h", "bpf_helpers.h", "bpf_tracing.h", "usdt.bpf.h"];

/// Writes the table of these headers, each with its text.
fn bpf_headers(out: &Path) {
    let folder = PathBuf::from(env::var_os("DEP_BPF_INCLUDE").unwrap_or_default()).join("bpf");
    println!("cargo::rerun-if-env-changed=DEP_BPF_INCLUDE");
    let row = |name: &&str| format!("    ({name:?}, include_str!({:?})),\n", folder.join(name).display().to_string());
    let table = format!("&[\n{}]\n", BPF_HEADERS.iter().map(row).collect::<String>());
    let to = out.join("bpf_headers.rs");
    let _ = fs::remove_file(&to);
    fs::write(to, table).unwrap_or_else(|e| panic!("the table of libbpf's headers cannot be written: {e}"));
}
