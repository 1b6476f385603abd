//! The contents of a snapshot as sections: raw BTF, and lines of text for everything else.
//!
//! | section | contents |
//! |---|---|
//! | `about` | `key<TAB>value` |
//! | `missing` | an unavailable section, a tab, the reason |
//! | `btf/vmlinux`, `btf/MODULE` | raw BTF |
//! | `events` | category, name and size of the format in bytes, separated by tabs |
//! | `formats` | the formats, one after another |
//! | `functions` | see [`Functions`] |
//! | `untraceable`, `variables`, `injectable`, `modules` | names |
//! | `features` | name, a tab, 0 or 1 |
//! | `callable` | a function's name, then types of programs, separated by tabs |
//! | `config` | the kernel's text, unchanged |
//! | `scripts` | digests of the scripts that it was made for, in hexadecimal |

use std::collections::{BTreeMap, BTreeSet};

use super::file::Sections;
use super::{Contents, Event, SnapshotInfo, section};
use crate::system::Feature;
use crate::system::kernel::functions::Functions;

/// All nonempty sections; small and frequently used ones come first.
pub fn sections(contents: &Contents) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = vec![(section::ABOUT.into(), about(&contents.about).into_bytes())];
    let mut text = |name: &str, text: Option<String>| all.extend(text.map(|text| (name.to_owned(), text.into_bytes())));
    let features = contents.features.iter().map(|(f, has)| format!("{f:?}\t{}\n", u8::from(*has))).collect::<String>();
    text(section::FEATURES, Some(features).filter(|f| !f.is_empty()));
    let missing = contents.missing.iter().map(|(what, why)| format!("{what}\t{}\n", why.replace('\n', " "))).collect::<String>();
    text(section::MISSING, Some(missing).filter(|m| !m.is_empty()));
    text(section::CONFIG, contents.config.clone());
    text(section::SCRIPTS, contents.scripts.as_ref().map(|all| all.iter().map(|digest| format!("{digest:016x}\n")).collect()));
    text(section::CALLABLE, contents.callable.as_ref().map(callable));
    text(section::MODULES, contents.modules.as_deref().map(lines));
    text(section::INJECTABLE, contents.error_injectable.as_deref().map(lines));
    text(section::FUNCTIONS, contents.functions.as_ref().map(|f| f.lines().to_owned()));
    text(section::UNTRACEABLE, contents.untraceable.as_deref().map(lines));
    text(section::VARIABLES, contents.variables.as_deref().map(lines));
    if let Some(events) = &contents.events {
        let mut events: Vec<&Event> = events.iter().filter(|e| !(e.category.clone() + &e.name).contains(['\t', '\n'])).collect();
        events.sort();
        events.dedup_by_key(|e| (&e.category, &e.name));
        text(section::EVENTS, Some(events.iter().map(|e| format!("{}\t{}\t{}\n", e.category, e.name, e.format.len())).collect()));
        text(section::FORMATS, Some(events.iter().map(|e| e.format.as_str()).collect()));
    }
    all.extend(contents.btf.iter().map(|(name, bytes)| (format!("{}{name}", section::BTF), bytes.clone())));
    all
}

/// The reverse. Errors name the section.
pub fn contents(sections: &Sections) -> Result<Contents, String> {
    let names = |name: &str| Ok::<_, String>(sections.text(name)?.map(|t| t.lines().map(str::to_owned).collect::<Vec<_>>()));
    let mut btf = Vec::new();
    for name in sections.names() {
        if let (Some(module), Some(bytes)) = (name.strip_prefix(section::BTF), sections.get(name)?) {
            btf.push((module.to_owned(), bytes));
        }
    }
    let events = match events(sections)? {
        None => None,
        Some(index) => {
            let formats = formats(sections)?;
            let one = |(category, name): &(String, String), (from, to): &(usize, usize)| Event {
                category: category.clone(),
                name: name.clone(),
                format: formats.get(*from..*to).unwrap_or_default().to_owned(),
            };
            Some(index.names.iter().zip(&index.ranges).map(|(n, p)| one(n, p)).collect())
        }
    };
    Ok(Contents {
        about: read_about(sections)?,
        btf,
        events,
        functions: sections.text(section::FUNCTIONS)?.map(|text| Functions::from_index(text, 0)),
        untraceable: names(section::UNTRACEABLE)?,
        variables: names(section::VARIABLES)?,
        modules: names(section::MODULES)?,
        error_injectable: names(section::INJECTABLE)?,
        features: features(sections)?,
        callable: read_callable(sections)?,
        config: sections.text(section::CONFIG)?,
        scripts: scripts(sections)?,
        missing: missing(sections)?,
    })
}

fn lines<S: AsRef<str>>(names: &[S]) -> String {
    names.iter().flat_map(|n| [n.as_ref(), "\n"]).collect()
}

fn about(about: &SnapshotInfo) -> String {
    let rows = [
        ("release", about.release.clone()),
        ("machine", about.machine.clone()),
        ("build-id", about.build_id.clone()),
        ("source", about.source.clone()),
        ("possible-cpus", about.possible_cpus.to_string()),
    ];
    rows.iter().map(|(key, value)| format!("{key}\t{}\n", value.replace('\n', " "))).collect()
}

/// The part before and the part after the tab in each line.
fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| line.split_once('\t'))
}

/// General information. Unknown keys are ignored.
pub fn read_about(sections: &Sections) -> Result<SnapshotInfo, String> {
    let text = sections.text(section::ABOUT)?.ok_or("its section `about` is not there")?;
    let value = |key: &str| pairs(&text).find(|(k, _)| *k == key).map_or("", |(_, v)| v).to_owned();
    Ok(SnapshotInfo {
        release: value("release"),
        machine: value("machine"),
        build_id: value("build-id"),
        source: value("source"),
        possible_cpus: value("possible-cpus").parse().unwrap_or(0),
    })
}

/// See [`Contents::missing`].
pub fn missing(sections: &Sections) -> Result<BTreeMap<String, String>, String> {
    let text = sections.text(section::MISSING)?.unwrap_or_default();
    Ok(pairs(&text).map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
}

/// See [`Contents::features`]. Features of newer versions of rbt are ignored.
pub fn features(sections: &Sections) -> Result<BTreeMap<Feature, bool>, String> {
    let text = sections.text(section::FEATURES)?.unwrap_or_default();
    Ok(pairs(&text).filter_map(|(name, has)| Some((Feature::named(name)?, has == "1"))).collect())
}

fn callable(all: &BTreeMap<String, Vec<u32>>) -> String {
    let line = |(name, types): (&String, &Vec<u32>)| types.iter().fold(name.clone(), |line, ty| format!("{line}\t{ty}")) + "\n";
    all.iter().map(line).collect()
}

/// See [`Contents::callable`].
pub fn read_callable(sections: &Sections) -> Result<Option<BTreeMap<String, Vec<u32>>>, String> {
    let read = |line: &str| {
        let mut words = line.split('\t');
        Some((words.next()?.to_owned(), words.filter_map(|w| w.parse().ok()).collect()))
    };
    Ok(sections.text(section::CALLABLE)?.map(|text| text.lines().filter_map(read).collect()))
}

/// The events, and the positions of their formats.
pub struct EventIndex {
    /// Category and name, sorted.
    pub names: Vec<(String, String)>,
    /// For each event, the range of its format in the section of formats.
    pub ranges: Vec<(usize, usize)>,
}

/// See [`Contents::scripts`]. A line that is not a digest represents no script.
pub fn scripts(sections: &Sections) -> Result<Option<BTreeSet<u64>>, String> {
    let text = sections.text(section::SCRIPTS)?;
    Ok(text.map(|text| text.lines().filter_map(|line| u64::from_str_radix(line, 16).ok()).collect()))
}

/// See [`EventIndex`].
pub fn events(sections: &Sections) -> Result<Option<EventIndex>, String> {
    let Some(text) = sections.text(section::EVENTS)? else { return Ok(None) };
    let mut at = 0usize;
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split('\t');
        let (Some(category), Some(name), Some(length)) = (words.next(), words.next(), words.next()) else { continue };
        let from = at;
        at = at.saturating_add(length.parse().map_err(|_| "its section `events` has a line without a length")?);
        all.insert((category.to_owned(), name.to_owned()), (from, at));
    }
    let (names, places) = all.into_iter().unzip();
    Ok(Some(EventIndex { names, ranges: places }))
}

/// The text of all formats.
pub fn formats(sections: &Sections) -> Result<String, String> {
    Ok(sections.text(section::FORMATS)?.unwrap_or_default())
}
