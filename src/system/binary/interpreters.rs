//! Interpreters whose interpreted frames replace those of their loops in stacks.

use std::ops::Range;
use std::path::Path;

use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

use super::python::{self, Python};
use crate::system::machine::arch::instructions::Instructions;

/// An interpreter of a programming language. The code by which programs read its frames is in a separate file in
/// `emit/`: see `emit/unwind/python.rs`.
#[derive(Debug)]
pub struct Interpreter {
    /// The function, or functions, that form its loop.
    pub loops: &'static [&'static str],
    /// Reads the interpreter in a file, given where the file can be read and its name.
    pub of_file: fn(&Path, &Path) -> Option<Python>,
}

/// All supported interpreters.
pub const INTERPRETERS: &[Interpreter] = &[Interpreter { loops: &[python::LOOP], of_file: python::read_file }];

/// The interpreter in a file, which can be read at `at` and is called `name`.
pub fn interpreter_in(at: &Path, name: &Path) -> Option<Python> {
    INTERPRETERS.iter().find_map(|interpreter| (interpreter.of_file)(at, name))
}

/// Maximum size of a function to search for jumps, in bytes.
const MAX_FUNCTION_SIZE: u64 = 1 << 20;

/// The loops of interpreters in a file.
#[derive(Debug, Default)]
pub struct Loops {
    starts: Vec<u64>,
    /// The targets of their jumps outside of themselves: compilers move code that rarely runs elsewhere, and its symbol
    /// is often stripped.
    jumps: Vec<u64>,
}

impl Loops {
    /// For a file with these instructions.
    pub fn interpreter_in(file: &object::File<'_>, instructions: &Instructions) -> Self {
        let mut loops = Self::default();
        for name in INTERPRETERS.iter().flat_map(|i| i.loops) {
            let Some((start, size)) = function(file, name) else { continue };
            loops.starts.push(start);
            let code = file.sections().find_map(|s| s.data_range(start, size.min(MAX_FUNCTION_SIZE)).ok().flatten());
            let inside = start..start.saturating_add(size);
            loops.jumps.extend((instructions.jumps)(code.unwrap_or_default(), start).into_iter().filter(|to| !inside.contains(to)));
        }
        loops.jumps.sort_unstable();
        loops
    }

    /// Does a loop start at this address?
    pub fn starts_at(&self, addr: u64) -> bool {
        self.starts.contains(&addr)
    }

    /// Does a loop jump into this range?
    pub fn jump_into(&self, code: &Range<u64>) -> bool {
        self.jumps.get(self.jumps.partition_point(|to| *to < code.start)).is_some_and(|to| code.contains(to))
    }
}

/// Address and size of a function.
fn function(file: &object::File<'_>, name: &str) -> Option<(u64, u64)> {
    // few files have it, and searching its names is faster than searching all symbols
    let named = |section: &str| {
        let names = file.section_by_name(section).and_then(|s| s.data().ok()).unwrap_or_default();
        memchr::memmem::find(names, name.as_bytes()).is_some()
    };
    let found = |s: &object::Symbol| s.is_definition() && s.kind() == SymbolKind::Text && s.name() == Ok(name);
    let place = |s: object::Symbol| (s.address(), s.size());
    let dynamic = || named(".dynstr").then(|| file.dynamic_symbols().find(found).map(place)).flatten();
    dynamic().or_else(|| named(".strtab").then(|| file.symbols().find(found).map(place)).flatten())
}
