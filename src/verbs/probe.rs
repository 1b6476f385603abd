//! Short forms of probes.

use crate::diag::nearest;
use crate::failure::Failure;
use crate::probes::{KINDS, find};

/// Is this word a category of tracepoints?
pub type Category = fn(&str) -> bool;

/// The attach point for a part of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The text to insert before the part.
    pub prefix: String,
    /// The start of the part, in bytes of the word.
    pub from: usize,
    pub to: usize,
    /// The kind's canonical name; empty if the kind is unknown.
    pub kind: &'static str,
    /// The text after the kind.
    pub rest: String,
}

/// Pairs of kinds for the start and the end of something.
const PAIRS: &[(&str, &str)] = &[("kprobe", "kretprobe"), ("uprobe", "uretprobe"), ("fentry", "fexit")];
const SYSCALL: (&str, &str) = ("sys_enter_", "sys_exit_");

/// The attach points of a word, separated by commas.
pub fn probes(word: &str, category: Category) -> Vec<Probe> {
    // in a C++ signature, commas have another meaning
    let cut: &[char] = if word.contains(['(', '"', '<']) { &[] } else { &[','] };
    let mut from = 0;
    let mut found = Vec::new();
    for piece in word.split(cut) {
        let blank = piece.len() - piece.trim_start().len();
        let trimmed = piece.trim();
        if !trimmed.is_empty() {
            found.push(probe(trimmed, from + blank, category));
        }
        from += piece.len() + 1;
    }
    found
}

fn probe(text: &str, offset: usize, category: Category) -> Probe {
    let (prefix, skip) = prefix(text, category);
    let text_with_kind = format!("{prefix}{}", text.get(skip..).unwrap_or(""));
    let (kind, rest) = text_with_kind.split_once(':').unwrap_or((&text_with_kind, ""));
    let kind = find(kind).map_or("", |k| k.name());
    Probe { kind, rest: rest.into(), prefix: prefix.into(), from: offset + skip, to: offset + text.len() }
}

/// The text to insert before a probe, and the number of its bytes to drop.
fn prefix(text: &str, category: Category) -> (&'static str, usize) {
    let Some((first, rest)) = text.split_once(':') else {
        return if find(text).is_some_and(|k| k.by_name_only()) { ("", 0) } else { ("kprobe:", 0) };
    };
    match first {
        "p" if rest.starts_with(':') => return ("kprobe:", 3),
        "r" if rest.starts_with(':') => return ("kretprobe:", 3),
        "r" => return ("uretprobe:", 2),
        _ => {}
    }
    if find(first).is_some() {
        return ("", 0);
    }
    let one = !rest.contains(':');
    if one && !first.contains('/') && category(first) {
        return ("tracepoint:", 0);
    }
    // `kprob:vfs_read` is not a function of a binary `kprob`
    let misspelt =
        first.len() > 3 && nearest(first, KINDS.iter().flat_map(|k| k.names().iter().copied()).filter(|n| n.len() > 3)).is_some();
    if !misspelt && (one || first.contains('/') || rest.starts_with("cpp:")) { ("uprobe:", 0) } else { ("", 0) }
}

impl Probe {
    /// May it match several probes?
    pub fn is_pattern(&self) -> bool {
        self.rest.contains(['*', '?', '['])
    }

    /// Does it run on behalf of a program, so that the user stack is more informative than the kernel stack?
    pub fn runs_in_program(&self) -> bool {
        let call = self.kind == "tracepoint" && (self.rest.starts_with("syscalls:") || self.rest.starts_with("raw_syscalls:"));
        call || ["uprobe", "uretprobe", "usdt"].contains(&self.kind)
    }

    /// Does it sample everything that runs?
    pub fn samples(&self) -> bool {
        ["profile", "software", "hardware"].contains(&self.kind)
    }

    /// The probe at the end of what this probe begins.
    pub fn end(&self, verb: &str) -> Result<Probe, Failure> {
        if let Some((_, end)) = PAIRS.iter().find(|(start, _)| *start == self.kind) {
            return Ok(Probe { prefix: format!("{end}:"), from: self.to - self.rest.len(), ..self.clone() });
        }
        let call = self.rest.strip_prefix("syscalls:").and_then(|event| event.strip_prefix(SYSCALL.0));
        if let (Some(call), "tracepoint") = (call, self.kind) {
            return Ok(Probe { prefix: format!("tracepoint:syscalls:{}", SYSCALL.1), from: self.to - call.len(), ..self.clone() });
        }
        let what = if self.kind.is_empty() { self.rest.clone() } else { format!("{}:{}", self.kind, self.rest) };
        Err(Failure::new(format!("rbt {verb} cannot measure `{what}`, which has no end"))
            .help("name a kernel function, a function of a program or a library (BIN:FUNC), or a system call: t:syscalls:sys_enter_read"))
    }
}
