//! Tokens of C text. Each text is stored once, and tokens refer to it by number, so that tokens are small and fast to compare.

use std::rc::Rc;

use fnv::FnvHashMap;

/// A text by number.
pub type Sym = u32;

/// The texts of all tokens.
#[derive(Default)]
pub struct Interner {
    texts: Vec<Rc<str>>,
    /// Hashed by FNV: the words are short, and their author gains nothing by collisions.
    index: FnvHashMap<Rc<str>, Sym>,
}

impl Interner {
    /// The number of a text.
    pub fn sym(&mut self, text: &str) -> Sym {
        if let Some(known) = self.index.get(text) {
            return *known;
        }
        let text: Rc<str> = text.into();
        let sym = self.texts.len() as Sym;
        self.texts.push(text.clone());
        self.index.insert(text, sym);
        sym
    }

    /// The number of a text, if a token has it.
    pub fn known(&self, text: &str) -> Option<Sym> {
        self.index.get(text).copied()
    }

    /// The text of a number.
    pub fn text(&self, sym: Sym) -> &str {
        self.texts.get(sym as usize).map_or("", |t| t)
    }
}

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A name or a keyword.
    Word,
    /// A preprocessing number, including its suffix.
    Number,
    /// A string literal, including quotes and prefix.
    Text,
    /// A character constant, including its quotes.
    Char,
    /// An operator, a bracket, or anything else.
    Punct,
    /// The end of a macro's expansion: the macro can be expanded again.
    End,
}

/// The place of a token: byte `at` of file number `file`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LexPosition {
    /// Index into the list of files; 0 is the script.
    pub file: u16,
    /// Offset from the file's start.
    pub at: u32,
}

/// A word, number, literal or operator.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    /// Its kind.
    pub kind: Kind,
    /// It is the first token of its line.
    pub first: bool,
    /// It follows blanks.
    pub spaced: bool,
    /// The name of a macro in the result of that macro, which is not expanded again.
    pub painted: bool,
    /// Its text.
    pub sym: Sym,
    /// Its place in the text; for the result of a macro, the place where the macro was used.
    pub pos: LexPosition,
}

/// A file that is being read.
pub struct Lexer {
    text: Rc<str>,
    file: u16,
    at: usize,
    first: bool,
}

/// Operators of three and two characters; all others have one.
const MULTI_CHAR_OPERATORS: [&[u8]; 22] = [
    b"...", b"<<=", b">>=", b"->", b"++", b"--", b"<<", b">>", b"<=", b">=", b"==", b"!=", b"&&", b"||", b"##", b"+=", b"-=", b"*=", b"/=",
    b"&=", b"|=", b"^=",
];

impl Lexer {
    /// Starts at the beginning of a file.
    pub fn new(text: Rc<str>, file: u16) -> Self {
        Self { text, file, at: 0, first: true }
    }

    /// The place after the last token.
    pub fn pos(&self) -> LexPosition {
        LexPosition { file: self.file, at: self.at as u32 }
    }

    fn byte(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    /// Skips blanks and comments; with `stay`, not beyond the end of the line. Returns true if there were any.
    fn blanks(&mut self, stay: bool) -> bool {
        let from = self.at;
        while let Some(b) = self.text.as_bytes().get(self.at) {
            match b {
                b'\n' if stay => break,
                b'\n' => {
                    self.first = true;
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' | 0x0b | 0x0c => self.at += 1,
                b'\\' if self.byte(1) == b'\n' => self.at += 2,
                b'\\' if self.byte(1) == b'\r' && self.byte(2) == b'\n' => self.at += 3,
                b'/' if self.byte(1) == b'*' => self.comment(),
                b'/' if self.byte(1) == b'/' => self.skip_line(),
                _ => break,
            }
        }
        self.at > from
    }

    fn comment(&mut self) {
        let rest = self.text.get(self.at + 2..).unwrap_or_default();
        self.at = rest.find("*/").map_or(self.text.len(), |end| self.at + 2 + end + 2);
    }

    /// Skips to the newline that ends the line, or to the end of the text.
    fn skip_line(&mut self) {
        let bytes = self.text.as_bytes();
        while let Some(b) = bytes.get(self.at) {
            match b {
                b'\n' => break,
                b'\\' if self.byte(1) == b'\n' => self.at += 2,
                _ => self.at += 1,
            }
        }
    }

    /// Returns the rest of the line, with its comments.
    pub fn rest_of_line(&mut self) -> String {
        let from = self.at;
        self.skip_line();
        self.text.get(from..self.at).unwrap_or_default().trim().to_owned()
    }

    /// The next token of this line; none at its end.
    pub fn next_on_line(&mut self, names: &mut Interner) -> Option<Token> {
        let spaced = self.blanks(true);
        if self.at >= self.text.len() || self.byte(0) == b'\n' {
            return None;
        }
        self.token(names, spaced)
    }

    /// The next token.
    pub fn next(&mut self, names: &mut Interner) -> Option<Token> {
        let spaced = self.blanks(false);
        self.token(names, spaced)
    }

    /// Does a `#` that starts a directive come next?
    pub fn at_directive(&mut self) -> bool {
        self.blanks(false);
        self.first && self.byte(0) == b'#'
    }

    /// The next character that is not blank.
    pub fn peek(&mut self) -> u8 {
        self.blanks(false);
        self.byte(0)
    }

    /// After `#include`: the name in `<…>` (true) or in quotes.
    pub fn header_name(&mut self) -> Option<(String, bool)> {
        self.blanks(true);
        let close = match self.byte(0) {
            b'<' => '>',
            b'"' => '"',
            _ => return None,
        };
        let rest = self.text.get(self.at + 1..)?;
        let end = rest.find([close, '\n']).filter(|e| rest.as_bytes().get(*e) != Some(&b'\n'))?;
        let name = rest.get(..end)?.to_owned();
        self.at += end + 2;
        Some((name, close == '>'))
    }

    fn token(&mut self, names: &mut Interner, spaced: bool) -> Option<Token> {
        let text = self.text.clone();
        let rest = text.get(self.at..)?;
        let bytes = rest.as_bytes();
        let (kind, len) = match *bytes.first()? {
            b'L' | b'u' | b'U' if matches!(bytes.get(1), Some(b'"' | b'\'')) => quoted(bytes, 1),
            b'"' | b'\'' => quoted(bytes, 0),
            b if is_word(b) && !b.is_ascii_digit() => (Kind::Word, bytes.iter().position(|b| !is_word(*b)).unwrap_or(bytes.len())),
            b if b.is_ascii_digit() || (b == b'.' && bytes.get(1).is_some_and(u8::is_ascii_digit)) => (Kind::Number, number(bytes)),
            b if b < 0x80 => (Kind::Punct, MULTI_CHAR_OPERATORS.iter().find(|l| bytes.starts_with(l)).map_or(1, |l| l.len())),
            _ => (Kind::Punct, rest.chars().next().map_or(1, char::len_utf8)),
        };
        let sym = names.sym(rest.get(..len)?);
        let place = self.pos();
        self.at += len;
        let first = std::mem::replace(&mut self.first, false);
        Some(Token { kind, first, spaced, painted: false, sym, pos: place })
    }

    /// Skips to the next directive. Returns false at the end of the text.
    pub fn skip_to_directive(&mut self) -> bool {
        loop {
            self.blanks(false);
            if self.at >= self.text.len() {
                return false;
            }
            if self.first && self.byte(0) == b'#' {
                return true;
            }
            self.first = false;
            let bytes = self.text.as_bytes();
            while let Some(b) = bytes.get(self.at) {
                match b {
                    b'\n' | b'/' => break,
                    b'"' => {
                        let end = bytes.get(self.at + 1..).and_then(|r| r.iter().position(|b| matches!(b, b'"' | b'\n'))).unwrap_or(0);
                        self.at += end + 1;
                        if self.byte(0) == b'"' {
                            self.at += 1;
                        }
                    }
                    b'\\' => self.at = (self.at + 2).min(bytes.len()),
                    _ => self.at += 1,
                }
            }
            if self.byte(0) == b'/' && !matches!(self.byte(1), b'*' | b'/') {
                self.at += 1;
            }
        }
    }
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b == b'$'
}

fn quoted(bytes: &[u8], prefix: usize) -> (Kind, usize) {
    let quote = bytes.get(prefix).copied().unwrap_or(0);
    let mut at = prefix + 1;
    while let Some(b) = bytes.get(at) {
        match b {
            b'\n' => break,
            b'\\' => at += 2,
            b if *b == quote => {
                at += 1;
                break;
            }
            _ => at += 1,
        }
    }
    (if quote == b'"' { Kind::Text } else { Kind::Char }, at.min(bytes.len()))
}

fn number(bytes: &[u8]) -> usize {
    let mut pos = 0;
    while let Some(b) = bytes.get(pos) {
        let sign = matches!(b, b'+' | b'-') && pos > 0 && matches!(bytes.get(pos - 1), Some(b'e' | b'E' | b'p' | b'P'));
        let hex = bytes.starts_with(b"0x") || bytes.starts_with(b"0X");
        let exponent = sign && (!hex || matches!(bytes.get(pos - 1), Some(b'p' | b'P')));
        if !(is_word(*b) || *b == b'.' || exponent) {
            break;
        }
        pos += 1;
    }
    pos
}
