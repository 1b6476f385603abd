//! User-space markers (USDT): the `.note.stapsdt` notes of a binary, as SystemTap's `sys/sdt.h` writes them.
//!
//! A note has three words (the marker's address, the address of `.stapsdt.base` at link time, the semaphore's address or 0),
//! then three NUL-terminated strings: provider, name, arguments. If a tool such as prelink has moved the program,
//! `.stapsdt.base` has moved with it and shows the distance.

use crate::system::binary::elf::segments_of;
use crate::system::binary::file::offset;
use crate::system::binary::unwind::function_around;
use std::path::Path;

use object::read::elf::{ElfFile64, SectionHeader as _};
use object::{Object, ObjectSection};

use crate::system::binary::elf::ExpectedMachine;
use crate::system::machine::arch::Arch;
#[cfg(doc)]
use crate::system::machine::arch::OptimizedUprobe;
use crate::system::{Missing, binary::elf};

/// Type of the notes (`sys/sdt.h`).
const NT_STAPSDT: u32 = 3;

/// One location of a marker; a marker in an inlined function has several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// `python`
    pub provider: String,
    /// `gc__start`
    pub name: String,
    /// Virtual address of its instruction.
    pub addr: u64,
    /// File offset of its instruction.
    pub offset: u64,
    /// File offset of its semaphore, a counter that the program checks before it prepares arguments; 0 if it has none.
    pub semaphore: u64,
    /// Bytes from it to the instruction whose uprobe some kernels optimize ([`OptimizedUprobe`]); 0 if there is none, or if the
    /// function may have a red zone.
    pub optimized: u64,
    /// Locations of the arguments in assembler syntax: `8@%rbx -4@112(%rsp)`.
    pub args: String,
}

/// Returns the markers of a 64-bit ELF file in the order of their notes; damaged notes are skipped.
pub fn markers(path: &Path, expected: &ExpectedMachine) -> Result<Vec<Marker>, Missing> {
    let data = elf::map(path)?;
    expected.check(path, &data)?;
    let file = Elf::parse(&*data).map_err(|_| elf::not_elf(path))?;
    Ok(read(&file, elf::arch_of_data(&data)).unwrap_or_default())
}

type Elf<'d> = ElfFile64<'d, object::Endianness>;

fn read(file: &Elf<'_>, arch: &Arch) -> Option<Vec<Marker>> {
    let endian = file.endian();
    let base = file.section_by_name(".stapsdt.base").map(|s| s.address());
    let segments = segments_of(file.data())?;
    let in_file = |address: u64| offset(&segments, address);
    let mut all = Vec::new();
    for section in file.elf_section_table().iter() {
        let Ok(Some(mut notes)) = section.notes(endian, file.data()) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == b"stapsdt" && note.n_type(endian).0 == NT_STAPSDT {
                all.extend(marker(note.desc(), base, &in_file, (file, arch)));
            }
        }
    }
    Some(all)
}

fn marker(note: &[u8], base: Option<u64>, in_file: &dyn Fn(u64) -> Option<u64>, (file, arch): (&Elf<'_>, &Arch)) -> Option<Marker> {
    let word = |at: usize| Some(u64::from_le_bytes(note.get(at..at + 8)?.try_into().ok()?));
    let (addr, linked_base, semaphore) = (word(0)?, word(8)?, word(16)?);
    let moved = base.map_or(0, |b| b.wrapping_sub(linked_base));
    let mut texts = note.get(24..)?.split(|b| *b == 0).map(|t| String::from_utf8_lossy(t).into_owned());
    let (provider, name, args) = (texts.next()?, texts.next()?, texts.next().unwrap_or_default());
    let addr = addr.wrapping_add(moved);
    let semaphore = if semaphore == 0 { 0 } else { in_file(semaphore.wrapping_add(moved))? };
    let offset = in_file(addr)?;
    (!name.is_empty()).then(|| Marker { provider, name, addr, offset, semaphore, optimized: optimized((file, arch), addr, offset), args })
}

fn optimized((file, arch): (&Elf<'_>, &Arch), addr: u64, offset: u64) -> u64 {
    let code = |at: u64, len: usize| file.data().get(usize::try_from(at).ok()?..)?.get(..len);
    let Some(row) = &arch.optimized_uprobe else { return 0 };
    if code(offset, row.marker.len()) != Some(row.marker) {
        return 0;
    }
    let function = function_around(file, addr).and_then(|f| code(offset.checked_sub(addr - f.start)?, (f.end - f.start).try_into().ok()?));
    if function.is_some_and(arch.instructions().calls) { row.distance } else { 0 }
}
