//! The metrics of rbt itself. No metric of a map has one of their names.

use super::Kind;

/// A metric of rbt itself.
#[derive(Debug)]
pub struct OwnMetric {
    /// The name without the suffix of its type.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// One sentence.
    pub help: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
}

/// Defines the metrics, and the table of all of them.
macro_rules! own_metrics {
    ($($id:ident: $name:literal, $kind:ident, $labels:expr, $help:literal;)*) => {
        $(#[doc = $help] pub const $id: OwnMetric = OwnMetric { name: $name, kind: Kind::$kind, help: $help, labels: &$labels };)*
        /// All of them.
        pub const OWN: &[OwnMetric] = &[$($id),*];
    };
}

own_metrics! {
    SENT_EVENTS: "rbt_sent_events", Counter, ["probe"], "Events for the reader, those that were lost included.";
    LOST_EVENTS: "rbt_lost_events", Counter, ["probe"], "Events that found no space in the ring buffer.";
    MISSED_RUNS: "rbt_missed_runs", Counter, ["probe"], "Runs that did not happen, because a probe was running on that CPU.";
    REFUSED_UPDATES: "rbt_refused_updates", Counter, ["probe"], "Updates of maps that were full.";
    CUT_STRINGS: "rbt_cut_strings", Counter, ["probe"], "Strings that were truncated.";
    LOST_STACKS: "rbt_lost_stacks", Counter, ["probe"], "Stacks that found no space.";
    DROPPED_RUNS: "rbt_dropped_runs", Counter, ["probe"], "Runs that a limit dropped.";
    SAMPLED_RUNS: "rbt_sampled_runs", Counter, ["map"], "Runs for which the values of a map stand, if --max-overhead has sampled them.";
    COUNTED_RUNS: "rbt_counted_runs", Counter, ["map"], "Those of these runs that counted.";
    DETACHED_SECONDS: "rbt_detached_seconds", Counter, ["map"], "Time for which probes that the values of a map depend on were detached to keep --max-overhead.";
    PROBE_RUN_SECONDS: "rbt_probe_run_seconds", Counter, ["probe"], "Time that the programs of a probe ran while metrics were requested.";
    PROBE_RUNS: "rbt_probe_runs", Counter, ["probe"], "Runs in that time.";
    UNSHOWN_SERIES: "rbt_unshown_series", Gauge, ["map"], "Series of a map beyond max_series.";
    START_TIME: "rbt_start_time_seconds", Gauge, [], "When the run began, since 1970.";
    SCRIPT_INFO: "rbt_script_info", Gauge, ["script", "sha256", "version"], "The script and the version of rbt.";
    SCRIPT_UP: "rbt_script_up", Gauge, ["script"], "Is the script running?";
    SCRIPT_CURRENT: "rbt_script_current", Gauge, ["script"], "Does it run as its file is now?";
    SCRIPT_ANSWERS: "rbt_script_answers", Gauge, ["script"], "Has it answered this scrape?";
    SCRIPT_FAILURE: "rbt_script_failure_info", Gauge, ["script", "reason"], "Why it does not run as its file is now.";
    SCRIPT_STARTS: "rbt_script_starts", Counter, ["script"], "How often the script was started.";
    SCRIPT_RESETS: "rbt_script_resets", Counter, ["script"], "How often its series began anew, because the run before did not end in time.";
    OTLP_LOG_RECORDS: "rbt_otlp_log_records", Counter, ["outcome"], "Log records that were sent, refused by the collector, or without room in the queue.";
    OTLP_SPANS: "rbt_otlp_spans", Counter, ["outcome"], "Spans that were sent, refused by the collector, or without room in the queue.";
}
