//! Parses and checks the values of single options.

#![allow(unsafe_code)] // fcntl

use std::io::IsTerminal;
use std::time::Duration;

use super::STAGES;
use crate::failure::Failure;
use crate::settings;

/// The kernel's `PID_MAX_LIMIT` on 64-bit machines (include/linux/threads.h).
const MAX_PID: u64 = 0x40_0000;

pub(super) fn pid(option: &str, text: &str) -> Result<u32, Failure> {
    match settings::parse_int(text) {
        Ok(n) if (1..=MAX_PID).contains(&n) => Ok(n as u32),
        Ok(_) => Err(Failure::new(format!("{option} {text}: process IDs range from 1 to {MAX_PID}"))),
        Err(_) => Err(Failure::new(format!("{option} {text}: not a process ID")).help("`pgrep NAME` finds the ID of a process")),
    }
}

/// A part of a second to an hour.
pub(super) fn seconds(option: &str, text: &str) -> Result<Duration, Failure> {
    let given = text.parse().ok().filter(|s: &f64| (0.05..=3600.0).contains(s));
    given.map(Duration::from_secs_f64).ok_or_else(|| Failure::new(format!("{option} {text}: not a number of seconds from 0.05 to 3600")))
}

pub(super) fn check_words(command: &str) -> Result<(), Failure> {
    match shlex::split(command) {
        Some(words) if words.is_empty() => Err(Failure::new("-c: the command is empty")),
        Some(_) => Ok(()),
        None => Err(Failure::new(format!("-c {command}: unbalanced quotes"))),
    }
}

pub(super) fn descriptor(text: &str) -> Result<i32, Failure> {
    let n: i32 = text.parse().ok().filter(|n| *n >= 0).ok_or_else(|| Failure::new(format!("--notify-fd {text}: not a file descriptor")))?;
    // SAFETY: queries a flag of a number; accesses no memory.
    if unsafe { libc::fcntl(n, libc::F_GETFD) } < 0 {
        return Err(Failure::new(format!("--notify-fd {n}: no such file descriptor is open")).help(format!("open it, as in `{n}>FILE`")));
    }
    Ok(n)
}

/// The stages of a word of `-d`.
pub(super) fn stages(word: &str) -> Result<Vec<&'static str>, Failure> {
    match word {
        "" => return Ok(Vec::new()),
        "all" => return Ok(STAGES.iter().map(|s| s.name).collect()),
        _ => {}
    }
    if let Some(stage) = STAGES.iter().find(|s| s.name == word || s.aliases.contains(&word)) {
        return Ok(vec![stage.name]);
    }
    let names: Vec<&str> = STAGES.iter().flat_map(|s| s.aliases.iter().copied().chain([s.name])).chain(["all"]).collect();
    Err(Failure::new(format!("-d: there is no stage `{word}`")).suggest(word, &names))
}

/// The word, if it is one of these.
pub(super) fn one_of(word: &str, words: &[&'static str], what: &str) -> Result<String, Failure> {
    if words.contains(&word) {
        return Ok(word.into());
    }
    Err(Failure::new(format!("there is no {what} `{word}`")).suggest(word, words))
}

/// Parses the value of `--color`.
pub(super) const COLORS: &[&str] = &["auto", "always", "never"];

pub(super) fn color(option: Option<&str>) -> Result<bool, Failure> {
    color_where(option, || std::io::stderr().is_terminal())
}

pub(super) fn output_color(option: Option<&str>) -> Result<bool, Failure> {
    color_where(option, || std::io::stdout().is_terminal())
}

pub(super) fn color_where(option: Option<&str>, terminal: impl Fn() -> bool) -> Result<bool, Failure> {
    let (what, word) = match option {
        Some(word) => ("--color", word.to_string()),
        None => ("RBT_COLOR", settings::env_only("color").unwrap_or_else(|| "auto".into())),
    };
    match word.to_ascii_lowercase().as_str() {
        "always" => Ok(true),
        "never" => Ok(false),
        "auto" => Ok(terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())),
        _ => Err(Failure::new(format!("{what}: there is no `{word}`")).suggest(&word, COLORS)),
    }
}
