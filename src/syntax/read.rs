//! Builds the tree from the grammar's pairs: the script, its items and statements.
//!
//! The span of a pair may include blanks after it, so spans are computed from those of words and brackets.

#![allow(clippy::wildcard_enum_match_arm)] // the rules in grammar.pest determine which others they contain

use std::collections::BTreeSet;

use pest::Parser as _;

use super::ast::MAX_HEIGHT;
use super::ast::*;
use super::{Grammar, Rule, words};
use crate::diag::{Diagnostic, Span};
use crate::literal;

/// A shape found by the grammar.
pub type Pair<'s> = pest::iterators::Pair<'s, Rule>;

/// Converts pairs to a tree. There is always a tree; it must not be used if `diags` is not empty.
pub struct Reader {
    source: u16,
    base: usize,
    /// Errors so far.
    pub diags: Vec<Diagnostic>,
    /// The remaining height of the tree at the current place.
    pub height: usize,
    /// Names that the script defines as values.
    values: BTreeSet<String>,
    /// The starts of the parentheses of casts.
    pub casts: BTreeSet<u32>,
    /// The builtins in the script that are macros.
    pub library: BTreeSet<&'static str>,
}

impl Reader {
    /// Converts the source at `source`; positions of pairs are relative to its byte `base`.
    pub fn new(source: u16, base: usize) -> Self {
        let (values, casts, library) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        Self { source, base, diags: Vec::new(), height: 0, values, casts, library }
    }

    /// Converts [`Rule::script`] or [`Rule::piece`].
    pub fn script(&mut self, pair: Pair) -> Script {
        let mut script = Script::default();
        for pair in pair.into_inner() {
            match pair.as_rule() {
                Rule::c_item => {
                    let (text, span) = (pair.as_str().to_string(), self.span(&pair));
                    self.values.extend(defined_value(&text).map(str::to_string));
                    let item = CItem { define: self.define(&text, span), text, span };
                    script.c_part.push(item);
                }
                Rule::settings => self.settings(pair, &mut script.config),
                Rule::import => {
                    let span = self.span(&pair);
                    for part in pair.into_inner().filter(|p| p.as_rule() == Rule::string) {
                        let place = self.span(&part);
                        script.imports.push((self.text(&part), Span { end: place.end, ..span }));
                    }
                }
                Rule::macro_item => {
                    let item = self.macro_item(pair);
                    self.values.insert(item.name.name.clone());
                    script.items.push(Item::Macro(item));
                }
                Rule::function_item => script.items.push(Item::Function(self.function_item(pair))),
                Rule::map_item => script.items.push(Item::MapDecl(self.map_item(pair))),
                Rule::traced_item => script.items.push(Item::Probe(self.traced_item(pair))),
                _ => {}
            }
        }
        script
    }

    /// `#define NAME expression`, `#define NAME(a, b) expression`. None if it is not an expression, which need not be
    /// an error: only the preprocessor may use the name.
    fn define(&self, line: &str, span: Span) -> Option<Macro> {
        // The replacement has the same length, so that places stay correct.
        let line = line.replace("\\\r\n", "   ").replace("\\\n", "  ");
        let after = |text: &str| line.len() - text.len();
        let word = |text: &str| text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
        let place = |at: usize, len: usize| Span { start: span.start + at as u32, end: span.start + (at + len) as u32, ..span };
        let rest = line.strip_prefix('#')?.trim_start().strip_prefix("define")?;
        let rest = rest.trim_start();
        let (at, len) = (after(rest), word(rest));
        let (name, mut rest) = rest.split_at_checked(len)?;
        let name = Ident { name: name.to_string(), span: place(at, len) };
        let mut params = Vec::new();
        if let Some(list) = rest.strip_prefix('(') {
            let (list, body) = list.split_once(')')?;
            for param in list.split(',').map(str::trim).filter(|_| !list.trim().is_empty()) {
                if param.is_empty() || word(param) < param.len() {
                    return None;
                }
                params.push(MacroParam::Expr(Ident { name: param.to_string(), span: name.span }));
            }
            rest = body;
        }
        let base = span.start as usize + after(rest);
        let tree = Grammar::parse(Rule::replacement, rest).ok()?.next()?.into_inner().next()?;
        let mut values = self.values.clone();
        values.extend(params.iter().map(|p| match p {
            MacroParam::Var(i) | MacroParam::Map(i) | MacroParam::Expr(i) => i.name.clone(),
        }));
        let mut reader = Reader { values, ..Reader::new(self.source, base) };
        let value = reader.expr(tree);
        if !reader.diags.is_empty() {
            return None;
        }
        let body = Block { stmts: Vec::new(), span: value.span, value: Some(Box::new(value)) };
        Some(Macro { name, params, body, span })
    }

    /// Can `word` in parentheses only be a value?
    pub fn is_value(&self, word: &str) -> bool {
        words::is_value_word(word) || self.values.contains(word)
    }

    /// A place in the source.
    pub fn span(&self, pair: &Pair) -> Span {
        let span = pair.as_span();
        Span { source: self.source, start: (self.base + span.start()) as u32, end: (self.base + span.end()) as u32, ..Span::default() }
    }

    /// Reports an error.
    pub fn error(&mut self, code: &'static str, span: Span, message: impl Into<String>) {
        self.diags.push(Diagnostic::error(code, span, message));
    }

    /// Reduces the remaining height by `levels`. If the tree would become too high, it reports that once and returns false. The
    /// caller restores the height by [`Reader::unnest`].
    pub fn nest(&mut self, levels: usize, span: Span) -> bool {
        self.height += levels;
        if self.height <= MAX_HEIGHT {
            return true;
        }
        if !self.diags.iter().any(|d| d.code == "too-deep") {
            let help = "split it by assigning parts to variables";
            self.diags.push(Diagnostic::error("too-deep", span, format!("an expression of more than {MAX_HEIGHT} operations")).help(help));
        }
        false
    }

    /// Undoes [`Reader::nest`].
    pub fn unnest(&mut self, levels: usize) {
        self.height -= levels;
    }

    /// A name, without its sigil.
    pub fn ident(&self, pair: &Pair) -> Ident {
        Ident { name: pair.as_str().trim_start_matches(['$', '@']).to_string(), span: self.span(pair) }
    }

    /// A string's contents as text.
    fn text(&mut self, pair: &Pair) -> String {
        let bytes = literal::unescape(pair.as_str(), self.span(pair), &mut self.diags);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn settings(&mut self, pair: Pair, into: &mut Vec<ConfigItem>) {
        if let Some(first) = into.first() {
            let d = Diagnostic::error("redeclared", self.span(&pair), "a script can have only one block of settings");
            self.diags.push(d.related(first.name.span, "this is the first").help("move all settings to the first block"));
        }
        for part in pair.into_inner() {
            if part.as_rule() == Rule::ident && part.as_str() != "config" {
                let (span, name) = (self.span(&part), part.as_str());
                let help = format!("write settings as `config = {{ … }}`, and the name of an attach point as `{name} = provider:…`");
                self.diags.push(Diagnostic::error("syntax", span, format!("expected settings or a probe, found `{name} = {{`")).help(help));
            }
            if part.as_rule() != Rule::setting {
                continue;
            }
            let mut parts = part.into_inner().filter(|p| p.as_rule() != Rule::equals);
            let (Some(name), Some(value)) = (parts.next(), parts.next().and_then(|v| v.into_inner().next())) else { continue };
            let text = if value.as_rule() == Rule::string { self.text(&value) } else { value.as_str().to_string() };
            into.push(ConfigItem { name: self.ident(&name), value: text, value_span: self.span(&value) });
        }
    }

    fn macro_item(&mut self, pair: Pair) -> Macro {
        let (mut name, mut params, mut body) = (None, Vec::new(), None);
        let start = self.span(&pair);
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::ident => name = Some(self.ident(&part)),
                Rule::macro_param => {
                    let Some(param) = part.into_inner().next() else { continue };
                    let ident = self.ident(&param);
                    params.push(match param.as_rule() {
                        Rule::variable => MacroParam::Var(ident),
                        Rule::map_name => MacroParam::Map(ident),
                        _ => MacroParam::Expr(ident),
                    });
                }
                Rule::block => body = Some(self.block(part)),
                _ => {}
            }
        }
        let (name, body) = (self.some_ident(name, start), body.unwrap_or_else(|| empty(start)));
        Macro { name, params, span: start.to(body.span), body }
    }

    fn function_item(&mut self, pair: Pair) -> Function {
        let start = self.span(&pair);
        let (mut name, mut params, mut returns, mut body) = (None, Vec::new(), None, None);
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::ident => name = Some(self.ident(&part)),
                Rule::function_param => {
                    let mut parts = part.into_inner().filter(|p| p.as_rule() != Rule::colon);
                    let (Some(var), Some(ty)) = (parts.next(), parts.next()) else { continue };
                    params.push((self.ident(&var), self.type_name(ty)));
                }
                Rule::type_name => returns = Some(self.type_name(part)),
                Rule::block => body = Some(self.block(part)),
                _ => {}
            }
        }
        let void = TypeExpr { base: TypeBase::Name("void".into()), suffixes: Vec::new(), span: start };
        let (name, body) = (self.some_ident(name, start), body.unwrap_or_else(|| empty(start)));
        Function { name, params, returns: returns.unwrap_or(void), span: start.to(body.span), body }
    }

    fn map_item(&mut self, pair: Pair) -> MapDecl {
        let span = self.span(&pair);
        let (mut map, mut kind, mut entries, mut end) = (None, None, None, span);
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::map_name => map = Some(self.ident(&part)),
                Rule::ident => kind = Some(self.ident(&part)),
                Rule::expr => entries = Some(self.expr(part)),
                Rule::semicolon => end = self.span(&part),
                _ => {}
            }
        }
        let entries = entries.unwrap_or_else(|| zero(span));
        let span = Span { end: end.start, ..span };
        MapDecl { map: self.some_ident(map, span), kind: self.some_ident(kind, span), entries, span }
    }

    fn traced_item(&mut self, pair: Pair) -> Probe {
        let start = self.span(&pair);
        let (mut points, mut predicate, mut body) = (Vec::new(), None, None);
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::attach_point | Rule::tight_point => points.push(self.attach_point(part)),
                Rule::predicate => {
                    predicate = part.into_inner().find(|p| p.as_rule() == Rule::expr).map(|p| self.expr(p));
                }
                Rule::block => body = Some(self.block(part)),
                _ => {}
            }
        }
        let body = body.unwrap_or_else(|| empty(start));
        Probe { points, predicate, span: start.to(body.span), body }
    }

    fn attach_point(&mut self, pair: Pair) -> AttachPoint {
        let span = self.span(&pair);
        let (mut name, mut segments) = (None, Vec::new());
        for part in pair.into_inner() {
            if part.as_rule() == Rule::label {
                name = part.into_inner().next().map(|w| self.ident(&w));
                continue;
            }
            let mut segment = Segment { text: String::new(), quoted: false, span: self.span(&part) };
            for piece in part.into_inner() {
                if piece.as_rule() == Rule::string {
                    segment.quoted = true;
                    segment.text += &self.text(&piece);
                } else {
                    segment.text += piece.as_str();
                }
            }
            segments.push(segment);
        }
        AttachPoint { name, segments, span }
    }

    /// Converts [`Rule::block`].
    pub fn block(&mut self, pair: Pair) -> Block {
        let span = self.span(&pair);
        let mut block = empty(span);
        self.height += 1;
        let mut open = false;
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::open_brace | Rule::close_brace => {}
                Rule::semicolon => open = false,
                _ => {
                    open = true;
                    let stmt = self.stmt(part);
                    block.stmts.push(stmt);
                }
            }
        }
        self.unnest(1);
        // An `if` without `else` has no value.
        let is_value = |s: &Stmt| match &s.kind {
            StmtKind::Expr(e) => !matches!(e.kind, ExprKind::If { otherwise: None, .. }),
            _ => false,
        };
        if open
            && block.stmts.last().is_some_and(is_value)
            && let Some(Stmt { kind: StmtKind::Expr(e), .. }) = block.stmts.pop()
        {
            block.value = Some(Box::new(e));
        }
        block
    }

    fn stmt(&mut self, pair: Pair) -> Stmt {
        let stmt_span = self.span(&pair);
        let rule = pair.as_rule();
        let mut span = stmt_span;
        let kind = match rule {
            Rule::if_expr => {
                let e = self.if_expr(pair);
                span = e.span;
                StmtKind::Expr(e)
            }
            Rule::block => {
                let block = self.block(pair);
                StmtKind::Expr(Expr { span, kind: ExprKind::Block(block) })
            }
            Rule::expr_stmt => {
                let (kind, place) = self.expr_stmt(pair);
                span = place;
                kind
            }
            _ => self.keyword_stmt(rule, pair, &mut span),
        };
        Stmt { kind, span }
    }

    fn keyword_stmt(&mut self, rule: Rule, pair: Pair, span: &mut Span) -> StmtKind {
        let whole = *span;
        span.end = span.start;
        let (mut exprs, mut body, mut var, mut ty, mut text) = (Vec::new(), None, None, None, String::new());
        for part in pair.into_inner() {
            let mut place = self.span(&part);
            match part.as_rule() {
                Rule::expr => {
                    let e = self.expr(part);
                    place = e.span;
                    exprs.push(e);
                }
                Rule::block => body = Some(self.block(part)),
                Rule::variable => var = Some(self.ident(&part)),
                Rule::type_name => {
                    let t = self.type_name(part);
                    place = t.span;
                    ty = Some(t);
                }
                Rule::string => text = self.text(&part),
                _ => {}
            }
            *span = span.to(place);
        }
        let mut exprs = exprs.into_iter();
        let body = body.unwrap_or_else(|| empty(whole));
        match rule {
            Rule::while_stmt => StmtKind::While { cond: exprs.next().unwrap_or_else(|| zero(whole)), body },
            Rule::unroll_stmt => StmtKind::Unroll { times: exprs.next().unwrap_or_else(|| zero(whole)), body },
            Rule::let_stmt => StmtKind::Let { var: self.some_ident(var, whole), ty, value: exprs.next() },
            Rule::return_stmt => StmtKind::Return(exprs.next()),
            Rule::break_stmt => StmtKind::Break,
            Rule::continue_stmt => StmtKind::Continue,
            Rule::import_stmt => StmtKind::Import(text),
            _ => {
                let var = self.some_ident(var, whole);
                let first = exprs.next().unwrap_or_else(|| zero(whole));
                match exprs.next() {
                    Some(to) => StmtKind::ForRange { var, from: first, to, body },
                    None => {
                        if !matches!(first.kind, ExprKind::Map { .. }) {
                            let help = "write `for $x : 0..10 { … }` or `for $kv : @map { … }`";
                            let message = "a `for` loop needs a range or a map";
                            self.diags.push(Diagnostic::error("syntax", first.span, message).help(help));
                        }
                        StmtKind::ForMap { var, map: first, body }
                    }
                }
            }
        }
    }

    fn expr_stmt(&mut self, pair: Pair) -> (StmtKind, Span) {
        let whole = self.span(&pair);
        let (mut exprs, mut op) = (Vec::new(), None);
        for part in pair.into_inner() {
            if part.as_rule() == Rule::assign_op {
                op = Some(part.as_str().trim_end_matches('=').to_string());
            } else {
                exprs.push(self.expr(part));
            }
        }
        let mut exprs = exprs.into_iter();
        let target = exprs.next().unwrap_or_else(|| zero(whole));
        let (Some(value), Some(op)) = (exprs.next(), op) else {
            let span = target.span;
            return (StmtKind::Expr(target), span);
        };
        let span = target.span.to(value.span);
        if op.is_empty() && matches!(&target.kind, ExprKind::Ident(name) if name == "_") {
            return (StmtKind::Discard(value), span);
        }
        self.check_target(&target, "be assigned to");
        let op = BinOp::of(&op);
        (StmtKind::Assign { target, op, value }, span)
    }

    /// Checks that the target is a variable or a map.
    pub fn check_target(&mut self, target: &Expr, what: &str) {
        if !matches!(target.kind, ExprKind::Var(_) | ExprKind::Map { .. }) {
            let help = "only `$variable`, `@map` and `@map[key]` can be changed";
            self.diags.push(Diagnostic::error("not-assignable", target.span, format!("this cannot {what}")).help(help));
        }
    }

    fn some_ident(&self, ident: Option<Ident>, span: Span) -> Ident {
        ident.unwrap_or(Ident { name: String::new(), span })
    }
}

/// A placeholder for a case that the grammar excludes; users never see it.
pub fn zero(span: Span) -> Expr {
    Expr { kind: ExprKind::Int(0), span }
}

fn empty(span: Span) -> Block {
    Block { stmts: Vec::new(), value: None, span }
}

/// The name of an object-like `#define` whose replacement cannot be a type.
fn defined_value(line: &str) -> Option<&str> {
    let rest = line.strip_prefix('#')?.trim_start().strip_prefix("define")?.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    let (name, replacement) = rest.split_at(end);
    let value = replacement.trim_start().starts_with(|c: char| c.is_ascii_digit() || "(\"-~!$@".contains(c));
    (value && !replacement.starts_with('(')).then_some(name)
}
