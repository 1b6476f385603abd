//! Emits BPF code: the only user of inkwell and LLVM.
//!
//! [`CodegenCx`] is the module: its fixed properties (the kernel's [`TargetFeatures`] and the run's [`CodegenOptions`])
//! and the state that its functions share. A [`Builder`] builds one function, lives as long as that function is under
//! construction, and reaches the module through `Deref`. It has the [`ProgramCx`] of the function's program, which
//! never changes, and the [`Scope`] of the current code, which only [`Builder::scoped`] changes. A function within
//! another (a callback, a chunk) has its own builder. Methods of a builder name concepts of BPF and memory, never a
//! builtin. Scalars are 64-bit registers, extended by the sign of their type; everything else is memory.
//!
//! - `module.rs`: the module; `object.rs`: its initialization, and the ELF object; `known_code.rs`: code that
//!   scripts share; `debug_info.rs`: lines and BTF
//! - `builder.rs`: programs, and the state of functions; `temporaries.rs`: their temporaries
//! - `arith.rs`: arithmetic; `bits.rs`: bits and bounds; `flow.rs`: branches, loops, values computed once
//! - `mem.rs`: allocation outside of the 512-byte stack, loads, stores; `text.rs`: strings; `order.rs`: comparing and searching
//!   memory
//! - `map.rs`: maps; `ring.rs`: records; `probe_counters.rs`: counters; `helper.rs`: kernel helpers; `kfunc.rs`: kernel functions
//! - `foreign.rs`: functions of imported objects; `link.rs`: linking these; `libbpf_log.rs`: the messages of libbpf
//! - `task.rs`: the current task; `follow.rs`: the processes of `--follow`
//! - `python/`: Python frames of the current thread
//! - `unwind/`: user stacks by unwind tables
//! - `program.rs`: the table of program types; `session.rs`: one program at a function's entry and its return
//! - `shared.rs`: memory shared with the running programs; `problem.rs`: reports of failed reads and updates
//! - `gate.rs`: limits; `call_marks.rs`: their decisions about calls
//! - `sites.rs`: sites that are known when a compiled script runs; `double_buffer.rs`: maps that exist twice; `bench.rs`: the loop of a benchmark
//! - `callback.rs`: functions that helpers call; `call.rs`: functions that programs call; `chunk.rs`: chunks of long programs

#![allow(unsafe_code)] // GEPs and the parts of LLVM's C API that inkwell does not wrap

mod arith;
mod bench;
mod bits;
mod builder;
mod call;
mod call_marks;
mod callback;
mod chunk;
mod debug_info;
mod double_buffer;
mod flow;
mod follow;
mod foreign;
mod gate;
pub mod helper;
pub mod kernel_header;
pub mod kfunc;
mod known_code;
pub mod libbpf_log;
pub mod link;
mod loop_limit;
mod map;
mod mem;
mod module;
mod object;
mod order;
mod probe_counters;
mod problem;
mod program;
mod python;
mod ring;
mod session;
pub mod shared;
mod sites;
mod task;
mod temporaries;
mod text;
mod thread_table;
pub mod unwind;

pub use builder::{Builder, ProgramCx, Scope};
pub use call::{IN_NUMBERS, Subprogram};
pub use call_marks::Call;
pub use callback::{CALLBACK_ARGUMENTS, MAX_WALKED_ITERATIONS};
pub use chunk::{Chunk, ChunkKind};
pub use double_buffer::second;
pub use flow::{IfBlocks, LoopBlocks};
pub use follow::TaskOffsets;
pub use helper::{Helper, helper_name};
pub use inkwell::values::{BasicMetadataValueEnum as BasicMetadataValue, BasicValueEnum as BasicValue, IntValue, PointerValue};
pub use kfunc::KernelType;
pub use known_code::KnownCode;
pub use loop_limit::{LoopLimit, SignalOffsets};
pub use map::{IS_SET, MMAPABLE, MapDef, MapKind, NO_PREALLOC, Slots};
pub use mem::align_at;
pub use module::{Asked, CodegenCx, CodegenOptions, StackLimits, TargetFeatures};
use object::Errors;
pub use object::{BuiltObject, Dumps, EmitError, new_context};
pub use problem::Problem;
pub use program::{AttachOrder, EntryKind, LinkScope, PERF_CONTEXT, ProgramRow, ProgramType, SectionDef};
pub use python::{MAX_PYTHON_FRAMES, ThreadPointer, python_words};
pub use ring::{RecordField, stamped};
pub use session::Session;
pub use sites::{CALLS, NAMES, SYSCALLS};
pub use temporaries::Mark;
pub use thread_table::ThreadTable;

use inkwell::builder::BuilderError;

use crate::bug;
use crate::types::{Space, Type};

/// A value while code is emitted.
#[derive(Clone, Debug)]
pub struct Operand<'c> {
    /// Its type.
    pub ty: Type,
    /// Its representation.
    pub repr: Repr<'c>,
}

/// The representation of a value.
#[derive(Clone, Copy, Debug)]
pub enum Repr<'c> {
    /// No value.
    None,
    /// In a 64-bit register, extended by the sign of its type.
    Reg(IntValue<'c>),
    /// In readable memory of `Type::size()` bytes. For strings and buffers that were just read, the number of valid bytes
    /// (including the NUL of a string).
    Mem(PointerValue<'c>, Option<IntValue<'c>>),
    /// At an address of this space, not yet read (structs, arrays, and strings in them).
    At(IntValue<'c>, Space),
}

impl<'c> Operand<'c> {
    /// No value.
    pub fn void() -> Self {
        Self { ty: Type::Void, repr: Repr::None }
    }

    /// A scalar that is already extended by the sign of its type.
    pub fn reg(ty: Type, value: IntValue<'c>) -> Self {
        Self { ty, repr: Repr::Reg(value) }
    }

    /// `uint64`.
    pub fn u64(value: IntValue<'c>) -> Self {
        Self::reg(Type::U64, value)
    }

    /// A value in memory.
    pub fn mem(ty: Type, ptr: PointerValue<'c>) -> Self {
        Self { ty, repr: Repr::Mem(ptr, None) }
    }

    /// A value that is not yet read.
    pub fn at(ty: Type, addr: IntValue<'c>, space: Space) -> Self {
        Self { ty, repr: Repr::At(addr, space) }
    }
}

/// Comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as LLVM names them
pub enum Cmp {
    Eq,
    Ne,
    Ult,
    Ule,
    Ugt,
    Uge,
    Slt,
    Sle,
    Sgt,
    Sge,
}

/// Building an instruction fails only if the builder has no position or types do not match, which would be a bug in rbt.
fn ok<T>(r: Result<T, BuilderError>) -> T {
    match r {
        Ok(v) => v,
        Err(e) => bug!("LLVM builder: {e}"),
    }
}
