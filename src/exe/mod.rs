//! Programs of `rbt build --exe`: a runner and a bundle in one file.
//!
//! If the runner is linked statically, as in releases, it is compressed: the file begins with a stub (`stub.c`), which unpacks the
//! runner into memory and jumps to it. The runner does not notice: /proc/self/exe is the file, with the bundle at its end.

mod digest;
pub mod mark;
#[cfg(test)]
mod tests;

use std::io;

use object::elf::{
    ELFCLASS64, ELFMAG, ET_DYN, FileHeader64, PF_R, PF_W, PF_X, PT_GNU_STACK, PT_INTERP, PT_LOAD, ProgramFlags, ProgramHeader64,
    ProgramType,
};
use object::pod::{bytes_of, from_bytes, slice_from_bytes};
use object::{LittleEndian, U32, U64};

use crate::bundle::Bundle;
use crate::system::machine::arch::Arch;
use digest::digest;

type Elf = FileHeader64<LittleEndian>;
type Segment = ProgramHeader64<LittleEndian>;

const LE: LittleEndian = LittleEndian;

/// The code of the stub. Its first instruction is its entry.
const STUB: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stub.bin"));

/// The maximum number of parts of the runner with protections of their own. `build.rs` gives it to the stub.
const MAX_PARTS: usize = 8;

/// The level of compression. Higher levels need fewer bytes, but more instructions for each: with level 19, rbt-run-small has 0.14 MB
/// less, and each start takes 1.2 ms more. They also make the build a second longer.
const LEVEL: i32 = 12;

/// The digest takes blocks of this size.
const DIGESTED: usize = 32;

/// The runner as it is in memory.
struct Image {
    elf: Elf,
    bytes: Vec<u8>,
    /// Its size with the memory that begins as zeros.
    memory_size: u64,
    alignment: u64,
    parts: Vec<Part>,
}

/// A part of an image with a protection of its own.
struct Part {
    start: u64,
    size: u64,
    protection: u64,
}

/// Can this runner be compressed? Only one that is linked statically can.
pub fn can_compress(runner: &[u8]) -> bool {
    Image::of(runner).is_some()
}

/// Is this a program for an architecture?
pub fn is_for(program: &[u8], arch: &Arch) -> bool {
    program.starts_with(&ELFMAG) && from_bytes::<Elf>(program).is_ok_and(|(elf, _)| elf.e_machine.get(LE).0 == arch.elf)
}

/// A program of a runner and a bundle.
///
/// # Errors
/// The runner is not one of this version.
pub fn program(mut runner: Vec<u8>, bundle: &[u8], compress: bool) -> io::Result<Vec<u8>> {
    if !mark::set(&mut runner, bundle.len() as u64) {
        return Err(io::Error::other("it is not a runner of this version of rbt"));
    }
    let image = Image::of(&runner).filter(|_| compress);
    Ok(Bundle::attached(&image.map_or(Ok(runner), |image| image.compressed())?, bundle))
}

impl Image {
    /// None if something else than the kernel must load it, or if its shape is unknown.
    fn of(runner: &[u8]) -> Option<Self> {
        let (elf, _) = from_bytes::<Elf>(runner).ok()?;
        let headers = runner.get(elf.e_phoff.get(LE) as usize..)?;
        let (segments, _) = slice_from_bytes::<Segment>(headers, elf.e_phnum.get(LE).into()).ok()?;
        let is = |kind| move |segment: &&Segment| segment.p_type.get(LE) == kind;
        let known = elf.e_ident.magic == ELFMAG && elf.e_ident.class == ELFCLASS64 && elf.e_type.get(LE) == ET_DYN;
        if !known || segments.iter().any(|segment| is(PT_INTERP)(&segment)) {
            return None;
        }
        let loaded = || segments.iter().filter(is(PT_LOAD));
        let alignment = loaded().map(|segment| segment.p_align.get(LE)).max().filter(|n| n.is_power_of_two())?;
        let (mut bytes, mut parts, mut end) = (Vec::new(), Vec::<Part>::new(), 0);
        for segment in loaded() {
            let [start, offset, size, memory] =
                [&segment.p_vaddr, &segment.p_offset, &segment.p_filesz, &segment.p_memsz].map(|n: &U64<LittleEndian>| n.get(LE));
            let contents = runner.get(offset as usize..)?.get(..size as usize)?;
            let part_start = start & alignment.wrapping_neg();
            if part_start < end || size > memory || start > u64::from(u32::MAX) || memory > u64::from(u32::MAX) {
                return None;
            }
            bytes.resize(start as usize, 0);
            bytes.extend(contents);
            end = (start + memory).next_multiple_of(alignment);
            parts.push(Part { start: part_start, size: end - part_start, protection: protection(segment.p_flags.get(LE)) });
        }
        // the C library reads the program headers in memory
        let headers_end = elf.e_phoff.get(LE) + u64::from(elf.e_phnum.get(LE)) * size_of::<Segment>() as u64;
        let first = loaded().next()?;
        let has_headers = first.p_vaddr.get(LE) == 0 && first.p_offset.get(LE) == 0 && headers_end <= first.p_filesz.get(LE);
        (has_headers && parts.len() <= MAX_PARTS).then_some(Self { elf: *elf, bytes, memory_size: end, alignment, parts })
    }

    /// The file of the stub with the compressed image.
    fn compressed(&self) -> io::Result<Vec<u8>> {
        let mut packed = zstd::bulk::compress(&self.bytes, LEVEL)?;
        let packed_size = packed.len();
        // at least eight zeros follow, which the stub needs
        packed.resize((packed_size + 8).next_multiple_of(DIGESTED), 0);

        let numbers = 12 + 3 * MAX_PARTS;
        let code_start = (size_of::<Elf>() + SEGMENTS * size_of::<Segment>() + numbers * 8).next_multiple_of(64);
        let code_end = (code_start + STUB.len()).next_multiple_of(DIGESTED);
        // the digest follows
        let packed_start = (code_end as u64 + 8).next_multiple_of(self.alignment);
        let size = |bytes: &[u8]| bytes.len() as u64;
        let mut header = vec![
            code_end as u64,
            packed_start,
            packed_size as u64,
            size(&packed),
            digest(&packed),
            size(&self.bytes),
            self.memory_size,
            self.alignment,
            self.elf.e_entry.get(LE),
            self.elf.e_phoff.get(LE),
            self.elf.e_phnum.get(LE).into(),
            self.parts.len() as u64,
        ];
        header.extend(self.parts.iter().flat_map(|part| [part.start, part.size, part.protection]));
        header.resize(numbers, 0);

        let mut elf = self.elf;
        elf.e_entry.set(LE, code_start as u64);
        elf.e_phoff.set(LE, size_of::<Elf>() as u64);
        elf.e_phnum.set(LE, SEGMENTS as u16);
        (elf.e_shoff, elf.e_shentsize, elf.e_shnum, elf.e_shstrndx) = Default::default();
        let segments: [Segment; SEGMENTS] = [
            segment(PT_LOAD, PF_R | PF_X, 0, code_end as u64 + 8, self.alignment),
            segment(PT_LOAD, PF_R, packed_start, size(&packed), self.alignment),
            // without it, some kernels make the stack executable
            segment(PT_GNU_STACK, PF_R | PF_W, 0, 0, 16),
        ];
        let mut file = bytes_of(&elf).to_vec();
        file.extend(segments.iter().flat_map(bytes_of));
        file.extend(header.iter().flat_map(|number| number.to_le_bytes()));
        file.resize(code_start, 0);
        file.extend(STUB);
        file.resize(code_end, 0);
        file.extend(digest(&file).to_le_bytes());
        file.resize(packed_start as usize, 0);
        file.extend(packed);
        Ok(file)
    }
}

/// The number of program headers of a compressed program.
const SEGMENTS: usize = 3;

/// A program header of a compressed program, whose addresses are the places in the file.
fn segment(kind: ProgramType, flags: ProgramFlags, start: u64, size: u64, alignment: u64) -> Segment {
    let [start, size, alignment] = [start, size, alignment].map(|n| U64::new(LE, n));
    let (p_type, p_flags) = (U32::new(LE, kind), U32::new(LE, flags));
    Segment { p_type, p_flags, p_offset: start, p_vaddr: start, p_paddr: start, p_filesz: size, p_memsz: size, p_align: alignment }
}

/// The protection of a segment, as mmap(2) takes it.
fn protection(flags: ProgramFlags) -> u64 {
    let rows = [(PF_R, libc::PROT_READ), (PF_W, libc::PROT_WRITE), (PF_X, libc::PROT_EXEC)];
    rows.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, protection)| *protection as u64).sum()
}
