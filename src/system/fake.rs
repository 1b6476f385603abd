//! A synthetic machine, described by the text of a test, so that tests of parsing, checking and compiling need no root and no
//! BPF, and are reproducible.
//!
//! The text consists of C types and a few statements; an empty text describes a machine without anything:
//!
//! ```text
//! enum state { IDLE, BUSY = 4 };
//! typedef int pid_t;
//! struct task_struct { pid_t pid; char comm[16]; unsigned on_cpu : 1; struct task_struct *parent; union { long a; int b; }; };
//! tracepoint sched:sched_switch { char prev_comm[16]; pid_t prev_pid; __data_loc char[] name; }
//! tracepoint syscalls:sys_enter_openat { int dfd; const char *filename; }
//! rawtracepoint sched_switch(bool preempt, struct task_struct *prev);
//! function int vfs_open(struct path *path, struct file *file);  function [fuse] void fuse_open(void);
//! symbol schedule 0xffffffff81000000;
//! binary /bin/demo { main 0x1000 32; helper 0x1040 16; }
//! cgroup /a/b 77;  cpus 4;  feature UprobeMulti;  injectable vfs_open;  no tracefs;
//! ```
//!
//! With `no tracefs` and `no types`, queries for those fail. A type that is embedded by value must be declared before. Types
//! become real BTF and tracepoints real `format` files, and the same code reads them as on a real machine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::system::kernel::functions::{self, Functions, Symbols};
use crate::system::kernel_types::btf::{Kind, Writer};
use crate::system::kernel_types::{KernelTypes, Prototype, c_int};
use crate::system::{
    Abi, Binary, BinaryFile, Feature, Function, FunctionLocation, HeaderFolder, Missing, TargetInfo, Tracepoint, TypeName,
    events::syscalls, events::tracefs,
};
use crate::types::{Enum, Field, Int, Record, Struct, Type};

/// See the module's note.
pub struct Fake {
    types: Option<KernelTypes>,
    tracefs: bool,
    /// `format` files by category and name.
    events: BTreeMap<(String, String), String>,
    /// The keys of `events`.
    tracepoints: Vec<(String, String)>,
    raw_tracepoints: Vec<(String, String)>,
    functions: Functions,
    symbols: BTreeMap<String, u64>,
    binaries: BTreeMap<PathBuf, Arc<Binary>>,
    cgroups: BTreeMap<String, u64>,
    features: BTreeSet<Feature>,
    /// Functions that allow error injection; unknown if there are none.
    injectable: BTreeSet<String>,
    cpus: u32,
    /// Headers below `/kernel` and `/include`.
    headers: BTreeMap<PathBuf, String>,
}

impl Fake {
    /// Adds a header: below `/kernel` one of the kernel, below `/include` one of the platform.
    pub fn with_header(mut self, path: &str, text: &str) -> Self {
        self.headers.insert(path.into(), text.into());
        self
    }

    /// Parses a description. Errors quote the words that were not understood.
    pub fn new(text: &str) -> Result<Self, String> {
        let mut reader = Reader { words: words(text), ..Reader::default() };
        reader.statements()?;
        let Reader { btf, events, functions, symbols, binaries, cgroups, features, injectable, cpus, tracefs, types, .. } = reader;
        let types = if types { Some(KernelTypes::from_vec(btf.0.finish())?) } else { None };
        let tracepoints = events.keys().cloned().collect();
        let raw_tracepoints = types.as_ref().map(KernelTypes::raw_tracepoints).unwrap_or_default();
        let functions = Functions::parse(&functions, &BTreeSet::new(), "");
        Ok(Self {
            types,
            tracefs,
            events,
            tracepoints,
            raw_tracepoints,
            functions,
            symbols,
            binaries,
            cgroups,
            features,
            injectable,
            cpus: cpus.max(1),
            headers: BTreeMap::new(),
        })
    }

    fn missing(what: &str) -> Missing {
        Missing { what: format!("this system has no {what}"), help: None }
    }

    fn tracefs(&self) -> Result<(), Missing> {
        if self.tracefs { Ok(()) } else { Err(Self::missing("tracefs")) }
    }
}

impl TargetInfo for Fake {
    fn for_messages(&self) -> &dyn TargetInfo {
        self
    }

    fn type_named(&self, kind: TypeName, name: &str) -> Option<Type> {
        self.types.as_ref()?.named(kind, name)
    }

    fn member(&self, structure: &Struct, name: &str) -> Option<Field> {
        self.types.as_ref()?.member(structure, name)
    }

    fn expand(&self, structure: &Struct) -> Option<Record> {
        self.types.as_ref()?.expand(structure)
    }

    fn enumerator(&self, name: &str) -> Option<(Arc<Enum>, i64)> {
        self.types.as_ref()?.enumerator(name)
    }

    fn types_missing(&self) -> Option<Missing> {
        self.types.is_none().then(|| Self::missing("types"))
    }

    fn file(&self, path: &Path) -> Option<String> {
        self.headers.get(path).cloned()
    }

    fn header_folders(&self) -> Vec<HeaderFolder> {
        [("/kernel", true), ("/include", false)].map(|(path, kernel)| HeaderFolder { path: path.into(), kernel }).into()
    }

    fn tracepoints(&self) -> Result<&[(String, String)], Missing> {
        self.tracefs().map(|()| self.tracepoints.as_slice())
    }

    fn is_dynamic_tracepoint(&self, _category: &str, _name: &str) -> bool {
        false
    }

    fn has_tracepoint(&self, category: &str, name: &str) -> Result<bool, Missing> {
        self.tracefs().map(|()| self.events.contains_key(&(category.to_owned(), name.to_owned())))
    }

    fn tracepoint(&self, category: &str, name: &str) -> Result<Option<Tracepoint>, Missing> {
        self.tracefs()?;
        let format = self.events.get(&(category.to_owned(), name.to_owned()));
        Ok(format.and_then(|text| tracefs::parse_format(text, category, &|kind, name| self.type_named(kind, name))))
    }

    fn raw_tracepoints(&self) -> Result<&[(String, String)], Missing> {
        self.types_missing().map_or(Ok(&self.raw_tracepoints), Err)
    }

    fn raw_tracepoint(&self, name: &str) -> Option<Vec<(String, Type)>> {
        Some(self.types.as_ref()?.raw_tracepoint(name)?.params)
    }

    fn syscall_number(&self, name: &str) -> Option<u32> {
        syscalls::number(self.arch(), name)
    }

    fn functions(&self) -> Result<&Functions, Missing> {
        Ok(&self.functions)
    }

    fn function_homes(&self, name: &str) -> Result<Vec<FunctionLocation>, Missing> {
        Ok(self.functions.named(name).map(|f| FunctionLocation { module: f.module.into(), function: f.listed_name().into() }).collect())
    }

    /// The functions of modules are described with those of the kernel.
    fn kernel_types(&self) -> Option<&KernelTypes> {
        self.types.as_ref()
    }

    fn prototype(&self, module: Option<&str>, name: &str) -> Option<Prototype> {
        let found = self.types.as_ref()?.function(None, name)?;
        let home = self.functions.named(name).find(|f| module.is_none_or(|m| m == f.module))?.module.to_owned();
        Some(Prototype { module: home, ..found })
    }

    fn described_functions(&self, each: &mut dyn FnMut(&str, &str)) {
        if self.types.is_some() {
            self.functions.all().for_each(|f| each(f.name, f.module));
        }
    }

    fn text_symbols(&self, name: &str) -> Symbols {
        let parts = self.symbols.keys().filter(|s| s.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))).cloned();
        Symbols { is_exact: self.symbols.contains_key(name), parts: parts.collect() }
    }

    fn has_module(&self, name: &str) -> bool {
        name == functions::KERNEL || self.functions.all().any(|f| f.module == name)
    }

    fn hidden_symbols(&self) -> Option<String> {
        None
    }

    fn kernel_symbol(&self, name: &str) -> Option<u64> {
        self.symbols.get(name).copied()
    }

    /// Accepts a path or its last part (also `libc` for `libc.so.6`).
    fn resolve_binary(&self, name: &str, _pid: Option<u32>) -> Result<Vec<BinaryFile>, Missing> {
        let is = |path: &&PathBuf| {
            let file = path.file_name().and_then(|f| f.to_str()).unwrap_or_default();
            path.as_path() == Path::new(name) || file == name || file.strip_prefix(name).is_some_and(|rest| rest.starts_with(".so"))
        };
        let found: Vec<BinaryFile> = self.binaries.keys().filter(is).cloned().map(BinaryFile::from).collect();
        if found.is_empty() { Err(Self::missing(&format!("binary `{name}`"))) } else { Ok(found) }
    }

    fn binary(&self, path: &Path) -> Result<Arc<Binary>, Missing> {
        self.binaries.get(path).cloned().ok_or_else(|| Self::missing(&format!("binary `{}`", path.display())))
    }

    fn has(&self, feature: Feature) -> bool {
        self.features.contains(&feature)
    }

    fn error_injectable(&self, function: &str) -> Option<bool> {
        (!self.injectable.is_empty()).then(|| self.injectable.contains(function))
    }

    fn possible_cpus(&self) -> u32 {
        self.cpus
    }

    fn online_cpus(&self) -> Vec<u32> {
        (0..self.cpus).collect()
    }

    fn cgroup_id(&self, path: &str) -> Result<u64, Missing> {
        self.cgroups.get(path).copied().ok_or_else(|| Self::missing(&format!("cgroup `{path}`")))
    }
}

/// Splits a text into names and numbers (with `:` and `/` in them where statements use those) and single characters. `//`
/// starts a comment.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default();
        let mut word = String::new();
        for c in line.chars().chain([' ']) {
            if c.is_alphanumeric() || "_/.-".contains(c) {
                word.push(c);
                continue;
            }
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            if !c.is_whitespace() {
                words.push(c.into());
            }
        }
    }
    words.reverse();
    words
}

struct Btf(Writer);

impl Default for Btf {
    fn default() -> Self {
        Self(Writer::new(None))
    }
}

/// The layout of a type.
#[derive(Clone, Copy)]
struct Shape {
    id: u32,
    size: u32,
    align: u32,
    signed: bool,
}

/// A declaration: its type (`None`: only the name is known), name, and width as a bit-field.
struct Declared {
    shape: Shape,
    name: String,
    bits: Option<u32>,
    text: String,
}

struct Reader {
    /// The words in reverse order, so that the last one is next.
    words: Vec<String>,
    btf: Btf,
    /// `struct x`, `u32`, `int`.
    known: BTreeMap<String, Shape>,
    events: BTreeMap<(String, String), String>,
    /// Lines of `available_filter_functions`.
    functions: String,
    symbols: BTreeMap<String, u64>,
    binaries: BTreeMap<PathBuf, Arc<Binary>>,
    cgroups: BTreeMap<String, u64>,
    features: BTreeSet<Feature>,
    injectable: BTreeSet<String>,
    cpus: u32,
    tracefs: bool,
    types: bool,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            words: Vec::new(),
            btf: Btf::default(),
            known: BTreeMap::new(),
            events: BTreeMap::new(),
            functions: String::new(),
            symbols: BTreeMap::new(),
            binaries: BTreeMap::new(),
            cgroups: BTreeMap::new(),
            features: BTreeSet::new(),
            injectable: BTreeSet::new(),
            cpus: 1,
            tracefs: true,
            types: true,
        }
    }
}

impl Reader {
    fn statements(&mut self) -> Result<(), String> {
        while let Some(word) = self.words.pop() {
            match word.as_str() {
                ";" => {}
                "struct" | "union" | "enum" if self.words.iter().rev().take(2).any(|w| w == "{") => {
                    self.words.push(word);
                    self.base()?;
                }
                "typedef" => {
                    let d = self.declared()?;
                    let id = self.btf.0.add(Kind::Typedef, false, &d.name, 0, d.shape.id, &[]);
                    self.known.insert(d.name, Shape { id, ..d.shape });
                }
                "tracepoint" => self.tracepoint()?,
                "rawtracepoint" => self.raw_tracepoint()?,
                "symbol" => {
                    let (name, address) = (self.next()?, self.number()?);
                    self.symbols.insert(name, address);
                }
                "function" => self.function()?,
                "binary" => self.binary()?,
                "cgroup" => {
                    let (path, id) = (self.next()?, self.number()?);
                    self.cgroups.insert(path, id);
                }
                "cpus" => self.cpus = u32::try_from(self.number()?).map_err(|e| e.to_string())?,
                "feature" => {
                    let name = self.next()?;
                    let chosen = Feature::named(&name);
                    self.features.insert(chosen.ok_or_else(|| format!("`feature {name}`: there is none"))?);
                }
                "injectable" => {
                    let name = self.next()?;
                    self.injectable.insert(name);
                }
                "no" => match self.next()?.as_str() {
                    "tracefs" => self.tracefs = false,
                    "types" => self.types = false,
                    other => return Err(format!("`no {other}` means nothing")),
                },
                other => return Err(format!("no statement begins with `{other}`")),
            }
        }
        Ok(())
    }

    fn tracepoint(&mut self) -> Result<(), String> {
        let category = self.next()?;
        self.expect(":")?;
        let name = self.next()?;
        self.expect("{")?;
        let syscall = category == "syscalls";
        let id = 1000 + self.events.len();
        let mut text = format!(
            "name: {name}\nID: {id}\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
             \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
        );
        let mut at = 8;
        if syscall {
            text += "\tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;\n";
            at = 16;
        }
        while !self.accept("}") {
            let d = self.declared()?;
            let Shape { size, align, signed, .. } = d.shape;
            let (size, align, signed) = if syscall { (8, 8, false) } else { (size, align, signed) };
            at = u32::next_multiple_of(at, align.max(1));
            text += &format!("\tfield:{};\toffset:{at};\tsize:{size};\tsigned:{};\n", d.text, u8::from(signed));
            at += size;
        }
        self.events.insert((category, name), text);
        Ok(())
    }

    fn raw_tracepoint(&mut self) -> Result<(), String> {
        let name = self.next()?;
        self.expect("(")?;
        let void = self.btf.0.add(Kind::Ptr, false, "", 0, 0, &[]);
        let data = self.btf.0.string("__data");
        let mut params = vec![data, void];
        while !self.accept(")") {
            let d = self.declared_until(&[",", ")"])?;
            params.extend([self.btf.0.string(&d.name), d.shape.id]);
            self.accept(",");
        }
        let proto = self.btf.0.add(Kind::FuncProto, false, "", params.len() as u32 / 2, 0, &params);
        let pointer = self.btf.0.add(Kind::Ptr, false, "", 0, proto, &[]);
        self.btf.0.add(Kind::Typedef, false, &format!("btf_trace_{name}"), 0, pointer, &[]);
        self.btf.0.add(Kind::Func, false, &format!("__traceiter_{name}"), 1, proto, &[]);
        Ok(())
    }

    fn function(&mut self) -> Result<(), String> {
        let module = if self.accept("[") {
            let module = self.next()?;
            self.expect("]")?;
            format!(" [{module}]")
        } else {
            String::new()
        };
        let d = self.declared_until(&["("])?;
        self.expect("(")?;
        let mut params = Vec::new();
        while !self.accept(")") {
            let p = self.declared_until(&[",", ")"])?;
            if p.shape.id != 0 {
                params.extend([self.btf.0.string(&p.name), p.shape.id]);
            }
            self.accept(",");
        }
        let proto = self.btf.0.add(Kind::FuncProto, false, "", params.len() as u32 / 2, d.shape.id, &params);
        self.btf.0.add(Kind::Func, false, &d.name, 1, proto, &[]);
        self.functions += &format!("{}{module}\n", d.name);
        self.symbols.entry(d.name).or_insert(0xffff_ffff_8200_0000);
        Ok(())
    }

    fn binary(&mut self) -> Result<(), String> {
        let path = PathBuf::from(self.next()?);
        self.expect("{")?;
        let mut functions = Vec::new();
        while !self.accept("}") {
            let (name, addr) = (self.next()?, self.number()?);
            let size = if self.accept(";") { 0 } else { self.number()? };
            functions.push(Function { name, addr, size, offset: addr, abi: Abi::SystemV });
            self.accept(";");
        }
        functions.sort();
        let binary = Binary {
            path: path.clone(),
            functions,
            objects: Vec::new(),
            segments: vec![crate::system::binary::elf::Segment { address: 0, offset: 0, size: 1 << 32, executable: true }],
            pie: true,
            build_id: Vec::new(),
        };
        self.binaries.insert(path, Arc::new(binary));
        Ok(())
    }

    /// Parses a declaration and its `;`.
    fn declared(&mut self) -> Result<Declared, String> {
        let d = self.declared_until(&[";"])?;
        self.accept(";");
        Ok(d)
    }

    /// Parses `const char *name`, `char name[16]`, `unsigned x : 3`, `__data_loc char[] name`, up to one of these words.
    fn declared_until(&mut self, ends: &[&str]) -> Result<Declared, String> {
        let before = self.words.clone();
        let loc = self.accept("__data_loc") || self.accept("__rel_loc");
        let mut shape = self.base()?;
        loop {
            if self.accept("*") {
                let id = self.btf.0.add(Kind::Ptr, false, "", 0, shape.id, &[]);
                shape = Shape { id, size: 8, align: 8, signed: false };
            } else if !self.accept("const") {
                break;
            }
        }
        let (mut name, mut bits, mut lengths) = (String::new(), None, Vec::new());
        while self.words.last().is_some_and(|w| !ends.contains(&w.as_str())) {
            match self.next()?.as_str() {
                "[" => {
                    lengths.push(if self.accept("]") { 0 } else { self.number()? as u32 });
                    self.accept("]");
                }
                ":" => bits = Some(self.number()? as u32),
                word => name = word.to_owned(),
            }
        }
        for n in lengths.into_iter().rev() {
            let id = self.btf.0.add(Kind::Array, false, "", 0, 0, &[shape.id, shape.id, n]);
            shape = Shape { id, size: shape.size * n, ..shape };
        }
        if loc {
            shape = Shape { size: 4, align: 4, signed: false, ..shape };
        }
        // The conventional spacing of C: no space before `[`, after `*` or between `]`s.
        let mut text = String::new();
        for word in before.get(self.words.len()..).unwrap_or_default().iter().rev() {
            if !text.is_empty() && word != "[" && word != "]" && !text.ends_with('[') {
                text.push(' ');
            }
            text += word;
        }
        Ok(Declared { shape, name, bits, text })
    }

    /// Parses a type without stars and brackets.
    fn base(&mut self) -> Result<Shape, String> {
        while self.accept("const") || self.accept("volatile") {}
        let word = self.next()?;
        if !matches!(word.as_str(), "struct" | "union" | "enum") {
            return self.plain(word);
        }
        let tag = if self.words.last().is_some_and(|w| w == "{") { String::new() } else { self.next()? };
        let key = format!("{word} {tag}");
        if self.accept("{") {
            let shape = if word == "enum" { self.variants(&tag)? } else { self.members(&tag, word == "union")? };
            if !tag.is_empty() {
                self.known.insert(key, shape);
            }
            return Ok(shape);
        }
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        // Only pointers may refer to an unknown tag; the BTF reader resolves it by name.
        let id = self.btf.0.add(Kind::Fwd, word == "union", &tag, 0, 0, &[]);
        Ok(Shape { id, size: 0, align: 1, signed: false })
    }

    /// `unsigned long`, `pid_t`, `void`.
    fn plain(&mut self, first: String) -> Result<Shape, String> {
        let mut name = first;
        while let Some(more) = self.words.last().filter(|w| matches!(w.as_str(), "unsigned" | "signed" | "long" | "int" | "short" | "char"))
        {
            name = format!("{name} {more}");
            self.words.pop();
        }
        if name == "void" {
            return Ok(Shape { id: 0, size: 0, align: 1, signed: false });
        }
        if let Some(known) = self.known.get(&name) {
            return Ok(*known);
        }
        let (bytes, signed, boolean) = match c_int(&name) {
            Some(Type::Int(Int { bytes, signed })) => (u32::from(bytes), signed, false),
            Some(Type::Bool) => (1, false, true),
            _ => return Err(format!("`{name}` is no type that was declared before")),
        };
        // BTF_INT_SIGNED 1, BTF_INT_BOOL 4; the lowest byte is the width in bits.
        let encoding = u32::from(signed) | u32::from(boolean) << 2;
        let id = self.btf.0.add(Kind::Int, false, &name, 0, bytes, &[(encoding << 24) | (bytes * 8)]);
        let shape = Shape { id, size: bytes, align: bytes, signed };
        self.known.insert(name, shape);
        Ok(shape)
    }

    fn members(&mut self, tag: &str, union: bool) -> Result<Shape, String> {
        let (mut members, mut at, mut size, mut align) = (Vec::new(), 0, 0, 1);
        while !self.accept("}") {
            let d = self.declared()?;
            let (unit, width) = (d.shape.align.max(1) * 8, d.bits.unwrap_or(d.shape.size * 8));
            // A bit-field shares the storage unit of the previous one if both fit.
            if d.bits.is_none() || at % unit + width > unit {
                at = u32::next_multiple_of(at, unit);
            }
            members.push((self.btf.0.string(&d.name), d.shape.id, d.bits.unwrap_or(0) << 24 | at));
            size = size.max((at + width).div_ceil(8));
            align = align.max(d.shape.align);
            at = if union { 0 } else { at + width };
        }
        let size = u32::next_multiple_of(size, align);
        let tail: Vec<u32> = members.iter().flat_map(|(name, id, at)| [*name, *id, *at]).collect();
        let flag = tail.chunks(3).any(|m| m.last().is_some_and(|at| at >> 24 != 0));
        let kind = if union { Kind::Union } else { Kind::Struct };
        let id = self.btf.0.add(kind, flag, tag, members.len() as u32, size, &tail);
        Ok(Shape { id, size, align, signed: false })
    }

    fn variants(&mut self, tag: &str) -> Result<Shape, String> {
        let (mut tail, mut value, mut signed) = (Vec::new(), 0i64, false);
        while !self.accept("}") {
            let name = self.next()?;
            if self.accept("=") {
                value = self.number()? as i64;
            }
            signed |= value < 0;
            tail.extend([self.btf.0.string(&name), value as u32]);
            value += 1;
            self.accept(",");
        }
        let id = self.btf.0.add(Kind::Enum, signed, tag, tail.len() as u32 / 2, 4, &tail);
        Ok(Shape { id, size: 4, align: 4, signed })
    }

    fn next(&mut self) -> Result<String, String> {
        self.words.pop().ok_or_else(|| "the text ends too soon".into())
    }

    fn accept(&mut self, word: &str) -> bool {
        let is = self.words.last().is_some_and(|w| w == word);
        if is {
            self.words.pop();
        }
        is
    }

    fn expect(&mut self, word: &str) -> Result<(), String> {
        let found = self.next()?;
        if found == word { Ok(()) } else { Err(format!("`{word}` expected, `{found}` found")) }
    }

    fn number(&mut self) -> Result<u64, String> {
        let word = self.next()?;
        let parsed = match (word.strip_prefix("0x"), word.strip_prefix('-')) {
            (Some(hex), _) => u64::from_str_radix(hex, 16).ok(),
            (_, Some(digits)) => digits.parse::<i64>().ok().map(|n| -n as u64),
            _ => word.parse().ok(),
        };
        parsed.ok_or_else(|| format!("a number expected, `{word}` found"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::DataLoc;
    use crate::types::Space;

    const TEXT: &str = "
        enum state { IDLE, BUSY = 4, };
        typedef int pid_t;
        struct list { struct list *next; };
        struct task_struct {
            pid_t pid; char comm[16]; unsigned on_cpu : 1; unsigned prio : 7; struct task_struct *parent;
            union { long a; int b; }; struct { short x; short y[2]; } inner; enum state state; // the rest is padding
        };
        tracepoint sched:sched_switch { char prev_comm[16]; pid_t prev_pid; __data_loc char[] name; struct task_struct *next; }
        tracepoint syscalls:sys_enter_openat { int dfd; const char *filename; }
        rawtracepoint sched_switch(bool preempt, struct task_struct *prev);
        symbol schedule 0xffffffff81000000;
        binary /lib/libdemo.so.6 { main 0x1000 32; helper 0x1040; }
        cgroup /a/b 77; cpus 4; feature UprobeMulti;
    ";

    #[test]
    fn types_are_laid_out_as_in_c() {
        let fake = Fake::new(TEXT).unwrap();
        let Some(Type::Struct(task)) = fake.type_named(TypeName::Struct, "task_struct") else { panic!("no task_struct") };
        assert_eq!(task.size, 56);
        let at = |name: &str| fake.member(&task, name).map(|f| (f.offset, f.bits, f.ty));
        assert_eq!(at("pid"), Some((0, None, Type::int(4))));
        assert_eq!(at("comm"), Some((4, None, Type::Str(16))));
        assert_eq!(at("on_cpu"), Some((20, Some((0, 1)), Type::uint(4))));
        assert_eq!(at("prio"), Some((20, Some((1, 7)), Type::uint(4))));
        assert_eq!(at("parent"), Some((24, None, Type::Struct(task.clone()).ptr(Space::Kernel))));
        assert_eq!(at("b"), Some((32, None, Type::int(4))));
        assert_eq!(at("nothing"), None);
        let all = fake.expand(&task).unwrap();
        let names: Vec<&str> = all.fields.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["pid", "comm", "on_cpu", "prio", "parent", "a", "b", "inner", "state"]);
        assert!(matches!(&all.fields[7].ty, Type::Record(r) if r.fields[1].offset == 2 && r.size == 6), "{all:?}");
        let (state, value) = fake.enumerator("BUSY").unwrap();
        assert_eq!((state.name.as_str(), value), ("state", 4));
    }

    #[test]
    fn events_are_described_as_tracefs_does() {
        let fake = Fake::new(TEXT).unwrap();
        let event = fake.tracepoint("sched", "sched_switch").unwrap().unwrap();
        let fields: Vec<_> = event.fields.iter().map(|f| (f.field.name.as_str(), f.field.offset, f.loc)).collect();
        let expected = [("prev_comm", 8, None), ("prev_pid", 24, None), ("name", 28, Some(DataLoc::Absolute)), ("next", 32, None)];
        assert_eq!(fields, expected);
        assert_eq!(event.fields[2].field.ty, Type::Str(0));
        assert_eq!(event.fields[2].decl, "__data_loc char[] name");
        let openat = fake.tracepoint("syscalls", "sys_enter_openat").unwrap().unwrap();
        assert_eq!(openat.fields[2].field.ty, Type::int(1).ptr(Space::User));
        assert_eq!(openat.fields[2].decl, "const char * filename");
        let raw = fake.raw_tracepoint("sched_switch").unwrap();
        assert_eq!((raw.len(), raw[0].0.as_str(), &raw[0].1, raw[1].0.as_str()), (2, "preempt", &Type::Bool, "prev"));
        assert_eq!(fake.raw_tracepoints().unwrap(), [("vmlinux".to_owned(), "sched_switch".to_owned())]);
    }

    #[test]
    fn the_rest() {
        let fake = Fake::new(TEXT).unwrap();
        assert_eq!(fake.kernel_symbol("schedule"), Some(0xffff_ffff_8100_0000));
        let paths = fake.resolve_binary("libdemo", None).unwrap();
        assert_eq!(fake.binary(&paths[0].path).unwrap().functions_named("main").next().unwrap().size, 32);
        assert_eq!((fake.cgroup_id("/a/b"), fake.possible_cpus()), (Ok(77), 4));
        assert!(fake.has(Feature::UprobeMulti) && !fake.has(Feature::Loop));
        let bare = Fake::new("no tracefs; no types;").unwrap();
        assert!(bare.tracepoints().is_err() && bare.types_missing().is_some());
        assert!(Fake::new("struct x { nonsense y; };").is_err_and(|e| e.contains("nonsense")));
    }
}
