//! Spans: what began and ended on a track of a timeline. [`Spans`] pairs the begins and ends that programs report.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use crate::diag::plural;
use crate::value::Value;

/// Maximum number of open spans. A script that never ends its spans gets no new ones beyond this, with a warning.
const MAX_OPEN: usize = 1 << 20;
/// Maximum number of threads whose names are remembered.
const MAX_THREADS: usize = 1 << 16;

/// The place where a span is shown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Track {
    /// A thread, by its ID.
    Thread(u32),
    /// A track below that of a thread, with a name.
    BelowThread(u32, Vec<u8>),
    /// A track that the script named.
    Named(Vec<u8>),
    /// One of several things of a kind, such as the CPUs: the kind and the number.
    Numbered(Vec<u8>, i128),
}

impl Track {
    /// The track beside which this one stands: the thread's, or the first of the kind.
    pub fn group(&self) -> Track {
        match self {
            Track::Thread(tid) | Track::BelowThread(tid, _) => Track::Thread(*tid),
            Track::Named(_) => self.clone(),
            Track::Numbered(kind, _) => Track::Named(kind.clone()),
        }
    }

    /// Its name, unless it is a thread's own.
    pub fn name(&self) -> Option<Cow<'_, [u8]>> {
        match self {
            Track::Thread(_) => None,
            Track::BelowThread(_, name) | Track::Named(name) => Some(Cow::Borrowed(name)),
            Track::Numbered(kind, number) => Some([kind, format!(" {number}").as_bytes()].concat().into()),
        }
    }
}

/// A thread's process and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Its process; 0 if that is unknown.
    pub pid: u32,
    /// `comm`
    pub comm: Vec<u8>,
}

/// The phase of a span that is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It begins.
    Begin,
    /// It ends.
    End,
    /// An enclosing span or the thread ended; its own end was not seen.
    Cut,
    /// The run is over before its end.
    Open,
}

impl Phase {
    /// Is the end of the span unknown?
    pub fn is_open(self) -> bool {
        matches!(self, Phase::Cut | Phase::Open)
    }
}

/// A span in one of its phases.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The phase.
    pub phase: Phase,
    /// The track on which it is shown.
    pub track: Track,
    /// For the track of a thread or one below it, information about the thread.
    pub thread: Thread,
    /// The name in the script.
    pub name: Vec<u8>,
    /// The start, in nanoseconds since 1970.
    pub start_ns: i128,
    /// The end, or the time it has reached; at its begin the start.
    pub end_ns: i128,
    /// Number of enclosing spans on its track.
    pub depth: usize,
    /// Names and values: those of the begin, then those of the end.
    pub values: Vec<(String, Value)>,
    /// The number of values that belong to the begin.
    pub begin_values: usize,
}

impl Span {
    /// The values of the end.
    pub fn end_values(&self) -> &[(String, Value)] {
        self.values.get(self.begin_values..).unwrap_or_default()
    }
}

/// A program's report of a begin or an end.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The track.
    pub track: Track,
    /// The name of the span.
    pub name: Vec<u8>,
    /// The time, in nanoseconds since 1970.
    pub at_ns: i128,
    /// Annotations.
    pub values: Vec<(String, Value)>,
}

/// The open spans.
#[derive(Debug, Default)]
pub struct Spans {
    tracks: BTreeMap<Track, Vec<Span>>,
    threads: BTreeMap<u32, Thread>,
    /// In the order in which the threads became known.
    order: VecDeque<u32>,
    open: usize,
    /// Number of begins that found no room.
    refused: u64,
    /// Number of ends without a begin.
    unmatched: u64,
}

impl Spans {
    /// Notes that a thread has been seen running.
    pub fn note_thread(&mut self, tid: u32, pid: u32, comm: &[u8]) {
        match self.threads.get_mut(&tid) {
            Some(known) if known.pid == pid && known.comm == comm => {}
            Some(known) => *known = Thread { pid, comm: comm.to_vec() },
            None => {
                self.threads.insert(tid, Thread { pid, comm: comm.to_vec() });
                self.order.push_back(tid);
                if self.order.len() > MAX_THREADS
                    && let Some(oldest) = self.order.pop_front()
                {
                    self.threads.remove(&oldest);
                }
            }
        }
    }

    /// Is this thread's name known?
    pub fn has_thread(&self, tid: u32) -> bool {
        self.threads.contains_key(&tid)
    }

    fn thread(&self, track: &Track) -> Thread {
        match track {
            Track::Thread(tid) | Track::BelowThread(tid, _) => self.threads.get(tid).cloned().unwrap_or_default(),
            Track::Named(_) | Track::Numbered(..) => Thread::default(),
        }
    }

    /// Begins a span. None if there is no room for it.
    pub fn begin(&mut self, report: Report) -> Option<Span> {
        if self.open >= MAX_OPEN {
            self.refused += 1;
            return None;
        }
        let thread = self.thread(&report.track);
        let Report { track, name, at_ns, values: given } = report;
        let mut values = Vec::with_capacity(given.len());
        add(&mut values, given);
        let stack = self.tracks.entry(track.clone()).or_default();
        let depth = stack.len();
        let span =
            Span { phase: Phase::Begin, track, thread, name, start_ns: at_ns, end_ns: at_ns, depth, begin_values: values.len(), values };
        stack.push(span.clone());
        self.open += 1;
        Some(span)
    }

    /// Ends the innermost open span of this name, and with it nested ones whose ends were not seen. Innermost first.
    pub fn end(&mut self, report: Report) -> Vec<Span> {
        let thread = self.thread(&report.track);
        let stack = self.tracks.get_mut(&report.track);
        let Some((stack, at)) = stack.and_then(|stack| stack.iter().rposition(|s| s.name == report.name).map(|at| (stack, at))) else {
            self.unmatched += 1;
            return Vec::new();
        };
        let mut ended = stack.split_off(at);
        if stack.is_empty() {
            self.tracks.remove(&report.track);
        }
        if let Some(span) = ended.first_mut() {
            span.phase = Phase::End;
            add(&mut span.values, report.values);
        }
        self.complete_spans(ended, report.at_ns, &thread)
    }

    /// Ends all open spans of a track, as when its thread ends. Innermost first.
    pub fn end_all(&mut self, track: &Track, at_ns: i128) -> Vec<Span> {
        let thread = self.thread(track);
        let ended = self.tracks.remove(track).unwrap_or_default();
        self.complete_spans(ended, at_ns, &thread)
    }

    /// Completes spans that were taken from a track. Those in another phase than [`Phase::End`] are cut.
    fn complete_spans(&mut self, mut spans: Vec<Span>, at_ns: i128, thread: &Thread) -> Vec<Span> {
        self.open -= spans.len();
        for span in &mut spans {
            if span.phase != Phase::End {
                span.phase = Phase::Cut;
            }
            // the clocks of processors may differ by a few nanoseconds
            span.end_ns = at_ns.max(span.start_ns);
            if span.thread.comm.is_empty() {
                span.thread = thread.clone();
            }
        }
        spans.reverse();
        spans
    }

    /// Called when the run is over: the spans that are still open, by their starts.
    pub fn close(&mut self, at_ns: i128) -> Vec<Span> {
        self.open = 0;
        let mut left: Vec<Span> = std::mem::take(&mut self.tracks).into_values().flatten().collect();
        left.sort_by_key(|span| span.start_ns);
        for span in &mut left {
            (span.phase, span.end_ns) = (Phase::Open, at_ns.max(span.start_ns));
        }
        left
    }

    /// Messages about spans that could not be shown.
    pub fn problems(&self) -> Vec<String> {
        let refused = plural(self.refused, "span was left out", "spans were left out");
        let refused = format!("{refused}, because {MAX_OPEN} were open: end them with span_end()");
        let unmatched = plural(self.unmatched, "end of a span was left out", "ends of spans were left out");
        let unmatched = format!("note: {unmatched}, because no span of the name was open");
        [(self.refused, refused), (self.unmatched, unmatched)].into_iter().filter(|(n, _)| *n > 0).map(|(_, text)| text).collect()
    }
}

/// Adds values, with unique names.
fn add(to: &mut Vec<(String, Value)>, given: Vec<(String, Value)>) {
    for (name, value) in given {
        let same = to.iter().filter(|(known, _)| *known == name || known.strip_prefix(&name).is_some_and(|rest| rest.starts_with('#')));
        let number = same.count() + 1;
        to.push((if number > 1 { format!("{name}#{number}") } else { name }, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(name: &str, at_ns: i128) -> Report {
        Report { track: Track::Thread(7), name: name.into(), at_ns, values: vec![(name.into(), Value::Int(at_ns as i64))] }
    }

    fn shown(spans: &[Span]) -> Vec<(Phase, String, i128, i128, usize)> {
        let name = |s: &Span| String::from_utf8(s.name.clone()).unwrap();
        spans.iter().map(|s| (s.phase, name(s), s.start_ns, s.end_ns, s.depth)).collect()
    }

    #[test]
    fn spans_nest() {
        let mut spans = Spans::default();
        spans.begin(report("a", 1));
        spans.begin(report("a", 2));
        spans.begin(report("b", 3));
        assert_eq!(shown(&spans.end(report("b", 4))), [(Phase::End, "b".into(), 3, 4, 2)]);
        let inner = spans.end(report("a", 5));
        assert_eq!(shown(&inner), [(Phase::End, "a".into(), 2, 5, 1)]);
        assert_eq!(inner[0].values, [("a".into(), Value::Int(2)), ("a#2".into(), Value::Int(5))]);
        assert_eq!(shown(&spans.close(9)), [(Phase::Open, "a".into(), 1, 9, 0)]);
        assert_eq!((spans.open, spans.tracks.len(), spans.problems().len()), (0, 0, 0));
    }

    #[test]
    fn unmatched_spans_are_cut_or_counted() {
        let mut spans = Spans::default();
        assert_eq!(spans.end(report("a", 1)), []);
        spans.begin(report("a", 2));
        spans.begin(report("b", 3));
        assert_eq!(shown(&spans.end(report("a", 4))), [(Phase::Cut, "b".into(), 3, 4, 1), (Phase::End, "a".into(), 2, 4, 0)]);
        spans.end(report("b", 5));
        assert!(spans.problems()[0].contains("2 ends"));
    }

    #[test]
    fn ending_threads_cut_their_spans() {
        let mut spans = Spans::default();
        assert_eq!(spans.end_all(&Track::Thread(7), 1), []);
        spans.begin(report("a", 2));
        spans.begin(report("b", 3));
        spans.begin(Report { track: Track::Thread(8), ..report("c", 4) });
        assert_eq!(shown(&spans.end_all(&Track::Thread(7), 5)), [(Phase::Cut, "b".into(), 3, 5, 1), (Phase::Cut, "a".into(), 2, 5, 0)]);
        assert_eq!((spans.open, spans.tracks.len(), spans.problems().len()), (1, 1, 0));
    }

    #[test]
    fn memory_is_bounded() {
        let mut spans = Spans::default();
        for at in 0..MAX_OPEN as i128 + 3 {
            spans.begin(Report { values: Vec::new(), ..report("a", at) });
        }
        assert!(spans.open == MAX_OPEN && spans.problems()[0].starts_with("3 spans"));
        for tid in 0..MAX_THREADS as u32 + 10 {
            spans.note_thread(tid, 1, b"x");
        }
        assert!(spans.threads.len() == MAX_THREADS && !spans.has_thread(9) && spans.has_thread(10));
    }

    #[test]
    fn threads_keep_their_names() {
        let mut spans = Spans::default();
        spans.note_thread(7, 5, b"sh");
        spans.begin(report("a", 1));
        spans.note_thread(7, 5, b"ls");
        assert_eq!(spans.end(report("a", 2))[0].thread, Thread { pid: 5, comm: b"sh".to_vec() });
        assert_eq!(spans.begin(report("a", 3)).unwrap().thread.comm, b"ls");
    }
}
