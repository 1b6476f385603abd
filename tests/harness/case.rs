//! Parses `.case` files. `tests/harness/mod.rs` describes their syntax.

use regex::Regex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A case.
#[derive(Clone, Debug)]
pub struct Case {
    pub group: String,
    pub file: PathBuf,
    pub name: String,
    pub needs: Vec<String>,
    pub host: bool,
    /// The case takes several seconds, and runs only with `cargo test --test long`.
    pub long: bool,
    /// The kernels of virtual machines that the case runs in, by their names in [`super::vm`].
    pub vm: Vec<String>,
    pub timeout: f64,
    pub status: Status,
    pub signal: Option<i32>,
    pub files: Vec<(String, String)>,
    pub expect: Vec<Expect>,
    /// The values of the keys with plain text: PROG, ARGS, SH, ENV, STDIN, SETUP, BEFORE and AFTER.
    text: BTreeMap<String, String>,
}

/// The accepted exit status.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Status {
    Is(i32),
    NonZero,
    Any,
}

/// An expectation.
#[derive(Clone, Debug)]
pub struct Expect {
    /// The expectation applies to standard error instead of standard output.
    pub err: bool,
    pub want: Want,
    pub text: String,
}

/// How the text is compared.
#[derive(Clone, Debug, PartialEq)]
pub enum Want {
    Line,
    Has,
    Re,
    All,
    Not,
    /// The exact text, with its line numbers in the file (from 0), which `UPDATE=1` replaces.
    Exact(Range<usize>),
}

const TEXT: &[&str] = &["PROG", "ARGS", "SH", "ENV", "STDIN", "SETUP", "BUNDLE", "BEFORE", "AFTER"];

impl Case {
    pub fn full_name(&self) -> String {
        format!("{}::{}::{}", self.group, super::stem(&self.file), self.name)
    }

    /// Does the case contain one of these words?
    pub fn mentions(&self, words: &[&str]) -> bool {
        let files = self.files.iter().map(|(_, body)| body);
        let expected = self.expect.iter().map(|e| &e.text);
        self.text.values().chain(files).chain(expected).any(|t| words.iter().any(|w| t.contains(w)))
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        self.text.get(key).map(String::as_str)
    }
}

/// A value and its lines.
struct Field {
    key: String,
    value: String,
    lines: Range<usize>,
}

pub fn parse(group: &str, file: &Path, text: &str) -> Result<Vec<Case>, String> {
    let mut defaults = Case {
        group: group.into(),
        file: file.into(),
        name: String::new(),
        needs: Vec::new(),
        host: true,
        long: false,
        vm: Vec::new(),
        timeout: 20.0,
        status: Status::Is(0),
        signal: Some(libc::SIGINT),
        files: Vec::new(),
        expect: Vec::new(),
        text: BTreeMap::new(),
    };
    let mut cases: Vec<Case> = Vec::new();
    for field in fields(text)? {
        if field.key == "NAME" {
            if !field.value.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return Err(format!("line {}: a name consists of letters, digits and _", field.lines.start));
            }
            if cases.iter().any(|c| c.name == field.value) {
                return Err(format!("line {}: {} is defined twice", field.lines.start, field.value));
            }
            cases.push(Case { name: field.value, ..defaults.clone() });
            continue;
        }
        let at = field.lines.start;
        set(cases.last_mut().unwrap_or(&mut defaults), field).map_err(|e| format!("line {at}: {e}"))?;
    }
    for c in &cases {
        if c.text("PROG").or(c.text("ARGS")).or(c.text("SH")).is_none() {
            return Err(format!("{}: neither PROG nor ARGS nor SH", c.name));
        }
    }
    Ok(cases)
}

fn fields(text: &str) -> Result<Vec<Field>, String> {
    let lines: Vec<&str> = text.lines().collect();
    let (mut out, mut i) = (Vec::new(), 0);
    while i < lines.len() {
        let line = lines[i];
        if line.trim().is_empty() || line.starts_with('#') {
            i += 1;
            continue;
        }
        let (key, first) = line.split_once(' ').unwrap_or((line, ""));
        if !key.chars().all(|c| c.is_ascii_uppercase() || c == '_') || key.is_empty() {
            return Err(format!("line {}: `KEY value` expected, not {line:?}", i + 1));
        }
        let start = i + 1;
        let mut end = start;
        // An empty line belongs to the value if an indented line follows.
        for (j, l) in lines.iter().enumerate().skip(start) {
            if l.starts_with([' ', '\t']) {
                end = j + 1;
            } else if !l.trim().is_empty() {
                break;
            }
        }
        out.push(Field { key: key.into(), value: value(first.trim(), &lines[start..end]), lines: i..end });
        i = end;
    }
    Ok(out)
}

/// Joins the rest of the first line and the indented lines.
fn value(first: &str, more: &[&str]) -> String {
    let bar = more.first().is_some_and(|l| l.trim_start().starts_with('|'));
    let indent = more.iter().filter(|l| !l.trim().is_empty()).map(|l| l.len() - l.trim_start().len()).min().unwrap_or(0);
    let body = more.iter().map(|l| match bar {
        true => l.trim_start().strip_prefix('|').unwrap_or(""),
        false => l.get(indent..).unwrap_or(""),
    });
    let mut all: Vec<&str> = body.collect();
    if !first.is_empty() {
        all.insert(0, first);
    }
    all.join("\n")
}

fn set(case: &mut Case, f: Field) -> Result<(), String> {
    let v = f.value;
    let bool = |v: &str| match v {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(format!("expected yes or no, not {v:?}")),
    };
    match f.key.as_str() {
        "NEEDS" => case.needs.extend(v.split([',', ' ', '\n']).filter(|w| !w.is_empty()).map(String::from)),
        "HOST" => case.host = bool(&v)?,
        "LONG" => case.long = bool(&v)?,
        "VM" => case.vm = super::vm::releases(&v)?,
        "TIMEOUT" => case.timeout = v.parse().map_err(|_| format!("not a number of seconds: {v}"))?,
        "STATUS" => {
            case.status = match v.as_str() {
                "nonzero" => Status::NonZero,
                "any" => Status::Any,
                n => Status::Is(n.parse().map_err(|_| format!("not a status: {n}"))?),
            }
        }
        "SIGNAL" => case.signal = signal(&v)?,
        "FILE" => {
            let (name, body) = v.split_once('\n').unwrap_or((&v, ""));
            case.files.push((name.trim().into(), format!("{body}\n")));
        }
        key if TEXT.contains(&key) => {
            case.text.insert(key.into(), v);
        }
        key => {
            let (err, how) = match key.split_once('_').unwrap_or((key, "")) {
                ("EXPECT", how) => (false, how),
                ("ERR", how) => (true, how),
                _ => return Err(format!("unknown key {key}")),
            };
            expect(case, err, how, v, f.lines)?;
        }
    }
    Ok(())
}

fn expect(case: &mut Case, err: bool, how: &str, v: String, lines: Range<usize>) -> Result<(), String> {
    let mut push = |want: Want, text: &str| {
        if matches!(want, Want::Re | Want::All | Want::Not) {
            // Placeholders are replaced later, by plain words.
            let probe = text.replace("{{", "").replace("}}", "");
            Regex::new(&probe).map_err(|e| e.to_string())?;
        }
        case.expect.push(Expect { err, want, text: text.into() });
        Ok(())
    };
    let per_line = match how {
        "" => Want::Line,
        "HAS" => Want::Has,
        "RE" => Want::Re,
        "NOT" => Want::Not,
        "ALL" => return push(Want::All, &v),
        "EXACT" => return push(Want::Exact(lines), &v),
        _ => return Err(format!("unknown key …_{how}")),
    };
    v.split('\n').try_for_each(|l| push(per_line.clone(), l))
}

fn signal(v: &str) -> Result<Option<i32>, String> {
    Ok(Some(match v {
        "none" => return Ok(None),
        "INT" => libc::SIGINT,
        "TERM" => libc::SIGTERM,
        "USR1" => libc::SIGUSR1,
        "HUP" => libc::SIGHUP,
        "KILL" => libc::SIGKILL,
        _ => return Err(format!("unknown signal {v}")),
    }))
}
