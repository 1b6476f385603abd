//! Finds the starts of functions.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use super::{FUNCTION_ALIGNMENT, Flow, WORD};

/// Bytes at the start of a program in which it passes the address of `main`.
const MAX_START: usize = 64;

/// The addresses that a program takes before its second call, such as that of `main`. musl's first instructions are two functions.
pub(super) fn taken_at(entry: u64, elsewhere: &dyn Fn(u64) -> [u8; 16]) -> Vec<u64> {
    let (mut all, mut next) = (Vec::new(), Some(entry));
    for _ in 0..2 {
        let Some(start) = next.take() else { break };
        let code: Vec<u8> = (0..MAX_START as u64).step_by(16).flat_map(|at| elsewhere(start.saturating_add(at))).collect();
        for i in Decoder::with_ip(64, &code, start, DecoderOptions::NONE) {
            match i.flow_control() {
                FlowControl::Next => all.extend(address(&i)),
                FlowControl::Call | FlowControl::UnconditionalBranch => next = Some(i.near_branch_target()),
                _ => {}
            }
            if i.flow_control() != FlowControl::Next {
                break;
            }
        }
    }
    all
}

/// The address that an instruction takes.
pub(super) fn address(i: &Instruction) -> Option<u64> {
    match (i.mnemonic(), i.op1_kind()) {
        (Mnemonic::Lea, _) if i.is_ip_rel_memory_operand() => Some(i.ip_rel_memory_address()),
        (Mnemonic::Mov, OpKind::Immediate32 | OpKind::Immediate32to64) => Some(i.immediate(1)),
        _ => None,
    }
}

/// The starts of functions in procedure linkage tables, by the instructions of their slots.
pub(super) fn slots(code: &[u8], tables: &[(u64, u64, u64)], addr: u64) -> Vec<u64> {
    let mut all = Vec::new();
    for &(start, end, size) in tables {
        let Some(from) = start.checked_sub(addr).and_then(|at| usize::try_from(at).ok()) else { continue };
        let Some(table) = code.get(from..) else { continue };
        let length = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX).min(table.len());
        for (n, slot) in table.get(..length).unwrap_or_default().chunks(size.max(WORD as u64) as usize).enumerate() {
            let at = start + n as u64 * size.max(WORD as u64);
            let mut decoder = Decoder::with_ip(64, slot, at, DecoderOptions::NONE);
            let mut next = || decoder.can_decode().then(|| decoder.decode());
            let Some(mut i) = next() else { continue };
            if i.mnemonic() == Mnemonic::Endbr64 {
                let Some(second) = next() else { continue };
                i = second;
            }
            let number =
                |i: &Instruction| i.mnemonic() == Mnemonic::Push && i.op0_kind() != OpKind::Memory && i.op0_kind() != OpKind::Register;
            if i.flow_control() == FlowControl::IndirectBranch && i.is_ip_rel_memory_operand() {
                all.push(at);
                // where the slot's jump leads before the function is known
                all.extend(next().filter(number).map(|i| i.ip()));
            } else if number(&i) {
                all.push(at);
            }
        }
    }
    all
}

impl Flow<'_> {
    /// Can a function start here? Its address was found in data, where those of labels are more frequent, or in an instruction.
    /// Labels of a function whose addresses it takes are seldom aligned, and follow other code.
    pub(super) fn starts_function(&self, at: u32, in_data: bool) -> bool {
        /// Returns, and what assemblers put between functions.
        const ENDS: [&[u8]; 12] = [
            b"\xc3",
            b"\xcc",
            b"\xf4",
            b"\x90",
            b"\x66\x90",
            b"\x0f\x1f\x00",
            b"\x0f\x1f\x40\x00",
            b"\x0f\x1f\x44\x00\x00",
            b"\x0f\x1f\x80\x00\x00\x00\x00",
            b"\x0f\x1f\x84\x00\x00\x00\x00\x00",
            b"\x2e\x0f\x1f\x84\x00\x00\x00\x00\x00",
            b"\x0f\x0b",
        ];
        let before = self.code.get(..at as usize).unwrap_or_default();
        let aligned = (self.addr + u64::from(at)).is_multiple_of(FUNCTION_ALIGNMENT);
        (aligned || !in_data) && ENDS.iter().any(|end| before.ends_with(end)) || !in_data && self.follows_jump(at)
    }

    /// Does the function before it have jumps to labels whose addresses it computes? Such an address is not distinguishable from that of
    /// a function.
    pub(super) fn may_be_label(&self, at: u32) -> bool {
        let function = self.entered.range(..=at).next_back();
        function.is_some_and(|start| start < &at && self.gotos.range(start..&at).next().is_some())
    }

    /// Is the instruction before this one a jump that was reached? Functions can end with jumps.
    fn follows_jump(&self, at: u32) -> bool {
        /// Bytes of an instruction.
        const MAX_SIZE: u32 = 15;
        let mut before =
            (1..=MAX_SIZE).filter_map(|size| self.get(at.checked_sub(size)?).filter(|reached| u32::from(reached.size) == size));
        before.any(|reached| {
            let code = self.code.get(reached.at as usize..).unwrap_or_default();
            let jump = Decoder::new(64, code, DecoderOptions::NONE).decode().flow_control();
            matches!(jump, FlowControl::UnconditionalBranch | FlowControl::IndirectBranch)
        })
    }
}
