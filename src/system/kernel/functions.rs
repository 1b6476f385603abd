//! The traceable functions of the kernel: the kernel's list, and an index of it that rbt keeps between runs.
//!
//! The kernel generates the list (`available_filter_functions` of tracefs) line by line while it is read, which takes 20 ms and
//! more for 50,000 functions. The index is the same list, sorted and marked with the kprobe blacklist, in a file that supports
//! lookups by name without reading it all. It is valid for one build of the kernel and one set of modules. If the file is
//! damaged or belongs to another user, rbt ignores it and writes a new one.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crate::system::matches;

/// A traceable function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traceable<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its module; `vmlinux` for the kernel itself.
    pub module: &'a str,
    /// The kernel rejects kprobes on it (its blacklist), but not other probes.
    pub no_kprobe: bool,
    /// The name in the kernel's list, if this is another name for the same address.
    pub alias_of: Option<&'a str>,
}

impl Traceable<'_> {
    /// The name in the kernel's list.
    pub fn listed_name(&self) -> &str {
        self.alias_of.unwrap_or(self.name)
    }
}

/// The functions, sorted by name and module. A line has the name, then `\tmodule` if it is in a module, then `\t!` if it cannot
/// have kprobes, or `\t=name` if it is an alias of that function.
#[derive(Clone, Debug, Default)]
pub struct Functions {
    text: String,
    /// Start of the lines, after a header.
    start: usize,
    /// The names found so far, if they are recorded.
    used: Option<Arc<Mutex<BTreeSet<String>>>>,
}

impl PartialEq for Functions {
    fn eq(&self, other: &Self) -> bool {
        self.lines() == other.lines()
    }
}

impl Eq for Functions {}

/// The module name of the kernel itself, as in BTF.
pub const KERNEL: &str = "vmlinux";

impl Functions {
    /// Parses lines `name` or `name [module]`. `blocked` are the names in the kprobe blacklist. `kallsyms` provides aliases:
    /// for an address with several names, the list has only one (`__do_sys_getpid`, not `__x64_sys_getpid`).
    pub fn parse(list: &str, blocked: &BTreeSet<&str>, kallsyms: &str) -> Self {
        let mut lines: Vec<(&str, &str)> = list
            .lines()
            .filter_map(|line| {
                let mut words = line.split_ascii_whitespace();
                let name = words.next()?;
                let module = words.next().map_or("", |m| m.trim_start_matches('[').trim_end_matches(']'));
                Some((name, module))
            })
            // Placeholders for code that was removed (kernel/trace/ftrace.c).
            .filter(|(name, _)| !name.starts_with("__ftrace_invalid_address__") && !name.starts_with('#'))
            .collect();
        lines.sort_unstable();
        lines.dedup();
        let mut lines: Vec<(&str, &str, &str)> = lines.into_iter().map(|(name, module)| (name, module, "")).collect();
        let others = aliases(&lines, kallsyms);
        lines.extend(others);
        lines.sort_unstable();
        let mut text = String::with_capacity(list.len() + 64);
        for (name, module, alias_of) in lines {
            text.push_str(name);
            let marked = blocked.contains(name);
            if !module.is_empty() || marked || !alias_of.is_empty() {
                text.push('\t');
                text.push_str(module);
            }
            if !alias_of.is_empty() {
                text.push_str("\t=");
                text.push_str(alias_of);
            } else if marked {
                text.push_str("\t!");
            }
            text.push('\n');
        }
        Self { text, start: 0, used: None }
    }

    /// Creates the list from a header of this size and the lines of [`Functions::lines`].
    pub(in crate::system) fn from_index(text: String, start: usize) -> Self {
        Self { text, start, used: None }
    }

    /// Records the names that are found from now on.
    pub(in crate::system) fn noting(self) -> Self {
        Self { used: Some(Arc::default()), ..self }
    }

    /// The list of the recorded names only.
    pub(in crate::system) fn used(&self) -> Self {
        let found = self.used.as_ref().and_then(|n| Some(n.lock().ok()?.clone())).unwrap_or_default();
        let kept = self.lines().lines().filter(|line| found.contains(traceable(line).name));
        Self::from_index(kept.flat_map(|line| [line, "\n"]).collect(), 0)
    }

    fn note<'a>(&self, found: Traceable<'a>) -> Traceable<'a> {
        if let Some(mut used) = self.used.as_ref().and_then(|n| n.lock().ok()) {
            used.insert(found.name.to_owned());
        }
        found
    }

    /// The lines, as one text.
    pub(in crate::system) fn lines(&self) -> &str {
        self.text.get(self.start..).unwrap_or("")
    }

    /// Number of functions.
    pub fn count(&self) -> usize {
        self.lines().bytes().filter(|b| *b == b'\n').count()
    }

    /// All functions, sorted.
    pub fn all(&self) -> impl Iterator<Item = Traceable<'_>> {
        self.lines().lines().map(traceable)
    }

    /// The functions with this name: one for each module that has it.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Traceable<'a>> {
        self.from(name).take_while(move |f| f.name == name).map(|f| self.note(f))
    }

    /// The functions that match, without those that wildcards never match.
    pub fn matching<'a, 'p>(&'a self, name: &'p str, module: &'p str) -> impl Iterator<Item = Traceable<'a>> + use<'a, 'p> {
        let head = name.split('*').next().unwrap_or("");
        self.from(head)
            .take_while(move |f| f.name.starts_with(head))
            .filter(move |f| matches(name, f.name) && (module == "*" || matches(module, f.module)))
            .filter(|f| f.alias_of.is_none() && !is_never_matched(f.name))
            .map(|f| self.note(f))
    }

    /// The functions whose names start with this text.
    pub(in crate::system) fn starting<'a>(&'a self, head: &'a str) -> impl Iterator<Item = Traceable<'a>> {
        self.from(head).take_while(move |f| f.name.starts_with(head)).map(|f| self.note(f))
    }

    /// The functions from this name onward.
    fn from<'a>(&'a self, name: &str) -> impl Iterator<Item = Traceable<'a>> + use<'a> {
        let text = self.lines();
        let bytes = text.as_bytes();
        let (mut low, mut high) = (0, text.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let line = bytes.get(..middle).and_then(|b| b.iter().rposition(|b| *b == b'\n')).map_or(0, |p| p + 1);
            let end = bytes.get(middle..).and_then(|b| b.iter().position(|b| *b == b'\n')).map_or(text.len(), |p| middle + p + 1);
            match traceable(text.get(line..end).unwrap_or("")).name.cmp(name) {
                Ordering::Less => low = end,
                Ordering::Equal | Ordering::Greater => high = line,
            }
        }
        text.get(low..).unwrap_or("").lines().map(traceable)
    }
}

fn traceable(line: &str) -> Traceable<'_> {
    let mut parts = line.trim_end_matches('\n').split('\t');
    let name = parts.next().unwrap_or("");
    let module = parts.next().filter(|m| !m.is_empty()).unwrap_or(KERNEL);
    let mark = parts.next().unwrap_or("");
    Traceable { name, module, no_kprobe: mark == "!", alias_of: mark.strip_prefix('=') }
}

/// Finds aliases of listed functions: (name, module, listed name).
fn aliases<'a>(listed: &[(&'a str, &'a str, &'a str)], kallsyms: &'a str) -> Vec<(&'a str, &'a str, &'a str)> {
    let symbols = || code(kallsyms).filter(|s| s.address != 0);
    let is_listed = |name: &str, module: &str| listed.binary_search_by(|l| (l.0, l.1).cmp(&(name, module))).is_ok();
    let mut places: Vec<(u64, &str)> = symbols().filter(|s| is_listed(s.name, s.module)).map(|s| (s.address, s.name)).collect();
    places.sort_unstable();
    let mut found: Vec<_> = symbols()
        .filter(|s| !is_listed(s.name, s.module) && !is_padding(s.name))
        .filter_map(|s| {
            let at = places.binary_search_by_key(&s.address, |p| p.0).ok()?;
            Some((s.name, s.module, places.get(at)?.1))
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// A code symbol in `/proc/kallsyms`.
struct Code<'a> {
    address: u64,
    name: &'a str,
    /// Empty for the kernel itself.
    module: &'a str,
}

fn code(kallsyms: &str) -> impl Iterator<Item = Code<'_>> {
    kallsyms.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
        let module = words.next().map_or("", |m| m.trim_start_matches('[').trim_end_matches(']'));
        matches!(kind, "t" | "T" | "w" | "W").then(|| Code { address: u64::from_str_radix(address, 16).unwrap_or(0), name, module })
    })
}

/// Is it padding that the compiler puts between functions?
pub(in crate::system) fn is_padding(name: &str) -> bool {
    ["__pfx_", "__cfi_", "__SCT__", ".L"].iter().any(|p| name.starts_with(p))
}

/// Functions that no wildcard matches, because a probe there would recurse or stop the machine, or because they are parts of
/// other functions.
pub fn is_never_matched(name: &str) -> bool {
    name.starts_with("rcu_")
        || name.starts_with("__ftrace_invalid_address__")
        || name.contains(".part.")
        || matches!(name, "arch_cpu_idle" | "default_idle" | "bpf_dispatcher_xdp_func")
}

/// The entries of the symbol table for a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    /// There is a function with exactly this name.
    pub is_exact: bool,
    /// The compiler's variants: `name.isra.0`, `name.constprop.0`, `name.part.0`, `name.cold`; sorted.
    pub parts: Vec<String>,
}

/// Looks up a function in the lines of `/proc/kallsyms`.
pub fn symbols(kallsyms: &str, name: &str) -> Symbols {
    let mut found = Symbols::default();
    for symbol in code(kallsyms) {
        match symbol.name.strip_prefix(name) {
            Some("") => found.is_exact = true,
            Some(rest) if rest.starts_with('.') => found.parts.push(symbol.name.into()),
            Some(_) | None => {}
        }
    }
    found.parts.sort_unstable();
    found.parts.dedup();
    found
}

/// Size of a function in bytes, up to the next symbol in `/proc/kallsyms`. `None` for the last one, or if addresses are hidden.
pub fn length(kallsyms: &str, module: &str, name: &str) -> Option<u64> {
    let home = if module == KERNEL { "" } else { module };
    let start = code(kallsyms).find(|s| s.name == name && s.module == home && s.address != 0)?.address;
    let next = code(kallsyms).filter(|s| s.address > start && !s.name.starts_with(".L")).map(|s| s.address).min()?;
    Some(next - start)
}

/// Returns the names of code, or of data, in `/proc/kallsyms`, without those that the compiler and the linker generate.
pub(in crate::system) fn names(kallsyms: &str, of_code: bool) -> BTreeSet<&str> {
    // Prefixes of generated names, followed by a number or the name of an object.
    const GENERATED_PREFIXES: &[&str] =
        &["__UNIQUE_ID_", "__ksymtab_", "__kstrtab", "__crc_", "__func__", "__key", "__SCK__", "__tpstrtab_", ".", "$"];
    if of_code {
        return code(kallsyms).map(|s| s.name).filter(|n| !is_padding(n)).collect();
    }
    let data = kallsyms.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (kind, name) = (words.next()?, words.next()?);
        matches!(kind, "b" | "B" | "d" | "D" | "r" | "R" | "a" | "A" | "v" | "V").then_some(name)
    });
    data.filter(|n| !GENERATED_PREFIXES.iter().any(|m| n.starts_with(m)) && !n.contains('.')).collect()
}

/// Converts the code symbols of `/proc/kallsyms` to the format of the kernel's list, for users who cannot read that list.
pub fn from_symbols(kallsyms: &str) -> String {
    let mut list = String::new();
    for symbol in code(kallsyms) {
        let trampoline = ["__traceiter_", "__probestub_"].iter().any(|p| symbol.name.starts_with(p));
        if !trampoline && !is_padding(symbol.name) && !symbol.name.contains(".cold") {
            list.push_str(symbol.name);
            if !symbol.module.is_empty() {
                list.push_str(" [");
                list.push_str(symbol.module);
                list.push(']');
            }
            list.push('\n');
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str =
        "vfs_write\nvfs_read\n__ftrace_invalid_address___8\nfuse_open [fuse]\nrcu_note\nvfs_read.part.0\nvfs_open\nvfs_open [odd]\n";

    fn functions() -> Functions {
        Functions::parse(LIST, &BTreeSet::from(["vfs_write"]), "")
    }

    #[test]
    fn a_function_ends_where_the_next_begins() {
        let text = "ffffffff81000000 T one\nffffffff81000000 t alias\nffffffff81000008 t .L1\nffffffff81000040 T two\nffffffff81000020 D data\n\
                    ffffffffc0000100 t one\t[odd]\nffffffffc0000180 t last\t[odd]\n";
        assert_eq!((length(text, KERNEL, "one"), length(text, "odd", "one")), (Some(0x40), Some(0x80)));
        assert_eq!(
            (length(text, "odd", "last"), length(text, KERNEL, "none"), length("0 T one\n0 T two\n", KERNEL, "one")),
            (None, None, None)
        );
    }

    #[test]
    fn names_are_found() {
        let f = functions();
        assert_eq!(f.count(), 7);
        let open: Vec<_> = f.named("vfs_open").map(|f| f.module).collect();
        assert_eq!(open, ["vmlinux", "odd"]);
        assert_eq!(f.named("vfs_rea").count() + f.named("zzz").count() + f.named("").count(), 0);
        let write: Vec<_> = f.named("vfs_write").collect();
        assert_eq!(write, [Traceable { name: "vfs_write", module: "vmlinux", no_kprobe: true, alias_of: None }]);
        for one in f.all() {
            assert!(f.named(one.name).any(|found| found == one), "{one:?}");
        }
    }

    #[test]
    fn wildcards_omit_untraceable_functions() {
        let f = functions();
        let names = |name, module| f.matching(name, module).map(|f| f.name.to_owned()).collect::<Vec<_>>();
        assert_eq!(names("*", "*"), ["fuse_open", "vfs_open", "vfs_open", "vfs_read", "vfs_write"]);
        assert_eq!(names("vfs_*", "vmlinux"), ["vfs_open", "vfs_read", "vfs_write"]);
        assert_eq!(names("*open", "fuse"), ["fuse_open"]);
        assert_eq!(names("v*_r*d", "*"), ["vfs_read"]);
    }

    #[test]
    fn aliases_are_found_only_by_name() {
        let kallsyms =
            "f1 t __do_sys_x\nf1 T __x64_sys_x\nf0 t __pfx___do_sys_x\nf1 d data\n00 T hidden\nf2 t m_do\t[m]\nf2 t m_too\t[m]\n";
        let f = Functions::parse("__do_sys_x\nm_do [m]\n", &BTreeSet::new(), kallsyms);
        let one = |name| f.named(name).map(|f| (f.module.to_owned(), f.listed_name().to_owned())).collect::<Vec<_>>();
        assert_eq!(one("__x64_sys_x"), [("vmlinux".into(), "__do_sys_x".into())]);
        assert_eq!(one("m_too"), [("m".into(), "m_do".into())]);
        assert_eq!(f.count(), 4);
        let all: Vec<_> = f.matching("*", "*").map(|f| f.name).collect();
        assert_eq!(all, ["__do_sys_x", "m_do"]);
    }

    #[test]
    fn symbols_show_the_parts_of_a_function() {
        let text = "ff T vfs_read\nff t helper.isra.0\nff t helper.cold\nff d helper_data\nff t helper2\nff t m_open\t[m]\n";
        assert_eq!(symbols(text, "vfs_read"), Symbols { is_exact: true, parts: vec![] });
        assert_eq!(symbols(text, "helper"), Symbols { is_exact: false, parts: vec!["helper.cold".into(), "helper.isra.0".into()] });
        assert_eq!(symbols(text, "nothing"), Symbols::default());
        assert_eq!(from_symbols(text), "vfs_read\nhelper.isra.0\nhelper2\nm_open [m]\n");
    }
}
