//! The maps of unwind tables: creating and filling them.
//!
//! Keys and values are the structures of `emit/unwind`, which have no padding. Arrays are mapped, because a system call
//! for each element would take most of the time of loading a table.
#![allow(unsafe_code)] // bpf(2), and memory shared with programs

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use memmap2::{MmapOptions, MmapRaw};

use crate::codegen::artifact::unwind::{
    BLOCK_WORDS, FILES, FileEntry, FileKey, GENERATIONS, INODES, INTERPRETERS, MAPS, MAX_GENERATIONS, MISSED, MISSES, MissingTable, POOL,
    POOL_BLOCKS, POOLS, RULES, RuleEntry, TABLE,
};
use crate::codegen::artifact::{MapDef, Process};
use crate::runtime::mmap_events::Event;

/// Words of a pool.
pub(super) const POOL_WORDS: u64 = POOL_BLOCKS as u64 * BLOCK_WORDS as u64;

/// The maps, by name.
#[derive(Debug)]
pub(super) struct Maps {
    maps: Vec<(&'static str, OwnedFd)>,
    /// The elements of [`TABLE`].
    table: Arc<Elements>,
    /// The elements of the inner maps of the map of pools, and those maps.
    pools: Vec<(Elements, OwnedFd)>,
    /// A pool that is being added to the map of pools: see [`Maps::add_pool_of`].
    entering: Option<JoinHandle<io::Result<()>>>,
}

impl Maps {
    pub fn create() -> io::Result<Self> {
        let first = create("unwind_pool", POOL, None)?;
        let mut maps = Vec::new();
        for (name, def) in MAPS {
            let inner = (name == POOLS).then(|| first.as_raw_fd());
            maps.push((name, create(name, def, inner)?));
        }
        let table = maps.iter().zip(MAPS).find(|((name, _), _)| *name == TABLE);
        let Some(((_, fd), (_, def))) = table else { crate::bug!("{TABLE} is one of the maps") };
        let table = Arc::new(Elements::of(fd, def)?);
        let mut maps = Self { maps, table, pools: Vec::new(), entering: None };
        maps.add_pool_of(first)?;
        Ok(maps)
    }

    /// The descriptor of a map that programs share. It lives as long as the process's tables, which the loaded programs
    /// keep.
    pub fn named(&self, name: &str) -> Option<BorrowedFd<'static>> {
        let (_, fd) = self.maps.iter().find(|(n, _)| *n == name)?;
        // SAFETY: used for bpf_map__reuse_fd at once, which duplicates it, while `self` is there
        Some(unsafe { BorrowedFd::borrow_raw(fd.as_raw_fd()) })
    }

    pub fn misses(&self) -> RawFd {
        self.fd(MISSES)
    }

    fn fd(&self, name: &str) -> RawFd {
        self.maps.iter().find(|(n, _)| *n == name).map_or(-1, |(_, fd)| fd.as_raw_fd())
    }

    /// The number of pools.
    pub fn pools(&self) -> usize {
        self.pools.len()
    }

    /// Adds a pool filled with zeros.
    pub fn add_pool(&mut self) -> io::Result<()> {
        let pool = create("unwind_pool", POOL, None)?;
        self.add_pool_of(pool)
    }

    /// The kernel waits for a grace period of RCU before the insertion of a map into a map of maps returns. That takes
    /// 10 to 20 ms, so another thread waits and this one continues: tables are written directly to the pool.
    fn add_pool_of(&mut self, pool: OwnedFd) -> io::Result<()> {
        self.wait_for_pools()?;
        let key = self.pools.len() as u32;
        // SAFETY: open as long as `self` is, and duplicated at once
        let pools = unsafe { BorrowedFd::borrow_raw(self.fd(POOLS)) }.try_clone_to_owned()?;
        let value = pool.try_clone()?;
        let enter = move || update(pools.as_raw_fd(), &key, &value.as_raw_fd());
        self.entering = Some(std::thread::Builder::new().name("rbt-pool".into()).spawn(enter)?);
        self.pools.push((Elements::of(&pool, POOL)?, pool));
        Ok(())
    }

    /// Waits until programs see all pools.
    pub fn wait_for_pools(&mut self) -> io::Result<()> {
        let entered = self.entering.take().map(JoinHandle::join);
        entered.unwrap_or(Ok(Ok(()))).unwrap_or_else(|_| Err(io::Error::other("the thread ended early")))
    }

    /// The words of all pools from this position to the end of its pool; none if there is no such pool.
    pub fn words(&self, position: u64) -> &[AtomicU64] {
        let (pool, word) = (position / POOL_WORDS, (position % POOL_WORDS) as usize);
        let pool = usize::try_from(pool).ok().and_then(|pool| self.pools.get(pool));
        pool.and_then(|(elements, _)| elements.words().get(word..)).unwrap_or_default()
    }

    /// Sets a word of the pools.
    pub fn set_word(&self, position: u64, word: u64) {
        if let Some(to) = self.words(position).first() {
            to.store(word, Ordering::Relaxed);
        }
    }

    pub fn set_rule(&self, number: u32, rule: &RuleEntry) {
        self.table.set(RULES + number, rule);
    }

    pub fn set_entry(&self, file: u32, entry: &FileEntry) {
        self.table.set(FILES + file, entry);
    }

    /// See [`Generations`].
    pub fn generations(&self) -> Generations {
        Generations { table: Arc::clone(&self.table), last: 0 }
    }

    /// From now on, programs find the table of a file.
    pub fn set_file(&mut self, key: &FileKey, number: u32) -> io::Result<()> {
        self.wait_for_pools()?;
        update(self.fd(INODES), key, &number)
    }

    /// Tells programs about the interpreter in a file.
    pub fn set_interpreter(&self, file: u32, process: &Process) -> io::Result<()> {
        update(self.fd(INTERPRETERS), &file, process)
    }

    pub fn forget_miss(&self, key: u64) {
        // SAFETY: a key of the map's size; a missing key is not an error
        unsafe { libbpf_sys::bpf_map_delete_elem(self.fd(MISSED), (&raw const key).cast()) };
    }
}

/// Makes programs forget what they found in the mappings of processes that have mapped something else since: see
/// [`GENERATIONS`].
pub(super) struct Generations {
    table: Arc<Elements>,
    last: u64,
}

impl Generations {
    /// A process that starts or that loads a library gets another identity anyway, so this costs it nothing.
    pub fn renew(&mut self, events: &[Event]) {
        self.last += 1;
        let mapped = |event: &Event| if let Event::Mapped { pid, .. } = event { Some(*pid) } else { None };
        if events.iter().any(|event| matches!(event, Event::Lost { .. })) {
            self.renew_slots(0..MAX_GENERATIONS);
        } else {
            self.renew_slots(events.iter().filter_map(mapped).map(|pid| pid & (MAX_GENERATIONS - 1)).collect::<BTreeSet<u32>>());
        }
    }

    fn renew_slots(&self, slots: impl IntoIterator<Item = u32>) {
        for slot in slots {
            self.table.set(GENERATIONS + slot, &self.last);
        }
    }
}

/// The elements of an array, which programs may read meanwhile.
#[derive(Debug)]
struct Elements {
    memory: MmapRaw,
    /// Words of an element.
    size: usize,
}

impl Elements {
    fn of(map: &OwnedFd, def: MapDef) -> io::Result<Self> {
        let size = def.value_size as usize / 8;
        let memory = MmapOptions::new().len(def.max_entries as usize * size * 8).map_raw(map.as_raw_fd())?;
        Ok(Self { memory, size })
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the memory is aligned to pages and as large; programs and user space may write to it at any time
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.memory.len() / 8) }
    }

    /// Sets an element from a structure of whole words that fits into it. Programs must not read an element before all its words
    /// are set, unless it has only one.
    fn set<T: Copy>(&self, index: u32, value: &T) {
        const { assert!(size_of::<T>().is_multiple_of(8) && size_of::<T>() <= size_of::<RuleEntry>()) };
        let element = self.words().get(index as usize * self.size..).unwrap_or_default();
        let words = std::ptr::from_ref(value).cast::<u64>();
        for (i, to) in element.iter().take(size_of::<T>() / 8).enumerate() {
            // SAFETY: one of the words of the value, which consists of numbers only
            to.store(unsafe { words.add(i).read_unaligned() }, Ordering::Relaxed);
        }
    }
}

/// A record of the ring.
pub(super) fn miss(record: &[u8]) -> Option<MissingTable> {
    if record.len() < size_of::<MissingTable>() {
        return None;
    }
    // SAFETY: reads as many bytes as it has, all of them numbers
    Some(unsafe { std::ptr::read_unaligned(record.as_ptr().cast()) })
}

fn create(name: &str, def: MapDef, inner: Option<RawFd>) -> io::Result<OwnedFd> {
    let opts = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
        map_flags: def.flags,
        inner_map_fd: inner.unwrap_or(0) as u32,
        ..Default::default()
    };
    let name = CString::new(name).unwrap_or_default();
    // SAFETY: only creates a map; the name outlives the call
    let fd = unsafe { libbpf_sys::bpf_map_create(def.kind as u32, name.as_ptr(), def.key_size, def.value_size, def.max_entries, &opts) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: just created, and not owned elsewhere
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn update<K, V>(map: RawFd, key: &K, value: &V) -> io::Result<()> {
    // SAFETY: callers pass keys and values of the sizes in the map's definition
    match unsafe { libbpf_sys::bpf_map_update_elem(map, std::ptr::from_ref(key).cast(), std::ptr::from_ref(value).cast(), 0) } {
        error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
        _ => Ok(()),
    }
}
