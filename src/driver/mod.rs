//! From arguments to an exit status: calls the stages in order and reports their results.
//!
//! Three kinds of failure end here: diagnostics (the script is wrong; status 1), [`Failure`] (the machine refuses, or the
//! options are wrong; 1 or 255), and panics (rbt is wrong; 2).

use std::ffi::OsString;
use std::io;
use std::path::Path;

use crate::cli::subcommands::{Help, Info};
use crate::cli::{self, Action, Command, Listed, Program, Run};
use crate::codegen::{self, Compiled};
use crate::compat;
use crate::diag;
use crate::failure::Failure;
use crate::frontend::args::{check_script_args, help_of_script};
use crate::frontend::compiled;
use crate::frontend::explain::report_not_compiled;
use crate::frontend::{Checked, Frontend, from_environment};
use crate::help;
use crate::info;
use crate::launch::expectations::{self, Budget};
use crate::launch::require::{require_privileges, require_process};
use crate::launch::{self, CostSink, Launch};
use crate::list;
use crate::parts;
use crate::probes::Env;
use crate::repl;
use crate::runtime::Prefetch;
use crate::runtime::child::Child;
use crate::sema;
use crate::settings::{Mode, Overhead, Settings};
use crate::startup;
use crate::streams::{Stdout, dump, report, to_stderr, to_stdout, write_file};
use crate::system::TargetInfo;
use crate::system::machine::live::Live;
use crate::terminal::{self, paint};

mod build;
mod cost;
mod fmt;
mod late_bound;
mod merge;
mod relocate;
mod serve;
mod snapshot;
mod start;

/// Runs the command line, and returns the exit status. The first argument is the program's own name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> u8 {
    startup::panic::install();
    parts::provide_all();
    let (result, color) = match startup::stack::raise_stack_limit().and_then(|()| cli::parse(args)) {
        Ok(command) => {
            let color = command.color();
            (dispatch(command), color)
        }
        Err(failure) => (Err(failure), cli::color_by_default()),
    };
    result.unwrap_or_else(|failure| {
        report(&failure, color);
        failure.status
    })
}

fn dispatch(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Run(run) => self::run(&run),
        Command::List { what, verbose, run } => list(what, verbose, &run),
        Command::Prompt(run) => repl::prompt(&run),
        Command::Subcommand(action) => action.run(),
        Command::Say(text) => to_stdout(|out| out.write_all(text.as_bytes())),
    }
}

impl Action for Info {
    fn run(&self) -> Result<u8, Failure> {
        let (sys, settings) = (Live::new(), Settings::default());
        to_stdout(|out| info::report(&Env::new(&sys, &settings), out))
    }
}

impl Action for Help {
    fn run(&self) -> Result<u8, Failure> {
        let text = match &*self.0 {
            [] => help::overview(),
            [option] if option == "-h" || option == "--help" => help::overview(),
            words => help::about(&words.join(" "))?,
        };
        to_stdout(|out| out.write_all(text.as_bytes()))
    }
}

/// Takes a script, with its expectations, through all stages.
fn run(run: &Run) -> Result<u8, Failure> {
    if run.expected.is_empty() { script(run, None, None) } else { expectations::run(run, |budget| script(run, Some(budget), None)) }
}

fn script(run: &Run, mut budget: Option<&mut Budget>, measure: Option<(Overhead, CostSink)>) -> Result<u8, Failure> {
    let mut front = Frontend::new(run);
    front.read(&run.program)?;
    if let Program::Tool(script) = &run.program
        && run.verbose
        && Path::new(script.name).is_file()
    {
        to_stderr(&format!("note: {0} is rbt's own; the file in this directory is ./{0}\n", script.name));
    }
    if let Some(budget) = &mut budget {
        let read = budget.read(run, &mut front.sources);
        front.usable(read)?;
    }
    if let Some(pid) = run.settings.pid {
        require_process("-p", pid)?;
    }
    let tree = front.parse()?;
    check_script_args(run, &front, &tree)?;
    if let Some(text) = help_of_script(&front, &tree) {
        let text = diag::plain_lines(&text);
        if matches!(run.program, Program::Tool(_)) {
            return to_stdout(|out| out.write_all(text.as_bytes()));
        }
        // As in bpftrace, whose callers recognize by this status that nothing ran. bpftrace has no built-in tools.
        to_stderr(&text);
        return Ok(1);
    }
    let without_own = !run.invocation.options.is_empty() && sema::options(&tree).is_empty();
    if let Some(misspelt) = run.invocation.options.iter().filter(|_| without_own).find_map(|(name, _)| cli::misspelt_option(name)) {
        return Err(misspelt);
    }
    // Without permission to run it, a script can still be checked and dumped.
    let only_look = run.compile_only || run.emit_elf.is_some() || !run.dumps.is_empty();
    if !only_look {
        require_privileges()?;
    }
    // Fork here, not later: the fork copies little now, and a missing command is reported before any work is done.
    let child = match (&run.child, run.compile_only || run.emit_elf.is_some()) {
        (Some(command), false) => Some(launch::child(command)?),
        _ => None,
    };
    let sys = Live::with_functions(run.traceable_functions.clone()).with_debug_dirs(&run.settings.debug_dirs);
    let checked = front.check(&tree, &sys)?;
    if let Some(budget) = &mut budget {
        front.usable(budget.check(&start::script_maps(&checked.script), run, &front.sources))?;
        budget.allow(&checked.settings);
    }
    let prefetched = match run.settings.pid {
        Some(pid) if !only_look && codegen::wants_tables(&checked.script, &checked.settings) => {
            Prefetch::start(pid, &checked.settings.debug_dirs)
        }
        _ => None,
    };
    let compiled = compile(&checked, &sys, &mut front, true)?;
    if let Some(path) = &run.emit_elf {
        write_file(path, &compiled.artifact.elf)?;
        return Ok(0);
    }
    if run.compile_only {
        return Ok(0);
    }
    if only_look {
        require_privileges()?;
    }
    let budget = budget.as_deref();
    let described = start::described(run, &checked, &front, budget)?;
    let mut launch = Launch::prepare(run, &described, &checked.settings, expectations::is_read_for_commands(run))?;
    (launch.base, launch.measure) = (merge::base(run)?, measure);
    launch.prefetched.set(prefetched);
    launch_script(launch, checked, compiled, child, &sys, &mut front, budget)
}

/// Runs a compiled script. It is compiled again if the kernel refuses a mechanism that rbt chose.
fn launch_script(
    launch: Launch,
    mut checked: Checked,
    mut compiled: Compiled,
    mut child: Option<Child>,
    sys: &dyn TargetInfo,
    front: &mut Frontend,
    budget: Option<&Budget>,
) -> Result<u8, Failure> {
    let ran = loop {
        match start::start(&launch, &checked, &compiled, &mut child, sys, front, budget) {
            Ok(status) => break Ok(status),
            Err(start::StartError::Failed(failure)) => break Err(failure),
            // this cannot repeat, because none of these mechanisms is used again
            Err(start::StartError::AttachRefused(mechanisms)) => checked.settings.no_features.extend(mechanisms),
        }
        match compile(&checked, sys, front, true) {
            Ok(again) => compiled = again,
            Err(failure) => break Err(failure),
        }
    };
    launch.finish();
    ran
}

/// A map with fewer entries takes little memory.
const LARGE_MAP: u32 = 1 << 16;

fn compile(checked: &Checked, sys: &dyn TargetInfo, front: &mut Frontend, keep: bool) -> Result<Compiled, Failure> {
    let run = front.run;
    let wants = |stage: &str| run.dumps.contains(&stage);
    let dumps = crate::emit::Dumps {
        ir: wants("ir") || run.emit_llvm.is_some(),
        optimized: wants("opt") || run.emit_llvm.is_some(),
        assembly: wants("asm"),
        verify: run.verify_ir,
    };
    let env = checked.env(sys);
    let script = codegen::lower(checked.script.clone(), &env);
    let compiled = compiled::compile(&script, &env, &front.sources, dumps, keep);
    let (compiled, is_kept) = compiled.map_err(|e| report_not_compiled(&e, front))?;
    compiled::warn_of_reduced(&compiled, front);
    let may_be_large = script.maps.iter().any(|m| m.max_entries >= LARGE_MAP);
    if let Some(message) = compat::large_maps_of(&compiled.artifact.elf, sys).filter(|_| may_be_large) {
        front.warn(&message);
    }
    if run.verbose && compiled.compilations > 1 {
        to_stderr(&format!("compiled {} times, to fit into the stack of a program\n", compiled.compilations));
    }
    let (programs, max) = (compiled.artifact.manifest.programs.len() as u64, checked.settings.max_bpf_progs);
    if programs > max {
        return Err(Failure::new(format!("the script needs {programs} BPF programs; the limit is {max}"))
            .code("too-many-programs")
            .help("raise it with the setting max_bpf_progs"));
    }
    front.clock.stage(if is_kept { "compiled before" } else { "compile" });
    for (stage, text) in [("ir", &compiled.ir), ("opt", &compiled.optimized), ("asm", &compiled.assembly)] {
        if let (true, Some(text)) = (wants(stage), text) {
            dump(stage, text)?;
        }
    }
    if let Some(base) = &run.emit_llvm {
        write_file(format!("{base}.original.ll").as_ref(), compiled.ir.as_deref().unwrap_or("").as_bytes())?;
        write_file(format!("{base}.optimized.ll").as_ref(), compiled.optimized.as_deref().unwrap_or("").as_bytes())?;
    }
    Ok(compiled)
}

fn list(what: Listed, verbose: bool, run: &Run) -> Result<u8, Failure> {
    match &run.against {
        Some(file) => list_of(&snapshot::open(file)?, what, verbose, run),
        None => {
            list_of(&Live::with_functions(run.traceable_functions.clone()).with_debug_dirs(&run.settings.debug_dirs), what, verbose, run)
        }
    }
}

fn list_of(sys: &dyn TargetInfo, what: Listed, verbose: bool, run: &Run) -> Result<u8, Failure> {
    let mut out = io::BufWriter::with_capacity(1 << 16, Stdout);
    let mut settings = run.settings.clone();
    from_environment(&mut settings)?;
    let env = Env { sys, settings: &settings, invocation: &run.invocation };
    match what {
        Listed::Script(program) => {
            let run = Run { settings: Settings { mode: Mode::List, ..run.settings.clone() }, ..run.clone() };
            let mut front = Frontend::new(&run);
            front.read(&program)?;
            let tree = front.parse()?;
            let checked = front.check(&tree, sys)?;
            list::list_script(&checked.script, &checked.env(sys), verbose, &mut out)?;
        }
        Listed::All => list::list(None, &env, verbose, &mut out)?,
        Listed::Pattern(pattern) => {
            if pattern.contains('.') && !pattern.contains([':', '*', '/', ' ']) && run.warnings {
                to_stderr(&format!(
                    "{} there is no file `{}`; treating it as a pattern\n",
                    paint("warning:", terminal::WARNING, run.color),
                    diag::plain(&pattern)
                ));
            }
            list::list(Some(&pattern), &env, verbose, &mut out)?;
        }
    }
    Ok(0)
}
