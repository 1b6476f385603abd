//! For people: a table of what came to what, then the findings as a script's other messages look.

use super::{Cell, Finding, Level, Outcome, Place, Report, State, Style, Told};
use crate::diag::{self, plain, plain_lines};

/// The report as text.
pub fn render(report: &Report, style: &Style) -> String {
    let mut out = String::new();
    let ink = Ink { color: style.color };
    table(&mut out, report, style, &ink);
    whys(&mut out, report, style, &ink);
    for told in report.told().iter().filter(|t| t.finding.level > Level::Note || !style.quiet) {
        finding(&mut out, told, style);
    }
    if style.verbose {
        facts(&mut out, report);
    }
    let well = report.outcomes.iter().all(|o| matches!(report.cell(o), Cell::Ok | Cell::Skipped));
    if !(style.quiet && well) {
        let denied = report.deny_warnings && report.outcomes.iter().any(|o| o.worst() == Some(Level::Warning));
        out += &format!("{}{}\n", report.sums(), if denied { "; warnings are denied" } else { "" });
    }
    out
}

struct Ink {
    color: bool,
}

impl Ink {
    fn with(&self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
}

/// The word and its color.
fn mark(cell: Cell) -> (&'static str, &'static str) {
    match cell {
        Cell::Ok => ("ok", "32"),
        Cell::Warning => ("warn", "1;33"),
        Cell::Failed => ("FAIL", "1;31"),
        Cell::Skipped => ("skip", "2"),
        Cell::Unknown => ("?", "1;35"),
    }
}

/// Rows are subjects, columns what they were checked against. A table of one cell says nothing.
fn table(out: &mut String, report: &Report, style: &Style, ink: &Ink) {
    if report.outcomes.len() < 2 {
        return;
    }
    let againsts = report.againsts();
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
            let (word, hue) = cell.map_or(("", ""), mark);
            line += &" ".repeat(pending + 2);
            line += &if word.is_empty() { String::new() } else { ink.with(hue, word) };
            pending = width.saturating_sub(word.len());
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out.push('\n');
}

/// Why what was not checked; what a kernel is to blame for once for all.
fn whys(out: &mut String, report: &Report, style: &Style, ink: &Ink) {
    let mut told: Vec<&str> = Vec::new();
    for outcome in &report.outcomes {
        if report.all_unknown(&outcome.against) {
            if !told.contains(&outcome.against.as_str()) {
                told.push(&outcome.against);
                why(out, report, &Outcome { subject: "all".into(), ..outcome.clone() }, style, ink);
            }
        } else {
            why(out, report, outcome, style, ink);
        }
    }
}

/// Why something was not checked.
fn why(out: &mut String, report: &Report, outcome: &Outcome, style: &Style, ink: &Ink) {
    let (word, hue, why) = match &outcome.state {
        State::Checked => return,
        State::Skipped(_) if style.quiet => return,
        State::Skipped(why) => ("skipped:", "1;36", why),
        State::Unknown(why) => ("not checked:", "1;35", why),
    };
    let against = match outcome.against.as_str() {
        against if !against.is_empty() && report.againsts().len() > 1 => format!(" ({})", plain(against)),
        _ => String::new(),
    };
    out.push_str(&format!("{} {}{against}: {}\n", ink.with(hue, word), plain(&outcome.subject), plain_lines(why)));
}

/// A finding by itself, without color.
pub(super) fn one(subject: &str, of: &Finding) -> String {
    let mut out = String::new();
    finding(&mut out, &Told { subject, finding: of, against: Vec::new() }, &Style::default());
    out
}

fn finding(out: &mut String, told: &Told, style: &Style) {
    let ink = Ink { color: style.color };
    let finding = told.finding;
    let (word, hue) = match finding.level {
        Level::Note => ("note", "1;36"),
        Level::Warning => ("warning", "1;33"),
        Level::Error => ("error", "1;31"),
    };
    let head = ink.with(hue, &format!("{word}[{}]", finding.rule));
    let at = finding.place.as_ref().map_or_else(|| format!("{}: ", plain(told.subject)), place);
    out.push_str(&format!("{head} {at}{}\n", ink.with("1", &plain_lines(&told.message()))));
    if let Some(at) = &finding.place {
        out.push_str(&excerpt(at, style.color.then_some(hue)));
    }
    for (at, text) in &finding.related {
        out.push_str(&format!("{} {}{}\n", ink.with("1;36", "note:"), place(at), plain_lines(text)));
        out.push_str(&excerpt(at, style.color.then_some("1;36")));
    }
    if let Some(help) = &finding.help {
        out.push_str(&format!("{} {}\n", ink.with("1;32", "help:"), plain_lines(help)));
    }
}

fn place(at: &Place) -> String {
    format!("{}:{}:{}: ", plain(&at.file), at.line, at.column)
}

fn excerpt(at: &Place, hue: Option<&str>) -> String {
    let byte = |column: u32| at.text.char_indices().nth(column.saturating_sub(1) as usize).map_or(at.text.len(), |(i, _)| i);
    let to = if at.end_line > at.line { at.text.len() } else { byte(at.end_column) };
    diag::underline(&at.text, byte(at.column), to, hue)
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
