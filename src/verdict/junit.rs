//! JUnit's XML: a form that both common schemas accept, Ant's (`JUnit.xsd`) and that of Jenkins' xUnit plugin.
//!
//! A suite is a kernel, or the run; a case is a script or an expectation. A case has one result, which contains all of its
//! findings. Facts are properties of the suite, `SUBJECT: NAME`. Findings that do not fail are in its `system-out`.

use std::fmt::Write;

use super::{Cell, Finding, Outcome, Report, State, Style, text};
use crate::render::utc;

/// The report as a document.
pub fn render(report: &Report, style: &Style) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for (id, against) in report.kernel_names().into_iter().enumerate() {
        suite(&mut out, report, id, against, style);
    }
    out += "</testsuites>\n";
    out
}

fn suite(out: &mut String, report: &Report, id: usize, against: &str, style: &Style) {
    let all: Vec<&Outcome> = report.outcomes.iter().filter(|o| o.against == against).collect();
    let count = |cell| all.iter().filter(|o| report.cell(o) == cell).count();
    let name = if against.is_empty() { report.name.to_string() } else { format!("{} {against}", report.name) };
    let time: f64 = all.iter().map(|o| o.seconds).sum();
    let timestamp = utc(style.started_ns).get(..19).unwrap_or_default().replace(' ', "T");
    let host = if style.host.is_empty() { "localhost" } else { &style.host };
    let _ = writeln!(
        out,
        "  <testsuite name=\"{}\" package=\"rbt\" id=\"{id}\" timestamp=\"{timestamp}\" hostname=\"{}\" tests=\"{}\" failures=\"{}\" \
         errors=\"{}\" skipped=\"{}\" time=\"{time:.6}\">",
        escaped(&name),
        escaped(host),
        all.len(),
        count(Cell::Failed),
        count(Cell::Unknown),
        count(Cell::Skipped),
    );
    out.push_str("    <properties>\n");
    for outcome in &all {
        for (name, value) in &outcome.facts {
            let name = format!("{}: {name}", outcome.subject);
            let _ = writeln!(out, "      <property name=\"{}\" value=\"{}\"/>", escaped(&name), escaped(value));
        }
    }
    out.push_str("    </properties>\n");
    let mut others = String::new();
    for outcome in &all {
        case(out, report, outcome, &name);
        if report.cell(outcome) != Cell::Failed {
            outcome.findings.iter().for_each(|f| others += &failure(&outcome.subject, f));
        }
    }
    let _ = writeln!(out, "    <system-out>{}</system-out>\n    <system-err></system-err>\n  </testsuite>", escaped_text(&others));
}

fn case(out: &mut String, report: &Report, outcome: &Outcome, suite: &str) {
    let (name, seconds) = (escaped(&outcome.subject), outcome.seconds);
    // the class is a path in which dots separate directories
    let class = escaped(&format!("rbt.{}", suite.replace(['.', ' '], "_")));
    let _ = write!(out, "    <testcase name=\"{name}\" classname=\"{class}\" time=\"{seconds:.6}\"");
    let inner = match (&outcome.state, report.cell(outcome)) {
        (State::Skipped(why), _) => format!("<skipped message=\"{}\"/>", escaped(why)),
        (State::Unknown(why), _) => {
            let all: String = outcome.findings.iter().map(|f| failure(&outcome.subject, f)).collect();
            format!("<error message=\"{}\" type=\"environment\">{}</error>", escaped(why), escaped_text(&all))
        }
        (State::Checked, Cell::Failed) => {
            let worst = outcome.findings.iter().find(|f| Some(f.level) == outcome.worst());
            let all: String = outcome.findings.iter().map(|f| failure(&outcome.subject, f)).collect();
            let (rule, message) = worst.map_or(("", ""), |f| (f.rule, f.message.as_str()));
            format!("<failure message=\"{}\" type=\"{}\">{}</failure>", escaped(message), escaped(rule), escaped_text(&all))
        }
        (State::Checked, _) => String::new(),
    };
    if inner.is_empty() {
        out.push_str("/>\n");
    } else {
        let _ = writeln!(out, ">\n      {inner}\n    </testcase>");
    }
}

/// In the form of the text format.
fn failure(subject: &str, finding: &Finding) -> String {
    text::finding_text(subject, finding)
}

/// Escapes text in an attribute, where line breaks and tabs would become spaces.
fn escaped(text: &str) -> String {
    escape(text, |c| matches!(c, '\n' | '\r' | '\t' | '"'))
}

/// Escapes text between tags.
fn escaped_text(text: &str) -> String {
    escape(text, |c| c == '\r')
}

fn escape(text: &str, by_number: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c if by_number(c) => {
                let _ = write!(out, "&#{};", c as u32);
            }
            '\n' | '\t' => out.push(c),
            // XML does not allow these characters in any form
            '\0'..'\x20' | '\u{FFFE}' | '\u{FFFF}' => out.push('\u{FFFD}'),
            c => out.push(c),
        }
    }
    out
}
