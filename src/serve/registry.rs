//! Several scripts in one process: the status of each, and the metrics of all of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Pages, Run, exposition};
use crate::diag;
use crate::metrics::{Family, Kind, own, sample_names};

/// The label that distinguishes the scripts.
const SCRIPT: &str = "script";

/// The scripts by name, and the names of their metrics.
#[derive(Default)]
pub struct ScriptRegistry(Mutex<BTreeMap<String, Script>>, Mutex<ExportedNames>);

#[derive(Default)]
struct Script {
    run: Option<Arc<Mutex<Run>>>,
    status: Status,
    starts: u64,
    resets: u64,
}

/// The status of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// It is being started.
    #[default]
    Starting,
    /// It runs.
    Running,
    /// Its file cannot be run, for this reason; the previous run continues.
    Outdated(String),
    /// It is not running, for this reason.
    Failed(String),
    /// It has ended with this status.
    Ended(u8),
}

impl Status {
    fn runs(&self) -> bool {
        matches!(self, Status::Running | Status::Outdated(_))
    }

    fn reason(&self) -> Option<String> {
        match self {
            Status::Outdated(why) | Status::Failed(why) => Some(why.clone()),
            Status::Ended(status) => Some(format!("ended with status {status}")),
            Status::Starting | Status::Running => None,
        }
    }

    fn text(&self) -> String {
        match self {
            Status::Starting => "starting".into(),
            Status::Running => "running".into(),
            Status::Outdated(why) => format!("running as it was before: {why}"),
            Status::Failed(why) => format!("failed: {why}"),
            Status::Ended(status) => format!("ended with status {status}"),
        }
    }
}

impl ScriptRegistry {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Script>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The script will be started, unless it is known.
    pub fn expect(&self, name: &str) {
        self.lock().entry(name.into()).or_default();
    }

    /// A run of the script has begun, which replaces any other one.
    pub fn started(&self, name: &str, run: Run) {
        let mut scripts = self.lock();
        let script = scripts.entry(name.into()).or_default();
        script.run = Some(Arc::new(Mutex::new(run)));
        script.status = Status::Running;
        script.starts += 1;
    }

    /// Its series start again, because the previous run did not end in time.
    pub fn reset(&self, name: &str) {
        self.lock().entry(name.into()).or_default().resets += 1;
    }

    /// Its status has changed.
    pub fn set(&self, name: &str, status: Status) {
        self.lock().entry(name.into()).or_default().status = status;
    }

    /// Its file cannot be run. Returns true if the previous run continues.
    pub fn refused(&self, name: &str, why: String) -> bool {
        let mut scripts = self.lock();
        let script = scripts.entry(name.into()).or_default();
        let runs = script.status.runs();
        script.status = if runs { Status::Outdated(why) } else { Status::Failed(why) };
        runs
    }

    /// Could it not be started, or did its run fail?
    pub fn has_failed(&self, name: &str) -> bool {
        self.lock().get(name).is_some_and(|script| matches!(script.status, Status::Failed(_)))
    }

    /// Its file is the one that is running.
    pub fn unchanged(&self, name: &str) {
        if let Some(script) = self.lock().get_mut(name).filter(|script| script.status.runs()) {
            script.status = Status::Running;
        }
    }

    /// Forgets scripts whose files are gone.
    pub fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.lock().retain(|name, _| is_there(name));
    }

    /// The families of all scripts, grouped by name.
    fn families(&self) -> Vec<Family> {
        let runs: Vec<(String, Arc<Mutex<Run>>)> =
            self.lock().iter().filter_map(|(name, script)| Some((name.clone(), script.run.clone()?))).collect();
        // a script that does not answer must not delay the others
        let answers: Vec<Option<Vec<Family>>> = std::thread::scope(|scope| {
            let ask = |run: &Arc<Mutex<Run>>| {
                let run = run.clone();
                let thread =
                    std::thread::Builder::new().spawn_scoped(scope, move || run.lock().unwrap_or_else(PoisonError::into_inner).families());
                // without a thread, it does not answer
                thread.ok()
            };
            let asking: Vec<_> = runs.iter().map(|(_, run)| ask(run)).collect();
            asking.into_iter().map(|thread| thread?.join().ok().flatten()).collect()
        });
        let answers: BTreeMap<String, Option<Vec<Family>>> = runs.into_iter().map(|(name, _)| name).zip(answers).collect();
        let mut families = self.own_families(&answers.iter().map(|(name, families)| (name.clone(), families.is_some())).collect());
        families.extend(self.1.lock().unwrap_or_else(PoisonError::into_inner).grouped(answers));
        families
    }

    fn own_families(&self, answered: &BTreeMap<String, bool>) -> Vec<Family> {
        let scripts = self.lock();
        let family = |metric, value: &dyn Fn(&str, &Script) -> Option<i128>| {
            Family::own(metric, scripts.iter().filter_map(|(name, script)| Some((vec![name.clone()], value(name, script)?))))
        };
        let failed = scripts.iter().filter_map(|(name, script)| Some((vec![name.clone(), script.status.reason()?], 1)));
        vec![
            family(&own::SCRIPT_UP, &|_, script| Some(script.status.runs().into())),
            family(&own::SCRIPT_CURRENT, &|_, script| Some((script.status == Status::Running).into())),
            family(&own::SCRIPT_ANSWERS, &|name, _| answered.get(name).map(|answers| (*answers).into())),
            Family::own(&own::SCRIPT_FAILURE, failed),
            family(&own::SCRIPT_STARTS, &|_, script| Some(script.starts.into())),
            family(&own::SCRIPT_RESETS, &|_, script| Some(script.resets.into())),
        ]
    }
}

/// The name under which each family of a script is exported. It stays the same while the script has the family, whichever scripts come,
/// change or go.
#[derive(Default)]
struct ExportedNames(BTreeMap<(String, String), Exported>);

/// A name, and the type that it has in all scripts.
#[derive(PartialEq)]
struct Exported {
    name: String,
    kind: Kind,
    unit: Option<&'static str>,
    power: u32,
}

impl Exported {
    fn of(family: &Family) -> Self {
        Self { name: family.name.clone(), kind: family.kind, unit: family.unit, power: family.power }
    }

    fn has_type(&self, of: &Exported) -> bool {
        (self.kind, self.unit, self.power) == (of.kind, of.unit, of.power)
    }

    /// Each name has only one type, also those of samples.
    fn clashes(&self, other: &Exported) -> bool {
        let is_same = self == other;
        !is_same && sample_names(&self.name, self.kind).any(|name| sample_names(&other.name, other.kind).any(|taken| taken == name))
    }
}

impl ExportedNames {
    /// The families of all scripts, those of one name together, in the order of their first occurrence. A script without an answer
    /// keeps its names.
    fn grouped(&mut self, answers: BTreeMap<String, Option<Vec<Family>>>) -> Vec<Family> {
        self.0.retain(|(script, name), exported| {
            answers.get(script).is_some_and(|families| {
                let is_there = |family: &Family| family.name == *name && exported.has_type(&Exported::of(family));
                families.as_ref().is_none_or(|families| families.iter().any(is_there))
            })
        });
        let mut all: Vec<Vec<Family>> = Vec::new();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for (script, families) in answers {
            for mut family in families.into_iter().flatten() {
                family.name = self.name(&script, &family);
                family.put_label(SCRIPT, &script);
                let place = *places.entry(family.name.clone()).or_insert(all.len());
                match all.get_mut(place) {
                    Some(of) => of.push(family),
                    None => all.push(vec![family]),
                }
            }
        }
        all.into_iter().flatten().collect()
    }

    fn name(&mut self, script: &str, family: &Family) -> String {
        let key = (script.to_string(), family.name.clone());
        if let Some(known) = self.0.get(&key) {
            return known.name.clone();
        }
        let mut exported = Exported::of(family);
        while self.0.values().any(|other| exported.clashes(other)) {
            exported.name.push_str("_map");
        }
        let name = exported.name.clone();
        self.0.insert(key, exported);
        name
    }
}

impl Pages for Arc<ScriptRegistry> {
    fn metrics(&mut self, open: bool) -> Option<String> {
        Some(exposition::text(&self.families(), open))
    }

    fn health(&mut self) -> (bool, String) {
        let scripts = self.lock();
        let text =
            scripts.iter().map(|(name, script)| format!("{}: {}\n", diag::plain(name), diag::plain(&script.status.text()))).collect();
        (scripts.values().all(|script| script.status == Status::Running), text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(name: &str, kind: Kind) -> Family {
        Family { name: name.into(), kind, help: String::new(), unit: None, power: 0, labels: Vec::new(), series: Vec::new() }
    }

    /// Scripts that come, change and go rename nothing of those that stay.
    #[test]
    fn names_stay() {
        let mut names = ExportedNames::default();
        let mut at = |scripts: &[(&str, Option<Kind>)]| {
            let answers = scripts.iter().map(|(script, kind)| ((*script).to_string(), kind.map(|kind| vec![family("c", kind)])));
            names.grouped(answers.collect()).iter().map(|family| family.name.clone()).collect::<Vec<_>>().join(" ")
        };
        let (counter, summary, gauge) = (Some(Kind::Counter), Some(Kind::Summary), Some(Kind::Gauge));
        assert_eq!(at(&[("z", counter)]), "c");
        assert_eq!(at(&[("b", summary), ("z", counter)]), "c_map c");
        assert_eq!(at(&[("a", counter), ("b", summary), ("z", counter)]), "c c c_map");
        // it does not answer
        assert_eq!(at(&[("b", summary), ("z", None)]), "c_map");
        assert_eq!(at(&[("b", summary), ("y", gauge), ("z", counter)]), "c_map c_map_map c");
        assert_eq!(at(&[("b", summary), ("y", gauge)]), "c_map c_map_map");
        // the name is free
        assert_eq!(at(&[("b", summary), ("x", counter), ("y", gauge)]), "c_map c c_map_map");
        assert_eq!(at(&[("b", counter), ("x", counter)]), "c c");
    }
}
