//! What the check of a script against a kernel has found so far.

use super::exceptions::Exceptions;
use super::uses::TypeUse;
use crate::verdict::{self, Finding, Level, State};

/// The result of checking a script.
#[derive(Debug)]
pub struct ScriptCheck {
    /// The result.
    pub state: State,
    /// The findings.
    pub findings: Vec<Finding>,
    /// Further facts.
    pub facts: Vec<(String, String)>,
    /// The duration.
    pub seconds: f64,
    /// The kernel items that it uses.
    pub uses: Vec<TypeUse>,
    /// The exceptions.
    pub exceptions: Exceptions,
}

impl ScriptCheck {
    /// Creates an empty result.
    pub fn new() -> Self {
        let exceptions = Exceptions::default();
        Self { state: State::Checked, findings: Vec::new(), facts: Vec::new(), seconds: 0.0, uses: Vec::new(), exceptions }
    }

    /// Checked, without errors.
    pub fn passed(&self) -> bool {
        self.state == State::Checked && self.findings.iter().all(|f| f.level < Level::Error)
    }

    /// Is there an error here that the other does not have at the same place?
    pub fn has_errors_beyond(&self, other: &ScriptCheck) -> bool {
        let has = |f: &Finding| other.findings.iter().any(|o| o.level == Level::Error && o.location == f.location);
        self.findings.iter().any(|f| f.level == Level::Error && !has(f))
    }

    /// Removes findings that report the same change as one of the other's, seen from the opposite side.
    pub fn without_changes_of(mut self, other: &ScriptCheck) -> Self {
        let changed = |f: &Finding| f.level < Level::Error && other.findings.iter().any(|o| (o.rule, &o.location) == (f.rule, &f.location));
        self.findings.retain(|f| !(verdict::rule(f.rule).is_some() && changed(f)));
        self
    }

    /// The result of a check that was impossible.
    pub fn unknown(why: &str) -> Self {
        Self { state: State::Unknown(why.into()), ..Self::new() }
    }

    /// Turns allowed findings into notes, and sorts all by place.
    pub fn apply_exceptions(&mut self) {
        for f in &mut self.findings {
            if let (Some(why), true) = (self.exceptions.allows(f.rule), f.level > Level::Note) {
                f.level = Level::Note;
                f.message += &if why.is_empty() { "; allowed".into() } else { format!("; allowed: {why}") };
            }
        }
        self.findings.sort_by_key(|f| (f.location.as_ref().map(|p| (p.file.clone(), p.line, p.column)), std::cmp::Reverse(f.level)));
    }
}
