//! Determines from the shape of a body which parts of its context it may use, and thus whether each site needs a separate
//! check.

use std::collections::BTreeSet;

use crate::syntax::ast::{Arg, Block, Expr, ExprKind, Item, Probe, Script, Stmt, StmtKind, TypeBase, TypeExpr};
use crate::system::TypeName;

/// An expression, or the base of a type.
enum Node<'a> {
    Expr(&'a Expr),
    Type(&'a TypeBase),
}

/// Calls `each` for every expression of a probe, outermost first, except those in types.
pub fn expressions<'a>(probe: &'a Probe, each: &mut dyn FnMut(&'a Expr)) {
    in_probe(probe, &mut expressions_of(each));
}

fn expressions_of<'a, 'f>(each: &'f mut dyn FnMut(&'a Expr)) -> impl FnMut(Node<'a>) + 'f
where
    'a: 'f,
{
    move |node| match node {
        Node::Expr(e) => each(e),
        Node::Type(_) => {}
    }
}

fn in_probe<'a>(probe: &'a Probe, each: &mut dyn FnMut(Node<'a>)) {
    if let Some(p) = &probe.predicate {
        expr(p, each);
    }
    block(&probe.body, each);
}

/// Names in a probe, macro or function that may be those of types or of their constants.
#[derive(Default)]
pub struct NamesOfTypes<'a> {
    /// After `struct`, `union` and `enum`.
    pub tagged: BTreeSet<(TypeName, &'a str)>,
    /// Other words.
    pub words: BTreeSet<&'a str>,
}

impl<'a> NamesOfTypes<'a> {
    /// Those of a probe and of the script's definitions, without names that `is_own` of the language.
    pub fn new(check_cx: &super::CheckContext<'a>, probe: &'a Probe, is_own: impl Fn(&str) -> bool) -> Self {
        let mut all = NamesOfTypes::default();
        in_probe(probe, &mut |node| all.add(node));
        for body in definitions(check_cx) {
            block(body, &mut |node| all.add(node));
        }
        all.words.retain(|word| !is_own(word));
        all
    }

    fn add(&mut self, node: Node<'a>) {
        let tagged = match node {
            Node::Type(TypeBase::Struct(name)) => (TypeName::Struct, name),
            Node::Type(TypeBase::Union(name)) => (TypeName::Union, name),
            Node::Type(TypeBase::Enum(name)) => (TypeName::Enum, name),
            Node::Type(TypeBase::Typeof(of)) => return arg(of, &mut |node| self.add(node)),
            Node::Type(TypeBase::Name(name)) | Node::Expr(Expr { kind: ExprKind::Ident(name), .. }) => {
                self.words.insert(name);
                return;
            }
            Node::Type(TypeBase::Tuple(_)) | Node::Expr(_) => return,
        };
        self.tagged.insert((tagged.0, tagged.1.as_str()));
    }
}

fn definitions<'a>(check_cx: &super::CheckContext<'a>) -> impl Iterator<Item = &'a Block> {
    let macros = check_cx.macros.iter().chain(&check_cx.defines).map(|m| &m.body);
    macros.chain(check_cx.functions.iter().map(|f| &f.body))
}

/// Does a probe, a macro or a function use the map with this name?
pub fn mentions_map(check_cx: &super::CheckContext, script: &Script, name: &str) -> bool {
    let mut found = false;
    let mut each = |e: &Expr| found |= matches!(&e.kind, ExprKind::Map { name: used, .. } if used == name);
    for item in &script.items {
        if let Item::Probe(probe) = item {
            expressions(probe, &mut each);
        }
    }
    each_definition_expr(check_cx, &mut each);
    found
}

/// Calls `each` for every expression of the script's macros and functions.
pub fn each_definition_expr(check_cx: &super::CheckContext, each: &mut dyn FnMut(&Expr)) {
    for body in definitions(check_cx) {
        in_block(body, each);
    }
}

/// The same for a block.
pub fn in_block<'a>(b: &'a Block, each: &mut dyn FnMut(&'a Expr)) {
    block(b, &mut expressions_of(each));
}

fn block<'a>(b: &'a Block, each: &mut dyn FnMut(Node<'a>)) {
    for s in &b.stmts {
        stmt(s, each);
    }
    if let Some(e) = &b.value {
        expr(e, each);
    }
}

fn stmt<'a>(s: &'a Stmt, each: &mut dyn FnMut(Node<'a>)) {
    match &s.kind {
        StmtKind::Expr(e) | StmtKind::Discard(e) => expr(e, each),
        StmtKind::Assign { target, value, .. } => {
            expr(target, each);
            expr(value, each);
        }
        StmtKind::Let { ty, value, .. } => {
            ty.iter().for_each(|t| type_expr(t, each));
            value.iter().for_each(|e| expr(e, each));
        }
        StmtKind::Return(value) => value.iter().for_each(|e| expr(e, each)),
        StmtKind::While { cond, body } => {
            expr(cond, each);
            block(body, each);
        }
        StmtKind::ForRange { from, to, body, .. } => {
            expr(from, each);
            expr(to, each);
            block(body, each);
        }
        StmtKind::ForMap { map, body, .. } => {
            expr(map, each);
            block(body, each);
        }
        StmtKind::Unroll { times, body } => {
            expr(times, each);
            block(body, each);
        }
        StmtKind::Break | StmtKind::Continue | StmtKind::Import(_) => {}
    }
}

fn arg<'a>(a: &'a Arg, each: &mut dyn FnMut(Node<'a>)) {
    match a {
        Arg::Expr(e) => expr(e, each),
        Arg::Type(t) => type_expr(t, each),
    }
}

fn type_expr<'a>(t: &'a TypeExpr, each: &mut dyn FnMut(Node<'a>)) {
    each(Node::Type(&t.base));
    match &t.base {
        TypeBase::Tuple(all) => all.iter().for_each(|t| type_expr(t, each)),
        // `typeof` does not evaluate its argument
        TypeBase::Typeof(_) | TypeBase::Name(_) | TypeBase::Struct(_) | TypeBase::Union(_) | TypeBase::Enum(_) => {}
    }
}

fn expr<'a>(e: &'a Expr, each: &mut dyn FnMut(Node<'a>)) {
    each(Node::Expr(e));
    match &e.kind {
        ExprKind::Int(_)
        | ExprKind::Str(_)
        | ExprKind::Bool(_)
        | ExprKind::Param(_)
        | ExprKind::ParamCount
        | ExprKind::Ident(_)
        | ExprKind::Var(_) => {}
        ExprKind::Map { key, .. } => key.iter().flatten().for_each(|e| expr(e, each)),
        ExprKind::Call { args, .. } => args.iter().for_each(|a| arg(a, each)),
        ExprKind::Field { base, .. } | ExprKind::TupleIndex { base, .. } => expr(base, each),
        ExprKind::Index { base, index } => {
            expr(base, each);
            expr(index, each);
        }
        ExprKind::Unary(_, inner) | ExprKind::Comptime(inner) => expr(inner, each),
        ExprKind::Cast(ty, inner) => {
            type_expr(ty, each);
            expr(inner, each);
        }
        ExprKind::Step { target, .. } => expr(target, each),
        ExprKind::Binary(_, a, b) => {
            expr(a, each);
            expr(b, each);
        }
        ExprKind::Ternary { cond, then, otherwise } => {
            expr(cond, each);
            if let Some(e) = then {
                expr(e, each);
            }
            expr(otherwise, each);
        }
        ExprKind::If { cond, then, otherwise } => {
            expr(cond, each);
            block(then, each);
            if let Some(b) = otherwise {
                block(b, each);
            }
        }
        ExprKind::Block(b) => block(b, each),
        ExprKind::Tuple(elems) => elems.iter().for_each(|e| expr(e, each)),
        ExprKind::Record(fields) => fields.iter().for_each(|(_, e)| expr(e, each)),
        ExprKind::Sizeof(a) | ExprKind::Offsetof(a, _) | ExprKind::Typeof(a) | ExprKind::Typeinfo(a) => arg(a, each),
    }
}
