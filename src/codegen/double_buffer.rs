//! Finds places where a script prints a map and then clears it: `print(@m); clear(@m);`. User space does both when it
//! reads the records, so updates in between would be lost. Therefore the two become one operation on a map with two
//! copies (`emit/double_buffer.rs`).

use std::collections::BTreeSet;

use crate::builtins::{self, Codegen, MapAction, MapId};
use crate::sema::hir::{self, Call, CallArg, Expr, ExprKind, Node, Stmt, StmtKind};

/// Two statements of a list that are performed as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PrintAndEmpty {
    /// The statement that prints the map: the first of the two.
    pub print_stmt: usize,
    /// The statement that clears it, which then does nothing.
    pub clear_stmt: usize,
    /// Which map.
    pub map: MapId,
    /// Keys stay, with zeros.
    pub keeps_keys: bool,
}

/// The maps that are printed and cleared in one step somewhere.
pub(super) fn maps(script: &hir::Script) -> BTreeSet<MapId> {
    let mut found = BTreeSet::new();
    for probe in &script.probes {
        let bodies = std::iter::once(&probe.body).chain(probe.functions.iter().map(|f| &f.body));
        bodies.for_each(|body| lists(body, &mut |stmts| found.extend(pairs(stmts).iter().map(|t| t.map))));
    }
    found
}

/// The pairs in a list of statements: execution reaches the second statement after the first, and no statement in between
/// uses the map.
pub(super) fn pairs(stmts: &[Stmt]) -> Vec<PrintAndEmpty> {
    let mut found: Vec<PrintAndEmpty> = Vec::new();
    for (ends, s) in stmts.iter().enumerate() {
        let Some((map, how @ (MapAction::Cleared | MapAction::Zeroed))) = map_action(s) else { continue };
        let Some(shows) = stmts.iter().take(ends).rposition(|s| map_action(s) == Some((map, MapAction::Shown))) else { continue };
        let between = stmts.get(shows + 1..ends).unwrap_or_default();
        if passes(between, map) && found.iter().all(|t| t.print_stmt != shows) {
            found.push(PrintAndEmpty { print_stmt: shows, clear_stmt: ends, map, keeps_keys: how == MapAction::Zeroed });
        }
    }
    found
}

/// What a statement does with a whole map, if that is all it does.
fn map_action(s: &Stmt) -> Option<(MapId, MapAction)> {
    let StmtKind::Expr(Expr { kind: ExprKind::Call(Call { row, args, .. }), .. }) = &s.kind else { return None };
    match args.first() {
        Some(CallArg::Map(map)) => Some((*map, builtins::map_action(row)?)),
        _ => None,
    }
}

/// Do these statements always reach their end, without using the map?
fn passes(stmts: &[Stmt], map: MapId) -> bool {
    let mut passes = true;
    hir::visit(stmts, &mut |node| {
        passes &= match node {
            Node::Stmt(Stmt { kind: StmtKind::Return(_) | StmtKind::Break | StmtKind::Continue, .. }) => false,
            Node::Expr(Expr { kind: ExprKind::Call(Call { row, args, .. }), .. }) => {
                let Codegen::Event(event) = &row.codegen else { return };
                let tells = |a: &CallArg| matches!(a, CallArg::Map(m) | CallArg::Element(m, _) if *m == map);
                !event.ends_probe && !args.iter().any(tells)
            }
            // Functions of the script are not analyzed; others know no maps of the script.
            Node::Expr(Expr { kind: ExprKind::CallFn(..), .. }) => false,
            Node::Stmt(_) | Node::Expr(_) => true,
        }
    });
    passes
}

/// Each list of statements, from the outside in.
fn lists(stmts: &[Stmt], visit: &mut dyn FnMut(&[Stmt])) {
    visit(stmts);
    for s in stmts {
        match &s.kind {
            StmtKind::If { then, else_: otherwise, .. } => {
                lists(then, visit);
                lists(otherwise, visit);
            }
            StmtKind::Repeat { body, .. }
            | StmtKind::While { body, .. }
            | StmtKind::ForRange { body, .. }
            | StmtKind::ForMap { body, .. } => {
                lists(body, visit);
            }
            StmtKind::Expr(_)
            | StmtKind::SetVar(..)
            | StmtKind::ZeroVar(_)
            | StmtKind::SetMap { .. }
            | StmtKind::Aggregate { .. }
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return(_) => {}
        }
    }
}
