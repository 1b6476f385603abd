//! A description of a kernel from its files; the kernel need not run.
//!
//! The kernel's image has its types (BTF), the traceable functions, those without kprobes, those that can be overridden, and
//! its name and build. The files of its modules have the same for each module, whether or not it would be loaded. The
//! configuration shows what is compiled in. [`Contents::missing`] lists what is unknown.
//!
//! - `unpack`: compression formats, `bzImage`.
//! - `image`: an ELF file in memory, linked or not. `raw_image`: the image of arm64, which is not ELF.
//! - `kallsyms`: the symbol table of a stripped kernel.
//! - `tables`: tables of the image. `code`: functions. `events`: tracepoints. `features`: BPF features. `modules`: files of modules.
//!
//! The files are untrusted: every read is checked, and inconsistent data are reported or omitted, never guessed.

mod code;
mod events;
mod features;
mod image;
mod kallsyms;
mod modules;
mod raw_image;
mod tables;
mod unpack;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::failure::reason;
use crate::input;
use crate::system::kernel::functions::{Functions, KERNEL};
use crate::system::kernel_types::KernelTypes;
use crate::system::machine::arch;
use crate::system::snapshot::{Contents, Event, SnapshotInfo, section};
use crate::system::{Feature, Missing};
use code::{Code, Symbols};
use events::Layout;
use features::Evidence;
use image::{Image, Symbol};
use modules::Module;
use tables::Tables;

/// Describes a kernel from its image: `vmlinux` or `vmlinuz`. Modules are unknown, and the configuration is known only if it is
/// in the image.
///
/// `progress` receives the name of what is being read.
pub fn from_vmlinux(path: &Path, progress: &mut dyn FnMut(&str)) -> Result<Contents, Missing> {
    let parts = KernelPaths { image: path.to_owned(), ..KernelPaths::default() };
    read(&parts, format!("the kernel's image {}", path.display()), progress)
}

/// Describes a kernel from the directory of an unpacked package of a distribution.
pub fn from_package(dir: &Path, progress: &mut dyn FnMut(&str)) -> Result<Contents, Missing> {
    read(&KernelPaths::of(dir)?, format!("a package's files in {}", dir.display()), progress)
}

/// Sections that the files do not provide, and the reasons.
fn unknown(contents: &Contents) -> BTreeMap<String, String> {
    let rows = [
        (section::BTF_OF_KERNEL, contents.btf.is_empty(), "the image has none"),
        (section::FUNCTIONS, contents.functions.is_none(), "the image's tables of them were not found"),
        (section::EVENTS, contents.events.is_none(), "the image's table of them was not found, or is partly unreadable"),
        (section::INJECTABLE, contents.error_injectable.is_none(), "the image's table of them was not found"),
        (section::CALLABLE, contents.callable.is_none(), "only a running kernel has it"),
        (section::CONFIG, contents.config.is_none(), "there is no config-… beside the image and none in it"),
    ];
    rows.into_iter().filter(|(_, missing, _)| *missing).map(|(section, _, why)| (section.into(), why.into())).collect()
}

/// The paths of a kernel's files.
#[derive(Clone, Debug, Default)]
struct KernelPaths {
    image: PathBuf,
    config: Option<PathBuf>,
    system_map: Option<PathBuf>,
    modules: Option<PathBuf>,
}

impl KernelPaths {
    /// Finds the files in a package: `boot/vmlinuz-REL` or `lib/modules/REL/vmlinuz`, with `/usr` merged or not.
    fn of(dir: &Path) -> Result<Self, Missing> {
        let folders = ["lib/modules", "usr/lib/modules"].map(|f| dir.join(f));
        let mut images: Vec<(String, PathBuf)> = Vec::new();
        for name in names(&dir.join("boot")) {
            let release = ["vmlinuz-", "vmlinux-"].iter().find_map(|prefix| name.strip_prefix(prefix));
            images.extend(release.map(|release| (release.to_owned(), dir.join("boot").join(&name))));
        }
        for folder in &folders {
            for release in names(folder) {
                for name in ["vmlinuz", "vmlinux"] {
                    let path = folder.join(&release).join(name);
                    if path.is_file() && !images.iter().any(|(r, _)| *r == release) {
                        images.push((release.clone(), path));
                    }
                }
            }
        }
        images.retain(|(_, path)| path.is_file());
        // A directory in which a kernel was built and installed.
        let built = dir.join("vmlinux");
        if images.is_empty() && built.is_file() {
            let configs = names(&dir.join("boot")).into_iter().filter_map(|n| n.strip_prefix("config-").map(str::to_owned));
            let mut releases = folders.iter().flat_map(|f| names(f)).chain(configs);
            images.push((releases.next().unwrap_or_default(), built));
        }
        let releases: BTreeSet<&str> = images.iter().map(|(r, _)| r.as_str()).collect();
        if releases.len() > 1 {
            let all: Vec<_> = releases.into_iter().collect();
            return Err(Missing {
                what: format!("{} has several kernels: {}", dir.display(), all.join(", ")),
                help: Some("unpack each package into a separate directory".into()),
            });
        }
        let Some((release, image)) = images.into_iter().next() else {
            return Err(Missing {
                what: format!("{} has no kernel: neither boot/vmlinuz-… nor lib/modules/…/vmlinuz", dir.display()),
                help: Some(
                    "name the directory into which you unpacked a kernel package (dpkg-deb -x FILE DIR, rpm2cpio FILE | cpio -id)".into(),
                ),
            });
        };
        let modules = folders.iter().map(|f| f.join(&release)).find(|f| f.is_dir());
        let file = |path: PathBuf| Some(path).filter(|p| p.is_file());
        let beside = |name: &str| modules.as_ref().and_then(|m| file(m.join(name)));
        Ok(Self {
            config: file(dir.join("boot").join(format!("config-{release}"))).or_else(|| beside("config")),
            system_map: file(dir.join("boot").join(format!("System.map-{release}"))).or_else(|| beside("System.map")),
            image,
            modules,
        })
    }
}

/// Lists a directory, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn read(parts: &KernelPaths, source: String, progress: &mut dyn FnMut(&str)) -> Result<Contents, Missing> {
    let shown = parts.image.display();
    let missing = |what: String, help: &str| Missing { what, help: Some(help.into()) };
    progress("the kernel's image");
    let is_kernel = "name a complete kernel image, vmlinux or vmlinuz";
    let bytes = input::read_regular(&parts.image, input::IMAGE).map_err(|e| {
        let help = if e.kind() == std::io::ErrorKind::InvalidInput { is_kernel } else { "check the path" };
        missing(format!("cannot read {shown}: {}", reason(&e)), help)
    })?;
    let cannot = |why: String| missing(format!("{shown} cannot be read: {why}"), is_kernel);
    let data = unpack::kernel(bytes).map_err(cannot)?;
    let image = if raw_image::is_image(&data) { raw_image::image(&data) } else { Image::linked(&data) };
    let mut image = image.map_err(cannot)?;
    if arch::named(&image.machine).is_none() {
        let machine = if image.machine.is_empty() { "an unknown processor" } else { &image.machine };
        return Err(cannot(format!("it is for {machine}; rbt supports {}", arch::names())));
    }
    let release = release(&image).ok_or_else(|| cannot("it is not a kernel, or its version is unknown".into()))?;
    let symbols = symbols(&mut image, parts);

    let types = image.btf.map(|btf| KernelTypes::from_vec(btf.to_vec())).transpose();
    let types = types.map_err(|why| cannot(format!("its types (BTF) are damaged: {why}")))?;
    let layout = types.as_ref().and_then(Layout::of);

    let files = parts.modules.as_deref().map(modules::files).unwrap_or_default();
    let (modules, bad) = modules::read(&files, layout.as_ref(), progress);
    if let Some(first) = bad.first() {
        let what = format!("{} of {} modules cannot be read; the first: {first}", bad.len(), files.len());
        return Err(missing(what, "unpack the package again"));
    }

    progress("functions");
    let tables = Tables::find(&image, &symbols, layout.as_ref());
    let code = code::kernel_code(&image, &symbols, &tables);
    let mut lines = String::new();
    code::write_symbols(&symbols, "", &mut lines);
    lines.extend(modules.iter().map(|m| m.symbols.as_str()));
    let functions = functions(&code, &modules, &lines);
    let untraceable = functions.as_ref().map(|functions| untraceable(functions, &lines));
    let variables = functions.as_ref().map(|_| {
        let of_modules = modules.iter().flat_map(|m| m.variables.iter().cloned());
        let all: BTreeSet<String> = symbols.variables().map(str::to_owned).chain(of_modules).collect();
        all.into_iter().collect()
    });
    let error_injectable = code.error_injectable.map(|code| {
        let mut all: Vec<String> = modules.iter().flat_map(|m| m.code.error_injectable.iter().flatten().cloned()).chain(code).collect();
        all.sort();
        all.dedup();
        all
    });

    let code = layout.and_then(|layout| events::kernel_events(&image, &symbols, &layout, &tables));
    let events = code.and_then(|code| all_events(code, &modules));
    let config = config(parts, &image)?;
    let features = match &types {
        Some(types) => features::of(&Evidence { image: &image, types, config: config.as_deref() }),
        None => BTreeMap::from([(Feature::Btf, false)]),
    };
    let mut btf: Vec<_> = image.btf.map(|btf| (KERNEL.to_owned(), btf.to_vec())).into_iter().collect();
    if !btf.is_empty() {
        btf.extend(modules.into_iter().filter_map(|m| Some((m.name, m.btf?))));
    }
    let mut contents = Contents {
        about: SnapshotInfo { release, machine: image.machine.clone(), build_id: image.build_id.clone(), source, possible_cpus: 0 },
        btf,
        events,
        functions,
        untraceable,
        variables,
        error_injectable,
        features,
        config,
        modules: parts.modules.is_some().then(|| files.into_keys().collect()),
        ..Contents::default()
    };
    contents.missing = unknown(&contents);
    Ok(contents)
}

/// The symbols of the kernel: from its own table, which is authoritative; else from the file; else from `System.map`.
fn symbols(image: &mut Image<'_>, parts: &KernelPaths) -> Symbols {
    let of_file = std::mem::take(&mut image.symbols);
    if let Some(own) = kallsyms::decode(image) {
        raw_image::divide_sections(image, &own);
        return Symbols::new(own, of_file);
    }
    if !of_file.is_empty() {
        return Symbols::new(of_file, Vec::new());
    }
    let map = parts.system_map.as_ref().and_then(|path| input::text(path, input::LIST).ok()).unwrap_or_default();
    Symbols::new(map.lines().filter_map(system_map_line).collect(), Vec::new())
}

/// Parses `ffffffff81000000 T _stext`.
fn system_map_line(line: &str) -> Option<Symbol> {
    let mut words = line.split_ascii_whitespace();
    let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
    Some(Symbol { name: name.to_owned(), address: u64::from_str_radix(address, 16).ok()?, kind: *kind.as_bytes().first()? })
}

fn functions(own: &Code, modules: &[Module], symbols: &str) -> Option<Functions> {
    let mut list = String::new();
    for name in own.traceable.as_ref()? {
        list.push_str(name);
        list.push('\n');
    }
    for module in modules {
        for name in module.code.traceable.iter().flatten() {
            list.extend([name, " [", &module.name, "]\n"]);
        }
    }
    let blocked = modules.iter().map(|m| &m.code).chain([own]).flat_map(|code| code.blocked.iter().map(String::as_str)).collect();
    Some(Functions::parse(&list, &blocked, symbols))
}

/// Combines events; `None` if those of a module cannot be read.
fn all_events(mut all: Vec<Event>, modules: &[Module]) -> Option<Vec<Event>> {
    for module in modules {
        all.extend(module.events.as_ref()?.iter().cloned());
    }
    all.sort_unstable();
    all.dedup_by(|a, b| (&a.category, &a.name) == (&b.category, &b.name));
    Some(all)
}

/// Names of functions that cannot be traced.
fn untraceable(functions: &Functions, symbols: &str) -> Vec<String> {
    let traceable: BTreeSet<&str> = functions.all().map(|f| f.name).collect();
    let names = symbols.lines().filter_map(|line| line.split([' ', '\t']).nth(2));
    let rest: BTreeSet<&str> = names.filter(|name| !traceable.contains(name)).collect();
    rest.into_iter().map(str::to_owned).collect()
}

/// Extracts `6.1.0-56-cloud-amd64` from `Linux version 6.1.0-56-cloud-amd64 (…`.
fn release(image: &Image<'_>) -> Option<String> {
    const START: &[u8] = b"Linux version ";
    let in_section = |bytes: &[u8]| {
        let mut places = memchr::memmem::find_iter(bytes, START).filter_map(|at| bytes.get(at + START.len()..));
        places.find_map(|rest| {
            // __NEW_UTS_LEN of include/uapi/linux/utsname.h
            let name = rest.get(..rest.iter().take(65).position(|b| *b == b' ')?)?;
            let name = std::str::from_utf8(name).ok()?;
            name.starts_with(|c: char| c.is_ascii_digit()).then(|| name.to_owned())
        })
    };
    image.sections().iter().filter(|s| !s.code).find_map(|s| in_section(&s.bytes))
}

/// Reads the configuration from the file beside the image, or from CONFIG_IKCONFIG: compressed, between two marks
/// (`kernel/configs.c`).
fn config(parts: &KernelPaths, image: &Image<'_>) -> Result<Option<String>, Missing> {
    if let Some(path) = &parts.config {
        let config =
            |e| Missing { what: format!("cannot read {}: {}", path.display(), reason(&e)), help: Some("unpack the package again".into()) };
        return input::read_regular(path, input::TEXT).map(|bytes| Some(String::from_utf8_lossy(&bytes).into_owned())).map_err(config);
    }
    let within = image.sections().iter().filter(|s| !s.code).find_map(|section| {
        let from = memchr::memmem::find(&section.bytes, b"IKCFG_ST")? + 8;
        let rest = section.bytes.get(from..)?;
        rest.get(..memchr::memmem::find(rest, b"IKCFG_ED")?)
    });
    Ok(within.and_then(|packed| Some(String::from_utf8_lossy(&unpack::inflate(packed).ok()?).into_owned())))
}

#[cfg(test)]
mod tests;
