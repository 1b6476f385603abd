//! A kernel's modules, read from their files in parallel.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::code::{self, Code, Symbols};
use super::events::{self, Layout};
use super::image::Image;
use super::unpack;
use crate::failure::reason;
use crate::input;
use crate::system::snapshot::Event;

/// The contents of a module's file.
#[derive(Debug, Default)]
pub(super) struct Module {
    pub(super) name: String,
    pub(super) btf: Option<Vec<u8>>,
    pub(super) code: Code,
    /// `None` if they cannot be read.
    pub(super) events: Option<Vec<Event>>,
    /// Names of symbols that are not code.
    pub(super) variables: Vec<String>,
    /// Its functions as lines of `/proc/kallsyms`, with synthetic addresses.
    pub(super) symbols: String,
}

/// Finds the files of modules below a directory, by module name.
pub(super) fn files(folder: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    let mut folders = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        let mut entries: Vec<_> = std::fs::read_dir(folder).into_iter().flatten().flatten().collect();
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && depth < 16 {
                folders.push((entry.path(), depth + 1));
            } else if let Some(name) = module_name(&entry.file_name().to_string_lossy()).filter(|_| entry.path().is_file()) {
                // A module below `updates` replaces the kernel's own (depmod.d(5)).
                let updated = entry.path().components().any(|c| c.as_os_str() == "updates");
                if updated || !found.contains_key(&name) {
                    found.insert(name, entry.path());
                }
            }
        }
    }
    found
}

/// Converts `nf-nat.ko.xz` to `nf_nat`.
fn module_name(file: &str) -> Option<String> {
    let stem = [".ko", ".ko.xz", ".ko.zst", ".ko.gz"].iter().find_map(|end| file.strip_suffix(end))?;
    Some(stem.replace('-', "_"))
}

/// Reads all modules in the order of their names. The second result has those that cannot be read, with the reason.
pub(super) fn read(
    files: &BTreeMap<String, PathBuf>,
    layout: Option<&Layout>,
    progress: &mut dyn FnMut(&str),
) -> (Vec<Module>, Vec<String>) {
    let all: Vec<(&String, &PathBuf)> = files.iter().collect();
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(all.len()));
    let (receiver, sender) = std::sync::mpsc::channel();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (next, done, all, receiver) = (&next, &done, &all, receiver.clone());
            scope.spawn(move || {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let Some((name, path)) = all.get(n) else { break };
                    let module = one(name, path, n, layout);
                    if let Ok(mut done) = done.lock() {
                        done.push((n, module));
                    }
                    let _ = receiver.send(());
                }
            });
        }
        drop(receiver);
        for (n, ()) in sender.iter().enumerate() {
            if n % 64 == 0 || n + 1 == all.len() {
                progress(&format!("modules: {} of {}", n + 1, all.len()));
            }
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(n, _)| *n);
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for (_, module) in done {
        match module {
            Ok(module) => good.push(module),
            Err(why) => bad.push(why),
        }
    }
    (good, bad)
}

/// Reads the n-th module, which gets its own address range.
fn one(name: &str, path: &Path, n: usize, layout: Option<&Layout>) -> Result<Module, String> {
    let bytes = input::read_regular(path, input::IMAGE).map_err(|e| format!("{}: {}", path.display(), reason(&e)))?;
    let data = unpack::kernel(bytes).map_err(|why| format!("{}: {why}", path.display()))?;
    let base = ((n as u64) + 1) << 33;
    read_module(name, &data, base, layout).map_err(|why| format!("{}: {why}", path.display()))
}

pub(super) fn read_module(name: &str, data: &[u8], base: u64, layout: Option<&Layout>) -> Result<Module, String> {
    let mut image = Image::module(data, base, &|_| None)?;
    let own = std::mem::take(&mut image.symbols);
    let symbols = Symbols::new(own.into_iter().filter(|s| !is_mapping(&s.name)).collect(), Vec::new());
    let mut text = String::new();
    code::write_symbols(&symbols, name, &mut text);
    Ok(Module {
        name: name.to_owned(),
        btf: image.btf.map(<[u8]>::to_vec),
        code: code::module_code(&image, &symbols),
        events: layout.and_then(|layout| events::module_events(&image, layout)),
        variables: symbols.variables().filter(|name| !name.starts_with('.')).map(str::to_owned).collect(),
        symbols: text,
    })
}

/// Symbols of modules that the kernel ignores (`is_mapping_symbol`).
fn is_mapping(name: &str) -> bool {
    name.starts_with(".L") || name.starts_with("L0") || name.starts_with('$')
}
