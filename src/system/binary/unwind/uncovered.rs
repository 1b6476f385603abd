//! Code without call frame information: where it is in a file, and the frames that its instructions show.

use std::ops::Range;

use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, ObjectSymbolTable, SymbolKind};

use super::compile::Span;
use crate::system::binary::file::{Segment, bytes_of};
use crate::system::machine::arch::instructions::{Follow, Followed, Frame, Frames, Instructions, Starts};

/// If all parts without information are smaller, they are linkage tables and startup code, in bytes.
const LARGE_GAP: u64 = 4 << 10;
/// In files with less code, all parts are.
const SMALL_FILE: u64 = 64 << 10;
/// Large parts that are farther apart are followed separately, in bytes.
const MAX_FOLLOWED: u64 = 16 << 20;

/// The parts of a file that have no call frame information.
pub(super) struct UncoveredRanges<'d> {
    data: &'d [u8],
    segments: &'d [Segment],
    /// Are instructions followed from the starts of functions?
    follows: bool,
    /// Does the file have information for other parts?
    described: bool,
    /// These are read when they are needed.
    symbols: Option<Symbols>,
    /// Parts that were followed from one to the other.
    together: Vec<Part>,
}

/// A part of a file, with the frames by its frame pointers and those of followed code.
struct Part {
    range: Range<u64>,
    swept: Frames,
    followed: Followed,
}

/// What is known about the functions of a file.
#[derive(Default)]
struct Symbols {
    /// Starts of functions, in order.
    functions: Vec<u64>,
    /// Procedure linkage tables: start, end, and bytes of a slot.
    tables: Vec<(u64, u64, u64)>,
    /// Pointers to functions that do not return, in order.
    endless: Vec<u64>,
    entry: Option<u64>,
}

impl<'d> UncoveredRanges<'d> {
    /// The parts of a file whose instructions are followed or not, and that has information for other parts or not.
    pub(super) fn new(data: &'d [u8], segments: &'d [Segment], follows: bool, described: bool) -> Self {
        Self { data, segments, follows, described, symbols: None, together: Vec::new() }
    }

    pub(super) fn segments(&self) -> &'d [Segment] {
        self.segments
    }

    pub(super) fn code(&self, gap: &Range<u64>) -> &'d [u8] {
        bytes_of(self.data, self.segments, gap)
    }

    fn symbols(&mut self) -> &Symbols {
        let data = self.data;
        self.symbols.get_or_insert_with(|| object::File::parse(data).map(|file| Symbols::of(&file)).unwrap_or_default())
    }

    pub(super) fn functions_in(&mut self, gap: &Range<u64>) -> &[u64] {
        self.symbols().functions_in(gap)
    }

    /// The frames of code without information.
    pub(super) fn frames(&mut self, instructions: &Instructions, code: &[u8], gap: &Range<u64>) -> Vec<(u64, Frame)> {
        let (segments, data, follows, described) = (self.segments, self.data, self.follows, self.described);
        self.symbols();
        let Some(symbols) = &self.symbols else { return Vec::new() };
        let place = self.together.partition_point(|part| part.range.start < gap.start);
        let known = self.together.get_mut(place).filter(|part| part.range == *gap);
        let (frames, followed) = match known {
            Some(part) => (std::mem::take(&mut part.swept), Some(std::mem::take(&mut part.followed))),
            None => ((instructions.frames)(code, gap.start, symbols.functions_in(gap)), None),
        };
        // all functions of such a part have frames, as V8's builtins, which call each other in their own ways
        let framed = frames.first().is_some_and(|(_, frame)| matches!(frame, Frame::Set(_)));
        let Some(follow) = instructions.follow.filter(|_| follows && !(framed && described)) else { return frames };
        let followed = followed.unwrap_or_else(|| symbols.follow(follow, (data, segments), gap, &prologues(&frames), &[], &[]));
        // Code that no path leads to may belong to another function than the code before it.
        let mut others = if framed || followed.is_empty() { frames } else { vec![(gap.start, Frame::Unknown)] };
        if let Some(thread) = thread_start(code, gap.start) {
            put(&mut others, &thread, Frame::Outermost);
        }
        merged(&followed, others)
    }

    /// Follows code through the parts of a file, unless all are small parts of a large file. Calls lead from large parts to smaller ones,
    /// such as functions in assembly beside those that have information.
    pub(super) fn follow(&mut self, instructions: &Instructions, parts: &[Range<u64>]) {
        let (Some(follow), Some(first), Some(last)) = (instructions.follow, parts.first(), parts.last()) else { return };
        let is_small = last.end.saturating_sub(first.start) <= SMALL_FILE;
        if !is_small && parts.iter().all(|part| part.end - part.start < LARGE_GAP) {
            return;
        }
        let (data, segments) = (self.data, self.segments);
        let pointers = pointers_in(data, segments);
        let symbols = self.symbols();
        let sweep = |part: &Range<u64>| (instructions.frames)(bytes_of(data, segments, part), part.start, symbols.functions_in(part));
        let swept: Vec<Frames> = parts.iter().map(sweep).collect();
        let whole = first.start..last.end;
        let described: Vec<(u64, u64)> = parts.windows(2).filter_map(|pair| Some((pair.first()?.end, pair.last()?.start))).collect();
        let near = whole.end.checked_sub(whole.start).is_some_and(|size| size <= MAX_FOLLOWED) && described.is_sorted();
        let part_of = |all: &Followed, part: &Range<u64>| {
            let (first, end) = (all.partition_point(|(at, _)| *at <= part.start), all.partition_point(|(at, _)| *at < part.end));
            let start = first.checked_sub(1).and_then(|n| all.get(n)).and_then(|(_, frame)| *frame);
            let mut frames = vec![(part.start, start)];
            frames.extend_from_slice(all.get(first..end).unwrap_or_default());
            frames
        };
        let followed: Vec<Followed> = if near {
            let prologues: Vec<u64> = swept.iter().flat_map(|frames| prologues(frames)).collect();
            let all = symbols.follow(follow, (data, segments), &whole, &prologues, &pointers, &described);
            // nothing is known of code that is not followed
            parts.iter().map(|part| if all.is_empty() { Vec::new() } else { part_of(&all, part) }).collect()
        } else {
            let alone =
                |(part, frames): (&Range<u64>, &Frames)| symbols.follow(follow, (data, segments), part, &prologues(frames), &pointers, &[]);
            parts.iter().zip(&swept).map(alone).collect()
        };
        let all = parts.iter().cloned().zip(swept).zip(followed);
        self.together = all.map(|((range, swept), followed)| Part { range, swept, followed }).collect();
        self.together.sort_by_key(|part| part.range.start);
    }
}

/// The starts of functions that set up a frame pointer.
fn prologues(frames: &[(u64, Frame)]) -> Vec<u64> {
    let pairs = frames.iter().zip(frames.iter().skip(1));
    pairs
        .filter(|((_, first), (_, next))| *first == Frame::Entered && matches!(next, Frame::Pushed(_)))
        .map(|((start, _), _)| *start)
        .collect()
}

impl Symbols {
    fn of(file: &object::File<'_>) -> Self {
        /// Sections of linkage tables in a file; a forged one may have more.
        const MAX_TABLES: usize = 8;
        let is_function = |s: &object::Symbol<'_, '_>| s.is_definition() && s.kind() == SymbolKind::Text;
        let symbols = file.symbols().chain(file.dynamic_symbols());
        let mut functions: Vec<u64> = symbols.filter(is_function).map(|s| s.address()).collect();
        functions.sort_unstable();
        functions.dedup();
        let tables = file.sections().filter(|section| section.name().is_ok_and(|name| name.starts_with(".plt") || name == ".iplt"));
        let tables = tables.take(MAX_TABLES).map(|s| (s.address(), s.address().saturating_add(s.size()), s.align().clamp(8, 16))).collect();
        let names = file.dynamic_symbol_table();
        let endless = |(at, relocation): (u64, object::Relocation)| {
            let object::RelocationTarget::Symbol(symbol) = relocation.target() else { return None };
            let symbol = names.as_ref()?.symbol_by_index(symbol).ok()?;
            never_returns(symbol.name().ok()?).then_some(at)
        };
        let mut endless: Vec<u64> = file.dynamic_relocations().into_iter().flatten().filter_map(endless).collect();
        endless.sort_unstable();
        Self { functions, tables, endless, entry: Some(file.entry()).filter(|entry| *entry > 0 && starts_program(file, *entry)) }
    }

    fn follow(
        &self,
        follow: Follow,
        (data, segments): (&[u8], &[Segment]),
        part: &Range<u64>,
        prologues: &[u64],
        pointers: &[u64],
        described: &[(u64, u64)],
    ) -> Followed {
        let elsewhere = |addr: u64| {
            let mut code = [0; 16];
            let known = bytes_of(data, segments, &(addr..addr.saturating_add(16)));
            code.iter_mut().zip(known).for_each(|(byte, known)| *byte = *known);
            code
        };
        let (first, end) = (pointers.partition_point(|at| *at < part.start), pointers.partition_point(|at| *at < part.end));
        let functions = [self.functions_in(part), prologues].concat();
        let starts = Starts {
            functions: &functions,
            pointers: pointers.get(first..end).unwrap_or_default(),
            described,
            tables: &self.tables,
            endless: &self.endless,
            entry: self.entry,
        };
        follow(bytes_of(data, segments, part), part.start, &starts, &elsewhere)
    }

    fn functions_in(&self, gap: &Range<u64>) -> &[u64] {
        let all = &self.functions;
        let (first, end) = (all.partition_point(|s| *s < gap.start), all.partition_point(|s| *s < gap.end));
        all.get(first..end).unwrap_or_default()
    }
}

/// Is a file's entry the outermost function of a process? Linkers write any address into that of a library.
fn starts_program(file: &object::File<'_>, entry: u64) -> bool {
    /// `xor %ebp,%ebp` or `xor %rbp,%rbp`, by which the psABI has it mark the outermost frame, and, in a loader, `mov %rsp,%rdi`, because
    /// the arguments are on the stack.
    const STARTS: [&[u8]; 3] = [b"\x31\xed", b"\x48\x31\xed", b"\x48\x89\xe7"];
    /// `endbr64`, which may precede them.
    const ENDBR: &[u8] = b"\xf3\x0f\x1e\xfa";
    if file.kind() == object::ObjectKind::Executable {
        return true;
    }
    let code = file.segments().find_map(|s| s.data_range(entry, 7).ok().flatten()).unwrap_or_default();
    let code = code.strip_prefix(ENDBR).unwrap_or(code);
    STARTS.iter().any(|start| code.starts_with(start))
}

/// The code of a new thread in musl's `clone`, from its first instruction to the one after its end. Nothing leads there but the kernel, and
/// a stripped library has no symbol for it.
fn thread_start(code: &[u8], addr: u64) -> Option<Range<u64>> {
    /// `xor %ebp,%ebp`, `pop %rdi` and `call *%r9`
    const START: [u8; 6] = [0x31, 0xed, 0x5f, 0x41, 0xff, 0xd1];
    /// `syscall`, which is exit(2), and `hlt`
    const END: [u8; 3] = [0x0f, 0x05, 0xf4];
    /// Bytes between them.
    const CODE: usize = 16;
    let start = memchr::memmem::find(code, &START)?;
    let rest = code.get(start + START.len()..)?;
    let end = memchr::memmem::find(rest.get(..CODE).unwrap_or(rest), &END)?;
    let start = addr + start as u64;
    Some(start..start + (START.len() + end + END.len()) as u64)
}

/// Sets the frame of a range.
fn put(frames: &mut Vec<(u64, Frame)>, range: &Range<u64>, frame: Frame) {
    let after = frames.iter().rev().find(|(at, _)| *at <= range.end).map_or(Frame::Unknown, |(_, frame)| *frame);
    frames.retain(|(at, _)| *at < range.start || *at > range.end);
    let at = frames.partition_point(|(at, _)| *at < range.start);
    frames.splice(at..at, [(range.start, frame), (range.end, after)]);
}

/// Functions of common libraries that do not return.
fn never_returns(name: &str) -> bool {
    /// Of the C library, and of exceptions.
    const NAMES: [&str; 32] = [
        "_Exit",
        "_Unwind_Resume",
        "_ZSt9terminatev",
        "__assert",
        "__assert_fail",
        "__assert_perror_fail",
        "__chk_fail",
        "__cxa_bad_cast",
        "__cxa_bad_typeid",
        "__cxa_call_unexpected",
        "__cxa_pure_virtual",
        "__cxa_rethrow",
        "__cxa_throw",
        "__cxa_throw_bad_array_new_length",
        "__fortify_fail",
        "__libc_start_main",
        "__longjmp_chk",
        "__stack_chk_fail",
        "_exit",
        "_longjmp",
        "abort",
        "err",
        "errx",
        "exit",
        "longjmp",
        "pthread_exit",
        "quick_exit",
        "siglongjmp",
        "thrd_exit",
        "verr",
        "verrx",
        "__libc_fatal",
    ];
    NAMES.contains(&name) || name.starts_with("_ZSt") && name.contains("__throw_")
}

/// The parts of a segment without information.
pub(super) fn uncovered(segment: &Segment, spans: &[Span]) -> Vec<Range<u64>> {
    let end = segment.address.saturating_add(segment.size);
    let first = spans.partition_point(|s| s.end <= segment.address);
    let mut all = Vec::new();
    let mut at = segment.address;
    for span in spans.get(first..).unwrap_or_default().iter().take_while(|s| s.start < end) {
        let (from, to) = (span.start.max(at), span.end.min(end));
        if from < to {
            all.push(at..from);
            at = to;
        }
    }
    all.push(at..end);
    all
}

/// Words of a file's data that are aligned addresses of its code, from relocations as well.
fn pointers_in(data: &[u8], segments: &[Segment]) -> Vec<u64> {
    /// Compilers align functions to this.
    const ALIGNMENT: u64 = 16;
    const WORD: usize = 8;
    let is_code = |addr: u64| {
        let within = |s: &Segment| addr.checked_sub(s.address).is_some_and(|at| at < s.size);
        addr.is_multiple_of(ALIGNMENT) && segments.iter().any(|s| s.executable && within(s))
    };
    let Ok(file) = object::File::parse(data) else { return Vec::new() };
    let mut all = Vec::new();
    for (_, relocation) in file.dynamic_relocations().into_iter().flatten() {
        if relocation.target() == object::RelocationTarget::Absolute {
            all.extend(Some(relocation.addend().cast_unsigned()).filter(|addr| is_code(*addr)));
        }
    }
    // Constants are not searched: without position independence, the tables of jumps have addresses, too.
    for segment in file.segments() {
        let object::SegmentFlags::Elf { p_flags, .. } = segment.flags() else { continue };
        if p_flags.contains(object::elf::PF_W) {
            let skipped = segment.address().wrapping_neg() % WORD as u64;
            let bytes = segment.data().unwrap_or_default().get(skipped as usize..).unwrap_or_default();
            all.extend(bytes.as_chunks::<WORD>().0.iter().map(|word| u64::from_le_bytes(*word)).filter(|addr| is_code(*addr)));
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Frames of followed code, and others where it was not reached.
fn merged(followed: &Followed, others: Vec<(u64, Frame)>) -> Vec<(u64, Frame)> {
    let mut all: Vec<(u64, Frame)> = Vec::with_capacity(followed.len() + others.len());
    let mut others = others.into_iter().peekable();
    let mut other = Frame::Unknown;
    let mut add = |at: u64, frame: Frame| {
        if all.last().is_none_or(|(_, known)| *known != frame) {
            all.push((at, frame));
        }
    };
    let mut known = None;
    for (at, frame) in followed {
        while let Some((addr, next)) = others.next_if(|(addr, _)| addr < at) {
            other = next;
            add(addr, known.unwrap_or(other));
        }
        if let Some((_, next)) = others.next_if(|(addr, _)| addr == at) {
            other = next;
        }
        known = *frame;
        add(*at, known.unwrap_or(other));
    }
    for (addr, next) in others {
        add(addr, known.unwrap_or(next));
    }
    all
}
