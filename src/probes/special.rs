//! `begin` and `end`, which run once in this process, before everything is attached and after everything is detached; and
//! `self`, which this process runs on a signal.

use super::{ArgRef, Attach, ContextFeatures, Env, Info, ProbeKind, ProbeSite, ProgramType, no_parts};
use crate::diag::Diagnostic;
use crate::emit::{Builder, Operand};
use crate::syntax::ast::AttachPoint;
use crate::system::Missing;
use crate::types::Type;

/// A moment of the run.
#[derive(Debug)]
pub struct Special {
    info: Info,
    attach: Attach,
}

/// Before everything else.
pub static BEGIN: Special = Special {
    info: Info {
        names: &["begin"],
        usage: "begin",
        doc: "Runs once before any other probe is attached.",
        example: "begin { printf(\"start\\n\"); exit(); }",
    },
    attach: Attach::Begin,
};

/// After everything else.
pub static END: Special = Special {
    info: Info {
        names: &["end"],
        usage: "end",
        doc: "Runs once after all other probes are detached, before the maps are printed.",
        example: "end { printf(\"bye\\n\"); }",
    },
    attach: Attach::End,
};

/// On a signal to this process.
pub static SELF: Special = Special {
    info: Info {
        names: &["self"],
        usage: "self:signal:SIGUSR1",
        doc: "Runs each time rbt itself receives SIGUSR1, for example to print maps during a run.",
        example: "self:signal:SIGUSR1 { print(@); } tracepoint:syscalls:sys_enter_openat { @[comm] = count(); }",
    },
    attach: Attach::Signal,
};

/// The segments of [`SELF`] after its name.
const SIGNAL: [&str; 2] = ["signal", "SIGUSR1"];

impl ProbeKind for Special {
    fn info(&self) -> &Info {
        &self.info
    }

    fn probetype(&self) -> &'static str {
        "special"
    }

    fn by_name_only(&self) -> bool {
        true
    }

    fn expand(&self, point: &AttachPoint, _env: &Env) -> Result<Vec<ProbeSite>, Diagnostic> {
        if self.attach == Attach::Signal {
            let given = super::parts::<2>(&self.info, point)?;
            if given != SIGNAL {
                let d = Diagnostic::error("bad-probe", point.span, format!("{1} does not support `{0}`", given.join(":"), self.name()));
                return Err(d.help(format!("write {}", self.usage())));
            }
            let name = format!("{}:{}", self.name(), SIGNAL.join(":"));
            return Ok(vec![ProbeSite { kind: super::row(self.name()), name, attach: self.attach.clone(), span: point.span }]);
        }
        if !matches!(point.segments.as_slice(), [_, all] if all.text == "*") {
            no_parts(self, point)?;
        }
        Ok(vec![ProbeSite { kind: super::row(self.name()), name: self.name().into(), attach: self.attach.clone(), span: point.span }])
    }

    fn offers(&self) -> ContextFeatures {
        ContextFeatures::STACK
    }

    fn program(&self, _site: &ProbeSite, _env: &Env) -> ProgramType {
        ProgramType::RawTracepoint
    }

    fn load<'c>(&self, _e: &mut Builder<'_, 'c>, _site: &ProbeSite, _env: &Env, which: &ArgRef, _ty: &Type) -> Operand<'c> {
        crate::bug!("{} offers no {which:?}", self.name())
    }

    fn list(&self, pattern: &[String], _env: &Env, each: &mut dyn FnMut(&str)) -> Result<(), Missing> {
        if self.attach != Attach::Signal {
            // for a bare name, parts of the pattern that require text do not match
            if pattern.iter().all(|p| super::matches(p, "")) {
                each(self.name());
            }
        } else if super::matches(&pattern.join(":"), &SIGNAL.join(":")) {
            each(self.usage());
        }
        Ok(())
    }
}
