//! Where the values of a map go: which other maps depend on them.

use std::collections::BTreeSet;

use super::adding::added;
use crate::builtins::{self, MapId};
use crate::sema::hir::{self, Call, CallArg, Expr, ExprKind, FunctionId, Stmt, StmtKind, VarId};
use crate::syntax::ast::BinOp;

/// Does what the script adds to the map, or whether it adds, depend on the map? `@max += $x - @max` only looks like a sum, and so do
/// `if ($x > @max) { $d = $x - @max; @max += $d; }` and the same by way of another map or a function.
pub(super) fn adds_to_itself(script: &hir::Script, map: MapId) -> bool {
    let maps = BTreeSet::from([map]);
    Flow::through(script, &Sources { maps: &maps, uses: &|_, _| true, limits_rate: false, foreign: false }, |flow| flow.adds_to_sources)
        .adds_to_sources
}

/// What the question is about.
pub(super) struct Sources<'a> {
    /// The values of these maps
    pub maps: &'a BTreeSet<MapId>,
    /// where a probe, by its number, uses them in the sense of the question,
    pub uses: &'a dyn Fn(usize, MapId) -> bool,
    /// the results of builtins that depend on how often they were called,
    pub limits_rate: bool,
    /// and those of imported functions, which may depend on earlier calls.
    pub foreign: bool,
}

/// The maps whose elements depend on the values of these maps: what the elements are, and whether they exist. These maps are among
/// them only if they depend on each other or on themselves. A number that is added to a value does not depend on the value.
///
/// `foreign`: and on what imported functions give.
pub(super) fn dependents_of(script: &hir::Script, maps: &BTreeSet<MapId>, foreign: bool) -> BTreeSet<MapId> {
    dependents(script, &Sources { maps, uses: &|_, _| true, limits_rate: false, foreign })
}

/// The same for what the question is about.
pub(super) fn dependents(script: &hir::Script, sources: &Sources) -> BTreeSet<MapId> {
    let flow = Flow::through(script, sources, |_| false);
    if flow.ends_run { (0..script.maps.len()).collect() } else { flow.dependents }
}

/// A body: the probe, and one of its functions.
type Scope = (usize, Option<FunctionId>);

/// Where the values of maps go. It errs on the side of too many places.
struct Flow<'a> {
    sources: &'a Sources<'a>,
    /// They decide when the run ends, and so on all values.
    ends_run: bool,
    /// Maps whose elements depend on them.
    dependents: BTreeSet<MapId>,
    vars: BTreeSet<(Scope, VarId)>,
    /// Functions whose results do.
    results: BTreeSet<Scope>,
    /// Functions that are called under a condition which depends on them.
    guarded: BTreeSet<Scope>,
    /// Variables and maps whose addresses are taken. Imported functions may write to them,
    addressed_vars: BTreeSet<(Scope, VarId)>,
    addressed_maps: BTreeSet<MapId>,
    /// and keep what they get, which depends on the sources.
    foreign: bool,
    /// The rest of the body depends on them, because of a `return`, `break` or `continue` under such a condition.
    left: bool,
    /// What is added to one of the maps depends on them.
    adds_to_sources: bool,
}

impl<'a> Flow<'a> {
    /// Follows the values to all places, or until it `suffices`.
    fn through(script: &hir::Script, sources: &'a Sources<'a>, suffices: fn(&Self) -> bool) -> Self {
        let (dependents, vars, results, guarded) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let ends_run = false;
        let (addressed_vars, addressed_maps) = (BTreeSet::new(), BTreeSet::new());
        let mut flow = Self {
            sources,
            ends_run,
            dependents,
            vars,
            results,
            guarded,
            addressed_vars,
            addressed_maps,
            foreign: sources.foreign,
            left: false,
            adds_to_sources: false,
        };
        // what a probe has stored, the others read
        loop {
            let before = flow.size();
            for (id, probe) in script.probes.iter().enumerate() {
                flow.body((id, None), &probe.body, false);
                for (function, f) in probe.functions.iter().enumerate() {
                    let scope = (id, Some(function));
                    flow.body(scope, &f.body, flow.guarded.contains(&scope));
                }
            }
            if flow.foreign {
                flow.vars.extend(&flow.addressed_vars);
                flow.dependents.extend(&flow.addressed_maps);
            }
            if suffices(&flow) || flow.size() == before {
                return flow;
            }
        }
    }

    /// Does a value of the map that a body reads depend on the maps?
    fn is_source(&self, scope: Scope, map: MapId) -> bool {
        self.sources.maps.contains(&map) && (self.sources.uses)(scope.0, map) || self.dependents.contains(&map)
    }

    fn size(&self) -> usize {
        self.dependents.len() + self.vars.len() + self.results.len() + self.guarded.len() + usize::from(self.foreign)
    }

    fn body(&mut self, scope: Scope, stmts: &[Stmt], guarded: bool) {
        self.left = false;
        self.stmts(scope, stmts, guarded);
    }

    /// Follows statements, which are `guarded` if they are under a condition that depends on the map.
    fn stmts(&mut self, scope: Scope, stmts: &[Stmt], guarded: bool) {
        for stmt in stmts {
            self.stmt(scope, stmt, guarded || self.left);
        }
    }

    /// A loop repeats its body, so that its end comes before its start.
    fn repeated(&mut self, scope: Scope, stmts: &[Stmt], guarded: bool) {
        self.stmts(scope, stmts, guarded);
        if self.left && !guarded {
            self.stmts(scope, stmts, true);
        }
    }

    fn stmt(&mut self, scope: Scope, stmt: &Stmt, guarded: bool) {
        match &stmt.kind {
            StmtKind::Expr(e) => {
                self.depends(scope, e, guarded);
            }
            StmtKind::SetVar(var, e) => {
                let depends = self.depends(scope, e, guarded);
                self.set_var(scope, *var, depends || guarded);
            }
            StmtKind::ZeroVar(var) => self.set_var(scope, *var, guarded),
            StmtKind::SetMap { map, key, value } => {
                let by_key = key.as_ref().is_some_and(|key| self.depends(scope, key, guarded)) || guarded;
                let addend = added(*map, key.as_ref(), value).map(|(_, addend)| addend);
                let depends = self.depends(scope, addend.unwrap_or(value), guarded) || by_key;
                self.adds_to_sources |= addend.is_some() && depends && self.sources.maps.contains(map);
                self.set_map(*map, depends);
            }
            StmtKind::Aggregate { map, key, call } => {
                let by_key = key.as_ref().is_some_and(|key| self.depends(scope, key, guarded));
                let depends = self.call(scope, call, guarded);
                self.set_map(*map, depends || by_key || guarded);
            }
            StmtKind::If { cond, then, else_: otherwise } => {
                let guarded = self.depends(scope, cond, guarded) || guarded;
                self.stmts(scope, then, guarded);
                self.stmts(scope, otherwise, guarded);
            }
            StmtKind::Repeat { var, body, .. } => {
                self.set_var(scope, *var, guarded);
                self.repeated(scope, body, guarded);
            }
            StmtKind::While { cond, body } => {
                let guarded = self.depends(scope, cond, guarded) || guarded;
                self.repeated(scope, body, guarded);
                self.depends(scope, cond, guarded);
            }
            StmtKind::ForRange { var, from, to, body } => {
                let ends = [from, to].map(|end| self.depends(scope, end, guarded));
                let guarded = ends.contains(&true) || guarded;
                self.set_var(scope, *var, guarded);
                self.repeated(scope, body, guarded);
            }
            StmtKind::ForMap { var, map, body } => {
                let guarded = self.is_source(scope, *map) || guarded;
                self.set_var(scope, *var, guarded);
                self.repeated(scope, body, guarded);
            }
            StmtKind::Break | StmtKind::Continue => self.left |= guarded,
            StmtKind::Return(value) => {
                self.left |= guarded;
                if value.as_ref().is_some_and(|value| self.depends(scope, value, guarded)) || guarded {
                    self.results.insert(scope);
                }
            }
        }
    }

    fn set_var(&mut self, scope: Scope, var: VarId, depends: bool) {
        if depends {
            self.vars.insert((scope, var));
        }
    }

    fn set_map(&mut self, map: MapId, depends: bool) {
        if depends {
            self.dependents.insert(map);
        }
    }

    /// Does the value depend on the map?
    fn depends(&mut self, scope: Scope, expr: &Expr, guarded: bool) -> bool {
        match &expr.kind {
            ExprKind::Int(_) | ExprKind::Str(_) | ExprKind::Context(_) => false,
            ExprKind::Var(var) => self.vars.contains(&(scope, *var)),
            ExprKind::StepVar { var, .. } => {
                self.set_var(scope, *var, guarded);
                self.vars.contains(&(scope, *var))
            }
            ExprKind::Map(map, key) | ExprKind::ReadAgg(map, key) => {
                let by_key = key.as_ref().is_some_and(|key| self.depends(scope, key, guarded));
                by_key || self.is_source(scope, *map)
            }
            ExprKind::StepMap { map, key, .. } => {
                let by_key = key.as_ref().is_some_and(|key| self.depends(scope, key, guarded));
                self.adds_to_sources |= guarded && self.sources.maps.contains(map);
                self.set_map(*map, by_key || guarded);
                self.is_source(scope, *map)
            }
            ExprKind::AddrOf(a) => {
                if let ExprKind::Map(map, _) = &a.kind {
                    self.addressed_maps.insert(*map);
                }
                if let ExprKind::Var(var) = &a.kind {
                    self.addressed_vars.insert((scope, *var));
                }
                self.depends(scope, a, guarded)
            }
            ExprKind::Field(a, _) | ExprKind::Deref(a, _) | ExprKind::Unary(_, a) | ExprKind::Cast(a, _) => self.depends(scope, a, guarded),
            ExprKind::Binary(BinOp::And | BinOp::Or, a, b) => {
                let first = self.depends(scope, a, guarded);
                self.depends(scope, b, guarded || first) || first
            }
            ExprKind::Index(a, b) | ExprKind::Binary(_, a, b) => {
                let first = self.depends(scope, a, guarded);
                self.depends(scope, b, guarded) || first
            }
            ExprKind::Cond(cond, a, b) => {
                let cond = self.depends(scope, cond, guarded);
                let either = [a, b].map(|e| self.depends(scope, e, guarded || cond));
                cond || either.contains(&true)
            }
            ExprKind::Block(stmts, value) => {
                self.stmts(scope, stmts, guarded);
                self.depends(scope, value, guarded || self.left)
            }
            ExprKind::Tuple(all) => {
                let mut any = false;
                for e in all {
                    any |= self.depends(scope, e, guarded);
                }
                any
            }
            ExprKind::Call(call) => self.call(scope, call, guarded),
            ExprKind::CallForeign(_, args) => {
                let mut any = false;
                for e in args {
                    any |= self.depends(scope, e, guarded);
                }
                self.foreign |= any || guarded;
                self.foreign
            }
            ExprKind::CallFn(id, args) => {
                let callee = (scope.0, Some(*id));
                for (param, arg) in args.iter().enumerate() {
                    let depends = self.depends(scope, arg, guarded);
                    self.set_var(callee, param, depends || guarded);
                }
                if guarded {
                    self.guarded.insert(callee);
                }
                self.results.contains(&callee)
            }
        }
    }

    fn call(&mut self, scope: Scope, call: &Call, guarded: bool) -> bool {
        if guarded && builtins::ends_probe(call.row) {
            self.ends_run = true;
        }
        let mut any = self.sources.limits_rate && builtins::remembers_calls(call.row);
        for arg in &call.args {
            any |= match arg {
                CallArg::Value(e) => self.depends(scope, e, guarded),
                CallArg::Map(map) => self.is_source(scope, *map),
                CallArg::Element(map, key) => self.depends(scope, key, guarded) || self.is_source(scope, *map),
                CallArg::Word(_) | CallArg::Type(_) => false,
            };
        }
        if builtins::removes(call.row) {
            for arg in &call.args {
                match arg {
                    // the values of the others are keys
                    CallArg::Map(map) => {
                        let by_key = self.depends_on_keys(scope, call, guarded);
                        self.set_map(*map, by_key || guarded);
                    }
                    CallArg::Element(map, key) => {
                        let by_key = self.depends(scope, key, guarded);
                        self.set_map(*map, by_key || guarded);
                    }
                    CallArg::Value(_) | CallArg::Word(_) | CallArg::Type(_) => {}
                }
            }
        }
        any
    }

    fn depends_on_keys(&mut self, scope: Scope, call: &Call, guarded: bool) -> bool {
        let keys = call.args.iter().filter_map(|arg| match arg {
            CallArg::Value(e) => Some(e),
            CallArg::Map(_) | CallArg::Element(..) | CallArg::Word(_) | CallArg::Type(_) => None,
        });
        let mut any = false;
        for key in keys {
            any |= self.depends(scope, key, guarded);
        }
        any
    }
}
