//! Session programs, which serve the entry and the return of a function: a function for each, and one that calls the right one.

use super::kfunc::KernelType;
use super::{Builder, Cmp, CodegenCx, ProgramCx, SectionDef, ok};
use crate::bug;

/// A program of two parts, made by [`CodegenCx::begin_part`].
pub struct Session<'s> {
    /// Its name.
    pub name: &'s str,
    /// Its section.
    pub section: SectionDef,
    /// The parts: for the entry and for the return.
    pub parts: [&'s str; 2],
    /// The kernel function that distinguishes a return from an entry.
    pub ask: &'s str,
    /// That function takes the context.
    pub of_context: bool,
}

impl CodegenCx<'_> {
    /// Builds the program that calls one part or the other.
    pub fn session(&self, session: Session) {
        let Session { name, section, parts, ask, of_context } = session;
        let mut e = self.begin_program(name, section, &[], ProgramCx::default());
        let second = if of_context {
            let ctx = e.ctx();
            e.call_kernel_number(ask, &[KernelType::Number, KernelType::Anything], &[ctx.into()])
        } else {
            e.call_kernel_number(ask, &[KernelType::Number], &[])
        };
        // a bool, of which only the lowest byte counts
        let second = e.cmp(Cmp::Ne, e.and(second, e.int(0xff)), e.int(0));
        let [entry, ret] = parts;
        e.if_else(second, |e| e.call_part(ret), |e| e.call_part(entry));
        e.end_program(0);
    }
}

impl Builder<'_, '_> {
    fn call_part(&mut self, name: &str) {
        let Some(function) = self.module.get_function(name) else { bug!("there is a function {name}") };
        let ctx = self.ctx();
        ok(self.b.build_call(function, &[ctx.into()], ""));
    }
}
