use std::time::{Duration, Instant};

use super::*;
use crate::random::Random;
use crate::syntax::ast::CItem;
use crate::system::fake::Fake;
use crate::system::{CMacro, TypeName};
use crate::types::{Int, Type};

/// A script with a single C item.
fn script(text: &str) -> Script {
    let span = Span { source: 0, start: 0, end: text.len() as u32, ..Span::default() };
    Script { c_part: vec![CItem { text: text.into(), span, define: None }], ..Script::default() }
}

fn fake() -> Fake {
    Fake::new("struct list_head { struct list_head *next; struct list_head *prev; }; enum kstate { IDLE, BUSY = 4 }; typedef int pid_t;")
        .unwrap()
}

/// The rest of a text, with one blank between tokens.
fn preprocessed(text: &str) -> String {
    let sys = fake();
    let mut pre = Preprocessor::new(Search::new(&sys, Vec::new(), true), "");
    let tokens = pre.run(Path::new("script"), text, &[]);
    assert!(pre.errors.is_empty(), "{text}: {:?}", pre.errors);
    tokens.iter().map(|t| pre.names.text(t.sym)).collect::<Vec<_>>().join(" ")
}

/// Removes blanks for comparison.
fn tight(text: &str) -> String {
    text.split_whitespace().collect()
}

#[track_caller]
fn becomes(text: &str, wanted: &str) {
    assert_eq!(tight(&preprocessed(text)), tight(wanted), "{text}");
}

#[test]
fn macros_expand_as_the_standard_says() {
    // C11, 6.10.3.5, examples 3, 4, 5 and 7
    let three = "#define x 3\n#define f(a) f(x * (a))\n#undef x\n#define x 2\n#define g f\n#define z z[0]\n#define h g(~\n\
                 #define m(a) a(w)\n#define w 0,1\n#define t(a) a\n#define p() int\n#define q(x) x\n#define r(x,y) x ## y\n\
                 #define str(x) # x\n";
    becomes(&format!("{three}f(y+1) + f(f(z)) % t(t(g)(0) + t)(1);"), "f(2 * (y+1)) + f(2 * (f(2 * (z[0])))) % f(2 * (0)) + t(1);");
    becomes(&format!("{three}g(x+(3,4)-w) | h 5) & m\n(f)^m(m);"), "f(2 * (2+(3,4)-0,1)) | f(2 * (~ 5)) & f(2 * (0,1))^m(0,1);");
    becomes(&format!("{three}p() i[q()] = {{ q(1), r(2,3), r(4,), r(,5), r(,) }};"), "int i[] = { 1, 23, 4, 5, };");
    becomes(&format!("{three}char c[2][6] = {{ str(hello), str() }};"), "char c[2][6] = { \"hello\", \"\" };");
    let four = "#define str(s) # s\n#define xstr(s) str(s)\n#define glue(a, b) a ## b\n#define xglue(a, b) glue(a, b)\n\
                #define HIGHLOW \"hello\"\n#define LOW LOW \", world\"\n";
    becomes(&format!("{four}glue(HIGH, LOW); xglue(HIGH, LOW)"), "\"hello\"; \"hello\" \", world\"");
    becomes(&format!("{four}xstr(strncmp(\"abc\\0d\", \"abc\", '\\4') == 0)"), r#""strncmp(\"abc\\0d\", \"abc\", '\\4') == 0""#);
    becomes("#define t(x,y,z) x ## y ## z\nint j[] = { t(1,2,3), t(,4,5), t(6,,7), t(8,9,), t(10,,), t(,,11), t(,,) };", {
        "int j[] = { 123, 45, 67, 89, 10, 11, };"
    });
    let seven = "#define debug(...) fprintf(stderr, __VA_ARGS__)\n#define showlist(...) puts(#__VA_ARGS__)\n";
    becomes(&format!("{seven}debug(\"Flag\"); debug(\"%d\", x); showlist(The first, item);"), {
        "fprintf(stderr, \"Flag\"); fprintf(stderr, \"%d\", x); puts(\"The first, item\");"
    });
    // GNU's
    becomes("#define f(a, b...) g(a, ## b)\nf(1) f(1, 2, 3)", "g(1) g(1, 2, 3)");
    becomes("#define f(a, ...) g(a __VA_OPT__(,) __VA_ARGS__)\nf(1) f(1, 2)", "g(1) g(1, 2)");
    becomes("#define f(x) x\nf\n(1) f (2) f 3", "1 2 f 3");
}

#[test]
fn conditions_choose() {
    for (condition, holds) in [
        ("1", true),
        ("0", false),
        ("defined A", true),
        ("defined(B) || !defined A", false),
        ("A == 3 && NOTHING == 0", true),
        ("(1 ? 2 : 0) > 1", true),
        ("-1 > 0u", true),
        ("-1 < 0", true),
        ("'a' == 97 && '\\n' == 10", true),
        ("0x10 == 020 && 0b11 == 3", true),
        ("1 << 40 >> 40", true),
        ("F(2) == 4", true),
        ("__has_include(<none.h>)", false),
        ("__has_attribute(packed)", false),
        ("9223372036854775807 + 0 > 9223372036854775806", true),
    ] {
        let text = format!("#define A 3\n#define F(x) ((x) * 2)\n#if {condition}\nyes\n#else\nno\n#endif");
        becomes(&text, if holds { "yes" } else { "no" });
    }
    becomes("#if 0\na\n#elif 1\nb\n#elif 1\nc\n#else\nd\n#endif", "b");
    becomes("#if 0\n#if 1\na\n#else\nb\n#endif\n' unbalanced \" quotes\n#else /* c */\nd\n#endif\ne", "d e");
    becomes("#ifdef A\na\n#elifndef B\nb\n#endif", "b");
}

#[test]
fn types_lie_as_the_abi_says() {
    let sys = fake();
    let text = "struct a { char c; int i; short s; };\n\
                struct b { int x : 3; int : 0; char y : 2; long z : 33; } __attribute__((packed));\n\
                struct c { int x : 20; int y : 20; };\n\
                union d { char c[5]; int i; };\n\
                struct e { struct list_head list; char tail; };\n\
                struct f { char c; long double d; };\n\
                struct __attribute__((aligned(64))) g { int n; struct g *next; void (*call)(struct g *, int); int flexible[]; };\n\
                enum small { A = 1 } __attribute__((packed)); enum negative { B = -1 }; enum large { C = 1ULL << 40 };\n\
                typedef struct { unsigned char bytes[sizeof(struct a) + 4]; } h;\n\
                #pragma pack(push, 1)\nstruct i { char c; int n; };\n#pragma pack(pop)\nstruct j { char c; int n; };\n";
    let script = script(text);
    let settings = Settings::default();
    let (declared, errors) = read(&script, &Env::new(&sys, &settings));
    assert!(errors.is_empty(), "{errors:?}");
    let size = |kind, name| declared.type_named(kind, name).map(|t| t.size());
    let sizes = ["a", "b", "c", "e", "f", "g", "i", "j"].map(|n| size(TypeName::Struct, n).unwrap_or(0));
    assert_eq!(sizes, [12, 9, 8, 24, 32, 64, 5, 8]);
    assert_eq!(size(TypeName::Union, "d"), Some(8));
    assert_eq!(["small", "negative", "large"].map(|n| size(TypeName::Enum, n)), [Some(1), Some(4), Some(8)]);
    assert_eq!(size(TypeName::Plain, "h"), Some(16));
    let Some(Type::Struct(b)) = declared.type_named(TypeName::Struct, "b") else { panic!("no b") };
    let places: Vec<_> = declared.expand(&b).unwrap().fields.iter().map(|f| (f.name.clone(), f.offset, f.bits)).collect();
    assert_eq!(places, [("x".into(), 0, Some((0, 3))), ("y".into(), 4, Some((0, 2))), ("z".into(), 4, Some((2, 33)))]);
    assert_eq!(declared.enumerator("C").map(|(_, v)| v), Some(1 << 40));
    assert_eq!(declared.enumerator("BUSY").map(|(_, v)| v), Some(4));
}

#[test]
fn headers_are_searched_in_order() {
    let sys = fake()
        .with_header(
            "/include/a.h",
            "#ifndef A_H\n#define A_H\n#include \"b.h\"\nstruct a { struct b b; };\n#define FROM_A (sizeof(struct a))\n#endif\n",
        )
        .with_header("/include/b.h", "struct b { int x; };\n#include <a.h>\n#define TEXT \"one\" \" two\"\n#define OTHER pid\n")
        .with_header(
            "/kernel/linux/list.h",
            "struct list_head { char wrong; };\n#define LIST_POISON 0x100\nstruct only_here { int n; };\n",
        );
    let text = "#include <a.h>\n#include <a.h>\n#include <linux/list.h>\n#include <linux/none.h>\n";
    let script = script(text);
    let settings = Settings::default();
    let (declared, errors) = read(&script, &Env::new(&sys, &settings));
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(declared.c_macro("FROM_A"), Some(CMacro::Int(4, Int { bytes: 8, signed: false })));
    assert_eq!(declared.c_macro("TEXT"), Some(CMacro::Text(b"one two".into())));
    assert_eq!(declared.c_macro("OTHER"), Some(CMacro::Name("pid".into())));
    // BTF takes precedence over the kernel's headers, which provide what it lacks
    assert_eq!(declared.type_named(TypeName::Struct, "list_head").map(|t| t.size()), Some(16));
    assert!(declared.late.get().is_none());
    assert_eq!(declared.c_macro("LIST_POISON"), Some(CMacro::Int(0x100, Int { bytes: 4, signed: true })));
    let Some(Type::Struct(only)) = declared.type_named(TypeName::Struct, "only_here") else { panic!("not read") };
    assert_eq!(declared.member(&only, "n").map(|f| f.ty), Some(Type::int(4)));
    assert!(declared.why_unknown("anything").unwrap().contains("<linux/none.h>"));
}

#[test]
fn bad_text_costs_one_declaration() {
    let sys = fake().with_header(
        "/include/bad.h",
        "struct one { int a; };\nstruct two { what is this; };\nint f(void) { return 1; }\nlong g(int a) __attribute__((x(1)));\n\
         typedef struct { nothing_known x; } three_t, *three_p;\nextern struct one table[] = { { 1 }, { 2 } };\nenum { FOUR = 4 };\n",
    );
    let script = script("#include <bad.h>\n");
    let settings = Settings::default();
    let (declared, errors) = read(&script, &Env::new(&sys, &settings));
    assert!(errors.is_empty(), "{errors:?}");
    assert!(declared.type_named(TypeName::Struct, "one").is_some());
    assert_eq!(declared.enumerator("FOUR").map(|(_, v)| v), Some(4));
    assert!(declared.type_named(TypeName::Struct, "two").is_none());
    assert!(declared.why_unknown("two").unwrap().contains("bad.h:2: unknown type `what`"));
}

#[test]
fn work_is_bounded() {
    let start = Instant::now();
    let sys = fake()
        .with_header("/include/loop.h", "#include <loop.h>\nint x;\n")
        .with_header("/include/fan.h", "#if __INCLUDE_LEVEL__ < 200\n#include <fan.h>\n#include <fan.h>\n#endif\n");
    let bomb: String = (1..40).map(|n| format!("#define A{n} A{} A{}\n", n - 1, n - 1)).collect();
    let args: String = (1..40).map(|n| format!("#define F{n}(x) F{}(x x)\n", n - 1)).collect();
    for text in [
        "#include <loop.h>\n".to_owned(),
        "#include <fan.h>\n".to_owned(),
        format!("{bomb}int x = A39;\n"),
        format!("#define F0(x) x\n{args}int x = F39(1);\n"),
        format!("struct s {}{}\n", "{ struct ".repeat(5000), "}; ".repeat(5000)),
        format!("enum e {{ A = {}1{} }};\n", "(".repeat(5000), ")".repeat(5000)),
        format!("typedef int {}x{};\n", "(*".repeat(5000), ")(void)".repeat(5000)),
        format!("#if {}1{}\n#endif\n", "(".repeat(5000), ")".repeat(5000)),
        format!("#if {}1\n#endif\n", "-!~".repeat(5000)),
        "#if 1\n".repeat(5000),
        format!("#define f(x) x\nint y = {}1{};\n", "f(".repeat(3000), ")".repeat(3000)),
        "struct s { int x[1 << 29]; int y[1 << 29]; };\n".to_owned(),
        format!("typedef int a0;\n{}", (1..3000).map(|n| format!("typedef struct {{ a{} x, y; }} a{n};\n", n - 1)).collect::<String>()),
        "struct s { struct s inner; }; struct t { int f : 99999999999999999999; };\n".to_owned(),
    ] {
        let script = script(&text);
        let settings = Settings::default();
        let (declared, _) = read(&script, &Env::new(&sys, &settings));
        let _ = (declared.c_macro("A39"), declared.type_named(TypeName::Struct, "s"), declared.notes());
    }
    assert!(start.elapsed() < Duration::from_secs(120), "{:?}", start.elapsed());
}

/// Bytes and words of a text are changed at random (always the same): nothing panics, and everything terminates.
#[test]
fn changed_text_does_not_panic() {
    let seed = "#ifndef G\n#define G 1\n#define F(a, b...) a ## _t x[sizeof(struct s) + 1] , # a\n#include <a.h>\n\
                struct s { unsigned a : 3, : 0, b : 7; union { long l; struct s *p; char t[4][2]; }; int (*f)(int, ...); } __attribute__((packed));\n\
                enum e { A, B = A << 3 | (int)sizeof(struct s), C = 'x' } ;\n#if defined(G) && G > 0x0UL || !F\ntypedef enum e e_t, *e_p;\n#elif 1\n#else\n\
                #endif\nstatic inline int g(int (*h)(void)) { return F(1, 2, 3)[0]; }\n#pragma pack(push, 2)\n#undef F\n#endif\n";
    let words = [
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        ";",
        ",",
        "*",
        "#",
        "##",
        "\n#define F(x) F(x",
        "\n#if ",
        "\n#endif\n",
        "\n#else\n",
        "struct",
        "enum",
        "typedef",
        "sizeof",
        "\\\n",
        "/*",
        "*/",
        "//",
        "\"",
        "'",
        "é",
        "0x",
        "1e+",
        "__attribute__((aligned(",
        "_Alignas(",
        "union",
        "...",
        "__VA_ARGS__",
        "\n#include <a.h>\n",
        "\n#include \"",
        ":",
        "-",
        "9999999999999999999999",
        "F(",
        "G",
        "A",
        "s",
    ];
    let sys = fake().with_header("/include/a.h", "struct inner { int x; };\n#define Z F(1, 2)\n");
    let mut numbers = Random::new(0x2545_f491_4f6c_dd1d);
    let mut random = |below: usize| numbers.below(below);
    for _ in 0..1500 {
        let mut text = seed.to_owned();
        for _ in 0..1 + random(6) {
            let mut at = random(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            let mut end = (at + random(12)).min(text.len());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            let end = end.max(at);
            match random(3) {
                0 => text.replace_range(at..end, ""),
                1 => text.replace_range(at..end, words[random(words.len())]),
                _ => {
                    let copy = text[at..end].to_owned();
                    text.insert_str(at, &copy);
                }
            }
        }
        let script = script(&text);
        let settings = Settings::default();
        let (declared, _) = read(&script, &Env::new(&sys, &settings));
        for name in ["F", "G", "Z", "A", "s", "e", "e_t"] {
            declared.c_macro(name);
            declared.why_unknown(name);
            declared.enumerator(name);
            for kind in [TypeName::Struct, TypeName::Enum, TypeName::Plain] {
                if let Some(Type::Struct(s)) = declared.type_named(kind, name) {
                    declared.expand(&s);
                }
            }
        }
    }
}
