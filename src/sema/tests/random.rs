//! Scripts that no person writes.

use super::*;
use crate::random::Random;

/// Scripts assembled from pieces at random (always the same): accepted ones keep the guarantee, and nothing panics.
#[test]
fn random_scripts_do_not_panic() {
    const EXPRS: &[&str] = &[
        "1",
        "-1",
        "0",
        "300",
        "\"a\"",
        "comm",
        "pid",
        "nsecs",
        "$x",
        "$y",
        "$t",
        "@a",
        "@b[E]",
        "@c",
        "@d[E]",
        "curtask",
        "args",
        "args.prev_pid",
        "args.prev_comm",
        "curtask.E",
        "E.tgid",
        "E.comm",
        "E[E]",
        "E.0",
        "(E, E)",
        "(E + E)",
        "(E - E)",
        "(E * E)",
        "(E / E)",
        "(E == E)",
        "(E < E)",
        "(E && E)",
        "!E",
        "-E",
        "~E",
        "*E",
        "&$x",
        "&@a",
        "(E ? E : E)",
        "(E ?: E)",
        "(uint8)E",
        "(struct task_struct *)E",
        "(bool)E",
        "(int8[4])E",
        "sizeof(E)",
        "str(E)",
        "$x++",
        "--@a",
        "@b[E]++",
        "@c",
        "retval",
        "len(@b)",
        "has_key(@b, E)",
        "{ $z = E; $z }",
        "if E { E } else { E }",
        "delete(@b, E)",
        "(E >> E)",
        "(E ^ E)",
        "true",
        "count()",
        "print(E)",
        "$1",
        "$kv",
        "$i",
        "(enum state)E",
        "*curtask",
        "curtask.in",
        "curtask.in.bytes",
    ];
    const STMTS: &[&str] = &[
        "$x = E;",
        "$y = E;",
        "$t = E;",
        "let $x = E;",
        "let $y: uint16 = E;",
        "let $t: string;",
        "@a = E;",
        "@b[E] = E;",
        "@c = count();",
        "@c = sum(E);",
        "@d[E] = hist(E);",
        "@d[E] = count();",
        "@a += E;",
        "@b[E] -= E;",
        "$x *= E;",
        "E;",
        "print(E);",
        "print(@b);",
        "print(@b[E]);",
        "delete(@b[E]);",
        "delete(@a);",
        "clear(@c);",
        "printf(\"%d %s\", E, E);",
        "if E { S } else { S }",
        "if (E) { S S }",
        "unroll(2) { S }",
        "while (E) { S break; }",
        "for $i : 0..E { S }",
        "for ($kv : @b) { S }",
        "exit();",
        "return E;",
        "{ S S }",
        "_ = E;",
        "@a++;",
        "E ? S : E;",
    ];
    fn grow(piece: &str, depth: u32, next: &mut dyn FnMut(usize) -> usize, to: &mut String) {
        for c in piece.chars() {
            let more: &str = match c {
                'E' if depth == 0 => ["1", "pid", "$x", "@a", "comm"][next(5)],
                'E' => EXPRS[next(EXPRS.len())],
                'S' if depth == 0 => "@a = 1;",
                'S' => STMTS[next(STMTS.len())],
                c => {
                    to.push(c);
                    continue;
                }
            };
            grow(more, depth.saturating_sub(1), next, to);
        }
    }
    let mut numbers = Random::new(0x2545_F491_4F6C_DD1D);
    let mut next = |below: usize| numbers.below(below);
    let (mut parsed, mut passed) = (0, 0);
    let sys = Fake::new(MACHINE).unwrap();
    for round in 0..1500 {
        let shape = [
            "begin { $x = pid; $y = E; $t = (1, \"a\"); @a = 1; @b[1] = 2; @c = count(); S S }",
            "tracepoint:sched:sched_switch /E/ { $x = 1; $y = comm; $t = 1; S S } end { @a = nsecs; @b[pid] = E; @d[1] = count(); @c = sum(1); }",
            "begin { S S S } end { S }",
        ][round % 3];
        let mut text = String::new();
        grow(shape, 1 + (round % 4) as u32, &mut next, &mut text);
        let Ok(script) = crate::syntax::parse(&Source { name: "t".into(), text: text.clone() }) else { continue };
        parsed += 1;
        if let Ok((script, _)) = check_with(&script, &Env::new(&sys, &Settings::default()), &TABLES, &[]) {
            passed += 1;
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| promise::holds(&script))).is_err() {
                panic!("{text}\n{}", dump(&script));
            }
        }
    }
    assert!(parsed > 500 && passed > 50, "{parsed} parsed, {passed} passed");
}

#[test]
fn tall_trees_fit_the_stack() {
    let sum = vec!["pid"; 450].join(" + ");
    good(&format!("begin {{ @ = {sum}; }}"));
    let deep = format!("{}pid{}", "(".repeat(90), ")".repeat(90));
    good(&format!("begin {{ @ = {deep}; }}"));
    let ifs = format!("{}exit();{}", "if pid { ".repeat(90), " }".repeat(90));
    good(&format!("begin {{ {ifs} }}"));
}
