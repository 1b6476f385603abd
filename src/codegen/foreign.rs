//! Calls of functions in imported objects, and linking these objects.

#![allow(clippy::wildcard_enum_match_arm)] // matches on a few variants

use std::collections::BTreeMap;

use super::Gen;
use crate::builtins;
use crate::diag::Diagnostic;
use crate::emit::{Cmp, EmitError, Helper, Operand, link};
use crate::linked::CType;
use crate::sema::hir::{self, Child, Expr, ExprKind, Node, Stmt, StmtKind, VarId};
use crate::types::{Int, Type};

/// The constant of the kernel's interface for [`Helper::GetCurrentTaskBtf`].
const TASK_HELPER: &str = "BPF_FUNC_get_current_task_btf";

fn is_current_task(kind: &ExprKind) -> bool {
    matches!(kind, ExprKind::Call(call) if builtins::is_current_task(call.row))
}

const BYTE: Int = Int { bytes: 1, signed: false };

impl<'c> Gen<'_, 'c> {
    pub(super) fn call_foreign(&mut self, f: &hir::ForeignFunction, args: &[Expr], ty: &Type) -> Operand<'c> {
        let mut values = Vec::new();
        for (arg, (_, param)) in args.iter().zip(&f.signature.params) {
            let arg = if matches!(param, CType::Pointer(_)) { arg.below_casts() } else { arg };
            values.push(match (&arg.kind, param) {
                // the verifier must know the memory, so its address stays a pointer
                (ExprKind::AddrOf(of), CType::Pointer(_)) => self.storage_of(of),
                // the same is true for the context, and for objects of the kernel in it
                (ExprKind::Context(_), CType::Pointer(_)) => {
                    let value = self.scoped(|s| s.keeps_pointer_types = true, |g| g.expr(arg));
                    self.e.scalar(&value)
                }
                // a helper of Linux 5.11 and later returns the current task as a pointer that the verifier knows
                (kind, CType::Pointer(_)) if is_current_task(kind) && self.cx.env.sys.enumerator(TASK_HELPER).is_some() => {
                    let task = self.e.call_ptr(Helper::GetCurrentTaskBtf, &[]);
                    self.e.addr(task)
                }
                _ => {
                    let value = self.expr(arg);
                    self.e.scalar(&value)
                }
            });
        }
        match (self.e.call_foreign(&f.name, &f.signature, &values), ty.as_int()) {
            (None, _) => Operand::void(),
            (Some(value), _) if *ty == Type::Bool => {
                let byte = self.e.fit(value, BYTE);
                Operand::reg(Type::Bool, self.e.cmp(Cmp::Ne, byte, self.e.int(0)))
            }
            (Some(value), Some(int)) => Operand::reg(ty.clone(), self.e.fit(value, int)),
            (Some(value), None) => Operand::reg(ty.clone(), value),
        }
    }
}

/// Replaces variables that functions of objects get as arguments by the value of the context, or the current task, that they hold:
/// the verifier knows it as a pointer, but not the number in the variable.
pub(super) fn pass_context(body: &mut [Stmt]) {
    let mut held: BTreeMap<VarId, Option<Expr>> = BTreeMap::new();
    hir::visit_within(body, &mut |node, around| match node {
        Node::Stmt(Stmt { kind: StmtKind::SetVar(var, value), .. }) => {
            let source = value.below_casts();
            let is_pointer = matches!(source.kind, ExprKind::Context(_) | ExprKind::Var(_)) || is_current_task(&source.kind);
            let known = is_pointer && around.loops == 0;
            held.entry(*var).and_modify(|source| *source = None).or_insert_with(|| known.then(|| source.clone()));
        }
        Node::Stmt(Stmt { kind: StmtKind::ZeroVar(var), .. }) => drop(held.insert(*var, None)),
        Node::Expr(e) => match &e.kind {
            ExprKind::StepVar { var, .. } => drop(held.insert(*var, None)),
            ExprKind::AddrOf(of) => {
                if let ExprKind::Var(var) = of.kind {
                    held.insert(var, None);
                }
            }
            // a loop's body is a function of its own, without the context
            ExprKind::CallForeign(_, args) if around.loops > 0 => held.extend(args.iter().filter_map(variable).map(|var| (var, None))),
            _ => {}
        },
        Node::Stmt(_) => {}
    });
    held.retain(|_, source| source.is_some());
    if !held.is_empty() {
        replace(Child::Stmts(body), &held);
    }
}

/// The value of the context that a variable holds, perhaps by way of other variables.
fn context_in(var: VarId, held: &BTreeMap<VarId, Option<Expr>>) -> Option<&Expr> {
    let mut source = held.get(&var)?.as_ref()?;
    // one that holds itself ends the search
    for _ in 0..held.len() {
        let ExprKind::Var(other) = source.kind else { break };
        source = held.get(&other)?.as_ref()?;
    }
    (matches!(source.kind, ExprKind::Context(_)) || is_current_task(&source.kind)).then_some(source)
}

fn replace(part: Child, held: &BTreeMap<VarId, Option<Expr>>) {
    match part {
        Child::Stmts(stmts) => stmts.iter_mut().for_each(|stmt| stmt.visit_parts(&mut |part| replace(part, held))),
        Child::Expr(e) => {
            e.visit_parts(&mut |part| replace(part, held));
            if let ExprKind::CallForeign(_, args) = &mut e.kind {
                for arg in args {
                    if let Some(source) = variable(arg).and_then(|var| context_in(var, held)) {
                        *arg = source.clone();
                    }
                }
            }
        }
    }
}

/// The variable whose pointer this is.
fn variable(arg: &Expr) -> Option<VarId> {
    match (&arg.below_casts().kind, &arg.ty) {
        (ExprKind::Var(var), Type::Ptr(..)) => Some(*var),
        _ => None,
    }
}

/// Does the body pass a value of the context to a function of an object?
pub(super) fn passes_context(body: &[Stmt]) -> bool {
    let mut passes = false;
    hir::visit(body, &mut |node| {
        if let Node::Expr(Expr { kind: ExprKind::CallForeign(_, args), .. }) = node {
            passes |= args.iter().any(|arg| matches!((&arg.below_casts().kind, &arg.ty), (ExprKind::Context(_), Type::Ptr(..))));
        }
    });
    passes
}

/// Links the objects that a script imports into its own.
pub(super) fn linked(elf: Vec<u8>, license: &str, script: &hir::Script) -> Result<Vec<u8>, EmitError> {
    if script.objects.is_empty() {
        return Ok(elf);
    }
    let objects: Vec<_> = script.objects.iter().map(|(object, _)| &**object).collect();
    link::link(elf, license, &objects).map_err(|(index, why)| {
        let (name, span) = script.objects.get(index).map_or(("", Default::default()), |(object, span)| (object.name.as_str(), *span));
        vec![Diagnostic::error("bad-import", span, format!("cannot link {name}: {why}"))].into()
    })
}
