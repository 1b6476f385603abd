//! The loop: records in, output out, and all that may end it. Meanwhile another thread empties the ring (`collect`).

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::attach::Links;
use super::events::Events;
use super::kept::Kept;
use super::load::{Loaded, MapFd};
use super::poll::ended;
use super::problems::Problems;
use super::signals::{Signals, hurry};
use super::source::{STRAGGLERS, Source};
use super::stacks::Stacks;
use super::symbolize::Symbols;
use super::{Buffering, Exit, Session, grace, iter, load, maps, moments, raw, telling, unhit};
use crate::codegen::artifact::{Manifest, Map, Program};
use crate::diag::plain;
use crate::host::{Host, Reader};
use crate::probes::Attach;
use crate::render::{Rendered, Renderer};
use crate::settings::Settings;
use crate::value::{Counts, Frame, Last, MapView, Output, Pos, Value};

/// The longest sleep.
pub(super) const NAP: Duration = Duration::from_millis(100);
/// Bytes of output that are written at once in full buffering, and at the latest in all.
const ENOUGH: usize = 64 * 1024;
/// A record that took so long was slow.
pub(super) const LONG: Duration = Duration::from_millis(5);
/// 128 + SIGPIPE
const CLOSED_PIPE: u8 = 141;

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
    /// No program will run any more: what is left is printed, an `exit()` or not.
    pub(super) ending: bool,
    /// A record was slow to be done: look after the rest before the next one.
    pub(super) slow: bool,
    /// Since when records have been done that may have been slow.
    pub(super) since: Instant,
    /// No program runs any more, or will.
    over: bool,
    /// The output cannot be written.
    broken: Option<io::Error>,
    /// Lost events that were told, and when they were last counted.
    told: u64,
    counted_at: Option<Instant>,
    /// Errors that were told.
    pub(super) errors: u64,
    /// What programs may fail to do.
    pub(super) problems: Problems,
    /// Something was lost.
    incomplete: bool,
    /// What probes did is told where nothing was lost, too.
    verbose: bool,
    pub(super) telling: telling::Telling,
    /// What is to be said at the end, before the maps.
    notes: Vec<String>,
    /// Maps that somebody wants to see at the end.
    kept: Kept,
    stacks: Stacks,
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
        let ran = self.loaded.state.ended().is_none();
        if ran {
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
        desk.verbose = self.options.verbose;
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
            source.collect(&self.loaded.state);
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
            desk.stacks.tend(&desk.loaded.state, done.all);
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
                let nap = desk.stacks.nap(&desk.loaded.state);
                source.sleep(nap, &[self.signals.fd(), raw(child.as_ref().map(|c| c.fd()).as_ref()), raw(self.target.as_ref())]);
            }
        }

        let flags = self.loaded.state.flags();
        hurry(flags, STRAGGLERS * 10, || self.links.quiet());
        match ran && waits && desk.broken.is_none() {
            // nothing is lost where the kernel does not do it but what a program says that is at work just now
            true => hurry(flags, STRAGGLERS * 10, || grace::stop(&self.loaded.state)).unwrap_or_default(),
            false => self.loaded.state.stop(),
        }
        source.finish(&mut desk);
        let status = desk.exit.take();
        if desk.broken.is_none() {
            self.loaded.state.begin_anew();
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
            ending: false,
            slow: false,
            since: Instant::now(),
            over: false,
            broken: None,
            told: 0,
            counted_at: None,
            errors: 0,
            problems: Problems::of(manifest),
            incomplete: false,
            verbose: false,
            telling: telling::Telling::default(),
            notes: Vec::new(),
            kept: Kept::default(),
            stacks: Stacks::new(loaded, manifest, settings.shares_maps),
            counts: Vec::new(),
        }
    }

    pub(super) fn goes_on(&self) -> bool {
        (self.exit.is_none() || self.ending) && self.broken.is_none()
    }

    pub(super) fn after_record(&mut self) {
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
        self.tell_problems();
        let lost = self.loaded.state.tally_of_all().dropped;
        if lost > self.told {
            let events = lost - self.told;
            self.told = lost;
            self.say(Output::Lost { events });
        }
    }

    /// Tells what programs have failed to do since the last time.
    pub(super) fn tell_problems(&mut self) {
        let mut problems = std::mem::take(&mut self.problems);
        problems.tell(&self.loaded.state, self);
        self.problems = problems;
    }

    /// The run is over, and so much is still to be printed.
    pub(super) fn still(&mut self, bytes: u64) {
        // less is printed before anybody has read the note
        if self.settings.warning_level > 0 && bytes >= 64 << 10 {
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
                unkept: tally.unkept,
            }
        };
        self.manifest.programs.iter().zip(&self.loaded.programs).map(of).collect()
    }

    /// The end of the output: what failed, the maps, then what each probe could not do.
    fn close(&mut self, events: &mut Events) {
        self.tell_lost(true);
        std::mem::take(&mut self.problems).finish(self);
        events.finish(self);
        let counts = self.counts();
        self.telling.over();
        self.incomplete = counts.iter().any(|of| !of.complete());
        for note in std::mem::take(&mut self.notes) {
            self.rendered.err.extend_from_slice(format!("{}\n", plain(&note)).as_bytes());
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
                    Ok(view) if view.entries.is_empty() || !view.set && !self.other_is_set(map) => {}
                    Ok(view) => self.say(Output::Map(view)),
                    Err(why) => {
                        let msg = format!("{why:#}");
                        self.say(Output::Problem { kind: "runtime_error", msg, helper: None, pos: Pos::default(), line: String::new() });
                    }
                }
            }
        }
        if let Some(lost) = self.symbols.lost().filter(|_| self.settings.warning_level > 0) {
            self.flush(true);
            self.rendered.err.extend_from_slice(format!("{lost}\n").as_bytes());
        }
        if self.incomplete || self.verbose {
            self.say(Output::Counts(counts.clone()));
        }
        self.counts = counts;
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

    /// Of a map that is there twice: was the one set that is not written to now? A zeroed one stays so.
    fn other_is_set(&self, map: usize) -> bool {
        self.manifest.maps.get(map).is_some_and(|m| m.key.is_none() && m.double.is_some())
            && [self.loaded.maps.get(map).copied(), self.loaded.seconds.get(map).copied().flatten()].into_iter().flatten().any(maps::is_set)
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
        self.errors += u64::from(output.is_error());
        self.telling.said(&output);
        self.renderer.render(&output, &mut self.rendered);
        if !self.rendered.err.is_empty() {
            self.flush(true); // where both are the same terminal, they come in order
        }
    }

    fn text(&self, value: &Value, reader: Reader, to: &mut Vec<u8>) {
        self.renderer.text(value, reader, to);
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
                moments::switch(&self.loaded.state, bit)?;
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
                // that a scalar is set, only this one knows
                if at.array { maps::zero(row, at)? } else { maps::clear(row, at)? }
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
        self.exit = self.exit.or(Some(status));
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
        self.stacks.frames(limit, id)
    }

    fn boot_to_unix_ns(&self) -> u64 {
        self.boot_to_unix_ns
    }
}

fn bare(addrs: &[u64]) -> Vec<Frame> {
    addrs.iter().map(|addr| Frame { addr: *addr, ..Frame::default() }).collect()
}
