//! `begin` and `end`: run once, in this process, before everything is attached and after all is detached.

use super::{ArgRef, Attach, Caps, Env, Info, ProbeKind, ProbeSite, ProgramType, no_parts};
use crate::diag::Diagnostic;
use crate::emit::{Emit, Operand};
use crate::syntax::ast::AttachPoint;
use crate::system::Missing;
use crate::types::Type;

/// A moment of the run.
#[derive(Debug)]
pub struct Special {
    info: Info,
    attach: Attach,
}

/// Before all else.
pub static BEGIN: Special = Special {
    info: Info {
        names: &["begin"],
        usage: "begin",
        doc: "Runs once before any other probe is attached.",
        example: "begin { printf(\"start\\n\"); exit(); }",
    },
    attach: Attach::Begin,
};

/// After all else.
pub static END: Special = Special {
    info: Info {
        names: &["end"],
        usage: "end",
        doc: "Runs once after all other probes are detached, before the maps are printed.",
        example: "end { printf(\"bye\\n\"); }",
    },
    attach: Attach::End,
};

impl ProbeKind for Special {
    fn info(&self) -> &Info {
        &self.info
    }

    fn probetype(&self) -> &'static str {
        "special"
    }

    fn expand(&self, point: &AttachPoint, _env: &Env) -> Result<Vec<ProbeSite>, Diagnostic> {
        if !matches!(point.segments.as_slice(), [_, all] if all.text == "*") {
            no_parts(self, point)?;
        }
        Ok(vec![ProbeSite { kind: super::row(self.name()), name: self.name().into(), attach: self.attach.clone(), span: point.span }])
    }

    fn offers(&self) -> Caps {
        Caps::STACK
    }

    fn program(&self, _site: &ProbeSite, _env: &Env) -> ProgramType {
        ProgramType::RawTracepoint
    }

    fn load<'c>(&self, _e: &mut Emit<'c>, _site: &ProbeSite, _env: &Env, which: &ArgRef, _ty: &Type) -> Operand<'c> {
        crate::bug!("{} offers no {which:?}", self.name())
    }

    fn list(&self, _pattern: &[String], _env: &Env, _each: &mut dyn FnMut(&str)) -> Result<(), Missing> {
        Ok(())
    }
}
