//! The main loop: processes records and everything that can end the run. A separate thread empties the ring buffer (`collect`).

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::Instant;

use anyhow::Context;

use super::attach::Links;
use super::cleared_totals::ClearedTotals;
use super::context::RunContext;
use super::final_maps::FinalMaps;
use super::meter::Meter;
use super::poll::{MAX_WAIT, ended};
use super::signals::{Signals, with_loop_deadline};
use super::source::{STRAGGLERS, Source};
use super::throttle::Throttle;
use super::watch::Watch;
use super::{Child, Exit, Options, Session, SessionCx, child, grace_period, iter, load, raw, redraw, removed_cgroup, unhit_probes};
use crate::host::Host;
use crate::output::Output;
use crate::probes::Attach;
use crate::render::{Rendered, Renderer};
use crate::state::State;
use crate::streams::CLOSED_PIPE;

impl Session<'_> {
    /// Runs to the end. Output of the script goes to `out`, and messages about the run to `err`.
    ///
    /// Errors: [`super::AttachFailed`], [`super::NothingAttached`], a command that cannot run, output that cannot be written.
    /// A second SIGINT or SIGTERM ends the process immediately.
    pub fn run(&mut self, renderer: &mut dyn Renderer, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<Exit> {
        let mut throttle = Throttle::of(&self.cx, self.sys.online_cpus().len());
        let BeginResult { ran, first, earlier } = self.begin(renderer, out, err)?;
        if self.options.dry_run {
            return Ok(Exit { status: 0, child: None });
        }
        let waits = self.waits();

        let mut context = RunContext::new(&self.cx, renderer, out, err);
        configure(&mut context, &mut self.options);
        context.inherit(earlier)?;
        first.into_iter().for_each(|output| context.say(output));
        context.flush(true);
        super::notify(&mut self.options.notify_fd)?;
        if let Some(attached) = self.options.on_attached.take() {
            attached(self.links.sites);
        }
        // before the command starts, whose load is measured
        let mut meter = match &self.options.costs {
            Some(measure) => {
                let meter = Meter::begin(&self.cx, measure.limit, self.sys.online_cpus().len());
                Some(meter.context("the kernel cannot measure the cost of programs")?)
            }
            None => None,
        };
        let mut child = self.child.take();
        let source = &mut self.source;
        // The output of `begin` precedes the effects of the child; if it calls exit(), the child never runs.
        source.drain_once(&mut context);
        context.flush(true);
        if let Some(child) = child.as_mut().filter(|_| context.is_running()) {
            child.start()?;
        }
        iterate(&self.links, source, &mut context, &self.cx.signals)?;

        if context.is_running() && (waits || child.is_some()) {
            source.collect(&self.cx.loaded.state);
        }
        let scrapes = self.options.scrapes.clone();
        let mut refreshed = Instant::now();
        let mut cgroup = removed_cgroup::Watch::new(self.cx.settings);
        loop {
            handle_signals(&self.cx)?;
            if let Some(scrapes) = &scrapes {
                scrapes.answer(&mut context)?;
            }
            let done = source.done(&mut context, &self.cx.loaded.state);
            if context.exit.is_none() {
                context.exit = done.asked;
            }
            if self.watched && refreshed.elapsed() >= MAX_WAIT {
                self.cx.symbols.refresh();
                refreshed = Instant::now();
            }
            context.stacks.make_room(&context.loaded.state, done.all);
            if let Some(throttle) = &mut throttle {
                let steps = throttle.update(&self.cx, &mut self.links, self.sys);
                steps.into_iter().for_each(|step| context.say(Output::Limited(step)));
            }
            if let Some(meter) = &mut meter {
                meter.update(&self.cx);
            }
            context.tell_lost(false);
            if let Some(warning) = cgroup.warning(false) {
                context.warn(&warning);
            }
            context.flush(false);
            let quit = redraw::redraw(&mut context);
            let child_over = exit_of_child(&mut child)?.is_some();
            let over = quit
                || child_over
                || (!waits && child.is_none())
                || self.cx.signals.end().is_some()
                || self.target.as_ref().is_some_and(ended);
            if over || !context.is_running() {
                break;
            }
            if done.all {
                let wait = context.stacks.max_wait(&context.loaded.state);
                source.sleep(
                    self.cx.signals.max_wait(throttle.as_ref().map_or(wait, |throttle| throttle.max_wait(wait))),
                    &[
                        self.cx.signals.fd(),
                        raw(child.as_ref().map(|c| c.fd()).as_ref()),
                        raw(self.target.as_ref()),
                        scrapes.as_ref().map_or(-1, |scrapes| scrapes.fd()),
                        context.watch.as_ref().map_or(-1, Watch::keys),
                    ],
                );
            }
        }

        if let (Some(meter), Some(measure)) = (meter, self.options.costs.take()) {
            (measure.report)(meter.finish(&self.cx));
        }
        redraw::end(&mut context);
        let flags = self.cx.loaded.state.flags();
        with_loop_deadline(flags, STRAGGLERS * 10, || self.links.quiet());
        match ran && waits && context.broken.is_none() {
            // if the kernel does not stop it, only the output of running programs is lost
            true => with_loop_deadline(flags, STRAGGLERS * 10, || grace_period::stop(&self.cx.loaded.state)).unwrap_or_default(),
            false => self.cx.loaded.state.stop(),
        }
        self.links.detach_from_own_files(self.cx.manifest);
        context.throttle = throttle;
        source.finish(&mut context);
        let status = context.exit.take();
        if context.broken.is_none() {
            self.cx.loaded.state.reset_end();
            load::run_all(self.cx.manifest, &self.cx.loaded, &Attach::End, &self.cx.signals)?;
            if let Some(scrapes) = &self.options.scrapes {
                scrapes.finish(&mut context)?;
            }
            context.in_end = true;
            source.finish(&mut context);
            if let Some(hits) = self.cx.loaded.hits.filter(|_| self.cx.settings.warning_level > 0) {
                context.notes = unhit_probes::notes(self.cx.manifest, hits, &self.not_attached, self.cx.settings.pid, self.sys);
            }
            context.notes.extend(cgroup.warning(true));
            context.notes.extend(self.files.notes().into_iter().filter(|_| self.cx.settings.warning_level > 0));
            context.close(&mut source.events);
            report(&mut context, &mut self.options, &self.not_attached, status)?;
        }
        // a program that is still running has no reader, and keeps its probe from being detached
        self.cx.loaded.state.interrupt(true);
        let child = exit_of_child(&mut child)?;
        let exit = exit_of(&mut context, status, child, self.options.strict);
        self.log_end(child);
        exit
    }

    /// Runs `begin`, attaches the probes, and enables the programs.
    fn begin(&mut self, renderer: &mut dyn Renderer, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<BeginResult> {
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
        let earlier = self.options.replaces.take().and_then(|replaces| replaces());
        // a run that `begin` ended stays ended
        let ran = self.cx.loaded.state.ended().is_none();
        if ran {
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
        Ok(BeginResult { ran, first, earlier })
    }

    fn log_end(&mut self, child: Option<child::Exit>) {
        if self.options.verbose
            && let Some(log) = &mut self.options.log
        {
            if let Some(exit) = child {
                log(&format!("the -c program ended with status {}", exit.status()));
            }
            if self.links.slow() > 0 {
                log(&format!("closing {} probe descriptors in the background", self.links.slow()));
            }
        }
    }
}

/// Prepares the context for the options of the run.
fn configure(context: &mut RunContext, options: &mut Options) {
    context.buffering = options.buffering;
    context.verbose = options.verbose;
    context.shares_output = options.managed_by.is_some();
    if let Some(wanted) = &options.on_end {
        context.kept = FinalMaps::new(context.manifest, &wanted.maps);
    }
    if options.state.is_some() {
        let names: Vec<String> = context.manifest.maps.iter().map(|m| m.name.clone()).collect();
        context.saved = FinalMaps::new(context.manifest, &names);
    }
    context.cleared = options.scrapes.is_some().then(|| ClearedTotals::new(context.settings.max_series));
    if let Some(wanted) = options.watched.take() {
        context.watch = Watch::begin(wanted, context.manifest);
    }
    context.listener = options.listener.take();
}

/// Reports the results of a run that is over: a note if there are none, the state, and the maps for expectations.
/// `status` is that of the script before `end`.
fn report(context: &mut RunContext, options: &mut Options, not_attached: &BTreeSet<String>, status: Option<u8>) -> anyhow::Result<()> {
    let asked = options.asked.as_deref().filter(|_| context.exit.or(status).unwrap_or(0) == 0 && !context.incomplete);
    if let Some(note) = asked.and_then(|asked| context.telling.nothing_of(asked, context.manifest, &context.loaded.state)) {
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
    ran: bool,
    /// The output to render first.
    first: Vec<Output>,
    /// The counts of the run that this one replaces.
    earlier: Option<Box<State>>,
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
fn handle_signals(cx: &SessionCx) -> anyhow::Result<()> {
    for _ in 0..cx.signals.acknowledge() {
        load::run_all(cx.manifest, &cx.loaded, &Attach::Signal, &cx.signals)?;
    }
    match cx.signals.paused() {
        Some(true) => cx.loaded.state.stop(),
        Some(false) if cx.loaded.state.ended().is_none() => cx.loaded.state.go(),
        Some(false) | None => {}
    }
    Ok(())
}

/// How the `-c` program ended, if there is one and it has.
fn exit_of_child(child: &mut Option<Child>) -> anyhow::Result<Option<child::Exit>> {
    child.as_mut().map_or(Ok(None), Child::exited)
}

/// Pins pinned iterators, and runs the others.
fn iterate(links: &Links, source: &mut Source, context: &mut RunContext, signals: &Signals) -> anyhow::Result<()> {
    for (link, pin) in &links.iters {
        if let Some(path) = pin {
            iter::pin(link, path).context("cannot pin an iterator")?;
            let data = format!("Program pinned to {}", path.display()).into_bytes();
            context.say(Output::Text { kind: "pinned", data, newline: true });
            context.flush(true);
            continue;
        }
        let mut reader = iter::reader(link).context("cannot read the objects of an iterator")?;
        while context.is_running() && signals.end().is_none() {
            let more = iter::go_on(&mut reader).context("an iterator ended early")?;
            source.drain_once(context);
            context.flush(false);
            if !more {
                break;
            }
        }
    }
    Ok(())
}
