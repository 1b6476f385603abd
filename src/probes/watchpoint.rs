//! `watchpoint`: reads, writes or execution of memory, detected by the CPU's breakpoints.
//!
//! Source: perf_event_open(2), `PERF_TYPE_BREAKPOINT`; capabilities of each architecture: arch/*/kernel/hw_breakpoint.c.

use super::{ArgRef, Attach, Context, ContextFeatures, Env, Info, ProbeKind, ProbeSite, ProgramType, missing};
use crate::diag::Diagnostic;
use crate::emit::{Builder, Operand};
use crate::syntax::ast::AttachPoint;
use crate::system::Missing;
use crate::types::Type;

/// The kind.
#[derive(Debug)]
pub struct Watchpoint;

static INFO: Info = Info {
    names: &["watchpoint", "w"],
    usage: "watchpoint:ADDRESS:LENGTH:MODE",
    doc: "Runs when the memory at ADDRESS, a number or a kernel symbol, is written (w), read or written (rw), or executed (x). LENGTH is 1, 2, 4 or 8 bytes, and ADDRESS must be a multiple of it. The CPU watches at most four addresses at a time. The probe covers all processes, or only the process of -p. Virtual machines may lack these breakpoints.",
    example: "watchpoint:0x10000000:8:w { @[comm, ustack(3)] = count(); }",
};

/// bpftrace had it until 0.24.
pub(super) const REMOVED: (&str, &str) = (
    "asyncwatchpoint",
    "bpftrace no longer has it; give watchpoint the address, which a uprobe can print, and limit it to the process with -p",
);

/// Capabilities of processors: `HW_BREAKPOINT_…` of include/uapi/linux/hw_breakpoint.h.
const READ: u32 = 1;
const WRITE: u32 = 2;
const EXECUTE: u32 = 4;
const LETTERS: &[(char, u32)] = &[('r', READ), ('w', WRITE), ('x', EXECUTE)];
const LENGTHS: &[u64] = &[1, 2, 4, 8];

/// A mode, as letters without repetition.
fn mode(text: &str) -> Option<u32> {
    let all = text.chars().try_fold(0, |all, c| {
        let (_, bit) = LETTERS.iter().find(|(letter, _)| *letter == c)?;
        (all & bit == 0).then_some(all | bit)
    })?;
    (all != 0).then_some(all)
}

impl ProbeKind for Watchpoint {
    fn info(&self) -> &Info {
        &INFO
    }

    fn expand(&self, point: &AttachPoint, env: &Env) -> Result<Vec<ProbeSite>, Diagnostic> {
        let [place, length, modes] = super::parts::<3>(&INFO, point)?;
        let error = |what: String| Diagnostic::error("bad-probe", point.span, what);
        let address = match super::whole_number(&place) {
            Some(0) => return Err(error("nothing is at address 0".into())),
            Some(n) => n,
            None if place.contains('+') => {
                return Err(error(format!("`{place}`: function arguments cannot be watched"))
                    .help("give the address, which a uprobe can print, and limit the probe to the process with -p"));
            }
            None if place.starts_with(|c: char| c.is_ascii_digit()) => return Err(error(format!("`{place}` is not an address"))),
            None => {
                if let Some(address) = env.sys.kernel_symbol(&place) {
                    address
                } else {
                    return Err(no_symbol(&place, point, env));
                }
            }
        };
        let Some(length) = super::whole_number(&length).filter(|n| LENGTHS.contains(n)) else {
            return Err(error(format!("`{length}` is not a valid length")).help("1, 2, 4 or 8 bytes"));
        };
        let Some(mode) = mode(&modes).filter(|m| env.sys.arch().watch_modes.iter().any(|text| mode(text) == Some(*m))) else {
            let d = error(format!("{} does not support the mode `{modes}`", env.sys.arch().name));
            return Err(d.help(format!("one of {}", env.sys.arch().watch_modes.join(", "))));
        };
        if mode != EXECUTE && !address.is_multiple_of(length) {
            return Err(error(format!("{address:#x} is not a multiple of {length}: the CPU watches aligned words only"))
                .help("watch fewer bytes, or use a lower address"));
        }
        let name = format!("watchpoint:{place}:{length}:{modes}");
        let attach = Attach::Breakpoint { address, length, mode };
        Ok(vec![ProbeSite { kind: super::row("watchpoint"), name, attach, span: point.span }])
    }

    fn offers(&self) -> ContextFeatures {
        ContextFeatures::REGS.union(ContextFeatures::CTX).union(ContextFeatures::STACK).union(ContextFeatures::SIGNAL)
    }

    fn context(&self, _site: &ProbeSite, _env: &Env) -> Result<Context, Diagnostic> {
        Ok(Context { features: self.offers(), ..Context::default() })
    }

    fn program(&self, _site: &ProbeSite, _env: &Env) -> ProgramType {
        ProgramType::PerfEvent
    }

    fn load<'c>(&self, e: &mut Builder<'_, 'c>, site: &ProbeSite, _env: &Env, which: &ArgRef, ty: &Type) -> Operand<'c> {
        super::perf_context(e, site, which, ty)
    }

    /// Any address can be watched, so there is nothing to list.
    fn list(&self, _pattern: &[String], _env: &Env, _each: &mut dyn FnMut(&str)) -> Result<(), Missing> {
        Ok(())
    }
}

/// Why a word is not an address.
fn no_symbol(word: &str, point: &AttachPoint, env: &Env) -> Diagnostic {
    let named = word.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'$'));
    let help = "give the address as a number, or the name of a kernel symbol";
    match env.sys.hidden_symbols() {
        _ if !named => Diagnostic::error("bad-probe", point.span, format!("`{word}` is not an address")).help(help),
        Some(why) => {
            let what = "the kernel hides symbol addresses from this user".into();
            missing(point.span, Missing { what, help: Some(why) })
        }
        None => {
            let d = Diagnostic::error("no-kernel-symbol", point.span, format!("the kernel has no symbol `{word}`"));
            d.help("/proc/kallsyms lists the kernel's symbols; those of variables need CONFIG_KALLSYMS_ALL")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::machine::arch::ALL;

    #[test]
    fn modes_are_sets_of_letters() {
        for (text, expected) in [("w", Some(WRITE)), ("rw", Some(3)), ("wr", Some(3)), ("x", Some(EXECUTE)), ("ww", None), ("q", None)] {
            assert_eq!(mode(text), expected, "{text}");
        }
        assert!(ALL.iter().flat_map(|arch| arch.watch_modes).all(|text| mode(text).is_some()));
    }
}
