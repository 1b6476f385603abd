//! Compiles a checked script: [`hir`] to [`artifact::Artifact`].
//!
//! - `probe.rs`: a program and what decides whether its body runs
//! - `stmt.rs`, `expr.rs`: the body; `function.rs`: the script's functions that it calls; `chunk.rs`: long
//!   bodies in pieces
//! - `event.rs`: what is told to user space
//! - `lower.rs`: the mechanism that serves each probe; `paired.rs`: exits that follow an entry
//! - `storage.rs`: the type and layout of each map
//! - `double_buffer.rs`: where a map is shown and emptied at once

pub mod artifact;
mod chunk;
mod double_buffer;
mod event;
mod expr;
mod follow;
mod function;
mod lower;
mod paired;
mod probe;
mod session;
mod stmt;
mod storage;

use std::collections::BTreeSet;

use crate::builtins;
use crate::diag::{Diagnostic, Lines, Source, Span};
use crate::emit::{Context, Dumps, Emit, EmitError, Helper, Problem, Room, Slots};
use crate::probes::Env;
use crate::sema::hir;
use crate::settings::{Mechanism, Settings};
use crate::system::kernel::object_limits::{Limited, MOST_MAPS, MOST_STACK, limited};
use crate::system::{Feature, TargetInfo};
use crate::types::Type;
use crate::value::Pos;
pub use lower::lower;

use artifact::{Artifact, Event, Hits, Manifest};

/// A compiled script and what was asked to be kept on the way.
#[derive(Debug)]
pub struct Compiled {
    /// What is run.
    pub artifact: Artifact,
    /// LLVM IR as generated.
    pub ir: Option<String>,
    /// LLVM IR as optimized.
    pub optimized: Option<String>,
    /// BPF assembly.
    pub assembly: Option<String>,
    /// How often it was compiled until its programs kept within their stack.
    pub turns: u32,
}

/// Helpers that not every kernel has which we run on, and in whose place there is nothing else.
const NEWER: [(Helper, Feature, &str); 3] = [
    (Helper::ForEachMapElem, Feature::ForEach, "loops over a map, including len(), need Linux 5.13"),
    (Helper::MapLookupPercpuElem, Feature::PercpuLookup, "reading an aggregation within the script needs Linux 5.19"),
    (Helper::KtimeGetTaiNs, Feature::Tai, "Linux 6.1 has it; `nsecs(sw_tai)` works on every kernel"),
];

/// The compiler at work on one script.
struct Gen<'a, 'c> {
    e: Emit<'c>,
    script: &'a hir::Script,
    sources: &'a [Source],
    lines: Vec<Lines>,
    env: Env<'a>,
    /// By index.
    events: Vec<(u32, Event)>,
    vars: Vec<stmt::Home<'c>>,
    var_types: Vec<Type>,
    loops: Option<stmt::Loops<'c>>,
    /// Where in scratch memory the turns of all `while`s are counted.
    turns: Option<u32>,
    /// How many loops' functions deep.
    depth: u32,
    /// By probe: the first byte that says that it was hit, and how many sites have one each. How many bytes there are, and
    /// which functions set them.
    hits: Vec<Option<(u32, Option<u32>)>>,
    hits_total: u32,
    hit_by: Vec<(String, u32, bool, usize)>,
    /// Functions that are halves of a session: their own name, the program's, and which of its sites is their first.
    halves: Vec<(String, String, usize)>,
    /// Number of the program under construction.
    program: usize,
    /// So many functions its loops and functions become.
    most_frames: u32,
    site: Option<&'a crate::probes::ProbeSite>,
    /// What the program returns where the script does not say.
    default: u64,
    /// What the statement under construction takes of a map.
    taking: Option<double_buffer::Taken>,
    /// Set for a long body, which is cut into functions.
    chunks: Option<chunk::Chunks>,
    /// The functions of the probe under construction, and what has been made of them.
    functions: &'a [hir::Function],
    made: Vec<Option<function::Made<'c>>>,
    /// Where the function under construction leaves its result; none in a program's own body.
    within: Option<function::CurrentFunction>,
}

/// The room that is given to a script's programs: the first where all of them fit is taken.
const ROOMS: [Room; 4] = [
    Room { temporaries: 256, lean: false },
    Room { temporaries: 64, lean: false },
    Room { temporaries: 128, lean: true },
    Room { temporaries: 0, lean: true },
];

/// Compiles. It fails only where LLVM finds something that checking should have.
pub fn compile(
    script: &hir::Script,
    settings: &Settings,
    sys: &dyn TargetInfo,
    sources: &[Source],
    dumps: Dumps,
) -> Result<Compiled, EmitError> {
    let mut best: Option<(u32, Compiled)> = None;
    let mut refused = None;
    for (turn, room) in (1..).zip(ROOMS) {
        match compile_within(room, script, settings, sys, sources, dumps) {
            Ok(mut compiled) => {
                compiled.turns = turn;
                let programs = match limited(&compiled.artifact.elf) {
                    Ok(programs) => programs,
                    Err(e) => crate::bug!("our own object cannot be read: {e}"),
                };
                let told = too_many_maps(&programs, &compiled.artifact.manifest, script);
                if !told.is_empty() {
                    return Err(told.into());
                }
                let stack = programs.iter().map(|p| p.stack).max().unwrap_or(0);
                if stack <= MOST_STACK {
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
    // the kernel has the last word
    match (best, refused) {
        (Some((_, compiled)), _) => Ok(compiled),
        (None, Some(e)) => Err(e),
        (None, None) => crate::bug!("there is some room"),
    }
}

/// Probes that name more maps than the kernel takes.
fn too_many_maps(programs: &[Limited], manifest: &Manifest, script: &hir::Script) -> Vec<Diagnostic> {
    let mut told: Vec<Diagnostic> = Vec::new();
    for program in programs.iter().filter(|p| p.maps.len() > MOST_MAPS) {
        let site = manifest.programs.iter().find(|p| p.function == program.name).and_then(|p| p.sites.first());
        let probe = site.and_then(|s| script.probes.iter().find(|p| p.sites.iter().any(|q| q.name == s.name)));
        let own = program.maps.iter().filter(|m| m.starts_with("map_")).count();
        let most = MOST_MAPS - (program.maps.len() - own);
        let message = format!("this probe uses {own} maps; the kernel allows {most} in addition to those of every probe");
        let help = "use one map with a key instead of several, or split the work among several probes";
        let said = Diagnostic::error("too-many-maps", probe.map_or_else(Span::default, |p| p.span), message).help(help);
        if !told.contains(&said) {
            told.push(said);
        }
    }
    told
}

fn compile_within(
    room: Room,
    script: &hir::Script,
    settings: &Settings,
    sys: &dyn TargetInfo,
    sources: &[Source],
    dumps: Dumps,
) -> Result<Compiled, EmitError> {
    let cx = Context::create();
    let mut e = Emit::new(&cx, sources, sys.has(Feature::CpuV4), &settings.license);
    e.fetches = sys.has(Feature::Fetch);
    e.checks_recursion = !sys.has(Feature::RecursionCheck);
    e.allocates = sys.has(Feature::AllocatesAnywhere);
    e.loops = sys.has(Feature::Loop) && !settings.refuses(Mechanism::BpfLoop);
    e.namespace = sys.pid_namespace();
    e.may_sleep = sys.has(Feature::SleepingUprobes);
    e.on_stack_limit = settings.on_stack_limit.clamp(8, 64) as u32;
    e.room = room;
    e.lacks = NEWER.iter().filter(|(_, feature, _)| !sys.has(*feature)).map(|(helper, _, help)| (*helper, *help)).collect();
    e.warning_level = settings.warning_level;
    e.counts_unread = settings.counts_unread;
    e.follows = settings.follows();
    e.max_stacks = settings.max_stacks;
    e.probes = script.probes.len() as u32;
    for (i, m) in script.maps.iter().enumerate() {
        let (def, slots) = storage::of(m, sys);
        e.declare_script_map(i, def, slots);
    }
    if settings.shares_maps {
        for ty in script.maps.iter().flat_map(|m| m.key.iter().chain([&m.value])) {
            builtins::declare_stacks(&mut e, ty);
        }
    }
    let doubles = if settings.shares_maps { BTreeSet::new() } else { double_buffer::maps(script) };
    for id in doubles {
        if let Some(m) = script.maps.get(id) {
            e.double_script_map(id, storage::of(m, sys).0);
        }
    }
    let mut g = Gen {
        e,
        script,
        sources,
        lines: sources.iter().map(Lines::new).collect(),
        env: Env { sys, settings },
        events: Vec::new(),
        vars: Vec::new(),
        var_types: Vec::new(),
        loops: None,
        turns: None,
        depth: 0,
        hits: Vec::new(),
        hits_total: 0,
        hit_by: Vec::new(),
        halves: Vec::new(),
        program: 0,
        most_frames: 0,
        site: None,
        default: 0,
        taking: None,
        chunks: None,
        functions: &[],
        made: Vec::new(),
        within: None,
    };
    let programs = g.programs();
    let followers = g.followers();
    let Gen { e, mut events, lines, hit_by, halves, .. } = g;
    let hits = hit_by.iter().filter_map(|(function, first, each, sites)| {
        let half = halves.iter().find(|(half, ..)| half == function);
        let (function, from) = half.map_or((function, 0), |(_, whole, from)| (whole, *from));
        let program = programs.iter().position(|p| p.function == *function)?;
        Some(Hits { program, first: *first, each: *each, sites: (from, *sites) })
    });
    let hits = hits.collect();
    let stacks = e.stacks.iter().copied().collect();
    let kept: Vec<(Option<u32>, Option<Slots>)> = (0..script.maps.len()).map(|id| (e.double(id), e.slots(id))).collect();
    let built = e.build(dumps)?;
    let problem = |p: Problem| {
        let (pos, line) = place(sources, &lines, p.span);
        artifact::Problem { helper: p.helper.map(Into::into), text: p.text, pos, line }
    };
    let problems = built.problems.into_iter().map(problem).collect();
    events.sort_by_key(|(i, _)| *i);
    let map = |(m, (double, slots)): (&hir::Map, (Option<u32>, Option<Slots>))| artifact::Map {
        name: m.name.clone(),
        key: m.key.clone(),
        value: m.value.clone(),
        double,
        slots,
    };
    let maps = script.maps.iter().zip(kept).map(map).collect();
    let manifest = Manifest {
        hits,
        programs,
        maps,
        probes: script.probes.len(),
        events: events.into_iter().map(|(_, e)| e).collect(),
        problems,
        followers,
        stacks,
    };
    let artifact = Artifact { elf: built.elf, manifest };
    Ok(Compiled { artifact, ir: built.ir, optimized: built.optimized, assembly: built.assembly, turns: 1 })
}

/// A span as messages name it, and the text of its line.
fn place(sources: &[Source], lines: &[Lines], span: Span) -> (Pos, String) {
    let index = usize::from(span.source);
    match (sources.get(index), lines.get(index)) {
        (Some(s), Some(lines)) => {
            let (line, col) = lines.line_col(s, span.start);
            let end = lines.line_col(s, span.end);
            (Pos { file: s.name.clone(), line, col, end }, lines.line(s, line).to_string())
        }
        _ => (Pos::default(), String::new()),
    }
}

impl Gen<'_, '_> {
    /// What is emitted next comes from here.
    fn at(&mut self, span: Span) {
        let index = usize::from(span.source);
        if let (Some(s), Some(lines)) = (self.sources.get(index), self.lines.get(index)) {
            self.e.span = span;
            let (line, col) = lines.line_col(s, span.start);
            self.e.at(span.source, line, col);
        }
    }
}
