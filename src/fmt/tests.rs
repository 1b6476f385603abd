use super::*;
use crate::diag::Source;
use crate::syntax;

/// Formats a script, and checks the guarantees.
fn fmt(text: &str) -> String {
    let (tree, out) = once(text).unwrap_or_else(|| panic!("does not parse:\n{text}"));
    let Some((tree_again, again)) = once(&out) else { panic!("what was made does not parse:\n{text}\n--- made\n{out}") };
    assert_eq!(out, again, "not idempotent:\n{text}\n--- once\n{out}\n--- twice\n{again}");
    assert!(same_words(text, &out), "words differ:\n{text}\n--- made\n{out}");
    assert_eq!(spanless(&tree), spanless(&tree_again), "means something else:\n{text}\n--- made\n{out}");
    out
}

fn once(text: &str) -> Option<(syntax::ast::Script, String)> {
    let source = Source { name: "t".into(), text: text.into() };
    let (tree, shape) = syntax::parse_with_shape(&source).ok()?;
    Some((tree, format(text, &shape?)))
}

fn spanless(tree: &syntax::ast::Script) -> String {
    let spans = regex::Regex::new(r"Span \{[^}]*\}").unwrap();
    let mut tree = tree.clone();
    tree.c_part.iter_mut().for_each(|c| c.text = c.text.trim_end().replace("\r\n", "\n"));
    spans.replace_all(&format!("{tree:?}"), "").into_owned()
}

/// The statements of a probe, without its braces and indent.
fn body(text: &str) -> String {
    let out = fmt(&format!("begin {{ {text} }}"));
    let inside = out.strip_prefix("begin {\n").and_then(|o| o.strip_suffix("}\n")).unwrap_or(&out);
    inside.lines().map(|l| format!("{}\n", l.strip_prefix("  ").unwrap_or(l))).collect()
}

/// A new rule of the grammar must be classified as a word or a tree, here or in `COMPOUND_RULES`.
#[test]
fn knows_every_shape() {
    // Unchanged, or silent: the grammar makes no pair of them.
    const WORDS: &str = "EOI WHITESPACE COMMENT gap piece replacement top_item shebang c_item c_line c_definition c_word c_attribute c_parens c_braces \
        bare_value points tight_points attach_point tight_point label provider segment tight_segment segment_text tight_text tight_char \
        predicate_end braced simple simple_stmt for_head assign_op run prefix bang binary_op question colon block_atom atom argument \
        member paren_item comma postfix step digits star any_suffix number string boolean variable param param_total map_name \
        word_char word ident keyword c_keyword kw_break kw_comptime kw_continue kw_else kw_fn kw_for kw_if kw_import kw_let kw_macro \
        kw_offsetof kw_return kw_sizeof kw_typeinfo kw_typeof kw_unroll kw_while semicolon open_paren open_brace close_brace";
    let unknown: Vec<_> = Rule::all_rules()
        .iter()
        .filter(|r| !COMPOUND_RULES.contains(r) && !WORDS.split_whitespace().any(|w| w == format!("{r:?}")))
        .collect();
    assert!(unknown.is_empty(), "neither words nor trees: {unknown:?}");
}

#[test]
fn a_whole_script() {
    let text = "#!/usr/bin/env rbt\n#include <a.h>\n#define X 1 // one\nstruct foo { int a;\n  char b[3]; } ;
config={max_strlen=64;log_size=3} import \"x.bt\";import \"y.bt\"\n;\n\n\n// lone\n\n// of add\nmacro add(a,$b,@c,){a+$b}
fn f($a:uint64,$b:struct foo*):int64{return $a+1}let @m=hash(100); // hundred\nlet @n=hash(1);begin{printf(\"hi\");};;
kprobe:f,kprobe:g,/pid==1/{exit()}tracepoint:a:b\n/pid/ {\n\n@=1\n\n\n\n@=2;;}\n// last";
    let made = r#"#!/usr/bin/env rbt
#include <a.h>
#define X 1 // one
struct foo { int a;
  char b[3]; } ;

config = {
  max_strlen = 64;
  log_size = 3;
}

import "x.bt";
import "y.bt";

// lone

// of add
macro add(a, $b, @c) { a + $b }

fn f($a: uint64, $b: struct foo *): int64 {
  return $a + 1;
}

let @m = hash(100); // hundred
let @n = hash(1);

begin {
  printf("hi");
}

kprobe:f,
kprobe:g
/pid == 1/
{
  exit()
}

tracepoint:a:b /pid/ {
  @ = 1;

  @ = 2;
}
// last
"#;
    assert_eq!(fmt(&text.replace("@=1\n", "@=1;\n")), made);
    assert_eq!(fmt(""), "");
    assert_eq!(fmt("\n\n// only\n\n"), "// only\n");
}

#[test]
fn statements() {
    assert_eq!(
        body("if($x==1){f();}else if(2){return}else{g()}"),
        "if ($x == 1) {\n  f();\n} else if (2) {\n  return;\n} else {\n  g()\n}\n"
    );
    assert_eq!(
        body("while($x<10){$x++}for($i:0..10){}for $kv:@m{};unroll(5){1}"),
        "while ($x < 10) {\n  $x++\n}\nfor ($i : 0..10) {}\nfor $kv : @m {}\nunroll(5) {\n  1\n}\n"
    );
    assert_eq!(
        body("let $x;let $y:uint8*=(uint8*)1;_=f();$z<<=1;break"),
        "let $x;\nlet $y: uint8 *= (uint8 *)1;\n_ = f();\n$z <<= 1;\nbreak;\n".replace("*= (", "* = (")
    );
    assert_eq!(body("if 1{2}else{3};"), "if 1 {\n  2\n} else {\n  3\n};\n");
    assert_eq!(body("{};{f()};"), "{}\n{\n  f()\n};\n");
}

#[test]
fn expressions() {
    assert_eq!(
        body("$x=- -$y;$x=(uint8)-1;$x=(pid) -1;$x= ! $y&&~ $z||*$p;"),
        "$x = - -$y;\n$x = (uint8)-1;\n$x = (pid) - 1;\n$x = !$y && ~$z || *$p;\n"
    );
    assert_eq!(
        body("$t=(1,);$u=(1,2,);$r=(a=1,b=\"x\",);f(a,b,);@a[ 1,2 , ]"),
        "$t = (1,);\n$u = (1, 2);\n$r = (a=1, b=\"x\");\nf(a, b);\n@a[1, 2]\n"
    );
    assert_eq!(body("$x=$a?1:2;$y=$a?:2;$l=if $x{1}else{2};"), "$x = $a ? 1 : 2;\n$y = $a ?: 2;\n$l = if $x { 1 } else { 2 };\n");
    assert_eq!(
        body("$x=((struct a*)$p) -> b . c[ 1 ].0;f(struct a  **);sizeof( uint8 [ 4 ] );"),
        "$x = ((struct a *)$p)->b.c[1].0;\nf(struct a **);\nsizeof(uint8[4]);\n"
    );
    assert_eq!(body("$x={let $q=1;$q};$y={1}"), "$x = {\n  let $q = 1;\n  $q\n};\n$y = { 1 };\n");
    assert_eq!(body("if comptime 1{}$x=offsetof(struct a,b . c);"), "if comptime 1 {}\n$x = offsetof(struct a, b.c);\n");
    assert_eq!(fmt("a:b/ *$p/{}"), "a:b / *$p/ {}\n");
}

#[test]
fn attach_points_may_look_like_brackets() {
    assert_eq!(fmt("a(1,) {}"), "a(1,\n)\n{}\n");
    let long = format!("a:b:/{}c {{}}\n", "/".repeat(100));
    assert_eq!(fmt(&long), long);
}

#[test]
fn long_lines_are_broken() {
    let (a, b) = ("a".repeat(30), "b".repeat(30));
    assert_eq!(body(&format!("printf(\"%d\",{a},{b},1,2);")), format!("printf(\"%d\", {a}, {b},\n    1, 2);\n"));
    let c = "c".repeat(25);
    assert_eq!(body(&format!("if {a}==1&&{c}==2||13 {{}}")), format!("if {a} == 1 && {c} == 2 ||\n    13 {{}}\n"));
    assert_eq!(body(&format!("$x={a}1?{b}:2;")), format!("$x = {a}1 ? {b} : 2;\n"));
    assert_eq!(body(&format!("$x={a}?{b}:{a};")), format!("$x = {a}\n    ? {b}\n    : {a};\n"));
    assert_eq!(body(&format!("$x={a}?{b}:{b}?{a}:2;")), format!("$x = {a} ? {b}\n    : {b} ? {a}\n    : 2;\n"));
    assert_eq!(fmt(&format!("a:{a},b:{b}/1/{{}}")), format!("a:{a},\nb:{b}\n/1/\n{{}}\n"));
    assert_eq!(fmt(&format!("a:{a}/{a}{b}/{{}}")), format!("a:{a}\n/{a}{b}/\n{{}}\n"));
}

#[test]
fn comments_keep_their_places() {
    for text in [
        "// one\n\n/* two */\nbegin { // three\n  // four\n  f(); // five\n  g(); /* six */\n\n  // seven\n} // eight\n",
        "begin {\n  printf(\"a\", // first\n      b, /* second */\n      c);\n}\n",
        "begin {\n  f(/* one */ 1, 2 /* two */); /* three */\n}\n",
        "begin {\n  if $x { // why\n  } // so\n  else {\n    /* not */\n  }\n}\n",
        "/*\n * Stars\n */\nbegin {\n  /*\n   * below\n   * one another\n   */\n  f();\n}\n",
        "begin { /* nothing */ }\n",
        "a:b, // of a\nc:d /* of c */\n/1/ // so\n{}\n",
        "config = {\n  a = 1; // why\n  // last\n}\n",
        "macro m($a) {\n  // value\n  $a\n}\n",
    ] {
        assert_eq!(fmt(text), text);
    }
    assert_eq!(body("f(a // of a\n, b)\n// end\n;"), "f(a, // of a\n    b)\n// end\n;\n");
    assert_eq!(body("$x = 1 // one\n"), "$x = 1; // one\n");
    assert_eq!(body("f() // one\n; /* two */ // three\n"), "f(); // one\n/* two */\n// three\n");
    assert_eq!(fmt("import \"a\" // one\n; /* two\n */\nbegin { }"), "import \"a\"; // one\n\n/* two\n */\nbegin {}\n");
    assert_eq!(body("f(a, // of a\n);"), "f(a // of a\n);\n");
    assert_eq!(fmt("begin {\r\n  f(); // one\r\n}\r\n"), "begin {\n  f(); // one\n}\n");
}

#[test]
fn time_grows_with_the_length() {
    // processor time in nanoseconds, which other load on the machine does not affect
    // (Documentation/scheduler/sched-stats.rst)
    let now = || -> u64 { std::fs::read_to_string("/proc/thread-self/schedstat").unwrap().split(' ').next().unwrap().parse().unwrap() };
    let time = |lines: usize| {
        let line = "  @a[1, \"b\"] = (uint64)nsecs / 1000 + f(1, 2) ? 3 : 4; // c\n";
        let text = format!("begin {{\n{}}}\n", line.repeat(lines));
        let source = Source { name: "t".into(), text: text.clone() };
        let (_, shape) = syntax::parse_with_shape(&source).unwrap();
        let start = now();
        assert_eq!(format(&text, &shape.unwrap()), text);
        now() - start
    };
    let (short, long) = (time(500), time(5000));
    assert!(long < 40 * short, "{short} ns for 500 lines, {long} ns for 5000");
}
