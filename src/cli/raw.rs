//! The options as clap reads them: names, values and what the help says of them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Parser};

/// Trace Linux with awk-like programs that run in the kernel as BPF.
#[derive(Parser, Debug)]
#[command(
    name = "rbt",
    version = concat!("v", env!("CARGO_PKG_VERSION")),
    args_override_self = true,
    disable_help_subcommand = true,
    after_help = "Examples:\n  rbt -e 'tracepoint:syscalls:sys_enter_openat { printf(\"%s %s\\n\", comm, str(args.filename)); }'\n  rbt -e 'profile:hz:99 { @[kstack] = count(); }' -c 'make -j4'\n  rbt -lv 'tracepoint:sched:*'\n\nThe settings, the environment and the exit status: rbt --help"
)]
pub(super) struct Raw {
    /// A script file (`-` for standard input) or the name of a tool, and its arguments: $1, $2, …
    ///
    /// Options of rbt may stand before or after the script. All other arguments after it belong to the script; `--name=value` is a
    /// named option. Everything after `--` belongs to the script.
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub rest: Vec<OsString>,

    /// Run this program; the last -e counts
    #[arg(short = 'e', value_name = "PROGRAM", help_heading = "What to run")]
    pub program: Option<String>,
    /// List probes that match a pattern (`*` matches any text), or the probes of a script; -v shows their arguments
    #[arg(short, long, help_heading = "What to run")]
    pub list: bool,
    /// With -l: list the probes of the kernel in this snapshot; see `rbt snapshot --help`
    #[arg(long, value_name = "SNAPSHOT", value_hint = clap::ValueHint::FilePath, help_heading = "What to run")]
    pub against: Option<PathBuf>,
    /// Print the script in canonical form and exit; see `rbt fmt --help`
    #[arg(long, help_heading = "What to run")]
    pub fmt: bool,
    /// Run only the script's tests (test:NAME); the status is 1 if one fails
    #[arg(long, help_heading = "What to run")]
    pub test: bool,
    /// Run only the script's benchmarks (bench:NAME)
    #[arg(long, help_heading = "What to run")]
    pub bench: bool,
    /// Show what this machine and this build of rbt support
    #[arg(long, help_heading = "What to run")]
    pub info: bool,

    /// Trace this process; the run ends with it
    #[arg(short, long, value_name = "PID", help_heading = "What to trace")]
    pub pid: Option<String>,
    /// Start this command after attaching; the run ends with it. Words are split as in a shell
    #[arg(short, long, value_name = "COMMAND", allow_hyphen_values = true, help_heading = "What to trace")]
    pub cmd: Option<String>,
    /// Trace only the process of -c or -p and its descendants; the default of verbs and most tools with -c
    #[arg(long, help_heading = "What to trace")]
    pub follow: bool,
    /// Trace only tasks in this cgroup (version 2) or below it; PATH is absolute or relative to the cgroup mount
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::DirPath, help_heading = "What to trace")]
    pub cgroup: Option<String>,
    /// Trace only tasks of this container, given by name or by a prefix of its ID (docker, podman, containerd, CRI-O, nspawn, LXC)
    #[arg(long, value_name = "NAME", help_heading = "What to trace")]
    pub container: Option<String>,
    /// Attach only to probes whose full name matches this regular expression
    #[arg(long, value_name = "REGEX", help_heading = "What to trace")]
    pub probe_filter: Option<String>,
    /// File of traceable functions, used in place of the kernel's available_filter_functions
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, help_heading = "What to trace")]
    pub traceable_functions: Option<PathBuf>,
    /// Allow functions that change the system or the traced process, such as signal() and system()
    #[arg(long = "unsafe", help_heading = "What to trace")]
    pub allow_unsafe: bool,
    /// Exit with the status of the command of -c
    #[arg(long, help_heading = "What to trace")]
    pub propagate_status: bool,
    /// Write the line `attached` to this file descriptor when all probes are attached
    #[arg(long, value_name = "N", help_heading = "What to trace")]
    pub notify_fd: Option<String>,

    /// An expression about the script's maps that must be true at the end, such as `count(@calls) <= 200` (may be repeated)
    ///
    /// Exit status: 0 if all are true, 1 if one is false, 2 if the script, an expectation or an option is wrong, 3 if the script could
    /// not run or lost events leave an expectation undecided.
    #[arg(long, value_name = "EXPRESSION", allow_hyphen_values = true, help_heading = "Budgets")]
    pub expect: Vec<String>,
    /// Read expectations from a file, one per line; # starts a comment (may be repeated)
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, help_heading = "Budgets")]
    pub expect_file: Vec<PathBuf>,
    /// Write the verdict as text, json, junit, sarif or github to FILE or to standard output; the default is text on standard error (may be repeated)
    #[arg(long, value_name = "FORMAT[=FILE]", help_heading = "Budgets")]
    pub report: Vec<String>,

    /// Write the script's output to FILE; messages still go to standard error
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Output format: text, json (one object per line) or folded (stacks for flame graphs)
    #[arg(short = 'f', long = "format", value_name = "FORMAT", default_value = "text", hide_default_value = true, help_heading = "Output")]
    pub format: String,
    /// Output buffering: line, full or none
    #[arg(short = 'B', value_name = "MODE", default_value = "line", hide_default_value = true, help_heading = "Output")]
    pub buffering: String,
    /// Do not print the number of attached probes
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
    /// Show the time of each stage and the mechanism of each probe
    #[arg(short, long, help_heading = "Output")]
    pub verbose: bool,
    /// Also report failed reads of memory and maps
    #[arg(short = 'k', long, action = ArgAction::Count, help_heading = "Output")]
    pub warnings: u8,
    /// Suppress all warnings
    #[arg(long, help_heading = "Output")]
    pub no_warnings: bool,
    /// Exit with status 1 if anything was lost: events, runs of probes, updates of maps, ends of strings
    #[arg(long, help_heading = "Output")]
    pub strict: bool,
    /// Color in messages: auto, always or never
    #[arg(long, value_name = "WHEN", help_heading = "Output")]
    pub color: Option<String>,

    /// Add a directory for #include (may be repeated)
    #[arg(short = 'I', value_name = "DIR", value_hint = clap::ValueHint::DirPath, help_heading = "Types and symbols")]
    pub include_dir: Vec<PathBuf>,
    /// #include this file before the script (may be repeated)
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, help_heading = "Types and symbols")]
    pub include: Vec<String>,
    /// Colon-separated directories of debug files; a relative one is below the binary's directory, and + before one requires a matching checksum (may be repeated)
    #[arg(long, value_name = "DIRS", help_heading = "Types and symbols")]
    pub debuginfo: Vec<String>,

    /// Exit when all probes are attached
    #[arg(long, help_heading = "Looking inside")]
    pub dry_run: bool,
    /// Dump comma-separated stages: ast, hir, ir, opt, asm, libbpf, verifier, all
    #[arg(short, long, value_name = "STAGES", value_delimiter = ',', help_heading = "Looking inside")]
    pub debug: Vec<String>,
    /// Write the BPF object to FILE and exit
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, help_heading = "Looking inside")]
    pub emit_elf: Option<PathBuf>,
    /// Write the LLVM IR to BASE.original.ll and BASE.optimized.ll
    #[arg(long, value_name = "BASE", help_heading = "Looking inside")]
    pub emit_llvm: Option<String>,
    /// Let LLVM verify the IR
    #[arg(long, help_heading = "Looking inside")]
    pub verify_llvm_ir: bool,
    /// Comma-separated mechanisms to disable: fentry, kprobe_multi, kprobe_session, raw_syscalls, raw_tracepoint, uprobe_multi. -v shows the mechanism of each probe
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Looking inside")]
    pub no_feature: Vec<String>,
    /// `codegen` compiles the script and exits; `format`, `test` and `bench` are --fmt, --test and --bench
    #[arg(long, value_name = "MODE", help_heading = "Looking inside")]
    pub mode: Option<String>,

    /// The same as `rbt completions`.
    #[arg(long, hide = true, value_name = "SHELL")]
    pub completions: Option<OsString>,
    #[arg(long, hide = true, value_name = "FILE")]
    pub aot: Option<PathBuf>,
    /// Stacks of any process follow its frame pointers.
    #[arg(long, hide = true, value_name = "PID")]
    pub dwarf_pid: Vec<u32>,
    /// Kernels count for themselves who listens to a USDT probe.
    #[arg(long, hide = true)]
    pub usdt_file_activation: bool,
    /// BTF is always used.
    #[arg(short = 'b', long, hide = true)]
    pub btf: bool,
}
