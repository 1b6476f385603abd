//! The maps of unwinding: those that user space writes, and those that it reads.

use super::super::shared::Process;
use super::super::{MMAPABLE, MapDef, MapKind};
pub use crate::system::binary::unwind::entry::*;

/// The map of rows: an array of arrays of blocks. See [`POOL_BLOCKS`] and [`BLOCK_WORDS`].
pub const POOLS: &str = "unwind_pools";
/// Maximum number of pools: 1 GB of tables.
pub const MAX_POOLS: u32 = 512;
/// Number of blocks in a pool of 2 MiB.
pub const POOL_BLOCKS: u32 = 128;
/// Words (`u64`) of a block. A block has the rows (`u32`) of whole pages, or entries (`u64`) of pages.
///
/// A row is the first byte within the page (12 bits) and the number of a rule. The entry of a page is the position of its
/// first row in all pools, counted in rows, and the number of its rows above [`COUNT_SHIFT`].
pub const BLOCK_WORDS: u32 = 2048;
/// Rows of a block: the maximum number for one page.
pub const BLOCK_ROWS: u32 = 2 * BLOCK_WORDS;
/// See [`BLOCK_WORDS`].
pub const COUNT_SHIFT: u32 = 48;
/// The bits of a row with the number of its rule.
pub const RULE_SHIFT: u32 = 12;

/// The array of all objects that are looked up by number, in this order: rules, files, and the two caches. They share
/// one map, because a program may use only 64 maps. An element has the size of a rule.
pub const TABLE: &str = "unwind_table";
/// The first rule: [`RuleEntry`].
pub const RULES: u32 = 0;
/// The first file with a table: [`FileEntry`].
pub const FILES: u32 = RULES + MAX_RULES;
/// Maximum number of files.
pub const MAX_FILES: u32 = 1 << 13;
/// The number of the vDSO.
pub const VDSO: u32 = 0;
/// The number of files whose tables found no room.
pub const NO_ROOM: u32 = 1;

/// The entry of a file: the position of its pages' entries.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileEntry {
    /// Position of its first page's entry in all pools, counted in words.
    pub entries: u64,
    /// Number of that page.
    pub first: u32,
    /// Number of pages that have entries: none if the file has no table.
    pub pages: u32,
}

/// Maximum number of rules. An entire distribution has fewer than 10,000.
pub const MAX_RULES: u32 = 1 << 15;

/// The hash of files by the kernel's identity of them: [`FileKey`] to a `u32`, the index in [`FILES`].
pub const INODES: &str = "unwind_inodes";

/// The kernel's identity of a file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// `inode.i_ino`
    pub ino: u64,
    /// `super_block.s_dev`, and above it `inode.i_generation`, because the number of a deleted file is reused.
    pub dev: u64,
    /// `inode.i_size`
    pub size: u64,
}

/// The cache of addresses: entries by hash. The value is the number of a rule, and 1 more.
pub(super) const ADDRESSES: u32 = FILES + MAX_FILES;
/// The cache of code pages: the same.
pub(super) const PAGES: u32 = ADDRESSES + (1 << CACHE_SHIFT);
/// log2 of the entries of a cache.
pub(super) const CACHE_SHIFT: u32 = 14;
pub(super) const PAGE_SHIFT: u64 = crate::system::binary::unwind::PAGE_SHIFT as u64;
/// Numbers that change when a process maps code, by the lower bits of the process ID. They are part of an address space's identity: a
/// library may take the place of another one of the same size.
pub const GENERATIONS: u32 = PAGES + (1 << CACHE_SHIFT);
/// How many there are: a power of two.
pub const MAX_GENERATIONS: u32 = 1 << 12;
/// Bytes of an entry of a cache: the identity, its value, and both together by exclusive or, because two processors may
/// write one entry at the same time.
pub(super) const CACHE_ENTRY: u32 = 24;
const _: () = assert!(size_of::<RuleEntry>() <= CACHE_ENTRY as usize && size_of::<FileEntry>() <= CACHE_ENTRY as usize);
/// In a page's value: the code has no file, and is unwound by frame pointers.
pub(super) const NO_FILE: u64 = 1 << 62;
/// Added to it: the page is not executable.
pub(super) const NOT_EXECUTABLE: u64 = 1 << 61;
/// In a page's value: it is in a file, whose index is in the lower half; the page's number is above.
pub(super) const IN_FILE: u64 = 1 << 63;
pub(super) const NUMBER_SHIFT: u64 = 16;

/// The prefix of the name of the array of walks, followed by their maximum number of frames. The loader makes it as
/// large as the scratch arena.
pub const UNWIND_STATES: &str = "unwind_walk_";

/// The program that reports the file that the process running it has mapped at an address, its argument, unless the
/// file has a table. Only the kernel knows the identity by which programs find a file.
pub const IDENTIFY: &str = "unwind_identify";

/// The ring of [`MissingTable`].
pub const MISSES: &str = "unwind_misses";
/// Its size in bytes.
pub const MISSES_BYTES: u32 = 1 << 18;
/// Recent reports in it.
pub const MISSED: &str = "unwind_missed";

/// The hash of interpreters by the index of their file in [`FILES`]: a [`Process`] with addresses relative to a mapping
/// of the file from its start.
pub const INTERPRETERS: &str = "unwind_interpreters";

/// The same by address space, with absolute addresses: programs fill it.
pub(super) const INTERPRETED: &str = "unwind_interpreted";

/// A table that a walk did not find.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MissingTable {
    /// Process ID (upper half) and thread ID as rbt knows them.
    pub ids: u64,
    /// Address in the code.
    pub addr: u64,
    /// The mapping.
    pub start: u64,
    /// Its end.
    pub end: u64,
    /// The file of the mapping.
    pub file: FileKey,
    /// The key of the report in [`MISSED`].
    pub key: u64,
}

/// A stack's last word, if the walk ended before the outermost frame. No address is as high.
pub const CUT: u64 = 0xffff_ff00_0000_0000;
/// The reasons for it, added to [`CUT`].
pub const CUT_NO_INFORMATION: u64 = 1;
/// The stack could not be read.
pub const CUT_UNREADABLE: u64 = 2;
/// There is information of a kind that is not compiled.
pub const CUT_UNSUPPORTED: u64 = 3;
/// The table is not loaded yet.
pub const CUT_NOT_LOADED: u64 = 4;
/// The address is in no mapping, or in one that is not executable.
pub const CUT_NOT_CODE: u64 = 5;
/// A caller's frame was not above its callee's.
pub const CUT_CORRUPT: u64 = 6;
/// The stack has more frames.
pub const CUT_LIMIT: u64 = 7;
/// The task runs 32-bit code, which is unwound by frame pointers only, so frames may be missing.
pub const CUT_32_BIT: u64 = 8;
/// The table of the file found no room.
pub const CUT_NO_ROOM: u64 = 9;

/// The maps used by programs that unwind, as created by the loader: name and definition.
pub const MAPS: [(&str, MapDef); 7] = {
    const fn def(kind: MapKind, key_size: u32, value_size: u32, max_entries: u32, flags: u32) -> MapDef {
        MapDef { kind, key_size, value_size, max_entries, flags }
    }
    [
        (POOLS, def(MapKind::ArrayOfMaps, 4, 4, MAX_POOLS, 0)),
        (TABLE, def(MapKind::Array, 4, CACHE_ENTRY, GENERATIONS + MAX_GENERATIONS, MMAPABLE)),
        (INODES, def(MapKind::Hash, size_of::<FileKey>() as u32, 4, MAX_FILES, 0)),
        (MISSES, def(MapKind::Ringbuf, 0, 0, MISSES_BYTES, 0)),
        (MISSED, def(MapKind::LruHash, 8, 8, 4096, 0)),
        (INTERPRETERS, def(MapKind::Hash, 4, size_of::<Process>() as u32, 256, 0)),
        (INTERPRETED, def(MapKind::LruHash, 8, size_of::<Process>() as u32, 1024, 0)),
    ]
};

/// The definition of the maps within [`POOLS`].
pub const POOL: MapDef =
    MapDef { kind: MapKind::Array, key_size: 4, value_size: BLOCK_WORDS * 8, max_entries: POOL_BLOCKS, flags: MMAPABLE };
