//! `rbt build`: compiles a script to a bundle.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

use super::late_bound;
use super::relocate::{FixedParts, Template, template};
use super::{compile, start};
use crate::builtins::options::RunArguments;
use crate::bundle::{AbsentPoint, Bundle, BundleInfo, CheckedKernel, Variant};
use crate::cli::build::{Build, Runner};
use crate::cli::{Action, Run};
use crate::codegen::{self, artifact::Artifact};
use crate::compat;
use crate::diag::{self, Diagnostic, Diagnostics, Severity, Source};
use crate::emit::Dumps;
use crate::exe;
use crate::failure::{Failure, reason};
use crate::frontend::args::{check_script_args, help_of_script};
use crate::frontend::c_headers::Headers;
use crate::frontend::explain::{REFUSED, chosen_mechanisms, explain, explain_silently, not_compiled, refused_mechanisms};
use crate::frontend::{self, Checked, Frontend};
use crate::input;
use crate::launch::require::require_privileges;
use crate::launch::resolve::resolve;
use crate::probes::{Env, search};
use crate::progress::Progress;
use crate::render;
use crate::runtime::{self, Options};
use crate::sema;
use crate::settings::Mechanism;
use crate::state::hex;
use crate::streams::{AtomicFile, not_written, to_stderr, to_stdout};
use crate::syntax::ast;
use crate::system::machine::arch::{Arch, HERE};
use crate::system::machine::live::Live;
use crate::system::portability::answers::Part;
use crate::system::portability::questions::{Record, Recorder};
use crate::system::portability::varied::{Machine, RenamedMember, VariedTarget};
use crate::system::snapshot::{Snapshot, script_digest};
use crate::system::{Feature, TargetInfo};
use crate::terminal::{self, paint};
use crate::tools::Header;
use crate::types::Type;

impl Action for Build {
    fn color(&self) -> bool {
        self.run.color
    }

    fn run(&self) -> Result<u8, Failure> {
        build(self)
    }
}

/// Compiles a script and writes its bundle.
fn build(args: &Build) -> Result<u8, Failure> {
    let run = &*args.run;
    let snapshots = if args.against.is_empty() { Vec::new() } else { compat::snapshots(&args.against)? };
    let mut front = Frontend::new(run);
    if args.arch.name != HERE.name {
        let described = require_foreign(args, &snapshots)?;
        front.headers = Headers::of_snapshot(&run.settings.include_dirs, described, described.scripts().is_none());
    }
    front.read(&run.program)?;
    let tree = front.parse()?;
    check_script_args(run, &front, &tree)?;
    if let Some(text) = help_of_script(&front, &tree) {
        return to_stdout(|out| out.write_all(diag::plain_lines(&text).as_bytes()));
    }
    if args.arch.name == HERE.name {
        // testing the features of the kernel needs privileges
        require_privileges()?;
    }
    let sys = live(run);
    let bundle = bundle(&mut front, &tree, (&sys, &snapshots), args)?;
    let mut bytes = bundle.to_bytes()?;
    if args.exe {
        bytes = program(args, &bundle, &bytes)?;
    }
    let place = args.output.display().to_string();
    let mut file = AtomicFile::create(&args.output).map_err(|e| not_written(&place, &e))?;
    let written = file.write_all(&bytes).and_then(|()| if args.exe { file.make_executable() } else { Ok(()) });
    written.and_then(|()| file.commit()).map_err(|e| not_written(&place, &e))?;
    if run.warnings {
        for (program, file) in bundle.fixed_files() {
            warn_of_file(&sys, &program, file, run.color);
        }
    }
    if !run.quiet {
        for what in bundle.fixed() {
            to_stderr(&diag::plain_lines(&format!("note: the code depends on {what}, which must be the same where it runs\n")));
        }
        to_stderr(&format!("Wrote {place}: {} KiB\n", bytes.len().div_ceil(1024)));
    }
    Ok(bundle.kernels.iter().any(|kernel| kernel.why_not.is_some()).into())
}

fn live(run: &Run) -> Live {
    Live::with_functions(run.traceable_functions.clone()).with_debug_dirs(&run.settings.debug_dirs)
}

/// Warns that code depends on the contents of a file, such as its debug information, which do not travel.
fn warn_of_file(sys: &Live, program: &str, file: &Path, color: bool) {
    let id = sys.binary(file).map(|binary| hex(&binary.build_id)).unwrap_or_default();
    let same = match id.as_str() {
        "" => "the same contents, because it has no build ID".into(),
        id => format!("the same build ID, {id}"),
    };
    let text = format!("{program}: the code depends on the contents of {}, so rbt-run requires a file with {same}", file.display());
    to_stderr(&format!("{} {}\n", paint("warning:", terminal::WARNING, color), diag::plain(&text)));
}

/// Rejects what needs a machine of the other architecture. Returns a kernel for it.
fn require_foreign<'a>(args: &Build, snapshots: &'a [(String, Snapshot)]) -> Result<&'a Snapshot, Failure> {
    let name = args.arch.name;
    let Some((_, described)) = snapshots.iter().find(|(_, snapshot)| snapshot.arch().name == name) else {
        return Err(Failure::new(format!("this machine does not know the kernels for {name}"))
            .code("bundle")
            .help("describe one: run `rbt snapshot -o FILE` on such a machine, and add --against FILE"));
    };
    Ok(described)
}

/// Compiles the script: for the kernel of this machine, and for others.
fn bundle(
    front: &mut Frontend,
    tree: &ast::Script,
    (sys, snapshots): (&Live, &[(String, Snapshot)]),
    args: &Build,
) -> Result<Bundle, Failure> {
    let run = front.run;
    let mut kernels_of_arch = snapshots.iter().map(|(_, snapshot)| snapshot).filter(|snapshot| snapshot.arch().name == args.arch.name);
    let described = kernels_of_arch.next();
    let runs_here = args.arch.name == HERE.name && (snapshots.is_empty() || compile_silently(front, tree, &[])(sys).is_ok());
    late_bound::choose(front, tree, described.filter(|_| !runs_here).map_or(sys as &dyn TargetInfo, |snapshot| snapshot))?;
    let progress = Progress::on_stderr();
    let mut fixed = FixedParts::default();
    let this_machine = Machine { namespace: sys.pid_namespace(), cpus: sys.possible_cpus() };
    let mut checked = None;
    let mut variants = Vec::new();
    // a script for other kernels need not fit this one
    if runs_here {
        match compile_variant(front, tree, sys, this_machine, &mut fixed, (&progress, !snapshots.is_empty())) {
            Ok((here, first)) => {
                checked = Some(here);
                variants.push(first);
            }
            Err(failure) if snapshots.is_empty() => return Err(failure),
            Err(failure) if run.warnings => progress.aside(|| {
                let text = format!("the script does not run on this kernel: {}", failure.message);
                to_stderr(&format!("{} {}\n", paint("warning:", terminal::WARNING, run.color), diag::plain(&text)));
            }),
            Err(_) => {}
        }
    }
    // a part that does not matter for this kernel does not matter for others either
    let knows = |part: &Part| variants.first().is_none_or(|first: &Variant| first.requirements.knows(part));
    let namespaces = if knows(&Part::Namespace) { BTreeSet::from([this_machine.namespace, None]) } else { [this_machine.namespace].into() };
    let cpus = if knows(&Part::Cpus) { BTreeSet::from([this_machine.cpus, MANY_CPUS]) } else { [this_machine.cpus].into() };
    let machines: Vec<Machine> =
        namespaces.iter().flat_map(|namespace| cpus.iter().map(|cpus| Machine { namespace: *namespace, cpus: *cpus })).collect();
    let kinds = if args.this_kernel || variants.is_empty() { Vec::new() } else { kinds(sys) };
    // an empty root directory, for example, has no /sys
    let (bare, without_types) = (Kind::without_types(), live(run).without_types());
    let targets = kinds.iter().map(|kind| (sys, kind)).chain((!kinds.is_empty()).then_some((&without_types, &bare)));
    for ((sys, kind), machine) in targets.flat_map(|target| machines.iter().map(move |machine| (target, *machine))) {
        if kind.missing_features.is_empty() && machine == this_machine {
            continue;
        }
        progress.at(&compiling_for(&kind.name));
        let compiled_variant = try_variant(front, tree, sys, kind, machine, &mut fixed);
        variants.extend(compiled_variant.filter(|compiled_variant| !variants.iter().any(|known| known.is_same(compiled_variant))));
    }
    let mut kernels = Vec::new();
    for (name, snapshot) in snapshots {
        let release = snapshot.about().release.clone();
        progress.at(&compiling_for(name));
        let fits = |machine: &Machine| compile_to_fit(front, tree, (snapshot, args.arch), &release, *machine, &mut variants, &mut fixed);
        let compiled_variant: Result<Vec<Checked>, String> = machines.iter().map(fits).collect();
        let mut unknown = Vec::new();
        let why_not = match compiled_variant {
            Ok(of) => {
                unknown = of.first().map(|checked| compat::unknown_conditions(&checked.script, snapshot)).unwrap_or_default();
                checked = checked.or(of.into_iter().next());
                None
            }
            Err(why) if lacks_description(front, tree, snapshot) => {
                let message =
                    format!("the snapshot {name} was made for other scripts or an older version of this one, and lacks something: {why}");
                return Err(Failure::new(message)
                    .code("bundle")
                    .help("create the snapshot again for this script: `rbt snapshot --for SCRIPTS`"));
            }
            Err(why) => Some(why),
        };
        kernels.push(CheckedKernel { name: name.clone(), release, why_not, unknown });
    }
    drop(progress);
    report(&kernels, run.quiet);
    let Some(checked) = checked else {
        return Err(Failure::new("the script runs neither on this kernel nor on the others").code("bundle"));
    };
    let mut script = start::described(run, &checked, front, None)?;
    script.text.clear();
    script.metrics = start::metric_names(&checked, front)?;
    let arguments = RunArguments::new(&sema::options(tree), &front.late_bound);
    let help = help(front, &checked, &arguments);
    let (kernel, sys) = match described {
        Some(snapshot) if args.arch.name != HERE.name => (snapshot.about().release.clone(), snapshot as &dyn TargetInfo),
        Some(_) | None => (kernel(), sys as &dyn TargetInfo),
    };
    let about = BundleInfo { kernel, risky: checked.settings.allow_unsafe, help, arguments, kernels };
    Ok(Bundle::new(variants, &checked.env(sys), script, about))
}

/// Was a snapshot made for other scripts, so that what it lacks may exist?
fn lacks_description(front: &Frontend, tree: &ast::Script, snapshot: &Snapshot) -> bool {
    let is_of_others = snapshot.scripts().is_some_and(|those| !those.contains(&script_digest(&front.sources)));
    let errors = || {
        let (settings, invocation, warnings) = front.settings(tree).ok()?;
        frontend::check(tree, snapshot, settings, invocation, warnings).err()
    };
    // a warning may tell of what is missing, and the error of what follows from it
    is_of_others && errors().is_some_and(|all| all.0.iter().any(|d| compat::is_absence(d.code)))
}

/// Finds a variant for a kernel, or compiles one.
///
/// # Errors
/// Why the script does not run on it.
fn compile_to_fit(
    front: &Frontend,
    tree: &ast::Script,
    (snapshot, arch): (&Snapshot, &Arch),
    release: &str,
    machine: Machine,
    variants: &mut Vec<Variant>,
    fixed: &mut FixedParts,
) -> Result<Checked, String> {
    if snapshot.arch().name != arch.name {
        return Err(format!("the bundle is for {}, the kernel for {}", arch.name, snapshot.arch().name));
    }
    let target = VariedTarget::without(snapshot, BTreeSet::new(), machine);
    let without: &[Mechanism] = if target.has(Feature::Trampoline) { &[] } else { &[Mechanism::Fentry] };
    let compiled = compile_silently(front, tree, without)(&target);
    let runs = |variant: &Variant, checked: &Checked| {
        let Ok(mut artifact) = variant.artifact(&target) else { return false };
        let is_loaded = compat::unmet_need(&artifact, &checked.settings, &target).is_none();
        is_loaded && resolve(&mut artifact.manifest, &checked.env(&target)).is_ok()
    };
    let (checked, artifact) = compiled?;
    if let Some(fitting) = variants.iter().position(|variant| runs(variant, &checked)) {
        // the variant for this machine may lack a mechanism of that kernel, such as kprobe.multi
        let same_mechanisms = variants.get(fitting).is_some_and(|variant| variant.has_programs_of(&artifact));
        if !same_mechanisms && let Ok((_, better)) = variant_for(front, tree, &target, release, without, fixed) {
            variants.insert(fitting, better);
        }
        return Ok(checked);
    }
    if let Some(need) = compat::unmet_need(&artifact, &checked.settings, &target) {
        return Err(need);
    }
    let (checked, compiled) = variant_for(front, tree, &target, release, without, fixed)?;
    variants.push(compiled);
    let chosen = chosen_mechanisms(&artifact, &target);
    if !chosen.is_empty() {
        // the kernel may refuse these mechanisms, which only loading shows
        let without = [without, &chosen].concat();
        variants.extend(variant_for(front, tree, &target, release, &without, fixed).ok().map(|(_, compiled)| compiled));
    }
    Ok(checked)
}

/// Compiles a variant for a kernel without these mechanisms.
///
/// # Errors
/// Why the script does not run on it.
fn variant_for(
    front: &Frontend,
    tree: &ast::Script,
    target: &VariedTarget,
    release: &str,
    without: &[Mechanism],
    fixed: &mut FixedParts,
) -> Result<(Checked, Variant), String> {
    let recorder = Recorder::new(target);
    let (checked, artifact) = compile_silently(front, tree, without)(&recorder)?;
    let record = recorder.portable().map_err(|what| format!("the script needs {what}, which holds for one machine only"))?;
    let compiled = variant(front, tree, &checked.env(target), without, (record, &artifact), fixed);
    let compiled = compiled.with_target(format!("Linux {release}")).with_absent(absent(&front.sources, &checked.warnings));
    compiled.artifact(target).map_err(|unfit| unfit.to_string())?;
    Ok((checked, compiled))
}

/// Reports which of the kernels the bundle runs on.
fn report(kernels: &[CheckedKernel], quiet: bool) {
    let width = kernels.iter().map(|kernel| kernel.name.len()).max().unwrap_or(0);
    for CheckedKernel { name, release, why_not, unknown } in kernels.iter().filter(|kernel| !quiet || kernel.why_not.is_some()) {
        let result = match (why_not, unknown.as_slice()) {
            (Some(why), _) => format!("does not run: {why}"),
            (None, []) => "runs".into(),
            (None, unknown) => format!("runs, but rbt {}", unknown.join("; ")),
        };
        to_stderr(&diag::plain_lines(&format!("{name:width$}  Linux {release}: {result}\n")));
    }
}

/// The number of CPUs of a larger machine than this one, which can run the variant only if the number does not matter.
const MANY_CPUS: u32 = 1024;

/// A kind of kernel.
struct Kind {
    name: String,
    missing_features: BTreeSet<Feature>,
    /// Mechanisms that are not used, because they differ between kernels.
    without: &'static [Mechanism],
    renamed: &'static [RenamedMember],
}

impl Kind {
    /// Kernels whose types cannot be read.
    fn without_types() -> Self {
        let missing_features = BTreeSet::from([Feature::Btf]);
        Self { name: "kernels without types (BTF)".into(), missing_features, without: &[], renamed: &[] }
    }
}

/// Kinds of kernels, the best one first.
fn kinds(sys: &dyn TargetInfo) -> Vec<Kind> {
    let mut kinds = vec![Kind { name: this_kernel(), missing_features: BTreeSet::new(), without: &[], renamed: &[] }];
    for old in OLD_KERNELS {
        let lacks: BTreeSet<Feature> = old.lacks.iter().flat_map(|features| features.iter().copied()).collect();
        // they differ if this machine has one of those
        if lacks.iter().any(|feature| sys.has(*feature) != feature.is_limit()) {
            kinds.push(Kind {
                name: format!("kernels like {}", old.version),
                missing_features: lacks,
                without: old.without,
                renamed: old.renamed,
            });
        }
    }
    kinds
}

/// The step of the progress.
fn compiling_for(kernel: &str) -> String {
    format!("compiling for {kernel}")
}

fn this_kernel() -> String {
    format!("Linux {}", kernel())
}

/// Compiles, with messages. `others`: the script may also be for other kernels only, so it is no error if this kernel refuses it.
fn compile_variant(
    front: &mut Frontend,
    tree: &ast::Script,
    sys: &Live,
    machine: Machine,
    fixed: &mut FixedParts,
    (progress, others): (&Progress, bool),
) -> Result<(Checked, Variant), Failure> {
    let target = &VariedTarget::without(sys, BTreeSet::new(), machine);
    let mut without = Vec::new();
    loop {
        let recorder = Recorder::new(target);
        // both may print
        let (checked, compiled) = progress.aside(|| {
            let mut checked = front.check(tree, &recorder)?;
            checked.settings.no_features.extend(&without);
            let compiled = compile(&checked, &recorder, front, false)?;
            Ok((checked, compiled))
        })?;
        progress.at(&compiling_for(&this_kernel()));
        let record = recorder.portable().map_err(|what| {
            Failure::new(format!("cannot build the script: it needs {what}, which is valid on this machine only")).code("bundle")
        })?;
        let artifact = &compiled.artifact;
        let compiled_variant = variant(front, tree, &checked.env(target), &without, (record, artifact), fixed);
        let compiled_variant = compiled_variant.with_target(this_kernel()).with_absent(absent(&front.sources, &checked.warnings));
        let artifact = compiled_variant
            .artifact(target)
            .map_err(|e| Failure::new(format!("the bundle does not run on this kernel: {e}")).code("bundle"))?;
        // Another kernel with the same answers also rejects what this kernel rejects.
        let Err(e) = runtime::load(&artifact, &checked.env(sys), Options::default()).map(drop) else {
            return Ok((checked, compiled_variant));
        };
        let mechanisms = refused_mechanisms(&e, &compiled.artifact, &checked.script, &checked.settings, sys);
        if mechanisms.is_empty() {
            return Err(match others {
                true => explain_silently(&e, REFUSED, &compiled, front),
                false => explain(&e, REFUSED, &compiled, &checked.script, front),
            });
        }
        without.extend(mechanisms);
    }
}

/// Compiles for another kind of kernel; none if the script does not run there.
fn try_variant(front: &Frontend, tree: &ast::Script, sys: &Live, kind: &Kind, machine: Machine, fixed: &mut FixedParts) -> Option<Variant> {
    let target = VariedTarget::without(sys, kind.missing_features.clone(), machine).with_earlier_names(kind.renamed);
    let mut without = kind.without.to_vec();
    loop {
        let recorder = Recorder::new(&target);
        let (checked, artifact) = compile_silently(front, tree, &without)(&recorder).ok()?;
        let record = recorder.portable().ok()?;
        // before the many compilations of a variant
        if let Err(e) = runtime::load(&artifact, &checked.env(sys), Options::default()) {
            let refused = refused_mechanisms(&e, &artifact, &checked.script, &checked.settings, sys);
            if refused.iter().all(|mechanism| without.contains(mechanism)) {
                return None;
            }
            without.extend(refused);
            continue;
        }
        let compiled_variant = variant(front, tree, &checked.env(&target), &without, (record, &artifact), fixed);
        let compiled_variant = compiled_variant.with_target(kind.name.clone()).with_absent(absent(&front.sources, &checked.warnings));
        let artifact = compiled_variant.artifact(&target).ok()?;
        runtime::load(&artifact, &checked.env(sys), Options::default()).ok()?;
        return Some(compiled_variant);
    }
}

/// The warnings about attach points that a kernel does not have.
fn absent(sources: &[Source], warnings: &Diagnostics) -> Vec<AbsentPoint> {
    let point = |d: &Diagnostic| {
        let source = sources.get(usize::from(d.span.source));
        let place = source.map(|source| format!("{}:{}: ", source.name, source.line_col(d.span.start).0)).unwrap_or_default();
        AbsentPoint { message: format!("{place}{}", d.message), help: d.help.clone() }
    };
    warnings.0.iter().filter(|d| search::tells_of_absence(d)).map(point).collect()
}

/// Adds relocations and requirements.
fn variant(
    front: &Frontend,
    tree: &ast::Script,
    env: &Env,
    without: &[Mechanism],
    (asked, artifact): (Record, &Artifact),
    fixed: &mut FixedParts,
) -> Variant {
    let again = compile_silently(front, tree, without);
    let compile = |sys: &dyn TargetInfo| again(sys).ok().map(|(_, artifact)| artifact);
    let mentions = |name: &str| front.sources.iter().any(|source| source.text.contains(name));
    let mut variant = |env: &Env, asked: Record, artifact: &Artifact| {
        let Template { artifact, relocations, requirements } = template(&compile, env, asked, artifact, &mentions, fixed);
        Variant::new(artifact, relocations, requirements)
    };
    if !artifact.manifest.lacks_later_calls() {
        return variant(env, asked, artifact);
    }
    let later = VariedTarget::with_later_calls(env.sys);
    let recorder = Recorder::new(&later);
    let with_later = compile(&recorder).and_then(|artifact| Some((artifact, recorder.portable().ok()?)));
    let with_later = with_later.map(|(artifact, asked)| variant(&Env { sys: &later, ..*env }, asked, &artifact));
    // a variant whose sites are fixed requires those of `later`
    with_later.filter(|variant| variant.artifact(env.sys).is_ok()).unwrap_or_else(|| variant(env, asked, artifact))
}

/// Compiles without messages.
///
/// # Errors
/// Why the script does not fit the target.
pub(super) fn compile_silently<'a>(
    front: &'a Frontend,
    tree: &'a ast::Script,
    without: &'a [Mechanism],
) -> impl Fn(&dyn TargetInfo) -> Result<(Checked, Artifact), String> + use<'a> {
    let given = front.settings(tree).map_err(|failure| failure.message);
    move |sys| {
        let (settings, invocation, warnings) = given.clone()?;
        let why = |all: Diagnostics| {
            let error = all.0.into_iter().find(|d| d.severity == Severity::Error);
            error.map_or_else(|| "it cannot be compiled".to_string(), |d| d.message)
        };
        let mut checked = frontend::check(tree, sys, settings, invocation, warnings).map_err(why)?;
        checked.settings.no_features.extend(without);
        let env = checked.env(sys);
        let script = codegen::lower(checked.script.clone(), &env);
        let known = &mut *front.known_code.borrow_mut();
        let artifact = codegen::compile_with(&script, &env, &front.sources, Dumps::default(), Some(known));
        let artifact = artifact.map_err(|e| why(not_compiled(&e, &front.sources)))?;
        Ok((checked, artifact.artifact))
    }
}

/// What an old kernel lacks.
struct OldKernel {
    /// The version of Linux.
    version: &'static str,
    /// The features that were added after it.
    lacks: &'static [&'static [Feature]],
    /// The mechanisms that are not used for it, because the arguments of raw tracepoints differ.
    without: &'static [Mechanism],
    /// The members that it has by other names.
    renamed: &'static [RenamedMember],
}

const OLD_KERNELS: [OldKernel; 2] = [
    OldKernel { version: "6.1", lacks: &[AFTER_6_1], without: &[], renamed: &[] },
    OldKernel {
        version: "5.10",
        lacks: &[AFTER_6_1, AFTER_5_10],
        without: &[Mechanism::RawTracepoint, Mechanism::Fentry],
        renamed: &[RenamedMember {
            structure: "cgroup",
            name: "ancestors",
            earlier: "ancestor_ids",
            ty: || Type::Array(Box::new(Type::U64), 0),
        }],
    },
];
const AFTER_6_1: &[Feature] = &[
    Feature::CpuV4,
    Feature::UprobeMulti,
    Feature::RawTracepointCookie,
    Feature::KprobeSession,
    Feature::ManyArguments,
    Feature::SharedStacks,
    Feature::PreemptedPrograms,
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
    Feature::SocketCookie,
    Feature::ShortKeys,
    Feature::KprobeMulti,
    Feature::RecursionCheck,
    Feature::StructArguments,
];

/// A program with the bundle.
fn program(args: &Build, bundle: &Bundle, bytes: &[u8]) -> Result<Vec<u8>, Failure> {
    let (name, runner) = runner(args, bundle)?;
    let is_foreign = args.arch.name != HERE.name;
    let why_not = match (is_foreign, exe::can_compress(&runner)) {
        (true, _) => Some(format!("rbt for {} has no code that unpacks it on {}", HERE.name, args.arch.name)),
        (false, false) => Some(format!("{name} is not linked statically")),
        (false, true) => None,
    };
    if let Some(why) = why_not.as_ref().filter(|_| args.compress && !args.run.quiet) {
        to_stderr(&format!("note: the program is not compressed, because {why}\n"));
    }
    exe::program(runner, bytes, args.compress && why_not.is_none())
        .map_err(|e| Failure::new(format!("--exe: cannot make a program of {name}: {e}")).help(install(name, args.arch)))
}

/// The runner for a program, and its name: the smallest one with everything that the bundle needs, or the one that the user chose.
fn runner(args: &Build, bundle: &Bundle) -> Result<(&'static str, Vec<u8>), Failure> {
    let built_for = [(bundle.settings.has_times(), "formats with times"), (bundle.settings.has_origins(), "--otlp")];
    let built_for = built_for.iter().find(|(is_so, _)| *is_so).map(|(_, what)| String::from(*what));
    // the format of a run is that of the command line that starts it, and a user who names one here will name it there
    let asked = args.run.format.as_deref().and_then(render::find);
    let shown_by = asked.filter(|format| !format.everywhere).map(|format| format!("-f {}", format.name));
    let needed = bundle.needed_parts().or(built_for).or(shown_by);
    match (args.runner, needed) {
        (Some(Runner::Full), _) | (None, Some(_)) => runner_file(Runner::Full, args.arch),
        (Some(Runner::Small), Some(needed)) => {
            Err(Failure::new(format!("--runner small: the small runner does not have {needed}")).help("remove --runner small"))
        }
        (Some(Runner::Small), None) => runner_file(Runner::Small, args.arch),
        (None, None) => runner_file(Runner::Small, args.arch).or_else(|failure| {
            if args.run.verbose {
                to_stderr(&diag::plain_lines(&format!("{}; the program contains rbt-run instead\n", failure.message)));
            }
            runner_file(Runner::Full, args.arch)
        }),
    }
}

/// Where the runners must be.
fn install(name: &str, arch: &Arch) -> String {
    match arch.name == HERE.name {
        true => format!("install {name} in the directory of rbt"),
        false => format!(
            "copy {name} of the release for {of} to the directory `{of}` in that of rbt; or build the bundle without --exe, and run it \
             with the rbt-run of that machine",
            of = arch.name
        ),
    }
}

/// A program that runs bundles, of the same version: it is beside rbt, or in a directory there for another architecture.
fn runner_file(runner: Runner, arch: &Arch) -> Result<(&'static str, Vec<u8>), Failure> {
    let name = runner.file_name();
    let help = || install(name, arch);
    let current =
        std::env::current_exe().map_err(|e| Failure::new(format!("--exe: cannot find the file of rbt itself: {}", reason(&e))))?;
    let path = if arch.name == HERE.name { current.with_file_name(name) } else { current.with_file_name(arch.name).join(name) };
    let cannot =
        |e: io::Error| Failure::new(format!("--exe: cannot read {}: {}", path.display(), reason(&e))).code("not-readable").help(help());
    let bytes = input::read(&path, input::LIST).map_err(cannot)?;
    if !exe::is_for(&bytes, arch) {
        return Err(Failure::new(format!("--exe: {} is not a program for {}", path.display(), arch.name)).help(help()));
    }
    match Bundle::embedded_in(&mut io::Cursor::new(&bytes)) {
        Ok(None) => Ok((name, bytes)),
        Ok(Some(_)) | Err(_) => Err(Failure::new(format!("--exe: {} already contains a bundle", path.display())).help(help())),
    }
}

fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The description of the bundle for its user.
fn help(front: &Frontend, checked: &Checked, arguments: &RunArguments) -> String {
    let text = front.sources.first().map_or("", |source| source.text.as_str());
    let header = Header::of(text);
    let mut lines: Vec<String> = [header.purpose].into_iter().chain(header.rest.iter().copied()).map(String::from).collect();
    if header.purpose.is_empty() {
        lines = vec![format!("A compiled script: {}", front.sources.first().map_or("", |source| source.name.as_str()))];
    }
    let given = &checked.invocation;
    let given: Vec<String> = (given.options.iter())
        .map(|(name, value)| value.as_ref().map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}")))
        .chain(given.params.iter().cloned())
        .collect();
    let built = (!given.is_empty()).then(|| format!("Built with {}", given.join(" ")));
    let about: Vec<String> = arguments.help().into_iter().chain(built).collect();
    if !about.is_empty() {
        lines.push(String::new());
        lines.extend(about);
    }
    lines.join("\n")
}
