//! Keeps the pages in man/ consistent with the tables of the program.
//!
//! This test generates the text between `.\" from the tables: NAME` and `.\" end`. The rest is written by hand.
//! `UPDATE=1 cargo test --test man` updates the generated text.

use rbt::builtins::Builtin;
use rbt::builtins::options::list;
use rbt::diag::Source;
use rbt::diag::codes::{self, sentence};
use rbt::expect::FUNCTIONS;
use rbt::probes::{ContextFeatures, KINDS};
use rbt::render::Format;
use rbt::repl::commands::{Command, TABLE};
use rbt::settings::{ENV_ONLY, SETTINGS};
use rbt::tools::{Header, SUBJECTS, TOOLS, Tool};
use rbt::verbs::{self, VERBS, Verb, VerbOption};
use rbt::{builtins, cli, help, render, sema, syntax, verdict};
use std::path::{Path, PathBuf};

const FROM: &str = ".\\\" from the tables: ";
const END: &str = ".\\\" end";

/// The tables on each page.
const PAGES: &[(&str, &[&str])] = &[
    ("rbt-check.1", &["check", "rules", "reports"]),
    (
        "rbt.1",
        &[
            "synopsis",
            "options",
            "stages",
            "verbs",
            "verb options",
            "commands",
            "fmt",
            "snapshot",
            "merge",
            "cost",
            "serve",
            "build",
            "settings",
            "environment",
            "formats",
            "expectations",
            "reports",
            "codes",
        ],
    ),
    ("rbt-language.7", &["keywords", "probes", "builtins", "differences"]),
    ("rbt-one-liners.7", &["one-liners"]),
];

#[test]
fn pages_match_the_tables() {
    for (name, _) in PAGES {
        let now = std::fs::read_to_string(page(name)).unwrap();
        let new = filled(name, &now);
        if now == new {
            continue;
        }
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(page(name), new).unwrap();
            continue;
        }
        let differs = new.lines().zip(now.lines()).find(|(a, b)| a != b);
        panic!("man/{name} differs from the tables (UPDATE=1 updates it): {differs:?}");
    }
}

/// If groff is installed, it reports no problems in the pages.
#[test]
fn pages_are_well_formed() {
    for (name, _) in PAGES {
        let run = std::process::Command::new("groff").args(["-man", "-Tutf8", "-ww", "-z"]).arg(page(name)).output();
        let Ok(out) = run else {
            assert!(!std::env::var("RBT_TEST_REQUIRE").is_ok_and(|v| v == "all"), "needs groff");
            return eprintln!("skipped: needs groff");
        };
        let complaints = String::from_utf8_lossy(&out.stderr);
        assert!(complaints.is_empty(), "{complaints}");
    }
}

/// Every table is on its page, and `PAGES` lists every page.
#[test]
fn pages_are_complete() {
    for (name, tables) in PAGES {
        let page = std::fs::read_to_string(page(name)).unwrap();
        for table in *tables {
            assert!(page.contains(&format!("{FROM}{table}\n")), "man/{name} has no section {table}");
        }
    }
    for entry in std::fs::read_dir(page("")).unwrap() {
        let name = entry.unwrap().file_name();
        // These are README's pictures, which tests/pictures.sh makes. README must name each of them.
        if name == "pictures" {
            let readme = std::fs::read_to_string(page("../README.md")).unwrap();
            for picture in std::fs::read_dir(page("pictures")).unwrap() {
                let picture = picture.unwrap();
                assert!(readme.contains(&format!("man/pictures/{}", picture.file_name().display())), "README has no {picture:?}");
                assert!(picture.metadata().unwrap().len() < 60_000, "{picture:?} is large");
            }
            continue;
        }
        assert!(PAGES.iter().any(|(page, _)| *page == name), "man/{} is not in PAGES", name.display());
    }
}

/// Pages and sections that other pages refer to exist.
#[test]
fn references_exist() {
    for (name, _) in PAGES {
        let text = std::fs::read_to_string(page(name)).unwrap();
        for (at, _) in text.match_indices("rbt\\-") {
            let rest = text[at..].replacen("\\-", "-", 2);
            let word: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
            let Some(section) = rest[word.len()..].strip_prefix(" (").and_then(|r| r.split(')').next()) else { continue };
            assert!(page(&format!("{word}.{section}")).exists(), "man/{name} refers to {word}({section})");
        }
    }
}

/// Commands and scripts are in no-fill blocks, so that readers can copy them, and no page refers to itself.
#[test]
fn examples_are_not_filled() {
    for (name, _) in PAGES {
        let text = std::fs::read_to_string(page(name)).unwrap();
        assert!(!text.contains(&format!(" in {}", reference(name))), "man/{name} refers to itself");
        let mut filled = true;
        for (at, line) in text.lines().enumerate() {
            match line {
                ".EX" | ".nf" => filled = false,
                ".EE" | ".fi" => filled = true,
                _ if filled => assert!(!is_example(line), "man/{name}:{}: an example outside of a no-fill block: {line}", at + 1),
                _ => {}
            }
        }
        assert!(filled, "man/{name}: an .EX or .nf without an end");
    }
}

/// Is this line of a page a command or a script? A line with a long quotation in backquotes counts as one, too.
fn is_example(line: &str) -> bool {
    let plain = line.replace("\\-", "-").replace("\\(ga", "`");
    let command = ["rbt -e ", "rbt -f ", "rbt -l ", "sudo ", "$ ", "# "].iter().any(|start| plain.starts_with(start));
    let quoted = plain.split('`').skip(1).step_by(2).any(|part| part.chars().count() > 60);
    let script = plain.contains(" { ") && plain.trim_end().ends_with('}') && plain.trim_start_matches(".B ").chars().count() > 60;
    command || quoted || script || plain.contains("\\f(CR")
}

/// The reference to a page, as text spells it: `rbt\-language(7)`.
fn reference(page: &str) -> String {
    let (name, section) = page.rsplit_once('.').unwrap_or((page, ""));
    format!("{}({section})", escaped(name))
}

fn page(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("man").join(name)
}

/// Generates the sections of a page from the tables.
fn filled(page: &str, text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        out += &format!("{line}\n");
        if let Some(name) = line.strip_prefix(FROM) {
            // The help shows some texts, too, so they may refer to the page that contains them.
            out += &section(name).replace(&format!(" in {}", reference(page)), "");
            out += &format!("{END}\n");
            assert!(lines.any(|l| l == END), "{name} has no end");
        }
    }
    out
}

fn section(name: &str) -> String {
    match name {
        "synopsis" => cli::usage().lines().map(|line| format!("{}\n", form(line.trim_start()))).collect(),
        "options" => options(&cli::command()),
        "fmt" => options(&subcommand("fmt")),
        "check" => options(&subcommand("check")),
        "rules" => verdict::RULES.iter().map(rule).collect(),
        "codes" => codes::all().filter(|c| verdict::rule(c.name).is_none()).map(rule).collect(),
        "snapshot" => options(&subcommand("snapshot")),
        "merge" => options(&subcommand("merge")),
        "serve" => options(&subcommand("serve")),
        "cost" => options(&subcommand("cost")),
        "build" => options(&subcommand("build")),
        "probes" => KINDS.iter().map(|k| item(k.usage(), &[k.doc().into()], k.example())).collect(),
        "keywords" => syntax::KEYWORDS.iter().map(|k| item(k.form, &[k.doc.into()], k.example)).collect(),
        "builtins" => builtins(),
        "settings" => SETTINGS.iter().map(setting).collect(),
        "environment" => ENV_ONLY.iter().map(|(n, doc)| item(&format!("RBT_{}", n.to_uppercase()), &[format!("{doc}.")], "")).collect(),
        "formats" => render::FORMATS.iter().map(format).collect(),
        "expectations" => FUNCTIONS.iter().map(|f| item(f.form, &[sentence(f.doc)], &format!("--expect '{}'", f.example))).collect(),
        "reports" => verdict::FORMATS.iter().map(|f| item(f.name, &[sentence(f.doc)], "")).collect(),
        "stages" => cli::STAGES.iter().map(stage).collect(),
        "verbs" => VERBS.iter().map(verb).collect(),
        "verb options" => verbs::OPTIONS.iter().map(verb_option).collect(),
        "commands" => TABLE.iter().map(command).collect(),
        "one-liners" => SUBJECTS.iter().map(|(name, asked)| subject(name, asked)).collect(),
        "differences" => {
            render::DIFFERENCES.iter().chain(rbt::cdecl::DIFFERENCES).map(|(topic, doc)| item(topic, &[(*doc).into()], "")).collect()
        }
        _ => panic!("unknown table {name}"),
    }
}

/// Formats a line of the synopsis. Words in capitals are placeholders and become italic. Brackets, bars and dots are roman. All
/// other text is literal and becomes bold.
fn form(line: &str) -> String {
    let (mut out, mut word) = (String::new(), String::new());
    let end = |word: &mut String, out: &mut String| {
        if word.is_empty() {
            return;
        }
        let placeholder = word.chars().all(|c| c.is_ascii_uppercase());
        let font = if placeholder { 'I' } else { 'B' };
        *out += &if word.starts_with('.') { word.clone() } else { format!("\\f{font}{}\\fP", escaped(word)) };
        word.clear();
    };
    for c in line.chars() {
        if "[]| ".contains(c) {
            end(&mut word, &mut out);
            out.push(c);
        } else {
            word.push(c);
        }
    }
    end(&mut word, &mut out);
    out
}

fn subcommand(name: &str) -> clap::Command {
    let row = cli::subcommands::find(name).unwrap_or_else(|| panic!("{name} is not a subcommand"));
    (row.command)()
}

/// Formats a diagnostic code, its level, and its meaning.
fn rule(rule: &verdict::Rule) -> String {
    let level = format!("{:?}", rule.level).to_lowercase();
    item(&format!("{} ({level})", rule.name), &[sentence(rule.doc)], "")
}

/// Formats a term, the sentences that describe it, and a script in a fixed-width font.
fn item(term: &str, about: &[String], example: &str) -> String {
    let mut out = format!(".TP\n.B \"{}\"\n", escaped(term).replace('"', "\\(dq"));
    for sentence in about {
        out += &format!("{}\n", guarded(&escaped(sentence)));
    }
    if !example.is_empty() {
        out += &format!(".nf\n\\f(CR{}\\fP\n.fi\n", escaped(example));
    }
    out
}

fn options(command: &clap::Command) -> String {
    let mut headings: Vec<&str> =
        command.get_arguments().filter_map(|a| a.get_help_heading()).filter(|heading| !heading.is_empty()).collect();
    headings.dedup();
    let mut out = String::new();
    // clap adds two options without a heading at the end.
    for heading in headings.iter().copied().map(Some).chain([None]) {
        if !headings.is_empty() {
            out += &format!(".SS {}\n", heading.unwrap_or("About rbt"));
        }
        for a in command.get_arguments().filter(|a| a.get_help_heading() == heading && !a.is_hide_set() && !a.is_positional()) {
            let short = a.get_short().map(|c| format!("-{c}"));
            let long = a.get_long().map(|l| format!("--{l}"));
            let mut term: Vec<String> = short.into_iter().chain(long).collect();
            if a.get_action().takes_values() {
                let value = a
                    .get_value_names()
                    .and_then(|v| v.first())
                    .map_or(String::new(), |v| if a.is_require_equals_set() { format!("[={v}]") } else { format!(" {v}") });
                term.iter_mut().for_each(|t| *t += &value);
            }
            let about = a.get_help().map(|h| h.to_string()).unwrap_or_default();
            out += &item(&term.join(", "), &[format!("{}.", about.trim_end_matches('.'))], "");
        }
        if heading.is_none() && !headings.is_empty() {
            out += &item(
                "-h, --help",
                &["Print a summary of the options; --help also shows settings, environment variables and examples.".into()],
                "",
            );
            out += &item("-V, --version", &["Print the version.".into()], "");
        }
    }
    out
}

/// Combines adjacent items that have the same description.
fn builtins() -> String {
    let rows: Vec<&'static Builtin> = builtins::all().collect();
    rows.chunk_by(|a, b| a.doc == b.doc).map(|same| builtin(same[0], &same[1..])).collect()
}

fn builtin(row: &'static Builtin, also: &[&'static Builtin]) -> String {
    let mut about = vec![row.doc.to_string()];
    if row.needs != ContextFeatures::NONE {
        let kinds = KINDS.iter().filter(|k| k.offers().contains(row.needs)).filter_map(|k| k.names().first());
        about.push(format!("Probes: {}.", kinds.copied().collect::<Vec<_>>().join(", ")));
    }
    if row.risky {
        about.push("Requires --unsafe.".into());
    }
    let names: String = also.iter().map(|r| format!(", {}", r.name)).collect();
    item(&format!("{}{names}", help::signature(row)), &about, row.example)
}

fn setting(s: &rbt::settings::Setting) -> String {
    item(s.name, &[format!("{}.", s.doc), format!("{}.", s.values_text())], "")
}

fn stage(s: &cli::Stage) -> String {
    let also = if s.aliases.is_empty() { String::new() } else { format!(" (also {})", s.aliases.join(", ")) };
    item(s.name, &[format!("{}{also}.", sentence(s.doc).trim_end_matches('.'))], "")
}

fn verb(v: &Verb) -> String {
    let options: Vec<String> = v.options.iter().map(|o| format!("--{o}")).collect();
    let about = [sentence(v.doc), sentence(v.long_help), format!("Options: {}.", options.join(", "))];
    let mut out = item(&format!("rbt {} {}", v.name, v.usage), &about, "");
    out += ".nf\n";
    for (line, purpose) in v.examples {
        out += &format!("\\f(CR{}\\fP\n\\ \\ {}\n", escaped(line), escaped(&sentence(purpose)));
    }
    out + ".fi\n"
}

fn verb_option(o: &VerbOption) -> String {
    let value = o.value.map(|v| format!(" {v}")).unwrap_or_default();
    let short = o.short.map(|c| format!("-{c}{value}, ")).unwrap_or_default();
    item(&format!("{short}--{}{value}", o.name), &[sentence(o.doc)], "")
}

/// The commands of the prompt.
fn command(c: &Command) -> String {
    item(format!(":{} {}", c.name, c.usage).trim_end(), &[sentence(c.doc)], "")
}

/// The tools of a subject, or an empty string if it has none.
fn subject(name: &str, asked: &str) -> String {
    let of_subject = |s: &&Tool| Header::of(s.text).subject() == name;
    let tools: String = TOOLS.iter().filter(of_subject).map(tool).collect();
    if tools.is_empty() {
        return tools;
    }
    format!(".SH \"{}\"\n{}\n{tools}", escaped(&name.to_uppercase()), guarded(&escaped(&sentence(asked))))
}

/// The description in the comment at the top of a tool, its options, and sample output.
fn tool(tool: &Tool) -> String {
    let header = Header::of(tool.text);
    let mut out = format!(".SS \"{}\"\n{}\n", escaped(tool.name), guarded(&escaped(header.purpose)));
    let mut apart = false;
    let mut after_verbatim = false;
    for line in &header.rest {
        if line.is_empty() {
            apart = true;
            continue;
        }
        // Indented text remains as it is.
        let verbatim = line.starts_with(' ');
        out += if apart { ".PP\n" } else { "" };
        out += if (verbatim || after_verbatim) && !apart { ".br\n" } else { "" };
        out += &format!("{}\n", guarded(&escaped(line)));
        apart = false;
        after_verbatim = verbatim;
    }
    let source = Source { name: tool.name.into(), text: tool.text.into() };
    let options = sema::options(&syntax::parse(&source).unwrap_or_else(|_| panic!("{} is not a valid script", tool.name)));
    for line in list(&options).iter().take(options.len()) {
        let (option, about) = line.trim_start().split_once("  ").unwrap_or((line.trim_start(), ""));
        out += &item(option, &[sentence(about.trim_start())], "");
    }
    if rbt::tools::follows(tool.text) {
        out += &format!(".PP\n{}\n", rbt::tools::FOLLOWS_NOTE.iter().map(|l| guarded(&escaped(l))).collect::<Vec<_>>().join("\n"));
    }
    out += &format!(".PP\nNeeds: {}\n", header.needs.iter().map(|n| guarded(&escaped(n))).collect::<Vec<_>>().join("\n"));
    let sample: String = header.example.iter().map(|l| format!("{}\n", guarded(&escaped(l)))).collect();
    out + &format!(".PP\n.nf\n\\f(CR{sample}\\fP\n.fi\n")
}

fn format(of: &Format) -> String {
    let endings = if of.endings.is_empty() { String::new() } else { format!("File extensions: {}.", of.endings.join(", ")) };
    item(of.name, &[of.doc.into(), endings], "")
}

/// Escapes text for roff, which would otherwise change quotes, hyphens and backslashes.
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
            c if !c.is_ascii() => out += &format!("\\[u{:04X}]", u32::from(c)),
            c => out.push(c),
        }
    }
    out
}

/// Guards a line that starts with a dot, so that roff does not read it as a request.
fn guarded(line: &str) -> String {
    if line.starts_with('.') { format!("\\&{line}") } else { line.to_string() }
}
