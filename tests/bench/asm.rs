//! A minimal BPF assembler for the hand-written programs.

use libbpf_sys::bpf_insn;

/// A register. r0 is the result, r1-r5 are arguments, r6-r9 are callee-saved, and r10 is the frame pointer.
pub type Reg = u8;

/// A program under construction. All jumps are forward jumps to labels that are set later.
#[derive(Default)]
pub struct Asm {
    pub insns: Vec<bpf_insn>,
    jumps: Vec<(usize, &'static str)>,
}

/// The numbers of helpers, from `___BPF_FUNC_MAPPER` in `include/uapi/linux/bpf.h`.
pub mod helper {
    pub const MAP_LOOKUP: i32 = 1;
    pub const MAP_UPDATE: i32 = 2;
    pub const MAP_DELETE: i32 = 3;
    pub const KTIME_GET_NS: i32 = 5;
    pub const PID_TGID: i32 = 14;
    pub const COMM: i32 = 16;
    pub const TASK_STORAGE_GET: i32 = 156;
    pub const CURRENT_TASK: i32 = 158;
    pub const READ_USER_STR: i32 = 114;
    pub const READ_KERNEL: i32 = 113;
    pub const RINGBUF_OUTPUT: i32 = 130;
    pub const RINGBUF_RESERVE: i32 = 131;
    pub const RINGBUF_SUBMIT: i32 = 132;
}

impl Asm {
    fn push(&mut self, code: u8, dst: Reg, src: Reg, off: i16, imm: i32) -> &mut Self {
        let mut insn = bpf_insn { code, off, imm, ..Default::default() };
        insn.set_dst_reg(dst);
        insn.set_src_reg(src);
        self.insns.push(insn);
        self
    }

    pub fn mov(&mut self, dst: Reg, src: Reg) -> &mut Self {
        self.push(0xbf, dst, src, 0, 0)
    }

    pub fn movi(&mut self, dst: Reg, imm: i32) -> &mut Self {
        self.push(0xb7, dst, 0, 0, imm)
    }

    pub fn addi(&mut self, dst: Reg, imm: i32) -> &mut Self {
        self.push(0x07, dst, 0, 0, imm)
    }

    pub fn sub(&mut self, dst: Reg, src: Reg) -> &mut Self {
        self.push(0x1f, dst, src, 0, 0)
    }

    pub fn andi(&mut self, dst: Reg, imm: i32) -> &mut Self {
        self.push(0x57, dst, 0, 0, imm)
    }

    pub fn shri(&mut self, dst: Reg, imm: i32) -> &mut Self {
        self.push(0x77, dst, 0, 0, imm)
    }

    /// Copies the low 32 bits.
    pub fn mov32(&mut self, dst: Reg, src: Reg) -> &mut Self {
        self.push(0xbc, dst, src, 0, 0)
    }

    /// `dst = *(u64 *)(src + off)`
    pub fn load(&mut self, dst: Reg, src: Reg, off: i16) -> &mut Self {
        self.push(0x79, dst, src, off, 0)
    }

    /// `*(u64 *)(dst + off) = src`
    pub fn store(&mut self, dst: Reg, off: i16, src: Reg) -> &mut Self {
        self.push(0x7b, dst, src, off, 0)
    }

    /// `*(u32 *)(dst + off) = src`
    pub fn store32(&mut self, dst: Reg, off: i16, src: Reg) -> &mut Self {
        self.push(0x63, dst, src, off, 0)
    }

    /// `*(u64 *)(dst + off) = imm`
    pub fn storei(&mut self, dst: Reg, off: i16, imm: i32) -> &mut Self {
        self.push(0x7a, dst, 0, off, imm)
    }

    pub fn call(&mut self, helper: i32) -> &mut Self {
        self.push(0x85, 0, 0, 0, helper)
    }

    pub fn exit(&mut self) -> &mut Self {
        self.push(0x95, 0, 0, 0, 0)
    }

    /// `dst = map`
    pub fn map(&mut self, dst: Reg, fd: i32) -> &mut Self {
        self.push(0x18, dst, 1, 0, fd).push(0, 0, 0, 0, 0)
    }

    fn jump(&mut self, code: u8, a: Reg, b: Reg, imm: i32, to: &'static str) -> &mut Self {
        self.jumps.push((self.insns.len(), to));
        self.push(code, a, b, 0, imm)
    }

    pub fn jump_eqi(&mut self, a: Reg, imm: i32, to: &'static str) -> &mut Self {
        self.jump(0x15, a, 0, imm, to)
    }

    pub fn jump_nei(&mut self, a: Reg, imm: i32, to: &'static str) -> &mut Self {
        self.jump(0x55, a, 0, imm, to)
    }

    /// Jumps if `a <= imm`, compared as signed numbers.
    pub fn jump_slei(&mut self, a: Reg, imm: i32, to: &'static str) -> &mut Self {
        self.jump(0xd5, a, 0, imm, to)
    }

    pub fn jump_eq(&mut self, a: Reg, b: Reg, to: &'static str) -> &mut Self {
        self.jump(0x1d, a, b, 0, to)
    }

    pub fn jump_ne(&mut self, a: Reg, b: Reg, to: &'static str) -> &mut Self {
        self.jump(0x5d, a, b, 0, to)
    }

    /// `r0 = cmpxchg((u64 *)(dst + off), r0, src)`
    pub fn cmpxchg(&mut self, dst: Reg, off: i16, src: Reg) -> &mut Self {
        self.push(0xdb, dst, src, off, 0xf1)
    }

    pub fn label(&mut self, name: &'static str) -> &mut Self {
        let here = self.insns.len();
        let insns = &mut self.insns;
        self.jumps.retain(|(at, to)| {
            if *to == name {
                insns[*at].off = (here - at - 1) as i16;
            }
            *to != name
        });
        self
    }

    /// `r[at] = address of r10 - below`
    pub fn stack(&mut self, at: Reg, below: i32) -> &mut Self {
        self.mov(at, 10).addi(at, -below)
    }

    /// `dst = log2(src)`, for src > 0. Changes both registers.
    pub fn log2(&mut self, dst: Reg, src: Reg) -> &mut Self {
        const SKIPS: [&str; 6] = ["l32", "l16", "l8", "l4", "l2", "l1"];
        self.movi(dst, 0);
        for (i, skip) in SKIPS.into_iter().enumerate() {
            let bits = 32 >> i;
            let tmp = 0;
            self.mov(tmp, src).shri(tmp, bits).jump_eqi(tmp, 0, skip).mov(src, tmp).addi(dst, bits).label(skip);
        }
        self
    }

    /// Checks that all labels are set.
    pub fn done(&self) -> &[bpf_insn] {
        assert!(self.jumps.is_empty(), "labels without a place: {:?}", self.jumps);
        &self.insns
    }
}
