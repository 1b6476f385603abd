//! An ELF file of the kernel, laid out in memory: bytes by address.
//!
//! A `vmlinux` is linked, so its addresses are those of the kernel and its pointers are valid. A module is not linked: this
//! code places its sections one after the other at arbitrary addresses and relocates the pointers in its data, so that other
//! code reads both alike. All reads are checked.

use crate::system::machine::arch;
use std::borrow::Cow;
use std::collections::BTreeMap;

use object::elf::{SHF_ALLOC, SHF_EXECINSTR};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, RelocationKind, RelocationTarget, SymbolKind};

/// A section in memory.
#[derive(Clone, Debug)]
pub(super) struct Section<'d> {
    pub(super) name: String,
    pub(super) address: u64,
    pub(super) bytes: Cow<'d, [u8]>,
    /// Does it contain code?
    pub(super) code: bool,
}

/// A symbol of the file.
#[derive(Clone, Debug)]
pub(super) struct Symbol {
    pub(super) name: String,
    pub(super) address: u64,
    /// The letter of `nm`, simplified: `t`/`T` for code, `d`/`D` for everything else.
    pub(super) kind: u8,
}

/// A kernel or a module in memory.
#[derive(Clone, Debug)]
pub(super) struct Image<'d> {
    /// Sections in the order of their addresses.
    sections: Vec<Section<'d>>,
    /// Symbols in the order of the file; empty for a stripped file.
    pub(super) symbols: Vec<Symbol>,
    /// Raw BTF, if the file contains it. That of a module is not loaded with its data.
    pub(super) btf: Option<&'d [u8]>,
    /// `uname -m`.
    pub(super) machine: String,
    /// In hexadecimal; empty if the file has none.
    pub(super) build_id: String,
    /// It is a single section that is not yet divided into code and data.
    is_undivided: bool,
}

/// Limit for the length of a string.
const MAX_STRING_LEN: usize = 4096;

impl<'d> Image<'d> {
    /// Reads a linked kernel.
    pub(super) fn linked(data: &'d [u8]) -> Result<Self, String> {
        let file = parse(data)?;
        let mut sections = Vec::new();
        for section in file.sections() {
            let object::SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
            let address = section.address();
            if sh_flags.0 & SHF_ALLOC.0 == 0 || address == 0 || section.size() == 0 {
                continue;
            }
            let (Ok(name), Ok(bytes)) = (section.name(), section.data()) else { return Err("a section extends beyond its end".into()) };
            if !bytes.is_empty() && address.checked_add(section.size()).is_some() {
                let code = sh_flags.0 & SHF_EXECINSTR.0 != 0;
                sections.push(Section { name: name.to_owned(), address, bytes: Cow::Borrowed(bytes), code });
            }
        }
        // Without sections, the segments suffice for everything but BTF.
        if sections.is_empty() {
            for segment in file.elf_program_headers() {
                let (address, offset, size) = (
                    segment.p_vaddr.get(Endianness::Little),
                    segment.p_offset.get(Endianness::Little),
                    segment.p_filesz.get(Endianness::Little),
                );
                let code = segment.p_flags(Endianness::Little).0 & object::elf::PF_X.0 != 0;
                let bytes = usize::try_from(offset).ok().and_then(|from| data.get(from..from.checked_add(size as usize)?));
                if let Some(bytes) = bytes.filter(|_| address != 0 && address.checked_add(size).is_some()) {
                    sections.push(Section { name: String::new(), address, bytes: Cow::Borrowed(bytes), code });
                }
            }
        }
        sections.sort_by_key(|s| s.address);
        let symbols = file.symbols().filter_map(|s| symbol(&s, s.address())).collect();
        Ok(Self { sections, symbols, btf: btf(&file), machine: machine(&file), build_id: build_id(&file), is_undivided: false }
            .with_kinds())
    }

    /// Makes an image of a kernel without sections.
    pub(super) fn from_memory(memory: Section<'d>, machine: &str, btf: Option<&'d [u8]>) -> Self {
        let (sections, symbols) = (vec![memory], Vec::new());
        Self { sections, symbols, btf, machine: machine.to_owned(), build_id: String::new(), is_undivided: true }
    }

    /// Divides the single section into these ranges of code, each with its name, and the data between them.
    pub(super) fn divide(&mut self, code: &[(u64, u64, &str)], notes: Option<(u64, u64)>) {
        if !self.is_undivided {
            return;
        }
        let Some(memory) = self.sections.pop() else { return };
        self.is_undivided = false;
        let end = memory.address + memory.bytes.len() as u64;
        let mut at = memory.address;
        for (from, to, name) in code.iter().copied().chain([(end, end, "")]) {
            for (from, to, name, code) in [(at, from, "", false), (from, to, name, true)] {
                let place = |address: u64| usize::try_from(address.checked_sub(memory.address)?).ok();
                if let Some(bytes) = place(from).zip(place(to)).and_then(|(from, to)| memory.bytes.get(from..to)).filter(|b| !b.is_empty())
                {
                    self.sections.push(Section { name: name.to_owned(), address: from, bytes: Cow::Owned(bytes.to_vec()), code });
                    at = to;
                }
            }
        }
        let notes = notes.and_then(|(from, to)| self.between(from, to));
        self.build_id = notes.and_then(build_id_of_notes).unwrap_or_default();
    }

    /// Lays out the file of a module from `base` on. `external` returns the addresses of symbols that it does not define.
    pub(super) fn module(data: &'d [u8], base: u64, external: &dyn Fn(&str) -> Option<u64>) -> Result<Self, String> {
        let file = parse(data)?;
        let mut sections: Vec<Section<'d>> = Vec::new();
        let mut places: BTreeMap<usize, (u64, usize)> = BTreeMap::new();
        let mut at = base;
        for section in file.sections() {
            let object::SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
            if sh_flags.0 & SHF_ALLOC.0 == 0 {
                continue;
            }
            let (Ok(name), Ok(bytes)) = (section.name(), section.data()) else { return Err("a section extends beyond its end".into()) };
            // Sections without contents (.bss) have an address but no bytes.
            let align = section.align().clamp(1, 1 << 16).next_power_of_two();
            at = at.checked_next_multiple_of(align).ok_or("its sections are too large")?;
            places.insert(section.index().0, (at, sections.len()));
            let code = sh_flags.0 & SHF_EXECINSTR.0 != 0;
            sections.push(Section { name: name.to_owned(), address: at, bytes: Cow::Borrowed(bytes), code });
            let size = section.size().clamp(1, 1 << 31);
            at = at.checked_add(size).filter(|end| end - base <= u64::from(u32::MAX)).ok_or("its sections are too large")?;
        }
        let defined = |symbol: &object::read::elf::ElfSymbol64<'d, '_>| {
            let (from, _) = places.get(&symbol.section_index()?.0)?;
            from.checked_add(symbol.address())
        };
        for section in file.sections() {
            let Some((_, index)) = places.get(&section.index().0) else { continue };
            let Some(to) = sections.get_mut(*index).filter(|s| !s.code && !s.bytes.is_empty()) else { continue };
            for (offset, relocation) in section.relocations() {
                // Only pointers matter; distances are not read.
                if relocation.kind() != RelocationKind::Absolute || relocation.size() != 64 {
                    continue;
                }
                let RelocationTarget::Symbol(target) = relocation.target() else { continue };
                let Ok(target) = file.symbol_by_index(target) else { continue };
                let address = defined(&target).or_else(|| external(target.name().ok()?));
                let value = address.map_or(0, |a| a.wrapping_add_signed(relocation.addend()));
                let place = usize::try_from(offset).ok().and_then(|from| to.bytes.to_mut().get_mut(from..from.checked_add(8)?));
                if let Some(place) = place {
                    place.copy_from_slice(&value.to_le_bytes());
                }
            }
        }
        let symbols = file.symbols().filter_map(|s| symbol(&s, defined(&s)?)).collect();
        Ok(Self { sections, symbols, btf: btf(&file), machine: machine(&file), build_id: build_id(&file), is_undivided: false }
            .with_kinds())
    }

    /// Sets the kind of each symbol by its section.
    fn with_kinds(mut self) -> Self {
        let mut symbols = std::mem::take(&mut self.symbols);
        for symbol in symbols.iter_mut().filter(|s| self.is_code(s.address)) {
            symbol.kind = if symbol.kind == b'D' { b'T' } else { b't' };
        }
        self.symbols = symbols;
        self
    }

    /// The start of an image that is not yet divided.
    pub(super) fn undivided(&self) -> Option<u64> {
        self.sections.first().filter(|_| self.is_undivided).map(|s| s.address)
    }

    pub(super) fn sections(&self) -> &[Section<'d>] {
        &self.sections
    }

    pub(super) fn section<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Section<'d>> {
        self.sections.iter().filter(move |s| s.name == name)
    }

    /// The bytes of the file from this address to the end of its section.
    pub(super) fn from(&self, address: u64) -> Option<&[u8]> {
        let at = self.sections.partition_point(|s| s.address <= address);
        let section = self.sections.get(at.checked_sub(1)?)?;
        section.bytes.get(usize::try_from(address - section.address).ok()?..)
    }

    pub(super) fn between(&self, from: u64, to: u64) -> Option<&[u8]> {
        self.from(from)?.get(..usize::try_from(to.checked_sub(from)?).ok()?)
    }

    pub(super) fn u32(&self, address: u64) -> Option<u32> {
        Some(u32::from_le_bytes(*self.from(address)?.first_chunk()?))
    }

    pub(super) fn u64(&self, address: u64) -> Option<u64> {
        Some(u64::from_le_bytes(*self.from(address)?.first_chunk()?))
    }

    /// The NUL-terminated string at an address.
    pub(super) fn text(&self, address: u64) -> Option<&str> {
        if address == 0 {
            return None;
        }
        let bytes = self.from(address)?;
        let end = memchr::memchr(0, bytes.get(..bytes.len().min(MAX_STRING_LEN))?)?;
        std::str::from_utf8(bytes.get(..end)?).ok()
    }

    /// Is this address in a section of code?
    pub(super) fn is_code(&self, address: u64) -> bool {
        let at = self.sections.partition_point(|s| s.address <= address);
        let section = at.checked_sub(1).and_then(|at| self.sections.get(at));
        section.is_some_and(|s| (s.code || self.is_undivided) && address - s.address < s.bytes.len() as u64)
    }
}

/// Reads a sequence of pointers.
pub(super) fn pointers(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).filter_map(|c| Some(u64::from_le_bytes(*c.first_chunk()?)))
}

fn parse(data: &[u8]) -> Result<ElfFile64<'_>, String> {
    let file = ElfFile64::<Endianness>::parse(data).map_err(|e| format!("it is a damaged ELF file, or not one of 64 bits: {e}"))?;
    if file.elf_header().is_big_endian() {
        return Err("it is for a big-endian machine, which is not supported".into());
    }
    Ok(file)
}

fn symbol<'d>(symbol: &object::read::elf::ElfSymbol64<'d, '_>, address: u64) -> Option<Symbol> {
    let name = symbol.name().ok().filter(|n| !n.is_empty() && !symbol.is_undefined())?;
    if matches!(symbol.kind(), SymbolKind::Section | SymbolKind::File) {
        return None;
    }
    let kind = if symbol.is_global() { b'D' } else { b'd' };
    Some(Symbol { name: name.to_owned(), address, kind })
}

fn btf<'d>(file: &ElfFile64<'d>) -> Option<&'d [u8]> {
    file.section_by_name(".BTF")?.data().ok().filter(|btf| !btf.is_empty())
}

fn machine(file: &ElfFile64<'_>) -> String {
    arch::name_of(file.elf_header().e_machine(Endianness::Little).0).unwrap_or_default().into()
}

/// The build ID in notes (`struct elf_note`): the lengths of the owner's name and of the descriptor, and the type.
fn build_id_of_notes(notes: &[u8]) -> Option<String> {
    const GNU: &[u8] = b"\x14\0\0\0\x03\0\0\0GNU\0";
    let from = memchr::memmem::find(notes, GNU)? + GNU.len();
    Some(notes.get(from..from + 20)?.iter().map(|b| format!("{b:02x}")).collect())
}

fn build_id(file: &ElfFile64<'_>) -> String {
    let id = file.build_id().ok().flatten().unwrap_or_default();
    id.iter().map(|b| format!("{b:02x}")).collect()
}
