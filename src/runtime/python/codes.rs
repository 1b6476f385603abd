//! Code objects that programs have sent: names and line tables by ID. They belong to no run: an ID is a hash of the contents.

use std::collections::HashMap;
use std::mem::offset_of;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::lines;
use crate::codegen::artifact::{CODE_RECORD, Code};
use crate::value::Frame;

/// What is known of a code object.
struct CodeObject {
    minor: u32,
    first: u32,
    name: String,
    file: String,
    /// The line table, or a part of it.
    table: Vec<u8>,
    /// The size of the table in bytes, up to [`MAX_TABLE`].
    table_bytes: usize,
}

/// All code objects, and their size in bytes.
#[derive(Default)]
struct Codes {
    known: HashMap<u64, CodeObject>,
    bytes: usize,
}

/// Maximum number of bytes that are kept: half a million functions.
const MAX_BYTES: usize = 256 << 20;
/// Maximum size of a line table in bytes. The rest of a larger table is missing.
const MAX_TABLE: usize = 64 << 10;

static CODES: LazyLock<Mutex<Codes>> = LazyLock::new(Mutex::default);

fn codes() -> MutexGuard<'static, Codes> {
    CODES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Is the record a piece of a code object?
pub(in crate::runtime) fn is_code(record: &[u8]) -> bool {
    record.starts_with(&CODE_RECORD.to_ne_bytes())
}

/// Keeps a piece of a code object.
pub(in crate::runtime) fn add_record(record: &[u8]) {
    let word = |offset: usize| record.get(offset..offset + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes);
    let Some(id) = record.get(offset_of!(Code, id)..).and_then(|b| b.first_chunk()).map(|b| u64::from_ne_bytes(*b)) else { return };
    let piece = record.get(offset_of!(Code, table)..).unwrap_or_default();
    let piece_at = word(offset_of!(Code, piece_at)) as usize;
    let mut codes = codes();
    if codes.bytes > MAX_BYTES {
        return;
    }
    if let Some(known) = codes.known.get_mut(&id) {
        // another process may send the same piece
        if piece_at == known.table.len() && piece_at + piece.len() <= MAX_TABLE {
            known.table.extend_from_slice(piece);
            codes.bytes += piece.len();
        }
        return;
    }
    let text = |offset: usize, capacity: usize, bytes: usize, shape: usize| {
        let len = (word(bytes) as usize).min(capacity);
        text(record.get(offset..offset + len).unwrap_or_default(), word(shape))
    };
    let known = CodeObject {
        minor: word(offset_of!(Code, minor)),
        first: word(offset_of!(Code, line)),
        name: text(offset_of!(Code, name), Code::EMPTY.name.len(), offset_of!(Code, name_bytes), offset_of!(Code, name_shape)),
        file: text(offset_of!(Code, file), Code::EMPTY.file.len(), offset_of!(Code, file_bytes), offset_of!(Code, file_shape)),
        table: if piece_at == 0 { piece.to_vec() } else { Vec::new() },
        table_bytes: word(offset_of!(Code, table_bytes)) as usize,
    };
    codes.bytes += size_of::<(u64, CodeObject)>() + known.name.len() + known.file.len() + known.table.len();
    codes.known.insert(id, known);
}

/// Characters of one, two or four bytes. Those of one byte are Latin-1.
fn text(bytes: &[u8], shape: u32) -> String {
    let mut text: String = match shape & !Code::CUT {
        2 => char::decode_utf16(bytes.chunks_exact(2).filter_map(|c| Some(u16::from_ne_bytes(c.try_into().ok()?))))
            .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect(),
        4 => bytes
            .chunks_exact(4)
            .filter_map(|c| Some(u32::from_ne_bytes(c.try_into().ok()?)))
            .map(|c| char::from_u32(c).unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect(),
        _ => bytes.iter().map(|b| char::from(*b)).collect(),
    };
    if shape & Code::CUT != 0 {
        text.push_str("...");
    }
    text
}

/// The frame of a code object at the offset of an instruction, in bytes.
pub(in crate::runtime) fn frame(id: u64, offset: u32) -> Option<Frame> {
    let codes = codes();
    let known = codes.known.get(&id)?;
    // an offset before the first instruction
    let whole = known.table.len() >= known.table_bytes && known.table_bytes < MAX_TABLE;
    let line = match offset {
        0..=0x7fff_ffff => lines::line(known.minor, (&known.table, whole), known.first, offset),
        _ => Some(known.first),
    };
    let source = Some((known.file.clone(), line.unwrap_or(0)));
    Some(Frame { symbol: Some(known.name.clone()), source, interpreted: true, ..Frame::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_each_width() {
        assert_eq!(text(b"f\xfcr", 1), "f\u{fc}r");
        assert_eq!(text(&[0x42, 0x04, 0x00, 0xd8], 2), "\u{442}\u{fffd}");
        assert_eq!(text(&0x1f600u32.to_ne_bytes(), 4 | Code::CUT), "\u{1f600}...");
        assert_eq!(text(&u32::MAX.to_ne_bytes(), 4), "\u{fffd}");
    }

    #[test]
    fn records_of_any_length() {
        let mut record = vec![0xff; size_of::<Code>()];
        for len in 0..record.len() {
            add_record(&record[..len]);
        }
        record[8..16].copy_from_slice(&7u64.to_ne_bytes());
        record[36..40].fill(0);
        add_record(&record);
        let frame = frame(7, 0).unwrap();
        assert!(frame.interpreted && frame.symbol.is_some_and(|name| name.ends_with("...")));
    }
}
