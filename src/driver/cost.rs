//! `rbt cost`: what a script costs the machine.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::rc::Rc;
use std::time::SystemTime;

use serde_json::json;

use super::script;
use crate::cli::Action;
use crate::cli::cost::{Bound, Cost};
use crate::diag::plain;
use crate::failure::Failure;
use crate::launch::expectations::{Budget, not_run};
use crate::runtime::{Costs, Remedy};
use crate::settings::{Overhead, write_overhead};
use crate::streams::{report, to_stdout};
use crate::verdict::{Finding, Level, Outcome, State, rule};

impl Action for Cost {
    fn color(&self) -> bool {
        self.run.color
    }

    fn run(&self) -> Result<u8, Failure> {
        cost(self)
    }
}

/// Runs the script, and prints its cost.
fn cost(args: &Cost) -> Result<u8, Failure> {
    let began = SystemTime::now();
    let measured = Rc::new(RefCell::new(None));
    let mut budget = Budget::default();
    budget.open(&args.run)?;
    let status = match script(&args.run, None, Some((args.limit, measured.clone()))) {
        Ok(status) => status,
        Err(failure) if args.bounds.is_empty() => return Err(failure),
        Err(failure) => {
            report(&failure, args.run.color);
            return Err(Failure::reported(not_run(&failure, false)));
        }
    };
    // the run only printed the script's help
    let Some(costs) = measured.borrow_mut().take() else { return Ok(status) };
    let text = if args.json { json(&costs, args.limit) } else { text(&costs, args.limit) };
    to_stdout(|out| out.write_all(text.as_bytes()))?;
    if args.bounds.is_empty() {
        return Ok(0);
    }
    budget.report(&args.run, began, args.bounds.iter().map(|bound| outcome(bound, &costs)).collect())
}

fn outcome(bound: &Bound, costs: &Costs) -> Outcome {
    let found = format!("{} is {}", bound.quantity.name, (bound.quantity.show)((bound.quantity.read)(costs)));
    let not_met = Finding {
        rule: "not-met",
        level: rule("not-met").map_or(Level::Error, |rule| rule.level),
        message: found.clone(),
        location: None,
        related: Vec::new(),
        help: None,
    };
    let nothing_ran = Finding {
        rule: "nothing-ran",
        level: rule("nothing-ran").map_or(Level::Warning, |rule| rule.level),
        message: "no probe ran while the cost was measured".into(),
        help: Some("start the load that the probes are for, by -c or before".into()),
        ..not_met.clone()
    };
    let findings = match bound.holds(costs) {
        false => vec![not_met],
        true if costs.probes.iter().all(|probe| probe.runs == 0) => vec![nothing_ran],
        true => Vec::new(),
    };
    Outcome {
        subject: bound.text.clone(),
        against: String::new(),
        state: State::Checked,
        findings,
        facts: vec![("measured".into(), found)],
        seconds: costs.seconds,
    }
}

fn text(costs: &Costs, limit: Overhead) -> String {
    let Costs { seconds, cpus, .. } = *costs;
    let mut to = String::new();
    if costs.probes.is_empty() {
        to.push_str("No probe was measured: begin and end run once, and no event starts them.\n\n");
        memory(costs, &mut to);
        return to;
    }
    let _ = writeln!(to, "{:>12} {:>8} {:>9} {:>8} {:>8}  PROBE", "RUNS/S", "NS/RUN", "NS/ENTRY", "CPU %", "PEAK %");
    for probe in &costs.probes {
        let each = if probe.runs > 0 { probe.ns as f64 / probe.runs as f64 } else { 0.0 };
        let (runs, share, peak) = (probe.runs as f64 / seconds, probe.share(seconds) * 100.0, probe.peak * 100.0);
        let _ = writeln!(to, "{runs:>12.1} {each:>8.0} {:>9.0} {share:>8.3} {peak:>8.3}  {}", probe.entry, plain(&probe.probe));
    }
    let share = costs.share() * 100.0;
    let _ = writeln!(
        to,
        "{:>12.1} {:>8} {:>9} {share:>8.3} {:>8.3}  of one CPU in {seconds:.1} s; {:.3} % of all {cpus}\n",
        costs.events(),
        "",
        "",
        costs.peak() * 100.0,
        share / cpus as f64
    );
    memory(costs, &mut to);
    to.push('\n');
    let of = write_overhead(Some(limit));
    if costs.steps.is_empty() {
        let _ = writeln!(to, "--max-overhead {of} would not have restrained any probe");
    }
    for (probe, step) in &costs.steps {
        let _ = match step {
            Remedy::Sample { one_in } => writeln!(to, "--max-overhead {of} would have let one in {one_in} runs pass of {}", plain(probe)),
            Remedy::Detach => writeln!(to, "--max-overhead {of} would have detached {}", plain(probe)),
        };
    }
    to
}

fn memory(costs: &Costs, to: &mut String) {
    let _ = writeln!(to, "{:>12}  MAP", "BYTES");
    for (name, bytes) in &costs.maps {
        let _ = writeln!(to, "{bytes:>12}  {}", plain(name));
    }
    let _ = writeln!(to, "{:>12}  all maps, with those that rbt needs", costs.bytes);
}

fn json(costs: &Costs, limit: Overhead) -> String {
    let seconds = costs.seconds;
    let probes: Vec<_> = costs
        .probes
        .iter()
        .map(|probe| {
            json!({
                "probe": probe.probe,
                "runs": probe.runs,
                "runs_per_second": probe.runs as f64 / seconds,
                "run_ns": probe.ns,
                "entry_ns": probe.entry,
                "cpu_percent": probe.share(seconds) * 100.0,
                "peak_percent": probe.peak * 100.0,
            })
        })
        .collect();
    let maps: Vec<_> = costs.maps.iter().map(|(name, bytes)| json!({ "map": name, "bytes": bytes })).collect();
    let steps: Vec<_> = costs
        .steps
        .iter()
        .map(|(probe, step)| match step {
            Remedy::Sample { one_in } => json!({ "probe": probe, "action": "sample", "one_in": one_in }),
            Remedy::Detach => json!({ "probe": probe, "action": "detach" }),
        })
        .collect();
    let data = json!({
        "seconds": seconds,
        "cpus": costs.cpus,
        "cpu_percent": costs.share() * 100.0,
        "peak_percent": costs.peak() * 100.0,
        "runs_per_second": costs.events(),
        "probes": probes,
        "maps": maps,
        "bytes": costs.bytes,
        "limit": { "max_overhead": write_overhead(Some(limit)), "steps": steps },
    });
    format!("{}\n", json!({ "type": "cost", "data": data }))
}
