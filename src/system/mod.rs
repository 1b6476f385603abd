//! Questions about a kernel and binaries that checking a script asks.
//!
//! [`TargetInfo`] is a trait so that parse, check and compile need no root and no BPF: `Live` answers from this machine,
//! `Snapshot` from a file, and `Fake` from the text of a test. Answers are facts, never guesses from a version number.

pub mod binary;
pub(in crate::system) mod cache;
pub mod events;
pub mod fake;
pub mod kernel;
pub mod kernel_files;
pub mod kernel_types;
pub mod machine;
pub mod snapshot;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use binary::dwarf::{Argument, ArgumentPlace, Inlined, Line, Piece, Source, Unplaced};
pub use binary::usdt::Marker;

use crate::types::{Enum, Field, Int, Record, Struct, Type};
use kernel::functions::{Functions, Symbols};
use kernel_types::{KernelTypes, Prototype};

/// A tracepoint's record, as tracefs' `format` file describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tracepoint {
    /// `perf_event_attr.config`.
    pub id: u64,
    /// All but the `common_` ones. Offsets are from the record's start.
    pub fields: Vec<TracepointField>,
}

/// A field of a tracepoint's record.
#[derive(Clone, Debug, PartialEq)]
pub struct TracepointField {
    /// Name, offset and type. A `char[N]` is a string; a `__data_loc`/`__rel_loc char[]` is a string whose capacity is 0 (not known).
    pub field: Field,
    /// The declaration as the file has it: `const char * filename`.
    pub decl: String,
    /// The data are elsewhere in the record.
    pub loc: Option<DataLoc>,
}

/// How a variable-length field is referred to: a `u32` of length << 16 | offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataLoc {
    /// `__data_loc`: the offset counts from the record's start.
    Absolute,
    /// `__rel_loc`: from the end of the `u32`.
    Relative,
}

/// A function of a binary that a uprobe may sit on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function {
    /// As in the symbol table (mangled, where it is), without a version suffix.
    pub name: String,
    /// Virtual address in the file.
    pub addr: u64,
    /// Bytes; 0 when the symbol does not say.
    pub size: u64,
    /// Offset in the file, which is what a uprobe is placed by.
    pub offset: u64,
    /// How it is called.
    pub abi: Abi,
}

/// How a function is given its arguments and gives back its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Abi {
    /// As C has it (System V ABI).
    SystemV,
    /// As Go has it since 1.17: in registers of its own choice. Stacks move, so that a return address must not be changed.
    Go,
    /// As Go had it: all on the stack.
    GoStack,
}

/// An ELF binary, opened and indexed.
#[derive(Clone, Debug)]
pub struct Binary {
    /// Resolved path.
    pub path: PathBuf,
    /// Functions from `.symtab` and `.dynsym`, sorted by name, duplicates (same name and address) removed.
    pub functions: Vec<Function>,
    /// Data objects: name, address, size. For `uaddr`.
    pub objects: Vec<(String, u64, u64)>,
    /// What is loaded into memory.
    pub segments: Vec<binary::elf::Segment>,
    /// Position independent: `uaddr` must add the load address.
    pub pie: bool,
}

impl Binary {
    /// Functions of this exact name (several for local duplicates).
    pub fn functions_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Function> {
        let from = self.functions.partition_point(|f| f.name.as_str() < name);
        self.functions[from..].iter().take_while(move |f| f.name == name)
    }

    /// File offset to virtual address, within executable segments.
    pub fn addr_of_offset(&self, offset: u64) -> Option<u64> {
        binary::elf::address(&self.segments, offset)
    }

    /// Virtual address to file offset.
    pub fn offset_of_addr(&self, addr: u64) -> Option<u64> {
        binary::elf::offset(&self.segments, addr)
    }
}

/// Things a kernel may or may not do, found by trying.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Feature {
    /// `BPF_LINK_TYPE_UPROBE_MULTI`.
    UprobeMulti,
    /// A cookie on perf-based links (`bpf_get_attach_cookie`).
    PerfCookie,
    /// A cookie on raw tracepoints.
    RawTracepointCookie,
    /// Instructions of BPF CPU v4 (signed division among them).
    CpuV4,
    /// BTF of the kernel can be read.
    Btf,
    /// `bpf_loop`.
    Loop,
    /// Atomic instructions that give back what was there (`BPF_FETCH`, Linux 5.12).
    Fetch,
    /// Programs of uprobes may sleep (Linux 6.0; those of multi links came with it).
    SleepingUprobes,
    /// Arguments that are pointers to numbers can be read by tracing programs (Linux 5.18).
    NumberPointers,
    /// `bpf_for_each_map_elem`.
    ForEach,
    /// A map's elements may be allocated by a program that runs in an interrupt (Linux 6.1).
    AllocatesAnywhere,
    /// `bpf_map_lookup_percpu_elem`.
    PercpuLookup,
    /// `bpf_ktime_get_tai_ns`.
    Tai,
    /// `bpf_get_current_ancestor_cgroup_id` for tracing.
    AncestorCgroup,
    /// `bpf_override_return` (CONFIG_BPF_KPROBE_OVERRIDE).
    Override,
    /// Maps' keys have [`SHORT_KEY`] bytes at most (until Linux 5.11).
    ShortKeys,
    /// Programs may be given a stack per CPU by the JIT, whatever their type: see `Builder::keep_own_stack`.
    SharedStacks,
    /// `BPF_LINK_TYPE_KPROBE_MULTI`.
    KprobeMulti,
    /// One program for a function's entry and its return (`BPF_TRACE_KPROBE_SESSION`).
    KprobeSession,
    /// Probes on any instruction of the kernel's functions.
    Kprobe,
    /// Programs that a function of the kernel calls at its entry and exit.
    Trampoline,
    /// The code around such a program leaves it out while it runs on that CPU already (Linux 5.12).
    RecursionCheck,
    /// Trampolines pass structs of up to 16 bytes (Linux 6.1).
    StructArguments,
    /// Trampolines pass more than six words (Linux 6.6).
    ManyArguments,
}

impl Feature {
    /// Every one.
    pub const ALL: [Feature; 24] = [
        Feature::UprobeMulti,
        Feature::PerfCookie,
        Feature::RawTracepointCookie,
        Feature::CpuV4,
        Feature::Btf,
        Feature::Loop,
        Feature::Fetch,
        Feature::SleepingUprobes,
        Feature::NumberPointers,
        Feature::ForEach,
        Feature::PercpuLookup,
        Feature::Tai,
        Feature::AllocatesAnywhere,
        Feature::AncestorCgroup,
        Feature::Override,
        Feature::ShortKeys,
        Feature::SharedStacks,
        Feature::KprobeMulti,
        Feature::KprobeSession,
        Feature::Kprobe,
        Feature::Trampoline,
        Feature::RecursionCheck,
        Feature::StructArguments,
        Feature::ManyArguments,
    ];

    /// By its name in this program's text, as snapshots and tests have it.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|f| format!("{f:?}") == name)
    }
}

/// Most bytes of a key where a kernel has a limit: `MAX_BPF_STACK` of `include/linux/filter.h`.
pub const SHORT_KEY: u32 = 512;

/// Why a question has no answer: text for a diagnostic, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What is missing, naming it.
    pub what: String,
    /// What to do about it.
    pub help: Option<String>,
}

/// Where a function of the kernel is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// The module; `vmlinux` for the kernel itself.
    pub module: String,
    /// The name by which the kernel's list has it, which need not be the one asked for.
    pub function: String,
}

/// The questions.
pub trait TargetInfo {
    /// The kind of processor that the kernel is for.
    fn arch(&self) -> &'static machine::arch::Arch {
        machine::arch::HERE
    }
    /// A struct, union or enum by tag (`task_struct`), or a typedef (`pid_t`, `u32`).
    fn type_named(&self, kind: TypeName, name: &str) -> Option<Type>;
    /// The same, of a binary's own types (its debug information).
    fn type_in_binary(&self, _path: &Path, _kind: TypeName, _name: &str) -> Option<Type> {
        None
    }
    /// Why types of a binary's own may be unknown though it has debug information.
    fn types_missing_in_binary(&self, _path: &Path) -> Option<Missing> {
        None
    }
    /// See [`TargetInfo::enumerator`], for a binary's own.
    fn enumerator_in_binary(&self, _path: &Path, _name: &str) -> Option<(Arc<Enum>, i64)> {
        None
    }
    /// The arguments of a binary's function: none where its debug information does not know the function.
    fn arguments(&self, path: &Path, _function: &Function) -> Result<Option<Vec<Argument>>, Missing> {
        Err(Missing { what: format!("{} has no debug information (DWARF)", path.display()), help: None })
    }
    /// Where the code of a source line is, by its number and perhaps its column, both from 1.
    fn source_line(&self, path: &Path, _file: &str, _line: u32, _column: Option<u32>) -> Result<Line, Missing> {
        Err(Missing { what: format!("{} has no debug information (DWARF)", path.display()), help: None })
    }
    /// Where a binary's function went that has no code of its own: none where the debug information knows no such function, or
    /// is not there.
    fn inlined(&self, _path: &Path, _function: &str) -> Option<Inlined> {
        None
    }
    /// Does a binary's debug information say that this function never returns?
    fn never_returns(&self, _path: &Path, _function: &Function) -> bool {
        false
    }
    /// The pid namespace that rbt is in: device and inode, as `bpf_get_ns_current_pid_tgid` takes them. None in the initial one.
    fn pid_namespace(&self) -> Option<(u64, u64)> {
        None
    }
    /// A member, found through anonymous structs and unions too; its offset counts from the start of `of`.
    fn member(&self, of: &Struct, name: &str) -> Option<Field>;
    /// All members, anonymous ones flattened: for printing by value and for suggestions.
    fn expand(&self, of: &Struct) -> Option<Record>;
    /// An enum that has this variant, and the variant's value.
    fn enumerator(&self, name: &str) -> Option<(Arc<Enum>, i64)>;
    /// What a macro of C headers stands for, wholly expanded.
    fn c_macro(&self, _name: &str) -> Option<CMacro> {
        None
    }
    /// Why a type, constant or function of this name may be unknown, where there is a particular reason.
    fn why_unknown(&self, _name: &str) -> Option<String> {
        None
    }
    /// Passes on the names of all types of this kind, as often and in the order that they occur: for `-l`.
    fn type_names(&self, _kind: TypeName, _each: &mut dyn FnMut(&str)) {}
    /// Why there are no kernel types, when there are none.
    fn types_missing(&self) -> Option<Missing>;

    /// A header's text, if there is such a file.
    fn file(&self, _path: &Path) -> Option<String> {
        None
    }
    /// Where C headers are sought, in order: the kernel's and the platform's.
    fn header_folders(&self) -> Vec<HeaderFolder> {
        Vec::new()
    }

    /// Events as (category, name), sorted.
    fn tracepoints(&self) -> Result<&[(String, String)], Missing>;
    /// Is there such an event? Cheaper than listing all.
    fn has_tracepoint(&self, category: &str, name: &str) -> Result<bool, Missing>;
    /// Was it made at run time, by whoever wrote to `dynamic_events` of tracefs? Such a one may bear another's name, and has no
    /// raw form. True where that cannot be told.
    fn is_dynamic_tracepoint(&self, category: &str, name: &str) -> bool;
    /// A tracepoint's record.
    fn tracepoint(&self, category: &str, name: &str) -> Result<Option<Tracepoint>, Missing>;
    /// Names of raw tracepoints, sorted: (module or `vmlinux`, name).
    fn raw_tracepoints(&self) -> Result<&[(String, String)], Missing>;
    /// A raw tracepoint's arguments.
    fn raw_tracepoint(&self, name: &str) -> Option<Vec<(String, Type)>>;
    /// The number of a system call by the name its tracepoint has (`newfstat`, `openat`).
    fn syscall_number(&self, name: &str) -> Option<u32>;

    /// BTF id of a function of the kernel proper (not of a module) that BPF programs may call (a kfunc).
    fn kernel_function(&self, _name: &str) -> Option<u32> {
        None
    }
    /// Has the kernel's BTF a function of this name, whether or not BPF programs may call it?
    fn describes_function(&self, _name: &str) -> bool {
        false
    }
    /// The section of a global variable of the kernel that its BTF describes.
    fn kernel_variable(&self, _name: &str) -> Option<String> {
        None
    }
    /// May a BPF program of this type (`BPF_PROG_TYPE_…`) call this kernel function?
    fn may_call(&self, _function: &str, _program_type: u32) -> bool {
        false
    }
    /// The kernel's functions that can be traced. Reads a long list the first time.
    fn functions(&self) -> Result<&Functions, Missing>;
    /// Where a function of this name can be traced; without reading the long list where the types or an index tell.
    fn function_homes(&self, name: &str) -> Result<Vec<Home>, Missing>;
    /// The kernel's types as its debug information spells them: for `-lv`.
    fn kernel_types(&self) -> Option<&KernelTypes> {
        None
    }
    /// A function as BTF describes it: of this module, or of the first that has one.
    fn prototype(&self, module: Option<&str>, name: &str) -> Option<Prototype>;
    /// Names of all functions that BTF describes, with their modules, in no order.
    fn described_functions(&self, each: &mut dyn FnMut(&str, &str));
    /// What the symbol table has of a function's name.
    fn text_symbols(&self, name: &str) -> Symbols;
    /// May this function be made to return at once (`ALLOW_ERROR_INJECTION`)? None where the kernel does not tell.
    fn error_injectable(&self, _function: &str) -> Option<bool> {
        None
    }
    /// Functions of the BPF programs that run now, by program.
    fn running_programs(&self) -> Result<Vec<machine::programs::ProgramFunction>, Missing> {
        Err(Missing { what: "the loaded BPF programs are unknown here".into(), help: None })
    }
    /// Is this module loaded?
    fn has_module(&self, name: &str) -> bool;
    /// Is it not known whether this module is loaded, only that the kernel comes with it?
    fn loads_on_demand(&self, _module: &str) -> bool {
        false
    }

    /// Why the kernel keeps its symbols' addresses from us, and the remedy; none where it does not.
    fn hidden_symbols(&self) -> Option<String>;
    /// What is so many bytes from the start of a function of this module.
    fn kernel_place(&self, _module: &str, _function: &str, _by: u64) -> Result<binary::instructions::Placed, Missing> {
        Ok(binary::instructions::Placed::Unknown)
    }
    /// Address of a kernel symbol (`/proc/kallsyms`).
    fn kernel_symbol(&self, name: &str) -> Option<u64>;

    /// Files that `name` means: a path (relative to the working directory or, where `pid` is given, found in that
    /// process's file system), a glob, a command on PATH, `libc`, `libc.so.6`.
    fn resolve_binary(&self, name: &str, pid: Option<u32>) -> Result<Vec<PathBuf>, Missing>;
    /// The whole path of a file that need be no ELF, if there is one of this name.
    fn regular_file(&self, _name: &str) -> Option<PathBuf> {
        None
    }
    /// Opens and indexes an ELF file; later calls share the first one's work.
    fn binary(&self, path: &Path) -> Result<Arc<Binary>, Missing>;

    /// A binary's markers (USDT), in the order in which it has them.
    fn markers(&self, path: &Path) -> Result<Vec<Marker>, Missing> {
        Err(Missing { what: format!("{} has no markers", path.display()), help: None })
    }

    /// Asks the kernel, once per run.
    fn has(&self, feature: Feature) -> bool;
    /// Does the machine count this perf event (`type` and `config` of perf_event_open(2))? None if that is unknown.
    fn counts(&self, _ty: u32, _config: u64) -> Option<bool> {
        None
    }
    /// Maximum rate of perf samples per second, if it is known.
    fn most_samples(&self) -> Option<u64> {
        None
    }
    /// CPUs that may ever be there.
    fn possible_cpus(&self) -> u32;
    /// CPUs that are online, by number.
    fn online_cpus(&self) -> Vec<u32>;
    /// The id of the cgroup (v2) at a path: `cgroupid()`.
    fn cgroup_id(&self, path: &str) -> Result<u64, Missing>;
}

/// A macro of C.
#[derive(Clone, Debug, PartialEq)]
pub enum CMacro {
    /// An integer: its bits and its type.
    Int(i64, Int),
    /// A string literal's bytes.
    Text(Vec<u8>),
    /// Another name.
    Name(String),
    /// It takes arguments.
    Function,
    /// What cannot be used as a value: its text.
    Other(String),
}

/// A folder of C headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderFolder {
    /// Where.
    pub path: PathBuf,
    /// The kernel's own, not its interface for user space.
    pub kernel: bool,
}

/// Which name space of C a type's name is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TypeName {
    /// `struct x`
    Struct,
    /// `union x`
    Union,
    /// `enum x`
    Enum,
    /// A typedef or a base type.
    Plain,
}

/// Does a name match a pattern in which `*` is any run of characters? As scripts have it: nothing else is special.
pub fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(head) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return left.ends_with(part);
        }
        match left.find(part) {
            Some(at) => left = left.get(at + part.len()..).unwrap_or(""),
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    mod damage;
    mod python;

    use super::matches;

    #[test]
    fn star_is_any_run() {
        for (pattern, name, want) in [
            ("*", "", true),
            ("*", "x", true),
            ("sys_enter_*", "sys_enter_openat", true),
            ("*open*", "sys_enter_openat", true),
            ("*open", "sys_enter_openat", false),
            ("a*b*c", "a__b__c", true),
            ("a*b*c", "acb", false),
            ("ab*b", "ab", false),
            ("abc", "abc", true),
            ("a?c", "abc", false),
        ] {
            assert_eq!(matches(pattern, name), want, "{pattern} {name}");
        }
    }
}
