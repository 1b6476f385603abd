//! A program: determines which site fired, applies filters, and runs the body.

use std::mem::offset_of;

use super::artifact::{AttachSite, Expansion, Hits, Point, Program};
use super::{Body, CompiledProgram, Gen, ScriptCx, lower, source_position};
use crate::builtins;
use crate::emit::shared::LoadConstants;
use crate::emit::{Builder, Cmp, Helper, IntValue, Operand, ProgramCx, Repr, SYSCALLS};
use crate::probes::{Attach, Env, ProbeSite, iter, search, syscall};
use crate::sema::hir;
use crate::syntax::ast::AttachPoint;
use crate::system::Feature;
use crate::types::{Int, Type};

/// Maximum depth of a cgroup, if the depth is unknown.
const MAX_CGROUPS: u32 = 16;

impl ScriptCx<'_, '_> {
    /// `part`: a function of a program, not a program itself.
    pub(super) fn program(&self, index: usize, probe: &hir::Probe, part: bool) -> CompiledProgram {
        let Some(first) = probe.sites.first() else { crate::bug!("a probe has a site") };
        let ty = first.kind.program(first, &self.env);
        let function = format!("{}_{index}", first.kind.probetype());
        let mut names: Vec<String> = probe.sites.iter().map(|s| s.name.clone()).collect();
        let options = self.program_options(index, probe, first);
        if options.names_vary && names.len() < 2 {
            // a run may have several, so the code reads the number of the site
            names.push(String::new());
        }
        let e = match part {
            true => self.cx.begin_part(&function, &names, options),
            false => self.cx.begin_program(&function, first.attach.section(ty), &names, options),
        };
        let mut g = Gen {
            cx: self,
            e,
            events: Vec::new(),
            program: index,
            max_frames: super::function::most_frames(probe),
            site: first,
            default_return: ty.row().default_return,
            print_and_empty: None,
            event_of_entry: None,
            unmarked_call: None,
            functions: &probe.functions,
            compiled_functions: (0..probe.functions.len()).map(|_| None).collect(),
            body: Body::default(),
        };
        g.at(first.span);
        let of_command = self.only_command(probe);
        g.filters(probe, of_command);
        first.kind.enter(&mut g.e, first, &self.env);
        g.pass_gate();
        let hits = g.note_hit(probe);
        g.e.allow_scratch_here();
        g.body(probe);
        let Gen { e, events, .. } = g;
        e.end_program(ty.row().default_return);
        let sites = probe.sites.iter().map(|s| AttachSite {
            name: s.name.clone(),
            attach: s.attach.clone(),
            pos: source_position(self.sources, &self.lines, s.span).0,
        });
        let sites = sites.collect();
        let (lowered, why) = (probe.lowered, probe.why.clone().into_owned());
        let expansions = self.expansion(probe).into_iter().collect();
        let program = Program { function, ty, sites, lowered, why, of_command, probes: vec![index], expansions };
        CompiledProgram { program, events, hits: hits.into_iter().collect() }
    }

    fn program_options(&self, index: usize, probe: &hir::Probe, first: &ProbeSite) -> ProgramCx {
        let space = first.kind.context(first, &self.env).ok().and_then(|c| c.space);
        // Passes without inlining would leave calls of the script's functions, and the kernel limits nested calls.
        let is_rare = is_rare(first) && probe.functions.is_empty();
        let is_split = super::chunk::is_split(&probe.body, &probe.functions, is_rare);
        ProgramCx {
            probe: index as u32,
            space: space.unwrap_or_default(),
            at_entry: probe.sites.iter().all(|s| self.is_entry(&s.attach)),
            stack_check: if let Attach::Uprobe { stack_check, .. } = first.attach { stack_check } else { 0 },
            at_kernel_entry: self.has_return_addresses && probe.sites.iter().all(|s| is_kernel_entry(&s.attach)),
            test_run: matches!(first.attach, Attach::Begin | Attach::End | Attach::Signal),
            is_rare,
            is_once: matches!(first.attach, Attach::Begin | Attach::End) && probe.functions.is_empty() && is_plain(&probe.body),
            is_long: super::chunk::shares_code(&probe.body, &probe.functions),
            is_split,
            has_cheap_pieces: is_split && probe.functions.is_empty(),
            divides_often: super::chunk::divides_often(&probe.body),
            // the reader of a pinned program's output does not read its records
            quiet: first.attach.pinned(),
            weighted: self.is_weighted(index),
            names_vary: self.names_vary(probe),
            ..ProgramCx::default()
        }
    }

    /// Where the sites come from, for a bundle.
    fn expansion(&self, probe: &hir::Probe) -> Option<Expansion> {
        let is_kind = |point: &&AttachPoint| point.segments.first().is_some_and(|kind| search::is_kind(&kind.text));
        let points: Vec<Point> = (probe.points.iter().filter(is_kind))
            .map(|point| Point {
                parts: point.segments.iter().map(|segment| (segment.text.clone(), segment.quoted)).collect(),
                pos: source_position(self.sources, &self.lines, point.span).0,
            })
            .collect();
        let is_searched = self.env.invocation.late_bound.target && probe.sites.iter().all(|site| search::is_searched(&site.attach));
        let number = self.script.probes.iter().position(|other| other.span == probe.span).unwrap_or_default();
        (is_searched && !points.is_empty()).then_some(Expansion {
            probe: number as u32,
            points,
            sites: probe.sites.len(),
            varies: false,
            reads_args: lower::reads_args(probe),
        })
    }

    /// Can a run of a bundle have sites with other names? The code then reads the names from a map.
    fn names_vary(&self, probe: &hir::Probe) -> bool {
        let Env { sys, invocation, .. } = self.env;
        let varies = |site: &ProbeSite| {
            probe.points.iter().any(|point| search::varies_by_name(point, &site.attach)) && search::distinguishes(&site.attach, sys)
        };
        invocation.late_bound.names && !invocation.sends_origin && probe.sites.iter().all(varies)
    }

    /// Does it trace only the process of `-c`, if there is one? It does if it can be attached to a process, and neither the run nor the script
    /// asks for descendants. A script that uses `followed` chooses its processes by itself: were its other probes limited to
    /// the command, it would see calls of descendants without their returns.
    fn only_command(&self, probe: &hir::Probe) -> bool {
        let (settings, invocation) = (self.env.settings, self.env.invocation);
        let can = probe.sites.iter().all(|s| s.attach.properties().attaches_to_process);
        can && !self.uses_followed && (settings.limits_to_command(invocation) || invocation.late_bound.target)
    }

    /// Is this the first instruction of a function?
    fn is_entry(&self, attach: &Attach) -> bool {
        let Attach::Uprobe { path, offset, function, ret: false, .. } = attach else { return false };
        self.env.sys.binary(path).is_ok_and(|b| b.functions_named(function).any(|f| f.offset == *offset))
    }
}

/// Does its program run once or rarely?
fn is_rare(site: &ProbeSite) -> bool {
    site.attach.properties().is_rare && !matches!(site.attach, Attach::Test { .. })
}

fn is_kernel_entry(attach: &Attach) -> bool {
    matches!(attach, Attach::Kprobe { function, offset: 0, ret: false, .. } if !function.is_empty())
}

/// Does a register have the return address at the entry of each function of the kernel? A return probe puts another address there
/// before the entry's program runs (`arch_prepare_kretprobe` of arch/*/kernel/).
pub(super) fn has_return_addresses(script: &hir::Script, env: &Env) -> bool {
    let is_return = |site: &ProbeSite| matches!(site.attach, Attach::Kprobe { ret: true, .. });
    env.sys.arch().return_address.is_some() && !script.probes.iter().flat_map(|p| &p.sites).any(is_return)
}

/// Does a probe of the script, or a function that it calls, ask whether the current process is followed?
pub(super) fn uses_followed(script: &hir::Script) -> bool {
    let mut found = false;
    let mut visit = |node: hir::Node| {
        found |= matches!(node, hir::Node::Expr(hir::Expr { kind: hir::ExprKind::Call(call), .. }) if builtins::is_followed(call.row));
    };
    for probe in &script.probes {
        hir::visit(&probe.body, &mut visit);
        probe.functions.iter().for_each(|f| hir::visit(&f.body, &mut visit));
    }
    found
}

impl<'a, 'c> Gen<'a, 'c> {
    /// Returns if the event is not one of those requested.
    fn filters(&mut self, probe: &hir::Probe, of_command: bool) {
        let attach = &self.site.attach;
        self.only_our_syscalls(probe);
        self.only_our_pid(attach, of_command);
        self.only_followed(attach);
        if !of_command || self.cx.env.invocation.late_bound.target {
            self.not_own(attach);
        }
        self.only_our_cgroup(attach);
        self.only_during_the_run(attach);
    }

    /// The predicate runs before scratch memory is claimed, because most runs end there.
    fn body(&mut self, probe: &'a hir::Probe) {
        self.cut(probe);
        match hir::predicate(&probe.body) {
            (Some(cond), then) if !sets_vars(cond) => {
                self.at(cond.span);
                let c = self.temporarily(|g| g.condition(cond));
                let no = self.e.cmp(Cmp::Eq, c, self.e.int(0));
                let unmarked = self.unmarked_call;
                self.e.if_(no, |e| {
                    if let Some(call) = unmarked {
                        e.mark_call(call, false);
                    }
                    e.ret(None);
                });
                self.pass_event();
                self.e.allow_scratch_here();
                self.alloc_vars(&probe.vars, &probe.body, &[]);
                self.keep_context(then);
                self.keep_values(then);
                self.block(then);
            }
            _ => {
                let body = probe.body.as_slice();
                self.pass_event();
                self.alloc_vars(&probe.vars, body, &[]);
                self.keep_context(body);
                self.keep_values(body);
                self.block(body);
            }
        }
    }

    /// A raw tracepoint covers all system calls: determines which one it is, and returns if it is not traced.
    fn only_our_syscalls(&mut self, probe: &hir::Probe) {
        let Some(Attach::Syscall { enter, .. }) = probe.sites.first().map(|s| &s.attach) else { return };
        let numbers: Vec<u32> =
            probe.sites.iter().filter_map(|s| if let Attach::Syscall { number, .. } = s.attach { Some(number) } else { None }).collect();
        let number = syscall::number(&mut self.e, *enter, &self.cx.env);
        match numbers.as_slice() {
            [one] if !self.e.program.names_vary => {
                let other = self.e.cmp(Cmp::Ne, number, self.e.int(u64::from(*one)));
                self.e.if_(other, |e| e.ret(None));
            }
            _ if self.e.program.names_vary => {
                let site = self.e.site_of_call(number);
                self.e.set_site(site);
            }
            all => {
                let mut table = vec![0u8; SYSCALLS as usize * 2];
                for (i, n) in all.iter().enumerate() {
                    if let Some(cell) = table.get_mut(*n as usize * 2..*n as usize * 2 + 2) {
                        cell.copy_from_slice(&(i as u16 + 1).to_le_bytes());
                    }
                }
                let number = self.e.opaque(number);
                let outside = self.e.cmp(Cmp::Uge, number, self.e.int(SYSCALLS.into()));
                self.e.if_(outside, |e| e.ret(None));
                let table = self.e.text(&table);
                let twice = self.e.add(number, number);
                let cell = self.e.offset_by(table, twice);
                let found = self.e.load(cell, 0, Int { bytes: 2, signed: false });
                let is_zero = self.e.cmp(Cmp::Eq, found, self.e.int(0));
                self.e.if_(is_zero, |e| e.ret(None));
                let site = self.e.sub(found, self.e.int(1));
                self.e.set_site(site);
            }
        }
        syscall::return_if_compat_syscall(&mut self.e, &self.cx.env);
    }

    /// Records the hit, if the end of the run may report probes without hits.
    fn note_hit(&mut self, probe: &hir::Probe) -> Option<Hits> {
        let (first, sites) = self.cx.hits.by_probe.get(self.program).copied().flatten()?;
        self.e.hit(self.cx.hits.total, first, sites);
        Some(Hits { program: self.program, first, each: sites.is_some(), sites: (0, probe.sites.len()) })
    }

    /// The process of `-p`, or of `-c` if the program is attached to that, for probes that the kernel does not limit.
    fn only_our_pid(&mut self, attach: &Attach, of_command: bool) {
        if !attach.properties().pid {
            return;
        }
        if self.cx.env.invocation.late_bound.target {
            let word = if of_command { offset_of!(LoadConstants, only_command) } else { offset_of!(LoadConstants, only_pid) };
            let pid = self.e.start(word);
            let chosen = self.e.cmp(Cmp::Ne, pid, self.e.int(0));
            return self.e.if_(chosen, |e| return_unless_process(e, pid));
        }
        let pid = match self.cx.env.settings.only_pid() {
            Some(pid) => self.e.int(pid.into()),
            None if of_command => self.e.start(offset_of!(LoadConstants, child)),
            None => return,
        };
        return_unless_process(&mut self.e, pid);
    }

    /// `--follow`
    fn only_followed(&mut self, attach: &Attach) {
        if !attach.properties().is_of_current_task {
            return;
        }
        if self.cx.env.invocation.late_bound.target {
            let only = self.e.start(offset_of!(LoadConstants, only_followed));
            let only = self.e.cmp(Cmp::Ne, only, self.e.int(0));
            self.e.if_(only, return_unless_followed);
        } else if self.cx.env.settings.follow {
            return_unless_followed(&mut self.e);
        }
    }

    /// Events of rbt itself: see [`crate::probes::AttachProperties::excludes_rbt`].
    fn not_own(&mut self, attach: &Attach) {
        let settings = self.cx.env.settings;
        if attach.properties().excludes_rbt && !settings.trace_self && settings.only_pid().is_none() && !settings.follow {
            self.e.return_if_own_process();
        }
    }

    /// `--cgroup` and `--container`: the task is in that cgroup, or in one below it. (An iterator checks its current
    /// task, not the task that reads.)
    fn only_our_cgroup(&mut self, attach: &Attach) {
        if !attach.properties().is_of_current_task {
            return;
        }
        let sys = self.cx.env.sys;
        // all these program types have the helper since Linux 5.14
        let has_helper = sys.has(Feature::AncestorCgroup);
        if self.cx.env.invocation.late_bound.target {
            let id = self.e.start(offset_of!(LoadConstants, cgroup));
            let chosen = self.e.cmp(Cmp::Ne, id, self.e.int(0));
            return self.e.if_(chosen, |e| {
                let level = e.start(offset_of!(LoadConstants, cgroup_level));
                if !has_helper {
                    let task = e.call(Helper::GetCurrentTask, &[]);
                    if iter::return_if_other_cgroup(e, task, id, level, sys) {
                        return;
                    }
                }
                let above = e.call(Helper::GetCurrentAncestorCgroupId, &[level.into()]);
                let other = e.cmp(Cmp::Ne, above, id);
                e.if_(other, |e| e.ret(None));
            });
        }
        let Some(within) = &self.cx.env.invocation.cgroup else { return };
        if let (false, Some(level)) = (has_helper, within.level) {
            let task = self.e.call(Helper::GetCurrentTask, &[]);
            let (id, level) = (self.e.int(within.id), self.e.int(level.into()));
            if iter::return_if_other_cgroup(&mut self.e, task, id, level, sys) {
                return;
            }
        }
        let levels = within.level.map_or(0..MAX_CGROUPS, |level| level..level + 1);
        let mut inside = self.e.int(0);
        for level in levels {
            let level = self.e.int(level.into());
            let above = self.e.call(Helper::GetCurrentAncestorCgroupId, &[level.into()]);
            let same = self.e.cmp(Cmp::Eq, above, self.e.int(within.id));
            inside = self.e.or(inside, same);
        }
        let outside = self.e.cmp(Cmp::Eq, inside, self.e.int(0));
        self.e.if_(outside, |e| e.ret(None));
    }

    /// A program stays attached for a moment after the end of the run. rbt itself runs `begin` and `end`.
    fn only_during_the_run(&mut self, attach: &Attach) {
        if !attach.properties().may_run_after_end {
            self.e.return_if_stopped();
        }
    }

    /// Loads a value that the probe kind provides.
    pub(super) fn context(&mut self, which: &crate::probes::ArgRef, ty: &Type) -> Operand<'c> {
        if let Some(kept) = self.kept_context(which, ty) {
            return kept;
        }
        let site = self.site;
        let op = site.kind.load(&mut self.e, site, &self.cx.env, which, ty);
        match (ty, op.repr) {
            // an address that prints as a symbol
            (Type::Deferred(_), Repr::Reg(addr)) => crate::builtins::symbols::operand(&mut self.e, addr, ty),
            // the verifier rejects arithmetic on the context's address; helpers read its members
            (_, Repr::Reg(addr)) if matches!(which, crate::probes::ArgRef::Ctx) && !self.e.scope.keeps_pointer_types => {
                Operand::reg(op.ty, self.e.forget_pointer_type(addr))
            }
            _ => op,
        }
    }
}

/// Returns if the current process is another one than this.
fn return_unless_process<'c>(e: &mut Builder<'_, 'c>, pid: IntValue<'c>) {
    let both = e.ns_pid_tgid();
    let tgid = e.shr(both, e.int(32), false);
    let other = e.cmp(Cmp::Ne, tgid, pid);
    e.if_(other, |e| e.ret(None));
}

fn return_unless_followed(e: &mut Builder<'_, '_>) {
    let followed = e.followed();
    let other = e.cmp(Cmp::Eq, followed, e.int(0));
    e.if_(other, |e| e.ret(None));
}

/// Does it have neither loops nor copies, and few statements? Otherwise, the verifier may need what all passes do.
fn is_plain(stmts: &[hir::Stmt]) -> bool {
    let mut repeats = false;
    hir::visit_within(stmts, &mut |_, around| repeats |= around.loops > 0 || around.times > 1);
    !repeats && !super::chunk::shares_code(stmts, &[])
}

/// Does an expression contain statements (a block)? They may set variables, whose locations are assigned after the
/// predicate.
fn sets_vars(e: &hir::Expr) -> bool {
    use hir::ExprKind as K;
    let mut found = false;
    e.visit(&mut |n| found |= matches!(n, hir::Node::Expr(e) if matches!(e.kind, K::Block(..) | K::StepVar { .. } | K::Var(_))));
    found
}
