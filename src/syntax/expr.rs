//! Expressions and types: builds a tree from a flat sequence of operands and operators, by precedence.

#![allow(clippy::wildcard_enum_match_arm)] // the rules in grammar.pest determine which others they contain

use super::ast::*;
use super::read::{Pair, Reader, zero};
use super::{Rule, words};
use crate::diag::{Diagnostic, Span};
use crate::literal;

/// A binary operator and its precedence.
fn binary(text: &str) -> Option<(BinOp, u8)> {
    BinOp::of(text).map(|op| (op, op.level()))
}

/// A prefix of an operand.
enum Prefix {
    Op(UnOp),
    Step(bool),
    Cast(TypeExpr),
    Comptime,
}

fn prefix(text: &str) -> Prefix {
    match text {
        "++" => Prefix::Step(true),
        "--" => Prefix::Step(false),
        "-" => Prefix::Op(UnOp::Neg),
        "*" => Prefix::Op(UnOp::Deref),
        "&" => Prefix::Op(UnOp::AddrOf),
        "!" => Prefix::Op(UnOp::Not),
        "~" => Prefix::Op(UnOp::BitNot),
        _ => Prefix::Comptime,
    }
}

/// A sequence of operands and operators, and the current position in it.
struct OperandSequence<'s> {
    pairs: Vec<Pair<'s>>,
    at: usize,
    /// The whole sequence, for errors without a better place.
    span: Span,
}

impl<'s> OperandSequence<'s> {
    fn peek(&self) -> Option<&Pair<'s>> {
        self.pairs.get(self.at)
    }

    fn rule(&self, ahead: usize) -> Option<Rule> {
        self.pairs.get(self.at + ahead).map(Pair::as_rule)
    }

    fn next(&mut self) -> Option<Pair<'s>> {
        let pair = self.pairs.get(self.at).cloned();
        self.at += 1;
        pair
    }
}

/// The contents of parentheses.
enum ParenContents {
    Expr(Expr),
    Type(TypeExpr),
    Member(Ident, Expr),
}

impl Reader {
    /// Converts [`Rule::expr`].
    pub fn expr(&mut self, pair: Pair) -> Expr {
        let span = self.span(&pair);
        let parts: Vec<Pair> = pair.into_inner().collect();
        let steps = parts.len() / 2;
        let tree = if self.nest(steps, span) { self.ternaries(parts, span) } else { zero(span) };
        self.unnest(steps);
        tree
    }

    fn ternaries(&mut self, parts: Vec<Pair>, span: Span) -> Expr {
        let mut chains = Vec::new();
        let mut thens = Vec::new();
        for part in parts {
            match part.as_rule() {
                Rule::question => thens.push(None),
                Rule::expr => {
                    let then = self.expr(part);
                    if let Some(last) = thens.last_mut() {
                        *last = Some(Box::new(then));
                    }
                }
                Rule::chain => chains.push(self.chain(part)),
                _ => {}
            }
        }
        let mut tree = chains.pop().unwrap_or_else(|| zero(span));
        while let (Some(cond), Some(then)) = (chains.pop(), thens.pop()) {
            let span = cond.span.to(tree.span);
            let kind = ExprKind::Ternary { cond: Box::new(cond), then, otherwise: Box::new(tree) };
            tree = Expr { kind, span };
        }
        tree
    }

    fn chain(&mut self, pair: Pair) -> Expr {
        let span = self.span(&pair);
        let mut operands = OperandSequence { pairs: pair.into_inner().collect(), at: 0, span };
        // Operators, members and casts each add a level.
        let steps = operands.pairs.iter().filter(|p| !is_operand(p.as_rule()) || p.as_rule() == Rule::parens).count();
        if !self.nest(steps, span) {
            self.unnest(steps);
            return zero(span);
        }
        let tree = self.climb_precedence(&mut operands, 0);
        self.unnest(steps);
        if let Some(next) = operands.peek() {
            let (place, text) = (self.span(next), head(next.as_str()));
            self.error("syntax", place, format!("expected an operator before `{text}`"));
        }
        tree
    }

    fn climb_precedence(&mut self, operands: &mut OperandSequence, min_precedence: u8) -> Expr {
        let mut left = self.unary(operands);
        while let Some((op, level)) = operands.peek().filter(|p| p.as_rule() == Rule::binary_op).and_then(|p| binary(p.as_str())) {
            if level < min_precedence {
                break;
            }
            operands.at += 1;
            let right = self.climb_precedence(operands, level + 1);
            let span = left.span.to(right.span);
            left = Expr { kind: ExprKind::Binary(op, Box::new(left), Box::new(right)), span };
        }
        left
    }

    fn unary(&mut self, operands: &mut OperandSequence) -> Expr {
        let mut prefixes = Vec::new();
        let mut tree = loop {
            let Some(pair) = operands.next() else {
                let message = "expected an expression at the end of this";
                self.error("syntax", operands.span, message);
                return zero(operands.span);
            };
            let span = self.span(&pair);
            match pair.as_rule() {
                Rule::prefix | Rule::bang | Rule::binary_op | Rule::step => prefixes.push((prefix(pair.as_str()), span)),
                Rule::parens => match self.parens(pair, operands) {
                    Ok(value) => break value,
                    Err(ty) => {
                        self.casts.insert(span.start);
                        prefixes.push((Prefix::Cast(ty), span));
                    }
                },
                _ => break self.atom(pair),
            }
        };
        while let Some(rule) = operands.rule(0).filter(|r| matches!(r, Rule::step | Rule::field | Rule::index)) {
            let Some(pair) = operands.next() else { break };
            tree = self.postfix(rule, pair, tree);
        }
        for (prefix, place) in prefixes.into_iter().rev() {
            let span = place.to(tree.span);
            let kind = match prefix {
                Prefix::Op(op) => ExprKind::Unary(op, Box::new(tree)),
                Prefix::Step(up) => {
                    self.check_target(&tree, "be incremented or decremented");
                    ExprKind::Step { target: Box::new(tree), increment: up, post: false }
                }
                Prefix::Cast(ty) => ExprKind::Cast(ty, Box::new(tree)),
                Prefix::Comptime => ExprKind::Comptime(Box::new(tree)),
            };
            tree = Expr { kind, span };
        }
        tree
    }

    fn postfix(&mut self, rule: Rule, pair: Pair, base: Expr) -> Expr {
        let span = base.span.to(self.span(&pair));
        let kind = match rule {
            Rule::step => {
                self.check_target(&base, "be incremented or decremented");
                ExprKind::Step { target: Box::new(base), increment: pair.as_str() == "++", post: true }
            }
            Rule::index => {
                let index = pair.into_inner().next().map_or_else(|| zero(span), |p| self.expr(p));
                ExprKind::Index { base: Box::new(base), index: Box::new(index) }
            }
            _ => match pair.into_inner().next() {
                Some(part) if part.as_rule() == Rule::digits => match part.as_str().parse() {
                    Ok(index) => ExprKind::TupleIndex { base: Box::new(base), index },
                    Err(_) => {
                        let place = self.span(&part);
                        self.error("bad-number", place, "a tuple cannot have that many members");
                        base.kind
                    }
                },
                Some(part) => ExprKind::Field { base: Box::new(base), name: self.ident(&part) },
                None => base.kind,
            },
        };
        Expr { kind, span }
    }

    /// A value in parentheses, or the type of a cast.
    fn parens(&mut self, pair: Pair, operands: &OperandSequence) -> Result<Expr, TypeExpr> {
        let span = self.span(&pair);
        let mut inside = Vec::new();
        let mut commas = 0;
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::comma => commas += 1,
                Rule::record_item => {
                    let mut parts = part.into_inner();
                    let (Some(name), Some(value)) = (parts.next(), parts.next()) else { continue };
                    let name = self.ident(&name);
                    let value = self.expr(value);
                    inside.push(ParenContents::Member(name, value));
                }
                Rule::certain_type => inside.push(ParenContents::Type(self.type_name(part))),
                _ => inside.push(ParenContents::Expr(self.expr(part))),
            }
        }
        let only = commas == 0 && inside.len() == 1;
        if only {
            let before_operand = self.before_operand(operands);
            match inside.pop() {
                Some(ParenContents::Type(ty)) if before_operand => return Err(ty),
                Some(ParenContents::Expr(e)) if before_operand => match self.as_type(e) {
                    Ok(ty) => return Err(TypeExpr { span, ..ty }),
                    Err(e) => return Ok(Expr { span, ..e }),
                },
                Some(ParenContents::Expr(e)) => return Ok(Expr { span, ..e }),
                other => inside.extend(other),
            }
        }
        Ok(Expr { kind: self.tuple_or_record(inside, only), span })
    }

    fn tuple_or_record(&mut self, inside: Vec<ParenContents>, only: bool) -> ExprKind {
        let (mut values, mut members): (Vec<Expr>, Vec<(Ident, Expr)>) = (Vec::new(), Vec::new());
        for item in inside {
            match item {
                ParenContents::Expr(e) => values.push(e),
                ParenContents::Member(name, value) => {
                    if let Some((first, _)) = members.iter().find(|(n, _)| n.name == name.name) {
                        let message = format!("this record has two members `{}`", name.name);
                        self.diags.push(Diagnostic::error("duplicate-field", name.span, message).related(first.span, "the first is here"));
                    }
                    members.push((name, value));
                }
                ParenContents::Type(ty) if only => self.error("syntax", ty.span, "expected an expression after this cast"),
                ParenContents::Type(ty) => self.error("syntax", ty.span, "a type cannot be a value"),
            }
        }
        if members.is_empty() {
            return ExprKind::Tuple(values);
        }
        if let Some(value) = values.first() {
            let help = "name all of a record's members, or none for a tuple";
            self.diags.push(Diagnostic::error("syntax", value.span, "this member of a record has no name").help(help));
        }
        ExprKind::Record(members)
    }

    /// Does an operand follow, so that the preceding parentheses may be a cast?
    fn before_operand(&self, operands: &OperandSequence) -> bool {
        match operands.peek().map(|p| (p.as_rule(), p.as_str())) {
            Some((Rule::binary_op, text)) => matches!(text, "-" | "*" | "&"),
            Some((Rule::bang, _)) => true,
            Some((Rule::step, _)) => operands.rule(1).is_some_and(is_operand),
            Some((rule, _)) => is_operand(rule),
            None => false,
        }
    }

    /// Converts an expression that can also be a type.
    fn as_type(&mut self, e: Expr) -> Result<TypeExpr, Expr> {
        let span = e.span;
        let of = |base, suffixes| TypeExpr { base, suffixes, span };
        match e.kind {
            ExprKind::Ident(name) if !self.is_value(&name) => Ok(of(TypeBase::Name(name), Vec::new())),
            ExprKind::Typeof(arg) => match *arg {
                Arg::Type(ty @ TypeExpr { base: TypeBase::Typeof(_), .. }) => Ok(TypeExpr { span, ..ty }),
                arg => Ok(of(TypeBase::Typeof(Box::new(arg)), Vec::new())),
            },
            ExprKind::Index { base, index } => match self.as_type(*base) {
                Ok(mut ty) => {
                    ty.suffixes.push(TypeSuffix::Array(Some(index)));
                    Ok(TypeExpr { span, ..ty })
                }
                Err(base) => Err(Expr { kind: ExprKind::Index { base: Box::new(base), index }, span }),
            },
            ExprKind::Tuple(parts) if !parts.is_empty() => {
                let mut types = Vec::new();
                for part in &parts {
                    match self.as_type(part.clone()) {
                        Ok(ty) => types.push(ty),
                        Err(_) => return Err(Expr { kind: ExprKind::Tuple(parts), span }),
                    }
                }
                Ok(of(TypeBase::Tuple(types), Vec::new()))
            }
            kind => Err(Expr { kind, span }),
        }
    }

    fn atom(&mut self, pair: Pair) -> Expr {
        let mut span = self.span(&pair);
        let text = pair.as_str();
        let rule = pair.as_rule();
        let kind = match rule {
            Rule::number => ExprKind::Int(self.number(text, span)),
            Rule::string => ExprKind::Str(literal::unescape(text, span, &mut self.diags)),
            Rule::boolean => ExprKind::Bool(text == "true"),
            Rule::variable => ExprKind::Var(self.ident(&pair).name),
            Rule::param_total => ExprKind::ParamCount,
            Rule::param => match text.trim_start_matches('$').parse() {
                Ok(n) => ExprKind::Param(n),
                Err(_) => {
                    self.error("bad-number", span, format!("`{text}` is too large for a parameter number"));
                    ExprKind::Int(0)
                }
            },
            Rule::if_expr => return self.if_expr(pair),
            Rule::block => ExprKind::Block(self.block(pair)),
            Rule::map | Rule::call => {
                let (kind, place) = self.named(rule, pair);
                span = place;
                kind
            }
            _ => {
                let (kind, place) = self.type_operator(rule, pair);
                span = place;
                kind
            }
        };
        Expr { kind, span }
    }

    fn number(&mut self, text: &str, span: Span) -> u64 {
        literal::parse_int(text).unwrap_or_else(|message| {
            self.error("bad-number", span, message);
            0
        })
    }

    /// A map with its key, or a word with its arguments.
    fn named(&mut self, rule: Rule, pair: Pair) -> (ExprKind, Span) {
        let span = self.span(&pair);
        let mut parts = pair.into_inner();
        let Some(first) = parts.next() else { return (ExprKind::Int(0), span) };
        let name = self.ident(&first);
        if rule == Rule::call {
            self.library.extend(words::library_word(&name.name));
        }
        let Some(rest) = parts.next() else {
            let kind = if rule == Rule::map { ExprKind::Map { name: name.name, key: None } } else { ExprKind::Ident(name.name) };
            return (kind, name.span);
        };
        let span = name.span.to(self.span(&rest));
        if rule == Rule::map {
            let key = rest.into_inner().map(|p| self.expr(p)).collect();
            return (ExprKind::Map { name: name.name, key: Some(key) }, span);
        }
        let args = rest.into_inner().map(|p| self.argument(p)).collect();
        (ExprKind::Call { name, args }, span)
    }

    /// `sizeof` and similar operators.
    fn type_operator(&mut self, rule: Rule, pair: Pair) -> (ExprKind, Span) {
        let expr_span = self.span(&pair);
        if rule == Rule::typeof_atom {
            let ty = self.type_name(pair);
            let span = ty.span;
            return match ty {
                TypeExpr { base: TypeBase::Typeof(arg), suffixes, .. } if suffixes.is_empty() => (ExprKind::Typeof(arg), span),
                ty => (ExprKind::Typeof(Box::new(Arg::Type(ty))), span),
            };
        }
        let (mut of, mut members) = (Arg::Expr(zero(expr_span)), Vec::new());
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::certain_type | Rule::expr => of = self.type_argument(part),
                Rule::member => members.push(self.ident(&part)),
                _ => {}
            }
        }
        let kind = match rule {
            Rule::sizeof => ExprKind::Sizeof(Box::new(of)),
            Rule::typeinfo => ExprKind::Typeinfo(Box::new(of)),
            _ => ExprKind::Offsetof(Box::new(of), members),
        };
        (kind, expr_span)
    }

    fn argument(&mut self, pair: Pair) -> Arg {
        if pair.as_rule() == Rule::certain_type { Arg::Type(self.type_name(pair)) } else { Arg::Expr(self.expr(pair)) }
    }

    /// An argument that is more likely a type: `uint8[4]` is a type here, not an index.
    fn type_argument(&mut self, pair: Pair) -> Arg {
        match self.argument(pair) {
            Arg::Expr(e) if matches!(e.kind, ExprKind::Index { .. } | ExprKind::Typeof(_)) => match self.as_type(e) {
                Ok(ty) => Arg::Type(ty),
                Err(e) => Arg::Expr(e),
            },
            arg => arg,
        }
    }

    /// Converts [`Rule::if_expr`].
    pub fn if_expr(&mut self, pair: Pair) -> Expr {
        let mut span = self.span(&pair);
        let mut branches = Vec::new();
        let (mut otherwise, mut start, mut cond) = (None, span, None);
        let parts: Vec<Pair> = pair.into_inner().collect();
        let steps = 1 + parts.iter().filter(|p| p.as_rule() == Rule::condition).count();
        if !self.nest(steps, span) {
            self.unnest(steps);
            return zero(span);
        }
        for part in parts {
            match part.as_rule() {
                Rule::kw_if => start = self.span(&part),
                Rule::condition => cond = Some(self.condition(part)),
                Rule::block => {
                    let block = self.block(part);
                    span.end = block.span.end;
                    match cond.take() {
                        Some(cond) => branches.push((start, cond, block)),
                        None => otherwise = Some(block),
                    }
                }
                _ => {}
            }
        }
        self.unnest(steps);
        let mut tree = zero(span);
        while let Some((start, cond, then)) = branches.pop() {
            let span = Span { end: span.end, ..start };
            tree = Expr { kind: ExprKind::If { cond: Box::new(cond), then, otherwise: otherwise.take() }, span };
            if branches.is_empty() {
                break;
            }
            otherwise = Some(Block { stmts: Vec::new(), value: Some(Box::new(std::mem::replace(&mut tree, zero(span)))), span });
        }
        tree
    }

    fn condition(&mut self, pair: Pair) -> Expr {
        let mut comptime = None;
        let mut tree = zero(self.span(&pair));
        for part in pair.into_inner() {
            if part.as_rule() == Rule::kw_comptime {
                comptime = Some(self.span(&part));
            } else {
                tree = self.expr(part);
            }
        }
        match comptime {
            Some(place) => Expr { span: place.to(tree.span), kind: ExprKind::Comptime(Box::new(tree)) },
            None => tree,
        }
    }

    /// Converts [`Rule::type_name`], [`Rule::certain_type`] or [`Rule::typeof_atom`].
    pub fn type_name(&mut self, pair: Pair) -> TypeExpr {
        let type_span = self.span(&pair);
        let mut span = Span { end: type_span.start, ..type_span };
        let mut base = TypeBase::Name(String::new());
        let mut suffixes = Vec::new();
        let height = pair.clone().into_inner().filter(|p| is_suffix(p.as_rule())).count();
        if !self.nest(height, type_span) {
            self.unnest(height);
            return TypeExpr { base, suffixes, span: type_span };
        }
        for part in pair.into_inner() {
            let place = self.span(&part);
            span = span.to(place);
            match part.as_rule() {
                Rule::star => suffixes.push(TypeSuffix::Pointer),
                Rule::array | Rule::flat_array | Rule::empty_array => {
                    let size = part.into_inner().next().map(|p| Box::new(self.size(p)));
                    suffixes.push(TypeSuffix::Array(size));
                }
                Rule::ident => base = TypeBase::Name(part.as_str().to_string()),
                Rule::tagged => base = tagged(part),
                Rule::type_tuple => base = TypeBase::Tuple(part.into_inner().map(|p| self.type_name(p)).collect()),
                Rule::typeof_base => {
                    if let Some(of) = part.into_inner().find(|p| matches!(p.as_rule(), Rule::certain_type | Rule::expr)) {
                        base = TypeBase::Typeof(Box::new(self.type_argument(of)));
                    }
                }
                _ => {}
            }
        }
        self.unnest(height);
        TypeExpr { base, suffixes, span }
    }

    fn size(&mut self, pair: Pair) -> Expr {
        let span = self.span(&pair);
        match pair.as_rule() {
            Rule::expr => self.expr(pair),
            Rule::ident => Expr { kind: ExprKind::Ident(pair.as_str().to_string()), span },
            _ => self.atom(pair),
        }
    }
}

fn tagged(pair: Pair) -> TypeBase {
    let mut parts = pair.into_inner();
    let keyword = parts.next().map_or("", |p| p.as_str());
    let name = parts.next().map_or_else(String::new, |p| p.as_str().to_string());
    match keyword {
        "union" => TypeBase::Union(name),
        "enum" => TypeBase::Enum(name),
        _ => TypeBase::Struct(name),
    }
}

/// Is it a suffix, each of which adds a level to a type?
fn is_suffix(rule: Rule) -> bool {
    matches!(rule, Rule::star | Rule::array | Rule::flat_array | Rule::empty_array)
}

fn is_operand(rule: Rule) -> bool {
    !matches!(rule, Rule::prefix | Rule::bang | Rule::binary_op | Rule::step | Rule::field | Rule::index)
}

/// The first word of a text.
fn head(text: &str) -> &str {
    let end = text.char_indices().skip(1).find(|(_, c)| !c.is_alphanumeric() && *c != '_').map_or(text.len(), |(i, _)| i);
    text.get(..end).unwrap_or(text)
}
