//! Checks that the example of every row works. The examples of builtins and probe kinds attach to this kernel without a message.
//! The wrong script or command of each diagnostic code is reported with that code, and the corrected one is not.
//!
//! This file uses unsafe code for a system call that has no safe wrapper here.

#![allow(unsafe_code)]

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use rbt::diag::codes::Example;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    args.test_threads.get_or_insert(2);
    let builtins = rbt::builtins::all().map(|b| (format!("builtin::{}", b.name), b.example));
    let kinds = rbt::probes::KINDS.iter().map(|k| (format!("kind::{}", k.names().first().unwrap_or(&"?")), k.example()));
    let keywords = rbt::syntax::KEYWORDS.iter().map(|k| (format!("keyword::{}", k.name), k.example));
    let rows = builtins.chain(kinds).chain(keywords).map(|(name, example)| Trial::ignorable_test(name, move || attach(example)));
    let codes = rbt::diag::codes::all()
        .filter_map(|c| Some((c.name, c.example?)))
        .map(|(name, example)| Trial::ignorable_test(format!("code::{name}"), move || reported(name, example)));
    libtest_mimic::run(&args, rows.chain(codes).collect()).exit_code()
}

/// The wrong script or command is reported with its code, and the corrected one is not.
fn reported(code: &str, example: Example) -> Result<Completion, Failed> {
    if let Some(skipped) = needs_root()? {
        return Ok(skipped);
    }
    let run = |text: &str| if example.commands { in_shell(text) } else { compile(text) };
    let (_, said) = run(example.wrong)?;
    let names_it = |said: &str| said.contains(&format!("[{code}] ")) || said.contains(&format!("[{code}]: "));
    if !names_it(&said) {
        return Err(format!("not reported as {code}:\n{}\n{said}", example.wrong).into());
    }
    let (status, said) = run(example.right)?;
    // A correct command may print messages, too.
    let reported = if example.commands { names_it(&said) } else { !said.is_empty() };
    if !status.success() || reported {
        return Err(format!("{status}:\n{}\n{said}", example.right).into());
    }
    Ok(Completion::Completed)
}

/// The exit status of a compilation, and its messages.
fn compile(script: &str) -> Result<(ExitStatus, String), Failed> {
    let out = Command::new(env!("CARGO_BIN_EXE_rbt")).args(["--mode", "codegen", "-e", script]).output()?;
    Ok((out.status, String::from_utf8_lossy(&out.stderr).into_owned()))
}

/// The exit status of a shell command, and its output.
fn in_shell(command: &str) -> Result<(ExitStatus, String), Failed> {
    let programs = Path::new(env!("CARGO_BIN_EXE_rbt")).parent().unwrap_or(Path::new("/"));
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    let inside = format!("dir=$(mktemp -d) && cd \"$dir\" && trap 'rm -r \"$dir\"' EXIT && {{ {command}\n}}");
    shell.args(["-c", &inside]).env("PATH", path).stdin(Stdio::null());
    let out = shell.output()?;
    Ok((out.status, String::from_utf8_lossy(&[out.stderr, out.stdout].concat()).into_owned()))
}

/// The result of a test without root.
fn needs_root() -> Result<Option<Completion>, Failed> {
    // SAFETY: The call takes no arguments and cannot fail.
    match unsafe { libc::geteuid() } {
        0 => Ok(None),
        _ if std::env::var("RBT_TEST_REQUIRE").is_ok_and(|v| v == "all") => Err("skipped, and RBT_TEST_REQUIRE=all: needs root".into()),
        _ => Ok(Some(Completion::ignored_with("needs root"))),
    }
}

fn attach(example: &str) -> Result<Completion, Failed> {
    if let Some(skipped) = needs_root()? {
        return Ok(skipped);
    }
    let mut rbt = Command::new(env!("CARGO_BIN_EXE_rbt"));
    // A builtin may require a command, a process, or parameters.
    rbt.args(["--dry-run", "--unsafe", "-q", "-e", example, "-c", "true", "1", "2"]);
    // Scripts that do not trace need other options.
    for (kind, option) in [("test:", "--test"), ("bench:", "--bench")] {
        if example.starts_with(kind) {
            rbt.arg(option);
        }
    }
    let out = rbt.output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&out.stderr);
    // A virtual machine has no hardware counters, and a kernel may restrict access. rbt detects both only late.
    let unable = [
        "this machine does not count that event",
        "this machine has no hardware breakpoints",
        "this kernel does not provide the addresses of its variables",
        "this kernel is locked down",
    ];
    let unable = unable.iter().any(|t| said.contains(t));
    // Two examples cause a warning: a builtin that inspects programs, and a deprecated loop.
    let expected = ["warning[debug-output]", "warning[deprecated]"].iter().any(|warning| said.starts_with(warning));
    let fine = said.is_empty() || expected && said.matches("warning[").count() == 1 && !said.contains("\nerror");
    if unable || (out.status.success() && fine) {
        return Ok(Completion::Completed);
    }
    // This kernel lacks these probes. The cases in virtual machines attach them.
    let lacking = [
        "this kernel has no kprobes",
        "policy forbids the programs that they call",
        "policy forbids loading",
        "CONFIG_BPF_KPROBE_OVERRIDE",
    ]
    .iter()
    .any(|what| said.contains(what));
    if lacking {
        let compiled = Command::new(env!("CARGO_BIN_EXE_rbt")).args(["--mode", "codegen", "--unsafe", "-e", example]).output();
        let compiled = compiled.map_err(|e| e.to_string())?;
        if compiled.status.success() && compiled.stderr.is_empty() {
            return Ok(Completion::ignored_with("compiled, but this kernel has no such probes"));
        }
    }
    Err(format!("{}\n{example}\n{said}", out.status).into())
}
