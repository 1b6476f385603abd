//! Kernel functions that rbt never puts a trampoline, or a kretprobe, on, whatever the kernel says. Either the code of
//! trampolines or of kretprobes calls them, so one on them would recurse endlessly; or they never return, so a trampoline on
//! their exit never ends; or BPF's maps call them while they hold a lock, which the program on the trampoline may then wait for.
//!
//! Newer kernels reject most of them (`btf_id_deny` and `noreturn_deny` of kernel/bpf/verifier.c); on older ones, such a
//! trampoline stops the machine. The table has the functions that the newest kernel rejects, and those found by disassembly on
//! Linux 5.10 to 7.2: the functions that ftrace lists and that `__bpf_prog_enter*`, `__bpf_prog_exit*`, `__bpf_tramp_enter` and
//! `__bpf_tramp_exit` call. `tests/vm/hunt.sh -c` compares the table with a kernel image. `noreturn.rs` has the functions that
//! do not return.

use crate::system::kernel::noreturn;

/// Why a function cannot have a trampoline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Every trampoline calls it: neither entry nor exit.
    Recursive,
    /// It does not return: no exit.
    NoReturn,
    /// At this end, a lock of a map may be held.
    Locked,
}

impl Refusal {
    /// The reason, as text that follows the name of a function.
    pub fn reason(self) -> &'static str {
        match self {
            Refusal::Recursive => "every trampoline calls it, so a trampoline on it would recurse endlessly",
            Refusal::NoReturn => "it does not return, so a trampoline at its exit would never end",
            Refusal::Locked => "BPF's maps hold a lock there, so a program on a trampoline could wait for itself",
        }
    }
}

/// Functions that trampolines call: names, in which a final `*` matches any text. Comments have the configuration or the
/// caller.
const ROWS: &[&str] = &[
    // The code around a program: notrace, except for `__bpf_tramp_exit` on 5.10.
    "__bpf_prog_enter*",
    "__bpf_prog_exit*",
    "__bpf_tramp_enter",
    "__bpf_tramp_exit",
    "bpf_prog_inc_misses_counter",
    "update_prog_stats",
    "__update_prog_stats",
    // Its locks: with CONFIG_PREEMPT_RCU; without it; for sleepable programs.
    "__rcu_read_lock",
    "__rcu_read_unlock",
    "rcu_read_unlock_strict",
    "rcu_read_unlock_trace_special",
    // The last unlock calls it while its request is pending, so the unlock in a trampoline would call it again.
    "rcu_read_unlock_special",
    // It calls these before it clears the request: with CONFIG_PREEMPT_RCU, if an interrupt came in between, or while
    // `sched_set_need_resched_tp` is traced.
    "raise_softirq_irqoff",
    "__raise_softirq_irqoff",
    "__trace_set_need_resched",
    // Since 5.11; `___migrate_enable` since 6.18.
    "migrate_disable",
    "migrate_enable",
    "___migrate_enable",
    // With CONFIG_DEBUG_PREEMPT or CONFIG_TRACE_PREEMPT_TOGGLE.
    "preempt_count_add",
    "preempt_count_sub",
    // The kernel measures the time of programs with these (kernel.bpf_stats_enabled).
    "sched_clock",
    // rbt's programs call these to detect recursion if the kernel does not: see `Builder::enter_alone`.
    "bpf_get_smp_processor_id",
];

/// Functions at whose exit (true) or entry (false) a map may hold a lock. The kernel keeps each program from calling itself,
/// but not from interrupting another one: a program that takes an element of a hash from the list of free ones
/// (`pcpu_freelist_pop`), and another at the exit of `_raw_spin_lock` that does the same, wait forever (seen on Linux 6.1).
/// Programs on kprobes do not run within other programs on kprobes, nor within bpf(2). Since 6.16, these locks of maps are of
/// another kind.
const UNDER_MAP_LOCK: &[(&str, bool)] = &[
    ("_raw_spin_lock*", true),
    ("_raw_spin_trylock*", true),
    ("native_queued_spin_lock_slowpath", true),
    ("queued_spin_lock_slowpath", true),
    ("__pv_queued_spin_lock_slowpath", true),
    ("_raw_spin_unlock*", false),
    // With CONFIG_DEBUG_SPINLOCK.
    ("do_raw_spin_lock*", true),
    ("do_raw_spin_trylock", true),
    ("do_raw_spin_unlock", false),
];

/// Functions that the code around each kretprobe calls (`__kretprobe_trampoline_handler` of Linux 5.10 to 5.17) and that the kernel's
/// blacklist lacks: the return of one calls it again, without end (seen on Linux 5.10).
const IN_KRETPROBES: &[&str] = &["kprobe_busy_begin", "kprobe_busy_end"];

/// Does every kretprobe call this function, so that it can have none?
pub fn runs_in_kretprobes(function: &str) -> bool {
    IN_KRETPROBES.contains(&function)
}

/// Why this function cannot have a trampoline at its entry, or at its exit; `None` if it can. The compiler's parts of a
/// function (`name.part.0`) count as the function.
pub fn refused(function: &str, exit: bool) -> Option<Refusal> {
    let name = function.split('.').next().unwrap_or(function);
    let is = |pattern: &str| match pattern.strip_suffix('*') {
        Some(head) => name.starts_with(head),
        None => name == pattern,
    };
    if ROWS.iter().any(|pattern| is(pattern)) {
        return Some(Refusal::Recursive);
    }
    if UNDER_MAP_LOCK.iter().any(|(pattern, at_exit)| *at_exit == exit && is(pattern)) {
        return Some(Refusal::Locked);
    }
    (exit && noreturn::is_noreturn_kernel_function(function)).then_some(Refusal::NoReturn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kretprobes_reject_functions_that_they_call() {
        assert!(runs_in_kretprobes("kprobe_busy_end") && !runs_in_kretprobes("kprobe_busy") && !runs_in_kretprobes("vfs_read"));
    }

    #[test]
    fn trampolines_reject_functions_that_they_call() {
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
        for name in ["_raw_spin_lock", "_raw_spin_lock_irqsave", "_raw_spin_trylock", "native_queued_spin_lock_slowpath"] {
            assert_eq!((refused(name, false), refused(name, true)), (None, Some(Refusal::Locked)), "{name}");
        }
        assert_eq!(refused("_raw_spin_unlock_irqrestore", false), Some(Refusal::Locked));
        assert_eq!((refused("_raw_spin_unlock", true), refused("_raw_read_lock", true)), (None, None));
        assert_eq!((refused("do_exit", false), refused("do_exit", true)), (None, Some(Refusal::NoReturn)));
        assert_eq!((refused("panic", false), refused("panic", true)), (None, Some(Refusal::NoReturn)));
    }
}
