//! Reports the composition of the binary, which it reads from the linker's map.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::process;
use crate::stats::target;

/// The maximum size of the binary in MB.
const MOST: f64 = 38.0;

/// The runners, and the maximum sizes of their files in MB.
const RUNNERS: &[(&str, f64)] = &[("rbt-run", 6.5), ("rbt-run-small", 3.7)];

/// Parts and files with fewer bytes are combined.
const SMALL: u64 = 50_000;

/// The number of LLVM's files to list.
const FILES: usize = 20;

pub fn size() {
    let bytes = process::size();
    match option_env!("RBT_LINK_MAP").map(std::fs::read_to_string) {
        Some(Ok(map)) => show(&map),
        _ => println!("  no linker map found (an optimized build with the feature static-llvm writes one)"),
    }
    target("size", bytes as f64 / 1e6, MOST, "MB");
    for (name, most) in RUNNERS {
        match runner(name) {
            Some(bytes) => target(&format!("size of {name}"), bytes as f64 / 1e6, *most, "MB"),
            None => println!("  no {name} found: `cargo build --profile runner --bin {name}` makes it"),
        }
    }
}

/// The size of a runner: of the profile `runner`, or beside an rbt that was installed from a release.
fn runner(name: &str) -> Option<u64> {
    let rbt = PathBuf::from(process::rbt());
    let of_cargo = rbt.parent()?.with_file_name("runner").join(name);
    let of_release = rbt.with_file_name(name);
    let in_target = rbt.parent()?.join("deps").is_dir();
    let file = if in_target { of_cargo } else { of_release };
    std::fs::metadata(file).ok().map(|file| file.len())
}

fn show(map: &str) {
    let (mut parts, mut files) = (BTreeMap::<String, u64>::new(), BTreeMap::<String, u64>::new());
    for (bytes, from) in map.lines().filter_map(piece) {
        let part = part(from);
        if part == LLVM {
            *files.entry(member(from).into()).or_default() += bytes;
        }
        *parts.entry(part).or_default() += bytes;
    }
    list(parts, usize::MAX);
    println!("  the largest files of {LLVM}:");
    list(files, FILES);
}

/// Lists sizes, largest first.
fn list(sizes: BTreeMap<String, u64>, most: usize) {
    let mut sizes: Vec<(String, u64)> = sizes.into_iter().collect();
    sizes.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let shown = sizes.iter().take_while(|(_, bytes)| *bytes >= SMALL).count().min(most);
    for (name, bytes) in &sizes[..shown] {
        println!("  {name:44} {:10.2} MB", *bytes as f64 / 1e6);
    }
    let rest: u64 = sizes[shown..].iter().map(|(_, bytes)| bytes).sum();
    println!("  {:44} {:10.2} MB", format!("{} others", sizes.len() - shown), rest as f64 / 1e6);
}

const LLVM: &str = "LLVM";

/// Parses the size and the file of a piece of the binary. LLVM's linker writes it as `address address size alignment
/// file:(section)`, after the line of an output section, which names no file.
fn piece(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let size = u64::from_str_radix(words.nth(2)?, 16).ok()?;
    let (file, section) = words.nth(1)?.split_once(":(")?;
    // These sections have no bytes in the file, or are stripped.
    let absent = [".bss", ".tbss", ".debug", ".comment", ".symtab", ".strtab"].iter().any(|s| section.starts_with(s));
    (!absent).then_some((size, file))
}

/// The crate or library that a file belongs to.
fn part(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    // `<internal>` stands for strings that the linker merged.
    if name.starts_with('<') {
        return "texts".into();
    }
    if let Some((archive, _)) = name.split_once('(') {
        let library = archive.strip_prefix("lib").unwrap_or(archive).trim_end_matches(".a");
        // `build.rs` names the C library with this prefix.
        let library = library.strip_prefix("rbt-").unwrap_or(library);
        // This is the archive of a crate with native code, such as `libzstd_sys-424c12807f8b54d9.rlib`.
        let library = library.split_once(".rlib").map_or(library, |(krate, _)| krate.rsplit_once('-').map_or(krate, |(name, _)| name));
        let llvm = library == "llvm_sys" || library.starts_with("LLVM");
        return if llvm { LLVM.into() } else { library.into() };
    }
    // This object is optimized together with all other crates:
    // `rbt-611e3be149fcdd95.regex-577d751bf4b80d1a.regex.8e55dd7a4ea30575-cgu.0.rcgu.o.rcgu.o`.
    match name.split('.').nth(1) {
        Some(krate) if name.ends_with(".rcgu.o") => krate.split('-').next().unwrap_or(krate).into(),
        _ => name.into(),
    }
}

fn member(file: &str) -> &str {
    file.rsplit_once('(').map_or(file, |(_, member)| member.trim_end_matches(')').trim_end_matches(".o"))
}
