//! Compiles the call frame information of a file into rows.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use gimli::{BaseAddresses, CieOrFde, CommonInformationEntry, EndianSlice, LittleEndian, UnwindContext, UnwindSection};
use object::read::elf::ProgramHeader;
use object::{Object, ObjectSection};

use super::entry::RuleEntry;
use super::uncovered::{UncoveredRanges, uncovered};
use super::{PAGE, PAGE_SHIFT, Page, Row, Rule, Table};
use crate::system::binary::debug_files;
use crate::system::binary::elf::segments_of;
use crate::system::binary::file::{Segment, bytes_of, offset};
use crate::system::binary::go;
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
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
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
    compiler.add_go(data, &segments);
    Some(compiler.finish(data, &segments, false))
}

fn from_data(data: &[u8]) -> Option<Compiler> {
    let file = object::File::parse(data).ok()?;
    let object::File::Elf64(elf) = &file else { return None };
    let machine = elf.elf_header().e_machine.get(elf.endian()).0;
    let arch = arch::ALL.iter().find(|arch| arch.elf == machine && file.is_little_endian())?;
    let loops = Loops::interpreter_in(&file, arch.instructions());
    let recent = vec![(Rule::UNKNOWN, None); RECENT_RULES];
    let mut compiler = Compiler { arch, rules: Vec::new(), numbers: HashMap::new(), recent, spans: Vec::new(), loops, of_go: false };
    compiler.add_eh_frame(&file, data);
    compiler.add_debug_frame(&file);
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
    /// Does Go's own table describe functions?
    of_go: bool,
}

impl Compiler {
    fn add_eh_frame(&mut self, file: &object::File<'_>, data: &[u8]) {
        let Some(section) = file.section_by_name(".eh_frame") else { return self.add_frames_by_header(file, data) };
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

    /// Adds the functions of a file without section headers: the header of the information is a segment.
    fn add_frames_by_header(&mut self, file: &object::File<'_>, data: &[u8]) {
        let object::File::Elf64(elf) = file else { return };
        let endian = elf.endian();
        let header = elf.elf_program_headers().iter().find(|segment| segment.p_type(endian) == object::elf::PT_GNU_EH_FRAME);
        let Some(segments) = header.and(segments_of(data)) else { return };
        let Some((addr, contents)) = header.and_then(|h| Some((h.p_vaddr(endian), h.data(endian, data).ok()?))) else { return };
        let bases = BaseAddresses::default().set_eh_frame_hdr(addr);
        let Ok(header) = gimli::EhFrameHdr::new(contents, LittleEndian).parse(&bases, 8) else { return };
        let gimli::Pointer::Direct(start) = header.eh_frame_ptr() else { return };
        let Some(segment) = segments.iter().find(|s| start.checked_sub(s.address).is_some_and(|at| at < s.size)) else { return };
        let range = start..segment.address.saturating_add(segment.size);
        let contents = bytes_of(data, &segments, &range);
        let mut frames = gimli::EhFrame::new(contents, LittleEndian);
        frames.set_address_size(8);
        frames.set_vendor(vendor(self.arch));
        self.add(&frames, &BaseAddresses::default().set_eh_frame(start));
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

    /// Adds Go's functions without information from its own table.
    fn add_go(&mut self, data: &[u8], segments: &[Segment]) {
        if self.arch.unwind.links || !go::is_go(data) {
            return;
        }
        self.spans.sort_by_key(|s| s.start);
        let mut gaps: Vec<Range<u64>> =
            segments.iter().filter(|s| s.executable).flat_map(|segment| uncovered(segment, &self.spans)).collect();
        gaps.sort_by_key(|gap| gap.start);
        super::go::rows(data, segments, &self.arch.unwind, |range, rule| {
            let first = gaps.partition_point(|gap| gap.end <= range.start);
            for gap in gaps.get(first..).unwrap_or_default().iter().take_while(|gap| gap.start < range.end) {
                let (start, end) = (gap.start.max(range.start), gap.end.min(range.end));
                if start < end && self.spans.len() < MAX_ROWS {
                    let rule = self.number(rule);
                    self.spans.push(Span { start, end, rule });
                    self.of_go = true;
                }
            }
        });
    }

    /// Are the instructions of code without information followed? Some functions of Go change stacks, so their information must
    /// be known.
    fn follows(&self, data: &[u8]) -> bool {
        self.arch.instructions().follow.is_some() && (self.of_go || !go::is_go(data))
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
        let follows = self.follows(data);
        let mut gaps = UncoveredRanges::new(data, segments, follows, !spans.is_empty());
        if follows {
            let is_code = |gap: &Range<u64>| gap.end - gap.start >= GAP || !(self.arch.instructions().is_padding)(gaps.code(gap));
            let parts: Vec<Range<u64>> = code.iter().flat_map(|segment| uncovered(segment, &spans)).filter(is_code).collect();
            gaps.follow(self.arch.instructions(), &parts);
        }
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
            // Where instructions are not followed, a file without any information is unwound by frame pointers entirely.
            if !spans.is_empty() || follows {
                self.fill(&mut pages, &mut gaps, at..addr + size, unknown);
            } else if signals {
                self.fill_around_signals(&mut pages, &mut gaps, at..addr + size);
            }
        }
        if follows && pages.table.pages.is_empty() {
            // an empty table stands for frame pointers
            if let Some(at) = code.first().and_then(|segment| offset(segments, segment.address)) {
                pages.row(at, unknown, true);
            }
        }
        Table { rules: self.rules, ..pages.table }
    }

    /// Adds the rules of code without information. `padding`: the rule of bytes that are not code, and of the rest of a function whose
    /// information ends at clone3(2).
    fn fill(&mut self, pages: &mut Pages, gaps: &mut UncoveredRanges<'_>, gap: Range<u64>, padding: u32) {
        let size = gap.end.saturating_sub(gap.start);
        if size == 0 {
            return;
        }
        let code = gaps.code(&gap);
        let before = gaps.code(&(gap.start.saturating_sub(16)..gap.start));
        let continues = |code: &[u8]| (self.arch.instructions().is_padding)(code) || (self.arch.instructions().calls_clone3)(before, code);
        if size < GAP && continues(code) {
            return pages.put(offset(gaps.segments(), gap.start), size, padding);
        }
        let mut frames = gaps.frames(self.arch.instructions(), code, &gap).into_iter().peekable();
        while let Some((start, frame)) = frames.next() {
            let end = frames.peek().map_or(gap.end, |(next, _)| *next);
            let rule = self.number(Rule::from_frame(frame, &self.arch.unwind));
            pages.put(offset(gaps.segments(), start), end - start, rule);
        }
    }

    /// Adds the frames of signals in code without information, and frame pointers for the rest of it.
    fn fill_around_signals(&mut self, pages: &mut Pages, gaps: &mut UncoveredRanges<'_>, gap: Range<u64>) {
        let code = gaps.code(&gap);
        let functions = gaps.functions_in(&gap);
        let frames = (self.arch.instructions().frames)(code, gap.start, functions);
        let is_signal = |frame: Frame| matches!(frame, Frame::Signal(_));
        if !frames.iter().any(|(_, frame)| is_signal(*frame)) {
            return;
        }
        let mut frames = frames.into_iter().peekable();
        while let Some((start, frame)) = frames.next() {
            let end = frames.peek().map_or(gap.end, |(next, _)| *next);
            let rule = if is_signal(frame) { Rule::from_frame(frame, &self.arch.unwind) } else { Rule::chain() };
            let rule = self.number(rule);
            pages.put(offset(gaps.segments(), start), end - start, rule);
        }
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

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::super::{Cfa, Fp, Ra};
    use super::*;
    use crate::system::binary::file::map_with_metadata;

    /// The rule at a file offset.
    fn rule_at(table: &Table, at: u64) -> Option<Rule> {
        let page = table.pages.iter().find(|page| u64::from(page.number) == at >> PAGE_SHIFT)?;
        let row = table.rows.of(page).take_while(|row| u64::from(row.start) <= at % PAGE).last()?;
        table.rules.get(row.rule as usize).copied()
    }

    /// What instructions show is what the call frame information of the same code says, or nothing.
    #[test]
    fn followed_code_agrees_with_its_call_frame_information() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("/libm.so")).unwrap();
        let data = map_with_metadata(Path::new(path)).unwrap().0;
        let segments = segments_of(&data).unwrap();
        let mut compiler = from_data(&data).unwrap();
        let described = std::mem::take(&mut compiler.spans);
        let rules = compiler.rules.clone();
        let followed = compiler.finish(&data, &segments, false);
        let (mut equal, mut silent, mut different) = (0, 0, Vec::new());
        for span in described {
            let Some(found) = offset(&segments, span.start).and_then(|at| rule_at(&followed, at)) else { continue };
            let wanted = rules[span.rule as usize];
            match (found.cfa, wanted.cfa) {
                (Cfa::Unknown, _) => silent += 1,
                // the frame may be described by either pointer, and a linkage table by one rule
                (Cfa::Sp(_), Cfa::Fp(_) | Cfa::Plt(..)) | (Cfa::Fp(_), Cfa::Sp(_)) => {}
                // after it was restored, the information still tells where the frame pointer was saved
                _ if found.cfa == wanted.cfa && (found.fp == wanted.fp || found.fp == Fp::Same) && found.ra == wanted.ra => equal += 1,
                _ => different.push((span.start, found, wanted)),
            }
        }
        assert!(equal > 1_000 && equal > 2 * silent, "{equal} equal, {silent} silent");
        assert!(different.is_empty(), "{} of {equal} differ, such as {:x?}", different.len(), &different[..different.len().min(9)]);
    }

    /// Go's own table says what the call frame information of the same program says, except where functions change stacks.
    #[test]
    fn table_of_go_agrees_with_call_frame_information() {
        let dir = std::env::temp_dir().join(format!("rbt-unwind-go-{}", std::process::id()));
        let program = dir.join("gopher");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/gopher.go");
        std::fs::create_dir_all(&dir).unwrap();
        let mut build = std::process::Command::new("go");
        let build = build.args(["build", "-o"]).arg(&program).arg(source).env("GOCACHE", dir.join("cache"));
        // without Go, there is no such program
        let built = build.output().is_ok_and(|output| output.status.success());
        let data = built.then(|| std::fs::read(&program).unwrap());
        std::fs::remove_dir_all(&dir).unwrap();
        let Some(data) = data else { return };
        let segments = segments_of(&data).unwrap();
        let mut compiler = from_data(&data).unwrap();
        let described = std::mem::take(&mut compiler.spans);
        compiler.add_go(&data, &segments);
        let rules = compiler.rules.clone();
        let found = compiler.finish(&data, &segments, false);
        let (mut equal, mut silent, mut different) = (0, 0, Vec::new());
        for span in described {
            let wanted = rules[span.rule as usize];
            match offset(&segments, span.start).and_then(|at| rule_at(&found, at)) {
                None => silent += 1,
                Some(found) if found.cfa == wanted.cfa && found.ra == wanted.ra => equal += 1,
                Some(found) if found.signal || matches!(found.cfa, Cfa::Fp(16) | Cfa::Unknown) => silent += 1,
                // Go's call frame information does not say where a stack ends
                Some(found) if found.ra == Ra::None => silent += 1,
                Some(found) => different.push((span.start, found, wanted)),
            }
        }
        assert!(equal > 5_000 && silent * 100 < equal, "{equal} equal, {silent} silent");
        assert!(different.is_empty(), "{} of {equal} differ, such as {:x?}", different.len(), &different[..different.len().min(9)]);
        assert!(found.rules.iter().any(|rule| rule.signal) && found.rules.iter().any(|rule| rule.ra == Ra::None));
    }
}
