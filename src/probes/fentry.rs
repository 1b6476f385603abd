//! `fentry` and `fexit`: kernel functions with typed arguments, traced by a trampoline instead of a breakpoint.
//!
//! The context is an array of 64-bit words: the arguments, then (at the exit) the return value (kernel/bpf/btf.c,
//! `btf_ctx_access`; arch/x86/net/bpf_jit_comp.c, `__arch_prepare_bpf_trampoline`).

use std::borrow::Cow;
use std::rc::Rc;

use super::kernel::{self, Named};
use super::{ArgRef, Attach, Context, ContextFeatures, ContextField, Env, FieldLocation, Info, ProbeKind, ProbeSite, ProgramType, missing};
use crate::diag::Diagnostic;
use crate::emit::{Builder, Helper, IntValue, Operand};
use crate::syntax::ast::AttachPoint;
use crate::system::kernel::trampolines::{self, Refusal};
use crate::system::kernel_types::Prototype;
use crate::system::machine::programs::ProgramFunction;
use crate::system::{Feature, MatchingFunction, Missing, TargetInfo, matches};
use crate::types::{Field, Int, Space, Type};

/// A function's entry or its exit.
#[derive(Debug)]
pub struct Fentry {
    info: Info,
    exit: bool,
}

const FENTRY_NAMES: &[&str] = &["fentry", "f", "kfunc"];
const FEXIT_NAMES: &[&str] = &["fexit", "fr", "kretfunc"];
/// The names of the kinds to which [`unavailable`] applies.
pub(super) const NAMES: [&[&str]; 2] = [FENTRY_NAMES, FEXIT_NAMES];

/// Why these probes cannot be attached here.
pub(super) fn unavailable(sys: &dyn TargetInfo) -> Option<Missing> {
    (!sys.has(Feature::Trampoline)).then(|| Missing { what: NO_TRAMPOLINES.into(), help: None })
}

/// For messages about a kernel.
pub const NO_TRAMPOLINES: &str =
    "the kernel has no trampolines (CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS), or its policy forbids the programs that they call";

/// Entry.
pub static FENTRY: Fentry = Fentry {
    info: Info {
        names: FENTRY_NAMES,
        usage: "fentry[:MODULE]:FUNCTION, fentry:bpf[:ID]:FUNCTION",
        doc: "The entry of a kernel function that BTF describes. It costs less than `kprobe`. `args` has its arguments. After `bpf` and an optional program ID, FUNCTION is a function of a loaded BPF program, without arguments.",
        example: "fentry:vfs_read { @bytes[comm] = sum(args.count); }",
    },
    exit: false,
};

/// Exit.
pub static FEXIT: Fentry = Fentry {
    info: Info {
        names: FEXIT_NAMES,
        usage: "fexit[:MODULE]:FUNCTION, fexit:bpf[:ID]:FUNCTION",
        doc: "The exit of a kernel function that BTF describes. `retval` is its result, and `args` has its arguments.",
        example: "fexit:vfs_read /retval < 0/ { @errors[args.count] = count(); }",
    },
    exit: true,
};

const U64: Int = Int { bytes: 8, signed: false };
/// `MAX_BPF_FUNC_ARGS` of include/linux/bpf.h: a trampoline passes at most this many.
const MAX_ARGS: u32 = 12;

impl Fentry {
    fn site(&self, module: &str, function: &str, point: &AttachPoint) -> ProbeSite {
        ProbeSite {
            kind: super::row(self.name()),
            name: format!("{}:{module}:{function}", self.name()),
            attach: Attach::Trampoline { module: module.into(), program: None, function: function.into(), exit: self.exit },
            span: point.span,
        }
    }

    /// On the functions of BPF programs.
    fn on_programs(&self, id: &str, what: &str, point: &AttachPoint, env: &Env) -> Result<Vec<ProbeSite>, Diagnostic> {
        let found = running(id, what, env).map_err(|m| missing(point.span, m))?;
        if found.is_empty() && !what.contains('*') {
            let d = Diagnostic::error("unknown-function", point.span, format!("no loaded BPF program has a function `{what}`"));
            return Err(
                d.help(format!("`rbt -l '{}:{PROGRAMS}:*'` lists the functions that can be traced; their programs need BTF", self.name()))
            );
        }
        let site = |f: ProgramFunction| ProbeSite {
            kind: super::row(self.name()),
            name: format!("{}:{PROGRAMS}:{}:{}", self.name(), f.program, f.name),
            attach: Attach::Trampoline { module: PROGRAMS.into(), program: Some(f.program), function: f.name, exit: self.exit },
            span: point.span,
        };
        Ok(found.into_iter().map(site).collect())
    }

    /// Functions that can be traced, are described, and have a form that a trampoline supports: module and name,
    /// sorted.
    fn matching(&self, found: Vec<MatchingFunction>, env: &Env) -> Vec<(String, String)> {
        let taken = |f: &MatchingFunction| trampolines::refused(&f.name, self.exit).is_none();
        let mut found: Vec<(String, String)> = found.into_iter().filter(taken).map(|f| (f.module, f.name)).collect();
        // Looking up prototypes is slow, so long lists are first reduced in one pass.
        if found.len() > 64 {
            let mut described = std::collections::BTreeSet::new();
            env.sys.described_functions(&mut |name, home| {
                described.insert((home.to_owned(), name.to_owned()));
            });
            found.retain(|of| described.contains(of));
        }
        // If there are more than can be attached, they are only counted or listed.
        if found.len() as u64 <= env.settings.max_probes {
            found.retain(|(m, n)| env.sys.prototype(Some(m), n).is_some_and(|p| unsupported_reason(&p, env.sys).is_none()));
        }
        found
    }
}

/// A function of BPF programs in an attach point or a pattern: the program's ID and the function after the kind's name,
/// where `*` is any text.
fn bpf_program_function<'p>(parts: &[&'p str]) -> Option<(&'p str, &'p str)> {
    match parts {
        [PROGRAMS, what] => Some(("*", what)),
        [PROGRAMS, id, what] => Some((id, what)),
        _ => None,
    }
}

/// The word in place of a module's name.
const PROGRAMS: &str = "bpf";

/// The matching functions of the loaded BPF programs.
fn running(id: &str, what: &str, env: &Env) -> Result<Vec<ProgramFunction>, Missing> {
    let mut all = env.sys.running_programs()?;
    all.retain(|f| matches(id, &f.program.to_string()) && matches(what, &f.name));
    Ok(all)
}

/// Number of 64-bit words of the arguments.
pub(super) fn words(p: &Prototype) -> u32 {
    p.params.iter().map(|(_, ty)| ty.size().div_ceil(8).max(1)).sum()
}

/// Why a trampoline does not support a function of this form, if it does not: the cases that `btf_distill_func_proto`
/// of kernel/bpf/btf.c and `arch_prepare_bpf_trampoline` of arch/*/net/bpf_jit_comp.c reject.
pub(super) fn unsupported_reason(p: &Prototype, sys: &dyn TargetInfo) -> Option<Cow<'static, str>> {
    /// Maximum size of a struct that is passed in registers.
    const TWO_WORDS: u32 = 16;
    let shape = |ty: &Type| {
        if let Type::Struct(s) = ty {
            Some((s.union, s.size))
        } else if let Type::Record(r) = ty {
            Some((false, r.size))
        } else {
            None
        }
    };
    if shape(&p.returns).is_some() {
        return Some("it returns a struct or a union".into());
    }
    if p.params.last().is_some_and(|(_, ty)| *ty == Type::Void) {
        return Some("it is variadic".into());
    }
    for (union, size) in p.params.iter().filter_map(|(_, ty)| shape(ty)) {
        if union || size > TWO_WORDS {
            return Some("one of its arguments is a union or a large struct".into());
        }
        if !sys.has(Feature::StructArguments) {
            return Some("one of its arguments is a struct, which trampolines support since Linux 6.1".into());
        }
    }
    let arch = sys.arch();
    // older kernels pass only as many as registers hold
    let registers = arch.args.len() as u32;
    match words(p) {
        n if n > MAX_ARGS => Some("it has more arguments than a trampoline can pass".into()),
        n if n > registers && !sys.has(Feature::ManyArguments) => {
            let (_, since) = arch.stack_arguments;
            Some(format!("its arguments need more than {registers} registers, which trampolines support since Linux {since}").into())
        }
        _ => None,
    }
}

fn prototype(site: &ProbeSite, env: &Env) -> Option<Prototype> {
    let Attach::Trampoline { module, program: None, function, .. } = &site.attach else { return None };
    env.sys.prototype(Some(module), function)
}

impl ProbeKind for Fentry {
    fn info(&self) -> &Info {
        &self.info
    }

    fn is_listed(&self) -> bool {
        !self.exit
    }

    fn expand(&self, point: &AttachPoint, env: &Env) -> Result<Vec<ProbeSite>, Diagnostic> {
        let given: Vec<&str> = point.segments.iter().skip(1).map(|s| s.text.as_str()).collect();
        if let Some((id, what)) = bpf_program_function(&given) {
            return self.on_programs(id, what, point, env);
        }
        let (module, what) = kernel::parts(&self.info, point)?;
        if let Some(m) = env.sys.types_missing() {
            return Err(missing(point.span, m));
        }
        if what.contains('*') || module.is_some_and(|m| m.contains('*')) {
            let found = env.sys.matching_functions(what, module.unwrap_or("*")).map_err(|m| missing(point.span, m))?;
            let found = self.matching(found, env);
            return Ok(found.iter().map(|(m, n)| self.site(m, n, point)).collect());
        }
        let home = kernel::find(&self.info, Named { module, function: what, probed_otherwise: false }, point, env)?;
        if let Some(why) = [what, &home.function].into_iter().find_map(|name| trampolines::refused(name, self.exit)) {
            let message = format!("{} cannot attach to `{what}`: {}", self.name(), why.reason());
            let instead = match why {
                Refusal::Recursive | Refusal::Locked if self.exit => "kretprobe",
                Refusal::Recursive | Refusal::Locked => "kprobe",
                Refusal::NoReturn => FENTRY.name(),
            };
            return Err(Diagnostic::error("not-traceable", point.span, message).help(format!("use {instead}:{what}")));
        }
        // BTF may describe a function by either of its names
        let described = [what, &home.function].into_iter().find_map(|n| Some((n, env.sys.prototype(Some(&home.module), n)?)));
        let Some((function, prototype)) = described else {
            let d = Diagnostic::error("not-in-btf", point.span, format!("the kernel's types (BTF) do not describe `{what}`"));
            return Err(d.help(format!("use kprobe:{what}, and read its arguments as arg0, arg1, …")));
        };
        if let Some(why) = unsupported_reason(&prototype, env.sys) {
            let d = Diagnostic::error("not-traceable", point.span, format!("{} cannot attach to `{what}`: {why}", self.name()));
            return Err(d.help(format!("use k{}probe:{what}", if self.exit { "ret" } else { "" })));
        }
        let mut site = self.site(&home.module, function, point);
        site.name = format!("{}:{}:{what}", self.name(), home.module);
        Ok(vec![site])
    }

    fn offers(&self) -> ContextFeatures {
        let both = ContextFeatures::ARGS
            .union(ContextFeatures::FUNC)
            .union(ContextFeatures::STACK)
            .union(ContextFeatures::SIGNAL)
            .union(ContextFeatures::TRUSTED)
            .union(ContextFeatures::SOCKETS);
        both.union(if self.exit { ContextFeatures::RETVAL } else { ContextFeatures::NONE })
    }

    fn context(&self, site: &ProbeSite, env: &Env) -> Result<Context, Diagnostic> {
        let mut features = self.offers();
        if matches!(site.attach, Attach::Trampoline { program: Some(_), .. }) {
            features = features.difference(ContextFeatures::ARGS).difference(ContextFeatures::RETVAL);
        }
        let Some(prototype) = prototype(site, env) else {
            return Ok(Context { features, space: Some(Space::Kernel), ..Context::default() });
        };
        let mut pos = 0;
        let fields = prototype.params.into_iter().map(|(name, ty)| {
            let slot = pos;
            pos += ty.size().div_ceil(8).max(1);
            let field = Field { name, offset: slot * 8, bits: None, ty };
            Rc::new(ContextField { field, location: FieldLocation::RawArg(slot) })
        });
        let fields = fields.filter(|f| !f.field.name.is_empty()).collect();
        let retval = (self.exit && prototype.returns != Type::Void).then_some(prototype.returns);
        if self.exit && retval.is_none() {
            features = features.difference(ContextFeatures::RETVAL);
        }
        Ok(Context { features, fields, space: Some(Space::Kernel), retval, ..Context::default() })
    }

    fn declarations(&self, site: &ProbeSite, env: &Env) -> Result<Vec<String>, Diagnostic> {
        let Attach::Trampoline { module, program: None, function, .. } = &site.attach else { return Ok(Vec::new()) };
        let signature = env.sys.kernel_types().and_then(|types| types.signature(Some(module), function));
        let Some(signature) = signature else { return Ok(Vec::new()) };
        let returns = signature.returns.filter(|_| self.exit).map(|ty| (ty, "retval".to_owned()));
        Ok(signature.params.into_iter().chain(returns).map(|(ty, name)| format!("{ty} {name}")).collect())
    }

    fn program(&self, _site: &ProbeSite, _env: &Env) -> ProgramType {
        ProgramType::Tracing
    }

    fn load<'c>(&self, e: &mut Builder<'_, 'c>, site: &ProbeSite, env: &Env, which: &ArgRef, ty: &Type) -> Operand<'c> {
        match which {
            ArgRef::Named(f) => word(e, f.field.offset, &f.field.ty, env),
            ArgRef::All(fields) => super::load_all(e, fields, ty, |e, f| word(e, f.field.offset, &f.field.ty, env)),
            ArgRef::Retval => {
                let at = prototype(site, env).map_or(0, |p| words(&p) * 8);
                word(e, at, ty, env)
            }
            ArgRef::Func => Operand::reg(ty.clone(), e.once("func", |e| function(e, site, env))),
            ArgRef::Index(_) | ArgRef::Ctx => crate::bug!("{} offers no {which:?}", site.name),
        }
    }

    fn list(&self, pattern: &[String], env: &Env, each: &mut dyn FnMut(&str)) -> Result<(), Missing> {
        let given: Vec<&str> = pattern.iter().map(String::as_str).collect();
        if let Some((id, what)) = bpf_program_function(&given) {
            for f in running(id, what, env)? {
                each(&format!("{}:{PROGRAMS}:{}:{}", self.name(), f.program, f.name));
            }
            return Ok(());
        }
        if let Some(missing) = env.sys.types_missing() {
            return Err(missing);
        }
        let (module, what) = match pattern {
            [] => ("*", "*"),
            [what] => ("*", what.as_str()),
            [module, what, ..] => (module.as_str(), what.as_str()),
        };
        for (m, n) in self.matching(env.sys.matching_functions(what, module)?, env) {
            each(&format!("{}:{m}:{n}", self.name()));
        }
        Ok(())
    }
}

/// The function's address.
pub(super) fn function<'c>(e: &mut Builder<'_, 'c>, site: &ProbeSite, env: &Env) -> IntValue<'c> {
    // the helper was added with cookies, in Linux 5.15
    if env.sys.has(Feature::PerfCookie) {
        let ctx = e.ctx();
        return e.call(Helper::GetFuncIp, &[ctx.into()]);
    }
    // without cookies, sites do not share a program
    let (Attach::Trampoline { function, .. } | Attach::Kprobe { function, .. }) = &site.attach else {
        crate::bug!("{} takes a function of the kernel", site.name)
    };
    e.int(env.sys.kernel_symbol(function).unwrap_or(0))
}

/// A word of the context as a value of this type; a struct by value is read from its location.
pub(super) fn word<'c>(e: &mut Builder<'_, 'c>, offset: u32, ty: &Type, env: &Env) -> Operand<'c> {
    let from_memory = |e: &mut Builder<'_, 'c>| {
        let ctx = e.addr(e.ctx());
        e.add(ctx, e.int(offset.into()))
    };
    match ty.as_int() {
        // the verifier rejects reads of it
        Some(int) if matches!(ty, Type::Ptr(to, _) if to.as_int().is_some()) && !env.sys.has(Feature::NumberPointers) => {
            let at = from_memory(e);
            Operand::reg(ty.clone(), e.read_int(Space::Kernel, at, int))
        }
        Some(int) => {
            let v = number(e, offset);
            // the verifier knows a pointer as such, and rejects arithmetic on it
            let v = if matches!(ty, Type::Ptr(..)) && !e.scope.keeps_pointer_types { e.forget_pointer_type(v) } else { v };
            Operand::reg(ty.clone(), e.fit(v, int))
        }
        None => Operand::at(ty.clone(), from_memory(e), Space::Kernel),
    }
}

/// A word of the context.
pub(super) fn number<'c>(e: &mut Builder<'_, 'c>, offset: u32) -> IntValue<'c> {
    e.once(&format!("word{offset}"), |e| e.load_ctx(offset, U64))
}
