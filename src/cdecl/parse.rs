//! The parser: tokens after macro expansion to [`Types`].
//!
//! It keeps types and the constants of enums, and skips functions and variables. If it does not understand a declaration, it
//! notes that and continues after it.

use super::CError;
use super::layout::Attrs;
use super::lex::{Interner, Kind, LexPosition, Sym, Token};
use super::types::{TagKind, Ty, Types, kernel_align};
use crate::system::kernel_types::c_int;
use crate::system::{TargetInfo, TypeName};
use crate::types::{Int, Type};

/// Maximum depth of nested brackets, structs and operators.
const DEPTH: u32 = 60;
/// Maximum number of reported declarations that the parser does not understand.
const FAULTS: usize = 200;

fn too_deep() -> String {
    format!("it is nested more than {DEPTH} deep")
}

/// The parser's state.
pub struct Parser<'a> {
    pub(super) tokens: &'a [Token],
    /// The next token.
    pub at: usize,
    pub(super) names: &'a Interner,
    /// The declarations so far.
    pub types: &'a mut Types,
    /// The source of undeclared types.
    pub sys: Option<&'a dyn TargetInfo>,
    /// This is an `#if`: names are zero, and there are no types.
    pub preprocessing: bool,
    /// Declarations that the parser did not understand.
    pub errors: Vec<CError>,
    /// The token at fault, unless it is the next one.
    error_token: Option<usize>,
    depth: u32,
    pub(super) pack: Vec<Option<u32>>,
}

/// The specifiers before a declarator.
pub struct Specifiers {
    /// The type.
    pub ty: Ty,
    typedef: bool,
    /// Its attributes.
    pub attrs: Attrs,
    /// The struct, union or enum that it names or declares.
    pub tag: Option<usize>,
}

/// Words that do not affect the layout of a type.
const IGNORED_SPECIFIERS: &[&str] = &[
    "const",
    "volatile",
    "restrict",
    "__const",
    "__const__",
    "__volatile__",
    "__volatile",
    "__restrict",
    "__restrict__",
    "extern",
    "static",
    "inline",
    "__inline",
    "__inline__",
    "register",
    "auto",
    "_Noreturn",
    "_Thread_local",
    "__thread",
    "__extension__",
    "_Atomic",
    "constexpr",
];
/// Words that begin a type.
const BASIC_TYPE_WORDS: &[&str] = &[
    "void",
    "char",
    "short",
    "int",
    "long",
    "float",
    "double",
    "signed",
    "unsigned",
    "_Bool",
    "__signed__",
    "__signed",
    "__int128",
    "__int128_t",
    "__uint128_t",
    "_Complex",
    "__complex__",
    "_Float128",
    "__float128",
    "_Float64",
    "_Float32",
    "_Float64x",
    "_Float32x",
    "_Float16",
    "__builtin_va_list",
    "bool",
];
const TAG_WORDS: &[(&str, TagKind)] = &[("struct", TagKind::Struct), ("union", TagKind::Union), ("enum", TagKind::Enum)];

impl<'a> Parser<'a> {
    /// Starts at the first token.
    pub fn new(tokens: &'a [Token], names: &'a Interner, types: &'a mut Types, sys: Option<&'a dyn TargetInfo>) -> Self {
        Self { tokens, at: 0, names, types, sys, preprocessing: false, errors: Vec::new(), error_token: None, depth: 0, pack: Vec::new() }
    }

    /// Parses all declarations.
    pub fn all(&mut self) {
        while !self.is_at_end() {
            let from = self.at;
            if let Err(why) = self.declaration() {
                let at = self.error_token.take().unwrap_or(self.at);
                let place = self.tokens.get(at).or(self.tokens.last()).map_or(LexPosition::default(), |t| t.pos);
                if self.errors.len() < FAULTS {
                    self.errors.push(CError { pos: place, message: why, help: None });
                }
                self.depth = 0;
                let stuck = self.at;
                self.at = from;
                self.skip_declaration();
                // Unbalanced brackets: continue after the fault at least.
                self.at = self.at.max(from + 1);
                if self.is_at_end() {
                    self.at = stuck.max(from + 1);
                    self.skip_declaration();
                }
            }
        }
    }

    // ── tokens

    /// Are there no tokens left?
    pub fn is_at_end(&self) -> bool {
        self.at >= self.tokens.len()
    }

    /// The next token.
    pub fn peek(&self) -> Option<Token> {
        self.tokens.get(self.at).copied()
    }

    /// Its text; empty at the end.
    pub fn text(&self) -> &'a str {
        self.text_at(0)
    }

    fn text_at(&self, ahead: usize) -> &'a str {
        let names: &'a Interner = self.names;
        self.tokens.get(self.at + ahead).map_or("", |t| names.text(t.sym))
    }

    /// Is this the next token?
    pub fn is(&self, text: &str) -> bool {
        self.text() == text
    }

    /// Is the next token an operator or a bracket?
    pub fn is_punct(&self) -> bool {
        self.peek().is_some_and(|t| t.kind == Kind::Punct)
    }

    /// Accepts the next token if it is this.
    pub fn accept(&mut self, text: &str) -> bool {
        let is = self.is(text);
        self.at += usize::from(is);
        is
    }

    /// Requires this token.
    pub fn require(&mut self, text: &str) -> Result<(), String> {
        if self.accept(text) {
            return Ok(());
        }
        Err(if self.is_at_end() {
            format!("`{text}` is missing at the end")
        } else {
            format!("`{text}` is expected before `{}`", self.text())
        })
    }

    /// Reports a fault at the token `back` before the next one.
    pub fn fail_at<T>(&mut self, back: usize, message: String) -> Result<T, String> {
        self.error_token = self.at.checked_sub(back);
        Err(message)
    }

    /// Enters another level of nesting.
    pub fn deeper<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        if self.depth >= DEPTH {
            return Err(too_deep());
        }
        self.depth += 1;
        let result = f(self);
        self.depth -= 1;
        result
    }

    /// Skips from an opening bracket past its closing bracket.
    pub(super) fn skip_brackets(&mut self) {
        let mut open = 0usize;
        while let Some(token) = self.peek() {
            self.at += 1;
            if token.kind != Kind::Punct {
                continue;
            }
            match self.names.text(token.sym) {
                "(" | "[" | "{" => open += 1,
                ")" | "]" | "}" => {
                    open = open.saturating_sub(1);
                    if open == 0 {
                        return;
                    }
                }
                _ => {}
            }
        }
    }

    /// Skips past the `;` or the block that ends a declaration.
    fn skip_declaration(&mut self) {
        while !self.is_at_end() {
            match self.text() {
                "{" => {
                    let function = self.at > 0 && self.tokens.get(self.at - 1).is_some_and(|t| self.names.text(t.sym) == ")");
                    self.skip_brackets();
                    if self.accept(";") || function || self.begins_item() {
                        return;
                    }
                }
                "(" | "[" => self.skip_brackets(),
                ";" | "}" => {
                    self.at += 1;
                    self.accept(";");
                    return;
                }
                _ => self.at += 1,
            }
        }
    }

    // ── declarations

    fn declaration(&mut self) -> Result<(), String> {
        match self.text() {
            ";" => {
                self.at += 1;
                return Ok(());
            }
            "#pragma" => {
                self.pragma();
                return Ok(());
            }
            "_Static_assert" | "static_assert" | "__asm__" | "asm" | "__asm" => {
                self.at += 1;
                self.skip_brackets();
                self.accept(";");
                return Ok(());
            }
            _ => {}
        }
        let spec = self.specifiers()?;
        if self.accept(";") || self.is_at_end() {
            return Ok(());
        }
        // In a script, a definition need not end in `;`.
        if spec.tag.is_some() && self.peek().is_some_and(|t| t.pos.file == 0) && self.begins_item() {
            return Ok(());
        }
        if !spec.typedef {
            self.pass_over();
            return Ok(());
        }
        loop {
            let (name, ty) = self.declarator(spec.ty.clone())?;
            let attrs = self.attributes()?.and(spec.attrs);
            let name = name.ok_or("a typedef needs a name")?;
            if ty.levels() > DEPTH {
                // A chain of typedefs continues here.
                self.types.typedefs.entry(name).or_insert(Ty::Void);
                return Err(too_deep());
            }
            let ty = match attrs.aligned {
                Some(n) => Ty::Aligned(Box::new(ty), n),
                None => ty,
            };
            self.types.typedefs.entry(name).or_insert(ty);
            if !self.accept(",") {
                break;
            }
        }
        self.require(";")
    }

    fn begins_item(&self) -> bool {
        let text = self.text();
        text == "typedef" || text == "#pragma" || TAG_WORDS.iter().any(|(w, _)| *w == text)
    }

    /// Skips functions and variables.
    fn pass_over(&mut self) {
        let mut value = false;
        while !self.is_at_end() {
            match self.text() {
                ";" => {
                    self.at += 1;
                    return;
                }
                "{" => {
                    self.skip_brackets();
                    if !value {
                        return;
                    }
                }
                "(" | "[" => self.skip_brackets(),
                "=" => {
                    value = true;
                    self.at += 1;
                }
                _ => self.at += 1,
            }
        }
    }

    /// `pack(push, n)`, `pack(pop)`, `pack(n)`, `pack()`
    pub(super) fn pragma(&mut self) {
        self.at += 1;
        self.accept("(");
        let mut words = Vec::new();
        while !self.is_at_end() && !self.is(")") && words.len() < 8 {
            words.push(self.text());
            self.at += 1;
        }
        self.accept(")");
        let bytes = words.iter().find_map(|w| w.parse::<u32>().ok()).filter(|n| n.is_power_of_two());
        let now = self.pack.last().copied().flatten();
        if words.contains(&"push") {
            self.pack.push(bytes.or(now));
        } else if words.contains(&"pop") {
            self.pack.pop();
        } else if let Some(top) = self.pack.last_mut() {
            *top = bytes;
        } else {
            self.pack.push(bytes);
        }
    }

    /// Does a type begin here?
    pub fn starts_type(&self) -> bool {
        let Some(token) = self.peek().filter(|t| t.kind == Kind::Word) else { return false };
        let text = self.text();
        let keyword = BASIC_TYPE_WORDS.contains(&text) || IGNORED_SPECIFIERS.contains(&text) || TAG_WORDS.iter().any(|(w, _)| *w == text);
        keyword
            || matches!(text, "typeof" | "__typeof__" | "__typeof" | "__attribute__")
            || self.types.typedefs.contains_key(&token.sym)
            || (!self.types.variants.contains_key(&token.sym) && self.outside(text).is_some())
    }

    /// An undeclared type: a well-known name, or a type of the kernel.
    fn outside(&self, name: &str) -> Option<Ty> {
        match c_int(name) {
            Some(Type::Int(int)) => return Some(Ty::Int(int)),
            Some(Type::Bool) => return Some(Ty::Bool),
            _ => {}
        }
        // The names of integers in rbt's language.
        let (signed, bits) = match name.strip_prefix("uint") {
            Some(bits) => (false, bits),
            None => (true, name.strip_prefix("int").unwrap_or("")),
        };
        let bytes = match bits {
            "8" => 1,
            "16" => 2,
            "32" => 4,
            "64" => 8,
            _ => 0,
        };
        if bytes > 0 {
            return Some(Ty::Int(Int { bytes, signed }));
        }
        let sys = self.sys?;
        let ty = sys.type_named(TypeName::Plain, name)?;
        let align = kernel_align(&ty, sys, 0);
        Some(Ty::Kernel(ty, align))
    }

    pub(super) fn specifiers(&mut self) -> Result<Specifiers, String> {
        let mut spec = Specifiers { ty: Ty::Void, typedef: false, attrs: Attrs::default(), tag: None };
        let mut words: Vec<&str> = Vec::new();
        let mut found: Option<Ty> = None;
        while let Some(token) = self.peek() {
            let text = self.text();
            if token.kind != Kind::Word {
                break;
            }
            if IGNORED_SPECIFIERS.contains(&text) {
                self.at += 1;
                // `_Atomic(T)`
                if text == "_Atomic" && self.accept("(") {
                    found = Some(self.type_name()?);
                    self.require(")")?;
                }
            } else if text == "typedef" {
                spec.typedef = true;
                self.at += 1;
            } else if matches!(text, "__attribute__" | "__attribute" | "_Alignas" | "alignas" | "__declspec") {
                spec.attrs = spec.attrs.and(self.attributes()?);
            } else if found.is_some() {
                break;
            } else if BASIC_TYPE_WORDS.contains(&text) {
                words.push(text);
                self.at += 1;
            } else if !words.is_empty() {
                break;
            } else if let Some((_, kind)) = TAG_WORDS.iter().find(|(w, _)| *w == text) {
                self.at += 1;
                let tag = self.deeper(|p| p.tag(*kind))?;
                spec.tag = Some(tag);
                found = Some(Ty::Tag(tag));
            } else if matches!(text, "typeof" | "__typeof__" | "__typeof" | "__auto_type") {
                self.at += 1;
                self.require("(")?;
                if !self.starts_type() {
                    return Err("`typeof` of an expression is not supported".into());
                }
                found = Some(self.type_name()?);
                self.require(")")?;
            } else if let Some(ty) = self.types.typedefs.get(&token.sym) {
                found = Some(ty.clone());
                self.at += 1;
            } else if let Some(ty) = self.outside(text) {
                found = Some(ty);
                self.at += 1;
            } else {
                return Err(format!("unknown type `{text}`"));
            }
        }
        spec.ty = match found {
            Some(ty) => ty,
            None if words.is_empty() => return Err(format!("`{}` does not begin a declaration", self.text())),
            None => basic(&words)?,
        };
        Ok(spec)
    }

    /// The same type, with a struct or enum that is only named here replaced by the kernel's. It is resolved late:
    /// headers name hundreds of structs without defining them.
    pub fn completed(&self, ty: Ty) -> Ty {
        match ty {
            Ty::Array(elem, n) => Ty::Array(Box::new(self.completed(*elem)), n),
            Ty::Aligned(inner, align) => Ty::Aligned(Box::new(self.completed(*inner)), align),
            Ty::Tag(tag) => {
                let known = self.types.tags.get(tag).filter(|t| !t.complete).and_then(|t| {
                    let sys = self.sys?;
                    let ty = sys.type_named(t.kind.type_name(), &t.name)?;
                    let align = kernel_align(&ty, sys, 0);
                    Some(Ty::Kernel(ty, align))
                });
                known.unwrap_or(Ty::Tag(tag))
            }
            other @ (Ty::Void
            | Ty::Bool
            | Ty::Char
            | Ty::Int(_)
            | Ty::Float(_)
            | Ty::Raw(..)
            | Ty::Pointer(_)
            | Ty::Function
            | Ty::Kernel(..)) => other,
        }
    }

    // ── declarators

    /// A type without a name, as in a cast or `sizeof`.
    pub fn type_name(&mut self) -> Result<Ty, String> {
        self.deeper(|p| {
            let spec = p.specifiers()?;
            Ok(p.declarator(spec.ty)?.1)
        })
    }

    /// `*name[3]`, `(*name)(int)`: the name and its type.
    pub(super) fn declarator(&mut self, base: Ty) -> Result<(Option<Sym>, Ty), String> {
        self.deeper(|p| p.declarator_within(base))
    }

    fn declarator_within(&mut self, mut base: Ty) -> Result<(Option<Sym>, Ty), String> {
        let mut stars = 0;
        loop {
            let text = self.text();
            if text == "*" || text == "^" {
                self.at += 1;
                base = Ty::Pointer(Box::new(base));
                stars += 1;
                if stars > DEPTH {
                    return Err(too_deep());
                }
            } else if IGNORED_SPECIFIERS.contains(&text) {
                self.at += 1;
            } else if text == "__attribute__" {
                self.attributes()?;
            } else {
                break;
            }
        }
        let next = self.text_at(1);
        let groups = self.is("(") && (matches!(next, "*" | "(" | "^" | "__attribute__") || self.names_something(1));
        if groups {
            let inner = self.at + 1;
            self.skip_brackets();
            let outer = self.suffixes(base)?;
            let end = std::mem::replace(&mut self.at, inner);
            let result = self.declarator(outer)?;
            self.require(")")?;
            self.at = end;
            return Ok(result);
        }
        let name = self.peek().filter(|t| t.kind == Kind::Word && !matches!(self.text(), "__attribute__" | "__asm__"));
        self.at += usize::from(name.is_some());
        let ty = self.suffixes(base)?;
        Ok((name.map(|t| t.sym), ty))
    }

    /// Is the next word not a type, so that it is a declared name in parentheses?
    fn names_something(&self, ahead: usize) -> bool {
        let Some(token) = self.tokens.get(self.at + ahead).filter(|t| t.kind == Kind::Word) else { return false };
        let text = self.names.text(token.sym);
        let keyword = BASIC_TYPE_WORDS.contains(&text) || IGNORED_SPECIFIERS.contains(&text) || TAG_WORDS.iter().any(|(w, _)| *w == text);
        !keyword && !self.types.typedefs.contains_key(&token.sym) && self.text_at(ahead + 1) == ")" && c_int(text).is_none()
    }

    fn suffixes(&mut self, base: Ty) -> Result<Ty, String> {
        if self.is("(") {
            self.skip_brackets();
            self.suffixes(base)?;
            return Ok(Ty::Function);
        }
        if !self.accept("[") {
            return Ok(base);
        }
        while IGNORED_SPECIFIERS.contains(&self.text()) {
            self.at += 1;
        }
        let length = if self.is("]") {
            None
        } else {
            let n = self.constant()?.value;
            Some(u32::try_from(n).ok().filter(|n| *n < 1 << 30).ok_or_else(|| format!("an array cannot have {n} elements"))?)
        };
        self.require("]")?;
        let elem = self.deeper(|p| p.suffixes(base))?;
        Ok(Ty::Array(Box::new(elem), length))
    }

    /// `a.b[2].c` in `offsetof`, in bytes.
    pub fn member_offset(&mut self, ty: Ty) -> Result<u32, String> {
        let (mut ty, mut offset) = (ty, 0u64);
        loop {
            let Some(name) = self.peek().filter(|t| t.kind == Kind::Word) else { return Err("a member's name is expected".into()) };
            self.at += 1;
            let tag = if let Ty::Tag(tag) = &ty { self.types.tags.get(*tag) } else { None };
            let member = tag.and_then(|t| t.members.iter().find(|m| m.name == Some(name.sym)));
            let member = member.ok_or_else(|| format!("there is no member `{}`", self.names.text(name.sym)))?;
            offset += member.bit / 8;
            ty = member.ty.clone();
            while self.accept("[") {
                let n = self.constant()?.value;
                self.require("]")?;
                let Ty::Array(elem, _) = ty else { return Err("it is not an array".into()) };
                offset += self.types.shape(&elem).map_or(0, |s| s.0).saturating_mul(u64::try_from(n).unwrap_or(0));
                ty = *elem;
            }
            if !self.accept(".") {
                return u32::try_from(offset).map_err(|_| "the offset is too large".into());
            }
        }
    }
}

/// Parses `unsigned long long int`, in any order.
fn basic(words: &[&str]) -> Result<Ty, String> {
    let has = |w: &str| words.contains(&w);
    let longs = words.iter().filter(|w| **w == "long").count();
    let signed = !has("unsigned");
    let int = |bytes| Ok(Ty::Int(Int { bytes, signed }));
    if has("_Complex") || has("__complex__") {
        return Ok(if has("float") { Ty::Raw(8, 4) } else { Ty::Raw(16, 8) });
    }
    match () {
        () if has("void") => Ok(Ty::Void),
        () if has("_Bool") || has("bool") => Ok(Ty::Bool),
        () if has("_Float16") => Ok(Ty::Raw(2, 2)),
        () if has("float") || has("_Float32") => Ok(Ty::Float(4)),
        () if has("double") && longs > 0 => Ok(Ty::Raw(16, 16)),
        () if has("double") || has("_Float64") || has("_Float32x") => Ok(Ty::Float(8)),
        () if has("_Float128") || has("__float128") || has("_Float64x") => Ok(Ty::Raw(16, 16)),
        () if has("__int128") || has("__int128_t") || has("__uint128_t") => Ok(Ty::Raw(16, 16)),
        // x86-64's `__builtin_va_list` is an array of one struct of 24 bytes
        () if has("__builtin_va_list") => Ok(Ty::Raw(24, 8)),
        () if has("char") && signed && !has("signed") => Ok(Ty::Char),
        () if has("char") => int(1),
        () if has("short") => int(2),
        () if longs > 0 => int(8),
        () => int(4),
    }
}
