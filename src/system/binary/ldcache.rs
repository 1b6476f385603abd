//! The libraries of the dynamic loader: `/etc/ld.so.cache` and the standard directories.
//!
//! The layout of the cache is glibc's `sysdeps/generic/dl-cache.h` (`struct cache_file_new`), in the machine's byte order.
//! Offsets are relative to the magic of the new format, which may follow a cache of the old format.

use std::path::PathBuf;

use crate::system::binary::root::Root;

/// The magic and version of the new format.
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// Size of `struct cache_file_new` without its entries.
const HEADER: usize = 48;
/// `struct file_entry_new`: flags, key, value, unused (4 bytes each), hwcap (8).
const ENTRY: usize = 24;

/// Returns (soname, path) of every library in the cache. Libraries that need certain hardware capabilities come last. Empty
/// without a cache, or with a cache in another format than glibc's new one.
pub(in crate::system) fn libraries(root: &Root) -> Vec<(String, PathBuf)> {
    root.read("/etc/ld.so.cache").map(|cache| parse(&cache)).unwrap_or_default()
}

/// The directories that the loader searches by default.
pub(in crate::system) fn directories(root: &Root) -> Vec<String> {
    let mut dirs: Vec<String> = ["/usr/local/lib", "/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(String::from).into();
    for parent in ["/lib", "/usr/lib"] {
        let multiarch = root.list(parent).into_iter().filter_map(|d| d.into_string().ok()).filter(|d| d.contains("-linux-"));
        dirs.extend(multiarch.map(|d| format!("{parent}/{d}")));
    }
    dirs
}

fn parse(cache: &[u8]) -> Vec<(String, PathBuf)> {
    let Some(start) = (0..cache.len()).step_by(8).find(|at| cache[*at..].starts_with(MAGIC)) else { return Vec::new() };
    let cache = &cache[start..];
    let word = |at: usize| cache.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_ne_bytes);
    let text = |at: usize| {
        let bytes = cache.get(at..)?;
        let end = bytes.iter().position(|b| *b == 0)?;
        std::str::from_utf8(&bytes[..end]).ok()
    };
    let mut found: Vec<(bool, String, PathBuf)> = (0..word(MAGIC.len()).unwrap_or(0) as usize)
        .map_while(|i| {
            let at = HEADER + i * ENTRY;
            let (soname, path) = (text(word(at + 4)? as usize)?, text(word(at + 8)? as usize)?);
            let hwcap = word(at + 16)? != 0 || word(at + 20)? != 0;
            Some((hwcap, soname.to_owned(), PathBuf::from(path)))
        })
        .collect();
    found.sort_by_key(|(hwcap, _, _)| *hwcap);
    found.into_iter().map(|(_, soname, path)| (soname, path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: &[(&str, &str, u64)]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend((entries.len() as u32).to_ne_bytes());
        bytes.resize(HEADER, 0);
        let mut strings = Vec::new();
        let base = HEADER + entries.len() * ENTRY;
        for (soname, path, hwcap) in entries {
            let key = base + strings.len();
            let value = key + soname.len() + 1;
            strings.extend([soname.as_bytes(), b"\0", path.as_bytes(), b"\0"].concat());
            bytes.extend(0x303u32.to_ne_bytes());
            bytes.extend((key as u32).to_ne_bytes());
            bytes.extend((value as u32).to_ne_bytes());
            bytes.extend(0u32.to_ne_bytes());
            bytes.extend(hwcap.to_ne_bytes());
        }
        [bytes, strings].concat()
    }

    #[test]
    fn new_format() {
        let bytes = cache(&[("libc.so.6", "/lib/v3/libc.so.6", 1 << 62), ("libc.so.6", "/lib/libc.so.6", 0)]);
        let expected =
            [("libc.so.6".to_owned(), PathBuf::from("/lib/libc.so.6")), ("libc.so.6".to_owned(), PathBuf::from("/lib/v3/libc.so.6"))];
        assert_eq!(parse(&bytes), expected);
        let after_old = [b"ld.so-1.7.0\0\0\0\0\0".to_vec(), bytes.clone()].concat();
        assert_eq!(parse(&after_old), expected);
        for cut in 0..bytes.len() {
            parse(&bytes[..cut]);
        }
    }

    #[test]
    fn garbage() {
        assert_eq!(parse(b""), []);
        let mut bytes = cache(&[("a", "b", 0)]);
        bytes[20..24].copy_from_slice(&u32::MAX.to_ne_bytes());
        parse(&bytes);
    }
}
