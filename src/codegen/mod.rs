//! Compiles a checked script: [`hir`] to [`artifact::Artifact`].
//!
//! - `probe.rs`: a program and what decides whether its body runs
//! - `stmt.rs`, `expr.rs`: the body; `function.rs`: the script's functions that it calls; `chunk.rs`: long
//!   bodies in pieces
//! - `event.rs`: what is told to user space
//! - `lower.rs`: the mechanism that serves each probe; `paired.rs`: exits that follow an entry
//! - `moments.rs`: where a map is shown and emptied at once

pub mod artifact;
mod chunk;
mod event;
mod expr;
mod function;
mod lower;
mod moments;
mod paired;
mod probe;
mod session;
mod stmt;

use std::collections::BTreeSet;

use crate::check::hir;
use crate::diag::{Lines, Source, Span};
use crate::emit::{Context, Dumps, Emit, EmitError, MapDef, MapKind, NO_PREALLOC};
use crate::probes::Env;
use crate::settings::{Mechanism, Settings};
use crate::system::{Feature, System};
use crate::types::Type;
use crate::value::Pos;
pub use lower::lower;

use artifact::{Artifact, Event, EventArg, EventKind, Hits, Manifest};

/// A compiled script and what was asked to be kept on the way.
#[derive(Debug)]
pub struct Compiled {
    /// What is run.
    pub artifact: Artifact,
    /// LLVM IR as generated.
    pub ir: Option<String>,
    /// LLVM IR as optimised.
    pub optimised: Option<String>,
    /// BPF assembly.
    pub assembly: Option<String>,
}

/// Maps over so many bytes in all are allocated element by element, as keys come: then the kernel may have no memory at that
/// moment, the more so the larger a value is and the busier the processors are.
const PREALLOC_LIMIT: u64 = 4 << 20;
/// The same for maps whose script says how many elements they have.
const SIZED_PREALLOC_LIMIT: u64 = 64 << 20;

/// Bytes that a per-CPU value may have: `PCPU_MIN_UNIT_SIZE` of include/linux/percpu.h, which kernel/bpf/arraymap.c and
/// hashtab.c check against. The processors share what is larger.
const PER_CPU_LIMIT: u32 = 32 << 10;

/// The compiler at work on one script.
struct Gen<'a, 'c> {
    e: Emit<'c>,
    script: &'a hir::Script,
    sources: &'a [Source],
    lines: Vec<Lines>,
    env: Env<'a>,
    /// By index, except those that are `emit`'s own problems.
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
    /// What the statement under construction takes of a map.
    taking: Option<moments::Taken>,
    /// Set for a long body, which is cut into functions.
    chunks: Option<chunk::Chunks>,
    /// The functions of the probe under construction, and what has been made of them.
    functions: &'a [hir::Function],
    made: Vec<Option<function::Made<'c>>>,
    /// Where the function under construction leaves its result; none in a program's own body.
    within: Option<function::Within>,
}

/// Compiles. It fails only where LLVM finds something that checking should have.
pub fn compile(
    script: &hir::Script,
    settings: &Settings,
    sys: &dyn System,
    sources: &[Source],
    dumps: Dumps,
) -> Result<Compiled, EmitError> {
    let cx = Context::create();
    let mut e = Emit::new(&cx, sources, sys.has(Feature::CpuV4), &settings.license);
    e.fetches = sys.has(Feature::Fetch);
    e.allocates = sys.has(Feature::AllocatesAnywhere);
    e.loops = sys.has(Feature::Loop) && !settings.refuses(Mechanism::BpfLoop);
    e.may_sleep = sys.has(Feature::SleepingUprobes);
    e.on_stack_limit = settings.on_stack_limit.clamp(8, 64) as u32;
    e.warning_level = settings.warning_level;
    e.counts_unread = settings.counts_unread;
    e.probes = script.probes.len() as u32;
    for (i, m) in script.maps.iter().enumerate() {
        e.declare_map(&format!("map_{i}"), map_def(m, sys));
    }
    let doubles = if settings.shares_maps { BTreeSet::new() } else { moments::maps(script) };
    for id in doubles {
        if let Some(m) = script.maps.get(id) {
            e.double_script_map(id, map_def(m, sys));
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
        taking: None,
        chunks: None,
        functions: &[],
        made: Vec::new(),
        within: None,
    };
    let programs = g.programs();
    let Gen { e, mut events, lines, hit_by, halves, .. } = g;
    let hits = hit_by.iter().filter_map(|(function, first, each, sites)| {
        let half = halves.iter().find(|(half, ..)| half == function);
        let (function, from) = half.map_or((function, 0), |(_, whole, from)| (whole, *from));
        let program = programs.iter().position(|p| p.function == *function)?;
        Some(Hits { program, first: *first, each: *each, sites: (from, *sites) })
    });
    let hits = hits.collect();
    let stacks = e.stacks.iter().copied().collect();
    let double: Vec<Option<u32>> = (0..script.maps.len()).map(|id| e.double(id)).collect();
    let built = e.build(dumps)?;
    for p in built.problems {
        let kind = match p.helper {
            Some(h) => EventKind::HelperError { helper: h.into() },
            None => EventKind::Problem(p.text),
        };
        let (pos, line) = place(sources, &lines, p.span);
        events.push((p.event, Event { kind, pos, line, literals: Vec::new(), args: vec![EventArg::Field { ty: Type::I64, offset: 8 }] }));
    }
    events.sort_by_key(|(i, _)| *i);
    let map =
        |(m, double): (&hir::Map, Option<u32>)| artifact::Map { name: m.name.clone(), key: m.key.clone(), value: m.value.clone(), double };
    let maps = script.maps.iter().zip(double).map(map).collect();
    let manifest =
        Manifest { hits, programs, maps, probes: script.probes.len(), events: events.into_iter().map(|(_, e)| e).collect(), stacks };
    Ok(Compiled { artifact: Artifact { elf: built.elf, manifest }, ir: built.ir, optimised: built.optimised, assembly: built.assembly })
}

/// A script's map as the kernel will have it. Aggregations are per CPU, but for very large ones; large maps are not allocated ahead.
fn map_def(m: &hir::Map, sys: &dyn System) -> MapDef {
    let value_size = m.value.size().max(1).next_multiple_of(8);
    let per_cpu = m.value.aggregation().is_some() && value_size <= PER_CPU_LIMIT;
    let Some(key) = &m.key else {
        let kind = if per_cpu { MapKind::PercpuArray } else { MapKind::Array };
        return MapDef { kind, key_size: 4, value_size, max_entries: 1, flags: 0 };
    };
    let kind = match (per_cpu, m.lru) {
        (false, false) => MapKind::Hash,
        (false, true) => MapKind::LruHash,
        (true, false) => MapKind::PercpuHash,
        (true, true) => MapKind::LruPercpuHash,
    };
    let copies = if per_cpu { u64::from(sys.possible_cpus()) } else { 1 };
    let bytes = u64::from(m.max_entries) * (u64::from(key.size()) + u64::from(value_size) * copies);
    let limit = if m.sized { SIZED_PREALLOC_LIMIT } else { PREALLOC_LIMIT };
    let flags = if bytes > limit && !m.lru && sys.has(Feature::AllocatesAnywhere) { NO_PREALLOC } else { 0 };
    MapDef { kind, key_size: key.size().max(1), value_size, max_entries: m.max_entries.max(1), flags }
}

/// A span as messages name it, and the text of its line.
fn place(sources: &[Source], lines: &[Lines], span: Span) -> (Pos, String) {
    let index = usize::from(span.source);
    match (sources.get(index), lines.get(index)) {
        (Some(s), Some(lines)) => {
            let (line, col) = lines.line_col(s, span.start);
            (Pos { file: s.name.clone(), line, col }, lines.line(s, line).to_string())
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
