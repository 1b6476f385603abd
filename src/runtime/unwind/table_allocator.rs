//! Allocates space for unwind tables in BPF maps: one after the other. Tables never move.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::Ordering;

use super::kernel::{Maps, POOL_WORDS};
use crate::codegen::artifact::unwind::{
    BLOCK_ROWS, BLOCK_WORDS, COUNT_SHIFT, FileEntry, MAX_FILES, MAX_POOLS, MAX_RULES, RULE_SHIFT, RuleEntry,
};
use crate::system::binary::unwind::{Row, Rule, Table};

/// The allocated tables.
#[derive(Debug)]
pub(super) struct TableAllocator {
    /// Words in use.
    words: u64,
    /// Maximum number of words.
    capacity: u64,
    files: u32,
    rules: HashMap<RuleEntry, u32>,
}

/// Free words, of which a table reserves some.
struct Free {
    first: u64,
    end: u64,
}

impl Free {
    /// Reserves words, and returns the position of the first.
    fn reserve(&mut self, maps: &mut Maps, words: u64) -> io::Result<u64> {
        let first = self.first;
        if words > self.end.saturating_sub(first) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.first += words;
        while maps.pools() as u64 * POOL_WORDS < self.first {
            maps.add_pool()?;
        }
        Ok(first)
    }

    /// Reserves words that do not cross the end of a block.
    fn reserve_in_block(&mut self, maps: &mut Maps, words: u64) -> io::Result<u64> {
        let left = u64::from(BLOCK_WORDS) - self.first % u64::from(BLOCK_WORDS);
        if words > left {
            self.reserve(maps, left)?;
        }
        self.reserve(maps, words)
    }
}

impl TableAllocator {
    /// `memory`: the maximum size of all tables in bytes.
    pub fn new(memory: u64) -> Self {
        let pools = (memory / 8 / POOL_WORDS).clamp(1, MAX_POOLS.into());
        Self { words: 0, capacity: pools * POOL_WORDS, files: 0, rules: HashMap::new() }
    }

    /// Writes a table to the kernel, and returns the number of its file.
    ///
    /// Errors: no space, or an error of the kernel.
    pub fn add(&mut self, maps: &mut Maps, table: &Table) -> io::Result<u32> {
        let before = self.rules.len() as u32;
        let added = self.add_all(maps, table);
        if added.is_err() {
            self.rules.retain(|_, number| *number < before);
        }
        added
    }

    fn add_all(&mut self, maps: &mut Maps, table: &Table) -> io::Result<u32> {
        // forged files must not take all rules
        if self.files >= MAX_FILES || table.rules.len() > MAX_RULES as usize / 4 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let rules = table.rules.iter().map(|rule| self.rule(maps, rule)).collect::<io::Result<Vec<u32>>>()?;
        let mut free = Free { first: self.words, end: self.capacity };
        let entry = match (table.pages.first(), table.pages.last()) {
            (Some(first), Some(last)) => {
                let pages = (last.number - first.number).saturating_add(1);
                // an error: forged segments may be far apart
                let entries = free.reserve(maps, pages.into())?;
                // a table that failed may have left something there
                (entries..entries + u64::from(pages)).for_each(|entry| maps.set_word(entry, 0));
                for page in &table.pages {
                    let count = u64::from(page.count);
                    let start = free.reserve_in_block(maps, count.div_ceil(2))?;
                    let encoded =
                        |row: Row| u64::from(rules.get(row.rule as usize).copied().unwrap_or(0) << RULE_SHIFT | u32::from(row.start));
                    let mut rows = table.rows.of(page).map(encoded);
                    for to in maps.words(start) {
                        let Some(low) = rows.next() else { break };
                        to.store(low | rows.next().unwrap_or(0) << 32, Ordering::Relaxed);
                    }
                    maps.set_word(entries + u64::from(page.number - first.number), (2 * start) | (count << COUNT_SHIFT));
                }
                FileEntry { entries, first: first.number, pages }
            }
            _ => FileEntry::default(),
        };
        maps.set_entry(self.files, &entry);
        self.words = free.first;
        self.files += 1;
        Ok(self.files - 1)
    }

    fn rule(&mut self, maps: &Maps, rule: &Rule) -> io::Result<u32> {
        let entry = RuleEntry::from(rule);
        if let Some(known) = self.rules.get(&entry) {
            return Ok(*known);
        }
        let number = self.rules.len() as u32;
        if number >= MAX_RULES {
            return Err(io::ErrorKind::StorageFull.into());
        }
        maps.set_rule(number, &entry);
        self.rules.insert(entry, number);
        Ok(number)
    }
}

const _: () = assert!(BLOCK_ROWS as u64 >= crate::system::binary::unwind::PAGE);
