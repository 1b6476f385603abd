//! Probe kinds: one row per kind. The file of a row spells the names of its kind.

mod attach;
mod counter;
mod fentry;
mod hot;
pub mod iter;
mod kernel;
mod kprobe;
pub mod lsm;
mod rawtracepoint;
pub mod search;
mod shared;
mod special;
pub mod syscall;
mod test;
pub mod timer;
mod tracepoint;
mod uprobe;
mod usdt;
mod watchpoint;

pub use attach::{
    ALL_SYSTEM_CALLS, Attach, AttachProperties, FileLocation, NoHitNote, SYSTEM_CALL_NUMBER, SamplePeriod, raw_syscall_event,
};
pub use hot::hot_site;
pub use search::Place;
pub use shared::{Shared, shared};
use std::borrow::Cow;
use std::sync::LazyLock;

use bitflags::bitflags;

use crate::diag::{Diagnostic, Span, plural};
pub use crate::emit::ProgramType;
use crate::emit::{Builder, IntValue, Operand};
use crate::settings::{Invocation, Mechanism, Settings};
use crate::syntax::ast::AttachPoint;
use crate::system::binary::instructions::InstructionBoundary;
pub use crate::system::matches;
use crate::system::{ArgumentLocation, Feature, Missing, NoLocation, TargetInfo};
use crate::types::{Field, Int, Space, Type};
pub(crate) use fentry::NO_TRAMPOLINES;
pub(crate) use kprobe::NO_KPROBES;

bitflags! {
    /// Features that a probe offers and a builtin may need.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
    pub struct ContextFeatures: u32 {
        /// `argN`.
        const ARGN = 1;
        /// `args`.
        const ARGS = 1 << 1;
        /// `retval`.
        const RETVAL = 1 << 2;
        /// Registers: the context starts with a `struct pt_regs`.
        const REGS = 1 << 3;
        /// `func`.
        const FUNC = 1 << 4;
        /// `ctx`.
        const CTX = 1 << 5;
        /// A user-space binary: `uaddr`.
        const BINARY = 1 << 6;
        /// A task's context: signals may be sent to `current`.
        const SIGNAL = 1 << 7;
        /// A stack can be taken.
        const STACK = 1 << 8;
        /// The entry of a function that can be made to return immediately: `override`.
        const OVERRIDE = 1 << 9;
        /// Pointers among the arguments whose target types the verifier knows, as `path` needs.
        const TRUSTED = 1 << 10;
        /// The same for sockets, which helpers accept in more types of programs.
        const SOCKETS = 1 << 11;
    }
}

impl ContextFeatures {
    /// For most rows.
    pub const NONE: Self = Self::empty();
}

/// A value that the probe kind loads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ArgRef {
    /// `argN`.
    Index(u32),
    /// `retval`.
    Retval,
    /// `ctx`: the context's address.
    Ctx,
    /// `func`: the address of the traced function.
    Func,
    /// `args` as a whole, by value: the fields that a program can read. A builtin's row has none. They are a part of the value, so
    /// that sites with different locations do not share a program.
    All(Vec<std::rc::Rc<ContextField>>),
    /// `args.name`: the field in [`Context::fields`].
    Named(std::rc::Rc<ContextField>),
}

/// A field of `args`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ContextField {
    /// Name, offset within the context (or the argument's number, depending on the kind) and type.
    pub field: Field,
    /// How the kind locates it.
    pub location: FieldLocation,
}

impl ContextField {
    /// Can a program read it?
    pub fn is_readable(&self) -> bool {
        !matches!(self.location, FieldLocation::Unreadable(_))
    }
}

/// The location of a field of `args`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FieldLocation {
    /// In the context record, at the field's offset.
    Record,
    /// In the record by reference: a `u32` of length << 16 | offset at the field's offset, counted from the record's start.
    DataLoc,
    /// The same, counted from the end of the `u32`.
    RelLoc,
    /// The n-th 64-bit argument of a raw tracepoint.
    RawArg(u32),
    /// An argument of a function in user space.
    Argument(ArgumentLocation),
    /// A member of the context itself, whose type the verifier knows: `ctx.name` is `args.name`.
    Object,
    /// A BPF program cannot read it, or its location is unknown. It is listed with the reason.
    Unreadable(NoLocation),
}

/// The features of a site for the script.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The features for builtins.
    pub features: ContextFeatures,
    /// Fields of `args`, if there are any.
    pub fields: Vec<std::rc::Rc<ContextField>>,
    /// Type of `retval` (default `uint64`).
    pub retval: Option<Type>,
    /// Number of `argN`.
    pub args: u32,
    /// Their types, none for an unreadable one. If the list is empty, all are `uint64`.
    pub arg_types: Vec<Option<Type>>,
    /// The default address space of pointers.
    pub space: Option<Space>,
}

/// A concrete place where a program runs; only `expand` creates one.
#[derive(Clone, Debug)]
pub struct ProbeSite {
    /// Its row.
    pub kind: &'static dyn ProbeKind,
    /// The value of `probe`.
    pub name: String,
    /// How it is attached, which also determines the program's type.
    pub attach: Attach,
    /// The attach point in the script.
    pub span: Span,
}

/// The parts of its context that a probe's body uses.
#[derive(Clone, Debug, Default)]
pub struct BodyNeeds {
    /// The features that its builtins need.
    pub features: ContextFeatures,
    /// The values that it loads.
    pub args: Vec<ArgRef>,
    /// The kernel functions (kfuncs) that it calls.
    pub kernel_functions: Vec<String>,
    /// Does it pass a pointer of the context to a function of an imported object, which may read from it?
    pub passes_context: bool,
    /// For a system call's exit: does the body run only for calls whose entry the script has seen?
    pub only_after_entry: bool,
    /// A raw tracepoint serves another probe on one of its events, so it should serve this one, too, to preserve their
    /// order.
    pub shares_raw_tracepoint: bool,
}

/// The mechanism that serves a probe.
#[derive(Clone, Debug)]
pub struct Lowering {
    /// The mechanism that replaces the usual one of the kind; none for the usual one.
    pub lowered: Option<Mechanism>,
    /// The attachment of each site, if it differs.
    pub attaches: Vec<Attach>,
    /// The reason; may be empty.
    pub why: Cow<'static, str>,
}

impl Lowering {
    /// The usual mechanism of the kind.
    pub fn literal(why: impl Into<Cow<'static, str>>) -> Self {
        Self { lowered: None, attaches: Vec::new(), why: why.into() }
    }
}

/// The facts that the stages from checking to loading may use.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// The target kernel.
    pub sys: &'a dyn TargetInfo,
    /// Settings of the run.
    pub settings: &'a Settings,
    /// The other facts of the run.
    pub invocation: &'a Invocation,
}

impl<'a> Env<'a> {
    /// Of no run in particular.
    pub fn new(sys: &'a dyn TargetInfo, settings: &'a Settings) -> Self {
        static NO_RUN: LazyLock<Invocation> = LazyLock::new(Invocation::default);
        Self { sys, settings, invocation: &NO_RUN }
    }
}

/// May a program on this site, as the script has it, call a kernel function? The answer includes the attachment that the kind
/// takes for such calls, but not the mechanisms that it may choose to save time.
pub fn may_call(site: &ProbeSite, function: &str, env: &Env) -> bool {
    let allows = |site: &ProbeSite| env.sys.may_call(function, site.kind.program(site, env).row().prog_type);
    let needs = BodyNeeds { kernel_functions: vec![function.to_owned()], ..BodyNeeds::default() };
    allows(site)
        || match site.kind.lower(std::slice::from_ref(site), &needs, env) {
            Lowering { lowered: None, attaches, .. } => attaches.into_iter().any(|attach| allows(&ProbeSite { attach, ..site.clone() })),
            _ => false,
        }
}

/// The names and the syntax of a kind.
#[derive(Debug)]
pub struct Info {
    /// The first is canonical; the others are accepted. Case is ignored, unless two kinds differ only in case.
    pub names: &'static [&'static str],
    /// `uprobe:BINARY:FUNCTION[+OFFSET]`.
    pub usage: &'static str,
    /// A sentence or two for the man page.
    pub doc: &'static str,
    /// A script that uses it.
    pub example: &'static str,
}

impl Info {
    /// The canonical name.
    pub fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or("")
    }
}

/// The row of a probe kind.
pub trait ProbeKind: Sync + std::fmt::Debug {
    /// Its names and syntax.
    fn info(&self) -> &Info;
    /// The mode in which probes of this kind run.
    fn mode(&self) -> crate::settings::Mode {
        crate::settings::Mode::Trace
    }
    /// See [`Info::names`].
    fn names(&self) -> &'static [&'static str] {
        self.info().names
    }
    /// The canonical name.
    fn name(&self) -> &'static str {
        self.info().name()
    }
    /// See [`Info::usage`].
    fn usage(&self) -> &'static str {
        self.info().usage
    }
    /// See [`Info::doc`].
    fn doc(&self) -> &'static str {
        self.info().doc
    }
    /// See [`Info::example`].
    fn example(&self) -> &'static str {
        self.info().example
    }
    /// The value of `probetype`.
    fn probetype(&self) -> &'static str {
        self.name()
    }
    /// Must it be named explicitly, so that patterns of kinds do not match it?
    fn by_name_only(&self) -> bool {
        false
    }
    /// Does `-l` list it for a pattern that does not name it?
    fn is_listed(&self) -> bool {
        !self.by_name_only()
    }
    /// Parses the segments of an attach point after the first and resolves them: at least one site, in a stable order.
    fn expand(&self, point: &AttachPoint, env: &Env) -> Result<Vec<ProbeSite>, Diagnostic>;
    /// The features of any site of the kind, for messages that list kinds.
    fn offers(&self) -> ContextFeatures;
    /// The features of a site.
    fn context(&self, _site: &ProbeSite, _env: &Env) -> Result<Context, Diagnostic> {
        Ok(Context { features: self.offers(), ..Context::default() })
    }
    /// The fields of `args`, for a kind that finds them on demand, because reading a binary's debug information takes time.
    /// Otherwise they are in [`Context::fields`].
    fn fields(&self, _site: &ProbeSite, _env: &Env) -> Result<Vec<std::rc::Rc<ContextField>>, Diagnostic> {
        Ok(Vec::new())
    }
    /// The type of `retval` as the site's function declares it, if it has only a few bits of the register, for a kind that finds it
    /// on demand; or why `retval` would not be the result.
    fn retval(&self, _site: &ProbeSite, _env: &Env) -> Result<Option<Int>, NoLocation> {
        Ok(None)
    }
    /// The type of the result as the site's function declares it, for a kind that finds it on demand.
    fn result_type(&self, _site: &ProbeSite, _env: &Env) -> Option<Type> {
        None
    }
    /// The arguments of a site for `-lv`, as its debug information declares them: `const char * filename`.
    fn declarations(&self, _site: &ProbeSite, _env: &Env) -> Result<Vec<String>, Diagnostic> {
        Ok(Vec::new())
    }
    /// The mechanism for these sites of a probe, whose body has the given needs.
    fn lower(&self, _sites: &[ProbeSite], _needs: &BodyNeeds, _env: &Env) -> Lowering {
        Lowering::literal("")
    }
    /// The program's type for a site.
    fn program(&self, site: &ProbeSite, env: &Env) -> ProgramType;
    /// Emits the start of a program, which returns if the event is excluded.
    fn enter(&self, _e: &mut Builder<'_, '_>, _site: &ProbeSite, _env: &Env) {}
    /// Emits the load of a part of the context. Structs in memory may stay there ([`Operand`] describes how).
    fn load<'c>(&self, e: &mut Builder<'_, 'c>, site: &ProbeSite, env: &Env, which: &ArgRef, ty: &Type) -> Operand<'c>;
    /// The reason why no probe of this kind can be attached, if there is one.
    fn unavailable(&self, _env: &Env) -> Option<Missing> {
        None
    }
    /// For `-l`: names that match `pattern` (segments after the kind joined by `:`; `*` matches any run), passed to `each`.
    fn list(&self, pattern: &[String], env: &Env, each: &mut dyn FnMut(&str)) -> Result<(), crate::system::Missing>;
}

/// Why probes of the kind with this name cannot be attached here: [`ProbeKind::unavailable`] without the kind, for
/// running compiled scripts.
pub fn unavailable(kind: &str, sys: &dyn TargetInfo) -> Option<Missing> {
    let of = |names: [&[&str]; 2]| names.iter().any(|names| names.contains(&kind));
    if of(kprobe::NAMES) {
        return kprobe::unavailable(sys);
    }
    if of(fentry::NAMES) { fentry::unavailable(sys) } else { None }
}

/// Every kind, in the order of the man page.
pub static KINDS: &[&dyn ProbeKind] = &[
    &special::BEGIN,
    &special::END,
    &timer::INTERVAL,
    &timer::PROFILE,
    &counter::SOFTWARE,
    &counter::HARDWARE,
    &tracepoint::Tracepoint,
    &rawtracepoint::RawTracepoint,
    &kprobe::KPROBE,
    &kprobe::KRETPROBE,
    &fentry::FENTRY,
    &fentry::FEXIT,
    &lsm::Lsm,
    &uprobe::UPROBE,
    &uprobe::URETPROBE,
    &usdt::Usdt,
    &watchpoint::Watchpoint,
    &iter::Iter,
    &special::SELF,
    &test::TEST,
    &test::BENCH,
];

/// Removed kinds, and their replacements.
pub const REMOVED: &[(&str, &str)] = &[watchpoint::REMOVED];

/// The kind of this name.
pub fn find(name: &str) -> Option<&'static dyn ProbeKind> {
    KINDS
        .iter()
        .copied()
        .find(|k| k.names().contains(&name))
        .or_else(|| KINDS.iter().copied().find(|k| k.names().iter().any(|n| n.eq_ignore_ascii_case(name))))
}

impl ProbeSite {
    /// The sites of a kind at these places.
    fn at(kind: &'static dyn ProbeKind, places: Vec<Place>, span: Span) -> Vec<Self> {
        places.into_iter().map(|Place { name, attach }| Self { kind, name, attach, span }).collect()
    }
}

impl PartialEq for ProbeSite {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.attach == other.attach
    }
}

/// The row of a kind, by its canonical name.
fn row(name: &str) -> &'static dyn ProbeKind {
    match KINDS.iter().copied().find(|k| k.name() == name) {
        Some(k) => k,
        None => crate::bug!("{name} is in the table"),
    }
}

/// Checks the number of the point's parts after the kind.
fn parts<const N: usize>(kind: &Info, point: &AttachPoint) -> Result<[String; N], Diagnostic> {
    let given: Vec<String> = point.segments.iter().skip(1).map(|s| s.text.clone()).collect();
    let n = given.len();
    given.try_into().map_err(|_| {
        let name = kind.name();
        let message = format!("{name} takes {} after its name, {n} given", plural(N, "part", "parts"));
        Diagnostic::error("bad-probe", point.span, message).help(format!("write {}", kind.usage))
    })
}

/// A whole number of an attach point (an offset, an address, a rate), in any form of an integer: `100`, `1_000`, `0x64`, `1e6`;
/// a duration is in nanoseconds.
fn whole_number(s: &str) -> Option<u64> {
    let scaled = s.ends_with(|c: char| c.is_ascii_uppercase() && !c.is_ascii_hexdigit());
    crate::settings::parse_int(s).ok().filter(|_| !scaled)
}

/// The program for places in a binary.
fn on_a_binary(env: &Env) -> ProgramType {
    let multi = !env.settings.refuses(Mechanism::UprobeMulti) && env.sys.has(Feature::UprobeMulti);
    if multi { ProgramType::UprobeMulti } else { ProgramType::Uprobe }
}

/// The context of a perf event's program, which starts with the registers.
fn perf_context<'c>(e: &mut Builder<'_, 'c>, site: &ProbeSite, which: &ArgRef, ty: &Type) -> Operand<'c> {
    match which {
        ArgRef::Ctx => Operand::reg(ty.clone(), e.addr(e.ctx())),
        ArgRef::Index(_) | ArgRef::Retval | ArgRef::Func | ArgRef::All(_) | ArgRef::Named(_) => {
            crate::bug!("{} offers no {which:?}", site.name)
        }
    }
}

fn no_parts(kind: &dyn ProbeKind, point: &AttachPoint) -> Result<(), Diagnostic> {
    parts::<0>(kind.info(), point).map(|_| ())
}

/// Rejects an offset that is not the start of an instruction of a function.
fn well_placed(placed: InstructionBoundary, function: &str, offset: u64, span: Span) -> Result<(), Diagnostic> {
    match placed {
        InstructionBoundary::Instruction | InstructionBoundary::Unknown => Ok(()),
        InstructionBoundary::Outside(size) => {
            let size = plural(size, "byte", "bytes");
            let d = Diagnostic::error("bad-offset", span, format!("offset {offset} is outside `{function}`, which has {size}"));
            Err(d.help("an offset must be within the function, at the start of an instruction; --unsafe disables this check"))
        }
        InstructionBoundary::InsideInstruction => {
            let message = format!("no instruction of `{function}` is known to start at offset {offset}");
            Err(Diagnostic::error("bad-offset", span, message).help(MID_FUNCTION_DANGER))
        }
    }
}

/// The danger of a probe at the wrong place, and how to attach it anyway.
const MID_FUNCTION_DANGER: &str =
    "a probe within an instruction can crash the program: `objdump -d` shows where instructions start; --unsafe disables this check";

/// A diagnostic about something that the machine lacks.
fn missing(span: Span, m: Missing) -> Diagnostic {
    let d = Diagnostic::error("unavailable", span, m.what);
    match m.help {
        Some(h) => d.help(h),
        None => d,
    }
}

/// `retval` at the return of a function, of type `ty`: the low bits of the register with results.
fn result<'c>(e: &mut Builder<'_, 'c>, env: &Env, ty: &Type) -> IntValue<'c> {
    let register = e.once("retval", |e| e.load_ctx(env.sys.arch().result, Int { bytes: 8, signed: false }));
    ty.as_int().map_or(register, |int| e.fit(register, int))
}

/// `args` as a whole: a record of `fields`, each loaded by its kind. `ty` is the record.
fn load_all<'c>(
    e: &mut Builder<'_, 'c>,
    fields: &[std::rc::Rc<ContextField>],
    ty: &Type,
    mut load: impl FnMut(&mut Builder<'_, 'c>, &ContextField) -> Operand<'c>,
) -> Operand<'c> {
    let Type::Record(record) = ty else { return Operand::void() };
    let to = e.alloc(record.size);
    e.zero(to, record.size.next_multiple_of(8), 8);
    for f in &record.fields {
        if let Some(source) = fields.iter().find(|c| c.field.name == f.name) {
            let v = load(e, source);
            let ptr = e.offset(to, f.offset);
            e.store_value(ptr, crate::emit::align_at(f.offset), &v, &f.ty);
        }
    }
    Operand::mem(ty.clone(), to)
}
