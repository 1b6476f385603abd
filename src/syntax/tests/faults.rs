use super::*;

/// A script and its errors.
const FAULTS: &[(&str, &[&str])] = &[
    ("begin { 1 + ; }", &["syntax 1:13 expected an expression after `+`, found `;`"]),
    (r#"begin { printf("x") print(1) }"#, &["syntax 1:19 expected `;` or an operator before `print`"]),
    (r#"begin { printf("x""#, &["unbalanced 1:19 expected `)` to close the `(` opened at 1:15, found the end"]),
    (r#"begin { printf("x"; }"#, &["unbalanced 1:19 expected `)` to close the `(` opened at 1:15, found `;`"]),
    ("begin { if ($a = 1) { } }", &["syntax 1:16 an assignment is a statement, not a value"]),
    ("begin", &["syntax 1:1 a probe needs a block `{ … }`"]),
    ("begin }", &["unbalanced 1:7 this `}` closes nothing"]),
    ("begin { } }", &["unbalanced 1:11 this `}` closes nothing"]),
    ("begin { printf(\"abc); }\nend { 1 }", &["unterminated-string 1:16 this string does not end on its line"]),
    ("begin { /* abc }", &["unterminated-comment 1:9 this comment does not end"]),
    (r#"printf("hi\n");"#, &["syntax 1:1 a statement outside a probe"]),
    ("kprobe:f /pid == 1 { }", &["syntax 1:20 expected `/` to end the predicate, found `{`"]),
    ("kprobe:f foo { }", &["syntax 1:10 expected `{`, `,` or a `/predicate/` after the attach point, found `foo`"]),
    ("begin { $x = while; }", &["syntax 1:14 `while` is a keyword and cannot be a value here"]),
    ("begin { $x = ; }", &["syntax 1:14 expected an expression after `=`, found `;`"]),
    ("begin { 1 = 2 }", &["not-assignable 1:9 this cannot be assigned to"]),
    ("begin { 5++ }", &["not-assignable 1:9 this cannot be incremented or decremented"]),
    ("begin { f(1,,2) }", &["syntax 1:13 expected an expression after `,`, found `,`"]),
    ("begin { @a[] }", &["syntax 1:12 expected an expression after `[`, found `]`"]),
    ("begin { let x = 1 }", &["syntax 1:13 expected a variable `$name` after `let`, found `x`"]),
    ("begin { else { } }", &["syntax 1:9 this `else` has no `if`"]),
    ("begin { if $x { }; else { } }", &["syntax 1:20 this `else` has no `if`"]),
    ("begin { (struct x *) }", &["syntax 1:10 expected an expression after this cast"]),
    ("begin { ($x) $y }", &["syntax 1:14 expected an operator before `$y`"]),
    ("begin { 'a' }", &["syntax 1:9 write a string in double quotes"]),
    ("begin { print(“a”); }", &["syntax 1:15 write a string in plain double quotes, not `“` (U+201C)"]),
    ("begin {\u{a0}print(1); }", &["syntax 1:8 found `\u{a0}` (U+00A0), an unusual blank"]),
    ("begin { $x = é; }", &["syntax 1:14 expected an expression after `=`, found `é` (U+00E9)"]),
    ("begin { for ($i : 3) { } }", &["syntax 1:19 a `for` loop needs a range or a map"]),
    ("begin { for ($i in 3) { } }", &["syntax 1:17 expected `:` after `$i`, found `in`"]),
    ("begin { while ($x) f(); }", &["syntax 1:23 expected a block `{ … }` before `;`"]),
    ("begin { if ($x) f(); }", &["syntax 1:20 expected a block `{ … }` before `;`"]),
    ("begin { $x.; }", &["syntax 1:12 expected a member's name after `.`, found `;`"]),
    (
        "begin { print(1; \nend { 2 }",
        &[
            "unbalanced 1:16 expected `)` to close the `(` opened at 1:14, found `;`",
            "unbalanced 2:10 expected `}` to close the block opened at 1:7, found the end",
        ],
    ),
    (
        "begin { print(1) \nend { 2 }",
        &[
            "syntax 1:16 expected `;` or an operator before `end`",
            "unbalanced 2:10 expected `}` to close the block opened at 1:7, found the end",
        ],
    ),
    ("begin { }\n#include <a.h>\n", &["misplaced-directive 2:1 put C definitions and `#` lines before everything else"]),
    ("begin { }\nconfig = { a = 1 }\n", &["misplaced-directive 2:1 put settings and imports before probes, macros and functions"]),
    ("foo = { a = 1 }\n", &["syntax 1:1 expected settings or a probe, found `foo = {`"]),
    ("let @a = hash(3)\nbegin { }", &["syntax 1:16 expected `;` before `begin`"]),
    ("import \"x\"\nbegin { }", &["syntax 1:10 expected `;` before `begin`"]),
    ("macro x { 1 }", &["syntax 1:9 expected `(` after `x`, found `{`"]),
    ("fn x($a) : void { 1 }", &["syntax 1:8 expected `:` after `$a`, found `)`"]),
    (
        "begin { 1 + }\nend { * }\nk:f { f(; }",
        &[
            "syntax 1:13 expected an expression after `+`, found `}`",
            "syntax 2:9 expected an expression after `*`, found `}`",
            "unbalanced 3:9 expected `)` to close the `(` opened at 3:8, found `;`",
        ],
    ),
    (
        "begin { $x = 99999999999999999999; 08 }",
        &["bad-number 1:14 `99999999999999999999` does not fit in 64 bits", "bad-number 1:36 `8` is not an octal digit in `08`"],
    ),
    (
        "begin { (x=1, x=2) (x=1,2) }",
        &["duplicate-field 1:15 this record has two members `x`", "syntax 1:20 expected an operator before `(x`"],
    ),
    (
        "begin { (x=1, x=2); (x=1,2) }",
        &["duplicate-field 1:15 this record has two members `x`", "syntax 1:26 this member of a record has no name"],
    ),
    ("begin { $ }", &["syntax 1:9 `$` without a name"]),
    ("begin { a b }", &["syntax 1:9 expected `;` or an operator before `b`"]),
    ("begin { ! }", &["syntax 1:11 expected an expression after `!`, found `}`"]),
    ("begin { x ? 1 }", &["syntax 1:15 expected `:` or an operator after `1`, found `}`"]),
    ("}", &["unbalanced 1:1 this `}` closes nothing"]),
    ("123", &["syntax 1:1 a probe needs a block `{ … }`"]),
    ("config = { a = }\nbegin { }", &["syntax 1:16 expected a value after `=`, found `}`"]),
    ("begin { return return; }", &["syntax 1:9 expected `;` before `return`"]),
    ("begin { #define x\n }", &["syntax 1:9 a `#` line within a block"]),
    ("begin { $x == = 1 }", &["syntax 1:15 expected an expression after `==`, found `=`"]),
    ("begin { $x => 1 }", &["syntax 1:13 expected an expression after `=`, found `>`"]),
    ("begin { f(1 2) }", &["syntax 1:13 expected `)`, `,` or an operator after `1`, found `2`"]),
    ("begin { @x[1 }", &["unbalanced 1:14 expected `]` to close the `[` opened at 1:11, found `}`"]),
    ("begin { $x = 1 $y = 2 }", &["syntax 1:14 expected `;` or an operator before `$y`"]),
    ("begin { if { } }", &["syntax 1:16 expected a block `{ … }` before `}`"]),
    ("begin { unroll { } }", &["syntax 1:20 expected a block `{ … }` before `}`"]),
    ("begin { $x + = 1 }", &["syntax 1:14 expected an expression after `+`, found `=`"]),
    ("begin { f(,) }", &["syntax 1:11 expected an expression after `(`, found `,`"]),
    ("kprobe:f / / { }", &["syntax 1:12 an empty predicate"]),
    ("kprobe:f,, { }", &["syntax 1:10 expected `{`, `,` or a `/predicate/` after the attach point, found `,`"]),
    ("kprobe:f /1/ /2/ { }", &["syntax 1:14 expected an expression after `/`, found `/`"]),
    ("begin { $x: 1 }", &["syntax 1:11 expected `;` or `}`, found `:`"]),
    ("begin { let @m = hash(1); }", &["syntax 1:13 maps are declared outside probes"]),
    ("begin { struct x { int a; } }", &["syntax 1:9 expected a statement, found `struct`"]),
    ("begin { (1 }", &["unbalanced 1:12 expected `)` to close the `(` opened at 1:9, found `}`"]),
    ("begin { 1) }", &["unbalanced 1:10 this `)` closes nothing"]),
    (
        r#"begin { 3x; 0b11; "\8" }"#,
        &[
            "bad-number 1:9 `3x` has an unknown suffix `x`",
            "bad-number 1:13 `0b11` has an unknown suffix `b11`",
            r#"bad-escape 1:20 `\8` is not an escape"#,
        ],
    ),
    ("begin { macro f() { } }", &["syntax 1:9 expected a statement, found `macro`"]),
    (r#"kprobe:"f { }"#, &["unterminated-string 1:8 this string does not end on its line"]),
    ("begin { for $x : @m f() }", &["syntax 1:21 expected a block `{ … }` before `f`"]),
    ("begin { $99999999999 }", &["bad-number 1:9 `$99999999999` is too large for a parameter number"]),
    ("begin { let $x: = 1 }", &["syntax 1:17 expected a type after `:`, found `=`"]),
    ("begin { sizeof x }", &["syntax 1:16 expected `(` after `sizeof`, found `x`"]),
    (r#"begin { "a" "b" }"#, &["syntax 1:11 expected `;` or an operator before a string"]),
];

#[test]
fn faults_in_the_users_terms() {
    for (text, wanted) in FAULTS {
        assert_eq!(errors(text), *wanted, "{text}");
    }
}

#[test]
fn faults_carry_their_remedy() {
    let help = |text: &str| parse(&source(text)).expect_err(text).0.first().and_then(|d| d.help.clone()).unwrap_or_default();
    assert_eq!(help("begin { if ($a = 1) { } }"), "to compare, write `==`");
    assert_eq!(help("f(1);"), "write statements within the braces of a probe: `provider:target { … }`");
    assert_eq!(help("begin { let @m = hash(1); }"), "move it to the top level; a map needs no declaration");
    let unclosed = parse(&source("begin { f(1; }")).expect_err("unclosed").0;
    assert_eq!(unclosed[0].related[0].0, Span { source: 0, start: 9, end: 10, ..Span::default() });
}

#[test]
fn spans_name_their_source() {
    let text = Source { name: "b.bt".into(), text: "begin { f() ".into() };
    assert_eq!(parse_as(&text, 3).expect_err("unclosed").0[0].span.source, 3);
    let text = Source { name: "b.bt".into(), text: "begin { }".into() };
    assert!(matches!(&parse_as(&text, 3).unwrap_or_default().items[0], Item::Probe(p) if p.span.source == 3 && p.body.span.source == 3));
}

#[test]
fn detects_incomplete_input() {
    for (text, is) in [
        ("begin { }", false),
        ("begin {", true),
        ("begin { printf(\"}\");", true),
        ("begin { printf(\"}\"); }", false),
        ("/* a", true),
        ("/* a */ begin { }", false),
        ("/*/", true),
        ("// {", false),
        ("kprobe:a,", true),
        ("uprobe:/bin/*:main { print(1); }", false),
        ("uprobe:/bin/*:main {", true),
        ("if (1)", true),
        ("if (1) { }", false),
        ("1 ? 2", false),
        ("1 + 2", false),
        ("struct s {", true),
        ("", false),
        // an unterminated line without a partner: more input cannot mend it
        ("begin { print(\"a", false),
        ("\"a\\\"", false),
        ("begin { print(1; }", false),
        ("begin { print(1]", false),
        ("\"a,", false),
    ] {
        assert_eq!(unfinished(text), is, "{text}");
    }
}
