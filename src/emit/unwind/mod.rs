//! Unwinds user stacks by tables: the BPF side of [`crate::system::binary::unwind`].
//!
//! A frame costs two lookups: that of the address in a cache that all processes share, since calls return to few
//! places, and that of its rule ([`RULES`]). An address that is not in the cache costs more: a lookup of its code page
//! in a cache of pages, and a search in the page's rows ([`FILES`], [`POOLS`]). Only for a page that is not in the
//! cache does the program search the process's mappings, in the kernel's tree of them. It reads the tree without its
//! lock, as readers under RCU do: `bpf_find_vma` needs the lock, and in an interrupt gets it once for each event
//! (`bpf_mmap_unlock_get_irq_work` of kernel/bpf/mmap_unlock_work.h), while a stack has several mappings. So a process
//! that has just started or loaded a library is unwound like any other. A file without a table is reported to user
//! space ([`MISSES`]), which compiles one.
//!
//! The cache does not need to be emptied when mappings change: a page's entry has the identity of the address space, which
//! includes the size of all executable mappings, and a number that user space changes when the kernel reports a new one
//! ([`GENERATIONS`]).
//!
//! - `layout.rs`: the maps; `memory.rs`: the memory of a walk
//! - `mapping.rs`: the mapping at an address; `rows.rs`: from a frame to its caller's; `python.rs`: interpreted frames

mod layout;
mod mapping;
mod memory;
mod python;
mod rows;

pub use layout::*;

use inkwell::values::{IntValue, PointerValue};

use super::shared::{CUT_REASONS, SCRATCH_SLOTS, State};
use super::{Builder, Cmp, CodegenCx, Helper, MapDef, MapKind, ProgramCx, ProgramType, SectionDef, ThreadPointer};
use crate::system::machine::arch::Unwind;
use crate::types::{Int, Space};
use memory::*;
use python::slot_of;

const U64: Int = Int { bytes: 8, signed: false };
const U32: Int = Int { bytes: 4, signed: false };
const I32: Int = Int { bytes: 4, signed: true };

/// Offsets of the kernel's structures, and other facts about a kernel that the walk needs.
#[derive(Clone, Copy, Debug)]
pub struct UnwindTarget {
    /// `task_struct.mm`
    pub mm: u32,
    /// `mm_struct.exec_vm`, in pages.
    pub exec_vm: u32,
    /// `mm_struct.start_code`
    pub start_code: u32,
    /// `mm_struct.start_stack`
    pub start_stack: u32,
    /// `mm_struct.context.vdso`
    pub vdso: u32,
    /// `task_struct.stack`
    pub stack: u32,
    /// `vm_area_struct.vm_start`, `vm_end`, `vm_pgoff`, `vm_file`
    pub vma: [u32; 4],
    /// `vm_area_struct.vm_flags`; none if the kernel's types do not describe it.
    pub vm_flags: Option<u32>,
    /// How the kernel keeps mappings.
    pub tree: MappingTree,
    /// Return addresses that a uretprobe has replaced; none if the kernel's types do not describe them.
    pub replaced: Option<ReplacedReturns>,
    /// `file.f_inode`
    pub inode: u32,
    /// `inode.i_ino`, `i_size`, `i_sb`, `i_generation`
    pub inode_members: [u32; 4],
    /// `super_block.s_dev`
    pub dev: u32,
    /// `mm_struct.task_size`, above which a return address has the bits by which it is signed; none if addresses are not signed.
    pub task_size: Option<u32>,
    /// The processor's row.
    pub arch: &'static Unwind,
    /// None without the frames of interpreters.
    pub thread: Option<ThreadPointer>,
    /// The kernel has `bpf_task_pt_regs`.
    pub knows_registers: bool,
}

/// The kernel's tree of the mappings of an address space.
#[derive(Clone, Copy, Debug)]
pub enum MappingTree {
    /// Since Linux 6.1 (include/linux/maple_tree.h): the offset of `mm_struct.mm_mt.ma_root`.
    Maple(u32),
    /// Before: the offsets of `mm_struct.mm_rb` and `vm_area_struct.vm_rb`.
    RedBlack(u32, u32),
}

/// What [`Builder::unwind_user`] recorded.
#[derive(Clone, Copy, Debug)]
pub struct UserStack<'c> {
    /// `limit` words and one more (see [`CUT`]), zero after the last.
    pub frames: PointerValue<'c>,
    /// 0 for a task of 32-bit code, or without user code: then there are no frames.
    pub usable: IntValue<'c>,
    /// The memory of the walk.
    state: PointerValue<'c>,
}

/// Offsets for return addresses that uretprobes have replaced (include/linux/uprobes.h).
#[derive(Clone, Copy, Debug)]
pub struct ReplacedReturns {
    /// `mm_struct.uprobes_state.xol_area`
    pub area: u32,
    /// `xol_area.vaddr`
    pub vaddr: u32,
    /// `task_struct.utask`
    pub utask: u32,
    /// `uprobe_task.return_instances`
    pub instances: u32,
    /// `return_instance.stack`, `orig_ret_vaddr`, `next`
    pub instance: [u32; 3],
}

/// Bytes of a kernel stack, if unknown: `THREAD_SIZE` of arch/x86/include/asm/page_64_types.h without KASAN, and of
/// arch/arm64/include/asm/memory.h with pages of 4 KiB.
const THREAD_SIZE: u64 = 16 << 10;

/// Of include/linux/mm.h.
const VM_EXEC: u64 = 4;

impl CodegenCx<'_> {
    /// Builds the program [`IDENTIFY`] if the script takes stacks by tables.
    pub fn identify_files(&self) {
        let limit = self.maps.borrow().keys().find_map(|name| name.strip_prefix(UNWIND_STATES)?.parse().ok());
        let (Some(limit), Some(target)) = (limit, self.target.unwind) else { return };
        let mut e = self.begin_program(IDENTIFY, SectionDef::of(ProgramType::RawTracepoint), &[], ProgramCx::default());
        e.mark_as_subroutine(e.fun.function);
        let addr = e.load_ctx(0, U64);
        let slot = e.slot_number();
        let state = e.walk_memory(limit, slot);
        e.store(state, STATE_SLOT, 8, slot);
        e.identify(state, &target);
        e.find_page(limit, state, addr, &target);
        e.end_program(0);
    }
}

impl<'c> Builder<'_, 'c> {
    fn map_of_unwinding(&self, name: &str) -> PointerValue<'c> {
        match MAPS.iter().find(|(known, _)| *known == name) {
            Some((name, def)) => self.declare_map(name, *def),
            None => crate::bug!("{name} is one of the maps"),
        }
    }

    /// Records the user stack of the current task. `limit_given`: the script gave the limit, so that a longer stack is not cut.
    /// `interpreted`: with the frames of interpreters (see `python.rs`) instead of those of their loops.
    pub fn unwind_user(&mut self, limit: u32, limit_given: bool, interpreted: bool) -> UserStack<'c> {
        let slot = self.slot_number();
        let state = self.walk_memory(limit, slot);
        let frames = self.offset(state, SIZE);
        self.zero(frames, (limit + 1) * 8, 8);
        let zero = self.int(0);
        self.store(state, REASON, 8, zero);
        let Some(target) = self.target.unwind else { return UserStack { frames, usable: zero, state } };
        for word in [CALL, SLOT, COUNT, THIRD_AT, LOOP, LOOPS, BOUND, NOT_CODE_END, CHAINED] {
            self.store(state, word, 8, zero);
        }
        self.store(state, STATE_SLOT, 8, slot);
        let interprets = self.int(u64::from(interpreted));
        self.store(state, INTERPRETS, 8, interprets);
        let no_window = self.int(NO_WINDOW);
        self.store(state, WINDOW_AT, 8, no_window);
        let usable = self.first_registers(state, &target);
        self.if_(usable, |e| {
            // The functions below exist because the caller may have little room in its BPF stack.
            e.global(&format!("unwind_identify_{limit}"), &[slot], |e, numbers| {
                let state = e.walk_memory_of(limit, numbers);
                e.identify(state, &target);
                e.int(0)
            });
            let at_entry = e.int(u64::from(e.program.at_entry));
            e.store(state, AT_ENTRY, 8, at_entry);
            // in a function of its own, which the verifier checks once
            e.bounded_loop(&format!("unwind_turn_{limit}"), u64::from(limit) + EXTRA_ITERATIONS, &[slot], |e, _, slot| {
                e.global(&format!("unwind_step_{limit}"), slot, |e, numbers| {
                    let state = e.walk_memory_of(limit, numbers);
                    e.unwind_step(limit, state, &target)
                })
            });
            e.drop_what_is_not_code(limit, state, slot);
            if interpreted {
                e.put_python_frames(limit, state, slot, &target);
            }
            let name = format!("unwind_end_{limit}{}", if limit_given { "" } else { "_all" });
            e.global(&name, &[slot], |e, numbers| {
                let state = e.walk_memory_of(limit, numbers);
                e.end_unwinding(limit, state, limit_given);
                e.int(0)
            });
        });
        UserStack { frames, usable, state }
    }

    /// 1 if the last word is not a frame, but the reason why the stack was cut.
    pub fn was_cut(&self, stack: UserStack<'c>) -> IntValue<'c> {
        self.cmp(Cmp::Ne, self.load(stack.state, REASON, U64), self.int(0))
    }

    /// Stores the reason [`CUT_32_BIT`] after the frames that the kernel found, `bytes`, if there are any, and no more than `most`.
    pub fn mark_32_bit_stack(&mut self, stack: UserStack<'c>, bytes: IntValue<'c>, most: u32) {
        let last = self.opaque(self.sub(self.shr(bytes, self.int(3), false), self.int(1)));
        let any = self.cmp(Cmp::Ult, last, self.int(most.into()));
        self.if_(any, |e| {
            let (after, word) = (e.offset_by(stack.frames, e.mul(last, e.int(8))), e.int(CUT + CUT_32_BIT));
            e.store(after, 8, 8, word);
            let (reason, one) = (e.int(CUT_32_BIT), e.int(1));
            e.store(stack.state, REASON, 8, reason);
            let counter = e.state(std::mem::offset_of!(State, cut_stacks) + CUT_32_BIT as usize * 8);
            e.atomic_add(counter, one);
        });
    }

    /// The memory of a walk, which belongs to the program's slot of scratch memory.
    fn walk_memory(&mut self, limit: u32, slot: IntValue<'c>) -> PointerValue<'c> {
        let def = MapDef { kind: MapKind::Array, key_size: 4, value_size: python::walk_size(limit), max_entries: SCRATCH_SLOTS, flags: 0 };
        let (map, key) = (self.declare_map(&format!("{UNWIND_STATES}{limit}"), def), self.alloc_known("unwind_key", 8));
        self.store(key, 0, 4, slot);
        let state = self.call_ptr(Helper::MapLookupElem, &[map.into(), key.into()]);
        let is_null = self.cmp(Cmp::Eq, self.not_null(state), self.int(0));
        self.if_(is_null, |e| e.ret(None));
        state
    }

    fn walk_memory_of(&mut self, limit: u32, numbers: &[IntValue<'c>]) -> PointerValue<'c> {
        let Some(slot) = numbers.first() else { crate::bug!("the function gets a slot") };
        self.walk_memory(limit, *slot)
    }

    /// The registers with which the task entered the kernel, or is at the probe; 0 if they are not of 64-bit user code.
    fn first_registers(&mut self, state: PointerValue<'c>, target: &UnwindTarget) -> IntValue<'c> {
        let [ip, sp, fp, third] = target.arch.registers;
        let wanted = [(ip, IP), (sp, STACK), (fp, FRAME), (third, THIRD)];
        let (mode, bits, user) = target.arch.user_mode;
        let is_user = |e: &Self, mode: IntValue<'c>| e.cmp(Cmp::Eq, e.and(mode, e.int(bits)), e.int(user));
        if self.in_user_space() {
            for (from, to) in wanted {
                let value = self.load_ctx(from, U64);
                let value = if to == IP { self.before_stack_check(value) } else { value };
                self.store(state, to, 8, value);
            }
            for at in target.arch.first_frame.iter().filter(|at| **at <= MAX_FIRST_FRAME) {
                let value = self.load_ctx(*at, U64);
                self.store(state, REGISTERS + at, 8, value);
            }
            let mode = self.load_ctx(mode, U64);
            return is_user(self, mode);
        }
        let registers = if target.knows_registers {
            let task = self.call_ptr(Helper::GetCurrentTaskBtf, &[]);
            let registers = self.call_ptr(Helper::TaskPtRegs, &[task.into()]);
            self.addr(registers)
        } else {
            let task = self.call(Helper::GetCurrentTask, &[]);
            let addr = self.add(task, self.int(target.stack.into()));
            let stack = self.read_or_zero(Space::Kernel, addr);
            self.add(stack, self.int(THREAD_SIZE - target.arch.pt_regs))
        };
        // all at once: a read costs the same for any length
        let registers = self.forget_pointer_type(registers);
        let of_first_frame = target.arch.first_frame.iter().copied().min().unwrap_or(u32::MAX);
        let first = wanted.iter().fold(mode.min(of_first_frame), |first, (addr, _)| first.min(*addr));
        let last = wanted.iter().fold(mode, |last, (addr, _)| last.max(*addr));
        let (to, size) = (self.offset(state, REGISTERS), self.int(u64::from(last + 8 - first)));
        let registers = self.add(registers, self.int(first.into()));
        // where nothing can be read, there is no user code
        let zero = self.int(0);
        self.store(state, REGISTERS + ip - first, 8, zero);
        self.call(Helper::ProbeReadKernel, &[to.into(), size.into(), registers.into()]);
        for (from, to) in wanted {
            let value = self.load(state, REGISTERS + from - first, U64);
            self.store(state, to, 8, value);
        }
        if let Some((at, number)) = target.arch.signal_return {
            // The next instruction may be that of another function.
            let call = self.load(state, REGISTERS + at - first, U64);
            let returns = self.cmp(Cmp::Eq, call, self.int(number));
            self.store(state, CALL, 8, returns);
        }
        let mode = self.load(state, REGISTERS + mode - first, U64);
        is_user(self, mode)
    }

    /// Where the site of the program with this instruction pointer appears to be. The stack is the same there.
    pub fn before_stack_check(&mut self, ip: IntValue<'c>) -> IntValue<'c> {
        match self.program.stack_check {
            0 => ip,
            bytes => self.sub(ip, self.int(bytes)),
        }
    }

    /// A word, or 0; a failure is not reported.
    fn read_or_zero(&mut self, space: Space, addr: IntValue<'c>) -> IntValue<'c> {
        let (to, size) = (self.alloc_known("unwind_word", 8), self.int(8));
        let zero = self.int(0);
        self.store(to, 0, 8, zero);
        let helper = if space == Space::User { Helper::ProbeReadUser } else { Helper::ProbeReadKernel };
        self.call(helper, &[to.into(), size.into(), addr.into()]);
        self.load(to, 0, U64)
    }

    /// The process, and the identity of its address space: equal identities have the same mappings.
    fn identify(&mut self, state: PointerValue<'c>, target: &UnwindTarget) {
        let task = self.call(Helper::GetCurrentTask, &[]);
        let mm = self.add(task, self.int(target.mm.into()));
        let mm = self.read_or_zero(Space::Kernel, mm);
        self.store(state, MM, 8, mm);
        let members = [target.start_code, target.start_stack, target.exec_vm];
        let (first, last) = members.into_iter().fold((u32::MAX, 0), |(a, b), m| (a.min(m), b.max(m)));
        let [code, stack, exec] = if last + 8 - first <= NODE_SIZE {
            // they are neighbors
            let (to, size, at) = (self.offset(state, NODE), self.int(u64::from(last + 8 - first)), self.add(mm, self.int(first.into())));
            self.call(Helper::ProbeReadKernel, &[to.into(), size.into(), at.into()]);
            members.map(|member| self.load(state, NODE + member - first, U64))
        } else {
            members.map(|member| {
                let at = self.add(mm, self.int(member.into()));
                self.read_or_zero(Space::Kernel, at)
            })
        };
        let mix = |e: &Self, a: IntValue<'c>, b: IntValue<'c>| {
            let m = e.mul(e.xor(a, b), e.int(GOLDEN));
            e.xor(m, e.shr(m, e.int(29), false))
        };
        if let Some(task_size) = target.task_size {
            let at = self.add(mm, self.int(task_size.into()));
            let size = self.read_or_zero(Space::Kernel, at);
            let mask = self.sub(size, self.int(1));
            self.store(state, MASK, 8, mask);
        }
        let ids = self.ns_pid_tgid();
        self.store(state, MISS_IDS, 8, ids);
        let generation = self.mappings_generation(ids);
        let tag = mix(self, mix(self, mix(self, mix(self, mm, code), stack), exec), generation);
        self.store(state, TAG, 8, tag);
    }

    /// See [`GENERATIONS`].
    fn mappings_generation(&mut self, ids: IntValue<'c>) -> IntValue<'c> {
        let (found, zero) = (self.scalar_slot(), self.int(0));
        self.store(found, 0, 8, zero);
        let pid = self.shr(ids, self.int(32), false);
        let index = self.and(pid, self.int(u64::from(MAX_GENERATIONS) - 1));
        let index = self.add(index, self.int(GENERATIONS.into()));
        let (map, key) = (self.map_of_unwinding(TABLE), self.alloc_known("unwind_key", 8));
        self.store(key, 0, 4, index);
        let element = self.call_ptr(Helper::MapLookupElem, &[map.into(), key.into()]);
        let there = self.not_null(element);
        self.if_(there, |e| {
            let generation = e.load(element, 0, U64);
            e.store(found, 0, 8, generation);
        });
        self.load(found, 0, U64)
    }

    /// Stores the reason after the last frame if the walk was cut.
    fn end_unwinding(&mut self, limit: u32, state: PointerValue<'c>, limit_given: bool) {
        let reason = self.load(state, REASON, U64);
        let word = self.scalar_slot();
        self.store(word, 0, 8, reason);
        // A task that exits has released its memory.
        let released = self.cmp(Cmp::Eq, self.load(state, MM, U64), self.int(0));
        let released = self.and(released, self.cmp(Cmp::Eq, reason, self.int(CUT_NOT_CODE)));
        self.if_(released, |e| {
            let unreadable = e.int(CUT_UNREADABLE);
            e.store(word, 0, 8, unreadable);
        });
        let reason = self.load(word, 0, U64);
        let count = self.load(state, COUNT, U64);
        let full = self.cmp(Cmp::Uge, count, self.int(limit.into()));
        if limit_given {
            // all requested frames are there
            self.if_(full, |e| {
                let zero = e.int(0);
                e.store(word, 0, 8, zero);
            });
        } else {
            let more = self.and(full, self.cmp(Cmp::Ne, self.load(state, IP, U64), self.int(0)));
            let more = self.and(more, self.cmp(Cmp::Eq, reason, self.int(0)));
            self.if_(more, |e| {
                let limit = e.int(CUT_LIMIT);
                e.store(word, 0, 8, limit);
            });
        }
        let reason = self.load(word, 0, U64);
        self.store(state, REASON, 8, reason);
        let cut = self.cmp(Cmp::Ne, reason, self.int(0));
        self.if_(cut, |e| {
            let counters = e.state(std::mem::offset_of!(State, cut_stacks));
            let number = e.and(e.opaque(reason), e.int(CUT_REASONS as u64 - 1));
            let counter = e.offset_by(counters, e.mul(number, e.int(8)));
            let one = e.int(1);
            e.atomic_add(counter, one);
            let count = e.opaque(count);
            let inside = e.cmp(Cmp::Ule, count, e.int(limit.into()));
            e.if_(inside, |e| {
                let ptr = e.offset_by(state, e.mul(count, e.int(8)));
                let word = e.add(reason, e.int(CUT));
                e.store(ptr, SIZE, 8, word);
            });
        });
    }

    /// Records a frame, and steps to its caller's; 1 if there is none.
    fn unwind_step(&mut self, limit: u32, state: PointerValue<'c>, target: &UnwindTarget) -> IntValue<'c> {
        let count = self.load(state, COUNT, U64);
        let full = self.cmp(Cmp::Uge, count, self.int(limit.into()));
        self.if_(full, |e| e.leave());
        let ip = self.load(state, IP, U64);
        let is_zero = self.cmp(Cmp::Eq, ip, self.int(0));
        self.if_(is_zero, |e| {
            // a return address of 0 is the end, but a signal may interrupt a jump to 0
            let interrupted = e.cmp(Cmp::Eq, e.load(state, CALL, U64), e.int(0));
            let interrupted = e.and(interrupted, e.cmp(Cmp::Ne, count, e.int(0)));
            e.if_(interrupted, |e| e.stop(state, CUT_NOT_CODE));
            e.leave();
        });
        let index = self.frame_index(count, limit);
        let ptr = self.offset_by(state, self.mul(index, self.int(8)));
        self.store(ptr, SIZE, 8, ip);
        let next = self.add(count, self.int(1));
        self.store(state, COUNT, 8, next);
        let addr = self.sub(ip, self.load(state, CALL, U64));
        let rule = self.cached(ADDRESSES, state, addr, |e| {
            let rule = e.search_rule(limit, state, (addr, count), target);
            e.add(rule, e.int(1))
        });
        let rule = self.sub(rule, self.int(1));
        let flags = self.apply_rule(limit, state, count, (rule, ip));
        match target.thread {
            Some(_) => self.note_loop(limit, state, ptr, flags, addr),
            None => self.note_left_out(state, flags),
        }
        self.int(0)
    }

    /// The index of a frame, which is less than the limit, with a bound that the verifier knows. A comparison would be a branch, and
    /// the verifier would check the rest of the step for the last frame separately.
    fn frame_index(&self, index: IntValue<'c>, limit: u32) -> IntValue<'c> {
        self.and(self.opaque(index), self.int(u64::from(limit.next_power_of_two()) - 1))
    }

    /// The number of the rule for an address, by its page; leaves the step if there is none.
    fn search_rule(
        &mut self,
        limit: u32,
        state: PointerValue<'c>,
        (addr, count): (IntValue<'c>, IntValue<'c>),
        target: &UnwindTarget,
    ) -> IntValue<'c> {
        let page = self.shr(addr, self.int(PAGE_SHIFT), false);
        let value = self.cached(PAGES, state, page, |e| {
            e.find_page(limit, state, addr, target);
            let value = e.load(state, VALUE, U64);
            if target.vm_flags.is_none() {
                return value;
            }
            let mapped = e.cmp(Cmp::Ne, e.load(state, REASON, U64), e.int(CUT_NOT_CODE));
            let executable = e.and(e.load(state, VM_FLAGS, U64), e.int(VM_EXEC));
            let is_data = e.and(mapped, e.cmp(Cmp::Eq, executable, e.int(0)));
            e.choose(
                is_data,
                |e| {
                    let zero = e.int(0);
                    e.store(state, REASON, 8, zero);
                    e.int(NO_FILE | NOT_EXECUTABLE)
                },
                |_| value,
            )
        });
        let in_file = self.and(value, self.int(IN_FILE));
        let elsewhere = self.cmp(Cmp::Eq, in_file, self.int(0));
        self.if_(elsewhere, |e| {
            if let Some(of) = target.replaced {
                // if it is found, this was not a frame
                let again = e.find_replaced(limit, state, &of);
                e.if_(again, |e| {
                    let zero = e.int(0);
                    e.store(state, REASON, 8, zero);
                    e.store(state, COUNT, 8, count);
                    e.continue_with_caller();
                });
            }
            let missing = e.cmp(Cmp::Eq, value, e.int(0));
            let unmapped = e.and(missing, e.cmp(Cmp::Eq, e.load(state, REASON, U64), e.int(CUT_NOT_CODE)));
            let data = e.cmp(Cmp::Ne, e.and(value, e.int(NOT_EXECUTABLE)), e.int(0));
            let not_code = e.or(unmapped, data);
            // where the task runs is the first frame, wherever that is
            let not_code = e.and(not_code, e.cmp(Cmp::Ne, count, e.int(0)));
            e.if_(not_code, |e| e.note_not_code(state, count));
            e.if_(missing, |e| e.leave());
            e.follow_frame_pointer(limit, count, state);
        });
        let rows = self.page_rows(limit, state, count, value);
        self.find_row(rows, addr)
    }

    /// Notes that the frame with this index is not in code.
    fn note_not_code(&mut self, state: PointerValue<'c>, index: IntValue<'c>) {
        let is_first = self.cmp(Cmp::Ne, self.load(state, NOT_CODE_END, U64), index);
        self.if_(is_first, |e| e.store(state, NOT_CODE_FIRST, 8, index));
        let end = self.add(index, self.int(1));
        self.store(state, NOT_CODE_END, 8, end);
    }

    /// Drops the last frames if their addresses are not in code: they are not return addresses, as after a function in
    /// assembly that changes to another stack. Such frames remain if others in code follow, because a just-in-time
    /// compiler may make its code writable, and not executable, while it is on the stack.
    fn drop_what_is_not_code(&mut self, limit: u32, state: PointerValue<'c>, slot: IntValue<'c>) {
        let (end, count) = (self.load(state, NOT_CODE_END, U64), self.load(state, COUNT, U64));
        let last = self.and(self.cmp(Cmp::Ne, end, self.int(0)), self.cmp(Cmp::Eq, end, count));
        self.if_(last, |e| {
            e.global(&format!("unwind_drop_{limit}"), &[slot], |e, numbers| {
                let state = e.walk_memory_of(limit, numbers);
                let reason = e.int(CUT_NOT_CODE);
                e.store(state, REASON, 8, reason);
                e.bounded_loop(&format!("unwind_drop_turn_{limit}"), u64::from(limit), &[slot_of(numbers)], |e, _, slot| {
                    e.global(&format!("unwind_drop_one_{limit}"), slot, |e, numbers| {
                        let state = e.walk_memory_of(limit, numbers);
                        e.drop_last_frame(limit, state)
                    })
                });
                e.int(0)
            });
        });
    }

    /// Drops the last frame; 1 if it is in code.
    fn drop_last_frame(&mut self, limit: u32, state: PointerValue<'c>) -> IntValue<'c> {
        let count = self.load(state, COUNT, U64);
        let done = self.cmp(Cmp::Ule, count, self.load(state, NOT_CODE_FIRST, U64));
        self.if_(done, |e| e.leave());
        let last = self.sub(count, self.int(1));
        self.store(state, COUNT, 8, last);
        let index = self.frame_index(last, limit);
        let (ptr, zero) = (self.offset_by(state, self.mul(index, self.int(8))), self.int(0));
        self.store(ptr, SIZE, 8, zero);
        self.int(0)
    }

    /// The cached value for the current address space, or else the result of `find`, which is then cached unless it is
    /// 0.
    fn cached(
        &mut self,
        cache: u32,
        state: PointerValue<'c>,
        of: IntValue<'c>,
        find: impl FnOnce(&mut Self) -> IntValue<'c>,
    ) -> IntValue<'c> {
        let tag = self.load(state, TAG, U64);
        let id = self.mul(self.xor(tag, of), self.int(GOLDEN));
        let id = self.xor(id, self.shr(id, self.int(32), false));
        let index = self.and(id, self.int((1 << CACHE_SHIFT) - 1));
        let index = self.add(index, self.int(cache.into()));
        let entry = self.element_at(TABLE, index);
        let (known, value, check) = (self.load(entry, 0, U64), self.load(entry, 8, U64), self.load(entry, 16, U64));
        // hidden from LLVM, which would make two branches of it
        let differences = self.opaque(self.or(self.xor(known, id), self.xor(self.xor(known, value), check)));
        let hit = self.cmp(Cmp::Eq, differences, self.int(0));
        self.choose(
            hit,
            |_| value,
            |e| {
                let value = find(e);
                let known = e.cmp(Cmp::Ne, value, e.int(0));
                e.if_(known, |e| {
                    e.store(entry, 0, 8, id);
                    e.store(entry, 8, 8, value);
                    let check = e.xor(id, value);
                    e.store(entry, 16, 8, check);
                });
                value
            },
        )
    }

    /// Replaces the kernel's trampoline by the return address that a uretprobe saved; 1 if it does.
    fn find_replaced(&mut self, limit: u32, state: PointerValue<'c>, of: &ReplacedReturns) -> IntValue<'c> {
        /// The maximum number of pending returns of a thread: `MAX_URETPROBE_DEPTH` of include/linux/uprobes.h.
        const DEPTH: u64 = 64;
        let slot = self.load(state, STATE_SLOT, U64);
        self.global(&format!("unwind_replaced_{limit}"), &[slot], |e, numbers| {
            let state = e.walk_memory_of(limit, numbers);
            let read = |e: &mut Self, base: IntValue<'c>, offset: u32| {
                let at = e.add(base, e.int(offset.into()));
                e.read_or_zero(Space::Kernel, at)
            };
            let page = |e: &Self, addr: IntValue<'c>| e.shr(addr, e.int(PAGE_SHIFT), false);
            let found = e.scalar_slot();
            let zero = e.int(0);
            e.store(found, 0, 8, zero);
            let mm = e.load(state, MM, U64);
            let area = read(e, mm, of.area);
            let trampoline = read(e, area, of.vaddr);
            let ip = e.load(state, IP, U64);
            let there = e.and(e.cmp(Cmp::Ne, area, zero), e.cmp(Cmp::Eq, page(e, ip), page(e, trampoline)));
            e.if_(there, |e| {
                let task = e.call(Helper::GetCurrentTask, &[]);
                let utask = read(e, task, of.utask);
                let first = read(e, utask, of.instances);
                e.store(state, NODE, 8, first);
                e.bounded_loop(&format!("unwind_returns_{limit}"), DEPTH, &[slot_of(numbers), trampoline], |e, _, numbers| {
                    e.global(&format!("unwind_return_{limit}"), numbers, |e, numbers| {
                        let state = e.walk_memory_of(limit, numbers);
                        let Some(&trampoline) = numbers.get(1) else { crate::bug!("the function gets an address") };
                        e.try_replaced(state, trampoline, of.instance)
                    })
                });
                let real = e.cmp(Cmp::Ne, e.load(state, IP, U64), ip);
                e.store(found, 0, 8, real);
            });
            e.load(found, 0, U64)
        })
    }

    /// Takes the original address of the pending return at [`NODE`] if it is that of the current frame, or else moves to
    /// the next return; 1 if there are no others to try.
    fn try_replaced(&mut self, state: PointerValue<'c>, trampoline: IntValue<'c>, [stack, original, next]: [u32; 3]) -> IntValue<'c> {
        let read = |e: &mut Self, base: IntValue<'c>, offset: u32| {
            let at = e.add(base, e.int(offset.into()));
            e.read_or_zero(Space::Kernel, at)
        };
        let page = |e: &Self, addr: IntValue<'c>| e.shr(addr, e.int(PAGE_SHIFT), false);
        let this = self.load(state, NODE, U64);
        let is_zero = self.cmp(Cmp::Eq, this, self.int(0));
        self.if_(is_zero, |e| e.leave());
        let (at, original) = (read(self, this, stack), read(self, this, original));
        // several may have replaced one address: all but one hold the trampoline's
        let same = self.cmp(if self.links() { Cmp::Uge } else { Cmp::Eq }, at, self.load(state, SLOT, U64));
        let real = self.cmp(Cmp::Ne, page(self, original), page(self, trampoline));
        let is_it = self.and(same, real);
        self.if_(is_it, |e| {
            e.store(state, IP, 8, original);
            e.leave();
        });
        let next = read(self, this, next);
        self.store(state, NODE, 8, next);
        self.int(0)
    }

    /// Does a call put the return address into a register?
    fn links(&self) -> bool {
        self.target.unwind.is_some_and(|target| target.arch.links)
    }

    /// Ends the walk.
    fn stop(&mut self, state: PointerValue<'c>, reason: u64) {
        let reason = self.int(reason);
        self.store(state, REASON, 8, reason);
        self.leave();
    }

    fn leave(&mut self) {
        let one = self.int(1);
        self.ret(Some(one));
    }

    /// Continues with the caller: the next iteration records it.
    fn continue_with_caller(&mut self) {
        let zero = self.int(0);
        self.ret(Some(zero));
    }
}
