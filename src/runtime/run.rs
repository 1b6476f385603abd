//! The main loop: processes records and everything that can end the run. A separate thread empties the ring buffer (`collect`).

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::context::RunContext;
use super::final_maps::FinalMaps;
use super::keep_limits::Attached;
use super::meter::Meter;
use super::poll::{MAX_WAIT, UNBOUNDED, ended, fd_is_readable};
use super::signals::{Signals, with_loop_deadline};
use super::source::{MAX_WRITER_WAIT, Source};
use super::throttle::Throttle;
use super::totals::Totals;
use super::watch::Watch;
use super::write::Destination;
use super::{
    Child, Exit, Options, Session, SessionCx, Stream, child, entry_cost, grace_period, iter, load, raw, redraw, removed_cgroup,
    replaced_files, run_by_hand, unhit_probes,
};
use crate::codegen::artifact::Manifest;
use crate::host::Host;
use crate::output::Output;
use crate::probes::Attach;
use crate::progress::Progress;
use crate::render::{Rendered, Renderer};
use crate::state::State;
use crate::streams::CLOSED_PIPE;
use crate::system::TargetInfo;

impl Session<'_> {
    /// Runs to the end. Output of the script goes to `out`, and messages about the run to `err`.
    ///
    /// Errors: [`super::AttachFailed`], [`super::NothingAttached`], a command that cannot run, output that cannot be written.
    /// A second SIGINT or SIGTERM ends the process immediately, as does the first while the results are printed.
    pub fn run(&mut self, renderer: &mut dyn Renderer, out: &mut Stream, err: &mut Stream) -> anyhow::Result<Exit> {
        if self.options.costs.is_some() {
            entry_cost::prepare(self.sys);
        }
        let throttle = Throttle::of(&self.cx, self.sys);
        if throttle.is_some() {
            self.links.begin_detacher();
        }
        log_entry_costs(&mut self.options);
        let begun = self.begin(renderer, out, err)?;
        if self.options.dry_run {
            return Ok(Exit { status: 0, child: None });
        }
        let attached = Attached { cx: &self.cx, links: &mut self.links, sys: self.sys, files: &self.files };
        let mut context = RunContext::new(attached, renderer, out, err);
        context.throttle = throttle;
        let mut events = EventLoop {
            child: self.child.take(),
            cgroup: removed_cgroup::Watch::new(self.cx.settings, self.cx.invocation),
            continues: begun.continues,
            has_events: has_events(self.cx.manifest, &self.options),
            idle_wait: MAX_WAIT,
            changes: -1,
            meter: None,
            refreshed: Instant::now(),
            context,
            cx: &self.cx,
            sys: self.sys,
            source: &mut self.source,
            options: &mut self.options,
            not_attached: &self.not_attached,
            files: &self.files,
            watched: self.watched,
            target: self.target.as_ref(),
        };
        events.start(begun)?;
        while let Some(wait) = events.turn()? {
            events.sleep(wait);
        }
        events.finish()
    }

    /// Runs `begin`, attaches the probes, and enables the programs.
    fn begin(&mut self, renderer: &mut dyn Renderer, out: &mut Stream, err: &mut Stream) -> anyhow::Result<BeginResult> {
        load::run_all(self.cx.manifest, &self.cx.loaded, &Attach::Begin, &self.cx.signals)?;
        let mut first = Vec::new();
        let start = Instant::now();
        if let Err(why) = self.attach(false, &mut |warning| first.push(warning)) {
            let mut rendered = Rendered::default();
            first.iter().for_each(|warning| renderer.render(warning, &mut rendered));
            // a write error is ignored here, because the failure is more important
            let _ = out.write_all(&rendered.out).and_then(|()| err.write_all(&rendered.err));
            return Err(why);
        }
        let earlier = self.options.predecessor.take().and_then(|replaces| replaces());
        // a run that `begin` ended stays ended
        let continues = self.cx.loaded.state.ended().is_none();
        if continues {
            self.cx.loaded.state.go();
        }
        if !self.cx.settings.duration.is_zero() {
            self.cx.signals.end_after(self.cx.settings.duration);
        }
        if self.options.verbose
            && let Some(log) = &mut self.options.log
        {
            log(&format!("attach   {:8.3} ms", start.elapsed().as_secs_f64() * 1e3));
        }
        if !self.options.quiet {
            first.push(Output::Attached { probes: self.links.sites });
        }
        Ok(BeginResult { continues, first, predecessor_state: earlier })
    }
}

/// A run between `begin` and its exit status.
struct EventLoop<'a> {
    /// The `-c` program.
    child: Option<Child>,
    context: RunContext<'a>,
    /// Measures the cost of the run.
    meter: Option<Meter>,
    cgroup: removed_cgroup::Watch,
    /// When the symbols' mappings were last brought up to date.
    refreshed: Instant,
    /// `begin` did not end the run.
    continues: bool,
    /// There is a probe that an event may fire.
    has_events: bool,
    /// The longest wait if nothing needs to be checked: a short one first after records, whose last losses are reported then.
    idle_wait: Duration,
    /// Readable if the symbols' mappings have changed; -1 if nothing waits for that.
    changes: RawFd,
    cx: &'a SessionCx<'a>,
    sys: &'a dyn TargetInfo,
    source: &'a mut Source,
    options: &'a mut Options,
    not_attached: &'a BTreeSet<String>,
    files: &'a replaced_files::Files,
    watched: bool,
    target: Option<&'a OwnedFd>,
}

impl EventLoop<'_> {
    /// Writes the output of `begin`, starts the command, and runs the iterators.
    fn start(&mut self, begun: BeginResult) -> anyhow::Result<()> {
        configure(&mut self.context, self.options);
        self.context.inherit(begun.predecessor_state, self.options.scrapes.as_deref())?;
        begun.first.into_iter().for_each(|output| self.context.say(output));
        if self.cx.settings.warning_level > 0 {
            self.cx.manifest.unlimited_programs().for_each(|name| {
                let why = "others use what its runs store, so each run counts, and it prints nothing";
                self.context.warn(&format!("WARNING: --max-events does not limit {name}: {why}"));
            });
        }
        self.context.flush(true);
        super::notify(&mut self.options.notify_fd)?;
        if let Some(attached) = self.options.on_attached.take() {
            attached(self.context.attached.links.sites);
        }
        // before the command starts, whose load is measured
        if let Some(measure) = &self.options.costs {
            super::privileges::require_statistics("measure the cost")?;
            let meter = Meter::begin(self.cx, measure.limit, self.sys);
            self.meter = Some(meter.context("the kernel cannot measure the cost of programs")?);
        }
        // The output of `begin` precedes the effects of the child; if it calls exit(), the child never runs.
        self.source.drain_once(&mut self.context);
        self.context.flush(true);
        if let Some(child) = self.child.as_mut().filter(|_| self.context.is_running()) {
            if let Some(unwinder) = &self.cx.loaded.unwinder {
                unwinder.wait_for_earlier();
            }
            child.start()?;
        }
        iterate(self.source, &mut self.context, &self.cx.signals)?;
        if self.context.is_running() && (self.has_events || self.child.is_some()) {
            self.source.collect(&self.cx.loaded.state, self.cx.settings);
        }
        self.refreshed = Instant::now();
        Ok(())
    }

    /// Processes the records at hand and everything else that is due. The result is the longest wait for the next turn; none
    /// at the end of the run.
    fn turn(&mut self) -> anyhow::Result<Option<Duration>> {
        let context = &mut self.context;
        handle_signals(self.cx, context)?;
        if let Some(scrapes) = context.scrapes.clone() {
            scrapes.answer(context)?;
        }
        let done = self.source.done(context, &self.cx.loaded.state);
        if context.exit.is_none() {
            context.exit = done.exit_status;
        }
        if self.watched && self.refreshed.elapsed() >= MAX_WAIT {
            self.cx.symbols.refresh();
            self.refreshed = Instant::now();
        }
        context.stacks.make_room(&context.loaded.state, done.is_complete);
        context.keep_limits();
        if let Some(meter) = &mut self.meter {
            meter.update(self.cx);
        }
        context.report_lost_events(false);
        if let Some(warning) = self.cgroup.warning(false) {
            context.warn(&warning);
        }
        if done.is_complete {
            context.flush(false);
        } else {
            context.flush_between();
        }
        let quit = redraw::redraw(context);
        let child_over = exit_of_child(&mut self.child)?.is_some();
        let over = quit
            || child_over
            || (!self.has_events && self.child.is_none())
            || self.cx.signals.end().is_some()
            || self.target.is_some_and(ended);
        if over || !self.context.is_running() {
            return Ok(None);
        }
        if !done.is_complete {
            self.idle_wait = MAX_WAIT;
            return Ok(Some(Duration::ZERO));
        }
        let wait = self.max_wait();
        self.idle_wait = UNBOUNDED;
        Ok(Some(wait))
    }

    /// The time until something is due that no descriptor announces.
    fn max_wait(&mut self) -> Duration {
        let state = &self.cx.loaded.state;
        let mut wait = self.idle_wait;
        if self.meter.is_some() || self.context.watch.is_some() {
            wait = wait.min(MAX_WAIT);
        }
        if self.cgroup.is_active() {
            wait = wait.min(removed_cgroup::POLL_INTERVAL);
        }
        wait = wait.min(self.time_to_refresh());
        wait = self.context.stacks.max_wait(state, wait);
        match self.context.throttle.as_ref().map(|throttle| (throttle, throttle.max_wait())) {
            Some((_, Some(until_tick))) => wait = wait.min(until_tick),
            throttle => {
                state.await_notice();
                // a run before this sent no notice
                if throttle.is_some_and(|(throttle, _)| throttle.has_changed(self.cx)) {
                    wait = Duration::ZERO;
                }
            }
        }
        self.cx.signals.max_wait(wait)
    }

    /// The time until the symbols' mappings are to be brought up to date. Sets the descriptor that announces changes.
    fn time_to_refresh(&mut self) -> Duration {
        self.changes = -1;
        if !self.watched {
            return UNBOUNDED;
        }
        let (changes, longest) = self.cx.symbols.changes();
        if fd_is_readable(changes) {
            return MAX_WAIT.saturating_sub(self.refreshed.elapsed()) + Duration::from_millis(1);
        }
        self.changes = changes;
        longest
    }

    /// Waits for a record or another event of the loop.
    fn sleep(&self, wait: Duration) {
        if wait.is_zero() {
            return;
        }
        self.source.sleep(
            wait,
            &[
                self.cx.signals.fd(),
                raw(self.child.as_ref().map(|c| c.fd()).as_ref()),
                raw(self.target),
                self.context.scrapes.as_ref().map_or(-1, |scrapes| scrapes.fd()),
                self.context.watch.as_ref().map_or(-1, Watch::keys),
                self.changes,
            ],
        );
    }

    /// Stops the programs, runs `end`, and reports the results.
    fn finish(mut self) -> anyhow::Result<Exit> {
        if let (Some(meter), Some(measure)) = (self.meter.take(), self.options.costs.take()) {
            (measure.report)(meter.finish(self.cx));
        }
        redraw::end(&mut self.context);
        self.stop();
        if !self.context.shares_output {
            let progress = Progress::on_stderr();
            progress.at("printing the results");
            self.context.progress = Some(progress);
        }
        self.context.publish_weights();
        self.cx.signals.results_begin();
        self.source.finish(&mut self.context);
        let status = self.context.exit.take();
        if self.context.broken.is_none() {
            self.end()?;
            report(&mut self.context, self.options, self.not_attached, status)?;
        }
        // a program that is still running has no reader, and keeps its probe from being detached
        self.cx.loaded.state.interrupt(true);
        let child = exit_of_child(&mut self.child)?;
        let exit = exit_of(&mut self.context, status, child, self.options.strict);
        self.log_end(child);
        exit
    }

    /// Stops the programs. Those that are running come to their ends first.
    fn stop(&mut self) {
        let state = &self.cx.loaded.state;
        with_loop_deadline(state.flags(), MAX_WRITER_WAIT * 10, || self.context.attached.links.quiet());
        match self.continues && self.has_events && self.context.broken.is_none() {
            // if the kernel does not stop it, only the output of running programs is lost
            true => with_loop_deadline(state.flags(), MAX_WRITER_WAIT * 10, || grace_period::stop(state)).unwrap_or_default(),
            false => state.stop(),
        }
        if let Some(throttle) = &mut self.context.throttle {
            throttle.end();
        }
        if let Some(estimates) = &self.context.estimates {
            estimates.end();
        }
        self.context.attached.links.detach_from_own_files(self.cx.manifest);
    }

    /// Runs `end`, and prints the notes and maps that follow it.
    fn end(&mut self) -> anyhow::Result<()> {
        let SessionCx { loaded, manifest, settings, signals, .. } = self.cx;
        loaded.state.reset_end();
        load::run_all(manifest, loaded, &Attach::End, signals)?;
        if let Some(scrapes) = self.context.scrapes.clone() {
            scrapes.finish(&mut self.context)?;
        }
        self.context.in_end = true;
        self.source.finish(&mut self.context);
        if let Some(hits) = loaded.hits.filter(|_| settings.warning_level > 0) {
            self.context.notes = unhit_probes::notes(manifest, hits, self.not_attached, settings.pid, self.sys);
        }
        self.context.notes.extend(self.cgroup.warning(true));
        self.context.notes.extend(self.files.notes().into_iter().filter(|_| settings.warning_level > 0));
        self.context.close(&mut self.source.events);
        Ok(())
    }

    fn log_end(&mut self, child: Option<child::Exit>) {
        if self.options.verbose
            && let Some(log) = &mut self.options.log
        {
            if let Some(exit) = child {
                log(&format!("the -c program ended with status {}", exit.status()));
            }
            let slow = self.context.attached.links.slow();
            if slow > 0 {
                log(&format!("closing {slow} probe descriptors in the background"));
            }
        }
    }
}

/// Is there a probe that an event may fire?
fn has_events(manifest: &Manifest, options: &Options) -> bool {
    let for_end = |attach: &Attach| options.waits && matches!(attach, Attach::End);
    let fires = |attach: &Attach| for_end(attach) || !run_by_hand(attach) && !matches!(attach, Attach::Iter { .. });
    manifest.programs.iter().flat_map(|p| &p.sites).any(|site| fires(&site.attach))
}

fn log_entry_costs(options: &mut Options) {
    if options.verbose
        && let Some(message) = entry_cost::message()
        && let Some(log) = &mut options.log
    {
        log(&message);
    }
}

/// Prepares the context for the options of the run.
fn configure(context: &mut RunContext, options: &mut Options) {
    context.buffering = options.buffering;
    context.verbose = options.verbose;
    context.shares_output = options.managed_by.is_some();
    if let Some(wanted) = &options.on_end {
        context.final_views = FinalMaps::new(context.manifest, &wanted.maps);
    }
    if options.state.is_some() {
        let names: Vec<String> = context.manifest.maps.iter().map(|m| m.name.clone()).collect();
        context.final_contents = FinalMaps::new(context.manifest, &names);
    }
    context.scrapes.clone_from(&options.scrapes);
    context.estimates.clone_from(&options.estimates);
    context.publish_sources();
    let destination = |fd: OwnedFd| Rc::new(Destination::of(fd));
    context.out = options.out.take().map(destination);
    context.err = io::stderr().as_fd().try_clone_to_owned().ok().map(destination);
    context.totals = options.scrapes.is_some().then(|| Totals::new(context.settings.max_series));
    if let Some(wanted) = options.watched.take() {
        context.watch = Watch::begin(wanted, context.manifest);
    }
    context.listener = options.listener.take();
}

/// Reports the results of a run that is over: a note if there are none, the state, and the maps for expectations.
/// `status` is that of the script before `end`.
fn report(context: &mut RunContext, options: &mut Options, not_attached: &BTreeSet<String>, status: Option<u8>) -> anyhow::Result<()> {
    let purpose = options.filters.as_deref().filter(|_| context.exit.or(status).unwrap_or(0) == 0 && !context.incomplete);
    if let Some(note) = purpose.and_then(|purpose| context.empty_result.nothing_of(purpose, context.manifest, &context.loaded.state)) {
        context.rendered.err.extend_from_slice(note.as_bytes());
        context.flush(true);
    }
    if let Some(state) = options.state.take() {
        let state = context.state(state, not_attached)?;
        context.say(Output::State(state));
        context.flush(true);
    }
    if let Some(wanted) = options.on_end.take() {
        (wanted.report)(context.last(not_attached)?);
    }
    Ok(())
}

/// The result of [`Session::begin`].
struct BeginResult {
    /// `begin` did not end the run.
    continues: bool,
    /// The output to render first.
    first: Vec<Output>,
    /// The counts of the run that this one replaces.
    predecessor_state: Option<Box<State>>,
}

fn exit_of(context: &mut RunContext, status: Option<u8>, child: Option<child::Exit>, strict: bool) -> anyhow::Result<Exit> {
    match context.broken.take() {
        Some(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(Exit { status: CLOSED_PIPE, child }),
        Some(why) => Err(super::NotWritten(why).into()),
        None => {
            let lost = u8::from(strict && context.incomplete);
            // as in bpftrace, the status from `end` takes precedence
            let status = context.exit.or(status).unwrap_or(0);
            Ok(Exit { status: if status == 0 { lost } else { status }, child })
        }
    }
}

/// Handles the latest signals, except for requests to end the run.
fn handle_signals(cx: &SessionCx, context: &mut RunContext) -> anyhow::Result<()> {
    for _ in 0..cx.signals.acknowledge() {
        load::run_all(cx.manifest, &cx.loaded, &Attach::Signal, &cx.signals)?;
    }
    match cx.signals.paused() {
        Some(true) => cx.loaded.state.stop(),
        Some(false) if cx.loaded.state.ended().is_none() => {
            context.programs_stopped = false;
            cx.loaded.state.go();
        }
        Some(false) | None => {}
    }
    Ok(())
}

/// How the `-c` program ended, if there is one and it has.
fn exit_of_child(child: &mut Option<Child>) -> anyhow::Result<Option<child::Exit>> {
    child.as_mut().map_or(Ok(None), Child::exited)
}

/// Pins pinned iterators, and runs the others.
fn iterate(source: &mut Source, context: &mut RunContext, signals: &Signals) -> anyhow::Result<()> {
    for (link, pin) in std::mem::take(&mut context.attached.links.iters) {
        if let Some(path) = pin {
            iter::pin(&link, &path).context("cannot pin an iterator")?;
            let data = format!("Program pinned to {}", path.display()).into_bytes();
            context.say(Output::Text { kind: "pinned", data, newline: true });
            context.flush(true);
            continue;
        }
        let mut reader = iter::reader(&link).context("cannot read the objects of an iterator")?;
        while context.is_running() && signals.end().is_none() {
            let more = iter::read_objects(&mut reader).context("an iterator ended early")?;
            source.drain_once(context);
            context.flush(false);
            if !more {
                break;
            }
        }
    }
    Ok(())
}
