//! `-f perfetto`: a timeline for Perfetto, as a stream of TrackEvents (protos/perfetto/trace/track_event in its sources).
//!
//! Spans are slices on the tracks of their threads, printed text is instants, and the numbers of maps and time series
//! are counters. A name is written once, and later referred to by number. The renderer keeps the names and the tracks,
//! not the events.

use std::collections::BTreeMap;

use super::stack_keys::{self, KeyPart};
use super::style::Style;
use super::value_text;
use super::{RenderOptions, Rendered, Renderer, text};
use crate::diag::plural;
use crate::host::Reader;
use crate::output::Output;
use crate::protobuf::Message;
use crate::timeline::{Phase, Span, Track};
use crate::value::{MapView, Value};

/// Creates the renderer.
pub fn make(options: &RenderOptions) -> Box<dyn Renderer> {
    Box::new(PerfettoRenderer {
        fallback: text::make(&RenderOptions { escape_output: options.escape_messages, ..options.clone() }),
        trailer: options.trunc_trailer.clone().into_bytes(),
        now_ns: 0,
        begun: false,
        tracks: BTreeMap::new(),
        comms: BTreeMap::new(),
        pids: BTreeMap::new(),
        names: InternedNames::default(),
        incomplete_maps: BTreeMap::new(),
        omitted_events: 0,
    })
}

/// Numbers of fields, by message.
mod field {
    pub const PACKET: u32 = 1;
    pub const CLOCK_SNAPSHOT: u32 = 6;
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const INTERNED: u32 = 12;
    pub const SEQUENCE_FLAGS: u32 = 13;
    pub const TRACK_DESCRIPTOR: u32 = 60;

    pub const DESCRIPTOR_UUID: u32 = 1;
    pub const DESCRIPTOR_NAME: u32 = 2;
    pub const DESCRIPTOR_PROCESS: u32 = 3;
    pub const DESCRIPTOR_THREAD: u32 = 4;
    pub const DESCRIPTOR_PARENT: u32 = 5;
    pub const DESCRIPTOR_COUNTER: u32 = 8;
    pub const DESCRIPTOR_CHILD_ORDERING: u32 = 11;
    pub const DESCRIPTOR_RANK: u32 = 12;
    pub const PROCESS_PID: u32 = 1;
    pub const PROCESS_NAME: u32 = 6;
    pub const THREAD_PID: u32 = 1;
    pub const THREAD_TID: u32 = 2;
    pub const THREAD_NAME: u32 = 5;

    pub const ANNOTATION: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const NAME_IID: u32 = 10;
    pub const TRACK_UUID: u32 = 11;
    pub const NAME: u32 = 23;
    pub const COUNTER_VALUE: u32 = 30;

    pub const ANNOTATION_NAME_IID: u32 = 1;
    pub const ANNOTATION_BOOL: u32 = 2;
    pub const ANNOTATION_UINT: u32 = 3;
    pub const ANNOTATION_INT: u32 = 4;
    pub const ANNOTATION_STRING: u32 = 6;
    pub const ANNOTATION_POINTER: u32 = 7;
    pub const ANNOTATION_NAME: u32 = 10;

    pub const INTERNED_EVENT_NAME: u32 = 2;
    pub const INTERNED_ANNOTATION_NAME: u32 = 3;
    pub const INTERNED_IID: u32 = 1;
    pub const INTERNED_TEXT: u32 = 2;

    pub const CLOCK: u32 = 1;
    pub const CLOCK_ID: u32 = 1;
    pub const CLOCK_TIMESTAMP: u32 = 2;
}

/// TrackEvent.Type
#[derive(Clone, Copy)]
enum Kind {
    Begin = 1,
    End = 2,
    Instant = 3,
    Counter = 4,
}

/// TrackDescriptor.ChildTracksOrdering: by the ranks of the children.
const EXPLICIT: u64 = 3;

/// SEQ_INCREMENTAL_STATE_CLEARED and SEQ_NEEDS_INCREMENTAL_STATE.
const CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;
/// The number of the only writer.
const WRITER: u64 = 1;
/// CLOCK_REALTIME and CLOCK_BOOTTIME, which is Perfetto's own.
const REALTIME: u64 = 1;
const BOOTTIME: u64 = 6;

/// Maximum number of names with numbers; further ones are written in each event.
const MAX_NAMES: usize = 1 << 16;
const MAX_NAME_LEN: usize = 256;
/// The maximum number of tracks, which is more than a reader can use; further ones are left out.
const MAX_TRACKS: usize = 1 << 16;
/// The maximum number of counters of a map, which is more lines than a reader can use.
const MAX_COUNTERS: usize = 1000;

const TOO_MANY_KEYS: &str = "it has too many keys; the first 1000 are counters";

struct PerfettoRenderer {
    /// Renders everything but events.
    fallback: Box<dyn Renderer>,
    trailer: Vec<u8>,
    /// The time of the current output.
    now_ns: i128,
    begun: bool,
    tracks: BTreeMap<TrackKey, u64>,
    /// Names of threads as last written.
    comms: BTreeMap<u64, Vec<u8>>,
    /// The processes of threads with open spans as known at their begins: their ends must be on the same tracks.
    pids: BTreeMap<Track, u32>,
    names: InternedNames,
    /// Maps that are not shown completely, and why.
    incomplete_maps: BTreeMap<String, &'static str>,
    /// Number of spans and instants without a track.
    omitted_events: u64,
}

/// The owner of a track.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TrackKey {
    Process(u32),
    Thread(u32, u32),
    BelowThread(u32, u32, Vec<u8>),
    Named(Vec<u8>),
    /// All tracks of a kind.
    Kind(Vec<u8>),
    Numbered(Vec<u8>, i128),
    Printed,
    Counter(Vec<u8>),
}

/// Numbers of names, by field of InternedData.
#[derive(Default)]
struct InternedNames {
    known: BTreeMap<(u32, Vec<u8>), u64>,
}

impl InternedNames {
    /// The number of a name; a new one is also written to `interned`. None if there are too many.
    fn number(&mut self, kind: u32, name: &[u8], interned: &mut Message) -> Option<u64> {
        if let Some(number) = self.known.get(&(kind, name.to_vec())) {
            return Some(*number);
        }
        if self.known.len() >= MAX_NAMES || name.len() > MAX_NAME_LEN {
            return None;
        }
        let number = self.known.len() as u64 + 1;
        self.known.insert((kind, name.to_vec()), number);
        interned.message(kind, |m| {
            m.uint(field::INTERNED_IID, number).text(field::INTERNED_TEXT, name);
        });
        Some(number)
    }
}

impl Renderer for PerfettoRenderer {
    fn render(&mut self, output: &Output, to: &mut Rendered) {
        match output {
            Output::Span(span) => self.span(span, to),
            Output::Text { kind: _, data, newline: _ } => {
                let line = data.strip_suffix(b"\n").unwrap_or(data);
                self.event(TrackKey::Printed, Kind::Instant, self.now_ns, Some(line), &[], to);
            }
            Output::Value(value) => {
                let line = self.spelled(value);
                self.event(TrackKey::Printed, Kind::Instant, self.now_ns, Some(&line), &[], to);
            }
            Output::Map(view) => self.map(view, to),
            Output::End => {
                self.name_processes(to);
                if self.omitted_events > 0 {
                    let left_out = plural(self.omitted_events, "span or counter", "spans and counters");
                    let note = format!("note: perfetto leaves out {left_out}, because there are more than {MAX_TRACKS} tracks\n");
                    to.err.extend_from_slice(note.as_bytes());
                }
            }
            Output::State(_) => {}
            Output::Problem { .. }
            | Output::Attached { .. }
            | Output::Lost { .. }
            | Output::Limited(_)
            | Output::Counts(_)
            | Output::Test(_) => {
                let mut rendered = Rendered::default();
                self.fallback.render(output, &mut rendered);
                to.err.extend_from_slice(&rendered.out);
                to.err.extend_from_slice(&rendered.err);
            }
        }
    }

    fn omitted_maps(&self) -> usize {
        self.incomplete_maps.values().filter(|why| **why != TOO_MANY_KEYS).count()
    }

    fn text(&self, value: &Value, reader: Reader, to: &mut Vec<u8>) {
        self.fallback.text(value, reader, to);
    }

    fn at(&mut self, unix_ns: i128) {
        self.now_ns = unix_ns;
    }
}

impl PerfettoRenderer {
    fn spelled(&self, value: &Value) -> Vec<u8> {
        let mut text = Vec::new();
        value_text::value(value, Style { trailer: &self.trailer, compact: false, visible: false }, &mut text);
        text
    }

    fn span(&mut self, span: &Span, to: &mut Rendered) {
        let place = match &span.track {
            Track::Thread(tid) | Track::BelowThread(tid, _) => {
                let now = if span.thread.pid == 0 { *tid } else { span.thread.pid };
                let outermost = span.depth == 0;
                let pid = match span.phase {
                    Phase::Begin if outermost => {
                        self.pids.insert(span.track.clone(), now);
                        now
                    }
                    Phase::End | Phase::Cut if outermost => self.pids.remove(&span.track).unwrap_or(now),
                    Phase::Begin | Phase::End | Phase::Cut | Phase::Open => self.pids.get(&span.track).copied().unwrap_or(now),
                };
                if !self.thread(pid, *tid, &span.thread.comm, to) {
                    self.omitted_events += u64::from(span.phase == Phase::Begin);
                    return;
                }
                match &span.track {
                    Track::BelowThread(_, name) => TrackKey::BelowThread(pid, *tid, name.clone()),
                    Track::Thread(_) | Track::Named(_) | Track::Numbered(..) => TrackKey::Thread(pid, *tid),
                }
            }
            Track::Named(name) => TrackKey::Named(name.clone()),
            Track::Numbered(kind, number) => TrackKey::Numbered(kind.clone(), *number),
        };
        match span.phase {
            Phase::Begin => self.event(place, Kind::Begin, span.start_ns, Some(&span.name), &span.values, to),
            // the values of the begin are written already; those of the end are the last ones
            Phase::End => self.event(place, Kind::End, span.end_ns, None, span.end_values(), to),
            Phase::Cut => self.event(place, Kind::End, span.end_ns, None, &[], to),
            // without an end, the slice extends to the end of the timeline
            Phase::Open => {}
        }
    }

    fn map(&mut self, view: &MapView, to: &mut Rendered) {
        let mut why = view
            .entries
            .iter()
            .any(|(key, _)| stack_keys::parts(key).iter().any(|part| matches!(part, KeyPart::Frame(..))))
            .then_some("its keys are stacks");
        if view.weights.is_some() {
            to.err.extend_from_slice(format!("{}: sampled\n", view.title()).as_bytes());
        }
        let entries = if why.is_some() { &[][..] } else { &view.entries };
        for (number, (key, value)) in entries.iter().enumerate() {
            if number >= MAX_COUNTERS {
                why = Some(TOO_MANY_KEYS);
                break;
            }
            let mut name = view.name.clone().into_bytes();
            if view.keyed {
                name.push(b'[');
                value_text::key(key, Style { trailer: &self.trailer, compact: false, visible: false }, &mut name);
                name.push(b']');
            }
            if let Value::Series(series) = value {
                for (start, value) in &series.buckets {
                    self.counter(&name, *start, value, to);
                }
            } else if !self.counter(&name, self.now_ns, value, to) {
                why = Some("its values are not numbers");
            }
        }
        if let Some(why) = why
            && self.incomplete_maps.insert(view.name.clone(), why).is_none()
        {
            to.err.extend_from_slice(format!("note: perfetto does not show {}: {why}\n", view.name).as_bytes());
        }
    }

    /// False if it is not a number.
    fn counter(&mut self, name: &[u8], at_ns: i128, value: &Value, to: &mut Rendered) -> bool {
        let number = if let Value::Avg(stats) = value { stats.average().number() } else { value.number() };
        let Some(number) = number else { return false };
        let Some(track) = self.track(TrackKey::Counter(name.to_vec()), to) else {
            self.omitted_events += 1;
            return true;
        };
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        self.packet(at_ns, to, |packet, _| {
            packet.message(field::TRACK_EVENT, |event| {
                event.uint(field::TYPE, Kind::Counter as u64).uint(field::TRACK_UUID, track).int(field::COUNTER_VALUE, number);
            });
        });
        true
    }

    /// A thread's track, and its process's. They are described again if the thread's name changes, as after execve(2).
    /// False if there is no room for it.
    fn thread(&mut self, pid: u32, tid: u32, comm: &[u8], to: &mut Rendered) -> bool {
        let of = |this: &mut Self, place: TrackKey| match this.tracks.get(&place) {
            Some(track) => Some(*track),
            None => this.new_track(place),
        };
        let (Some(process), Some(thread)) = (of(self, TrackKey::Process(pid)), of(self, TrackKey::Thread(pid, tid))) else { return false };
        let known = self.comms.get(&thread);
        if known.is_some_and(|known| known == comm || comm.is_empty()) {
            return true;
        }
        let first = known.is_none();
        self.comms.insert(thread, comm.to_vec());
        // the first name of a process stays: see [`Self::name_processes`]
        if first {
            self.describe(process, to, |m| {
                m.message(field::DESCRIPTOR_PROCESS, |m| {
                    m.uint(field::PROCESS_PID, pid.into());
                });
            });
        }
        self.describe(thread, to, |m| {
            m.message(field::DESCRIPTOR_THREAD, |m| {
                m.uint(field::THREAD_PID, pid.into()).uint(field::THREAD_TID, tid.into()).text(field::THREAD_NAME, comm);
            });
        });
        true
    }

    /// Names processes by the final names of their main threads, or else of another thread.
    fn name_processes(&mut self, to: &mut Rendered) {
        let mut names: BTreeMap<u32, (u64, Vec<u8>)> = BTreeMap::new();
        for (place, track) in &self.tracks {
            if let TrackKey::Thread(pid, tid) = place
                && let (Some(process), Some(comm)) = (self.tracks.get(&TrackKey::Process(*pid)), self.comms.get(track))
                && (tid == pid || !names.contains_key(pid))
            {
                names.insert(*pid, (*process, comm.clone()));
            }
        }
        for (pid, (process, comm)) in names {
            self.describe(process, to, |m| {
                m.message(field::DESCRIPTOR_PROCESS, |m| {
                    m.uint(field::PROCESS_PID, pid.into()).text(field::PROCESS_NAME, &comm);
                });
            });
        }
    }

    /// None if there are too many.
    fn new_track(&mut self, place: TrackKey) -> Option<u64> {
        let track = self.tracks.len() as u64 + 1;
        (self.tracks.len() < MAX_TRACKS).then(|| {
            self.tracks.insert(place, track);
            track
        })
    }

    /// The number of a track, which is described if it is new. None if there are too many.
    fn track(&mut self, place: TrackKey, to: &mut Rendered) -> Option<u64> {
        if let Some(track) = self.tracks.get(&place) {
            return Some(*track);
        }
        let parent = match &place {
            TrackKey::BelowThread(pid, tid, _) => Some(self.track(TrackKey::Thread(*pid, *tid), to)?),
            TrackKey::Numbered(kind, _) => Some(self.track(TrackKey::Kind(kind.clone()), to)?),
            TrackKey::Process(_)
            | TrackKey::Thread(..)
            | TrackKey::Named(_)
            | TrackKey::Kind(_)
            | TrackKey::Printed
            | TrackKey::Counter(_) => None,
        };
        let track = self.new_track(place.clone())?;
        let below = |m: &mut Message, name: &[u8]| {
            m.text(field::DESCRIPTOR_NAME, name);
            if let Some(parent) = parent {
                m.uint(field::DESCRIPTOR_PARENT, parent);
            }
        };
        self.describe(track, to, |m| match &place {
            TrackKey::Named(name) | TrackKey::BelowThread(.., name) => below(m, name),
            TrackKey::Kind(kind) => {
                m.text(field::DESCRIPTOR_NAME, &plural_of(kind)).uint(field::DESCRIPTOR_CHILD_ORDERING, EXPLICIT);
            }
            TrackKey::Numbered(kind, number) => {
                below(m, &Track::Numbered(kind.clone(), *number).name().unwrap_or_default());
                m.int(field::DESCRIPTOR_RANK, i32::try_from(*number).unwrap_or(i32::MAX).into());
            }
            TrackKey::Printed => drop(m.text(field::DESCRIPTOR_NAME, b"printed")),
            TrackKey::Counter(name) => drop(m.text(field::DESCRIPTOR_NAME, name).bytes(field::DESCRIPTOR_COUNTER, &[])),
            TrackKey::Process(_) | TrackKey::Thread(..) => {}
        });
        Some(track)
    }

    fn describe(&mut self, track: u64, to: &mut Rendered, write: impl FnOnce(&mut Message)) {
        self.begin(self.now_ns, to);
        let mut packet = Message::default();
        packet.uint(field::SEQUENCE, WRITER).message(field::TRACK_DESCRIPTOR, |m| {
            m.uint(field::DESCRIPTOR_UUID, track);
            write(m);
        });
        push(&packet, to);
    }

    fn event(&mut self, place: TrackKey, kind: Kind, at_ns: i128, name: Option<&[u8]>, values: &[(String, Value)], to: &mut Rendered) {
        let Some(track) = self.track(place, to) else {
            self.omitted_events += u64::from(!matches!(kind, Kind::End));
            return;
        };
        let spelled: Vec<Vec<u8>> = values.iter().map(|(_, value)| self.spelled(value)).collect();
        self.packet(at_ns, to, |packet, names| {
            let mut interned = Message::default();
            let mut event = Message::default();
            event.uint(field::TYPE, kind as u64).uint(field::TRACK_UUID, track);
            if let Some(name) = name {
                match names.number(field::INTERNED_EVENT_NAME, name, &mut interned) {
                    Some(number) => event.uint(field::NAME_IID, number),
                    None => event.text(field::NAME, name),
                };
            }
            for ((label, value), spelled) in values.iter().zip(&spelled) {
                event.message(field::ANNOTATION, |m| {
                    match names.number(field::INTERNED_ANNOTATION_NAME, label.as_bytes(), &mut interned) {
                        Some(number) => m.uint(field::ANNOTATION_NAME_IID, number),
                        None => m.text(field::ANNOTATION_NAME, label.as_bytes()),
                    };
                    annotation(value, spelled, m);
                });
            }
            if !interned.written().is_empty() {
                packet.bytes(field::INTERNED, interned.written());
            }
            packet.bytes(field::TRACK_EVENT, event.written());
        });
    }

    fn packet(&mut self, at_ns: i128, to: &mut Rendered, write: impl FnOnce(&mut Message, &mut InternedNames)) {
        self.begin(at_ns, to);
        let mut packet = Message::default();
        packet
            .uint(field::TIMESTAMP, u64::try_from(at_ns).unwrap_or(0))
            .uint(field::SEQUENCE, WRITER)
            .uint(field::SEQUENCE_FLAGS, NEEDS_STATE);
        write(&mut packet, &mut self.names);
        push(&packet, to);
    }

    /// The first packet: times are those of the wall clock.
    fn begin(&mut self, at_ns: i128, to: &mut Rendered) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let at_ns = u64::try_from(at_ns).unwrap_or(0);
        let mut packet = Message::default();
        packet.uint(field::TIMESTAMP, at_ns).uint(field::SEQUENCE, WRITER).uint(field::SEQUENCE_FLAGS, CLEARED);
        packet.message(field::CLOCK_SNAPSHOT, |m| {
            for clock in [REALTIME, BOOTTIME] {
                m.message(field::CLOCK, |m| {
                    m.uint(field::CLOCK_ID, clock).uint(field::CLOCK_TIMESTAMP, at_ns);
                });
            }
        });
        push(&packet, to);
    }
}

/// `CPUs`: the name of the track above those of a kind.
fn plural_of(kind: &[u8]) -> Vec<u8> {
    let mut name = kind.to_vec();
    if kind.last().is_some_and(|last| last.is_ascii_alphabetic() && !last.eq_ignore_ascii_case(&b's')) {
        name.push(b's');
    }
    name
}

fn annotation(value: &Value, spelled: &[u8], m: &mut Message) {
    if let Value::Bool(b) = value {
        m.uint(field::ANNOTATION_BOOL, u64::from(*b));
    } else if let Value::Ptr(p) = value {
        m.uint(field::ANNOTATION_POINTER, *p);
    } else if let Value::Uint(n) = value {
        m.uint(field::ANNOTATION_UINT, *n);
    } else if let Value::Int(n) = value {
        m.int(field::ANNOTATION_INT, *n);
    } else {
        m.text(field::ANNOTATION_STRING, spelled);
    }
}

fn push(packet: &Message, to: &mut Rendered) {
    let mut trace = Message::default();
    trace.bytes(field::PACKET, packet.written());
    to.out.extend_from_slice(trace.written());
}
