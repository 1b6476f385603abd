//! `tracepoint`: the kernel's stable events, with the fields of their records.
//!
//! [`super::syscall`] has the mechanisms for system calls.

use std::rc::Rc;

use super::search::{Place, Search};
use super::{
    ArgRef, Attach, BodyNeeds, Context, ContextFeatures, ContextField, Env, FieldLocation, Info, Lowering, ProbeKind, ProbeSite,
    ProgramType, matches, missing, parts, syscall,
};
use crate::diag::Diagnostic;
use crate::emit::{Builder, Operand, Repr};
use crate::settings::Mechanism;
use crate::syntax::ast::AttachPoint;
use crate::system::events::tracefs::RECORDS;
use crate::system::{DataLoc, Feature, Missing};
use crate::types::{Int, Space, Type};

/// The kind.
#[derive(Debug)]
pub struct Tracepoint;

const U64: Int = Int { bytes: 8, signed: false };

impl Tracepoint {
    fn place(category: &str, event: &str) -> Place {
        let attach = Attach::Tracepoint { category: category.into(), event: event.into() };
        Place { name: format!("{NAME}:{category}:{event}"), attach }
    }

    fn names_of(site: &ProbeSite) -> (&str, &str) {
        let mut parts = site.name.splitn(3, ':').skip(1);
        (parts.next().unwrap_or(""), parts.next().unwrap_or(""))
    }
}

/// The name of the kind.
pub(super) const NAME: &str = "tracepoint";

static INFO: Info = Info {
    names: &[NAME, "t"],
    usage: "tracepoint:CATEGORY:EVENT",
    doc: "A static event of the kernel. `args` contains the fields of its record.",
    example: "tracepoint:sched:sched_process_exec { printf(\"%s\\n\", args.filename); }",
};

impl Search for Tracepoint {
    fn names(&self) -> &'static [&'static str] {
        INFO.names
    }

    fn find(&self, point: &AttachPoint, env: &Env) -> Result<Vec<Place>, Diagnostic> {
        let [category, event] = parts::<2>(&INFO, point)?;
        if category.contains('*') || event.contains('*') {
            let found = env.sys.matching_tracepoints(&category, &event).map_err(|m| missing(point.span, m))?;
            return Ok(found.iter().map(|(c, e)| Self::place(c, e)).collect());
        }
        if env.sys.has_tracepoint(&category, &event).map_err(|m| missing(point.span, m))? {
            return Ok(vec![Self::place(&category, &event)]);
        }
        let all = env.sys.for_messages().tracepoints().map_err(|m| missing(point.span, m))?;
        let named = format!("{NAME}:{category}:{event}");
        let error = Diagnostic::error("unknown-tracepoint", point.span, format!("there is no {named}"));
        if category == RECORDS {
            return Err(error.help(format!("`{RECORDS}` describes records of the kernel's other tracers, which probes cannot attach to")));
        }
        let arch = env.sys.arch();
        if let Some(call) = super::syscall::of(&category, &event).filter(|call| env.sys.syscall_number(call.name).is_none())
            && let Some(other) = arch.replaced_call(call.name)
        {
            let event = format!("{}{other}", event.strip_suffix(call.name).unwrap_or_default());
            let no = format!("{} has no system call `{}`", arch.name, call.name);
            return Err(error.help(format!("{no}; programs make `{other}` instead: `tracepoint:{category}:{event}`")));
        }
        if let Some((c, _)) = all.iter().find(|(_, e)| *e == event) {
            return Err(error.help(format!("did you mean `tracepoint:{c}:{event}`?")));
        }
        if all.iter().any(|(c, _)| *c == category) {
            let near = crate::diag::nearest(&event, all.iter().filter(|(c, _)| *c == category).map(|(_, e)| e.as_str()));
            return Err(match near {
                Some(e) => error.help(format!("did you mean `tracepoint:{category}:{e}`?")),
                None => error.help(format!("`rbt -l 'tracepoint:{category}:*'` lists what is available")),
            });
        }
        let near = crate::diag::nearest(&category, all.iter().map(|(c, _)| c.as_str())).map(str::to_owned);
        Err(match near {
            Some(c) => error.help(format!("did you mean the category `{c}`?")),
            None => error.help("`rbt -l 'tracepoint:*'` lists what is available"),
        })
    }
}

impl ProbeKind for Tracepoint {
    fn info(&self) -> &Info {
        &INFO
    }

    fn expand(&self, point: &AttachPoint, env: &Env) -> Result<Vec<ProbeSite>, Diagnostic> {
        Ok(ProbeSite::at(super::row(self.name()), self.find(point, env)?, point.span))
    }

    fn offers(&self) -> ContextFeatures {
        ContextFeatures::ARGS.union(ContextFeatures::STACK).union(ContextFeatures::SIGNAL)
    }

    fn context(&self, site: &ProbeSite, env: &Env) -> Result<Context, Diagnostic> {
        let (category, event) = Self::names_of(site);
        let format = env.sys.tracepoint(category, event).map_err(|m| missing(site.span, m))?;
        let fields = format.map(|f| f.fields).unwrap_or_default().into_iter().map(|f| {
            let place = match f.loc {
                Some(DataLoc::Absolute) => FieldLocation::DataLoc,
                Some(DataLoc::Relative) => FieldLocation::RelLoc,
                None => FieldLocation::Record,
            };
            let mut field = f.field;
            if let (Some(_), Type::Str(0)) = (f.loc, &field.ty) {
                field.ty = Type::Str(env.settings.max_strlen as u32);
            }
            Rc::new(ContextField { field, location: place })
        });
        // pointer arguments of system calls are marked as pointers to user memory in their types
        Ok(Context { features: self.offers(), fields: fields.collect(), space: Some(Space::Kernel), ..Context::default() })
    }

    fn declarations(&self, site: &ProbeSite, env: &Env) -> Result<Vec<String>, Diagnostic> {
        let (category, event) = Self::names_of(site);
        let format = env.sys.tracepoint(category, event).map_err(|m| missing(site.span, m))?;
        Ok(format.into_iter().flat_map(|f| f.fields).map(|f| f.decl).collect())
    }

    fn lower(&self, sites: &[ProbeSite], needs: &BodyNeeds, env: &Env) -> Lowering {
        if sites.iter().all(|s| syscall::syscall_of_site(s).is_some()) {
            return syscall::choose(sites, needs, env);
        }
        if env.settings.refuses(Mechanism::RawTracepoint) {
            return Lowering::literal("the raw form is turned off");
        }
        if sites.len() > 1 && !env.sys.has(Feature::RawTracepointCookie) {
            return Lowering::literal("this kernel does not distinguish raw tracepoints");
        }
        // the start of the stack depends on the mechanism
        if needs.features.contains(ContextFeatures::STACK) {
            return Lowering::literal("it records a stack");
        }
        let names = || sites.iter().map(Self::names_of);
        if names().any(|(category, event)| env.sys.is_dynamic_tracepoint(category, event)) {
            return Lowering::literal("an event created at run time has no raw form");
        }
        // whether a raw form exists is known when it is attached: only fields require the kernel's types
        if !needs.args.is_empty() {
            // several sites share the code that loads a field
            let raw = if let [site] = sites { env.sys.raw_tracepoint(Self::names_of(site).1) } else { None };
            let available = |a: &ArgRef| matches!((a, &raw), (ArgRef::Named(f), Some(raw)) if raw_argument(raw, f).is_some());
            if !needs.args.iter().all(available) {
                return Lowering::literal("it uses fields that only the event's record has");
            }
        }
        let attaches = names().map(|(_, event)| Attach::RawTracepoint { name: event.into(), typed: false }).collect();
        Lowering { lowered: Some(Mechanism::RawTracepoint), attaches, why: "it uses no fields that only the record has".into() }
    }

    fn program(&self, site: &ProbeSite, env: &Env) -> ProgramType {
        if matches!(site.attach, Attach::Syscall { .. }) {
            syscall::raw_program(env)
        } else if matches!(site.attach, Attach::RawTracepoint { .. }) {
            ProgramType::RawTracepoint
        } else if matches!(site.attach, Attach::Trampoline { .. }) {
            ProgramType::Tracing
        } else {
            ProgramType::Tracepoint
        }
    }

    fn enter(&self, e: &mut Builder<'_, '_>, site: &ProbeSite, env: &Env) {
        syscall::return_if_other_syscall(e, site, env);
    }

    fn load<'c>(&self, e: &mut Builder<'_, 'c>, site: &ProbeSite, env: &Env, which: &ArgRef, ty: &Type) -> Operand<'c> {
        match which {
            ArgRef::Named(f) if matches!(site.attach, Attach::RawTracepoint { .. }) => {
                let raw = env.sys.raw_tracepoint(Self::names_of(site).1).unwrap_or_default();
                let Some(n) = raw_argument(&raw, f) else { crate::bug!("{} has no raw {}", site.name, f.field.name) };
                load_field(e, &ContextField { location: FieldLocation::RawArg(n), ..(**f).clone() })
            }
            ArgRef::Named(f) => load(e, site, env, f),
            ArgRef::All(fields) => super::load_all(e, fields, ty, |e, f| load(e, site, env, f)),
            ArgRef::Ctx => Operand::reg(ty.clone(), e.addr(e.ctx())),
            ArgRef::Index(_) | ArgRef::Retval | ArgRef::Func => crate::bug!("{} offers no {which:?}", site.name),
        }
    }

    fn list(&self, pattern: &[String], env: &Env, each: &mut dyn FnMut(&str)) -> Result<(), Missing> {
        let (category, event) = match pattern {
            [] => ("*", "*"),
            [event] => ("*", event.as_str()),
            [category, event, ..] => (category.as_str(), event.as_str()),
        };
        // `tracepoint:sched` is a category, `tracepoint:*open*` an event of any category
        for (c, e) in env.sys.tracepoints()? {
            let whole_category = pattern.len() == 1 && matches(event, c);
            if (matches(category, c) && matches(event, e)) || whole_category {
                each(&format!("tracepoint:{c}:{e}"));
            }
        }
        Ok(())
    }
}

/// The raw argument that a field of the record copies: the one with the same name, if both are numbers of the same type or
/// both are pointers. (A field that is computed from an argument has a different type.)
fn raw_argument(raw: &[(String, Type)], f: &ContextField) -> Option<u32> {
    let at = raw.iter().position(|(name, _)| *name == f.field.name)?;
    let ty = &raw.get(at)?.1;
    let same = match (ty, &f.field.ty) {
        (Type::Int(a), Type::Int(b)) => a == b,
        (Type::Ptr(..), Type::Ptr(..)) => true,
        _ => false,
    };
    (same && f.field.bits.is_none() && f.location == FieldLocation::Record).then_some(at as u32)
}

fn load<'c>(e: &mut Builder<'_, 'c>, site: &ProbeSite, env: &Env, f: &ContextField) -> Operand<'c> {
    syscall::load_field(e, site, env, f).unwrap_or_else(|| load_field(e, f))
}

fn load_field<'c>(e: &mut Builder<'_, 'c>, f: &ContextField) -> Operand<'c> {
    let ty = f.field.ty.clone();
    let by_value = |e: &mut Builder<'_, 'c>, v| match ty.as_int() {
        Some(int) => Operand::reg(ty.clone(), e.fit(v, int)),
        None => Operand::at(ty.clone(), v, Space::Kernel),
    };
    match f.location {
        FieldLocation::RawArg(n) => {
            let v = e.once(&format!("arg{n}"), |e| e.load_ctx(n * 8, U64));
            by_value(e, v)
        }
        FieldLocation::Record => match ty.as_int() {
            Some(int) => Operand::reg(ty, e.load_ctx(f.field.offset, int)),
            // the record is like other kernel memory; only loads of whole words can use the context directly
            None => {
                let ctx = e.addr(e.ctx());
                let addr = e.add(ctx, e.int(f.field.offset.into()));
                Operand::at(ty, addr, Space::Kernel)
            }
        },
        FieldLocation::Argument(_) | FieldLocation::Object | FieldLocation::Unreadable(_) => {
            crate::bug!("a record's field is not at {:?}", f.location)
        }
        FieldLocation::DataLoc | FieldLocation::RelLoc => {
            let word = e.load_ctx(f.field.offset, Int { bytes: 4, signed: false });
            let from = e.and(word, e.int(0xffff));
            let ctx = e.addr(e.ctx());
            let mut addr = e.add(ctx, from);
            if f.location == FieldLocation::RelLoc {
                addr = e.add(addr, e.int(u64::from(f.field.offset) + 4));
            }
            if let Type::Str(cap) = ty {
                e.read_string(Space::Kernel, addr, cap)
            } else {
                Operand { ty, repr: Repr::At(addr, Space::Kernel) }
            }
        }
    }
}
