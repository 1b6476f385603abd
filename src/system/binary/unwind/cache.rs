//! The cache of unwind tables: see `system/cache.rs`.
//!
//! The key of a file's table is its build ID, so that copies in other containers share it. A file without one, as the Rust
//! compiler's own libraries, is identified by its inode.

use std::path::Path;
use std::time::SystemTime;

use object::Object;

use super::entry::RuleEntry;
use super::{PAGE, Page, Rows, Rule, Table, compile::compile};
use crate::system::Missing;
use crate::system::binary::file::{map_with_metadata, not_elf};
use crate::system::cache::{CacheFile, Contents, Kind, unchanged};

/// The largest programs have about ten million rows.
const KIND: Kind = Kind { form: "rbt-unwind-14", prefix: "unwind-", max_bytes: 256 << 20, max_files: 4096, max_total: 512 << 20 };
/// A smaller file compiles as fast as its table can be read.
const MIN_FILE_SIZE: usize = 64 << 10;

/// Returns the table of a file, from the cache or compiled. The table is empty if nothing describes the file's code, as in
/// Go programs for AArch64 without call frame information, which have frame pointers instead. `name` is the file's path, which determines its separate debug file; `at` is
/// where the file can be read; `dirs` are those of `--debuginfo`.
///
/// Errors: the file is unreadable, or not a 64-bit ELF file for a supported processor.
pub fn table(name: &Path, at: &Path, dirs: &[String]) -> Result<Table, Missing> {
    let (data, meta) = map_with_metadata(at)?;
    let key = if data.len() > MIN_FILE_SIZE {
        build_id(&data).or_else(|| Some(format!("inode-{}", unchanged(&meta, SystemTime::now())?)))
    } else {
        None
    };
    let file = key.and_then(|key| CacheFile::new(KIND, key));
    if let Some(known) = file.as_ref().and_then(CacheFile::map).and_then(read) {
        return Ok(known);
    }
    let table = compile(name, &data, dirs).ok_or_else(|| not_elf(at))?;
    if let Some(file) = file.filter(|_| !table.rows.is_empty()) {
        file.save(&write(&table));
    }
    Ok(table)
}

/// The key of a file with a build ID.
fn build_id(data: &[u8]) -> Option<String> {
    let file = object::File::parse(data).ok()?;
    let id = file.build_id().ok().flatten().filter(|id| !id.is_empty() && id.len() <= 64)?;
    let hex: String = id.iter().map(|b| format!("{b:02x}")).collect();
    // A stripped copy has the same ID, but other offsets if the tool moved its segments.
    Some(format!("{hex}-{:x}", data.len()))
}

/// Encodes a table as little-endian 32-bit numbers: the counts of rules, pages and rows, then six numbers for each rule, three
/// for each page, and one for each row.
fn write(table: &Table) -> Vec<u8> {
    let mut words: Vec<u32> = vec![table.rules.len() as u32, table.pages.len() as u32, table.rows.len() as u32];
    for rule in &table.rules {
        let e = RuleEntry::from(rule);
        words.push(u32::from_le_bytes([e.cfa, e.fp, e.ra, e.flags]));
        words.extend([e.cfa_offset, e.cfa_second, e.fp_offset, e.ra_offset, e.third_offset].map(i32::cast_unsigned));
    }
    for page in &table.pages {
        words.extend([page.number, page.first, page.count.into()]);
    }
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    bytes.extend_from_slice(table.rows.words().as_flattened());
    bytes
}

/// Decodes a table, except its rows; `None` if it is inconsistent.
fn read(contents: Contents) -> Option<Table> {
    let (words, []) = contents.as_chunks::<4>() else { return None };
    let mut words = words.iter().map(|word| u32::from_le_bytes(*word));
    let (rules, pages, rows) = (words.next()?, words.next()?, words.next()?);
    if words.len() as u64 != 6 * u64::from(rules) + 3 * u64::from(pages) + u64::from(rows) {
        return None;
    }
    let rules = (0..rules).map(|_| rule(&mut words)).collect::<Option<Vec<Rule>>>()?;
    let mut next = 0;
    let pages = (0..pages).map(|_| {
        let (number, first, count) = (words.next()?, words.next()?, words.next()?);
        let page = Page { number, first, count: u16::try_from(count).ok()? };
        let fits = first == next && count > 0 && u64::from(count) <= PAGE;
        next = first.checked_add(count)?;
        fits.then_some(page)
    });
    let pages = pages.collect::<Option<Vec<Page>>>()?;
    if next != rows || !pages.is_sorted_by(|a, b| a.number < b.number) {
        return None;
    }
    let offset = contents.len() - 4 * words.len();
    let rows = Rows::cached(contents, offset);
    let have_rules = rows.iter().all(|row| row.rule < rules.len() as u32);
    have_rules.then_some(Table { rules, pages, rows })
}

fn rule(words: &mut impl Iterator<Item = u32>) -> Option<Rule> {
    let [cfa, fp, ra, flags] = words.next()?.to_le_bytes();
    let mut number = || words.next().map(u32::cast_signed);
    let (cfa_offset, cfa_second, fp_offset, ra_offset, third_offset) = (number()?, number()?, number()?, number()?, number()?);
    RuleEntry { cfa, fp, ra, flags, cfa_offset, cfa_second, fp_offset, ra_offset, third_offset }.rule()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_round_trip() {
        // the C library: a debug build of rbt has some hundred times as many rows, each of which is read hundreds of times
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("/libc.so"));
        let path = Path::new(libc.unwrap_or("/proc/self/exe"));
        let table = compile(path, &map_with_metadata(path).unwrap().0, &[]).unwrap();
        assert!(table.rows.len() > 5_000 && table.rules.len() > 20 && table.pages.len() > 20);
        let bytes = write(&table);
        let read = |bytes: &[u8]| read(Contents::of(bytes));
        assert_eq!(read(&bytes), Some(table));
        // Whatever byte changes, no index in the decoded table is out of bounds.
        // The header's bytes matter most, and the rest is large.
        for n in (0..256).chain((256..bytes.len()).step_by(bytes.len() / 100)) {
            assert_eq!(read(&bytes[..n]), None, "cut at {n}");
            let mut odd = bytes.clone();
            odd[n] ^= 0x41;
            let Some(odd) = read(&odd) else { continue };
            assert!(odd.rows.iter().all(|row| (row.rule as usize) < odd.rules.len()));
            assert!(odd.pages.iter().all(|page| page.first as usize + usize::from(page.count) <= odd.rows.len()));
        }
    }
}
