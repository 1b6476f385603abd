//! Symbols of addresses. This is the only user of blazesym.
//!
//! blazesym reads ELF, DWARF and kallsyms. rbt itself finds the file behind an address (`mappings`), so that it treats stacks
//! of ended processes like all others.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use blazesym::symbolize::source::{Elf, Kernel, Process, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolizer};
use blazesym::{MaybeDefault, Pid};

use super::catch_panic::{Panicked, catch_panic};
use super::known_names::KnownNames;
use super::mappings::{Backing, Mappings, Object};
use super::perf_map::PerfMap;
use super::poll::UNBOUNDED;
use super::word_hash::WordHash;
use crate::part::Part;
use crate::system::binary::debug_files::{DebugInformation, debug_information};
use crate::system::binary::elf::{self, Segment};
use crate::system::{Function, binary::demangle};
use crate::terminal::escape::visible;
use crate::value::{Frame, FrameTable, Frames, FramesBuilder};

/// What is looked up for each address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// C++ and Rust names as in the source.
    pub demangle: bool,
    /// Source lines and inlined functions, from debug information (`show_debug_info`).
    pub lines: bool,
    /// Cache the results (`cache_user_symbols`).
    pub cache_results: bool,
}

/// Takes the frames at one address.
pub(super) type Each<'a> = &'a mut dyn FnMut(Cow<'_, Frames>);

/// Symbolizes addresses of the kernel and of processes. Keep one for the whole run: it remembers the tables it has read
/// and the addresses it has seen. Costs nothing until it is used.
pub(super) trait Symbolize {
    /// Looks for separate debug information in these directories before the usual ones: see
    /// [`debug_information`].
    fn set_debug_dirs(&self, dirs: &[String]);
    /// From now on, records the mappings of all processes, so that symbols remain available after a process has ended. It
    /// takes 0.1 ms and some memory, and needs CAP_PERFMON; without it, it does nothing. A separate thread reads the existing
    /// mappings of all processes.
    fn record_all(&self);
    /// Records like [`Symbolize::record_all`], and keeps the existing mappings of this process, with the files themselves in case they are
    /// deleted. Call it before the process runs: after [`super::child::Child::prepare`], or for `-p`.
    fn watch(&self, pid: u32);
    /// Keeps a file open that processes will run, in case it is replaced before their stacks are printed.
    fn hold_file(&self, path: &Path);
    /// Processes the new mappings. Call it when [`Symbolize::changes`] says so (it takes 1 µs if there are none), so that
    /// not too many are pending. For a child it need not be called before the exit, unless recording is not permitted:
    /// then mappings after the last call are unknown.
    fn refresh(&self);
    /// A descriptor that is readable if there is something to refresh, and the longest time until the next refresh.
    fn changes(&self) -> (RawFd, Duration);
    /// The message about addresses without a symbol because their mapping is unknown; nothing if there are none.
    fn lost(&self) -> Option<String>;
    /// Frames of a kernel stack, leaf first; for each address its inlined functions, innermost first, then the function
    /// itself. Addresses after the first are treated as return addresses: the function is that of the call, even if the
    /// call is its last instruction, while `offset` belongs to the address, as usual. An unknown address is a frame
    /// without a symbol. Frames that are remembered are in the table, if there is one.
    fn kernel(&self, addrs: &[u64], table: Option<&Arc<FrameTable>>, each: Each<'_>);
    /// Frames of a user stack, like [`Symbolize::kernel`]. The process may have ended, if its mappings were recorded.
    fn user(&self, pid: u32, addrs: &[u64], table: Option<&Arc<FrameTable>>, each: Each<'_>);

    /// The kernel function at an address: `ksym()`. None if unknown.
    fn kernel_name(&self, addr: u64) -> Option<Frame> {
        // kallsyms also lists offsets of per-CPU data, as if they were low addresses
        if addr < 1 << 63 {
            return None;
        }
        let mut found = None;
        self.kernel(&[addr], None, &mut |frames| found = named(&frames));
        found
    }

    /// The function at an address of a process, or at least the module: `usym()`. None if unknown.
    fn user_name(&self, pid: u32, addr: u64) -> Option<Frame> {
        let mut found = None;
        self.user(pid, &[addr], None, &mut |frames| found = named(&frames));
        found
    }
}

/// Symbolizes addresses.
pub(super) static SYMBOLS: Part<fn(Options) -> Box<dyn Symbolize>> = Part::new(|options| Box::new(Symbols::new(options)));

/// How often rbt looks for the file that a process with just-in-time compiled code may write.
const FILE_INTERVAL: Duration = Duration::from_secs(1);

/// Provides [`SYMBOLS`].
pub(super) fn provide() {
    SYMBOLS.provide(|options| Box::new(Symbols::new(options)));
}

/// For a program without symbols, which refuses bundles that need them. All addresses are unknown.
pub(super) struct NoSymbols;

impl Symbolize for NoSymbols {
    fn set_debug_dirs(&self, _dirs: &[String]) {}
    fn record_all(&self) {}
    fn watch(&self, _pid: u32) {}
    fn hold_file(&self, _path: &Path) {}
    fn refresh(&self) {}

    fn changes(&self) -> (RawFd, Duration) {
        (-1, UNBOUNDED)
    }

    fn lost(&self) -> Option<String> {
        None
    }

    fn kernel(&self, addrs: &[u64], _table: Option<&Arc<FrameTable>>, each: Each<'_>) {
        addrs.iter().for_each(|addr| each(Cow::Owned(frame_in_module(&[], *addr, None))));
    }

    fn user(&self, _pid: u32, addrs: &[u64], table: Option<&Arc<FrameTable>>, each: Each<'_>) {
        self.kernel(addrs, table, each);
    }
}

/// The symbols of files and of the kernel.
#[derive(Debug)]
struct Symbols {
    options: Options,
    state: RefCell<State>,
}

impl Symbols {
    /// Reads nothing yet.
    fn new(options: Options) -> Self {
        Self { options, state: RefCell::default() }
    }
}

impl Symbolize for Symbols {
    fn set_debug_dirs(&self, dirs: &[String]) {
        self.state.borrow_mut().debug_dirs = dirs.to_vec();
    }

    fn record_all(&self) {
        self.state.borrow_mut().mappings.record_all();
    }

    fn watch(&self, pid: u32) {
        self.state.borrow_mut().mappings.watch(pid);
    }

    fn hold_file(&self, path: &Path) {
        self.state.borrow_mut().mappings.hold_file(path);
    }

    fn refresh(&self) {
        let state = &mut *self.state.borrow_mut();
        state.mappings.refresh();
        for pid in state.mappings.compilers() {
            state.perf_maps.entry(pid).or_default().open_map(pid);
        }
    }

    fn changes(&self) -> (RawFd, Duration) {
        let state = self.state.borrow();
        let (changed, longest) = state.mappings.changes();
        let is_kept = |pid: u32| state.perf_maps.get(&pid).is_some_and(PerfMap::is_kept_open);
        // a compiler creates the file when it has compiled something, and nothing announces that
        let expects_file = !state.mappings.compilers().all(is_kept);
        (changed, if expects_file { longest.min(FILE_INTERVAL) } else { longest })
    }

    fn lost(&self) -> Option<String> {
        self.state.borrow().mappings.lost()
    }

    fn kernel(&self, addrs: &[u64], table: Option<&Arc<FrameTable>>, each: Each<'_>) {
        let state = &mut *self.state.borrow_mut();
        state.use_table(table);
        addrs.iter().enumerate().for_each(|(i, addr)| state.kernel(self.options, *addr, i > 0, each));
    }

    fn user(&self, pid: u32, addrs: &[u64], table: Option<&Arc<FrameTable>>, each: Each<'_>) {
        let state = &mut *self.state.borrow_mut();
        state.use_table(table);
        state.mappings.refresh();
        addrs.iter().enumerate().for_each(|(i, addr)| state.user(self.options, pid, *addr, i > 0, each));
    }
}

fn named(frames: &Frames) -> Option<Frame> {
    frames.last().filter(|last| last.symbol.is_some() || last.within.is_some()).cloned()
}

/// Addresses remembered before all are forgotten.
const MAX_CACHED_ADDRESSES: usize = 1 << 16;

#[derive(Debug, Default)]
struct State {
    symbolizer: Option<Symbolizer>,
    debug_dirs: Vec<String>,
    /// Debug information by object; none if an object cannot be read.
    debug_information: HashMap<usize, Option<DebugInformation>>,
    /// Separate debug files by object.
    debug_files: HashMap<usize, Option<DebugFile>>,
    /// Names from earlier runs by object, and those of this one.
    known_names: HashMap<usize, Option<KnownNames>>,
    /// Names that several functions of an object share.
    ambiguous_names: HashMap<usize, HashSet<String>>,
    /// Go functions by object, in order of address, for objects without symbols.
    go: HashMap<usize, Vec<Function>>,
    mappings: Mappings,
    known: HashMap<CodeKey, Rc<[Frame]>, WordHash>,
    /// The same by address as well, because the same code has other addresses in other processes. All of them are in the table.
    frames_by_address: HashMap<(CodeKey, u64), Frames, WordHash>,
    table: Arc<FrameTable>,
    /// Objects on which blazesym panicked. They are not tried again.
    panicked: HashSet<usize>,
    /// Segments of objects in which a function was not found.
    segments: HashMap<usize, Option<Vec<Segment>>>,
    /// Whether an object in memory is a binary.
    binaries_in_memory: HashMap<usize, bool>,
    /// Build IDs by object, in hexadecimal.
    build_ids: HashMap<usize, Option<String>>,
    perf_maps: HashMap<u32, PerfMap>,
    /// The address of the vdso in this process; its contents are the same everywhere.
    vdso: Option<Option<u64>>,
}

/// A place in code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CodeKey {
    /// The number of the object, [`KERNEL`] or [`VDSO`].
    object: usize,
    /// Offset in the file in bytes; in the kernel, the address.
    offset: u64,
    /// It is a return address, so the frame is that of the call before it.
    is_return: bool,
}

/// A file with the debug information that was stripped from an object.
#[derive(Debug)]
struct DebugFile {
    path: PathBuf,
    /// The segments of the object itself: offsets in the debug file differ.
    segments: Vec<Segment>,
}

/// Objects count from 1.
const KERNEL: usize = 0;
const VDSO: usize = usize::MAX;

impl State {
    /// From now on, remembers frames in this table.
    fn use_table(&mut self, table: Option<&Arc<FrameTable>>) {
        if let Some(table) = table.filter(|table| !Arc::ptr_eq(table, &self.table)) {
            self.table = Arc::clone(table);
            self.frames_by_address.clear();
        }
    }

    fn kernel(&mut self, options: Options, addr: u64, call: bool, each: Each<'_>) {
        // Code has the upper half. In the lower one kallsyms lists offsets of per-CPU variables as if they were addresses.
        if addr >> 63 == 0 {
            return each(Cow::Owned(frame_in_module(&[], addr, None)));
        }
        self.cached_frames_at(CodeKey { object: KERNEL, offset: addr, is_return: call }, addr, true, each, |state| {
            state.kernel_frames(options, addr, call)
        });
    }

    fn kernel_frames(&mut self, options: Options, addr: u64, call: bool) -> Frames {
        let frames = self.cached_frames(CodeKey { object: KERNEL, offset: addr, is_return: call }, true, |state| {
            // A vmlinux adds only lines to kallsyms, and takes longer to read.
            let vmlinux = if options.lines { MaybeDefault::Default } else { MaybeDefault::None };
            let source = Source::Kernel(Kernel { debug_syms: options.lines, vmlinux, ..Kernel::default() });
            let frames = state.frames(options, KERNEL, &source, Input::AbsAddr(addr), call).unwrap_or_default();
            state.named(options, None, frames)
        });
        frame_in_module(&frames, addr, None)
    }

    fn user(&mut self, options: Options, pid: u32, addr: u64, call: bool, each: Each<'_>) {
        // The call is what is mapped: its return address may be past the end.
        let at = if call { addr.wrapping_sub(1) } else { addr };
        let Some(mapping) = self.mappings.find(pid, at) else { return each(Cow::Owned(frame_in_module(&[], addr, None))) };
        let offset = mapping.offset_of(at).wrapping_add(addr.wrapping_sub(at));
        match &mapping.backing {
            Backing::File(object) if self.is_made_at_run_time(object) => each(Cow::Owned(self.anonymous(pid, addr, at))),
            Backing::File(object) => {
                let key = CodeKey { object: object.id, offset, is_return: call };
                self.cached_frames_at(key, addr, options.cache_results, each, |state| {
                    state.file_frames(options, object, offset, call, addr)
                });
            }
            Backing::Vdso => {
                let frames = self.cached_frames(CodeKey { object: VDSO, offset, is_return: call }, options.cache_results, |state| {
                    state.vdso(options, offset, call)
                });
                let mut frames = frames_in_module(&frames, addr, Some("[vdso]"));
                frames.iter_mut().filter(|frame| frame.symbol.is_none()).for_each(|frame| frame.within = Some(offset));
                each(Cow::Owned(frames.into_iter().collect()));
            }
            Backing::Anonymous => each(Cow::Owned(self.anonymous(pid, addr, at))),
            Backing::Other(name) => each(Cow::Owned(frame_in_module(&[], addr, Some(name)))),
        }
    }

    /// Is it code that a compiler wrote into memory, and not a binary that was copied there?
    fn is_made_at_run_time(&mut self, object: &Object) -> bool {
        let is_binary = || object.path_to_file().is_some_and(|path| elf::segments(&path).is_some());
        object.is_in_memory() && !*self.binaries_in_memory.entry(object.id).or_insert_with(is_binary)
    }

    fn file_frames(&mut self, options: Options, object: &Object, offset: u64, call: bool, addr: u64) -> Frames {
        let frames = self.cached_frames(CodeKey { object: object.id, offset, is_return: call }, options.cache_results, |state| {
            let place = (offset, call);
            if let Some(frames) = state.known_names(options, object).and_then(|known| known.frames(place)) {
                return frames;
            }
            let frames = state.file(options, object, offset, call);
            let frames = state.named(options, Some(object), frames);
            let failed = state.panicked.contains(&object.id);
            if let Some(known) = state.known_names(options, object).filter(|_| !failed) {
                known.add(place, &frames);
            }
            frames
        });
        let mut frames = frames_in_module(&frames, addr, Some(&object.path.to_string_lossy()));
        let Some(last) = frames.last_mut() else { return frames.into_iter().collect() };
        let id = self.build_ids.entry(object.id).or_insert_with(|| build_id(object));
        if let Some(id) = id {
            last.build_id = Some((id.clone(), offset));
        }
        if last.symbol.is_none() {
            let segments = self.segments.entry(object.id).or_insert_with(|| elf::segments(&object.path_to_file()?));
            // a return address may be past the end
            let back = u64::from(call);
            last.within = match segments {
                Some(segments) => elf::address(segments, offset - back).map(|address| address + back),
                // The file is gone, so only the offset in it is known.
                None => Some(offset),
            };
        }
        frames.into_iter().collect()
    }

    /// With names as in the source in place of symbols.
    fn named(&mut self, options: Options, object: Option<&Object>, mut frames: Vec<Frame>) -> Vec<Frame> {
        for symbol in frames.iter_mut().filter_map(|frame| frame.symbol.as_mut()).filter(|_| options.demangle) {
            let instance = demangle::before_hash(symbol).filter(|before| object.is_some_and(|o| self.several(o).contains(*before)));
            let name = instance.and_then(|_| demangle::readable_instance(symbol)).or_else(|| demangle::readable(symbol));
            *symbol = name.unwrap_or_else(|| std::mem::take(symbol));
        }
        frames
    }

    /// The names (without the hash) that several functions of an object share.
    fn several(&mut self, object: &Object) -> &HashSet<String> {
        let dirs = &self.debug_dirs;
        self.ambiguous_names.entry(object.id).or_insert_with(|| {
            let functions = object
                .path_to_file()
                .and_then(|path| catch_panic(|| elf::open(&path, dirs, &elf::ExpectedMachine::Here).ok()).ok()?)
                .map_or_else(Vec::new, |b| b.functions);
            let mut first: HashMap<&str, u64> = HashMap::new();
            let known = functions.iter().filter_map(|f| Some((demangle::before_hash(&f.name)?, f.offset)));
            known.filter(|(name, offset)| *first.entry(name).or_insert(*offset) != *offset).map(|(name, _)| name.to_owned()).collect()
        })
    }

    fn file(&mut self, options: Options, object: &Object, offset: u64, call: bool) -> Vec<Frame> {
        let Some(path) = object.path_to_file() else {
            self.mappings.note_gone(object);
            return Vec::new();
        };
        let information = self.debug_information(object).cloned();
        let separate = self.debug_files.entry(object.id).or_insert_with(|| match information? {
            DebugInformation::Separate(found) => Some(DebugFile { path: found, segments: elf::segments(&path)? }),
            DebugInformation::Within | DebugInformation::Missing => None,
        });
        let separate = separate.as_ref().and_then(|s| Some((s.path.clone(), elf::address(&s.segments, offset)?)));
        if let Some((debug, addr)) = separate {
            // if a function has several names, callers use those that remain in the stripped binary
            let elf = Source::Elf(Elf { debug_syms: false, ..Elf::new(&path) });
            let elf = self.frames(options, object.id, &elf, Input::FileOffset(offset), call);
            if let Some(frames) = self.elf(options, object, &debug, Input::VirtOffset(addr), call, elf) {
                return frames;
            }
        }
        let frames = self.elf(options, object, &path, Input::FileOffset(offset), call, None);
        frames.unwrap_or_else(|| self.go_frame(object, &path, offset, call).into_iter().collect())
    }

    fn debug_information(&mut self, object: &Object) -> Option<&DebugInformation> {
        let dirs = &self.debug_dirs;
        let found = self.debug_information.entry(object.id).or_insert_with(|| {
            let path = object.path_to_file()?;
            catch_panic(|| debug_information(&object.path, &path, dirs)).ok()?
        });
        found.as_ref()
    }

    /// The names of an object from earlier runs; none if they are not kept.
    fn known_names(&mut self, options: Options, object: &Object) -> Option<&mut KnownNames> {
        if !options.cache_results {
            return None;
        }
        if !self.known_names.contains_key(&object.id) {
            let opened = object.path_to_file().zip(self.debug_information(object)).and_then(|(path, information)| {
                let options = format!("lines {} demangle {}", options.lines, options.demangle);
                KnownNames::of(&path, information, &options)
            });
            self.known_names.insert(object.id, opened);
        }
        self.known_names.get_mut(&object.id)?.as_mut()
    }

    /// The frames at an address of an ELF file; none if it has no symbol there. `named`: the function, if its name is
    /// known already.
    fn elf(
        &mut self,
        options: Options,
        object: &Object,
        path: &Path,
        at: Input<u64>,
        call: bool,
        named: Option<Vec<Frame>>,
    ) -> Option<Vec<Frame>> {
        let elf = |debug_syms| Source::Elf(Elf { debug_syms, ..Elf::new(path) });
        // The symbol table answers ten times faster than debug information. Its name is also better, even with lines:
        // debug information gives all parts of a function that the compiler split (`f.cold`) the same start.
        let table = named.or_else(|| self.frames(options, object.id, &elf(false), at, call));
        if table.is_some() && !options.lines {
            return table;
        }
        let mut frames = self.frames(options, object.id, &elf(true), at, call).unwrap_or_default();
        match (table.and_then(|mut frames| frames.pop()), frames.last_mut()) {
            (Some(named), Some(function)) => *function = Frame { source: function.source.take(), ..named },
            (Some(named), None) => frames.push(named),
            (None, _) => {}
        }
        Some(frames).filter(|frames| !frames.is_empty())
    }

    /// A Go function that only Go's own table describes: see `system::binary::go`.
    fn go_frame(&mut self, object: &Object, path: &Path, offset: u64, call: bool) -> Option<Frame> {
        let functions = self.go.entry(object.id).or_insert_with(|| elf::go_functions(path).unwrap_or_default());
        let at = offset.wrapping_sub(u64::from(call));
        let f = functions.get(functions.partition_point(|f| f.offset <= at).checked_sub(1)?)?;
        (at - f.offset < f.size).then(|| Frame { symbol: Some(f.name.clone()), offset: offset - f.offset, ..Frame::default() })
    }

    fn vdso(&mut self, options: Options, offset: u64, call: bool) -> Vec<Frame> {
        let mappings = &mut self.mappings;
        let start = *self.vdso.get_or_insert_with(|| mappings.vdso_of_ourselves());
        let Some(start) = start else { return Vec::new() };
        let source = Source::Process(Process::new(Pid::Slf));
        self.frames(options, VDSO, &source, Input::AbsAddr(start.wrapping_add(offset)), call).unwrap_or_default()
    }

    /// Code without a file: named if its compiler recorded it.
    fn anonymous(&mut self, pid: u32, addr: u64, lookup_addr: u64) -> Frames {
        let map = self.perf_maps.entry(pid).or_default();
        let dump = self.mappings.jit_dump(pid);
        let found = map.look_up(pid, lookup_addr, dump.as_deref()).map(|(start, name)| Frame {
            symbol: Some(name.to_owned()),
            offset: addr - start,
            ..Frame::default()
        });
        frame_in_module(found.as_slice(), addr, None)
    }

    fn cached_frames_at(&mut self, key: CodeKey, addr: u64, keep: bool, each: Each<'_>, make: impl FnOnce(&mut Self) -> Frames) {
        if let Some(placed) = self.frames_by_address.get(&(key, addr)) {
            return each(Cow::Borrowed(placed));
        }
        let frames = make(self);
        if !keep {
            return each(Cow::Owned(frames));
        }
        if self.frames_by_address.len() >= MAX_CACHED_ADDRESSES {
            self.frames_by_address.clear();
            self.table = Arc::default();
        }
        let mut placed = FramesBuilder::new(Arc::clone(&self.table), frames.len());
        placed.extend(Cow::Owned(frames));
        each(Cow::Borrowed(self.frames_by_address.entry((key, addr)).or_insert(placed.finish())));
    }

    fn cached_frames(&mut self, key: CodeKey, keep: bool, make: impl FnOnce(&mut Self) -> Vec<Frame>) -> Rc<[Frame]> {
        if let Some(known) = self.known.get(&key) {
            return Rc::clone(known);
        }
        let frames: Rc<[Frame]> = make(self).into();
        if keep {
            if self.known.len() >= MAX_CACHED_ADDRESSES {
                self.known.clear();
            }
            self.known.insert(key, Rc::clone(&frames));
        }
        frames
    }

    /// Looks it up by blazesym. For a return address it looks up the byte before it, which is part of the call, and
    /// then the address itself, because the return address of a signal handler (`__restore_rt`) follows no call. None
    /// if both are unknown.
    fn frames(&mut self, options: Options, object: usize, source: &Source<'_>, at: Input<u64>, call: bool) -> Option<Vec<Frame>> {
        let before = if call { self.symbolize(options, object, source, at.map(|a| a.wrapping_sub(1)), 1) } else { None };
        before.or_else(|| self.symbolize(options, object, source, at, 0))
    }

    fn symbolize(&mut self, options: Options, object: usize, source: &Source<'_>, at: Input<u64>, past: u64) -> Option<Vec<Frame>> {
        if self.panicked.contains(&object) {
            return None;
        }
        let symbolizer = self.symbolizer.get_or_insert_with(|| {
            Symbolizer::builder()
                .enable_demangling(false) // it interprets C names as C++ types: see `demangle`
                .enable_code_info(options.lines)
                .enable_inlined_fns(options.lines)
                .build()
        });
        let found = || symbolizer.symbolize_single(source, at).ok().map(|found| found.as_sym().map(|sym| frames_of(sym, past)));
        match catch_panic(found) {
            Ok(found) => found.flatten(),
            Err(Panicked) => {
                // A symbolizer that panicked cannot be trusted, not even to be dropped.
                std::mem::forget(self.symbolizer.take());
                self.panicked.insert(object);
                None
            }
        }
    }
}

/// Frames without addresses, by their symbols: `past` is how far the frame's address is past the one looked up.
fn frames_of(sym: &Sym<'_>, past: u64) -> Vec<Frame> {
    // blazesym lists a function that calls an inlined one first; a stack has the leaf first.
    let inlined = sym.inlined.iter().rev().map(|inlined| Frame {
        symbol: Some(inlined.name.to_string()),
        source: inlined.code_info.as_ref().and_then(source_of),
        inlined: true,
        ..Frame::default()
    });
    let function = Frame {
        symbol: Some(sym.name.to_string()),
        offset: sym.offset as u64 + past,
        module: sym.module.as_ref().map(|m| m.to_string_lossy().into_owned()),
        source: sym.code_info.as_deref().and_then(source_of),
        ..Frame::default()
    };
    inlined.chain([function]).collect()
}

fn build_id(object: &Object) -> Option<String> {
    use std::fmt::Write as _;
    let path = object.path_to_file()?;
    let id = catch_panic(|| blazesym::helper::read_elf_build_id(&path).ok().flatten().map(|id| id.to_vec())).ok()??;
    Some(id.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

fn source_of(info: &CodeInfo<'_>) -> Option<(String, u32)> {
    info.line.map(|line| (info.to_path().to_string_lossy().into_owned(), line))
}

/// The frames at an address; a frame without a symbol if there are none.
fn frame_in_module(frames: &[Frame], addr: u64, module: Option<&str>) -> Frames {
    frames_in_module(frames, addr, module).into_iter().collect()
}

/// The same, to be changed.
fn frames_in_module(frames: &[Frame], addr: u64, module: Option<&str>) -> Vec<Frame> {
    let at = |frame: &Frame| Frame {
        addr,
        module: module.or(frame.module.as_deref()).map(harmless),
        symbol: frame.symbol.as_deref().map(harmless),
        source: frame.source.as_ref().map(|(file, line)| (harmless(file), *line)),
        ..frame.clone()
    };
    if frames.is_empty() { vec![at(&Frame::default())] } else { frames.iter().map(at).collect() }
}

/// A name with escaped control characters, because the name comes from an untrusted file and each frame is a line.
fn harmless(name: &str) -> String {
    if name.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        return name.to_owned();
    }
    let mut text = Vec::new();
    visible(name.as_bytes(), &mut text);
    String::from_utf8(text).unwrap_or_default()
}

#[cfg(test)]
#[allow(unsafe_code)] // makes test libraries, mappings and code
mod tests {
    use super::super::child::{Child, Exit};
    use super::*;
    use std::hint::black_box;

    const PLAIN: Options = Options { demangle: true, lines: false, cache_results: true };
    const LINES: Options = Options { demangle: true, lines: true, cache_results: true };

    fn us() -> u32 {
        std::process::id()
    }

    #[inline(never)]
    fn landmark(x: u64) -> u64 {
        black_box(x) + 1
    }

    fn user(symbols: &Symbols, pid: u32, addrs: &[u64]) -> Vec<Vec<Frame>> {
        let mut all = Vec::new();
        symbols.user(pid, addrs, None, &mut |frames| all.push(frames.iter().cloned().collect()));
        all
    }

    fn names(frames: &[Vec<Frame>]) -> Vec<String> {
        frames.iter().flat_map(|at| at.iter()).map(|f| f.symbol.clone().unwrap_or_default()).collect()
    }

    #[test]
    fn names_own_functions() {
        let addr = landmark as fn(u64) -> u64 as usize as u64;
        let frame = Symbols::new(PLAIN).user_name(us(), addr).unwrap();
        assert!(frame.symbol.as_ref().unwrap().ends_with("symbolize::tests::landmark"), "{frame:?}");
        assert_eq!((frame.addr, frame.offset, frame.inlined), (addr, 0, false));
        assert_eq!(frame.module.unwrap(), std::env::current_exe().unwrap().to_str().unwrap());
        assert!(frame.source.is_none());
        let name = frame.symbol.unwrap();
        let mangled = Symbols::new(Options { demangle: false, lines: false, cache_results: true }).user_name(us(), addr).unwrap();
        assert!(mangled.symbol.unwrap().starts_with("_"));
        let frame = Symbols::new(LINES).user_name(us(), addr).unwrap();
        assert_eq!((frame.symbol.unwrap(), frame.offset), (name, 0));
        let (file, line) = frame.source.unwrap();
        assert!(file.ends_with("src/runtime/symbolize.rs") && line > 0, "{file}:{line}");
    }

    /// A return address at the start of the next function belongs to the function before it.
    #[test]
    fn return_addresses() {
        let symbols = Symbols::new(PLAIN);
        let addr = landmark as fn(u64) -> u64 as usize as u64;
        let exe = elf::open(std::path::Path::new("/proc/self/exe"), &[], &elf::ExpectedMachine::Here).unwrap();
        let size = exe.functions.iter().find(|f| f.name.contains("symbolize5tests8landmark")).unwrap().size;
        let end = addr + size;
        let frames = user(&symbols, us(), &[addr, end]);
        assert!(names(&frames).iter().all(|name| name.ends_with("landmark")), "{frames:?}");
        assert_eq!(frames[1][0].offset, size);
        assert_eq!(frames[1][0].addr, end);
        // As a leaf it does not.
        assert!(!names(&user(&symbols, us(), &[end]))[0].ends_with("landmark"));
    }

    #[test]
    fn libraries_vdso_and_nowhere() {
        let symbols = Symbols::new(PLAIN);
        let frames = user(&symbols, us(), &[libc::getenv as *const () as usize as u64, 0, u64::MAX, 0x10]);
        assert_eq!(names(&frames), ["getenv", "", "", ""]);
        assert!(frames[0][0].module.as_ref().unwrap().contains("libc"));
        assert_eq!(frames[2][0], Frame { addr: u64::MAX, ..Frame::default() });
        let vdso = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
        assert_eq!(user(&symbols, us(), &[vdso])[0][0].module.as_deref(), Some("[vdso]"));
    }

    #[test]
    fn kernel() {
        let kallsyms = std::fs::read_to_string("/proc/kallsyms").unwrap();
        let find =
            |name: &str| kallsyms.lines().find(|l| l.ends_with(&format!(" T {name}"))).and_then(|l| u64::from_str_radix(&l[..16], 16).ok());
        let Some(addr) = find("schedule").filter(|a| *a != 0) else { return eprintln!("skipped: needs to read kallsyms") };
        let symbols = Symbols::new(PLAIN);
        let frame = symbols.kernel_name(addr + 5).unwrap();
        assert_eq!((frame.symbol.as_deref(), frame.offset), (Some("schedule"), 5));
        let mut first = None;
        symbols.kernel(&[1, addr], None, &mut |frames| _ = first.get_or_insert(frames.into_owned()));
        assert_eq!(first, Some([Frame { addr: 1, ..Frame::default() }].into_iter().collect()));
        assert_eq!(symbols.kernel_name(1), None);
    }

    /// The child of [`exited_child`]: a library that no other process has, loaded by a thread after exec.
    #[test]
    fn as_child() {
        let Ok(out) = std::env::var("RBT_TEST_CHILD") else { return };
        let load = || unsafe {
            let library = libc::dlopen(c"libthread_db.so.1".as_ptr(), libc::RTLD_LAZY);
            libc::dlsym(library, c"td_ta_new".as_ptr()) as usize as u64
        };
        let library = std::thread::spawn(load).join().unwrap();
        let address = landmark as fn(u64) -> u64 as usize as u64;
        std::fs::write(out, format!("{library} {address}")).unwrap();
    }

    fn addresses_of_child(wrap: impl Fn(&str) -> String) -> (u32, Symbols, Vec<u64>) {
        let out = std::env::temp_dir().join(format!("rbt-addrs-{}-{:?}", us(), std::thread::current().id()));
        let exe = std::env::current_exe().unwrap();
        let run = format!("env RBT_TEST_CHILD='{}' {} -q --exact runtime::symbolize::tests::as_child", out.display(), exe.display());
        let mut child = Child::prepare(&wrap(&run)).unwrap();
        let symbols = Symbols::new(PLAIN);
        symbols.watch(child.pid());
        child.start().unwrap();
        let exit = loop {
            match child.exited().unwrap() {
                Some(exit) => break exit,
                None => std::thread::sleep(std::time::Duration::from_millis(1)),
            }
        };
        assert_eq!(exit, Exit::Code(0));
        let text = std::fs::read_to_string(&out).unwrap();
        std::fs::remove_file(&out).unwrap();
        (child.pid(), symbols, text.split(' ').map(|a| a.parse().unwrap()).collect())
    }

    #[test]
    fn exited_child() {
        if crate::runtime::mmap_events::Recorder::open().is_err() {
            return eprintln!("skipped: needs CAP_PERFMON");
        }
        let (pid, symbols, addrs) = addresses_of_child(|run| format!("sh -c \"exec {run} >/dev/null\""));
        let frames: Vec<_> = addrs.iter().flat_map(|a| user(&symbols, pid, &[*a])[0].to_vec()).collect();
        assert_eq!(frames[0].symbol.as_deref(), Some("td_ta_new"));
        assert!(frames[0].module.as_ref().unwrap().contains("libthread_db"));
        assert!(frames[1].symbol.as_ref().unwrap().ends_with("landmark"), "{frames:?}");
    }

    #[test]
    fn deleted_binary_of_an_exited_child() {
        if crate::runtime::mmap_events::Recorder::open().is_err() {
            return eprintln!("skipped: needs CAP_PERFMON");
        }
        let exe = std::env::current_exe().unwrap();
        let copy = |name: &str| {
            let copy = std::env::temp_dir().join(format!("rbt-{name}-{}", us()));
            // in a process of its own: a child of another test could hold a descriptor for writing, and such a file cannot be executed
            assert!(std::process::Command::new("cp").args([&exe, &copy]).status().unwrap().success());
            copy
        };
        let run = |copy: &std::path::Path| {
            addresses_of_child(|run| format!("sh -c \"exec {} >/dev/null\"", run.replace(exe.to_str().unwrap(), copy.to_str().unwrap())))
        };
        // Deleted and replaced after it was recorded: held.
        let path = copy("held");
        let (pid, symbols, addrs) = run(&path);
        symbols.refresh();
        std::fs::remove_file(&path).unwrap();
        std::fs::copy("/bin/true", &path).unwrap();
        let frame = symbols.user_name(pid, addrs[1]);
        std::fs::remove_file(&path).unwrap();
        assert!(frame.unwrap().symbol.unwrap().ends_with("landmark"));
        // Deleted and replaced before it was recorded: lost, and its replacement is not mistaken for it.
        let path = copy("lost");
        let (pid, symbols, addrs) = run(&path);
        std::fs::remove_file(&path).unwrap();
        std::fs::copy(&exe, &path).unwrap();
        let frames = user(&symbols, pid, &addrs[1..]).remove(0);
        std::fs::remove_file(&path).unwrap();
        assert_eq!((frames[0].symbol.as_ref(), frames[0].module.as_deref()), (None, path.to_str()));
        assert!(frames[0].in_module().is_some_and(|place| place.starts_with("rbt-lost-")), "{frames:?}");
    }

    #[test]
    fn inlined_functions() {
        #[inline(always)]
        fn inner(x: u64) -> u64 {
            // An address within an inlined function.
            let here: u64;
            unsafe { std::arch::asm!("lea {}, [rip]", out(reg) here) };
            black_box(x);
            here
        }
        #[inline(never)]
        fn outer(x: u64) -> u64 {
            inner(black_box(x))
        }
        if cfg!(not(target_arch = "x86_64")) {
            return;
        }
        let frames = user(&Symbols::new(LINES), us(), &[outer(1)]).remove(0);
        assert_eq!(frames.len(), 2, "{frames:?}");
        assert!(frames[0].inlined && frames[0].symbol.as_ref().unwrap().ends_with("inner"), "{frames:?}");
        assert!(!frames[1].inlined && frames[1].symbol.as_ref().unwrap().ends_with("outer"), "{frames:?}");
        let line = |i: usize| frames[i].source.as_ref().unwrap().1;
        assert!(line(0) < line(1), "{frames:?}");
    }

    #[test]
    fn compiled_just_in_time() {
        let pid = us();
        let memory = unsafe {
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        } as usize as u64;
        let symbols = Symbols::new(PLAIN);
        assert_eq!(names(&user(&symbols, pid, &[memory])), [""]);
        let map = format!("/tmp/perf-{pid}.map");
        std::fs::write(&map, format!("{memory:x} 20 jitted code\n")).unwrap();
        // an address without a name is not looked up again at once: see `perf_map`
        std::thread::sleep(std::time::Duration::from_millis(5));
        let frames = user(&symbols, pid, &[memory + 4, memory + 0x20, memory + 0x21]);
        std::fs::remove_file(map).unwrap();
        assert_eq!(names(&frames), ["jitted code", "jitted code", ""]);
        assert_eq!(frames[1][0].offset, 0x20);
    }
}
