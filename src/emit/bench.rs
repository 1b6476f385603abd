//! A program that is run over and over, for its time to be told.

use inkwell::values::BasicValueEnum;

use super::{Cmp, Emit, Helper, Section, mem, ok};
use crate::bug;

impl<'c> Emit<'c> {
    /// A program that calls a function made by [`Emit::begin_part`] as many times as its context's first word says,
    /// or until that returns something else than 0, which it then returns itself.
    pub fn bench(&mut self, name: &str, section: Section, part: &str) {
        self.begin_program(name, section, &[]);
        let times = self.load_ctx(0, mem::U64);
        let Some(function) = self.module.get_function(part) else { bug!("there is a function {part}") };
        let each = self.callback(&format!("{name}_each"), &[true, false], |e, params| {
            let Some(BasicValueEnum::PointerValue(at)) = params.get(1) else { return e.int(1) };
            let ctx = e.load_ptr(*at, 0);
            let call = ok(e.b.build_call(function, &[ctx.into()], ""));
            let Some(BasicValueEnum::IntValue(returned)) = call.try_as_basic_value().basic() else { bug!("{part} returns a number") };
            e.store(*at, 8, 8, returned);
            e.cmp(Cmp::Ne, returned, e.int(0))
        });
        let at = self.handed();
        let (ctx, zero) = (self.ctx(), self.int(0));
        self.store_ptr(at, 0, ctx);
        self.store(at, 8, 8, zero);
        self.call(Helper::Loop, &[times.into(), each.into(), at.into(), zero.into()]);
        let returned = self.load(at, 8, mem::U64);
        self.ret(Some(returned));
        self.end_program(0);
    }
}
