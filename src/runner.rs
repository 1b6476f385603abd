//! `rbt-run`: runs a bundle.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr, OsString, c_char};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::builtins::options::ArgumentValues;
use crate::bundle::{AbsentPoint, Bundle, Variant};
use crate::cli::build::{RunnerCommand, compiled, parse_run};
use crate::cli::{self, Run};
use crate::codegen::artifact::{Manifest, Program};
use crate::diag;
use crate::exe::mark;
use crate::failure::{Failure, reason};
use crate::launch::expectations::{self, Budget, Unusable};
use crate::launch::explain::{Explainer, REFUSED};
use crate::launch::resolve::{Finding, resolve};
use crate::launch::{self, Launch, LaunchInput, RunError};
use crate::output_files::Destinations;
use crate::parts;
use crate::probes::{Attach, Env};
use crate::runtime::NotPermitted;
use crate::settings::{CgroupFilter, Settings};
use crate::startup;
use crate::streams::{report, to_stderr, to_stdout};
use crate::system::TargetInfo;
use crate::system::machine::kernel_only::KernelOnly;
use crate::system::machine::live::Live;
use crate::system::portability::requirements::Requirements;
use crate::terminal::{self, paint};
use crate::verdict;

type Machine = fn(&[String]) -> Box<dyn TargetInfo>;

/// A program that runs bundles.
pub struct Runner {
    /// Provides its parts.
    provide: fn(),
    /// Describes the machine: the argument are directories with debug information.
    machine: Machine,
}

/// `rbt-run`
pub static FULL: Runner = Runner { provide: parts::provide_all, machine: |debug_dirs| Box::new(Live::new().with_debug_dirs(debug_dirs)) };

/// `rbt-run-small`, for scripts that need no [`parts`].
pub static SMALL: Runner = Runner { provide: || (), machine: |_| Box::new(KernelOnly::default()) };

/// Runs the command line, and returns the exit status. The first argument is the program's own name.
pub fn main(runner: &Runner, args: impl IntoIterator<Item = OsString>) -> u8 {
    startup::panic::install();
    (runner.provide)();
    let run = |asked: &Run, place: &BundleLocation, budget: Option<&mut Budget>| run(asked, place, runner.machine, budget);
    let (result, color) = match parse_command(args) {
        Ok((RunnerCommand::Run(asked, path), own)) => {
            let place = BundleLocation { path, embedded: own };
            let result = match asked.expected.is_empty() {
                true => run(&asked, &place, None),
                false => expectations::run(&asked, |budget| run(&asked, &place, Some(budget))),
            };
            (result, asked.color)
        }
        Ok((RunnerCommand::Say(text), _)) => (to_stdout(|out| out.write_all(text.as_bytes())), cli::color_by_default()),
        Ok((RunnerCommand::Explain(path), own)) => (explain(&BundleLocation { path, embedded: own }), cli::color_by_default()),
        Err(failure) => (Err(failure), cli::color_by_default()),
    };
    result.unwrap_or_else(|failure| {
        report(&failure, color);
        failure.status
    })
}

/// The bundle in this program.
struct EmbeddedBundle {
    bytes: Vec<u8>,
    /// The name by which the program was called.
    name: String,
}

/// The location of a bundle.
struct BundleLocation {
    path: Option<PathBuf>,
    embedded: Option<EmbeddedBundle>,
}

impl BundleLocation {
    fn name(&self) -> String {
        let file = || self.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        self.embedded.as_ref().map_or_else(file, |bundle| bundle.name.clone())
    }

    fn bundle(&self) -> Result<Bundle, Failure> {
        match (&self.embedded, &self.path) {
            (Some(own), _) => Bundle::from_bytes(&own.bytes).map_err(|damage| damage.of(&own.name)),
            (None, Some(path)) => Bundle::read(path),
            (None, None) => Err(Failure::new("there is no bundle")),
        }
    }
}

fn parse_command(args: impl IntoIterator<Item = OsString>) -> Result<(RunnerCommand, Option<EmbeddedBundle>), Failure> {
    startup::stack::raise_stack_limit()?;
    let mut args = args.into_iter().peekable();
    let called = args.peek().map(|name| Path::new(name).file_name().unwrap_or_default().to_string_lossy().into_owned());
    let bytes = own_file().and_then(|mut file| Bundle::embedded_in(&mut file));
    let name = called.unwrap_or_default();
    let own = match bytes {
        Ok(Some(bytes)) => Some(EmbeddedBundle { bytes, name }),
        Ok(None) if mark::is_set() => {
            let message = format!("{name}: the bundle at the end of this program is missing: the file is truncated or was changed");
            return Err(Failure::new(message)
                .code("bundle")
                .help("copy it again, or build it again; strip(1) and the like remove the bundle"));
        }
        Ok(None) => None,
        Err(e) if e.kind() == io::ErrorKind::NotFound && !mark::is_set() => None,
        Err(e) => return Err(Failure::new(format!("{name}: cannot read the bundle in it: {}", reason(&e))).code("bundle")),
    };
    let command = parse_run(args, own.as_ref().map(|own| own.name.as_str()))?;
    Ok((command, own))
}

/// The file of this program. Without /proc, it is the one at the path that the kernel ran.
fn own_file() -> io::Result<File> {
    File::open("/proc/self/exe")
        .or_else(|e| if e.kind() == io::ErrorKind::NotFound { File::open(OsStr::from_bytes(exec_path().to_bytes())) } else { Err(e) })
}

/// The help of a bundle.
fn explain(place: &BundleLocation) -> Result<u8, Failure> {
    let bundle = place.bundle()?;
    let name = match place.embedded {
        Some(_) => place.name(),
        None => format!("rbt-run {}", place.name()),
    };
    let mut options = compiled(&name).about(None).long_about(None);
    let text = format!("{}\n\n{}", diag::plain_lines(&bundle.help), options.render_help());
    to_stdout(|out| out.write_all(text.as_bytes()))
}

fn run(run: &Run, place: &BundleLocation, machine: Machine, mut budget: Option<&mut Budget>) -> Result<u8, Failure> {
    let bundle = place.bundle()?;
    fits(run, &bundle)?;
    let (settings, mut invocation) = (settings(run, &bundle)?, bundle.settings.invocation(&run.invocation));
    let arguments = arguments(run, &bundle)?;
    if let Some(budget) = &mut budget {
        read_expectations(budget, run, &bundle)?;
        budget.allow(&settings);
    }
    launch::require::require_privileges()?;
    if let Some(pid) = settings.pid {
        launch::require::require_process("-p", pid)?;
    }
    invocation.cgroup = launch::require::require_cgroup(run)?;
    invocation.argument_memory = arguments.memory.clone();
    let child = run.child.as_deref().map(launch::child).transpose()?;
    let sys = machine(&settings.debug_dirs);
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let note = |text: &String| to_stderr(&format!("{} {}\n", paint("note:", terminal::NOTE, run.color), diag::plain(text)));
    let notes = run.warnings && !run.quiet;
    bundle.doubt(&release).iter().filter(|_| notes).for_each(note);
    let launch = Launch::prepare(run, &bundle.script, &settings, expectations::is_read_for_commands(run))?;
    let (mut child, mut first) = (child, 0);
    let (mut refused, mut unfit) = (None, None);
    let mut kept = bundle.kept_answers(&*sys);
    let ended = loop {
        let (mut artifact, variant) = match bundle.artifact(&*sys, first, &mut kept) {
            Ok(found) => found,
            Err(failure) => {
                bundle.known_reason(&release).iter().filter(|_| !notes).for_each(note);
                break Err(refused.or_else(|| unfit.map(|why: Unfit| why.report(run.color))).unwrap_or(failure));
            }
        };
        let env = Env { sys: &*sys, settings: &settings, invocation: &invocation };
        let built = files(&artifact.manifest);
        if let Err(e) = artifact.manifest.answer(&arguments) {
            break Err(Failure::new(e).code("bad-option"));
        }
        match find_sites(&mut artifact.manifest, &env) {
            Ok(mut warnings) if run.warnings => {
                let absent = bundle.variants.get(variant).map_or(&[][..], Variant::absent);
                let is_new = |point: &&AbsentPoint| !warnings.iter().any(|warning| warning.message == point.message);
                let more: Vec<Failure> = absent.iter().filter(is_new).map(AbsentPoint::to_failure).collect();
                warnings.extend(more);
                warn_of_sites(warnings, run.color);
            }
            Ok(_) => {}
            // another variant may have the code for them
            Err(why) => {
                unfit.get_or_insert(why);
                first = variant + 1;
                continue;
            }
        }
        let requirements = bundle.variants.get(variant).map(|variant| &variant.requirements);
        let ready = requirements.map_or(Ok(()), |of| require_same_files(&built, &artifact.manifest, of, &*sys));
        if let Err(failure) = ready.and_then(|()| traces_target(&artifact.manifest, &settings, invocation.cgroup.as_ref())) {
            break Err(refused.unwrap_or(failure));
        }
        let on_end = budget.as_deref().map(Budget::on_end);
        let given = LaunchInput { artifact: &artifact, env, on_end, on_loaded: &mut || kept.keep(&*sys) };
        let explainer = Explainer { manifest: &artifact.manifest, points: &[], sources: &[], run };
        sys.forget_searches();
        match launch::start(&launch, given, &mut child) {
            Ok(ended) => break Ok(ended),
            Err(RunError::Failed(failure)) => break Err(failure),
            Err(RunError::Broke(e)) => break Err(explainer.explain(&e, 1)),
            Err(RunError::Refused(e)) => {
                let failure = explainer.explain(&e, REFUSED);
                if e.is::<NotPermitted>() {
                    break Err(failure);
                }
                // rbt would use other mechanisms, which another variant may have
                if run.verbose {
                    let made_for = bundle.variants.get(variant).map_or("", |variant| &variant.made_for);
                    to_stderr(&diag::plain_lines(&format!("the kernel refused the code for {made_for}: {}\n", failure.message)));
                }
                refused.get_or_insert(failure);
                first = variant + 1;
            }
        }
    };
    launch.finish();
    let ended = ended?;
    if let Some(budget) = budget {
        budget.ran(ended.child);
    }
    Ok(ended.status)
}

/// The path that the kernel executed: `AT_EXECFN` of getauxval(3). (rustix looks for this function by its name, which does not work in
/// programs that are linked statically.)
#[allow(unsafe_code)]
fn exec_path() -> &'static CStr {
    // SAFETY: a call without memory
    let text = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const c_char;
    // SAFETY: the kernel has put the text above the stack, and it ends with a zero
    if text.is_null() { c"" } else { unsafe { CStr::from_ptr(text) } }
}

/// The files of each program's sites.
fn files(manifest: &Manifest) -> Vec<BTreeSet<PathBuf>> {
    let of = |program: &Program| program.sites.iter().filter_map(|site| site.attach.binary()).map(Path::to_owned).collect();
    manifest.programs.iter().map(of).collect()
}

/// Checks that the files that were found have the contents on which the code depends: a name or a mount may lead to another file than
/// at the build.
fn require_same_files(
    built: &[BTreeSet<PathBuf>],
    found: &Manifest,
    requirements: &Requirements,
    sys: &dyn TargetInfo,
) -> Result<(), Failure> {
    for (program, built) in found.programs.iter().zip(built) {
        let fixed: Vec<&Path> = built.iter().map(PathBuf::as_path).filter(|file| requirements.fixes(file)).collect();
        let others = program.sites.iter().filter_map(|site| Some((site, site.attach.binary()?))).filter(|(_, file)| !built.contains(*file));
        for (site, file) in others {
            if let Some(first) = fixed.first()
                && !fixed.iter().any(|fixed| requirements.has_contents_of(fixed, file, sys))
            {
                let message = format!(
                    "{}: {} is another file than {} at the build, on which the code depends",
                    site.name,
                    file.display(),
                    first.display()
                );
                return Err(Failure::new(message).code("bundle").help("build it with this file, or run the script with rbt"));
            }
        }
    }
    Ok(())
}

/// Reads the expectations, and checks them against the maps of the bundle.
fn read_expectations(budget: &mut Budget, run: &Run, bundle: &Bundle) -> Result<(), Failure> {
    let mut sources = Vec::new();
    let result = budget.read(run, &mut sources).and_then(|()| budget.check(&bundle.maps(), run, &sources));
    result.map_err(|unusable| match unusable {
        Unusable::Failed(failure) => failure,
        Unusable::Wrong(diagnostics) => {
            to_stderr(&diag::render(&diagnostics, &sources, run.color));
            Failure::reported(verdict::USAGE)
        }
    })
}

/// Checks options of the run for which the code must have been compiled.
fn fits(run: &Run, bundle: &Bundle) -> Result<(), Failure> {
    let error = |message: String, help: &str| Err(Failure::new(message).code("bundle").help(help));
    if bundle.is_risky() && !run.settings.allow_unsafe {
        return error("the bundle contains functions that change the system or the traced process".into(), "--unsafe allows them");
    }
    if let Some(needed) = bundle.needed_parts().filter(|_| !parts::are_provided()) {
        return error(format!("the bundle needs rbt-run: this program, rbt-run-small, does not have {needed}"), "run it with rbt-run");
    }
    match (bundle.command, run.child.is_some()) {
        (true, false) => return error("the bundle was built to trace a command".into(), "give one: -c COMMAND"),
        (false, true) if !bundle.target => {
            return error("the bundle was not built to trace a command".into(), "build it with -c COMMAND");
        }
        _ => {}
    }
    if !bundle.target && (run.settings.pid.is_some() || run.settings.follow || run.cgroup.is_some() || run.container.is_some()) {
        return error("the code of the bundle cannot select processes".into(), "use a predicate in the script: /pid == $1/");
    }
    if bundle.settings.follows() && run.child.is_none() && run.settings.pid.is_none() {
        return error("the bundle was built with --follow".into(), "give a process to follow: -c COMMAND or -p PID");
    }
    if let Some(format) = Destinations::of(run)?.formats().find(|format| format.timed).filter(|_| !bundle.settings.has_times()) {
        let name = format.name;
        return error(format!("the bundle was not built for the format {name}, which needs times"), &format!("build it with -f {name}"));
    }
    if run.otlp.is_some() && !bundle.settings.has_origins() {
        return error("the bundle was not built for --otlp, which needs the origin of records".into(), "build it with --otlp URL");
    }
    Ok(())
}

/// The values of the script's arguments.
fn arguments(run: &Run, bundle: &Bundle) -> Result<ArgumentValues, Failure> {
    let (params, options) = cli::script_args(&run.words, &bundle.arguments.valued());
    bundle.arguments.values(&params, &options).map_err(|(message, help)| {
        let failure = Failure::new(message).code("bad-option");
        if let Some(help) = help { failure.help(help) } else { failure }
    })
}

/// Finds the sites of the script on this machine.
fn find_sites(manifest: &mut Manifest, env: &Env) -> Result<Vec<Failure>, Unfit> {
    let failures = |findings: Vec<Finding>| findings.into_iter().map(Finding::into_failure).collect();
    resolve(manifest, env).map(failures).map_err(|errors| Unfit(failures(errors)))
}

/// Why the code of a variant does not fit the sites of this machine.
struct Unfit(Vec<Failure>);

impl Unfit {
    /// Reports all, and returns the failure of the run.
    fn report(self, color: bool) -> Failure {
        self.0.iter().for_each(|failure| report(failure, color));
        Failure::reported(self.0.first().map_or(verdict::FINDINGS, |failure| failure.status))
    }
}

fn warn_of_sites(warnings: Vec<Failure>, color: bool) {
    for Failure { message, help, .. } in warnings {
        let help = help.map(|help| format!("\nhelp: {}", diag::plain(&help))).unwrap_or_default();
        to_stderr(&format!("{} {}{help}\n", paint("warning:", terminal::WARNING, color), diag::plain(&message)));
    }
}

/// Checks that the code can select the processes of the run.
fn traces_target(manifest: &Manifest, settings: &Settings, cgroup: Option<&CgroupFilter>) -> Result<(), Failure> {
    if let Some(cgroup) = cgroup.filter(|cgroup| cgroup.level.is_none()) {
        let message = format!("the depth of the cgroup {} is unknown here", cgroup.path.display());
        return Err(Failure::new(message).code("no-cgroup").help("run it outside of the container"));
    }
    let option = match (settings.pid, cgroup) {
        (Some(_), _) => "-p",
        (None, Some(_)) => "--cgroup",
        (None, None) => return Ok(()),
    };
    let sites = manifest.programs.iter().flat_map(|program| &program.sites);
    match sites.into_iter().find(|site| matches!(site.attach, Attach::Iter { of_tasks: false, .. })) {
        Some(site) => {
            let message = format!("{option} limits only iterators over tasks and their resources, not {}", site.name);
            Err(Failure::new(message).code("unsupported-in-probe").help(format!("remove {option}")))
        }
        None => Ok(()),
    }
}

fn settings(run: &Run, bundle: &Bundle) -> Result<Settings, Failure> {
    let mut settings =
        bundle.settings.settings(&run.settings).map_err(|e| Failure::new(format!("the bundle is not valid: {e}")).code("bundle"))?;
    let vars = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    let warnings = settings.apply_env_at_run(vars).map_err(|e| Failure::new(e).code("bad-setting").status(2))?;
    for text in warnings.iter().filter(|_| run.warnings) {
        to_stderr(&format!("{} {}\n", paint("warning:", terminal::WARNING, run.color), diag::plain(text)));
    }
    Ok(settings)
}
