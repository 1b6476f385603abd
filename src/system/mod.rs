//! What a script is checked against: queries about a kernel and binaries.
//!
//! [`TargetInfo`] is a trait so that parse, check and compile need no root and no BPF: `Live` answers from this machine,
//! `Snapshot` from a file, and `Fake` from the text of a test. Answers are facts, never guesses from a version number.

pub mod binary;
pub mod bpf_object;
pub(crate) mod cache;
pub mod events;
pub mod fake;
pub mod kernel;
pub mod kernel_files;
pub mod kernel_types;
pub mod machine;
pub mod portability;
pub mod snapshot;
pub mod syscalls;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use binary::dwarf::{AmbiguousType, Argument, ArgumentLocation, Inlined, Line, NoLocation, Piece, Source};
pub use binary::root::BinaryFile;
pub use binary::usdt::Marker;

use crate::types::{Enum, Field, Int, Record, Struct, Type};
use kernel::functions::{Functions, Symbols};
use kernel_types::{KernelTypes, Prototype};

/// A tracepoint's record, as tracefs' `format` file describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tracepoint {
    /// `perf_event_attr.config`.
    pub id: u64,
    /// All fields except the `common_` ones. Offsets are from the start of the record.
    pub fields: Vec<TracepointField>,
}

/// A field of a tracepoint's record.
#[derive(Clone, Debug, PartialEq)]
pub struct TracepointField {
    /// Name, offset and type. A `char[N]` is a string; a `__data_loc`/`__rel_loc char[]` is a string with the capacity 0
    /// (unknown).
    pub field: Field,
    /// The declaration as the file has it: `const char * filename`.
    pub decl: String,
    /// How the field refers to its data, if these are elsewhere in the record.
    pub loc: Option<DataLoc>,
}

/// A reference to variable-length data: a `u32` of length << 16 | offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataLoc {
    /// `__data_loc`: the offset is relative to the start of the record.
    Absolute,
    /// `__rel_loc`: the offset is relative to the end of the `u32`.
    Relative,
}

/// A function of a binary that a uprobe may sit on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Function {
    /// Its name in the symbol table (mangled, if it is), without a version suffix.
    pub name: String,
    /// Virtual address in the file.
    pub addr: u64,
    /// Size in bytes; 0 if the symbol does not record it.
    pub size: u64,
    /// File offset, by which uprobes are placed.
    pub offset: u64,
    /// Its calling convention.
    pub abi: Abi,
}

/// A calling convention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Abi {
    /// That of C (System V ABI).
    SystemV,
    /// That of Go since 1.17, in registers. Stacks move, so the return address must not be changed.
    Go,
    /// That of older Go, on the stack.
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
    /// The loadable segments.
    pub segments: Vec<binary::elf::Segment>,
    /// Position-independent: `uaddr` must add the load address.
    pub pie: bool,
    /// The build ID; empty without one.
    pub build_id: Vec<u8>,
}

impl Binary {
    /// The functions with this name; several if local functions share it.
    pub fn functions_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Function> {
        let from = self.functions.partition_point(|f| f.name.as_str() < name);
        self.functions[from..].iter().take_while(move |f| f.name == name)
    }

    /// The functions that the compiler made of the function with this name: `name.isra.0`, `name.constprop.0`, `name.part.0`.
    pub fn variants<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Function> {
        // Endings of gcc and clang. Go and others separate the parts of any name by a dot.
        const ENDINGS: [&str; 6] = [".isra.", ".constprop.", ".part.", ".lto_priv.", ".llvm.", ".specialized."];
        let from = self.functions.partition_point(|f| f.name.as_str() < name);
        let variants = self.functions[from..].iter().map_while(move |f| Some((f, f.name.strip_prefix(name)?)));
        variants.filter(|(_, rest)| ENDINGS.iter().any(|ending| rest.starts_with(ending))).map(|(f, _)| f)
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

/// Features of a kernel, found by testing them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Feature {
    /// `BPF_LINK_TYPE_UPROBE_MULTI`.
    UprobeMulti,
    /// A cookie on perf-based links (`bpf_get_attach_cookie`).
    PerfCookie,
    /// A cookie on raw tracepoints.
    RawTracepointCookie,
    /// Instructions of BPF CPU v4, such as signed division.
    CpuV4,
    /// The kernel's BTF is readable.
    Btf,
    /// `bpf_loop`.
    Loop,
    /// Atomic instructions that return the old value (`BPF_FETCH`, Linux 5.12).
    Fetch,
    /// Sleepable uprobe programs (Linux 6.0; those of multi links from the beginning).
    SleepingUprobes,
    /// Tracing programs can read arguments that point to numbers (Linux 5.18).
    NumberPointers,
    /// `bpf_for_each_map_elem`.
    ForEach,
    /// Programs that run in interrupts can allocate map elements (Linux 6.1).
    AllocatesAnywhere,
    /// `bpf_map_lookup_percpu_elem`.
    PercpuLookup,
    /// `bpf_ktime_get_tai_ns`.
    Tai,
    /// `bpf_get_current_ancestor_cgroup_id` for tracing.
    AncestorCgroup,
    /// `bpf_get_socket_cookie` for tracing (Linux 5.12).
    SocketCookie,
    /// `bpf_override_return` (CONFIG_BPF_KPROBE_OVERRIDE).
    Override,
    /// Keys of maps are limited to [`SHORT_KEY`] bytes (until Linux 5.11).
    ShortKeys,
    /// The JIT may give programs of any type a per-CPU stack: see `Builder::avoid_private_stack`.
    SharedStacks,
    /// `BPF_LINK_TYPE_KPROBE_MULTI`.
    KprobeMulti,
    /// One program for the entry and the return of a function (`BPF_TRACE_KPROBE_SESSION`).
    KprobeSession,
    /// Probes on any instruction of kernel functions.
    Kprobe,
    /// Programs that a kernel function calls at its entry and exit.
    Trampoline,
    /// A trampoline skips a program that is already running on the same CPU (Linux 5.12).
    RecursionCheck,
    /// Trampolines pass structs of up to 16 bytes (Linux 6.1).
    StructArguments,
    /// Trampolines pass arguments that are not in registers (Linux 6.6 on x86_64, 6.17 on arm64).
    ManyArguments,
    /// The kernel may run another task in the middle of a program (`preempt=full` or `lazy`), and a trampoline then skips runs.
    PreemptedPrograms,
}

impl Feature {
    /// All features.
    pub const ALL: [Feature; 26] = [
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
        Feature::SocketCookie,
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
        Feature::PreemptedPrograms,
    ];

    /// Its name, for people.
    pub fn title(self) -> &'static str {
        match self {
            Feature::UprobeMulti => "uprobe_multi",
            Feature::PerfCookie => "perf link cookies",
            Feature::RawTracepointCookie => "raw tracepoint cookies",
            Feature::CpuV4 => "BPF CPU v4",
            Feature::Btf => "BTF",
            Feature::Loop => "bpf_loop",
            Feature::Fetch => "fetching atomics",
            Feature::SleepingUprobes => "sleepable uprobes",
            Feature::NumberPointers => "arguments that point to numbers",
            Feature::ForEach => "for_each",
            Feature::AllocatesAnywhere => "allocation of map elements in interrupts",
            Feature::PercpuLookup => "bpf_map_lookup_percpu_elem",
            Feature::Tai => "bpf_ktime_get_tai_ns",
            Feature::AncestorCgroup => "bpf_get_current_ancestor_cgroup_id",
            Feature::SocketCookie => "bpf_get_socket_cookie",
            Feature::Override => "override",
            Feature::ShortKeys => "limit of 512 bytes for keys",
            Feature::SharedStacks => "private stacks",
            Feature::KprobeMulti => "kprobe_multi",
            Feature::KprobeSession => "kprobe_session",
            Feature::Kprobe => "kprobe",
            Feature::Trampoline => "fentry",
            Feature::RecursionCheck => "recursion check of trampolines",
            Feature::StructArguments => "struct arguments of trampolines",
            Feature::ManyArguments => "stack arguments of trampolines",
            Feature::PreemptedPrograms => "preemption of programs",
        }
    }

    /// Does having it forbid something? Code for a kernel with such a limit also runs without it; for all other
    /// features, the reverse holds.
    pub fn is_limit(self) -> bool {
        matches!(self, Feature::ShortKeys | Feature::SharedStacks | Feature::PreemptedPrograms)
    }

    /// Finds a feature by the name of its variant, which snapshots and tests use.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|f| format!("{f:?}") == name)
    }
}

/// Maximum size of a key on kernels that limit it: `MAX_BPF_STACK` of `include/linux/filter.h`.
pub const SHORT_KEY: u32 = 512;

/// Why a question has no answer, as text for a diagnostic, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The missing thing.
    pub what: String,
    /// The remedy.
    pub help: Option<String>,
}

/// The location of a kernel function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionLocation {
    /// Its module; `vmlinux` for the kernel itself.
    pub module: String,
    /// Its name in the kernel's list, which may differ from the requested one.
    pub function: String,
}

/// A traceable function that matches a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchingFunction {
    /// Its module; `vmlinux` for the kernel itself.
    pub module: String,
    /// Its name.
    pub name: String,
    /// The kernel rejects kprobes on it, but not other probes.
    pub no_kprobe: bool,
}

/// The questions about a kernel and binaries.
pub trait TargetInfo {
    /// The processor architecture of the kernel.
    fn arch(&self) -> &'static machine::arch::Arch {
        machine::arch::HERE
    }
    /// Looks up a struct, union or enum by tag (`task_struct`), or a typedef (`pid_t`, `u32`).
    fn type_named(&self, kind: TypeName, name: &str) -> Option<Type>;
    /// Looks up a type in a binary's debug information, for the code at this offset in the file: its files may give different types
    /// to a name.
    fn type_in_binary(&self, _path: &Path, _offset: u64, _kind: TypeName, _name: &str) -> Result<Option<Type>, AmbiguousType> {
        Ok(None)
    }
    /// Why a type may be missing although the binary has debug information.
    fn types_missing_in_binary(&self, _path: &Path) -> Option<Missing> {
        None
    }
    /// Like [`TargetInfo::enumerator`], in a binary's debug information, for the code at this offset in the file. Its files may give
    /// different values to a name: if that of the code does not have the name, the result has an enum for each.
    fn enumerators_in_binary(&self, _path: &Path, _offset: u64, _name: &str) -> Vec<(Arc<Enum>, i64)> {
        Vec::new()
    }
    /// The arguments of a binary's function; `None` if the debug information does not have the function.
    fn arguments(&self, path: &Path, _function: &Function) -> Result<Option<Vec<Argument>>, Missing> {
        Err(Missing { what: format!("{} has no debug information (DWARF)", path.display()), help: None })
    }
    /// Finds the code of a source line by its number and optionally its column, both from 1.
    fn source_line(&self, path: &Path, _file: &str, _line: u32, _column: Option<u32>) -> Result<Line, Missing> {
        Err(Missing { what: format!("{} has no debug information (DWARF)", path.display()), help: None })
    }
    /// Finds the inlined copies of a function that has no code of its own; `None` if the debug information is absent or does
    /// not have the function.
    fn inlined(&self, _path: &Path, _function: &str) -> Option<Inlined> {
        None
    }
    /// What the register with results has at the return of this function, according to the debug information: an integer of less
    /// than eight bytes, with anything in the rest of the register; or nothing of the result, and why. `None` is the entire
    /// register.
    fn retval(&self, _path: &Path, _function: &Function) -> Result<Option<Int>, NoLocation> {
        Ok(None)
    }
    /// The declared type of a function's result. Of several results of Go, it is the first that is not empty.
    fn result_type(&self, _path: &Path, _function: &Function) -> Option<Type> {
        None
    }
    /// Does the debug information declare this function `noreturn`?
    fn never_returns(&self, _path: &Path, _function: &Function) -> bool {
        false
    }
    /// The PID namespace of rbt for `bpf_get_ns_current_pid_tgid`: device and inode; `None` in the initial namespace.
    fn pid_namespace(&self) -> Option<(u64, u64)> {
        None
    }
    /// Finds a member, including those of anonymous structs and unions; its offset is relative to the start of `structure`.
    fn member(&self, structure: &Struct, name: &str) -> Option<Field>;
    /// All members, with anonymous ones flattened, for printing and for suggestions.
    fn expand(&self, structure: &Struct) -> Option<Record>;
    /// Finds an enum with this variant, and the variant's value.
    fn enumerator(&self, name: &str) -> Option<(Arc<Enum>, i64)>;
    /// The value of a C macro, fully expanded.
    fn c_macro(&self, _name: &str) -> Option<CMacro> {
        None
    }
    /// A particular reason why a type, constant or function of this name may be unknown.
    fn why_unknown(&self, _name: &str) -> Option<String> {
        None
    }
    /// Visits the names of all types of this kind, in order and possibly repeated: for `-l`.
    fn type_names(&self, _kind: TypeName, _each: &mut dyn FnMut(&str)) {}
    /// Why there are no kernel types; none if there are.
    fn types_missing(&self) -> Option<Missing>;
    /// The identity of the kernel's types: targets with equal identities give equal answers about types, members and
    /// functions. None if it is unknown.
    fn types_identity(&self) -> Option<String> {
        None
    }

    /// Frees memory that only makes further queries about types faster.
    fn forget_searches(&self) {}

    /// A header's text, if the file exists.
    fn file(&self, _path: &Path) -> Option<String> {
        None
    }
    /// Why [`TargetInfo::file`] does not read a file that exists.
    fn file_unread(&self, _path: &Path) -> Option<String> {
        None
    }
    /// The directories of C headers, in the order of the search.
    fn header_folders(&self) -> Vec<HeaderFolder> {
        Vec::new()
    }

    /// Events as (category, name), sorted.
    fn tracepoints(&self) -> Result<&[(String, String)], Missing>;
    /// Does this event exist? Cheaper than listing all events.
    fn has_tracepoint(&self, category: &str, name: &str) -> Result<bool, Missing>;
    /// Was it created at run time through `dynamic_events` of tracefs? Such an event may have the name of another one, and has
    /// no raw form. True if unknown.
    fn is_dynamic_tracepoint(&self, category: &str, name: &str) -> bool;
    /// A tracepoint's record.
    fn tracepoint(&self, category: &str, name: &str) -> Result<Option<Tracepoint>, Missing>;
    /// The ID of a tracepoint for `perf_event_attr.config`; none if it does not exist. Cheaper than its record, which names types.
    fn event_id(&self, category: &str, name: &str) -> Result<Option<u64>, Missing> {
        Ok(self.tracepoint(category, name)?.map(|found| found.id))
    }
    /// Names of raw tracepoints, sorted: (module or `vmlinux`, name).
    fn raw_tracepoints(&self) -> Result<&[(String, String)], Missing>;
    /// Tracepoints that match a pattern of each part.
    fn matching_tracepoints(&self, category: &str, name: &str) -> Result<Vec<(String, String)>, Missing> {
        let all = self.tracepoints()?;
        Ok(all.iter().filter(|(c, n)| matches(category, c) && matches(name, n)).cloned().collect())
    }
    /// Raw tracepoints that match a pattern of the module and of the name.
    fn matching_raw_tracepoints(&self, module: &str, name: &str) -> Result<Vec<(String, String)>, Missing> {
        let all = self.raw_tracepoints()?;
        Ok(all.iter().filter(|(m, n)| matches(module, m) && matches(name, n)).cloned().collect())
    }
    /// Traceable functions that match a pattern of the name and of the module: see [`Functions::matching`].
    fn matching_functions(&self, name: &str, module: &str) -> Result<Vec<MatchingFunction>, Missing> {
        let found = self.functions()?.matching(name, module);
        Ok(found.map(|f| MatchingFunction { module: f.module.into(), name: f.name.into(), no_kprobe: f.no_kprobe }).collect())
    }
    /// The same target for queries that only affect messages, such as similar names: a recorder does not record them.
    fn for_messages(&self) -> &dyn TargetInfo;
    /// A raw tracepoint's arguments.
    fn raw_tracepoint(&self, name: &str) -> Option<Vec<(String, Type)>>;
    /// The number of a system call by the name in its tracepoint (`newfstat`, `openat`).
    fn syscall_number(&self, name: &str) -> Option<u32>;

    /// The BTF ID of a kernel function (not of a module) that BPF programs can call (a kfunc).
    fn kernel_function(&self, _name: &str) -> Option<u32> {
        None
    }
    /// Does the kernel's BTF describe a function of this name?
    fn describes_function(&self, _name: &str) -> bool {
        false
    }
    /// The section of a global variable of the kernel in its BTF.
    fn kernel_variable(&self, _name: &str) -> Option<String> {
        None
    }
    /// Can a BPF program of this type (`BPF_PROG_TYPE_…`) call this kernel function?
    fn may_call(&self, _function: &str, _program_type: u32) -> bool {
        false
    }
    /// The traceable kernel functions. The first call reads a long list.
    fn functions(&self) -> Result<&Functions, Missing>;
    /// Where a function of this name can be traced. Avoids reading the long list if BTF or an index suffice.
    fn function_homes(&self, name: &str) -> Result<Vec<FunctionLocation>, Missing>;
    /// The kernel's types with the names of its debug information, for `-lv`.
    fn kernel_types(&self) -> Option<&KernelTypes> {
        None
    }
    /// The prototype of a function in BTF: in this module, or in the first that has it.
    fn prototype(&self, module: Option<&str>, name: &str) -> Option<Prototype>;
    /// Visits the names of all functions in BTF, with their modules, unsorted.
    fn described_functions(&self, each: &mut dyn FnMut(&str, &str));
    /// The entries of the symbol table for a function name.
    fn text_symbols(&self, name: &str) -> Symbols;
    /// Can this function be made to return at once (`ALLOW_ERROR_INJECTION`)? `None` if unknown.
    fn error_injectable(&self, _function: &str) -> Option<bool> {
        None
    }
    /// The functions of the loaded BPF programs, by program.
    fn running_programs(&self) -> Result<Vec<machine::programs::ProgramFunction>, Missing> {
        Err(Missing { what: "the loaded BPF programs are unknown here".into(), help: None })
    }
    /// Is this module loaded?
    fn has_module(&self, name: &str) -> bool;
    /// The kernel has this module, but it is unknown whether it is loaded.
    fn loads_on_demand(&self, _module: &str) -> bool {
        false
    }

    /// Why the kernel hides the addresses of its symbols, and the remedy; `None` if it does not.
    fn hidden_symbols(&self) -> Option<String>;
    /// What is at an offset from the start of a function of this module.
    fn kernel_place(&self, _module: &str, _function: &str, _by: u64) -> Result<binary::instructions::InstructionBoundary, Missing> {
        Ok(binary::instructions::InstructionBoundary::Unknown)
    }
    /// The address of a kernel symbol (`/proc/kallsyms`).
    fn kernel_symbol(&self, name: &str) -> Option<u64>;

    /// The files with this name: a path (relative to the working directory or, with `pid`, in the file system of that process),
    /// a glob, a command on PATH, `libc`, `libc.so.6`.
    fn resolve_binary(&self, name: &str, pid: Option<u32>) -> Result<Vec<BinaryFile>, Missing>;
    /// The full path of a regular file, which need not be ELF.
    fn regular_file(&self, _name: &str) -> Option<PathBuf> {
        None
    }
    /// Opens and indexes an ELF file, once.
    fn binary(&self, path: &Path) -> Result<Arc<Binary>, Missing>;

    /// The architecture of a binary. It differs from [`TargetInfo::arch`] if a file of this machine stands for one of the machine
    /// with a described kernel.
    fn arch_of_binary(&self, _path: &Path) -> &'static machine::arch::Arch {
        self.arch()
    }

    /// The markers (USDT) of a binary, in the order of its notes.
    fn markers(&self, path: &Path) -> Result<Vec<Marker>, Missing> {
        Err(Missing { what: format!("{} has no markers", path.display()), help: None })
    }

    /// Tests a feature, once per run.
    fn has(&self, feature: Feature) -> bool;
    /// Does the machine support this perf event (`type` and `config` of perf_event_open(2))? `None` if unknown.
    fn counts(&self, _ty: u32, _config: u64) -> Option<bool> {
        None
    }
    /// Maximum rate of perf samples per second, if known.
    fn most_samples(&self) -> Option<u64> {
        None
    }
    /// The number of possible CPUs.
    fn possible_cpus(&self) -> u32;
    /// The numbers of online CPUs.
    fn online_cpus(&self) -> Vec<u32>;
    /// The ID of the cgroup (v2) at a path, for `cgroupid()`.
    fn cgroup_id(&self, path: &str) -> Result<u64, Missing>;
    /// Is it known which cgroups exist? A description of a kernel has none.
    fn knows_cgroups(&self) -> bool {
        true
    }
}

/// The offset of a member of a structure, or of a member of that.
pub fn member_offset(sys: &dyn TargetInfo, structure: &str, path: &[&str]) -> Option<u32> {
    let mut ty = sys.type_named(TypeName::Struct, structure)?;
    let mut pos = 0;
    for name in path {
        let Type::Struct(of) = &ty else { return None };
        let field = sys.member(of, name)?;
        pos += field.offset;
        ty = field.ty;
    }
    Some(pos)
}

/// A C macro.
#[derive(Clone, Debug, PartialEq)]
pub enum CMacro {
    /// An integer and its type.
    Int(i64, Int),
    /// The bytes of a string literal.
    Text(Vec<u8>),
    /// A name.
    Name(String),
    /// A macro with parameters.
    Function,
    /// The text of a macro that is not a value.
    Other(String),
}

/// A directory of C headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderFolder {
    /// Its path.
    pub path: PathBuf,
    /// It has the kernel's internal headers rather than its interface for user space.
    pub kernel: bool,
}

/// The name space of a type's name in C.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
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

/// Does a name match a pattern in which `*` is any text? No other character is special.
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
        for (pattern, name, expected) in [
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
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
