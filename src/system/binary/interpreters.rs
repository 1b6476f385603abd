//! Interpreters whose interpreted frames replace those of their loops in stacks.

use std::ops::Range;
use std::path::Path;

use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

use super::python::{self, Python};
use crate::system::machine::arch::instructions::x86_64;

/// An interpreter. The code by which programs read its frames is in a separate file in `emit/`: see
/// `emit/unwind/python.rs`.
#[derive(Debug)]
pub struct Interpreter {
    /// The function, or functions, in which it runs the code of a program.
    pub loops: &'static [&'static str],
    /// What is known of the one in a file, given where the file can be read and its name.
    pub of_file: fn(&Path, &Path) -> Option<Python>,
}

/// All of them.
pub const INTERPRETERS: &[Interpreter] = &[Interpreter { loops: &[python::LOOP], of_file: python::of_file }];

/// The interpreter in a file, which can be read at `at` and is called `name`.
pub fn of_file(at: &Path, name: &Path) -> Option<Python> {
    INTERPRETERS.iter().find_map(|interpreter| (interpreter.of_file)(at, name))
}

/// A longer function is not looked through, bytes.
const LONGEST: u64 = 1 << 20;

/// The loops of interpreters in a file.
#[derive(Debug, Default)]
pub struct Loops {
    starts: Vec<u64>,
    /// Where they jump to outside of themselves: compilers put code that rarely runs elsewhere, and its symbol is often stripped.
    jumps: Vec<u64>,
}

impl Loops {
    /// Of a file for x86-64.
    pub fn of_file(file: &object::File<'_>) -> Self {
        let mut loops = Self::default();
        for name in INTERPRETERS.iter().flat_map(|i| i.loops) {
            let Some((start, size)) = function(file, name) else { continue };
            loops.starts.push(start);
            let code = file.sections().find_map(|s| s.data_range(start, size.min(LONGEST)).ok().flatten());
            let inside = start..start.saturating_add(size);
            loops.jumps.extend(x86_64::jumps(code.unwrap_or_default(), start).into_iter().filter(|to| !inside.contains(to)));
        }
        loops.jumps.sort_unstable();
        loops
    }

    /// Is the function that starts there one?
    pub fn starts_at(&self, addr: u64) -> bool {
        self.starts.contains(&addr)
    }

    /// Does one jump there?
    pub fn jump_into(&self, code: &Range<u64>) -> bool {
        self.jumps.get(self.jumps.partition_point(|to| *to < code.start)).is_some_and(|to| code.contains(to))
    }
}

/// Address and size of a function.
fn function(file: &object::File<'_>, name: &str) -> Option<(u64, u64)> {
    // hardly a file has it, and its names are looked through in less time than its symbols
    let named = |section: &str| {
        let names = file.section_by_name(section).and_then(|s| s.data().ok()).unwrap_or_default();
        memchr::memmem::find(names, name.as_bytes()).is_some()
    };
    let found = |s: &object::Symbol| s.is_definition() && s.kind() == SymbolKind::Text && s.name() == Ok(name);
    let place = |s: object::Symbol| (s.address(), s.size());
    let dynamic = || named(".dynstr").then(|| file.dynamic_symbols().find(found).map(place)).flatten();
    dynamic().or_else(|| named(".strtab").then(|| file.symbols().find(found).map(place)).flatten())
}
