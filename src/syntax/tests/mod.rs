//! The trees of scripts, as text with explicit parentheses.

use super::ast::*;
use super::*;

fn source(text: &str) -> Source {
    Source { name: "t".into(), text: text.into() }
}

fn script(text: &str) -> Script {
    match parse(&source(text)) {
        Ok(script) => script,
        Err(diags) => panic!("{text}\n{:#?}", diags.0),
    }
}

/// Codes, places as `line:col`, and messages.
fn errors(text: &str) -> Vec<String> {
    let source = source(text);
    let Err(diags) = parse(&source) else { panic!("accepted: {text}") };
    let line = |d: &Diagnostic| {
        let (line, col) = source.line_col(d.span.start);
        format!("{} {line}:{col} {}", d.code, d.message)
    };
    diags.0.iter().map(line).collect()
}

fn probe(text: &str) -> Probe {
    match script(text).items.into_iter().next() {
        Some(Item::Probe(probe)) => probe,
        other => panic!("{other:?}"),
    }
}

/// The only expression of a block.
fn value(block: Block) -> Expr {
    match block {
        Block { stmts, value: Some(value), .. } if stmts.is_empty() => *value,
        other => panic!("{other:?}"),
    }
}

fn expr(text: &str) -> String {
    show(&value(probe(&format!("begin {{ {text} }}")).body))
}

fn body(text: &str) -> String {
    show_block(&probe(&format!("begin {{ {text} }}")).body)
}

fn list<T>(items: &[T], f: impl Fn(&T) -> String) -> String {
    items.iter().map(f).collect::<Vec<_>>().join(", ")
}

fn show_arg(arg: &Arg) -> String {
    match arg {
        Arg::Expr(e) => show(e),
        Arg::Type(t) => format!("<{}>", show_type(t)),
    }
}

fn show_type(ty: &TypeExpr) -> String {
    let base = match &ty.base {
        TypeBase::Name(n) => n.clone(),
        TypeBase::Struct(n) => format!("struct {n}"),
        TypeBase::Union(n) => format!("union {n}"),
        TypeBase::Enum(n) => format!("enum {n}"),
        TypeBase::Typeof(a) => format!("typeof({})", show_arg(a)),
        TypeBase::Tuple(ts) => format!("({})", list(ts, show_type)),
    };
    let suffix = |s: &TypeSuffix| match s {
        TypeSuffix::Pointer => "*".to_string(),
        TypeSuffix::Array(None) => "[]".to_string(),
        TypeSuffix::Array(Some(n)) => format!("[{}]", show(n)),
    };
    base + &ty.suffixes.iter().map(suffix).collect::<String>()
}

fn show(e: &Expr) -> String {
    match &e.kind {
        ExprKind::Int(n) => n.to_string(),
        ExprKind::Str(s) => format!("{:?}", String::from_utf8_lossy(s)),
        ExprKind::Bool(b) => b.to_string(),
        ExprKind::Param(n) => format!("${n}"),
        ExprKind::ParamCount => "$#".into(),
        ExprKind::Ident(n) => n.clone(),
        ExprKind::Var(n) => format!("${n}"),
        ExprKind::Map { name, key: None } => format!("@{name}"),
        ExprKind::Map { name, key: Some(k) } => format!("@{name}{{{}}}", list(k, show)),
        ExprKind::Call { name, args } => format!("{}({})", name.name, list(args, show_arg)),
        ExprKind::Field { base, name } => format!("{}.{}", show(base), name.name),
        ExprKind::TupleIndex { base, index } => format!("{}.{index}", show(base)),
        ExprKind::Index { base, index } => format!("{}[{}]", show(base), show(index)),
        ExprKind::Unary(op, e) => {
            let op = match op {
                UnOp::Not => "!",
                UnOp::BitNot => "~",
                UnOp::Neg => "-",
                UnOp::Deref => "*",
                UnOp::AddrOf => "&",
            };
            format!("({op}{})", show(e))
        }
        ExprKind::Step { target, increment: up, post } => {
            let op = if *up { "++" } else { "--" };
            if *post { format!("({}{op})", show(target)) } else { format!("({op}{})", show(target)) }
        }
        ExprKind::Binary(op, a, b) => format!("({} {} {})", show(a), op.symbol(), show(b)),
        ExprKind::Ternary { cond, then: Some(then), otherwise } => {
            format!("({} ? {} : {})", show(cond), show(then), show(otherwise))
        }
        ExprKind::Ternary { cond, then: None, otherwise } => format!("({} ?: {})", show(cond), show(otherwise)),
        ExprKind::If { cond, then, otherwise } => {
            let tail = otherwise.as_ref().map_or(String::new(), |b| format!(" else {}", show_block(b)));
            format!("if {} {}{tail}", show(cond), show_block(then))
        }
        ExprKind::Block(b) => show_block(b),
        ExprKind::Cast(t, e) => format!("(<{}>{})", show_type(t), show(e)),
        ExprKind::Tuple(es) => format!("tuple({})", list(es, show)),
        ExprKind::Record(ms) => format!("record({})", list(ms, |(n, e)| format!("{}={}", n.name, show(e)))),
        ExprKind::Sizeof(a) => format!("sizeof({})", show_arg(a)),
        ExprKind::Offsetof(a, ms) => format!("offsetof({}, {})", show_arg(a), list(ms, |m| m.name.clone())),
        ExprKind::Typeof(a) => format!("typeof({})", show_arg(a)),
        ExprKind::Typeinfo(a) => format!("typeinfo({})", show_arg(a)),
        ExprKind::Comptime(e) => format!("(comptime {})", show(e)),
    }
}

fn show_block(b: &Block) -> String {
    let mut parts: Vec<String> = b.stmts.iter().map(|s| show_stmt(s) + ";").collect();
    parts.extend(b.value.iter().map(|e| show(e)));
    format!("{{{}}}", parts.join(" "))
}

fn show_stmt(s: &Stmt) -> String {
    match &s.kind {
        StmtKind::Expr(e) => show(e),
        StmtKind::Discard(e) => format!("_ = {}", show(e)),
        StmtKind::Assign { target, op, value } => {
            format!("{} {}= {}", show(target), op.map_or("", BinOp::symbol), show(value))
        }
        StmtKind::Let { var, ty, value } => {
            let ty = ty.as_ref().map_or(String::new(), |t| format!(": {}", show_type(t)));
            let value = value.as_ref().map_or(String::new(), |e| format!(" = {}", show(e)));
            format!("let ${}{ty}{value}", var.name)
        }
        StmtKind::While { cond, body } => format!("while {} {}", show(cond), show_block(body)),
        StmtKind::ForRange { var, from, to, body } => {
            format!("for ${} : {}..{} {}", var.name, show(from), show(to), show_block(body))
        }
        StmtKind::ForMap { var, map, body } => format!("for ${} : {} {}", var.name, show(map), show_block(body)),
        StmtKind::Unroll { times, body } => format!("unroll {} {}", show(times), show_block(body)),
        StmtKind::Break => "break".into(),
        StmtKind::Continue => "continue".into(),
        StmtKind::Return(None) => "return".into(),
        StmtKind::Return(Some(e)) => format!("return {}", show(e)),
        StmtKind::Import(s) => format!("import {s:?}"),
    }
}

fn points(text: &str) -> Vec<String> {
    let point = |p: &AttachPoint| {
        let segments: Vec<String> = p.segments.iter().map(|s| if s.quoted { format!("'{}'", s.text) } else { s.text.clone() }).collect();
        let name = p.name.as_ref().map_or(String::new(), |n| format!("{}=", n.name));
        name + &segments.join("|")
    };
    probe(text).points.iter().map(point).collect()
}

mod expressions;
mod faults;
mod items;
mod limits;
