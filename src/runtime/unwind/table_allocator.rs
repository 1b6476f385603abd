//! Allocates space for unwind tables in BPF maps: one after the other. Tables never move.

use std::collections::{BTreeMap, HashMap};
use std::io;

use super::kernel::Maps;
use crate::codegen::artifact::unwind::{
    BLOCK_ROWS, BLOCK_WORDS, COUNT_SHIFT, FileEntry, MOST_FILES, MOST_POOLS, MOST_RULES, POOL_BLOCKS, RULE_SHIFT, RuleEntry,
};
use crate::system::binary::unwind::{Rule, Table};

type Block = Box<[u64; BLOCK_WORDS as usize]>;

/// The allocated tables.
#[derive(Debug)]
pub(super) struct TableAllocator {
    /// Words in use.
    words: u64,
    /// Maximum number of words.
    most: u64,
    files: u32,
    rules: HashMap<RuleEntry, u32>,
    /// The last block that was written to, which has free space.
    last: Option<(u64, Block)>,
}

/// A table with all of its words, before they are written.
struct Writer {
    words: u64,
    blocks: BTreeMap<u64, Block>,
}

impl Writer {
    fn put(&mut self, word: u64, value: u64, shift: u32) {
        let block = self.blocks.entry(word / u64::from(BLOCK_WORDS)).or_insert_with(|| Box::new([0; BLOCK_WORDS as usize]));
        if let Some(to) = block.get_mut((word % u64::from(BLOCK_WORDS)) as usize) {
            *to |= value << shift;
        }
    }

    /// Reserves this many words, which do not cross the end of a block, and returns the first.
    fn reserve(&mut self, words: u64) -> u64 {
        let left = u64::from(BLOCK_WORDS) - self.words % u64::from(BLOCK_WORDS);
        if words > left {
            self.words += left;
        }
        let first = self.words;
        self.words += words;
        first
    }
}

impl TableAllocator {
    /// `memory`: the maximum size of all tables in bytes.
    pub fn new(memory: u64) -> Self {
        let pool = u64::from(POOL_BLOCKS) * u64::from(BLOCK_WORDS);
        let pools = (memory / 8 / pool).clamp(1, MOST_POOLS.into());
        Self { words: 0, most: pools * pool, files: 0, rules: HashMap::new(), last: None }
    }

    /// Writes a table to the kernel, and returns the number of its file.
    ///
    /// Errors: no space, or an error of the kernel.
    pub fn add(&mut self, maps: &mut Maps, table: &Table) -> io::Result<u32> {
        if self.files >= MOST_FILES {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let rules = table.rules.iter().map(|rule| self.rule(maps, rule)).collect::<io::Result<Vec<u32>>>()?;
        let mut writer = Writer { words: self.words, blocks: self.last.clone().into_iter().collect() };
        let entry = match (table.pages.first(), table.pages.last()) {
            (Some(first), Some(last)) => {
                let pages = last.number - first.number + 1;
                let entries = writer.words;
                writer.words += u64::from(pages);
                for page in &table.pages {
                    let count = u64::from(page.count);
                    let start = 2 * writer.reserve(count.div_ceil(2));
                    let rows = table.rows.iter().skip(page.first as usize).take(page.count.into());
                    for (position, row) in (start..).zip(rows) {
                        let rule = rules.get(row.rule as usize).copied().unwrap_or(0);
                        writer.put(position / 2, u64::from(rule << RULE_SHIFT | u32::from(row.start)), (position % 2) as u32 * 32);
                    }
                    writer.put(entries + u64::from(page.number - first.number), start | count << COUNT_SHIFT, 0);
                }
                FileEntry { entries, first: first.number, pages }
            }
            _ => FileEntry::default(),
        };
        if writer.words > self.most {
            return Err(io::ErrorKind::StorageFull.into());
        }
        for (number, block) in &writer.blocks {
            let pool = (number / u64::from(POOL_BLOCKS)) as usize;
            while maps.pools() <= pool {
                maps.add_pool()?;
            }
            maps.write_block(pool, (number % u64::from(POOL_BLOCKS)) as u32, block)?;
        }
        maps.set_entry(self.files, &entry)?;
        self.words = writer.words;
        self.last = writer.blocks.pop_last().filter(|(number, _)| *number == self.words / u64::from(BLOCK_WORDS));
        self.files += 1;
        Ok(self.files - 1)
    }

    fn rule(&mut self, maps: &Maps, rule: &Rule) -> io::Result<u32> {
        let entry = RuleEntry::from(rule);
        if let Some(known) = self.rules.get(&entry) {
            return Ok(*known);
        }
        let number = self.rules.len() as u32;
        if number >= MOST_RULES {
            return Err(io::ErrorKind::StorageFull.into());
        }
        maps.set_rule(number, &entry)?;
        self.rules.insert(entry, number);
        Ok(number)
    }
}

const _: () = assert!(BLOCK_ROWS as u64 >= crate::system::binary::unwind::PAGE);
