//! Instruction sets: a row for each processor.

pub mod aarch64;
mod state;
pub mod x86_64;

use super::Arch;

pub use state::{Base, Byte, Machine, Successor, Value};

/// The instruction set of a processor.
#[derive(Debug)]
pub struct Instructions {
    /// The number of the stack pointer.
    pub stack_pointer: u8,
    /// Is the end of the code, which starts with an instruction, also a boundary between instructions?
    pub starts: fn(&[u8]) -> bool,
    /// Is it only padding between functions?
    pub is_padding: fn(&[u8]) -> bool,
    /// Does the code, after the code in the first argument, begin with the system call clone3(2)? The information on functions that
    /// start threads ends there, because it does not apply to the new thread. (After clone(2), the address of the thread's function
    /// is where a return address would be.)
    pub calls_clone3: fn(&[u8], &[u8]) -> bool,
    /// The frames of code without call frame information, each with the address from which it applies; the first is that of
    /// the code's own address. The last argument has the addresses of function symbols in it, in order.
    pub frames: fn(&[u8], u64, &[u64]) -> Frames,
    /// The same for code that has no frame pointers either, from the starts of its functions on. `None` if instructions of this
    /// processor are not followed. The last argument reads code at other addresses.
    pub follow: Option<Follow>,
    /// Targets of the direct jumps in the code, which is at this address.
    pub jumps: fn(&[u8], u64) -> Vec<u64>,
    /// Offsets of the return instructions in the code. `None` if it cannot be decoded entirely.
    pub returns: fn(&[u8]) -> Option<Vec<u64>>,
    /// The length of a Go function's check for room on its stack, which jumps to code that enlarges the stack and starts the function
    /// again; 0 if the code does not begin with it (`stacksplit` in Go's `src/cmd/internal/obj/*/obj*.go`).
    pub stack_check: fn(&[u8]) -> u64,
    /// Does the code of a function call others? The call that the kernel inserts for an optimized uprobe writes below the stack
    /// pointer, where only a function without calls keeps data (its red zone). It may also say so where it is not known.
    pub calls: fn(&[u8]) -> bool,
    /// Executes the first instruction of the code, which is at this address, and records the value that it compares with the
    /// stack pointer.
    pub step: fn(&[u8], u64, &mut Machine, &mut Option<Value>) -> Successor,
}

/// That of an architecture.
pub(super) fn of(arch: &Arch) -> &'static Instructions {
    static ALL: [(&Arch, Instructions); 2] = [(&super::x86_64::ARCH, x86_64::INSTRUCTIONS), (&super::aarch64::ARCH, aarch64::INSTRUCTIONS)];
    let known = ALL.iter().find(|(of, _)| of.name == arch.name).unwrap_or(&ALL[0]);
    &known.1
}

/// See [`Instructions::follow`].
pub type Follow = fn(&[u8], u64, &Starts<'_>, &dyn Fn(u64) -> [u8; 16]) -> Followed;

/// Frames by the address from which they apply, in order.
pub type Frames = Vec<(u64, Frame)>;

/// The same, where the code was reached: `None` elsewhere.
pub type Followed = Vec<(u64, Option<Frame>)>;

/// Where code can start to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Starts<'d> {
    /// Addresses of functions.
    pub functions: &'d [u64],
    /// Addresses in data that may be those of functions.
    pub pointers: &'d [u64],
    /// Parts of the code that are not followed, from and to these addresses, in order.
    pub described: &'d [(u64, u64)],
    /// Procedure linkage tables: start, end, and bytes of a slot.
    pub tables: &'d [(u64, u64, u64)],
    /// Addresses of pointers to functions that do not return, in order.
    pub endless: &'d [u64],
    /// The first instruction of a program, which nothing calls.
    pub entry: Option<u64>,
}

/// The location of a function's frame, as its instructions show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Unknown.
    Unknown,
    /// It has only the return address, where a call puts it.
    Entered,
    /// The caller's frame pointer and the return address are on top of the stack, in a frame of this many bytes.
    Pushed(i32),
    /// The same, and the frame pointer points to it.
    Set(i32),
    /// The canonical frame address is this many bytes above the stack pointer. The caller's frame pointer is this many bytes below
    /// it, or unchanged.
    AboveSp(i32, Option<i32>),
    /// The same with the frame pointer in place of the stack pointer.
    AboveFp(i32, i32),
    /// There is no caller.
    Outermost,
    /// The return address is the last word of a frame of this many bytes.
    Linked(i32),
    /// The stack pointer points to what the kernel pushed for a signal.
    Signal(SignalFrame),
}

/// Offsets of an interrupted function's registers in the frame that the kernel pushes for a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalFrame {
    /// Of the stack pointer.
    pub sp: i32,
    /// Of the frame pointer.
    pub fp: i32,
    /// Of the register of [`Unwind::third_by_dwarf`](super::Unwind::third_by_dwarf).
    pub third: i32,
    /// Of the instruction pointer.
    pub ip: i32,
}
