//! Time series as lines of one row each, for a screen that is drawn again and again.

use super::order::sort_entries;
use super::style::Style;
use super::value_text::{key, value};
use crate::terminal::Canvas;
use crate::value::{MapView, Series, Value};

/// The signs of values from the least to the greatest.
const BLOCKS: &[char] = &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const LETTERS: &[char] = &['.', ':', '-', '=', '+', '*', '#', '@'];
/// The least number of intervals, even if the line is then too long.
const MIN_INTERVALS: usize = 8;

/// Appends a line per entry: its name, the latest intervals with the newest of all entries at the right, and the least and
/// the greatest value among them, between which each line has its own scale.
pub fn text(view: &MapView, style: Style, canvas: Canvas, to: &mut Vec<u8>) {
    let entries: Vec<(String, &Series)> = sort_entries(view)
        .into_iter()
        .filter_map(|(k, v)| if let Value::Series(series) = v { Some((name(view, k, style, canvas.columns / 2), series)) } else { None })
        .collect();
    let starts = || entries.iter().flat_map(|(_, series)| &series.buckets).map(|(start, _)| *start);
    let (oldest, newest) = (starts().min().unwrap_or(0), starts().max().unwrap_or(0));
    let step = i128::from(entries.iter().map(|(_, series)| series.interval).max().unwrap_or(1).max(1));
    let all = usize::try_from((newest - oldest) / step).unwrap_or(usize::MAX).saturating_add(1);

    let spelled = |of: Option<i128>, series: &Series| {
        let same = series.buckets.iter().map(|(_, v)| v).find(|v| of.is_some() && v.number() == of);
        let mut text = Vec::new();
        match same {
            Some(v) => value(v, style, &mut text),
            None => text.push(b'-'),
        }
        String::from_utf8_lossy(&text).into_owned()
    };
    // which values are shown depends on the room that they leave: that of the longest ones is enough for all
    let longest = |series: &Series| {
        let bounds = [values(series, newest, step, all).min(), values(series, newest, step, all).max()];
        bounds.map(|v| width(&spelled(v, series))).into_iter().max().unwrap_or(0)
    };
    let names = entries.iter().map(|(name, _)| width(name)).max().unwrap_or(0);
    let numbers = entries.iter().map(|(_, series)| longest(series)).max().unwrap_or(0);
    let others = names + ":   min  max ".len() + 2 * numbers;
    let shown = canvas.columns.saturating_sub(others).max(MIN_INTERVALS).min(all);
    for (name, series) in &entries {
        let bounds = (values(series, newest, step, shown).min(), values(series, newest, step, shown).max());
        let line = line(series, newest, step, shown, canvas.utf8);
        let (min, max) = (spelled(bounds.0, series), spelled(bounds.1, series));
        let name = format!("{name}:");
        let names = names + 1;
        to.extend_from_slice(format!("{name:<names$} {line}  min {min:<numbers$} max {max}\n").as_bytes());
    }
    if let Some(weights) = view.weights.filter(|_| !entries.is_empty()) {
        to.extend_from_slice(format!("{} ({weights})\n", weights.mark()).trim_start().as_bytes());
    }
    to.push(b'\n');
}

/// The name of an entry, which is cut if it is longer than this.
fn name(view: &MapView, value: &Value, style: Style, max_width: usize) -> String {
    let mut text = view.name.as_bytes().to_vec();
    if view.keyed {
        text.push(b'[');
        key(value, style, &mut text);
        text.push(b']');
    }
    let text = String::from_utf8_lossy(&text);
    let trailer = String::from_utf8_lossy(style.trailer);
    match width(&text) > max_width {
        true => text.chars().take(max_width.saturating_sub(width(&trailer))).chain(trailer.chars()).collect(),
        false => text.into_owned(),
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// How many intervals before the newest.
fn age(start: i128, newest: i128, step: i128) -> usize {
    usize::try_from((newest - start).div_euclid(step)).unwrap_or(usize::MAX)
}

/// The values of the latest intervals.
fn values(series: &Series, newest: i128, step: i128, shown: usize) -> impl Iterator<Item = i128> {
    series.buckets.iter().filter(move |(start, _)| age(*start, newest, step) < shown).filter_map(|(_, v)| v.number())
}

/// A sign for each of the latest intervals; a space for one without a value.
fn line(series: &Series, newest: i128, step: i128, shown: usize, utf8: bool) -> String {
    let signs = if utf8 { BLOCKS } else { LETTERS };
    let min = values(series, newest, step, shown).min().unwrap_or(0);
    let span = values(series, newest, step, shown).max().unwrap_or(0) - min;
    let top = signs.len() as i128 - 1;
    let mut line = vec![' '; shown];
    for (start, value) in &series.buckets {
        let at = shown.checked_sub(1 + age(*start, newest, step).min(shown));
        if let (Some(cell), Some(value)) = (at.and_then(|at| line.get_mut(at)), value.number()) {
            // rounded to the nearest; equal values are in the middle
            let level = if span == 0 { top / 2 } else { ((value - min) * top * 2 + span) / (span * 2) };
            *cell = usize::try_from(level).ok().and_then(|level| signs.get(level)).copied().unwrap_or(' ');
        }
    }
    line.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{MapViewKind, ShowOptions};

    const STYLE: Style = Style { trailer: b"..", compact: false, visible: true };
    const SECOND: i128 = 1_000_000_000;

    fn shown(entries: &[(&str, &[(i128, i64)])], canvas: Canvas) -> String {
        let series = |of: &[(i128, i64)]| Series {
            interval: SECOND as u64,
            buckets: of.iter().map(|(at, v)| (*at * SECOND, Value::Int(*v))).collect(),
        };
        let entries = entries.iter().map(|(k, of)| (Value::Text((*k).into()), Value::Series(series(of)))).collect();
        let view = MapView {
            name: "@t".into(),
            kind: MapViewKind::Series,
            measures: true,
            keyed: true,
            set: true,
            entries,
            show: ShowOptions::default(),
            weights: None,
        };
        let mut to = Vec::new();
        text(&view, STYLE, canvas, &mut to);
        String::from_utf8(to).unwrap()
    }

    const CANVAS: Canvas = Canvas { columns: 60, rows: 10, utf8: true, colors: false };

    #[test]
    fn lines_share_their_time_and_have_their_own_scale() {
        let rising: Vec<(i128, i64)> = (0..8).map(|at| (at + 2, 10 * at as i64 - 20)).collect();
        let picture = shown(&[("a", &rising), ("long", &[(0, 5), (7, 5)]), ("none", &[])], CANVAS);
        assert_eq!(
            picture,
            "@t[a]:      ▁▂▃▄▅▆▇█  min -20 max 50\n@t[long]: ▄      ▄    min 5   max 5\n@t[none]:             min -   max -\n\n"
        );
        let ascii = shown(&[("a", &rising)], Canvas { utf8: false, ..CANVAS });
        assert_eq!(ascii, "@t[a]: .:-=+*#@  min -20 max 50\n\n");
    }

    #[test]
    fn the_latest_intervals_that_fit_are_shown() {
        let many: Vec<(i128, i64)> = (0..1000).map(|at| (at, at as i64)).collect();
        let picture = shown(&[("a", &many)], CANVAS);
        assert_eq!(picture.lines().next().map(width), Some(CANVAS.columns), "{picture}");
        assert!(picture.trim_end().ends_with("█  min 964 max 999"), "{picture}");
        let long = shown(&[(&"k".repeat(100), &many)], CANVAS);
        assert!(long.starts_with(&format!("@t[{}..: ", "k".repeat(25))) && long.lines().all(|l| width(l) <= 60), "{long}");
    }

    #[test]
    fn no_value_breaks_the_scale() {
        let picture = shown(&[("a", &[(0, i64::MIN), (1, 0), (2, i64::MAX)])], Canvas { columns: 1, ..CANVAS });
        assert!(picture.contains("▁▅█"), "{picture}");
    }
}
