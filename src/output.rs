//! The messages of a run: [`Output`] is everything that a run can report. A renderer decides where it goes (output or standard
//! error) and how it looks.

use crate::state::State;
use crate::timeline::{Phase, Span};
use crate::value::{Counts, MapView, Pos, Value};

/// The kind of an [`Output::Problem`] that is about a file or a command of the script, which JSON does not have.
pub const MESSAGE: &str = "error";

/// A message of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// `printf`, `time`, `cat`, `join`, `system`: text under JSON's `type` of this name, with a newline after it in text mode where `newline`.
    Text {
        /// JSON's `type`.
        kind: &'static str,
        /// Verbatim.
        data: Vec<u8>,
        /// Text mode ends it with a newline.
        newline: bool,
    },
    /// `print(value)`.
    Value(Value),
    /// `print(@map)` and the dump at exit.
    Map(MapView),
    /// `errorf`, `warnf`, a failed helper, a division by zero.
    Problem {
        /// JSON's `type`: `errorf`, `warnf`, `helper_error`, `runtime_error`; or [`MESSAGE`].
        kind: &'static str,
        /// What happened.
        msg: String,
        /// The helper and what it returned.
        helper: Option<(String, i64)>,
        /// Where in the script.
        pos: Pos,
        /// The script's line there, for text.
        line: String,
    },
    /// All probes are attached.
    Attached {
        /// How many.
        probes: u64,
    },
    /// Events that found no room in the ring buffer since the last report.
    Lost {
        /// How many.
        events: u64,
    },
    /// A step to keep the limit of the overhead.
    Limited(Limited),
    /// What each probe did, and what it could not do, when the run is over.
    Counts(Vec<Counts>),
    /// The run is over, maps follow: two blank lines in text.
    End,
    /// All that the run has counted, where the format asks for it.
    State(Box<State>),
    /// A span of a timeline begins, or ends, or is left open.
    Span(Span),
    /// Of a script's tests and benchmarks.
    Test(TestEvent),
}

/// What is known of the moment in which a script said something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// When, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The name of the thread.
    pub comm: String,
    /// The probe's site, as `probe` has it.
    pub probe: String,
}

impl Output {
    /// Is it a result? (The time of day above it and a map without entries are not.)
    pub fn is_result(&self) -> bool {
        match self {
            Output::Text { kind, .. } => *kind != "time",
            Output::Map(view) => view.is_result(),
            Output::Span(span) => span.phase != Phase::Begin,
            Output::Value(_) | Output::Problem { .. } | Output::Test(_) => true,
            Output::Attached { .. } | Output::Lost { .. } | Output::Limited(_) | Output::Counts(_) | Output::End | Output::State(_) => {
                false
            }
        }
    }

    /// Does it say that something went wrong? (A warning of the script's own does not.)
    pub fn is_error(&self) -> bool {
        matches!(self, Output::Problem { kind, .. } if *kind != "warnf")
    }
}

/// A step to keep the limit of the overhead, or back.
#[derive(Clone, Debug, PartialEq)]
pub struct Limited {
    /// The probe, or those that it is sampled and detached with.
    pub probe: String,
    /// What is done to it.
    pub step: Step,
    /// What it cost just before, in percent of a CPU.
    pub share: f64,
    /// What all probes together may cost.
    pub limit: f64,
}

/// See [`Limited`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// One in this many runs passes, at random.
    Sample {
        /// 1: all.
        one_in: u64,
    },
    /// It is detached.
    Detach {
        /// It stays detached: what is missed would make wrong results of what follows.
        for_good: bool,
    },
    /// It is attached again.
    Attach,
}

/// What a run left behind: maps that were asked for, and what is missing in them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FinalResults {
    /// As they were after `end` had run, but for what `end` itself emptied: that is as it was just before. In the order of
    /// their names as they were asked for.
    pub maps: Vec<MapView>,
    /// How often each was emptied before the end: what is there came after the last time.
    pub emptied: Vec<u64>,
    /// What each probe has done and has not.
    pub counts: Vec<Counts>,
    /// Probes that could not be attached, though the script names them.
    pub not_attached: Vec<String>,
}

/// What is said of a script's tests and benchmarks (`--test`, `--bench`), in the order in which it happens.
#[derive(Clone, Debug, PartialEq)]
pub enum TestEvent {
    /// Tests are about to be run.
    Tests {
        /// How many.
        tests: usize,
    },
    /// A test is about to be run.
    Started {
        /// Its name.
        name: String,
    },
    /// It was run.
    Tested {
        /// Its name.
        name: String,
        /// Nothing was wrong.
        passed: bool,
        /// How long it took.
        took: std::time::Duration,
        /// What it said.
        output: Vec<u8>,
    },
    /// All tests were run.
    Over {
        /// How many.
        tests: usize,
        /// Names of those that did not pass.
        failed: Vec<String>,
    },
    /// Benchmarks are about to be run.
    Benches {
        /// Characters of the longest name.
        widest: usize,
    },
    /// One was run.
    Benched {
        /// Its name.
        name: String,
        /// See [`TestEvent::Benches`].
        widest: usize,
        /// Nanoseconds a time.
        average: u64,
        /// How many times.
        times: u64,
    },
    /// One returned something else than 0.
    BenchSkipped {
        /// Its name.
        name: String,
        /// See [`TestEvent::Benches`].
        widest: usize,
    },
    /// One reported an error, or asked for the end.
    BenchFailed {
        /// Its name.
        name: String,
        /// See [`TestEvent::Benches`].
        widest: usize,
        /// What it said.
        output: Vec<u8>,
    },
}
