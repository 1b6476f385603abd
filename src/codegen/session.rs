//! Finds probes on entries and returns of the same functions, which share a session program if the kernel supports it.

use super::artifact::{Hits, Program};
use super::{CompiledProgram, HitBytes, ScriptCx};
use crate::emit::{ProgramType, SectionDef, Session};
use crate::probes::{ArgRef, Attach, ContextFeatures, NoHitNote};
use crate::sema::hir;
use crate::settings::Mechanism;
use crate::system::Feature;
use crate::system::kernel::functions::KERNEL;
use crate::system::kernel_types::Prototype;
use crate::types::Type;

/// The kernel function that distinguishes a return from an entry (kernel/trace/bpf_trace.c).
const IS_RETURN: &str = "bpf_session_is_return";

/// The probes that record hits, and their bytes: one for each site if these are at different places in the script.
pub(super) fn number_hits(probes: &[hir::Probe], verbose: bool) -> HitBytes {
    let mut total = 0;
    let mut of = Vec::new();
    for probe in probes {
        let has_note = probe.sites.iter().all(|s| match s.attach.properties().no_hit_note {
            NoHitNote::Always => true,
            NoHitNote::Verbose => verbose,
            NoHitNote::Never => false,
        });
        let several = probe.sites.windows(2).any(|pair| matches!(pair, [a, b] if a.span != b.span));
        let sites = several.then_some(probe.sites.len() as u32);
        of.push(has_note.then_some((total, sites)));
        total += if has_note { sites.unwrap_or(1) } else { 0 };
    }
    HitBytes { by_probe: of, total }
}

impl ScriptCx<'_, '_> {
    /// All programs of the script.
    pub(super) fn programs(&self) -> Vec<CompiledProgram> {
        let probes = &self.script.probes;
        let pairs = self.pairs(probes);
        let asks = || self.env.sys.prototype(Some(KERNEL), IS_RETURN).is_some_and(|p| !p.params.is_empty());
        let of_context = pairs.iter().any(Option::is_some) && asks();
        let mut programs = Vec::new();
        for (i, probe) in probes.iter().enumerate() {
            if pairs.contains(&Some(i)) {
                continue; // built with its entry
            }
            programs.push(match pairs.get(i).copied().flatten().and_then(|j| Some((j, probes.get(j)?))) {
                None if probe.sites.iter().any(|s| matches!(s.attach, Attach::Test { bench: true })) => {
                    let mut program = self.program(i, probe, true);
                    let part = std::mem::replace(&mut program.program.function, format!("bench_of_{i}"));
                    self.cx.bench(&program.program.function, SectionDef::of(ProgramType::RawTracepoint), &part);
                    program
                }
                None => self.program(i, probe, false),
                Some((j, ret)) => {
                    let (entry, ret) = (self.program(i, probe, true), self.program(j, ret, true));
                    self.session(format!("session_{i}"), (entry, ret), of_context)
                }
            });
        }
        programs
    }

    /// One program of two parts.
    fn session(&self, function: String, (entry, ret): (CompiledProgram, CompiledProgram), of_context: bool) -> CompiledProgram {
        let ty = ProgramType::KprobeSession;
        let parts = [entry.program.function.as_str(), ret.program.function.as_str()];
        self.cx.session(Session { name: &function, section: SectionDef::of(ty), parts, ask: IS_RETURN, of_context });
        let from = entry.program.sites.len();
        let later = ret.hits.into_iter().map(|h| Hits { sites: (from + h.sites.0, h.sites.1), ..h });
        let hits = entry.hits.into_iter().chain(later).collect();
        let events = entry.events.into_iter().chain(ret.events).collect();
        let sites = entry.program.sites.into_iter().chain(ret.program.sites).collect();
        let probes = entry.program.probes.into_iter().chain(ret.program.probes).collect();
        let expansions = entry.program.expansions.into_iter().chain(ret.program.expansions).collect();
        let program = Program { function, ty, sites, lowered: None, why: String::new(), of_command: false, probes, expansions };
        CompiledProgram { program, events, hits }
    }

    /// For each probe, the one on the returns of exactly its functions.
    fn pairs(&self, probes: &[hir::Probe]) -> Vec<Option<usize>> {
        let none = vec![None; probes.len()];
        let refused = [Mechanism::KprobeSession, Mechanism::KprobeMulti].iter().any(|m| self.env.settings.refuses(*m));
        if refused || !probes.iter().any(|p| functions(p, true).is_some()) {
            return none;
        }
        let entries: Vec<_> = probes.iter().map(|p| functions(p, false)).collect();
        let returns: Vec<_> = probes.iter().map(|p| functions(p, true)).collect();
        let only = |all: &[Option<Vec<&str>>], wanted: &Vec<&str>| all.iter().flatten().filter(|f| *f == wanted).count() == 1;
        let pairs: Vec<Option<usize>> = entries
            .iter()
            .map(|e| {
                let wanted = e.as_ref()?;
                (only(&entries, wanted) && only(&returns, wanted)).then(|| returns.iter().position(|r| r.as_ref() == Some(wanted)))?
            })
            .collect();
        // the known forms of that function: without arguments and, since Linux 7, with the context
        let known = |p: Prototype| match p.params.as_slice() {
            [] => true,
            [(_, ty)] => matches!(ty, Type::Ptr(..)),
            _ => false,
        };
        let has = || self.env.sys.prototype(Some(KERNEL), IS_RETURN).is_some_and(known);
        if pairs.iter().all(Option::is_none) || !self.env.sys.has(Feature::KprobeSession) || !has() { none } else { pairs }
    }
}

/// The functions of a probe that can be part of a session: at the start or return of functions in the kernel itself, and
/// using only arguments, because not all registers are available.
fn functions(probe: &hir::Probe, returns: bool) -> Option<Vec<&str>> {
    if !probe.functions.is_empty() {
        return None;
    }
    let mut all = Vec::new();
    for site in &probe.sites {
        let Attach::Kprobe { module: None, function, offset: 0, ret, .. } = &site.attach else { return None };
        if *ret != returns || function.is_empty() {
            return None;
        }
        all.push(function.as_str());
    }
    let mut plain = true;
    hir::visit(&probe.body, &mut |node| {
        plain &= match node {
            hir::Node::Expr(e) => {
                let asks_much = matches!(&e.kind, hir::ExprKind::Call(call) if !asks_little(call.row.needs));
                !asks_much && !matches!(e.kind, hir::ExprKind::Context(ArgRef::Ctx))
            }
            // what a session's entry returns decides whether the return is traced
            hir::Node::Stmt(s) => !matches!(s.kind, hir::StmtKind::Return(Some(_))),
        };
    });
    plain.then_some(all)
}

fn asks_little(needs: ContextFeatures) -> bool {
    ![ContextFeatures::REGS, ContextFeatures::OVERRIDE].iter().any(|c| needs.contains(*c))
}
