//! Errors of commands and runs: options, files, privileges, the kernel.

use super::{Code, error, warning};

pub(super) const CODES: &[Code] = &[
    error("attach", "the kernel rejects an attachment")
        .remedy("`rbt info` shows what this kernel supports")
        .needs("a machine that rejects the attachment, for example because its hardware breakpoints are in use"),
    error("backend", "LLVM cannot compile the program").remedy("please report it with the script").needs("a bug in rbt"),
    error("bad-config", "rbt-check.toml has an error").command(
        "echo 'kernels = 5' > rbt-check.toml; rbt check opensnoop",
        r#"echo 'deny = "warnings"' > rbt-check.toml; rbt check opensnoop"#,
    ),
    error("bad-snapshot", "a snapshot is damaged, or its version is not supported").remedy("create it again with `rbt snapshot`").command(
        "echo text > kernel.rbts; rbt snapshot --show kernel.rbts",
        "rbt snapshot -q -o kernel.rbts; rbt snapshot --show kernel.rbts",
    ),
    error("bundle", "a bundle is damaged, was built for another machine, or does not fit the options of the run")
        .remedy("`rbt build` writes a bundle for this machine")
        .command("echo x > a.bundle; rbt-run a.bundle", "rbt build -e 'begin { exit(); }' -o a.bundle; rbt-run a.bundle"),
    error("kernel", "the kernel rejects an operation that the run needs").needs("a machine that refuses"),
    warning("map-not-shown", "rbt merge does not print a map that `end` clears, and of which it prints only elements")
        .remedy("print the whole map in `end`")
        .command(
            "rbt -f state -e 'begin { @n[1] = count(); exit(); } end { print(@n[1]); clear(@n); }' | rbt merge -",
            "rbt -f state -e 'begin { @n[1] = count(); exit(); } end { print(@n); clear(@n); }' | rbt merge -",
        ),
    error("no-command", "the command of -c, or a command of the prompt, does not exist")
        .command("rbt -c nosuchcommand -e 'begin { exit(); }'", "rbt -c true -e 'begin { exit(); }'"),
    error("no-entry", "the prompt has no entry of this number")
        .remedy("`:list` shows the running entries")
        .command(r"printf 'begin { @n = 1; }\n:drop 5\n' | rbt", r"printf 'interval:s:9 { @n = 1; }\n:drop 1\n' | rbt"),
    error("no-memory", "a compressed program of `rbt build --exe` cannot unpack its code into memory")
        .remedy("raise the limit of memory (`ulimit -v`), or build the program with `--no-compress`, if a policy forbids executable memory")
        .needs("a program that `rbt build --exe` wrote"),
    error("no-permission", "this user lacks a privilege")
        .remedy("run as root; `man rbt`, WITHOUT ROOT, lists the required capabilities")
        .command("setpriv --bounding-set=-all --inh-caps=-all rbt -e 'begin { exit(); }'", "rbt -e 'begin { exit(); }'"),
    error("no-process", "the process of -p does not exist")
        .command("rbt -p 4194303 -e 'begin { exit(); }'", "rbt -p $$ -e 'begin { exit(); }'"),
    error("no-scripts", "rbt check finds no scripts").command("mkdir empty; rbt check empty", "rbt check opensnoop"),
    error("no-snapshots", "rbt check finds no snapshots")
        .remedy("`rbt snapshot -o FILE.rbts` creates one")
        .command("mkdir empty; rbt check opensnoop --against empty", "rbt check opensnoop"),
    error("no-stack", "the stack limit (`ulimit -s`) is too low and cannot be raised")
        .command("prlimit --stack=65536:65536 rbt -e 'begin { exit(); }'", "rbt -e 'begin { exit(); }'"),
    error("no-states", "rbt merge finds no state")
        .remedy("`rbt -f state` writes one")
        .command("echo | rbt merge -", "rbt -f state -e 'begin { @ = 1; exit(); }' | rbt merge -"),
    error("no-terminal", "the prompt needs a terminal").needs("a terminal that cannot be controlled"),
    warning("not-added", "rbt merge does not add the values of a map, because the script assigns them")
        .remedy("change the map only with `++` and `+=`, or use count() or sum()")
        .command(
            "for i in 1 2; do rbt -f state -e 'begin { @n = 7; exit(); }'; done | rbt merge -",
            "for i in 1 2; do rbt -f state -e 'begin { @n += 7; exit(); }'; done | rbt merge -",
        ),
    error("not-boolean", "an expectation is neither true nor false")
        .remedy("compare it: `count(@) <= 100`")
        .command("rbt --expect '@n' -e 'begin { @n = 1; exit(); }'", "rbt --expect '@n == 1' -e 'begin { @n = 1; exit(); }'"),
    error("not-formatted", "formatting would have changed the meaning of a script, so nothing was written")
        .remedy("please report it with the script")
        .needs("a bug in rbt"),
    error("not-merged", "rbt merge leaves something out of the sum: a host, a document, a map").command(
        "(rbt -f state -e 'begin { @ = 1; exit(); }'; echo noise) | rbt merge -",
        "rbt -f state -e 'begin { @ = 1; exit(); }' | rbt merge -",
    ),
    error("not-served", "an address of --serve cannot be used").remedy("choose another port, or port 0 for any free one").command(
        "echo secret > token; rbt --serve-token token --serve 192.0.2.1:0 -e 'begin { exit(); }'",
        "rbt --serve 127.0.0.1:0 -e 'begin { exit(); }'",
    ),
    error("not-text", "a file that should be text is not UTF-8")
        .command(r#"printf '\377' > a.bt; rbt a.bt"#, "echo 'begin { exit(); }' > a.bt; rbt a.bt"),
    error("not-written", "a file cannot be written")
        .command("rbt -o /nonexistent/out -e 'begin { exit(); }'", "rbt -o out -e 'begin { exit(); }'"),
    error("too-complex", "a probe has more execution paths than the kernel's verifier explores")
        .remedy("split the probe, use fewer iterations, or nest fewer loops and conditions")
        .needs("a script that exceeds the limits of the verifier in question"),
    error("unknown-map", "an expectation names a map that the script does not have")
        .command("rbt --expect '@m == 1' -e 'begin { @n = 1; exit(); }'", "rbt --expect '@n == 1' -e 'begin { @n = 1; exit(); }'"),
    error("unknown-tool", "no tool has this name")
        .remedy("`rbt one-liners` lists them")
        .command("rbt one-liners opensnop", "rbt one-liners opensnoop"),
    error("unknown-word", "rbt help does not know this word").command("rbt help opennsnoop", "rbt help opensnoop"),
    error("unsupported-expectation", "an expectation has a statement or an operator that expectations do not support").command(
        "rbt --expect '@n ? @n : 1' -e 'begin { @n = count(); exit(); }'",
        "rbt --expect '@n == 1' -e 'begin { @n = count(); exit(); }'",
    ),
    error("usage", "the command line is wrong")
        .remedy("`rbt --help` lists the options")
        .command("rbt -f yaml -e 'begin { exit(); }'", "rbt -f json -e 'begin { exit(); }'"),
    error("verifier", "the kernel's verifier rejects a program that rbt compiled")
        .remedy("please report it with the script and the output of `-d verifier`")
        .needs("a bug in rbt, or a kernel whose verifier differs"),
];
