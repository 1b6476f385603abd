//! Heat maps in SVG: time from left to right, values from below upward, and a shade for each count.

use std::io::{self, Write};

use super::escape::escaped;
use super::heatmap::Grid;
use super::series::precision;
use super::stack_keys::shown;
use super::time::strftime;
use crate::value::{MapView, Value};

/// Maximum number of columns, rows and entries of a map in a picture.
const MAX_COLUMNS: usize = 300;
const MAX_ROWS: usize = 40;
const MAX_PANELS: usize = 50;

const WIDTH: usize = 1200;
/// Width of the names of buckets, to the left.
const LABELS: usize = 150;
const ROW: usize = 14;
/// Height of the title, of a panel's title, and of the times below a panel.
const TITLE: usize = 56;
const LINE: usize = 20;

/// The heat map of one key.
pub struct Panel {
    key: String,
    grid: Grid,
    /// The format of the times for `strftime`.
    format: &'static str,
}

/// The panels of a map, those with the most values first.
pub fn panels(view: &MapView) -> Vec<Panel> {
    let mut all: Vec<(u64, Panel)> = Vec::new();
    for (key, value) in &view.entries {
        let Value::HeatMap(map) = value else { continue };
        let Some(grid) = Grid::of(map, MAX_COLUMNS, MAX_ROWS) else { continue };
        let total = grid.cells.iter().flatten().fold(0u64, |sum, n| sum.saturating_add(*n));
        let key = if view.keyed { shown(key).split_whitespace().collect::<Vec<_>>().join(" ") } else { String::new() };
        all.push((total, Panel { key, grid, format: precision(map.interval).1 }));
    }
    all.sort_by_key(|(total, _)| std::cmp::Reverse(*total));
    all.into_iter().take(MAX_PANELS).map(|(_, panel)| panel).collect()
}

/// Writes the picture.
///
/// # Errors
/// Those of `to`.
pub fn draw(name: &str, subtitle: &str, panels: &[Panel], to: &mut dyn Write) -> io::Result<()> {
    let height = TITLE + panels.iter().map(Panel::height).sum::<usize>();
    writeln!(
        to,
        "<?xml version=\"1.0\" standalone=\"no\"?>\n\
         <svg version=\"1.1\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" xmlns=\"http://www.w3.org/2000/svg\" font-family=\"monospace\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#f8f8f8\"/>\n\
         <text x=\"{middle}\" y=\"24\" text-anchor=\"middle\" font-size=\"17\">{}</text>\n\
         <text x=\"{middle}\" y=\"44\" text-anchor=\"middle\">{}</text>",
        escaped(name),
        escaped(subtitle),
        middle = WIDTH / 2
    )?;
    let mut top = TITLE;
    for panel in panels {
        panel.draw(top, to)?;
        top += panel.height();
    }
    writeln!(to, "</svg>")
}

impl Panel {
    fn height(&self) -> usize {
        self.grid.labels.len() * ROW + 3 * LINE
    }

    fn draw(&self, top: usize, to: &mut dyn Write) -> io::Result<()> {
        let Grid { labels, cells, first, last, step } = &self.grid;
        let columns = cells.first().map_or(1, Vec::len).max(1);
        let wide = ((WIDTH - LABELS - 10) as f64 / columns as f64).min(24.0);
        let largest = cells.iter().flatten().copied().max().unwrap_or(0).max(1);
        let (upper, lower) = (top + LINE, top + LINE + labels.len() * ROW);
        writeln!(to, "<text x=\"{LABELS}\" y=\"{}\">{}</text>", top + 14, escaped(&self.key))?;
        writeln!(
            to,
            "<rect x=\"{LABELS}\" y=\"{upper}\" width=\"{:.1}\" height=\"{}\" fill=\"#ececef\"/>",
            wide * columns as f64,
            lower - upper
        )?;
        let time = |at: i128| strftime(self.format, at).unwrap_or_default();
        for (row, (label, counts)) in labels.iter().zip(cells).enumerate() {
            let y = lower - (row + 1) * ROW;
            writeln!(to, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", LABELS - 8, y + 11, escaped(label))?;
            for (column, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                writeln!(
                    to,
                    "<rect x=\"{:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{}\" fill=\"{}\"><title>{} {}: {count}</title></rect>",
                    LABELS as f64 + wide * column as f64,
                    (wide - 0.3).max(0.5),
                    ROW - 1,
                    shade(*count, largest),
                    time(first + step * column as i128),
                    escaped(label)
                )?;
            }
        }
        let right = LABELS as f64 + wide * columns as f64;
        writeln!(to, "<text x=\"{LABELS}\" y=\"{}\">{}</text>", lower + 16, escaped(&time(*first)))?;
        if right - LABELS as f64 > 200.0 {
            writeln!(to, "<text x=\"{right:.0}\" y=\"{}\" text-anchor=\"end\">{}</text>", lower + 16, escaped(&time(*last)))?;
        }
        writeln!(
            to,
            "<text x=\"{LABELS}\" y=\"{}\" fill=\"#666\">{} per column, at most {largest} in a cell</text>",
            lower + 32,
            super::duration(*step)
        )
    }
}

/// A color from yellow to dark red, by the logarithm, because counts differ by orders of magnitude.
fn shade(count: u64, max: u64) -> String {
    let part = if max > 1 { (count as f64).ln() / (max as f64).ln() } else { 1.0 };
    let between = |from: f64, to: f64| (from + (to - from) * part).round() as u8;
    format!("#{:02x}{:02x}{:02x}", between(253.0, 122.0), between(224.0, 4.0), between(140.0, 32.0))
}
