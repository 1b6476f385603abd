//! A kernel that is not an ELF file: the memory image that arm64's boot loaders expect (Documentation/arch/arm64/booting.rst).
//!
//! The image does not record its sections or its link address. Pointers are either in place or in a table of relocations
//! (`Elf64_Rela`), and then zero in the image. All pointers are in one range that starts at the link address. The symbol table,
//! which `kallsyms` finds, then shows where the code is.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::image::{Image, Section, Symbol};
use crate::system::machine::arch;

/// Offset and value of the magic number in the header.
const MAGIC: (std::ops::Range<usize>, &[u8]) = (0x38..0x3c, b"ARM\x64");
/// `R_AARCH64_RELATIVE`, without a symbol.
const RELATIVE: u64 = 1027;
/// The alignment of link addresses (`MIN_KIMG_ALIGN`).
const ALIGNED: u64 = 1 << 21;
/// The minimum number of relocations; fewer cannot be those of all pointers.
const MIN_RELOCATIONS: usize = 1 << 10;
/// The maximum size of a kernel, as a power of two.
const RANGE: u32 = 28;

/// Is this such an image?
pub(super) fn is_image(data: &[u8]) -> bool {
    data.get(MAGIC.0) == Some(MAGIC.1)
}

/// Reads the image. All of it may be code until [`divide_sections`] divides it.
pub(super) fn image(data: &[u8]) -> Result<Image<'_>, String> {
    let relocations = relocations(data);
    let base = base(data, &relocations).ok_or("its pointers do not tell where it is linked")?;
    let mut bytes = data.to_vec();
    for (place, value) in &relocations {
        let at = usize::try_from(place.wrapping_sub(base)).ok();
        if let Some(to) = at.and_then(|at| bytes.get_mut(at..at.checked_add(8)?)) {
            to.copy_from_slice(&value.to_le_bytes());
        }
    }
    let section = Section { name: String::new(), address: base, bytes: Cow::Owned(bytes), code: false };
    let machine = arch::ALL.iter().find(|a| a.folder == "arm64").map_or("", |a| a.name);
    Ok(Image::from_memory(section, machine, btf(data)))
}

/// Addresses and the values there.
fn relocations(data: &[u8]) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    let mut pos = 0;
    while let Some(entry) = data.get(pos..pos + 24) {
        let mut words = super::image::pointers(entry);
        match (words.next(), words.next(), words.next()) {
            (Some(place), Some(RELATIVE), Some(value)) if is_of_kernel(place) && place % 4 == 0 => {
                all.push((place, value));
                pos += 24;
            }
            _ => pos += 8,
        }
    }
    all
}

/// Is it an address in the kernel's half, rather than a small negative number?
fn is_of_kernel(address: u64) -> bool {
    address >> 48 == 0xffff && address >> RANGE != u64::MAX >> RANGE
}

/// The start of the range that contains most pointers.
fn base(data: &[u8], relocations: &[(u64, u64)]) -> Option<u64> {
    // By range: the number of pointers, and the lowest.
    let mut ranges: BTreeMap<u64, (u32, u64)> = BTreeMap::new();
    let mut count = |address: u64| {
        if is_of_kernel(address) {
            let range = ranges.entry(address >> RANGE).or_insert((0, u64::MAX));
            *range = (range.0 + 1, range.1.min(address));
        }
    };
    // Newer kernels have only a few.
    if relocations.len() < MIN_RELOCATIONS {
        super::image::pointers(data).for_each(&mut count);
    } else {
        relocations.iter().for_each(|(place, value)| {
            count(*place);
            count(*value);
        });
    }
    let (_, lowest) = ranges.into_values().max_by_key(|(count, _)| *count)?;
    Some(lowest & !(ALIGNED - 1))
}

/// Finds the BTF: the largest blob with a valid header that fits into the image.
fn btf(data: &[u8]) -> Option<&[u8]> {
    // Magic, version, flags (include/uapi/linux/btf.h).
    let places = memchr::memmem::find_iter(data, b"\x9f\xeb\x01\x00");
    let found = places.filter_map(|at| {
        let word = |n: usize| Some(u32::from_le_bytes(*data.get(at + n * 4..)?.first_chunk()?) as usize);
        let (header, types_at, types, texts_at, texts) = (word(1)?, word(2)?, word(3)?, word(4)?, word(5)?);
        let right = (24..=256).contains(&header) && types_at == 0 && texts_at >= types;
        let size = header.checked_add(texts_at)?.checked_add(texts)?;
        data.get(at..at.checked_add(size)?).filter(|_| right)
    });
    found.max_by_key(|all| all.len())
}

/// Divides an image into sections by its symbols.
pub(super) fn divide_sections(image: &mut Image<'_>, symbols: &[Symbol]) {
    let address = |name: &str| symbols.iter().find(|s| s.name == name).map(|s| s.address);
    let code = [("_stext", "_etext", ".text"), ("_sinittext", "_einittext", ".init.text")];
    let code = code.into_iter().filter_map(|(from, to, name)| Some((address(from)?, address(to)?, name))).collect::<Vec<_>>();
    let notes = address("__start_notes").zip(address("__stop_notes"));
    image.divide(&code, notes);
}
