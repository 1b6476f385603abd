//! The checked script as text, for `-d hir` and for tests: close to the language, with types where they are not obvious.

use std::fmt::Write;

use super::hir::{Call, CallArg, Expr, ExprKind, Function, Map, Probe, Script, Stmt, StmtKind, Var};
use crate::probes::ArgRef;
use crate::syntax::ast::UnOp;
use crate::types::Type;

/// The whole script. Lines end with a newline.
pub fn dump(script: &Script) -> String {
    let mut out = String::new();
    for m in &script.maps {
        let key = m.key.as_ref().map(|k| format!("[{k}]")).unwrap_or_default();
        let lru = if m.lru { ", lru" } else { "" };
        let _ = writeln!(out, "map {}{key}: {}, {} entries{lru}", m.name, m.value, m.max_entries);
    }
    for p in &script.probes {
        let mut d = Dump { maps: &script.maps, functions: &p.functions, vars: &p.vars, out: &mut out, depth: 0 };
        d.probe(p);
        for f in &p.functions {
            let mut d = Dump { maps: &script.maps, functions: &p.functions, vars: &f.vars, out: &mut out, depth: 1 };
            d.function(f);
        }
    }
    out
}

struct Dump<'a> {
    maps: &'a [Map],
    functions: &'a [Function],
    vars: &'a [Var],
    out: &'a mut String,
    depth: usize,
}

impl Dump<'_> {
    fn probe(&mut self, probe: &Probe) {
        const SHOWN: usize = 8;
        for site in probe.sites.iter().take(SHOWN) {
            let _ = writeln!(self.out, "{}", site.name);
        }
        if probe.sites.len() > SHOWN {
            let _ = writeln!(self.out, "… and {} more", probe.sites.len() - SHOWN);
        }
        self.line("{");
        self.body(0, &probe.body);
    }

    fn function(&mut self, f: &Function) {
        let params: Vec<String> = f.vars.iter().take(f.params).map(|v| format!("{}: {}", v.name, v.ty)).collect();
        self.line(&format!("fn {}({}): {} {{", f.name, params.join(", "), f.returns));
        self.body(f.params, &f.body);
    }

    fn body(&mut self, params: usize, body: &[Stmt]) {
        self.depth += 1;
        for (i, v) in self.vars.iter().enumerate().skip(params) {
            let line = format!("let {}: {};", self.var_name(i), v.ty);
            self.line(&line);
        }
        self.stmts(body);
        self.depth -= 1;
        self.line("}");
    }

    fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{:1$}{text}", "", self.depth * 2);
    }

    fn var_name(&self, id: usize) -> String {
        let Some(v) = self.vars.get(id) else { return format!("${id}") };
        let twins = self.vars.iter().filter(|o| o.name == v.name).count();
        if twins > 1 { format!("{}#{id}", v.name) } else { v.name.clone() }
    }

    fn map_name(&self, id: usize, key: Option<&Expr>) -> String {
        let name = self.maps.get(id).map_or_else(|| format!("@#{id}"), |m| m.name.clone());
        match key {
            Some(k) => format!("{name}[{}]", self.expr(k)),
            None => name,
        }
    }

    fn block(&mut self, head: &str, body: &[Stmt]) {
        self.line(&format!("{head} {{"));
        self.depth += 1;
        self.stmts(body);
        self.depth -= 1;
        self.line("}");
    }

    fn stmts(&mut self, body: &[Stmt]) {
        for s in body {
            self.stmt(s);
        }
    }

    fn stmt(&mut self, s: &Stmt) {
        let text = match &s.kind {
            StmtKind::Expr(e) => format!("{};", self.expr(e)),
            StmtKind::SetVar(v, e) => format!("{} = {};", self.var_name(*v), self.expr(e)),
            StmtKind::ZeroVar(v) => format!("{} = zero;", self.var_name(*v)),
            StmtKind::SetMap { map, key, value } => format!("{} = {};", self.map_name(*map, key.as_ref()), self.expr(value)),
            StmtKind::Aggregate { map, key, call } => format!("{} <- {};", self.map_name(*map, key.as_ref()), self.call(call)),
            StmtKind::If { cond, then, else_: otherwise } => {
                self.block(&format!("if {}", self.expr(cond)), then);
                if !otherwise.is_empty() {
                    self.block("else", otherwise);
                }
                return;
            }
            StmtKind::Repeat { times, body, .. } => return self.block(&format!("unroll({times})"), body),
            StmtKind::While { cond, body } => return self.block(&format!("while {}", self.expr(cond)), body),
            StmtKind::ForRange { var, from, to, body } => {
                let head = format!("for {} : {}..{}", self.var_name(*var), self.expr(from), self.expr(to));
                return self.block(&head, body);
            }
            StmtKind::ForMap { var, map, body } => {
                return self.block(&format!("for {} : {}", self.var_name(*var), self.map_name(*map, None)), body);
            }
            StmtKind::Break => "break;".into(),
            StmtKind::Continue => "continue;".into(),
            StmtKind::Return(None) => "return;".into(),
            StmtKind::Return(Some(e)) => format!("return {};", self.expr(e)),
        };
        self.line(&text);
    }

    fn expr(&self, e: &Expr) -> String {
        match &e.kind {
            ExprKind::Int(n) if e.ty == Type::Bool => (*n != 0).to_string(),
            ExprKind::Int(n) if e.ty.as_int().is_some_and(|i| i.signed) => (*n as i64).to_string(),
            ExprKind::Int(n) => n.to_string(),
            ExprKind::Str(s) => format!("{:?}", String::from_utf8_lossy(s)),
            ExprKind::Var(v) => self.var_name(*v),
            ExprKind::Map(m, key) => self.map_name(*m, key.as_deref()),
            ExprKind::ReadAgg(m, key) => format!("read({})", self.map_name(*m, key.as_deref())),
            ExprKind::Context(which) => match which {
                ArgRef::Index(n) => format!("arg{n}"),
                ArgRef::Retval => "retval".into(),
                ArgRef::Ctx => "ctx".into(),
                ArgRef::Func => "func".into(),
                ArgRef::All(_) => "args".into(),
                ArgRef::Named(f) => format!("args.{}", f.field.name),
            },
            ExprKind::Field(base, field) => format!("{}.{}", self.expr(base), field.name),
            ExprKind::Deref(inner, space) => format!("*{}:{}", format!("{space:?}").to_lowercase(), self.expr(inner)),
            ExprKind::Index(base, index) => format!("{}[{}]", self.expr(base), self.expr(index)),
            ExprKind::Unary(op, inner) => {
                let sign = match op {
                    UnOp::Not => "!",
                    UnOp::BitNot => "~",
                    UnOp::Neg => "-",
                    UnOp::Deref => "*",
                    UnOp::AddrOf => "&",
                };
                format!("{sign}{}", self.expr(inner))
            }
            ExprKind::AddrOf(inner) => format!("&{}", self.expr(inner)),
            ExprKind::Binary(op, a, b) => format!("({} {} {})", self.expr(a), op.symbol(), self.expr(b)),
            ExprKind::Cond(c, a, b) => format!("({} ? {} : {})", self.expr(c), self.expr(a), self.expr(b)),
            ExprKind::Block(stmts, value) => {
                let mut text = String::new();
                let mut inner = Dump { maps: self.maps, functions: self.functions, vars: self.vars, out: &mut text, depth: 0 };
                inner.stmts(stmts);
                format!("{{ {} {} }}", text.lines().map(str::trim).collect::<Vec<_>>().join(" "), self.expr(value))
            }
            ExprKind::Cast(inner, _) => format!("({}){}", e.ty, self.expr(inner)),
            ExprKind::Tuple(elems) if matches!(e.ty, Type::Record(_)) => {
                let Type::Record(r) = &e.ty else { return String::new() };
                let fields = r.fields.iter().zip(elems).map(|(f, e)| format!("{} = {}", f.name, self.expr(e)));
                format!("({})", fields.collect::<Vec<_>>().join(", "))
            }
            ExprKind::Tuple(elems) => format!("({})", elems.iter().map(|e| self.expr(e)).collect::<Vec<_>>().join(", ")),
            ExprKind::StepVar { var, by, post } => step(&self.var_name(*var), *by, *post),
            ExprKind::StepMap { map, key, by, post } => step(&self.map_name(*map, key.as_deref()), *by, *post),
            ExprKind::Call(call) => self.call(call),
            ExprKind::CallForeign(f, args) => {
                format!("{}({})", f.name, args.iter().map(|e| self.expr(e)).collect::<Vec<_>>().join(", "))
            }
            ExprKind::CallFn(f, args) => {
                let name = self.functions.get(*f).map_or("?", |f| f.name.as_str());
                format!("{name}({})", args.iter().map(|e| self.expr(e)).collect::<Vec<_>>().join(", "))
            }
        }
    }

    fn call(&self, call: &Call) -> String {
        let args: Vec<String> = call
            .args
            .iter()
            .map(|a| match a {
                CallArg::Value(e) => self.expr(e),
                CallArg::Map(m) => self.map_name(*m, None),
                CallArg::Element(m, key) => self.map_name(*m, Some(key)),
                CallArg::Word(w) => w.clone(),
                CallArg::Type(ty) => ty.to_string(),
            })
            .collect();
        format!("{}({})", call.row.name, args.join(", "))
    }
}

fn step(name: &str, delta: i64, post: bool) -> String {
    if post { format!("({name} then += {delta})") } else { format!("({name} += {delta})") }
}
