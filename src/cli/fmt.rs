//! `rbt fmt`, and `--fmt`, which means the same and keeps to the words of bpftrace.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser};

use super::flags::Draft;
use super::{Command, Program};
use crate::failure::Failure;

/// Wrong use of `rbt fmt`, or a script that cannot be formatted. 1 is for a script that would change.
pub const WRONG: u8 = 2;

/// Scripts to be put in canonical form.
#[derive(Clone, Debug, PartialEq)]
pub struct Fmt {
    /// At least one; several only with `InPlace` and `Check`, and for a diff.
    pub inputs: Vec<Program>,
    /// Where the text goes.
    pub to: To,
    /// Show what changes as a unified diff, on standard output.
    pub diff: bool,
    /// Color on standard error.
    pub color: bool,
    /// The status if a script cannot be read.
    pub wrong: u8,
}

/// Where the canonical text goes.
#[derive(Clone, Debug, PartialEq)]
pub enum To {
    /// To standard output.
    Stdout,
    /// `-o`
    File(PathBuf),
    /// `-i`: to where it came from.
    InPlace,
    /// `--diff` alone: nowhere.
    Nowhere,
    /// `--check`: nowhere, and the status says whether it would have changed.
    Check,
}

/// Put scripts in canonical form
///
/// Indents by two spaces, puts one statement on a line, and breaks lines at 80 columns. Comments, names, numbers, strings and the C
/// part stay as they are, and so does the meaning of the script. Needs no privileges.
#[derive(Parser, Debug)]
#[command(
    name = "rbt fmt",
    bin_name = "rbt fmt",
    override_usage = "rbt fmt [--diff] FILE|-               to standard output
       rbt fmt [--diff] FILE -o FILE          to another file
       rbt fmt [--diff] -i FILES              in place
       rbt fmt --check [--diff] FILES         would anything change?
       rbt fmt --diff FILES                   what would change?",
    disable_version_flag = true,
    args_override_self = true,
    after_help = EXAMPLES
)]
pub(super) struct Raw {
    /// Scripts, or `-` for standard input
    #[arg(value_name = "FILE", required = true, value_hint = clap::ValueHint::FilePath)]
    files: Vec<OsString>,
    /// Change nothing; list the files that would change, and exit with status 1 if there are any
    #[arg(long, conflicts_with_all = ["in_place", "output"])]
    check: bool,
    /// Show the changes as a unified diff
    #[arg(short, long)]
    diff: bool,
    /// Rewrite the files atomically; files in canonical form are not touched
    #[arg(short, long, conflicts_with = "output")]
    in_place: bool,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Color in messages: auto, always or never
    #[arg(long, value_name = "WHEN")]
    color: Option<String>,
}

const EXAMPLES: &str = "Examples:
  rbt fmt -i *.bt                 rewrite all scripts here
  rbt fmt --check --diff *.bt     in CI: fail, and show why, if one is not in canonical form
  rbt fmt - < old.bt > new.bt     as a filter, for an editor

Exit status:
  0    done; with --check, all files are in canonical form
  1    with --check, one is not
  2    wrong use, a file that cannot be read or written, or a script that is not valid (told on standard error)";

/// Of the words after `rbt fmt`.
pub(super) fn parse(args: &[OsString]) -> Result<Command, Failure> {
    let wrong = |f: Failure| f.status(WRONG);
    let words = [OsString::from("rbt fmt")].into_iter().chain(args.iter().cloned());
    let raw = match Raw::command().try_get_matches_from(words).and_then(|m| Raw::from_arg_matches(&m)) {
        Ok(raw) => raw,
        Err(e) if e.kind() == clap::error::ErrorKind::MissingRequiredArgument => {
            return Err(wrong(Failure::new("rbt fmt: which script?").help("name files, or `-` for standard input; `rbt fmt --help`")));
        }
        Err(e) if e.use_stderr() => {
            let words: Vec<String> = ["fmt".into()].into_iter().chain(args.iter().map(|a| a.to_string_lossy().into_owned())).collect();
            return Err(wrong(super::usage::usage_error(&e, &words)).help("`rbt fmt --help` explains the options"));
        }
        Err(e) => return Ok(Command::Say(e.render().to_string())),
    };
    let inputs: Vec<Program> = raw.files.into_iter().map(Program::of).collect();
    let to = match raw.output {
        Some(file) => To::File(file),
        None if raw.in_place => To::InPlace,
        None if raw.check => To::Check,
        None if raw.diff => To::Nowhere,
        None => To::Stdout,
    };
    if inputs.len() > 1 && matches!(to, To::Stdout | To::File(_)) {
        let help = "-i rewrites each in its place, --check and --diff look at all of them";
        return Err(wrong(Failure::new("rbt fmt: several scripts, and one place for them").help(help)));
    }
    if to == To::InPlace && inputs.contains(&Program::Stdin) {
        return Err(wrong(Failure::new("rbt fmt -i: standard input cannot be rewritten").help("leave out -i: `rbt fmt -` is a filter")));
    }
    if let (To::InPlace, Some(Program::Saved(script))) = (&to, inputs.iter().find(|i| matches!(i, Program::Saved(_)))) {
        let name = script.name;
        let failure = Failure::new(format!("rbt fmt -i: there is no file `{name}`, and the tool of that name is part of rbt"));
        return Err(wrong(failure.help(format!("`rbt one-liners {name} > {name}.bt` makes a file of it"))));
    }
    let color = super::color(raw.color.as_deref()).map_err(wrong)?;
    Ok(Command::Fmt(Fmt { inputs, to, diff: raw.diff, color, wrong: WRONG }))
}

/// Of `--fmt`.
pub(super) fn compatible(draft: Draft, file: Option<OsString>) -> Result<Command, Failure> {
    let input = match (draft.program, file) {
        (Some(text), _) => Program::Text(text),
        (None, Some(file)) => Program::of(file),
        (None, None) => return Err(Failure::new("there is no script").help("give a FILE, or -e 'PROGRAM'")),
    };
    let to = draft.run.output.map_or(To::Stdout, To::File);
    Ok(Command::Fmt(Fmt { inputs: vec![input], to, diff: false, color: draft.run.color, wrong: 1 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<Command, Failure> {
        super::super::parse(["rbt"].iter().chain(args).map(OsString::from))
    }

    fn fmt(args: &[&str]) -> Fmt {
        match parsed(args) {
            Ok(Command::Fmt(fmt)) => fmt,
            other => panic!("{args:?}: {other:?}"),
        }
    }

    #[test]
    fn options_say_where_the_text_goes() {
        assert_eq!(fmt(&["fmt", "a.bt"]).to, To::Stdout);
        assert_eq!(fmt(&["fmt", "a.bt", "-o", "b"]).to, To::File("b".into()));
        assert_eq!(fmt(&["fmt", "-i", "a.bt", "b.bt"]).inputs.len(), 2);
        assert_eq!(fmt(&["fmt", "--check", "a.bt", "b.bt"]).to, To::Check);
        assert_eq!((fmt(&["fmt", "--diff", "a"]).to, fmt(&["fmt", "--check", "--diff", "a"]).to), (To::Nowhere, To::Check));
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
