//! What a check came to, as a pipeline reads it: data here, one row per format in [`FORMATS`](self).
//!
//! A [`Report`] is made by whoever checks (scripts against kernels, expectations against a run) and told by one renderer, so
//! that both have the same formats and the same exit statuses.

/// The exit statuses of a check: all well.
pub const WELL: u8 = 0;
/// Findings.
pub const FINDINGS: u8 = 1;
/// The command line, a configuration file or an expectation is wrong.
pub const USAGE: u8 = 2;
/// What is needed for an answer could not be had: a file that cannot be read, a damaged snapshot, a machine that will not.
pub const ENVIRONMENT: u8 = 3;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Told, and no reason to fail.
    Note,
    /// Fails where warnings are denied.
    Warning,
    /// Fails.
    Error,
}

/// Where in a text. Lines and columns (in characters) are from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
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

/// One thing found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which kind of thing: stable, kebab-case, a row of the rules' table or a diagnostic's code.
    pub rule: &'static str,
    /// How bad.
    pub level: Level,
    /// Names the thing, in the user's terms; no final stop.
    pub message: String,
    /// What it is about; none for what no text is to blame for.
    pub place: Option<Place>,
    /// Other places that explain it.
    pub related: Vec<(Place, String)>,
    /// The remedy, where there is one.
    pub help: Option<String>,
}

/// What one check came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Checked; what was found is in the findings (nothing, or no more than notes and warnings, is well).
    Checked,
    /// Left out on purpose, and why.
    Skipped(String),
    /// Could not be checked, and why: the environment's fault, not the script's.
    Unknown(String),
}

/// One check: a script against a kernel, or an expectation against a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What was checked: a script's path, or an expectation as the user wrote it.
    pub subject: String,
    /// Against what: a kernel's name, or a command; empty where there is only one.
    pub against: String,
    /// How it went.
    pub state: State,
    /// What was found, in the order of the text.
    pub findings: Vec<Finding>,
    /// More that is known, as (name, value): mechanisms, sizes, the value that an expectation met.
    pub facts: Vec<(String, String)>,
    /// How long it took, in seconds.
    pub seconds: f64,
}

/// All of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// What was done: `check` or `expect`; the name of the test suite in formats that have one.
    pub name: &'static str,
    /// One for each subject and each kernel; subjects in their order, and within one the kernels in theirs.
    pub outcomes: Vec<Outcome>,
    /// Warnings fail too.
    pub deny_warnings: bool,
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
        let least = if self.deny_warnings { Level::Warning } else { Level::Error };
        outcome.worst().is_some_and(|worst| worst >= least)
    }

    /// The exit status: what could not be had outweighs what was found.
    pub fn status(&self) -> u8 {
        if self.outcomes.iter().any(|o| matches!(o.state, State::Unknown(_))) {
            ENVIRONMENT
        } else if self.outcomes.iter().any(|o| self.fails(o)) {
            FINDINGS
        } else {
            WELL
        }
    }
}
