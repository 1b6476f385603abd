//! A value in user space, decoded from a record or a map, ready for rendering.
//!
//! [`Value`] is closed: each renderer matches all of it.

use serde::{Deserialize, Serialize};

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
        #[serde(with = "crate::state::text::float")]
        value: f64,
        /// Of 4 bytes: its shortest decimal form has fewer digits.
        single: bool,
    },
    /// A pointer: `0x…`.
    Ptr(u64),
    /// An enumeration's value, with its name where the value has one.
    Enum {
        /// The variant's name.
        name: Option<String>,
        /// Its value.
        value: i64,
    },
    /// A string's bytes without the NUL; `cut` when no NUL was found within its capacity, so that it may have been longer.
    Str {
        /// As read; not necessarily UTF-8.
        #[serde(rename = "text", with = "crate::state::text::bytes")]
        bytes: Vec<u8>,
        /// Longer than its capacity.
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
    /// What a tag decoded to (symbol, address, time, user, path): its text is all there is to it.
    Text(String),
    /// A call stack.
    Stack(Stack),
    /// A histogram's buckets.
    #[serde(skip)]
    Hist(Hist),
    /// `stats()`.
    #[serde(skip)]
    Stats(Stats),
    /// `avg()`: rendered as an integer.
    #[serde(skip)]
    Avg(Stats),
    /// `percentiles()`.
    #[serde(skip)]
    Percentiles(Percentiles),
    /// `tseries()`.
    #[serde(skip)]
    Series(Series),
    /// `heatmap()`.
    #[serde(skip)]
    HeatMap(HeatMap),
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

    /// The named numbers of an aggregation that has several: what it is shown by, and can be sorted by.
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
    /// How many values.
    pub count: u64,
    /// Their sum, in two's complement when `signed`.
    pub total: u64,
    /// Sign of what was summed.
    pub signed: bool,
}

impl Stats {
    /// Integer division that truncates toward zero; of no values, zero.
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

/// A histogram's scale decides its labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// `hist(n, k)`: 2^k buckets per power of two.
    Log2 {
        /// The literal k, 0 to 5.
        k: u8,
    },
    /// `lhist(n, min, max, step)`.
    Linear {
        /// Lower bound of the first inner bucket.
        min: i64,
        /// Upper bound of the last inner bucket.
        max: i64,
        /// Width of an inner bucket.
        step: i64,
    },
}

/// All buckets in index order, zeros included. Index arithmetic: `language.md`'s rules, kept in `builtins/hist.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hist {
    /// How index and bounds relate.
    pub scale: Scale,
    /// Count of each bucket.
    pub counts: Vec<u64>,
}

/// Points of a distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Percentiles {
    /// How many values, and their sum.
    pub stats: Stats,
    /// Names and values, ascending: `min`, `p50`, …, `max`; zeros where there is no value.
    pub points: Vec<(&'static str, Value)>,
    /// What stands for the values, ascending, and how many of them each stands for: any other point is found by it.
    pub samples: Vec<(i128, u64)>,
}

/// A series of intervals of equal length.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Their length, nanoseconds.
    pub interval: u64,
    /// Start (nanoseconds since 1970) and value of each interval that has one, ascending.
    pub buckets: Vec<(i128, Value)>,
}

/// Histograms of intervals of equal length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeatMap {
    /// Length of the intervals, nanoseconds.
    pub interval: u64,
    /// How index and bounds of a bucket relate.
    pub scale: Scale,
    /// Start (nanoseconds since 1970) and the counts of all buckets of each interval that has values, ascending.
    pub columns: Vec<(i128, Vec<u64>)>,
}

/// Kinds of [`MapView`] whose values take several lines each.
pub const PICTURES: &[&str] = &["hist", "tseries", "heatmap"];

/// How frames are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StackMode {
    /// `        symbol+offset`.
    Bpftrace,
    /// As `perf script` does.
    Perf,
    /// Addresses only.
    Raw,
    /// Build id and file offset.
    BuildId,
}

/// A call stack, leaf first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stack {
    /// How it is written.
    pub mode: StackMode,
    /// True for kernel frames.
    pub kernel: bool,
    /// Leaf first; inlined frames stand before the frame they were inlined into.
    pub frames: Vec<Frame>,
}

/// A frame of a stack.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Frame {
    /// The instruction's address (user: in the process's memory).
    pub addr: u64,
    /// The function, demangled where asked; none when unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    /// Bytes from the function's start.
    pub offset: u64,
    /// The binary or kernel module that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Where the function is unknown: the address in the module's own terms, as `addr2line` takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<u64>,
    /// Source file and line, where debug information is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<(String, u32)>,
    /// Was inlined into the frame after it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub inlined: bool,
    /// It is of an interpreted function: `source` is always there, and its line is 0 where it is unknown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub interpreted: bool,
    /// In build-id mode: the id in hex, and the offset in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build_id: Option<(String, u64)>,
}

impl Frame {
    /// `module+0xADDRESS`, where only that is known.
    pub fn in_module(&self) -> Option<String> {
        let module = self.module.as_ref().filter(|_| self.symbol.is_none())?;
        let name = module.rsplit('/').next().unwrap_or(module);
        Some(format!("{name}+{:#x}", self.within?))
    }
}

/// A place in the script, as messages name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pos {
    /// File's name, `stdin` for a program on the command line.
    pub file: String,
    /// From 1.
    pub line: u32,
    /// From 1.
    pub col: u32,
    /// The line where it ends, and the column behind it there; 0: not known.
    #[serde(default)]
    pub end: (u32, u32),
}

/// A map, read and ready to be shown: entries as they came, the renderer sorts.
#[derive(Clone, Debug, PartialEq)]
pub struct MapView {
    /// With its `@`.
    pub name: String,
    /// JSON's `type`: `map`, `stats`, `hist`, `percentiles`, `tseries`, `heatmap`.
    pub kind: &'static str,
    /// False for a scalar, which has exactly one entry with key [`Value::None`].
    pub keyed: bool,
    /// False for a scalar that was never set, or cleared since.
    pub set: bool,
    /// Key and value.
    pub entries: Vec<(Value, Value)>,
    /// What `print` was told.
    pub show: ShowOptions,
}

/// How a map is to be shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShowOptions {
    /// Only the last this many entries in the order.
    pub top: Option<u64>,
    /// Divide integers by this.
    pub div: Option<u64>,
    /// The field to sort by ([`Value::fields`]); of values without fields, or without this one, their own order.
    pub by: Option<String>,
    /// What the numbers count; text only.
    pub unit: Option<Unit>,
    /// In aligned columns; text only.
    pub table: bool,
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds: `1.50 ms`.
    Duration,
    /// Bytes: `1.5 KiB`.
    Size,
}

impl MapView {
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

/// What a probe did, and what it could not do, in the whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Its name; of a probe with many sites, the first's and how many more.
    pub probe: String,
    /// Events for the reader, those that were lost included.
    pub sent: u64,
    /// Events that found no room in the ring buffer.
    pub dropped: u64,
    /// Runs that did not happen because probes were running on that CPU.
    pub missed: u64,
    /// Updates that full maps refused.
    pub refused: u64,
    /// Updates for which the kernel had no memory at that moment.
    pub unstored: u64,
    /// Strings and buffers of which `max_strlen` cut the end.
    pub cut: u64,
    /// Stacks that found no room in their table.
    pub unkept: u64,
    /// Runs that a limit dropped (`--max-overhead`, `--max-events`).
    pub thinned: u64,
    /// How often it was detached to keep a limit.
    pub detached: u64,
    /// Reads of memory that failed, of which zero or nothing came; 0 where they are not counted ([`Settings::counts_unread`](crate::settings::Settings)).
    pub unread: u64,
}

impl Counts {
    /// The numbers that documents show, each with its name.
    pub fn numbers(&self) -> [(&'static str, u64); 9] {
        let Self { probe: _, sent, dropped, missed, refused, unstored, cut, unkept, thinned, detached, unread: _ } = *self;
        [
            ("sent", sent),
            ("dropped", dropped),
            ("missed", missed),
            ("refused", refused),
            ("unstored", unstored),
            ("cut", cut),
            ("unkept", unkept),
            ("thinned", thinned),
            ("detached", detached),
        ]
    }

    /// Is all of it there?
    pub fn complete(&self) -> bool {
        let Self { probe: _, sent: _, dropped, missed, refused, unstored, cut, unkept, thinned, detached, unread: _ } = self;
        [dropped, missed, refused, unstored, cut, unkept, thinned, detached].into_iter().all(|n| *n == 0)
    }
}
