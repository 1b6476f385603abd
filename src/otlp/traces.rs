//! The spans of a script as those of OTLP: opentelemetry/proto/trace/v1 of opentelemetry-proto 1.5.
//!
//! A span without an enclosing one on its track begins a trace. The IDs are random.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use super::messages::{RECORD, any, attribute, origin};
use crate::output::Source;
use crate::protobuf::Message;
use crate::render::TextFormatter;
use crate::timeline::{Phase, Span, Track};

/// `SPAN_KIND_INTERNAL`
const INTERNAL: u64 = 1;

/// Creates the messages, with the IDs and origins of the open spans.
#[derive(Default)]
pub struct Traces {
    random: RandomState,
    created: u64,
    /// By depth.
    open: BTreeMap<Track, Vec<Option<Begun>>>,
}

/// A span that has begun.
#[derive(Clone)]
struct Begun {
    trace: [u64; 2],
    span: u64,
    parent: Option<u64>,
    /// What began it.
    source: Source,
}

impl Traces {
    /// `Span`; none if it only begins.
    pub fn message(&mut self, span: &Span, source: Option<&Source>) -> Option<Vec<u8>> {
        if span.phase == Phase::Begin {
            let begun = self.create(&span.track, span.depth, source);
            let open = self.open.entry(span.track.clone()).or_default();
            open.resize_with(span.depth, || None);
            open.push(Some(begun));
            return None;
        }
        let begun = self.take(&span.track, span.depth, source);
        let mut to = Message::with_capacity(RECORD);
        to.bytes(1, &begun.trace.map(u64::to_be_bytes).concat());
        to.bytes(2, &begun.span.to_be_bytes());
        if let Some(parent) = begun.parent {
            to.bytes(4, &parent.to_be_bytes());
        }
        to.text(5, &span.name).uint(6, INTERNAL).fixed(7, time(span.start_ns)).fixed(8, time(span.end_ns));
        let formatter = TextFormatter::default();
        span.values.iter().for_each(|(name, value)| attribute(&mut to, ATTRIBUTES, name, |to| any(value, &formatter, to)));
        let of = match &span.track {
            Track::Thread(tid) | Track::BelowThread(tid, _) => {
                let comm = String::from_utf8_lossy(&span.thread.comm).into_owned();
                // A probe can begin a span of another thread, whose container it does not know.
                let cgroup = if begun.source.tid == *tid { begun.source.cgroup } else { 0 };
                Source { tid: *tid, pid: span.thread.pid, comm, cgroup, ..begun.source }
            }
            Track::Named(_) | Track::Numbered(..) => begun.source,
        };
        origin(&mut to, ATTRIBUTES, &of);
        if let Some(track) = span.track.name() {
            attribute(&mut to, ATTRIBUTES, "rbt.track", |to| to.text(1, &track));
        }
        if span.phase.is_open() {
            attribute(&mut to, ATTRIBUTES, "rbt.incomplete", |to| to.uint(2, 1));
        }
        Some(to.into_bytes())
    }

    fn create(&mut self, track: &Track, depth: usize, source: Option<&Source>) -> Begun {
        let around = depth.checked_sub(1).and_then(|depth| self.open.get(track)?.get(depth)?.as_ref());
        let around = around.map(|around| (around.trace, around.span));
        let trace = around.map_or_else(|| [self.id(), self.id()], |(trace, _)| trace);
        Begun { trace, span: self.id(), parent: around.map(|(_, span)| span), source: source.cloned().unwrap_or_default() }
    }

    /// The IDs and the origin of a span that has ended.
    fn take(&mut self, track: &Track, depth: usize, source: Option<&Source>) -> Begun {
        let begun = self.open.get_mut(track).and_then(|open| open.get_mut(depth)?.take());
        let begun = begun.unwrap_or_else(|| self.create(track, depth, source));
        if self.open.get(track).is_some_and(|open| open.iter().all(Option::is_none)) {
            self.open.remove(track);
        }
        begun
    }

    /// A random number other than 0, which is not a valid ID.
    fn id(&mut self) -> u64 {
        self.created += 1;
        self.random.hash_one(self.created).max(1)
    }
}

/// The field of a span's attributes.
const ATTRIBUTES: u32 = 9;

fn time(ns: i128) -> u64 {
    u64::try_from(ns).unwrap_or_default()
}
