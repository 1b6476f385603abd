//! What code generation relies on: values are typed, and what is stored has its target's type.

use super::super::hir::{Call, CallArg, Expr, ExprKind, Probe, Script, Stmt, StmtKind};
use crate::types::Type;

pub fn holds(script: &Script) {
    for p in &script.probes {
        assert!(!p.sites.is_empty());
        assert!(p.vars.iter().all(|v| v.ty != Type::Void), "{:?}", p.vars);
        stmts(&p.body, p, script);
        functions(p, script);
    }
    assert!(script.maps.iter().all(|m| m.value != Type::Void && m.key != Some(Type::Void)), "{:?}", script.maps);
}

/// A function's statements are checked as if they belonged to a probe, except for their results.
fn functions(p: &Probe, script: &Script) {
    for f in &p.functions {
        assert!(f.vars.iter().all(|v| v.ty != Type::Void) && f.params <= f.vars.len(), "{:?}", f.vars);
        let sites = p.sites.clone();
        let of = Probe {
            sites,
            vars: f.vars.clone(),
            body: Vec::new(),
            functions: p.functions.clone(),
            span: f.span,
            points: Default::default(),
            lowered: None,
            why: "".into(),
        };
        super::super::hir::visit(&f.body, &mut |n| {
            if let super::super::hir::Node::Stmt(Stmt { kind: StmtKind::Return(value), .. }) = n {
                assert_eq!(value.as_ref().map_or(&Type::Void, |e| &e.ty), &f.returns);
            }
        });
        let body: Vec<Stmt> = f.body.iter().filter(|s| !matches!(s.kind, StmtKind::Return(_))).cloned().collect();
        stmts(&body, &of, script);
    }
}

fn stmts(body: &[Stmt], p: &Probe, s: &Script) {
    for stmt in body {
        match &stmt.kind {
            StmtKind::Expr(e) => match &e.kind {
                ExprKind::Call(c) => call(c, p, s),
                ExprKind::CallFn(_, args) | ExprKind::CallForeign(_, args) => args.iter().for_each(|e| value(e, p, s)),
                _ => value(e, p, s),
            },
            StmtKind::SetVar(v, e) => {
                assert_eq!(p.vars[*v].ty, e.ty);
                value(e, p, s);
            }
            StmtKind::ZeroVar(v) => assert!(*v < p.vars.len()),
            StmtKind::SetMap { map, key, value: e } => {
                assert_eq!(s.maps[*map].value, e.ty);
                keyed(*map, key.as_ref(), p, s);
                value(e, p, s);
            }
            StmtKind::Aggregate { map, key, call: c } => {
                assert!(matches!(s.maps[*map].value, Type::Agg(_)));
                keyed(*map, key.as_ref(), p, s);
                call(c, p, s);
            }
            StmtKind::If { cond, then, else_: otherwise } => {
                condition(cond, p, s);
                stmts(then, p, s);
                stmts(otherwise, p, s);
            }
            StmtKind::Repeat { body, .. } | StmtKind::ForMap { body, .. } => stmts(body, p, s),
            StmtKind::While { cond, body } => {
                condition(cond, p, s);
                stmts(body, p, s);
            }
            StmtKind::ForRange { from, to, body, .. } => {
                value(from, p, s);
                value(to, p, s);
                stmts(body, p, s);
            }
            StmtKind::Break | StmtKind::Continue | StmtKind::Return(None) => {}
            StmtKind::Return(Some(e)) => value(e, p, s),
        }
    }
}

fn condition(e: &Expr, p: &Probe, s: &Script) {
    assert_eq!(e.ty, Type::Bool);
    value(e, p, s);
}

fn keyed(map: usize, key: Option<&Expr>, p: &Probe, s: &Script) {
    assert_eq!(s.maps[map].key.as_ref(), key.map(|k| &k.ty), "{key:?}");
    if let Some(k) = key {
        value(k, p, s);
    }
}

fn call(c: &Call, p: &Probe, s: &Script) {
    for a in &c.args {
        match a {
            CallArg::Value(e) => value(e, p, s),
            CallArg::Element(m, k) => keyed(*m, Some(k), p, s),
            CallArg::Map(_) | CallArg::Word(_) | CallArg::Type(_) => {}
        }
    }
}

fn value(e: &Expr, p: &Probe, s: &Script) {
    assert_ne!(e.ty, Type::Void, "{e:?}");
    match &e.kind {
        ExprKind::Int(_) => assert!(e.ty.is_scalar(), "{e:?}"),
        ExprKind::Str(t) => assert!(matches!(e.ty, Type::Str(n) if n as usize > t.len())),
        ExprKind::Var(v) => assert_eq!(p.vars[*v].ty, e.ty),
        ExprKind::Map(m, k) => {
            assert_eq!(s.maps[*m].value, e.ty);
            keyed(*m, k.as_deref(), p, s);
        }
        ExprKind::ReadAgg(m, k) | ExprKind::StepMap { map: m, key: k, .. } => keyed(*m, k.as_deref(), p, s),
        ExprKind::StepVar { var, .. } => assert!(p.vars[*var].ty.is_scalar()),
        ExprKind::Context(_) => {}
        ExprKind::Field(b, _) | ExprKind::Deref(b, _) | ExprKind::Unary(_, b) | ExprKind::AddrOf(b) | ExprKind::Cast(b, _) => {
            value(b, p, s)
        }
        ExprKind::Index(a, b) => {
            value(a, p, s);
            value(b, p, s);
        }
        ExprKind::Binary(_, a, b) => {
            if a.ty.is_scalar() && !matches!(a.ty, Type::Ptr(..)) {
                assert_eq!(a.ty, b.ty, "{e:?}");
            }
            value(a, p, s);
            value(b, p, s);
        }
        ExprKind::Cond(c, a, b) => {
            condition(c, p, s);
            assert_eq!((&a.ty, &b.ty), (&e.ty, &e.ty));
            value(a, p, s);
            value(b, p, s);
        }
        ExprKind::CallForeign(_, args) => args.iter().for_each(|e| value(e, p, s)),
        ExprKind::CallFn(f, args) => {
            assert_eq!(p.functions[*f].returns, e.ty);
            assert_eq!(args.len(), p.functions[*f].params);
            for (a, v) in args.iter().zip(&p.functions[*f].vars) {
                assert_eq!(a.ty, v.ty);
                value(a, p, s);
            }
        }
        ExprKind::Block(body, v) => {
            stmts(body, p, s);
            value(v, p, s);
        }
        ExprKind::Tuple(elems) => {
            match &e.ty {
                Type::Record(r) => assert!(r.fields.iter().map(|f| &f.ty).eq(elems.iter().map(|e| &e.ty))),
                ty => assert_eq!(*ty, Type::Tuple(elems.iter().map(|e| e.ty.clone()).collect())),
            }
            elems.iter().for_each(|e| value(e, p, s));
        }
        ExprKind::Call(c) => call(c, p, s),
    }
}
