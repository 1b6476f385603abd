//! The codes of everything that rbt reports: one row for each.
//!
//! A code stays the same from version to version. The brackets of `error[unknown-field]`, `// check: allow CODE`, SARIF's
//! rules, `rbt help CODE` and the manual's section all take their text from its row.

mod findings;
mod language;
mod probes;
mod runs;
mod syntax;

use serde::Serialize;

pub use findings::FINDINGS;

/// The severity of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It never fails.
    Note,
    /// It fails if warnings are denied.
    Warning,
    /// It fails.
    Error,
}

impl Level {
    /// As messages print it: `warning`.
    pub fn word(self) -> &'static str {
        match self {
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

/// A row.
#[derive(Debug)]
pub struct Code {
    /// A stable name in kebab-case.
    pub name: &'static str,
    /// Its severity, unless the place that reports it sets another one.
    pub level: Level,
    /// The meaning, without a capital and a final period.
    pub doc: &'static str,
    /// A general remedy. A report may have a more specific one.
    pub remedy: Option<&'static str>,
    /// An example that is reported, and its correction.
    pub example: Option<Example>,
    /// What a report needs besides a script, if there is no example.
    pub needs: Option<&'static str>,
    /// Exit status of a run that does not start because of it.
    pub status: u8,
    /// The facts besides the script and the kernel that the report is about.
    pub depends_on: DependsOn,
}

/// Facts besides a script and a kernel that a report is about. `rbt check` does not count it against the script where it does not
/// know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DependsOn {
    /// None.
    Nothing,
    /// The arguments of a run, and its command.
    Arguments,
    /// The values of the script's options, if it has any.
    Options,
    /// The permission that `--unsafe` gives.
    Permission,
    /// The machine that the script runs on.
    Machine,
    /// The kernel functions that BPF programs can call, which not all descriptions of a kernel contain.
    CallableFunctions,
}

/// Two scripts or commands, for a test and for `rbt help CODE`.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// Are they shell commands, run in an empty directory? Otherwise they are scripts, which are compiled.
    pub commands: bool,
    /// An example that is reported under the code.
    pub wrong: &'static str,
    /// One that is not.
    pub right: &'static str,
}

/// The row of an error, which prevents the script from running.
const fn error(name: &'static str, doc: &'static str) -> Code {
    Code { name, level: Level::Error, doc, remedy: None, example: None, needs: None, status: 1, depends_on: DependsOn::Nothing }
}

/// The row of a warning about a script that may not do what its author intended.
const fn warning(name: &'static str, doc: &'static str) -> Code {
    Code { level: Level::Warning, ..error(name, doc) }
}

/// The row of a note.
const fn note(name: &'static str, doc: &'static str) -> Code {
    Code { level: Level::Note, ..error(name, doc) }
}

impl Code {
    const fn remedy(self, text: &'static str) -> Self {
        Self { remedy: Some(text), ..self }
    }

    const fn needs(self, what: &'static str) -> Self {
        Self { needs: Some(what), ..self }
    }

    /// Sets an exit status other than 1, as in bpftrace.
    const fn status(self, status: u8) -> Self {
        Self { status, ..self }
    }

    const fn depends_on(self, depends_on: DependsOn) -> Self {
        Self { depends_on, ..self }
    }

    /// [`Code::doc`] as a sentence.
    pub fn sentence(&self) -> String {
        sentence(self.doc)
    }

    /// The text of the row, as `rbt help CODE` prints it.
    pub fn text(&self) -> String {
        let mut text = format!("{}[{}]\n\n{}\n", self.level.word(), self.name, self.sentence());
        if let Some(Example { wrong, right, .. }) = self.example {
            text += &format!("\nReported:\n\n{}\n\nFixed:\n\n{}\n", indented(wrong), indented(right));
        }
        if let Some(needs) = self.needs {
            text += &format!("\nThere is no example, because it would need {needs}.\n");
        }
        if let Some(remedy) = self.remedy {
            text += &format!("\n{}\n", sentence(remedy));
        }
        text
    }

    const fn example(self, wrong: &'static str, right: &'static str) -> Self {
        Self { example: Some(Example { commands: false, wrong, right }), ..self }
    }

    /// Sets [`Code::example`] to commands, if a script alone does not cause the report.
    const fn command(self, wrong: &'static str, right: &'static str) -> Self {
        Self { example: Some(Example { commands: true, wrong, right }), ..self }
    }
}

/// Adds a period at the end, and a capital at the start unless the first word is a name, such as `rbt`, `argN` or `debugf()`.
pub fn sentence(text: &str) -> String {
    let word = text.split([' ', '-', '\'', ',', ';']).next().unwrap_or(text);
    let name = word == "rbt" || !word.chars().all(|c| c.is_ascii_lowercase());
    let mut chars = text.chars();
    let first: String = chars.next().map(|c| if name { c.into() } else { c.to_ascii_uppercase().into() }).unwrap_or_default();
    let stop = if text.is_empty() || text.ends_with(['.', '?']) { "" } else { "." };
    format!("{first}{}{stop}", chars.as_str())
}

fn indented(script: &str) -> String {
    script.lines().map(|l| format!("  {l}")).collect::<Vec<_>>().join("\n")
}

/// All rows, each family sorted by name.
pub fn all() -> impl Iterator<Item = &'static Code> {
    [syntax::CODES, language::CODES, probes::CODES, runs::CODES, FINDINGS].into_iter().flatten()
}

/// The row of this name.
pub fn find(name: &str) -> Option<&'static Code> {
    all().find(|c| c.name == name)
}

/// The remedy for reports of this code in general.
pub fn remedy(code: &str) -> Option<&'static str> {
    find(code)?.remedy
}

/// The exit status of a run that does not start because of an error of this code.
pub fn status(code: &str) -> u8 {
    find(code).map_or(1, |row| row.status)
}

/// The facts besides the script and the kernel that reports of this code are about.
pub fn depends_on(code: &str) -> DependsOn {
    find(code).map_or(DependsOn::Nothing, |row| row.depends_on)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    #[test]
    fn each_code_has_one_row() {
        for family in [syntax::CODES, language::CODES, probes::CODES, runs::CODES, FINDINGS] {
            let names: Vec<_> = family.iter().map(|c| c.name).collect();
            assert!(names.is_sorted(), "{names:?}");
        }
        let mut names: Vec<_> = all().map(|c| c.name).collect();
        names.sort_unstable();
        for pair in names.windows(2) {
            assert_ne!(pair[0], pair[1]);
        }
    }

    #[test]
    fn a_row_has_an_example_or_a_reason() {
        let bad: Vec<_> = all().filter(|c| c.example.is_some() == c.needs.is_some()).map(|c| c.name).collect();
        assert!(bad.is_empty(), "an example, or what it would need: {bad:?}");
    }

    /// Examples are cases of `tests/rows.rs`; a test of the crate or a case names each of the other codes.
    #[test]
    fn every_row_has_a_case() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut tests = String::new();
        for path in sources(&root.join("src")).into_iter().filter(|p| !p.ends_with("src/diag/codes/mod.rs")) {
            let text = std::fs::read_to_string(&path).unwrap();
            let at = if path.to_string_lossy().contains("tests") { Some(0) } else { text.find("#[cfg(test)]\nmod tests {") };
            tests.extend(at.map(|at| text[at..].to_owned()));
        }
        for folder in ["cli", "run", "check", "oneliner"] {
            for path in files(&root.join("tests/cases").join(folder)) {
                tests.push_str(&String::from_utf8_lossy(&std::fs::read(path).unwrap()));
            }
        }
        let named =
            |code: &str| [format!("\"{code}\""), format!("[{code}]"), format!("\\[{code}\\]")].iter().any(|text| tests.contains(text));
        let without: Vec<_> = all().filter(|c| c.example.is_none() && !named(c.name)).map(|c| c.name).collect();
        assert!(without.is_empty(), "no case: {without:?}");
    }

    #[test]
    fn every_code_that_is_used_has_a_row() {
        let used = used();
        assert!(used.len() > 100, "{used:?}");
        let missing: Vec<_> = used.iter().filter(|name| find(name).is_none()).collect();
        assert!(missing.is_empty(), "no row in src/diag/codes: {missing:?}");
    }

    #[test]
    fn every_row_is_used() {
        let sources: String = sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")))
            .into_iter()
            .filter(|p| !p.to_string_lossy().contains("src/diag/codes"))
            .map(|p| std::fs::read_to_string(p).unwrap())
            .collect();
        // the stub of compressed programs is C, and has its code within a text
        let stub = include_str!("../../exe/stub.c");
        let is_used = |name: &str| sources.contains(&format!("\"{name}\"")) || stub.contains(&format!("\"error[{name}]: "));
        let idle: Vec<_> = all().map(|c| c.name).filter(|name| !is_used(name)).collect();
        assert!(idle.is_empty(), "nothing reports {idle:?}");
    }

    /// The codes in the source that diagnostics, failures and findings are created with.
    fn used() -> BTreeSet<String> {
        let makes = [
            r#"(?:Diagnostic|diag)::(?:error|warning)\(\s*"([a-z-]+)""#,
            r#"self\.(?:error|warn|fail)\(\s*"([a-z-]+)",\s*[^")]"#,
            r#"\.code\("([a-z-]+)"\)"#,
            r#"\bfinding\(\s*"([a-z-]+)""#,
            r#"\b(?:rule|code): "([a-z-]+)""#,
        ];
        let makes = makes.map(|m| regex::Regex::new(m).unwrap());
        let mut used = BTreeSet::new();
        for path in sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))) {
            let text = std::fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            if path.to_string_lossy().contains("tests") {
                continue;
            }
            for m in &makes {
                used.extend(m.captures_iter(text).map(|c| c[1].to_string()));
            }
        }
        used
    }

    fn files(folder: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
        }
        found
    }

    fn sources(folder: &Path) -> Vec<PathBuf> {
        files(folder).into_iter().filter(|path| path.extension().is_some_and(|e| e == "rs")).collect()
    }
}
