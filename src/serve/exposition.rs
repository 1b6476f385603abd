//! From a state to the text formats of Prometheus and OpenMetrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::names::Names;
use crate::builtins;
use crate::render::{self, Speller};
use crate::state::{Counted, Map, State};
use crate::types::Agg;
use crate::value::{Counts, Hist, Scale, Value};

/// Makes texts; remembers which series it has shown.
pub struct Exposition {
    names: Names,
    /// Series of a map at most; the others are one.
    most: usize,
    /// By map: the keys, as labels.
    known: BTreeMap<String, BTreeSet<String>>,
}

/// What a metric is to Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
    Summary,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Summary => "summary",
        }
    }
}

/// What a series shows.
#[derive(Clone, Debug, Default)]
struct Point {
    value: i128,
    sum: Option<i128>,
    count: u64,
    /// Upper bounds (inclusive) and how many are in the bucket.
    buckets: Vec<(i128, u64)>,
}

impl Point {
    /// Adds a series to those that are shown as one.
    fn add(&mut self, other: &Point) {
        self.value = self.value.saturating_add(other.value);
        self.sum = self.sum.or(Some(0)).zip(other.sum).map(|(a, b)| a.saturating_add(b));
        self.count = self.count.saturating_add(other.count);
        if self.buckets.is_empty() {
            self.buckets.clone_from(&other.buckets);
        } else {
            self.buckets.iter_mut().zip(&other.buckets).for_each(|(a, b)| a.1 = a.1.saturating_add(b.1));
        }
    }
}

impl Exposition {
    pub fn new(names: Names, most: u64) -> Self {
        Self { names, most: usize::try_from(most).unwrap_or(usize::MAX), known: BTreeMap::new() }
    }

    /// The text of a state; `open`: as OpenMetrics has it.
    pub fn text(&mut self, state: &State, open: bool) -> String {
        let mut to = String::new();
        let mut told: BTreeSet<String> = LOSSES.iter().map(|(name, ..)| *name).chain(OWN.iter().copied()).map(String::from).collect();
        let mut dropped = Vec::new();
        for map in &state.maps {
            if let Some((name, n)) = self.map(map, &state.script.name, open, &mut told, &mut to) {
                dropped.push((name, n));
            }
        }
        own(state, &dropped, open, &mut to);
        if open {
            to.push_str("# EOF\n");
        }
        to
    }

    /// Gives the map and how many series are not shown on their own.
    fn map(&mut self, map: &Map, script: &str, open: bool, told: &mut BTreeSet<String>, to: &mut String) -> Option<(String, u64)> {
        let kind = kind(map)?;
        let metric = self.names.metric(&map.name);
        // two maps may have names that are one to Prometheus
        let mut name = metric.name.clone();
        while !told.insert(name.clone()) {
            name.push_str("_map");
        }
        let help = metric.help.clone().unwrap_or_else(|| format!("Map {} of {script}.", map.name));
        let speller = Speller::default();
        let mut series: Vec<(String, Point)> = Vec::new();
        let mut other: Option<Point> = None;
        let (mut folded, known) = (0, self.known.entry(map.name.clone()).or_default());
        for entry in &map.entries {
            let Some(point) = point(map, kind, entry.value.as_ref(), entry.counted.as_ref()) else { continue };
            let labels = labels(&self.names, map, &entry.key, &speller);
            if known.contains(&labels) || known.len() < self.most {
                known.insert(labels.clone());
                series.push((labels, point));
            } else {
                folded += 1;
                other.get_or_insert_with(Point::default).add(&point);
            }
        }
        series.sort_by(|a, b| a.0.cmp(&b.0));
        // keys whose names are one are one series
        series.dedup_by(|b, a| {
            let same = a.0 == b.0;
            if same {
                a.1.add(&b.1);
            }
            same
        });
        series.extend(other.filter(|_| kind != Kind::Gauge).map(|point| ("other=\"true\"".to_string(), point)));
        if series.is_empty() {
            return None;
        }
        head(&name, kind, &help, metric.unit.map(|unit| unit.base), open, to);
        let power = metric.unit.map_or(0, |unit| unit.power);
        for (labels, point) in &series {
            sample(&name, kind, labels, point, power, to);
        }
        (folded > 0).then(|| (map.name.clone(), folded))
    }
}

/// What the values of a map are; none if they are no numbers.
fn kind(map: &Map) -> Option<Kind> {
    let Some(agg) = map.value.aggregation() else { return map.value.is_scalar().then_some(Kind::Gauge) };
    let (row, aggregate) = builtins::aggregate(&agg.function)?;
    match (aggregate.merge)(agg, &[]) {
        Value::Hist(_) | Value::Percentiles(_) => Some(Kind::Histogram),
        Value::Stats(_) | Value::Avg(_) => Some(Kind::Summary),
        Value::Int(_) | Value::Uint(_) => Some(match aggregate.more {
            builtins::Monotonicity::Raises if row.params.is_empty() => Kind::Counter,
            builtins::Monotonicity::RaisesUnsigned if !agg.signed => Kind::Counter,
            builtins::Monotonicity::Raises
            | builtins::Monotonicity::RaisesUnsigned
            | builtins::Monotonicity::Lowers
            | builtins::Monotonicity::Either => Kind::Gauge,
        }),
        Value::Series(_) => Some(Kind::Gauge),
        Value::None
        | Value::Bool(_)
        | Value::Float { .. }
        | Value::Ptr(_)
        | Value::Enum { .. }
        | Value::Str { .. }
        | Value::Bytes(_)
        | Value::List(_)
        | Value::Tuple(_)
        | Value::Record(_)
        | Value::Text(_)
        | Value::Stack(_) => None,
    }
}

fn point(map: &Map, kind: Kind, value: Option<&Value>, counted: Option<&Counted>) -> Option<Point> {
    let Some((agg, counted)) = map.value.aggregation().zip(counted) else {
        return (map.set && kind == Kind::Gauge)
            .then(|| value.and_then(Value::number))
            .flatten()
            .map(|value| Point { value, ..Point::default() });
    };
    Some(match kind {
        Kind::Counter | Kind::Gauge => {
            let newest = counted.intervals.as_ref().and_then(|all| all.values().next_back().map(|last| average(last.value, last.count)));
            let value = counted.count.map(i128::from).or(counted.sum).or(counted.min).or(counted.max).or(newest)?;
            Point { value, ..Point::default() }
        }
        Kind::Summary => Point { sum: counted.sum, count: counted.count?, ..Point::default() },
        Kind::Histogram => {
            let buckets = buckets(agg, counted)?;
            let count = buckets.iter().fold(0u64, |n, (_, of)| n.saturating_add(*of));
            Point { sum: counted.sum, count, buckets, ..Point::default() }
        }
    })
}

fn average(value: i128, count: Option<u64>) -> i128 {
    value / i128::from(count.unwrap_or(1)).max(1)
}

/// The buckets of a histogram, always the same ones, so that those of several machines add up: the buckets of a linear one, and
/// for others each power of two, into which finer buckets are merged.
fn buckets(agg: &Agg, counted: &Counted) -> Option<Vec<(i128, u64)>> {
    let (_, row) = builtins::aggregate(&agg.function)?;
    let slot = builtins::slot(agg, row, counted).ok()?;
    let value = (row.merge)(agg, &[&slot]);
    let found: Vec<(i128, u64)> = if let Value::Percentiles(of) = value {
        of.samples
    } else if let Value::Hist(Hist { scale: Scale::Linear { min, max, step }, counts }) = &value {
        let (min, step) = (i128::from(*min), i128::from((*step).max(1)));
        let inner = (i128::from(*max) - min) / step;
        let bound = |i: usize| match i as i128 {
            0 => min - 1,
            i if i > inner => i128::MAX,
            i => min + i * step - 1,
        };
        return Some(counts.iter().enumerate().map(|(i, n)| (bound(i), *n)).collect());
    } else if let Value::Hist(hist) = &value {
        render::buckets(hist).map(|(_, max, n)| (max.unwrap_or(i128::MAX), n)).collect()
    } else {
        return None;
    };
    let mut all: Vec<(i128, u64)> = [-1, 0].into_iter().chain((1..=64).map(|n| (1i128 << n) - 1)).map(|bound| (bound, 0)).collect();
    for (value, n) in found {
        if let Some((_, count)) = all.iter_mut().find(|(bound, _)| value <= *bound) {
            *count = count.saturating_add(n);
        }
    }
    Some(all)
}

/// `comm="sh",dev="8"`
fn labels(names: &Names, map: &Map, key: &Value, speller: &Speller) -> String {
    if map.key.is_none() {
        return String::new();
    }
    let parts = if let Value::Tuple(parts) = key { parts.as_slice() } else { std::slice::from_ref(key) };
    let names = names.labels(&map.name, parts.len());
    let label = |(name, part): (&String, &Value)| format!("{name}=\"{}\"", escaped(speller.spell(part).trim()));
    names.iter().zip(parts).map(label).collect::<Vec<_>>().join(",")
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn head(name: &str, kind: Kind, help: &str, unit: Option<&str>, open: bool, to: &mut String) {
    // the text format names a counter with its suffix
    let family = if kind == Kind::Counter && !open { format!("{name}_total") } else { name.to_string() };
    let _ = writeln!(to, "# HELP {family} {}", help.replace('\\', "\\\\").replace('\n', "\\n"));
    let _ = writeln!(to, "# TYPE {family} {}", kind.word());
    if let Some(unit) = unit.filter(|unit| open && name.ends_with(*unit)) {
        let _ = writeln!(to, "# UNIT {family} {unit}");
    }
}

fn sample(name: &str, kind: Kind, labels: &str, point: &Point, power: u32, to: &mut String) {
    let braces = |labels: &str| if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    let of = braces(labels);
    let _ = match kind {
        Kind::Counter => writeln!(to, "{name}_total{of} {}", scaled(point.value, power)),
        Kind::Gauge => writeln!(to, "{name}{of} {}", scaled(point.value, power)),
        Kind::Summary => writeln!(to, "{name}_sum{of} {}\n{name}_count{of} {}", scaled(point.sum.unwrap_or(0), power), point.count),
        Kind::Histogram => {
            let mut sum = 0u64;
            let comma = if labels.is_empty() { "" } else { "," };
            for (bound, n) in point.buckets.iter().filter(|(bound, _)| *bound != i128::MAX) {
                sum = sum.saturating_add(*n);
                let _ = writeln!(to, "{name}_bucket{{{labels}{comma}le=\"{}\"}} {sum}", scaled(*bound, power));
            }
            let _ = writeln!(to, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {}", point.count);
            if let Some(sum) = point.sum {
                let _ = writeln!(to, "{name}_sum{of} {}", scaled(sum, power));
            }
            writeln!(to, "{name}_count{of} {}", point.count)
        }
    };
}

/// A number divided by a power of ten, exactly.
fn scaled(n: i128, power: u32) -> String {
    let one = 10u128.pow(power);
    let (whole, below) = (n.unsigned_abs() / one, n.unsigned_abs() % one);
    let sign = if n < 0 { "-" } else { "" };
    if below == 0 {
        return format!("{sign}{whole}");
    }
    let digits = format!("{below:0width$}", width = power as usize);
    format!("{sign}{whole}.{}", digits.trim_end_matches('0'))
}

type Of = (&'static str, &'static str, fn(&Counts) -> u64);

/// Losses by probe.
const LOSSES: &[Of] = &[
    ("rbt_sent_events", "Events for the reader, those that were lost included.", |c| c.sent),
    ("rbt_lost_events", "Events that found no space in the ring buffer.", |c| c.dropped),
    ("rbt_missed_runs", "Runs that did not happen, because a probe was running on that CPU.", |c| c.missed),
    ("rbt_refused_updates", "Updates of maps that were full.", |c| c.refused.saturating_add(c.unstored)),
    ("rbt_cut_strings", "Strings that were truncated.", |c| c.cut),
    ("rbt_lost_stacks", "Stacks that found no space.", |c| c.unkept),
];

/// Names of the others of the run itself.
const OWN: &[&str] = &["rbt_unshown_series", "rbt_start_time_seconds", "rbt_script", "rbt_script_info"];

/// What is known of the run itself.
fn own(state: &State, dropped: &[(String, u64)], open: bool, to: &mut String) {
    for (name, help, of) in LOSSES {
        head(name, Kind::Counter, help, None, open, to);
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for counts in &state.probes {
            let sum = sums.entry(&counts.probe).or_default();
            *sum = sum.saturating_add(of(counts));
        }
        for (probe, n) in sums {
            let _ = writeln!(to, "{name}_total{{probe=\"{}\"}} {n}", escaped(probe));
        }
    }
    if !dropped.is_empty() {
        head("rbt_unshown_series", Kind::Gauge, "Series of a map beyond max_series.", None, open, to);
    }
    for (map, n) in dropped {
        let _ = writeln!(to, "rbt_unshown_series{{map=\"{}\"}} {n}", escaped(map));
    }
    head("rbt_start_time_seconds", Kind::Gauge, "When the run began, since 1970.", Some("seconds"), open, to);
    let _ = writeln!(to, "rbt_start_time_seconds {}", scaled(state.start_ns.into(), 9));
    head("rbt_script_info", Kind::Gauge, "The script and the version of rbt.", None, open, to);
    let _ = writeln!(
        to,
        "rbt_script_info{{script=\"{}\",sha256=\"{}\",version=\"{}\"}} 1",
        escaped(&state.script.name),
        escaped(&state.script.sha256),
        escaped(&state.rbt)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact() {
        assert_eq!(
            [scaled(1_500_000_000, 9), scaled(-1, 9), scaled(0, 3), scaled(u64::MAX.into(), 0)],
            ["1.5", "-0.000000001", "0", "18446744073709551615"]
        );
        assert_eq!(escaped("a\\\"\n"), "a\\\\\\\"\\n");
    }
}
