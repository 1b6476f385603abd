//! Unwind tables: how to get from a function's frame to its caller's, for every instruction of a file.
//!
//! Most distributions compile without frame pointers. What they leave instead is call frame information: `.eh_frame`, which
//! exceptions need, and `.debug_frame` (DWARF 5, section 6.4; System V ABI for AMD64, section 4.2.4). It is a program for each
//! function, far too slow to interpret at an event, so it is compiled once into rows that a BPF program can search: a row has
//! a code address and the number of a [`Rule`], and holds until the next one. Few rules are different: 300 in a C library
//! of 24,000 rows.
//!
//! Rows are grouped by page of the file (not of memory: a table serves all processes). Each page starts with the row in
//! effect there, so that a search needs no other page.
//!
//! - `rule.rs`: rules, and how they follow from DWARF's; `entry.rs`: rules in numbers; `compile.rs`: rows of a file; `cache.rs`: tables kept between runs

mod cache;
mod compile;
pub mod entry;
mod rule;

pub use cache::table;
pub use compile::compile_image;
pub use rule::{Bx, Cfa, Fp, Ra, Rule};

/// log2 of [`PAGE`].
pub const PAGE_SHIFT: u32 = 12;
/// Bytes of code that the rows of a [`Page`] describe.
pub const PAGE: u64 = 1 << PAGE_SHIFT;

/// The unwind table of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Rules, each once.
    pub rules: Vec<Rule>,
    /// The pages that have rows, in order.
    pub pages: Vec<Page>,
    /// The rows of all pages, in order.
    pub rows: Vec<Row>,
}

/// The rows of a page of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// File offset / [`PAGE`].
    pub number: u32,
    /// The first row, by index, and how many there are: at least one, and at most one for each byte.
    pub first: u32,
    /// See `first`.
    pub count: u16,
}

/// From this byte on, the rule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Byte within the page.
    pub start: u16,
    /// Index in [`Table::rules`].
    pub rule: u32,
}
