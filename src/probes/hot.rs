//! Places that are known to be reached very often: a row for each group.

use super::{Attach, ProbeSite, syscall};

/// Places of one kind.
struct Row {
    /// Does the mechanism trace such places, and by which name?
    name: fn(&Attach) -> Option<&String>,
    /// The names.
    places: &'static [&'static str],
}

const HOT: &[Row] = &[
    Row {
        // raw tracepoints have no category
        name: |attach| {
            if let Attach::Tracepoint { event: name, .. } | Attach::RawTracepoint { name, .. } = attach { Some(name) } else { None }
        },
        places: &[
            "hrtimer_cancel",
            "hrtimer_start",
            "kfree",
            "kmalloc",
            "kmem_cache_alloc",
            "kmem_cache_free",
            "mm_page_alloc",
            "mm_page_free",
            "rcu_utilization",
            "sched_stat_runtime",
            "sched_switch",
            "sched_wakeup",
            "sched_waking",
            "softirq_entry",
            "softirq_exit",
            "softirq_raise",
            "sys_enter",
            "sys_exit",
        ],
    },
    Row {
        name: |attach| {
            if let Attach::Kprobe { function, .. } | Attach::Trampoline { program: None, function, .. } = attach {
                Some(function)
            } else {
                None
            }
        },
        places: &[
            "__kmalloc",
            "__schedule",
            "finish_task_switch",
            "kfree",
            "kmem_cache_alloc",
            "kmem_cache_free",
            "mutex_lock",
            "mutex_unlock",
            "schedule",
            "try_to_wake_up",
            "update_curr",
        ],
    },
    Row {
        name: |attach| if let Attach::Uprobe { function, .. } = attach { Some(function) } else { None },
        places: &[
            "_ZdlPv",
            "_Znwm",
            "calloc",
            "free",
            "malloc",
            "memcpy",
            "memmove",
            "memset",
            "pthread_mutex_lock",
            "pthread_mutex_unlock",
            "realloc",
            "strcmp",
            "strlen",
        ],
    },
];

/// So many system calls are as good as all of them.
const MANY_CALLS: usize = 50;

/// The first of a probe's sites that is hot, if one is, and what to call it.
pub fn hot_site(sites: &[ProbeSite]) -> Option<(&ProbeSite, String)> {
    let calls = sites.iter().filter(|site| syscall::syscall_of_site(site).is_some()).count();
    if calls >= MANY_CALLS {
        return sites.first().map(|first| (first, format!("tracepoints of {calls} system calls")));
    }
    let is_hot = |attach: &Attach| HOT.iter().any(|row| (row.name)(attach).is_some_and(|name| row.places.contains(&name.as_str())));
    sites.iter().find(|site| is_hot(&site.attach)).map(|site| (site, site.name.clone()))
}
