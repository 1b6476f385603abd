//! What the user may set, resolved: command line, environment and the script's `config` block have had their say.

use crate::value::StackMode;

/// What to do about a probe that does not exist or will not attach.
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

/// Resolved settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whose symbols are kept; none: decided by `-c` and address randomisation.
    pub cache_user_symbols: Option<CacheUserSymbols>,
    /// Demangle C++ and Rust names in stacks and `usym`.
    pub cpp_demangle: bool,
    /// Resolve user symbols when they are printed.
    pub lazy_symbolication: bool,
    /// The BPF object's licence.
    pub license: String,
    /// Bytes of the verifier's log.
    pub log_size: u64,
    /// Programs after wildcards.
    pub max_bpf_progs: u64,
    /// Bytes that `cat()` prints.
    pub max_cat_bytes: u64,
    /// Entries of a keyed map that is not declared.
    pub max_map_keys: u64,
    /// Attach points after wildcards.
    pub max_probes: u64,
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
    /// Source lines and inlined frames in stacks.
    pub show_debug_info: bool,
    /// How stacks are written.
    pub stack_mode: StackMode,
    /// Ends a string that was cut.
    pub str_trunc_trailer: String,

    /// `-p`
    pub pid: Option<u32>,
    /// There is a `-c` command: `cpid` has a value.
    pub has_child: bool,
    /// `--unsafe`
    pub allow_unsafe: bool,
    /// Helper failures reported: 0 none, 1 those that lose something, 2 all (`-k`).
    pub warning_level: u8,
    /// `$1` …
    pub params: Vec<String>,
    /// `--probe-filter`, a regular expression.
    pub probe_filter: Option<String>,
    /// Features not to use (`--no-feature`).
    pub no_features: Vec<String>,
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
            max_cat_bytes: 10240,
            max_map_keys: 4096,
            max_probes: 1024,
            max_strlen: 1024,
            missing_probes: MissingProbes::Error,
            on_stack_limit: 32,
            perf_rb_pages: 0,
            print_maps_on_exit: true,
            show_debug_info: true,
            stack_mode: StackMode::Bpftrace,
            str_trunc_trailer: "..".into(),
            pid: None,
            has_child: false,
            allow_unsafe: false,
            warning_level: 1,
            params: Vec::new(),
            probe_filter: None,
            no_features: Vec::new(),
        }
    }
}
