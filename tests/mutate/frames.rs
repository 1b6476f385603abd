//! Compiles damaged or forged call frame information. The resulting table must be consistent, and its time and memory bounded.

use crate::change;
use object::{Object, ObjectSection};
use rbt::system::binary::unwind::{PAGE, Row, Table, compile_image};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The time limit for one table. It is long because a debug build on a busy machine is slow.
const LIMIT: Duration = Duration::from_secs(20);

/// Compiles `count` damaged files, and returns how many of them still have rows.
pub fn run(seed: u64, count: u64) -> Result<u64, String> {
    let whole = std::fs::read("/bin/true").map_err(|e| e.to_string())?;
    let part = object::File::parse(&*whole).ok().and_then(|file| file.section_by_name(".eh_frame")?.file_range());
    let (start, size) = part.ok_or("/bin/true has no call frame information")?;
    let mut with_rows = 0;
    for number in 0..count {
        let file = change::file(&whole, start as usize..(start + size) as usize, seed, number);
        with_rows += u64::from(compiles(&file).map_err(|why| format!("file {number} of seed {seed}: {why}"))?);
    }
    // Only files that still have rows test the rest of the code.
    if with_rows * 2 > count { Ok(with_rows) } else { Err(format!("only {with_rows} of {count} have rows")) }
}

/// Tests many functions that share one long program.
pub fn bounded() -> Result<(), String> {
    let cie = record(0, &[&[1, 0, 1, 0x78, 16][..], &vec![0; 4 << 20]].concat());
    let mut frames = cie;
    for n in 0..20_000u64 {
        let back = frames.len() as u32 + 4;
        let range = [(0x1000 + n).to_le_bytes(), 1u64.to_le_bytes()].concat();
        frames.extend(record(back, &range));
    }
    compiles(&elf(&frames)).map(drop)
}

/// Checks the table of a file, and returns whether it has rows.
fn compiles(file: &[u8]) -> Result<bool, String> {
    let began = Instant::now();
    let table = catch_unwind(AssertUnwindSafe(|| compile_image(file))).map_err(|_| "panics")?;
    if began.elapsed() > LIMIT {
        return Err(format!("takes {:?}", began.elapsed()));
    }
    consistent(&table, file.len()).map(|()| !table.rows.is_empty())
}

fn consistent(table: &Table, size: usize) -> Result<(), String> {
    let mut next = 0;
    for page in &table.pages {
        let rows: Vec<Row> = table.rows.of(page).collect();
        if page.first != next || rows.is_empty() || rows.len() != usize::from(page.count) {
            return Err(format!("{page:?} has no rows"));
        }
        if !rows.is_sorted_by(|a, b| a.start < b.start) || rows.iter().any(|row| u64::from(row.start) >= PAGE) {
            return Err(format!("{page:?} has rows out of order"));
        }
        next += u32::from(page.count);
    }
    if next as usize != table.rows.len() || !table.pages.is_sorted_by(|a, b| a.number < b.number) {
        return Err("the pages are out of order".into());
    }
    if table.rows.iter().any(|row| row.rule as usize >= table.rules.len()) {
        return Err("a row has no rule".into());
    }
    if table.rows.len() > 2 * size + table.pages.len() || table.pages.len() > size {
        return Err(format!("{} rows in {} pages of {size} bytes", table.rows.len(), table.pages.len()));
    }
    Ok(())
}

/// Makes a record of `.eh_frame` from its ID and its remaining bytes, which the length precedes.
fn record(id: u32, rest: &[u8]) -> Vec<u8> {
    [&(rest.len() as u32 + 4).to_le_bytes()[..], &id.to_le_bytes(), rest].concat()
}

/// Makes a 64-bit ELF file with this call frame information and one code segment.
fn elf(frames: &[u8]) -> Vec<u8> {
    const NAMES: &[u8] = b"\0.eh_frame\0.shstrtab\0";
    let (program_headers, start) = (64u64, 128u64);
    let (names, sections) = (start + frames.len() as u64, start + frames.len() as u64 + NAMES.len() as u64);
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend([3u16.to_le_bytes(), 62u16.to_le_bytes()].concat());
    file.extend(1u32.to_le_bytes());
    file.extend([0, program_headers, sections].map(u64::to_le_bytes).concat());
    file.extend(0u32.to_le_bytes());
    file.extend([64u16, 56, 1, 64, 3, 2].map(u16::to_le_bytes).concat());
    // The program header has the type PT_LOAD and the flags for reading and executing.
    file.extend([1u32, 5].map(u32::to_le_bytes).concat());
    file.extend([0u64, 0x1000, 0x1000, 0x10000, 0x10000, 0x1000].map(u64::to_le_bytes).concat());
    file.resize(start as usize, 0);
    file.extend(frames);
    file.extend(NAMES);
    let section = |name: u32, kind: u32, flags: u64, addr: u64, offset: u64, size: usize| {
        let mut header = [name.to_le_bytes(), kind.to_le_bytes()].concat();
        header.extend([flags, addr, offset, size as u64, 0, 1, 0].map(u64::to_le_bytes).concat());
        header.resize(64, 0);
        header
    };
    file.extend([0; 64]);
    file.extend(section(1, 1, 2, 0x100000, start, frames.len()));
    file.extend(section(11, 3, 0, 0, names, NAMES.len()));
    file
}
