//! Functions by call frame information.

use std::ops::Range;

use gimli::{BaseAddresses, EhFrame, LittleEndian, UnwindSection};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection};

/// The addresses of the function around an address, by its call frame information, which a stripped file has as well.
pub fn function_around(file: &ElfFile64<'_>, addr: u64) -> Option<Range<u64>> {
    let section = file.section_by_name(".eh_frame")?;
    let address = |name: &str| file.section_by_name(name).map_or(0, |s| s.address());
    let bases = BaseAddresses::default().set_eh_frame(section.address()).set_text(address(".text")).set_got(address(".got"));
    let mut frames = EhFrame::new(section.data().ok()?, LittleEndian);
    frames.set_address_size(8);
    let found = frames.fde_for_address(&bases, addr, EhFrame::cie_from_offset).ok()?;
    let start = found.initial_address();
    Some(start..start.checked_add(found.len())?)
}
