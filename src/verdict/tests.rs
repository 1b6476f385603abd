use super::*;

fn place(line: u32, column: u32, end_column: u32) -> SourceLocation {
    let text = "kprobe:vfs_read { print(args.fiel) } // <&> \u{65e5}".into();
    SourceLocation { file: "./sub dir/a%b.bt".into(), line, column, end_line: line, end_column, text }
}

fn outcome(subject: &str, against: &str, state: State, findings: Vec<Finding>) -> Outcome {
    let facts = vec![("kprobe:vfs_read".to_string(), "fentry".to_string())];
    Outcome { subject: subject.into(), against: against.into(), state, findings, facts, seconds: 0.0125 }
}

fn finding(level: Level, rule: &'static str, place: Option<SourceLocation>) -> Finding {
    let message = "no field `fiel`: 100% <sure> & \"quoted\"\u{1}\nsecond".into();
    Finding {
        rule,
        level,
        message,
        location: place.clone(),
        related: place.map(|p| (p, "first here".to_string())).into_iter().collect(),
        help: Some("did you mean `file`?".into()),
    }
}

fn report() -> Report {
    let bad = || finding(Level::Error, "unknown-field", Some(place(3, 30, 34)));
    let warn = || finding(Level::Warning, "unused-map", Some(place(1, 1, 7)));
    Report {
        name: "check",
        outcomes: vec![
            outcome("a.bt", "6.1.0", State::Checked, vec![bad(), warn()]),
            outcome("a.bt", "6.12.0", State::Checked, vec![bad()]),
            outcome("b.bt", "6.1.0", State::Checked, vec![warn()]),
            outcome("b.bt", "6.12.0", State::Skipped("wants <= 6.6".into()), Vec::new()),
            outcome("c.bt", "6.1.0", State::Unknown("cannot read c.bt".into()), vec![finding(Level::Note, "no-place", None)]),
            outcome("c.bt", "6.12.0", State::Checked, Vec::new()),
        ],
        deny_warnings: false,
    }
}

fn said(format: &str, report: &Report, style: &Style) -> String {
    let row = find(format).unwrap();
    (row.render)(report, style)
}

#[test]
fn statuses() {
    let all = report();
    assert_eq!(all.status(), ENVIRONMENT);
    let of = |n: usize, deny_warnings| Report { outcomes: vec![all.outcomes[n].clone()], deny_warnings, ..all.clone() };
    assert_eq!((of(0, false).status(), of(2, false).status(), of(2, true).status()), (FINDINGS, SATISFIED, FINDINGS));
    assert_eq!((of(3, true).status(), of(5, true).status()), (SATISFIED, SATISFIED));
}

#[test]
fn text_has_a_table_and_the_findings() {
    let text = said("text", &report(), &Style::default());
    let head: Vec<&str> = text.lines().take(7).collect();
    assert_eq!(
        head,
        [
            "      6.1.0  6.12.0",
            "a.bt  FAIL   FAIL",
            "b.bt  warn   skip",
            "c.bt  ?      ok",
            "",
            "skipped: b.bt (6.12.0): wants <= 6.6",
            "not checked: c.bt (6.1.0): cannot read c.bt",
        ]
    );
    // by place; a finding on both kernels is reported once, with both
    let of_a = "warning[unused-map] ./sub dir/a%b.bt:1:1: no field";
    let both = "second (6.1.0, 6.12.0)\n    kprobe:vfs_read { print(args.fiel) } // <&> 日\n                                 ^~~~\n\
                note: ./sub dir/a%b.bt:3:30: first here\n";
    assert!(text.find(of_a) < text.find(both) && text.contains(both), "{text}");
    assert_eq!(text.matches("error[unknown-field]").count(), 1, "{text}");
    assert!(text.ends_with("check: 1 ok, 1 with warnings, 2 FAILED, 1 skipped, 1 not checked (3 × 2)\n"), "{text}");
    assert!(!text.contains('\u{1}') && !text.contains("fentry"), "{text}");
    assert!(said("text", &report(), &Style { verbose: true, ..Style::default() }).contains("    kprobe:vfs_read  fentry\n"));
    let colored = said("text", &report(), &Style { color: true, ..Style::default() });
    assert!(colored.contains("a.bt  \x1b[1m\x1b[31mFAIL\x1b[0m   \x1b[1m\x1b[31mFAIL\x1b[0m\n"), "{colored}");
    let well = Report { outcomes: vec![report().outcomes[5].clone()], ..report() };
    assert_eq!(said("text", &well, &Style { quiet: true, ..Style::default() }), "");
    assert_eq!(said("text", &well, &Style::default()), "check: 1 ok\n");
}

#[test]
fn json_is_one_object() {
    let all: serde_json::Value = serde_json::from_str(&said("json", &report(), &Style::default())).unwrap();
    let at = |path: &str| all.pointer(path).cloned().unwrap_or_default();
    assert_eq!((at("/version"), at("/status"), at("/name")), (1.into(), 3.into(), "check".into()));
    let verdicts: Vec<_> = (0..6).map(|i| at(&format!("/outcomes/{i}/verdict"))).collect();
    assert_eq!(verdicts, ["failed", "failed", "warning", "skipped", "unknown", "ok"]);
    assert_eq!((at("/outcomes/3/reason"), at("/outcomes/0/reason")), ("wants <= 6.6".into(), serde_json::Value::Null));
    assert_eq!((at("/outcomes/0/findings/0/rule"), at("/outcomes/0/findings/0/level")), ("unknown-field".into(), "error".into()));
    assert_eq!((at("/outcomes/0/findings/0/place/end_column"), at("/outcomes/0/facts/0/value")), (34.into(), "fentry".into()));
    assert!(at("/outcomes/0/findings/0/message").as_str().is_some_and(|m| m.contains("\u{1}\nsecond")));
}

/// Requirements of the two schemas in use: attributes in any order, and children in this order.
#[test]
fn junit_follows_its_schemas() {
    let style = Style { started_ns: 1_700_000_000_012_345_678, host: "box".into(), ..Style::default() };
    let text = said("junit", &report(), &style);
    let suites: Vec<&str> = text.split("<testsuite ").skip(1).collect();
    assert_eq!(suites.len(), 2, "{text}");
    let head = "name=\"check 6.1.0\" package=\"rbt\" id=\"0\" timestamp=\"2023-11-14T22:13:20\" hostname=\"box\" tests=\"3\" \
                failures=\"1\" errors=\"1\" skipped=\"0\" time=\"0.037500\">";
    assert!(suites[0].starts_with(head), "{text}");
    assert!(suites[1].contains("tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\""), "{text}");
    for suite in &suites {
        let order = ["<properties>", "<property ", "</properties>", "<testcase ", "<system-out>", "<system-err>", "</testsuite>"];
        let places: Vec<_> = order.iter().map(|tag| suite.find(tag)).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{suite}");
        assert_eq!(suite.matches("<testcase name=\"").count(), 3);
        assert_eq!(suite.matches("classname=\"rbt.check_6_1").count(), 3);
    }
    assert_eq!((text.matches("<failure message=\"").count(), text.matches("<error message=\"").count()), (2, 1));
    assert!(
        text.contains("<skipped message=\"wants &lt;= 6.6\"/>")
            && text.contains("100% &lt;sure&gt; &amp; &#34;quoted&#34;\u{fffd}&#10;second")
    );
    assert!(!text.contains('\u{1}') && text.starts_with("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"));
    // a finding that does not fail is still reported
    assert!(suites[0].split("<system-out>").nth(1).is_some_and(|t| t.starts_with("warning[unused-map]")), "{text}");
}

/// Requirements of the schema of SARIF 2.1.0, and its limits.
#[test]
fn sarif_follows_its_schema() {
    let all: serde_json::Value = serde_json::from_str(&said("sarif", &report(), &Style::default())).unwrap();
    let at = |path: &str| all.pointer(path).cloned().unwrap_or_default();
    assert_eq!((at("/version"), at("/runs/0/tool/driver/name")), ("2.1.0".into(), "rbt".into()));
    assert_eq!((at("/runs/0/columnKind"), at("/runs/0/invocations/0/executionSuccessful")), ("unicodeCodePoints".into(), false.into()));
    let results = at("/runs/0/results");
    let results = results.as_array().unwrap();
    assert_eq!(results.len(), 4, "{results:?}");
    for result in results {
        let rule = result.pointer("/ruleIndex").and_then(serde_json::Value::as_u64).unwrap();
        assert_eq!(result["ruleId"], at(&format!("/runs/0/tool/driver/rules/{rule}/id")));
        assert!(["none", "note", "warning", "error"].contains(&result["level"].as_str().unwrap()));
        assert!(result.pointer("/message/text").is_some_and(|t| t.is_string()));
        let Some(at) = result.pointer("/locations/0/physicalLocation") else { continue };
        assert_eq!(at["artifactLocation"]["uri"], "sub%20dir/a%25b.bt");
        for bound in ["startLine", "startColumn", "endLine", "endColumn"] {
            assert!(at["region"][bound].as_u64().is_some_and(|n| n >= 1), "{at}");
        }
    }
    assert_eq!(results[1]["properties"]["against"], serde_json::json!(["6.1.0", "6.12.0"]));
    let notes = at("/runs/0/invocations/0/toolExecutionNotifications");
    assert!(notes.as_array().is_some_and(|n| n.len() == 2 && n.iter().all(|n| n["message"]["text"].is_string())), "{notes}");
}

#[test]
fn commands_are_escaped() {
    let text = said("github", &report(), &Style::default());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 6, "{text}");
    assert_eq!(lines[0], "::error title=not checked::c.bt (6.1.0): cannot read c.bt");
    let error = "::error file=sub dir/a%25b.bt,line=3,endLine=3,col=30,endColumn=34,title=unknown-field::no field `fiel`: 100%25 <sure> & \
                 \"quoted\"\u{FFFD}%0Asecond (6.1.0, 6.12.0)%0A./sub dir/a%25b.bt:3: first here%0Ahelp: did you mean `file`?";
    assert_eq!(lines[2], error);
    assert!(
        lines[1].starts_with("::warning file=")
            && lines[4].starts_with("::notice title=no-place::c.bt: ")
            && lines[5].starts_with("check: ")
    );
}

#[test]
fn json_escapes_what_deceives() {
    assert_eq!(super::pretty(&["a\u{202e}b\u{9b}\x7f\n"]), "[\n  \"a\\u202eb\\u009b\\u007f\\n\"\n]\n");
}
