//! Rules: the location of the caller's frame relative to the registers of a function.

use gimli::{CfaRule, Operation, Reader, Register, RegisterRule, UnwindExpression, UnwindSection, UnwindTableRow};

use crate::system::binary::instructions::frames::Frame;

/// DWARF's register numbers for x86-64 (System V ABI for AMD64, figure 3.36).
pub(super) const RBP: u16 = 6;
const RBX: u16 = 3;
const RSP: u16 = 7;
const RETURN_ADDRESS: u16 = 16;

/// How to find the caller's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// The canonical frame address: the stack pointer's value before the call.
    pub cfa: Cfa,
    /// The caller's frame pointer.
    pub fp: Fp,
    /// The return address.
    pub ra: Ra,
    /// The caller's rbx. The lazy binding of glibc uses it as the base of its frame.
    pub bx: Bx,
    /// The kernel pushed the frame for a signal: the "return address" is the interrupted instruction.
    pub signal: bool,
    /// The frame is one of an interpreter's loop: see [`Loops`](crate::system::binary::interpreters::Loops).
    pub interpreter: bool,
}

/// The canonical frame address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cfa {
    /// Unknown: there is no information for this code.
    Unknown,
    /// The information is of an unsupported kind.
    Unsupported,
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
    /// rbx plus an offset.
    Bx(i32),
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

/// The caller's rbx.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bx {
    /// Unchanged.
    Same,
    /// Stored at the CFA plus an offset.
    AtCfa(i32),
    /// Stored at the stack pointer plus an offset.
    AtSp(i32),
}

/// The return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ra {
    /// None: this is the outermost frame.
    None,
    /// Stored at the CFA plus an offset, which is -8 except in assembly code.
    AtCfa(i32),
    /// Stored at the stack pointer plus an offset.
    AtSp(i32),
}

impl Rule {
    /// The rule for code without information.
    pub const UNKNOWN: Self = Self { cfa: Cfa::Unknown, fp: Fp::Same, ra: Ra::AtCfa(-8), bx: Bx::Same, signal: false, interpreter: false };

    pub(super) fn unsupported() -> Self {
        Self { cfa: Cfa::Unsupported, ..Self::UNKNOWN }
    }

    /// Converts a row of DWARF to a rule.
    pub(super) fn of<R: Reader, S: UnwindSection<R>>(
        row: &UnwindTableRow<R::Offset>,
        section: &S,
        signal: bool,
        encoding: gimli::Encoding,
    ) -> Self {
        let expression = |e: &UnwindExpression<R::Offset>| Expression::of(e.get(section).ok()?, encoding);
        let ra = match row.register(Register(RETURN_ADDRESS)) {
            Some(RegisterRule::Undefined) => Some(Ra::None),
            Some(RegisterRule::Offset(n)) => i32::try_from(n).ok().map(Ra::AtCfa),
            Some(RegisterRule::Expression(e)) => match expression(&e) {
                Some(Expression::Plus(RSP, n)) => Some(Ra::AtSp(n)),
                _ => None,
            },
            _ => None,
        };
        let fp = match row.register(Register(RBP)) {
            None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => Some(Fp::Same),
            Some(RegisterRule::Offset(n)) => i32::try_from(n).ok().map(Fp::AtCfa),
            Some(RegisterRule::Expression(e)) => match expression(&e) {
                Some(Expression::Plus(RSP, n)) => Some(Fp::AtSp(n)),
                Some(Expression::Plus(RBP, n)) => Some(Fp::AtFp(n)),
                _ => None,
            },
            _ => None,
        };
        let bx = match row.register(Register(RBX)) {
            None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => Some(Bx::Same),
            Some(RegisterRule::Offset(n)) => i32::try_from(n).ok().map(Bx::AtCfa),
            Some(RegisterRule::Expression(e)) => match expression(&e) {
                Some(Expression::Plus(RSP, n)) => Some(Bx::AtSp(n)),
                _ => None,
            },
            _ => None,
        };
        if ra == Some(Ra::None) {
            return Self { cfa: Cfa::Sp(0), fp: Fp::Same, ra: Ra::None, bx: Bx::Same, signal: false, interpreter: false };
        }
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => match (register.0, i32::try_from(*offset)) {
                (RSP, Ok(n)) => Some(Cfa::Sp(n)),
                (RBP, Ok(n)) => Some(Cfa::Fp(n)),
                (RBX, Ok(n)) => Some(Cfa::Bx(n)),
                // Programs do not track the values of other registers.
                (_, Ok(_) | Err(_)) => None,
            },
            CfaRule::Expression(e) => expression(e).and_then(Expression::cfa),
        };
        match (cfa, fp, ra, bx) {
            (Some(cfa), Some(fp), Some(ra), Some(bx)) => Self { cfa, fp, ra, bx, signal, interpreter: false },
            _ => Self::unsupported(),
        }
    }
}

impl From<Frame> for Rule {
    fn from(frame: Frame) -> Self {
        match frame {
            Frame::Unknown => Self::UNKNOWN,
            Frame::Entered => Self { cfa: Cfa::Sp(8), ..Self::UNKNOWN },
            Frame::Pushed => Self { cfa: Cfa::Sp(16), fp: Fp::AtCfa(-16), ..Self::UNKNOWN },
            Frame::Set => Self { cfa: Cfa::Fp(16), fp: Fp::AtCfa(-16), ..Self::UNKNOWN },
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
    fn of<R: Reader>(expression: gimli::Expression<R>, encoding: gimli::Encoding) -> Option<Self> {
        /// The longest expression is that of a linkage table.
        const MOST: usize = 9;
        let mut operations = expression.operations(encoding);
        let mut all = Vec::new();
        while let Some(operation) = operations.next().ok()? {
            if all.len() == MOST {
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
            [Operation::Deref { size: 8, space: false, .. }] => Some(Self::Stored(base, offset, 0)),
            [Operation::Deref { size: 8, space: false, .. }, Operation::PlusConstant { value }] => {
                Some(Self::Stored(base, offset, i32::try_from(*value).ok()?))
            }
            [ip, mask, Operation::And, least, Operation::Ge, shift, Operation::Shl, Operation::Plus]
                if base == RSP && register(ip) == Some((RETURN_ADDRESS, 0)) && literal(mask) == Some(15) && literal(shift) == Some(3) =>
            {
                Some(Self::Plt(offset, literal(least)?))
            }
            _ => None,
        }
    }

    fn cfa(self) -> Option<Cfa> {
        match self {
            Self::Plus(RSP, n) => Some(Cfa::Sp(n)),
            Self::Plus(RBP, n) => Some(Cfa::Fp(n)),
            Self::Plus(RBX, n) => Some(Cfa::Bx(n)),
            Self::Stored(RSP, at, plus) => Some(Cfa::AtSp(at, plus)),
            Self::Stored(RBP, at, plus) => Some(Cfa::AtFp(at, plus)),
            Self::Plus(..) | Self::Stored(..) => None,
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
