//! `--otlp`: the maps of a run as metrics, its output as logs, and its spans as traces, for a collector of OpenTelemetry, by HTTP.
//!
//! - `config`: the address, and the environment
//! - `messages`: from [`metrics`](crate::metrics) and [`Output`] to the messages of OTLP; `traces`: from spans
//! - `client`: requests to a collector, by [`http`](crate::http)
//! - `send`: a thread for each signal; `mailbox`: the queue and the events that these threads wait for
//!
//! Nothing here delays the run: a log record that finds no room in the queue is dropped and counted. Metrics have no
//! queue, because a later export replaces one that failed.
//!
//! The encoding is written by hand instead of generated: rbt uses some thirty fields of the messages, and the crates
//! `opentelemetry-proto` and `prost` would add the types of gRPC and of the SDK. rbt does not export profiles, because that signal
//! of OTLP is not stable.

mod client;
mod config;
mod mailbox;
mod messages;
mod send;
mod traces;

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Failure, reason};
use crate::metrics::own::OwnMetric;
use crate::metrics::{Metrics, own};
use crate::output::Output;
use crate::runtime::{Listener, Scrapes};
use crate::state::State;
use crate::streams::to_stderr;
use crate::system::machine::container::Container;
use crate::value::Value;
use client::Client;
pub use config::Config;
use config::{Endpoint, Queue};
use mailbox::Mailbox;
use messages::Heading;
pub use send::HandedOver;
use send::{MetricSender, RecordCounts, RecordSender};
use traces::Traces;

/// How long the threads may exceed their deadline.
const GRACE_PERIOD: Duration = Duration::from_millis(500);

/// The export of a run.
pub struct Export {
    logs: Option<Records>,
    traces: Option<Records>,
    metrics: Option<Sender>,
    /// The timeout of a request for metrics.
    metrics_timeout: Duration,
    warn: bool,
}

/// A thread that sends.
struct Sender {
    mailbox: Arc<Mailbox>,
    done: Receiver<bool>,
}

/// The export of log records or of spans.
struct Records {
    signal: &'static Signal,
    sender: Sender,
    counts: Arc<RecordCounts>,
    queue: Queue,
    timeout: Duration,
}

/// A signal whose records wait in a queue.
pub struct Signal {
    /// A name, for that of the thread and for messages.
    name: &'static str,
    /// One of its records.
    item: &'static str,
    /// The metric that counts them.
    metric: OwnMetric,
}

static LOGS: Signal = Signal { name: "logs", item: "log record", metric: own::OTLP_LOG_RECORDS };
static TRACES: Signal = Signal { name: "spans", item: "span", metric: own::OTLP_SPANS };

/// Takes a record.
type Taker = Box<dyn Fn(Vec<u8>)>;

impl Records {
    fn start(signal: &'static Signal, to: Endpoint, queue: Queue, heading: &Arc<Heading>, warn: bool) -> Result<Self, Failure> {
        let (mailbox, counts, timeout) = (Arc::new(Mailbox::default()), Arc::new(RecordCounts::default()), to.timeout);
        let Queue { batch, delay, .. } = queue;
        let (client, heading) = (Client::new(to)?, heading.clone());
        let sender = RecordSender {
            what: signal.name,
            item: signal.item,
            client,
            heading,
            mailbox: mailbox.clone(),
            counts: counts.clone(),
            batch,
            delay,
            warn,
        };
        let sender = spawn(&format!("rbt-otlp-{}", signal.name), mailbox, move || {
            sender.run();
            true
        })?;
        Ok(Self { signal, sender, counts, queue, timeout })
    }

    /// Puts records into the queue, and counts those that find no room.
    fn taker(&self) -> Taker {
        let (mailbox, counts, queue) = (self.sender.mailbox.clone(), self.counts.clone(), self.queue);
        Box::new(move |record| {
            if !mailbox.push(record, queue.max_items, queue.batch) {
                RecordCounts::add(&counts.overflowed, 1);
            }
        })
    }

    fn report(&self) {
        let counts = &self.counts;
        let (overflowed, refused) = (RecordCounts::get(&counts.overflowed), RecordCounts::get(&counts.refused));
        let waiting = self.sender.mailbox.unsent();
        let lost = [(overflowed, "found no room in the queue"), (refused, "were refused"), (waiting, "were not sent in time")];
        let parts: Vec<String> = lost.iter().filter(|(n, _)| *n > 0).map(|(n, how)| format!("{n} {how}")).collect();
        if !parts.is_empty() {
            let all = overflowed + refused + waiting + RecordCounts::get(&counts.sent);
            to_stderr(&format!("warning: --otlp: of {all} {}s, {}\n", self.signal.item, parts.join(", ")));
        }
    }
}

impl Export {
    /// Starts to export the output and the counts of the run, which traces only this container, if any. Runs of a script that
    /// continue its series share `handed_over`.
    ///
    /// # Errors
    /// Those of the system; a certificate cannot be used.
    pub fn start(
        config: Config,
        metrics: Metrics,
        scrapes: &Arc<Scrapes>,
        handed_over: &HandedOver,
        traced: Option<&Container>,
        warn: bool,
    ) -> Result<Self, Failure> {
        let heading = Arc::new(heading(&config, scrapes.blank(), traced));
        let records = |signal, to: Option<Endpoint>, queue| to.map(|to| Records::start(signal, to, queue, &heading, warn)).transpose();
        let logs = records(&LOGS, config.logs, config.log_queue)?;
        let traces = records(&TRACES, config.traces, config.span_queue)?;
        let counts: Vec<_> = [&logs, &traces].into_iter().flatten().map(|r| (r.signal, r.counts.clone())).collect();
        handed_over.records.add(&counts);
        let starts = handed_over.starts.clone();
        let metrics_timeout = config.metrics.as_ref().map(|to| to.timeout).unwrap_or_default();
        let metrics = config.metrics.map(|to| {
            let client = Client::new(to)?;
            let mailbox = Arc::new(Mailbox::default());
            let (heading, interval, delta, queue) = (heading.clone(), config.interval, config.delta, mailbox.clone());
            let reader = scrapes.reader(false);
            let sender = MetricSender { client, heading, mailbox: queue, counts, reader, starts, metrics, interval, delta, warn };
            spawn("rbt-otlp-metrics", mailbox, move || sender.run())
        });
        Ok(Self { logs, traces, metrics: metrics.transpose()?, metrics_timeout, warn })
    }

    /// Takes the output of the run; none if neither logs nor spans are wanted.
    pub fn listener(&self) -> Option<Listener> {
        let (logs, spans) = (self.logs.as_ref().map(Records::taker), self.traces.as_ref().map(Records::taker));
        if logs.is_none() && spans.is_none() {
            return None;
        }
        let mut traces = Traces::default();
        Some(Box::new(move |output, source| match (output, &spans, &logs) {
            (Output::Span(span), Some(take), _) => traces.message(span, source).into_iter().for_each(take),
            (Output::Span(_), None, _) | (_, _, None) => {}
            (output, _, Some(take)) => messages::log(output, source, send::now()).into_iter().for_each(take),
        }))
    }

    /// Called when the run is over: sends the rest, for at most the duration of a request, and reports losses.
    pub fn finish(self) {
        let records: Vec<&Records> = [&self.logs, &self.traces].into_iter().flatten().collect();
        let senders = records.iter().map(|r| (&r.sender, r.timeout)).chain(self.metrics.iter().map(|m| (m, self.metrics_timeout)));
        let now = Instant::now();
        let mut waited: Vec<(&Sender, Instant)> = Vec::new();
        for (sender, limit) in senders {
            sender.mailbox.end(now + limit);
            waited.push((sender, now + limit + GRACE_PERIOD));
        }
        let in_time = |(sender, until): &(&Sender, Instant)| {
            let left = until.saturating_duration_since(Instant::now());
            // without an answer, the thread has panicked
            !matches!(sender.done.recv_timeout(left), Ok(false) | Err(RecvTimeoutError::Timeout))
        };
        let done: Vec<bool> = waited.iter().map(in_time).collect();
        if !self.warn {
            return;
        }
        records.iter().for_each(|records| records.report());
        if self.metrics.is_some() && done.last() == Some(&false) {
            to_stderr("warning: --otlp: the last metrics were not sent in time\n");
        }
    }
}

fn spawn(name: &str, mailbox: Arc<Mailbox>, run: impl FnOnce() -> bool + Send + 'static) -> Result<Sender, Failure> {
    let (done_sender, done) = channel();
    let thread = thread::Builder::new().name(name.into()).spawn(move || {
        let _ = done_sender.send(run());
    });
    thread.map_err(|e| Failure::new(format!("--otlp: {}", reason(&e))))?;
    Ok(Sender { mailbox, done })
}

/// Information about the machine and the script, by the names of OpenTelemetry's semantic conventions.
fn heading(config: &Config, state: &State, traced: Option<&Container>) -> Heading {
    let text = |name: &str, value: &str| (name.to_string(), Value::Text(value.into()));
    let machine = match state.machine.as_str() {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let mut resource = vec![
        text("service.name", "rbt"),
        text("service.version", &state.rbt),
        text("service.instance.id", &instance_id(&state.script.name)),
        text("host.name", &state.host),
        text("host.arch", machine),
        text("os.type", "linux"),
        text("os.version", &state.kernel),
        // Prometheus keeps the attributes of the resource, but not those of the scope
        text("rbt.script.name", &state.script.name),
    ];
    resource.extend(messages::container_attributes(traced).iter().map(|(name, value)| text(name, value)));
    for (name, value) in &config.resource {
        resource.retain(|(known, _)| known != name);
        resource.push(text(name, value));
    }
    Heading::new(&resource, &[text("rbt.script.name", &state.script.name), text("rbt.script.sha256", &state.script.sha256)])
}

/// A UUID of this script in this process, so that series of several scripts and machines differ. It stays the same when a script is reloaded, whose
/// series continue. The version is 8: partly random, partly the script's name.
fn instance_id(script: &str) -> String {
    static PROCESS: LazyLock<[u64; 2]> =
        LazyLock::new(|| [RandomState::new(), RandomState::new()].map(|state| state.hash_one(std::process::id())));
    let part = |of: u64| {
        let mut hasher = DefaultHasher::new();
        (of, script).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    let [high, low] = PROCESS.map(part);
    let bits = (high << 64 | low) & !(0xf << 76) & !(0b11 << 62) | 8 << 76 | 0b10 << 62;
    let hex = format!("{bits:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| hex.get(range).unwrap_or_default());
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_have_uuids() {
        let (a, b) = (instance_id("a.bt"), instance_id("b.bt"));
        assert!(a != b && a == instance_id("a.bt"));
        assert_eq!(a.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert!(a.as_bytes()[14] == b'8' && "89ab".contains(char::from(a.as_bytes()[19])), "{a}");
    }
}
