//! `software` and `hardware`: every Nth event that the kernel or the CPU counts.
//!
//! Names, numbers and usual counts: `enum perf_sw_ids` and `enum perf_hw_id` of include/uapi/linux/perf_event.h.

use super::{ArgRef, Attach, ContextFeatures, Env, Info, ProbeKind, ProbeSite, ProgramType, SamplePeriod, matches};
use crate::diag::Diagnostic;
use crate::emit::{Builder, Operand};
use crate::syntax::ast::AttachPoint;
use crate::system::Missing;
use crate::types::Type;

/// A source of counts.
#[derive(Debug)]
pub struct Counter {
    info: Info,
    /// `enum perf_type_id`.
    ty: u32,
    events: &'static [Event],
}

/// An event: its names, its number, and the default count.
type Event = (&'static [&'static str], u64, u64);

/// Events that the kernel counts.
pub static SOFTWARE: Counter = Counter {
    info: Info {
        names: &["software", "s"],
        usage: "software:EVENT[:COUNT]",
        doc: "Runs on every COUNTth software event of the kernel: page faults, context switches and others.",
        example: "software:page-faults:100 { @[comm] = count(); }",
    },
    ty: 1,
    events: &[
        (&["alignment-faults"], 7, 1),
        (&["bpf-output"], 10, 1),
        (&["context-switches", "cs"], 3, 1000),
        (&["cpu-clock", "cpu"], 0, 1_000_000),
        (&["cpu-migrations"], 4, 1),
        (&["dummy"], 9, 1),
        (&["emulation-faults"], 8, 1),
        (&["major-faults"], 6, 1),
        (&["minor-faults"], 5, 100),
        (&["page-faults", "faults"], 2, 100),
        (&["task-clock"], 1, 1),
    ],
};

/// Events that the processor counts.
pub static HARDWARE: Counter = Counter {
    info: Info {
        names: &["hardware", "h"],
        usage: "hardware:EVENT[:COUNT]",
        doc: "Runs on every COUNTth event of a hardware counter. Virtual machines often lack these counters.",
        example: "hardware:cache-misses:1000000 { @[comm] = count(); }",
    },
    ty: 0,
    events: &[
        (&["backend-stalls"], 8, 1_000_000),
        (&["branch-instructions", "branches"], 4, 100_000),
        (&["branch-misses"], 5, 100_000),
        (&["bus-cycles"], 6, 100_000),
        (&["cache-misses"], 3, 1_000_000),
        (&["cache-references"], 2, 1_000_000),
        (&["cpu-cycles", "cycles"], 0, 1_000_000),
        (&["frontend-stalls"], 7, 1_000_000),
        (&["instructions"], 1, 1_000_000),
        (&["ref-cycles"], 9, 1_000_000),
    ],
};

impl ProbeKind for Counter {
    fn info(&self) -> &Info {
        &self.info
    }

    fn expand(&self, point: &AttachPoint, _env: &Env) -> Result<Vec<ProbeSite>, Diagnostic> {
        let parts: Vec<&str> = point.segments.iter().skip(1).map(|s| s.text.as_str()).collect();
        let error = |what: String| Diagnostic::error("bad-probe", point.span, what).help(format!("write {}", self.usage()));
        let (name, count) = match parts.as_slice() {
            [name] => (*name, None),
            [name, n] => match super::whole_number(n) {
                Some(n) if n > 0 => (*name, Some(n)),
                _ => return Err(error(format!("`{n}` is not a number of events"))),
            },
            _ => return Err(error(format!("{} takes an event, and optionally a number", self.name()))),
        };
        let Some((_, config, usual)) = self.events.iter().find(|(names, ..)| names.contains(&name)) else {
            let names = self.events.iter().flat_map(|(names, ..)| names.iter().copied());
            return Err(error(format!("there is no {} event `{name}`", self.name())).suggest(name, names));
        };
        let name = point.segments.iter().skip(1).map(|s| s.text.as_str()).collect::<Vec<_>>().join(":");
        let count = count.unwrap_or(*usual);
        let attach = Attach::Perf { ty: self.ty, config: *config, period: SamplePeriod::Period(count), all_cpus: true };
        Ok(vec![ProbeSite { kind: super::row(self.name()), name: format!("{}:{name}", self.name()), attach, span: point.span }])
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
        // with the colon that precedes a number
        let mut all: Vec<String> = self.events.iter().flat_map(|(names, ..)| names.iter().map(|name| format!("{name}:"))).collect();
        all.sort_unstable();
        for name in all.iter().filter(|name| matches(&pattern, name)) {
            each(&format!("{}:{name}", self.name()));
        }
        Ok(())
    }
}
