//! Calls of functions in imported objects, and linking these objects.

use super::Gen;
use crate::diag::Diagnostic;
use crate::emit::{Cmp, EmitError, Operand, link};
use crate::linked::CType;
use crate::sema::hir::{self, Expr, ExprKind};
use crate::types::{Int, Type};

const BYTE: Int = Int { bytes: 1, signed: false };

impl<'c> Gen<'_, 'c> {
    pub(super) fn call_foreign(&mut self, f: &hir::ForeignFunction, args: &[Expr], ty: &Type) -> Operand<'c> {
        let mut values = Vec::new();
        for (arg, (_, param)) in args.iter().zip(&f.signature.params) {
            let storage = if matches!(param, CType::Pointer(_)) { taken_address(arg) } else { None };
            values.push(match storage {
                // the verifier must know the memory, so its address stays a pointer
                Some(of) => self.storage_of(of),
                None => {
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

/// The operand of `&`, perhaps below casts of the pointer.
fn taken_address(e: &Expr) -> Option<&Expr> {
    if let ExprKind::AddrOf(of) = &e.kind {
        return Some(of);
    }
    if let (ExprKind::Cast(of, _), Type::Ptr(..)) = (&e.kind, &e.ty) { taken_address(of) } else { None }
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
