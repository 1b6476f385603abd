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
pub const RULES: &[Rule] = &[
    Rule { name: "bad-comment", level: Level::Error, doc: "a `check:` comment that is not understood" },
    Rule { name: "emptied", level: Level::Note, doc: "a map of an expectation that the script emptied before the end" },
    Rule {
        name: "no-value",
        level: Level::Error,
        doc: "an expectation about what has no value: a percentile of nothing, a division by zero",
    },
    Rule { name: "not-met", level: Level::Error, doc: "an expectation that does not hold" },
    Rule { name: "not-told", level: Level::Error, doc: "an expectation that a histogram's buckets are too wide to tell of" },
];

/// The row of this name.
pub fn rule(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|r| r.name == name)
}
