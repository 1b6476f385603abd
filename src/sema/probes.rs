//! Attach points: resolves them to sites, and groups the sites into as few contexts as possible, because a body is checked once
//! per context.

#![allow(clippy::wildcard_enum_match_arm)] // matches on one variant; the others are rejected

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::uses::NamesOfTypes;
use super::{CheckContext, Tables, options, types, uses};
use crate::builtins::options::ScriptOption;
use crate::builtins::{Accepts, Codegen, Param};
use crate::diag::{Diagnostic, Severity, Span};
use crate::probes::search::{self, NO_MATCH, no_match, written};
use crate::probes::{self, ArgRef, Attach, Context, ContextFeatures, Env, ProbeKind, ProbeSite, timer};
use crate::settings::{Argument, Invocation, MissingProbes, Mode, Settings};
use crate::syntax::ast::{self, AttachPoint, ExprKind, Segment};
use crate::system::binary::string_layouts;
use crate::system::{AmbiguousType, NoLocation, TargetInfo, TypeName};
use crate::types::{Enum, Space, Type};

/// A script's probe and the sites of its attach points.
pub struct Job<'a> {
    /// The probe as written.
    pub probe: &'a ast::Probe,
    /// In order of expansion.
    pub sites: Vec<ProbeSite>,
    /// The attach points that a compiled script searches for again, each of one kind, with arguments substituted.
    pub points: Rc<[AttachPoint]>,
    /// For each site, the index of its context in `contexts`.
    pub context_of: Vec<usize>,
    /// The distinct contexts among the sites, as far as they matter to the body, with a site for each: the one with the
    /// longest name.
    pub contexts: Vec<(usize, Context)>,
    /// `--probe-filter` excludes all of its sites: one remains, because other probes may use the maps that its body assigns.
    pub is_excluded: bool,
}

/// Maximum number of sites that a warning names.
const NAMED_SITES: usize = 8;

const NO_MATCHING_NAME: &str = "no probe's name matches the probe filter";

/// Expands all probes.
pub fn expand<'a>(
    script: &'a ast::Script,
    check_cx: &CheckContext,
    env: &Env,
    tables: &Tables,
    diags: &mut Vec<Diagnostic>,
) -> Vec<Job<'a>> {
    let filter = env.settings.probe_filter.as_ref();
    let mut jobs = Vec::new();
    let options = options::options(script);
    // names of missing attach points, and whether the filter excluded any
    let (mut lost, mut filtered) = (Vec::new(), false);
    for item in &script.items {
        let ast::Item::Probe(probe) = item else { continue };
        let (mut sites, mut points, mut absent) = (Vec::new(), Vec::new(), Vec::new());
        for point in &probe.points {
            match expand_point(point, &options, env, tables, &mut points, diags) {
                Ok(found) => sites.extend(found),
                Err(d) => {
                    let d = missing(d, point, env.settings);
                    if d.as_ref().is_none_or(|d| d.severity == Severity::Warning) {
                        lost.push(written(point));
                    }
                    absent.extend(d);
                }
            }
        }
        for d in absent.iter_mut().filter(|d: &&mut Diagnostic| d.code == NO_MATCH && !sites.is_empty()) {
            d.severity = Severity::Warning;
        }
        let names: Vec<&str> = sites.iter().map(|site| site.name.as_str()).collect();
        diags.extend(absent.into_iter().map(|d| search::with_alternative(d, &names)));
        let all = sites.len();
        sites.retain(|s| is_in_mode(s, env.settings.mode));
        let (before, first) = (sites.len(), sites.first().cloned());
        if filter.is_some() || sites.len() < all {
            points.clear();
        }
        sites.retain(|s| s.attach.runs_in_rbt() || filter.is_none_or(|f| f.is_match(&s.name)));
        filtered |= sites.len() < before;
        let is_excluded = sites.is_empty();
        sites.extend(first.filter(|_| is_excluded));
        if !sites.is_empty() {
            jobs.push(Job { is_excluded, points: points.into(), ..with_contexts(probe, sites, check_cx, env, tables, diags) });
        }
    }
    // does anything trace? begin and end run by themselves
    let kept = || jobs.iter().filter(|j| !j.is_excluded);
    let traces = kept().flat_map(|j| &j.sites).any(|s| !matches!(s.attach, Attach::Begin | Attach::End));
    let is_empty = kept().next().is_none();
    let none_here = || format!("this machine has none of the script's probes: {}", lost.join(", "));
    if !traces && !is_empty && !lost.is_empty() && env.settings.missing_probes == MissingProbes::Ignore {
        diags.push(Diagnostic::warning("no-probes", Span::default(), none_here()));
    }
    if !traces && !is_empty && filtered {
        diags.push(Diagnostic::warning("no-probes", Span::default(), NO_MATCHING_NAME));
    }
    if is_empty && !super::failed(diags) {
        jobs.clear();
        let none = none_here();
        let help = match env.settings.mode {
            _ if filter.is_some() => NO_MATCHING_NAME,
            Mode::Trace if !lost.is_empty() => none.as_str(),
            Mode::Trace => "use --test to run tests, and --bench to run benchmarks",
            Mode::Test => "--test runs the script's test probes: test:NAME { … }",
            Mode::Bench => "--bench runs the script's bench probes: bench:NAME { … }",
            Mode::List => none.as_str(),
        };
        let only_tests = env.settings.mode == Mode::Trace && filter.is_none() && lost.is_empty();
        let code = if only_tests { "only-tests" } else { "no-probes" };
        diags.push(Diagnostic::error(code, Span::default(), "No probes to attach").help(help));
    }
    limit(&jobs, env.settings, diags);
    same_names(&jobs, diags);
    jobs
}

/// Tests and benchmarks run separately, between `begin` and `end`.
fn is_in_mode(site: &ProbeSite, mode: Mode) -> bool {
    match (&site.attach, mode) {
        (_, Mode::List) => true,
        (Attach::Test { bench }, _) => mode == if *bench { Mode::Bench } else { Mode::Test },
        (Attach::Begin | Attach::End, _) => true,
        (_, Mode::Trace) => true,
        (_, Mode::Test | Mode::Bench) => false,
    }
}

/// Results of tests and benchmarks appear under their names.
fn same_names(jobs: &[Job], diags: &mut Vec<Diagnostic>) {
    let mut seen: BTreeMap<&str, &ProbeSite> = BTreeMap::new();
    for site in jobs.iter().flat_map(|j| &j.sites).filter(|s| matches!(s.attach, Attach::Test { .. })) {
        match seen.get(site.name.as_str()) {
            Some(first) => {
                let d = Diagnostic::error("redeclared", site.span, format!("the {} exists already", site.name));
                diags.push(d.related(first.span, "here").help("rename it"));
            }
            None => {
                seen.insert(&site.name, site);
            }
        }
    }
}

fn limit(jobs: &[Job], settings: &Settings, diags: &mut Vec<Diagnostic>) {
    let total: usize = jobs.iter().filter(|j| !j.is_excluded).map(|j| j.sites.len()).sum();
    if total as u64 > settings.max_probes {
        let widest = jobs.iter().max_by_key(|j| j.sites.len()).map_or(Span::default(), |j| point_span(j.probe));
        let message = format!("the script has {total} probes after expanding wildcards; the limit is {}", settings.max_probes);
        diags.push(Diagnostic::error("too-many-probes", widest, message).help("raise it with the setting max_probes"));
    }
}

fn point_span(probe: &ast::Probe) -> Span {
    match (probe.points.first(), probe.points.last()) {
        (Some(a), Some(b)) => a.span.to(b.span),
        _ => probe.span,
    }
}

/// Handles an attach point that does not exist here: see [`search::tolerated`].
fn missing(d: Diagnostic, point: &AttachPoint, settings: &Settings) -> Option<Diagnostic> {
    let kind = point.segments.first().and_then(|kind| probes::find(&kind.text));
    search::tolerated(d, kind.is_some_and(|kind| kind.offers().contains(ContextFeatures::BINARY)), settings)
}

fn expand_point(
    point: &AttachPoint,
    options: &[ScriptOption],
    env: &Env,
    tables: &Tables,
    points: &mut Vec<AttachPoint>,
    diags: &mut Vec<Diagnostic>,
) -> Result<Vec<ProbeSite>, Diagnostic> {
    let mut sites = Vec::new();
    for invocation in one_by_one(point, options, env.invocation) {
        if let Some(point) = with_given(point, options, &invocation, diags) {
            sites.extend(expand_given(point, env, tables, points)?);
        }
    }
    Ok(sites)
}

/// An option in an attach point may be a list, separated by commas (except within quotes): the arguments for each element.
fn one_by_one<'s>(point: &AttachPoint, options: &[ScriptOption], invocation: &'s Invocation) -> Vec<Cow<'s, Invocation>> {
    let mut all = vec![Cow::Borrowed(invocation)];
    let named = |o: &&ScriptOption| {
        let asks = |s: &Segment| s.text.split('$').skip(1).any(|t| t.strip_prefix(o.name.as_str()).is_some_and(ends_name));
        point.segments.iter().any(|s| !s.quoted && asks(s))
    };
    for option in options.iter().filter(named) {
        if invocation.late_bound.contains(&Argument::Option(option.name.clone())) {
            continue;
        }
        let values = option.written(invocation).map(|text| split_list(&text)).unwrap_or_default();
        if values.len() < 2 {
            continue;
        }
        let each = |with: Cow<'s, Invocation>| {
            let one = |value: &String| {
                let mut with = with.clone().into_owned();
                with.options.push((option.name.clone(), Some(value.clone())));
                Cow::Owned(with)
            };
            values.iter().map(one).collect::<Vec<_>>()
        };
        all = all.into_iter().flat_map(each).collect();
    }
    all
}

fn ends_name(after: &str) -> bool {
    !after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
}

/// The nonempty parts between commas. Commas within quotes do not separate.
fn split_list(text: &str) -> Vec<String> {
    let mut open = false;
    let parts = text.split(|c: char| {
        open ^= c == '"';
        c == ',' && !open
    });
    parts.map(|part| part.trim().to_string()).filter(|part| !part.is_empty()).collect()
}

fn expand_given(point: AttachPoint, env: &Env, tables: &Tables, points: &mut Vec<AttachPoint>) -> Result<Vec<ProbeSite>, Diagnostic> {
    let Some(provider) = point.segments.first() else {
        return Err(Diagnostic::error("unknown-probe", point.span, "an attach point must start with a probe kind"));
    };
    if provider.text.contains('*') && !provider.quoted {
        return any(any_kind(&point, env, tables, points)?, &point);
    }
    let Some(kind) = (tables.kind)(&provider.text) else {
        let kinds = (tables.kinds)();
        let names = kinds.iter().flat_map(|k| k.names()).copied();
        let lower = provider.text.to_ascii_lowercase();
        let d = Diagnostic::error("unknown-probe", provider.span, format!("there is no probe kind `{}`", provider.text));
        let removed = probes::REMOVED.iter().find(|(name, _)| *name == lower);
        let d = match removed {
            Some((_, instead)) => d.help(*instead),
            None => d.suggest(&lower, names.filter(|n| n.len() > 2)),
        };
        return Err(if d.help.is_some() {
            d
        } else {
            let all: Vec<&str> = kinds.iter().map(|k| k.name()).collect();
            d.help(format!("the kinds are {}", all.join(", ")))
        });
    };
    points.push(of_kind(&point, kind));
    any(kind.expand(&point, env)?, &point)
}

/// The attach point with the canonical name of its kind.
fn of_kind(point: &AttachPoint, kind: &dyn ProbeKind) -> AttachPoint {
    let mut point = point.clone();
    if let Some(first) = point.segments.first_mut() {
        first.text = kind.name().into();
    }
    point
}

/// The sites of all kinds that match a pattern of kinds. Kinds to which the other parts do not apply are omitted: the kinds
/// in binaries if there is one (`-p`, or a path), otherwise those of the kernel.
fn any_kind(point: &AttachPoint, env: &Env, tables: &Tables, points: &mut Vec<AttachPoint>) -> Result<Vec<ProbeSite>, Diagnostic> {
    let Some((provider, rest)) = point.segments.split_first() else { return Ok(Vec::new()) };
    let pattern = provider.text.to_ascii_lowercase();
    let matching: Vec<_> = (tables.kinds)().into_iter().filter(|k| probes::matches(&pattern, k.name())).collect();
    if matching.is_empty() {
        let all: Vec<&str> = (tables.kinds)().iter().map(|k| k.name()).collect();
        let d = Diagnostic::error("unknown-probe", provider.span, format!("`{}` matches no probe kind", provider.text));
        return Err(d.help(format!("the kinds are {}", all.join(", "))));
    }
    let in_binary = env.settings.pid.is_some() || rest.first().is_some_and(|s| s.text.contains('/'));
    let mut sites = Vec::new();
    for kind in matching {
        if kind.by_name_only() || kind.offers().contains(ContextFeatures::BINARY) != in_binary {
            continue;
        }
        let point = of_kind(point, kind);
        sites.extend(kind.expand(&point, env).unwrap_or_default());
        points.push(point);
    }
    Ok(sites)
}

/// The sites of an attach point, of which there must be at least one.
fn any(sites: Vec<ProbeSite>, point: &AttachPoint) -> Result<Vec<ProbeSite>, Diagnostic> {
    if sites.is_empty() { Err(no_match(point)) } else { Ok(sites) }
}

/// Substitutes positional parameters for `$1` and the script's options for `$name`, in unquoted parts. The substituted text
/// may contain colons. The result is nothing if an option is empty or 0, which disables the attach point.
fn with_given(point: &AttachPoint, options: &[ScriptOption], invocation: &Invocation, diags: &mut Vec<Diagnostic>) -> Option<AttachPoint> {
    let mut segments = Vec::new();
    for segment in &point.segments {
        if segment.quoted || !segment.text.contains('$') {
            segments.push(segment.clone());
            continue;
        }
        let mut text = String::new();
        let mut rest = segment.text.as_str();
        while let Some(at) = rest.find('$') {
            text.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('#') {
                text.push_str(&invocation.params.len().to_string());
                rest = after;
                continue;
            }
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            // of `$1st`, only the number
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let (name, after) = rest.split_at(if digits > 0 { digits } else { end });
            let argument = match name.parse() {
                Ok(n) => Argument::Text(n),
                Err(_) => Argument::Option(name.into()),
            };
            if invocation.late_bound.contains(&argument) {
                if segments.is_empty() || segment.text.len() != name.len() + 1 || !timer::takes_arguments(point) {
                    let message = format!("${name} must be known when the script is compiled");
                    diags.push(Diagnostic::error("not-constant", segment.span, message));
                    return None;
                }
                invocation.late_bound.use_place(&argument);
                text.push('$');
                text.push_str(name);
                rest = after;
                continue;
            }
            let param = name.parse::<usize>().ok().and_then(|n| n.checked_sub(1)).map(|i| invocation.params.get(i));
            let option = options.iter().find(|o| o.name == name).and_then(|o| o.written(invocation));
            match (param, option) {
                (Some(Some(value)), _) => text.push_str(value),
                (Some(None), _) => {
                    let message = format!("parameter ${name} is missing: it is empty here");
                    diags.push(Diagnostic::warning("missing-parameter", segment.span, message));
                }
                (None, Some(value)) if value.is_empty() || value == "0" => return None,
                (None, Some(value)) => text.push_str(&value),
                (None, None) => {
                    text.push('$');
                    text.push_str(name);
                }
            }
            rest = after;
        }
        text.push_str(rest);
        segments.extend(split_segments(&text, segment.span));
    }
    Some(AttachPoint { segments, ..point.clone() })
}

/// The parts of a text between colons; colons within quotes do not count.
fn split_segments(text: &str, span: Span) -> Vec<Segment> {
    let mut parts = vec![Segment { text: String::new(), quoted: false, span }];
    let mut open = false;
    for c in text.chars() {
        let Some(last) = parts.last_mut() else { break };
        match c {
            '"' => {
                open = !open;
                last.quoted = true;
            }
            ':' if !open => parts.push(Segment { text: String::new(), quoted: false, span }),
            _ => last.text.push(c),
        }
    }
    parts
}

/// How a probe reads a text that is the result of a function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ResultAsText {
    No,
    /// With a length that the script states.
    WithLength,
    Whole,
}

/// How a body's meaning depends on its site.
struct Needs {
    /// On any property of the context.
    context: bool,
    /// The fields of `args`.
    fields: bool,
    /// The result.
    result: bool,
    /// The text that the result is or points to.
    text: ResultAsText,
    /// On a property that no two sites share.
    site: bool,
}

fn is_args(value: &ArgRef) -> bool {
    matches!(value, ArgRef::All(_) | ArgRef::Named(_))
}

fn is_result(value: &ArgRef) -> bool {
    *value == ArgRef::Retval
}

/// Does a macro or function of the script use a value like this?
fn definitions_use(check_cx: &CheckContext, tables: &Tables, is_wanted: fn(&ArgRef) -> bool) -> bool {
    let mut found = false;
    let mut each = |e: &ast::Expr| {
        let name = match &e.kind {
            ExprKind::Ident(name) => name.as_str(),
            ExprKind::Call { name, .. } => name.name.as_str(),
            _ => return,
        };
        found |= (tables.row)(name).is_some_and(|row| matches!(&row.codegen, Codegen::Context(value) if is_wanted(value)));
    };
    check_cx.macros.iter().for_each(|m| uses::in_block(&m.body, &mut each));
    check_cx.functions.iter().for_each(|f| uses::in_block(&f.body, &mut each));
    found
}

fn needs(probe: &ast::Probe, check_cx: &CheckContext, tables: &Tables) -> Needs {
    let mut n = Needs { context: false, fields: false, result: false, text: ResultAsText::No, site: false };
    uses::expressions(probe, &mut |e| {
        let name = match &e.kind {
            ExprKind::Ident(name) => name.as_str(),
            ExprKind::Call { name, .. } => name.name.as_str(),
            // The context may determine the target of a pointer.
            ExprKind::Cast(..) | ExprKind::Field { .. } | ExprKind::Unary(ast::UnOp::Deref, _) | ExprKind::Index { .. } => {
                n.context = true;
                return;
            }
            _ => return,
        };
        // A macro's or function's body is checked here only for whether it uses `args` at all: a binary may not
        // describe its arguments.
        if check_cx.macros.iter().any(|m| m.name.name == name) || check_cx.function(name).is_some() {
            n = Needs {
                context: true,
                fields: n.fields || definitions_use(check_cx, tables, is_args),
                result: n.result || definitions_use(check_cx, tables, is_result),
                text: n.text,
                site: false,
            };
            return;
        }
        let Some(row) = (tables.row)(name) else { return };
        n.context |= row.needs != ContextFeatures::NONE
            || matches!(row.codegen, Codegen::Context(_))
            || row.params.iter().any(|p| matches!(p.accepts, Accepts::Addr | Accepts::StrOrAddr | Accepts::TextOrAddr));
        n.fields |= matches!(&row.codegen, Codegen::Context(value) if is_args(value));
        n.result |= matches!(&row.codegen, Codegen::Context(value) if is_result(value));
        if let ExprKind::Call { args, .. } = &e.kind {
            let reads_result = |(param, arg): (&Param, &ast::Arg)| {
                let ast::Arg::Expr(ast::Expr { kind: ExprKind::Ident(name), .. }) = arg else { return false };
                let row = (tables.row)(name.as_str());
                param.accepts == Accepts::TextOrAddr
                    && row.is_some_and(|row| matches!(&row.codegen, Codegen::Context(value) if is_result(value)))
            };
            if row.params.iter().zip(args).any(reads_result) {
                n.text = n.text.max(if args.len() > 1 { ResultAsText::WithLength } else { ResultAsText::Whole });
            }
        }
    });
    n.site = depends_on_site(probe, check_cx, tables);
    n.context |= n.site;
    n
}

/// Can a `comptime` condition depend on the site? True if the probe, or any macro or function, has such words.
fn depends_on_site(probe: &ast::Probe, check_cx: &CheckContext, tables: &Tables) -> bool {
    let (mut comptime, mut asks) = (false, false);
    let mut each = |e: &ast::Expr| {
        let name = match &e.kind {
            ExprKind::Ident(name) => name.as_str(),
            ExprKind::Call { name, .. } => name.name.as_str(),
            other => {
                comptime |= matches!(other, ExprKind::Comptime(_));
                return;
            }
        };
        asks |= (tables.row)(name).is_some_and(|row| matches!(row.codegen, Codegen::Either(..)));
    };
    uses::expressions(probe, &mut each);
    uses::each_definition_expr(check_cx, &mut each);
    comptime && asks
}

/// The properties of a site that rows may use during checking: its kind, and its binary or the objects that it visits.
fn same_place(a: &ProbeSite, b: &ProbeSite) -> bool {
    a.kind.names() == b.kind.names() && a.attach.binary() == b.attach.binary() && a.attach.objects() == b.attach.objects()
}

fn same_context(a: &Context, b: &Context, fields: bool) -> bool {
    a.features == b.features
        && a.retval == b.retval
        && a.args == b.args
        && a.arg_types == b.arg_types
        && a.space == b.space
        && (!fields || a.fields == b.fields)
}

/// The meanings of a body's words in the debug information of a site's binary, whose files may define them differently.
#[derive(Default, PartialEq)]
struct Meanings {
    types: Vec<Result<Option<Type>, AmbiguousType>>,
    constants: Vec<Vec<(Arc<Enum>, i64)>>,
}

impl Meanings {
    fn new(names: &NamesOfTypes, site: &ProbeSite, sys: &dyn TargetInfo) -> Self {
        let Some(at) = site.attach.file_location() else { return Meanings::default() };
        let words = names.words.iter().flat_map(|word| [(TypeName::Struct, *word), (TypeName::Plain, *word)]);
        let types = names.tagged.iter().copied().chain(words).map(|(kind, name)| sys.type_in_binary(at.path, at.offset, kind, name));
        let constants = names.words.iter().map(|name| sys.enumerators_in_binary(at.path, at.offset, name));
        Meanings { types: types.collect(), constants: constants.collect() }
    }
}

/// Size of the largest object that registers return, in bytes.
const REGISTERS: u32 = 16;

/// The type of `retval` at a site. `None` is the entire register. If it is read as text, it points to an object with a text if the
/// result is such an object in memory, or its address.
fn result_at(site: &ProbeSite, text: ResultAsText, env: &Env) -> Result<Option<Type>, NoLocation> {
    let narrow = site.kind.retval(site, env)?;
    let declared = if text == ResultAsText::No { None } else { site.kind.result_type(site, env) };
    let Some(ty) = declared.filter(|ty| string_layouts::is_text(env.sys, ty)) else {
        return Ok(narrow.map(Type::Int));
    };
    match ty {
        Type::Struct(object) if object.size <= REGISTERS => match text {
            ResultAsText::Whole => Err(NoLocation::Text),
            ResultAsText::WithLength | ResultAsText::No => Ok(narrow.map(Type::Int)),
        },
        Type::Struct(_) => Ok(Some(Type::Ptr(Box::new(ty), Space::User))),
        address => Ok(Some(address)),
    }
}

/// Returns the sites with the types of their results, if these are not the entire register. Reports sites whose results cannot be
/// read, and leaves out those of a pattern that has others.
fn with_readable_results(
    sites: Vec<ProbeSite>,
    text: ResultAsText,
    env: &Env,
    diags: &mut Vec<Diagnostic>,
) -> Vec<(ProbeSite, Option<Type>)> {
    let (mut readable, mut unreadable) = (Vec::new(), Vec::new());
    for site in sites {
        match result_at(&site, text, env) {
            Ok(ty) => readable.push((site, ty)),
            Err(why) => unreadable.push((why, site)),
        }
    }
    let mut omitted: BTreeMap<Span, Vec<String>> = BTreeMap::new();
    for (why, site) in &unreadable {
        if readable.iter().any(|(other, _)| other.span == site.span) {
            omitted.entry(site.span).or_default().push(site.name.clone());
        } else {
            let message = format!("the result of {} cannot be read: {why}", site.name);
            diags.push(Diagnostic::error("bad-arg", site.span, message).help(why.help()));
        }
    }
    for (point, names) in omitted {
        let shown = names.iter().take(NAMED_SITES).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if names.len() > NAMED_SITES { format!(" and {} more", names.len() - NAMED_SITES) } else { String::new() };
        let message = format!("no probes where the result cannot be read: {shown}{more}");
        diags.push(Diagnostic::warning("unreadable-result", point, message));
    }
    match readable.is_empty() {
        true => unreadable.into_iter().map(|(_, site)| (site, None)).collect(),
        false => readable,
    }
}

fn with_contexts<'a>(
    probe: &'a ast::Probe,
    sites: Vec<ProbeSite>,
    check_cx: &CheckContext,
    env: &Env,
    tables: &Tables,
    diags: &mut Vec<Diagnostic>,
) -> Job<'a> {
    let needs = needs(probe, check_cx, tables);
    let (sites, results): (Vec<ProbeSite>, Vec<Option<Type>>) = match needs.result {
        true => with_readable_results(sites, needs.text, env, diags).into_iter().unzip(),
        false => sites.into_iter().map(|site| (site, None)).unzip(),
    };
    let meanings: Vec<Meanings> = match sites.as_slice() {
        [_] => vec![Meanings::default()],
        all => {
            // a name of the language has one meaning, for which no binary's debug information is read
            let is_own = |name: &str| (tables.row)(name).is_some() || types::own_type(name).is_some();
            let names = NamesOfTypes::new(check_cx, probe, is_own);
            all.iter().map(|site| Meanings::new(&names, site, env.sys)).collect()
        }
    };
    let mut contexts: Vec<(usize, Context)> = Vec::new();
    let mut context_of = Vec::with_capacity(sites.len());
    for (i, site) in sites.iter().enumerate() {
        let same = |j: usize| sites.get(j).is_some_and(|s| same_place(s, site)) && meanings.get(j) == meanings.get(i);
        // A body that does not depend on its context costs nothing per site.
        if let Some(at) = contexts.iter().position(|(j, _)| !needs.context && same(*j)) {
            context_of.push(at);
            continue;
        }
        let context = site.kind.context(site, env).and_then(|mut context| {
            if needs.fields && context.fields.is_empty() {
                context.fields = site.kind.fields(site, env)?;
            }
            context.retval = context.retval.or_else(|| results.get(i).cloned().flatten());
            Ok(context)
        });
        let context = match context {
            Ok(context) => context,
            Err(d) => {
                diags.extend(search::tolerated(d, false, env.settings));
                context_of.push(usize::MAX);
                continue;
            }
        };
        let at =
            contexts.iter().position(|(j, c)| !needs.site && same(*j) && same_context(c, &context, needs.fields)).unwrap_or_else(|| {
                contexts.push((i, context));
                contexts.len() - 1
            });
        context_of.push(at);
    }
    // one site represents all: the one with the longest name, for which `probe` needs room
    for (at, (chosen, _)) in contexts.iter_mut().enumerate() {
        let longest =
            sites.iter().zip(&context_of).enumerate().filter(|(_, (_, of))| **of == at).rev().max_by_key(|(_, (s, _))| s.name.len());
        *chosen = longest.map_or(*chosen, |(i, _)| i);
    }
    Job { probe, sites, points: Rc::default(), context_of, contexts, is_excluded: false }
}
