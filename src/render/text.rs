//! `-f text`: lines for people.

use crate::diag::{plain, uncommanded_line, visible};
use crate::host::Reader;
use crate::value::{Counts, MapView, Output, Pos, Value};

use super::digits::{address, decimal, hex_byte, signed};
use super::order::{arrange, divide, with_unit};
use super::{RenderOptions, Rendered, Renderer, hist, is_nothing, is_script, is_warning, series, stack, table};

/// Makes the renderer.
pub fn make(options: &RenderOptions) -> Box<dyn Renderer> {
    Box::new(TextRenderer { options: options.clone() })
}

struct TextRenderer {
    options: RenderOptions,
}

/// How values are spelled.
#[derive(Clone, Copy)]
pub struct Style<'a> {
    /// Ends a string that was cut.
    pub trailer: &'a [u8],
    /// Without the spaces between parts: a key in JSON.
    pub tight: bool,
    /// With control characters escaped: a terminal would obey them.
    pub visible: bool,
}

impl Style<'_> {
    /// Appends a text that the traced system chose.
    pub fn text(&self, text: &[u8], to: &mut Vec<u8>) {
        if self.visible { visible(text, to) } else { to.extend_from_slice(text) }
    }
}

impl Renderer for TextRenderer {
    fn render(&mut self, output: &Output, to: &mut Rendered) {
        let style = Style { trailer: self.options.trunc_trailer.as_bytes(), tight: false, visible: self.options.terminal };
        match output {
            Output::Text { kind: _, data, newline } => {
                to.out.extend_from_slice(data);
                if *newline {
                    to.out.push(b'\n');
                }
            }
            Output::Value(v) => {
                value(v, style, &mut to.out);
                to.out.push(b'\n');
            }
            Output::Map(view) if is_nothing(view) => {}
            Output::Map(view) => map(view, style, self.options.tables, &mut to.out),
            Output::Problem { kind, msg, helper, pos, line } => {
                if self.options.warnings || !is_warning(kind) {
                    let severity = if is_warning(kind) { "WARNING" } else { "ERROR" };
                    let msg = msg.strip_suffix('\n').unwrap_or(msg);
                    // The script's own message may have several lines; its values are spelled already.
                    let msg = match is_script(kind) {
                        true if self.options.commands => msg.split('\n').map(uncommanded_line).collect::<Vec<_>>().join("\n"),
                        true => msg.to_string(),
                        false => plain(msg),
                    };
                    problem(severity, &msg, helper.as_ref(), pos, line, &mut to.err);
                }
            }
            Output::Attached { probes } => {
                to.err.extend_from_slice(b"Attached ");
                decimal(&mut to.err, *probes);
                to.err.extend_from_slice(if *probes == 1 { b" probe\n" } else { b" probes\n" });
            }
            Output::Lost { events } => {
                to.err.extend_from_slice(b"Lost ");
                decimal(&mut to.err, *events);
                to.err.extend_from_slice(b" events\n");
            }
            Output::Counts(counts) if self.options.warnings => incomplete(counts, &mut to.err),
            Output::Counts(_) => {}
            Output::End => to.out.extend_from_slice(b"\n\n"),
            Output::Trial(trial) => super::trial::text(trial, &mut to.out),
        }
    }

    fn text(&self, v: &Value, reader: Reader, to: &mut Vec<u8>) {
        let trailer = self.options.trunc_trailer.as_bytes();
        value(v, Style { trailer, tight: false, visible: self.options.at_terminal(reader) }, to);
    }
}

/// Appends a value.
pub fn value(v: &Value, style: Style, to: &mut Vec<u8>) {
    match v {
        Value::None => to.extend_from_slice(b"null"),
        Value::Bool(b) => to.extend_from_slice(if *b { b"true" } else { b"false" }),
        Value::Int(i) => signed(to, *i),
        Value::Uint(u) => decimal(to, *u),
        Value::Ptr(p) => address(to, *p),
        Value::Enum { name: Some(name), .. } => style.text(name.as_bytes(), to),
        Value::Enum { name: None, value } => signed(to, *value),
        Value::Str { bytes, cut } => {
            style.text(bytes, to);
            if *cut {
                to.extend_from_slice(style.trailer);
            }
        }
        Value::Bytes(bytes) => escaped(bytes, to),
        Value::List(items) => {
            to.push(b'[');
            separated(items, b",", style, to);
            to.push(b']');
        }
        Value::Tuple(items) => {
            to.push(b'(');
            elements(items, style, to);
            to.push(b')');
        }
        Value::Record(fields) => record(fields, style, to),
        Value::Text(text) => style.text(text.as_bytes(), to),
        Value::Stack(s) => stack::stack(s, style, to),
        Value::Hist(h) => hist::text(h, 1, to),
        Value::Stats(_) | Value::Percentiles(_) => {
            let fields: Vec<_> = v.fields().unwrap_or_default().into_iter().map(|(name, v)| (name.to_string(), v)).collect();
            record(&fields, style, to);
        }
        Value::Avg(s) => value(&s.average(), style, to),
        Value::Series(s) => series::graph(s, style, to),
    }
}

/// Appends a key: a tuple goes without its own parentheses, and only a tuple does.
pub fn key(v: &Value, style: Style, to: &mut Vec<u8>) {
    if let Value::Tuple(items) = v { elements(items, style, to) } else { value(v, style, to) }
}

/// Appends bytes with printable ASCII kept and all else as `\xHH`.
pub fn escaped(bytes: &[u8], to: &mut Vec<u8>) {
    for b in bytes {
        if (0x20..0x7f).contains(b) {
            to.push(*b);
        } else {
            to.extend_from_slice(b"\\x");
            hex_byte(to, *b);
        }
    }
}

fn elements(items: &[Value], style: Style, to: &mut Vec<u8>) {
    separated(items, if style.tight { b"," } else { b", " }, style, to);
}

fn separated(items: &[Value], separator: &[u8], style: Style, to: &mut Vec<u8>) {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            to.extend_from_slice(separator);
        }
        value(item, style, to);
    }
}

fn record(fields: &[(String, Value)], style: Style, to: &mut Vec<u8>) {
    if fields.is_empty() {
        to.extend_from_slice(b"{}");
        return;
    }
    let (open, next, equals, close): (&[u8], &[u8], &[u8], &[u8]) =
        if style.tight { (b"{.", b",.", b"=", b"}") } else { (b"{ .", b", .", b" = ", b" }") };
    for (i, (name, v)) in fields.iter().enumerate() {
        to.extend_from_slice(if i == 0 { open } else { next });
        style.text(name.as_bytes(), to);
        to.extend_from_slice(equals);
        value(v, style, to);
    }
    to.extend_from_slice(close);
}

/// A line per entry; the rows of a histogram or a series follow its line, and a blank line follows them.
fn map(view: &MapView, style: Style, table: bool, to: &mut Vec<u8>) {
    let wide = view.keyed && matches!(view.entries.first(), Some((_, Value::Percentiles(_))));
    if (wide || table || view.show.table) && view.keyed && !view.entries.is_empty() && table::table(view, style, to) {
        return;
    }
    for (k, v) in arrange(view) {
        to.extend_from_slice(view.name.as_bytes());
        if view.keyed {
            to.push(b'[');
            key(k, style, to);
            to.push(b']');
        }
        if let Value::Hist(h) = v {
            to.extend_from_slice(b":\n");
            hist::text(h, view.show.div.unwrap_or(1), to);
        } else {
            to.extend_from_slice(if let Value::Series(_) = v { b":\n" } else { b": " });
            value(&with_unit(&divide(v, view.show.div), view.show.unit), style, to);
        }
        to.push(b'\n');
    }
}

/// A line for each probe that could not do all, then how many events were lost in all.
fn incomplete(counts: &[Counts], to: &mut Vec<u8>) {
    for of in counts.iter().filter(|of| !of.complete()) {
        let lost = format!("events that found no room in the ring buffer (raise perf_rb_pages), of {}", of.sent);
        let parts = [
            (of.dropped, lost.as_str()),
            (of.missed, "runs left out, since a probe was at work on that CPU"),
            (of.refused, "map updates that full maps refused (raise max_map_keys)"),
            (of.unstored, "map updates for which the kernel had no memory at that moment"),
            (of.cut, "strings cut (raise max_strlen)"),
            (of.unkept, "stacks that found no room in their table (raise max_stacks)"),
        ];
        let parts: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{what}: {n}")).collect();
        to.extend_from_slice(format!("WARNING: {}: {}\n", plain(&of.probe), parts.join("; ")).as_bytes());
    }
    let lost: u64 = counts.iter().map(|of| of.dropped).sum();
    if lost > 0 {
        to.extend_from_slice(format!("WARNING: Total lost event count: {lost}\n").as_bytes());
    }
}

/// Place and message; the helper, where one failed; the script's line with a mark under the place.
fn problem(severity: &str, msg: &str, helper: Option<&(String, i64)>, pos: &Pos, line: &str, to: &mut Vec<u8>) {
    let mut text = String::new();
    if pos.line > 0 {
        text += &format!("{}:{}:{}: ", plain(&pos.file), pos.line, pos.col);
    }
    text += &format!("{severity}: {}\n", msg);
    if let Some((name, code)) = helper {
        text += &format!("Additional Info - helper: {name}, retcode: {code}\n");
    }
    if !line.is_empty() {
        // A tab is shown as four columns, so the mark under it must count it as four too.
        let before: usize = line.chars().take(pos.col.saturating_sub(1) as usize).map(|c| if c == '\t' { 4 } else { 1 }).sum();
        text += &format!("{}\n{}~\n", uncommanded_line(&plain(&line.replace('\t', "    "))), " ".repeat(before));
    }
    to.extend_from_slice(text.as_bytes());
}
