//! One JSON object. `version` increases if a field changes its meaning or is removed; new fields may be added at any
//! time.
//!
//! ```text
//! {"version": 1, "name": "check", "status": 1, "deny_warnings": false,
//!  "outcomes": [{"subject": "open.bt", "against": "6.1.0-48", "verdict": "failed", "reason": null, "seconds": 0.004,
//!                "findings": [{"rule": "unknown-field", "level": "error", "message": "no field `x`", "place": PLACE,
//!                              "related": [{"place": PLACE, "message": "…"}], "help": "did you mean `y`?"}],
//!                "facts": [{"name": "kprobe:vfs_read", "value": "fentry"}]}]}
//! ```
//!
//! PLACE is null or `{"file", "line", "column", "end_line", "end_column", "text"}`; lines and columns count characters from 1,
//! and the end is one past the last column. A verdict is `ok`, `warning`, `failed`, `skipped` or `unknown`; the last two have a
//! reason.

use serde::Serialize;

use super::{Cell, Finding, Level, Outcome, Report, SourceLocation, State, Style};

/// See the module's note.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct JsonReport<'a> {
    version: u32,
    name: &'a str,
    status: u8,
    deny_warnings: bool,
    outcomes: Vec<JsonOutcome<'a>>,
}

#[derive(Serialize)]
struct JsonOutcome<'a> {
    subject: &'a str,
    against: &'a str,
    verdict: Cell,
    reason: Option<&'a str>,
    seconds: f64,
    findings: Vec<JsonFinding<'a>>,
    facts: Vec<JsonFact<'a>>,
}

#[derive(Serialize)]
struct JsonFinding<'a> {
    rule: &'a str,
    level: Level,
    message: &'a str,
    place: Option<&'a SourceLocation>,
    related: Vec<Related<'a>>,
    help: Option<&'a str>,
}

#[derive(Serialize)]
struct Related<'a> {
    place: &'a SourceLocation,
    message: &'a str,
}

#[derive(Serialize)]
struct JsonFact<'a> {
    name: &'a str,
    value: &'a str,
}

/// The report as one object.
pub fn render(report: &Report, _style: &Style) -> String {
    let outcomes = report.outcomes.iter().map(|o| one(report, o)).collect();
    let document =
        JsonReport { version: VERSION, name: report.name, status: report.status(), deny_warnings: report.deny_warnings, outcomes };
    super::pretty(&document)
}

fn one<'a>(report: &Report, outcome: &'a Outcome) -> JsonOutcome<'a> {
    JsonOutcome {
        subject: &outcome.subject,
        against: &outcome.against,
        verdict: report.cell(outcome),
        reason: match &outcome.state {
            State::Checked => None,
            State::Skipped(why) | State::Unknown(why) => Some(why),
        },
        seconds: outcome.seconds,
        findings: outcome.findings.iter().map(found).collect(),
        facts: outcome.facts.iter().map(|(name, value)| JsonFact { name, value }).collect(),
    }
}

fn found(finding: &Finding) -> JsonFinding<'_> {
    let Finding { rule, level, message, location: place, related, help } = finding;
    let related = related.iter().map(|(place, message)| Related { place, message }).collect();
    JsonFinding { rule, level: *level, message, place: place.as_ref(), related, help: help.as_deref() }
}
