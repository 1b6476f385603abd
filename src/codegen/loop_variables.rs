//! Lets the loops of a long body have the same variables, so that loops that are alike can share a function.

use std::collections::{BTreeMap, HashMap};

use super::alike::is_loop;
use super::stmt::{loops_in, variable};
use crate::sema::hir::{self, Child, Expr, ExprKind, Node, Stmt, StmtKind, VarId};
use crate::types::Type;

/// The number of loops from which on those that are alike share a function, if they can.
pub(super) const MANY_LOOPS: u32 = 200;

/// The script with shared variables, if a probe has so many loops that they are needed.
pub(super) fn shared(script: &hir::Script) -> Option<hir::Script> {
    let has_many = |probe: &hir::Probe| loops_in(&probe.body).0 >= MANY_LOOPS;
    if !script.probes.iter().any(has_many) {
        return None;
    }
    let mut script = script.clone();
    for probe in script.probes.iter_mut().filter(|probe| has_many(probe)) {
        let uses = uses(&probe.body);
        let types: Vec<Type> = probe.vars.iter().map(|var| var.ty.clone()).collect();
        Sharing { uses, types, shared: HashMap::new() }.share(Child::Stmts(&mut probe.body));
    }
    Some(script)
}

struct Sharing {
    /// How often the body names each variable.
    uses: BTreeMap<VarId, usize>,
    types: Vec<Type>,
    /// The variables that loops have in common.
    shared: HashMap<Type, Vec<VarId>>,
}

impl Sharing {
    /// Replaces the variables that only one outermost loop uses.
    fn share(&mut self, part: Child) {
        match part {
            Child::Expr(e) => e.visit_parts(&mut |part| self.share(part)),
            Child::Stmts(stmts) => {
                for stmt in stmts {
                    if is_loop(stmt) {
                        let names = self.names(stmt);
                        rename(Child::Stmts(std::slice::from_mut(stmt)), &names);
                    } else {
                        stmt.visit_parts(&mut |part| self.share(part));
                    }
                }
            }
        }
    }

    /// The replacements for the variables of a loop, in order of their first uses.
    fn names(&mut self, stmt: &Stmt) -> BTreeMap<VarId, VarId> {
        let stmts = std::slice::from_ref(stmt);
        let within = uses(stmts);
        let mut numbers: HashMap<Type, usize> = HashMap::new();
        let mut names = BTreeMap::new();
        hir::visit(stmts, &mut |node| {
            let Some(var) = named(node).filter(|var| !names.contains_key(var)) else { return };
            let is_local = within.get(&var) == self.uses.get(&var) && sets_first(stmts, var);
            let Some(ty) = self.types.get(var).filter(|_| is_local) else { return };
            let number = numbers.entry(ty.clone()).or_default();
            let shared = self.shared.entry(ty.clone()).or_default();
            if shared.len() == *number {
                shared.push(var);
            }
            if let Some(name) = shared.get(*number) {
                names.insert(var, *name);
            }
            *number += 1;
        });
        names
    }
}

/// How often some statements name each variable.
fn uses(stmts: &[Stmt]) -> BTreeMap<VarId, usize> {
    let mut uses = BTreeMap::new();
    hir::visit(stmts, &mut |node| {
        if let Some(var) = named(node) {
            *uses.entry(var).or_default() += 1;
        }
    });
    uses
}

/// Is the variable set before all of its uses in these statements, so that its value at the start does not matter?
fn sets_first(stmts: &[Stmt], var: VarId) -> bool {
    let mut naming = stmts.iter().filter(|stmt| names(std::slice::from_ref(stmt), var));
    let Some(first) = naming.next() else { return false };
    let is_only = naming.next().is_none();
    match &first.kind {
        StmtKind::SetVar(set, value) if *set == var => !names_in(value, var),
        StmtKind::ZeroVar(_) => true,
        StmtKind::ForRange { var: set, .. } | StmtKind::ForMap { var: set, .. } | StmtKind::Repeat { var: set, .. } if *set == var => true,
        StmtKind::If { cond, then, else_: otherwise } if is_only && !names_in(cond, var) => match (names(then, var), names(otherwise, var))
        {
            (true, false) => sets_first(then, var),
            (false, true) => sets_first(otherwise, var),
            _ => false,
        },
        StmtKind::While { cond, body } if is_only && !names_in(cond, var) => sets_first(body, var),
        StmtKind::ForRange { from, to, body, .. } if is_only && !names_in(from, var) && !names_in(to, var) => sets_first(body, var),
        StmtKind::ForMap { body, .. } | StmtKind::Repeat { body, .. } if is_only => sets_first(body, var),
        StmtKind::Expr(_)
        | StmtKind::SetVar(..)
        | StmtKind::SetMap { .. }
        | StmtKind::Aggregate { .. }
        | StmtKind::If { .. }
        | StmtKind::Repeat { .. }
        | StmtKind::While { .. }
        | StmtKind::ForRange { .. }
        | StmtKind::ForMap { .. }
        | StmtKind::Break
        | StmtKind::Continue
        | StmtKind::Return(_) => false,
    }
}

fn names(stmts: &[Stmt], var: VarId) -> bool {
    let mut found = false;
    hir::visit(stmts, &mut |node| found |= named(node) == Some(var));
    found
}

fn names_in(e: &Expr, var: VarId) -> bool {
    let mut found = false;
    e.visit(&mut |node| found |= named(node) == Some(var));
    found
}

/// The variable that a statement or an expression names itself.
fn named(node: Node) -> Option<VarId> {
    match node {
        Node::Stmt(Stmt { kind: StmtKind::ForRange { var, .. } | StmtKind::ForMap { var, .. } | StmtKind::Repeat { var, .. }, .. }) => {
            Some(*var)
        }
        Node::Stmt(_) | Node::Expr(_) => variable(node),
    }
}

fn rename(part: Child, names: &BTreeMap<VarId, VarId>) {
    let new = |var: &mut VarId| {
        if let Some(name) = names.get(var) {
            *var = *name;
        }
    };
    match part {
        Child::Stmts(stmts) => {
            for stmt in stmts {
                match &mut stmt.kind {
                    StmtKind::SetVar(var, _)
                    | StmtKind::ZeroVar(var)
                    | StmtKind::ForRange { var, .. }
                    | StmtKind::ForMap { var, .. }
                    | StmtKind::Repeat { var, .. } => new(var),
                    StmtKind::Expr(_)
                    | StmtKind::SetMap { .. }
                    | StmtKind::Aggregate { .. }
                    | StmtKind::If { .. }
                    | StmtKind::While { .. }
                    | StmtKind::Break
                    | StmtKind::Continue
                    | StmtKind::Return(_) => {}
                }
                stmt.visit_parts(&mut |part| rename(part, names));
            }
        }
        Child::Expr(e) => {
            if let Expr { kind: ExprKind::Var(var) | ExprKind::StepVar { var, .. }, .. } = e {
                new(var);
            }
            e.visit_parts(&mut |part| rename(part, names));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::Span;

    fn stmt(kind: StmtKind) -> Stmt {
        Stmt { kind, span: Span::default() }
    }

    fn var(var: VarId) -> Expr {
        Expr { kind: ExprKind::Var(var), ty: Type::I64, span: Span::default() }
    }

    fn set(name: VarId, value: VarId) -> Stmt {
        stmt(StmtKind::SetVar(name, var(value)))
    }

    #[test]
    fn variables_that_keep_a_value_from_before_are_not_shared() {
        let branch = |then: Vec<Stmt>| stmt(StmtKind::If { cond: var(9), then, else_: Vec::new() });
        assert!(sets_first(&[set(1, 2), set(3, 1)], 1));
        assert!(!sets_first(&[set(1, 1)], 1));
        assert!(!sets_first(&[set(2, 1), set(1, 3)], 1));
        assert!(sets_first(&[branch(vec![set(1, 2), set(3, 1)])], 1));
        assert!(!sets_first(&[branch(vec![set(1, 2)]), set(3, 1)], 1));
    }
}
