//! `rbt VERB …`: the verb's own options beside rbt's.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, CommandFactory, FromArgMatches};

use super::raw::Raw;
use super::{Command, Program, run_options, usage};
use crate::failure::Failure;
use crate::system::events::tracefs::Tracefs;
use crate::verbs::{Asked, Verb, VerbOption};

/// Options of rbt that choose what is run, which a verb does itself, and those that are accepted and no more.
const LEFT_OUT: &[&str] = &[
    "rest",
    "program",
    "list",
    "fmt",
    "test",
    "bench",
    "info",
    "mode",
    "completions",
    "aot",
    "dwarf_pid",
    "usdt_file_activation",
    "btf",
    "against",
];
/// Those that a verb's help shows.
const SHOWN: &[&str] = &["pid", "cmd", "output", "format", "quiet", "verbose", "expect", "report"];
const WORDS: &str = "words";
const OURS: &str = "Options of rbt";

/// The definition of a verb's options.
pub fn command(verb: &'static Verb) -> clap::Command {
    let own = verb.own_options().map(|o| {
        let arg = Arg::new(o.name).long(o.name).help(o.doc);
        let arg = if let Some(short) = o.short { arg.short(short) } else { arg };
        match o.value {
            // `-1`
            Some(value) => arg.value_name(value).allow_hyphen_values(true),
            None => arg.action(ArgAction::SetTrue),
        }
    });
    let passed = passed().into_iter().map(|a| {
        // -d is how long
        let a = if a.get_id() == "debug" { Arg::new("debug").long("debug").action(ArgAction::Append) } else { a };
        let hidden = !SHOWN.contains(&a.get_id().as_str());
        a.help_heading(OURS).hide(hidden)
    });
    clap::Command::new(verb.name)
        .bin_name(format!("rbt {}", verb.name))
        .about(format!("{}.\n\n{}", verb.doc, verb.more))
        .override_usage(verb.usage())
        .disable_version_flag(true)
        .args_override_self(true)
        .arg(Arg::new(WORDS).value_name(verb.takes).num_args(0..).hide(true))
        .args(own)
        .args(passed)
        .after_help(verb.after_help())
}

/// Options of rbt that go with a verb.
fn passed() -> Vec<Arg> {
    Raw::command().get_arguments().filter(|a| !LEFT_OUT.contains(&a.get_id().as_str())).cloned().collect()
}

/// A verb's help.
pub fn help(verb: &'static Verb) -> String {
    command(verb).render_help().to_string()
}

/// Of what stands before and after the verb.
pub(super) fn parse(verb: &'static Verb, before: &[OsString], after: &[OsString]) -> Result<Command, Failure> {
    let words = [OsString::from("rbt")].into_iter().chain(before.iter().cloned()).chain(after.iter().cloned());
    let found = match command(verb).try_get_matches_from(words) {
        Ok(found) => found,
        Err(e) if e.use_stderr() => {
            let all = before.iter().cloned().chain([verb.name.into()]).chain(after.iter().cloned());
            let all: Vec<String> = all.map(|a| a.to_string_lossy().into_owned()).collect();
            let failure = usage::usage_error(&e, &all);
            let near = failure.help.as_ref().is_some_and(|h| h.starts_with("did you mean"));
            return Err(if near { failure } else { failure.help(format!("`rbt {} --help` lists the options", verb.name)) });
        }
        Err(_) => return Ok(Command::Say(help(verb))),
    };
    let made = verb.script(asked(verb, &found))?;
    if found.get_flag("print-script") {
        return Ok(Command::Say(made.text));
    }
    let raw = Raw::command().try_get_matches_from([OsString::from("rbt")].into_iter().chain(rebuilt(&found)));
    let raw = raw.and_then(|m| Raw::from_arg_matches(&m)).map_err(|e| usage::usage_error(&e, &[]))?;
    let mut run = Box::new(run_options(&raw)?);
    run.program = Program::Made(Box::new(made));
    // who counts what a command does means the command's own
    run.settings.follow |= run.settings.has_child;
    Ok(Command::Run(run))
}

fn asked(verb: &Verb, found: &ArgMatches) -> Asked {
    let value = |o: &VerbOption| match o.value {
        Some(_) => found.get_one::<String>(o.name).cloned(),
        None => found.get_flag(o.name).then(String::new),
    };
    let options: BTreeMap<_, _> = verb.own_options().filter_map(|o| Some((o.name, value(o)?))).collect();
    let words = found.get_many::<String>(WORDS).unwrap_or_default().cloned().collect();
    // its folder is there for whoever may trace
    let category = |word: &str| Tracefs::open().is_ok_and(|t| t.read(&format!("events/{word}/enable")).is_ok());
    Asked { words, options, category }
}

/// Options of rbt as they were given, for its own parsing.
fn rebuilt(found: &ArgMatches) -> Vec<OsString> {
    let mut words = Vec::new();
    for arg in passed() {
        let id = arg.get_id().as_str();
        if found.value_source(id) != Some(clap::parser::ValueSource::CommandLine) {
            continue;
        }
        let name = match (arg.get_long(), arg.get_short()) {
            (Some(long), _) => format!("--{long}"),
            (None, Some(short)) => format!("-{short}"),
            (None, None) => continue,
        };
        if matches!(arg.get_action(), ArgAction::SetTrue) {
            words.push(name.into());
            continue;
        }
        if matches!(arg.get_action(), ArgAction::Count) {
            words.extend((0..found.get_count(id)).map(|_| OsString::from(&name)));
            continue;
        }
        for value in found.get_raw(id).unwrap_or_default() {
            let mut word = OsString::from(&name);
            word.push(if name.starts_with("--") { "=" } else { "" });
            word.push(value);
            words.push(word);
        }
    }
    words
}
