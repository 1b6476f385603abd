//! Symbols of just-in-time compiled code in the form of `perf inject --jit`: a file `jit-PID.dump`, of which the compiler maps a
//! page so that tools can find it (Linux `tools/perf/Documentation/jitdump-specification.txt`).

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// "JiTD" in the machine's byte order.
const MAGIC: u32 = 0x4A69_5444;
/// Bytes of the prefix of each record: its kind, its size, a time.
const PREFIX: u64 = 16;
/// Kinds of records: `JIT_CODE_LOAD`, `JIT_CODE_MOVE`.
const LOAD: u32 = 0;
const MOVE: u32 = 1;
/// Size of the fixed part of these records before the name, and of the whole fixed part.
const LOAD_SIZE: u64 = PREFIX + 40;
const MOVE_SIZE: u64 = PREFIX + 48;
/// Longer names are cut.
const NAME: u64 = 4096;
/// Maximum number of records per read.
const MAX_RECORDS: usize = 1 << 20;

/// A file, as far as it was read.
#[derive(Debug, Default)]
pub(super) struct JitDump {
    read_bytes: u64,
}

impl JitDump {
    /// Is a file with this name a jitdump file?
    pub(super) fn is_one(path: &Path) -> bool {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("jit-") && name.ends_with(".dump"))
    }

    /// Reads the functions that were added: address, size, and name; the name is empty for one that has moved from the last address.
    pub(super) fn read(&mut self, path: &Path, each: &mut dyn FnMut(u64, u64, String, Option<u64>)) -> io::Result<()> {
        let mut file = BufReader::new(File::open(path)?);
        if self.read_bytes == 0 {
            let (magic, _version, size) = (number(&mut file)?, number(&mut file)?, number(&mut file)?);
            if magic != MAGIC {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.read_bytes = size.into();
        }
        for _ in 0..MAX_RECORDS {
            file.seek(SeekFrom::Start(self.read_bytes))?;
            // the last record may be incomplete
            let Ok((kind, size)) = number(&mut file).and_then(|kind| Ok((kind, u64::from(number(&mut file)?)))) else { break };
            let end = self.read_bytes.saturating_add(size);
            if size < PREFIX || end > file.get_ref().metadata()?.len() {
                break;
            }
            file.seek_relative(8)?;
            match kind {
                LOAD if size > LOAD_SIZE => {
                    let [_ids, _vma, addr, len, _index] = numbers(&mut file)?;
                    let mut name = vec![0; (size - LOAD_SIZE).min(NAME) as usize];
                    file.read_exact(&mut name)?;
                    name.truncate(name.iter().position(|b| *b == 0).unwrap_or(name.len()));
                    each(addr, len, String::from_utf8_lossy(&name).into_owned(), None);
                }
                MOVE if size >= MOVE_SIZE => {
                    let [_ids, _vma, from, to, len, _index] = numbers(&mut file)?;
                    each(to, len, String::new(), Some(from));
                }
                _ => {}
            }
            self.read_bytes = end;
        }
        Ok(())
    }
}

fn number(from: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_ne_bytes(bytes))
}

fn numbers<const N: usize>(from: &mut impl Read) -> io::Result<[u64; N]> {
    let mut all = [0; N];
    for to in &mut all {
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes)?;
        *to = u64::from_ne_bytes(bytes);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, numbers: &[u64], tail: &[u8]) -> Vec<u8> {
        let size = PREFIX as usize + 8 * numbers.len() + tail.len();
        let mut bytes = [kind.to_ne_bytes(), (size as u32).to_ne_bytes()].concat();
        bytes.extend([0; 8]);
        numbers.iter().for_each(|n| bytes.extend(n.to_ne_bytes()));
        bytes.extend(tail);
        bytes
    }

    #[test]
    fn records() {
        let path = std::env::temp_dir().join(format!("jit-{}.dump", std::process::id()));
        assert!(JitDump::is_one(&path) && !JitDump::is_one(Path::new("/tmp/jit-1.txt")));
        let mut bytes = [MAGIC.to_ne_bytes(), 1u32.to_ne_bytes(), 40u32.to_ne_bytes()].concat();
        bytes.resize(40, 0);
        bytes.extend(record(LOAD, &[0, 16, 16, 4, 1], b"first\0code"));
        bytes.extend(record(2, &[1, 2, 3], b""));
        let load = record(LOAD, &[0, 32, 32, 8, 2], b"second\0codecode");
        bytes.extend(&load[..20]);
        let mut dump = JitDump::default();
        let mut found = Vec::new();
        std::fs::write(&path, &bytes).unwrap();
        dump.read(&path, &mut |addr, size, name, from| found.push((addr, size, name, from))).unwrap();
        assert_eq!(found, [(16, 4, "first".to_owned(), None)]);
        bytes.extend(&load[20..]);
        bytes.extend(record(MOVE, &[0, 64, 32, 64, 8, 2], b""));
        std::fs::write(&path, &bytes).unwrap();
        found.clear();
        dump.read(&path, &mut |addr, size, name, from| found.push((addr, size, name, from))).unwrap();
        assert_eq!(found, [(32, 8, "second".to_owned(), None), (64, 8, String::new(), Some(32))]);
        // a file that is cut or damaged at any place ends there
        for n in 0..bytes.len() {
            let mut odd = bytes.clone();
            odd[n] ^= 0xff;
            std::fs::write(&path, &odd[..n + (odd.len() - n) / 2]).unwrap();
            let _ = JitDump::default().read(&path, &mut |_, _, _, _| {});
        }
        std::fs::remove_file(&path).unwrap();
    }
}
