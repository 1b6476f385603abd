//! What the check of a script against a kernel has found so far.

use super::exceptions::Exceptions;
use super::uses::TypeUse;
use crate::verdict::{self, Finding, Level, State};

/// The result of checking a script.
#[derive(Debug)]
pub struct ScriptCheck {
    /// How it went.
    pub state: State,
    /// What was found.
    pub findings: Vec<Finding>,
    /// What else is known.
    pub facts: Vec<(String, String)>,
    /// How long it took.
    pub seconds: f64,
    /// What it uses of the kernel.
    pub uses: Vec<TypeUse>,
    /// What is meant to differ.
    pub exceptions: Exceptions,
}

impl ScriptCheck {
    /// Nothing is known yet.
    pub fn new() -> Self {
        let exceptions = Exceptions::default();
        Self { state: State::Checked, findings: Vec::new(), facts: Vec::new(), seconds: 0.0, uses: Vec::new(), exceptions }
    }

    /// Checked, and no errors.
    pub fn is_well(&self) -> bool {
        self.state == State::Checked && self.findings.iter().all(|f| f.level < Level::Error)
    }

    /// Is there an error here that the other has not at that place?
    pub fn has_errors_beyond(&self, other: &ScriptCheck) -> bool {
        let has = |f: &Finding| other.findings.iter().any(|o| o.level == Level::Error && o.place == f.place);
        self.findings.iter().any(|f| f.level == Level::Error && !has(f))
    }

    /// Without what the other's findings say from their side.
    pub fn without_changes_of(mut self, other: &ScriptCheck) -> Self {
        let changed = |f: &Finding| f.level < Level::Error && other.findings.iter().any(|o| (o.rule, &o.place) == (f.rule, &f.place));
        self.findings.retain(|f| !(verdict::rule(f.rule).is_some() && changed(f)));
        self
    }

    /// One that could not be checked.
    pub fn unknown(why: &str) -> Self {
        Self { state: State::Unknown(why.into()), ..Self::new() }
    }

    /// What is allowed becomes a note; then all is in order of place.
    pub fn apply_exceptions(&mut self) {
        for f in &mut self.findings {
            if let (Some(why), true) = (self.exceptions.allows(f.rule), f.level > Level::Note) {
                f.level = Level::Note;
                f.message += &if why.is_empty() { "; allowed".into() } else { format!("; allowed: {why}") };
            }
        }
        self.findings.sort_by_key(|f| (f.place.as_ref().map(|p| (p.file.clone(), p.line, p.column)), std::cmp::Reverse(f.level)));
    }
}
