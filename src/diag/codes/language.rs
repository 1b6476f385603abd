//! Errors in the meaning of a script: names, types, maps, functions, settings.

use super::{Code, DependsOn, error, warning};

pub(super) const CODES: &[Code] = &[
    error("ambiguous-constant", "an enum constant has several values in the debug information of a binary")
        .remedy("write the number, or compare the name with a value of its enum")
        .needs("a program of several files"),
    error("ambiguous-type", "files of a binary define a type differently, and that of the probe's code does not define it")
        .remedy("probe a function of a file that defines it, or define it in the script")
        .needs("a program of several files"),
    error("arity", "a call has too few or too many arguments")
        .remedy("`rbt help FUNCTION` shows its arguments")
        .example(r#"begin { print(strncmp("a", "b")); }"#, r#"begin { print(strncmp("a", "b", 1)); }"#),
    error("assertion", "the script's own fail(), static_assert() or assert_str() rejects it").example(
        r#"begin { static_assert(sizeof(uint64) == 4, "four bytes"); }"#,
        r#"begin { static_assert(sizeof(uint64) == 8, "eight bytes"); }"#,
    ),
    error("bad-address", "a string is not an IP address")
        .remedy("write one such as \"192.0.2.1\" or \"2001:db8::1\"")
        .example(r#"begin { print(pton("192.0.2")); }"#, r#"begin { print(pton("192.0.2.1")); }"#),
    error("bad-arg", "argN or sargN has a number that the probe does not have")
        .example("uprobe:libc:malloc { print(arg9); }", "uprobe:libc:malloc { @bytes = hist(arg0); }"),
    error("bad-cast", "a value cannot be converted to this type")
        .remedy("cast between integers, pointers and enums, or to an array of the same size")
        .example("begin { print((uint8)comm); }", "begin { print((uint8)pid); }"),
    error("bad-condition", "a condition is not a number, a pointer or a bool")
        .remedy("compare it: `x != 0`, `str(p) == \"text\"`")
        .example(r#"begin { if (comm) { exit(); } }"#, r#"begin { if (comm != "") { exit(); } }"#),
    error("bad-format", "the format of strftime() is not UTF-8")
        .example(r#"begin { print(strftime("\xff", nsecs)); }"#, r#"begin { print(strftime("%H:%M", nsecs)); }"#),
    error("bad-metric", "a `// metric:` comment has an unknown property or unit, an invalid label, or a name with another unit").command(
        r"printf '// metric: @ unit=minutes\nbegin { @ = sum(1); exit(); }' > a.bt; rbt --serve 0 a.bt",
        r"printf '// metric: @ unit=seconds\nbegin { @ = sum(1); exit(); }' > a.bt; rbt --serve 0 a.bt",
    ),
    error("bad-option", "an option of the script has a wrong value on the command line").command(
        r#"rbt -e 'begin { $n = getopt("n", 5); print($n); exit(); }' -- --n=x"#,
        r#"rbt -e 'begin { $n = getopt("n", 5); print($n); exit(); }' -- --n=7"#,
    ),
    error("bad-setting", "a setting has an invalid value")
        .example("config = { missing_probes = perhaps } begin { exit(); }", "config = { missing_probes = warn } begin { exit(); }"),
    error("bad-type", "a type cannot be used at this place")
        .example("fn f($x: void): int64 { return 1; } begin { print(1); }", "fn f($x: int64): int64 { return $x; } begin { print(f(1)); }"),
    error("bad-unroll", "the number of iterations of unroll() is not a constant from 1 to 100")
        .remedy("write unroll(10) { … }; for more, `while` or `for $i : 0..n`")
        .example("begin { unroll(101) { @ = count(); } }", "begin { unroll(100) { @ = count(); } }"),
    warning("debug-output", "debugf() writes to the kernel's trace_pipe, not to the output")
        .example(r#"begin { debugf("%d\n", pid); }"#, r#"begin { printf("%d\n", pid); }"#),
    warning("deprecated", "the script uses a form that bpftrace has removed or will remove")
        .example("begin { if (pid) { $a = 1; } print($a); }", "begin { let $a; if (pid) { $a = 1; } print($a); }"),
    error("division-by-zero", "a constant divisor is zero")
        .remedy("divide by something else, or test the divisor first")
        .example("begin { print(1 / 0); }", "begin { print(1 / 2); }"),
    error("env-only-setting", "a setting can only be set in the environment")
        .example("config = { btf = \"/tmp/btf\" } begin { exit(); }", "config = { max_strlen = 64 } begin { exit(); }"),
    error("format", "a format string does not match its arguments. This is a warning if bpftrace ignores the difference")
        .remedy("each conversion such as %d, %s or %x takes one value, and `%s` prints any value")
        .example(r#"begin { printf("%d %s\n", 1); }"#, r#"begin { printf("%d %s\n", 1, comm); }"#),
    warning("hidden-symbols", "the kernel hides symbol addresses from this user")
        .needs("a user without the right to read symbol addresses"),
    warning("ignored", "an argument has no effect here")
        .example("begin { @s = stats(1); print(@s, 1, 2); }", "begin { @s = stats(1); print(@s); }"),
    error("in-loop", "a statement or a function is not possible within a loop")
        .remedy("move it out of the loop")
        .example("begin { for $i : 0..3 { exit(); } }", "begin { for $i : 0..3 { print($i); } exit(); }"),
    error("in-macro", "a statement is not possible within a macro")
        .example("macro m() { return; } begin { m(); }", "macro m() { print(1); } begin { m(); }"),
    error("invalid-keyword", "an argument is not one of the words that the function accepts")
        .example("profile:hz:99 { @[kstack(foo)] = count(); }", "profile:hz:99 { @[kstack(perf)] = count(); }"),
    error("key-too-long", "a map's key is longer than this kernel allows").needs("a kernel before 5.11 and a key of more than 512 bytes"),
    warning("late-print", "a loop prints a map, which rbt reads after the block has ended, so each iteration prints the same contents")
        .example("begin { @m[1] = 1; for $i : 0..2 { print(@m); } }", "begin { @m[1] = 1; for $i : 0..2 { print(@m[1]); } }"),
    warning("length-clamped", "the length argument of a function exceeds max_strlen and is reduced to it")
        .example("uprobe:libc:puts { print(str(arg0, 100000)); }", "uprobe:libc:puts { print(str(arg0, 64)); }"),
    error("map-key-conflict", "a map is used both with and without a key")
        .example("begin { @a[1] = 1; @a = 2; }", "begin { @a[1] = 1; @b = 2; }"),
    error("map-kind", "a map is declared with an unknown type, or used as two kinds of map")
        .remedy("a map holds one kind of aggregation: use another map")
        .example("let @b = lruhsh(10); begin { @b[1] = 1; }", "let @b = lruhash(10); begin { @b[1] = 1; }"),
    error("misplaced-aggregation", "an aggregation such as count() is used other than by assigning it to a map")
        .remedy("assign it to a map: `@x = count()`")
        .example("begin { $x = hist(1); }", "begin { @x = hist(1); }"),
    error("missing-return", "a function may end without returning its value").example(
        "fn f($x: int64): int64 { if ($x > 0) { return 1; } } begin { print(f(1)); }",
        "fn f($x: int64): int64 { if ($x > 0) { return 1; } return 0; } begin { print(f(1)); }",
    ),
    error("no-address", "& is only possible on a map or a variable").example("begin { print(&pid); }", "begin { $x = pid; print(&$x); }"),
    warning("no-command-pid", "`cpid` is 0, because there is no command (-c)")
        .depends_on(DependsOn::Arguments)
        .command("rbt -e 'begin { print(cpid); exit(); }'", "rbt -c true -e 'begin { print(cpid); }'"),
    warning("no-effect", "a statement has no effect").example("begin { 1; }", "begin { print(1); }"),
    error("not-assignable", "the left side of an assignment is neither a variable nor a map")
        .remedy("only `$variable`, `@map` and `@map[key]` can be assigned to")
        .example("begin { pid = 1; }", "begin { $pid = 1; print($pid); }"),
    error("not-constant", "a value must be known when the script is compiled")
        .remedy("write a number or a constant expression")
        .example(r#"begin { print(getopt("a", pid)); }"#, r#"begin { print(getopt("a", 5)); }"#),
    error("not-in-loop", "`break` or `continue` is outside of a loop")
        .remedy("use `return` to leave the probe")
        .example("begin { break; }", "begin { return; }"),
    error("not-readable", "an aggregation has no single value to read, or a file is unreadable")
        .example("begin { @a = hist(1); print(@a > 5); }", "begin { @a = count(); print(@a > 5); }"),
    warning("omitted-arguments", "`args` as a whole omits unreadable arguments")
        .remedy("name the arguments that you need: `args.NAME`")
        .needs("a function with an argument that rbt cannot read"),
    error("option-conflict", "two getopt() calls describe the same option differently").example(
        r#"begin { print(getopt("a", 1)); print(getopt("a", 2)); }"#,
        r#"begin { print(getopt("a", 1)); print(getopt("a", 1)); }"#,
    ),
    error("out-of-bounds", "a constant index is outside of the array, the string or the tuple")
        .example("begin { $t = (1, 2); print($t.5); }", "begin { $t = (1, 2); print($t.1); }"),
    error("out-of-range", "a number is out of range")
        .remedy("choose a value within these bounds")
        .example("begin { let $x : uint8 = 300; print($x); }", "begin { let $x : uint16 = 300; print($x); }"),
    warning("pointer-comparison", "pointers to different types are compared").example(
        "begin { $p = (int32 *)1; $q = (int64 *)2; if ($p == $q) { exit(); } }",
        "begin { $p = (int32 *)1; $q = (int32 *)2; if ($p == $q) { exit(); } }",
    ),
    error("recursion", "a macro expands to itself, or a function calls itself")
        .example("macro a($x) { a($x) } begin { $x = 1; print(a($x)); }", "macro a($x) { $x + 1 } begin { $x = 1; print(a($x)); }"),
    error("redeclared", "a name is declared twice")
        .remedy("use another name, or assign without `let`")
        .example("begin { let $x = 1; let $x = 2; print($x); }", "begin { let $x = 1; $x = 2; print($x); }"),
    warning("renamed-setting", "a setting has a new name")
        .example("config = { strlen = 64 } begin { exit(); }", "config = { max_strlen = 64 } begin { exit(); }"),
    warning("setting-without-effect", "a setting of bpftrace has no effect in rbt")
        .example("config = { unstable_macro = 1 } begin { exit(); }", "begin { exit(); }"),
    warning("sign-change", "a value changes between signed and unsigned, so large or negative values are wrong")
        .example("begin { @m = -1; @m = nsecs; }", "begin { @m = (int64)-1; @m = (int64)nsecs; }"),
    error("too-long", "a string literal is longer than max_strlen").remedy("raise it: `config = { max_strlen = … }`").example(
        r#"config = { max_strlen = 8 } begin { $s = "longer than eight"; print($s); }"#,
        r#"begin { $s = "longer than eight"; print($s); }"#,
    ),
    error("too-many-functions", "a probe compiles to more functions than a BPF program may have. Each loop is a function, unless it differs from others in numbers only")
        .remedy("put similar loops into a function (`fn`), or split the work among several probes")
        .command(
            r#"rbt -e "begin { $(seq -f 'for ($i : 0..%g) { if ($i == 7) { return; } }' 300) }" --dry-run"#,
            r#"rbt -e "begin { $(seq -f 'for ($i : 0..%g) { if ($i == 7) { return; } }' 3) }" --dry-run"#,
        ),
    error("too-many-maps", "a probe uses more maps than a BPF program can name")
        .remedy("use fewer maps in one probe: put related values into one map with a key")
        .command(
            r#"rbt --mode codegen -e "begin { $(seq -f '@a%g = 1;' 70) }""#,
            r#"rbt --mode codegen -e "begin { $(seq -f '@a[%g] = 1;' 70) }""#,
        ),
    error("too-much-stack", "a probe needs more than the 512 bytes of a BPF program's stack")
        .remedy("use fewer values at a time, nest loops and functions less, or store values in maps")
        .needs("a script with many values and deeply nested loops"),
    error("type-conflict", "a variable or a map holds values of two types")
        .remedy("use another name for the other type, or cast one: `(uint64)x`")
        .example(r#"begin { @a = 1; @a = "text"; }"#, r#"begin { @a = 1; @b = "text"; }"#),
    error("type-mismatch", "an operator or a function cannot take a value of this type")
        .remedy("convert the value: `str(p)` reads a string, `(uint64)x` makes a number")
        .example("begin { print(comm + 1); }", "begin { print(pid + 1); }"),
    error("undefined-map", "the script reads a map but never assigns it")
        .remedy("assign it in some probe: `@x = 1` or `@x = count()`")
        .example("begin { print(@nowhere); }", "begin { @nowhere = 1; print(@nowhere); }"),
    error("undefined-variable", "the script reads a variable but never assigns it")
        .remedy("assign it first, in this block or an enclosing one; a map `@x` is shared by all probes")
        .example("begin { $count = 1; print($cuont); }", "begin { $count = 1; print($count); }"),
    error("unknown-field", "a struct, a union or a probe's args has no field of this name")
        .remedy("`rbt -lv PROBE` and `rbt -lv 'struct NAME'` list the fields")
        .example(
            "tracepoint:syscalls:sys_enter_openat { print(str(args.filenam)); }",
            "tracepoint:syscalls:sys_enter_openat { print(str(args.filename)); }",
        ),
    error("unknown-name", "a word is neither a builtin nor a constant")
        .remedy("write variables as `$name`, maps as `@name`, and strings in quotes")
        .example("begin { print(comn); }", "begin { print(comm); }"),
    error("unknown-option", "an option does not exist, in rbt or in the script")
        .command("rbt -e 'begin { exit(); }' --colour never", "rbt -e 'begin { exit(); }' --color never"),
    error("unknown-setting", "a setting does not exist")
        .remedy("`man rbt` lists the settings")
        .example("config = { max_strlne = 5 } begin { exit(); }", "config = { max_strlen = 5 } begin { exit(); }"),
    error("unknown-signal", "a signal's name or number does not exist").command(
        r#"rbt --unsafe --mode codegen -e 'profile:hz:9 { signal("SIGFOO"); }'"#,
        r#"rbt --unsafe --mode codegen -e 'profile:hz:9 { signal("SIGUSR1"); }'"#,
    ),
    error("unknown-type", "a type is unknown")
        .remedy("`rbt -l 'struct *'` lists the kernel's types")
        .example("begin { print(sizeof(struct task_strct)); }", "begin { print(sizeof(struct task_struct)); }"),
    warning("unreachable", "a statement cannot be reached")
        .depends_on(DependsOn::Options)
        .example("begin { exit(); print(1); }", "begin { print(1); exit(); }"),
    warning("unreadable-result", "a pattern matches functions whose results are in floating-point registers")
        .remedy("name the functions, or do not use `retval`")
        .needs("a function that returns a floating-point number"),
    error("unsafe", "the function changes the system, and needs --unsafe")
        .depends_on(DependsOn::Permission)
        .remedy("run with --unsafe to allow it")
        .example(r#"begin { system("ls"); }"#, r#"begin { print("ls"); }"#),
    warning("unset-variable", "a variable is read before it is assigned, so it is zero, or it is never assigned")
        .example("begin { let $x; print($x); }", "begin { let $x = 1; print($x); }"),
    error("unstable", "the feature is unstable and needs its setting. This is a warning if the setting is `warn`")
        .example("begin { print(typeinfo(pid)); }", "config = { unstable_typeinfo = enable } begin { print(typeinfo(pid)); }"),
    error("unsupported", "rbt lacks a feature of bpftrace")
        .example(r#"begin { import "stdlib/base"; exit(); }"#, r#"import "stdlib/base"; begin { exit(); }"#),
    error("unsupported-in-probe", "the builtin has no value in this kind of probe")
        .remedy("`rbt help NAME` lists the probes in which you can use it")
        .example("begin { print(retval); }", "uretprobe:libc:malloc { @[retval] = count(); }"),
    warning("unused-map", "a map is declared but not used")
        .depends_on(DependsOn::Options)
        .example("let @a = hash(10); begin { exit(); }", "let @a = hash(10); begin { @a[1] = 1; }"),
    warning("useless-cast", "a cast has no effect, because the value already has this type")
        .example("begin { $x = (uint64)nsecs; print($x); }", "begin { $x = nsecs; print($x); }"),
];
