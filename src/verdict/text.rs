//! The text form: a table of results, then the findings in the form of a script's other messages.

use super::{Cell, Finding, Level, Outcome, Report, SourceLocation, State, UniqueFinding};
use crate::diag::{self, plain, plain_lines};
use crate::terminal::{self, paint};
use anstyle::Style;

/// The report as text.
pub fn render(report: &Report, style: &super::Style) -> String {
    let mut out = String::new();
    table(&mut out, report, style);
    reasons(&mut out, report, style);
    for unique in report.unique_findings().iter().filter(|t| t.finding.level > Level::Note || !style.quiet) {
        finding(&mut out, unique, style);
    }
    if style.verbose {
        facts(&mut out, report);
    }
    let all_passed = report.outcomes.iter().all(|o| matches!(report.cell(o), Cell::Ok | Cell::Skipped));
    if !(style.quiet && all_passed) {
        let denied = report.deny_warnings && report.outcomes.iter().any(|o| o.worst() == Some(Level::Warning));
        out += &format!("{}{}\n", report.sums(), if denied { "; warnings are denied" } else { "" });
    }
    out
}

/// The word and its color.
fn mark(cell: Cell) -> (&'static str, Style) {
    match cell {
        Cell::Ok => ("ok", terminal::OK),
        Cell::Warning => ("warn", terminal::WARNING),
        Cell::Failed => ("FAIL", terminal::ERROR),
        Cell::Skipped => ("skip", terminal::DIM),
        Cell::Unknown => ("?", terminal::UNKNOWN),
    }
}

/// Rows are subjects, and columns are kernels. A table with a single cell is omitted.
fn table(out: &mut String, report: &Report, style: &super::Style) {
    if report.outcomes.len() < 2 {
        return;
    }
    let againsts = report.kernel_names();
    let cell = |subject: &str, against: &str| {
        report.outcomes.iter().find(|o| o.subject == subject && o.against == against).map(|o| report.cell(o))
    };
    let subjects: Vec<(String, Vec<Option<Cell>>)> = report
        .subjects()
        .into_iter()
        .map(|s| (plain(s), againsts.iter().map(|a| cell(s, a)).collect::<Vec<_>>()))
        .filter(|(_, cells)| !style.quiet || cells.iter().flatten().any(|c| !matches!(c, Cell::Ok | Cell::Skipped)))
        .collect();
    if subjects.is_empty() {
        return;
    }
    let first = subjects.iter().map(|(s, _)| s.chars().count()).max().unwrap_or(0);
    let heads: Vec<String> = againsts.iter().map(|a| plain(a)).collect();
    let widths: Vec<usize> = heads.iter().map(|h| h.chars().count().max(4)).collect();
    if heads.iter().any(|h| !h.is_empty()) {
        let mut line = " ".repeat(first);
        for (head, width) in heads.iter().zip(&widths) {
            line += &format!("  {head:<width$}");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    for (subject, cells) in &subjects {
        let mut line = format!("{subject:<first$}");
        let mut pending = 0;
        for (cell, width) in cells.iter().zip(&widths) {
            let (word, emphasis) = cell.map_or(("", Style::new()), mark);
            line += &" ".repeat(pending + 2);
            line += &if word.is_empty() { String::new() } else { paint(word, emphasis, style.color) };
            pending = width.saturating_sub(word.len());
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out.push('\n');
}

/// Why something was not checked; reasons that apply to an entire kernel appear once.
fn reasons(out: &mut String, report: &Report, style: &super::Style) {
    let mut reported: Vec<&str> = Vec::new();
    for outcome in &report.outcomes {
        if report.all_unknown(&outcome.against) {
            if !reported.contains(&outcome.against.as_str()) {
                reported.push(&outcome.against);
                why(out, report, &Outcome { subject: "all".into(), ..outcome.clone() }, style);
            }
        } else {
            why(out, report, outcome, style);
        }
    }
}

/// Why something was not checked.
fn why(out: &mut String, report: &Report, outcome: &Outcome, style: &super::Style) {
    let (word, emphasis, why) = match &outcome.state {
        State::Checked => return,
        State::Skipped(_) if style.quiet => return,
        State::Skipped(why) => ("skipped:", terminal::NOTE, why),
        State::Unknown(why) => ("not checked:", terminal::UNKNOWN, why),
    };
    let against = match outcome.against.as_str() {
        against if !against.is_empty() && report.kernel_names().len() > 1 => format!(" ({})", plain(against)),
        _ => String::new(),
    };
    out.push_str(&format!("{} {}{against}: {}\n", paint(word, emphasis, style.color), plain(&outcome.subject), plain_lines(why)));
}

/// A single finding, without color.
pub(super) fn finding_text(subject: &str, of: &Finding) -> String {
    let mut out = String::new();
    finding(&mut out, &UniqueFinding { subject, finding: of, against: Vec::new() }, &super::Style::default());
    out
}

fn finding(out: &mut String, unique: &UniqueFinding, style: &super::Style) {
    let finding = unique.finding;
    let (word, emphasis) = match finding.level {
        Level::Note => ("note", terminal::NOTE),
        Level::Warning => ("warning", terminal::WARNING),
        Level::Error => ("error", terminal::ERROR),
    };
    let head = paint(&format!("{word}[{}]", finding.rule), emphasis, style.color);
    let at = finding.location.as_ref().map_or_else(|| format!("{}: ", plain(unique.subject)), location);
    out.push_str(&format!("{head} {at}{}\n", paint(&plain_lines(&unique.message()), terminal::BOLD, style.color)));
    if let Some(at) = &finding.location {
        out.push_str(&excerpt(at, style.color.then_some(emphasis)));
    }
    for (at, text) in &finding.related {
        out.push_str(&format!("{} {}{}\n", paint("note:", terminal::NOTE, style.color), location(at), plain_lines(text)));
        out.push_str(&excerpt(at, style.color.then_some(terminal::NOTE)));
    }
    if let Some(help) = &finding.help {
        out.push_str(&format!("{} {}\n", paint("help:", terminal::HELP, style.color), plain_lines(help)));
    }
}

fn location(at: &SourceLocation) -> String {
    format!("{}:{}:{}: ", plain(&at.file), at.line, at.column)
}

fn excerpt(at: &SourceLocation, emphasis: Option<Style>) -> String {
    let byte = |column: u32| at.text.char_indices().nth(column.saturating_sub(1) as usize).map_or(at.text.len(), |(i, _)| i);
    let to = if at.end_line > at.line { at.text.len() } else { byte(at.end_column) };
    diag::underline(&at.text, byte(at.column), to, emphasis)
}

fn facts(out: &mut String, report: &Report) {
    for outcome in report.outcomes.iter().filter(|o| !o.facts.is_empty()) {
        let against = if outcome.against.is_empty() { String::new() } else { format!(" ({})", plain(&outcome.against)) };
        out.push_str(&format!("{}{against}, {:.1} ms:\n", plain(&outcome.subject), outcome.seconds * 1e3));
        let width = outcome.facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        for (name, value) in &outcome.facts {
            out.push_str(&format!("    {:<width$}  {}\n", plain(name), plain(value)));
        }
    }
}
