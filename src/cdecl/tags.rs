//! Structs, unions and enums, and the attributes that determine their layout.

use super::layout::{Attrs, Declared, lay_out};
use super::lex::{Kind, LexPosition, Sym, Token};
use super::parse::Parser;
use super::types::{Tag, TagKind, Ty};
use crate::types::Int;

impl Parser<'_> {
    /// Parses the declaration after `struct`, `union` or `enum`.
    pub(super) fn tag(&mut self, kind: TagKind) -> Result<usize, String> {
        let mut attrs = self.attributes()?;
        let name = self.peek().filter(|t| t.kind == Kind::Word);
        if name.is_some() {
            self.at += 1;
            attrs = attrs.and(self.attributes()?);
        }
        let underlying = if kind == TagKind::Enum && self.accept(":") { self.specifiers().map(|s| self.types.int(&s.ty))? } else { None };
        if !self.is("{") {
            let name = name.ok_or_else(|| format!("`{}` needs a name or braces", kind.keyword()))?;
            return Ok(self.named_tag(kind, name));
        }
        let index = match name {
            Some(name) => {
                let index = self.named_tag(kind, name);
                let known = self.types.tags.get(index).filter(|t| t.complete);
                if let Some(known) = known {
                    // Two headers may repeat a definition; a script may not.
                    let in_script = name.pos.file == 0 && known.pos.file == 0;
                    if in_script {
                        return Err(format!("`{} {}` is declared already", kind.keyword(), known.name));
                    }
                    if name.pos.file != 0 {
                        self.skip_brackets();
                        self.attributes()?;
                        return Ok(index);
                    }
                }
                index
            }
            None => self.new_tag(kind, String::new(), self.peek().map_or(LexPosition::default(), |t| t.pos)),
        };
        self.at += 1;
        if kind == TagKind::Enum {
            self.enumeration(index, underlying, attrs)?;
        } else {
            self.members(index, kind == TagKind::Union, attrs)?;
        }
        Ok(index)
    }

    fn named_tag(&mut self, kind: TagKind, name: Token) -> usize {
        let known = self.types.by_name.get(&name.sym).copied();
        if let Some(known) = known.filter(|k| self.types.tags.get(*k).is_some_and(|t| t.kind == kind)) {
            return known;
        }
        let index = self.new_tag(kind, self.names.text(name.sym).to_owned(), name.pos);
        self.types.by_name.insert(name.sym, index);
        index
    }

    fn new_tag(&mut self, kind: TagKind, name: String, place: LexPosition) -> usize {
        let int = Int { bytes: 4, signed: false };
        self.types.tags.push(Tag {
            kind,
            name,
            complete: false,
            size: 0,
            align: 1,
            members: Vec::new(),
            variants: Vec::new(),
            int,
            pos: place,
        });
        self.types.tags.len() - 1
    }

    /// Parses the body of an enum.
    fn enumeration(&mut self, index: usize, underlying: Option<Int>, attrs: Attrs) -> Result<(), String> {
        let mut variants: Vec<(Sym, i64)> = Vec::new();
        let mut values: Vec<i128> = Vec::new();
        let mut next = 0i128;
        while !self.accept("}") {
            let Some(name) = self.peek().filter(|t| t.kind == Kind::Word) else {
                return Err(format!("a name is expected in `enum`, before `{}`", self.text()));
            };
            self.at += 1;
            self.attributes()?;
            if self.accept("=") {
                next = self.constant()?.value;
            }
            variants.push((name.sym, next as i64));
            values.push(next);
            self.types.variants.insert(name.sym, (index, next as i64));
            next += 1;
            if !self.accept(",") && !self.is("}") {
                return Err(format!("`,` or `}}` is expected before `{}`", self.text()));
            }
        }
        let attrs = attrs.and(self.attributes()?);
        let (low, high) = (values.iter().copied().min().unwrap_or(0), values.iter().copied().max().unwrap_or(0));
        let signed = low < 0;
        let bits = u32::from(signed) + (128 - low.max(-(low + 1)).max(high).leading_zeros());
        // GCC's rule: the first of unsigned int, int, unsigned long and long that can represent all values; if packed,
        // the narrowest
        let bytes = if attrs.packed {
            bits.div_ceil(8).next_power_of_two().clamp(1, 8) as u8
        } else if bits > 32 {
            8
        } else {
            4
        };
        let int = underlying.unwrap_or(Int { bytes, signed });
        let align = attrs.aligned.unwrap_or(0).max(int.bytes.into());
        if let Some(tag) = self.types.tags.get_mut(index) {
            *tag = Tag { complete: true, size: int.bytes.into(), align, variants, int, ..tag.clone() };
        }
        Ok(())
    }

    /// Parses the body of a struct.
    fn members(&mut self, index: usize, union: bool, attrs: Attrs) -> Result<(), String> {
        let mut declared = Vec::new();
        while !self.accept("}") {
            match self.text() {
                "" => return Err("`}` is missing at the end".into()),
                ";" => {
                    self.at += 1;
                    continue;
                }
                "_Static_assert" | "static_assert" => {
                    self.at += 1;
                    self.skip_brackets();
                    continue;
                }
                "#pragma" => {
                    self.pragma();
                    continue;
                }
                _ => {}
            }
            self.member(&mut declared)?;
        }
        let attrs = attrs.and(self.attributes()?);
        let max_align = self.pack.last().copied().flatten();
        let (size, align, members) = lay_out(self.types, declared, union, attrs, max_align)?;
        if let Some(tag) = self.types.tags.get_mut(index) {
            *tag = Tag { complete: true, size, align, members, ..tag.clone() };
        }
        Ok(())
    }

    fn member(&mut self, declared: &mut Vec<Declared>) -> Result<(), String> {
        let spec = self.specifiers()?;
        if self.is(";") || self.is("}") {
            self.accept(";");
            // An anonymous struct or union is a member; an enum or a named struct is not.
            let anonymous = spec.tag.and_then(|t| self.types.tags.get(t)).is_some_and(|t| t.name.is_empty() && t.kind != TagKind::Enum);
            if anonymous {
                declared.push(Declared { name: None, ty: spec.ty, width: None, attrs: spec.attrs });
            }
            return Ok(());
        }
        loop {
            let from = self.at;
            let (name, ty) = if self.is(":") { (None, spec.ty.clone()) } else { self.declarator(spec.ty.clone())? };
            let end = self.at;
            let ty = self.completed(ty);
            let width = if self.accept(":") { Some(self.constant()?.value) } else { None };
            let attrs = spec.attrs.and(self.attributes()?);
            let shown = name.map_or("an unnamed bit-field", |n| self.names.text(n)).to_owned();
            let named = (from..end).find(|i| self.tokens.get(*i).is_some_and(|t| Some(t.sym) == name)).unwrap_or(from);
            let back = self.at - named;
            if self.types.shape(&ty).is_none() {
                return self.fail_at(back, format!("the size of `{shown}` is unknown"));
            }
            let width = match width {
                None => None,
                Some(w) => {
                    let Some(int) = self.types.int(&ty) else {
                        return self.fail_at(back, format!("`{shown}` is a bit-field but not an integer"));
                    };
                    let max_bits = if ty == Ty::Bool { 1 } else { u64::from(int.bytes) * 8 };
                    let width = u64::try_from(w).ok().filter(|w| *w <= max_bits && (*w > 0 || name.is_none()));
                    if width.is_none() {
                        return self.fail_at(back, format!("`{shown}` cannot have {w} bits"));
                    }
                    width
                }
            };
            if name.is_none() && width.is_none() {
                return Err(format!("a member's name is expected before `{}`", self.text()));
            }
            declared.push(Declared { name, ty, width, attrs });
            if !self.accept(",") {
                break;
            }
        }
        if self.is("}") {
            return Ok(());
        }
        self.require(";")
    }

    /// Parses `__attribute__((…))`, `_Alignas(…)`, `__asm__("…")`: any number of them.
    pub(super) fn attributes(&mut self) -> Result<Attrs, String> {
        let mut attrs = Attrs::default();
        loop {
            match self.text() {
                "_Alignas" | "alignas" => {
                    self.at += 1;
                    self.require("(")?;
                    let n = if self.starts_type() {
                        let ty = self.type_name()?;
                        self.types.shape(&ty).map_or(1, |(_, align)| align.into())
                    } else {
                        self.constant()?.value
                    };
                    self.require(")")?;
                    attrs.aligned = attrs.aligned.max(alignment(n));
                }
                "__asm__" | "asm" | "__declspec" => {
                    self.at += 1;
                    self.skip_brackets();
                }
                "__attribute__" | "__attribute" => {
                    self.at += 1;
                    self.require("(")?;
                    self.require("(")?;
                    while !self.is_at_end() && !self.is(")") {
                        let name = self.text();
                        self.at += 1;
                        match name {
                            "packed" | "__packed__" => attrs.packed = true,
                            "aligned" | "__aligned__" if self.accept("(") => {
                                let n = self.constant()?.value;
                                attrs.aligned = attrs.aligned.max(alignment(n));
                                self.require(")")?;
                            }
                            "aligned" | "__aligned__" => attrs.aligned = attrs.aligned.max(Some(16)),
                            _ if self.is("(") => self.skip_brackets(),
                            _ => {}
                        }
                    }
                    self.require(")")?;
                    self.require(")")?;
                }
                _ => return Ok(attrs),
            }
        }
    }
}

fn alignment(n: i128) -> Option<u32> {
    u32::try_from(n).ok().filter(|n| n.is_power_of_two() && *n <= 1 << 16)
}
