//! The words of the language itself: for help, the manual, completion and messages.

/// A row.
#[derive(Debug)]
pub struct Keyword {
    /// The name in scripts.
    pub name: &'static str,
    /// Other words with the same row.
    pub also: &'static [&'static str],
    /// The place where it occurs.
    pub role: Role,
    /// The form of its use.
    pub form: &'static str,
    /// Its documentation.
    pub doc: &'static str,
    /// A whole script that uses it.
    pub example: &'static str,
}

/// The place where a word occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It begins a statement, a part of one, or a definition: no value begins with it.
    Statement,
    /// In an expression.
    Expression,
    /// A type.
    Type,
    /// A type of a map, after `let @map =`.
    Map,
}

const fn statement(name: &'static str, form: &'static str, doc: &'static str, example: &'static str) -> Keyword {
    Keyword { name, also: &[], role: Role::Statement, form, doc, example }
}

const fn expression(name: &'static str, form: &'static str, doc: &'static str, example: &'static str) -> Keyword {
    Keyword { role: Role::Expression, ..statement(name, form, doc, example) }
}

impl Keyword {
    const fn also(self, also: &'static [&'static str]) -> Self {
        Self { also, ..self }
    }

    const fn of(self, role: Role) -> Self {
        Self { role, ..self }
    }

    /// Its words, of which the first is the row's name.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.also.iter().copied())
    }
}

/// All rows, in the order of the manual.
pub const KEYWORDS: &[Keyword] = &[
    statement(
        "if",
        "if CONDITION { … } else if CONDITION { … } else { … }",
        "Runs the first block whose condition is true: a number other than 0, a string that is not empty. Parentheses around a \
         condition are optional.",
        "begin { if pid > 1 { print(\"large\"); } else { print(\"small\"); } }",
    ),
    statement(
        "else",
        "if CONDITION { … } else { … }",
        "Introduces the block that runs if none of the previous conditions is true.",
        "begin { if uid == 0 { print(\"root\"); } else { print(uid); } }",
    ),
    statement(
        "for",
        "for $i : FROM..TO { … }, for $kv : @map { … }",
        "Loops over the integers from FROM up to, but not including, TO, or over the elements of a map in arbitrary order, where `$kv.0` is the key and `$kv.1` is the value. While a probe runs, its CPU does nothing else. Therefore, rbt ends and reports a run of a probe whose loops take more than a second. `begin`, `end` and `self` may take longer, and Ctrl-C ends them.",
        "begin { for $i : 0..3 { @square[$i] = $i * $i; } for $kv : @square { printf(\"%d: %d\\n\", $kv.0, $kv.1); } }",
    ),
    statement(
        "while",
        "while CONDITION { … }",
        "Loops until the condition is false. If the loop exceeds the kernel's limit for one run of a probe (8388607 iterations), \
         rbt reports it. Use `for` if the number of iterations is known.",
        "begin { $n = 1; while ($n < 100) { $n *= 3; } print($n); }",
    ),
    statement(
        "unroll",
        "unroll(N) { … }",
        "Repeats the block N times in the compiled program. N is a constant from 1 to 100. If the kernel's verifier finds the \
         program too large, rbt replaces the copies by a loop, with the same result.",
        "begin { $n = 0; unroll(3) { $n += 2; } print($n); }",
    ),
    statement("break", "break;", "Leaves the innermost loop.", "begin { for $i : 0..10 { if $i == 3 { break; } print($i); } }"),
    statement(
        "continue",
        "continue;",
        "Ends the current iteration of the innermost loop and starts the next one.",
        "begin { for $i : 0..10 { if $i % 2 == 0 { continue; } print($i); } }",
    ),
    statement(
        "return",
        "return;, return VALUE;",
        "Leaves the probe, or leaves a function and returns its value.",
        "fn larger($a: int64, $b: int64): int64 { if $a > $b { return $a; } return $b; } begin { print(larger(1, 2)); }",
    ),
    statement(
        "let",
        "let $x, let $x : TYPE = VALUE, let @map = KIND(N)",
        "Declares a variable in the current block, optionally with its type. Outside of probes, it declares the type (hash, lruhash, percpuhash or percpulruhash) and the size of a map. Variables and maps need no declaration.",
        "let @recent = lruhash(100); begin { let $n : uint64 = 5; @recent[$n] = 1; }",
    ),
    statement(
        "fn",
        "fn NAME($a : TYPE, …) : TYPE { … }",
        "Defines a function. Its parameters and its result have types. rbt compiles it once, however often the script calls it.",
        "fn add($a: int64, $b: int64): int64 { return $a + $b; } begin { print(add(1, 2)); }",
    ),
    statement(
        "macro",
        "macro NAME(a, $x, @m) { … }",
        "Defines a macro, which rbt expands where the script uses it. A plain parameter stands for an expression, $x for a variable and @m for a map. The macro can change such variables and maps. The value of a macro is that of its last expression.",
        "macro larger(a, b) { a > b ? a : b } begin { print(larger(1, 2)); }",
    ),
    statement(
        "import",
        "import \"PATH\";",
        "Imports the definitions of another script (.bt), of a C header (.h), the functions of a BPF object (.bpf.o) or of its \
         source in C (.bpf.c), which clang compiles, or a directory of such files. The path is relative to the importing script. \
         Names of bpftrace's standard library need no import.",
        "import \"stdlib\"; begin { print(1); }",
    ),
    statement(
        "config",
        "config = { SETTING = VALUE; … }",
        "Changes settings for the script. The block must precede the first probe. `rbt help SETTING` explains each setting.",
        "config = { max_map_keys = 100; } begin { @[pid] = 1; }",
    ),
    expression(
        "comptime",
        "comptime EXPRESSION, if comptime CONDITION { … }",
        "Makes rbt evaluate an expression or a condition when it compiles the script. The branch of an `if` that is not taken may use features that this \
         kernel lacks.",
        "begin { if comptime kfunc_exist(\"bpf_map_sum_elem_count\") { print(\"yes\"); } else { print(\"no\"); } }",
    ),
    expression(
        "sizeof",
        "sizeof(TYPE), sizeof(EXPRESSION)",
        "The size of a type or a value in bytes.",
        "begin { print((sizeof(uint64), sizeof(struct task_struct))); }",
    ),
    expression(
        "offsetof",
        "offsetof(TYPE, MEMBER)",
        "The distance of a member from the start of a structure, in bytes.",
        "begin { print(offsetof(struct task_struct, comm)); }",
    ),
    expression(
        "typeof",
        "typeof(EXPRESSION)",
        "The type of an expression, which may stand in place of any type.",
        "begin { let $n : typeof(pid) = 5; print((typeof(pid))300); }",
    ),
    expression(
        "typeinfo",
        "typeinfo(EXPRESSION)",
        "The type of an expression as a record of strings. It requires the setting unstable_typeinfo.",
        "config = { unstable_typeinfo = enable; } begin { print(typeinfo(pid)); }",
    ),
    expression("true", "true, false", "The values of the type bool.", "begin { @on = true; if @on { print(\"on\"); } }").also(&["false"]),
    expression(
        "$1",
        "$1, $2, …; $#",
        "An argument of the script: a number, or a string within str(). $# is the number of arguments. A missing argument is 0 or an empty string.",
        "begin { printf(\"%d arguments, the first %d, %s\\n\", $#, $1, str($2)); }",
    )
    .also(&["$2", "$#", "$N"]),
    statement(
        "struct",
        "struct NAME { … };, (struct NAME *)ADDRESS",
        "Declares a structure, a union or an enumeration as in C. In a cast, the name refers to a type of the script, the kernel or the traced binary.",
        "struct point { int x; int y; } begin { print(sizeof(struct point)); print(((struct task_struct *)curtask).comm); }",
    )
    .also(&["union", "enum"]),
    expression(
        "int64",
        "int8, int16, int32, int64, uint8, uint16, uint32, uint64",
        "Integers with this number of bits, signed or unsigned. A cast truncates or extends as in C.",
        "begin { print(((uint8)300, (int64)-1)); }",
    )
    .also(&["int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64"])
    .of(Role::Type),
    expression("bool", "bool", "The type of comparisons: true or false.", "begin { let $on : bool = pid == 1; print($on); }")
        .of(Role::Type),
    expression(
        "string",
        "string, string[N]",
        "A string of at most N bytes, including a final NUL. str() reads a string from an address.",
        "begin { let $s : string = comm; print($s); }",
    )
    .of(Role::Type),
    expression(
        "double",
        "float, double",
        "Floating-point numbers in memory. You can print and store them, and cast them to integers. BPF programs cannot compute \
         with them.",
        "uprobe:libc:ldexp { print(*(double *)reg(\"sp\")); }",
    )
    .also(&["float"])
    .of(Role::Type),
    statement(
        "hash",
        "let @map = hash(N); also lruhash, percpuhash, percpulruhash",
        "The type of a map with at most N keys. When full, lruhash and percpulruhash remove the least recently used key. percpuhash and percpulruhash are for aggregations.",
        "let @last = lruhash(1000); begin { @last[pid] = nsecs; }",
    )
    .also(&["lruhash", "percpuhash", "percpulruhash"])
    .of(Role::Map),
];

/// Is it a word with which no value begins?
pub fn starts_no_value(word: &str) -> bool {
    KEYWORDS.iter().any(|k| k.role == Role::Statement && k.name != "config" && k.names().any(|n| n == word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::Source;

    #[test]
    fn the_words_of_the_grammar_have_rows() {
        let grammar = include_str!("../../grammar.pest");
        let (_, rest) = grammar.split_once("\nkeyword ").unwrap();
        let (rule, _) = rest.split_once('}').unwrap();
        let words: Vec<&str> = rule.split('"').skip(1).step_by(2).collect();
        assert!(words.len() > 15, "{words:?}");
        for word in words {
            assert!(KEYWORDS.iter().any(|k| k.names().any(|n| n == word)), "{word} has no row");
        }
    }

    #[test]
    fn names_occur_once_and_in_their_examples() {
        let mut names: Vec<&str> = KEYWORDS.iter().flat_map(Keyword::names).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        for k in KEYWORDS {
            assert!(k.names().any(|n| k.example.contains(n)) && k.form.contains(k.name), "{}", k.name);
            let source = Source { name: k.name.into(), text: k.example.into() };
            assert!(crate::syntax::parse(&source).is_ok(), "{}", k.example);
        }
    }

    #[test]
    fn values_start_with_some() {
        assert!(["while", "enum", "else"].into_iter().all(starts_no_value));
        assert!(!["sizeof", "true", "comptime", "int64", "config", "hash", "pid"].into_iter().any(starts_no_value));
    }
}
