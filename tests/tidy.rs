//! Checks the sources without compiling them. It checks layers, the modules that use each dependency, file sizes, names,
//! formatting, licenses, and the comments at the top of tools.

use rbt::tools::{Header, SUBJECTS, TOOLS};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The layers, lowest first. A module may use lower layers, and its own layer if `peers` is set. Stages do not use one
/// another. They exchange data, which has its own rows.
const LAYERS: &[Layer] = &[
    Layer {
        name: "words",
        peers: true,
        modules: &[
            "diag", "failure", "streams", "terminal", "progress", "protobuf", "random", "types", "units", "value", "decode", "host",
            "input", "linked", "literal", "settings", "state", "output", "part", "timeline", "tls", "http",
        ],
    },
    Layer { name: "data below the tables", peers: true, modules: &["syntax::ast"] },
    Layer { name: "system", peers: false, modules: &["system"] },
    Layer { name: "C declarations", peers: false, modules: &["cdecl"] },
    Layer { name: "emit", peers: false, modules: &["emit"] },
    Layer { name: "tables", peers: true, modules: &["builtins", "probes", "render", "verdict"] },
    Layer { name: "data above the tables", peers: true, modules: &["sema::hir", "codegen::artifact", "syntax::shape"] },
    Layer { name: "stages", peers: false, modules: &["syntax", "sema", "codegen", "runtime", "fmt", "expect"] },
    Layer {
        name: "surface",
        peers: true,
        modules: &[
            "driver",
            "frontend",
            "cli",
            "list",
            "merge",
            "output_files",
            "metrics",
            "otlp",
            "serve",
            "info",
            "help",
            "tools",
            "verbs",
            "compat",
            "repl",
            "startup",
            "launch",
            "bundle",
            "exe",
            "parts",
            "runner",
            "main",
            "rbt-run",
            "rbt-run-small",
        ],
    },
];

/// The modules that may use each dependency. An empty list means all modules.
const HOMES: &[(&str, &[&str])] = &[
    ("anstyle", &[]),
    ("anyhow", &[]),
    ("bitflags", &[]),
    ("blazesym", &["src/runtime/symbolize.rs"]),
    ("clap", &["src/cli/"]),
    ("clap_complete", &["src/cli/"]),
    ("cpp_demangle", &["src/system/binary/demangle.rs"]),
    ("csv", &["src/render/csv.rs"]),
    ("flate2", &["src/system/", "src/bundle.rs", "src/render/pprof.rs", "src/otlp/client.rs"]),
    ("fnv", &["src/cdecl/", "src/render/stack_keys.rs"]),
    ("gimli", &["src/system/binary/dwarf/", "src/system/binary/unwind/"]),
    ("httparse", &["src/serve/http.rs", "src/http/client.rs"]),
    ("iced_x86", &["src/system/binary/instructions/", "src/system/machine/arch/instructions/"]),
    ("inferno", &["src/render/flamegraph.rs"]),
    ("inkwell", &["src/emit/"]),
    ("libbpf_rs", &["src/runtime/", "src/emit/link.rs", "src/emit/libbpf_log.rs", "src/emit/kernel_header.rs"]),
    ("libbpf_sys", &["src/runtime/", "src/emit/link.rs", "src/emit/kernel_header.rs", "src/system/syscalls.rs"]),
    ("libc", &[]),
    ("llvm_sys", &["src/emit/"]),
    ("lz4_flex", &["src/system/kernel_files/"]),
    ("memchr", &["src/system/", "src/exe/"]),
    ("memmap2", &[]),
    ("object", &["src/system/", "src/exe/"]),
    ("pest", &["src/syntax/"]),
    ("pest_derive", &["src/syntax/"]),
    ("regex", &[]),
    ("rustls", &["src/tls.rs"]),
    ("rustls_native_certs", &["src/tls.rs"]),
    ("rustyline", &["src/repl/"]),
    ("rustix", &[]),
    ("rustc_demangle", &["src/system/binary/demangle.rs"]),
    ("serde", &[]),
    ("serde_json", &[]),
    (
        "postcard",
        &[
            "src/frontend/compiled.rs",
            "src/frontend/c_objects.rs",
            "src/runtime/known_names.rs",
            "src/system/kernel/known_features.rs",
            "src/system/portability/kept_answers.rs",
        ],
    ),
    ("sha2", &["src/driver/start.rs", "src/bundle.rs", "src/state/"]),
    ("shlex", &[]),
    ("similar", &["src/driver/fmt.rs"]),
    ("strsim", &["src/diag/"]),
    ("thiserror", &[]),
    ("toml", &["src/compat/"]),
    ("xz2", &["src/system/"]),
    ("zstd", &["src/system/", "src/exe/"]),
    // only `build.rs` uses it: the sources of the decompressor
    ("zstd_sys", &["build.rs"]),
];

/// The maximum number of lines of a file, excluding its tests.
const MAX_LINES: usize = 700;

/// The allowed entries at the top level, except for hidden files.
const TOP: &[&str] = &[
    "Cargo.toml",
    "Cargo.lock",
    "build.rs",
    "src",
    "grammar.pest",
    "tests",
    "one-liners",
    "man",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "target",
];

struct Layer {
    name: &'static str,
    peers: bool,
    modules: &'static [&'static str],
}

#[test]
fn modules_import_only_lower_layers() {
    let mut bad = String::new();
    for file in sources() {
        if file.rel == "src/lib.rs" {
            continue;
        }
        let Some((mine, level)) = layer(&file.module) else {
            let _ = writeln!(bad, "{}: module {} is not in a layer of LAYERS", file.rel, file.module);
            continue;
        };
        for (line, path) in file.imports() {
            let Some((theirs, other)) = layer(&path) else { continue };
            let allowed = theirs == mine || other < level || (other == level && LAYERS[level].peers);
            // A lower layer may be in the directory of a stage: `syntax` uses `syntax::ast`.
            let own = path.split("::").next() == file.module.split("::").next();
            if !allowed && !own {
                let (a, b) = (LAYERS[level].name, LAYERS[other].name);
                let _ = writeln!(bad, "{}:{line}: {mine} ({a}) uses {path} ({b})", file.rel);
            }
        }
    }
    assert!(bad.is_empty(), "\n{bad}");
}

#[test]
fn libraries_are_used_only_at_home() {
    let manifest = read("Cargo.toml");
    let table = manifest.split("[dependencies]").nth(1).and_then(|t| t.split("\n[").next()).unwrap_or("");
    let declared: BTreeSet<String> = table
        .lines()
        .filter_map(|l| l.split_once(['=', '.']))
        .map(|(n, _)| n.trim().replace('-', "_"))
        .filter(|n| !n.is_empty() && !n.starts_with('#'))
        .collect();
    let mut bad = String::new();
    for name in &declared {
        if !HOMES.iter().any(|(n, _)| n == name) {
            let _ = writeln!(bad, "Cargo.toml: {name} is not in HOMES");
        }
    }
    for file in sources() {
        for (n, line) in file.code.lines().enumerate() {
            for (name, homes) in HOMES.iter().filter(|(_, homes)| !homes.is_empty()) {
                // A module may have the name of a library.
                let own = || file.code.contains(&format!("mod {name};"));
                if uses(line, name) && !homes.iter().any(|h| file.rel.starts_with(h)) && !own() {
                    let _ = writeln!(bad, "{}:{}: {name} is for {} alone", file.rel, n + 1, homes.join(", "));
                }
            }
        }
    }
    assert!(bad.is_empty(), "\n{bad}");
}

#[test]
fn files_are_small() {
    let mut bad = String::new();
    for file in sources() {
        let lines = file.code.lines().count();
        if lines > MAX_LINES {
            let _ = writeln!(bad, "{}: {lines} lines, {MAX_LINES} allowed", file.rel);
        }
    }
    assert!(bad.is_empty(), "\n{bad}");
}

#[test]
fn code_does_not_unwrap() {
    let mut bad = String::new();
    for file in sources() {
        for (n, line) in file.code.lines().enumerate() {
            // Readers have a method of this name.
            let line = line.replace("self.expect(", "");
            if [".unwrap()", ".expect(\"", "todo!(", "dbg!("].iter().any(|w| line.contains(w)) {
                let _ = writeln!(bad, "{}:{}: {}", file.rel, n + 1, line.trim());
            }
        }
    }
    assert!(bad.is_empty(), "\n{bad}");
}

/// The list of tools, their help and the manual are made from the comment at the top of each tool. Each comment is complete, and
/// each tool has a test.
#[test]
fn tools_have_complete_comments() {
    let mut bad = String::new();
    for tool in TOOLS {
        let name = tool.name;
        let header = Header::of(tool.text);
        let cases = format!("tests/cases/oneliner/{name}.case");
        let mut wants = |met: bool, what: &str| {
            if !met {
                let _ = writeln!(bad, "one-liners/{name}.bt: {what}");
            }
        };
        wants(tool.text.starts_with("#!/usr/bin/env rbt\n/*\n"), "does not begin with #!/usr/bin/env rbt and a comment");
        wants(header.purpose.ends_with(['.', '?']), "its purpose is not a line that ends with a period");
        wants(!header.subjects.is_empty(), "has no line `Subject:`");
        for subject in &header.subjects {
            wants(SUBJECTS.iter().any(|(s, _)| s == subject), &format!("`{subject}` is not a subject of src/tools.rs"));
        }
        wants(!header.needs.is_empty(), "has no line `Needs:`");
        wants(!header.example.is_empty(), "has no `Example:` of its output");
        wants(root().join(&cases).exists(), &format!("has no {cases}"));
    }
    assert!(bad.is_empty(), "\n{bad}");
}

/// The grammar describes only syntax. A new builtin or probe kind must not change it.
#[test]
fn grammar_names_no_builtin_or_probe_kind() {
    if !root().join("grammar.pest").exists() {
        return;
    }
    let quoted: BTreeSet<String> = read("grammar.pest")
        .lines()
        .map(|l| l.split("//").next().unwrap_or(""))
        .flat_map(|l| l.split('"').skip(1).step_by(2).map(String::from).collect::<Vec<_>>())
        .collect();
    let rows = row_names();
    let bad: Vec<_> = quoted.intersection(&rows).collect();
    assert!(bad.is_empty(), "grammar.pest spells {bad:?}");
}

#[test]
fn formatted() {
    cargo(&["fmt", "--check", "--", "-l"]);
}

fn cargo(args: &[&str]) {
    let Ok(out) = std::process::Command::new("cargo").args(args).current_dir(root()).output() else {
        return skip("cargo");
    };
    let err = String::from_utf8_lossy(&out.stderr);
    if !out.status.success() && (err.contains("no such command") || err.contains("not installed")) {
        return skip(args.first().unwrap_or(&"cargo"));
    }
    assert!(out.status.success(), "cargo {}\n{}{err}", args.join(" "), String::from_utf8_lossy(&out.stdout));
}

#[test]
fn the_top_level_is_short() {
    let names = std::fs::read_dir(root()).into_iter().flatten().flatten();
    let names = names.map(|e| e.file_name().to_string_lossy().into_owned());
    let bad: Vec<_> = names.filter(|n| !n.starts_with('.') && !TOP.contains(&n.as_str())).collect();
    assert!(bad.is_empty(), "at the top level: {bad:?}");
}

// ---------------------------------------------------------------- reading

struct Source {
    /// The path relative to the repository's root, such as `src/sema/calls.rs`.
    rel: String,
    /// The module path, such as `check::calls`. A `mod.rs` has the path of its directory.
    module: String,
    /// The source without comments and without the code after `#[cfg(test)]`.
    code: String,
}

impl Source {
    /// Every path that follows `crate::`, with its line number.
    fn imports(&self) -> Vec<(usize, String)> {
        let mut out = Vec::new();
        for (at, _) in self.code.match_indices("crate::") {
            let line = self.code[..at].matches('\n').count() + 1;
            let mut paths = Vec::new();
            tree(&self.code[at + "crate::".len()..], "", &mut paths);
            out.extend(paths.into_iter().map(|p| (line, p)));
        }
        out
    }
}

/// Expands `a::{b, c::d}` into its paths, and returns the length of the consumed text.
fn tree(text: &str, prefix: &str, out: &mut Vec<String>) -> usize {
    let text_len = text.len();
    let mut rest = text;
    let mut path = prefix.to_string();
    loop {
        rest = rest.trim_start();
        if let Some(inner) = rest.strip_prefix('{') {
            let mut r = inner;
            loop {
                r = r.trim_start();
                if r.is_empty() || r.starts_with('}') {
                    return text_len - r.len() + usize::from(!r.is_empty());
                }
                let took = tree(r, &path, out);
                r = r[took..].trim_start();
                r = r.strip_prefix(',').unwrap_or(r);
                if took == 0 && !r.starts_with('}') {
                    return text_len - r.len();
                }
            }
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let word = &rest[..end];
        rest = &rest[end..];
        if !word.is_empty() {
            path = if path.is_empty() { word.into() } else { format!("{path}::{word}") };
        }
        match rest.strip_prefix("::") {
            Some(r) if !word.is_empty() => rest = r,
            _ => {
                out.push(path);
                return text_len - rest.len();
            }
        }
    }
}

/// The most specific row of the table for a path, and its level.
fn layer(path: &str) -> Option<(&'static str, usize)> {
    let under = |m: &str| path == m || path.strip_prefix(m).is_some_and(|r| r.starts_with("::"));
    let rows = LAYERS.iter().enumerate().flat_map(|(i, l)| l.modules.iter().map(move |m| (*m, i)));
    rows.filter(|(m, _)| under(m)).max_by_key(|(m, _)| m.len())
}

fn sources() -> Vec<Source> {
    let mut files = Vec::new();
    walk(&root().join("src"), &mut files);
    files.sort();
    files.iter().map(|p| source(p)).collect()
}

fn walk(dir: &Path, out: &mut Vec<PathBuf>) {
    for e in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let p = e.path();
        if p.is_dir() {
            walk(&p, out);
        } else if p.extension().is_some_and(|e| e == "rs") {
            out.push(p);
        }
    }
}

fn source(p: &Path) -> Source {
    let rel = p.strip_prefix(root()).unwrap_or(p).display().to_string();
    let module = rel.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::");
    let text = read(&rel);
    // A file that contains only tests starts with one of these attributes.
    let own = text.split("#[cfg(test)]").next().unwrap_or("").split("#[cfg(all(test").next().unwrap_or("");
    let own = if rel.ends_with("/tests.rs") || rel.contains("/tests/") { "" } else { own };
    let comment = |l: &str| l.trim_start().starts_with("//");
    let code = own.lines().map(|l| if comment(l) { "" } else { l }).collect::<Vec<_>>().join("\n");
    Source { rel, module, code }
}

/// Does the line name the crate `name`, and not a local item with that name?
fn uses(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(i, _)| {
        let before = line[..i].chars().next_back();
        let path = line[i + name.len()..].starts_with("::");
        let import = line[..i].trim_end().ends_with("use") && line[i + name.len()..].starts_with(';');
        (path || import) && before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':')
    })
}

/// The names of builtins and probe kinds, as their tables spell them.
fn row_names() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in sources() {
        let quoted = |l: &str| l.split('"').skip(1).step_by(2).map(String::from).collect::<Vec<_>>();
        if file.module.starts_with("builtins") {
            names.extend(file.code.lines().filter(|l| l.contains("name: \"")).flat_map(|l| quoted(l).into_iter().take(1)));
        }
        if file.module.starts_with("probes::") {
            let lines: Vec<_> = file.code.lines().collect();
            for (i, l) in lines.iter().enumerate().filter(|(_, l)| l.contains("fn names(")) {
                names.extend(quoted(l));
                names.extend(lines.get(i + 1).into_iter().flat_map(|l| quoted(l)));
            }
        }
    }
    names
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(rel: &str) -> String {
    std::fs::read_to_string(root().join(rel)).unwrap_or_default()
}

fn skip(what: &str) {
    let all = std::env::var("RBT_TEST_REQUIRE").is_ok_and(|v| v == "all");
    assert!(!all, "needs {what}");
    eprintln!("skipped: needs {what}");
}

/// The licenses of crates that may be part of the binary. A crate with several licenses is used under one of these.
const LICENSES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates under other licenses. README names each crate and its license, and a release says where to find the source code.
const OTHER_LICENSES: &[(&str, &str)] = &[("inferno", "CDDL-1.0")];

#[test]
fn licenses_are_known() {
    let out = std::process::Command::new("cargo")
        .args(["tree", "--locked", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}\t{l}"])
        .current_dir(root())
        .output()
        .expect("cargo tree runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let (mut bad, mut others) = (String::new(), BTreeSet::new());
    for line in text.lines() {
        let Some((krate, license)) = line.split_once('\t') else { continue };
        let (name, license) = (krate.split(' ').next().unwrap_or(krate), license.trim_end_matches(" (*)"));
        let fits = |choice: &str| choice.split(" AND ").all(|part| LICENSES.contains(&part.trim_matches(['(', ')', ' '])));
        let all = license.split(" AND ").all(|part| part.trim_matches(['(', ')']).replace('/', " OR ").split(" OR ").any(fits));
        match OTHER_LICENSES.iter().find(|(other, _)| *other == name) {
            Some((_, known)) if *known == license => drop(others.insert(name)),
            None if all => {}
            Some(_) | None => {
                let _ = writeln!(bad, "{krate}: {license} is not in LICENSES");
            }
        }
    }
    let readme = read("README.md");
    for (name, license) in OTHER_LICENSES {
        if !others.contains(name) || !readme.contains(name) || !readme.contains(license) {
            let _ = writeln!(bad, "{name}, {license}: it is no longer used, or README does not name it");
        }
    }
    assert!(bad.is_empty(), "\n{bad}");
}
