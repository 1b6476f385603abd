//! Compares a script's use of types between two kernels.

use crate::diag::remedy;
use crate::system::{TargetInfo, TypeName};
use crate::types::Type;
use crate::verdict::{self, Finding, Level};

use super::script_check::ScriptCheck;
use super::uses::{KernelItem, TypeUse};

/// Codes of diagnostics that become a rule if the other kernel has the thing.
const GONE: &[(&str, &str)] = &[
    ("unknown-field", "field-gone"),
    ("unknown-function", "probe-gone"),
    ("unknown-tracepoint", "probe-gone"),
    ("unknown-module", "probe-gone"),
    ("unknown-iterator", "probe-gone"),
    ("no-match", "probe-gone"),
    ("inlined", "function-inlined"),
    ("not-traceable", "not-traceable"),
    ("unknown-type", "type-gone"),
    ("unknown-name", "constant-gone"),
];

/// Codes of other diagnostics that report something missing in the kernel.
const ABSENT: &[&str] = &["no-kernel-function", "no-kernel-symbol", "no-lsm", "no-probes", "no-btf", "not-injectable", "unknown-hook"];

/// Does this code report something missing?
pub fn is_absence(code: &str) -> bool {
    ABSENT.contains(&code) || GONE.iter().any(|(absent, _)| *absent == code)
}

/// Does this finding mean that what is at its place does not work? An optional probe that is missing has a note.
fn is_fault(finding: &Finding) -> bool {
    finding.level == Level::Error || is_absence(finding.rule) || GONE.iter().any(|(_, rule)| *rule == finding.rule)
}

/// Adds the differences between the check of a script on this kernel and that on the kernel `name`.
pub fn compare(seen: &mut ScriptCheck, earlier: &ScriptCheck, name: &str, sys: &dyn TargetInfo) {
    if !matches!(earlier.state, verdict::State::Checked) {
        return;
    }
    for finding in &mut seen.findings {
        add_other_kernel(finding, earlier, name, sys);
    }
    let mut found = Vec::new();
    for was in &earlier.uses {
        let now = seen.uses.iter().find(|u| u.location == was.location && u.what.is_same(&was.what));
        if let Some(now) = now {
            found.extend(changed(was, now, name));
        }
    }
    seen.findings.extend(found);
}

/// Explains what a missing item is on the other kernel.
fn add_other_kernel(finding: &mut Finding, earlier: &ScriptCheck, name: &str, sys: &dyn TargetInfo) {
    let Some((_, rule)) = GONE.iter().find(|(code, _)| *code == finding.rule) else { return };
    let Some(place) = &finding.location else { return };
    // it was also wrong there, perhaps for another reason
    if earlier.findings.iter().any(|f| is_fault(f) && f.location == finding.location) {
        return;
    }
    finding.rule = rule;
    let ends =
        |u: &&TypeUse| (u.location.end_line, u.location.end_column) == (place.end_line, place.end_column) && u.location.file == place.file;
    match earlier.uses.iter().filter(ends).find(|u| matches!(u.what, KernelItem::Member { .. } | KernelItem::Field { .. })) {
        Some(was) if *rule == "field-gone" => {
            let ty = was.ty.as_ref().map_or(String::new(), |t| format!(" (`{t}`)"));
            finding.message += &format!(", which {name} has{ty}");
            if let Some(help) = moved(&was.what, sys) {
                finding.help = Some(help);
            }
        }
        _ => finding.message += &format!("; {name} has it"),
    }
}

/// The likely new place of a member: under a name with other underscores, or in a nested struct.
fn moved(what: &KernelItem, sys: &dyn TargetInfo) -> Option<String> {
    let KernelItem::Member { parent: of, union, name } = what else { return None };
    let kind = if *union { TypeName::Union } else { TypeName::Struct };
    let Some(Type::Struct(found)) = sys.type_named(kind, of) else { return None };
    let fields = sys.expand(&found)?.fields;
    let bare = |n: &str| n.trim_matches('_').to_string();
    if let Some(near) = fields.iter().find(|f| bare(&f.name) == bare(name) && !f.name.is_empty()) {
        return Some(format!("it has the name `{}` there", near.name));
    }
    let has = |ty: &Type| match ty {
        Type::Struct(inner) => sys.member(inner, name).is_some(),
        Type::Record(inner) => inner.fields.iter().any(|f| f.name == *name),
        Type::Void
        | Type::Bool
        | Type::Int(_)
        | Type::Enum(_)
        | Type::Str(_)
        | Type::Buf(_)
        | Type::Ptr(..)
        | Type::Array(..)
        | Type::Tuple(_)
        | Type::Deferred(_)
        | Type::Agg(_)
        | Type::Args => false,
    };
    let within = fields.iter().find(|f| has(&f.ty)).map(|f| &f.name);
    within.map(|outer| format!("it is in `{outer}` there: `{outer}.{name}`"))
}

fn changed(was: &TypeUse, now: &TypeUse, name: &str) -> Option<Finding> {
    if let (KernelItem::Argument { index, all: before, .. }, KernelItem::Argument { all: after, .. }) = (&was.what, &now.what) {
        return argument(was, now, *index as usize, [before, after], name);
    }
    let (Some(before), Some(after)) = (&was.ty, &now.ty) else { return None };
    let (rule, level) = change(before, after)?;
    let rule = if matches!(was.what, KernelItem::Result { .. }) { "return-changed" } else { rule };
    let message = format!("{} is `{}`, but `{}` on {name}", was.what.describe(), full(after), full(before));
    Some(finding(rule, level, now, message, None))
}

/// `argN` depends on the position.
fn argument(was: &TypeUse, now: &TypeUse, index: usize, [before, after]: [&[(String, Type)]; 2], name: &str) -> Option<Finding> {
    let (old, ty) = before.get(index)?;
    let was_described = was.what.describe();
    let Some((new, new_ty)) = after.get(index) else {
        let message = format!(
            "{was_described} does not exist: the function has {} arguments, but {} on {name}, where it is `{old}`",
            after.len(),
            before.len()
        );
        return Some(finding("argument-moved", Level::Error, now, message, None));
    };
    let elsewhere = after.iter().position(|(n, _)| n == old && !old.is_empty());
    if let (Some(at), true) = (elsewhere.filter(|at| *at != index), old != new) {
        let message = format!("{was_described} is `{new}`, but `{old}` on {name}");
        let help = format!("`{old}` is `arg{at}` there; `args.{old}` works on both");
        return Some(finding("argument-moved", Level::Warning, now, message, Some(help)));
    }
    if let Some((rule, level)) = change(ty, new_ty) {
        let message = format!("{was_described} is `{} {new}`, but `{} {old}` on {name}", full(new_ty), full(ty));
        return Some(finding(rule, level, now, message, None));
    }
    if old == new || old.is_empty() || new.is_empty() {
        return None;
    }
    let message = format!("{was_described} has the name `{new}`, but `{old}` on {name}; its type is the same");
    Some(finding("argument-renamed", Level::Note, now, message, None))
}

fn finding(rule: &'static str, level: Level, ty: &TypeUse, message: String, help: Option<String>) -> Finding {
    let general = (level > Level::Note).then(|| remedy(rule)).flatten().map(str::to_owned);
    Finding { rule, level, message, location: Some(ty.location.clone()), related: Vec::new(), help: help.or(general) }
}

/// The difference of a type, as far as a script can observe it; none if there is none.
fn change(was: &Type, is: &Type) -> Option<(&'static str, Level)> {
    const OTHER: Option<(&str, Level)> = Some(("type-changed", Level::Warning));
    let size = |before: u32, after: u32| match before == after {
        true => None,
        false => Some(("size-changed", if after < before { Level::Warning } else { Level::Note })),
    };
    match (was, is) {
        (Type::Ptr(a, _), Type::Ptr(b, _)) => match (&**a, &**b) {
            (Type::Void, Type::Void) => None,
            (Type::Void, _) | (_, Type::Void) => OTHER,
            (a, b) => change(a, b),
        },
        (Type::Array(a, n), Type::Array(b, m)) => change(a, b).or_else(|| size(*n, *m)),
        (Type::Str(n), Type::Str(m)) | (Type::Buf(n), Type::Buf(m)) => {
            if *n == 0 || *m == 0 {
                None
            } else {
                size(*n, *m)
            }
        }
        (Type::Struct(a), Type::Struct(b)) => {
            if (&a.name, a.union) == (&b.name, b.union) {
                None
            } else {
                OTHER
            }
        }
        (Type::Record(a), Type::Record(b)) => {
            if a.name == b.name {
                None
            } else {
                OTHER
            }
        }
        (Type::Ptr(..), _) | (_, Type::Ptr(..)) => OTHER,
        _ => match (was.as_int(), is.as_int()) {
            (Some(a), Some(b)) if a.bytes != b.bytes => size(a.bytes.into(), b.bytes.into()),
            (Some(a), Some(b)) if a.signed != b.signed => Some(("sign-changed", Level::Warning)),
            (Some(_), Some(_)) => None,
            _ => {
                if was == is {
                    None
                } else {
                    OTHER
                }
            }
        },
    }
}

/// A type, with its width if the name does not show it.
fn full(ty: &Type) -> String {
    match (ty, ty.as_int()) {
        (Type::Enum(_), Some(int)) => format!("{ty} ({}int{})", if int.signed { "" } else { "u" }, u32::from(int.bytes) * 8),
        _ => ty.to_string(),
    }
}
