//! From metrics to the text formats of Prometheus and OpenMetrics.

use std::fmt::Write as _;

use crate::metrics::{Family, Kind, Point, scaled};

/// Metrics as text, grouped by name; `open`: in the OpenMetrics format.
pub fn text(families: &[Family], open: bool) -> String {
    let mut to = String::new();
    let mut before = None;
    for family in families {
        // scripts with the same metric share a family
        if before.replace(&family.name) != Some(&family.name) {
            head(family, open, &mut to);
        }
        for series in &family.series {
            let labels: Vec<String> = family.labels_of(series).map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
            sample(family, &labels.join(","), &series.point, open, &mut to);
        }
    }
    if open {
        to.push_str("# EOF\n");
    }
    to
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
        Kind::Summary => "summary",
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn head(of: &Family, open: bool, to: &mut String) {
    let Family { name, kind, help, unit, .. } = of;
    // the text format names a counter with its suffix
    let family = if *kind == Kind::Counter && !open { format!("{name}_total") } else { name.clone() };
    let _ = writeln!(to, "# HELP {family} {}", help.replace('\\', "\\\\").replace('\n', "\\n"));
    let _ = writeln!(to, "# TYPE {family} {}", word(*kind));
    if let Some(unit) = unit.filter(|unit| open && name.ends_with(unit)) {
        let _ = writeln!(to, "# UNIT {family} {unit}");
    }
}

fn sample(family: &Family, labels: &str, point: &Point, open: bool, to: &mut String) {
    let Family { name, kind, power, .. } = family;
    let power = *power;
    let braces = |labels: &str| if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    let of = braces(labels);
    let _ = match kind {
        Kind::Counter => writeln!(to, "{name}_total{of} {}", scaled(point.value, power)),
        Kind::Gauge => writeln!(to, "{name}{of} {}", scaled(point.value, power)),
        Kind::Summary => {
            // OpenMetrics allows a sum only of values that are not negative
            if let Some(sum) = point.sum.filter(|sum| !open || *sum >= 0 && !point.negative) {
                let _ = writeln!(to, "{name}_sum{of} {}", scaled(sum, power));
            }
            writeln!(to, "{name}_count{of} {}", point.count)
        }
        Kind::Histogram => {
            let mut sum = 0u64;
            let comma = if labels.is_empty() { "" } else { "," };
            for (bound, n) in point.buckets.iter().filter(|(bound, _)| *bound != i128::MAX) {
                sum = sum.saturating_add(*n);
                let _ = writeln!(to, "{name}_bucket{{{labels}{comma}le=\"{}\"}} {sum}", scaled(*bound, power));
            }
            let _ = writeln!(to, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {}", point.count);
            // OpenMetrics allows a sum only if no bound is negative, and the count only with the sum
            let sum = point.sum.filter(|_| !open || point.buckets.iter().all(|(bound, _)| *bound >= 0));
            if let Some(sum) = sum {
                let _ = writeln!(to, "{name}_sum{of} {}", scaled(sum, power));
            }
            if sum.is_some() || !open { writeln!(to, "{name}_count{of} {}", point.count) } else { Ok(()) }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::own::OwnMetric;

    #[test]
    fn counts_of_histograms_need_a_sum_in_open_metrics() {
        let family = |first: i128, sum| {
            let point = Point { sum, count: 1, buckets: vec![(first, 1), (i128::MAX, 0)], ..Point::default() };
            let metric = OwnMetric { name: "h", kind: Kind::Histogram, help: "", labels: &[] };
            let mut family = Family::own(&metric, [(Vec::new(), 0)]);
            family.series[0].point = point;
            [family]
        };
        let suffixes = |family: &[Family], open| {
            let text = text(family, open);
            ["_sum ", "_count "].map(|suffix| text.contains(suffix))
        };
        assert_eq!(suffixes(&family(1, Some(1)), true), [true, true]);
        assert_eq!(suffixes(&family(1, None), true), [false, false]);
        assert_eq!(suffixes(&family(-1, Some(-1)), true), [false, false]);
        assert_eq!(suffixes(&family(-1, Some(-1)), false), [true, true]);
        assert_eq!(suffixes(&family(1, None), false), [false, true]);
    }

    #[test]
    fn negative_sums_are_left_out_of_open_metrics() {
        let metric = OwnMetric { name: "a", kind: Kind::Summary, help: "", labels: &[] };
        let mut family = Family::own(&metric, [(Vec::new(), 0)]);
        let mut has_sum = |sum, negative, open| {
            family.series[0].point = Point { sum: Some(sum), count: 2, negative, ..Point::default() };
            let text = text(std::slice::from_ref(&family), open);
            assert!(text.contains("a_count 2\n"), "{text}");
            text.contains("a_sum")
        };
        assert_eq!([has_sum(3, false, true), has_sum(-3, false, true), has_sum(3, true, true)], [true, false, false]);
        assert!(has_sum(-3, true, false));
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escaped("a\\\"\n"), "a\\\\\\\"\\n");
    }
}
