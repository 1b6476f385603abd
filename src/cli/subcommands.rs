//! The table of subcommands. The parser, help, completions, and the synopsis and options in the manual come from it. A row's parser
//! returns the row's [`Action`](super::Action).

use std::ffi::OsString;

use clap::{Arg, CommandFactory};

use super::completions::completions;
use super::{Command, build, check, cost, fmt, merge, one_liners, serve, snapshot};
use crate::failure::Failure;
use crate::tools::TOOLS;
use crate::verdict;

/// A subcommand.
pub struct Subcommand {
    /// The name: the word after `rbt`.
    pub name: &'static str,
    /// The arguments, as the synopsis shows them.
    pub usage: &'static str,
    /// A line of documentation.
    pub doc: &'static str,
    /// The options, with the words that completions offer for them.
    pub command: fn() -> clap::Command,
    /// Parses the arguments after the name.
    pub(super) parse: fn(&[OsString]) -> Result<Command, Failure>,
}

/// All subcommands, in the order of the synopsis.
pub const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand {
        name: "one-liners",
        usage: "[NAME | SUBJECT]",
        doc: "List the tools, or print the source of one",
        command: || {
            let name = Arg::new("name").value_parser(TOOLS.iter().map(|s| s.name).collect::<Vec<_>>());
            clap::Command::new("one-liners").arg(name)
        },
        parse: one_liners::parse,
    },
    Subcommand {
        name: "help",
        usage: "[WORD]",
        doc: "Explain a word: a builtin, a probe, a setting, an option, a code, a tool",
        command: || clap::Command::new("help").arg(Arg::new("word")),
        parse: |words| Ok(Command::Subcommand(Box::new(Help(text(words).into_iter().filter(|w| w != "--").collect())))),
    },
    Subcommand {
        name: "check",
        usage: "FILES [--against SNAPSHOTS]",
        doc: "Check scripts against kernels",
        command: || {
            let formats = verdict::FORMATS.iter().map(|f| f.name).collect::<Vec<_>>();
            offer(check::Raw::command(), &[("format", &formats), ("deny", &["warnings"]), COLOR])
        },
        parse: check::parse,
    },
    Subcommand {
        name: "build",
        usage: "[OPTIONS] FILE|NAME|-e PROGRAM [-o FILE] [ARGS]",
        doc: "Compile a script to a bundle, which rbt-run runs without a compiler",
        command: build::command,
        parse: build::parse,
    },
    Subcommand {
        name: "merge",
        usage: "[--by host] [--hosts NAMES] [-f FORMAT] FILES",
        doc: "Add up the counts of runs on several machines (-f state)",
        command: merge::command,
        parse: merge::parse,
    },
    Subcommand {
        name: "cost",
        usage: "[OPTIONS] FILE|NAME|-e PROGRAM [ARGS]",
        doc: "Measure what a script costs the machine, and what a limit would do",
        command: cost::command,
        parse: cost::parse,
    },
    Subcommand {
        name: "serve",
        usage: "[OPTIONS] DIR [[ADDR:]PORT]",
        doc: "Run the scripts of a directory, and serve their maps as metrics for Prometheus",
        command: serve::command,
        parse: serve::parse,
    },
    Subcommand {
        name: "fmt",
        usage: "[--check] [--diff] [-i | -o FILE] FILES",
        doc: "Format scripts",
        command: || offer(fmt::Raw::command(), &[COLOR]),
        parse: fmt::parse,
    },
    Subcommand {
        name: "snapshot",
        usage: "[-o FILE] [--for SCRIPTS] | --show FILES",
        doc: "Describe a kernel in a file, to check scripts against it",
        command: || offer(snapshot::Raw::command(), &[COLOR]),
        parse: snapshot::parse,
    },
    Subcommand {
        name: "info",
        usage: "",
        doc: "Report what this machine and this build of rbt support",
        command: || clap::Command::new("info"),
        parse: |words| match words.first() {
            Some(word) if is_help(word) => Ok(Command::Say(brief("info", ""))),
            Some(word) => Err(Failure::new(format!("rbt info takes no arguments: `{}`", word.to_string_lossy()))),
            None => Ok(Command::Subcommand(Box::new(Info))),
        },
    },
    Subcommand {
        name: "completions",
        usage: "bash|zsh|fish",
        doc: "Print the completion script of a shell",
        command: || {
            let shells = SHELLS.map(|(name, _)| clap::Command::new(name).about(format!("Completions of {name}")));
            clap::Command::new("completions").subcommands(shells).disable_help_subcommand(true)
        },
        parse: |words| match words.first() {
            Some(word) if is_help(word) => Ok(Command::Say(brief("completions", COMPLETIONS))),
            Some(word) => shell(word),
            None => Err(Failure::new("rbt completions needs the name of a shell").help(SHELL_NAMES)),
        },
    },
];

/// `rbt info`
#[derive(Debug)]
pub struct Info;

/// `rbt help`: the words to explain.
#[derive(Debug)]
pub struct Help(pub Vec<String>);

/// Shells with completions.
const SHELLS: [(&str, clap_complete::Shell); 3] =
    [("bash", clap_complete::Shell::Bash), ("zsh", clap_complete::Shell::Zsh), ("fish", clap_complete::Shell::Fish)];

/// The definitions of all subcommands, for completions.
pub(super) fn definitions() -> impl Iterator<Item = clap::Command> {
    SUBCOMMANDS.iter().map(|s| (s.command)().name(s.name).about(s.doc))
}

/// Finds a subcommand by name.
pub fn find(word: &str) -> Option<&'static Subcommand> {
    SUBCOMMANDS.iter().find(|s| s.name == word)
}

/// `rbt completions SHELL`, and `--completions SHELL`.
pub(super) fn shell(name: &OsString) -> Result<Command, Failure> {
    let name = name.to_string_lossy();
    match SHELLS.iter().find(|(known, _)| *known == name) {
        Some((_, shell)) => Ok(Command::Say(completions(*shell, definitions()))),
        None => Err(Failure::new(format!("there are no completions for `{name}`")).help(SHELL_NAMES)),
    }
}

fn text(words: &[OsString]) -> Vec<String> {
    words.iter().map(|w| w.to_string_lossy().into_owned()).collect()
}

fn is_help(word: &OsString) -> bool {
    word == "-h" || word == "--help"
}

/// The help of a subcommand without options.
fn brief(name: &str, more: &str) -> String {
    let (usage, doc) = find(name).map_or(("", ""), |s| (s.usage, s.doc));
    format!("{doc}\n\nUsage: {}\n{more}", format!("rbt {name} {usage}").trim_end())
}

const SHELL_NAMES: &str = "the shells are bash, zsh and fish";

const COMPLETIONS: &str = "
Examples:
  source <(rbt completions bash)                                    in ~/.bashrc
  rbt completions zsh > ~/.zfunc/_rbt                               in a directory of $fpath
  rbt completions fish > ~/.config/fish/completions/rbt.fish
";

const COLOR: (&str, &[&str]) = ("color", super::values::COLORS);

/// The command with the words that completions offer for its options.
fn offer(command: clap::Command, words: &[(&str, &[&'static str])]) -> clap::Command {
    command.mut_args(|arg| match words.iter().find(|(id, _)| arg.get_id() == id) {
        Some((_, words)) => arg.value_parser(words.to_vec()),
        None => arg,
    })
}
