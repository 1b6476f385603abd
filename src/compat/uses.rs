//! The kernel types that a script uses, and where, for comparison with another kernel.

use std::collections::BTreeSet;

use crate::diag::Source;
use crate::probes::{ArgRef, Attach, ProbeSite};
use crate::sema::hir::{self, Expr, ExprKind, Node};
use crate::system::TargetInfo;
use crate::types::Type;
use crate::verdict::SourceLocation;

use super::location::source_location;

/// A use. Uses on two kernels are the same if `place` and `what` are equal.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeUse {
    /// Its place in the script.
    pub location: SourceLocation,
    /// The item.
    pub what: KernelItem,
    /// Its type here; none if it does not exist.
    pub ty: Option<Type>,
}

/// An item of the kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum KernelItem {
    /// A member: the struct's tag, is it a union, and the member's name.
    Member {
        /// Its struct's tag.
        parent: String,
        /// Is it a union?
        union: bool,
        /// Its name.
        name: String,
    },
    /// A field of `args` of this probe.
    Field {
        /// The probe.
        probe: String,
        /// Its name.
        name: String,
    },
    /// `argN` of this probe, with the names and types of all arguments, which may differ.
    Argument {
        /// The probe.
        probe: String,
        /// Its number.
        index: u32,
        /// All of them.
        all: Vec<(String, Type)>,
    },
    /// `retval` of this probe.
    Result {
        /// The probe.
        probe: String,
    },
}

impl KernelItem {
    /// Is it the same item, on any kernel?
    pub fn is_same(&self, other: &KernelItem) -> bool {
        match (self, other) {
            (KernelItem::Argument { probe: p, index: i, .. }, KernelItem::Argument { probe: q, index: j, .. }) => (p, i) == (q, j),
            _ => self == other,
        }
    }

    /// The description in messages.
    pub fn describe(&self) -> String {
        match self {
            KernelItem::Member { parent: of, union, name } => format!("`{name}` of `{} {of}`", if *union { "union" } else { "struct" }),
            KernelItem::Field { probe, name } => format!("`args.{name}` of {probe}"),
            KernelItem::Argument { probe, index, .. } => format!("`arg{index}` of {probe}"),
            KernelItem::Result { probe } => format!("`retval` of {probe}"),
        }
    }
}

/// All uses in a script, each place once.
pub fn uses(script: &hir::Script, sys: &dyn TargetInfo, sources: &[Source]) -> Vec<TypeUse> {
    let mut all: Vec<TypeUse> = Vec::new();
    let mut seen = BTreeSet::new();
    for probe in &script.probes {
        let Some(site) = probe.sites.first() else { continue };
        let mut visit = |node: Node| {
            let Node::Expr(expr) = node else { return };
            let Some((what, ty)) = what(expr, site, sys) else { return };
            let key = (expr.span, what.describe());
            if let (Some(place), true) = (source_location(expr.span, sources), seen.insert(key)) {
                all.push(TypeUse { location: place, what, ty });
            }
        };
        hir::visit(&probe.body, &mut visit);
        probe.functions.iter().for_each(|f| hir::visit(&f.body, &mut visit));
    }
    all
}

#[allow(clippy::wildcard_enum_match_arm)] // matches on one variant
fn what(expr: &Expr, site: &ProbeSite, sys: &dyn TargetInfo) -> Option<(KernelItem, Option<Type>)> {
    let probe = || site.name.clone();
    match &expr.kind {
        ExprKind::Field(base, field) => match &base.ty {
            Type::Struct(of) if !of.name.is_empty() => {
                Some((KernelItem::Member { parent: of.name.clone(), union: of.union, name: field.name.clone() }, Some(field.ty.clone())))
            }
            _ => None,
        },
        ExprKind::Context(ArgRef::Named(field)) => {
            Some((KernelItem::Field { probe: probe(), name: field.field.name.clone() }, Some(field.field.ty.clone())))
        }
        ExprKind::Context(ArgRef::Index(index)) => {
            let all = arguments(site, sys)?;
            let ty = all.get(*index as usize).map(|(_, ty)| ty.clone());
            Some((KernelItem::Argument { probe: probe(), index: *index, all }, ty))
        }
        ExprKind::Context(ArgRef::Retval) => {
            let (module, function) = site.attach.kernel_function()?;
            let returns = sys.prototype(Some(module), function)?.returns;
            Some((KernelItem::Result { probe: probe() }, Some(returns)))
        }
        _ => None,
    }
}

/// Names and types of the arguments that `argN` counts.
fn arguments(site: &ProbeSite, sys: &dyn TargetInfo) -> Option<Vec<(String, Type)>> {
    if let Attach::RawTracepoint { name, .. } = &site.attach {
        return sys.raw_tracepoint(name);
    }
    let (module, function) = site.attach.kernel_function()?;
    Some(sys.prototype(Some(module), function)?.params)
}
