//! Locations in scripts, for reports.

use crate::diag::{Source, Span};
use crate::verdict::SourceLocation;

/// A span for reports; none for a script as a whole.
pub fn source_location(span: Span, sources: &[Source]) -> Option<SourceLocation> {
    if span == Span::default() {
        return None;
    }
    let source = sources.get(usize::from(span.source))?;
    let ((line, column), (end_line, end_column)) = (source.line_col(span.start), source.line_col(span.end.max(span.start)));
    Some(SourceLocation { file: source.name.clone(), line, column, end_line, end_column, text: source.line(line).to_string() })
}
