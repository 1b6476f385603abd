//! The script's own functions. Each is checked once for each kind of site whose probe calls it, so a function can use a feature
//! of probes if all of its callers offer the feature.
//!
//! Types of parameters and results are explicit. `string` and `buffer` without a size, and pointers without an address space,
//! take those of the arguments and of the returned values.

use super::CheckContext;
use super::body::{BodyChecker, Checked, FinishedBody, State, VarState, error_expr};
use super::hir::{self, Expr, ExprKind, FunctionId, Node, StmtKind};
use super::maps::Maps;
use super::probes::Job;
use super::stmt::ends;
use super::types::{InferredType, WeakSign};
use crate::builtins;
use crate::builtins::options::ScriptOption;
use crate::diag::{Diagnostic, Span, plural};
use crate::probes::{Context, ProbeSite};
use crate::syntax::ast;
use crate::types::{Space, Type};

/// A function that a probe calls, directly or indirectly.
#[derive(Clone, Debug, PartialEq)]
pub struct Callee {
    /// Its index in the script.
    pub index: usize,
    /// Its first call.
    pub used: Span,
    /// The arguments, by parameter.
    pub params: Vec<InferredType>,
    /// The type of its result.
    pub result: InferredType,
    /// Its variables, parameters first.
    pub vars: Vec<VarState>,
    /// The functions that it calls, and the places of the calls.
    pub calls: Vec<(FunctionId, Span)>,
}

/// All functions that a probe calls, in the order in which they are found: the index is a [`FunctionId`].
pub struct Callees {
    known: Vec<Callee>,
    list: Vec<Callee>,
    /// Options of the script that they declare.
    pub options: Vec<ScriptOption>,
}

impl Callees {
    /// Empty; `known` is the result of the previous pass.
    pub fn new(known: &[Callee]) -> Self {
        Self { known: known.to_vec(), list: Vec::new(), options: Vec::new() }
    }

    /// The result of this pass.
    pub fn finish(self) -> Vec<Callee> {
        self.list
    }

    fn known(&self, index: usize) -> Option<&Callee> {
        self.known.iter().find(|c| c.index == index)
    }

    fn id(&mut self, index: usize, params: usize, span: Span) -> FunctionId {
        if let Some(id) = self.list.iter().position(|c| c.index == index) {
            return id;
        }
        let params = vec![InferredType::default(); params];
        self.list.push(Callee { index, used: span, params, result: InferredType::default(), vars: Vec::new(), calls: Vec::new() });
        self.list.len() - 1
    }
}

/// The function that is being checked.
#[derive(Clone, Debug)]
pub struct EnclosingFunction<'a> {
    /// Its ID.
    pub id: FunctionId,
    /// Its definition.
    pub function: &'a ast::Function,
    /// The place of its call.
    pub used: Span,
    /// The result type: as declared, or what the previous pass inferred for an open type. None if it is invalid.
    returns: Option<Type>,
    /// Was the result type declared in full?
    fixed: bool,
    /// The inferred type of the result.
    result: InferredType,
}

/// Does the use determine a part of this type?
fn open(ty: &Type) -> bool {
    matches!(ty, Type::Str(0) | Type::Buf(0) | Type::Ptr(_, Space::Unknown))
}

impl BodyChecker<'_> {
    /// A call of the script's function of this index.
    pub fn call_function(&mut self, index: usize, args: &[ast::Arg], span: Span) -> Expr {
        let Some(f) = self.env.functions.get(index).copied() else { return error_expr(span) };
        let id = self.callees.id(index, f.params.len(), span);
        if let Some(within) = &self.function {
            let caller = within.id;
            if let Some(c) = self.callees.list.get_mut(caller) {
                c.calls.push((id, span));
            }
        }
        let mut values = Vec::new();
        for arg in args {
            values.push(match arg {
                ast::Arg::Expr(e) => self.stored(e),
                ast::Arg::Type(t) => self.fail("no-value", t.span, "a function takes values, but this is a type"),
            });
        }
        if values.len() != f.params.len() {
            let (want, have) = (plural(f.params.len(), "argument", "arguments"), values.len());
            let d = Diagnostic::error("arity", span, format!("{} takes {want}, {have} given", f.name.name));
            self.report(d.related(f.name.span, "defined here"));
            return error_expr(span);
        }
        for (i, v) in values.iter().enumerate() {
            let weak = self.weakness(v);
            if let Some(p) = self.callees.list.get_mut(id).and_then(|c| c.params.get_mut(i)) {
                p.add(&v.ty, &weak, v.span);
            }
        }
        // In the first pass, the function is unknown.
        let Some(known) = self.callees.known(index).cloned() else { return error_expr(span) };
        let mut given = Vec::new();
        for ((value, (name, _)), var) in values.into_iter().zip(&f.params).zip(&known.vars) {
            let ty = var.declared.clone().unwrap_or_else(|| var.inferred.ty.clone());
            let target = InferredType { ty, weak_sign: WeakSign::No, span: name.span };
            given.push(self.assigned_value(value, &target, &format!("${}", name.name), var.declared.is_some()));
        }
        let declared = self.signature(f).map(|(_, returns)| returns);
        let ty = match declared {
            Some(ty) if !open(&ty) => ty,
            Some(ty) if known.result.ty == Type::Void => {
                if matches!(ty, Type::Ptr(..)) {
                    ty
                } else {
                    return error_expr(span);
                }
            }
            Some(_) => known.result.ty,
            None => return error_expr(span),
        };
        if given.len() != f.params.len() || given.iter().any(|e| e.ty == Type::Void) {
            return error_expr(span);
        }
        Expr { kind: ExprKind::CallFn(id, given), ty, span }
    }

    /// The declared types of its parameters and its result; none if a type is invalid.
    fn signature(&mut self, f: &ast::Function) -> Option<(Vec<Type>, Type)> {
        // A macro's names are not visible there.
        let frame = std::mem::replace(&mut self.frame, super::macros::Expansion::for_probe());
        let mut types: Vec<Option<Type>> = f.params.iter().map(|(_, t)| self.stored_type(t)).collect();
        let returns = self.stored_type(&f.returns);
        self.frame = frame;
        for ((name, t), ty) in f.params.iter().zip(&mut types) {
            if *ty == Some(Type::Void) {
                self.error("bad-type", t.span, format!("`${}` cannot be void", name.name));
                *ty = None;
            }
        }
        Some((types.into_iter().collect::<Option<_>>()?, returns?))
    }

    /// A written type as its values are stored: a struct is copied whole.
    fn stored_type(&mut self, t: &ast::TypeExpr) -> Option<Type> {
        let ty = self.type_expr(t)?;
        let Type::Struct(s) = &ty else { return Some(ty) };
        let record = self.env.sys.expand(s).map(|r| Type::Record(std::sync::Arc::new(r)));
        if record.is_none() {
            self.error("unknown-type", t.span, format!("the members of {ty} are unknown"));
        }
        record
    }

    /// `return` in a function.
    pub fn returned_value(&mut self, value: Option<&ast::Expr>, span: Span) -> Option<StmtKind> {
        let within = self.function.clone()?;
        let name = &within.function.name;
        let value = value.map(|e| self.stored(e));
        let Some(returns) = within.returns else { return Some(StmtKind::Return(None)) };
        let Some(value) = value else {
            if returns != Type::Void || !within.fixed {
                let d = Diagnostic::error(
                    "missing-return",
                    span,
                    format!("`{}` returns {}", name.name, self.written(&within.function.returns)),
                );
                self.report(d.related(within.function.returns.span, "declared here").help("write `return` and a value"));
            }
            return Some(StmtKind::Return(None));
        };
        if returns == Type::Void && within.fixed {
            let d = Diagnostic::error("type-mismatch", value.span, format!("`{}` returns nothing", name.name));
            self.report(d.related(within.function.returns.span, "declared here").help("declare its return type instead of `void`"));
            return Some(StmtKind::Return(None));
        }
        let weak = self.weakness(&value);
        if let Some(w) = &mut self.function {
            w.result.add(&value.ty, &weak, value.span);
        }
        let target = InferredType { ty: returns, weak_sign: WeakSign::No, span: within.function.returns.span };
        let value = self.assigned_value(value, &target, &format!("the result of {}", name.name), within.fixed);
        Some(StmtKind::Return(Some(value)))
    }

    fn written(&mut self, t: &ast::TypeExpr) -> String {
        match self.type_expr(t) {
            Some(Type::Str(0)) => "string".into(),
            Some(Type::Buf(0)) => "buffer".into(),
            Some(ty) => ty.to_string(),
            None => "a value".into(),
        }
    }

    /// Adds the probe from which a function was called to an error in the function.
    pub fn called_from(&self, d: Diagnostic) -> Diagnostic {
        match &self.function {
            Some(w) => d.related(w.used, format!("`{}` is called from {} here", w.function.name.name, self.site.name)),
            None => d,
        }
    }
}

/// Checks all functions that a probe is known to call, and those that they call in turn.
pub fn check_all(
    env: &CheckContext,
    maps: &mut Maps,
    site: &ProbeSite,
    context: &Context,
    callees: &mut Callees,
    diags: &mut Vec<Diagnostic>,
) -> Vec<hir::Function> {
    let mut done: Vec<hir::Function> = Vec::new();
    while let Some(callee) = callees.list.get(done.len()).cloned() {
        let Some(of) = env.functions.get(callee.index).copied() else { break };
        done.push(check_one(env, maps, (site, context), callees, diags, done.len(), of));
    }
    // A function may call functions that come after it.
    for _ in 0..done.len() {
        for (i, callee) in callees.list.iter().enumerate() {
            let stops = callee.calls.iter().any(|(to, _)| done.get(*to).is_some_and(|f| f.stops));
            if let Some(f) = done.get_mut(i) {
                f.stops |= stops;
            }
        }
    }
    done
}

/// Checks one of them; errors go to `diags`.
fn check_one(
    env: &CheckContext,
    maps: &mut Maps,
    caller: (&ProbeSite, &Context),
    callees: &mut Callees,
    diags: &mut Vec<Diagnostic>,
    id: FunctionId,
    of: &ast::Function,
) -> hir::Function {
    let (site, context) = caller;
    let Some(callee) = callees.list.get(id).cloned() else { crate::bug!("a function was found") };
    let known = callees.known(callee.index).cloned();
    let vars = known.as_ref().map(|k| k.vars.clone()).unwrap_or_default();
    let given = known.as_ref().map_or(&callee.params, |k| &k.params).clone();
    let mut body = BodyChecker::new(env, maps, site, context, &vars, callees, None);
    let signature = body.signature(of);
    let returns = signature.as_ref().map(|(_, r)| r.clone());
    let fixed = returns.as_ref().is_some_and(|r| !open(r));
    let returns = match returns {
        Some(r) if open(&r) => Some(known.map(|k| k.result.ty).filter(|ty| *ty != Type::Void).unwrap_or(match r {
            Type::Ptr(..) => r,
            _ => Type::Void,
        })),
        other => other,
    };
    body.function =
        Some(EnclosingFunction { id, function: of, used: callee.used, returns: returns.clone(), fixed, result: InferredType::default() });
    let types = signature.map(|(types, _)| types).unwrap_or_default();
    for (i, (name, t)) in of.params.iter().enumerate() {
        if body.find_var(&name.name).is_some() {
            body.error("redeclared", name.span, format!("`{}` has two parameters `${}`", of.name.name, name.name));
        }
        let declared = types.get(i).cloned();
        let var = body.declare(&name.name, declared.clone().filter(|ty| !open(ty)));
        let min = match declared {
            Some(Type::Str(0)) => Type::Str(1),
            Some(ty) => ty,
            None => Type::Void,
        };
        let given = given.get(i).cloned().unwrap_or_default();
        if let Some(v) = body.vars.get_mut(var) {
            v.inferred.add(&min, &WeakSign::No, t.span);
            if v.declared.is_none() {
                v.inferred.add(&given.ty, &given.weak_sign, t.span);
            }
            v.set = true;
        }
        if let Some(done) = body.assigned.get_mut(var) {
            *done = true;
        }
    }
    let stmts = body.block(&of.body);
    if returns.as_ref().is_some_and(|r| *r != Type::Void || !fixed) && !stmts.last().is_some_and(ends) {
        let at = Span { start: of.body.span.end.saturating_sub(1), ..of.body.span };
        let d = Diagnostic::error("missing-return", at, format!("`{}` can end here without returning a value", of.name.name));
        let d = d.related(of.returns.span, "it is declared to return one");
        let value = of.body.value.is_some();
        body.report(d.help(if value { "write `return` before the last expression" } else { "end it with `return` and a value" }));
    }
    let result = body.function.as_ref().map(|w| w.result.clone()).unwrap_or_default();
    let FinishedBody { vars, states, diags: mut found, mut options } = body.finish();
    diags.append(&mut found);
    callees.options.append(&mut options);
    if let Some(c) = callees.list.get_mut(id) {
        (c.vars, c.result) = (states, result);
    }
    let stops = stops(&stmts);
    let returns = returns.unwrap_or(Type::Void);
    hir::Function { name: of.name.name.clone(), params: of.params.len(), vars, body: stmts, returns, stops, span: of.span }
}

fn stops(body: &[hir::Stmt]) -> bool {
    let mut found = false;
    hir::visit(body, &mut |n| {
        found |= matches!(n, Node::Expr(Expr { kind: ExprKind::Call(call), .. }) if builtins::ends_probe(call.row));
    });
    found
}

/// Checks functions that no probe calls, as if the first probe called them, to find their errors. Returns true if the
/// types changed.
pub fn check_unused(
    env: &CheckContext,
    maps: &mut Maps,
    jobs: &[Job],
    states: &mut [State],
    results: &[Vec<Checked>],
) -> (Vec<Diagnostic>, bool) {
    let (mut all, mut changed) = (Vec::new(), false);
    let Some((job, (first, context))) = jobs.first().and_then(|j| Some((j, j.contexts.first()?))) else { return (all, changed) };
    let Some(site) = job.sites.get(*first) else { return (all, changed) };
    for (index, (f, state)) in env.functions.iter().zip(states).enumerate() {
        let called = results.iter().flatten().flat_map(|c| &c.state.callees).any(|c| c.index == index);
        if called {
            continue;
        }
        let mut callees = Callees::new(&state.callees);
        callees.id(index, f.params.len(), f.name.span);
        let mut diags = Vec::new();
        check_all(env, maps, site, context, &mut callees, &mut diags);
        // A feature that a probe lacks is not this function's fault.
        all.extend(diags.into_iter().filter(|d| !matches!(d.code, "unsupported-in-probe" | "bad-arg" | "unknown-field")));
        let found = State { vars: Vec::new(), callees: callees.finish(), ..State::default() };
        changed |= *state != found;
        *state = found;
    }
    (all, changed)
}

/// Reports functions that call themselves, directly or indirectly.
pub fn recursion(env: &CheckContext, states: &[&State], diags: &mut Vec<Diagnostic>) {
    for state in states {
        let callees = &state.callees;
        for (id, callee) in callees.iter().enumerate() {
            let mut seen = vec![false; callees.len()];
            let mut way: Vec<(FunctionId, Span)> = callee.calls.clone();
            while let Some((to, span)) = way.pop() {
                if to == id {
                    let name = env.functions.get(callee.index).map_or("", |f| f.name.name.as_str());
                    let d = Diagnostic::error("recursion", span, format!("`{name}` calls itself"));
                    diags.push(d.help("BPF programs do not support recursion: use a loop, `for $i : 0..n { … }`"));
                    break;
                }
                let Some(next) = seen.get_mut(to).filter(|s| !**s) else { continue };
                *next = true;
                // The error points at the call within the function itself.
                way.extend(callees.get(to).iter().flat_map(|c| &c.calls).map(|(next, _)| (*next, span)));
            }
        }
    }
}

/// Reports functions with the same name.
pub fn duplicates(functions: &[&ast::Function], diags: &mut Vec<Diagnostic>) {
    for (i, f) in functions.iter().enumerate() {
        if let Some(first) = functions.iter().take(i).find(|o| o.name.name == f.name.name) {
            let d = Diagnostic::error("redeclared", f.name.span, format!("the function `{}` exists already", f.name.name));
            diags.push(d.related(first.name.span, "here"));
        }
    }
}
