//! rbt: a tracer for Linux. See README.md for what it is; this note says how it is built.

pub mod decode;
pub mod diag;
pub mod host;
pub mod settings;
pub mod types;
pub mod value;

pub mod system;

pub mod emit;

pub mod builtins;
pub mod probes;
pub mod render;

pub mod check;
pub mod codegen;
pub mod runtime;
pub mod syntax;

pub mod cli;
pub mod driver;
pub mod info;
pub mod list;

/// The version, as `rbt --version` prints it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
