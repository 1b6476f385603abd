//! The numeric encoding of rules for BPF programs and for the cache.

use super::{Cfa, Fp, Ra, Rule, Third};

/// An encoded [`Rule`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RuleEntry {
    /// One of `CFA_…`.
    pub cfa: u8,
    /// One of `FP_…`.
    pub fp: u8,
    /// One of `RA_…`.
    pub ra: u8,
    /// Bit 0: the frame is that of a signal. Bits 1 and 2: one of `THIRD_…`. Bit 3: [`INTERPRETER`]. Bit 4:
    /// [`INFERRED`].
    pub flags: u8,
    /// Offset of the CFA.
    pub cfa_offset: i32,
    /// Addend for a stored value; for a linkage table, the lowest position with the larger offset in a slot; for a register of the
    /// first frames, its offset in `struct pt_regs`; [`THIRD_REGISTER`].
    pub cfa_second: i32,
    /// Offset of the frame pointer.
    pub fp_offset: i32,
    /// Offset of the return address.
    pub ra_offset: i32,
    /// Offset of the third register.
    pub third_offset: i32,
}

/// In [`RuleEntry::flags`]: the frame is one of an interpreter's loop.
pub const INTERPRETER: u8 = 1 << 3;
/// log2 of [`INFERRED`].
pub const INFERRED_SHIFT: u64 = 4;
/// In [`RuleEntry::flags`]: a return address of 0 is not the end of a stack.
pub const INFERRED: u8 = 1 << INFERRED_SHIFT;
/// Unknown.
pub const CFA_UNKNOWN: u8 = 0;
/// Unsupported.
pub const CFA_UNSUPPORTED: u8 = 1;
/// Stack pointer plus the offset.
pub const CFA_SP: u8 = 2;
/// Frame pointer plus the offset.
pub const CFA_FP: u8 = 3;
/// The value stored at the stack pointer plus the offset.
pub const CFA_AT_SP: u8 = 4;
/// The value stored at the frame pointer plus the offset.
pub const CFA_AT_FP: u8 = 5;
/// A procedure linkage table.
pub const CFA_PLT: u8 = 6;
/// The third register plus the offset.
pub const CFA_THIRD: u8 = 7;
/// The frame pointer leads to the caller.
pub const CFA_CHAIN: u8 = 8;
/// Another register plus the offset, in the first frame.
pub const CFA_FIRST_FRAME: u8 = 9;
/// In [`RuleEntry::cfa_second`], in place of an offset in `struct pt_regs`: the third register.
pub const THIRD_REGISTER: i32 = -1;
/// The greatest offset of a register of the first frame.
pub const MAX_FIRST_FRAME: u32 = 120;
/// Unchanged.
pub const FP_SAME: u8 = 0;
/// Stored at the CFA plus the offset.
pub const FP_AT_CFA: u8 = 1;
/// Stored at the stack pointer plus the offset.
pub const FP_AT_SP: u8 = 2;
/// Stored at the frame pointer plus the offset.
pub const FP_AT_FP: u8 = 3;
/// Unchanged.
pub const THIRD_SAME: u8 = 0;
/// Stored at the CFA plus the offset.
pub const THIRD_AT_CFA: u8 = 1;
/// Stored at the stack pointer plus the offset.
pub const THIRD_AT_SP: u8 = 2;
/// Stored at the frame pointer plus the offset.
pub const THIRD_AT_FP: u8 = 3;
/// None: the outermost frame.
pub const RA_NONE: u8 = 0;
/// Stored at the CFA plus the offset.
pub const RA_AT_CFA: u8 = 1;
/// Stored at the stack pointer plus the offset.
pub const RA_AT_SP: u8 = 2;
/// Still in the link register.
pub const RA_LINK: u8 = 3;
/// In the register at the offset in `struct pt_regs`, in the first frame.
pub const RA_FIRST_FRAME: u8 = 4;

impl From<&Rule> for RuleEntry {
    fn from(rule: &Rule) -> Self {
        let (cfa, cfa_offset, cfa_second) = match rule.cfa {
            Cfa::Unknown => (CFA_UNKNOWN, 0, 0),
            Cfa::Unsupported => (CFA_UNSUPPORTED, 0, 0),
            Cfa::Chain => (CFA_CHAIN, 0, 0),
            Cfa::Sp(n) => (CFA_SP, n, 0),
            Cfa::Fp(n) => (CFA_FP, n, 0),
            Cfa::AtSp(n, plus) => (CFA_AT_SP, n, plus),
            Cfa::AtFp(n, plus) => (CFA_AT_FP, n, plus),
            Cfa::Plt(n, least) => (CFA_PLT, n, least),
            Cfa::Third(n) => (CFA_THIRD, n, THIRD_REGISTER),
            Cfa::FirstFrame(register, n) => (CFA_FIRST_FRAME, n, register.cast_signed()),
        };
        let (fp, fp_offset) = match rule.fp {
            Fp::Same => (FP_SAME, 0),
            Fp::AtCfa(n) => (FP_AT_CFA, n),
            Fp::AtSp(n) => (FP_AT_SP, n),
            Fp::AtFp(n) => (FP_AT_FP, n),
        };
        let (ra, ra_offset) = match rule.ra {
            Ra::None => (RA_NONE, 0),
            Ra::AtCfa(n) => (RA_AT_CFA, n),
            Ra::AtSp(n) => (RA_AT_SP, n),
            Ra::Link => (RA_LINK, 0),
            Ra::FirstFrame(register) => (RA_FIRST_FRAME, register.cast_signed()),
        };
        let (third, third_offset) = match rule.third {
            Third::Same => (THIRD_SAME, 0),
            Third::AtCfa(n) => (THIRD_AT_CFA, n),
            Third::AtSp(n) => (THIRD_AT_SP, n),
            Third::AtFp(n) => (THIRD_AT_FP, n),
        };
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = u8::from(rule.signal) | third << 1 | flag(rule.interpreter, INTERPRETER) | flag(rule.inferred, INFERRED);
        Self { cfa, fp, ra, flags, cfa_offset, cfa_second, fp_offset, ra_offset, third_offset }
    }
}

impl RuleEntry {
    /// A number that spreads rules over the places of a table.
    pub(super) fn place(&self) -> usize {
        let kinds = i32::from_le_bytes([self.cfa, self.fp, self.ra, self.flags]);
        let numbers = [self.cfa_offset, self.cfa_second, self.fp_offset, self.ra_offset, self.third_offset];
        let mixed = numbers.iter().fold(kinds, |mixed, number| mixed.wrapping_mul(31).wrapping_add(*number));
        (mixed.cast_unsigned().wrapping_mul(0x9e37_79b9) >> 16) as usize
    }

    /// Decodes the rule; `None` if it is invalid.
    pub fn rule(&self) -> Option<Rule> {
        let register = |n: i32| u32::try_from(n).ok().filter(|register| *register <= MAX_FIRST_FRAME && register.is_multiple_of(8));
        let cfa = match self.cfa {
            CFA_UNKNOWN => Cfa::Unknown,
            CFA_UNSUPPORTED => Cfa::Unsupported,
            CFA_CHAIN => Cfa::Chain,
            CFA_SP => Cfa::Sp(self.cfa_offset),
            CFA_FP => Cfa::Fp(self.cfa_offset),
            CFA_AT_SP => Cfa::AtSp(self.cfa_offset, self.cfa_second),
            CFA_AT_FP => Cfa::AtFp(self.cfa_offset, self.cfa_second),
            CFA_PLT => Cfa::Plt(self.cfa_offset, self.cfa_second),
            CFA_THIRD => Cfa::Third(self.cfa_offset),
            CFA_FIRST_FRAME => Cfa::FirstFrame(register(self.cfa_second)?, self.cfa_offset),
            _ => return None,
        };
        let fp = match self.fp {
            FP_SAME => Fp::Same,
            FP_AT_CFA => Fp::AtCfa(self.fp_offset),
            FP_AT_SP => Fp::AtSp(self.fp_offset),
            FP_AT_FP => Fp::AtFp(self.fp_offset),
            _ => return None,
        };
        let ra = match self.ra {
            RA_NONE => Ra::None,
            RA_AT_CFA => Ra::AtCfa(self.ra_offset),
            RA_AT_SP => Ra::AtSp(self.ra_offset),
            RA_LINK => Ra::Link,
            RA_FIRST_FRAME => Ra::FirstFrame(register(self.ra_offset)?),
            _ => return None,
        };
        let third = match (self.flags & !INTERPRETER & !INFERRED) >> 1 {
            THIRD_SAME => Third::Same,
            THIRD_AT_CFA => Third::AtCfa(self.third_offset),
            THIRD_AT_SP => Third::AtSp(self.third_offset),
            THIRD_AT_FP => Third::AtFp(self.third_offset),
            _ => return None,
        };
        let has = |flag: u8| self.flags & flag != 0;
        Some(Rule { cfa, fp, ra, third, signal: has(1), interpreter: has(INTERPRETER), inferred: has(INFERRED) })
    }
}
