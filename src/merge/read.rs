//! Reads documents from a stream, of which there may be several.
//!
//! Programs that run a command on many hosts put the name of the host before each line, or other lines between the
//! documents. So a document begins at a brace and [`NAME`], anywhere in a line. Other programs may format a document, with blanks, or over
//! several lines: then its braces are alone on the first and the last one.

use std::io::{self, BufRead, Read};

use serde::Deserialize;
use serde_json::Deserializer;

use crate::input::LIST;
use crate::state::{State, VERSION};

/// The first field of a document.
const NAME: &[u8] = b"\"rbt_state\"";
/// Maximum size of a line in bytes.
const LINE: u64 = LIST;
/// Number of characters of an invalid line that a message shows.
const MAX_CHARS_SHOWN: usize = 60;

/// An item of the input, with its place: `a.json, line 3`.
pub enum Document {
    /// A document, and the name before it on its line, if there is one.
    State(Box<State>, String, Option<String>),
    /// Something else, and why it is omitted.
    Problem(String),
}

/// Reads all documents of a stream.
///
/// # Errors
/// Those of the system.
pub fn read(name: &str, from: impl Read, each: &mut dyn FnMut(Document)) -> io::Result<()> {
    let mut from = io::BufReader::with_capacity(1 << 16, from);
    let (mut line, mut number) = (Vec::new(), 0u64);
    loop {
        line.clear();
        number += 1;
        if (&mut from).take(LINE + 1).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let first = number;
        if line.trim_ascii_end() == b"{" && from.fill_buf()?.trim_ascii_start().starts_with(NAME) {
            number += rest_of_document(&mut from, &mut line)?;
        }
        let place = if first == 1 && at_end(&mut from)? { name.to_string() } else { format!("{name}, line {first}") };
        if line.len() as u64 > LINE {
            let what = if number > first { "state" } else { "line" };
            each(Document::Problem(format!("{place}: the {what} has more than {} megabytes, which is the limit", LINE >> 20)));
            return Ok(());
        }
        // a newline would count as part of a string that is cut off
        documents(line.trim_ascii_end(), &place, each);
    }
}

/// Reads the other lines of a document, and returns their number.
fn rest_of_document(from: &mut impl BufRead, to: &mut Vec<u8>) -> io::Result<u64> {
    let mut lines = 0;
    loop {
        let start = to.len();
        if start as u64 > LINE || from.take((LINE + 1).saturating_sub(start as u64)).read_until(b'\n', to)? == 0 {
            return Ok(lines);
        }
        lines += 1;
        if to.get(start..).is_some_and(|line| line.trim_ascii_end() == b"}") {
            return Ok(lines);
        }
    }
}

fn at_end(from: &mut impl BufRead) -> io::Result<bool> {
    from.fill_buf().map(<[u8]>::is_empty)
}

/// Finds the documents in a line.
fn documents(line: &[u8], place: &str, each: &mut dyn FnMut(Document)) {
    let mut pos = 0;
    let mut any = false;
    while let Some(begin) = find(line.get(pos..).unwrap_or_default()) {
        any = true;
        let text = line.get(pos + begin..).unwrap_or_default();
        let (mut found, taken) = document(text, pos + begin, place);
        if let Document::State(_, _, name) = &mut found {
            *name = label(line.get(pos..pos + begin).unwrap_or_default());
        }
        each(found);
        pos += begin + taken.max(1);
    }
    if !any && !line.trim_ascii().is_empty() {
        let text = String::from_utf8_lossy(line);
        let mut shown: String = text.trim().chars().take(MAX_CHARS_SHOWN).collect();
        if shown.len() < text.trim().len() {
            shown.push('…');
        }
        each(Document::Problem(format!("{place}: this is not a state: `{shown}`")));
    }
}

/// The document at the start of a text, and its size in bytes.
fn document(text: &[u8], offset: usize, place: &str) -> (Document, usize) {
    let digits: Vec<u8> = version(text).unwrap_or_default().iter().copied().take_while(u8::is_ascii_digit).collect();
    let version = String::from_utf8(digits).ok().and_then(|digits| digits.parse::<u64>().ok());
    let foreign =
        |version: u64| Document::Problem(format!("{place}: the state has version {version}, and this rbt reads version {VERSION}"));
    // the rest of it may have another form
    if let Some(version) = version.filter(|version| *version != u64::from(VERSION)) {
        return (foreign(version), text.len());
    }
    let mut documents = Deserializer::from_slice(text).into_iter::<BoxedState>();
    match documents.next() {
        Some(Ok(BoxedState(state))) if state.rbt_state != VERSION => (foreign(state.rbt_state.into()), documents.byte_offset()),
        Some(Ok(BoxedState(state))) if state.is_intact() => (Document::State(state, place.to_string(), None), documents.byte_offset()),
        Some(Ok(_)) => {
            let what = "the state is damaged: it is not as rbt wrote it, because its digest does not match";
            (Document::Problem(format!("{place}, column {}: {what}", offset + 1)), documents.byte_offset())
        }
        Some(Err(e)) => {
            let place = if e.line() > 1 { format!("{place}, line {} of the state", e.line()) } else { place.to_string() };
            let column = if e.line() > 1 { e.column() } else { offset + e.column() };
            let what = if e.is_eof() { "the state is cut off".into() } else { format!("the state is damaged: {}", reason(&e)) };
            (Document::Problem(format!("{place}, column {column}: {what}")), text.len())
        }
        None => (Document::Problem(format!("{place}: the state is cut off")), text.len()),
    }
}

/// The name at the start of a line, before a document: `a: `, `a | CHANGED | (stdout) `.
fn label(before: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(before);
    let word = text.split_whitespace().next()?.trim_end_matches([':', '|']);
    (!word.is_empty()).then(|| word.to_string())
}

#[derive(Deserialize)]
struct BoxedState(Box<State>);

/// The reason without the list of known fields, and without the position, which is relative to the start of the document.
fn reason(e: &serde_json::Error) -> String {
    let text = e.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason);
    text.split_once(", expected one of ").map_or(text, |(reason, _)| reason).to_string()
}

/// The place of the next document in a line.
fn find(line: &[u8]) -> Option<usize> {
    let named = |(at, byte): (usize, &u8)| (*byte == b'{' && version(line.get(at..)?).is_some()).then_some(at);
    line.iter().enumerate().find_map(named)
}

/// The text of the version, if a document starts here.
fn version(text: &[u8]) -> Option<&[u8]> {
    let after_name = text.strip_prefix(b"{")?.trim_ascii_start().strip_prefix(NAME)?;
    Some(after_name.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &[u8]) -> Vec<String> {
        let mut all = Vec::new();
        let mut each = |found: Document| {
            all.push(match found {
                Document::State(state, place, label) => label.into_iter().chain([state.host, place]).collect::<Vec<_>>().join(" "),
                Document::Problem(what) => what,
            });
        };
        read("f", text, &mut each).unwrap();
        all
    }

    fn state(host: &str) -> String {
        serde_json::to_string(&State { rbt_state: VERSION, host: host.into(), ..State::default() }).unwrap()
    }

    #[test]
    fn finds_documents_among_other_lines() {
        let text =
            format!("{}\n\nb: {}\nc | CHANGED | (stdout) {} (stderr) \n{}{}", state("a"), state("b"), state("c"), state("d"), state("e"));
        assert_eq!(found(text.as_bytes()), ["a f, line 1", "b b f, line 3", "c c f, line 4", "d f, line 5", "e f, line 5"]);
        assert_eq!(found(state("a").as_bytes()), ["a f"]);
        assert_eq!(found(b"").len(), 0);
    }

    #[test]
    fn errors_have_a_position() {
        let text = state("a");
        let (whole, next) = (text.as_str(), state("b"));
        let cut = format!("{}\n{next}\n", &whole[..whole.len() / 2]);
        assert_eq!(found(cut.as_bytes()), [&format!("f, line 1, column {}: the state is cut off", whole.len() / 2), "b f, line 2"]);
        assert_eq!(found(b"h: ssh: no route\n"), ["f: this is not a state: `h: ssh: no route`"]);
        assert!(found(whole.replace("\"host\":\"a\"", "\"host\":7").as_bytes())[0].contains("damaged: invalid type: integer `7`"));
        assert!(found(b"{\"rbt_state\":9,\"x\":[}")[0].contains("has version 9"));
        let spaced = state("h").replace("\"rbt_state\":1", "\"rbt_state\": 9");
        assert!(found(spaced.as_bytes())[0].contains("has version 9"), "{spaced}");
        let deep = format!("{{\"rbt_state\":1,\"maps\":{}", "[".repeat(100_000));
        assert!(found(deep.as_bytes())[0].contains("damaged"));
    }

    /// Other programs add blanks and lines.
    #[test]
    fn documents_may_be_formatted() {
        let pretty = |host: &str| {
            let value: serde_json::Value = serde_json::from_str(&state(host)).unwrap();
            serde_json::to_string_pretty(&value).unwrap().replacen("{", "{\n\"rbt_state\": 1,", 1).replace(",\n  \"rbt_state\": 1", "")
        };
        let text = format!("{}\n{}\nb: {{ \"rbt_state\" : 1, {}\n", pretty("a"), pretty("c"), &state("b")["{\"rbt_state\":1,".len()..]);
        let last = text.lines().count();
        assert_eq!(found(text.as_bytes()), ["a f, line 1".into(), format!("c f, line {}", last / 2 + 1), format!("b b f, line {last}")]);
        assert_eq!(found(pretty("a").as_bytes()), ["a f"]);
        let cut = pretty("a").replace("\n}", "");
        assert!(found(cut.as_bytes())[0].contains("of the state, column") && found(cut.as_bytes())[0].contains("cut off"));
        assert_eq!(found(b"{\n\"a\": 1\n}\n").len(), 3);
    }

    /// Each prefix of a document, and each document with a changed byte, yields a document or a message.
    #[test]
    fn nothing_panics() {
        let text = state("a");
        for i in 0..text.len() {
            found(&text.as_bytes()[..i]);
            for byte in [0, b'"', b'{', b'9', 0xff] {
                let mut changed = text.clone().into_bytes();
                changed[i] = byte;
                found(&changed);
            }
        }
    }
}
