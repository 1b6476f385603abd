//! Go programs: their own table of functions, and their calling convention.
//!
//! The Go runtime unwinds stacks by the table (`.gopclntab`), so stripping does not remove it. Its formats: Go's
//! `src/debug/gosym/pclntab.go`; flags of functions: `src/internal/abi/symtab.go`. The version: `src/debug/buildinfo/buildinfo.go`.
//! Since Go 1.17, arguments are in registers, in Go's own order (`src/cmd/compile/abi-internal.md`, "amd64 architecture"); before,
//! and in assembly functions, they are on the stack.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use object::{Object, ObjectSection};

use crate::system::binary::file::{Segment, offset};
use crate::system::{Abi, Function};

/// Returns Go's functions by address, or `None` if the file is not a Go binary. Names are the linker's: `main.main`.
pub(in crate::system) fn functions(data: &[u8], segments: &[Segment]) -> Option<Vec<Function>> {
    let file = object::File::parse(data).ok()?;
    let section = section_of_table(&file)?;
    let table = section.data().ok()?;
    let Entries { all: entries, end, newest } = entries(table, start_of_code(&file, &section, table))?;
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
    section_of_table(&file).is_some()
}

/// Go's table. In position-independent programs, the linker adds to its name.
fn section_of_table<'data, 'file>(file: &'file object::File<'data>) -> Option<object::Section<'data, 'file>> {
    file.sections().find(|s| s.name().is_ok_and(|n| n.ends_with(".gopclntab")))
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

/// How a function uses the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::system) enum StackUse {
    /// It stays on its stack.
    Plain,
    /// Nothing called it.
    Outermost,
    /// It changes to another stack.
    Switches,
    /// Handlers of signals return to it.
    Signals,
}

/// Functions in assembly whose use of the stack older versions of Go do not record, and those of signals. The runtime's own
/// tracebacks end at `sigtramp`, but it returns to the frame of the signal.
const STACK_USES: &[(&str, StackUse)] = &[
    ("runtime.asmcgocall", StackUse::Switches),
    ("runtime.cgocallback", StackUse::Switches),
    ("runtime.cgocallback_gofunc", StackUse::Switches),
    ("runtime.goexit", StackUse::Outermost),
    ("runtime.gogo", StackUse::Switches),
    ("runtime.mcall", StackUse::Switches),
    ("runtime.morestack", StackUse::Switches),
    ("runtime.mstart", StackUse::Outermost),
    ("runtime.nanotime1", StackUse::Switches),
    ("runtime.rt0_go", StackUse::Outermost),
    ("runtime.sigreturn", StackUse::Signals),
    ("runtime.sigreturn__sigaction", StackUse::Signals),
    ("runtime.sigtramp", StackUse::Plain),
    ("runtime.systemstack", StackUse::Switches),
    ("runtime.walltime", StackUse::Switches),
    ("runtime.walltime1", StackUse::Switches),
];

/// A function, and how far the stack pointer is below the return address in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::system) struct Depths {
    pub(in crate::system) function: Range<u64>,
    pub(in crate::system) stack: StackUse,
    /// Ends of the parts, and depths in bytes.
    pub(in crate::system) parts: Vec<(u64, i32)>,
}

/// Calls `each` for the functions of a Go binary in order of their addresses.
pub(in crate::system) fn depths(data: &[u8], each: impl FnMut(Depths)) {
    let Ok(file) = object::File::parse(data) else { return };
    let Some(section) = section_of_table(&file) else { return };
    let Ok(table) = section.data() else { return };
    depths_of(table, start_of_code(&file, &section, table), each);
}

fn depths_of(table: &[u8], text: u64, mut each: impl FnMut(Depths)) -> Option<()> {
    let records = records(table, text)?;
    let layout = &records.layout;
    let ends = records.all.iter().map(|r| r.0).skip(1).chain([records.end]);
    for ((start, record), end) in records.all.iter().zip(ends) {
        let field = |at: u64, size| number(table, record.checked_add(at)?, size);
        let known = name_of(table, layout, *record).and_then(|name| STACK_USES.iter().find(|(known, _)| *known == name));
        let stack = match layout.flags_at.and_then(|at| field(at, 1)) {
            _ if known.is_some_and(|(_, stack)| matches!(stack, StackUse::Signals | StackUse::Plain)) => {
                known.map_or(StackUse::Plain, |(_, stack)| *stack)
            }
            Some(flags) if flags & TOP_FRAME != 0 => StackUse::Outermost,
            Some(flags) if flags & SP_WRITE != 0 => StackUse::Switches,
            _ => known.map_or(StackUse::Plain, |(_, stack)| *stack),
        };
        // 0: the function has no such list, as one of C
        let list = field(layout.depths_at(), 4).filter(|offset| *offset != 0).and_then(|offset| layout.lists.checked_add(offset));
        let Some(list) = list else { continue };
        let parts = parts(table, list, layout.quantum, *start..end);
        each(Depths { function: *start..end, stack, parts });
    }
    Some(())
}

/// Bits of a function's flags.
const TOP_FRAME: u64 = 1;
const SP_WRITE: u64 = 2;

/// Decodes a list of depths. Each part has at least one byte, so a forged list is no longer than the function.
fn parts(table: &[u8], list: u64, quantum: u64, function: Range<u64>) -> Vec<(u64, i32)> {
    let mut rest = usize::try_from(list).ok().and_then(|at| table.get(at..)).unwrap_or_default();
    let (mut at, mut depth) = (function.start, -1i32);
    let mut all = Vec::new();
    while at < function.end {
        let Some(change) = varint(&mut rest).filter(|change| *change != 0 || all.is_empty()) else { break };
        let Some(size) = varint(&mut rest).filter(|size| *size != 0) else { break };
        let change = (change >> 1).cast_signed() ^ -(change & 1).cast_signed();
        let Some(next) = depth.checked_add(change) else { break };
        depth = next;
        at = at.saturating_add(u64::from(size).saturating_mul(quantum)).min(function.end);
        all.push((at, depth));
    }
    all
}

/// Reads a number whose bytes have seven bits each, the lowest first.
fn varint(rest: &mut &[u8]) -> Option<u32> {
    const MAX_SIZE: u32 = 5;
    let mut n = 0;
    for place in 0..MAX_SIZE {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        n |= u32::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}

/// The address of the first function, if the table does not have it. In a position-independent program, a relocation does.
fn start_of_code(file: &object::File<'_>, section: &object::Section<'_, '_>, table: &[u8]) -> u64 {
    let text = || file.section_by_name(".text").map_or(0, |s| s.address());
    let at = 8 + 2 * u64::from(table.get(7).copied().unwrap_or(0));
    if number(table, 0, 4).is_none_or(|magic| !matches!(magic, GO_1_20 | GO_1_18)) || number(table, at, 8) != Some(0) {
        return text();
    }
    let place = section.address().wrapping_add(at);
    let relocation = file.dynamic_relocations().into_iter().flatten().find(|(offset, _)| *offset == place);
    relocation.map_or_else(text, |(_, relocation)| relocation.addend().cast_unsigned())
}

const GO_1_20: u64 = 0xffff_fff1;
const GO_1_18: u64 = 0xffff_fff0;
const GO_1_16: u64 = 0xffff_fffa;
const GO_1_2: u64 = 0xffff_fffb;

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
    /// Offset of its flags there, since Go 1.17.
    flags_at: Option<u64>,
    /// Offset of the lists of values by address.
    lists: u64,
    /// Unit of sizes of code in these lists, in bytes.
    quantum: u64,
}

impl Layout {
    /// Offset of a function's list of depths in its description.
    fn depths_at(&self) -> u64 {
        self.name_at + 12
    }
}

/// The functions of a table.
struct Records {
    layout: Layout,
    /// Addresses and offsets of descriptions, in order.
    all: Vec<(u64, u64)>,
    /// End of the last function.
    end: u64,
    /// The version certainly passes arguments in registers.
    newest: bool,
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
    let Records { layout, all, end, newest } = records(table, text)?;
    let name = |record| name_of(table, &layout, record).map(str::to_owned);
    let mut all: Vec<(u64, String)> = all.into_iter().filter_map(|(addr, record)| Some((addr, name(record)?))).collect();
    all.sort();
    Some(Entries { all, end, newest })
}

fn name_of<'d>(table: &'d [u8], layout: &Layout, record: u64) -> Option<&'d str> {
    let offset = number(table, record.checked_add(layout.name_at)?, 4)?;
    text_at(table, layout.names.checked_add(offset)?)
}

fn records(table: &[u8], text: u64) -> Option<Records> {
    let pointer = usize::from(*table.get(7)?);
    if !matches!(pointer, 4 | 8) {
        return None;
    }
    let size = pointer as u64;
    let quantum = u64::from(*table.get(6)?);
    let header = |n: usize| number(table, (8 + n * pointer) as u64, pointer);
    let (layout, newest) = match number(table, 0, 4)? {
        // 4-byte offsets from the start of the code
        magic @ (GO_1_20 | GO_1_18) => {
            let start = header(2)?;
            let layout = Layout {
                word: 4,
                count: header(0)?,
                text: if start == 0 { text } else { start },
                names: header(3)?,
                functions: header(7)?,
                name_at: 4,
                // Go 1.20 added the line where the function starts
                flags_at: Some(if magic == GO_1_20 { 41 } else { 37 }),
                lists: header(6)?,
                quantum,
            };
            (layout, true)
        }
        GO_1_16 => {
            let layout = Layout {
                word: pointer,
                count: header(0)?,
                text: 0,
                names: header(2)?,
                functions: header(6)?,
                name_at: size,
                flags_at: Some(size + 33),
                lists: header(5)?,
                quantum,
            };
            (layout, false)
        }
        // offsets from the start of the table
        GO_1_2 => {
            let count = header(0)?;
            let (functions, name_at) = (8 + size, size);
            (Layout { word: pointer, count, text: 0, names: 0, functions, name_at, flags_at: None, lists: 0, quantum }, false)
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
        let described = from.checked_add(place)?;
        described.checked_add(layout.name_at)?;
        if let Some(addr) = addr.checked_add(layout.text) {
            all.push((addr, described));
        }
    }
    all.sort_unstable();
    let last = layout.count.checked_mul(2 * layout.word as u64).and_then(|offset| layout.functions.checked_add(offset));
    let end = last.and_then(|at| number(table, at, layout.word)).and_then(|end| end.checked_add(layout.text));
    Some(Records { layout, all, end: end.unwrap_or(0), newest })
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

fn text_at(bytes: &[u8], offset: u64) -> Option<&str> {
    let rest = bytes.get(usize::try_from(offset).ok()?..)?;
    let end = memchr::memchr(0, rest)?;
    std::str::from_utf8(rest.get(..end)?).ok().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(table: &mut Vec<u8>, n: u64, size: usize) {
        table.extend(&n.to_le_bytes()[..size]);
    }

    /// Bytes of a function's description in tests.
    const DESCRIPTION: usize = 44;
    /// Depths of 0 for one byte, 24 for 15, and 0 for 4.
    const LIST: [u8; 8] = [0, 2, 1, 48, 15, 47, 4, 0];

    /// Makes a table of `main.a` at 0x1000 and `main.b`, which changes stacks, at 0x1040.
    fn table(magic: u64) -> Vec<u8> {
        let mut t = magic.to_le_bytes()[..4].to_vec();
        t.extend([0, 0, 1, 8]);
        let (words, word, flags_at) = match magic {
            GO_1_20 => (8, 4, 41),
            GO_1_18 => (8, 4, 37),
            GO_1_16 => (7, 8, 41),
            _ => (1, 8, 0),
        };
        let (names, lists) = (8 + 8 * words, 8 + 8 * words + 14);
        let functions = lists + LIST.len();
        let (base, text) = if magic == GO_1_2 { (0, 0x1000) } else { (functions, if word == 4 { 0 } else { 0x1000 }) };
        match magic {
            GO_1_20 | GO_1_18 => [2, 0, 0x1000, names, 0, 0, lists, functions].iter().for_each(|n| put(&mut t, *n as u64, 8)),
            GO_1_16 => [2, 0, names, 0, 0, lists, functions].iter().for_each(|n| put(&mut t, *n as u64, 8)),
            _ => put(&mut t, 2, 8),
        }
        let (name, list) = if magic == GO_1_2 { (8 + 8 + 40, 8 + 8 + 40 + 14) } else { (0, 0) };
        if magic != GO_1_2 {
            t.extend(b"main.a\0main.b\0");
            t.extend(LIST);
        }
        let described = if magic == GO_1_2 { name + 14 + LIST.len() } else { functions + 5 * word - base };
        for (addr, at) in [(text, described), (text + 0x40, described + DESCRIPTION)] {
            put(&mut t, addr as u64, word);
            put(&mut t, at as u64, word);
        }
        put(&mut t, text as u64 + 0x80, word);
        if magic == GO_1_2 {
            t.extend(b"main.a\0main.b\0");
            t.extend(LIST);
        }
        for (n, flags) in [(0, 0), (7, SP_WRITE as u8)] {
            let mut description = vec![0; word];
            [name + n, 0, 0, list + 1].iter().for_each(|n| put(&mut description, *n as u64, 4));
            description.resize(DESCRIPTION, 0);
            if flags_at > 0 {
                description[flags_at] = flags;
            }
            t.extend(description);
        }
        t
    }

    #[test]
    fn every_form_of_the_table() {
        let expected = vec![(0x1000, "main.a".to_owned()), (0x1040, "main.b".to_owned())];
        for (magic, newest) in [(GO_1_20, true), (GO_1_18, true), (GO_1_16, false), (GO_1_2, false)] {
            let table = table(magic);
            assert_eq!(entries(&table, 0), Some(Entries { all: expected.clone(), end: 0x1080, newest }), "{magic:x}");
            let mut found = Vec::new();
            depths_of(&table, 0, |f| found.push(f));
            let depths = |function: Range<u64>, stack| {
                let at = function.start;
                Depths { function, stack, parts: vec![(at + 1, 0), (at + 16, 24), (at + 20, 0)] }
            };
            // the oldest form has no flags
            let second = if magic == GO_1_2 { StackUse::Plain } else { StackUse::Switches };
            assert_eq!(found, [depths(0x1000..0x1040, StackUse::Plain), depths(0x1040..0x1080, second)], "{magic:x}");
            let mut parts = 0;
            for end in 0..table.len() {
                entries(&table[..end], 0);
                depths_of(&table[..end], 0, |f| parts = parts.max(f.parts.len()));
            }
            for at in 0..table.len() {
                let mut bad = table.clone();
                bad[at] = 0xff;
                entries(&bad, 0);
                depths_of(&bad, 0, |f| parts = parts.max(f.parts.len()));
            }
            assert!(parts < table.len(), "{parts}");
        }
        assert_eq!(entries(b"no table", 0), None);
    }
}
