//! Follows the stack pointer and the frame pointer of x86-64 code from the starts of functions, along jumps and calls. This serves
//! code without call frame information that has no frame pointers either, such as a C library built without tables, and
//! linkage tables.
//!
//! The code after a call is reached if the called function can return: if one of its paths leads to a return, or to code that is
//! not known. Otherwise the next function would seem to continue the one that ends with such a call.
//!
//! The state after a call is that before it. This is wrong where the called function does not return, and the next function follows
//! the call, or where it returns with another stack pointer. Then a path reaches a return with the return address in another place. If
//! there is such a contradiction, nothing is known after the calls that may have caused it, and all paths are followed again.
//!
//! The arms of a `switch` are found by the table of its jump (`flow/jump_tables.rs`), and functions that only pointers lead to by the
//! instructions that take their addresses (`flow/starts.rs`).
//!
//! A state holds at an instruction only if it holds on all paths that lead there. Where paths disagree, or an instruction changes
//! the stack pointer by an unknown amount, nothing is known.

mod contradictions;
mod jump_tables;
mod starts;

use std::collections::{BTreeSet, HashMap};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::super::{Followed, Frame, SignalFrame, Starts};
use contradictions::Distrusted;
use starts::{address, slots, taken_at};

/// Bytes of an address.
const WORD: i32 = 8;
/// Compilers put functions at multiples of this.
const FUNCTION_ALIGNMENT: u64 = 16;
/// A larger frame is not followed.
const MAX_FRAME: i32 = 1 << 28;
/// More code is not followed: limits of time and memory.
const MAX_CODE: usize = 16 << 20;
const MAX_STEPS: usize = 4 << 20;
/// A file has one place where signal handlers return to.
const MAX_SIGNAL_RETURNS: usize = 4;
/// More padding between functions is not expected, in bytes.
const MAX_PADDING: usize = 64;
/// How often paths are followed until there is no contradiction.
const MAX_TURNS: usize = 5;
/// musl's `vfork`, whose return address is in a register during the call: `pop %rdx`, `mov $58,%eax`, `syscall` and `push %rdx`.
const VFORK: &[u8] = b"\x5a\xb8\x3a\x00\x00\x00\x0f\x05\x52";
/// No instruction.
const NONE: u32 = u32::MAX;
/// `mov $15, %rax` or `mov $15, %eax`, and `syscall`: rt_sigreturn(2).
const SIGNAL_RETURNS: [&[u8]; 2] = [b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05", b"\xb8\x0f\x00\x00\x00\x0f\x05"];
/// `struct ucontext` (arch/x86/include/uapi/asm/ucontext.h), to which the stack pointer points there: its `uc_mcontext` is at 40, and
/// has `r8`, `r9`, `r10`, five more, `rdi`, `rsi`, `rbp`, `rbx`, `rdx`, `rax`, `rcx`, `rsp` and `rip`.
const SIGNAL_FRAME: SignalFrame = SignalFrame { third: 40 + 2 * 8, fp: 40 + 10 * 8, sp: 40 + 15 * 8, ip: 40 + 16 * 8 };

/// See [`Instructions::follow`](super::super::Instructions::follow).
pub fn follow(code: &[u8], addr: u64, starts: &Starts<'_>, elsewhere: &dyn Fn(u64) -> [u8; 16]) -> Followed {
    if code.len() > MAX_CODE {
        return Vec::new();
    }
    let mut functions = slots(code, starts.tables, addr);
    functions.extend(starts.entry.map(|entry| taken_at(entry, elsewhere)).unwrap_or_default());
    functions.extend_from_slice(starts.functions);
    let mut distrusted = Distrusted::default();
    for _ in 0..MAX_TURNS {
        let mut flow = Flow::new((code, addr), starts, &functions, elsewhere, &distrusted);
        if flow.run().is_none() {
            return Vec::new();
        }
        let causes = flow.causes();
        // a function that returns with another stack pointer does so in each turn
        if causes.calls.is_subset(&distrusted.calls) && causes.functions.is_subset(&distrusted.functions) {
            return flow.frames();
        }
        distrusted.calls.extend(causes.calls);
        distrusted.functions.extend(causes.functions);
    }
    Vec::new()
}

impl<'d> Flow<'d> {
    fn new(
        (code, addr): (&'d [u8], u64),
        starts: &Starts<'d>,
        functions: &[u64],
        elsewhere: &'d dyn Fn(u64) -> [u8; 16],
        distrusted: &'d Distrusted,
    ) -> Self {
        let mut flow = Flow {
            code,
            addr,
            endless: starts.endless,
            described: starts.described,
            elsewhere,
            index: vec![NONE; code.len()],
            reached: Vec::new(),
            others: HashMap::new(),
            open: Vec::new(),
            waiting: HashMap::new(),
            after_calls: Vec::new(),
            // from the end: a function precedes its labels
            pointers: starts.pointers.iter().rev().copied().collect(),
            taken: Vec::new(),
            info: InstructionInfoFactory::new(),
            distrusted,
            entered: BTreeSet::new(),
            gotos: BTreeSet::new(),
            steps: 0,
            calls: HashMap::new(),
            contradictions: Vec::new(),
            took_return_address: false,
        };
        let entry = starts.entry.and_then(|entry| flow.position(entry));
        for start in functions {
            if let Some(at) = flow.position(*start)
                && Some(at) != entry
            {
                flow.enter(at);
            }
        }
        if let Some(at) = entry {
            flow.reach(at, State::Outermost);
        }
        flow
    }
}

/// The frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pointer {
    /// The caller's.
    Caller,
    /// This many bytes below the canonical frame address.
    Frame(i32),
    /// Cleared, by which a thread's first function marks the end of the stack.
    Zero,
    /// Any other value.
    Other,
}

/// What is known at an instruction. Offsets are bytes below the canonical frame address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The frame is the outermost one.
    Outermost,
    /// The frame of a function.
    Function {
        /// The stack pointer.
        sp: Option<i32>,
        fp: Pointer,
        /// A copy of the caller's frame pointer.
        saved: Option<i32>,
    },
}

impl State {
    const ENTERED: Self = Self::Function { sp: Some(WORD), fp: Pointer::Caller, saved: None };
    const UNKNOWN: Self = Self::Function { sp: None, fp: Pointer::Other, saved: None };

    /// What is known if either may hold.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            _ if self == other => self,
            (Self::Function { sp, fp, saved }, Self::Function { sp: other_sp, fp: other_fp, saved: other_saved }) => Self::Function {
                sp: sp.filter(|_| sp == other_sp),
                fp: if fp == other_fp { fp } else { Pointer::Other },
                saved: saved.filter(|_| saved == other_saved),
            },
            _ => Self::UNKNOWN,
        }
    }

    fn frame(self) -> Frame {
        match self {
            Self::Outermost => Frame::Outermost,
            Self::Function { fp: Pointer::Frame(size), saved: Some(saved), sp } if sp.is_none() || size == saved => {
                Frame::AboveFp(size, saved)
            }
            Self::Function { sp: Some(size), saved: Some(saved), .. } => Frame::AboveSp(size, Some(saved)),
            Self::Function { sp: Some(WORD), fp: Pointer::Caller, .. } => Frame::Entered,
            Self::Function { sp: Some(size), fp: Pointer::Caller, .. } => Frame::AboveSp(size, None),
            Self::Function { .. } => Frame::Unknown,
        }
    }
}

/// An instruction that was reached.
#[derive(Clone, Copy, Debug)]
struct Reached {
    /// Its position in the code.
    at: u32,
    state: State,
    /// Bytes of the instruction; 0 if it was not decoded.
    size: u8,
    /// A path leads from here to the caller.
    returns: bool,
    /// The position of an instruction before it, or [`NONE`]; [`Flow::others`] has more.
    before: u32,
}

struct Flow<'d> {
    code: &'d [u8],
    addr: u64,
    endless: &'d [u64],
    described: &'d [(u64, u64)],
    elsewhere: &'d dyn Fn(u64) -> [u8; 16],
    /// The index in `reached`, or [`NONE`], for each byte of the code.
    index: Vec<u32>,
    reached: Vec<Reached>,
    /// More instructions that lead to one.
    others: HashMap<u32, Vec<u32>>,
    /// Instructions whose states changed.
    open: Vec<u32>,
    /// Calls of functions of which no path to a return is known: the call, what follows it, and the state there.
    waiting: HashMap<u32, Vec<(u32, u32, State)>>,
    /// The same for those that can return.
    after_calls: Vec<(u32, u32, State)>,
    /// Addresses in data that may be those of functions.
    pointers: Vec<u64>,
    /// The same for addresses that instructions take.
    taken: Vec<u64>,
    info: InstructionInfoFactory,
    distrusted: &'d Distrusted,
    /// Where functions start.
    entered: BTreeSet<u32>,
    /// Indirect jumps within functions, of which the targets are unknown.
    gotos: BTreeSet<u32>,
    /// The work so far, of at most [`MAX_STEPS`].
    steps: usize,
    /// Calls that code follows, each with the called function if that is in this code.
    calls: HashMap<u32, Option<u32>>,
    /// Instructions at which the return address is not where it has to be.
    contradictions: Vec<u32>,
    /// The instruction that was last followed takes the return address from the stack.
    took_return_address: bool,
}

impl Flow<'_> {
    fn get(&self, at: u32) -> Option<&Reached> {
        self.reached.get(*self.index.get(at as usize)? as usize)
    }

    fn get_mut(&mut self, at: u32) -> Option<&mut Reached> {
        self.reached.get_mut(*self.index.get(at as usize)? as usize)
    }

    fn position(&self, addr: u64) -> Option<u32> {
        let at = u32::try_from(addr.checked_sub(self.addr)?).ok()?;
        let next = self.described.partition_point(|(_, end)| *end <= addr);
        let described = self.described.get(next).is_some_and(|(start, _)| *start <= addr);
        ((at as usize) < self.code.len() && !described).then_some(at)
    }

    /// A function starts here.
    fn enter(&mut self, at: u32) {
        let rest = self.code.get(at as usize..).unwrap_or_default();
        if !SIGNAL_RETURNS.iter().any(|bytes| rest.starts_with(bytes)) {
            self.entered.insert(at);
            self.reach(at, State::ENTERED);
        }
    }

    fn reach(&mut self, at: u32, state: State) {
        let new = self.reached.len() as u32;
        let Some(index) = self.index.get_mut(at as usize) else { return };
        if *index == NONE {
            *index = new;
            self.reached.push(Reached { at, state, size: 0, returns: false, before: NONE });
            return self.open.push(at);
        }
        let Some(known) = self.reached.get_mut(*index as usize) else { return };
        let both = known.state.or(state);
        if both != known.state {
            known.state = both;
            self.open.push(at);
        }
    }

    /// An instruction leads to another one, or to code that is not known.
    fn lead(&mut self, from: u32, to: u64, state: State) {
        match self.position(to) {
            Some(at) => self.lead_to(from, at, state),
            None => self.returns(from),
        }
    }

    fn lead_to(&mut self, from: u32, at: u32, state: State) {
        self.reach(at, state);
        let Some(reached) = self.get_mut(at) else { return };
        let returns = reached.returns;
        if reached.before == NONE {
            reached.before = from;
        } else if reached.before != from {
            self.others.entry(at).or_default().push(from);
        }
        if returns {
            self.returns(from);
        }
    }

    /// A path leads from this instruction to the caller, and so it does from those before it.
    fn returns(&mut self, at: u32) {
        let mut open = vec![at];
        while let Some(at) = open.pop() {
            let Some(reached) = self.get_mut(at).filter(|reached| !reached.returns) else { continue };
            reached.returns = true;
            open.extend(Some(reached.before).filter(|before| *before != NONE));
            open.extend(self.others.get(&at).into_iter().flatten());
            self.after_calls.extend(self.waiting.remove(&at).unwrap_or_default());
        }
    }

    /// Follows all paths. `None` if they are too long.
    fn run(&mut self) -> Option<()> {
        while self.steps < MAX_STEPS {
            self.steps += 1;
            if let Some(at) = self.open.pop() {
                self.step(at);
                continue;
            }
            let Some((call, at, state)) = self.after_calls.pop() else {
                let taken = self.taken.pop();
                let Some(pointer) = taken.or_else(|| self.pointers.pop()) else { return Some(()) };
                let is_start = |at: &u32| self.get(*at).is_none() && self.starts_function(*at, taken.is_none()) && !self.may_be_label(*at);
                if let Some(at) = self.position(pointer).filter(is_start) {
                    self.enter(at);
                }
                continue;
            };
            let known = self.get(at).map(|reached| reached.state);
            // if other paths come with another stack pointer, the call does not return
            let returns = match (known, state) {
                (Some(State::Function { sp: Some(known), .. }), State::Function { sp: Some(sp), .. }) => known == sp,
                _ => true,
            };
            if returns {
                self.lead_to(call, at, state);
            }
        }
        None
    }

    fn step(&mut self, at: u32) {
        let Some(code) = self.code.get(at as usize..) else { return };
        let i = Decoder::with_ip(64, code, self.addr + u64::from(at), DecoderOptions::NONE).decode();
        if i.is_invalid() {
            return;
        }
        let Some(reached) = self.get_mut(at) else { return };
        reached.size = i.len() as u8;
        let before = reached.state;
        self.took_return_address = false;
        let after = self.after(&i, before);
        let misses = match (i.flow_control(), before) {
            // it may also remove arguments
            (FlowControl::Return, State::Function { sp: Some(sp), .. }) => sp != WORD || i.op_count() > 0,
            (FlowControl::UnconditionalBranch, State::Function { sp: Some(sp), .. }) => {
                sp != WORD && self.position(i.near_branch_target()).is_none_or(|at| self.entered.contains(&at))
            }
            _ => self.took_return_address && !code.starts_with(VFORK),
        };
        if misses {
            self.contradictions.push(at);
        }
        let endless = self.is_endless(&i);
        self.taken.extend(address(&i));
        match i.flow_control() {
            // it enters the kernel
            FlowControl::Call if matches!(i.mnemonic(), Mnemonic::Syscall) => self.lead(at, i.next_ip(), after),
            FlowControl::Next if i.mnemonic() != Mnemonic::Hlt => self.lead(at, i.next_ip(), after),
            FlowControl::XbeginXabortXend => self.lead(at, i.next_ip(), after),
            FlowControl::ConditionalBranch => {
                self.lead(at, i.next_ip(), after);
                self.lead(at, i.near_branch_target(), after);
            }
            FlowControl::UnconditionalBranch if endless => {}
            FlowControl::UnconditionalBranch => self.lead(at, i.near_branch_target(), after),
            FlowControl::Call if i.near_branch_target() == i.next_ip() => self.lead(at, i.next_ip(), self.pushed(before)),
            FlowControl::Call | FlowControl::IndirectCall => {
                let target = if i.flow_control() == FlowControl::Call { self.position(i.near_branch_target()) } else { None };
                if let Some(target) = target {
                    self.enter(target);
                }
                // Other files have functions that do not return. Pointers seldom lead to such a function.
                let is_elsewhere = target.is_none() && (i.flow_control() == FlowControl::Call || i.is_ip_rel_memory_operand());
                let next = self.position(i.next_ip()).filter(|next| !is_elsewhere || !self.ends_function(*next));
                let Some(next) = next else { return };
                self.calls.insert(at, target);
                match target {
                    _ if self.distrusted.calls.contains(&at) => {}
                    Some(target) if self.distrusted.functions.contains(&target) => self.returns(at),
                    Some(target) if !self.get(target).is_some_and(|reached| reached.returns) => {
                        self.waiting.entry(target).or_default().push((at, next, after));
                    }
                    _ if endless => {}
                    _ => self.after_calls.push((at, next, after)),
                }
            }
            FlowControl::IndirectBranch if endless => {}
            FlowControl::IndirectBranch => {
                let targets = self.table_targets(at, &i);
                targets.iter().for_each(|target| self.lead_to(at, *target, after));
                if targets.is_empty() {
                    self.returns(at);
                    // a jump to another function has only the return address on the stack
                    if matches!(before, State::Function { sp, .. } if sp != Some(WORD)) {
                        self.gotos.insert(at);
                    }
                }
            }
            FlowControl::Return => self.returns(at),
            FlowControl::Next | FlowControl::Interrupt | FlowControl::Exception => {}
        }
    }

    /// Is there only padding up to where another function can start? A loop can start there, too.
    fn ends_function(&self, at: u32) -> bool {
        let rest = self.code.get(at as usize..).unwrap_or_default();
        let rest = rest.get(..MAX_PADDING).unwrap_or(rest);
        let addr = self.addr + u64::from(at);
        let mut decoder = Decoder::with_ip(64, rest, addr, DecoderOptions::NONE);
        let mut next = addr;
        while decoder.can_decode() && decoder.decode().mnemonic() == Mnemonic::Nop {
            next = decoder.ip();
        }
        next > addr && next.is_multiple_of(FUNCTION_ALIGNMENT)
    }

    /// Does the instruction jump to, or call, a function of another file that does not return?
    fn is_endless(&self, i: &Instruction) -> bool {
        let by_pointer = |i: &Instruction| i.is_ip_rel_memory_operand() && self.endless.binary_search(&i.ip_rel_memory_address()).is_ok();
        match i.flow_control() {
            FlowControl::IndirectCall | FlowControl::IndirectBranch => by_pointer(i),
            FlowControl::Call | FlowControl::UnconditionalBranch if self.position(i.near_branch_target()).is_none() => {
                let slot = (self.elsewhere)(i.near_branch_target());
                let mut slot = Decoder::with_ip(64, &slot, i.near_branch_target(), DecoderOptions::NONE).into_iter();
                let jump = slot.find(|i| i.mnemonic() != Mnemonic::Endbr64);
                jump.is_some_and(|i| i.flow_control() == FlowControl::IndirectBranch && by_pointer(&i))
            }
            _ => false,
        }
    }

    fn pushed(&self, state: State) -> State {
        match state {
            State::Outermost => state,
            State::Function { sp, fp, saved } => State::Function { sp: moved(sp, -WORD), fp, saved },
        }
    }

    /// The state after an instruction, apart from what it calls.
    fn after(&mut self, i: &Instruction, state: State) -> State {
        let State::Function { mut sp, mut fp, mut saved } = state else { return state };
        let (to, from) = (register(i, 0), register(i, 1));
        // a place in the frame that an operand in memory has
        let place = move |base: Register, displacement: u64| {
            let base = match (base, fp) {
                (Register::RSP, _) => sp,
                (Register::RBP, Pointer::Frame(at)) => Some(at),
                _ => None,
            };
            moved(base, i32::try_from(displacement.cast_signed()).ok()?)
        };
        let direct = i.memory_index() == Register::None && i.segment_prefix() == Register::None;
        let operand = if direct { place(i.memory_base(), i.memory_displacement64()) } else { None };
        let of = |known: Option<i32>| known.map_or(Pointer::Other, Pointer::Frame);
        match (i.mnemonic(), to) {
            (Mnemonic::Push, _) => {
                sp = moved(sp, i.stack_pointer_increment());
                if to == Register::RBP && fp == Pointer::Caller && saved.is_none() {
                    saved = sp;
                }
            }
            (Mnemonic::Pop, _) => {
                let popped = sp;
                sp = moved(sp, i.stack_pointer_increment());
                match to.full_register() {
                    Register::RBP if to == Register::RBP && popped.is_some() && popped == saved => fp = Pointer::Caller,
                    Register::RBP => fp = Pointer::Other,
                    Register::RSP => sp = None,
                    _ if i.op0_kind() == OpKind::Memory => return State::UNKNOWN,
                    _ => {}
                }
            }
            (Mnemonic::Leave, _) => {
                sp = match fp {
                    Pointer::Frame(at) => Some(at),
                    _ => None,
                };
                fp = if sp.is_some() && sp == saved { Pointer::Caller } else { Pointer::Other };
                sp = moved(sp, WORD);
            }
            (Mnemonic::Pushfq | Mnemonic::Popfq, _) => sp = moved(sp, i.stack_pointer_increment()),
            (Mnemonic::Xor, Register::RBP | Register::EBP) if from == to => {
                fp = if fp == Pointer::Caller && saved.is_none() { Pointer::Zero } else { Pointer::Other };
            }
            (Mnemonic::Add | Mnemonic::Sub, Register::RSP) if super::is_number(i.op1_kind()) => {
                let by = i32::try_from(i.immediate(1).cast_signed()).ok();
                let by = by.and_then(|by| if i.mnemonic() == Mnemonic::Sub { by.checked_neg() } else { Some(by) });
                sp = by.and_then(|by| moved(sp, by));
            }
            (Mnemonic::Lea, Register::RSP) => sp = operand,
            (Mnemonic::Lea, Register::RBP) => fp = of(operand),
            (Mnemonic::Mov, Register::RSP) if from == Register::RBP => {
                sp = match fp {
                    Pointer::Frame(at) => Some(at),
                    _ => None,
                }
            }
            (Mnemonic::Mov, Register::RBP) if from == Register::RSP => fp = of(sp),
            (Mnemonic::Mov, Register::RBP) if operand.is_some() && i.op1_kind() == OpKind::Memory => {
                fp = if operand == saved { Pointer::Caller } else { Pointer::Other };
            }
            (Mnemonic::Mov, _) if i.op0_kind() == OpKind::Memory && from == Register::RBP && fp == Pointer::Caller && saved.is_none() => {
                saved = operand;
            }
            _ if is_plain(i) && !matches!(to.full_register(), Register::RSP | Register::RBP) && i.op0_kind() != OpKind::Memory => {}
            (Mnemonic::Call, _) => {}
            _ => {
                let writes =
                    |a: OpAccess| matches!(a, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite);
                let info = self.info.info(i);
                for used in info.used_registers().iter().filter(|r| writes(r.access())) {
                    match used.register().full_register() {
                        Register::RSP => sp = None,
                        Register::RBP => fp = Pointer::Other,
                        _ => {}
                    }
                }
                for used in info.used_memory().iter().filter(|m| writes(m.access())) {
                    let size = i32::try_from(used.memory_size().size()).unwrap_or(i32::MAX).max(1);
                    let at = if used.index() == Register::None { place(used.base(), used.displacement()) } else { None };
                    // the bytes at - size < offset <= at, and the copy's are the eight from its own downwards
                    let overlaps = |saved: i32| at.is_some_and(|at| at > saved - WORD && at - size < saved);
                    saved = saved.filter(|saved| !overlaps(*saved));
                }
            }
        }
        // without a return address on the stack, it is not known where that is
        if sp.is_some_and(|sp| sp < WORD) {
            self.took_return_address = fp != Pointer::Zero;
            return if fp == Pointer::Zero { State::Outermost } else { State::UNKNOWN };
        }
        // what is below the stack pointer is lost
        saved = saved.filter(|saved| sp.is_none_or(|sp| *saved <= sp) && *saved >= WORD);
        State::Function { sp, fp, saved }
    }

    /// The frames where instructions were reached; `None` elsewhere.
    fn frames(self) -> Followed {
        let mut reached: Vec<Reached> = self.reached.into_iter().filter(|reached| reached.size > 0).collect();
        reached.sort_unstable_by_key(|reached| reached.at);
        let mut all: Followed = vec![(self.addr, None)];
        let mut put = |at: u64, frame: Option<Frame>| {
            while all.pop_if(|(last, _)| *last >= at).is_some() {}
            if all.last().is_none_or(|(_, known)| *known != frame) {
                all.push((at, frame));
            }
        };
        let mut end = 0;
        for Reached { at, state, size, .. } in reached {
            if at > end {
                let between = self.code.get(end as usize..at as usize).unwrap_or_default();
                // padding after a function continues its frame
                if end == 0 || between.len() >= 16 || !super::frames::is_padding(between) {
                    put(self.addr + u64::from(end), None);
                }
            }
            put(self.addr + u64::from(at), Some(state.frame()));
            end = at + u32::from(size);
        }
        if (end as usize) < self.code.len() {
            put(self.addr + u64::from(end), None);
        }
        let returns = SIGNAL_RETURNS.iter().flat_map(|bytes| memchr::memmem::find_iter(self.code, bytes).map(|at| (at, bytes.len())));
        let mut returns: Vec<(usize, usize)> = returns.take(MAX_SIGNAL_RETURNS).collect();
        returns.sort_unstable();
        for (at, size) in returns {
            // the return address is its first instruction; the one before is looked up
            let (from, to) = (self.addr + (at as u64).saturating_sub(1), self.addr + (at + size) as u64);
            let first = all.partition_point(|(at, _)| *at < from);
            let after = all.partition_point(|(at, _)| *at <= to);
            let next = after.checked_sub(1).and_then(|n| all.get(n)).and_then(|(_, frame)| *frame);
            all.splice(first..after, [(from, Some(Frame::Signal(SIGNAL_FRAME))), (to, next)]);
        }
        all
    }
}

/// An offset of a pointer after it moved by this many bytes upwards.
fn moved(offset: Option<i32>, by: i32) -> Option<i32> {
    offset?.checked_sub(by).filter(|offset| (-MAX_FRAME..MAX_FRAME).contains(offset))
}

fn register(i: &Instruction, operand: u32) -> Register {
    if operand < i.op_count() && i.op_kind(operand) == OpKind::Register { i.op_register(operand) } else { Register::None }
}

/// Does the instruction write at most its first operand, and registers other than the two pointers?
fn is_plain(i: &Instruction) -> bool {
    matches!(
        i.mnemonic(),
        Mnemonic::Mov
            | Mnemonic::Lea
            | Mnemonic::Add
            | Mnemonic::Sub
            | Mnemonic::And
            | Mnemonic::Or
            | Mnemonic::Xor
            | Mnemonic::Cmp
            | Mnemonic::Test
            | Mnemonic::Movzx
            | Mnemonic::Movsx
            | Mnemonic::Movsxd
            | Mnemonic::Nop
            | Mnemonic::Shl
            | Mnemonic::Shr
            | Mnemonic::Sar
            | Mnemonic::Inc
            | Mnemonic::Dec
    ) || i.flow_control() == FlowControl::ConditionalBranch
        || i.flow_control() == FlowControl::UnconditionalBranch
}
