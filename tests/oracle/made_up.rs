//! Generates random statements with numbers of every width and signedness, with and without declarations. They avoid deliberate
//! differences. Signed numbers are not divided or shifted to the right. Among variables of 1, 2 and 4 bytes, only unsigned ones
//! are printed after `-` or `~`.

use super::rng::Rng;
use super::row::Row;
use std::fmt::Write as _;

pub fn rows(n: u64, first: u64) -> Vec<Row> {
    (first..first + n).map(|seed| Row::statements(format!("seed {seed}"), statements(&mut Rng::new(seed)))).collect()
}

const TYPES: &[&str] = &["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"];
const TEXTS: &[&str] = &["\"\"", "\"a\"", "\"some text\"", "\"50%\"", "\"a\\tb\"", "\"quoted \\\"x\\\"\""];
const FORMATS: &[&str] = &["%d", "%5d", "%-5d|", "%05d", "%x", "%X", "%#x", "%o", "%u", "%ld", "%llx", "%c"];
const WIDE: &[&str] = &["%d", "%u", "%x", "%ld", "%lu", "%lx", "%lld", "%llu", "%hhd", "%hu"];
const SPELLINGS: &[&str] = &["%s", "%10s", "%-10s|", "%3s"];

fn statements(rng: &mut Rng) -> String {
    let mut text = format!("$a = (int64){}; $b = (uint64){}; ", rng.between(-1000, 1000), rng.between(0, 1 << 40));
    for (name, ty) in TYPED {
        let _ = write!(text, "{name} = ({ty}){}; ", literal(rng));
    }
    let _ = write!(text, "$l = {}; $m = {}; $m = {}; ", literal(rng), literal(rng), literal(rng));
    for _ in 0..rng.between(1, 3) {
        text.push_str(&statement(rng, 2));
    }
    text
}

/// Variables of 1, 2 and 4 bytes, or with the types of their literals if they are not declared.
const TYPED: &[(&str, &str)] = &[("$s", "int8"), ("$u", "uint8"), ("$t", "int16"), ("$v", "uint16"), ("$w", "uint32"), ("$x", "int32")];
const LITERALS: &[&str] =
    &["0", "1", "127", "128", "255", "256", "32767", "65535", "65536", "2147483647", "4294967295", "-1", "-128", "-129"];

fn statement(rng: &mut Rng, depth: usize) -> String {
    match rng.below(if depth == 0 { 8 } else { 12 }) {
        0 | 1 => format!("print({}); ", number(rng, 3)),
        8 => format!("print(({}{}, {})); ", rng.pick(&["-", "~"]), rng.pick(&["$b", "$u", "$v", "$w"]), number(rng, 1)),
        9 => format!("print(sizeof({})); ", number(rng, 2)),
        10 => format!("printf(\"{} {}\\n\", {}, {}); ", rng.pick(WIDE), rng.pick(WIDE), number(rng, 2), number(rng, 1)),
        11 => format!("$y = {}; $y = {}; print(($y, {}, sizeof($y))); ", number(rng, 1), number(rng, 1), number(rng, 0)),
        2 => format!("printf(\"{} {}\\n\", {}, {}); ", rng.pick(FORMATS), rng.pick(SPELLINGS), letter(rng), rng.pick(TEXTS)),
        3 => format!("print(({}, {}, {})); ", number(rng, 1), rng.pick(TEXTS), truth(rng, 1)),
        4 => format!("print({}); ", truth(rng, 2)),
        5 if depth > 0 => format!("if ({}) {{ {}}} else {{ {}}} ", truth(rng, 1), statement(rng, depth - 1), statement(rng, depth - 1)),
        6 if depth > 0 => format!("for $i{depth} : 0..{} {{ $a += $i{depth}; {}}} ", rng.between(1, 4), statement(rng, depth - 1)),
        7 => format!("$a {} (int64)({}); print($a); ", rng.pick(&["=", "+=", "-=", "*=", "|=", "&=", "^="]), number(rng, 1)),
        _ => format!("print({} ? {} : {}); ", truth(rng, 1), rng.pick(TEXTS), rng.pick(TEXTS)),
    }
}

/// Generates a number that `%c` can print, too.
fn letter(rng: &mut Rng) -> String {
    format!("(int64){}", rng.between(33, 126))
}

fn truth(rng: &mut Rng, depth: usize) -> String {
    match rng.below(if depth == 0 { 1 } else { 4 }) {
        0 | 1 => format!("({} {} {})", number(rng, 1), rng.pick(&["==", "!=", "<", ">", "<=", ">="]), number(rng, 1)),
        2 => format!("({} {} {})", truth(rng, depth - 1), rng.pick(&["&&", "||"]), truth(rng, depth - 1)),
        _ => format!("!{}", truth(rng, depth - 1)),
    }
}

fn literal(rng: &mut Rng) -> String {
    if rng.once_in(2) { rng.pick(LITERALS).to_string() } else { rng.between(-70000, 70000).to_string() }
}

/// Generates an expression that is a single number.
fn plain(rng: &mut Rng) -> String {
    match rng.below(5) {
        0 => "$a".into(),
        1 => format!("(int64){}", rng.between(-70000, 70000)),
        2 => rng.pick(TYPED).0.into(),
        3 => rng.pick(&["$l", "$m", "$b"]).to_string(),
        _ => literal(rng),
    }
}

fn number(rng: &mut Rng, depth: usize) -> String {
    if depth == 0 || rng.once_in(4) {
        return plain(rng);
    }
    let inner = number(rng, depth - 1);
    match rng.below(7) {
        5 => format!("({}$b)", rng.pick(&["-", "~"])),
        6 => format!("({} ? {inner} : {})", truth(rng, 0), number(rng, depth - 1)),
        0 => format!("(int64)({})({inner})", rng.pick(TYPES)),
        1 => format!("(int64)(((uint64)({inner})) {} {})", rng.pick(&["/", "%", ">>"]), rng.between(1, 60)),
        2 => format!("({inner} << {})", rng.between(0, 20)),
        3 => format!("(int64)({} ? {inner} : {})", truth(rng, 0), number(rng, depth - 1)),
        _ => format!("({inner} {} {})", rng.pick(&["+", "-", "*", "&", "|", "^"]), number(rng, depth - 1)),
    }
}
