//! Whole scripts against a few rows and kinds that the tests define, on a synthetic machine.

#![allow(clippy::wildcard_enum_match_arm)] // matches on one variant; the others are rejected

use std::rc::Rc;
use std::sync::Arc;

use super::dump::dump;
use super::{Tables, check_with};
use crate::builtins::{Accepts, Aggregate, Builtin, CallInfo, CallSite, Codegen, Event, KernelRead, Lit, Param, Returns, StateCodec};
use crate::diag::{Diagnostic, Diagnostics, Source};
use crate::emit::{Builder, Operand};
use crate::probes::{ArgRef, Attach, Context, ContextFeatures, ContextField, Env, FieldLocation, Info, ProbeKind, ProbeSite, ProgramType};
use crate::settings::{Invocation, NameFilter, Settings};
use crate::state::AggregateState;
use crate::syntax::ast::AttachPoint;
use crate::system::fake::Fake;
use crate::types::{Agg, Space, Type};
use crate::value::{MapViewKind, Value};

mod promise;
mod random;

fn code<'c>(_: &mut Builder<'_, 'c>, _: &CallSite, _: &[Operand<'c>]) -> Operand<'c> {
    unreachable!("nothing is emitted in these tests")
}
fn update<'c>(_: &mut Builder<'_, 'c>, _: &CallSite, _: Operand<'c>, _: &[Operand<'c>]) {}
fn step<'c>(_: &mut Builder<'_, 'c>, acc: [Operand<'c>; 2], _: Operand<'c>) -> [Operand<'c>; 2] {
    acc
}
fn finish<'c>(_: &mut Builder<'_, 'c>, [a, _]: [Operand<'c>; 2]) -> Operand<'c> {
    a
}

static EVENT: Event = Event { ends_probe: false, capture: None, prepare: |_| anyhow::bail!("no") };
static STOP: Event = Event { ends_probe: true, capture: None, prepare: |_| anyhow::bail!("no") };
static READ: KernelRead = KernelRead { init: [0, 0], step, finish, quotient: None };

fn agg(f: &CallInfo, signed: bool, params: Vec<i64>) -> Result<Agg, Diagnostic> {
    Ok(Agg { function: f.name.into(), signed, params, size: 8 })
}
static SAVED: StateCodec =
    StateCodec { is_additive: false, size: |_, _| None, save: |_, _| AggregateState::default(), load: |_, _| Ok(Vec::new()) };
static COUNT: Aggregate = Aggregate {
    sharing: crate::builtins::Sharing::Always,
    layout: |f| agg(f, false, vec![]),
    update,
    merge: |_, _| Value::None,
    state_codec: &SAVED,
    kind: MapViewKind::Map,
    measures: false,
    monotonicity: crate::builtins::Monotonicity::Either,
    kernel_read: Some(&READ),
};
static SUM: Aggregate = Aggregate {
    sharing: crate::builtins::Sharing::Always,
    layout: |f| agg(f, f.args[0].ty.as_int().is_some_and(|i| i.signed), vec![]),
    update,
    merge: |_, _| Value::None,
    state_codec: &SAVED,
    kind: MapViewKind::Map,
    measures: false,
    monotonicity: crate::builtins::Monotonicity::Either,
    kernel_read: Some(&READ),
};
static HIST: Aggregate = Aggregate {
    sharing: crate::builtins::Sharing::Always,
    layout: |f| agg(f, true, vec![f.int(1).unwrap_or(0)]),
    update,
    merge: |_, _| Value::None,
    state_codec: &SAVED,
    kind: MapViewKind::Hist,
    measures: false,
    monotonicity: crate::builtins::Monotonicity::Either,
    kernel_read: None,
};

const fn row(name: &'static str, params: &'static [Param], needs: ContextFeatures, returns: Returns, codegen: Codegen) -> Builtin {
    Builtin { name, params, returns, needs, risky: false, codegen, doc: "", example: "" }
}
const NONE: ContextFeatures = ContextFeatures::NONE;
const VOID: Returns = Returns::Always(Type::Void);
const U64: Returns = Returns::Always(Type::U64);

const ROWS: &[Builtin] = &[
    row("pid", &[], NONE, Returns::Always(Type::uint(4)), Codegen::Code(code)),
    row("nsecs", &[Param::optional("mode", Accepts::Word(&["boot", "tai"]))], NONE, U64, Codegen::Code(code)),
    row("comm", &[], NONE, Returns::Always(Type::Str(16)), Codegen::Code(code)),
    row("probe", &[], NONE, Returns::Always(Type::Str(64)), Codegen::Code(code)),
    row("curtask", &[], NONE, Returns::By(task), Codegen::Code(code)),
    row("args", &[], ContextFeatures::ARGS, Returns::Always(Type::Args), Codegen::Context(ArgRef::All(Vec::new()))),
    row("arg0", &[], ContextFeatures::ARGN, U64, Codegen::Context(ArgRef::Index(0))),
    row("arg1", &[], ContextFeatures::ARGN, U64, Codegen::Context(ArgRef::Index(1))),
    row("retval", &[], ContextFeatures::RETVAL, U64, Codegen::Context(ArgRef::Retval)),
    row(
        "str",
        &[Param::new("from", Accepts::StrOrAddr), Param::optional("length", Accepts::Int)],
        NONE,
        Returns::Always(Type::Str(1024)),
        Codegen::Code(code),
    ),
    row("kaddr", &[Param::new("name", Accepts::LitStr)], NONE, U64, Codegen::Fold(kaddr)),
    row("printf", &[Param::new("format", Accepts::Format), Param::rest("values", Accepts::Printable)], NONE, VOID, Codegen::Event(&EVENT)),
    row(
        "print",
        &[Param::new("what", Accepts::MapOrValue), Param::optional("top", Accepts::LitInt), Param::optional("div", Accepts::LitInt)],
        NONE,
        VOID,
        Codegen::Event(&EVENT),
    ),
    row("clear", &[Param::new("map", Accepts::Map)], NONE, VOID, Codegen::Event(&EVENT)),
    row("len", &[Param::new("map", Accepts::KeyedMap)], NONE, Returns::Always(Type::I64), Codegen::Code(code)),
    row(
        "delete",
        &[Param::new("element", Accepts::Element), Param::optional("key", Accepts::Key)],
        NONE,
        Returns::Always(Type::Bool),
        Codegen::Code(code),
    ),
    row(
        "has_key",
        &[Param::new("map", Accepts::KeyedMap), Param::new("key", Accepts::Key)],
        NONE,
        Returns::Always(Type::Bool),
        Codegen::Code(code),
    ),
    row("exit", &[Param::optional("status", Accepts::Int)], NONE, VOID, Codegen::Event(&STOP)),
    Builtin {
        name: "system",
        params: &[Param::new("command", Accepts::Format)],
        returns: VOID,
        needs: NONE,
        risky: true,
        codegen: Codegen::Event(&EVENT),
        doc: "",
        example: "",
    },
    row("count", &[], NONE, VOID, Codegen::Aggregate(&COUNT)),
    row("sum", &[Param::new("n", Accepts::Int)], NONE, VOID, Codegen::Aggregate(&SUM)),
    row("hist", &[Param::new("n", Accepts::Int), Param::optional("k", Accepts::LitInt)], NONE, VOID, Codegen::Aggregate(&HIST)),
];

fn task(f: &CallInfo) -> Result<Type, Diagnostic> {
    match f.sys.type_named(crate::system::TypeName::Struct, "task_struct") {
        Some(ty) => Ok(ty.ptr(Space::Kernel)),
        None => Err(Diagnostic::error("unknown-type", f.span, "no task_struct")),
    }
}

fn kaddr(f: &CallInfo) -> Result<Lit, Diagnostic> {
    let name = String::from_utf8_lossy(f.text(0).unwrap_or_default()).into_owned();
    let found = f.sys.kernel_symbol(&name).map(|a| Lit::Int(a as i64));
    found.ok_or_else(|| Diagnostic::error("unknown-symbol", f.span(0), format!("no symbol {name}")))
}

/// `begin` and `end` offer nothing; `tracepoint` offers `args`; `uprobe` and `uretprobe` numbers and values.
#[derive(Debug)]
struct Kind(Info);

impl Kind {
    fn name(&self) -> &'static str {
        self.0.names[0]
    }
}

const fn kind(names: &'static [&'static str]) -> Kind {
    Kind(Info { names, usage: "tracepoint:category:event", doc: "", example: "" })
}

impl ProbeKind for Kind {
    fn info(&self) -> &Info {
        &self.0
    }
    fn expand(&self, point: &AttachPoint, env: &Env) -> Result<Vec<ProbeSite>, Diagnostic> {
        let kind: &'static dyn ProbeKind = KINDS.iter().copied().find(|k| k.names() == self.0.names).unwrap();
        let part = |i: usize| point.segments.get(i).map(|s| s.text.clone()).unwrap_or_default();
        let one = |attach, name: String| vec![ProbeSite { kind, name, attach, span: point.span }];
        Ok(match self.name() {
            "begin" => one(Attach::Begin, "begin".into()),
            "end" => one(Attach::End, "end".into()),
            "tracepoint" => {
                let events = env.sys.tracepoints().unwrap();
                let wanted = part(2);
                let prefix = wanted.trim_end_matches('*');
                let matches = |n: &str| if wanted.ends_with('*') { n.starts_with(prefix) } else { n == wanted };
                let found: Vec<ProbeSite> = events
                    .iter()
                    .filter(|(c, n)| *c == part(1) && matches(n))
                    .flat_map(|(c, n)| one(Attach::Tracepoint { category: c.clone(), event: n.clone() }, format!("tracepoint:{c}:{n}")))
                    .collect();
                if found.is_empty() && !wanted.ends_with('*') {
                    return Err(Diagnostic::error("unknown-tracepoint", point.span, "no such tracepoint"));
                }
                found
            }
            name => {
                let attach = Attach::Uprobe {
                    path: part(1).into(),
                    offset: 0,
                    function_offset: 0,
                    stack_check: 0,
                    function: part(2),
                    ret: name == "uretprobe",
                    abi: crate::system::Abi::SystemV,
                };
                one(attach, format!("{name}:{}:{}", part(1), part(2)))
            }
        })
    }
    fn offers(&self) -> ContextFeatures {
        match self.name() {
            "tracepoint" => ContextFeatures::ARGS,
            "uprobe" => ContextFeatures::ARGN,
            "uretprobe" => ContextFeatures::RETVAL,
            _ => ContextFeatures::NONE,
        }
    }
    fn context(&self, site: &ProbeSite, env: &Env) -> Result<Context, Diagnostic> {
        let mut c = Context { features: self.offers(), args: if self.name() == "uprobe" { 1 } else { 0 }, ..Context::default() };
        if let Attach::Tracepoint { category, event } = &site.attach {
            let record = env.sys.tracepoint(category, event).unwrap().unwrap();
            let field = |f: crate::system::TracepointField| Rc::new(ContextField { field: f.field, location: FieldLocation::Record });
            c.fields = record.fields.into_iter().map(field).collect();
            c.space = Some(if category == "syscalls" { Space::User } else { Space::Kernel });
        }
        Ok(c)
    }
    fn program(&self, _: &ProbeSite, _: &Env) -> ProgramType {
        ProgramType::RawTracepoint
    }
    fn load<'c>(&self, _: &mut Builder<'_, 'c>, _: &ProbeSite, _: &Env, _: &ArgRef, _: &Type) -> Operand<'c> {
        unreachable!("nothing is emitted in these tests")
    }
    fn list(&self, _: &[String], _: &Env, _: &mut dyn FnMut(&str)) -> Result<(), crate::system::Missing> {
        Ok(())
    }
}

const KINDS: &[&dyn ProbeKind] =
    &[&kind(&["begin"]), &kind(&["end"]), &kind(&["tracepoint", "t"]), &kind(&["uprobe", "u"]), &kind(&["uretprobe", "ur"])];

const TABLES: Tables = Tables {
    row: |name| ROWS.iter().find(|r| r.name == name),
    rows: || ROWS.iter().collect(),
    kind: |name| KINDS.iter().copied().find(|k| k.names().contains(&name.to_ascii_lowercase().as_str())),
    kinds: || KINDS.to_vec(),
};

const MACHINE: &str = "
    feature PerfCookie;
    enum state { IDLE, BUSY = 4 };
    typedef int pid_t;
    struct inner { long a; unsigned char bytes[4]; };
    struct task_struct { pid_t pid; pid_t tgid; char comm[16]; struct task_struct *real_parent; struct inner in; };
    tracepoint sched:sched_switch { char prev_comm[16]; pid_t prev_pid; pid_t next_pid; }
    tracepoint sched:sched_wakeup { char comm[16]; pid_t pid; }
    tracepoint syscalls:sys_enter_open { const char *filename; int flags; }
    tracepoint syscalls:sys_enter_openat { int dfd; const char *filename; int flags; }
    tracepoint syscalls:sys_exit_read { long ret; }
    symbol schedule 0xffffffff81000000;
";

fn run(text: &str, settings: &Settings) -> Result<(super::hir::Script, Diagnostics), Diagnostics> {
    run_with(text, settings, &Invocation::default())
}

fn run_with(text: &str, settings: &Settings, invocation: &Invocation) -> Result<(super::hir::Script, Diagnostics), Diagnostics> {
    let sys = Fake::new(MACHINE).unwrap();
    let script = crate::syntax::parse(&Source { name: "t".into(), text: text.into() })?;
    check_with(&script, &Env { sys: &sys, settings, invocation }, &TABLES, &[])
}

/// The dump of a correct script.
fn good(text: &str) -> String {
    match run(text, &Settings::default()) {
        Ok((script, _)) => {
            promise::holds(&script);
            dump(&script)
        }
        Err(d) => panic!("{text}\n{}", crate::diag::render(&d, &[Source { name: "t".into(), text: text.into() }], false)),
    }
}

/// Codes of errors and warnings of a script.
fn codes(text: &str) -> Vec<&'static str> {
    let result = run(text, &Settings::default());
    if let Ok((script, _)) = &result {
        promise::holds(script);
    }
    let (Ok((_, d)) | Err(d)) = result;
    d.0.iter().map(|d| d.code).collect()
}

/// Does the dump of `text` contain all of `needles`?
fn holds(text: &str, needles: &[&str]) {
    let got = good(text);
    for n in needles {
        assert!(got.contains(n), "{text}\nlacks {n}\n{got}");
    }
}

#[test]
fn types_come_from_all_uses() {
    holds("begin { $x = 1; }", &["let $x: int8", "$x = 1"]);
    holds("begin { $x = 1; $x = 300; }", &["let $x: int16"]);
    holds("begin { $x = 5; $x = (uint8)1; }", &["let $x: uint8"]);
    holds("begin { $x = 0; $x = $x + 1; $x = nsecs; }", &["let $x: uint64"]);
    holds("begin { @x = 0; @x += nsecs; }", &["map @x: uint64"]);
    holds("begin { @h = nsecs; $x = @h % 7; $x = pid ? $x : @h; }", &["let $x: uint64"]);
    holds("begin { @x = 5; $x = @x; $x = (uint8)1; }", &["let $x: uint8"]);
    holds("begin { @x[pid, 1] = 1; @x[1, pid] = 2; }", &["map @x[(uint32, uint32)]: int8"]);
    holds("begin { for $i : 0..300 { @x = $i; } }", &["map @x: int16"]);
    holds("begin { $x = 1; $x = nsecs; }", &["let $x: uint64"]);
    holds("begin { $x = pid; }", &["let $x: uint32"]);
    holds("begin { $x = -1; $x = pid; }", &["let $x: int64", "$x = (int64)pid()"]);
    holds("begin { @s = \"a\"; @s = comm; }", &["map @s: string[16]"]);
    // Assigned in a later probe.
    holds("begin { $y = @x; } end { @x = nsecs; }", &["let $y: uint64", "map @x: uint64"]);
    holds(
        "begin { @a++; @b += 5; @c -= 1; @d += nsecs; }",
        &["@a: int64", "(@a then += 1)", "(@b += 5)", "(@c += -1)", "@d = (@d + nsecs())"],
    );
    holds("begin { @x[pid, \"a\"] = 1; @x[1, comm] = 2; }", &["map @x[(uint32, string[16])]: int8, 4096", "@x[(pid(), \"a\")]"]);
    holds("begin { @ = 1; } begin { @y = @ + 1; }", &["map @: int8, 1 entries", "@y = ((int64)@ + 1)"]);
    holds("begin { $t = (1, comm); $u = $t.1; @k[$t] = 1; @k[pid, comm] = 2; }", &["let $u: string[16]"]);
    holds("let @m = lruhash(10); begin { @m[1] = 1; }", &["@m[int8]: int8, 10 entries, lru"]);
}

#[test]
fn arithmetic_and_constants() {
    holds("begin { $x = 1 + 2 * 3; $s = \"a\" + \"b\"; $c = \"A\"[0]; }", &["$x = 7", "$s = \"ab\"", "$c = 65"]);
    holds("begin { $x = pid + 1; }", &["let $x: uint64", "((uint64)pid() + 1)"]);
    holds("begin { $x = pid - 1; }", &["let $x: int64"]);
    holds("begin { if pid == 1 && comm == \"x\" { exit(); } }", &["if (((uint64)pid() == 1) && (comm() == \"x\"))"]);
    holds("begin { $x = !pid; $y = ~nsecs; $z = -1; }", &["!(bool)pid()", "~nsecs()", "$z = -1"]);
    holds("begin { $x = pid ? 1 : 0; $y = pid ?: 5; }", &["((bool)pid() ? 1 : 0)"]);
    holds("begin { $x = (uint8)300; $y = (int32)nsecs; }", &["let $x: uint8", "(int32)nsecs()"]);
    holds("begin { $x = sizeof(struct task_struct) + sizeof(uint32) + offsetof(struct task_struct, tgid); }", &["let $x: uint64"]);
    holds("begin { $x = IDLE; if ($x == BUSY) { @ = 1; } }", &["let $x: enum state"]);
    assert_eq!(codes("begin { $x = 1 / 0; $y = 5 % 0; }"), ["division-by-zero", "division-by-zero"]);
    assert_eq!(codes("begin { $x = comm + 1; }"), ["type-mismatch"]);
}

#[test]
fn fields_and_pointers() {
    holds("begin { $x = curtask.real_parent.tgid; }", &["*kernel:*kernel:curtask().real_parent.tgid", "let $x: int32"]);
    holds("begin { $c = ((struct task_struct *)nsecs)->comm; }", &["let $c: string[16]", "*kernel:(struct task_struct *)nsecs()"]);
    holds("tracepoint:syscalls:sys_enter_open { $s = str(args.filename); }", &["str(args.filename)"]);
    holds("begin { $p = curtask; $q = $p + 1; $b = curtask.in.bytes[2]; }", &["let $q: struct task_struct *", "let $b: uint8"]);
    holds("begin { $x = *nsecs; $y = &$x; $z = *$y; }", &["*kernel:(uint64 *)nsecs()", "*bpf:$y"]);
    holds("begin { print(*curtask); }", &["print((struct task_struct)*kernel:curtask())"]);
    holds("tracepoint:sched:sched_switch { @[args] = count(); print(args); }", &["@[args] <- count()"]);
    assert_eq!(codes("begin { $x = curtask.tgit; }"), ["unknown-field"]);
    assert_eq!(codes("begin { $b = curtask.in.bytes[4]; }"), ["out-of-bounds"]);
    assert_eq!(codes("tracepoint:sched:sched_switch { $x = args.prev_pidd; }"), ["unknown-field"]);
    assert_eq!(codes("begin { $x = ((struct nope *)0).y; }"), ["unknown-type"]);
}

#[test]
fn maps_and_aggregations() {
    holds("begin { @[comm] = count(); } end { print(@); clear(@); }", &["@[string[16]]: count_t", "@[comm()] <- count()", "print(@)"]);
    holds("begin { @c = count; @s = sum(-1); @y = @c + 1; if (@s > 1) { @z = 1; } }", &["(read(@c) + 1)", "(read(@s) > 1)"]);
    holds("begin { @h[pid] = hist(nsecs, 2); print(@h[pid], 3); print(@h); }", &["print(@h[pid()], 3)"]);
    holds("begin { @x[1] = 2; delete(@x[1]); delete(@x, 1); $l = len(@x); }", &["delete(@x[1])", "delete(@x, 1)", "len(@x)"]);
    holds("begin { @x[1,2] = 2; if (has_key(@x, (1, 2))) { delete(@x, (1,2)); } }", &["has_key(@x, (1, 2))"]);
    holds("begin { @x[pid] = 2; for ($kv : @x) { print($kv.0); } }", &["for"]);
    holds("begin { @x = 1; delete(@x); print(@x); }", &["delete(@x)"]);
    assert_eq!(codes("begin { @x = 1; @x[1] = 2; }"), ["map-key-conflict"]);
    assert_eq!(codes("begin { @x[1] = 1; } end { @y = @x; }"), ["map-key-conflict"]);
    assert_eq!(codes("begin { @x = 1; @x = \"a\"; }"), ["type-conflict"]);
    assert_eq!(codes("begin { @x[1] = 1; @x[comm] = 1; }"), ["type-conflict"]);
    assert_eq!(codes("begin { @x = count(); @x = 1; }"), ["type-conflict"]);
    assert_eq!(codes("begin { @x = count(); @x = sum(1); }"), ["type-conflict"]);
    assert_eq!(codes("begin { @x = hist(1, 2); @x = hist(1, 3); }"), ["type-conflict"]);
    assert_eq!(codes("begin { @x = count(); @x++; }"), ["type-conflict"]);
    assert_eq!(codes("begin { @x = hist(1); $y = @x + 1; }"), ["not-readable"]);
    assert_eq!(codes("begin { print(@nope); }"), ["undefined-map"]);
    assert_eq!(codes("begin { @count = 1; if (@coun > 1) { exit(); } }"), ["undefined-map"], "a warning");
    assert_eq!(codes("begin { $x = count(); }"), ["misplaced-aggregation"]);
    assert_eq!(codes("let @m = hash(5); begin { exit(); }"), ["unused-map"]);
    assert!(codes("let @m = hash(5); begin { if comptime (1 == 2) { @m[1] = 1; } }").is_empty());
}

#[test]
fn comparisons_of_other_signs() {
    assert_eq!(codes("begin { $a = nsecs; if ($a > -1) { exit(); } }"), ["sign-change"]);
    assert!(codes("begin { $a = nsecs; if ($a > 1 || (int64)$a > -1 || pid > -1) { exit(); } }").is_empty());
}

#[test]
fn variables_have_scopes() {
    assert_eq!(codes("begin { $x = $y; }"), ["undefined-variable"]);
    assert_eq!(codes("begin { if (pid) { $x = 1; } print($x); }"), ["deprecated"]);
    assert_eq!(codes("begin { $x = 1; let $x = 2; }"), ["redeclared"]);
    assert_eq!(codes("begin { let $x; print($x); }"), ["unset-variable"]);
    assert_eq!(codes("begin { let $x; if (pid) { let $y; $x = 1; } }"), ["unset-variable"]);
    assert!(codes("begin { let $x; $x = 1; let $y; if (pid) { $y = 1; } }").is_empty());
    assert_eq!(codes("begin { let $x: uint8 = 300; }"), ["out-of-range"]);
    assert_eq!(codes("begin { $x = 1; $x = comm; }"), ["type-conflict"]);
    holds("begin { let $x; if (pid) { $x = 1; } print($x); }", &["$x = zero"]);
    holds("begin { let $x: uint8 = 3; let $s: string = comm; }", &["let $x: uint8", "let $s: string[16]"]);
    holds("begin { if (pid) { $x = 1; } else { $x = comm; } }", &["let $x#0: int8", "let $x#1: string[16]"]);
}

#[test]
fn control_flow() {
    holds("begin { unroll(3) { @x++; } }", &["unroll(3)"]);
    holds("begin { for $i : 0..10 { @x += $i; } }", &["for $i : 0..10", "@x = (@x + (int64)$i)"]);
    holds("begin { $x = if pid == 1 { \"one\" } else { \"other\" }; }", &["let $x: string[6]"]);
    holds("begin { $x = { $y = 2; $y + 1 }; }", &["{ $y = 2; ((int64)$y + 1) }"]);
    holds("begin /pid == 1/ { exit(); }", &["if ((uint64)pid() == 1) {"]);
    holds("begin { pid == 1 ? exit() : print(1); }", &["else {"]);
    assert_eq!(codes("begin { exit(); print(1); }"), ["unreachable"]);
    assert_eq!(codes("begin { while (pid) { break; } }"), ["deprecated"]);
    assert_eq!(codes("begin { break; }"), ["not-in-loop"]);
    assert_eq!(codes("begin { unroll(101) { @x++; } }"), ["bad-unroll"]);
    assert_eq!(codes("begin { if (comm) { exit(); } }"), ["bad-condition"]);
    assert_eq!(codes("begin { pid == 1; }"), ["no-effect"]);
    assert_eq!(codes("uprobe:x:y { for $i : 0..3 { print(arg0); } }"), ["in-loop"]);
}

#[test]
fn calls_are_checked() {
    assert_eq!(codes("begin { printt(1); }"), ["unknown-function"]);
    assert_eq!(codes("begin { $x = pidd; }"), ["unknown-name"]);
    assert_eq!(codes("begin { exit(1, 2); }"), ["arity"]);
    assert_eq!(codes("begin { exit(comm); }"), ["type-mismatch"]);
    assert_eq!(codes("begin { printf(\"%d %d\", 1); }"), ["format"]);
    assert_eq!(codes("begin { printf(\"%d\", comm); }"), ["format"]);
    assert_eq!(codes("begin { printf(\"%d\", nope, 1); }"), ["unknown-name", "format"]);
    assert_eq!(codes("begin { $x = retval; }"), ["unsupported-in-probe"]);
    assert_eq!(codes("uprobe:x:y { $x = arg1; }"), ["bad-arg"]);
    assert_eq!(codes("begin { system(\"ls\"); }"), ["unsafe"]);
    assert_eq!(codes("begin { $x = kaddr(\"nope\"); }"), ["unknown-symbol"]);
    assert_eq!(codes("begin { $x = nsecs(bot); }"), ["invalid-keyword"]);
    assert_eq!(codes("begin { $x = print(1); }"), ["no-value"]);
    holds("begin { $x = kaddr(\"schedule\"); $n = nsecs(tai); }", &["$x = (uint64)18446744071578845184", "nsecs(tai)"]);
    holds("begin { @x = count(); printf(\"%d %s\", @x, comm); }", &["read(@x)"]);
}

#[test]
fn records_have_named_fields() {
    holds("begin { $r = (a = 1, b = comm); $x = $r.b; }", &["let $x: string[16]", "$r = (a = 1, b = comm())"]);
    holds("begin { @r = (a = 1, b = \"x\"); @r = (b = comm, a = pid); }", &["@r = (a = pid(), b = comm())"]);
    holds("begin { $r = (a = 1, b = 2); $q = (b = 3, a = 4); if ($r == $q) { @[$r] = 1; } }", &["map @[{ a: int8, b: int8 }]"]);
    assert_eq!(codes("begin { $r = (a = 1, a = 2); }"), ["duplicate-field"]);
    assert_eq!(codes("begin { $r = (a = 1, b = 2); $x = $r.c; }"), ["unknown-field"]);
    assert_eq!(codes("begin { @r = (a = 1); @r = (b = 1); }"), ["type-conflict"]);
}

#[test]
fn macros_stand_for_their_bodies() {
    holds("macro two() { 2 } begin { $x = two(); $y = two + 1; }", &["$x = 2", "$y = 3"]);
    holds("macro inc($v) { $v += 1; } begin { $a = 1; inc($a); }", &["let $a: int64", "$a = ($a + 1)"]);
    holds("macro put(@m, k, v) { @m[k] = v; } begin { put(@x, comm, pid); put(@y, 1, 2); }", &["@x[comm()] = pid()", "@y[1] = 2"]);
    holds("macro m(x) { $t = x; $t + 1 } begin { $t = \"mine\"; $r = m(pid); }", &["let $t#0: string[5]", "let $r: uint64"]);
    holds("macro add(a, b) { a + b } macro twice(c) { add(c, c) } begin { $z = twice(nsecs); }", &["(nsecs() + nsecs())"]);
    holds("macro f(x) { x } macro f($x) { $x + 1 } begin { $a = 1; $b = f($a); $c = f(5); }", &["$b = ((int64)$a + 1)", "$c = 5"]);
    holds(
        "macro at(p, type, member) { (type *)((uint64)p - offsetof(type, member)) } begin { $t = at(curtask, typeof(struct task_struct), tgid); }",
        &["let $t: struct task_struct *"],
    );
    holds("macro out(m) { print(m); } begin { @x[1] = 1; out(@x); out(3); }", &["print(@x)", "print(3)"]);
    holds("macro fields(x) { args.x } tracepoint:sched:sched_switch { $x = fields(prev_pid); }", &["args.prev_pid"]);
    holds("begin { if comptime (sizeof(uint64) == 8) { @a = 1; } else { @b = nope; } $x = comptime (2 * 3); }", &["@a = 1", "$x = 6"]);
    assert_eq!(codes("macro r(x) { r(x) } begin { $x = r(1); }"), ["recursion"]);
    assert_eq!(codes("macro r(x) { x } begin { $x = r(1, 2); }"), ["arity"]);
    assert_eq!(codes("macro r(x) { return; } begin { r(1); }"), ["in-macro"]);
    assert_eq!(codes("macro r() { $hidden = 1; } begin { r(); print($hidden); }"), ["undefined-variable"]);
    assert_eq!(codes("macro r(x) { 1 } macro r(y) { 2 } begin { $x = r(1); }"), ["redeclared"]);
    assert_eq!(codes("begin { $x = comptime pid; }"), ["not-constant"]);
}

#[test]
fn parameters() {
    let given = with_params(vec!["12".into(), "abc".into()]);
    let (script, d) =
        run_with("begin { $a = $1; $b = $2; $c = str($1); $d = $#; $e = $3; $f = str($2 + 1); }", &Settings::default(), &given).unwrap();
    let text = dump(&script);
    for n in ["$a = 12", "$b = \"abc\"", "str(\"12\")", "$d = 2", "$e = 0", "str(\"bc\")"] {
        assert!(text.contains(n), "{n}\n{text}");
    }
    assert_eq!(d.0.iter().map(|d| d.code).collect::<Vec<_>>(), ["missing-parameter"]);
    let given = with_params(vec!["sched".into()]);
    let (script, _) = run_with("tracepoint:$1:sched_switch { exit(); }", &Settings::default(), &given).unwrap();
    assert_eq!(script.probes[0].sites[0].name, "tracepoint:sched:sched_switch");
}

#[test]
fn sites_share_bodies() {
    let probes = |text: &str| run(text, &Settings::default()).unwrap().0.probes.iter().map(|p| p.sites.len()).collect::<Vec<_>>();
    assert_eq!(probes("tracepoint:syscalls:sys_enter_* { @[probe] = count(); }"), [2]);
    // The field has another offset in the other record.
    assert_eq!(probes("tracepoint:syscalls:sys_enter_* { @[args.flags] = count(); }"), [1, 1]);
    assert_eq!(probes("begin, end { @ = count(); }"), [1, 1]);
    assert_eq!(codes("tracepoint:sched:* { $x = args.prev_pid; }"), ["unknown-field"]);
    assert_eq!(codes("tracepoint:sched:nope { exit(); }"), ["unknown-tracepoint"]);
    assert_eq!(codes("tracepoint:sched:nope* { exit(); }"), ["no-match"]);
    assert_eq!(codes("tracepiont:sched:x { exit(); }"), ["unknown-probe"]);
}

#[test]
fn settings_choose_probes() {
    let filter = |f: &str| Arc::new(regex::Regex::new(f).unwrap()) as Arc<dyn NameFilter>;
    let settings = |f: &str| Settings { probe_filter: Some(filter(f)), ..Settings::default() };
    let text = "begin { exit(); } tracepoint:sched:* { exit(); }";
    let (script, _) = run(text, &settings("switch$")).unwrap();
    assert_eq!(script.probes.len(), 2);
    assert_eq!(script.probes[1].sites.len(), 1);
    assert!(run("tracepoint:sched:* { exit(); }", &settings("nothing")).is_err());
    let missing = Settings { missing_probes: crate::settings::MissingProbes::Warn, ..Settings::default() };
    let (script, d) = run("begin { exit(); } tracepoint:sched:nope { exit(); }", &missing).unwrap();
    assert_eq!((script.probes.len(), d.0.len()), (1, 1));
    let few = Settings { max_probes: 1, ..Settings::default() };
    assert!(run("tracepoint:sched:* { exit(); }", &few).is_err());
}

#[test]
fn several_errors_come_together() {
    let text = "begin { $x = nope; $y = $z; printf(\"%d\"); @a = 1; @a = comm; } tracepoint:sched:sched_switch { $q = args.foo; }";
    assert_eq!(codes(text), ["unknown-name", "undefined-variable", "format", "type-conflict", "unknown-field"]);
    assert_eq!(codes("begin { @a = @a; }"), ["undefined-map"]);
    assert_eq!(codes("begin { let $a; $a = $a; @b = $a; }"), ["undefined-variable", "unset-variable"]);
    // One mistake is reported once, however far its value propagates.
    let text =
        "begin { $r = (a = 1, b = nope); @x = $r; @y[$r.b] = $r.a + 1; print(@x); printf(\"%d\", @x.a); $r++; if ($r) { $z = *$r; } }";
    assert_eq!(codes(text), ["unknown-name"]);
    assert_eq!(codes("begin { @x[nope] = counnt(); } end { print(@x); $y = @x[1]; $y++; }"), ["unknown-name", "unknown-function"]);
}

#[test]
fn keys_longer_than_the_kernel_allows() {
    let with = |more: &str| {
        let sys = Fake::new(&format!("{MACHINE}{more}")).unwrap();
        let names = |n| vec!["args.comm"; n].join(", ");
        let text = format!("tracepoint:sched:sched_wakeup {{ @long[{}] = 1; @short[{}] = 1; }}", names(33), names(30));
        let script = crate::syntax::parse(&Source { name: "t".into(), text }).unwrap();
        check_with(&script, &Env::new(&sys, &Settings::default()), &TABLES, &[])
            .err()
            .map(|d| d.0.iter().map(|d| d.code).collect::<Vec<_>>())
    };
    assert_eq!(with(""), None);
    assert_eq!(with("feature ShortKeys;"), Some(vec!["key-too-long"]));
}

#[test]
fn every_unroll_can_be_a_loop() {
    let text = "begin { unroll(2) { unroll(3) { @a++; } } if (pid) { unroll(4) { @a++; } } else { unroll(5) { @a++; } } \
                while (@a < 9) { unroll(6) { @a++; } } \
                @b[{ unroll(7) { @a++; } @a }] = ({ unroll(8) { @a++; } 1 }) + @b[{ unroll(9) { @a++; } @a }]; }";
    let (mut script, _) = run(text, &Settings::default()).map_err(|d| format!("{d:?}")).unwrap();
    assert_eq!(dump(&script).matches("unroll(").count(), 8);
    script.turn_unrolls_into_loops();
    assert!(!script.unrolls(), "{}", dump(&script));
    assert_eq!(dump(&script).matches("for ").count(), 8, "{}", dump(&script));
}

fn with_params(params: Vec<String>) -> Invocation {
    Invocation { params, ..Invocation::default() }
}
