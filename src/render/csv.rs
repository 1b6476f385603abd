//! `-f csv`: one table, a row per number: entries of maps, fields of statistics, buckets, points of series; and a row per span and per text.
//!
//! Columns are the same for all rows, so that databases and spreadsheets read them. Control characters are escaped, and text
//! cannot be a formula.

use std::io;

use csv::Writer;

use super::order::{divide, sort_entries};
use super::stack_keys::{shown, visible};
use super::{PART, RenderOptions, Rendered, Renderer, WritePart, hist, span, utc, value_text};
use crate::output::Output;
use crate::timeline::{Phase, Span};
use crate::value::{Counts, MapView, Scale, Value, Weights};

/// Creates the renderer.
pub fn make(options: &RenderOptions) -> Box<dyn Renderer> {
    Box::new(Csv { warnings: options.warnings, keys: options.key_parts.max(1), begun: false })
}

struct Csv {
    warnings: bool,
    /// Columns of keys.
    keys: usize,
    begun: bool,
}

/// The number of entries of a map after which a part of its text may be written.
const ENTRIES: usize = 256;

/// A row without its type, its name and its key.
#[derive(Default)]
struct Row {
    /// Start of an interval, nanoseconds since 1970.
    time: Option<i128>,
    field: String,
    from: Option<i128>,
    to: Option<i128>,
    value: String,
    text: String,
}

impl Row {
    fn text(text: String) -> Self {
        Self { text, ..Self::default() }
    }

    fn number(field: &str, n: u64) -> Self {
        Self { field: field.into(), value: n.to_string(), ..Self::default() }
    }
}

impl Renderer for Csv {
    fn render(&mut self, output: &Output, to: &mut Rendered) {
        self.render_in_parts(output, to, &mut |_| true);
    }

    fn render_in_parts(&mut self, output: &Output, to: &mut Rendered, write: &mut WritePart<'_>) {
        // writing to a vector does not fail
        let _ = self.append(output, &mut to.out, write);
    }
}

impl Csv {
    fn append(&mut self, output: &Output, to: &mut Vec<u8>, write: &mut WritePart<'_>) -> io::Result<()> {
        let mut table = Writer::from_writer(&mut *to);
        if !self.begun {
            self.begun = true;
            let keys = (1..=self.keys).map(|n| if n == 1 { "key".into() } else { format!("key{n}") });
            let columns = ["type", "name"].map(String::from).into_iter().chain(keys);
            table.write_record(columns.chain(["time", "field", "from", "to", "value", "text"].map(String::from)))?;
        }
        match output {
            Output::Text { kind, data, newline: _ } => {
                let text = String::from_utf8_lossy(data);
                self.row(&mut table, [kind, ""], &[], Row::text(visible(text.strip_suffix('\n').unwrap_or(&text))))?;
            }
            Output::Value(value) => self.values(&mut table, ["value", ""], &[], value)?,
            Output::Map(view) => {
                table.flush()?;
                drop(table);
                return self.map(view, to, write);
            }
            Output::Problem { kind, .. } if !self.warnings && kind.is_warning() => {}
            Output::Problem { kind, msg, .. } => self.row(&mut table, [kind.name(), ""], &[], Row::text(visible(msg)))?,
            Output::Attached { probes } => self.row(&mut table, ["attached_probes", ""], &[], Row::number("", *probes))?,
            Output::Lost { events } => self.row(&mut table, ["lost_events", ""], &[], Row::number("", *events))?,
            Output::Counts(counts) => counts.iter().try_for_each(|of| self.counts(&mut table, of))?,
            Output::Span(span) => self.span(&mut table, span)?,
            Output::Limited(_) | Output::End | Output::State(_) | Output::Test(_) => {}
        }
        table.flush()
    }

    /// A span that has ended, or is open: its track is the key, and its values are text.
    fn span(&self, table: &mut Writer<&mut Vec<u8>>, span: &Span) -> io::Result<()> {
        if span.phase == Phase::Begin {
            return Ok(());
        }
        let field = if span.phase.is_open() { "open_ns" } else { "duration_ns" };
        let row = Row {
            time: Some(span.start_ns),
            field: field.into(),
            value: (span.end_ns - span.start_ns).to_string(),
            text: span::values(span),
            ..Row::default()
        };
        self.row(table, ["span", &no_formula(String::from_utf8_lossy(&span.name).into_owned())], &[no_formula(span::track(span))], row)
    }

    fn counts(&self, table: &mut Writer<&mut Vec<u8>>, counts: &Counts) -> io::Result<()> {
        counts.numbers().into_iter().try_for_each(|(field, n)| self.row(table, ["probe_counts", &counts.probe], &[], Row::number(field, n)))
    }

    fn map(&self, view: &MapView, to: &mut Vec<u8>, write: &mut WritePart<'_>) -> io::Result<()> {
        // the values are estimates
        if let Some(Weights { passed, runs, detached_ms }) = view.weights {
            let mut table = Writer::from_writer(&mut *to);
            for (field, n) in [("passed", passed), ("runs", runs), ("detached_ms", detached_ms)] {
                self.row(&mut table, ["sampled", &view.name], &[], Row::number(field, n))?;
            }
            table.flush()?;
        }
        for entries in sort_entries(view).chunks(ENTRIES) {
            let mut table = Writer::from_writer(&mut *to);
            for (key, value) in entries.iter().copied() {
                let parts = if let Value::Tuple(parts) = key { parts.as_slice() } else { std::slice::from_ref(key) };
                let key: Vec<String> = if view.keyed { parts.iter().map(cell).collect() } else { Vec::new() };
                let div = view.show.div;
                if let Value::Hist(_) = value {
                    self.values(&mut table, [view.kind.name(), &view.name], &key, value)?;
                } else {
                    self.values(&mut table, [view.kind.name(), &view.name], &key, &divide(value, div))?;
                }
            }
            table.flush()?;
            drop(table);
            if to.len() >= PART && !write(to) {
                break;
            }
        }
        Ok(())
    }

    /// The rows of a value.
    fn values(&self, table: &mut Writer<&mut Vec<u8>>, labels: [&str; 2], key: &[String], value: &Value) -> io::Result<()> {
        if let Value::Hist(h) = value {
            return self.buckets(table, labels, key, None, h.scale, &h.counts);
        }
        if let Value::HeatMap(h) = value {
            return h.columns.iter().try_for_each(|(at, counts)| self.buckets(table, labels, key, Some(*at), h.scale, counts));
        }
        if let Value::Series(s) = value {
            return s.buckets.iter().try_for_each(|(at, value)| self.row(table, labels, key, Row { time: Some(*at), ..plain(value) }));
        }
        if let Some(fields) = value.fields() {
            return fields.iter().try_for_each(|(name, value)| self.row(table, labels, key, Row { field: (*name).into(), ..plain(value) }));
        }
        if let Value::Record(fields) = value {
            return fields
                .iter()
                .try_for_each(|(name, value)| self.row(table, labels, key, Row { field: no_formula(visible(name)), ..plain(value) }));
        }
        self.row(table, labels, key, plain(value))
    }

    fn buckets(
        &self,
        table: &mut Writer<&mut Vec<u8>>,
        labels: [&str; 2],
        key: &[String],
        time: Option<i128>,
        scale: Scale,
        counts: &[u64],
    ) -> io::Result<()> {
        for (at, n) in (0u64..).zip(counts).filter(|(_, n)| **n > 0) {
            let bounds = hist::bounds(scale, at);
            self.row(table, labels, key, Row { time, from: bounds.min, to: bounds.max, ..Row::number("", *n) })?;
        }
        Ok(())
    }

    fn row(&self, table: &mut Writer<&mut Vec<u8>>, labels: [&str; 2], key: &[String], row: Row) -> io::Result<()> {
        let number = |n: Option<i128>| n.map(|n| n.to_string()).unwrap_or_default();
        table.write_field(labels[0])?;
        table.write_field(visible(labels[1]))?;
        for at in 0..self.keys {
            table.write_field(key.get(at).map(String::as_str).unwrap_or_default())?;
        }
        let time = row.time.map(utc).unwrap_or_default();
        table.write_record([time, row.field, number(row.from), number(row.to), row.value, no_formula(row.text)])?;
        Ok(())
    }
}

/// A number, or a text.
fn plain(value: &Value) -> Row {
    let number = if let Value::Float { value, single } = value {
        Some(value_text::float(*value, *single))
    } else if let Value::Avg(s) = value {
        s.average().number().map(|n| n.to_string())
    } else {
        value.number().map(|n| n.to_string())
    };
    match number {
        Some(value) => Row { value, ..Row::default() },
        None => Row::text(lines(value)),
    }
}

/// A part of a key.
fn cell(value: &Value) -> String {
    no_formula(lines(value))
}

/// The start of a formula in spreadsheets, and the mark of text.
const FORMULA: &[char] = &['=', '+', '-', '@', QUOTE];
const QUOTE: char = '\'';

/// Text that a spreadsheet does not run as a formula: a quote precedes it, as OWASP recommends. Numbers stay. Text that begins
/// with a quote gets another, so that readers can remove one.
fn no_formula(text: String) -> String {
    if text.starts_with(FORMULA) && text.parse::<f64>().is_err() { format!("{QUOTE}{text}") } else { text }
}

/// A value as text in a line.
fn lines(value: &Value) -> String {
    let text = shown(value);
    // the lines of a stack
    text.trim().lines().map(str::trim).collect::<Vec<_>>().join(";")
}
