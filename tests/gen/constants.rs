//! Makes scripts that compare constant folding with the compiled program. They compute each operator with each pair of edge
//! values twice: with constants, and with values from maps, which neither sema nor LLVM knows.

use std::fmt::Write;

/// Numbers at the limits of a width or a sign, and shift counts.
const LITERALS: &[&str] = &[
    "0",
    "1",
    "-1",
    "31",
    "32",
    "63",
    "64",
    "-128",
    "255",
    "-2147483648",
    "4294967295",
    "9223372036854775807",
    "(-9223372036854775807 - 1)",
    "9223372036854775808",
    "18446744073709551615",
];
/// The integer types, and the values that are cast to them.
const CASTS: &[&str] = &["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"];
const CAST: &[&str] = &["1", "-1", "(-9223372036854775807 - 1)"];
const BINARY: &[&str] = &["+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^", "<", ">", "<=", ">=", "==", "!=", "&&", "||"];
const UNARY: &[&str] = &["-", "~", "!"];

/// A script with comparisons. It prints the numbers of the comparisons that fail, and then `end`.
pub struct Script {
    pub text: String,
    pub rows: Vec<String>,
}

/// All scripts.
pub fn scripts() -> Vec<Script> {
    let literals = LITERALS.iter().map(|a| of_literals(a));
    literals.chain(CASTS.iter().map(|ty| of_casts(ty))).collect()
}

#[derive(Default)]
struct Rows {
    hidden: String,
    checks: String,
    rows: Vec<String>,
}

impl Rows {
    /// Adds a variable whose value comes from a map.
    fn hide(&mut self, name: &str, value: &str) {
        let _ = writeln!(self.hidden, "  @{name} = {value}; ${name} = @{name};");
    }

    fn agree(&mut self, constant: &str, computed: &str) {
        let _ = writeln!(self.checks, "  if (({constant}) != ({computed})) {{ printf(\"{}\\n\"); }}", self.rows.len());
        self.rows.push(format!("{constant} and {computed}"));
    }

    fn script(self) -> Script {
        let text = format!("begin {{\n{}{}  printf(\"end\\n\"); exit();\n}}\n", self.hidden, self.checks);
        Script { text: text.replace(" clear(@);", ""), rows: self.rows }
    }
}

/// Combines one literal on the left with all literals on the right. Next to an unsigned value, a literal without a minus sign is
/// unsigned.
fn of_literals(a: &'static str) -> Script {
    let mut rows = Rows::default();
    rows.hide("a", a);
    rows.hide("ua", &format!("(uint64){a}"));
    for (i, b) in LITERALS.iter().enumerate() {
        rows.hide(&format!("b{i}"), b);
        let unsigned = (is_large(a) || is_large(b)) && value(a) >= 0 && value(b) >= 0;
        let x = if unsigned { "$ua" } else { "$a" };
        let y = if unsigned && !is_large(b) {
            rows.hide(&format!("u{i}"), &format!("(uint64){b}"));
            format!("$u{i}")
        } else {
            format!("$b{i}")
        };
        for (j, op) in BINARY.iter().enumerate().filter(|(_, op)| holds(value(a), op, value(b))) {
            // In turn, both sides or only one of them are computed at run time.
            let (x, y) = match (i + j) % 3 {
                0 => (a, y.as_str()),
                1 => (x, *b),
                _ => (x, y.as_str()),
            };
            rows.agree(&format!("{a} {op} {b}"), &format!("{x} {op} {y}"));
        }
    }
    for op in UNARY.iter().filter(|op| **op != "-" || value(a) <= 1 << 63) {
        // The complement of a literal without a minus sign is unsigned. Its negative is signed.
        let hidden = match *op {
            "~" if value(a) >= 0 => "$ua",
            "-" => {
                rows.hide("w", &format!("(int64){a}"));
                "$w"
            }
            _ => "$a",
        };
        rows.agree(&format!("{op}({a})"), &format!("{op}{hidden}"));
    }
    for ty in CASTS {
        rows.agree(&format!("({ty}){a}"), &format!("({ty})$a"));
    }
    rows.script()
}

/// Combines all pairs of values of one type.
fn of_casts(ty: &str) -> Script {
    let mut rows = Rows::default();
    for (i, a) in CAST.iter().enumerate() {
        rows.hide(&format!("v{i}"), &format!("({ty}){a}"));
        for op in UNARY {
            rows.agree(&format!("{op}({ty}){a}"), &format!("{op}$v{i}"));
        }
    }
    let bits: u32 = ty.trim_start_matches(|c: char| c.is_ascii_alphabetic()).parse().unwrap_or(64);
    for (i, a) in CAST.iter().enumerate() {
        for (j, b) in CAST.iter().enumerate() {
            for op in BINARY.iter().filter(|op| value(b) % (1 << bits) != 0 || !divides(op)) {
                rows.agree(&format!("({ty}){a} {op} ({ty}){b}"), &format!("$v{i} {op} $v{j}"));
            }
        }
    }
    rows.script()
}

/// Can a type represent the result of an operator with two literals? If not, sema reports an error.
fn holds(a: i128, op: &str, b: i128) -> bool {
    let (least, beyond) = (i128::from(i64::MIN), i128::from(i64::MAX));
    let negative = a < 0 || b < 0;
    if negative && (a > beyond || b > beyond) {
        return false;
    }
    let n = match op {
        "+" => a + b,
        "-" => a - b,
        "*" => a.saturating_mul(b),
        "/" | "%" => return b != 0,
        "<<" | ">>" => return (0..64).contains(&b),
        _ => return true,
    };
    n >= least && n <= if negative { beyond } else { i128::from(u64::MAX) }
}

fn divides(op: &str) -> bool {
    matches!(op, "/" | "%")
}

/// Does the literal fit only into `uint64`?
fn is_large(literal: &str) -> bool {
    value(literal) > i128::from(i64::MAX)
}

fn value(literal: &str) -> i128 {
    literal.parse().unwrap_or(i64::MIN.into())
}
