//! The spans of a script as those of OTLP: opentelemetry/proto/trace/v1 of opentelemetry-proto 1.5.
//!
//! A span without an enclosing one on its track begins a trace. The IDs are random.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use super::messages::{any, attribute};
use crate::protobuf::Message;
use crate::render::TextFormatter;
use crate::timeline::{Phase, Span, Track};

/// `SPAN_KIND_INTERNAL`
const INTERNAL: u64 = 1;

/// Creates the messages, with the IDs of the open spans.
#[derive(Default)]
pub struct Traces {
    random: RandomState,
    created: u64,
    /// By depth.
    open: BTreeMap<Track, Vec<Option<Ids>>>,
}

#[derive(Clone, Copy)]
struct Ids {
    trace: [u64; 2],
    span: u64,
    parent: Option<u64>,
}

impl Traces {
    /// `Span`; none if it only begins.
    pub fn message(&mut self, span: &Span) -> Option<Vec<u8>> {
        if span.phase == Phase::Begin {
            let ids = self.create(&span.track, span.depth);
            let open = self.open.entry(span.track.clone()).or_default();
            open.resize(span.depth, None);
            open.push(Some(ids));
            return None;
        }
        let ids = self.take(&span.track, span.depth);
        let mut to = Message::default();
        to.bytes(1, &ids.trace.map(u64::to_be_bytes).concat());
        to.bytes(2, &ids.span.to_be_bytes());
        if let Some(parent) = ids.parent {
            to.bytes(4, &parent.to_be_bytes());
        }
        to.text(5, &span.name).uint(6, INTERNAL).fixed(7, time(span.start_ns)).fixed(8, time(span.end_ns));
        let formatter = TextFormatter::default();
        span.values.iter().for_each(|(name, value)| attribute(&mut to, ATTRIBUTES, name, |to| any(value, &formatter, to)));
        match &span.track {
            Track::Thread(tid) | Track::BelowThread(tid, _) => {
                attribute(&mut to, ATTRIBUTES, "thread.id", |to| to.uint(3, u64::from(*tid)));
                attribute(&mut to, ATTRIBUTES, "thread.name", |to| to.text(1, &span.thread.comm));
                attribute(&mut to, ATTRIBUTES, "process.pid", |to| to.uint(3, u64::from(span.thread.pid)));
            }
            Track::Named(_) | Track::Numbered(..) => {}
        }
        if let Some(track) = span.track.name() {
            attribute(&mut to, ATTRIBUTES, "rbt.track", |to| to.text(1, &track));
        }
        if span.phase.is_open() {
            attribute(&mut to, ATTRIBUTES, "rbt.incomplete", |to| to.uint(2, 1));
        }
        Some(to.into_bytes())
    }

    fn create(&mut self, track: &Track, depth: usize) -> Ids {
        let around = depth.checked_sub(1).and_then(|depth| *self.open.get(track)?.get(depth)?);
        let trace = around.map_or_else(|| [self.id(), self.id()], |ids| ids.trace);
        Ids { trace, span: self.id(), parent: around.map(|ids| ids.span) }
    }

    /// The IDs of a span that has ended.
    fn take(&mut self, track: &Track, depth: usize) -> Ids {
        let ids = self.open.get_mut(track).and_then(|open| open.get_mut(depth)?.take());
        let ids = ids.unwrap_or_else(|| self.create(track, depth));
        if self.open.get(track).is_some_and(|open| open.iter().all(Option::is_none)) {
            self.open.remove(track);
        }
        ids
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
