//! `rbt one-liners`: lists the tools or prints one.

use std::ffi::OsString;
use std::io::IsTerminal;

use super::Command;
use super::values::color_where;
use crate::diag::nearest;
use crate::failure::Failure;
use crate::tools;

const HELP: &str = "Usage: rbt one-liners             list the tools by subject
       rbt one-liners SUBJECT     list the tools of one subject
       rbt one-liners NAME        print the source of a tool

  rbt NAME                        run a tool
  rbt NAME --help                 show its options, its requirements and a sample of its output
";

/// The end of the list.
const AFTER_LIST: &str = "rbt NAME runs a tool, rbt NAME --help describes it, rbt one-liners NAME prints its source.\n";

/// `rbt one-liners [NAME | SUBJECT]`
pub(super) fn parse(words: &[OsString]) -> Result<Command, Failure> {
    let words: Vec<_> = words.iter().map(|w| w.to_string_lossy()).filter(|w| w != "--").collect();
    if words.iter().any(|w| w == "-h" || w == "--help") {
        return Ok(Command::Say(HELP.into()));
    }
    let color = color_where(None, || std::io::stdout().is_terminal())?;
    // a subject may have two words
    let word = words.join(" ");
    if let Some(option) = words.iter().find(|w| w.starts_with('-')) {
        return Err(Failure::new(format!("rbt one-liners: there is no option `{option}`"))
            .code("unknown-option")
            .help("`rbt one-liners --help` explains it"));
    }
    if word.is_empty() {
        return Ok(Command::Say(format!("{}\n{}", tools::list(None, color), AFTER_LIST)));
    }
    if let Some(script) = tools::find(&word) {
        return Ok(Command::Say(script.text.into()));
    }
    if tools::SUBJECTS.iter().any(|(s, _)| *s == word) {
        return Ok(Command::Say(tools::list(Some(&word), color)));
    }
    let failure = Failure::new(format!("there is no tool or subject `{word}`")).code("unknown-tool");
    let known = tools::TOOLS.iter().map(|s| s.name).chain(tools::SUBJECTS.iter().map(|(s, _)| *s));
    if let Some(here) = tools::elsewhere(&word) {
        return Err(failure.help(format!("rbt's counterpart is `{here}`")));
    }
    Err(failure.help(match nearest(&word, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("`rbt one-liners` lists them; `rbt help {word}` searches all help texts"),
    }))
}
