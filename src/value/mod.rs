//! A value in user space, decoded from a record or a map, ready for rendering.
//!
//! [`Value`] is closed: each renderer matches all of it.

mod frames;
pub mod text;

use serde::{Deserialize, Serialize};

pub use frames::{FrameTable, Frames, FramesBuilder};

/// A decoded value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// Nothing: `null`.
    None,
    /// `true` or `false`.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating-point number.
    Float {
        /// Its value.
        #[serde(with = "crate::value::text::float")]
        value: f64,
        /// It has 4 bytes, so its shortest decimal form has fewer digits.
        single: bool,
    },
    /// A pointer: `0x…`.
    Ptr(u64),
    /// An enumeration's value, with its name if it has one.
    Enum {
        /// The variant's name.
        name: Option<String>,
        /// Its value.
        value: i64,
    },
    /// A string's bytes without the NUL; `cut` if there was no NUL within its capacity, so that it may have been
    /// longer.
    Str {
        /// The bytes, not necessarily UTF-8.
        #[serde(rename = "text", with = "crate::value::text::bytes")]
        bytes: Vec<u8>,
        /// It is longer than its capacity.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cut: bool,
    },
    /// A buffer's bytes.
    Bytes(Vec<u8>),
    /// An array.
    List(Vec<Value>),
    /// A tuple.
    Tuple(Vec<Value>),
    /// A struct, union, record or `args`: names and values in order.
    Record(Vec<(String, Value)>),
    /// The decoded form of a deferred value (symbol, address, time, user, path), which consists only of its text.
    Text(String),
    /// A call stack.
    Stack(Stack),
    /// A histogram's buckets.
    #[serde(skip)]
    Hist(Box<Hist>),
    /// `stats()`.
    #[serde(skip)]
    Stats(Stats),
    /// `avg()`: rendered as an integer.
    #[serde(skip)]
    Avg(Stats),
    /// `percentiles()`.
    #[serde(skip)]
    Percentiles(Box<Percentiles>),
    /// `tseries()`.
    #[serde(skip)]
    Series(Series),
    /// `heatmap()`.
    #[serde(skip)]
    HeatMap(Box<HeatMap>),
}

impl Value {
    /// A scalar as a number with its sign: false is 0, an enumeration its value, a pointer its address.
    pub fn number(&self) -> Option<i128> {
        match self {
            Value::Bool(v) => Some(i128::from(*v)),
            Value::Int(v) | Value::Enum { value: v, .. } => Some(i128::from(*v)),
            Value::Uint(v) | Value::Ptr(v) => Some(i128::from(*v)),
            Value::None
            | Value::Float { .. }
            | Value::Str { .. }
            | Value::Bytes(_)
            | Value::List(_)
            | Value::Tuple(_)
            | Value::Record(_)
            | Value::Text(_)
            | Value::Stack(_)
            | Value::Hist(_)
            | Value::Stats(_)
            | Value::Avg(_)
            | Value::Percentiles(_)
            | Value::Series(_)
            | Value::HeatMap(_) => None,
        }
    }

    /// The named numbers of an aggregation that has several: its displayed values, by which it can be sorted.
    pub fn fields(&self) -> Option<Vec<(&'static str, Value)>> {
        let of = |s: &Stats| vec![("count", Value::Uint(s.count)), ("average", s.average()), ("total", s.sum())];
        if let Value::Stats(s) = self {
            return Some(of(s));
        }
        let Value::Percentiles(p) = self else { return None };
        let mut fields = of(&p.stats);
        fields.extend(p.points.iter().cloned());
        Some(fields)
    }
}

/// Count and total of an aggregation; the average is [`Stats::average`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stats {
    /// Number of values.
    pub count: u64,
    /// Their sum, in two's complement if `signed`.
    pub total: u64,
    /// Is the sum signed?
    pub signed: bool,
}

impl Stats {
    /// Integer division that truncates toward zero; zero if there are no values.
    pub fn average(&self) -> Value {
        match (self.count, self.signed) {
            (0, true) => Value::Int(0),
            (0, false) => Value::Uint(0),
            (n, true) => Value::Int((i128::from(self.total as i64) / i128::from(n)) as i64),
            (n, false) => Value::Uint(self.total / n),
        }
    }

    /// The sum with its sign.
    pub fn sum(&self) -> Value {
        if self.signed { Value::Int(self.total as i64) } else { Value::Uint(self.total) }
    }
}

/// The scale of a histogram, which determines its labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// `hist(n, k)`: 2^k buckets per power of two.
    Log2 {
        /// The literal k, 0 to 5.
        k: u8,
    },
    /// `lhist(n, min, max, step)`.
    Linear {
        /// Codegen bound of the first inner bucket.
        min: i64,
        /// Upper bound of the last inner bucket.
        max: i64,
        /// Width of an inner bucket.
        step: i64,
    },
}

/// All buckets in index order, including empty ones. `builtins/hist.rs` has the index rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hist {
    /// The relation of index and bounds.
    pub scale: Scale,
    /// Count of each bucket.
    pub counts: Vec<u64>,
}

/// Points of a distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Percentiles {
    /// The number of values, and their sum.
    pub stats: Stats,
    /// Names and values, ascending: `min`, `p50`, …, `max`; zeros if there are no values.
    pub points: Vec<(&'static str, Value)>,
    /// Representatives of the values, ascending, with the number of values that each represents: other points are
    /// computed from them.
    pub samples: Vec<(i128, u64)>,
}

/// A series of intervals of equal length.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Their length in nanoseconds.
    pub interval: u64,
    /// Start (nanoseconds since 1970) and value of each interval that has one, ascending.
    pub buckets: Vec<(i128, Value)>,
}

/// Histograms of intervals of equal length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeatMap {
    /// Length of the intervals in nanoseconds.
    pub interval: u64,
    /// The relation of a bucket's index and bounds.
    pub scale: Scale,
    /// Start (nanoseconds since 1970) and the counts of all buckets of each interval with values, ascending.
    pub columns: Vec<(i128, Vec<u64>)>,
}

/// The kind of a [`MapView`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapViewKind {
    /// Numbers and other values.
    Map,
    /// Statistics.
    Stats,
    /// Histograms.
    Hist,
    /// Percentiles.
    Percentiles,
    /// Time series.
    Series,
    /// Heat maps.
    HeatMap,
}

impl MapViewKind {
    /// The name: `type` in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Stats => "stats",
            Self::Hist => "hist",
            Self::Percentiles => "percentiles",
            Self::Series => "tseries",
            Self::HeatMap => "heatmap",
        }
    }

    /// Does a value take several lines?
    pub fn is_picture(self) -> bool {
        match self {
            Self::Hist | Self::Series | Self::HeatMap => true,
            Self::Map | Self::Stats | Self::Percentiles => false,
        }
    }
}

/// The format of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StackMode {
    /// `        symbol+offset`.
    Bpftrace,
    /// As `perf script` prints them.
    Perf,
    /// Addresses only.
    Raw,
    /// Build id and file offset.
    BuildId,
}

/// A call stack, leaf first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stack {
    /// The format.
    pub mode: StackMode,
    /// True for kernel frames.
    pub kernel: bool,
    /// Leaf first; inlined frames precede the frame into which they were inlined.
    pub frames: Frames,
}

/// A frame of a stack.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Frame {
    /// The instruction's address (user: in the process's memory).
    pub addr: u64,
    /// The function, demangled if requested; none if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    /// Offset from the function's start in bytes.
    pub offset: u64,
    /// The binary or kernel module that contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// If the function is unknown: the address in the module's own terms, as for `addr2line`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<u64>,
    /// Source file and line, if there is debug information.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<(String, u32)>,
    /// Was inlined into the frame after it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub inlined: bool,
    /// It is a frame of an interpreted function: `source` is always present, and its line is 0 if unknown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub interpreted: bool,
    /// In build-ID mode: the ID in hexadecimal, and the offset in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build_id: Option<(String, u64)>,
}

impl Frame {
    /// `module+0xADDRESS`, if only that is known; for a file that was deleted, with the offset in it.
    pub fn in_module(&self) -> Option<String> {
        let module = self.module.as_ref().filter(|_| self.symbol.is_none())?;
        let name = module.rsplit('/').next().unwrap_or(module);
        Some(format!("{name}+{:#x}", self.within?))
    }
}

/// A place in the script, for messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pos {
    /// The file's name; `stdin` for a program on the command line.
    pub file: String,
    /// From 1.
    pub line: u32,
    /// From 1.
    pub col: u32,
    /// The line of its end, and the column after it; 0: unknown.
    #[serde(default)]
    pub end: (u32, u32),
    /// The uses of macros that led to it, from the innermost.
    #[serde(default)]
    pub expanded_from: Vec<MacroUse>,
}

/// A use of a macro in the script, for messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MacroUse {
    /// Its place.
    pub pos: Pos,
    /// The line of the script.
    pub line: String,
}

/// A map, read for display: entries in the order of reading, because the renderer sorts.
#[derive(Clone, Debug, PartialEq)]
pub struct MapView {
    /// With its `@`.
    pub name: String,
    /// Its kind.
    pub kind: MapViewKind,
    /// Are the numbers made of values of the script, as by `sum()`? Otherwise they may be counts of events.
    pub measures: bool,
    /// False for a scalar, which has exactly one entry with key [`Value::None`].
    pub keyed: bool,
    /// False for a scalar that was never set, or cleared since.
    pub set: bool,
    /// Key and value.
    pub entries: Vec<(Value, Value)>,
    /// The options of `print`.
    pub show: ShowOptions,
    /// Set if the values are estimates from a part of the runs.
    pub weights: Option<Weights>,
}

/// How far values are estimates: with `--max-overhead`, some runs counted for others, and runs are missing while a probe was
/// detached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weights {
    /// The number of runs that counted.
    pub passed: u64,
    /// The number of all runs.
    pub runs: u64,
    /// For how long a probe was detached, in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub detached_ms: u64,
}

impl Weights {
    /// The number of runs for which a run counted on average.
    pub fn factor(&self) -> f64 {
        self.runs as f64 / self.passed.max(1) as f64
    }

    /// The sign of an estimate before values; empty if all runs counted while the probes were attached.
    pub fn mark(&self) -> &'static str {
        if self.runs > self.passed { "~" } else { "" }
    }

    /// Those of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            passed: self.passed.saturating_add(other.passed),
            runs: self.runs.saturating_add(other.runs),
            detached_ms: self.detached_ms.saturating_add(other.detached_ms),
        }
    }

    /// The greater deviations of both, for values that depend on the same runs.
    #[must_use]
    pub fn or_worse(&self, other: &Self) -> Self {
        let sampled = if other.factor() > self.factor() { other } else { self };
        Self { detached_ms: self.detached_ms.max(other.detached_ms), ..*sampled }
    }
}

/// The same, for values of which some may be estimates.
pub fn add_weights(a: Option<Weights>, b: Option<Weights>) -> Option<Weights> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.plus(&b)),
        (one, other) => one.or(other),
    }
}

/// As in text: `1 in 63.9`, `not traced for 2.1 s`.
impl std::fmt::Display for Weights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_sampled = self.runs > self.passed;
        if is_sampled {
            write!(f, "1 in {:.1}", self.factor())?;
        }
        if self.detached_ms > 0 {
            let separator = if is_sampled { ", " } else { "" };
            match self.detached_ms {
                ms @ ..100 => write!(f, "{separator}not traced for {ms} ms")?,
                ms => write!(f, "{separator}not traced for {:.1} s", ms as f64 / 1000.0)?,
            }
        }
        Ok(())
    }
}

/// The display options of a map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShowOptions {
    /// Only the last this many entries in the order.
    pub top: Option<u64>,
    /// Divide integers by this.
    pub div: Option<u64>,
    /// The field to sort by ([`Value::fields`]); values without fields, or without this one, have their own order.
    pub by: Option<String>,
    /// The unit of the numbers; text only.
    pub unit: Option<Unit>,
    /// In aligned columns; text only.
    pub table: bool,
}

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds: `1.50 ms`.
    Duration,
    /// Bytes: `1.5 KiB`.
    Size,
}

impl MapView {
    /// The name, which says if the values are estimates.
    pub fn title(&self) -> String {
        self.weights.map_or_else(|| self.name.clone(), |weights| format!("{} ~ ({weights})", self.name))
    }

    /// Is it a result? (A map without keys has one entry, even if that is an empty histogram.)
    pub fn is_result(&self) -> bool {
        let empty = |value: &Value| {
            matches!(value, Value::Hist(hist) if hist.counts.iter().all(|n| *n == 0))
                || matches!(value, Value::Percentiles(of) if of.stats.count == 0)
                || matches!(value, Value::HeatMap(of) if of.columns.is_empty())
        };
        self.entries.iter().any(|(_, value)| !empty(value))
    }
}

/// The counters of a probe for the whole run: what it did, and what it lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Its name; for a probe with many sites, the first one's with the number of others.
    pub probe: String,
    /// Events for the reader, including lost ones.
    pub sent: u64,
    /// Events that found no room in the ring buffer.
    pub dropped: u64,
    /// Runs that did not happen because probes were running on that CPU.
    pub missed: u64,
    /// Updates that full maps refused.
    pub refused: u64,
    /// Updates for which the kernel had no memory at that time.
    pub unstored: u64,
    /// Strings and buffers that `max_strlen` cut.
    pub cut: u64,
    /// Stacks that found no room in their table.
    pub unkept: u64,
    /// Runs that a limit dropped (`--max-overhead`, `--max-events`).
    pub thinned: u64,
    /// Runs that a limit left out, for which others counted (`--max-overhead`).
    #[serde(skip_serializing_if = "is_zero")]
    pub sampled_out: u64,
    /// How often it was detached to keep a limit.
    pub detached: u64,
    /// Reads of memory that failed, and returned zero or nothing; 0 if they are not counted
    /// ([`Invocation::counts_unread`](crate::settings::Invocation)).
    pub unread: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes references
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Counts {
    /// The numbers for documents, each with its name.
    pub fn numbers(&self) -> [(&'static str, u64); 10] {
        let Self { probe: _, sent, dropped, missed, refused, unstored, cut, unkept, thinned, sampled_out, detached, unread: _ } = *self;
        [
            ("sent", sent),
            ("dropped", dropped),
            ("missed", missed),
            ("refused", refused),
            ("unstored", unstored),
            ("cut", cut),
            ("unkept", unkept),
            ("thinned", thinned),
            ("sampled_out", sampled_out),
            ("detached", detached),
        ]
    }

    /// Was nothing lost?
    pub fn complete(&self) -> bool {
        let Self { probe: _, sent: _, dropped, missed, refused, unstored, cut, unkept, thinned, sampled_out, detached, unread: _ } = self;
        [dropped, missed, refused, unstored, cut, unkept, thinned, sampled_out, detached].into_iter().all(|n| *n == 0)
    }
}
