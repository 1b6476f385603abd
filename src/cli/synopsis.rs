//! The forms of the command line.

use super::subcommands::SUBCOMMANDS;
use crate::verbs::VERBS;

/// The forms of the command line.
pub fn usage() -> String {
    let verbs: Vec<&str> = VERBS.iter().map(|v| v.name).collect();
    let mut lines = vec![
        "rbt [OPTIONS] FILE|NAME [ARGS]".to_string(),
        "rbt [OPTIONS] -e PROGRAM [ARGS]".into(),
        format!("rbt {} PROBE ...", verbs.join("|")),
        "rbt [OPTIONS]".into(),
        "rbt -l [-v] [PATTERN | FILE | -e PROGRAM] [--against SNAPSHOT]".into(),
    ];
    lines.extend(SUBCOMMANDS.iter().map(|s| format!("rbt {} {}", s.name, s.usage).trim_end().to_string()));
    lines.join("\n       ")
}

/// The usage and examples, for a command line without words.
pub(super) fn short_usage() -> String {
    format!(
        "Usage: {}\n
Examples:
  rbt -e 'tracepoint:raw_syscalls:sys_enter {{ @[comm] = count(); }}'
                                count system calls by program, until Ctrl-C
  rbt -e 'tracepoint:sched:sched_process_exec {{ printf(\"%s\\n\", str(args.filename)); }}'
                                print programs as they start
  rbt opensnoop                 run a tool; `rbt one-liners` lists them
  rbt -l 'tracepoint:*open*'    list probes

More: rbt --help",
        usage()
    )
}
