//! `kprobe` and `kretprobe`: kernel functions.
//!
//! Registers, their places in the context and the calling convention come from the machine's row of `system/machine/arch`. Names and types of arguments come from BTF if it describes the function.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::fentry;
use super::kernel::{self, Named};
use super::search::{Place, Search};
use super::{
    ArgRef, Attach, BodyNeeds, Context, ContextFeatures, ContextField, Env, FieldLocation, Info, Lowering, ProbeKind, ProbeSite,
    ProgramType, missing,
};
use crate::diag::{Diagnostic, remedy};
use crate::emit::{Builder, Operand};
use crate::settings::Mechanism;
use crate::syntax::ast::AttachPoint;
use crate::system::kernel::functions::KERNEL;
use crate::system::kernel::trampolines::{self, Refusal};
use crate::system::machine::arch::Arch;
use crate::system::{Feature, MatchingFunction, Missing, NoLocation, TargetInfo};
use crate::types::{Field, Int, Space, Type};

/// A function's entry or an instruction within it, or its return.
#[derive(Debug)]
pub struct Kprobe {
    info: Info,
    ret: bool,
}

const KPROBE_NAMES: &[&str] = &["kprobe", "k"];
const KRETPROBE_NAMES: &[&str] = &["kretprobe", "kr"];
/// The names of the kinds to which [`unavailable`] applies.
pub(super) const NAMES: [&[&str]; 2] = [KPROBE_NAMES, KRETPROBE_NAMES];

/// Why kprobes are unavailable here.
pub(super) fn unavailable(sys: &dyn TargetInfo) -> Option<Missing> {
    (!sys.has(Feature::Kprobe)).then(|| Missing { what: NO_KPROBES.into(), help: remedy("no-kprobes").map(str::to_owned) })
}

/// Entry.
pub static KPROBE: Kprobe = Kprobe {
    info: Info {
        names: KPROBE_NAMES,
        usage: "kprobe[:MODULE]:FUNCTION[+OFFSET] or kprobe:ADDRESS",
        doc: "The entry of a kernel function, or an instruction within it. `args` has its arguments if BTF describes the function. An address needs --unsafe.",
        example: "kprobe:vfs_read { @bytes[comm] = sum(args.count); }",
    },
    ret: false,
};

/// Return.
pub static KRETPROBE: Kprobe = Kprobe {
    info: Info {
        names: KRETPROBE_NAMES,
        usage: "kretprobe[:MODULE]:FUNCTION",
        doc: "The return of a kernel function. `retval` is its result.",
        example: "kretprobe:vfs_read /(int64)retval < 0/ { @errors[comm] = count(); }",
    },
    ret: true,
};

/// For messages about a kernel.
pub const NO_KPROBES: &str = "this kernel has no kprobes (it was built without CONFIG_KPROBE_EVENTS)";

const U64: Int = Int { bytes: 8, signed: false };

impl Kprobe {
    fn place(&self, name: &str, attach: Attach) -> Place {
        Place { name: format!("{}:{name}", self.info.name()), attach }
    }

    /// Would a probe on this function stop the machine?
    fn refuses(&self, function: &str) -> bool {
        self.ret && trampolines::runs_in_kretprobes(function)
    }

    fn by_address(&self, what: &str, address: u64, point: &AttachPoint, env: &Env) -> Result<Place, Diagnostic> {
        if !env.settings.allow_unsafe {
            let d = Diagnostic::error("unsafe", point.span, format!("`{what}` is an address, which may be within an instruction"));
            return Err(d.help("name the function and an offset, or allow it with --unsafe"));
        }
        let attach = Attach::Kprobe { module: None, function: String::new(), offset: address, ret: self.ret, wildcard: false };
        Ok(self.place(&address.to_string(), attach))
    }

    /// Every matching function, once for each name; with a module in the pattern, for each module.
    fn by_pattern(&self, module: Option<&str>, what: &str, point: &AttachPoint, env: &Env) -> Result<Vec<Place>, Diagnostic> {
        let found = env.sys.matching_functions(what, module.unwrap_or("*")).map_err(|m| missing(point.span, m))?;
        let mut found: Vec<_> = found.into_iter().filter(|f| !f.no_kprobe && !self.refuses(&f.name)).collect();
        if module.is_none() {
            found.dedup_by(|a, b| a.name == b.name);
        }
        let place = |f: MatchingFunction| {
            let name = if module.is_some() { format!("{}:{}", f.module, f.name) } else { f.name.clone() };
            let home = (f.module != KERNEL).then_some(f.module);
            let attach = Attach::Kprobe { module: home, function: f.name, offset: 0, ret: self.ret, wildcard: true };
            self.place(&name, attach)
        };
        Ok(found.into_iter().map(place).collect())
    }

    /// The offset after a function's name.
    fn offset<'s>(&self, what: &'s str, point: &AttachPoint) -> Result<(&'s str, u64), Diagnostic> {
        let Some((name, by)) = what.split_once('+') else { return Ok((what, 0)) };
        let Some(by) = super::whole_number(by) else {
            return Err(
                Diagnostic::error("bad-probe", point.span, format!("`{by}` is not an offset")).help(format!("write {}", self.info.usage))
            );
        };
        if self.ret {
            return Err(Diagnostic::error("bad-probe", point.span, "a return probe has no offset").help("remove the offset, or use kprobe"));
        }
        Ok((name, by))
    }
}

/// The target of a site: the module, the function's name, and the offset from its start, or the address if there is no name.
fn target(site: &ProbeSite) -> (Option<&str>, &str, u64) {
    if let Attach::Trampoline { module, function, .. } = &site.attach {
        return (Some(module), function, 0);
    }
    let Attach::Kprobe { module, function, offset, .. } = &site.attach else { crate::bug!("{} takes a function", site.name) };
    (module.as_deref(), function, *offset)
}

impl Search for Kprobe {
    fn names(&self) -> &'static [&'static str] {
        self.info.names
    }

    fn find(&self, point: &AttachPoint, env: &Env) -> Result<Vec<Place>, Diagnostic> {
        let (module, what) = kernel::parts(&self.info, point)?;
        if what.contains('*') || module.is_some_and(|m| m.contains('*')) {
            if what.contains('+') {
                return Err(Diagnostic::error("bad-probe", point.span, "an offset needs one function, not a pattern"));
            }
            return self.by_pattern(module, what, point, env);
        }
        if let (None, Some(address)) = (module, super::whole_number(what)) {
            return Ok(vec![self.by_address(what, address, point, env)?]);
        }
        let (function, offset) = self.offset(what, point)?;
        let home = kernel::find(&self.info, Named { module, function, probed_otherwise: true }, point, env)?;
        if self.refuses(&home.function) {
            let message =
                format!("{} cannot attach to `{what}`: every kretprobe calls it, so one on it would recurse endlessly", self.info.name());
            return Err(Diagnostic::error("not-traceable", point.span, message).help(format!("use kprobe:{what}")));
        }
        if offset != 0 && !env.settings.allow_unsafe {
            let placed = env.sys.kernel_place(&home.module, &home.function, offset).map_err(|m| missing(point.span, m))?;
            super::well_placed(placed, function, offset, point.span)?;
        }
        let name = if module.is_some() { format!("{}:{what}", module.unwrap_or("")) } else { what.to_owned() };
        let module = (home.module != KERNEL).then_some(home.module);
        let attach = Attach::Kprobe { module, function: home.function, offset, ret: self.ret, wildcard: false };
        Ok(vec![self.place(&name, attach)])
    }
}

impl ProbeKind for Kprobe {
    fn info(&self) -> &Info {
        &self.info
    }

    fn is_listed(&self) -> bool {
        !self.ret
    }

    fn expand(&self, point: &AttachPoint, env: &Env) -> Result<Vec<ProbeSite>, Diagnostic> {
        Ok(ProbeSite::at(super::row(self.name()), self.find(point, env)?, point.span))
    }

    fn offers(&self) -> ContextFeatures {
        let both = ContextFeatures::REGS
            .union(ContextFeatures::FUNC)
            .union(ContextFeatures::CTX)
            .union(ContextFeatures::STACK)
            .union(ContextFeatures::SIGNAL);
        both.union(if self.ret {
            ContextFeatures::RETVAL
        } else {
            ContextFeatures::ARGN.union(ContextFeatures::ARGS).union(ContextFeatures::OVERRIDE)
        })
    }

    fn context(&self, site: &ProbeSite, env: &Env) -> Result<Context, Diagnostic> {
        let (module, function, place) = target(site);
        let mut features = self.offers();
        // after the first instruction, registers no longer hold the arguments
        if place != 0 {
            features = features.difference(ContextFeatures::ARGS).difference(ContextFeatures::OVERRIDE);
        }
        let mut fields = Vec::new();
        if features.contains(ContextFeatures::ARGS)
            && let Some(prototype) = env.sys.prototype(module.or(Some(KERNEL)), function)
        {
            fields = arguments(prototype.params, env.sys.arch().args.len() as u32);
        }
        let args = if self.ret { 0 } else { env.sys.arch().args.len() as u32 };
        Ok(Context { features, fields, args, space: Some(Space::Kernel), ..Context::default() })
    }

    fn retval(&self, site: &ProbeSite, env: &Env) -> Result<Option<Int>, NoLocation> {
        let (module, function, _) = target(site);
        match env.sys.prototype(module.or(Some(KERNEL)), function).map(|prototype| prototype.returns) {
            Some(Type::Void) => Err(NoLocation::Void),
            // Scripts cast an int's register to a signed type, which bpftrace leaves as it is.
            known => Ok(known.and_then(|ty| ty.as_int()).filter(|int| int.bytes < 4)),
        }
    }

    fn declarations(&self, site: &ProbeSite, env: &Env) -> Result<Vec<String>, Diagnostic> {
        let (module, function, _) = target(site);
        let signature = env.sys.kernel_types().and_then(|types| types.signature(module.or(Some(KERNEL)), function));
        let Some(signature) = signature else { return Ok(Vec::new()) };
        if self.ret {
            return Ok(vec![signature.returns.map_or_else(|| "void".to_owned(), |ty| format!("{ty} retval"))]);
        }
        Ok(signature.params.into_iter().enumerate().map(|(n, (ty, _))| format!("{ty} arg{n}")).collect())
    }

    fn lower(&self, sites: &[ProbeSite], needs: &BodyNeeds, env: &Env) -> Lowering {
        // those of a wildcard share one link anyway
        if sites.iter().any(|s| !matches!(s.attach, Attach::Kprobe { offset: 0, wildcard: false, .. })) {
            return Lowering::literal("");
        }
        let [site] = sites else { return by_one_link(sites, needs, env) };
        let (module, function, _) = target(site);
        let module = module.unwrap_or(KERNEL);
        if env.settings.refuses(Mechanism::Fentry) {
            return Lowering::literal("a trampoline cannot be used, or is turned off");
        }
        // the kernel is asked only where it matters, because the answer takes it milliseconds
        if !env.sys.arch().always_has_trampolines && !env.sys.has(Feature::Trampoline) {
            return Lowering::literal("the kernel has no trampolines");
        }
        if env.sys.has(Feature::PreemptedPrograms) {
            return Lowering::literal("the kernel may preempt a program, and a trampoline then skips other runs");
        }
        if [ContextFeatures::REGS, ContextFeatures::OVERRIDE].iter().any(|c| needs.features.contains(*c))
            || needs.args.iter().any(|a| matches!(a, ArgRef::Ctx))
        {
            return Lowering::literal("it needs more than a trampoline provides");
        }
        // with a trampoline, the stack begins in the function that returns
        if self.ret && needs.features.contains(ContextFeatures::STACK) {
            return Lowering::literal("it records a stack");
        }
        match trampolines::refused(function, self.ret) {
            Some(Refusal::Recursive) => return Lowering::literal("every trampoline runs the function itself"),
            Some(Refusal::NoReturn) => return Lowering::literal("the function does not return"),
            Some(Refusal::Locked) => return Lowering::literal("a map may hold a lock there"),
            None => {}
        }
        let Some(prototype) = env.sys.prototype(Some(module), function) else {
            return Lowering::literal("the kernel's types do not describe the function");
        };
        // the trampoline has the same values as the registers only if each argument is in one register
        let plain = fentry::words(&prototype) <= env.sys.arch().args.len() as u32 && prototype.params.iter().all(|(_, ty)| ty.is_scalar());
        let available = |a: &ArgRef| match a {
            ArgRef::Index(n) => (*n as usize) < prototype.params.len(),
            ArgRef::Retval => prototype.returns.is_scalar(),
            ArgRef::Func | ArgRef::Named(_) | ArgRef::All(_) | ArgRef::Ctx => true,
        };
        if !plain || !needs.args.iter().all(available) {
            return Lowering::literal("it needs more than a trampoline provides");
        }
        let attach = Attach::Trampoline { module: module.into(), program: None, function: function.into(), exit: self.ret };
        Lowering { lowered: Some(Mechanism::Fentry), attaches: vec![attach], why: "the kernel's types describe the function".into() }
    }

    fn program(&self, site: &ProbeSite, env: &Env) -> ProgramType {
        if matches!(site.attach, Attach::Trampoline { .. }) {
            return ProgramType::Tracing;
        }
        let wildcard = matches!(site.attach, Attach::Kprobe { wildcard: true, .. });
        if wildcard && !env.settings.refuses(Mechanism::KprobeMulti) && env.sys.has(Feature::KprobeMulti) {
            ProgramType::KprobeMulti
        } else {
            ProgramType::Kprobe
        }
    }

    fn load<'c>(&self, e: &mut Builder<'_, 'c>, site: &ProbeSite, env: &Env, which: &ArgRef, ty: &Type) -> Operand<'c> {
        let by_trampoline = matches!(site.attach, Attach::Trampoline { .. });
        match which {
            ArgRef::Index(n) => Operand::reg(ty.clone(), argument(e, *n, by_trampoline, env.sys.arch())),
            ArgRef::Named(f) => field(e, f, by_trampoline, env.sys.arch()),
            ArgRef::All(fields) => super::load_all(e, fields, ty, |e, f| field(e, f, by_trampoline, env.sys.arch())),
            ArgRef::Retval if by_trampoline => {
                let (module, function, _) = target(site);
                let after = env.sys.prototype(module, function).map_or(0, |p| fentry::words(&p));
                let register = argument(e, after, true, env.sys.arch());
                Operand::reg(ty.clone(), ty.as_int().map_or(register, |int| e.fit(register, int)))
            }
            ArgRef::Retval => Operand::reg(ty.clone(), super::result(e, env, ty)),
            ArgRef::Ctx => Operand::reg(ty.clone(), e.addr(e.ctx())),
            ArgRef::Func => {
                let (_, name, place) = target(site);
                let by_helper = by_trampoline || self.ret || place == 0 && env.sys.has(Feature::PerfCookie);
                let v = e.once("func", |e| {
                    if by_helper {
                        return fentry::function(e, site, env);
                    }
                    // the address may be after the breakpoint
                    let back = u64::from(env.sys.arch().trap) + if name.is_empty() { 0 } else { place };
                    let ip = e.load_ctx(env.sys.arch().ip, U64);
                    e.sub(ip, e.int(back))
                });
                Operand::reg(ty.clone(), v)
            }
        }
    }

    fn unavailable(&self, env: &Env) -> Option<Missing> {
        unavailable(env.sys)
    }

    fn list(&self, pattern: &[String], env: &Env, each: &mut dyn FnMut(&str)) -> Result<(), Missing> {
        let kind = self.name();
        let (module, what) = match pattern {
            [] => (None, "*"),
            [what] => (None, what.as_str()),
            [module, what, ..] => (Some(module.as_str()), what.as_str()),
        };
        if module.is_none() && !what.contains('*') {
            // for a single name, the types or the index suffice
            if !self.refuses(what) && !env.sys.function_homes(what)?.is_empty() {
                each(&format!("{kind}:{what}"));
            }
            return Ok(());
        }
        let mut line = String::new();
        let mut before = "";
        for f in env.sys.functions()?.matching(what, module.unwrap_or("*")).filter(|f| !f.no_kprobe && !self.refuses(f.name)) {
            if module.is_none() && f.name == before {
                continue;
            }
            before = f.name;
            line.clear();
            let parts = [kind, ":", module.map_or("", |_| f.module), if module.is_some() { ":" } else { "" }, f.name];
            parts.iter().for_each(|p| line.push_str(p));
            each(&line);
        }
        Ok(())
    }
}

/// One link for several functions that are named individually.
fn by_one_link(sites: &[ProbeSite], needs: &BodyNeeds, env: &Env) -> Lowering {
    if env.settings.refuses(Mechanism::KprobeMulti) || !env.sys.has(Feature::KprobeMulti) {
        return Lowering::literal("one program for several functions");
    }
    // that link does not provide all registers, and does not accept addresses
    let needs_kprobe = [ContextFeatures::REGS, ContextFeatures::OVERRIDE].iter().any(|c| needs.features.contains(*c))
        || needs.args.iter().any(|a| matches!(a, ArgRef::Ctx));
    if needs_kprobe || sites.iter().any(|s| target(s).1.is_empty()) {
        return Lowering::literal("it needs more than a link provides");
    }
    let by_wildcard = |site: &ProbeSite| {
        let mut attach = site.attach.clone();
        if let Attach::Kprobe { wildcard, .. } = &mut attach {
            *wildcard = true;
        }
        attach
    };
    Lowering {
        lowered: Some(Mechanism::KprobeMulti),
        attaches: sites.iter().map(by_wildcard).collect(),
        why: "one link for several functions".into(),
    }
}

/// The locations of a function's arguments by the calling convention: numbers and pointers are in registers in order,
/// then on the stack. Structs by value are omitted, but counted.
fn arguments(params: Vec<(String, Type)>, registers: u32) -> Vec<Rc<ContextField>> {
    let (mut fields, mut in_regs, mut on_stack) = (Vec::new(), 0u32, 0u32);
    let mut names = BTreeSet::new();
    for (name, ty) in params {
        let words = ty.size().div_ceil(8).max(1);
        // either completely in registers or not at all
        let slot = if words <= 2 && in_regs + words <= registers {
            in_regs += words;
            in_regs - words
        } else {
            on_stack += words;
            registers + on_stack - words
        };
        if ty.is_scalar() && !name.is_empty() && names.insert(name.clone()) {
            let field = Field { name, offset: slot * 8, bits: None, ty };
            fields.push(Rc::new(ContextField { field, location: FieldLocation::RawArg(slot) }));
        }
    }
    fields
}

/// The n-th word of the arguments.
fn argument<'c>(e: &mut Builder<'_, 'c>, n: u32, by_trampoline: bool, arch: &Arch) -> crate::emit::IntValue<'c> {
    if by_trampoline {
        // the verifier may know it as a pointer, on which it rejects arithmetic
        return e.once(&format!("arg{n}"), |e| {
            let word = fentry::number(e, 8 * n);
            e.forget_pointer_type(word)
        });
    }
    e.once(&format!("arg{n}"), |e| match arch.args.get(n as usize) {
        Some(offset) => e.load_ctx(*offset, U64),
        None => {
            let sp = e.load_ctx(arch.sp, U64);
            let addr = e.add(sp, e.int(8 * (u64::from(n) - arch.args.len() as u64) + u64::from(arch.stack_args)));
            e.read_int(Space::Kernel, addr, U64)
        }
    })
}

fn field<'c>(e: &mut Builder<'_, 'c>, f: &ContextField, by_trampoline: bool, arch: &Arch) -> Operand<'c> {
    let v = argument(e, f.field.offset / 8, by_trampoline, arch);
    match f.field.ty.as_int() {
        Some(int) => Operand::reg(f.field.ty.clone(), e.fit(v, int)),
        None => Operand::at(f.field.ty.clone(), v, Space::Kernel),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_follow_the_calling_convention() {
        let pair = Type::Array(Box::new(Type::U64), 2);
        let big = Type::Array(Box::new(Type::U64), 3);
        let n = |name: &str| (name.to_owned(), Type::int(4));
        let params =
            vec![n("a"), ("pair".into(), pair.clone()), ("big".into(), big), n("b"), n("c"), ("late".into(), pair), n("d"), n("e")];
        let slots: Vec<_> = arguments(params, 6).iter().map(|f| (f.field.name.clone(), f.field.offset / 8)).collect();
        let expected = [("a", 0), ("b", 3), ("c", 4), ("d", 5), ("e", 11)];
        assert_eq!(slots, expected.map(|(n, s)| (n.to_owned(), s)));
    }
}
