//! The loop: records in, output out, and all that may end it. Meanwhile another thread empties the ring (`collect`).

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, Write};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::attach::Links;
use super::collect::{Batch, Collector};
use super::events::Events;
use super::kept::Kept;
use super::load::{Loaded, MapFd, Shared};
use super::mappings::Tape;
use super::poll::{ended, wait};
use super::ring::{Drained, Ring};
use super::signals::{Signals, hurry};
use super::symbolize::Symbols;
use super::{Buffering, Exit, Session, iter, load, maps, moments, raw, telling, unhit};
use crate::codegen::artifact::{Manifest, Map, Program};
use crate::host::Host;
use crate::probes::Attach;
use crate::render::{Rendered, Renderer};
use crate::settings::Settings;
use crate::value::{Counts, Frame, Last, MapView, Output, Pos, Value};

/// The longest sleep.
pub(super) const NAP: Duration = Duration::from_millis(100);
/// Bytes of records between two looks at signals and at the output.
const BATCH: u64 = 256 * 1024;
/// Bytes of output that are written at once in full buffering, and at the latest in all.
const ENOUGH: usize = 64 * 1024;
/// A record that took so long was slow.
const LONG: Duration = Duration::from_millis(5);
/// When the end has taken so long, it is told why.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the end waits for programs that are in the midst of a record.
const STRAGGLERS: Duration = Duration::from_millis(20);
/// 128 + SIGPIPE
const CLOSED_PIPE: u8 = 141;

/// Where records come from, and who takes them.
pub(super) struct Source {
    events: Events,
    /// Before the loop and after it; in it, the collector has it.
    ring: Option<Ring>,
    collector: Option<Collector>,
    /// What the collector has taken: what is being done of it, and after the loop what it left.
    batch: Batch,
    left: VecDeque<Batch>,
}

/// What handlers may use while they run: all of the session but the handlers.
pub(super) struct Desk<'a> {
    loaded: &'a Loaded,
    manifest: &'a Manifest,
    settings: &'a Settings,
    symbols: &'a Symbols,
    signals: &'a Signals,
    boot_to_unix_ns: u64,
    renderer: &'a mut dyn Renderer,
    rendered: Rendered,
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    buffering: Buffering,
    /// `exit()` was called.
    exit: Option<u8>,
    /// A record was slow to be done: look after the rest before the next one.
    slow: bool,
    /// Since when records have been done that may have been slow.
    since: Instant,
    /// No program runs any more, or will.
    over: bool,
    /// The output cannot be written.
    broken: Option<io::Error>,
    /// Lost events that were told, and when they were last counted.
    told: u64,
    counted_at: Option<Instant>,
    /// Errors that were told.
    pub(super) problems: u64,
    /// Something was lost.
    incomplete: bool,
    telling: telling::Telling,
    /// What is to be said at the end, before the maps.
    notes: Vec<String>,
    /// Maps that somebody wants to see at the end.
    kept: Kept,
    /// See [`Desk::close`].
    counts: Vec<Counts>,
}

impl Session<'_> {
    /// Runs to the end. What the script says goes to `out`, what is said about the run to `err`.
    ///
    /// Errors: [`super::AttachFailed`], [`super::NothingAttached`], a child that cannot be run, output that cannot be
    /// written. A second SIGINT or SIGTERM ends the process at once.
    pub fn run(&mut self, renderer: &mut dyn Renderer, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<Exit> {
        load::run_all(self.manifest, &self.loaded, &Attach::Begin, &self.signals)?;
        let mut first = Vec::new();
        let start = Instant::now();
        if let Err(why) = self.attach(false, &mut |warning| first.push(warning)) {
            let mut rendered = Rendered::default();
            first.iter().for_each(|warning| renderer.render(warning, &mut rendered));
            // what cannot be written here is the lesser evil
            let _ = out.write_all(&rendered.out).and_then(|()| err.write_all(&rendered.err));
            return Err(why);
        }
        // what `begin` has ended stays ended
        if self.loaded.state.ended().is_none() {
            self.loaded.state.go();
        }
        if self.options.verbose
            && let Some(log) = &mut self.options.log
        {
            log(&format!("attach   {:8.3} ms", start.elapsed().as_secs_f64() * 1e3));
        }
        if self.options.dry_run {
            return Ok(Exit { status: 0, child: None });
        }
        if !self.options.quiet {
            first.push(Output::Attached { probes: self.links.sites });
        }
        let waits = self.waits();

        let mut desk = Desk::new(
            (&self.loaded, self.manifest, self.settings),
            (&self.symbols, &self.signals, self.boot_to_unix_ns),
            renderer,
            (out, err),
        );
        desk.buffering = self.options.buffering;
        if let Some(wanted) = &self.options.on_end {
            desk.kept = Kept::new(self.manifest, &wanted.maps);
        }
        first.into_iter().for_each(|output| desk.say(output));
        desk.flush(true);
        super::notify(&mut self.options.notify_fd)?;
        if let Some(attached) = self.options.on_attached.take() {
            attached(self.links.sites);
        }
        let mut child = self.child.take();
        let source = &mut self.source;
        // What begin says comes before what the child does; where it says exit(), the child never runs.
        source.drain_once(&mut desk);
        desk.flush(true);
        if let Some(child) = child.as_mut().filter(|_| desk.goes_on()) {
            child.start()?;
        }
        iterate(&self.links, source, &mut desk, &self.signals)?;

        if desk.goes_on() && (waits || child.is_some()) {
            source.collect(&self.loaded.state, self.symbols.tape());
        }
        let mut refreshed = Instant::now();
        loop {
            for _ in 0..self.signals.acknowledge() {
                load::run_all(self.manifest, &self.loaded, &Attach::Signal, &self.signals)?;
            }
            match self.signals.paused() {
                Some(true) => self.loaded.state.stop(),
                Some(false) if self.loaded.state.ended().is_none() => self.loaded.state.go(),
                Some(false) | None => {}
            }
            let done = source.done(&mut desk, &self.loaded.state);
            if desk.exit.is_none() {
                desk.exit = done.asked;
            }
            if self.watched && refreshed.elapsed() >= NAP {
                self.symbols.refresh();
                refreshed = Instant::now();
            }
            desk.tell_lost(false);
            desk.flush(false);
            let child_over = match &mut child {
                Some(child) => child.exited()?.is_some(),
                None => false,
            };
            let over = child_over || (!waits && child.is_none()) || self.signals.end().is_some() || self.target.as_ref().is_some_and(ended);
            if over || !desk.goes_on() {
                break;
            }
            if done.all {
                source.sleep(&[self.signals.fd(), raw(child.as_ref().map(|c| c.fd()).as_ref()), raw(self.target.as_ref())]);
            }
        }

        self.loaded.state.stop();
        hurry(self.loaded.state.flags(), STRAGGLERS * 10, || self.links.quiet());
        source.finish(&mut desk);
        let status = desk.exit.take();
        if desk.broken.is_none() {
            load::run_all(self.manifest, &self.loaded, &Attach::End, &self.signals)?;
            desk.kept.ending = true;
            source.finish(&mut desk);
            if let Some(hits) = self.loaded.hits.filter(|_| self.settings.warning_level > 0) {
                desk.notes = unhit::notes(self.manifest, hits, &self.not_attached, self.settings.pid, self.sys);
            }
            desk.notes.extend(self.files.notes().into_iter().filter(|_| self.settings.warning_level > 0));
            desk.close(&mut source.events);
            let asked = self.options.asked.as_deref().filter(|_| status.or(desk.exit).unwrap_or(0) == 0 && !desk.incomplete);
            if let Some(note) = asked.and_then(|asked| desk.telling.nothing_of(asked, desk.manifest, &desk.loaded.state)) {
                desk.rendered.err.extend_from_slice(note.as_bytes());
                desk.flush(true);
            }
            if let Some(wanted) = self.options.on_end.take() {
                (wanted.tell)(desk.last(&self.not_attached)?);
            }
        }
        // what is still at work has nobody who would hear of it, and keeps its probe from being detached
        self.loaded.state.interrupt(true);
        let child = match &mut child {
            Some(child) => child.exited()?,
            None => None,
        };
        if self.options.verbose
            && let Some(log) = &mut self.options.log
        {
            if let Some(exit) = child {
                log(&format!("the -c program ended with status {}", exit.status()));
            }
            if self.links.slow() > 0 {
                log(&format!("{} descriptors of probes are closed in the background", self.links.slow()));
            }
        }
        match desk.broken.take() {
            Some(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(Exit { status: CLOSED_PIPE, child }),
            Some(why) => Err(super::NotWritten(why).into()),
            None => {
                let lost = u8::from(self.options.strict && desk.incomplete);
                let status = status.or(desk.exit).unwrap_or(0);
                Ok(Exit { status: if status == 0 { lost } else { status }, child })
            }
        }
    }
}

/// Pins the iterators that are to be pinned, and goes through all that the others go through.
fn iterate(links: &Links, source: &mut Source, desk: &mut Desk, signals: &Signals) -> anyhow::Result<()> {
    for (link, pin) in &links.iters {
        if let Some(path) = pin {
            iter::pin(link, path).context("cannot pin an iterator")?;
            let data = format!("Program pinned to {}", path.display()).into_bytes();
            desk.say(Output::Text { kind: "pinned", data, newline: true });
            desk.flush(true);
            continue;
        }
        let mut reader = iter::reader(link).context("cannot go through an iterator's objects")?;
        while desk.goes_on() && signals.end().is_none() {
            let more = iter::go_on(&mut reader).context("an iterator ended before its time")?;
            source.drain_once(desk);
            desk.flush(false);
            if !more {
                break;
            }
        }
    }
    Ok(())
}

/// What [`Source::done`] came to.
struct Done {
    /// There were no more records.
    all: bool,
    /// A program has asked for the end with this status, and all that came before is done.
    asked: Option<u8>,
}

impl Source {
    pub fn new(ring: Option<Ring>, events: Events) -> Self {
        Self { events, ring, collector: None, batch: Batch::default(), left: VecDeque::new() }
    }

    /// From now on another thread empties the ring; where none can be had, this one does.
    fn collect(&mut self, state: &Shared, tape: Option<Tape>) {
        match self.ring.take().map(|ring| Collector::start(ring, state, tape)) {
            Some(Ok(collector)) => self.collector = Some(collector),
            Some(Err(ring)) => self.ring = Some(ring),
            None => {}
        }
    }

    /// Has some records done: a batch at most.
    fn done(&mut self, desk: &mut Desk, state: &Shared) -> Done {
        let Some(collector) = &self.collector else {
            // looked at before the drain: a record that was written before it is then seen
            let asked = state.ended();
            let found = self.drain(desk, BATCH);
            let all = !found.more && !found.busy;
            return Done { all, asked: asked.filter(|_| all) };
        };
        if self.batch.is_over() {
            // looked at before the next batch: none of before is then left
            let asked = collector.ended();
            match collector.next(std::mem::take(&mut self.batch)) {
                Some(batch) => self.batch = batch,
                None => return Done { all: true, asked },
            }
        }
        do_batch(&mut self.batch, &mut self.events, desk);
        Done { all: false, asked: None }
    }

    /// Waits for records, or for one of these to be readable.
    fn sleep(&self, [signal, child, target]: &[RawFd; 3]) {
        match &self.collector {
            Some(collector) => {
                if collector.sleep() {
                    wait(&[collector.fd(), *signal, *child, *target], NAP);
                    collector.wake();
                }
            }
            // nobody wakes us then
            None if self.ring.is_some() => wait(&[*signal, *child, *target], LONG),
            None => wait(&[*signal, *child, *target], NAP),
        }
    }

    /// Takes the ring back.
    fn collected(&mut self) {
        if let Some(collector) = self.collector.take() {
            (self.ring, self.left) = collector.stop();
        }
    }

    /// Has records done, some `limit` bytes of them at most, until one calls `exit()` or the output breaks.
    fn drain(&mut self, desk: &mut Desk, limit: u64) -> Drained {
        let Some(ring) = &mut self.ring else { return Drained::default() };
        let events = &mut self.events;
        desk.since = Instant::now();
        ring.drain(limit, &mut |record| do_record(record, events, desk))
    }

    /// Has the records done that are there now: those that come meanwhile may be more than that.
    fn drain_once(&mut self, desk: &mut Desk) {
        let room = self.ring.as_ref().map_or(0, Ring::size);
        let mut done = 0;
        while desk.goes_on() && done <= room {
            let found = self.drain(desk, BATCH);
            done += found.bytes;
            if !found.more {
                break;
            }
        }
    }

    /// Has all records done that there are, or throws away what came after an `exit()`. Programs have been told to stop.
    pub(super) fn finish(&mut self, desk: &mut Desk) {
        self.collected();
        let since = Instant::now();
        let mut told = false;
        while desk.goes_on() {
            do_batch(&mut self.batch, &mut self.events, desk);
            desk.flush(false);
            if !told && since.elapsed() >= PATIENCE {
                told = true;
                desk.still(self.left.iter().chain([&self.batch]).map(Batch::left).sum());
            }
            if self.batch.is_over() {
                match self.left.pop_front() {
                    Some(batch) => self.batch = batch,
                    None => break,
                }
            }
        }
        (self.batch, self.left) = Default::default();
        let room = self.ring.as_ref().map_or(0, Ring::size);
        let since = Instant::now();
        let mut done = 0;
        while desk.goes_on() {
            let found = self.drain(desk, BATCH);
            done += found.bytes;
            desk.flush(false);
            // The ring once over is all that can have been there, should a program not stop.
            if done > room {
                break;
            }
            if found.busy && since.elapsed() < STRAGGLERS {
                std::thread::sleep(Duration::from_millis(1));
            } else if found.busy || !found.more {
                break;
            }
        }
        if let Some(ring) = &mut self.ring {
            ring.skip();
        }
    }
}

/// Has records done, until one calls `exit()`, the output breaks, or one was slow.
fn do_batch(batch: &mut Batch, events: &mut Events, desk: &mut Desk) {
    desk.since = Instant::now();
    batch.each(|record| do_record(record, events, desk));
}

/// Does what a record says. Is the next one to be done at once?
fn do_record(record: &[u8], events: &mut Events, desk: &mut Desk) -> bool {
    desk.telling.record();
    events.take(record, desk);
    desk.after_record();
    desk.goes_on() && !std::mem::take(&mut desk.slow)
}

impl<'a> Desk<'a> {
    pub(super) fn new(
        (loaded, manifest, settings): (&'a Loaded, &'a Manifest, &'a Settings),
        (symbols, signals, boot_to_unix_ns): (&'a Symbols, &'a Signals, u64),
        renderer: &'a mut dyn Renderer,
        (out, err): (&'a mut dyn Write, &'a mut dyn Write),
    ) -> Self {
        Self {
            loaded,
            manifest,
            settings,
            symbols,
            signals,
            boot_to_unix_ns,
            renderer,
            rendered: Rendered::default(),
            out,
            err,
            buffering: Buffering::Line,
            exit: None,
            slow: false,
            since: Instant::now(),
            over: false,
            broken: None,
            told: 0,
            counted_at: None,
            problems: 0,
            incomplete: false,
            telling: telling::Telling::default(),
            notes: Vec::new(),
            kept: Kept::default(),
            counts: Vec::new(),
        }
    }

    fn goes_on(&self) -> bool {
        self.exit.is_none() && self.broken.is_none()
    }

    fn after_record(&mut self) {
        if self.buffering == Buffering::None || self.rendered.out.len() >= ENOUGH {
            self.flush(true);
        }
    }

    /// Names were looked up, which may have taken its time.
    fn look_up(&mut self) {
        self.slow |= self.since.elapsed() >= LONG;
    }

    /// Writes what is rendered, if it is time to (or `now`): output before messages.
    pub(super) fn flush(&mut self, now: bool) {
        let time = now || self.buffering != Buffering::Full || self.rendered.out.len() >= ENOUGH || !self.rendered.err.is_empty();
        if time && !self.rendered.out.is_empty() {
            if self.broken.is_none()
                && let Err(why) = self.out.write_all(&self.rendered.out).and_then(|()| self.out.flush())
            {
                self.broken = Some(why);
            }
            self.rendered.out.clear();
        }
        if !self.rendered.err.is_empty() {
            // A closed standard error is nothing that could be told to anybody.
            let _ = self.err.write_all(&self.rendered.err).and_then(|()| self.err.flush());
            self.rendered.err.clear();
        }
    }

    /// Tells of lost events since the last time: every [`NAP`] at most, unless it is the `last` time.
    fn tell_lost(&mut self, last: bool) {
        if !last && self.counted_at.is_some_and(|at| at.elapsed() < NAP) {
            return;
        }
        self.counted_at = Some(Instant::now());
        let lost = self.loaded.state.tally_of_all().dropped;
        if lost > self.told {
            let events = lost - self.told;
            self.told = lost;
            self.say(Output::Lost { events });
        }
    }

    /// The run is over, and so much is still to be printed.
    fn still(&mut self, bytes: u64) {
        if self.settings.warning_level > 0 {
            let note = format!("note: events of {} KiB are still to be printed; another Ctrl-C ends that at once\n", bytes / 1024);
            self.rendered.err.extend_from_slice(note.as_bytes());
            self.flush(true);
        }
    }

    /// What each probe has done and has not.
    fn counts(&self) -> Vec<Counts> {
        let of = |(program, fd): (&Program, &Option<RawFd>)| {
            let probe = match program.sites.as_slice() {
                [] => program.function.clone(),
                [site] => site.name.clone(),
                [site, others @ ..] => format!("{} and {} more", site.name, others.len()),
            };
            let tally = self.loaded.state.tally(&program.probes);
            Counts {
                probe,
                sent: tally.sent,
                dropped: tally.dropped,
                missed: tally.missed + fd.map_or(0, load::left_out),
                refused: tally.refused,
                unstored: tally.unstored,
                cut: tally.cut,
                unread: tally.unread,
            }
        };
        self.manifest.programs.iter().zip(&self.loaded.programs).map(of).collect()
    }

    /// The end of the output: totals of all that went wrong, then the maps.
    fn close(&mut self, events: &mut Events) {
        self.tell_lost(true);
        events.finish(self);
        let counts = self.counts();
        self.telling.over();
        self.incomplete = counts.iter().any(|of| !of.complete());
        self.say(Output::Counts(counts.clone()));
        self.counts = counts;
        for note in std::mem::take(&mut self.notes) {
            self.rendered.err.extend_from_slice(format!("{note}\n").as_bytes());
        }
        // one of many does not end the output
        if !self.settings.shares_maps {
            self.say(Output::End);
        }
        if self.settings.print_maps_on_exit {
            let mut order: Vec<usize> = (0..self.manifest.maps.len()).collect();
            order.sort_by_key(|&i| self.manifest.maps.get(i).map(|m| m.name.as_bytes()));
            for map in order {
                match self.map(map) {
                    Ok(view) if view.keyed && view.entries.is_empty() => {}
                    Ok(view) => self.say(Output::Map(view)),
                    Err(why) => {
                        let msg = format!("{why:#}");
                        self.say(Output::Problem { kind: "runtime_error", msg, helper: None, pos: Pos::default(), line: String::new() });
                    }
                }
            }
        }
        self.flush(true);
    }

    /// A map is about to be emptied.
    fn keep(&mut self, map: usize) -> anyhow::Result<()> {
        let mut kept = std::mem::take(&mut self.kept);
        let done = kept.emptied(map, || self.map(map));
        self.kept = kept;
        done
    }

    /// What is left of the run, for whoever wants to see it.
    fn last(&mut self, not_attached: &BTreeSet<String>) -> anyhow::Result<Last> {
        let kept = std::mem::take(&mut self.kept);
        let emptied = kept.times();
        let maps = kept.views(|map| self.map(map))?;
        let counts = std::mem::take(&mut self.counts);
        Ok(Last { maps, emptied, counts, not_attached: not_attached.iter().cloned().collect() })
    }

    fn map_at(&self, map: usize) -> anyhow::Result<(&Map, MapFd)> {
        let (row, first) = self.manifest.maps.get(map).zip(self.loaded.maps.get(map).copied()).context("no such map in the manifest")?;
        let second = self.loaded.seconds.get(map).copied().flatten();
        Ok(match (row.double, second) {
            (Some(bit), Some(second)) if self.loaded.state.generation(bit) == 1 => (row, second),
            _ => (row, first),
        })
    }
}

impl Host for Desk<'_> {
    fn say(&mut self, output: Output) {
        self.problems += u64::from(output.is_error());
        self.telling.said(&output);
        self.renderer.render(&output, &mut self.rendered);
        if !self.rendered.err.is_empty() {
            self.flush(true); // where both are the same terminal, they come in order
        }
    }

    fn text(&self, value: &Value) -> Vec<u8> {
        self.renderer.text(value)
    }

    fn ending(&self) -> u32 {
        self.signals.ends()
    }

    fn settings(&self) -> &Settings {
        self.settings
    }

    fn map(&mut self, map: usize) -> anyhow::Result<MapView> {
        let manifest = self.manifest;
        let (_, at) = self.map_at(map)?;
        let map = manifest.maps.get(map).context("no such map in the manifest")?;
        maps::view(map, at, self)
    }

    fn take_map(&mut self, map: usize, keys: bool) -> anyhow::Result<MapView> {
        let manifest = self.manifest;
        let (_, at) = self.map_at(map)?;
        let row = manifest.maps.get(map).context("no such map in the manifest")?;
        let mut apart = false;
        if let Some(bit) = row.double {
            self.slow = true;
            // once programs have been told to stop, those that run are waited for once
            if !self.over {
                moments::switch(&self.loaded.state, bit, at)?;
                self.over = self.loaded.state.stopped();
                apart = true;
            }
        }
        let view = maps::view(row, at, self)?;
        self.kept.emptied(map, || Ok(view.clone()))?;
        match (keys, apart) {
            (true, true) => {
                let (_, now) = self.map_at(map)?;
                maps::keep_keys(row, at, now)?;
                maps::clear(row, at)?;
            }
            (true, false) => maps::zero(row, at)?,
            (false, _) => maps::clear(row, at)?,
        }
        Ok(view)
    }

    fn map_element(&mut self, map: usize, key: &[u8]) -> anyhow::Result<Value> {
        let manifest = self.manifest;
        let (_, at) = self.map_at(map)?;
        let map = manifest.maps.get(map).context("no such map in the manifest")?;
        maps::element(map, at, key, self)
    }

    fn clear_map(&mut self, map: usize) -> anyhow::Result<()> {
        self.keep(map)?;
        let (map, at) = self.map_at(map)?;
        maps::clear(map, at)
    }

    fn zero_map(&mut self, map: usize) -> anyhow::Result<()> {
        self.keep(map)?;
        let (map, at) = self.map_at(map)?;
        maps::zero(map, at)
    }

    fn exit(&mut self, status: u8) {
        self.exit = Some(status);
    }

    fn kernel_symbol(&mut self, addr: u64) -> Option<Frame> {
        let found = self.symbols.kernel_name(addr);
        self.look_up();
        found
    }

    fn user_symbol(&mut self, pid: u32, addr: u64) -> Option<Frame> {
        let found = self.symbols.user_name(pid, addr);
        self.look_up();
        found
    }

    fn kernel_frames(&mut self, addrs: &[u64], resolve: bool) -> Vec<Frame> {
        if !resolve {
            return bare(addrs);
        }
        let frames = self.symbols.kernel(addrs).concat();
        self.look_up();
        frames
    }

    fn user_frames(&mut self, pid: u32, addrs: &[u64], resolve: bool) -> Vec<Frame> {
        if !resolve {
            return bare(addrs);
        }
        let frames = self.symbols.user(pid, addrs).concat();
        self.look_up();
        frames
    }

    fn stack(&mut self, limit: u32, id: u64) -> Option<Vec<u64>> {
        maps::stack(*self.loaded.stacks.get(&limit)?, id)
    }

    fn boot_to_unix_ns(&self) -> u64 {
        self.boot_to_unix_ns
    }
}

fn bare(addrs: &[u64]) -> Vec<Frame> {
    addrs.iter().map(|addr| Frame { addr: *addr, ..Frame::default() }).collect()
}
