//! Resolves an attach point to a binary and places in it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::{Env, MID_FUNCTION_DANGER, missing, well_placed, whole_number};
use super::Uprobe;
use crate::diag::Diagnostic;
use crate::probes::matches;
use crate::syntax::ast::AttachPoint;
use crate::system::binary::elf::Segment;
use crate::system::{Abi, Binary, Function, Inlined, Line, binary::demangle, binary::instructions};

/// The parts of an attach point.
pub(super) struct UprobeTarget {
    /// As written; empty for the program of `-p`'s process.
    pub(super) binary: String,
    pub(super) target: Target,
}

/// The target within the binary.
pub(super) enum Target {
    /// A symbol with an optional offset; a pattern of symbols; an address. Anything else may be a name of C++ or Rust.
    Symbol(String),
    /// A name, or a pattern of names, as in the source of a program in this language.
    Plain(&'static str, String),
    /// A source line: the end of a file's path, the line, and perhaps the column.
    Line(String, u32, Option<u32>),
}

/// A place in a binary.
pub(super) struct UprobeLocation {
    pub(super) function: Function,
    /// Bytes from the function's start.
    pub(super) function_offset: u64,
    /// The part of the probe's name after the binary.
    pub(super) display: String,
}

impl UprobeLocation {
    fn at(function: &Function, function_offset: u64) -> Self {
        let plus = if function_offset == 0 { String::new() } else { format!("+{function_offset}") };
        Self { function: function.clone(), function_offset, display: format!(":{}{plus}", function.name) }
    }

    fn plain(function: &Function, name: &demangle::Name, function_offset: u64) -> Self {
        let plus = if function_offset == 0 { String::new() } else { format!("+{function_offset}") };
        Self { function: function.clone(), function_offset, display: format!(":{name}{plus}") }
    }

    /// As `-l` lists it.
    fn listed(function: &Function, env: &Env) -> Self {
        match demangle::name(&function.name).filter(|_| env.settings.cpp_demangle) {
            Some(name) => Self::plain(function, &name, 0),
            None => Self::at(function, 0),
        }
    }
}

/// Makes the names of functions unique: instances of a generic function by the hash in their symbols, constructors and
/// others by their symbols.
fn unique_names(mut found: Vec<UprobeLocation>) -> Vec<UprobeLocation> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    found.iter().for_each(|f| *times.entry(f.display.clone()).or_default() += 1);
    for f in found.iter_mut().filter(|f| times.get(&f.display).is_some_and(|n| *n > 1)) {
        *f = match demangle::name(&f.function.name).and_then(|name| name.exact()) {
            Some(exact) => UprobeLocation::plain(&f.function, &exact, f.function_offset),
            None => UprobeLocation::at(&f.function, f.function_offset),
        };
    }
    found
}

impl UprobeTarget {
    /// The parts after the kind: `binary:function`, `binary:language:name`; with a process, the binary may be omitted.
    pub(super) fn new(parts: &[&str], of_process: bool) -> Option<UprobeTarget> {
        let symbol = |binary: &str, what: &str| UprobeTarget { binary: binary.into(), target: Target::Symbol(what.into()) };
        let plain =
            |binary: &str, language, what: &str| UprobeTarget { binary: binary.into(), target: Target::Plain(language, what.into()) };
        let wanted = match *parts {
            // a name such as `a::b`, without the quotes
            [binary, ref name @ ..] if name.iter().skip(1).any(|part| part.is_empty()) => match name.split_first() {
                Some((first, rest)) if !rest.starts_with(&[""]) => plain(binary, demangle::language(first)?, &rest.join(":")),
                _ => symbol(binary, &name.join(":")),
            },
            [binary, language, what] => plain(binary, demangle::language(language)?, what),
            [first, what] => match demangle::language(first).filter(|_| of_process) {
                Some(language) => plain("", language, what),
                None => symbol(first, what),
            },
            [what] if of_process => symbol("", what),
            _ => return None,
        };
        (of_process || !wanted.binary.is_empty()).then_some(wanted)
    }

    /// `binary@file:line`, `binary@file:line:column`, and with a process `@file:line`; none if it does not have this form.
    pub(super) fn line(parts: &[&str], of_process: bool) -> Option<UprobeTarget> {
        let (place, line, column) = match *parts {
            [place, line] => (place, line, None),
            [place, line, column] => (place, line, Some(column.parse().ok()?)),
            _ => return None,
        };
        let (binary, file) = place.rsplit_once('@').filter(|(binary, file)| (of_process || !binary.is_empty()) && !file.is_empty())?;
        Some(UprobeTarget { binary: binary.into(), target: Target::Line(file.into(), line.parse().ok()?, column) })
    }

    pub(super) fn is_empty(&self) -> bool {
        match &self.target {
            Target::Symbol(what) | Target::Plain(_, what) => what.is_empty(),
            Target::Line(..) => false,
        }
    }
}

impl Target {
    /// The matching functions of a binary, by their listed names: each once, even if it has several symbols, and
    /// instances of one name separately if they have names of their own.
    pub(super) fn list(&self, binary: &Binary, env: &Env) -> Vec<String> {
        let found: Vec<_> = binary.functions.iter().filter_map(|f| Some((f, self.listed(f, env)?))).collect();
        let mut places: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
        found.iter().for_each(|(f, name)| {
            places.entry(name).or_default().insert(f.offset);
        });
        let mut seen = BTreeSet::new();
        let exact = |f: &Function| demangle::name(&f.name)?.exact().map(|name| name.to_string());
        let several = |name: &str| places.get(name).is_some_and(|p| p.len() > 1);
        let names = found.iter().map(|(f, name)| if several(name) { exact(f).unwrap_or_else(|| name.clone()) } else { name.clone() });
        names.filter(|name| seen.insert(name.clone())).collect()
    }

    /// Does a pattern of `-l` match this function by one of its names? The result is the name to list.
    fn listed(&self, f: &Function, env: &Env) -> Option<String> {
        let plain = || demangle::name(&f.name);
        match self {
            Target::Line(..) => None,
            Target::Plain(_, pattern) if !demangle::may_match(&f.name, pattern) => None,
            Target::Plain(language, pattern) => plain().filter(|n| n.language == *language && n.is(pattern)).map(|n| n.to_string()),
            Target::Symbol(pattern) => {
                let by_symbol = matches(pattern, &f.name);
                let may_be = by_symbol || demangle::looks_plain(pattern) && demangle::may_match(&f.name, pattern);
                if !may_be {
                    return None;
                }
                match plain() {
                    Some(name) if by_symbol || name.is(pattern) => {
                        Some(if env.settings.cpp_demangle { name.to_string() } else { f.name.clone() })
                    }
                    _ => by_symbol.then(|| f.name.clone()),
                }
            }
        }
    }
}

impl Uprobe {
    pub(super) fn in_binary(
        &self,
        binary: &Binary,
        target: &Target,
        point: &AttachPoint,
        env: &Env,
    ) -> Result<Vec<UprobeLocation>, Diagnostic> {
        let what = match target {
            Target::Plain(language, pattern) => return self.plain(binary, Some(language), pattern, point, env),
            Target::Line(file, line, column) => return self.line(binary, (file, *line, *column), point, env),
            Target::Symbol(what) => what.as_str(),
        };
        // Go has functions with a star in their names
        if what.contains('*') && binary.functions_named(what).next().is_none() {
            let all: Vec<UprobeLocation> =
                binary.functions.iter().filter(|f| matches(what, &f.name)).map(|f| UprobeLocation::listed(f, env)).collect();
            let all = unique_names(all);
            return if all.is_empty() && demangle::looks_plain(what) { self.plain(binary, None, what, point, env) } else { Ok(all) };
        }
        if let Some(addr) = whole_number(what) {
            return Ok(vec![self.at_address(binary, addr, point, env)?]);
        }
        let (name, function_offset) = self.split(what, point)?;
        // aliases and local functions of one name: one location each
        let mut found: Vec<&Function> = binary.functions_named(name).collect();
        found.dedup_by_key(|f| f.offset);
        if found.is_empty() {
            return self.plain(binary, None, what, point, env);
        }
        self.checked(binary, found.into_iter().map(|f| UprobeLocation::at(f, function_offset)).collect(), point, env)
    }

    /// An address as given in the binary's sections.
    fn at_address(&self, binary: &Binary, addr: u64, point: &AttachPoint, env: &Env) -> Result<UprobeLocation, Diagnostic> {
        let shown = binary.path.display();
        if addr == 0 {
            return Err(Diagnostic::error("bad-probe", point.span, "nothing is at address 0").help(format!("write {}", self.info.usage)));
        }
        let Some(offset) = binary.offset_of_addr(addr) else {
            return Err(Diagnostic::error("unknown-address", point.span, format!("{shown} has nothing at address {addr:#x}")));
        };
        let around = binary.functions.iter().find(|f| addr >= f.addr && addr - f.addr < f.size.max(1));
        let function_offset = around.map_or(0, |f| addr - f.addr);
        let function = around.cloned().unwrap_or_else(|| Function { name: format!("{addr:#x}"), addr, size: 0, offset, abi: Abi::SystemV });
        let found = UprobeLocation { function, function_offset, display: format!(":{addr}") };
        if env.settings.allow_unsafe {
            return Ok(found);
        }
        let refused = |message: String, help: &str| Err(Diagnostic::error("bad-offset", point.span, message).help(help));
        match around {
            None => refused(format!("{shown} has no known function at address {addr:#x}"), MID_FUNCTION_DANGER),
            Some(f) if self.ret && function_offset != 0 => {
                let message = format!("address {addr:#x} is within `{}`, but a return probe needs a function", f.name);
                refused(message, "name the function, or use uprobe; --unsafe disables this check")
            }
            Some(_) => {
                check(binary, &found, point)?;
                Ok(found)
            }
        }
    }

    /// Functions by their names in the source, in one language or any: overloads and instances may share a name.
    fn plain(
        &self,
        binary: &Binary,
        language: Option<&str>,
        what: &str,
        point: &AttachPoint,
        env: &Env,
    ) -> Result<Vec<UprobeLocation>, Diagnostic> {
        let (name, function_offset) = if what.contains('*') { (what, 0) } else { self.split(what, point)? };
        let possible = binary.functions.iter().filter(|f| demangle::may_match(&f.name, name));
        let mut found: Vec<UprobeLocation> = possible
            .filter_map(|f| Some((f, demangle::name(&f.name)?)))
            .filter(|(_, n)| language.is_none_or(|l| l == n.language) && n.is(name))
            .map(|(f, n)| UprobeLocation::plain(f, &n, function_offset))
            .collect();
        // a constructor usually has two symbols at one address
        found.sort_by(|a, b| (a.function.offset, &a.function.name).cmp(&(b.function.offset, &b.function.name)));
        found.dedup_by_key(|f| f.function.offset);
        if !found.is_empty() {
            return self.checked(binary, unique_names(found), point, env);
        }
        if what.contains('*') {
            return Ok(Vec::new());
        }
        let shown = binary.path.display();
        if let Some(Inlined { copies: places, source }) = env.sys.inlined(&binary.path, name) {
            let places = if places == 1 { "the one place".into() } else { format!("all {places} places") };
            let message = format!("`{name}` has no code of its own in {shown}: the compiler inlined it in {places} that call it");
            let error = Diagnostic::error("inlined", point.span, message);
            return Err(match source {
                Some((file, line)) => error.help(format!("probe a source line instead: `uprobe:{shown}@{file}:{line}`")),
                None => error.help("trace the functions that call it"),
            });
        }
        let error = Diagnostic::error("unknown-symbol", point.span, format!("{shown} has no function `{name}`"));
        if let Some(variant) = binary.variants(name).next() {
            let (first, kind) = (&variant.name, self.info.name());
            return Err(error.help(format!("the compiler made variants of it, such as `{first}`: use `{kind}:{shown}:{name}.*`")));
        }
        let symbols = binary.functions.iter().map(|f| f.name.as_str()).filter(|_| language.is_none());
        let near = crate::diag::nearest(name, symbols).map(str::to_owned).or_else(|| {
            let all = binary.functions.iter().filter_map(|f| demangle::name(&f.name));
            let plain: Vec<demangle::Name> = all.filter(|n| language.is_none_or(|l| l == n.language)).collect();
            crate::diag::nearest(name, plain.iter().map(demangle::Name::short)).map(str::to_owned)
        });
        Err(match near {
            Some(near) => error.help(format!("did you mean `{near}`?")),
            None if binary.functions.is_empty() => {
                error.help("the file has no symbols: install its debug symbols, or probe an address with --unsafe")
            }
            None => error
                .help(format!("`rbt -l '{}:{shown}:*'` lists what is available; it does not include inlined functions", self.info.name())),
        })
    }

    /// The start of a source line, in each function that has code of the line.
    fn line(
        &self,
        binary: &Binary,
        (file, line, column): (&str, u32, Option<u32>),
        point: &AttachPoint,
        env: &Env,
    ) -> Result<Vec<UprobeLocation>, Diagnostic> {
        if self.ret {
            let error = Diagnostic::error("bad-probe", point.span, "a return probe needs a function, not a line");
            return Err(error.help("use uprobe, or name the function"));
        }
        let shown = binary.path.display();
        let addresses = match env.sys.source_line(&binary.path, file, line, column).map_err(|m| missing(point.span, m))? {
            Line::Code(addresses) => addresses,
            Line::Columns(columns) => {
                let message = format!("line {line} of {file} has no code that begins at column {} in {shown}", column.unwrap_or(0));
                let columns = columns.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
                let error = Diagnostic::error("unknown-line", point.span, message);
                return Err(error.help(format!("code of this line begins at column {columns}; you can omit the column")));
            }
            Line::Bare(near) => {
                let error = Diagnostic::error("unknown-line", point.span, format!("line {line} of {file} has no code in {shown}"));
                return Err(match near {
                    Some(near) => error.help(format!("the nearest line with code is {near}")),
                    None => error,
                });
            }
            Line::NoFile(files) => {
                let base = file.rsplit('/').next().unwrap_or(file);
                let error = Diagnostic::error("unknown-line", point.span, format!("{shown} has no source file {file}"));
                return Err(match crate::diag::nearest(base, files.iter().map(String::as_str)) {
                    Some(near) if near == base => {
                        error.help("a file with that name is in another directory: write the name without a directory")
                    }
                    Some(near) => error.help(format!("did you mean `{near}`?")),
                    None => error,
                });
            }
        };
        let column = column.map(|c| format!(":{c}")).unwrap_or_default();
        let places = addresses.iter().filter_map(|addr| {
            let offset = binary.offset_of_addr(*addr)?;
            let around = binary.functions.iter().find(|f| *addr >= f.addr && addr - f.addr < f.size);
            let function_offset = around.map_or(0, |f| addr - f.addr);
            let name = around.map_or_else(|| format!("{addr:#x}"), |f| f.name.clone());
            let function = Function {
                name,
                addr: addr - function_offset,
                size: 0,
                offset: offset - function_offset,
                abi: around.map_or(Abi::SystemV, |f| f.abi),
            };
            Some(UprobeLocation { function, function_offset, display: format!("@{file}:{line}{column}") })
        });
        Ok(places.collect())
    }

    /// A name, and the offset after `+`.
    fn split<'a>(&self, what: &'a str, point: &AttachPoint) -> Result<(&'a str, u64), Diagnostic> {
        let (name, function_offset) = match what.rsplit_once('+') {
            Some((name, function_offset)) if !name.ends_with("operator") && !name.ends_with("operator+") => {
                match whole_number(function_offset) {
                    Some(function_offset) => (name, function_offset),
                    None => {
                        let error = Diagnostic::error("bad-probe", point.span, format!("`{function_offset}` is not an offset"));
                        return Err(error.help(format!("write {}", self.info.usage)));
                    }
                }
            }
            _ => (what, 0),
        };
        if self.ret && function_offset != 0 {
            return Err(Diagnostic::error("bad-probe", point.span, "a return probe has no offset").help("remove the offset, or use uprobe"));
        }
        Ok((name, function_offset))
    }

    /// Checks that offsets are within their functions, at the start of an instruction.
    fn checked(
        &self,
        binary: &Binary,
        found: Vec<UprobeLocation>,
        point: &AttachPoint,
        env: &Env,
    ) -> Result<Vec<UprobeLocation>, Diagnostic> {
        if !env.settings.allow_unsafe {
            found.iter().try_for_each(|f| check(binary, f, point))?;
        }
        Ok(found)
    }
}

fn check(
    binary: &Binary,
    UprobeLocation { function: f, function_offset, .. }: &UprobeLocation,
    point: &AttachPoint,
) -> Result<(), Diagnostic> {
    well_placed(instructions::placed(&binary.path, f, *function_offset), &f.name, *function_offset, point.span)
}

/// The places where a function of Go returns. The kernel traces a return by replacing the return address, which crashes
/// the Go runtime: it reads return addresses when it moves a stack.
pub(super) fn returns(binary: &Binary, found: UprobeLocation, point: &AttachPoint) -> Result<Vec<UprobeLocation>, Diagnostic> {
    let f = &found.function;
    let places = instructions::returns(&binary.path, f.offset, f.size).unwrap_or_default();
    if places.is_empty() {
        let error = Diagnostic::error("unknown-symbol", point.span, format!("`{}` does not return", f.name));
        return Err(error.help("rbt traces returns of Go functions at their `ret` instructions, and this function has none: use uprobe"));
    }
    Ok(places
        .into_iter()
        .map(|function_offset| UprobeLocation { function: f.clone(), function_offset, display: found.display.clone() })
        .collect())
}

/// A file that need not be ELF: with --unsafe, for an address, which is then an offset. A program may have generated
/// and mapped such code.
pub(super) fn raw(wanted: &UprobeTarget, env: &Env) -> Option<PathBuf> {
    let by_address = matches!(&wanted.target, Target::Symbol(what) if whole_number(what).is_some());
    let is_raw = by_address && env.settings.allow_unsafe && env.settings.pid.is_none();
    is_raw.then(|| env.sys.regular_file(&wanted.binary)).flatten()
}

pub(super) fn open(env: &Env, path: &Path, wanted: &UprobeTarget, point: &AttachPoint) -> Result<Arc<Binary>, Diagnostic> {
    match (env.sys.binary(path), raw(wanted, env)) {
        (Err(_), Some(path)) => {
            let segments = vec![Segment { address: 0, offset: 0, size: u64::MAX, executable: true }];
            Ok(Arc::new(Binary { path, functions: Vec::new(), objects: Vec::new(), segments, pie: false, build_id: Vec::new() }))
        }
        (found, _) => found.map_err(|m| missing(point.span, m)),
    }
}
