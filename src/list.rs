//! `rbt -l`: lists probes and types by name, and writes each line as it finds it.

use std::io::{self, Write};

use crate::diag::{Span, nearest, plain};
use crate::failure::{self, Failure};
use crate::probes::{self, Attach, ContextFeatures, Env, FieldLocation, KINDS, ProbeKind, ProbeSite};
use crate::sema::hir;
use crate::syntax::ast::{AttachPoint, Segment};
use crate::system::{Missing, TypeName, matches};
use crate::types::{Space, Type};

/// Lists the names that match a comma-separated list of patterns; without one, all probes of the kernel. With
/// `verbose`, each name is followed by its arguments. A reader that has gone is not an error.
///
/// Errors: no name matches, which is status 0, or the kernel's lists cannot be read.
pub fn list(patterns: Option<&str>, env: &Env, verbose: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let mut page = Page { out, env, verbose, written: 0, failed: None, unknown: None };
    let mut nothing = None;
    let patterns = patterns.filter(|p| !p.trim().is_empty()).unwrap_or("*");
    for pattern in split(patterns, ',').iter().map(|p| p.trim()).filter(|p| !p.is_empty()) {
        let before = page.written;
        match type_pattern(pattern) {
            Some((kind, word, name)) => list_types(kind, word, name, &mut page)?,
            None => list_probes(pattern, &mut page)?,
        }
        if page.written == before && page.failed.is_none() {
            nothing = nothing.or_else(|| Some(no_match(pattern, env)));
        }
    }
    page.finish()?;
    // an empty list is an answer, too
    nothing.map_or(Ok(()), |failure| Err(failure.status(0)))
}

/// Lists the places where a checked script would be attached; probes that this process runs itself are not attached
/// anywhere.
pub fn list_script(script: &hir::Script, env: &Env, verbose: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let mut page = Page { out, env, verbose, written: 0, failed: None, unknown: None };
    let sites = script.probes.iter().flat_map(|p| &p.sites);
    for site in sites.filter(|s| !s.attach.runs_in_rbt()) {
        page.line(&listed_name(site));
        if verbose {
            page.arguments(site).iter().for_each(|l| page.line(l));
        }
    }
    page.finish()
}

/// The name of a site, in the form in which a list of its kind has it: names of timers and counters lack the number.
fn listed_name(site: &ProbeSite) -> String {
    match (&site.attach, site.name.splitn(3, ':').collect::<Vec<_>>().as_slice()) {
        (Attach::Perf { .. }, [kind, what, ..]) => format!("{kind}:{what}:"),
        // as bpftrace lists them
        (Attach::Test { bench }, [_, name, ..]) => format!("{}:{name}:", if *bench { "benchmark" } else { "test" }),
        _ => site.name.clone(),
    }
}

/// The destination of lines, and errors about them.
struct Page<'a> {
    out: &'a mut dyn Write,
    env: &'a Env<'a>,
    verbose: bool,
    written: u64,
    failed: Option<io::Error>,
    /// Why the arguments of a probe are unknown: the first such reason.
    unknown: Option<String>,
}

impl Page<'_> {
    fn line(&mut self, text: &str) {
        self.written += 1;
        if self.failed.is_none() {
            let rest = text.trim_start_matches('\t');
            let indent = text.strip_suffix(rest).unwrap_or_default();
            self.failed = writeln!(self.out, "{indent}{}", plain(rest)).err();
        }
    }

    fn probe(&mut self, kind: &dyn ProbeKind, name: &str) {
        self.line(name);
        // Once the reader is gone, nothing is looked up; a name that still needs a number is not a probe yet.
        if !self.verbose || self.failed.is_some() || name.ends_with(':') {
            return;
        }
        match kind.expand(&point(name), self.env) {
            Ok(sites) => {
                // the places of a marker often have their arguments at different locations, but with the same types
                let mut listed = Vec::new();
                for site in &sites {
                    let lines = self.arguments(site);
                    if !listed.contains(&lines) {
                        lines.iter().for_each(|l| self.line(l));
                        listed.push(lines);
                    }
                }
            }
            Err(d) => self.unknown = self.unknown.take().or(Some(d.message)),
        }
    }

    /// The arguments of a site for `-v`, a line each.
    fn arguments(&mut self, site: &ProbeSite) -> Vec<String> {
        let mut lines = Vec::new();
        match site.kind.context(site, self.env) {
            Ok(context) => {
                let declared = site.kind.declarations(site, self.env).unwrap_or_else(|d| {
                    self.unknown = self.unknown.take().or(Some(d.message));
                    Vec::new()
                });
                lines.extend(declared.iter().map(|d| format!("    {d}")));
                let fields = site.kind.fields(site, self.env).unwrap_or_default();
                let unread = fields.iter().find_map(|f| {
                    let FieldLocation::Unreadable(why) = &f.location else { return None };
                    Some(format!("{} of {}: {why}", f.field.name, site.name))
                });
                self.unknown = self.unknown.take().or(unread);
                lines.extend(context.arg_types.iter().enumerate().map(|(n, ty)| match ty {
                    Some(ty) => format!("    {}", declare(ty, &format!("arg{n}"))),
                    None => format!("    arg{n}, which is not readable"),
                }));
            }
            Err(d) => self.unknown = self.unknown.take().or(Some(d.message)),
        }
        lines
    }

    fn finish(self) -> Result<(), Failure> {
        let failed = self.failed.or_else(|| self.out.flush().err());
        if let Some(reason) = self.unknown {
            let _ = writeln!(io::stderr(), "warning: some arguments are not readable: {}", plain(&reason));
        }
        match failed {
            Some(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::new(format!("cannot write the list: {}", failure::reason(&e))).code("not-written"))
            }
            _ => Ok(()),
        }
    }
}

fn list_probes(pattern: &str, page: &mut Page) -> Result<(), Failure> {
    let wanted = ListPattern::new(pattern)?;
    let rest = wanted.rest();
    for kind in wanted.kinds(page.env) {
        let canonical = kind.name();
        if let Some(why) = kind.unavailable(page.env) {
            let failure = Failure { help: why.help, ..Failure::new(why.what) };
            return Err(failure.code("unavailable").status(0));
        }
        let listed = kind.list(&rest, page.env, &mut |name| {
            let name = full_name(canonical, name);
            if wanted.matches(&name) {
                page.probe(kind, &name);
            }
        });
        match listed {
            Ok(()) => {}
            // If one of several kinds cannot be listed, the others are listed nevertheless.
            Err(missing) if wanted.any_kind() => {
                let _ = writeln!(io::stderr(), "warning: {canonical} probes are not listed: {}", plain(&reason(&missing)));
            }
            // something that cannot be found has no names, which is an answer
            Err(missing) => return Err(failure(missing).status(0)),
        }
    }
    Ok(())
}

/// The meaning of a pattern.
enum ListPattern {
    /// This kind, with segments for it to match.
    Kind(&'static dyn ProbeKind, Vec<String>),
    /// Any kind that matches the first pattern, with segments for it.
    Kinds(String, Vec<String>),
    /// Any name that contains this after a colon.
    Name(String),
}

impl ListPattern {
    fn new(pattern: &str) -> Result<Self, Failure> {
        let segments = segments(pattern);
        let (first, rest) = match segments.split_first() {
            None => return Ok(ListPattern::Kinds("*".into(), Vec::new())),
            Some((first, [])) if first == "*" => return Ok(ListPattern::Kinds("*".into(), Vec::new())),
            Some((first, [])) => return Ok(ListPattern::Name(format!("*:{first}"))),
            Some((first, rest)) => (first, rest.to_vec()),
        };
        if first.contains('*') {
            return Ok(ListPattern::Kinds(first.clone(), rest));
        }
        let unknown = || {
            let failure = Failure::new(format!("there is no probe kind `{first}`")).code("unknown-probe").status(0);
            match nearest(first, KINDS.iter().flat_map(|k| k.names().iter().copied())) {
                Some(near) => failure.help(format!("did you mean `{near}`?")),
                None => failure.help(format!("one of {}", kind_names())),
            }
        };
        probes::find(first).map(|kind| ListPattern::Kind(kind, rest)).ok_or_else(unknown)
    }

    fn any_kind(&self) -> bool {
        !matches!(self, ListPattern::Kind(..))
    }

    /// For [`ProbeKind::list`].
    fn rest(&self) -> Vec<String> {
        match self {
            ListPattern::Kind(_, rest) => rest.clone(),
            // of the other kinds, the whole name is compared
            ListPattern::Kinds(_, rest) if rest.first().is_some_and(|r| r.contains('/')) => rest.clone(),
            ListPattern::Kinds(..) | ListPattern::Name(_) => vec!["*".into()],
        }
    }

    /// Several kinds are those whose lists are long enough to search, as in bpftrace. Kinds in user-space binaries are omitted if no
    /// binary is named, because their names are unlimited.
    fn kinds(&self, env: &Env) -> Vec<&'static dyn ProbeKind> {
        let (first, rest) = match self {
            ListPattern::Kind(kind, _) => return vec![*kind],
            ListPattern::Kinds(first, rest) => (first.as_str(), rest.as_slice()),
            ListPattern::Name(_) => ("*", [].as_slice()),
        };
        let binary = env.settings.pid.is_some() || rest.first().is_some_and(|r| r.contains('/'));
        let named = |k: &&&dyn ProbeKind| k.is_listed() && matches(first, k.name());
        let here = |k: &&&dyn ProbeKind| k.unavailable(env).is_none();
        let found = KINDS.iter().filter(named).filter(here).filter(|k| binary || !k.offers().contains(ContextFeatures::BINARY));
        // several kinds are listed in order of name
        let mut found: Vec<&'static dyn ProbeKind> = found.copied().collect();
        found.sort_by_key(|k| k.name());
        found
    }

    /// The text to print if a kind's probes cannot be listed.
    fn endless(&self, env: &Env) -> Option<String> {
        let ListPattern::Kind(kind, rest) = self else { return None };
        let nothing_named = rest.iter().all(|part| part == "*") && env.settings.pid.is_none();
        if kind.offers().contains(ContextFeatures::BINARY) && nothing_named {
            let name = kind.name();
            return Some(format!("name a binary, as `{name}:/bin/bash:*`, or a process with -p: `-p PID -l '{name}:*'`"));
        }
        let mut any = false;
        let _ = kind.list(&["*".into()], env, &mut |_| any = true);
        (!any && !kind.offers().contains(ContextFeatures::BINARY)).then(|| format!("these are not included; write {}", kind.info().usage))
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            ListPattern::Kind(..) => true,
            ListPattern::Kinds(_, rest) if rest.is_empty() || rest.first().is_some_and(|r| r.contains('/')) => true,
            ListPattern::Kinds(first, rest) => matches(&format!("{first}:{}", rest.join(":")), name),
            ListPattern::Name(pattern) => matches(pattern, name),
        }
    }
}

fn no_match(pattern: &str, env: &Env) -> Failure {
    let failure = Failure::new(format!("nothing matches `{pattern}`")).code("no-match");
    if let Some((kind, word, name)) = type_pattern(pattern) {
        let mut names = Vec::new();
        env.sys.type_names(kind, &mut |n| names.push(n.to_string()));
        return match (nearest(name, names.iter().map(String::as_str)), env.sys.types_missing()) {
            (_, Some(missing)) => self::failure(missing),
            (Some(near), None) => failure.help(format!("did you mean `{word} {near}`?")),
            (None, None) => failure,
        };
    }
    if probes::find(pattern).is_some_and(|kind| !kind.by_name_only()) {
        return failure.help(format!("for all of this kind: `{pattern}:*`"));
    }
    let Ok(wanted) = ListPattern::new(pattern) else { return failure };
    if let Some(help) = wanted.endless(env) {
        return failure.help(help);
    }
    if pattern.contains('*') {
        return failure;
    }
    let mut names = Vec::new();
    for kind in wanted.kinds(env) {
        let canonical = kind.name();
        // The binary stays, but its contents are dropped; of the kernel's probes, all are candidates.
        let mut everything: Vec<String> = wanted.rest();
        match (kind.offers().contains(ContextFeatures::BINARY), everything.last_mut()) {
            (true, Some(last)) => *last = "*".into(),
            _ => everything = vec!["*".into()],
        }
        let _ = kind.list(&everything, env, &mut |n| names.push(full_name(canonical, n)));
    }
    let target = match &wanted {
        ListPattern::Kind(kind, rest) => format!("{}:{}", kind.name(), rest.join(":")),
        ListPattern::Kinds(..) | ListPattern::Name(_) => pattern.to_string(),
    };
    // A name without its kind is compared with the part after the last colon.
    let last = |n: &str| n.rsplit(':').next().unwrap_or("").to_string();
    let near = match wanted.any_kind() {
        true => {
            let ends: Vec<String> = names.iter().map(|n| last(n)).collect();
            nearest(&target, ends.iter().map(String::as_str)).map(String::from)
        }
        false => nearest(&target, names.iter().map(String::as_str)).map(String::from),
    };
    match near {
        Some(near) => failure.help(format!("did you mean `{near}`?")),
        None => failure,
    }
}

/// `struct x`, `union x*`, `enum *`.
fn type_pattern(pattern: &str) -> Option<(TypeName, &'static str, &str)> {
    let (word, name) = pattern.split_once(char::is_whitespace)?;
    let (kind, word) = match word {
        "struct" => (TypeName::Struct, "struct"),
        "union" => (TypeName::Union, "union"),
        "enum" => (TypeName::Enum, "enum"),
        _ => return None,
    };
    Some((kind, word, name.trim()))
}

fn list_types(kind: TypeName, word: &str, pattern: &str, page: &mut Page) -> Result<(), Failure> {
    let sys = page.env.sys;
    if let Some(missing) = sys.types_missing() {
        return Err(failure(missing));
    }
    if page.verbose {
        // a type that the script declares takes precedence
        let declared = sys.type_named(kind, pattern);
        if let Some(ty) = declared.filter(|ty| sys.kernel_types().and_then(|types| types.named(kind, pattern)).as_ref() != Some(ty)) {
            define(word, pattern, &ty, page);
        } else if let Some(types) = sys.kernel_types() {
            types.definitions(kind, pattern, &mut |text| {
                text.lines().for_each(|l| page.line(l));
                page.line("");
            });
        }
        return Ok(());
    }
    let mut names = Vec::new();
    if pattern.contains('*') {
        // Modules repeat some types, so this list, unlike others, is sorted before it is printed.
        sys.type_names(kind, &mut |n| {
            if matches(pattern, n) {
                names.push(n.to_string());
            }
        });
        names.sort_unstable();
        names.dedup();
    } else if sys.type_named(kind, pattern).is_some() {
        names.push(pattern.to_string());
    }
    for name in names {
        page.line(&format!("{word} {name}"));
    }
    Ok(())
}

/// Prints the members of a type that a script declares.
fn define(word: &str, name: &str, ty: &Type, page: &mut Page) {
    page.line(&format!("{word} {name} {{"));
    if let Type::Enum(e) = ty {
        for (variant, value) in &e.variants {
            page.line(&format!("    {variant} = {value},"));
        }
    }
    if let Type::Struct(s) = ty {
        for f in page.env.sys.expand(s).map(|r| r.fields).unwrap_or_default() {
            let width = f.bits.map(|(_, width)| format!(" : {width}")).unwrap_or_default();
            page.line(&format!("    {}{width};", declare(&f.ty, &f.name)));
        }
    }
    page.line("};");
}

/// A C declaration.
fn declare(ty: &Type, name: &str) -> String {
    match ty {
        Type::Int(i) => {
            let word = match i.bytes {
                1 => "char",
                2 => "short",
                4 => "int",
                _ => "long",
            };
            format!("{}{word} {name}", if i.signed { "" } else { "unsigned " })
        }
        Type::Str(n) => format!("char {name}[{n}]"),
        Type::Buf(n) => format!("unsigned char {name}[{n}]"),
        Type::Array(elem, n) => declare(elem, &format!("{name}[{n}]")),
        Type::Ptr(to, _) if matches!(**to, Type::Array(..) | Type::Str(_)) => declare(to, &format!("(*{name})")),
        Type::Ptr(to, _) => declare(to, &format!("*{name}")),
        Type::Enum(e) if e.name.is_empty() => declare(&Type::Int(e.int), name),
        Type::Record(r) if r.name.is_empty() => format!("struct {{ … }} {name}"),
        Type::Void
        | Type::Bool
        | Type::Enum(_)
        | Type::Struct(_)
        | Type::Record(_)
        | Type::Tuple(_)
        | Type::Deferred(_)
        | Type::Agg(_)
        | Type::Args => {
            format!("{} {name}", Type::ptr(ty.clone(), Space::Unknown).to_string().trim_end_matches(" *"))
        }
    }
}

/// Parts between colons, without the quotes that protect colons; a backslash within quotes protects a character.
fn segments(pattern: &str) -> Vec<String> {
    let parts = split(pattern, ':');
    if parts.iter().all(|p| p.is_empty()) && parts.len() == 1 { Vec::new() } else { parts.into_iter().map(unquoted).collect() }
}

/// Parts between separators that are not in quotes.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut from, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, c) in text.char_indices() {
        if c == '"' && !escaped {
            quoted = !quoted;
        } else if c == separator && !quoted {
            parts.extend(text.get(from..at));
            from = at + c.len_utf8();
        }
        escaped = quoted && c == '\\' && !escaped;
    }
    parts.extend(text.get(from..));
    parts
}

fn unquoted(part: &str) -> String {
    let (mut text, mut quoted, mut escaped) = (String::new(), false, false);
    for c in part.chars() {
        match c {
            '\\' if quoted && !escaped => {
                escaped = true;
                continue;
            }
            '"' if !escaped => quoted = !quoted,
            _ => text.push(c),
        }
        escaped = false;
    }
    text
}

/// The attach point of a listed name.
fn point(name: &str) -> AttachPoint {
    let span = Span::default();
    let segments = segments(name).into_iter().map(|text| Segment { text, quoted: true, span }).collect();
    AttachPoint { name: None, segments, span }
}

/// The name with its kind in front.
pub(crate) fn full_name(kind: &str, name: &str) -> String {
    match name.strip_prefix(kind) {
        Some(rest) if rest.is_empty() || rest.starts_with(':') => name.to_string(),
        _ => format!("{kind}:{name}"),
    }
}

fn kind_names() -> String {
    KINDS.iter().map(|k| k.name()).collect::<Vec<_>>().join(", ")
}

fn reason(missing: &Missing) -> String {
    match &missing.help {
        Some(help) => format!("{} ({help})", missing.what),
        None => missing.what.clone(),
    }
}

fn failure(missing: Missing) -> Failure {
    Failure { help: missing.help, ..Failure::new(missing.what).code("unavailable") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use crate::system::machine::live::Live;

    #[test]
    fn quotes_protect_colons() {
        assert_eq!(segments("a:\"b:c\":d"), ["a", "b:c", "d"]);
        assert_eq!(segments(r#"u:b:cpp:"f(int, char)""#), ["u", "b", "cpp", "f(int, char)"]);
        assert_eq!(segments(r#"u:b:"operator\"\" _x""#), ["u", "b", "operator\"\" _x"]);
        assert_eq!(split(r#"a:"f(x,y)",b"#, ','), ["a:\"f(x,y)\"", "b"]);
        assert!(segments("").is_empty());
    }

    #[test]
    fn adds_the_kind_once() {
        assert_eq!(full_name("tracepoint", "sched:x"), "tracepoint:sched:x");
        assert_eq!(full_name("tracepoint", "tracepoint:sched:x"), "tracepoint:sched:x");
        assert_eq!(full_name("begin", "begin"), "begin");
    }

    #[test]
    fn types_are_listed_and_defined() {
        let (sys, settings) = (Live::new(), Settings::default());
        let env = Env::new(&sys, &settings);
        if env.sys.types_missing().is_some() {
            return eprintln!("skipped: needs BTF");
        }
        let run = |pattern: &str, verbose| {
            let mut out = Vec::new();
            list(Some(pattern), &env, verbose, &mut out).map(|()| String::from_utf8_lossy(&out).into_owned())
        };
        assert!(run("struct task_str*", false).unwrap().contains("struct task_struct\n"));
        let text = run("struct task_struct", true).unwrap();
        assert!(text.starts_with("vmlinux: struct task_struct {\n") && text.contains("\tstruct task_struct *real_parent;\n"), "{text}");
        assert!(text.contains("\tchar comm[16];\n"), "{text}");
        assert_eq!(run("struct task_strct", false).unwrap_err().help.as_deref(), Some("did you mean `struct task_struct`?"));
    }
}
