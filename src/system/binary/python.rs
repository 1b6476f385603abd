//! The CPython interpreter in a file: the location of its state, and the layout of its structures.
//!
//! Python 3.13 and newer describe themselves: `_PyRuntime` starts with `_Py_DebugOffsets` (Include/internal/pycore_runtime.h,
//! from 3.14 on pycore_debug_offsets.h), which is part of the file's initialized data. Of older versions, each minor version
//! has a row here. The rows were taken from the debug information of 3.8.18, 3.9.18, 3.10.13, 3.11.7 and 3.12.1; within a minor
//! version the structures do not change. `system/tests/python.rs` compares them with the debug information of the Pythons of the
//! machine. A build with assertions (Py_DEBUG) of these versions has the same layout.

use std::path::Path;

use object::{Object, ObjectSegment, ObjectSymbol};

use super::file::{Segment, map};

/// The function that runs Python code.
pub const LOOP: &str = "_PyEval_EvalFrameDefault";

/// Offsets of members in bytes, and other constants for the walk along the frames of a thread. BPF programs read this struct
/// from memory, so its layout is part of their interface.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Layout {
    /// The minor version: 11 is Python 3.11.
    pub minor: u32,
    /// `_PyRuntimeState.interpreters.head`
    pub interpreters: u32,
    /// `PyInterpreterState.next`
    pub interpreter_next: u32,
    /// `PyInterpreterState.threads.head`
    pub threads: u32,
    /// `PyThreadState.next`
    pub thread_next: u32,
    /// `PyThreadState.thread_id`: pthread_self(3)
    pub thread_id: u32,
    /// `PyThreadState.frame`, `.cframe` or `.current_frame`
    pub thread_frame: u32,
    /// If this member points to a `_PyCFrame`, the offset of `current_frame` in it plus one; otherwise 0.
    pub cframe_offset: u32,
    /// Size of the part of a frame that is read, in bytes.
    pub frame_size: u32,
    /// `f_back` or `previous`
    pub frame_previous: u32,
    /// `f_code` or `f_executable`
    pub frame_code: u32,
    /// `f_lasti`, `prev_instr` or `instr_ptr`
    pub frame_instruction: u32,
    /// `is_entry` or `owner`; see [`Layout::entry`].
    pub frame_entry: u32,
    /// How frames mark calls from C code into the interpreter's loop: [`ENTRY_PER_FRAME`], [`ENTRY_BYTE`] or [`ENTRY_FRAME`].
    pub entry: u32,
    /// Size of an instruction in bytes if a frame contains the index of its instruction; 0 if it contains the address.
    pub instruction_size: u32,
    /// Size of the part of a code object that is read, in bytes.
    pub code_size: u32,
    /// `PyObject.ob_type`
    pub object_type: u32,
    /// `co_firstlineno`
    pub code_line: u32,
    /// `co_filename`
    pub code_file: u32,
    /// `co_qualname`, or `co_name` before Python 3.11
    pub code_name: u32,
    /// `co_linetable`, or `co_lnotab` before Python 3.10
    pub code_table: u32,
    /// `co_code_adaptive`: the instructions
    pub code_start: u32,
    /// The 64-bit word with `co_version`, which is unique among the code objects of a process; 0 before Python 3.12.
    pub code_version: u32,
    /// `PyASCIIObject.length`; `hash` follows.
    pub text_length: u32,
    /// `PyASCIIObject.state`: two bits, then three for the width of a character, then `compact`, then `ascii`
    pub text_state: u32,
    /// Size of a `PyASCIIObject`, which the text follows.
    pub text_ascii: u32,
    /// Size of a `PyCompactUnicodeObject`
    pub text_compact: u32,
    /// `PyVarObject.ob_size` of bytes
    pub bytes_size: u32,
    /// `PyBytesObject.ob_sval`
    pub bytes_start: u32,
}

/// [`Layout::entry`]: every frame has its own call of the loop.
pub const ENTRY_PER_FRAME: u32 = 0;
/// The first frame of a call of the loop has a byte set.
pub const ENTRY_BYTE: u32 = 1;
/// A frame without code, whose `owner` is [`NO_CODE`] or more, separates two calls of the loop.
pub const ENTRY_FRAME: u32 = 2;
/// `FRAME_OWNED_BY_CSTACK` of 3.12 and 3.13, `FRAME_OWNED_BY_INTERPRETER` from 3.14 on
pub const NO_CODE: u32 = 3;

/// The members that are equal in all versions before Python 3.12.
const BASE: Layout = Layout {
    minor: 0,
    interpreters: 32,
    interpreter_next: 0,
    threads: 8,
    thread_next: 8,
    thread_id: 176,
    thread_frame: 24,
    cframe_offset: 0,
    frame_size: 108,
    frame_previous: 24,
    frame_code: 32,
    frame_instruction: 104,
    frame_entry: 0,
    entry: ENTRY_PER_FRAME,
    instruction_size: 1,
    code_size: 128,
    object_type: 8,
    code_line: 40,
    code_file: 104,
    code_name: 112,
    code_table: 120,
    code_start: 0,
    code_version: 0,
    text_length: 16,
    text_state: 32,
    text_ascii: 48,
    text_compact: 72,
    bytes_size: 16,
    bytes_start: 32,
};

/// The tables lack this offset. By Include/cpython/code.h, the member follows the other numbers in all versions from 3.12 to
/// 3.15.
const VERSION: u32 = 88;

/// Layouts of the versions that do not describe themselves.
pub const ROWS: &[Layout] = &[
    Layout { minor: 8, ..BASE },
    Layout { minor: 9, ..BASE },
    Layout { minor: 10, frame_instruction: 96, instruction_size: 2, ..BASE },
    Layout {
        minor: 11,
        interpreters: 40,
        threads: 16,
        thread_id: 152,
        thread_frame: 56,
        cframe_offset: 9,
        frame_size: 72,
        frame_previous: 48,
        frame_code: 32,
        frame_instruction: 56,
        frame_entry: 68,
        entry: ENTRY_BYTE,
        instruction_size: 0,
        code_size: 144,
        code_line: 72,
        code_file: 112,
        code_name: 128,
        code_table: 136,
        code_start: 184,
        ..BASE
    },
    Layout {
        minor: 12,
        interpreters: 40,
        threads: 72,
        thread_id: 136,
        thread_frame: 56,
        cframe_offset: 1,
        frame_size: 72,
        frame_previous: 8,
        frame_code: 0,
        frame_instruction: 56,
        frame_entry: 70,
        entry: ENTRY_FRAME,
        instruction_size: 0,
        code_size: 144,
        code_line: 68,
        code_file: 112,
        code_name: 128,
        code_table: 136,
        code_start: 192,
        code_version: VERSION,
        text_ascii: 40,
        text_compact: 56,
        ..BASE
    },
];

/// Indices of members of `_Py_DebugOffsets`, in 64-bit words.
struct Words {
    minor: u32,
    interpreters: usize,
    interpreter_next: usize,
    threads: usize,
    /// `thread_state`, whose members up to `current_frame` have the same order in all versions.
    thread: usize,
    /// `thread_state.thread_id`
    thread_id: usize,
    /// `interpreter_frame`, whose members have the same order in all versions.
    frame: usize,
    /// `code_object`, likewise.
    code: usize,
    object_type: usize,
    bytes: usize,
    text: usize,
}

/// Tables of the versions that describe themselves.
const DESCRIBED: &[Words] = &[
    Words {
        minor: 13,
        interpreters: 5,
        interpreter_next: 8,
        threads: 9,
        thread: 19,
        thread_id: 24,
        frame: 28,
        code: 34,
        object_type: 45,
        bytes: 64,
        text: 67,
    },
    Words {
        minor: 14,
        interpreters: 5,
        interpreter_next: 8,
        threads: 9,
        thread: 22,
        thread_id: 27,
        frame: 31,
        code: 39,
        object_type: 51,
        bytes: 74,
        text: 77,
    },
    Words {
        minor: 15,
        interpreters: 5,
        interpreter_next: 8,
        threads: 9,
        thread: 22,
        thread_id: 30,
        frame: 39,
        code: 47,
        object_type: 59,
        bytes: 86,
        text: 89,
    },
];

/// The Python interpreter in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Python {
    /// Virtual address of `_PyRuntime`.
    pub runtime: u64,
    /// Virtual address of `PyCode_Type`.
    pub code_type: u64,
    /// The layout of its structures, or the reason why it is unknown.
    pub layout: Result<Layout, Unsupported>,
    segments: Vec<Segment>,
    /// Virtual address of the loop.
    evaluates_at: u64,
}

impl Python {
    /// Returns the load bias of the file, if the part of it at `offset` is mapped as executable at `start`.
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        const PAGE: u64 = 4096;
        let holds = |s: &&Segment| s.executable && (s.offset / PAGE * PAGE..s.offset + s.size).contains(&offset);
        let segment = self.segments.iter().find(holds)?;
        Some(start.wrapping_sub(offset).wrapping_sub(segment.address.wrapping_sub(segment.offset)))
    }

    /// How far the virtual addresses of the loop's segment are from the offsets in the file.
    pub fn shift(&self) -> u64 {
        self.segments.iter().find(|s| s.holds(self.evaluates_at)).map_or(0, |s| s.address.wrapping_sub(s.offset))
    }
}

/// Why the frames of an interpreter cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// The version has no row.
    #[error("Python 3.{0} is not supported")]
    Version(u32),
    /// The build has no global interpreter lock.
    #[error("free-threaded builds of Python are not supported")]
    FreeThreaded,
    /// Neither the file's name nor its contents show the version.
    #[error("the version of this Python is unknown")]
    Unknown,
}

/// Can a file with this name contain an interpreter?
pub fn is_likely(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().to_ascii_lowercase().contains("python"))
}

/// Reads the interpreter in a file with this name. `None` if it does not contain one.
pub fn read_file(path: &Path, name: &Path) -> Option<Python> {
    let segments = super::elf::segments(path)?;
    from_data(&map(path).ok()?, name, segments)
}

fn from_data(data: &[u8], name: &Path, segments: Vec<Segment>) -> Option<Python> {
    let file = object::File::parse(data).ok()?;
    let address = |name: &str| {
        let found = |s: &object::Symbol| s.is_definition() && s.name() == Ok(name);
        file.dynamic_symbols().find(found).or_else(|| file.symbols().find(found)).map(|s| s.address())
    };
    let (runtime, code_type) = (address("_PyRuntime")?, address("PyCode_Type")?);
    let bytes = |addr: u64, len: usize| {
        let segment = file.segments().find(|s| addr >= s.address() && addr - s.address() < s.size())?;
        let at = usize::try_from(addr - segment.address()).ok()?;
        segment.data().ok()?.get(at..at.checked_add(len)?)
    };
    let described = bytes(runtime, TABLE).filter(|table| table.starts_with(COOKIE));
    let layout = match described {
        Some(table) => from_table(table),
        None => minor(address("Py_Version").and_then(|at| bytes(at, 8)), name, data)
            .ok_or(Unsupported::Unknown)
            .and_then(|minor| ROWS.iter().find(|row| row.minor == minor).copied().ok_or(Unsupported::Version(minor))),
    };
    let evaluates_at = address(LOOP).unwrap_or_default();
    Some(Python { runtime, code_type, layout, segments, evaluates_at })
}

/// `_Py_Debug_Cookie`
const COOKIE: &[u8] = b"xdebugpy";
/// Size of the part of `_Py_DebugOffsets` that is read, in bytes.
const TABLE: usize = 93 * 8;
/// No structure of an interpreter is larger, so larger offsets are treated as damage.
const MAX_OFFSET: u64 = 1 << 20;

/// Converts a table to a layout.
fn from_table(table: &[u8]) -> Result<Layout, Unsupported> {
    let word = |index: usize| table.get(index * 8..index * 8 + 8).and_then(|b| b.try_into().ok()).map_or(u64::MAX, u64::from_ne_bytes);
    let version = word(1);
    let minor = (version >> 16 & 0xff) as u32;
    let offset = DESCRIBED.iter().find(|row| row.minor == minor && version >> 24 == 3).ok_or(Unsupported::Version(minor))?;
    if word(2) != 0 {
        return Err(Unsupported::FreeThreaded);
    }
    let damaged = std::cell::Cell::new(false);
    let get = |index: usize| {
        let value = word(index);
        damaged.set(damaged.get() || value > MAX_OFFSET);
        value.min(MAX_OFFSET) as u32
    };
    let text_ascii = get(offset.text + 3);
    let layout = Layout {
        minor,
        interpreters: get(offset.interpreters),
        interpreter_next: get(offset.interpreter_next),
        threads: get(offset.threads),
        thread_next: get(offset.thread + 2),
        thread_id: get(offset.thread_id),
        thread_frame: get(offset.thread + 4),
        cframe_offset: 0,
        frame_size: get(offset.frame + 3).max(get(offset.frame + 1)).max(get(offset.frame + 2)).max(get(offset.frame + 5)) + 8,
        frame_previous: get(offset.frame + 1),
        frame_code: get(offset.frame + 2),
        frame_instruction: get(offset.frame + 3),
        frame_entry: get(offset.frame + 5),
        entry: ENTRY_FRAME,
        instruction_size: 0,
        code_size: get(offset.code + 4).max(get(offset.code + 1)).max(get(offset.code + 3)).max(get(offset.code + 5)) + 8,
        object_type: get(offset.object_type),
        code_line: get(offset.code + 5),
        code_file: get(offset.code + 1),
        code_name: get(offset.code + 3),
        code_table: get(offset.code + 4),
        code_start: get(offset.code + 9),
        code_version: VERSION,
        text_length: get(offset.text + 2),
        text_state: get(offset.text + 1),
        text_ascii,
        // `PyCompactUnicodeObject` adds `utf8_length` and `utf8`.
        text_compact: text_ascii + 16,
        bytes_size: get(offset.bytes + 1),
        bytes_start: get(offset.bytes + 2),
    };
    if damaged.get() { Err(Unsupported::Version(minor)) } else { Ok(layout) }
}

/// Determines the minor version of an interpreter without a table: by `Py_Version` (3.11 and newer), by the file's name, or by
/// the path of its modules in the binary.
fn minor(version: Option<&[u8]>, name: &Path, data: &[u8]) -> Option<u32> {
    let exact = version.and_then(|b| b.try_into().ok()).map(u64::from_ne_bytes).filter(|v| v >> 24 == 3);
    if let Some(version) = exact {
        return Some((version >> 16 & 0xff) as u32);
    }
    let number = |text: &[u8]| {
        let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
        std::str::from_utf8(text.get(..digits)?).ok()?.parse().ok()
    };
    let after = |text: &[u8], what: &[u8]| memchr::memmem::find_iter(text, what).find_map(|at| number(text.get(at + what.len()..)?));
    let name = name.file_name().map(|n| n.as_encoded_bytes()).unwrap_or_default();
    after(name, b"python3.").or_else(|| after(data, b"lib/python3."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(minor: u32, words: &[(usize, u64)]) -> Vec<u8> {
        let mut table = vec![0u64; TABLE / 8];
        table[0] = u64::from_ne_bytes(*b"xdebugpy");
        table[1] = u64::from(3 << 24 | minor << 16 | 0xf0);
        for (at, value) in words {
            table[*at] = *value;
        }
        table.into_iter().flat_map(u64::to_ne_bytes).collect()
    }

    #[test]
    fn validates_the_offset_table() {
        let layout = from_table(&table(13, &[(5, 632), (8, 7264), (32, 70)])).unwrap();
        assert_eq!((layout.interpreters, layout.interpreter_next), (632, 7264));
        assert_eq!(from_table(&table(13, &[(2, 1)])), Err(Unsupported::FreeThreaded));
        assert_eq!(from_table(&table(13, &[(5, u64::MAX)])), Err(Unsupported::Version(13)));
        assert_eq!(from_table(&table(99, &[])), Err(Unsupported::Version(99)));
        for len in 0..TABLE {
            let _ = from_table(&table(14, &[])[..len]);
        }
    }

    #[test]
    fn finds_the_version_of_older_interpreters() {
        let exact = u64::from(0x030b_07f0u32).to_ne_bytes();
        assert_eq!(minor(Some(&exact), Path::new("python3.8"), b""), Some(11));
        assert_eq!(minor(None, Path::new("/usr/lib/libpython3.10.so.1.0"), b""), Some(10));
        assert_eq!(minor(None, Path::new("/app/python"), b"\0/lib/python3.9/site\0"), Some(9));
        assert_eq!(minor(None, Path::new("/app/python"), b"lib/python3."), None);
    }
}
