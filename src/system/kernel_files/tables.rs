//! Where the tables of a kernel image are.
//!
//! Symbols mark their ends. A kernel without `CONFIG_KALLSYMS_ALL` has no symbols of variables, and only the contents show the
//! tables. The linker places those that only the boot needs one after another (`INIT_DATA` of include/asm-generic/vmlinux.lds.h).

use std::ops::Range;

use super::code::{self, Symbols};
use super::events::{self, Layout};
use super::image::{Image, pointers};

/// The tables, as bytes of the image.
#[derive(Debug, Default)]
pub(super) struct Tables<'a> {
    /// `__mcount_loc`: pointers to the instructions that ftrace may patch.
    pub(super) patch_sites: Option<&'a [u8]>,
    /// The addresses that are freed after the boot.
    pub(super) init: Range<u64>,
    /// `_kprobe_blacklist`: pointers to functions.
    pub(super) kprobe_blacklist: &'a [u8],
    /// Entries of the size [`code::INJECTABLE`].
    pub(super) error_injection: &'a [u8],
    /// `_ftrace_events`: pointers to `struct trace_event_call`.
    pub(super) events: Option<&'a [u8]>,
    /// `_ftrace_eval_map`: pointers to `struct trace_eval_map`.
    pub(super) eval_maps: &'a [u8],
    /// `sys_call_table` and what follows it: pointers to functions.
    pub(super) calls: Option<&'a [u8]>,
}

impl<'a> Tables<'a> {
    /// Finds the tables. Without a layout of events, those of events are unknown.
    pub(super) fn find(image: &'a Image<'_>, symbols: &Symbols, layout: Option<&Layout>) -> Self {
        let by_symbols = Self::by_symbols(image, symbols);
        let has_code = symbols.code().next().is_some();
        if by_symbols.patch_sites.is_none() && has_code { Self::by_contents(image, symbols, layout) } else { by_symbols }
    }

    fn by_symbols(image: &'a Image<'_>, symbols: &Symbols) -> Self {
        let table = |name: &str| {
            let range = symbols.range(&format!("__start_{name}"), &format!("__stop_{name}"))?;
            image.between(range.start, range.end)
        };
        Self {
            patch_sites: table("mcount_loc"),
            init: symbols.range("__init_begin", "__init_end").unwrap_or_default(),
            kprobe_blacklist: table("kprobe_blacklist").unwrap_or_default(),
            error_injection: table("error_injection_whitelist").unwrap_or_default(),
            events: table("ftrace_events"),
            eval_maps: table("ftrace_eval_maps").unwrap_or_default(),
            calls: symbols.address("sys_call_table").and_then(|at| image.from(at)),
        }
    }

    fn by_contents(image: &'a Image<'_>, symbols: &Symbols, layout: Option<&Layout>) -> Self {
        let is_code = |at: u64| image.is_code(at);
        let is_function = |at: u64| is_code(at) && symbols.at(at).is_some_and(|(_, into)| into == 0);
        let bytes = |range: Range<u64>| image.between(range.start, range.end).unwrap_or_default();
        // No other table has a pointer to a large part of all functions. In that of symbols, addresses are relative, at least in
        // kernels for these machines.
        let functions = symbols.code().count();
        let mut tables = Self {
            patch_sites: longest(image, is_code).map(bytes).filter(|table| table.len() / 8 > functions / 4),
            init: symbols.range("_sinittext", "_einittext").unwrap_or_default(),
            calls: longest(image, |at| is_code(at) && events::implements_call(symbols, at)).map(bytes),
            ..Self::default()
        };
        let Some(layout) = layout else { return tables };
        let Some(events) = longest(image, |at| events::is_event(image, layout, at)) else { return tables };
        tables.events = Some(bytes(events.clone()));
        // The entries from an address on that pass a test: an entry has this many words.
        let entries = |start: u64, words: usize, fits: &dyn Fn(&[u64]) -> bool| {
            let rest = image.from(start).unwrap_or_default();
            let of = |entry: &&[u8]| fits(&pointers(entry).collect::<Vec<_>>());
            start..start.saturating_add((rest.chunks_exact(words * 8).take_while(of).count() * words * 8) as u64)
        };
        let eval_maps = entries(events.end, 1, &|entry| matches!(entry, [at] if events::is_eval_map(image, layout, *at)));
        let calls = entries(eval_maps.end, 1, &|entry| matches!(entry, [at] if events::is_call_metadata(image, layout, *at)));
        // Some functions are outside of the sections of code, such as those that run without address translation.
        let mut blacklist = entries(calls.end, 1, &|entry| matches!(entry, [at] if image.from(*at).is_some()));
        let injectable =
            |start| entries(start, code::INJECTABLE / 8, &|entry| matches!(entry, [at, kind] if is_function(*at) && *kind < 16));
        let mut errors = injectable(blacklist.end);
        // The first entry of that table starts with a pointer, too.
        if !blacklist.is_empty() {
            errors = injectable(blacklist.end - 8);
            blacklist.end -= if errors.is_empty() { 0 } else { 8 };
        }
        (tables.eval_maps, tables.kprobe_blacklist, tables.error_injection) = (bytes(eval_maps), bytes(blacklist), bytes(errors));
        tables
    }
}

/// The addresses of the longest sequence of pointers in the image's data for which the test holds.
fn longest(image: &Image<'_>, fits: impl Fn(u64) -> bool) -> Option<Range<u64>> {
    let mut best = 0..0;
    for section in image.sections().iter().filter(|s| !s.code) {
        let Some(start) = section.address.checked_next_multiple_of(8) else { continue };
        let mut run = start..start;
        for at in pointers(image.from(start).unwrap_or_default()) {
            let next = run.end.saturating_add(8);
            run = if fits(at) { run.start..next } else { next..next };
            if run.end - run.start > best.end - best.start {
                best = run.clone();
            }
        }
    }
    (!best.is_empty()).then_some(best)
}
