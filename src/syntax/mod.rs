//! Text to [`ast`]: the only user of pest.

pub mod ast;
