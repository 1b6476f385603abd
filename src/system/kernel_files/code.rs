//! The functions of a kernel image that can be traced, those without kprobes, and those that can be overridden.
//!
//! The compiler records each address that ftrace may patch (`__mcount_loc`). A booted kernel lists those that remain after
//! initialization by the names in its symbol table (`kernel/trace/ftrace.c`).

use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::Range;

use super::image::{Image, Symbol, pointers};
use super::tables::Tables;
use crate::system::kernel::functions::is_padding;
use crate::system::machine::arch;

/// Maximum offset of the patchable address in a function: after the landing pad (`endbr64` of x86, `bti c` of arm64).
const PAD: u64 = 8;
/// Offset before the function on kernels that store a pointer there (`DYNAMIC_FTRACE_WITH_CALL_OPS` of arm64).
const CALL_OPS_OFFSET: u64 = 8;

/// The symbols of an image in the order of their addresses.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    all: Vec<Symbol>,
    /// Further symbols that are not functions, such as `__start_…`.
    others: Vec<Symbol>,
}

impl Symbols {
    /// Sorts symbols by address. If several have the same address, the first one is the listed name.
    pub(super) fn new(mut all: Vec<Symbol>, more: Vec<Symbol>) -> Self {
        all.sort_by_key(|s| s.address);
        Self { all, others: more }
    }

    /// The address of the first symbol with this name.
    pub(super) fn address(&self, name: &str) -> Option<u64> {
        self.all.iter().chain(&self.others).find(|s| s.name == name).map(|s| s.address)
    }

    /// The range between two symbols.
    pub(super) fn range(&self, from: &str, to: &str) -> Option<Range<u64>> {
        Some(self.address(from)?..self.address(to)?)
    }

    /// The name of the function that contains an address, and the offset in it.
    pub(super) fn at(&self, address: u64) -> Option<(&str, u64)> {
        let end = self.all.partition_point(|s| s.address <= address);
        let place = self.all.get(end.checked_sub(1)?)?.address;
        let first = self.all.partition_point(|s| s.address < place);
        let of_code = self.all.get(first..end)?.iter().find(|s| is_code(s))?;
        Some((&of_code.name, address - place))
    }

    /// All names of one address.
    pub(super) fn names_at(&self, address: u64) -> impl Iterator<Item = &str> {
        let from = self.all.partition_point(|s| s.address < address);
        self.all.iter().skip(from).take_while(move |s| s.address == address).map(|s| s.name.as_str())
    }

    pub(super) fn code(&self) -> impl Iterator<Item = &Symbol> {
        self.all.iter().filter(|s| is_code(s))
    }

    /// Names of symbols that are not code.
    pub(super) fn variables(&self) -> impl Iterator<Item = &str> {
        self.all.iter().filter(|s| !is_code(s)).map(|s| s.name.as_str())
    }
}

fn is_code(symbol: &Symbol) -> bool {
    matches!(symbol.kind, b't' | b'T' | b'w' | b'W')
}

/// The functions of a kernel or a module, by their names in the symbol table.
#[derive(Debug, Default)]
pub(super) struct Code {
    /// Functions that the kernel would list as traceable; `None`: unknown.
    pub(super) traceable: Option<Vec<String>>,
    /// Functions on which it rejects kprobes.
    pub(super) blocked: BTreeSet<String>,
    /// Functions that can be made to return at once; `None`: unknown.
    pub(super) error_injectable: Option<Vec<String>>,
}

/// Reads the functions of the kernel itself.
pub(super) fn kernel_code(image: &Image<'_>, symbols: &Symbols, tables: &Tables<'_>) -> Code {
    let places = tables.patch_sites.map(|t| pointers(t).filter(|a| !tables.init.contains(a)).collect::<Vec<_>>());
    let listed = places.map(|places| traceable(&places, symbols, has_room(image))).filter(|all| !all.is_empty());

    let mut blocked = BTreeSet::new();
    for address in pointers(tables.kprobe_blacklist) {
        blocked.extend(symbols.at(address).map(|(name, _)| name.to_owned()));
    }
    // arch/x86/kernel/kprobes/core.c adds the entry code.
    for part in ["kprobes_text", "noinstr_text", "entry_text"] {
        if let Some(range) = symbols.range(&format!("__{part}_start"), &format!("__{part}_end")) {
            blocked.extend(symbols.code().filter(|s| range.contains(&s.address)).map(|s| s.name.clone()));
        }
    }
    // If this table does not exist but others are known, this kernel has no such functions.
    let error_injectable = listed.is_some().then(|| injectable(tables.error_injection, symbols));
    Code { traceable: listed, blocked, error_injectable }
}

/// Reads the functions of a module.
pub(super) fn module_code(image: &Image<'_>, symbols: &Symbols) -> Code {
    let gone = |address: u64| {
        let init = image.sections().iter().filter(|s| s.name.starts_with(".init"));
        init.into_iter().any(|s| (s.address..s.address + s.bytes.len() as u64).contains(&address))
    };
    let table = |name: &'static str| image.section(name).flat_map(|s| pointers(&s.bytes)).collect::<Vec<_>>();
    let has_room = has_room(image);
    let noted = match has_room {
        true => [table("__mcount_loc"), table("__patchable_function_entries")].concat(),
        false => table("__mcount_loc"),
    };
    let places: Vec<u64> = noted.into_iter().filter(|a| !gone(*a)).collect();
    let mut blocked = BTreeSet::new();
    for address in table("_kprobe_blacklist") {
        blocked.extend(symbols.at(address).map(|(name, _)| name.to_owned()));
    }
    for section in image.sections().iter().filter(|s| [".kprobes.text", ".noinstr.text"].contains(&s.name.as_str())) {
        let range = section.address..section.address + section.bytes.len() as u64;
        blocked.extend(symbols.code().filter(|s| range.contains(&s.address)).map(|s| s.name.clone()));
    }
    let errors: Vec<String> = image.section("_error_injection_whitelist").flat_map(|s| injectable(&s.bytes, symbols)).collect();
    Code { traceable: Some(traceable(&places, symbols, has_room)), blocked, error_injectable: Some(errors) }
}

/// Can there be a pointer before functions?
pub(super) fn has_room(image: &Image<'_>) -> bool {
    arch::named(&image.machine).is_none_or(|a| a.lists_patch_sites)
}

/// Returns names of functions.
fn traceable(places: &[u64], symbols: &Symbols, has_room: bool) -> Vec<String> {
    places.iter().filter_map(|place| patched(*place, symbols, has_room)).map(str::to_owned).collect()
}

/// The function that starts at an address which ftrace may patch. An address in the middle of a function belongs to a weak
/// function that another one replaced.
pub(super) fn patched(place: u64, symbols: &Symbols, has_room: bool) -> Option<&str> {
    let before = || symbols.at(place.wrapping_add(CALL_OPS_OFFSET)).filter(|(_, into)| has_room && *into == 0);
    before().or_else(|| symbols.at(place)).filter(|(_, into)| *into <= PAD).map(|(name, _)| name)
}

/// Size of `struct error_injection_entry`.
pub(super) const INJECTABLE: usize = 16;

/// `struct error_injection_entry`: an address and the kind of result, padded (`include/asm-generic/error-injection.h`).
fn injectable(table: &[u8], symbols: &Symbols) -> Vec<String> {
    let entries = table.chunks_exact(INJECTABLE).filter_map(|c| pointers(c).next());
    entries.filter_map(|a| symbols.at(a).filter(|(_, into)| *into == 0).map(|(name, _)| name.to_owned())).collect()
}

/// Writes symbols of code as lines of `/proc/kallsyms`, for
/// [`Functions::parse`](crate::system::kernel::functions::Functions::parse).
pub(super) fn write_symbols(symbols: &Symbols, module: &str, to: &mut String) {
    for symbol in symbols.code().filter(|s| !is_padding(&s.name)) {
        let _ = write!(to, "{:x} {} {}", symbol.address, char::from(symbol.kind), symbol.name);
        to.push_str(if module.is_empty() { "" } else { "\t[" });
        to.push_str(module);
        to.push_str(if module.is_empty() { "\n" } else { "]\n" });
    }
}
