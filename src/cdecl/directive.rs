//! Preprocessor directives.

use std::rc::Rc;

use super::lex::{Interner, Kind, LexPosition, Lexer, Sym, Token};
use super::number;
use super::preprocess::{Define, Guard, If, Preprocessor};
use super::search::HeaderLookup;

impl Preprocessor<'_> {
    fn line(&mut self) -> Vec<Token> {
        let mut line = Vec::new();
        if let Some(open) = self.open.last_mut() {
            while let Some(token) = open.lexer.next_on_line(&mut self.names) {
                line.push(token);
            }
        }
        line
    }

    /// Processes a `#` line.
    pub(super) fn directive(&mut self) {
        let Some(open) = self.open.last_mut() else { return };
        let Some(hash) = open.lexer.next(&mut self.names) else { return };
        let place = hash.pos;
        let Some(word) = open.lexer.next_on_line(&mut self.names) else { return };
        let name = self.names.text(word.sym).to_owned();
        let first = open.guard;
        if matches!(open.guard, Guard::Unknown | Guard::Closed(_)) {
            open.guard = Guard::No;
        }
        match name.as_str() {
            "include" | "include_next" | "import" => self.include_line(name == "include_next", place),
            "define" => {
                let mut lexer = match self.open.pop() {
                    Some(open) => open,
                    None => return,
                };
                self.define(&mut lexer.lexer, true);
                self.open.push(lexer);
            }
            "undef" => {
                if let Some(token) = self.line().first() {
                    self.set_macro(token.sym, None);
                }
            }
            "ifdef" | "ifndef" => {
                let line = self.line();
                let Some(token) = line.first() else { return self.fault(place, format!("`#{name}` needs a name")) };
                let defined = self.macro_of(token.sym).is_some();
                self.unknown |= !defined && place.file == 0;
                self.begin_guard(first, (name == "ifndef").then_some(token.sym));
                self.begin_if(defined == (name == "ifdef"), place);
            }
            "if" => {
                let line = self.line();
                self.begin_guard(first, not_defined(&self.names, &line));
                let holds = self.condition(line, place);
                self.begin_if(holds, place);
            }
            // A branch was read to its end, so skip the others.
            "elif" | "elifdef" | "elifndef" | "else" => {
                if open.ifs.is_empty() {
                    return self.fault(place, format!("`#{name}` without `#if`"));
                }
                if open.ifs.len() == 1 {
                    open.guard = Guard::No;
                }
                self.skip(true);
            }
            "endif" => {
                if open.ifs.pop().is_none() {
                    return self.fault(place, "`#endif` without `#if`");
                }
                self.close_guard();
                self.line();
            }
            "error" => {
                let text = self.open.last_mut().map(|o| o.lexer.rest_of_line()).unwrap_or_default();
                self.fault(place, format!("#error {text}"));
            }
            // `#pragma once` as well: every file of the platform has a guard
            "pragma" => {
                let line = self.line();
                if line.first().is_some_and(|t| self.names.text(t.sym) == "once") {
                    self.once(place);
                } else if line.first().is_some_and(|t| self.names.text(t.sym) == "pack") {
                    // for the parser of declarations
                    let marker = self.names.sym("#pragma");
                    self.out.push(Token { kind: Kind::Punct, sym: marker, ..word });
                    self.out.extend(line.into_iter().skip(1));
                }
            }
            "warning" | "ident" | "line" | "sccs" | "assert" | "unassert" => {
                if let Some(open) = self.open.last_mut() {
                    open.lexer.rest_of_line();
                }
            }
            _ if word.kind == Kind::Number => {
                self.line();
            }
            _ => {
                self.line();
                self.fault(place, format!("there is no directive `#{name}`"));
            }
        }
    }

    /// Processes `#include` or `#include_next`.
    fn include_line(&mut self, next: bool, place: LexPosition) {
        let Some(open) = self.open.last_mut() else { return };
        let header = open.lexer.header_name().or_else(|| {
            let line = self.line();
            self.computed_name(line)
        });
        self.line();
        match header {
            Some((header, angled)) => self.include(&header, angled, next, place),
            None => self.fault(place, "`#include` needs <name> or \"name\""),
        }
    }

    /// Notes an `#if` for this undefined name: it is the guard of the whole file if nothing precedes it.
    fn begin_guard(&mut self, before: Guard, name: Option<Sym>) {
        if let (Guard::Unknown, Some(name), Some(open)) = (before, name, self.open.last_mut())
            && open.ifs.is_empty()
        {
            open.guard = Guard::Within(name);
        }
    }

    /// Processes `#pragma once`: a guard with a unique name.
    fn once(&mut self, place: LexPosition) {
        let sym = self.names.sym(&format!("#once {}", place.file));
        let define = Define { params: None, variadic: false, body: Vec::new(), pos: None };
        self.set_macro(sym, Some(Rc::new(define)));
        if let Some(known) = self.files.get(place.file as usize).and_then(|f| self.files_by_path.get_mut(&f.path)) {
            known.1 = Some(sym);
        }
    }

    fn close_guard(&mut self) {
        if let Some(open) = self.open.last_mut()
            && open.ifs.is_empty()
            && let Guard::Within(name) = open.guard
        {
            open.guard = Guard::Closed(name);
        }
    }

    fn computed_name(&mut self, line: Vec<Token>) -> Option<(String, bool)> {
        let line = self.expand_all(line, 0);
        let first = line.first()?;
        let text = self.names.text(first.sym);
        if first.kind == Kind::Text {
            return Some((text.trim_matches('"').to_owned(), false));
        }
        let inner = line.get(1..line.len().checked_sub(1)?)?;
        let name: String = inner.iter().map(|t| self.names.text(t.sym)).collect();
        (text == "<").then_some((name, true))
    }

    /// Processes `#define`, starting at the name.
    pub(super) fn define(&mut self, lexer: &mut Lexer, placed: bool) {
        let place = lexer.pos();
        let name = lexer.next_on_line(&mut self.names);
        let Some(name) = name.filter(|n| n.kind == Kind::Word) else {
            lexer.rest_of_line();
            return self.fault(place, "`#define` needs a name");
        };
        let mut body = Vec::new();
        while let Some(token) = lexer.next_on_line(&mut self.names) {
            body.push(token);
        }
        let (mut params, mut variadic) = (None, false);
        if body.first().is_some_and(|t| !t.spaced && self.names.text(t.sym) == "(") {
            let Some(end) = body.iter().position(|t| self.names.text(t.sym) == ")") else {
                return self.fault(name.pos, format!("the parameter list of `{}` does not end", self.names.text(name.sym)));
            };
            let mut list = Vec::new();
            for t in body.get(1..end).unwrap_or_default() {
                match self.names.text(t.sym) {
                    "..." => {
                        variadic = true;
                        // `args...` gives them a name
                        let named = body.get(1..end).unwrap_or_default();
                        let is_macro = named.len() >= 2 && named.get(named.len() - 2).is_some_and(|t| t.kind == Kind::Word);
                        if !is_macro {
                            list.push(self.names.sym("__VA_ARGS__"));
                        }
                    }
                    _ if t.kind == Kind::Word => list.push(t.sym),
                    _ => {}
                }
            }
            params = Some(list);
            body.drain(..=end);
        }
        let place = placed.then_some(name.pos);
        self.set_macro(name.sym, Some(Rc::new(Define { params, variadic, body, pos: place })));
    }

    fn begin_if(&mut self, holds: bool, place: LexPosition) {
        if let Some(open) = self.open.last_mut() {
            open.ifs.push(If { taken: holds, has_else: false, pos: place });
        }
        if !holds {
            self.skip(false);
        }
    }

    /// Skips lines, up to the branch that applies or to the `#endif`. `at_else`: the last line was an `#else` or
    /// `#elif`.
    fn skip(&mut self, at_else: bool) {
        if at_else {
            self.line();
            if let Some(open) = self.open.last_mut().and_then(|o| o.ifs.last_mut()) {
                open.taken = true;
            }
        }
        let mut nested = 0usize;
        loop {
            let Some(open) = self.open.last_mut() else { return };
            if !open.lexer.skip_to_directive() {
                return;
            }
            let Some(hash) = open.lexer.next(&mut self.names) else { return };
            let place = hash.pos;
            let Some(word) = open.lexer.next_on_line(&mut self.names) else { continue };
            let name = self.names.text(word.sym).to_owned();
            match name.as_str() {
                "if" | "ifdef" | "ifndef" => {
                    nested += 1;
                    open.lexer.rest_of_line();
                }
                "endif" if nested > 0 => {
                    nested -= 1;
                    open.lexer.rest_of_line();
                }
                "endif" => {
                    open.ifs.pop();
                    open.lexer.rest_of_line();
                    self.close_guard();
                    return;
                }
                "else" | "elif" | "elifdef" | "elifndef" if nested == 0 => {
                    if open.ifs.len() == 1 {
                        open.guard = Guard::No;
                    }
                    let Some((taken, last)) = open.ifs.last().map(|i| (i.taken, i.has_else)) else { return };
                    if last {
                        self.fault(place, format!("`#{name}` after `#else`"));
                    }
                    let line = self.line();
                    let holds = !taken
                        && match name.as_str() {
                            "else" => true,
                            "elif" => self.condition(line, place),
                            other => line.first().is_some_and(|t| self.macro_of(t.sym).is_some() == (other == "elifdef")),
                        };
                    if let Some(i) = self.open.last_mut().and_then(|o| o.ifs.last_mut()) {
                        i.has_else |= name == "else";
                        i.taken |= holds;
                    }
                    if holds {
                        return;
                    }
                }
                _ => {
                    open.lexer.rest_of_line();
                }
            }
        }
    }

    /// The condition of an `#if`.
    fn condition(&mut self, line: Vec<Token>, place: LexPosition) -> bool {
        let mut flat = Vec::with_capacity(line.len());
        let mut all = line.into_iter().peekable();
        let (yes, no) = (self.names.sym("1"), self.names.sym("0"));
        while let Some(token) = all.next() {
            let text = self.names.text(token.sym);
            let answer = match text {
                "defined" => {
                    let paren = all.next_if(|t| self.names.text(t.sym) == "(").is_some();
                    let name = all.next();
                    if paren {
                        all.next_if(|t| self.names.text(t.sym) == ")");
                    }
                    let holds = name.is_some_and(|n| self.macro_of(n.sym).is_some() || self.names.text(n.sym).starts_with("__has_"));
                    self.unknown |= !holds && place.file == 0;
                    holds
                }
                "__has_include" | "__has_include_next" => {
                    let mut name = String::new();
                    let mut nested = 0;
                    for t in all.by_ref() {
                        match self.names.text(t.sym) {
                            "(" => nested += 1,
                            ")" => {
                                nested -= 1;
                                if nested == 0 {
                                    break;
                                }
                            }
                            text => name += text,
                        }
                    }
                    let plain = name.trim_matches(['<', '>', '"']);
                    // as for `#include`
                    let here = self.files.get(place.file as usize).filter(|_| name.starts_with('"'));
                    let beside = here.and_then(|file| file.path.parent());
                    !matches!(self.search.find(plain, beside, 0), HeaderLookup::NotFound)
                }
                _ => {
                    flat.push(token);
                    continue;
                }
            };
            flat.push(Token { kind: Kind::Number, sym: if answer { yes } else { no }, ..token });
        }
        let flat = self.expand_all(flat, 0);
        let flat = without_features(&self.names, no, flat);
        if place.file == 0 {
            self.unknown |= flat.iter().any(|t| t.kind == Kind::Word);
        }
        match number::condition(&flat, &self.names) {
            Ok(holds) => holds,
            Err(why) => {
                self.fault(place, format!("the condition of this `#if` is invalid: {why}"));
                false
            }
        }
    }
}

/// Replaces `__has_attribute(x)` and similar operators: there is no compiler, so nothing is available.
fn without_features(names: &Interner, no: Sym, tokens: Vec<Token>) -> Vec<Token> {
    let mut out = Vec::with_capacity(tokens.len());
    let mut all = tokens.into_iter();
    while let Some(token) = all.next() {
        if token.kind != Kind::Word || !names.text(token.sym).starts_with("__has_") {
            out.push(token);
            continue;
        }
        let mut nested = 0usize;
        for t in all.by_ref() {
            match names.text(t.sym) {
                "(" => nested += 1,
                ")" => nested = nested.saturating_sub(1),
                _ => {}
            }
            if nested == 0 {
                break;
            }
        }
        out.push(Token { kind: Kind::Number, sym: no, ..token });
    }
    out
}

/// `!defined(NAME)` or `!defined NAME`
fn not_defined(names: &Interner, line: &[Token]) -> Option<Sym> {
    let texts: Vec<&str> = line.iter().map(|t| names.text(t.sym)).collect();
    match texts.as_slice() {
        ["!", "defined", "(", _, ")"] => line.get(3).map(|t| t.sym),
        ["!", "defined", _] => line.get(2).map(|t| t.sym),
        _ => None,
    }
}
