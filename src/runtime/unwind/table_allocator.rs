//! Allocates space for unwind tables in BPF maps: one after the other. Tables never move.

use std::collections::HashMap;
use std::io;

use super::kernel::Maps;
use crate::codegen::artifact::unwind::{
    BLOCK_ROWS, BLOCK_WORDS, COUNT_SHIFT, FileEntry, MAX_FILES, MAX_POOLS, MAX_RULES, POOL_BLOCKS, RULE_SHIFT, RuleEntry,
};
use crate::system::binary::unwind::{Row, Rule, Table};

type Block = Box<[u64; BLOCK_WORDS as usize]>;

/// The allocated tables.
#[derive(Debug)]
pub(super) struct TableAllocator {
    /// Words in use.
    words: u64,
    /// Maximum number of words.
    capacity: u64,
    files: u32,
    rules: HashMap<RuleEntry, u32>,
    /// The last block that was written to, which has free space.
    last: Option<(u64, Block)>,
}

/// A table with all of its words, before they are written.
struct Writer {
    /// The number of the first block.
    first: u64,
    /// The words from the start of that block on.
    words: Vec<u64>,
}

impl Writer {
    /// Starts after the words in use; `last` is the block that has the last of them.
    fn new(used: u64, last: Option<&(u64, Block)>) -> Self {
        let first = used / u64::from(BLOCK_WORDS);
        let mut words: Vec<u64> = last.filter(|(number, _)| *number == first).map_or_else(Vec::new, |(_, block)| block.to_vec());
        words.resize((used % u64::from(BLOCK_WORDS)) as usize, 0);
        Self { first, words }
    }

    /// The number of words in use, with all other tables.
    fn used(&self) -> u64 {
        self.first * u64::from(BLOCK_WORDS) + self.words.len() as u64
    }

    /// Reserves words, and returns the position of the first.
    fn reserve(&mut self, words: u64) -> u64 {
        let first = self.used();
        self.words.resize(self.words.len() + words as usize, 0);
        first
    }

    /// Reserves words that do not cross the end of a block.
    fn reserve_in_block(&mut self, words: u64) -> u64 {
        let left = u64::from(BLOCK_WORDS) - self.words.len() as u64 % u64::from(BLOCK_WORDS);
        if words > left {
            self.reserve(left);
        }
        self.reserve(words)
    }

    /// The words from a position on.
    fn at(&mut self, position: u64) -> &mut [u64] {
        let first = (position - self.first * u64::from(BLOCK_WORDS)) as usize;
        self.words.get_mut(first..).unwrap_or_default()
    }

    /// The blocks by number; the last may have free space.
    fn blocks(&self) -> impl Iterator<Item = (u64, Block)> {
        (self.first..).zip(self.words.chunks(BLOCK_WORDS as usize)).map(|(number, words)| {
            let mut block: Block = Box::new([0; BLOCK_WORDS as usize]);
            block.iter_mut().zip(words).for_each(|(to, word)| *to = *word);
            (number, block)
        })
    }
}

impl TableAllocator {
    /// `memory`: the maximum size of all tables in bytes.
    pub fn new(memory: u64) -> Self {
        let pool = u64::from(POOL_BLOCKS) * u64::from(BLOCK_WORDS);
        let pools = (memory / 8 / pool).clamp(1, MAX_POOLS.into());
        Self { words: 0, capacity: pools * pool, files: 0, rules: HashMap::new(), last: None }
    }

    /// Writes a table to the kernel, and returns the number of its file.
    ///
    /// Errors: no space, or an error of the kernel.
    pub fn add(&mut self, maps: &mut Maps, table: &Table) -> io::Result<u32> {
        if self.files >= MAX_FILES {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let rules = table.rules.iter().map(|rule| self.rule(maps, rule)).collect::<io::Result<Vec<u32>>>()?;
        let mut writer = Writer::new(self.words, self.last.as_ref());
        let entry = match (table.pages.first(), table.pages.last()) {
            (Some(first), Some(last)) => {
                let pages = (last.number - first.number).saturating_add(1);
                // forged segments may be far apart
                if writer.used() + u64::from(pages) > self.capacity {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                let entries = writer.reserve(pages.into());
                for page in &table.pages {
                    let count = u64::from(page.count);
                    let start = writer.reserve_in_block(count.div_ceil(2));
                    let rows = table.rows.get(page.first as usize..).unwrap_or_default();
                    let rows = rows.get(..page.count.into()).unwrap_or(rows);
                    let encoded =
                        |row: &Row| u64::from(rules.get(row.rule as usize).copied().unwrap_or(0) << RULE_SHIFT | u32::from(row.start));
                    for (word, pair) in writer.at(start).iter_mut().zip(rows.chunks(2)) {
                        *word = pair.iter().rev().fold(0, |word, row| word << 32 | encoded(row));
                    }
                    if let Some(entry) = writer.at(entries + u64::from(page.number - first.number)).first_mut() {
                        *entry = (2 * start) | (count << COUNT_SHIFT);
                    }
                }
                FileEntry { entries, first: first.number, pages }
            }
            _ => FileEntry::default(),
        };
        if writer.used() > self.capacity {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut last = None;
        for (number, block) in writer.blocks() {
            let pool = (number / u64::from(POOL_BLOCKS)) as usize;
            while maps.pools() <= pool {
                maps.add_pool()?;
            }
            maps.write_block(pool, (number % u64::from(POOL_BLOCKS)) as u32, &block)?;
            last = Some((number, block));
        }
        maps.set_entry(self.files, &entry)?;
        self.words = writer.used();
        self.last = last;
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
        maps.set_rule(number, &entry)?;
        self.rules.insert(entry, number);
        Ok(number)
    }
}

const _: () = assert!(BLOCK_ROWS as u64 >= crate::system::binary::unwind::PAGE);
