//! Maps: declared once in the object, and used by name.

use inkwell::module::Linkage;
use inkwell::values::{BasicValueEnum, IntValue, PointerValue};

use serde::{Deserialize, Serialize};

use super::shared::{LIMIT_SIZE, LIMITS, SCRATCH, stacks_name};
use super::{Builder, CodegenCx, Helper, Operand};
use crate::types::Type;

/// Kinds of map. Numbers: `enum bpf_map_type` of `include/uapi/linux/bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as the kernel names them
pub enum MapKind {
    Hash = 1,
    Array = 2,
    ProgArray = 3,
    PercpuHash = 5,
    PercpuArray = 6,
    LruHash = 9,
    LruPercpuHash = 10,
    ArrayOfMaps = 12,
    Ringbuf = 27,
}

impl MapKind {
    /// The kinds with their constants in the enum, and whether each CPU has its own values.
    const ROWS: &[(Self, &'static str, bool)] = &[
        (Self::Hash, "BPF_MAP_TYPE_HASH", false),
        (Self::Array, "BPF_MAP_TYPE_ARRAY", false),
        (Self::ProgArray, "BPF_MAP_TYPE_PROG_ARRAY", false),
        (Self::PercpuHash, "BPF_MAP_TYPE_PERCPU_HASH", true),
        (Self::PercpuArray, "BPF_MAP_TYPE_PERCPU_ARRAY", true),
        (Self::LruHash, "BPF_MAP_TYPE_LRU_HASH", false),
        (Self::LruPercpuHash, "BPF_MAP_TYPE_LRU_PERCPU_HASH", true),
        (Self::ArrayOfMaps, "BPF_MAP_TYPE_ARRAY_OF_MAPS", false),
        (Self::Ringbuf, "BPF_MAP_TYPE_RINGBUF", false),
    ];

    /// The constant of the kind with this number, and whether it is per-CPU; `None` if rbt does not use it.
    pub fn numbered(number: u32) -> Option<(&'static str, bool)> {
        Self::ROWS.iter().find(|(kind, ..)| *kind as u32 == number).map(|(_, constant, per_cpu)| (*constant, *per_cpu))
    }
}

/// A map's definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapDef {
    /// Its kind.
    pub kind: MapKind,
    /// Size of a key in bytes; 0 for a ring buffer.
    pub key_size: u32,
    /// Size of a value in bytes; 0 for a ring buffer.
    pub value_size: u32,
    /// Entries; bytes for a ring buffer.
    pub max_entries: u32,
    /// `BPF_F_…`
    pub flags: u32,
}

/// The slots within an element of an aggregation, which replace per-CPU values. A CPU writes to the slot with its number,
/// modulo the number of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots {
    /// Offset of the first slot, in bytes.
    pub first: u32,
    /// Distance between slots, in bytes.
    pub stride: u32,
    /// Number of slots: a power of two.
    pub count: u32,
    /// Size of the entire value, in bytes.
    pub size: u32,
}

/// Bytes of the flag at the end of a value in an array: not zero once the script has set the value, because elements of arrays
/// always exist.
pub const IS_SET: u32 = 8;

/// Before Linux 6.2, a key that a function gets as memory has to be copied to the stack for the helpers of maps. Kernels with CPU v4
/// (6.6) are known to be later.
const MAX_COPIED_KEY: u32 = 32;

/// The kernel allocates elements when they are added: `BPF_F_NO_PREALLOC`.
pub const NO_PREALLOC: u32 = 1;
/// User space can map the elements of an array: `BPF_F_MMAPABLE`, since Linux 5.5.
pub const MMAPABLE: u32 = 1 << 10;

impl<'c> CodegenCx<'c> {
    /// Declares a map. The loader finds it by its name.
    pub fn declare_map(&self, name: &str, def: MapDef) -> PointerValue<'c> {
        if let Some((g, _)) = self.maps.borrow().get(name) {
            return g.as_pointer_value();
        }
        let ptr = self.ptrt();
        let ty = self.llcx.struct_type(&[ptr.into(); 5], false);
        let g = self.module.add_global(ty, None, name);
        g.set_linkage(Linkage::External);
        g.set_section(Some(".maps"));
        g.set_alignment(8);
        g.set_initializer(&ty.const_zero());
        self.maps.borrow_mut().insert(name.into(), (g, def));
        g.as_pointer_value()
    }

    /// Declares the map of stacks with this number of frames.
    pub fn declare_stacks(&self, limit: u32, def: MapDef) -> PointerValue<'c> {
        self.stacks.borrow_mut().insert(limit);
        self.declare_map(&stacks_name(limit), def)
    }

    /// The numbers of frames for which there are maps of stacks.
    pub fn stack_limits(&self) -> Vec<u32> {
        self.stacks.borrow().iter().copied().collect()
    }

    /// The number of the limit of this name in their map.
    fn limit_number(&self, name: &str) -> u32 {
        let mut limits = self.limits.borrow_mut();
        let next = limits.len() as u32;
        *limits.entry(name.to_owned()).or_insert(next)
    }

    /// Declares the script's map of this number.
    pub fn declare_script_map(&self, id: usize, def: MapDef, slots: Option<Slots>) {
        self.declare_map(&format!("map_{id}"), def);
        self.slots.borrow_mut().extend(slots.map(|s| (id, s)));
    }

    /// The slots of the elements of the script's map of this number, if they have any.
    pub fn slots(&self, id: usize) -> Option<Slots> {
        self.slots.borrow().get(&id).copied()
    }

    /// A declared map.
    pub fn map(&self, name: &str) -> PointerValue<'c> {
        match self.maps.borrow().get(name) {
            Some((g, _)) => g.as_pointer_value(),
            None => crate::bug!("map {name} is not declared"),
        }
    }

    /// The definition of the script's map with this number.
    pub fn script_map_def(&self, id: usize) -> MapDef {
        match self.maps.borrow().get(&format!("map_{id}")) {
            Some((_, def)) => *def,
            None => crate::bug!("map_{id} is not declared"),
        }
    }

    pub(super) fn scratch_map(&self) -> PointerValue<'c> {
        // value_size is known when all programs are complete: see `object.rs`.
        self.declare_map(SCRATCH, MapDef { kind: MapKind::Array, key_size: 4, value_size: 0, max_entries: 1, flags: 0 })
    }
}

impl<'c> Builder<'_, 'c> {
    /// The memory of the current CPU in an existing element of the script's map with this number.
    pub fn own_slot(&mut self, id: usize, element: PointerValue<'c>) -> PointerValue<'c> {
        let Some(slots) = self.slots(id) else { return element };
        if slots.count == 1 {
            return self.offset(element, slots.first);
        }
        let cpu = self.cpu();
        let number = self.and(cpu, self.int(u64::from(slots.count) - 1));
        let ptr = self.offset_by(element, self.mul(number, self.int(slots.stride.into())));
        self.offset(ptr, slots.first)
    }

    /// Marks an existing element of the script's map with this number as set.
    pub fn mark_set(&mut self, id: usize, element: PointerValue<'c>) {
        let def = self.script_map_def(id);
        if let MapKind::Array | MapKind::PercpuArray = def.kind {
            let one = self.int(1);
            self.store(element, def.value_size - IS_SET, IS_SET as u8, one);
        }
    }

    /// The address of an element, or null.
    pub fn lookup(&mut self, map: PointerValue<'c>, key: PointerValue<'c>) -> PointerValue<'c> {
        // The position of the call determines which of the two copies it uses.
        if !self.program.is_long || self.scope.outlining || !map.is_const() {
            return self.call_ptr(Helper::MapLookupElem, &[map.into(), key.into()]);
        }
        // The kernel replaces each such call by several instructions and moves everything after it (bpf_patch_insn_data), so
        // many calls of one function are faster.
        let name = format!("lookup_{}", map.get_name().to_string_lossy());
        self.small(&name, key, |e, key| e.call_ptr(Helper::MapLookupElem, &[map.into(), key.into()]))
    }

    /// Sets an element. Returns 0 or a negative error.
    pub fn update(&mut self, map: PointerValue<'c>, key: PointerValue<'c>, value: PointerValue<'c>) -> IntValue<'c> {
        let any = self.int(0);
        let r = self.call(Helper::MapUpdateElem, &[map.into(), key.into(), value.into(), any.into()]);
        self.result_of_map_call(r)
    }

    /// Adds an element with a new key. Returns 0 or a negative error.
    pub fn insert_new(&mut self, map: PointerValue<'c>, key: PointerValue<'c>, value: PointerValue<'c>) -> IntValue<'c> {
        const NOEXIST: u64 = 1;
        let flags = self.int(NOEXIST);
        let r = self.call(Helper::MapUpdateElem, &[map.into(), key.into(), value.into(), flags.into()]);
        self.result_of_map_call(r)
    }

    /// Removes an element. Returns 0 or a negative error.
    pub fn delete(&mut self, map: PointerValue<'c>, key: PointerValue<'c>) -> IntValue<'c> {
        let r = self.call(Helper::MapDeleteElem, &[map.into(), key.into()]);
        self.result_of_map_call(r)
    }

    /// Before Linux 6.4, these helpers call functions that return an `int`, so the upper half of the register is undefined
    /// ("bpf: return long from bpf_map_ops funcs").
    fn result_of_map_call(&self, r: IntValue<'c>) -> IntValue<'c> {
        self.fit(r, crate::types::Int { bytes: 4, signed: true })
    }

    /// The word with the state of a limit of this name.
    pub fn limit_state(&mut self, name: &str) -> PointerValue<'c> {
        let def = MapDef { kind: MapKind::Array, key_size: 4, value_size: LIMIT_SIZE, max_entries: 1, flags: 0 };
        let (map, number) = (self.declare_map(LIMITS, def), self.limit_number(name));
        let (key, number) = (self.alloc(8), self.int(number.into()));
        self.store(key, 0, 4, number);
        self.lookup(map, key)
    }

    /// Writes a key to memory: the operand converted to `ty`, with padding zeroed. A scalar's map has the key 0.
    pub fn key(&mut self, op: Option<&Operand<'c>>, ty: Option<&Type>) -> PointerValue<'c> {
        match (op, ty) {
            (Some(op), Some(ty)) => {
                if let (super::Repr::Mem(ptr, _), true) = (op.repr, op.ty == *ty) {
                    return self.rematerialize(ptr);
                }
                let at = self.alloc(ty.size());
                if ty.size() % 8 != 0 && !ty.is_scalar() {
                    self.zero(at, ty.size().next_multiple_of(8), 8);
                }
                self.store_value(at, 8, op, ty);
                self.rematerialize(at)
            }
            _ => {
                let at = self.alloc(8);
                let zero = self.int(0);
                self.store(at, 0, 8, zero);
                at
            }
        }
    }

    /// The address of an element of an aggregation; if it does not exist, it is added, zeroed. Null if the map is full, which
    /// is counted and reported. `size` is that of the value on one CPU.
    pub fn element_of(&mut self, map: PointerValue<'c>, key: PointerValue<'c>, size: u32) -> PointerValue<'c> {
        let problem = (self.warning_level() > 0).then(|| self.new_problem(Helper::MapUpdateElem));
        if !self.shares_code() || !map.is_const() {
            return self.found_or_new(map, key, size, problem);
        }
        let fits = |size: &u32| self.target.v4 || *size <= MAX_COPIED_KEY;
        if let (true, Some(key_size)) = (self.checks_once() && self.is_own_memory(key), self.key_size(map).filter(fits)) {
            return self.found_or_added(map, (key, key_size), size, problem);
        }
        let name = format!("element_{}_{}", map.get_name().to_string_lossy(), self.program.probe);
        let args = [key.into(), problem.unwrap_or(self.int(0)).into()];
        let element = self.shared_part(&name, &args, |e, args| {
            let [BasicValueEnum::PointerValue(key), BasicValueEnum::IntValue(number)] = args else { crate::bug!("it gets two values") };
            let element = e.found_or_new(map, *key, size, problem.map(|_| *number));
            e.addr(element)
        });
        self.at_address(element)
    }

    /// The same in a split program: the verifier does not follow the addition at each place.
    fn found_or_added(
        &mut self,
        map: PointerValue<'c>,
        (key, key_size): (PointerValue<'c>, u32),
        size: u32,
        problem: Option<IntValue<'c>>,
    ) -> PointerValue<'c> {
        let stack_slot = self.scalar_slot();
        let first = self.lookup(map, key);
        self.spill_ptr(stack_slot, first);
        let missing = self.cmp(super::Cmp::Eq, self.addr(first), self.int(0));
        self.if_(missing, |e| {
            let name = format!("add_{}_{}", map.get_name().to_string_lossy(), e.program.probe);
            let number = problem.unwrap_or(e.int(0));
            e.on_memory_and_number(&name, (key, key_size), number, |e, mut key, number| {
                if !e.target.v4 {
                    let copy = e.alloc_kept(key_size);
                    e.copy(copy, key, key_size, 8);
                    key = copy;
                }
                e.found_or_new(map, key, size, problem.map(|_| number));
                e.int(0)
            });
            let again = e.lookup(map, key);
            e.spill_ptr(stack_slot, again);
        });
        self.load_spilled_ptr(stack_slot)
    }

    fn key_size(&self, map: PointerValue<'c>) -> Option<u32> {
        self.maps.borrow().get(map.get_name().to_str().ok()?).map(|(_, def)| def.key_size)
    }

    /// The same, with the number of its failures if they are reported.
    fn found_or_new(&mut self, map: PointerValue<'c>, key: PointerValue<'c>, size: u32, problem: Option<IntValue<'c>>) -> PointerValue<'c> {
        let stack_slot = self.scalar_slot();
        let first = self.lookup(map, key);
        self.spill_ptr(stack_slot, first);
        let missing = self.cmp(super::Cmp::Eq, self.addr(first), self.int(0));
        self.if_(missing, |e| {
            let zeros = e.text(&vec![0; size.next_multiple_of(8) as usize]);
            let r = e.insert_new(map, key, zeros);
            let again = e.lookup(map, key);
            e.spill_ptr(stack_slot, again);
            let is_null = e.cmp(super::Cmp::Eq, e.addr(again), e.int(0));
            e.if_(is_null, |e| {
                e.refused(r);
                if let Some(problem) = problem {
                    let failed = e.cmp(super::Cmp::Slt, r, e.int(0));
                    e.if_(failed, |e| e.report(problem, r));
                }
            });
        });
        self.load_spilled_ptr(stack_slot)
    }

    pub(super) fn spill_ptr(&self, stack_slot: PointerValue<'c>, value: PointerValue<'c>) {
        super::ok(self.b.build_store(stack_slot, value));
    }

    pub(super) fn load_spilled_ptr(&self, stack_slot: PointerValue<'c>) -> PointerValue<'c> {
        super::ok(self.b.build_load(self.ptrt(), stack_slot, "")).into_pointer_value()
    }
}
