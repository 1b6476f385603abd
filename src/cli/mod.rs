//! The command line: clap parses raw options, and this module resolves them.
//!
//! Arguments after the script belong to the script, except for rbt's own options, so the arguments are split before clap sees
//! them: see `split`.

pub mod build;
pub mod check;
mod completions;
pub mod cost;
mod flags;
pub mod fmt;
pub mod merge;
mod one_liners;
pub mod serve;
pub mod snapshot;
mod split;
pub mod subcommands;
mod synopsis;
mod usage;
mod values;
pub mod verbs;

use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use clap::Arg;

use crate::expect;
use crate::failure::Failure;
use crate::probes::{Env, KINDS};
use crate::runtime::Buffering;
use crate::settings::{ENV_ONLY, Invocation, Mode, SETTINGS, Settings};
use crate::system::TargetInfo;
use crate::tls::Identity;
use crate::tools::{self, Tool};
use crate::verbs::{self as table, ComposedScript};
use crate::verdict;
use flags::ArgsBuilder;
pub use split::{misspelt_option, own_letter, script_args, valued};
use synopsis::short_usage;
pub use synopsis::usage;
use usage::{EXAMPLES, SCRIPT, SHORT_EXAMPLES, STATUS, usage_error};
use values::color;

/// A parsed command line.
#[derive(Debug)]
pub enum Command {
    /// Run a script.
    Run(Box<Run>),
    /// No script: the prompt.
    Prompt(Box<Run>),
    /// `-l`
    List {
        /// Patterns, a script, or nothing: everything.
        what: Listed,
        /// Show arguments too.
        verbose: bool,
        /// As for a run.
        run: Box<Run>,
    },
    /// A subcommand, or an option that means the same.
    Subcommand(Box<dyn Action>),
    /// Text for standard output, such as help or the version.
    Say(String),
}

impl Command {
    /// Are messages colored?
    pub fn color(&self) -> bool {
        match self {
            Command::Run(run) | Command::Prompt(run) | Command::List { run, .. } => run.color,
            Command::Subcommand(action) => action.color(),
            Command::Say(_) => color_by_default(),
        }
    }
}

/// The work that a subcommand asks for. A row of [`subcommands::SUBCOMMANDS`] names the parser of such a value; the module that does
/// the work implements this for it. So nothing lists the subcommands a second time.
pub trait Action: Any + Debug {
    /// Are messages colored?
    fn color(&self) -> bool {
        color_by_default()
    }

    /// Does the work, and returns the exit status.
    fn run(&self) -> Result<u8, Failure>;
}

/// The default of `--color` (also if its value is invalid).
pub fn color_by_default() -> bool {
    color(None).unwrap_or(false)
}

/// The subject of `-l`.
#[derive(Debug, PartialEq)]
pub enum Listed {
    /// All probes of the kernel.
    All,
    /// The names that match.
    Pattern(String),
    /// The probes to which this script would attach.
    Script(Program),
}

/// The location of a script's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// `-e`
    Text(String),
    /// A file.
    File(PathBuf),
    /// A tool, which is part of rbt.
    Tool(&'static Tool),
    /// The script of a verb.
    Composed(Box<ComposedScript>),
    /// `-`
    Stdin,
}

impl Program {
    /// A word in place of a script: the name of a tool, or a path. `is_name` decides which takes precedence.
    pub fn of(word: OsString) -> Self {
        if word == OsStr::new("-") {
            return Self::Stdin;
        }
        match tool(&word) {
            Some(tool) => Self::Tool(tool),
            None => Self::File(word.into()),
        }
    }
}

/// The tool with this name. A plain name takes precedence over a file, because otherwise anyone who can write to the
/// current directory could choose what root runs. A file takes precedence over `NAME.bt`.
pub(crate) fn tool(word: &OsStr) -> Option<&'static Tool> {
    let tool = tools::find(word.to_str()?)?;
    let there = || std::fs::metadata(word).is_ok_and(|m| !m.is_dir());
    (is_name(word) || !there()).then_some(tool)
}

/// Is it without a slash and without the ending of a script file?
fn is_name(word: &OsStr) -> bool {
    let bytes = word.as_encoded_bytes();
    !bytes.contains(&b'/') && !bytes.ends_with(b".bt")
}

/// A run, resolved.
#[derive(Clone, Debug)]
pub struct Run {
    /// The script.
    pub program: Program,
    /// The settings by flags; the environment and the `config` block are applied later.
    pub settings: Settings,
    /// The other facts of the run.
    pub invocation: Invocation,
    /// The words after the script. `invocation` has those parameters and options that are known without the script.
    pub words: Vec<String>,
    /// `-c`: words in shell syntax.
    pub child: Option<String>,
    /// `-o`, as often as it appears.
    pub outputs: Vec<PathBuf>,
    /// `-f`: a row of the formats' table.
    pub format: Option<String>,
    /// `-B`
    pub buffering: Buffering,
    /// `-q`
    pub quiet: bool,
    /// `-v`
    pub verbose: bool,
    /// False: `--no-warnings`.
    pub warnings: bool,
    /// `--dry-run`
    pub dry_run: bool,
    /// `--mode codegen`: stop when the script is compiled.
    pub compile_only: bool,
    /// `-d`: names of [`STAGES`].
    pub dumps: Vec<&'static str>,
    /// `--verify-llvm-ir`
    pub verify_ir: bool,
    /// `--emit-elf`
    pub emit_elf: Option<PathBuf>,
    /// `--emit-llvm`: the base name of the files `.original.ll` and `.optimized.ll`.
    pub emit_llvm: Option<String>,
    /// `--propagate-status`
    pub propagate_status: bool,
    /// `--strict`
    pub strict: bool,
    /// `--notify-fd`
    pub notify_fd: Option<i32>,
    /// Color on standard error.
    pub color: bool,
    /// Color on standard output.
    pub color_output: bool,
    /// `--watch`
    pub watch: Option<Duration>,
    /// `--diff`: a file, or a map with its `@`
    pub diff: Option<String>,
    /// `--cgroup`
    pub cgroup: Option<String>,
    /// `--container`
    pub container: Option<String>,
    /// `--traceable-functions`
    pub traceable_functions: Option<PathBuf>,
    /// `--expect`
    pub expected: Expected,
    /// `--against`: a snapshot
    pub against: Option<PathBuf>,
    /// `--serve`
    pub serve: Option<std::net::SocketAddr>,
    /// `--otlp`
    pub otlp: Option<crate::otlp::Config>,
    /// `--serve-token`
    pub serve_token: Option<PathBuf>,
    /// `--serve-tls-cert` and `--serve-tls-key`
    pub serve_identity: Option<Identity>,
}

impl Run {
    /// The facts that the stages may use, before those of the script are known.
    pub fn env<'a>(&'a self, sys: &'a dyn TargetInfo) -> Env<'a> {
        Env { sys, settings: &self.settings, invocation: &self.invocation }
    }

    /// Is the output for people?
    pub fn is_text(&self) -> bool {
        self.format.as_deref().is_none_or(|name| name == crate::render::TEXT)
    }
}

/// The expectations of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// `--expect`
    pub texts: Vec<String>,
    /// `--expect-file`
    pub files: Vec<PathBuf>,
    /// `--report`: a row of the verdict's formats, and the destination.
    pub reports: Vec<(String, Option<PathBuf>)>,
}

impl Expected {
    /// Are there no expectations?
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.files.is_empty()
    }
}

/// A stage that `-d` can show.
pub struct Stage {
    /// The name.
    pub name: &'static str,
    /// Other names of it.
    pub aliases: &'static [&'static str],
    /// For the help text.
    pub doc: &'static str,
}

/// The stages that `-d` can show.
pub const STAGES: &[Stage] = &[
    Stage { name: "ast", aliases: &["parse"], doc: "the parsed script" },
    Stage { name: "hir", aliases: &["types"], doc: "the checked script, with its types" },
    Stage { name: "ir", aliases: &["codegen"], doc: "LLVM IR before optimization" },
    Stage { name: "opt", aliases: &["codegen-opt"], doc: "LLVM IR after optimization" },
    Stage { name: "asm", aliases: &["dis"], doc: "BPF instructions" },
    Stage { name: "libbpf", aliases: &[], doc: "messages of libbpf while it loads" },
    Stage { name: "verifier", aliases: &[], doc: "the verifier's log" },
];

const MODES: &[&str] = &["codegen", "compiler-bench", "bench", "test", "format"];

/// The failure of a command line with neither a script nor input for the prompt.
pub fn nothing_to_run() -> Failure {
    Failure::new("nothing to run; on a terminal, rbt without arguments opens a prompt").excerpt(short_usage())
}

/// Parses the arguments, which begin with the program's name. The environment only affects color.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, Failure> {
    let args: Vec<OsString> = split::with_numbers(args.into_iter().skip(1), flags::long);
    let status = usage_status(&args);
    parse_words(args, None).map_err(|failure| Failure { status: status.unwrap_or(failure.status), ..failure })
}

/// The exit status of wrong usage, if the arguments have expectations.
fn usage_status(args: &[OsString]) -> Option<u8> {
    let expects = |a: &OsString| {
        a.to_str()
            .is_some_and(|a| a == "--expect" || a.starts_with("--expect=") || a.starts_with("--expect-file") || a.starts_with("--report"))
    };
    args.iter().take_while(|a| *a != "--").any(expects).then_some(verdict::USAGE)
}

/// Parses a command line; with a subcommand, one that takes a script and flags of a run.
fn parse_words(mut args: Vec<OsString>, subcommand: Option<&str>) -> Result<Command, Failure> {
    let after = args.get(1..).unwrap_or(&[]);
    if let Some(first) = args.first().and_then(|a| subcommands::find(a.to_str()?)) {
        return (first.parse)(after);
    }
    let first = split::first_word(&args);
    let verb = first.and_then(|i| Some((i, table::find(args.get(i)?.to_str()?)?)));
    if let Some((i, verb)) = verb {
        return verbs::parse(verb, args.get(..i).unwrap_or(&[]), args.get(i + 1..).unwrap_or(&[]), subcommand);
    }
    // Building the long help takes time, so rbt builds it only on request.
    let long_help = args.iter().any(|a| a == "--help");
    let command = if long_help { command() } else { definition() };
    let words: Vec<String> = args.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    let (options, rest, twice) = split::split(&mut args);
    if let (true, Some(name)) = (twice, rest.first().map(|name| name.to_string_lossy())) {
        return Err(Failure::new(format!("-e PROGRAM cannot be used with the script {name}"))
            .help(format!("`rbt {name} --help` lists its own options; arguments after `--` belong to the script")));
    }
    match command.try_get_matches_from([OsString::from("rbt")].into_iter().chain(options)) {
        Ok(found) => {
            flags::refuse(&found, subcommand)?;
            resolve(&found, rest)
        }
        Err(e) if e.use_stderr() => Err(usage_error(&e, &words)),
        Err(e) => Ok(Command::Say(e.render().to_string())),
    }
}

/// The definition of all options.
fn definition() -> clap::Command {
    let script = Arg::new("rest")
        .value_name("FILE")
        .num_args(0..)
        .value_hint(clap::ValueHint::FilePath)
        .help("A script file (`-` for standard input) or the name of a tool, and its arguments: $1, $2, …")
        .long_help(SCRIPT);
    clap::Command::new("rbt")
        .version(concat!("v", env!("CARGO_PKG_VERSION")))
        .about("Trace Linux with awk-like programs that run in the kernel as BPF")
        .args_override_self(true)
        .disable_help_subcommand(true)
        .after_help(SHORT_EXAMPLES)
        .override_usage(usage())
        .arg(script)
        .args(flags::args())
}

/// The definition of all options, with the long help's tables.
pub fn command() -> clap::Command {
    use std::fmt::Write;
    let mut text = String::from(EXAMPLES);
    text.push_str("\nSettings, in a script's `config = { name = value; }` or in the environment as RBT_NAME:\n");
    for s in SETTINGS {
        let _ = writeln!(text, "  {}\n          {}.\n          {}.", s.name, s.doc, s.values_text());
    }
    text.push_str("\nEnvironment variables that are not settings (BPFTRACE_ works in place of RBT_ everywhere):\n");
    for (name, doc) in ENV_ONLY {
        let _ = writeln!(text, "  RBT_{}\n          {doc}.", name.to_ascii_uppercase());
    }
    text.push_str("\nFunctions of --expect:\n");
    for f in expect::FUNCTIONS {
        let _ = writeln!(text, "  {}\n          {}", f.form, f.doc.trim_end_matches('.'));
    }
    text.push_str("\nStages of -d:\n");
    for s in STAGES {
        let also = if s.aliases.is_empty() { String::new() } else { format!(" (also {})", s.aliases.join(", ")) };
        let _ = writeln!(text, "  {:26}{}{also}", s.name, s.doc);
    }
    text.push_str(STATUS);
    definition().after_long_help(text)
}

fn resolve(found: &clap::ArgMatches, rest: Vec<OsString>) -> Result<Command, Failure> {
    let mut rest = rest.into_iter().peekable();
    let program_or_list = flags::is_present(found, "e") || flags::is_present(found, "list");
    let word = rest.peek().and_then(|word| word.to_str()).filter(|_| !program_or_list);
    if word == Some("info") {
        return Ok(Command::Subcommand(Box::new(subcommands::Info)));
    }
    if let Some(subcommand) = word.and_then(subcommands::find) {
        let name = subcommand.name;
        return Err(Failure::new(format!("`{name}` is a subcommand, which must precede the options"))
            .help(format!("rbt {name} {}; a file of this name is ./{name}", subcommand.usage)));
    }
    let draft = flags::read(found)?;
    if draft.info {
        return Ok(Command::Subcommand(Box::new(subcommands::Info)));
    }
    if let Some(name) = draft.completions {
        return subcommands::shell(&name);
    }
    if draft.fmt {
        return fmt::compatible(draft, rest.next());
    }
    require_run(&draft)?;
    let ArgsBuilder { run, program, list, .. } = draft;
    let (mut run, verbose) = (Box::new(run), found.get_flag("verbose"));
    if list {
        let what = match (program, rest.next()) {
            (Some(_), Some(extra)) => {
                return Err(Failure::new(format!("-l takes a pattern or -e, not both: `{}`", extra.to_string_lossy())));
            }
            (Some(text), None) => Listed::Script(Program::Text(text)),
            (None, None) => Listed::All,
            (None, Some(arg)) => list_kind(arg),
        };
        if let Some(extra) = rest.next() {
            return Err(Failure::new(format!("-l takes one pattern; `{}` is a second one", extra.to_string_lossy()))
                .help("separate patterns by commas, and quote them so that the shell does not expand `*`"));
        }
        return Ok(Command::List { what, verbose, run });
    }
    if run.against.is_some() {
        return Err(Failure::new("--against works with -l only: scripts run on this machine's kernel")
            .help("`rbt -l FILE --against SNAPSHOT` lists the probes of a script on that kernel"));
    }
    run.program = match program {
        Some(text) => Program::Text(text),
        None => match rest.next() {
            Some(word) => Program::of(word),
            None if !run.expected.is_empty() => {
                return Err(
                    Failure::new("--expect needs a script, because it is about the script's maps").help("give a FILE, or -e 'PROGRAM'")
                );
            }
            None if run.serve.is_some() => {
                return Err(
                    Failure::new("--serve needs a script, because it serves the script's maps").help("give a FILE, or -e 'PROGRAM'")
                );
            }
            None if run.otlp.is_some() => {
                return Err(Failure::new("--otlp needs a script, because it exports the script's maps and output")
                    .help("give a FILE, or -e 'PROGRAM'"));
            }
            None => return Ok(Command::Prompt(run)),
        },
    };
    run.words = rest.map(|arg| arg.to_string_lossy().into_owned()).collect();
    (run.invocation.params, run.invocation.options) = script_args(&run.words, &[]);
    Ok(Command::Run(run))
}

fn list_kind(arg: OsString) -> Listed {
    if arg == OsStr::new("-") {
        return Listed::Script(Program::Stdin);
    }
    let text = arg.to_string_lossy().into_owned();
    // `-l profile` was a pattern before a tool with that name existed
    if KINDS.iter().any(|k| k.names().contains(&text.as_str())) {
        return Listed::Pattern(text);
    }
    if let Some(tool) = tool(&arg) {
        return Listed::Script(Program::Tool(tool));
    }
    if !text.contains([':', '*']) && std::path::Path::new(&arg).is_file() {
        return Listed::Script(Program::File(arg.into()));
    }
    Listed::Pattern(text)
}

/// The run of a script that a subcommand takes; the inner error is help to print.
fn script_of(name: &str, args: &[OsString]) -> Result<Result<Box<Run>, String>, Failure> {
    match parse_words(args.to_vec(), Some(name))? {
        Command::Run(run) => Ok(Ok(run)),
        // the script's help
        Command::Say(text) => Ok(Err(text)),
        Command::Prompt(_) => {
            Err(Failure::new(format!("rbt {name} needs a script")).help("give a FILE, the NAME of a tool, or -e 'PROGRAM'"))
        }
        Command::List { .. } => Err(Failure::new(format!("-l cannot be used with rbt {name}, which takes a script"))),
        Command::Subcommand(_) => Err(Failure::new(format!("rbt {name} takes a script, not a subcommand"))),
    }
}

/// Rejects reports without expectations.
fn require_expectation(run: &Run) -> Result<(), Failure> {
    match run.expected.reports.first().filter(|_| run.expected.is_empty()) {
        Some(_) => Err(Failure::new("--report needs an expectation").help("add --expect 'count(@calls) <= 200'")),
        None => Ok(()),
    }
}

/// Rejects expectations without a run.
fn require_run(draft: &ArgsBuilder) -> Result<(), Failure> {
    let run = &draft.run;
    if let Some(base) = &run.diff {
        let formats = run.outputs.iter().filter_map(|path| crate::render::format_of_file(path));
        let mut formats = run.format.as_deref().and_then(crate::render::find).into_iter().chain(formats);
        if !formats.any(|format| format.compares) {
            let what = format!("--diff {base} needs a flame graph");
            return Err(Failure::new(what).help("add -o FILE.svg, -o FILE.html, or -f flamegraph"));
        }
    }
    require_expectation(run)?;
    if run.expected.is_empty() {
        return Ok(());
    }
    let without_run = [
        (draft.list, "-l"),
        (run.settings.mode == Mode::Test, "--test"),
        (run.settings.mode == Mode::Bench, "--bench"),
        (run.emit_elf.is_some(), "--emit-elf"),
    ];
    match without_run.iter().find(|(given, _)| *given) {
        Some((_, option)) => Err(Failure::new(format!("--expect needs a run, and {option} does not run the script"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(args: &[&str]) -> Box<Run> {
        match parse_words(args) {
            Ok(Command::Run(run)) => run,
            other => panic!("{args:?}: {other:?}"),
        }
    }

    fn parse_words(args: &[&str]) -> Result<Command, Failure> {
        parse(["rbt"].iter().chain(args).map(OsString::from))
    }

    fn failure(args: &[&str]) -> Failure {
        parse_words(args).expect_err("should fail")
    }

    #[test]
    fn clap_accepts_the_definition() {
        definition().debug_assert();
    }

    #[test]
    fn arguments_after_a_script_belong_to_it() {
        let r = run(&["-v", "a.bt", "-5", "--name=1", "--flag", "-yq", "7", "--", "-q", "--pid", "3"]);
        assert_eq!(r.program, Program::File("a.bt".into()));
        assert_eq!(r.invocation.params, ["-5", "-yq", "7", "-q", "3"]);
        assert_eq!(r.invocation.options, [("name".into(), Some("1".into())), ("flag".into(), None), ("pid".into(), None)]);
        assert!(!r.quiet && r.verbose && r.settings.pid.is_none());
    }

    #[test]
    fn saved_scripts_are_run_by_name() {
        let saved = Program::Tool(tools::find("opensnoop").unwrap());
        let r = run(&["-q", "opensnoop", "--failed", "--name", "cat", "-v"]);
        assert!(r.program == saved && r.quiet && r.verbose);
        assert_eq!(r.invocation.options, [("failed".into(), None), ("name".into(), None)]);
        assert_eq!(r.words, ["--failed", "--name", "cat"]);
        assert_eq!(run(&["opensnoop", "--help"]).invocation.options, [("help".into(), None)]);
        assert_eq!(run(&["./opensnoop"]).program, Program::File("./opensnoop".into()));
        assert_eq!(run(&["--", "opensnoop.bt"]).program, saved);
        let Ok(Command::Say(text)) = parse_words(&["one-liners", "opensnoop"]) else { panic!() };
        assert_eq!(text, tools::find("opensnoop").unwrap().text);
        let Ok(Command::Say(list)) = parse_words(&["one-liners"]) else { panic!() };
        assert!(list.contains("opensnoop") && list.contains("execsnoop"));
        assert_eq!(failure(&["one-liners", "opensnop"]).help.as_deref(), Some("did you mean `opensnoop`?"));
        assert!(failure(&["one-liners", "--all"]).message.contains("no option"));
        let Ok(Command::Say(help)) = parse_words(&["-h", "opensnoop"]) else { panic!() };
        assert!(help.contains("Usage"));
    }

    #[test]
    fn options_of_rbt_may_follow_the_program() {
        let r = run(&["-e", "begin {}", "one", "-c", "cat 'a b'", "-qk", "two", "--format=json", "--", "--x"]);
        assert_eq!(r.program, Program::Text("begin {}".into()));
        assert_eq!(r.child.as_deref(), Some("cat 'a b'"));
        assert!(r.quiet && r.settings.warning_level == 2 && r.format.as_deref() == Some("json"));
        assert_eq!(r.invocation.params, ["one", "two"]);
        assert_eq!(r.invocation.options, [("x".into(), None)]);
    }

    #[test]
    fn values_may_be_joined_or_look_like_files() {
        let r = run(&["-fjson", "-oout", "--debug=ast,types", "-d", "codegen-opt", "-I", "d1", "-Id2", "-p1", "a.bt"]);
        assert_eq!((r.format.as_deref(), r.outputs), (Some("json"), vec!["out".into()]));
        assert_eq!(r.dumps, ["ast", "hir", "opt"]);
        assert_eq!(r.settings.include_dirs, [PathBuf::from("d1"), "d2".into()]);
        assert_eq!(r.settings.pid, Some(1));
        assert_eq!(r.program, Program::File("a.bt".into()));
    }

    #[test]
    fn the_last_program_wins() {
        assert_eq!(run(&["-e", "a", "-e", "b"]).program, Program::Text("b".into()));
        assert_eq!(run(&["-"]).program, Program::Stdin);
        assert_eq!(run(&["-q", "--", "-odd.bt"]).program, Program::File("-odd.bt".into()));
    }

    #[test]
    fn lists() {
        let list = |args: &[&str]| match parse_words(args) {
            Ok(Command::List { what, verbose, .. }) => (what, verbose),
            other => panic!("{other:?}"),
        };
        assert_eq!(list(&["-l"]), (Listed::All, false));
        assert_eq!(list(&["-lv", "a:*"]), (Listed::Pattern("a:*".into()), true));
        assert_eq!(list(&["-l", "a:*", "-v"]), (Listed::Pattern("a:*".into()), true));
        assert_eq!(list(&["-l", "-e", "begin {}"]), (Listed::Script(Program::Text("begin {}".into())), false));
        assert!(failure(&["-l", "a", "b"]).help.is_some());
    }

    #[test]
    fn wrong_use_is_reported() {
        for (args, part) in [
            (&["-p", "0", "x"][..], "process IDs"),
            (&["-p", "4194305", "x"], "process IDs"),
            (&["-p", "abc", "x"], "not a process ID"),
            (&["-p", "1", "-c", "true", "x"], "cannot be used with"),
            (&["-c", "a 'b", "x"], "quote"),
            (&["-c", "", "x"], "empty"),
            (&["-f", "jsno", "x"], "no format"),
            (&["-B", "ful", "x"], "buffering"),
            (&["-k", "-k", "x"], "once"),
            (&["-k", "--no-warnings", "x"], "cannot be used with"),
            (&["-d", "asx", "x"], "no stage"),
            (&["--traceable-functions", "/nonexistent", "x"], "cannot read /nonexistent"),
            (&["--mode", "compiler-bench", "x"], "not supported yet"),
            (&["--mode", "test", "--test", "x"], "cannot be used with"),
            (&["--test", "--bench", "x"], "cannot be used with"),
            (&["--mode", "tset", "x"], "no mode"),
            (&["--no-feature", "kprobe", "x"], "no feature"),
            (&["--probe-filter", "(", "x"], "regular expression"),
            (&["--notify-fd", "987", "x"], "descriptor"),
            (&["--verbos", "x"], "no option `--verbos`"),
            (&["completions", "tcsh"], "completions"),
            (&["-e"], "value"),
        ] {
            let f = failure(args);
            assert!(f.message.contains(part) && f.status == 1, "{args:?}: {f:?}");
        }
        assert_eq!(failure(&["-f", "jsno", "x"]).help.as_deref(), Some("did you mean `json`?"));
    }

    /// clap breaks longer lines, and continues them below the first column of a table.
    #[test]
    fn tables_of_help_fit_into_its_width() {
        let subcommands = subcommands::SUBCOMMANDS.iter().map(|s| (s.command)().name(s.name));
        let verbs = crate::verbs::VERBS.iter().map(verbs::command);
        for command in [command(), build::run_command()].into_iter().chain(subcommands).chain(verbs) {
            let texts = [command.get_after_help(), command.get_after_long_help()];
            for line in texts.into_iter().flatten().flat_map(|text| text.to_string().lines().map(str::to_owned).collect::<Vec<_>>()) {
                // paragraphs have the indentation of the descriptions of options
                let indent = line.len() - line.trim_start().len();
                assert!([0, 10].contains(&indent) || line.chars().count() <= 100, "{}: {line}", command.get_name());
            }
        }
    }

    #[test]
    fn help_names_every_setting() {
        let Ok(Command::Say(text)) = parse_words(&["--help"]) else { panic!() };
        for s in SETTINGS {
            assert!(text.contains(s.name), "{}", s.name);
        }
        let Ok(Command::Say(short)) = parse_words(&["-h"]) else { panic!() };
        assert!(short.len() < text.len() / 2 && short.contains("Examples:"));
        let Ok(Command::Say(version)) = parse_words(&["-V"]) else { panic!() };
        assert_eq!(version, format!("rbt v{}\n", crate::VERSION));
    }
}
