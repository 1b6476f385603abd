//! `-f state`: the document that `rbt merge` reads.
//!
//! Maps that the script prints are not written separately: the document has their final contents.

use crate::host::Reader;
use crate::output::Output;
use crate::value::Value;

use super::{RenderOptions, Rendered, Renderer, folded};

/// Creates the renderer.
pub fn make(options: &RenderOptions) -> Box<dyn Renderer> {
    Box::new(StateRenderer { fallback: folded::make(options) })
}

struct StateRenderer {
    /// Sends everything but maps to standard error.
    fallback: Box<dyn Renderer>,
}

impl Renderer for StateRenderer {
    fn render(&mut self, output: &Output, to: &mut Rendered) {
        match output {
            Output::State(state) => {
                to.out.extend(state.document());
                to.out.push(b'\n');
            }
            Output::Map(_) | Output::End => {}
            Output::Text { .. }
            | Output::Value(_)
            | Output::Problem { .. }
            | Output::Attached { .. }
            | Output::Lost { .. }
            | Output::Limited(_)
            | Output::Counts(_)
            | Output::Span(_)
            | Output::Test(_) => self.fallback.render(output, to),
        }
    }

    fn text(&self, value: &Value, reader: Reader, to: &mut Vec<u8>) {
        self.fallback.text(value, reader, to);
    }
}
