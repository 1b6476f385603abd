//! Line numbers of Python code: from the offset of an instruction, by the tables of CPython (Objects/lnotab_notes.txt, from 3.11
//! on Objects/locations.md, from 3.13 on InternalDocs/code_objects.md).

/// The line of the instruction at `offset`, in bytes, of a code object of Python 3.`minor`; none if it has none, or the table
/// ends before it. `whole`: nothing is missing at the end of the table.
pub(super) fn line(minor: u32, (table, whole): (&[u8], bool), first: u32, offset: u32) -> Option<u32> {
    let found = match minor {
        ..=9 => by_address((table, whole), first, offset),
        10 => by_range(table, first, offset),
        _ => by_location(table, first, offset),
    };
    found.and_then(|line| u32::try_from(line).ok())
}

/// `co_lnotab`: pairs of the distance in bytes and the signed distance in lines to the next line. What follows the last pair belongs
/// to the last line.
fn by_address((table, whole): (&[u8], bool), first: u32, offset: u32) -> Option<i64> {
    let (mut line, mut at) = (i64::from(first), 0u64);
    for pair in table.chunks_exact(2) {
        at += u64::from(*pair.first()?);
        if at > u64::from(offset) {
            return Some(line);
        }
        line += i64::from(*pair.get(1)? as i8);
    }
    whole.then_some(line)
}

/// `co_linetable` of 3.10: pairs of the length of a range in bytes and the signed distance to its line, or -128 for no line.
fn by_range(table: &[u8], first: u32, offset: u32) -> Option<i64> {
    const NO_LINE: i8 = -128;
    let (mut line, mut end) = (i64::from(first), 0u64);
    for pair in table.chunks_exact(2) {
        let delta = *pair.get(1)? as i8;
        end += u64::from(*pair.first()?);
        if delta != NO_LINE {
            line += i64::from(delta);
        }
        if u64::from(offset) < end {
            return (delta != NO_LINE).then_some(line);
        }
    }
    None
}

/// `co_linetable` of 3.11 and newer: entries consist of a byte (highest bit set, a kind of four bits, and the length in
/// code units minus one) and data that depend on the kind.
fn by_location(table: &[u8], first: u32, offset: u32) -> Option<i64> {
    /// Bytes of a code unit.
    const UNIT: u64 = 2;
    let (mut line, mut end) = (i64::from(first), 0u64);
    let mut rest = table;
    while let Some((head, after)) = rest.split_first() {
        let (kind, units) = (head >> 3 & 15, u64::from(head & 7) + 1);
        let mut values = after;
        let delta = match kind {
            // long form, and without columns
            13 | 14 => Some(signed(varint(&mut values))),
            10..=12 => Some(i64::from(kind) - 10),
            15 => None,
            _ => Some(0),
        };
        line = line.saturating_add(delta.unwrap_or(0));
        end += units * UNIT;
        if u64::from(offset) < end {
            return delta.map(|_| line);
        }
        let next = after.iter().position(|b| b & 0x80 != 0)?;
        rest = after.get(next..)?;
    }
    None
}

/// Six bits a byte, the lowest first; the seventh says that there are more.
fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    while let Some((byte, rest)) = bytes.split_first() {
        *bytes = rest;
        if shift < 60 {
            value |= u64::from(byte & 63) << shift;
        }
        shift += 6;
        if byte & 64 == 0 {
            break;
        }
    }
    value
}

/// The lowest bit is the sign.
fn signed(value: u64) -> i64 {
    let size = (value >> 1) as i64;
    if value & 1 == 0 { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn three_formats() {
        // lnotab: 6 bytes on, 3 lines on; 2 bytes on, 1 line back
        let old = [6, 3, 2, 0xff];
        assert_eq!([0, 5, 6, 7, 8, 99].map(|at| line(9, (&old, true), 10, at)), [10, 10, 13, 13, 12, 12].map(Some));
        assert_eq!([5, 6, 7, 8].map(|at| line(9, (&old, false), 10, at)), [Some(10), Some(13), Some(13), None]);
        // 3.10: 4 bytes of line 11, 2 without a line, 2 of line 10
        let ranges = [4, 1, 2, 0x80, 2, 0xff];
        assert_eq!([0, 3, 4, 6, 8].map(|at| line(10, (&ranges, true), 10, at)), [Some(11), Some(11), None, Some(10), None]);
        // 3.11: one unit without columns two lines on; two units, one line on; one unit without a line; one unit 65 lines back
        let locations = [0x80 | 13 << 3, 4, 0x80 | 11 << 3 | 1, 0, 1, 0x80 | 15 << 3, 0x80 | 13 << 3, 0x40 | 3, 2];
        assert_eq!(line(11, (&locations, true), 10, 0), Some(12));
        assert_eq!(line(12, (&locations, true), 10, 2), Some(13));
        assert_eq!(line(13, (&locations, true), 10, 4), Some(13));
        assert_eq!(line(14, (&locations, true), 10, 6), None);
        assert_eq!(line(14, (&locations, true), 100, 8), Some(103 - 65));
        assert_eq!(line(14, (&locations, true), 10, 10), None);
    }

    #[test]
    fn accepts_any_bytes() {
        let mut state = 1u64;
        for len in 0..600usize {
            let table: Vec<u8> = (0..len)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (state >> 56) as u8
                })
                .collect();
            for minor in 8..15 {
                for offset in [0, 1, 100, u32::MAX] {
                    let _ = line(minor, (&table, true), u32::MAX, offset);
                }
            }
        }
    }
}
