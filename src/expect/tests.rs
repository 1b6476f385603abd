//! Expectations over hand-made maps.

use super::*;
use crate::diag::Source;
use crate::output::FinalResults;
use crate::types::{Agg, Int};
use crate::value::{Counts, Hist, MapView, MapViewKind, Percentiles, Scale, ShowOptions, Stats};
use crate::verdict::{Outcome, State};
use std::sync::Arc;

fn map(name: &str, key: Option<Type>, value: Type) -> ScriptMap {
    ScriptMap { name: name.into(), key, value }
}

fn agg(function: &str, signed: bool, params: &[i64], size: u32) -> Type {
    Type::Agg(Arc::new(Agg { function: function.into(), signed, params: params.to_vec(), size }))
}

fn text(s: &str) -> Value {
    Value::Str { bytes: s.into(), cut: false }
}

/// The script's maps and their contents.
fn maps() -> (Vec<ScriptMap>, FinalResults) {
    let (name, pair) = (Type::Str(16), Type::Tuple(vec![Type::uint(4), Type::Str(16)]));
    let hist = |counts: &[u64]| {
        let mut all = vec![0; 66];
        all[..counts.len()].copy_from_slice(counts);
        Value::Hist(Box::new(Hist { scale: Scale::Log2 { k: 0 }, counts: all }))
    };
    let samples = |values: &[(i128, u64)]| {
        let count = values.iter().map(|(_, n)| n).sum();
        let total = values.iter().map(|(v, n)| *v as u64 * n).sum();
        let end = |v: Option<&(i128, u64)>| Value::Uint(v.map_or(0, |(v, _)| *v as u64));
        let points = vec![("min", end(values.first())), ("max", end(values.last()))];
        Value::Percentiles(Box::new(Percentiles { stats: Stats { count, total, signed: false }, points, samples: values.to_vec() }))
    };
    let stats = |count, total: i64| Stats { count, total: total as u64, signed: true };
    let one = |v: Value| vec![(Value::None, v)];
    let rows = vec![
        (map("@", None, agg("count", false, &[], 8)), one(Value::Uint(7))),
        (
            map("@calls", Some(Type::I64), agg("count", false, &[], 8)),
            vec![(Value::Int(0), Value::Uint(20)), (Value::Int(-1), Value::Uint(30))],
        ),
        (
            map("@opens", Some(name.clone()), agg("count", false, &[], 8)),
            vec![(text("/etc/passwd"), Value::Uint(3)), (text("b"), Value::Uint(1))],
        ),
        (map("@two", Some(pair), agg("sum", true, &[], 8)), vec![(Value::Tuple(vec![Value::Uint(1), text("a")]), Value::Int(-5))]),
        (map("@bytes", Some(name.clone()), agg("sum", false, &[], 8)), vec![(text("a"), Value::Uint(10)), (text("b"), Value::Uint(40))]),
        (map("@most", None, agg("max", true, &[], 16)), one(Value::Int(9))),
        (map("@least", None, agg("min", true, &[], 16)), one(Value::Int(2))),
        (
            map("@avg", Some(name.clone()), agg("avg", true, &[], 16)),
            vec![(text("a"), Value::Avg(stats(4, 10))), (text("b"), Value::Avg(stats(1, 90)))],
        ),
        (map("@stats", None, agg("stats", true, &[], 16)), one(Value::Stats(stats(4, 10)))),
        // 1 to 3 once each, [4, 8) twice
        (map("@h", None, agg("hist", false, &[0], 528)), one(hist(&[0, 0, 1, 2, 2]))),
        (
            map("@l", None, agg("lhist", false, &[0, 10, 5], 32)),
            one(Value::Hist(Box::new(Hist { scale: Scale::Linear { min: 0, max: 10, step: 5 }, counts: vec![0, 98, 1, 1] }))),
        ),
        (
            map("@ns", Some(name.clone()), agg("percentiles", false, &[], 7832)),
            vec![(text("a"), samples(&[(1000, 90), (2_000_000, 9)])), (text("b"), samples(&[(7_000_000, 1)]))],
        ),
        (map("@none", Some(name.clone()), agg("percentiles", false, &[], 7832)), vec![]),
        (map("@n", None, Type::U64), one(Value::Uint(5))),
        (map("@zero", None, Type::I64), one(Value::Int(0))),
        (map("@word", Some(Type::I64), name), vec![(Value::Int(1), text("one"))]),
        (map("@flag", None, Type::Bool), one(Value::Bool(true))),
        (
            map(
                "@state",
                Some(Type::Enum(Arc::new(crate::types::Enum {
                    name: "s".into(),
                    int: Int { bytes: 4, signed: false },
                    variants: vec![("LISTEN".into(), 10)],
                }))),
                Type::I64,
            ),
            vec![(Value::Enum { name: Some("LISTEN".into()), value: 10 }, Value::Int(6))],
        ),
        (map("@user", Some(crate::types::Deferred::plain("username", 8)), Type::I64), vec![(Value::Text("root".into()), Value::Int(4))]),
        (map("@stack", Some(crate::types::Deferred::plain("kstack", 8)), Type::I64), vec![]),
        (map("@buf", None, Type::Buf(8)), one(Value::Bytes(vec![]))),
    ];
    let view = |(m, entries): (ScriptMap, Vec<(Value, Value)>)| {
        let view = MapView {
            name: m.name.clone(),
            kind: MapViewKind::Map,
            measures: false,
            keyed: m.key.is_some(),
            set: true,
            entries,
            show: ShowOptions::default(),
            weights: None,
        };
        (m, view)
    };
    let (maps, views): (Vec<ScriptMap>, Vec<MapView>) = rows.into_iter().map(view).unzip();
    let emptied = vec![0; views.len()];
    (maps, FinalResults { maps: views, emptied, unbounded: vec![], counts: vec![Counts::default()], not_attached: vec![], omitted: 0 })
}

fn checked(text: &str) -> Result<Expectation, String> {
    let source = Source { name: "--expect".into(), text: text.into() };
    let all = |d: &crate::diag::Diagnostic| format!("{}: {} ({})", d.code, d.message, d.help.clone().unwrap_or_default());
    let tree = parse(&source, 0, 0..text.len()).map_err(|ds| ds.0.iter().map(all).collect::<String>())?;
    check(&tree, text, &source, None, &maps().0).map_err(|d| all(&d))
}

fn judged(text: &str, change: impl FnOnce(&mut FinalResults)) -> Outcome {
    let mut last = maps().1;
    change(&mut last);
    evaluate(&checked(text).unwrap_or_else(|e| panic!("{text}: {e}")), &last)
}

fn rules(outcome: &Outcome) -> Vec<&str> {
    outcome.findings.iter().map(|f| f.rule).collect()
}

#[test]
fn accepts_true_expectations() {
    for text in [
        "@ == 7",
        "@ + 1 == 8 && @ - 8 == -1 && @ * 2 == 14 && @ / 2 == 3 && @ % 4 == 3 && -@ < 0",
        "@ << 1 == 14 && @ >> 1 == 3 && (@ & 3) == 3 && (@ | 8) == 15 && (@ ^ 1) == 6",
        "@calls[0] == 20 && @calls[-1] == 30 && @calls[5] == 0 && @calls[3 - 3] == 20",
        "count(@calls) == 50 && len(@calls) == 2 && count(@calls[0]) == 20 && sum(@calls) == 50 && max(@calls) == 30 && min(@calls) == 20",
        "@opens[\"/etc/passwd\"] == 3 && @opens[\"c\"] == 0 && has_key(@opens, \"b\") && !has_key(@opens, \"c\")",
        "only(@opens, \"b\", \"/etc/passwd\", \"c\") && !only(@opens, \"b\")",
        "@two[1, \"a\"] == -5 && @two[(1, \"a\")] == -5 && @two[2, \"a\"] == 0 && has_key(@two, (1, \"a\"))",
        "sum(@bytes) == 50 && avg(@bytes) == 25",
        "@most == 9 && @least == 2 && max(@most) == 9",
        "@avg[\"a\"] == 2 && avg(@avg) == 20 && count(@avg) == 5 && sum(@avg) == 100 && max(@avg) == 90",
        "count(@stats) == 4 && avg(@stats) == 2 && sum(@stats) == 10",
        "count(@h) == 5 && p99(@h) < 8 && p99(@h) >= 4 && percentile(@h, 20) == 1 && p50(@h) <= 3",
        "p50(@l) < 5 && percentile(@l, 99) < 10 && p99(@l) >= 5",
        "p50(@ns) == 1us && p90(@ns) == 1000 && p95(@ns) == 2ms && p99(@ns) < 5ms && percentile(@ns, 100) > 5ms && percentile(@ns, 0) == 1us",
        "max(@ns) == 7ms && min(@ns) == 1us && count(@ns) == 100 && p99(@ns[\"b\"]) == 7ms && count(@ns[\"c\"]) == 0",
        "count(@none) == 0 || p99(@none) < 5ms",
        "!(count(@none) > 0 && p99(@none) > 5ms)",
        "@n == 5 && count(@n) == 5 && @word[1] == \"one\" && @word[2] == \"\" && @word[1] != \"two\"",
        "@flag && @flag == true && @flag != false",
        "@state[LISTEN] == 6 && @state[10] == 6",
        "@user[\"root\"] == 4",
        "5 > @zero && 200 << 20 == 209715200",
        "/* all */ @n /* five */ == 5 // or so",
        "- - @n == 5 && !!@flag && ! ! @flag",
        "@calls [ 0 ] == 20 && count ( @calls, ) == 50 && @two[1, \"a\",] == -5",
        "1 + 2 * 3 - 4 / 2 == 5 && 1 << 2 + 1 == 8 && (1 | 2 ^ 3 & 2) == 1 && 10 - 2 - 3 == 5",
        "@n == 5 || @n == 6 && @n == 7",
        "@word[1] == \"\\x6f\\156e\"",
    ] {
        let outcome = judged(text, |_| {});
        assert_eq!((&outcome.state, rules(&outcome)), (&State::Checked, vec![]), "{text}: {outcome:?}");
    }
}

#[test]
fn failures_show_both_sides() {
    for (text, message) in [
        ("@opens[\"/etc/passwd\"] == 0", "`@opens[\"/etc/passwd\"]` is 3, expected == 0"),
        ("count(@calls) <= 20", "`count(@calls)` is 50, expected <= 20"),
        ("20 > count(@calls)", "`count(@calls)` is 50, expected < 20"),
        ("@ == 7 && @n > 5", "`@n` is 5, expected > 5"),
        ("@ != 7 || @n > 5", "`@` is 7, expected != 7; `@n` is 5, expected > 5"),
        ("@n >= @", "`@n` is 5, expected >= @, which is 7"),
        ("percentile(@ns, 100) < 5ms", "`percentile(@ns, 100)` is 7.00 ms (7000000), expected < 5ms"),
        ("!(@n == 5)", "`(@n == 5)` is true"),
        ("!@flag", "`@flag` is true"),
        ("only(@opens, \"b\")", "`only(@opens, \"b\")` is false: @opens has /etc/passwd"),
        ("has_key(@none, \"b\")", "`has_key(@none, \"b\")` is false: but it has no keys"),
        ("@word[1] == \"two\"", "`@word[1]` is \"one\", expected == \"two\""),
    ] {
        let outcome = judged(text, |_| {});
        assert_eq!((rules(&outcome), outcome.findings.first().map(|f| f.message.as_str())), (vec!["not-met"], Some(message)), "{text}");
    }
    let facts = judged("count(@calls) <= 20", |_| {}).facts;
    let facts: Vec<_> = facts.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(facts, [("count(@calls)", "50"), ("@calls", "[-1] = 30, [0] = 20")]);
}

#[test]
fn missing_values_fail() {
    for (text, part) in [
        ("p99(@none) < 5ms", "@none is empty"),
        ("max(@none) < 5", "@none is empty"),
        ("p99(@ns[\"c\"]) < 5ms", "is empty"),
        ("@ / @zero < 5", "division by zero"),
        ("@ % @zero < 5", "division by zero"),
        ("@ * 0x7fffffffffffffff * 0x7fffffffffffffff * 0x7fffffffffffffff > 0", "too large"),
    ] {
        let outcome = judged(text, |_| {});
        assert!(rules(&outcome) == ["no-value"] && outcome.findings.iter().all(|f| f.message.contains(part)), "{text}: {outcome:?}");
    }
}

#[test]
fn reports_buckets_that_are_too_wide() {
    let outcome = judged("p99(@h) < 5", |_| {});
    assert_eq!(rules(&outcome), ["undecided"]);
    assert_eq!(outcome.findings[0].message, "`p99(@h)` is 4 to 7, expected < 5");
    assert_eq!(rules(&judged("percentile(@l, 100) < 50", |_| {})), ["undecided"]);
    assert_eq!(rules(&judged("percentile(@l, 100) < 10", |_| {})), ["not-met"]);
}

/// Missed events can only increase counts: expectations that fail nevertheless fail, and none pass.
#[test]
fn reports_lost_events() {
    let missed = |last: &mut FinalResults| last.counts.push(Counts { probe: "p".into(), missed: 3, ..Counts::default() });
    for text in [
        "count(@calls) <= 20",
        "@calls[0] < 20",
        "sum(@bytes) < 50 && @n == 5",
        "max(@calls) <= 29",
        "@most < 9",
        "@least > 2",
        "-@calls[0] > -20",
        "@calls[0] * 2 < 40",
        "!has_key(@opens, \"b\")",
        "only(@opens, \"b\")",
        "len(@opens) == 1",
        "count(@ns) < 100",
        "max(@ns) < 7ms",
        "min(@ns) > 1us",
        "count(@h) <= 4",
    ] {
        let outcome = judged(text, missed);
        assert_eq!((&outcome.state, rules(&outcome)), (&State::Checked, vec!["not-met"]), "{text}");
        assert_eq!(outcome.findings[0].help.as_deref(), Some("at least: 3 runs of probes were skipped (p)"));
    }
    for text in [
        "count(@calls) <= 200",
        "count(@calls) >= 20",
        "@calls[5] == 0",
        "@n == 5",
        "@n == 6",
        "sum(@two) < -10",
        "avg(@bytes) > 100",
        "min(@calls) > 25",
        "p99(@ns) > 5ms",
        "p99(@none) < 5",
        "has_key(@opens, \"c\")",
        "@word[1] == \"two\"",
        "!@flag",
        "count(@n) < 5",
        "@ / @zero < 5",
    ] {
        let outcome = judged(text, missed);
        assert_eq!(outcome.state, State::Unknown("the run is incomplete: 3 runs of probes were skipped (p)".into()), "{text}: {outcome:?}");
        assert!(outcome.findings.is_empty());
    }
    let unknown = |change: fn(&mut FinalResults)| matches!(judged("@n == 5", change).state, State::Unknown(_));
    assert!(unknown(|last| last.counts[0].refused = 1));
    assert!(unknown(|last| last.counts[0].unstored = 1));
    assert!(unknown(|last| last.not_attached.push("kprobe:x".into())));
    assert!(unknown(|last| last.omitted = 1));
    // lost lines of output and ends of strings do not affect maps
    assert!(!unknown(|last| last.counts[0].dropped = 1));
    assert!(!unknown(|last| last.counts[0].cut = 1));
}

/// Where runs counted for others, values may also be too high, so that nothing about them is decided.
#[test]
fn estimates_decide_nothing() {
    let estimated = |last: &mut FinalResults| {
        last.counts.push(Counts { probe: "p".into(), sampled_out: 3, ..Counts::default() });
        last.maps.iter_mut().for_each(|map| map.weights = Some(crate::value::Weights { passed: 1, runs: 4, detached_ms: 0 }));
    };
    for text in ["count(@calls) <= 20", "@calls[0] < 20", "sum(@bytes) < 50", "max(@calls) <= 29", "@least > 2", "count(@h) <= 4"] {
        let outcome = judged(text, estimated);
        assert!(matches!(outcome.state, State::Unknown(_)), "{text}: {outcome:?}");
    }
    // these keys and values exist
    for text in ["!has_key(@opens, \"b\")", "len(@opens) == 1", "max(@ns) < 7ms"] {
        assert_eq!(rules(&judged(text, estimated)), ["not-met"], "{text}");
    }
}

/// What is computed from a map that lacks events has no bound, and its keys may not exist.
#[test]
fn unbounded_maps_decide_nothing() {
    let unbounded = |last: &mut FinalResults| {
        last.counts[0].missed = 1;
        last.unbounded = last.maps.iter().map(|map| map.name.clone()).collect();
    };
    let all = [
        "count(@calls) <= 20",
        "@calls[0] < 20",
        "sum(@bytes) < 50",
        "max(@calls) <= 29",
        "count(@h) <= 4",
        "!has_key(@opens, \"b\")",
        "len(@opens) == 1",
        "only(@opens, \"b\")",
        "max(@ns) < 7ms",
    ];
    for text in all {
        let outcome = judged(text, unbounded);
        assert!(matches!(outcome.state, State::Unknown(_)), "{text}: {outcome:?}");
        let missed = |last: &mut FinalResults| last.counts[0].missed = 1;
        assert_eq!(rules(&judged(text, missed)), ["not-met"], "{text}");
    }
}

#[test]
fn reports_emptied_maps() {
    let emptied = |last: &mut FinalResults| last.emptied[0] = 2;
    let outcome = judged("@ == 7", emptied);
    assert!(rules(&outcome) == ["map-emptied"] && outcome.findings[0].message.contains("emptied @ 2 times"), "{outcome:?}");
    assert!(rules(&judged("@n == 5", emptied)).is_empty());
    let outcome = judged("@ == 7", |last| {
        emptied(last);
        last.counts[0].dropped = 1;
    });
    assert!(matches!(outcome.state, State::Unknown(_)));
}

#[test]
fn reads_that_failed_are_reported() {
    let outcome = judged("@ == 7", |last| last.counts.push(Counts { probe: "p".into(), unread: 1, ..Counts::default() }));
    assert_eq!(
        (&outcome.state, rules(&outcome), outcome.worst()),
        (&State::Checked, vec!["failed-reads"], Some(crate::verdict::Level::Warning))
    );
    assert!(outcome.findings[0].message.starts_with("a read of memory failed (p): "));
}

#[test]
fn reports_errors_before_the_run() {
    for (text, part) in [
        ("@opnes[\"a\"] == 0", "unknown-map: the script has no map `@opnes` (did you mean `@opens`?)"),
        ("@calls = 5", "an assignment is a statement, not a value (to compare, write `==`)"),
        ("@n++ > 0", "not-assignable"),
        ("@n", "not-boolean: an expectation must be true or false, but this is a number"),
        ("@word[1]", "not-boolean: an expectation must be true or false, but this is a string"),
        ("@calls > 5", "@calls has keys, but this expression has none (`@calls[…]` is one element, and `count(@calls)` covers all)"),
        ("@n[1] > 5", "@n has no keys"),
        ("@opens[1] > 5", "its keys are string[16], but this is a number"),
        ("@opens[\"0123456789abcdefg\"] == 0", "17 bytes long, which is too long"),
        ("@opens[@n] == 0", "not-constant"),
        ("@calls[\"a\"] == 0", "its keys are int64, but this is a string"),
        ("@two[1] == 0", "its keys are (uint32, string[16]), but this is a number"),
        ("@two[1, 2] == 0", "its keys are string[16], but this is a number"),
        ("@two[1, \"a\", 3] == 0", "its keys have 2 parts"),
        ("@two[-1, \"a\"] == 0", "-1, which is out of range"),
        ("@calls[1, 2] == 0", "its keys are a single int64, but this has 2 parts"),
        ("@calls[(1, 2)] == 0", "this is a tuple"),
        ("@stack[\"a\"] == 0", "its keys are kstack"),
        ("@stats > 5", "@stats holds stats(), which is not a single value (use count(@stats), sum(@stats) or avg(@stats))"),
        ("@h > 5", "use count(@h), p50(@h), p90(@h), p95(@h) or p99(@h)"),
        ("@buf == \"a\"", "@buf holds buffer[8], which is not a single value (store a number in the script)"),
        ("count(@most) > 5", "@most has no count, because it holds max()"),
        ("p99(@calls) > 5", "@calls has no p99"),
        ("cuont(@calls) > 5", "did you mean `count`?"),
        ("strlen(@calls) > 5", "it has count, sum,"),
        ("count() > 5", "count needs a map"),
        ("count(5) > 5", "count takes a map (write `count(@m)`)"),
        ("count(uint8 *) > 5", "expected an expression after `*`, found `)`"),
        ("count(struct f) > 5", "expected an operator before `f`"),
        ("count(uint8) > 5", "count takes a map"),
        ("count(@calls, 1) > 5", "count has 2 arguments"),
        ("percentile(@h) > 5", "percentile has 1 argument (write `percentile(@m, n)`)"),
        ("percentile(@h, 101) > 5", "a number from 0 to 100"),
        ("percentile(@h, @n) > 5", "not-constant"),
        ("len(@n) > 5", "len needs a map with keys, and `@n` has none"),
        ("len(@calls[1]) > 5", "len needs a map with keys"),
        ("only(@calls)", "only has 1 argument"),
        ("has_key(@calls, \"a\")", "its keys are int64, but this is a string"),
        ("@word[1] > 5", "`>` takes a number, but this is a string"),
        ("@word[1] == 5", "a string cannot be compared with a number"),
        ("@n && @flag", "`&&` takes true or false, but this is a number (compare it: `@n > 0`)"),
        ("1 < @n < 9", "put `&&` or `||` between comparisons"),
        ("pid == 5", "an expectation cannot use `pid`"),
        ("calls == 5", "did you mean `@calls`?"),
        ("$x == 5", "`$x` exists only while the script runs"),
        ("@n ? true : false", "not allowed in an expectation"),
        ("(uint8)@n == 5", "not allowed in an expectation"),
        ("", "expected an expression"),
        ("@n == ", "expected an expression after `==`"),
        ("@n == 5 @n", "expected"),
        ("count(@calls < 5", "unbalanced"),
        ("@word[1] == \"a", "unterminated-string"),
        ("@word[1] == \"\\q\"", "bad-escape"),
        ("@n == 5 /* five", "unterminated-comment"),
        ("@n == 12x", "bad-number"),
        ("@calls[1) == 0", "expected `]` to close the `[` opened at 1:7, found `)`"),
        ("@n == 5)", "this `)` closes nothing"),
        ("@calls[] == 5", "expected a key"),
        ("@n += 5", "an assignment is a statement, not a value (to compare, write `==`)"),
        ("@n >>= 5", "an assignment is a statement"),
        ("--@n == 5", "not-assignable"),
        ("~@n == 5", "not allowed in an expectation"),
        ("@n.x == 5", "not allowed in an expectation"),
        ("@n->x == 5", "not allowed in an expectation"),
        ("$# == 5", "`$#` exists only"),
        ("@word[1] == “a”", "plain double quotes, not `“` (U+201C)"),
        ("@word[1] == 'a'", "write a string in double quotes"),
        ("@n ==\u{a0}5", "an unusual blank"),
        ("@n == 5;", "expected an operator, found `;`"),
    ] {
        match checked(text) {
            Ok(_) => panic!("{text} is taken"),
            Err(message) => assert!(message.contains(part), "{text}: {message}"),
        }
    }
    let deep = format!("{}1{} == 1", "(".repeat(300), ")".repeat(300));
    assert!(checked(&deep).is_err_and(|message| message.contains("too-deep")));
    let long = format!("{}1 == 1", "1 + ".repeat(100_000));
    assert!(checked(&long).is_err_and(|message| message.contains("too-deep")));
    let negative = format!("{}1 == 1", "-".repeat(100_000));
    assert!(checked(&negative).is_err_and(|message| message.contains("not-assignable")));
    let spaced = format!("{}1 == 1", "- ".repeat(100_000));
    assert!(checked(&spaced).is_err_and(|message| message.contains("too-deep")));
}

#[test]
fn no_text_panics() {
    let mut random = crate::random::Random::new(7);
    let parts = [
        "@", "@n", "@calls", "[", "]", "(", ")", ",", "1", "0x", "5ms", "\"", "\"a\"", "\\", "==", "=", "<", "<<", "&&", "!", "-", "--",
        "/*", "*/", "//", "é", " ", "\n", "$x", "true", "count", "only", "?", ":", ".", "“",
    ];
    for _ in 0..20_000 {
        let text: String = (0..random.below(12)).filter_map(|_| parts.get(random.below(parts.len() as u64) as usize)).copied().collect();
        // an error shows its place
        if let Err(message) = checked(&text) {
            assert!(!message.is_empty(), "{text}");
        }
    }
}

#[test]
fn every_function_has_an_example_that_parses() {
    for f in FUNCTIONS {
        let source = Source { name: String::new(), text: f.example.into() };
        parse(&source, 0, 0..f.example.len()).unwrap_or_else(|e| panic!("{}: {e:?}", f.name));
        assert!(f.example.contains(&format!("{}(", f.name)) && f.form.starts_with(f.name));
    }
}

#[test]
fn keeps_positions_in_a_longer_text() {
    let source = Source { name: "f".into(), text: "# é\n  @n == \n@x".into() };
    let errors = parse(&source, 3, 7..13).unwrap_err();
    assert_eq!((errors.0[0].span.source, source.line_col(errors.0[0].span.start)), (3, (2, 9)));
    let tree = parse(&source, 3, 14..16).unwrap();
    assert_eq!((tree.span.start, tree.span.end), (14, 16));
}
