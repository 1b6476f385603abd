//! Does the kernel run other tasks in the middle of a program?
//!
//! It does if it is preemptible (`preempt=full` or `lazy`). Then, a trampoline skips the runs of other tasks until the
//! preempted program goes on, because it runs a program only once at a time on a CPU (`__bpf_prog_enter_recur` of
//! kernel/bpf/trampoline.c). Kprobes disable preemption, and so did tracepoints before Linux 7.

use std::io::Read;

use rustix::fs::{Mode, OFlags, openat};

use crate::input;
use crate::system::events::tracefs;

/// The file that shows the model, below the root of debugfs (kernel/sched/debug.c).
const MODEL: &str = "sched/preempt";
const DEBUGFS: &str = "/sys/kernel/debug";
/// A model takes a few words.
const MAX_BYTES: u64 = 256;

/// The answer for the running kernel; if unknown, true.
pub(super) fn preempts_programs() -> bool {
    let version = rustix::system::uname().version().to_string_lossy().into_owned();
    match of_version(&version) {
        Some(known) => known,
        // the model can be chosen at boot and later
        None => model().as_deref().and_then(of_model).or_else(|| of_command_line(&input::line("/proc/cmdline")?)).unwrap_or(true),
    }
}

/// By the words that init/Makefile adds to the version; none if the model is not fixed.
fn of_version(version: &str) -> Option<bool> {
    let has = |word: &str| version.split_ascii_whitespace().any(|w| w == word);
    if has("PREEMPT_RT") || has("PREEMPT_LAZY") {
        return Some(true);
    }
    if has("PREEMPT_DYNAMIC") { None } else { Some(has("PREEMPT")) }
}

/// All models, of which the current one is in parentheses: `none voluntary (full)`.
fn of_model(models: &str) -> Option<bool> {
    let (_, rest) = models.split_once('(')?;
    preempts(rest.split_once(')')?.0)
}

fn of_command_line(line: &str) -> Option<bool> {
    line.split_ascii_whitespace().filter_map(|word| word.strip_prefix("preempt=")).next_back().and_then(preempts)
}

fn preempts(model: &str) -> Option<bool> {
    match model {
        "none" | "voluntary" => Some(false),
        "full" | "lazy" => Some(true),
        _ => None,
    }
}

fn model() -> Option<String> {
    let mut text = String::new();
    let mounted = std::fs::File::open(format!("{DEBUGFS}/{MODEL}"));
    let file = mounted.or_else(|_| {
        let root = tracefs::own_mount("debugfs")?;
        openat(&root, MODEL, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map(Into::into).map_err(Into::into)
    });
    file.and_then(|file: std::fs::File| file.take(MAX_BYTES).read_to_string(&mut text)).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models() {
        for (version, want) in [
            ("#1 SMP Debian 5.10.262-1 (2026-07-31)", Some(false)),
            ("#1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1~deb12u1 (2026-11-14)", None),
            ("#1 SMP PREEMPT Mon Nov 2", Some(true)),
            ("#1 SMP PREEMPT_RT Debian 6.1.1", Some(true)),
        ] {
            assert_eq!(of_version(version), want, "{version}");
        }
        for (models, want) in [
            ("none (voluntary) full \n", Some(false)),
            ("(none) voluntary full", Some(false)),
            ("full (lazy) \n", Some(true)),
            ("none voluntary (full)", Some(true)),
            ("none voluntary (new)", None),
            ("none voluntary full", None),
            ("", None),
            ("(", None),
        ] {
            assert_eq!(of_model(models), want, "{models}");
        }
        for (line, want) in [
            ("quiet preempt=full", Some(true)),
            ("preempt=full preempt=none quiet", Some(false)),
            ("rcutree.preempt=full", None),
            ("quiet", None),
        ] {
            assert_eq!(of_command_line(line), want, "{line}");
        }
    }
}
