//! What the user may set, resolved: command line, environment and the script's `config` block have had their say.
//!
//! [`SETTINGS`] has a row for each name that the environment and a `config` block know. The block is applied first and
//! the environment after it, so that the environment wins. Options of the command line are fields without a row.

use crate::diag::{Diagnostic, Diagnostics, Span, nearest};
use crate::value::StackMode;
use serde::{Deserialize, Serialize};

/// Handling of a probe that does not exist or cannot be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingProbes {
    /// The run fails.
    Error,
    /// Say so and go on.
    Warn,
    /// Go on.
    Ignore,
}

/// Whose symbols are kept while a run lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheUserSymbols {
    /// By process.
    PerPid,
    /// By executable.
    PerProgram,
    /// Not at all.
    None,
}

/// How maps with keys are laid out as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapLayout {
    /// `@name[key]: value`, a line per entry.
    List,
    /// In aligned columns.
    Table,
}

/// Permission to use a feature that may still change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unstable {
    /// Use it.
    Enable,
    /// Use it and say so.
    Warn,
    /// Refuse it.
    Error,
}

/// Resolved settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whose symbols are kept; none: nothing is said, so they are kept.
    pub cache_user_symbols: Option<CacheUserSymbols>,
    /// Demangle C++ and Rust names in stacks and `usym`.
    pub cpp_demangle: bool,
    /// Without effect: see its row.
    pub lazy_symbolication: bool,
    /// The BPF object's license.
    pub license: String,
    /// Bytes of the verifier's log.
    pub log_size: u64,
    /// Programs after wildcards.
    pub max_bpf_progs: u64,
    /// See [`MapLayout`].
    pub map_layout: MapLayout,
    /// Bytes that `cat()` prints.
    pub max_cat_bytes: u64,
    /// Maximum number of keys of a map without a declaration.
    pub max_map_keys: u64,
    /// Attach points after wildcards.
    pub max_probes: u64,
    /// Stacks that a table in the kernel holds; 0: by itself.
    pub max_stacks: u64,
    /// Capacity of `str()` and `buf()`, bytes.
    pub max_strlen: u64,
    /// See [`MissingProbes`].
    pub missing_probes: MissingProbes,
    /// Values over so many bytes live off the BPF stack.
    pub on_stack_limit: u64,
    /// Ring buffer, in pages; 0: by itself.
    pub perf_rb_pages: u64,
    /// Print all maps at the end.
    pub print_maps_on_exit: bool,
    /// rbt's own process is not left out.
    pub trace_self: bool,
    /// Source lines and inlined frames in stacks.
    pub show_debug_info: bool,
    /// Format of stacks.
    pub stack_mode: StackMode,
    /// Ends a string that was cut.
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
    /// There is a `-c` command: `cpid` has a value.
    pub has_child: bool,
    /// `--follow`: only the process of `-c` or `-p`, and those that it starts.
    pub follow: bool,
    /// `--unsafe`
    pub allow_unsafe: bool,
    /// Helper failures reported: 0 none, 1 those that lose something, 2 all (`-k`).
    pub warning_level: u8,
    /// Reads of memory that fail are counted: somebody asks whether all was seen (`--expect`).
    pub counts_unread: bool,
    /// `$1` …
    pub params: Vec<String>,
    /// `--name=value` and `--name` after the script, for `getopt`; in order.
    pub options: Vec<(String, Option<String>)>,
    /// `-I`
    pub include_dirs: Vec<std::path::PathBuf>,
    /// `-v`
    pub verbose: bool,
    /// `--include`
    pub includes: Vec<String>,
    /// Where headers in quotes are sought first: the script's own folder.
    pub script_dir: std::path::PathBuf,
    /// `--debuginfo`: where separate debug files are looked for.
    pub debug_dirs: Vec<String>,
    /// Tasks that are traced: those in this cgroup or below (`--cgroup`, `--container`).
    pub cgroup: Option<CgroupFilter>,
    /// What is run.
    pub mode: Mode,
    /// Its maps may be those of scripts that run beside it, so none can be there twice.
    pub shares_maps: bool,
    /// `--probe-filter`, a regular expression.
    pub probe_filter: Option<String>,
    /// What not to use (`--no-feature`).
    pub no_features: Vec<Mechanism>,
}

/// What rbt uses of itself where the kernel has it, and leaves alone where `--no-feature` says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mechanism {
    /// The kernel's helper that makes a loop's turns.
    BpfLoop,
    /// A trampoline for `kprobe` and `kretprobe`.
    Fentry,
    /// One link for many kernel functions.
    KprobeMulti,
    /// One program for a function's entry and its return.
    KprobeSession,
    /// One program for all system calls' tracepoints.
    RawSyscalls,
    /// A raw tracepoint for `tracepoint`.
    RawTracepoint,
    /// One link for many places of a binary.
    UprobeMulti,
}

/// As they are named.
pub const MECHANISMS: &[(&str, Mechanism)] = &[
    ("bpf_loop", Mechanism::BpfLoop),
    ("fentry", Mechanism::Fentry),
    ("kprobe_multi", Mechanism::KprobeMulti),
    ("kprobe_session", Mechanism::KprobeSession),
    ("raw_syscalls", Mechanism::RawSyscalls),
    ("raw_tracepoint", Mechanism::RawTracepoint),
    ("uprobe_multi", Mechanism::UprobeMulti),
];

impl Settings {
    /// Is this not to be used?
    pub fn refuses(&self, what: Mechanism) -> bool {
        self.no_features.contains(&what)
    }

    /// Is there a process whose descendants `followed` knows?
    pub fn follows(&self) -> bool {
        self.has_child || self.follow && self.pid.is_some()
    }

    /// The only process that is traced; none where those that it starts are, too.
    pub fn only_pid(&self) -> Option<u32> {
        self.pid.filter(|_| !self.follow)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cache_user_symbols: None,
            cpp_demangle: true,
            lazy_symbolication: true,
            license: "GPL".into(),
            log_size: 1_000_000,
            max_bpf_progs: 1024,
            map_layout: MapLayout::List,
            max_cat_bytes: 10240,
            max_map_keys: 4096,
            max_probes: 1024,
            max_stacks: 0,
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
            has_child: false,
            follow: false,
            allow_unsafe: false,
            warning_level: 1,
            counts_unread: false,
            params: Vec::new(),
            options: Vec::new(),
            include_dirs: Vec::new(),
            verbose: false,
            includes: Vec::new(),
            script_dir: std::path::PathBuf::new(),
            debug_dirs: Vec::new(),
            cgroup: None,
            mode: Mode::Trace,
            shares_maps: false,
            probe_filter: None,
            no_features: Vec::new(),
        }
    }
}

/// A cgroup to stay within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CgroupFilter {
    /// Its id.
    pub id: u64,
    /// How many are above it; none where that is not known.
    pub level: Option<u32>,
}

/// Which of a script's probes are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Those that trace.
    #[default]
    Trace,
    /// Its tests (`--test`).
    Test,
    /// Its benchmarks (`--bench`).
    Bench,
}

/// A row: something that the environment and a `config` block may set.
pub struct Setting {
    /// As a `config` block writes it; the environment's name is `RBT_` and this in capitals.
    pub name: &'static str,
    /// What may be given, for help texts.
    pub values: &'static str,
    /// What it does: one sentence without its final stop.
    pub doc: &'static str,
    /// Reads a value; an error says what would have been accepted.
    pub set: fn(&mut Settings, &str) -> Result<(), String>,
    /// The value as one would write it.
    pub get: fn(&Settings) -> String,
}

impl Setting {
    /// The value that holds when nothing is said.
    pub fn default_text(&self) -> String {
        (self.get)(&Settings::default())
    }
}

/// Pages of 4 KiB in 1 GiB, the largest ring buffer.
const MOST_RING_PAGES: u64 = 1 << 18;

macro_rules! number {
    ($field:ident, $values:literal, $least:literal, $doc:literal) => {
        Setting {
            name: stringify!($field),
            values: $values,
            doc: $doc,
            set: |s, text| {
                let n = parse_int(text)?;
                if !($least..).contains(&n) {
                    return Err(format!("must be at least {}", $least));
                }
                s.$field = n;
                Ok(())
            },
            get: |s| s.$field.to_string(),
        }
    };
}

macro_rules! switch {
    ($field:ident, $doc:literal) => {
        Setting {
            name: stringify!($field),
            values: SWITCH,
            doc: $doc,
            set: |s, text| parse_bool(text).map(|b| s.$field = b),
            get: |s| s.$field.to_string(),
        }
    };
}

macro_rules! word {
    ($field:ident, $words:ident, $values:literal, $doc:literal) => {
        Setting {
            name: stringify!($field),
            values: $values,
            doc: $doc,
            set: |s, text| parse_word(text, $words).map(|w| s.$field = w),
            get: |s| name_of(s.$field, $words).to_string(),
        }
    };
}

macro_rules! unstable {
    ($field:ident, $doc:literal) => {
        Setting {
            name: stringify!($field),
            values: "enable, warn, error",
            doc: $doc,
            set: |s, text| parse_unstable(text).map(|u| s.$field = u),
            get: |s| name_of(s.$field, UNSTABLE).to_string(),
        }
    };
}

/// What a setting of two values takes.
pub const SWITCH: &str = "true, false";
/// What a setting of any text takes.
pub const TEXT: &str = "text";
/// `max_strlen` where maps' keys have 512 bytes at most: two such strings and some numbers make a key.
const SHORT_STRLEN: u64 = 200;
/// The value of a setting that the run decides by itself.
pub const UNDECIDED: &str = "auto";

impl Settings {
    /// What is left as it was by everybody is made to fit a kernel: `short_keys` is [`crate::system::Feature::ShortKeys`].
    pub fn fit(&mut self, short_keys: bool) {
        if short_keys && self.max_strlen == Settings::default().max_strlen {
            self.max_strlen = SHORT_STRLEN;
        }
    }

    /// May this part of the language be used that may still change? None: it is not such a part.
    pub fn unstable(&self, feature: &str) -> Option<Unstable> {
        let row = SETTINGS.iter().find(|row| row.name.strip_prefix("unstable_") == Some(feature))?;
        parse_unstable(&(row.get)(self)).ok()
    }
}

/// All of them, in order of name.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "cache_user_symbols",
        values: "PER_PID, PER_PROGRAM, NONE",
        doc: "Caching of user symbols: NONE resolves a symbol each time it is printed. PER_PID and PER_PROGRAM both cache it by file and offset",
        set: |s, text| {
            s.cache_user_symbols = match text {
                "1" => None,
                "0" => Some(CacheUserSymbols::None),
                _ => Some(parse_word(text, CACHES)?),
            };
            Ok(())
        },
        get: |s| s.cache_user_symbols.map_or(UNDECIDED, |c| name_of(c, CACHES)).to_string(),
    },
    switch!(cpp_demangle, "Demangle C++ and Rust names in user stacks and usym"),
    switch!(
        lazy_symbolication,
        "No effect: rbt resolves user symbols when it prints them, and records the mappings of processes during the run, so that symbols of ended processes are known"
    ),
    Setting {
        name: "license",
        values: "GPL, GPL v2, GPL and additional rights, Dual BSD/GPL, Dual MIT/GPL, Dual MPL/GPL",
        doc: "License of the BPF programs",
        set: |s, text| {
            let known = LICENSES.iter().find(|l| l.eq_ignore_ascii_case(text)).ok_or_else(|| one_of(LICENSES.iter().copied()))?;
            s.license = (*known).to_string();
            Ok(())
        },
        get: |s| s.license.clone(),
    },
    number!(log_size, "bytes", 1, "Size of the verifier's log"),
    word!(map_layout, MAP_LAYOUTS, "list, table", "Layout of maps with keys in text: one entry per line, or aligned columns"),
    number!(max_bpf_progs, "count", 1, "Maximum number of BPF programs of a script"),
    number!(max_cat_bytes, "bytes", 1, "Maximum number of bytes that cat() prints, up to 128 MiB"),
    number!(max_map_keys, "count", 1, "Entries of a keyed map that is not declared"),
    number!(max_probes, "count", 1, "Maximum number of probes that a script attaches"),
    number!(
        max_stacks,
        "count",
        0,
        "Number of distinct stacks that the kernel stores until rbt reads them; 0 stores as many as fit in 16 MiB, at most 65,536"
    ),
    number!(
        max_strlen,
        "bytes",
        1,
        "Maximum length of the results of str(), buf() and path(); the default is 200 before Linux 5.11, where keys of maps have at most 512 bytes"
    ),
    word!(missing_probes, MISSING, "error, warn, ignore", "What to do about a probe that does not exist or will not attach"),
    number!(on_stack_limit, "bytes", 0, "Values larger than this are kept in per-CPU memory instead of on the BPF stack; from 8 to 64"),
    Setting {
        name: "perf_rb_pages",
        values: "pages",
        doc: "Size of the ring buffer, up to 1 GiB; 0 chooses it by the size of memory",
        set: |s, text| {
            let pages = parse_int(text)?;
            if !(0..=MOST_RING_PAGES).contains(&pages) {
                return Err(format!("must be between 0 and {MOST_RING_PAGES} (1 GiB)"));
            }
            s.perf_rb_pages = pages;
            Ok(())
        },
        get: |s| s.perf_rb_pages.to_string(),
    },
    switch!(print_maps_on_exit, "Print all maps when the run ends"),
    switch!(show_debug_info, "Show source lines and inlined frames in stacks"),
    word!(stack_mode, STACK_MODES, "bpftrace, perf, raw, build_id", "How stacks are written"),
    Setting {
        name: "str_trunc_trailer",
        values: TEXT,
        doc: "Suffix of a truncated string; may be empty",
        set: |s, text| {
            s.str_trunc_trailer = text.to_string();
            Ok(())
        },
        get: |s| s.str_trunc_trailer.clone(),
    },
    switch!(trace_self, "Let user-space probes and probes on system calls fire in rbt's own process as well"),
    unstable!(unstable_dw_ustack, "Allow unwinding of user stacks by DWARF"),
    unstable!(unstable_import_statement, "Allow import within a block"),
    unstable!(unstable_tseries, "Allow tseries()"),
    unstable!(unstable_typeinfo, "Allow typeinfo"),
];

/// Names of old: still accepted, with a warning.
const RENAMED: &[(&str, &str)] = &[
    ("strlen", "max_strlen"),
    ("cat_bytes_max", "max_cat_bytes"),
    ("map_keys_max", "max_map_keys"),
    // Not inverted, strange as it is: scripts that set it rely on what it did.
    ("no_cpp_demangle", "cpp_demangle"),
];

/// Accepted, with a warning that they do nothing.
const WITHOUT_EFFECT: &[&str] = &[
    "symbol_source",
    "max_type_res_iterations",
    "unstable_addr",
    "unstable_import",
    "unstable_macro",
    "unstable_map_decl",
    "use_blazesym",
];

/// What only the environment may say: it is needed before a script is read.
pub const ENV_ONLY: &[(&str, &str)] = &[
    ("btf", "Raw BTF file to use in place of the kernel's"),
    ("cache", "Directory for cached lists of traceable functions; if empty, rbt keeps none"),
    ("color", "Color in messages: auto, always or never; --color overrides it"),
    ("kernel_build", "Directory of generated kernel headers; needs RBT_KERNEL_SOURCE"),
    ("kernel_source", "Directory of kernel headers"),
    ("vmlinux", "Uncompressed kernel image with symbols, used to check offsets of kprobes"),
];

/// The value of `RBT_<NAME>` or, failing that, of `BPFTRACE_<NAME>`.
pub fn env_only(name: &str) -> Option<String> {
    let upper = name.to_ascii_uppercase();
    ["RBT_", "BPFTRACE_"].iter().find_map(|p| std::env::var(format!("{p}{upper}")).ok())
}

/// Applies variables of the environment: `RBT_<NAME>`, and `BPFTRACE_<NAME>` where the first is absent.
/// Gives warnings; an error names the variable and what it would have accepted.
pub fn apply_env(settings: &mut Settings, vars: impl IntoIterator<Item = (String, String)>) -> Result<Vec<String>, String> {
    let mut found: Vec<(&str, String, String)> = Vec::new();
    let vars: Vec<(String, String)> = vars.into_iter().collect();
    // Ours last, so that they win.
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
            // Other programs have such variables too: speak up only where one of ours was surely meant.
            Name::Unknown => {
                if let Some(near) = nearest(&name, names()) {
                    warnings.push(format!("{var} is not known; did you mean RBT_{}?", near.to_ascii_uppercase()));
                }
            }
        }
    }
    Ok(warnings)
}

/// `name = value` of a `config` block.
#[derive(Clone, Copy, Debug)]
pub struct Assignment<'a> {
    /// As written.
    pub name: &'a str,
    /// Of the name.
    pub name_span: Span,
    /// Without quotes.
    pub value: &'a str,
    /// Of the value.
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
        let message = format!("`{}` is no value for `{}`", item.value, row.name);
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

const CACHES: &[(&str, CacheUserSymbols)] =
    &[("PER_PID", CacheUserSymbols::PerPid), ("PER_PROGRAM", CacheUserSymbols::PerProgram), ("NONE", CacheUserSymbols::None)];
const MISSING: &[(&str, MissingProbes)] =
    &[("error", MissingProbes::Error), ("warn", MissingProbes::Warn), ("ignore", MissingProbes::Ignore)];
const MAP_LAYOUTS: &[(&str, MapLayout)] = &[("list", MapLayout::List), ("table", MapLayout::Table)];
const STACK_MODES: &[(&str, StackMode)] =
    &[("bpftrace", StackMode::Bpftrace), ("perf", StackMode::Perf), ("raw", StackMode::Raw), ("build_id", StackMode::BuildId)];
const UNSTABLE: &[(&str, Unstable)] = &[("enable", Unstable::Enable), ("warn", Unstable::Warn), ("error", Unstable::Error)];
/// The strings that `license_is_gpl_compatible` (include/linux/license.h) takes.
const LICENSES: &[&str] = &["GPL", "GPL v2", "GPL and additional rights", "Dual BSD/GPL", "Dual MIT/GPL", "Dual MPL/GPL"];

fn parse_word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(w, _)| w.eq_ignore_ascii_case(text)).map(|(_, value)| *value);
    found.ok_or_else(|| one_of(words.iter().map(|(w, _)| *w)))
}

fn name_of<T: PartialEq>(value: T, words: &[(&'static str, T)]) -> &'static str {
    words.iter().find(|(_, v)| *v == value).map_or("", |(w, _)| w)
}

fn one_of<'a>(words: impl Iterator<Item = &'a str>) -> String {
    format!("expected one of {}", words.map(|w| format!("`{w}`")).collect::<Vec<_>>().join(", "))
}

/// `true` or `false` in any of the words that scripts know.
pub fn parse_bool(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "on" | "yes" => Ok(true),
        "0" | "false" | "off" | "no" => Ok(false),
        _ => Err("expected `true` or `false`".to_string()),
    }
}

fn parse_unstable(text: &str) -> Result<Unstable, String> {
    match parse_bool(text) {
        Ok(true) => Ok(Unstable::Enable),
        Ok(false) => Ok(Unstable::Error),
        Err(_) => parse_word(text, UNSTABLE),
    }
}

/// A non-negative integer in any form that scripts know (`1024`, `0x400`, `0b1`, `02000`, `1_000`, `1e6`, `5ms` in
/// nanoseconds) or with `K`, `M` or `G` for powers of 1024.
pub fn parse_int(text: &str) -> Result<u64, String> {
    let wrong = || "expected a number such as 1024, 0x400, 64K or 1e6".to_string();
    let plain: String = text.trim().chars().filter(|c| *c != '_').collect();
    let radix = |digits: &str, radix| u64::from_str_radix(digits, radix).map_err(|_| wrong());
    if let Some(hex) = plain.strip_prefix("0x").or_else(|| plain.strip_prefix("0X")) {
        return radix(hex, 16);
    }
    if let Some(bits) = plain.strip_prefix("0b") {
        return radix(bits, 2);
    }
    if plain.len() > 1 && plain.starts_with('0') && plain.bytes().all(|b| b.is_ascii_digit()) {
        return radix(&plain, 8);
    }
    let end = plain.find(|c: char| !c.is_ascii_digit()).unwrap_or(plain.len());
    let (digits, suffix) = plain.split_at(end);
    let n: u64 = digits.parse().map_err(|_| wrong())?;
    let factor = match suffix {
        "" | "ns" | "u" | "ul" | "ull" | "l" | "ll" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E']).and_then(|e| e.parse().ok()).ok_or_else(wrong)?;
            10u64.checked_pow(exponent).ok_or_else(wrong)?
        }
    };
    n.checked_mul(factor).ok_or_else(|| "too large".to_string())
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
    fn our_variable_wins_over_the_other() {
        let mut s = Settings::default();
        apply_env(&mut s, vars(&[("RBT_MAX_STRLEN", "10"), ("BPFTRACE_MAX_STRLEN", "20"), ("BPFTRACE_MAX_PROBES", "7")])).unwrap();
        assert_eq!((s.max_strlen, s.max_probes), (10, 7));
    }

    #[test]
    fn short_keys_want_short_strings() {
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
