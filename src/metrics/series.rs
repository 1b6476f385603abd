//! From a state to metrics: each map is a family of series, and so is each of rbt's counters of the run.

use std::collections::{BTreeMap, BTreeSet};

use super::names::{Metric, MetricNames};
use super::own;
use crate::builtins;
use crate::render::{self, LabelFormatter, Labels, key_parts};
use crate::state::{AggregateState, Entry, Map, State};
use crate::types::Agg;
use crate::value::{Counts, Hist, Scale, Value, Weights};

/// Converts states to families; remembers which series it has shown.
pub struct Metrics {
    names: MetricNames,
    /// Maximum number of series of a map; the others are combined into one.
    max_series: usize,
    /// The labels of the shown gauges, by map.
    known: BTreeMap<String, BTreeSet<Labels>>,
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It never goes back.
    Counter,
    /// The last value counts.
    Gauge,
    /// A count, buckets, and a sum if one is known.
    Histogram,
    /// A sum and a count.
    Summary,
}

/// A metric with its series.
#[derive(Clone, Debug)]
pub struct Family {
    /// The name without the suffix of its type.
    pub name: String,
    /// Its type.
    pub kind: Kind,
    /// One sentence.
    pub help: String,
    /// The base unit of the values after the division.
    pub unit: Option<&'static str>,
    /// Values must be divided by ten to this power.
    pub power: u32,
    /// Names of the labels.
    pub labels: Vec<String>,
    /// In order of the labels' values.
    pub series: Vec<Series>,
}

/// A series of a family.
#[derive(Clone, Debug)]
pub struct Series {
    /// Values of the labels, in the order of [`Family::labels`].
    pub values: Vec<String>,
    /// It is the sum of all series that are not shown individually, which its only label says.
    pub other: bool,
    /// Its data.
    pub point: Point,
}

/// The data of a series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// The value of a counter or a gauge.
    pub value: i128,
    /// The sum of a histogram or a summary.
    pub sum: Option<i128>,
    /// The number of values.
    pub count: u64,
    /// Upper bounds (inclusive) with the number of values in each bucket; the last bound may be `i128::MAX`.
    pub buckets: Vec<(i128, u64)>,
    /// One of the values was negative.
    pub negative: bool,
}

impl Family {
    /// A family of rbt's own numbers without a unit, with the values of their labels.
    pub fn own(metric: &own::OwnMetric, values: impl IntoIterator<Item = (Vec<String>, i128)>) -> Self {
        let series = |(values, value)| Series { values, other: false, point: Point { value, ..Point::default() } };
        let labels = metric.labels.iter().map(ToString::to_string).collect();
        let series = values.into_iter().map(series).collect();
        Self { name: metric.name.into(), kind: metric.kind, help: metric.help.into(), unit: None, power: 0, labels, series }
    }

    /// Inserts a label before the others, in all series. An existing label of that name gets the prefix `exported_`, as
    /// in Prometheus.
    pub fn put_label(&mut self, name: &str, value: &str) {
        if self.name == own::SCRIPT_INFO.name {
            return;
        }
        let mut renamed = format!("exported_{name}");
        while self.labels.contains(&renamed) {
            renamed.insert_str(0, "exported_");
        }
        if let Some(known) = self.labels.iter_mut().find(|known| *known == name) {
            *known = renamed;
        }
        self.labels.insert(0, name.into());
        self.series.iter_mut().for_each(|series| series.values.insert(0, value.into()));
    }

    /// Names and values of a series' labels.
    pub fn labels_of<'a>(&'a self, series: &'a Series) -> impl Iterator<Item = (&'a str, &'a str)> {
        let labels = self.labels.iter().zip(&series.values).map(|(name, value)| (name.as_str(), value.as_str()));
        labels.chain(series.other.then_some(("other", "true")))
    }
}

/// The names of a family and of all its samples, in both text formats.
pub fn sample_names(name: &str, kind: Kind) -> impl Iterator<Item = String> {
    let suffixes: &[&str] = match kind {
        Kind::Counter => &["", "_total"],
        Kind::Gauge => &[""],
        Kind::Histogram => &["", "_bucket", "_count", "_sum"],
        Kind::Summary => &["", "_count", "_sum"],
    };
    suffixes.iter().map(move |suffix| format!("{name}{suffix}"))
}

impl Metrics {
    /// Creates it without any shown series.
    pub fn new(names: MetricNames, max_series: u64) -> Self {
        Self { names, max_series: usize::try_from(max_series).unwrap_or(usize::MAX), known: BTreeMap::new() }
    }

    /// The families of a state.
    pub fn families(&mut self, state: &State) -> Vec<Family> {
        let mut taken: BTreeSet<String> = own::OWN.iter().flat_map(|metric| sample_names(metric.name, metric.kind)).collect();
        let mut families = Vec::new();
        let mut unshown = Vec::new();
        for map in &state.maps {
            let Some(kind) = kind(map).filter(|_| !self.names.is_hidden(&map.name)) else { continue };
            let mut metric = self.names.metric(&map.name);
            // two map names may be the same name in Prometheus; those of maps without series count, too, so that names do not change
            while sample_names(&metric.name, kind).any(|name| taken.contains(&name)) {
                metric.name.push_str("_map");
            }
            taken.extend(sample_names(&metric.name, kind));
            let Some((family, folded)) = self.family(map, kind, metric, &state.script.name) else { continue };
            families.push(family);
            if folded > 0 {
                unshown.push((map.name.clone(), folded));
            }
        }
        add_own(state, &unshown, &mut families);
        families
    }

    /// The family of a map, and the number of series that are not shown individually.
    fn family(&mut self, map: &Map, kind: Kind, metric: Metric, script: &str) -> Option<(Family, u64)> {
        let mut found: BTreeMap<Labels, Point> = merged(map)
            .into_iter()
            .filter_map(|(values, entry)| Some((values, point(map, kind, entry.value.as_ref(), entry.counted.as_ref())?)))
            .collect();
        let mut folded = 0;
        // the run limits the number of counters itself
        if !map.value.aggregation().is_some_and(builtins::is_counter) {
            let known = self.known.entry(map.name.clone()).or_default();
            // a gauge without a value leaves its place to another
            known.retain(|values| found.contains_key(values));
            let places = self.max_series.saturating_sub(known.len());
            let new: Vec<&Labels> = found.keys().filter(|values| !known.contains(*values)).take(places).collect();
            let new: Vec<Labels> = new.into_iter().cloned().collect();
            known.extend(new);
            folded = (found.len() - known.len()) as u64;
            found.retain(|values, _| known.contains(values));
        }
        let mut series: Vec<Series> = found.into_iter().map(|(values, point)| Series { values, other: false, point }).collect();
        if let Some(of) = &map.other {
            folded += of.keys;
            let point = point(map, kind, None, Some(&of.counted));
            series.extend(point.map(|point| Series { values: Vec::new(), other: true, point }));
        }
        if series.is_empty() {
            return None;
        }
        let labels = self.names.labels(&map.name, map.entries.first().map_or(0, |entry| key_parts(map.key.is_some(), &entry.key).len()));
        let help = metric.help.unwrap_or_else(|| format!("Map {} of {script}.", map.name));
        let (unit, power) = (metric.unit.map(|unit| unit.base), metric.unit.map_or(0, |unit| unit.power));
        Some((Family { name: metric.name, kind, help, unit, power, labels, series }, folded))
    }
}

/// The entries by the values of their labels. Keys with the same labels, such as stacks that differ only in addresses, are one
/// series: aggregations are merged, and numbers are added.
fn merged(map: &Map) -> BTreeMap<Labels, Entry> {
    let formatter = LabelFormatter::default();
    let mut found: BTreeMap<Labels, Entry> = BTreeMap::new();
    for entry in &map.entries {
        let values = formatter.labels(map.key.is_some(), &entry.key);
        let Some(known) = found.get_mut(&values) else {
            found.insert(values, entry.clone());
            continue;
        };
        if let (Some(agg), Some(a), Some(b)) = (map.value.aggregation(), &known.counted, &entry.counted) {
            // what does not fit is left out
            known.counted = builtins::add(agg, a, b).ok().or_else(|| known.counted.clone());
        } else if let (Some(a), Some(b)) = (known.value.as_ref().and_then(Value::number), entry.value.as_ref().and_then(Value::number)) {
            known.value = i64::try_from(a.saturating_add(b)).ok().map(Value::Int).or(known.value.clone());
        }
    }
    found
}

/// The type of a map's metric; none if its values are not numbers.
fn kind(map: &Map) -> Option<Kind> {
    let Some(agg) = map.value.aggregation() else { return map.value.is_scalar().then_some(Kind::Gauge) };
    let (row, aggregate) = builtins::aggregate(&agg.function)?;
    match (aggregate.merge)(agg, &[]) {
        Value::Hist(_) | Value::Percentiles(_) => Some(Kind::Histogram),
        Value::Stats(_) | Value::Avg(_) => Some(Kind::Summary),
        Value::Int(_) | Value::Uint(_) => Some(match aggregate.monotonicity {
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
        | Value::Stack(_)
        | Value::HeatMap(_) => None,
    }
}

fn point(map: &Map, kind: Kind, value: Option<&Value>, counted: Option<&AggregateState>) -> Option<Point> {
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
        Kind::Summary => {
            let negative = counted.min.is_some_and(|min| min < 0);
            Point { sum: counted.sum, count: counted.count?, negative, ..Point::default() }
        }
        Kind::Histogram => {
            let buckets = buckets(agg, counted)?;
            let count = buckets.iter().fold(0u64, |n, (_, of)| n.saturating_add(*of));
            let negative = buckets.first().is_some_and(|(bound, n)| *bound < 0 && *n > 0);
            Point { sum: counted.sum, count, buckets, negative, ..Point::default() }
        }
    })
}

fn average(value: i128, count: Option<u64>) -> i128 {
    value / i128::from(count.unwrap_or(1)).max(1)
}

/// The buckets of a histogram, which are always the same, so that those of several machines can be added: for a linear
/// one its buckets, and for others each power of two, into which finer buckets are merged.
fn buckets(agg: &Agg, counted: &AggregateState) -> Option<Vec<(i128, u64)>> {
    let (_, row) = builtins::aggregate(&agg.function)?;
    let slot = builtins::slot(agg, row, counted).ok()?;
    let value = (row.merge)(agg, &[&slot]);
    let found: Vec<(i128, u64)> = if let Value::Percentiles(of) = value {
        of.samples
    } else if let Value::Hist(of) = &value
        && let Hist { scale: Scale::Linear { min, max, step }, counts } = &**of
    {
        let (min, step) = (i128::from(*min), i128::from((*step).max(1)));
        let inner = (i128::from(*max) - min) / step;
        let bound = |i: usize| match i as i128 {
            0 => min - 1,
            i if i > inner => i128::MAX,
            i => min + i * step - 1,
        };
        let all = counts.iter().enumerate().map(|(i, n)| (bound(i), *n)).collect();
        return Some(within(agg.signed, all));
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
    Some(within(agg.signed, all))
}

/// The buckets that values of this sign can be in.
fn within(signed: bool, mut all: Vec<(i128, u64)>) -> Vec<(i128, u64)> {
    all.retain(|(bound, n)| signed || *bound >= 0 || *n > 0);
    all
}

type CounterColumn = (own::OwnMetric, fn(&Counts) -> u64);

/// Losses by probe.
const LOSSES: &[CounterColumn] = &[
    (own::SENT_EVENTS, |c| c.sent),
    (own::LOST_EVENTS, |c| c.dropped),
    (own::MISSED_RUNS, |c| c.missed),
    (own::REFUSED_UPDATES, |c| c.refused.saturating_add(c.unstored)),
    (own::CUT_STRINGS, |c| c.cut),
    (own::LOST_STACKS, |c| c.unkept),
    (own::DROPPED_RUNS, |c| c.thinned),
];

/// Adds the metrics of the run itself.
fn add_own(state: &State, unshown: &[(String, u64)], to: &mut Vec<Family>) {
    for (metric, of) in LOSSES {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for counts in &state.probes {
            let sum = sums.entry(&counts.probe).or_default();
            *sum = sum.saturating_add(of(counts));
        }
        to.push(Family::own(metric, sums.into_iter().map(|(probe, n)| (vec![probe.into()], n.into()))));
    }
    let mut times: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for time in &state.run_times {
        let (ns, runs) = times.entry(&time.probe).or_default();
        (*ns, *runs) = (ns.saturating_add(time.ns), runs.saturating_add(time.runs));
    }
    if !times.is_empty() {
        let seconds = Family::own(&own::PROBE_RUN_SECONDS, times.iter().map(|(probe, (ns, _))| (vec![probe.to_string()], (*ns).into())));
        to.push(Family { unit: Some("seconds"), power: 9, ..seconds });
        to.push(Family::own(&own::PROBE_RUNS, times.iter().map(|(probe, (_, runs))| (vec![probe.to_string()], (*runs).into()))));
    }
    let estimates: Vec<(&str, Weights)> = state.maps.iter().filter_map(|map| Some((map.name.as_str(), map.weights?))).collect();
    if !estimates.is_empty() {
        let of = |n: fn(&Weights) -> u64| estimates.iter().map(move |(map, weights)| (vec![(*map).to_string()], n(weights).into()));
        to.push(Family::own(&own::SAMPLED_RUNS, of(|weights| weights.runs)));
        to.push(Family::own(&own::COUNTED_RUNS, of(|weights| weights.passed)));
        let detached = Family::own(&own::DETACHED_SECONDS, of(|weights| weights.detached_ms));
        to.push(Family { unit: Some("seconds"), power: 3, ..detached });
    }
    if !unshown.is_empty() {
        to.push(Family::own(&own::UNSHOWN_SERIES, unshown.iter().map(|(map, n)| (vec![map.clone()], (*n).into()))));
    }
    let start = Family::own(&own::START_TIME, [(Vec::new(), state.start_ns.into())]);
    to.push(Family { unit: Some("seconds"), power: 9, ..start });
    let script = [&state.script.name, &state.script.sha256, &state.rbt].map(ToString::to_string);
    to.push(Family::own(&own::SCRIPT_INFO, [(script.to_vec(), 1)]));
}

/// A number divided by a power of ten, exactly.
pub fn scaled(n: i128, power: u32) -> String {
    let one = 10u128.pow(power);
    let (quotient, remainder) = (n.unsigned_abs() / one, n.unsigned_abs() % one);
    let sign = if n < 0 { "-" } else { "" };
    if remainder == 0 {
        return format!("{sign}{quotient}");
    }
    let digits = format!("{remainder:0width$}", width = power as usize);
    format!("{sign}{quotient}.{}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::ScriptMap;
    use crate::types::Type;

    fn map(value: Type, entries: Vec<Entry>) -> State {
        State { maps: vec![Map::new("@m", Some(Type::Str(16)), value, entries)], ..State::default() }
    }

    fn key(key: &[u8]) -> Value {
        Value::Str { bytes: key.to_vec(), cut: false }
    }

    fn agg(function: &str) -> Type {
        Type::Agg(Agg { function: function.into(), signed: false, params: Vec::new(), size: 8 }.into())
    }

    fn shown(metrics: &mut Metrics, state: &State) -> Vec<(String, i128)> {
        let families = metrics.families(state);
        let family = families.iter().find(|family| family.name == "rbt_mapm").unwrap();
        let labels = |s: &Series| if s.other { "other".to_string() } else { s.values.concat() };
        family.series.iter().map(|series| (labels(series), series.point.value)).collect()
    }

    #[test]
    fn different_strings_are_different_series() {
        let entry = |k: &[u8], n| Entry { key: key(k), value: Some(Value::Int(n)), counted: None };
        let entries = vec![entry(b"a", 1), entry(b" a", 2), entry(b"a\xff", 3), entry(b"a\xfe", 4), entry(b"a\\xff", 5)];
        let mut metrics = Metrics::new(MetricNames::default(), 10);
        let all = shown(&mut metrics, &map(Type::I64, entries));
        assert_eq!(all, [(" a".into(), 2), ("a".into(), 1), ("a\\\\xff".into(), 5), ("a\\xfe".into(), 4), ("a\\xff".into(), 3)]);
    }

    #[test]
    fn estimates_have_metrics_by_map() {
        let mut state = map(Type::I64, Vec::new());
        state.maps[0].weights = Some(Weights { passed: 10, runs: 75, detached_ms: 1250 });
        let families = Metrics::new(MetricNames::default(), 10).families(&state);
        let value = |name: &str| {
            let family = families.iter().find(|family| family.name == name)?;
            let [series] = family.series.as_slice() else { return None };
            Some((series.values.concat(), scaled(series.point.value, family.power)))
        };
        let of = |n: &str| Some(("@m".to_string(), n.to_string()));
        assert_eq!(["rbt_sampled_runs", "rbt_counted_runs", "rbt_detached_seconds"].map(value), [of("75"), of("10"), of("1.25")]);
    }

    #[test]
    fn keys_with_the_same_labels_are_merged() {
        let entry = |n| Entry {
            key: Value::Text("x".into()),
            value: None,
            counted: Some(AggregateState { max: Some(n), ..AggregateState::default() }),
        };
        let mut metrics = Metrics::new(MetricNames::default(), 10);
        assert_eq!(shown(&mut metrics, &map(agg("max"), vec![entry(3), entry(5)])), [("x".into(), 5)]);
        let plain = |n| Entry { key: Value::Text("x".into()), value: Some(Value::Int(n)), counted: None };
        assert_eq!(shown(&mut metrics, &map(Type::I64, vec![plain(3), plain(5)])), [("x".into(), 8)]);
    }

    /// A family has no name that a sample of another one has, whether or not that one has samples yet.
    #[test]
    fn names_of_samples_differ() {
        let text = "// metric: @a name=a\n// metric: @b name=a_count_count";
        let maps = ["@a", "@b"].map(|name| ScriptMap { name: name.into(), counts_events: false, is_internal: false });
        let names = MetricNames::of([text].into_iter(), &maps).unwrap();
        let counted = AggregateState { count: Some(1), sum: Some(2), ..AggregateState::default() };
        for entries in [Vec::new(), vec![Entry { key: Value::None, value: None, counted: Some(counted) }]] {
            let gauge = vec![Entry { key: Value::None, value: Some(Value::Int(7)), counted: None }];
            let maps = vec![Map::new("@a", None, agg("avg"), entries), Map::new("@b", None, Type::I64, gauge)];
            let families = Metrics::new(names.clone(), 10).families(&State { maps, ..State::default() });
            assert!(families.iter().any(|family| family.name == "a_count_map"));
            assert!(families.iter().all(|family| family.name != "a_count"));
        }
    }

    #[test]
    fn names_of_rbt_are_taken() {
        for metric in own::OWN {
            let name = metric.name.replacen("rbt_", "@", 1);
            let maps = vec![Map::new(&name, None, Type::I64, vec![Entry { key: Value::None, value: Some(Value::Int(7)), counted: None }])];
            let [family, ..] = &Metrics::new(MetricNames::default(), 10).families(&State { maps, ..State::default() })[..] else {
                panic!()
            };
            assert!(sample_names(metric.name, metric.kind).all(|name| name != family.name), "{name}: {}", family.name);
        }
    }

    #[test]
    fn labels_of_other_scripts_are_kept() {
        let metric = own::OwnMetric { name: "x", kind: Kind::Gauge, help: "", labels: &["script", "exported_script"] };
        let mut family = Family::own(&metric, []);
        family.put_label("script", "a.bt");
        assert_eq!(family.labels, ["script", "exported_exported_script", "exported_script"]);
    }

    #[test]
    fn numbers_are_exact() {
        assert_eq!(
            [scaled(1_500_000_000, 9), scaled(-1, 9), scaled(0, 3), scaled(u64::MAX.into(), 0)],
            ["1.5", "-0.000000001", "0", "18446744073709551615"]
        );
    }
}
