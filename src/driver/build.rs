//! `rbt build`: compiles a script to a bundle.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;

use super::relocate::{Fixed, Template, template};
use super::{compile, start};
use crate::bundle::{About, Bundle, Variant};
use crate::cli::build::Build;
use crate::codegen::{self, artifact::Artifact};
use crate::diag;
use crate::emit::Dumps;
use crate::failure::{Failure, reason};
use crate::frontend::args::{check_script_args, help_of_script};
use crate::frontend::explain::{REFUSED, explain, unserved};
use crate::frontend::require::require_privileges;
use crate::frontend::{self, Checked, Frontend};
use crate::input;
use crate::metrics::Names;
use crate::probes::Env;
use crate::runtime::{self, Options};
use crate::sema;
use crate::settings::{Mechanism, Settings};
use crate::streams::{WholeFile, not_written, to_stderr, to_stdout};
use crate::syntax::ast;
use crate::system::machine::live::Live;
use crate::system::portable::Part;
use crate::system::questions::{Record, Recorder};
use crate::system::varied::{Machine, Varied};
use crate::system::{Feature, TargetInfo};
use crate::tools::Header;

/// Compiles a script and writes its bundle.
pub(super) fn build(asked: &Build) -> Result<u8, Failure> {
    let run = &*asked.run;
    let mut front = Frontend::new(run);
    front.read(&run.program)?;
    let tree = front.parse()?;
    check_script_args(run, &front, &tree)?;
    if let Some(text) = help_of_script(&front, &tree) {
        return to_stdout(|out| out.write_all(diag::plain_lines(&text).as_bytes()));
    }
    // features of the kernel are found by trying
    require_privileges()?;
    let sys = Live::with_functions(run.traceable_functions.clone()).with_debug_dirs(&run.settings.debug_dirs);
    let bundle = bundle(&mut front, &tree, &sys, asked.here)?;
    let mut bytes = bundle.to_bytes()?;
    if asked.exe {
        bytes = Bundle::attached(&runner()?, &bytes);
    }
    let place = asked.to.display().to_string();
    let mut file = WholeFile::create(&asked.to).map_err(|e| not_written(&place, &e))?;
    file.write_all(&bytes).and_then(|()| file.commit()).map_err(|e| not_written(&place, &e))?;
    if asked.exe {
        fs::set_permissions(&asked.to, Permissions::from_mode(0o755)).map_err(|e| not_written(&place, &e))?;
    }
    if !run.quiet {
        to_stderr(&format!("Wrote {place}: {} KiB\n", bytes.len().div_ceil(1024)));
    }
    Ok(0)
}

/// Compiles the script: for the kernel of this machine, and for others.
fn bundle(front: &mut Frontend, tree: &ast::Script, sys: &Live, here_only: bool) -> Result<Bundle, Failure> {
    let run = front.run;
    let mut fixed = Fixed::default();
    let own = Machine { namespace: sys.pid_namespace(), cpus: sys.possible_cpus() };
    let (checked, first) = compiled(front, tree, sys, own, &mut fixed)?;
    // what does not matter for this kernel does not matter for others
    let namespaces =
        if first.requirements.knows(&Part::Namespace) { BTreeSet::from([own.namespace, None]) } else { [own.namespace].into() };
    let cpus = if first.requirements.knows(&Part::Cpus) { BTreeSet::from([own.cpus, MANY_CPUS]) } else { [own.cpus].into() };
    let machines: Vec<Machine> =
        namespaces.iter().flat_map(|namespace| cpus.iter().map(|cpus| Machine { namespace: *namespace, cpus: *cpus })).collect();
    let mut variants = vec![first];
    let kinds = if here_only { Vec::new() } else { kinds(sys) };
    for (kind, machine) in kinds.iter().flat_map(|kind| machines.iter().map(move |machine| (kind, *machine))) {
        if kind.lacks.is_empty() && machine == own {
            continue;
        }
        let made = quietly(front, tree, sys, kind, machine, &mut fixed);
        variants.extend(made.filter(|made| !variants.iter().any(|known| known.is_same(made))));
    }
    let mut script = start::described(run, &checked, front, None);
    script.text.clear();
    script.metrics = Names::of(front.sources.iter().map(|source| source.text.as_str()));
    let about = About { kernel: kernel(), risky: checked.settings.allow_unsafe, help: help(front, tree, &checked) };
    Ok(Bundle::new(variants, &checked.settings, script, sys, about))
}

/// Of a machine that is larger than this one: one with more can run it only if their number does not matter.
const MANY_CPUS: u32 = 1024;

/// A kind of kernel.
struct Kind {
    name: String,
    lacks: BTreeSet<Feature>,
    /// What is not used, because it differs between kernels.
    without: &'static [Mechanism],
}

/// Kinds of kernels, the best one first.
fn kinds(sys: &dyn TargetInfo) -> Vec<Kind> {
    let mut kinds = vec![Kind { name: this_kernel(), lacks: BTreeSet::new(), without: &[] }];
    for (version, newer, without) in NEWER {
        let lacks: BTreeSet<Feature> = newer.iter().flat_map(|features| features.iter().copied()).collect();
        // they differ if this machine has one of those
        if lacks.iter().any(|feature| sys.has(*feature) != feature.is_limit()) {
            kinds.push(Kind { name: format!("kernels like {version}"), lacks, without });
        }
    }
    kinds
}

fn this_kernel() -> String {
    format!("Linux {}", kernel())
}

/// Compiles, with messages.
fn compiled(
    front: &mut Frontend,
    tree: &ast::Script,
    sys: &Live,
    machine: Machine,
    fixed: &mut Fixed,
) -> Result<(Checked, Variant), Failure> {
    let target = &Varied::without(sys, BTreeSet::new(), machine);
    let mut without = Vec::new();
    loop {
        let recorder = Recorder::new(target);
        let mut checked = front.check(tree, &recorder)?;
        checked.settings.no_features.extend(&without);
        let compiled = compile(&checked, &recorder, front, false)?;
        let asked = recorder.portable().map_err(|what| {
            Failure::new(format!("the script needs {what}, which holds for this machine only, so it cannot be built")).code("bundle")
        })?;
        let artifact = &compiled.artifact;
        let made = variant(front, tree, target, &without, (asked, artifact), fixed).named(this_kernel());
        let artifact =
            made.artifact(target).map_err(|e| Failure::new(format!("the bundle does not run on this kernel: {e}")).code("bundle"))?;
        // What this kernel refuses, another one with the same answers refuses as well.
        let Err(e) = runtime::load(&artifact, &checked.settings, sys, Options::default()).map(drop) else { return Ok((checked, made)) };
        let mechanisms = unserved(&e, &compiled, &checked, sys);
        if mechanisms.is_empty() {
            return Err(explain(&e, REFUSED, &compiled, &checked.script, front));
        }
        without.extend(mechanisms);
    }
}

/// Compiles for another kind of kernel; none if the script does not run there.
fn quietly(front: &Frontend, tree: &ast::Script, sys: &Live, kind: &Kind, machine: Machine, fixed: &mut Fixed) -> Option<Variant> {
    let target = Varied::without(sys, kind.lacks.clone(), machine);
    let recorder = Recorder::new(&target);
    let (settings, artifact) = silent(front, tree, kind.without)(&recorder)?;
    let asked = recorder.portable().ok()?;
    let made = variant(front, tree, &target, kind.without, (asked, &artifact), fixed).named(kind.name.clone());
    let artifact = made.artifact(&target).ok()?;
    runtime::load(&artifact, &settings, sys, Options::default()).ok()?;
    Some(made)
}

/// With relocations and requirements.
fn variant(
    front: &Frontend,
    tree: &ast::Script,
    target: &dyn TargetInfo,
    without: &[Mechanism],
    (asked, artifact): (Record, &Artifact),
    fixed: &mut Fixed,
) -> Variant {
    let again = silent(front, tree, without);
    let compile = |sys: &dyn TargetInfo| again(sys).map(|(_, artifact)| artifact);
    let mentions = |name: &str| front.sources.iter().any(|source| source.text.contains(name));
    let Template { artifact, relocations, requirements } = template(&compile, target, asked, artifact, &mentions, fixed);
    Variant::new(artifact, relocations, requirements)
}

/// Compiles without messages; none if the script does not fit the target.
fn silent<'a>(
    front: &'a Frontend,
    tree: &'a ast::Script,
    without: &'a [Mechanism],
) -> impl Fn(&dyn TargetInfo) -> Option<(Settings, Artifact)> + use<'a> {
    let given = front.settings(tree);
    move |sys| {
        let (settings, warnings) = given.as_ref().ok()?.clone();
        let mut checked = frontend::check(tree, sys, settings, warnings).ok()?;
        checked.settings.no_features.extend(without);
        let script = codegen::lower(checked.script, &Env { sys, settings: &checked.settings });
        let made = codegen::compile(&script, &checked.settings, sys, &front.sources, Dumps::default()).ok()?;
        Some((checked.settings, made.artifact))
    }
}

/// The features that came after a version of Linux, and what is then not used: raw tracepoints have had other arguments.
const NEWER: [(&str, &[&[Feature]], &[Mechanism]); 2] =
    [("6.1", &[AFTER_6_1], &[]), ("5.10", &[AFTER_6_1, AFTER_5_10], &[Mechanism::RawTracepoint, Mechanism::Fentry])];
const AFTER_6_1: &[Feature] = &[
    Feature::CpuV4,
    Feature::UprobeMulti,
    Feature::RawTracepointCookie,
    Feature::KprobeSession,
    Feature::ManyArguments,
    Feature::SharedStacks,
];
const AFTER_5_10: &[Feature] = &[
    Feature::PerfCookie,
    Feature::Loop,
    Feature::Fetch,
    Feature::SleepingUprobes,
    Feature::NumberPointers,
    Feature::ForEach,
    Feature::AllocatesAnywhere,
    Feature::PercpuLookup,
    Feature::Tai,
    Feature::AncestorCgroup,
    Feature::ShortKeys,
    Feature::KprobeMulti,
    Feature::RecursionCheck,
    Feature::StructArguments,
];

/// The program that runs bundles, of the same version: it is beside rbt.
fn runner() -> Result<Vec<u8>, Failure> {
    const HELP: &str = "install rbt-run in the directory of rbt";
    let own = std::env::current_exe().map_err(|e| Failure::new(format!("--exe: rbt does not find its own file: {}", reason(&e))))?;
    let path = own.with_file_name("rbt-run");
    let cannot =
        |e: io::Error| Failure::new(format!("--exe: cannot read {}: {}", path.display(), reason(&e))).code("not-readable").help(HELP);
    let bytes = input::read(&path, input::LIST).map_err(cannot)?;
    match Bundle::of_program(&mut io::Cursor::new(&bytes)) {
        Ok(None) => Ok(bytes),
        Ok(Some(_)) | Err(_) => Err(Failure::new(format!("--exe: {} has a bundle in it already", path.display())).help(HELP)),
    }
}

fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// What the bundle is, for its user.
fn help(front: &Frontend, tree: &ast::Script, checked: &Checked) -> String {
    let text = front.sources.first().map_or("", |source| source.text.as_str());
    let header = Header::of(text);
    let mut lines: Vec<String> = [header.purpose].into_iter().chain(header.more.iter().copied()).map(String::from).collect();
    if header.purpose.is_empty() {
        lines = vec![format!("A compiled script: {}", front.sources.first().map_or("", |source| source.name.as_str()))];
    }
    let options = sema::options(tree);
    let given = &checked.settings.invocation;
    let given: Vec<String> = (given.options.iter())
        .map(|(name, value)| value.as_ref().map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}")))
        .chain(given.params.iter().cloned())
        .collect();
    if !given.is_empty() {
        lines.push(String::new());
        lines.push(format!("Built with {}", given.join(" ")));
    } else if !options.is_empty() {
        lines.push(String::new());
        lines.push("Built with the defaults of its options".into());
    }
    lines.join("\n")
}
