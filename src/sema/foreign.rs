//! Calls of functions in imported objects.

use std::rc::Rc;

use super::CheckContext;
use super::body::{BodyChecker, error_expr};
use super::convert::fits;
use super::fold;
use super::hir::{Expr, ExprKind, ForeignFunction};
use super::types::{InferredType, WeakSign};
use crate::diag::{Diagnostic, Span, plural};
use crate::linked::{CType, Function};
use crate::syntax::ast;
use crate::system::TypeName;
use crate::types::{Space, Type};

impl<'a> BodyChecker<'a> {
    /// The function of an imported object with this name; a builtin's macro does not see it.
    pub fn foreign_function(&self, name: &str) -> Option<&'a Function> {
        let env: &'a CheckContext = self.env;
        env.foreign.iter().copied().find(|f| f.name == name).filter(|_| self.frame.library.is_none())
    }

    /// A call of it.
    pub fn call_foreign(&mut self, f: &Function, args: &[ast::Arg], span: Span) -> Expr {
        let mut values = Vec::new();
        for arg in args {
            values.push(match arg {
                ast::Arg::Expr(e) => self.value(e),
                ast::Arg::Type(t) => self.fail("no-value", t.span, "a function takes values, but this is a type"),
            });
        }
        let signature = match &f.signature {
            Ok(signature) => signature,
            Err(why) => return self.fail("unsupported", span, format!("a script cannot call {}: {why}", f.name)),
        };
        if values.len() != signature.params.len() {
            let want = plural(signature.params.len(), "argument", "arguments");
            return self.fail("arity", span, format!("{} takes {want}, {} given", f.name, values.len()));
        }
        let mut given = Vec::new();
        for (value, (name, param)) in values.into_iter().zip(&signature.params) {
            given.push(match param {
                CType::Pointer(_) => self.address_argument(value, name),
                CType::Void | CType::Bool | CType::Int(_) | CType::Enum(..) | CType::Struct { .. } | CType::Array(..) => {
                    let ty = self.in_script(param);
                    if !fits(&value.ty, &ty) {
                        let message = format!("the parameter `{name}` is {ty:#}, but this is {:#}", value.ty);
                        given.push(self.fail("type-mismatch", value.span, message));
                        continue;
                    }
                    let target = InferredType { ty, weak_sign: WeakSign::Yes, span: value.span };
                    self.assigned_value(value, &target, name, true)
                }
            });
        }
        let ty = self.in_script(&signature.result);
        if given.iter().any(|e| e.ty == Type::Void) {
            return error_expr(span);
        }
        let f = ForeignFunction { name: f.name.clone(), signature: signature.clone() };
        Expr { kind: ExprKind::CallForeign(Rc::new(f), given), ty, span }
    }

    /// An argument for a pointer, whose target may be anything.
    fn address_argument(&mut self, value: Expr, name: &str) -> Expr {
        match &value.ty {
            Type::Ptr(..) | Type::Void => value,
            Type::Int(int) if int.bytes == 8 || fold::is_literal(&value) => value,
            ty => {
                let message = format!("the parameter `{name}` is a pointer, but this is {ty:#}");
                let d =
                    Diagnostic::error("type-mismatch", value.span, message).help("store the value in a variable, and pass `&$variable`");
                self.report(d);
                error_expr(value.span)
            }
        }
    }

    /// The type of a C value in the script. Structures are those of the kernel.
    fn in_script(&self, ty: &CType) -> Type {
        match ty {
            CType::Void => Type::Void,
            CType::Bool => Type::Bool,
            CType::Int(int) | CType::Enum(_, int) => Type::Int(*int),
            CType::Array(elem, _) => self.in_script(elem),
            CType::Pointer(to) => Type::Ptr(Box::new(self.in_script(to)), Space::Kernel),
            CType::Struct { name, union } => {
                let kind = if *union { TypeName::Union } else { TypeName::Struct };
                self.env.sys.type_named(kind, name).unwrap_or(Type::Void)
            }
        }
    }
}

/// Reports functions of imported objects with the name of a function or macro of the script.
pub fn duplicates(script: &ast::Script, macros: &[&ast::Macro], functions: &[&ast::Function], diags: &mut Vec<Diagnostic>) {
    let own = macros.iter().map(|m| &m.name).chain(functions.iter().map(|f| &f.name));
    for name in own {
        let same = |(object, _): &&(std::sync::Arc<crate::linked::Object>, Span)| object.functions.iter().any(|f| f.name == name.name);
        if let Some((object, span)) = script.objects.iter().find(same) {
            let d = Diagnostic::error("redeclared", name.span, format!("{} has a function `{}`", object.name, name.name));
            diags.push(d.related(*span, "imported here"));
        }
    }
}
