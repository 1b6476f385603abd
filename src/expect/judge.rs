//! Turns an expectation and the results of a run into an outcome with its explanation.

use std::time::Instant;

use super::eval::{Eval, NoValue, elements};
use super::range::Range;
use super::value::Val;
use super::{Constant, Expectation, Expr, Kind, MapRef, Ty};
use crate::diag::plural;
use crate::output::FinalResults;
use crate::render::{self, TextFormatter};
use crate::syntax::ast::BinOp;
use crate::value::Counts;
use crate::verdict::{Finding, Outcome, State, rule};

/// Number of elements of a map that are shown if it fails the expectation.
const MAX_ELEMENTS_SHOWN: usize = 5;

/// The outcome of an expectation.
///
/// If events were lost, or probes are missing, no expectation is certainly met: one that is false for all possible
/// values fails, and all others are undecided.
pub fn evaluate(expectation: &Expectation, last: &FinalResults) -> Outcome {
    let began = Instant::now();
    let root = &expectation.root;
    let findings = Findings { last, names: TextFormatter::default() };
    let lost = losses(root, last);
    let lossy = !lost.is_empty();
    let verdict = Eval { last, lossy }.eval(root).map(|found| found.truth());
    let mut outcome = Outcome {
        subject: expectation.text.clone(),
        against: String::new(),
        state: State::Checked,
        findings: Vec::new(),
        facts: findings.facts(root),
        seconds: 0.0,
    };
    let find = |name: &'static str, message: String, help: Option<String>| Finding {
        rule: name,
        level: rule(name).map_or(crate::verdict::Level::Error, |r| r.level),
        message,
        location: expectation.location.clone(),
        related: Vec::new(),
        help,
    };
    match verdict {
        Ok(Some(true)) if !lossy => {}
        Ok(Some(false)) => {
            let mut blamed = Vec::new();
            findings.find_unmet(root, lossy, &mut blamed);
            let help = lossy.then(|| format!("at least: {}", lost.join("; ")));
            outcome.findings.push(find("not-met", blamed.join("; "), help));
            outcome.facts.extend(findings.greatest_elements(root));
        }
        Ok(None) if !lossy => {
            let mut blamed = Vec::new();
            findings.find_unmet(root, lossy, &mut blamed);
            let help = "use narrower buckets: percentiles(n), hist(n, 5), or an lhist whose range includes all values";
            outcome.findings.push(find("undecided", blamed.join("; "), Some(help.into())));
        }
        Err(NoValue { text, why }) if !lossy => {
            let message = format!("`{text}` has no value: {why}");
            let help = format!("to allow it, write `count(…) == 0 || {}`", expectation.text);
            outcome.findings.push(find("no-value", message, why.starts_with("there is nothing").then_some(help)));
        }
        Ok(Some(true) | None) | Err(_) => outcome.state = State::Unknown(format!("the run is incomplete: {}", lost.join("; "))),
    }
    for (view, times) in last.maps.iter().zip(&last.emptied) {
        if *times > 0 && maps(root).iter().any(|of| of.map == view.name) {
            let times = if *times == 1 { "once".into() } else { format!("{times} times") };
            let message = format!("the script emptied {} {times} before the end: the expectation covers only later values", view.name);
            outcome.findings.push(find("map-emptied", message, None));
        }
    }
    let unread = last.counts.iter().fold(0u64, |n, c| n.saturating_add(c.unread));
    if unread > 0 && outcome.state == State::Checked {
        let probe = last.counts.iter().find(|c| c.unread > 0).map_or("", |c| c.probe.as_str());
        let reads = if unread == 1 { "a read".into() } else { format!("{unread} reads") };
        let message = format!("{reads} of memory failed ({probe}): the values are empty or 0");
        let help = "memory that is not resident cannot be read: read it when the call returns; -k shows which reads fail";
        outcome.findings.push(find("failed-reads", message, Some(help.into())));
    }
    outcome.seconds = began.elapsed().as_secs_f64();
    outcome
}

/// The outcome of an expectation whose run could not take place, and why.
pub fn run_failed(expectation: &Expectation, why: &str) -> Outcome {
    Outcome {
        subject: expectation.text.clone(),
        against: String::new(),
        state: State::Unknown(why.into()),
        findings: Vec::new(),
        facts: Vec::new(),
        seconds: 0.0,
    }
}

/// What the maps of an expectation lack; nothing if they are complete.
///
/// Records that found no space in the ring buffer are output. The kernel updates maps without them, so they matter only
/// if such a record clears one of these maps.
fn losses(root: &Expr, last: &FinalResults) -> Vec<String> {
    let sum = |of: fn(&Counts) -> u64| last.counts.iter().fold(0u64, |n, c| n.saturating_add(of(c)));
    let probe_with = |of: fn(&Counts) -> u64| last.counts.iter().find(|c| of(c) > 0).map_or("", |c| c.probe.as_str());
    let mut lost = Vec::new();
    let mut report = |of: fn(&Counts) -> u64, what: &str| {
        if sum(of) > 0 {
            lost.push(format!("{} {what} ({})", sum(of), probe_with(of)));
        }
    };
    report(|c| c.missed, "runs of probes were skipped");
    report(|c| c.refused, "updates failed because maps were full");
    report(|c| c.unstored, "updates failed for lack of memory");
    report(|c| c.thinned, "runs of probes were dropped to keep a limit");
    report(|c| c.sampled_out, "runs of probes were left out to keep a limit, and others counted for them");
    report(|c| c.detached, "times probes were detached to keep a limit");
    report(|c| c.unkept, "stacks were not stored");
    let emptied = |(view, times): (&crate::value::MapView, &u64)| *times > 0 && maps(root).iter().any(|of| of.map == view.name);
    if last.maps.iter().zip(&last.emptied).any(emptied) {
        report(|c| c.dropped, "events were lost");
    }
    if !last.not_attached.is_empty() {
        lost.push(format!("not attached: {}", last.not_attached.join(", ")));
    }
    if last.omitted > 0 {
        lost.push(plural(last.omitted, "input is not merged", "inputs are not merged"));
    }
    lost
}

/// All maps and elements in it, in the order of the text.
fn maps(e: &Expr) -> Vec<&MapRef> {
    match &e.kind {
        Kind::Constant(_) => Vec::new(),
        Kind::Read(of) | Kind::Call { map: of, .. } => vec![of],
        Kind::Negate(a) | Kind::Not(a) => maps(a),
        Kind::Math(_, a, b) | Kind::Compare(_, a, b) | Kind::And(a, b) | Kind::Or(a, b) => [maps(a), maps(b)].concat(),
    }
}

/// The messages of one run.
struct Findings<'a> {
    last: &'a FinalResults,
    /// Formats keys.
    names: TextFormatter,
}

impl Findings<'_> {
    fn measured(&self, e: &Expr) -> Result<Val, NoValue> {
        Eval { last: self.last, lossy: false }.eval(e)
    }

    /// A value in the form for messages.
    fn value(&self, e: &Expr, time: bool) -> String {
        match self.measured(e) {
            Ok(Val::Number(range)) => number(range, time),
            Ok(Val::Text(Some(text))) => format!("\"{}\"", String::from_utf8_lossy(&text).escape_debug()),
            Ok(Val::Truth(Some(truth))) => truth.to_string(),
            Ok(Val::Text(None) | Val::Truth(None)) => "unknown".into(),
            Err(stop) => format!("without value: {}", stop.why),
        }
    }

    /// The values of the maps in it, as (as written, value).
    fn facts(&self, root: &Expr) -> Vec<(String, String)> {
        let mut facts = Vec::new();
        self.gather(root, has_time(root), &mut facts);
        facts
    }

    fn gather(&self, e: &Expr, time: bool, facts: &mut Vec<(String, String)>) {
        match &e.kind {
            Kind::Constant(_) => {}
            Kind::Read(_) | Kind::Call { .. } => {
                let fact = (e.text.clone(), self.value(e, time));
                if !facts.contains(&fact) {
                    facts.push(fact);
                }
            }
            Kind::Negate(a) | Kind::Not(a) => self.gather(a, time, facts),
            Kind::Compare(_, a, b) => {
                let time = has_time(e);
                self.gather(a, time, facts);
                self.gather(b, time, facts);
            }
            Kind::Math(_, a, b) | Kind::And(a, b) | Kind::Or(a, b) => {
                self.gather(a, time, facts);
                self.gather(b, time, facts);
            }
        }
    }

    /// Finds the parts that do not hold.
    fn find_unmet(&self, e: &Expr, lossy: bool, to: &mut Vec<String>) {
        let holds = |e: &Expr| Eval { last: self.last, lossy }.eval(e).is_ok_and(|v| v.truth() == Some(true));
        match &e.kind {
            Kind::And(a, b) | Kind::Or(a, b) => {
                for side in [a, b] {
                    if !holds(side) {
                        self.find_unmet(side, lossy, to);
                    }
                }
            }
            Kind::Compare(op, a, b) => to.push(self.comparison(e, *op, a, b)),
            Kind::Call { function: _, map: of, rest } => to.push(self.keys(e, of, rest)),
            Kind::Not(inner) => to.push(format!("`{}` is {}", inner.text, self.value(inner, has_time(inner)))),
            Kind::Constant(_) | Kind::Read(_) | Kind::Negate(_) | Kind::Math(..) => {
                to.push(format!("`{}` is {}", e.text, self.value(e, false)))
            }
        }
    }

    fn comparison(&self, e: &Expr, op: BinOp, a: &Expr, b: &Expr) -> String {
        let time = has_time(e);
        let constant = |e: &Expr| maps(e).is_empty();
        let (a, b, op) = match (constant(a), swapped(op)) {
            (true, Some(op)) if !constant(b) => (b, a, op),
            _ => (a, b, op),
        };
        let bound = if constant(b) { b.text.clone() } else { format!("{}, which is {}", b.text, self.value(b, time)) };
        format!("`{}` is {}, expected {} {bound}", a.text, self.value(a, time), op.symbol())
    }

    /// The message about a function of a map's keys.
    fn keys(&self, e: &Expr, of: &MapRef, wanted: &[Constant]) -> String {
        let view = self.last.maps.iter().find(|v| v.name == of.map);
        let unexpected: Vec<String> = view
            .map(|view| elements(view, of))
            .unwrap_or_default()
            .iter()
            .filter(|e| !wanted.iter().any(|key| key.is(e.key)))
            .map(|e| self.names.format(e.key))
            .collect();
        let listed = match unexpected.len() {
            0 => "but it has no keys".to_string(),
            n if n > MAX_ELEMENTS_SHOWN => {
                format!("{} has {} and {} more", of.map, unexpected[..MAX_ELEMENTS_SHOWN].join(", "), n - MAX_ELEMENTS_SHOWN)
            }
            _ => format!("{} has {}", of.map, unexpected.join(", ")),
        };
        format!("`{}` is false: {listed}", e.text)
    }

    /// The greatest elements of the maps that an expectation uses as a whole.
    fn greatest_elements(&self, root: &Expr) -> Vec<(String, String)> {
        let mut facts = Vec::new();
        for of in maps(root).into_iter().filter(|of| of.key.is_none()) {
            let Some(view) = self.last.maps.iter().find(|v| v.name == of.map && v.keyed) else { continue };
            let mut all: Vec<(Option<i128>, String)> = elements(view, of)
                .iter()
                .map(|e| match e.shown() {
                    Some(n) => (Some(n), format!("[{}] = {n}", self.names.format(e.key))),
                    None => (None, format!("[{}]", self.names.format(e.key))),
                })
                .collect();
            all.sort_by(|(a, x), (b, y)| b.cmp(a).then_with(|| x.cmp(y)));
            let more = all.len().saturating_sub(MAX_ELEMENTS_SHOWN);
            let mut shown: Vec<String> = all.into_iter().take(MAX_ELEMENTS_SHOWN).map(|(_, text)| text).collect();
            if more > 0 {
                shown.push(format!("and {more} more"));
            }
            if !shown.is_empty() && !facts.iter().any(|(name, _): &(String, String)| *name == of.map) {
                facts.push((of.map.clone(), shown.join(", ")));
            }
        }
        facts
    }
}

/// The same comparison with its sides swapped.
fn swapped(op: BinOp) -> Option<BinOp> {
    match op {
        BinOp::Lt => Some(BinOp::Gt),
        BinOp::Gt => Some(BinOp::Lt),
        BinOp::Le => Some(BinOp::Ge),
        BinOp::Ge => Some(BinOp::Le),
        BinOp::Eq | BinOp::Ne => Some(op),
        BinOp::Mul
        | BinOp::Div
        | BinOp::Mod
        | BinOp::Add
        | BinOp::Sub
        | BinOp::Shl
        | BinOp::Shr
        | BinOp::BitAnd
        | BinOp::BitXor
        | BinOp::BitOr
        | BinOp::And
        | BinOp::Or => None,
    }
}

/// Does it contain a duration (`5ms`)? Then all its numbers are durations. A number's only other letters are `u`, `l`,
/// those of hexadecimal digits and of an exponent.
fn has_time(e: &Expr) -> bool {
    match &e.kind {
        Kind::Constant(Constant::Number(_)) => {
            e.ty == Ty::Number
                && e.text.ends_with(['s', 'm', 'h', 'd'])
                && e.text.starts_with(|c: char| c.is_ascii_digit())
                && !e.text.starts_with("0x")
        }
        Kind::Constant(_) | Kind::Read(_) | Kind::Call { .. } => false,
        Kind::Negate(a) | Kind::Not(a) => has_time(a),
        Kind::Math(_, a, b) | Kind::Compare(_, a, b) | Kind::And(a, b) | Kind::Or(a, b) => has_time(a) || has_time(b),
    }
}

fn number(range: Range, time: bool) -> String {
    match (range.min, range.max) {
        (Some(a), Some(b)) if time && a == b => format!("{} ({a})", render::duration(a)),
        (Some(a), Some(b)) if time => format!("{} to {}", render::duration(a), render::duration(b)),
        (Some(a), None) if time => format!("{} or more", render::duration(a)),
        (_, _) => range.to_string(),
    }
}
