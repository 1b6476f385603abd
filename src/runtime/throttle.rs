//! Keeps the limits of a run: `--max-overhead` and `--max-events`.
//!
//! Programs check a gate in memory shared with this process, which costs a dropped run a few reads. Several times a second
//! this process lets as many runs and events pass as the limits allow, and measures the cost of the probes: the
//! kernel's statistics of run time, and for each run the cost of entering the program, which those do not contain. If
//! the probes cost too much, the most expensive one is sampled (one in N runs passes, at random). If the entries alone
//! cost too much, it is detached. The cost above the limit is a debt. Once it is paid, the steps are undone one by one.
//!
//! A sudden increase does not wait for the next measurement: when a gate has let as many runs pass as the limit allows,
//! the program itself samples more and more rarely (`emit/gate.rs`). Runs that pass have weights, so what the script counts
//! and sums stays right on average in either case. Runs of detached probes are lost.
//!
//! While no probe runs and no step is in effect, nothing is measured: this process sleeps until a program tells it of the
//! next run ([`Shared::await_notice`](super::shared::Shared::await_notice)).

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::attach::{self, Links};
use super::cost::{self, Cost, Statistics};
use super::estimates::EstimatesOfRun;
use super::replaced_files::Files;
use super::{SessionCx, entry_cost, maps};
use crate::codegen::artifact::{Gate, Map, Sampling};
use crate::output::{Limited, Step};
use crate::settings::Overhead;
use crate::system::TargetInfo;

/// The interval between two measurements of the costs.
const INTERVAL: Duration = Duration::from_millis(50);
/// The same for the first ones after a time without runs: a sudden increase should be noticed soon.
const SHORT_INTERVAL: Duration = Duration::from_millis(10);
const SHORT_INTERVALS: u32 = 5;
/// Ticks without a run before this process waits for the next one.
const STILL_TICKS: u32 = 3;
/// The interval between two searches for marks of threads that have ended.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// The time without a dropped event after which the next one is reported again.
const CALM_AFTER_DROPS: Duration = Duration::from_secs(10);
/// Ticks without an excess before a step is undone.
const RECOVERY_TICKS: u32 = 20;
/// While the probes cost less than this share of the limit, the statistics are on in one tick of [`RECOVERY_TICKS`] only.
const IDLE_SHARE: f64 = 0.05;
/// The assumed cost of a run in nanoseconds before it is measured.
const UNKNOWN_RUN: f64 = 1000.0;
/// The cost of a dropped run: the random decision and the counter.
const DROPPED_RUN_NS: f64 = 30.0;
/// Sampling more rarely than one in this many is useless.
const MAX_SAMPLING: u64 = 1 << 16;

/// A measure that lowers the cost of a group of probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// One in this many runs passes.
    Sample {
        /// A power of two.
        one_in: u64,
    },
    /// Its probes are detached.
    Detach,
}

/// The nanoseconds per nanosecond that a limit allows.
pub fn budget(limit: Overhead, cpus: usize) -> f64 {
    let cpus = if limit.of_machine { cpus.max(1) as f64 } else { 1.0 };
    f64::from(limit.millipercent) / 100_000.0 * cpus
}

/// The first probe of a probe's group, and the gate if runs can be dropped one by one; none if nothing limits the probe.
pub(super) fn group(probe: usize, sampling: Sampling) -> Option<(usize, Option<usize>)> {
    match sampling {
        Sampling::Exempt => None,
        Sampling::Alone => Some((probe, Some(probe))),
        Sampling::Entry { group } | Sampling::Return { group } => Some((group, Some(group))),
        Sampling::Coupled { group } => Some((group, None)),
    }
}

/// The remedy for a group that has a budget of `remaining` and now takes `share` of a CPU, of which dropping runs cannot
/// save `entries`.
pub(super) fn remedy(share: f64, entries: f64, remaining: f64, sampled: bool, one_in: u64) -> Remedy {
    let factor = (share - entries) / (remaining * 0.7 - entries);
    if sampled && factor > 0.0 && (one_in as f64 * factor) < MAX_SAMPLING as f64 {
        return Remedy::Sample { one_in: ((one_in as f64 * factor).ceil() as u64).max(one_in + 1).next_power_of_two() };
    }
    Remedy::Detach
}

/// The limits of a run, and the steps that were taken to keep them.
pub(super) struct Throttle {
    /// Nanoseconds per nanosecond that the probes may cost.
    budget: Option<f64>,
    events: u64,
    /// Fractions of an event that have not been allowed yet.
    fractional_events: f64,
    /// When marks of threads that have ended were last removed.
    swept: Instant,
    groups: Vec<ProbeGroup>,
    /// When the programs were stopped.
    ended: Option<Instant>,
    measured_at: Instant,
    /// The number of next intervals that are short.
    short_intervals: u32,
    /// Ticks without a run.
    still_ticks: u32,
    /// Nothing is measured until a program has run.
    quiet: bool,
    /// The number of runs that were counted, and the tokens for events, at the last tick.
    activity: (u64, i64),
    /// When the statistics were last turned off.
    statistics_until: Option<Instant>,
    /// Open while the kernel measures run times.
    statistics: Option<Statistics>,
    /// Nanoseconds above the limit; negative below.
    excess_ns: f64,
    calm_ticks: u32,
    idle_ticks: u32,
}

/// Probes that are sampled and detached together.
struct ProbeGroup {
    name: String,
    /// The gate, if runs can be dropped one by one.
    gate: Option<usize>,
    probes: Vec<usize>,
    programs: Vec<usize>,
    /// The maps that other entries of the prompt may use, and by which its probes depend on theirs.
    maps: Vec<String>,
    /// The maps that runs of the gate change, at the prompt. If other entries depend on all of these runs, they are among `maps`.
    sampled_maps: Vec<String>,
    /// The groups that store the elements which its probes delete: they are detached with it.
    storing: Vec<usize>,
    /// Some of its probes are on the returns of the calls that others enter.
    has_returns: bool,
    /// Nanoseconds to enter and leave its programs, on average.
    entry: f64,
    one_in: u64,
    detached: Option<Instant>,
    /// It cannot be attached again.
    stays_detached: bool,
    /// When its last events were dropped to keep the limit of events, if that has been reported.
    dropped: Option<Instant>,
    /// The number of its dropped events.
    drops: u64,
    /// For how long it was detached before.
    detached_for: Duration,
    reductions: u64,
    /// Nanoseconds of a run that passes.
    run: f64,
    before: (Cost, u64, u64),
    /// Nanoseconds per nanosecond in the last measured tick: in total, and for entries alone.
    share: f64,
    entries: f64,
}

impl Throttle {
    /// None if nothing limits the run.
    pub fn of(cx: &SessionCx, sys: &dyn TargetInfo) -> Option<Self> {
        let (settings, manifest) = (cx.settings, cx.manifest);
        if manifest.sampling.is_empty() || settings.max_overhead.is_none() && settings.max_events == 0 {
            return None;
        }
        let budget = settings.max_overhead.map(|limit| self::budget(limit, sys.online_cpus().len()));
        let mut groups: Vec<(usize, ProbeGroup)> = Vec::new();
        for (probe, sampling) in manifest.sampling.iter().enumerate() {
            let Some((of, gate)) = group(probe, *sampling) else { continue };
            let programs: Vec<usize> =
                manifest.programs.iter().enumerate().filter(|(_, p)| p.probes.contains(&probe)).map(|(i, _)| i).collect();
            let first = programs.first().and_then(|i| manifest.programs.get(*i));
            let name = first.map(|program| program.name_of(probe)).unwrap_or_default();
            let has_returns = matches!(sampling, Sampling::Return { .. });
            match groups.iter_mut().find(|(known, _)| *known == of) {
                Some((_, group)) => {
                    group.probes.push(probe);
                    group.programs.extend(programs.into_iter().filter(|p| !group.programs.contains(p)).collect::<Vec<_>>());
                    group.name.push_str(&format!(", {name}"));
                    group.has_returns |= has_returns;
                }
                None => {
                    let group = ProbeGroup {
                        name,
                        gate,
                        probes: vec![probe],
                        programs,
                        maps: Vec::new(),
                        sampled_maps: Vec::new(),
                        storing: Vec::new(),
                        has_returns,
                        entry: 0.0,
                        one_in: 1,
                        detached: None,
                        stays_detached: false,
                        dropped: None,
                        drops: 0,
                        detached_for: Duration::ZERO,
                        reductions: 0,
                        run: UNKNOWN_RUN,
                        before: Default::default(),
                        share: 0.0,
                        entries: 0.0,
                    };
                    groups.push((of, group));
                }
            }
        }
        if budget.is_some() {
            let entry_costs = entry_cost::of(&manifest.programs, sys);
            for (_, group) in &mut groups {
                let all: f64 = group.programs.iter().filter_map(|i| entry_costs.get(*i)).sum();
                group.entry = all / group.programs.len().max(1) as f64;
            }
        }
        for (_, group) in &mut groups {
            let maps = manifest.maps.iter().filter(|map| map.coupled.iter().any(|probe| group.probes.contains(probe)));
            group.maps = maps.map(|map| map.name.clone()).collect();
            let sampled = |map: &&Map| group.gate.is_some() && map.weighted_by.iter().any(|probe| group.probes.contains(probe));
            group.sampled_maps = manifest.maps.iter().filter(sampled).map(|map| map.name.clone()).collect();
        }
        let mut groups: Vec<ProbeGroup> = groups.into_iter().map(|(_, group)| group).collect();
        let has_any = |group: &ProbeGroup, probes: &[usize]| group.probes.iter().any(|probe| probes.contains(probe));
        let storing_of = |group: &ProbeGroup| -> Vec<usize> {
            group.probes.iter().filter_map(|p| manifest.storing.get(*p)).flatten().copied().collect()
        };
        let storing: Vec<Vec<usize>> = groups
            .iter()
            .enumerate()
            .map(|(own, group)| {
                let probes = storing_of(group);
                groups.iter().enumerate().filter(|(i, other)| *i != own && has_any(other, &probes)).map(|(i, _)| i).collect()
            })
            .collect();
        groups.iter_mut().zip(storing).for_each(|(group, storing)| group.storing = storing);
        let throttle = Self {
            budget,
            events: settings.max_events,
            fractional_events: 0.0,
            swept: Instant::now(),
            groups,
            ended: None,
            measured_at: Instant::now(),
            short_intervals: 0,
            still_ticks: 0,
            quiet: false,
            activity: (0, 0),
            statistics_until: None,
            statistics: None,
            excess_ns: 0.0,
            calm_ticks: 0,
            idle_ticks: 0,
        };
        throttle.fill(cx);
        cx.loaded.state.add_event_tokens(throttle.burst());
        Some(throttle)
    }

    /// How long to wait at most until the next [`Throttle::update`]; none until a program has run.
    pub fn max_wait(&self) -> Option<Duration> {
        (!self.quiet).then(|| self.interval().saturating_sub(self.measured_at.elapsed()) + Duration::from_millis(1))
    }

    fn interval(&self) -> Duration {
        if self.short_intervals > 0 { SHORT_INTERVAL } else { INTERVAL }
    }

    /// Has a program run since the last tick?
    pub fn has_changed(&self, cx: &SessionCx) -> bool {
        self.activity != self.activity_now(cx)
    }

    fn activity_now(&self, cx: &SessionCx) -> (u64, i64) {
        let state = &cx.loaded.state;
        let of = |group: &ProbeGroup| {
            let counters = state.probe_counters(&group.probes);
            counters.ran + counters.thinned + counters.sampled_out
        };
        (self.groups.iter().map(of).sum(), if self.events > 0 { state.event_tokens() } else { 0 })
    }

    /// How often each of these probes was detached.
    pub fn detached(&self, probes: &[usize]) -> u64 {
        self.groups.iter().filter(|g| g.probes.iter().any(|p| probes.contains(p))).map(|g| g.reductions).sum()
    }

    /// Is one of these probes detached?
    pub fn is_detached(&self, probes: &[usize]) -> bool {
        self.ended.is_none() && self.groups.iter().any(|g| g.detached.is_some() && g.probes.iter().any(|p| probes.contains(p)))
    }

    /// The time for which these probes were detached; of several, the longest.
    pub fn detached_time(&self, probes: &[usize]) -> Duration {
        let until = self.ended.unwrap_or_else(Instant::now);
        let of = |g: &ProbeGroup| g.detached_for + g.detached.map_or(Duration::ZERO, |since| until.saturating_duration_since(since));
        self.groups.iter().filter(|g| g.probes.iter().any(|p| probes.contains(p))).map(of).max().unwrap_or_default()
    }

    /// The programs have been stopped.
    pub fn end(&mut self) {
        self.ended.get_or_insert_with(Instant::now);
    }

    /// Have they?
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// The maps by which probes depend on all runs of other probes.
    pub fn used_maps(&self) -> Vec<String> {
        self.groups.iter().filter(|group| group.gate.is_none()).flat_map(|group| group.maps.iter().cloned()).collect()
    }

    /// Keeps all runs of probes on which those of other runs depend, and detaches the probes that depend on others which the runs that
    /// share maps with this one have detached.
    pub fn follow_others(&mut self, cx: &SessionCx, links: &mut Links, estimates: &EstimatesOfRun) -> Vec<Limited> {
        let mut has_changed = false;
        for group in self.groups.iter_mut().filter(|group| group.gate.is_some()) {
            let used = estimates.used_by_others(&group.sampled_maps);
            has_changed |= group.maps != used;
            group.one_in = if used.is_empty() { group.one_in } else { 1 };
            group.maps = used;
        }
        if has_changed {
            self.fill(cx);
        }
        let limit = self.budget.unwrap_or(0.0) * 100.0;
        let is_to_follow = |group: &&mut ProbeGroup| group.detached.is_none() && estimates.has_detached(&group.maps);
        let detach = |group: &mut ProbeGroup| {
            let limited = Limited { probe: group.name.clone(), step: Step::DetachToo, share: group.share * 100.0, limit };
            group.detach(cx, links);
            estimates.publish_detached(&group.maps);
            limited
        };
        self.groups.iter_mut().filter(is_to_follow).map(detach).collect()
    }

    /// The maps of the probes that are detached for good, and on which probes of other runs depend.
    pub fn detached_maps(&self) -> Vec<String> {
        self.groups.iter().filter(|group| group.detached.is_some()).flat_map(|group| group.maps.iter().cloned()).collect()
    }

    /// Lets runs and events pass, and takes a step if it is time to. Returns the steps.
    pub fn update(&mut self, cx: &SessionCx, links: &mut Links, sys: &dyn TargetInfo, files: &Files) -> Vec<Limited> {
        if self.has_ended() {
            return Vec::new();
        }
        if self.quiet {
            if self.has_changed(cx) {
                self.resume(cx);
            }
            return Vec::new();
        }
        let took = self.measured_at.elapsed();
        if took < self.interval() {
            return Vec::new();
        }
        (self.measured_at, self.short_intervals) = (Instant::now(), self.short_intervals.saturating_sub(1));
        self.allow_events(cx, took);
        let mut steps = self.dropped_events(cx);
        if let Some(budget) = self.budget {
            let ns = took.as_nanos() as f64;
            let measured = self.statistics.is_some();
            self.groups.iter_mut().for_each(|group| group.measure(cx, ns, measured));
            // those that are detached cost time until the kernel has removed them
            let share_if = |detached: bool| self.groups.iter().filter(|g| g.detached.is_some() == detached).map(|g| g.share).sum::<f64>();
            let (share, remaining) = (share_if(false), share_if(true));
            self.excess_ns = (self.excess_ns + (share + remaining - budget) * ns).max(-budget * 1e9);
            let step = if share > budget && self.excess_ns > 0.0 {
                self.calm_ticks = 0;
                self.reduce_cost(cx, links, budget, share)
            } else {
                self.calm_ticks += 1;
                // the programs of a run that is paused do nothing
                let paused = cx.loaded.state.stopped();
                let time =
                    !paused && remaining == 0.0 && self.calm_ticks >= RECOVERY_TICKS && self.excess_ns <= 0.0 && share < budget * 0.5;
                time.then(|| self.undo_step(cx, links, (sys, files), budget, share)).flatten().into_iter().collect()
            };
            steps.extend(step);
            self.measure(share, budget);
        }
        self.fill(cx);
        if self.swept.elapsed() >= SWEEP_INTERVAL {
            cx.loaded.call_marks.forget_ended_threads();
            self.swept = Instant::now();
        }
        self.rest_if_still(cx);
        steps
    }

    /// Ceases to measure if no program runs, and no step waits to be undone.
    fn rest_if_still(&mut self, cx: &SessionCx) {
        let now = self.activity_now(cx);
        self.still_ticks = if self.activity == now { self.still_ticks + 1 } else { 0 };
        self.activity = now;
        let has_tokens = self.events == 0 || now.1 >= self.burst() as i64;
        let settled =
            |g: &ProbeGroup| g.one_in == 1 && g.dropped.is_none() && (g.detached.is_none() || !g.drops_runs() || g.stays_detached);
        self.quiet = self.still_ticks >= STILL_TICKS && has_tokens && self.excess_ns <= 0.0 && self.groups.iter().all(settled);
        if self.quiet {
            self.set_statistics(false);
        }
    }

    /// A program has run after a time without runs.
    fn resume(&mut self, cx: &SessionCx) {
        let took = self.measured_at.elapsed();
        if let Some(budget) = self.budget {
            let ns = took.as_nanos() as f64;
            // what has run by now belongs to this interval, not to the next one, which is short
            self.groups.iter_mut().for_each(|group| group.measure(cx, ns, false));
            let share: f64 = self.groups.iter().map(|g| g.share).sum();
            self.excess_ns = (self.excess_ns + (share - budget) * ns).max(-budget * 1e9);
            // if single runs follow each other at long intervals, not each of them is measured
            let often = self.statistics_until.is_some_and(|until| until.elapsed() < INTERVAL * RECOVERY_TICKS);
            self.idle_ticks = if often { RECOVERY_TICKS + 1 } else { 0 };
            self.set_statistics(!often);
        }
        (self.measured_at, self.short_intervals) = (Instant::now(), SHORT_INTERVALS);
        (self.quiet, self.still_ticks) = (false, 0);
        self.allow_events(cx, took);
        self.fill(cx);
        self.activity = self.activity_now(cx);
    }

    /// Reports the probes whose events are dropped since this tick, and those of which none has been dropped for some time.
    fn dropped_events(&mut self, cx: &SessionCx) -> Vec<Limited> {
        let max_events = self.events;
        if max_events == 0 {
            return Vec::new();
        }
        let of = |group: &mut ProbeGroup| {
            let drops = cx.loaded.state.probe_counters(&group.probes).thinned;
            let more = std::mem::replace(&mut group.drops, drops) != drops && group.detached.is_none();
            let before = group.dropped;
            if more {
                group.dropped = Some(Instant::now());
            } else {
                group.dropped.take_if(|last| last.elapsed() >= CALM_AFTER_DROPS);
            }
            let step = match (before, group.dropped) {
                (None, Some(_)) => Step::Drop { max_events },
                (Some(_), None) => Step::Pass { max_events },
                (None, None) | (Some(_), Some(_)) => return None,
            };
            Some(Limited { probe: group.name.clone(), step, share: group.share * 100.0, limit: self.budget.unwrap_or(0.0) * 100.0 })
        };
        self.groups.iter_mut().filter_map(of).collect()
    }

    fn burst(&self) -> u64 {
        (self.events / 10).max(1)
    }

    fn allow_events(&mut self, cx: &SessionCx, took: Duration) {
        if self.events == 0 {
            return;
        }
        let state = &cx.loaded.state;
        let missing = (self.burst() as i64).saturating_sub(state.event_tokens()).max(0) as f64;
        let more = (self.fractional_events + self.events as f64 * took.as_secs_f64()).min(missing);
        self.fractional_events = more.fract();
        state.add_event_tokens(more as u64);
    }

    /// Sets the number of runs that may pass at the same rate until the next measurement, such that all of them cannot cost much
    /// more than the limit.
    fn fill(&self, cx: &SessionCx) {
        let ns = self.interval().as_nanos() as f64;
        for group in &self.groups {
            let Some(gate) = group.gate else { continue };
            let free = match self.budget {
                Some(budget) if group.drops_runs() => (4.0 * budget * ns / group.run.max(20.0)) as u64,
                Some(_) | None => u64::MAX,
            };
            let shift = if group.detached.is_some() { Gate::CLOSED } else { group.one_in.ilog2().into() };
            cx.loaded.state.set_gate(gate, shift, free.max(4));
            cx.loaded.state.set_keeps_events(gate, !group.drops_runs());
        }
    }

    /// Turns the kernel's statistics on or off. Without them, the last measured cost of a probe is used. They are off while no
    /// probe is attached, because the kernel times all BPF programs, including those of other processes.
    fn measure(&mut self, share: f64, budget: f64) {
        self.idle_ticks = if share < budget * IDLE_SHARE { self.idle_ticks + 1 } else { 0 };
        let attached = self.groups.iter().any(|group| group.detached.is_none());
        let wanted = attached && (self.idle_ticks < RECOVERY_TICKS || self.idle_ticks.is_multiple_of(RECOVERY_TICKS));
        self.set_statistics(wanted);
    }

    fn set_statistics(&mut self, on: bool) {
        match (on, self.statistics.is_some()) {
            (true, false) => self.statistics = cost::measure().ok(),
            (false, true) => (self.statistics, self.statistics_until) = (None, Some(Instant::now())),
            (true, true) | (false, false) => {}
        }
    }

    /// Takes one step to lower the cost.
    fn reduce_cost(&mut self, cx: &SessionCx, links: &mut Links, budget: f64, share: f64) -> Vec<Limited> {
        let attached = self.groups.iter_mut().filter(|g| g.detached.is_none());
        let Some(group) = attached.max_by(|a, b| a.share.total_cmp(&b.share)) else { return Vec::new() };
        let remaining = budget - (share - group.share);
        let limited =
            |group: &ProbeGroup, step| Limited { probe: group.name.clone(), step, share: group.share * 100.0, limit: budget * 100.0 };
        if let Remedy::Sample { one_in } = remedy(group.share, group.entries, remaining, group.drops_runs(), group.one_in) {
            group.one_in = one_in;
            return vec![limited(group, Step::Sample { one_in })];
        }
        let mut steps = vec![limited(group, Step::Detach { permanent: !group.drops_runs() })];
        group.detach(cx, links);
        // without it, elements would remain that are no more
        for index in group.storing.clone() {
            let Some(group) = self.groups.get_mut(index).filter(|group| !group.stays_detached) else { continue };
            group.stays_detached = true;
            steps.push(limited(group, Step::DetachToo));
            if group.detached.is_none() {
                group.detach(cx, links);
            }
        }
        steps
    }

    /// Undoes one step, if that is not expected to exceed the limit.
    fn undo_step(
        &mut self,
        cx: &SessionCx,
        links: &mut Links,
        (sys, files): (&dyn TargetInfo, &Files),
        budget: f64,
        share: f64,
    ) -> Option<Limited> {
        let limited =
            |group: &ProbeGroup, step| Limited { probe: group.name.clone(), step, share: group.share * 100.0, limit: budget * 100.0 };
        self.calm_ticks = 0;
        // a coupled probe must not find values that other probes have stored meanwhile
        if let Some(group) = self.groups.iter_mut().find(|g| g.detached.is_some() && g.drops_runs() && !g.stays_detached) {
            if let Some(gate) = group.gate {
                // a remaining mark would let the return of a later call pass, which would find a remaining element
                cx.loaded.call_marks.forget(gate as u32);
                let passing = cx.manifest.maps.iter().zip(&cx.loaded.maps).filter(|(map, _)| map.passed_by == Some(gate));
                passing.for_each(|(map, fd)| _ = maps::clear(map, *fd));
            }
            if let Err(changed) = group.attach(cx, links, sys, files) {
                group.stays_detached = true;
                return Some(limited(group, Step::StayDetached { changed }));
            }
            group.detached_for += group.detached.take().map_or(Duration::ZERO, |since| since.elapsed());
            group.before = group.counters(cx);
            // the storm may not be over
            self.short_intervals = SHORT_INTERVALS;
            return Some(limited(group, Step::Attach));
        }
        let group = self.groups.iter_mut().filter(|g| g.one_in > 1 && g.detached.is_none()).max_by_key(|g| g.one_in)?;
        if share + (group.share - group.entries) > budget * 0.7 {
            return None;
        }
        group.one_in /= 2;
        Some(limited(group, Step::Sample { one_in: group.one_in }))
    }
}

impl ProbeGroup {
    /// Can runs be dropped one by one?
    fn drops_runs(&self) -> bool {
        self.gate.is_some() && self.maps.is_empty()
    }

    fn detach(&mut self, cx: &SessionCx, links: &mut Links) {
        if let Some(gate) = self.gate {
            cx.loaded.state.set_gate(gate, Gate::CLOSED, 0);
            cx.loaded.state.refuse_entries(gate);
        }
        for program in &self.programs {
            links.detach(*program);
        }
        self.detached = Some(Instant::now());
        self.reductions += 1;
        (self.share, self.entries) = (0.0, 0.0);
    }

    /// Attaches its programs again. The error is whether a file has changed: the places of its probes, which are attached by path, would
    /// be wrong.
    fn attach(&self, cx: &SessionCx, links: &mut Links, sys: &dyn TargetInfo, files: &Files) -> Result<(), bool> {
        let programs = || self.programs.iter().filter_map(|index| Some((*index, cx.manifest.programs.get(*index)?)));
        let is_changed = || programs().flat_map(|(_, program)| &program.sites).any(|site| files.has_changed(site));
        if is_changed() {
            return Err(true);
        }
        let (sites, mut missing) = (links.sites, false);
        for (index, program) in programs() {
            let Some(Some(fd)) = cx.loaded.programs.get(index) else { continue };
            links.of(index);
            let mut failed = 0;
            let count = &mut |_| {
                failed += 1;
                Ok(())
            };
            missing |= attach::attach(links, program, *fd, cx.attach_cx(sys), count).is_err() || failed >= program.sites.len();
        }
        links.sites = sites;
        // it may have changed in the meantime
        let changed = is_changed();
        if missing || changed {
            programs().for_each(|(index, _)| links.detach(index));
            return Err(changed);
        }
        Ok(())
    }

    fn counters(&self, cx: &SessionCx) -> (Cost, u64, u64) {
        let (passed, refused) = self.counted_runs(cx);
        (self.cost(cx), passed, refused)
    }

    /// What the kernel's statistics say.
    fn cost(&self, cx: &SessionCx) -> Cost {
        let fds = self.programs.iter().filter_map(|i| *cx.loaded.programs.get(*i)?);
        let mut cost = Cost::default();
        for fd in fds {
            // SAFETY: the loaded object owns the descriptor
            #[allow(unsafe_code)]
            let of = cost::of(unsafe { BorrowedFd::borrow_raw(fd) }).unwrap_or_default();
            (cost.ns, cost.runs) = (cost.ns + of.ns, cost.runs + of.runs);
        }
        cost
    }

    /// The runs that passed, and those that were refused.
    fn counted_runs(&self, cx: &SessionCx) -> (u64, u64) {
        let counters = cx.loaded.state.probe_counters(&self.probes);
        // the return of a call whose entry was refused is not counted
        let of_a_call = if self.has_returns { 2 } else { 1 };
        (counters.ran, (counters.thinned + counters.sampled_out) * of_a_call)
    }

    /// Computes the group's share of processor time in the last `ns` nanoseconds.
    fn measure(&mut self, cx: &SessionCx, ns: f64, measured: bool) {
        let is_detached = self.detached.is_some();
        let (ran, thinned) = self.counted_runs(cx);
        let cost = if is_detached { self.before.0 } else { self.cost(cx) };
        let (then, ran_then, thinned_then) = std::mem::replace(&mut self.before, (cost, ran, thinned));
        let passed = ran.wrapping_sub(ran_then) as f64;
        let refused = thinned.wrapping_sub(thinned_then) as f64;
        if measured && !is_detached {
            let (time, runs) = (cost.ns.wrapping_sub(then.ns) as f64, cost.runs.wrapping_sub(then.runs) as f64);
            if passed >= 1.0 {
                self.run = ((time - (runs - passed).max(0.0) * DROPPED_RUN_NS) / passed).max(20.0);
            }
            self.entries = runs * self.entry / ns;
            self.share = self.entries + time / ns;
            return;
        }
        // runs that no gate counted are assumed to cost the same as when they were measured
        let known = passed * (self.run + self.entry) + refused * (DROPPED_RUN_NS + self.entry);
        if is_detached {
            self.share = known / ns;
            return;
        }
        self.share = self.share.max(known / ns);
        self.entries = self.entries.max((passed + refused) * self.entry / ns);
    }
}
