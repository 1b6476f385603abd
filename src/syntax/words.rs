//! What reading must know of words, and no more.

use crate::builtins;

/// Is this the name of a value that every script has? `(pid) - 1` subtracts, while `(name) - 1` casts -1 to a type: the
/// builtins that can be used without arguments decide.
pub fn is_value_word(word: &str) -> bool {
    builtins::find(word).is_some_and(|b| b.params.iter().all(|p| p.optional))
}
