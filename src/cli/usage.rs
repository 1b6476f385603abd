//! The end of the long help, and errors about unknown options.

use std::ffi::OsString;

use crate::failure::Failure;

/// The part of the long help about scripts.
pub(super) const SCRIPT: &str = "A script file (`-` for standard input) or the name of a tool, and its arguments: $1, $2, …

You can write options of rbt before or after the script. All other arguments after it belong to the script; `--name=value` is a \
named option. Everything after `--` belongs to the script.";

/// The end of the short help.
pub(super) const SHORT_EXAMPLES: &str = "Examples:
  rbt -e 'tracepoint:syscalls:sys_enter_openat { printf(\"%s %s\\n\", comm, str(args.filename)); }'
  rbt -e 'profile:hz:99 { @[kstack] = count(); }' -c 'make -j4'
  rbt -lv 'tracepoint:sched:*'

The settings, the environment and the exit status: rbt --help";

/// The start of the long help's end.
pub(super) const EXAMPLES: &str = "Examples:
  rbt -e 'tracepoint:syscalls:sys_enter_openat { printf(\"%s %s\\n\", comm, str(args.filename)); }'
                            print each file as it is opened
  rbt -e 'tracepoint:raw_syscalls:sys_enter { @[comm] = count(); }'
                            count system calls by program until Ctrl-C
  rbt -e 'tracepoint:syscalls:sys_exit_read /args.ret > 0/ { @bytes = hist(args.ret); }' -c 'make'
                            sizes of reads during a command
  rbt -e 'uprobe:libc:malloc { @[comm] = sum(arg0); }' -p 1234
                            bytes that a process allocates
  rbt opensnoop --failed
                            run a tool; `rbt one-liners` lists them
  rbt count 't:syscalls:sys_enter_*' --top 10
                            a verb writes the program; `rbt help` lists verbs
  rbt -l 'tracepoint:sched:*'
                            list probes; -lv shows their arguments
  rbt script.bt 42 --name=value
                            run a file with $1 and a named option
";

/// The end of the long help.
pub(super) const STATUS: &str = "
Exit status:
  0    the run ended normally
  1    wrong usage, an error in the script, a missing permission, or nothing to attach to;
       with --strict, also that something was lost
  2    an error in the C part of the script, an internal error, or an invalid setting in the
       environment
  255  the kernel refused to load or to attach a program, or the script has only test or bench
       probes
  any  the status that exit(n) gives; with --propagate-status, that of the command of -c

With --expect:
  0    all expectations are met (unless exit(n) or --propagate-status says otherwise)
  1    an expectation is not met
  2    the script, an expectation or an option is wrong
  3    the script could not run, or lost events leave an expectation undecided
";

/// Converts an error of clap about the words; an unknown option is shown at its place.
pub(super) fn usage_error(e: &clap::Error, words: &[String]) -> Failure {
    usage_error_of("rbt", e, words)
}

/// The same for a command line of this program.
pub(super) fn usage_error_of(program: &str, e: &clap::Error, words: &[String]) -> Failure {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    if let (ErrorKind::UnknownArgument, Some(ContextValue::String(option))) = (e.kind(), e.get(ContextKind::InvalidArg)) {
        if !option.starts_with('-') {
            return Failure::new(format!("unexpected argument `{option}`")).excerpt(at_word(program, option, words));
        }
        let near = match e.get(ContextKind::SuggestedArg) {
            Some(ContextValue::String(near)) => Some(near.clone()),
            _ => None,
        };
        let failure =
            Failure::new(format!("there is no option `{option}`")).code("unknown-option").excerpt(at_word(program, option, words));
        return match near {
            Some(near) => failure.help(format!("did you mean `{near}`?")),
            None => failure.help("`rbt --help` lists the options; options of the script follow `--`"),
        };
    }
    let text = e.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let first = text.split("\n\n").next().unwrap_or(text).trim_end();
    let (message, lines) = first.split_once('\n').unwrap_or((first, ""));
    Failure::new(message).excerpt(lines).help("`rbt --help` explains the options")
}

/// The arguments of a subcommand; the inner error is help to print.
pub(super) fn matches(name: &str, command: clap::Command, args: &[OsString]) -> Result<Result<clap::ArgMatches, String>, Failure> {
    let words = [OsString::from(format!("rbt {name}"))].into_iter().chain(args.iter().cloned());
    match command.try_get_matches_from(words) {
        Ok(found) => Ok(Ok(found)),
        Err(e) if e.use_stderr() => {
            let words: Vec<String> = [name.into()].into_iter().chain(args.iter().map(|a| a.to_string_lossy().into_owned())).collect();
            let failure = usage_error(&e, &words);
            let near = failure.help.as_ref().is_some_and(|h| h.starts_with("did you mean"));
            Err(if near { failure } else { failure.help(format!("`rbt {name} --help` explains the options")) })
        }
        Err(e) => Ok(Err(e.render().to_string())),
    }
}

/// The command line with a caret under the word; empty if the command line has several lines.
fn at_word(program: &str, word: &str, words: &[String]) -> String {
    // a letter may be part of a group: `-qx`
    let letter = word.strip_prefix('-').filter(|l| l.chars().count() == 1);
    let among = |w: &String| letter.is_some_and(|l| w.starts_with('-') && !w.starts_with("--") && w.contains(l));
    let Some(at) = words.iter().position(|w| w.starts_with(word)).or_else(|| words.iter().position(among)) else {
        return String::new();
    };
    let mut line = String::from(program);
    let mut column = 0;
    for (i, w) in words.iter().enumerate() {
        line.push(' ');
        if i == at {
            column = line.chars().count();
        }
        line.push_str(&shlex::try_quote(w).unwrap_or_default());
    }
    if line.contains('\n') || line.chars().count() > 100 {
        return String::new();
    }
    let rest = "~".repeat(words.get(at).map_or(1, |w| w.chars().count()).saturating_sub(1));
    format!("    {line}\n    {:column$}^{rest}", "")
}
