//! Reads BPF objects that scripts import: checks that they can be linked, and finds their functions.
//!
//! The linker and the loader of libbpf are written for objects of compilers, so everything that they rely on is checked here.

use std::collections::{BTreeMap, BTreeSet};

use object::elf;
use object::read::elf::{ElfFile64, FileHeader, SectionHeader, Sym};
use object::{LittleEndian, Object as _, ObjectSection, ObjectSymbol, SectionIndex, SectionKind, SymbolKind};

use crate::linked::{CType, Function, MAX_PARAMETERS, Object, Signature};
use crate::system::kernel_types::btf::{Blob, Kind};
use crate::system::portability::questions::digest;
use crate::types::Int;

/// Maximum size of an object in bytes.
const MAX_BYTES: u64 = 4 << 20;
/// Maximum number of symbols, of which a program of the kernel's maximum size can use few.
const MAX_SYMBOLS: usize = 4096;
/// Size of an instruction in bytes.
const INSTRUCTION: u64 = 8;
/// Maximum nesting of a parameter's type.
const MAX_NESTING: u32 = 8;
/// The section of functions that are not programs.
const TEXT: &str = ".text";
/// Licenses that the kernel takes for the GPL (`license_is_gpl_compatible` of include/linux/license.h).
const GPL: [&str; 6] = ["GPL", "GPL v2", "GPL and additional rights", "Dual BSD/GPL", "Dual MIT/GPL", "Dual MPL/GPL"];

type File<'a> = ElfFile64<'a, LittleEndian>;

/// Reads an object.
///
/// # Errors
/// Why it cannot be linked.
pub fn read(name: String, bytes: Vec<u8>) -> Result<Object, String> {
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("it is larger than {} megabytes", MAX_BYTES >> 20));
    }
    let functions = {
        let file = parse(&bytes)?;
        check_sections(&file)?;
        check_symbols(&file)?;
        check_relocations(&file)?;
        let btf = types(&file)?;
        functions(&file, &btf)?
    };
    let digest = digest(&bytes);
    Ok(Object { name, bytes, digest, functions })
}

fn parse(bytes: &[u8]) -> Result<File<'_>, String> {
    if !bytes.starts_with(&elf::ELFMAG) {
        return Err("it is not an ELF file".into());
    }
    let file = match object::File::parse(bytes) {
        Ok(object::File::Elf64(_)) => File::parse(bytes).map_err(|_| "it is not a little-endian BPF object".to_owned())?,
        Ok(_) => return Err("it is not a BPF object".into()),
        Err(e) => return Err(format!("it is damaged: {e}")),
    };
    let header = file.elf_header();
    if header.e_machine(LittleEndian) != elf::EM_BPF {
        return Err("it is not a BPF object".into());
    }
    if header.e_type(LittleEndian) != elf::ET_REL {
        return Err("it is not a relocatable object".into());
    }
    Ok(file)
}

/// Is it a section that becomes a map of global data?
fn is_data(name: &str) -> bool {
    [".data", ".rodata", ".bss"].iter().any(|start| name.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

/// Can this section be linked into a script?
fn is_linked(name: &str) -> bool {
    const OTHERS: [&str; 9] = [TEXT, ".maps", "license", "version", ".BTF", ".BTF.ext", ".symtab", ".strtab", ".shstrtab"];
    let name = name.strip_prefix(".rel").filter(|of| of.starts_with('.')).unwrap_or(name);
    is_data(name)
        || OTHERS.contains(&name)
        || [".llvm_addrsig", ".comment", ".note.GNU-stack"].contains(&name)
        || name.starts_with(".debug_")
}

fn check_sections(file: &File<'_>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for section in file.sections() {
        let name = section.name().map_err(|_| "the name of a section is damaged")?;
        let header = section.elf_section_header();
        if section.kind() == SectionKind::Text && name != TEXT {
            return Err(format!("it has a program of its own ({name}); only functions can be imported"));
        }
        if !is_linked(name) {
            return Err(format!("its section {name} cannot be linked"));
        }
        if !seen.insert(name.to_owned()) {
            return Err(format!("it has two sections {name}"));
        }
        let damaged = || format!("its section {name} is damaged");
        if header.sh_type(LittleEndian) != elf::SHT_NOBITS {
            section.data().map_err(|_| damaged())?;
        } else if section.size() > MAX_BYTES {
            return Err(format!("its section {name} is too large"));
        }
        if header.sh_type(LittleEndian) == elf::SHT_STRTAB && section.data().is_ok_and(|names| std::str::from_utf8(names).is_err()) {
            return Err(format!("its section {name} contains names that are not UTF-8"));
        }
        if name == TEXT && (section.size() % INSTRUCTION != 0 || header.sh_type(LittleEndian) != elf::SHT_PROGBITS) {
            return Err(damaged());
        }
    }
    Ok(())
}

fn check_symbols(file: &File<'_>) -> Result<(), String> {
    if file.symbols().nth(MAX_SYMBOLS).is_some() {
        return Err(format!("it has more than {MAX_SYMBOLS} symbols"));
    }
    for symbol in file.symbols() {
        let name = symbol.name().map_err(|_| "the name of a symbol is damaged")?;
        let Some(section) = symbol.section_index() else {
            // the linker takes any of these for one of a section
            let index = symbol.elf_symbol().st_shndx(LittleEndian);
            let is_special = symbol.kind() != SymbolKind::Section && matches!(index, elf::SHN_UNDEF | elf::SHN_ABS);
            if is_special {
                continue;
            }
            return Err(format!("its symbol {name} is damaged"));
        };
        let section = file.section_by_index(section).map_err(|_| format!("its symbol {name} is damaged"))?;
        let end = symbol.address().checked_add(symbol.size());
        if end.is_none_or(|end| end > section.size()) {
            return Err(format!("its symbol {name} is damaged"));
        }
        if section.kind() == SectionKind::Text && (symbol.address() % INSTRUCTION != 0 || symbol.size() % INSTRUCTION != 0) {
            return Err(format!("its symbol {name} is damaged"));
        }
    }
    Ok(())
}

/// Each relocation must be within its section, because the linker writes there.
fn check_relocations(file: &File<'_>) -> Result<(), String> {
    let symbols = file.symbols().count() + 1;
    for section in file.sections() {
        let header = section.elf_section_header();
        let name = section.name().unwrap_or_default();
        let damaged = || format!("its section {name} is damaged");
        if header.sh_type(LittleEndian) != elf::SHT_REL || name.starts_with(".rel.debug_") {
            continue;
        }
        let data = section.data().map_err(|_| damaged())?;
        let index = SectionIndex(header.sh_info(LittleEndian) as usize);
        let target = file.section_by_index(index).map_err(|_| damaged())?;
        let target_type = target.elf_section_header().sh_type(LittleEndian);
        let (relocations, rest) = data.as_chunks::<{ size_of::<elf::Rel64<LittleEndian>>() }>();
        if target_type != elf::SHT_PROGBITS || !rest.is_empty() || header.sh_entsize(LittleEndian) != 16 {
            return Err(damaged());
        }
        for relocation in relocations {
            let (offset, info) = relocation.split_at(8);
            let offset = offset.try_into().map(u64::from_le_bytes).map_err(|_| damaged())?;
            // the upper half of r_info is the symbol
            let symbol = info.get(4..).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes).ok_or_else(damaged)?;
            let width = if name == ".rel.text" { INSTRUCTION } else { 4 };
            if offset.checked_add(width).is_none_or(|end| end > target.size()) || symbol as usize >= symbols {
                return Err(damaged());
            }
        }
    }
    Ok(())
}

/// Its types.
fn types(file: &File<'_>) -> Result<Blob, String> {
    let section = file.section_by_name(".BTF").ok_or("it has no BTF; compile it with `clang -g`")?;
    let data = section.data().map_err(|_| "its BTF is damaged")?;
    let types = Blob::from_vec(data.to_vec(), None).map_err(|e| format!("its BTF is damaged: {e}"))?;
    // libbpf's messages contain names, and libbpf-rs panics if they are not UTF-8
    if types.has_only_text() { Ok(types) } else { Err("its BTF contains names that are not UTF-8".into()) }
}

/// The functions that other objects can call.
fn functions(file: &File<'_>, btf: &Blob) -> Result<Vec<Function>, String> {
    const STATIC: u32 = 0;
    let described = btf.entries().filter(|(_, entry)| entry.kind == Kind::Func && entry.vlen != STATIC);
    let described: BTreeMap<&str, u32> = described.filter_map(|(_, e)| Some((btf.string(e.name)?, e.size_or_type))).collect();
    let mut found = Vec::new();
    for symbol in file.symbols().filter(|s| s.is_global() && s.is_definition() && s.kind() == SymbolKind::Text) {
        let name = symbol.name().map_err(|_| "the name of a symbol is damaged")?;
        let prototype = described.get(name).ok_or_else(|| format!("its BTF does not describe {name}"))?;
        found.push(Function { name: name.to_owned(), signature: signature(btf, *prototype) });
    }
    Ok(found)
}

fn signature(btf: &Blob, prototype: u32) -> Result<Signature, String> {
    let damaged = || "its BTF is damaged".to_owned();
    let prototype = btf.entry(prototype).filter(|entry| entry.kind == Kind::FuncProto).ok_or_else(damaged)?;
    let result = c_type(btf, prototype.size_or_type, 0).and_then(passed).map_err(|why| format!("its result is {why}"))?;
    let mut params = Vec::new();
    for [name, ty] in prototype.parts::<2>() {
        let name = btf.string(name).unwrap_or_default().to_owned();
        if ty == 0 {
            return Err("it takes a variable number of arguments".into());
        }
        let ty = c_type(btf, ty, 0).and_then(passed).map_err(|why| format!("its parameter `{name}` is {why}"))?;
        params.push((name, ty));
    }
    if params.len() > MAX_PARAMETERS {
        return Err(format!("it has more than {MAX_PARAMETERS} parameters"));
    }
    Ok(Signature { params, result })
}

/// A type whose values are passed in registers.
fn passed(ty: CType) -> Result<CType, String> {
    match ty {
        CType::Struct { name, union } => Err(format!("a {} {name}, not a pointer to it", if union { "union" } else { "struct" })),
        CType::Array(..) => Err("an array".into()),
        CType::Void | CType::Bool | CType::Int(_) | CType::Enum(..) | CType::Pointer(_) => Ok(ty),
    }
}

/// The type of this ID, without qualifiers and typedefs.
///
/// # Errors
/// What it is, if the linker cannot compare it.
fn c_type(btf: &Blob, id: u32, nesting: u32) -> Result<CType, String> {
    /// The bit of an integer's encoding: `BTF_INT_BOOL`, `BTF_INT_SIGNED` of include/uapi/linux/btf.h.
    const BOOL: u32 = 4;
    const SIGNED: u32 = 1;
    const MAX_QUALIFIERS: usize = 32;
    let mut id = id;
    for _ in 0..MAX_QUALIFIERS {
        if id == 0 {
            return Ok(CType::Void);
        }
        let entry = btf.entry(id).ok_or("of a damaged type")?;
        let name = || btf.string(entry.name).unwrap_or_default().to_owned();
        let int = |signed| match entry.size_or_type {
            bytes @ (1 | 2 | 4 | 8) => Ok(Int { bytes: bytes as u8, signed }),
            bytes => Err(format!("a number of {bytes} bytes")),
        };
        let inner = |id| if nesting < MAX_NESTING { c_type(btf, id, nesting + 1) } else { Err("of a deeply nested type".into()) };
        return match entry.kind {
            Kind::Typedef | Kind::Volatile | Kind::Const | Kind::Restrict | Kind::TypeTag => {
                id = entry.size_or_type;
                continue;
            }
            Kind::Int => match entry.word(0).unwrap_or_default() >> 24 {
                BOOL if entry.size_or_type == 1 => Ok(CType::Bool),
                encoding => Ok(CType::Int(int(encoding & SIGNED != 0)?)),
            },
            Kind::Enum => Ok(CType::Enum(name(), int(entry.flag)?)),
            Kind::Struct => Ok(CType::Struct { name: name(), union: false }),
            Kind::Union => Ok(CType::Struct { name: name(), union: true }),
            Kind::Fwd => Ok(CType::Struct { name: name(), union: entry.flag }),
            Kind::Array => Ok(CType::Array(Box::new(inner(entry.word(0).unwrap_or_default())?), entry.word(2).unwrap_or_default())),
            Kind::Ptr => Ok(CType::Pointer(Box::new(inner(entry.size_or_type)?))),
            Kind::FuncProto => Err("a pointer to a function".into()),
            Kind::Float => Err("a floating-point number".into()),
            Kind::Enum64 => Err("an enumeration of 64 bits".into()),
            Kind::Void | Kind::Func | Kind::Var | Kind::Datasec | Kind::DeclTag => Err("of a damaged type".into()),
        };
    }
    Err("of a damaged type".into())
}

/// The license of an object, if it states one.
fn license<'a>(file: &File<'a>) -> Option<&'a str> {
    let data = file.section_by_name("license")?.data().ok()?;
    std::str::from_utf8(data.split(|byte| *byte == 0).next()?).ok()
}

/// The bytes of an object for linking with a script of this license: the linker requires equal licenses, so a compatible one is
/// replaced.
///
/// # Errors
/// The licenses are incompatible.
pub fn with_license(object: &Object, script: &str) -> Result<Vec<u8>, String> {
    let file = parse(&object.bytes)?;
    let Some(own) = license(&file) else { return Ok(object.bytes.clone()) };
    if own != script && !(GPL.contains(&own) && GPL.contains(&script)) {
        return Err(format!("its license is `{own}`, but that of the script is `{script}`"));
    }
    let damaged = || "its section license is damaged".to_owned();
    let index = file.section_by_name("license").ok_or_else(damaged)?.index().0 as u64;
    let headers = file.elf_header().e_shoff(LittleEndian);
    let header = index.checked_mul(size_of::<elf::SectionHeader64<LittleEndian>>() as u64).and_then(|at| headers.checked_add(at));
    let header = usize::try_from(header.ok_or_else(damaged)?).map_err(|_| damaged())?;
    let mut bytes = object.bytes.clone();
    let text = [script.as_bytes(), &[0]].concat();
    // sh_offset and sh_size of `Elf64_Shdr`
    for (at, value) in [(24, bytes.len() as u64), (32, text.len() as u64)] {
        let place = bytes.get_mut(header + at..header + at + 8).ok_or_else(damaged)?;
        place.copy_from_slice(&value.to_le_bytes());
    }
    bytes.extend(text);
    Ok(bytes)
}

/// Gives functions with pointers hidden visibility, with which libbpf loads them as static ones. The kernel verifies a global
/// function once, and by itself, so its callers could not pass pointers to objects of the kernel, and before Linux 5.13 no pointers
/// at all (btf_prepare_func_args of kernel/bpf/btf.c). It verifies a static one with the arguments of each caller.
///
/// # Errors
/// The object is damaged.
pub fn with_hidden_functions(mut bytes: Vec<u8>, functions: &[Function]) -> Result<Vec<u8>, String> {
    let takes_pointer = |function: &Function| {
        let signature = function.signature.as_ref();
        signature.is_ok_and(|signature| signature.params.iter().any(|(_, ty)| matches!(ty, CType::Pointer(_))))
    };
    let hidden: BTreeSet<&str> = functions.iter().filter(|f| takes_pointer(f)).map(|f| f.name.as_str()).collect();
    let places: Vec<usize> = {
        let file = parse(&bytes)?;
        let table = file.section_by_name(".symtab").and_then(|section| section.file_range()).map_or(0, |(start, _)| start as usize);
        let is_hidden = |symbol: &object::read::elf::ElfSymbol64<LittleEndian>| {
            symbol.kind() == SymbolKind::Text && symbol.is_global() && symbol.name().is_ok_and(|name| hidden.contains(name))
        };
        let entry = size_of::<elf::Sym64<LittleEndian>>();
        file.symbols().filter(is_hidden).map(|symbol| table + symbol.index().0 * entry + ST_OTHER).collect()
    };
    for place in places {
        *bytes.get_mut(place).ok_or("its symbols are damaged")? = elf::STV_HIDDEN.0;
    }
    Ok(bytes)
}

/// The offset of `st_other`, which has the visibility, in `Elf64_Sym`.
const ST_OTHER: usize = 5;

/// The names that objects to be linked may not share.
#[derive(Default)]
pub struct Names {
    /// Symbols with global linkage that it defines.
    pub symbols: BTreeSet<String>,
    /// Sections of global data with names of their own.
    pub sections: BTreeSet<String>,
    /// Maps.
    pub maps: BTreeSet<String>,
}

/// The names in an object.
///
/// # Errors
/// It cannot be read.
pub fn names(bytes: &[u8]) -> Result<Names, String> {
    let file = parse(bytes)?;
    let mut names = Names::default();
    for symbol in file.symbols().filter(|s| s.is_global() && s.is_definition()) {
        let section = symbol.section_index().and_then(|index| file.section_by_index(index).ok());
        let name = symbol.name().unwrap_or_default().to_owned();
        match section.as_ref().and_then(|section| section.name().ok()) {
            // all objects have the same license
            Some("license" | "version") => {}
            Some(".maps") => {
                names.maps.insert(name.clone());
                names.symbols.insert(name);
            }
            _ => {
                names.symbols.insert(name);
            }
        }
    }
    let with_names = |name: &str| is_data(name) && ![".data", ".rodata", ".bss"].contains(&name);
    names.sections.extend(file.sections().filter_map(|s| s.name().ok().filter(|name| with_names(name)).map(str::to_owned)));
    Ok(names)
}

/// Are all names in an object text? libbpf prints some of them in messages, which must be UTF-8.
pub fn has_text_names(bytes: &[u8]) -> bool {
    // of struct btf_header (include/uapi/linux/btf.h): `hdr_len`, `str_off` and `str_len`
    let [header_length, offset, length] = [4, 16, 20];
    let Ok(file) = parse(bytes) else { return false };
    let of_btf = |data: &[u8]| {
        let word = |at: usize| Some(u32::from_le_bytes(data.get(at..at + 4)?.try_into().ok()?) as usize);
        let (Some(header), Some(from), Some(length)) = (word(header_length), word(offset), word(length)) else { return true };
        let strings = header.checked_add(from).and_then(|from| data.get(from..from.checked_add(length)?));
        strings.is_none_or(|strings| std::str::from_utf8(strings).is_ok())
    };
    file.sections().all(|section| match (section.name(), section.data()) {
        (Ok(".BTF"), Ok(data)) => of_btf(data),
        (Ok(_), _) => true,
        (Err(_), _) => false,
    }) && file.symbols().all(|symbol| symbol.name().is_ok())
}

/// Does an object contain this name?
pub fn mentions(object: &Object, name: &str) -> bool {
    memchr::memmem::find(&object.bytes, name.as_bytes()).is_some()
}

/// Functions and variables that a linked object needs, and that neither it nor the kernel defines.
///
/// # Errors
/// It cannot be read.
pub fn undefined(bytes: &[u8]) -> Result<Vec<String>, String> {
    let file = parse(bytes)?;
    let btf = types(&file)?;
    let mut known = BTreeSet::new();
    for (_, section) in btf.entries().filter(|(_, entry)| entry.kind == Kind::Datasec) {
        if matches!(btf.string(section.name), Some(".ksyms" | ".kconfig")) {
            known.extend(section.parts::<3>().filter_map(|[id, ..]| btf.string(btf.entry(id)?.name)));
        }
    }
    let missing = file.symbols().filter(|s| s.is_undefined() && !s.is_weak()).filter_map(|s| s.name().ok());
    Ok(missing.filter(|name| !name.is_empty() && !known.contains(name)).map(str::to_owned).collect())
}
