//! The code of source lines, from `.debug_line`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

use gimli::{AttributeValue, ColumnType, IncompleteLineProgram};

use super::{BinaryTypes, Die, SHARED, Slice};

/// The result of looking for a source line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Virtual addresses where the line begins: one for each function with code of it, and one for each inlined copy.
    Code(Vec<u64>),
    /// The line has no code. The nearest line with code: at or after it, else before it.
    Bare(Option<u32>),
    /// The line has code, but not at this column; the columns that do.
    Columns(Vec<u32>),
    /// No source file has this name; the names that exist.
    NoFile(Vec<String>),
}

/// A function that the compiler inlined into its callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inlined {
    /// Number of inlined copies.
    pub copies: usize,
    /// Its definition: the file, and the first line that has code.
    pub source: Option<(String, u32)>,
}

/// An address at which the code of a line may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LineStart {
    file: u32,
    unit: u32,
    addr: u64,
}

impl BinaryTypes {
    /// Looks for the code of a line. `file` is the path of a source file or the end of it: `b.c` and `a/b.c` both match
    /// `/a/b.c`.
    pub fn line(&self, file: &str, line: u32, column: Option<u32>) -> Line {
        let wanted = file.strip_prefix("./").unwrap_or(file);
        let (mut starts, mut others, mut columns) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (mut files, mut known) = (BTreeSet::new(), false);
        for (place, unit) in self.all_units().filter(|(place, _)| place.file != SHARED) {
            let Some(program) = unit.line_program.clone() else { continue };
            let named = self.files(place, &program, wanted, &mut files);
            known |= !named.is_empty();
            if named.is_empty() {
                continue;
            }
            let mut rows = program.rows();
            // In a run of rows for one line, the first row is the beginning.
            let mut before = None;
            while let Ok(Some((_, row))) = rows.next_row() {
                let here = row.line().and_then(|l| u32::try_from(l.get()).ok());
                let of_file = named.contains(&row.file_index()) && !row.end_sequence();
                let at = (of_file, here);
                // Code that the linker dropped has the address 0.
                if of_file && row.is_stmt() && row.address() != 0 {
                    let found = match row.column() {
                        ColumnType::Column(found) => u32::try_from(found.get()).unwrap_or(0),
                        ColumnType::LeftEdge => 0,
                    };
                    if here != Some(line) {
                        others.extend(here);
                    } else if column.is_some_and(|wanted| wanted != found) {
                        columns.insert(found);
                    } else if before != Some(at) || column.is_some() {
                        starts.insert(LineStart { file: place.file, unit: place.unit, addr: row.address() });
                    }
                }
                before = Some(at);
            }
        }
        match (starts.is_empty(), known) {
            (false, _) => Line::Code(self.one_each(starts)),
            (true, true) if !columns.is_empty() => Line::Columns(columns.into_iter().collect()),
            (true, true) => Line::Bare(others.range(line..).next().or_else(|| others.range(..line).next_back()).copied()),
            (true, false) => Line::NoFile(files.into_iter().collect()),
        }
    }

    /// Address after the prologue of the function at this address, if its compiler recorded it.
    pub(super) fn prologue_end(&self, function: Die, address: u64) -> Option<u64> {
        let known = self.prologues.borrow().get(&(function.file, function.unit)).cloned();
        let all = match known {
            Some(all) => all,
            None => {
                let mut all = Vec::new();
                if let Some(program) = self.unit(function).and_then(|u| u.line_program.clone()) {
                    let mut rows = program.rows();
                    while let Ok(Some((_, row))) = rows.next_row() {
                        all.extend(row.prologue_end().then(|| row.address()));
                    }
                }
                all.sort_unstable();
                let all = Rc::new(all);
                self.prologues.borrow_mut().insert((function.file, function.unit), all.clone());
                all
            }
        };
        let end = all.get(all.partition_point(|a| *a < address)).copied()?;
        let next = self.functions_of(function).range(address + 1..).next().map(|(a, _)| *a);
        Some(end).filter(|end| next.is_none_or(|next| *end < next))
    }

    /// Was a function of this name inlined? Searches all entries.
    pub fn inlined(&self, function: &str) -> Option<Inlined> {
        let (mut places, mut origin) = (0, None);
        for (place, unit) in self.all_units().filter(|(place, _)| place.file != SHARED) {
            let mut entries = unit.entries();
            while let Ok(Some(entry)) = entries.next_dfs() {
                let die = Die { at: entry.offset().0, ..place };
                if entry.tag() == gimli::DW_TAG_inlined_subroutine && self.origin_name(die, entry, 0) == Some(function.as_bytes()) {
                    places += 1;
                    origin = origin.or_else(|| self.referred(die, entry, gimli::DW_AT_abstract_origin));
                }
            }
        }
        let source = origin.and_then(|die| {
            let entry = self.entry(die)?;
            let number = |name| entry.attr(name)?.udata_value();
            let (unit, line) = (self.unit(die)?, u32::try_from(number(gimli::DW_AT_decl_line)?).ok()?);
            let name = unit.line_program.as_ref()?.header().file(number(gimli::DW_AT_decl_file)?)?.path_name();
            let path = self.dwarf(die)?.attr_string(unit, name).ok()?.to_string_lossy().into_owned();
            let file = Path::new(&path).file_name()?.to_string_lossy().into_owned();
            match self.line(&file, line, None) {
                Line::Code(_) => Some((file, line)),
                Line::Bare(Some(near)) if near > line => Some((file, near)),
                Line::Bare(_) | Line::Columns(_) | Line::NoFile(_) => None,
            }
        });
        (places > 0).then_some(Inlined { copies: places, source })
    }

    /// Returns the numbers of the unit's files whose path ends in `wanted`, and adds all their names to `files`.
    fn files(&self, place: Die, program: &IncompleteLineProgram<Slice>, wanted: &str, files: &mut BTreeSet<String>) -> BTreeSet<u64> {
        let (dwarf, unit) = (self.dwarf(place), self.unit(place));
        let text = |value: AttributeValue<Slice>| {
            let text = dwarf?.attr_string(unit?, value).ok()?;
            Some(String::from_utf8_lossy(text.slice()).into_owned())
        };
        let header = program.header();
        let compiled_in = unit.and_then(|u| u.comp_dir).map(|d| String::from_utf8_lossy(d.slice()).into_owned()).unwrap_or_default();
        let mut found = BTreeSet::new();
        // File numbers start at 1 before DWARF 5, where 0 means none.
        for number in 0..=header.file_names().len() as u64 {
            let Some(name) = header.file(number).and_then(|f| Some((text(f.path_name())?, f))) else { continue };
            let (name, entry) = name;
            let folder = entry.directory(header).and_then(text).unwrap_or_default();
            let path = Path::new(&compiled_in).join(folder).join(&name);
            if path.ends_with(wanted) {
                found.insert(number);
            }
            files.extend(path.file_name().map(|f| f.to_string_lossy().into_owned()));
        }
        found
    }

    /// Keeps the first address within each function or inlined copy.
    fn one_each(&self, starts: BTreeSet<LineStart>) -> Vec<u64> {
        let mut by_unit: BTreeMap<Die, Vec<u64>> = BTreeMap::new();
        for LineStart { file, unit, addr } in starts {
            by_unit.entry(Die { file, unit, at: 0 }).or_default().push(addr);
        }
        let mut chosen: BTreeMap<(Option<Die>, u64), u64> = BTreeMap::new();
        for (place, addrs) in by_unit {
            let instances = self.instances(place, &addrs);
            for addr in addrs {
                // An address outside of known functions counts separately.
                let key = instances.get(&addr).map_or((None, addr), |(_, at)| (Some(Die { at: *at, ..place }), 0));
                let first = chosen.entry(key).or_insert(addr);
                *first = addr.min(*first);
            }
        }
        let mut all: Vec<u64> = chosen.into_values().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Finds the innermost function, inlined or not, at each address: its size and its entry.
    fn instances(&self, place: Die, addrs: &[u64]) -> BTreeMap<u64, (u64, usize)> {
        let mut found: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
        let (Some(dwarf), Some(unit)) = (self.dwarf(place), self.unit(place)) else { return found };
        let mut entries = unit.entries();
        while let Ok(Some(entry)) = entries.next_dfs() {
            if !matches!(entry.tag(), gimli::DW_TAG_subprogram | gimli::DW_TAG_inlined_subroutine) {
                continue;
            }
            let Ok(mut ranges) = dwarf.die_ranges(unit, entry) else { continue };
            let mut all = Vec::new();
            while let Ok(Some(range)) = ranges.next() {
                all.push(range);
            }
            let size = all.iter().fold(0u64, |sum, r| sum.saturating_add(r.end.saturating_sub(r.begin)));
            for addr in addrs.iter().filter(|a| all.iter().any(|r| (r.begin..r.end).contains(a))) {
                let known = found.entry(*addr).or_insert((size, entry.offset().0));
                // Outer entries come first.
                if size <= known.0 {
                    *known = (size, entry.offset().0);
                }
            }
        }
        found
    }
}
