//! Parses the rows of the tables.

use regex::Regex;

/// A row of a table, which is compared.
#[derive(Clone, Debug)]
pub struct Row {
    /// The file and the line number.
    pub name: String,
    pub kind: Kind,
    pub text: String,
    pub args: String,
    /// The reason for an expected difference.
    pub differs: Option<String>,
    pub masks: Vec<Regex>,
    pub sorted: bool,
    /// Compare the JSON output, too.
    pub json: bool,
    /// The names of maps begin with `@_`, which `batch` can replace by a prefix for the row.
    pub own_maps: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Statements,
    Script,
    Shell,
}

impl Row {
    pub fn statements(name: String, text: String) -> Self {
        Self {
            name,
            kind: Kind::Statements,
            text,
            args: String::new(),
            differs: None,
            masks: Vec::new(),
            sorted: false,
            json: true,
            own_maps: false,
        }
    }

    /// Must the row be compared alone? Rows with maps usually must, because maps are printed at the end, and their types apply to
    /// the entire script.
    pub fn alone(&self) -> bool {
        self.kind != Kind::Statements
            || self.differs.is_some()
            || self.sorted
            || !self.json
            || !self.masks.is_empty()
            || !self.args.is_empty()
            || ["@", "exit(", "return"].iter().any(|word| self.text.contains(word) && !(self.own_maps && *word == "@"))
    }
}

/// The possible first words of a script.
const PROBES: &str = "begin end interval tracepoint rawtracepoint uprobe uretprobe usdt profile software hardware self test bench \
                      BEGIN END config let macro struct union enum fn import watchpoint #include #define iter t rt u ur U s h p i w";

pub fn read(file: &str, text: &str) -> Result<Vec<Row>, String> {
    let mut rows: Vec<Row> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let name = format!("{file}:{}", i + 1);
        if line.trim().is_empty() || line.starts_with("# ") || line == "#" {
            continue;
        }
        let Some(about) = line.strip_prefix(' ').map(str::trim_start) else {
            let (kind, text) = match line.strip_prefix("$ ") {
                Some(shell) => (Kind::Shell, shell),
                None if is_script(line) => (Kind::Script, line),
                None => (Kind::Statements, line),
            };
            rows.push(Row { kind, ..Row::statements(name, text.into()) });
            continue;
        };
        let row = rows.last_mut().ok_or_else(|| format!("{name}: an indented line without a row before it"))?;
        let (word, rest) = about.split_once(' ').unwrap_or((about, ""));
        match word {
            "differs" => row.differs = Some(rest.into()),
            "args" => row.args = rest.into(),
            "mask" => row.masks.push(Regex::new(rest).map_err(|e| format!("{name}: {e}"))?),
            "sorted" => row.sorted = true,
            "text" => row.json = false,
            // The script has several lines.
            "|" => {
                row.text.push('\n');
                row.text.push_str(rest);
            }
            _ => return Err(format!("{name}: {word}?")),
        }
    }
    Ok(rows)
}

fn is_script(line: &str) -> bool {
    let word: String = line.chars().take_while(|c| c.is_ascii_alphanumeric() || "#_".contains(*c)).collect();
    let rest = line.get(word.len()..).unwrap_or("").trim_start();
    PROBES.split_whitespace().any(|p| p == word) && !(word == "let" && rest.starts_with('$')) && !rest.starts_with('=') | (word == "config")
}
