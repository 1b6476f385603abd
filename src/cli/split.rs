//! Splits the arguments into rbt's and the script's.

use std::ffi::OsString;

use super::flags::{self, Flag};
use crate::builtins::options::ScriptOption;
use crate::diag::nearest;
use crate::failure::Failure;

/// Separates rbt's options from the script and its arguments. Before the script, every word that begins with `-` is an
/// option. After it (a file, or the program of `-e`) only known options are rbt's, and all other words belong to the
/// script: `-5` is a number. Everything after `--` belongs to the script, and so does `--help` after the name of a
/// tool. The last result is true if a program follows such a name.
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
                named |= !script && super::tool(&arg).is_some();
                script = true;
                rest.push(arg);
            }
        }
    }
    (options, rest, twice)
}

/// The same for `rbt-run`: its options with the bundle, and the arguments of the script. `embedded`: the program contains the
/// bundle, so all arguments follow the script.
pub(super) fn split_at_run(args: Vec<OsString>, embedded: bool) -> (Vec<OsString>, Vec<OsString>) {
    const OWN: [&str; 4] = ["--help", "-h", "--version", "-V"];
    let (mut options, mut words, mut script) = (Vec::new(), Vec::new(), embedded);
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy().into_owned();
        let looks_so = text.len() > 1 && text.starts_with('-');
        if text == "--" {
            words.extend(args);
            break;
        }
        match option_of(&text, flags::long_at_run, flags::short_at_run) {
            Some(found) => {
                options.push(arg);
                if found.wants_value {
                    options.extend(args.next());
                }
            }
            None if OWN.contains(&text.as_str()) || looks_so && !script => options.push(arg),
            None if !script => {
                script = true;
                options.push(arg);
            }
            None => words.push(arg),
        }
    }
    (options, words)
}

/// Joins a number to the preceding option that takes an optional number: `--watch 2` is `--watch=2`.
pub(super) fn with_numbers(args: impl Iterator<Item = OsString>, long: fn(&str) -> Option<Flag>) -> Vec<OsString> {
    let mut args = args.peekable();
    let mut joined = Vec::new();
    while let Some(arg) = args.next() {
        let takes = arg.to_str().and_then(|text| text.strip_prefix("--")).and_then(long).is_some_and(|flag| flag.takes_number());
        if arg == "--" {
            joined.push(arg);
            joined.extend(args.by_ref());
        } else if let Some(number) = args.next_if(|next| takes && next.to_str().is_some_and(|n| n.parse::<f64>().is_ok())) {
            joined.push([arg, number].join(std::ffi::OsStr::new("=")));
        } else {
            joined.push(arg);
        }
    }
    joined
}

/// The position of the first word that is neither an option nor the value of one: a script's name or a verb. None if
/// there is already a program, or for a list.
pub(super) fn first_word(args: &[OsString]) -> Option<usize> {
    let mut pos = 0;
    while let Some(arg) = args.get(pos) {
        let text = arg.to_string_lossy();
        match option(&text) {
            Some(found) if found.program || text == "--list" || (text.starts_with("-l") && !text.starts_with("--")) => return None,
            Some(found) => pos += if found.wants_value { 2 } else { 1 },
            None if text.starts_with('-') => return None,
            None => return Some(pos),
        }
    }
    None
}

/// The shape of an argument that is one of rbt's options, or several short ones.
struct OptionShape {
    /// Its value is the next argument.
    wants_value: bool,
    /// It is `-e`.
    program: bool,
}

fn option(text: &str) -> Option<OptionShape> {
    option_of(text, flags::long, flags::short)
}

fn option_of(text: &str, long_flag: fn(&str) -> Option<Flag>, short_flag: fn(char) -> Option<Flag>) -> Option<OptionShape> {
    if let Some(long) = text.strip_prefix("--") {
        let (name, value) = long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v)));
        return Some(OptionShape { wants_value: long_flag(name)?.valued() && value.is_none(), program: false });
    }
    let mut letters = text.strip_prefix('-').filter(|l| !l.is_empty())?.chars();
    while let Some(letter) = letters.next() {
        let flag = short_flag(letter)?;
        if flag.valued() {
            return Some(OptionShape { wants_value: letters.next().is_none(), program: flag.is_program() });
        }
    }
    Some(OptionShape { wants_value: false, program: false })
}

/// The options whose value may be the next argument.
pub fn valued(options: &[ScriptOption]) -> Vec<&str> {
    options.iter().filter(|o| o.takes_value()).map(|o| o.name.as_str()).collect()
}

/// The script's positional parameters and named options. Words that begin with `--` are named options, wherever they are. For
/// an option in `valued`, the next argument is the value unless a `=` follows the name.
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

/// The one-letter option of rbt, other than `-e`, with which this word begins. After `--`, it does not belong to rbt.
pub fn own_letter(word: &str) -> Option<String> {
    let letter = word.strip_prefix('-')?.chars().next()?;
    flags::short(letter).filter(|flag| !flag.is_program()).map(|_| format!("-{letter}"))
}

/// An option after a script that has no such option, which was likely meant for rbt.
pub fn misspelt_option(name: &str) -> Option<Failure> {
    let near = nearest(name, flags::shown())?;
    let failure = Failure::new(format!("neither rbt nor the script has an option `--{name}`")).code("unknown-option");
    Some(failure.help(format!("did you mean `--{near}`?")))
}
