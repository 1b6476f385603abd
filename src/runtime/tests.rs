//! Sessions on the running kernel, with objects that `emit` makes. They need root, and report when they are skipped.
#![allow(unsafe_code)] // bpf(2) and signals, bare

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::*;
use crate::builtins::Lit;
use crate::codegen::artifact::{AttachSite, Event, EventArg, Map, Program};
use crate::diag::Source;
use crate::emit::SectionDef;
use crate::emit::{Builder, CodegenCx, CodegenOptions, Dumps, Helper, MapDef, MapKind, ProgramCx, TargetFeatures, new_context};
use crate::host::Reader;
use crate::probes::{ProgramType, SamplePeriod};
use crate::render::{Rendered, Renderer};
use crate::system::machine::live::Live;
use crate::types::{Int, Type};
use crate::value::{Pos, Value};

/// Keeps the output.
#[derive(Clone, Default)]
struct CapturedOutput(Rc<RefCell<Vec<Output>>>);

impl Renderer for CapturedOutput {
    fn render(&mut self, output: &Output, to: &mut Rendered) {
        self.0.borrow_mut().push(output.clone());
        to.out.push(b'.');
    }

    fn text(&self, _: &Value, _: Reader, _: &mut Vec<u8>) {}
}

impl CapturedOutput {
    fn problems(&self) -> Vec<String> {
        let outputs = self.0.borrow();
        outputs.iter().filter_map(|o| if let Output::Problem { msg, .. } = o { Some(msg.clone()) } else { None }).collect()
    }

    fn map(&self, name: &str) -> Vec<(Value, Value)> {
        let outputs = self.0.borrow();
        let view =
            outputs.iter().find_map(|o| if let Output::Map(view) = o { (view.name == name).then(|| view.entries.clone()) } else { None });
        view.unwrap_or_default()
    }
}

fn skipped() -> bool {
    match missing_privileges() {
        Some(why) => {
            eprintln!("skipped: {why}");
            assert!(std::env::var_os("RBT_TEST_REQUIRE").is_none());
            true
        }
        None => false,
    }
}

/// Sessions share the process's signal handlers: one at a time.
static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn one() -> std::sync::MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

fn site(name: &str, attach: Attach) -> AttachSite {
    AttachSite { name: name.into(), attach, pos: Pos { file: "t".into(), line: 1, col: 1, ..Pos::default() } }
}

fn program(function: &str, ty: ProgramType, sites: Vec<AttachSite>) -> Program {
    Program {
        function: function.into(),
        ty,
        sites,
        lowered: None,
        why: String::new(),
        of_command: false,
        probes: vec![0],
        expansions: Vec::new(),
    }
}

/// Sends record `event` (16 bytes, arbitrary after the index) unless the run is over.
fn send(e: &mut Builder, event: u32) {
    let value = crate::emit::Operand::u64(e.int(7));
    e.record(event, 16, &[crate::emit::RecordField { offset: 8, value, ty: Type::U64, var: false, length: None }]);
}

/// Adds one to element `key` of script map 0 (a hash of u64 to u64).
fn count(e: &mut Builder, key: u64) {
    let map = e.declare_map("map_0", COUNTS);
    let at = e.alloc(8);
    let key = e.int(key);
    e.store(at, 0, 8, key);
    let found = e.lookup(map, at);
    let there = e.not_null(found);
    e.if_else(
        there,
        |e| {
            let one = e.int(1);
            e.atomic_add(found, one);
        },
        |e| {
            let value = e.alloc(8);
            let one = e.int(1);
            e.store(value, 0, 8, one);
            e.update(map, at, value);
        },
    );
}

const COUNTS: MapDef = MapDef { kind: MapKind::Hash, key_size: 8, value_size: 8, max_entries: 64, flags: 0 };

fn counts() -> Map {
    Map {
        name: "@c".into(),
        key: Some(Type::U64),
        value: Type::U64,
        double: None,
        slots: None,
        threads: None,
        adds: false,
        read_at_end: false,
        weighted_by: Vec::new(),
        coupled: Vec::new(),
        sources: Vec::new(),
        unbounded: false,
        passed_by: None,
    }
}

/// Only for our own process: others are not affected.
fn ours(e: &mut Builder, then: impl FnOnce(&mut Builder)) {
    let id = e.call(Helper::GetCurrentPidTgid, &[]);
    let tgid = e.shr(id, e.int(32), false);
    let mine = e.cmp(crate::emit::Cmp::Eq, tgid, e.int(std::process::id().into()));
    let stopped = e.state(std::mem::offset_of!(crate::codegen::artifact::State, stopped));
    let stopped = e.load(stopped, 0, Int { bytes: 4, signed: false });
    let runs = e.cmp(crate::emit::Cmp::Eq, stopped, e.int(0));
    let both = e.and(mine, runs);
    e.if_(both, then);
}

fn says(text: &str) -> Event {
    let text = text.as_bytes().to_vec();
    let (literals, args) = (vec![Some(Lit::Str(text.clone()))], vec![EventArg::Text(text)]);
    Event {
        builtin: "warnf".into(),
        pos: Pos::default(),
        line: String::new(),
        literals,
        labels: Vec::new(),
        args,
        sites: Vec::new(),
        arguments: Vec::new(),
    }
}

macro_rules! object {
    ($cx:ident, $body:block) => {{
        let context = new_context(Dumps::default());
        let source = Source { name: "t.bt".into(), text: "one\ntwo\nthree\n".into() };
        let $cx = CodegenCx::new(&context, std::slice::from_ref(&source), TargetFeatures::default(), CodegenOptions::default());
        $body
        $cx.build(Dumps::default(), None).unwrap_or_else(|e| panic!("{:?}", e.messages)).elf
    }};
}

fn run(artifact: &Artifact, settings: &Settings, options: Options) -> (CapturedOutput, anyhow::Result<Exit>) {
    let sys = Live::new();
    let mut output = CapturedOutput::default();
    let result = load(artifact, &Env::new(&sys, settings), options)
        .and_then(|mut s| s.run(&mut output.clone(), &mut std::io::sink(), &mut std::io::sink()));
    output.0 = output.0.clone();
    (output, result)
}

/// Links on this machine that belong to us or to a sweeper, by number.
fn links() -> Vec<u32> {
    let mut ids = Vec::new();
    let mut id = 0;
    while unsafe { libbpf_sys::bpf_link_get_next_id(id, &mut id) } == 0 {
        ids.push(id);
    }
    ids
}

#[test]
fn begin_and_end_in_order() {
    let _one = one();
    if skipped() {
        return;
    }
    let elf = object!(cx, {
        for (i, name) in ["b0", "b1", "e0"].into_iter().enumerate() {
            let mut e = cx.begin_program(name, SectionDef::of(ProgramType::RawTracepoint), &[name.into()], ProgramCx::default());
            send(&mut e, i as u32);
            e.end_program(0);
        }
    });
    let manifest = Manifest {
        programs: vec![
            program("e0", ProgramType::RawTracepoint, vec![site("end", Attach::End)]),
            program("b0", ProgramType::RawTracepoint, vec![site("begin", Attach::Begin)]),
            program("b1", ProgramType::RawTracepoint, vec![site("begin", Attach::Begin)]),
        ],
        events: vec![says("b0"), says("b1"), says("e0")],
        ..Manifest::default()
    };
    let (output, exit) = run(&Artifact { elf, manifest }, &Settings::default(), Options::default());
    assert_eq!(exit.unwrap(), Exit { status: 0, child: None });
    assert_eq!(output.problems(), ["b0", "b1", "e0"]);
    assert!(matches!(output.0.borrow()[0], Output::Attached { probes: 3 }));
    assert!(matches!(output.0.borrow().last(), Some(Output::End)));
}

#[test]
fn every_mechanism_counts_and_leaves() {
    let _one = one();
    if skipped() {
        return;
    }
    let sys = Live::new();
    let multi = sys.has(crate::system::Feature::UprobeMulti);
    let elf = object!(cx, {
        let all = [
            ("tp", ProgramType::Tracepoint, 1),
            ("raw", ProgramType::RawTracepoint, 2),
            ("sys", ProgramType::RawTracepoint, 3),
            ("u", ProgramType::Uprobe, 4),
            ("m", ProgramType::UprobeMulti, 6),
        ];
        for (name, ty, key) in all {
            let mut e = cx.begin_program(name, SectionDef::of(ty), &[name.into()], ProgramCx::default());
            ours(&mut e, |e| count(e, key));
            e.end_program(0);
        }
        let mut e = cx.begin_program("t", SectionDef::of(ProgramType::PerfEvent), &["t".into()], ProgramCx::default());
        count(&mut e, 7);
        e.end_program(0);
        let mut e = cx.begin_program("tick", SectionDef::of(ProgramType::PerfEvent), &["tick".into()], ProgramCx::default());
        send(&mut e, 0);
        e.end_program(0);
    });
    let me = std::env::current_exe().unwrap();
    let binary = sys.binary(&me).unwrap();
    let function = binary.functions.iter().find(|f| f.name.contains("probe_me")).expect("our own function");
    let uprobe = Attach::Uprobe {
        path: me.clone(),
        offset: function.offset,
        function_offset: 0,
        stack_check: 0,
        function: "probe_me".into(),
        ret: false,
        abi: crate::system::Abi::SystemV,
    };
    let timer = |all_cpus| Attach::Perf { ty: 1, config: 0, period: SamplePeriod::Period(1_000_000), all_cpus };
    let number = sys.syscall_number("getpid").unwrap();
    let mut programs = vec![
        program(
            "tp",
            ProgramType::Tracepoint,
            vec![site("tp", Attach::Tracepoint { category: "syscalls".into(), event: "sys_enter_getppid".into() })],
        ),
        program("raw", ProgramType::RawTracepoint, vec![site("raw", Attach::RawTracepoint { name: "sys_enter".into(), typed: false })]),
        program(
            "sys",
            ProgramType::RawTracepoint,
            vec![site("s1", Attach::Syscall { enter: false, number }), site("s2", Attach::Syscall { enter: false, number: number + 1 })],
        ),
        program("u", ProgramType::Uprobe, vec![site("u", uprobe.clone())]),
        program("t", ProgramType::PerfEvent, vec![site("t", timer(true))]),
        program("tick", ProgramType::PerfEvent, vec![site("tick", timer(false))]),
    ];
    programs.push(program(
        "m",
        ProgramType::UprobeMulti,
        if multi { vec![site("m", uprobe.clone()), site("m2", Attach::End)] } else { vec![] },
    ));
    if multi {
        programs.last_mut().unwrap().sites.pop();
    }
    let sites: u64 = programs.iter().map(|p| p.sites.len() as u64).sum();
    let manifest = Manifest { programs, maps: vec![counts()], events: vec![says("tick")], ..Manifest::default() };
    let artifact = Artifact { elf, manifest };

    let before = links();
    // The run's own attach, while another thread makes the calls.
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let caller = std::thread::spawn({
        let stop = stop.clone();
        move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                unsafe { libc::syscall(libc::SYS_getppid) };
                assert_eq!(std::hint::black_box(probe_me(3)), 4);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let killer = std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(900));
        unsafe { libc::kill(libc::getpid(), libc::SIGINT) };
    });
    let output = CapturedOutput::default();
    let settings = Settings::default();
    let mut session = load(&artifact, &Env::new(&sys, &settings), Options::default()).map_err(|e| format!("{e:#}")).unwrap();
    let exit = session.run(&mut output.clone(), &mut std::io::sink(), &mut std::io::sink()).unwrap();
    let start = Instant::now();
    drop(session);
    let took = start.elapsed();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    caller.join().unwrap();
    killer.join().unwrap();
    assert_eq!(exit.status, 0);
    assert!(output.0.borrow().contains(&Output::Attached { probes: sites }));
    let counted = output.map("@c");
    let of = |key| counted.iter().find(|(k, _)| *k == Value::Uint(key)).map_or(0, |(_, v)| if let Value::Uint(n) = v { *n } else { 0 });
    eprintln!("counts {counted:?}, dropped in {took:?}, ticks {}", output.problems().len());
    for key in [1, 2, 3, 4, 7] {
        assert!(of(key) > 10, "mechanism {key}: {counted:?}");
    }
    assert!(!multi || of(6) > 10, "{counted:?}");
    let gone = Instant::now();
    while links().iter().any(|id| !before.contains(id)) {
        assert!(gone.elapsed() < Duration::from_secs(10), "still attached: {:?}", links());
        std::thread::sleep(Duration::from_millis(5));
    }
    eprintln!("all detached {:?} later", gone.elapsed());
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn probe_me(n: u64) -> u64 {
    std::hint::black_box(n) + 1
}

/// Programs on the same event run in the script's order, whatever the mechanism.
#[test]
fn order_of_declaration() {
    let _one = one();
    if skipped() {
        return;
    }
    let sys = Live::new();
    let multi = sys.has(crate::system::Feature::UprobeMulti);
    let me = std::env::current_exe().unwrap();
    let binary = sys.binary(&me).unwrap();
    let function = binary.functions.iter().find(|f| f.name.contains("probe_me")).expect("our own function");
    let uprobe = Attach::Uprobe {
        path: me.clone(),
        offset: function.offset,
        function_offset: 0,
        stack_check: 0,
        function: "probe_me".into(),
        ret: false,
        abi: crate::system::Abi::SystemV,
    };
    let tracepoint = Attach::Tracepoint { category: "syscalls".into(), event: "sys_enter_getppid".into() };
    let mut cases = vec![
        (ProgramType::Uprobe, uprobe.clone()),
        (ProgramType::Tracepoint, tracepoint),
        (ProgramType::RawTracepoint, Attach::RawTracepoint { name: "sys_enter".into(), typed: false }),
    ];
    if multi {
        cases.push((ProgramType::UprobeMulti, uprobe));
    }
    for (ty, attach) in cases {
        let elf = object!(cx, {
            for i in 0..3u32 {
                let mut e = cx.begin_program(&format!("p{i}"), SectionDef::of(ty), &["p".into()], ProgramCx::default());
                ours(&mut e, |e| send(e, i));
                e.end_program(0);
            }
        });
        let manifest = Manifest {
            programs: (0..3).map(|i| program(&format!("p{i}"), ty, vec![site("p", attach.clone())])).collect(),
            events: ["0", "1", "2"].map(says).to_vec(),
            ..Manifest::default()
        };
        let artifact = Artifact { elf, manifest };
        let killer = std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(600));
            probe_me(1);
            unsafe { libc::syscall(libc::SYS_getppid) };
            std::thread::sleep(Duration::from_millis(50));
            unsafe { libc::kill(libc::getpid(), libc::SIGINT) };
        });
        let (output, exit) = run(&artifact, &Settings::default(), Options::default());
        killer.join().unwrap();
        exit.unwrap();
        let problems = output.problems();
        eprintln!("{ty:?}: {problems:?}");
        // calls made while only some of the programs were attached come first
        let whole = problems.iter().position(|s| s == "2").unwrap_or_else(|| panic!("{ty:?}: {problems:?}"));
        assert_eq!(
            problems.get(whole.saturating_sub(2)..=whole),
            Some(["0", "1", "2"].map(String::from).as_slice()),
            "{ty:?}: {problems:?}"
        );
    }
}

#[test]
fn rejected_programs_name_their_line() {
    let _one = one();
    if skipped() {
        return;
    }
    let elf = object!(cx, {
        let mut e = cx.begin_program("bad", SectionDef::of(ProgramType::RawTracepoint), &["bad".into()], ProgramCx::default());
        e.at(0, 2, 5);
        let map = e.declare_map("map_0", COUNTS);
        let key = e.alloc(8);
        let zero = e.int(0);
        e.store(key, 0, 8, zero);
        let found = e.lookup(map, key);
        e.at(0, 3, 1);
        let beyond = e.load(found, 0, Int { bytes: 8, signed: false });
        e.ret(Some(beyond));
        e.end_program(0);
    });
    let manifest = Manifest {
        programs: vec![program(
            "bad",
            ProgramType::RawTracepoint,
            vec![site("rawtracepoint:x", Attach::RawTracepoint { name: "sys_enter".into(), typed: false })],
        )],
        ..Manifest::default()
    };
    let (_, exit) = run(&Artifact { elf, manifest }, &Settings::default(), Options::default());
    let error = exit.unwrap_err();
    let refused = error.downcast_ref::<VerifierError>().unwrap_or_else(|| panic!("{error:#}"));
    eprintln!("{refused}\n{}", refused.log);
    assert_eq!(refused.program, "rawtracepoint:x");
    assert!(refused.reason.contains("invalid mem access"), "{}", refused.reason);
    assert_eq!(refused.pos.as_ref().map(|p| (p.file.as_str(), p.line)), Some(("t.bt", 3)));
}

#[test]
fn failures_to_attach_name_the_probe() {
    let _one = one();
    if skipped() {
        return;
    }
    let elf = object!(cx, {
        let e = cx.begin_program("p", SectionDef::of(ProgramType::RawTracepoint), &["p".into()], ProgramCx::default());
        e.end_program(0);
        let e = cx.begin_program("b", SectionDef::of(ProgramType::RawTracepoint), &["b".into()], ProgramCx::default());
        e.end_program(0);
    });
    let manifest = Manifest {
        programs: vec![
            program("b", ProgramType::RawTracepoint, vec![site("begin", Attach::Begin)]),
            program(
                "p",
                ProgramType::RawTracepoint,
                vec![site("rawtracepoint:nope", Attach::RawTracepoint { name: "nope".into(), typed: false })],
            ),
        ],
        ..Manifest::default()
    };
    let artifact = Artifact { elf, manifest };
    let (_, exit) = run(&artifact, &Settings::default(), Options::default());
    let error = exit.unwrap_err();
    assert_eq!(error.to_string(), "cannot attach rawtracepoint:nope: no such raw tracepoint (No such file or directory)");
    let settings = Settings { missing_probes: MissingProbes::Warn, ..Settings::default() };
    let (output, exit) = run(&artifact, &settings, Options::default());
    assert!(exit.unwrap_err().is::<NothingAttached>());
    let _ = output;
}

/// Every record is seen or counted as lost, whether they come in floods or one by one; and a sleeping reader is woken
/// at once.
#[test]
fn lost_events_are_counted() {
    let _one = one();
    if skipped() {
        return;
    }
    let elf = object!(cx, {
        let mut e = cx.begin_program("p", SectionDef::of(ProgramType::RawTracepoint), &["p".into()], ProgramCx::default());
        ours(&mut e, |e| {
            count(e, 1);
            send(e, 0);
        });
        e.end_program(0);
    });
    let manifest = Manifest {
        programs: vec![program(
            "p",
            ProgramType::RawTracepoint,
            vec![site("p", Attach::RawTracepoint { name: "sys_enter".into(), typed: false })],
        )],
        maps: vec![counts()],
        events: vec![says("call")],
        ..Manifest::default()
    };
    let artifact = Artifact { elf, manifest };
    let sys = Live::new();
    let settings = Settings { perf_rb_pages: 64, ..Settings::default() };
    let mut session = load(&artifact, &Env::new(&sys, &settings), Options::default()).unwrap();
    let caller = std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(100));
        for _ in 0..400_000 {
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
        for _ in 0..100 {
            std::thread::sleep(Duration::from_millis(3));
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
        unsafe { libc::kill(libc::getpid(), libc::SIGINT) };
    });
    let output = CapturedOutput::default();
    session.run(&mut output.clone(), &mut std::io::sink(), &mut std::io::sink()).unwrap();
    caller.join().unwrap();
    let sent = match output.map("@c").first() {
        Some((_, Value::Uint(n))) => *n,
        other => panic!("{other:?}"),
    };
    let lost: u64 = output.0.borrow().iter().map(|o| if let Output::Lost { events } = o { *events } else { 0 }).sum();
    let problems = output.problems();
    let seen = problems.len() as u64;
    eprintln!("sent {sent}, seen {seen}, lost {lost}, {:?}", session.cx.loaded.state.probe_counters(&[0]));
    assert_eq!(sent, seen + lost);
}

/// A renderer that blocks on its first output until it is released.
struct BlockingRenderer(CapturedOutput, std::sync::mpsc::Receiver<()>, bool);

impl Renderer for BlockingRenderer {
    fn render(&mut self, output: &Output, to: &mut Rendered) {
        if !self.2 && matches!(output, Output::Problem { .. }) {
            self.2 = true;
            let _ = self.1.recv();
        }
        self.0.render(output, to);
    }

    fn text(&self, value: &Value, reader: Reader, to: &mut Vec<u8>) {
        self.0.text(value, reader, to);
    }
}

/// Events that arrive while one is processed slowly are not lost, although the ring has no room for them; and they keep
/// their order.
#[test]
fn slow_records_are_not_lost() {
    const BURSTS: u64 = 6;
    const BURST: u64 = 1000;
    let _one = one();
    if skipped() {
        return;
    }
    let elf = object!(cx, {
        let mut e = cx.begin_program("p", SectionDef::of(ProgramType::RawTracepoint), &["p".into()], ProgramCx::default());
        // Other tests in this process make other calls. Their number must not matter.
        let ctx = e.ctx();
        let number = e.load(ctx, 8, Int { bytes: 8, signed: false });
        let is_ours = e.cmp(crate::emit::Cmp::Eq, number, e.int(libc::SYS_getppid as u64));
        e.if_(is_ours, |e| ours(e, |e| send(e, 0)));
        e.end_program(0);
    });
    let manifest = Manifest {
        programs: vec![program(
            "p",
            ProgramType::RawTracepoint,
            vec![site("p", Attach::RawTracepoint { name: "sys_enter".into(), typed: false })],
        )],
        events: vec![says("call")],
        ..Manifest::default()
    };
    let artifact = Artifact { elf, manifest };
    let sys = Live::new();
    // 64 KiB: less than three bursts of 24-byte records; four times that may wait in memory
    let settings = Settings { perf_rb_pages: 16, ..Settings::default() };
    let mut session = load(&artifact, &Env::new(&sys, &settings), Options::default()).unwrap();
    let ring = session.cx.loaded.ring.map(|(fd, size)| ring::Ring::open(fd, size).unwrap()).unwrap();
    let (go_on, wait) = std::sync::mpsc::channel();
    let caller = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        for _ in 0..BURSTS {
            for _ in 0..BURST {
                unsafe { libc::syscall(libc::SYS_getppid) };
            }
            // Waits until the ring is almost empty, however busy the machine is.
            while ring.unread() > 4096 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        go_on.send(()).unwrap();
        unsafe { libc::kill(libc::getpid(), libc::SIGINT) };
    });
    let output = CapturedOutput::default();
    let mut dawdler = BlockingRenderer(output.clone(), wait, false);
    session.run(&mut dawdler, &mut std::io::sink(), &mut std::io::sink()).unwrap();
    caller.join().unwrap();
    let counters = session.cx.loaded.state.probe_counters(&[0]);
    assert!(counters.sent >= BURSTS * BURST, "{counters:?}");
    assert_eq!(counters.dropped, 0, "{counters:?}");
    let problems = output.problems();
    let seen = problems.len() as u64;
    assert_eq!(seen, counters.sent);
}

#[test]
fn map_failures_name_maps_of_the_script() {
    let messages = |name: &str, failure: &str| {
        let line = format!("libbpf: map '{name}': failed to create: {failure}\n");
        super::load::map_failure(&line, &[counts()], &[127]).unwrap()
    };
    let remedy = "lower max_map_keys, or the size in the map's declaration";
    assert_eq!(messages("map_0", "-E2BIG"), format!("the kernel cannot create the map @c: it is too large; {remedy}"));
    assert_eq!(messages("map_0_second", "-ENOMEM"), format!("the kernel cannot create the map @c: there is not enough memory; {remedy}"));
    assert_eq!(
        messages("stacks_127", "-ENOMEM"),
        "the kernel cannot create the map of stacks: there is not enough memory; lower max_stacks"
    );
    assert_eq!(messages("hits", "-EPERM"), "the kernel cannot create rbt's own map hits: EPERM");
    assert_eq!(super::load::map_failure("libbpf: prog 'e0': BPF program load failed: -EINVAL", &[counts()], &[]), None);
}

/// Counts and sums from runs with weights are those of all runs on average, whether the rate is fixed or falls during a burst.
#[test]
fn weights_are_unbiased() {
    const TRIALS: usize = 100;
    const RUNS: u64 = 4000;
    let _one = one();
    if skipped() {
        return;
    }
    let elf = object!(cx, {
        let of = ProgramCx { weighted: true, ..ProgramCx::default() };
        let mut e = cx.begin_program("p", SectionDef::of(ProgramType::RawTracepoint), &["p".into()], of);
        e.pass_gate(0, &|_| ());
        let weight = e.weight();
        e.ret(Some(weight));
        e.end_program(0);
    });
    let programs = vec![program("p", ProgramType::RawTracepoint, vec![site("begin", Attach::Begin)])];
    let artifact = Artifact { elf, manifest: Manifest { programs, probes: 1, ..Manifest::default() } };
    let (sys, settings) = (Live::new(), Settings::default());
    let session = load(&artifact, &Env::new(&sys, &settings), Options::default()).unwrap();
    let (state, fd) = (&session.cx.loaded.state, session.cx.loaded.programs[0].unwrap());
    // values that grow: the last ones, at the lowest rate, are the greatest
    let values = || (1..=RUNS).map(|n| n * n);
    for (shift, free) in [(3, u64::MAX), (0, 160), (2, 400)] {
        let before = state.probe_counters(&[0]);
        let trials: Vec<[f64; 2]> = (0..TRIALS)
            .map(|_| {
                state.set_gate(0, shift, free);
                values().fold([0.0; 2], |[count, sum], n| {
                    let weight = f64::from(test_run::run_once(fd, 0).unwrap());
                    [count + weight, sum + weight * n as f64]
                })
            })
            .collect();
        for (what, truth) in [(0, RUNS as f64), (1, values().sum::<u64>() as f64)] {
            let mean = trials.iter().map(|of| of[what]).sum::<f64>() / TRIALS as f64;
            let variance = trials.iter().map(|of| (of[what] - mean).powi(2)).sum::<f64>() / (TRIALS - 1) as f64;
            let error = (variance / TRIALS as f64).sqrt();
            eprintln!("1 in 2^{shift}, {free} at first: {mean:.0} of {truth}, standard error {error:.0}");
            assert!(error > 0.0 && (mean - truth).abs() < 5.0 * error, "{mean} of {truth}, standard error {error}");
        }
        let after = state.probe_counters(&[0]);
        let (ran, left_out) = (after.ran - before.ran, after.sampled_out - before.sampled_out);
        assert_eq!((ran + left_out, after.thinned), (TRIALS as u64 * RUNS, 0));
        assert!(ran < left_out, "{ran} of {left_out} passed");
    }
    state.set_gate(0, crate::codegen::artifact::Gate::CLOSED, 0);
    assert_eq!(test_run::run_once(fd, 0).unwrap(), 0);
    assert_eq!(state.probe_counters(&[0]).thinned, 1);
}
