//! The registers that a probe's context begins with.

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
    ("ax", 80),
    ("cx", 88),
    ("dx", 96),
    ("si", 104),
    ("di", 112),
    ("orig_rax", 120),
    ("ip", IP),
    ("pc", IP),
    ("cs", 136),
    ("flags", 144),
    ("sp", SP),
    ("ss", 160),
];

/// Offset of the instruction pointer.
pub const IP: u32 = 128;
/// Offset of the stack pointer.
pub const SP: u32 = 152;
