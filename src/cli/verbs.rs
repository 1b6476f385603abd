//! `rbt VERB …`: the verb's own options, in addition to rbt's.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches};

use super::{Command, Program, flags, require_run, usage};
use crate::failure::Failure;
use crate::system::events::tracefs::Tracefs;
use crate::verbs::{Verb, VerbArgs, VerbOption};

const WORDS: &str = "words";
const OURS: &str = "Options of rbt";

/// The definition of a verb's options.
pub fn command(verb: &'static Verb) -> clap::Command {
    let options = verb.own_options().map(|o| {
        let arg = Arg::new(o.name).long(o.name).help(o.doc);
        let arg = if let Some(short) = o.short { arg.short(short) } else { arg };
        match o.value {
            // `-1`
            Some(value) => arg.value_name(value).allow_hyphen_values(true),
            None => arg.action(ArgAction::SetTrue),
        }
    });
    // -d is the duration; the run ends after that time as well
    let is_own = |arg: &Arg| verb.own_options().any(|o| o.name == arg.get_id());
    let passed = flags::verb_flags().filter(|(arg, _)| !is_own(arg)).map(|(arg, shown)| {
        let arg = if verb.own_options().any(|o| o.short == arg.get_short()) { arg.short(None) } else { arg };
        arg.help_heading(OURS).hide(!shown)
    });
    clap::Command::new(verb.name)
        .bin_name(format!("rbt {}", verb.name))
        .about(format!("{}.\n\n{}", verb.doc, verb.long_help))
        .override_usage(verb.usage())
        .disable_version_flag(true)
        .disable_help_flag(true)
        .args_override_self(true)
        .arg(Arg::new(WORDS).value_name(verb.usage).num_args(0..).hide(true))
        .args(options)
        // both forms print the same help, which clap does not support
        .arg(Arg::new("help").short('h').long("help").action(ArgAction::Help).help("Print help"))
        .args(passed)
        .after_help(verb.after_help())
}

/// A verb's help.
pub fn help(verb: &'static Verb) -> String {
    command(verb).render_help().to_string()
}

/// Parses the words before and after the verb, for a run or for a subcommand that takes a script.
pub(super) fn parse(verb: &'static Verb, before: &[OsString], after: &[OsString], subcommand: Option<&str>) -> Result<Command, Failure> {
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
    let composed = verb.script(verb_args(verb, &found))?;
    if found.get_flag("print-script") {
        return Ok(Command::Say(composed.text));
    }
    flags::refuse(&found, subcommand)?;
    let draft = flags::read(&found)?;
    require_run(&draft)?;
    let mut run = Box::new(draft.run);
    // counts of a command are expected to cover only that command
    run.settings.follow |= run.invocation.has_child && !composed.all_threads;
    run.program = Program::Composed(Box::new(composed));
    Ok(Command::Run(run))
}

fn verb_args(verb: &Verb, found: &ArgMatches) -> VerbArgs {
    let value = |o: &VerbOption| match o.value {
        Some(_) => found.get_one::<String>(o.name).cloned(),
        None => found.get_flag(o.name).then(String::new),
    };
    let options: BTreeMap<_, _> = verb.own_options().filter_map(|o| Some((o.name, value(o)?))).collect();
    let words = found.get_many::<String>(WORDS).unwrap_or_default().cloned().collect();
    // its directory exists if the user may trace
    let category = |word: &str| Tracefs::open().is_ok_and(|t| t.read(&format!("events/{word}/enable")).is_ok());
    VerbArgs { words, options, category }
}
