//! The checked script: every name is resolved, every expression has a type, and every probe is one body for concrete sites.
//!
//! A value of this type is a guarantee: code generation does not fail on it.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use crate::builtins::{Builtin, CallSite, Lit, MapId};
use crate::diag::Span;
use crate::linked;
use crate::probes::{ArgRef, ProbeSite};
use crate::settings::Mechanism;
use crate::syntax::ast::{AttachPoint, BinOp, UnOp};
use crate::types::{Field, Space, Type};

/// Index into [`Probe::vars`].
pub type VarId = usize;

/// A checked script.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// All maps, in order of name.
    pub maps: Vec<Map>,
    /// In order of declaration. Sites with equal bodies share one.
    pub probes: Vec<Probe>,
    /// The uses of the script's macros, and of their parameters: [`Span::expansion`] is an index into it plus one. A use in the
    /// expansion of another macro belongs to that expansion.
    pub macro_uses: Vec<Span>,
    /// Imported objects, and the places of the imports.
    pub objects: Vec<(Arc<linked::Object>, Span)>,
}

/// A map.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// With its `@`.
    pub name: String,
    /// None for a scalar. Several keys are one [`Type::Tuple`].
    pub key: Option<Type>,
    /// A plain type, or [`Type::Agg`].
    pub value: Type,
    /// Number of entries (1 for a scalar).
    pub max_entries: u32,
    /// The script declares the number of its elements, so it is likely to use all of them.
    pub sized: bool,
    /// Evict the least recently used element instead of refusing new ones when full.
    pub lru: bool,
    /// First use.
    pub span: Span,
}

/// A body and its sites.
#[derive(Clone, Debug)]
pub struct Probe {
    /// At least one; all of one kind and mechanism.
    pub sites: Vec<ProbeSite>,
    /// Scratch variables.
    pub vars: Vec<Var>,
    /// The predicate is an `If` around the rest.
    pub body: Vec<Stmt>,
    /// The script's functions that the body calls, directly or indirectly, as checked for these sites. There is no
    /// recursion.
    pub functions: Vec<Function>,
    /// From the attach points to the closing brace.
    pub span: Span,
    /// The attach points from which all sites of the script's probe come.
    pub points: Rc<[AttachPoint]>,
    /// The mechanism that replaces the usual one of its kind.
    pub lowered: Option<Mechanism>,
    /// The reason for or against it; may be empty.
    pub why: Cow<'static, str>,
}

/// Index into [`Probe::functions`].
pub type FunctionId = usize;

/// A function that the script defines, as compiled for the sites of one probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Number of parameters, which are the first variables.
    pub params: usize,
    /// Scratch variables.
    pub vars: Vec<Var>,
    /// Its statements. If it has a result, every path ends in `return`.
    pub body: Vec<Stmt>,
    /// The result type, or [`Type::Void`].
    pub returns: Type,
    /// It, or a function that it calls, may end the run.
    pub stops: bool,
    /// The whole definition.
    pub span: Span,
}

/// A variable in scratch memory. Block scope is resolved, so each declaration is a separate variable.
#[derive(Clone, Debug, PartialEq)]
pub struct Var {
    /// With its `$`.
    pub name: String,
    /// Merged from all assignments.
    pub ty: Type,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Stmt {
    /// Its kind.
    pub kind: StmtKind,
    /// Its place.
    pub span: Span,
}

/// The kinds of statement.
#[derive(Clone, Debug, PartialEq)]
pub enum StmtKind {
    /// Evaluated for its effect.
    Expr(Expr),
    /// The value has the variable's type (a cast is inserted if needed).
    SetVar(VarId, Expr),
    /// A declaration without value: zero.
    ZeroVar(VarId),
    /// The value has the map's value type.
    SetMap {
        /// Which map.
        map: MapId,
        /// The key, of the map's key type; none for a scalar map.
        key: Option<Expr>,
        /// The value, of the map's value type.
        value: Expr,
    },
    /// `@m[k] = count()`: the call's row is an aggregate.
    Aggregate {
        /// Which map.
        map: MapId,
        /// The key, of the map's key type.
        key: Option<Expr>,
        /// The aggregation's call.
        call: Call,
    },
    /// Condition is [`Type::Bool`].
    If {
        /// Condition.
        cond: Expr,
        /// Then.
        then: Vec<Stmt>,
        /// Else.
        else_: Vec<Stmt>,
    },
    /// A body that is repeated this often (`unroll`).
    Repeat {
        /// Literal count.
        times: u32,
        /// `int64`, unused in the body: it counts if a loop replaces the copies.
        var: VarId,
        /// Body.
        body: Vec<Stmt>,
    },
    /// `while`; condition is [`Type::Bool`].
    While {
        /// Condition.
        cond: Expr,
        /// Body.
        body: Vec<Stmt>,
    },
    /// `for $v : from..to`
    ForRange {
        /// `int64`.
        var: VarId,
        /// First.
        from: Expr,
        /// One past the last.
        to: Expr,
        /// Body.
        body: Vec<Stmt>,
    },
    /// `for $kv : @m`: `$kv` is a tuple of key and value.
    ForMap {
        /// A tuple.
        var: VarId,
        /// A keyed map.
        map: MapId,
        /// Body.
        body: Vec<Stmt>,
    },
    /// Leave the innermost loop.
    Break,
    /// Continue with the next iteration of the innermost loop.
    Continue,
    /// Leave the probe (the value is `int64`) or the function (the value has its type).
    Return(Option<Expr>),
}

/// A typed expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// Its kind.
    pub kind: ExprKind,
    /// Its type.
    pub ty: Type,
    /// Its place.
    pub span: Span,
}

/// Who wants a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CastOrigin {
    /// The script, so that the value has exactly this type.
    Script,
    /// The other uses of the value. A weak sign stays weak.
    Implicit,
}

/// The kinds of expression.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// A scalar constant: the bits of its type, sign-extended to 64 if it is signed.
    Int(u64),
    /// A constant string; the type is `Str(len + 1)` or more.
    Str(Rc<[u8]>),
    /// A scratch variable's value.
    Var(VarId),
    /// A plain map's element, or its zero value.
    Map(MapId, Option<Box<Expr>>),
    /// An aggregation read across CPUs, as an integer; or, if this expression's type is a pair, a quotient as its two
    /// numbers.
    ReadAgg(MapId, Option<Box<Expr>>),
    /// A value that the probe kind loads: `args.x`, `arg0`, `retval`, `ctx`.
    Context(ArgRef),
    /// A member of `base`: of a [`Type::Struct`] (behind an address), of a [`Type::Record`], or an element of a tuple.
    Field(Box<Expr>, Rc<Field>),
    /// The target of a pointer: an lvalue for structs and arrays, a read for scalars and strings.
    Deref(Box<Expr>, Space),
    /// An element of an array; `base` is an array, the index an integer.
    Index(Box<Expr>, Box<Expr>),
    /// `! ~ -` on a scalar.
    Unary(UnOp, Box<Expr>),
    /// Address of a variable's or map element's storage, or of an lvalue in memory.
    AddrOf(Box<Expr>),
    /// Arithmetic on 64 bits; comparison and logic to bool; `==` on strings, tuples, buffers and arrays too. Pointer
    /// arithmetic is already scaled. `&&` and `||` have bool operands and short-circuit.
    Binary(BinOp, Box<Expr>, Box<Expr>),
    /// Condition is bool; both sides have this expression's type.
    Cond(Box<Expr>, Box<Expr>, Box<Expr>),
    /// Statements, then a value.
    Block(Vec<Stmt>, Box<Expr>),
    /// A conversion to this expression's type: integer widths and signs, pointers, bool, string to a larger capacity,
    /// integer to array.
    Cast(Box<Expr>, CastOrigin),
    /// A tuple's elements; or, if this expression's type is a record, the values of its fields in order.
    Tuple(Vec<Expr>),
    /// `x++` on a variable (value before the step when `post`).
    StepVar {
        /// Which.
        var: VarId,
        /// The increment: 1, -1, or a pointer's element size.
        by: i64,
        /// Value before the step.
        post: bool,
    },
    /// `@m[k]++` on a plain integer map.
    StepMap {
        /// Which.
        map: MapId,
        /// Key.
        key: Option<Box<Expr>>,
        /// The increment.
        by: i64,
        /// Value before the step.
        post: bool,
    },
    /// A builtin whose row emits code or an event.
    Call(Call),
    /// A call of a function that the script defines; arguments have its parameters' types.
    CallFn(FunctionId, Vec<Expr>),
    /// A call of a function of an imported object; arguments are scalars.
    CallForeign(Rc<ForeignFunction>, Vec<Expr>),
}

/// A function of an imported object.
#[derive(Debug, PartialEq)]
pub struct ForeignFunction {
    /// Its name.
    pub name: String,
    /// Its parameters and result in C.
    pub signature: linked::Signature,
}

/// A call of a builtin.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Its row.
    pub row: &'static Builtin,
    /// Arguments without omitted optional ones.
    pub args: Vec<CallArg>,
    /// The type of its result.
    pub ty: Type,
    /// Constants that the row stored for its code.
    pub consts: Vec<i64>,
    /// Its place.
    pub span: Span,
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallArg {
    /// A value; literals are [`ExprKind::Int`] and [`ExprKind::Str`].
    Value(Expr),
    /// A whole map.
    Map(MapId),
    /// A map's element by reference (`delete(@m[k])`, `print(@hist[k])`).
    Element(MapId, Expr),
    /// A bare word that has a meaning for the row (`monotonic`, `perf`).
    Word(String),
    /// A type.
    Type(Type),
}

impl Call {
    /// The literal or word in argument `i`.
    pub fn literal(&self, i: usize) -> Option<Lit> {
        match self.args.get(i)? {
            CallArg::Value(Expr { kind: ExprKind::Int(n), .. }) => Some(Lit::Int(*n as i64)),
            CallArg::Value(Expr { kind: ExprKind::Str(s), .. }) => Some(Lit::Str(s.to_vec())),
            CallArg::Word(w) => Some(Lit::Word(w.clone())),
            CallArg::Value(_) | CallArg::Map(_) | CallArg::Element(..) | CallArg::Type(_) => None,
        }
    }

    /// The bare word in argument `i`.
    pub fn word(&self, i: usize) -> Option<String> {
        match self.args.get(i)? {
            CallArg::Word(w) => Some(w.clone()),
            CallArg::Value(_) | CallArg::Map(_) | CallArg::Element(..) | CallArg::Type(_) => None,
        }
    }

    /// The information about this call for the row's code; `agg` is the layout of the map that an aggregation fills.
    pub fn call_site(&self, agg: Option<std::sync::Arc<crate::types::Agg>>) -> CallSite {
        let map = |a: &CallArg| match a {
            CallArg::Map(m) | CallArg::Element(m, _) => Some(*m),
            CallArg::Value(_) | CallArg::Word(_) | CallArg::Type(_) => None,
        };
        CallSite {
            ty: self.ty.clone(),
            literals: (0..self.args.len()).map(|i| self.literal(i)).collect(),
            maps: self.args.iter().map(map).collect(),
            agg,
            consts: self.consts.clone(),
            span: self.span,
        }
    }
}

/// The predicate of a probe's body, and the statements that depend on it: all, if there is none. A body that is only an `if` without
/// `else` means the same.
pub fn predicate(body: &[Stmt]) -> (Option<&Expr>, &[Stmt]) {
    match body {
        [Stmt { kind: StmtKind::If { cond, then, else_: otherwise }, .. }] if otherwise.is_empty() => (Some(cond), then),
        _ => (None, body),
    }
}

/// Do the statements contain a `return`?
pub fn returns(stmts: &[Stmt]) -> bool {
    let mut found = false;
    visit(stmts, &mut |node| found |= matches!(node, Node::Stmt(Stmt { kind: StmtKind::Return(_), .. })));
    found
}

/// A piece of a body, for [`visit`].
#[derive(Clone, Copy)]
pub enum Node<'a> {
    /// A statement, before its parts.
    Stmt(&'a Stmt),
    /// An expression, before its parts.
    Expr(&'a Expr),
}

/// Visits all statements and expressions, including those within blocks and loops.
pub fn visit<'a>(stmts: &'a [Stmt], see: &mut dyn FnMut(Node<'a>)) {
    visit_within(stmts, &mut |n, _| see(n));
}

/// The same, with the context of each.
pub fn visit_within<'a>(stmts: &'a [Stmt], visit: &mut dyn FnMut(Node<'a>, NodeContext)) {
    walk(stmts, NodeContext { times: 1, loops: 0 }, visit);
}

/// The context of a piece of a body.
#[derive(Clone, Copy, Debug)]
pub struct NodeContext {
    /// How often the program will contain its code.
    pub times: u64,
    /// The loops that it is in.
    pub loops: u32,
}

impl NodeContext {
    fn repeated(self, times: u32) -> NodeContext {
        NodeContext { times: self.times.saturating_mul(times.into()), ..self }
    }

    fn looped(self) -> NodeContext {
        NodeContext { loops: self.loops + 1, ..self }
    }
}

fn walk<'a>(stmts: &'a [Stmt], around: NodeContext, visit: &mut dyn FnMut(Node<'a>, NodeContext)) {
    for s in stmts {
        visit(Node::Stmt(s), around);
        match &s.kind {
            StmtKind::Expr(e) | StmtKind::SetVar(_, e) | StmtKind::Return(Some(e)) => e.walk(around, visit),
            StmtKind::SetMap { key, value, .. } => {
                key.iter().for_each(|k| k.walk(around, visit));
                value.walk(around, visit);
            }
            StmtKind::Aggregate { key, call, .. } => {
                key.iter().for_each(|k| k.walk(around, visit));
                call.walk(around, visit);
            }
            StmtKind::If { cond, then, else_: otherwise } => {
                cond.walk(around, visit);
                walk(then, around, visit);
                walk(otherwise, around, visit);
            }
            StmtKind::Repeat { times, body, .. } => walk(body, around.repeated(*times), visit),
            StmtKind::ForMap { body, .. } => walk(body, around.looped(), visit),
            StmtKind::While { cond, body } => {
                cond.walk(around.looped(), visit);
                walk(body, around.looped(), visit);
            }
            StmtKind::ForRange { from, to, body, .. } => {
                from.walk(around, visit);
                to.walk(around, visit);
                walk(body, around.looped(), visit);
            }
            StmtKind::ZeroVar(_) | StmtKind::Break | StmtKind::Continue | StmtKind::Return(None) => {}
        }
    }
}

impl StmtKind {
    /// The same as a loop instead of copies of a body; anything but an `unroll` stays unchanged.
    pub fn as_loop(self, span: Span) -> Self {
        let number = |n: u64| Expr { ty: Type::I64, span, kind: ExprKind::Int(n) };
        match self {
            StmtKind::Repeat { times, var, body } => StmtKind::ForRange { var, from: number(0), to: number(times.into()), body },
            other => other,
        }
    }
}

impl Script {
    /// Does a probe, or a function that it calls, contain an `unroll`?
    pub fn unrolls(&self) -> bool {
        let bodies = self.probes.iter().flat_map(|p| std::iter::once(&p.body).chain(p.functions.iter().map(|f| &f.body)));
        let mut any = false;
        for body in bodies {
            visit(body, &mut |node| any |= matches!(node, Node::Stmt(Stmt { kind: StmtKind::Repeat { .. }, .. })));
        }
        any
    }

    /// Turns each `unroll` into a loop, which is smaller than copies of its body, though not faster.
    pub fn turn_unrolls_into_loops(&mut self) {
        for probe in &mut self.probes {
            loops_for_unrolls(&mut probe.body);
            probe.functions.iter_mut().for_each(|f| loops_for_unrolls(&mut f.body));
        }
    }
}

/// Turns each `unroll` among these statements, and in their blocks and expressions, into a loop.
fn loops_for_unrolls(stmts: &mut [Stmt]) {
    for stmt in stmts {
        stmt.visit_parts(&mut |part| match part {
            Child::Stmts(inner) => loops_for_unrolls(inner),
            Child::Expr(e) => e.loops_for_unrolls(),
        });
        if let StmtKind::Repeat { .. } = stmt.kind {
            let copies = std::mem::replace(&mut stmt.kind, StmtKind::Break);
            stmt.kind = copies.as_loop(stmt.span);
        }
    }
}

/// Assigns the places of a macro's body, of which these statements are the expansion, to that expansion; not places within
/// the use itself.
pub fn expanded(stmts: &mut [Stmt], usage: Span, expansion: u16) {
    for stmt in stmts {
        belongs_to(&mut stmt.span, usage, expansion);
        if let StmtKind::Aggregate { call, .. } = &mut stmt.kind {
            belongs_to(&mut call.span, usage, expansion);
        }
        stmt.visit_parts(&mut |part| match part {
            Child::Stmts(inner) => expanded(inner, usage, expansion),
            Child::Expr(e) => e.expanded(usage, expansion),
        });
    }
}

fn belongs_to(span: &mut Span, usage: Span, expansion: u16) {
    let at_usage = span.source == usage.source && usage.start <= span.start && span.end <= usage.end;
    if span.expansion == 0 && !at_usage {
        span.expansion = expansion;
    }
}

/// A direct part of a statement or an expression, to be changed.
pub enum Child<'a> {
    /// Statements in order.
    Stmts(&'a mut [Stmt]),
    /// An expression.
    Expr(&'a mut Expr),
}

impl Stmt {
    /// Calls `visit` for the direct parts.
    pub fn visit_parts(&mut self, visit: &mut dyn FnMut(Child)) {
        match &mut self.kind {
            StmtKind::Expr(e) | StmtKind::SetVar(_, e) | StmtKind::Return(Some(e)) => visit(Child::Expr(e)),
            StmtKind::SetMap { key, value, .. } => key.iter_mut().chain([value]).for_each(|e| visit(Child::Expr(e))),
            StmtKind::Aggregate { key, call, .. } => {
                key.iter_mut().for_each(|e| visit(Child::Expr(e)));
                call.visit_parts(visit);
            }
            StmtKind::If { cond, then, else_: otherwise } => {
                visit(Child::Expr(cond));
                visit(Child::Stmts(then));
                visit(Child::Stmts(otherwise));
            }
            StmtKind::Repeat { body, .. } | StmtKind::ForMap { body, .. } => visit(Child::Stmts(body)),
            StmtKind::While { cond, body } => {
                visit(Child::Expr(cond));
                visit(Child::Stmts(body));
            }
            StmtKind::ForRange { from, to, body, .. } => {
                visit(Child::Expr(from));
                visit(Child::Expr(to));
                visit(Child::Stmts(body));
            }
            StmtKind::ZeroVar(_) | StmtKind::Break | StmtKind::Continue | StmtKind::Return(None) => {}
        }
    }
}

/// The estimated size of the code of statements, from their number.
pub fn weight(stmts: &[Stmt]) -> u64 {
    let mut sum: u64 = 0;
    visit_within(stmts, &mut |_, around| sum = sum.saturating_add(around.times));
    sum
}

impl Expr {
    /// Visits this expression and all of its parts.
    pub fn visit<'a>(&'a self, see: &mut dyn FnMut(Node<'a>)) {
        self.walk(NodeContext { times: 1, loops: 0 }, &mut |n, _| see(n));
    }

    /// The pointer below casts to other types of pointers.
    pub fn below_casts(&self) -> &Expr {
        match (&self.kind, &self.ty) {
            (ExprKind::Cast(of, _), Type::Ptr(..)) => of.below_casts(),
            _ => self,
        }
    }

    /// The same as [`expanded`], for the value of a macro.
    pub fn expanded(&mut self, usage: Span, expansion: u16) {
        belongs_to(&mut self.span, usage, expansion);
        if let ExprKind::Call(call) = &mut self.kind {
            belongs_to(&mut call.span, usage, expansion);
        }
        self.visit_parts(&mut |part| match part {
            Child::Stmts(inner) => expanded(inner, usage, expansion),
            Child::Expr(e) => e.expanded(usage, expansion),
        });
    }

    fn loops_for_unrolls(&mut self) {
        self.visit_parts(&mut |part| match part {
            Child::Stmts(inner) => loops_for_unrolls(inner),
            Child::Expr(e) => e.loops_for_unrolls(),
        });
    }

    /// Calls `visit` for the direct parts.
    pub fn visit_parts(&mut self, visit: &mut dyn FnMut(Child)) {
        match &mut self.kind {
            ExprKind::Int(_) | ExprKind::Str(_) | ExprKind::Var(_) | ExprKind::Context(_) | ExprKind::StepVar { .. } => {}
            ExprKind::Map(_, key) | ExprKind::ReadAgg(_, key) | ExprKind::StepMap { key, .. } => {
                key.iter_mut().for_each(|k| visit(Child::Expr(k)))
            }
            ExprKind::Field(a, _) | ExprKind::Deref(a, _) | ExprKind::Unary(_, a) | ExprKind::AddrOf(a) | ExprKind::Cast(a, _) => {
                visit(Child::Expr(a))
            }
            ExprKind::Block(stmts, a) => {
                visit(Child::Stmts(stmts));
                visit(Child::Expr(a));
            }
            ExprKind::Index(a, b) | ExprKind::Binary(_, a, b) => [a, b].into_iter().for_each(|e| visit(Child::Expr(e))),
            ExprKind::Cond(a, b, c) => [a, b, c].into_iter().for_each(|e| visit(Child::Expr(e))),
            ExprKind::Tuple(all) | ExprKind::CallFn(_, all) | ExprKind::CallForeign(_, all) => {
                all.iter_mut().for_each(|e| visit(Child::Expr(e)))
            }
            ExprKind::Call(call) => call.visit_parts(visit),
        }
    }

    fn walk<'a>(&'a self, around: NodeContext, visit: &mut dyn FnMut(Node<'a>, NodeContext)) {
        visit(Node::Expr(self), around);
        match &self.kind {
            ExprKind::Int(_) | ExprKind::Str(_) | ExprKind::Var(_) | ExprKind::Context(_) | ExprKind::StepVar { .. } => {}
            ExprKind::Map(_, key) | ExprKind::ReadAgg(_, key) | ExprKind::StepMap { key, .. } => {
                key.iter().for_each(|k| k.walk(around, visit))
            }
            ExprKind::Field(a, _) | ExprKind::Deref(a, _) | ExprKind::Unary(_, a) | ExprKind::AddrOf(a) | ExprKind::Cast(a, _) => {
                a.walk(around, visit)
            }
            ExprKind::Block(stmts, a) => {
                walk(stmts, around, visit);
                a.walk(around, visit);
            }
            ExprKind::Index(a, b) | ExprKind::Binary(_, a, b) => {
                a.walk(around, visit);
                b.walk(around, visit);
            }
            ExprKind::Cond(a, b, c) => {
                a.walk(around, visit);
                b.walk(around, visit);
                c.walk(around, visit);
            }
            ExprKind::Tuple(all) | ExprKind::CallFn(_, all) | ExprKind::CallForeign(_, all) => {
                all.iter().for_each(|e| e.walk(around, visit))
            }
            ExprKind::Call(call) => call.walk(around, visit),
        }
    }
}

impl Call {
    fn visit_parts(&mut self, visit: &mut dyn FnMut(Child)) {
        for a in &mut self.args {
            match a {
                CallArg::Value(e) | CallArg::Element(_, e) => visit(Child::Expr(e)),
                CallArg::Map(_) | CallArg::Word(_) | CallArg::Type(_) => {}
            }
        }
    }

    fn walk<'a>(&'a self, around: NodeContext, visit: &mut dyn FnMut(Node<'a>, NodeContext)) {
        for a in &self.args {
            match a {
                CallArg::Value(e) | CallArg::Element(_, e) => e.walk(around, visit),
                CallArg::Map(_) | CallArg::Word(_) | CallArg::Type(_) => {}
            }
        }
    }
}
