use super::*;
use crate::cli::Program;
use crate::system::fake::Fake;
use crate::system::snapshot::script_digest;
use crate::verdict::{Finding, Level};

/// BPF features that compiled scripts need on every kernel.
const BPF: &str = "
    enum bpf_func_id { BPF_FUNC_map_lookup_elem, BPF_FUNC_map_update_elem, BPF_FUNC_map_delete_elem, BPF_FUNC_ktime_get_ns,
        BPF_FUNC_get_prandom_u32, BPF_FUNC_get_smp_processor_id, BPF_FUNC_get_current_pid_tgid, BPF_FUNC_get_current_comm,
        BPF_FUNC_get_current_task, BPF_FUNC_probe_read_kernel, BPF_FUNC_probe_read_kernel_str, BPF_FUNC_probe_read_user,
        BPF_FUNC_probe_read_user_str, BPF_FUNC_ringbuf_output, BPF_FUNC_ringbuf_query, BPF_FUNC_ringbuf_reserve, BPF_FUNC_ringbuf_submit,
        BPF_FUNC_ringbuf_discard, BPF_FUNC_get_attach_cookie, BPF_FUNC_get_func_ip, BPF_FUNC_ktime_get_boot_ns, };
    enum bpf_map_type { BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_PERCPU_HASH, BPF_MAP_TYPE_PERCPU_ARRAY,
        BPF_MAP_TYPE_RINGBUF, };
    enum bpf_prog_type { BPF_PROG_TYPE_KPROBE, BPF_PROG_TYPE_TRACEPOINT, BPF_PROG_TYPE_RAW_TRACEPOINT, BPF_PROG_TYPE_TRACING, };
    enum bpf_attach_type { BPF_TRACE_FENTRY, BPF_TRACE_KPROBE_MULTI, };
    feature Btf; feature Kprobe; feature Trampoline; feature Loop; feature Fetch; feature PerfCookie;
";

const KERNEL: &str = "
    struct inner { int deep; };
    enum color { RED, GREEN, };
    struct task { long state; int pid; char comm[16]; struct inner in; struct task *parent; };
    tracepoint sched:waking { char comm[16]; int pid; long prev_state; }
    rawtracepoint waking(struct task *p, bool preempt);
    function long vfs_read(struct task *file, unsigned long count, int flags);
    function int helper(int x);
";

fn kernel(text: &str) -> Fake {
    Fake::new(&format!("{BPF}{text}")).unwrap()
}

fn config() -> Config {
    Config::default()
}

fn seen_on(script: &str, sys: &Fake, release: &str) -> ScriptCheck {
    let subject = Subject { name: "a.bt".into(), program: Ok(Program::Text(script.into())) };
    let mut seen =
        examine::examine(&subject, &KernelContext { sys, release, scripts: None, knows_callable: true, is_running: false }, &config());
    seen.apply_exceptions();
    seen
}

fn seen(script: &str, text: &str) -> ScriptCheck {
    seen_on(script, &kernel(text), "6.1.0")
}

/// The findings on a kernel that is `KERNEL` with these words replaced.
fn compared(script: &str, from: &str, to: &str) -> Vec<Finding> {
    assert!(KERNEL.contains(from), "{from}");
    let now = kernel(&KERNEL.replace(from, to));
    let earlier = seen(script, KERNEL);
    assert!(earlier.findings.iter().all(|f| f.level == Level::Note), "{:?}", earlier.findings);
    let mut seen = seen_on(script, &now, "6.12.0");
    compare::compare(&mut seen, &earlier, "old", &now);
    seen.apply_exceptions();
    seen.findings
}

fn one(script: &str, from: &str, to: &str) -> (&'static str, Level, String, String) {
    let found = compared(script, from, to);
    let [one] = found.as_slice() else { panic!("{found:#?}") };
    let place = one
        .location
        .as_ref()
        .map_or(String::new(), |p| p.text.chars().skip(p.column as usize - 1).take((p.end_column - p.column) as usize).collect());
    (one.rule, one.level, format!("{}{}", one.message, one.help.as_ref().map_or(String::new(), |h| format!("; {h}"))), place)
}

const TASK: &str = "kprobe:vfs_read { $t = (struct task *)arg0; @ = ";

#[test]
fn working_scripts_have_no_findings() {
    let seen = seen("kprobe:vfs_read { @[comm] = count(); } tracepoint:sched:waking { @p = args.pid; }", KERNEL);
    assert!(seen.findings.is_empty() && seen.state == verdict::State::Checked, "{seen:?}");
    let fact = |name: &str| seen.facts.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    assert_eq!(fact("kprobe:vfs_read"), Some("trampoline: the kernel's types describe the function"));
    assert!(fact("instructions").is_some_and(|n| n.parse::<u32>().is_ok_and(|n| n > 10)), "{:?}", seen.facts);
    assert!(fact("maps").is_some_and(|m| m.starts_with("2, at most ")), "{:?}", seen.facts);
}

#[test]
fn fields_that_change() {
    let field = |from, to, name: &str| one(&format!("{TASK}$t->{name}; }}"), from, to);
    let (rule, level, message, place) = field("long state", "long __state", "state");
    assert_eq!((rule, level, place.as_str()), ("field-gone", Level::Error, "state"), "{message}");
    assert!(message.contains("has no field `state`, which old has (`int64`); it has the name `__state` there"), "{message}");
    let (rule, level, message, _) = field("long state", "unsigned int state", "state");
    assert_eq!((rule, level), ("size-changed", Level::Warning));
    assert!(message.starts_with("`state` of `struct task` is `uint32`, but `int64` on old; if the script's values fit"), "{message}");
    assert_eq!(field("int pid", "long pid", "pid").1, Level::Note);
    assert_eq!(field("int pid", "unsigned int pid", "pid").0, "sign-changed");
    assert_eq!(field("struct task *parent", "struct inner *parent", "parent").0, "type-changed");
    // unused members do not matter, nor does the offset of a member
    assert!(compared(&format!("{TASK}$t->pid; }}"), "long state;", "").is_empty());
    let (rule, _, message, _) = field("int pid;", "", "pid");
    assert_eq!(rule, "field-gone", "{message}");
    let moved = one(&format!("{TASK}$t->pid; }}"), "int pid; char comm[16];", "char comm[16]; struct inner2 { int pid; } cred;");
    assert!(moved.2.contains("it is in `cred` there: `cred.pid`"), "{moved:?}");
}

#[test]
fn events_that_change() {
    let event = |from, to| one("tracepoint:sched:waking { print(args.prev_state); }", from, to);
    assert_eq!(event("long prev_state;", "").0, "field-gone");
    assert!(event("long prev_state;", "").2.contains("which old has (`int64`)"));
    assert_eq!(event("long prev_state", "unsigned int prev_state").0, "size-changed");
    let (rule, _, message, place) = event("tracepoint sched:waking", "tracepoint sched:wakeup");
    assert_eq!((rule, place.as_str()), ("probe-gone", "tracepoint:sched:waking"));
    assert!(message.contains("old has it"), "{message}");
    assert_eq!(one("rawtracepoint:waking { print(arg1); }", "bool preempt", "long preempt").0, "size-changed");
}

#[test]
fn functions_that_change() {
    let gone = one("kprobe:helper { }", "function int helper(int x);", "");
    assert_eq!((gone.0, gone.3.as_str()), ("probe-gone", "kprobe:helper"));
    let inlined = one("kprobe:helper { }", "function int helper(int x);", "symbol helper.isra.0 0xffffffff81000000;");
    assert_eq!(inlined.0, "function-inlined", "{}", inlined.2);
    let hidden = one("kprobe:helper { }", "function int helper(int x);", "symbol helper 0xffffffff81000000;");
    assert_eq!(hidden.0, "not-traceable", "{}", hidden.2);
    let read = |used: &str, from, to| one(&format!("kprobe:vfs_read {{ @ = {used}; }}"), from, to);
    let moved = read("arg1", "unsigned long count, int flags", "int flags, unsigned long count");
    assert_eq!((moved.0, moved.1, moved.3.as_str()), ("argument-moved", Level::Warning, "arg1"), "{}", moved.2);
    assert!(moved.2.contains("is `flags`, but `count` on old; `count` is `arg2` there; `args.count` works on both"), "{}", moved.2);
    assert_eq!(read("arg2", ", int flags", "").0, "argument-moved");
    assert_eq!(read("arg2", "int flags", "int iocb_flags").0, "argument-renamed");
    assert_eq!(read("args.count", "unsigned long count", "unsigned int count").0, "size-changed");
    assert_eq!(read("args.count", "unsigned long count", "unsigned long size").0, "field-gone");
    let result = one("kretprobe:vfs_read { @ = retval; }", "function long vfs_read", "function int vfs_read");
    assert_eq!((result.0, result.1), ("return-changed", Level::Warning));
}

/// Another kernel that rejects the same probe for another reason does not have it.
#[test]
fn a_probe_that_fails_everywhere() {
    let script = "kprobe:helper { }";
    let hidden = KERNEL.replace("function int helper(int x);", "symbol helper 0xffffffff81000000;");
    let lacking = KERNEL.replace("function int helper(int x);", "");
    let codes = |text: &str| seen(script, text).findings.iter().map(|f| f.rule).collect::<Vec<_>>();
    assert_ne!(codes(&hidden), codes(&lacking));
    for (now, other) in [(&hidden, &lacking), (&lacking, &hidden)] {
        let mut found = seen(script, now);
        compare::compare(&mut found, &seen(script, other), "old", &kernel(now));
        assert!(found.findings.len() == 1 && !found.findings[0].message.contains("old has it"), "{found:?}");
    }
}

/// An error in one probe hides neither changes for another nor its missing features.
#[test]
fn reports_all_errors() {
    let script = "kprobe:vfs_read { $t = (struct task *)arg0; @a = $t->pid; }\nkprobe:helper { @b = arg0; }\nbegin { @c = nsecs; }";
    let without = format!("{BPF}{KERNEL}").replace("int pid; char", "char").replace("helper(int x)", "helper(long x)");
    let sys = Fake::new(&without.replace("BPF_FUNC_ktime_get_boot_ns,", "").replace("BPF_FUNC_ktime_get_ns,", "")).unwrap();
    let earlier = seen(script, KERNEL);
    let mut now = seen_on(script, &sys, "6.12.0");
    compare::compare(&mut now, &earlier, "old", &sys);
    now.apply_exceptions();
    let mut rules: Vec<_> = now.findings.iter().map(|f| f.rule).collect();
    rules.sort_unstable();
    assert_eq!(rules, ["field-gone", "no-helper", "size-changed"], "{now:?}");
    assert!(now.facts.is_empty(), "what is known of a part is not of the whole: {now:?}");
    // nor is it reported from both sides
    let mut back = seen(script, KERNEL);
    compare::compare(&mut back, &now, "new", &kernel(KERNEL));
    assert!(back.findings.iter().any(|f| f.rule == "size-changed"));
    assert!(back.without_changes_of(&now).findings.is_empty());
    assert!(now.has_errors_beyond(&earlier) && !earlier.has_errors_beyond(&now));
}

/// Kernels without `bpf_loop` stop loops early, and count those within others.
#[test]
fn loops_beyond_the_limit() {
    let all = format!("{BPF}{KERNEL}");
    let without = Fake::new(&all.replace("feature Loop;", "")).unwrap();
    let noted = |script: &str, sys: &Fake| seen_on(script, sys, "5.10.0").findings.iter().any(|f| f.rule == "loop-limit");
    let nested = "begin { for $i : 0..100 { for $j : 0..6 { @ = $j; } } }";
    let within_a_while = "begin { while (1) { for $j : 0..pid { @ = $j; } } }";
    let told = seen_on(within_a_while, &without, "5.10.0").findings.into_iter().find(|f| f.rule == "loop-limit");
    assert!(told.unwrap().message.contains("after 32 iterations"));
    for script in ["begin { for $i : 0..513 { @ = $i; } }", "begin { $i = 0; while ($i < 3) { $i++; } }", nested] {
        assert!(noted(script, &without) && !noted(script, &kernel(KERNEL)), "{script}");
    }
    for script in ["begin { for $i : 0..512 { @ = $i; } }", "begin { for $i : 0..100 { for $j : 0..5 { @ = $j; } } }"] {
        assert!(!noted(script, &without), "{script}");
    }
}

/// If a kernel was described for other scripts, a missing fact is unknown.
#[test]
fn snapshots_for_certain_scripts() {
    let sys = kernel(KERNEL);
    let seen = |script: &str, those: &[&str]| {
        let digest = |text: &&str| script_digest(&[crate::diag::Source { name: "a".into(), text: (*text).into() }]);
        let scripts = those.iter().map(digest).collect();
        let subject = Subject { name: "a.bt".into(), program: Ok(Program::Text(script.into())) };
        examine::examine(
            &subject,
            &KernelContext { sys: &sys, release: "6.1.0", scripts: Some(&scripts), knows_callable: true, is_running: false },
            &config(),
        )
    };
    let (gone, there) = ("kprobe:no_such { }", "kprobe:helper { }");
    assert!(matches!(&seen(gone, &[there]).state, verdict::State::Unknown(why) if why.contains("a.bt:1:1: ") || why.contains("no_such")));
    assert_eq!(seen(gone, &[there, gone]).findings.first().map(|f| f.rule), Some("unknown-function"));
    assert!(seen(there, &[]).passed());
    // errors on any kernel are known
    let wrong = seen("begin { prnt(1); }", &[]);
    assert_eq!((wrong.state, wrong.findings.len()), (verdict::State::Checked, 1));
}

/// The description of a kernel that is not running lacks the functions that BPF programs may call.
#[test]
fn helpers_that_tracing_programs_may_not_call_yet() {
    let rules = |script: &str, features: &str| -> Vec<&str> {
        let kernel = "
            struct sock_common { int skc_family; }; struct sock { struct sock_common __sk_common; };
            function int tcp_connect(struct sock *sk);
        ";
        let seen = seen(script, &format!("{kernel}{features}"));
        seen.findings.iter().filter(|f| f.level == Level::Error).map(|f| f.rule).collect()
    };
    let cookie = "fentry:tcp_connect { print(socket_cookie(args.sk)); }";
    assert_eq!(rules(cookie, ""), ["no-helper"]);
    assert!(!rules(cookie, "feature SocketCookie;").contains(&"unsupported-in-probe"));
}

#[test]
fn unknown_callable_functions_are_notes() {
    let sys = kernel(KERNEL);
    let subject = Subject { name: "a.bt".into(), program: Ok(Program::Text("kprobe:helper { print(comm(1)); }".into())) };
    let level = |tells_callable| {
        let ground = KernelContext { sys: &sys, release: "6.12.0", scripts: None, knows_callable: tells_callable, is_running: false };
        let seen = examine::examine(&subject, &ground, &config());
        seen.findings.iter().map(|f| (f.rule, f.level)).collect::<Vec<_>>()
    };
    assert_eq!(level(true), [("no-kfunc", Level::Warning)]);
    assert_eq!(level(false), [("no-kfunc", Level::Note)]);
}

#[test]
fn types_and_constants_that_disappear() {
    assert_eq!(one("begin { print(sizeof(struct inner)); }", "struct inner { int deep; };", "struct inner3 { int deep; };").0, "type-gone");
    assert_eq!(one("begin { print(RED); }", "RED,", "").0, "constant-gone");
}

#[test]
fn earlier_errors_are_reported_unchanged() {
    let script = "kprobe:nothing_of_that_name { }";
    let (old, new) = (kernel(KERNEL), kernel(KERNEL));
    let earlier = seen_on(script, &old, "6.1.0");
    let mut seen = seen_on(script, &new, "6.12.0");
    compare::compare(&mut seen, &earlier, "old", &new);
    assert_eq!(seen.findings.first().map(|f| f.rule), Some("unknown-function"));
}

/// A kernel without one feature that the compiled script needs.
fn lacking(script: &str, without: &str) -> Vec<(&'static str, String)> {
    let text = format!("{BPF}{KERNEL}");
    assert!(text.contains(without), "{without}");
    let sys = Fake::new(&text.replace(without, "")).unwrap();
    seen_on(script, &sys, "6.1.0").findings.into_iter().map(|f| (f.rule, f.message)).collect()
}

#[test]
fn reports_missing_kernel_features() {
    let rules = |script, without| lacking(script, without).into_iter().map(|(rule, _)| rule).collect::<Vec<_>>();
    let count = "kprobe:vfs_read { @[comm] = count(); }";
    let helper = lacking(count, "BPF_FUNC_get_current_comm,");
    assert_eq!(helper.first().map(|(rule, _)| *rule), Some("no-helper"), "{helper:?}");
    assert!(helper[0].1.contains("bpf_get_current_comm"), "{helper:?}");
    assert_eq!(rules("kprobe:vfs_read { @ = count(); }", "BPF_MAP_TYPE_PERCPU_ARRAY,"), ["no-map-type"]);
    assert_eq!(rules(count, "BPF_PROG_TYPE_TRACING,"), ["no-program-type"]);
    assert_eq!(rules("fentry:vfs_read { @ = args.count; }", "feature Trampoline;"), ["no-fentry"]);
    assert_eq!(rules("kprobe:vfs_read { @ = reg(\"ip\"); }", "feature Kprobe;"), ["no-kprobes"]);
    // one finding for a whole wildcard
    let all = lacking("fentry:* { @ = count(); }", "feature Trampoline;");
    assert!(matches!(all.as_slice(), [("no-fentry", message)] if message.starts_with("fentry:vmlinux:helper and 1 more: ")), "{all:?}");
    // a kprobe works without trampolines
    assert!(rules(count, "feature Trampoline;").is_empty());
}

#[test]
fn reports_missing_types_and_modules() {
    let rules = |script: &str, text: &str| seen(script, text).findings.into_iter().map(|f| f.rule).collect::<Vec<_>>();
    assert_eq!(rules("lsm:file_open { @ = count(); }", KERNEL), ["no-lsm"]);
    let capture = "#!/usr/bin/env -S rbt --unsafe\nrawtracepoint:waking { skboutput(\"a.pcap\", args.p, 64, 0); }";
    assert_eq!(rules(capture, KERNEL), ["no-btf"]);
    let overridden = "#!/usr/bin/env -S rbt --unsafe\nkprobe:helper { override(1); }";
    let with = |more: &str| format!("{KERNEL} feature Override; {more}");
    assert_eq!(rules(overridden, &with("injectable vfs_read;")), ["not-injectable"]);
    assert!(!rules(overridden, &with("injectable helper;")).contains(&"not-injectable"));
}

#[test]
fn reports_needs_of_compiled_scripts() {
    let mut unmet = needs::Unmet { lacks: Vec::new(), facts: Vec::new() };
    needs::kernel_functions(&mut unmet, &["bpf_new".into()].into(), &[], &kernel(KERNEL));
    needs::instructions(&mut unmet, &[("short".into(), 1_000_000), ("long".into(), 1_000_001)].into(), &[]);
    let found: Vec<_> = unmet.lacks.iter().map(|n| (n.rule, n.message.as_str())).collect();
    let expected = [
        ("no-kernel-function", "the kernel has no function `bpf_new` that BPF programs may call"),
        ("too-many-instructions", "a program has 1000001 instructions; kernels accept 1000000"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn limits() {
    let rules = |script| seen(script, KERNEL).findings.into_iter().map(|f| f.rule).collect::<Vec<_>>();
    assert_eq!(rules("config = { max_bpf_progs = 1; } kprobe:vfs_read { @ = 1; } kprobe:helper { @ = 2; }"), ["too-many-programs"]);
    assert_eq!(rules("let @a = hash(134217728); kprobe:helper { @a[arg0] = arg1; }"), ["large-maps"]);
    assert_eq!(rules("let @a = hash(1073741824); kprobe:helper { @a[arg0] = arg1; }"), ["too-large"]);
    assert_eq!(rules("config = { max_probes = 1; } kprobe:* { @ = 1; }"), ["too-many-probes"]);
}

#[test]
fn exceptions_apply() {
    let skipped = seen("// check: kernels >= 6.6\nkprobe:no_such { }", KERNEL);
    assert!(matches!(&skipped.state, verdict::State::Skipped(why) if why.contains(">= 6.6")), "{skipped:?}");
    let optional = seen("// check: optional probe kprobe:no_*\nkprobe:no_such, kprobe:helper { @ = 1; }\nkprobe:no_such2 { }", KERNEL);
    let found: Vec<_> = optional.findings.iter().map(|f| (f.rule, f.level)).collect();
    assert_eq!(found, [("unknown-function", Level::Note); 2]);
    assert!(optional.facts.iter().any(|(name, _)| name == "kprobe:helper"), "the rest is checked: {optional:?}");
    let all_gone = seen("// check: optional probe kprobe:no_*\nkprobe:no_such { }", KERNEL);
    assert!(all_gone.findings.iter().all(|f| f.level == Level::Note) && all_gone.findings.len() == 1, "{all_gone:?}");
    let allowed =
        compared("// check: allow size-changed only shown\nkprobe:vfs_read { @ = args.count; }", "unsigned long count", "int count");
    assert!(allowed.iter().all(|f| f.level == Level::Note && f.message.ends_with("; allowed: only shown")), "{allowed:?}");
    let wrong = seen("// check: optinal probe kprobe:x\nkprobe:helper { }", KERNEL);
    assert_eq!(
        wrong.findings.iter().map(|f| (f.rule, f.help.as_deref())).collect::<Vec<_>>(),
        [("bad-comment", Some("did you mean `optional`?"))]
    );
}

#[test]
fn settings_of_the_script_count() {
    let rules = |script| seen(script, KERNEL).findings.into_iter().map(|f| (f.rule, f.level)).collect::<Vec<_>>();
    assert_eq!(rules("kprobe:helper { system(\"true\"); }"), [("unsafe", Level::Note)]);
    assert_eq!(rules("#!/usr/bin/env -S rbt --unsafe\nkprobe:helper { system(\"true\"); }"), []);
    assert_eq!(rules("#!/usr/bin/rbt --unsaef\nkprobe:helper { }"), [("bad-first-line", Level::Error)]);
    assert_eq!(rules("config = { missing_probes = \"ignore\"; } kprobe:nothing, kprobe:helper { @ = 1; }"), []);
    assert_eq!(
        rules("config = { missing_probes = \"warn\"; } kprobe:nothing, kprobe:helper { @ = 1; }"),
        [("unknown-function", Level::Warning)]
    );
    // without arguments: errors that depend on them are not the script's fault
    assert_eq!(rules("kprobe:helper /arg0 == $1/ { if (getopt(\"verbose\")) { @v[str($2)] = 1; } @ = 1; }"), []);
}

#[test]
fn unknown_facts_are_not_errors() {
    let none = seen("tracepoint:sched:waking { }", "no tracefs;");
    assert!(matches!(&none.state, verdict::State::Unknown(why) if why.contains("tracefs")), "{none:?}");
    // the script is responsible for the names of binaries
    let binary = seen("uprobe:/no/such:main { }", KERNEL);
    assert_eq!(binary.findings.iter().map(|f| f.rule).collect::<Vec<_>>(), ["unavailable"]);
    assert_eq!(binary.state, verdict::State::Checked);
    assert!(matches!(seen("kprobe:helper {", KERNEL).findings.as_slice(), [f] if f.level == Level::Error && f.location.is_some()));
}
