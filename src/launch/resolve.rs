//! Finds the sites of a compiled script where it runs.
//!
//! A bundle has the attach points of programs whose code does not depend on where their sites are: functions and markers in
//! the files of this machine, and what a pattern matches in its kernel. The kinds find the places, as they do for the checker.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::codegen::artifact::{AttachSite, Expansion, Manifest, Program};
use crate::diag::{Diagnostic, Severity};
use crate::failure::Failure;
use crate::probes::search::{self, NO_MATCH, Place};
use crate::probes::{Attach, Env, ProgramType};
use crate::settings::MissingProbes;
use crate::value::Pos;

/// A message about an attach point.
#[derive(Debug)]
pub struct Finding {
    /// What is wrong.
    pub diagnostic: Diagnostic,
    /// Its place in the script.
    pub pos: Pos,
}

impl Finding {
    /// With its place in the script, whose text a bundle does not have.
    pub fn into_failure(self) -> Failure {
        let place = if self.pos.file.is_empty() { String::new() } else { format!("{}:{}: ", self.pos.file, self.pos.line) };
        let failure = Failure::new(format!("{place}{}", self.diagnostic.message)).code(self.diagnostic.code);
        Failure { help: self.diagnostic.help, ..failure }
    }
}

/// Replaces the sites of programs by those of this machine. The result has warnings.
///
/// # Errors
/// Attach points that are an error here; then the description is incomplete.
pub fn resolve(manifest: &mut Manifest, env: &Env) -> Result<Vec<Finding>, Vec<Finding>> {
    let mut probes: BTreeMap<u32, Vec<(usize, usize)>> = BTreeMap::new();
    for (index, program) in manifest.programs.iter().enumerate() {
        for (number, expansion) in program.expansions.iter().enumerate() {
            probes.entry(expansion.probe).or_default().push((index, number));
        }
    }
    let traced = traces(manifest);
    let mut findings = find_files_of_target(manifest, env);
    let mut lost = Vec::new();
    let mut found: BTreeMap<(usize, usize), Vec<AttachSite>> = BTreeMap::new();
    for members in probes.values() {
        let all: Vec<Member> = members.iter().filter_map(|member| Member::new(manifest, *member)).collect();
        let places = places(&all, env, &mut findings, &mut lost);
        match distribute(&all, places, env) {
            Ok(sites) => found.extend(members.iter().copied().zip(sites)),
            Err(finding) => findings.push(*finding),
        }
    }
    let is_error = |finding: &Finding| finding.diagnostic.severity == Severity::Error;
    if findings.iter().any(is_error) {
        findings.retain(is_error);
        return Err(findings);
    }
    for (index, program) in manifest.programs.iter_mut().enumerate().filter(|(_, program)| !program.expansions.is_empty()) {
        let before = program.clone();
        program.sites.clear();
        for (number, expansion) in program.expansions.iter_mut().enumerate() {
            let sites = found.remove(&(index, number)).unwrap_or_default();
            let old = (before.expansions.iter().take(number).map(|expansion| expansion.sites).sum(), expansion.sites);
            let new = (program.sites.len(), sites.len());
            manifest.hits.iter_mut().filter(|hits| (hits.program, hits.sites) == (index, old)).for_each(|hits| hits.sites = new);
            expansion.sites = sites.len();
            program.sites.extend(sites);
        }
        if let (ProgramType::KprobeSession, [entries, returns]) = (program.ty, paired(program))
            && entries.iter().map(|site| site.attach.kernel_function()).ne(returns.iter().map(|site| site.attach.kernel_function()))
        {
            let pos = entries.first().or(returns.first()).map(|site| site.pos.clone()).unwrap_or_default();
            findings.push(*differs(pos, format!("{} and the returns have other functions", program.name())));
        }
    }
    if findings.iter().any(is_error) {
        findings.retain(is_error);
        return Err(findings);
    }
    if traced && !traces(manifest) {
        let none = format!("this machine has none of the script's probes: {}", lost.join(", "));
        let finding = |diagnostic| Finding { diagnostic, pos: Pos::default() };
        if manifest.programs.iter().all(|program| program.sites.is_empty()) {
            return Err(vec![finding(Diagnostic::error("no-probes", Default::default(), "No probes to attach").help(none))]);
        }
        if env.settings.missing_probes == MissingProbes::Ignore {
            findings.push(finding(Diagnostic::warning("no-probes", Default::default(), none)));
        }
    }
    Ok(findings)
}

/// Finds the files of sites that are part of the code. The traced process may have another root directory than rbt. Returns errors.
fn find_files_of_target(manifest: &mut Manifest, env: &Env) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some(pid) = env.settings.pid else { return findings };
    for site in manifest.programs.iter_mut().filter(|program| program.expansions.is_empty()).flat_map(|program| &mut program.sites) {
        let Some(file) = site.attach.binary().and_then(Path::to_str) else { continue };
        match env.sys.resolve_binary(file, Some(pid)) {
            Ok(files) => files.into_iter().next().into_iter().for_each(|file| site.attach.set_binary(file.path)),
            Err(missing) => {
                let diagnostic = Diagnostic::error("unavailable", Default::default(), missing.what);
                let diagnostic = missing.help.into_iter().fold(diagnostic, Diagnostic::help);
                findings.push(Finding { diagnostic, pos: site.pos.clone() });
            }
        }
    }
    findings
}

/// The entries and returns of a session.
fn paired(program: &Program) -> [&[AttachSite]; 2] {
    let entries = program.expansions.first().map_or(0, |expansion| expansion.sites);
    let (entries, returns) = program.sites.split_at(entries.min(program.sites.len()));
    [entries, returns]
}

/// Does anything trace? `begin` and `end` run by themselves.
fn traces(manifest: &Manifest) -> bool {
    manifest.programs.iter().flat_map(|program| &program.sites).any(|site| !matches!(site.attach, Attach::Begin | Attach::End))
}

/// A program that serves sites of a probe, with the sites for which it was compiled.
struct Member<'a> {
    expansion: &'a Expansion,
    built: &'a [AttachSite],
    names: BTreeSet<&'a str>,
}

impl<'a> Member<'a> {
    fn new(manifest: &'a Manifest, (program, number): (usize, usize)) -> Option<Self> {
        let Program { expansions, sites, .. } = manifest.programs.get(program)?;
        let first = expansions.iter().take(number).map(|expansion| expansion.sites).sum();
        let expansion = expansions.get(number)?;
        let built = sites.get(first..)?.get(..expansion.sites)?;
        Some(Self { expansion, built, names: built.iter().map(|site| site.name.as_str()).collect() })
    }

    /// The attachment of its code at a place that none of its sites need be.
    fn attach(&self, place: &Place, env: &Env) -> Option<Attach> {
        let built = self.built.iter().find(|site| site.name == place.name).or(self.built.first())?;
        search::attach_like(&built.attach, &place.attach, self.expansion.reads_args, env.sys)
    }
}

/// The places of a probe's attach points, in order. Those that do not exist here are added to `lost`.
fn places(members: &[Member], env: &Env, findings: &mut Vec<Finding>, lost: &mut Vec<String>) -> Vec<(Place, Pos)> {
    let in_user_space = members.iter().flat_map(|member| member.built).any(|site| site.attach.binary().is_some());
    let (mut found, mut absent) = (Vec::new(), Vec::new());
    for point in members.first().map_or(&[][..], |member| &member.expansion.points) {
        let written = point.attach_point();
        match search::find(&written, env) {
            Ok(places) => found.extend(places.into_iter().map(|place| (place, point.pos.clone()))),
            Err(why) => {
                let diagnostic = search::tolerated(why, in_user_space, env.settings);
                if diagnostic.as_ref().is_none_or(|d| d.severity == Severity::Warning) {
                    lost.push(search::written(&written));
                }
                absent.extend(diagnostic.map(|diagnostic| Finding { diagnostic, pos: point.pos.clone() }));
            }
        }
    }
    // a pattern without matches is no error beside others
    let names: Vec<&str> = found.iter().map(|(place, _)| place.name.as_str()).collect();
    findings.extend(absent.into_iter().map(|mut finding| {
        if finding.diagnostic.code == NO_MATCH && !names.is_empty() {
            finding.diagnostic.severity = Severity::Warning;
        }
        Finding { diagnostic: search::with_alternative(finding.diagnostic, &names), ..finding }
    }));
    found
}

/// The sites of each program of a probe.
fn distribute(members: &[Member], places: Vec<(Place, Pos)>, env: &Env) -> Result<Vec<Vec<AttachSite>>, Box<Finding>> {
    let site = |place: &Place, pos: &Pos, attach| AttachSite { name: place.name.clone(), attach, pos: pos.clone() };
    let mut places: Vec<Option<(Place, Pos)>> = places.into_iter().map(Some).collect();
    let mut sites: Vec<Vec<AttachSite>> = Vec::new();
    for member in members {
        let mut of_it = Vec::new();
        for built in member.built.iter().filter(|_| !member.expansion.varies) {
            let attach = |place: &Place| {
                let same = place.name == built.name;
                same.then(|| search::attach_like(&built.attach, &place.attach, true, env.sys)).flatten()
            };
            let found = places.iter_mut().find_map(|slot| {
                let (place, pos) = slot.as_ref()?;
                let found = site(place, pos, attach(place)?);
                *slot = None;
                Some(found)
            });
            of_it.extend(found);
        }
        // the code knows its sites by number
        if let Some(first) = member.built.first().filter(|_| !of_it.is_empty() && of_it.len() < member.built.len()) {
            return Err(differs(
                first.pos.clone(),
                format!("this machine has other sites for {} and {} more", first.name, member.built.len() - 1),
            ));
        }
        sites.push(of_it);
    }
    for (place, pos) in places.into_iter().flatten() {
        let index = |by_name: bool, has_room: bool| {
            let mut varying = members.iter().enumerate().filter(|(_, member)| member.expansion.varies);
            let wanted = |index: usize, member: &Member| {
                let of_it = sites.get(index).map_or(0, Vec::len);
                (!by_name || member.names.contains(place.name.as_str())) && (!has_room || of_it < member.built.len())
            };
            varying.find_map(|(index, member)| Some((index, member.attach(&place, env).filter(|_| wanted(index, member))?)))
        };
        // on old kernels, each place of a marker has a program
        let Some((index, attach)) = index(true, true).or_else(|| index(true, false)).or_else(|| index(false, false)) else {
            let elsewhere = members.iter().any(|member| member.expansion.reads_args) && matches!(place.attach, Attach::Usdt { .. });
            let why = if elsewhere { ": its arguments are elsewhere than at the build" } else { "" };
            return Err(differs(pos, format!("the bundle has no code for {}{why}", place.name)));
        };
        if let Some(of_it) = sites.get_mut(index) {
            of_it.push(site(&place, &pos, attach));
        }
    }
    Ok(sites)
}

fn differs(pos: Pos, what: String) -> Box<Finding> {
    let help = "build it on a machine like this one, or run the script with rbt";
    Box::new(Finding { diagnostic: Diagnostic::error("bundle", Default::default(), what).help(help), pos })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen;
    use crate::emit::Dumps;
    use crate::frontend::check_text;
    use crate::settings::{Invocation, LateBound, Settings};
    use crate::system::TargetInfo;
    use crate::system::fake::Fake;
    use crate::system::portability::varied::VariedTarget;

    const HERE: &str = "binary /bin/demo { main 0x1000 32; help_a 0x1040 16; }
        tracepoint a:one { int n; } tracepoint a:two { int n; } feature PerfCookie; feature UprobeMulti;";
    const THERE: &str = "binary /bin/demo { main 0x2000 32; help_a 0x2080 16; help_b 0x20c0 16; }
        tracepoint a:two { int n; } tracepoint a:three { int n; } feature PerfCookie; feature UprobeMulti;";

    /// The description of a script that was compiled for `HERE`.
    fn built(script: &str, varies: bool) -> Manifest {
        let (fake, settings) = (Fake::new(HERE).unwrap(), Settings::default());
        let invocation = Invocation { late_bound: LateBound::new(true, []), ..Invocation::default() };
        let env = Env { sys: &fake, settings: &settings, invocation: &invocation };
        let checked = check_text("s.bt", script, &env).unwrap();
        let mut manifest = codegen::compile(&checked.script, &env, &[], Dumps::default()).unwrap().artifact.manifest;
        manifest.programs.iter_mut().flat_map(|program| &mut program.expansions).for_each(|expansion| expansion.varies = varies);
        manifest
    }

    /// The sites of its programs on a machine, or the codes of errors.
    fn resolved(mut manifest: Manifest, machine: &str, missing_probes: MissingProbes) -> Result<Vec<String>, Vec<&'static str>> {
        let (fake, settings) = (Fake::new(machine).unwrap(), Settings { missing_probes, ..Settings::default() });
        let found = resolve(&mut manifest, &Env::new(&fake, &settings));
        found.map_err(|findings| findings.iter().map(|finding| finding.diagnostic.code).collect::<Vec<_>>())?;
        manifest.check().unwrap();
        let site = |site: &AttachSite| match site.attach.file_location() {
            Some(place) => format!("{} {:#x}", site.name, place.offset),
            None => site.name.clone(),
        };
        Ok(manifest.programs.iter().map(|program| program.sites.iter().map(site).collect::<Vec<_>>().join(", ")).collect())
    }

    #[test]
    fn finds_places_in_other_files() {
        let manifest = || built("uprobe:/bin/demo:main { @ = count(); } uprobe:/bin/demo:help_* { @m[probe] = count(); }", true);
        let all = resolved(manifest(), THERE, MissingProbes::Error).unwrap();
        assert_eq!(all, ["uprobe:/bin/demo:main 0x2000", "uprobe:/bin/demo:help_a 0x2080, uprobe:/bin/demo:help_b 0x20c0"]);
        let before = resolved(manifest(), HERE, MissingProbes::Error).unwrap();
        assert_eq!(before, ["uprobe:/bin/demo:main 0x1000", "uprobe:/bin/demo:help_a 0x1040"]);
    }

    #[test]
    fn gives_each_program_its_share() {
        // on kernels without cookies, each place of a marker has a program
        let mut manifest = built("uprobe:/bin/demo:main { @ = count(); }", true);
        manifest.programs.push(manifest.programs[0].clone());
        let (fake, settings) = (Fake::new(THERE).unwrap(), Settings::default());
        let env = Env::new(&fake, &settings);
        let all: Vec<Member> = [(0, 0), (1, 0)].into_iter().filter_map(|member| Member::new(&manifest, member)).collect();
        let (mut findings, mut lost) = (Vec::new(), Vec::new());
        let found = places(&all, &env, &mut findings, &mut lost);
        let twice: Vec<(Place, Pos)> = found.iter().chain(&found).cloned().collect();
        let counts: Vec<usize> = distribute(&all, twice, &env).unwrap().iter().map(Vec::len).collect();
        assert_eq!(counts, [1, 1]);
    }

    #[test]
    fn finds_what_a_pattern_matches() {
        let manifest = |varies| built("tracepoint:a:* { @[probe] = count(); }", varies);
        assert_eq!(resolved(manifest(true), THERE, MissingProbes::Error).unwrap(), ["tracepoint:a:three, tracepoint:a:two"]);
        // the code has the names, by number
        assert_eq!(resolved(manifest(false), THERE, MissingProbes::Error).unwrap_err(), ["bundle"]);
        assert_eq!(resolved(manifest(false), HERE, MissingProbes::Error).unwrap(), ["tracepoint:a:one, tracepoint:a:two"]);
    }

    #[test]
    fn finds_system_calls_of_later_kernels() {
        let events = |calls: &[&str]| -> String {
            let event = |call: &&str| format!("tracepoint syscalls:sys_exit_{call} {{ int __syscall_nr; long ret; }} ");
            calls.iter().map(event).chain(["feature PerfCookie;".into()]).collect()
        };
        let (fake, settings) = (Fake::new(&events(&["read", "recvfrom", "sendto"])).unwrap(), Settings::default());
        let sys = VariedTarget::with_later_calls(&fake);
        let invocation = Invocation { late_bound: LateBound::new(true, []), ..Invocation::default() };
        let built = |sys: &dyn TargetInfo| {
            let env = Env { sys, settings: &settings, invocation: &invocation };
            let script = "tracepoint:syscalls:sys_exit_* /args.ret < 0/ { @[probe] = count(); }";
            let checked = check_text("s.bt", script, &env).unwrap();
            let script = codegen::lower(checked.script, &env);
            let mut manifest = codegen::compile(&script, &env, &[], Dumps::default()).unwrap().artifact.manifest;
            manifest.programs.iter_mut().flat_map(|program| &mut program.expansions).for_each(|expansion| expansion.varies = true);
            manifest
        };
        assert!(built(&fake).lacks_later_calls() && !built(&sys).lacks_later_calls());
        let there = events(&["read", "a_new_call", "sendto", "write"]);
        let name = |call: &str| format!("tracepoint:syscalls:sys_exit_{call}");
        let all = resolved(built(&sys), &there, MissingProbes::Error).unwrap();
        assert_eq!(all, [["read", "sendto", "write"].map(name).join(", "), name("a_new_call")]);
        assert_eq!(resolved(built(&fake), &there, MissingProbes::Error).unwrap_err(), ["bundle"]);
        // no kernel has the one that stands for them
        assert_eq!(resolved(built(&sys), &events(&["read", "sendto"]), MissingProbes::Error).unwrap()[1], "");
    }

    #[test]
    fn reports_what_is_missing() {
        let manifest = || built("begin { exit(); } uprobe:/bin/demo:help_a { @ = count(); } tracepoint:a:one { @a = count(); }", true);
        assert_eq!(resolved(manifest(), "tracepoint a:one { int n; }", MissingProbes::Error).unwrap_err(), ["unavailable"]);
        let without = "binary /bin/demo { main 0x1000 32; } tracepoint a:one { int n; }";
        assert_eq!(resolved(manifest(), without, MissingProbes::Error).unwrap_err(), ["unknown-symbol"]);
        assert_eq!(resolved(manifest(), without, MissingProbes::Warn).unwrap(), ["begin", "", "tracepoint:a:one"]);
        let none = built("tracepoint:a:one { @a = count(); }", true);
        assert_eq!(resolved(none, "tracepoint a:two { int n; }", MissingProbes::Ignore).unwrap_err(), ["no-probes"]);
    }
}
