//! `lsm`: the hooks of security modules, observed only.
//!
//! The kernel calls a function `bpf_lsm_HOOK` for each hook (include/linux/lsm_hook_defs.h), and a program of type
//! `BPF_PROG_TYPE_LSM` is attached to it by a trampoline: the arguments are as in `fentry`. The program returns 0, which
//! leaves the decision to the other modules.

use super::fentry::word;
use super::{ArgRef, Attach, Context, ContextFeatures, ContextField, Env, FieldLocation, Info, ProbeKind, ProbeSite, ProgramType, missing};
use crate::diag::{Diagnostic, nearest};
use crate::emit::{Builder, Operand};
use crate::syntax::ast::AttachPoint;
use crate::system::kernel::functions::KERNEL;
use crate::system::{Missing, matches};
use crate::types::{Field, Space, Type};
use std::rc::Rc;

/// The kind.
#[derive(Debug)]
pub struct Lsm;

static INFO: Info = Info {
    names: &["lsm"],
    usage: "lsm:HOOK",
    doc: "A hook of the kernel's security modules, such as `file_open`. `args` has its arguments. The program only observes: it cannot deny anything. The kernel needs BPF among its security modules (CONFIG_BPF_LSM, and `bpf` in /sys/kernel/security/lsm).",
    example: "lsm:file_open { @[comm] = count(); }",
};

/// The prefix of the kernel's functions for hooks.
fn prefix() -> &'static str {
    ProgramType::Lsm.row().target_prefix.unwrap_or_default()
}

/// The kernel's function for a hook.
fn function(hook: &str) -> String {
    format!("{}{hook}", prefix())
}

/// The kernel's hooks, sorted.
fn hooks(env: &Env) -> Vec<String> {
    let mut all = Vec::new();
    env.sys.described_functions(&mut |name, home| {
        if let (Some(hook), KERNEL) = (name.strip_prefix(prefix()), home) {
            all.push(hook.to_owned());
        }
    });
    all.sort_unstable();
    all.dedup();
    all
}

impl ProbeKind for Lsm {
    fn info(&self) -> &Info {
        &INFO
    }

    fn is_listed(&self) -> bool {
        false
    }

    fn expand(&self, point: &AttachPoint, env: &Env) -> Result<Vec<ProbeSite>, Diagnostic> {
        let [hook] = super::parts(&INFO, point)?;
        if let Some(m) = env.sys.types_missing() {
            return Err(missing(point.span, m));
        }
        let site = |hook: &str| ProbeSite {
            kind: super::row(self.name()),
            name: format!("{}:{hook}", self.name()),
            attach: Attach::Trampoline { module: KERNEL.into(), program: None, function: function(hook), exit: false },
            span: point.span,
        };
        if !hook.contains('*') && env.sys.prototype(Some(KERNEL), &function(&hook)).is_some() {
            return Ok(vec![site(&hook)]);
        }
        let all = hooks(env);
        if all.is_empty() {
            let d = Diagnostic::error("no-lsm", point.span, "the kernel has no BPF among its security modules");
            return Err(d.help(
                "use a kernel with CONFIG_BPF_LSM (Linux 5.7 or newer), or `fentry:security_…`, which traces the callers of the hooks",
            ));
        }
        if hook.contains('*') {
            return Ok(all.iter().filter(|known| matches(&hook, known)).map(|known| site(known)).collect());
        }
        let d = Diagnostic::error("unknown-hook", point.span, format!("the kernel has no hook `{hook}`"));
        Err(match nearest(&hook, all.iter().map(String::as_str)) {
            Some(near) => d.help(format!("did you mean `lsm:{near}`?")),
            None => d.help("`rbt -l 'lsm:*'` lists them"),
        })
    }

    fn offers(&self) -> ContextFeatures {
        ContextFeatures::ARGS.union(ContextFeatures::STACK).union(ContextFeatures::TRUSTED).union(ContextFeatures::SOCKETS)
    }

    fn context(&self, site: &ProbeSite, env: &Env) -> Result<Context, Diagnostic> {
        let prototype = site.attach.kernel_function().and_then(|(module, function)| env.sys.prototype(Some(module), function));
        let params = prototype.map(|p| p.params).unwrap_or_default();
        let fields = params.into_iter().enumerate().filter(|(_, (name, _))| !name.is_empty()).map(|(i, (name, ty))| {
            let field = Field { name, offset: i as u32 * 8, bits: None, ty };
            Rc::new(ContextField { field, location: FieldLocation::RawArg(i as u32) })
        });
        Ok(Context { features: self.offers(), fields: fields.collect(), space: Some(Space::Kernel), ..Context::default() })
    }

    fn declarations(&self, site: &ProbeSite, env: &Env) -> Result<Vec<String>, Diagnostic> {
        let Some((module, function)) = site.attach.kernel_function() else { return Ok(Vec::new()) };
        let signature = env.sys.kernel_types().and_then(|types| types.signature(Some(module), function));
        Ok(signature.into_iter().flat_map(|s| s.params).map(|(ty, name)| format!("{ty} {name}")).collect())
    }

    fn program(&self, _site: &ProbeSite, _env: &Env) -> ProgramType {
        ProgramType::Lsm
    }

    fn load<'c>(&self, e: &mut Builder<'_, 'c>, site: &ProbeSite, env: &Env, which: &ArgRef, ty: &Type) -> Operand<'c> {
        match which {
            ArgRef::Named(f) => word(e, f.field.offset, &f.field.ty, env),
            ArgRef::All(fields) => super::load_all(e, fields, ty, |e, f| word(e, f.field.offset, &f.field.ty, env)),
            ArgRef::Retval | ArgRef::Func | ArgRef::Index(_) | ArgRef::Ctx => crate::bug!("{} offers no {which:?}", site.name),
        }
    }

    fn list(&self, pattern: &[String], env: &Env, each: &mut dyn FnMut(&str)) -> Result<(), Missing> {
        let wanted = pattern.first().map_or("*", String::as_str);
        if let Some(missing) = env.sys.types_missing() {
            return Err(missing);
        }
        hooks(env).iter().filter(|hook| matches(wanted, hook)).for_each(|hook| each(&format!("{}:{hook}", self.name())));
        Ok(())
    }
}
