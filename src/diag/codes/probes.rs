//! Errors in attach points.

use super::{Code, DependsOn, error, warning};

pub(super) const CODES: &[Code] = &[
    error("bad-filter", "--probe-filter is not a regular expression")
        .command("rbt --probe-filter 'open(' -l 'tracepoint:syscalls:*'", "rbt --probe-filter 'open' -l 'tracepoint:syscalls:*'"),
    error("bad-offset", "an offset is outside of the function or within an instruction")
        .status(255)
        .example("uprobe:libc:malloc+100000 { print(1); }", "uprobe:libc:malloc { @calls = count(); }"),
    error("bad-probe", "an attach point is malformed")
        .remedy("`rbt help KIND` shows the form of each kind of probe")
        .example("interval:fortnights:1 { exit(); }", "interval:s:1 { exit(); }"),
    warning("hot-probe", "a probe that fires very often reports each event, instead of counting or filtering")
        .remedy("count in the kernel, add a filter, or limit it: --max-events N/s, ratelimit(), sample()")
        .example(r#"tracepoint:sched:sched_switch { printf("%s\n", comm); }"#, "tracepoint:sched:sched_switch { @[comm] = count(); }"),
    error("inlined", "the compiler inlined the function everywhere, so there is no code to attach to")
        .remedy("attach to a function that calls it, or to a source line: `uprobe:BINARY@FILE:LINE`")
        .needs("a program with debug information, and a function in it that the compiler inlined"),
    error("no-btf", "the kernel's types (BTF) lack what a builtin needs").needs("a kernel without the type in its BTF"),
    error("no-cgroup", "a cgroup or a container does not exist")
        .example(r#"begin { print(cgroupid("/no/such/cgroup")); }"#, "begin { print(cgroup); }"),
    warning("no-kfunc", "this kernel lacks a BPF function that a value needs, so the value prints as [unknown]")
        .depends_on(DependsOn::CallableFunctions)
        .needs("a kernel without the function"),
    error("no-lsm", "the kernel has no BPF among its security modules")
        .remedy("use a kernel with CONFIG_BPF_LSM, or a fentry probe on the function security_HOOK")
        .needs("a kernel without CONFIG_BPF_LSM, or one that does not list bpf in `lsm=`"),
    error("no-match", "a wildcard matches nothing")
        .example("tracepoint:syscalls:zzz* { exit(); }", "tracepoint:syscalls:sys_enter_openat* { exit(); }"),
    error("no-probes", "the script has no probe that can be attached")
        .command("echo '// nothing' > a.bt; rbt a.bt", "echo 'begin { exit(); }' > a.bt; rbt a.bt"),
    error("not-in-btf", "the kernel's types (BTF) do not describe the function").needs("a kernel whose BTF lacks the function"),
    error("not-injectable", "override() is only possible on functions that allow error injection")
        .needs("a kernel with CONFIG_BPF_KPROBE_OVERRIDE"),
    error("only-tests", "the script has only test or bench probes, which need --test or --bench")
        .status(255)
        .example("test:one { print(1); }", "begin { print(1); }"),
    error("too-many-probes", "wildcards match more probes than max_probes")
        .remedy("narrow the wildcard, or raise the setting max_probes")
        .example(
            "config = { max_probes = 2 } tracepoint:syscalls:sys_enter_* { exit(); }",
            "config = { max_probes = 2 } tracepoint:syscalls:sys_enter_openat { exit(); }",
        ),
    error("unavailable", "a binary, its symbols or its debug information cannot be found")
        .example("uprobe:/nonexistent/program:main { exit(); }", "uprobe:libc:malloc { exit(); }"),
    error("unknown-address", "an address is in no section of the binary")
        .remedy("use an address within a section; `readelf -S -s` shows the sections and symbols")
        .example("uprobe:/bin/true:0xffffffffff { exit(); }", "uprobe:libc:malloc { exit(); }"),
    warning("unknown-cgroup", "a snapshot does not contain cgroups, so rbt cannot check whether one exists")
        .depends_on(DependsOn::Machine)
        .command(
            r#"rbt snapshot -q -o k.rbts; echo 'begin { print(cgroupid("/system.slice")); }' | rbt check --against k.rbts -"#,
            "rbt snapshot -q -o k.rbts; echo 'begin { print(cgroup); }' | rbt check --against k.rbts -",
        ),
    error("unknown-function", "a function does not exist: in the language, in the kernel or in the binary")
        .remedy("`man rbt-language` lists the functions")
        .example(r#"begin { prinft("x"); }"#, r#"begin { printf("x"); }"#),
    error("unknown-hook", "the kernel's security modules have no hook of that name")
        .remedy("`rbt -l 'lsm:*'` lists the hooks")
        .example("lsm:file_opened { exit(); }", "lsm:file_open { exit(); }"),
    error("unknown-iterator", "this kernel has no iterator of this name").example("iter:tasks { exit(); }", "iter:task { exit(); }"),
    error("unknown-line", "no code belongs to this source line")
        .remedy("`objdump -dl` shows which lines have code")
        .needs("a program with debug information"),
    error("unknown-module", "the kernel has no module of this name")
        .example("kprobe:nosuchmodule:vfs_read { exit(); }", "kprobe:vmlinux:vfs_read { exit(); }"),
    error("unknown-probe", "there is no such kind of probe")
        .remedy("`rbt info` lists the kinds of probes")
        .example("profle:hz:99 { exit(); }", "profile:hz:99 { exit(); }"),
    error("unknown-register", "the machine has no register of this name")
        .example(r#"uprobe:libc:malloc { print(reg("xx")); }"#, r#"uprobe:libc:malloc { @[reg("ip")] = count(); }"#),
    error("unknown-symbol", "a binary has no symbol of this name")
        .remedy("`nm` shows a binary's symbols")
        .example("uprobe:libc:mallocc { exit(); }", "uprobe:libc:malloc { exit(); }"),
    error("unknown-tracepoint", "the kernel has no tracepoint of this name")
        .remedy("`rbt -l 'tracepoint:*'` lists what is available")
        .example("tracepoint:syscalls:sys_enter_opennat { exit(); }", "tracepoint:syscalls:sys_enter_openat { exit(); }"),
];
