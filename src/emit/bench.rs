//! A program that runs another one repeatedly, to measure its run time.

use inkwell::values::BasicValueEnum;

use super::{Cmp, CodegenCx, Helper, ProgramCx, SectionDef, mem, ok};
use crate::bug;

impl CodegenCx<'_> {
    /// A program that calls a function made by [`CodegenCx::begin_part`]. The first word of its context has the number of
    /// calls. It stops early if the function returns a nonzero value, and returns that value.
    pub fn bench(&self, name: &str, section: SectionDef, part: &str) {
        let mut e = self.begin_program(name, section, &[], ProgramCx::default());
        let times = e.load_ctx(0, mem::U64);
        let Some(function) = self.module.get_function(part) else { bug!("there is a function {part}") };
        let each = e.callback(&format!("{name}_each"), &[true, false], |e, params| {
            let Some(BasicValueEnum::PointerValue(ptr)) = params.get(1) else { return e.int(1) };
            let ctx = e.load_ptr(*ptr, 0);
            let call = ok(e.b.build_call(function, &[ctx.into()], ""));
            let Some(BasicValueEnum::IntValue(returned)) = call.try_as_basic_value().basic() else { bug!("{part} returns a number") };
            e.store(*ptr, 8, 8, returned);
            e.cmp(Cmp::Ne, returned, e.int(0))
        });
        let ptr = e.callback_args();
        let (ctx, zero) = (e.ctx(), e.int(0));
        e.store_ptr(ptr, 0, ctx);
        e.store(ptr, 8, 8, zero);
        e.call(Helper::Loop, &[times.into(), each.into(), ptr.into(), zero.into()]);
        let returned = e.load(ptr, 8, mem::U64);
        e.ret(Some(returned));
        e.end_program(0);
    }
}
