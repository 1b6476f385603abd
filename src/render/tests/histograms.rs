//! Histograms in text and JSON.

use super::*;

fn linear(min: i64, max: i64, step: i64, values: &[i64]) -> Hist {
    let mut counts = vec![0; (2 + (max - min) / step) as usize];
    for v in values {
        let index = if *v < min {
            0
        } else if *v >= max {
            1 + (max - min) / step
        } else {
            1 + (v - min) / step
        };
        counts[index as usize] += 1;
    }
    Hist { scale: Scale::Linear { min, max, step }, counts }
}

/// The labels of a histogram's rows, and its JSON bounds.
fn labels(hist: &Hist) -> Vec<String> {
    crate::render::hist::rows(hist, 1).into_iter().map(|r| r.label).collect()
}

#[test]
fn histogram() {
    let h = log2(0, &[2, 3, 5, 16, 17, 18, 31]);
    shows(
        Output::Map(map("@lat", MapViewKind::Hist, vec![(Value::None, Value::Hist(h.into()))])),
        "\
@lat:
[2, 4)                 2 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |
[4, 8)                 1 |@@@@@@@@@@@@@                                       |
[8, 16)                0 |                                                    |
[16, 32)               4 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|

",
        "{\"type\": \"hist\", \"data\": {\"@lat\": [{\"min\": 2, \"max\": 3, \"count\": 2},{\"min\": 4, \"max\": 7, \"count\": 1},\
         {\"min\": 8, \"max\": 15, \"count\": 0},{\"min\": 16, \"max\": 31, \"count\": 4}]}}\n",
    );
}

#[test]
fn linear_histogram() {
    let h = linear(10, 30, 10, &[5, 11, 12, 19, 30]);
    shows(
        Output::Map(map("@lin", MapViewKind::Hist, vec![(s("a"), Value::Hist(h.into()))])),
        "\
@lin[a]:
(..., 10)              1 |@@@@@@@@@@@@@@@@@                                   |
[10, 20)               3 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[20, 30)               0 |                                                    |
[30, ...)              1 |@@@@@@@@@@@@@@@@@                                   |

",
        "{\"type\": \"hist\", \"data\": {\"@lin\": {\"a\": [{\"max\": 9, \"count\": 1},{\"min\": 10, \"max\": 19, \"count\": 3},\
         {\"min\": 20, \"max\": 29, \"count\": 0},{\"min\": 30, \"count\": 1}]}}}\n",
    );
}

#[test]
fn several_histograms() {
    let entries = vec![(s("b"), Value::Hist(log2(0, &[1, 1]).into())), (s("a"), Value::Hist(log2(0, &[0]).into()))];
    let bar = "@".repeat(52);
    shows(
        Output::Map(map("@", MapViewKind::Hist, entries)),
        &format!("@[a]:\n[0]                    1 |{bar}|\n\n@[b]:\n[1]                    2 |{bar}|\n\n"),
        "{\"type\": \"hist\", \"data\": {\"@\": {\"a\": [{\"min\": 0, \"max\": 0, \"count\": 1}], \
         \"b\": [{\"min\": 1, \"max\": 1, \"count\": 2}]}}}\n",
    );
}

#[test]
fn emptied_histogram() {
    shows(
        Output::Map(map("@", MapViewKind::Hist, vec![(Value::None, Value::Hist(log2(0, &[]).into()))])),
        "@:\n\n",
        "{\"type\": \"hist\", \"data\": {\"@\": []}}\n",
    );
}

#[test]
fn histogram_labels() {
    assert_eq!(labels(&log2(0, &[-9, 0, 1, 2])), ["(..., 0)", "[0]", "[1]", "[2, 4)"]);
    assert_eq!(labels(&log2(0, &[512, 1024])), ["[512, 1K)", "[1K, 2K)"]);
    assert_eq!(labels(&log2(0, &[1 << 19, 1 << 20])), ["[512K, 1M)", "[1M, 2M)"]);
    assert_eq!(labels(&log2(0, &[1 << 29])), ["[512M, 1G)"]);
    assert_eq!(labels(&log2(0, &[1 << 40])), ["[1T, 2T)"]);
    assert_eq!(labels(&log2(0, &[i64::MAX])), ["[4E, 8E)"]);
    let mut full = log2(0, &[]);
    full.counts[65] = 1;
    assert_eq!(labels(&full), ["[8E, 16E)"]);
    assert_eq!(crate::render::hist::rows(&full, 1)[0].max, Some(i128::from(u64::MAX)));
}

#[test]
fn fine_histogram_labels() {
    assert_eq!(labels(&log2(1, &[-1, 0, 1, 2, 3, 4, 6])), ["(..., 0)", "[0]", "[1]", "[2]", "[3]", "[4, 6)", "[6, 8)"]);
    assert_eq!(labels(&log2(2, &[7, 8, 10])), ["[7]", "[8, 10)", "[10, 12)"]);
    // The suffix starts where buckets are 1024 wide.
    assert_eq!(labels(&log2(1, &[1024, 1536, 2048])), ["[1024, 1536)", "[1536, 2K)", "[2K, 3K)"]);
    assert_eq!(labels(&log2(5, &[1 << 14])), ["[16384, 16896)"]);
    assert_eq!(labels(&log2(5, &[1 << 15])), ["[32K, 33K)"]);
}

#[test]
fn every_value_is_within_its_bucket() {
    for k in 0..=5 {
        for v in (0..2000).chain((0..62).flat_map(|p| [(1 << p) - 1, 1 << p, (1 << p) + 1])).chain([i64::MAX, -1, i64::MIN]) {
            let rows = crate::render::hist::rows(&log2(k, &[v]), 1);
            let (min, max) = (rows[0].min.unwrap_or(i128::MIN), rows[0].max.unwrap_or(i128::MAX));
            assert!(rows.len() == 1 && (min..=max).contains(&i128::from(v)), "{v} of k = {k}: {rows:?}");
        }
    }
}

#[test]
fn linear_labels() {
    assert_eq!(labels(&linear(0, 3, 1, &[-1, 0, 1, 2, 3])), ["(..., 0)", "[0]", "[1]", "[2]", "[3, ...)"]);
    assert_eq!(labels(&linear(0, 4096, 1024, &[0, 1024, 4096])), ["[0, 1K)", "[1K, 2K)", "[2K, 3K)", "[3K, 4K)", "[4K, ...)"]);
    assert_eq!(labels(&linear(100, 2148, 1024, &[100])), ["[100, 1124)"]);
    assert_eq!(labels(&linear(0, 2 << 20, 1 << 20, &[1 << 20])), ["[1M, 2M)"]);
    // Steps that do not divide the range: the remainder counts as above it.
    assert_eq!(labels(&linear(0, 10, 4, &[0, 9])), ["[0, 4)", "[4, 8)", "[8, ...)"]);
    assert_eq!(labels(&linear(5, 5, 1, &[4, 5])), ["(..., 5)", "[5, ...)"]);
}

#[test]
fn histogram_counts_divide() {
    let h = Hist { scale: Scale::Log2 { k: 0 }, counts: vec![0, 10, 5, 1] };
    let view = MapView {
        show: ShowOptions { div: Some(5), ..ShowOptions::default() },
        ..map("@", MapViewKind::Hist, vec![(Value::None, Value::Hist(h.into()))])
    };
    let (full, half) = ("@".repeat(52), "@".repeat(26));
    shows(
        Output::Map(view),
        &format!("@:\n{:16}{:8} |{full}|\n{:16}{:8} |{half:52}|\n{:16}{:8} |{:52}|\n\n", "[0]", 2, "[1]", 1, "[2, 4)", 0, "@@@@@"),
        "{\"type\": \"hist\", \"data\": {\"@\": [{\"min\": 0, \"max\": 0, \"count\": 2},{\"min\": 1, \"max\": 1, \"count\": 1},\
         {\"min\": 2, \"max\": 3, \"count\": 0}]}}\n",
    );
    let l = linear(0, 10, 5, &[1, 1, 1]);
    assert_eq!(crate::render::hist::rows(&l, 3)[0].count, 3);
}

#[test]
fn wide_counts_and_labels_are_not_cut() {
    let h = Hist { scale: Scale::Linear { min: 1_000_000_000, max: 3_000_000_000, step: 1_000_000_000 }, counts: vec![0, 123_456_789, 0] };
    let text = utf8(rendered("text", &RenderOptions::default(), &Output::Value(Value::Hist(h.into()))).out);
    assert_eq!(text, format!("[1000000000, 2000000000)123456789 |{}|\n\n", "@".repeat(52)));
}
