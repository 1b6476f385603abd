//! The context for rendering records: the loaded script, symbols, the renderer and the outputs.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::time::{ClockId, DynamicClockId};

use super::estimates::EstimatesOfRun;
use super::events::Events;
use super::final_maps::FinalMaps;
use super::keep_limits::Attached;
use super::load::{Loaded, MapFd};
use super::poll::MAX_WAIT;
use super::problems::Problems;
use super::python::PYTHON;
use super::signals::Signals;
use super::stack_frames::StackFrames;
use super::stacks::Stacks;
use super::symbolize::Symbolize;
use super::throttle::Throttle;
use super::totals::Totals;
use super::watch::Watch;
use super::write::{Destination, Stream, Streams};
use super::{Buffering, Listener, Scrapes, SessionCx, double_buffer, empty_result, load, maps};
use crate::builtins;
use crate::codegen::artifact::{Manifest, Map, Program};
use crate::diag::plain;
use crate::emit::stamped;
use crate::host::{Host, Reader};
use crate::output::{FinalResults, Output, ProblemKind, Source};
use crate::progress::Progress;
use crate::render::{Rendered, Renderer};
use crate::settings::{Invocation, Settings};
use crate::state::{self, Printed};
use crate::timeline::Spans;
use crate::value::{Counts, Frame, FramesBuilder, MapView, MapViewKind, Pos, ShowOptions, Value, Weights, add_weights};

/// Bytes of pending output that cause a write in every buffering mode.
const FLUSH_THRESHOLD: usize = 64 * 1024;
/// How long rendered text waits for that of the records that follow at once.
const MAX_WRITE_DELAY: Duration = Duration::from_millis(10);
/// A map with more keys takes long to print.
const MANY_KEYS: usize = 10_000;
/// A record that takes this long is slow.
pub(super) const SLOW_RECORD: Duration = Duration::from_millis(5);

/// The state that handlers may use: all of the session except for the handlers.
pub(super) struct RunContext<'a> {
    pub(super) loaded: &'a Loaded,
    pub(super) manifest: &'a Manifest,
    pub(super) settings: &'a Settings,
    pub(super) invocation: &'a Invocation,
    pub(super) symbols: &'a dyn Symbolize,
    pub(super) signals: &'a Signals,
    pub(super) boot_to_unix_ns: u64,
    pub(super) attached: Attached<'a>,
    pub(super) renderer: &'a mut dyn Renderer,
    pub(super) rendered: Rendered,
    /// None while another thread writes.
    pub(super) streams: Option<Streams<'a>>,
    /// See [`Options::out`](super::Options::out); and the same of standard error.
    pub(super) out: Option<Rc<Destination>>,
    pub(super) err: Option<Rc<Destination>>,
    pub(super) buffering: Buffering,
    /// `exit()` was called.
    pub(super) exit: Option<u8>,
    /// No program will run after this: the rest is printed, with or without an `exit()`.
    pub(super) ending: bool,
    /// A record was processed slowly: do the other work before the next one.
    pub(super) slow_record: bool,
    /// Since when possibly slow records have been processed.
    pub(super) since: Instant,
    /// When text was last written.
    pub(super) written_at: Instant,
    /// No program runs any longer, or will.
    pub(super) programs_stopped: bool,
    /// Maps that records are about to print and clear, and of which programs use the other copy already.
    pub(super) switched_ahead: BTreeSet<usize>,
    /// The output cannot be written.
    pub(super) broken: Option<io::Error>,
    /// Lost events that were reported, and when they were last counted.
    pub(super) reported_lost: u64,
    pub(super) counts_read_at: Option<Instant>,
    /// Errors that were reported.
    pub(super) errors: u64,
    /// The places where programs may fail.
    pub(super) problems: Problems,
    /// Something was lost.
    pub(super) incomplete: bool,
    /// Report the counters of probes even if nothing was lost.
    pub(super) verbose: bool,
    pub(super) empty_result: empty_result::EmptyResult,
    /// Messages for the end, before the maps.
    pub(super) notes: Vec<String>,
    /// Maps whose contents are needed at the end, as they are shown.
    pub(super) final_views: FinalMaps<MapView>,
    /// The same without loss, for a state.
    pub(super) final_contents: FinalMaps<state::Map>,
    /// Requests of another thread for the state.
    pub(super) scrapes: Option<Arc<Scrapes>>,
    /// What was counted since the series began, if the state is exported.
    pub(super) totals: Option<Totals>,
    /// The screen on which the maps are shown; it shows all other output as well.
    pub(super) watch: Option<Watch>,
    pub(super) spans: Spans,
    /// `end` has run.
    pub(super) in_end: bool,
    /// Maps that `end` printed.
    pub(super) printed: Vec<Printed>,
    /// Large maps that were printed after a signal ended the run, and that were not cleared since.
    pub(super) printed_since_signal: Vec<Printed>,
    /// The number of their prints that were omitted, because nothing had changed.
    pub(super) omitted_prints: u64,
    /// All output of the script has been printed.
    pub(super) output_done: bool,
    /// Maps that were cleared after all programs had stopped, so their remaining contents are discarded.
    pub(super) cleared_at_end: BTreeSet<usize>,
    pub(super) stacks: Stacks,
    pub(super) frames: StackFrames,
    /// If the state is exported: open while the kernel measures run times, and when they were last requested.
    pub(super) run_time_stats: Option<(super::cost::Statistics, Instant)>,
    /// Other runs continue to use the output.
    pub(super) shares_output: bool,
    /// Set after the loop, unless other runs use standard error.
    pub(super) progress: Option<Progress>,
    /// Set after the loop.
    pub(super) throttle: Option<Throttle>,
    /// What limits do to the runs that share maps with this one.
    pub(super) estimates: Option<EstimatesOfRun>,
    /// See [`RunContext::close`].
    pub(super) counts: Vec<Counts>,
    /// Gets all output as well.
    pub(super) listener: Option<Listener>,
    /// The source of the record that is being processed, for [`RunContext::listener`].
    pub(super) source: Option<Source>,
}

impl<'a> RunContext<'a> {
    pub(super) fn new(attached: Attached<'a>, renderer: &'a mut dyn Renderer, out: &'a mut Stream, err: &'a mut Stream) -> Self {
        let SessionCx { loaded, symbols, signals, manifest, settings, invocation, boot_to_unix_ns, command: _ } = attached.cx;
        Self {
            loaded,
            manifest,
            settings,
            invocation,
            symbols: &**symbols,
            signals,
            boot_to_unix_ns: *boot_to_unix_ns,
            attached,
            renderer,
            rendered: Rendered::default(),
            streams: Some(Streams { out, err }),
            out: None,
            err: None,
            buffering: Buffering::Line,
            exit: None,
            ending: false,
            slow_record: false,
            since: Instant::now(),
            written_at: Instant::now(),
            programs_stopped: false,
            switched_ahead: BTreeSet::new(),
            broken: None,
            reported_lost: 0,
            counts_read_at: None,
            errors: 0,
            problems: Problems::of(manifest),
            incomplete: false,
            verbose: false,
            empty_result: empty_result::EmptyResult::default(),
            notes: Vec::new(),
            final_views: FinalMaps::default(),
            final_contents: FinalMaps::default(),
            scrapes: None,
            totals: None,
            watch: None,
            spans: Spans::default(),
            in_end: false,
            printed: Vec::new(),
            printed_since_signal: Vec::new(),
            omitted_prints: 0,
            output_done: false,
            cleared_at_end: BTreeSet::new(),
            stacks: Stacks::new(loaded, manifest, invocation.shares_maps),
            frames: StackFrames::default(),
            run_time_stats: None,
            shares_output: false,
            progress: None,
            throttle: None,
            estimates: None,
            counts: Vec::new(),
            listener: None,
            source: None,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        (self.exit.is_none() || self.ending) && self.broken.is_none()
    }

    pub(super) fn after_record(&mut self) {
        if self.buffering == Buffering::None || self.rendered.out.len() >= FLUSH_THRESHOLD {
            self.flush(true);
        }
    }

    /// Called after name lookups, which may have taken long.
    pub(super) fn look_up(&mut self) {
        self.slow_record |= self.since.elapsed() >= SLOW_RECORD;
    }

    /// Called while more records wait: writes the rendered text if it is much, or was rendered some time ago. A write for each
    /// batch would make batches of a few records the slowest part of a run whose output other threads write.
    pub(super) fn flush_between(&mut self) {
        if self.rendered.out.len() >= FLUSH_THRESHOLD || self.written_at.elapsed() >= MAX_WRITE_DELAY {
            self.flush(false);
        }
    }

    /// Writes the rendered text, if it is time to (or `now`): output before messages.
    pub(super) fn flush(&mut self, now: bool) {
        if let Some(watch) = &mut self.watch {
            watch.set_text(&mut self.rendered);
            return;
        }
        let time = now || self.buffering != Buffering::Full || self.rendered.out.len() >= FLUSH_THRESHOLD || !self.rendered.err.is_empty();
        if self.rendered.err.is_empty() && (!time || self.rendered.out.is_empty()) {
            return;
        }
        match self.progress.take() {
            Some(progress) => {
                progress.aside(|| self.write(time));
                self.progress = Some(progress);
            }
            None => self.write(time),
        }
    }

    /// Shows the current step, if the run is over.
    fn at(&self, step: &str) {
        if let Some(progress) = &self.progress {
            progress.at(step);
        }
    }

    /// Reports events lost since the last report: at most every [`MAX_WAIT`], unless it is the `last` time.
    pub(super) fn report_lost_events(&mut self, last: bool) {
        if !last && self.counts_read_at.is_some_and(|at| at.elapsed() < MAX_WAIT) {
            return;
        }
        self.counts_read_at = Some(Instant::now());
        let lost = self.loaded.state.total_counters().dropped;
        if lost > self.reported_lost {
            let events = lost - self.reported_lost;
            self.reported_lost = lost;
            self.say(Output::Lost { events });
        }
    }

    /// Reports the failure of a program that a record describes.
    pub(super) fn take_problem(&mut self, record: &[u8]) {
        let mut problems = std::mem::take(&mut self.problems);
        problems.report(record, self);
        self.problems = problems;
    }

    /// Reports failures of programs that no record described.
    pub(super) fn finish_problems(&mut self) {
        let mut problems = std::mem::take(&mut self.problems);
        problems.finish(&self.loaded.state, self);
        self.problems = problems;
    }

    /// The run is over, and this much is still to be printed.
    pub(super) fn still(&mut self, bytes: u64) {
        if self.settings.warning_level > 0 {
            let kib = bytes.div_ceil(1024);
            let again = if self.signals.end_requests() > 0 { " again" } else { "" };
            let note = format!("note: {kib} KiB of events remain to be printed; press Ctrl-C{again} to stop immediately\n");
            self.rendered.err.extend_from_slice(note.as_bytes());
            self.flush(true);
        }
    }

    /// Passes the time of a record to the renderer, if the record has one.
    pub(super) fn date(&mut self, record: &[u8]) {
        if self.invocation.stamps
            && let Some(stamp) = record.get(4..8).and_then(|bytes| bytes.try_into().ok())
        {
            let at = stamped(u32::from_ne_bytes(stamp), load::clock(DynamicClockId::Known(ClockId::Boottime)));
            self.renderer.at(i128::from(at) + i128::from(self.boot_to_unix_ns));
        }
    }

    /// Now, in nanoseconds since 1970.
    fn now(&self) -> i128 {
        i128::from(load::clock(DynamicClockId::Known(ClockId::Boottime))) + i128::from(self.boot_to_unix_ns)
    }

    /// The counters of each probe: what it did and what it lost.
    pub(super) fn counts(&self) -> Vec<Counts> {
        let of = |(program, fd): (&Program, &Option<RawFd>)| {
            let probe = program.name();
            let counters = self.loaded.state.probe_counters(&program.probes);
            Counts {
                probe,
                sent: counters.sent,
                dropped: counters.dropped,
                missed: counters.missed + fd.map_or(0, load::left_out),
                refused: counters.refused,
                unstored: counters.unstored,
                cut: counters.cut,
                unread: counters.unread,
                unkept: counters.unkept,
                thinned: counters.thinned,
                sampled_out: counters.sampled_out,
                detached: self.throttle.as_ref().map_or(0, |throttle| throttle.detached(&program.probes)),
            }
        };
        self.manifest.programs.iter().zip(&self.loaded.programs).map(of).collect()
    }

    /// How far the values of a map are estimates.
    pub(super) fn weights(&self, map: &Map) -> Option<Weights> {
        let of_others = self.estimates.as_ref().and_then(|estimates| estimates.of_others(&map.name));
        add_weights(self.own_weights(map), of_others)
    }

    /// Reports to the runs that share maps with this one on which maps the values of its own depend.
    pub(super) fn publish_sources(&self) {
        let Some(estimates) = &self.estimates else { return };
        for map in self.manifest.maps.iter().filter(|map| !map.sources.is_empty()) {
            let sources = map.sources.iter().filter_map(|source| self.manifest.maps.get(*source));
            estimates.publish_sources(&map.name, sources.map(|source| source.name.clone()).collect());
        }
    }

    /// Reports to the runs that share maps with this one how far their values are estimates.
    pub(super) fn publish_weights(&self) {
        let Some(estimates) = &self.estimates else { return };
        for map in self.manifest.maps.iter().filter(|map| !map.weighted_by.is_empty()) {
            if let Some(weights) = self.own_weights(map) {
                let is_detached = self.throttle.as_ref().is_some_and(|throttle| throttle.is_detached(&map.weighted_by));
                estimates.publish(&map.name, weights, is_detached);
            }
        }
    }

    /// How far the values that this run has added to a map are estimates.
    fn own_weights(&self, map: &Map) -> Option<Weights> {
        let counters = self.loaded.state.probe_counters(&map.weighted_by);
        let detached = self.throttle.as_ref().map_or(Duration::ZERO, |throttle| throttle.detached_time(&map.weighted_by));
        let (passed, detached_ms) = (counters.ran, detached.as_millis() as u64);
        (counters.sampled_out > 0 || detached_ms > 0).then(|| Weights { passed, runs: passed + counters.sampled_out, detached_ms })
    }

    /// A line for standard error.
    pub(super) fn warn(&mut self, line: &str) {
        self.rendered.err.extend_from_slice(format!("{}\n", plain(line)).as_bytes());
    }

    /// The end of the output: failures, the maps, then the losses of each probe.
    pub(super) fn close(&mut self, events: &mut Events) {
        self.report_lost_events(true);
        self.finish_problems();
        events.finish(self);
        let now = self.now();
        self.renderer.at(now);
        self.spans.close(now).into_iter().for_each(|span| self.say(Output::Span(span)));
        self.notes.extend(self.spans.problems().into_iter().filter(|_| self.settings.warning_level > 0));
        self.output_done = true;
        let counts = self.counts();
        self.empty_result.set_finished();
        // a script that prints none, such as one with len(ustack), does not need the note
        let shows_stacks = self.manifest.types().any(builtins::contains_user_stack);
        let cut_stacks = builtins::incomplete_stacks(&self.loaded.state.cut_stacks()).filter(|_| shows_stacks);
        let complete = counts.iter().all(Counts::complete);
        self.incomplete = cut_stacks.is_some() || !complete;
        if let Some(unwinder) = self.loaded.unwinder.as_ref().filter(|_| self.verbose) {
            self.notes.extend(unwinder.take_messages());
        }
        if self.omitted_prints > 0 && self.settings.warning_level > 0 {
            self.notes.push(format!("note: interrupted: {} repeated prints of large maps were omitted", self.omitted_prints));
        }
        for note in std::mem::take(&mut self.notes) {
            self.warn(&note);
        }
        if !self.shares_output {
            self.say(Output::End);
        }
        if self.settings.print_maps_on_exit {
            let mut order: Vec<usize> = (0..self.manifest.maps.len()).collect();
            order.sort_by_key(|&i| self.manifest.maps.get(i).map(|m| m.name.as_bytes()));
            for map in order {
                self.at(&format!("printing {}", self.manifest.maps.get(map).map_or("", |m| &m.name)));
                match self.map(map) {
                    // a format may print empty statistics
                    Ok(view) if view.entries.is_empty() || !view.set => {
                        if view.kind == MapViewKind::Stats {
                            self.say(Output::Map(MapView { entries: Vec::new(), ..view }));
                        }
                    }
                    Ok(view) => self.say(Output::Map(view)),
                    Err(why) => {
                        let msg = format!("{why:#}");
                        self.say(Output::problem(ProblemKind::Runtime, msg, &Pos::default(), ""));
                    }
                }
            }
        }
        if let Some(lost) = self.symbols.lost().filter(|_| self.settings.warning_level > 0) {
            self.flush(true);
            self.rendered.err.extend_from_slice(format!("{lost}\n").as_bytes());
        }
        if let Some(builtins::IncompleteStacks { msg, counts }) = cut_stacks.filter(|_| self.settings.warning_level > 0) {
            self.say(Output::Problem {
                kind: ProblemKind::IncompleteStacks,
                msg,
                helper: None,
                pos: Pos::default(),
                line: String::new(),
                counts,
            });
        }
        if !complete || self.verbose {
            self.say(Output::Counts(counts.clone()));
        }
        self.counts = counts;
        self.flush(true);
    }

    /// Called before a record prints and clears a map. With it, programs leave the copies of the maps that the following records
    /// print and clear, because each wait for programs takes a while.
    pub(super) fn switch_ahead(&mut self, map: usize, following: impl FnOnce() -> Vec<usize>) {
        if self.programs_stopped || self.switched_ahead.contains(&map) {
            return;
        }
        let maps: BTreeSet<usize> = following().into_iter().chain([map]).collect();
        let bits: Vec<u32> = maps.iter().filter_map(|map| self.manifest.maps.get(*map)?.double).collect();
        // if it fails, each map is switched, and reports why it cannot be
        if bits.len() > 1 && double_buffer::switch(&self.loaded.state, &bits).is_ok() {
            self.switched_ahead.extend(maps);
        }
    }

    /// Does the output come from records that were pending when a signal ended the run? The programs have been stopped, so maps
    /// are the same until a record clears them.
    fn prints_pending_records(&self) -> bool {
        self.ending && !self.in_end && self.signals.end_requests() > 0
    }

    /// The map changes, so another print of it shows something else.
    fn forget_print(&mut self, map: usize) {
        let name = self.manifest.maps.get(map).map(|map| &map.name);
        self.printed_since_signal.retain(|printed| Some(&printed.map) != name);
    }

    /// Called before a map is cleared.
    pub(super) fn before_clear(&mut self, map: usize) -> anyhow::Result<()> {
        self.forget_print(map);
        let (mut kept, in_end) = (std::mem::take(&mut self.final_views), self.in_end);
        let done = kept.emptied(map, in_end, || self.map(map));
        self.final_views = kept;
        done?;
        let (_, fd) = self.map_at(map)?;
        self.save(map, fd)
    }

    /// Clears a map. Clearing a large map takes the kernel a while, so at the end it is only marked.
    fn clear(&mut self, map: usize) -> anyhow::Result<()> {
        let (row, at) = self.map_at(map)?;
        if self.in_end && !self.invocation.shares_maps && !at.array {
            self.cleared_at_end.insert(map);
            return Ok(());
        }
        // the other copy of a scalar may show that it was set
        if let Some(other) = self.other_copy(map).filter(|other| other.array) {
            maps::clear(row, other)?;
        }
        maps::clear(row, at)
    }

    /// The results of the run, for expectations.
    pub(super) fn last(&mut self, not_attached: &BTreeSet<String>) -> anyhow::Result<FinalResults> {
        let kept = std::mem::take(&mut self.final_views);
        let emptied = kept.clear_count();
        let maps = kept.contents(|map| self.map(map))?;
        let counts = std::mem::take(&mut self.counts);
        let unbounded = self.manifest.maps.iter().filter(|map| map.unbounded).map(|map| map.name.clone()).collect();
        Ok(FinalResults { maps, emptied, unbounded, counts, not_attached: not_attached.iter().cloned().collect(), omitted: 0 })
    }

    /// For a double-buffered map: was the copy set that programs no longer write to? A zeroed one stays set.
    pub(super) fn other_is_set(&self, map: usize) -> bool {
        self.manifest.maps.get(map).is_some_and(|m| m.key.is_none() && m.double.is_some())
            && [self.loaded.maps.get(map).copied(), self.loaded.second_copies.get(map).copied().flatten()]
                .into_iter()
                .flatten()
                .any(maps::is_set)
    }

    /// The copy of a double-buffered map that programs do not write to.
    fn other_copy(&self, map: usize) -> Option<MapFd> {
        let (_, now) = self.map_at(map).ok()?;
        let copies = [self.loaded.maps.get(map).copied(), self.loaded.second_copies.get(map).copied()?];
        copies.into_iter().flatten().find(|copy| copy.fd != now.fd)
    }

    pub(super) fn map_at(&self, map: usize) -> anyhow::Result<(&Map, MapFd)> {
        let (row, first) = self.manifest.maps.get(map).zip(self.loaded.maps.get(map).copied()).context("no such map in the manifest")?;
        let second = self.loaded.second_copies.get(map).copied().flatten();
        let Some((bit, second)) = row.double.zip(second) else { return Ok((row, first)) };
        let is_second = (self.loaded.state.generation(bit) == 1) != self.switched_ahead.contains(&map);
        Ok((row, if is_second { second } else { first }))
    }
}

impl Host for RunContext<'_> {
    fn say(&mut self, output: Output) {
        if let Output::Map(view) = &output
            && self.prints_pending_records()
            && view.entries.len() > MANY_KEYS
        {
            self.printed_since_signal.push(Printed { map: view.name.clone(), show: view.show.clone() });
        }
        self.errors += u64::from(output.is_error());
        self.empty_result.printed(&output);
        if let (Output::Map(view), true) = (&output, self.in_end && !self.output_done) {
            // a map that is shown again after it was cleared has nothing more to show
            let is_empty = !view.set || view.entries.is_empty();
            let index = self.manifest.maps.iter().position(|map| map.name == view.name);
            let is_cleared = index.is_some_and(|map| self.final_contents.is_cleared(map));
            if !(is_empty && is_cleared && self.printed.iter().any(|printed| printed.map == view.name)) {
                self.printed.push(Printed { map: view.name.clone(), show: view.show.clone() });
            }
        }
        if let Some(listener) = &mut self.listener {
            listener(&output, self.source.as_ref());
        }
        if matches!(&output, Output::Map(view) if view.entries.len() > MANY_KEYS) {
            self.render_in_parts(&output);
        } else {
            self.renderer.render(&output, &mut self.rendered);
        }
        if !self.rendered.err.is_empty() {
            self.flush(true); // in order if both are the same terminal
        }
    }

    fn text(&self, value: &Value, reader: Reader, to: &mut Vec<u8>) {
        self.renderer.text(value, reader, to);
    }

    fn ending(&self) -> u32 {
        self.signals.end_requests()
    }

    fn in_end(&self) -> bool {
        self.in_end
    }

    fn settings(&self) -> &Settings {
        self.settings
    }

    fn spans(&mut self) -> &mut Spans {
        &mut self.spans
    }

    fn repeats_print(&mut self, map: usize, show: &ShowOptions) -> bool {
        let name = self.manifest.maps.get(map).map(|map| &map.name);
        let repeats = self.printed_since_signal.iter().any(|printed| Some(&printed.map) == name && printed.show == *show);
        let repeats = repeats && self.prints_pending_records();
        self.omitted_prints += u64::from(repeats);
        repeats
    }

    fn map(&mut self, map: usize) -> anyhow::Result<MapView> {
        let manifest = self.manifest;
        let (_, fd) = self.map_at(map)?;
        let row = manifest.maps.get(map).context("no such map in the manifest")?;
        let view = if self.cleared_at_end.contains(&map) { maps::empty(row)? } else { maps::view(row, fd, self)? };
        Ok(MapView { set: view.set || self.other_is_set(map), weights: self.weights(row), ..view })
    }

    fn take_map(&mut self, map: usize, keys: bool) -> anyhow::Result<MapView> {
        self.forget_print(map);
        let manifest = self.manifest;
        let (_, fd) = self.map_at(map)?;
        let row = manifest.maps.get(map).context("no such map in the manifest")?;
        let mut apart = false;
        if let Some(bit) = row.double {
            self.slow_record = true;
            if self.switched_ahead.remove(&map) {
                apart = true;
            } else if !self.programs_stopped {
                // once programs have been stopped, wait only once for those that are running
                double_buffer::switch(&self.loaded.state, &[bit])?;
                self.programs_stopped = self.loaded.state.stopped();
                apart = true;
            }
        }
        let view = if self.cleared_at_end.contains(&map) { maps::empty(row)? } else { maps::view(row, fd, self)? };
        let view = MapView { set: view.set || self.other_is_set(map), weights: self.weights(row), ..view };
        self.final_views.emptied(map, self.in_end, || Ok(view.clone()))?;
        self.save(map, fd)?;
        match (keys, apart) {
            (true, true) => {
                let (_, now) = self.map_at(map)?;
                maps::keep_keys(row, fd, now)?;
                // only this function knows that a scalar is set
                if fd.array { maps::zero(row, fd)? } else { maps::clear(row, fd)? }
            }
            (true, false) => maps::zero(row, fd)?,
            (false, false) => self.clear(map)?,
            (false, true) => maps::clear(row, fd)?,
        }
        Ok(view)
    }

    fn map_element(&mut self, map: usize, key: &[u8]) -> anyhow::Result<Value> {
        let manifest = self.manifest;
        let (_, fd) = self.map_at(map)?;
        let row = manifest.maps.get(map).context("no such map in the manifest")?;
        if self.cleared_at_end.contains(&map) { maps::no_element(row, fd, self) } else { maps::element(row, fd, key, self) }
    }

    fn clear_map(&mut self, map: usize) -> anyhow::Result<()> {
        self.before_clear(map)?;
        self.clear(map)
    }

    fn zero_map(&mut self, map: usize) -> anyhow::Result<()> {
        self.before_clear(map)?;
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

    fn new_frames(&mut self, capacity: usize) -> FramesBuilder {
        self.frames.new_stack(capacity)
    }

    fn kernel_frames(&mut self, addrs: &[u64], resolve: bool, to: &mut FramesBuilder) {
        if !resolve {
            return self.frames.add_bare(addrs, to);
        }
        self.symbols.kernel(addrs, Some(self.frames.table()), &mut |frames| to.extend(frames));
        self.look_up();
    }

    fn user_frames(&mut self, pid: u32, addrs: &[u64], resolve: bool, to: &mut FramesBuilder) {
        if !resolve {
            return self.frames.add_bare(addrs, to);
        }
        self.symbols.user(pid, addrs, Some(self.frames.table()), &mut |frames| to.extend(frames));
        self.look_up();
    }

    fn stack(&mut self, limit: u32, id: u64) -> Option<Vec<u64>> {
        self.stacks.frames(limit, id)
    }

    fn python_frame(&mut self, id: u64, offset: u32) -> Option<Frame> {
        PYTHON.get().and_then(|python| (python.frame)(id, offset))
    }

    fn boot_to_unix_ns(&self) -> u64 {
        self.boot_to_unix_ns
    }
}
