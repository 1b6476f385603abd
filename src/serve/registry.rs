//! Several scripts in one process: the status of each, and the metrics of all of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Pages, Run, exposition};
use crate::diag;
use crate::metrics::{Family, own, sample_names};

/// The label that distinguishes the scripts.
const SCRIPT: &str = "script";

/// The scripts by name.
#[derive(Default)]
pub struct ScriptRegistry(Mutex<BTreeMap<String, Script>>);

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
        let mut answered = BTreeMap::new();
        let mut all = FamilyList::default();
        for ((name, _), families) in runs.iter().zip(answers) {
            answered.insert(name.clone(), families.is_some());
            families.into_iter().flatten().for_each(|family| all.add(name, family));
        }
        let mut families = self.own_families(&answered);
        families.extend(all.0.into_iter().flatten());
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

/// Families by name, in the order of their first occurrence.
#[derive(Default)]
struct FamilyList(Vec<Vec<Family>>);

impl FamilyList {
    fn add(&mut self, script: &str, mut family: Family) {
        family.put_label(SCRIPT, script);
        let same = |a: &Family, b: &Family| (&a.name, a.kind, a.unit, a.power) == (&b.name, b.kind, b.unit, b.power);
        // each name has only one type, also those of samples
        let clash = |all: &[Vec<Family>], family: &Family| {
            let names: Vec<String> = sample_names(&family.name, family.kind).collect();
            let is_taken = |first: &Family| sample_names(&first.name, first.kind).any(|name| names.contains(&name));
            all.iter().filter_map(|of| of.first()).any(|first| !same(first, family) && is_taken(first))
        };
        while clash(&self.0, &family) {
            family.name.push_str("_map");
        }
        match self.0.iter_mut().find(|of| of.first().is_some_and(|first| first.name == family.name)) {
            Some(of) => of.push(family),
            None => self.0.push(vec![family]),
        }
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
