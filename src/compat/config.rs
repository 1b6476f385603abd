//! `rbt-check.toml`: the kernels to check against, and exceptions for several scripts.
//!
//! ```text
//! against = ["kernels"]            # like --against; relative to this file
//! deny = "warnings"
//!
//! [[script]]
//! files = ["net/*.bt", "opensnoop"]
//! kernels = ">= 5.15"
//! optional = ["kprobe:foo*"]
//! allow = ["sign-changed"]
//! reason = "only printed"
//! ```

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::exceptions::{ExceptionError, Exceptions};
use super::subjects::Subject;
use crate::cli::Program;
use crate::diag::nearest;
use crate::failure::{Failure, reason};
use crate::input;
use crate::system::machine::glob;

/// Its name, in this directory or a parent.
const NAME: &str = "rbt-check.toml";

/// A file's contents.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Kernels.
    pub against: Vec<PathBuf>,
    /// Warnings fail.
    pub deny_warnings: bool,
    /// The directory to which paths are relative.
    folder: PathBuf,
    scripts: Vec<Scripts>,
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
struct Scripts {
    /// Patterns of paths, or names of tools.
    files: Vec<String>,
    exceptions: Exceptions,
}

const KEYS: &[&str] = &["against", "deny", "script"];
const SCRIPT_KEYS: &[&str] = &["files", "kernels", "optional", "allow", "reason"];

impl Config {
    /// The given file, or else the nearest one; none if there are no exceptions.
    pub fn find(named: Option<&Path>) -> Result<Self, Failure> {
        let path = match named {
            Some(path) => path.to_owned(),
            None => {
                let here = std::env::current_dir().unwrap_or_default();
                match here.ancestors().map(|dir| dir.join(NAME)).find(|p| p.is_file()) {
                    Some(path) => path,
                    None => return Ok(Self::default()),
                }
            }
        };
        let text = input::text(&path, input::TEXT)
            .map_err(|e| Failure::new(format!("cannot read {}: {}", path.display(), reason(&e))).code("not-readable"))?;
        Self::read(&text, &path)
    }

    fn read(text: &str, path: &Path) -> Result<Self, Failure> {
        let failed = |line: Option<usize>, (message, help): ExceptionError| {
            let at = line.map_or(String::new(), |n| format!(":{n}"));
            Failure::new(format!("{}{at}: {message}", path.display())).code("bad-config").help(help)
        };
        let table: Table = text.parse().map_err(|e: toml::de::Error| {
            let line = e.span().map(|s| text.get(..s.start).unwrap_or(text).matches('\n').count() + 1);
            failed(line, (e.message().trim().into(), "it must be TOML; `man rbt-check` describes it".into()))
        })?;
        let folder = std::path::absolute(path).ok().and_then(|p| p.parent().map(Path::to_owned)).unwrap_or_default();
        let mut config = Self { folder, ..Self::default() };
        known(&table, KEYS).map_err(|(key, wrong)| failed(line_of(text, 0, &key), wrong))?;
        for (key, value) in &table {
            let wrong = |wrong| failed(line_of(text, 0, key), wrong);
            match key.as_str() {
                "against" => config.against = strings(key, value).map_err(wrong)?.iter().map(|p| config.folder.join(p)).collect(),
                "deny" => match value.as_str() {
                    Some("warnings") => config.deny_warnings = true,
                    _ => return Err(wrong(("`deny` must be \"warnings\"".into(), "remove it to deny nothing".into()))),
                },
                _ => {
                    let tables = value.as_array().filter(|all| all.iter().all(Value::is_table));
                    let tables = tables.ok_or_else(|| wrong(("`script` must be an array of tables".into(), "write [[script]]".into())))?;
                    for (i, table) in tables.iter().filter_map(Value::as_table).enumerate() {
                        let from = text.match_indices("[[script]]").nth(i).map_or(0, |(at, _)| at);
                        let one = scripts(table).map_err(|(key, wrong)| failed(line_of(text, from, &key), wrong))?;
                        config.scripts.push(one);
                    }
                }
            }
        }
        Ok(config)
    }

    /// The exceptions for this script.
    pub fn exceptions(&self, of: &Subject) -> Exceptions {
        let path = match &of.program {
            Ok(Program::File(path)) => std::path::absolute(path).unwrap_or_else(|_| path.clone()),
            _ => PathBuf::from(&of.name),
        };
        let path = path.strip_prefix(&self.folder).unwrap_or(&path).display().to_string();
        let mut all = Exceptions::default();
        let matching = |s: &&Scripts| s.files.iter().any(|pattern| glob::matches(pattern, &path));
        self.scripts.iter().filter(matching).for_each(|s| all.add(s.exceptions.clone()));
        all
    }
}

/// A table of `[[script]]`. Errors: with the key.
fn scripts(table: &Table) -> Result<Scripts, (String, ExceptionError)> {
    known(table, SCRIPT_KEYS)?;
    let at = |key: &'static str| move |wrong: ExceptionError| (key.to_string(), wrong);
    let list = |key: &'static str| table.get(key).map_or(Ok(Vec::new()), |v| strings(key, v)).map_err(at(key));
    let files = list("files")?;
    if files.is_empty() {
        return Err(at("files")(("a [[script]] needs `files`".into(), "name scripts: files = [\"net/*.bt\"]".into())));
    }
    let mut exceptions = Exceptions::default();
    for text in list("kernels")? {
        exceptions.add_kernels(&text).map_err(at("kernels"))?;
    }
    for pattern in list("optional")? {
        exceptions.add_optional(&pattern).map_err(at("optional"))?;
    }
    let reason = list("reason")?.join("; ");
    for rule in list("allow")? {
        exceptions.add_allowed(&rule, &reason).map_err(at("allow"))?;
    }
    Ok(Scripts { files, exceptions })
}

/// Errors: an unknown key.
fn known(table: &Table, keys: &[&str]) -> Result<(), (String, ExceptionError)> {
    match table.keys().find(|k| !keys.contains(&k.as_str())) {
        Some(key) => {
            let help = match nearest(key, keys.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("one of {}", keys.join(", ")),
            };
            Err((key.clone(), (format!("unknown key `{key}`"), help)))
        }
        None => Ok(()),
    }
}

/// A string, or an array of strings.
fn strings(key: &str, value: &Value) -> Result<Vec<String>, ExceptionError> {
    let one = |v: &Value| v.as_str().map(str::to_owned);
    let all = value.as_array().map_or_else(|| one(value).map(|s| vec![s]), |all| all.iter().map(one).collect());
    all.ok_or_else(|| (format!("`{key}` must be a string or a list of strings"), format!("write {key} = [\"…\"]")))
}

/// The line of a key at or after this position.
fn line_of(text: &str, from: usize, key: &str) -> Option<usize> {
    let lines = text.get(from..)?.lines().position(|line| {
        let word = line.trim_start().trim_start_matches('[').trim_start_matches('"');
        word.strip_prefix(key).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '-'))
    });
    // a missing key is reported at its table
    Some(text.get(..from)?.matches('\n').count() + lines.unwrap_or(0) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, Failure> {
        Config::read(text, Path::new("/srv/scripts/rbt-check.toml"))
    }

    #[test]
    fn tables_apply_to_files() {
        let text = "against = [\"k.rbts\", \"/abs\"]\ndeny = \"warnings\"\n[[script]]\nfiles = \"net/*.bt\"\nkernels = \">= 5.15, != 6.6\"\n\
                    optional = [\"kprobe:foo*\"]\n[[script]]\nfiles = [\"**\"]\nallow = [\"sign-changed\"]\nreason = \"why\"\n";
        let config = read(text).unwrap();
        assert_eq!(config.against, [PathBuf::from("/srv/scripts/k.rbts"), "/abs".into()]);
        assert!(config.deny_warnings);
        let of = |path: &str| config.exceptions(&Subject { name: path.into(), program: Ok(Program::File(path.into())) });
        let net = of("/srv/scripts/net/a.bt");
        assert!(net.skips("5.4").is_some() && net.may_lack("kprobe:foo_x") && net.allows("sign-changed") == Some("why"));
        let other = of("/srv/scripts/a.bt");
        assert!(other.skips("5.4").is_none() && other.allows("sign-changed").is_some());
    }

    #[test]
    fn reports_errors_with_their_line() {
        for (text, part, help) in [
            ("aginst = []", "toml:1: unknown key `aginst`", "did you mean `against`?"),
            ("\n[[script]]\nfiles = \"a\"\nkernel = \"5\"\n", "toml:4: unknown key `kernel`", "did you mean `kernels`?"),
            ("[[script]]\nkernels = \"> 5\"\n", "toml:1: a [[script]] needs `files`", "name scripts"),
            ("[[script]]\nfiles = \"a\"\nkernels = \"new\"\n", "toml:3: `new` is not a condition on kernels", "write, for example"),
            ("[[script]]\nfiles = 7\n", "toml:2: `files` must be a string", "files = "),
            ("script = 1", "toml:1: `script` must be an array of tables", "[[script]]"),
            ("deny = \"all\"", "toml:1: `deny` must be", "remove it"),
            ("a = [\n", "toml:", "TOML"),
        ] {
            let f = read(text).unwrap_err();
            assert!(f.message.contains(part) && f.help.as_ref().is_some_and(|h| h.contains(help)), "{text}: {f:?}");
        }
        assert_eq!(read("").unwrap().scripts, []);
    }
}
