//! Code shared by probes on kernel functions: their syntax, and errors for functions that cannot be traced.

use super::{Env, Info, missing};
use crate::diag::{Diagnostic, nearest};
use crate::syntax::ast::AttachPoint;
use crate::system::FunctionLocation;
use crate::system::kernel::functions::KERNEL;
use crate::system::machine::arch::ALL;

/// A function in an attach point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<'a> {
    pub module: Option<&'a str>,
    pub function: &'a str,
    /// The kind can probe functions that are not in the kernel's list, at the user's risk.
    pub probed_otherwise: bool,
}

/// The parts `[MODULE:]FUNCTION` after the kind.
pub(super) fn parts<'p>(kind: &Info, point: &'p AttachPoint) -> Result<(Option<&'p str>, &'p str), Diagnostic> {
    let given: Vec<&str> = point.segments.iter().skip(1).map(|s| s.text.as_str()).collect();
    let found = match given.as_slice() {
        [what] => (None, *what),
        [module, what] => (Some(*module), *what),
        _ => {
            let message = format!("{} takes a function, and optionally its module before it", kind.name());
            return Err(Diagnostic::error("bad-probe", point.span, message).help(format!("write {}", kind.usage)));
        }
    };
    if found.1.is_empty() || found.0 == Some("") {
        return Err(Diagnostic::error("bad-probe", point.span, "a name is empty").help(format!("write {}", kind.usage)));
    }
    Ok(found)
}

/// Looks up a function.
///
/// Errors: an unknown module; an unknown function, with suggestions; a function that cannot be traced.
pub(super) fn find(kind: &Info, named: Named, point: &AttachPoint, env: &Env) -> Result<FunctionLocation, Diagnostic> {
    let Named { module, function, .. } = named;
    if let Some(module) = module.filter(|m| !env.sys.has_module(m)) {
        let d = Diagnostic::error("unknown-module", point.span, format!("the kernel has no module `{module}`"));
        return Err(d.help("`lsmod` lists the loaded modules; `vmlinux` is the kernel itself"));
    }
    let homes = env.sys.function_homes(function).map_err(|m| missing(point.span, m))?;
    let is_in = |m: &str| homes.iter().find(|h| h.module == m);
    // a function of the kernel itself takes precedence over a module's of the same name
    let home = match module {
        Some(module) => is_in(module),
        None => is_in(KERNEL).or(homes.first()),
    };
    match home {
        Some(home) => Ok(home.clone()),
        None => untraceable(kind, named, &homes, point, env),
    }
}

/// The reason why a name cannot be traced.
fn untraceable(
    kind: &Info,
    named: Named,
    homes: &[FunctionLocation],
    point: &AttachPoint,
    env: &Env,
) -> Result<FunctionLocation, Diagnostic> {
    let Named { module, function, probed_otherwise } = named;
    let name = kind.name();
    if let (Some(module), [home, ..]) = (module, homes) {
        let d = Diagnostic::error("unknown-function", point.span, format!("the module `{module}` has no function `{function}`"));
        let home = &home.module;
        return Err(d.help(format!("it is in `{home}`: `{name}:{home}:{function}`")));
    }
    let symbols = env.sys.text_symbols(function);
    if symbols.is_exact {
        if probed_otherwise && env.settings.allow_unsafe {
            return Ok(FunctionLocation { module: module.unwrap_or(KERNEL).into(), function: function.into() });
        }
        let d = Diagnostic::error("not-traceable", point.span, format!("the kernel does not allow tracing `{function}`"));
        return Err(d.help(match probed_otherwise {
            true => "the function exists, but it is not in the kernel's list of traceable functions; --unsafe tries to attach anyway",
            false => "the function exists, but it is not in the kernel's list of traceable functions",
        }));
    }
    let listed = env.sys.for_messages().functions().ok();
    if let Some(part) = symbols.parts.first() {
        let message = format!("the compiler inlined `{function}` or split it into parts");
        let d = Diagnostic::error("inlined", point.span, message);
        let traceable = symbols.parts.iter().find(|p| listed.is_some_and(|l| l.named(p).next().is_some()));
        return Err(match traceable {
            Some(part) => d.help(format!("you can trace the remaining part: `{name}:\"{part}\"`")),
            None => d.help(format!("the remaining parts, such as `{part}`, cannot be traced; trace the functions that call it")),
        });
    }
    if env.sys.prototype(module, function).is_some() {
        let message = format!("`{function}` is inlined everywhere: it has types but no code of its own");
        return Err(Diagnostic::error("inlined", point.span, message).help("trace the functions that call it"));
    }
    let d = Diagnostic::error("unknown-function", point.span, format!("the kernel has no function `{function}`"));
    let arch = env.sys.arch();
    let call = arch.foreign_syscall(function);
    if let Some(own) = call.and_then(|call| arch.own_syscall_function(call)) {
        return Err(d.help(format!("on {} it is `{own}`", arch.name)));
    }
    if let Some(call) = call.filter(|call| ALL.iter().any(|other| other.has_syscall(call))) {
        return Err(d.help(format!("{} has no system call `{call}`", arch.name)));
    }
    let own = call.map(|call| format!("{}{call}", arch.syscall_function));
    let function = own.as_deref().unwrap_or(function);
    let near = listed.and_then(|l| nearest(function, l.all().map(|f| f.name).filter(|f| may_be_similar(function, f))).map(str::to_owned));
    Err(match near {
        Some(near) => d.help(format!("did you mean `{near}`?")),
        None => d.help(format!("`rbt -l '{name}:*'` lists what is available; a function that is inlined everywhere does not appear")),
    })
}

/// Could a few edits turn one into the other? Cheap, and never wrong if it returns false: letters that only one has are
/// edits, too.
fn may_be_similar(a: &str, b: &str) -> bool {
    let mut counts = [0i16; 32];
    let slot = |byte: u8| usize::from(byte & 31);
    a.bytes().for_each(|c| counts[slot(c)] += 1);
    b.bytes().for_each(|c| counts[slot(c)] -= 1);
    let over: i16 = counts.iter().filter(|n| **n > 0).sum();
    let under: i16 = counts.iter().filter(|n| **n < 0).sum();
    usize::from(over.max(-under).unsigned_abs()) <= (a.len() / 3).max(1)
}
