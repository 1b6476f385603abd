//! Rules: the location of the caller's frame relative to the registers of a function.

use gimli::{CfaRule, Operation, Reader, Register, RegisterRule, UnwindExpression, UnwindSection, UnwindTableRow};

use super::entry::MAX_FIRST_FRAME;
use crate::system::machine::arch::Unwind;
use crate::system::machine::arch::instructions::{Frame, SignalFrame};

/// How to find the caller's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// The canonical frame address: the stack pointer's value before the call.
    pub cfa: Cfa,
    /// The caller's frame pointer.
    pub fp: Fp,
    /// The return address.
    pub ra: Ra,
    /// The caller's value of the register of [`Unwind::third_by_dwarf`].
    pub third: Third,
    /// The kernel pushed the frame for a signal: the "return address" is the interrupted instruction.
    pub signal: bool,
    /// The frame is one of an interpreter's loop: see [`Loops`](crate::system::binary::interpreters::Loops).
    pub interpreter: bool,
    /// It is not from information but from the instructions, so a return address of 0 is not the proper end of a stack.
    pub inferred: bool,
}

/// The canonical frame address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cfa {
    /// Unknown: there is no information for this code.
    Unknown,
    /// The information is of an unsupported kind.
    Unsupported,
    /// Unknown: the frame pointer leads to the caller.
    Chain,
    /// The stack pointer plus an offset.
    Sp(i32),
    /// The frame pointer plus an offset.
    Fp(i32),
    /// The value stored at the stack pointer plus the first number, plus the second.
    AtSp(i32, i32),
    /// The value stored at the frame pointer plus the first number, plus the second.
    AtFp(i32, i32),
    /// In a procedure linkage table: the stack pointer plus the first number, plus 8 if the lowest four bits of the instruction
    /// pointer are at least the second number.
    Plt(i32, i32),
    /// The third register plus an offset.
    Third(i32),
    /// In the first two frames of a stack, another register plus an offset: the first number is its offset in `struct pt_regs`.
    FirstFrame(u32, i32),
}

/// The caller's frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fp {
    /// Unchanged.
    Same,
    /// Stored at the CFA plus an offset.
    AtCfa(i32),
    /// Stored at the stack pointer plus an offset.
    AtSp(i32),
    /// Stored at the frame pointer plus an offset.
    AtFp(i32),
}

/// The caller's value of the third register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Third {
    /// Unchanged.
    Same,
    /// Stored at the CFA plus an offset.
    AtCfa(i32),
    /// Stored at the stack pointer plus an offset.
    AtSp(i32),
    /// Stored at the frame pointer plus an offset, as in a function that aligns its stack frame.
    AtFp(i32),
}

/// The return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ra {
    /// None: this is the outermost frame.
    None,
    /// Stored at the CFA plus an offset, which on x86-64 is -8 except in assembly code.
    AtCfa(i32),
    /// Stored at the stack pointer plus an offset.
    AtSp(i32),
    /// Still in the link register.
    Link,
    /// In the first frame of a stack, in the register at this offset in `struct pt_regs`, as in `vfork`.
    FirstFrame(u32),
}

impl Rule {
    /// The rule for code without information.
    pub const UNKNOWN: Self =
        Self { cfa: Cfa::Unknown, fp: Fp::Same, ra: Ra::AtCfa(-8), third: Third::Same, signal: false, interpreter: false, inferred: false };

    /// The rule of the outermost frame.
    pub(super) const OUTERMOST: Self = Self { cfa: Cfa::Sp(0), ra: Ra::None, ..Self::UNKNOWN };

    /// The rule of code without information, by what its instructions show.
    pub(super) fn from_frame(frame: Frame, arch: &Unwind) -> Self {
        let word = Self::UNKNOWN;
        let inferred = Self { inferred: true, ..word };
        let pushed = |cfa: Cfa, size: i32| Self { cfa, fp: Fp::AtCfa(-size), ra: Ra::AtCfa(8 - size), ..word };
        match frame {
            Frame::Unknown => word,
            Frame::Entered if arch.links => Self { cfa: Cfa::Sp(0), ra: Ra::Link, ..word },
            Frame::Entered => Self { cfa: Cfa::Sp(8), ..inferred },
            Frame::Pushed(size) => pushed(Cfa::Sp(size), size),
            Frame::Set(size) => pushed(Cfa::Fp(size), size),
            Frame::AboveSp(size, saved) => Self { cfa: Cfa::Sp(size), fp: saved.map_or(Fp::Same, |saved| Fp::AtCfa(-saved)), ..inferred },
            Frame::AboveFp(size, saved) => Self { cfa: Cfa::Fp(size), fp: Fp::AtCfa(-saved), ..inferred },
            Frame::Outermost => Self::OUTERMOST,
            Frame::Linked(size) => Self { cfa: Cfa::Sp(size), ..word },
            Frame::Signal(SignalFrame { sp, fp, third, ip }) => Self {
                cfa: Cfa::AtSp(sp, 0),
                fp: Fp::AtSp(fp),
                ra: Ra::AtSp(ip),
                third: Third::AtSp(third),
                signal: true,
                interpreter: false,
                inferred: false,
            },
        }
    }

    pub(super) fn chain() -> Self {
        Self { cfa: Cfa::Chain, ..Self::UNKNOWN }
    }

    pub(super) fn unsupported() -> Self {
        Self { cfa: Cfa::Unsupported, ..Self::UNKNOWN }
    }

    /// Converts a row of DWARF to a rule.
    pub(super) fn of<R: Reader, S: UnwindSection<R>>(
        row: &UnwindTableRow<R::Offset>,
        section: &S,
        signal: bool,
        encoding: gimli::Encoding,
        arch: &Unwind,
    ) -> Self {
        let [sp, fp] = arch.by_dwarf;
        let expression = |e: &UnwindExpression<R::Offset>| Expression::of(e.get(section).ok()?, encoding, arch);
        let ra = match row.register(Register(arch.return_address)) {
            None | Some(RegisterRule::SameValue) if arch.links => Some(Ra::Link),
            Some(RegisterRule::Undefined) => Some(Ra::None),
            Some(RegisterRule::Offset(n)) => i32::try_from(n).ok().map(Ra::AtCfa),
            Some(RegisterRule::Register(r)) => {
                arch.first_frame.get(usize::from(r.0)).filter(|at| **at <= MAX_FIRST_FRAME).map(|at| Ra::FirstFrame(*at))
            }
            Some(RegisterRule::Expression(e)) => match expression(&e) {
                Some(Expression::Plus(base, n)) if base == sp => Some(Ra::AtSp(n)),
                _ => None,
            },
            _ => None,
        };
        let caller_fp = match row.register(Register(fp)) {
            None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => Some(Fp::Same),
            Some(RegisterRule::Offset(n)) => i32::try_from(n).ok().map(Fp::AtCfa),
            Some(RegisterRule::Expression(e)) => match expression(&e) {
                Some(Expression::Plus(base, n)) if base == sp => Some(Fp::AtSp(n)),
                Some(Expression::Plus(base, n)) if base == fp => Some(Fp::AtFp(n)),
                _ => None,
            },
            _ => None,
        };
        let third = match row.register(Register(arch.third_by_dwarf)) {
            // a link register is the return address
            _ if arch.links => Some(Third::Same),
            None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => Some(Third::Same),
            Some(RegisterRule::Offset(n)) => i32::try_from(n).ok().map(Third::AtCfa),
            Some(RegisterRule::Expression(e)) => match expression(&e) {
                Some(Expression::Plus(base, n)) if base == sp => Some(Third::AtSp(n)),
                Some(Expression::Plus(base, n)) if base == fp => Some(Third::AtFp(n)),
                _ => None,
            },
            _ => None,
        };
        if ra == Some(Ra::None) {
            return Self::OUTERMOST;
        }
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                i32::try_from(*offset).ok().and_then(|n| Expression::Plus(register.0, n).cfa(arch))
            }
            CfaRule::Expression(e) => expression(e).and_then(|e| e.cfa(arch)),
        };
        match (cfa, caller_fp, ra, third) {
            (Some(cfa), Some(fp), Some(ra), Some(third)) => Self { cfa, fp, ra, third, signal, ..Self::UNKNOWN },
            _ => Self::unsupported(),
        }
    }
}

/// The expressions that occur in practice.
enum Expression {
    /// A register plus a constant.
    Plus(u16, i32),
    /// The value stored at a register plus a constant, plus another constant.
    Stored(u16, i32, i32),
    /// See [`Cfa::Plt`].
    Plt(i32, i32),
}

impl Expression {
    fn of<R: Reader>(expression: gimli::Expression<R>, encoding: gimli::Encoding, arch: &Unwind) -> Option<Self> {
        /// The longest expression is that of a linkage table.
        const MAX_OPERATIONS: usize = 9;
        let mut operations = expression.operations(encoding);
        let mut all = Vec::new();
        while let Some(operation) = operations.next().ok()? {
            if all.len() == MAX_OPERATIONS {
                return None;
            }
            all.push(operation);
        }
        let small = |n: i64| i32::try_from(n).ok();
        let register = |o: &Operation<R>| {
            let Operation::RegisterOffset { register, offset, .. } = o else { return None };
            Some((register.0, small(*offset)?))
        };
        let (first, rest) = all.split_first()?;
        let (base, offset) = register(first)?;
        match rest {
            [] => Some(Self::Plus(base, offset)),
            [Operation::PlusConstant { value }] => Some(Self::Plus(base, offset.checked_add(i32::try_from(*value).ok()?)?)),
            [Operation::Deref { size: 8, space: false, .. }] => Some(Self::Stored(base, offset, 0)),
            [Operation::Deref { size: 8, space: false, .. }, Operation::PlusConstant { value }] => {
                Some(Self::Stored(base, offset, i32::try_from(*value).ok()?))
            }
            [ip, mask, Operation::And, least, Operation::Ge, shift, Operation::Shl, Operation::Plus]
                if base == arch.by_dwarf[0]
                    && register(ip) == Some((arch.return_address, 0))
                    && literal(mask) == Some(15)
                    && literal(shift) == Some(3) =>
            {
                Some(Self::Plt(offset, literal(least)?))
            }
            _ => None,
        }
    }

    /// Programs know the values of other registers only in the first frames.
    fn cfa(self, arch: &Unwind) -> Option<Cfa> {
        let [sp, fp] = arch.by_dwarf;
        match self {
            Self::Plus(base, n) if base == sp => Some(Cfa::Sp(n)),
            Self::Plus(base, n) if base == fp => Some(Cfa::Fp(n)),
            Self::Plus(base, n) if base == arch.third_by_dwarf && !arch.links => Some(Cfa::Third(n)),
            Self::Plus(base, n) => arch.first_frame.get(usize::from(base)).map(|at| Cfa::FirstFrame(*at, n)),
            Self::Stored(base, at, plus) if base == sp => Some(Cfa::AtSp(at, plus)),
            Self::Stored(base, at, plus) if base == fp => Some(Cfa::AtFp(at, plus)),
            Self::Stored(..) => None,
            Self::Plt(n, least) => Some(Cfa::Plt(n, least)),
        }
    }
}

fn literal<R: Reader>(operation: &Operation<R>) -> Option<i32> {
    if let Operation::SignedConstant { value } = operation {
        return i32::try_from(*value).ok();
    }
    let Operation::UnsignedConstant { value } = operation else { return None };
    i32::try_from(*value).ok()
}
