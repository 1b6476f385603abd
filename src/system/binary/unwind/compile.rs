//! Compiles the call frame information of a file into rows.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use gimli::{BaseAddresses, CieOrFde, CommonInformationEntry, EndianSlice, LittleEndian, UnwindContext, UnwindSection};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

use super::entry::RuleEntry;
use super::{PAGE, PAGE_SHIFT, Page, Row, Rule, Table};
use crate::system::binary::debug_files;
use crate::system::binary::elf::segments_of;
use crate::system::binary::file::{Segment, offset};
use crate::system::binary::interpreters::Loops;
use crate::system::machine::arch::instructions::Frame;
use crate::system::machine::arch::{self, Arch};

type Slice<'d> = EndianSlice<'d, LittleEndian>;

/// A longer gap between two functions is not only padding for alignment.
const GAP: u64 = 64;
/// Limit for forged files. Each row needs at least one byte of the file.
const MAX_ROWS: usize = 64 << 20;
/// The same for the common part of several functions, which is processed for each of them, in bytes. Compilers need
/// less than 32.
const MAX_CIE_SIZE: usize = 4 << 10;
/// Places for rules that were numbered lately.
const RECENT_RULES: usize = 1 << 10;
/// The same as [`MAX_ROWS`] for a compressed section, in bytes.
const MAX_SECTION_SIZE: u64 = 1 << 30;

/// A rule and its address range.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    end: u64,
    rule: u32,
}

/// Compiles the table of a file with these contents: see [`table`](super::table()).
pub(super) fn compile(name: &Path, data: &[u8], dirs: &[String]) -> Option<Table> {
    let mut compiler = from_data(data)?;
    let segments = segments_of(data)?;
    if compiler.describes_little(&segments)
        && let Some(separate) = debug_files::find(name, data, dirs, |f| f.section_by_name(".debug_frame").is_some())
        && let Ok(file) = object::File::parse(&*separate.data)
    {
        compiler.add_debug_frame(&file);
    }
    Some(compiler.finish(data, &segments, false))
}

fn from_data(data: &[u8]) -> Option<Compiler> {
    let file = object::File::parse(data).ok()?;
    let object::File::Elf64(elf) = &file else { return None };
    let machine = elf.elf_header().e_machine.get(elf.endian()).0;
    let arch = arch::ALL.iter().find(|arch| arch.elf == machine && file.is_little_endian())?;
    let loops = Loops::interpreter_in(&file, &arch.instructions);
    let recent = vec![(Rule::UNKNOWN, None); RECENT_RULES];
    let mut compiler = Compiler { arch, rules: Vec::new(), numbers: HashMap::new(), recent, spans: Vec::new(), loops };
    compiler.add_eh_frame(&file);
    compiler.add_debug_frame(&file);
    compiler.add_outermost(&file, data);
    Some(compiler)
}

/// Compiles the table of an ELF image in memory, such as the vDSO. The table is empty without call frame information.
pub fn compile_image(data: &[u8]) -> Table {
    let Some((compiler, segments)) = from_data(data).zip(segments_of(data)) else { return Table::default() };
    compiler.finish(data, &segments, true)
}

struct Compiler {
    arch: &'static Arch,
    rules: Vec<Rule>,
    numbers: HashMap<Rule, u32>,
    /// Rules that were numbered lately, by a hash that costs less than that of the map: most rows have one of a few rules.
    recent: Vec<(Rule, Option<u32>)>,
    spans: Vec<Span>,
    loops: Loops,
}

impl Compiler {
    fn add_eh_frame(&mut self, file: &object::File<'_>) {
        let Some(section) = file.section_by_name(".eh_frame") else { return };
        let Some(data) = contents(&section) else { return };
        let mut bases = BaseAddresses::default().set_eh_frame(section.address());
        if let Some(text) = file.section_by_name(".text") {
            bases = bases.set_text(text.address());
        }
        if let Some(got) = file.section_by_name(".got") {
            bases = bases.set_got(got.address());
        }
        let mut frames = gimli::EhFrame::new(&data, LittleEndian);
        frames.set_address_size(8);
        frames.set_vendor(vendor(self.arch));
        self.add(&frames, &bases);
    }

    /// Adds the functions that only `.debug_frame` describes.
    fn add_debug_frame(&mut self, file: &object::File<'_>) {
        let Some(section) = file.section_by_name(".debug_frame") else { return };
        let Some(data) = contents(&section) else { return };
        let mut frames = gimli::DebugFrame::new(&data, LittleEndian);
        frames.set_address_size(8);
        frames.set_vendor(vendor(self.arch));
        let known = self.spans.len();
        self.add(&frames, &BaseAddresses::default());
        if known == 0 {
            return;
        }
        let new = self.spans.split_off(known);
        self.spans.sort_unstable_by_key(|s| s.start);
        let spans = &self.spans;
        let is_known = |addr: u64| spans.partition_point(|s| s.start <= addr).checked_sub(1).is_some_and(|i| addr < spans[i].end);
        let more: Vec<Span> = new.into_iter().filter(|s| !is_known(s.start)).collect();
        self.spans.extend(more);
    }

    /// Adds the functions of a section; those with damaged descriptions are skipped.
    fn add<'d, S: UnwindSection<Slice<'d>>>(&mut self, frames: &S, bases: &BaseAddresses)
    where
        S::Offset: std::hash::Hash + Eq + Copy,
    {
        let mut cies: HashMap<S::Offset, CommonInformationEntry<Slice<'d>>> = HashMap::new();
        let mut context = UnwindContext::new();
        let entered = Rule::from_frame(Frame::Entered, &self.arch.unwind);
        let mut entries = frames.entries(bases);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let parsed = partial.parse(|section, bases, at| match cies.get(&at) {
                Some(known) => Ok(known.clone()),
                None => {
                    let cie = section.cie_from_offset(bases, at)?;
                    if cie.entry_len() > MAX_CIE_SIZE {
                        return Err(gimli::Error::CfiInstructionInInvalidContext);
                    }
                    cies.insert(at, cie.clone());
                    Ok(cie)
                }
            });
            let Ok(fde) = parsed else { continue };
            let (signal, encoding) = (fde.is_signal_trampoline(), fde.cie().encoding());
            let function = fde.initial_address()..fde.initial_address().saturating_add(fde.len());
            let mut interpreter = self.loops.starts_at(function.start);
            let Ok(mut rows) = fde.rows(frames, bases, &mut context) else { continue };
            while let Ok(Some(row)) = rows.next_row() {
                if row.start_address() >= row.end_address() {
                    continue;
                }
                if self.spans.len() >= MAX_ROWS {
                    return;
                }
                let rule = Rule::of(row, frames, signal, encoding, &self.arch.unwind);
                // the target of a function's jump is part of the function, unless a call could lead there
                let inside = row.start_address() == function.start && rule.cfa != entered.cfa;
                interpreter |= inside && self.loops.jump_into(&function);
                let rule = self.number(Rule { interpreter, ..rule });
                self.spans.push(Span { start: row.start_address(), end: row.end_address(), rule });
            }
        }
    }

    /// Adds the outermost functions that the file does not describe: its entry point, as in musl and in glibc's dynamic loader, and the
    /// start of threads in musl.
    fn add_outermost(&mut self, file: &object::File<'_>, data: &[u8]) {
        /// Bytes of the longest: that of glibc's loader has 80.
        const MAX_SIZE: u64 = 96;
        /// They clear the frame pointer: `xor %ebp,%ebp`.
        const CLEARS: [u8; 2] = [0x31, 0xed];
        if self.spans.is_empty() || self.arch.unwind.links || file.entry() == 0 {
            return;
        }
        self.spans.sort_by_key(|s| s.start);
        let spans = &self.spans;
        let next = |addr: u64| spans.partition_point(|s| s.end <= addr);
        let is_known = |addr: u64| spans.get(next(addr)).is_some_and(|span| span.start <= addr);
        if is_known(file.entry()) {
            return;
        }
        let functions = |s: &object::Symbol<'_, '_>| s.is_definition() && s.kind() == SymbolKind::Text;
        let symbols: Vec<_> = file.symbols().chain(file.dynamic_symbols()).filter(functions).collect();
        let end = |addr: u64| {
            let following = symbols.iter().map(ObjectSymbol::address).filter(|other| *other > addr).min();
            let described = spans.get(next(addr)).map(|span| span.start);
            following.into_iter().chain(described).fold(addr.saturating_add(MAX_SIZE), u64::min)
        };
        let segments = segments_of(data).unwrap_or_default();
        let cleared = |start: u64| {
            let code = UncoveredRanges { data, segments: &segments, functions: None }.code(&(start..end(start)));
            Some(start + code.windows(CLEARS.len()).position(|bytes| bytes == CLEARS)? as u64)
        };
        let threads = symbols.iter().filter(|s| matches!(s.name(), Ok("clone" | "__clone"))).map(ObjectSymbol::address);
        let threads = threads.filter(|addr| !is_known(*addr)).filter_map(|addr| Some((cleared(addr)?, end(addr))));
        let ranges: std::collections::BTreeSet<(u64, u64)> = threads.chain([(file.entry(), end(file.entry()))]).collect();
        let rule = self.number(Rule::OUTERMOST);
        self.spans.extend(ranges.into_iter().map(|(start, end)| Span { start, end, rule }));
    }

    /// Is less than half of the code described? The code that the C runtime adds to a program always is.
    fn describes_little(&self, segments: &[Segment]) -> bool {
        let code = segments.iter().filter(|s| s.executable).fold(0u64, |sum, s| sum.saturating_add(s.size));
        let described = self.spans.iter().fold(0u64, |sum, span| sum.saturating_add(span.end - span.start));
        described < code / 2
    }

    fn number(&mut self, rule: Rule) -> u32 {
        let place = RuleEntry::from(&rule).place() % RECENT_RULES;
        if let Some((known, Some(number))) = self.recent.get(place)
            && *known == rule
        {
            return *number;
        }
        let rules = &mut self.rules;
        let number = *self.numbers.entry(rule).or_insert_with(|| {
            rules.push(rule);
            (rules.len() - 1) as u32
        });
        if let Some(place) = self.recent.get_mut(place) {
            *place = (rule, Some(number));
        }
        number
    }

    /// `signals`: an image without any information gets rows if it has the frame of a signal, as the vDSO of AArch64.
    fn finish(mut self, data: &[u8], segments: &[Segment], signals: bool) -> Table {
        let unknown = self.number(Rule::UNKNOWN);
        self.spans.sort_by_key(|s| s.start);
        let mut pages = Pages { table: Table::default(), unknown };
        let mut code: Vec<&Segment> = segments.iter().filter(|s| s.executable).collect();
        code.sort_by_key(|s| s.offset);
        let spans = std::mem::take(&mut self.spans);
        // a file without any information is unwound by frame pointers entirely
        let mut gaps = UncoveredRanges { data, segments, functions: None };
        for &&Segment { address: addr, size, .. } in &code {
            let first = spans.partition_point(|s| s.end <= addr);
            let mut at = addr;
            for span in spans.get(first..).unwrap_or(&[]).iter().take_while(|s| s.start < addr + size) {
                let (start, end) = (span.start.max(at), span.end.min(addr + size));
                if start >= end {
                    continue;
                }
                // Padding continues the previous rule. Before the first row, it gets the rule of the first function.
                let padding = pages.last().unwrap_or(span.rule);
                self.fill(&mut pages, &mut gaps, at..start, padding);
                pages.put(offset(segments, start), end - start, span.rule);
                at = end;
            }
            if !spans.is_empty() {
                self.fill(&mut pages, &mut gaps, at..addr + size, unknown);
            } else if signals {
                self.fill_around_signals(&mut pages, &mut gaps, at..addr + size);
            }
        }
        Table { rules: self.rules, ..pages.table }
    }

    /// Adds the rules of code without information. `padding`: the rule of bytes that are not code.
    fn fill(&mut self, pages: &mut Pages, gaps: &mut UncoveredRanges<'_>, gap: Range<u64>, padding: u32) {
        let size = gap.end.saturating_sub(gap.start);
        if size == 0 {
            return;
        }
        let code = gaps.code(&gap);
        if size < GAP && (self.arch.instructions.is_padding)(code) {
            return pages.put(offset(gaps.segments, gap.start), size, padding);
        }
        let functions = gaps.functions_in(&gap);
        let mut frames = (self.arch.instructions.frames)(code, gap.start, functions).into_iter().peekable();
        while let Some((start, frame)) = frames.next() {
            let end = frames.peek().map_or(gap.end, |(next, _)| *next);
            let rule = self.number(Rule::from_frame(frame, &self.arch.unwind));
            pages.put(offset(gaps.segments, start), end - start, rule);
        }
    }

    /// Adds the frames of signals in code without information, and frame pointers for the rest of it.
    fn fill_around_signals(&mut self, pages: &mut Pages, gaps: &mut UncoveredRanges<'_>, gap: Range<u64>) {
        let code = gaps.code(&gap);
        let functions = gaps.functions_in(&gap);
        let frames = (self.arch.instructions.frames)(code, gap.start, functions);
        let is_signal = |frame: Frame| matches!(frame, Frame::Signal(_));
        if !frames.iter().any(|(_, frame)| is_signal(*frame)) {
            return;
        }
        let mut frames = frames.into_iter().peekable();
        while let Some((start, frame)) = frames.next() {
            let end = frames.peek().map_or(gap.end, |(next, _)| *next);
            let rule = if is_signal(frame) { Rule::from_frame(frame, &self.arch.unwind) } else { Rule::chain() };
            let rule = self.number(rule);
            pages.put(offset(gaps.segments, start), end - start, rule);
        }
    }
}

/// The parts of a file that have no call frame information.
struct UncoveredRanges<'d> {
    data: &'d [u8],
    segments: &'d [Segment],
    /// Starts of functions by the symbols, which are read when they are needed.
    functions: Option<Vec<u64>>,
}

impl<'d> UncoveredRanges<'d> {
    fn code(&self, gap: &Range<u64>) -> &'d [u8] {
        let start = offset(self.segments, gap.start).and_then(|at| usize::try_from(at).ok());
        let end = start.and_then(|start| start.checked_add(usize::try_from(gap.end - gap.start).ok()?));
        start.zip(end).and_then(|(start, end)| self.data.get(start..end.min(self.data.len()))).unwrap_or_default()
    }

    fn functions_in(&mut self, gap: &Range<u64>) -> &[u64] {
        let data = self.data;
        let all = self.functions.get_or_insert_with(|| {
            let Ok(file) = object::File::parse(data) else { return Vec::new() };
            let is_function = |s: &object::Symbol<'_, '_>| s.is_definition() && s.kind() == SymbolKind::Text;
            let symbols = file.symbols().chain(file.dynamic_symbols());
            let mut all: Vec<u64> = symbols.filter(is_function).map(|s| s.address()).collect();
            all.sort_unstable();
            all.dedup();
            all
        });
        let (first, end) = (all.partition_point(|s| *s < gap.start), all.partition_point(|s| *s < gap.end));
        all.get(first..end).unwrap_or_default()
    }
}

/// Whose instructions the information may have besides those of DWARF.
fn vendor(arch: &Arch) -> gimli::Vendor {
    // they tell which return addresses are signed
    if arch.unwind.links { gimli::Vendor::AArch64 } else { gimli::Vendor::Default }
}

/// The contents of a section, which may be compressed.
fn contents<'d>(section: &object::Section<'d, '_>) -> Option<Cow<'d, [u8]>> {
    let data = section.compressed_data().ok()?;
    (data.uncompressed_size <= MAX_SECTION_SIZE).then(|| data.decompress().ok()).flatten()
}

/// The pages under construction, in order of file offsets.
struct Pages {
    table: Table,
    unknown: u32,
}

impl Pages {
    /// The rule of the last row.
    fn last(&self) -> Option<u32> {
        self.table.rows.iter().next_back().map(|row| row.rule)
    }

    /// Adds a range of bytes with this rule.
    fn put(&mut self, offset: Option<u64>, size: u64, rule: u32) {
        let Some(mut at) = offset else { return };
        let end = at.saturating_add(size);
        // Pages without any information are omitted.
        if rule == self.unknown {
            self.row(at, rule, false);
            return;
        }
        while at < end {
            self.row(at, rule, true);
            at = (at | (PAGE - 1)) + 1;
        }
    }

    fn row(&mut self, addr: u64, rule: u32, opens: bool) {
        let Ok(number) = u32::try_from(addr >> PAGE_SHIFT) else { return };
        let start = (addr % PAGE) as u16;
        let table = &mut self.table;
        let rows = table.rows.len() as u32;
        match table.pages.last_mut() {
            Some(page) if page.number == number => {
                let last = table.rows.iter().next_back().map(|row| (row.start, row.rule));
                if last.is_some_and(|(_, known)| known == rule) {
                    return;
                }
                // Two segments can share a page of the file.
                if last.is_some_and(|(from, _)| from >= start) {
                    return;
                }
                page.count += 1;
            }
            Some(page) if page.number > number => return,
            _ if !opens => return,
            _ => {
                table.pages.push(Page { number, first: rows, count: 1 });
                if start > 0 {
                    table.rows.push(Row { start: 0, rule: self.unknown });
                    if let Some(page) = table.pages.last_mut() {
                        page.count = 2;
                    }
                }
            }
        }
        table.rows.push(Row { start, rule });
    }
}
