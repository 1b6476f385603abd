//! The kernel features that a compiled BPF object needs.

use std::collections::{BTreeMap, BTreeSet};

use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};

use crate::system::kernel_types::btf::{Blob, Kind};

/// Opcode of a call: `BPF_JMP | BPF_CALL` of `include/uapi/linux/bpf.h`.
const CALL: u8 = 0x85;
/// Size of an instruction in bytes; a 64-bit load takes two (opcode `BPF_LD | BPF_IMM | BPF_DW`).
const INSTRUCTION: usize = 8;
const WIDE_LOAD: u8 = 0x18;

/// A map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeededMap {
    /// Its name in the object.
    pub name: String,
    /// `BPF_MAP_TYPE_…`
    pub kind: u32,
    /// Size of a key in bytes.
    pub key: u32,
    /// Size of a value in bytes.
    pub value: u32,
    /// Number of elements.
    pub entries: u32,
}

/// The requirements of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Helpers by number, each with the first function that calls it.
    pub helpers: BTreeMap<u32, String>,
    /// Required kernel functions (kfuncs).
    pub kernel_functions: BTreeSet<String>,
    /// Maps as declared; some get their size when they are loaded.
    pub maps: Vec<NeededMap>,
    /// Number of instructions by function.
    pub instructions: BTreeMap<String, usize>,
}

/// Reads an object that rbt compiled. Error: it is not such an object.
pub fn needs(elf: &[u8]) -> Result<Needs, String> {
    let file = object::File::parse(elf).map_err(|e| e.to_string())?;
    let mut needs = Needs { maps: maps(&file), ..Needs::default() };
    let configuration = configuration(&file);
    for symbol in file.symbols() {
        let Ok(name) = symbol.name() else { continue };
        // A weak symbol may be absent; the section of a global variable is data.
        if symbol.is_undefined() && !symbol.is_weak() && !name.is_empty() && !configuration.contains(name) {
            needs.kernel_functions.insert(name.to_owned());
        }
    }
    for section in file.sections().filter(|s| s.kind() == SectionKind::Text) {
        let Ok(code) = section.data() else { continue };
        let mut functions: Vec<(u64, u64, String)> = file
            .symbols()
            .filter(|s| s.section_index() == Some(section.index()) && s.kind() == SymbolKind::Text)
            .filter_map(|s| Some((s.address(), s.size(), s.name().ok()?.to_owned())))
            .collect();
        functions.sort();
        for (at, size, name) in &functions {
            needs.instructions.insert(name.clone(), *size as usize / INSTRUCTION);
            let Some(body) = code.get(*at as usize..(*at + *size) as usize) else { continue };
            for number in helpers(body) {
                needs.helpers.entry(number).or_insert_with(|| name.clone());
            }
        }
    }
    Ok(needs)
}

/// Returns the numbers of the helpers that code calls.
fn helpers(code: &[u8]) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut rest = code;
    while let Some((insn, after)) = rest.split_at_checked(INSTRUCTION) {
        rest = after;
        let [opcode, registers, _, _, imm @ ..] = insn else { continue };
        // With another source register, it is a call of a function of the object or of the kernel.
        if *opcode == CALL && registers >> 4 == 0 {
            found.extend(imm.try_into().map(u32::from_le_bytes));
        }
        if *opcode == WIDE_LOAD {
            rest = rest.get(INSTRUCTION..).unwrap_or_default();
        }
    }
    found
}

/// The types of an object.
fn types(file: &object::File) -> Option<Blob> {
    Blob::from_vec(file.section_by_name(".BTF")?.data().ok()?.to_vec(), None).ok()
}

/// Options of the kernel's configuration that an imported object reads, which libbpf finds.
fn configuration(file: &object::File) -> BTreeSet<String> {
    let Some(btf) = types(file) else { return BTreeSet::new() };
    let section = btf.entries().find(|(_, e)| e.kind == Kind::Datasec && btf.string(e.name) == Some(".kconfig"));
    let variables = section.into_iter().flat_map(|(_, section)| section.parts::<3>());
    variables.filter_map(|[variable, ..]| btf.string(btf.entry(variable)?.name).map(str::to_owned)).collect()
}

/// Reads maps from `.BTF`: variables of `.maps`. Each is a struct whose members' types encode the numbers (libbpf's `__uint`: a
/// pointer to an array of that length).
fn maps(file: &object::File) -> Vec<NeededMap> {
    let Some(btf) = types(file) else { return Vec::new() };
    let number = |id: u32| {
        let pointer = btf.entry(id).filter(|e| e.kind == Kind::Ptr)?;
        let array = btf.entry(pointer.size_or_type).filter(|e| e.kind == Kind::Array)?;
        array.word(2)
    };
    let map = |variable: u32| {
        let variable = btf.entry(variable).filter(|e| e.kind == Kind::Var)?;
        let of = btf.entry(variable.size_or_type).filter(|e| e.kind == Kind::Struct)?;
        let mut map = NeededMap { name: btf.string(variable.name)?.into(), kind: 0, key: 0, value: 0, entries: 0 };
        for [name, ty, _] in of.parts::<3>() {
            let to = match btf.string(name) {
                Some("type") => &mut map.kind,
                Some("key_size") => &mut map.key,
                Some("value_size") => &mut map.value,
                Some("max_entries") => &mut map.entries,
                _ => continue,
            };
            *to = number(ty).unwrap_or(0);
        }
        Some(map)
    };
    let section = btf.entries().find(|(_, e)| e.kind == Kind::Datasec && btf.string(e.name) == Some(".maps"));
    let Some((_, section)) = section else { return Vec::new() };
    section.parts::<3>().filter_map(|[variable, ..]| map(variable)).collect()
}

#[cfg(test)]
mod tests {
    use super::helpers;

    #[test]
    fn distinguishes_helper_calls() {
        let code = [
            [0x85, 0, 0, 0, 5, 0, 0, 0],    // bpf_ktime_get_ns
            [0x18, 0x11, 0, 0, 0, 0, 0, 0], // a map's address, whose second half is not an instruction
            [0x85, 0, 0, 0, 99, 0, 0, 0],   //
            [0x85, 0x10, 0, 0, 7, 0, 0, 0], // a function of the object
            [0x85, 0x20, 0, 0, 8, 0, 0, 0], // one of the kernel
            [0x85, 0, 0, 0, 130, 0, 0, 0],  // bpf_ringbuf_output
            [0x95, 0, 0, 0, 0, 0, 0, 0],    // exit
        ];
        assert_eq!(helpers(&code.concat()).into_iter().collect::<Vec<_>>(), [5, 130]);
        assert!(helpers(&[0x85, 0, 0]).is_empty());
    }
}
