//! The memory of a walk, in bytes from its start.

use super::layout::{MAX_FIRST_FRAME, MissingTable};

/// The walk's own memory: words.
pub(super) const IP: u32 = 0;
pub(super) const STACK: u32 = 8;
pub(super) const FRAME: u32 = 16;
/// Identity of the address space, including the size of its executable mappings.
pub(super) const TAG: u32 = 24;
/// 1: the address is a return address, so that the instruction is before it.
pub(super) const CALL: u32 = 32;
/// Why the walk was cut; 0 while it continues, and if it reached the end.
pub(super) const REASON: u32 = 40;
/// 1: the first frame is at a function's first instruction.
pub(super) const AT_ENTRY: u32 = 48;
pub(super) const MM: u32 = 56;
/// The location of the return address to which the walk goes; if calls put it into a register, the stack pointer before the
/// call, or a lower address in the caller's frame. Uretprobes identify a return by it.
pub(super) const SLOT: u32 = 64;
/// Frames that were recorded.
pub(super) const COUNT: u32 = 72;
/// The initial value of the third register, and where it was saved since (0: nowhere).
pub(super) const THIRD: u32 = 80;
pub(super) const THIRD_AT: u32 = 88;
/// The slot of the walk.
pub(super) const STATE_SLOT: u32 = 96;
/// An address in an interpreter's loop, if a frame belongs to one; and the number of such frames.
pub(super) const LOOP: u32 = 104;
pub(super) const LOOPS: u32 = 112;
/// The position of the merge: in the native frames, in the interpreter's, and in the result; and whether it is within a
/// call.
pub(super) const NATIVE: u32 = 120;
pub(super) const INTERPRETED_AT: u32 = 128;
pub(super) const MERGED: u32 = 136;
pub(super) const INTERPRETER_STATE: u32 = 144;
/// 1: frames of interpreters are wanted.
pub(super) const INTERPRETS: u32 = 152;
/// The bits of an address in code: others may sign it.
pub(super) const MASK: u32 = 160;
/// 1: the stack pointer is only a lower bound, because the frame pointer was followed to a frame of unknown size.
pub(super) const BOUND: u32 = 168;
/// The indices of the latest consecutive frames whose addresses are not in code: the first, and one more than the last.
pub(super) const NOT_CODE_FIRST: u32 = 176;
pub(super) const NOT_CODE_END: u32 = 184;
/// 1: the frame pointer led to this frame, so that 0 in it means that this is the outermost one.
pub(super) const CHAINED: u32 = 192;
/// A [`MissingTable`].
pub(super) const MISS: u32 = 200;
pub(super) const MISS_IDS: u32 = MISS;
pub(super) const MISS_ADDR: u32 = MISS + 8;
pub(super) const MISS_START: u32 = MISS + 16;
pub(super) const MISS_END: u32 = MISS + 24;
pub(super) const MISS_FILE: u32 = MISS + 32;
pub(super) const MISS_KEY: u32 = MISS + 56;
/// A word that was read separately from a stack.
pub(super) const READ: u32 = MISS + size_of::<MissingTable>() as u32;
/// The address of what [`WINDOW`] holds, or [`NO_WINDOW`].
pub(super) const WINDOW_AT: u32 = READ + 8;
/// A mapping's first page in its file.
pub(super) const PGOFF: u32 = WINDOW_AT + 8;
/// A mapping's file.
pub(super) const FILE: u32 = PGOFF + 8;
/// A mapping's flags.
pub(super) const VM_FLAGS: u32 = FILE + 8;
/// A page's value.
pub(super) const VALUE: u32 = VM_FLAGS + 8;
/// A mapping, or an entry of the tree of them.
pub(super) const MAPPING: u32 = VALUE + 8;
/// The registers of the first frame, as in `struct pt_regs`, up to [`MAX_FIRST_FRAME`]. Those after it are in the following
/// node until it is read.
pub(super) const REGISTERS: u32 = MAPPING + 8;
/// A node of the tree of mappings.
pub(super) const NODE: u32 = REGISTERS + MAX_FIRST_FRAME + 8;
/// Bytes of a node (`MAPLE_NODE_MASK`).
pub(super) const NODE_SIZE: u32 = 256;
/// A piece of the stack. A helper call costs more than the copying, and most frames are short, so that one copy serves
/// the reads of several frames.
pub(super) const WINDOW: u32 = NODE + NODE_SIZE;
/// Bytes of the piece: a power of two.
pub(super) const WINDOW_SIZE: u32 = 512;
/// An address that no process has.
pub(super) const NO_WINDOW: u64 = 1 << 63;
/// A word that begins in the window may end after it.
pub(super) const SIZE: u32 = WINDOW + WINDOW_SIZE + 8;

/// Iterations of the walk beyond the frames: for replaced return addresses.
pub(super) const EXTRA_ITERATIONS: u64 = 16;

pub(super) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
