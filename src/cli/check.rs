//! The options of `rbt check`.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, FromArgMatches, Parser};

use super::Command;
use crate::failure::Failure;
use crate::verdict::{FORMATS, RULES, USAGE};

/// The options of `rbt check`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Check {
    /// Files, directories, globs, names of tools; `-` is standard input.
    pub scripts: Vec<OsString>,
    /// Snapshots, directories of them, and [`HERE`]. If there are none, the running kernel.
    pub against: Vec<PathBuf>,
    /// The kernel to compare the others with. The default is the first of `against`.
    pub baseline: Option<PathBuf>,
    /// Load the programs into the running kernel.
    pub load: bool,
    /// The root directory for looking up binaries.
    pub root: Option<PathBuf>,
    /// Binaries to use in place of those with the same file name.
    pub binaries: Vec<PathBuf>,
    /// `--config`
    pub config: Option<PathBuf>,
    /// `--deny warnings`
    pub deny_warnings: bool,
    /// The format of the report, by its name in the verdict's table of formats.
    pub format: String,
    /// The file of the report. The text still goes to standard output.
    pub output: Option<PathBuf>,
    /// Print findings only.
    pub quiet: bool,
    /// Print mechanisms, sizes and times as well.
    pub verbose: bool,
    /// Color on standard output.
    pub color: bool,
}

/// The name of the running kernel, in place of a snapshot's path.
pub const HERE: &str = "here";
/// The file name extension of snapshots.
pub const SNAPSHOT: &str = "rbts";

/// Check scripts against kernels, without running them
///
/// For each script and each kernel, rbt checks the syntax and the types. It also checks that each probe exists and can be traced,
/// that fields and arguments have not changed, and that the kernel has the BPF features that the script needs. Without --against,
/// it checks the running kernel. Only --load needs root, but a user without root sees less of the running kernel than a snapshot
/// contains.
#[derive(Parser, Debug)]
#[command(
    name = "rbt check",
    bin_name = "rbt check",
    override_usage = "rbt check [OPTIONS] FILE|DIR|GLOB|NAME... [--against FILE.rbts|DIR|here...]
       rbt check --rules",
    disable_version_flag = true,
    args_override_self = true,
    after_help = EXAMPLES
)]
pub(super) struct Raw {
    /// Files, directories of *.bt, quoted globs, names of tools, or `-` for standard input
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::AnyPath)]
    files: Vec<OsString>,
    /// Check against these kernels: snapshots, directories of *.rbts, or `here` for the running kernel (may be repeated)
    #[arg(long, value_name = "KERNEL", num_args = 1.., value_hint = clap::ValueHint::AnyPath)]
    against: Vec<OsString>,
    /// Compare the other kernels with this one, a snapshot or `here` [default: the first of --against]
    #[arg(long, value_name = "KERNEL", value_hint = clap::ValueHint::FilePath)]
    baseline: Option<PathBuf>,
    /// Also load each script into the running kernel, without attaching it (needs root)
    #[arg(long)]
    load: bool,
    /// Use this binary for uprobes and USDT probes in any binary of the same name (may be repeated)
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    binary: Vec<PathBuf>,
    /// Look up binaries below this directory, such as an unpacked image
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    root: Option<PathBuf>,
    /// Read exceptions from FILE [default: rbt-check.toml in the current directory or a parent]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// Also fail on `warnings`
    #[arg(long, value_name = "WHAT")]
    deny: Option<String>,
    /// Write the report in this format: text, json, junit, sarif or github
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    format: String,
    /// Write the report to FILE, and the text to standard output
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Print findings only
    #[arg(short, long)]
    quiet: bool,
    /// Also print mechanisms, sizes and times
    #[arg(short, long)]
    verbose: bool,
    /// Color the report: auto, always or never
    #[arg(long, value_name = "WHEN")]
    color: Option<String>,
    /// List the codes of findings
    #[arg(long)]
    rules: bool,
}

const EXAMPLES: &str = "Examples:
  rbt snapshot -o prod.rbts                      describe a machine's kernel (run it there, as root)
  rbt check scripts/ --against prod.rbts         check scripts against that kernel, anywhere
  rbt check opensnoop '*.bt' --against kernels/  check a tool and files against several kernels
  rbt check trace.bt -v                          check against this kernel, and show mechanisms
  rbt check app.bt --root image/                 look up binaries in an unpacked image
  rbt check scripts/ --against kernels/ --deny warnings -f sarif -o check.sarif

Exceptions in a script:
  // check: kernels >= 5.15, != 6.6              skip other kernels; also 5.10..6.1
  // check: optional probe kprobe:foo*           the probe may be missing
  // check: allow sign-changed printed only      ignore a finding, with the reason
or, for several scripts, in rbt-check.toml:
  [[script]]
  files = [\"net/*.bt\"]
  kernels = \">= 5.15\"
  optional = [\"kprobe:foo*\"]
  allow = [\"sign-changed\"]

Exit status:
  0    no findings
  1    findings
  2    wrong usage or an invalid configuration
  3    something was not checked: a file or a snapshot is unreadable, or a capability is missing";

/// Parses the arguments after `rbt check`.
pub(super) fn parse(args: &[OsString]) -> Result<Command, Failure> {
    let error = |f: Failure| f.status(USAGE);
    let words = [OsString::from("rbt check")].into_iter().chain(args.iter().cloned());
    let raw = match Raw::command().try_get_matches_from(words).and_then(|m| Raw::from_arg_matches(&m)) {
        Ok(raw) => raw,
        Err(e) if e.use_stderr() => {
            let words: Vec<String> = ["check".into()].into_iter().chain(args.iter().map(|a| a.to_string_lossy().into_owned())).collect();
            return Err(error(super::usage::usage_error(&e, &words)).help("`rbt check --help` explains the options"));
        }
        Err(e) => return Ok(Command::Say(e.render().to_string())),
    };
    if raw.rules {
        return Ok(Command::Say(rules()));
    }
    let names: Vec<&'static str> = FORMATS.iter().map(|f| f.name).collect();
    if !names.contains(&raw.format.as_str()) {
        return Err(error(Failure::new(format!("rbt check: there is no format `{}`", raw.format)).suggest(&raw.format, &names)));
    }
    if let Some(what) = raw.deny.as_deref().filter(|w| *w != "warnings") {
        return Err(error(Failure::new(format!("rbt check: --deny {what}: only `warnings` is possible")).help("--deny warnings")));
    }
    let (mut scripts, mut against) = (raw.files, Vec::new());
    for word in raw.against {
        // after the first, which may be any word, a word that is not a kernel is a script: the option takes all
        // following words
        if against.is_empty() || is_kernel(&word) {
            against.push(PathBuf::from(word));
        } else {
            scripts.push(word);
        }
    }
    if scripts.is_empty() {
        let help = "name files, directories or tools: `rbt check FILES --against KERNELS`; `rbt check --help` has examples";
        return Err(error(Failure::new("rbt check needs scripts").help(help)));
    }
    let color = super::values::color_where(raw.color.as_deref(), || std::io::IsTerminal::is_terminal(&std::io::stdout())).map_err(error)?;
    Ok(Command::Subcommand(Box::new(Check {
        scripts,
        against,
        baseline: raw.baseline,
        load: raw.load,
        root: raw.root,
        binaries: raw.binary,
        config: raw.config,
        deny_warnings: raw.deny.is_some(),
        format: raw.format,
        output: raw.output,
        quiet: raw.quiet,
        verbose: raw.verbose,
        color,
    })))
}

/// Does a word after `--against` name a kernel?
fn is_kernel(word: &OsString) -> bool {
    let path = Path::new(word);
    let ends = |p: &Path| p.extension().is_some_and(|e| e == SNAPSHOT);
    let of_kernels = || std::fs::read_dir(path).is_ok_and(|dir| dir.flatten().any(|e| ends(&e.path())));
    word == HERE || ends(path) || of_kernels()
}

/// The kinds of findings.
fn rules() -> String {
    let mut text = String::from("Codes of findings about kernels and runs (errors in a script itself have the codes of `man rbt`):\n");
    for rule in RULES {
        let _ = writeln!(text, "  {:18} {:8} {}", rule.name, rule.level.word(), rule.doc);
    }
    text + "\n`// check: allow CODE` in a script, or `allow` in rbt-check.toml, turns a finding into a note.\n"
}

#[cfg(test)]
mod tests {
    use std::any::Any;

    use super::*;

    fn parsed(args: &[&str]) -> Result<Command, Failure> {
        super::super::parse(["rbt", "check"].iter().chain(args).map(OsString::from))
    }

    fn check(args: &[&str]) -> Check {
        match parsed(args) {
            Ok(Command::Subcommand(action)) => *(action as Box<dyn Any>).downcast().unwrap(),
            other => panic!("{args:?}: {other:?}"),
        }
    }

    #[test]
    fn kernels_are_reported_from_scripts() {
        let c = check(&["a.bt", "--against", "x.rbts", "y.rbts", "--against", "here", "b.bt"]);
        assert_eq!(c.scripts, ["a.bt", "b.bt"]);
        assert_eq!(c.against, [PathBuf::from("x.rbts"), "y.rbts".into(), "here".into()]);
        assert_eq!(check(&["--against", "kernels", "a.bt"]).against, [PathBuf::from("kernels")]);
        let c = check(&["-qv", "a", "--deny", "warnings", "-f", "sarif", "-o", "x", "--root", "r", "--binary", "b", "--load"]);
        assert!(c.quiet && c.verbose && c.deny_warnings && c.load && c.format == "sarif");
    }

    #[test]
    fn wrong_use_is_status_2() {
        let bad = [&[][..], &["--against", "a.rbts"], &["a", "--deny", "notes"], &["a", "-f", "jnuit"], &["a", "--aganist", "b"]];
        for args in bad {
            let failure = parsed(args).unwrap_err();
            assert_eq!((failure.status, failure.help.is_some()), (2, true), "{args:?}: {failure:?}");
        }
        let Ok(Command::Say(help)) = parsed(&["--help"]) else { panic!() };
        assert!(help.contains("--against") && help.contains("Exit status"), "{help}");
        let Ok(Command::Say(text)) = parsed(&["--rules"]) else { panic!() };
        for rule in RULES {
            assert!(text.contains(rule.name), "{}", rule.name);
        }
    }
}
