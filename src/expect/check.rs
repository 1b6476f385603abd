//! Checks the names and types of an expectation against the script's maps.

use super::eval::Eval;
use super::functions::{FUNCTIONS, ParamKind, find};
use super::tree::{Node, NodeKind};
use super::value::Val;
use super::{Constant, Expectation, Expr, Function, Kind, MapRef, ScriptMap, Shape, Ty};
use crate::diag::{Diagnostic, Source, Span, nearest, plural};
use crate::output::FinalResults;
use crate::syntax::ast::{BinOp, Ident};
use crate::types::Type;
use crate::verdict::SourceLocation;

type Checked<T> = Result<T, Diagnostic>;

/// Checks an expectation with this text. `source` is the source of its spans.
pub fn check(tree: &Node, text: &str, source: &Source, place: Option<SourceLocation>, maps: &[ScriptMap]) -> Checked<Expectation> {
    let checker = Checker { source, maps };
    let root = checker.expr(tree)?;
    if root.ty != Ty::Truth {
        let diagnostic =
            Diagnostic::error("not-boolean", root.span, format!("an expectation must be true or false, but this is {}", root.ty.phrase()));
        let bound = if root.ty == Ty::Text { "== \"…\"" } else { "<= 100" };
        return Err(diagnostic.help(format!("compare it: `{text} {bound}`")));
    }
    Ok(Expectation { text: text.to_string(), location: place, root })
}

/// The maps that the expectations use, with their `@`, each once.
pub fn names(expectations: &[Expectation]) -> Vec<String> {
    let mut names = Vec::new();
    for e in expectations {
        gather(&e.root, &mut names);
    }
    names
}

fn gather(e: &Expr, names: &mut Vec<String>) {
    match &e.kind {
        Kind::Constant(_) => {}
        Kind::Read(of) | Kind::Call { map: of, .. } => {
            if !names.contains(&of.map) {
                names.push(of.map.clone());
            }
        }
        Kind::Negate(a) | Kind::Not(a) => gather(a, names),
        Kind::Math(_, a, b) | Kind::Compare(_, a, b) | Kind::And(a, b) | Kind::Or(a, b) => {
            gather(a, names);
            gather(b, names);
        }
    }
}

struct Checker<'a> {
    source: &'a Source,
    maps: &'a [ScriptMap],
}

impl Checker<'_> {
    fn text(&self, span: Span) -> String {
        self.source.text.get(span.start as usize..span.end as usize).unwrap_or("").to_string()
    }

    fn expr(&self, e: &Node) -> Checked<Expr> {
        let (kind, ty) = match &e.kind {
            NodeKind::Number(n) => (Kind::Constant(Constant::Number((*n).into())), Ty::Number),
            NodeKind::Text(text) => (Kind::Constant(Constant::Text(text.clone())), Ty::Text),
            NodeKind::Truth(truth) => (Kind::Constant(Constant::Truth(*truth)), Ty::Truth),
            NodeKind::Word(name) => (Kind::Constant(Constant::Number(self.variant(name, e.span)?)), Ty::Number),
            NodeKind::Map { name, key } => self.read(e.span, name, key.as_deref())?,
            NodeKind::Call { name, args } => self.call(name, args, e.span)?,
            NodeKind::Negate(of) => (Kind::Negate(Box::new(self.expect_type(of, Ty::Number, "-")?)), Ty::Number),
            NodeKind::Not(of) => (Kind::Not(Box::new(self.expect_type(of, Ty::Truth, "!")?)), Ty::Truth),
            NodeKind::Binary(op, a, b) => self.binary(*op, a, b, e.span)?,
            NodeKind::Tuple(_) => {
                return Err(
                    Diagnostic::error("type-mismatch", e.span, "an expectation can use a tuple only as a key").help("`@m[1, \"a\"]`")
                );
            }
        };
        Ok(Expr { kind, ty, span: e.span, text: self.text(e.span) })
    }

    fn expect_type(&self, e: &Node, ty: Ty, op: &str) -> Checked<Expr> {
        let found = self.expr(e)?;
        if found.ty == ty {
            return Ok(found);
        }
        let diagnostic =
            Diagnostic::error("type-mismatch", found.span, format!("`{op}` takes {}, but this is {}", ty.phrase(), found.ty.phrase()));
        Err(match (ty, found.ty) {
            (Ty::Truth, Ty::Number) => diagnostic.help(format!("compare it: `{} > 0`", found.text)),
            (Ty::Number, Ty::Truth) => diagnostic.help("put `&&` or `||` between comparisons"),
            (_, Ty::Text) => diagnostic.help("compare strings with `==` and `!=`"),
            (Ty::Number | Ty::Text | Ty::Truth, Ty::Number | Ty::Truth) => {
                diagnostic.help("compare first, and combine comparisons with `&&` and `||`")
            }
        })
    }

    fn binary(&self, op: BinOp, a: &Node, b: &Node, span: Span) -> Checked<(Kind, Ty)> {
        let both =
            |ty| Ok::<_, Diagnostic>((Box::new(self.expect_type(a, ty, op.symbol())?), Box::new(self.expect_type(b, ty, op.symbol())?)));
        match op {
            BinOp::And => both(Ty::Truth).map(|(a, b)| (Kind::And(a, b), Ty::Truth)),
            BinOp::Or => both(Ty::Truth).map(|(a, b)| (Kind::Or(a, b), Ty::Truth)),
            BinOp::Lt | BinOp::Gt | BinOp::Le | BinOp::Ge => both(Ty::Number).map(|(a, b)| (Kind::Compare(op, a, b), Ty::Truth)),
            BinOp::Eq | BinOp::Ne => {
                let (a, b) = (self.expr(a)?, self.expr(b)?);
                if a.ty != b.ty {
                    let message = format!("{} cannot be compared with {}", a.ty.phrase(), b.ty.phrase());
                    return Err(
                        Diagnostic::error("type-mismatch", span, message).help("both sides must have the same type: 5, \"text\", true")
                    );
                }
                Ok((Kind::Compare(op, Box::new(a), Box::new(b)), Ty::Truth))
            }
            BinOp::Mul
            | BinOp::Div
            | BinOp::Mod
            | BinOp::Add
            | BinOp::Sub
            | BinOp::Shl
            | BinOp::Shr
            | BinOp::BitAnd
            | BinOp::BitXor
            | BinOp::BitOr => both(Ty::Number).map(|(a, b)| (Kind::Math(op, a, b), Ty::Number)),
        }
    }

    fn map(&self, name: &str, span: Span) -> Checked<&ScriptMap> {
        let name = format!("@{name}");
        if let Some(map) = self.maps.iter().find(|m| m.name == name) {
            return Ok(map);
        }
        let diagnostic = Diagnostic::error("unknown-map", span, format!("the script has no map `{name}`"));
        let known = || self.maps.iter().map(|m| m.name.as_str());
        Err(match nearest(&name, known()) {
            Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
            None if self.maps.is_empty() => diagnostic.help("it has no maps"),
            None => diagnostic.help(format!("it has {}", known().take(12).collect::<Vec<_>>().join(", "))),
        })
    }

    /// A map, or an element of it.
    fn map_ref(&self, span: Span, name: &str, key: Option<&[Node]>) -> Checked<(&ScriptMap, MapRef)> {
        let map = self.map(name, span)?;
        let key = match (key, &map.key) {
            (None, _) => None,
            (Some(_), None) => {
                let message = format!("{} has no keys", map.name);
                return Err(Diagnostic::error("map-key-conflict", span, message).help(format!("write `{}`", map.name)));
            }
            (Some(parts), Some(ty)) => Some(self.key(parts, ty, span)?),
        };
        Ok((map, MapRef { map: map.name.clone(), key, shape: Shape::of(&map.value) }))
    }

    fn read(&self, span: Span, name: &str, key: Option<&[Node]>) -> Checked<(Kind, Ty)> {
        let (map, of) = self.map_ref(span, name, key)?;
        let text = self.text(span);
        if map.key.is_some() && key.is_none() {
            let message = format!("{} has keys, but this expression has none", map.name);
            let help = if let Some(name) = functions_for(of.shape).first() {
                format!("`{text}[…]` is one element, and `{name}({text})` covers all")
            } else {
                format!("`{text}[…]` is one element")
            };
            return Err(Diagnostic::error("map-key-conflict", span, message).help(help));
        }
        if let Some(ty) = of.shape.alone() {
            return Ok((Kind::Read(of), ty));
        }
        let message = format!("{} holds {}, which is not a single value", map.name, contents(map));
        let diagnostic = Diagnostic::error("type-mismatch", span, message);
        let suited: Vec<String> = functions_for(of.shape).iter().map(|name| format!("{name}({text})")).collect();
        Err(match suited.split_last() {
            None => diagnostic.help("store a number in the script"),
            Some((only, [])) => diagnostic.help(format!("use {only}")),
            Some((last, others)) => diagnostic.help(format!("use {} or {last}", others.join(", "))),
        })
    }

    fn call(&self, name: &Ident, args: &[Node], span: Span) -> Checked<(Kind, Ty)> {
        let Some(function) = find(&name.name) else {
            let diagnostic = Diagnostic::error("unknown-function", name.span, format!("expectations have no function `{}`", name.name));
            let known = || FUNCTIONS.iter().map(|f| f.name);
            return Err(match nearest(&name.name, known()) {
                Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
                None => diagnostic.help(format!("it has {}", known().collect::<Vec<_>>().join(", "))),
            });
        };
        let usage = |message: String| Diagnostic::error("arity", span, message).help(format!("write `{}`", function.form));
        let Some((first, rest)) = args.split_first() else { return Err(usage(format!("{} needs a map", function.name))) };
        let NodeKind::Map { name: map_name, key } = &first.kind else {
            return Err(Diagnostic::error("type-mismatch", first.span, format!("{} takes a map", function.name))
                .help(format!("write `{}`", function.form)));
        };
        let (map, of) = self.map_ref(first.span, map_name, key.as_deref())?;
        if !(function.applies_to)(of.shape) {
            return Err(wrong_function(function, map, first.span));
        }
        let keyed = matches!(function.params, ParamKind::Keyed | ParamKind::KeyedAndKey | ParamKind::KeyedAndKeys);
        if keyed && (map.key.is_none() || of.key.is_some()) {
            let message = format!("{} needs a map with keys, and `{}` has none", function.name, self.text(first.span));
            return Err(Diagnostic::error("map-key-conflict", first.span, message));
        }
        let enough = match function.params {
            ParamKind::Map | ParamKind::Keyed => rest.is_empty(),
            ParamKind::MapAndPercent | ParamKind::KeyedAndKey => rest.len() == 1,
            ParamKind::KeyedAndKeys => !rest.is_empty(),
        };
        if !enough {
            return Err(usage(format!("{} has {}", function.name, plural(args.len(), "argument", "arguments"))));
        }
        let constants = match (function.params, &map.key) {
            (ParamKind::KeyedAndKey | ParamKind::KeyedAndKeys, Some(ty)) => {
                rest.iter().map(|e| self.key(std::slice::from_ref(e), ty, e.span)).collect::<Checked<Vec<_>>>()?
            }
            (ParamKind::MapAndPercent, _) => rest.iter().map(|e| self.percent(e)).collect::<Checked<Vec<_>>>()?,
            (ParamKind::Map | ParamKind::Keyed | ParamKind::KeyedAndKey | ParamKind::KeyedAndKeys, _) => Vec::new(),
        };
        Ok((Kind::Call { function, map: of, rest: constants }, function.returns))
    }

    fn percent(&self, e: &Node) -> Checked<Constant> {
        match self.constant_value(e)? {
            Constant::Number(n) if (0..=100).contains(&n) => Ok(Constant::Number(n)),
            Constant::Number(_) | Constant::Text(_) | Constant::Truth(_) | Constant::Tuple(_) => {
                Err(Diagnostic::error("out-of-range", e.span, "a percentile must be a number from 0 to 100"))
            }
        }
    }

    /// The contents of the brackets, for a map with keys of this type.
    fn key(&self, parts: &[Node], ty: &Type, span: Span) -> Checked<Constant> {
        match (parts, ty) {
            ([only], _) => self.constant(only, ty),
            (_, Type::Tuple(types)) if parts.len() == types.len() => {
                Ok(Constant::Tuple(parts.iter().zip(types).map(|(e, ty)| self.constant(e, ty)).collect::<Checked<_>>()?))
            }
            (_, Type::Tuple(types)) => {
                let message = format!("its keys have {} parts ({ty}), but this has {}", types.len(), parts.len());
                Err(Diagnostic::error("map-key-conflict", span, message))
            }
            (_, _) => {
                Err(Diagnostic::error("map-key-conflict", span, format!("its keys are a single {ty}, but this has {} parts", parts.len())))
            }
        }
    }

    fn constant(&self, e: &Node, ty: &Type) -> Checked<Constant> {
        let error = |what: &str| Diagnostic::error("map-key-conflict", e.span, format!("its keys are {ty}, but this is {what}"));
        let found = if let NodeKind::Tuple(parts) = &e.kind {
            return if matches!(ty, Type::Tuple(_)) { self.key(parts, ty, e.span) } else { Err(error("a tuple")) };
        } else {
            self.constant_value(e)?
        };
        match (&found, ty) {
            (Constant::Number(n), _) if ty.is_scalar() => match ty.as_int() {
                Some(int) if !fits(*n, int) => Err(error(&format!("{n}, which is out of range"))),
                Some(_) | None => Ok(found),
            },
            (Constant::Truth(_), Type::Bool) => Ok(found),
            (Constant::Text(text), Type::Str(size)) => match text.len() > *size as usize {
                false => Ok(found),
                true => Err(error(&format!("{} bytes long, which is too long", text.len()))
                    .help("`max_strlen` limits the length of strings: config = { max_strlen = 1024; }")),
            },
            (Constant::Text(_), Type::Deferred(tag)) if crate::builtins::is_text(tag) => Ok(found),
            (Constant::Number(_), _) if matches!(ty, Type::Str(_)) => Err(error("a number").help("write a string in double quotes")),
            (Constant::Number(_), _) => Err(error("a number")),
            (Constant::Text(_), _) => Err(error("a string")),
            (Constant::Truth(_), _) => Err(error("true or false")),
            (Constant::Tuple(_), _) => Err(error("a tuple")),
        }
    }

    /// A constant value.
    fn constant_value(&self, e: &Node) -> Checked<Constant> {
        let found = self.expr(e)?;
        let (mut maps, none) = (Vec::new(), FinalResults::default());
        gather(&found, &mut maps);
        let value = if maps.is_empty() { Eval { last: &none, lossy: false }.eval(&found).ok() } else { None };
        let constant = match value {
            Some(Val::Number(range)) => range.only().map(Constant::Number),
            Some(Val::Text(text)) => text.map(Constant::Text),
            Some(Val::Truth(truth)) => truth.map(Constant::Truth),
            None => None,
        };
        constant.ok_or_else(|| {
            Diagnostic::error("not-constant", e.span, "this must be a constant")
                .help("write a number, a string, true or false, or a tuple of them")
        })
    }

    /// A word: the name of an enumerator of the maps' types.
    fn variant(&self, name: &str, span: Span) -> Checked<i128> {
        let mut found = None;
        for ty in self.maps.iter().flat_map(|m| m.key.iter().chain([&m.value])) {
            variants(ty, &mut |word, value| {
                if word == name {
                    found = Some(i128::from(value));
                }
            });
        }
        if let Some(value) = found {
            return Ok(value);
        }
        let diagnostic = Diagnostic::error("unknown-name", span, format!("an expectation cannot use `{name}`"));
        let map = format!("@{name}");
        Err(if self.maps.iter().any(|m| m.name == map) {
            diagnostic.help(format!("did you mean `{map}`?"))
        } else if find(name).is_some() {
            diagnostic.help(format!("`{name}(@m)` is a function of a map"))
        } else {
            diagnostic.help("store the value in a map, because expectations see only maps; write strings in double quotes")
        })
    }
}

fn variants(ty: &Type, each: &mut dyn FnMut(&str, i64)) {
    if let Type::Enum(e) = ty {
        e.variants.iter().for_each(|(name, value)| each(name, *value));
    } else if let Type::Tuple(parts) = ty {
        parts.iter().for_each(|part| variants(part, each));
    }
}

fn fits(n: i128, int: crate::types::Int) -> bool {
    let bits = u32::from(int.bytes.clamp(1, 8)) * 8;
    if int.signed { (-(1i128 << (bits - 1))..1i128 << (bits - 1)).contains(&n) } else { (0..1i128 << bits).contains(&n) }
}

/// The functions that apply to a map's values.
fn functions_for(shape: Shape) -> Vec<&'static str> {
    let takes = |f: &&Function| matches!(f.params, ParamKind::Map) && (f.applies_to)(shape);
    FUNCTIONS.iter().filter(takes).map(|f| f.name).collect()
}

fn wrong_function(function: &Function, map: &ScriptMap, span: Span) -> Diagnostic {
    let diagnostic =
        Diagnostic::error("type-mismatch", span, format!("{1} has no {0}, because it holds {2}", function.name, map.name, contents(map)));
    match functions_for(Shape::of(&map.value)).as_slice() {
        [] => diagnostic.help("store a number in the script"),
        names => diagnostic.help(format!("such a map has {}", names.join(", "))),
    }
}

/// The contents of a map, in the script's terms.
fn contents(map: &ScriptMap) -> String {
    match map.value.aggregation() {
        Some(agg) => format!("{}()", agg.function),
        None => map.value.to_string(),
    }
}
