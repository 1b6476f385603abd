//! The registers at the start of a probe's context.

/// x86-64's `struct pt_regs` (arch/x86/include/asm/ptrace.h): names, and offsets in bytes.
pub const REGISTERS: &[(&str, u32)] = &[
    ("r15", 0),
    ("r14", 8),
    ("r13", 16),
    ("r12", 24),
    ("bp", 32),
    ("bx", 40),
    ("r11", 48),
    ("r10", 56),
    ("r9", 64),
    ("r8", 72),
    ("ax", AX),
    ("cx", 88),
    ("dx", 96),
    ("si", 104),
    ("di", 112),
    ("orig_rax", ORIG_AX),
    ("ip", IP),
    ("pc", IP),
    ("cs", CS),
    ("flags", 144),
    ("sp", SP),
    ("ss", 160),
];

/// Of the general registers, by the processor's numbers of them: ax, cx, dx, bx, sp, bp, si, di, r8 to r15.
pub const BY_NUMBER: [u32; 16] = [AX, 88, 96, 40, SP, 32, 104, 112, 72, 64, 56, 48, 24, 16, 8, 0];

/// Of what a function's integers come in, in order: di, si, dx, cx, r8, r9 (System V ABI).
pub const ARGS: [u32; 6] = [112, 104, 96, 88, 72, 64];
/// Of what a function of Go is given integers in: ax, bx, cx, di, si, r8, r9, r10, r11 (`cmd/compile/abi-internal.md`).
pub const GO_ARGS: [u32; 9] = [AX, 40, 88, 112, 104, 72, 64, 56, 48];
/// Of what a system call's arguments come in: di, si, dx, r10, r8, r9 (syscall(2)).
pub const SYSCALL_ARGS: [u32; 6] = [112, 104, 96, 56, 72, 64];
/// Of what a function returns its result in.
pub const AX: u32 = 80;
/// Of the number of the system call in progress.
pub const ORIG_AX: u32 = 120;
/// Offset of the code segment, whose lowest bits tell the processor's mode.
pub const CS: u32 = 136;
/// Offset of the instruction pointer.
pub const IP: u32 = 128;
/// Offset of the stack pointer.
pub const SP: u32 = 152;
