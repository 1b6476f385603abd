//! Finds the frames of x86-64 code that has frame pointers, by its instructions. This serves code without call frame
//! information, such as hand-written assembly, the C runtime's startup code in each program, and V8's builtins in Node.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, Register};
use memchr::memmem;

use super::super::Frame;

/// `mov rbp, rsp` in both encodings.
const SETS_FRAME: [&[u8]; 2] = [b"\x48\x89\xe5", b"\x48\x8b\xec"];
/// In code of at least this many bytes with a frame for every [`MAX_BYTES_PER_FRAME`] bytes, all functions have frames, including
/// those with an unusual prologue.
const LARGE: usize = 64 << 10;
const MAX_BYTES_PER_FRAME: usize = 4 << 10;
/// Bytes of a frame.
const FRAME: i32 = 16;
/// Maximum number of instructions that compilers put between the two that set up a frame.
const SCHEDULED: u32 = 3;

/// See [`Instructions::is_padding`](super::super::Instructions::is_padding).
pub fn is_padding(code: &[u8]) -> bool {
    let pads = |i: Instruction| matches!(i.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
    // A file has a gap after each function, so the usual instructions are not decoded.
    let mut rest = code;
    while let Some(after) = usual_padding(rest).and_then(|size| rest.get(size..)) {
        rest = after;
    }
    rest.iter().all(|b| *b == 0) || Decoder::new(64, rest, DecoderOptions::NONE).into_iter().all(pads)
}

/// The size of an instruction with which assemblers fill space: `int3`, or `nop` without or with an operand in memory.
fn usual_padding(code: &[u8]) -> Option<usize> {
    let prefixes = code.iter().take_while(|byte| matches!(byte, 0x66 | 0x2e)).count();
    let size = match code.get(prefixes..)? {
        [0x90, ..] => 1,
        [0xcc, ..] if prefixes == 0 => 1,
        [0x0f, 0x1f, 0x00, ..] => 3,
        [0x0f, 0x1f, 0x40, ..] => 4,
        [0x0f, 0x1f, 0x44, ..] => 5,
        [0x0f, 0x1f, 0x80, ..] => 7,
        [0x0f, 0x1f, 0x84, ..] => 8,
        _ => return None,
    };
    Some(prefixes + size)
}

/// See [`Instructions::frames`](super::super::Instructions::frames).
pub fn frames(code: &[u8], addr: u64, functions: &[u64]) -> Vec<(u64, Frame)> {
    let count: usize = SETS_FRAME.iter().map(|bytes| memmem::find_iter(code, bytes).count()).sum();
    let between = if code.len() >= LARGE && count * MAX_BYTES_PER_FRAME >= code.len() { Frame::Set(FRAME) } else { Frame::Unknown };
    let mut sweep =
        Sweep { frames: vec![(addr, between)], between, pushed: None, frame_removed: false, ended: true, last: Mnemonic::INVALID };
    if count > 0 {
        let mut functions = functions.iter().peekable();
        for i in &mut Decoder::with_ip(64, code, addr, DecoderOptions::NONE) {
            let mut starts = false;
            while functions.next_if(|start| **start <= i.ip()).is_some() {
                starts = true;
            }
            sweep.take(&i, starts);
        }
    }
    sweep.frames
}

/// A pass over the instructions.
struct Sweep {
    frames: Vec<(u64, Frame)>,
    /// The frame of code outside of known functions.
    between: Frame,
    /// After `push rbp`: the function's start, the end of the instruction, and how many more instructions may come
    /// before the frame is set.
    pushed: Option<(u64, u64, u32)>,
    /// The last instruction removed the frame.
    frame_removed: bool,
    /// The last instructions were a function's end, and padding.
    ended: bool,
    last: Mnemonic,
}

impl Sweep {
    fn put(&mut self, addr: u64, frame: Frame) {
        while self.frames.pop_if(|(last, _)| *last >= addr).is_some() {}
        if self.frames.last().is_none_or(|(_, known)| *known != frame) {
            self.frames.push((addr, frame));
        }
    }

    fn take(&mut self, i: &Instruction, starts: bool) {
        let pads = matches!(i.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
        if starts || self.ended && !pads && i.ip().is_multiple_of(16) {
            self.put(i.ip(), self.between);
            self.pushed = None;
        }
        let on_rbp = i.op0_register() == Register::RBP;
        let sets_frame = i.mnemonic() == Mnemonic::Mov && on_rbp && i.op1_register() == Register::RSP;
        match self.pushed.take() {
            Some((start, next, _)) if sets_frame => {
                self.put(start, Frame::Entered);
                self.put(next, Frame::Pushed(FRAME));
                self.put(i.next_ip(), Frame::Set(FRAME));
            }
            Some((start, next, left)) if left > 0 && !i.is_stack_instruction() && i.op0_register() != Register::RSP => {
                self.pushed = Some((start, next, left - 1));
            }
            _ => {}
        }
        if i.mnemonic() == Mnemonic::Push && on_rbp {
            let start = if self.last == Mnemonic::Endbr64 { i.ip() - 4 } else { i.ip() };
            self.pushed = Some((start, i.next_ip(), SCHEDULED));
        }
        let leaves = matches!(i.flow_control(), FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch);
        let framed = self.frames.last().is_some_and(|(_, frame)| *frame == Frame::Set(FRAME));
        if leaves && self.frame_removed && framed {
            self.put(i.ip(), Frame::Entered);
            self.put(i.next_ip(), Frame::Set(FRAME));
        }
        self.frame_removed = i.mnemonic() == Mnemonic::Leave || i.mnemonic() == Mnemonic::Pop && on_rbp;
        self.ended = leaves || self.ended && pads;
        self.last = i.mnemonic();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_followed_from_its_start_to_its_end() {
        // endbr64; push rbp; mov rbp, rsp; call; pop rbp; ret; and, after padding, sub rsp, 8; call
        let code = b"\xf3\x0f\x1e\xfa\x55\x48\x89\xe5\xe8\x00\x00\x00\x00\x5d\xc3\xcc\x48\x83\xec\x08\xe8\x00\x00\x00\x00";
        let (entered, pushed, set, unknown) = (Frame::Entered, Frame::Pushed(FRAME), Frame::Set(FRAME), Frame::Unknown);
        let expected = [(0x1000, entered), (0x1005, pushed), (0x1008, set), (0x100e, entered), (0x100f, set), (0x1010, unknown)];
        assert_eq!(frames(code, 0x1000, &[]), expected);
        // a symbol also ends it
        assert_eq!(frames(code, 0x1000, &[0x1000, 0x1008]).last(), Some(&(0x1008, unknown)));
        // as in the C runtime: push rbp; cmp byte [rip], 0; mov rbp, rsp
        let scheduled = b"\x55\x80\x3d\x00\x00\x00\x00\x00\x48\x89\xe5";
        assert_eq!(frames(scheduled, 0x1000, &[]), [(0x1000, entered), (0x1001, pushed), (0x100b, set)]);
        // push rbp; sub rsp, 8; mov rbp, rsp: not a frame
        assert_eq!(frames(b"\x55\x48\x83\xec\x08\x48\x89\xe5", 0x1000, &[]), [(0x1000, unknown)]);
    }

    #[test]
    fn much_code_with_frames_has_nothing_else() {
        let mut code = Vec::new();
        while code.len() < LARGE {
            code.extend_from_slice(b"\x31\xc0\x74\x0a\x55\x48\x89\xe5\xff\xd0\x5d\xc3\x31\xc0\xff\xd0");
        }
        let unknown = |code: &[u8]| frames(code, 0x1000, &[0x2000]).iter().any(|(_, frame)| *frame == Frame::Unknown);
        assert!(!unknown(&code) && unknown(&code[..LARGE / 2]));
    }

    #[test]
    fn padding() {
        assert!(is_padding(b"\xcc\xcc\x90\x66\x90\x0f\x1f\x40\x00") && is_padding(&[0; 20]) && is_padding(b""));
        assert!(!is_padding(b"\x90\xc3") && !is_padding(b"\x66\xcc\x0f\x0b"));
        // what was cut off within an instruction, and `nop %eax`
        assert!(!is_padding(b"\x90\x0f\x1f\x44\x00") && is_padding(b"\x66\x2e\x0f\x1f\x84\x00\x00\x00\x00\x00\x0f\x1f\xc0"));
    }
}
