//! Verbs write a script for a common question: `rbt count 'vfs_*'` becomes a script, which runs like any other.
//!
//! A row of [`VERBS`] is a name, its arguments, its help, and a function that turns the arguments into a script. The script contains
//! the user's words as typed, and [`ComposedScript`] records their positions, so that a message can point to the word.

mod composed;
mod probe;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;

use crate::failure::Failure;
pub use composed::ComposedScript;
use composed::Word;
pub use probe::Category;
use write::Script;

/// A verb.
#[derive(Debug)]
pub struct Verb {
    /// The word after `rbt`.
    pub name: &'static str,
    /// Its arguments without options. `...` after the last one stands for any number of them.
    pub usage: &'static str,
    /// A line of documentation without the final period.
    pub doc: &'static str,
    /// Further text for its own help.
    pub long_help: &'static str,
    /// Its options, by their names in [`OPTIONS`].
    pub options: &'static [&'static str],
    /// Working command lines and their descriptions.
    pub examples: &'static [(&'static str, &'static str)],
    /// Names of its arguments in messages. The last name applies to all further arguments.
    operands: &'static [&'static str],
    /// Minimum number of arguments.
    least: usize,
    /// Maximum number of arguments.
    max_args: usize,
    write: fn(&VerbArgs, &mut Script) -> Result<(), Failure>,
}

/// An option of verbs, in addition to rbt's own.
#[derive(Debug)]
pub struct VerbOption {
    /// The long name without dashes.
    pub name: &'static str,
    /// The short name without its dash.
    pub short: Option<char>,
    /// The name of its value; none for a switch.
    pub value: Option<&'static str>,
    /// A line of documentation without the final period.
    pub doc: &'static str,
}

/// Options of verbs, in addition to rbt's own.
pub const OPTIONS: &[VerbOption] = &[
    VerbOption {
        name: "if",
        short: None,
        value: Some("EXPR"),
        doc: "Trace only hits for which this is true, such as `pid == 1` or `args.ret < 0`",
    },
    VerbOption {
        name: "by",
        short: None,
        value: Some("EXPR"),
        doc: "Group the results by this expression, such as comm, pid, args.fd or `comm, pid`",
    },
    VerbOption { name: "interval", short: Some('i'), value: Some("SECS"), doc: "Print and reset at this interval: 1, 0.5, 200ms, 2m" },
    VerbOption { name: "duration", short: Some('d'), value: Some("SECS"), doc: "Stop after this time" },
    VerbOption { name: "top", short: None, value: Some("N"), doc: "Print only the N greatest entries" },
    VerbOption {
        name: "percentiles",
        short: None,
        value: None,
        doc: "Print count, average, minimum, maximum and percentiles instead of a histogram",
    },
    VerbOption {
        name: "subsecond",
        short: None,
        value: None,
        doc: "Print a heat map instead of a number, with a column per second and a row per part of a second",
    },
    VerbOption { name: "unit", short: None, value: Some("UNIT"), doc: "Unit of time: ns, us (the default) or ms" },
    VerbOption { name: "kernel", short: None, value: None, doc: "Record the kernel stack" },
    VerbOption { name: "user", short: None, value: None, doc: "Record the user stack; with --kernel, both" },
    VerbOption { name: "depth", short: None, value: Some("N"), doc: "Record at most N frames of a stack" },
    VerbOption { name: "print-script", short: None, value: None, doc: "Print the program and exit" },
];

const PROBES: &str = "\
A PROBE is an attach point of a script (rbt -l lists them) or a short form:
  vfs_read, vfs_*           kprobe:vfs_read: a kernel function
  libc:malloc               uprobe:libc:malloc: a function of a library or program
  sched:sched_switch        tracepoint:sched:sched_switch
  p::vfs_read, r:libc:read  the entry and the return of a function, as in bcc
  t:, k:, kr:, f:, fr:      tracepoint:, kprobe:, kretprobe:, fentry:, fexit:
  u:, ur:, U:               uprobe:, uretprobe:, usdt:";

/// All verbs.
pub const VERBS: &[Verb] = &[
    Verb {
        name: "count",
        usage: "PROBE...",
        doc: "Count how often probes are hit",
        long_help: "rbt counts each probe separately, including those that match a pattern. --by selects another key, such as `--by comm`, or `--by 'probe, comm'` for both. --subsecond shows in which part of each of the last 60 seconds the hits occurred. In this heat map, timers appear as lines, and phases of load as blocks.",
        options: &["if", "by", "interval", "duration", "top", "subsecond", "print-script"],
        examples: &[
            ("rbt count 'vfs_*'", "calls of the kernel's file functions, until Ctrl-C"),
            ("rbt count 't:syscalls:sys_enter_*' --top 10 -i 1", "the ten most frequent system calls, every second"),
            ("rbt count raw_syscalls:sys_enter --by comm -d 5", "system calls by program, for five seconds"),
            ("rbt count libc:malloc libc:free -c 'ls -l'", "calls of the allocator by a command"),
            ("rbt count profile:hz:997 --subsecond --if pid -d 60 -o cpu.svg", "when CPUs are busy, as a subsecond-offset heat map"),
        ],
        operands: &["PROBE"],
        least: 1,
        max_args: usize::MAX,
        write: write::count,
    },
    Verb {
        name: "hist",
        usage: "PROBE EXPR",
        doc: "Show the distribution of a value as a histogram",
        long_help: "EXPR is a number, such as args.NAME, arg0 or retval. `rbt -lv PROBE` shows the arguments of a probe.",
        options: &["if", "by", "interval", "duration", "top", "percentiles", "print-script"],
        examples: &[
            ("rbt hist t:syscalls:sys_exit_read args.ret --if 'args.ret > 0'", "bytes that each read returns"),
            ("rbt hist t:syscalls:sys_exit_write args.ret --by comm --top 5", "bytes per write, by program"),
            ("rbt hist libc:malloc arg0 -c 'ls -l'", "sizes that a command allocates"),
            ("rbt hist r:libc:read 'retval' --percentiles -p 1234", "percentiles of a function's result, in one process"),
        ],
        operands: &["PROBE", "EXPR"],
        least: 2,
        max_args: 2,
        write: write::hist,
    },
    Verb {
        name: "trace",
        usage: "PROBE [FORMAT] [EXPR...]",
        doc: "Print a line per hit, with time, process and the values of expressions",
        long_help: "FORMAT is a printf() format with a conversion for each EXPR: %d, %x, %s, %p and so on. Commas between the words are \
               optional, and `\"%d\", pid` may be one word. Without FORMAT, rbt prints the values as print() does.",
        options: &["if", "duration", "print-script"],
        examples: &[
            ("rbt trace t:syscalls:sys_enter_openat '%s' 'str(args.filename)'", "files that programs open"),
            ("rbt trace t:syscalls:sys_exit_openat '%d' args.ret --if 'args.ret < 0'", "failed opens"),
            ("rbt trace sched:sched_process_exec '%s' 'str(args.filename)' -d 10", "programs as they start, for ten seconds"),
            ("rbt trace r:bash:readline '%s' 'str(retval)'", "lines typed into bash"),
        ],
        operands: &["PROBE", "FORMAT", "EXPR"],
        least: 1,
        max_args: usize::MAX,
        write: write::trace,
    },
    Verb {
        name: "stack",
        usage: "PROBE",
        doc: "Count the stacks that lead to a probe",
        long_help: "The default is the user stack for user-space probes and system calls, both stacks for profile and counters, and the kernel stack for other probes.",
        options: &["if", "by", "interval", "duration", "top", "kernel", "user", "depth", "print-script"],
        examples: &[
            ("rbt stack profile:hz:99 --top 10 -d 5", "where the CPUs spend time"),
            ("rbt stack sched:sched_switch --if 'comm == \"make\"' --top 5", "where a program blocks"),
            ("rbt stack libc:malloc -c 'ls -l' --top 3", "callers of malloc"),
            ("rbt stack software:page-faults:1 --user --by comm -d 5", "programs and functions that touch new memory"),
        ],
        operands: &["PROBE"],
        least: 1,
        max_args: 1,
        write: write::stack,
    },
    Verb {
        name: "latency",
        usage: "FUNCTION",
        doc: "Show how long a function takes, as a histogram",
        long_help: "FUNCTION is a kernel function, BIN:FUNC in a program or a library, a pattern of either, or the entry of a system call: \
               t:syscalls:sys_enter_read. rbt measures from entry to return, in microseconds, and includes recursive calls. \
               rbt evaluates --if at the entry and --by at the return.",
        options: &["if", "by", "interval", "duration", "top", "percentiles", "unit", "print-script"],
        examples: &[
            ("rbt latency vfs_read -d 5", "reads, in the kernel"),
            ("rbt latency t:syscalls:sys_enter_fsync --by comm", "a system call, by program"),
            ("rbt latency libc:malloc --unit ns -c 'ls -l'", "the allocator, in nanoseconds"),
            ("rbt latency libc:getaddrinfo --percentiles -i 10", "name lookups, as percentiles every ten seconds"),
        ],
        operands: &["FUNCTION"],
        least: 1,
        max_args: 1,
        write: write::latency,
    },
    Verb {
        name: "timeline",
        usage: "PROBE...",
        doc: "Show when calls begin and end, on the timelines of their threads",
        long_help: "PROBE is a kernel function, BIN:FUNC in a program or a library, a pattern of either, the entry of a system call, or \
               one of two words. syscalls stands for all system calls. sched stands for the states of all threads (running, runnable, \
               sleeping, and which thread woke them) and the threads on each CPU. With sched, rbt traces all processes, even with -c. \
               rbt prints a line per call. `-f perfetto -o FILE` writes a timeline for https://ui.perfetto.dev. Calls that have \
               not returned appear as open.",
        options: &["if", "duration", "print-script"],
        examples: &[
            ("rbt timeline syscalls -c 'ls -l'", "the system calls of a command"),
            ("rbt timeline libc:malloc t:syscalls:sys_enter_brk -c 'ls -l'", "the allocator, and its requests for memory from the kernel"),
            ("rbt timeline vfs_read vfs_write -d 2 -f perfetto -o vfs.pftrace", "reads and writes of files, for Perfetto"),
        ],
        operands: &["PROBE"],
        least: 1,
        max_args: usize::MAX,
        write: write::timeline,
    },
];

/// The verb with this name.
pub fn find(name: &str) -> Option<&'static Verb> {
    VERBS.iter().find(|v| v.name == name)
}

impl Verb {
    /// Its usage line.
    pub fn usage(&self) -> String {
        format!("rbt {} {} [OPTIONS]", self.name, self.usage)
    }

    /// Its options.
    pub fn own_options(&self) -> impl Iterator<Item = &'static VerbOption> {
        OPTIONS.iter().filter(|o| self.options.contains(&o.name))
    }

    /// The text after the options in its help.
    pub fn after_help(&self) -> String {
        let lines: Vec<String> = self.examples.iter().map(|(line, why)| format!("  {line}\n      {why}")).collect();
        format!("{PROBES}\n\nExamples:\n{}\n\nMost other options of rbt work as well: rbt --help", lines.join("\n"))
    }

    /// The script.
    ///
    /// # Errors
    /// Too few or too many words, and invalid values of options. Errors in an expression are found when the
    /// script is parsed.
    pub fn script(&'static self, args: VerbArgs) -> Result<ComposedScript, Failure> {
        let error = |what: String| Failure::new(what).help(format!("{}; `rbt {} --help` shows examples", self.usage(), self.name));
        if args.words.len() < self.least {
            let missing = self.operands.get(args.words.len()).or(self.operands.last()).copied().unwrap_or_default();
            return Err(error(format!("rbt {}: {missing} is missing", self.name)));
        }
        if let Some(extra) = args.words.get(self.max_args) {
            return Err(error(format!("rbt {}: unexpected argument `{extra}`", self.name)));
        }
        let name = |i: usize| self.operands.get(i).or(self.operands.last()).copied().unwrap_or_default();
        let mut words: Vec<Word> = Vec::new();
        words.extend(args.words.iter().enumerate().map(|(i, w)| Word { name: name(i).into(), text: w.clone() }));
        for name in EXPRESSIONS {
            words.extend(args.options.get(name).map(|text| Word { name: format!("--{name}"), text: text.clone() }));
        }
        if let Some(empty) = words.iter().find(|w| w.text.trim().is_empty()) {
            return Err(error(format!("rbt {}: {} is empty", self.name, empty.name)));
        }
        let mut script = Script::new(format!("rbt {}", self.name), words);
        (self.write)(&args, &mut script)?;
        Ok(script.finish())
    }
}

/// Options whose values are expressions of the language.
const EXPRESSIONS: &[&str] = &["if", "by"];

/// A user's request to a verb.
#[derive(Debug)]
pub struct VerbArgs {
    /// Words that do not belong to an option.
    pub words: Vec<String>,
    /// Names of the given [`OPTIONS`], with their values.
    pub options: BTreeMap<&'static str, String>,
    /// Is this word a category of tracepoints?
    pub category: Category,
}

impl VerbArgs {
    fn has(&self, name: &str) -> bool {
        self.options.contains_key(name)
    }

    fn number(&self, name: &str) -> Result<Option<u64>, Failure> {
        let Some(text) = self.options.get(name) else { return Ok(None) };
        match text.parse() {
            Ok(n) if n > 0 => Ok(Some(n)),
            _ => Err(Failure::new(format!("--{name} {text}: not a positive integer"))),
        }
    }

    /// A time in the form for probes: `s:5`, `ms:500`.
    fn time(&self, name: &str) -> Result<Option<String>, Failure> {
        let Some(text) = self.options.get(name) else { return Ok(None) };
        let (number, ms) = match text.trim_end_matches(|c: char| c.is_ascii_alphabetic()) {
            n if text.ends_with("ms") => (n, 1.0),
            n if text.ends_with('m') => (n, 60_000.0),
            n if text.ends_with('s') || n == text => (n, 1000.0),
            _ => ("", 0.0),
        };
        // a year, which the kernel's clock supports
        match number.parse::<f64>().map(|n| (n * ms).round()) {
            Ok(ms) if (1.0..=3.2e10).contains(&ms) && ms % 1000.0 == 0.0 => Ok(Some(format!("s:{}", ms / 1000.0))),
            Ok(ms) if (1.0..=3.2e10).contains(&ms) => Ok(Some(format!("ms:{ms}"))),
            _ => {
                Err(Failure::new(format!("--{name} {text}: not a time"))
                    .help("give seconds (5, 0.5) or a time with a unit (200ms, 10s, 2m)"))
            }
        }
    }
}
