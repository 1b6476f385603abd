//! Changes texts and files at random, like typing errors and damage do.

/// Changes one of the texts in its numbers and bytes.
pub fn text(texts: &[String], seed: u64, number: u64) -> String {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number.wrapping_mul(0xD1B5_4A32_D192_ED03));
    let mut text = texts[dice.below(texts.len())].clone();
    for _ in 0..1 + dice.below(3) {
        text = if dice.below(2) == 0 { number_changed(&text, &mut dice) } else { bytes(&text, texts, &mut dice) };
    }
    text
}

/// Damages a file in the range `part`, or, more rarely, in its headers.
pub fn file(whole: &[u8], part: std::ops::Range<usize>, seed: u64, number: u64) -> Vec<u8> {
    const EDGES: [u64; 8] = [0, 1, 0x7f, 0x80, 0xff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number.wrapping_mul(0xD1B5_4A32_D192_ED03));
    let mut file = whole.to_vec();
    let sections = whole.get(40..48).and_then(|b| b.try_into().ok()).map_or(0, |b| u64::from_le_bytes(b) as usize);
    for _ in 0..1 + dice.below(4) {
        let within = match dice.below(8) {
            0 => 0..0x400,
            1 => sections..whole.len(),
            _ => part.clone(),
        };
        let within = within.start.min(file.len())..within.end.min(file.len());
        if within.len() < 16 {
            continue;
        }
        let at = within.start + dice.below(within.len() - 8);
        let edge = EDGES[dice.below(EDGES.len())].to_le_bytes();
        match dice.below(8) {
            0 => file[at] ^= 1 << dice.below(8),
            1 => file[at] = edge[0],
            2 => file[at & !3..][..4].copy_from_slice(&edge[..4]),
            3 => file[at & !7..][..8].copy_from_slice(&edge),
            4 => file[at..][..8].fill(dice.next() as u8),
            5 => {
                let from = within.start + dice.below(within.len() - 8);
                let len = dice.below((within.end - at.max(from)).min(256));
                file.copy_within(from..from + len, at);
            }
            6 if dice.below(8) == 0 => file.truncate(at),
            _ => file[at] = dice.next() as u8,
        }
    }
    file
}

/// Replaces one number by another.
fn number_changed(text: &str, dice: &mut Dice) -> String {
    const EDGES: &[&str] = &[
        "0",
        "-1",
        "1",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775808",
        "9223372036854775807",
        "4294967296",
        "1e400",
        "99999999999999999999999999999999999999999",
    ];
    let starts: Vec<usize> = text
        .char_indices()
        .filter(|(i, c)| c.is_ascii_digit() && *i > 0 && !text.as_bytes()[i - 1].is_ascii_digit())
        .map(|(i, _)| i)
        .collect();
    if starts.is_empty() {
        return text.into();
    }
    let at = starts[dice.below(starts.len())];
    let end = text[at..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |n| at + n);
    format!("{}{}{}", &text[..at], dice.pick(EDGES), &text[end..])
}

/// Returns script `number` of a seed, which is a script of the repository with random changes.
pub fn script(scripts: &[String], seed: u64, number: u64) -> String {
    // splitmix64 (Steele, Lea, Flood 2014) gives adjacent numbers different results.
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number.wrapping_mul(0xD1B5_4A32_D192_ED03));
    for _ in 0..4 {
        dice.next();
    }
    let Some(text) = scripts.get(dice.below(scripts.len())) else { return String::new() };
    let mut text = text.clone();
    for _ in 0..[1, 1, 1, 2, 2, 3][dice.below(6)] {
        text = if dice.below(6) == 0 { bytes(&text, scripts, &mut dice) } else { words(&text, scripts, &mut dice) };
    }
    text
}

pub struct Dice(u64);

impl Dice {
    /// The random numbers for `number` of a seed.
    pub fn new(seed: u64, number: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number.wrapping_mul(0xD1B5_4A32_D192_ED03))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }

    /// A short range within `len`.
    fn range(&mut self, len: usize, most: usize) -> std::ops::Range<usize> {
        let start = self.below(len + 1);
        start..(start + self.below(most)).min(len)
    }
}

fn bytes(text: &str, scripts: &[String], dice: &mut Dice) -> String {
    let mut b = text.as_bytes().to_vec();
    let range = dice.range(b.len(), 20);
    match dice.below(7) {
        0 => drop(b.drain(range)),
        1 => {
            let copy = b[range.clone()].to_vec();
            let at = dice.below(b.len() + 1);
            b.splice(at..at, copy);
        }
        2 => b.truncate(range.start),
        3 => {
            let other = scripts[dice.below(scripts.len())].as_bytes();
            let part = dice.range(other.len(), 80);
            b.splice(range, other[part].iter().copied());
        }
        4 if !b.is_empty() => {
            let at = dice.below(b.len());
            b[at] ^= 1 << dice.below(8);
        }
        _ => {
            const ODD: &[u8] = b" \n\t\"\\/*{}()[];:,.=+-<>?!~&|^%$@#0aZ_\r\0\x7f\xc3\xa9\xff";
            let byte = ODD[dice.below(ODD.len())];
            let at = range.start;
            b.splice(at..at, [byte]);
        }
    }
    String::from_utf8_lossy(&b).into_owned()
}

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "7",
    "8",
    "31",
    "63",
    "64",
    "65",
    "127",
    "128",
    "255",
    "256",
    "1024",
    "4096",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "0x7f",
    "1e9",
    "1s",
    "010",
    "-1",
    "1_0",
    "0x",
    "5d",
];
const MARKS: &[&str] = &[
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ";",
    ",",
    ".",
    "..",
    "->",
    ":",
    "?",
    "=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "&",
    "|",
    "^",
    "&&",
    "||",
    "==",
    "!=",
    "<",
    ">",
    "<=",
    ">=",
    "<<",
    ">>",
    "!",
    "~",
    "++",
    "--",
    "+=",
    "<<=",
    "$x",
    "@",
    "@a",
    "@a[1]",
    "$1",
    "$#",
    "\"\"",
    "\"%s\"",
    "if",
    "else",
    "for",
    "while",
    "unroll",
    "return",
    "break",
    "let",
    "macro",
    "fn",
    "import",
    "sizeof(",
    "offsetof(",
    "typeof(",
    "typeinfo(",
    "comptime",
    "struct a",
    "struct task_struct",
    "uint8",
    "int64",
    "string",
    "true",
    "(uint8)",
    "(struct task_struct *)",
    "(1,)",
    "()",
    "args",
    "arg0",
    "ctx",
    "retval",
    "curtask",
    "count()",
    "hist(",
    "str(",
    "print(",
    "printf(",
    "kstack",
    "*",
    "comm",
    "begin",
    "end",
];
const BETWEEN: &[&str] =
    &["/* c */", " // c\n", "\n// own\n", "\n\n\n", "\n", " /* two\n * lines */ ", "\n/* own */\n", "/**/", "\r\n", "\t"];

fn words(text: &str, scripts: &[String], dice: &mut Dice) -> String {
    let mut w = split(text);
    if w.is_empty() {
        return dice.pick(MARKS).to_string();
    }
    let at = dice.below(w.len());
    let range = dice.range(w.len(), 12);
    match dice.below(13) {
        0 => drop(w.drain(range)),
        1 => {
            let copy = w[range].to_vec();
            w.splice(at..at, copy);
        }
        2 => {
            let other = dice.below(w.len());
            w.swap(at, other);
        }
        3 | 4 => {
            // Replaces a word by another of the same kind.
            let kind = kind(w[at]);
            let other = split(&scripts[dice.below(scripts.len())]).into_iter().filter(|o| self::kind(o) == kind).collect::<Vec<_>>();
            if !other.is_empty() {
                w[at] = other[dice.below(other.len())];
                return w.concat();
            }
        }
        5 => w[at] = dice.pick(MARKS),
        6 => w.insert(at, dice.pick(MARKS)),
        7 => {
            let numbers: Vec<usize> = (0..w.len()).filter(|i| kind(w[*i]) == '0').collect();
            let at = if numbers.is_empty() { at } else { numbers[dice.below(numbers.len())] };
            w[at] = dice.pick(NUMBERS);
        }
        8 => {
            // Inserts statements of another script.
            let other = split(&scripts[dice.below(scripts.len())]);
            let part = dice.range(other.len(), 40);
            w.splice(at..at, other[part].iter().copied());
            return w.concat();
        }
        9 => {
            let (times, word) = ([3, 30, 99, 101, 600, 3000][dice.below(6)], dice.pick(MARKS));
            w.splice(at..at, std::iter::repeat_n(word, times));
        }
        10 => {
            // Replaces a name by another name of the same script.
            let names: Vec<usize> = (0..w.len()).filter(|i| kind(w[*i]) == 'a').collect();
            if names.len() > 1 {
                w[names[dice.below(names.len())]] = w[names[dice.below(names.len())]];
            }
        }
        _ => {
            for _ in 0..1 + dice.below(4) {
                let at = dice.below(w.len() + 1);
                w.insert(at, dice.pick(BETWEEN));
            }
        }
    }
    w.concat()
}

/// The kind of a word: `a` for a name, `0` for a number, a blank for blanks, `"`, `$` or `@` if the word starts with it, and
/// otherwise `+`.
fn kind(word: &str) -> char {
    match word.chars().next() {
        Some(c) if c.is_ascii_digit() => '0',
        Some(c) if c.is_alphabetic() || c == '_' => 'a',
        Some(c) if c.is_whitespace() => ' ',
        Some(c @ ('"' | '$' | '@')) => c,
        _ => '+',
    }
}

/// Splits the entire text into names, numbers, strings, blanks and other characters.
fn split(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let name = |c: char| c.is_alphanumeric() || c == '_';
        let run = |of: &dyn Fn(char) -> bool| rest.len() - rest[first.len_utf8()..].trim_start_matches(of).len();
        let end = match first {
            '"' => rest[1..].find(['"', '\n']).map_or(rest.len(), |i| i + 2).min(rest.len()),
            '$' | '@' => run(&name),
            c if name(c) => run(&name),
            c if c.is_whitespace() => run(&char::is_whitespace),
            c => c.len_utf8(),
        };
        let end = (end..=rest.len()).find(|e| rest.is_char_boundary(*e)).unwrap_or(rest.len());
        let (word, more) = rest.split_at(end);
        words.push(word);
        rest = more;
    }
    words
}
