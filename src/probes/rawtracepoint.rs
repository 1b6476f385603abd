//! `rawtracepoint`: the kernel's events with the arguments of the tracepoint's call, typed by BTF.

use std::rc::Rc;

use super::{
    ArgRef, Attach, BodyNeeds, Context, ContextFeatures, ContextField, Env, FieldLocation, Info, Lowering, ProbeKind, ProbeSite,
    ProgramType, matches, missing,
};
use crate::diag::Diagnostic;
use crate::emit::{Builder, Operand};
use crate::syntax::ast::AttachPoint;
use crate::system::Missing;
use crate::types::{Int, Space, Type};

/// The kind.
#[derive(Debug)]
pub struct RawTracepoint;

const U64: Int = Int { bytes: 8, signed: false };
/// `MAX_BPF_FUNC_ARGS` of include/linux/bpf.h.
const MAX_ARGS: u32 = 12;

static INFO: Info = Info {
    names: &["rawtracepoint", "rt"],
    usage: "rawtracepoint[:MODULE]:EVENT",
    doc: "A static event of the kernel, with the arguments that the kernel passes to the tracepoint. It costs less than `tracepoint` and is less stable between kernels. `args` contains the arguments with the names and types that BTF gives them.",
    example: "rawtracepoint:sched_switch { @[args.next.comm] = count(); }",
};

impl ProbeKind for RawTracepoint {
    fn info(&self) -> &Info {
        &INFO
    }

    fn expand(&self, point: &AttachPoint, env: &Env) -> Result<Vec<ProbeSite>, Diagnostic> {
        let parts: Vec<&str> = point.segments.iter().skip(1).map(|s| s.text.as_str()).collect();
        let (module, event) = match parts.as_slice() {
            [event] => ("*", *event),
            [module, event] => (*module, *event),
            _ => {
                return Err(Diagnostic::error(
                    "bad-probe",
                    point.span,
                    "rawtracepoint takes an event, and optionally its module before it",
                )
                .help(format!("write {}", self.usage())));
            }
        };
        let site = |module: &str, event: &str| ProbeSite {
            kind: super::row("rawtracepoint"),
            name: format!("rawtracepoint:{module}:{event}"),
            attach: Attach::RawTracepoint { name: event.into(), typed: false },
            span: point.span,
        };
        // an exact name is queried directly: a list of all names requires a scan of all types
        if !event.contains('*') && matches!(module, "*" | "vmlinux") && env.sys.raw_tracepoint(event).is_some() {
            return Ok(vec![site("vmlinux", event)]);
        }
        let found = env.sys.matching_raw_tracepoints(module, event).map_err(|m| missing(point.span, m))?;
        let found: Vec<ProbeSite> = found.iter().map(|(m, e)| site(m, e)).collect();
        if found.is_empty() && !event.contains('*') {
            let error = Diagnostic::error("unknown-tracepoint", point.span, format!("there is no rawtracepoint:{event}"));
            let all = env.sys.for_messages().raw_tracepoints().unwrap_or_default();
            return Err(error.suggest(event, all.iter().map(|(_, e)| e.as_str())));
        }
        Ok(found)
    }

    fn offers(&self) -> ContextFeatures {
        ContextFeatures::ARGS
            .union(ContextFeatures::ARGN)
            .union(ContextFeatures::STACK)
            .union(ContextFeatures::SIGNAL)
            .union(ContextFeatures::SOCKETS)
    }

    fn context(&self, site: &ProbeSite, env: &Env) -> Result<Context, Diagnostic> {
        let event = site.name.rsplit(':').next().unwrap_or("");
        let args = env.sys.raw_tracepoint(event);
        let known = args.as_ref().map_or(MAX_ARGS, |a| a.len() as u32);
        let fields = args.unwrap_or_default().into_iter().enumerate().map(|(i, (name, ty))| {
            let field = crate::types::Field { name, offset: i as u32 * 8, bits: None, ty };
            Rc::new(ContextField { field, location: FieldLocation::RawArg(i as u32) })
        });
        Ok(Context { features: self.offers(), fields: fields.collect(), args: known, space: Some(Space::Kernel), ..Context::default() })
    }

    fn declarations(&self, site: &ProbeSite, env: &Env) -> Result<Vec<String>, Diagnostic> {
        let event = site.name.rsplit(':').next().unwrap_or("");
        let signature = env.sys.kernel_types().and_then(|types| types.event_signature(event));
        Ok(signature.into_iter().flat_map(|s| s.params).map(|(ty, name)| format!("{ty} {name}")).collect())
    }

    fn lower(&self, sites: &[ProbeSite], needs: &BodyNeeds, _env: &Env) -> Lowering {
        let typed = |site: &ProbeSite| {
            let Attach::RawTracepoint { name, .. } = &site.attach else { crate::bug!("{} is no raw tracepoint", site.name) };
            Attach::RawTracepoint { name: name.clone(), typed: true }
        };
        let why = if needs.features.contains(ContextFeatures::SOCKETS) {
            "a helper needs the types of its arguments"
        } else if !needs.kernel_functions.is_empty() {
            "only programs with typed arguments may call functions of the kernel"
        } else if needs.passes_context {
            "an imported function may read the objects that it gets"
        } else {
            return Lowering::literal("");
        };
        Lowering { attaches: sites.iter().map(typed).collect(), ..Lowering::literal(why) }
    }

    fn program(&self, site: &ProbeSite, _env: &Env) -> ProgramType {
        if matches!(site.attach, Attach::RawTracepoint { typed: true, .. }) {
            ProgramType::TypedTracepoint
        } else {
            ProgramType::RawTracepoint
        }
    }

    fn load<'c>(&self, e: &mut Builder<'_, 'c>, site: &ProbeSite, _env: &Env, which: &ArgRef, ty: &Type) -> Operand<'c> {
        let arg = |e: &mut Builder<'_, 'c>, n: u32, ty: &Type| {
            let v = e.once(&format!("arg{n}"), |e| e.load_ctx(n * 8, U64));
            // the verifier knows a pointer as such, and rejects arithmetic on it
            let typed = matches!(site.attach, Attach::RawTracepoint { typed: true, .. });
            let v = if typed && !e.scope.keeps_pointer_types { e.forget_pointer_type(v) } else { v };
            match ty.as_int() {
                Some(int) => Operand::reg(ty.clone(), e.fit(v, int)),
                None => Operand::at(ty.clone(), v, Space::Kernel),
            }
        };
        match which {
            ArgRef::Index(n) => arg(e, *n, ty),
            ArgRef::Named(f) => arg(e, f.field.offset / 8, &f.field.ty),
            ArgRef::All(fields) => super::load_all(e, fields, ty, |e, f| arg(e, f.field.offset / 8, &f.field.ty)),
            ArgRef::Retval | ArgRef::Ctx | ArgRef::Func => crate::bug!("{} offers no {which:?}", site.name),
        }
    }

    fn list(&self, pattern: &[String], env: &Env, each: &mut dyn FnMut(&str)) -> Result<(), Missing> {
        let (module, event) = match pattern {
            [] => ("*", "*"),
            [event] => ("*", event.as_str()),
            [module, event, ..] => (module.as_str(), event.as_str()),
        };
        for (m, e) in env.sys.raw_tracepoints()? {
            if matches(module, m) && matches(event, e) {
                each(&format!("rawtracepoint:{m}:{e}"));
            }
        }
        Ok(())
    }
}
