//! The symbol table in a kernel image (`scripts/kallsyms.c`, `kernel/kallsyms.c`), which this code finds by its shape.
//!
//! Names are sequences of one-byte tokens; a table has the text of each:
//!
//! - `token_table`: 256 NUL-terminated texts; `token_index`: the start of each, `u16`.
//! - `names`: for each symbol its length (since 6.1 two bytes from 128 upward) and its tokens; the first character is its type.
//! - `markers`: the start of every 256th name, `u32`; `num_syms`: eight bytes before the names, more recently four.
//! - addresses, in one of several forms: before `num_syms` (until 6.3) or after `token_index`.
//!
//! Digits and letters stand for themselves, in order, so this code searches for their part of the token table. It finds
//! everything else relative to it, and accepts it only if it is consistent.

use super::image::{Image, Symbol};

/// Number of symbols for each marker.
const PER_MARKER: usize = 256;
/// Size of the names for one marker, in bytes: the shortest name has a length, a type and one letter.
const BYTES_PER_MARKER: std::ops::Range<usize> = PER_MARKER * 2..PER_MARKER * 1024;
/// Limit for the offset of a kernel's first function, in bytes.
const HEAD: u64 = 1 << 20;
/// Limit for the number of symbols: a kernel with all drivers built in has less than a million.
const MAX_SYMBOLS: usize = 8 << 20;
/// Limit for the distance between the names and the tokens, in bytes.
const MAX_TOKEN_DISTANCE: usize = 64 << 20;

/// Returns all symbols in the table's order, which is that of their addresses; `None` if there is no such table.
pub(super) fn decode(image: &Image<'_>) -> Option<Vec<Symbol>> {
    image.sections().iter().filter(|s| !s.code).find_map(|section| in_section(&section.bytes, section.address, image))
}

fn in_section(bytes: &[u8], at_address: u64, image: &Image<'_>) -> Option<Vec<Symbol>> {
    const DIGITS: &[u8] = b"\x000\x001\x002\x003\x004\x005\x006\x007\x008\x009\0";
    let mut tried = 0;
    for at in memchr::memmem::find_iter(bytes, DIGITS) {
        tried += 1;
        if let Some(tokens) = Tokens::around(bytes, at + 1)
            && let Some(names) = SymbolNames::before(bytes, &tokens)
            && let Some(addresses) = addresses(bytes, at_address, &tokens, &names, image)
        {
            return Some(symbols(&tokens, &names, &addresses));
        }
        if tried > 64 {
            break;
        }
    }
    None
}

struct Tokens<'a> {
    strings: Vec<&'a [u8]>,
    /// Start of the token table in the section, and end of the index after it.
    start: usize,
    end: usize,
}

impl<'a> Tokens<'a> {
    /// Finds the token table in which the digit 0 is at this offset.
    fn around(bytes: &'a [u8], zero: usize) -> Option<Self> {
        let mut at = zero;
        for _ in b'0'..=255 {
            at += memchr::memchr(0, bytes.get(at..at.checked_add(512)?.min(bytes.len()))?)? + 1;
        }
        // Aligned to eight bytes; to four on older kernels for other machines.
        let index_at = [8, 4].map(|align| at.next_multiple_of(align));
        index_at.into_iter().find_map(|index_at| Self::with_index(bytes, zero, index_at))
    }

    fn with_index(bytes: &'a [u8], zero: usize, index_at: usize) -> Option<Self> {
        let end = index_at.checked_add(512)?;
        let index: Vec<usize> =
            bytes.get(index_at..end)?.chunks_exact(2).filter_map(|c| Some(usize::from(u16::from_le_bytes(*c.first_chunk()?)))).collect();
        let start = zero.checked_sub(*index.get(usize::from(b'0'))?)?;
        let mut texts = Vec::with_capacity(256);
        let mut pos = 0;
        for from in index {
            if from != pos {
                return None;
            }
            let text = bytes.get(start + from..index_at)?;
            let text = text.get(..memchr::memchr(0, text)?)?;
            pos += text.len() + 1;
            texts.push(text);
        }
        let itself = |c: u8| texts.get(usize::from(c)).is_some_and(|t| *t == [c]);
        (b'0'..=b'9').all(itself).then_some(Self { strings: texts, start, end })
    }

    /// The type at the start of a name; 0 if it has none.
    fn kind(&self, name: &[u8]) -> u8 {
        let texts = name.iter().filter_map(|token| self.strings.get(usize::from(*token)));
        texts.flat_map(|text| text.first()).next().copied().unwrap_or(0)
    }
}

struct SymbolNames<'a> {
    /// The tokens of each name.
    names: Vec<&'a [u8]>,
    /// Start of the names in the section.
    start: usize,
}

impl<'a> SymbolNames<'a> {
    /// Finds the names before the tokens: the markers are somewhere between, right after the names.
    fn before(bytes: &'a [u8], tokens: &Tokens<'_>) -> Option<Self> {
        let mut at = tokens.start & !3;
        let last = tokens.start.saturating_sub(MAX_TOKEN_DISTANCE);
        let mut tried = 0;
        while at >= last + 4 {
            at -= 4;
            if word(bytes, at) == Some(0) && looks_like_markers(bytes, at, tokens.start) {
                tried += 1;
                if let Some(found) = Self::with_markers(bytes, at, tokens.start) {
                    return Some(found);
                }
                if tried > 64 {
                    break;
                }
            }
        }
        None
    }

    fn with_markers(bytes: &'a [u8], markers_at: usize, end: usize) -> Option<Self> {
        let table = bytes.get(markers_at..end)?.chunks_exact(4);
        let table = table.filter_map(|c| Some(u32::from_le_bytes(*c.first_chunk()?) as usize));
        let mut markers: Vec<usize> = Vec::new();
        for marker in table {
            if markers.last().is_some_and(|last| !BYTES_PER_MARKER.contains(&marker.wrapping_sub(*last))) {
                break;
            }
            markers.push(marker);
        }
        // The names end at most seven bytes before the markers. The last marker stands for at most 256 names.
        let before_last = markers.iter().rev().nth(1).copied().unwrap_or(0);
        let latest = markers_at.checked_sub(before_last)?;
        let earliest = latest.saturating_sub(2 * BYTES_PER_MARKER.end);
        let mut start = latest & !3;
        while start >= earliest + 8 {
            for number_at in [start - 8, start - 4] {
                let count = word(bytes, number_at)? as usize;
                // Data after the markers may look like more markers.
                if count > 0 && count <= MAX_SYMBOLS && count.div_ceil(PER_MARKER) <= markers.len() {
                    let found = Self::at(bytes.get(..markers_at)?, start, count, &markers);
                    if found.is_some() {
                        return found;
                    }
                }
            }
            start -= 4;
        }
        None
    }

    /// Reads names that must end at the end of `bytes`.
    fn at(bytes: &'a [u8], start: usize, count: usize, markers: &[usize]) -> Option<Self> {
        let mut names = Vec::with_capacity(count);
        let mut at = start;
        for n in 0..count {
            if n % PER_MARKER == 0 && markers.get(n / PER_MARKER) != Some(&(at - start)) {
                return None;
            }
            let mut length = usize::from(*bytes.get(at)?);
            at += 1;
            if length & 0x80 != 0 {
                length = (length & 0x7f) | usize::from(*bytes.get(at)?) << 7;
                at += 1;
            }
            names.push(bytes.get(at..at.checked_add(length)?)?);
            at += length;
        }
        (bytes.len() - at < 8).then_some(Self { names, start })
    }
}

/// A table of markers has at least eight, or all that fit.
fn looks_like_markers(bytes: &[u8], offset: usize, end: usize) -> bool {
    let mut before = 0;
    for n in 1..8usize {
        let here = offset + n * 4;
        if here + 8 > end {
            // Padding at the end of a short table.
            return true;
        }
        let Some(marker) = word(bytes, here) else { return false };
        let marker = marker as usize;
        if !BYTES_PER_MARKER.contains(&marker.wrapping_sub(before)) {
            return false;
        }
        before = marker;
    }
    true
}

/// Finds the addresses. They are in ascending order, except those of per-CPU data, which come first or last. So a form is right
/// if its addresses are in this order and code is in sections of code.
fn addresses(bytes: &[u8], at_address: u64, tokens: &Tokens<'_>, names: &SymbolNames<'_>, image: &Image<'_>) -> Option<Vec<u64>> {
    let count = names.names.len();
    let number_at = names.start.checked_sub(8)?;
    let table = |from: usize, each: usize| bytes.get(from..from.checked_add(count.checked_mul(each)?)?);
    let padded = (count * 4).next_multiple_of(8);
    let kinds: Vec<u8> = names.names.iter().map(|name| tokens.kind(name)).collect();
    let right = |all: &Vec<u64>| all.len() == count && is_plausible(all, &kinds, image);
    let text = image.sections().iter().find(|s| s.code).map(|s| s.address);
    // After the tokens: offsets relative to their own place, to the end of the table, or to the kernel's first address.
    for after in [tokens.end, tokens.end.next_multiple_of(8)] {
        let Some(offsets) = table(after, 4) else { continue };
        let bases = [long(bytes, after + padded), text].into_iter().flatten().filter(|b| *b >> 63 == 1);
        let forms = std::iter::once(from_itself(offsets, at_address.wrapping_add(after as u64)));
        let mut forms = forms.chain(bases.flat_map(|base| relative(offsets, base))).chain(table(after, 8).map(absolute));
        if let Some(found) = forms.find(right) {
            return Some(found);
        }
    }
    // Before the number of symbols.
    let base = number_at.checked_sub(8).and_then(|at| long(bytes, at)).filter(|b| *b >> 63 == 1);
    let offsets = number_at.checked_sub(8 + padded).and_then(|from| table(from, 4));
    let relative = base.zip(offsets).into_iter().flat_map(|(base, offsets)| relative(offsets, base));
    let absolute = number_at.checked_sub(count * 8).and_then(|from| table(from, 8)).map(absolute);
    relative.chain(absolute).find(right)
}

/// Addresses relative to the place of each entry.
fn from_itself(offsets: &[u8], at: u64) -> Vec<u64> {
    let entries = offsets.chunks_exact(4).filter_map(|c| Some(i32::from_le_bytes(*c.first_chunk()?)));
    (at..).step_by(4).zip(entries).map(|(at, offset)| at.wrapping_add_signed(offset.into())).collect()
}

/// Addresses by both interpretations of a number below 2^31: an offset, or (until 6.14, with per-CPU data at 0) an address.
fn relative(offsets: &[u8], base: u64) -> [Vec<u64>; 2] {
    let all = || offsets.chunks_exact(4).filter_map(|c| Some(u32::from_le_bytes(*c.first_chunk()?)));
    let signed = |o: u32| {
        let o = o.cast_signed();
        if o >= 0 { o as u64 } else { base.wrapping_sub(1).wrapping_add_signed(-i64::from(o)) }
    };
    [all().map(signed).collect(), all().map(|o| base.wrapping_add(u64::from(o))).collect()]
}

fn absolute(table: &[u8]) -> Vec<u64> {
    super::image::pointers(table).collect()
}

/// Are the addresses nearly in order, and is code in sections of code?
fn is_plausible(all: &[u64], kinds: &[u8], image: &Image<'_>) -> bool {
    let back = all.iter().zip(all.iter().skip(1)).filter(|(a, b)| a > b).count();
    let code = || all.iter().zip(kinds).filter(|(_, kind)| matches!(kind, b't' | b'T'));
    let right = code().filter(|(address, _)| image.is_code(**address)).count();
    // Symbols of a section's end are outside of it. If all of the image may be code, the first symbol is near its start.
    let starts = |start: u64| all.first().is_some_and(|first| first.wrapping_sub(start) <= HEAD);
    back <= 2 && image.undivided().is_none_or(starts) && right > 0 && right * 4 >= code().count() * 3
}

fn symbols(tokens: &Tokens<'_>, names: &SymbolNames<'_>, addresses: &[u64]) -> Vec<Symbol> {
    let mut all = Vec::with_capacity(addresses.len());
    let mut text = Vec::new();
    for (name, address) in names.names.iter().zip(addresses) {
        text.clear();
        for token in *name {
            text.extend_from_slice(tokens.strings.get(usize::from(*token)).copied().unwrap_or_default());
        }
        if let Some((kind, name)) = text.split_first() {
            all.push(Symbol { name: String::from_utf8_lossy(name).into_owned(), address: *address, kind: *kind });
        }
    }
    all
}

fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn long(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}
