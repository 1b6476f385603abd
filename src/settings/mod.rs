//! Settings, resolved from the command line, the environment and the script's `config` block.
//!
//! [`SETTINGS`] has a row for each name of the environment and of `config` blocks. The environment overrides the block, and the
//! flag of a row overrides both. Other flags set fields without a row.

use std::sync::Arc;
use std::time::Duration;

use crate::diag::{Diagnostic, Diagnostics, Span, nearest};
use crate::value::StackMode;
pub use built::Built;
pub use late_bound::{Argument, LateBound, MAX_ARGUMENT_TEXT};
pub use parse::{parse_bool, parse_duration, parse_int, parse_overhead, write_overhead};
use regex::Regex;
pub use rows::{ENV_ONLY, SETTINGS};
use rows::{RENAMED, WITHOUT_EFFECT, parse_unstable};
use serde::{Deserialize, Serialize};

mod built;
mod late_bound;
mod parse;
mod rows;

/// A share of processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overhead {
    /// In thousandths of a percent.
    pub millipercent: u32,
    /// Is it of all CPUs together, rather than of one?
    pub of_machine: bool,
}

/// Handling of a probe that does not exist or cannot be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingProbes {
    /// The run fails.
    Error,
    /// Warn and continue.
    Warn,
    /// Continue.
    Ignore,
}

/// How user symbols are cached during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheUserSymbols {
    /// By process.
    PerPid,
    /// By executable.
    PerProgram,
    /// They are not cached.
    None,
}

/// The text layout of maps with keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapLayout {
    /// `@name[key]: value`, a line per entry.
    List,
    /// Aligned columns.
    Table,
}

/// Permission to use a feature that may still change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unstable {
    /// Use it.
    Enable,
    /// Use it with a warning.
    Warn,
    /// Refuse it.
    Error,
}

/// Resolved settings, from flags, the environment and the `config` block.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How user symbols are cached; none for the default, which caches them.
    pub cache_user_symbols: Option<CacheUserSymbols>,
    /// Demangle C++ and Rust names in stacks and `usym`.
    pub cpp_demangle: bool,
    /// Without effect: see its row.
    pub lazy_symbolication: bool,
    /// The run ends after this time; zero for no limit.
    pub duration: Duration,
    /// The BPF object's license.
    pub license: String,
    /// Size of the verifier's log in bytes.
    pub log_size: u64,
    /// Maximum number of programs after wildcard expansion.
    pub max_bpf_progs: u64,
    /// See [`MapLayout`].
    pub map_layout: MapLayout,
    /// Maximum number of bytes that `cat()` prints.
    pub max_cat_bytes: u64,
    /// Maximum number of events per second; 0 for no limit.
    pub max_events: u64,
    /// Maximum processor time of the probes.
    pub max_overhead: Option<Overhead>,
    /// Maximum number of keys of a map without a declaration.
    pub max_map_keys: u64,
    /// Maximum number of attach points after wildcard expansion.
    pub max_probes: u64,
    /// Maximum number of series of a map that `--serve` shows individually.
    pub max_series: u64,
    /// Number of stacks in a kernel table; 0 for the default.
    pub max_stacks: u64,
    /// Unwind user stacks by call frame information.
    pub unwind_tables: bool,
    /// Maximum size of unwind tables in the kernel, in bytes.
    pub unwind_memory: u64,
    /// Capacity of `str()` and `buf()`, bytes.
    pub max_strlen: u64,
    /// See [`MissingProbes`].
    pub missing_probes: MissingProbes,
    /// Values larger than this are not on the BPF stack.
    pub on_stack_limit: u64,
    /// Size of the ring buffer in pages; 0 for the default.
    pub perf_rb_pages: u64,
    /// Print all maps at the end.
    pub print_maps_on_exit: bool,
    /// Include rbt's own process.
    pub trace_self: bool,
    /// Source lines and inlined frames in stacks.
    pub show_debug_info: bool,
    /// Format of stacks.
    pub stack_mode: StackMode,
    /// Appended to a string that was cut.
    pub str_trunc_trailer: String,
    /// `tseries()`.
    pub unstable_tseries: Unstable,
    /// User stacks unwound by DWARF.
    pub unstable_dw_ustack: Unstable,
    /// `typeinfo`.
    pub unstable_typeinfo: Unstable,
    /// `import` within a block.
    pub unstable_import_statement: Unstable,

    /// `-p`
    pub pid: Option<u32>,
    /// `--follow`: trace only the process of `-c` or `-p`, and its descendants.
    pub follow: bool,
    /// `--unsafe`
    pub allow_unsafe: bool,
    /// Helper failures to report: 0 none, 1 those that lose data, 2 all (`-k`).
    pub warning_level: u8,
    /// `-I`
    pub include_dirs: Vec<std::path::PathBuf>,
    /// `-v`
    pub verbose: bool,
    /// `--include`
    pub includes: Vec<String>,
    /// `--debuginfo`: directories to search for separate debug files.
    pub debug_dirs: Vec<String>,
    /// The kind of probes to run.
    pub mode: Mode,
    /// `--probe-filter`, a regular expression.
    pub probe_filter: Option<Arc<dyn NameFilter>>,
    /// Mechanisms to avoid (`--no-feature`).
    pub no_features: Vec<Mechanism>,
    /// Settings from flags, with their values: they take precedence over the `config` block and the environment.
    pub flags: Vec<(&'static str, String)>,
}

/// Selects probes by their names. A program that does not take the option does not contain regular expressions.
pub trait NameFilter: std::fmt::Debug + Send + Sync {
    /// Is this name selected?
    fn is_match(&self, name: &str) -> bool;
}

impl NameFilter for Regex {
    fn is_match(&self, name: &str) -> bool {
        Regex::is_match(self, name)
    }
}

/// The facts of one run, which are not settings: its parameters, and what was found out for it.
#[derive(Clone, Debug, Default)]
pub struct Invocation {
    /// There is a `-c` command, so `cpid` has a value.
    pub has_child: bool,
    /// Failed reads of memory are counted, because they affect expectations (`--expect`).
    pub counts_unread: bool,
    /// Records contain their time.
    pub stamps: bool,
    /// Records contain their origin (`--otlp`): time, thread, name of the thread, site of the probe.
    pub sends_origin: bool,
    /// `$1` …
    pub params: Vec<String>,
    /// `--name=value` and `--name` after the script, for `getopt`; in order.
    pub options: Vec<(String, Option<String>)>,
    /// The script's directory, which is searched first for headers in quotes.
    pub script_dir: std::path::PathBuf,
    /// The cgroup of `--cgroup` or `--container`: tasks in it and below are traced.
    pub cgroup: Option<CgroupFilter>,
    /// Other scripts may use its maps at the same time, so no map can have two copies.
    pub shares_maps: bool,
    /// The cost of the run is measured (`rbt cost`).
    pub is_measured: bool,
    /// The arguments that the code does not contain.
    pub late_bound: LateBound,
    /// Their values, as the code reads them.
    pub argument_memory: Vec<u8>,
}

/// Mechanisms that rbt uses if the kernel supports them, unless `--no-feature` disables them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mechanism {
    /// The kernel's helper that iterates a loop.
    BpfLoop,
    /// A trampoline for `kprobe` and `kretprobe`.
    Fentry,
    /// Code that compares numbers with their bounds. Otherwise, a function does it, after which all kernels know the bound.
    InlineBounds,
    /// The statements of a long probe that runs often within its code. Otherwise, those that are alike share a function, as in
    /// probes that run rarely.
    InlineStatements,
    /// One link for many kernel functions.
    KprobeMulti,
    /// One program for a function's entry and its return.
    KprobeSession,
    /// The instruction of a marker for which the kernel replaces the trap by a call.
    OptimizedUprobe,
    /// One program for the tracepoints of all system calls.
    RawSyscalls,
    /// A raw tracepoint for `tracepoint`.
    RawTracepoint,
    /// A table of the threads' elements of a map whose key is the current thread, in front of the hash map.
    ThreadTable,
    /// Copies of the body of `unroll`, which is otherwise a loop.
    Unroll,
    /// One link for many places of a binary.
    UprobeMulti,
}

/// Their names.
pub const MECHANISMS: &[(&str, Mechanism)] = &[
    ("bpf_loop", Mechanism::BpfLoop),
    ("fentry", Mechanism::Fentry),
    ("inline_bounds", Mechanism::InlineBounds),
    ("inline_statements", Mechanism::InlineStatements),
    ("kprobe_multi", Mechanism::KprobeMulti),
    ("kprobe_session", Mechanism::KprobeSession),
    ("optimized_uprobe", Mechanism::OptimizedUprobe),
    ("raw_syscalls", Mechanism::RawSyscalls),
    ("raw_tracepoint", Mechanism::RawTracepoint),
    ("thread_table", Mechanism::ThreadTable),
    ("unroll", Mechanism::Unroll),
    ("uprobe_multi", Mechanism::UprobeMulti),
];

impl Settings {
    /// Is this mechanism disabled?
    pub fn refuses(&self, what: Mechanism) -> bool {
        self.no_features.contains(&what)
    }

    /// Does `followed` refer to a process and its descendants?
    pub fn follows(&self, invocation: &Invocation) -> bool {
        invocation.has_child || self.follow && self.pid.is_some()
    }

    /// Are probes that can be attached to a process limited to that of `-c`?
    pub fn limits_to_command(&self, invocation: &Invocation) -> bool {
        invocation.has_child && !self.follow && self.pid.is_none()
    }

    /// The only traced process; none if its descendants are traced as well.
    pub fn only_pid(&self) -> Option<u32> {
        self.pid.filter(|_| !self.follow)
    }
}

/// The default of [`Settings::max_map_keys`].
pub const DEFAULT_MAP_KEYS: u64 = 4096;

impl Default for Settings {
    fn default() -> Self {
        Self {
            cache_user_symbols: None,
            cpp_demangle: true,
            lazy_symbolication: true,
            duration: Duration::ZERO,
            license: "GPL".into(),
            log_size: 1_000_000,
            max_bpf_progs: 1024,
            map_layout: MapLayout::List,
            max_cat_bytes: 10240,
            max_events: 0,
            max_overhead: None,
            max_map_keys: DEFAULT_MAP_KEYS,
            max_probes: 1024,
            max_series: 1000,
            max_stacks: 0,
            unwind_tables: true,
            unwind_memory: 256 << 20,
            max_strlen: 1024,
            missing_probes: MissingProbes::Error,
            on_stack_limit: 32,
            perf_rb_pages: 0,
            print_maps_on_exit: true,
            trace_self: false,
            show_debug_info: true,
            stack_mode: StackMode::Bpftrace,
            str_trunc_trailer: "..".into(),
            unstable_tseries: Unstable::Warn,
            unstable_dw_ustack: Unstable::Warn,
            unstable_typeinfo: Unstable::Error,
            unstable_import_statement: Unstable::Error,
            pid: None,
            follow: false,
            allow_unsafe: false,
            warning_level: 1,
            include_dirs: Vec::new(),
            verbose: false,
            includes: Vec::new(),
            debug_dirs: Vec::new(),
            mode: Mode::Trace,
            probe_filter: None,
            no_features: Vec::new(),
            flags: Vec::new(),
        }
    }
}

/// A cgroup that limits the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupFilter {
    /// Its ID.
    pub id: u64,
    /// Its directory.
    pub path: std::path::PathBuf,
    /// Its depth; none if it is unknown.
    pub level: Option<u32>,
}

/// The probes of a script to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Those that trace.
    #[default]
    Trace,
    /// Its tests (`--test`).
    Test,
    /// Its benchmarks (`--bench`).
    Bench,
    /// All of them, to list them (`-l`).
    List,
}

/// A flag that sets a row of [`SETTINGS`].
#[derive(Clone, Copy, Debug)]
pub struct SettingFlag {
    /// The name after two dashes.
    pub long: &'static str,
    /// The name of the value in the help.
    pub value: &'static str,
    /// Its heading in the help.
    pub heading: &'static str,
}

/// A row: a setting for the environment and `config` blocks.
pub struct Setting {
    /// The name in a `config` block; the environment variable is `RBT_` and the name in capitals.
    pub name: &'static str,
    /// The accepted values, for help texts.
    pub values: &'static str,
    /// Its effect and its unit: sentences without the final period.
    pub doc: &'static str,
    /// Its flag, if the command line can set it, too.
    pub flag: Option<SettingFlag>,
    /// It does not affect the compiled script: users of a bundle may set it.
    pub at_run: bool,
    /// Parses a value; an error describes the accepted ones.
    pub set: fn(&mut Settings, &str) -> Result<(), String>,
    /// The value as users write it.
    pub get: fn(&Settings) -> String,
}

impl Setting {
    /// Adds a flag on the command line.
    const fn with_flag(self, long: &'static str, value: &'static str, heading: &'static str) -> Self {
        Self { flag: Some(SettingFlag { long, value, heading }), ..self }
    }

    /// Marks a setting that does not affect the compiled script.
    const fn at_run(self) -> Self {
        Self { at_run: true, ..self }
    }

    /// The accepted words, if the setting accepts only words.
    pub fn words(&self) -> Vec<&'static str> {
        if self.values.contains(", ") { self.values.split(", ").collect() } else { Vec::new() }
    }

    /// The accepted values and the default, as help and manual show them: `Values: list, table; default list`.
    pub fn values_text(&self) -> String {
        let label = if self.words().is_empty() { "Value" } else { "Values" };
        let default = match self.default_text().as_str() {
            "" => "empty".to_string(),
            text if text.contains(|c: char| !c.is_alphanumeric() && c != '_') => format!("\"{text}\""),
            text => text.to_string(),
        };
        format!("{label}: {}; default {default}", self.values)
    }

    /// The default value.
    pub fn default_text(&self) -> String {
        (self.get)(&Settings::default())
    }
}

/// The values of a boolean setting.
pub const SWITCH: &str = "true, false";
/// The values of a setting that accepts a number.
const NUMBER: &str = "number";
/// The values of a setting that accepts any text.
pub const TEXT: &str = "text";
/// `max_strlen` on kernels that limit keys to 512 bytes: two such strings and some numbers fit into a key.
const SHORT_STRLEN: u64 = 200;
/// The value of a setting that the run chooses.
pub const UNDECIDED: &str = "auto";

impl Settings {
    /// Adapts default values to a kernel: `short_keys` is [`crate::system::Feature::ShortKeys`].
    pub fn fit(&mut self, short_keys: bool) {
        if short_keys && self.max_strlen == Settings::default().max_strlen {
            self.max_strlen = SHORT_STRLEN;
        }
    }

    /// May this unstable feature be used? None: it is not an unstable feature.
    pub fn unstable(&self, feature: &str) -> Option<Unstable> {
        let row = SETTINGS.iter().find(|row| row.name.strip_prefix("unstable_") == Some(feature))?;
        parse_unstable(&(row.get)(self)).ok()
    }
}

/// The value of `RBT_<NAME>`, or else of `BPFTRACE_<NAME>`.
pub fn env_only(name: &str) -> Option<String> {
    let upper = name.to_ascii_uppercase();
    ["RBT_", "BPFTRACE_"].iter().find_map(|p| std::env::var(format!("{p}{upper}")).ok())
}

/// Applies environment variables: `RBT_<NAME>`, or else `BPFTRACE_<NAME>`. Returns warnings; an error names the
/// variable and the accepted values.
pub fn apply_env(settings: &mut Settings, vars: impl IntoIterator<Item = (String, String)>) -> Result<Vec<String>, String> {
    let mut found: Vec<(&str, String, String)> = Vec::new();
    let vars: Vec<(String, String)> = vars.into_iter().collect();
    // rbt's own come last, so that they take precedence.
    for prefix in ["BPFTRACE_", "RBT_"] {
        for (var, value) in &vars {
            if let Some(name) = var.strip_prefix(prefix) {
                found.push((var, name.to_ascii_lowercase(), value.clone()));
            }
        }
    }
    let mut warnings = Vec::new();
    for (var, name, value) in found {
        match resolve(&name) {
            Name::Row(row) => {
                (row.set)(settings, &value).map_err(|e| format!("the environment variable {var}={value} is not valid: {e}"))?;
            }
            Name::Renamed(row) => {
                warnings.push(format!("{var} is now called RBT_{}", row.name.to_ascii_uppercase()));
                (row.set)(settings, &value).map_err(|e| format!("the environment variable {var}={value} is not valid: {e}"))?;
            }
            Name::WithoutEffect => warnings.push(format!("{var} has no effect")),
            Name::EnvOnly => {}
            // Other programs have such variables, too: warn only if one of rbt's was certainly meant.
            Name::Unknown => {
                if let Some(near) = nearest(&name, names()) {
                    warnings.push(format!("{var} is not known; did you mean RBT_{}?", near.to_ascii_uppercase()));
                }
            }
        }
    }
    settings.flags_again();
    Ok(warnings)
}

impl Settings {
    /// Sets a row by its flag, which takes precedence over the `config` block and the environment.
    ///
    /// # Errors
    /// The accepted values.
    pub fn override_by_flag(&mut self, row: &'static Setting, value: &str) -> Result<(), String> {
        (row.set)(self, value)?;
        self.flags.push((row.name, value.to_string()));
        Ok(())
    }

    fn flags_again(&mut self) {
        for (name, value) in self.flags.clone() {
            if let Name::Row(row) = resolve(name) {
                // it was accepted before
                let _ = (row.set)(self, &value);
            }
        }
    }
}

/// `name = value` in a `config` block.
#[derive(Clone, Copy, Debug)]
pub struct Assignment<'a> {
    /// The name as written.
    pub name: &'a str,
    /// The place of the name.
    pub name_span: Span,
    /// The value without quotes.
    pub value: &'a str,
    /// The place of the value.
    pub value_span: Span,
}

/// Applies a script's `config` block. Codes: `unknown-setting`, `bad-setting`, `renamed-setting`, `setting-without-effect`,
/// `env-only-setting`.
pub fn apply_config<'a>(settings: &mut Settings, items: impl IntoIterator<Item = Assignment<'a>>) -> Diagnostics {
    Diagnostics(items.into_iter().filter_map(|item| apply_item(settings, item)).collect())
}

fn apply_item(settings: &mut Settings, item: Assignment) -> Option<Diagnostic> {
    let lower = item.name.to_ascii_lowercase();
    let name = lower.strip_prefix("bpftrace_").or_else(|| lower.strip_prefix("rbt_")).unwrap_or(&lower);
    let at = item.name_span;
    let mut set = |row: &Setting| {
        let failed = (row.set)(settings, item.value).err()?;
        let message = format!("`{}` is not a valid value for `{}`", item.value, row.name);
        Some(Diagnostic::error("bad-setting", item.value_span, message).help(failed))
    };
    match resolve(name) {
        Name::Row(row) => set(row),
        Name::Renamed(row) => Some(set(row).unwrap_or_else(|| {
            let message = format!("`{name}` is now called `{}`", row.name);
            Diagnostic::warning("renamed-setting", at, message).help(format!("write `{}`", row.name))
        })),
        Name::WithoutEffect => Some(Diagnostic::warning("setting-without-effect", at, format!("`{name}` has no effect")).help("remove it")),
        Name::EnvOnly => {
            let message = format!("`{name}` can be set in the environment only");
            let help = format!("run with RBT_{}={}", name.to_ascii_uppercase(), item.value);
            Some(Diagnostic::error("env-only-setting", at, message).help(help))
        }
        Name::Unknown => Some(Diagnostic::error("unknown-setting", at, format!("there is no setting `{name}`")).suggest(name, names())),
    }
}

enum Name {
    Row(&'static Setting),
    Renamed(&'static Setting),
    WithoutEffect,
    EnvOnly,
    Unknown,
}

fn resolve(name: &str) -> Name {
    let row = |name: &str| SETTINGS.iter().find(|s| s.name == name);
    if let Some(row) = row(name) {
        return Name::Row(row);
    }
    if let Some(row) = RENAMED.iter().find(|(old, _)| *old == name).and_then(|(_, new)| row(new)) {
        return Name::Renamed(row);
    }
    if WITHOUT_EFFECT.contains(&name) {
        return Name::WithoutEffect;
    }
    if ENV_ONLY.iter().any(|(n, _)| *n == name) {
        return Name::EnvOnly;
    }
    Name::Unknown
}

fn names() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|s| s.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::Severity;

    fn item<'a>(name: &'a str, value: &'a str) -> Assignment<'a> {
        Assignment { name, name_span: Span::default(), value, value_span: Span::default() }
    }

    fn vars(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect()
    }

    #[test]
    fn rows_are_sorted_and_take_their_own_defaults() {
        assert!(SETTINGS.is_sorted_by_key(|s| s.name));
        for row in SETTINGS {
            let mut s = Settings::default();
            let text = row.default_text();
            if text != "auto" {
                (row.set)(&mut s, &text).unwrap_or_else(|e| panic!("{}: {e}", row.name));
            }
            assert_eq!((row.get)(&s), text, "{}", row.name);
        }
    }

    #[test]
    fn numbers_have_many_forms() {
        for (text, n) in [
            ("64", 64),
            ("0x40", 64),
            ("0b11", 3),
            ("010", 8),
            ("1e6", 1_000_000),
            ("1_000", 1000),
            ("2ms", 2_000_000),
            ("64K", 65536),
            ("0", 0),
        ] {
            assert_eq!(parse_int(text), Ok(n), "{text}");
        }
        for text in ["", "-1", "x", "1z", "99999999999999999999", "1e30", "20000000000G"] {
            assert!(parse_int(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_many_forms() {
        for (text, ms) in
            [("10s", 10_000), ("1.5s", 1500), ("500ms", 500), ("2m", 120_000), ("0", 0), ("10", 10_000), ("0.3", 300), ("0.25h", 900_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "ten", "s", "-1s", "1..5s", "1.s", ".5s", "1x", "99999999999999999999s", "999999999d", "1.0123456789s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rbt_variables_override_bpftrace_variables() {
        let mut s = Settings::default();
        apply_env(&mut s, vars(&[("RBT_MAX_STRLEN", "10"), ("BPFTRACE_MAX_STRLEN", "20"), ("BPFTRACE_MAX_PROBES", "7")])).unwrap();
        assert_eq!((s.max_strlen, s.max_probes), (10, 7));
    }

    #[test]
    fn short_keys_require_short_strings() {
        let mut s = Settings::default();
        s.fit(false);
        assert_eq!(s.max_strlen, 1024);
        s.fit(true);
        assert_eq!(s.max_strlen, SHORT_STRLEN);
        s.max_strlen = 300;
        s.fit(true);
        assert_eq!(s.max_strlen, 300);
    }

    #[test]
    fn variables_are_checked() {
        let mut s = Settings::default();
        assert!(apply_env(&mut s, vars(&[("RBT_MAX_STRLEN", "ten")])).unwrap_err().contains("RBT_MAX_STRLEN=ten"));
        assert_eq!(apply_env(&mut s, vars(&[("RBT_MAX_STRLN", "1")])).unwrap().len(), 1);
        assert!(apply_env(&mut s, vars(&[("RBT_TEST_REQUIRE", "all"), ("HOME", "/")])).unwrap().is_empty());
    }

    #[test]
    fn the_block_takes_any_case_and_prefix() {
        let mut s = Settings::default();
        let items =
            [item("MAX_STRLEN", "64"), item("bpftrace_missing_probes", "WARN"), item("stack_mode", "perf"), item("unstable_tseries", "1")];
        assert!(apply_config(&mut s, items).0.is_empty());
        assert_eq!((s.max_strlen, s.missing_probes, s.stack_mode), (64, MissingProbes::Warn, StackMode::Perf));
        assert_eq!(s.unstable_tseries, Unstable::Enable);
    }

    #[test]
    fn the_block_is_diagnosed() {
        let mut s = Settings::default();
        let cases = [
            ("max_strln", "64", "unknown-setting", Severity::Error),
            ("max_strlen", "long", "bad-setting", Severity::Error),
            ("license", "MIT", "bad-setting", Severity::Error),
            ("strlen", "64", "renamed-setting", Severity::Warning),
            ("unstable_macro", "1", "setting-without-effect", Severity::Warning),
            ("btf", "/x", "env-only-setting", Severity::Error),
        ];
        for (name, value, code, severity) in cases {
            let d = &apply_config(&mut s, [item(name, value)]).0[0];
            assert_eq!((d.code, d.severity), (code, severity), "{name}");
            assert!(d.help.is_some(), "{name}");
        }
        assert_eq!(s.max_strlen, 64);
    }
}
