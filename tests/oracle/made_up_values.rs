//! Generates random statements with maps, aggregations, tuples, records, strings, enums, macros, casts, loops and formats. They
//! avoid deliberate differences, such as the order of entries with equal values. The names of maps begin with `@_`, which `batch`
//! replaces by a prefix for each row.

use super::rng::Rng;
use super::row::Row;
use std::fmt::Write as _;

/// The C declarations that the statements use. They are on one line, because messages are assigned to rows by line.
pub const DECLARATIONS: &str = "struct S { int a; unsigned char b; short c; long d; char e[4]; }; struct P { struct S s; struct S *p; int n[3]; }; \
                                enum E { RED = 1, BLUE = 5, FAR = 70000 };";
/// The macros that the statements use.
pub const MACROS: &str =
    "macro add(x, y) { (int64)(x + y) } macro twice($x) { $x += $x; $x } macro within(x) { let $y = (int64)x; $y * 3 } ";

pub fn rows(n: u64, first: u64) -> Vec<Row> {
    let row = |seed| Row { own_maps: true, ..Row::statements(format!("values {seed}"), statements(&mut Rng::new(seed))) };
    (first..first + n).map(row).collect()
}

fn statements(rng: &mut Rng) -> String {
    let mut made = Made { names: 0, text: String::new() };
    for _ in 0..rng.between(2, 5) {
        made.statement(rng, 2);
    }
    made.text
}

const TEXTS: &[&str] = &["\"\"", "\"a\"", "\"some text\"", "\"a,b\"", "\"50%\"", "\"tab\\tnew\"", "\"q\\\"x\\\"\"", "\"abcabc\""];
const CASTS: &[&str] = &["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool", "enum E"];

struct Made {
    names: usize,
    text: String,
}

impl Made {
    fn name(&mut self) -> String {
        self.names += 1;
        format!("{}", self.names)
    }

    fn say(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push(' ');
    }

    fn statement(&mut self, rng: &mut Rng, depth: usize) {
        let n = self.name();
        match rng.below(if depth == 0 { 27 } else { 31 }) {
            0 => {
                let (key, v) = (key(rng), value(rng, 2));
                self.say(&format!("@_{n}[{key}] = {v}; print(@_{n}[{key}]); print(@_{n}); print(len(@_{n}));"));
            }
            1 => {
                let v = value(rng, 2);
                self.say(&format!("@_{n} = {v}; print(@_{n}); print((@_{n}, 1));"));
            }
            2 => {
                let (key, other) = (key_of_kind(rng, 0), key_of_kind(rng, 0));
                let of = ["sum", "min", "max", "avg", "stats"];
                let of = rng.pick(&of);
                // The entries of min() and max() are sorted by signed values, so their values are signed.
                let value = |rng: &mut Rng| if of.starts_with('m') { format!("(int64){}", rng.between(0, 70000)) } else { long(rng, 1) };
                let (a, b) = (value(rng), value(rng));
                self.say(&format!("@_{n}[{key}] = {of}({a}); @_{n}[{key}] = {of}({b}); print(@_{n}); @_{n}[{other}] = {of}((int64)8888888); print(len(@_{n})); print(@_{n});"));
                if *of != "stats" {
                    self.say(&format!("print(@_{n}[{key}]);"));
                }
            }
            3 => {
                let (of, a, b) = (rng.pick(&["sum", "min", "max", "avg"]), long(rng, 1), long(rng, 1));
                self.say(&format!(
                    "@_{n} = {of}({a}); @_{n} = {of}({b}); print((int64)@_{n}); print(@_{n}); if (@_{n} > 5) {{ print(\"more\"); }}"
                ));
            }
            4 => {
                let of = ["hist(V)", "hist(V, 2)", "lhist(V, 0, 100, 10)", "lhist(V, 20, 120, 25)"];
                let of = rng.pick(&of);
                for _ in 0..rng.between(1, 6) {
                    let v = rng.between(-60, 120);
                    self.say(&format!("@_{n} = {};", of.replace('V', &v.to_string())));
                }
                self.say(&format!("print(@_{n}); clear(@_{n});"));
            }
            5 => {
                let key = key(rng);
                self.say(&format!("@_{n}[{key}] = count(); @_{n}[{key}] = count(); print(@_{n}[{key}]); printf(\"%s\\n\", @_{n}[{key}]); print((int64)@_{n}[{key}] + 1);"));
            }
            6 => {
                let (key, step) = (key_of_kind(rng, 0), rng.between(1, 9));
                let op = rng.pick(&["+=", "-=", "*=", "|=", "&=", "^="]);
                self.say(&format!("@_{n}[{key}] = (int64){step}; @_{n}[{key}]++; ++@_{n}[{key}]; @_{n}[{key}] {op} (int64){}; print(@_{n}[{key}]--); print(@_{n});", rng.between(1, 99)));
            }
            7 => {
                let (a, b) = (key_of_kind(rng, 1), key_of_kind(rng, 1));
                self.say(&format!("@_{n}[{a}] = 1; print(has_key(@_{n}, {b})); print(delete(@_{n}, {b})); print(len(@_{n})); if (delete(@_{n}, {a})) {{ print(2); }}"));
            }
            8 => {
                let v = tuple(rng, 2);
                self.say(&format!("$t{n} = {v}; print($t{n}); print($t{n}.0); print($t{n}.1); print($t{n} == {v}); print(sizeof($t{n}));"));
            }
            9 => {
                let (a, b, c) = (value(rng, 1), rng.pick(TEXTS), long(rng, 1));
                self.say(&format!("$r{n} = (x={a}, name={b}, z={c}); print($r{n}); print($r{n}.name); print($r{n}.z); @_{n}[1] = $r{n}; print(@_{n}[1].x);"));
            }
            10 => {
                let (a, b) = (rng.pick(TEXTS), rng.pick(TEXTS));
                self.say(&format!("$s{n} = {a}; print($s{n} == {b}); print({a} != {b}); print(strlen($s{n})); print(strcontains($s{n}, {b})); print(strlen({b})); "));
            }
            11 => {
                let (v, to) = (long(rng, 1), rng.pick(CASTS));
                // The value must fit into the type.
                let v = if to.starts_with("enum") { format!("({v} & (int64)65535)") } else { v };
                self.say(&format!("$c{n} = ({to}){v}; print($c{n}); print(sizeof($c{n})); printf(\"%d %s\\n\", $c{n}, $c{n}); @_{n} = $c{n}; print(@_{n});"));
            }
            12 => {
                let (a, b) = (long(rng, 1), long(rng, 1));
                self.say(&format!("print(add({a}, {b})); print(within({a})); $m{n} = {b}; print(twice($m{n})); print($m{n});"));
            }
            13 => self.format(rng),
            14 => {
                let what = [
                    "sizeof(struct S)",
                    "sizeof(struct P)",
                    "offsetof(struct S, c)",
                    "offsetof(struct P, s.d)",
                    "sizeof(enum E)",
                    "BLUE",
                    "RED + FAR",
                    "(enum E)5",
                    "(enum E)6",
                    "sizeof(BLUE)",
                    "(int64)BLUE",
                    "(BLUE, \"x\")",
                ];
                self.say(&format!("print({});", rng.pick(&what)));
            }
            15 => {
                let v = rng.between(0, 1 << 40);
                let len = rng.pick(&["8", "4", "2", ""]);
                let ty = match *len {
                    "8" | "" => "uint64",
                    "4" => "uint32",
                    _ => "uint16",
                };
                self.say(&format!("print((uint8[{len}])({ty}){v}); print(((uint8[{len}])({ty}){v})[1]); $p{n} = (int32*){v}; print($p{n} + 2); print((uint64)($p{n} + 1)); print(sizeof(*$p{n}));"));
            }
            16 => {
                let (a, b) = (long(rng, 1), truth(rng));
                self.say(&format!("$u{n} = {b} ? ({a}, \"yes\") : ((int64)0, \"no\"); print($u{n}); print({b}); print(!({b})); @_{n}[{b}] = count(); print(@_{n});"));
            }
            17..=26 => self.more(rng, n),
            27 => {
                let (from, to) = (rng.between(-2, 3), rng.between(0, 6));
                self.say(&format!("for $i{n} : ({from})..{to} {{ if ($i{n} == 2) {{ continue; }} @_{n}[$i{n}] = $i{n} * 2; print($i{n});"));
                self.statement(rng, 0);
                self.say(&format!("}} $z{n} = (int64)0; for $kv{n} : @_{n} {{ $z{n} += $kv{n}.0 + (int64)$kv{n}.1; }} print($z{n});"));
            }
            28 => {
                self.say(&format!("if ({}) {{", truth(rng)));
                self.statement(rng, depth - 1);
                self.say(&format!("}} else if ({}) {{", truth(rng)));
                self.statement(rng, 0);
                self.say("} else {");
                self.statement(rng, depth - 1);
                self.say("}");
            }
            29 => {
                let key = key(rng);
                self.say(&format!(
                    "@_{n}[{key}] = {}; for $kv{n} : @_{n} {{ print($kv{n}); print($kv{n}.0); print($kv{n}.1); }}",
                    value(rng, 1)
                ));
            }
            _ => {
                self.say(&format!("unroll({}) {{", rng.between(1, 3)));
                self.statement(rng, 0);
                self.say("}");
            }
        }
    }

    /// Adds statements that contain no other statements.
    fn more(&mut self, rng: &mut Rng, n: String) {
        match rng.below(12) {
            // Prints several entries with different values, only some of them, and divided values.
            0 | 1 => {
                let of = rng.pick(&["sum(V)", "avg(V)", "max(V)", "min(V)", "V", "stats(V)"]);
                let entries = rng.between(2, 5);
                for i in 1..=entries {
                    let key = match rng.below(2) {
                        _ if n.len().is_multiple_of(2) => format!("(int64){i}"),
                        _ => format!("\"k{i}\", (int64){}, {}", 9 - i, i > 2),
                    };
                    let v = format!("(int64){}", i * 1000 + rng.between(0, 900));
                    self.say(&format!("@_{n}[{key}] = {};", of.replace('V', &v)));
                }
                let top = rng.between(1, 5);
                self.say(&format!("print(@_{n}, {top});"));
                if *of != "stats(V)" {
                    self.say(&format!("print(@_{n}, {top}, {});", rng.pick(&["1", "3", "10", "1000"])));
                }
                self.say(&format!("print(@_{n}); {}(@_{n}); print(len(@_{n}));", rng.pick(&["clear", "clear", "print"])));
            }
            2 => {
                let of = *rng.pick(&["hist(V)", "hist(V, 1)", "lhist(V, 0, 50, 5)", "lhist(V, 10, 60, 10)"]);
                for i in 1..=rng.between(1, 3) {
                    for _ in 0..i {
                        let v = rng.between(-30, 90);
                        self.say(&format!("@_{n}[\"h{i}\"] = {};", of.replace('V', &v.to_string())));
                    }
                }
                self.say(&format!("print(@_{n}); print(@_{n}, 1); clear(@_{n});"));
            }
            3 => {
                let ty = rng.pick(&["uint8", "uint16", "uint32", "uint64", "int64"]);
                let (v, step) = (rng.between(0, 120), rng.between(1, 200));
                self.say(&format!("let $v{n}: {ty} = {v}; $v{n}++; print($v{n}); $v{n} += {step}; print($v{n}); ++$v{n}; print($v{n}--); print(sizeof($v{n})); @_{n} = $v{n}; print(@_{n}); print(($v{n}, $v{n} > 100));"));
            }
            4 => {
                let (a, b, c) = (value(rng, 1), long(rng, 0), rng.pick(TEXTS));
                self.say(&format!("$r{n} = (p=({a}, {b}), q=(s={c}, t={b})); print($r{n}); print($r{n}.p); print($r{n}.p.1); print($r{n}.q.s); print(sizeof($r{n}.q)); @_{n}[$r{n}.q.t] = $r{n}; print(@_{n});"));
            }
            5 => {
                // The keys have no spaces, because bpftrace removes them in JSON.
                let (a, b, c) = (rng.pick(&["\"ab\"", "\"50%\"", "\"a\\tb\""]), rng.pick(TEXTS), rng.pick(TEXTS));
                self.say(&format!("$s{n} = {a}; if ($s{n} == {b}) {{ print(\"same\"); }} @_{n}[$s{n}] = {c}; print(@_{n}[$s{n}]); print(@_{n}[$s{n}] == {c}); print(strcontains(@_{n}[{a}], {b})); print(strlen(@_{n}[{a}])); print(@_{n});"));
            }
            6 => {
                let (v, ty) = (rng.between(0, 1 << 31), rng.pick(&["uint16", "uint32", "uint64"]));
                self.say(&format!("print(bswap(({ty}){v})); print(ntop((uint32){v})); print(syscall_name({})); print(signal_name({})); print(strerror({}));", v % 330, 1 + v % 31, 1 + v % 40));
            }
            7 => {
                let (key, v) = (key(rng), value(rng, 1));
                // A key of several parts has no parentheses yet.
                let one = if key.ends_with('"') && key.contains(", ") { format!("({key})") } else { key.clone() };
                self.say(&format!("@_{n}[{key}] = {v}; print(@_{n}); zero(@_{n}); print(@_{n}[{key}]); print(@_{n}); delete(@_{n}, {one}); print(len(@_{n})); clear(@_{n});"));
            }
            8 => {
                let (from, to, stop) = (rng.between(0, 3), rng.between(2, 6), rng.between(0, 4));
                self.say(&format!("$n{n} = (int64)0; for $i{n} : {from}..{to} {{ for $j{n} : 0..3 {{ if ($j{n} == {stop}) {{ break; }} $n{n} += $i{n} * $j{n}; }} @_{n}[$i{n} % 2] = count(); }} print($n{n}); print(len(@_{n}));"));
            }
            9 => {
                let limit = rng.between(1, 6);
                self.say(&format!("$w{n} = (uint64)0; while ($w{n} < {limit}) {{ $w{n}++; if ($w{n} == 3) {{ continue; }} print($w{n}); if ($w{n} == 5) {{ break; }} }}"));
            }
            10 => {
                let (a, b) = (tuple(rng, 1), rng.pick(CASTS));
                self.say(&format!("let $t{n}: typeof({a}); $t{n} = {a}; print($t{n}); $e{n} = ({b}){}; print(($e{n}, \"x\")); print(sizeof(typeof($e{n})));", rng.between(0, 5)));
            }
            _ => {
                let (a, b, c) = (truth(rng), truth(rng), truth(rng));
                self.say(&format!("$b{n} = {a} && {b} || !{c}; print($b{n}); @_{n}[$b{n}, {a}] = sum((int64)5); print(@_{n}); print((uint8)$b{n} + 1); print($b{n} ? (uint64)1 : (uint64)2);"));
            }
        }
    }

    fn format(&mut self, rng: &mut Rng) {
        let (mut spec, mut args) = (String::new(), String::new());
        for _ in 0..rng.between(1, 4) {
            // Values with parts have no width, because bpftrace would pad the bracket, or exit.
            let mut width = *rng.pick(&["", "3", "12", "-12", "-4"]);
            let (conversion, arg) = match rng.below(13) {
                0 => ("s", rng.pick(TEXTS).to_string()),
                1 => ("s", long(rng, 1)),
                2 => {
                    width = "";
                    ("s", tuple(rng, 1))
                }
                3 => ("d", long(rng, 1)),
                4 => ("lld", long(rng, 1)),
                5 => ("s", truth(rng)),
                6 => ("x", format!("(uint64){}", rng.between(0, 1 << 33))),
                7 => ("s", rng.pick(&["BLUE", "(enum E)1", "(int64)RED", "(uint8*)5", "buf(\"ab\", 2)"]).to_string()),
                8 => {
                    width = "";
                    // An array must be the first argument, because bpftrace prints wrong bytes of an array after an odd number of
                    // bytes.
                    let arrays = ["(uint8[2])(uint16)513", "(uint8[4])(uint32)70000"];
                    ("s", if args.is_empty() { rng.pick(&arrays).to_string() } else { "8".into() })
                }
                9 => (*rng.pick(&["i", "u", "o", "X", "lu", "lx", "hd", "hhu", "hx"]), format!("(uint64){}", rng.between(0, 100_000))),
                10 => (
                    *rng.pick(&["hhd", "hd", "d", "ld", "i"]),
                    format!("({}){}", rng.pick(&["int8", "int16", "int32"]), rng.between(-128, 127)),
                ),
                11 => {
                    width = *rng.pick(&["+", "#", "08", "-6", "02"]);
                    (if width == "#" { "x" } else { "d" }, format!("(int64){}", rng.between(0, 5000)))
                }
                _ => (
                    *rng.pick(&["r", "rx", "rh"]),
                    format!("buf({}, {})", rng.pick(&["\"abcdef\"", "\"x\\ty\"", "\"q\\\"z\""]), rng.between(1, 3)),
                ),
            };
            let _ = write!(spec, "[%{width}{conversion}]");
            let _ = write!(args, ", {arg}");
        }
        self.say(&format!("printf(\"{spec}\\n\"{args});"));
    }
}

/// Generates a key that is an 8-byte number, a string, or a sequence of several parts.
fn key(rng: &mut Rng) -> String {
    let kind = rng.below(4);
    key_of_kind(rng, kind)
}

fn key_of_kind(rng: &mut Rng, kind: usize) -> String {
    let number = |rng: &mut Rng| format!("(int64){}", rng.between(-3, 3));
    match kind {
        0 => number(rng),
        1 => rng.pick(&["\"a\"", "\"bc\"", "\"some\"", "\"\""]).to_string(),
        2 => format!("{}, {}", number(rng), rng.pick(&["\"a\"", "\"bc\""])),
        _ => format!("({}, ({}, true))", number(rng), number(rng)),
    }
}

fn long(rng: &mut Rng, depth: usize) -> String {
    if depth == 0 || rng.once_in(2) {
        return format!("(int64){}", rng.between(-300, 70000));
    }
    format!("({} {} {})", long(rng, depth - 1), rng.pick(&["+", "-", "*", "&", "|", "^"]), long(rng, depth - 1))
}

fn truth(rng: &mut Rng) -> String {
    match rng.below(3) {
        0 => format!("({} {} {})", long(rng, 1), rng.pick(&["==", "<", ">=", "!="]), long(rng, 0)),
        1 => format!("({} == {})", tuple_of(rng, true), tuple_of(rng, true)),
        _ => rng.pick(&["true", "false"]).to_string(),
    }
}

fn tuple(rng: &mut Rng, depth: usize) -> String {
    format!("({}, {})", value(rng, depth - 1), value(rng, depth - 1))
}

fn tuple_of(rng: &mut Rng, flag: bool) -> String {
    format!("((int64){}, {flag})", rng.between(0, 2))
}

fn value(rng: &mut Rng, depth: usize) -> String {
    match rng.below(if depth == 0 { 4 } else { 6 }) {
        0 | 1 => long(rng, depth),
        2 => rng.pick(TEXTS).to_string(),
        3 => rng.pick(&["true", "false", "BLUE", "(uint8)7", "(int16)-9", "300"]).to_string(),
        4 => tuple(rng, depth),
        _ => format!("({}, {}, {})", long(rng, 0), rng.pick(TEXTS), value(rng, depth - 1)),
    }
}
