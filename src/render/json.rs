//! `-f json`: one object per line, on standard output or in the output file only.
//!
//! Strings are JSON and therefore Unicode: U+FFFD replaces bytes that are not UTF-8. (A buffer is an array of numbers and keeps
//! every byte.) A number that a double cannot represent exactly is a string; a pointer remains a number.

use crate::failure::strerror;
use crate::host::Reader;
use crate::output::{Limited, Output, ProblemKind, Step, TestEvent};
use crate::terminal::escape::is_deceptive;
use crate::timeline::{Phase, Span, Track};
use crate::value::{Counts, Hist, MapView, MapViewKind, Value};

use super::integers::{decimal, signed};
use super::order::{divide, sort_entries};
use super::style::Style;
use super::value_text::{self, Keys};
use super::{PART, RenderOptions, Rendered, Renderer, WritePart, hist, is_nothing, series, stack};

/// Creates the renderer.
pub fn make(options: &RenderOptions) -> Box<dyn Renderer> {
    Box::new(JsonRenderer { options: options.clone() })
}

struct JsonRenderer {
    options: RenderOptions,
}

impl Renderer for JsonRenderer {
    fn render(&mut self, output: &Output, rendered: &mut Rendered) {
        self.render_in_parts(output, rendered, &mut |_| true);
    }

    fn render_in_parts(&mut self, output: &Output, rendered: &mut Rendered, write: &mut WritePart<'_>) {
        let (before, mut is_begun) = (rendered.out.len(), false);
        self.object(output, rendered, &mut |out| {
            is_begun = true;
            write(out)
        });
        if let Some(script) = self.options.script.as_ref().filter(|_| is_begun || rendered.out.len() > before)
            && rendered.out.ends_with(b"}\n")
        {
            rendered.out.truncate(rendered.out.len() - 2);
            field("script", &mut rendered.out, |to| string(script.as_bytes(), to));
            rendered.out.extend_from_slice(b"}\n");
        }
    }

    fn text(&self, v: &Value, _: Reader, to: &mut Vec<u8>) {
        // Escaped as in JSON, when the whole text is printed.
        value_text::value(v, Style { trailer: self.options.trunc_trailer.as_bytes(), compact: false, visible: false }, to);
    }
}

impl JsonRenderer {
    /// A line, if the output has one.
    fn object(&self, output: &Output, rendered: &mut Rendered, write: &mut WritePart<'_>) {
        let trailer = self.options.trunc_trailer.as_bytes();
        let to = &mut rendered.out;
        match output {
            Output::Text { kind, data, newline: _ } => record(kind, to, |to| string(data, to)),
            Output::Value(v) => record("value", to, |to| value(v, trailer, to)),
            // statistics are printed even if they are empty
            Output::Map(view) if is_nothing(view) && view.kind != MapViewKind::Stats => {}
            Output::Map(view) => {
                open(view.kind.name(), to);
                let mut is_whole = true;
                field("data", to, |to| is_whole = map(view, trailer, to, write));
                if !is_whole {
                    return;
                }
                if let Some(weights) = view.weights {
                    field("sampled", to, |to| {
                        let numbers = [("passed", weights.passed), ("runs", weights.runs), ("detached_ms", weights.detached_ms)];
                        object(numbers.iter(), to, |n, to| decimal(to, *n));
                        to.pop();
                        field("factor", to, |to| to.extend_from_slice(format!("{:.3}}}", weights.factor()).as_bytes()));
                    });
                }
                to.extend_from_slice(b"}\n");
            }
            // as in bpftrace, the result of a file or a command is not part of the output
            Output::Problem { kind: ProblemKind::Command, .. } => super::text::make(&self.options).render(output, rendered),
            Output::Problem { kind, msg, helper, pos, line: _, counts } => {
                // as in bpftrace, which keeps these records where it drops the messages of the text
                if self.options.warnings || !kind.is_warning() || *kind == ProblemKind::Runtime {
                    open(kind.name(), to);
                    // for a failed helper, the C library's description of the error
                    let error = helper.as_ref().map(|(_, code)| strerror(i32::try_from(code.unsigned_abs()).unwrap_or(0)));
                    field("msg", to, |to| string(error.as_ref().unwrap_or(msg).as_bytes(), to));
                    if let Some((name, code)) = helper {
                        field("helper", to, |to| string(name.as_bytes(), to));
                        field("retcode", to, |to| signed(to, *code));
                    }
                    if !counts.is_empty() {
                        field("counts", to, |to| object(counts.iter(), to, |n, to| decimal(to, *n)));
                    }
                    field("filename", to, |to| string(pos.file.as_bytes(), to));
                    field("line", to, |to| decimal(to, pos.line.into()));
                    field("col", to, |to| decimal(to, pos.col.into()));
                    to.extend_from_slice(b"}\n");
                }
            }
            Output::Attached { probes } => counted("attached_probes", "probes", *probes, to),
            Output::Lost { events } => counted("lost_events", "events", *events, to),
            Output::Limited(limited) => self::limited(limited, to),
            Output::Counts(counts) => record("probe_counts", to, |to| array(counts, to, counts_of)),
            Output::End | Output::State(_) => {}
            Output::Span(span) if span.phase == Phase::Begin => {}
            Output::Span(span) => record("span", to, |to| write_span(span, trailer, to)),
            Output::Test(event) => test(event, to),
        }
    }
}

/// `{"type": KIND, "data": DATA}` and a newline.
fn record(kind: &str, to: &mut Vec<u8>, data: impl FnOnce(&mut Vec<u8>)) {
    open(kind, to);
    field("data", to, data);
    to.extend_from_slice(b"}\n");
}

/// A test that ended: by its name, its results.
fn test(event: &TestEvent, to: &mut Vec<u8>) {
    let mut named = |kind: &str, name: &str, fields: &dyn Fn(&mut Vec<u8>)| {
        record(kind, to, |to| object([(name, ())].iter(), to, |(), to| fields(to)));
    };
    match event {
        TestEvent::Tests { .. } | TestEvent::Started { .. } | TestEvent::Over { .. } | TestEvent::Benches { .. } => {}
        TestEvent::Tested { name, passed, took, output } => named("test_result", name, &|to| {
            to.extend_from_slice(format!("{{\"duration\": {}, \"passed\": {passed}", took.as_nanos()).as_bytes());
            field("output", to, |to| string(output, to));
            to.push(b'}');
        }),
        TestEvent::Benched { name, average, times, .. } => named("benchmark_result", name, &|to| {
            object([("average", *average), ("iters", *times)].iter(), to, |n, to| decimal(to, *n));
        }),
        TestEvent::BenchSkipped { name, .. } => named("benchmark_result", name, &|to| to.extend_from_slice(b"{\"skipped\": true}")),
        TestEvent::BenchFailed { name, output, .. } => named("benchmark_result", name, &|to| {
            to.extend_from_slice(b"{\"failed\": true");
            field("output", to, |to| string(output, to));
            to.push(b'}');
        }),
    }
}

fn write_span(span: &Span, trailer: &[u8], to: &mut Vec<u8>) {
    to.extend_from_slice(b"{\"name\": ");
    string(&span.name, to);
    field("start", to, |to| string(series::utc(span.start_ns).replace(' ', "T").as_bytes(), to));
    field("duration_ns", to, |to| number(span.end_ns - span.start_ns, to));
    if let Track::Thread(tid) | Track::BelowThread(tid, _) = &span.track {
        field("pid", to, |to| decimal(to, span.thread.pid.into()));
        field("tid", to, |to| decimal(to, (*tid).into()));
        field("comm", to, |to| string(&span.thread.comm, to));
    }
    if let Some(name) = span.track.name() {
        field("track", to, |to| string(&name, to));
    }
    field("depth", to, |to| decimal(to, span.depth as u64));
    field("open", to, |to| to.extend_from_slice(if span.phase.is_open() { b"true" } else { b"false" }));
    let values: Vec<(&str, &Value)> = span.values.iter().map(|(name, v)| (name.as_str(), v)).collect();
    field("values", to, |to| object(values.iter(), to, |v, to| value(v, trailer, to)));
    to.push(b'}');
}

fn limited(limited: &Limited, to: &mut Vec<u8>) {
    let (step, number) = match limited.step {
        Step::Sample { one_in } => ("sample", Some(("one_in", one_in))),
        Step::Detach { permanent: false } => ("detach", None),
        Step::Detach { permanent: true } | Step::DetachToo => ("detach for good", None),
        Step::Attach => ("attach", None),
        Step::StayDetached { .. } => ("stay detached", None),
        Step::Drop { max_events } => ("drop", Some(("max_events", max_events))),
        Step::Pass { max_events } => ("pass", Some(("max_events", max_events))),
    };
    open("limit", to);
    field("probe", to, |to| string(limited.probe.as_bytes(), to));
    field("step", to, |to| string(step.as_bytes(), to));
    if let Some((name, number)) = number {
        field(name, to, |to| decimal(to, number));
    }
    if matches!(limited.step, Step::Drop { .. } | Step::Pass { .. }) {
        return to.extend_from_slice(b"}\n");
    }
    field("cpu_percent", to, |to| to.extend_from_slice(format!("{:.3}", limited.share).as_bytes()));
    field("limit_percent", to, |to| to.extend_from_slice(format!("{:.3}", limited.limit).as_bytes()));
    to.extend_from_slice(b"}\n");
}

fn counts_of(counts: &Counts, to: &mut Vec<u8>) {
    to.extend_from_slice(b"{\"probe\": ");
    string(counts.probe.as_bytes(), to);
    for (name, n) in counts.numbers() {
        field(name, to, |to| decimal(to, n));
    }
    to.push(b'}');
}

fn counted(kind: &str, name: &str, n: u64, to: &mut Vec<u8>) {
    open(kind, to);
    field("count", to, |to| decimal(to, n));
    field("data", to, |to| object([(name, n)].iter(), to, |n, to| decimal(to, *n)));
    to.extend_from_slice(b"}\n");
}

fn open(kind: &str, to: &mut Vec<u8>) {
    to.extend_from_slice(b"{\"type\": ");
    string(kind.as_bytes(), to);
}

fn field(name: &str, to: &mut Vec<u8>, v: impl FnOnce(&mut Vec<u8>)) {
    to.extend_from_slice(b", ");
    string(name.as_bytes(), to);
    to.extend_from_slice(b": ");
    v(to);
}

/// `{"a": x, "b": y}`.
fn object<'a, T: 'a>(fields: impl Iterator<Item = &'a (&'a str, T)>, to: &mut Vec<u8>, v: impl Fn(&T, &mut Vec<u8>)) {
    to.push(b'{');
    for (i, (name, item)) in fields.enumerate() {
        if i > 0 {
            to.extend_from_slice(b", ");
        }
        string(name.as_bytes(), to);
        to.extend_from_slice(b": ");
        v(item, to);
    }
    to.push(b'}');
}

/// `[a,b]`.
fn array<T>(items: impl IntoIterator<Item = T>, to: &mut Vec<u8>, v: impl Fn(T, &mut Vec<u8>)) {
    to.push(b'[');
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            to.push(b',');
        }
        v(item, to);
    }
    to.push(b']');
}

/// `{"@name": V}` or `{"@name": {"key": V, …}}`, entries in the order of the text format. Returns false if the rest is not needed.
fn map(view: &MapView, trailer: &[u8], to: &mut Vec<u8>, write: &mut WritePart<'_>) -> bool {
    to.push(b'{');
    string(view.name.as_bytes(), to);
    to.extend_from_slice(b": ");
    let braces = view.keyed || view.entries.is_empty();
    if braces {
        to.push(b'{');
    }
    let mut keys = Keys::of(view, Style { trailer, compact: true, visible: false });
    let mut key = Vec::new();
    for (i, (k, v)) in sort_entries(view).into_iter().enumerate() {
        if i > 0 {
            to.extend_from_slice(b", ");
        }
        if view.keyed {
            key.clear();
            keys.key(k, &mut key);
            string(&key, to);
            to.extend_from_slice(b": ");
        }
        if let Value::Hist(h) = v {
            buckets(h, view.show.div.unwrap_or(1), to);
        } else {
            value(&divide(v, view.show.div), trailer, to);
        }
        if to.len() >= PART && !write(to) {
            return false;
        }
    }
    to.extend_from_slice(if braces { b"}}" } else { b"}" });
    true
}

fn value(v: &Value, trailer: &[u8], to: &mut Vec<u8>) {
    match v {
        Value::None => to.extend_from_slice(b"null"),
        Value::Bool(b) => to.extend_from_slice(if *b { b"true" } else { b"false" }),
        Value::Int(i) => number(i128::from(*i), to),
        Value::Uint(u) => number(i128::from(*u), to),
        Value::Float { value, single } if value.is_finite() => to.extend_from_slice(value_text::float(*value, *single).as_bytes()),
        // JSON lacks such numbers
        Value::Float { value, single } => string(value_text::float(*value, *single).as_bytes(), to),
        Value::Ptr(p) => decimal(to, *p),
        Value::Enum { name: _, value } => signed(to, *value),
        Value::Str { bytes, cut: false } => string(bytes, to),
        Value::Str { bytes, cut: true } => string(&[bytes, trailer].concat(), to),
        Value::Bytes(bytes) => array(bytes, to, |b, to| signed(to, i64::from(*b as i8))),
        Value::List(items) | Value::Tuple(items) => array(items, to, |item, to| value(item, trailer, to)),
        Value::Record(fields) => {
            let fields: Vec<(&str, &Value)> = fields.iter().map(|(name, v)| (name.as_str(), v)).collect();
            object(fields.iter(), to, |v, to| value(v, trailer, to));
        }
        Value::Text(text) => string(text.as_bytes(), to),
        Value::Stack(s) => {
            let mut text = Vec::new();
            stack::stack(s, Style { trailer, compact: false, visible: false }, &mut text);
            string(&text, to);
        }
        Value::Hist(h) => buckets(h, 1, to),
        Value::Stats(_) | Value::Percentiles(_) => {
            let fields = v.fields().unwrap_or_default();
            object(fields.iter(), to, |v, to| value(v, trailer, to));
        }
        Value::Series(s) => array(&s.buckets, to, |(start, v), to| {
            to.extend_from_slice(b"{\"interval_start\":");
            string(series::utc(*start).replace(' ', "T").as_bytes(), to);
            to.extend_from_slice(b",\"value\":");
            value(v, trailer, to);
            to.push(b'}');
        }),
        Value::HeatMap(h) => array(&h.columns, to, |(start, counts), to| {
            to.extend_from_slice(b"{\"interval_start\":");
            string(series::utc(*start).replace(' ', "T").as_bytes(), to);
            to.extend_from_slice(b",\"buckets\":");
            buckets(&Hist { scale: h.scale, counts: counts.clone() }, 1, to);
            to.push(b'}');
        }),
        Value::Avg(s) => value(&s.average(), trailer, to),
    }
}

/// An open end has no `min` or no `max`; `max` is inclusive.
fn buckets(h: &Hist, div: u64, to: &mut Vec<u8>) {
    array(hist::rows(h, div), to, |row, to| {
        let fields = [("min", row.min), ("max", row.max), ("count", Some(i128::from(row.count)))];
        let present: Vec<(&str, i128)> = fields.into_iter().filter_map(|(name, n)| Some((name, n?))).collect();
        object(present.iter(), to, |n, to| number(*n, to));
    });
}

/// A number if every reader of JSON, most of which use doubles, reads it exactly; otherwise a string.
fn number(n: i128, to: &mut Vec<u8>) {
    let exact = (n as f64) as i128 == n;
    let digits = n.to_string();
    if exact {
        to.extend_from_slice(digits.as_bytes());
    } else {
        string(digits.as_bytes(), to);
    }
}

fn string(bytes: &[u8], to: &mut Vec<u8>) {
    to.push(b'"');
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => to.extend_from_slice(b"\\\""),
                '\\' => to.extend_from_slice(b"\\\\"),
                '\n' => to.extend_from_slice(b"\\n"),
                '\r' => to.extend_from_slice(b"\\r"),
                '\t' => to.extend_from_slice(b"\\t"),
                // the same text for readers of JSON, and harmless on a terminal, as DEL is, which bpftrace leaves
                c if is_deceptive(c) && c != '\u{7f}' => to.extend_from_slice(format!("\\u{:04x}", u32::from(c)).as_bytes()),
                c => to.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !chunk.invalid().is_empty() {
            to.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    to.push(b'"');
}
