//! Text to [`ast`]: the only user of pest.
//!
//! `scan` reads brackets, strings and comments only. It limits nesting before the grammar sees the text, and finds the
//! pieces of a script that does not parse, so that each may report its own error. `read` and `expr` turn pest's pairs
//! into the tree; `explain` turns pest's errors into messages.

pub use keywords::{KEYWORDS, Keyword};
use std::collections::BTreeSet;

use pest::Parser;

use crate::diag::{Diagnostic, Diagnostics, Source, Span};

pub mod ast;
mod explain;
mod expr;
pub mod keywords;
mod read;
mod scan;
pub mod shape;
#[cfg(test)]
mod tests;
mod words;

/// The parser that pest generates from `grammar.pest`.
#[allow(missing_docs)]
mod grammar {
    #[derive(pest_derive::Parser)]
    #[grammar = "../grammar.pest"]
    pub struct Grammar;
}

use grammar::{Grammar, Rule};

/// Maximum nesting of brackets, `if`s and `?`s. It limits the stack of the parser.
pub const MAX_NESTING: usize = 100;

/// Is a text the beginning of a script, with an open bracket or comment at its end, or a list of probes that continues?
pub fn unfinished(text: &str) -> bool {
    let scan = scan::scan(text, 0);
    scan.unfinished || (scan.faults.is_empty() && scan.too_deep.is_none() && text.trim_end().ends_with(','))
}

/// Parses a script. Every error found is reported; codes: `syntax`, `bad-escape`, `bad-number`, `unterminated-string`,
/// `unterminated-comment`, `unbalanced`, `too-deep`, `order`, `not-assignable`.
pub fn parse(source: &Source) -> Result<ast::Script, Diagnostics> {
    parse_as(source, 0)
}

/// Like [`parse`], for the source at `index` (an imported script), which its spans contain.
pub fn parse_as(source: &Source, index: u16) -> Result<ast::Script, Diagnostics> {
    parse_with_pair(source, index).map(|parsed| parsed.script)
}

/// Like [`parse`], and also returns the script's [`shape`].
pub fn parse_with_shape(source: &Source) -> Result<(ast::Script, Option<shape::Node>), Diagnostics> {
    let Parsed { script, pair, casts } = parse_with_pair(source, 0)?;
    Ok((script, pair.map(|p| shape::shape(p, &casts))))
}

/// A script, and what its [`shape`] is made from.
#[derive(Default)]
struct Parsed<'s> {
    script: ast::Script,
    /// The grammar's tree; none for an empty text.
    pair: Option<read::Pair<'s>>,
    /// The places of casts.
    casts: BTreeSet<u32>,
}

fn parse_with_pair(source: &Source, index: u16) -> Result<Parsed<'_>, Diagnostics> {
    let text = source.text.as_str();
    if u32::try_from(text.len()).is_err() {
        return Err(Diagnostic::error("syntax", Span { source: index, ..Span::default() }, "a script of over 4 GB").into());
    }
    let scan = scan::scan(text, index);
    if let Some(problem) = scan.too_deep {
        return Err(problem.into());
    }
    let found = match Grammar::parse(Rule::script, text) {
        Ok(mut pairs) => match pairs.next() {
            Some(script) => {
                let mut reader = read::Reader::new(index, 0);
                let mut tree = reader.script(script.clone());
                if reader.diags.is_empty() {
                    tree.library = library(reader.library);
                    return Ok(Parsed { script: tree, pair: Some(script), casts: reader.casts });
                }
                reader.diags
            }
            None => return Ok(Parsed::default()),
        },
        Err(error) => recover(source, index, scan, &error),
    };
    Err(Diagnostics(found))
}

/// The macros of these builtins, and those that they use.
fn library(mut wanted: BTreeSet<&'static str>) -> Vec<ast::Macro> {
    let (mut found, mut done) = (Vec::new(), BTreeSet::new());
    while let Some(name) = wanted.pop_first() {
        let Some(text) = words::source(name).filter(|_| done.insert(name)) else { continue };
        let mut reader = read::Reader::new(ast::LIBRARY, 0);
        let tree = match Grammar::parse(Rule::script, text).map(|mut pairs| pairs.next()) {
            Ok(Some(script)) => reader.script(script),
            Ok(None) => continue,
            Err(e) => crate::bug!("the macro {name}: {e}"),
        };
        wanted.append(&mut reader.library);
        found.extend(tree.items.into_iter().filter_map(|item| if let ast::Item::Macro(m) = item { Some(m) } else { None }));
    }
    found
}

/// Why a script does not parse: the errors of the scan, and the first error of each complete piece.
fn recover(source: &Source, index: u16, scan: scan::Scan, pest_error: &pest::error::Error<Rule>) -> Vec<Diagnostic> {
    let text = source.text.as_str();
    let mut found = scan.faults;
    let mut order = explain::Order::default();
    for piece in scan.pieces {
        if found.iter().any(|d| piece.contains(&(d.span.start as usize))) || found.len() >= scan::MAX_FAULTS {
            continue;
        }
        // An error at the end of a piece may be caused by an earlier omission.
        let open_ended = found.iter().any(|d| d.span.start as usize == piece.end);
        let Some(part) = text.get(piece.clone()) else { continue };
        match Grammar::parse(Rule::piece, part) {
            Ok(mut pairs) => {
                let Some(pair) = pairs.next() else { continue };
                let mut reader = read::Reader::new(index, piece.start);
                found.extend(order.check_order(pair.clone(), index, piece.start));
                reader.script(pair);
                found.extend(reader.diags);
            }
            Err(error) => {
                let end = part.trim_end().len() + piece.start;
                let explanation = explain::explain(&error, source, index, piece);
                if !open_ended || (explanation.span.end as usize) < end {
                    found.push(explanation);
                }
            }
        }
    }
    if found.is_empty() {
        found.push(explain::explain(pest_error, source, index, 0..text.len()));
    }
    found.sort_by_key(|d| d.span.start);
    found
}
