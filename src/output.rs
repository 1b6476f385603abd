//! The messages of a run: [`Output`] is everything that a run can report. A renderer decides where it goes (output or standard
//! error) and how it looks.

use crate::state::State;
use crate::timeline::{Phase, Span};
use crate::value::{Counts, MapView, Pos, Value};

/// The kind of an [`Output::Problem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// `errorf`.
    Errorf,
    /// `warnf`.
    Warnf,
    /// A helper failed.
    Helper,
    /// The program or the run failed in another way, such as a division by zero.
    Runtime,
    /// Stacks end early.
    IncompleteStacks,
    /// A file or a command of the script failed. JSON lacks this kind, as in bpftrace.
    Command,
}

impl ProblemKind {
    /// The name: `type` in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Errorf => "errorf",
            Self::Warnf => "warnf",
            Self::Helper => "helper_error",
            Self::Runtime => "runtime_error",
            Self::IncompleteStacks => "incomplete_stacks",
            Self::Command => "error",
        }
    }

    /// Is the text from the script?
    pub fn is_script(self) -> bool {
        matches!(self, Self::Errorf | Self::Warnf)
    }

    /// Is it a warning, which `--no-warnings` drops?
    pub fn is_warning(self) -> bool {
        match self {
            Self::Warnf | Self::Helper | Self::Runtime | Self::IncompleteStacks => true,
            Self::Errorf | Self::Command => false,
        }
    }
}

/// A message of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// `printf`, `time`, `cat`, `join`, `system`: text with this `type` in JSON; text mode adds a newline if `newline`
    /// is set.
    Text {
        /// JSON's `type`.
        kind: &'static str,
        /// Verbatim.
        data: Vec<u8>,
        /// Text mode appends a newline.
        newline: bool,
    },
    /// `print(value)`.
    Value(Value),
    /// `print(@map)` and the dump at exit.
    Map(MapView),
    /// `errorf`, `warnf`, a failed helper, a division by zero.
    Problem {
        /// Its kind.
        kind: ProblemKind,
        /// The message.
        msg: String,
        /// The helper and its return value.
        helper: Option<(String, i64)>,
        /// Its place in the script.
        pos: Pos,
        /// The line of the script, for text.
        line: String,
        /// How often it occurred, by reason.
        counts: Vec<(&'static str, u64)>,
    },
    /// All probes are attached.
    Attached {
        /// Their number.
        probes: u64,
    },
    /// Events that found no room in the ring buffer since the last report.
    Lost {
        /// Their number.
        events: u64,
    },
    /// A step to enforce the limit of the overhead.
    Limited(Limited),
    /// The counters of each probe, when the run is over.
    Counts(Vec<Counts>),
    /// The run is over, and maps follow: two blank lines in text.
    End,
    /// The complete state of the run, if the format needs it.
    State(Box<State>),
    /// A span of a timeline begins, ends, or is left open.
    Span(Span),
    /// An event of a script's tests and benchmarks.
    Test(TestEvent),
}

/// The origin of an output of the script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The time, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The name of the thread.
    pub comm: String,
    /// The site of the probe, as `probe` returns it.
    pub probe: String,
    /// The ID of the process's cgroup (version 2).
    pub cgroup: u64,
}

impl Output {
    /// A problem at a place in the script.
    pub fn problem(kind: ProblemKind, msg: String, pos: &Pos, line: &str) -> Self {
        Output::Problem { kind, msg, helper: None, pos: pos.clone(), line: line.into(), counts: Vec::new() }
    }

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

    /// Does it report an error? (A warning of the script does not.)
    pub fn is_error(&self) -> bool {
        matches!(self, Output::Problem { kind, .. } if *kind != ProblemKind::Warnf)
    }
}

/// A step to enforce the limit of the overhead or of the events, or its reversal.
#[derive(Clone, Debug, PartialEq)]
pub struct Limited {
    /// The probe, or those with which it is sampled and detached.
    pub probe: String,
    /// The step.
    pub step: Step,
    /// Its cost just before, in percent of a CPU.
    pub share: f64,
    /// The limit for all probes together.
    pub limit: f64,
}

/// See [`Limited`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// One in this many runs passes, at random.
    Sample {
        /// 1: all runs pass.
        one_in: u64,
    },
    /// It is detached.
    Detach {
        /// It stays detached, because missed events would make later results wrong.
        permanent: bool,
    },
    /// It is detached for good, as others are that use the same maps.
    DetachToo,
    /// It is attached again.
    Attach,
    /// It cannot be attached again.
    StayDetached {
        /// Its file has been replaced or modified since the start.
        changed: bool,
    },
    /// Events are dropped to keep the limit of the events.
    Drop {
        /// The limit per second for all probes together.
        max_events: u64,
    },
    /// No event has been dropped for some time.
    Pass {
        /// The same.
        max_events: u64,
    },
}

/// The results of a run: the requested maps, and the losses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FinalResults {
    /// The maps after `end` has run; maps that `end` cleared have their contents from before that. In the order of the
    /// requested names.
    pub maps: Vec<MapView>,
    /// How often each map was cleared before the end: it contains the data since the last time.
    pub emptied: Vec<u64>,
    /// The names of maps whose values lost events can make too high as well as too low, and whose elements may be wrong then.
    pub unbounded: Vec<String>,
    /// The counters of each probe.
    pub counts: Vec<Counts>,
    /// Probes of the script that could not be attached.
    pub not_attached: Vec<String>,
    /// The number of inputs that a sum lacks.
    pub omitted: usize,
}

/// An event of a script's tests and benchmarks (`--test`, `--bench`), in order of time.
#[derive(Clone, Debug, PartialEq)]
pub enum TestEvent {
    /// The tests will run.
    Tests {
        /// Their number.
        tests: usize,
    },
    /// A test starts.
    Started {
        /// Its name.
        name: String,
    },
    /// A test has run.
    Tested {
        /// Its name.
        name: String,
        /// It passed.
        passed: bool,
        /// Its duration.
        took: std::time::Duration,
        /// Its output.
        output: Vec<u8>,
    },
    /// All tests have run.
    Over {
        /// Their number.
        tests: usize,
        /// Names of failed tests.
        failed: Vec<String>,
    },
    /// The benchmarks will run.
    Benches {
        /// Length of the longest name in characters.
        widest: usize,
    },
    /// A benchmark has run.
    Benched {
        /// Its name.
        name: String,
        /// See [`TestEvent::Benches`].
        widest: usize,
        /// Nanoseconds per iteration.
        average: u64,
        /// Number of iterations.
        times: u64,
    },
    /// A benchmark returned a nonzero value.
    BenchSkipped {
        /// Its name.
        name: String,
        /// See [`TestEvent::Benches`].
        widest: usize,
    },
    /// A benchmark reported an error, or requested the end.
    BenchFailed {
        /// Its name.
        name: String,
        /// See [`TestEvent::Benches`].
        widest: usize,
        /// Its output.
        output: Vec<u8>,
    },
}
