//! Parts that a program may lack.
//!
//! What only a part refers to is missing from a program that does not provide the part: the linker leaves it out. `rbt` and `rbt-run`
//! provide all parts ([`crate::parts`]), and `rbt-run-small` none.

use std::sync::OnceLock;

/// A part: usually functions, by which the rest of rbt uses it.
pub struct Part<T>(OnceLock<T>, Option<T>);

impl<T: Copy> Part<T> {
    /// A part that nothing provides yet. `for_tests`: what the unit tests of this crate have.
    pub const fn new(for_tests: T) -> Self {
        Self(OnceLock::new(), if cfg!(test) { Some(for_tests) } else { None })
    }

    /// Provides it.
    pub fn provide(&self, part: T) {
        // it is the same at each time
        let _ = self.0.set(part);
    }

    /// None: the program lacks it.
    pub fn get(&self) -> Option<T> {
        self.0.get().copied().or(self.1)
    }
}
