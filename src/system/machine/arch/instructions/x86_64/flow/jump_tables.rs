//! Jumps through tables, as compilers make them of `switch`.

use iced_x86::{ConditionCode, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use super::{Flow, NONE, register};

/// Compilers put the check of the index, and the address of the table, at most this many instructions before the jump.
const MAX_DISTANCE: usize = 16;
/// More elements of a table are not expected.
const MAX_ELEMENTS: u64 = 1024;
/// The targets are in the function of the jump, in bytes.
const MAX_FUNCTION: u64 = 1 << 17;

/// A table of jumps.
struct JumpTable {
    addr: u64,
    /// Elements are distances of 32 bits from the table to the targets; else addresses.
    relative: bool,
}

impl Flow<'_> {
    /// The positions to which a jump through a table leads. None if it is another jump, or the size of the table is unknown.
    pub(super) fn table_targets(&mut self, at: u32, jump: &Instruction) -> Vec<u32> {
        let past = self.past(at);
        let Some((table, count)) = table(jump, &past).zip(bound(&past)).filter(|(_, count)| *count <= MAX_ELEMENTS) else {
            return Vec::new();
        };
        // an element costs less than an instruction
        self.steps += count as usize / 8;
        let target = |n: u64| {
            let addr = if table.relative {
                let [a, b, c, d, ..] = (self.elsewhere)(table.addr.checked_add(n * 4)?);
                table.addr.checked_add_signed(i32::from_le_bytes([a, b, c, d]).into())?
            } else {
                let [a, b, c, d, e, f, g, h, ..] = (self.elsewhere)(table.addr.checked_add(n * 8)?);
                u64::from_le_bytes([a, b, c, d, e, f, g, h])
            };
            self.position(addr).filter(|_| addr.abs_diff(jump.ip()) <= MAX_FUNCTION)
        };
        let mut targets: Vec<u32> = (0..count).map(target).collect::<Option<_>>().unwrap_or_default();
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    /// The instructions before this one on a path that leads there, the nearest first.
    fn past(&self, at: u32) -> Vec<Instruction> {
        let mut past = Vec::new();
        let mut at = at;
        while let Some(before) = self.get(at).map(|reached| reached.before).filter(|before| *before != NONE && past.len() < MAX_DISTANCE) {
            let code = self.code.get(before as usize..).unwrap_or_default();
            past.push(Decoder::with_ip(64, code, self.addr + u64::from(before), DecoderOptions::NONE).decode());
            at = before;
        }
        past
    }
}

/// The table of a jump.
fn table(jump: &Instruction, past: &[Instruction]) -> Option<JumpTable> {
    // the last instruction that writes this register
    let written = |to: Register, past: &'_ [Instruction]| {
        let writes = |i: &Instruction| !matches!(i.mnemonic(), Mnemonic::Cmp | Mnemonic::Test) && register(i, 0).full_register() == to;
        past.iter().position(writes)
    };
    let of_addresses = |element: &Instruction, past: &[Instruction]| {
        let indexed = element.memory_index() != Register::None && element.memory_index_scale() == 8;
        let base = match element.memory_base() {
            _ if !indexed => return None,
            Register::None => 0,
            base => start(past.get(written(base, past)?)?)?,
        };
        Some(JumpTable { addr: base.wrapping_add(element.memory_displacement64()), relative: false })
    };
    if jump.op0_kind() == OpKind::Memory {
        return of_addresses(jump, past);
    }
    let target = register(jump, 0);
    let last = written(target, past)?;
    let (sum, past) = (past.get(last)?, past.get(last + 1..)?);
    if sum.mnemonic() == Mnemonic::Mov {
        return of_addresses(sum, past);
    }
    let other = register(sum, 1);
    if sum.mnemonic() != Mnemonic::Add || other == Register::None {
        return None;
    }
    // one of them is the table, and the other one the distance
    [(target, other), (other, target)].into_iter().find_map(|(distance, table)| {
        let element = past.get(written(distance, past)?)?;
        let is_distance =
            element.mnemonic() == Mnemonic::Movsxd && element.op1_kind() == OpKind::Memory && element.memory_index_scale() == 4;
        if !is_distance || element.memory_base() != table || element.memory_displacement64() != 0 {
            return None;
        }
        Some(JumpTable { addr: start(past.get(written(table, past)?)?)?, relative: true })
    })
}

/// The address that an instruction loads.
fn start(i: &Instruction) -> Option<u64> {
    (i.mnemonic() == Mnemonic::Lea).then(|| super::address(i)).flatten()
}

/// The number of a table's elements, by the comparison of the index with the greatest one.
fn bound(past: &[Instruction]) -> Option<u64> {
    let jump = past.iter().position(|i| i.condition_code() != ConditionCode::None && i.is_jcc_short_or_near())?;
    let compare = past.get(jump + 1).filter(|i| i.mnemonic() == Mnemonic::Cmp && super::super::is_number(i.op1_kind()))?;
    let last = compare.immediate(1);
    match past.get(jump)?.condition_code() {
        ConditionCode::a | ConditionCode::be => last.checked_add(1),
        ConditionCode::ae | ConditionCode::b => Some(last),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::super::{Frame, Starts};
    use super::super::follow;

    /// Where frames are known, of a function at 0x1000 with this comparison and a table at 0x2000.
    fn followed(compare: &[u8], table: &[i32]) -> Vec<(u64, Option<Frame>)> {
        let mut code = compare.to_vec();
        // ja 0x1016; lea rdx, [rip+0xff4]; movsxd rax, [rdx+rdi*4]; add rax, rdx; jmp rax; nop; ret
        code.extend(b"\x77\x11\x48\x8d\x15\xf4\x0f\x00\x00\x48\x63\x04\xba\x48\x01\xd0\xff\xe0\x90\xc3");
        // 0x1017: push rax; pop rax; ret, twice
        code.extend(b"\x50\x58\xc3\x50\x58\xc3");
        let bytes: Vec<u8> = table.iter().flat_map(|n| n.to_le_bytes()).collect();
        let elsewhere = |addr: u64| {
            let mut found = [0; 16];
            let from = (addr as usize).saturating_sub(0x2000);
            found.iter_mut().zip(bytes.get(from..).unwrap_or_default()).for_each(|(to, byte)| *to = *byte);
            found
        };
        follow(&code, 0x1000, &Starts { functions: &[0x1000], ..Starts::default() }, &elsewhere)
    }

    #[test]
    fn a_table_leads_to_its_targets() {
        const FIRST: i32 = 0x1017 - 0x2000;
        let entered = Some(Frame::Entered);
        let pushed = Some(Frame::AboveSp(16, None));
        // cmp edi, 1: two elements
        let both = [(0x1000, entered), (0x1018, pushed), (0x1019, entered), (0x101b, pushed), (0x101c, entered)];
        assert_eq!(followed(b"\x83\xff\x01", &[FIRST, FIRST + 3, FIRST + 3]), both);
        // one element
        assert_eq!(followed(b"\x83\xff\x00", &[FIRST]).last(), Some(&(0x101a, None)));
        // an element leads out of the code
        assert_eq!(followed(b"\x83\xff\x01", &[FIRST, 0]).last(), Some(&(0x1017, None)));
        // test edi, edi: the number of elements is unknown
        assert_eq!(followed(b"\x48\x85\xff", &[FIRST, FIRST + 3]).last(), Some(&(0x1017, None)));
    }

    /// An address in data may be that of a label, where a jump leads from a frame. Then nothing is known there.
    #[test]
    fn labels_are_no_functions() {
        // sub rsp, 8; jmp rax, or the jump alone; nop; 0x1010: ret
        let framed = b"\x48\x83\xec\x08\xff\xe0\x66\x66\x0f\x1f\x84\x00\x00\x00\x00\x00\xc3";
        let frameless = b"\xff\xe0\x66\x66\x66\x0f\x1f\x84\x00\x00\x00\x00\x00\x0f\x1f\x00\xc3";
        for (code, known) in [(framed, None), (frameless, Some(Frame::Entered))] {
            let starts = Starts { functions: &[0x1000], pointers: &[0x1010], ..Starts::default() };
            let frames = follow(code, 0x1000, &starts, &|_| [0; 16]);
            let last = frames.iter().rev().find(|(at, _)| *at <= 0x1010).and_then(|(_, frame)| *frame);
            assert_eq!(last, known);
        }
    }
}
