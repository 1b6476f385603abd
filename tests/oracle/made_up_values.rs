//! Random statements with maps, aggregations, tuples, records, strings, enums, macros, casts, loops and formats. They avoid
//! deliberate differences, such as the order of entries with equal values. Names of maps begin with `@_`, which
//! `batch` replaces by a prefix for each row.

use super::rng::Rng;
use super::row::Row;
use std::fmt::Write as _;

/// C declarations that the statements use; on one line, because messages are assigned to rows by line.
pub const DECLARATIONS: &str = "struct S { int a; unsigned char b; short c; long d; char e[4]; }; struct P { struct S s; struct S *p; int n[3]; }; \
                                enum E { RED = 1, BLUE = 5, FAR = 70000 };";
/// Macros that the statements use.
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
        match rng.below(if depth == 0 { 17 } else { 21 }) {
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
                let (of, a, b) = (rng.pick(&of), long(rng, 1), long(rng, 1));
                self.say(&format!("@_{n}[{key}] = {of}({a}); @_{n}[{key}] = {of}({b}); print(@_{n}[{key}]); print(@_{n}); @_{n}[{other}] = {of}({b}); print(len(@_{n}));"));
            }
            3 => {
                let (of, a, b) = (rng.pick(&["sum", "min", "max", "avg"]), long(rng, 1), long(rng, 1));
                self.say(&format!(
                    "@_{n} = {of}({a}); @_{n} = {of}({b}); print((int64)@_{n}); print(@_{n}); if (@_{n} > 5) {{ print(\"more\"); }}"
                ));
            }
            4 => {
                let of = ["hist(V)", "hist(V, 2)", "lhist(V, 0, 100, 10)", "lhist(V, -50, 50, 25)"];
                let of = rng.pick(&of);
                for _ in 0..rng.between(1, 6) {
                    let v = rng.between(-60, 120);
                    self.say(&format!("@_{n} = {};", of.replace('V', &v.to_string())));
                }
                self.say(&format!("print(@_{n}); clear(@_{n});"));
            }
            5 => {
                let key = key(rng);
                self.say(&format!("@_{n}[{key}] = count(); @_{n}[{key}] = count(); print(@_{n}[{key}]); printf(\"%d\\n\", @_{n}[{key}]); print((int64)@_{n}[{key}] + 1);"));
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
                self.say(&format!("$s{n} = {a}; print($s{n} == {b}); print({a} != {b}); print(strlen($s{n})); print(strcontains($s{n}, {b})); print(strlen({b})); print(strncmp($s{n}, {b}, {}));", rng.between(1, 4)));
            }
            11 => {
                let v = long(rng, 1);
                let to = rng.pick(CASTS);
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
                    "sizeof(((struct S*)0)->e)",
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
            17 => {
                let (from, to) = (rng.between(-2, 3), rng.between(0, 6));
                self.say(&format!("for $i{n} : {from}..{to} {{ if ($i{n} == 2) {{ continue; }} @_{n}[$i{n}] = $i{n} * 2; print($i{n});"));
                self.statement(rng, 0);
                self.say(&format!("}} $z{n} = (int64)0; for $kv{n} : @_{n} {{ $z{n} += $kv{n}.0 + (int64)$kv{n}.1; }} print($z{n});"));
            }
            18 => {
                self.say(&format!("if ({}) {{", truth(rng)));
                self.statement(rng, depth - 1);
                self.say(&format!("}} else if ({}) {{", truth(rng)));
                self.statement(rng, 0);
                self.say("} else {");
                self.statement(rng, depth - 1);
                self.say("}");
            }
            19 => {
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

    fn format(&mut self, rng: &mut Rng) {
        let (mut spec, mut args) = (String::new(), String::new());
        for _ in 0..rng.between(1, 4) {
            let width = rng.pick(&["", "3", "12", "-12", "-4"]);
            let (conversion, arg) = match rng.below(8) {
                0 => ("s", rng.pick(TEXTS).to_string()),
                1 => ("s", long(rng, 1)),
                2 => ("s", tuple(rng, 1)),
                3 => ("d", long(rng, 1)),
                4 => ("lld", long(rng, 1)),
                5 => ("s", truth(rng)),
                6 => ("x", format!("(uint64){}", rng.between(0, 1 << 33))),
                _ => ("s", rng.pick(&["BLUE", "(enum E)1", "(uint8[2])(uint16)513", "(int64)RED"]).to_string()),
            };
            let _ = write!(spec, "[%{width}{conversion}]");
            let _ = write!(args, ", {arg}");
        }
        self.say(&format!("printf(\"{spec}\\n\"{args});"));
    }
}

/// A key of 8 bytes, of text, or of several parts.
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
