//! How [`Output`](crate::value::Output) looks: one row per format.

use crate::value::{Output, Value};

/// Bytes for standard output (or `-o`) and for standard error.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The run's result.
    pub out: Vec<u8>,
    /// Messages about the run.
    pub err: Vec<u8>,
}

/// A format.
pub trait Renderer {
    /// Appends what `output` looks like to `to`.
    fn render(&mut self, output: &Output, to: &mut Rendered);
    /// A value as `%s` shows it.
    fn text(&self, value: &Value) -> Vec<u8>;
}
