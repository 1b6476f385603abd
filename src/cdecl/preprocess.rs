//! The C preprocessor: files to tokens.
//!
//! A macro is not expanded within its own expansion (C's "blue paint"); a marker after the expansion enables it again. The work
//! is bounded: nested files, the number of tokens, nested arguments.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::CError;
use super::lex::{Interner, Kind, LexPosition, Lexer, Sym, Token};
use super::search::{HeaderLookup, Search};

/// Maximum depth of nested files.
const DEPTH: usize = 100;
/// Maximum number of included files, each counted as often as it is included.
const FILES: usize = 10_000;
/// Maximum total size of these files in bytes.
const BYTES: usize = 64 << 20;
/// Maximum number of reported errors.
const FAULTS: usize = 200;
/// Maximum number of tokens.
pub const TOKENS: usize = 3_000_000;
/// Maximum depth of nested macro arguments.
pub const NESTED: usize = 60;

/// A macro.
#[derive(Debug)]
pub struct Define {
    /// None: object-like.
    pub params: Option<Vec<Sym>>,
    /// The last parameter takes all remaining arguments.
    pub variadic: bool,
    /// Its replacement.
    pub body: Vec<Token>,
    /// The place of its name; none for a built-in macro.
    pub pos: Option<LexPosition>,
}

/// A file that has been read.
pub struct File {
    /// Its path; none for the script.
    pub path: PathBuf,
    /// Its text.
    pub text: Rc<str>,
    /// The `#include` that read it first.
    pub from: Option<LexPosition>,
    /// The number of the directory in which it was found, for `#include_next`.
    folder: usize,
}

/// A file that is being read, and the `#if`s that are open in it.
pub struct Open {
    pub lexer: Lexer,
    pub file: u16,
    pub ifs: Vec<If>,
    pub guard: Guard,
}

/// An unfinished `#if`.
pub struct If {
    /// A branch was taken.
    pub taken: bool,
    /// `#else` was seen.
    pub has_else: bool,
    /// The place of the `#if`.
    pub pos: LexPosition,
}

/// Is the entire file within `#ifndef NAME`?
#[derive(Clone, Copy, PartialEq)]
pub enum Guard {
    Unknown,
    Within(Sym),
    Closed(Sym),
    No,
}

/// An included header that does not exist.
#[derive(Clone, Debug, PartialEq)]
pub struct MissingHeader {
    /// As written.
    pub name: String,
    /// In `<…>` rather than quotes.
    pub angled: bool,
    /// The place of the `#include`.
    pub pos: LexPosition,
}

/// The preprocessor's state.
pub struct Preprocessor<'a> {
    /// All texts.
    pub names: Interner,
    /// All files, the script first.
    pub files: Vec<File>,
    /// Errors so far.
    pub errors: Vec<CError>,
    /// Headers that do not exist.
    pub missing_headers: Vec<MissingHeader>,
    /// Kernel headers that were skipped.
    pub deferred: Vec<(String, LexPosition)>,
    pub(super) search: Search<'a>,
    macros: Vec<Option<Rc<Define>>>,
    busy: Vec<bool>,
    pub(super) open: Vec<Open>,
    pub(super) files_by_path: BTreeMap<PathBuf, (u16, Option<Sym>)>,
    pub(super) out: Vec<Token>,
    pub(super) budget: usize,
    opened: usize,
    /// Total size of the files.
    bytes: usize,
    /// Undefined names in `#if`s of the script.
    pub unknown: bool,
}

/// The source of tokens: the results of macros, then the open file.
pub struct Flow {
    /// In reverse order.
    pub pending: Vec<Token>,
    /// Does the open file follow them?
    pub file: bool,
}

impl<'a> Preprocessor<'a> {
    /// A preprocessor with the built-in macros, before it reads anything.
    pub fn new(search: Search<'a>, built_in: &str) -> Self {
        let mut new = Self {
            names: Interner::default(),
            files: Vec::new(),
            errors: Vec::new(),
            missing_headers: Vec::new(),
            deferred: Vec::new(),
            search,
            macros: Vec::new(),
            busy: Vec::new(),
            open: Vec::new(),
            files_by_path: BTreeMap::new(),
            out: Vec::new(),
            budget: TOKENS,
            opened: 0,
            bytes: 0,
            unknown: false,
        };
        for line in built_in.lines() {
            let mut lexer = Lexer::new(line.into(), 0);
            new.define(&mut lexer, false);
        }
        new
    }

    /// Reads a text as a file, after the headers in `before`, with all includes. Returns tokens without macros.
    pub fn run(&mut self, path: &Path, text: &str, before: &[String]) -> Vec<Token> {
        self.enter(path.to_owned(), text.into(), None, 0);
        for name in before.iter().rev() {
            let beside = path.parent().unwrap_or(Path::new(""));
            match self.search.find(name, Some(beside), 0) {
                HeaderLookup::File { path, folder } => {
                    let text = self.search.read(&path).unwrap_or_else(|| "".into());
                    self.enter(path, text, Some(LexPosition::default()), folder);
                }
                HeaderLookup::Deferred => self.deferred.push((name.clone(), LexPosition::default())),
                HeaderLookup::NotFound => {
                    self.missing_headers.push(MissingHeader { name: name.clone(), angled: false, pos: LexPosition::default() })
                }
            }
        }
        let mut flow = Flow { pending: Vec::new(), file: true };
        while let Some(token) = self.expanded(&mut flow, 0) {
            self.out.push(token);
            if self.out.len() > TOKENS {
                break;
            }
        }
        std::mem::take(&mut self.out)
    }

    /// A macro by name.
    pub fn defined(&self, name: &str) -> Option<&Rc<Define>> {
        self.macro_of(self.names.known(name)?)
    }

    /// Is this place in a header of the kernel?
    pub fn is_kernels(&self, place: LexPosition) -> bool {
        self.files.get(place.file as usize).is_some_and(|f| f.folder > 0 && self.search.is_kernels(&f.path, f.folder - 1))
    }

    /// The full expansion of a macro's name.
    pub fn expand_name(&mut self, name: &str) -> Option<Vec<Token>> {
        let sym = self.names.known(name)?;
        let define = self.macro_of(sym).filter(|d| d.params.is_none())?.clone();
        let mut body = define.body.clone();
        self.set_busy(sym, true);
        body = self.expand_all(body, 0);
        self.set_busy(sym, false);
        Some(body)
    }

    pub(super) fn macro_of(&self, sym: Sym) -> Option<&Rc<Define>> {
        self.macros.get(sym as usize)?.as_ref()
    }

    pub(super) fn is_busy(&self, sym: Sym) -> bool {
        self.busy.get(sym as usize).copied().unwrap_or(false)
    }

    pub(super) fn set_busy(&mut self, sym: Sym, busy: bool) {
        let at = sym as usize;
        if self.busy.len() <= at {
            self.busy.resize(at + 1, false);
        }
        if let Some(slot) = self.busy.get_mut(at) {
            *slot = busy;
        }
    }

    pub(super) fn set_macro(&mut self, sym: Sym, define: Option<Rc<Define>>) {
        let at = sym as usize;
        if self.macros.len() <= at {
            self.macros.resize(at + 1, None);
        }
        if let Some(slot) = self.macros.get_mut(at) {
            *slot = define;
        }
    }

    pub(super) fn fault(&mut self, place: LexPosition, message: impl Into<String>) {
        if self.errors.len() < FAULTS {
            self.errors.push(CError { pos: place, message: message.into(), help: None });
        }
    }

    // ── files

    fn enter(&mut self, path: PathBuf, text: Rc<str>, from: Option<LexPosition>, folder: usize) {
        self.opened += 1;
        self.bytes = self.bytes.saturating_add(text.len());
        let known = self.files_by_path.get(&path).map(|(file, _)| *file);
        let file = known.unwrap_or_else(|| {
            let file = self.files.len() as u16;
            self.files.push(File { path: path.clone(), text: text.clone(), from, folder });
            self.files_by_path.insert(path, (file, None));
            file
        });
        self.open.push(Open { lexer: Lexer::new(text, file), file, ifs: Vec::new(), guard: Guard::Unknown });
    }

    pub(super) fn include(&mut self, name: &str, angled: bool, next: bool, place: LexPosition) {
        if self.open.len() >= DEPTH {
            return self.fault(place, format!("cannot read `{name}`: more than {DEPTH} nested files"));
        }
        if self.opened >= FILES {
            return self.fault(place, format!("cannot read `{name}`: more than {FILES} files"));
        }
        let here = self.files.get(place.file as usize);
        let (folder, beside) = here.map_or((0, None), |f| (f.folder, f.path.parent().map(Path::to_owned)));
        let from = if next { folder + 1 } else { 0 };
        let beside = if angled || next { None } else { beside };
        match self.search.find(name, beside.as_deref(), from) {
            HeaderLookup::File { path, folder } => {
                if let Some((_, Some(guard))) = self.files_by_path.get(&path)
                    && self.macro_of(*guard).is_some()
                {
                    return;
                }
                match self.search.read(&path) {
                    Some(text) if self.bytes.saturating_add(text.len()) > BYTES => {
                        self.fault(place, format!("cannot read `{name}`: more than {} megabytes of headers", BYTES >> 20));
                    }
                    Some(text) => self.enter(path, text, Some(place), folder),
                    None => self.fault(place, format!("`{}` cannot be read", path.display())),
                }
            }
            HeaderLookup::Deferred => self.deferred.push((name.to_owned(), place)),
            HeaderLookup::NotFound => self.missing_headers.push(MissingHeader { name: name.to_owned(), angled, pos: place }),
        }
    }

    /// Ends the open file.
    fn leave(&mut self) -> bool {
        let Some(open) = self.open.pop() else { return false };
        if let Some(last) = open.ifs.last() {
            self.fault(last.pos, "this `#if` has no `#endif`");
        }
        if let Guard::Closed(name) = open.guard
            && let Some(known) = self.files.get(open.file as usize).and_then(|f| self.files_by_path.get_mut(&f.path))
        {
            known.1 = Some(name);
        }
        !self.open.is_empty()
    }

    // ── tokens

    /// The next token after directives, without macro expansion.
    pub(super) fn raw(&mut self, flow: &mut Flow) -> Option<Token> {
        loop {
            if let Some(token) = flow.pending.pop() {
                if token.kind == Kind::End {
                    self.set_busy(token.sym, false);
                    continue;
                }
                return Some(token);
            }
            if !flow.file {
                return None;
            }
            let open = self.open.last_mut()?;
            if open.lexer.at_directive() {
                self.directive();
                continue;
            }
            match open.lexer.next(&mut self.names) {
                Some(token) => {
                    match open.guard {
                        // there is text outside the guard
                        Guard::Unknown | Guard::Closed(_) => open.guard = Guard::No,
                        Guard::Within(_) | Guard::No => {}
                    }
                    return Some(token);
                }
                None => {
                    if !self.leave() {
                        return None;
                    }
                }
            }
        }
    }
}
