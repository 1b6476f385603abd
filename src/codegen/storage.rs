//! Chooses how the kernel stores a map: its type, preallocation, and the layout of an aggregation's per-CPU slots.
//!
//! The choice follows measurements on Linux 6.18:
//!
//! | | per-CPU hash | plain hash, a slot for each CPU |
//! |---|---|---|
//! | 4,096 preallocated keys | 2.1 ms | 0.1 ms, and 0.12 ms per MB |
//! | 100,000 preallocated keys | 133 ms | 1.5 ms |
//! | a new key, without preallocation | 14 µs | 0.7 to 0.9 µs |
//! | a new key, preallocated | | 0.4 µs |
//!
//! Slots of two CPUs in one cache line slow each other down, so they are 64 bytes apart if there is enough memory.

use crate::builtins::{self, Sharing};
use crate::emit::{IS_SET, MapDef, MapKind, NO_PREALLOC, Slots};
use crate::sema::hir;
use crate::settings::DEFAULT_MAP_KEYS;
use crate::system::{Feature, TargetInfo};
use crate::types::Type;

/// Larger maps allocate each element on demand.
const PREALLOC_LIMIT: u64 = 8 << 20;
/// The same limit for large elements: the kernel keeps few of those in reserve, and refuses a burst of new keys.
const LARGE_PREALLOC_LIMIT: u64 = 16 << 20;
/// The same limit for maps whose size the script declares.
const SIZED_PREALLOC_LIMIT: u64 = 64 << 20;
/// The same limit for maps with more keys than usual, which the user requested: for 0.12 ms per MB at the start, a new key
/// takes half the time, and is never refused for lack of memory. If memory is short, the loader allocates them on demand
/// nevertheless.
const MANY_KEYS_PREALLOC_LIMIT: u64 = 256 << 20;

/// Maximum size of a per-CPU value in bytes: `PCPU_MIN_UNIT_SIZE` of include/linux/percpu.h, which
/// kernel/bpf/arraymap.c and hashtab.c check. For larger values, the processors share one.
const PER_CPU_LIMIT: u32 = 32 << 10;
/// Bytes of all slots of one element.
const SLOTS_LIMIT: u64 = 32 << 10;
/// Maximum number of keys for which a per-CPU hash is preallocated: half a microsecond each.
const PER_CPU_KEYS: u64 = 8192;
/// The overhead of a hash map's element: `struct htab_elem` of kernel/bpf/hashtab.c.
const ELEMENT_HEAD: u64 = 48;
/// Elements up to this size never run out: the kernel keeps 32 to 96 of them in reserve on each processor
/// (kernel/bpf/memalloc.c).
const SMALL_ELEMENT: u64 = 256;
/// Maximum number of cells in a table of threads.
const MAX_CELLS: u32 = 1 << 16;
/// Distance of slots in bytes at which no two slots share a cache line.
const GAP: u32 = 56;

/// The definition of a map in the kernel, and the slots of its elements if they have any.
pub(super) fn of(m: &hir::Map, sys: &dyn TargetInfo) -> (MapDef, Option<Slots>) {
    let value_size = m.value.size().max(1).next_multiple_of(8);
    let aggregation = if let Type::Agg(agg) = &m.value { Some(agg) } else { None };
    let separate = aggregation.filter(|_| value_size + IS_SET <= PER_CPU_LIMIT);
    let Some(key) = &m.key else {
        let kind = if separate.is_some() { MapKind::PercpuArray } else { MapKind::Array };
        return (MapDef { kind, key_size: 4, value_size: value_size + IS_SET, max_entries: 1, flags: 0 }, None);
    };
    let entries = m.max_entries.max(1);
    let sizes = Sizes {
        header_bytes: ELEMENT_HEAD + u64::from(key.size()).next_multiple_of(8),
        value: value_size,
        entries: entries.into(),
        has_declared_size: m.sized,
        cpus: sys.possible_cpus().max(1),
    };
    let form = match separate {
        None if m.lru => Form { kind: MapKind::LruHash, slots: None, preallocated: true },
        None => Form { kind: MapKind::Hash, slots: None, preallocated: sizes.fit_in_all(value_size.into()) },
        Some(_) if m.lru => Form { kind: MapKind::LruPercpuHash, slots: None, preallocated: true },
        Some(agg) => {
            let shared = builtins::aggregate(&agg.function).is_some_and(|(_, row)| match row.sharing {
                Sharing::Always => true,
                Sharing::WithFetch => sys.has(Feature::Fetch),
                Sharing::Never => false,
            });
            aggregated(&sizes, shared)
        }
    };
    let flags = if form.preallocated || !sys.has(Feature::AllocatesAnywhere) { 0 } else { NO_PREALLOC };
    let value_size = form.slots.map_or(value_size, |s| s.size);
    (MapDef { kind: form.kind, key_size: key.size().max(1), value_size, max_entries: entries, flags }, form.slots)
}

/// The number of cells in the table of a map whose key is the current thread: as many as keys, for up to 1 MiB.
pub(super) fn thread_cells(m: &hir::Map) -> u32 {
    m.max_entries.clamp(DEFAULT_MAP_KEYS as u32, MAX_CELLS).next_power_of_two()
}

/// The inputs of the choice.
struct Sizes {
    /// Bytes of an element besides its value.
    header_bytes: u64,
    /// Bytes of one processor's value.
    value: u32,
    entries: u64,
    /// The script declares the number of elements.
    has_declared_size: bool,
    cpus: u32,
}

impl Sizes {
    /// Is there enough memory to preallocate all elements with values of this size?
    fn fit(&self, value: u64) -> bool {
        let element = self.header_bytes + value;
        let limit = match (self.has_declared_size, element > SMALL_ELEMENT) {
            (true, _) => SIZED_PREALLOC_LIMIT,
            (false, true) => LARGE_PREALLOC_LIMIT,
            (false, false) => PREALLOC_LIMIT,
        };
        self.entries.saturating_mul(element) <= limit
    }

    /// The same for more keys than usual.
    fn fit_in_all(&self, value: u64) -> bool {
        let element = self.header_bytes + value;
        let many = self.has_declared_size || self.entries > DEFAULT_MAP_KEYS;
        self.fit(value) || many && self.entries.saturating_mul(element) <= MANY_KEYS_PREALLOC_LIMIT
    }
}

/// The chosen form.
#[derive(Clone, Copy)]
struct Form {
    kind: MapKind,
    slots: Option<Slots>,
    preallocated: bool,
}

/// `shared`: processors may share a slot.
fn aggregated(sizes: &Sizes, shared: bool) -> Form {
    // a power of two, so that the program finds its slot by a mask
    let all = sizes.cpus.next_power_of_two();
    let spread = Slots { first: GAP, stride: sizes.value + GAP, count: all, size: GAP + all * (sizes.value + GAP) };
    let dense = |count: u32| Slots { first: 0, stride: sizes.value, count, size: count * sizes.value };
    let hash = |slots: Slots, beforehand: bool| Form { kind: MapKind::Hash, slots: Some(slots), preallocated: beforehand };
    if u64::from(spread.size) <= SLOTS_LIMIT && sizes.fit(spread.size.into()) {
        return hash(spread, true);
    }
    let per_cpu = Form { kind: MapKind::PercpuHash, slots: None, preallocated: true };
    if sizes.entries <= PER_CPU_KEYS && sizes.fit(u64::from(sizes.value) * u64::from(sizes.cpus)) {
        return per_cpu;
    }
    let counts = || std::iter::successors(Some(all), |n| (*n > 1 && shared).then_some(*n / 2)).map(dense);
    let small =
        counts().find(|s| sizes.header_bytes + u64::from(s.size) <= SMALL_ELEMENT).map(|s| hash(s, sizes.fit_in_all(s.size.into())));
    let roomy = || counts().find(|s| sizes.fit_in_all(s.size.into())).map(|s| hash(s, true));
    let large = || counts().last().filter(|s| u64::from(s.size) <= SLOTS_LIMIT).map(|s| hash(s, false));
    small.or_else(roomy).or_else(large).unwrap_or(Form { preallocated: false, ..per_cpu })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(value: u32, entries: u64, cpus: u32, adds: bool) -> (MapKind, Option<(u32, u32)>, bool) {
        let f = aggregated(&Sizes { header_bytes: 56, value, entries, has_declared_size: false, cpus }, adds);
        (f.kind, f.slots.map(|s| (s.count, s.stride)), f.preallocated)
    }

    #[test]
    fn forms() {
        use MapKind::{Hash, PercpuHash};
        let (count, extreme, hist, percentiles) = (8, 16, 528, 7832);
        assert_eq!(form(count, 4096, 2, true), (Hash, Some((2, 64)), true));
        assert_eq!(form(count, 4096, 6, true), (Hash, Some((8, 64)), true));
        assert_eq!(form(count, 4096, 64, true), (PercpuHash, None, true));
        assert_eq!(form(count, 100_000, 2, true), (Hash, Some((2, 8)), true));
        assert_eq!(form(count, 1_000_000, 2, true), (Hash, Some((2, 8)), true));
        assert_eq!(form(count, 10_000_000, 2, true), (Hash, Some((2, 8)), false));
        assert_eq!(form(count, 1_000_000, 64, true), (Hash, Some((16, 8)), true));
        assert_eq!(form(extreme, 1_000_000, 2, false), (Hash, Some((2, 16)), true));
        assert_eq!(form(extreme, 1_000_000, 64, false), (Hash, Some((64, 16)), false));
        assert_eq!(form(extreme, 1_000_000, 64, true), (Hash, Some((8, 16)), true));
        assert_eq!(form(hist, 4096, 2, true), (Hash, Some((2, 584)), true));
        assert_eq!(form(hist, 4096, 64, true), (Hash, Some((4, 528)), true));
        assert_eq!(form(hist, 120_000, 2, true), (Hash, Some((2, 528)), true));
        assert_eq!(form(hist, 400_000, 2, true), (Hash, Some((1, 528)), true));
        assert_eq!(form(hist, 1_000_000, 2, true), (Hash, Some((1, 528)), false));
        assert_eq!(form(percentiles, 4096, 2, false), (Hash, Some((2, 7832)), false));
        assert_eq!(form(percentiles, 100, 2, false), (Hash, Some((2, 7888)), true));
        assert_eq!(form(percentiles, 4096, 64, false), (PercpuHash, None, false));
    }

    #[test]
    fn slots_lie_within_the_value() {
        for (value, cpus) in [(8, 1), (8, 2), (16, 3), (528, 64), (7832, 4)] {
            for entries in [1, 4096, 1_000_000] {
                let f = aggregated(&Sizes { header_bytes: 56, value, entries, has_declared_size: false, cpus }, true);
                if let Some(s) = f.slots {
                    assert!(s.count.is_power_of_two() && s.first + (s.count - 1) * s.stride + value <= s.size, "{s:?}");
                }
            }
        }
    }
}
