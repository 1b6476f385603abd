//! Finds statements of a long body that may differ in numbers only.
//!
//! A program that runs once costs what its compilation and verification cost, which grows with its length. Statements of one
//! shape are compiled as functions, of which those with the same code become one (`emit/alike.cpp`). Each statement is then
//! a call.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::discriminant;

use super::{Gen, chunk};
use crate::builtins::{Codegen, Event};
use crate::probes::ContextFeatures;
use crate::sema::hir::{self, CallArg, Expr, ExprKind, Node, Stmt, StmtKind};

/// The number of statements of one shape for which a function is worth its own cost.
const MIN_ALIKE: u32 = 16;
/// The number of shapes, the most frequent of a program, that become functions. The kernel allows 256 functions.
const MAX_SHAPES: usize = 64;
/// The least number of statements and expressions in such a statement. A call takes as many instructions as a simple assignment.
const MIN_WEIGHT: u64 = 3;
/// The same for one that looks up an element and changes it.
const MIN_MAP_WEIGHT: u64 = 2;
/// The same for an assignment of a number to a variable, which is a single instruction.
const MIN_VARIABLE_WEIGHT: u64 = 8;

/// The length of a text that a statement which shares its code stores as numbers.
pub(super) const MAX_STORED_TEXT: usize = 31;

/// Which statements may share functions.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Sharers {
    /// All that are worth it.
    #[default]
    All,
    /// Those that take several times as long as a call, for programs that run often.
    Slow,
    /// The same, and those that take longer than a call, for programs so long that they might be too complex otherwise.
    Costly,
    /// Loops, whose bodies are functions in any case.
    Loops,
}

impl Sharers {
    fn contain(self, stmt: &Stmt) -> bool {
        match self {
            Self::All => true,
            Self::Slow => is_costly(stmt, true),
            Self::Costly => is_costly(stmt, false),
            Self::Loops => is_loop(stmt),
        }
    }
}

/// The shapes of statements that become functions.
#[derive(Default)]
pub(super) struct AlikeStatements {
    shapes: BTreeSet<u64>,
    sharers: Sharers,
}

impl AlikeStatements {
    /// Those of a body.
    ///
    /// Where statements of one shape did not come out alike, those that are equal may.
    pub fn of(body: &[Stmt], unlike: &BTreeSet<u64>, sharers: Sharers) -> Self {
        // Loops come first: they are functions in any case.
        let mut frequencies: BTreeMap<u64, (bool, u32)> = BTreeMap::new();
        hir::visit_within(body, &mut |node, around| {
            if let (Node::Stmt(stmt), 0) = (node, around.loops)
                && sharers.contain(stmt)
                && let Some(shape) = shape_within(stmt, unlike)
            {
                frequencies.entry(shape).or_insert((is_loop(stmt), 0)).1 += 1;
            }
        });
        let mut shapes: Vec<_> = frequencies.into_iter().map(|(shape, n)| (n, shape)).filter(|((_, n), _)| *n >= MIN_ALIKE).collect();
        shapes.sort_unstable_by(|a, b| b.cmp(a));
        Self { shapes: shapes.into_iter().take(MAX_SHAPES).map(|(_, shape)| shape).collect(), sharers }
    }
}

impl Gen<'_, '_> {
    /// The shape of this statement if it becomes a function.
    pub(super) fn shared_shape(&self, stmt: &Stmt) -> Option<u64> {
        let chunks = self.body.chunks.as_ref()?;
        let alike = &chunks.alike;
        if alike.shapes.is_empty() || !chunks.has_room() || self.body.depth > 0 || !alike.sharers.contain(stmt) {
            return None;
        }
        shape_within(stmt, &self.e.options.unlike).filter(|shape| alike.shapes.contains(shape))
    }
}

pub(super) fn is_loop(stmt: &Stmt) -> bool {
    matches!(stmt.kind, StmtKind::While { .. } | StmtKind::ForRange { .. } | StmtKind::ForMap { .. })
}

/// The number of loops of a body that will not share functions.
pub(super) fn loops_apart(body: &[Stmt]) -> usize {
    let shared = AlikeStatements::of(body, &BTreeSet::new(), Sharers::Loops);
    let mut apart = 0;
    hir::visit_within(body, &mut |node, around| {
        if let Node::Stmt(stmt) = node
            && is_loop(stmt)
            && around.loops == 0
            && shape_within(stmt, &BTreeSet::new()).is_none_or(|shape| !shared.shapes.contains(&shape))
        {
            apart += 1;
        }
    });
    apart
}

/// What statements that share a function have in common.
#[derive(Clone, Copy, Hash, PartialEq, Eq)]
enum Common {
    /// Everything but numbers, short texts and the texts that records do not contain.
    Form,
    /// The same, and the texts that are arguments of calls: their functions may need a pointer to them.
    Arguments,
    /// Everything.
    All,
}

/// A digest of what a statement has in common with others that may share its function. None if it has a function with no others.
fn shape_within(stmt: &Stmt, unlike: &BTreeSet<u64>) -> Option<u64> {
    [Common::Form, Common::Arguments, Common::All].iter().find_map(|common| shape(stmt, *common).filter(|shape| !unlike.contains(shape)))
}

/// A digest of what a statement has in common with others. None if it cannot share a
/// function with them.
fn shape(stmt: &Stmt, common: Common) -> Option<u64> {
    let stmts = std::slice::from_ref(stmt);
    let changes_element = matches!(
        &stmt.kind,
        StmtKind::Aggregate { .. } | StmtKind::SetMap { .. } | StmtKind::Expr(Expr { kind: ExprKind::StepMap { .. }, .. })
    );
    let min = if changes_element { MIN_MAP_WEIGHT } else { MIN_WEIGHT };
    if is_cheap(stmt) || hir::weight(stmts) < min || chunk::is_large(stmts) {
        return None;
    }
    let mut hash = DefaultHasher::new();
    common.hash(&mut hash);
    let mut differs = false;
    // Texts that only the manifest has, and those of which functions may get a pointer.
    let (mut apart, mut whole): (Vec<&Expr>, Vec<&Expr>) = Default::default();
    hir::visit_within(stmts, &mut |node, around| match node {
        Node::Stmt(stmt) => {
            discriminant(&stmt.kind).hash(&mut hash);
            match &stmt.kind {
                StmtKind::SetMap { map, .. } => map.hash(&mut hash),
                StmtKind::Aggregate { map, call, .. } => {
                    map.hash(&mut hash);
                    apart.extend(hash_call(call, common, &mut hash));
                    whole.extend(texts(call));
                }
                StmtKind::SetVar(var, _) | StmtKind::ZeroVar(var) => var.hash(&mut hash),
                StmtKind::ForRange { var, .. } => var.hash(&mut hash),
                StmtKind::ForMap { var, map, .. } => (var, map).hash(&mut hash),
                StmtKind::Repeat { times, .. } => times.hash(&mut hash),
                // those of a loop within the statement stay within it
                StmtKind::Break | StmtKind::Continue => differs |= around.loops == 0,
                StmtKind::Return(_) => differs = true,
                StmtKind::Expr(_) | StmtKind::If { .. } | StmtKind::While { .. } => {}
            }
        }
        Node::Expr(e) => {
            discriminant(&e.kind).hash(&mut hash);
            if common != Common::All && apart.iter().any(|text| std::ptr::eq(*text, e)) {
                return;
            }
            // types may differ in what only user space knows, such as the format of a time
            (common != Common::Form).then_some(&e.ty).hash(&mut hash);
            (discriminant(&e.ty), e.ty.size()).hash(&mut hash);
            match &e.kind {
                ExprKind::Str(text)
                    if common == Common::All
                        || text.len() > MAX_STORED_TEXT
                        || common == Common::Arguments && whole.iter().any(|whole| std::ptr::eq(*whole, e)) =>
                {
                    text.hash(&mut hash);
                }
                ExprKind::Str(text) => text.len().hash(&mut hash),
                ExprKind::Var(var) | ExprKind::StepVar { var, .. } => var.hash(&mut hash),
                ExprKind::Map(map, _) | ExprKind::ReadAgg(map, _) | ExprKind::StepMap { map, .. } => map.hash(&mut hash),
                ExprKind::Context(arg) => arg.hash(&mut hash),
                ExprKind::Unary(op, _) => discriminant(op).hash(&mut hash),
                ExprKind::Binary(op, ..) => discriminant(op).hash(&mut hash),
                ExprKind::Call(call) => {
                    apart.extend(hash_call(call, common, &mut hash));
                    whole.extend(texts(call));
                }
                ExprKind::CallFn(function, _) => function.hash(&mut hash),
                ExprKind::CallForeign(function, _) => function.name.hash(&mut hash),
                ExprKind::Field(_, field) => field.name.hash(&mut hash),
                ExprKind::Int(number) => {
                    if common == Common::All {
                        number.hash(&mut hash);
                    }
                }
                ExprKind::Deref(..)
                | ExprKind::Index(..)
                | ExprKind::AddrOf(_)
                | ExprKind::Cond(..)
                | ExprKind::Block(..)
                | ExprKind::Cast(..)
                | ExprKind::Tuple(_) => {}
            }
        }
    });
    (!differs).then(|| hash.finish())
}

/// The texts among the arguments of a call.
fn texts(call: &hir::Call) -> impl Iterator<Item = &Expr> {
    call.args.iter().filter_map(|arg| match arg {
        CallArg::Value(e) if matches!(e.kind, ExprKind::Str(_)) => Some(e),
        CallArg::Value(_) | CallArg::Map(_) | CallArg::Element(..) | CallArg::Word(_) | CallArg::Type(_) => None,
    })
}

/// Adds a call without its arguments that are expressions. Returns the texts among them that its record does not contain.
fn hash_call<'a>(call: &'a hir::Call, common: Common, hash: &mut DefaultHasher) -> Vec<&'a Expr> {
    call.row.name.hash(hash);
    (common != Common::Form).then_some(&call.consts).hash(hash);
    let only_in_manifest = matches!(call.row.codegen, Codegen::Event(Event { capture: None, .. }));
    let mut apart = Vec::new();
    for arg in &call.args {
        match arg {
            CallArg::Value(e) if only_in_manifest && matches!(e.kind, ExprKind::Str(_)) => apart.push(e),
            CallArg::Value(_) => {}
            CallArg::Map(map) | CallArg::Element(map, _) => map.hash(hash),
            CallArg::Word(word) => word.hash(hash),
            CallArg::Type(ty) => ty.hash(hash),
        }
    }
    apart
}

/// Does each run of the statement take longer than a call, without its blocks, which may be skipped? (Those of a condition may share
/// functions themselves.) A call takes some 5 ns, an element without a key 8 ns, and one with a key 30 ns. `much`: several times as
/// long.
fn is_costly(stmt: &Stmt, much: bool) -> bool {
    let is_slow = |e: &Expr| {
        let mut found = false;
        e.visit(&mut |node| found |= matches!(node, Node::Expr(e) if takes_long(e, much)));
        found
    };
    match &stmt.kind {
        StmtKind::SetMap { key, value, .. } => key.is_some() || !much || is_slow(value),
        StmtKind::Aggregate { key, .. } => key.is_some() || !much,
        StmtKind::Expr(e) | StmtKind::SetVar(_, e) | StmtKind::Return(Some(e)) | StmtKind::If { cond: e, .. } => is_slow(e),
        StmtKind::ForRange { .. } | StmtKind::ForMap { .. } | StmtKind::While { .. } => true,
        StmtKind::ZeroVar(_) | StmtKind::Repeat { .. } | StmtKind::Break | StmtKind::Continue | StmtKind::Return(None) => false,
    }
}

/// Does it look up an element, send a record, take a stack, or call a function?
fn takes_long(e: &Expr, much: bool) -> bool {
    match &e.kind {
        ExprKind::Map(_, key) | ExprKind::ReadAgg(_, key) | ExprKind::StepMap { key, .. } => key.is_some() || !much,
        ExprKind::CallFn(..) | ExprKind::CallForeign(..) => true,
        ExprKind::Call(call) => {
            let is_slow = matches!(call.row.codegen, Codegen::Event(_)) || call.row.needs.intersects(ContextFeatures::STACK);
            is_slow || !much && !call.args.is_empty()
        }
        ExprKind::Str(_)
        | ExprKind::Int(_)
        | ExprKind::Var(_)
        | ExprKind::StepVar { .. }
        | ExprKind::Context(_)
        | ExprKind::Unary(..)
        | ExprKind::Binary(..)
        | ExprKind::Field(..)
        | ExprKind::Deref(..)
        | ExprKind::Index(..)
        | ExprKind::AddrOf(_)
        | ExprKind::Cond(..)
        | ExprKind::Block(..)
        | ExprKind::Cast(..)
        | ExprKind::Tuple(_) => false,
    }
}

/// Is its code about as long as a call? Records of known numbers are written by a function anyway.
fn is_cheap(stmt: &Stmt) -> bool {
    if let StmtKind::SetVar(_, value) = &stmt.kind {
        return value.ty.is_scalar() && hir::weight(std::slice::from_ref(stmt)) < MIN_VARIABLE_WEIGHT;
    }
    let StmtKind::Expr(Expr { kind: ExprKind::Call(call), .. }) = &stmt.kind else { return false };
    let is_known =
        |e: &Expr| matches!(e.kind, ExprKind::Str(_) | ExprKind::Int(_)) || matches!(e.kind, ExprKind::Var(_)) && e.ty.is_scalar();
    let is_number = |arg: &CallArg| matches!(arg, CallArg::Value(e) if is_known(e));
    matches!(call.row.codegen, Codegen::Event(Event { capture: None, .. })) && call.args.iter().all(is_number)
}
