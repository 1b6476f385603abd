//! Instructions of AArch64 (Arm Architecture Reference Manual, C4.1): four bytes each.

mod frames;

use super::{Byte, Instructions, Machine, Successor, Value};

/// The row of AArch64.
pub const INSTRUCTIONS: Instructions = Instructions {
    stack_pointer: SP,
    starts,
    is_padding: frames::is_padding,
    // no uprobe is optimized
    calls: |_| true,
    calls_clone3: |_, _| false,
    frames: frames::frames,
    follow: None,
    jumps,
    returns,
    stack_check,
    step,
};

/// The number of `sp`, which is also that of the zero register.
const SP: u8 = 31;
const LENGTH: usize = 4;

fn starts(code: &[u8]) -> bool {
    code.len().is_multiple_of(LENGTH)
}

fn returns(code: &[u8]) -> Option<Vec<u64>> {
    let words = code.chunks_exact(LENGTH).filter_map(word).enumerate();
    Some(words.filter(|(_, i)| is_return(*i)).map(|(n, _)| (n * LENGTH) as u64).collect())
}

fn stack_check(code: &[u8]) -> u64 {
    let words: Vec<u32> = code.chunks_exact(LENGTH).filter_map(word).collect();
    go_stack_check(&words).map_or(0, |n| (n * LENGTH) as u64)
}

/// The number of instructions of the check.
fn go_stack_check(words: &[u32]) -> Option<usize> {
    /// The first instruction: `ldr x16, [x28, #16]`, which is `stackguard0` in `struct g`.
    const LOAD: u32 = 0xf940_0b90;
    /// `cmp sp, x16`, and `cmp x17, x16` in large frames.
    const COMPARE: [u32; 2] = [0xeb30_63ff, 0xeb10_023f];
    /// What computes the lowest address that a large frame needs, in `x17`, with a mask: `mov x17, sp`, `sub x17, sp, #N`,
    /// `subs x17, sp, #N`, `mov x27, #N` in its four forms, `subs x17, sp, x27`, and `b.lo` if that is below zero.
    const COMPUTE: [(u32, u32); 9] = [
        (0x9100_03f1, u32::MAX),
        (0xd100_03f1, 0xff80_03ff),
        (0xf100_03f1, 0xff80_03ff),
        (0xd280_001b, 0xff80_001f),
        (0xf280_001b, 0xff80_001f),
        (0x9280_001b, 0xff80_001f),
        (0xb200_03fb, 0xff80_03ff),
        (0xeb3b_63f1, u32::MAX),
        (0x5400_0003, 0xff00_001f),
    ];
    let computes = |i: &u32| COMPUTE.iter().any(|(code, mask)| i & mask == *code);
    let rest = words.strip_prefix(&[LOAD])?;
    let computed = rest.iter().take_while(|i| computes(i)).count();
    let is_check = matches!(rest.get(computed..)?, [compare, jump, ..] if COMPARE.contains(compare) && jump & 0xff00_001f == 0x5400_0009);
    is_check.then_some(computed + 3)
}

fn word(code: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(*code.first_chunk()?))
}

/// Is it `ret`, `retaa` or `retab`?
fn is_return(i: u32) -> bool {
    i & 0xffff_fc1f == 0xd65f_0000 || matches!(i, 0xd65f_0bff | 0xd65f_0fff)
}

/// Extracts a bit field.
fn bits(i: u32, from: u32, count: u32) -> u32 {
    i >> from & ((1 << count) - 1)
}

/// Extracts a signed bit field.
fn signed(i: u32, from: u32, count: u32) -> i64 {
    let unused = 32 - count;
    i64::from((bits(i, from, count) << unused).cast_signed() >> unused)
}

/// The distance of a conditional jump.
fn conditional_jump(i: u32) -> Option<i64> {
    // `b.cond`, `cbz` and `cbnz`
    if i & 0xff00_0010 == 0x5400_0000 || i & 0x7e00_0000 == 0x3400_0000 {
        return Some(signed(i, 5, 19) * 4);
    }
    // `tbz` and `tbnz`
    (i & 0x7e00_0000 == 0x3600_0000).then(|| signed(i, 5, 14) * 4)
}

fn jumps(code: &[u8], addr: u64) -> Vec<u64> {
    // `b`
    let always = |i| (i & 0xfc00_0000 == 0x1400_0000).then(|| signed(i, 0, 26) * 4);
    let to = |(addr, i)| Some(u64::wrapping_add_signed(addr, conditional_jump(i).or_else(|| always(i))?));
    (addr..).step_by(LENGTH).zip(code.chunks_exact(LENGTH).filter_map(word)).filter_map(to).collect()
}

fn step(code: &[u8], at: u64, machine: &mut Machine, _: &mut Option<Value>) -> Successor {
    let Some(i) = word(code) else { return Successor::Unknown };
    if let Some(offset) = conditional_jump(i) {
        return Successor::Branch(LENGTH as u64, at.wrapping_add_signed(offset));
    }
    // Hints (such as `nop`, `bti`, `paciasp`) and barriers. Other instructions here are exceptions and system registers.
    if i & 0xffff_f01f == 0xd503_201f || i & 0xffff_f01f == 0xd503_301f {
        return Successor::Next(LENGTH as u64);
    }
    let known = match bits(i, 25, 4) {
        0b1000 | 0b1001 => immediate(i, machine),
        0b0101 | 0b1101 => between_registers(i, machine),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => loads_and_stores(i, machine),
        // Floating point, which may write a general register.
        0b0111 | 0b1111 => {
            machine.vectors.fill([Byte::Unknown; 32]);
            machine.set_general(bits(i, 0, 5), Value::UNKNOWN);
            Some(())
        }
        // Branches, calls, system registers, and unallocated encodings.
        _ => None,
    };
    known.map_or(Successor::Unknown, |()| Successor::Next(LENGTH as u64))
}

/// Data processing with an immediate. Only additions to addresses have a known result.
fn immediate(i: u32, machine: &mut Machine) -> Option<()> {
    let (to, from) = (bits(i, 0, 5) as u8, bits(i, 5, 5) as u8);
    // 64-bit `add` and `sub`, which accept `sp`.
    if i & 0x9f80_0000 == 0x9100_0000 & 0x9f80_0000 {
        let number = i64::from(bits(i, 10, 12)) << (12 * bits(i, 22, 1));
        let offset = if bits(i, 30, 1) == 1 { -number } else { number };
        let (flags, sum) = (bits(i, 29, 1) == 1, machine.register(from).plus(offset));
        match flags {
            true => machine.set_general(to.into(), sum),
            false => machine.set(to, sum),
        }
        return Some(());
    }
    // Extensions of the low bytes, such as `uxtb` and `sxtw`.
    let bit_field = i & 0x1f80_0000 == 0x1300_0000;
    let (first, last) = (bits(i, 16, 6), bits(i, 10, 6));
    let value = if bit_field && first == 0 && matches!(last, 7 | 15 | 31) && bits(i, 29, 2) != 1 {
        machine.general(from.into()).lowest((last as usize + 1) / 8)
    } else if i & 0x7fff_fc00 == 0x1200_0000 {
        // `and` with 1
        match machine.general(from.into()).bytes().first() {
            Some(Byte::Register(r, 0)) => only(Byte::RegisterBit(*r)),
            Some(Byte::Memory(base, at)) => only(Byte::MemoryBit(*base, *at)),
            _ => Value::UNKNOWN,
        }
    } else {
        Value::UNKNOWN
    };
    // logical operations may write `sp`
    match i & 0x1f80_0000 == 0x1200_0000 && bits(i, 29, 2) != 3 && to == SP {
        true => None,
        false => {
            machine.set_general(to.into(), value);
            Some(())
        }
    }
}

fn only(lowest: Byte) -> Value {
    let mut bytes = [Byte::Unknown; 8];
    bytes[0] = lowest;
    Value::Bytes(bytes)
}

/// Data processing with registers. `mov` is an `orr` with the zero register.
fn between_registers(i: u32, machine: &mut Machine) -> Option<()> {
    let value = match i & 0x7fe0_ffe0 {
        0x2a00_03e0 => {
            let from = machine.general(bits(i, 16, 5));
            if bits(i, 31, 1) == 1 { from } else { from.lowest(4) }
        }
        _ => Value::UNKNOWN,
    };
    machine.set_general(bits(i, 0, 5), value);
    Some(())
}

/// The address that an instruction accesses, and the new value of its base register.
struct Access {
    at: Option<Value>,
    base: u8,
    after: Option<Value>,
}

fn access(machine: &Machine, base: u32, offset: i64, before: bool, writes_back: bool) -> Access {
    let base_value = machine.register(base as u8);
    let moved = base_value.plus(offset);
    Access { at: Some(if before { moved } else { base_value }), base: base as u8, after: writes_back.then_some(moved) }
}

fn loads_and_stores(i: u32, machine: &mut Machine) -> Option<()> {
    let (first, base, vector) = (bits(i, 0, 5), bits(i, 5, 5), bits(i, 26, 1) == 1);
    // pairs
    if i & 0x3a00_0000 == 0x2800_0000 {
        let mode = bits(i, 23, 2);
        let size = match (vector, bits(i, 30, 2)) {
            (true, scale @ 0..=2) => 4 << scale,
            (false, 0 | 1) => 4,
            (false, 2) => 8,
            _ => return None,
        };
        let access = access(machine, base, signed(i, 15, 7) * size, mode != 1, matches!(mode, 1 | 3));
        return access.run(machine, &[first, bits(i, 10, 5)], size as usize, vector, bits(i, 22, 1) == 1);
    }
    let size = 1i64 << if vector && bits(i, 23, 1) == 1 { 4 } else { bits(i, 30, 2) };
    // Prefetches have no destination register.
    if !vector && bits(i, 30, 2) == 3 && bits(i, 22, 2) == 2 {
        return Some(());
    }
    let loads = bits(i, 22, 2) != 0 && !(vector && bits(i, 22, 1) == 0);
    let access = match i & 0x3b00_0000 {
        // Offset scaled by the size of the element.
        0x3900_0000 => access(machine, base, i64::from(bits(i, 10, 12)) * size, true, false),
        // Unscaled offset; pre- or post-indexed; register offset.
        0x3800_0000 => match (bits(i, 21, 1), bits(i, 10, 2)) {
            (0, mode @ (0 | 1 | 3)) => access(machine, base, signed(i, 12, 9), mode != 1, mode != 0),
            (1, 2) => Access { at: None, base: base as u8, after: None },
            _ => return None,
        },
        // A constant in the code.
        0x1800_0000 => {
            if !vector {
                machine.set_general(first, Value::UNKNOWN);
            }
            return Some(());
        }
        // Exclusive and atomic operations, vectors.
        _ => return None,
    };
    access.run(machine, &[first], size as usize, vector, loads)
}

impl Access {
    fn run(self, machine: &mut Machine, registers: &[u32], size: usize, vector: bool, loads: bool) -> Option<()> {
        let mut at = self.at;
        for n in registers {
            match (loads, vector) {
                (true, false) => {
                    let bytes = at.map(|at| machine.load(at, size));
                    let value = bytes
                        .map_or(Value::UNKNOWN, |bytes| Value::of(std::array::from_fn(|n| bytes.get(n).copied().unwrap_or(Byte::Unknown))));
                    machine.set_general(*n, value);
                }
                (true, true) => *machine.vectors.get_mut(*n as usize)? = [Byte::Unknown; 32],
                (false, false) => {
                    let bytes = machine.general(*n).bytes();
                    // An element of an array at an unknown index, which may be in the frame.
                    machine.store(Some(at?), bytes.get(..size)?);
                }
                (false, true) => {
                    let bytes = machine.vectors.get(*n as usize)?.get(..size)?.to_vec();
                    machine.store(Some(at?), &bytes);
                }
            }
            at = at.map(|at| at.plus(size as i64));
        }
        if let Some(after) = self.after {
            machine.set(self.base, after);
        }
        Some(())
    }
}

impl Machine {
    /// Reads a register; 31 is the zero register.
    fn general(&self, n: u32) -> Value {
        if n == u32::from(SP) { Value::UNKNOWN } else { self.register(n as u8) }
    }

    fn set_general(&mut self, n: u32, value: Value) {
        if n != u32::from(SP) {
            self.set(n as u8, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Base;
    use super::*;

    fn run(code: &[u32]) -> (Machine, Successor) {
        let (mut machine, mut next) = (Machine::entered(SP, 0), Successor::Unknown);
        for i in code {
            next = step(&i.to_le_bytes(), 0x1000, &mut machine, &mut None);
        }
        (machine, next)
    }

    #[test]
    fn recognizes_stack_checks_of_go() {
        // ldr x16, [x28, #16]; cmp sp, x16; b.ls; str x30, [sp, #-48]!
        let small = [0xf940_0b90, 0xeb30_63ff, 0x5400_0209, 0xf81d_0ffe];
        // ldr; sub x17, sp, #0xb60; cmp x17, x16; b.ls
        let large = [0xf940_0b90, 0xd12d_83f1, 0xeb10_023f, 0x5400_07e9];
        // ldr; mov x27, #0x8650; movk x27, #1, lsl #16; subs x17, sp, x27; b.lo; cmp x17, x16; b.ls
        let huge = [0xf940_0b90, 0xd290_ca1b, 0xf2a0_003b, 0xeb3b_63f1, 0x5400_0943, 0xeb10_023f, 0x5400_0909];
        // b.hi; add x0, x0, #1; ret; ldr and str
        let others = [&[0xf940_0b90, 0xeb30_63ff, 0x5400_0208][..], &[0x9100_0400, 0xd65f_03c0], &[0xf940_0b90, 0xf81d_0ffe], &[]];
        let check = |code: &[u32]| stack_check(&code.iter().flat_map(|i| i.to_le_bytes()).collect::<Vec<u8>>());
        assert_eq!([&small[..], &large, &huge].map(check), [12, 16, 28]);
        assert_eq!(others.map(check), [0; 4]);
    }

    #[test]
    fn follows_function_prologues() {
        // stp x29, x30, [sp, #-48]!; mov x29, sp; str x0, [sp, #24]; str w1, [sp, #20]; ldr x2, [sp, #24]; ldrb w3, [sp, #20]
        let (m, next) = run(&[0xa9bd_7bfd, 0x9100_03fd, 0xf900_0fe0, 0xb900_17e1, 0xf940_0fe2, 0x3940_53e3]);
        assert_eq!(next, Successor::Next(4));
        let sp = Base::Register(SP);
        assert_eq!(m.register(SP), Value::Sum(sp, -48));
        assert_eq!(m.register(29), Value::Sum(sp, -48));
        assert_eq!(m.byte(sp, -48), Byte::Register(29, 0));
        assert_eq!(m.byte(sp, -40), Byte::Register(30, 0));
        assert_eq!(m.byte(sp, -24), Byte::Register(0, 0));
        assert_eq!(m.byte(sp, -28), Byte::Register(1, 0));
        assert_eq!(m.register(2), Value::Sum(Base::Register(0), 0));
        assert_eq!(m.register(3).bytes()[0], Byte::Register(1, 0));
        // sub sp, sp, #0x10; str q0, [sp]; mov x19, x0; mov w20, w1; sxtw x4, w1; ldp x29, x30, [sp], #16
        let (m, _) = run(&[0xd100_43ff, 0x3d80_03e0, 0xaa00_03f3, 0x2a01_03f4, 0x9340_7c24, 0xa8c1_7bfd]);
        assert_eq!(m.register(SP), Value::Sum(sp, 0));
        assert_eq!(m.byte(sp, -16), Byte::Vector);
        assert_eq!(m.register(19), Value::Sum(Base::Register(0), 0));
        assert_eq!(
            m.register(20).bytes()[..5],
            [0, 1, 2, 3].map(|n| Byte::Register(1, n)).into_iter().chain([Byte::Unknown]).collect::<Vec<_>>()
        );
        assert_eq!(m.register(4).bytes()[3], Byte::Register(1, 3));
    }

    #[test]
    fn finds_successors_of_instructions() {
        // bti c; paciasp; nop
        assert_eq!(run(&[0xd503_245f, 0xd503_233f, 0xd503_201f]).1, Successor::Next(4));
        // cbz x0, +8; b.ne -4; tbnz w1, #3, +16
        assert_eq!(run(&[0xb400_0040]).1, Successor::Branch(4, 0x1008));
        assert_eq!(run(&[0x54ff_ffe1]).1, Successor::Branch(4, 0xffc));
        assert_eq!(run(&[0x3718_0081]).1, Successor::Branch(4, 0x1010));
        // bl; b; ret; an undefined instruction
        for i in [0x9400_0001, 0x1400_0001, 0xd65f_03c0, 0] {
            assert_eq!(run(&[i]).1, Successor::Unknown, "{i:#x}");
        }
        // ret; retaa; nop; ret x3
        let code: Vec<u8> = [0xd65f_03c0u32, 0xd65f_0bff, 0xd503_201f, 0xd65f_0060].iter().flat_map(|i| i.to_le_bytes()).collect();
        assert_eq!(returns(&code), Some(vec![0, 4, 12]));
        assert!(starts(&code[..8]) && !starts(&code[..6]));
    }

    #[test]
    fn targets_of_jumps() {
        // b, b.eq, cbz, tbnz; bl, which returns; nop
        let code = [0x1400_0002u32, 0x5400_0080, 0xb4ff_ffe0, 0x3700_0040, 0x97ff_fffc, 0xd503_201f];
        let code: Vec<u8> = code.iter().flat_map(|i| i.to_le_bytes()).collect();
        assert_eq!(jumps(&code, 0x1000), [0x1008, 0x1014, 0x1004, 0x1014]);
    }
}
