//! Findings about kernels and runs. `// check: allow` accepts these codes.

use super::{Code, error, note, warning};

/// What a report about a change between kernels needs.
const TWO_DIFFERENT_KERNELS: &str = "two kernels that differ in what the script uses";

/// All of them, sorted by name.
pub const FINDINGS: &[Code] = &[
    warning("argument-moved", "argN is a different argument than on the baseline. This is an error if the function has no such argument").remedy("use `args.NAME`, which finds the argument by its name")
        .needs(TWO_DIFFERENT_KERNELS),
    note("argument-renamed", "argN has a different name than on the baseline, and the same type")
        .needs(TWO_DIFFERENT_KERNELS),
    error("bad-comment", "a `check:` comment is malformed")
        .command(r#"printf '// check: kernel 5.10\nbegin { exit(); }\n' | rbt check -"#, r#"printf '// check: kernels >= 5.10\nbegin { exit(); }\n' | rbt check -"#),
    error("bad-first-line", "the script's first line has options that rbt does not know")
        .command(r#"printf '#!/usr/bin/env -S rbt --colour\nbegin { exit(); }\n' > a.bt; rbt check a.bt"#, r#"printf '#!/usr/bin/env -S rbt --strict\nbegin { exit(); }\n' > a.bt; rbt check a.bt"#),
    error("constant-gone", "the baseline has a constant that this kernel lacks")
        .needs(TWO_DIFFERENT_KERNELS),
    warning("failed-reads", "reads of memory failed in a run with expectations")
        .command("rbt --expect 'true' -e 'begin { print(*(uint64*)1); exit(); }'", "rbt --expect 'true' -e 'begin { print(1); exit(); }'"),
    error("field-gone", "the baseline has a field that this kernel lacks or names differently")
        .needs(TWO_DIFFERENT_KERNELS),
    error("function-inlined", "the compiler inlined a function everywhere, so it cannot be traced as on the baseline")
        .needs(TWO_DIFFERENT_KERNELS),
    warning("large-maps", "the script's maps may take more than 1 GiB")
        .command("echo 'config = { max_map_keys = 100000000 } begin { @[pid, comm] = 1; }' | rbt check -", "echo 'begin { @[pid, comm] = 1; }' | rbt check -"),
    note("loop-limit", "the kernel limits a loop to few iterations, or may find it too complex")
        .remedy("exclude kernels before 5.17, which allow fewer: `// check: kernels >= 5.17`")
        .needs("a kernel before 5.17"),
    note("map-emptied", "the script emptied a map before the expectation read it")
        .command("rbt --expect 'count(@) == 0' -e 'begin { @ = count(); print(@); clear(@); exit(); }'", "rbt --expect 'count(@) == 1' -e 'begin { @ = count(); print(@); exit(); }'"),
    error("no-fentry", "the kernel has no BPF trampolines for fentry and fexit, or does not permit them")
        .needs("a kernel without trampolines, or one whose policy forbids the programs that they call"),
    error("no-helper", "the kernel lacks a BPF helper that the compiled script calls")
        .needs("a kernel older than the helper"),
    error("no-kernel-function", "the kernel lacks a kernel function (kfunc) that the compiled script calls")
        .needs("a kernel without the function"),
    error("no-kernel-symbol", "the kernel has no symbol of this name, or hides its address").remedy("/proc/kallsyms lists the kernel's symbols").example("begin { print(kaddr(\"no_such_symbol\")); }", "begin { print(kaddr(\"vfs_read\")); }"),
    error("no-kprobes", "the kernel was built without kprobes").remedy("use a tracepoint, or exclude such kernels: `// check: kernels …`")
        .needs("a kernel that was built without kprobes"),
    error("no-map-type", "the kernel lacks a BPF map type that the compiled script uses").remedy("exclude such kernels: `// check: kernels >= …`")
        .needs("a kernel older than the map type"),
    error("no-program-type", "the kernel lacks a BPF program type or attach type that the compiled script uses").remedy("exclude such kernels: `// check: kernels >= …`")
        .needs("a kernel older than the program type"),
    error("no-value", "a function without a result is used as a value, or an expectation has no value, such as a percentile of no samples or a division by zero").example("begin { @x = print(1); }", "begin { @x = 1; print(@x); }"),
    error("not-counted", "the machine does not count an event. This is a note if the machine is unknown")
        .needs("a machine whose processor does not count the event"),
    error("not-met", "an expectation is false")
        .command("rbt --expect '@n == 2' -e 'begin { @n = 1; exit(); }'", "rbt --expect '@n == 1' -e 'begin { @n = 1; exit(); }'"),
    error("not-traceable", "the function exists, but the kernel does not allow probes on it")
        .needs("a function that the kernel in question does not allow probes on"),
    warning("nothing-ran", "no probe ran while `rbt cost` measured, so that its expectations say little")
        .command("rbt cost --expect 'cost < 1%' -e 'tracepoint:syscalls:sys_enter_acct { @ = count(); }' -c true", "rbt cost --expect 'cost < 100%' -e 'tracepoint:syscalls:sys_enter_execve { @ = count(); }' -c true"),
    note("other-machine", "the binary was found on this machine, which has another processor than the kernel's: the probe is checked in the wrong file").remedy("name a file from the machine with that kernel: `--root DIR` or `--binary FILE`")
        .needs("a snapshot of a kernel for another processor"),
    error("probe-gone", "the baseline has a probe that this kernel lacks")
        .needs(TWO_DIFFERENT_KERNELS),
    error("rate-too-high", "a probe fires more often than the machine allows").remedy("use a lower rate, or raise it: `sysctl kernel.perf_event_max_sample_rate=RATE`")
        .command("echo 'profile:hz:9999999 { @ = count(); }' | rbt check -", "echo 'profile:hz:99 { @ = count(); }' | rbt check -"),
    warning("return-changed", "a function returns a different type than on the baseline").remedy("if the script still works, allow it: `// check: allow return-changed WHY`")
        .needs(TWO_DIFFERENT_KERNELS),
    warning("sign-changed", "an integer is signed on one kernel and unsigned on the other").remedy("cast it on both, `(int64)x`; if the script still works, allow it: `// check: allow sign-changed WHY`")
        .needs(TWO_DIFFERENT_KERNELS),
    warning("size-changed", "an integer or an array is narrower than on the baseline. This is a note if it is wider").remedy("if the script's values fit, allow it: `// check: allow size-changed WHY`")
        .needs(TWO_DIFFERENT_KERNELS),
    error("too-many-instructions", "a program has more instructions than kernels accept")
        .needs("a script of several hundred lines"),
    error("too-many-programs", "the script needs more programs than the setting max_bpf_progs allows")
        .command("echo 'config = { max_bpf_progs = 1 } begin { print(1); } end { print(2); }' | rbt check -", "echo 'config = { max_bpf_progs = 2 } begin { print(1); } end { print(2); }' | rbt check -"),
    warning("type-changed", "a field or an argument has a different type than on the baseline").remedy("if the script still works, allow it: `// check: allow type-changed WHY`; or exclude such kernels: `// check: kernels …`")
        .needs(TWO_DIFFERENT_KERNELS),
    error("type-gone", "the baseline has a type that this kernel lacks")
        .needs(TWO_DIFFERENT_KERNELS),
    error("undecided", "the buckets of a histogram are too wide to decide an expectation")
        .command("rbt --expect 'p50(@h) == 5' -e 'begin { @h = hist(5); exit(); }'", "rbt --expect 'p50(@h) < 9' -e 'begin { @h = hist(5); exit(); }'"),
];
