//! The maps that `end` reads in another way than as a whole: what it prints of them is not repeated for a sum of several runs.

use std::collections::BTreeSet;

use crate::builtins::{self, Codegen, MapId};
use crate::probes::Attach;
use crate::sema::hir::{self, Call, CallArg, Expr, ExprKind, Node, Stmt, StmtKind};

/// The maps of which `end` reads elements, their number, or all of them in a loop.
#[allow(clippy::wildcard_enum_match_arm)] // matches on few variants
pub(super) fn at_end(script: &hir::Script) -> BTreeSet<MapId> {
    let mut found = BTreeSet::new();
    let mut see = |node: Node| match node {
        Node::Stmt(Stmt { kind: StmtKind::ForMap { map, .. }, .. }) => {
            found.insert(*map);
        }
        Node::Expr(Expr { kind: ExprKind::Map(map, _) | ExprKind::ReadAgg(map, _), .. }) => {
            found.insert(*map);
        }
        Node::Expr(Expr { kind: ExprKind::Call(Call { row, args, .. }), .. }) => found.extend(args.iter().filter_map(|arg| match arg {
            CallArg::Map(map) => builtins::map_action(row).is_none().then_some(*map),
            CallArg::Element(map, _) => matches!(row.codegen, Codegen::Event(_)).then_some(*map),
            CallArg::Value(_) | CallArg::Word(_) | CallArg::Type(_) => None,
        })),
        _ => {}
    };
    for probe in script.probes.iter().filter(|probe| probe.sites.iter().any(|site| matches!(site.attach, Attach::End))) {
        hir::visit(&probe.body, &mut see);
        probe.functions.iter().for_each(|f| hir::visit(&f.body, &mut see));
    }
    found
}
