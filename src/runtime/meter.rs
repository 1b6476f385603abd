//! The cost of a run's programs, and the effect that a limit would have had on it, for `rbt cost`.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::cost::{self, Cost, Statistics};
use super::load::{Loaded, MapFd};
use super::throttle::{self, Remedy};
use super::{SessionCx, entry_cost};
use crate::probes::Attach;
use crate::settings::Overhead;
use crate::system::TargetInfo;

/// The shortest period over which a peak is measured.
const WINDOW: Duration = Duration::from_millis(100);

/// The cost of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    /// The duration of the measurement.
    pub seconds: f64,
    /// Processors of the machine.
    pub cpus: usize,
    /// The cost of each program, in the order of the script.
    pub probes: Vec<ProbeCost>,
    /// Bytes that the kernel has allocated for each of the script's maps.
    pub maps: Vec<(String, u64)>,
    /// The same for all maps, including the ring buffer and rbt's own maps.
    pub bytes: u64,
    /// The steps that the limit would have taken, in order.
    pub steps: Vec<(String, Remedy)>,
}

/// The cost of a program at all its sites.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProbeCost {
    /// The name of its first site, and the number of others.
    pub probe: String,
    /// How often it ran.
    pub runs: u64,
    /// Total run time in nanoseconds.
    pub ns: u64,
    /// Nanoseconds to enter and leave it once, measured on this machine or estimated.
    pub entry: f64,
    /// The greatest share of a CPU within a tenth of a second.
    pub peak: f64,
}

impl ProbeCost {
    /// Nanoseconds per second, as a share of a CPU.
    pub fn share(&self, seconds: f64) -> f64 {
        (self.ns as f64 + self.runs as f64 * self.entry) / (seconds * 1e9)
    }
}

impl Costs {
    /// The share of a CPU, of all probes.
    pub fn share(&self) -> f64 {
        self.probes.iter().fold(0.0, |sum, probe| sum + probe.share(self.seconds))
    }

    /// The sum of the peaks, which may have been at different times.
    pub fn peak(&self) -> f64 {
        self.probes.iter().fold(0.0, |sum, probe| sum + probe.peak)
    }

    /// Runs per second.
    pub fn events(&self) -> f64 {
        self.probes.iter().fold(0.0, |sum, probe| sum + probe.runs as f64) / self.seconds
    }
}

/// Measures while it lives.
pub(super) struct Meter {
    _statistics: Statistics,
    /// The cost of entering each program.
    entries: Vec<f64>,
    limit: Overhead,
    cpus: usize,
    begun: Instant,
    before: Vec<Cost>,
    window: (Instant, Vec<Cost>),
    peaks: Vec<f64>,
}

impl Meter {
    pub fn begin(cx: &SessionCx, limit: Overhead, sys: &dyn TargetInfo) -> std::io::Result<Self> {
        let entries = entry_cost::of(&cx.manifest.programs, sys);
        let statistics = cost::measure()?;
        let (before, now) = (read(&cx.loaded), Instant::now());
        let peaks = vec![0.0; before.len()];
        Ok(Self {
            _statistics: statistics,
            entries,
            limit,
            cpus: sys.online_cpus().len().max(1),
            begun: now,
            window: (now, before.clone()),
            before,
            peaks,
        })
    }

    /// Measures the current costs, if it is time to, to find a peak.
    pub fn update(&mut self, cx: &SessionCx) {
        let took = self.window.0.elapsed();
        if took < WINDOW {
            return;
        }
        let now = read(&cx.loaded);
        let ns = took.as_nanos() as f64;
        for (((peak, now), then), entry) in self.peaks.iter_mut().zip(&now).zip(&self.window.1).zip(&self.entries) {
            let (time, runs) = (now.ns.wrapping_sub(then.ns) as f64, now.runs.wrapping_sub(then.runs) as f64);
            *peak = peak.max((time + runs * entry) / ns);
        }
        self.window = (Instant::now(), now);
    }

    /// The result.
    pub fn finish(mut self, cx: &SessionCx) -> Costs {
        let seconds = self.begun.elapsed().as_secs_f64().max(1e-9);
        self.update(cx);
        let now = read(&cx.loaded);
        let all = now.iter().zip(&self.before).zip(&self.peaks).zip(&self.entries).zip(&cx.manifest.programs);
        let measured: Vec<ProbeCost> = all
            .map(|((((now, then), peak), entry), program)| {
                let probe = program.name();
                let (runs, ns) = (now.runs.wrapping_sub(then.runs), now.ns.wrapping_sub(then.ns));
                let cost = ProbeCost { probe, runs, ns, entry: *entry, peak: *peak };
                // a run that is shorter than a window has no peak
                let mean = cost.share(seconds);
                ProbeCost { peak: cost.peak.max(mean), ..cost }
            })
            .collect();
        let steps = self.steps(cx, &measured, seconds);
        // those run once, and not because of an event
        let is_event = |index: usize| {
            let sites = cx.manifest.programs.get(index).map_or(&[][..], |program| &program.sites);
            !sites.iter().all(|site| matches!(site.attach, Attach::Begin | Attach::End))
        };
        let probes = measured.into_iter().enumerate().filter(|(index, _)| is_event(*index)).map(|(_, cost)| cost).collect();
        let (maps, bytes) = memory(cx);
        Costs { seconds, cpus: self.cpus, probes, maps, bytes, steps }
    }

    /// The steps that the limit would have taken if each second had been like the average.
    fn steps(&self, cx: &SessionCx, measured: &[ProbeCost], seconds: f64) -> Vec<(String, Remedy)> {
        let budget = throttle::budget(self.limit, self.cpus);
        let mut groups: Vec<ProbeGroup> = Vec::new();
        for (probe, sampling) in cx.manifest.sampling.iter().enumerate() {
            let Some((of, gate)) = throttle::group(probe, *sampling) else { continue };
            let programs = cx.manifest.programs.iter().zip(measured).filter(|(program, _)| program.probes.contains(&probe));
            for (_, cost) in programs {
                let (share, entries) = (cost.share(seconds), cost.runs as f64 * cost.entry / (seconds * 1e9));
                match groups.iter_mut().find(|group| group.index == of) {
                    Some(group) => {
                        group.names.push(cost.probe.clone());
                        (group.share, group.entries) = (group.share + share, group.entries + entries);
                    }
                    None => groups.push(ProbeGroup {
                        index: of,
                        names: vec![cost.probe.clone()],
                        sampled: gate.is_some(),
                        one_in: 1,
                        share,
                        entries,
                    }),
                }
            }
        }
        let mut steps: Vec<(String, Remedy)> = Vec::new();
        loop {
            let share: f64 = groups.iter().map(|group| group.share).sum();
            let costliest = groups.iter_mut().filter(|group| group.share > 0.0).max_by(|a, b| a.share.total_cmp(&b.share));
            let Some(group) = costliest.filter(|_| share > budget) else { return steps };
            let remedy = throttle::remedy(group.share, group.entries, budget - (share - group.share), group.sampled, group.one_in);
            match remedy {
                Remedy::Sample { one_in } => {
                    group.share = group.entries + (group.share - group.entries) * group.one_in as f64 / one_in as f64;
                    group.one_in = one_in;
                }
                Remedy::Detach => group.share = 0.0,
            }
            let name = group.names.join(", ");
            steps.retain(|(known, _)| *known != name);
            steps.push((name, remedy));
        }
    }
}

/// Probes that are sampled and detached together.
struct ProbeGroup {
    index: usize,
    names: Vec<String>,
    /// Can single runs be dropped?
    sampled: bool,
    one_in: u64,
    share: f64,
    entries: f64,
}

/// The cost of each program while it was measured.
pub(super) fn read(loaded: &Loaded) -> Vec<Cost> {
    let of = |fd: &Option<_>| {
        // SAFETY: the loaded object owns the descriptor
        #[allow(unsafe_code)]
        let program = fd.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
        program.and_then(|program| cost::of(program).ok()).unwrap_or_default()
    };
    loaded.programs.iter().map(of).collect()
}

/// The memory of the script's maps, and of all maps.
fn memory(cx: &SessionCx) -> (Vec<(String, u64)>, u64) {
    let loaded = &cx.loaded;
    let bytes = |map: &MapFd| cost::memory(map.fd).unwrap_or(0) + map.threads.map_or(0, |cells| cells.bytes());
    let second = |index: usize| loaded.second_copies.get(index).copied().flatten().map_or(0, |map| bytes(&map));
    let script_maps = cx.manifest.maps.iter().zip(&loaded.maps).enumerate();
    let script_maps = script_maps.map(|(index, (row, map))| (row.name.clone(), bytes(map) + second(index))).collect();
    (script_maps, cost::memory_of_all_maps())
}
