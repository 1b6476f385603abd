//! Merges damaged or forged states of runs. Each must yield a sum or a message.

use crate::change;
use rbt::merge::{Document, Sum, read};
use rbt::output::Output;
use rbt::render::{FORMATS, RenderOptions, Rendered};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Merges `count` changed documents, each with an unchanged one.
pub fn run(seed: u64, count: u64) -> Result<(), String> {
    let texts = documents();
    let mut merged = 0;
    for number in 0..count {
        let changed = change::text(&texts, seed, number);
        match catch_unwind(AssertUnwindSafe(|| merge(&[&texts[0], &changed], number % 2 == 0))) {
            Ok(both) => merged += u64::from(both),
            Err(_) => return Err(format!("state {number} of seed {seed} panics\n{changed}")),
        }
    }
    // Changed documents that can still be merged must be tested, too.
    if merged * 50 > count { Ok(()) } else { Err(format!("only {merged} of {count} were merged")) }
}

/// Merges the documents, and returns whether all could be added.
fn merge(texts: &[&str], by_host: bool) -> bool {
    let mut sum = Sum::new(by_host);
    let mut added = 0;
    for text in texts {
        let mut each = |found| {
            if let Document::State(state, place, _) = found {
                added += usize::from(sum.add(*state, &place).is_ok());
            }
        };
        assert!(read("f", text.as_bytes(), &mut each).is_ok());
    }
    let shown: Vec<Output> = sum.shown(None).into_iter().flatten().map(Output::Map).collect();
    for format in FORMATS {
        let mut renderer = (format.make)(&RenderOptions::default());
        let mut to = Rendered::default();
        shown.iter().for_each(|output| renderer.render(output, &mut to));
        renderer.render(&Output::Counts(sum.counts()), &mut to);
    }
    sum.last(&[], 0);
    sum.maps();
    if let (Some(state), _) = sum.state() {
        assert!(serde_json::to_string(&state).is_ok());
    }
    added > 1
}

/// Two documents of a script with each aggregation, from two hosts.
fn documents() -> Vec<String> {
    let agg = |function: &str, params: &str, size: u32| {
        format!(r#"{{"Agg":{{"function":"{function}","signed":true,"params":{params},"size":{size}}}}}"#)
    };
    let maps = [
        ("count", "[]", 8, r#"{"count":3}"#),
        ("sum", "[]", 8, r#"{"sum":-5}"#),
        ("min", "[]", 16, r#"{"min":-7}"#),
        ("max", "[]", 16, r#"{"max":9}"#),
        ("avg", "[]", 16, r#"{"count":2,"sum":7}"#),
        ("stats", "[]", 16, r#"{"count":2,"sum":-7}"#),
        ("hist", "[2]", 2024, r#"{"buckets":{"0":1,"17":5}}"#),
        ("lhist", "[0,10,2]", 56, r#"{"buckets":{"1":1,"6":5}}"#),
        ("percentiles", "[]", 15640, r#"{"sum":9,"min":-100,"max":109,"buckets":{"57":1,"1033":1}}"#),
        ("tseries", "[1000000000,5,1]", 120, r#"{"intervals":{"1700000000":{"value":7,"count":2},"1700000001":{"value":-1,"count":1}}}"#),
        ("tseries", "[1000000000,5,0]", 80, r#"{"intervals":{"1700000000":{"value":7,"at_ns":1700000000000000005}}}"#),
        ("tseries", "[1000000000,5,4]", 80, r#"{"intervals":{"1700000000":{"value":7},"1700000003":{"value":1}}}"#),
    ];
    let keyed = r#""key":{"Tuple":[{"Str":16},{"Int":{"bytes":8,"signed":false}}]}"#;
    let key = r#"{"tuple":[{"str":{"text":"a"}},{"stack":{"mode":"Bpftrace","kernel":true,"frames":[{"addr":1,"symbol":"f","offset":3},{"addr":4096,"offset":0,"module":"/bin/x","within":16}]}}]}"#;
    let map = |(i, (function, params, size, counted)): (usize, &(&str, &str, u32, &str))| {
        let value = agg(function, params, *size);
        let (ty, key) = if i % 2 == 0 { (keyed, key) } else { (r#""key":null"#, "\"none\"") };
        format!(
            r#"{{"name":"@{i}",{ty},"value":{value},"set":true,"emptied":1,"cleared":false,"entries":[{{"key":{key},"counted":{counted}}}]}}"#
        )
    };
    let maps: Vec<String> = maps.iter().enumerate().map(map).collect();
    let document = |host: &str| {
        format!(
            r#"{{"rbt_state":1,"rbt":"0","script":{{"name":"s","sha256":"00"}},"host":"{host}","kernel":"6","machine":"m","boot_ns":1,"start_ns":1,"end_ns":1,"probes":[{{"probe":"p","sent":1,"dropped":18446744073709551615}}],"not_attached":[],"printed":[{{"map":"@0","show":{{"top":1,"div":3,"by":"count","unit":"duration"}}}}],"prints_maps":true,"maps":[{}]}}"#,
            maps.join(",")
        )
    };
    vec![document("a"), document("b")]
}
