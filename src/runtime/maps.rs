//! Reads and changes the script's maps from user space.
#![allow(unsafe_code)] // bpf(2), batches of entries

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::io;
use std::ops::Range;

use anyhow::{Context, bail};

use super::events::decoded;
use super::load::MapFd;
use super::thread_table::Cells;
use crate::builtins::{self, AggregateSide};
use crate::codegen::artifact::Map;
use crate::emit::IS_SET;
use crate::host::Host;
use crate::state;
use crate::types::{Agg, Type};
use crate::value::{MapView, MapViewKind, ShowOptions, Value};

/// Keys and values as bytes, `key_size` and [`MapFd::room`] each, in pieces, so that the memory of some can be released before
/// the others are decoded.
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// A keyed map without elements.
pub(super) fn empty(map: &Map) -> anyhow::Result<MapView> {
    let (kind, measures) =
        if let Type::Agg(agg) = &map.value { row(agg).map(|row| (row.kind, row.measures))? } else { (MapViewKind::Map, false) };
    Ok(MapView {
        name: map.name.clone(),
        kind,
        measures,
        keyed: true,
        set: true,
        entries: Vec::new(),
        show: ShowOptions::default(),
        weights: None,
    })
}

/// The same without loss.
pub(super) fn saved(map: &Map, fd: MapFd, host: &mut dyn Host) -> anyhow::Result<state::Map> {
    let (mut entries, mut key_bytes) = (Vec::new(), Vec::new());
    let mut portable = state::Portable::default();
    let mut entry = |mut key: Value, bytes: &[u8], host: &mut dyn Host| {
        portable.change(&mut key);
        if let Type::Agg(agg) = &map.value {
            let counted = (row(agg)?.state_codec.save)(agg, &slots(map, fd, agg, bytes));
            return anyhow::Ok(state::Entry { key, value: None, counted: Some(counted) });
        }
        let mut value = decoded(&map.value, bytes, host);
        portable.change(&mut value);
        Ok(state::Entry { key, value: Some(value), counted: None })
    };
    match &map.key {
        None => {
            let bytes = lookup(fd, &[0; 4]).with_context(|| format!("reading {}", map.name))?.unwrap_or_default();
            entries.push(entry(Value::None, &bytes, host)?);
        }
        Some(ty) => {
            let all = read_all(fd).with_context(|| format!("reading {}", map.name))?;
            let looks_up = ty.contains_deferred(&|_| true);
            for piece in all {
                for (key, bytes) in elements(fd, &piece) {
                    key_bytes.extend(looks_up.then(|| key.to_vec()));
                    entries.push(entry(decoded(ty, key, host), bytes, host)?);
                }
            }
        }
    }
    let (key, value, set) = (map.key.clone(), map.value.clone(), map.key.is_some() || is_set(fd));
    Ok(state::Map { set, adds: map.adds, unbounded: map.unbounded, key_bytes, ..state::Map::new(&map.name, key, value, entries) })
}

/// A whole map, merged across CPUs.
pub(super) fn view(map: &Map, fd: MapFd, host: &mut dyn Host) -> anyhow::Result<MapView> {
    let empty = empty(map)?;
    let mut entries = Vec::new();
    match &map.key {
        None => entries.push((Value::None, element(map, fd, &[], host)?)),
        Some(ty) => {
            let all = read_all(fd).with_context(|| format!("reading {}", map.name))?;
            let adds_up = map.adds || map.value.aggregation().is_some();
            // the names of several keys can be the same
            let named = ty.contains_deferred(&|tag| builtins::is_text(tag));
            let mut alike: BTreeMap<String, (Value, Vec<u8>)> = BTreeMap::new();
            entries.reserve_exact(all.iter().map(|piece| elements(fd, piece).len()).sum());
            for piece in all {
                for (key, bytes) in elements(fd, &piece) {
                    let key = decoded(ty, key, host);
                    if adds_up && (named || builtins::has_lost_stack(&key)) {
                        let text = serde_json::to_string(&key).unwrap_or_default();
                        alike.entry(text).or_insert_with(|| (key, Vec::new())).1.extend(bytes);
                    } else {
                        entries.push((key, sum(map, fd, &[bytes], host)?));
                    }
                }
            }
            for (key, values) in alike.into_values() {
                let values: Vec<&[u8]> = values.chunks_exact(fd.room().max(1)).collect();
                entries.push((key, sum(map, fd, &values, host)?));
            }
        }
    }
    let set = map.key.is_some() || is_set(fd);
    Ok(MapView { keyed: map.key.is_some(), set, entries, ..empty })
}

/// Has the script set the only element of an array, on any processor?
pub(super) fn is_set(fd: MapFd) -> bool {
    let value = fd.value_size.next_multiple_of(8).max(1);
    first(fd).is_some_and(|bytes| bytes.chunks(value).any(|of_one| of_one.iter().rev().take(IS_SET as usize).any(|b| *b != 0)))
}

/// An element by the bytes of its key (which may be followed by more); zero if it does not exist.
pub(super) fn element(map: &Map, fd: MapFd, key: &[u8], host: &mut dyn Host) -> anyhow::Result<Value> {
    let mut padded = vec![0u8; fd.key_size.max(4)];
    if map.key.is_some() {
        for (to, from) in padded.iter_mut().take(fd.key_size).zip(key) {
            *to = *from;
        }
    }
    match lookup(fd, &padded).with_context(|| format!("reading {}", map.name))? {
        Some(bytes) => value(map, fd, &bytes, host),
        None => no_element(map, fd, host),
    }
}

/// The value of a missing element.
pub(super) fn no_element(map: &Map, fd: MapFd, host: &mut dyn Host) -> anyhow::Result<Value> {
    value(map, fd, &vec![0u8; fd.room()], host)
}

/// The bytes of an array's only element.
pub(super) fn first(fd: MapFd) -> Option<Vec<u8>> {
    lookup(fd, &[0; 4]).ok().flatten()
}

/// Removes all elements; those of an array are set to zero.
pub(super) fn clear(map: &Map, fd: MapFd) -> anyhow::Result<()> {
    let zeros = vec![0u8; fd.room()];
    if fd.array {
        // SAFETY: a key and values of the map's sizes
        return check(unsafe { libbpf_sys::bpf_map_update_elem(fd.fd, ptr(&[0u8; 4]), ptr(&zeros), 0) })
            .with_context(|| format!("clearing {}", map.name));
    }
    if let Some(cells) = fd.threads {
        cells.clear();
    }
    if remove_all(fd).is_ok() {
        return Ok(());
    }
    // the kernel has no batch operations (before Linux 5.6)
    let keys = keys(fd).with_context(|| format!("clearing {}", map.name))?;
    for key in keys.chunks_exact(fd.key_size.max(1)) {
        // SAFETY: a key of the map's size
        match check(unsafe { libbpf_sys::bpf_map_delete_elem(fd.fd, ptr(key)) }) {
            Ok(()) => removed(fd, key),
            Err(why) if why.raw_os_error() == Some(libc::ENOENT) => {}
            Err(why) => return Err(why).with_context(|| format!("clearing {}", map.name)),
        }
    }
    Ok(())
}

/// Sets all elements to zero; an unset scalar stays unset.
pub(super) fn zero(map: &Map, fd: MapFd) -> anyhow::Result<()> {
    const EXIST: u64 = 2; // BPF_EXIST: an element that a program removed meanwhile stays removed
    let mut zeros = vec![0u8; fd.room()];
    if fd.array && is_set(fd) {
        zeros.iter_mut().nth_back(IS_SET as usize - 1).into_iter().for_each(|b| *b = 1);
    }
    if let Some(cells) = fd.threads {
        cells.zero();
    }
    let keys = keys(fd).with_context(|| format!("zeroing {}", map.name))?;
    for key in keys.chunks_exact(fd.key_size.max(1)) {
        // SAFETY: a key and values of the map's sizes
        match check(unsafe { libbpf_sys::bpf_map_update_elem(fd.fd, ptr(key), ptr(&zeros), if fd.array { 0 } else { EXIST }) }) {
            Err(why) if why.raw_os_error() != Some(libc::ENOENT) => return Err(why).with_context(|| format!("zeroing {}", map.name)),
            _ => {}
        }
    }
    Ok(())
}

/// Copies the keys of one map to another of the same kind, with zeros, unless they exist there.
pub(super) fn keep_keys(map: &Map, from: MapFd, to: MapFd) -> anyhow::Result<()> {
    const NOEXIST: u64 = 1; // BPF_NOEXIST: an element that a program wrote meanwhile stays
    if to.array {
        return Ok(());
    }
    let zeros = vec![0u8; to.room()];
    for key in keys(from).with_context(|| format!("zeroing {}", map.name))?.chunks_exact(from.key_size.max(1)) {
        // SAFETY: a key and values of the map's sizes
        match check(unsafe { libbpf_sys::bpf_map_update_elem(to.fd, ptr(key), ptr(&zeros), NOEXIST) }) {
            // it exists already, or new keys have left no room
            Err(why) if !matches!(why.raw_os_error(), Some(libc::EEXIST | libc::E2BIG)) => {
                return Err(why).with_context(|| format!("zeroing {}", map.name));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The addresses under a stack's id in a stack map.
pub(super) fn stack(fd: MapFd, id: u64) -> Option<Vec<u64>> {
    Some(frames(&lookup(fd, &id.to_ne_bytes()).ok()??))
}

/// Takes all stacks out of a stack map, and passes the id and addresses of each to `each`.
pub(super) fn take_stacks(fd: MapFd, mut each: impl FnMut(u64, Vec<u64>)) -> io::Result<()> {
    batches(fd, true, &mut |keys, values| {
        for (key, value) in keys.as_chunks::<8>().0.iter().zip(values.chunks_exact(fd.room().max(1))) {
            each(u64::from_ne_bytes(*key), frames(value));
        }
    })
}

/// Passes the bytes of all keys and all values to `each`, in pieces.
pub(super) fn scan(fd: MapFd, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    batches(fd, false, &mut |keys, values| [keys, values].into_iter().for_each(&mut each))
}

fn frames(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|w| u64::from_ne_bytes(*w)).take_while(|addr| *addr != 0).collect()
}

fn row(agg: &Agg) -> anyhow::Result<&'static AggregateSide> {
    match builtins::aggregate(&agg.function) {
        Some((_, row)) => Ok(row),
        None => bail!("unknown aggregation {} in the manifest", agg.function),
    }
}

fn value(map: &Map, fd: MapFd, bytes: &[u8], host: &mut dyn Host) -> anyhow::Result<Value> {
    sum(map, fd, &[bytes], host)
}

/// The sum of several values, which are aggregations or integers.
fn sum(map: &Map, fd: MapFd, values: &[&[u8]], host: &mut dyn Host) -> anyhow::Result<Value> {
    if let Type::Agg(agg) = &map.value {
        let slots: Vec<&[u8]> = values.iter().flat_map(|bytes| slots(map, fd, agg, bytes)).collect();
        return Ok((row(agg)?.merge)(agg, &slots));
    }
    let all = values.iter().map(|bytes| decoded(&map.value, bytes, host));
    Ok(all
        .reduce(|a, b| match (a, b) {
            (Value::Int(a), Value::Int(b)) => Value::Int(a.wrapping_add(b)),
            (Value::Uint(a), Value::Uint(b)) => Value::Uint(a.wrapping_add(b)),
            (_, last) => last,
        })
        .unwrap_or(Value::None))
}

/// The slots of an aggregation in the bytes of an element.
fn slots<'a>(map: &Map, fd: MapFd, agg: &Agg, bytes: &'a [u8]) -> Vec<&'a [u8]> {
    let (first, stride) = match map.slots {
        Some(slots) => (slots.first as usize, slots.stride as usize),
        None => (0, fd.value_size.next_multiple_of(8)),
    };
    let size = agg.size as usize;
    let slots = bytes.get(first..).unwrap_or_default();
    slots.chunks(stride.max(1)).filter_map(|slot| slot.get(..size)).collect()
}

fn lookup(fd: MapFd, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
    if let Some(value) = fd.threads.zip(thread(key)).and_then(|(cells, thread)| cells.value(thread)) {
        return Ok(Some(value_of_cell(fd, value)));
    }
    let mut value = vec![0u8; fd.room()];
    // SAFETY: the key has the map's size, and the value room for all CPUs
    match check(unsafe { libbpf_sys::bpf_map_lookup_elem(fd.fd, ptr(key), value.as_mut_ptr().cast()) }) {
        Ok(()) => Ok(Some(value)),
        Err(why) if why.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(why) => Err(why),
    }
}

/// The elements of a piece.
fn elements(fd: MapFd, (keys, values): &(Vec<u8>, Vec<u8>)) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
    keys.chunks_exact(fd.key_size.max(1)).zip(values.chunks_exact(fd.room().max(1)))
}

/// All keys and values: in batches, or else one by one.
fn read_all(fd: MapFd) -> io::Result<Entries> {
    let in_map = match read_batches(fd) {
        Ok(entries) => entries,
        // EINVAL before Linux 5.6, ENOTSUPP (524) for kinds of maps without batch operations
        Err(_) => read_singly(fd)?,
    };
    Ok(match fd.threads {
        Some(cells) => with_cells(fd, cells, in_map),
        None => in_map,
    })
}

/// The elements of a map and those of its table of threads. A thread may have removed its element and added it to the table
/// since the map was read.
fn with_cells(fd: MapFd, cells: Cells, in_map: Entries) -> Entries {
    let mut all: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for (key, value) in in_map.iter().flat_map(|piece| elements(fd, piece)) {
        all.insert(key.to_vec(), value.to_vec());
    }
    cells.each(|thread, value| {
        let mut key = thread.to_ne_bytes().to_vec();
        key.resize(fd.key_size, 0);
        all.insert(key, value_of_cell(fd, value));
    });
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for (key, value) in all {
        keys.extend(key);
        values.extend(value);
    }
    vec![(keys, values)]
}

fn value_of_cell(fd: MapFd, value: u64) -> Vec<u8> {
    let mut bytes = value.to_ne_bytes().to_vec();
    bytes.resize(fd.room(), 0);
    bytes
}

/// The thread whose ID is this key.
fn thread(key: &[u8]) -> Option<u32> {
    let (id, rest) = key.split_first_chunk()?;
    rest.iter().all(|b| *b == 0).then_some(u32::from_ne_bytes(*id))
}

/// Called after an element was removed from a map.
fn removed(fd: MapFd, key: &[u8]) {
    if let Some((cells, thread)) = fd.threads.zip(thread(key)) {
        cells.removed_from_hash(thread);
    }
}

fn read_batches(fd: MapFd) -> io::Result<Entries> {
    let mut all = Entries::new();
    batches(fd, false, &mut |keys, values| all.push((keys.to_vec(), values.to_vec())))?;
    Ok(all)
}

/// Removes the elements with these keys. Calls `removed` with each that was still there.
pub(super) fn remove_if(fd: MapFd, which: &dyn Fn(&[u8]) -> bool, removed: &dyn Fn(&[u8])) -> io::Result<()> {
    let all = read_batches(fd)?;
    for (key, _) in all.iter().flat_map(|piece| elements(fd, piece)).filter(|(key, _)| which(key)) {
        // SAFETY: the key has the size of the map's keys. An error: it is gone.
        if unsafe { libbpf_sys::bpf_map_delete_elem(fd.fd, ptr(key)) } == 0 {
            removed(key);
        }
    }
    Ok(())
}

/// Removes all elements. In a large map each removal costs one or two cache misses, so several threads share the work.
pub(super) fn remove_all(fd: MapFd) -> io::Result<()> {
    /// The minimum number of elements per thread, which take a tenth of a second.
    const MIN_ELEMENTS_PER_THREAD: u32 = 1 << 17;
    const THREADS: u32 = 8;
    let cpus = std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(THREADS));
    let threads = (fd.max_entries / MIN_ELEMENTS_PER_THREAD).clamp(1, cpus.min(THREADS));
    let buckets = fd.max_entries.checked_next_power_of_two().unwrap_or(u32::MAX);
    let of = |i: u32| (u64::from(buckets) * u64::from(i) / u64::from(threads)) as u32;
    std::thread::scope(|scope| {
        let part = |i: u32| {
            move || {
                let mut note = |keys: &[u8], _: &[u8]| {
                    if fd.threads.is_some() {
                        keys.chunks_exact(fd.key_size.max(1)).for_each(|key| removed(fd, key));
                    }
                };
                batches_of(fd, true, of(i)..of(i + 1), &mut note)
            }
        };
        let others: Vec<_> = (1..threads).map(|i| std::thread::Builder::new().spawn_scoped(scope, part(i))).collect();
        let mut result = part(0)();
        for (i, other) in (1..).zip(others) {
            let done = match other {
                Ok(other) => other.join().unwrap_or_else(|_| Err(io::Error::other("a thread has failed"))),
                Err(_) => part(i)(),
            };
            result = result.and(done);
        }
        result
    })
}

/// Passes all keys and values to `each`, in pieces; with `remove`, removes them as they are read.
fn batches(fd: MapFd, remove: bool, each: &mut dyn FnMut(&[u8], &[u8])) -> io::Result<()> {
    batches_of(fd, remove, 0..u32::MAX, each)
}

/// The same for a range of a hash map's buckets, whose number is a power of two: the kernel's batches begin and end at
/// bucket numbers.
fn batches_of(fd: MapFd, remove: bool, buckets: Range<u32>, each: &mut dyn FnMut(&[u8], &[u8])) -> io::Result<()> {
    let call = if remove { libbpf_sys::bpf_map_lookup_and_delete_batch } else { libbpf_sys::bpf_map_lookup_batch };
    // A bucket must fit in a batch, and most have one or two elements. Elements are copied while their bucket is
    // locked.
    let mut batch = fd.max_entries.clamp(1, ((4 << 20) / (fd.room() + fd.key_size).max(1)).clamp(64, 65536) as u32);
    // The kernel supplies such memory on first use, and most batches are short.
    let buffers = |batch: u32| (vec![0u8; batch as usize * fd.key_size], vec![0u8; batch as usize * fd.room()]);
    let (mut keys, mut values) = buffers(batch);
    let mut place = vec![0u8; fd.key_size.max(8)];
    let mut next = vec![0u8; place.len()];
    let mut first = buckets.start == 0;
    let number = |place: &[u8]| place.first_chunk().map_or(u32::MAX, |n| u32::from_ne_bytes(*n));
    if let Some(to) = place.first_chunk_mut() {
        *to = buckets.start.to_ne_bytes();
    }
    loop {
        let mut count = batch;
        // SAFETY: room for `batch` keys and values; the position is a u32 or a key
        let result = check(unsafe {
            call(
                fd.fd,
                if first { std::ptr::null_mut() } else { place.as_mut_ptr().cast() },
                next.as_mut_ptr().cast(),
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &mut count,
                std::ptr::null(),
            )
        });
        let full = matches!(&result, Err(why) if why.raw_os_error() == Some(libc::ENOSPC));
        let end = matches!(&result, Err(why) if why.raw_os_error() == Some(libc::ENOENT));
        if let Err(why) = result
            && !full
            && !end
        {
            return Err(why);
        }
        let count = if full { 0 } else { count.min(batch) as usize };
        each(keys.get(..count * fd.key_size).unwrap_or_default(), values.get(..count * fd.room()).unwrap_or_default());
        if end || (!full && number(&next) >= buckets.end) {
            return Ok(());
        }
        if full {
            // a bucket with more elements than the batch holds
            if batch >= 1 << 24 {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            batch *= 2;
            (keys, values) = buffers(batch);
        } else {
            std::mem::swap(&mut place, &mut next);
            first = false;
        }
    }
}

fn read_singly(fd: MapFd) -> io::Result<Entries> {
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for key in self::keys(fd)?.chunks_exact(fd.key_size.max(1)) {
        if let Some(value) = lookup(fd, key)? {
            keys.extend_from_slice(key);
            values.extend_from_slice(&value);
        }
    }
    Ok(vec![(keys, values)])
}

/// All keys, concatenated. The kernel restarts a walk that meets a removed key, so the number of steps is limited to twice
/// the capacity of the map.
fn keys(fd: MapFd) -> io::Result<Vec<u8>> {
    let mut keys: Vec<u8> = Vec::new();
    let mut key = vec![0u8; fd.key_size.max(4)];
    let mut first = true;
    for _ in 0..u64::from(fd.max_entries).saturating_mul(2).saturating_add(1) {
        let mut next = vec![0u8; key.len()];
        let from = if first { std::ptr::null() } else { ptr(&key) };
        // SAFETY: both have the key's size
        match check(unsafe { libbpf_sys::bpf_map_get_next_key(fd.fd, from, next.as_mut_ptr().cast()) }) {
            Ok(()) => keys.extend(next.iter().take(fd.key_size)),
            Err(why) if why.raw_os_error() == Some(libc::ENOENT) => break,
            Err(why) => return Err(why),
        }
        key = next;
        first = false;
    }
    Ok(keys)
}

fn ptr(bytes: &[u8]) -> *const c_void {
    bytes.as_ptr().cast()
}

/// libbpf's functions return 0 or a negative errno.
fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}
