//! Combines many rows into one script, because a tracer starts slowly, and splits the results.

use super::made_up_values::{DECLARATIONS, MACROS};
use super::row::{Kind, Row};
use super::run::{Said, Tracers};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The result of a row.
pub enum Verdict {
    Equal,
    BothRefuse,
    OneRefuses(String),
    Differs(String),
}

/// The number of times that a differing row is tried again.
const AGAIN: usize = 2;

/// The number of rows in one script.
const ROWS: usize = 40;

/// Divides the rows into batches. Rows that cannot be combined are in separate batches.
pub fn batches(rows: Vec<Row>) -> Vec<Vec<Row>> {
    let (alone, together): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(Row::alone);
    let together = together.chunks(ROWS).map(<[Row]>::to_vec);
    alone.into_iter().map(|r| vec![r]).chain(together).collect()
}

pub fn compare(tracers: &Tracers, rows: &[Row]) -> Vec<(Row, Verdict)> {
    match rows {
        [] => Vec::new(),
        [one] => vec![(one.clone(), patiently(tracers, one))],
        many => match together(tracers, many) {
            Together::All(verdicts) => many.iter().cloned().zip(verdicts).collect(),
            // Compares each row with errors separately, and the others together.
            Together::Without(bad) if !bad.is_empty() && bad.len() < many.len() => {
                let (bad, good): (Vec<_>, Vec<_>) = many.iter().cloned().enumerate().partition(|(i, _)| bad.contains(i));
                let (bad, good): (Vec<Row>, Vec<Row>) =
                    (bad.into_iter().map(|(_, r)| r).collect(), good.into_iter().map(|(_, r)| r).collect());
                let mut out = compare(tracers, &good);
                out.extend(bad.iter().map(|r| (r.clone(), patiently(tracers, r))));
                out
            }
            Together::Without(_) => {
                let (a, b) = many.split_at(many.len() / 2);
                let mut out = compare(tracers, a);
                out.extend(compare(tracers, b));
                out
            }
        },
    }
}

enum Together {
    All(Vec<Verdict>),
    /// The rows cannot be one script. The field has the rows that are known to have errors.
    Without(Vec<usize>),
}

fn together(tracers: &Tracers, rows: &[Row]) -> Together {
    let mut text = begin(rows);
    text.push('\n');
    // Each row has its own probe, because the maps and the stack of one probe are limited.
    for (i, row) in rows.iter().enumerate() {
        let statements = row.text.replace('\n', " ").replace("@_", &format!("@m{i}_"));
        let _ = writeln!(text, "begin {{ printf(\"#{i}#\\n\"); {statements} }}");
    }
    let mut found: Vec<Option<String>> = vec![None; rows.len()];
    for json in [false, true] {
        let (theirs, ours) = (tracers.theirs(&rows[0], &text, json), tracers.ours(&rows[0], &text, json));
        for said in [&theirs, &ours] {
            if said.status != 0 {
                return Together::Without(complained(&said.err, rows.len()));
            }
        }
        let (theirs, ours) = (parts(&theirs.out), parts(&ours.out));
        for (i, found) in found.iter_mut().enumerate() {
            let (a, b) = (theirs.get(&i), ours.get(&i));
            if a != b && found.is_none() {
                *found = Some(difference(a.map_or("", String::as_str), b.map_or("", String::as_str)));
            }
        }
    }
    Together::All(found.into_iter().map(|f| f.map_or(Verdict::Equal, Verdict::Differs)).collect())
}

/// The text before `begin` on the same line.
fn begin(rows: &[Row]) -> String {
    if rows.iter().any(|r| r.own_maps) { format!("{DECLARATIONS} config = {{ print_maps_on_exit = 0 }} {MACROS}") } else { String::new() }
}

/// Returns the rows with errors. Each line of the script except the first is a row.
fn complained(err: &str, rows: usize) -> Vec<usize> {
    let mut out = Vec::new();
    for line in err.lines() {
        // bpftrace reports `stdin:5:30-33: ERROR`, and rbt reports `  --> cmd:5:30`.
        let place = line.split_once(": ERROR:").map(|(p, _)| p).or_else(|| line.trim_start().strip_prefix("--> "));
        let number = place.and_then(|p| p.split(':').nth(1)?.split('-').next()?.parse::<usize>().ok());
        let Some(row) = number.and_then(|n| n.checked_sub(2)) else { continue };
        if row < rows && !out.contains(&row) {
            out.push(row);
        }
    }
    out
}

/// Splits the output into rows by their marks. The output before the first mark is at `usize::MAX`.
fn parts(out: &str) -> BTreeMap<usize, String> {
    let (mut parts, mut at) = (BTreeMap::<usize, String>::new(), usize::MAX);
    for line in out.split_inclusive('\n') {
        let mark = line.split('#').nth(1).and_then(|n| n.parse().ok());
        match mark {
            Some(n) => at = n,
            None => parts.entry(at).or_default().push_str(line),
        }
    }
    parts
}

/// Compares a row again if an unexpected difference may be accidental. bpftrace does not find kernel types if the types of
/// another program are removed while it starts, and it does not find the names of a process that has ended.
fn patiently(tracers: &Tracers, row: &Row) -> Verdict {
    let mut verdict = single(tracers, row);
    for _ in 0..AGAIN {
        if row.differs.is_some() || matches!(verdict, Verdict::Equal | Verdict::BothRefuse) {
            break;
        }
        for json in formats(row) {
            tracers.forget(row, &whole(row), *json);
        }
        verdict = single(tracers, row);
    }
    verdict
}

fn single(tracers: &Tracers, row: &Row) -> Verdict {
    let text = whole(row);
    for json in formats(row) {
        let (theirs, ours) = (tracers.theirs(row, &text, *json), tracers.ours(row, &text, *json));
        let refused = |s: &Said| s.status != 0 && s.out.is_empty() && errors(&s.err).to_lowercase().contains("error");
        match (refused(&theirs), refused(&ours)) {
            (true, true) if theirs.status == ours.status => return Verdict::BothRefuse,
            (true, true) => {
                return Verdict::Differs(format!("status {} of bpftrace, {} of rbt\n{}", theirs.status, ours.status, errors(&theirs.err)));
            }
            (true, false) => return Verdict::OneRefuses(format!("rejected by bpftrace\n{}\nrbt: {:?}", errors(&theirs.err), ours.out)),
            (false, true) => return Verdict::OneRefuses(format!("rejected by rbt\n{}\nbpftrace: {:?}", ours.err, theirs.out)),
            (false, false) => {}
        }
        let (a, b) = (shown(row, &theirs.out), shown(row, &ours.out));
        if a != b {
            return Verdict::Differs(difference(&a, &b));
        }
        if theirs.status != ours.status {
            return Verdict::Differs(format!(
                "status {} of bpftrace, {} of rbt\n{}\n{}",
                theirs.status,
                ours.status,
                errors(&theirs.err),
                ours.err
            ));
        }
    }
    Verdict::Equal
}

/// The script of a row that is compared alone.
fn whole(row: &Row) -> String {
    match row.kind {
        Kind::Statements => format!("{}begin {{ {} }}", begin(std::slice::from_ref(row)), row.text),
        Kind::Script | Kind::Shell => row.text.clone(),
    }
}

/// The runs of a row. Each value says whether the run uses JSON.
fn formats(row: &Row) -> &'static [bool] {
    if row.json && row.kind != Kind::Shell { &[false, true] } else { &[false] }
}

/// Removes the messages that every run prints at its start.
fn errors(err: &str) -> String {
    err.lines()
        .filter(|l| !l.starts_with("WARNING: Could not read functions") && !l.contains("RLIMIT_MEMLOCK"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn shown(row: &Row, out: &str) -> String {
    let mut text = out.to_string();
    for mask in &row.masks {
        text = mask.replace_all(&text, "*").into_owned();
    }
    if row.sorted {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        text = lines.join("\n");
    }
    text
}

/// Lists the lines that only one of the outputs contains.
fn difference(theirs: &str, ours: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (theirs.lines().collect(), ours.lines().collect());
    let same = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let some = |lines: &[&str]| lines.iter().skip(same).take(12).map(|l| (*l).to_string()).collect::<Vec<_>>().join("\n    ");
    format!("differs from line {}\n  bpftrace:\n    {}\n  rbt:\n    {}", same + 1, some(&a), some(&b))
}
