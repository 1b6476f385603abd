use super::*;
use crate::literal;

#[test]
fn precedence() {
    assert_eq!(expr("1 + 2 * 3"), "(1 + (2 * 3))");
    assert_eq!(expr("1 - 2 - 3"), "((1 - 2) - 3)");
    assert_eq!(expr("$a << 1 + 2 < 3 == 4 & 5 ^ 6 | 7 && 8 || 9"), "(((((((($a << (1 + 2)) < 3) == 4) & 5) ^ 6) | 7) && 8) || 9)");
    assert_eq!(
        expr("1 || 2 && 3 | 4 ^ 5 & 6 == 7 < 8 >> 9 - 10 % 11"),
        "(1 || (2 && (3 | (4 ^ (5 & (6 == (7 < (8 >> (9 - (10 % 11))))))))))"
    );
    assert_eq!(expr("-1 * ~2"), "((-1) * (~2))");
    assert_eq!(expr("!$a.b"), "(!$a.b)");
    assert_eq!(expr("-$x++"), "(-($x++))");
    assert_eq!(expr("*$p + 1"), "((*$p) + 1)");
    assert_eq!(expr("(1 + 2) * 3"), "((1 + 2) * 3)");
}

#[test]
fn ternaries() {
    assert_eq!(expr("$a ? 1 : $b ? 2 : 3"), "($a ? 1 : ($b ? 2 : 3))");
    assert_eq!(expr("$a ? $b ? 1 : 2 : 3"), "($a ? ($b ? 1 : 2) : 3)");
    assert_eq!(expr("$a ?: 3"), "($a ?: 3)");
    assert_eq!(expr("$a == 1 ? 2 : 3"), "(($a == 1) ? 2 : 3)");
}

#[test]
fn casts() {
    assert_eq!(expr("(uint64)$x"), "(<uint64>$x)");
    assert_eq!(expr("(uint64)$x.y + 1"), "((<uint64>$x.y) + 1)");
    assert_eq!(expr("(struct task_struct *)curtask"), "(<struct task_struct*>curtask)");
    assert_eq!(expr("((struct task_struct *)$p)->comm"), "(<struct task_struct*>$p).comm");
    assert_eq!(expr("(uint8[4])$x"), "(<uint8[4]>$x)");
    assert_eq!(expr("(int8[])\"ab\""), "(<int8[]>\"ab\")");
    assert_eq!(expr("(int32*)$p"), "(<int32*>$p)");
    assert_eq!(expr("(int32**)$p"), "(<int32**>$p)");
    assert_eq!(expr("(int32*[4])$p"), "(<int32*[4]>$p)");
    assert_eq!(expr("(typeof($x))$y"), "(<typeof($x)>$y)");
    assert_eq!(expr("(typeof($x)*)$y"), "(<typeof($x)*>$y)");
    assert_eq!(expr("(uint8)(uint16)3"), "(<uint8>(<uint16>3))");
    assert_eq!(expr("(uint8)-1"), "(<uint8>(-1))");
    assert_eq!(expr("(uint8)*$p"), "(<uint8>(*$p))");
    assert_eq!(expr("(uint8)!$p"), "(<uint8>(!$p))");
    assert_eq!(expr("(uint8)++$p"), "(<uint8>(++$p))");
    assert_eq!(expr("(uint64)arg0 - (uint64)arg1"), "((<uint64>arg0) - (<uint64>arg1))");
    assert_eq!(expr("((uint8, int16))$t"), "(<(uint8, int16)>$t)");
    assert_eq!(expr("-(int8)3"), "(-(<int8>3))");
    assert_eq!(expr("(enum e)2"), "(<enum e>2)");
}

#[test]
fn parentheses_around_values() {
    assert_eq!(expr("(pid) - 1"), "(pid - 1)");
    assert_eq!(expr("(arg5) * 2"), "(arg5 * 2)");
    assert_eq!(expr("(args).x"), "args.x");
    assert_eq!(expr("(foo) + 1"), "(foo + 1)");
    assert_eq!(expr("($x) - 1"), "($x - 1)");
    assert_eq!(expr("(a * b)"), "(a * b)");
    assert_eq!(expr("(a * *b)"), "(a * (*b))");
    assert_eq!(expr("(a ** b)"), "(a * (*b))");
    assert_eq!(expr("(foo)"), "foo");
    let text = "#define SIZE 3\nbegin { (SIZE) * 2 }";
    assert_eq!(show(&value(probe(text).body)), "(SIZE * 2)");
}

#[test]
fn tuples_and_records() {
    assert_eq!(expr("(1, \"a\")"), "tuple(1, \"a\")");
    assert_eq!(expr("(1,)"), "tuple(1)");
    assert_eq!(expr("()"), "tuple()");
    assert_eq!(expr("(1, (2, 3),)"), "tuple(1, tuple(2, 3))");
    assert_eq!(expr("(x=1, y=\"s\")"), "record(x=1, y=\"s\")");
    assert_eq!(expr("(x = 1)"), "record(x=1)");
    assert_eq!(expr("(x == 1)"), "(x == 1)");
    assert_eq!(expr("$t.0.1"), "$t.0.1");
    assert_eq!(expr("(1, 2).0"), "tuple(1, 2).0");
}

#[test]
fn postfixes() {
    assert_eq!(expr("args.a.b"), "args.a.b");
    assert_eq!(expr("$x->y->z[1]"), "$x.y.z[1]");
    assert_eq!(expr("@a[1][0]"), "@a{1}[0]");
    assert_eq!(expr("@a[1, $b]"), "@a{1, $b}");
    assert_eq!(expr("@[comm]"), "@{comm}");
    assert_eq!(expr("@"), "@");
    assert_eq!(expr("@x++"), "(@x++)");
    assert_eq!(expr("@x[1]--"), "(@x{1}--)");
    assert_eq!(expr("--$i"), "(--$i)");
    assert_eq!(expr("str($1, 4)[0]"), "str($1, 4)[0]");
    assert_eq!(expr("$# + $12"), "($# + $12)");
    assert_eq!(expr("$x.if"), "$x.if");
}

#[test]
fn type_words() {
    assert_eq!(expr("sizeof(struct x)"), "sizeof(<struct x>)");
    assert_eq!(expr("sizeof(uint8 *)"), "sizeof(<uint8*>)");
    assert_eq!(expr("sizeof(uint8[4])"), "sizeof(<uint8[4]>)");
    assert_eq!(expr("sizeof(args[4])"), "sizeof(args[4])");
    assert_eq!(expr("sizeof(uint64)"), "sizeof(uint64)");
    assert_eq!(expr("sizeof($x + 1)"), "sizeof(($x + 1))");
    assert_eq!(expr("sizeof(typeof($x))"), "sizeof(<typeof($x)>)");
    assert_eq!(expr("offsetof(struct x, a.b.c)"), "offsetof(<struct x>, a, b, c)");
    assert_eq!(expr("offsetof(x, a)"), "offsetof(x, a)");
    assert_eq!(expr("typeinfo($x)"), "typeinfo($x)");
    assert_eq!(expr("f(typeof(uint8 *))"), "f(typeof(<uint8*>))");
    assert_eq!(expr("f(typeof($x)*, 2)"), "f(typeof(<typeof($x)*>), 2)");
    assert_eq!(expr("f(struct x, 2)"), "f(<struct x>, 2)");
    assert_eq!(expr("comptime strlen(\"a\") + 1"), "((comptime strlen(\"a\")) + 1)");
}

#[test]
fn blocks_and_ifs_as_values() {
    assert_eq!(body("let $x = if $a { 1 } else { 2 };"), "{let $x = if $a {1} else {2};}");
    assert_eq!(body("$x = { let $y = 1; $y + 1 };"), "{$x = {let $y = 1; ($y + 1)};}");
    assert_eq!(body("if $a { f(); } else if ($b) { g() } else { }"), "{if $a {f();} else {if $b {g()} else {}}}");
    assert_eq!(body("if ($a) { f() } f()"), "{if $a {f()}; f()}");
    assert_eq!(body("if ($a) == 1 { }"), "{if ($a == 1) {};}");
    assert_eq!(body("if comptime $a == 1 { }"), "{if (comptime ($a == 1)) {};}");
    assert_eq!(body("{ f() } g();"), "{{f()}; g();}");
}

#[test]
fn numbers() {
    for (text, value) in [
        ("0", 0),
        ("1_000", 1000),
        ("017", 15),
        ("0xfF", 255),
        ("0XFF_FF", 65535),
        ("1e6", 1_000_000),
        ("9e0", 9),
        ("5ul", 5),
        ("5ULL", 5),
        ("100ms", 100_000_000),
        ("2us", 2000),
        ("3ns", 3),
        ("1s", 1_000_000_000),
        ("1m", 60_000_000_000),
        ("1h", 3_600_000_000_000),
        ("1d", 86_400_000_000_000),
        ("18446744073709551615", u64::MAX),
        ("0xffffffffffffffff", u64::MAX),
    ] {
        assert_eq!(literal::parse_int(text), Ok(value), "{text}");
        assert_eq!(expr(text), value.to_string());
    }
    for text in ["18446744073709551616", "08", "0x", "0xg", "1_", "9e20", "1e", "1x", "5_ms_", "0b11", "400000d", "18446744073709551615l"] {
        assert!(literal::parse_int(text).is_err(), "{text}");
    }
}

#[test]
fn strings() {
    assert_eq!(expr(r#""a\n\t\r\"\\\101\x41\7""#), format!("{:?}", "a\n\t\r\"\\AA\u{7}"));
    assert_eq!(expr(r#""// no /* comment {""#), r#""// no /* comment {""#);
    assert_eq!(
        errors(r#"begin { printf("a\qb\x") }"#),
        ["bad-escape 1:18 `\\q` is not an escape", "bad-escape 1:21 `\\x` needs one or two hexadecimal digits"]
    );
    assert_eq!(errors(r#"begin { print("\777") }"#), ["bad-escape 1:16 the octal escape `\\777` is over 255"]);
}
