//! Go programs: their own table of functions, and their calling convention.
//!
//! The Go runtime unwinds stacks by the table (`.gopclntab`), so stripping does not remove it. Its formats: Go's
//! `src/debug/gosym/pclntab.go`. The version: `src/debug/buildinfo/buildinfo.go`. Since Go 1.17, arguments are in registers, in
//! Go's own order (`src/cmd/compile/abi-internal.md`, "amd64 architecture"); before, and in assembly functions, they are on the
//! stack.

use std::collections::{BTreeMap, BTreeSet};

use object::{Object, ObjectSection};

use crate::system::binary::file::{Segment, offset};
use crate::system::{Abi, Function};

/// Returns Go's functions by address, or `None` if the file is not a Go binary. Names are the linker's: `main.main`.
pub(in crate::system) fn functions(data: &[u8], segments: &[Segment]) -> Option<Vec<Function>> {
    let file = object::File::parse(data).ok()?;
    let section = file.sections().find(|s| s.name().is_ok_and(|n| n.ends_with(".gopclntab")))?;
    let table = section.data().ok()?;
    let text = file.section_by_name(".text").map_or(0, |s| s.address());
    let Entries { all: entries, end, newest } = entries(table, text)?;
    let registers = match version(&file, data, segments) {
        Some(version) => version >= (1, 17),
        None => newest,
    };
    let abi = if registers { Abi::Go } else { Abi::GoStack };
    let ends = entries.iter().map(|e| e.0).skip(1).chain([end]);
    let all = entries.iter().zip(ends).filter_map(|((addr, name), end)| {
        let size = end.saturating_sub(*addr);
        Some(Function { name: name.clone(), addr: *addr, size, offset: offset(segments, *addr)?, abi })
    });
    Some(all.collect())
}

/// Is the file a Go binary?
pub(in crate::system) fn is_go(data: &[u8]) -> bool {
    let Ok(file) = object::File::parse(data) else { return false };
    file.sections().any(|s| s.name().is_ok_and(|n| n.ends_with(".gopclntab")))
}

/// Merges Go's functions with those of the symbol table, by name. A function without a symbol is added; a function with one
/// gets its calling convention. The linker adds `.abi0` to functions that take their arguments on the stack.
pub(in crate::system) fn merge(symbols: &mut Vec<Function>, of_go: Vec<Function>) {
    let by_addr: BTreeMap<u64, Function> = of_go.into_iter().map(|f| (f.addr, f)).collect();
    let mut named = BTreeSet::new();
    for f in symbols.iter_mut() {
        if let Some(known) = by_addr.get(&f.addr) {
            f.abi = if f.name.ends_with(".abi0") { Abi::GoStack } else { known.abi };
            f.size = if f.size == 0 { known.size } else { f.size };
            named.insert(f.addr);
        }
    }
    symbols.extend(by_addr.into_values().filter(|f| !named.contains(&f.addr)));
    symbols.sort();
}

/// The layout of a table's header.
struct Layout {
    /// Size of an address and of an offset in the function table, in bytes.
    word: usize,
    count: u64,
    /// Base address of function addresses.
    text: u64,
    /// Offsets of the names and of the function table.
    names: u64,
    functions: u64,
    /// Offset of a function's name in its description.
    name_at: u64,
}

/// The contents of a table.
#[derive(Debug, PartialEq)]
struct Entries {
    /// Addresses and names.
    all: Vec<(u64, String)>,
    /// End of the last function.
    end: u64,
    /// The version certainly passes arguments in registers.
    newest: bool,
}

fn entries(table: &[u8], text: u64) -> Option<Entries> {
    let pointer = usize::from(*table.get(7)?);
    if !matches!(pointer, 4 | 8) {
        return None;
    }
    let word = |n: usize| number(table, (8 + n * pointer) as u64, pointer);
    let header = |n| word(n);
    let (layout, newest) = match number(table, 0, 4)? {
        // Go 1.20 and 1.18: 4-byte offsets from the start of the code.
        0xffff_fff1 | 0xffff_fff0 => {
            let start = header(2)?;
            let text = if start == 0 { text } else { start };
            (Layout { word: 4, count: header(0)?, text, names: header(3)?, functions: header(7)?, name_at: 4 }, true)
        }
        // Go 1.16
        0xffff_fffa => {
            let functions = header(6)?;
            (Layout { word: pointer, count: header(0)?, text: 0, names: header(2)?, functions, name_at: pointer as u64 }, false)
        }
        // Go 1.2: offsets from the start of the table.
        0xffff_fffb => {
            let functions = 8 + pointer as u64;
            (Layout { word: pointer, count: header(0)?, text: 0, names: 0, functions, name_at: pointer as u64 }, false)
        }
        _ => return None,
    };
    let from = if layout.names == 0 { 0 } else { layout.functions };
    let mut all = Vec::new();
    for n in 0..layout.count.min(table.len() as u64) {
        let at = layout.functions.checked_add(n.checked_mul(2 * layout.word as u64)?)?;
        let Some((addr, place)) = number(table, at, layout.word).zip(number(table, at.checked_add(layout.word as u64)?, layout.word))
        else {
            break;
        };
        let described = from.checked_add(place)?.checked_add(layout.name_at)?;
        let name = number(table, described, 4).and_then(|offset| text_at(table, layout.names.checked_add(offset)?));
        if let (Some(addr), Some(name)) = (addr.checked_add(layout.text), name) {
            all.push((addr, name));
        }
    }
    all.sort();
    let last = layout.count.checked_mul(2 * layout.word as u64).and_then(|offset| layout.functions.checked_add(offset));
    let end = last.and_then(|at| number(table, at, layout.word)).and_then(|end| end.checked_add(layout.text));
    Some(Entries { all, end: end.unwrap_or(0), newest })
}

/// Parses `go1.19.8` into (1, 19).
fn version(file: &object::File<'_>, data: &[u8], segments: &[Segment]) -> Option<(u32, u32)> {
    let section = file.section_by_name(".go.buildinfo")?;
    let info = section.data().ok()?;
    if !info.starts_with(b"\xff Go buildinf:") {
        return None;
    }
    let flags = *info.get(15)?;
    let text = if flags & 2 != 0 {
        // The version string starts here, after its length.
        let length = usize::from(*info.get(32)?);
        info.get(33..33 + length)?
    } else {
        let read = |addr: u64| number(data, offset(segments, addr)?, 8);
        let string = number(info, 16, 8)?;
        let start = offset(segments, read(string)?)? as usize;
        data.get(start..start.checked_add(read(string.checked_add(8)?)? as usize)?)?
    };
    let text = std::str::from_utf8(text).ok()?;
    let mut numbers = text.strip_prefix("go")?.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn number(bytes: &[u8], offset: u64, size: usize) -> Option<u64> {
    let offset = usize::try_from(offset).ok()?;
    let bytes = bytes.get(offset..offset.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte)))
}

fn text_at(bytes: &[u8], offset: u64) -> Option<String> {
    let rest = bytes.get(usize::try_from(offset).ok()?..)?;
    let end = memchr::memchr(0, rest)?;
    std::str::from_utf8(rest.get(..end)?).ok().filter(|name| !name.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(table: &mut Vec<u8>, n: u64, size: usize) {
        table.extend(&n.to_le_bytes()[..size]);
    }

    /// Makes a table of `main.a` at 0x1000 and `main.b` at 0x1040.
    fn table(magic: u32) -> Vec<u8> {
        let mut t = magic.to_le_bytes().to_vec();
        t.extend([0, 0, 1, 8]);
        let names = b"main.a\0main.b\0";
        let described = |t: &mut Vec<u8>, word| {
            for (addr, name) in [(0u64, 0u64), (0x40, 7)] {
                put(t, addr, word);
                put(t, name, 4);
            }
        };
        match magic {
            0xffff_fff1 | 0xffff_fff0 => {
                [2, 0, 0x1000, 72, 0, 0, 0, 86].iter().for_each(|n| put(&mut t, *n, 8));
                t.extend(names);
                for (addr, at) in [(0, 20), (0x40, 28)] {
                    put(&mut t, addr, 4);
                    put(&mut t, at, 4);
                }
                put(&mut t, 0x80, 4);
                described(&mut t, 4);
            }
            0xffff_fffa => {
                [2, 0, 64, 0, 0, 0, 78].iter().for_each(|n| put(&mut t, *n, 8));
                t.extend(names);
                for (addr, at) in [(0x1000, 40), (0x1040, 52)] {
                    put(&mut t, addr, 8);
                    put(&mut t, at, 8);
                }
                put(&mut t, 0x1080, 8);
                described(&mut t, 8);
            }
            _ => {
                put(&mut t, 2, 8);
                for (addr, at) in [(0x1000, 56), (0x1040, 68)] {
                    put(&mut t, addr, 8);
                    put(&mut t, at, 8);
                }
                put(&mut t, 0x1080, 8);
                for name in [80, 87] {
                    put(&mut t, 0, 8);
                    put(&mut t, name, 4);
                }
                t.extend(names);
            }
        }
        t
    }

    #[test]
    fn every_form_of_the_table() {
        let expected = vec![(0x1000, "main.a".to_owned()), (0x1040, "main.b".to_owned())];
        for (magic, newest) in [(0xffff_fff1, true), (0xffff_fff0, true), (0xffff_fffa, false), (0xffff_fffb, false)] {
            let table = table(magic);
            assert_eq!(entries(&table, 0), Some(Entries { all: expected.clone(), end: 0x1080, newest }), "{magic:x}");
            for end in 0..table.len() {
                entries(&table[..end], 0);
            }
            for at in 0..table.len() {
                let mut bad = table.clone();
                bad[at] = 0xff;
                entries(&bad, 0);
            }
        }
        assert_eq!(entries(b"no table", 0), None);
    }
}
