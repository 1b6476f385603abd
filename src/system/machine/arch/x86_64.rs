//! x86-64.

use super::super::operands::{self, At};
use super::{Arch, Call, Convention, OptimizedUprobe, ThreadRegister, Unwind};

/// Offsets in `struct pt_regs` (arch/x86/include/asm/ptrace.h).
const AX: u32 = 80;
const BX: u32 = 40;
const CX: u32 = 88;
const DX: u32 = 96;
const SI: u32 = 104;
const DI: u32 = 112;
const BP: u32 = 32;
const R8: u32 = 72;
const R9: u32 = 64;
const R10: u32 = 56;
const R11: u32 = 48;
const ORIG_AX: u32 = 120;
const IP: u32 = 128;
const CS: u32 = 136;
const SP: u32 = 152;

pub(super) const ARCH: Arch = Arch {
    name: "x86_64",
    elf: 62,
    folder: "x86",
    macros: "__x86_64__ 1\n__x86_64 1\n__amd64__ 1\n__amd64 1\n",
    registers: &[
        ("r15", 0),
        ("r14", 8),
        ("r13", 16),
        ("r12", 24),
        ("bp", BP),
        ("bx", BX),
        ("r11", R11),
        ("r10", R10),
        ("r9", R9),
        ("r8", R8),
        ("ax", AX),
        ("cx", CX),
        ("dx", DX),
        ("si", SI),
        ("di", DI),
        ("orig_rax", ORIG_AX),
        ("ip", IP),
        ("pc", IP),
        ("cs", CS),
        ("flags", 144),
        ("sp", SP),
        ("ss", 160),
    ],
    by_number: &[AX, CX, DX, BX, SP, BP, SI, DI, R8, R9, R10, R11, 24, 16, 8, 0],
    // System V ABI
    args: &[DI, SI, DX, CX, R8, R9],
    convention: Convention {
        large_by_reference: false,
        mixed: true,
        result_comes_first: true,
        aligns_pairs: false,
        overflow_is_final: false,
    },
    // `cmd/compile/abi-internal.md` of Go
    go_args: &[AX, BX, CX, DI, SI, R8, R9, R10, R11],
    // syscall(2)
    syscall_args: &[DI, SI, DX, R10, R8, R9],
    result: AX,
    syscall_number: ORIG_AX,
    ip: IP,
    sp: SP,
    stack_args: 8,
    go_stack_args: 8,
    return_address: None,
    trap: 1,
    // arch/x86/kernel/uprobes.c: `nop; nopl 0x0(%rax,%rax,1)`, and uprobe(2)
    optimized_uprobe: Some(OptimizedUprobe { marker: &[0x90, 0x0f, 0x1f, 0x44, 0x00, 0x00], distance: 1, call: 336 }),
    // `call`, with the distance in the following four bytes.
    call: Call { operation: (24, 0xe8), mask: 0xff, distance: (0, 32, 0), back: 0 },
    extra_frames: 0,
    always_has_trampolines: true,
    // the links were added in the same version (arch/x86/net/bpf_jit_comp.c)
    stack_arguments: ("BPF_LINK_TYPE_UPROBE_MULTI", "6.6"),
    // `TS_COMPAT` of arch/x86/include/asm/thread_info.h
    compat: ("status", 2),
    // System V ABI, figure 3.36; `__USER_CS` of arch/x86/include/asm/segment.h
    unwind: Unwind {
        registers: [IP, SP, BP, BX],
        by_dwarf: [7, 6],
        third_by_dwarf: 3,
        first_frame: &[80, 96, 88, BX, 104, 112, BP, SP, 72, 64, 56, 48, 24, 16, 8, 0],
        return_address: 16,
        links: false,
        user_mode: (CS, 0xffff, 0x33),
        // `orig_ax`, and arch/x86/entry/syscalls/syscall_64.tbl
        signal_return: Some((120, 15)),
        pt_regs: 168,
        // the base address of the segment `fs`
        thread: ThreadRegister { path: &["thread", "fsbase"], max_below: 0 },
    },
    ordered_stores: true,
    private_stacks: true,
    // System V ABI, figure 3.36
    by_dwarf: &[0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15],
    vectors_by_dwarf: (17, 16),
    operand,
    // user_mode() of arch/x86/include/asm/ptrace.h
    mode: (CS, 3),
    user_is_zero: false,
    syscall_function: "__x64_sys_",
    watch_modes: &["w", "rw", "x"],
    lists_patch_sites: false,
    calls: CALLS,
    replaced_calls: &[("fadvise64_64", "fadvise64"), ("sync_file_range2", "sync_file_range")],
    other_calls: OTHER_CALLS,
};

/// An operand in the syntax of AT&T:
///
/// | operand | meaning |
/// |---|---|
/// | `%rbx`, `%eax`, `%dl`, `%ah` | a register, or the part of it with this name |
/// | `$-7` | a number |
/// | `-16(%rbp)`, `4+-28(%rsp)`, `(%rax,%rcx,8)` | memory, as the assembler addresses it |
/// | `counter(%rip)`, `table+8(%rip)` | memory at a symbol |
/// | `table(,%rax,4)`, `counter` | the same in a program that is not position independent |
fn operand(text: &str) -> Option<At> {
    if let Some(number) = text.strip_prefix('$') {
        return operands::number(number).map(At::Number);
    }
    if let Some(name) = text.strip_prefix('%') {
        let second = SECOND_BYTES.iter().find(|(part, _)| *part == name).map(|(_, register)| At::SecondByte(*register));
        return second.or_else(|| register(name).map(At::Register));
    }
    let Some((offset, registers)) = text.strip_suffix(')').and_then(|t| t.split_once('(')) else {
        let (symbol, offset) = operands::displacement(text)?;
        return Some(At::Memory { symbol, base: None, index: None, offset });
    };
    let (symbol, offset) = if offset.is_empty() { (None, 0) } else { operands::displacement(offset)? };
    let mut parts = registers.split(',').map(str::trim);
    let base = match parts.next()? {
        "" => None,
        // The assembler encodes a symbol as a distance from `%rip`.
        "%rip" => return symbol.map(|name| At::Memory { symbol: Some(name), base: None, index: None, offset }),
        name => Some(register(name.strip_prefix('%')?)?),
    };
    let index = match parts.next() {
        Some(name) => {
            let scale: u32 = parts.next().map_or(Some(1), |s| s.parse().ok()).filter(|s| matches!(s, 1 | 2 | 4 | 8))?;
            Some((register(name.strip_prefix('%')?)?, scale))
        }
        None => None,
    };
    Some(At::Memory { symbol, base, index, offset })
}

/// Names of the second bytes of registers.
const SECOND_BYTES: [(&str, u32); 4] = [("ah", AX), ("bh", BX), ("ch", CX), ("dh", DX)];

/// The full register that contains a named part at its low end: `rax` for `eax`, `ax`, `al`; `r8` for `r8d`, `r8w`, `r8b`.
fn register(name: &str) -> Option<u32> {
    let number = |name: &str| ARCH.register(name);
    if let Some(rest) = name.strip_prefix('r').filter(|r| r.starts_with(|c: char| c.is_ascii_digit())) {
        return number(&format!("r{}", rest.trim_end_matches(['d', 'w', 'b', 'l'])));
    }
    let short = name.strip_prefix(['r', 'e']).unwrap_or(name);
    match short {
        "al" | "bl" | "cl" | "dl" => number(&format!("{}x", short.trim_end_matches('l'))),
        "sil" | "dil" | "bpl" | "spl" => number(short.trim_end_matches('l')),
        "ax" | "bx" | "cx" | "dx" | "si" | "di" | "bp" | "sp" | "ip" => number(short),
        _ => None,
    }
}

/// From arch/x86/entry/syscalls/syscall_64.tbl.
#[rustfmt::skip]
static CALLS: &[(&str, u32)] = &[
    ("accept", 43), ("accept4", 288), ("access", 21), ("acct", 163), ("add_key", 248), ("adjtimex", 159), ("alarm", 37),
    ("arch_prctl", 158), ("bind", 49), ("bpf", 321), ("brk", 12), ("cachestat", 451), ("capget", 125), ("capset", 126), ("chdir", 80),
    ("chmod", 90), ("chown", 92), ("chroot", 161), ("clock_adjtime", 305), ("clock_getres", 229), ("clock_gettime", 228),
    ("clock_nanosleep", 230), ("clock_settime", 227), ("clone", 56), ("clone3", 435), ("close", 3), ("close_range", 436),
    ("connect", 42), ("copy_file_range", 326), ("creat", 85), ("delete_module", 176), ("dup", 32), ("dup2", 33), ("dup3", 292),
    ("epoll_create", 213), ("epoll_create1", 291), ("epoll_ctl", 233), ("epoll_pwait", 281), ("epoll_pwait2", 441), ("epoll_wait", 232),
    ("eventfd", 284), ("eventfd2", 290), ("execve", 59), ("execveat", 322), ("exit", 60), ("exit_group", 231), ("faccessat", 269),
    ("faccessat2", 439), ("fadvise64", 221), ("fallocate", 285), ("fanotify_init", 300), ("fanotify_mark", 301), ("fchdir", 81),
    ("fchmod", 91), ("fchmodat", 268), ("fchmodat2", 452), ("fchown", 93), ("fchownat", 260), ("fcntl", 72), ("fdatasync", 75),
    ("fgetxattr", 193), ("file_getattr", 468), ("file_setattr", 469), ("finit_module", 313), ("flistxattr", 196), ("flock", 73),
    ("fork", 57), ("fremovexattr", 199), ("fsconfig", 431), ("fsetxattr", 190), ("fsmount", 432), ("fsopen", 430), ("fspick", 433),
    ("fstatfs", 138), ("fsync", 74), ("ftruncate", 77), ("futex", 202), ("futex_requeue", 456), ("futex_wait", 455),
    ("futex_waitv", 449), ("futex_wake", 454), ("futimesat", 261), ("get_mempolicy", 239), ("get_robust_list", 274), ("getcpu", 309),
    ("getcwd", 79), ("getdents", 78), ("getdents64", 217), ("getegid", 108), ("geteuid", 107), ("getgid", 104), ("getgroups", 115),
    ("getitimer", 36), ("getpeername", 52), ("getpgid", 121), ("getpgrp", 111), ("getpid", 39), ("getppid", 110), ("getpriority", 140),
    ("getrandom", 318), ("getresgid", 120), ("getresuid", 118), ("getrlimit", 97), ("getrusage", 98), ("getsid", 124),
    ("getsockname", 51), ("getsockopt", 55), ("gettid", 186), ("gettimeofday", 96), ("getuid", 102), ("getxattr", 191),
    ("getxattrat", 464), ("init_module", 175), ("inotify_add_watch", 254), ("inotify_init", 253), ("inotify_init1", 294),
    ("inotify_rm_watch", 255), ("io_cancel", 210), ("io_destroy", 207), ("io_getevents", 208), ("io_pgetevents", 333),
    ("io_setup", 206), ("io_submit", 209), ("io_uring_enter", 426), ("io_uring_register", 427), ("io_uring_setup", 425), ("ioctl", 16),
    ("ioperm", 173), ("iopl", 172), ("ioprio_get", 252), ("ioprio_set", 251), ("kcmp", 312), ("kexec_file_load", 320),
    ("kexec_load", 246), ("keyctl", 250), ("kill", 62), ("landlock_add_rule", 445), ("landlock_create_ruleset", 444),
    ("landlock_restrict_self", 446), ("lchown", 94), ("lgetxattr", 192), ("link", 86), ("linkat", 265), ("listen", 50),
    ("listmount", 458), ("listxattr", 194), ("listxattrat", 465), ("llistxattr", 195), ("lookup_dcookie", 212), ("lremovexattr", 198),
    ("lseek", 8), ("lsetxattr", 189), ("lsm_get_self_attr", 459), ("lsm_list_modules", 461), ("lsm_set_self_attr", 460),
    ("madvise", 28), ("map_shadow_stack", 453), ("mbind", 237), ("membarrier", 324), ("memfd_create", 319), ("memfd_secret", 447),
    ("migrate_pages", 256), ("mincore", 27), ("mkdir", 83), ("mkdirat", 258), ("mknod", 133), ("mknodat", 259), ("mlock", 149),
    ("mlock2", 325), ("mlockall", 151), ("mmap", 9), ("modify_ldt", 154), ("mount", 165), ("mount_setattr", 442), ("move_mount", 429),
    ("move_pages", 279), ("mprotect", 10), ("mq_getsetattr", 245), ("mq_notify", 244), ("mq_open", 240), ("mq_timedreceive", 243),
    ("mq_timedsend", 242), ("mq_unlink", 241), ("mremap", 25), ("mseal", 462), ("msgctl", 71), ("msgget", 68), ("msgrcv", 70),
    ("msgsnd", 69), ("msync", 26), ("munlock", 150), ("munlockall", 152), ("munmap", 11), ("name_to_handle_at", 303), ("nanosleep", 35),
    ("newfstat", 5), ("newfstatat", 262), ("newlstat", 6), ("newstat", 4), ("newuname", 63), ("open", 2), ("open_by_handle_at", 304),
    ("open_tree", 428), ("open_tree_attr", 467), ("openat", 257), ("openat2", 437), ("pause", 34), ("perf_event_open", 298),
    ("personality", 135), ("pidfd_getfd", 438), ("pidfd_open", 434), ("pidfd_send_signal", 424), ("pipe", 22), ("pipe2", 293),
    ("pivot_root", 155), ("pkey_alloc", 330), ("pkey_free", 331), ("pkey_mprotect", 329), ("poll", 7), ("ppoll", 271), ("prctl", 157),
    ("pread64", 17), ("preadv", 295), ("preadv2", 327), ("prlimit64", 302), ("process_madvise", 440), ("process_mrelease", 448),
    ("process_vm_readv", 310), ("process_vm_writev", 311), ("pselect6", 270), ("ptrace", 101), ("pwrite64", 18), ("pwritev", 296),
    ("pwritev2", 328), ("quotactl", 179), ("quotactl_fd", 443), ("read", 0), ("readahead", 187), ("readlink", 89), ("readlinkat", 267),
    ("readv", 19), ("reboot", 169), ("recvfrom", 45), ("recvmmsg", 299), ("recvmsg", 47), ("remap_file_pages", 216),
    ("removexattr", 197), ("removexattrat", 466), ("rename", 82), ("renameat", 264), ("renameat2", 316), ("request_key", 249),
    ("restart_syscall", 219), ("rmdir", 84), ("rseq", 334), ("rt_sigaction", 13), ("rt_sigpending", 127), ("rt_sigprocmask", 14),
    ("rt_sigqueueinfo", 129), ("rt_sigreturn", 15), ("rt_sigsuspend", 130), ("rt_sigtimedwait", 128), ("rt_tgsigqueueinfo", 297),
    ("sched_get_priority_max", 146), ("sched_get_priority_min", 147), ("sched_getaffinity", 204), ("sched_getattr", 315),
    ("sched_getparam", 143), ("sched_getscheduler", 145), ("sched_rr_get_interval", 148), ("sched_setaffinity", 203),
    ("sched_setattr", 314), ("sched_setparam", 142), ("sched_setscheduler", 144), ("sched_yield", 24), ("seccomp", 317), ("select", 23),
    ("semctl", 66), ("semget", 64), ("semop", 65), ("semtimedop", 220), ("sendfile64", 40), ("sendmmsg", 307), ("sendmsg", 46),
    ("sendto", 44), ("set_mempolicy", 238), ("set_mempolicy_home_node", 450), ("set_robust_list", 273), ("set_tid_address", 218),
    ("setdomainname", 171), ("setfsgid", 123), ("setfsuid", 122), ("setgid", 106), ("setgroups", 116), ("sethostname", 170),
    ("setitimer", 38), ("setns", 308), ("setpgid", 109), ("setpriority", 141), ("setregid", 114), ("setresgid", 119),
    ("setresuid", 117), ("setreuid", 113), ("setrlimit", 160), ("setsid", 112), ("setsockopt", 54), ("settimeofday", 164),
    ("setuid", 105), ("setxattr", 188), ("setxattrat", 463), ("shmat", 30), ("shmctl", 31), ("shmdt", 67), ("shmget", 29),
    ("shutdown", 48), ("sigaltstack", 131), ("signalfd", 282), ("signalfd4", 289), ("socket", 41), ("socketpair", 53), ("splice", 275),
    ("statfs", 137), ("statmount", 457), ("statx", 332), ("swapoff", 168), ("swapon", 167), ("symlink", 88), ("symlinkat", 266),
    ("sync", 162), ("sync_file_range", 277), ("syncfs", 306), ("sysctl", 156), ("sysfs", 139), ("sysinfo", 99), ("syslog", 103),
    ("tee", 276), ("tgkill", 234), ("time", 201), ("timer_create", 222), ("timer_delete", 226), ("timer_getoverrun", 225),
    ("timer_gettime", 224), ("timer_settime", 223), ("timerfd_create", 283), ("timerfd_gettime", 287), ("timerfd_settime", 286),
    ("times", 100), ("tkill", 200), ("truncate", 76), ("umask", 95), ("umount", 166), ("unlink", 87), ("unlinkat", 263),
    ("unshare", 272), ("uprobe", 336), ("uretprobe", 335), ("uselib", 134), ("userfaultfd", 323), ("ustat", 136), ("utime", 132),
    ("utimensat", 280), ("utimes", 235), ("vfork", 58), ("vhangup", 153), ("vmsplice", 278), ("wait4", 61), ("waitid", 247),
    ("write", 1), ("writev", 20),
];

#[rustfmt::skip]
static OTHER_CALLS: &[(&str, u32)] = &[
    ("stat", 4), ("fstat", 5), ("lstat", 6), ("sendfile", 40), ("uname", 63), ("_sysctl", 156), ("umount2", 166),
    ("create_module", 174), ("get_kernel_syms", 177), ("query_module", 178), ("nfsservctl", 180), ("getpmsg", 181), ("putpmsg", 182),
    ("afs_syscall", 183), ("tuxcall", 184), ("security", 185), ("set_thread_area", 205), ("get_thread_area", 211),
    ("epoll_ctl_old", 214), ("epoll_wait_old", 215), ("vserver", 236),
];
