//! The options of `rbt fmt`, and of `--fmt`, bpftrace's name for the same task.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser};

use super::flags::ArgsBuilder;
use super::{Command, Program};
use crate::failure::Failure;

/// Exit status after wrong usage, or if a script cannot be formatted. Status 1 stands for a script that would change.
pub const WRONG: u8 = 2;

/// A request to format scripts.
#[derive(Clone, Debug, PartialEq)]
pub struct Fmt {
    /// At least one script; several only with `InPlace` and `Check`, and for a diff.
    pub inputs: Vec<Program>,
    /// The destination of the result.
    pub destination: FmtDestination,
    /// Print the changes as a unified diff to standard output.
    pub diff: bool,
    /// Color on standard error.
    pub color: bool,
    /// The exit status if a script is unreadable.
    pub wrong: u8,
}

/// The destination of the canonical text.
#[derive(Clone, Debug, PartialEq)]
pub enum FmtDestination {
    /// Standard output.
    Stdout,
    /// `-o`
    File(PathBuf),
    /// `-i`: the file itself.
    InPlace,
    /// `--diff` alone: nowhere.
    Nowhere,
    /// `--check`: nowhere; the exit status tells whether it would change.
    Check,
}

/// Put scripts in canonical form
///
/// rbt indents by two spaces, puts one statement on each line, and breaks lines at 80 columns. It changes neither comments, names,
/// numbers, strings and C declarations, nor the meaning of the script. Formatting needs no privileges.
#[derive(Parser, Debug)]
#[command(
    name = "rbt fmt",
    bin_name = "rbt fmt",
    override_usage = "rbt fmt [--diff] FILE|-               print the result
       rbt fmt [--diff] FILE -o FILE          write it to another file
       rbt fmt [--diff] -i FILES              rewrite the files
       rbt fmt --check [--diff] FILES         list files that would change
       rbt fmt --diff FILES                   show the changes",
    disable_version_flag = true,
    args_override_self = true,
    after_help = EXAMPLES
)]
pub(super) struct Raw {
    /// Scripts, or `-` for standard input
    #[arg(value_name = "FILE", required = true, value_hint = clap::ValueHint::FilePath)]
    files: Vec<OsString>,
    /// List the files that would change, without changing them, and exit with status 1 if there are any
    #[arg(long, conflicts_with_all = ["in_place", "output"])]
    check: bool,
    /// Show the changes as a unified diff
    #[arg(short, long)]
    diff: bool,
    /// Rewrite the files atomically, except for those in canonical form
    #[arg(short, long, conflicts_with = "output")]
    in_place: bool,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Color messages: auto, always or never
    #[arg(long, value_name = "WHEN")]
    color: Option<String>,
}

const EXAMPLES: &str = "Examples:
  rbt fmt -i *.bt                 rewrite all scripts in this directory
  rbt fmt --check --diff *.bt     in CI: show the changes, and fail if there are any
  rbt fmt - < old.bt > new.bt     filter, for use in an editor

Exit status:
  0    success; with --check, all files are in canonical form
  1    with --check, a file is not in canonical form
  2    wrong usage, an unreadable or unwritable file, or an invalid script";

/// Parses the arguments after `rbt fmt`.
pub(super) fn parse(args: &[OsString]) -> Result<Command, Failure> {
    let error = |f: Failure| f.status(WRONG);
    let words = [OsString::from("rbt fmt")].into_iter().chain(args.iter().cloned());
    let raw = match Raw::command().try_get_matches_from(words).and_then(|m| Raw::from_arg_matches(&m)) {
        Ok(raw) => raw,
        Err(e) if e.kind() == clap::error::ErrorKind::MissingRequiredArgument => {
            return Err(error(Failure::new("rbt fmt needs a script").help("name files, or `-` for standard input; see `rbt fmt --help`")));
        }
        Err(e) if e.use_stderr() => {
            let words: Vec<String> = ["fmt".into()].into_iter().chain(args.iter().map(|a| a.to_string_lossy().into_owned())).collect();
            return Err(error(super::usage::usage_error(&e, &words)).help("`rbt fmt --help` explains the options"));
        }
        Err(e) => return Ok(Command::Say(e.render().to_string())),
    };
    let inputs: Vec<Program> = raw.files.into_iter().map(Program::of).collect();
    let to = match raw.output {
        Some(file) => FmtDestination::File(file),
        None if raw.in_place => FmtDestination::InPlace,
        None if raw.check => FmtDestination::Check,
        None if raw.diff => FmtDestination::Nowhere,
        None => FmtDestination::Stdout,
    };
    if inputs.len() > 1 && matches!(to, FmtDestination::Stdout | FmtDestination::File(_)) {
        let help = "-i rewrites each file, and --check and --diff compare all of them";
        return Err(error(Failure::new("rbt fmt: cannot write several scripts to one output").help(help)));
    }
    if to == FmtDestination::InPlace && inputs.contains(&Program::Stdin) {
        return Err(error(Failure::new("rbt fmt -i cannot rewrite standard input").help("remove -i: `rbt fmt -` is a filter")));
    }
    if let (FmtDestination::InPlace, Some(Program::Tool(script))) = (&to, inputs.iter().find(|i| matches!(i, Program::Tool(_)))) {
        let name = script.name;
        let failure = Failure::new(format!("rbt fmt -i: there is no file `{name}`, and the tool with this name is part of rbt"));
        return Err(error(failure.help(format!("`rbt one-liners {name} > {name}.bt` writes the tool to a file"))));
    }
    let color = super::color(raw.color.as_deref()).map_err(error)?;
    Ok(Command::Subcommand(Box::new(Fmt { inputs, destination: to, diff: raw.diff, color, wrong: WRONG })))
}

/// Resolves `--fmt`.
pub(super) fn compatible(mut draft: ArgsBuilder, file: Option<OsString>) -> Result<Command, Failure> {
    let input = match (draft.program, file) {
        (Some(text), _) => Program::Text(text),
        (None, Some(file)) => Program::of(file),
        (None, None) => return Err(Failure::new("there is no script").help("give a FILE, or -e 'PROGRAM'")),
    };
    let to = draft.run.outputs.pop().filter(|file| file.as_os_str() != "-").map_or(FmtDestination::Stdout, FmtDestination::File);
    Ok(Command::Subcommand(Box::new(Fmt { inputs: vec![input], destination: to, diff: false, color: draft.run.color, wrong: 1 })))
}

#[cfg(test)]
mod tests {
    use std::any::Any;

    use super::*;

    fn parsed(args: &[&str]) -> Result<Command, Failure> {
        super::super::parse(["rbt"].iter().chain(args).map(OsString::from))
    }

    fn fmt(args: &[&str]) -> Fmt {
        match parsed(args) {
            Ok(Command::Subcommand(action)) => *(action as Box<dyn Any>).downcast().unwrap(),
            other => panic!("{args:?}: {other:?}"),
        }
    }

    #[test]
    fn options_select_the_destination() {
        assert_eq!(fmt(&["fmt", "a.bt"]).destination, FmtDestination::Stdout);
        assert_eq!(fmt(&["fmt", "a.bt", "-o", "b"]).destination, FmtDestination::File("b".into()));
        assert_eq!(fmt(&["fmt", "-i", "a.bt", "b.bt"]).inputs.len(), 2);
        assert_eq!(fmt(&["fmt", "--check", "a.bt", "b.bt"]).destination, FmtDestination::Check);
        assert_eq!(
            (fmt(&["fmt", "--diff", "a"]).destination, fmt(&["fmt", "--check", "--diff", "a"]).destination),
            (FmtDestination::Nowhere, FmtDestination::Check)
        );
        assert_eq!(fmt(&["fmt", "-"]).inputs, [Program::Stdin]);
        assert_eq!(fmt(&["--fmt", "a.bt", "-o", "b"]), Fmt { wrong: 1, ..fmt(&["fmt", "a.bt", "-o", "b"]) });
        assert_eq!(fmt(&["-e", "begin{}", "--mode", "format"]).inputs, [Program::Text("begin{}".into())]);
    }

    #[test]
    fn wrong_use_is_status_2() {
        let bad = [
            &["fmt"][..],
            &["fmt", "a", "b"],
            &["fmt", "-i", "-"],
            &["fmt", "--check", "-i", "a"],
            &["fmt", "--chekc", "a"],
            &["fmt", "-i", "opensnoop"],
        ];
        for args in bad {
            let failure = parsed(args).unwrap_err();
            assert_eq!((failure.status, failure.help.is_some()), (2, true), "{args:?}: {failure:?}");
        }
        assert_eq!(parsed(&["--fmt"]).unwrap_err().status, 1);
        let Ok(Command::Say(help)) = parsed(&["fmt", "--help"]) else { panic!() };
        assert!(help.contains("--check") && help.contains("Exit status"), "{help}");
    }
}
