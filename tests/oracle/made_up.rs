//! Statements made up at random. They keep to what is the same on purpose: numbers have a type of their own, nothing negative
//! is divided or shifted to the right.

use super::rng::Rng;
use super::row::Row;

pub fn rows(n: u64, first: u64) -> Vec<Row> {
    (first..first + n).map(|seed| Row::statements(format!("seed {seed}"), statements(&mut Rng::new(seed)))).collect()
}

const TYPES: &[&str] = &["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"];
const TEXTS: &[&str] = &["\"\"", "\"a\"", "\"some text\"", "\"50%\"", "\"a\\tb\"", "\"quoted \\\"x\\\"\""];
const FORMATS: &[&str] = &["%d", "%5d", "%-5d|", "%05d", "%x", "%X", "%#x", "%o", "%u", "%ld", "%llx", "%c"];
const SPELLINGS: &[&str] = &["%s", "%10s", "%-10s|", "%3s"];

fn statements(rng: &mut Rng) -> String {
    let mut text = format!("$a = (int64){}; $b = (uint64){}; ", rng.between(-1000, 1000), rng.between(0, 1 << 40));
    for _ in 0..rng.between(1, 3) {
        text.push_str(&statement(rng, 2));
    }
    text
}

fn statement(rng: &mut Rng, depth: usize) -> String {
    match rng.below(if depth == 0 { 5 } else { 9 }) {
        0 | 1 => format!("print({}); ", number(rng, 3)),
        2 => format!("printf(\"{} {}\\n\", {}, {}); ", rng.pick(FORMATS), rng.pick(SPELLINGS), letter(rng), rng.pick(TEXTS)),
        3 => format!("print(({}, {}, {})); ", number(rng, 1), rng.pick(TEXTS), truth(rng, 1)),
        4 => format!("print({}); ", truth(rng, 2)),
        5 => format!("if ({}) {{ {}}} else {{ {}}} ", truth(rng, 1), statement(rng, depth - 1), statement(rng, depth - 1)),
        6 => format!("for $i : 0..{} {{ $a += $i; {}}} ", rng.between(1, 4), statement(rng, depth - 1)),
        7 => format!("$a {} (int64){}; print($a); ", rng.pick(&["=", "+=", "-=", "*=", "|=", "&=", "^="]), number(rng, 1)),
        _ => format!("print({} ? {} : {}); ", truth(rng, 1), rng.pick(TEXTS), rng.pick(TEXTS)),
    }
}

/// What `%c` may print, too.
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

/// One of 64 bits with a sign.
fn number(rng: &mut Rng, depth: usize) -> String {
    if depth == 0 || rng.once_in(4) {
        return if rng.once_in(2) { "$a".into() } else { format!("(int64){}", rng.between(-70000, 70000)) };
    }
    let inner = number(rng, depth - 1);
    match rng.below(5) {
        0 => format!("(int64)({})({inner})", rng.pick(TYPES)),
        1 => format!("(int64)(((uint64)({inner})) {} {})", rng.pick(&["/", "%", ">>"]), rng.between(1, 60)),
        2 => format!("({inner} << {})", rng.between(0, 20)),
        3 => format!("(int64)({} ? {inner} : {})", truth(rng, 0), number(rng, depth - 1)),
        _ => format!("({inner} {} {})", rng.pick(&["+", "-", "*", "&", "|", "^"]), number(rng, depth - 1)),
    }
}
