//! What a finding may be about, besides what is wrong with a script anywhere: those have the codes of diagnostics.

use super::Level;

/// A row: a kind of finding.
pub struct Rule {
    /// Stable, kebab-case; what `// check: allow` names.
    pub name: &'static str,
    /// How bad it is, unless the place that finds it knows better.
    pub level: Level,
    /// One line.
    pub doc: &'static str,
}

/// All of them, sorted by name.
pub const RULES: &[Rule] = &[
    Rule {
        name: "argument-moved",
        level: Level::Warning,
        doc: "`argN` is another argument than on the baseline; an error where it is none",
    },
    Rule { name: "argument-renamed", level: Level::Note, doc: "`argN` has another name and the same type" },
    Rule { name: "bad-comment", level: Level::Error, doc: "a `check:` comment that is not understood" },
    Rule { name: "bad-first-line", level: Level::Error, doc: "options in the script's first line that rbt does not have" },
    Rule { name: "constant-gone", level: Level::Error, doc: "a constant that the baseline has and this kernel has not" },
    Rule { name: "emptied", level: Level::Note, doc: "a map of an expectation that the script emptied before the end" },
    Rule { name: "field-gone", level: Level::Error, doc: "a field that the baseline has and this kernel has not, or by another name" },
    Rule {
        name: "function-inlined",
        level: Level::Error,
        doc: "a function of which the compiler left no code to trace; the baseline has it",
    },
    Rule { name: "much-memory", level: Level::Warning, doc: "maps that may take more than 1 GiB" },
    Rule { name: "no-fentry", level: Level::Error, doc: "fentry or fexit on a kernel without trampolines" },
    Rule { name: "no-helper", level: Level::Error, doc: "a BPF helper that the compiled script calls is not there" },
    Rule {
        name: "no-kernel-function",
        level: Level::Error,
        doc: "a function for BPF programs that the compiled script calls is not there",
    },
    Rule { name: "no-kprobes", level: Level::Error, doc: "a kprobe on a kernel that was built without them" },
    Rule { name: "no-map-type", level: Level::Error, doc: "a type of map that the compiled script has is not there" },
    Rule { name: "no-program-type", level: Level::Error, doc: "a type of program or attachment that the compiled script has is not there" },
    Rule {
        name: "no-value",
        level: Level::Error,
        doc: "an expectation about what has no value: a percentile of nothing, a division by zero",
    },
    Rule { name: "not-met", level: Level::Error, doc: "an expectation that does not hold" },
    Rule { name: "not-told", level: Level::Error, doc: "an expectation that a histogram's buckets are too wide to tell of" },
    Rule { name: "not-traceable", level: Level::Error, doc: "a function that is there and lets no probe in" },
    Rule { name: "probe-gone", level: Level::Error, doc: "a probe that the baseline has and this kernel has not" },
    Rule { name: "return-changed", level: Level::Warning, doc: "a function returns another type than on the baseline" },
    Rule { name: "sign-changed", level: Level::Warning, doc: "a number that was signed and is not, or the reverse" },
    Rule { name: "size-changed", level: Level::Warning, doc: "a number or an array that is narrower; a note where it is wider" },
    Rule { name: "too-many-instructions", level: Level::Error, doc: "a program beyond what kernels take" },
    Rule { name: "too-many-programs", level: Level::Error, doc: "more programs than the setting max_bpf_progs" },
    Rule { name: "type-changed", level: Level::Warning, doc: "another type than on the baseline, such as a pointer to something else" },
    Rule { name: "type-gone", level: Level::Error, doc: "a type that the baseline has and this kernel has not" },
    Rule { name: "unread", level: Level::Warning, doc: "reads of memory that failed in a run of which something is expected" },
];

/// The row of this name.
pub fn rule(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|r| r.name == name)
}
