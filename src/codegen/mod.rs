//! Compiles a checked script: [`hir`] to [`artifact::Artifact`].
//!
//! - `probe.rs`: a program, and the conditions for running its body
//! - `stmt.rs`, `expr.rs`: the body; `function.rs`: the script's functions; `chunk.rs`: chunks of long bodies
//! - `alike.rs`: statements of long bodies that share functions
//! - `event.rs`: records for user space
//! - `limits.rs`: the kernel's limits on a program
//! - `lower.rs`: the mechanism of each probe; `latency_pairs.rs`: exits that follow an entry
//! - `storage.rs`: the type and layout of each map
//! - `thread_maps.rs`: maps whose key is the current thread
//! - `double_buffer.rs`: maps that are printed and cleared in one step
//! - `follow.rs`: the programs that track followed processes; `session.rs`: entries and returns that share a program
//! - `walked.rs`: the limits of loops whose iterations the verifier follows
//! - `foreign.rs`: imported objects and their functions
//! - `unwind.rs`: facts about the kernel for unwinding user stacks
//! - `artifact.rs`: the result, an object and its manifest

mod adding;
mod alike;
pub mod artifact;
mod bounds;
mod chunk;
mod double_buffer;
mod event;
mod expr;
mod follow;
mod foreign;
mod function;
mod gates;
mod latency_pairs;
mod limits;
mod loop_variables;
mod lower;
mod nesting;
mod passing;
mod probe;
mod rate_limits;
mod reading;
mod session;
mod stmt;
mod storage;
#[cfg(test)]
mod tests;
mod thread_maps;
mod unwind;
mod value_flow;
pub mod walked;

use std::collections::BTreeSet;

use crate::builtins::{self, MapId};
use crate::diag::{Lines, Source, Span};
use crate::emit::{
    Asked, Builder, CodegenCx, CodegenOptions, Dumps, EmitError, Helper, KnownCode, Problem, Scope, StackLimits, TargetFeatures,
    new_context,
};
use crate::probes::{Env, ProbeSite};
use crate::sema::hir;
use crate::settings::Mechanism;
use crate::system::Feature;
use crate::system::kernel::object_limits::{MAX_FRAMES, MAX_FUNCTIONS, MAX_STACK};
use crate::types::Type;
use crate::value::{MacroUse, Pos};
pub use lower::lower;
pub use unwind::{Limit, Unwinding, wants_tables};

use artifact::{Artifact, Event, Hits, Manifest, Program, Sampling};

/// A compiled script, and the requested dumps.
#[derive(Debug)]
pub struct Compiled {
    /// The result.
    pub artifact: Artifact,
    /// LLVM IR before optimization.
    pub ir: Option<String>,
    /// LLVM IR after optimization.
    pub optimized: Option<String>,
    /// BPF assembly.
    pub assembly: Option<String>,
    /// Number of compilations until the programs fit into their stack.
    pub compilations: u32,
    /// Maximum BPF stack of a program in bytes, including all functions that it calls.
    pub stack: u32,
    /// Number of functions in the longest chain of calls.
    pub frames: u32,
    /// How user stacks are unwound, and the kernel's limit that prevents complete unwinding.
    pub reduced: Option<(Unwinding, Limit)>,
}

/// Helpers that some supported kernels lack, without an alternative.
const NEWER_HELPERS: [(Helper, Feature, &str); 4] = [
    (Helper::ForEachMapElem, Feature::ForEach, "loops over a map, including len(), need Linux 5.13"),
    (Helper::MapLookupPercpuElem, Feature::PercpuLookup, "reading an aggregation within the script needs Linux 5.19"),
    (Helper::GetSocketCookie, Feature::SocketCookie, "Linux 5.12 allows socket_cookie() in tracing programs"),
    (Helper::KtimeGetTaiNs, Feature::Tai, "Linux 6.1 has it; `nsecs(sw_tai)` works on every kernel"),
];

/// The script that is compiled, from which all of its programs are built.
struct ScriptCx<'a, 'c> {
    cx: CodegenCx<'c>,
    script: &'a hir::Script,
    sources: &'a [Source],
    lines: Vec<Lines>,
    env: Env<'a>,
    hits: HitBytes,
    /// By probe.
    sampling: Vec<Sampling>,
    /// Maps to whose values the script only adds.
    adding: BTreeSet<MapId>,
    /// It asks which processes are followed.
    uses_followed: bool,
    /// See [`probe::has_return_addresses`].
    has_return_addresses: bool,
}

/// Bytes that record which probes were hit.
struct HitBytes {
    /// By probe: its first byte, and the number of its sites, each of which has one. None if hits are not recorded.
    by_probe: Vec<Option<(u32, Option<u32>)>>,
    /// Their total number.
    total: u32,
}

/// A compiled program, with the data for the manifest.
struct CompiledProgram {
    program: Program,
    /// Its records, by index.
    events: Vec<(u32, Event)>,
    /// The bytes that it sets; the index of the program is filled in at the end.
    hits: Vec<Hits>,
}

/// The state of compiling one program.
struct Gen<'a, 'c> {
    cx: &'a ScriptCx<'a, 'c>,
    e: Builder<'a, 'c>,
    /// By index.
    events: Vec<(u32, Event)>,
    /// Number of the program.
    program: usize,
    /// Number of BPF functions that its loops and script functions become.
    max_frames: u32,
    site: &'a ProbeSite,
    /// The return value of the program if the script does not set one.
    default_return: u64,
    /// The copy of a double-buffered map that the current statement uses.
    print_and_empty: Option<double_buffer::PrintAndEmpty>,
    /// On the return of a call: not zero if its entry was an event, to which this run belongs.
    event_of_entry: Option<crate::emit::IntValue<'c>>,
    /// The call at whose entry this is, if it has no mark yet.
    unmarked_call: Option<crate::emit::Call<'c>>,
    /// The functions of the probe, and their generated code.
    functions: &'a [hir::Function],
    compiled_functions: Vec<Option<function::CompiledFunction<'c>>>,
    body: Body<'c>,
}

/// The body under construction: the probe's own, or a function's.
#[derive(Default)]
struct Body<'c> {
    vars: Vec<stmt::VarLocation<'c>>,
    var_types: Vec<Type>,
    loops: Option<stmt::Loops<'c>>,
    /// Offset in scratch memory of the counter of iterations of all `while` loops.
    iterations: Option<u32>,
    /// Offset in scratch memory of the state of
    /// [`Builder::loop_limit_reached`](crate::emit::Builder::loop_limit_reached), if there are loops.
    loop_state: Option<u32>,
    /// Nesting depth of the functions of loops.
    depth: u32,
    /// The number of iterations after which each of the current loops stops if the kernel lacks `bpf_loop`.
    iteration_limit: u64,
    /// Set for a long body, which is split into functions.
    chunks: Option<chunk::Chunks>,
    /// The location of a function's result; none in the body of a program.
    function: Option<function::CurrentFunction>,
}

/// The memory budgets of a script's programs: the first that suffices for all of them is used.
const STACK_LIMITS: [StackLimits; 4] = [
    StackLimits { max_temporary_bytes: 256, avoid_value_reuse: false },
    StackLimits { max_temporary_bytes: 64, avoid_value_reuse: false },
    StackLimits { max_temporary_bytes: 128, avoid_value_reuse: true },
    StackLimits { max_temporary_bytes: 0, avoid_value_reuse: true },
];

/// Compiles a script. It fails only if LLVM finds an error that the checker should have found.
pub fn compile(script: &hir::Script, env: &Env, sources: &[Source], dumps: Dumps) -> Result<Compiled, EmitError> {
    compile_with(script, env, sources, dumps, None)
}

/// The same, with the code of rbt's own functions from earlier compilations. The result does not depend on it.
pub fn compile_with(
    script: &hir::Script,
    env: &Env,
    sources: &[Source],
    dumps: Dumps,
    mut known: Option<&mut KnownCode>,
) -> Result<Compiled, EmitError> {
    let shared = loop_variables::shared(script);
    let script = shared.as_ref().unwrap_or(script);
    let mut many = limits::far_too_many_maps(script);
    many.extend(limits::far_too_many_loops(script, env));
    if !many.is_empty() {
        return Err(many.into());
    }
    let mut compiled = compile_within_limits(script, env, sources, dumps, known.as_deref_mut());
    if compiled.as_ref().is_err_and(EmitError::is_for_length) && script.unrolls() {
        let mut script = script.clone();
        script.turn_unrolls_into_loops();
        compiled = compile_within_limits(&script, env, sources, dumps, known);
    }
    let compiled = compiled?;
    if exceeded(&Ok(&compiled)).is_some() {
        return Err(limits::too_much(&compiled, script, env.sys).into());
    }
    Ok(compiled)
}

/// Compiles with the best unwinding of user stacks that the kernel's limits allow.
fn compile_within_limits(
    script: &hir::Script,
    env: &Env,
    sources: &[Source],
    dumps: Dumps,
    mut known: Option<&mut KnownCode>,
) -> Result<Compiled, EmitError> {
    // these offsets are looked up only if a limit is exceeded
    let by_tables = || unwind::target(script, env.sys, env.settings, Unwinding::Tables).is_some();
    let mut refused = None;
    let mut walks = Walks { unwinding: Unwinding::Whole, by_loop_helper: true };
    for how in [Unwinding::Whole, Unwinding::Tables, Unwinding::FramePointers] {
        walks.unwinding = how;
        let mut compiled = compile_with_stack_limits(walks, script, env, sources, dumps, known.as_deref_mut());
        if walks.by_loop_helper && exceeded(&compiled.as_ref()) == Some(Limit::Frames) {
            walks.by_loop_helper = false;
            compiled = compile_with_stack_limits(walks, script, env, sources, dumps, known.as_deref_mut());
        }
        let Some(limit) = exceeded(&compiled.as_ref()).filter(|_| by_tables()) else {
            return match refused {
                None => compiled,
                // the error does not concern stacks
                Some((first, _)) if compiled.is_err() => first,
                Some((_, limit)) => compiled.map(|compiled| Compiled { reduced: Some((how, limit)), ..compiled }),
            };
        };
        refused.get_or_insert((compiled, limit));
    }
    match refused {
        Some((first, _)) => first,
        None => crate::bug!("there is a way to unwind"),
    }
}

/// The limit of the kernel that a script exceeds.
fn exceeded(compiled: &Result<&Compiled, &EmitError>) -> Option<Limit> {
    match compiled {
        Err(e) if e.diagnostics.iter().any(|d| d.code == "too-many-maps") => Some(Limit::Maps),
        Ok(compiled) if compiled.stack > MAX_STACK => Some(Limit::Stack),
        Ok(compiled) if compiled.frames > MAX_FRAMES => Some(Limit::Frames),
        Ok(_) | Err(_) => None,
    }
}

/// Does a probe have a body so long that it is split?
pub fn has_split_body(script: &hir::Script) -> bool {
    script.probes.iter().any(|probe| chunk::is_long(&probe.body, false))
}

/// How programs walk along stacks.
#[derive(Clone, Copy)]
struct Walks {
    unwinding: Unwinding,
    /// By the kernel's loop helper, if it has one: the verifier takes a third of the time. Otherwise by loops of
    /// instructions, which need one function less below the loops of a script.
    by_loop_helper: bool,
}

fn compile_with_stack_limits(
    walks: Walks,
    script: &hir::Script,
    env: &Env,
    sources: &[Source],
    dumps: Dumps,
    mut known: Option<&mut KnownCode>,
) -> Result<Compiled, EmitError> {
    let mut best: Option<(u32, Compiled)> = None;
    let mut refused = None;
    let mut sharing = Sharing::default();
    for (turn, limits) in (1..).zip(STACK_LIMITS) {
        let compiled = loop {
            let compiled = compile_within((limits, walks, &sharing), script, env, sources, dumps, known.as_deref_mut());
            match compiled {
                Err(e) if !e.unlike.is_empty() => {
                    sharing.attempts = sharing.attempts.saturating_sub(1);
                    sharing.unlike.extend(e.unlike);
                }
                Err(e) => break Err(e),
                Ok(compiled) => {
                    let programs = limits::analyze(&compiled.artifact, env.sys);
                    let excess = programs.iter().map(|p| p.functions.saturating_sub(MAX_FUNCTIONS) as u64).max().unwrap_or(0);
                    // larger pieces are fewer
                    if excess == 0 || excess > sharing.max_pieces / 2 || sharing.max_pieces == chunk::MIN_PIECES {
                        break Ok((compiled, programs));
                    }
                    sharing.max_pieces /= 2;
                }
            }
        };
        match compiled {
            Ok((mut compiled, programs)) => {
                compiled.compilations = turn;
                let errors = limits::too_large(&programs, &compiled.artifact.manifest, script);
                if !errors.is_empty() {
                    return Err(errors.into());
                }
                let stack = programs.iter().map(|p| p.stack).max().unwrap_or(0);
                compiled.stack = stack;
                compiled.frames = programs.iter().map(|p| p.frames).max().unwrap_or(0);
                if stack <= MAX_STACK {
                    return Ok(compiled);
                }
                if best.as_ref().is_none_or(|(least, _)| stack < *least) {
                    best = Some((stack, compiled));
                }
            }
            Err(e) if e.is_for_stack() => refused = Some(e),
            Err(e) => return Err(e),
        }
    }
    // the smallest one that does not fit
    match (best, refused) {
        (Some((_, compiled)), _) => Ok(compiled),
        (None, Some(e)) => Err(e),
        (None, None) => crate::bug!("a program has at least one stack limit to try"),
    }
}

/// Which statements may share functions, and how many pieces others may become.
struct Sharing {
    /// How often the choice may turn out wrong before none do.
    attempts: u32,
    /// See [`CodegenOptions::unlike`].
    unlike: BTreeSet<u64>,
    /// See [`CodegenOptions::max_pieces`].
    max_pieces: u64,
}

impl Default for Sharing {
    fn default() -> Self {
        Self { attempts: MAX_SHARING_ATTEMPTS, unlike: BTreeSet::new(), max_pieces: chunk::MAX_PIECES }
    }
}

/// The number of compilations that try to let statements share functions. Few scripts need a second one.
const MAX_SHARING_ATTEMPTS: u32 = 4;

fn compile_within(
    (room, walks, sharing): (StackLimits, Walks, &Sharing),
    script: &hir::Script,
    env: &Env,
    sources: &[Source],
    dumps: Dumps,
    known: Option<&mut KnownCode>,
) -> Result<Compiled, EmitError> {
    let context = new_context(dumps);
    let cx = CodegenCx::new(
        &context,
        sources,
        target_features(script, env, walks),
        CodegenOptions {
            shares_statements: sharing.attempts > 0,
            unlike: sharing.unlike.clone(),
            max_pieces: sharing.max_pieces,
            ..codegen_options(room, script, env)
        },
    );
    declare_maps(&cx, script, env);
    let lines = sources.iter().map(Lines::new).collect();
    let hits = session::number_hits(&script.probes, env.settings.verbose);
    let sampling = gates::sampling(script, env);
    let adding = adding::maps(script);
    let weights = gates::weights(script, env.settings, &sampling);
    let (uses_followed, has_return_addresses) = (probe::uses_followed(script), probe::has_return_addresses(script, env));
    let (value_sources, passed_by) = (gates::sources(script, env), passing::passed_by(script, &sampling));
    let (unbounded, storing) = (bounds::unbounded(script, &adding), gates::storing(script, &sampling));
    let (coupled, unlimited) = (gates::coupled(script, env, &sampling), gates::unlimited(script, env.settings, &sampling));
    let script_cx = ScriptCx { cx, script, sources, lines, env: *env, hits, sampling, adding, uses_followed, has_return_addresses };
    let compiled_programs = script_cx.programs();
    let followers = script_cx.followers();
    script_cx.cx.identify_files();
    let ScriptCx { cx, lines, sampling, adding, .. } = script_cx;
    let stacks = cx.stack_limits();
    let read_at_end = reading::at_end(script);
    let maps =
        script.maps.iter().zip(weights.into_iter().zip(coupled)).enumerate().map(|(id, (m, (weighted_by, coupled)))| artifact::Map {
            name: m.name.clone(),
            key: m.key.clone(),
            value: m.value.clone(),
            double: cx.double(id),
            slots: cx.slots(id),
            threads: cx.thread_table(id),
            adds: adding.contains(&id),
            read_at_end: read_at_end.contains(&id),
            weighted_by,
            coupled,
            sources: value_sources.get(id).cloned().unwrap_or_default(),
            unbounded: unbounded.contains(&id),
            passed_by: passed_by.get(id).copied().flatten(),
        });
    let maps = maps.collect();
    let mut built = cx.build(dumps, known)?;
    built.elf = foreign::linked(built.elf, &env.settings.license, script)?;
    let problem = |p: Problem| {
        let (pos, line) = place_with_uses(sources, &lines, script, p.span);
        artifact::Problem { helper: p.helper.map(Into::into), text: p.text, pos, line }
    };
    let problems = built.problems.into_iter().map(problem).collect();
    let (mut programs, mut events, mut hits) = (Vec::new(), Vec::new(), Vec::new());
    for (index, compiled_programs) in compiled_programs.into_iter().enumerate() {
        programs.push(compiled_programs.program);
        events.extend(compiled_programs.events);
        hits.extend(compiled_programs.hits.into_iter().map(|h| Hits { program: index, ..h }));
    }
    events.sort_by_key(|(i, _)| *i);
    let events = events.into_iter().map(|(_, e)| e).collect();
    let manifest =
        Manifest { hits, programs, maps, probes: script.probes.len(), events, problems, followers, stacks, sampling, unlimited, storing };
    let artifact = Artifact { elf: built.elf, manifest };
    Ok(Compiled {
        artifact,
        ir: built.ir,
        optimized: built.optimized,
        assembly: built.assembly,
        compilations: 1,
        stack: 0,
        frames: 0,
        reduced: None,
    })
}

/// The features of the kernel that code generation depends on.
fn target_features<'a>(script: &'a hir::Script, env: &Env<'a>, walks: Walks) -> TargetFeatures<'a> {
    let (sys, settings) = (env.sys, env.settings);
    let has = |feature| Asked::when_needed(move || sys.has(feature));
    let first_sites = || script.probes.iter().filter_map(|p| p.sites.first());
    let in_user_space = first_sites().any(|s| s.kind.program(s, env).row().in_user_space);
    TargetFeatures {
        arch: sys.arch(),
        v4: sys.has(Feature::CpuV4),
        atomic_fetch: has(Feature::Fetch),
        checks_recursion: Asked::when_needed(move || !sys.has(Feature::RecursionCheck)),
        newer_helpers: NEWER_HELPERS.map(|(helper, feature, help)| (helper, has(feature), help)).into(),
        allocates_in_any_context: has(Feature::AllocatesAnywhere),
        loop_helper: Asked::when_needed(move || sys.has(Feature::Loop) && !settings.refuses(Mechanism::BpfLoop)),
        walks_by_loop_helper: walks.by_loop_helper,
        inline_bounds: !settings.refuses(Mechanism::InlineBounds),
        may_sleep: has(Feature::SleepingUprobes),
        shared_stacks: Asked::when_needed(move || in_user_space && sys.has(Feature::SharedStacks)),
        unwind: unwind::target(script, sys, settings, walks.unwinding),
    }
}

/// Requirements of the run on the code.
fn codegen_options(stack_limits: StackLimits, script: &hir::Script, env: &Env) -> CodegenOptions {
    let settings = env.settings;
    CodegenOptions {
        shares_often: settings.refuses(Mechanism::InlineStatements),
        license: settings.license.clone(),
        namespace: if env.invocation.late_bound.target { None } else { env.sys.pid_namespace() },
        namespace_at_run: env.invocation.late_bound.target,
        on_stack_limit: settings.on_stack_limit.clamp(8, 64) as u32,
        stack_limits,
        warning_level: settings.warning_level,
        counts_unread: env.invocation.counts_unread,
        timestamps: env.invocation.stamps,
        origins: env.invocation.sends_origin,
        follows_processes: settings.follows(env.invocation),
        follows_at_run: env.invocation.late_bound.target,
        probes: script.probes.len() as u32,
        max_stacks: settings.max_stacks,
        is_linked: !script.objects.is_empty(),
        ..CodegenOptions::default()
    }
}

fn declare_maps(cx: &CodegenCx, script: &hir::Script, env: &Env) {
    for (i, m) in script.maps.iter().enumerate() {
        let (def, slots) = storage::of(m, env.sys);
        cx.declare_script_map(i, def, slots);
    }
    if env.invocation.shares_maps {
        for ty in script.maps.iter().flat_map(|m| m.key.iter().chain([&m.value])) {
            builtins::declare_stacks(cx, ty);
        }
        return;
    }
    for id in double_buffer::maps(script) {
        if let Some(m) = script.maps.get(id) {
            cx.double_script_map(id, storage::of(m, env.sys).0);
        }
    }
    for id in thread_maps::of(script, env) {
        if let (Some(m), None) = (script.maps.get(id), cx.double(id)) {
            cx.declare_thread_table(id, storage::thread_cells(m));
        }
    }
}

/// The longest line that messages show, in bytes. Each place in the script has a copy of its line.
const MAX_LINE: usize = 4096;

/// The position of a span for messages, and the text of its line, unless it is too long.
fn source_position(sources: &[Source], lines: &[Lines], span: Span) -> (Pos, String) {
    let index = usize::from(span.source);
    match (sources.get(index), lines.get(index)) {
        (Some(s), Some(lines)) => {
            let (line, col) = lines.line_col(s, span.start);
            let end = lines.line_col(s, span.end);
            let text = lines.line(s, line);
            let text = if text.len() > MAX_LINE { "" } else { text };
            (Pos { file: s.name.clone(), line, col, end, ..Pos::default() }, text.to_string())
        }
        _ => (Pos::default(), String::new()),
    }
}

/// The same, with the uses of macros that led there.
fn place_with_uses(sources: &[Source], lines: &[Lines], script: &hir::Script, span: Span) -> (Pos, String) {
    let used = |span: &Span| script.macro_uses.get(usize::from(span.expansion).checked_sub(1)?).copied();
    let uses = std::iter::successors(used(&span), used).map(|at| {
        let (pos, line) = source_position(sources, lines, at);
        MacroUse { pos, line }
    });
    let (pos, line) = source_position(sources, lines, span);
    (Pos { expanded_from: uses.collect(), ..pos }, line)
}

impl<'a, 'c> Gen<'a, 'c> {
    /// Assigns the following code to this place in the script.
    fn at(&mut self, span: Span) {
        let index = usize::from(span.source);
        if let (Some(s), Some(lines)) = (self.cx.sources.get(index), self.cx.lines.get(index)) {
            self.e.scope.span = span;
            let (line, col) = lines.line_col(s, span.start);
            self.e.at(span.source, line, col);
        }
    }

    /// Emits `body` for a different place in the script.
    fn located<T>(&mut self, span: Span, body: impl FnOnce(&mut Self) -> T) -> T {
        let around = self.e.scope.span;
        self.at(span);
        let result = body(self);
        self.at(around);
        result
    }

    /// [`Builder::scoped`] for a body that needs the compiler.
    fn scoped<T>(&mut self, change: impl FnOnce(&mut Scope), body: impl FnOnce(&mut Self) -> T) -> T {
        let around = self.e.scope;
        change(&mut self.e.scope);
        let result = body(self);
        self.e.scope = around;
        result
    }

    /// Emits `body` into another function, and returns that function.
    fn emit_into(&mut self, function: Builder<'a, 'c>, body: impl FnOnce(&mut Self, &Builder<'a, 'c>)) -> Builder<'a, 'c> {
        let around = std::mem::replace(&mut self.e, function);
        body(self, &around);
        std::mem::replace(&mut self.e, around)
    }
}
