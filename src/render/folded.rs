//! `-f folded`: a line for each key of a map, with the parts of the key, outermost first and separated by semicolons,
//! and the value. flamegraph.pl, inferno and speedscope read this format.
//!
//! Equal lines (frames have no offsets here) are merged. All other output goes to standard error.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::Reader;
use crate::output::Output;
use crate::value::{MapView, Value};

use super::integers::decimal;
use super::stack_keys::{KeyPart, NO_STACK, WAKER_SEPARATOR, frame, parts, weight};
use super::style::Style;
use super::value_text;
use super::{PART, RenderOptions, Rendered, Renderer, WritePart, text};

/// Creates the renderer.
pub fn make(options: &RenderOptions) -> Box<dyn Renderer> {
    // All output except for maps goes to standard error.
    let text = RenderOptions { escape_output: options.escape_messages, ..options.clone() };
    Box::new(Folded {
        text: text::make(&text),
        trailer: options.trunc_trailer.clone().into_bytes(),
        visible: options.escape_output,
        beside: options.maps_only,
        maps: BTreeSet::new(),
        omitted: BTreeSet::new(),
    })
}

struct Folded {
    text: Box<dyn Renderer>,
    trailer: Vec<u8>,
    /// Control characters are escaped.
    visible: bool,
    /// Another renderer prints everything but maps.
    beside: bool,
    /// The maps whose lines were written.
    maps: BTreeSet<String>,
    /// Those that had no lines.
    omitted: BTreeSet<String>,
}

impl Renderer for Folded {
    fn render(&mut self, output: &Output, to: &mut Rendered) {
        self.render_in_parts(output, to, &mut |_| true);
    }

    fn render_in_parts(&mut self, output: &Output, to: &mut Rendered, write: &mut WritePart<'_>) {
        match output {
            Output::Map(view) => self.map(view, to, write),
            Output::End | Output::State(_) => {}
            Output::Text { .. }
            | Output::Value(_)
            | Output::Problem { .. }
            | Output::Attached { .. }
            | Output::Lost { .. }
            | Output::Limited(_)
            | Output::Counts(_)
            | Output::Span(_)
            | Output::Test(_) => {
                if self.beside {
                    return;
                }
                let mut plain = Rendered::default();
                self.text.render(output, &mut plain);
                to.err.extend_from_slice(&plain.out);
                to.err.extend_from_slice(&plain.err);
            }
        }
    }

    fn omitted(&self) -> Option<String> {
        let maps = self.maps.iter().cloned().collect::<Vec<_>>().join(", ");
        (self.maps.len() > 1).then(|| format!("has no names of maps: a reader adds up the stacks of {maps}"))
    }

    fn omitted_maps(&self) -> usize {
        self.omitted.difference(&self.maps).count()
    }

    fn text(&self, value: &Value, reader: Reader, to: &mut Vec<u8>) {
        self.text.text(value, on_stderr(reader), to);
    }
}

impl Folded {
    fn map(&mut self, view: &MapView, to: &mut Rendered, write: &mut WritePart<'_>) {
        let mut lines: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        let mut left_out = 0;
        for (key, value) in &view.entries {
            match weight(value).filter(|_| view.keyed) {
                Some(0) => {}
                Some(n) => {
                    let sum = lines.entry(self.line(key)).or_default();
                    *sum = sum.saturating_add(n);
                }
                None => left_out += 1,
            }
        }
        if left_out > 0 {
            let why = if view.keyed { "their values are not positive numbers" } else { "it has no key to fold" };
            to.err.extend_from_slice(format!("{}: {left_out} omitted from the folded stacks: {why}\n", view.name).as_bytes());
        }
        if view.weights.is_some() {
            to.err.extend_from_slice(format!("{}: sampled\n", view.title()).as_bytes());
        }
        if !lines.is_empty() {
            self.maps.insert(view.name.clone());
        } else if !view.entries.is_empty() {
            self.omitted.insert(view.name.clone());
        }
        for (line, n) in lines {
            to.out.extend_from_slice(&line);
            to.out.push(b' ');
            decimal(&mut to.out, n);
            to.out.push(b'\n');
            if to.out.len() >= PART && !write(&mut to.out) {
                return;
            }
        }
    }

    fn line(&self, key: &Value) -> Vec<u8> {
        let mut line = Vec::new();
        for part in parts(key) {
            match part {
                KeyPart::Frame(f, s) => self.push(frame(f, s).as_bytes(), &mut line),
                KeyPart::Between => self.push(WAKER_SEPARATOR.as_bytes(), &mut line),
                KeyPart::Other(value) => {
                    let mut text = Vec::new();
                    value_text::value(value, Style { trailer: &self.trailer, compact: true, visible: self.visible }, &mut text);
                    self.push(&text, &mut line);
                }
            }
        }
        if line.is_empty() { NO_STACK.into() } else { line }
    }

    /// Appends a part, without characters that would end it.
    fn push(&self, part: &[u8], line: &mut Vec<u8>) {
        if part.is_empty() {
            return;
        }
        if !line.is_empty() {
            line.push(b';');
        }
        let mut text = Vec::new();
        Style { trailer: b"", compact: true, visible: self.visible }.text(part, &mut text);
        line.extend(text.iter().map(|b| match b {
            b';' => b':',
            b'\n' | b'\r' => b' ',
            b => *b,
        }));
    }
}

/// Messages go to standard error.
fn on_stderr(reader: Reader) -> Reader {
    match reader {
        Reader::Output | Reader::Messages => Reader::Messages,
        Reader::Program => Reader::Program,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{Frame, MapViewKind, ShowOptions, Stack, StackMode};

    fn stack(kernel: bool, names: &[&str]) -> Value {
        let frame = |name: &&str| Frame { symbol: Some(name.to_string()), offset: 4, ..Frame::default() };
        Value::Stack(Stack { mode: StackMode::Bpftrace, kernel, frames: names.iter().map(frame).collect() })
    }

    fn folded(keyed: bool, entries: Vec<(Value, Value)>) -> (String, String) {
        let view = MapView {
            name: "@".into(),
            kind: MapViewKind::Map,
            measures: false,
            keyed,
            set: true,
            entries,
            show: ShowOptions::default(),
            weights: None,
        };
        let mut to = Rendered::default();
        make(&RenderOptions::default()).render(&Output::Map(view), &mut to);
        (String::from_utf8(to.out).unwrap(), String::from_utf8(to.err).unwrap())
    }

    #[test]
    fn orders_frames_and_merges_equal_lines() {
        let name = || Value::Str { bytes: b"a;b".into(), cut: false };
        let key = |f: &str| Value::Tuple(vec![stack(true, &["sys", "entry"]), stack(false, &[f, "main"]), name()]);
        let entries = vec![(key("f"), Value::Uint(2)), (key("g"), Value::Uint(1)), (key("f"), Value::Uint(3))];
        assert_eq!(folded(true, entries).0, "a:b;main;f;entry;sys 5\na:b;main;g;entry;sys 1\n");
    }

    #[test]
    fn omits_and_reports_negative_values() {
        let (out, err) = folded(true, vec![(stack(false, &["f"]), Value::Int(-1)), (stack(false, &[]), Value::Int(1))]);
        assert_eq!(out, "[no stack] 1\n");
        assert!(err.starts_with("@: 1 omitted"), "{err}");
        assert_eq!(folded(false, vec![(Value::None, Value::Int(7))]).0, "");
    }
}
