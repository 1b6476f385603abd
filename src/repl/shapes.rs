//! Types as the prompt shows them, of maps and of printed values.

use crate::sema::hir::{self, CallArg, ExprKind, Node};
use crate::system::{TargetInfo, TypeName};
use crate::types::Type;

/// The type of the value that the last `print` of a script shows, for people: for a map, with its keys'.
pub fn printed(script: &hir::Script) -> Option<String> {
    let mut map = None;
    let mut visit = |node: Node| {
        if let Node::Expr(hir::Expr { kind: ExprKind::Call(call), .. }) = node
            && call.row.name == "print"
            && let Some(CallArg::Map(id)) = call.args.first()
        {
            map = script.maps.get(*id).map(shape);
        }
    };
    script.probes.iter().for_each(|p| hir::visit(&p.body, &mut visit));
    map.or_else(|| printed_type(script).map(|ty| ty.to_string()))
}

/// The type of the value that the last `print` of a script shows.
pub fn printed_type(script: &hir::Script) -> Option<Type> {
    let mut found = None;
    let mut visit = |node: Node| {
        let call = match node {
            Node::Expr(hir::Expr { kind: ExprKind::Call(call), .. }) => call,
            Node::Expr(_) | Node::Stmt(_) => return,
        };
        let map = |id: &usize| script.maps.get(*id).map(|m| m.value.clone());
        if call.row.name == "print" {
            found = call.args.first().and_then(|arg| match arg {
                CallArg::Value(e) => Some(e.ty.clone()),
                CallArg::Map(id) | CallArg::Element(id, _) => map(id),
                CallArg::Word(_) | CallArg::Type(_) => None,
            });
        }
    };
    script.probes.iter().for_each(|p| hir::visit(&p.body, &mut visit));
    found
}

/// A map's types in a line: `[string[16]] → count_t`.
pub fn shape(map: &hir::Map) -> String {
    match &map.key {
        Some(key) => format!("[{key}] → {}", map.value),
        None => map.value.to_string(),
    }
}

/// Names of the kernel's types, for `:type`.
pub fn is_type(sys: &dyn TargetInfo, name: &str) -> bool {
    [TypeName::Struct, TypeName::Union, TypeName::Enum].iter().any(|kind| sys.type_named(*kind, name).is_some())
}
