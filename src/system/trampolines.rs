//! Functions of the kernel that take no trampoline, whatever the kernel says: the code around a program runs them, so that
//! they would call themselves without end, or they never return, so that a trampoline at their exit never ends.
//!
//! Newer kernels refuse most of them by themselves (`btf_id_deny` and `noreturn_deny` of kernel/bpf/verifier.c); on older
//! ones a trampoline there stops the machine. The table has what the newest kernel refuses, and what disassembly shows on
//! Linux 5.10 to 7.2: the functions that `__bpf_prog_enter*`, `__bpf_prog_exit*`, `__bpf_tramp_enter` and `__bpf_tramp_exit`
//! call and that ftrace lists. `tests/vm/hunt.sh -c` compares it with a kernel's image.

/// Why a function takes no trampoline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Every trampoline runs it: neither at the entry nor at the exit.
    Recursive,
    /// It does not return: not at the exit.
    NoReturn,
}

impl Refusal {
    /// In words that follow a function's name.
    pub fn said(self) -> &'static str {
        match self {
            Refusal::Recursive => "every trampoline runs it, so a trampoline on it would call itself without end",
            Refusal::NoReturn => "it does not return, so a trampoline at its exit would never end",
        }
    }
}

/// Name, where `*` at its end is any text; configurations that have it, or where it is called from.
const ROWS: &[(&str, Refusal)] = &[
    // the code around a program: notrace, but for `__bpf_tramp_exit` on 5.10
    ("__bpf_prog_enter*", Refusal::Recursive),
    ("__bpf_prog_exit*", Refusal::Recursive),
    ("__bpf_tramp_enter", Refusal::Recursive),
    ("__bpf_tramp_exit", Refusal::Recursive),
    ("bpf_prog_inc_misses_counter", Refusal::Recursive),
    ("update_prog_stats", Refusal::Recursive),
    ("__update_prog_stats", Refusal::Recursive),
    // its locks: with CONFIG_PREEMPT_RCU; without; for programs that may sleep
    ("__rcu_read_lock", Refusal::Recursive),
    ("__rcu_read_unlock", Refusal::Recursive),
    ("rcu_read_unlock_strict", Refusal::Recursive),
    ("rcu_read_unlock_trace_special", Refusal::Recursive),
    // what the last unlock calls, with what it is called for still to be done: so does the unlock of a trampoline there
    ("rcu_read_unlock_special", Refusal::Recursive),
    // since 5.11; `___migrate_enable` since 6.18
    ("migrate_disable", Refusal::Recursive),
    ("migrate_enable", Refusal::Recursive),
    ("___migrate_enable", Refusal::Recursive),
    // with CONFIG_DEBUG_PREEMPT or CONFIG_TRACE_PREEMPT_TOGGLE
    ("preempt_count_add", Refusal::Recursive),
    ("preempt_count_sub", Refusal::Recursive),
    // the time that a program takes, where the kernel counts it (kernel.bpf_stats_enabled)
    ("sched_clock", Refusal::Recursive),
    // what programs call to see whether they run already, where the kernel does not look: see `Emit::enter_alone`
    ("bpf_get_smp_processor_id", Refusal::Recursive),
    // the ends of tasks and kernel threads, by their names since 5.17 and before
    ("do_exit", Refusal::NoReturn),
    ("do_group_exit", Refusal::NoReturn),
    ("do_task_dead", Refusal::NoReturn),
    ("make_task_dead", Refusal::NoReturn),
    ("rewind_stack_and_make_dead", Refusal::NoReturn),
    ("rewind_stack_do_exit", Refusal::NoReturn),
    ("kthread_exit", Refusal::NoReturn),
    ("kthread_complete_and_exit", Refusal::NoReturn),
    ("complete_and_exit", Refusal::NoReturn),
    ("__module_put_and_kthread_exit", Refusal::NoReturn),
    ("__module_put_and_exit", Refusal::NoReturn),
    ("module_put_and_exit", Refusal::NoReturn),
    ("__kunit_abort", Refusal::NoReturn),
    ("kunit_try_catch_throw", Refusal::NoReturn),
    ("__x64_sys_exit", Refusal::NoReturn),
    ("__x64_sys_exit_group", Refusal::NoReturn),
    ("__ia32_sys_exit", Refusal::NoReturn),
    ("__ia32_sys_exit_group", Refusal::NoReturn),
    ("__arm64_sys_exit", Refusal::NoReturn),
    ("__arm64_sys_exit_group", Refusal::NoReturn),
    ("__se_sys_exit", Refusal::NoReturn),
    ("__se_sys_exit_group", Refusal::NoReturn),
    ("__do_sys_exit", Refusal::NoReturn),
    ("__do_sys_exit_group", Refusal::NoReturn),
];

/// Why this function takes no trampoline at its entry, or at its exit; none where it takes one. The compiler's parts of a
/// function (`name.part.0`) count as the function.
pub fn refused(function: &str, exit: bool) -> Option<Refusal> {
    let name = function.split('.').next().unwrap_or(function);
    let is = |pattern: &str| match pattern.strip_suffix('*') {
        Some(head) => name.starts_with(head),
        None => name == pattern,
    };
    ROWS.iter().find(|(pattern, why)| is(pattern) && (exit || *why == Refusal::Recursive)).map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_trampoline_runs_takes_none() {
        for exit in [false, true] {
            for name in ["__rcu_read_lock", "__bpf_prog_enter_recur", "migrate_enable", "rcu_read_unlock_special.isra.0"] {
                assert_eq!(refused(name, exit), Some(Refusal::Recursive), "{name}");
            }
            for name in ["vfs_read", "rcu_read_unlock_stric", "migrate_enable2", "", "."] {
                assert_eq!(refused(name, exit), None, "{name}");
            }
        }
        assert_eq!((refused("do_exit", false), refused("do_exit", true)), (None, Some(Refusal::NoReturn)));
    }
}
