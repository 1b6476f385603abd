//! Keeps man/rbt.1 true: what its tables say is what the tables of the program say.
//!
//! Between `.\" from the tables: NAME` and `.\" end` the page is written by this test; all else is written by hand.
//! `UPDATE=1 cargo test --test man` writes it anew.

use rbt::builtins::{Accepts, Builtin, Param, Returns};
use rbt::probes::{Caps, KINDS};
use rbt::settings::{ENV_ONLY, SETTINGS};
use rbt::types::Type;
use rbt::{builtins, cli, render};
use std::path::{Path, PathBuf};

const FROM: &str = ".\\\" from the tables: ";
const END: &str = ".\\\" end";

#[test]
fn the_page_says_what_the_tables_say() {
    let now = std::fs::read_to_string(page()).unwrap();
    let new = filled(&now);
    if now == new {
        return;
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(page(), new).unwrap();
        return;
    }
    let differs = new.lines().zip(now.lines()).find(|(a, b)| a != b);
    panic!("man/rbt.1 is not what the tables give (UPDATE=1 writes it): {differs:?}");
}

/// groff, where it is installed, has nothing to complain of, and the page reads as it should.
#[test]
fn the_page_is_well_formed() {
    let run = std::process::Command::new("groff").args(["-man", "-Tutf8", "-ww", "-z"]).arg(page()).output();
    let Ok(out) = run else {
        assert!(!std::env::var("RBT_TEST_REQUIRE").is_ok_and(|v| v == "all"), "needs groff");
        return eprintln!("skipped: needs groff");
    };
    let complaints = String::from_utf8_lossy(&out.stderr);
    assert!(complaints.is_empty(), "{complaints}");
}

/// Every row of every table is on the page.
#[test]
fn nothing_is_left_out() {
    let page = std::fs::read_to_string(page()).unwrap();
    for name in ["options", "fmt", "probes", "builtins", "settings", "environment", "formats", "stages", "differences"] {
        assert!(page.contains(&format!("{FROM}{name}\n")), "no section {name}");
    }
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("man/rbt.1")
}

/// The page with its sections from the tables written anew.
fn filled(page: &str) -> String {
    let mut out = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        out += &format!("{line}\n");
        if let Some(name) = line.strip_prefix(FROM) {
            out += &section(name);
            out += &format!("{END}\n");
            assert!(lines.any(|l| l == END), "{name} has no end");
        }
    }
    out
}

fn section(name: &str) -> String {
    match name {
        "options" => options(&cli::command()),
        "fmt" => options(&cli::fmt::command()),
        "probes" => KINDS.iter().map(|k| item(k.usage(), &[k.doc().into()], k.example())).collect(),
        "builtins" => builtins(),
        "settings" => SETTINGS.iter().map(setting).collect(),
        "environment" => ENV_ONLY.iter().map(|(n, doc)| item(&format!("RBT_{}", n.to_uppercase()), &[format!("{doc}.")], "")).collect(),
        "formats" => render::FORMATS.iter().map(|f| item(f.name, &[f.doc.into()], "")).collect(),
        "stages" => cli::STAGES.iter().map(stage).collect(),
        "differences" => render::DIFFERENCES.iter().map(|(topic, doc)| item(topic, &[(*doc).into()], "")).collect(),
        _ => panic!("no table is called {name}"),
    }
}

/// A term, sentences about it, and a script in type of one width.
fn item(term: &str, about: &[String], example: &str) -> String {
    let mut out = format!(".TP\n.B \"{}\"\n", escaped(term).replace('"', "\\(dq"));
    for sentence in about {
        out += &format!("{}\n", guarded(&escaped(sentence)));
    }
    if !example.is_empty() {
        out += &format!(".br\n\\f(CR{}\\fP\n", escaped(example));
    }
    out
}

fn options(command: &clap::Command) -> String {
    let mut headings: Vec<&str> = command.get_arguments().filter_map(|a| a.get_help_heading()).collect();
    headings.dedup();
    let mut out = String::new();
    // clap adds its own two, without a heading, at the end
    for heading in headings.iter().copied().map(Some).chain([None]) {
        if !headings.is_empty() {
            out += &format!(".SS {}\n", heading.unwrap_or("About rbt"));
        }
        for a in command.get_arguments().filter(|a| a.get_help_heading() == heading && !a.is_hide_set() && !a.is_positional()) {
            let short = a.get_short().map(|c| format!("-{c}"));
            let long = a.get_long().map(|l| format!("--{l}"));
            let mut term: Vec<String> = short.into_iter().chain(long).collect();
            if a.get_action().takes_values() {
                let value = a.get_value_names().and_then(|v| v.first()).map_or(String::new(), |v| format!(" {v}"));
                term.iter_mut().for_each(|t| *t += &value);
            }
            let about = a.get_help().map(|h| h.to_string()).unwrap_or_default();
            out += &item(&term.join(", "), &[format!("{about}.")], "");
        }
        if heading.is_none() && !headings.is_empty() {
            out += &item("-h, --help", &["A summary of the options; with settings, environment and examples when long.".into()], "");
            out += &item("-V, --version", &["The version.".into()], "");
        }
    }
    out
}

/// Neighbours of the same description are one item.
fn builtins() -> String {
    let rows: Vec<&'static Builtin> = builtins::all().collect();
    rows.chunk_by(|a, b| a.doc == b.doc).map(|same| builtin(same[0], &same[1..])).collect()
}

fn builtin(row: &'static Builtin, also: &[&'static Builtin]) -> String {
    let mut about = vec![row.doc.to_string()];
    if row.needs != Caps::NONE {
        let kinds = KINDS.iter().filter(|k| k.offers().has(row.needs)).filter_map(|k| k.names().first());
        about.push(format!("Probes: {}.", kinds.copied().collect::<Vec<_>>().join(", ")));
    }
    if row.risky {
        about.push("Wants --unsafe.".into());
    }
    let names: String = also.iter().map(|r| format!(", {}", r.name)).collect();
    item(&format!("{}{names}", signature(row)), &about, row.example)
}

/// `str(address[, length])`, `uint64 pid(init|curr_ns)`.
fn signature(row: &Builtin) -> String {
    let mut text = String::new();
    if let Returns::Always(ty) = &row.returns
        && *ty != Type::Void
    {
        text += &format!("{ty} ");
    }
    text += row.name;
    // what is always written without parentheses has none here
    if !row.params.is_empty() || row.example.contains(&format!("{}(", row.name)) {
        text += "(";
        let mut close = String::new();
        for (i, p) in row.params.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            if p.optional {
                text += &format!("[{comma}{}", param(p));
                close.push(']');
            } else {
                text += &format!("{comma}{}", param(p));
            }
        }
        text += &close;
        text.push(')');
    }
    text
}

fn param(p: &Param) -> String {
    let name = if let Accepts::Word(words) = p.accepts {
        words.join("|")
    } else if let Accepts::WordOrInt(words) = p.accepts {
        format!("{}|n", words.join("|"))
    } else {
        p.name.to_string()
    };
    if p.rest { format!("{name}...") } else { name }
}

fn setting(s: &rbt::settings::Setting) -> String {
    let default = match s.default_text().as_str() {
        "" => "empty".to_string(),
        text if text.contains(|c: char| !c.is_alphanumeric() && c != '_') => format!("\"{text}\""),
        text => text.to_string(),
    };
    item(s.name, &[format!("{}: {}.", s.doc, s.values), format!("Default: {default}.")], "")
}

fn stage(s: &cli::Stage) -> String {
    let also = if s.aliases.is_empty() { String::new() } else { format!(" (also {})", s.aliases.join(", ")) };
    item(s.name, &[format!("{}{also}.", s.doc)], "")
}

/// As roff has it: what it would set as typographic quotes, hyphens and escapes is meant as typed.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' => out += "\\e",
            '-' => out += "\\-",
            '\'' => out += "\\(aq",
            '`' => out += "\\(ga",
            '^' => out += "\\(ha",
            '~' => out += "\\(ti",
            c => out.push(c),
        }
    }
    out
}

/// A line that starts with a dot is not a request.
fn guarded(line: &str) -> String {
    if line.starts_with('.') { format!("\\&{line}") } else { line.to_string() }
}
