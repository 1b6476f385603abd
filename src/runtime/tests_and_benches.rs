//! `--test` and `--bench`: runs the script's tests and benchmarks and reports their results.

use std::time::{Duration, Instant};

use anyhow::Context;

use super::context::RunContext;
use super::keep_limits::Attached;
use super::problems::Problems;
use super::{Exit, Session, Stream, load, test_run};
use crate::host::Host;
use crate::output::{Output, TestEvent};
use crate::probes::Attach;
use crate::render::{Rendered, Renderer};

/// A benchmark is repeated until its total time reaches this.
const LONG_ENOUGH: Duration = Duration::from_millis(1);
/// `BPF_MAX_LOOPS` of include/linux/bpf.h.
const MAX_TIMES: u64 = 8 << 20;

/// One run of a program.
struct ProgramRun {
    /// What it returned.
    returned: u32,
    took: Duration,
    /// It reported errors, or ended the run with a status other than 0.
    failed: bool,
    /// Its output.
    output: Vec<u8>,
}

/// The result of `begin` before the first of them.
struct BeginOutput {
    output: Vec<u8>,
    failed: bool,
}

impl ProgramRun {
    /// Adds the result of `begin` to that of the first test.
    fn after(mut self, first: Option<BeginOutput>) -> Self {
        if let Some(BeginOutput { mut output, failed }) = first {
            output.append(&mut self.output);
            self.output = output;
            self.failed |= failed;
        }
        self
    }
}

impl Session<'_> {
    /// Runs the tests or the benchmarks. Their output goes through `listener`, and results go through `renderer`. The status
    /// is 1 if one failed.
    pub fn try_out(
        &mut self,
        listener: &mut dyn Renderer,
        renderer: &mut dyn Renderer,
        out: &mut Stream,
        err: &mut Stream,
    ) -> anyhow::Result<Exit> {
        let manifest = self.cx.manifest;
        let sites = manifest.programs.iter().zip(self.cx.loaded.programs.clone());
        let tests: Vec<(&str, bool, i32)> = sites
            .flat_map(|(program, fd)| program.sites.iter().map(move |site| (site, fd)))
            .filter_map(|(site, fd)| {
                let Attach::Test { bench } = site.attach else { return None };
                Some((site.name.split_once(':').map_or("", |(_, name)| name), bench, fd?))
            })
            .collect();
        if self.options.dry_run {
            return Ok(Exit { status: 0, child: None });
        }
        if tests.is_empty() {
            self.all_of(&Attach::Begin, renderer, out, err)?;
            return self.end_tests(0, renderer, out, err);
        }
        // the output of `begin` is part of that of the first test
        let mut first = Some(self.begun(listener)?);
        let mut say = |output: Output| -> anyhow::Result<()> {
            let mut rendered = Rendered::default();
            renderer.render(&output, &mut rendered);
            let written = out.write_all(&rendered.out).and_then(|()| out.flush()).and_then(|()| err.write_all(&rendered.err));
            written.map_err(|why| super::NotWritten(why).into())
        };
        let widest = tests.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
        let benches = tests.iter().any(|(_, bench, _)| *bench);
        say(Output::Test(if benches { TestEvent::Benches { widest } } else { TestEvent::Tests { tests: tests.len() } }))?;
        let (mut failed, mut tried) = (Vec::new(), 0);
        for (name, bench, fd) in &tests {
            if self.cx.signals.end().is_some() {
                break;
            }
            tried += 1;
            let name = name.to_string();
            let passed = if *bench {
                let result = self.bench(&name, *fd, widest, listener)?;
                let passed = !matches!(result, TestEvent::BenchFailed { .. });
                say(Output::Test(result))?;
                passed
            } else {
                say(Output::Test(TestEvent::Started { name: name.clone() }))?;
                let ran = self.once(*fd, 0, listener)?.after(first.take());
                let passed = ran.returned == 0 && !ran.failed;
                say(Output::Test(TestEvent::Tested { name: name.clone(), passed, took: ran.took, output: ran.output }))?;
                passed
            };
            if !passed {
                failed.push(name);
            }
        }
        let status = u8::from(!failed.is_empty());
        if !benches {
            say(Output::Test(TestEvent::Over { tests: tried, failed }))?;
        }
        self.end_tests(status, renderer, out, err)
    }

    /// Runs `begin`, and returns its result.
    fn begun(&mut self, listener: &mut dyn Renderer) -> anyhow::Result<BeginOutput> {
        let (mut output, mut problems) = (Vec::new(), Vec::new());
        let failed = self.all_of(&Attach::Begin, listener, &mut output, &mut problems)?;
        output.append(&mut problems);
        Ok(BeginOutput { output, failed })
    }

    /// Runs `end`, whose output belongs to the run.
    fn end_tests(&mut self, status: u8, renderer: &mut dyn Renderer, out: &mut Stream, err: &mut Stream) -> anyhow::Result<Exit> {
        self.all_of(&Attach::End, renderer, out, err)?;
        let attached = Attached { cx: &self.cx, links: &mut self.links, sys: self.sys, files: &self.files };
        let mut context = RunContext::new(attached, renderer, out, err);
        context.say(Output::End);
        context.flush(true);
        Ok(Exit { status, child: None })
    }

    /// Runs the programs of `begin` or of `end`, and processes their records. Returns true if they failed.
    fn all_of(&mut self, which: &Attach, renderer: &mut dyn Renderer, out: &mut Stream, err: &mut Stream) -> anyhow::Result<bool> {
        self.cx.loaded.state.reset_end();
        let mut before = Problems::of(self.cx.manifest);
        before.reset(&self.cx.loaded.state);
        load::run_all(self.cx.manifest, &self.cx.loaded, which, &self.cx.signals)?;
        let ended = self.cx.loaded.state.ended();
        let errors = self.drain(before, renderer, out, err)?;
        Ok(errors > 0 || ended.is_some_and(|status| status != 0))
    }

    /// Processes the records of a program's run; returns the number of errors.
    fn drain(&mut self, before: Problems, renderer: &mut dyn Renderer, out: &mut Stream, err: &mut Stream) -> anyhow::Result<u64> {
        let attached = Attached { cx: &self.cx, links: &mut self.links, sys: self.sys, files: &self.files };
        let mut context = RunContext::new(attached, renderer, out, err);
        context.problems = before;
        self.source.finish(&mut context);
        context.finish_problems();
        context.flush(true);
        match context.broken.take() {
            Some(why) => Err(super::NotWritten(why).into()),
            None => Ok(context.errors),
        }
    }

    /// Runs a benchmark with an increasing number of iterations, until it takes long enough.
    fn bench(&mut self, name: &str, fd: i32, widest: usize, listener: &mut dyn Renderer) -> anyhow::Result<TestEvent> {
        let name = name.to_owned();
        let mut times = 1;
        loop {
            let ran = self.once(fd, times, listener)?;
            if ran.failed {
                return Ok(TestEvent::BenchFailed { name, widest, output: ran.output });
            }
            if ran.returned != 0 {
                return Ok(TestEvent::BenchSkipped { name, widest });
            }
            // the first run warms the caches for the others
            if times > 1 && (ran.took >= LONG_ENOUGH || times >= MAX_TIMES) || ran.took > 10 * LONG_ENOUGH {
                return Ok(TestEvent::Benched { name, widest, average: ran.took.as_nanos() as u64 / times, times });
            }
            times = (times * 2).min(MAX_TIMES);
        }
    }

    /// Runs a program, and processes its records.
    fn once(&mut self, fd: i32, times: u64, listener: &mut dyn Renderer) -> anyhow::Result<ProgramRun> {
        self.cx.loaded.state.reset_end();
        let mut before = Problems::of(self.cx.manifest);
        before.reset(&self.cx.loaded.state);
        // measured without the setup of interruption
        let run = || {
            let start = Instant::now();
            test_run::run_once(fd, times).map(|returned| (returned, start.elapsed()))
        };
        let (returned, took) = self.cx.signals.interruptible(self.cx.loaded.state.flags(), 0, run).context("cannot run it")?;
        let (mut output, mut problems) = (Vec::new(), Vec::new());
        let ended = self.cx.loaded.state.ended();
        let failed = self.drain(before, listener, &mut output, &mut problems)? > 0;
        output.append(&mut problems);
        // its loops were interrupted
        let interrupted = self.cx.signals.end().is_some();
        if interrupted {
            output.extend_from_slice(b"interrupted\n");
        }
        Ok(ProgramRun { returned, took, failed: failed || interrupted || ended.is_some_and(|status| status != 0), output })
    }
}
