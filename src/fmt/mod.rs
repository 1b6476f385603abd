//! `rbt fmt`: a script in canonical form.
//!
//! `tokens` splits the text by the shapes of the grammar and attaches comments to words; `items` and `exprs` determine where
//! lines may or must break; `layout` produces the lines. Names, numbers, strings, attach points and the C part do not change.
//! `driver::rewrite` reads and writes files.
//!
//! The form: an indent of two spaces, one statement per line, lines of up to [`WIDTH`] characters where they can be broken, one
//! empty line between probes, macros and functions, and one attach point per line. A shape of the grammar that this module does
//! not know stays unchanged; a test reports it.

use crate::syntax::shape::{Node, Rule};

mod exprs;
mod items;
mod layout;
#[cfg(test)]
mod tests;
mod tokens;

/// Maximum number of columns of a line that can be broken.
pub const WIDTH: usize = 80;

/// The canonical text of a script with the shape `shape`. Parsing the result yields the same tree except for spans, and formatting
/// it yields the same text.
pub fn format(text: &str, shape: &Node) -> String {
    let (tree, words) = tokens::read(text, shape);
    layout::lay_out(&items::items(&tree, &words), WIDTH)
}

/// Do two texts have the same words and comments? Formatting changes only blanks, semicolons and commas.
pub fn same_words(one: &str, other: &str) -> bool {
    let is_significant = |c: &char| !c.is_whitespace() && !matches!(c, ';' | ',' | '\u{feff}');
    one.chars().filter(is_significant).eq(other.chars().filter(is_significant))
}

/// Shapes with parts. All others are words, which do not change.
const COMPOUND_RULES: &[Rule] = &[
    Rule::script,
    Rule::settings,
    Rule::setting,
    Rule::setting_value,
    Rule::equals,
    Rule::import,
    Rule::macro_item,
    Rule::macro_param,
    Rule::function_item,
    Rule::function_param,
    Rule::map_item,
    Rule::traced_item,
    Rule::predicate,
    Rule::block,
    Rule::while_stmt,
    Rule::for_stmt,
    Rule::unroll_stmt,
    Rule::let_stmt,
    Rule::return_stmt,
    Rule::break_stmt,
    Rule::continue_stmt,
    Rule::import_stmt,
    Rule::expr_stmt,
    Rule::expr,
    Rule::chain,
    Rule::if_expr,
    Rule::condition,
    Rule::call,
    Rule::arguments,
    Rule::sizeof,
    Rule::offsetof,
    Rule::typeof_atom,
    Rule::typeinfo,
    Rule::map,
    Rule::keys,
    Rule::parens,
    Rule::record_item,
    Rule::field,
    Rule::index,
    Rule::type_name,
    Rule::typeof_base,
    Rule::type_tuple,
    Rule::tagged,
    Rule::array,
    Rule::certain_type,
    Rule::flat_array,
    Rule::empty_array,
];

/// Is this shape a word, which does not change?
fn is_word(rule: Rule) -> bool {
    !COMPOUND_RULES.contains(&rule)
}
