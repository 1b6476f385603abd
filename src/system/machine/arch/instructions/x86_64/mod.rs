//! Instructions of x86-64.

#![allow(clippy::wildcard_enum_match_arm)] // a few of a thousand instructions

mod flow;
mod frames;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::{Base, Byte, Instructions, Machine, Successor, Value};

/// The row of x86-64.
pub const INSTRUCTIONS: Instructions = Instructions {
    stack_pointer: SP,
    starts,
    is_padding: frames::is_padding,
    // mov $435, %eax, and syscall
    calls,
    calls_clone3: |before, code| before.ends_with(b"\xb8\xb3\x01\x00\x00") && code.starts_with(b"\x0f\x05"),
    frames: frames::frames,
    follow: Some(flow::follow),
    jumps,
    returns,
    stack_check,
    step,
};

/// The number of `rsp`.
const SP: u8 = 4;

fn starts(code: &[u8]) -> bool {
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    while decoder.can_decode() {
        // An instruction that the end of `code` cuts off extends beyond it.
        if decoder.decode().is_invalid() {
            return false;
        }
    }
    true
}

fn returns(code: &[u8]) -> Option<Vec<u64>> {
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut all = Vec::new();
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return None;
        }
        if instruction.mnemonic() == Mnemonic::Ret {
            all.push(instruction.ip());
        }
    }
    Some(all)
}

fn stack_check(code: &[u8]) -> u64 {
    go_stack_check(code).unwrap_or(0)
}

fn go_stack_check(code: &[u8]) -> Option<u64> {
    /// Offset of `stackguard0` in `struct g`.
    const GUARD: u64 = 16;
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut next = || decoder.can_decode().then(|| decoder.decode());
    let mut i = next()?;
    let mut g = Register::R14;
    // Before Go 1.17, and in assembly functions, the goroutine is in thread-local storage.
    if i.mnemonic() == Mnemonic::Mov && i.op_register(0).is_gpr64() && i.memory_segment() == Register::FS {
        g = i.op_register(0);
        i = next()?;
    }
    let mut limit = Register::RSP;
    let is_copy = i.op_register(0).is_gpr64() && i.op_register(0) != g;
    match i.mnemonic() {
        // The lowest address that a large frame needs.
        Mnemonic::Lea if is_copy && i.memory_base() == Register::RSP && i.memory_index() == Register::None => {
            limit = i.op_register(0);
            i = next()?;
        }
        Mnemonic::Mov if is_copy && i.op_register(1) == Register::RSP => {
            limit = i.op_register(0);
            let difference = next()?;
            let underflow = next()?;
            let fits = difference.mnemonic() == Mnemonic::Sub && difference.op_register(0) == limit && is_number(difference.op_kind(1));
            if !fits || underflow.mnemonic() != Mnemonic::Jb {
                return None;
            }
            i = next()?;
        }
        _ => {}
    }
    let compares = i.mnemonic() == Mnemonic::Cmp && i.op_register(0) == limit && i.op_kind(1) == OpKind::Memory;
    let guard = i.memory_base() == g && i.memory_index() == Register::None && i.memory_displacement64() == GUARD;
    let jump = next()?;
    (compares && guard && jump.mnemonic() == Mnemonic::Jbe).then(|| jump.next_ip())
}

/// Does the code call a function?
pub fn calls(code: &[u8]) -> bool {
    let is_call = |i: Instruction| matches!(i.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
    Decoder::new(64, code, DecoderOptions::NONE).into_iter().take_while(|i| !i.is_invalid()).any(is_call)
}

fn jumps(code: &[u8], addr: u64) -> Vec<u64> {
    let direct = |i: &Instruction| matches!(i.flow_control(), FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch);
    Decoder::with_ip(64, code, addr, DecoderOptions::NONE).into_iter().filter(direct).map(|i| i.near_branch_target()).collect()
}

fn step(code: &[u8], at: u64, machine: &mut Machine, compared: &mut Option<Value>) -> Successor {
    let i = Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode();
    if i.is_invalid() {
        return Successor::Unknown;
    }
    let offset = i.next_ip().wrapping_sub(at);
    match i.flow_control() {
        FlowControl::Next => {
            if !machine.step(&i) {
                return Successor::Unknown;
            }
            if i.mnemonic() == Mnemonic::Cmp {
                let other = if i.op_register(0) == Register::RSP { i.op_register(1) } else { Register::None };
                *compared = other.is_gpr64().then(|| machine.register(other.number() as u8));
            }
            Successor::Next(offset)
        }
        FlowControl::ConditionalBranch => Successor::Branch(offset, i.near_branch64()),
        _ => Successor::Unknown,
    }
}

impl Machine {
    /// The address of a memory operand. `None` for other operands and those with an index.
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
                        let mut register_bytes = self.register(n as u8).bytes();
                        // Writing the lower half of a register clears the upper half.
                        let upper = if r.size() >= 4 { 0 } else { r.size() };
                        let filled = r.size().min(bytes.len());
                        register_bytes[..filled].copy_from_slice(&bytes[..filled]);
                        if upper == 0 {
                            register_bytes[filled..].fill(Byte::Unknown);
                        } else {
                            register_bytes[filled..upper].fill(Byte::Unknown);
                        }
                        *self.registers.get_mut(n)? = Value::of(register_bytes);
                    }
                    r if r.is_xmm() || r.is_ymm() => {
                        let register_bytes = self.vectors.get_mut(n)?;
                        register_bytes.fill(Byte::Unknown);
                        register_bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
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

    /// Executes an instruction. Returns false if nothing is known afterwards.
    fn step(&mut self, i: &Instruction) -> bool {
        self.known(i).is_some() || self.anything(i)
    }

    /// Executes a supported instruction. `None`, without effect, for other instructions.
    fn known(&mut self, i: &Instruction) -> Option<()> {
        let is_gpr64 = |i: &Instruction| i.op_register(0).is_gpr64() && i.op_kind(0) == OpKind::Register;
        match i.mnemonic() {
            Mnemonic::Nop | Mnemonic::Endbr64 | Mnemonic::Cmp | Mnemonic::Test => Some(()),
            Mnemonic::Mov if is_gpr64(i) && i.op_kind(1) == OpKind::Register && i.op_register(1).is_gpr64() => {
                let value = self.register(i.op_register(1).number() as u8);
                self.set(i.op_register(0).number() as u8, value);
                Some(())
            }
            Mnemonic::Lea if is_gpr64(i) => {
                let value = self.address(i).unwrap_or(Value::UNKNOWN);
                self.set(i.op_register(0).number() as u8, value);
                Some(())
            }
            Mnemonic::Push => {
                let bytes = if i.op_kind(0) == OpKind::Register && !i.op_register(0).is_gpr64() { None } else { self.read(i, 0, 8) }?;
                let sp = self.register(SP).plus(-8);
                self.set(SP, sp);
                self.store(Some(sp), &bytes);
                Some(())
            }
            Mnemonic::Pop if is_gpr64(i) => {
                let sp = self.register(SP);
                let bytes = self.load(sp, 8);
                self.set(SP, sp.plus(8));
                self.write(i, 0, &bytes)
            }
            Mnemonic::Add | Mnemonic::Sub if is_gpr64(i) && is_number(i.op_kind(1)) => {
                let immediate = i.immediate(1) as i64;
                let immediate = if i.mnemonic() == Mnemonic::Sub { immediate.wrapping_neg() } else { immediate };
                let register = self.registers.get_mut(i.op_register(0).number())?;
                *register = register.plus(immediate);
                Some(())
            }
            Mnemonic::And if is_number(i.op_kind(1)) && i.immediate(1) == 1 => {
                // The compiler clears the other bits of a boolean.
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
            Mnemonic::And if is_gpr64(i) && is_number(i.op_kind(1)) && i.op_register(0) == Register::RSP => {
                self.alignments = self.alignments.checked_add(1)?;
                self.set(SP, Value::Sum(Base::Aligned(self.alignments), 0));
                Some(())
            }
            _ => {
                let size = copied(i)?;
                let mut bytes = self.read(i, 1, size)?;
                // The bytes that extend a number are not from the entry.
                bytes.truncate(size);
                self.write(i, 0, &bytes)
            }
        }
    }

    /// Executes any other instruction: the registers that it writes become unknown.
    fn anything(&mut self, i: &Instruction) -> bool {
        let writes = |a: OpAccess| matches!(a, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite);
        let mut uses = InstructionInfoFactory::new();
        let info = uses.info(i);
        for used in info.used_registers().iter().filter(|r| writes(r.access())) {
            let register = used.register();
            let n = register.full_register().number();
            if register.is_gpr() {
                self.set(n as u8 & 15, Value::UNKNOWN);
            } else if register.is_vector_register() && n < self.vectors.len() {
                self.vectors[n] = [Byte::Unknown; 32];
            }
        }
        for used in info.used_memory().iter().filter(|m| writes(m.access())) {
            let base = used.base();
            let at = base.is_gpr64().then(|| self.register(base.number() as u8));
            match at {
                // An element of an array in the frame, at an unknown index.
                Some(Value::Sum(Base::Register(SP) | Base::Aligned(_), _)) if used.index() != Register::None => return false,
                Some(at) if used.index() == Register::None => {
                    let bytes = vec![Byte::Unknown; used.memory_size().size().clamp(1, 64)];
                    self.store(Some(at.plus(used.displacement() as i64)), &bytes);
                }
                _ => self.unknown_store = true,
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

/// Returns how many bytes an instruction copies from its second operand to its first. `None` if it does anything else.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_stack_checks_of_go() {
        // cmp rsp, [r14+16]; jbe; sub rsp, 32
        let small = [0x49, 0x3b, 0x66, 0x10, 0x76, 0x3b, 0x48, 0x83, 0xec, 0x20];
        // lea r12, [rsp-0xb60]; cmp r12, [r14+16]; jbe
        let large = [0x4c, 0x8d, 0xa4, 0x24, 0xa0, 0xf4, 0xff, 0xff, 0x4d, 0x3b, 0x66, 0x10, 0x0f, 0x86, 0x1e, 1, 0, 0];
        // mov r12, rsp; sub r12, 0x18648; jb; cmp r12, [r14+16]; jbe
        let huge: Vec<u8> = [&[0x49, 0x89, 0xe4, 0x49, 0x81, 0xec, 0x48, 0x86, 1, 0, 0x0f, 0x82, 0x19, 1, 0, 0], &large[8..]].concat();
        // mov rcx, fs:[-8]; cmp rsp, [rcx+16]; jbe
        let old = [0x64, 0x48, 0x8b, 0x0c, 0x25, 0xf8, 0xff, 0xff, 0xff, 0x48, 0x3b, 0x61, 0x10, 0x76, 0x2b];
        assert_eq!([&small[..], &large, &huge, &old].map(stack_check), [6, 18, 26, 15]);
        // another member; another jump; inc rax, ret; a part of the check
        let others =
            [&[0x49, 0x3b, 0x66, 0x18, 0x76, 0x3b][..], &[0x49, 0x3b, 0x66, 0x10, 0x74, 0x3b], &[0x48, 0xff, 0xc0, 0xc3], &large[..14]];
        assert_eq!(others.map(stack_check), [0; 4]);
    }
}
