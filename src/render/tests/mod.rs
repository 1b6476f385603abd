//! Renders records in both formats and compares the results with sections of the language's documentation.

use crate::output::{Output, ProblemKind};
use crate::value::{Counts, Frame, Hist, MapView, MapViewKind, Pos, Scale, ShowOptions, Stack, StackMode, Stats, Value, Weights};
use std::io::Read;
use std::sync::Arc;

mod histograms;

use super::{FORMATS, Format, RenderOptions, Rendered, find};

fn rendered(format: &str, options: &RenderOptions, output: &Output) -> Rendered {
    let mut to = Rendered::default();
    (find(format).unwrap().make)(options).render(output, &mut to);
    to
}

fn utf8(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// Checks both formats' output; standard error must be empty, and JSON must be valid.
#[track_caller]
fn shows(output: Output, text: &str, json: &str) {
    let options = RenderOptions::default();
    let t = rendered("text", &options, &output);
    assert_eq!((utf8(t.out).as_str(), utf8(t.err).as_str()), (text, ""));
    let j = rendered("json", &options, &output);
    let out = utf8(j.out);
    assert_eq!((out.as_str(), utf8(j.err).as_str()), (json, ""));
    for line in out.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

/// Checks a value printed by `print()`.
#[track_caller]
fn prints(value: Value, text: &str, json: &str) {
    shows(Output::Value(value), &format!("{text}\n"), &format!("{{\"type\": \"value\", \"data\": {json}}}\n"));
}

fn s(text: &str) -> Value {
    Value::Str { bytes: text.into(), cut: false }
}

fn map(name: &str, kind: MapViewKind, entries: Vec<(Value, Value)>) -> MapView {
    let keyed = entries.first().is_none_or(|e| e.0 != Value::None);
    MapView { name: name.into(), kind, measures: false, keyed, set: true, entries, show: ShowOptions::default(), weights: None }
}

fn stats(count: u64, total: i64) -> Stats {
    Stats { count, total: total as u64, signed: true }
}

/// A histogram from values, by the index rules of the language.
fn log2(k: u8, values: &[i64]) -> Hist {
    let mut counts = vec![0; 66 << k];
    for v in values {
        let v = *v;
        let index = if v < 0 {
            0
        } else if v < 1 << k {
            v as usize + 1
        } else {
            let msb = 63 - v.leading_zeros() as u8;
            (usize::from(msb - k + 1) << k) + (v >> (msb - k)) as usize % (1 << k) + 1
        };
        counts[index] += 1;
    }
    Hist { scale: Scale::Log2 { k }, counts }
}

fn frame(addr: u64, symbol: &str, offset: u64) -> Frame {
    Frame { addr, symbol: Some(symbol.into()), offset, ..Frame::default() }
}

fn stack(mode: StackMode, kernel: bool, frames: Vec<Frame>) -> Value {
    Value::Stack(Stack { mode, kernel, frames: frames.into_iter().collect() })
}

#[test]
fn formats_are_found() {
    assert!(find("text").is_some() && find("json").is_some() && find("xml").is_none());
    assert!(FORMATS.iter().all(|f| !f.doc.is_empty()));
}

#[test]
fn scalars() {
    prints(Value::Int(-5), "-5", "-5");
    prints(Value::Int(i64::MIN), "-9223372036854775808", "-9223372036854775808");
    prints(Value::Uint(u64::MAX), "18446744073709551615", "\"18446744073709551615\"");
    prints(Value::Uint((1 << 53) + 1), "9007199254740993", "\"9007199254740993\"");
    prints(Value::Uint(1 << 53), "9007199254740992", "9007199254740992");
    prints(Value::Bool(true), "true", "true");
    prints(Value::Bool(false), "false", "false");
    prints(Value::None, "null", "null");
    prints(Value::Ptr(0xffff_8880_0000_1234), "0xffff888000001234", "18446612682070037044");
    prints(Value::Ptr(0), "0x0", "0");
    prints(Value::Enum { name: Some("TCP_LISTEN".into()), value: 10 }, "TCP_LISTEN", "10");
    prints(Value::Enum { name: None, value: -3 }, "-3", "-3");
}

#[test]
fn strings() {
    prints(s("hello"), "hello", r#""hello""#);
    prints(s("a\"b\\c\n\r\t\u{1}é"), "a\"b\\c\n\r\t\u{1}é", r#""a\"b\\c\n\r\t\u0001é""#);
    prints(Value::Str { bytes: b"abc".into(), cut: true }, "abc..", r#""abc..""#);
    prints(Value::Bytes(b"a\\ \x00\xff~\x7f".into()), r"a\ \x00\xff~\x7f", "[97,92,32,0,-1,126,127]");
    prints(Value::Text("AA:BB:CC:00:11:22".into()), "AA:BB:CC:00:11:22", r#""AA:BB:CC:00:11:22""#);
}

#[test]
fn trailer_can_be_empty() {
    let options = RenderOptions { trunc_trailer: String::new(), ..RenderOptions::default() };
    let v = Output::Value(Value::Str { bytes: b"abc".into(), cut: true });
    assert_eq!(rendered("text", &options, &v).out, b"abc\n");
    assert_eq!(rendered("json", &options, &v).out, b"{\"type\": \"value\", \"data\": \"abc\"}\n");
}

#[test]
fn bytes_that_are_not_utf8() {
    let v = Output::Value(Value::Str { bytes: b"a\xff\xfe\xc3b".into(), cut: false });
    let options = RenderOptions::default();
    assert_eq!(rendered("text", &options, &v).out, b"a\xff\xfe\xc3b\n");
    assert_eq!(utf8(rendered("json", &options, &v).out), "{\"type\": \"value\", \"data\": \"a\u{fffd}\u{fffd}\u{fffd}b\"}\n");
}

#[test]
fn composites() {
    let list = |items: &[i64]| Value::List(items.iter().map(|i| Value::Int(*i)).collect());
    prints(list(&[1, 2, 3]), "[1,2,3]", "[1,2,3]");
    prints(Value::List(vec![list(&[1, 2]), list(&[3, 4])]), "[[1,2],[3,4]]", "[[1,2],[3,4]]");
    prints(list(&[]), "[]", "[]");
    prints(
        Value::Tuple(vec![Value::Int(1), s("foo"), Value::Tuple(vec![Value::Int(2), Value::Int(3)])]),
        "(1, foo, (2, 3))",
        r#"[1,"foo",[2,3]]"#,
    );
    prints(Value::Tuple(vec![]), "()", "[]");
    let inner = Value::Record(vec![("c".into(), Value::Int(2))]);
    prints(
        Value::Record(vec![("a".into(), Value::Int(1)), ("b".into(), inner)]),
        "{ .a = 1, .b = { .c = 2 } }",
        r#"{"a": 1, "b": {"c": 2}}"#,
    );
    prints(Value::Record(vec![]), "{}", "{}");
    prints(Value::Stats(stats(3, 6)), "{ .count = 3, .average = 2, .total = 6 }", r#"{"count": 3, "average": 2, "total": 6}"#);
    prints(Value::Avg(stats(2, -7)), "-3", "-3");
}

#[test]
fn stacks_of_each_mode() {
    let inlined = Frame { inlined: true, source: Some(("/src/a.c".into(), 7)), ..frame(0x1000, "inner", 0) };
    let outer = Frame { source: Some(("/src/a.c".into(), 9)), module: Some("/bin/x".into()), ..frame(0x1000, "outer_fn", 21) };
    let unknown = Frame { addr: 0xabc, ..Frame::default() };
    let frames = vec![inlined, outer, frame(0x2000, "main", 8), unknown];
    prints(
        stack(StackMode::Bpftrace, false, frames.clone()),
        "\n        [inlined] inner@/src/a.c:7\n        outer_fn+21@/src/a.c:9\n        main+8\n        0xabc\n",
        r#""\n        [inlined] inner@/src/a.c:7\n        outer_fn+21@/src/a.c:9\n        main+8\n        0xabc\n""#,
    );
    prints(
        stack(StackMode::Perf, false, frames.clone()),
        "\n\t1000 inner (inlined)\n\t1000 outer_fn+21 (/bin/x)\n\t2000 main+8 ([unknown])\n\tabc 0xabc ([unknown])\n",
        r#""\n\t1000 inner (inlined)\n\t1000 outer_fn+21 (/bin/x)\n\t2000 main+8 ([unknown])\n\tabc 0xabc ([unknown])\n""#,
    );
    prints(stack(StackMode::Perf, true, vec![frame(0xff00, "schedule", 1)]), "\n\tff00 schedule+1\n", r#""\n\tff00 schedule+1\n""#);
    prints(stack(StackMode::Raw, false, frames), "\n1000\n1000\n2000\nabc\n", r#""\n1000\n1000\n2000\nabc\n""#);
    let built = Frame { build_id: Some(("ab".repeat(20), 0x1f0)), ..frame(0x1000, "f", 1) };
    let id = "ab".repeat(20);
    prints(
        stack(StackMode::BuildId, false, vec![built, Frame { addr: 0x77, ..Frame::default() }]),
        &format!("\n{id} 0x1f0\n77\n"),
        &format!("\"\\n{id} 0x1f0\\n77\\n\""),
    );
    prints(stack(StackMode::Bpftrace, true, vec![]), "\n", r#""\n""#);
}

#[test]
fn stacks_in_keys() {
    let st = || stack(StackMode::Bpftrace, false, vec![frame(1, "outer_fn", 21), frame(2, "main", 8)]);
    shows(
        Output::Map(map("@", MapViewKind::Map, vec![(st(), Value::Uint(12))])),
        "@[\n        outer_fn+21\n        main+8\n]: 12\n",
        "{\"type\": \"map\", \"data\": {\"@\": {\"\\nouter_fn+21\\nmain+8\\n\": 12}}}\n",
    );
    shows(
        Output::Map(map("@", MapViewKind::Map, vec![(Value::Tuple(vec![st(), s("sh")]), Value::Uint(1))])),
        "@[\n        outer_fn+21\n        main+8\n, sh]: 1\n",
        "{\"type\": \"map\", \"data\": {\"@\": {\"\\nouter_fn+21\\nmain+8\\n,sh\": 1}}}\n",
    );
}

#[test]
fn scalar_maps() {
    shows(
        Output::Map(map("@", MapViewKind::Map, vec![(Value::None, Value::Int(1))])),
        "@: 1\n",
        "{\"type\": \"map\", \"data\": {\"@\": 1}}\n",
    );
    shows(
        Output::Map(map("@s", MapViewKind::Stats, vec![(Value::None, Value::Stats(stats(0, 0)))])),
        "@s: { .count = 0, .average = 0, .total = 0 }\n",
        "{\"type\": \"stats\", \"data\": {\"@s\": {\"count\": 0, \"average\": 0, \"total\": 0}}}\n",
    );
    shows(
        Output::Map(map("@a", MapViewKind::Stats, vec![(Value::None, Value::Avg(stats(2, 9)))])),
        "@a: 4\n",
        "{\"type\": \"stats\", \"data\": {\"@a\": 4}}\n",
    );
}

#[test]
fn keys() {
    let pair = Value::Tuple(vec![Value::Int(2), Value::Int(3)]);
    shows(
        Output::Map(map(
            "@m",
            MapViewKind::Map,
            vec![(Value::Tuple(vec![Value::Int(7), s("sh")]), Value::Int(1)), (Value::Tuple(vec![Value::Int(1), pair]), Value::Int(4))],
        )),
        "@m[7, sh]: 1\n@m[1, (2, 3)]: 4\n",
        "{\"type\": \"map\", \"data\": {\"@m\": {\"7,sh\": 1, \"1,(2,3)\": 4}}}\n",
    );
    // Spaces and parentheses in a string stay.
    shows(
        Output::Map(map("@", MapViewKind::Map, vec![(s("(a b)"), Value::Int(1))])),
        "@[(a b)]: 1\n",
        "{\"type\": \"map\", \"data\": {\"@\": {\"(a b)\": 1}}}\n",
    );
    let record = Value::Record(vec![("a".into(), Value::Int(1)), ("b".into(), s("x y"))]);
    shows(
        Output::Map(map("@", MapViewKind::Map, vec![(record, Value::Int(1))])),
        "@[{ .a = 1, .b = x y }]: 1\n",
        "{\"type\": \"map\", \"data\": {\"@\": {\"{.a=1,.b=x y}\": 1}}}\n",
    );
}

#[test]
fn a_long_map_has_the_same_text_in_parts() {
    let entries = (0..80_000).map(|i| (Value::Int(i), Value::Int(i % 7))).collect();
    let output = Output::Map(map("@a", MapViewKind::Map, entries));
    for (format, script) in [("text", None), ("json", None), ("json", Some("a.bt")), ("csv", None), ("folded", None)] {
        let options = RenderOptions { script: script.map(str::to_owned), ..RenderOptions::default() };
        let whole = rendered(format, &options, &output).out;
        let in_parts = |most: usize| {
            let (mut text, mut parts, mut rest) = (Vec::new(), 0, Rendered::default());
            (find(format).unwrap().make)(&options).render_in_parts(&output, &mut rest, &mut |out| {
                assert!(out.len() < 1 << 19, "{format}");
                text.append(out);
                parts += 1;
                parts < most
            });
            text.append(&mut rest.out);
            (text, parts)
        };
        let (text, parts) = in_parts(usize::MAX);
        assert!(text == whole && parts > 1, "{format}: {parts} parts");
        let (text, parts) = in_parts(1);
        assert!(text.len() < whole.len() && whole.starts_with(&text) && parts == 1, "{format}: {parts} parts");
    }
}

#[test]
fn empty_keyed_map_prints_nothing() {
    shows(Output::Map(map("@", MapViewKind::Map, vec![])), "", "");
}

/// The keys of a map in the displayed order.
fn order(view: &MapView) -> Vec<String> {
    let text = utf8(rendered("text", &RenderOptions::default(), &Output::Map(view.clone())).out);
    text.lines().filter_map(|l| Some(l.strip_prefix("@[")?.split_once(']')?.0.to_string())).collect()
}

#[test]
fn order_by_number() {
    let view = map("@", MapViewKind::Map, [("a", 3), ("b", -7), ("c", 1)].map(|(k, v)| (s(k), Value::Int(v))).into());
    assert_eq!(order(&view), ["b", "c", "a"]);
    let view = map("@", MapViewKind::Map, [("b", 1), ("c", u64::MAX), ("a", 1)].map(|(k, v)| (s(k), Value::Uint(v))).into());
    assert_eq!(order(&view), ["a", "b", "c"]);
}

#[test]
fn order_by_average_and_samples() {
    let view = map("@", MapViewKind::Stats, vec![(s("a"), Value::Stats(stats(1, 9))), (s("b"), Value::Stats(stats(100, 100)))]);
    assert_eq!(order(&view), ["b", "a"]);
    let view = map("@", MapViewKind::Stats, vec![(s("a"), Value::Avg(stats(1, 9))), (s("b"), Value::Avg(stats(1, -9)))]);
    assert_eq!(order(&view), ["b", "a"]);
    let view =
        map("@", MapViewKind::Hist, vec![(s("a"), Value::Hist(log2(0, &[1, 2, 3]).into())), (s("b"), Value::Hist(log2(0, &[900]).into()))]);
    assert_eq!(order(&view), ["b", "a"]);
}

#[test]
fn order_by_key() {
    let view = map("@", MapViewKind::Map, [10, -2, 9].map(|k| (Value::Int(k), s("x"))).into());
    assert_eq!(order(&view), ["-2", "9", "10"]);
    let view = map("@", MapViewKind::Map, ["b", "ab", "B", "a"].map(|k| (s(k), s("x"))).into());
    assert_eq!(order(&view), ["B", "a", "ab", "b"]);
    let key = |a: i64, b: &str| (Value::Tuple(vec![Value::Int(a), s(b)]), s("x"));
    assert_eq!(order(&map("@", MapViewKind::Map, vec![key(2, "a"), key(1, "z"), key(1, "b")])), ["1, b", "1, z", "2, a"]);
}

#[test]
fn top_and_div() {
    let entries: Vec<_> = [("a", 1500), ("b", -2500), ("c", 3999)].map(|(k, v)| (s(k), Value::Int(v))).into();
    let view = MapView {
        show: ShowOptions { top: Some(2), div: Some(1000), ..ShowOptions::default() },
        ..map("@", MapViewKind::Map, entries.clone())
    };
    shows(Output::Map(view), "@[a]: 1\n@[c]: 3\n", "{\"type\": \"map\", \"data\": {\"@\": {\"a\": 1, \"c\": 3}}}\n");
    let view = MapView {
        show: ShowOptions { top: Some(0), div: Some(1000), ..ShowOptions::default() },
        ..map("@", MapViewKind::Map, entries.clone())
    };
    assert_eq!(utf8(rendered("text", &RenderOptions::default(), &Output::Map(view)).out), "@[b]: -2\n@[a]: 1\n@[c]: 3\n");
    let view =
        MapView { show: ShowOptions { top: Some(9), div: Some(0), ..ShowOptions::default() }, ..map("@", MapViewKind::Map, entries) };
    assert_eq!(order(&view), ["b", "a", "c"]);
    // Statistics are not divided; averages are.
    let both = vec![(s("a"), Value::Stats(stats(2, 40))), (s("b"), Value::Stats(stats(2, 60)))];
    let view =
        MapView { show: ShowOptions { top: Some(1), div: Some(10), ..ShowOptions::default() }, ..map("@", MapViewKind::Stats, both) };
    assert_eq!(order(&view), ["b"]);
    let view = MapView {
        show: ShowOptions { div: Some(10), ..ShowOptions::default() },
        ..map("@", MapViewKind::Stats, vec![(Value::None, Value::Avg(stats(2, 90)))])
    };
    shows(Output::Map(view), "@: 4\n", "{\"type\": \"stats\", \"data\": {\"@\": 4}}\n");
}

#[test]
fn texts() {
    let text = |kind, data: &str, newline| Output::Text { kind, data: data.into(), newline };
    shows(text("printf", "hi\n", false), "hi\n", "{\"type\": \"printf\", \"data\": \"hi\\n\"}\n");
    shows(text("time", "10:11:12\n", false), "10:11:12\n", "{\"type\": \"time\", \"data\": \"10:11:12\\n\"}\n");
    shows(text("join", "a b", true), "a b\n", "{\"type\": \"join\", \"data\": \"a b\"}\n");
    shows(text("cat", "x", false), "x", "{\"type\": \"cat\", \"data\": \"x\"}\n");
    shows(text("syscall", "out\n", true), "out\n\n", "{\"type\": \"syscall\", \"data\": \"out\\n\"}\n");
    shows(Output::End, "\n\n", "");
}

/// Checks what text mode writes on standard error, and JSON on the output.
#[track_caller]
fn says(output: &Output, err: &str, json: &str) {
    let t = rendered("text", &RenderOptions::default(), output);
    assert_eq!((utf8(t.out).as_str(), utf8(t.err).as_str()), ("", err));
    let j = rendered("json", &RenderOptions::default(), output);
    assert_eq!((utf8(j.out).as_str(), utf8(j.err).as_str()), (json, ""));
}

fn problem(kind: ProblemKind, msg: &str, helper: Option<(&str, i64)>) -> Output {
    Output::Problem {
        kind,
        msg: msg.into(),
        helper: helper.map(|(name, code)| (name.into(), code)),
        pos: Pos { file: "stdin".into(), line: 1, col: 10, ..Pos::default() },
        line: "\tbegin { @a[1] = 2 }".into(),
        counts: Vec::new(),
    }
}

#[test]
fn notices() {
    says(
        &Output::Attached { probes: 1 },
        "Attached 1 probe\n",
        "{\"type\": \"attached_probes\", \"count\": 1, \"data\": {\"probes\": 1}}\n",
    );
    says(
        &Output::Attached { probes: 3 },
        "Attached 3 probes\n",
        "{\"type\": \"attached_probes\", \"count\": 3, \"data\": {\"probes\": 3}}\n",
    );
    says(&Output::Lost { events: 9 }, "Lost 9 events\n", "{\"type\": \"lost_events\", \"count\": 9, \"data\": {\"events\": 9}}\n");
}

#[test]
fn counts() {
    let of = |probe: &str, sent, dropped, missed| Counts { probe: probe.into(), sent, dropped, missed, ..Counts::default() };
    let two = Output::Counts(vec![of("begin", 3, 0, 0), of("uprobe:\"x\":f", 9, 2, 0), of("end", 5, 4, 1)]);
    let zeros = "\"refused\": 0, \"unstored\": 0, \"cut\": 0, \"unkept\": 0, \"thinned\": 0, \"sampled_out\": 0, \"detached\": 0}";
    says(
        &two,
        "WARNING: uprobe:\"x\":f: events found no space in the ring buffer (raise perf_rb_pages), of 9: 2\n\
         WARNING: end: events found no space in the ring buffer (raise perf_rb_pages), of 5: 4; \
         runs skipped, because a probe was running on that CPU: 1\n\
         WARNING: Total lost event count: 6\n",
        &format!(
            "{{\"type\": \"probe_counts\", \"data\": [{{\"probe\": \"begin\", \"sent\": 3, \"dropped\": 0, \"missed\": 0, {zeros},\
             {{\"probe\": \"uprobe:\\\"x\\\":f\", \"sent\": 9, \"dropped\": 2, \"missed\": 0, {zeros},\
             {{\"probe\": \"end\", \"sent\": 5, \"dropped\": 4, \"missed\": 1, {zeros}]}}\n"
        ),
    );
    let options = RenderOptions { warnings: false, ..RenderOptions::default() };
    assert_eq!(rendered("text", &options, &two), Rendered::default());
    let whole = Output::Counts(vec![of("begin", 3, 0, 0)]);
    assert_eq!(rendered("text", &RenderOptions::default(), &whole), Rendered::default());
}

#[test]
fn problems() {
    says(
        &problem(ProblemKind::Helper, "Bad address", Some(("probe_read_user", -14))),
        "stdin:1:10: WARNING: Bad address\nAdditional Info - helper: probe_read_user, retcode: -14\n    begin { @a[1] = 2 }\n            ~\n",
        "{\"type\": \"helper_error\", \"msg\": \"Bad address\", \"helper\": \"probe_read_user\", \"retcode\": -14, \
         \"filename\": \"stdin\", \"line\": 1, \"col\": 10}\n",
    );
    says(
        &problem(ProblemKind::Errorf, "bad \"thing\"\n", None),
        "stdin:1:10: ERROR: bad \"thing\"\n",
        "{\"type\": \"errorf\", \"msg\": \"bad \\\"thing\\\"\\n\", \"filename\": \"stdin\", \"line\": 1, \"col\": 10}\n",
    );
    says(
        &problem(ProblemKind::Warnf, "careful", None),
        "stdin:1:10: WARNING: careful\n",
        "{\"type\": \"warnf\", \"msg\": \"careful\", \"filename\": \"stdin\", \"line\": 1, \"col\": 10}\n",
    );
}

#[test]
fn warnings_can_be_silenced() {
    let options = RenderOptions { warnings: false, ..RenderOptions::default() };
    for format in ["text", "json"] {
        for kind in [ProblemKind::Warnf, ProblemKind::Helper] {
            assert_eq!(rendered(format, &options, &problem(kind, "m", None)), Rendered::default());
        }
        let of_run = rendered(format, &options, &problem(ProblemKind::Runtime, "m", None));
        assert_eq!(of_run == Rendered::default(), format == "text");
        assert_ne!(rendered(format, &options, &problem(ProblemKind::Errorf, "m", None)), Rendered::default());
    }
}

#[test]
fn escapes_control_characters_for_terminals() {
    let text = || Value::Str { bytes: b"\x1b[31m\n::x".into(), cut: false };
    let frame = Frame { addr: 1, symbol: Some("f\x1b\n".into()), ..Frame::default() };
    let stack = Value::Stack(Stack { mode: StackMode::Bpftrace, kernel: false, frames: [frame].into_iter().collect() });
    let entries = vec![(Value::Tuple(vec![text(), stack]), text())];
    let map = Output::Map(MapView {
        name: "@".into(),
        kind: MapViewKind::Map,
        measures: false,
        keyed: true,
        set: true,
        entries,
        show: ShowOptions::default(),
        weights: None,
    });
    let at_terminal = RenderOptions { escape_output: true, ..RenderOptions::default() };
    let shown = |options: &RenderOptions, output: &Output| String::from_utf8(rendered("text", options, output).out).unwrap();
    assert_eq!(shown(&at_terminal, &Output::Value(text())), "\\x1b[31m\\n::x\n");
    assert_eq!(shown(&at_terminal, &map), "@[\\x1b[31m\\n::x, \n        f\\x1b\\n+0\n]: \\x1b[31m\\n::x\n");
    assert_eq!(shown(&RenderOptions::default(), &Output::Value(text())), "\x1b[31m\n::x\n");
}

#[test]
fn messages_of_a_page_are_bounded() {
    let page = |outputs: &[Output]| {
        let mut page = (find("html").unwrap().make)(&RenderOptions::default());
        outputs.iter().for_each(|output| page.render(output, &mut Rendered::default()));
        let mut to = Vec::new();
        page.finish(&mut to).unwrap();
        let text = utf8(to);
        let data = text.split_once("id=\"data\">").and_then(|(_, rest)| rest.split_once("</script>")).unwrap().0;
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        (
            data["losses"].as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_string()).collect::<Vec<_>>(),
            data["more_losses"].clone(),
        )
    };
    let lost = [Output::Lost { events: 5 }, Output::Lost { events: 7 }];
    assert_eq!(page(&lost), (vec!["Lost 12 events".to_string()], 0.into()));
    let [one, other] = lost;
    let counts = Output::Counts(vec![Counts { probe: "end".into(), sent: 3, dropped: 12, ..Counts::default() }]);
    let (losses, _) = page(&[one, other, counts]);
    assert!(losses.iter().all(|line| !line.starts_with("Lost")) && losses.iter().any(|line| line.contains("12")), "{losses:?}");
    let (losses, more) = page(&vec![problem(ProblemKind::Warnf, "hot", None); 1500]);
    assert_eq!((losses.len(), more), (1000, 500.into()));
}

/// Stacks of different addresses and the same functions.
#[test]
fn compared_stacks_with_equal_names_are_summed() {
    let of = |addr| stack(StackMode::Bpftrace, true, vec![frame(addr, "inner", addr), frame(9, "outer", 9)]);
    let entry = |addr, n| (of(addr), Value::Uint(n));
    let (old, new) = (vec![entry(1, 2), entry(2, 3), entry(3, 4)], vec![entry(4, 10), entry(5, 20)]);
    let outputs = [Output::Map(map("@new", MapViewKind::Map, new)), Output::Map(map("@old", MapViewKind::Map, old))];
    let options = RenderOptions { base: Some(Arc::new(super::Base::Map("@old".into()))), ..RenderOptions::default() };
    let document = |format: &str, times: usize| {
        let mut renderer = (find(format).unwrap().make)(&options);
        outputs.iter().for_each(|output| renderer.render(output, &mut Rendered::default()));
        let mut to = Vec::new();
        for _ in 0..times {
            to.clear();
            renderer.finish(&mut to).unwrap();
            renderer.another();
        }
        utf8(to)
    };
    let page = document("html", 1);
    let data = page.split_once("id=\"data\">").and_then(|(_, rest)| rest.split_once("</script>")).unwrap().0;
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    let stacks = data["maps"].as_array().unwrap().iter().find(|map| map["name"] == "@new").unwrap()["graph"]["stacks"].clone();
    let sum = |at: usize| stacks.as_array().unwrap().iter().map(|stack| stack[at].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum(1), sum(2)), (30, 9), "{stacks}");
    // (30 - 9) / 30
    assert!(document("flamegraph", 1).contains("inner (30 samples, 100.00%; +70.00%)"));
}

/// Every format says which values are estimates.
#[test]
fn estimates() {
    let weights = Some(Weights { passed: 10, runs: 75, detached_ms: 0 });
    let estimated = |view: MapView| Output::Map(MapView { weights, ..view });
    let sampled = "\"sampled\": {\"passed\": 10, \"runs\": 75, \"detached_ms\": 0, \"factor\": 7.500}}\n";
    let count = vec![(Value::None, Value::Uint(75))];
    shows(
        estimated(map("@n", MapViewKind::Map, count)),
        "@n: ~75 (1 in 7.5)\n",
        &format!("{{\"type\": \"map\", \"data\": {{\"@n\": 75}}, {sampled}"),
    );
    let hist = vec![(Value::None, Value::Hist(log2(0, &[2, 3]).into()))];
    shows(
        estimated(map("@h", MapViewKind::Hist, hist)),
        &format!("@h: ~ (1 in 7.5)\n[2, 4)                 2 |{}|\n\n", "@".repeat(52)),
        &format!("{{\"type\": \"hist\", \"data\": {{\"@h\": [{{\"min\": 2, \"max\": 3, \"count\": 2}}]}}, {sampled}"),
    );
    let keyed = || map("@k", MapViewKind::Map, vec![(s("a"), Value::Uint(8)), (s("bc"), Value::Uint(67))]);
    let text = |options: &RenderOptions| utf8(rendered("text", options, &estimated(keyed())).out);
    assert_eq!(text(&RenderOptions::default()), "@k[a]: ~8 (1 in 7.5)\n@k[bc]: ~67 (1 in 7.5)\n");
    assert_eq!(text(&RenderOptions { tables: true, ..RenderOptions::default() }), "@k: ~ (1 in 7.5)\na    8\nbc  67\n\n");

    let frame = Frame { symbol: Some("f".into()), ..Frame::default() };
    let stack = Value::Stack(Stack { mode: StackMode::Bpftrace, kernel: false, frames: [frame].into_iter().collect() });
    let stacks = || map("@s", MapViewKind::Map, vec![(stack.clone(), Value::Uint(75))]);
    let text_of = |format: &Format, view: MapView| {
        let (mut renderer, mut to) = ((format.make)(&RenderOptions::default()), Rendered::default());
        renderer.render(&Output::Map(view), &mut to);
        if format.document {
            renderer.finish(&mut to.out).unwrap();
        }
        let mut all = Vec::new();
        if flate2::read::GzDecoder::new(to.out.as_slice()).read_to_end(&mut all).is_err() {
            all = to.out;
        }
        all.extend(to.err);
        String::from_utf8_lossy(&all).into_owned()
    };
    // the state of a run is not made of views
    for format in FORMATS.iter().filter(|format| !format.state) {
        let (exact, estimate) = (text_of(format, stacks()), text_of(format, MapView { weights, ..stacks() }));
        let says = |text: &str| ["(1 in 7.5)", "sampled,@s", "\"sampled\": {"].iter().any(|mark| text.contains(mark));
        assert!(!says(&exact) && says(&estimate), "{}: {estimate}", format.name);
    }
}
