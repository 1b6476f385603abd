//! Values as text.

use super::integers::{address, decimal, hex_byte, signed};
use super::style::Style;
use super::{heatmap, hist, series, stack};
use crate::terminal::Canvas;
use crate::value::Value;

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
    separated(items, if style.compact { b"," } else { b", " }, style, to);
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
