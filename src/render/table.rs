//! A map in aligned columns: a line per entry, with a column for each part of the key and for each field of the value.

use super::order::{divide, sort_entries, with_unit};
use super::style::Style;
use super::value_text;
use crate::value::{MapView, Value};

/// Appends the map as a table and a blank line. If a cell has several lines, it appends nothing and returns false.
///
/// Numbers are right-aligned, and everything else is left-aligned. Values with fields have headings.
pub fn table(view: &MapView, style: Style, to: &mut Vec<u8>) -> bool {
    let entries = sort_entries(view);
    let Some(rows) = entries.iter().map(|(k, v)| row(view, k, v, style)).collect::<Option<Vec<_>>>() else { return false };
    let names: Vec<&str> = entries.first().and_then(|(_, v)| v.fields()).unwrap_or_default().iter().map(|f| f.0).collect();
    let keys = rows.first().map_or(0, |r| r.len().saturating_sub(names.len().max(1)));
    let columns = keys + names.len().max(1);
    let head = |c: usize| c.checked_sub(keys).and_then(|c| names.get(c)).copied().unwrap_or_default();

    let mut widths: Vec<usize> = (0..columns).map(|c| head(c).len()).collect();
    let mut right = vec![true; columns];
    for row in &rows {
        for ((cell, width), right) in row.iter().zip(&mut widths).zip(&mut right) {
            *width = (*width).max(cell.width());
            *right &= cell.number;
        }
    }
    to.extend_from_slice(view.name.as_bytes());
    to.push(b':');
    to.extend_from_slice(
        view.weights.map_or_else(String::new, |weights| format!(" {} ({weights})", weights.mark()).replace("  ", " ")).as_bytes(),
    );
    to.push(b'\n');
    if !names.is_empty() {
        let cells: Vec<Cell> = (0..columns).map(|c| Cell { text: head(c).into(), number: true }).collect();
        line(&cells, &widths, &right, to);
    }
    rows.iter().for_each(|row| line(row, &widths, &right, to));
    to.push(b'\n');
    true
}

struct Cell {
    text: Vec<u8>,
    number: bool,
}

impl Cell {
    /// Width of a text in columns.
    fn width(&self) -> usize {
        String::from_utf8_lossy(&self.text).chars().count()
    }
}

/// None if a cell has several lines.
fn row(view: &MapView, key: &Value, value: &Value, style: Style) -> Option<Vec<Cell>> {
    let mut cells = Vec::new();
    let mut push = |v: &Value, number: bool| {
        let mut text = Vec::new();
        value_text::value(v, style, &mut text);
        let single = !text.contains(&b'\n');
        cells.push(Cell { text, number: number || v.number().is_some() });
        single
    };
    let parts = if let Value::Tuple(parts) = key { parts.as_slice() } else { std::slice::from_ref(key) };
    let keys = !view.keyed || parts.iter().all(|k| push(k, false));
    let shown = divide(value, view.show.div);
    let shown = with_unit(&shown, view.show.unit);
    let fields = match (shown.fields(), shown.as_ref()) {
        (Some(fields), _) => fields.into_iter().map(|(_, v)| v).collect(),
        (None, Value::Record(fields)) if value.fields().is_some() => fields.iter().map(|(_, v)| v.clone()).collect(),
        (None, v) => vec![v.clone()],
    };
    let with_unit = view.show.unit.is_some();
    let values = fields.iter().all(|v| push(v, with_unit || matches!(v, Value::Avg(_))));
    (keys && values).then_some(cells)
}

fn line(cells: &[Cell], widths: &[usize], right: &[bool], to: &mut Vec<u8>) {
    let start = to.len();
    for (i, ((cell, width), right)) in cells.iter().zip(widths).zip(right).enumerate() {
        to.extend_from_slice(if i == 0 { b"" } else { b"  " });
        let space = std::iter::repeat_n(b' ', width.saturating_sub(cell.width()));
        if *right {
            to.extend(space);
            to.extend_from_slice(&cell.text);
        } else {
            to.extend_from_slice(&cell.text);
            to.extend(space);
        }
    }
    let end = to.iter().rposition(|b| *b != b' ').map_or(0, |i| i + 1).max(start);
    to.truncate(end);
    to.push(b'\n');
}
