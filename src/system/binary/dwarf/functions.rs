//! Functions by address. They are looked up in the units with code there, so that one function costs little in a large binary.
//!
//! Some functions are within others: operators of lambdas and members of local classes as GCC describes them, and nested functions
//! of GNU C.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::{BinaryTypes, Die, SHARED};
use crate::system::Function;

/// The code of a unit.
pub(super) struct UnitRange {
    begin: u64,
    end: u64,
    /// The largest end up to this range. Ranges overlap if the linker folded equal functions.
    reach: u64,
    place: Die,
}

/// The functions of a unit by address.
pub(super) type Functions = Rc<BTreeMap<u64, Vec<Die>>>;
/// The functions of units, for the units looked up so far.
pub(super) type Known = BTreeMap<(u32, u32), Functions>;

impl BinaryTypes {
    /// Finds the entry of the function with this symbol among those at its address.
    pub(super) fn function(&self, function: &Function) -> Option<Die> {
        let address = function.addr;
        let mut all: Vec<Die> = Vec::new();
        for unit in self.units_at(address) {
            all.extend(self.functions_of(unit).get(&address).into_iter().flatten());
        }
        if all.is_empty() {
            // A unit may not say where its code is.
            all.extend(self.index().functions.get(&address));
            all.extend(self.index().same_address.get(&address).into_iter().flatten());
        }
        match all.as_slice() {
            [] => self.nested_function(address),
            [one] => Some(*one),
            several => several.iter().find(|die| self.is_called(**die, &function.name)).copied(),
        }
    }

    fn is_called(&self, die: Die, name: &str) -> bool {
        self.entry(die).is_some_and(|entry| {
            let linked = self.linkage_name(die, &entry, 0).or_else(|| self.origin_name(die, &entry, 0));
            linked == Some(name.as_bytes())
        })
    }

    /// The functions at the top level of an entry's unit.
    pub(super) fn functions_of(&self, place: Die) -> Functions {
        let known = self.functions.borrow().get(&(place.file, place.unit)).cloned();
        known.unwrap_or_else(|| {
            let mut all = BTreeMap::<u64, Vec<Die>>::new();
            if let Some(unit) = self.unit(place) {
                // What comes before damage is usable.
                let _ = self.each_entry(place, unit, &mut |die, entry| {
                    if entry.tag() == gimli::DW_TAG_subprogram
                        && let Some(address) = self.entry_address(die, entry)
                    {
                        all.entry(address).or_default().push(die);
                    }
                });
            }
            let all = Rc::new(all);
            self.functions.borrow_mut().insert((place.file, place.unit), all.clone());
            all
        })
    }

    /// Finds the function that starts at this address among all functions of a unit.
    pub(super) fn nested_function(&self, address: u64) -> Option<Die> {
        self.units_at(address).into_iter().find_map(|place| {
            let unit = (place.file, place.unit);
            let known = self.nested.borrow().get(&unit).cloned();
            let all = known.unwrap_or_else(|| {
                let all = Rc::new(self.all_functions(place));
                self.nested.borrow_mut().insert(unit, all.clone());
                all
            });
            all.get(&address)?.first().copied()
        })
    }

    fn all_functions(&self, place: Die) -> BTreeMap<u64, Vec<Die>> {
        let mut all = BTreeMap::<u64, Vec<Die>>::new();
        let Some(unit) = self.unit(place) else { return all };
        let mut entries = unit.entries();
        while let Ok(Some(entry)) = entries.next_dfs() {
            let die = Die { at: entry.offset().0, ..place };
            if entry.tag() == gimli::DW_TAG_subprogram
                && let Some(address) = self.entry_address(die, entry)
            {
                all.entry(address).or_default().push(die);
            }
        }
        all
    }

    /// The units with code at an address, in order.
    fn units_at(&self, address: u64) -> BTreeSet<Die> {
        let ranges = self.unit_ranges.get_or_init(|| self.read_unit_ranges());
        let before = ranges.get(..ranges.partition_point(|range| range.begin <= address)).unwrap_or_default();
        let near = before.iter().rev().take_while(|range| range.reach > address);
        near.filter(|range| range.end > address).map(|range| range.place).collect()
    }

    fn read_unit_ranges(&self) -> Vec<UnitRange> {
        let mut all = Vec::new();
        for (place, unit) in self.all_units().filter(|(place, _)| place.file != SHARED) {
            let Some(mut ranges) = self.dwarf(place).and_then(|dwarf| dwarf.unit_ranges(unit).ok()) else { continue };
            while let Ok(Some(range)) = ranges.next() {
                // the linker sets the address of code that it removed to zero
                if range.begin != 0 {
                    all.push(UnitRange { begin: range.begin, end: range.end, reach: 0, place });
                }
            }
        }
        all.sort_by_key(|range| range.begin);
        let mut reach = 0;
        for range in &mut all {
            reach = reach.max(range.end);
            range.reach = reach;
        }
        all
    }
}
