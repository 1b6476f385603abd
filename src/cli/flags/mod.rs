//! The flags of a run. A row of the table owns everything about its flag: its names, its help, its value with the words that
//! completions offer, what it sets, and whether verbs and tools take it. Parsing, `--help`, `rbt help`, the completions and the
//! manual are made from the table.
//!
//! A flag that mirrors a row of [`SETTINGS`] has no row here: [`Setting::flag`] declares it.

mod inspect;
mod output;
mod trace;
mod what;

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, ValueHint, value_parser};

use super::values::{color, output_color};
use super::{Expected, Program, Run};
use crate::failure::Failure;
use crate::parts;
use crate::runtime::Buffering;
use crate::settings::{Invocation, SETTINGS, Setting, Settings};

/// A group of flags that help shows together.
pub(super) struct FlagGroup {
    heading: &'static str,
    flags: &'static [Flag],
}

/// All groups, in the order of the help. A group without a heading is hidden.
const GROUPS: &[FlagGroup] =
    &[what::RUN, trace::TRACE, trace::LIMITS, output::BUDGETS, output::OUTPUT, inspect::TYPES, inspect::INSPECT, inspect::HIDDEN];

/// A flag: a row of the table.
#[derive(Clone, Copy)]
pub(super) struct Flag {
    /// The name after two dashes, or after one dash if it is a single letter.
    name: &'static str,
    /// The short form.
    letter: Option<char>,
    /// The help text: one line without a period. The words of a list follow it.
    help: &'static str,
    /// Text that only the long help shows.
    long_help: &'static str,
    value: FlagValue,
    repeat: Repeat,
    /// The kind of value that a shell completes.
    hint: ValueHint,
    /// True if the value may begin with a dash.
    hyphens: bool,
    /// Flags that cannot be used together with this one.
    conflicts_with: &'static [&'static str],
    /// Flags of which at least one must be present, and their description in the error message.
    needs: (&'static [&'static str], &'static str),
    verbs: Verbs,
    /// Names of the subcommands that take a script and its flags, but not this one.
    refused_by: &'static [&'static str],
    /// True if completions offer it after the name of each tool.
    tools: bool,
    /// True if it does not affect the compiled script: `rbt-run` takes it too.
    at_run: bool,
    /// True if it needs the exporters: `rbt-run-small` does not have it.
    exports: bool,
}

/// A flag with default values.
const FLAG: Flag = Flag {
    name: "",
    letter: None,
    help: "",
    long_help: "",
    value: FlagValue::Nothing(|_| ()),
    repeat: Repeat::LastCounts,
    hint: ValueHint::Unknown,
    hyphens: false,
    conflicts_with: &[],
    needs: (&[], ""),
    verbs: Verbs::Accept,
    refused_by: &[],
    tools: false,
    at_run: false,
    exports: false,
};

/// The value that a flag takes, and the function that applies it.
#[derive(Clone, Copy)]
enum FlagValue {
    Nothing(fn(&mut ArgsBuilder)),
    /// No value; the number of occurrences matters.
    Count(fn(&mut ArgsBuilder, u8) -> Result<(), Failure>),
    Text(&'static str, fn(&mut ArgsBuilder, &str) -> Result<(), Failure>),
    /// A text that a shell completes from a list of words.
    Word(&'static str, fn() -> Vec<&'static str>, fn(&mut ArgsBuilder, &str) -> Result<(), Failure>),
    /// A value that need not be UTF-8.
    Path(&'static str, fn(&mut ArgsBuilder, PathBuf) -> Result<(), Failure>),
    /// An optional number, and its value if it is omitted: `--name` or `--name=NUMBER`.
    Number(&'static str, &'static str, fn(&mut ArgsBuilder, &str) -> Result<(), Failure>),
    /// The value of a setting.
    Setting(&'static Setting),
}

/// The meaning of a repeated flag.
#[derive(Clone, Copy, PartialEq)]
enum Repeat {
    /// It is an error.
    Refused,
    LastCounts,
    AllCount,
    /// All occurrences count, and commas separate values.
    List,
}

/// How verbs treat a flag.
#[derive(Clone, Copy, PartialEq)]
enum Verbs {
    /// Refuse it: the flag selects the program, which the verb writes.
    Refuse,
    Accept,
    /// Accept it, and show it in the help.
    Show,
}

/// A command line under construction.
pub(super) struct ArgsBuilder {
    pub run: Run,
    /// `-e`
    pub program: Option<String>,
    /// `-l`
    pub list: bool,
    /// `--fmt`
    pub fmt: bool,
    /// `--info`
    pub info: bool,
    /// `--completions`
    pub completions: Option<OsString>,
    /// `--color`
    color: Option<bool>,
    /// The same for standard output.
    color_output: Option<bool>,
}

/// All flags with their headings, in the order of the help.
fn all() -> impl Iterator<Item = (&'static str, Flag)> {
    GROUPS.iter().flat_map(|group| {
        let mirrors = SETTINGS.iter().filter(|row| row.flag.is_some_and(|f| f.heading == group.heading)).map(setting_flag);
        group.flags.iter().copied().chain(mirrors).map(|flag| (group.heading, flag))
    })
}

/// The flag that mirrors a setting.
fn setting_flag(row: &'static Setting) -> Flag {
    Flag { name: row.flag.map_or("", |f| f.long), help: row.doc, value: FlagValue::Setting(row), at_run: row.at_run, ..FLAG }
}

/// The flags of [`GROUPS`] that a compiled script takes, with their headings, copied at compile time: a program that
/// refers to no other flags does not contain their code.
static AT_RUN: [(&str, Flag); AT_RUN_COUNT] = flags_at_run();

const AT_RUN_COUNT: usize = {
    let (mut count, mut group) = (0, 0);
    while group < GROUPS.len() {
        let mut at = 0;
        while at < GROUPS[group].flags.len() {
            count += GROUPS[group].flags[at].at_run as usize;
            at += 1;
        }
        group += 1;
    }
    count
};

const fn flags_at_run() -> [(&'static str, Flag); AT_RUN_COUNT] {
    let mut all = [("", FLAG); AT_RUN_COUNT];
    let (mut to, mut group) = (0, 0);
    while group < GROUPS.len() {
        let mut pos = 0;
        while pos < GROUPS[group].flags.len() {
            if GROUPS[group].flags[pos].at_run {
                all[to] = (GROUPS[group].heading, GROUPS[group].flags[pos]);
                to += 1;
            }
            pos += 1;
        }
        group += 1;
    }
    all
}

/// The flags that a compiled script takes, and those of its settings, in the order of the help.
fn at_run() -> impl Iterator<Item = (&'static str, Flag)> {
    let mirrors = SETTINGS.iter().filter(|row| row.at_run).filter_map(|row| Some((row.flag?.heading, setting_flag(row))));
    let (settings, mut last) = (mirrors.collect::<Vec<_>>(), "");
    let of_group = move |heading: &str| settings.iter().copied().filter(|(of, _)| *of == heading).collect::<Vec<_>>();
    let mut flags = Vec::new();
    for (heading, flag) in AT_RUN {
        if heading != last {
            flags.extend(of_group(last));
            last = heading;
        }
        flags.push((heading, flag));
    }
    flags.extend(of_group(last));
    flags.extend(of_group("Limits"));
    flags.into_iter()
}

/// Finds a flag by name. A single letter is the name of a flag that has only a short form.
fn find(name: &str) -> Option<Flag> {
    all().map(|(_, flag)| flag).find(|flag| flag.name == name)
}

/// Finds a flag by its long form.
pub(super) fn long(name: &str) -> Option<Flag> {
    find(name).filter(|flag| flag.long().is_some())
}

/// The same as [`long`], for a flag that a compiled script takes.
pub(super) fn long_at_run(name: &str) -> Option<Flag> {
    at_run().map(|(_, flag)| flag).find(|flag| flag.name == name && flag.long().is_some())
}

/// The same as [`short`], for a flag that a compiled script takes.
pub(super) fn short_at_run(letter: char) -> Option<Flag> {
    at_run().map(|(_, flag)| flag).find(|flag| flag.short() == Some(letter))
}

/// Finds a flag by its short form.
pub(super) fn short(letter: char) -> Option<Flag> {
    all().map(|(_, flag)| flag).find(|flag| flag.short() == Some(letter))
}

/// The names to suggest for a misspelled flag.
pub(super) fn shown() -> impl Iterator<Item = &'static str> {
    all().filter(|(heading, _)| !heading.is_empty()).filter_map(|(_, flag)| flag.long())
}

/// The flags as clap defines them.
pub(super) fn args() -> impl Iterator<Item = Arg> {
    all().map(|(heading, flag)| flag.arg(heading))
}

/// The flags for completions, with the words that their values can have.
pub(super) fn offered() -> impl Iterator<Item = Arg> {
    all().filter(|(heading, _)| !heading.is_empty()).map(|(heading, flag)| flag.offered(heading))
}

/// The flags of a run that a subcommand also takes, by name: in the order of the table, without its headings.
pub(super) fn subcommand_flags(names: &'static [&'static str]) -> impl Iterator<Item = Arg> {
    if let Some(unknown) = names.iter().find(|name| all().all(|(_, flag)| flag.name != **name)) {
        crate::bug!("no flag is named {unknown}");
    }
    offered().filter(|arg| names.contains(&arg.get_id().as_str())).map(|arg| arg.help_heading(None::<&str>))
}

/// The flags that completions offer after each tool.
pub(super) fn tool_flags() -> impl Iterator<Item = Arg> {
    all().filter(|(_, flag)| flag.tools).map(|(heading, flag)| flag.arg(heading))
}

/// The flags that a compiled script takes.
pub(super) fn bundle_flags() -> impl Iterator<Item = Arg> {
    let has_all = parts::are_provided();
    at_run().map(move |(heading, flag)| flag.arg(heading).hide(flag.exports && !has_all))
}

/// The flags that verbs accept, and whether the help of verbs shows them.
pub(super) fn verb_flags() -> impl Iterator<Item = (Arg, bool)> {
    all().filter(|(_, flag)| flag.verbs != Verbs::Refuse).map(|(heading, flag)| (flag.arg(heading), flag.verbs == Verbs::Show))
}

impl Flag {
    fn long(&self) -> Option<&'static str> {
        Some(self.name).filter(|name| name.len() > 1)
    }

    fn short(&self) -> Option<char> {
        self.letter.or_else(|| self.name.chars().next().filter(|_| self.name.len() == 1))
    }

    /// The flag as messages name it: by its short form if it has one.
    fn spelled(&self) -> String {
        self.short().map_or_else(|| format!("--{}", self.name), |letter| format!("-{letter}"))
    }

    /// True if the flag takes a value.
    pub(super) fn valued(&self) -> bool {
        !matches!(self.value, FlagValue::Nothing(_) | FlagValue::Count(_) | FlagValue::Number(..))
    }

    /// True if a number after the flag is its value.
    pub(super) fn takes_number(&self) -> bool {
        matches!(self.value, FlagValue::Number(..))
    }

    /// True for `-e`.
    pub(super) fn is_program(&self) -> bool {
        self.name == "e"
    }

    fn help(&self) -> Cow<'static, str> {
        match (self.value, self.repeat) {
            (FlagValue::Word(_, words, _), Repeat::List) => format!("{}: {}", self.help, words().join(", ")).into(),
            // several sentences end like sentences, and a single phrase does not
            _ if self.help.contains(". ") => format!("{}.", self.help).into(),
            _ => self.help.into(),
        }
    }

    fn arg(&self, heading: &'static str) -> Arg {
        let mut arg = Arg::new(self.name).help(self.help()).help_heading(heading).hide(heading.is_empty());
        arg = arg.long(self.long()).short(self.short());
        if !self.long_help.is_empty() {
            arg = arg.long_help(format!("{}.\n\n{}.", self.help().trim_end_matches('.'), self.long_help));
        }
        arg = match self.value {
            FlagValue::Nothing(_) => return arg.action(ArgAction::SetTrue),
            FlagValue::Count(_) => return arg.action(ArgAction::Count),
            FlagValue::Text(name, _) | FlagValue::Word(name, ..) => arg.value_name(name),
            FlagValue::Number(name, usual, _) => arg.value_name(name).num_args(0..=1).require_equals(true).default_missing_value(usual),
            FlagValue::Path(name, _) => arg.value_name(name).value_parser(value_parser!(PathBuf)),
            FlagValue::Setting(row) => arg.value_name(row.flag.map_or("", |f| f.value)),
        };
        arg = match self.repeat {
            Repeat::LastCounts => arg.action(ArgAction::Set),
            // `apply` refuses it: clap drops the earlier ones
            Repeat::AllCount | Repeat::Refused => arg.action(ArgAction::Append),
            Repeat::List => arg.action(ArgAction::Append).value_delimiter(','),
        };
        arg.value_hint(self.hint).allow_hyphen_values(self.hyphens)
    }

    fn offered(&self, heading: &'static str) -> Arg {
        let words = match self.value {
            FlagValue::Word(_, words, _) => words(),
            FlagValue::Setting(row) => row.words(),
            FlagValue::Nothing(_) | FlagValue::Count(_) | FlagValue::Text(..) | FlagValue::Path(..) | FlagValue::Number(..) => Vec::new(),
        };
        if words.is_empty() { self.arg(heading) } else { self.arg(heading).value_parser(words) }
    }

    /// Applies the flag, with the value that clap found.
    fn apply(&self, found: &ArgMatches, draft: &mut ArgsBuilder) -> Result<(), Failure> {
        let id = self.name;
        if self.repeat == Repeat::Refused && found.get_raw(id).is_some_and(|values| values.len() > 1) {
            return Err(Failure::new(format!("{} can appear only once", self.spelled())));
        }
        let texts = || found.get_many::<String>(id).unwrap_or_default();
        match self.value {
            FlagValue::Nothing(set) => set(draft),
            FlagValue::Count(set) => set(draft, found.get_count(id))?,
            FlagValue::Text(_, set) | FlagValue::Word(_, _, set) | FlagValue::Number(_, _, set) => {
                texts().try_for_each(|text| set(draft, text))?
            }
            FlagValue::Path(_, set) => {
                found.get_many::<PathBuf>(id).unwrap_or_default().try_for_each(|path| set(draft, path.clone()))?;
            }
            FlagValue::Setting(row) => {
                let settings = &mut draft.run.settings;
                texts().try_for_each(|text| {
                    settings.override_by_flag(row, text).map_err(|e| Failure::new(format!("{} {text}: {e}", self.spelled())))
                })?;
            }
        }
        Ok(())
    }
}

/// True if the flag with this name is present.
pub(super) fn is_present(found: &ArgMatches, id: &str) -> bool {
    // A verb does not accept all flags.
    found.try_contains_id(id).is_ok() && found.value_source(id) == Some(ValueSource::CommandLine)
}

/// Rejects flags of a run that the subcommand, if there is one, does not take.
///
/// # Errors
/// One of them is present.
pub(super) fn refuse(found: &ArgMatches, subcommand: Option<&str>) -> Result<(), Failure> {
    let Some(subcommand) = subcommand else { return Ok(()) };
    match all().map(|(_, flag)| flag).find(|flag| flag.refused_by.contains(&subcommand) && is_present(found, flag.name)) {
        Some(flag) => {
            let failure = Failure::new(format!("rbt {subcommand} does not take {}", flag.spelled()));
            Err(if flag.at_run && subcommand == super::build::NAME {
                failure.help("give it to the run of the bundle, such as `rbt-run BUNDLE`")
            } else {
                failure.help(format!("`rbt {subcommand} --help` lists its options"))
            })
        }
        None => Ok(()),
    }
}

/// Applies the flags on the command line.
///
/// # Errors
/// A value is invalid, or two flags contradict each other.
pub(super) fn read(found: &ArgMatches) -> Result<ArgsBuilder, Failure> {
    read_of(found, all())
}

/// The same as [`read`], for flags that a compiled script takes.
///
/// # Errors
/// As for [`read`].
pub(super) fn read_at_run(found: &ArgMatches) -> Result<ArgsBuilder, Failure> {
    read_of(found, at_run())
}

fn read_of(found: &ArgMatches, known: impl Iterator<Item = (&'static str, Flag)>) -> Result<ArgsBuilder, Failure> {
    let flags: Vec<Flag> = known.map(|(_, flag)| flag).filter(|flag| is_present(found, flag.name)).collect();
    for flag in &flags {
        if let Some(other) = flag.conflicts_with.iter().find_map(|other| flags.iter().find(|flag| flag.name == *other)) {
            return Err(Failure::new(format!("{} cannot be used with {}", flag.spelled(), other.spelled())));
        }
        let (one_of, what) = flag.needs;
        if !one_of.is_empty() && !one_of.iter().any(|other| is_present(found, other)) {
            return Err(Failure::new(format!("{} needs {what}", flag.spelled())));
        }
    }
    let mut draft = ArgsBuilder {
        run: blank(),
        program: None,
        list: false,
        fmt: false,
        info: false,
        completions: None,
        color: None,
        color_output: None,
    };
    flags.iter().try_for_each(|flag| flag.apply(found, &mut draft))?;
    draft.run.color = draft.color.map_or_else(|| color(None), Ok)?;
    draft.run.color_output = draft.color_output.map_or_else(|| output_color(None), Ok)?;
    Ok(draft)
}

/// A run without flags.
fn blank() -> Run {
    Run {
        program: Program::Stdin,
        settings: Settings::default(),
        invocation: Invocation::default(),
        words: Vec::new(),
        child: None,
        outputs: Vec::new(),
        format: None,
        buffering: Buffering::Line,
        quiet: false,
        verbose: false,
        warnings: true,
        dry_run: false,
        compile_only: false,
        dumps: Vec::new(),
        verify_ir: false,
        emit_elf: None,
        emit_llvm: None,
        propagate_status: false,
        strict: false,
        notify_fd: None,
        color: false,
        color_output: false,
        watch: None,
        diff: None,
        cgroup: None,
        container: None,
        traceable_functions: None,
        expected: Expected::default(),
        against: None,
        serve: None,
        otlp: None,
        serve_token: None,
        serve_identity: None,
    }
}
