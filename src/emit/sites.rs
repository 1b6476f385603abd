//! Sites that are known when a compiled script runs: maps that the loader fills have their names and numbers.

use super::{Builder, Cmp, Helper, MapDef, MapKind};
use crate::types::Int;
use inkwell::values::{IntValue, PointerValue};

/// The start of the names of maps from the index of a site to its name, a string of fixed size.
pub const NAMES: &str = "names_";
/// The start of the names of maps from the number of a system call to the number of its site after it, or 0.
pub const CALLS: &str = "calls_";
/// Maximum system call number; those of x86-64 end at 470 in Linux 6.18.
pub const SYSCALLS: u32 = 1024;
/// Bytes of an element of the latter.
const SITE: u32 = 8;

/// The name of the map of the names of a probe's sites, with `room` bytes for each.
fn names_map(probe: u32, room: u32) -> String {
    format!("{NAMES}{probe}_{room}")
}

/// The name of the map of a probe's system calls.
fn calls_map(probe: u32) -> String {
    format!("{CALLS}{probe}")
}

impl<'c> Builder<'_, 'c> {
    /// The name of the site that fired, with `room` bytes, if the loader supplies it.
    pub fn late_name(&mut self, room: u32) -> Option<PointerValue<'c>> {
        if !self.program.names_vary {
            return None;
        }
        let site = self.site();
        Some(self.element_of_sites(&names_map(self.program.probe, room), room, 1, site))
    }

    /// The site of a system call by its number. Returns from the program if there is none.
    pub fn site_of_call(&mut self, number: IntValue<'c>) -> IntValue<'c> {
        let element = self.element_of_sites(&calls_map(self.program.probe), SITE, SYSCALLS, number);
        let found = self.load(element, 0, Int { bytes: SITE as u8, signed: false });
        let is_zero = self.cmp(Cmp::Eq, found, self.int(0));
        self.if_(is_zero, |e| e.ret(None));
        self.sub(found, self.int(1))
    }

    /// An element of an array. Returns from the program if there is none.
    fn element_of_sites(&mut self, map: &str, value_size: u32, max_entries: u32, index: IntValue<'c>) -> PointerValue<'c> {
        let def = MapDef { kind: MapKind::Array, key_size: 4, value_size, max_entries, flags: 0 };
        let (map, key) = (self.declare_map(map, def), self.alloc_known("site_key", 8));
        self.store(key, 0, 4, index);
        let element = self.call_ptr(Helper::MapLookupElem, &[map.into(), key.into()]);
        let is_null = self.cmp(Cmp::Eq, self.not_null(element), self.int(0));
        self.if_(is_null, |e| e.ret(None));
        element
    }
}
