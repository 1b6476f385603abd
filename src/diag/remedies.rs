//! What to do about a kind of error, where the place that found it knows nothing better.

/// By code.
const REMEDIES: &[(&str, &str)] = &[
    ("argument-moved", "`argN` goes by place: `args.NAME` goes by name"),
    ("attach", "`rbt info` says what this kernel offers"),
    ("bad-address", "write one such as \"192.0.2.1\" or \"2001:db8::1\""),
    ("bad-cast", "cast between integers, pointers and enums, or to an array of the same size"),
    ("bad-condition", "compare it: `x != 0`, `str(p) == \"text\"`"),
    ("bad-number", "write 12, 1_000, 0x1f, 1e6 or a time such as 10ms, up to 2^64 - 1"),
    ("bad-unroll", "write unroll(10) { … }; for more, `while` or `for $i : 0..n`"),
    ("duplicate", "rename one of them, or remove it"),
    ("format", "each conversion such as %d, %s or %x takes one value, and `%s` shows any"),
    ("in-loop", "move it out of the loop"),
    ("map-kind", "a map holds one kind of aggregation: use another map"),
    ("misplaced-aggregation", "assign it to a map: `@x = count()`"),
    ("no-kprobes", "a tracepoint may do; or leave such kernels out: `// check: kernels …`"),
    ("no-map-type", "leave such kernels out: `// check: kernels >= …`"),
    ("no-program-type", "leave such kernels out: `// check: kernels >= …`"),
    ("not-assignable", "only `$variable`, `@map` and `@map[key]` can be assigned to"),
    ("not-constant", "write a number or a constant expression"),
    ("not-in-loop", "use `return` to leave the probe"),
    ("out-of-range", "choose a value within these bounds"),
    ("redeclared", "use another name, or assign without `let`"),
    ("return-changed", "if it makes no difference to the script, say so: `// check: allow return-changed WHY`"),
    ("sign-changed", "a cast makes both the same, `(int64)x`; if it makes no difference: `// check: allow sign-changed WHY`"),
    ("size-changed", "if the script's values fit into less, say so: `// check: allow size-changed WHY`"),
    ("syntax", "`man rbt-language` and `rbt one-liners NAME` show how it is written"),
    ("too-deep", "put parts of it in variables or macros"),
    (
        "type-changed",
        "if it makes no difference to the script, say so: `// check: allow type-changed WHY`; or leave such kernels out: `// check: kernels …`",
    ),
    ("type-conflict", "use another name for the other type, or cast one: `(uint64)x`"),
    ("type-mismatch", "convert the value: `str(p)` reads a string, `(uint64)x` makes a number"),
    ("undefined-map", "assign it in some probe: `@x = 1` or `@x = count()`"),
    ("undefined-variable", "assign it first, in this block or one around it; a map `@x` lives across probes"),
    ("unknown-address", "give an address as `readelf -S -s` shows it, within a section"),
    ("unknown-field", "`rbt -lv PROBE` and `rbt -lv 'struct NAME'` list the fields there are"),
    ("unknown-function", "`man rbt-language` lists the functions"),
    ("unknown-line", "`objdump -dl` shows which lines have code"),
    ("unknown-name", "variables are written `$name`, maps `@name`, strings in quotes"),
    ("unknown-probe", "the kinds of probes are listed by `rbt info`"),
    ("unknown-symbol", "`nm` shows a binary's symbols, /proc/kallsyms the kernel's"),
    ("unknown-tracepoint", "`rbt -l 'tracepoint:*'` lists what there is"),
    ("unknown-type", "`rbt -l 'struct *'` lists the kernel's types"),
    ("zero-division", "divide by something else, or test the divisor first"),
    ("unbalanced", "add what is missing, or remove what is too much"),
];

/// The remedy for errors of this code in general.
pub fn remedy(code: &str) -> Option<&'static str> {
    REMEDIES.iter().find(|(known, _)| *known == code).map(|(_, text)| *text)
}
