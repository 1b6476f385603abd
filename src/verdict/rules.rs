//! What a finding may be about, besides what is wrong with a script anywhere.

pub use crate::diag::codes::{Code as Rule, FINDINGS as RULES};

/// The row of this name.
pub fn rule(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|r| r.name == name)
}
