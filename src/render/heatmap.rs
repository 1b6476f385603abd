//! A heat map as a picture: a column per interval, a row per bucket with the greatest values on top, and a shade per cell.

use super::hist::{Bounds, bounds, label};
use super::series::precision;
use super::time::strftime;
use crate::terminal::{Canvas, paint};
use crate::value::HeatMap;

/// Width of a row's label in columns.
const LABEL: usize = 16;
/// Lines below the picture: the times and the legend.
pub const LINES_BELOW: usize = 2;

/// Appends the picture: rows, the times of the first and the last column, and the legend.
pub fn text(map: &HeatMap, canvas: Canvas, to: &mut Vec<u8>) {
    let Some(grid) = Grid::of(map, canvas.columns.saturating_sub(LABEL + 3).max(1), canvas.rows) else {
        to.extend_from_slice(b"<no data>\n");
        return;
    };
    let shades = Shades::of(grid.cells.iter().flatten().copied().max().unwrap_or(1), canvas);
    let mut lines = String::new();
    for (label, cells) in grid.labels.iter().zip(&grid.cells).rev() {
        lines += &format!("{label:<LABEL$} |");
        // adjacent cells of one color are painted together
        for same in cells.chunk_by(|a, b| shades.level(*a) == shades.level(*b)) {
            lines += &shades.paint(shades.level(same.first().copied().unwrap_or(0)), same.len());
        }
        lines += "|\n";
    }
    let width = grid.cells.first().map_or(0, Vec::len);
    let time = |at: i128| strftime(precision(map.interval).1, at).unwrap_or_default();
    let (first, last) = (time(grid.first), time(grid.last));
    let room = (width + 1).saturating_sub(first.chars().count() + last.chars().count());
    let indent = " ".repeat(LABEL + 2);
    let times = if width > 1 && room > 1 { format!("{first}{}{last}", " ".repeat(room - 1)) } else { first };
    let step = format!("{} per column, ", spelled(grid.step));
    let (legend, wide) = shades.legend(canvas.columns.saturating_sub(step.len()));
    // on a narrow terminal, the legend begins farther to the left
    let before = " ".repeat(indent.len().min(canvas.columns.saturating_sub(step.len() + wide)));
    lines += &format!("{indent}{times}\n{before}{step}{legend}\n");
    to.extend_from_slice(lines.as_bytes());
}

/// The cells of the picture.
pub struct Grid {
    /// Labels of the rows, from the least value upward.
    pub labels: Vec<String>,
    /// The counts, by row and column.
    pub cells: Vec<Vec<u64>>,
    /// Start of the first column.
    pub first: i128,
    /// Start of the last column.
    pub last: i128,
    /// Length of a column in nanoseconds.
    pub step: i128,
}

impl Grid {
    /// Adjacent intervals and buckets are joined if the picture would be too large. None without values.
    pub fn of(map: &HeatMap, most_columns: usize, most_rows: usize) -> Option<Self> {
        let some = |at: &usize| map.columns.iter().any(|(_, counts)| counts.get(*at).is_some_and(|n| *n > 0));
        let buckets = map.columns.first()?.1.len();
        let (bottom, top) = ((0..buckets).find(some)?, (0..buckets).rfind(some)?);
        let interval = i128::from(map.interval.max(1));
        let number = |at: i128| at.div_euclid(interval);
        let (oldest, newest) = (number(map.columns.first()?.0), number(map.columns.last()?.0));

        let joined = |n: usize, most: usize| n.div_ceil(most.max(1)).max(1);
        let intervals = usize::try_from(newest - oldest).ok()?.saturating_add(1);
        let (wide, high) = (joined(intervals, most_columns), joined(top - bottom + 1, most_rows));
        let (columns, rows) = (intervals.div_ceil(wide), (top - bottom + 1).div_ceil(high));
        let mut cells = vec![vec![0u64; columns]; rows];
        for (at, counts) in &map.columns {
            let column = usize::try_from(number(*at) - oldest).unwrap_or(0) / wide;
            for (bucket, n) in counts.iter().enumerate().skip(bottom).take(top - bottom + 1) {
                if let Some(cell) = cells.get_mut((bucket - bottom) / high).and_then(|row| row.get_mut(column)) {
                    *cell = cell.saturating_add(*n);
                }
            }
        }
        let bounds_of = |bucket: usize| -> Bounds { bounds(map.scale, bucket as u64) };
        let labels =
            (0..rows).map(|row| bottom + row * high).map(|first| label(&bounds_of(first), &bounds_of((first + high - 1).min(top))));
        let (first, step) = (oldest * interval, interval * wide as i128);
        Some(Self { labels: labels.collect(), cells, first, last: first + step * (columns as i128 - 1), step })
    }
}

/// Shades from none to the darkest, and the least count of each. The steps between counts are equal factors: a linear
/// scale would not distinguish a single value from none.
struct Shades {
    min_counts: Vec<u64>,
    max_count: u64,
    canvas: Canvas,
}

const BLOCKS: &[char] = &['░', '▒', '▓', '█'];
const LETTERS: &[char] = &['.', ':', '+', '*', '#', '@'];
/// From the palette of 256 colors, readable on black and on white: from purple to yellow.
const COLORS: &[u8] = &[55, 91, 127, 163, 199, 203, 209, 215];

impl Shades {
    fn of(most: u64, canvas: Canvas) -> Self {
        let levels = Self::signs(canvas).len().max(canvas.palette().len());
        // with so few counts, each has its own shade
        let exact = |i: usize| 1 + i as u64;
        let power = |i: usize| (most as f64).powf(i as f64 / levels as f64).ceil() as u64;
        let mut least: Vec<u64> = (0..levels).map(|i| if most <= levels as u64 { exact(i) } else { power(i).max(exact(i)) }).collect();
        least.retain(|n| *n <= most);
        Self { min_counts: least, max_count: most, canvas }
    }

    fn signs(canvas: Canvas) -> &'static [char] {
        if canvas.utf8 { BLOCKS } else { LETTERS }
    }

    /// 0 for none.
    fn level(&self, count: u64) -> usize {
        self.min_counts.partition_point(|least| *least <= count)
    }

    /// This many cells of a shade.
    fn paint(&self, level: usize, cells: usize) -> String {
        let Some(level) = level.checked_sub(1) else { return " ".repeat(cells) };
        // with few levels, the darkest is used as well
        let of = |all: usize| if self.min_counts.len() > 1 { level * (all - 1) / (self.min_counts.len() - 1) } else { all - 1 };
        let pick = |from: &[char]| from.get(of(from.len())).copied().unwrap_or('#');
        match self.canvas.palette() {
            [] => pick(Self::signs(self.canvas)).to_string().repeat(cells),
            palette => {
                let color = palette.get(of(palette.len())).copied().unwrap_or_default();
                let sign = if self.canvas.utf8 { '█' } else { pick(LETTERS) };
                let style = anstyle::Style::new().fg_color(Some(anstyle::Ansi256Color(color).into()));
                paint(&sign.to_string().repeat(cells), style, true)
            }
        }
    }

    /// `░ 1-3, █ 4-9`, and its width; only the first and the last shade if all do not fit into this many columns.
    fn legend(&self, columns: usize) -> (String, usize) {
        let ends = self.min_counts.iter().skip(1).map(|next| next - 1).chain([self.max_count]);
        let one = |(level, (least, end)): (usize, (&u64, u64))| {
            let counts = if *least == end { least.to_string() } else { format!("{least}-{end}") };
            (2 + counts.len(), format!("{} {counts}", self.paint(level + 1, 1)))
        };
        let (widths, all): (Vec<usize>, Vec<String>) = self.min_counts.iter().zip(ends).enumerate().map(one).unzip();
        let wide = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        match (all.as_slice(), widths.as_slice()) {
            ([first, _, .., last], [start, .., end]) if wide > columns => (format!("{first} ... {last}"), start + end + 5),
            (all, _) => (all.join(", "), wide),
        }
    }
}

impl Canvas {
    fn palette(self) -> &'static [u8] {
        if self.colors { COLORS } else { &[] }
    }
}

/// A duration without trailing zeros.
fn spelled(ns: i128) -> String {
    let text = super::duration(ns);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.')),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Scale;

    fn shown(columns: &[(i128, &[u64])], canvas: Canvas) -> String {
        let columns = columns.iter().map(|(at, counts)| (*at * 1_000_000_000, counts.to_vec())).collect();
        let map = HeatMap { interval: 1_000_000_000, scale: Scale::Linear { min: 0, max: 3, step: 1 }, columns };
        let mut to = Vec::new();
        text(&map, canvas, &mut to);
        String::from_utf8(to).unwrap()
    }

    const PLAIN: Canvas = Canvas { columns: 80, rows: 40, utf8: false, colors: false };

    #[test]
    fn greatest_values_are_on_top_and_gaps_stay() {
        let picture = shown(&[(10, &[0, 1, 100, 0, 0]), (11, &[0, 0, 0, 1, 0]), (14, &[0, 0, 9, 0, 0])], PLAIN);
        let lines: Vec<&str> = picture.lines().collect();
        assert_eq!(lines[..3], ["[2]              | .   |", "[1]              |@   +|", "[0]              |.    |"]);
        assert_eq!(lines[4], "                 1 s per column, . 1-2, : 3-4, + 5-9, * 10-21, # 22-46, @ 47-100");
        let narrow = shown(&[(10, &[0, 1, 100, 0, 0]), (11, &[0, 0, 0, 1, 0])], Canvas { columns: 50, ..PLAIN });
        assert_eq!(narrow.lines().last(), Some("                1 s per column, . 1-2 ... @ 47-100"));
        assert_eq!(shown(&[], PLAIN), "<no data>\n");
    }

    #[test]
    fn blocks_and_colors() {
        let columns: &[(i128, &[u64])] = &[(1, &[0, 1, 0, 0, 0]), (2, &[0, 4, 0, 0, 0]), (3, &[0, 4, 0, 0, 0])];
        assert!(shown(columns, Canvas { utf8: true, ..PLAIN }).starts_with("[0]              |░██|\n"));
        let colored = shown(columns, Canvas { utf8: true, colors: true, ..PLAIN });
        assert!(colored.contains("|\u{1b}[38;5;55m█\u{1b}[0m\u{1b}[38;5;215m██\u{1b}[0m|\n"), "{colored:?}");
    }

    #[test]
    fn joins_excess_columns_and_rows() {
        let many: Vec<(i128, Vec<u64>)> = (0..100).map(|at| (at, vec![0, 1, 0, 0, 0])).collect();
        let many: Vec<(i128, &[u64])> = many.iter().map(|(at, counts)| (*at, counts.as_slice())).collect();
        let picture = shown(&many, Canvas { columns: 44, ..PLAIN });
        assert!(picture.starts_with(&format!("[0]              |{}|\n", "@".repeat(25))), "{picture}");
        assert!(picture.contains("4 s per column, . 1, : 2, * 3, @ 4\n"), "{picture}");
        let map = HeatMap { interval: 1, scale: Scale::Linear { min: 0, max: 100, step: 1 }, columns: vec![(0, vec![1; 102])] };
        let mut to = Vec::new();
        text(&map, PLAIN, &mut to);
        let picture = String::from_utf8(to).unwrap();
        assert!(
            picture.lines().count() <= PLAIN.rows + LINES_BELOW && picture.contains("\n[2, 5) ") && picture.contains("\n(..., 2) "),
            "{picture}"
        );
        assert!(picture.starts_with("[98, ...) "), "{picture}");
    }

    #[test]
    fn no_count_breaks_the_scale() {
        for most in [1, 2, 5, 1 << 40, u64::MAX] {
            let shades = Shades::of(most, PLAIN);
            assert!(shades.min_counts.is_sorted() && shades.min_counts.first() == Some(&1), "{most}");
            assert_eq!(shades.level(most), shades.min_counts.len());
            assert_eq!((shades.level(0), shades.level(1)), (0, 1));
        }
    }
}
