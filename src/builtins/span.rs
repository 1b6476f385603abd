//! Spans of a timeline. Programs send the begins and the ends; user space pairs them ([`crate::timeline`]).
//!
//! A record has the time, the current thread's IDs, the thread's name (at a begin, and on another track), and the arguments except for literals.

use super::{Accepts, Arg, Builtin, CallSite, Codegen, Event, EventSpec, Handler, Lit, Param, Returns};
use crate::emit::{Builder, Helper, Operand};
use crate::host::{Host, Reader};
use crate::output::Output;
use crate::probes::ContextFeatures;
use crate::system::machine::procfs;
use crate::timeline::{Report, Track};
use crate::types::Type;
use crate::value::Value;

/// `TASK_COMM_LEN` of include/linux/sched.h.
const COMM: u32 = 16;
/// Maximum number of values in a call, so that they and their names fit into a line.
const MAX_VALUES: usize = 8;

pub(super) const ROWS: &[Builtin] = &[
    row(
        "span",
        &[Param::new("name", Accepts::Printable), Param::rest("values", Accepts::Printable)],
        &Event { ends_probe: false, capture: Some(begin), prepare: |spec| prepare(spec, Kind::BEGIN) },
        "Begins a span on the timeline of the current thread. `span_end` with the same name ends it. Spans of a thread nest. The values are attributes of the span. The text output has a line for each span that has ended: start, duration, thread, name and values.",
        "tracepoint:syscalls:sys_enter_read { span(\"read\", args.fd); } tracepoint:syscalls:sys_exit_read { span_end(\"read\", args.ret); }",
    ),
    row(
        "span_end",
        &[Param::optional("name", Accepts::Printable), Param::rest("values", Accepts::Printable)],
        &Event { ends_probe: false, capture: Some(end), prepare: |spec| prepare(spec, Kind::END) },
        "Ends the innermost open span of this name on the timeline of the current thread, and adds values to it. Without a name, it ends all open spans of the thread, for example when a thread exits within a call: `tracepoint:sched:sched_process_exit { span_end(); }`. rbt shows these spans, and those that are open at the end of the run, as open.",
        "uprobe:libc:getaddrinfo { span(\"lookup\", str(arg0)); } uretprobe:libc:getaddrinfo { span_end(\"lookup\", retval); }",
    ),
    row(
        "span_on",
        &[Param::new("track", Accepts::Printable), Param::new("name", Accepts::Printable), Param::rest("values", Accepts::Printable)],
        &Event { ends_probe: false, capture: Some(begin), prepare: |spec| prepare(spec, Kind { tracked: true, ..Kind::BEGIN }) },
        "Begins a span on another track. `track` is a thread ID, or another value that names a track, such as a string or a tuple. A tuple of a thread ID and a string is a track below that of the thread. A tuple of a string and a number, such as `(\"CPU\", cpu)`, is one of a group of tracks, such as `CPU 0` among those of all CPUs.",
        "tracepoint:block:block_rq_issue { span_on((args.dev, args.sector), \"I/O\"); } tracepoint:block:block_rq_complete { span_end_on((args.dev, args.sector), \"I/O\"); }",
    ),
    row(
        "span_end_on",
        &[Param::new("track", Accepts::Printable), Param::optional("name", Accepts::Printable), Param::rest("values", Accepts::Printable)],
        // an end elsewhere has the name of the current thread, too: a thread may be seen for the first time when it ends
        &Event { ends_probe: false, capture: Some(begin), prepare: |spec| prepare(spec, Kind { tracked: true, ..Kind::END }) },
        "Ends the span that `span_on` began with the same track and name. Without a name, it ends all spans of the track.",
        "tracepoint:sched:sched_process_fork { span_on(args.child_pid, \"process\"); } tracepoint:sched:sched_process_exit { span_end_on(args.pid, \"process\"); }",
    ),
];

/// Does a row begin a span, or end one? None for other rows.
pub(super) fn begins(row: &Builtin) -> Option<bool> {
    let place = ROWS.iter().position(|own| own.name == row.name)?;
    // beginnings and ends alternate
    Some(place.is_multiple_of(2))
}

const fn row(name: &'static str, params: &'static [Param], event: &'static Event, doc: &'static str, example: &'static str) -> Builtin {
    let returns = Returns::By(|f| {
        let first = f.args.len().saturating_sub(MAX_VALUES);
        if f.args.len() > MAX_VALUES + 2 {
            let message = format!("{} takes at most {MAX_VALUES} values", f.name);
            return Err(crate::diag::Diagnostic::error("arity", f.span(first), message));
        }
        Ok(Type::Void)
    });
    Builtin { name, params, returns, needs: ContextFeatures::NONE, risky: false, codegen: Codegen::Event(event), doc, example }
}

/// The properties of a row.
#[derive(Clone, Copy)]
struct Kind {
    begins: bool,
    tracked: bool,
}

impl Kind {
    const BEGIN: Kind = Kind { begins: true, tracked: false };
    const END: Kind = Kind { begins: false, tracked: false };
}

fn begin<'c>(e: &mut Builder<'_, 'c>, u: &CallSite, args: &[Operand<'c>]) -> Vec<Operand<'c>> {
    let mut head = now_and_ids(e);
    let comm = e.alloc(COMM);
    let size = e.int(COMM.into());
    e.zero(comm, COMM, 8);
    e.call(Helper::GetCurrentComm, &[comm.into(), size.into()]);
    head.push(Operand::mem(Type::Str(COMM), comm));
    write_values(e, head, u, args)
}

fn end<'c>(e: &mut Builder<'_, 'c>, u: &CallSite, args: &[Operand<'c>]) -> Vec<Operand<'c>> {
    let head = now_and_ids(e);
    write_values(e, head, u, args)
}

fn now_and_ids<'c>(e: &mut Builder<'_, 'c>) -> Vec<Operand<'c>> {
    let now = e.call(Helper::KtimeGetBootNs, &[]);
    let ids = e.ns_pid_tgid();
    vec![Operand::u64(now), Operand::u64(ids)]
}

/// Values are kept in memory, because registers are few.
fn write_values<'c>(e: &mut Builder<'_, 'c>, mut sent: Vec<Operand<'c>>, u: &CallSite, args: &[Operand<'c>]) -> Vec<Operand<'c>> {
    let sent_size = args.iter().enumerate().filter(|(i, _)| u.literals.get(*i).is_none_or(Option::is_none));
    sent.extend(sent_size.map(|(_, op)| e.spill(op.clone())));
    sent
}

fn prepare(spec: &EventSpec, kind: Kind) -> anyhow::Result<Handler> {
    let literals = spec.literals.clone();
    let labels = spec.labels.clone();
    Ok(Box::new(move |sent, host| {
        let mut sent = sent.iter();
        let mut value = || match sent.next() {
            Some(Arg::Value(value)) => value.clone(),
            Some(Arg::Map(_) | Arg::TakenMap { .. } | Arg::Element(..)) | None => Value::None,
        };
        let word = |value: Value| value.number().and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        let (at, ids) = (word(value()), word(value()));
        let (pid, tid) = ((ids >> 32) as u32, ids as u32);
        if kind.begins || kind.tracked {
            let comm = text(&value(), host);
            host.spans().note_thread(tid, pid, &comm);
        }
        let mut args: Vec<Value> = literals.iter().map(|literal| literal.as_ref().map_or_else(&mut value, constant)).collect();
        let track = if kind.tracked { track(&args.remove(0), host) } else { Track::Thread(tid) };
        let at_ns = i128::from(at) + i128::from(host.boot_to_unix_ns());
        if args.is_empty() {
            host.spans().end_all(&track, at_ns).into_iter().for_each(|span| host.say(Output::Span(span)));
            return Ok(());
        }
        let name = text(&args.remove(0), host);
        let labels = labels.iter().skip(1 + usize::from(kind.tracked)).cloned();
        let report = Report { track, name, at_ns, values: labels.zip(args).collect() };
        let spans = if kind.begins { host.spans().begin(report).into_iter().collect() } else { host.spans().end(report) };
        spans.into_iter().for_each(|span| host.say(Output::Span(span)));
        Ok(())
    }))
}

fn constant(literal: &Lit) -> Value {
    match literal {
        Lit::Int(n) => Value::Int(*n),
        Lit::Str(bytes) => Value::Str { bytes: bytes.clone(), cut: false },
        Lit::Word(word) => Value::Text(word.clone()),
    }
}

fn text(value: &Value, host: &dyn Host) -> Vec<u8> {
    let mut to = Vec::new();
    if let Value::Str { bytes, .. } = value {
        to.extend_from_slice(bytes);
    } else {
        host.text(value, Reader::Program, &mut to);
    }
    to
}

/// The track of a value.
fn track(value: &Value, host: &mut dyn Host) -> Track {
    if let Value::Tuple(parts) = value
        && let [first, second] = parts.as_slice()
    {
        match (thread_id(first), first, second) {
            (Some(tid), _, Value::Str { .. }) => {
                set_thread_name(tid, host);
                return Track::BelowThread(tid, text(second, host));
            }
            (None, Value::Str { .. }, number) if let Some(number) = number.number() => {
                return Track::Numbered(text(first, host), number);
            }
            _ => {}
        }
    }
    let Some(tid) = thread_id(value) else { return Track::Named(text(value, host)) };
    set_thread_name(tid, host);
    Track::Thread(tid)
}

fn thread_id(value: &Value) -> Option<u32> {
    value.number().and_then(|n| u32::try_from(n).ok())
}

/// A thread that has not been seen yet has the name that the system gives it.
fn set_thread_name(tid: u32, host: &mut dyn Host) {
    if !host.spans().has_thread(tid) {
        let read = |name: &str| std::fs::read_to_string(procfs::file(tid, name)).unwrap_or_default();
        let pid = read("status").lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok()).unwrap_or(0);
        host.spans().note_thread(tid, pid, read("comm").trim_end().as_bytes());
    }
}
