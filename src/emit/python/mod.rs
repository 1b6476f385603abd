//! The Python frames of the current thread.
//!
//! A map has, for each process that runs an interpreter, the interpreter's address and the layout of its structures
//! ([`Process`]). A program walks from the interpreter's state to the thread whose `thread_id` belongs to the
//! current thread's pointer ([`ThreadPointer`]), whether or not that thread holds the interpreter's lock, and along its
//! frames.
//!
//! A frame in a stack is two words: the ID of its code object, and the offset of its instruction. An ID is a hash of
//! the code object's name, file and line, so the same function has the same ID in all processes. When a program first
//! sees a code object, it sends the name, file and line table to user space ([`Code`]), so that these are known even
//! after the process has ended.
//!
//! The lowest bit of a frame's first word is set in the frame in which C code entered the interpreter's loop
//! (`_PyEval_EvalFrameDefault`): the frames up to it, leaf first, belong to one native frame of that function. Before Python 3.11,
//! each frame does.
//!
//! The memory of a process is untrusted: each read is checked, each size is bounded, and each loop has a fixed number
//! of iterations. The functions here are global functions, which the verifier checks once. They work in an element of a
//! map that belongs to the program's slot of scratch memory.
//!
//! - `codes.rs`: the data that are sent about a code object

use std::mem::offset_of;

use inkwell::values::{IntValue, PointerValue};

use super::mem::U64;
use super::shared::{CUT_REASONS, Code, PYTHON_CODES, PYTHON_PROCESSES, PYTHON_STATE, Process, Reason, SCRATCH_SLOTS, State};
use super::{Builder, Cmp, CodegenCx, Helper, MapDef, MapKind, NO_PREALLOC, ProgramCx, ProgramType, SectionDef, TaskOffsets};
use crate::bug;
use crate::system::binary::python::{ENTRY_BYTE, ENTRY_FRAME, Layout, NO_CODE};
use crate::types::Int;

const U32: Int = Int { bytes: 4, signed: false };
const I32: Int = Int { bytes: 4, signed: true };
const BYTE: Int = Int { bytes: 1, signed: false };

/// Maximum number of frames in a stack.
pub const MAX_PYTHON_FRAMES: u32 = 1022;
/// The number of interpreters and threads that are searched for the current thread.
const MAX_THREADS: u64 = 1024;
/// Maximum number of processes with an interpreter.
const MAX_PROCESSES: u32 = 16384;
/// Maximum number of code objects that are known to have been sent. One that is forgotten is sent again.
const MAX_CODES: u32 = 32768;

/// How the ID of the current thread in Python, pthread_self(3), is known.
#[derive(Clone, Copy, Debug)]
pub struct ThreadPointer {
    /// Offset of the thread pointer in `struct task_struct`.
    pub offset: u32,
    /// See [`ThreadRegister::max_below`](crate::system::machine::arch::ThreadRegister::max_below).
    pub max_below: u64,
}

/// The state of a walk, in an element of the map of states.
#[repr(C)]
struct Walk {
    process: Process,
    /// The next interpreter to search; 0: none.
    interpreter: u64,
    thread: u64,
    frame: u64,
    /// The thread pointer.
    thread_pointer: u64,
    /// Number of frames so far.
    count: u64,
    /// Number of frames that are marked as the first of a call of the loop.
    marked: u64,
    /// Not 0: the frames are for merging with native ones, and start with a [`CALL_OF_LOOP`] if their addresses
    /// identify the call.
    merged: u64,
    /// The element of the [`CALL_OF_LOOP`] to which the frames belong, plus one; 0: they belong to the next.
    call: u64,
    /// Why the stack ends early: a [`Reason`].
    reason: u64,
    /// A word that was read.
    word: u64,
    /// The key in the map of code objects.
    key: [u64; 3],
    /// `length` and `hash` of the name and of the file's name.
    texts: [u64; 4],
    /// `ob_size`, `ob_shash` and the first bytes of the line table.
    table_head: [u64; TABLE_HEAD],
    /// The first bytes of a string without a hash.
    text_start: [u64; TEXT_START],
    /// The current frame and its code object, as far as they are read.
    frame_bytes: [u8; FRAME + 8],
    code_bytes: [u8; CODE + 8],
    record: Code,
    /// Two words for each frame, and two for the reason.
    frames: [[u64; 2]; MAX_PYTHON_FRAMES as usize + 2],
}

/// In place of the ID of a code object: the frames of a call of the loop start here. The offset is the address of the
/// frame in which C code made the call, which is on its stack; 0 if it was not reached.
pub(super) const CALL_OF_LOOP: u64 = 12;

/// Words of a line table that distinguish code objects at the same address before Python 3.12.
const TABLE_HEAD: usize = 6;
/// Words of a name that distinguish it from another one at the same address, if Python has not computed its hash, as for
/// `co_qualname` of a method in Python 3.11.
const TEXT_START: usize = 10;

/// Maximum number of bytes that are read of a frame and of a code object: powers of two.
const FRAME: usize = 128;
const CODE: usize = 256;

/// Offset of a member of [`Layout`] within [`Walk`].
macro_rules! layout {
    ($member:ident) => {
        (offset_of!(Walk, process) + offset_of!(Process, layout) + offset_of!(Layout, $member)) as u32
    };
}

/// Offset of a member of [`Walk`].
macro_rules! at {
    ($($member:tt)+) => {
        offset_of!(Walk, $($member)+) as u32
    };
}

// after the macros, which it uses
mod codes;

/// The maximum number of elements of a walk whose frames are merged with this many native frames.
fn merged_entries(limit: u32) -> u32 {
    (2 * limit + 2).min(MAX_PYTHON_FRAMES)
}

/// Words in the table of stacks with this many frames.
pub fn python_words(limit: u32) -> u32 {
    (limit + 1) * 2
}

impl<'c> CodegenCx<'c> {
    /// Does a program walk Python frames?
    pub fn uses_python(&self) -> bool {
        self.maps.borrow().contains_key(PYTHON_PROCESSES)
    }

    fn python_processes(&self) -> PointerValue<'c> {
        let flags = if self.target.allocates_in_any_context.holds() { NO_PREALLOC } else { 0 };
        let value_size = size_of::<Process>() as u32;
        let def = MapDef { kind: MapKind::Hash, key_size: 4, value_size, max_entries: MAX_PROCESSES, flags };
        self.declare_map(PYTHON_PROCESSES, def)
    }

    fn python_codes(&self) -> PointerValue<'c> {
        let def = MapDef { kind: MapKind::LruHash, key_size: 24, value_size: 8, max_entries: MAX_CODES, flags: 0 };
        self.declare_map(PYTHON_CODES, def)
    }

    fn python_state(&self) -> PointerValue<'c> {
        // the loader allocates one for each slot of scratch memory
        let value_size = size_of::<Walk>() as u32;
        let def = MapDef { kind: MapKind::Array, key_size: 4, value_size, max_entries: SCRATCH_SLOTS, flags: 0 };
        self.declare_map(PYTHON_STATE, def)
    }

    /// The program of the tracepoint `sched_process_fork`: a child has its parent's interpreter.
    pub fn python_fork(&self, name: &str, of: TaskOffsets) {
        let mut e = self.begin_program(name, SectionDef::of(ProgramType::RawTracepoint), &[], ProgramCx::default());
        let (parent, child) = (e.load_ctx(0, U64), e.load_ctx(8, U64));
        let (parent, child) = (e.member(parent, of.tgid), e.member(child, of.tgid));
        let thread = e.cmp(Cmp::Eq, parent, child);
        e.if_(thread, |e| e.ret(None));
        e.with_python_process(parent, |e, process| {
            let (map, key) = (e.python_processes(), e.alloc(8));
            e.store(key, 0, 4, child);
            e.update(map, key, process);
        });
        e.end_program(0);
    }

    /// The program of the tracepoint `sched_process_exit`.
    pub fn python_exit(&self, name: &str, of: TaskOffsets) {
        self.forget_ended(name, self.python_processes(), of);
    }
}

impl<'c> Builder<'_, 'c> {
    /// Records at most `limit` Python frames of the current thread, and returns the stack's ID; 0 if there are none.
    /// `keep` stores the frames at a pointer
    /// under the key at another. With `says_cut`, a stack that has more frames ends with the reason.
    pub fn python_stack(
        &mut self,
        (limit, says_cut): (u32, bool),
        thread: ThreadPointer,
        keep: impl FnOnce(&mut Self, PointerValue<'c>) -> IntValue<'c>,
    ) -> IntValue<'c> {
        let slot = self.slot_number();
        let name = format!("python_stack_{limit}_{}", self.program.probe);
        self.global(&name, &[slot], |e, args| {
            let slot = e.first(args);
            let walk = e.walk(slot);
            let tgid = e.tgid();
            e.with_python_process(tgid, |e, process| {
                e.copy(walk, process, size_of::<Process>() as u32, 8);
                let (n, null) = (e.int(u64::from(python_words(limit)) * 8), e.int(0));
                let frames = e.offset(walk, at!(frames));
                e.call(Helper::ProbeReadKernel, &[frames.into(), n.into(), null.into()]);
                e.start_walk(walk);
                e.walk_threads(walk, slot, (limit, says_cut), thread);
                let id = keep(e, frames);
                e.ret(Some(id));
            });
            e.int(0)
        })
    }

    fn start_walk(&mut self, walk: PointerValue<'c>) {
        let zero = self.int(0);
        for member in [at!(interpreter), at!(thread), at!(frame), at!(count), at!(reason), at!(marked), at!(merged), at!(call)] {
            self.store(walk, member, 8, zero);
        }
    }

    /// Walks at most `limit` Python frames of the current thread, in memory of the slot, where [`Self::python_entry`]
    /// finds them. `find` returns the interpreter's data.
    pub(super) fn walk_to_merge(
        &mut self,
        slot: IntValue<'c>,
        limit: u32,
        thread: ThreadPointer,
        find: impl FnOnce(&mut Self) -> PointerValue<'c>,
    ) {
        let limit = merged_entries(limit);
        let walk = self.walk(slot);
        // and the reason why they end
        let frames = self.offset(walk, at!(frames));
        self.zero(frames, (limit + 2) * 16, 8);
        self.start_walk(walk);
        let process = find(self);
        self.copy(walk, process, size_of::<Process>() as u32, 8);
        let merged = self.int(1);
        self.store(walk, at!(merged), 8, merged);
        self.walk_threads(walk, slot, (limit, true), thread);
    }

    /// A walked frame: the two words at an index, zeros after the last. Leaves the function if there is no memory.
    pub(super) fn python_entry(&mut self, slot: IntValue<'c>, index: IntValue<'c>) -> [IntValue<'c>; 2] {
        let walk = self.walk(slot);
        let ptr = self.frame_at(walk, index);
        [self.load(ptr, 0, U64), self.load(ptr, 8, U64)]
    }

    /// The number of marked frames, if the walk reached its end; otherwise 0.
    pub(super) fn calls_of_loop(&mut self, slot: IntValue<'c>) -> IntValue<'c> {
        let walk = self.walk(slot);
        let cut = self.load(walk, at!(reason), U64);
        self.select(cut, self.int(0), self.load(walk, at!(marked), U64))
    }

    fn walk_threads(&mut self, walk: PointerValue<'c>, slot: IntValue<'c>, (limit, says_cut): (u32, bool), thread: ThreadPointer) {
        let task = self.call(Helper::GetCurrentTask, &[]);
        let (to, size, from) = (self.offset(walk, at!(thread_pointer)), self.int(8), self.add(task, self.int(thread.offset.into())));
        self.call(Helper::ProbeReadKernel, &[to.into(), size.into(), from.into()]);
        let runtime = self.load(walk, at!(process.runtime), U64);
        let supported = self.cmp(Cmp::Ne, runtime, self.int(0));
        self.if_else(
            supported,
            |e| {
                let from = e.add(runtime, e.load(walk, layout!(interpreters), U32));
                let to = e.offset(walk, at!(interpreter));
                // the process has started another program since
                let failed = e.read_user(to, 8, from);
                e.if_(failed, |e| {
                    let zero = e.int(0);
                    e.ret(Some(zero));
                });
                let max = u64::from(limit) + MAX_THREADS;
                let turns = e.steps(max, slot, limit, thread.max_below);
                let left = e.cmp(Cmp::Uge, turns, e.int(max));
                e.if_(left, |e| e.end_walk(walk, Reason::TooMany));
            },
            |e| e.end_walk(walk, Reason::Unsupported),
        );
        let reason = self.load(walk, at!(reason), U64);
        let incomplete =
            if says_cut { self.cmp(Cmp::Ne, reason, self.int(0)) } else { self.cmp(Cmp::Ugt, reason, self.int(Reason::Cut as u64)) };
        self.if_(incomplete, |e| {
            let count = e.load(walk, at!(count), U64);
            let minor = e.load(walk, layout!(minor), U32);
            e.store_frame(walk, count, reason, minor);
        });
        let failed = self.cmp(Cmp::Ugt, reason, self.int(Reason::Cut as u64));
        self.if_(failed, |e| e.count_cut(reason));
    }

    /// Counts a stack that is incomplete for this reason.
    fn count_cut(&mut self, reason: IntValue<'c>) {
        let counters = self.state(offset_of!(State, cut_stacks));
        let number = self.add(self.shr(reason, self.int(1), false), self.int(CUT_REASONS as u64 / 2));
        let number = self.and(self.opaque(number), self.int(CUT_REASONS as u64 - 1));
        let (counter, one) = (self.offset_by(counters, self.mul(number, self.int(8))), self.int(1));
        self.atomic_add(counter, one);
    }

    /// Takes steps until the walk is over, and returns their number.
    fn steps(&mut self, max: u64, slot: IntValue<'c>, limit: u32, max_below: u64) -> IntValue<'c> {
        let limit = self.int(limit.into());
        self.bounded_loop("python_turn", max, &[slot, limit], |e, _, numbers| {
            let &[slot, limit] = numbers else { bug!("a turn gets a slot and a limit") };
            e.python_step(slot, limit, max_below)
        })
    }

    /// One step of a walk: a frame, a thread, or an interpreter. 1 if the walk is over.
    fn python_step(&mut self, slot: IntValue<'c>, limit: IntValue<'c>, most_below: u64) -> IntValue<'c> {
        self.global("python_step", &[slot, limit], |e, args| {
            let slot = e.first(args);
            let Some(&limit) = args.get(1) else { bug!("a step gets a limit") };
            let walk = e.walk(slot);
            let frame = e.load(walk, at!(frame), U64);
            e.if_(frame, |e| {
                let done = e.python_frame(walk, frame, (slot, limit));
                e.ret(Some(done));
            });
            let thread = e.load(walk, at!(thread), U64);
            e.if_(thread, |e| {
                let next = e.word_at(walk, thread, layout!(thread_next));
                let id = e.word_at(walk, thread, layout!(thread_id));
                let own = e.load(walk, at!(thread_pointer), U64);
                let same = e.cmp(Cmp::Ule, e.sub(own, id), e.int(most_below));
                e.store(walk, at!(thread), 8, next);
                e.if_(same, |e| {
                    let frame = e.word_at(walk, thread, layout!(thread_frame));
                    let through = e.load(walk, layout!(cframe_offset), U32);
                    e.store(walk, at!(frame), 8, frame);
                    let (none, some) = (e.int(0), e.and(e.cmp(Cmp::Ne, through, e.int(0)), e.cmp(Cmp::Ne, frame, e.int(0))));
                    // each thread is in an interpreter only once
                    e.store(walk, at!(thread), 8, none);
                    e.if_(some, |e| {
                        let from = e.sub(e.add(frame, through), e.int(1));
                        let frame = e.word(walk, from);
                        e.store(walk, at!(frame), 8, frame);
                    });
                });
                let more = e.int(0);
                e.ret(Some(more));
            });
            let interpreter = e.load(walk, at!(interpreter), U64);
            let none = e.cmp(Cmp::Eq, interpreter, e.int(0));
            e.if_(none, |e| {
                let done = e.int(1);
                e.ret(Some(done));
            });
            let threads = e.word_at(walk, interpreter, layout!(threads));
            e.store(walk, at!(thread), 8, threads);
            let next = e.word_at(walk, interpreter, layout!(interpreter_next));
            e.store(walk, at!(interpreter), 8, next);
            e.int(0)
        })
    }

    /// The frame at an address.
    fn python_frame(&mut self, walk: PointerValue<'c>, frame: IntValue<'c>, (slot, limit): (IntValue<'c>, IntValue<'c>)) -> IntValue<'c> {
        let (continues, over) = (self.int(0), self.int(1));
        self.member_bytes(walk, (at!(frame_bytes), FRAME), layout!(frame_size), frame);
        let previous = self.frame_word(walk, layout!(frame_previous), U64);
        self.store(walk, at!(frame), 8, previous);
        let entry = self.load(walk, layout!(entry), U32);
        let mark = self.frame_word(walk, layout!(frame_entry), BYTE);
        let count = self.load(walk, at!(count), U64);

        let between = self.cmp(Cmp::Eq, entry, self.int(ENTRY_FRAME.into()));
        let empty = self.and(between, self.cmp(Cmp::Uge, mark, self.int(NO_CODE.into())));
        self.if_(empty, |e| {
            let merged = e.load(walk, at!(merged), U64);
            e.if_(merged, |e| {
                e.end_call(walk, frame);
                e.ret(Some(continues));
            });
            let nonzero = e.cmp(Cmp::Ne, count, e.int(0));
            e.if_(nonzero, |e| {
                let last = e.frame_at(walk, e.sub(count, e.int(1)));
                let marked = e.or(e.load(last, 0, U64), e.int(1));
                e.store(last, 0, 8, marked);
            });
            e.ret(Some(continues));
        });
        let full = self.cmp(Cmp::Uge, count, limit);
        self.if_(full, |e| {
            e.end_walk(walk, Reason::Cut);
            e.ret(Some(over));
        });

        // 3.14 stores flags in the lowest bits
        let tagged = self.frame_word(walk, layout!(frame_code), U64);
        let code = self.and(tagged, self.int(!7));
        self.member_bytes(walk, (at!(code_bytes), CODE), layout!(code_size), code);
        let ty = self.code_word(walk, layout!(object_type), U64);
        let other = self.cmp(Cmp::Ne, ty, self.load(walk, at!(process.code_type), U64));
        self.if_(other, |e| {
            e.end_walk(walk, Reason::Unreadable);
            e.ret(Some(over));
        });
        let offset = self.instruction_offset(walk, code);
        let id = self.code_id(walk, code, slot);
        let unknown = self.cmp(Cmp::Eq, id, self.int(Reason::UnknownCode as u64));
        self.if_(unknown, |e| e.count_cut(id));
        let set = self.and(self.cmp(Cmp::Eq, entry, self.int(ENTRY_BYTE.into())), self.cmp(Cmp::Ne, mark, self.int(0)));
        let each = self.cmp(Cmp::Eq, entry, self.int(0));
        let mark = self.or(set, each);
        let marked = self.add(self.load(walk, at!(marked), U64), mark);
        self.store(walk, at!(marked), 8, marked);
        let starts = self.and(between, self.load(walk, at!(merged), U64));
        let starts = self.and(starts, self.cmp(Cmp::Eq, self.load(walk, at!(call), U64), self.int(0)));
        self.if_(starts, |e| {
            e.start_call(walk);
        });
        let count = self.load(walk, at!(count), U64);
        self.store_frame(walk, count, self.or(id, mark), offset);
        let more = self.add(count, self.int(1));
        self.store(walk, at!(count), 8, more);
        continues
    }

    /// The following frames belong to another call of the loop; returns its element.
    fn start_call(&mut self, walk: PointerValue<'c>) -> IntValue<'c> {
        let count = self.load(walk, at!(count), U64);
        let ptr = self.frame_at(walk, count);
        let (call, none) = (self.int(CALL_OF_LOOP), self.int(0));
        self.store(ptr, 0, 8, call);
        self.store(ptr, 8, 8, none);
        let next = self.add(count, self.int(1));
        self.store(walk, at!(count), 8, next);
        self.store(walk, at!(call), 8, next);
        count
    }

    /// The frame without code at this address is where C code made the call, which may have no frame yet, or no longer
    /// has one.
    fn end_call(&mut self, walk: PointerValue<'c>, frame: IntValue<'c>) {
        let call = self.load(walk, at!(call), U64);
        let index = self.choose(call, |e| e.sub(call, e.int(1)), |e| e.start_call(walk));
        let ptr = self.frame_at(walk, index);
        self.store(ptr, 8, 8, frame);
        let zero = self.int(0);
        self.store(walk, at!(call), 8, zero);
    }

    fn instruction_offset(&mut self, walk: PointerValue<'c>, code: IntValue<'c>) -> IntValue<'c> {
        let size = self.load(walk, layout!(instruction_size), U32);
        let by_address = self.cmp(Cmp::Eq, size, self.int(0));
        let address = self.frame_word(walk, layout!(frame_instruction), U64);
        let index = self.frame_word(walk, layout!(frame_instruction), I32);
        let start = self.add(code, self.load(walk, layout!(code_start), U32));
        let (one, other) = (self.sub(address, start), self.mul(index, size));
        self.select(by_address, one, other)
    }

    /// The ID of the code object that was read, which is sent when it is first seen.
    fn code_id(&mut self, walk: PointerValue<'c>, code: IntValue<'c>, slot: IntValue<'c>) -> IntValue<'c> {
        let mut hash = self.code_word(walk, layout!(code_line), U32);
        let (name, file) = (self.code_word(walk, layout!(code_name), U64), self.code_word(walk, layout!(code_file), U64));
        let table = self.code_word(walk, layout!(code_table), U64);
        // another code object may be at the same address later
        for word in [name, file, table] {
            hash = self.mix_hash(hash, word);
        }
        let version = self.load(walk, layout!(code_version), U32);
        let hash = self.choose(
            version,
            |e| {
                let word = e.code_word(walk, layout!(code_version), U64);
                e.mix_hash(hash, word)
            },
            |e| {
                e.read_text_heads(walk, [name, file]);
                // a short one may be at the end of its memory: unreadable bytes are zero
                let (from, to) = (e.add(table, e.load(walk, layout!(bytes_size), U32)), e.offset(walk, at!(table_head)));
                e.read_user(to, size_of::<[u64; TABLE_HEAD]>() as u64, from);
                let hash = e.mix_words(hash, walk, at!(texts), 4 + TABLE_HEAD as u32);
                (0..).zip([name, file]).fold(hash, |hash, (i, text)| e.mix_text_start(hash, walk, text, i))
            },
        );
        let tgid = self.tgid();
        for (i, word) in (0..).zip([tgid, code, hash]) {
            self.store(walk, at!(key) + i * 8, 8, word);
        }
        let (map, key) = (self.python_codes(), self.offset(walk, at!(key)));
        let known = self.lookup(map, key);
        let found = self.not_null(known);
        self.choose(found, |e| e.load(known, 0, U64), |e| e.send_code(slot))
    }

    /// Mixes words of the walk's memory into a hash.
    fn mix_words(&mut self, hash: IntValue<'c>, walk: PointerValue<'c>, at: u32, words: u32) -> IntValue<'c> {
        (0..words).fold(hash, |hash, i| {
            let word = self.load(walk, at + i * 8, U64);
            self.mix_hash(hash, word)
        })
    }

    /// Mixes the start of a string into a hash if the string, of which this is the index in `texts`, has no hash.
    fn mix_text_start(&mut self, hash: IntValue<'c>, walk: PointerValue<'c>, text: IntValue<'c>, index: u32) -> IntValue<'c> {
        // `hash` of Include/cpython/unicodeobject.h: -1 before it is computed
        let has_hash = self.cmp(Cmp::Ne, self.load(walk, at!(texts) + index * 16 + 8, U64), self.int(u64::MAX));
        self.choose(
            has_hash,
            |_| hash,
            |e| {
                // a short one may be at the end of its memory: unreadable bytes are zero
                let (from, to) = (e.add(text, e.load(walk, layout!(text_ascii), U32)), e.offset(walk, at!(text_start)));
                e.read_user(to, size_of::<[u64; TEXT_START]>() as u64, from);
                e.mix_words(hash, walk, at!(text_start), TEXT_START as u32)
            },
        )
    }

    /// Reads the lengths and hashes of two strings; without them, the function returns 1 and the walk is over.
    fn read_text_heads(&mut self, walk: PointerValue<'c>, texts: [IntValue<'c>; 2]) {
        for (i, text) in (0..).zip(texts) {
            let from = self.add(text, self.load(walk, layout!(text_length), U32));
            let to = self.offset(walk, at!(texts) + i * 16);
            let failed = self.read_user(to, 16, from);
            self.if_(failed, |e| {
                e.end_walk(walk, Reason::Unreadable);
                let done = e.int(1);
                e.ret(Some(done));
            });
        }
    }

    // --- the state of a walk ------------------------------------------------------------------------------------

    /// Runs `body` with the interpreter data of a process, if there are any.
    fn with_python_process(&mut self, tgid: IntValue<'c>, body: impl FnOnce(&mut Self, PointerValue<'c>)) {
        let (map, key) = (self.python_processes(), self.entry_alloca());
        self.store(key, 0, 4, tgid);
        let stack_slot = self.scalar_slot();
        let found = self.call_ptr(Helper::MapLookupElem, &[map.into(), key.into()]);
        self.spill_ptr(stack_slot, found);
        let is_null = self.cmp(Cmp::Eq, self.addr(found), self.int(0));
        self.if_in_namespace(|e, id| {
            e.if_(is_null, |e| {
                e.store(key, 0, 4, id);
                let found = e.call_ptr(Helper::MapLookupElem, &[map.into(), key.into()]);
                e.spill_ptr(stack_slot, found);
            });
        });
        let found = self.load_spilled_ptr(stack_slot);
        let is_present = self.not_null(found);
        self.if_(is_present, |e| body(e, found));
    }

    /// The element of a slot; the function returns 0 without one, which never happens.
    fn walk(&mut self, slot: IntValue<'c>) -> PointerValue<'c> {
        let key = self.entry_alloca();
        self.store(key, 0, 4, slot);
        let map = self.python_state();
        let walk = self.lookup(map, key);
        let is_null = self.cmp(Cmp::Eq, self.addr(walk), self.int(0));
        self.if_(is_null, |e| {
            let zero = e.int(0);
            e.ret(Some(zero));
        });
        walk
    }

    fn first(&self, args: &[IntValue<'c>]) -> IntValue<'c> {
        match args.first() {
            Some(v) => *v,
            None => bug!("it gets a slot"),
        }
    }

    fn end_walk(&mut self, walk: PointerValue<'c>, reason: Reason) {
        let reason = self.int(reason as u64);
        self.store(walk, at!(reason), 8, reason);
    }

    /// The two words of a frame.
    fn frame_at(&mut self, walk: PointerValue<'c>, index: IntValue<'c>) -> PointerValue<'c> {
        let index = self.and(self.opaque(index), self.int(1023));
        let frames = self.offset(walk, at!(frames));
        self.offset_by(frames, self.mul(index, self.int(16)))
    }

    fn store_frame(&mut self, walk: PointerValue<'c>, index: IntValue<'c>, id: IntValue<'c>, offset: IntValue<'c>) {
        let ptr = self.frame_at(walk, index);
        self.store(ptr, 0, 8, id);
        // a stack ends at the first zero
        let offset = self.or(self.and(offset, self.int(u32::MAX.into())), self.int(1 << 32));
        self.store(ptr, 8, 8, offset);
    }

    /// 1 if the memory of the process cannot be read.
    fn read_user(&mut self, to: PointerValue<'c>, size: u64, from: IntValue<'c>) -> IntValue<'c> {
        let size = self.int(size);
        let r = self.call(Helper::ProbeReadUser, &[to.into(), size.into(), from.into()]);
        self.cmp(Cmp::Ne, r, self.int(0))
    }

    /// A word of the process's memory; without one, the function returns 1 and the walk is over.
    fn word(&mut self, walk: PointerValue<'c>, from: IntValue<'c>) -> IntValue<'c> {
        let to = self.offset(walk, at!(word));
        let failed = self.read_user(to, 8, from);
        self.if_(failed, |e| {
            e.end_walk(walk, Reason::Unreadable);
            let done = e.int(1);
            e.ret(Some(done));
        });
        self.load(to, 0, U64)
    }

    /// The same for a member of the object at an address.
    fn word_at(&mut self, walk: PointerValue<'c>, of: IntValue<'c>, member: u32) -> IntValue<'c> {
        let from = self.add(of, self.load(walk, member, U32));
        self.word(walk, from)
    }

    /// Reads the start of a structure: as many bytes as a member of the layout gives.
    fn member_bytes(&mut self, walk: PointerValue<'c>, (to, max): (u32, usize), size: u32, from: IntValue<'c>) {
        let size = self.load(walk, size, U32);
        let size = self.at_most(size, max as u64);
        let to = self.offset(walk, to);
        let r = self.call(Helper::ProbeReadUser, &[to.into(), size.into(), from.into()]);
        let failed = self.cmp(Cmp::Ne, r, self.int(0));
        self.if_(failed, |e| {
            e.end_walk(walk, Reason::Unreadable);
            let done = e.int(1);
            e.ret(Some(done));
        });
    }

    /// A member of the frame that was read.
    fn frame_word(&mut self, walk: PointerValue<'c>, member: u32, int: Int) -> IntValue<'c> {
        self.read_member(walk, (at!(frame_bytes), FRAME), member, int)
    }

    /// A member of the code object that was read.
    fn code_word(&mut self, walk: PointerValue<'c>, member: u32, int: Int) -> IntValue<'c> {
        self.read_member(walk, (at!(code_bytes), CODE), member, int)
    }

    fn read_member(&mut self, walk: PointerValue<'c>, (from, size): (u32, usize), member: u32, int: Int) -> IntValue<'c> {
        let offset = self.opaque(self.load(walk, member, U32));
        let offset = self.and(offset, self.int(size as u64 - 1));
        let bytes = self.offset(walk, from);
        let ptr = self.offset_by(bytes, offset);
        self.load(ptr, 0, int)
    }
}
