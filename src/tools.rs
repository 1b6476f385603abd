//! The tools: `one-liners/*.bt`, which are part of the binary and run by name.
//!
//! The comment at the top of a tool gives its purpose, its subject in the list, its requirements, and a sample of its output.
//! The `getopt()` calls in the tool are its options. [`Header`] reads the comment, from which come the list, the help of the tool
//! and the manual.

use std::fmt::Write;

use crate::builtins::FOLLOWED;
use crate::builtins::options::{self, ScriptOption};
use crate::diag::{nearest, plain};
use crate::terminal::{self, paint};

/// A tool.
#[derive(Debug, PartialEq, Eq)]
pub struct Tool {
    /// The name of the file without `.bt`.
    pub name: &'static str,
    /// The text of the file.
    pub text: &'static str,
}

/// All tools, sorted by name.
pub static TOOLS: &[Tool] = include!(concat!(env!("OUT_DIR"), "/tools.rs"));

/// The subjects of tools with their descriptions, in the order of the list.
pub const SUBJECTS: &[(&str, &str)] = &[
    ("files", "opens, reads and writes of files, and their latency"),
    ("processes", "processes and threads that start and end, and signals"),
    ("disk", "disk I/O: sizes and latency of requests"),
    ("network", "connections, name lookups and packets"),
    ("scheduler", "time on and off CPU, and run queues"),
    ("memory", "allocations, leaks, page faults and swapping"),
    ("security", "capabilities, user IDs, and TLS"),
    ("system calls", "system calls, their results and errors"),
    ("languages", "interpreters and language runtimes"),
    ("databases", "queries and their latency"),
    ("libraries", "calls into shared libraries"),
    ("kernel", "functions of the kernel"),
];

/// The tool with this name; `.bt` may follow the name.
pub fn find(name: &str) -> Option<&'static Tool> {
    let name = name.strip_suffix(".bt").unwrap_or(name);
    TOOLS.iter().find(|s| s.name == name)
}

/// The most similar name, for a suggestion.
pub fn near(word: &str) -> Option<&'static str> {
    nearest(word, TOOLS.iter().map(|s| s.name))
}

/// Names of other tools, with rbt's counterpart as a command line.
pub const OTHER_TOOLS: &[(&str, &str)] = &[
    ("ltrace", "rbt libtrace"),
    ("ftrace", "rbt funcgraph"),
    ("trace-cmd", "rbt funcgraph"),
    ("function_graph", "rbt funcgraph"),
    ("truss", "rbt strace"),
    ("perf", "rbt profile"),
    ("funccount", "rbt count"),
    ("argdist", "rbt hist"),
    ("funclatency", "rbt latency"),
    ("stackcount", "rbt stack"),
    ("faults", "rbt pagefaults"),
    ("pyflow", "rbt pyfunctions"),
    ("pythonflow", "rbt pyfunctions"),
    ("pythongc", "rbt pygc"),
    ("dbslower", "rbt pgquery"),
];

/// rbt's counterpart of another tool.
pub fn elsewhere(name: &str) -> Option<&'static str> {
    OTHER_TOOLS.iter().find(|(other, _)| *other == name).map(|(_, here)| *here)
}

/// The description in the comment at the top of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header<'a> {
    /// The first line, which the list of tools shows.
    pub purpose: &'a str,
    /// Further lines, unchanged.
    pub rest: Vec<&'a str>,
    /// Names in [`SUBJECTS`]; the list shows the tool under the first one.
    pub subjects: Vec<&'a str>,
    /// Requirements on the kernel and on programs, unchanged lines.
    pub needs: Vec<&'a str>,
    /// A sample of the output, with its indentation.
    pub example: Vec<&'a str>,
}

/// A part of the comment.
enum CommentPart {
    Purpose,
    Needs,
    Example,
    Other,
}

impl<'a> Header<'a> {
    /// Parses the first comment of a script. Missing parts are empty.
    pub fn of(text: &'a str) -> Self {
        let mut header = Self::default();
        let Some((_, comment)) = text.split_once("/*") else { return header };
        let comment = comment.split_once("*/").map_or(comment, |(c, _)| c);
        let mut part = CommentPart::Purpose;
        for line in comment.lines() {
            let line = line.trim_start().strip_prefix('*').unwrap_or(line.trim_start());
            let line = line.strip_prefix(' ').unwrap_or(line).trim_end();
            if let Some(subjects) = line.strip_prefix("Subject:") {
                header.subjects = subjects.split(',').map(str::trim).filter(|s| !s.is_empty()).collect();
                part = CommentPart::Other;
                continue;
            }
            if let Some(needs) = line.strip_prefix("Needs:") {
                header.needs.push(needs.trim());
                part = CommentPart::Needs;
                continue;
            }
            if line == "Example:" {
                part = CommentPart::Example;
                continue;
            }
            match part {
                CommentPart::Purpose if header.purpose.is_empty() => header.purpose = line.trim(),
                CommentPart::Purpose => header.rest.push(line),
                CommentPart::Needs if line.is_empty() => part = CommentPart::Other,
                CommentPart::Needs => header.needs.push(line.trim()),
                CommentPart::Example => header.example.push(line),
                CommentPart::Other => {}
            }
        }
        for lines in [&mut header.rest, &mut header.example] {
            trim(lines);
        }
        header.needs.retain(|l| !l.is_empty());
        header
    }

    /// The subject under which the list shows the tool.
    pub fn subject(&self) -> &'a str {
        self.subjects.first().copied().unwrap_or("others")
    }

    /// The purpose without its final period.
    pub fn line(&self) -> &'a str {
        self.purpose.strip_suffix('.').unwrap_or(self.purpose)
    }
}

/// Removes empty lines at both ends.
fn trim(lines: &mut Vec<&str>) {
    while lines.last().is_some_and(|l| l.is_empty()) {
        lines.pop();
    }
    let empty = lines.iter().take_while(|l| l.is_empty()).count();
    lines.drain(..empty);
}

/// The list of tools by subject, or of one subject only.
pub fn list(only: Option<&str>, color: bool) -> String {
    let rows: Vec<(&Tool, Header)> = TOOLS.iter().map(|s| (s, Header::of(s.text))).collect();
    let width = TOOLS.iter().map(|s| s.name.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for (subject, _) in SUBJECTS.iter().chain(&[("others", "")]).filter(|(s, _)| only.is_none_or(|o| o == *s)) {
        let of_subject: Vec<_> = rows.iter().filter(|(_, h)| h.subject() == *subject).collect();
        if of_subject.is_empty() {
            continue;
        }
        if !out.is_empty() {
            out.push('\n');
        }
        let _ = writeln!(out, "{}", paint(subject, terminal::BOLD, color));
        for (script, header) in of_subject {
            // escape sequences must not count as columns
            let gap = " ".repeat(width - script.name.chars().count());
            let _ = writeln!(out, "  {}{gap}  {}", paint(script.name, terminal::NAME, color), header.line());
        }
    }
    out
}

/// Does a script use positional parameters (`$1`, `$#`)?
pub fn takes_arguments(text: &str) -> bool {
    text.split('$').skip(1).any(|t| t.starts_with(|c: char| c.is_ascii_digit() || c == '#'))
}

/// Does a script trace only the command of `-c` and its descendants?
pub fn follows(text: &str) -> bool {
    text.contains(FOLLOWED)
}

/// The corresponding note in the tool's help.
pub const FOLLOWS_NOTE: &[&str] =
    &["-c COMMAND limits the tool to the command and its descendants, and -p PID --follow to that process and its descendants."];

/// The help of a script: its usage, description and options.
pub fn help(call: &str, text: &str, found: &[ScriptOption]) -> String {
    let header = Header::of(text);
    let arguments = if takes_arguments(text) { " [ARGUMENTS]" } else { "" };
    let mut out = format!("Usage: rbt {} -- [OPTIONS]{arguments}\n", plain(call));
    let mut paragraph = |title: &str, indent: &str, lines: &[&str]| {
        if lines.is_empty() {
            return;
        }
        let _ = write!(out, "\n{title}");
        for line in lines {
            let _ = writeln!(out, "{}", format!("{indent}{line}").trim_end());
        }
    };
    let about: Vec<&str> = [header.purpose].into_iter().chain(header.rest.iter().copied()).collect();
    paragraph("", "", if header.purpose.is_empty() { &[] } else { &about });
    let list = options::list(found);
    let list: Vec<&str> = list.iter().map(String::as_str).collect();
    match found.is_empty() {
        true => paragraph("", "", &["The script has no options."]),
        false => paragraph("Options of the script:\n", "", &list),
    }
    paragraph("", "", &["rbt's own options, such as -p PID, -c COMMAND, -f json and -o FILE, work as well; rbt -h lists them."]);
    if follows(text) {
        paragraph("", "", FOLLOWS_NOTE);
    }
    paragraph("Needs:\n", "  ", &header.needs);
    // the comment may already indent the example
    let indented = header.example.iter().all(|l| l.is_empty() || l.starts_with(' '));
    paragraph("Example:\n", if indented { "" } else { "  " }, &header.example);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "#!/usr/bin/env rbt\n/*\n * Who opens what.\n * Failed calls too.\n *\n * And more.\n *\n * Subject: files, security\n \
        * Needs: tracepoints,\n *  and root.\n *\n * Example:\n *   PID  PATH\n *\n *   1    /etc/passwd\n */\nbegin { exit(); }\n";

    #[test]
    fn headers_are_read() {
        let h = Header::of(TEXT);
        assert_eq!((h.purpose, h.line()), ("Who opens what.", "Who opens what"));
        assert_eq!(h.rest, ["Failed calls too.", "", "And more."]);
        assert_eq!((h.subject(), h.subjects.len()), ("files", 2));
        assert_eq!(h.needs, ["tracepoints,", "and root."]);
        assert_eq!(h.example, ["  PID  PATH", "", "  1    /etc/passwd"]);
        assert_eq!(Header::of("begin {}"), Header::default());
        assert_eq!(Header::of("/*").subject(), "others");
    }

    #[test]
    fn each_script_is_listed_once() {
        let all = list(None, false);
        for tool in TOOLS {
            let start = format!("  {} ", tool.name);
            assert_eq!(all.lines().filter(|l| l.starts_with(&start)).count(), 1, "{}", tool.name);
            assert_eq!(find(tool.name), find(&format!("{}.bt", tool.name)));
        }
        assert!(!all.contains('\x1b') && list(None, true).contains('\x1b'));
        assert_eq!(near("opensnop"), Some("opensnoop"));
        assert_eq!(find("nosuch"), None);
    }

    #[test]
    fn other_names_refer_to_existing_tools() {
        for (other, here) in OTHER_TOOLS {
            let word = here.strip_prefix("rbt ").unwrap_or_default();
            assert!(find(word).is_some() || crate::verbs::find(word).is_some(), "{other}: {here}");
            assert!(find(other).is_none() && crate::verbs::find(other).is_none(), "{other}");
        }
    }

    #[test]
    fn help_has_all_parts() {
        let text = help("x.bt", TEXT, &[]);
        for part in ["Usage: rbt x.bt -- ", "\nWho opens what.\nFailed", "Needs:\n  tracepoints,", "Example:\n  PID  PATH\n\n  1"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
