//! The results of a run, without loss: `-f state` writes them, and `rbt merge` adds several up.
//!
//! A state is one JSON document on one line, so that tools that mix the lines of many hosts keep documents intact. All
//! integers are JSON numbers of up to 64 bits, which a reader must not turn into doubles.

use std::collections::{BTreeMap, HashMap, hash_map};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::types::Type;
use crate::value::{Counts, Frame, FrameTable, Frames, FramesBuilder, ShowOptions, Value, Weights};

/// The version of the document format, [`State::rbt_state`].
pub const VERSION: u32 = 1;

/// A document. An unknown field is an error: it can be a damaged one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// [`VERSION`]
    pub rbt_state: u32,
    /// The version of rbt.
    pub rbt: String,
    /// The script.
    pub script: Script,
    /// The name of the machine.
    pub host: String,
    /// `uname -r`
    pub kernel: String,
    /// `uname -m`
    pub machine: String,
    /// When the machine was booted, in nanoseconds since 1970.
    pub boot_ns: u64,
    /// The start of the run.
    pub start_ns: u64,
    /// The end of the run.
    pub end_ns: u64,
    /// The counters of each probe.
    pub probes: Vec<Counts>,
    /// The run time of each program, if the state is read during the run.
    #[serde(skip)]
    pub run_times: Vec<RunTime>,
    /// Probes that could not be attached.
    pub not_attached: Vec<String>,
    /// Maps that `end` printed, in order.
    pub printed: Vec<Printed>,
    /// Are the other maps printed at the end of the run?
    pub prints_maps: bool,
    /// The maps, sorted by name.
    pub maps: Vec<Map>,
    /// The runs of a sum. None: the state is that of one run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<RunId>,
    /// The maps that a sum lacks, because their values could not be added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_merged: Vec<String>,
    /// The keys of the maps start with the name of the host.
    #[serde(default, skip_serializing_if = "is_false")]
    pub by_host: bool,
    /// The digest with which the document was read; see [`State::document`].
    #[serde(default, skip_serializing)]
    pub sha256: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes references
fn is_false(value: &bool) -> bool {
    !value
}

/// The digest at the end of a document, up to its digits.
const DIGEST: &str = ",\"sha256\":\"";
const DIGEST_END: &str = "\"}";

impl State {
    /// The document, with a digest of everything before it.
    pub fn document(&self) -> Vec<u8> {
        let mut text = self.content();
        let digest = digest(&text);
        text.extend_from_slice(format!("{DIGEST}{digest}{DIGEST_END}").as_bytes());
        text
    }

    /// The document up to its digest.
    fn content(&self) -> Vec<u8> {
        // converting it to JSON does not fail
        let mut text = serde_json::to_vec(self).unwrap_or_default();
        text.pop_if(|last| *last == b'}');
        text
    }

    /// Are the contents those that rbt wrote? The document may be formatted differently. Other programs may write one without a
    /// digest.
    pub fn is_intact(&self) -> bool {
        self.sha256.as_ref().is_none_or(|found| *found == digest(&self.content()))
    }

    /// The runs that it contains.
    pub fn runs(&self) -> Vec<RunId> {
        let Self { host, boot_ns, start_ns, .. } = self;
        let own = || vec![RunId { host: host.clone(), boot_ns: *boot_ns, start_ns: *start_ns }];
        if self.runs.is_empty() { own() } else { self.runs.clone() }
    }
}

fn digest(text: &[u8]) -> String {
    hex(&Sha256::digest(text))
}

/// A digest as text.
pub fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A run on a machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RunId {
    /// [`State::host`]
    pub host: String,
    /// [`State::boot_ns`]
    pub boot_ns: u64,
    /// [`State::start_ns`]
    pub start_ns: u64,
}

/// The run time of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunTime {
    /// As in [`Counts::probe`].
    pub probe: String,
    /// Nanoseconds.
    pub ns: u64,
    /// Number of runs.
    pub runs: u64,
}

/// A script, identified by its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// Its name, for messages.
    pub name: String,
    /// SHA-256 of its text, followed by its imports.
    pub sha256: String,
}

/// A map that was printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Printed {
    /// With its `@`.
    pub map: String,
    /// The display options.
    pub show: ShowOptions,
}

/// The contents of a map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Map {
    /// With its `@`.
    pub name: String,
    /// Type of the keys; none for a scalar.
    pub key: Option<Type>,
    /// Type of the values.
    pub value: Type,
    /// False for a scalar that was never set.
    pub set: bool,
    /// It is no aggregation, but the script only adds to its values, so those of several machines add up.
    #[serde(default, skip_serializing_if = "is_false")]
    pub adds: bool,
    /// Lost events can make its values too high as well as too low, and its elements wrong.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unbounded: bool,
    /// Set if the values are estimates from a part of the runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<Weights>,
    /// How often it was cleared before the end: it contains the data since the last time.
    pub emptied: u64,
    /// `end` cleared it; it contains the data from before that.
    pub cleared: bool,
    /// `end` cleared it, and of its contents the run showed only parts, or only zeros.
    #[serde(default, skip_serializing_if = "is_false")]
    pub shown_in_part: bool,
    /// The entries, in any order.
    pub entries: Vec<Entry>,
    /// The bytes of their keys in the state of an unfinished run, if rbt looks up what the keys show.
    #[serde(skip)]
    pub key_bytes: Vec<Vec<u8>>,
    /// Keys beyond `max_series` in the state of an unfinished run. Documents do not contain them.
    #[serde(skip)]
    pub other: Option<OtherKeys>,
}

/// Keys with a common value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherKeys {
    /// The sum of their values.
    pub counted: AggregateState,
    /// The number of these keys that the map has now.
    pub keys: u64,
}

impl Map {
    /// A map that was set, and never cleared.
    pub fn new(name: &str, key: Option<Type>, value: Type, entries: Vec<Entry>) -> Self {
        Self {
            name: name.into(),
            key,
            value,
            set: true,
            adds: false,
            unbounded: false,
            weights: None,
            emptied: 0,
            cleared: false,
            shown_in_part: false,
            entries,
            key_bytes: Vec::new(),
            other: None,
        }
    }

    /// `hist(unsigned) by string[16]`: the types, for messages.
    pub fn types(&self) -> String {
        let value = self.value_type();
        self.key.as_ref().map_or(value.clone(), |key| format!("{value} by {key:#}"))
    }

    fn value_type(&self) -> String {
        match self.value.aggregation() {
            Some(agg) => {
                let params: Vec<String> = agg.params.iter().map(i64::to_string).collect();
                let params = if params.is_empty() { String::new() } else { format!(", {}", params.join(", ")) };
                format!("{}({}{params})", agg.function, if agg.signed { "signed" } else { "unsigned" })
            }
            None => format!("{:#}", self.value),
        }
    }

    /// The types of the keys and values of both maps; none if they do not fit: see [`Type::widened`].
    pub fn widened(&self, other: &Map) -> Option<(Option<Type>, Type)> {
        let key = match (&self.key, &other.key) {
            (None, None) => None,
            (Some(a), Some(b)) => Some(a.widened(b)?),
            (None, Some(_)) | (Some(_), None) => return None,
        };
        let value = match (self.value.aggregation(), other.value.aggregation()) {
            (None, None) => self.value.widened(&other.value)?,
            (_, _) if self.value_type() == other.value_type() => self.value.clone(),
            (_, _) => return None,
        };
        Some((key, value))
    }
}

/// An element of a map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// [`Value::None`] for a scalar.
    pub key: Value,
    /// The value in a map of plain values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The value of an aggregation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<AggregateState>,
}

/// The state of an aggregation. Each function uses some of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AggregateState {
    /// The number of values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Their sum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum: Option<i128>,
    /// The least; none without values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<i128>,
    /// The greatest; none without values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<i128>,
    /// Counts of a histogram's buckets, by index, without zeros.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buckets: Option<BTreeMap<u32, u64>>,
    /// The intervals of a series, by their numbers since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intervals: Option<BTreeMap<u64, Interval>>,
    /// Buckets of the intervals of a heat map, by the number of the interval since 1970, then by index, without zeros.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<BTreeMap<u64, BTreeMap<u32, u64>>>,
}

/// An interval of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// The value, or the sum of an average.
    pub value: i128,
    /// The number of values of an average.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The time of the last value, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ns: Option<u64>,
}

impl AggregateState {
    /// The nonzero buckets.
    pub fn sparse(counts: impl IntoIterator<Item = u64>) -> Option<BTreeMap<u32, u64>> {
        Some((0..).zip(counts).filter(|(_, n)| *n > 0).collect())
    }

    /// All buckets, of which there are `buckets`.
    ///
    /// # Errors
    /// There are others.
    pub fn dense(&self, buckets: usize) -> Result<Vec<u64>, String> {
        let mut counts = vec![0; buckets];
        for (index, n) in self.buckets.as_ref().ok_or_else(|| lacks("buckets"))? {
            let to = counts.get_mut(*index as usize).ok_or_else(|| format!("there is no bucket {index}"))?;
            *to = *n;
        }
        Ok(counts)
    }

    /// The sum as a 64-bit word.
    ///
    /// # Errors
    /// It is missing, or does not fit.
    pub fn sum_word(&self, signed: bool) -> Result<u64, String> {
        word(self.sum.ok_or_else(|| lacks("sum"))?, signed)
    }

    /// The count.
    ///
    /// # Errors
    /// It is missing.
    pub fn count_word(&self) -> Result<u64, String> {
        self.count.ok_or_else(|| lacks("count"))
    }

    /// What a sum has gained since it was `before`. Extremes are those of both.
    pub fn minus(&self, before: &AggregateState) -> AggregateState {
        let buckets = self.buckets.as_ref().map(|buckets| {
            let known = |bucket: &u32| before.buckets.as_ref().and_then(|all| all.get(bucket)).copied().unwrap_or(0);
            buckets.iter().map(|(bucket, n)| (*bucket, n.saturating_sub(known(bucket)))).filter(|(_, n)| *n > 0).collect()
        });
        let count = self.count.map(|n| n.saturating_sub(before.count.unwrap_or(0)));
        let sum = self.sum.map(|sum| sum.saturating_sub(before.sum.unwrap_or(0)));
        AggregateState { count, sum, buckets, ..self.clone() }
    }

    /// Did the addition of this and the other state to `sum` overflow?
    pub fn overflowed(&self, other: &AggregateState, sum: &AggregateState) -> bool {
        let lost = |a: Option<i128>, b: Option<i128>, sum: Option<i128>| {
            a.or(b).is_some() && a.unwrap_or(0).checked_add(b.unwrap_or(0)).is_none_or(|exact| Some(exact) != sum)
        };
        let wide = |n: Option<u64>| n.map(i128::from);
        let (none, no_series) = (BTreeMap::new(), BTreeMap::new());
        let of = |c: &'_ AggregateState, i: u32| c.buckets.as_ref().unwrap_or(&none).get(&i).copied().unwrap_or(0);
        let buckets = [self, other].iter().flat_map(|c| c.buckets.iter().flatten()).map(|(i, _)| *i).collect::<Vec<_>>();
        let at = |c: &'_ AggregateState, i: u64| c.intervals.as_ref().unwrap_or(&no_series).get(&i).copied();
        let series = sum.intervals.iter().flatten().any(|(i, found)| match (at(self, *i), at(other, *i)) {
            // the function chose one of them, or added them
            (Some(a), Some(b)) => {
                let one = found.value == a.value || found.value == b.value;
                let counts = lost(wide(a.count), wide(b.count), wide(found.count));
                counts || !one && a.value.checked_add(b.value) != Some(found.value)
            }
            (_, _) => false,
        });
        let none = BTreeMap::new();
        let cell = |c: &'_ AggregateState, column: u64, i: u32| {
            c.columns.as_ref().and_then(|columns| columns.get(&column)).unwrap_or(&none).get(&i).copied().unwrap_or(0)
        };
        let cells = sum.columns.iter().flatten().flat_map(|(column, found)| found.iter().map(move |(i, n)| (*column, *i, *n)));
        let columns = cells.into_iter().any(|(column, i, n)| cell(self, column, i).checked_add(cell(other, column, i)) != Some(n));
        columns
            || lost(wide(self.count), wide(other.count), wide(sum.count))
            || lost(self.sum, other.sum, sum.sum)
            || buckets.iter().any(|i| of(self, *i).checked_add(of(other, *i)) != Some(of(sum, *i)))
            || series
    }
}

/// A number as a 64-bit word.
///
/// # Errors
/// It does not fit.
pub fn word(n: i128, signed: bool) -> Result<u64, String> {
    let word = if signed { i64::try_from(n).map(|n| n as u64).ok() } else { u64::try_from(n).ok() };
    word.ok_or_else(|| format!("{n} does not fit into {} 64 bits", if signed { "signed" } else { "unsigned" }))
}

fn lacks(field: &str) -> String {
    format!("`{field}` is missing")
}

/// Makes keys equal on all machines: if the name of a frame is known, its address, which differs, is removed.
#[derive(Debug, Default)]
pub struct Portable {
    /// The table of the last frames.
    from: Arc<FrameTable>,
    /// Their portable forms, and their numbers, by the number in `from`.
    to: Arc<FrameTable>,
    numbers: HashMap<u32, u32>,
}

impl Portable {
    /// Changes a key or a value.
    pub fn change(&mut self, key: &mut Value) {
        match key {
            Value::Stack(stack) => stack.frames = self.frames(&stack.frames),
            Value::List(parts) | Value::Tuple(parts) => parts.iter_mut().for_each(|part| self.change(part)),
            Value::Record(fields) => fields.iter_mut().for_each(|(_, part)| self.change(part)),
            Value::None
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Float { .. }
            | Value::Ptr(_)
            | Value::Enum { .. }
            | Value::Str { .. }
            | Value::Bytes(_)
            | Value::Text(_)
            | Value::Hist(_)
            | Value::Stats(_)
            | Value::Avg(_)
            | Value::Percentiles(_)
            | Value::Series(_)
            | Value::HeatMap(_) => {}
        }
    }

    fn frames(&mut self, frames: &Frames) -> Frames {
        let (table, numbers) = frames.numbers();
        if !table.is_shared() {
            return frames.iter().map(portable_frame).collect();
        }
        if !Arc::ptr_eq(&self.from, table) {
            *self = Self { from: Arc::clone(table), ..Self::default() };
        }
        let mut to = FramesBuilder::new(Arc::clone(&self.to), frames.len());
        for number in numbers.iter() {
            match self.numbers.entry(number) {
                hash_map::Entry::Occupied(known) => to.push_number(*known.get()),
                hash_map::Entry::Vacant(new) => _ = new.insert(to.push(portable_frame(table.get(number)))),
            }
        }
        to.finish()
    }
}

fn portable_frame(frame: &Frame) -> Frame {
    let is_named = frame.symbol.is_some() || frame.within.is_some();
    Frame { addr: if is_named { 0 } else { frame.addr }, ..frame.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(sum: i128, buckets: &[(u32, u64)]) -> AggregateState {
        AggregateState { sum: Some(sum), buckets: Some(buckets.iter().copied().collect()), ..AggregateState::default() }
    }

    #[test]
    fn detects_lost_bits() {
        let (a, b) = (counted(i64::MAX.into(), &[(3, u64::MAX)]), counted(1, &[(4, 1)]));
        assert!(a.overflowed(&b, &counted(i64::MIN.into(), &[(3, u64::MAX), (4, 1)])));
        assert!(!a.overflowed(&b, &counted(1 << 63, &[(3, u64::MAX), (4, 1)])));
        assert!(counted(0, &[(3, u64::MAX)]).overflowed(&counted(0, &[(3, 1)]), &counted(0, &[])));
        assert_eq!((word(-1, true), word(u64::MAX.into(), false)), (Ok(u64::MAX), Ok(u64::MAX)));
        assert!(word(-1, false).is_err() && word(1 << 63, true).is_err());
    }

    #[test]
    fn types_fit_if_only_lengths_differ() {
        let map = |key: Type, value| Map::new("@", Some(key), value, Vec::new());
        let tuple = |n| Type::Tuple(vec![Type::U64, Type::Tuple(vec![Type::Str(n), Type::Buf(2 * n)])]);
        assert_eq!(map(tuple(4), Type::Str(9)).widened(&map(tuple(2), Type::Str(16))), Some((Some(tuple(4)), Type::Str(16))));
        assert_eq!(map(tuple(4), Type::U64).widened(&map(tuple(2), Type::I64)), None);
        assert_eq!(map(Type::Str(4), Type::U64).widened(&map(Type::Buf(4), Type::U64)), None);
        assert_eq!(map(Type::Str(4), Type::U64).widened(&Map::new("@", None, Type::U64, Vec::new())), None);
        assert_eq!(map(Type::Array(Box::new(Type::U64), 2), Type::U64).widened(&map(Type::Array(Box::new(Type::U64), 3), Type::U64)), None);
    }

    #[test]
    fn documents_round_trip() {
        let entry = |key, sum| Entry { key, value: None, counted: Some(counted(sum, &[(1, u64::MAX)])) };
        let keys = [
            Value::Str { bytes: vec![b'a', 0xff], cut: true },
            Value::Tuple(vec![Value::Float { value: f64::NEG_INFINITY, single: false }, Value::Enum { name: Some("A".into()), value: -1 }]),
            Value::Uint(u64::MAX),
        ];
        let entries = keys.into_iter().zip([i128::from(i64::MIN), u64::MAX.into(), 0]).map(|(key, sum)| entry(key, sum)).collect();
        let map = Map::new("@", Some(Type::U64), Type::U64, entries);
        let state = State { rbt_state: VERSION, maps: vec![map], ..State::default() };
        let text = String::from_utf8(state.document()).unwrap();
        assert!(text.starts_with("{\"rbt_state\":1,") && !text.contains('\n'), "{text}");
        let read = |text: &str| serde_json::from_str::<State>(text);
        assert_eq!(State { sha256: None, ..read(&text).unwrap() }, state);
        let is_intact = |text: &str| read(text).is_ok_and(|state| state.is_intact());
        let pretty = serde_json::to_string_pretty(&serde_json::from_str::<serde_json::Value>(&text).unwrap()).unwrap();
        assert!(is_intact(&text) && is_intact(&pretty) && is_intact(&serde_json::to_string(&state).unwrap()));
        assert!(!is_intact(&text.replace("18446744073709551615", "18446744073709551614")));
        // digests of other lengths and in other letters, and damaged names
        let (digest, end) = (text.len() - 66, text.len() - 2);
        for damaged in [
            [&text[..digest], "\"}"].concat(),
            [&text[..digest + 1], &text[digest + 2..]].concat(),
            [&text[..digest], "0", &text[digest..]].concat(),
            [&text[..digest], &text[digest..end].to_uppercase(), "\"}"].concat(),
            text.replace("\"sha256\":\"\"", "\"sha256\":\"0\""),
            text.replace("\"sha256\":\"", "\"sha257\":\""),
            text.replace("\"host\":", "\"hosts\":"),
        ] {
            assert!(!is_intact(&damaged), "{damaged}");
        }
    }
}
