//! The rows of a table: compiled ones, or those of a file in the cache, which are not copied.

use super::{PAGE_SHIFT, Page, Row};
use crate::system::cache::Contents;

/// An encoded row: a little-endian number with [`Row::rule`] above [`PAGE_SHIFT`], and [`Row::start`] below it.
type Word = [u8; 4];

/// The rows of all pages of a table, in order.
#[derive(Debug, Default)]
pub struct Rows(Storage);

#[derive(Debug)]
enum Storage {
    Compiled(Vec<Word>),
    /// The contents of a file, and the offset of the rows, which are all that follows.
    Cached(Contents, usize),
}

impl Default for Storage {
    fn default() -> Self {
        Storage::Compiled(Vec::new())
    }
}

impl Rows {
    /// The rows at the end of a cached table, from this offset on.
    pub(super) fn cached(contents: Contents, offset: usize) -> Self {
        Self(Storage::Cached(contents, offset))
    }

    /// Adds a row to a table under construction.
    pub(super) fn push(&mut self, row: Row) {
        match &mut self.0 {
            Storage::Compiled(words) => words.push(row.word()),
            Storage::Cached(..) => crate::bug!("a cached table is complete"),
        }
    }

    pub(super) fn words(&self) -> &[Word] {
        match &self.0 {
            Storage::Compiled(words) => words,
            Storage::Cached(contents, offset) => contents.get(*offset..).unwrap_or_default().as_chunks().0,
        }
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.words().len()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.words().is_empty()
    }

    /// All rows.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Row> {
        self.words().iter().map(Row::of_word)
    }

    /// The rows of a page; fewer than it says if there are no more.
    pub fn of(&self, page: &Page) -> impl ExactSizeIterator<Item = Row> {
        let words = self.words().get(page.first as usize..).unwrap_or_default();
        words.get(..page.count.into()).unwrap_or(words).iter().map(Row::of_word)
    }
}

impl PartialEq for Rows {
    fn eq(&self, other: &Self) -> bool {
        self.words() == other.words()
    }
}

impl Eq for Rows {}

impl Row {
    fn word(self) -> Word {
        (self.rule << PAGE_SHIFT | u32::from(self.start)).to_le_bytes()
    }

    fn of_word(word: &Word) -> Self {
        let word = u32::from_le_bytes(*word);
        Self { start: (word & ((1 << PAGE_SHIFT) - 1)) as u16, rule: word >> PAGE_SHIFT }
    }
}
