//! The types and functions of a binary, from its DWARF (versions 2 to 5).
//!
//! DWARF is in the file itself or in its separate debug file, which is found by build ID or by `.gnu_debuglink`.
//! References lead to the file in which `dwz` stored shared parts (`.gnu_debugaltlink`), and to the units that the
//! compiler split off (`-gsplit-dwarf`) into `.dwo` files or a `.dwp` package. To find a function, only the units with code at its
//! address are read. One pass over the top level of each unit indexes names, when a name is needed.
//!
//! The data may be invalid: chains of references are limited to `DEPTH` steps, members count against a budget, and
//! unreadable entries are skipped.

#![allow(clippy::wildcard_enum_match_arm)] // matches on one form of an attribute

mod calling_convention;
mod definitions;
mod expressions;
mod files;
mod frame;
mod functions;
mod lines;
mod locations;
mod no_location;
mod results;
mod sections;
mod split;
mod type_names;
mod types;

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use gimli::{AttributeValue, DW_AT_declaration, DW_AT_low_pc, DW_AT_name, Dwarf, EndianSlice, RunTimeEndian, Unit, UnitOffset};

use crate::system::binary::elf::{self, Segment};
use crate::system::machine::arch::Arch;
use crate::system::{Missing, TypeName};

pub use calling_convention::Argument;
pub use definitions::AmbiguousType;
pub use lines::{Inlined, Line};
pub use locations::{ArgumentLocation, Piece, Source};
pub use no_location::NoLocation;

/// Limit for chains of entries that refer to one another.
const DEPTH: u32 = 16;

/// Files stay mapped until the process ends, because the index of each opened binary does. So slices need no owner.
type Slice = EndianSlice<'static, RunTimeEndian>;
type Entry = gimli::DebuggingInformationEntry<Slice>;

/// A file of debug information, or the part of a package for one unit.
struct File {
    dwarf: Dwarf<Slice>,
    /// Units in order; type units come last.
    units: Vec<Unit<Slice>>,
}

/// Index of the file that `dwz` made; 0 is the binary's own file, or its separate debug file.
const SHARED: u32 = 1;

/// A reference to a debugging information entry in any file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Die {
    file: u32,
    unit: u32,
    at: usize,
}

/// All definitions by name.
type Names = BTreeMap<&'static [u8], Vec<Die>>;

/// Index of the top level of all units.
#[derive(Default)]
struct Index {
    structs: Names,
    unions: Names,
    enums: Names,
    plain: Names,
    /// Enumerations in order, including unnamed ones.
    enumerations: Vec<Die>,
    /// The first function at each address.
    functions: BTreeMap<u64, Die>,
    /// Further functions at the same address.
    same_address: BTreeMap<u64, Vec<Die>>,
}

/// Addresses where prologues end, by unit.
type Prologues = BTreeMap<(u32, u32), Rc<Vec<u64>>>;

/// The types of a binary.
pub struct BinaryTypes {
    /// The architecture of the binary.
    arch: &'static Arch,
    files: Vec<File>,
    /// Split units that were not found.
    absent: Vec<split::MissingUnit>,
    /// Types in units of their own, by signature.
    signatures: BTreeMap<u64, Die>,
    index: OnceCell<Index>,
    /// The first type ID of this binary.
    first_id: u32,
    ids: RefCell<BTreeMap<Die, u32>>,
    structs: RefCell<Vec<Die>>,
    /// The contents and segments of the binary itself, because a separate debug file has no code.
    image: Option<(&'static [u8], Vec<Segment>)>,
    /// Addresses where prologues end, for the units looked up so far.
    prologues: RefCell<Prologues>,
    /// The code of units, in order of address.
    unit_ranges: OnceCell<Vec<functions::UnitRange>>,
    functions: RefCell<functions::Known>,
    nested: RefCell<functions::Known>,
    /// The definitions of names, for those looked up so far.
    definitions: RefCell<definitions::Known>,
    /// The enumerations that have an enumerator of a name.
    enumerators: OnceCell<BTreeMap<&'static [u8], Vec<Die>>>,
}

impl BinaryTypes {
    /// Reads and indexes a binary's debug information; `Missing` if there is none. IDs of its structs start at `first_id`.
    /// `dirs` are those of `--debuginfo`.
    pub fn open(path: &Path, dirs: &[String], first_id: u32) -> Result<Self, Missing> {
        let files = files::load(path, dirs)?;
        let mut types = Self {
            arch: elf::arch_of(path),
            files: files.all,
            absent: files.absent,
            signatures: BTreeMap::new(),
            index: OnceCell::new(),
            first_id,
            ids: RefCell::default(),
            structs: RefCell::default(),
            image: image(path),
            prologues: RefCell::default(),
            unit_ranges: OnceCell::new(),
            functions: RefCell::default(),
            nested: RefCell::default(),
            definitions: RefCell::default(),
            enumerators: OnceCell::new(),
        };
        types.signatures = types.all_signatures();
        Ok(types)
    }

    fn all_signatures(&self) -> BTreeMap<u64, Die> {
        let mut all = BTreeMap::new();
        for (place, unit) in self.all_units() {
            if let Some((signature, at)) = sections::signature(unit) {
                all.entry(signature).or_insert(Die { at: at.0, ..place });
            }
        }
        all
    }

    fn index(&self) -> &Index {
        self.index.get_or_init(|| {
            let mut index = Index::default();
            for (place, unit) in self.all_units() {
                // A damaged unit does not affect other units.
                let _ = self.index_unit(&mut index, place, unit);
            }
            index
        })
    }

    /// Each unit with its location.
    fn all_units(&self) -> impl Iterator<Item = (Die, &Unit<Slice>)> {
        let places = |(file, of): (u32, &'_ File)| (0..of.units.len() as u32).map(move |unit| Die { file, unit, at: 0 });
        let all = (0..).zip(&self.files).flat_map(places);
        all.filter_map(|place| Some((place, self.unit(place)?)))
    }

    /// Why the debug information for the code at an address is missing.
    pub fn absent_at(&self, address: u64) -> Option<&Missing> {
        self.absent.iter().find(|a| a.code.iter().any(|r| (r.begin..r.end).contains(&address))).map(|a| &a.why)
    }

    /// Why some of the binary's types may be missing.
    pub fn absent(&self) -> Option<&Missing> {
        self.absent.first().map(|a| &a.why)
    }

    fn index_unit(&self, index: &mut Index, place: Die, unit: &Unit<Slice>) -> gimli::Result<()> {
        self.each_entry(place, unit, &mut |die, entry| match entry.tag() {
            gimli::DW_TAG_enumeration_type => {
                self.index_name(&mut index.enums, die, entry);
                index.enumerations.push(die);
            }
            gimli::DW_TAG_subprogram => {
                if let Some(address) = self.entry_address(die, entry)
                    && *index.functions.entry(address).or_insert(die) != die
                {
                    index.same_address.entry(address).or_default().push(die);
                }
            }
            tag => match kind_of(tag) {
                Some(TypeName::Struct) => self.index_name(&mut index.structs, die, entry),
                Some(TypeName::Union) => self.index_name(&mut index.unions, die, entry),
                Some(TypeName::Plain) => self.index_name(&mut index.plain, die, entry),
                Some(TypeName::Enum) | None => {}
            },
        })
    }

    fn index_name(&self, to: &mut Names, die: Die, entry: &Entry) {
        if entry.attr(DW_AT_declaration).is_none()
            && let Some(name) = self.name(die, entry)
        {
            to.entry(name).or_default().push(die);
        }
    }

    /// Visits the entries directly within a unit, and those within its namespaces.
    fn each_entry(&self, place: Die, unit: &Unit<Slice>, visit: &mut dyn FnMut(Die, &Entry)) -> gimli::Result<()> {
        let mut tree = unit.entries_tree(None)?;
        each_entry_of_scope(place, tree.root()?, 0, visit)
    }

    /// Names of all types of a kind, sorted.
    pub fn names(&self, kind: TypeName, each: &mut dyn FnMut(&str)) {
        self.table(kind).keys().filter_map(|n| std::str::from_utf8(n).ok()).for_each(each);
    }

    fn table(&self, kind: TypeName) -> &Names {
        match kind {
            TypeName::Struct => &self.index().structs,
            TypeName::Union => &self.index().unions,
            TypeName::Enum => &self.index().enums,
            TypeName::Plain => &self.index().plain,
        }
    }

    // ── Entries and their attributes

    fn unit(&self, die: Die) -> Option<&Unit<Slice>> {
        self.files.get(die.file as usize)?.units.get(die.unit as usize)
    }

    fn dwarf(&self, die: Die) -> Option<&Dwarf<Slice>> {
        match die.file {
            // The shared file belongs to the file that refers to it.
            SHARED => self.files.first()?.dwarf.sup(),
            file => Some(&self.files.get(file as usize)?.dwarf),
        }
    }

    fn entry(&self, die: Die) -> Option<Entry> {
        self.unit(die)?.entry(UnitOffset(die.at)).ok()
    }

    fn name(&self, die: Die, entry: &Entry) -> Option<&'static [u8]> {
        let value = entry.attr(DW_AT_name)?.value();
        let text = self.dwarf(die)?.attr_string(self.unit(die)?, value).ok()?;
        Some(text.slice()).filter(|n| !n.is_empty())
    }

    fn address(&self, die: Die, entry: &Entry) -> Option<u64> {
        let value = entry.attr(DW_AT_low_pc)?.value();
        self.dwarf(die)?.attr_address(self.unit(die)?, value).ok().flatten().filter(|a| *a != 0)
    }

    /// The entry address of a function.
    fn entry_address(&self, die: Die, entry: &Entry) -> Option<u64> {
        let entered = |what| self.dwarf(die)?.attr_address(self.unit(die)?, entry.attr(what)?.value()).ok().flatten();
        self.address(die, entry).or_else(|| entered(gimli::DW_AT_entry_pc)).or_else(|| {
            // A function in several parts starts with the first one.
            entry.attr(gimli::DW_AT_ranges)?;
            self.dwarf(die)?.die_ranges(self.unit(die)?, entry).ok()?.next().ok().flatten().map(|r| r.begin).filter(|a| *a != 0)
        })
    }

    fn number(entry: &Entry, what: gimli::DwAt) -> Option<u64> {
        entry.attr(what)?.udata_value()
    }

    /// The entry that an attribute refers to. A placeholder for a type in a type unit is resolved to that type.
    fn referred(&self, from: Die, entry: &Entry, what: gimli::DwAt) -> Option<Die> {
        let to = self.pointed(from, entry, what)?;
        if self.signatures.is_empty() {
            return Some(to);
        }
        let full = self.entry(to).and_then(|e| self.pointed(to, &e, gimli::DW_AT_signature));
        Some(full.unwrap_or(to))
    }

    fn pointed(&self, from: Die, entry: &Entry, what: gimli::DwAt) -> Option<Die> {
        let (file, offset) = match entry.attr(what)?.value() {
            AttributeValue::UnitRef(at) => return Some(Die { at: at.0, ..from }),
            AttributeValue::DebugInfoRef(offset) => (from.file, offset),
            AttributeValue::DebugInfoRefSup(offset) => (SHARED, offset),
            AttributeValue::DebugTypesRef(signature) => return self.signatures.get(&signature.0).copied(),
            _ => return None,
        };
        let units = &self.files.get(file as usize)?.units;
        // Units of a type section come last and have no offset in `.debug_info`.
        let start = |u: &Unit<Slice>| u.header.debug_info_offset().map_or(usize::MAX, |o| o.0);
        let unit = units.partition_point(|u| start(u) <= offset.0).checked_sub(1)?;
        let at = offset.to_unit_offset(&units.get(unit)?.header)?;
        Some(Die { file, unit: unit as u32, at: at.0 })
    }

    /// The direct children of an entry.
    fn children(&self, parent: Die) -> Vec<(Die, Entry)> {
        let mut all = Vec::new();
        let mut visit = || -> Option<()> {
            let mut tree = self.unit(parent)?.entries_tree(Some(UnitOffset(parent.at))).ok()?;
            let mut children = tree.root().ok()?.children();
            while let Some(child) = children.next().ok()? {
                let entry = child.entry().clone();
                all.push((Die { at: entry.offset().0, ..parent }, entry));
            }
            None
        };
        visit();
        all
    }
}

/// The kind of name that an entry with this tag defines, if it defines a type.
fn kind_of(tag: gimli::DwTag) -> Option<TypeName> {
    match tag {
        gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type => Some(TypeName::Struct),
        gimli::DW_TAG_union_type => Some(TypeName::Union),
        gimli::DW_TAG_enumeration_type => Some(TypeName::Enum),
        gimli::DW_TAG_typedef | gimli::DW_TAG_base_type => Some(TypeName::Plain),
        _ => None,
    }
}

fn each_entry_of_scope(
    place: Die,
    scope: gimli::EntriesTreeNode<'_, '_, Slice>,
    depth: u32,
    visit: &mut dyn FnMut(Die, &Entry),
) -> gimli::Result<()> {
    let mut children = scope.children();
    while let Some(child) = children.next()? {
        let entry = child.entry();
        if entry.tag() != gimli::DW_TAG_namespace {
            visit(Die { at: entry.offset().0, ..place }, entry);
        } else if depth < DEPTH {
            each_entry_of_scope(place, child, depth + 1, visit)?;
        }
    }
    Ok(())
}

fn image(path: &Path) -> Option<(&'static [u8], Vec<Segment>)> {
    let segments = elf::segments(path)?;
    Some((&**Box::leak(Box::new(elf::map(path).ok()?)), segments))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::system::{Abi, Function};
    use crate::types::Type;

    fn built(folder: &Path, flags: &[&str]) -> std::path::PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/shapes.c");
        let out = folder.join(format!("shapes{}", flags.concat()));
        let done = std::process::Command::new("cc").args(flags).arg("-o").arg(&out).arg(source).status().unwrap();
        assert!(done.success());
        out
    }

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("rbt-dwarf-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Runs every query.
    fn run_queries(path: &Path) -> Option<Vec<String>> {
        let types = BinaryTypes::open(path, &[], 100).ok()?;
        let mut lines = Vec::new();
        for name in ["node", "point", "large", "mixed"] {
            let Ok(Some(Type::Struct(s))) = types.named(0, TypeName::Struct, name) else { continue };
            for member in ["next", "tag", "low", "high", "hi", "corner", "colour", "on", "x", "c", "n"] {
                lines.extend(types.member(&s, member).map(|f| format!("{name}.{member} {} {:?} {}", f.offset, f.bits, f.ty)));
            }
            lines.extend(types.expand(&s).map(|r| format!("{name} {} {}", r.size, r.fields.len())));
        }
        lines.extend(types.enumerators(0, "BLUE").into_iter().map(|(e, v)| format!("{} {v}", e.name)));
        for addr in types.index().functions.keys() {
            let function = Function { name: String::new(), addr: *addr, size: 0, offset: 0, abi: Abi::SystemV };
            for a in types.arguments(&function).unwrap_or_default() {
                lines.push(match a.location {
                    Ok(place) => format!("{} {} {:?}", a.name, a.ty, place.pieces),
                    Err(why) => format!("{} {}: {why}", a.name, a.ty),
                });
            }
        }
        Some(lines)
    }

    #[test]
    fn all_versions_agree() {
        let folder = folder("versions");
        let expected = run_queries(&built(&folder, &["-gdwarf-5"])).unwrap();
        for line in [
            "node.next 0 None struct node *",
            "node.low 24 Some((0, 3)) uint32",
            "node.high 24 Some((3, 5)) uint32",
            "node.hi 36 None uint32",
            "node.corner 40 None struct point[2]",
            "node 72 12",
            "colour -7",
            "count int32 [Piece { size: 4, from: Register { register: 104, above: 0 } }]",
            "s struct small [Piece { size: 8, from: Register { register: 104, above: 0 } }, \
             Piece { size: 8, from: Register { register: 96, above: 0 } }]",
            "l struct large [Piece { size: 24, from: Memory { register: 152, offset: 8, indirect: None } }]",
            "d double: it is a floating-point number",
            "h int8 * [Piece { size: 8, from: Memory { register: 152, offset: 24, indirect: None } }]",
        ] {
            assert!(expected.iter().any(|w| w == line), "{line}: {expected:#?}");
        }
        for flags in [&["-gdwarf-4"][..], &["-gdwarf-3", "-gstrict-dwarf"], &["-gdwarf-2", "-gstrict-dwarf"], &["-g", "-gz=zlib"]] {
            assert_eq!(run_queries(&built(&folder, flags)).unwrap(), expected, "{flags:?}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn damaged_information_does_not_panic() {
        let folder = folder("damage");
        let whole = std::fs::read(built(&folder, &["-g"])).unwrap();
        let sections: Vec<(usize, usize)> = {
            use object::{Object, ObjectSection};
            let file = object::File::parse(&*whole).unwrap();
            let wanted = file.sections().filter(|s| s.name().is_ok_and(|n| n.starts_with(".debug")));
            wanted.filter_map(|s| s.file_range()).map(|(at, size)| (at as usize, size as usize)).collect()
        };
        let mut numbers = Random::new(0x9e37_79b9_7f4a_7c15);
        let mut random = |below: usize| numbers.below(below);
        let path = folder.join("damaged");
        let mut answered = 0;
        for _ in 0..600 {
            let mut bytes = whole.clone();
            for _ in 0..=random(6) {
                let (at, size) = sections[random(sections.len())];
                bytes[at + random(size)] = [0, 0xff, 0x7f, 1, random(256) as u8][random(5)];
            }
            std::fs::remove_file(&path).ok();
            std::fs::write(&path, bytes).unwrap();
            answered += usize::from(run_queries(&path).is_some());
        }
        assert!(answered > 100, "{answered}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
