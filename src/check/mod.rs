//! Checks a script against what the kernel offers: [`ast`](crate::syntax::ast) to [`hir`].

pub mod hir;
