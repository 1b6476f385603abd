//! ELF files: functions, data objects and segments.
//!
//! Other modules resolve names to files (`locate`), read DWARF, and find symbols of addresses (the runtime's `symbolize`).

use std::path::{Path, PathBuf};

use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader, SectionTable, Sym};
use object::{Endianness, FileKind, Object};

pub use crate::system::binary::file::{Segment, address, offset};
pub(in crate::system) use crate::system::binary::file::{map, not_elf};
pub use crate::system::binary::locate::resolve;
use crate::system::machine::arch::{self, Arch, HERE};
use crate::system::{Abi, Binary, Function, Missing, binary::debug_files, binary::go};

/// Opens and indexes an ELF file of 32 or 64 bits and either byte order. If it has no `.symtab`, its symbols come from its
/// separate debug file (`dirs`: see `debug_files::find`), or else from its `.gnu_debugdata`.
///
/// Errors: the file is unreadable, is not ELF, is for another machine, or has contradictory tables. Never panics.
pub fn open(path: &Path, dirs: &[String], expected: &ExpectedMachine) -> Result<Binary, Missing> {
    let data = map(path)?;
    expected.check(path, &data)?;
    let index = match FileKind::parse(&*data) {
        Ok(FileKind::Elf64) => index::<FileHeader64<Endianness>>(path, &data, dirs),
        Ok(FileKind::Elf32) => index::<FileHeader32<Endianness>>(path, &data, dirs),
        _ => return Err(not_elf(path)),
    };
    index
        .map(|index| Binary { path: path.to_owned(), ..index })
        .map_err(|why| Missing { what: format!("{} is a damaged ELF file: {why}", path.display()), help: Some("install it again".into()) })
}

/// The machine that programs must be for.
#[derive(Clone, Copy, Debug)]
pub enum ExpectedMachine {
    /// This one.
    Here,
    /// That of a kernel that a file describes.
    Kernel {
        /// Its architecture.
        arch: &'static Arch,
        /// A program of this machine may stand for that of the kernel's machine.
        or_here: bool,
    },
}

impl ExpectedMachine {
    /// Returns an error for an ELF file that is for another machine.
    pub(in crate::system) fn check(&self, path: &Path, data: &[u8]) -> Result<(), Missing> {
        let (arch, or_here) = match *self {
            Self::Here => (HERE, false),
            Self::Kernel { arch, or_here } => (arch, or_here),
        };
        let Some((found, name)) = machine(data) else { return Ok(()) };
        if found.is_some_and(|found| found.name == arch.name || (or_here && found.name == HERE.name)) {
            return Ok(());
        }
        let (whose, help) = match self {
            Self::Here => ("on this machine", format!("rbt traces programs for {}, each on its own machine", arch::names())),
            Self::Kernel { .. } => ("for that kernel", "name a file from the machine with that kernel (--root, --binary)".into()),
        };
        let what = format!("{} is a program for {name}; {whose}, rbt traces those for {}", path.display(), arch.name);
        Err(Missing { what, help: Some(help) })
    }
}

/// The architecture of a program; of this machine, if the file does not name one that is supported.
pub fn arch_of(path: &Path) -> &'static Arch {
    map(path).map_or(HERE, |data| arch_of_data(&data))
}

/// The same for the bytes of the file.
pub(in crate::system) fn arch_of_data(data: &[u8]) -> &'static Arch {
    machine(data).and_then(|(arch, _)| arch).unwrap_or(HERE)
}

/// The name of the machine that a program is for; `None` if it is not an ELF file.
pub fn machine_of(path: &Path) -> Option<String> {
    map(path).ok().and_then(|data| Some(machine(&data)?.1))
}

/// The machine that an ELF file is for, if it is supported, and its name. 32-bit programs, which pass arguments differently, are
/// for machines of their own.
fn machine(data: &[u8]) -> Option<(Option<&'static Arch>, String)> {
    if !data.starts_with(&elf::ELFMAG) {
        return None;
    }
    // EI_DATA and e_machine have fixed offsets in every ELF file.
    let little = *data.get(5)? == elf::ELFDATA2LSB.0;
    let machine: [u8; 2] = data.get(18..20)?.try_into().ok()?;
    let machine = if little { u16::from_le_bytes(machine) } else { u16::from_be_bytes(machine) };
    let arch = arch::ALL.iter().find(|arch| little && arch.elf == machine).copied();
    let order = if little { "" } else { ", big-endian" };
    let name = arch::name_of(machine).map_or_else(|| format!("a processor with the number {machine}"), str::to_owned);
    Some((arch, name + order))
}

/// A symbol whose name is still in the mapped file.
struct Symbol<'d> {
    name: &'d [u8],
    addr: u64,
    size: u64,
}

/// The function and object symbols of one file.
#[derive(Default)]
struct Symbols<'d> {
    functions: Vec<Symbol<'d>>,
    objects: Vec<Symbol<'d>>,
}

fn index<E: FileHeader<Endian = Endianness>>(path: &Path, data: &[u8], dirs: &[String]) -> Result<Binary, String> {
    let cannot = |why: object::read::Error| why.to_string().to_lowercase();
    let header = E::parse(data).map_err(cannot)?;
    let endian = header.endian().map_err(cannot)?;
    let segments = loadable(header, endian, data)?;
    let build_id = object::File::parse(data).ok().and_then(|file| file.build_id().ok().flatten().map(<[u8]>::to_vec));
    let mut binary = Binary {
        path: PathBuf::new(),
        functions: Vec::new(),
        objects: Vec::new(),
        segments,
        pie: header.e_type(endian) == elf::ET_DYN,
        build_id: build_id.unwrap_or_default(),
    };

    let sections = header.sections(endian, data).map_err(cannot)?;
    let mut symbols = Symbols::default();
    let full = collect::<E>(endian, data, &sections, elf::SHT_SYMTAB, &mut symbols).map_err(cannot)?;
    collect::<E>(endian, data, &sections, elf::SHT_DYNSYM, &mut symbols).map_err(cannot)?;
    let separate = if full { None } else { debug_files::find(path, data, dirs, |f| f.symbols().next().is_some()) };
    let embedded = if full || separate.is_some() { None } else { debug_files::embedded(data) };
    if let Some(more) = separate.as_ref().map(|s| &*s.data).or(embedded.as_deref()) {
        // A damaged debug file must not hide the binary's own symbols. Its addresses are those of the binary, but its file
        // offsets are not, so the segments above remain valid.
        let _ = separate_symbols::<E>(more, &mut symbols);
    }
    binary.functions = functions(symbols.functions, &binary);
    if let Some(of_go) = go::functions(data, &binary.segments) {
        go::merge(&mut binary.functions, of_go);
    }
    binary.objects = objects(symbols.objects);
    Ok(binary)
}

fn loadable<E: FileHeader<Endian = Endianness>>(header: &E, endian: Endianness, data: &[u8]) -> Result<Vec<Segment>, String> {
    let mut segments = Vec::new();
    for segment in header.program_headers(endian, data).map_err(|why| why.to_string().to_lowercase())? {
        if segment.p_type(endian) == elf::PT_LOAD {
            let segment = Segment {
                address: segment.p_vaddr(endian).into(),
                offset: segment.p_offset(endian).into(),
                size: segment.p_filesz(endian).into(),
                executable: segment.p_flags(endian).0 & elf::PF_X.0 != 0,
            };
            let Segment { address, offset, size, .. } = segment;
            // This check prevents overflow in later sums.
            if address.checked_add(size).is_none() || offset.checked_add(size).is_none_or(|end| end > data.len() as u64) {
                return Err("a segment extends beyond its end".into());
            }
            segments.push(segment);
        }
    }
    Ok(segments)
}

/// Reads the loadable segments of an ELF file, without its symbols.
pub fn segments(path: &Path) -> Option<Vec<Segment>> {
    segments_of(&map(path).ok()?)
}

/// The loadable segments of an ELF image.
pub(in crate::system) fn segments_of(data: &[u8]) -> Option<Vec<Segment>> {
    fn of<E: FileHeader<Endian = Endianness>>(data: &[u8]) -> Option<Vec<Segment>> {
        let header = E::parse(data).ok()?;
        loadable(header, header.endian().ok()?, data).ok()
    }
    let kind = FileKind::parse(data).ok()?;
    if kind == FileKind::Elf64 {
        return of::<FileHeader64<Endianness>>(data);
    }
    (kind == FileKind::Elf32).then(|| of::<FileHeader32<Endianness>>(data)).flatten()
}

/// Returns the functions of a Go binary by address; `None` for other files.
pub fn go_functions(path: &Path) -> Option<Vec<Function>> {
    let data = map(path).ok()?;
    go::functions(&data, &segments(path)?)
}

fn separate_symbols<'d, E: FileHeader<Endian = Endianness>>(data: &'d [u8], symbols: &mut Symbols<'d>) -> object::read::Result<()> {
    let header = E::parse(data)?;
    let endian = header.endian()?;
    collect::<E>(endian, data, &header.sections(endian, data)?, elf::SHT_SYMTAB, symbols)?;
    Ok(())
}

/// Adds the defined symbols of one table. Returns false if the file has no such table.
fn collect<'d, E: FileHeader<Endian = Endianness>>(
    endian: Endianness,
    data: &'d [u8],
    sections: &SectionTable<'d, E>,
    kind: elf::SectionType,
    to: &mut Symbols<'d>,
) -> object::read::Result<bool> {
    let table = sections.symbols(endian, data, kind)?;
    let strings = table.strings();
    for symbol in table.iter() {
        if symbol.is_undefined(endian) {
            continue;
        }
        let list = match symbol.st_type() {
            elf::STT_FUNC | elf::STT_GNU_IFUNC => &mut to.functions,
            elf::STT_OBJECT => &mut to.objects,
            _ => continue,
        };
        let name = symbol.name(endian, strings)?;
        // `.symtab` has the version in the name: `memcpy@@GLIBC_2.14`.
        let name = match name.iter().position(|b| *b == b'@') {
            Some(at) if at > 0 => &name[..at],
            _ => name,
        };
        if !name.is_empty() {
            list.push(Symbol { name, addr: symbol.st_value(endian).into(), size: symbol.st_size(endian).into() });
        }
    }
    Ok(!table.is_empty())
}

/// Sorts by name and address. Of duplicates, the one with the larger size remains.
fn sorted(mut symbols: Vec<Symbol<'_>>) -> Vec<Symbol<'_>> {
    symbols.sort_unstable_by(|a, b| a.name.cmp(b.name).then(a.addr.cmp(&b.addr)).then(b.size.cmp(&a.size)));
    symbols.dedup_by(|a, b| a.name == b.name && a.addr == b.addr);
    symbols
}

/// The functions that have bytes in the file; others cannot be probed.
fn functions(symbols: Vec<Symbol<'_>>, binary: &Binary) -> Vec<Function> {
    sorted(symbols)
        .iter()
        .filter_map(|s| {
            let offset = binary.offset_of_addr(s.addr)?;
            Some(Function { name: String::from_utf8_lossy(s.name).into_owned(), addr: s.addr, size: s.size, offset, abi: Abi::SystemV })
        })
        .collect()
}

fn objects(symbols: Vec<Symbol<'_>>) -> Vec<(String, u64, u64)> {
    sorted(symbols).iter().map(|s| (String::from_utf8_lossy(s.name).into_owned(), s.addr, s.size)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn opened(name: &str) -> Binary {
        open(&resolve(name, None).unwrap()[0].path, &[], &ExpectedMachine::Here).unwrap()
    }

    #[test]
    fn programs_of_other_machines() {
        let mut data = std::fs::read("/proc/self/exe").unwrap();
        let refused = |expected: ExpectedMachine, data: &[u8]| expected.check(Path::new("p"), data).err().map(|missing| missing.what);
        let here = |data: &[u8]| refused(ExpectedMachine::Here, data);
        assert_eq!(here(&data), None);
        assert_eq!(here(b"#!/bin/sh, which is no ELF file"), None);
        assert_eq!(here(&data[..10]), None);
        let other = *arch::ALL.iter().find(|a| a.name != HERE.name).unwrap();
        let [strict, lax] = [false, true].map(|or_here| ExpectedMachine::Kernel { arch: other, or_here });
        // A program of this machine, for the kernel of another one.
        assert_eq!(
            refused(strict, &data),
            Some(format!("p is a program for {}; for that kernel, rbt traces those for {}", HERE.name, other.name))
        );
        assert_eq!(refused(lax, &data), None);
        data[18..20].copy_from_slice(&other.elf.to_le_bytes());
        assert_eq!(here(&data), Some(format!("p is a program for {}; on this machine, rbt traces those for {}", other.name, HERE.name)));
        assert_eq!(refused(strict, &data), None);
        assert_eq!(
            refused(ExpectedMachine::Kernel { arch: HERE, or_here: true }, &data).map(|what| what.contains("for that kernel")),
            Some(true)
        );
        let named = |data: &[u8]| machine(data).unwrap().1;
        data[18..20].copy_from_slice(&999u16.to_le_bytes());
        assert_eq!(named(&data), "a processor with the number 999");
        assert!(here(&data).is_some() && refused(lax, &data).is_some());
        (data[5], data[18], data[19]) = (2, 0, 22);
        assert_eq!(named(&data), "s390x, big-endian");
        assert!(here(&data).is_some());
        // This machine may run 32-bit programs, but their arguments are elsewhere.
        data[5] = 1;
        data[18..20].copy_from_slice(&3u16.to_le_bytes());
        assert_eq!(named(&data), "i386");
        assert!(here(&data).is_some());
    }

    #[test]
    fn libc() {
        let libc = opened("libc");
        assert!(libc.pie);
        let malloc = libc.functions_named("malloc").next().unwrap();
        assert!(malloc.size > 0);
        assert_eq!(libc.addr_of_offset(malloc.offset), Some(malloc.addr));
        // `memcpy` is an indirect function with several versions.
        assert!(libc.functions_named("memcpy").count() >= 1);
        assert!(libc.functions.iter().all(|f| !f.name.contains('@')));
        assert!(libc.functions.is_sorted());
        assert!(libc.objects.iter().any(|(name, _, size)| name == "environ" && *size == 8));
    }

    #[test]
    fn ourselves() {
        let us = open(Path::new("/proc/self/exe"), &[], &ExpectedMachine::Here).unwrap();
        let here = us.functions.iter().find(|f| f.name.contains("elf5tests9ourselves")).unwrap();
        assert_eq!(us.offset_of_addr(here.addr), Some(here.offset));
    }

    #[test]
    fn not_a_binary() {
        for path in ["/etc/hostname", "/dev/null", "/proc/self/status", "/etc"] {
            let error = open(Path::new(path), &[], &ExpectedMachine::Here).unwrap_err();
            assert!(error.what.contains("not an ELF file"), "{}", error.what);
        }
        assert!(open(Path::new("/no/such"), &[], &ExpectedMachine::Here).unwrap_err().what.contains("no such file"));
    }

    #[test]
    fn rejects_damaged_files() {
        let whole = std::fs::read(&resolve("true", None).unwrap()[0].path).unwrap();
        let parse = |bytes: &[u8]| match FileKind::parse(bytes) {
            Ok(FileKind::Elf64) => index::<FileHeader64<Endianness>>(Path::new(""), bytes, &[]).is_ok(),
            Ok(FileKind::Elf32) => index::<FileHeader32<Endianness>>(Path::new(""), bytes, &[]).is_ok(),
            _ => false,
        };
        assert!(parse(&whole));
        for i in 0..400 {
            parse(&whole[..whole.len() * i / 400]);
        }
        let mut numbers = Random::new(0x9e37_79b9_7f4a_7c15);
        let mut random = |below: usize| numbers.below(below);
        let sections = u64::from_le_bytes(whole[40..48].try_into().unwrap()) as usize;
        for i in 0..1200 {
            let mut bytes = whole.clone();
            for _ in 0..=random(8) {
                // One third of the changes each in the headers, in the section table, and anywhere.
                let at = match i % 3 {
                    0 => 4 + random(900),
                    1 => sections + random(whole.len() - sections),
                    _ => random(whole.len()),
                };
                bytes[at] = [0, 0xff, 0x7f, random(256) as u8][random(4)];
            }
            parse(&bytes);
        }
    }
}
