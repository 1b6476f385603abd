//! The rows, and the words that their values accept.

use super::parse::{
    name_of, one_of, parse_bool, parse_duration, parse_int, parse_overhead, parse_rate, parse_word, write_duration, write_overhead,
};
use super::{CacheUserSymbols, MapLayout, MissingProbes, NUMBER, SWITCH, Setting, TEXT, UNDECIDED, Unstable};
use crate::types::MAX_LENGTH;
use crate::value::StackMode;

/// The size of the largest ring buffer, 1 GiB, in pages of 4 KiB.
const MAX_RING_PAGES: u64 = 1 << 18;

macro_rules! number {
    ($field:ident, $least:literal, $doc:literal) => {
        Setting {
            name: stringify!($field),
            values: NUMBER,
            doc: $doc,
            flag: None,
            at_run: false,
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
            flag: None,
            at_run: false,
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
            flag: None,
            at_run: false,
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
            flag: None,
            at_run: false,
            set: |s, text| parse_unstable(text).map(|u| s.$field = u),
            get: |s| name_of(s.$field, UNSTABLE).to_string(),
        }
    };
}

/// All settings, sorted by name.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "cache_user_symbols",
        values: "PER_PID, PER_PROGRAM, NONE",
        doc: "How rbt caches user symbols. PER_PID and PER_PROGRAM both cache them by file and offset. With NONE, rbt resolves a symbol each time it prints it",
        flag: None,
        at_run: false,
        set: |s, text| {
            s.cache_user_symbols = match text {
                "1" => None,
                "0" => Some(CacheUserSymbols::None),
                _ => Some(parse_word(text, CACHES)?),
            };
            Ok(())
        },
        get: |s| s.cache_user_symbols.map_or(UNDECIDED, |c| name_of(c, CACHES)).to_string(),
    }.at_run(),
    switch!(cpp_demangle, "Demangle C++ and Rust names in user stacks and usym").at_run(),
    Setting {
        name: "duration",
        values: "time",
        doc: "End the run, as Ctrl-C does, when this time has passed since all probes were attached. Without a unit, the time is in seconds (5, 0.5, 200ms, 2m). 0 sets no limit",
        flag: None,
        at_run: false,
        set: |s, text| parse_duration(text).map(|time| s.duration = time),
        get: |s| write_duration(s.duration),
    }
    .at_run()
    .with_flag("duration", "TIME", "Limits"),
    switch!(
        lazy_symbolication,
        "No effect. rbt resolves user symbols when it prints them. It records the mappings of processes during the run, so it also finds the symbols of processes that have ended"
    ).at_run(),
    Setting {
        name: "license",
        values: "GPL, GPL v2, GPL and additional rights, Dual BSD/GPL, Dual MIT/GPL, Dual MPL/GPL",
        doc: "License of the BPF programs",
        flag: None,
        at_run: false,
        set: |s, text| {
            let known = LICENSES.iter().find(|l| l.eq_ignore_ascii_case(text)).ok_or_else(|| one_of(LICENSES.iter().copied()))?;
            s.license = (*known).to_string();
            Ok(())
        },
        get: |s| s.license.clone(),
    },
    number!(log_size, 1, "Size of the verifier's log, in bytes").at_run(),
    word!(map_layout, MAP_LAYOUTS, "list, table", "Layout of maps with keys in text output. A list has one entry per line, and a table has aligned columns").at_run().with_flag(
        "map-layout",
        "LAYOUT",
        "Output",
    ),
    number!(max_bpf_progs, 1, "Maximum number of BPF programs of a script"),
    number!(max_cat_bytes, 1, "Maximum number of bytes that cat() prints. The greatest value is 128 MiB").at_run(),
    Setting {
        name: "max_events",
        values: NUMBER,
        doc: "Maximum number of events per second that pass the predicates of all probes together, such as 1000/s. 0 sets no limit",
        flag: None,
        at_run: false,
        set: |s, text| parse_rate(text).map(|n| s.max_events = n.min(1 << 40)),
        get: |s| s.max_events.to_string(),
    }
    .with_flag("max-events", "N/s", "Limits"),
    number!(max_map_keys, 1, "Maximum number of keys of a map without a declaration"),
    Setting {
        name: "max_overhead",
        values: "percentage",
        doc: "Maximum CPU time of the probes, as a percentage of one CPU (1%, 0.5%) or of the machine (2%machine). To stay below it, rbt samples runs, and detaches probes if that does not suffice. 0 sets no limit",
        flag: None,
        at_run: false,
        set: |s, text| parse_overhead(text).map(|limit| s.max_overhead = limit),
        get: |s| write_overhead(s.max_overhead),
    }
    .with_flag("max-overhead", "PERCENT", "Limits"),
    number!(max_probes, 1, "Maximum number of probes that a script attaches"),
    number!(
        max_series,
        1,
        "Maximum number of series of a map that --serve and --otlp export separately. rbt combines all others into one with the label other"
    )
    .at_run(),
    number!(
        max_stacks,
        0,
        "Number of distinct stacks that the kernel stores until rbt reads them. 0 stores as many as fit in 16 MiB, at most 65,536"
    ),
    Setting {
        name: "max_strlen",
        values: NUMBER,
        doc: "Maximum length of the results of str(), buf() and path(), in bytes, up to 1 MiB. Before Linux 5.11, the default is 200, because keys of maps have at most 512 bytes there",
        flag: None,
        at_run: false,
        set: |s, text| {
            let bytes = parse_int(text)?;
            if !(1..=u64::from(MAX_LENGTH)).contains(&bytes) {
                return Err(format!("must be between 1 and {MAX_LENGTH} (1 MiB)"));
            }
            s.max_strlen = bytes;
            Ok(())
        },
        get: |s| s.max_strlen.to_string(),
    },
    word!(missing_probes, MISSING, "error, warn, ignore", "What rbt does if a probe does not exist or cannot be attached. A missing binary is always an error").at_run(),
    number!(on_stack_limit, 0, "Maximum size of a value on the BPF stack, in bytes, from 8 to 64. rbt keeps larger values in per-CPU memory"),
    Setting {
        name: "perf_rb_pages",
        values: NUMBER,
        doc: "Size of the ring buffer, in pages of 4 KiB, up to 1 GiB. 0 selects a size based on the machine's memory",
        flag: None,
        at_run: false,
        set: |s, text| {
            let pages = parse_int(text)?;
            if !(0..=MAX_RING_PAGES).contains(&pages) {
                return Err(format!("must be between 0 and {MAX_RING_PAGES} (1 GiB)"));
            }
            s.perf_rb_pages = pages;
            Ok(())
        },
        get: |s| s.perf_rb_pages.to_string(),
    }.at_run(),
    switch!(print_maps_on_exit, "Print all maps when the run ends").at_run(),
    switch!(show_debug_info, "Show source lines and inlined frames in stacks").at_run(),
    word!(stack_mode, STACK_MODES, "bpftrace, perf, raw, build_id", "Format of stacks"),
    Setting {
        name: "str_trunc_trailer",
        values: TEXT,
        doc: "Suffix of a truncated string, which may be empty",
        flag: None,
        at_run: false,
        set: |s, text| {
            s.str_trunc_trailer = text.to_string();
            Ok(())
        },
        get: |s| s.str_trunc_trailer.clone(),
    }.at_run(),
    switch!(trace_self, "Let user-space probes, and probes on system calls, page faults and samples (profile, software, hardware) fire in rbt's own process, too. All other probes always do: their events, such as a switch to another task, may not be rbt's even if it is the current process."),
    unstable!(unstable_dw_ustack, "Allow unwinding of user stacks by DWARF"),
    unstable!(unstable_import_statement, "Allow import within a block"),
    unstable!(unstable_tseries, "Allow tseries()"),
    unstable!(unstable_typeinfo, "Allow typeinfo"),
    number!(unwind_memory, 4194304, "Maximum memory of the unwind tables for user stacks, in bytes, from 4 MiB to 1 GiB. A stack ends at a file whose table has no room").at_run(),
    switch!(unwind_tables, "Unwind user stacks by call frame information. If false, ustack follows frame pointers only"),
];

/// Former names, which are still accepted, with a warning.
pub(super) const RENAMED: &[(&str, &str)] = &[
    ("strlen", "max_strlen"),
    ("cat_bytes_max", "max_cat_bytes"),
    ("map_keys_max", "max_map_keys"),
    // Not inverted despite its name: scripts that set it rely on this behavior.
    ("no_cpp_demangle", "cpp_demangle"),
];

/// Accepted, with a warning that they have no effect.
pub(super) const WITHOUT_EFFECT: &[&str] = &[
    "symbol_source",
    "max_type_res_iterations",
    "unstable_addr",
    "unstable_import",
    "unstable_macro",
    "unstable_map_decl",
    "use_blazesym",
];

/// Variables that only the environment can set, because they are needed before a script is read.
pub const ENV_ONLY: &[(&str, &str)] = &[
    ("btf", "Raw BTF file to use in place of the kernel's"),
    (
        "cache",
        "Directory for compiled scripts and C sources, the header of the kernel's types, code that scripts share, unwind tables, names of addresses, lists of kernel functions and features of the kernel. rbt removes the oldest files, so that they take at most about 1 GiB. If it is empty, rbt caches nothing",
    ),
    ("color", "Color in messages: auto, always or never. --color overrides it"),
    ("kernel_build", "Directory of generated kernel headers. It needs RBT_KERNEL_SOURCE"),
    ("kernel_source", "Directory of kernel headers"),
    ("vmlinux", "Uncompressed kernel image with symbols, used to check offsets of kprobes"),
];

const CACHES: &[(&str, CacheUserSymbols)] =
    &[("PER_PID", CacheUserSymbols::PerPid), ("PER_PROGRAM", CacheUserSymbols::PerProgram), ("NONE", CacheUserSymbols::None)];
const MISSING: &[(&str, MissingProbes)] =
    &[("error", MissingProbes::Error), ("warn", MissingProbes::Warn), ("ignore", MissingProbes::Ignore)];
const MAP_LAYOUTS: &[(&str, MapLayout)] = &[("list", MapLayout::List), ("table", MapLayout::Table)];
const STACK_MODES: &[(&str, StackMode)] =
    &[("bpftrace", StackMode::Bpftrace), ("perf", StackMode::Perf), ("raw", StackMode::Raw), ("build_id", StackMode::BuildId)];
const UNSTABLE: &[(&str, Unstable)] = &[("enable", Unstable::Enable), ("warn", Unstable::Warn), ("error", Unstable::Error)];
/// The strings that `license_is_gpl_compatible` (include/linux/license.h) accepts.
const LICENSES: &[&str] = &["GPL", "GPL v2", "GPL and additional rights", "Dual BSD/GPL", "Dual MIT/GPL", "Dual MPL/GPL"];

pub(super) fn parse_unstable(text: &str) -> Result<Unstable, String> {
    match parse_bool(text) {
        Ok(true) => Ok(Unstable::Enable),
        Ok(false) => Ok(Unstable::Error),
        Err(_) => parse_word(text, UNSTABLE),
    }
}
