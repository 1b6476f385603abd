//! Findings about kernels and runs. `// check: allow` accepts these codes.

use super::{Code, error, note, warning};

/// All of them, sorted by name.
pub const FINDINGS: &[Code] = &[
    warning("argument-moved", "argN is a different argument than on the baseline; an error if the function has no such argument").remedy("use `args.NAME`, which finds the argument by its name"),
    note("argument-renamed", "argN has a different name than on the baseline, and the same type"),
    error("bad-comment", "a `check:` comment is malformed"),
    error("bad-first-line", "the script's first line has options that rbt does not know"),
    error("constant-gone", "the baseline has a constant that this kernel lacks"),
    warning("failed-reads", "reads of memory failed in a run with expectations"),
    error("field-gone", "the baseline has a field that this kernel lacks or names differently"),
    error("function-inlined", "the compiler inlined a function everywhere, so it cannot be traced; the baseline has it"),
    warning("large-maps", "the script's maps may take more than 1 GiB"),
    note("map-emptied", "the script emptied a map before the expectation read it"),
    error("no-fentry", "the kernel has no BPF trampolines for fentry and fexit"),
    error("no-helper", "the kernel lacks a BPF helper that the compiled script calls"),
    error("no-kernel-function", "the kernel lacks a kernel function (kfunc) that the compiled script calls"),
    error("no-kernel-symbol", "the kernel has no symbol of this name, or hides its address").remedy("/proc/kallsyms lists the kernel's symbols").example("begin { print(kaddr(\"no_such_symbol\")); }", "begin { print(kaddr(\"vfs_read\")); }"),
    error("no-kprobes", "the kernel was built without kprobes").remedy("use a tracepoint, or exclude such kernels: `// check: kernels …`"),
    error("no-map-type", "the kernel lacks a BPF map type that the compiled script uses").remedy("exclude such kernels: `// check: kernels >= …`"),
    error("no-program-type", "the kernel lacks a BPF program type or attach type that the compiled script uses").remedy("exclude such kernels: `// check: kernels >= …`"),
    error("no-value", "a function without a result is used as a value, or an expectation has no value, such as a percentile of no samples or a division by zero").example("begin { @x = print(1); }", "begin { @x = 1; print(@x); }"),
    error("not-counted", "the machine does not count an event; a note if the machine is unknown"),
    error("not-met", "an expectation is false"),
    error("not-traceable", "the function exists, but the kernel does not allow probes on it"),
    error("probe-gone", "the baseline has a probe that this kernel lacks"),
    error("rate-too-high", "a probe fires more often than the machine allows").remedy("use a lower rate, or raise it: `sysctl kernel.perf_event_max_sample_rate=RATE`"),
    warning("return-changed", "a function returns a different type than on the baseline").remedy("if the script still works, allow it: `// check: allow return-changed WHY`"),
    warning("sign-changed", "an integer is signed on one kernel and unsigned on the other").remedy("cast it on both, `(int64)x`; if the script still works, allow it: `// check: allow sign-changed WHY`"),
    warning("size-changed", "an integer or an array is narrower than on the baseline; a note if it is wider").remedy("if the script's values fit, allow it: `// check: allow size-changed WHY`"),
    error("too-many-instructions", "a program has more instructions than kernels accept"),
    error("too-many-programs", "the script needs more programs than the setting max_bpf_progs allows"),
    warning("type-changed", "a field or an argument has a different type than on the baseline").remedy("if the script still works, allow it: `// check: allow type-changed WHY`; or exclude such kernels: `// check: kernels …`"),
    error("type-gone", "the baseline has a type that this kernel lacks"),
    error("undecided", "the buckets of a histogram are too wide to decide an expectation"),
];
