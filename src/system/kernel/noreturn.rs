//! Functions that do not return, so a probe on their return is never hit, and functions that return twice.

/// Kernel functions in `tools/objtool/noreturns.h` on every kernel that rbt supports, by their old and new names. (Functions
/// that take a CPU offline are absent, because they return on some kernels.)
const KERNEL: &[&str] = &[
    // Ends of tasks and kernel threads, by their names since 5.17 and before.
    "do_exit",
    "do_group_exit",
    "do_task_dead",
    "make_task_dead",
    "rewind_stack_and_make_dead",
    "rewind_stack_do_exit",
    "kthread",
    "kthread_exit",
    "kthread_complete_and_exit",
    "complete_and_exit",
    "__module_put_and_kthread_exit",
    "__module_put_and_exit",
    "module_put_and_exit",
    "__kunit_abort",
    "kunit_try_catch_throw",
    // System calls that end a task, or return to the code that a signal interrupted.
    "__x64_sys_exit",
    "__x64_sys_exit_group",
    "__ia32_sys_exit",
    "__ia32_sys_exit_group",
    "__arm64_sys_exit",
    "__arm64_sys_exit_group",
    "__se_sys_exit",
    "__se_sys_exit_group",
    "__do_sys_exit",
    "__do_sys_exit_group",
    // Shutdown of the machine.
    "panic",
    "vpanic",
    "nmi_panic_self_stop",
    "panic_smp_self_stop",
    "stop_this_cpu",
    "machine_real_restart",
    "__stack_chk_fail",
    "fortify_panic",
    "__fortify_panic",
    "usercopy_abort",
    "sev_es_terminate",
    "snp_abort",
    // Start of the kernel, and idle loops.
    "start_kernel",
    "x86_64_start_kernel",
    "x86_64_start_reservations",
    "rest_init",
    "start_secondary",
    "cpu_startup_entry",
];

/// System calls without an exit event: the task ends, or continues with the registers before a signal, and so with the number
/// of another call.
const SYSCALLS: &[&str] = &["exit", "exit_group", "rt_sigreturn"];

/// Functions of libraries, which rarely have the debug information that would show it.
const USER: &[&str] = &[
    "exit",
    "_exit",
    "_Exit",
    "quick_exit",
    "abort",
    "pthread_exit",
    "thrd_exit",
    "longjmp",
    "_longjmp",
    "siglongjmp",
    "__longjmp_chk",
    "__libc_longjmp",
    "__libc_siglongjmp",
    "__libc_start_main",
    "__libc_fatal",
    "__assert",
    "__assert_fail",
    "__assert_perror_fail",
    "__stack_chk_fail",
    "__chk_fail",
    "__fortify_fail",
    "err",
    "errx",
    "verr",
    "verrx",
    // C++
    "__cxa_throw",
    "__cxa_rethrow",
    "_Unwind_Resume",
    "_ZSt9terminatev",
];

/// Does this kernel function never return? The compiler's parts of a function (`name.part.0`) count as the function.
pub fn is_noreturn_kernel_function(function: &str) -> bool {
    KERNEL.contains(&function.split('.').next().unwrap_or(function))
}

/// Does this system call have no exit event?
pub fn is_noreturn_syscall(name: &str) -> bool {
    SYSCALLS.contains(&name)
}

/// System calls, and functions of the C library for them, that return in the new process or thread as well.
const TWICE: [&str; 6] = ["clone", "clone3", "fork", "vfork", "__clone", "_Fork"];

/// Does this system call or function return once more, where nothing has entered it?
pub fn returns_twice(name: &str) -> bool {
    TWICE.contains(&name)
}

/// All system calls without an exit event.
pub fn syscalls() -> impl Iterator<Item = &'static str> {
    SYSCALLS.iter().copied()
}

/// Does the library function with this name never return?
pub fn is_noreturn_library_function(function: &str) -> bool {
    USER.contains(&function)
}
