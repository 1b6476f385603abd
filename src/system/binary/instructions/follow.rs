//! Tracks where the first instructions of a function copy the values that exist at its entry.
//!
//! The module follows the instructions in a straight line from the entry. A register or a byte of memory is known while it is a
//! copy of a register or of memory at the entry; the result of any other computation is unknown.

#![allow(clippy::wildcard_enum_match_arm)] // a few of a thousand instructions

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

/// The number of the stack pointer, as the processor counts registers.
pub const SP: u8 = 4;
/// The most instructions that are followed.
const LONGEST: u32 = 400;
/// Bytes above the stack pointer at the entry at which the return address ends.
const RETURN: i64 = 8;

/// Where an address counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Base {
    /// What the register holds at the entry.
    Register(u8),
    /// What memory holds at the entry, so many bytes from what the register holds.
    Pointer(u8, i64),
    /// The stack pointer after its n-th alignment: nobody knows by how much that moved it.
    Aligned(u8),
}

/// What one byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Byte {
    /// The n-th byte of a register at the entry.
    Register(u8, u8),
    /// The lowest bit of a register's lowest byte at the entry.
    RegisterBit(u8),
    /// The lowest bit of a byte of memory at the entry.
    MemoryBit(Base, i64),
    /// A byte of memory at the entry.
    Memory(Base, i64),
    /// Part of a vector register at the entry.
    Vector,
    /// In the function's own frame, and not written yet.
    Unset,
    /// Anything else.
    Unknown,
}

/// What a register holds.
#[allow(clippy::large_enum_variant)] // sixteen of them, for a moment
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// An address: so many bytes from the base.
    Sum(Base, i64),
    /// Each byte by itself.
    Bytes([Byte; 8]),
}

impl Value {
    const UNKNOWN: Value = Value::Bytes([Byte::Unknown; 8]);

    /// Its bytes, lowest first.
    pub fn bytes(self) -> [Byte; 8] {
        let each = |f: &dyn Fn(u8) -> Byte| std::array::from_fn(|n| f(n as u8));
        match self {
            Value::Sum(Base::Register(r), 0) => each(&|n| Byte::Register(r, n)),
            Value::Sum(Base::Pointer(r, at), 0) => each(&|n| Byte::Memory(Base::Register(r), at + i64::from(n))),
            Value::Sum(..) => [Byte::Unknown; 8],
            Value::Bytes(bytes) => bytes,
        }
    }

    /// What has these bytes.
    pub fn of(bytes: [Byte; 8]) -> Value {
        let all = |f: &dyn Fn(usize) -> Byte| bytes.iter().enumerate().all(|(n, b)| *b == f(n));
        match bytes[0] {
            Byte::Register(r, 0) if all(&|n| Byte::Register(r, n as u8)) => Value::Sum(Base::Register(r), 0),
            Byte::Memory(Base::Register(r), at) if all(&|n| Byte::Memory(Base::Register(r), at.wrapping_add(n as i64))) => {
                Value::Sum(Base::Pointer(r, at), 0)
            }
            _ => Value::Bytes(bytes),
        }
    }

    /// Its bytes from the n-th on.
    pub fn from_byte(self, n: usize) -> Value {
        let bytes = self.bytes();
        Value::Bytes(std::array::from_fn(|at| bytes.get(at + n).copied().unwrap_or(Byte::Unknown)))
    }

    /// Its lowest n bytes.
    pub fn lowest(self, n: usize) -> Value {
        let bytes = self.bytes();
        Value::Bytes(std::array::from_fn(|at| if at < n { bytes[at] } else { Byte::Unknown }))
    }

    /// So many bytes further.
    pub fn plus(self, by: i64) -> Value {
        match self {
            Value::Sum(base, at) => Value::Sum(base, at.wrapping_add(by)),
            value if by == 0 => value,
            Value::Bytes(bytes) if bytes.contains(&Byte::Unset) => Value::Bytes([Byte::Unset; 8]),
            Value::Bytes(_) => Value::UNKNOWN,
        }
    }
}

/// Registers and memory at one instruction.
#[derive(Clone, Debug)]
pub struct Machine {
    registers: [Value; 16],
    vectors: [[Byte; 32]; 16],
    memory: BTreeMap<(Base, i64), Byte>,
    /// Something was stored where nobody knows.
    dirty: bool,
    alignments: u8,
}

impl Machine {
    /// At the entry.
    pub fn entered() -> Machine {
        Machine {
            registers: std::array::from_fn(|n| Value::Sum(Base::Register(n as u8), 0)),
            vectors: [[Byte::Vector; 32]; 16],
            memory: BTreeMap::new(),
            dirty: false,
            alignments: 0,
        }
    }

    /// What a register holds, by the processor's number of it.
    pub fn register(&self, n: u8) -> Value {
        self.registers.get(usize::from(n)).copied().unwrap_or(Value::UNKNOWN)
    }

    /// The lower half of a vector register.
    pub fn vector(&self, n: u8) -> [Byte; 16] {
        let whole = self.vectors.get(usize::from(n)).copied().unwrap_or([Byte::Unknown; 32]);
        std::array::from_fn(|at| whole[at])
    }

    /// The byte of memory there.
    pub fn byte(&self, base: Base, at: i64) -> Byte {
        if let Some(known) = self.memory.get(&(base, at)) {
            return *known;
        }
        match base {
            Base::Register(SP) if at < RETURN => Byte::Unset,
            Base::Aligned(_) => Byte::Unset,
            _ if self.dirty => Byte::Unknown,
            Base::Register(_) | Base::Pointer(..) => Byte::Memory(base, at),
        }
    }

    /// Bytes of memory, each by itself.
    pub fn load(&self, at: Value, size: usize) -> Vec<Byte> {
        match at {
            Value::Sum(base, at) => (0..size as i64).map(|n| self.byte(base, at.wrapping_add(n))).collect(),
            Value::Bytes(bytes) if bytes.contains(&Byte::Unset) => vec![Byte::Unset; size],
            Value::Bytes(_) => vec![Byte::Unknown; size],
        }
    }

    /// Is memory there as it was at the entry, all bytes of it?
    pub fn is_as_entered(&self, base: Base, at: i64, size: u32) -> bool {
        let end = at.saturating_add(i64::from(size));
        let written = self.memory.range((base, at)..(base, end)).next().is_some();
        !written && matches!(self.byte(base, at), Byte::Memory(..))
    }

    fn store(&mut self, at: Option<Value>, bytes: &[Byte]) {
        match at {
            Some(Value::Sum(base, at)) => {
                // it may be any memory but the function's own
                self.dirty |= !matches!(base, Base::Register(SP) | Base::Aligned(_));
                for (n, byte) in bytes.iter().enumerate() {
                    self.memory.insert((base, at.wrapping_add(n as i64)), *byte);
                }
            }
            Some(Value::Bytes(_)) | None => self.dirty = true,
        }
    }

    // ── Instructions

    /// The address of an instruction's operand in memory; none where it has an index, or is of another kind.
    fn address(&self, i: &Instruction) -> Option<Value> {
        let (base, index) = (i.memory_base(), i.memory_index());
        if !base.is_gpr64() || index != Register::None || matches!(i.memory_segment(), Register::FS | Register::GS) {
            return None;
        }
        Some(self.register(base.number() as u8).plus(i.memory_displacement64() as i64))
    }

    fn read(&self, i: &Instruction, operand: u32, size: usize) -> Option<Vec<Byte>> {
        match i.op_kind(operand) {
            OpKind::Register => {
                let register = i.op_register(operand);
                let n = register.full_register().number();
                match register {
                    Register::AH | Register::BH | Register::CH | Register::DH => None,
                    r if r.is_gpr() => Some(self.register(n as u8).bytes()[..size.min(8)].to_vec()),
                    r if r.is_xmm() || r.is_ymm() => Some(self.vectors.get(n)?.get(..size)?.to_vec()),
                    _ => None,
                }
            }
            OpKind::Memory => Some(match self.address(i) {
                Some(at) => self.load(at, size),
                None => vec![Byte::Unknown; size],
            }),
            OpKind::Immediate8 | OpKind::Immediate16 | OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64 => {
                Some(vec![Byte::Unknown; size])
            }
            _ => None,
        }
    }

    fn write(&mut self, i: &Instruction, operand: u32, bytes: &[Byte]) -> Option<()> {
        match i.op_kind(operand) {
            OpKind::Register => {
                let register = i.op_register(operand);
                let n = register.full_register().number();
                match register {
                    Register::AH | Register::BH | Register::CH | Register::DH => return None,
                    r if r.is_gpr() => {
                        let mut whole = self.register(n as u8).bytes();
                        // the upper half becomes 0 with the lower
                        let upper = if r.size() >= 4 { 0 } else { r.size() };
                        let filled = r.size().min(bytes.len());
                        whole[..filled].copy_from_slice(&bytes[..filled]);
                        if upper == 0 {
                            whole[filled..].fill(Byte::Unknown);
                        } else {
                            whole[filled..upper].fill(Byte::Unknown);
                        }
                        *self.registers.get_mut(n)? = Value::of(whole);
                    }
                    r if r.is_xmm() || r.is_ymm() => {
                        let whole = self.vectors.get_mut(n)?;
                        whole.fill(Byte::Unknown);
                        whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
                    }
                    _ => return None,
                }
                Some(())
            }
            OpKind::Memory => {
                let at = self.address(i);
                self.store(at, bytes);
                Some(())
            }
            _ => None,
        }
    }

    /// Does what an instruction does; false where that leaves nothing known.
    fn step(&mut self, i: &Instruction, uses: &mut InstructionInfoFactory) -> bool {
        self.known(i).is_some() || self.anything(i, uses)
    }

    /// One of the instructions that are understood; none, and nothing done, where it is another.
    fn known(&mut self, i: &Instruction) -> Option<()> {
        let whole = |i: &Instruction| i.op_register(0).is_gpr64() && i.op_kind(0) == OpKind::Register;
        match i.mnemonic() {
            Mnemonic::Nop | Mnemonic::Endbr64 | Mnemonic::Cmp | Mnemonic::Test => Some(()),
            Mnemonic::Mov if whole(i) && i.op_kind(1) == OpKind::Register && i.op_register(1).is_gpr64() => {
                let value = self.register(i.op_register(1).number() as u8);
                *self.registers.get_mut(i.op_register(0).number())? = value;
                Some(())
            }
            Mnemonic::Lea if whole(i) => {
                let value = self.address(i).unwrap_or(Value::UNKNOWN);
                *self.registers.get_mut(i.op_register(0).number())? = value;
                Some(())
            }
            Mnemonic::Push => {
                let bytes = if i.op_kind(0) == OpKind::Register && !i.op_register(0).is_gpr64() { None } else { self.read(i, 0, 8) }?;
                let sp = self.register(SP).plus(-8);
                self.registers[usize::from(SP)] = sp;
                self.store(Some(sp), &bytes);
                Some(())
            }
            Mnemonic::Pop if whole(i) => {
                let sp = self.register(SP);
                let bytes = self.load(sp, 8);
                self.registers[usize::from(SP)] = sp.plus(8);
                self.write(i, 0, &bytes)
            }
            Mnemonic::Add | Mnemonic::Sub if whole(i) && is_number(i.op_kind(1)) => {
                let by = i.immediate(1) as i64;
                let by = if i.mnemonic() == Mnemonic::Sub { by.wrapping_neg() } else { by };
                let register = self.registers.get_mut(i.op_register(0).number())?;
                *register = register.plus(by);
                Some(())
            }
            Mnemonic::And if is_number(i.op_kind(1)) && i.immediate(1) == 1 => {
                // a boolean's other bits are cleared
                let bytes = self.read(i, 0, size_of(i, 0)?)?;
                let bit = match *bytes.first()? {
                    Byte::Register(r, 0) => Byte::RegisterBit(r),
                    Byte::Memory(base, at) => Byte::MemoryBit(base, at),
                    bit @ (Byte::RegisterBit(_) | Byte::MemoryBit(..)) => bit,
                    _ => return None,
                };
                let mut masked = vec![Byte::Unknown; bytes.len()];
                *masked.first_mut()? = bit;
                self.write(i, 0, &masked)
            }
            Mnemonic::And if whole(i) && is_number(i.op_kind(1)) && i.op_register(0) == Register::RSP => {
                self.alignments = self.alignments.checked_add(1)?;
                self.registers[usize::from(SP)] = Value::Sum(Base::Aligned(self.alignments), 0);
                Some(())
            }
            _ => {
                let size = copied(i)?;
                let mut bytes = self.read(i, 1, size)?;
                // what a number is extended by is not of the entry
                bytes.truncate(size);
                self.write(i, 0, &bytes)
            }
        }
    }

    /// Any other instruction: what it writes is not known any more.
    fn anything(&mut self, i: &Instruction, uses: &mut InstructionInfoFactory) -> bool {
        let writes = |a: OpAccess| matches!(a, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite);
        let info = uses.info(i);
        for used in info.used_registers().iter().filter(|r| writes(r.access())) {
            let register = used.register();
            let n = register.full_register().number();
            if register.is_gpr() {
                self.registers[n & 15] = Value::UNKNOWN;
            } else if register.is_vector_register() && n < self.vectors.len() {
                self.vectors[n] = [Byte::Unknown; 32];
            }
        }
        for used in info.used_memory().iter().filter(|m| writes(m.access())) {
            let base = used.base();
            let at = base.is_gpr64().then(|| self.register(base.number() as u8));
            match at {
                // an element of an array in the frame: nobody knows which
                Some(Value::Sum(Base::Register(SP) | Base::Aligned(_), _)) if used.index() != Register::None => return false,
                Some(at) if used.index() == Register::None => {
                    let bytes = vec![Byte::Unknown; used.memory_size().size().clamp(1, 64)];
                    self.store(Some(at.plus(used.displacement() as i64)), &bytes);
                }
                _ => self.dirty = true,
            }
        }
        true
    }
}

fn is_number(kind: OpKind) -> bool {
    matches!(kind, OpKind::Immediate8 | OpKind::Immediate8to64 | OpKind::Immediate32to64 | OpKind::Immediate32 | OpKind::Immediate8to32)
}

fn size_of(i: &Instruction, operand: u32) -> Option<usize> {
    match i.op_kind(operand) {
        OpKind::Register => Some(i.op_register(operand).size()),
        OpKind::Memory => Some(i.memory_size().size()),
        _ => None,
    }
}

/// How many bytes an instruction copies from its second operand to its first; none for one that does something else.
fn copied(i: &Instruction) -> Option<usize> {
    if i.op_count() != 2 {
        return None;
    }
    let memory = matches!((i.op_kind(0), i.op_kind(1)), (OpKind::Memory, _) | (_, OpKind::Memory)).then(|| i.memory_size().size());
    let size = match i.mnemonic() {
        Mnemonic::Mov => memory.or_else(|| size_of(i, 0)),
        Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd => size_of(i, 1),
        Mnemonic::Movd | Mnemonic::Vmovd | Mnemonic::Movss | Mnemonic::Vmovss => Some(4),
        Mnemonic::Movq | Mnemonic::Vmovq | Mnemonic::Movsd | Mnemonic::Vmovsd | Mnemonic::Movlps | Mnemonic::Movlpd => Some(8),
        Mnemonic::Movaps
        | Mnemonic::Movups
        | Mnemonic::Movapd
        | Mnemonic::Movupd
        | Mnemonic::Movdqa
        | Mnemonic::Movdqu
        | Mnemonic::Vmovaps
        | Mnemonic::Vmovups
        | Mnemonic::Vmovapd
        | Mnemonic::Vmovupd
        | Mnemonic::Vmovdqa
        | Mnemonic::Vmovdqu => memory.or_else(|| size_of(i, 0)),
        _ => None,
    };
    size.filter(|n| (1..=32).contains(n))
}

/// A function's instructions, followed from its entry.
pub struct Path<'a> {
    decoder: Decoder<'a>,
    uses: InstructionInfoFactory,
    machine: Machine,
    /// The function's address.
    entry: u64,
    at: u64,
    left: u32,
    branched: bool,
    /// What the stack pointer was compared with last.
    compared: Option<Value>,
}

impl<'a> Path<'a> {
    /// At the entry of the function whose code is at this address.
    pub fn new(code: &'a [u8], entry: u64) -> Path<'a> {
        Path {
            decoder: Decoder::with_ip(64, code, entry, DecoderOptions::NONE),
            uses: InstructionInfoFactory::new(),
            machine: Machine::entered(),
            entry,
            at: entry,
            left: LONGEST,
            branched: false,
            compared: None,
        }
    }

    /// The address of the instruction that is next.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Registers and memory before it.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Has there been a conditional branch?
    pub fn has_branched(&self) -> bool {
        self.branched
    }

    /// Goes on by one instruction; false where the way ends, as at a call.
    pub fn step(&mut self) -> bool {
        if self.left == 0 || !self.decoder.can_decode() {
            return false;
        }
        self.left -= 1;
        let i = self.decoder.decode();
        if i.is_invalid() {
            return false;
        }
        match i.flow_control() {
            FlowControl::Next => {
                if !self.machine.step(&i, &mut self.uses) {
                    return false;
                }
                if i.mnemonic() == Mnemonic::Cmp {
                    let other = if i.op_register(0) == Register::RSP { i.op_register(1) } else { Register::None };
                    self.compared = other.is_gpr64().then(|| self.machine.register(other.number() as u8));
                }
            }
            FlowControl::ConditionalBranch => {
                let back = (self.entry..=self.at).contains(&i.near_branch64());
                if let (true, Some(end @ Value::Sum(Base::Register(SP), _))) = (back, self.compared) {
                    // a loop that touches a large frame page by page, until the stack pointer is there
                    let touched = self.machine.register(SP);
                    if let Value::Sum(base, at) = touched {
                        self.machine.memory.retain(|(b, there), _| *b != base || !(at..at + 8).contains(there));
                    }
                    self.machine.registers[usize::from(SP)] = end;
                } else {
                    self.branched = true;
                }
            }
            _ => return false,
        }
        self.at = i.next_ip();
        true
    }
}
