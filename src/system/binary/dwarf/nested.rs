//! Functions within functions: operators of lambdas and members of local classes as GCC describes them, and nested functions of GNU C.
//! The index has only those at the top level, so these are looked up in all entries of the unit with the code.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::{BinaryTypes, Die, SHARED};

/// The code of a unit.
pub(super) struct UnitRange {
    begin: u64,
    end: u64,
    place: Die,
}

/// The functions of units by address, for the units looked up so far.
pub(super) type Known = BTreeMap<(u32, u32), Rc<BTreeMap<u64, Die>>>;

impl BinaryTypes {
    /// Finds the function that starts at this address among all functions of a unit.
    pub(super) fn nested_function(&self, address: u64) -> Option<Die> {
        let ranges = self.unit_ranges.get_or_init(|| self.read_unit_ranges());
        let range = ranges.get(ranges.partition_point(|r| r.begin <= address).checked_sub(1)?)?;
        if address >= range.end {
            return None;
        }
        let unit = (range.place.file, range.place.unit);
        let known = self.nested.borrow().get(&unit).cloned();
        let all = known.unwrap_or_else(|| {
            let all = Rc::new(self.all_functions(range.place));
            self.nested.borrow_mut().insert(unit, all.clone());
            all
        });
        all.get(&address).copied()
    }

    fn all_functions(&self, place: Die) -> BTreeMap<u64, Die> {
        let mut all = BTreeMap::new();
        let Some(unit) = self.unit(place) else { return all };
        let mut entries = unit.entries();
        while let Ok(Some(entry)) = entries.next_dfs() {
            let die = Die { at: entry.offset().0, ..place };
            if entry.tag() == gimli::DW_TAG_subprogram
                && let Some(address) = self.entry_address(die, entry)
            {
                all.entry(address).or_insert(die);
            }
        }
        all
    }

    fn read_unit_ranges(&self) -> Vec<UnitRange> {
        let mut all = Vec::new();
        for (place, unit) in self.all_units().filter(|(place, _)| place.file != SHARED) {
            let Some(mut ranges) = self.dwarf(place).and_then(|dwarf| dwarf.unit_ranges(unit).ok()) else { continue };
            while let Ok(Some(range)) = ranges.next() {
                // the linker sets the address of code that it removed to zero
                if range.begin != 0 {
                    all.push(UnitRange { begin: range.begin, end: range.end, place });
                }
            }
        }
        all.sort_by_key(|range| range.begin);
        all
    }
}
