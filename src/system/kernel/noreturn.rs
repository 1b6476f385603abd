//! Functions that do not return, so a probe on their return is never hit.

/// Of the kernel: those that `tools/objtool/noreturns.h` has on every kernel that rbt runs on, by their names then and now.
/// (Not those by which a CPU goes offline: some kernels come back from there.)
const KERNEL: &[&str] = &[
    // the ends of tasks and kernel threads, by their names since 5.17 and before
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
    // system calls: those that end a task, and the one that goes back to what a signal interrupted
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
    // the end of the machine
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
    // its start, and what a CPU does for ever after
    "start_kernel",
    "x86_64_start_kernel",
    "x86_64_start_reservations",
    "rest_init",
    "start_secondary",
    "cpu_startup_entry",
];

/// System calls whose exit no tracepoint tells: the task ends, or goes on with the registers of what a signal interrupted, and
/// so with another call's number.
const SYSCALLS: &[&str] = &["exit", "exit_group", "rt_sigreturn"];

/// Of libraries, whose debug information is seldom there to say so.
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

/// Does this function of the kernel never return? The compiler's parts of a function (`name.part.0`) count as the function.
pub fn of_kernel(function: &str) -> bool {
    KERNEL.contains(&function.split('.').next().unwrap_or(function))
}

/// Is the exit of this system call never told?
pub fn of_syscall(name: &str) -> bool {
    SYSCALLS.contains(&name)
}

/// All such calls.
pub fn syscalls() -> impl Iterator<Item = &'static str> {
    SYSCALLS.iter().copied()
}

/// Does a library's function of this name never return?
pub fn of_library(function: &str) -> bool {
    USER.contains(&function)
}
