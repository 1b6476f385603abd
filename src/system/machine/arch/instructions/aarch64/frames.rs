//! Finds the frames of AArch64 code by its instructions. This serves code without call frame information: linkage tables,
//! the C runtime's startup code in each program, the return from a signal handler in the vDSO, and hand-written assembly.

use super::super::{Frame, SignalFrame};
use super::{LENGTH, bits, signed, word};

/// `nop`, and `bti` of any kind: the room in front of a function.
const NOP: u32 = 0xd503_201f;
/// `mov x29, sp`.
const SETS_FRAME: u32 = 0x9100_03fd;
/// `stp x16, x30, [sp, #-16]!`, with which a linkage table begins.
const PUSHES_LINK: u32 = 0xa9bf_7bf0;
/// `br x17`, with which its entries end.
const ENTRY_END: u32 = 0xd61f_0220;
/// `mov x8, #139` and `svc #0`: rt_sigreturn(2).
const SIGNAL_RETURN: [u32; 2] = [0xd280_1168, 0xd400_0001];
/// `struct rt_sigframe` (arch/arm64/kernel/signal.c): 128 bytes of `siginfo`, then `ucontext`, whose `uc_mcontext` is at 176
/// and starts with the address of a fault and the registers.
const SIGNAL_FRAME: SignalFrame = {
    let registers = 128 + 176 + 8;
    SignalFrame { fp: registers + 29 * 8, third: registers + 30 * 8, sp: registers + 31 * 8, ip: registers + 32 * 8 }
};
/// Maximum number of instructions that compilers put between the two that set up a frame.
const SCHEDULED: usize = 3;

/// See [`Instructions::is_padding`](super::super::Instructions::is_padding).
pub fn is_padding(code: &[u8]) -> bool {
    code.chunks(LENGTH).all(|i| word(i).map_or_else(|| i.iter().all(|b| *b == 0), |i| i == NOP || i == 0))
}

/// See [`Instructions::frames`](super::super::Instructions::frames).
pub fn frames(code: &[u8], at: u64, functions: &[u64]) -> Vec<(u64, Frame)> {
    let words: Vec<u32> = code.chunks_exact(LENGTH).filter_map(word).collect();
    let mut frames = Frames { frames: vec![(at, Frame::Unknown)] };
    let mut functions = functions.iter().peekable();
    let (mut start, mut table, mut set) = (at, false, None);
    for (n, i) in words.iter().enumerate() {
        let addr = at + (n * LENGTH) as u64;
        let next = addr + LENGTH as u64;
        let after = |offset: usize| words.get(n + offset).copied();
        let mut starts = false;
        while functions.next_if(|start| **start <= addr).is_some() {
            starts = true;
        }
        if starts {
            (start, table, set) = (addr, false, None);
            frames.put(addr, Frame::Unknown);
        }
        if *i == SIGNAL_RETURN[0] && after(1) == Some(SIGNAL_RETURN[1]) {
            // the return address is its first instruction; the one before is looked up
            frames.put(addr.saturating_sub(LENGTH as u64).max(at), Frame::Signal(SIGNAL_FRAME));
            frames.put(next + LENGTH as u64, Frame::Unknown);
        } else if *i == PUSHES_LINK && words.iter().skip(n).take(8).any(|i| *i == ENTRY_END) {
            table = true;
            frames.put(start.max(addr.saturating_sub(LENGTH as u64)), Frame::Entered);
            frames.put(next, Frame::Linked(16));
        } else if *i == ENTRY_END && table {
            frames.put(next, Frame::Entered);
        } else if let Some(size) = pushed(*i)
            && (1..=SCHEDULED + 1).any(|offset| after(offset) == Some(SETS_FRAME))
        {
            frames.put(start, Frame::Entered);
            frames.put(next, Frame::Pushed(size));
            set = Some(size);
        } else if *i == SETS_FRAME
            && let Some(size) = set
        {
            frames.put(next, Frame::Set(size));
        } else if popped(*i) {
            frames.put(next, Frame::Entered);
        } else if super::is_return(*i) || bits(*i, 26, 6) == 0b000101 {
            // what follows a return or a jump is the rest of the function, or another one
            if let (Some(size), Some((_, Frame::Entered))) = (set, frames.frames.last()) {
                frames.put(next, Frame::Set(size));
            }
            if after(1).is_none_or(|i| i == NOP || pushed(i).is_some()) {
                (start, set) = (next, None);
                frames.put(next, Frame::Unknown);
            }
        }
    }
    frames.frames
}

/// Bytes of the frame that `stp x29, x30, [sp, #-SIZE]!` pushes.
fn pushed(i: u32) -> Option<i32> {
    let size = -8 * signed(i, 15, 7) as i32;
    (i & 0xffc0_7fff == 0xa980_7bfd && size > 0).then_some(size)
}

/// Is it `ldp x29, x30, [sp], #SIZE`?
fn popped(i: u32) -> bool {
    i & 0xffc0_7fff == 0xa8c0_7bfd
}

struct Frames {
    frames: Vec<(u64, Frame)>,
}

impl Frames {
    fn put(&mut self, addr: u64, frame: Frame) {
        while self.frames.pop_if(|(last, _)| *last >= addr).is_some() {}
        if self.frames.last().is_none_or(|(_, known)| *known != frame) {
            self.frames.push((addr, frame));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[u32]) -> Vec<(u64, Frame)> {
        let code: Vec<u8> = words.iter().flat_map(|i| i.to_le_bytes()).collect();
        frames(&code, 0x1000, &[])
    }

    #[test]
    fn a_frame_is_followed_from_its_start_to_its_end() {
        // paciasp; stp x29, x30, [sp, #-32]!; mov x29, sp; bl; ldp x29, x30, [sp], #32; autiasp; ret; nop; brk
        let function = [0xd503_233f, 0xa9be_7bfd, 0x9100_03fd, 0x9400_0000, 0xa8c2_7bfd, 0xd503_23bf, 0xd65f_03c0, NOP, 0xd420_0000];
        let expected = [
            (0x1000, Frame::Entered),
            (0x1008, Frame::Pushed(32)),
            (0x100c, Frame::Set(32)),
            (0x1014, Frame::Entered),
            (0x101c, Frame::Unknown),
        ];
        assert_eq!(of(&function), expected);
    }

    #[test]
    fn a_linkage_table_has_no_frames() {
        // stp; adrp; ldr; add; br x17; nop (3 times); adrp; ldr; add; br x17
        let entry = [0x9000_0090, 0xf947_fe11, 0x913f_e210, ENTRY_END];
        let table = [&[PUSHES_LINK], &entry[..], &[NOP; 3], &entry[..]].concat();
        assert_eq!(of(&table), [(0x1000, Frame::Entered), (0x1004, Frame::Linked(16)), (0x1014, Frame::Entered)]);
    }

    #[test]
    fn the_return_from_a_signal_handler() {
        let frame = Frame::Signal(SIGNAL_FRAME);
        assert_eq!(
            of(&[0xd65f_03c0, NOP, SIGNAL_RETURN[0], SIGNAL_RETURN[1], NOP]),
            [(0x1000, Frame::Unknown), (0x1004, frame), (0x1010, Frame::Unknown)]
        );
        assert_eq!(SIGNAL_FRAME, SignalFrame { fp: 544, third: 552, sp: 560, ip: 568 });
    }

    #[test]
    fn padding() {
        assert!(is_padding(&NOP.to_le_bytes()) && is_padding(&[0; 10]) && !is_padding(&0xd65f_03c0_u32.to_le_bytes()));
    }
}
