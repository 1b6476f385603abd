//! One program for a function's entry and its return: a function for each, and one that calls the right one.

use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::debug_info::AsDIScope;
use inkwell::module::Linkage;
use inkwell::types::BasicMetadataTypeEnum;
use inkwell::values::{BasicMetadataValueEnum, BasicValueEnum, IntValue};

use super::{Cmp, Emit, ok};
use crate::bug;

impl<'c> Emit<'c> {
    /// A program in `section` that calls one of two functions made by [`Emit::begin_part`]: the second where the kernel's
    /// function of this name says so, which takes the context if `takes_context`.
    pub fn session(&mut self, name: &str, section: &str, parts: [&str; 2], ask: &str, takes_context: bool) {
        self.begin_program(name, section, &[]);
        let ctx = self.ctx();
        let args: &[BasicMetadataValueEnum<'c>] = if takes_context { &[ctx.into()] } else { &[] };
        let second = self.call_kernel(ask, args);
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

    /// Calls one of the kernel's own functions that programs may call; libbpf finds it by name in the kernel's BTF, and
    /// compares the types.
    fn call_kernel(&mut self, name: &str, args: &[BasicMetadataValueEnum<'c>]) -> IntValue<'c> {
        let function = self.module.get_function(name).unwrap_or_else(|| {
            let types: Vec<BasicMetadataTypeEnum> = args.iter().map(|_| self.ptrt().into()).collect();
            let function = self.module.add_function(name, self.i64t().fn_type(&types, false), Some(Linkage::External));
            function.set_section(Some(".ksyms"));
            let (long, pointer) = (self.long(), self.void_pointer());
            let params: Vec<_> = args.iter().map(|_| pointer).collect();
            let ty = self.di.create_subroutine_type(self.file(), Some(long), &params, 0);
            let scope = self.unit.as_debug_info_scope();
            function.set_subprogram(self.di.create_function(scope, name, None, self.file(), 1, ty, false, false, 1, 0, true));
            function
        });
        match ok(self.b.build_call(function, args, "")).try_as_basic_value().basic() {
            Some(BasicValueEnum::IntValue(v)) => v,
            _ => bug!("{name} returns a number"),
        }
    }

    /// Keeps the function under construction from being made part of its caller, whose stack has no room for two.
    pub(super) fn keep_apart(&self) {
        let kind = Attribute::get_named_enum_kind_id("noinline");
        let function = self.fun_ref().function;
        function.add_attribute(AttributeLoc::Function, self.cx.create_enum_attribute(kind, 0));
    }
}
