//! One program for a function's entry and its return: a function for each, and one that calls the right one.

use inkwell::attributes::{Attribute, AttributeLoc};

use super::kernel::KernelType;
use super::{Cmp, Emit, Section, ok};
use crate::bug;

impl<'c> Emit<'c> {
    /// A program that calls one of two functions made by [`Emit::begin_part`]: the second where the kernel's
    /// function of this name says so, which may want the context.
    pub fn session(&mut self, name: &str, section: Section, parts: [&str; 2], ask: &str, of_context: bool) {
        self.begin_program(name, section, &[]);
        let second = if of_context {
            let ctx = self.ctx();
            self.call_kernel_number(ask, &[KernelType::Number, KernelType::Anything], &[ctx.into()])
        } else {
            self.call_kernel_number(ask, &[KernelType::Number], &[])
        };
        // a bool, of which the lowest byte counts
        let second = self.cmp(Cmp::Ne, self.and(second, self.int(0xff)), self.int(0));
        let [entry, ret] = parts.map(str::to_owned);
        self.if_else(second, |e| e.call_part(&ret), |e| e.call_part(&entry));
        self.end_program(0);
    }

    fn call_part(&mut self, name: &str) {
        let Some(function) = self.module.get_function(name) else { bug!("there is a function {name}") };
        let ctx = self.ctx();
        ok(self.b.build_call(function, &[ctx.into()], ""));
    }

    /// Keeps the function under construction from being made part of its caller, whose stack has no room for two.
    pub(super) fn keep_apart(&self) {
        let kind = Attribute::get_named_enum_kind_id("noinline");
        let function = self.fun_ref().function;
        function.add_attribute(AttributeLoc::Function, self.cx.create_enum_attribute(kind, 0));
    }
}
