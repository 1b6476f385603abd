//! Bit operations on registers, and bounds that the verifier can track.

use inkwell::intrinsics::Intrinsic;
use inkwell::values::{BasicMetadataValueEnum, BasicValueEnum, IntValue};

use super::callback::SubprogramKind;
use super::{Builder, Cmp, ok};
use crate::bug;

impl<'c> Builder<'_, 'c> {
    /// The low `bytes` (2, 4 or 8) in reverse order; the other bytes are zero.
    pub fn swap_bytes(&self, value: IntValue<'c>, bytes: u8) -> IntValue<'c> {
        let narrow = self.narrow(value, bytes);
        let swapped = self.intrinsic("llvm.bswap", narrow, &[narrow.into()]);
        if bytes == 8 { swapped } else { ok(self.b.build_int_z_extend(swapped, self.i64t(), "")) }
    }

    /// Index of the highest set bit of a nonzero value.
    pub fn highest_bit(&self, value: IntValue<'c>) -> IntValue<'c> {
        if let Some(highest) = value.get_zero_extended_constant().and_then(u64::checked_ilog2) {
            return self.int(highest.into());
        }
        // BPF has no instruction for this, and the back end cannot expand LLVM's.
        let mut v = value;
        for shift in [1, 2, 4, 8, 16, 32] {
            v = self.or(v, self.shr(v, self.int(shift), false));
        }
        let ones = self.intrinsic("llvm.ctpop", v, &[v.into()]);
        self.sub(ones, self.int(1))
    }

    fn intrinsic(&self, name: &str, value: IntValue<'c>, args: &[BasicMetadataValueEnum<'c>]) -> IntValue<'c> {
        let function = Intrinsic::find(name).and_then(|i| i.get_declaration(&self.module, &[value.get_type().into()]));
        let Some(function) = function else { bug!("LLVM has {name}") };
        match ok(self.b.build_call(function, args, "")).try_as_basic_value().basic() {
            Some(BasicValueEnum::IntValue(v)) => v,
            _ => bug!("{name} gives an integer"),
        }
    }

    /// The smaller of `value` and `max`, in a form that the verifier understands. Of a value that has been compared
    /// before, it may have forgotten the bound: if LLVM has spilled the value between its definition and the comparison,
    /// kernels before 6.9 do not apply the bound to the copy on the stack. LLVM may spill even this value, so a function compares
    /// it if the kernel has rejected the program.
    pub fn at_most(&mut self, value: IntValue<'c>, max: u64) -> IntValue<'c> {
        // the kernel removes a branch that is never taken, and moves all instructions after it
        if let Some(known) = value.get_zero_extended_constant() {
            return self.int(known.min(max));
        }
        if self.target.inline_bounds {
            return self.smaller(value, max);
        }
        let name = format!("at_most_{max}");
        let function = self.module.get_function(&name).unwrap_or_else(|| {
            let mut inner = self.begin_inner(&name, &[true], SubprogramKind::Static);
            inner.never_inline(inner.fun.function);
            let Some(BasicValueEnum::IntValue(value)) = inner.fun.function.get_first_param() else { bug!("it gets a number") };
            let value = inner.smaller(value, max);
            inner.end_inner(value, false).function
        });
        self.call_function(function, &[value.into()])
    }

    fn smaller(&mut self, value: IntValue<'c>, max: u64) -> IntValue<'c> {
        let value = self.opaque(value);
        let exceeds = self.cmp(Cmp::Ugt, value, self.int(max));
        let max = self.int(max);
        self.choose(exceeds, |_| max, |_| value)
    }
}
