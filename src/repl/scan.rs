//! Scans an incomplete line to find what is at the cursor. It knows characters, not words; the tables know those.

use crate::system::TypeName;

/// A piece of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// Letters, digits and `_`.
    Word,
    /// A number.
    Number,
    /// With its quotes; the last one on a line may lack the closing quote.
    Text,
    /// `$x`
    Variable,
    /// `@x`
    Map,
    /// To the end of the line, or between `/*` and `*/`.
    Comment,
    /// Anything else: one character, or blanks.
    Sign,
}

/// Splits a text: kinds and byte ranges, in order, without gaps.
pub fn tokens(text: &str) -> Vec<(Token, std::ops::Range<usize>)> {
    let mut all = Vec::new();
    let mut pos = 0;
    while let Some(first) = text.get(pos..).and_then(|rest| rest.chars().next()) {
        let rest = text.get(pos..).unwrap_or_default();
        let word = |from: &str| from.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(from.len());
        let after = rest.get(1..).unwrap_or_default();
        let (kind, len) = match first {
            '"' => (Token::Text, quoted(rest)),
            '/' if after.starts_with('/') => (Token::Comment, rest.find('\n').unwrap_or(rest.len())),
            '/' if after.starts_with('*') => {
                (Token::Comment, rest.get(2..).and_then(|text| text.find("*/")).map_or(rest.len(), |end| end + 4))
            }
            '$' => (Token::Variable, 1 + word(after)),
            '@' => (Token::Map, 1 + word(after)),
            c if c.is_ascii_digit() => (Token::Number, word(rest)),
            c if c.is_alphabetic() || c == '_' => (Token::Word, word(rest)),
            c => (Token::Sign, c.len_utf8()),
        };
        all.push((kind, pos..pos + len));
        pos += len;
    }
    all
}

/// Bytes of a string at the start of a text.
fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            '\n' => return at,
            _ => escaped = c == '\\' && !escaped,
        }
    }
    text.len()
}

/// Does a string have its closing quote?
fn closed(text: &str) -> bool {
    let mut escaped = false;
    let mut quotes = 0;
    for c in text.chars() {
        quotes += u32::from(c == '"' && !escaped);
        escaped = c == '\\' && !escaped;
    }
    quotes >= 2
}

/// The text before the cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompletionContext {
    /// A command's name, starting here.
    Command(usize),
    /// A command's argument: its name, and where the argument begins.
    Argument(String, usize),
    /// A probe's name, starting here.
    Probe(usize),
    /// A member of the expression in this range; its name begins at `name`.
    Member { expr: std::ops::Range<usize>, name: usize },
    /// `$x`, starting here.
    Variable(usize),
    /// `@x`, starting here.
    Map(usize),
    /// The name of a struct, union or enum, starting here.
    Type(TypeName, usize),
    /// A word within a probe, starting here.
    Word(usize),
    /// A place without names.
    Nothing,
}

/// The context at the end of a text.
pub fn completion_context(text: &str) -> CompletionContext {
    if let Some(command) = text.trim_start().strip_prefix(':') {
        let from = text.len() - command.len();
        return match command.split_once(char::is_whitespace) {
            None => CompletionContext::Command(from),
            Some((name, rest)) => CompletionContext::Argument(name.into(), text.len() - rest.trim_start().len()),
        };
    }
    let all = tokens(text);
    let is = |range: &std::ops::Range<usize>, sign: &str| text.get(range.clone()) == Some(sign);
    let last = all.last().map_or("", |(_, range)| text.get(range.clone()).unwrap_or_default());
    match all.last() {
        Some((Token::Text, _)) if !closed(last) => return CompletionContext::Nothing,
        Some((Token::Comment, _)) => return CompletionContext::Nothing,
        _ => {}
    }
    if let [.., (_, word), (Token::Sign, blank)] | [.., (_, word), (Token::Sign, blank), (Token::Word, _)] = all.as_slice()
        && let Some(kind) = text.get(word.clone()).and_then(tag)
        && text.get(blank.clone()).is_some_and(|sign| sign.trim().is_empty())
    {
        return CompletionContext::Type(kind, blank.end);
    }
    let depth: i32 = all.iter().map(|(k, r)| if *k == Token::Sign { i32::from(is(r, "{")) - i32::from(is(r, "}")) } else { 0 }).sum();
    if depth <= 0 && !in_predicate(text, &all) {
        // an attach point starts after a blank, a comma or a block's end, and may contain any signs
        let from = text.rfind(|c: char| c.is_whitespace() || c == ',' || c == '}').map_or(0, |at| at + 1);
        let first = text.get(from..).unwrap_or_default();
        return match first.chars().next() {
            Some('@') if !first.contains([':', '.', '[']) => CompletionContext::Map(from),
            _ if first.contains(['.', '(', '[', '@', '$']) && !first.contains(':') => within(text, &all),
            _ => CompletionContext::Probe(from),
        };
    }
    within(text, &all)
}

/// Is it between the slashes after a probe?
fn in_predicate(text: &str, all: &[(Token, std::ops::Range<usize>)]) -> bool {
    let last = all.iter().rposition(|(k, r)| *k == Token::Sign && ["}", ","].contains(&text.get(r.clone()).unwrap_or_default()));
    let mut before_blank = false;
    let mut slashes = 0;
    for (_, range) in all.iter().skip(last.map_or(0, |at| at + 1)) {
        let piece = text.get(range.clone()).unwrap_or_default();
        // the slashes of a path do not follow a blank
        slashes += usize::from(piece == "/" && (before_blank || slashes > 0));
        before_blank = piece.trim().is_empty();
    }
    slashes == 1
}

fn within(text: &str, all: &[(Token, std::ops::Range<usize>)]) -> CompletionContext {
    let end = text.len();
    let Some((kind, range)) = all.last() else { return CompletionContext::Word(end) };
    let (name, before) = match kind {
        Token::Variable => return CompletionContext::Variable(range.start),
        Token::Map => return CompletionContext::Map(range.start),
        Token::Word => (range.start, all.len().saturating_sub(1)),
        Token::Sign => (end, all.len()),
        Token::Number | Token::Text | Token::Comment => return CompletionContext::Nothing,
    };
    let sign = |index: usize| all.get(index).filter(|(k, _)| *k == Token::Sign).and_then(|(_, r)| text.get(r.clone()));
    let dot = before.checked_sub(1).and_then(sign) == Some(".");
    let arrow = before.checked_sub(2).and_then(sign) == Some("-") && before.checked_sub(1).and_then(sign) == Some(">");
    if !dot && !arrow {
        return CompletionContext::Word(name);
    }
    let last = before - if dot { 1 } else { 2 };
    let expr = chain(text, all, last);
    CompletionContext::Member { expr, name }
}

/// The words before the name of a type.
pub fn tag(word: &str) -> Option<TypeName> {
    match word {
        "struct" => Some(TypeName::Struct),
        "union" => Some(TypeName::Union),
        "enum" => Some(TypeName::Enum),
        _ => None,
    }
}

/// The postfix expression that ends before token `end`.
fn chain(text: &str, all: &[(Token, std::ops::Range<usize>)], end: usize) -> std::ops::Range<usize> {
    let stop = end.checked_sub(1).and_then(|at| all.get(at)).map_or(0, |(_, r)| r.end);
    let piece = |at: usize| all.get(at).and_then(|(_, r)| text.get(r.clone())).unwrap_or_default();
    let mut at = end;
    while at > 0 {
        let last = piece(at - 1);
        if last == ")" || last == "]" {
            let mut open = 0i32;
            while at > 0 {
                at -= 1;
                open += i32::from([")", "]"].contains(&piece(at))) - i32::from(["(", "["].contains(&piece(at)));
                if open == 0 {
                    break;
                }
            }
            // the called or indexed expression precedes it
            let called = at
                .checked_sub(1)
                .and_then(|before| all.get(before))
                .is_some_and(|(k, r)| !matches!(k, Token::Sign) || text.get(r.clone()).is_some_and(|sign| [")", "]"].contains(&sign)));
            if called {
                continue;
            }
        } else {
            at -= 1;
        }
        let before = at.checked_sub(1).map(piece);
        match before {
            Some(".") => at -= 1,
            Some(">") if at >= 2 && piece(at - 2) == "-" => at -= 2,
            _ => break,
        }
    }
    all.get(at).map_or(0, |(_, r)| r.start)..stop
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_context_of_the_cursor() {
        let member = |text: &str| {
            let place = completion_context(text);
            let CompletionContext::Member { expr, name } = place else { panic!("{text}: {place:?}") };
            (text[expr].to_string(), text[name..].to_string())
        };
        assert_eq!(completion_context(":he"), CompletionContext::Command(1));
        assert_eq!(completion_context(":drop 1"), CompletionContext::Argument("drop".into(), 6));
        assert_eq!(completion_context("tracepoint:sys"), CompletionContext::Probe(0));
        assert_eq!(completion_context("kprobe:a, kpr"), CompletionContext::Probe(10));
        assert_eq!(completion_context("uprobe:/bin/ba"), CompletionContext::Probe(0));
        assert_eq!(completion_context("begin { pri"), CompletionContext::Word(8));
        assert_eq!(completion_context("begin { $x"), CompletionContext::Variable(8));
        assert_eq!(completion_context("@he"), CompletionContext::Map(0));
        assert_eq!(completion_context("begin { print(@a"), CompletionContext::Map(14));
        assert_eq!(completion_context("begin { print(\"a."), CompletionContext::Nothing);
        assert_eq!(completion_context("// \"a\" pri"), CompletionContext::Nothing);
        assert_eq!(completion_context("/*/ pri"), CompletionContext::Nothing);
        assert_eq!(completion_context("begin { print(\"a\n, pri"), CompletionContext::Word(19));
        assert_eq!(completion_context("kprobe:a /pi"), CompletionContext::Word(10));
        assert_eq!(member("curtask."), ("curtask".into(), "".into()));
        assert_eq!(member("begin { print(curtask->real_parent.co"), ("curtask->real_parent".into(), "co".into()));
        assert_eq!(member("kprobe:a { $f = (struct file *)arg0; $f->f_path.d"), ("$f->f_path".into(), "d".into()));
        assert_eq!(member("kprobe:a { if (f(1, 2)[3].x"), ("f(1, 2)[3]".into(), "x".into()));
        assert_eq!(member("kprobe:a /((struct file *)arg0)."), ("((struct file *)arg0)".into(), "".into()));
        assert_eq!(completion_context("struct ta"), CompletionContext::Type(TypeName::Struct, 7));
        assert_eq!(completion_context("begin { $x = (union "), CompletionContext::Type(TypeName::Union, 20));
        assert_eq!(completion_context("sizeof(enum a"), CompletionContext::Type(TypeName::Enum, 12));
        assert_eq!(completion_context("begin { structs ta"), CompletionContext::Word(16));
        assert_eq!(member("kprobe:a /args.c"), ("args".into(), "c".into()));
    }
}
