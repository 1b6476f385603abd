//! A compiled script: an ELF object, and everything needed to run it and to interpret its records.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::builtins::Lit;
use crate::builtins::options::ArgumentValues;
use crate::diag::Span;
use crate::probes::{Attach, ProgramType, search, timer};
use crate::settings::{Argument, Mechanism};
use crate::syntax::ast::{AttachPoint, Segment};
use crate::types::Type;
use crate::value::Pos;

/// A compiled script.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Artifact {
    /// A BPF ELF object with BTF-defined maps.
    pub elf: Vec<u8>,
    /// Its description.
    pub manifest: Manifest,
}

/// The description of an object.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// One per function in the object, in order of declaration.
    pub programs: Vec<Program>,
    /// The script's maps, in order of name. Map `i` is `map_i` in the object.
    pub maps: Vec<Map>,
    /// The meaning of a record's index.
    pub events: Vec<Event>,
    /// Reported problems, each with its [`Failures`].
    #[serde(default)]
    pub problems: Vec<Problem>,
    /// The programs that record whether they ran: bytes of the object's [`HITS_SECTION`].
    #[serde(default)]
    pub hits: Vec<Hits>,
    /// Programs that maintain the maps of followed processes and of Python interpreters, with their raw tracepoints.
    #[serde(default)]
    pub followers: Vec<Follower>,
    /// Which runs of each probe a limit may drop; empty if nothing limits the run.
    #[serde(default)]
    pub sampling: Vec<Sampling>,
    /// Probes whose events the limit of the events cannot drop.
    #[serde(default)]
    pub unlimited: Vec<usize>,
    /// By probe that only deletes elements: the probes that store them. If it is detached, so are they.
    #[serde(default)]
    pub storing: Vec<Vec<usize>>,
    /// Number of [`ProbeCounters`] per CPU.
    #[serde(default)]
    pub probes: usize,
    /// Limits (in frames) of the stack maps. The map with limit n is `stacks_n`: a hash from the ID of a stack (`u64`) to n
    /// addresses (`u64` each, zero after the last). The reader removes stacks from it to free space.
    pub stacks: Vec<u32>,
}

/// How a limit may drop runs of a probe: see `codegen/gates.rs`. Probes are named by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sampling {
    /// Not at all.
    Exempt,
    /// Independently.
    Alone,
    /// The decision also applies to the return of the call.
    Entry {
        /// The first of the entries that decide together.
        group: usize,
    },
    /// As decided for the entry.
    Return {
        /// The first of these entries.
        group: usize,
    },
    /// Not individually: the probe can only be detached with those of its group.
    Coupled {
        /// The group's first probe.
        group: usize,
    },
}

impl Manifest {
    /// The types of the data that reach user space: keys and values of maps, and fields of records.
    pub fn types(&self) -> impl Iterator<Item = &Type> {
        let fields = self.events.iter().flat_map(|event| &event.args).filter_map(|arg| match arg {
            EventArg::Field { ty, .. } | EventArg::Var { ty, .. } => Some(ty),
            EventArg::Int(_)
            | EventArg::Text(_)
            | EventArg::Word(_)
            | EventArg::Map(_)
            | EventArg::TakenMap { .. }
            | EventArg::Element { .. } => None,
        });
        self.maps.iter().flat_map(|map| map.key.iter().chain([&map.value])).chain(fields)
    }
}

impl Manifest {
    /// The names of programs whose events the limit of the events cannot drop.
    pub fn unlimited_programs(&self) -> impl Iterator<Item = String> {
        self.programs.iter().filter(|program| program.probes.iter().any(|probe| self.unlimited.contains(probe))).map(Program::name)
    }
}

/// The maximum number of probes, programs, frames and other items in a manifest.
const MAX_ITEMS: usize = 1 << 20;
/// The largest value in bytes.
const MAX_VALUE_SIZE: u32 = 1 << 26;

impl Manifest {
    /// Can it have been written by rbt? It may be untrusted, and its numbers determine memory use.
    ///
    /// # Errors
    /// The fault.
    pub fn check(&self) -> Result<(), &'static str> {
        // the other checks need sizes
        if !self.types().all(|ty| ty.is_valid(MAX_VALUE_SIZE)) {
            return Err("the size of a type");
        }
        let is_program = |index: usize| index < self.programs.len();
        let is_map = |index: usize| index < self.maps.len();
        let fits = |offset: u32, size: u32| offset.checked_add(size).is_some_and(|end| end <= MAX_VALUE_SIZE);
        let slots_fit = |slots: &Slots| {
            let of_all = u64::from(slots.stride) * u64::from(slots.count);
            slots.count.is_power_of_two() && slots.size <= MAX_VALUE_SIZE && u64::from(slots.first) + of_all <= u64::from(slots.size) + 64
        };
        let threads_fit =
            |table: &ThreadTable| table.cells.is_power_of_two() && table.cells > 1 && table.end() <= u64::from(MAX_VALUE_SIZE);
        let arg_fits = |arg: &EventArg| match arg {
            EventArg::Field { ty, offset } | EventArg::Var { ty, offset } => fits(*offset, ty.size()),
            EventArg::Map(map) | EventArg::TakenMap { map, .. } => is_map(*map),
            EventArg::Element { map, offset } => is_map(*map) && fits(*offset, 0),
            EventArg::Int(_) | EventArg::Text(_) | EventArg::Word(_) => true,
        };
        let checks = [
            (self.probes <= MAX_ITEMS && self.programs.len() <= MAX_ITEMS, "its number of probes"),
            (self.stacks.iter().all(|limit| *limit as usize <= MAX_ITEMS), "the limit of a stack"),
            (self.hits.iter().all(|hits| is_program(hits.program)), "the program of a hit"),
            (self.events.iter().flat_map(|event| &event.args).all(arg_fits), "the argument of an event"),
            (self.maps.iter().filter_map(|map| map.slots.as_ref()).all(slots_fit), "the slots of a map"),
            (self.maps.iter().filter_map(|map| map.threads.as_ref()).all(threads_fit), "the table of threads of a map"),
            (self.maps.iter().flat_map(|map| &map.weighted_by).all(|probe| *probe < self.probes.max(1)), "the probe of a weight"),
            (self.maps.iter().flat_map(|map| &map.sources).all(|map| is_map(*map)), "the source of a map"),
            (self.storing.iter().flatten().all(|probe| *probe < self.probes.max(1)), "a probe that stores elements"),
            (self.maps.iter().flat_map(|map| &map.coupled).all(|probe| *probe < self.probes.max(1)), "the probe of a shared map"),
            (self.maps.iter().filter_map(|map| map.double).all(|bit| bit < 64), "the copy of a map"),
            (self.programs.iter().flat_map(|program| &program.probes).all(|probe| *probe < self.probes.max(1)), "the probe of a program"),
            (self.programs.iter().all(Program::has_its_sites), "the sites of a program"),
        ];
        checks.iter().find(|(good, _)| !good).map_or(Ok(()), |(_, what)| Err(what))
    }

    /// Completes the description with the arguments of a run.
    ///
    /// # Errors
    /// An argument is no valid number for a timer.
    pub fn answer(&mut self, values: &ArgumentValues) -> Result<(), String> {
        for event in &mut self.events {
            for (i, argument) in &event.arguments {
                if let Some(literal) = event.literals.get_mut(*i) {
                    *literal = values.value(argument).cloned();
                }
            }
        }
        for program in &mut self.programs {
            for site in std::mem::take(&mut program.sites) {
                let AttachSite { mut name, mut attach, pos } = site;
                let number = timer::argument_of(&name, &attach).and_then(|argument| values.text(&argument));
                match number.as_deref() {
                    Some("" | "0") => continue,
                    Some(number) => timer::set_argument(&mut name, &mut attach, number)?,
                    None => {}
                }
                program.sites.push(AttachSite { name, attach, pos });
            }
        }
        Ok(())
    }

    /// Removes what may differ between machines if the code does not depend on the places of sites.
    pub fn forget_places(&mut self) {
        for program in self.programs.iter_mut().filter(|program| !program.expansions.is_empty()) {
            program.sites.iter_mut().for_each(|site| site.attach = search::shape(&site.attach));
        }
    }

    /// Removes what may differ between machines if the code does not depend on the sites.
    pub fn forget_sites(&mut self) {
        for (index, program) in self.programs.iter_mut().enumerate().filter(|(_, program)| !program.expansions.is_empty()) {
            program.sites.clear();
            program.expansions.iter_mut().for_each(|expansion| expansion.sites = 0);
            self.hits.iter_mut().filter(|hits| hits.program == index && !hits.each).for_each(|hits| hits.sites = (0, 0));
        }
    }

    /// Do all programs of a pattern know its system calls by number? Then later kernels may have calls for which none has code.
    pub fn lacks_later_calls(&self) -> bool {
        let by_number = |program: &Program| program.sites.iter().all(|site| matches!(site.attach, Attach::Syscall { .. }));
        let probes = |by: bool| -> BTreeSet<u32> {
            let programs = self.programs.iter().filter(|program| by_number(program) == by);
            let expansions = programs.flat_map(|program| &program.expansions).filter(|expansion| expansion.has_pattern());
            expansions.map(|expansion| expansion.probe).collect()
        };
        !probes(true).is_subset(&probes(false))
    }

    /// Removes what differs between kernel builds and is irrelevant to records: the IDs of structs.
    pub fn forget_target(&mut self) {
        for map in &mut self.maps {
            map.key.iter_mut().chain([&mut map.value]).for_each(Type::forget_target);
        }
        for arg in self.events.iter_mut().flat_map(|event| &mut event.args) {
            match arg {
                EventArg::Field { ty, .. } | EventArg::Var { ty, .. } => ty.forget_target(),
                EventArg::Int(_)
                | EventArg::Text(_)
                | EventArg::Word(_)
                | EventArg::Map(_)
                | EventArg::TakenMap { .. }
                | EventArg::Element { .. } => {}
            }
        }
    }
}

pub use crate::emit::Slots;
pub use crate::emit::ThreadTable;
pub use crate::emit::second;
pub use crate::emit::shared::{
    ARGUMENTS_SECTION, CALL_MARKS, CODE_RECORD, CUT_REASONS, Cell, Code, FAILURE_RECORD, FAILURES_SECTION, FOLLOWED, Failure, Failures,
    GATES_SECTION, Gate, HITS_SECTION, IN_NAMESPACE, LoadConstants, MARKS_SECTION, MOMENTS, MarkCell, Origin, PYTHON_CODES,
    PYTHON_PROCESSES, PYTHON_STATE, ProbeCounters, Process, RECENT_CALL_MARKS, RING, SCRATCH, SCRATCH_SLOTS, START_SECTION, STATE_SECTION,
    State, TALLIES_SECTION, THREADS_SECTION, stacks_name,
};
pub use crate::emit::unwind;
pub use crate::emit::{CALLS, NAMES};
pub use crate::emit::{MapDef, MapKind};

/// The bytes that a program sets when it runs, after the filters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hits {
    /// Index in [`Manifest::programs`].
    pub program: usize,
    /// The first, or only, byte.
    pub first: u32,
    /// One for each site, or else one for all.
    pub each: bool,
    /// The range of the program's sites that these are about: the first, and the number. (A session has those of two
    /// probes.)
    pub sites: (usize, usize),
}

/// One of rbt's own programs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Follower {
    /// The function's name in the object.
    pub function: String,
    /// Its raw tracepoint.
    pub tracepoint: String,
    /// It maintains [`FOLLOWED`]. A run that follows no process does not need it.
    pub follows: bool,
}

/// A program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Program {
    /// The function's name in the object.
    pub function: String,
    /// Its type.
    pub ty: ProgramType,
    /// The places where it is attached. With several sites, the link's cookie is the site's index (system calls: the
    /// program finds the index by the call's number, and is attached once).
    pub sites: Vec<AttachSite>,
    /// The mechanism that replaces the usual one of its kind. If the kernel rejects it, the script is compiled without
    /// it.
    #[serde(default)]
    pub lowered: Option<Mechanism>,
    /// The reason for or against it, for `-v`; may be empty.
    #[serde(default)]
    pub why: String,
    /// Can it be attached to the process of `-c` alone?
    #[serde(default)]
    pub of_command: bool,
    /// The numbers of the script's probes that it serves, from 0 in order: each has its [`ProbeCounters`]. Two if
    /// entries and returns share a program.
    #[serde(default)]
    pub probes: Vec<usize>,
    /// Where its sites come from, in a bundle; nothing if the code or a mechanism determines them.
    #[serde(default)]
    pub expansions: Vec<Expansion>,
}

/// Attach points that a runner expands again, and the sites of a program that come from them. (A session has those of two
/// probes.)
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Expansion {
    /// The probe of the script. Several programs may serve its sites.
    pub probe: u32,
    /// Its attach points.
    pub points: Vec<Point>,
    /// The number of sites of this program, which follow those of the expansion before.
    pub sites: usize,
    /// The code is the same for any number of sites with any names.
    pub varies: bool,
    /// The code reads arguments, whose locations it contains.
    pub reads_args: bool,
}

impl Expansion {
    fn has_pattern(&self) -> bool {
        self.points.iter().any(|point| point.parts.iter().any(|(part, quoted)| !quoted && part.contains('*')))
    }
}

/// An attach point of an [`Expansion`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Its parts, of which the first is the name of the kind. A quoted one contains no wildcard.
    pub parts: Vec<(String, bool)>,
    /// Its place in the script.
    pub pos: Pos,
}

impl Point {
    /// The name of the kind.
    pub fn kind(&self) -> Option<&str> {
        self.parts.first().map(|(kind, _)| kind.as_str())
    }

    /// In the form that kinds expand.
    pub fn attach_point(&self) -> AttachPoint {
        let segment = |(text, quoted): &(String, bool)| Segment { text: text.clone(), quoted: *quoted, span: Span::default() };
        AttachPoint { name: None, segments: self.parts.iter().map(segment).collect(), span: Span::default() }
    }
}

impl Program {
    /// Do its expansions have all of its sites?
    fn has_its_sites(&self) -> bool {
        let all = self.expansions.iter().try_fold(0usize, |sum, expansion| sum.checked_add(expansion.sites));
        self.expansions.is_empty() || all == Some(self.sites.len())
    }

    /// Is its code for certain matches of a pattern, although its sites are searched for?
    pub fn is_fixed(&self) -> bool {
        self.expansions.iter().any(|expansion| !expansion.varies && expansion.has_pattern())
    }

    /// The sites of the script's probe of this number.
    pub fn sites_of(&self, probe: u32) -> &[AttachSite] {
        match self.probes.as_slice() {
            // entries, and as many returns
            [entries, _] => {
                let (first, second) = self.sites.split_at(self.sites.len() / 2);
                if *entries == probe as usize { first } else { second }
            }
            _ => &self.sites,
        }
    }

    /// The name of its site; if there are several, the first with the number of others.
    pub fn name(&self) -> String {
        self.name_by(&self.sites)
    }

    /// The same for one of its probes: the sites of a session are those of its entry, and as many of its return.
    pub fn name_of(&self, probe: usize) -> String {
        match (self.ty, self.probes.as_slice()) {
            (ProgramType::KprobeSession, [entry, ret]) if entry != ret => {
                let (entries, returns) = self.sites.split_at(self.sites.len() / 2);
                self.name_by(if probe == *ret { returns } else { entries })
            }
            _ => self.name(),
        }
    }

    fn name_by(&self, sites: &[AttachSite]) -> String {
        match sites {
            [] => self.function.clone(),
            [site] => site.name.clone(),
            [site, others @ ..] => format!("{} and {} more", site.name, others.len()),
        }
    }
}

/// A place where a program is attached.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttachSite {
    /// The value of `probe`.
    pub name: String,
    /// The mechanism.
    pub attach: Attach,
    /// The attach point in the script.
    pub pos: Pos,
}

/// A map of the script.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Map {
    /// With its `@`.
    pub name: String,
    /// None for a scalar, which is an array with one element.
    pub key: Option<Type>,
    /// A [`Type::Agg`] is per CPU, unless it has slots or is too large for that.
    pub value: Type,
    /// For a double-buffered map (the second copy is `map_i_second` in the object): its bit in [`State::generations`].
    #[serde(default)]
    pub double: Option<u32>,
    /// For an aggregation in a plain map: the processors' slots in its value.
    #[serde(default)]
    pub slots: Option<Slots>,
    /// For a map whose key is the current thread: the table that has most of its elements.
    #[serde(default)]
    pub threads: Option<ThreadTable>,
    /// The script only adds to its values, which are integers.
    #[serde(default)]
    pub adds: bool,
    /// `end` reads elements of it.
    #[serde(default)]
    pub read_at_end: bool,
    /// The probes that its values depend on, and of which a limit can leave out runs: see [`Sampling`].
    #[serde(default)]
    pub weighted_by: Vec<usize>,
    /// At the prompt: the probes that limits can only detach together with all others that use the map, also those of other entries.
    #[serde(default)]
    pub coupled: Vec<usize>,
    /// At the prompt: the maps on whose values its elements depend, which other entries may change.
    #[serde(default)]
    pub sources: Vec<usize>,
    /// Lost events can make its values too high as well as too low, and its elements wrong.
    #[serde(default)]
    pub unbounded: bool,
    /// The group of calls whose ends pass values to each other by it: see [`Sampling::Entry`]. The elements of calls that are unfinished
    /// when their probes are detached are for nobody.
    #[serde(default)]
    pub passed_by: Option<usize>,
}

/// A kind of record: `u32` index into [`Manifest::events`], `u32` zero, perhaps an [`Origin`], then the fields.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Event {
    /// The builtin that is called.
    pub builtin: String,
    /// Its place in the script.
    pub pos: Pos,
    /// The line of the script.
    pub line: String,
    /// Literals and words of the call, by position.
    pub literals: Vec<Option<Lit>>,
    /// See [`EventSpec::labels`](crate::builtins::EventSpec::labels).
    #[serde(default)]
    pub labels: Vec<String>,
    /// The values by position: the call's arguments, or what the row captured instead.
    pub args: Vec<EventArg>,
    /// Names of the sites that send it, if the record has an [`Origin`] after its first eight bytes.
    #[serde(default)]
    pub sites: Vec<String>,
    /// Positions of arguments of the run: their values are [`literals`](Self::literals), too.
    #[serde(default)]
    pub arguments: Vec<(usize, Argument)>,
}

/// A place in the script where programs report failures, and the operation that fails.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Problem {
    /// The helper that returns an error, without `bpf_`; or none.
    pub helper: Option<String>,
    /// The failure, if it is not that of a helper (an array's bounds).
    pub text: String,
    /// Its place in the script.
    pub pos: Pos,
    /// The line of the script.
    pub line: String,
}

/// An argument of a call in its record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum EventArg {
    /// A literal integer.
    Int(i64),
    /// A literal string.
    Text(Vec<u8>),
    /// A bare word.
    Word(String),
    /// At this offset in the record, with the size of the type.
    Field {
        /// Its type.
        ty: Type,
        /// Bytes from the start of the record.
        offset: u32,
    },
    /// A string or buffer of varying length: at `offset`, a `u32` offset from the record's start and a `u32` length in
    /// bytes. A string of its full capacity without NUL was cut.
    Var {
        /// Its type.
        ty: Type,
        /// Bytes from the start of the record.
        offset: u32,
    },
    /// A whole map.
    Map(usize),
    /// A whole map, which is read and cleared in one step.
    TakenMap {
        /// Which map.
        map: usize,
        /// Its keys stay, with zeros.
        keys: bool,
    },
    /// A map's element: the key's bytes are at `offset`.
    Element {
        /// Which map.
        map: usize,
        /// Bytes from the start of the record.
        offset: u32,
    },
}
