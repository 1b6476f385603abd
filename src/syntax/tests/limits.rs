//! Nesting, length and malformed text: the parser quickly returns a diagnostic or a tree, and never panics.

use super::*;
use crate::random::Random;
use std::time::{Duration, Instant};

fn code(text: &str) -> &'static str {
    match parse(&source(text)) {
        Ok(_) => "",
        Err(diags) => diags.0.first().map_or("none", |d| d.code),
    }
}

/// Nests a seed in pairs of texts.
fn nest(open: &str, seed: &str, close: &str, times: usize) -> String {
    format!("begin {{ {}{seed}{} }}", open.repeat(times), close.repeat(times))
}

const NESTS: &[(&str, &str, &str)] = &[
    ("(", "1", ")"),
    ("(x=", "1", ")"),
    ("(1, ", "1", ")"),
    ("f(", "1", ")"),
    ("@a[", "1", "]"),
    ("$x[", "1", "]"),
    ("(uint8)(", "1", ")"),
    ("(typeof(", "x", "))y"),
    ("typeof(x)[", "1", "]"),
    ("sizeof(", "x", ")"),
    ("{ ", "1", " }"),
    ("if 1 { ", "1", " }"),
    ("if 1 { 1 } else { ", "1", " }"),
    ("if ", "1", " { }"),
    ("while 1 { ", "1", " }"),
    ("for $i : 1..2 { ", "1", " }"),
    ("$x = { ", "1", " }"),
    ("1 ? ", "1", " : 2"),
    ("comptime (", "1", ")"),
    ("let $x: (", "x", ")"),
];

#[test]
fn nesting_is_linear_and_bounded() {
    let start = Instant::now();
    for (open, seed, close) in NESTS {
        // The same with an error at the core, for which all alternatives fail.
        for core in [*seed, ";", "+", ")", "\"", "@", "1 1"] {
            assert_ne!(code(&nest(open, core, close, 45)), "too-deep", "{open} {core}");
            assert_eq!(code(&nest(open, core, close, 10_000)), "too-deep", "{open} {core}");
        }
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(code(&nest("(", "1", ")", 50)), "");
    assert_eq!(code(&nest("{", "1", "}", 90)), "");
}

#[test]
fn length_is_linear_and_height_bounded() {
    for (unit, seed) in [
        ("1 + ", "1"),
        ("!", "1"),
        ("- ", "1"),
        ("*", "1"),
        ("(uint8)", "1"),
        ("1 ? 2 : ", "3"),
        ("comptime ", "1"),
        ("if 1 { } else ", "{ }"),
    ] {
        assert_eq!(code(&nest(unit, seed, "", 100)), "", "{unit}");
        assert_eq!(code(&nest(unit, seed, "", 20_000)), "too-deep", "{unit}");
    }
    for tail in [".a", "->a", ".0", "[1]"] {
        assert_eq!(code(&nest("", "$x", tail, 100)), "", "{tail}");
        assert_eq!(code(&nest("", "$x", tail, 20_000)), "too-deep", "{tail}");
    }
    for (before, tail) in [("let $a : int32", "[1]"), ("let $a : int32", "*"), ("$a = sizeof(int32", "*")] {
        let close = if before.contains('(') { ")" } else { "" };
        assert_eq!(code(&format!("begin {{ {before}{}{close} }}", tail.repeat(100))), "", "{before}{tail}");
        assert_eq!(code(&format!("begin {{ {before}{}{close} }}", tail.repeat(20_000))), "too-deep", "{before}{tail}");
    }
    assert_eq!(code(&nest("f(1); ", "", "", 20_000)), "");
    assert_eq!(code(&format!("begin {{ f({}1) }}", "1, ".repeat(20_000))), "");
}

const SEEDS: &[&str] = &[
    "#!/x\n#include <a.h>\nstruct a { int x[4]; } __attribute__((packed));\nconfig = { a = 1; b = \"x\" }\nimport \"y\";\nbegin { }",
    "let @m = lruhash(10);\nmacro add(x, $v, @m) { $v + x }\nfn sq($a : uint64) : uint64 { return $a * $a; }",
    "kprobe:f,uprobe:/bin/b*:\"a b\"+4 , x=k:$1 /pid == 1 && @a[tid, 2] / 2 > 1/ { printf(\"%d\\n\\x41\", $x.a->b.0[1]); }",
    "begin { let $x: struct a * = (struct a *)$y; if ($x) { $x++ } else if !$y { --@b } else { _ = f(); } }",
    "t:a:b { for ($i : 0..5) { continue; } for $k : @m { break } while (1) { return } unroll(3) { f() } /* c */ } // d",
    "i:s:1/1/{ @[kstack, (1, 2,), (x=1, y=(uint8[4])2)] = count(); $a ? 1 : $b ?: 3; sizeof(uint8*), 1 }",
    "begin { $x = { 1; comptime 2 }; offsetof(struct x, a.b); typeof(x); typeinfo(3ms); $x <<= 0xff - 017 * 1e3 }",
];
const SCRAPS: &[&str] = &[
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "\"",
    "/*",
    "*/",
    "//",
    "\\",
    ";",
    ":",
    ",",
    "$",
    "@",
    "#",
    "?",
    "=",
    "/",
    " / ",
    "\n",
    "if ",
    "else ",
    "é",
    "\u{1F600}",
    "\0",
    "..",
    "->",
    ".",
    "0x",
    "99999999999999999999",
    "struct ",
    "(uint8)",
    "typeof(",
    "for ",
    "1",
];

#[test]
fn mutated_scripts_never_panic() {
    let start = Instant::now();
    let mut random = Random::new(0x2545_F491_4F6C_DD1D);
    let mut accepted = 0;
    for round in 0..2_500 {
        let mut text: Vec<char> = SEEDS[round % SEEDS.len()].chars().collect();
        for _ in 0..=random.below(4) {
            let at = random.below(text.len() + 1);
            match random.below(4) {
                0 => drop(text.drain(at..(at + random.below(6)).min(text.len()))),
                1 => drop(text.splice(at..at, SCRAPS[random.below(SCRAPS.len())].chars())),
                2 => text.truncate(at.max(text.len() / 2)),
                _ => {
                    let other: Vec<char> = SEEDS[random.below(SEEDS.len())].chars().collect();
                    let from = random.below(other.len());
                    let to = (from + random.below(20)).min(other.len());
                    drop(text.splice(at..at, other[from..to].iter().copied()));
                }
            }
        }
        let source = source(&text.iter().collect::<String>());
        match parse(&source) {
            Ok(_) => accepted += 1,
            Err(diags) => {
                assert!(diags.failed(), "{}", source.text);
                for d in &diags.0 {
                    let (from, to) = (d.span.start as usize, d.span.end as usize);
                    assert!(from <= to && source.text.get(from..to).is_some(), "{d:?} of {:?}", source.text);
                }
                let text = crate::diag::render(&diags, &[source], false);
                assert!(text.contains("error["), "{text}");
            }
        }
        if start.elapsed() > Duration::from_secs(120) {
            panic!("too slow: {round} rounds");
        }
    }
    assert!(accepted > 100, "{accepted}");
}
