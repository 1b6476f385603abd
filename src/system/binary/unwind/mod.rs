//! Unwind tables: for every instruction of a file, how to find the caller's frame.
//!
//! Most distributions compile without frame pointers. Instead, files have call frame information: `.eh_frame`, which exceptions
//! need, and `.debug_frame` (DWARF 5, section 6.4; System V ABI for AMD64, section 4.2.4; DWARF for the Arm 64-bit Architecture). It is a program for each function
//! and far too slow to interpret at an event, so it is compiled once into rows that a BPF program can search. A row has a code
//! address and the number of a [`Rule`], and is valid up to the next row. There are few different rules: a C library with
//! 24,000 rows has 300.
//!
//! Rows are grouped by page of the file (not of memory, because all processes share a table). Each page starts with the row in
//! effect there, so a search needs no other page.
//!
//! - `rule.rs`: rules, and their derivation from DWARF; `entry.rs`: their encoding; `compile.rs`: the rows of a file;
//!   `go.rs`: those of Go's own table;
//!   `uncovered.rs`: its code without call frame information; `rows.rs`: the rows in memory; `function.rs`: the function around an address;
//!   `cache.rs`: tables kept between runs

mod cache;
mod compile;
pub mod entry;
mod function;
mod go;
mod rows;
mod rule;
mod uncovered;

pub use cache::table;
pub use compile::compile_image;
pub use function::function_around;
pub use rows::Rows;
pub use rule::{Cfa, Fp, Ra, Rule, Third};

/// log2 of [`PAGE`].
pub const PAGE_SHIFT: u32 = 12;
/// Bytes of code that a [`Page`] covers.
pub const PAGE: u64 = 1 << PAGE_SHIFT;

/// The unwind table of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The distinct rules.
    pub rules: Vec<Rule>,
    /// The pages with rows, in order.
    pub pages: Vec<Page>,
    /// The rows of all pages, in order.
    pub rows: Rows,
}

/// The rows of one page of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// File offset / [`PAGE`].
    pub number: u32,
    /// Index and number of its rows: at least one, at most one for each byte.
    pub first: u32,
    /// See `first`.
    pub count: u16,
}

/// The rule from this byte on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Offset in the page.
    pub start: u16,
    /// Index in [`Table::rules`].
    pub rule: u32,
}
