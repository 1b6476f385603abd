//! The entry point of a static binary: it blocks SIGUSR1 before the C library relocates the binary.
//!
//! The relocation of a binary that contains LLVM takes milliseconds, and nothing of the program runs before it ends, not even the
//! functions of `.preinit_array`. A SIGUSR1 in that time would end the process; blocked, it stays pending until its handler is there.
//! A dynamic binary starts with the dynamic linker's code, which this does not precede. `build.rs` names the entry point.

#![allow(unsafe_code)] // the first instructions of the process

#[cfg(all(feature = "static-llvm", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod blocked {
    use std::sync::atomic::{AtomicU64, Ordering};

    /// The mask of blocked signals at the start, as the kernel has it.
    static INITIAL_MASK: AtomicU64 = AtomicU64::new(0);

    // rt_sigprocmask(SIG_BLOCK, &{SIGUSR1}, &INITIAL_MASK, 8), with the registers that `_start` reads unchanged. All addresses are
    // relative to the instruction, because none is relocated yet.
    #[cfg(target_arch = "x86_64")]
    std::arch::global_asm!(
        ".pushsection .text.rbt_entry, \"ax\", @progbits",
        ".globl rbt_entry",
        ".type rbt_entry, @function",
        "rbt_entry:",
        "push rdx",
        "mov eax, 14",
        "xor edi, edi",
        "lea rsi, [rip + 2f]",
        "lea rdx, [rip + {before}]",
        "mov r10d, 8",
        "syscall",
        "pop rdx",
        "jmp _start",
        ".balign 8",
        "2: .quad 1 << 9",
        ".popsection",
        before = sym INITIAL_MASK,
    );
    #[cfg(target_arch = "aarch64")]
    std::arch::global_asm!(
        ".pushsection .text.rbt_entry, \"ax\", %progbits",
        ".globl rbt_entry",
        ".type rbt_entry, %function",
        "rbt_entry:",
        "mov x9, x0",
        "mov x8, 135",
        "mov x0, 0",
        "adr x1, 2f",
        "adrp x2, {before}",
        "add x2, x2, :lo12:{before}",
        "mov x3, 8",
        "svc 0",
        "mov x0, x9",
        "b _start",
        ".balign 8",
        "2: .quad 1 << 9",
        ".popsection",
        before = sym INITIAL_MASK,
    );

    /// Restores the mask.
    pub(super) fn restore() {
        const SIZE: usize = size_of::<u64>();
        let before = INITIAL_MASK.load(Ordering::Relaxed);
        let none = std::ptr::null_mut::<u64>();
        // SAFETY: the kernel reads a mask of this size, and writes none
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const before, none, SIZE) };
    }
}

/// Delivers a SIGUSR1 that arrived before its handler was there.
pub extern "C" fn unblock_user_signals() {
    #[cfg(all(feature = "static-llvm", any(target_arch = "x86_64", target_arch = "aarch64")))]
    blocked::restore();
}
