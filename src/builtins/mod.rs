//! The table of builtins: variables, functions and aggregations.
//!
//! A row has the parameters and the result of a builtin, the code that runs in the kernel, and the user-space code that handles
//! its records and values. The file of a row spells its name; no other file does.

mod cgroup;
mod control;
mod count;
mod floats;
mod heatmap;
mod hist;
mod kernel;
mod machine;
mod maps;
pub mod memory;
mod meta;
mod names;
mod net;
pub mod options;
mod packets;
mod percentiles;
mod print;
mod probe;
mod process;
mod python;
mod python_frames;
mod sampling;
mod search;
mod series;
mod shell;
mod span;
mod stacks;
mod strings;
pub mod symbols;
#[cfg(test)]
mod tests;
mod time;
mod user_side;

use std::cell::RefCell;

pub use cgroup::names_container;
pub use sampling::KEYED_LIMIT;
pub use stacks::{IncompleteStacks, contains_user_stack};
pub use user_side::{AggregateSide, EventSide, UserSide, aggregate, counts_events, user_side};

use crate::diag::{Diagnostic, Span};
use crate::emit::{Builder, CodegenCx, IntValue, Operand, ThreadPointer};
use crate::host::Host;
use crate::probes::{ArgRef, ContextFeatures, Env, ProbeSite};
use crate::settings::{Invocation, Settings};
use crate::state::AggregateState;
use crate::system::TargetInfo;
use crate::types::{Agg, Deferred, Type};
use crate::value::{MapViewKind, Pos, Value};

/// Index of a map in the script's list of maps.
pub type MapId = usize;

/// A row.
pub struct Builtin {
    /// The name in scripts.
    pub name: &'static str,
    /// In order; optional ones last.
    pub params: &'static [Param],
    /// The result.
    pub returns: Returns,
    /// The features that the probe must offer.
    pub needs: ContextFeatures,
    /// Requires `--unsafe`.
    pub risky: bool,
    /// How it is performed.
    pub codegen: Codegen,
    /// A sentence or two for the man page, `:help` and completion.
    pub doc: &'static str,
    /// A whole script, compiled by a test and printed in the man page.
    pub example: &'static str,
}

/// Rows are compared by identity.
impl PartialEq for Builtin {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl std::fmt::Debug for Builtin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A parameter.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// For messages and the man page.
    pub name: &'static str,
    /// The accepted arguments.
    pub accepts: Accepts,
    /// May be omitted.
    pub optional: bool,
    /// May be repeated (the last parameter only).
    pub rest: bool,
}

impl Param {
    /// A required parameter.
    pub const fn new(name: &'static str, accepts: Accepts) -> Self {
        Self { name, accepts, optional: false, rest: false }
    }

    /// A parameter that may be omitted.
    pub const fn optional(name: &'static str, accepts: Accepts) -> Self {
        Self { optional: true, ..Self::new(name, accepts) }
    }

    /// Any number of these arguments at the end.
    pub const fn rest(name: &'static str, accepts: Accepts) -> Self {
        Self { optional: true, rest: true, ..Self::new(name, accepts) }
    }
}

/// The kinds of arguments that a parameter accepts. The checker passes on every argument in this form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepts {
    /// An integer, bool or enum (an aggregation that can be read as an integer is read).
    Int,
    /// A literal integer; positional parameters and constant expressions count.
    LitInt,
    /// A string.
    Str,
    /// A literal string.
    LitStr,
    /// A literal integer or a literal string.
    Literal,
    /// An address: an integer or a pointer, or the address of a string or an array in memory.
    Addr,
    /// A pointer, an integer, a string or an array.
    StrOrAddr,
    /// The same, or a struct in which a language stores text with its length.
    TextOrAddr,
    /// Any value, unchanged.
    Any,
    /// Any value that can be sent to user space and printed.
    Printable,
    /// A whole map, keyed or scalar.
    Map,
    /// A whole keyed map.
    KeyedMap,
    /// A map's element, written `@m[k]`, or a scalar map.
    Element,
    /// A whole map, a map's element by reference, or any printable value: for `print`.
    MapOrValue,
    /// A key of the map that is the previous parameter.
    Key,
    /// One of these bare words.
    Word(&'static [&'static str]),
    /// One of these bare words, or a literal integer.
    WordOrInt(&'static [&'static str]),
    /// A literal format string; the arguments after it are checked against it.
    Format,
}

/// The result of a builtin.
pub enum Returns {
    /// Always this type.
    Always(Type),
    /// A type that depends on the arguments; may also reject them.
    By(fn(&CallInfo) -> Result<Type, Diagnostic>),
}

/// The information about a call for checking: types, literals and places, never the tree.
pub struct CallInfo<'a> {
    /// The builtin's name as called.
    pub name: &'a str,
    /// The place of the whole call.
    pub span: Span,
    /// Its arguments in order.
    pub args: &'a [ArgInfo],
    /// Settings of the run.
    pub settings: &'a Settings,
    /// The other facts of the run.
    pub invocation: &'a Invocation,
    /// The target kernel.
    pub sys: &'a dyn TargetInfo,
    /// The site for which it is checked.
    pub site: &'a ProbeSite,
    /// Facts that the row records in addition to its answer.
    pub notes: RefCell<Notes>,
}

/// Facts about a call that a row records, in addition to its type.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// Constants that its code needs: offsets of members, addresses. They come back in [`CallSite::consts`].
    pub consts: Vec<i64>,
    /// Warnings.
    pub warnings: Vec<Diagnostic>,
    /// Options of the script that the call declares.
    pub options: Vec<options::ScriptOption>,
}

/// The information about an argument.
#[derive(Clone, Debug)]
pub struct ArgInfo {
    /// Its type ([`Type::Void`] for a word; a map's value type for a map).
    pub ty: Type,
    /// Its place.
    pub span: Span,
    /// Its value if it is a literal or a word.
    pub lit: Option<Lit>,
    /// The map, if it is one or an element of one.
    pub map: Option<MapArg>,
    /// The builtin that produced it, and the bare word in its argument.
    pub origin: Option<(&'static str, Option<String>)>,
    /// An argument of the probe, or a part of what it points to. The verifier knows the types of these, but not of
    /// values that were read from memory or stored.
    pub has_verifier_type: bool,
}

/// The information about a map while types are still being merged.
#[derive(Clone, Debug)]
pub struct MapArg {
    /// Its index.
    pub id: MapId,
    /// Key type, if keyed.
    pub key: Option<Type>,
}

/// A literal.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Lit {
    /// An integer or bool.
    Int(i64),
    /// A string.
    Str(Vec<u8>),
    /// A bare word.
    Word(String),
}

impl CallInfo<'_> {
    /// The facts that probe kinds may use.
    pub fn env(&self) -> Env<'_> {
        Env { sys: self.sys, settings: self.settings, invocation: self.invocation }
    }

    /// Keeps constants for the row's code.
    pub fn bind_consts(&self, consts: &[i64]) {
        self.notes.borrow_mut().consts = consts.to_vec();
    }

    /// Adds a warning, which does not prevent the script from running.
    pub fn warn(&self, warning: Diagnostic) {
        self.notes.borrow_mut().warnings.push(warning);
    }

    /// Warns if the kernel hides symbols: for rows whose values print as the kernel's names.
    fn warn_of_hidden_symbols(&self) {
        if let Some(why) = self.sys.hidden_symbols() {
            let text = "kernel functions will print as addresses: the kernel hides symbol addresses from this user";
            self.warn(Diagnostic::warning("hidden-symbols", self.span, text).help(why));
        }
    }

    /// The literal integer in argument `i`.
    pub fn int(&self, i: usize) -> Option<i64> {
        match self.args.get(i)?.lit.as_ref()? {
            Lit::Int(n) => Some(*n),
            Lit::Str(_) | Lit::Word(_) => None,
        }
    }

    /// The literal string in argument `i`.
    pub fn text(&self, i: usize) -> Option<&[u8]> {
        match self.args.get(i)?.lit.as_ref()? {
            Lit::Str(s) => Some(s),
            Lit::Int(_) | Lit::Word(_) => None,
        }
    }

    /// The bare word in argument `i`.
    pub fn word(&self, i: usize) -> Option<&str> {
        match self.args.get(i)?.lit.as_ref()? {
            Lit::Word(w) => Some(w),
            Lit::Int(_) | Lit::Str(_) => None,
        }
    }

    /// The place of argument `i`, or of the whole call if it is absent.
    pub fn span(&self, i: usize) -> Span {
        self.args.get(i).map_or(self.span, |a| a.span)
    }

    /// Refuses argument `i` unless it is [`ArgInfo::has_verifier_type`].
    pub fn require_probe_arg(&self, i: usize) -> Result<(), Diagnostic> {
        if self.args.get(i).is_none_or(|a| a.has_verifier_type) {
            return Ok(());
        }
        let message = format!("{} takes an argument of the probe, but this value comes from elsewhere", self.name);
        let why = "the kernel accepts only arguments of the probe here, and the structures that they point to, but no pointers read \
                   from those, no variables, and no values of maps";
        Err(Diagnostic::error("type-mismatch", self.span(i), message).help(why))
    }
}

/// The information about a call for generating its code.
#[derive(Clone, Debug)]
pub struct CallSite {
    /// The type of the call's result.
    pub ty: Type,
    /// Literals and words, by position.
    pub literals: Vec<Option<Lit>>,
    /// Maps by position: whole maps, and elements (whose key is then the operand).
    pub maps: Vec<Option<MapId>>,
    /// For an aggregation: its layout.
    pub agg: Option<std::sync::Arc<Agg>>,
    /// The constants that [`CallInfo::bind_consts`] stored.
    pub consts: Vec<i64>,
    /// The place of the call.
    pub span: Span,
}

impl CallSite {
    /// The literal integer in argument `i`.
    pub fn int(&self, i: usize) -> Option<i64> {
        match self.literals.get(i)?.as_ref()? {
            Lit::Int(n) => Some(*n),
            Lit::Str(_) | Lit::Word(_) => None,
        }
    }

    /// The literal string in argument `i`.
    pub fn text(&self, i: usize) -> Option<&[u8]> {
        match self.literals.get(i)?.as_ref()? {
            Lit::Str(s) => Some(s),
            Lit::Int(_) | Lit::Word(_) => None,
        }
    }

    /// The bare word in argument `i`.
    pub fn word(&self, i: usize) -> Option<&str> {
        match self.literals.get(i)?.as_ref()? {
            Lit::Word(w) => Some(w),
            Lit::Int(_) | Lit::Str(_) => None,
        }
    }

    /// Constant `i` of those kept.
    pub fn const_at(&self, i: usize) -> i64 {
        self.consts.get(i).copied().unwrap_or(0)
    }

    /// The map in argument `i`.
    pub fn map(&self, i: usize) -> Option<MapId> {
        *self.maps.get(i)?
    }
}

/// Emits code for a call; operands are the arguments by position (`Operand::void()` for a map or a word; a key for a map's element).
pub type EmitFn = for<'c> fn(&mut Builder<'_, 'c>, &CallSite, &[Operand<'c>]) -> Operand<'c>;

/// How a builtin is performed.
pub enum Codegen {
    /// Evaluated when the script is checked.
    Fold(FoldFn),
    /// The probe kind loads it.
    Context(ArgRef),
    /// Code in the kernel that computes a value.
    Code(EmitFn),
    /// Code in the kernel that has an effect, and may return a value.
    Effect(EmitFn),
    /// Code in the kernel, so that sites can share a program; under `comptime`, the value for the site when the script
    /// is checked.
    Either(FoldFn, EmitFn),
    /// Code in the kernel, except for calls that can be evaluated when the script is checked: these become literals.
    Known(FoldCallFn, EmitFn),
    /// A record written in the kernel and handled in user space.
    Event(&'static Event),
    /// An aggregation: the right side of a map's assignment.
    Aggregate(&'static Aggregate),
    /// Macros of the row's name in the language itself: a use is checked as if the body were in its place.
    Source(&'static str),
}

/// Both sides of an asynchronous builtin. The record's layout is computed from the arguments' types (`codegen::event`):
/// literals stay in the manifest, and values are sent.
pub struct Event {
    /// The probe ends immediately after it.
    pub ends_probe: bool,
    /// Converts the operands to those that are sent, if these are not the arguments themselves; the operands then
    /// determine the types.
    pub capture: Option<CaptureFn>,
    /// Called once per call site before the run; the returned handler is called for each record.
    pub prepare: fn(&EventSpec) -> anyhow::Result<Handler>,
}

/// See [`Codegen::Fold`].
pub type FoldFn = fn(&CallInfo) -> Result<Lit, Diagnostic>;

/// The same, if that depends on the arguments.
pub type FoldCallFn = fn(&CallInfo) -> Option<Lit>;

/// See [`Event::capture`].
pub type CaptureFn = for<'c> fn(&mut Builder<'_, 'c>, &CallSite, &[Operand<'c>]) -> Vec<Operand<'c>>;

/// The user-space side of a call site.
pub type Handler = Box<dyn FnMut(&[Arg], &mut dyn Host) -> anyhow::Result<()>>;

/// The facts about a call site that user space has.
#[derive(Clone, Debug)]
pub struct EventSpec {
    /// Literals and words, if they are known, by position; for `capture` rows, those of the call.
    pub literals: Vec<Option<Lit>>,
    /// Types of the received values, by position ([`Type::Void`] for maps and words).
    pub types: Vec<Type>,
    /// Its place in the script.
    pub pos: Pos,
    /// The text of that line.
    pub line: String,
    /// The names of the arguments in output, by position; for `capture` rows, those of the call.
    pub labels: Vec<String>,
}

impl EventSpec {
    /// The literal string at position `i`.
    pub fn text(&self, i: usize) -> Option<&[u8]> {
        match self.literals.get(i)?.as_ref()? {
            Lit::Str(s) => Some(s),
            Lit::Int(_) | Lit::Word(_) => None,
        }
    }

    /// The literal integer at position `i`.
    pub fn int(&self, i: usize) -> Option<i64> {
        match self.literals.get(i)?.as_ref()? {
            Lit::Int(n) => Some(*n),
            Lit::Str(_) | Lit::Word(_) => None,
        }
    }
}

/// An argument as received by user space.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// A decoded value (including literals).
    Value(Value),
    /// A whole map.
    Map(usize),
    /// A whole map to be read and cleared in one step; with `keys`, the keys stay, with zeros.
    TakenMap {
        /// Its index.
        map: usize,
        /// The keys stay.
        keys: bool,
    },
    /// An element: the map, and its key's bytes.
    Element(usize, Vec<u8>),
}

/// The action of a call on a whole map. A map that is printed and then cleared must show a single moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapAction {
    /// The map is printed; the row's handler also accepts [`Arg::TakenMap`].
    Shown,
    /// Its elements are removed.
    Cleared,
    /// Its values become zero.
    Zeroed,
}

/// The action of this row on a whole map.
pub fn map_action(row: &Builtin) -> Option<MapAction> {
    [print::MAP_ACTIONS, maps::MAP_ACTIONS].iter().flat_map(|w| w.iter()).find(|(name, _)| *name == row.name).map(|(_, w)| *w)
}

/// The code of a call in a program that outlives the run: its output goes to the reader of the pinned file.
pub struct InKernel {
    /// Reports why a call is invalid.
    pub check: fn(&CallInfo) -> Result<(), Diagnostic>,
    /// Emits it; the value is the address of the `struct seq_file` to write to.
    pub emit: for<'c> fn(&mut Builder<'_, 'c>, IntValue<'c>, &CallSite, &[Operand<'c>]),
}

/// How programs perform this row in the kernel, without a reader in user space, if they can.
pub fn in_kernel(row: &Builtin) -> Option<&'static InKernel> {
    print::IN_KERNEL.iter().find(|(name, _)| *name == row.name).map(|(_, how)| how)
}

/// When processors may share a slot of an aggregation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The update consists of atomic additions only.
    Always,
    /// If the kernel's atomic instructions return the old value.
    WithFetch,
    /// Never: an update has several steps.
    Never,
}

/// Both sides of a saved aggregation.
pub struct StateCodec {
    /// The size of a slot with this sign and these parameters; none for invalid parameters.
    pub size: fn(bool, &[i64]) -> Option<u32>,
    /// Values from before and after the map was cleared can be added up.
    pub is_additive: bool,
    /// The combined state of the slots, each of `Agg::size` bytes.
    pub save: fn(&Agg, &[&[u8]]) -> AggregateState,
    /// The words of a slot with this state, or the reason why it does not fit.
    pub load: fn(&Agg, &AggregateState) -> Result<Vec<u64>, String>,
}

/// The sum of two states of an aggregation.
///
/// # Errors
/// A number is missing, or does not fit into 64 bits.
pub fn add(agg: &Agg, a: &AggregateState, b: &AggregateState) -> Result<AggregateState, String> {
    let (_, row) = aggregate(&agg.function).ok_or("there is no such aggregation")?;
    let (one, other) = (slot(agg, row, a)?, slot(agg, row, b)?);
    let sum = (row.state_codec.save)(agg, &[&one, &other]);
    if a.overflowed(b, &sum) { Err("the sum does not fit into 64 bits".into()) } else { Ok(sum) }
}

/// Can an exporter treat an aggregation's values as counters: do they add up and only grow? A sum of signed numbers may fall.
pub fn is_counter(agg: &Agg) -> bool {
    let may_fall = |row: &AggregateSide| agg.signed && row.monotonicity == Monotonicity::RaisesUnsigned;
    aggregate(&agg.function).is_some_and(|(_, row)| row.state_codec.is_additive && !may_fall(row))
}

/// The bytes of a slot with this state.
///
/// # Errors
/// As for [`StateCodec::load`].
pub fn slot(agg: &Agg, row: &AggregateSide, counted: &AggregateState) -> Result<Vec<u8>, String> {
    Ok((row.state_codec.load)(agg, counted)?.into_iter().flat_map(u64::to_le_bytes).collect())
}

/// An aggregation's layout and its uses.
pub struct Aggregate {
    /// Layout and parameters from the call.
    pub layout: fn(&CallInfo) -> Result<Agg, Diagnostic>,
    /// Adds the operands to the slot (a pointer operand to this CPU's `Agg::size` bytes, zero at first).
    pub update: for<'c> fn(&mut Builder<'_, 'c>, &CallSite, Operand<'c>, &[Operand<'c>]),
    /// May several processors share one slot?
    pub sharing: Sharing,
    /// Merges the CPUs' slots, each `Agg::size` bytes.
    pub merge: fn(&Agg, &[&[u8]]) -> Value,
    /// How it is saved, for adding it to that of other machines.
    pub state_codec: &'static StateCodec,
    /// The kind of such a map.
    pub kind: MapViewKind,
    /// Is its number made of the values of its argument? Otherwise it is a number of events.
    pub measures: bool,
    /// The effect of missed calls on the displayed number.
    pub monotonicity: Monotonicity,
    /// How a script reads it as an integer, if it can.
    pub kernel_read: Option<&'static KernelRead>,
}

/// The effect of another call on the displayed number of an aggregation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Monotonicity {
    /// It stays or rises.
    Raises,
    /// It stays or rises, unless the aggregated value is signed.
    RaisesUnsigned,
    /// It stays or falls.
    Lowers,
    /// It may do either.
    Either,
}

/// Reading an aggregation in the kernel: two accumulators, one step per CPU.
pub struct KernelRead {
    /// Initial values of the accumulators.
    pub init: [u64; 2],
    /// The accumulators after a CPU's slot.
    pub step: for<'c> fn(&mut Builder<'_, 'c>, [Operand<'c>; 2], Operand<'c>) -> [Operand<'c>; 2],
    /// The value.
    pub finish: for<'c> fn(&mut Builder<'_, 'c>, [Operand<'c>; 2]) -> Operand<'c>,
    /// If the value is a quotient: numerator and denominator, for computing decimals.
    pub quotient: Option<QuotientFn>,
}

/// See [`KernelRead::quotient`].
pub type QuotientFn = for<'c> fn(&mut Builder<'_, 'c>, [Operand<'c>; 2]) -> [Operand<'c>; 2];

/// A row for values that are decoded late.
pub struct Decoder {
    /// The name in [`Deferred::tag`] and in messages.
    pub name: &'static str,
    /// Size of the undecoded form in bytes.
    pub size: u32,
    /// An integer may be cast to it.
    pub from_int: bool,
    /// Decodes the bytes to a value.
    pub decode: fn(&Deferred, &[u8], &mut dyn Host) -> Value,
}

/// Every builtin, by family.
const FAMILIES: &[&[Builtin]] = &[
    process::ROWS,
    machine::ROWS,
    time::ROWS,
    probe::ROWS,
    probe::NUMBERED,
    print::ROWS,
    control::ROWS,
    shell::ROWS,
    strings::ROWS,
    search::ROWS,
    names::ROWS,
    memory::ROWS,
    symbols::ROWS,
    kernel::ROWS,
    stacks::ROWS,
    python::ROWS,
    net::ROWS,
    packets::ROWS,
    cgroup::ROWS,
    maps::ROWS,
    count::ROWS,
    hist::ROWS,
    percentiles::ROWS,
    series::ROWS,
    span::ROWS,
    heatmap::ROWS,
    sampling::ROWS,
    options::ROWS,
    meta::ROWS,
];

/// Every decoder, by family.
const DECODERS: &[&[Decoder]] = &[
    process::DECODERS,
    time::DECODERS,
    symbols::DECODERS,
    stacks::DECODERS,
    python::DECODERS,
    net::DECODERS,
    cgroup::DECODERS,
    names::DECODERS,
    floats::DECODERS,
];

/// The `i`-th 64-bit word of a slot or an undecoded value; missing bytes count as zero.
fn word(bytes: &[u8], i: usize) -> u64 {
    let rest = bytes.get(i * 8..).unwrap_or_default();
    u64::from_le_bytes(rest.first_chunk().copied().unwrap_or_else(|| {
        let mut raw = [0u8; 8];
        raw.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        raw
    }))
}

/// All rows, in reading order.
pub fn all() -> impl Iterator<Item = &'static Builtin> {
    FAMILIES.iter().flat_map(|f| f.iter())
}

/// Names that scripts formerly used (`*` is any run), and their replacements.
pub const REMOVED: &[(&str, &str)] = &[
    ("unwatch", "remove the call: watchpoints end with the run"),
    ("sarg*", "read arguments on the stack with `reg(\"sp\")`: `*(uint64 *)(reg(\"sp\") + 8)` is the first"),
];

/// The row of this name.
pub fn find(name: &str) -> Option<&'static Builtin> {
    all().find(|b| b.name == name)
}

/// Is it a value that holds a user stack?
pub fn holds_user_stack(ty: &Type) -> bool {
    matches!(ty, Type::Deferred(tag) if stacks::is_user_stack(tag))
}

/// Is it an address that prints as the name of a function, or a stack of such?
pub fn is_code(tag: &Deferred) -> bool {
    [symbols::DECODERS, stacks::DECODERS, python::DECODERS].iter().any(|rows| rows.iter().any(|row| row.name == tag.tag))
}

/// Is it an address of user-space code, whose symbol depends on the process's mappings?
pub fn is_user_code(tag: &Deferred) -> bool {
    stacks::is_user_stack(tag) || symbols::is_of_user(tag)
}

pub use process::{FOLLOWED, is_current_task};

/// Does it need the interpreters of processes?
pub fn is_python(tag: &Deferred) -> bool {
    python_frames::is_tag(tag)
}

/// How the Python stack of the current thread is found; none if the kernel does not describe its types.
pub fn thread_pointer(sys: &dyn TargetInfo) -> Option<ThreadPointer> {
    python::thread_pointer(sys)
}

/// Does it name the current thread?
pub fn is_thread_id(row: &Builtin) -> bool {
    process::is_thread_id(row)
}

/// Has it the same value at the entry and at the return of a call?
pub fn is_same_at_both_ends(row: &Builtin) -> bool {
    process::is_of_task(row)
}

/// Does a use of it ask whether the current process descends from the command?
pub fn is_followed(row: &Builtin) -> bool {
    process::is_followed(row)
}

/// Is the result an argument of the run that the code does not contain?
pub fn is_argument(row: &Builtin, invocation: &Invocation) -> bool {
    options::is_argument(row, invocation) || process::is_argument(row, invocation)
}

/// The kernel functions that the code of a call calls; `consts` are the constants that its row stored.
pub fn kernel_functions(row: &Builtin, consts: &[i64]) -> &'static [&'static str] {
    process::kernel_functions(row, consts)
}

/// Does it remove a map's element?
pub fn is_delete(row: &Builtin) -> bool {
    maps::is_delete(row)
}

/// Does it begin a span of the timeline, or end one? None for others.
pub fn begins_span(row: &Builtin) -> Option<bool> {
    span::begins(row)
}

/// Does its result depend on the elements of a map?
pub fn asks_about_map(row: &Builtin) -> bool {
    maps::asks_about_map(row)
}

/// Does it remove elements of a map, or set them to zero?
pub fn removes(row: &Builtin) -> bool {
    is_delete(row) || changes_map(row)
}

/// Does a call end the probe, and with it the run?
pub fn ends_probe(row: &Builtin) -> bool {
    matches!(row.codegen, Codegen::Event(Event { ends_probe: true, .. }))
}

/// Does user space change a map for it?
pub fn changes_map(row: &Builtin) -> bool {
    maps::changes_map(row)
}

/// Does its result depend on how often it was true before?
pub fn limits_rate(row: &Builtin) -> bool {
    sampling::limits_rate(row)
}

/// Does its result depend on how often it was called before?
pub fn remembers_calls(row: &Builtin) -> bool {
    sampling::remembers_calls(row)
}

/// Does it print as a line of text (rather than a stack)?
pub fn is_text(tag: &Deferred) -> bool {
    !stacks::is_tag(tag) && !python_frames::is_tag(tag) && !tag.is_float()
}

/// Is there a stack that found no space in its table? All of them have the same text.
pub fn has_lost_stack(value: &Value) -> bool {
    if let Value::Tuple(parts) = value {
        return parts.iter().any(has_lost_stack);
    }
    matches!(value, Value::Stack(stack) if stacks::is_lost(stack))
}

/// Incomplete user stacks, from their number by reason
/// ([`State::cut_stacks`](crate::emit::shared::State::cut_stacks)).
pub fn incomplete_stacks(counts: &[u64]) -> Option<IncompleteStacks> {
    stacks::incomplete(counts)
}

/// Declares the stack maps of the stacks in values of this type, which another program may have recorded.
pub fn declare_stacks(cx: &CodegenCx, ty: &Type) {
    stacks::declare(cx, ty);
}

/// The decoder of this name.
pub fn find_tag(name: &str) -> Option<&'static Decoder> {
    DECODERS.iter().flat_map(|f| f.iter()).find(|t| t.name == name)
}
