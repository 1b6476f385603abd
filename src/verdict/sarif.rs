//! SARIF 2.1.0 (OASIS): one run, a result for each finding, a notification for each subject that was not checked.

use serde::Serialize;

use super::{Finding, Level, Report, SourceLocation, State, Style};

const SCHEMA: &str = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Log {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: [Run; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    tool: Tool,
    invocations: [Invocation; 1],
    column_kind: &'static str,
    results: Vec<SarifResult>,
}

#[derive(Serialize)]
struct Tool {
    driver: Driver,
}

#[derive(Serialize)]
struct Driver {
    name: &'static str,
    version: &'static str,
    rules: Vec<Rule>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    id: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    short_description: Option<Message>,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<Message>,
}

#[derive(Serialize)]
struct Message {
    text: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Invocation {
    execution_successful: bool,
    exit_code: u8,
    tool_execution_notifications: Vec<Notification>,
}

#[derive(Serialize)]
struct Notification {
    level: &'static str,
    message: Message,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SarifResult {
    rule_id: &'static str,
    rule_index: usize,
    level: &'static str,
    message: Message,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    locations: Vec<Location>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    related_locations: Vec<Location>,
    properties: Properties,
}

/// The subject and the kernel of a result.
#[derive(Serialize)]
struct Properties {
    subject: String,
    against: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    physical_location: Physical,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Message>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Physical {
    artifact_location: Artifact,
    region: Region,
}

#[derive(Serialize)]
struct Artifact {
    uri: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Region {
    start_line: u32,
    start_column: u32,
    end_line: u32,
    end_column: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    snippet: Option<Message>,
}

/// The report as a log.
pub fn render(report: &Report, style: &Style) -> String {
    let findings = report.unique_findings();
    let mut rules: Vec<Rule> = Vec::new();
    let results = findings
        .iter()
        .map(|t| {
            let id = t.finding.rule;
            let rule_index = rules.iter().position(|r| r.id == id).unwrap_or_else(|| {
                let code = crate::diag::codes::find(id);
                let short_description = code.map(|c| Message { text: c.sentence() });
                let help = code.map(|c| Message { text: c.text() });
                rules.push(Rule { id, short_description, help });
                rules.len() - 1
            });
            let properties = Properties { subject: t.subject.into(), against: t.against.iter().map(|a| (*a).into()).collect() };
            result(t.finding, rule_index, t.message(), properties, style)
        })
        .collect();
    let notifications = report.outcomes.iter().filter_map(|o| {
        let (level, why) = match &o.state {
            State::Checked => return None,
            State::Skipped(why) => ("note", why),
            State::Unknown(why) => ("error", why),
        };
        let against = if o.against.is_empty() { String::new() } else { format!(" ({})", o.against) };
        Some(Notification { level, message: Message { text: format!("{}{against}: {why}", o.subject) } })
    });
    let invocation = Invocation {
        execution_successful: !report.outcomes.iter().any(|o| matches!(o.state, State::Unknown(_))),
        exit_code: report.status(),
        tool_execution_notifications: notifications.collect(),
    };
    let driver = Driver { name: "rbt", version: crate::VERSION, rules };
    let run = Run { tool: Tool { driver }, invocations: [invocation], column_kind: "unicodeCodePoints", results };
    super::pretty(&Log { schema: SCHEMA, version: "2.1.0", runs: [run] })
}

fn result(finding: &Finding, rule_index: usize, mut text: String, properties: Properties, style: &Style) -> SarifResult {
    if let Some(help) = &finding.help {
        text += &format!("\nhelp: {help}");
    }
    SarifResult {
        rule_id: finding.rule,
        rule_index,
        level: match finding.level {
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Error => "error",
        },
        message: Message { text },
        locations: finding.location.iter().map(|p| location(p, None, style)).collect(),
        related_locations: finding.related.iter().map(|(p, text)| location(p, Some(text), style)).collect(),
        properties,
    }
}

fn location(at: &SourceLocation, text: Option<&str>, style: &Style) -> Location {
    let region = Region {
        start_line: at.line.max(1),
        start_column: at.column.max(1),
        end_line: at.end_line.max(at.line).max(1),
        end_column: at.end_column.max(1),
        snippet: (at.end_line == at.line).then(|| Message { text: at.text.clone() }),
    };
    Location {
        physical_location: Physical { artifact_location: Artifact { uri: uri(&style.rooted(&at.file)) }, region },
        message: text.map(|t| Message { text: t.into() }),
    }
}

/// A path as a reference: relative ones stay so, for the reader's own root (RFC 3986).
fn uri(path: &str) -> String {
    let (scheme, path) = if path.starts_with('/') { ("file://", path) } else { ("", path.strip_prefix("./").unwrap_or(path)) };
    let mut out = String::from(scheme);
    for b in path.bytes() {
        match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => out.push(b.into()),
            b => out += &format!("%{b:02X}"),
        }
    }
    out
}
