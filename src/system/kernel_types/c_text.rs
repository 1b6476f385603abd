//! Types in C syntax, with the names of the debug information, for `-lv`.
//!
//! The form is that of libbpf's `btf_dump`, which other tools print. It includes the padding and `packed` attributes that a
//! definition needs for the same layout.

use super::{DEPTH, ENUMS, KernelTypes, Kind, MODULE_SHIFT};
use crate::system::kernel_types::btf::Entry;
use crate::system::{TypeName, matches};

/// The prototype of a function in C syntax.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Type and name of each parameter; a name may be empty.
    pub params: Vec<(String, String)>,
    /// Type of the result; `None` for `void`.
    pub returns: Option<String>,
}

/// Limit for the nested types of a declaration.
const CHAIN: usize = 4 * DEPTH as usize;
/// Limit for the bytes of one text, because invalid data may be recursive.
const MAX_TEXT_BYTES: usize = 1 << 20;
/// Types for padding, with their bits.
const FILLERS: [(&str, u32); 4] = [("long", 64), ("int", 32), ("short", 16), ("char", 8)];
/// The kinds that are qualifiers.
const QUALIFIERS: u32 = Kind::Const.bit() | Kind::Volatile.bit() | Kind::Restrict.bit() | Kind::TypeTag.bit();
const POINTER: u32 = 8;

impl KernelTypes {
    /// The prototype of a function. See [`KernelTypes::function`].
    pub fn signature(&self, module: Option<&str>, name: &str) -> Option<Signature> {
        let id = self.function_named(module, name)?;
        self.spelled(self.global_id(id >> MODULE_SHIFT, self.entry(id)?.size_or_type), 0)
    }

    /// The prototype of a raw tracepoint. See [`KernelTypes::raw_tracepoint`].
    pub fn event_signature(&self, name: &str) -> Option<Signature> {
        let (_, target) = self.event_prototype(name)?;
        let mut found = self.spelled(target, 1)?;
        for ((_, to), from) in found.params.iter_mut().zip(self.event_names(name, 1).unwrap_or_default()) {
            *to = from;
        }
        Some(found)
    }

    /// The type of a member, including members of anonymous structs.
    pub fn member_text(&self, structure: &str, member: &str) -> Option<String> {
        let (mut budget, mut found) = (super::FIELDS, None);
        self.each_member(self.find(structure, Kind::Struct.bit())?, 0, 0, &mut budget, &mut |module, _, [name, ty, _], _| {
            if self.string(module, name) != Some(member) {
                return super::Visit::Pass;
            }
            found = Some(self.type_text(self.global_id(module, ty)));
            super::Visit::Stop
        })?;
        found
    }

    /// Definitions of the types of this kind that match a pattern, sorted by name. A name without wildcards stands for the
    /// first type with this name.
    pub fn definitions(&self, kind: TypeName, pattern: &str, each: &mut dyn FnMut(&str)) {
        let mut found = Vec::new();
        if pattern.contains('*') {
            for module in 0..=self.modules().len() as u32 {
                let Some(blob) = self.blob(module) else { continue };
                let wanted = blob.entries().filter(|(_, e)| kinds(kind) & e.kind.bit() != 0);
                let named = wanted.map(|(id, e)| (self.text(module, e.name), self.global_id(module, id)));
                found.extend(named.filter(|(name, _)| !name.is_empty() && matches(pattern, name)));
            }
            found.sort_unstable();
        } else {
            found.extend(self.find(pattern, kinds(kind)).map(|id| (pattern, id)));
        }
        for (_, id) in found {
            let Some(entry) = self.entry(id) else { continue };
            let mut text = Text::of(self);
            text.put(&format!("{}: ", self.module_name(id >> MODULE_SHIFT)));
            text.definition(id, &entry, 0);
            text.put(";");
            each(&text.out);
        }
    }

    fn spelled(&self, prototype: u32, skip: usize) -> Option<Signature> {
        let module = prototype >> MODULE_SHIFT;
        let entry = self.entry(prototype).filter(|e| e.kind == Kind::FuncProto)?;
        let last = (entry.vlen as usize).saturating_sub(1);
        let params = entry.parts::<2>().enumerate().skip(skip).map(|(n, [name, ty])| {
            let ty = if ty == 0 && n == last { "...".to_owned() } else { self.type_text(self.global_id(module, ty)) };
            (ty, self.text(module, name).to_owned())
        });
        let returns = entry.size_or_type;
        Some(Signature { params: params.collect(), returns: (returns != 0).then(|| self.type_text(self.global_id(module, returns))) })
    }

    fn type_text(&self, id: u32) -> String {
        let mut text = Text::of(self);
        text.declaration(id, "", 0);
        text.out
    }

    fn text(&self, module: u32, offset: u32) -> &str {
        self.string(module, offset).unwrap_or_default()
    }

    /// Size in bytes.
    fn size_of(&self, mut id: u32) -> u32 {
        let mut times = 1u32;
        for _ in 0..CHAIN {
            let Some(entry) = self.entry(id).filter(|_| id != 0) else { return 0 };
            let module = id >> MODULE_SHIFT;
            match entry.kind {
                Kind::Int | Kind::Float | Kind::Struct | Kind::Union | Kind::Enum | Kind::Enum64 => {
                    return times.saturating_mul(entry.size_or_type);
                }
                Kind::Ptr => return times.saturating_mul(POINTER),
                Kind::Array => {
                    times = times.saturating_mul(entry.word(2).unwrap_or(0));
                    id = self.global_id(module, entry.word(0).unwrap_or(0));
                }
                Kind::Typedef | Kind::Volatile | Kind::Const | Kind::Restrict | Kind::TypeTag => {
                    id = self.global_id(module, entry.size_or_type);
                }
                Kind::Void | Kind::Fwd | Kind::Func | Kind::FuncProto | Kind::Var | Kind::Datasec | Kind::DeclTag => return 0,
            }
        }
        0
    }

    /// Alignment in bytes.
    fn align_of(&self, mut id: u32, depth: u32) -> u32 {
        for _ in 0..CHAIN {
            let Some(entry) = self.entry(id).filter(|_| id != 0 && depth <= DEPTH) else { return 1 };
            let module = id >> MODULE_SHIFT;
            match entry.kind {
                Kind::Int | Kind::Float | Kind::Enum | Kind::Enum64 => return entry.size_or_type.clamp(1, POINTER),
                Kind::Ptr => return POINTER,
                Kind::Array => id = self.global_id(module, entry.word(0).unwrap_or(0)),
                Kind::Typedef | Kind::Volatile | Kind::Const | Kind::Restrict | Kind::TypeTag => {
                    id = self.global_id(module, entry.size_or_type);
                }
                Kind::Struct | Kind::Union => {
                    let (align, packed) = self.layout(module, &entry, depth);
                    return if packed { 1 } else { align };
                }
                Kind::Void | Kind::Fwd | Kind::Func | Kind::FuncProto | Kind::Var | Kind::Datasec | Kind::DeclTag => return 1,
            }
        }
        1
    }

    /// The strictest alignment among the members, and whether the struct is packed: a member or the end of the struct is
    /// misaligned.
    fn layout(&self, module: u32, entry: &Entry<'_>, depth: u32) -> (u32, bool) {
        let (mut align, mut packed) = (1, false);
        for [_, ty, at] in entry.parts::<3>() {
            let (offset, bits) = bit_position(at, entry.flag);
            let member_align = self.align_of(self.global_id(module, ty), depth + 1);
            packed |= bits == 0 && offset % (8 * member_align) != 0;
            align = align.max(member_align);
        }
        (align, packed || !entry.size_or_type.is_multiple_of(align))
    }
}

/// The offset of a member in bits, and the width of a bit-field.
fn bit_position(offset: u32, flag: bool) -> (u32, u32) {
    if flag { (offset & 0xff_ffff, offset >> 24) } else { (offset, 0) }
}

fn kinds(kind: TypeName) -> u32 {
    match kind {
        TypeName::Struct => Kind::Struct.bit(),
        TypeName::Union => Kind::Union.bit(),
        TypeName::Enum => ENUMS,
        TypeName::Plain => super::PLAIN,
    }
}

/// C text under construction.
struct Text<'t> {
    types: &'t KernelTypes,
    out: String,
}

impl<'t> Text<'t> {
    fn of(types: &'t KernelTypes) -> Self {
        Self { types, out: String::new() }
    }

    fn put(&mut self, text: &str) {
        if self.out.len() < MAX_TEXT_BYTES {
            self.out.push_str(text);
        }
    }

    fn line(&mut self, depth: u32, text: &str) {
        self.put("\n");
        self.put(&"\t".repeat(depth as usize));
        self.put(text);
    }

    /// Writes a type around a name.
    fn declaration(&mut self, id: u32, name: &str, depth: u32) {
        let mut chain = Vec::new();
        let mut next = id;
        while chain.len() < CHAIN {
            chain.push(next);
            let Some(entry) = self.types.entry(next).filter(|_| next != 0) else { break };
            let module = next >> MODULE_SHIFT;
            next = match entry.kind {
                Kind::Ptr | Kind::Const | Kind::Volatile | Kind::Restrict | Kind::TypeTag | Kind::FuncProto => {
                    self.types.global_id(module, entry.size_or_type)
                }
                Kind::Array => self.types.global_id(module, entry.word(0).unwrap_or(0)),
                Kind::Void
                | Kind::Int
                | Kind::Struct
                | Kind::Union
                | Kind::Enum
                | Kind::Enum64
                | Kind::Fwd
                | Kind::Typedef
                | Kind::Func
                | Kind::Var
                | Kind::Datasec
                | Kind::Float
                | Kind::DeclTag => break,
            };
        }
        self.chain(&mut chain, name, depth);
    }

    /// Writes a chain of types, which leads from the name to the innermost type; the innermost is written first.
    fn chain(&mut self, chain: &mut Vec<u32>, name: &str, depth: u32) {
        // The star of a pointer has no space before the next star or the name.
        let mut no_space = true;
        while let Some(id) = chain.pop() {
            let module = id >> MODULE_SHIFT;
            let types = self.types;
            let Some(entry) = types.entry(id).filter(|_| id != 0) else {
                self.qualifiers(chain);
                self.put("void");
                no_space = false;
                continue;
            };
            let own = types.text(module, entry.name);
            match entry.kind {
                Kind::Ptr => self.put(if no_space { "*" } else { " *" }),
                Kind::Const | Kind::Volatile | Kind::Restrict | Kind::TypeTag => {
                    let word = self.qualifier(id, &entry);
                    self.put(&format!(" {word}"));
                }
                Kind::Array => return self.array(&entry, chain, name, (no_space, depth)),
                Kind::FuncProto => return self.function((module, &entry), chain, name, (no_space, depth)),
                Kind::Struct | Kind::Union | Kind::Enum | Kind::Enum64 if own.is_empty() => {
                    self.qualifiers(chain);
                    if depth <= DEPTH {
                        self.definition(id, &entry, depth);
                    }
                }
                Kind::Struct | Kind::Union | Kind::Enum | Kind::Enum64 | Kind::Fwd => {
                    self.qualifiers(chain);
                    self.put(&format!("{} {own}", tag(&entry)));
                }
                Kind::Void | Kind::Int | Kind::Float | Kind::Typedef | Kind::Func | Kind::Var | Kind::Datasec | Kind::DeclTag => {
                    self.qualifiers(chain);
                    self.put(own);
                }
            }
            no_space = entry.kind == Kind::Ptr;
        }
        self.name(name, no_space);
    }

    fn name(&mut self, name: &str, no_space: bool) {
        if !name.is_empty() && !no_space {
            self.put(" ");
        }
        self.put(name);
    }

    /// Returns the keyword of a qualifier.
    fn qualifier(&self, id: u32, entry: &Entry<'_>) -> String {
        let words = [(Kind::Const, "const"), (Kind::Volatile, "volatile"), (Kind::Restrict, "restrict")];
        let word = words.into_iter().find(|(kind, _)| *kind == entry.kind);
        let tag = || format!("__attribute__((btf_type_tag(\"{}\")))", self.types.text(id >> MODULE_SHIFT, entry.name));
        word.map_or_else(tag, |(_, word)| word.to_owned())
    }

    /// Writes the qualifiers of the innermost type, which precede it.
    fn qualifiers(&mut self, chain: &mut Vec<u32>) {
        while let Some(id) = chain.last().copied() {
            let Some(entry) = self.types.entry(id).filter(|e| id != 0 && e.kind.bit() & QUALIFIERS != 0) else { return };
            chain.pop();
            let word = self.qualifier(id, &entry);
            self.put(&format!("{word} "));
        }
    }

    /// Drops the qualifiers of an array or a function: they belong to its elements, or have no meaning.
    fn drop_qualifiers(&self, chain: &mut Vec<u32>) {
        let is = |id: u32| self.types.entry(id).is_some_and(|e| id != 0 && e.kind.bit() & QUALIFIERS != 0);
        while chain.last().is_some_and(|id| is(*id)) {
            chain.pop();
        }
    }

    fn array(&mut self, entry: &Entry<'_>, chain: &mut Vec<u32>, name: &str, (touching, depth): (bool, u32)) {
        self.drop_qualifiers(chain);
        let length = format!("[{}]", entry.word(2).unwrap_or(0));
        let Some(around) = chain.last().copied() else {
            self.name(name, touching);
            return self.put(&length);
        };
        let of_arrays = around != 0 && self.types.entry(around).is_some_and(|e| e.kind == Kind::Array);
        if !name.is_empty() && !touching {
            self.put(" ");
        }
        self.put(if of_arrays { "" } else { "(" });
        self.chain(chain, name, depth);
        self.put(if of_arrays { "" } else { ")" });
        self.put(&length);
    }

    fn function(&mut self, (module, entry): (u32, &Entry<'_>), chain: &mut Vec<u32>, name: &str, (touching, depth): (bool, u32)) {
        self.drop_qualifiers(chain);
        if chain.is_empty() {
            self.name(name, touching);
        } else {
            self.put(" (");
            self.chain(chain, name, depth);
            self.put(")");
        }
        self.put("(");
        let params: Vec<[u32; 2]> = entry.parts::<2>().collect();
        if params.is_empty() || (params.len() == 1 && params.iter().all(|[_, ty]| *ty == 0)) {
            return self.put("void)");
        }
        for (n, [name, ty]) in params.iter().enumerate() {
            self.put(if n > 0 { ", " } else { "" });
            if *ty == 0 && n + 1 == params.len() {
                self.put("...");
            } else if depth <= DEPTH {
                // Parameters that are functions increase the depth.
                let types = self.types;
                self.declaration(types.global_id(module, *ty), types.text(module, *name), depth + 1);
            }
        }
        self.put(")");
    }

    /// Writes a struct, union or enum with its body.
    fn definition(&mut self, id: u32, entry: &Entry<'_>, depth: u32) {
        let types = self.types;
        let module = id >> MODULE_SHIFT;
        let name = types.text(module, entry.name);
        self.put(tag(entry));
        self.put(if name.is_empty() { "" } else { " " });
        self.put(name);
        if entry.kind.bit() & ENUMS != 0 {
            let guess = !types.signs_known();
            let variants: Vec<(u32, i64)> = super::variants(entry, guess).collect();
            self.put(" {");
            for (name, value) in variants {
                let name = types.text(module, name);
                let wide = entry.kind == Kind::Enum64;
                let value = match (wide, entry.flag) {
                    (true, true) => format!("{value}LL"),
                    (true, false) => format!("{}ULL", value as u64),
                    (false, _) => value.to_string(),
                };
                self.line(depth + 1, &format!("{name} = {value},"));
            }
            let mode = match (entry.kind, entry.size_or_type) {
                (Kind::Enum, 1) => " __attribute__((mode(byte)))",
                (Kind::Enum, 8) => " __attribute__((mode(word)))",
                _ => "",
            };
            self.line(depth, &format!("}}{mode}"));
            return;
        }
        let is_struct = entry.kind == Kind::Struct;
        let (align, packed) = if is_struct { types.layout(module, entry, 0) } else { (1, false) };
        let align = if packed { 1 } else { align };
        self.put(" {");
        let (mut at, mut in_bits) = (0, false);
        for [name, ty, offset] in entry.parts::<3>() {
            if self.out.len() >= MAX_TEXT_BYTES {
                break;
            }
            let ty = types.global_id(module, ty);
            let (offset, width) = bit_position(offset, entry.flag);
            let natural_align = if packed { 1 } else { types.align_of(ty, 0) };
            if is_struct {
                self.padding((at, offset), natural_align, in_bits && width != 0, depth + 1);
            }
            self.line(depth + 1, "");
            self.declaration(ty, types.text(module, name), depth + 1);
            in_bits = width != 0;
            if in_bits {
                self.put(&format!(": {width}"));
                at = offset.saturating_add(width);
            } else {
                at = offset.saturating_add(types.size_of(ty).saturating_mul(8));
            }
            self.put(";");
        }
        if is_struct {
            self.padding((at, entry.size_or_type.saturating_mul(8)), align, false, depth + 1);
        }
        if entry.vlen > 0 || entry.size_or_type > 0 {
            self.line(depth, "");
        }
        self.put(if packed { "} __attribute__((packed))" } else { "}" });
    }

    /// Writes the padding between one member and the next, which has this alignment. Writes nothing if a compiler adds
    /// the padding anyway.
    fn padding(&mut self, (mut from, to): (u32, u32), align: u32, in_bits: bool, depth: u32) {
        if from >= to {
            return;
        }
        // Use the widest type that has a boundary in the gap.
        let boundary = |bits: u32| from.checked_next_multiple_of(bits).unwrap_or(u32::MAX);
        let (filler, bits) = FILLERS.into_iter().find(|(_, bits)| boundary(*bits) <= to).unwrap_or(("char", 8));
        let start = boundary(bits);
        if start > from && start <= to {
            let by_itself = from.checked_next_multiple_of(align.saturating_mul(8).max(1)) == Some(start);
            if in_bits || (start == to && !by_itself) || (start != to && to - start <= start - from) {
                self.line(depth, &format!("{filler}: {};", if in_bits { start - from } else { 0 }));
            }
            from = start;
        }
        while from < to && self.out.len() < MAX_TEXT_BYTES {
            let left = to - from;
            if left >= bits {
                self.line(depth, &format!("{filler}: {bits};"));
                from += bits;
                continue;
            }
            let (filler, _) = FILLERS.into_iter().rev().find(|(_, bits)| *bits >= left).unwrap_or((filler, bits));
            self.line(depth, &format!("{filler}: {left};"));
            from = to;
        }
    }
}

fn tag(entry: &Entry<'_>) -> &'static str {
    if entry.kind.bit() & ENUMS != 0 {
        "enum"
    } else if entry.kind == Kind::Union || (entry.kind == Kind::Fwd && entry.flag) {
        "union"
    } else {
        "struct"
    }
}
