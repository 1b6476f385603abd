//! Unpacks kernels and modules: x86's `bzImage` (Documentation/arch/x86/boot.rst), the image that arm64's firmware starts
//! (drivers/firmware/efi/libstub/zboot-header.S), and the compression formats of the kernel's build, detected by their first
//! bytes.

use std::io::{Read, Take};

use super::raw_image;
use crate::system::machine::arch;

/// Limit for the unpacked size in bytes. A kernel with its debug information is smaller.
const MAX_UNPACKED_SIZE: u64 = 2 << 30;

/// Unpacks a kernel to an ELF file or to arm64's image.
pub(super) fn kernel(bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    let mut bytes = bytes;
    // A bzImage contains a compressed file, which contains the ELF file.
    for _ in 0..3 {
        if bytes.starts_with(b"\x7fELF") || raw_image::is_image(&bytes) {
            return Ok(bytes);
        }
        if let Some(what) = foreign(&bytes) {
            return Err(format!("it is {what}; rbt supports {}", arch::names()));
        }
        bytes = match payload(&bytes)? {
            Some(packed) => inflate(packed)?,
            None => inflate(&bytes)?,
        };
    }
    Err("it is packed in too many layers".into())
}

/// Names the architecture of a foreign image by its magic number (Documentation/arch/riscv/boot-image-header.rst).
fn foreign(bytes: &[u8]) -> Option<&'static str> {
    const MAGIC: std::ops::Range<usize> = 0x38..0x3c;
    (bytes.get(MAGIC) == Some(b"RSC\x05")).then_some("an image for riscv64")
}

/// Finds the compressed kernel in a `bzImage` or in an EFI image; `None` for other files.
fn payload(bytes: &[u8]) -> Result<Option<&[u8]>, String> {
    const CUT: &str = "its header is truncated";
    if bytes.starts_with(b"MZ") && bytes.get(4..8) == Some(b"zimg") {
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize);
        let (offset, length) = (word(8).ok_or(CUT)?, word(12).ok_or(CUT)?);
        return bytes.get(offset..offset.checked_add(length).ok_or(CUT)?).map(Some).ok_or_else(|| "it is truncated".into());
    }
    if bytes.get(0x202..0x206) != Some(b"HdrS") {
        return Ok(None);
    }
    let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize);
    let version = word(0x206).ok_or(CUT)? & 0xffff;
    if version < 0x208 {
        return Err("it is a kernel before 2.6.26, whose header does not locate the kernel".into());
    }
    let sectors = match bytes.get(0x1f1).ok_or(CUT)? {
        0 => 4,
        n => usize::from(*n),
    };
    let (offset, length) = (word(0x248).ok_or(CUT)?, word(0x24c).ok_or(CUT)?);
    let packed = ((sectors + 1) * 512).checked_add(offset).and_then(|from| bytes.get(from..from.checked_add(length)?));
    packed.map(Some).ok_or_else(|| "it is truncated".into())
}

/// Removes one layer of compression.
pub(super) fn inflate(bytes: &[u8]) -> Result<Vec<u8>, String> {
    const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
    const LZ4: &[u8] = &[0x02, 0x21, 0x4c, 0x18];
    let damaged = |what: &'static str| move |e: std::io::Error| format!("its {what} data are damaged: {e}");
    if bytes.starts_with(&[0x1f, 0x8b]) {
        all(flate2::read::GzDecoder::new(bytes).take(MAX_UNPACKED_SIZE + 1)).map_err(damaged("gzip"))
    } else if bytes.starts_with(b"\xfd7zXZ\0") {
        xz2::stream::Stream::new_stream_decoder(MAX_UNPACKED_SIZE, 0)
            .and_then(|s| xz(bytes, s))
            .map_err(|e| format!("its xz data are damaged: {e}"))
    } else if bytes.starts_with(ZSTD) {
        // Read a single frame, because a kernel's is followed by its length.
        let decoder = zstd::stream::read::Decoder::with_buffer(bytes).map_err(damaged("zstd"))?;
        all(decoder.single_frame().take(MAX_UNPACKED_SIZE + 1)).map_err(damaged("zstd"))
    } else if bytes.starts_with(&[0x5d, 0, 0]) {
        xz2::stream::Stream::new_lzma_decoder(MAX_UNPACKED_SIZE)
            .and_then(|s| xz(bytes, s))
            .map_err(|e| format!("its lzma data are damaged: {e}"))
    } else if let Some(blocks) = bytes.strip_prefix(LZ4) {
        lz4(blocks)
    } else if bytes.starts_with(b"BZh") {
        Err("it is compressed with bzip2, which is not supported: unpack it with the kernel's scripts/extract-vmlinux".into())
    } else if bytes.starts_with(&[0x89, b'L', b'Z', b'O']) {
        Err("it is compressed with lzo, which is not supported: unpack it with the kernel's scripts/extract-vmlinux".into())
    } else {
        Err("it is neither an ELF file nor a bzImage or an image of arm64, nor in a known compression format".into())
    }
}

fn all(mut from: Take<impl Read>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_UNPACKED_SIZE {
        return Err(std::io::Error::other("they are over 2 GB when unpacked"));
    }
    Ok(bytes)
}

/// Reads a single stream, because a kernel's is followed by its length.
fn xz(bytes: &[u8], mut stream: xz2::stream::Stream) -> Result<Vec<u8>, xz2::stream::Error> {
    use xz2::stream::{Action, Error, Status};
    let mut plain = Vec::with_capacity(bytes.len().saturating_mul(4));
    loop {
        let read = stream.total_in();
        let before = plain.len();
        let rest = bytes.get(read as usize..).unwrap_or_default();
        match stream.process_vec(rest, &mut plain, Action::Run)? {
            Status::StreamEnd => return Ok(plain),
            Status::Ok | Status::GetCheck | Status::MemNeeded => {}
        }
        if plain.len() as u64 > MAX_UNPACKED_SIZE || (plain.len() == before && plain.len() < plain.capacity() && stream.total_in() == read)
        {
            return Err(Error::Data);
        }
        if plain.len() == plain.capacity() {
            plain.reserve(1 << 20);
        }
    }
}

/// The legacy format of LZ4 (`lz4 -l`): blocks of up to 8 MB, each after its compressed length.
fn lz4(mut rest: &[u8]) -> Result<Vec<u8>, String> {
    const BLOCK: usize = 8 << 20;
    let mut unpacked = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        // In a bzImage, the total length follows the last block.
        if after.is_empty() {
            break;
        }
        let block = after.split_at_checked(u32::from_le_bytes(*length) as usize);
        let (block, after) = block.ok_or("its lz4 data are truncated")?;
        let plain = lz4_flex::block::decompress(block, BLOCK).map_err(|e| format!("its lz4 data are damaged: {e}"))?;
        unpacked.extend(plain);
        if unpacked.len() as u64 > MAX_UNPACKED_SIZE {
            return Err("its lz4 data are over 2 GB when unpacked".into());
        }
        rest = after;
    }
    Ok(unpacked)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const PLAIN: &[u8] = b"\x7fELF and so on, and so on, and so on, and so on";

    fn image(packed: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 0x400 + 16];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x206..0x208].copy_from_slice(&0x20fu16.to_le_bytes());
        image[0x248..0x24c].copy_from_slice(&16u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&(packed.len() as u32).to_le_bytes());
        image.extend(packed);
        image
    }

    fn packed() -> Vec<(&'static str, Vec<u8>)> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(PLAIN).unwrap();
        let mut xz = xz2::write::XzEncoder::new(Vec::new(), 1);
        xz.write_all(PLAIN).unwrap();
        // One block of literals: token 0xf0, then the rest of the length.
        let block = [&[0xf0, PLAIN.len() as u8 - 15], PLAIN].concat();
        let lz4 = [&[0x02, 0x21, 0x4c, 0x18], &(block.len() as u32).to_le_bytes()[..], &block].concat();
        let zstd = zstd::stream::encode_all(PLAIN, 1).unwrap();
        let mut lzma = xz2::write::XzEncoder::new_stream(
            Vec::new(),
            xz2::stream::Stream::new_lzma_encoder(&xz2::stream::LzmaOptions::new_preset(1).unwrap()).unwrap(),
        );
        lzma.write_all(PLAIN).unwrap();
        vec![("gzip", gzip.finish().unwrap()), ("xz", xz.finish().unwrap()), ("lz4", lz4), ("zstd", zstd), ("lzma", lzma.finish().unwrap())]
    }

    #[test]
    fn unpacks_each_compression() {
        for (name, packed) in packed() {
            assert_eq!(kernel(packed.clone()).unwrap(), PLAIN, "{name}");
            let with_length = [packed.as_slice(), &(PLAIN.len() as u32).to_le_bytes()].concat();
            assert_eq!(kernel(image(&with_length)).unwrap(), PLAIN, "{name} in an image");
        }
    }

    #[test]
    fn damage_is_reported() {
        for (name, packed) in packed() {
            let whole = image(&packed);
            for cut in 0..whole.len() {
                assert!(kernel(whole[..cut].to_vec()).is_err(), "{name} cut at {cut}");
            }
            for at in 0..whole.len() {
                let mut odd = whole.clone();
                odd[at] ^= 0x5a;
                let _ = kernel(odd);
            }
        }
        assert!(kernel(b"BZh91AY".to_vec()).unwrap_err().contains("bzip2"));
        assert!(kernel(b"text".to_vec()).unwrap_err().contains("neither"));
    }
}
