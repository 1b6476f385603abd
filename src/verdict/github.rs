//! GitHub's workflow commands, which its runner reads from the output of a step and shows beside the code.

use super::{Level, Report, SourceLocation, State, Style};

/// A command for each finding, and a summary in the last line.
pub fn render(report: &Report, style: &Style) -> String {
    let mut out = String::new();
    for outcome in &report.outcomes {
        if let State::Unknown(why) = &outcome.state {
            let all = report.all_unknown(&outcome.against);
            if all && report.outcomes.iter().find(|o| o.against == outcome.against) != Some(outcome) {
                continue;
            }
            let subject = if all { "all" } else { &outcome.subject };
            let against = if outcome.against.is_empty() { String::new() } else { format!(" ({})", outcome.against) };
            out += &command("error", None, "not checked", &format!("{subject}{against}: {why}"));
        }
    }
    for told in report.unique_findings() {
        let finding = told.finding;
        let mut message = told.message();
        for (at, text) in &finding.related {
            message += &format!("\n{}:{}: {text}", at.file, at.line);
        }
        if let Some(help) = &finding.help {
            message += &format!("\nhelp: {help}");
        }
        if finding.location.is_none() {
            message = format!("{}: {message}", told.subject);
        }
        let word = match finding.level {
            Level::Note => "notice",
            Level::Warning => "warning",
            Level::Error => "error",
        };
        out += &command(word, finding.location.as_ref().map(|at| (at, style.rooted(&at.file))), finding.rule, &message);
    }
    out + &report.sums() + "\n"
}

/// Text that makes the runner ignore commands between the two, because traced processes may have written it.
pub fn command_fence(token: &str) -> [String; 2] {
    [format!("::stop-commands::{token}\n"), format!("\n::{token}::\n")]
}

fn command(word: &str, place: Option<(&SourceLocation, String)>, title: &str, message: &str) -> String {
    let mut properties = Vec::new();
    if let Some((at, file)) = place {
        properties.push(format!("file={}", property(&file)));
        properties.push(format!("line={}", at.line));
        properties.push(format!("endLine={}", at.end_line));
        properties.push(format!("col={}", at.column));
        // columns apply only to a single line
        if at.end_line == at.line {
            properties.push(format!("endColumn={}", at.end_column));
        }
    }
    properties.push(format!("title={}", property(title)));
    format!("::{word} {}::{}\n", properties.join(","), data(message))
}

/// Encoded for the runner's decoder: actions/toolkit, packages/core/src/command.ts.
fn data(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| if crate::terminal::escape::is_deceptive(c) && !matches!(c, '\n' | '\r' | '\t') { '\u{FFFD}' } else { c })
        .collect();
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
