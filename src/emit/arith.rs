//! Constants, arithmetic and comparisons in registers.

use inkwell::IntPredicate;
use inkwell::types::IntType;
use inkwell::values::{BasicValueEnum, IntValue, PointerValue};

use super::{Builder, Cmp, Operand, Repr, ok};
use crate::bug;
use crate::types::Int;

impl<'c> Builder<'_, 'c> {
    /// A comparison, as a bool in a register (0 or 1).
    pub fn cmp(&self, op: Cmp, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        let bit = self.cmp_bit(op, a, b);
        ok(self.b.build_int_z_extend(bit, self.i64t(), ""))
    }

    pub(super) fn cmp_bit(&self, op: Cmp, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        let p = match op {
            Cmp::Eq => IntPredicate::EQ,
            Cmp::Ne => IntPredicate::NE,
            Cmp::Ult => IntPredicate::ULT,
            Cmp::Ule => IntPredicate::ULE,
            Cmp::Ugt => IntPredicate::UGT,
            Cmp::Uge => IntPredicate::UGE,
            Cmp::Slt => IntPredicate::SLT,
            Cmp::Sle => IntPredicate::SLE,
            Cmp::Sgt => IntPredicate::SGT,
            Cmp::Sge => IntPredicate::SGE,
        };
        ok(self.b.build_int_compare(p, a, b, ""))
    }

    /// `a + b`
    pub fn add(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        ok(self.b.build_int_add(a, b, ""))
    }

    /// `a - b`
    pub fn sub(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        ok(self.b.build_int_sub(a, b, ""))
    }

    /// `a * b`
    pub fn mul(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        ok(self.b.build_int_mul(a, b, ""))
    }

    /// `a & b`
    pub fn and(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        ok(self.b.build_and(a, b, ""))
    }

    /// `a | b`
    pub fn or(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        ok(self.b.build_or(a, b, ""))
    }

    /// `a ^ b`
    pub fn xor(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        ok(self.b.build_xor(a, b, ""))
    }

    /// `a << b`. Like BPF, it uses the low six bits of `b`; in LLVM, larger shifts are undefined.
    pub fn shl(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        let b = self.and(b, self.int(63));
        ok(self.b.build_left_shift(a, b, ""))
    }

    /// `a >> b`, arithmetic if `signed`; uses the low six bits of `b`.
    pub fn shr(&self, a: IntValue<'c>, b: IntValue<'c>, signed: bool) -> IntValue<'c> {
        let b = self.and(b, self.int(63));
        ok(self.b.build_right_shift(a, b, signed, ""))
    }

    /// `a / b` or `a % b`. The caller must ensure that `b` is not zero. Signed division is built from unsigned division,
    /// truncating toward zero, if the CPU version lacks it or the divisor may be -1: for the minimum divided by -1, LLVM's
    /// `sdiv` is undefined and some kernels trap. Here, the result is the minimum itself, and the remainder 0.
    pub fn div(&self, a: IntValue<'c>, b: IntValue<'c>, signed: bool, remainder: bool) -> IntValue<'c> {
        // LLVM turns `a * b / a != b` and `-1 / a < b` into a 128-bit multiplication, which BPF does not have.
        let a = if remainder || (a.is_const() && b.is_const()) { a } else { self.opaque(a) };
        let has_sdiv = self.target.v4 && b.get_sign_extended_constant().is_some_and(|n| n != 0 && n != -1);
        match (signed, remainder) {
            (false, false) => ok(self.b.build_int_unsigned_div(a, b, "")),
            (false, true) => ok(self.b.build_int_unsigned_rem(a, b, "")),
            (true, false) if has_sdiv => ok(self.b.build_int_signed_div(a, b, "")),
            (true, true) if has_sdiv => ok(self.b.build_int_signed_rem(a, b, "")),
            (true, _) => {
                let (sa, sb) = (self.shr(a, self.int(63), true), self.shr(b, self.int(63), true));
                let magnitude = |v, s| self.sub(self.xor(v, s), s);
                let (ua, ub) = (magnitude(a, sa), magnitude(b, sb));
                if remainder {
                    magnitude(ok(self.b.build_int_unsigned_rem(ua, ub, "")), sa)
                } else {
                    magnitude(ok(self.b.build_int_unsigned_div(ua, ub, "")), self.xor(sa, sb))
                }
            }
        }
    }

    /// The same as [`Builder::div`], by a function in programs with many divisions.
    pub fn divide(&mut self, a: IntValue<'c>, b: IntValue<'c>, signed: bool, remainder: bool) -> IntValue<'c> {
        if !self.program.divides_often || !self.shares_code() || b.is_const() {
            return self.div(a, b, signed, remainder);
        }
        let name = match (signed, remainder) {
            (false, false) => "quotient",
            (false, true) => "remainder",
            (true, false) => "signed_quotient",
            (true, true) => "signed_remainder",
        };
        self.global(name, &[a, b], |e, args| match args {
            [a, b] => e.div(*a, *b, signed, remainder),
            _ => bug!("it gets two numbers"),
        })
    }

    /// `c != 0 ? a : b`, where both are already computed.
    pub fn select(&self, c: IntValue<'c>, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        let bit = self.cmp_bit(Cmp::Ne, c, self.int(0));
        let BasicValueEnum::IntValue(v) = ok(self.b.build_select(bit, a, b, "")) else {
            bug!("a select of integers is one");
        };
        v
    }

    /// Truncates a value to a width and extends it again, as a cast does.
    pub fn fit(&self, value: IntValue<'c>, int: Int) -> IntValue<'c> {
        if int.bytes >= 8 {
            return value;
        }
        let narrow = self.narrow(value, int.bytes);
        let wide = self.i64t();
        if int.signed { ok(self.b.build_int_s_extend(narrow, wide, "")) } else { ok(self.b.build_int_z_extend(narrow, wide, "")) }
    }

    pub(super) fn narrow(&self, value: IntValue<'c>, bytes: u8) -> IntValue<'c> {
        match bytes {
            8 => value,
            n => ok(self.b.build_int_truncate(value, self.width(n), "")),
        }
    }

    pub(super) fn width(&self, bytes: u8) -> IntType<'c> {
        match bytes {
            1 => self.llcx.i8_type(),
            2 => self.llcx.i16_type(),
            4 => self.llcx.i32_type(),
            _ => self.llcx.i64_type(),
        }
    }

    /// The integer part of a floating-point number of 4 or 8 bytes with these bits. As on x86, the result is 2^63 for NaN and
    /// for numbers outside the range of 64 bits.
    pub fn truncated_float(&self, bits: IntValue<'c>, bytes: u32) -> IntValue<'c> {
        let (fraction, bias) = if bytes == 4 { (23, 127) } else { (52, 1023) };
        let hidden_bit = 1 << fraction;
        let exponent = self.and(self.shr(bits, self.int(fraction), false), self.int(2 * bias + 1));
        let digits = self.or(self.and(bits, self.int(hidden_bit - 1)), self.int(hidden_bit));
        let unit = self.int(bias + fraction);
        let large = self.shl(digits, self.sub(exponent, unit));
        let small = self.shr(digits, self.sub(unit, exponent), false);
        let size = self.select(self.cmp(Cmp::Uge, exponent, unit), large, small);
        let size = self.select(self.cmp(Cmp::Ult, exponent, self.int(bias)), self.int(0), size);
        let size = self.select(self.cmp(Cmp::Ugt, exponent, self.int(bias + 63)), self.int(1 << 63), size);
        let negative = self.and(self.shr(bits, self.int(u64::from(bytes) * 8 - 1), false), self.int(1));
        self.select(negative, self.sub(self.int(0), size), size)
    }

    /// Hides a value's origin from LLVM, so that a later check of its range remains where the verifier needs it.
    pub fn opaque(&self, value: IntValue<'c>) -> IntValue<'c> {
        let ty = self.i64t().fn_type(&[self.i64t().into()], false);
        let asm = self.llcx.create_inline_asm(ty, String::new(), "=r,0".into(), true, false, None, false);
        let call = ok(self.b.build_indirect_call(ty, asm, &[value.into()], ""));
        match call.try_as_basic_value().basic() {
            Some(BasicValueEnum::IntValue(v)) => v,
            _ => bug!("an asm of i64 gives i64"),
        }
    }

    /// Keeps this block behind its branch. LLVM merges short blocks of comparisons into one without branches, which BPF cannot
    /// express: each comparison becomes a number by a branch of its own, and all results live at once.
    pub fn keep_apart(&self) {
        let asm =
            self.llcx.create_inline_asm(self.llcx.void_type().fn_type(&[], false), String::new(), String::new(), true, false, None, false);
        ok(self.b.build_indirect_call(self.llcx.void_type().fn_type(&[], false), asm, &[], ""));
    }

    /// Turns an address into a plain number, so that the verifier allows arithmetic with it: the verifier treats the result of
    /// a byte swap as unknown (`check_alu_op` of kernel/bpf/verifier.c). Only helpers can then read from this address.
    pub fn forget_pointer_type(&self, addr: IntValue<'c>) -> IntValue<'c> {
        let hidden = self.opaque(self.swap_bytes(addr, 8));
        self.swap_bytes(hidden, 8)
    }

    /// A pointer's address as a number.
    pub fn addr(&self, ptr: PointerValue<'c>) -> IntValue<'c> {
        ok(self.b.build_ptr_to_int(ptr, self.i64t(), ""))
    }

    /// The pointer at the address that [`Self::addr`] returned.
    pub(super) fn at_address(&self, number: IntValue<'c>) -> PointerValue<'c> {
        ok(self.b.build_int_to_ptr(number, self.ptrt(), ""))
    }

    /// The number in a scalar operand.
    pub fn scalar(&self, op: &Operand<'c>) -> IntValue<'c> {
        match op.repr {
            Repr::Reg(v) => v,
            Repr::Mem(ptr, _) => match op.ty.as_int() {
                Some(int) => self.load(ptr, 0, int),
                None => self.addr(ptr),
            },
            Repr::At(addr, _) => addr,
            Repr::None => self.int(0),
        }
    }
}
