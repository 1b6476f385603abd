//! `rbt snapshot`: writes snapshots and shows their contents.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use super::fmt::write_atomically;
use crate::cli::snapshot::{NOT_DONE, Origin, Snapshot as SnapshotArgs, Task};
use crate::cli::{Action, Program};
use crate::codegen;
use crate::diag::{self, Diagnostics, Source, plural};
use crate::emit::Dumps;
use crate::failure::Failure;
use crate::frontend::c_headers::Headers;
use crate::frontend::read::read;
use crate::frontend::{check, configure, from_environment, import};
use crate::probes::Env;
use crate::progress::Progress;
use crate::settings::{Invocation, Settings};
use crate::streams::{Stdout, not_written, report, to_stderr, to_stdout};
use crate::syntax::{self, ast};
use crate::system::kernel::functions::KERNEL;
use crate::system::snapshot::{self, Contents, Snapshot, capture, section};
use crate::system::{Missing, kernel_files};
use crate::terminal::{self, paint};

impl Action for SnapshotArgs {
    fn color(&self) -> bool {
        self.color
    }

    fn run(&self) -> Result<u8, Failure> {
        snapshot(self)
    }
}

/// Returns the exit status.
fn snapshot(args: &SnapshotArgs) -> Result<u8, Failure> {
    match &args.task {
        Task::Make { from, scripts, to, quiet } => make(from, scripts, to.as_deref(), *quiet, args.color),
        Task::Show(files) => {
            let mut status = 0;
            for (n, file) in files.iter().enumerate() {
                if let Err(failure) = open(file).and_then(|s| show(&s, n > 0)) {
                    report(&failure, args.color);
                    status = failure.status;
                }
            }
            Ok(status)
        }
    }
}

/// A snapshot, or a failure that describes the fault.
pub fn open(file: &Path) -> Result<Snapshot, Failure> {
    Snapshot::open(file).map_err(failure)
}

fn failure(missing: Missing) -> Failure {
    let failure = Failure::new(missing.what).code("bad-snapshot").status(NOT_DONE);
    match missing.help {
        Some(help) => failure.help(help),
        None => failure,
    }
}

fn make(from: &Origin, scripts: &[Program], to: Option<&Path>, quiet: bool, color: bool) -> Result<u8, Failure> {
    // checked first, because the work takes a while
    let has_directory =
        |path: &&Path| *path != Path::new("-") && path.parent().is_some_and(|dir| !dir.as_os_str().is_empty() && !dir.is_dir());
    if let Some(path) = to.filter(has_directory) {
        let failure = not_written(&path.display().to_string(), &io::Error::from_raw_os_error(libc::ENOENT));
        return Err(failure.status(NOT_DONE));
    }
    let progress = Progress::on_stderr();
    let mut reading = |what: &str| progress.at(&format!("reading {what}"));
    let mut contents = match from {
        Origin::Snapshot(file) => open(file)?.contents().map_err(failure)?,
        Origin::Machine => capture::capture(&mut reading),
        Origin::Vmlinux(file) => kernel_files::from_vmlinux(file, &mut reading).map_err(failure)?,
        Origin::Package(dir) => kernel_files::from_package(dir, &mut reading).map_err(failure)?,
    };
    if !scripts.is_empty() {
        contents = facts_for_scripts(Snapshot::of(&contents).map_err(failure)?, scripts, color, &progress)?;
    }
    write(&contents, to, quiet, color, progress)
}

/// The facts that these scripts need from a kernel.
fn facts_for_scripts(snapshot: Snapshot, scripts: &[Program], color: bool, progress: &Progress) -> Result<Contents, Failure> {
    let snapshot = snapshot.noting();
    for script in scripts {
        let source = read(script).map_err(|failure| failure.status(NOT_DONE))?;
        progress.at(&source.name);
        let name = source.name.clone();
        if !record_queries(script, source, &snapshot) {
            progress.make_room();
            let warning = paint("warning:", terminal::WARNING, color);
            let name = diag::plain(&name);
            to_stderr(&format!("{warning} {name} is ignored because it has syntax errors: see `rbt check {name}`\n"));
        }
    }
    let of = plural(scripts.len(), "script needs", "scripts need");
    snapshot.used(&of).map_err(failure)
}

/// Runs a script through the stages as `rbt check` does. Errors are left to `rbt check`. Returns true if the script
/// parses.
fn record_queries(program: &Program, source: Source, sys: &Snapshot) -> bool {
    let path = if let Program::File(path) = program { Some(path.as_path()) } else { None };
    let mut sources = vec![source.clone()];
    let tree = syntax::parse(&source).and_then(|tree| import::resolve(tree, &mut sources, path, Headers::of_this_machine(&[])));
    let Ok(tree) = tree else { return false };
    sys.note_script(snapshot::script_digest(&sources));
    let mut settings = Settings { allow_unsafe: true, ..Settings::default() };
    let script_dir = path.and_then(Path::parent).map(Path::to_owned).unwrap_or_default();
    let invocation = Invocation { script_dir, ..Invocation::default() };
    let configured = configure(&tree, &mut settings).is_ok() && from_environment(&mut settings).is_ok();
    let env = Env { sys, settings: &settings, invocation: &invocation };
    if !configured || compiles(&tree, &env, &sources) {
        return true;
    }
    // a missing attach point does not prevent queries about others
    for (i, item) in tree.items.iter().enumerate() {
        let ast::Item::Probe(probe) = item else { continue };
        for point in &probe.points {
            let alone = ast::Item::Probe(ast::Probe { points: vec![point.clone()], ..probe.clone() });
            let others = tree.items.iter().enumerate().filter(|(n, other)| *n != i && !matches!(other, ast::Item::Probe(_)));
            let items = others.map(|(_, other)| other.clone()).chain([alone]).collect();
            compiles(&ast::Script { items, ..tree.clone() }, &env, &sources);
        }
    }
    true
}

fn compiles(tree: &ast::Script, env: &Env, sources: &[Source]) -> bool {
    let checked = check(tree, env.sys, env.settings.clone(), env.invocation.clone(), Diagnostics::default());
    let Ok(checked) = checked else { return false };
    let env = checked.env(env.sys);
    codegen::compile(&codegen::lower(checked.script.clone(), &env), &env, sources, Dumps::default()).is_ok()
}

/// Packs a snapshot, writes it, and reports its contents and what is missing.
fn write(contents: &Contents, to: Option<&Path>, quiet: bool, color: bool, progress: Progress) -> Result<u8, Failure> {
    let mut bytes = Vec::new();
    let packed = snapshot::write_with_progress(contents, &mut bytes, &mut |what| progress.at(&format!("packed {what}")));
    drop(progress);
    packed.map_err(|e| Failure::new(format!("cannot create the snapshot: {e}")).code("not-written").status(NOT_DONE))?;
    for (what, why) in &contents.missing {
        to_stderr(&format!("{} {}\n", paint("warning:", terminal::WARNING, color), diag::plain(&format!("{}: {why}", section_name(what)))));
    }
    if contents.btf.is_empty() && contents.events.is_none() && contents.functions.is_none() {
        let failure = Failure::new("cannot read anything about this kernel: the snapshot would be empty");
        return Err(failure.code("not-written").status(NOT_DONE).help("run as root, and make sure that /sys and tracefs are mounted"));
    }
    let path = match to {
        Some(path) => path.to_path_buf(),
        None if contents.about.release.is_empty() => PathBuf::from("kernel.rbts"),
        None => PathBuf::from(format!("{}.rbts", contents.about.release.replace('/', "-"))),
    };
    if path == Path::new("-") {
        if io::stdout().is_terminal() {
            let failure = Failure::new("cannot write a snapshot to a terminal, because it is binary").code("not-written").status(NOT_DONE);
            return Err(failure.help("redirect it to a file: `rbt snapshot -o - > k.rbts`"));
        }
        Stdout.write_all(&bytes).map_err(|e| not_written("standard output", &e).status(NOT_DONE))?;
    } else {
        write_atomically(&path, &bytes).map_err(|failure| failure.status(NOT_DONE))?;
    }
    if !quiet {
        let destination = if path == Path::new("-") { "standard output".into() } else { path.display().to_string() };
        let summary_line = format!("{destination}: {}, {}: {}", contents.about.release, size(bytes.len()), summary(contents));
        to_stderr(&format!("{}\n", diag::plain(&summary_line)));
        if !contents.missing.is_empty() && crate::runtime::missing_privileges().is_some() {
            to_stderr(&format!("{} run as root to include everything: sudo rbt snapshot\n", paint("help:", terminal::BOLD, color)));
        }
    }
    Ok(0)
}

/// Words for a section.
fn section_name(name: &str) -> String {
    match name.strip_prefix(section::BTF) {
        Some(KERNEL) => "types (BTF)".into(),
        Some(module) => format!("types of the module {module}"),
        None => match name {
            section::FUNCTIONS => "functions that can be traced",
            section::UNTRACEABLE => "functions that cannot be traced",
            section::VARIABLES => "names of variables",
            section::INJECTABLE => "functions that can be overridden",
            section::FEATURES => "BPF features, as probed",
            section::CALLABLE => "functions that BPF programs may call",
            section::CONFIG => "configuration",
            other => other,
        }
        .into(),
    }
}

/// Numbers of items in a snapshot.
fn summary(contents: &Contents) -> String {
    let mut parts = Vec::new();
    match contents.btf.len() {
        0 => {}
        1 => parts.push("types".to_owned()),
        n => parts.push(format!("types of the kernel and {} of its modules", n - 1)),
    }
    let mut count = |n: Option<usize>, what: &str| parts.extend(n.map(|n| format!("{n} {what}")));
    count(contents.events.as_ref().map(Vec::len), section::EVENTS);
    count(contents.functions.as_ref().map(|f| f.count()), section::FUNCTIONS);
    count(Some(contents.features.len()).filter(|n| *n > 0), "features");
    parts.extend(contents.config.as_ref().map(|_| "configuration".to_owned()));
    parts.join(", ")
}

fn size(bytes: usize) -> String {
    match bytes {
        0..=9_999 => plural(bytes, "byte", "bytes"),
        10_000..=999_999 => format!("{} kB", bytes / 1000),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

fn show(snapshot: &Snapshot, further: bool) -> Result<(), Failure> {
    let contents = snapshot.contents().map_err(failure)?;
    let about = &contents.about;
    let unknown = |text: &str| if text.is_empty() { "not known".to_owned() } else { text.to_owned() };
    let mut rows: Vec<(String, String)> = vec![
        ("Kernel".into(), unknown(&about.release)),
        ("Machine".into(), unknown(&about.machine)),
        ("Build id".into(), unknown(&about.build_id)),
        ("Made from".into(), unknown(&about.source)),
        ("Made by".into(), format!("rbt {}", snapshot.writer())),
        ("CPUs".into(), if about.possible_cpus == 0 { "not known".into() } else { format!("{} possible", about.possible_cpus) }),
        ("Size".into(), size(snapshot.size())),
    ];
    let modules = contents.btf.iter().filter(|(name, _)| name != KERNEL).count();
    let packed = |prefix: &str| {
        let mut sizes =
            snapshot.parts().filter(|(name, _, _)| name.strip_prefix(prefix).is_some_and(|r| r.is_empty() || prefix.ends_with('/')));
        let first = sizes.next()?;
        Some(sizes.fold((first.1, first.2), |sum, one| (sum.0 + one.1, sum.1 + one.2)))
    };
    let sized = |prefix: &str| packed(prefix).map_or(String::new(), |(stored, raw)| format!(" ({}, unpacked {})", size(stored), size(raw)));
    let count = |n: Option<usize>, name: &str| match (n, contents.missing.get(name)) {
        (Some(n), None) => format!("{n}{}", sized(name)),
        (Some(n), Some(why)) => format!("{n}{}; but {why}", sized(name)),
        (None, Some(why)) => format!("not known: {why}"),
        (None, None) => "not known".into(),
    };
    rows.push((
        "Types".into(),
        match contents.btf.len() {
            0 => count(None, section::BTF_OF_KERNEL),
            _ => format!("of the kernel and {modules} of its modules{}", sized(section::BTF)),
        },
    ));
    rows.push(("Events".into(), {
        let n = contents.events.as_ref().map(Vec::len);
        if n.is_some() { format!("{}{}", n.unwrap_or(0), sized(section::FORMATS)) } else { count(n, section::EVENTS) }
    }));
    rows.push(("Functions".into(), count(contents.functions.as_ref().map(|f| f.count()), section::FUNCTIONS)));
    rows.push(("Untraceable functions".into(), count(contents.untraceable.as_ref().map(Vec::len), section::UNTRACEABLE)));
    rows.push(("Variables".into(), count(contents.variables.as_ref().map(Vec::len), section::VARIABLES)));
    rows.push(("Overridable functions".into(), count(contents.error_injectable.as_ref().map(Vec::len), section::INJECTABLE)));
    rows.push(("Callable functions".into(), count(contents.callable.as_ref().map(|c| c.len()), section::CALLABLE)));
    let tried = contents.features.iter().map(|(feature, has)| format!("{}{feature:?}", if *has { "" } else { "no " }));
    rows.push((
        "Features tried".into(),
        match contents.features.len() {
            0 => count(None, section::FEATURES),
            _ => tried.collect::<Vec<_>>().join(", "),
        },
    ));
    let options = contents.config.as_ref().map(|c| c.lines().filter(|l| l.starts_with("CONFIG_")).count());
    rows.push(("Options set".into(), count(options, section::CONFIG)));
    to_stdout(|out| {
        if further {
            writeln!(out)?;
        }
        rows.iter().try_for_each(|(name, value)| writeln!(out, "{name:22} {}", diag::plain(value)))
    })
    .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::TargetInfo;
    use crate::tools::TOOLS;

    /// The result of compiling a script for a kernel: its instructions, or its errors.
    fn explained(text: &str, sys: &dyn TargetInfo) -> String {
        let source = Source { name: "test".into(), text: text.into() };
        let settings = Settings { allow_unsafe: true, ..Settings::default() };
        let checked = match crate::frontend::check_text("test", text, &Env::new(sys, &settings)) {
            Ok(checked) => checked,
            Err(wrong) => return crate::diag::render(&wrong, &[source], false),
        };
        let env = checked.env(sys);
        let script = codegen::lower(checked.script.clone(), &env);
        let dumps = Dumps { assembly: true, ..Dumps::default() };
        match codegen::compile(&script, &env, &[source], dumps) {
            Ok(compiled) => compiled.assembly.unwrap_or_default(),
            Err(e) => format!("{e:?}"),
        }
    }

    /// A snapshot for some scripts is small, and gives the same answers as a full one.
    #[test]
    fn reduced_snapshots_give_the_same_answers() {
        let all = capture::capture(&mut |_| {});
        if all.btf.is_empty() || all.events.is_none() {
            return eprintln!("skipped: needs BTF and tracefs: {:?}", all.missing);
        }
        // together they query lists, members found through others, and missing things
        let more = [
            "rawtracepoint:sched_* { @[probe] = count(); }",
            "kprobe:vfs_rea* { @ = count(); } fentry:tcp_* { @ = count(); }",
            "kprobe:no_such_function { }",
            "tracepoint:sched:sched_switch { print(*curtask.mm); @ = curtask.no_such_member; }",
            "rawtracepoint:sched_switch { print(args.next.real_parent.comm); print(((struct sock *)0).__sk_common.skc_family); }",
            "begin { print(kaddr(\"vfs_read\")); print(TCP_LISTEN); print(sizeof(struct task_struct)); }",
        ];
        let saved = TOOLS.iter().step_by(9).map(|s| s.text);
        let scripts: Vec<&str> = saved.chain(more).collect();
        let whole = Snapshot::of(&all).unwrap().noting();
        for text in &scripts {
            let source = Source { name: "test".into(), text: (*text).into() };
            record_queries(&Program::Text((*text).into()), source, &whole);
        }
        let less = whole.used("tests").unwrap();
        let mut bytes = Vec::new();
        snapshot::write(&less, &mut bytes).unwrap();
        assert!(bytes.len() < 200_000, "{}", bytes.len());
        let less = Snapshot::of(&less).unwrap();
        for text in &scripts {
            let without_near =
                |told: String| told.lines().filter(|l| !l.contains("did you mean") && !l.contains("help:")).collect::<Vec<_>>().join("\n");
            assert_eq!(without_near(explained(text, &less)), without_near(explained(text, &whole)), "{text}");
        }
    }
}
