//! The result of a check, for people and pipelines: data here, one row per format in [`FORMATS`].
//!
//! A [`Report`] comes from `rbt check` or from the expectations of a run, and one renderer prints it, so both have the same
//! formats and exit statuses.

mod github;
mod json;
mod junit;
mod rules;
mod sarif;
mod text;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use serde::Serialize;

pub use crate::diag::codes::Level;
use crate::input::line;
use crate::terminal::escape::is_deceptive;
pub use rules::{RULES, Rule, rule};

/// A row: an argument of `--format`.
pub struct Format {
    /// The name in `--format`.
    pub name: &'static str,
    /// One line for `--help` and the man page.
    pub doc: &'static str,
    /// Produces the text.
    pub render: fn(&Report, &Style) -> String,
    /// Text before and after other output that could be mistaken for parts of the report, with a token that cannot be
    /// guessed.
    pub fence: Option<fn(&str) -> [String; 2]>,
}

/// All formats; the first is the default.
pub const FORMATS: &[Format] = &[
    Format {
        name: "text",
        doc: "the findings with their source lines. rbt check prints a table of scripts and kernels above them",
        render: text::render,
        fence: None,
    },
    Format { name: "json", doc: "one object with the complete report", render: json::render, fence: None },
    Format {
        name: "junit",
        doc: "JUnit XML. A run has a test case for each expectation. rbt check has a test suite for each kernel, with a test case for each script",
        render: junit::render,
        fence: None,
    },
    Format { name: "sarif", doc: "SARIF 2.1.0, for code scanning and editors", render: sarif::render, fence: None },
    Format {
        name: "github",
        doc: "GitHub workflow commands, which appear at the source lines",
        render: github::render,
        fence: Some(github::command_fence),
    },
];

/// The row of this name.
pub fn find(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|f| f.name == name)
}

/// The options for rendering a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Terminal colors.
    pub color: bool,
    /// In text, omit good results.
    pub quiet: bool,
    /// In text, include facts and notes.
    pub verbose: bool,
    /// When the run began, in nanoseconds since 1970.
    pub started_ns: i128,
    /// The machine that it ran on.
    pub host: String,
    /// The repository's root: readers of a report expect paths relative to it, whatever the working directory.
    pub root: Option<PathBuf>,
}

/// The name of this machine.
pub fn host() -> String {
    line("/proc/sys/kernel/hostname").unwrap_or_default()
}

/// The root of the current repository: the one that GitHub's runner names, or the nearest parent directory that belongs
/// to git.
pub fn repository() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let named = std::env::var_os("GITHUB_WORKSPACE").and_then(|dir| std::fs::canonicalize(dir).ok());
    let named = named.filter(|root| here.starts_with(root));
    named.or_else(|| here.ancestors().find(|dir| dir.join(".git").exists()).map(Path::to_owned))
}

impl Style {
    /// The path of a file relative to the root; unchanged if the file is not below it.
    fn rooted(&self, file: &str) -> String {
        let path = Path::new(file);
        let (Some(root), Some(name), true) = (&self.root, path.file_name(), path.is_file()) else {
            return file.strip_prefix("./").unwrap_or(file).to_owned();
        };
        let folder = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let below = folder.strip_prefix(root).map(|folder| folder.join(name).display().to_string());
        below.unwrap_or_else(|_| file.strip_prefix("./").unwrap_or(file).to_owned())
    }
}

/// The exit statuses of a check: everything is good.
pub const SATISFIED: u8 = 0;
/// There are findings.
pub const FINDINGS: u8 = 1;
/// The command line, a configuration file or an expectation is wrong.
pub const USAGE: u8 = 2;
/// No answer is possible: a file is unreadable, a snapshot is damaged, or the machine refuses.
pub const ENVIRONMENT: u8 = 3;

/// A place in a text. Lines and columns (in characters) start at 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceLocation {
    /// The file's path, as the user gave it.
    pub file: String,
    /// First line.
    pub line: u32,
    /// First column.
    pub column: u32,
    /// Last line.
    pub end_line: u32,
    /// One past the last column.
    pub end_column: u32,
    /// The first line's text.
    pub text: String,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its kind: a stable name in kebab-case, a row of the rules' table or a diagnostic's code.
    pub rule: &'static str,
    /// Its severity.
    pub level: Level,
    /// The message, in the user's terms, without a final period.
    pub message: String,
    /// Its place; none if no text is the cause.
    pub location: Option<SourceLocation>,
    /// Other places that explain it.
    pub related: Vec<(SourceLocation, String)>,
    /// The remedy, if there is one.
    pub help: Option<String>,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Checked; the findings hold the result (nothing, or only notes and warnings, is good).
    Checked,
    /// Skipped on purpose, and why.
    Skipped(String),
    /// Could not be checked, and why: the environment's fault, not the script's.
    Unknown(String),
}

/// One check: a script against a kernel, or an expectation against a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The subject: a script's path, or an expectation as the user wrote it.
    pub subject: String,
    /// The kernel's name or a command; empty if there is only one.
    pub against: String,
    /// The result.
    pub state: State,
    /// The findings, in the order of the text.
    pub findings: Vec<Finding>,
    /// Further facts, as (name, value): mechanisms, sizes, the value that an expectation met.
    pub facts: Vec<(String, String)>,
    /// The duration in seconds.
    pub seconds: f64,
}

/// All outcomes of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The activity: `check` or `expect`; the name of the test suite in formats that have one.
    pub name: &'static str,
    /// One for each subject and each kernel: subjects in order, and for each the kernels in order.
    pub outcomes: Vec<Outcome>,
    /// Warnings also fail.
    pub deny_warnings: bool,
}

/// A verdict in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cell {
    /// Nothing was found, or only notes.
    Ok,
    /// Warnings, which do not fail.
    Warning,
    /// It fails the run.
    Failed,
    /// Skipped on purpose.
    Skipped,
    /// Could not be checked.
    Unknown,
}

/// A finding, and all subjects to which it applies.
pub struct UniqueFinding<'a> {
    /// The subject.
    pub subject: &'a str,
    /// The finding.
    pub finding: &'a Finding,
    /// The names of the kernels; none if the report has only one.
    pub against: Vec<&'a str>,
}

impl UniqueFinding<'_> {
    /// The message, and the kernels to which it applies.
    pub fn message(&self) -> String {
        let message = &self.finding.message;
        if self.against.is_empty() { message.clone() } else { format!("{message} ({})", self.against.join(", ")) }
    }
}

impl Outcome {
    /// The worst finding.
    pub fn worst(&self) -> Option<Level> {
        self.findings.iter().map(|f| f.level).max()
    }
}

impl Report {
    /// Does this outcome fail the run?
    pub fn fails(&self, outcome: &Outcome) -> bool {
        let threshold = if self.deny_warnings { Level::Warning } else { Level::Error };
        outcome.worst().is_some_and(|worst| worst >= threshold)
    }

    /// The exit status: impossible answers take precedence over findings.
    pub fn status(&self) -> u8 {
        if self.outcomes.iter().any(|o| matches!(o.state, State::Unknown(_))) {
            ENVIRONMENT
        } else if self.outcomes.iter().any(|o| self.fails(o)) {
            FINDINGS
        } else {
            SATISFIED
        }
    }

    /// The verdict of an outcome.
    pub fn cell(&self, outcome: &Outcome) -> Cell {
        match outcome.state {
            State::Unknown(_) => Cell::Unknown,
            State::Skipped(_) => Cell::Skipped,
            State::Checked if self.fails(outcome) => Cell::Failed,
            State::Checked if outcome.worst() >= Some(Level::Warning) => Cell::Warning,
            State::Checked => Cell::Ok,
        }
    }

    /// The subjects, in order.
    pub fn subjects(&self) -> Vec<&str> {
        distinct(self.outcomes.iter().map(|o| o.subject.as_str()))
    }

    /// The kernels, in order.
    pub fn kernel_names(&self) -> Vec<&str> {
        distinct(self.outcomes.iter().map(|o| o.against.as_str()))
    }

    /// Is there one common reason why several subjects could not be checked?
    pub fn all_unknown(&self, against: &str) -> bool {
        let mut of = self.outcomes.iter().filter(|o| o.against == against).map(|o| &o.state);
        let first = of.next();
        let mut others = of.peekable();
        matches!(first, Some(State::Unknown(_))) && others.peek().is_some() && others.all(|state| Some(state) == first)
    }

    /// Each finding once, by subject, in the order of the text.
    pub fn unique_findings(&self) -> Vec<UniqueFinding<'_>> {
        let several = self.kernel_names().len() > 1;
        let mut all = Vec::new();
        for subject in self.subjects() {
            let mut findings: Vec<UniqueFinding> = Vec::new();
            for outcome in self.outcomes.iter().filter(|o| o.subject == subject) {
                for finding in &outcome.findings {
                    let index = findings.iter().position(|t| t.finding == finding).unwrap_or_else(|| {
                        findings.push(UniqueFinding { subject, finding, against: Vec::new() });
                        findings.len() - 1
                    });
                    if let (Some(told), true) = (findings.get_mut(index), several && !outcome.against.is_empty())
                        && !told.against.contains(&outcome.against.as_str())
                    {
                        told.against.push(&outcome.against);
                    }
                }
            }
            findings.sort_by_key(|t| t.finding.location.as_ref().map(|p| (p.line, p.column)));
            all.extend(findings);
        }
        all
    }

    /// The counts of results: `check: 3 ok, 1 FAILED`.
    pub fn sums(&self) -> String {
        let words = [
            (Cell::Ok, "ok"),
            (Cell::Warning, "with warnings"),
            (Cell::Failed, "FAILED"),
            (Cell::Skipped, "skipped"),
            (Cell::Unknown, "not checked"),
        ];
        let count = |cell| self.outcomes.iter().filter(|o| self.cell(o) == cell).count();
        let parts: Vec<String> =
            words.iter().map(|(cell, word)| (count(*cell), word)).filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
        let (subjects, againsts) = (self.subjects().len(), self.kernel_names().len());
        let of = if againsts > 1 { format!(" ({subjects} × {againsts})") } else { String::new() };
        format!("{}: {}{of}", self.name, if parts.is_empty() { "nothing to check".into() } else { parts.join(", ") })
    }
}

/// Pretty-printed JSON, with a line break at the end.
fn pretty(value: &impl Serialize) -> String {
    // only string keys and an infallible writer, so serde_json does not fail
    let text = serde_json::to_string_pretty(value).unwrap_or_default() + "\n";
    // such characters are within strings, except for line breaks
    let escaped = |c: char| is_deceptive(c) && c != '\n';
    if !text.contains(escaped) {
        return text;
    }
    text.chars().map(|c| if escaped(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() }).collect()
}

fn distinct<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = std::collections::BTreeSet::new();
    all.filter(|a| seen.insert(*a)).collect()
}
