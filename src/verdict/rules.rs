//! What a finding may be about, besides what is wrong with a script anywhere: those have the codes of diagnostics.

use super::Level;

/// A row: a kind of finding.
pub struct Rule {
    /// Stable, kebab-case; what `// check: allow` names.
    pub name: &'static str,
    /// How bad it is, unless the place that finds it knows better.
    pub level: Level,
    /// One line.
    pub doc: &'static str,
}

/// All of them, sorted by name.
pub const RULES: &[Rule] = &[Rule { name: "bad-comment", level: Level::Error, doc: "a `check:` comment that is not understood" }];

/// The row of this name.
pub fn rule(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|r| r.name == name)
}
