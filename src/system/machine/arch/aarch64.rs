//! AArch64.

use super::super::operands::{self, At};
use super::{Arch, Call, Convention, ThreadRegister, Unwind};

/// Offsets in `struct pt_regs` (arch/arm64/include/asm/ptrace.h), which starts with `struct user_pt_regs`. The offset
/// of a general register `x` is eight times its number.
const FP: u32 = 232;
const LR: u32 = 240;
const SP: u32 = 248;
const PC: u32 = 256;
const PSTATE: u32 = 264;
const ORIG_X0: u32 = 272;
/// `syscallno`, which remains valid after execve(2) has cleared `x8`.
const SYSCALL_NUMBER: u32 = 280;

pub(super) const ARCH: Arch = Arch {
    name: "aarch64",
    elf: 183,
    folder: "arm64",
    macros: "__aarch64__ 1\n__CHAR_UNSIGNED__ 1\n__AARCH64EL__ 1\n",
    registers: REGISTERS,
    by_number: &[
        0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 136, 144, 152, 160, 168, 176, 184, 192, 200, 208, 216, 224,
        232, LR, SP,
    ],
    // AAPCS64
    args: &[0, 8, 16, 24, 32, 40, 48, 56],
    convention: Convention {
        large_by_reference: true,
        mixed: false,
        result_comes_first: false,
        aligns_pairs: true,
        overflow_is_final: true,
    },
    // `cmd/compile/abi-internal.md` of Go
    go_args: &[0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120],
    // syscall(2). The result replaces the first argument.
    syscall_args: &[ORIG_X0, 8, 16, 24, 32, 40],
    result: 0,
    syscall_number: SYSCALL_NUMBER,
    ip: PC,
    sp: SP,
    stack_args: 0,
    // One word is reserved for the return address.
    go_stack_args: 8,
    return_address: Some(LR),
    trap: 0,
    optimized_uprobe: None,
    // `bl`, whose distance is in instructions, relative to itself.
    call: Call { operation: (58, 0x25), mask: 0x3f, distance: (6, 36, 2), back: 4 },
    extra_frames: 1,
    always_has_trampolines: false,
    // the streams of programs were added in the same version (arch/arm64/net/bpf_jit_comp.c)
    stack_arguments: ("BPF_PROG_STREAM_READ_BY_FD", "6.17"),
    // `TIF_32BIT` of arch/arm64/include/asm/thread_info.h
    compat: ("flags", 1 << 22),
    // DWARF for the Arm 64-bit Architecture, 4.1; `PSR_MODE_MASK` and `PSR_MODE_EL0t` of
    // arch/arm64/include/uapi/asm/ptrace.h
    unwind: Unwind {
        registers: [PC, SP, FP, LR],
        by_dwarf: [31, 29],
        third_by_dwarf: 30,
        first_frame: &[],
        return_address: 30,
        links: true,
        user_mode: (PSTATE, 0x1f, 0),
        signal_return: None,
        pt_regs: 336,
        // `struct pthread` ends at the thread pointer: 1,700 to 2,000 bytes in versions of glibc, 200 in musl. Two threads are
        // further apart, since each has a stack. The kernel saves the register when the thread is switched out, so that of a
        // program that has never been is unknown.
        thread: ThreadRegister { path: &["thread", "uw", "tp_value"], max_below: 4096 },
    },
    ordered_stores: false,
    private_stacks: false,
    by_dwarf: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31],
    vectors_by_dwarf: (64, 32),
    operand,
    // user_mode() of arch/arm64/include/asm/ptrace.h
    mode: (PSTATE, 15),
    user_is_zero: true,
    syscall_function: "__arm64_sys_",
    watch_modes: &["r", "w", "rw", "x"],
    lists_patch_sites: true,
    calls: CALLS,
    replaced_calls: REPLACED_CALLS,
    other_calls: OTHER_CALLS,
};

#[rustfmt::skip]
static REGISTERS: &[(&str, u32)] = &[
    ("x0", 0), ("x1", 8), ("x2", 16), ("x3", 24), ("x4", 32), ("x5", 40), ("x6", 48), ("x7", 56), ("x8", 64), ("x9", 72),
    ("x10", 80), ("x11", 88), ("x12", 96), ("x13", 104), ("x14", 112), ("x15", 120), ("x16", 128), ("x17", 136), ("x18", 144),
    ("x19", 152), ("x20", 160), ("x21", 168), ("x22", 176), ("x23", 184), ("x24", 192), ("x25", 200), ("x26", 208), ("x27", 216),
    ("x28", 224), ("x29", FP), ("x30", 240),
    ("fp", FP), ("lr", LR), ("sp", SP), ("pc", PC), ("ip", PC), ("pstate", PSTATE), ("orig_x0", ORIG_X0),
];

/// An operand in the syntax of GNU's assembler:
///
/// | operand | meaning |
/// |---|---|
/// | `x0`, `w1` | a register, or the lower half of it |
/// | `7`, `-7` | a number, also with `#` before it |
/// | `[x0]`, `[sp, 16]` | memory at this offset in bytes from the address in the register |
/// | `[x0, x1]`, `[x0, x1, lsl 3]` | an element of an array |
fn operand(text: &str) -> Option<At> {
    let Some(inside) = text.strip_prefix('[') else {
        return register(text).map(At::Register).or_else(|| operands::number(text.strip_prefix('#').unwrap_or(text)).map(At::Number));
    };
    let mut parts = inside.strip_suffix(']')?.split(',').map(str::trim);
    // 32-bit registers are not valid addresses.
    let address = |name: &str| register(name).filter(|_| !name.starts_with('w'));
    let base = Some(address(parts.next()?)?);
    let (mut offset, mut index) = (0, None);
    if let Some(second) = parts.next() {
        match address(second) {
            Some(register) => {
                let shift = parts.next().map_or(Some(0), |s| s.strip_prefix("lsl")?.trim().trim_start_matches('#').parse().ok());
                index = Some((register, 1 << shift.filter(|n: &u32| *n <= 3)?));
            }
            None => offset = operands::number(second.strip_prefix('#').unwrap_or(second))?,
        }
    }
    parts.next().is_none().then_some(At::Memory { symbol: None, base, index, offset })
}

/// `x0` and `w0` have the same offset. `xzr` has none.
fn register(name: &str) -> Option<u32> {
    let full_name = name.strip_prefix('w').map_or_else(|| name.to_owned(), |n| format!("x{n}"));
    ARCH.register(&full_name).filter(|_| full_name.starts_with('x') || full_name == "sp")
}

/// From include/uapi/asm-generic/unistd.h.
#[rustfmt::skip]
static CALLS: &[(&str, u32)] = &[
    ("accept", 202), ("accept4", 242), ("acct", 89), ("add_key", 217), ("adjtimex", 171), ("bind", 200), ("bpf", 280),
    ("brk", 214), ("cachestat", 451), ("capget", 90), ("capset", 91), ("chdir", 49), ("chroot", 51), ("clock_adjtime", 266),
    ("clock_getres", 114), ("clock_gettime", 113), ("clock_nanosleep", 115), ("clock_settime", 112), ("clone", 220),
    ("clone3", 435), ("close", 57), ("close_range", 436), ("connect", 203), ("copy_file_range", 285), ("delete_module", 106),
    ("dup", 23), ("dup3", 24), ("epoll_create1", 20), ("epoll_ctl", 21), ("epoll_pwait", 22), ("epoll_pwait2", 441),
    ("eventfd2", 19), ("execve", 221), ("execveat", 281), ("exit", 93), ("exit_group", 94), ("faccessat", 48), ("faccessat2", 439),
    ("fadvise64_64", 223), ("fallocate", 47), ("fanotify_init", 262), ("fanotify_mark", 263), ("fchdir", 50), ("fchmod", 52),
    ("fchmodat", 53), ("fchmodat2", 452), ("fchown", 55), ("fchownat", 54), ("fcntl", 25), ("fdatasync", 83), ("fgetxattr", 10),
    ("file_getattr", 468), ("file_setattr", 469), ("finit_module", 273), ("flistxattr", 13), ("flock", 32), ("fremovexattr", 16),
    ("fsconfig", 431), ("fsetxattr", 7), ("fsmount", 432), ("fsopen", 430), ("fspick", 433), ("fstatfs", 44), ("fsync", 82),
    ("ftruncate", 46), ("futex", 98), ("futex_requeue", 456), ("futex_wait", 455), ("futex_waitv", 449), ("futex_wake", 454),
    ("get_mempolicy", 236), ("get_robust_list", 100), ("getcpu", 168), ("getcwd", 17), ("getdents64", 61), ("getegid", 177),
    ("geteuid", 175), ("getgid", 176), ("getgroups", 158), ("getitimer", 102), ("getpeername", 205), ("getpgid", 155),
    ("getpid", 172), ("getppid", 173), ("getpriority", 141), ("getrandom", 278), ("getresgid", 150), ("getresuid", 148),
    ("getrlimit", 163), ("getrusage", 165), ("getsid", 156), ("getsockname", 204), ("getsockopt", 209), ("gettid", 178),
    ("gettimeofday", 169), ("getuid", 174), ("getxattr", 8), ("getxattrat", 464), ("init_module", 105), ("inotify_add_watch", 27),
    ("inotify_init1", 26), ("inotify_rm_watch", 28), ("io_cancel", 3), ("io_destroy", 1), ("io_getevents", 4),
    ("io_pgetevents", 292), ("io_setup", 0), ("io_submit", 2), ("io_uring_enter", 426), ("io_uring_register", 427),
    ("io_uring_setup", 425), ("ioctl", 29), ("ioprio_get", 31), ("ioprio_set", 30), ("kcmp", 272), ("kexec_file_load", 294),
    ("kexec_load", 104), ("keyctl", 219), ("kill", 129), ("landlock_add_rule", 445), ("landlock_create_ruleset", 444),
    ("landlock_restrict_self", 446), ("lgetxattr", 9), ("linkat", 37), ("listen", 201), ("listmount", 458), ("listxattr", 11),
    ("listxattrat", 465), ("llistxattr", 12), ("lookup_dcookie", 18), ("lremovexattr", 15), ("lseek", 62), ("lsetxattr", 6),
    ("lsm_get_self_attr", 459), ("lsm_list_modules", 461), ("lsm_set_self_attr", 460), ("madvise", 233), ("map_shadow_stack", 453),
    ("mbind", 235), ("membarrier", 283), ("memfd_create", 279), ("memfd_secret", 447), ("migrate_pages", 238), ("mincore", 232),
    ("mkdirat", 34), ("mknodat", 33), ("mlock", 228), ("mlock2", 284), ("mlockall", 230), ("mmap", 222), ("mount", 40),
    ("mount_setattr", 442), ("move_mount", 429), ("move_pages", 239), ("mprotect", 226), ("mq_getsetattr", 185),
    ("mq_notify", 184), ("mq_open", 180), ("mq_timedreceive", 183), ("mq_timedsend", 182), ("mq_unlink", 181), ("mremap", 216),
    ("mseal", 462), ("msgctl", 187), ("msgget", 186), ("msgrcv", 188), ("msgsnd", 189), ("msync", 227), ("munlock", 229),
    ("munlockall", 231), ("munmap", 215), ("nanosleep", 101), ("newfstat", 80), ("newfstatat", 79), ("newuname", 160),
    ("open_tree", 428), ("open_tree_attr", 467), ("openat", 56), ("openat2", 437), ("perf_event_open", 241), ("personality", 92),
    ("pidfd_getfd", 438), ("pidfd_open", 434), ("pidfd_send_signal", 424), ("pipe2", 59), ("pivot_root", 41), ("pkey_alloc", 289),
    ("pkey_free", 290), ("pkey_mprotect", 288), ("ppoll", 73), ("prctl", 167), ("pread64", 67), ("preadv", 69), ("preadv2", 286),
    ("prlimit64", 261), ("process_madvise", 440), ("process_mrelease", 448), ("process_vm_readv", 270), ("process_vm_writev", 271),
    ("pselect6", 72), ("ptrace", 117), ("pwrite64", 68), ("pwritev", 70), ("pwritev2", 287), ("quotactl", 60),
    ("quotactl_fd", 443), ("read", 63), ("readahead", 213), ("readlinkat", 78), ("readv", 65), ("reboot", 142), ("recvfrom", 207),
    ("recvmmsg", 243), ("recvmsg", 212), ("remap_file_pages", 234), ("removexattr", 14), ("removexattrat", 466), ("renameat", 38),
    ("renameat2", 276), ("request_key", 218), ("restart_syscall", 128), ("rseq", 293), ("rt_sigaction", 134),
    ("rt_sigpending", 136), ("rt_sigprocmask", 135), ("rt_sigqueueinfo", 138), ("rt_sigreturn", 139), ("rt_sigsuspend", 133),
    ("rt_sigtimedwait", 137), ("rt_tgsigqueueinfo", 240), ("sched_get_priority_max", 125), ("sched_get_priority_min", 126),
    ("sched_getaffinity", 123), ("sched_getattr", 275), ("sched_getparam", 121), ("sched_getscheduler", 120),
    ("sched_rr_get_interval", 127), ("sched_setaffinity", 122), ("sched_setattr", 274), ("sched_setparam", 118),
    ("sched_setscheduler", 119), ("sched_yield", 124), ("seccomp", 277), ("semctl", 191), ("semget", 190), ("semop", 193),
    ("semtimedop", 192), ("sendfile64", 71), ("sendmmsg", 269), ("sendmsg", 211), ("sendto", 206), ("set_mempolicy", 237),
    ("set_mempolicy_home_node", 450), ("set_robust_list", 99), ("set_tid_address", 96), ("setdomainname", 162), ("setfsgid", 152),
    ("setfsuid", 151), ("setgid", 144), ("setgroups", 159), ("sethostname", 161), ("setitimer", 103), ("setns", 268),
    ("setpgid", 154), ("setpriority", 140), ("setregid", 143), ("setresgid", 149), ("setresuid", 147), ("setreuid", 145),
    ("setrlimit", 164), ("setsid", 157), ("setsockopt", 208), ("settimeofday", 170), ("setuid", 146), ("setxattr", 5),
    ("setxattrat", 463), ("shmat", 196), ("shmctl", 195), ("shmdt", 197), ("shmget", 194), ("shutdown", 210), ("sigaltstack", 132),
    ("signalfd4", 74), ("socket", 198), ("socketpair", 199), ("splice", 76), ("statfs", 43), ("statmount", 457), ("statx", 291),
    ("swapoff", 225), ("swapon", 224), ("symlinkat", 36), ("sync", 81), ("sync_file_range", 84), ("sync_file_range2", 84),
    ("syncfs", 267), ("sysinfo", 179), ("syslog", 116), ("tee", 77), ("tgkill", 131), ("timer_create", 107), ("timer_delete", 111),
    ("timer_getoverrun", 109), ("timer_gettime", 108), ("timer_settime", 110), ("timerfd_create", 85), ("timerfd_gettime", 87),
    ("timerfd_settime", 86), ("times", 153), ("tkill", 130), ("truncate", 45), ("umask", 166), ("umount", 39), ("unlinkat", 35),
    ("unshare", 97), ("userfaultfd", 282), ("utimensat", 88), ("vhangup", 58), ("vmsplice", 75), ("wait4", 260), ("waitid", 95),
    ("write", 64), ("writev", 66),
];

/// Calls that include/uapi/asm-generic/unistd.h omits, and those that the C library uses instead.
#[rustfmt::skip]
static REPLACED_CALLS: &[(&str, &str)] = &[
    ("open", "openat"), ("creat", "openat"), ("fork", "clone"), ("vfork", "clone"), ("access", "faccessat"), ("chmod", "fchmodat"),
    ("chown", "fchownat"), ("lchown", "fchownat"), ("link", "linkat"), ("symlink", "symlinkat"), ("readlink", "readlinkat"),
    ("unlink", "unlinkat"), ("rmdir", "unlinkat"), ("mkdir", "mkdirat"), ("mknod", "mknodat"), ("rename", "renameat2"),
    ("newstat", "newfstatat"), ("newlstat", "newfstatat"), ("dup2", "dup3"), ("pipe", "pipe2"), ("poll", "ppoll"),
    ("select", "pselect6"), ("pause", "ppoll"), ("epoll_create", "epoll_create1"), ("epoll_wait", "epoll_pwait"),
    ("inotify_init", "inotify_init1"), ("eventfd", "eventfd2"), ("signalfd", "signalfd4"), ("getdents", "getdents64"),
    ("utime", "utimensat"), ("utimes", "utimensat"), ("futimesat", "utimensat"), ("alarm", "setitimer"), ("time", "clock_gettime"),
    ("getpgrp", "getpgid"), ("fadvise64", "fadvise64_64"),
];

#[rustfmt::skip]
static OTHER_CALLS: &[(&str, u32)] = &[
    ("umount2", 39), ("nfsservctl", 42), ("sendfile", 71), ("fstat", 80), ("uname", 160), ("fadvise64", 223),
];
