//! Errors of commands and runs: options, files, privileges, the kernel.

use super::{Code, error};

pub(super) const CODES: &[Code] = &[
    error("attach", "the kernel rejects an attachment").remedy("`rbt info` shows what this kernel supports"),
    error("backend", "LLVM cannot compile the program").remedy("please report it with the script"),
    error("bad-config", "rbt-check.toml has an error"),
    error("bad-snapshot", "a snapshot is damaged, or has a version that this rbt does not support")
        .remedy("create it again with `rbt snapshot`"),
    error("bundle", "a bundle is damaged, was built for another machine, or does not fit the options of the run")
        .remedy("`rbt build` writes a bundle for this machine"),
    error("kernel", "the kernel rejects an operation that the run needs"),
    error("no-command", "the command of -c, or a command of the prompt, does not exist"),
    error("no-entry", "the prompt has no entry of this number").remedy("`:list` shows what runs"),
    error("no-permission", "this user lacks a privilege").remedy("run as root; `man rbt`, WITHOUT ROOT, lists the required capabilities"),
    error("no-process", "the process of -p does not exist"),
    error("no-scripts", "rbt check finds no scripts"),
    error("no-snapshots", "rbt check finds no snapshots").remedy("`rbt snapshot -o FILE.rbts` creates one"),
    error("no-stack", "the stack limit (`ulimit -s`) is too low and cannot be raised"),
    error("no-states", "rbt merge finds no state").remedy("`rbt -f state` writes one"),
    error("no-terminal", "the prompt needs a terminal"),
    error("not-boolean", "an expectation is neither true nor false").remedy("compare it: `count(@) <= 100`"),
    error("not-formatted", "rbt fmt --check found a script that is not in canonical form").remedy("`rbt fmt FILE` rewrites it"),
    error("not-merged", "rbt merge leaves something out of the sum: a host, a document, a map"),
    error("not-served", "an address of --serve cannot be used").remedy("choose another port; port 0 selects a free one"),
    error("not-text", "a file that should be text is not UTF-8"),
    error("not-written", "a file cannot be written"),
    error("too-complex", "a probe has more execution paths than the kernel's verifier explores")
        .remedy("split the probe, use fewer iterations, or nest fewer loops and conditions"),
    error("unknown-map", "an expectation names a map that the script does not have"),
    error("unknown-script", "no tool has this name").remedy("`rbt one-liners` lists them"),
    error("unknown-word", "rbt help does not know this word"),
    error("unsupported-expectation", "an expectation has a statement or an operator that expectations do not support"),
    error("usage", "the command line is wrong").remedy("`rbt --help` lists the options"),
    error("verifier", "the kernel's verifier rejects a program that rbt compiled")
        .remedy("please report it with the script and the output of `-d verifier`"),
];
