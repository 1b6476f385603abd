//! Scripts compiled for an older kernel, and their code.

use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use std::path::Path;

use super::{Compiled, STACK_LIMITS, Unwinding, Walks, compile_with, compile_within, lower};
use crate::diag::Source;
use crate::emit::{Dumps, KnownCode};
use crate::frontend::{Checked, check_text};
use crate::probes::Env;
use crate::settings::{Mechanism, Settings};
use crate::system::machine::live::Live;
use crate::system::snapshot::Snapshot;

/// Loops of all kinds: the script's own, those of functions on strings, maps and stacks, and of the walk along a user stack.
const LOOPS: &[&str] = &[
    "end { print(len(ustack(3))); }",
    "profile:hz:99 { @[ustack, kstack, comm] = count(); @s[tid] = stats(nsecs); }",
    "uretprobe:/proc/self/exe:main { for $i : 0..17 { @[ustack(6)] = count(); if ($i == $1) { break; } } }",
    "tracepoint:syscalls:sys_enter_execve { $i = 0; while ($i++ < 41) { if (rand % 3 == 0) { continue; } @[comm, $i] = count(); } }",
    "tracepoint:syscalls:sys_enter_execve { while (1) { $n = 0; while ($n < 7) { $n++; if (rand == $n) { break; } } if ($n) { return; } } }",
    "tracepoint:syscalls:sys_enter_openat { if (strcontains(str(args.filename), \"etc\") || strstr(comm, \"s\") > 0) { print(ppid); } }",
    "tracepoint:syscalls:sys_enter_openat { @[str(args.filename), strcap(comm), signal_name(rand)] = rand; } end { for ($kv : @) { print($kv); } }",
    "fn f($n : int64) : int64 { $i = 0; while ($i < $n) { $i += 2; if ($i > 90) { return 1; } } return $i; } end { print((f(3), f(len(kstack)))); }",
    "end { unroll (5) { for $i : 0..9 { for $j : 0..$i { @a[$i, $j] = str_concat(comm, pcomm); } } } }",
];

/// Before Linux 6.8, an edge that closes a loop must be a jump: `push_insn` in kernel/bpf/verifier.c.
#[test]
fn older_kernels_accept_loops() {
    let sys = older_kernel();
    let (mut jumps, mut refused) = (0, Vec::new());
    for refused_loops in [false, true] {
        let mut settings = Settings { allow_unsafe: true, ..Settings::default() };
        if refused_loops {
            settings.no_features.push(Mechanism::BpfLoop);
        }
        for text in LOOPS {
            let source = Source { name: "loops".into(), text: (*text).into() };
            let checked = check_text("loops", text, &Env::new(&sys, &settings));
            let Checked { script, settings, invocation, .. } = checked.unwrap_or_else(|e| panic!("{text}: {e:?}"));
            let env = Env { sys: &sys, settings: &settings, invocation: &invocation };
            let script = lower(script, &env);
            let walks = Walks { unwinding: Unwinding::Whole, by_loop_helper: !refused_loops };
            for limits in STACK_LIMITS {
                let compiled = compile_within(
                    (limits, walks, &super::Sharing::default()),
                    &script,
                    &env,
                    std::slice::from_ref(&source),
                    Dumps::default(),
                    None,
                );
                let compiled = compiled.unwrap_or_else(|e| panic!("{text}: {e:?}"));
                let mut edges = Edges::default();
                edges.find(&compiled.artifact.elf).unwrap_or_else(|e| panic!("{text}: {e}"));
                jumps += edges.jumps;
                refused.extend(edges.refused.iter().map(|edge| format!("{text}, {limits:?}: {edge}")));
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(jumps > LOOPS.len());
}

/// rbt's own functions that a script shares with earlier ones.
#[test]
fn known_code_does_not_change_the_result() {
    let sys = older_kernel();
    let mut known = KnownCode::default();
    for text in LOOPS {
        let alone = object(text, &sys, None);
        // the first time, some of its functions are new
        for _ in 0..2 {
            assert!(object(text, &sys, Some(&mut known)) == alone, "{text}");
        }
    }
}

#[test]
fn a_different_script_reuses_the_code_of_a_walk() {
    let sys = older_kernel();
    let mut known = KnownCode::default();
    object("profile:hz:99 { @[ustack] = count(); }", &sys, Some(&mut known));
    assert!(known.has_grown());
    let bytes = postcard::to_allocvec(&known).unwrap();
    let mut known: KnownCode = postcard::from_bytes(&bytes).unwrap();
    object("profile:hz:49 { @stacks[comm, ustack] = sum(1); }", &sys, Some(&mut known));
    object("software:cpu-clock:1000 { @[ustack] = count(); @n = count(); }", &sys, Some(&mut known));
    assert!(!known.has_grown());
}

/// Parts of a long program that runs once get few passes. Their code is that of one script, so it is not kept.
#[test]
fn parts_that_run_once() {
    let sys = older_kernel();
    let long = |probe: &str| format!("{probe} {{ $x = 0; {} }}", (1..900).map(|i| format!("$x += {i}; ")).collect::<String>());
    let of_begin = long("begin");
    let mut known = KnownCode::default();
    let object = object(&of_begin, &sys, Some(&mut known));
    assert!(postcard::to_allocvec(&known).unwrap().len() < object.len() / 10);
    let marks = |text: &str| {
        let ir = ir(text, &sys);
        (ir.contains("\"rbt-rare\"") && !ir.contains("\"rbt-rare\"="), ir.contains("\"rbt-rare\"=\"alone\""))
    };
    assert_eq!((marks(&of_begin), marks(&long("interval:s:1"))), ((true, false), (true, false)));
    // only the pieces, not what they call
    assert_eq!(marks(&long("tracepoint:syscalls:sys_enter_execve")), (false, true));
    let with_function = marks(&format!("fn f($n: int64): int64 {{ return $n; }} {}", long("begin").replacen("= 0;", "= f(1);", 1)));
    assert_eq!(with_function, (false, false));
}

/// In a long program that runs once, statements that differ in numbers only share a function.
#[test]
fn statements_that_come_out_alike() {
    let sys = older_kernel();
    let functions = |probe: &str, statement: &dyn Fn(u32) -> String| {
        let body: String = (0..900).map(statement).collect();
        ir(&format!("{probe} {{ $x = nsecs; {body} exit(); }}"), &sys).matches("define i64 @alike_").count()
    };
    let assignment = |i| format!("@m[{i}] = ({}, comm, {}); ", i * 3, i * i);
    assert_eq!(functions("begin", &assignment), 1);
    // a call takes less time than an element, but more than a comparison
    assert_eq!(functions("tracepoint:syscalls:sys_enter_execve", &assignment), 1);
    assert_eq!(functions("tracepoint:syscalls:sys_enter_execve", &|i| format!("if ($x == {i}) {{ @n++; }}")), 0);
    assert_eq!(functions("begin", &|i| format!("if ($x > {i}) {{ @[{i}]++; }} @h[pid] = hist($x + {i});")), 2);
    // the text of a record is not part of the code
    assert_eq!(functions("begin", &|i| format!("printf(\"{} %s\", comm);", "x".repeat(i as usize % 9))), 1);
    assert_eq!(functions("begin", &|i| format!("@m[{i}] = $x << {}; @n[{i}] = $x > {i} ? {} : {};", i % 60 + 1, 1000 + i, 5000 - i)), 2);
    // a function per length would be too many
    assert_eq!(functions("begin", &|i| format!("@s = str($x, {}); @m[{i}] = ($x, {i});", i % 90 + 2)), 1);
    // leaving the program early, and loops
    let others =
        |i| if i % 45 == 0 { format!("for $i : 0..{} {{ @[$i] = {i}; }}", i + 1) } else { format!("if ($x == {i}) {{ return; }}") };
    assert_eq!(functions("begin", &others), 0);
}

/// Only a few statements that run once get few passes. The pass that notes whether the addresses of globals matter is not among them.
#[test]
fn programs_that_run_once() {
    let sys = older_kernel();
    let all_passes = |text: &str| compiled(text, &sys).optimized.unwrap_or_default().contains("local_unnamed_addr");
    assert!(!all_passes("begin { @a = nsecs; @b[pid] = count(); } end { print(@a); }"));
    assert!(all_passes("begin { unroll (3) { @a++; } }"));
    assert!(all_passes(&format!("begin {{ {} }}", "@a++; ".repeat(200))));
    assert!(all_passes("begin { for $i : 0..9 { @a[$i] = nsecs; } }"));
    assert!(all_passes("begin { while (rand % 3) { @a++; } }"));
    assert!(all_passes("fn f($n: int64): int64 { return $n + 1; } begin { @a = f(3); }"));
    assert!(all_passes("begin { @a = 1; } interval:s:1 { @a++; }"));
    assert!(all_passes("begin { @a = 1; } tracepoint:syscalls:sys_enter_execve { @a++; }"));
}

/// The code of a script before optimization.
fn ir(text: &str, sys: &Snapshot) -> String {
    compiled(text, sys).ir.unwrap_or_default()
}

fn compiled(text: &str, sys: &Snapshot) -> Compiled {
    let source = Source { name: "long".into(), text: text.into() };
    let checked = check_text("long", text, &Env::new(sys, &Settings::default()));
    let Checked { script, settings, invocation, .. } = checked.unwrap_or_else(|e| panic!("{text}: {e:?}"));
    let env = Env { sys, settings: &settings, invocation: &invocation };
    let dumps = Dumps { ir: true, optimized: true, ..Dumps::default() };
    let compiled = compile_with(&script, &env, std::slice::from_ref(&source), dumps, None);
    compiled.unwrap_or_else(|e| panic!("{text}: {e:?}"))
}

/// Branches have 16 bits before Linux 6.6, and this one leads over 300 copies of a statement.
#[test]
fn copies_that_no_branch_can_skip_become_a_loop() {
    let sys = older_kernel();
    let text = "end { if (pid == 1) { unroll (100) { unroll (3) { @[kstack] = count(); } } } }";
    let refused = Settings { allow_unsafe: true, no_features: vec![Mechanism::Unroll], ..Settings::default() };
    assert!(object(text, &sys, None) == object_with(text, &sys, None, &refused));

    let source = Source { name: "reuse".into(), text: text.into() };
    let settings = Settings { allow_unsafe: true, ..Settings::default() };
    let Checked { script, invocation, .. } = check_text("reuse", text, &Env::new(&sys, &settings)).unwrap_or_else(|e| panic!("{e:?}"));
    let env = Env { sys: &sys, settings: &settings, invocation: &invocation };
    let walks = Walks { unwinding: Unwinding::Whole, by_loop_helper: true };
    let compiled = compile_within(
        (STACK_LIMITS[0], walks, &super::Sharing::default()),
        &script,
        &env,
        std::slice::from_ref(&source),
        Dumps::default(),
        None,
    );
    assert!(compiled.is_err_and(|e| e.is_for_length()));
}

fn older_kernel() -> Snapshot {
    let kernel = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels/6.1.rbts");
    let sys = Snapshot::open(&kernel).map(|kernel| kernel.with_files(Live::new()));
    sys.unwrap_or_else(|m| panic!("{}", m.what))
}

fn object(text: &str, sys: &Snapshot, known: Option<&mut KnownCode>) -> Vec<u8> {
    object_with(text, sys, known, &Settings { allow_unsafe: true, ..Settings::default() })
}

fn object_with(text: &str, sys: &Snapshot, known: Option<&mut KnownCode>, settings: &Settings) -> Vec<u8> {
    let source = Source { name: "reuse".into(), text: text.into() };
    let checked = check_text("reuse", text, &Env::new(sys, settings));
    let Checked { script, settings, invocation, .. } = checked.unwrap_or_else(|e| panic!("{text}: {e:?}"));
    let env = Env { sys, settings: &settings, invocation: &invocation };
    let script = lower(script, &env);
    let compiled = compile_with(&script, &env, std::slice::from_ref(&source), Dumps::default(), known);
    compiled.unwrap_or_else(|e| panic!("{text}: {e:?}")).artifact.elf
}

/// The maps that have tables of threads.
#[test]
fn maps_by_thread() {
    const ENTRY: &str = "tracepoint:syscalls:sys_enter_read";
    let with = |settings: &Settings, text: &str| {
        let sys = older_kernel();
        let text = text.replace("ENTRY", ENTRY);
        let checked = check_text("threads", &text, &Env::new(&sys, settings));
        let Checked { script, settings, invocation, .. } = checked.unwrap_or_else(|e| panic!("{text}: {e:?}"));
        let found = super::thread_maps::of(&script, &Env { sys: &sys, settings: &settings, invocation: &invocation });
        found.into_iter().map(|id| script.maps[id].name.clone()).collect::<Vec<_>>()
    };
    let found = |text: &str| with(&Settings::default(), text);
    for text in [
        "ENTRY { @m[tid] = nsecs; }",
        "ENTRY { @m[tid] = nsecs; @n[pid] = @m[tid]; @c[tid] = count(); } end { zero(@m); print(@m); }",
        "ENTRY { @m[tid]++; if (has_key(@m, tid)) { delete(@m, tid); delete(@m[tid]); } }",
        "ENTRY { @m[(int64)tid] = args.buf; } end { print(@m[tid]); }",
        "ENTRY { @m[tid] += 1; @s[tid] = comm; @t[tid] = (1, 2); }",
        "fn f() : void { @m[tid] = 1; } ENTRY { f(); }",
    ] {
        assert_eq!(found(text), ["@m"], "{text}");
    }
    for text in [
        "ENTRY { @m[pid] = nsecs; }",
        "ENTRY { @m[tid, 1] = nsecs; }",
        "ENTRY { @m[tid + 0] = nsecs; }",
        "ENTRY { @m[tid(init)] = nsecs; }",
        "ENTRY { @m[(uint16)tid] = nsecs; }",
        "ENTRY { @m[tid] = nsecs; @n[pid] = @m[pid]; }",
        "ENTRY { @m[tid] = nsecs; } end { print(@m[7]); }",
        "ENTRY { @m[tid] = nsecs; delete(@m, pid); }",
        "ENTRY { @m[tid] = nsecs; if (has_key(@m, pid)) { exit(); } }",
        "ENTRY { @m[tid] = nsecs; } end { for ($kv : @m) { print($kv); } }",
        "ENTRY { @m[tid] = nsecs; } end { print(len(@m)); }",
        "ENTRY { @m[tid] = comm; }",
        "ENTRY { @m = nsecs; }",
        "let @m = hash(5000); ENTRY { @m[tid] = nsecs; }",
        "let @m = lruhash(5000); ENTRY { @m[tid] = nsecs; }",
        "config = { max_map_keys = 4095; } ENTRY { @m[tid] = nsecs; }",
    ] {
        assert!(found(text).is_empty(), "{text}");
    }
    let refused = Settings { no_features: vec![Mechanism::ThreadTable], ..Settings::default() };
    assert!(with(&refused, "ENTRY { @m[tid] = nsecs; }").is_empty());
}

/// The edges of functions that lead back to an instruction on the way to them.
#[derive(Default)]
struct Edges {
    /// The number of those that are jumps.
    jumps: usize,
    /// The others.
    refused: Vec<String>,
}

impl Edges {
    /// Finds those of an ELF file.
    fn find(&mut self, elf: &[u8]) -> Result<(), object::Error> {
        let file = object::File::parse(elf)?;
        for symbol in file.symbols().filter(|s| s.kind() == SymbolKind::Text && s.size() > 0) {
            let Some(section) = symbol.section_index() else { continue };
            let section = file.section_by_index(section)?;
            if let Some(code) = section.data_range(symbol.address(), symbol.size())? {
                self.add(symbol.name()?, code);
            }
        }
        Ok(())
    }

    /// Adds those of a function, by the walk of `check_cfg`.
    fn add(&mut self, name: &str, code: &[u8]) {
        #[derive(Clone, Copy, PartialEq)]
        enum State {
            New,
            OnPath,
            Done,
        }
        let (code, _) = code.as_chunks::<8>();
        let mut states = vec![State::New; code.len()];
        let mut path = vec![(0, successors(code, 0))];
        while let Some((at, rest)) = path.last_mut() {
            let at = *at;
            states[at] = State::OnPath;
            let Some((to, jumps)) = rest.pop() else {
                states[at] = State::Done;
                path.pop();
                continue;
            };
            match states.get(to) {
                Some(State::New) => path.push((to, successors(code, to))),
                Some(State::OnPath) if jumps => self.jumps += 1,
                Some(State::OnPath) => self.refused.push(format!("{name}: back-edge from insn {at} to {to}")),
                Some(State::Done) => {}
                None => self.refused.push(format!("{name}: jump out of range from insn {at} to {to}")),
            }
        }
    }
}

/// The instructions that follow one, the first to visit last, and whether they follow by a jump.
fn successors(code: &[[u8; 8]], at: usize) -> Vec<(usize, bool)> {
    const LD_IMM64: u8 = 0x18;
    const JMP: u8 = 0x05;
    const JMP32: u8 = 0x06;
    const JA: u8 = 0x00;
    const CALL: u8 = 0x80;
    const EXIT: u8 = 0x90;
    let [op, _, low, high, immediate @ ..] = code[at];
    let target = |offset: isize| (at + 1).checked_add_signed(offset).unwrap_or(usize::MAX);
    let offset = isize::from(i16::from_le_bytes([low, high]));
    match (op & 7, op & 0xf0) {
        _ if op == LD_IMM64 => vec![(at + 2, false)],
        (JMP, EXIT) => Vec::new(),
        (JMP, CALL) => vec![(at + 1, false)],
        (JMP, JA) => vec![(target(offset), true)],
        (JMP32, JA) => vec![(target(i32::from_le_bytes(immediate) as isize), true)],
        (JMP | JMP32, _) => vec![(target(offset), true), (at + 1, true)],
        _ => vec![(at + 1, false)],
    }
}
