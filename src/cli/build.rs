//! The options of `rbt build`, and those of `rbt-run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, value_parser};

use super::{Command, Program, Run, flags, split};
use crate::diag;
use crate::failure::Failure;
use crate::parts;
use crate::system::machine::arch::{self, Arch};

/// A request for a bundle.
#[derive(Clone, Debug)]
pub struct Build {
    /// The script and the options by which it is compiled.
    pub run: Box<Run>,
    /// `-o`, or a name derived from the script's.
    pub output: PathBuf,
    /// `--exe`: with the runner in front.
    pub exe: bool,
    /// Without `--no-compress`: with the runner compressed.
    pub compress: bool,
    /// `--runner`
    pub runner: Option<Runner>,
    /// `--this-kernel`: for kernels with the features of this one.
    pub this_kernel: bool,
    /// `--for`: the architecture of the machines that run the bundle.
    pub arch: &'static Arch,
    /// `--against`: snapshots, and directories of them.
    pub against: Vec<PathBuf>,
}

const ABOUT: &str = "Compile a script to a file that runs without a compiler

rbt build writes a bundle, which contains the BPF object of a script and everything else that a run needs. rbt-run runs bundles. It \
attaches the probes of the script, and its output is the same as that of rbt.

A bundle also runs on other kernels: rbt-run relocates the offsets of members and tracepoint fields, and the bundle has variants for \
kernels with fewer features. rbt-run finds functions and markers in the files of the machine that it runs on, and \
expands wildcards there. It first checks all other facts about types, functions and tracepoints that the code depends on. If no variant \
fits the kernel, it names the differences and attaches nothing.";

const EXAMPLES: &str =
    "A run of the bundle takes what it needs not know earlier: the traced processes (-p, -c, --follow, --cgroup, --container), the script's \
     options and positional parameters, the output and its format, and the duration. The build fixes the script's options that it gets, those \
     that choose types, attach points or sizes, and the options of rbt that affect code (--max-overhead …). The help of the bundle, \
     `rbt-run BUNDLE --help`, lists what the run takes. See `rbt-run --help`.

Examples:
  rbt build opensnoop -o open.bundle                  compile a tool
  rbt-run open.bundle --comm=cat -f json              run it, with its option --comm
  rbt build opensnoop --failed -o failed.bundle       compile it with its option --failed
  rbt build --exe opensnoop -o opensnoop              write a program that needs no rbt-run
  rbt build opensnoop --against kernels/              also check it against each kernel
  rbt build opensnoop --for aarch64 --against arm.rbts
                                                      compile it for another architecture
  rbt build -e 'profile:hz:99 { @[comm] = count(); }' -o who.bundle
                                                      compile a program";

/// The name of the subcommand.
pub(super) const NAME: &str = "build";

/// A program that runs bundles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// It has everything.
    Full,
    /// See [`crate::parts`].
    Small,
}

impl Runner {
    const ALL: [Runner; 2] = [Runner::Full, Runner::Small];

    /// Its name for `--runner`.
    fn name(self) -> &'static str {
        match self {
            Runner::Full => "full",
            Runner::Small => "small",
        }
    }

    /// The name of its file.
    pub fn file_name(self) -> &'static str {
        match self {
            Runner::Full => "rbt-run",
            Runner::Small => "rbt-run-small",
        }
    }
}

/// The ending of a bundle's name.
const ENDING: &str = "bundle";

/// The command, for completions and the manual.
pub(super) fn command() -> clap::Command {
    clap::Command::new("rbt build")
        .bin_name("rbt build")
        .override_usage("rbt build [OPTIONS] FILE|NAME|-e PROGRAM [-o FILE] [ARGS]")
        .about(ABOUT.lines().next().unwrap_or_default())
        .long_about(ABOUT)
        .after_help(EXAMPLES)
        .disable_version_flag(true)
        .arg(Arg::new("script").value_name("FILE|NAME").value_hint(clap::ValueHint::FilePath).help("A script file or the name of a tool"))
        .arg(Arg::new("e").short('e').value_name("PROGRAM").help("Compile this program"))
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FILE")
                .value_hint(clap::ValueHint::FilePath)
                .help("Write the bundle to FILE. The default is NAME.bundle in the current directory, or NAME with --exe."),
        )
        .arg(Arg::new("exe").long("exe").action(ArgAction::SetTrue).help(
            "Write an executable file that contains a runner, compressed, and the bundle. The runners must be in the directory of rbt, \
             and those of another architecture, for --for, in a directory there that has its name. These are not compressed.",
        ))
        .arg(Arg::new("runner").long("runner").value_name("RUNNER").value_parser(Runner::ALL.map(Runner::name)).help(
            "The runner of --exe: `small` is rbt-run-small, which has no symbols, stacks, user-space probes, documents (such as -f html), \
             --serve and --otlp. `full` is rbt-run, which has them. By default, it is the smallest one with what the script needs.",
        ))
        .arg(Arg::new("no-compress").long("no-compress").action(ArgAction::SetTrue).help(
            "Do not compress the program of --exe. It is twice as large, its start takes 4 ms less, and it needs no executable memory \
             without a file, which some security policies forbid.",
        ))
        .arg(
            Arg::new("this-kernel")
                .long("this-kernel")
                .action(ArgAction::SetTrue)
                .help("Compile only for kernels with the features of the running one, which makes the file smaller"),
        )
        .arg(Arg::new("for").long("for").value_name("ARCHITECTURE").value_parser(architectures()).help(
            "Compile for machines with this processor architecture. For another one than that of this machine, --against describes \
             the kernels, and rbt loads nothing.",
        ))
        .arg(Arg::new("against").long("against").value_name("KERNEL").action(ArgAction::Append).value_hint(clap::ValueHint::AnyPath).help(
            "Check the bundle against a kernel (a snapshot, or a directory of *.rbts), and compile a variant for it if none fits \
                     (may be repeated)",
        ))
}

/// The names that `--for` takes.
fn architectures() -> PossibleValuesParser {
    PossibleValuesParser::new(arch::ALL.iter().map(|arch| arch.name))
}

/// Parses the arguments after `rbt build`.
pub(super) fn parse(args: &[OsString]) -> Result<Command, Failure> {
    let mut args = args.to_vec();
    let mut take = |flag: &str| {
        let at = args.iter().take_while(|arg| *arg != "--").position(|arg| arg == flag);
        at.map(|at| args.remove(at)).is_some()
    };
    let (exe, here, compress) = (take("--exe"), take("--this-kernel"), !take("--no-compress"));
    let against = take_values(&mut args, "--against")?.into_iter().map(PathBuf::from).collect();
    let arch = match take_values(&mut args, "--for")?.last().map(|name| name.to_string_lossy()) {
        None => arch::HERE,
        Some(name) => arch::named(&name).ok_or_else(|| {
            let failure = Failure::new(format!("there is no architecture `{}`", diag::plain(&name))).code("usage");
            failure.help(format!("the architectures are {}", arch::names()))
        })?,
    };
    let named = |name: &OsString| {
        Runner::ALL.into_iter().find(|runner| *name == *runner.name()).ok_or_else(|| {
            let failure = Failure::new(format!("there is no runner `{}`", diag::plain(&name.to_string_lossy()))).code("usage");
            failure.help(format!("the runners are {}", Runner::ALL.map(Runner::name).join(" and ")))
        })
    };
    let runner = take_values(&mut args, "--runner")?.last().map(named).transpose()?;
    if runner.is_some() && !exe {
        return Err(Failure::new("--runner chooses the runner of --exe").code("usage").help("add --exe"));
    }
    if !compress && !exe {
        return Err(Failure::new("--no-compress is an option of --exe").code("usage").help("add --exe"));
    }
    let args = args.as_slice();
    let before_script = split::first_word(args).unwrap_or(args.len());
    let helps = |word: &str| args.iter().take(before_script).any(|arg| arg == word);
    if helps("--help") || helps("-h") {
        let mut command = command();
        let text = if helps("--help") { command.render_long_help() } else { command.render_help() };
        return Ok(Command::Say(text.to_string()));
    }
    let mut run = match super::script_of(NAME, args)? {
        Ok(run) => run,
        Err(help) => return Ok(Command::Say(help)),
    };
    // the run may have expectations
    run.invocation.counts_unread = true;
    let to = match std::mem::take(&mut run.outputs).as_slice() {
        [] if exe => PathBuf::from(stem(&run.program)),
        [] => PathBuf::from(format!("{}.{ENDING}", stem(&run.program))),
        [file] if file.as_os_str() == "-" => {
            return Err(Failure::new("rbt build cannot write to standard output (-)").help("name a file: -o NAME"));
        }
        [file] => file.clone(),
        [_, other, ..] => return Err(Failure::new(format!("rbt build writes only one file; -o {} is a second one", other.display()))),
    };
    Ok(Command::Subcommand(Box::new(Build { run, output: to, exe, compress, runner, this_kernel: here, arch, against })))
}

/// Takes an option with its values out of the arguments.
fn take_values(args: &mut Vec<OsString>, option: &str) -> Result<Vec<OsString>, Failure> {
    let mut values = Vec::new();
    let find = |args: &[OsString]| {
        let is_it =
            |arg: &OsString| arg == option || arg.to_str().is_some_and(|a| a.strip_prefix(option).is_some_and(|v| v.starts_with('=')));
        args.iter().take_while(|arg| *arg != "--").position(is_it)
    };
    while let Some(at) = find(args) {
        let arg = args.remove(at);
        let joined = arg.to_str().and_then(|arg| arg.split_once('=')).map(|(_, value)| OsString::from(value));
        let value = match joined {
            Some(value) => value,
            None if at < args.len() => args.remove(at),
            None => return Err(Failure::new(format!("{option} needs a value")).code("usage")),
        };
        values.push(value);
    }
    Ok(values)
}

fn stem(program: &Program) -> String {
    match program {
        Program::Tool(script) => script.name.into(),
        Program::File(path) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        Program::Composed(_) | Program::Text(_) | Program::Stdin => "script".into(),
    }
}

/// What `rbt-run` should do.
#[derive(Debug)]
pub enum RunnerCommand {
    /// Run this bundle, or the one in the program itself.
    Run(Box<Run>, Option<PathBuf>),
    /// Print this text.
    Say(String),
    /// Explain this bundle.
    Explain(Option<PathBuf>),
}

/// Options of `rbt build` that a user expects at the run.
const CODE_OPTIONS: [&str; 2] = ["--max-overhead", "--max-events"];

const RUN_ABOUT: &str = "Run a bundle, which `rbt build` wrote

A bundle is a compiled script. rbt-run loads it into the kernel, attaches its probes and prints what rbt prints. It has no compiler.";

const RUN_STATUS: &str = "Settings that do not affect the code can be set in the environment, as for rbt: RBT_PERF_RB_PAGES.

Exit status:
  0    the run ended normally
  1    wrong usage, a missing or damaged bundle, a machine that differs, or a missing permission;
       with --strict, also that something was lost
  2    an internal error, or an invalid setting in the environment
  255  the kernel refused to load or to attach a program
  any  the status that exit(n) gives; with --propagate-status, that of the command of -c

With --expect:
  0    all expectations are met (unless exit(n) or --propagate-status says otherwise)
  1    an expectation is not met
  2    the bundle, an expectation or an option is wrong
  3    the bundle could not run, or lost events leave an expectation undecided";

/// The options of `rbt-run`.
pub fn run_command() -> clap::Command {
    let bundle = Arg::new("bundle")
        .value_name("BUNDLE")
        .value_hint(clap::ValueHint::FilePath)
        .value_parser(value_parser!(PathBuf))
        .help("A file that `rbt build` wrote");
    compiled("rbt-run").override_usage("rbt-run [OPTIONS] BUNDLE [OPTIONS] [ARGS]").arg(bundle)
}

/// The options of a compiled script that is a program of this name.
pub fn compiled(name: &str) -> clap::Command {
    clap::Command::new("rbt-run")
        .bin_name(name.to_string())
        .override_usage(format!("{name} [OPTIONS] [ARGS]"))
        .version(concat!("v", env!("CARGO_PKG_VERSION")))
        .about(RUN_ABOUT.lines().next().unwrap_or_default())
        .long_about(RUN_ABOUT)
        .after_help(RUN_STATUS)
        .args_override_self(true)
        .disable_help_flag(true)
        .arg(
            Arg::new("help")
                .short('h')
                .long("help")
                .action(ArgAction::SetTrue)
                .help("Print help. After BUNDLE, print the help of the script."),
        )
        .args(flags::bundle_flags())
}

/// Parses the arguments of `rbt-run`, which begin with its name; or those of the program `bundle_name`, which contains a
/// bundle.
///
/// # Errors
/// Wrong usage.
pub fn parse_run(args: impl IntoIterator<Item = OsString>, bundle_name: Option<&str>) -> Result<RunnerCommand, Failure> {
    let args = split::with_numbers(args.into_iter().skip(1), flags::long_at_run);
    let status = super::usage_status(&args);
    parse_runner_words(args, bundle_name).map_err(|failure| Failure { status: status.unwrap_or(failure.status), ..failure })
}

fn parse_runner_words(args: Vec<OsString>, bundle_name: Option<&str>) -> Result<RunnerCommand, Failure> {
    let name = bundle_name.unwrap_or("rbt-run");
    let (args, script_words) = split::split_at_run(args, bundle_name.is_some());
    let script_words: Vec<String> = script_words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let parsed = |found: &clap::ArgMatches| -> Result<Box<Run>, Failure> {
        let mut run = flags::read_at_run(found)?.run;
        run.words = script_words.clone();
        let exports = [("--serve", run.serve.is_some()), ("--otlp", run.otlp.is_some())];
        if let Some((option, _)) = exports.iter().find(|(_, asked)| *asked && !parts::are_provided()) {
            return Err(parts::lacking(option));
        }
        super::require_expectation(&run)?;
        Ok(Box::new(run))
    };
    let command = bundle_name.map_or_else(run_command, compiled);
    let words: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let found = match command.try_get_matches_from([OsString::from(name)].into_iter().chain(args)) {
        Ok(found) => found,
        Err(e) if e.use_stderr() => {
            let failure = super::usage::usage_error_of(name, &e, &words);
            let is_of_code = |option: &&&str| words.iter().any(|w| w.split('=').next() == Some(**option));
            return Err(failure.help(match CODE_OPTIONS.iter().find(is_of_code) {
                Some(option) => format!("the code of the bundle depends on it: `rbt build {option} ...` puts it into the bundle"),
                None => format!("`{name} --help` lists the options"),
            }));
        }
        Err(e) => return Ok(RunnerCommand::Say(e.render().to_string())),
    };
    let bundle = if bundle_name.is_some() { None } else { found.get_one::<PathBuf>("bundle").cloned() };
    let help = found.get_flag("help");
    match bundle {
        None if bundle_name.is_some() && help => Ok(RunnerCommand::Explain(None)),
        None if bundle_name.is_some() => Ok(RunnerCommand::Run(parsed(&found)?, None)),
        None if help => Ok(RunnerCommand::Say(run_command().render_long_help().to_string())),
        None => Err(Failure::new("rbt-run needs a bundle").help("`rbt build SCRIPT -o FILE` writes one")),
        Some(path) if help => Ok(RunnerCommand::Explain(Some(path))),
        Some(path) => Ok(RunnerCommand::Run(parsed(&found)?, Some(path))),
    }
}
