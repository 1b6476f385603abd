//! A time series as a graph with one line per interval.

use super::time::strftime;
use crate::value::{Series, Value};

/// The last column of the graph; the first is 0.
const LAST: i128 = 52;

/// Appends the graph: the scale, a row per interval from the first to the last with a value, and the scale again.
pub fn graph(series: &Series, spell: impl Fn(&Value, &mut Vec<u8>), to: &mut Vec<u8>) {
    let values: Vec<i128> = series.buckets.iter().filter_map(|(_, v)| v.number()).collect();
    let (Some(min), Some(max)) = (values.iter().min().copied(), values.iter().max().copied()) else {
        to.extend_from_slice(b"<no data>\n");
        return;
    };
    let (low, high) = if min == max { (min - 1, max + 1) } else { (min, max) };
    let column = |v: i128| (LAST * (v - low) / (high - low)) as usize;
    // a single interval has a time in nanoseconds, as in bpftrace: a step is visible only between two intervals
    let step = if rows(series).nth(1).is_some() { series.interval } else { 1 };
    let (unit, format) = precision(step);
    let head = format!("hh:mm:ss{unit}");
    let label = strftime(format, series.buckets.first().map_or(0, |b| b.0)).map_or(0, |t| t.len()).max(head.chars().count());

    let indent = " ".repeat(label + 1);
    let left = low.to_string();
    let scale = format!("{indent}{left}{:>1$}\n", high, (LAST as usize + 1).saturating_sub(left.len()));
    to.extend_from_slice(scale.as_bytes());
    let ruler = "_".repeat(LAST as usize - 1);
    to.extend_from_slice(format!("{head}{}|{ruler}|\n", " ".repeat(label + 1 - head.chars().count())).as_bytes());
    for (start, value) in rows(series) {
        let mut graph = vec![b' '; LAST as usize + 1];
        let mut mark = |at: usize, with: u8| {
            if let Some(b) = graph.get_mut(at) {
                *b = with;
            }
        };
        mark(0, b'|');
        mark(LAST as usize, b'|');
        if low < 0 && high > 0 {
            mark(column(0), b'.');
        }
        if let Some(v) = value.and_then(Value::number) {
            mark(column(v), b'*');
        }
        let time = strftime(format, start).unwrap_or_default();
        to.extend_from_slice(format!("{time:<label$} ").as_bytes());
        to.extend_from_slice(&graph);
        to.push(b' ');
        match value {
            Some(v) => spell(v, to),
            None => to.push(b'-'),
        }
        to.push(b'\n');
    }
    to.extend_from_slice(format!("{indent}v{ruler}v\n").as_bytes());
    to.extend_from_slice(scale.as_bytes());
}

/// Every interval from the first with a value to the last.
fn rows(series: &Series) -> impl Iterator<Item = (i128, Option<&Value>)> {
    let first = series.buckets.first().map_or(0, |b| b.0);
    let last = series.buckets.last().map_or(0, |b| b.0);
    let step = i128::from(series.interval.max(1));
    let mut known = series.buckets.iter().peekable();
    (0..=(last - first) / step).map(move |i| {
        let start = first + i * step;
        (start, known.next_if(|b| b.0 <= start).map(|b| &b.1))
    })
}

/// The suffix after the seconds of a time in intervals of this length, and the format of that time.
pub fn precision(interval: u64) -> (&'static str, &'static str) {
    match interval {
        0..1_000 => (".ns", "%H:%M:%S.%k"),
        1_000..1_000_000 => (".μs", "%H:%M:%S.%f"),
        1_000_000..1_000_000_000 => (".ms", "%H:%M:%S.%l"),
        1_000_000_000.. => ("", "%H:%M:%S"),
    }
}

/// A time for other programs: in UTC, with nanoseconds.
pub fn utc(unix_ns: i128) -> String {
    let (seconds, below) = (unix_ns.div_euclid(1_000_000_000), unix_ns.rem_euclid(1_000_000_000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}.{below:09}", second / 3600, second / 60 % 60, second % 60)
}

/// The year, month and day of a day number, counted from 1970-01-01, in the Gregorian calendar. Years begin in March,
/// so that the leap day is the last day: then a month's first day is a linear function of its number.
fn date(days: i128) -> (i128, i128, i128) {
    const PER_400_YEARS: i128 = 146_097;
    let days = days + 719_468; // from 0000-03-01
    let (era, day) = (days.div_euclid(PER_400_YEARS), days.rem_euclid(PER_400_YEARS));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn universal_time() {
        assert_eq!(utc(500_000_000), "1970-01-01 00:00:00.500000000");
        assert_eq!(utc(1_700_000_000_012_345_678), "2023-11-14 22:13:20.012345678");
        assert_eq!(utc(951_782_400_000_000_000), "2000-02-29 00:00:00.000000000");
        assert_eq!(utc(-1), "1969-12-31 23:59:59.999999999");
    }
}
