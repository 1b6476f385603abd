//! Checks one body (of a probe, or of a function that it calls) for one kind of site: names and scopes.

#![allow(clippy::wildcard_enum_match_arm)] // matches on one variant; the others are rejected

use std::collections::{BTreeMap, BTreeSet};

use super::CheckContext;
use super::functions::{self, Callee, Callees, EnclosingFunction};
use super::hir::{Expr, ExprKind, Stmt, StmtKind, Var, VarId};
use super::macros::Expansion;
use super::maps::Maps;
use super::types::{InferredType, WeakSign};
use crate::builtins::options::ScriptOption;
use crate::diag::{Diagnostic, Span};
use crate::probes::{Context, ProbeSite};
use crate::syntax::ast::{self, MAX_HEIGHT};
use crate::types::{Space, Type};

/// Maximum number of expressions in a body after macro expansion. LLVM may take half a minute and a gigabyte for them.
pub const MAX_STEPS: u64 = 1 << 18;
/// Maximum height of an expression's tree after macro expansion, which limits the stack. It has room for macros in the highest tree
/// that the parser accepts.
const MAX_EXPANDED_HEIGHT: usize = MAX_HEIGHT + 100;
/// Maximum number of nested macros that a diagnostic names.
const MAX_USAGES: usize = 8;

/// A scratch variable while its type is inferred.
#[derive(Clone, Debug, PartialEq)]
pub struct VarState {
    /// With its `$`.
    pub name: String,
    /// Type from all assignments.
    pub inferred: InferredType,
    /// Given by `let $x: T`.
    pub declared: Option<Type>,
    /// Declared without size or address space, which the assigned values determine later.
    pub opaque: Option<Type>,
    /// Something is assigned to it, whether or not its type is known.
    pub set: bool,
    /// The place of a declaration without a value.
    pub empty: Option<Span>,
}

impl VarState {
    /// The type as far as it is known.
    fn resolved_type(&self) -> Type {
        match (&self.declared, &self.opaque) {
            (Some(ty), _) => ty.clone(),
            (None, Some(blank)) if self.inferred.ty == Type::Void => blank.clone(),
            (None, _) => self.inferred.ty.clone(),
        }
    }
}

/// A variable that the checker creates.
struct HiddenVar {
    var: Var,
    /// What yields its sign.
    weak_sign: WeakSign,
}

/// A body being checked.
pub struct BodyChecker<'a> {
    /// The context that the whole check shares.
    pub env: &'a CheckContext<'a>,
    /// The script's maps.
    pub maps: &'a mut Maps,
    /// The site for which it is checked.
    pub site: &'a ProbeSite,
    /// The features of that site.
    pub context: &'a Context,
    /// Variables as the previous pass found them, by declaration.
    pub known: &'a [VarState],
    /// Variables as this pass finds them.
    pub vars: Vec<VarState>,
    /// Variables that the checker creates; their ids follow the script's own.
    hidden: Vec<HiddenVar>,
    /// Visible names.
    pub frame: Expansion,
    /// Which variables have been assigned so far, by id.
    pub assigned: Vec<bool>,
    /// The errors and warnings so far.
    pub diags: Vec<Diagnostic>,
    /// Options of the script that calls declare.
    pub options: Vec<ScriptOption>,
    /// Number of loops around the current statement.
    pub loops: u32,
    /// How often the enclosing `unroll`s repeat the current statement.
    pub unroll_factor: u64,
    /// Number of expressions and uses of macros that were checked so far.
    steps: u64,
    /// Number of those around the current one.
    height: usize,
    /// Number of enclosing `comptime`s.
    pub comptime: u32,
    /// `for` loops among them, whose bodies are separate functions.
    pub fors: u32,
    /// The script's functions that the probe calls.
    pub callees: &'a mut Callees,
    /// The function that is being checked; none for the probe's own body.
    pub function: Option<EnclosingFunction<'a>>,
    /// See [`State::outer_reads`]: the result of this pass.
    outer_reads: BTreeMap<String, Span>,
    /// Names of variables that the body declares itself, rather than a macro in it.
    declared: BTreeSet<String>,
}

/// The results of a pass over a body, for the next pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Its variables, by declaration.
    pub vars: Vec<VarState>,
    /// The functions it calls.
    pub callees: Vec<Callee>,
    /// Variables that are read outside the block that assigns them, and where: they belong to the whole body.
    pub outer_reads: BTreeMap<String, Span>,
}

/// The result of checking a body.
pub struct FinishedBody {
    /// Its variables.
    pub vars: Vec<Var>,
    /// Their states.
    pub states: Vec<VarState>,
    /// Errors and warnings.
    pub diags: Vec<Diagnostic>,
    /// Options of the script.
    pub options: Vec<ScriptOption>,
}

/// The result of checking a probe's body.
pub struct Checked {
    /// Its variables.
    pub vars: Vec<Var>,
    /// Statements, including the predicate.
    pub body: Vec<Stmt>,
    /// The functions it calls.
    pub functions: Vec<super::hir::Function>,
    /// For the next pass.
    pub state: State,
    /// Errors and warnings.
    pub diags: Vec<Diagnostic>,
    /// Options of the script that calls declare.
    pub options: Vec<ScriptOption>,
}

impl<'a> BodyChecker<'a> {
    /// Checks a probe's body.
    pub fn check(
        env: &'a CheckContext<'a>,
        maps: &'a mut Maps,
        site: &'a ProbeSite,
        context: &'a Context,
        known: &'a State,
        probe: &ast::Probe,
    ) -> Checked {
        let mut callees = Callees::new(&known.callees);
        let mut body = BodyChecker::new(env, &mut *maps, site, context, &known.vars, &mut callees, None);
        for (name, span) in &known.outer_reads {
            body.declare(name, None);
            let message = format!("`${name}` is read outside the block that assigns it");
            body.report(Diagnostic::warning("deprecated", *span, message).help(format!("declare it before that block: `let ${name};`")));
        }
        let cond = probe.predicate.as_ref().map(|p| body.condition(p));
        let stmts = body.block(&probe.body);
        let stmts = match cond {
            Some(cond) => {
                let span = cond.span;
                vec![Stmt { kind: StmtKind::If { cond, then: stmts, else_: Vec::new() }, span }]
            }
            None => stmts,
        };
        let mut spread = known.outer_reads.clone();
        spread.extend(std::mem::take(&mut body.outer_reads));
        let FinishedBody { vars, states, mut diags, mut options } = body.finish();
        let functions = functions::check_all(env, maps, site, context, &mut callees, &mut diags);
        options.append(&mut callees.options);
        // With other variables before them, the states of these are useless.
        let vars_now = if spread.len() == known.outer_reads.len() { states } else { Vec::new() };
        let state = State { vars: vars_now, callees: callees.finish(), outer_reads: spread };
        Checked { vars, body: stmts, functions, state, diags, options }
    }

    /// An unchecked body.
    pub fn new(
        env: &'a CheckContext<'a>,
        maps: &'a mut Maps,
        site: &'a ProbeSite,
        context: &'a Context,
        known: &'a [VarState],
        callees: &'a mut Callees,
        function: Option<EnclosingFunction<'a>>,
    ) -> Self {
        BodyChecker {
            env,
            maps,
            site,
            context,
            known,
            vars: Vec::new(),
            hidden: Vec::new(),
            frame: Expansion::for_probe(),
            assigned: Vec::new(),
            diags: Vec::new(),
            options: Vec::new(),
            loops: 0,
            unroll_factor: 1,
            steps: 0,
            height: 0,
            comptime: 0,
            fors: 0,
            callees,
            function,
            outer_reads: BTreeMap::new(),
            declared: BTreeSet::new(),
        }
    }

    /// The results, after all of it has been checked.
    pub fn finish(mut self) -> FinishedBody {
        for (id, var) in self.vars.clone().into_iter().enumerate() {
            // a variable that is read has been reported already
            if let Some(span) = var.empty.filter(|_| !var.set && self.assigned.get(id) == Some(&false)) {
                self.warn("unset-variable", span, format!("`{}` is never assigned", var.name));
            }
        }
        let mut vars: Vec<Var> = self.vars.iter().map(|v| Var { name: v.name.clone(), ty: v.resolved_type() }).collect();
        vars.extend(self.hidden.drain(..).map(|hidden| hidden.var));
        FinishedBody { vars, states: self.vars, diags: self.diags, options: self.options }
    }

    /// Counts an expression or the use of a macro, which [`BodyChecker::leave`] ends. False: there were too many, and the
    /// rest is not checked. Macros that use others twice double with each level, and those in the arguments of others are as high
    /// as that.
    pub fn enter(&mut self, levels: usize, span: Span) -> bool {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            self.exhaust(span, &format!("to over {MAX_STEPS} expressions"));
            return false;
        }
        if self.height + levels > MAX_EXPANDED_HEIGHT {
            self.exhaust(span, &format!("to expressions within each other, over {MAX_EXPANDED_HEIGHT} levels"));
            return false;
        }
        self.height += levels;
        true
    }

    /// See [`BodyChecker::enter`].
    pub fn leave(&mut self, levels: usize) {
        self.height -= levels;
    }

    /// Reports once that the rest of the script is not checked.
    fn exhaust(&mut self, span: Span, size: &str) {
        if self.env.exhausted.replace(true) {
            return;
        }
        let (what, place) = match self.frame.outermost() {
            Some((name, place)) => (format!("macro `{name}` expands"), *place),
            None => ("this block comes".into(), span),
        };
        let d = Diagnostic::error("too-large", place, format!("{what} {size}"));
        self.diags.push(d.help("use fewer macros in it, or a `fn`, whose code exists only once"));
    }

    /// Adds a diagnostic.
    pub fn report(&mut self, d: Diagnostic) {
        if self.frame.library.is_some() && d.code == "no-effect" {
            return;
        }
        let d = Diagnostic { span: self.use_site(d.span), ..d };
        let usages = self.frame.own_usages().take(MAX_USAGES);
        self.diags.push(usages.fold(d, |d, (name, span)| d.related(*span, format!("expanded from this use of `{name}`"))));
    }

    /// Adds an error.
    pub fn error(&mut self, code: &'static str, span: Span, message: impl Into<String>) {
        self.report(Diagnostic::error(code, span, message));
    }

    /// Adds a warning.
    pub fn warn(&mut self, code: &'static str, span: Span, message: impl Into<String>) {
        self.report(Diagnostic::warning(code, span, message));
    }

    /// Reports an error. The result replaces the expression and suppresses errors about its uses.
    pub fn fail(&mut self, code: &'static str, span: Span, message: impl Into<String>) -> Expr {
        self.error(code, span, message);
        error_expr(span)
    }

    /// The same with an existing diagnostic.
    pub fn poisoned(&mut self, d: Diagnostic) -> Expr {
        let span = d.span;
        self.report(d);
        error_expr(span)
    }

    /// The address space of pointers if neither their type nor the probe kind determines it.
    pub fn default_space(&self) -> Space {
        self.context.space.unwrap_or(Space::Kernel)
    }

    /// The variable of this name, if one is visible.
    pub fn find_var(&self, name: &str) -> Option<VarId> {
        self.frame.scopes.iter().rev().find_map(|scope| scope.get(name)).copied()
    }

    /// A new variable in the innermost scope.
    pub fn declare(&mut self, name: &str, fixed: Option<Type>) -> VarId {
        let id = self.vars.len();
        self.vars.push(VarState {
            name: format!("${name}"),
            inferred: InferredType::default(),
            declared: fixed,
            opaque: None,
            set: false,
            empty: None,
        });
        self.assigned.push(false);
        if self.frame.usage.is_none() {
            self.declared.insert(name.to_string());
        }
        if let Some(scope) = self.frame.scopes.last_mut() {
            scope.entry(name.to_string()).or_insert(id);
        }
        id
    }

    /// Creates a variable for the checker.
    pub fn new_hidden_var(&mut self, ty: Type) -> VarId {
        self.hide_weak(ty, WeakSign::No)
    }

    /// The same for a value whose sign may be weak.
    pub fn hide_weak(&mut self, ty: Type, weak: WeakSign) -> VarId {
        self.hidden.push(HiddenVar { var: Var { name: "$".into(), ty }, weak_sign: weak });
        // In the last pass, all of the script's own variables are known, so that ids are then right.
        self.known.len() + self.hidden.len() - 1
    }

    /// The type of a variable as far as it is known, and its origin.
    pub fn var_type(&self, id: VarId) -> InferredType {
        let state = self.known.get(id).filter(|v| v.resolved_type() != Type::Void).or_else(|| self.vars.get(id));
        match state {
            Some(state) if state.declared.is_some() || state.opaque.is_some() => {
                let weak = if state.inferred.ty == state.resolved_type() { state.inferred.weak_sign.clone() } else { WeakSign::No };
                InferredType { ty: state.resolved_type(), weak_sign: weak, span: state.inferred.span }
            }
            Some(state) => state.inferred.clone(),
            None => {
                let hidden = id.checked_sub(self.known.len());
                let found = hidden.and_then(|i| self.hidden.get(i));
                found.map_or_else(InferredType::default, |HiddenVar { var, weak_sign: weak }| InferredType {
                    ty: var.ty.clone(),
                    weak_sign: weak.clone(),
                    span: Span::default(),
                })
            }
        }
    }

    /// Reads a variable.
    pub fn var(&mut self, name: &str, span: Span) -> Expr {
        let Some(id) = self.find_var(name) else {
            let names: Vec<String> = self.frame.scopes.iter().flatten().map(|(n, _)| format!("${n}")).collect();
            let written = format!("${name}");
            let d = Diagnostic::error("undefined-variable", span, format!("`{written}` has no value here"));
            let d = d.suggest(&written, names.iter().map(String::as_str));
            let elsewhere = self.vars.iter().any(|v| v.name == written);
            // Until bpftrace 0.22 a variable belonged to the whole probe: such scripts still work. The next pass finds
            // it.
            if self.declared.contains(name) && self.function.is_none() && self.frame.usage.is_none() {
                self.outer_reads.entry(name.to_string()).or_insert(span);
                return error_expr(span);
            }
            self.report(if elsewhere {
                d.help(format!("`{written}` belongs to another block; declare it before that block: `let {written};`"))
            } else {
                d
            });
            return error_expr(span);
        };
        if self.assigned.get(id) == Some(&false) && self.loops == 0 {
            if let Some(done) = self.assigned.get_mut(id) {
                *done = true; // only once
            }
            self.warn("unset-variable", span, format!("`${name}` is read before it is set: it is zero"));
        }
        let ty = match self.var_type(id).ty {
            // Declared, but never assigned: zero.
            Type::Void if self.known.get(id).is_some_and(|v| !v.set) => Type::I64,
            ty => ty,
        };
        Expr { kind: ExprKind::Var(id), ty, span }
    }

    /// Assigns to a variable: merges the types, and converts the value.
    pub fn set_var(&mut self, id: VarId, value: Expr, span: Span) -> StmtKind {
        let (ty, weak) = (value.ty.clone(), self.assigned_weakness(&value, self.known.get(id).is_some()));
        let blank = self.vars.get(id).and_then(|v| v.opaque.clone());
        if let Some(blank) = blank.filter(|b| ty != Type::Void && !same_tag(b, &ty)) {
            let name = self.vars.get(id).map(|v| v.name.clone()).unwrap_or_default();
            self.error("type-conflict", value.span, format!("`{name}` is declared as {blank} and cannot hold {ty}"));
            return StmtKind::SetVar(id, error_expr(span));
        }
        if let Some(v) = self.vars.get_mut(id) {
            v.inferred.add(&ty, &weak, span);
            v.set = true;
        }
        if let Some(done) = self.assigned.get_mut(id) {
            *done = true;
        }
        let target = self.var_type(id);
        let name = self.vars.get(id).map(|v| v.name.clone()).unwrap_or_default();
        let fixed = self.vars.get(id).is_some_and(|v| v.declared.is_some());
        let value = self.assigned_value(value, &target, &name, fixed);
        StmtKind::SetVar(id, value)
    }

    /// Converts an assigned value to the type of the target, or reports why that is impossible.
    pub fn assigned_value(&mut self, value: Expr, target: &InferredType, name: &str, fixed: bool) -> Expr {
        if value.ty == Type::Void || target.ty == Type::Void {
            return value;
        }
        if fixed && !self.in_range(&value, &target.ty) {
            return error_expr(value.span);
        }
        let (span, ty) = (value.span, value.ty.clone());
        if !fixed && !self.has_room(&value, &target.ty) {
            return error_expr(span);
        }
        if loses_sign(&value, &target.ty) && !self.is_weak(&value) {
            let message = format!("`{name}` is {}: a {ty} may change its sign here", target.ty);
            self.report(
                Diagnostic::warning("sign-change", span, message).related(target.span, format!("its type comes from here: {}", target.ty)),
            );
        }
        match self.coerce(value, &target.ty) {
            Some(value) => value,
            None => {
                let d = Diagnostic::error("type-conflict", span, format!("`{name}` is {:#} and cannot hold {ty:#}", target.ty));
                let place = if fixed { "declared here" } else { "its type comes from here" };
                self.report(d.related(target.span, format!("{place}: {:#}", target.ty)));
                error_expr(span)
            }
        }
    }

    /// Does a literal fit a declared integer type?
    fn in_range(&mut self, value: &Expr, ty: &Type) -> bool {
        let (Some(n), Type::Int(int)) = (super::fold::constant(value), ty) else { return true };
        let fits = int.wrap(n as u64) == n as u64 && (n >= 0 || int.signed != (value.ty == Type::U64));
        if !fits {
            let n = super::fold::number(value).unwrap_or_else(|| n.into());
            self.error("out-of-range", value.span, format!("{n} does not fit {ty}"));
        }
        fits
    }

    /// Can a literal beyond `int64` be stored? It cannot if negative values are stored, too.
    fn has_room(&mut self, value: &Expr, ty: &Type) -> bool {
        match (super::fold::number(value), ty) {
            (Some(n), Type::Int(int)) if int.signed && n > i64::MAX.into() => {
                self.error("out-of-range", value.span, format!("{n} does not fit {ty}"));
                false
            }
            _ => true,
        }
    }
}

/// Is it an integer of the same width and the other sign that is not constant?
fn loses_sign(value: &Expr, target: &Type) -> bool {
    match (&value.ty, target) {
        (Type::Int(a), Type::Int(b)) => a.bytes == b.bytes && a.signed != b.signed && !super::fold::is_known(value),
        _ => false,
    }
}

fn same_tag(a: &Type, b: &Type) -> bool {
    matches!((a, b), (Type::Deferred(a), Type::Deferred(b)) if a.tag == b.tag)
}

/// A placeholder for an expression with a reported error or an unknown type.
pub fn error_expr(span: Span) -> Expr {
    Expr { kind: ExprKind::Tuple(Vec::new()), ty: Type::Void, span }
}
