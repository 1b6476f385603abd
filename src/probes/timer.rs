//! `interval` and `profile`: perf events of the CPU clock, on one CPU or on all.
//!
//! Source of the mechanism: perf_event_open(2), `PERF_COUNT_SW_CPU_CLOCK`.

use super::{ArgRef, Attach, ContextFeatures, Env, Info, ProbeKind, ProbeSite, ProgramType, SamplePeriod, matches};
use crate::diag::Diagnostic;
use crate::emit::{Builder, Operand};
use crate::settings::Argument;
use crate::syntax::ast::AttachPoint;
use crate::system::Missing;
use crate::types::Type;
use crate::units;

/// A timer.
#[derive(Debug)]
pub struct Timer {
    info: Info,
    all_cpus: bool,
}

/// On one CPU.
pub static INTERVAL: Timer = Timer {
    info: Info {
        names: &["interval", "i"],
        usage: "interval:UNIT:N or interval:DURATION, UNIT one of hz, s, ms, us",
        doc: "Runs on one CPU at a fixed interval, for example to print results or to end the run.",
        example: "interval:s:1 { print(elapsed); exit(); }",
    },
    all_cpus: false,
};

/// On every CPU.
pub static PROFILE: Timer = Timer {
    info: Info {
        names: &["profile", "p"],
        usage: "profile:UNIT:N or profile:DURATION, UNIT one of hz, s, ms, us",
        doc: "Runs on every CPU at a fixed interval, for sampling.",
        example: "profile:hz:99 { @[kstack] = count(); }",
    },
    all_cpus: true,
};

/// `enum perf_type_id` and `enum perf_sw_ids` of include/uapi/linux/perf_event.h.
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
const UNITS: [&str; 4] = ["s", "ms", "us", "ns"];
/// Minimum period of the kernel's software clock: 1 µs.
const MIN_INTERVAL_NS: u64 = 1000;

const HERTZ: &str = "hz";
/// The number in place of one that is given when the script runs. It must be valid in each unit.
const LEAST_ARGUMENT: &str = "1000";

fn is_unit(unit: &str) -> bool {
    unit == HERTZ || UNITS.contains(&unit)
}

/// The period of a number of units.
///
/// # Errors
/// What is wrong.
fn period(unit: &str, n: &str) -> Result<SamplePeriod, String> {
    match (unit, units::duration(unit).filter(|_| UNITS.contains(&unit)), super::whole_number(n)) {
        (HERTZ, _, Some(n)) if n > 0 => Ok(SamplePeriod::Frequency(n)),
        (HERTZ, _, _) => Err(format!("`{n}` is not a frequency")),
        (_, Some(ns), Some(n)) if n > 0 => Ok(SamplePeriod::Period(n.saturating_mul(ns))),
        (_, Some(_), _) => Err(format!("`{n}` is not a number of `{unit}`")),
        (_, None, _) => Err(format!("`{unit}` is not a unit of time")),
    }
}

fn require_least(period: SamplePeriod) -> Result<(), String> {
    match period {
        SamplePeriod::Period(ns @ ..MIN_INTERVAL_NS) => Err(format!("{ns} ns is too short: at least {MIN_INTERVAL_NS} ns")),
        SamplePeriod::Period(_) | SamplePeriod::Frequency(_) => Ok(()),
    }
}

/// Is it a timer with a unit? Its number may be an argument of the run, `$name`, which is then a part of the site's name.
pub fn takes_arguments(point: &AttachPoint) -> bool {
    let parts: Vec<&str> = point.segments.iter().map(|s| s.text.as_str()).collect();
    match parts.as_slice() {
        [kind, unit, _] => [&INTERVAL, &PROFILE].iter().any(|timer| timer.info.names.contains(kind)) && is_unit(unit),
        _ => false,
    }
}

/// The argument of the run that is the number of a timer, if it is one.
pub fn argument_of(name: &str, attach: &Attach) -> Option<Argument> {
    let Attach::Perf { ty: PERF_TYPE_SOFTWARE, config: PERF_COUNT_SW_CPU_CLOCK, .. } = attach else { return None };
    let name = name.rsplit_once(":$")?.1;
    Some(name.parse().map_or_else(|_| Argument::Option(name.into()), Argument::Text))
}

/// Sets the number of a timer whose number is an argument of the run.
///
/// # Errors
/// It is not a valid number.
pub fn set_argument(name: &mut String, attach: &mut Attach, n: &str) -> Result<(), String> {
    let (Some((before, _)), Attach::Perf { period: to, .. }) = (name.rsplit_once(":$"), attach) else { return Ok(()) };
    let unit = before.rsplit(':').next().unwrap_or_default();
    *to = period(unit, n)?;
    require_least(*to)?;
    *name = format!("{before}:{}", super::whole_number(n).unwrap_or_default());
    Ok(())
}

impl ProbeKind for Timer {
    fn info(&self) -> &Info {
        &self.info
    }

    fn is_listed(&self) -> bool {
        false
    }

    fn expand(&self, point: &AttachPoint, _env: &Env) -> Result<Vec<ProbeSite>, Diagnostic> {
        let parts: Vec<&str> = point.segments.iter().skip(1).map(|s| s.text.as_str()).collect();
        let error = |what: String| Diagnostic::error("bad-probe", point.span, what).help(format!("write {}", self.usage()));
        let number = super::whole_number;
        let period = match parts.as_slice() {
            [unit, n] => {
                let known = if n.starts_with('$') { LEAST_ARGUMENT } else { n };
                period(unit, known).map_err(|what| {
                    let d = error(what);
                    if is_unit(unit) { d } else { d.suggest(unit, UNITS.into_iter().chain([HERTZ])) }
                })?
            }
            [duration] => match number(duration) {
                Some(n) if n > 0 => SamplePeriod::Period(n),
                _ => return Err(error(format!("`{duration}` is not a duration"))),
            },
            _ => return Err(error(format!("{} takes a unit and a number", self.name()))),
        };
        require_least(period).map_err(error)?;
        let name = match (parts.as_slice(), period) {
            ([unit, n], _) if n.starts_with('$') => format!("{}:{unit}:{n}", self.name()),
            ([unit, n], _) => format!("{}:{unit}:{}", self.name(), number(n).unwrap_or_default()),
            (_, SamplePeriod::Period(n) | SamplePeriod::Frequency(n)) => format!("{}:us:{}", self.name(), n / 1000),
        };
        let attach = Attach::Perf { ty: PERF_TYPE_SOFTWARE, config: PERF_COUNT_SW_CPU_CLOCK, period, all_cpus: self.all_cpus };
        Ok(vec![ProbeSite { kind: super::row(self.name()), name, attach, span: point.span }])
    }

    fn offers(&self) -> ContextFeatures {
        ContextFeatures::REGS.union(ContextFeatures::CTX).union(ContextFeatures::STACK).union(ContextFeatures::SIGNAL)
    }

    fn program(&self, _site: &ProbeSite, _env: &Env) -> ProgramType {
        ProgramType::PerfEvent
    }

    fn load<'c>(&self, e: &mut Builder<'_, 'c>, site: &ProbeSite, _env: &Env, which: &ArgRef, ty: &Type) -> Operand<'c> {
        super::perf_context(e, site, which, ty)
    }

    fn list(&self, pattern: &[String], _env: &Env, each: &mut dyn FnMut(&str)) -> Result<(), Missing> {
        let pattern = pattern.join(":");
        for unit in ["hz:", "ms:", "s:", "us:"] {
            if matches(&pattern, unit) {
                each(&format!("{}:{unit}", self.name()));
            }
        }
        Ok(())
    }
}
