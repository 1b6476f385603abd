//! The rules of findings, other than errors in a script itself.

pub use crate::diag::codes::{Code as Rule, FINDINGS as RULES};

/// The row of this name.
pub fn rule(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|r| r.name == name)
}
