//! The scripts that verbs write.

use super::*;
use crate::diag::{Diagnostic, Diagnostics, Source, Span};
use crate::syntax;

/// The script of a command line after `rbt`; words without a dash that are not an option's value are the verb's.
fn script(line: &str) -> Result<ComposedScript, Failure> {
    let words = shlex::split(line).unwrap();
    let verb = find(&words[0]).unwrap();
    let mut args =
        VerbArgs { words: Vec::new(), options: BTreeMap::new(), category: |word| ["sched", "syscalls", "raw_syscalls"].contains(&word) };
    let mut rest = words[1..].iter();
    while let Some(word) = rest.next() {
        let named = |o: &&VerbOption| word == &format!("--{}", o.name) || o.short.is_some_and(|c| word == &format!("-{c}"));
        match verb.own_options().find(named) {
            Some(o) => drop(args.options.insert(o.name, if o.value.is_some() { rest.next().unwrap().clone() } else { String::new() })),
            // rbt's own options take a value
            None if word.starts_with('-') => drop(rest.next()),
            None => args.words.push(word.clone()),
        }
    }
    verb.script(args)
}

fn text(line: &str) -> String {
    script(line).unwrap_or_else(|f| panic!("{line}: {f:?}")).text
}

fn failure(line: &str) -> Failure {
    script(line).expect_err(line)
}

/// Each example with each option yields a valid script.
#[test]
fn scripts_are_scripts() {
    for verb in VERBS {
        for (line, why) in verb.examples {
            assert!(!why.is_empty() && line.starts_with(&format!("rbt {} ", verb.name)), "{line}");
            let line = line.strip_prefix("rbt ").unwrap();
            for more in ["", " --if 'pid > 1'", " --by 'comm, pid' --top 3", " -i 0.5 -d 2"] {
                let line = format!("{line}{more}");
                let named = |name: &str| !line.contains(&format!("--{name} ")) || verb.options.contains(&name);
                if !named("by") || (line.contains("-i ") && !verb.options.contains(&"interval")) {
                    continue;
                }
                let text = text(&line);
                let source = Source { name: "made".into(), text: text.clone() };
                assert!(syntax::parse(&source).is_ok(), "{line}:\n{text}");
            }
        }
        assert!(verb.options.iter().all(|name| OPTIONS.iter().any(|o| o.name == *name)), "{}", verb.name);
    }
}

#[test]
fn count_groups_several_probes() {
    assert_eq!(text("count vfs_read"), "kprobe:vfs_read {\n  @ = count();\n}\n");
    assert!(text("count 'vfs_*'").contains("kprobe:vfs_* {\n  @[probe] = count();"));
    assert!(text("count libc:malloc,libc:free").starts_with("uprobe:libc:malloc,\nuprobe:libc:free {\n  @[probe]"));
    assert!(text("count a b --by comm").contains("@[comm] = count();"));
    let whole = text("count 'vfs_*' --if 'pid == 1' --top 5 -i 0.5 -d 2m");
    assert!(text("count vfs_read --subsecond").contains("  @ms_of_second = heatmap(nsecs(sw_tai) % 1s / 1ms, "));
    assert!(text("count a b --subsecond -i 1").contains("  print(@ms_of_second);\n  clear(@ms_of_second);\n"));
    for part in [
        "kprobe:vfs_* /pid == 1/ {",
        "interval:ms:500 {\n  time(\"%H:%M:%S\\n\");\n  print(@, 5);\n  clear(@);\n}",
        "interval:s:120 {\n  exit();\n}",
        "end {\n  print(@, 5);\n}",
    ] {
        assert!(whole.contains(part), "{part}\n{whole}");
    }
}

#[test]
fn probes_may_be_short() {
    for (short, long) in [
        ("vfs_read", "kprobe:vfs_read"),
        ("p::vfs_read", "kprobe:vfs_read"),
        ("r::vfs_read", "kretprobe:vfs_read"),
        ("r:libc:malloc", "uretprobe:libc:malloc"),
        ("p:hz:99", "p:hz:99"),
        ("profile:hz:99", "profile:hz:99"),
        ("t:sched:sched_switch", "t:sched:sched_switch"),
        ("sched:sched_switch", "tracepoint:sched:sched_switch"),
        ("libc:malloc", "uprobe:libc:malloc"),
        ("/bin/a:b", "uprobe:/bin/a:b"),
        ("libx:cpp:\"a::b(int, int)\"", "uprobe:libx:cpp:\"a::b(int, int)\""),
        ("kprob:vfs_read", "kprob:vfs_read"),
        ("vfs_read+4", "kprobe:vfs_read+4"),
        (" vfs_read , ", "kprobe:vfs_read"),
    ] {
        let line = format!("count {}", shlex::try_quote(short).unwrap());
        assert!(text(&line).starts_with(&format!("{long} {{\n  @ ")), "{short}: {}", text(&line));
    }
}

#[test]
fn formats_may_be_quoted_or_bare() {
    for line in [
        "trace libc:puts '%s' 'str(arg0)'",
        "trace libc:puts '%s\\n', 'str(arg0),'",
        "trace libc:puts '\"%s\\n\", str(arg0)'",
        "trace libc:puts '\"%s\"' 'str(arg0)'",
    ] {
        let made = text(line);
        assert!(made.contains("%-15s  %s\\n\", strftime(\"%H:%M:%S\", nsecs), pid, tid, comm, str(arg0));"), "{line}: {made}");
    }
    assert!(text("trace x 'say \"%d\"' pid").contains("say \\\"%d\\\"\\n\""));
    assert!(text("trace x pid 'arg0 + 1'").contains("print((strftime(\"%H:%M:%S\", nsecs), pid, tid, comm, pid, arg0 + 1));"));
    assert!(text("trace x").contains("comm, probe);"));
    assert!(text("trace 'vfs_*' '%d' pid").contains("%s  %d\\n\", strftime(\"%H:%M:%S\", nsecs), pid, tid, comm, probe, pid);"));
    // the parser reports an unclosed literal
    assert!(text("trace x '\"%d' pid").contains("%d\\n\""));
    // and also the width of a star
    assert!(text("trace x '%*d' pid").contains("%*d"));
    for (line, part) in [
        ("trace x '%s'", "`%s` has 1 conversion, and no EXPR is given"),
        ("trace x '%d of 9%%'", "1 conversion, and no EXPR is given"),
        ("trace x '%d %d' pid", "2 conversions, and 1 EXPR is given"),
        ("trace x '9%%' pid tid", "no conversion, and 2 EXPRs are given"),
    ] {
        assert!(failure(line).message.contains(part), "{line}: {:?}", failure(line));
    }
}

#[test]
fn stack_selects_useful_stacks() {
    for (line, keys) in [
        ("stack vfs_read", "@[kstack]"),
        ("stack libc:malloc", "@[ustack]"),
        ("stack t:syscalls:sys_enter_read", "@[ustack]"),
        ("stack profile:hz:99 --depth 5", "@[kstack(5), ustack(5)]"),
        ("stack vfs_read --user", "@[ustack]"),
        ("stack vfs_read --user --kernel --by comm", "@[kstack, ustack, comm]"),
    ] {
        assert!(text(line).contains(&format!("{keys} = count();")), "{line}: {}", text(line));
    }
}

#[test]
fn latency_pairs_an_entry_with_its_return() {
    for (word, start, end) in [
        ("vfs_read", "kprobe:vfs_read", "kretprobe:vfs_read"),
        ("k:vfs_read", "k:vfs_read", "kretprobe:vfs_read"),
        ("fentry:vfs_read", "fentry:vfs_read", "fexit:vfs_read"),
        ("libc:malloc", "uprobe:libc:malloc", "uretprobe:libc:malloc"),
        ("u:libc:malloc", "u:libc:malloc", "uretprobe:libc:malloc"),
        ("syscalls:sys_enter_read", "tracepoint:syscalls:sys_enter_read", "tracepoint:syscalls:sys_exit_read"),
    ] {
        let made = text(&format!("latency {word}"));
        assert!(made.contains(&format!("\n\n{start} {{\n")) && made.contains(&format!("\n\n{end} {{\n")), "{word}: {made}");
    }
    assert!(text("latency x --unit ns").contains("@ns = hist($now - $start)"));
    assert!(text("latency x --percentiles").contains("@us = percentiles(($now - $start) / 1000)"));
    assert!(text("latency 'x*' --if 'arg0 > 1'").contains("  if (arg0 > 1) {\n    @start[tid, @depth[tid]] = nsecs;\n  }\n"));
}

#[test]
fn wrong_use_is_reported() {
    for (line, part) in [
        ("count", "PROBE is missing"),
        ("hist vfs_read", "EXPR is missing"),
        ("hist vfs_read 1 2", "unexpected argument `2`"),
        ("count ''", "PROBE is empty"),
        ("count x --if ' '", "--if is empty"),
        ("count x --top 3", "needs several values"),
        ("count 'x*' --top 0", "--top 0"),
        ("count x -i 0", "not a time"),
        ("count x -i 1x", "not a time"),
        ("count x -i nan", "not a time"),
        ("count x -d -1", "not a time"),
        ("count x -d 1e300", "not a time"),
        ("latency x --unit s", "no such unit"),
        ("latency profile:hz:99", "no end"),
        ("latency kretprobe:vfs_read", "no end"),
    ] {
        assert!(failure(line).message.contains(part), "{line}: {:?}", failure(line));
    }
}

/// Errors in a word are reported at the word, wherever it is in the script.
#[test]
fn diagnostics_refer_to_arguments() {
    let made = script("latency 'libc:malloc' --if 'argx > 1' --by 'comm, foo'").unwrap();
    let sources = made.sources();
    let names: Vec<&str> = sources.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["rbt latency", "FUNCTION", "--if", "--by"]);
    let place = |part: &str| {
        let start = made.text.rfind(part).unwrap() as u32;
        let span = Span { source: 0, start, end: start + part.len() as u32, ..Span::default() };
        let said = made.in_words(Diagnostics(vec![Diagnostic::error("x", span, "x"); 2]));
        assert_eq!(said.0.len(), 1, "said once");
        let span = said.0[0].span;
        (span.source, sources[usize::from(span.source)].text[span.start as usize..span.end as usize].to_string())
    };
    assert_eq!(place("argx"), (2, "argx".into()));
    assert_eq!(place("foo"), (3, "foo".into()));
    assert_eq!(place("uretprobe:libc:malloc"), (1, "libc:malloc".into()));
    assert_eq!(place("$now").0, 0);
}

#[test]
fn invalid_expressions_are_reported_alone() {
    let wrong = |line: &str| script(line).unwrap().wrong_expression().map(|d| d.0[0].span);
    assert_eq!(wrong("count x --if 'pid == 1'"), None);
    assert_eq!(wrong("hist x arg0 --by 'comm, (pid'").map(|s| s.source), Some(3));
    assert_eq!(wrong("hist x 'arg0 +'").map(|s| s.source), Some(2));
    assert!(wrong("hist x ')))))'").is_some());
}
