//! The kernel's limits on a program: its stack and its maps.

use std::collections::BTreeSet;

use super::artifact::{Artifact, Manifest};
use super::{Compiled, alike, rate_limits};
use crate::builtins::KEYED_LIMIT;
use crate::diag::{Diagnostic, Span};
use crate::probes::Env;
use crate::sema::hir::{self, Expr, ExprKind, Node, Stmt, StmtKind};
use crate::settings::Mechanism;
use crate::system::kernel::object_limits::{LimitedProgram, MAX_FRAMES, MAX_FUNCTIONS, MAX_MAPS, MAX_STACK, StackRule, limited};
use crate::system::{Feature, TargetInfo};

/// Minimum number of a program's maps besides those of the script: constants, the state of the run, counters, and the
/// ring buffer.
const OWN_MAPS: usize = 4;

/// The number of loops at which a probe is not compiled.
const FAR_TOO_MANY_LOOPS: usize = 4 * MAX_FUNCTIONS;

/// How the kernel counts the stack.
fn stack_rule(sys: &dyn TargetInfo) -> StackRule {
    let private = sys.has(Feature::SharedStacks);
    if !sys.has(Feature::Btf) {
        // the version is unknown
        StackRule::SUMS
    } else if !sys.has(Feature::CpuV4) {
        // code for kernels before 6.6, which may be unknown otherwise
        StackRule::BEFORE_6_9
    } else if private && sys.arch().private_stacks {
        StackRule::PRIVATE
    } else if private || sys.enumerator("BPF_MAP_TYPE_ARENA").is_some() {
        // that type of map was added in the same version
        StackRule::SUMS
    } else {
        StackRule::BEFORE_6_9
    }
}

/// Analyzes the programs of an object, with the stack limit of this kernel, which is queried only if it matters.
pub(super) fn analyze(artifact: &Artifact, sys: &dyn TargetInfo) -> Vec<LimitedProgram> {
    let private = |name: &str| artifact.manifest.programs.iter().any(|p| p.function == name && p.ty.row().private_stack);
    let by = |rule| match limited(&artifact.elf, rule, &private) {
        Ok(programs) => programs,
        Err(e) => crate::bug!("our own object cannot be read: {e}"),
    };
    let strictly = by(StackRule::BEFORE_6_9);
    if strictly.iter().all(|p| p.stack <= MAX_STACK) { strictly } else { by(stack_rule(sys)) }
}

/// Probes that need more stack, or deeper calls, than the kernel allows.
pub(super) fn too_much(compiled: &Compiled, script: &hir::Script, sys: &dyn TargetInfo) -> Vec<Diagnostic> {
    let mut diagnostics: Vec<Diagnostic> = Vec::new();
    for program in analyze(&compiled.artifact, sys) {
        let span = probe_of(&program, &compiled.artifact.manifest, script).map_or_else(Span::default, |p| p.span);
        let diagnostic = if program.stack > MAX_STACK {
            let message = format!("this probe needs {} bytes of the BPF stack; the kernel allows {MAX_STACK}", program.stack);
            let help = "use fewer values at a time, nest loops and functions less, or store values in maps";
            Diagnostic::error("too-much-stack", span, message).help(help)
        } else if program.frames > MAX_FRAMES {
            let message =
                format!("this probe needs {} BPF functions that call one another; the kernel allows {MAX_FRAMES}", program.frames);
            Diagnostic::error("too-deep", span, message).help("nest loops and functions less: each is a BPF function")
        } else {
            continue;
        };
        if !diagnostics.contains(&diagnostic) {
            diagnostics.push(diagnostic);
        }
    }
    diagnostics
}

/// The probe that a program is for.
fn probe_of<'a>(program: &LimitedProgram, manifest: &Manifest, script: &'a hir::Script) -> Option<&'a hir::Probe> {
    let site = manifest.programs.iter().find(|p| p.function == program.name).and_then(|p| p.sites.first())?;
    script.probes.iter().find(|p| p.sites.iter().any(|q| q.name == site.name))
}

/// Probes that use more maps or functions than the kernel allows.
pub(super) fn too_large(programs: &[LimitedProgram], manifest: &Manifest, script: &hir::Script) -> Vec<Diagnostic> {
    let mut diagnostics: Vec<Diagnostic> = Vec::new();
    for program in programs {
        let span = probe_of(program, manifest, script).map_or_else(Span::default, |p| p.span);
        let mut report = |diagnostic: Diagnostic| {
            if !diagnostics.contains(&diagnostic) {
                diagnostics.push(diagnostic);
            }
        };
        if program.maps.len() > MAX_MAPS {
            // keys of `ratelimit` are in maps, too
            let script_maps = program.maps.iter().filter(|m| m.starts_with("map_") || m.starts_with(KEYED_LIMIT)).count();
            report(maps_in_excess(span, script_maps, MAX_MAPS.saturating_sub(program.maps.len() - script_maps)));
        }
        if program.functions > MAX_FUNCTIONS {
            report(functions_in_excess(span, program.functions));
        }
    }
    diagnostics
}

/// Probes that write to more maps than the kernel allows, or limit the rate by keys in more places, each of which has one, before LLVM has to deal with thousands of them.
pub(super) fn far_too_many_maps(script: &hir::Script) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    for probe in &script.probes {
        let (mut maps, mut keyed_limits) = (BTreeSet::new(), BTreeSet::new());
        let bodies = std::iter::once(&probe.body).chain(probe.functions.iter().map(|f| &f.body));
        let mut visit = |node: Node| match node {
            Node::Stmt(Stmt { kind: StmtKind::SetMap { map, .. } | StmtKind::Aggregate { map, .. }, .. }) => _ = maps.insert(*map),
            Node::Expr(Expr { kind: ExprKind::Call(call), .. }) => {
                keyed_limits.extend(rate_limits::has_keys(call).then(|| rate_limits::state(call)));
            }
            Node::Stmt(_) | Node::Expr(_) => {}
        };
        bodies.for_each(|body| hir::visit(body, &mut visit));
        let all = maps.len() + keyed_limits.len();
        // for a few more, the error of the compiled program has the exact numbers
        if maps.len() > MAX_MAPS || all > 2 * MAX_MAPS {
            diagnostics.push(maps_in_excess(probe.span, all, MAX_MAPS - OWN_MAPS));
        }
    }
    diagnostics
}

/// Probes with so many loops, each of which is a function, that LLVM would take long for code that the kernel refuses. LLVM may remove
/// a few of them.
pub(super) fn far_too_many_loops(script: &hir::Script, env: &Env) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    for probe in &script.probes {
        let loops = alike::loops_apart(&probe.body);
        // without the loop helper, functions are parts of others
        if loops > FAR_TOO_MANY_LOOPS && env.sys.has(Feature::Loop) && !env.settings.refuses(Mechanism::BpfLoop) {
            diagnostics.push(functions_in_excess(probe.span, loops));
        }
    }
    diagnostics
}

fn functions_in_excess(span: Span, functions: usize) -> Diagnostic {
    let message = format!(
        "this probe compiles to {functions} functions; the kernel allows {MAX_FUNCTIONS} in a program, and each loop unlike others is one"
    );
    let help = "put similar loops into a function (`fn`), or split the work among several probes";
    Diagnostic::error("too-many-functions", span, message).help(help)
}

fn maps_in_excess(span: Span, script_maps: usize, max: usize) -> Diagnostic {
    let message = format!("this probe uses {script_maps} maps; the kernel allows {max} in addition to those of every probe");
    let help = "use one map with a key instead of several, or split the work among several probes";
    Diagnostic::error("too-many-maps", span, message).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::fake::Fake;

    #[test]
    fn code_for_unknown_old_kernels_has_the_smallest_stack() {
        let rule = |machine: &str| stack_rule(&Fake::new(machine).unwrap());
        assert_eq!(rule("feature Btf; feature SharedStacks; enum t { BPF_MAP_TYPE_ARENA };"), StackRule::BEFORE_6_9);
        assert_eq!(rule("feature Btf; feature CpuV4;"), StackRule::BEFORE_6_9);
        assert_eq!(rule("feature Btf; feature CpuV4; enum t { BPF_MAP_TYPE_ARENA };"), StackRule::SUMS);
        assert_eq!(rule("feature Btf; feature CpuV4; feature SharedStacks;").private, Fake::new("").unwrap().arch().private_stacks);
        assert_eq!(rule(""), StackRule::SUMS);
    }
}
