use super::*;

#[test]
fn attach_points() {
    assert_eq!(points("begin { }"), ["begin"]);
    assert_eq!(points("BEGIN{}"), ["BEGIN"]);
    assert_eq!(points("kprobe:f, kretprobe:g,\n  t:a:b , { }"), ["kprobe|f", "kretprobe|g", "t|a|b"]);
    assert_eq!(points("uprobe:/bin/bash:readline /pid == 1/ { }"), ["uprobe|/bin/bash|readline"]);
    assert_eq!(points("uprobe:/usr/lib/*:malloc { }"), ["uprobe|/usr/lib/*|malloc"]);
    assert_eq!(points("uprobe:./a.out:main+0x10 { }"), ["uprobe|./a.out|main+0x10"]);
    assert_eq!(points("u:/bin/x@main.c:12 { }"), ["u|/bin/x@main.c|12"]);
    assert_eq!(points(r#"uprobe:/bin/x:cpp:"ns::f(int, char)" { }"#), ["uprobe|/bin/x|cpp|'ns::f(int, char)'"]);
    assert_eq!(points(r#"uprobe:"/a b/{x}":f { }"#), ["uprobe|'/a b/{x}'|f"]);
    assert_eq!(points("usdt:/bin/x::name { }"), ["usdt|/bin/x||name"]);
    assert_eq!(points("x=begin { }"), ["x=begin"]);
    assert_eq!(points("x = kprobe:f { }"), ["x=kprobe|f"]);
    assert_eq!(points("interval:ms:$1 { }"), ["interval|ms|$1"]);
    assert_eq!(points("interval:100ms { }"), ["interval|100ms"]);
    assert_eq!(points("$1:$2 { }"), ["$1|$2"]);
    assert_eq!(points("kprobe:vfs_[rw]*,*ware:* { }"), ["kprobe|vfs_[rw]*", "*ware|*"]);
    assert_eq!(points("watchpoint:0x1000:8:rw { }"), ["watchpoint|0x1000|8|rw"]);
    assert_eq!(points("software:page-faults:1{}"), ["software|page-faults|1"]);
    assert_eq!(points("interval:s:1 // one\n{ }"), ["interval|s|1"]);
}

fn predicate(text: &str) -> String {
    probe(text).predicate.as_ref().map_or_else(String::new, show)
}

#[test]
fn predicates() {
    assert_eq!(predicate("kprobe:f /pid == 1/ { }"), "(pid == 1)");
    assert_eq!(predicate("kprobe:f / arg0 / 2 > 1 /{ }"), "((arg0 / 2) > 1)");
    assert_eq!(predicate("kprobe:f\n/comm == \"a/b {\"/ // why\n{ }"), "(comm == \"a/b {\")");
    assert_eq!(predicate("kprobe:f /@a[tid]/ /* c */ { }"), "@a{tid}");
    assert_eq!(predicate("interval:s:1/1/{}"), "1");
    assert_eq!(points("interval:s:1/1/{}"), ["interval|s|1"]);
    assert_eq!(predicate("interval:s:1/pid == 1/ {}"), "(pid == 1)");
    assert_eq!(predicate("uprobe:/bin/bash:readline/pid==1/{}"), "(pid == 1)");
    assert_eq!(points("k:a,uprobe:/bin/bash:readline/pid==1/{}"), ["k|a", "uprobe|/bin/bash|readline"]);
    assert_eq!(predicate("begin/1/{}"), "1");
    assert_eq!(predicate("k:a,k:b, /1/ {}"), "1");
    assert_eq!(predicate("k:f /(x) / 2/ {}"), "(x / 2)");
}

#[test]
fn statements() {
    assert_eq!(
        body("$x = 1; $x += 2; @a[1] <<= 3; $y >>= 1; $z %= 2; $z ^= 2"),
        "{$x = 1; $x += 2; @a{1} <<= 3; $y >>= 1; $z %= 2; $z ^= 2;}"
    );
    assert_eq!(body("$x -= 1; $x *= 1; $x /= 1; $x &= 1; $x |= 1;"), "{$x -= 1; $x *= 1; $x /= 1; $x &= 1; $x |= 1;}");
    assert_eq!(body("_ = f();"), "{_ = f();}");
    assert_eq!(
        body("let $x; let $x: uint8; let $x : struct a * = $y; let $z: string[16] = \"\";"),
        "{let $x; let $x: uint8; let $x: struct a* = $y; let $z: string[16] = \"\";}"
    );
    assert_eq!(body("let $t: (uint8, typeof($x)*[4]);"), "{let $t: (uint8, typeof($x)*[4]);}");
    assert_eq!(body("while ($x < 3) { $x++ } f()"), "{while ($x < 3) {($x++)}; f()}");
    assert_eq!(body("for ($i : 0..5) { f() }"), "{for $i : 0..5 {f()};}");
    assert_eq!(body("for $i : $a.b..($x + 1) { break; continue }"), "{for $i : $a.b..($x + 1) {break; continue;};}");
    assert_eq!(body("for ($kv : @m) { print($kv.0) } "), "{for $kv : @m {print($kv.0)};}");
    assert_eq!(body("unroll(5) { f() } unroll ($1) {};"), "{unroll 5 {f()}; unroll $1 {};}");
    assert_eq!(body("return; return 1 + 2;"), "{return; return (1 + 2);}");
    assert_eq!(body("import \"a.h\";"), "{import \"a.h\";}");
    assert_eq!(body(";; f();; g()"), "{f(); g()}");
    assert_eq!(body("if $x { }"), "{if $x {};}");
    assert_eq!(body(""), "{}");
}

#[test]
fn file_layout() {
    let text = "#!/usr/bin/env rbt\n// hello\n#include <linux/x.h>\n#define A \\\n  12\nstruct a { int x; struct { char c; } y; } __attribute__((packed));\nunion __attribute__((packed)) b { int a; }\nenum e { X = 1 /* } */, }\n\n\
        config = { max_strlen = 12; missing_probes=warn; license = \"GPL v2\" }\nimport \"x.bt\";\n\
        let @m = lruhash(10 * 2);\nmacro add(x, $v, @m) { $v + x }\nfn sq($a: uint64, $b : struct x *) : uint64 { return $a * $a; }\nbegin { }\nend { }\n";
    let s = script(text);
    let c: Vec<&str> = s.c_part.iter().map(|c| c.text.as_str()).collect();
    assert_eq!(c.len(), 5, "{c:?}");
    assert_eq!(c[1], "#define A \\\n  12");
    assert!(c[2].ends_with("((packed));") && c[4].ends_with("/* } */, }"), "{c:?}");
    let config: Vec<(&str, &str)> = s.config.iter().map(|c| (c.name.name.as_str(), c.value.as_str())).collect();
    assert_eq!(config, [("max_strlen", "12"), ("missing_probes", "warn"), ("license", "GPL v2")]);
    assert_eq!(s.imports[0].0, "x.bt");
    let [Item::MapDecl(m), Item::Macro(a), Item::Function(f), Item::Probe(_), Item::Probe(_)] = &s.items[..] else {
        panic!("{:?}", s.items)
    };
    assert_eq!((m.map.name.as_str(), m.kind.name.as_str(), show(&m.entries)), ("m", "lruhash", "(10 * 2)".into()));
    assert!(
        matches!(&a.params[..], [MacroParam::Expr(x), MacroParam::Var(v), MacroParam::Map(m)] if x.name == "x" && v.name == "v" && m.name == "m")
    );
    assert_eq!(show_block(&a.body), "{($v + x)}");
    assert_eq!((f.name.name.as_str(), show_type(&f.returns)), ("sq", "uint64".into()));
    assert_eq!(list(&f.params, |(n, t)| format!("{} {}", n.name, show_type(t))), "a uint64, b struct x*");
    assert_eq!(script("").items.len() + script(" // only a comment").items.len(), 0);
}

#[test]
fn spans() {
    let text = "begin { $x = f( 1 ) + @a[2] ; /* c */ }";
    let body = probe(text).body;
    let cut = |s: Span| &text[s.start as usize..s.end as usize];
    let StmtKind::Assign { target, value, .. } = &body.stmts[0].kind else { panic!() };
    assert_eq!((cut(target.span), cut(value.span), cut(body.stmts[0].span)), ("$x", "f( 1 ) + @a[2]", "$x = f( 1 ) + @a[2]"));
    let ExprKind::Binary(_, a, b) = &value.kind else { panic!() };
    assert_eq!((cut(a.span), cut(b.span)), ("f( 1 )", "@a[2]"));
    let p = probe("  k:a:b /1/ { }");
    assert_eq!((p.points[0].span.start, p.points[0].span.end, p.points[0].segments[1].span.start), (2, 7, 4));
    let e = super::value(probe("begin { if $a { } else { } }").body);
    assert_eq!((e.span.start, e.span.end), (8, 26));
}

#[test]
fn scripts_as_people_write_them() {
    script(
        "#!/usr/bin/env rbt\n/*\n * Words, \"quotes\" and { brackets.\n */\n#ifndef X\n#include <net/sock.h>\n#else\n#endif\n\n\
         config = {\n  missing_probes = warn;\n}\n\nBEGIN\n{\n\tprintf(\"It's %-6s 100%%\\n\", \"A\"); // don't\n}\n\n\
         tracepoint:a:b_c,\ntracepoint:a:d,\n/* why */\ntracepoint:a:e\n/@start[args->id]/\n{\n  @us = hist((nsecs - @start[args->id]) / 1000);\n\
           delete(@start[args->id]);\n}\n\nmacro walk(@seen) {\n  $m = (struct mount *)(((uint64)$v) - offsetof(struct mount, mnt));\n\
           for $j : ((uint64)0)..((uint64)$depth) {\n    @seen[tid,$j] = str($d.name.name);\n    if ($d == $p || $d == $r) { break; }\n    $d = $p;\n  }\n\
           $e = ($ret >= 0) ? 0 : (-$ret);\n  if ($path[0] != \"/\"[0]) { }\n}\n\nEND { clear(@start); }\n",
    );
    assert_eq!(body("$n = $a / 1000000; $m = $b / (1000 / 2); $o = (@a[1] / @b) * 100 / 3;").matches('/').count(), 5);
    assert_eq!(body("if ($a / 2 > 1) { f() } else if $b/2 { g() }").matches('/').count(), 2);
}
