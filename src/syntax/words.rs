//! The properties of words that the parser needs.

use crate::builtins::{self, Codegen};

/// Is this the name of a value that every script has? `(pid) - 1` subtracts, while `(name) - 1` casts -1 to a type: the
/// builtins that can be used without arguments decide.
pub fn is_value_word(word: &str) -> bool {
    builtins::find(word).is_some_and(|b| b.params.iter().all(|p| p.optional))
}

/// The builtin of this name that is implemented by macros.
pub fn library_word(word: &str) -> Option<&'static str> {
    builtins::find(word).filter(|b| matches!(b.codegen, Codegen::Source(_))).map(|b| b.name)
}

/// Its macros.
pub fn source(name: &str) -> Option<&'static str> {
    match builtins::find(name)?.codegen {
        Codegen::Source(text) => Some(text),
        Codegen::Fold(_)
        | Codegen::Context(_)
        | Codegen::Code(_)
        | Codegen::Effect(_)
        | Codegen::Either(..)
        | Codegen::Known(..)
        | Codegen::Event(_)
        | Codegen::Aggregate(_) => None,
    }
}
