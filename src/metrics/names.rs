//! Names of metrics and labels, from the text of a script.

use std::collections::BTreeMap;

use regex::Regex;
use serde::{Deserialize, Serialize};

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
    Unit { words: &["b", "bytes"], base: "bytes", power: 0 },
];

/// The names and units of a script's maps.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MetricNames {
    /// Labels by map, in the order of the key's parts.
    labels: BTreeMap<String, Vec<String>>,
    /// From comments: `// metric: @m name=… unit=… labels=a,b help="…"`
    comments: BTreeMap<String, MetricComment>,
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
    /// From the texts of a script.
    pub fn of<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let mut names = Self::default();
        for text in texts {
            names.comments(text);
            names.keys(&without_comments(text));
        }
        names
    }

    /// The metric of a map.
    pub fn metric(&self, map: &str) -> Metric {
        let given = self.comments.get(map);
        let mut words: Vec<String> = snake(map.trim_start_matches('@')).split('_').filter(|w| !w.is_empty()).map(String::from).collect();
        let by_name = words.last().and_then(|last| unit(last));
        if by_name.is_some() {
            words.pop();
        }
        let unit = given.and_then(|given| self::unit(given.unit.as_deref()?)).or(by_name);
        // words that promtool interprets as units and types
        words.retain(|word| self::unit(word).is_none() && !RESERVED.contains(&word.as_str()));
        words.iter_mut().filter(|word| is_foreign_unit(word)).for_each(|word| word.insert_str(0, "map"));
        let mut name = match given.and_then(|given| given.name.clone()) {
            Some(name) => snake(&name),
            None => ["rbt".to_string()]
                .into_iter()
                .chain(if words.is_empty() && unit.is_none() { vec!["map".into()] } else { words })
                .collect::<Vec<_>>()
                .join("_"),
        };
        if let Some(unit) = unit.filter(|unit| !name.ends_with(unit.base)) {
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
            let name = named.filter(|name| !name.is_empty() && !["le", "other", "quantile"].contains(&name.as_str()));
            let name = name.unwrap_or_else(|| format!("key{}", i + 1));
            all.push(if all.contains(&name) { format!("{name}_{}", i + 1) } else { name });
        }
        all
    }

    fn comments(&mut self, text: &str) {
        let Ok(word) = Regex::new(r#"([a-z]+)=("[^"]*"|\S+)"#) else { return };
        for line in text.lines() {
            let Some((map, rest)) = line.split_once("metric:").filter(|(before, _)| before.contains("//")).and_then(|(_, comment)| {
                let comment = comment.trim();
                Some(comment.split_once(' ').unwrap_or((comment, ""))).filter(|(map, _)| map.starts_with('@'))
            }) else {
                continue;
            };
            let given = self.comments.entry(map.to_string()).or_default();
            for found in word.captures_iter(rest) {
                let part = |i: usize| found.get(i).map_or("", |m| m.as_str());
                let value = part(2).trim_matches('"').to_string();
                match part(1) {
                    "name" => given.name = Some(value),
                    "help" => given.help = Some(value),
                    "unit" => given.unit = Some(value),
                    "labels" => given.labels = value.split(',').map(String::from).collect(),
                    _ => {}
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

/// Words for types, which are not part of a metric's name.
const RESERVED: &[&str] = &["total", "count", "sum", "bucket", "created", "info", "gauge", "counter", "histogram", "summary", "untyped"];

/// Abbreviations that promtool takes for units.
const ABBREVIATIONS: &[&str] = &["sec", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"];
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

    #[test]
    fn names_come_from_the_script() {
        let names = MetricNames::of(
            ["// metric: @d name=disk_time unit=us help=\"Time of a request\" labels=device\n/* @x[no] */ p { @x[comm, args.dev, str(args.filename, 3), $y, (uint64)1, comm] = count(); @d[a.b] = hist(1) }"]
                .into_iter(),
        );
        assert_eq!(names.labels("@x", 6), ["comm", "dev", "filename", "y", "uint64", "comm_6"]);
        assert_eq!(names.labels("@x", 2), ["key1", "key2"]);
        assert_eq!(names.labels("@d", 1), ["device"]);
        let d = names.metric("@d");
        assert_eq!(
            (d.name.as_str(), d.help.as_deref(), d.unit.map(|u| u.power)),
            ("disk_time_seconds", Some("Time of a request"), Some(6))
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
    }
}
