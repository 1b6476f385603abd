//! `--otlp`: the maps of a run as metrics and its output as logs, for a collector of OpenTelemetry, by HTTP.
//!
//! - `config`: the address, and the environment
//! - `messages`: from [`metrics`](crate::metrics) and [`Output`](crate::output::Output) to the messages of OTLP
//! - `client`: HTTP, with [`tls`](crate::tls) for `https`; `resolve` finds addresses
//! - `send`: a thread for each signal; `mailbox`: the queue and the events that these threads wait for
//!
//! Nothing here delays the run: a log record that finds no room in the queue is dropped and counted. Metrics have no
//! queue, because a later export replaces one that failed.
//!
//! The encoding is written by hand instead of generated: rbt uses some thirty fields of the messages, and the crates
//! `opentelemetry-proto` and `prost` would add the types of gRPC and of the SDK. rbt does not export spans
//! yet, and does not export profiles because that signal of OTLP is not stable.

mod client;
mod config;
mod mailbox;
mod messages;
mod resolve;
mod send;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Failure, reason};
use crate::metrics::Metrics;
use crate::runtime::{Listener, Scrapes};
use crate::state::State;
use crate::streams::to_stderr;
use crate::system::machine::container::Container;
use crate::value::Value;
use client::Client;
pub use config::Config;
use mailbox::Mailbox;
use messages::Heading;
use send::{LogCounts, LogSender, MetricSender};

/// How long the threads may exceed their deadline.
const GRACE_PERIOD: Duration = Duration::from_millis(500);

/// The export of a run.
pub struct Export {
    config: Config,
    log_counts: Arc<LogCounts>,
    logs: Option<Sender>,
    metrics: Option<Sender>,
    warn: bool,
}

/// A thread that sends.
struct Sender {
    mailbox: Arc<Mailbox>,
    done: Receiver<bool>,
}

impl Export {
    /// Starts to export the output and the counts of the run, which traces only this container, if any.
    ///
    /// # Errors
    /// Those of the system; a certificate cannot be used.
    pub fn start(config: Config, metrics: Metrics, scrapes: Arc<Scrapes>, traced: Option<&Container>, warn: bool) -> Result<Self, Failure> {
        let heading = Arc::new(heading(&config, scrapes.blank(), traced));
        let log_counts = Arc::new(LogCounts::default());
        let logs = config.logs.clone().map(|to| {
            let client = Client::new(to)?;
            let mailbox = Arc::new(Mailbox::default());
            let (heading, log_counts) = (heading.clone(), log_counts.clone());
            let (batch, delay) = (config.batch.min(config.queue), config.delay);
            let sender = LogSender { client, heading, mailbox: mailbox.clone(), log_counts, batch, delay, warn };
            spawn("rbt-otlp-logs", mailbox, move || {
                sender.run();
                true
            })
        });
        let metrics = config.metrics.clone().map(|to| {
            let client = Client::new(to)?;
            let mailbox = Arc::new(Mailbox::default());
            let (heading, log_counts, interval, delta) = (heading.clone(), log_counts.clone(), config.interval, config.delta);
            let queue = mailbox.clone();
            let sender = MetricSender { client, heading, mailbox: queue, log_counts, scrapes, metrics, interval, delta, warn };
            spawn("rbt-otlp-metrics", mailbox, move || sender.run())
        });
        Ok(Self { log_counts, logs: logs.transpose()?, metrics: metrics.transpose()?, config, warn })
    }

    /// Takes the output of the run; none if no logs are wanted.
    pub fn listener(&self) -> Option<Listener> {
        let (mailbox, log_counts) = (self.logs.as_ref()?.mailbox.clone(), self.log_counts.clone());
        let (max_items, batch) = (self.config.queue, self.config.batch.min(self.config.queue));
        Some(Box::new(move |output, source| {
            if let Some(record) = messages::log(output, source, send::now())
                && !mailbox.push(record, max_items, batch)
            {
                LogCounts::add(&log_counts.overflowed, 1);
            }
        }))
    }

    /// Called when the run is over: sends the rest, for at most the duration of a request, and reports losses.
    pub fn finish(self) {
        let mut waited: Vec<(&Sender, Instant)> = Vec::new();
        let limits = [self.config.logs.as_ref(), self.config.metrics.as_ref()].map(|to| to.map(|to| to.timeout).unwrap_or_default());
        let now = Instant::now();
        for (sender, limit) in [&self.logs, &self.metrics].into_iter().zip(limits) {
            if let Some(sender) = sender {
                sender.mailbox.end(now + limit);
                waited.push((sender, now + limit + GRACE_PERIOD));
            }
        }
        let in_time = |(sender, until): &(&Sender, Instant)| {
            let left = until.saturating_duration_since(Instant::now());
            // without an answer, the thread has panicked
            !matches!(sender.done.recv_timeout(left), Ok(false) | Err(RecvTimeoutError::Timeout))
        };
        let done: Vec<bool> = waited.iter().map(in_time).collect();
        let metrics_sent = self.metrics.is_none() || done.last().copied().unwrap_or(true);
        self.report(metrics_sent);
    }

    fn report(&self, metrics_sent: bool) {
        let log_counts = &self.log_counts;
        let (overflowed, refused) = (LogCounts::get(&log_counts.overflowed), LogCounts::get(&log_counts.refused));
        let waiting = self.logs.as_ref().map_or(0, |logs| logs.mailbox.unsent());
        let lost = [(overflowed, "found no room in the queue"), (refused, "were refused"), (waiting, "were not sent in time")];
        let parts: Vec<String> = lost.iter().filter(|(n, _)| *n > 0).map(|(n, how)| format!("{n} {how}")).collect();
        if !parts.is_empty() && self.warn {
            let all = overflowed + refused + waiting + LogCounts::get(&log_counts.sent);
            to_stderr(&format!("warning: --otlp: of {all} log records, {}\n", parts.join(", ")));
        }
        if !metrics_sent && self.warn {
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
        text("host.name", &state.host),
        text("host.arch", machine),
        text("os.type", "linux"),
        text("os.version", &state.kernel),
    ];
    resource.extend(messages::container_attributes(traced).iter().map(|(name, value)| text(name, value)));
    for (name, value) in &config.resource {
        resource.retain(|(known, _)| known != name);
        resource.push(text(name, value));
    }
    Heading::new(&resource, &[text("rbt.script.name", &state.script.name), text("rbt.script.sha256", &state.script.sha256)])
}
