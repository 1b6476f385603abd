//! Runs scripts through all tested stages, in a process that may crash.

use rbt::diag::Source;
use rbt::probes::Env;
use rbt::settings::{Invocation, Settings};
use rbt::syntax::ast::Script;
use rbt::system::TargetInfo;
use rbt::system::fake::Fake;
use rbt::system::machine::live::Live;
use rbt::{codegen, fmt, frontend, syntax};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

static PANIC: Mutex<String> = Mutex::new(String::new());

/// Runs `count` scripts, starting at number `from`. Reads the corpus from standard input, and writes the results of each script
/// to standard output, where `main.rs` reads them.
pub fn work(seed: u64, from: u64, count: u64) {
    std::panic::set_hook(Box::new(|info| {
        if let Ok(mut text) = PANIC.lock() {
            *text = info.to_string();
        }
    }));
    let scripts: Vec<String> = serde_json::from_reader(std::io::stdin()).unwrap_or_default();
    let every: u64 = std::env::var("RBT_MUTATE_COMPILE").ok().and_then(|v| v.parse().ok()).unwrap_or(1);
    let fake = Fake::new(MACHINE).unwrap_or_else(|e| panic!("{e}"));
    let live = Live::new();
    let mut out = std::io::stdout().lock();
    for number in from..from.saturating_add(count) {
        let told = writeln!(out, "{number}").and_then(|()| out.flush());
        if told.is_err() {
            return;
        }
        let text = super::change::script(&scripts, seed, number);
        let stages = [false; 3];
        let stages = catch_unwind(AssertUnwindSafe(|| one(&text, [&fake, &live], number % every.max(1) == 0, stages)));
        let fault = match stages {
            Ok(Ok(stages)) => {
                for (i, _) in stages.iter().enumerate().filter(|(_, s)| **s) {
                    let _ = writeln!(out, "passed {i}");
                }
                continue;
            }
            Ok(Err(e)) => e,
            Err(_) => PANIC.lock().map(|t| t.clone()).unwrap_or_default(),
        };
        let _ = writeln!(out, "failed {}", fault.replace('\n', "\u{1}"));
    }
}

fn one(text: &str, systems: [&dyn TargetInfo; 2], compiles: bool, mut stages: [bool; 3]) -> Result<[bool; 3], String> {
    stages[0] = fmt(text)?;
    let invocation = Invocation {
        has_child: true,
        params: vec!["7".into(), "word".into()],
        // A script that declares no options rejects all options.
        options: if text.contains("getopt(\"n\"") { vec![("n".into(), Some("5".into()))] } else { Vec::new() },
        ..Invocation::default()
    };
    let settings = Settings { allow_unsafe: true, ..Settings::default() };
    for sys in systems {
        let checked = match frontend::check_text("t", text, &Env { sys, settings: &settings, invocation: &invocation }) {
            Ok(checked) => checked,
            Err(wrong) => {
                told(wrong, text)?;
                continue;
            }
        };
        stages[1] = true;
        told(checked.warnings.clone(), text)?;
        if compiles {
            stages[2] = true;
            let source = [Source { name: "t".into(), text: text.into() }];
            let compiled = codegen::compile(&checked.script, &checked.env(sys), &source, Default::default());
            match compiled {
                // The script needs features that the synthetic kernel lacks.
                Err(e) if e.messages.is_empty() && !e.diagnostics.is_empty() => told(rbt::diag::Diagnostics(e.diagnostics), text)?,
                Err(e) => return Err(format!("passes sema, but not LLVM: {:?}", e.messages.first())),
                Ok(_) => {}
            }
        }
    }
    Ok(stages)
}

/// Checks that every diagnostic can be rendered, and that its span is within the text.
fn told(wrong: rbt::diag::Diagnostics, text: &str) -> Result<(), String> {
    let source = Source { name: "t".into(), text: text.into() };
    for d in &wrong.0 {
        let places = d.related.iter().map(|(s, _)| s).chain([&d.span]).filter(|s| s.source == 0);
        for place in places {
            if text.get(place.start as usize..place.end as usize).is_none() {
                return Err(format!("{place:?} is not within the text: {d:?}"));
            }
        }
    }
    let shown = rbt::diag::render(&wrong, &[source], false);
    if !wrong.0.is_empty() && shown.is_empty() { Err("diagnostics are not rendered".into()) } else { Ok(()) }
}

/// Checks the guarantees of `rbt fmt`. Returns false if the text does not parse.
pub fn fmt(text: &str) -> Result<bool, String> {
    let Some((tree, made)) = formatted(text) else { return Ok(false) };
    let Some((tree_again, again)) = formatted(&made) else { return Err(format!("fmt: the result does not parse:\n{made}")) };
    if again != made {
        return Err(format!("fmt: not idempotent. Formatted once:\n{made}\n── formatted twice:\n{again}"));
    }
    if !fmt::same_words(text, &made) {
        return Err(format!("fmt: words or comments differ:\n{made}"));
    }
    if meaning(tree) != meaning(tree_again) {
        return Err(format!("fmt: the meaning differs:\n{made}"));
    }
    if let Some(line) = made.lines().find(|l| l.ends_with([' ', '\t']) && !l.contains(['"', '#'])) {
        // C definitions are not formatted, but a comment before one may move.
        let last = line.trim_end().rfind([' ', '\t']).map_or(0, |i| i + 1);
        if !text.contains(&line[last..]) {
            return Err(format!("fmt: trailing blanks in `{line}`"));
        }
    }
    Ok(true)
}

fn formatted(text: &str) -> Option<(Script, String)> {
    let (tree, shape) = syntax::parse_with_shape(&Source { name: "t".into(), text: text.into() }).ok()?;
    Some((tree, fmt::format(text, &shape?)))
}

/// Renders the tree without its spans.
fn meaning(mut tree: Script) -> String {
    tree.c_part.iter_mut().for_each(|c| c.text = c.text.trim_end().replace("\r\n", "\n"));
    let shown = format!("{tree:?}");
    let mut parts = shown.split("Span {");
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |all, part| all + part.split_once('}').map_or("", |(_, rest)| rest))
}

/// The synthetic machine, with the parts that the scripts use most.
const MACHINE: &str = "
    enum state { IDLE, BUSY = 4 };
    typedef int pid_t;
    typedef unsigned char u8;
    typedef unsigned long long u64;
    struct inner { long a; unsigned char bytes[4]; };
    struct mm_struct { unsigned long total_vm; };
    struct task_struct {
        pid_t pid; pid_t tgid; char comm[16]; unsigned on_cpu : 1; unsigned on_rq : 3; struct task_struct *parent;
        struct task_struct *real_parent; struct mm_struct *mm; struct inner in; union { long x; int y; }; enum state st; int *list[3];
    };
    tracepoint sched:sched_switch { char prev_comm[16]; pid_t prev_pid; int prev_prio; long prev_state; char next_comm[16]; pid_t next_pid; }
    tracepoint sched:sched_wakeup { char comm[16]; pid_t pid; int prio; }
    tracepoint sched:sched_process_exec { __data_loc char[] filename; pid_t pid; pid_t old_pid; }
    tracepoint syscalls:sys_enter_openat { int dfd; const char *filename; int flags; }
    tracepoint syscalls:sys_exit_openat { long ret; }
    tracepoint syscalls:sys_enter_read { unsigned fd; char *buf; unsigned long count; }
    tracepoint syscalls:sys_exit_read { long ret; }
    tracepoint syscalls:sys_enter_nanosleep { void *rqtp; void *rmtp; }
    tracepoint raw_syscalls:sys_enter { long id; unsigned long args[6]; }
    rawtracepoint sched_switch(bool preempt, struct task_struct *prev, struct task_struct *next, unsigned prev_state);
    rawtracepoint sched_wakeup(struct task_struct *p);
    symbol schedule 0xffffffff81000000;
    binary /bin/demo { main 0x1000 32; helper 0x1040 16; }
    cgroup /a/b 77;
    cpus 4;
";
