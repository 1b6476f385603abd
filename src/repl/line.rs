//! The edited line: completion, hints, colors, and whether the entry is complete.
//!
//! Names come from the tables, the machine and the checker: candidates for a member are those of the type that the checker
//! gives the expression before it.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use rustyline::completion::{Completer, Pair};
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Context, Helper};

use super::Workspace;
use super::commands::{self, CommandArg};
use super::scan::{self, CompletionContext, Token};
use super::shapes::{printed_type, shape};
use crate::builtins;
use crate::diag::plain;
use crate::frontend::entry::Text;
use crate::list;
use crate::probes::{self, ContextFeatures, Env, KINDS, ProbeKind};
use crate::settings::Settings;
use crate::syntax::{self, Keyword};
use crate::system::{TargetInfo, TypeName, machine::constants};
use crate::terminal::{self, paint};
use crate::types::Type;
use anstyle::{AnsiColor, Style};

/// Maximum number of candidates.
const MAX_CANDIDATES: usize = 20_000;

/// The helper of the line editor.
pub struct Line {
    workspace: Rc<Workspace>,
    /// The last drawn line was not empty.
    has_text: Cell<bool>,
    /// The members looked up last, and the text up to their dot. They stay the same while a name is typed.
    members: RefCell<(String, Vec<(String, Type)>)>,
    /// Candidates were listed below the line since it was last drawn.
    candidates_shown: Cell<bool>,
}

impl Line {
    /// Creates the helper for an empty line.
    pub fn new(workspace: Rc<Workspace>) -> Self {
        Self { workspace, has_text: Cell::new(false), members: RefCell::default(), candidates_shown: Cell::new(false) }
    }

    /// Was the line nonempty when it ended?
    pub fn was_typing(&self) -> bool {
        self.members.take();
        self.has_text.replace(false)
    }

    /// Candidates for the text before the cursor: the position where they begin, and the names.
    fn candidates(&self, text: &str) -> (usize, Vec<String>) {
        let place = scan::completion_context(text);
        let starts = |from: usize| text.get(from..).unwrap_or_default().to_owned();
        let (from, names) = match place {
            CompletionContext::Nothing => return (text.len(), Vec::new()),
            CompletionContext::Command(from) => (from, commands::TABLE.iter().map(|c| c.name.to_owned()).collect()),
            CompletionContext::Argument(name, from) => return self.argument(&name, text, from),
            CompletionContext::Probe(from) => return self.probes(&starts(from), from),
            CompletionContext::Map(from) => (from, self.maps(text)),
            CompletionContext::Variable(from) => {
                let all = scan::tokens(text.get(..from).unwrap_or_default());
                let found = all.iter().filter(|(kind, _)| *kind == Token::Variable).filter_map(|(_, r)| text.get(r.clone()));
                (from, found.map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect())
            }
            CompletionContext::Type(kind, from) => (from, self.types(kind)),
            CompletionContext::Word(from) => (from, words(&starts(from))),
            CompletionContext::Member { expr, name } => (name, self.members(text, expr).into_iter().map(|(member, _)| member).collect()),
        };
        let typed = starts(from);
        let mut names: Vec<String> = names.into_iter().filter(|n| n.starts_with(&typed)).collect();
        names.sort();
        names.dedup();
        (from, names)
    }

    fn argument(&self, command: &str, text: &str, from: usize) -> (usize, Vec<String>) {
        let typed = text.get(from..).unwrap_or_default();
        let Some(command) = commands::find(command) else { return (from, Vec::new()) };
        let names = match command.arg {
            CommandArg::Nothing | CommandArg::Number => Vec::new(),
            CommandArg::File => return (from, files(typed, "")),
            CommandArg::Map => self.maps(""),
            CommandArg::Probe => return self.probes(typed, from),
            CommandArg::Word => words(typed).into_iter().chain(KINDS.iter().map(|k| k.name().to_owned())).collect(),
            CommandArg::Stage => commands::STAGES.iter().map(|(name, _)| (*name).to_owned()).collect(),
            CommandArg::Expression => {
                let (at, names) = self.candidates(typed);
                return (from + at, names);
            }
        };
        (from, names.into_iter().filter(|n| n.starts_with(typed)).collect())
    }

    /// Maps of earlier entries, and of this line.
    fn maps(&self, text: &str) -> Vec<String> {
        let all = scan::tokens(text);
        let here = all.iter().filter(|(k, r)| *k == Token::Map && r.end < text.len()).filter_map(|(_, r)| text.get(r.clone()));
        let mut names: Vec<String> = here.map(str::to_owned).collect();
        names.extend(self.workspace.maps().into_iter().map(|m| m.name));
        names
    }

    /// Names of probes up to the next colon.
    fn probes(&self, typed: &str, from: usize) -> (usize, Vec<String>) {
        let Some((first, rest)) = typed.split_once(':') else {
            let mut names: Vec<String> = Vec::new();
            for kind in KINDS.iter().filter(|k| k.name().starts_with(typed)) {
                names.push(if kind.by_name_only() { kind.name().into() } else { format!("{}:", kind.name()) });
            }
            // other words that a line may begin with
            if from == 0 && !typed.is_empty() {
                names.extend(words(typed).into_iter().filter(|n| n.starts_with(typed)));
            }
            return (from, names);
        };
        let Some(kind) = probes::find(first) else { return (from, Vec::new()) };
        if kind.offers().contains(ContextFeatures::BINARY) && rest.starts_with('/') && !rest.contains(':') {
            return (from, files(rest, ":").into_iter().map(|path| format!("{first}:{path}")).collect());
        }
        let settings = Settings { pid: self.workspace.run.settings.pid, ..Settings::default() };
        let env = Env { sys: &self.workspace.sys, settings: &settings, invocation: &self.workspace.run.invocation };
        let mut pattern: Vec<String> = rest.split(':').map(str::to_owned).collect();
        if let Some(last) = pattern.last_mut() {
            last.push('*');
        }
        let canonical = kind.name();
        // a binary is listed by the path to which its name resolves
        let (binary, within) = match rest.split_once(':').filter(|_| kind.offers().contains(ContextFeatures::BINARY)) {
            Some((binary, within)) => (Some(binary), within),
            None => (None, rest),
        };
        let head = binary.map(|b| format!("{b}:")).unwrap_or_default();
        let mut found: BTreeSet<String> = BTreeSet::new();
        let _ = kind.list(&pattern, &env, &mut |name| {
            let name = list::full_name(canonical, name);
            if found.len() >= MAX_CANDIDATES {
                return;
            }
            let after = name.get(canonical.len() + 1..).unwrap_or_default();
            let after = if binary.is_some() { after.split_once(':').map_or("", |(_, within)| within) } else { after };
            if let Some(more) = after.strip_prefix(within) {
                let end = more.find(':').map_or(more.len(), |at| at + 1);
                found.insert(format!("{first}:{head}{within}{}", more.get(..end).unwrap_or(more)));
            }
        });
        (from, found.into_iter().collect())
    }

    /// Names of types of the kernel and of this prompt.
    fn types(&self, kind: TypeName) -> Vec<String> {
        let mut names = Vec::new();
        self.workspace.with_entry_context(|cx| cx.with_types(|sys| sys.type_names(kind, &mut |name| names.push(name.to_owned()))));
        names
    }

    /// Members of an expression's value, with their types; the fields for `args`.
    fn members(&self, text: &str, expr: std::ops::Range<usize>) -> Vec<(String, Type)> {
        let base = text.get(..expr.end).unwrap_or_default();
        if self.members.borrow().0 != base {
            *self.members.borrow_mut() = (base.to_owned(), self.members_in(text, expr));
        }
        self.members.borrow().1.clone()
    }

    fn members_in(&self, text: &str, expr: std::ops::Range<usize>) -> Vec<(String, Type)> {
        let (before, member) = (text.get(..expr.start).unwrap_or_default(), text.get(expr).unwrap_or_default());
        let (head, open) = statement_start(before);
        // `args` is described rather than printed: all of it may be more than a program can hold
        let args = member == "args";
        let asks = if args { String::new() } else { format!("print(({member}));") };
        let typed = format!("{head}{asks}{}", " }".repeat(open));
        let text = Text { before: "", typed, after: "", name: String::new() };
        let checked = self.workspace.with_entry_context(|cx| cx.parse(&text).and_then(|tree| cx.check(&text, tree)));
        let Ok(entry) = checked else { return Vec::new() };
        let script = &entry.checked.script;
        let sys: &dyn TargetInfo = &self.workspace.sys;
        if args {
            let env = entry.checked.env(sys);
            let Some(site) = script.probes.last().and_then(|p| p.sites.first()) else { return Vec::new() };
            let context = site.kind.context(site, &env).map(|c| c.fields).unwrap_or_default();
            let more = site.kind.fields(site, &env).unwrap_or_default();
            let readable = context.iter().chain(&more).filter(|f| f.is_readable());
            return readable.map(|f| (f.field.name.clone(), f.field.ty.clone())).collect();
        }
        printed_type(script).map(|ty| members_of(&ty, sys)).unwrap_or_default()
    }

    /// The hint for the word at the cursor.
    fn hint_of(&self, text: &str) -> Option<String> {
        if let Some(name) = text.trim_start().strip_prefix(':') {
            let command = commands::find(name.trim_end())?;
            return Some(format!("{}  {}", command.usage, command.doc));
        }
        if text.ends_with('\n') && super::headless(text.trim_end()) {
            return Some("{ … }, or nothing: no block comes".to_owned());
        }
        let from = |offset: usize| text.get(offset..).filter(|word| !word.is_empty());
        match scan::completion_context(text) {
            CompletionContext::Nothing
            | CompletionContext::Command(_)
            | CompletionContext::Argument(..)
            | CompletionContext::Variable(_)
            | CompletionContext::Type(..) => None,
            CompletionContext::Map(offset) => {
                let held = self.workspace.maps().into_iter().find(|m| from(offset) == Some(m.name.as_str()))?;
                Some(shape(&held))
            }
            CompletionContext::Word(offset) => builtins::find(from(offset)?).map(|row| row.doc.to_owned()),
            CompletionContext::Probe(offset) => {
                let word = from(offset)?;
                let row = builtins::find(word).map(|row| row.doc);
                row.or_else(|| Some(kind_named(word)?.info().usage)).map(str::to_owned)
            }
            // with a pattern, the checker would check all matches
            CompletionContext::Member { .. } if text.split('{').next().is_some_and(|head| head.contains(['*', '?'])) => None,
            CompletionContext::Member { expr, name } => {
                let whole = from(name)?;
                self.members(text, expr).into_iter().find(|(member, _)| member == whole).map(|(_, ty)| ty.to_string())
            }
        }
    }
}

/// The hint after the line, which is not part of the text.
pub struct Hint(String);

impl rustyline::hint::Hint for Hint {
    fn display(&self) -> &str {
        &self.0
    }

    fn completion(&self) -> Option<&str> {
        None
    }
}

/// Rows of the terminal above the last row of a text after the prompt.
fn rows_above(text: &str, columns: usize) -> usize {
    let lines = text.split('\n').enumerate();
    let rows = lines.map(|(n, line)| 1 + (width(line) + if n == 0 { super::PROMPT.len() } else { 0 }) / columns.max(1));
    rows.sum::<usize>() - 1
}

/// Upper bound of the width of a text in columns.
fn width(text: &str) -> usize {
    text.chars().map(|c| if u32::from(c) < 0x1100 { 1 } else { 2 }).sum()
}

/// A kind by its full name: a single letter rarely means one.
fn kind_named(word: &str) -> Option<&'static dyn ProbeKind> {
    probes::find(word).filter(|kind| kind.name() == word)
}

/// Files, with the text after their names, and directories whose paths begin with this.
fn files(path: &str, after: &str) -> Vec<String> {
    let (folder, start) = path.rfind('/').map_or(("", path), |at| path.split_at(at + 1));
    let entries = std::fs::read_dir(if folder.is_empty() { "." } else { folder });
    let named = entries.into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok().filter(|name| name.starts_with(start))?;
        let end = if entry.path().is_dir() { "/" } else { after };
        Some(format!("{folder}{name}{end}"))
    });
    let mut all: Vec<String> = named.collect();
    all.sort();
    all
}

/// Names that a program may use: builtins and keywords; constants after a capital letter.
fn words(typed: &str) -> Vec<String> {
    let capital = typed.starts_with(|c: char| c.is_ascii_uppercase());
    let constants = constants::all().map(|c| c.name).filter(|_| capital);
    let keywords = syntax::KEYWORDS.iter().flat_map(Keyword::names).filter(|name| name.starts_with(|c: char| c.is_alphabetic()));
    builtins::all().map(|b| b.name).chain(keywords).chain(constants).map(str::to_owned).collect()
}

/// The text up to the start of the current statement, turned into the start of a block, and the number of open blocks.
fn statement_start(before: &str) -> (String, usize) {
    let all = scan::tokens(before);
    let sign = |(kind, range): &(Token, std::ops::Range<usize>)| match kind {
        Token::Sign => before.get(range.clone()).unwrap_or_default(),
        Token::Word | Token::Number | Token::Text | Token::Variable | Token::Map | Token::Comment => "",
    };
    let depth = |upto: usize| all.iter().take(upto).map(|t| i32::from(sign(t) == "{") - i32::from(sign(t) == "}")).sum::<i32>();
    let cut = all.iter().rposition(|t| [";", "{", "}"].contains(&sign(t)));
    if depth(all.len()) <= 0 {
        // a predicate belongs to the probe before its slash; otherwise there is none
        let probe = before.rfind(" /").and_then(|at| before.get(..at));
        return match probe {
            Some(probe) => (format!("{probe} {{ "), 1),
            None => ("begin { ".into(), 1),
        };
    }
    let end = cut.and_then(|at| all.get(at)).map_or(0, |(_, r)| r.end);
    let open = depth(cut.map_or(0, |at| at + 1)).max(0) as usize;
    (format!("{} ", before.get(..end).unwrap_or_default()), open)
}

fn members_of(ty: &Type, sys: &dyn TargetInfo) -> Vec<(String, Type)> {
    match ty {
        Type::Ptr(to, _) => members_of(to, sys),
        Type::Struct(s) => sys.expand(s).map(|r| r.fields.into_iter().map(|f| (f.name, f.ty)).collect()).unwrap_or_default(),
        Type::Record(r) => r.fields.iter().map(|f| (f.name.clone(), f.ty.clone())).collect(),
        Type::Tuple(parts) => parts.iter().enumerate().map(|(n, part)| (n.to_string(), part.clone())).collect(),
        Type::Void
        | Type::Bool
        | Type::Int(_)
        | Type::Enum(_)
        | Type::Str(_)
        | Type::Buf(_)
        | Type::Array(..)
        | Type::Deferred(_)
        | Type::Agg(_)
        | Type::Args => Vec::new(),
    }
}

impl Helper for Line {}

impl Completer for Line {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (from, names) = self.candidates(line.get(..pos).unwrap_or(line));
        // in a list, the parts that all names share only take space
        let typed = line.get(from..pos).unwrap_or_default();
        let shown_from = typed.rfind([':', '/']).map_or(0, |at| at + 1);
        let pairs = names.into_iter().map(|name| {
            // names come from untrusted files
            let name = plain(&name);
            Pair { display: name.get(shown_from..).unwrap_or(&name).to_owned(), replacement: name }
        });
        Ok((from, pairs.collect()))
    }
}

impl Hinter for Line {
    type Hint = Hint;

    fn hint(&self, line: &str, pos: usize, _: &Context<'_>) -> Option<Hint> {
        self.has_text.set(!line.is_empty());
        if pos < line.len() {
            return None;
        }
        let hint = self.hint_of(line)?;
        // omit a hint that would wrap the line
        let (_, columns) = terminal::size(std::io::stdout());
        let used = width(line.rsplit('\n').next().unwrap_or(line)) + 5;
        let width = columns.saturating_sub(used + 4);
        if width < 12 {
            return None;
        }
        let first = hint.lines().next().unwrap_or_default();
        let cut: String = first.chars().take(width).collect();
        let more = if cut.len() < first.len() { "…" } else { "" };
        Some(Hint(format!("   {cut}{more}")))
    }
}

impl Highlighter for Line {
    fn highlight<'l>(&self, line: &'l str, offset: usize) -> Cow<'l, str> {
        // the editor moves up as many rows as before the list was shown, so these rows may be overwritten
        if self.candidates_shown.take() {
            let rows = rows_above(line.get(..offset).unwrap_or(line), terminal::size(std::io::stdout()).1);
            super::printer::write_stdout("\n".repeat(rows).as_bytes());
        }
        if !self.workspace.run.color {
            return Cow::Borrowed(line);
        }
        let mut out = String::new();
        for (kind, range) in scan::tokens(line) {
            let text = line.get(range).unwrap_or_default();
            let style = match kind {
                Token::Text => AnsiColor::Green.on_default(),
                Token::Number => AnsiColor::Cyan.on_default(),
                Token::Variable | Token::Map => AnsiColor::Yellow.on_default(),
                Token::Comment => terminal::DIM,
                Token::Word if syntax::KEYWORDS.iter().flat_map(Keyword::names).any(|name| name == text) => AnsiColor::Magenta.on_default(),
                Token::Word if builtins::find(text).is_some() || kind_named(text).is_some() => AnsiColor::Blue.on_default(),
                Token::Word | Token::Sign => Style::new(),
            };
            out.push_str(&paint(text, style, true));
        }
        Cow::Owned(out)
    }

    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        if self.workspace.run.color { Cow::Owned(paint(prompt, terminal::BOLD, true)) } else { Cow::Borrowed(prompt) }
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        if self.workspace.run.color { Cow::Owned(paint(hint, terminal::DIM, true)) } else { Cow::Borrowed(hint) }
    }

    fn highlight_candidate<'c>(&self, candidate: &'c str, _: CompletionType) -> Cow<'c, str> {
        self.candidates_shown.set(true);
        Cow::Borrowed(candidate)
    }

    fn highlight_char(&self, _: &str, _: usize, kind: CmdKind) -> bool {
        !matches!(kind, CmdKind::MoveCursor)
    }
}

impl Validator for Line {
    fn validate(&self, ctx: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        let text = ctx.input();
        Ok(if super::unfinished(text) { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}
