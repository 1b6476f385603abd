//! Errors in the form of a script: text, literals, C parts, imports.

use super::{Code, DependsOn, error, warning};

/// Exit status if the C part is wrong.
const C_PART: u8 = 2;

pub(super) const CODES: &[Code] = &[
    error("bad-escape", "a backslash in a string does not begin a known escape")
        .remedy(r#"the escapes are \n \t \r \a \b \f \v \\ \" \0 to \377 and \x00 to \xff"#)
        .example(r#"begin { printf("a\qb\n"); }"#, r#"begin { printf("a\\qb\n"); }"#),
    error("bad-import", "an imported file is missing, unreadable, or cannot be imported")
        .example(r#"import "no-such-file.bt"; begin { exit(); }"#, r#"import "stdlib/base"; begin { exit(); }"#),
    error("bad-number", "a number is malformed or needs more than 64 bits")
        .remedy("write 12, 1_000, 0x1f, 1e6 or a time such as 10ms, up to 2^64 - 1")
        .example("begin { print(99999999999999999999); }", "begin { print(9999999999999999999); }"),
    error("c-declaration", "a struct, union, enum or typedef of the script's C part has an error")
        .status(C_PART)
        .example("struct point { int x; unknown_t y; }; begin { exit(); }", "struct point { int x; int y; }; begin { exit(); }"),
    error("c-include", "a header that the script includes cannot be found or read")
        .status(C_PART)
        .example("#include \"no/such/file.h\"\nbegin { exit(); }", "#include <linux/types.h>\nbegin { exit(); }"),
    error("c-preprocessor", "a preprocessor directive of the script's C part has an error")
        .status(C_PART)
        .example("#error not on this machine\nbegin { exit(); }", "begin { exit(); }"),
    error("duplicate-field", "a record names the same field twice")
        .remedy("rename one of them, or remove it")
        .example("begin { $r = (a=1, a=2); print($r.a); }", "begin { $r = (a=1, b=2); print($r.a); }"),
    error("misplaced-directive", "a directive or a config block follows the first probe")
        .remedy("move it to the top of the script")
        .example("begin { exit(); } config = { max_strlen = 64 }", "config = { max_strlen = 64 } begin { exit(); }"),
    warning("missing-parameter", "the command line lacks a positional parameter that the script reads, so it is 0 or empty").depends_on(DependsOn::Arguments)
        .example("begin { print($3); }", "begin { print(3); }"),
    error("syntax", "the script does not follow the grammar")
        .remedy("`man rbt-language` and `rbt one-liners NAME` show examples")
        .example(r#"begin { printf("%d\n" 1); }"#, r#"begin { printf("%d\n", 1); }"#),
    error("too-deep", "parentheses, blocks, loops, functions or imports are nested too deeply")
        .remedy("put parts of it in variables or macros")
        .example(
            "begin { for $a : 0..2 { for $b : 0..2 { for $c : 0..2 { for $d : 0..2 { for $e : 0..2 { for $f : 0..2 { for $g : 0..2 { } } } } } } } }",
            "begin { for $a : 0..2 { for $b : 0..2 { for $c : 0..2 { } } } }",
        ),
    error("too-large", "a type, a value or the script after the expansion of macros is too large")
        .example("config = { max_map_keys = 2000000000 } begin { @[1] = 1; exit(); }", "config = { max_map_keys = 1000000 } begin { @[1] = 1; exit(); }"),
    error("unbalanced", "a bracket, parenthesis or brace has no partner")
        .remedy("add the missing partner, or remove the extra one")
        .example("begin { print((1 + 2); }", "begin { print((1 + 2)); }"),
    error("unterminated-comment", "a comment that begins with /* does not end")
        .example("begin { exit(); } /* a comment", "begin { exit(); } /* a comment */"),
    error("unterminated-string", "a string does not end on its line")
        .example("begin { printf(\"hello); }", "begin { printf(\"hello\"); }"),
];
