//! Finds the places of attach points.
//!
//! A kind's `Search` needs neither the checker nor code generation, so `rbt-run` uses it as well: the sites of a compiled
//! script are those of the machine that runs it, if the code does not depend on them.

#![allow(clippy::wildcard_enum_match_arm)] // the others are alike

use super::{Attach, Env, kprobe, syscall, tracepoint, uprobe, usdt};
use crate::diag::{Diagnostic, Severity};
use crate::part::Part;
use crate::settings::{MissingProbes, Settings};
use crate::syntax::ast::AttachPoint;
use crate::system::{Feature, TargetInfo};

/// A place where a program can be attached: a [`ProbeSite`](super::ProbeSite) without its kind.
#[derive(Clone, Debug)]
pub struct Place {
    /// The value of `probe`.
    pub name: String,
    /// How it is attached.
    pub attach: Attach,
}

/// The part of a kind that finds places.
pub(super) trait Search: Sync {
    /// See [`Info::names`](super::Info::names).
    fn names(&self) -> &'static [&'static str];
    /// See [`ProbeKind::expand`](super::ProbeKind::expand).
    fn find(&self, point: &AttachPoint, env: &Env) -> Result<Vec<Place>, Diagnostic>;
}

static IN_KERNEL: [&dyn Search; 3] = [&tracepoint::Tracepoint, &kprobe::KPROBE, &kprobe::KRETPROBE];
static IN_BINARIES: [&dyn Search; 3] = [&uprobe::UPROBE, &uprobe::URETPROBE, &usdt::Usdt];

/// Those for places in binaries.
static PROVIDED: Part<&[&dyn Search]> = Part::new(&IN_BINARIES);

/// Provides the search for places in binaries.
pub fn provide() {
    PROVIDED.provide(&IN_BINARIES);
}

fn searches() -> impl Iterator<Item = &'static dyn Search> {
    IN_KERNEL.iter().chain(PROVIDED.get().unwrap_or_default()).copied()
}

/// Does the kind of this name, one of those that find places, find them in binaries?
pub fn finds_in_binaries(name: &str) -> bool {
    !IN_KERNEL.iter().any(|search| search.names().contains(&name))
}

/// The code for a pattern without matches, which is not an error if other attach points of the probe match.
pub const NO_MATCH: &str = "no-match";

/// Does `find` find the places of attach points that begin with this word?
pub fn is_kind(name: &str) -> bool {
    searches().any(|search| search.names().contains(&name))
}

/// The places of an attach point, of which there is at least one.
///
/// # Errors
/// Why there is none.
pub fn find(point: &AttachPoint, env: &Env) -> Result<Vec<Place>, Diagnostic> {
    let kind = point.segments.first().map_or("", |kind| kind.text.as_str());
    let Some(search) = searches().find(|search| search.names().contains(&kind)) else {
        return Err(Diagnostic::error("unknown-probe", point.span, format!("no search for places of `{kind}`")));
    };
    let places = search.find(point, env)?;
    if places.is_empty() { Err(no_match(point)) } else { Ok(places) }
}

/// Can another machine have other places of a site's attach point?
pub fn is_searched(attach: &Attach) -> bool {
    match attach {
        Attach::Tracepoint { .. }
        | Attach::RawTracepoint { typed: false, .. }
        | Attach::Syscall { .. }
        | Attach::Uprobe { .. }
        | Attach::Usdt { .. }
        | Attach::Kprobe { .. } => true,
        // the code names the target
        Attach::RawTracepoint { typed: true, .. } | Attach::Trampoline { .. } => false,
        Attach::Begin
        | Attach::End
        | Attach::Signal
        | Attach::Test { .. }
        | Attach::Iter { .. }
        | Attach::Perf { .. }
        | Attach::Breakpoint { .. } => false,
    }
}

/// Can another machine have places with other names? These are the matches of a pattern, and places in files that are found
/// by a name without a directory.
pub fn varies_by_name(point: &AttachPoint, attach: &Attach) -> bool {
    let pattern = point.segments.iter().skip(1).any(|segment| !segment.quoted && segment.text.contains('*'));
    let file = || point.segments.get(1).is_some_and(|segment| !segment.text.starts_with('/'));
    is_searched(attach) && (pattern || attach.binary().is_some() && file())
}

/// Does a program on such sites know which of them fired?
pub fn distinguishes(attach: &Attach, sys: &dyn TargetInfo) -> bool {
    match attach {
        Attach::Syscall { .. } => true,
        Attach::RawTracepoint { .. } => sys.has(Feature::RawTracepointCookie),
        _ => sys.has(Feature::PerfCookie),
    }
}

/// The attachment of a program at a place: like that for which it was compiled, `built`. None if the program does not fit.
/// `same_args`: its code reads arguments.
pub fn attach_like(built: &Attach, place: &Attach, same_args: bool, sys: &dyn TargetInfo) -> Option<Attach> {
    let fits = match (built, place) {
        (Attach::RawTracepoint { typed: false, .. }, Attach::Tracepoint { category, event }) => {
            let raw = Attach::RawTracepoint { name: event.clone(), typed: false };
            return (!sys.is_dynamic_tracepoint(category, event)).then_some(raw);
        }
        (Attach::Syscall { enter, .. }, Attach::Tracepoint { category, event }) => {
            let call = syscall::of(category, event).filter(|call| call.enter == *enter)?;
            return sys.syscall_number(call.name).map(|number| Attach::Syscall { enter: *enter, number });
        }
        (Attach::Tracepoint { category: a, event: one }, Attach::Tracepoint { category: b, event: other }) => {
            syscall::of(a, one).map(|call| call.enter) == syscall::of(b, other).map(|call| call.enter)
        }
        (Attach::Kprobe { offset: a, ret: b, wildcard: c, .. }, Attach::Kprobe { offset: d, ret: e, wildcard: f, .. }) => {
            (a, b, c) == (d, e, f)
        }
        (
            Attach::Uprobe { function_offset: a, stack_check: b, ret: c, abi: d, .. },
            Attach::Uprobe { function_offset: e, stack_check: f, ret: g, abi: h, .. },
        ) => (a, b, c, d) == (e, f, g, h),
        (Attach::Usdt { args: a, .. }, Attach::Usdt { args: b, .. }) => !same_args || a == b,
        _ => false,
    };
    fits.then(|| place.clone())
}

/// The attachment without what may differ between machines if the code does not depend on the places.
pub fn shape(attach: &Attach) -> Attach {
    match attach.clone() {
        Attach::Uprobe { function_offset, stack_check, ret, abi, .. } => {
            Attach::Uprobe { path: Default::default(), offset: 0, function_offset, stack_check, function: String::new(), ret, abi }
        }
        Attach::Usdt { args, .. } => Attach::Usdt { path: Default::default(), offset: 0, addr: 0, semaphore: 0, optimized: 0, args },
        other => other,
    }
}

/// Handles an attach point that does not exist here, according to the settings. Without the file of a probe in user space, as
/// in bpftrace, that is an error whatever the settings say. None if it is ignored.
pub fn tolerated(d: Diagnostic, in_user_space: bool, settings: &Settings) -> Option<Diagnostic> {
    if in_user_space && d.code == "unavailable" {
        return Some(d);
    }
    let is_ignorable = !matches!(d.code, "bad-probe" | "unknown-probe" | "unsupported");
    match settings.missing_probes {
        MissingProbes::Warn if is_ignorable => Some(Diagnostic { severity: Severity::Warning, ..d }),
        // a verbose run names them, with the alternatives
        MissingProbes::Ignore if is_ignorable && settings.verbose => Some(Diagnostic { severity: Severity::Warning, ..d }),
        MissingProbes::Ignore if is_ignorable => None,
        MissingProbes::Error | MissingProbes::Warn | MissingProbes::Ignore => Some(d),
    }
}

/// For an ignored attach point: do the other attach points of its probe, with sites of these names, suffice?
pub fn with_alternative(d: Diagnostic, names: &[&str]) -> Diagnostic {
    if d.severity == Severity::Error {
        return d;
    }
    let instead = match names {
        [] => SKIPPED.to_string(),
        [one] => format!("{ATTACHED_BY} {one}"),
        [one, rest @ ..] => format!("{ATTACHED_BY} {one} and {} more", rest.len()),
    };
    let help = d.help.as_ref().map_or(instead.clone(), |help| format!("{instead}; {help}"));
    d.help(help)
}

const SKIPPED: &str = "the probe is skipped";
const ATTACHED_BY: &str = "the probe attaches by";

/// Is it about an ignored attach point?
pub fn tells_of_absence(d: &Diagnostic) -> bool {
    let help = d.help.as_deref().unwrap_or_default();
    d.severity == Severity::Warning && (help.starts_with(SKIPPED) || help.starts_with(ATTACHED_BY))
}

/// An attach point as written.
pub fn written(point: &AttachPoint) -> String {
    point.segments.iter().map(|s| s.text.as_str()).collect::<Vec<_>>().join(":")
}

/// The error for a pattern without matches: what to check instead.
pub fn no_match(point: &AttachPoint) -> Diagnostic {
    let parts: Vec<&str> = point.segments.iter().map(|s| s.text.as_str()).collect();
    let around = match parts.split_last() {
        Some((_, first)) if !first.is_empty() => first.join(":"),
        _ => String::new(),
    };
    let d = Diagnostic::error(NO_MATCH, point.span, format!("`{}` matches no probe", parts.join(":")));
    d.help(format!("`rbt -l '{around}:*'` lists what is available"))
}
