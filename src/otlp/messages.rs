//! The messages of OTLP: opentelemetry/proto/{common,resource,metrics,logs}/v1 of opentelemetry-proto 1.5.

use std::collections::BTreeMap;

use crate::diag::plural;
use crate::metrics::{Family, Kind, Point, Series, scaled};
use crate::output::{Output, ProblemKind, Source};
use crate::protobuf::{Field, Message, fields, is_message};
use crate::render::TextFormatter;
use crate::system::machine::container::{self, Container};
use crate::value::Value;

/// The size of the data points in a request, in bytes, at which another request is started; collectors accept 20 MiB.
const REQUEST: usize = 2 << 20;

/// The size of the key and the length of a field, in bytes, and of those around it: an estimate.
const LENGTHS: usize = 16;
/// The size of a log record or a span, in bytes, for which memory is reserved.
pub const RECORD: usize = 256;

const CUMULATIVE: u64 = 2;
const DELTA: u64 = 1;

/// `SeverityNumber`
const INFO: (u64, &str) = (9, "INFO");
const WARN: (u64, &str) = (13, "WARN");
const ERROR: (u64, &str) = (17, "ERROR");

/// Identifies a series: the metric, and the values of its labels.
pub type Key = (String, Vec<String>, bool);

/// A request for metrics.
pub struct Request {
    /// `ExportMetricsServiceRequest`
    pub body: Vec<u8>,
    /// The points that the collector acknowledges with it, for differences.
    pub sent: Vec<(Key, Point)>,
}

/// The common start of all messages of a run.
pub struct Heading {
    /// `Resource`
    pub resource: Vec<u8>,
    /// `InstrumentationScope`
    pub scope: Vec<u8>,
}

/// The times of data points, in nanoseconds since 1970.
pub struct Times<'a> {
    /// When counting began.
    pub start: u64,
    /// When it began for these series, if they began later or earlier.
    pub series: &'a BTreeMap<Key, u64>,
    /// The current time.
    pub now: u64,
}

impl Heading {
    /// Creates the heading with these attributes.
    pub fn new(resource: &[(String, Value)], scope: &[(String, Value)]) -> Self {
        let mut of = Message::default();
        attributes(&mut of, 1, resource.iter().map(|(name, value)| (name.as_str(), value)));
        let mut by = Message::default();
        by.bytes(1, b"rbt");
        by.bytes(2, crate::VERSION.as_bytes());
        attributes(&mut by, 3, scope.iter().map(|(name, value)| (name.as_str(), value)));
        Self { resource: of.into_bytes(), scope: by.into_bytes() }
    }

    /// `ResourceMetrics`, `ResourceLogs` or `ResourceSpans`, which differ in their items, with about this many bytes of them.
    fn request(&self, size: usize, items: impl FnOnce(&mut Message)) -> Vec<u8> {
        let mut request = Message::with_capacity(size + self.resource.len() + self.scope.len() + LENGTHS);
        request.message(1, |m| {
            m.bytes(1, &self.resource);
            m.message(2, |m| {
                m.bytes(1, &self.scope);
                items(m);
            });
        });
        request.into_bytes()
    }

    /// A request with these items.
    fn complete(&self, items: &Message) -> Vec<u8> {
        self.request(items.written().len(), |to| {
            to.append(items.written());
        })
    }

    /// `ExportLogsServiceRequest` or `ExportTraceServiceRequest`
    pub fn records(&self, records: &[Vec<u8>]) -> Vec<u8> {
        let size = records.iter().map(|record| record.len() + LENGTHS).sum();
        self.request(size, |to| {
            for record in records {
                to.bytes(2, record);
            }
        })
    }

    /// Requests for all series; if `known` is given, for the differences since then.
    pub fn metrics(&self, families: &[Family], times: &Times, known: Option<&BTreeMap<Key, Point>>) -> Vec<Request> {
        let mut requests = Vec::new();
        let mut items = Message::default();
        let (mut size, mut sent) = (0, Vec::new());
        for family in families {
            let mut all = family.series.iter().peekable();
            while all.peek().is_some() {
                let mut data = Message::default();
                let mut room = 0;
                for series in all.by_ref() {
                    let Some(point) = added(family, series, known, &mut sent) else { continue };
                    let point = data_point(family, series, &point, times);
                    room += point.len();
                    data.bytes(1, &point);
                    if size + room > REQUEST {
                        break;
                    }
                }
                if room > 0 {
                    items.bytes(2, &metric(family, data, known.is_some()));
                    size += room;
                }
                if size > REQUEST {
                    let body = self.complete(&std::mem::take(&mut items));
                    requests.push(Request { body, sent: std::mem::take(&mut sent) });
                    size = 0;
                }
            }
        }
        if size > 0 {
            requests.push(Request { body: self.complete(&items), sent });
        }
        requests
    }
}

fn key(family: &Family, series: &Series) -> Key {
    (family.name.clone(), series.values.clone(), series.other)
}

/// The points of all series of sums.
pub fn sums(families: &[Family]) -> BTreeMap<Key, Point> {
    let sums = families.iter().filter(|family| family.kind != Kind::Gauge);
    sums.flat_map(|family| family.series.iter().map(move |series| (key(family, series), series.point.clone()))).collect()
}

/// The point of a series; none if nothing was added since the last time.
fn added(family: &Family, series: &Series, known: Option<&BTreeMap<Key, Point>>, sent: &mut Vec<(Key, Point)>) -> Option<Point> {
    let (Some(known), true) = (known, family.kind != Kind::Gauge) else { return Some(series.point.clone()) };
    let key = key(family, series);
    let point = match known.get(&key) {
        Some(before) => difference(&series.point, before),
        None => series.point.clone(),
    };
    sent.push((key, series.point.clone()));
    (point.value != 0 || point.count != 0).then_some(point)
}

fn difference(now: &Point, before: &Point) -> Point {
    // the value was reset
    if now.value < before.value || now.count < before.count {
        return now.clone();
    }
    let known = |bound: i128| before.buckets.iter().find(|(b, _)| *b == bound).map_or(0, |(_, n)| *n);
    Point {
        value: now.value - before.value,
        sum: now.sum.map(|sum| sum.saturating_sub(before.sum.unwrap_or(0))),
        count: now.count - before.count,
        buckets: now.buckets.iter().map(|(bound, n)| (*bound, n.saturating_sub(known(*bound)))).collect(),
        negative: now.negative,
    }
}

/// `Metric`
fn metric(family: &Family, mut data: Message, delta: bool) -> Vec<u8> {
    let temporality = if delta { DELTA } else { CUMULATIVE };
    let field = match family.kind {
        Kind::Gauge => 5,
        Kind::Counter => {
            data.uint(2, temporality);
            data.uint(3, 1);
            7
        }
        Kind::Histogram | Kind::Summary => {
            data.uint(2, temporality);
            9
        }
    };
    let mut metric = Message::default();
    metric.bytes(1, family.name.as_bytes());
    metric.bytes(2, family.help.as_bytes());
    // the units are UCUM's
    let unit = match family.unit {
        Some("seconds") => "s",
        Some("bytes") => "By",
        Some(_) | None => "",
    };
    metric.bytes(3, unit.as_bytes());
    metric.bytes(field, &data.into_bytes());
    metric.into_bytes()
}

/// `NumberDataPoint` or `HistogramDataPoint`
fn data_point(family: &Family, series: &Series, point: &Point, times: &Times) -> Vec<u8> {
    let mut to = Message::default();
    let labels = |field: u32, to: &mut Message| {
        for (name, value) in family.labels_of(series) {
            attribute(to, field, name, |to| to.bytes(1, value.as_bytes()));
        }
    };
    let start = times.series.get(&key(family, series)).copied().unwrap_or(times.start);
    // the clock may have been set back
    to.fixed(2, start).fixed(3, times.now.max(start));
    match family.kind {
        Kind::Counter | Kind::Gauge => {
            labels(7, &mut to);
            match i64::try_from(point.value) {
                Ok(n) if family.power == 0 => to.fixed(6, n as u64),
                Ok(_) | Err(_) => to.double(4, double(point.value, family.power)),
            };
        }
        Kind::Histogram | Kind::Summary => {
            labels(9, &mut to);
            to.fixed(4, point.count);
            // the sum of a histogram must be monotonic
            if let Some(sum) = point.sum.filter(|_| !point.negative) {
                to.double(5, double(sum, family.power));
            }
            let bounds: Vec<u64> = point
                .buckets
                .iter()
                .filter(|(bound, _)| *bound != i128::MAX)
                .map(|(bound, _)| double(*bound, family.power).to_bits())
                .collect();
            if bounds.is_empty() {
                // some receivers ignore a histogram without buckets
                to.packed_fixed(6, [point.count]);
            } else {
                let mut counts: Vec<u64> = point.buckets.iter().map(|(_, n)| *n).collect();
                counts.resize(bounds.len() + 1, 0);
                to.packed_fixed(6, counts).packed_fixed(7, bounds);
            }
        }
    }
    to.into_bytes()
}

/// The nearest floating-point number.
fn double(n: i128, power: u32) -> f64 {
    if power == 0 { n as f64 } else { scaled(n, power).parse().unwrap_or(n as f64) }
}

/// `KeyValue`
pub fn attribute(to: &mut Message, field: u32, name: &str, value: impl for<'m> FnOnce(&'m mut Message) -> &'m mut Message) {
    to.message(field, |to| {
        to.bytes(1, name.as_bytes());
        to.message(2, |to| {
            value(to);
        });
    });
}

fn attributes<'a>(to: &mut Message, field: u32, all: impl Iterator<Item = (&'a str, &'a Value)>) {
    let formatter = TextFormatter::default();
    all.for_each(|(name, value)| attribute(to, field, name, |to| any(value, &formatter, to)));
}

/// `AnyValue`
pub fn any<'m>(value: &Value, formatter: &TextFormatter, to: &'m mut Message) -> &'m mut Message {
    let integer = |to: &'m mut Message, n: i128| match i64::try_from(n) {
        Ok(n) => to.int(3, n),
        Err(_) => to.bytes(1, n.to_string().as_bytes()),
    };
    match value {
        Value::None => to,
        Value::Bool(b) => to.uint(2, u64::from(*b)),
        Value::Int(n) => integer(to, (*n).into()),
        Value::Uint(n) => integer(to, (*n).into()),
        Value::Enum { name: None, value } => integer(to, (*value).into()),
        Value::Float { value, .. } => to.double(4, *value),
        Value::Str { bytes, cut: false } => to.bytes(1, String::from_utf8_lossy(bytes).as_bytes()),
        Value::Bytes(bytes) => to.bytes(7, bytes),
        Value::List(parts) | Value::Tuple(parts) => to.message(5, |to| {
            for part in parts {
                to.message(1, |to| {
                    any(part, formatter, to);
                });
            }
        }),
        Value::Record(fields) => to.message(6, |to| {
            for (name, part) in fields {
                attribute(to, 1, name, |to| any(part, formatter, to));
            }
        }),
        Value::Str { .. }
        | Value::Enum { .. }
        | Value::Ptr(_)
        | Value::Text(_)
        | Value::Stack(_)
        | Value::Hist(_)
        | Value::Stats(_)
        | Value::Avg(_)
        | Value::Percentiles(_)
        | Value::Series(_)
        | Value::HeatMap(_) => to.bytes(1, formatter.format(value).as_bytes()),
    }
}

/// The attributes of a container, by the names of OpenTelemetry's semantic conventions; those that are unknown are left out.
pub fn container_attributes(of: Option<&Container>) -> Vec<(&'static str, String)> {
    let Some(of) = of else { return Vec::new() };
    let name = if of.pod.is_empty() { "container.name" } else { "k8s.container.name" };
    let all = [("container.id", &of.id), (name, &of.name), ("k8s.pod.name", &of.pod), ("k8s.namespace.name", &of.namespace)];
    all.into_iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| (name, value.clone())).collect()
}

/// The attributes of a record's or a span's origin.
pub fn origin(to: &mut Message, field: u32, source: &Source) {
    let mut text = |name: &str, value: &str| attribute(to, field, name, |to| to.bytes(1, value.as_bytes()));
    text("rbt.probe", &source.probe);
    text("thread.name", &source.comm);
    for (name, value) in container_attributes(container::container_of_cgroup(source.cgroup).as_ref()) {
        text(name, &value);
    }
    attribute(to, field, "process.pid", |to| to.uint(3, source.pid.into()));
    attribute(to, field, "thread.id", |to| to.uint(3, source.tid.into()));
}

/// `LogRecord`; none for output that is not a record.
pub fn log(output: &Output, source: Option<&Source>, now: u64) -> Option<Vec<u8>> {
    let mut to = Message::with_capacity(RECORD);
    let ((severity, word), kind) = match output {
        Output::Text { kind, .. } => (INFO, *kind),
        Output::Value(_) => (INFO, "value"),
        Output::Problem { kind: kind @ ProblemKind::Errorf, .. } => (ERROR, kind.name()),
        Output::Problem { kind, .. } => (WARN, kind.name()),
        Output::Lost { .. } => (WARN, "lost_events"),
        Output::Map(_)
        | Output::Span(_)
        | Output::Limited(_)
        | Output::Attached { .. }
        | Output::Counts(_)
        | Output::End
        | Output::State(_)
        | Output::Test(_) => return None,
    };
    to.fixed(1, source.map_or(now, |source| source.time_ns));
    to.fixed(11, now);
    to.uint(2, severity);
    to.bytes(3, word.as_bytes());
    let text = |to: &mut Message, name: &str, value: &str| attribute(to, 6, name, |to| to.bytes(1, value.as_bytes()));
    let number = |to: &mut Message, name: &str, value: u64| attribute(to, 6, name, |to| to.uint(3, value));
    match output {
        Output::Text { data, .. } => {
            let line = data.strip_suffix(b"\n").unwrap_or(data);
            to.message(5, |to| {
                to.bytes(1, String::from_utf8_lossy(line).as_bytes());
            });
        }
        Output::Value(value) => {
            let formatter = TextFormatter::default();
            to.message(5, |to| {
                any(value, &formatter, to);
            });
            if let Value::Record(fields) = value {
                fields.iter().for_each(|(name, part)| attribute(&mut to, 6, name, |to| any(part, &formatter, to)));
            }
        }
        Output::Problem { msg, pos, .. } => {
            to.message(5, |to| {
                to.bytes(1, msg.as_bytes());
            });
            text(&mut to, "code.file.path", &pos.file);
            number(&mut to, "code.line.number", pos.line.into());
        }
        Output::Lost { events } => {
            to.message(5, |to| {
                to.bytes(1, plural(*events, "event was lost", "events were lost").as_bytes());
            });
            number(&mut to, "rbt.lost_events", *events);
        }
        Output::Map(_)
        | Output::Span(_)
        | Output::Limited(_)
        | Output::Attached { .. }
        | Output::Counts(_)
        | Output::End
        | Output::State(_)
        | Output::Test(_) => {}
    }
    text(&mut to, "rbt.kind", kind);
    if let Some(source) = source {
        origin(&mut to, 6, source);
    }
    Some(to.into_bytes())
}

/// What a collector rejected of a request that it accepted: the number of items, and why
/// (`ExportMetricsServiceResponse`, `ExportLogsServiceResponse`, `ExportTraceServiceResponse`).
pub fn partial_success(response: &[u8]) -> Option<(u64, String)> {
    let (_, Field::Data(partial)) = fields(response).find(|(field, _)| *field == 1)? else { return None };
    let mut rejected = (0, String::new());
    for (field, value) in fields(partial) {
        match (field, value) {
            // a negative number counts nothing
            (1, Field::Number(n)) => rejected.0 = if n > i64::MAX as u64 { 0 } else { n },
            (2, Field::Data(why)) => rejected.1 = String::from_utf8_lossy(why).into_owned(),
            (_, _) => {}
        }
    }
    (rejected.0 > 0 || !rejected.1.is_empty()).then_some(rejected)
}

/// The message of a `google.rpc.Status`, which collectors send with an error.
pub fn status_message(response: &[u8]) -> Option<String> {
    if !is_message(response) {
        return None;
    }
    let message = fields(response).find_map(|field| if let (2, Field::Data(message)) = field { Some(message) } else { None })?;
    std::str::from_utf8(message).ok().map(str::trim).filter(|message| !message.is_empty()).map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_add_up() {
        let point = |value, count, n| Point { value, count, sum: Some(value), buckets: vec![(1, n), (3, count - n)], negative: false };
        let (a, b) = (point(5, 3, 1), point(9, 7, 2));
        assert_eq!(difference(&b, &a), point(4, 4, 1));
        assert_eq!(difference(&a, &b), a);
    }

    #[test]
    fn parses_rejections() {
        assert_eq!(partial_success(b""), None);
        assert_eq!(partial_success(&[10, 0]), None);
        assert_eq!(partial_success(&[10, 6, 8, 3, 18, 2, b'n', b'o']), Some((3, "no".into())));
        // -5
        let negative = [10, 11, 8, 0xfb, 255, 255, 255, 255, 255, 255, 255, 255, 1];
        assert_eq!(partial_success(&negative), None);
        assert_eq!(status_message(&[8, 3, 18, 3, b'b', b'a', b'd']), Some("bad".into()));
        assert!(
            [&b"<html>"[..], b"", &[8, 3], &[18, 1, 255], b"{\"message\":\"bad\"}"].into_iter().all(|body| status_message(body).is_none())
        );
    }
}
