//! The options of `rbt cost`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Arg;

use super::{Command, Run, flags, script_of};
use crate::diag::nearest;
use crate::failure::Failure;
use crate::runtime::{Costs, budget};
use crate::settings::{Overhead, parse_int, parse_overhead};
use crate::verdict;

/// A request to measure what a script costs.
#[derive(Debug)]
pub struct Cost {
    /// The script; it is run without output.
    pub run: Box<Run>,
    /// The limit whose effect is of interest.
    pub limit: Overhead,
    /// The bounds of `--expect`.
    pub bounds: Vec<Bound>,
    /// `-f json`
    pub json: bool,
}

/// A quantity of a cost that expectations can use.
#[derive(Debug)]
pub struct Quantity {
    /// Its name.
    pub name: &'static str,
    /// For help and the manual.
    pub doc: &'static str,
    /// Parses a bound, as a number.
    parse: fn(&str) -> Result<Amount, String>,
    /// The measured number.
    pub read: fn(&Costs) -> f64,
    /// The number with its unit.
    pub show: fn(f64) -> String,
}

/// A bound: a number, or a share of all CPUs.
#[derive(Clone, Copy, Debug)]
enum Amount {
    Number(f64),
    Share(Overhead),
}

/// All of them.
pub const QUANTITIES: &[Quantity] = &[
    Quantity {
        name: "cost",
        doc: "processor time of all probes, as a share of one CPU (1%) or of all (1%machine)",
        parse: share,
        read: Costs::share,
        show: percent,
    },
    Quantity { name: "peak", doc: "the greatest such share in a tenth of a second", parse: share, read: Costs::peak, show: percent },
    Quantity { name: "events", doc: "runs of all probes per second", parse: number, read: Costs::events, show: |n| format!("{n:.1}") },
    Quantity {
        name: "memory",
        doc: "kernel memory of all maps, in bytes (64K, 1M)",
        parse: number,
        read: |costs| costs.bytes as f64,
        show: |n| format!("{n:.0}"),
    },
];

fn percent(share: f64) -> String {
    format!("{:.3}%", share * 100.0)
}

fn share(text: &str) -> Result<Amount, String> {
    parse_overhead(text)?.map(Amount::Share).ok_or_else(|| "nothing costs nothing".into())
}

fn number(text: &str) -> Result<Amount, String> {
    parse_int(text).map(|n| Amount::Number(n as f64))
}

/// A comparison in `--expect`.
#[derive(Debug)]
pub struct Bound {
    /// The text of the comparison.
    pub text: String,
    /// The compared quantity.
    pub quantity: &'static Quantity,
    operator: &'static str,
    amount: Amount,
}

/// An operator, and its function.
type Operator = (&'static str, fn(f64, f64) -> bool);

/// Operators, longer ones first.
const OPERATORS: &[Operator] = &[("<=", |a, b| a <= b), (">=", |a, b| a >= b), ("<", |a, b| a < b), (">", |a, b| a > b)];

impl Bound {
    fn parse(text: &str) -> Result<Self, Failure> {
        let error = |why: String| Failure::new(format!("--expect '{text}': {why}")).status(verdict::USAGE);
        let found = OPERATORS.iter().find_map(|(operator, _)| Some((*operator, text.split_once(operator)?)));
        let Some((operator, (name, amount))) = found else {
            return Err(error("there is no comparison".into()).help("write one: cost < 1%"));
        };
        let name = name.trim();
        let Some(quantity) = QUANTITIES.iter().find(|quantity| quantity.name == name) else {
            let failure = error(format!("nothing is called `{name}`"));
            let names = || QUANTITIES.iter().map(|quantity| quantity.name);
            return Err(match nearest(name, names()) {
                Some(near) => failure.help(format!("did you mean `{near}`?")),
                None => failure.help(format!("one of {}", names().collect::<Vec<_>>().join(", "))),
            });
        };
        let amount = (quantity.parse)(amount.trim()).map_err(error)?;
        Ok(Self { text: text.trim().into(), quantity, operator, amount })
    }

    /// Does it hold?
    pub fn holds(&self, costs: &Costs) -> bool {
        let bound = match self.amount {
            Amount::Number(n) => n,
            Amount::Share(share) => budget(share, costs.cpus),
        };
        OPERATORS.iter().any(|(name, holds)| *name == self.operator && holds((self.quantity.read)(costs), bound))
    }
}

/// The duration without `--duration` and `-c`.
const DEFAULT_DURATION: Duration = Duration::from_secs(5);
/// The limit without `--max-overhead`.
const LIMIT: Overhead = Overhead { millipercent: 1000, of_machine: false };

/// Flags of a run that the help shows.
const RUN_FLAGS: &[&str] = &["duration", "max-overhead", "cmd", "pid", "cgroup", "format", "expect", "report", "color"];

const ABOUT: &str = "Measure what a script costs the machine

rbt cost attaches the probes of a script for 5 s, for the time of --duration, or while the command of -c runs, and discards the output of \
the script. For each probe, it prints the number of runs per second, the nanoseconds of a run and of entering the program, and the share \
of a CPU. For each map, it prints the memory. It also names the probes that --max-overhead (default: 1%) would have sampled or detached, \
but does not limit them.";

/// The command, for completions and the manual.
pub(super) fn command() -> clap::Command {
    let examples = format!(
        "The cost of a run is its time, as the kernel measures it, plus the time to enter and leave the program. rbt measures the latter once on \
         each machine (-v shows the numbers), and estimates it for interrupts, such as those of profile. The measurement adds about 20 ns to each \
         run of every BPF program on the machine.

Quantities of --expect, with <, <=, > or >=:
{}
Examples:
  rbt cost opensnoop                          measure a tool
  rbt cost --duration 1m --max-overhead 0.5% slow.bt
                                              show the effect of a limit of 0.5%
  rbt cost -c 'make -j4' --expect 'cost < 1%' --report junit=cost.xml slow.bt
                                              check the cost in CI, under a load

Exit status:
  0    success; all expectations are met
  1    an expectation is not met; without --expect, wrong usage or an error
  2    with --expect, the script, an expectation or an option is wrong
  3    with --expect, the script could not run",
        QUANTITIES.iter().map(|quantity| format!("  {:10}{}\n", quantity.name, quantity.doc)).collect::<String>()
    );
    clap::Command::new("rbt cost")
        .bin_name("rbt cost")
        .override_usage("rbt cost [OPTIONS] FILE|NAME|-e PROGRAM [ARGS]")
        .about(ABOUT.lines().next().unwrap_or_default())
        .long_about(ABOUT)
        .after_help(examples)
        .disable_version_flag(true)
        .arg(Arg::new("script").value_name("FILE|NAME").value_hint(clap::ValueHint::FilePath).help("A script file or the name of a tool"))
        .arg(Arg::new("e").short('e').value_name("PROGRAM").help("Measure this program"))
        .args(flags::subcommand_flags(RUN_FLAGS))
        .mut_arg("format", |arg| arg.value_parser(FORMATS).help("Write the result in this format"))
        .mut_arg("expect", |arg| arg.help("Expect the cost to keep this bound, such as 'cost < 1%'").long_help(None::<&str>))
}

const FORMATS: [&str; 2] = ["text", "json"];

/// Parses the arguments after `rbt cost`.
pub(super) fn parse(args: &[OsString]) -> Result<Command, Failure> {
    let before_script = super::split::first_word(args).unwrap_or(args.len());
    let helps = |word: &str| args.iter().take(before_script).any(|arg| arg == word);
    if helps("--help") || helps("-h") {
        let mut command = command();
        let text = if helps("--help") { command.render_long_help() } else { command.render_help() };
        return Ok(Command::Say(text.to_string()));
    }
    let mut run = match script_of("cost", args)? {
        Ok(run) => run,
        Err(help) => return Ok(Command::Say(help)),
    };
    let json = match run.format.take().as_deref() {
        None | Some("text") => false,
        Some("json") => true,
        Some(other) => {
            return Err(Failure::new(format!("rbt cost has no format `{other}`")).help(format!("it has {}", FORMATS.join(" and "))));
        }
    };
    let bounds = run.expected.texts.drain(..).map(|text| Bound::parse(&text)).collect::<Result<_, _>>()?;
    let limit = run.settings.max_overhead.take().unwrap_or(LIMIT);
    if run.settings.duration.is_zero() && run.child.is_none() {
        run.settings.duration = DEFAULT_DURATION;
    }
    run.quiet = true;
    run.outputs = vec!["/dev/null".into()];
    run.settings.print_maps_on_exit = false;
    run.invocation.is_measured = true;
    Ok(Command::Subcommand(Box::new(Cost { run, limit, bounds, json })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::ProbeCost;

    #[test]
    fn bounds_are_compared() {
        let probe = ProbeCost { runs: 100, ns: 15_000_000, entry: 50_000.0, peak: 0.5, ..ProbeCost::default() };
        let costs = Costs { seconds: 2.0, cpus: 4, probes: vec![probe], bytes: 2048, ..Costs::default() };
        let holds = |text: &str| Bound::parse(text).unwrap().holds(&costs);
        // 15 ms and 100 times 50 us in 2 s are 1 % of a CPU
        assert_eq!(
            ["cost<1.001%", "cost < 0.999%", "cost > 0.999%", "cost <= 0.26%machine", "cost <= 0.24%machine"].map(holds),
            [true, false, true, true, false]
        );
        assert_eq!(
            ["memory <= 2K", "memory < 2K", "events >= 50", "events > 50", "peak < 51%"].map(holds),
            [true, false, true, false, true]
        );
        for (text, part) in [
            ("cost", "no comparison"),
            ("cots < 1%", "nothing is called"),
            ("cost < x", "percentage"),
            ("memory < 1%", "number"),
            ("cost < 0", "nothing costs"),
        ] {
            let failure = Bound::parse(text).unwrap_err();
            assert!(failure.message.contains(part) && failure.status == verdict::USAGE, "{text}: {failure:?}");
        }
    }
}
