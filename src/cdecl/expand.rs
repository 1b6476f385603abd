//! Macro expansion.

use super::lex::{Kind, Lexer, Token};
use super::preprocess::{Define, Flow, NESTED, Preprocessor, TOKENS};

impl Preprocessor<'_> {
    /// The next token with macros expanded.
    pub(super) fn expanded(&mut self, flow: &mut Flow, depth: usize) -> Option<Token> {
        loop {
            let mut token = self.raw(flow)?;
            if self.budget == 0 {
                return None;
            }
            self.budget -= 1;
            if token.kind != Kind::Word || token.painted {
                return Some(token);
            }
            let Some(define) = self.macro_of(token.sym).cloned() else {
                return self.special(token);
            };
            if self.is_busy(token.sym) {
                token.painted = true;
                return Some(token);
            }
            let args = match &define.params {
                None => Vec::new(),
                Some(params) => {
                    if !self.at_parenthesis(flow) || depth >= NESTED {
                        return Some(token);
                    }
                    match self.arguments(flow, params.len(), define.variadic) {
                        Some(args) => args,
                        None => return Some(token),
                    }
                }
            };
            let body = self.body(&define, &args, token, depth);
            self.set_busy(token.sym, true);
            flow.pending.push(Token { kind: Kind::End, ..token });
            flow.pending.extend(body.into_iter().rev());
        }
    }

    /// Expands `__LINE__` and similar names.
    fn special(&mut self, token: Token) -> Option<Token> {
        let (kind, text) = match self.names.text(token.sym) {
            "__LINE__" => (Kind::Number, "1"),
            "__COUNTER__" => (Kind::Number, "0"),
            "__FILE__" | "__BASE_FILE__" => (Kind::Text, "\"\""),
            "__DATE__" => (Kind::Text, "\"Jan  1 1970\""),
            "__TIME__" => (Kind::Text, "\"00:00:00\""),
            _ => return Some(token),
        };
        Some(Token { kind, sym: self.names.sym(text), ..token })
    }

    pub(super) fn expand_all(&mut self, tokens: Vec<Token>, depth: usize) -> Vec<Token> {
        let mut flow = Flow { pending: tokens, file: false };
        flow.pending.reverse();
        let mut out = Vec::new();
        while let Some(token) = self.expanded(&mut flow, depth) {
            out.push(token);
        }
        out
    }

    fn at_parenthesis(&mut self, flow: &mut Flow) -> bool {
        let open = self.names.sym("(");
        let next = flow.pending.iter().rev().find(|t| t.kind != Kind::End);
        if let Some(next) = next {
            return next.kind == Kind::Punct && next.sym == open;
        }
        flow.file && self.open.last_mut().is_some_and(|o| o.lexer.peek() == b'(' && !o.lexer.at_directive())
    }

    /// The arguments, starting at the parenthesis. None: it is not closed.
    fn arguments(&mut self, flow: &mut Flow, params: usize, variadic: bool) -> Option<Vec<Vec<Token>>> {
        self.raw(flow)?;
        let mut args: Vec<Vec<Token>> = vec![Vec::new()];
        let mut depth = 0usize;
        loop {
            let token = self.raw(flow)?;
            self.budget = self.budget.checked_sub(1)?;
            if token.kind == Kind::Punct {
                match self.names.text(token.sym) {
                    "(" => depth += 1,
                    ")" if depth == 0 => break,
                    ")" => depth -= 1,
                    "," if depth == 0 && !(variadic && args.len() >= params) => {
                        args.push(Vec::new());
                        continue;
                    }
                    _ => {}
                }
            }
            args.last_mut()?.push(token);
        }
        if params == 0 && args.len() == 1 {
            args.clear();
        }
        args.resize(params, Vec::new());
        Some(args)
    }

    /// A macro's body with its arguments substituted.
    fn body(&mut self, define: &Define, args: &[Vec<Token>], usage: Token, depth: usize) -> Vec<Token> {
        let Some(params) = &define.params else {
            if !define.body.iter().any(|t| self.names.text(t.sym) == "##") {
                return placed(&define.body, usage);
            }
            return self.paste(placed(&define.body, usage), usage);
        };
        let mut expanded: Vec<Option<Vec<Token>>> = vec![None; args.len()];
        let mut out: Vec<Token> = Vec::new();
        let (hash, paste) = (self.names.sym("#"), self.names.sym("##"));
        let is = |t: Option<&Token>, sym| t.is_some_and(|t: &Token| t.kind == Kind::Punct && t.sym == sym);
        let opt = self.names.sym("__VA_OPT__");
        let mut pastes = false;
        let mut i = 0;
        while let Some(token) = define.body.get(i) {
            i += 1;
            if out.len() > TOKENS / 8 {
                self.budget = 0;
                break;
            }
            if token.kind == Kind::Punct && token.sym == hash {
                let arg = define.body.get(i).and_then(|t| params.iter().position(|p| *p == t.sym)).and_then(|p| args.get(p));
                if let Some(arg) = arg {
                    out.push(self.quote(arg, usage));
                    i += 1;
                    continue;
                }
            }
            if token.kind == Kind::Word && token.sym == opt && define.variadic {
                // (…) only if there are variable arguments
                let some = args.last().is_some_and(|a| !a.is_empty());
                let (mut nested, from) = (0usize, i + 1);
                while let Some(t) = define.body.get(i) {
                    i += 1;
                    match self.names.text(t.sym) {
                        "(" => nested += 1,
                        ")" if nested <= 1 => break,
                        ")" => nested -= 1,
                        _ => {}
                    }
                }
                if some {
                    out.extend(define.body.get(from..i.saturating_sub(1)).map(|b| placed(b, usage)).unwrap_or_default());
                }
                continue;
            }
            let param = (token.kind == Kind::Word).then(|| params.iter().position(|p| *p == token.sym)).flatten();
            let Some(param) = param else {
                pastes |= token.kind == Kind::Punct && token.sym == paste;
                out.extend(placed(&[*token], usage));
                continue;
            };
            let Some(arg) = args.get(param) else { continue };
            let before = i >= 2 && is(define.body.get(i - 2), paste);
            if before || is(define.body.get(i), paste) {
                // `, ## __VA_ARGS__` without arguments drops the comma
                if before && arg.is_empty() && define.variadic && param + 1 == params.len() {
                    out.pop();
                    if out.last().is_some_and(|t| self.names.text(t.sym) == ",") {
                        out.pop();
                    }
                    continue;
                }
                if arg.is_empty() {
                    let sym = self.names.sym("");
                    out.push(Token { kind: Kind::Punct, sym, ..usage });
                } else {
                    out.extend(arg);
                }
                continue;
            }
            if let Some(slot) = expanded.get_mut(param) {
                if slot.is_none() {
                    *slot = Some(self.expand_all(arg.clone(), depth + 1));
                }
                out.extend(expanded.get(param).and_then(|e| e.as_deref()).unwrap_or_default());
            }
        }
        if pastes { self.paste(out, usage) } else { out }
    }

    /// `a ## b`
    fn paste(&mut self, tokens: Vec<Token>, usage: Token) -> Vec<Token> {
        let (paste, nothing) = (self.names.sym("##"), self.names.sym(""));
        let mut out: Vec<Token> = Vec::new();
        let mut all = tokens.into_iter();
        while let Some(token) = all.next() {
            if token.kind != Kind::Punct || token.sym != paste || out.is_empty() {
                out.push(token);
                continue;
            }
            let (Some(left), Some(right)) = (out.pop(), all.next()) else { break };
            let text = format!("{}{}", self.names.text(left.sym), self.names.text(right.sym));
            let mut lexer = Lexer::new(text.as_str().into(), 0);
            let mut pasted = false;
            while let Some(t) = lexer.next(&mut self.names) {
                out.push(Token { first: false, spaced: left.spaced && !pasted, pos: usage.pos, ..t });
                pasted = true;
            }
            if !pasted {
                out.push(Token { kind: Kind::Punct, sym: nothing, ..usage });
            }
        }
        out.retain(|t| t.sym != nothing);
        out
    }

    /// `#arg`
    fn quote(&mut self, arg: &[Token], usage: Token) -> Token {
        let mut text = String::from("\"");
        for (i, t) in arg.iter().enumerate() {
            if i > 0 && (t.spaced || t.first) {
                text.push(' ');
            }
            for c in self.names.text(t.sym).chars() {
                if c == '"' || (c == '\\' && matches!(t.kind, Kind::Text | Kind::Char)) {
                    text.push('\\');
                }
                text.push(c);
            }
        }
        text.push('"');
        Token { kind: Kind::Text, sym: self.names.sym(&text), ..usage }
    }
}

/// The same tokens with the place of the macro's use.
fn placed(tokens: &[Token], usage: Token) -> Vec<Token> {
    tokens.iter().map(|t| Token { pos: usage.pos, first: false, ..*t }).collect()
}
