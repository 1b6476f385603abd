//! Formats against their arguments.

use super::args::Given;
use super::body::Body;
use super::hir::CallArg;
use crate::builtins::Builtin;
use crate::diag::{Diagnostic, Span};
use crate::render::format;
use crate::types::Type;

impl Body<'_> {
    /// Checks the arguments after the format at position `at` against it.
    pub fn check_format(&mut self, row: &'static Builtin, at: usize, given: &Given, span: Span) {
        let (Some(fact), Some(CallArg::Value(literal))) = (given.facts.get(at), given.args.get(at)) else { return };
        let Some(text) = super::fold::text(literal) else { return };
        let pieces = match format::parse(text) {
            Ok(pieces) => pieces,
            Err(e) => return self.error("format", fact.span, e.message),
        };
        let wanted = format::specs(&pieces).count();
        let have = given.facts.len() - at - 1;
        if wanted != have {
            let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
            let message = format!("the format of {} has {}, {} given", row.name, plural(wanted, "conversion"), plural(have, "argument"));
            let place = if have > wanted { given.facts.get(at + 1 + wanted).map_or(span, |f| f.span) } else { fact.span };
            return self.error("format", place, message);
        }
        for (spec, arg) in format::specs(&pieces).zip(given.facts.iter().skip(at + 1)) {
            if arg.ty != Type::Void && !spec.accepts(&arg.ty) {
                let message = format!("`{}` shows {}, and this is {}", spec.source, spec.expects(), arg.ty);
                let d = Diagnostic::error("format", arg.span, message);
                self.report(d.help("`%s` shows any value"));
            }
        }
    }
}
