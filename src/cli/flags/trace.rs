//! Flags that choose what to trace.

use std::sync::Arc;

use clap::ValueHint;
use regex::Regex;

use super::{FLAG, Flag, FlagGroup, FlagValue, Verbs};
use crate::cli::values;
use crate::failure::Failure;

/// Mirrors of settings.
pub(super) const LIMITS: FlagGroup = FlagGroup { heading: "Limits", flags: &[] };

pub(super) const TRACE: FlagGroup = FlagGroup {
    heading: "What to trace",
    flags: &[
        Flag {
            name: "pid",
            letter: Some('p'),
            help: "Trace this process. The run ends with it",
            value: FlagValue::Text("PID", |d, text| {
                d.run.settings.pid = Some(values::pid("-p", text)?);
                Ok(())
            }),
            conflicts_with: &["cmd"],
            verbs: Verbs::Show,
            tools: true,
            refused_by: &["build"],
            at_run: true,
            ..FLAG
        },
        Flag {
            name: "cmd",
            letter: Some('c'),
            help: "Start this command when all probes are attached. The run ends with it. Words are split as in a shell. Probes that can be attached to a process (uprobe, usdt, profile, software, hardware, watchpoint) trace only the command's process, unless the script uses the builtin followed",
            hyphens: true,
            value: FlagValue::Text("COMMAND", |d, text| {
                values::check_words(text)?;
                d.run.invocation.has_child = true;
                d.run.child = Some(text.into());
                Ok(())
            }),
            verbs: Verbs::Show,
            tools: true,
            at_run: true,
            ..FLAG
        },
        Flag {
            name: "follow",
            help: "Trace only the process of -c or -p and its descendants, with probes of every kind. Verbs and most tools do so by default with -c",
            value: FlagValue::Nothing(|d| d.run.settings.follow = true),
            needs: (&["cmd", "pid"], "a process to follow: give -c COMMAND or -p PID"),
            at_run: true,
            ..FLAG
        },
        Flag {
            name: "cgroup",
            help: "Trace only tasks in this cgroup (version 2) or below it. PATH is absolute or relative to the cgroup mount",
            hint: ValueHint::DirPath,
            value: FlagValue::Text("PATH", |d, text| {
                d.run.cgroup = Some(text.into());
                Ok(())
            }),
            conflicts_with: &["container"],
            refused_by: &["build"],
            at_run: true,
            ..FLAG
        },
        Flag {
            name: "container",
            help: "Trace only tasks of this container, given by name or by a prefix of its ID (docker, podman, containerd, CRI-O, nspawn, LXC). In Kubernetes, NAME can also be POD, POD/CONTAINER or NAMESPACE/POD/CONTAINER",
            value: FlagValue::Text("NAME", |d, text| {
                d.run.container = Some(text.into());
                Ok(())
            }),
            refused_by: &["build"],
            at_run: true,
            ..FLAG
        },
        Flag {
            name: "probe-filter",
            help: "Attach only to probes whose full name matches this regular expression",
            value: FlagValue::Text("REGEX", |d, text| {
                let wrong = |e: regex::Error| {
                    // its last line has the error; the others show the place, below one another
                    let why = e.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                    Failure::new(format!("--probe-filter: `{text}` is not a regular expression: {why}")).code("bad-filter")
                };
                d.run.settings.probe_filter = Some(Arc::new(Regex::new(text).map_err(wrong)?));
                Ok(())
            }),
            ..FLAG
        },
        Flag {
            name: "traceable-functions",
            help: "Read the traceable functions from FILE instead of the kernel's available_filter_functions",
            hint: ValueHint::FilePath,
            value: FlagValue::Path("FILE", |d, path| {
                if std::fs::metadata(&path).map_or(true, |m| m.is_file() && std::fs::File::open(&path).is_err()) {
                    return Err(Failure::new(format!("--traceable-functions: cannot read {}", path.display())));
                }
                d.run.traceable_functions = Some(path);
                Ok(())
            }),
            ..FLAG
        },
        Flag {
            name: "unsafe",
            help: "Allow functions that change the system or the traced process, such as signal() and system()",
            value: FlagValue::Nothing(|d| d.run.settings.allow_unsafe = true),
            at_run: true,
            ..FLAG
        },
        Flag {
            name: "propagate-status",
            help: "Exit with the status of the command of -c",
            value: FlagValue::Nothing(|d| d.run.propagate_status = true),
            needs: (&["cmd"], "a -c command"),
            at_run: true,
            ..FLAG
        },
        Flag {
            name: "notify-fd",
            help: "Write the line `attached` to this file descriptor when all probes are attached",
            value: FlagValue::Text("N", |d, text| {
                d.run.notify_fd = Some(values::descriptor(text)?);
                Ok(())
            }),
            at_run: true,
            ..FLAG
        },
    ],
};
