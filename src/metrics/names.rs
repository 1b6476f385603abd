//! Names of metrics and labels, from the text of a script.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::diag::{Diagnostic, Diagnostics, Span, nearest};

/// A unit of a script's numbers, and its base unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The last word of a map's name, and the value of `unit=`.
    words: &'static [&'static str],
    /// The base unit, as it appears at the end of a metric's name.
    pub base: &'static str,
    /// The base unit is ten to this power times the unit.
    pub power: u32,
}

const UNITS: &[Unit] = &[
    Unit { words: &["ns", "nsecs", "nanoseconds"], base: "seconds", power: 9 },
    Unit { words: &["us", "usecs", "microseconds"], base: "seconds", power: 6 },
    Unit { words: &["ms", "msecs", "milliseconds"], base: "seconds", power: 3 },
    Unit { words: &["s", "secs", "seconds"], base: "seconds", power: 0 },
    Unit { words: &["bytes"], base: "bytes", power: 0 },
];

/// The names and units of a script's maps.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MetricNames {
    /// Labels by map, in the order of the key's parts.
    labels: BTreeMap<String, Vec<String>>,
    /// From comments: `// metric: @m name=… unit=… labels=a,b help="…"`
    comments: BTreeMap<String, MetricComment>,
    /// Maps that are not exported.
    #[serde(default)]
    hidden: BTreeSet<String>,
    /// Maps that count events.
    #[serde(default)]
    counts: BTreeSet<String>,
}

/// A map of a script.
#[derive(Clone, Debug)]
pub struct ScriptMap {
    /// With its `@`.
    pub name: String,
    /// It counts events, so its values have no unit.
    pub counts_events: bool,
    /// The script uses it only internally.
    pub is_internal: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct MetricComment {
    name: Option<String>,
    help: Option<String>,
    /// The unit as written.
    unit: Option<String>,
    labels: Vec<String>,
}

/// The name of a metric, its help and its unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name without the suffix of its type.
    pub name: String,
    /// From a comment.
    pub help: Option<String>,
    /// None: the values have no known unit.
    pub unit: Option<Unit>,
}

impl MetricNames {
    /// From the texts of a script with these maps. Internal maps are hidden unless a comment is about them.
    ///
    /// # Errors
    /// A comment is wrong.
    pub fn of<'a>(texts: impl Iterator<Item = &'a str>, maps: &[ScriptMap]) -> Result<Self, Diagnostics> {
        let counts = maps.iter().filter(|map| map.counts_events).map(|map| map.name.clone()).collect();
        let mut names = Self { counts, ..Self::default() };
        let mut wrong = Vec::new();
        let mut places = BTreeMap::new();
        for (source, text) in texts.enumerate() {
            names.comments(text, u16::try_from(source).unwrap_or_default(), maps, &mut places, &mut wrong);
            names.keys(&without_comments(text));
        }
        wrong.extend(places.iter().filter_map(|(map, place)| names.wrong_unit(map, *place)));
        let internal = maps.iter().filter(|map| map.is_internal && !names.comments.contains_key(&map.name));
        names.hidden = internal.map(|map| map.name.clone()).collect();
        if wrong.is_empty() { Ok(names) } else { Err(Diagnostics(wrong)) }
    }

    /// Is the map used only internally?
    pub fn is_hidden(&self, map: &str) -> bool {
        self.hidden.contains(map)
    }

    /// The metric of a map.
    pub fn metric(&self, map: &str) -> Metric {
        let counts = self.counts.contains(map);
        let given = self.comments.get(map);
        let mut words: Vec<String> = snake(map.trim_start_matches('@')).split('_').filter(|w| !w.is_empty()).map(String::from).collect();
        // a letter alone, such as `@s`, can mean anything
        let is_clear = words.len() > 1 || words.iter().all(|word| word.len() > 1);
        let is_type = |word: &str| RESERVED.contains(&word);
        let ending = words.last().cloned();
        // a rate, such as `@bytes_per_s`, is not in the unit of its last word
        let is_rate = |last: usize| last.checked_sub(1).and_then(|before| words.get(before)).is_some_and(|word| word == "per");
        let last = words.iter().rposition(|word| !is_type(word)).filter(|last| is_clear && !is_rate(*last));
        let by_name = last.and_then(|last| unit(words.get(last)?));
        if let (Some(last), Some(_)) = (last, by_name) {
            words.remove(last);
        }
        let unit = given.and_then(|given| self::unit(given.unit.as_deref()?)).or(by_name).filter(|_| !counts);
        let only = words.last().or(ending.as_ref()).cloned();
        // words that promtool interprets as types, and as units
        words.retain(|word| !is_type(word));
        words.iter_mut().filter(|word| is_foreign_unit(word)).for_each(|word| word.insert_str(0, "map"));
        if words.is_empty() && unit.is_none() {
            words.push(format!("map{}", only.unwrap_or_default()));
        }
        let mut name = match given.and_then(|given| given.name.clone()) {
            Some(name) => without_suffix(&snake(&name)).to_string(),
            None => ["rbt".to_string()].into_iter().chain(words).collect::<Vec<_>>().join("_"),
        };
        if let Some(unit) = unit.filter(|unit| last_word(&name) != unit.base) {
            name = format!("{name}_{}", unit.base);
        }
        Metric { name, help: given.and_then(|given| given.help.clone()), unit }
    }

    /// Names of this many labels, all different.
    pub fn labels(&self, map: &str, parts: usize) -> Vec<String> {
        let given = self.comments.get(map).map(|given| given.labels.as_slice()).unwrap_or_default();
        let found = self.labels.get(map).map(Vec::as_slice).unwrap_or_default();
        let mut all: Vec<String> = Vec::new();
        for i in 0..parts {
            let named = given.get(i).or_else(|| found.get(i).filter(|_| found.len() == parts)).map(|name| snake(name));
            let name = named.filter(|name| label_problem(name).is_none());
            let name = name.unwrap_or_else(|| format!("key{}", i + 1));
            let mut different = name;
            while all.contains(&different) {
                different = format!("{different}_{}", i + 1);
            }
            all.push(different);
        }
        all
    }

    /// The error at this place if the given name of a map's metric ends in another unit than the values have.
    fn wrong_unit(&self, map: &str, place: Span) -> Option<Diagnostic> {
        let given = self.comments.get(map)?.name.as_deref().map(snake)?;
        let name = without_suffix(&given);
        let base = self.metric(map).unit?.base;
        let word = last_word(name);
        let is_other_unit = word != base && (unit(word).is_some() || is_foreign_unit(word) || BASE_UNITS.contains(&word));
        let rest = name.strip_suffix(word).map(|rest| rest.trim_end_matches('_')).filter(|rest| !rest.is_empty()).unwrap_or("time");
        is_other_unit.then(|| {
            Diagnostic::error("bad-metric", place, format!("the name ends in `{word}`, but the values are exported in {base}"))
                .help(format!("write name={rest}_{base}"))
        })
    }

    /// Stores the properties that comments set, and the places of the names.
    fn comments(&mut self, text: &str, source: u16, maps: &[ScriptMap], places: &mut BTreeMap<String, Span>, wrong: &mut Vec<Diagnostic>) {
        let comment = Regex::new(r"//[ \t]*metric:[ \t]*([^\s=]+)([^\n]*)");
        let (Ok(comment), Ok(word)) = (comment, Regex::new(r#"([^\s=]+)(?:=(?:"((?:[^"\\]|\\.)*)"|(\S*)))?"#)) else { return };
        let span = |start: usize, end: usize| Span { source, start: start as u32, end: end as u32, ..Span::default() };
        for found in comment.captures_iter(text) {
            let (Some(name), Some(rest)) = (found.get(1), found.get(2)) else { continue };
            // a comment about something else
            if !(name.as_str().starts_with('@') || is_about_metric(rest.as_str())) {
                continue;
            }
            let Some(map) = maps.iter().find(|map| map.name == name.as_str()) else {
                let names = maps.iter().map(|map| map.name.as_str());
                let (what, like) = match name.as_str().strip_prefix('@') {
                    Some(_) => (format!("the script has no map {}", name.as_str()), name.as_str().to_string()),
                    None => (format!("`{}` is not a map: their names start with @", name.as_str()), format!("@{}", name.as_str())),
                };
                let problem = Diagnostic::error("bad-metric", span(name.start(), name.end()), what);
                wrong.push(match nearest(&like, names) {
                    Some(map) => problem.help(format!("did you mean `{map}`?")),
                    None => problem.help("write the name of the map first: // metric: @m name=disk_time"),
                });
                continue;
            };
            let given = self.comments.entry(map.name.clone()).or_default();
            for found in word.captures_iter(rest.as_str()) {
                let part = |i: usize| found.get(i).map_or("", |m| m.as_str());
                let place = found.get(0).map_or(0..0, |whole| rest.start() + whole.start()..rest.start() + whole.end());
                let quoted = found.get(2).map(|text| unescaped(text.as_str()));
                let value = quoted.as_deref().unwrap_or_else(|| part(3).trim_matches('"'));
                let place = span(place.start, place.end);
                match given.set(part(1), value, map.counts_events) {
                    Ok(()) if part(1) == NAME => drop(places.insert(map.name.clone(), place)),
                    Ok(()) => {}
                    Err((what, help)) => wrong.push(Diagnostic::error("bad-metric", place, what).help(help)),
                }
            }
        }
    }

    /// The label of a key's part is the last name in it: `args.dev`, `str(args.filename)`, `$x`.
    fn keys(&mut self, text: &str) {
        let Ok(key) = Regex::new(r"(@[A-Za-z0-9_]*)\[") else { return };
        for found in key.captures_iter(text) {
            let (Some(matched), Some(map)) = (found.get(0), found.get(1)) else { continue };
            let parts = parts(text.get(matched.end()..).unwrap_or_default());
            let labels: Vec<String> = parts.iter().map(|part| last_name(part)).collect();
            self.labels.entry(map.as_str().to_string()).or_insert(labels);
        }
    }
}

/// A text between quotation marks, in which a backslash makes the next character ordinary.
fn unescaped(text: &str) -> String {
    let mut all = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        all.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    all
}

/// Sets a property, or returns the error and its remedy; the last argument: the map counts events.
type Setter = fn(&mut MetricComment, &str, bool) -> Result<(), (String, String)>;

/// The property whose place in the comment is kept.
const NAME: &str = "name";

/// The properties that a comment can set.
const PROPERTIES: &[(&str, Setter)] = &[
    (NAME, MetricComment::set_name),
    ("help", MetricComment::set_help),
    ("unit", MetricComment::set_unit),
    ("labels", MetricComment::set_labels),
];

/// Does the text after the first word set a property?
fn is_about_metric(text: &str) -> bool {
    let mut properties = text.split_whitespace().filter_map(|word| word.split_once('='));
    properties.any(|(property, _)| PROPERTIES.iter().any(|(name, _)| *name == property))
}

impl MetricComment {
    /// Sets a property, or returns the error and its remedy.
    fn set(&mut self, property: &str, value: &str, counts: bool) -> Result<(), (String, String)> {
        match PROPERTIES.iter().find(|(name, _)| *name == property) {
            Some((_, set)) => set(self, value, counts),
            None => {
                let what = format!("a metric has no property `{property}`");
                let known: Vec<&str> = PROPERTIES.iter().map(|(name, _)| *name).collect();
                Err((what, format!("the properties are {}; quote texts with blanks: help=\"…\"", known.join(", "))))
            }
        }
    }

    fn set_name(&mut self, value: &str, _counts: bool) -> Result<(), (String, String)> {
        if value.is_empty() {
            return Err(("a metric needs a name".into(), "write one such as name=disk_time".into()));
        }
        self.name = Some(value.into());
        Ok(())
    }

    fn set_help(&mut self, value: &str, _counts: bool) -> Result<(), (String, String)> {
        if value.trim().is_empty() {
            return Err(("the help of a metric needs a text".into(), "write one such as help=\"Time of a request\", or no help".into()));
        }
        self.help = Some(value.into());
        Ok(())
    }

    fn set_unit(&mut self, value: &str, counts: bool) -> Result<(), (String, String)> {
        if counts {
            return Err(("a count has no unit".into(), "remove `unit`".into()));
        }
        if unit(value).is_none() {
            let known: Vec<&str> = UNITS.iter().flat_map(|unit| unit.words).copied().collect();
            return Err((format!("rbt does not know the unit `{value}`"), format!("known units: {}", known.join(", "))));
        }
        self.unit = Some(value.into());
        Ok(())
    }

    fn set_labels(&mut self, value: &str, _counts: bool) -> Result<(), (String, String)> {
        let labels: Vec<String> = value.split(',').map(String::from).collect();
        for (i, label) in labels.iter().enumerate() {
            if let Some(why) = label_problem(label) {
                return Err((format!("`{label}` cannot be a label: {why}"), "choose another name, such as `device`".into()));
            }
            if labels.iter().take(i).any(|before| snake(before) == snake(label)) {
                return Err((format!("two labels have the name `{label}`"), "choose different names".into()));
            }
        }
        self.labels = labels;
        Ok(())
    }
}

/// Why a name cannot be that of a label.
fn label_problem(name: &str) -> Option<&'static str> {
    if ["le", "other", "quantile"].contains(&name) {
        Some("rbt and Prometheus use it")
    } else if name.starts_with("__") {
        Some("Prometheus reserves names that start with __")
    } else if name.is_empty()
        || name.starts_with(|c: char| c.is_ascii_digit())
        || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    {
        Some("names consist of letters, digits and underscores")
    } else {
        None
    }
}

/// Suffixes of series, which the formats add.
const SUFFIXES: &[&str] = &["_total", "_count", "_sum", "_bucket", "_created", "_info"];

fn without_suffix(name: &str) -> &str {
    SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix)).filter(|name| !name.is_empty()).unwrap_or(name)
}

/// Words for types, which are not part of a metric's name.
const RESERVED: &[&str] = &["total", "count", "sum", "bucket", "created", "info", "gauge", "counter", "histogram", "summary", "untyped"];

/// Abbreviations that promtool takes for units.
const ABBREVIATIONS: &[&str] = &["s", "ms", "us", "ns", "b", "sec", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"];
/// Units that promtool knows: its base units, and others.
const BASE_UNITS: &[&str] = &["amperes", "bytes", "celsius", "grams", "joules", "kelvin", "meters", "metres", "seconds", "volts"];
const OTHER_UNITS: &[&str] = &[
    "minutes",
    "hours",
    "days",
    "weeks",
    "kelvins",
    "fahrenheit",
    "rankine",
    "inches",
    "yards",
    "miles",
    "bits",
    "calories",
    "pounds",
    "ounces",
];
/// Prefixes of units.
const PREFIXES: &[&str] = &[
    "pico", "nano", "micro", "milli", "centi", "deci", "deca", "hecto", "kilo", "kibi", "mega", "mibi", "giga", "gibi", "tera", "tebi",
    "peta", "pebi",
];

/// Would promtool demand a base unit in place of this word, which can mean anything in a script?
fn is_foreign_unit(word: &str) -> bool {
    let is_unit = |word: &str| BASE_UNITS.contains(&word) || OTHER_UNITS.contains(&word);
    let prefixed = PREFIXES.iter().filter_map(|prefix| word.strip_prefix(prefix)).any(is_unit);
    ABBREVIATIONS.contains(&word) || OTHER_UNITS.contains(&word) || prefixed
}

/// The last word of a metric's name.
fn last_word(name: &str) -> &str {
    name.rsplit('_').next().unwrap_or_default()
}

fn unit(word: &str) -> Option<Unit> {
    UNITS.iter().find(|unit| unit.words.contains(&word)).copied()
}

/// Letters, digits and underscores, in lowercase.
fn snake(name: &str) -> String {
    let mut to = String::new();
    let mut before = ' ';
    for c in name.chars() {
        if c.is_ascii_uppercase() && before.is_ascii_lowercase() {
            to.push('_');
        }
        to.push(if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' });
        before = c;
    }
    if to.starts_with(|c: char| c.is_ascii_digit()) { format!("_{to}") } else { to }
}

/// The texts between commas, up to the bracket that ends a key.
fn parts(text: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for c in text.chars() {
        match c {
            ']' | ')' | '}' if depth == 0 => return parts,
            ']' | ')' | '}' => depth -= 1,
            '[' | '(' | '{' => depth += 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    Vec::new()
}

fn last_name(part: &str) -> String {
    let mut words = part.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.rfind(|word| word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')).unwrap_or_default().to_string()
}

/// The text with empty strings and comments.
fn without_comments(text: &str) -> String {
    match Regex::new(r#"(?s)//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*""#) {
        Ok(skipped) => skipped.replace_all(text, " ").into_owned(),
        Err(_) => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The maps of the tests; these count events.
    fn maps(counts: &[&str]) -> Vec<ScriptMap> {
        let names = ["@c", "@d", "@h", "@m", "@shown", "@slow_ms", "@b", "@start", "@t", "@x"];
        let map = |name: &str| ScriptMap {
            name: name.into(),
            counts_events: counts.contains(&name),
            is_internal: ["@start", "@shown"].contains(&name),
        };
        names.into_iter().map(map).collect()
    }

    #[test]
    fn names_come_from_the_script() {
        let names = MetricNames::of(
            ["// metric: @d name=disk_time unit=us help=\"Time of a \\\"slow\\\" request\" labels=device\n/* @x[no] */ p { @x[comm, args.dev, str(args.filename, 3), $y, (uint64)1, comm] = count(); @d[a.b] = hist(1) }"]
                .into_iter(),
            &maps(&[]),
        )
        .unwrap();
        assert_eq!(names.labels("@x", 6), ["comm", "dev", "filename", "y", "uint64", "comm_6"]);
        assert_eq!(names.labels("@x", 2), ["key1", "key2"]);
        let same = of("p { @x[$comm_3, comm, comm] = 1; @d[$key2, 1 + 1, $key2_2] = 1; }").unwrap();
        assert_eq!(same.labels("@x", 3), ["comm_3", "comm", "comm_3_3"]);
        assert_eq!(same.labels("@d", 3), ["key2", "key2_2", "key2_2_3"]);
        assert_eq!(names.labels("@d", 1), ["device"]);
        let d = names.metric("@d");
        assert_eq!(
            (d.name.as_str(), d.help.as_deref(), d.unit.map(|u| u.power)),
            ("disk_time_seconds", Some("Time of a \"slow\" request"), Some(6))
        );
        let name = |map: &str| names.metric(map).name;
        assert_eq!(
            [name("@"), name("@ns"), name("@readCount"), name("@read_bytes"), name("@9x")],
            ["rbt_map", "rbt_seconds", "rbt_read", "rbt_read_bytes", "rbt_9x"]
        );
        assert_eq!(
            [name("@h"), name("@disk_kb"), name("@minutes"), name("@kilobytes_read"), name("@volts")],
            ["rbt_maph", "rbt_disk_mapkb", "rbt_mapminutes", "rbt_mapkilobytes_read", "rbt_volts"]
        );
        assert_eq!(
            [name("@b"), name("@s"), name("@wait_s"), name("@side_b")],
            ["rbt_mapb", "rbt_maps", "rbt_wait_seconds", "rbt_side_mapb"]
        );
        // a unit stays in the name if the values are not converted
        assert_eq!(
            [name("@us_late"), name("@ms_by_us"), name("@bytes_per_s"), name("@bytes_per_ms"), name("@secs_late"), name("@bytes_ns")],
            ["rbt_mapus_late", "rbt_mapms_by_seconds", "rbt_bytes_per_maps", "rbt_bytes_per_mapms", "rbt_secs_late", "rbt_bytes_seconds"]
        );
        assert_eq!(names.metric("@bytes_per_ms").unit, None);
        // words that name types alone stay different
        assert_eq!([name("@"), name("@count"), name("@sum"), name("@total")], ["rbt_map", "rbt_mapcount", "rbt_mapsum", "rbt_maptotal"]);
        // a count has no unit, whatever the name of its map
        let counting = MetricNames::of([""].into_iter(), &maps(&["@slow_ms", "@b"])).unwrap();
        let counted = |map: &str| counting.metric(map);
        assert_eq!((counted("@slow_ms").name.as_str(), counted("@slow_ms").unit), ("rbt_slow", None));
        assert_eq!((counted("@b").name.as_str(), counted("@b").unit), ("rbt_mapb", None));
    }

    fn of(text: &str) -> Result<MetricNames, Vec<(String, String)>> {
        MetricNames::of([text].into_iter(), &maps(&["@c"])).map_err(|wrong| {
            let word = |d: &Diagnostic| text[d.span.start as usize..d.span.end as usize].to_string();
            wrong.0.iter().map(|d| (word(d), d.message.clone())).collect()
        })
    }

    #[test]
    fn wrong_comments_are_errors() {
        let one = |text: &str| of(&format!("// metric: @m {text}\np {{ @m[1, 2] = sum(1); }}")).unwrap_err();
        let is = |text: &str, word: &str, what: &str| assert_eq!(one(text), [(word.to_string(), what.to_string())]);
        is("name=x unit=minutes", "unit=minutes", "rbt does not know the unit `minutes`");
        is("labels=a,__name__", "labels=a,__name__", "`__name__` cannot be a label: Prometheus reserves names that start with __");
        is("labels=a-b", "labels=a-b", "`a-b` cannot be a label: names consist of letters, digits and underscores");
        is("labels=le", "labels=le", "`le` cannot be a label: rbt and Prometheus use it");
        is("labels=a,A", "labels=a,A", "two labels have the name `A`");
        is("uint=ns", "uint=ns", "a metric has no property `uint`");
        is("name=", "name=", "a metric needs a name");
        is("help=\"\"", "help=\"\"", "the help of a metric needs a text");
        let exported = |word: &str, base: &str| format!("the name ends in `{word}`, but the values are exported in {base}");
        is("name=req_milliseconds unit=ms", "name=req_milliseconds", &exported("milliseconds", "seconds"));
        is("unit=ns name=disk_nanoseconds_total", "name=disk_nanoseconds_total", &exported("nanoseconds", "seconds"));
        is("name=x_bytes unit=s", "name=x_bytes", &exported("bytes", "seconds"));
        is("name=xMs unit=ms", "name=xMs", &exported("ms", "seconds"));
        assert_eq!(of("// metric: @slow_ms name=a_ms").unwrap_err(), [("name=a_ms".to_string(), exported("ms", "seconds"))]);
        assert!(of("// metric: @m name=a_ms\n// metric: @d name=a_seconds unit=ms").is_ok());
        assert_eq!(of("// metric: @c unit=ms\n").unwrap_err(), [("unit=ms".to_string(), "a count has no unit".to_string())]);
        assert!(of("// the metric: @m is good").is_ok() && of("// metric: reads per second").is_ok());
        let unknown = |text: &str, word: &str, what: &str| assert_eq!(of(text).unwrap_err(), [(word.to_string(), what.to_string())]);
        unknown("// metric: @none name=x", "@none", "the script has no map @none");
        unknown("// metric: slow_ms help=\"x\"", "slow_ms", "`slow_ms` is not a map: their names start with @");
    }

    #[test]
    fn suffixes_are_not_repeated() {
        let names = of("// metric: @c name=x_total\n// metric: @h name=wait_bucket unit=us\n// metric: @t name=total").unwrap();
        let name = |map: &str| names.metric(map).name;
        assert_eq!([name("@c"), name("@h"), name("@t")], ["x", "wait_seconds", "total"]);
        let disk = names.metric("@disk_ns_total");
        assert_eq!((disk.name.as_str(), disk.unit.map(|unit| unit.power)), ("rbt_disk_seconds", Some(9)));
    }

    #[test]
    fn texts_between_quotation_marks() {
        let shown = |text: &str| unescaped(text);
        assert_eq!([shown("a b"), shown(r#"say \"a\\b\""#), shown("end\\")], ["a b", r#"say "a\b""#, "end\\"]);
    }

    #[test]
    fn working_maps_are_hidden() {
        let names = of("// metric: @shown help=\"x\"\np { @start[$__name__] = 1; }").unwrap();
        assert!(names.is_hidden("@start") && !names.is_hidden("@shown") && !names.is_hidden("@c"));
        assert_eq!(names.labels("@start", 1), ["key1"]);
    }
}
