//! `rbt help WORD`: help on any word. Its entries come from the rows of the tables.

use std::fmt::Write;

use crate::builtins::{self, Accepts, Builtin, Param, Returns};
use crate::cli::{self, subcommands::SUBCOMMANDS};
use crate::diag::{Source, codes, nearest};
use crate::expect::FUNCTIONS;
use crate::failure::Failure;
use crate::probes::{ContextFeatures, KINDS};
use crate::settings::{ENV_ONLY, SETTINGS};
use crate::syntax::KEYWORDS;
use crate::system::machine::constants::{self, Constant};
use crate::tools::{self, Header, OTHER_TOOLS, SUBJECTS, TOOLS};
use crate::types::Type;
use crate::verbs::{OPTIONS, VERBS};
use crate::{sema, syntax};

/// A name with its help text.
pub struct Entry {
    /// Its names; the first is canonical.
    pub names: Vec<String>,
    /// Its kind, such as `verb` or `function`.
    pub what: &'static str,
    /// A line of documentation.
    pub line: String,
    text: Text,
}

/// The help text, built on demand because the text of a tool requires parsing its script.
type Text = Box<dyn Fn() -> String>;

/// Maximum width of a line in a list.
const WIDTH: usize = 110;
/// Maximum number of names after `See also`.
const MOST_RELATED: usize = 12;
/// Maximum number of listed entries that only mention a word.
const MAX_MENTIONS: usize = 40;

impl Entry {
    fn new(names: Vec<String>, what: &'static str, line: impl Into<String>, text: impl Fn() -> String + 'static) -> Self {
        Self { names, what, line: line.into(), text: Box::new(text) }
    }

    /// The help text.
    pub fn text(&self) -> String {
        (self.text)()
    }

    fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    fn is_called(&self, word: &str) -> bool {
        self.names.iter().any(|n| n == word)
    }

    fn is_called_like(&self, word: &str) -> bool {
        self.names.iter().any(|n| n.eq_ignore_ascii_case(word))
    }

    fn mentions(&self, word: &str) -> bool {
        self.names.iter().any(|n| n.to_lowercase().contains(word)) || self.line.to_lowercase().contains(word)
    }
}

/// All entries, in the order in which lists show them.
pub fn entries() -> Vec<Entry> {
    let mut all = Vec::new();
    all.extend(VERBS.iter().map(|v| Entry::new(vec![v.name.into()], "verb", v.doc, || cli::verbs::help(v))));
    all.extend(SUBCOMMANDS.iter().map(|s| {
        let text = || format!("Usage: rbt {} {}\n\n{}. `rbt {} --help` shows its options.\n", s.name, s.usage, s.doc, s.name);
        Entry::new(vec![s.name.into()], "subcommand", s.doc, text)
    }));
    all.extend(TOOLS.iter().map(|s| {
        let text = || {
            let source = Source { name: s.name.into(), text: s.text.into() };
            let options = syntax::parse(&source).map(|tree| sema::options(&tree)).unwrap_or_default();
            tools::help(s.name, s.text, &options)
        };
        Entry::new(vec![s.name.into(), format!("{}.bt", s.name)], "tool", Header::of(s.text).line(), text)
    }));
    all.extend(OTHER_TOOLS.iter().map(|(other, here)| {
        let text = move || format!("rbt's counterpart of {other} is `{here}`; see `{here} --help`.\n");
        Entry::new(vec![(*other).into()], "elsewhere", format!("see {here}"), text)
    }));
    all.extend(SUBJECTS.iter().map(|(subject, doc)| {
        let text = move || format!("{doc}\n\n{}", tools::list(Some(subject), false));
        Entry::new(vec![(*subject).into()], "tools", *doc, text)
    }));
    all.extend(KINDS.iter().map(|k| {
        let text = || format!("{}\n\n{}\n\n  {}\n", k.usage(), k.doc(), k.example());
        Entry::new(k.names().iter().map(|n| (*n).into()).collect(), "probe", first_sentence(k.doc()), text)
    }));
    all.extend(builtins::all().map(|row| {
        let what = if row.params.is_empty() && !row.example.contains(&format!("{}(", row.name)) { "variable" } else { "function" };
        Entry::new(vec![row.name.into()], what, first_sentence(row.doc), || builtin_text(row))
    }));
    all.extend(KEYWORDS.iter().map(|k| {
        let text = || format!("{}\n\n{}\n\n  {}\n", k.form, k.doc, k.example);
        Entry::new(k.names().map(str::to_owned).collect(), "keyword", first_sentence(k.doc), text)
    }));
    all.extend(FUNCTIONS.iter().map(|f| {
        let text = || format!("{}\n\n{}\n\n  --expect '{}'\n", f.form, f.doc, f.example);
        Entry::new(vec![f.name.into()], "expectation", first_sentence(f.doc), text)
    }));
    all.extend(SETTINGS.iter().map(|s| {
        let upper = s.name.to_ascii_uppercase();
        let names = vec![s.name.into(), format!("RBT_{upper}"), format!("BPFTRACE_{upper}")];
        let text = || {
            let (name, upper) = (s.name, s.name.to_ascii_uppercase());
            let (places, flag) = match s.flag {
                Some(f) => (", in the environment or by an option", format!("  rbt --{} {}\n", f.long, f.value)),
                None => (" or in the environment", String::new()),
            };
            let forms = format!("  config = {{ {name} = VALUE; }}\n  RBT_{upper}=VALUE\n{flag}");
            format!("{name}\n\n{}.\n{}.\n\nYou can set it in a script{places}:\n\n{forms}", s.doc, s.values_text())
        };
        Entry::new(names, "setting", first_sentence(s.doc), text)
    }));
    all.extend(ENV_ONLY.iter().map(|(name, doc)| {
        let upper = name.to_ascii_uppercase();
        let text = move || format!("RBT_{}\n\n{doc}.\n", name.to_ascii_uppercase());
        Entry::new(vec![format!("RBT_{upper}"), format!("BPFTRACE_{upper}")], "environment", *doc, text)
    }));
    all.extend(codes::all().map(|c| Entry::new(vec![c.name.into()], "code", c.doc, || c.text())));
    all.extend(option_entries());
    all
}

/// The options of rbt and of verbs.
fn option_entries() -> Vec<Entry> {
    let mut all = Vec::new();
    let command = cli::command();
    for a in command.get_arguments().filter(|a| !a.is_hide_set() && !a.is_positional()) {
        let names = a.get_long().map(|l| format!("--{l}")).into_iter().chain(a.get_short().map(|c| format!("-{c}")));
        let doc = a.get_help().map(|h| h.to_string()).unwrap_or_default();
        let values = a.get_value_names().filter(|_| a.get_action().takes_values()).and_then(|v| v.first());
        let value = values.map_or(String::new(), |v| if a.is_require_equals_set() { format!("[={v}]") } else { format!(" {v}") });
        all.push(option_entry(names.collect(), &value, &doc, ""));
    }
    for o in OPTIONS {
        let names = [format!("--{}", o.name)].into_iter().chain(o.short.map(|c| format!("-{c}")));
        let verbs: Vec<&str> = VERBS.iter().filter(|v| v.options.contains(&o.name)).map(|v| v.name).collect();
        let value = o.value.map_or(String::new(), |v| format!(" {v}"));
        all.push(option_entry(names.collect(), &value, o.doc, &format!("\n\nAn option of rbt {}", verbs.join(", "))));
    }
    all
}

fn option_entry(names: Vec<String>, value: &str, doc: &str, more: &str) -> Entry {
    let shown: Vec<String> = names.iter().rev().map(|n| format!("{n}{value}")).collect();
    let text = format!("{}\n\n{}.{more}\n", shown.join(", "), doc.trim_end_matches('.'));
    Entry::new(names, "option", doc, move || text.clone())
}

fn constant_text(c: Constant) -> String {
    let of = if c.header.is_empty() { String::new() } else { format!(", as in <{}>", c.header) };
    let value = c.value as u64;
    let bits = if value > 9 { format!(", {value:#x}") } else { String::new() };
    let all = constants::all().filter(|o| (o.header, o.group) == (c.header, c.group) && o.name != c.name);
    let others: Vec<&str> = all.map(|o| o.name).take(12).collect();
    format!(
        "{}: {}{bits}\n\nOne of the {}{of}. A definition in the script, a header or an enum takes precedence.\n\nSee also: {}\n",
        c.name,
        c.value,
        c.group,
        others.join(", ")
    )
}

/// The first sentence, because a line of a list has no space for more.
fn first_sentence(text: &str) -> &str {
    let end = text.find(". ").unwrap_or(text.len());
    text.get(..end).unwrap_or(text).trim_end_matches('.')
}

fn builtin_text(row: &Builtin) -> String {
    let mut text = format!("{}\n\n{}\n", signature(row), row.doc);
    if row.needs != ContextFeatures::NONE {
        let kinds: Vec<&str> = KINDS.iter().filter(|k| k.offers().contains(row.needs)).map(|k| k.name()).collect();
        let _ = writeln!(text, "Probes: {}.", kinds.join(", "));
    }
    if row.risky {
        text.push_str("Requires --unsafe.\n");
    }
    let _ = writeln!(text, "\n  {}", row.example);
    text
}

/// `str(address[, length])`, `uint64 pid(init|curr_ns)`.
pub fn signature(row: &Builtin) -> String {
    let mut text = String::new();
    // `args` has its own type, of the same name
    if let Returns::Always(ty) = &row.returns
        && *ty != Type::Void
        && ty.to_string() != row.name
    {
        let _ = write!(text, "{ty} ");
    }
    text += row.name;
    // builtins that scripts write without parentheses appear without them
    if row.params.is_empty() && !row.example.contains(&format!("{}(", row.name)) {
        return text;
    }
    text.push('(');
    for (i, p) in row.params.iter().enumerate() {
        let comma = if i == 0 { "" } else { ", " };
        let open = if p.optional { "[" } else { "" };
        let _ = write!(text, "{open}{comma}{}", param(p));
    }
    text += &"]".repeat(row.params.iter().filter(|p| p.optional).count());
    text.push(')');
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

/// The help texts of all entries with this name, or else a list of the entries with similar names or a text that mentions it.
///
/// # Errors
/// No entry matches.
pub fn about(word: &str) -> Result<String, Failure> {
    list_matches(word, entries(), &[])
}

/// The same at the prompt, where commands cannot be run: a word of the language is explained, and other entries with
/// its name are only mentioned. `others` are additional words that a suggestion may name.
///
/// # Errors
/// No entry matches.
pub fn about_at_prompt(word: &str, others: &[&str]) -> Result<String, Failure> {
    let (language, commands): (Vec<Entry>, Vec<Entry>) = entries().into_iter().partition(|e| LANGUAGE.contains(&e.what));
    if !language.iter().any(|e| e.is_called(word.trim())) {
        return list_matches(word, language.into_iter().chain(commands).collect(), others);
    }
    let mut text = list_matches(word, language, others)?;
    for e in commands.iter().filter(|e| e.is_called(word.trim())) {
        let _ = writeln!(text, "\n`rbt help {}` explains the {} of this name.", e.name(), e.what);
    }
    Ok(text)
}

/// The kinds of words that programs consist of.
const LANGUAGE: [&str; 5] = ["keyword", "function", "variable", "probe", "setting"];

fn list_matches(word: &str, all: Vec<Entry>, others: &[&str]) -> Result<String, Failure> {
    let word = word.trim();
    let mut exact: Vec<&Entry> = all.iter().filter(|e| e.is_called(word)).collect();
    if exact.is_empty() {
        exact.extend(all.iter().filter(|e| e.is_called_like(word)));
    }
    // `help pid=` or `help str(`, `help $1`
    let bare = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_' && c != '-').to_lowercase();
    let bare = if bare.contains(char::is_alphanumeric) { bare } else { String::new() };
    let like: Vec<&Entry> = all.iter().filter(|e| !bare.is_empty() && e.mentions(&bare)).collect();
    if !exact.is_empty() {
        return Ok(texts(&exact, &bare, &like));
    }
    if let Some(constant) = constants::find(word) {
        return Ok(constant_text(constant));
    }
    let dashed = format!("--{bare}");
    exact.extend(all.iter().filter(|e| !bare.is_empty() && (e.is_called_like(&bare) || e.is_called_like(&dashed))));
    if !exact.is_empty() {
        return Ok(texts(&exact, &bare, &like));
    }
    let names = all.iter().flat_map(|e| e.names.iter().map(String::as_str)).chain(others.iter().copied());
    // a word without dashes rarely means an option
    let near = nearest(word, names.filter(|name| word.starts_with('-') || !name.starts_with('-')));
    if like.is_empty() {
        let failure = Failure::new(format!("there is no help for `{word}`")).code("unknown-word");
        return Err(match near {
            Some(near) => failure.help(format!("did you mean `{near}`?")),
            None => {
                failure.help("`rbt help` gives an overview; `rbt -lv PROBE` describes probes, and `rbt -lv 'struct NAME'` describes types")
            }
        });
    }
    let mut out = format!("Nothing has the name `{word}`");
    let _ = match near {
        Some(near) => writeln!(out, "; did you mean `{near}`? These texts mention it:\n"),
        None => writeln!(out, "; these texts mention it:\n"),
    };
    list(&like, &mut out);
    Ok(out)
}

fn texts(exact: &[&Entry], word: &str, like: &[&Entry]) -> String {
    let mut out = String::new();
    for e in exact {
        let gap = if out.is_empty() { "" } else { "\n" };
        let head = if exact.len() > 1 { format!("--- {} {}\n\n", e.what, e.name()) } else { String::new() };
        let _ = writeln!(out, "{gap}{head}{}", e.text().trim_end());
    }
    // a name of one or two letters occurs in too many others
    let called = |e: &&&Entry| word.len() > 2 && e.name().to_lowercase().contains(word) && !exact.iter().any(|x| std::ptr::eq(*x, **e));
    let mut also: Vec<&str> = Vec::new();
    for name in like.iter().filter(called).map(|e| e.name()) {
        // an option of rbt and of verbs has two entries
        if !also.contains(&name) && also.len() < MOST_RELATED {
            also.push(name);
        }
    }
    if !also.is_empty() {
        let _ = writeln!(out, "\nSee also: {}", also.join(", "));
    }
    out
}

fn list(found: &[&Entry], out: &mut String) {
    let shown = || found.iter().take(MAX_MENTIONS);
    let name = shown().map(|e| e.name().chars().count()).max().unwrap_or(0);
    let what = shown().map(|e| e.what.len()).max().unwrap_or(0);
    for e in shown() {
        let line: String = format!("  {:name$}  {:what$}  {}", e.name(), e.what, e.line).chars().take(WIDTH).collect();
        let _ = writeln!(out, "{}", line.trim_end());
    }
    if let Some(more) = found.len().checked_sub(MAX_MENTIONS).filter(|n| *n > 0) {
        let _ = writeln!(out, "  and {more} more");
    }
}

/// The overview that `rbt help` prints.
pub fn overview() -> String {
    let mut out = String::from(
        "rbt traces Linux: it runs small programs in the kernel when events occur.\n\nVerbs (rbt VERB --help shows examples):\n",
    );
    for v in VERBS {
        let _ = writeln!(out, "  {:38}{}", format!("rbt {} {}", v.name, v.usage), v.doc);
    }
    let _ = writeln!(out, "\nTools (rbt one-liners lists all {}):", TOOLS.len());
    let known = ["opensnoop", "execsnoop", "biolatency"];
    for s in known.iter().filter_map(|name| tools::find(name)) {
        let _ = writeln!(out, "  {:38}{}", format!("rbt {}", s.name), Header::of(s.text).line());
    }
    out.push_str(
        "
Your own program:
  rbt -e 'PROBE { STATEMENTS }'         from the command line
  rbt FILE [ARGUMENTS]                  from a file
  rbt                                   at a prompt

Probes:
  rbt -l 'PATTERN'                      list probes; -lv shows their arguments
  rbt info                              show what this machine supports

Help:
  rbt help WORD                         explain a probe, builtin, keyword, setting, option, verb, tool or code:
                                        rbt help hist, rbt help uprobe, rbt help max_strlen, rbt help --pid
  rbt help TEXT                         list what mentions a text: rbt help histogram

All options: rbt --help. The manual: man rbt.
",
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_each_entry_by_name() {
        for e in entries() {
            assert!(!e.names.is_empty() && !e.line.is_empty(), "{:?}", e.names);
            for name in &e.names {
                let text = about(name).unwrap_or_else(|f| panic!("{name}: {f:?}"));
                assert!(text.contains(e.text().trim_end()), "{name}: {text}");
            }
        }
    }

    #[test]
    fn words_are_found() {
        let found = |word: &str| about(word).unwrap();
        assert!(found("strftime").lines().next().is_some_and(|l| l.contains("strftime(")));
        assert!(found("count").contains("--- verb count") && found("count").contains("--- function count"));
        let at_prompt = about_at_prompt("count", &[]).unwrap();
        assert!(at_prompt.starts_with("count(") && at_prompt.contains("`rbt help count` explains the verb of this name."), "{at_prompt}");
        assert!(found("while").contains("Loops until") && found("$1").contains("argument of the script"));
        assert!(found("u").starts_with("uprobe:"));
        assert!(found("RBT_MAX_STRLEN").starts_with("max_strlen\n"));
        assert!(found("--pid").contains("-p PID, --pid PID") && found("-p").contains("--pid PID"));
        assert!(found("no-warnings").contains("--no-warnings"), "without its dashes");
        assert!(found("str(").contains("See also: "));
        let list = found("histogram");
        assert!(list.starts_with("Nothing has the name `histogram`") && list.contains("  hist "), "{list}");
        assert!(list.lines().all(|l| l.chars().count() <= WIDTH));
    }

    #[test]
    fn unknown_words_are_reported() {
        let failure = about("strftiem").unwrap_err();
        assert_eq!(failure.help.as_deref(), Some("did you mean `strftime`?"));
        assert_eq!(about_at_prompt("reste", &["reset"]).unwrap_err().help.as_deref(), Some("did you mean `reset`?"));
        assert!(about("qqqqqqqq").unwrap_err().help.unwrap().contains("rbt help"));
        for word in ["", " ", "--", "$", "é\0"] {
            assert!(about(word).is_err(), "{word:?}");
        }
    }

    #[test]
    fn overview_lists_all_verbs() {
        let text = overview();
        for verb in VERBS {
            assert!(text.contains(&format!("rbt {} ", verb.name)));
        }
    }
}
