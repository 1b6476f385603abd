//! Splits the arguments into rbt's and the script's.

use std::ffi::OsString;

use super::flags;
use crate::builtins::options::ScriptOption;
use crate::diag::nearest;
use crate::failure::Failure;

/// Parts our options from the script's file and its arguments. Before the script whatever begins with `-` is an option;
/// after it (a file, or what `-e` gives) only what we know, the rest being the script's: `-5` is a
/// number. After `--`, nothing is ours. Nor is `--help` after a tool's name. Last: does a program follow such a name?
pub(super) fn split(args: &mut Vec<OsString>) -> (Vec<OsString>, Vec<OsString>, bool) {
    let (mut options, mut rest) = (Vec::new(), Vec::new());
    let (mut script, mut named, mut twice) = (false, false, false);
    let mut args = std::mem::take(args).into_iter();
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy();
        if text == "--" {
            rest.extend(args);
            break;
        }
        if named && (text == "--help" || text == "-h") {
            rest.push("--help".into());
            continue;
        }
        let looks_so = text.len() > 1 && text.starts_with('-');
        match option(&text) {
            Some(found) => {
                script |= found.program;
                twice |= named && found.program;
                options.push(arg);
                if found.wants_value {
                    options.extend(args.next());
                }
            }
            None if looks_so && !script => options.push(arg),
            None => {
                named |= !script && super::saved(&arg).is_some();
                script = true;
                rest.push(arg);
            }
        }
    }
    (options, rest, twice)
}

/// Where the first word is that is no option of ours, nor an option's value: a script's name or a verb. None where there is a program
/// already, or a list is asked for.
pub(super) fn first_word(args: &[OsString]) -> Option<usize> {
    let mut at = 0;
    while let Some(arg) = args.get(at) {
        let text = arg.to_string_lossy();
        match option(&text) {
            Some(found) if found.program || text == "--list" || (text.starts_with("-l") && !text.starts_with("--")) => return None,
            Some(found) => at += if found.wants_value { 2 } else { 1 },
            None if text.starts_with('-') => return None,
            None => return Some(at),
        }
    }
    None
}

/// What an argument is that is one of our options, or several short ones.
struct Found {
    /// Its value is the next argument.
    wants_value: bool,
    /// It is `-e`.
    program: bool,
}

fn option(text: &str) -> Option<Found> {
    if let Some(long) = text.strip_prefix("--") {
        let (name, value) = long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v)));
        return Some(Found { wants_value: flags::long(name)?.valued() && value.is_none(), program: false });
    }
    let mut letters = text.strip_prefix('-').filter(|l| !l.is_empty())?.chars();
    while let Some(letter) = letters.next() {
        let flag = flags::short(letter)?;
        if flag.valued() {
            return Some(Found { wants_value: letters.next().is_none(), program: flag.is_program() });
        }
    }
    Some(Found { wants_value: false, program: false })
}

/// The options whose value may be the next argument.
pub fn valued(options: &[ScriptOption]) -> Vec<&str> {
    options.iter().filter(|o| o.takes_value()).map(|o| o.name.as_str()).collect()
}

/// Positional parameters and named options of the script: what starts with `--` is named, wherever it stands. Of an option in
/// `valued`, the next argument is the value where none follows a `=`.
pub fn script_args(args: &[String], valued: &[&str]) -> (Vec<String>, Vec<(String, Option<String>)>) {
    let (mut params, mut options) = (Vec::new(), Vec::new());
    let mut args = args.iter().peekable();
    while let Some(arg) = args.next() {
        match arg.strip_prefix("--") {
            Some("") => {}
            Some(named) => options.push(match named.split_once('=') {
                Some((name, value)) => (name.to_string(), Some(value.to_string())),
                None if valued.contains(&named) => (named.to_string(), args.next_if(|a| !a.starts_with("--")).cloned()),
                None => (named.to_string(), None),
            }),
            None => params.push(arg.clone()),
        }
    }
    (params, options)
}

/// One of our options of one letter, other than `-e`, as this word begins with it: after `--` it is none of ours.
pub fn own_letter(word: &str) -> Option<String> {
    let letter = word.strip_prefix('-')?.chars().next()?;
    flags::short(letter).filter(|flag| !flag.is_program()).map(|_| format!("-{letter}"))
}

/// An option after the script, which has none, that was likely meant for us.
pub fn misspelt_option(name: &str) -> Option<Failure> {
    let near = nearest(name, flags::shown())?;
    let failure = Failure::new(format!("neither rbt nor the script has an option `--{name}`")).code("unknown-option");
    Some(failure.help(format!("did you mean `--{near}`?")))
}
