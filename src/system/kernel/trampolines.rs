//! Kernel functions on which rbt allows no trampoline, whatever the kernel says: the code of trampolines calls them, so a
//! trampoline would recurse endlessly, or they never return, so a trampoline on their exit never ends.
//!
//! Newer kernels reject most of them (`btf_id_deny` and `noreturn_deny` of kernel/bpf/verifier.c); on older ones a trampoline
//! there stops the machine. The table has the functions that the newest kernel rejects, and those that disassembly shows on
//! Linux 5.10 to 7.2: the functions that `__bpf_prog_enter*`, `__bpf_prog_exit*`, `__bpf_tramp_enter` and `__bpf_tramp_exit`
//! call and that ftrace lists. `tests/vm/hunt.sh -c` compares it with a kernel's image. `noreturn.rs` has the functions that do
//! not return.

use crate::system::kernel::noreturn;

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
            Refusal::Recursive => "every trampoline calls it, so a trampoline on it would recurse endlessly",
            Refusal::NoReturn => "it does not return, so a trampoline at its exit would never end",
        }
    }
}

/// What every trampoline runs: names, where `*` at the end is any text; configurations that have it, or where it is called from.
const ROWS: &[&str] = &[
    // the code around a program: notrace, but for `__bpf_tramp_exit` on 5.10
    "__bpf_prog_enter*",
    "__bpf_prog_exit*",
    "__bpf_tramp_enter",
    "__bpf_tramp_exit",
    "bpf_prog_inc_misses_counter",
    "update_prog_stats",
    "__update_prog_stats",
    // its locks: with CONFIG_PREEMPT_RCU; without; for programs that may sleep
    "__rcu_read_lock",
    "__rcu_read_unlock",
    "rcu_read_unlock_strict",
    "rcu_read_unlock_trace_special",
    // what the last unlock calls, with what it is called for still to be done: so does the unlock of a trampoline there
    "rcu_read_unlock_special",
    // and what that one calls before it has noted that it did: with CONFIG_PREEMPT_RCU, where an interrupt came between the two,
    // or while `sched_set_need_resched_tp` is traced
    "raise_softirq_irqoff",
    "__raise_softirq_irqoff",
    "__trace_set_need_resched",
    // since 5.11; `___migrate_enable` since 6.18
    "migrate_disable",
    "migrate_enable",
    "___migrate_enable",
    // with CONFIG_DEBUG_PREEMPT or CONFIG_TRACE_PREEMPT_TOGGLE
    "preempt_count_add",
    "preempt_count_sub",
    // the time that a program takes, where the kernel counts it (kernel.bpf_stats_enabled)
    "sched_clock",
    // what programs call to see whether they run already, where the kernel does not look: see `Builder::enter_alone`
    "bpf_get_smp_processor_id",
];

/// Why this function takes no trampoline at its entry, or at its exit; none where it takes one. The compiler's parts of a
/// function (`name.part.0`) count as the function.
pub fn refused(function: &str, exit: bool) -> Option<Refusal> {
    let name = function.split('.').next().unwrap_or(function);
    let is = |pattern: &str| match pattern.strip_suffix('*') {
        Some(head) => name.starts_with(head),
        None => name == pattern,
    };
    match ROWS.iter().any(|pattern| is(pattern)) {
        true => Some(Refusal::Recursive),
        false => (exit && noreturn::of_kernel(function)).then_some(Refusal::NoReturn),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_trampoline_runs_takes_none() {
        for exit in [false, true] {
            for name in
                ["__rcu_read_lock", "__bpf_prog_enter_recur", "migrate_enable", "rcu_read_unlock_special.isra.0", "raise_softirq_irqoff"]
            {
                assert_eq!(refused(name, exit), Some(Refusal::Recursive), "{name}");
            }
            for name in ["vfs_read", "rcu_read_unlock_stric", "migrate_enable2", "", "."] {
                assert_eq!(refused(name, exit), None, "{name}");
            }
        }
        assert_eq!((refused("do_exit", false), refused("do_exit", true)), (None, Some(Refusal::NoReturn)));
        assert_eq!((refused("panic", false), refused("panic", true)), (None, Some(Refusal::NoReturn)));
    }
}
