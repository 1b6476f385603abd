//! Values as text.

use super::integers::{address, decimal, hex_byte, signed};
use super::stack::Lines;
use super::style::Style;
use super::{heatmap, hist, series, stack};
use crate::terminal::Canvas;
use crate::value::{MapView, Value};

/// Appends a value.
pub fn value(v: &Value, style: Style, to: &mut Vec<u8>) {
    match v {
        Value::None => to.extend_from_slice(b"null"),
        Value::Bool(b) => to.extend_from_slice(if *b { b"true" } else { b"false" }),
        Value::Int(i) => signed(to, *i),
        Value::Uint(u) => decimal(to, *u),
        Value::Float { value, single } => to.extend_from_slice(float(*value, *single).as_bytes()),
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
        Value::Series(s) => series::graph(s, |v, to| value(v, style, to), to),
        Value::HeatMap(h) => heatmap::text(h, Canvas::default(), to),
    }
}

/// The shortest decimal form that reads as the same number; with an exponent if it would be long otherwise.
pub fn float(value: f64, single: bool) -> String {
    let size = value.abs();
    let short = size == 0.0 || size.is_infinite() || (1e-5..1e17).contains(&size);
    match (short, single) {
        _ if value.is_nan() => "nan".into(),
        (true, true) => (value as f32).to_string(),
        (true, false) => value.to_string(),
        (false, true) => format!("{:e}", value as f32),
        (false, false) => format!("{value:e}"),
    }
}

/// Appends a key. A tuple has no outer parentheses.
pub fn key(v: &Value, style: Style, to: &mut Vec<u8>) {
    if let Value::Tuple(items) = v { elements(items, style, to) } else { value(v, style, to) }
}

/// The keys of a map, in which stacks share frames.
pub struct Keys<'a> {
    style: Style<'a>,
    /// If the map has many.
    lines: Option<Lines<'a>>,
}

/// The number of keys from which on lines are kept.
const MANY: usize = 1000;

impl<'a> Keys<'a> {
    /// Those of this map.
    pub fn of(view: &MapView, style: Style<'a>) -> Self {
        Self { style, lines: (view.entries.len() >= MANY).then(|| Lines::new(style)) }
    }

    /// Appends a key, as [`key`] does.
    pub fn key(&mut self, v: &Value, to: &mut Vec<u8>) {
        let Some(lines) = &mut self.lines else { return key(v, self.style, to) };
        let parts = if let Value::Tuple(parts) = v { parts } else { std::slice::from_ref(v) };
        for (i, part) in parts.iter().enumerate() {
            if i > 0 {
                to.extend_from_slice(separator(self.style));
            }
            if let Value::Stack(stack) = part { lines.stack(stack, to) } else { value(part, self.style, to) }
        }
    }
}

/// Appends bytes: printable ASCII unchanged, all others as `\xHH`.
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
    separated(items, separator(style), style, to);
}

/// What is between the parts of a tuple.
fn separator(style: Style<'_>) -> &'static [u8] {
    if style.compact { b"," } else { b", " }
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
        if style.compact { (b"{.", b",.", b"=", b"}") } else { (b"{ .", b", .", b" = ", b" }") };
    for (i, (name, v)) in fields.iter().enumerate() {
        to.extend_from_slice(if i == 0 { open } else { next });
        style.text(name.as_bytes(), to);
        to.extend_from_slice(equals);
        value(v, style, to);
    }
    to.extend_from_slice(close);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::random::Random;
    use crate::value::{Frame, FrameTable, FramesBuilder, Stack, StackMode};

    #[test]
    fn keys_of_many_are_like_others() {
        let frame =
            |n: u64| Frame { addr: 0x1000 + n, symbol: (!n.is_multiple_of(3)).then(|| format!("f{n}\x1b")), offset: n, ..Frame::default() };
        let table = Arc::new(FrameTable::default());
        let mut all = FramesBuilder::new(Arc::clone(&table), 0);
        let numbers: Vec<u32> = (0..50).map(|n| all.push(frame(n))).collect();
        let mut random = Random::new(1);
        let mut stack = |kernel: bool, mode: StackMode| {
            let mut frames = FramesBuilder::new(Arc::clone(&table), 0);
            (0..random.below(5)).for_each(|_| frames.push_number(numbers[random.below(50) as usize]));
            let own = random.below(4) == 0;
            let frames = if own { (0..2).map(frame).collect() } else { frames.finish() };
            Value::Stack(Stack { mode, kernel, frames })
        };
        for (compact, visible) in [(false, false), (true, false), (false, true)] {
            let style = Style { trailer: b"..", compact, visible };
            let mut keys = Keys { style, lines: Some(Lines::new(style)) };
            for n in 0..300 {
                let user = stack(false, if n % 10 == 0 { StackMode::Raw } else { StackMode::Bpftrace });
                let one = Value::Tuple(vec![user.clone(), stack(true, StackMode::Perf), Value::Uint(n)]);
                for v in [user, one, Value::Uint(n)] {
                    let (mut expected, mut shown) = (Vec::new(), Vec::new());
                    key(&v, style, &mut expected);
                    keys.key(&v, &mut shown);
                    assert_eq!(String::from_utf8_lossy(&shown), String::from_utf8_lossy(&expected));
                }
            }
        }
    }
}
