//! Memory: temporaries, loads and stores, and reads from other address spaces.

use inkwell::AtomicOrdering;
use inkwell::AtomicRMWBinOp;
use inkwell::values::{BasicValue, BasicValueEnum, InstructionOpcode, IntValue, PointerValue};

use super::shared::{ARGUMENTS_SECTION, BUSY_SECTION, LoadConstants, MAX_CPUS, SCRATCH_SLOTS, START_SECTION, STATE_SECTION, State};
use super::{Builder, Cmp, Helper, Mark, Operand, Repr, ok};
use crate::bug;
use crate::types::{Int, Space, Type};

/// Size of the smallest page in bytes.
const PAGE: u64 = 4096;
/// Maximum number of loads or stores that a copy is expanded to; larger copies use a helper.
const INLINE_OPS: u32 = 16;

pub(super) const U64: Int = Int { bytes: 8, signed: false };

impl<'c> Builder<'_, 'c> {
    // --- allocation ---------------------------------------------------------------------------------------------

    /// Allocates `size` bytes of uninitialized memory, aligned to eight: on the stack if it is small, else in the scratch
    /// arena.
    pub fn alloc(&mut self, size: u32) -> PointerValue<'c> {
        let size = size.max(1).next_multiple_of(8);
        if size <= self.options.on_stack_limit.next_multiple_of(8) {
            let class = size.next_power_of_two();
            if let Some(at) = self.fun.temporaries.reuse(class) {
                return at;
            }
            if self.fun.temporaries.fits(class, self.options.stack_limits.max_temporary_bytes) {
                let ptr = self.in_entry(|e| {
                    let ty = e.i64t().array_type(class / 8);
                    ok(e.b.build_alloca(ty, ""))
                });
                self.fun.temporaries.add(ptr, class);
                return ptr;
            }
        }
        let offset = self.alloc_scratch(size);
        self.scratch_address(offset)
    }

    /// Computes the same address again at its use: an address that is kept since its allocation takes eight bytes of
    /// stack, and LLVM does not rematerialize an address.
    pub fn rematerialize(&mut self, ptr: PointerValue<'c>) -> PointerValue<'c> {
        match self.fun.temporaries.place_of(ptr) {
            Some(offset) => self.scratch_address(offset),
            None => ptr,
        }
    }

    /// Keeps a number in scratch memory until it is used.
    pub fn spill(&mut self, op: Operand<'c>) -> Operand<'c> {
        let Repr::Reg(v) = op.repr else { return op };
        if v.is_const() {
            return op;
        }
        let offset = self.alloc_scratch(8);
        let ptr = self.scratch_address(offset);
        let bytes = op.ty.as_int().map_or(8, |i| i.bytes);
        self.store(ptr, 0, bytes, v);
        Operand::mem(op.ty, ptr)
    }

    /// Allocates scratch memory until the end of the program. Returns its offset for [`Builder::scratch_at`].
    pub fn alloc_scratch(&mut self, size: u32) -> u32 {
        self.fun.temporaries.scratch(size)
    }

    /// The address of an offset in scratch memory, computed here.
    pub fn scratch_at(&mut self, offset: u32) -> PointerValue<'c> {
        self.fun.temporaries.scratch_used = true;
        let slot = self.fun.slot;
        let base = ok(self.b.build_load(self.ptrt(), slot, "scratch"));
        if let Some(load) = base.as_instruction_value()
            && load.set_volatile(true).is_err()
        {
            bug!("a load can be volatile");
        }
        self.offset(base.into_pointer_value(), offset)
    }

    /// The current state of the allocations.
    pub fn mark(&self) -> Mark {
        self.fun.temporaries.mark()
    }

    /// Frees all memory that was allocated since the mark.
    pub fn release(&mut self, mark: &Mark) {
        self.fun.temporaries.release(mark);
    }

    /// Runs `body` and frees its temporaries.
    pub fn temporarily<T>(&mut self, body: impl FnOnce(&mut Self) -> T) -> T {
        let mark = self.mark();
        let result = body(self);
        self.release(&mark);
        result
    }

    /// Limits the stack for temporaries allocated after this, because called functions need some, too.
    pub fn spare_stack(&mut self, bytes: u32) {
        let budget = self.options.stack_limits.max_temporary_bytes;
        self.fun.temporaries.use_stack_up_to(budget.saturating_sub(bytes));
    }

    /// Allocates memory that [`Builder::release`] does not free; see also [`Builder::alloc_known`]. At most 32 bytes.
    pub fn alloc_kept(&mut self, size: u32) -> PointerValue<'c> {
        let words = size.max(1).div_ceil(8);
        self.fun.temporaries.use_stack(words * 8);
        self.in_entry(|e| {
            let ty = e.i64t().array_type(words);
            ok(e.b.build_alloca(ty, ""))
        })
    }

    pub(super) fn entry_alloca(&mut self) -> PointerValue<'c> {
        self.in_entry(|e| ok(e.b.build_alloca(e.i64t(), "")))
    }

    /// Memory for a scalar variable, which LLVM turns into a register.
    pub fn scalar_slot(&mut self) -> PointerValue<'c> {
        self.entry_alloca()
    }

    /// Adds code to the entry block, where allocas must be: LLVM's back end does not support dynamic ones.
    fn in_entry<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let here = self.current_block();
        let entry = self.fun.entry;
        self.b.position_at_end(entry);
        let value = f(self);
        self.b.position_at_end(here);
        value
    }

    /// Claims a free slot of this CPU's scratch arena. A probe can fire inside a probe, and a task can be preempted in one, so
    /// an exchange claims the slot, not a counter.
    pub(super) fn acquire_scratch(&mut self, after: inkwell::basic_block::BasicBlock<'c>) {
        let map = self.scratch_map();
        let key = self.entry_alloca_in_entry_tail();
        let cpu = self.cpu();
        let first = self.mul(cpu, self.int(SCRATCH_SLOTS.into()));
        let (exit, slot) = (self.fun.exit, self.fun.slot);
        for i in 0..SCRATCH_SLOTS {
            let index = self.add(first, self.int(i.into()));
            self.store(key, 0, 4, index);
            let elem = self.call_ptr(Helper::MapLookupElem, &[map.into(), key.into()]);
            let (there, next, got) = (self.new_block("there"), self.new_block("next"), self.new_block("got"));
            let found = ok(self.b.build_is_not_null(elem, ""));
            ok(self.b.build_conditional_branch(found, there, next));
            self.b.position_at_end(there);
            // The number of the slot, from 1, marks it as claimed: see [`Builder::slot_number`].
            let taken = self.add(index, self.int(1));
            if self.target.atomic_fetch.holds() {
                let old = ok(self.b.build_atomicrmw(AtomicRMWBinOp::Xchg, elem, taken, AtomicOrdering::SequentiallyConsistent));
                let free = self.cmp_bit(Cmp::Eq, old, self.int(0));
                ok(self.b.build_conditional_branch(free, got, next));
                self.b.position_at_end(got);
            } else {
                // Kernels without an atomic exchange run programs with preemption disabled. Only an interrupt can come in
                // between, and it frees the slot before it returns.
                let old = self.load_volatile(elem, U64);
                let free = self.cmp_bit(Cmp::Eq, old, self.int(0));
                ok(self.b.build_conditional_branch(free, got, next));
                self.b.position_at_end(got);
                self.store_volatile(elem, taken);
            }
            ok(self.b.build_store(slot, elem));
            ok(self.b.build_unconditional_branch(after));
            self.b.position_at_end(next);
        }
        self.count_missed();
        ok(self.b.build_unconditional_branch(exit));
    }

    /// Returns if a program of a trampoline is already running on this CPU, on kernels that do not check this: a function that
    /// a helper calls would lead back to the helper endlessly. The result is the CPU's mark, which must be cleared at the exit.
    /// Such kernels run these programs with preemption disabled, so only an interrupt can come in between, and it clears the
    /// mark before it returns.
    pub(super) fn enter_alone(&mut self) -> PointerValue<'c> {
        let marks = self.data_global("busy", BUSY_SECTION, MAX_CPUS * 8);
        // This helper cannot have a trampoline: see `system/kernel/trampolines.rs`.
        let cpu = self.cpu();
        let cpu = self.opaque(cpu);
        let cpu = self.and(cpu, self.int(u64::from(MAX_CPUS) - 1));
        let mark = self.offset_by(marks, self.mul(cpu, self.int(8)));
        let now = self.load_volatile(mark, U64);
        let busy = self.cmp(Cmp::Ne, now, self.int(0));
        self.if_(busy, |e| {
            e.count_missed();
            let nothing = e.int(0);
            ok(e.b.build_return(Some(&nothing)));
            let dead = e.new_block("dead");
            e.b.position_at_end(dead);
        });
        let one = self.int(1);
        self.store_volatile(mark, one);
        mark
    }

    /// The entry block already ends in a branch, so the alloca of the key must precede it.
    fn entry_alloca_in_entry_tail(&mut self) -> PointerValue<'c> {
        let here = self.current_block();
        let entry = self.fun.entry;
        match entry.get_first_instruction() {
            Some(first) => self.b.position_before(&first),
            None => self.b.position_at_end(entry),
        }
        let key = ok(self.b.build_alloca(self.i64t(), "key"));
        self.b.position_at_end(here);
        key
    }

    pub(super) fn release_scratch(&mut self) {
        let slot = self.fun.slot;
        let base = ok(self.b.build_load(self.ptrt(), slot, "")).into_pointer_value();
        let taken = self.not_null(base);
        let zero = self.int(0);
        self.if_(taken, |e| {
            let store = ok(e.b.build_store(base, zero));
            // A plain store would suffice on x86, and BPF has no release store before v4; volatile keeps it last.
            if store.set_volatile(true).is_err() {
                bug!("a store can be volatile");
            }
        });
    }

    // --- addresses, loads, stores -------------------------------------------------------------------------------

    /// `ptr` plus a constant.
    pub fn offset(&self, ptr: PointerValue<'c>, bytes: u32) -> PointerValue<'c> {
        if bytes == 0 {
            return ptr;
        }
        let by = self.int(bytes.into());
        self.offset_by(ptr, by)
    }

    /// `ptr` plus a bounded register.
    pub fn offset_by(&self, ptr: PointerValue<'c>, by: IntValue<'c>) -> PointerValue<'c> {
        // SAFETY: a GEP only computes an address; the verifier decides whether the program can use it.
        ok(unsafe { self.b.build_gep(self.llcx.i8_type(), ptr, &[by], "") })
    }

    /// An integer from memory, extended.
    pub fn load(&self, ptr: PointerValue<'c>, offset: u32, int: Int) -> IntValue<'c> {
        let at = self.offset(ptr, offset);
        let v = ok(self.b.build_load(self.width(int.bytes), at, "")).into_int_value();
        self.extend(v, int)
    }

    /// Loads an integer from the context.
    pub fn load_ctx(&self, offset: u32, int: Int) -> IntValue<'c> {
        self.load_typed(self.own_ctx(), offset, int)
    }

    /// Loads a pointer of known type from the context.
    pub fn load_ctx_pointer(&self, offset: u32) -> PointerValue<'c> {
        let ptr = self.offset(self.own_ctx(), offset);
        ok(self.b.build_load(self.ptrt(), ptr, "")).into_pointer_value()
    }

    /// A copy of the context for a single load. LLVM would compute `context + offset` once for several loads, and the verifier
    /// rejects loads from such a register.
    fn own_ctx(&self) -> PointerValue<'c> {
        let ty = self.ptrt().fn_type(&[self.ptrt().into()], false);
        let asm = self.llcx.create_inline_asm(ty, String::new(), "=r,0".into(), true, false, None, false);
        let call = ok(self.b.build_indirect_call(ty, asm, &[self.ctx().into()], ""));
        match call.try_as_basic_value().basic() {
            Some(BasicValueEnum::PointerValue(p)) => p,
            _ => bug!("an asm of a pointer gives a pointer"),
        }
    }

    /// Loads an integer from memory whose type the verifier knows (the context, a task). Such loads must remain as they are:
    /// one for each member, at constant offsets.
    pub fn load_typed(&self, ptr: PointerValue<'c>, offset: u32, int: Int) -> IntValue<'c> {
        let at = self.offset(ptr, offset);
        let v = ok(self.b.build_load(self.width(int.bytes), at, ""));
        if let Some(i) = v.as_instruction_value()
            && i.set_volatile(true).is_err()
        {
            bug!("a load can be volatile");
        }
        // LLVM does not merge a value that goes through asm with the load of another branch, whose address would depend on the
        // branch.
        self.opaque(self.extend(v.into_int_value(), int))
    }

    pub(super) fn extend(&self, v: IntValue<'c>, int: Int) -> IntValue<'c> {
        match (int.bytes, int.signed) {
            (8, _) => v,
            (_, true) => ok(self.b.build_int_s_extend(v, self.i64t(), "")),
            (_, false) => ok(self.b.build_int_z_extend(v, self.i64t(), "")),
        }
    }

    /// Stores the low `bytes` of a register.
    pub fn store(&self, ptr: PointerValue<'c>, offset: u32, bytes: u8, value: IntValue<'c>) {
        let at = self.offset(ptr, offset);
        ok(self.b.build_store(at, self.narrow(value, bytes)));
    }

    /// Loads a pointer.
    pub fn load_ptr(&self, ptr: PointerValue<'c>, offset: u32) -> PointerValue<'c> {
        let at = self.offset(ptr, offset);
        ok(self.b.build_load(self.ptrt(), at, "")).into_pointer_value()
    }

    /// Stores a pointer on the stack, where the verifier still knows its type when it is loaded.
    pub fn store_ptr(&self, ptr: PointerValue<'c>, offset: u32, value: PointerValue<'c>) {
        let at = self.offset(ptr, offset);
        ok(self.b.build_store(at, value));
    }

    /// `*ptr += value`, atomically.
    pub fn atomic_add(&self, ptr: PointerValue<'c>, value: IntValue<'c>) {
        // For a constant 0, LLVM uses another operation, which kernels support only together with fetching atomics.
        let value = if self.target.atomic_fetch.holds() { value } else { self.opaque(value) };
        ok(self.b.build_atomicrmw(AtomicRMWBinOp::Add, ptr, value, AtomicOrdering::Monotonic));
    }

    /// Atomically replaces `old` by `new` and returns the previous value. Only for kernels with
    /// [`TargetFeatures::atomic_fetch`](super::TargetFeatures).
    pub fn compare_exchange(&self, ptr: PointerValue<'c>, old: IntValue<'c>, new: IntValue<'c>) -> IntValue<'c> {
        let order = AtomicOrdering::SequentiallyConsistent;
        let both = ok(self.b.build_cmpxchg(ptr, old, new, order, order));
        ok(self.b.build_extract_value(both, 0, "")).into_int_value()
    }

    /// Zeroes `size` bytes at an address aligned to `align`.
    pub fn zero(&mut self, ptr: PointerValue<'c>, size: u32, align: u32) {
        if size == 0 {
            return;
        }
        if size / align.max(1) <= INLINE_OPS {
            let byte = self.llcx.i8_type().const_zero();
            ok(self.b.build_memset(ptr, align, byte, self.int(size.into())));
        } else {
            // A failed read zeroes its destination: kernel/trace/bpf_trace.c, bpf_probe_read_kernel_common().
            let (n, null) = (self.int(size.into()), self.int(0));
            self.call(Helper::ProbeReadKernel, &[ptr.into(), n.into(), null.into()]);
        }
    }

    /// Copies readable memory.
    pub fn copy(&mut self, to: PointerValue<'c>, from: PointerValue<'c>, size: u32, align: u32) {
        if size == 0 || to == from {
            return;
        }
        let align = align.min(self.aligned(from)).min(self.aligned(to));
        if size.div_ceil(align.max(1)) <= INLINE_OPS {
            if let Err(e) = self.b.build_memcpy(to, align, from, align, self.int(size.into())) {
                bug!("memcpy: {e}");
            }
        } else {
            let n = self.int(size.into());
            self.call(Helper::ProbeReadKernel, &[to.into(), n.into(), from.into()]);
        }
    }

    /// Writes constant bytes.
    pub fn store_bytes(&mut self, to: PointerValue<'c>, bytes: &[u8]) {
        if bytes.len() > 64 {
            let from = self.text(bytes);
            self.copy(to, from, bytes.len() as u32, 1);
            return;
        }
        let mut pos = 0;
        while pos < bytes.len() {
            let n = [8usize, 4, 2, 1].into_iter().find(|n| pos + n <= bytes.len() && pos % n == 0).unwrap_or(1);
            let mut word = [0u8; 8];
            word[..n].copy_from_slice(&bytes[pos..pos + n]);
            let value = self.int(u64::from_le_bytes(word));
            self.store(to, pos as u32, n as u8, value);
            pos += n;
        }
    }

    // --- other address spaces -----------------------------------------------------------------------------------

    /// Can this program sleep? The first use makes it sleepable.
    fn may_sleep(&mut self) -> bool {
        let f = &mut self.fun;
        f.sleeps |= f.can_sleep;
        f.can_sleep
    }

    /// Reads `size` bytes at `addr`; if this fails, they are zero.
    pub fn read(&mut self, space: Space, to: PointerValue<'c>, size: u32, addr: IntValue<'c>) {
        if size == 0 {
            return;
        }
        let n = self.int(size.into());
        self.read_bounded(space, to, n, addr);
    }

    /// The same with a size that has a known bound.
    pub fn read_bounded(&mut self, space: Space, to: PointerValue<'c>, size: IntValue<'c>, addr: IntValue<'c>) {
        let helper = match space {
            Space::User if self.may_sleep() => Helper::CopyFromUser,
            Space::User => Helper::ProbeReadUser,
            Space::Kernel | Space::Unknown | Space::Bpf => Helper::ProbeReadKernel,
        };
        let r = self.call(helper, &[to.into(), size.into(), addr.into()]);
        self.check(helper, r, 2);
    }

    /// The address of a value, and its address space. Integers are addresses in the probe's space.
    pub fn address(&self, op: &Operand<'c>) -> (IntValue<'c>, Space) {
        match (op.repr, &op.ty) {
            (Repr::At(addr, space), _) => (addr, space),
            (Repr::Mem(ptr, _), _) => (self.addr(ptr), Space::Bpf),
            (Repr::Reg(v), Type::Ptr(_, space)) if *space != Space::Unknown => (v, *space),
            (Repr::Reg(v), _) => (v, self.program.space),
            (Repr::None, _) => (self.int(0), self.program.space),
        }
    }

    /// Reads a string of at most `cap` bytes, including the NUL. Returns its length including the NUL, or a negative error.
    pub fn read_str(&mut self, space: Space, to: PointerValue<'c>, cap: u32, addr: IntValue<'c>) -> IntValue<'c> {
        let n = self.int(cap.into());
        self.read_str_bounded(space, to, n, addr)
    }

    /// The same with a capacity that has a known bound.
    pub fn read_str_bounded(&mut self, space: Space, to: PointerValue<'c>, cap: IntValue<'c>, addr: IntValue<'c>) -> IntValue<'c> {
        let helper = match space {
            Space::User => Helper::ProbeReadUserStr,
            Space::Kernel | Space::Unknown | Space::Bpf => Helper::ProbeReadKernelStr,
        };
        let r = self.call(helper, &[to.into(), cap.into(), addr.into()]);
        let r = if space == Space::User && self.may_sleep() {
            // Text that was never accessed may not be resident: make it resident and read it again.
            let failed = self.cmp(Cmp::Slt, r, self.int(0));
            self.choose(
                failed,
                |e| {
                    e.temporarily(|e| {
                        let byte = e.alloc(8);
                        let one = e.int(1);
                        let next_page = e.add(e.or(addr, e.int(PAGE - 1)), one);
                        e.call(Helper::CopyFromUser, &[byte.into(), one.into(), addr.into()]);
                        e.call(Helper::CopyFromUser, &[byte.into(), one.into(), next_page.into()]);
                    });
                    e.call(helper, &[to.into(), cap.into(), addr.into()])
                },
                |_| r,
            )
        } else {
            r
        };
        self.check(helper, r, 2);
        r
    }

    /// Reads an integer.
    pub fn read_int(&mut self, space: Space, addr: IntValue<'c>, int: Int) -> IntValue<'c> {
        self.temporarily(|e| {
            let tmp = e.alloc(8);
            e.read(space, tmp, int.bytes.into(), addr);
            e.load(tmp, 0, int)
        })
    }

    /// Reads a string at `addr` into memory of `cap` bytes and one for the NUL. The rest is zeroed, so it can be a key.
    pub fn read_string(&mut self, space: Space, addr: IntValue<'c>, cap: u32) -> Operand<'c> {
        let to = self.alloc(cap + 1);
        if self.scope.pads_strings {
            self.zero(to, (cap + 1).next_multiple_of(8), 8);
        }
        let len = self.read_str(space, to, cap + 1, addr);
        Operand { ty: Type::Str(cap), repr: Repr::Mem(to, Some(len)) }
    }

    /// Reads the text in an array of `cap` bytes, and nothing after it: like [`Builder::read_str`], with the result `cap + 1`
    /// if it has no NUL. `requested` is the number of bytes, including the NUL, that the script requests. `to` has room for `cap`
    /// bytes; the caller adds a NUL after them.
    pub fn read_text(
        &mut self,
        space: Space,
        to: PointerValue<'c>,
        cap: u32,
        requested: Option<IntValue<'c>>,
        addr: IntValue<'c>,
    ) -> IntValue<'c> {
        let max = self.int(cap.into());
        let first = requested.map_or(max, |n| self.at_most(n, cap.into()));
        let len = self.read_str_bounded(space, to, first, addr);
        let mut full = self.cmp(Cmp::Eq, len, max);
        if let Some(requested) = requested {
            let more = self.cmp(Cmp::Ugt, requested, max);
            full = self.and(full, more);
        }
        // The helper wrote a NUL over the last byte, which may itself be one.
        self.choose(
            full,
            |e| {
                let last = e.int(u64::from(cap) - 1);
                // For an aligned address on the stack, LLVM would use `|`, which the verifier rejects for pointers.
                let addr = e.opaque(addr);
                let (from, at) = (e.add(addr, last), e.offset(to, cap - 1));
                e.read(space, at, 1, from);
                let byte = e.load(at, 0, Int { bytes: 1, signed: false });
                let nonzero = e.cmp(Cmp::Ne, byte, e.int(0));
                e.add(e.int(cap.into()), nonzero)
            },
            |_| len,
        )
    }

    /// Reads the text in an array into memory with one more byte for a NUL. The rest is zeroed, so it can be a key.
    pub fn array_text(&mut self, space: Space, addr: IntValue<'c>, cap: u32, requested: Option<IntValue<'c>>) -> Operand<'c> {
        let to = self.alloc(cap + 1);
        if self.scope.pads_strings {
            self.zero(to, (cap + 1).next_multiple_of(8), 8);
        } else {
            // A length of 0 means that nothing is read.
            let nul = self.int(0);
            self.store(to, 0, 1, nul);
            self.store(to, cap, 1, nul);
        }
        let len = self.read_text(space, to, cap, requested, addr);
        Operand { ty: Type::Str(cap), repr: Repr::Mem(to, Some(len)) }
    }

    fn rematerialize_operand(&mut self, op: &Operand<'c>) -> Operand<'c> {
        let repr = if let Repr::Mem(ptr, len) = op.repr { Repr::Mem(self.rematerialize(ptr), len) } else { op.repr };
        Operand { ty: op.ty.clone(), repr }
    }

    /// Copies a value to readable memory, unless it is there already.
    pub fn in_memory(&mut self, op: &Operand<'c>) -> PointerValue<'c> {
        match op.repr {
            Repr::Mem(ptr, _) => self.rematerialize(ptr),
            Repr::At(addr, space) => {
                if let Type::Str(cap) = op.ty {
                    let Repr::Mem(ptr, _) = self.array_text(space, addr, cap, None).repr else {
                        bug!("a string that was read is in memory");
                    };
                    return ptr;
                }
                let size = op.ty.size();
                let to = self.alloc(size);
                self.read(space, to, size, addr);
                to
            }
            Repr::Reg(v) => {
                let to = self.alloc(8);
                let bytes = op.ty.size().clamp(1, 8) as u8;
                self.store(to, 0, bytes, v);
                to
            }
            Repr::None => {
                let to = self.alloc(8);
                self.zero(to, 8, 8);
                to
            }
        }
    }

    /// Writes a value of type `ty` at an address that is aligned to `align`; zeroes the rest of strings, and padding.
    pub fn store_value(&mut self, to: PointerValue<'c>, align: u32, op: &Operand<'c>, ty: &Type) {
        let size = ty.size();
        let (op, to) = (&self.rematerialize_operand(op), self.rematerialize(to));
        if ty.is_scalar() {
            let v = self.scalar(op);
            self.store(to, 0, size as u8, v);
            return;
        }
        match (&op.ty, op.repr) {
            (_, Repr::None) => self.zero(to, size, align),
            (Type::Str(from), Repr::At(addr, space)) => {
                self.zero(to, size, align);
                self.read_text(space, to, (*from).min(size), None, addr);
            }
            (Type::Str(from), Repr::Mem(ptr, _)) if *from != size => {
                let n = (*from).min(size);
                self.copy(to, ptr, n, align);
                if size > n {
                    let rest = self.offset(to, n);
                    self.zero(rest, size - n, common_align(n, align));
                }
            }
            // Only its length and bytes.
            (Type::Buf(_), Repr::Mem(ptr, _)) if op.ty.size() < size => {
                let n = op.ty.size();
                self.copy(to, ptr, n, align);
                let rest = self.offset(to, n);
                self.zero(rest, size - n, common_align(n, align));
            }
            (Type::Tuple(from), Repr::Mem(ptr, _)) if op.ty != *ty => {
                // A tuple with other element sizes: convert element by element.
                let Type::Tuple(elems) = ty else { bug!("a tuple is stored as a tuple") };
                self.zero(to, size, align);
                let (a, b) = (Type::tuple_offsets(from), Type::tuple_offsets(elems));
                for (i, (f, t)) in from.iter().zip(elems).enumerate() {
                    let part = self.element(ptr, a[i], f);
                    let at = self.offset(to, b[i]);
                    self.store_value(at, common_align(b[i], align), &part, t);
                }
            }
            (_, Repr::Mem(ptr, _)) => self.copy(to, ptr, size, align),
            (_, Repr::At(addr, space)) => self.read(space, to, size, addr),
            (_, Repr::Reg(v)) => {
                // An integer becomes the bytes of an array.
                self.zero(to, size, align);
                self.store(to, 0, size.clamp(1, 8) as u8, v);
            }
        }
    }

    /// Loads a value of type `ty` at an offset in readable memory.
    pub fn element(&mut self, ptr: PointerValue<'c>, offset: u32, ty: &Type) -> Operand<'c> {
        match ty.as_int() {
            Some(int) => Operand::reg(ty.clone(), self.load(ptr, offset, int)),
            None => {
                let at = self.offset(ptr, offset);
                let align = common_align(offset, self.aligned(ptr));
                self.fun.temporaries.set_alignment(at, align);
                Operand::mem(ty.clone(), at)
            }
        }
    }

    /// The known alignment of an address: on the stack, words must be aligned.
    pub(super) fn aligned(&self, ptr: PointerValue<'c>) -> u32 {
        self.fun.temporaries.alignment(ptr)
    }

    /// Is it known to be in scratch memory?
    pub(super) fn is_scratch(&self, ptr: PointerValue<'c>) -> bool {
        self.fun.temporaries.place_of(ptr).is_some()
    }

    /// Is it known to be on the stack or in scratch memory, and so writable?
    pub(super) fn is_own_memory(&self, ptr: PointerValue<'c>) -> bool {
        self.is_scratch(ptr) || ptr.as_instruction_value().is_some_and(|i| i.get_opcode() == InstructionOpcode::Alloca)
    }

    // --- what is shared with the loader and the reader ----------------------------------------------------------

    /// The address of a member of [`State`].
    pub fn state(&self, offset: usize) -> PointerValue<'c> {
        let g = self.data_global("state", STATE_SECTION, std::mem::size_of::<State>() as u32);
        self.offset(g, offset as u32)
    }

    /// Nonzero if loops of programs must end ([`State::interrupted`]).
    pub fn interrupted(&mut self) -> IntValue<'c> {
        let flag = self.state(std::mem::offset_of!(State, interrupted));
        self.load(flag, 0, U64)
    }

    /// Returns the same number without the verifier's knowledge of it. As long as the verifier knows that the sides of a branch
    /// leave different numbers, it follows both separately, and each further such branch doubles the number of states. Two
    /// exclusive ors with a word of memory leave the number unchanged. A byte swap no longer works, because newer kernels track
    /// it (`check_alu_op` of kernel/bpf/verifier.c).
    pub fn hide_range(&mut self, number: IntValue<'c>) -> IntValue<'c> {
        let state = self.state(std::mem::offset_of!(State, stacks));
        let unknown = self.opaque(self.load(state, 0, U64));
        let hidden = self.opaque(self.xor(self.opaque(number), unknown));
        self.xor(hidden, unknown)
    }

    /// Ends the program if the run is over ([`State::stopped`]).
    pub fn return_if_stopped(&mut self) {
        let flag = self.state(std::mem::offset_of!(State, stopped));
        let stopped = self.load(flag, 0, Int { bytes: 4, signed: false });
        self.if_(stopped, |e| e.ret(None));
    }

    /// An argument of the run at this offset in the memory of all of them.
    pub fn argument(&self, offset: u32, size_of_all: u32) -> PointerValue<'c> {
        let g = self.data_global("arguments", ARGUMENTS_SECTION, size_of_all);
        self.offset(g, offset)
    }

    /// A constant that the loader sets: a member of [`LoadConstants`].
    pub fn start(&mut self, offset: usize) -> IntValue<'c> {
        let g = self.data_global("start", START_SECTION, std::mem::size_of::<LoadConstants>() as u32);
        let ptr = self.offset(g, offset as u32);
        self.load(ptr, 0, U64)
    }
}

/// The alignment of an offset in memory that is aligned to `align`.
pub(super) fn common_align(offset: u32, align: u32) -> u32 {
    if offset == 0 { align } else { align.min(1 << offset.trailing_zeros().min(3)) }
}

/// The alignment of an offset in memory that is aligned to eight bytes.
pub fn align_at(offset: u32) -> u32 {
    common_align(offset, 8)
}
