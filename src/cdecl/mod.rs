//! The C part of a script: `struct`, `union`, `enum`, `typedef`, `#define`, `#if` and `#include`, without a C compiler.
//!
//! ```text
//! script's C part ─preprocess─▶ tokens ─parse─▶ Types (+ layout) ─overlay─▶ a TargetInfo that knows them
//!        headers ──┘ (search)      (lex)   (number: constant expressions)
//! ```
//!
//! [`Declarations`] is a [`TargetInfo`] in front of another one: declarations of the script and its headers take precedence,
//! and all other questions go to the target behind it. So the checker need not know where a type comes from.
//!
//! rbt does not read the kernel's headers for types that BTF describes, because BTF is what this kernel was built with. It
//! reads them, if they are installed, when the script uses a name that neither the script, other headers nor BTF define.
//!
//! Existing crates do not fit: those that parse C need preprocessed text, and stop at the first declaration that they do not
//! support, of which headers have many. This parser skips such a declaration. It is also fast enough: a hundred kilobytes take
//! about a millisecond, less than compiling the script.

mod builtin;
mod directive;
mod expand;
mod layout;
mod lex;
mod number;
mod overlay;
mod parse;
mod preprocess;
mod search;
mod tags;
#[cfg(test)]
mod tests;
mod types;

use std::cell::{OnceCell, RefCell};
use std::path::Path;

use crate::diag::{Diagnostic, Span};
use crate::probes::Env;
use crate::settings::Settings;
use crate::syntax::ast::Script;
use crate::system::{CMacro, HeaderFolder, TargetInfo};
use lex::{Kind, LexPosition, Token};
use parse::Parser;
use preprocess::Preprocessor;
use search::{Folder, Owner, Search};
use types::{FIRST_ID, MAX_IDS, Types, View};

/// The first ID of structs that kernel headers declare, which may be read later than all others.
const LATE_IDS: u32 = FIRST_ID + MAX_IDS;

/// Deliberate differences from bpftrace, for the manual.
pub const DIFFERENCES: &[(&str, &str)] = &[(
    "C: redefined kernel types",
    "A declaration in the script replaces only the kernel type of the same name. bpftrace then ignores all kernel types \
         (BTF) in the script.",
)];

/// An error at its place.
#[derive(Clone, Debug)]
pub struct CError {
    /// Its place.
    pub pos: LexPosition,
    /// The message.
    pub message: String,
    /// The remedy.
    pub help: Option<String>,
}

/// The parsed C part of a script, with its includes.
struct Unit<'a> {
    pre: Preprocessor<'a>,
    types: Types,
    /// Declarations that the parser did not understand.
    errors: Vec<CError>,
    /// The ID of its first struct.
    first: u32,
    /// The offsets of the script's items in the parsed text, and their places in the script.
    spans: Vec<(u32, Span)>,
}

/// A target that also has the declarations of a script.
pub struct Declarations<'a> {
    sys: &'a dyn TargetInfo,
    unit: RefCell<Unit<'a>>,
    /// The same with the kernel's headers.
    late: OnceCell<Option<RefCell<Unit<'a>>>>,
    text: String,
    folders: Vec<Folder>,
    includes: Vec<String>,
    directory: std::path::PathBuf,
}

/// Parses a script's C part, and the headers that it and the settings name. The diagnostics are errors and warnings;
/// codes: `c-declaration`, `c-include`, `c-preprocessor`.
pub fn read<'a>(script: &Script, env: &Env<'a>) -> (Declarations<'a>, Vec<Diagnostic>) {
    let Env { sys, settings, invocation } = *env;
    let (text, places) = script_text(script);
    let mut folders: Vec<Folder> = settings.include_dirs.iter().map(|path| Folder { path: path.clone(), owner: Owner::User }).collect();
    folders.extend(
        sys.header_folders()
            .into_iter()
            .map(|HeaderFolder { path, kernel }| Folder { path, owner: if kernel { Owner::Kernel } else { Owner::User } }),
    );
    let beside = invocation.script_dir.clone();
    let includes = settings.includes.clone();
    let defer = sys.types_missing().is_none();
    let mut unit = Unit::read(&text, &includes, &beside, &folders, sys, defer, FIRST_ID);
    if unit.pre.unknown && !unit.pre.deferred.is_empty() {
        // An `#if` may depend on them.
        unit = Unit::read(&text, &includes, &beside, &folders, sys, false, FIRST_ID);
    }
    unit.spans.clone_from(&places);
    let diagnostics = unit.diagnostics(defer);
    let declared = Declarations { sys, unit: RefCell::new(unit), late: OnceCell::new(), text, folders, includes, directory: beside };
    (declared, diagnostics)
}

/// Does the script have a C part, or the settings headers?
pub fn has_c_part(script: &Script, settings: &Settings) -> bool {
    !script.c_part.is_empty() || !settings.includes.is_empty()
}

/// The C part as one text, and the offset of each item in it.
fn script_text(script: &Script) -> (String, Vec<(u32, Span)>) {
    let (mut text, mut places) = (String::new(), Vec::new());
    for item in &script.c_part {
        places.push((text.len() as u32, item.span));
        text += &item.text;
        text.push('\n');
    }
    (text, places)
}

impl<'a> Unit<'a> {
    fn read(text: &str, includes: &[String], beside: &Path, folders: &[Folder], sys: &'a dyn TargetInfo, defer: bool, first: u32) -> Self {
        let mut macros = format!("{}{}", builtin::MACROS, sys.arch().macros);
        if sys.types_missing().is_none() {
            macros += "BPFTRACE_HAVE_BTF 1\n";
        }
        let kernel = !defer && folders.iter().any(|f| f.owner == Owner::Kernel);
        if kernel {
            macros += "__KERNEL__ 1\nKBUILD_MODNAME \"rbt\"\n";
        }
        let mut pre = Preprocessor::new(Search::new(sys, folders.to_vec(), defer), &macros);
        let mut before = if kernel { vec!["linux/kconfig.h".to_owned()] } else { Vec::new() };
        before.extend(includes.iter().cloned());
        let tokens = pre.run(&beside.join("script"), text, &before);
        let mut types = Types::default();
        let mut parser = Parser::new(&tokens, &pre.names, &mut types, Some(sys));
        parser.all();
        let errors = parser.errors;
        Unit { pre, types, errors, first, spans: Vec::new() }
    }

    /// The errors in the script itself, or those that prevent its headers from being read.
    fn diagnostics(&self, btf: bool) -> Vec<Diagnostic> {
        let mut all = Vec::new();
        for absent in self.pre.missing_headers.iter().filter(|a| a.pos.file == 0) {
            // BTF has the declarations of the kernel's own headers.
            if btf && absent.angled && is_kernels(&absent.name) {
                continue;
            }
            let error = |message: String| Diagnostic::error("c-include", self.span(absent.pos), message);
            let beside = self.pre.files.first().and_then(|script| script.path.parent()).filter(|_| !absent.angled);
            if let Some(why) = beside.and_then(|beside| self.pre.search.unread(&absent.name, beside)) {
                all.push(error(format!("cannot read the header `{}`: {why}", absent.name)).help("name a file of C declarations"));
                continue;
            }
            all.push(error(format!("there is no header `{}`", absent.name)).help(if absent.angled {
                "install the package that contains it, or name its directory with -I"
            } else {
                "name its directory with -I; a path is relative to the script's directory"
            }));
        }
        for error in &self.pre.errors {
            // Headers are written for every compiler, so an `#error` in one does not matter for this parser.
            if error.pos.file == 0 {
                all.push(self.diagnostic("c-preprocessor", error));
            }
        }
        for error in self.errors.iter().filter(|f| f.pos.file == 0) {
            all.push(self.diagnostic("c-declaration", error));
        }
        all
    }

    fn diagnostic(&self, code: &'static str, error: &CError) -> Diagnostic {
        let d = Diagnostic::error(code, self.span(error.pos), error.message.clone());
        match &error.help {
            Some(help) => d.help(help.clone()),
            None => d,
        }
    }

    /// The place in the script, or that of the `#include` that led to it.
    fn span(&self, mut place: LexPosition) -> Span {
        for _ in 0..1000 {
            if place.file == 0 {
                break;
            }
            place = self.pre.files.get(place.file as usize).and_then(|f| f.from).unwrap_or_default();
        }
        let text = self.pre.files.first().map_or("", |f| &f.text);
        let rest = text.get(place.at as usize..).unwrap_or_default();
        let word = match rest.strip_prefix('#') {
            Some(line) => line.lines().next().map_or(1, |l| l.trim_end().len() + 1),
            None => rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len()),
        };
        let item = self.spans.partition_point(|(at, _)| *at <= place.at).checked_sub(1).and_then(|i| self.spans.get(i));
        let Some((from, span)) = item else { return Span::default() };
        // An `import` is converted to the equivalent `#include`.
        let start = (span.start + (place.at - from)).min(span.end);
        let first_len = rest.chars().next().map_or(1, char::len_utf8);
        Span { start, end: (start + word.max(first_len) as u32).min(span.end), ..*span }
    }

    /// `net/sock.h:12` for a place in a header.
    fn shown(&self, place: LexPosition) -> String {
        let Some(file) = self.pre.files.get(place.file as usize) else { return String::new() };
        let line = file.text.get(..place.at as usize).unwrap_or_default().bytes().filter(|b| *b == b'\n').count() + 1;
        format!("{}:{line}", file.path.display())
    }

    fn view<'v>(&'v self, sys: &'v dyn TargetInfo) -> View<'v> {
        View { types: &self.types, names: &self.pre.names, sys, first: self.first }
    }

    /// The value of a macro.
    fn constant(&mut self, name: &str, sys: &dyn TargetInfo) -> Option<CMacro> {
        let define = self.pre.defined(name)?;
        if define.params.is_some() {
            return Some(CMacro::Function);
        }
        let tokens = self.pre.expand_name(name)?;
        let mut parser = Parser::new(&tokens, &self.pre.names, &mut self.types, Some(sys));
        if let Ok(n) = parser.constant()
            && parser.is_at_end()
        {
            return Some(CMacro::Int(n.bits(), n.int));
        }
        let names = &self.pre.names;
        if !tokens.is_empty() && tokens.iter().all(|t| t.kind == Kind::Text) {
            let parts: Option<Vec<Vec<u8>>> = tokens.iter().map(|t| number::unquote(names.text(t.sym))).collect();
            return parts.map(|p| CMacro::Text(p.concat()));
        }
        if let [Token { kind: Kind::Word, sym, .. }] = tokens.as_slice() {
            return Some(CMacro::Name(names.text(*sym).to_owned()));
        }
        let words: Vec<&str> = tokens.iter().map(|t| names.text(t.sym)).collect();
        Some(CMacro::Other(words.join(" ")))
    }
}

/// Directories below the kernel's `include` that user space lacks, or whose types are in BTF.
fn is_kernels(name: &str) -> bool {
    const FOLDERS: &[&str] = &[
        "linux",
        "net",
        "asm",
        "uapi",
        "asm-generic",
        "trace",
        "scsi",
        "crypto",
        "sound",
        "rdma",
        "video",
        "xen",
        "acpi",
        "kvm",
        "drm",
        "media",
        "pcmcia",
        "ras",
        "target",
        "vdso",
        "generated",
        "dt-bindings",
        "clocksource",
        "keys",
        "misc",
        "memory",
        "ufs",
        "cxl",
        "hyperv",
        "soc",
        "fs",
        "kernel",
        "mm",
        "block",
        "drivers",
        "io_uring",
        "security",
        "mtd",
        "bpf",
        "arch",
    ];
    name.split_once('/').is_some_and(|(folder, _)| FOLDERS.contains(&folder))
}

impl<'a> Declarations<'a> {
    /// Is this the active `#define` of `name` where the body begins? `at` is the item's span.
    pub fn is_active(&self, name: &str, at: Span) -> bool {
        let unit = self.unit.borrow();
        let place = unit.pre.defined(name).and_then(|d| d.pos).filter(|p| p.file == 0);
        place.map(|p| unit.span(p)).is_some_and(|s| s.source == at.source && (at.start..at.end).contains(&s.start))
    }

    /// Missing and deferred headers, and declarations that were not understood, for verbose output.
    pub fn notes(&self) -> Vec<(Span, String)> {
        let unit = self.unit.borrow();
        let absent = unit.pre.missing_headers.iter();
        let mut all: Vec<(Span, String)> =
            absent.map(|a| (unit.span(a.pos), format!("<{}> is missing: the kernel's BTF replaces it", a.name))).collect();
        let deferred = unit.pre.deferred.iter();
        all.extend(deferred.map(|(n, place)| (unit.span(*place), format!("<{n}> is read only if BTF lacks a name"))));
        let errors = unit.pre.errors.iter().chain(&unit.errors).filter(|f| f.pos.file != 0);
        all.extend(errors.map(|f| (unit.span(f.pos), format!("{}: {}", unit.shown(f.pos), f.message))));
        all
    }

    /// The unit with the kernel's headers, if there are any.
    fn late(&self) -> Option<&RefCell<Unit<'a>>> {
        let unit = self.late.get_or_init(|| {
            if self.unit.borrow().pre.deferred.is_empty() {
                return None;
            }
            Some(RefCell::new(Unit::read(&self.text, &self.includes, &self.directory, &self.folders, self.sys, false, LATE_IDS)))
        });
        unit.as_ref()
    }
}
