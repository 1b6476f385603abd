//! The options as clap reads them: names, values and what the help says of them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Parser};

use super::usage::USAGE;

/// A tracer for Linux: awk-like probe programs, compiled to BPF and run in the kernel.
#[derive(Parser, Debug)]
#[command(
    name = "rbt",
    version = concat!("v", env!("CARGO_PKG_VERSION")),
    override_usage = USAGE,
    args_override_self = true,
    disable_help_subcommand = true,
    after_help = "Examples:\n  rbt -e 'tracepoint:syscalls:sys_enter_openat { printf(\"%s %s\\n\", comm, str(args.filename)); }'\n  rbt -e 'profile:hz:99 { @[kstack] = count(); }' -c 'make -j4'\n  rbt -lv 'tracepoint:sched:*'\n\nThe settings, the environment and the exit status: rbt --help"
)]
pub(super) struct Raw {
    /// The script's file (`-` for standard input) or the name of a saved one, and arguments for it: $1, $2, …
    ///
    /// Options of rbt may stand before or after the script; what else follows it is the script's, `--name=value` a named
    /// option. After `--`, all is the script's.
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub rest: Vec<OsString>,

    /// Run this program; given twice, the last one counts
    #[arg(short = 'e', value_name = "PROGRAM", help_heading = "What to run")]
    pub program: Option<String>,
    /// List probes that match a pattern (`*` for any text), or that a script would attach to; with -v their arguments too
    #[arg(short, long, help_heading = "What to run")]
    pub list: bool,
    /// With -l: of the kernel in this snapshot instead of this machine's; see `rbt snapshot --help`
    #[arg(long, value_name = "SNAPSHOT", value_hint = clap::ValueHint::FilePath, help_heading = "What to run")]
    pub against: Option<PathBuf>,
    /// Write the script in canonical form to standard output (or -o) and stop; `rbt fmt --help` tells of more
    #[arg(long, help_heading = "What to run")]
    pub fmt: bool,
    /// Run the script's tests (test:NAME) and nothing else; the status is 1 if one fails
    #[arg(long, help_heading = "What to run")]
    pub test: bool,
    /// Run the script's benchmarks (bench:NAME) and nothing else
    #[arg(long, help_heading = "What to run")]
    pub bench: bool,
    /// Report what this machine and this build can do
    #[arg(long, help_heading = "What to run")]
    pub info: bool,

    /// Trace this process, and stop when it ends
    #[arg(short, long, value_name = "PID", help_heading = "What to trace")]
    pub pid: Option<String>,
    /// Start this command once all probes are attached, and stop when it ends; words are split as a shell does
    #[arg(short, long, value_name = "COMMAND", allow_hyphen_values = true, help_heading = "What to trace")]
    pub cmd: Option<String>,
    /// Trace only the process of -c or -p, and whatever it starts; with -c, verbs and most tools do so by themselves
    #[arg(long, help_heading = "What to trace")]
    pub follow: bool,
    /// Trace only tasks in this cgroup (version 2) or below it: a path below the mount, or a whole one
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::DirPath, help_heading = "What to trace")]
    pub cgroup: Option<String>,
    /// Trace only tasks of this container: its name, or the start of its id (docker, podman, containerd, CRI-O, nspawn, LXC)
    #[arg(long, value_name = "NAME", help_heading = "What to trace")]
    pub container: Option<String>,
    /// Attach only where the probe's full name matches this regular expression
    #[arg(long, value_name = "REGEX", help_heading = "What to trace")]
    pub probe_filter: Option<String>,
    /// Functions that may be traced, in place of the kernel's available_filter_functions
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, help_heading = "What to trace")]
    pub traceable_functions: Option<PathBuf>,
    /// Allow what can disturb the machine or the traced process: signal(), system() and others
    #[arg(long = "unsafe", help_heading = "What to trace")]
    pub allow_unsafe: bool,
    /// Exit with the status of the -c command
    #[arg(long, help_heading = "What to trace")]
    pub propagate_status: bool,
    /// Write `attached` and a newline to this file descriptor once every probe is attached
    #[arg(long, value_name = "N", help_heading = "What to trace")]
    pub notify_fd: Option<String>,

    /// What is to hold of the script's maps when the run is over, as `count(@calls) <= 200`; the verdict is the exit status (may be repeated)
    ///
    /// 0: all met, 1: one is not, 2: the script, an expectation or an option is wrong, 3: it could not be run, or not all was seen.
    #[arg(long, value_name = "EXPRESSION", allow_hyphen_values = true, help_heading = "Budgets")]
    pub expect: Vec<String>,
    /// Expectations from a file, one per line; # starts a comment (may be repeated)
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, help_heading = "Budgets")]
    pub expect_file: Vec<PathBuf>,
    /// The verdict as text, json, junit, sarif or github, to a file or behind the script's output; without it, as text to standard error (may be repeated)
    #[arg(long, value_name = "FORMAT[=FILE]", help_heading = "Budgets")]
    pub report: Vec<String>,

    /// Write the script's output to this file; messages stay on standard error
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Format of the output: text, json (an object per line) or folded (maps of stacks, for flame graphs)
    #[arg(short = 'f', long = "format", value_name = "FORMAT", default_value = "text", hide_default_value = true, help_heading = "Output")]
    pub format: String,
    /// When output is written: line, full or none (at once)
    #[arg(short = 'B', value_name = "MODE", default_value = "line", hide_default_value = true, help_heading = "Output")]
    pub buffering: String,
    /// Do not say how many probes are attached
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
    /// Say how long each stage takes, and what serves each probe
    #[arg(short, long, help_heading = "Output")]
    pub verbose: bool,
    /// Report failed reads of memory and of maps too
    #[arg(short = 'k', long, action = ArgAction::Count, help_heading = "Output")]
    pub warnings: u8,
    /// Drop all warnings
    #[arg(long, help_heading = "Output")]
    pub no_warnings: bool,
    /// End with status 1 if anything was lost: events, runs of a probe, updates of maps, ends of strings
    #[arg(long, help_heading = "Output")]
    pub strict: bool,
    /// Colour in messages: auto, always or never
    #[arg(long, value_name = "WHEN", help_heading = "Output")]
    pub color: Option<String>,

    /// Directory for #include (may be repeated)
    #[arg(short = 'I', value_name = "DIR", value_hint = clap::ValueHint::DirPath, help_heading = "Types and symbols")]
    pub include_dir: Vec<PathBuf>,
    /// File to #include before the script (may be repeated)
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, help_heading = "Types and symbols")]
    pub include: Vec<String>,
    /// Directories with separate debug information, colons between them: below the binary's own where relative, compared by checksum after a + (may be repeated)
    #[arg(long, value_name = "DIRS", help_heading = "Types and symbols")]
    pub debuginfo: Vec<String>,

    /// Stop when all probes are attached
    #[arg(long, help_heading = "Looking inside")]
    pub dry_run: bool,
    /// Show stages, commas between them: ast, hir, ir, opt, asm, libbpf, verifier, all
    #[arg(short, long, value_name = "STAGES", value_delimiter = ',', help_heading = "Looking inside")]
    pub debug: Vec<String>,
    /// Write the BPF object to this file, and stop
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, help_heading = "Looking inside")]
    pub emit_elf: Option<PathBuf>,
    /// Write the LLVM IR to BASE.original.ll and BASE.optimized.ll
    #[arg(long, value_name = "BASE", help_heading = "Looking inside")]
    pub emit_llvm: Option<String>,
    /// Let LLVM check the IR
    #[arg(long, help_heading = "Looking inside")]
    pub verify_llvm_ir: bool,
    /// Mechanisms not to use, commas between them: fentry, kprobe_multi, kprobe_session, raw_syscalls, raw_tracepoint, uprobe_multi. Without them a probe is served by what it is named after, which may be slower; -v says what serves it and why
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Looking inside")]
    pub no_feature: Vec<String>,
    /// `codegen`: compile the script and stop; `format`, `test` and `bench`: the same as --fmt, --test and --bench
    #[arg(long, value_name = "MODE", help_heading = "Looking inside")]
    pub mode: Option<String>,

    /// The same as `rbt completions`.
    #[arg(long, hide = true, value_name = "SHELL")]
    pub completions: Option<OsString>,
    #[arg(long, hide = true, value_name = "FILE")]
    pub aot: Option<PathBuf>,
    #[arg(long, hide = true, value_name = "PID")]
    pub dwarf_pid: Vec<String>,
    /// Kernels count for themselves who listens to a USDT probe.
    #[arg(long, hide = true)]
    pub usdt_file_activation: bool,
    /// BTF is always used.
    #[arg(short = 'b', long, hide = true)]
    pub btf: bool,
}
