//! The running machine as a [`TargetInfo`]. It finds each answer on demand, so creating a [`Live`] costs nothing.

#![allow(unsafe_code)] // sysconf

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use crate::failure::reason;
use crate::input;
use crate::system::binary::dwarf::BinaryTypes;
use crate::system::binary::elf::ExpectedMachine;
use crate::system::binary::instructions::{self, InstructionBoundary};
use crate::system::events::tracefs::{self, Tracefs};
use crate::system::kernel::features::{Features, LoadTarget};
use crate::system::kernel::function_cache::{self, Index};
use crate::system::kernel::functions::{self, Functions};
use crate::system::kernel::known_features;
use crate::system::kernel::processors;
use crate::system::kernel::prog_type;
use crate::system::kernel_types::{BTF_FILES, KernelTypes, Prototype};
use crate::system::machine::arch::{Arch, HERE};
use crate::system::portability::questions::digest;
use crate::system::snapshot::inferred_features;
use crate::system::{
    AmbiguousType, Argument, Binary, BinaryFile, Feature, Function, FunctionLocation, HeaderFolder, Inlined, Line, Marker, Missing,
    NoLocation, TargetInfo, Tracepoint, TypeName, machine::rights,
};
use crate::system::{
    binary::elf, binary::locate, binary::usdt, events::headers, events::syscalls, machine::cgroup, machine::perf, machine::programs,
};
use crate::types::{Enum, Field, Int, Record, Struct, Type};

/// The first ID of binaries' types (see `kernel_types`), with this many bits for each binary.
pub(in crate::system) const BINARY_IDS: u32 = 0xf800_0000;
const BINARY_SHIFT: u32 = 21;
/// Limit for the number of binaries whose types are read.
const BINARIES: u32 = 64;

/// Environment variables with the path of the uncompressed kernel image.
const IMAGES: [&str; 2] = ["RBT_VMLINUX", "BPFTRACE_VMLINUX"];

/// The types of a binary, or the reason why there are none.
type OwnTypes = Result<Rc<BinaryTypes>, Missing>;

/// Sorted pairs of names, or the reason why there are none.
type NamePairs = OnceCell<Result<Vec<(String, String)>, Missing>>;

/// The running machine.
#[derive(Default)]
pub struct Live {
    types: OnceCell<Result<KernelTypes, Missing>>,
    tracefs: OnceCell<Result<Tracefs, Missing>>,
    /// `None` if they cannot be read.
    dynamic_events: OnceCell<Option<Vec<(String, String)>>>,
    tracepoints: NamePairs,
    raw_tracepoints: NamePairs,
    features: Features,
    symbols: RefCell<BTreeMap<String, Option<u64>>>,
    binaries: RefCell<BTreeMap<PathBuf, Arc<Binary>>>,
    function_list: Option<PathBuf>,
    functions: OnceCell<Result<Functions, Missing>>,
    /// `--debuginfo`
    debug_dirs: Vec<String>,
    /// A file tree with the binaries, instead of this machine's.
    tree: Option<PathBuf>,
    /// The architecture of the kernel that a file describes, if this target answers queries about binaries for it.
    described: Option<&'static Arch>,
    /// Files that replace all binaries with the same file name.
    replacement_files: Vec<PathBuf>,
    trampoline: OnceCell<bool>,
    number_pointers: OnceCell<bool>,
    /// If BPF features cannot be tested (see `can_test_features`), infer them from types and symbols.
    attaches_nothing: bool,
    can_test_features: OnceCell<bool>,
    /// The types of binaries, in the order of opening, which determines their IDs.
    debug_info: RefCell<Vec<(PathBuf, OwnTypes)>>,
    headers: RefCell<Headers>,
}

/// The queried C headers, with digests of their texts; none for missing files.
#[derive(Clone, Debug, Default)]
pub struct Headers(BTreeMap<PathBuf, Option<u128>>);

impl Headers {
    /// Are they unchanged?
    pub fn are_unchanged(&self) -> bool {
        self.0.iter().all(|(path, known)| headers::text(path).map(|text| digest(&text)) == *known)
    }
}

impl Live {
    /// Creates it without reading anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// The kernel's types, or the reason why there are none.
    pub fn types(&self) -> Result<&KernelTypes, Missing> {
        self.types.get_or_init(KernelTypes::open).as_ref().map_err(Clone::clone)
    }

    /// May a program of this type (of [`prog_type`]) call the kernel function with this BTF ID?
    pub fn allows_call(&self, function: u32, program_type: u32) -> bool {
        // what a type may call does not depend on the target, but the kernel loads these only for one
        let target = match program_type {
            prog_type::TRACING => {
                let id = self.types().ok().and_then(|types| types.raw_tracepoint("sched_switch"));
                id.map(|event| LoadTarget::raw_tracepoint(event.id))
            }
            prog_type::LSM => {
                let hook = self.types().ok().and_then(|types| types.function_id("bpf_lsm_file_open"));
                hook.map(LoadTarget::lsm)
            }
            _ => return self.features.may_call(function, program_type, None),
        };
        target.is_some_and(|target| self.features.may_call(function, program_type, Some(target)))
    }

    /// tracefs, mounted or not, for event IDs and the runtime's files.
    pub fn tracefs(&self) -> Result<&Tracefs, Missing> {
        self.tracefs.get_or_init(Tracefs::open).as_ref().map_err(Clone::clone)
    }

    /// Reads this list of traceable functions instead of the kernel's: lines `name` or `name [module]`.
    pub fn with_functions(list: Option<PathBuf>) -> Self {
        Self { function_list: list, ..Self::default() }
    }

    /// Searches these directories for separate debug files before the usual ones: see `debug_files`.
    pub fn with_debug_dirs(self, dirs: &[String]) -> Self {
        Self { debug_dirs: dirs.to_vec(), ..self }
    }

    /// Answers as if `/sys` were not mounted, or the kernel built without BTF.
    pub fn without_types(self) -> Self {
        Self { types: OnceCell::from(Err(KernelTypes::absent())), ..self }
    }

    /// The headers that were queried.
    pub fn headers(&self) -> Headers {
        self.headers.borrow().clone()
    }

    /// Infers BPF features from types and symbols if they cannot be tested, for callers that do not run programs.
    pub fn attaching_nothing(self) -> Self {
        Self { attaches_nothing: true, ..self }
    }

    /// Takes binaries from a file tree; `stand_ins` come first, for binaries with their file names.
    pub fn with_files(self, tree: Option<PathBuf>, stand_ins: Vec<PathBuf>) -> Self {
        Self { tree, replacement_files: stand_ins, ..self }
    }

    /// Takes binaries for a kernel that a file describes.
    pub fn for_kernel(self, arch: &'static Arch) -> Self {
        Self { described: Some(arch), ..self }
    }

    /// The machine that a binary must be for. One that was found on this machine may be for it, rather than for that of a
    /// described kernel; one that the user chose for the check may not.
    fn expected_machine(&self, path: &Path) -> ExpectedMachine {
        let Some(arch) = self.described else { return ExpectedMachine::Here };
        let file = std::fs::canonicalize(path).ok();
        let chosen = self.tree.is_some() || self.replacement_files.iter().any(|one| std::fs::canonicalize(one).ok() == file);
        ExpectedMachine::Kernel { arch, or_here: !chosen }
    }

    /// The types of a binary, or the reason why there are none.
    fn types_of(&self, path: &Path) -> OwnTypes {
        let mut all = self.debug_info.borrow_mut();
        if let Some((_, known)) = all.iter().find(|(p, _)| p == path) {
            return known.clone();
        }
        let opened = match u32::try_from(all.len()).ok().filter(|n| *n < BINARIES) {
            Some(n) => BinaryTypes::open(path, &self.debug_dirs, BINARY_IDS + (n << BINARY_SHIFT)).map(Rc::new),
            None => Err(Missing { what: format!("the script needs types of more than {BINARIES} binaries"), help: None }),
        };
        all.push((path.to_owned(), opened.clone()));
        opened
    }

    /// The binary that a struct belongs to; `None` for the kernel.
    fn owner(&self, structure: &Struct) -> Option<Rc<BinaryTypes>> {
        let n = structure.id.checked_sub(BINARY_IDS)? >> BINARY_SHIFT;
        self.debug_info.borrow().get(n as usize)?.1.clone().ok()
    }

    /// Does this struct belong to a binary?
    pub(in crate::system) fn owns(&self, structure: &Struct) -> bool {
        structure.id >= BINARY_IDS
    }

    /// See [`TargetInfo::has`]. `sys` is this machine, as queries about other facts see it.
    pub(super) fn has_in(&self, sys: &dyn TargetInfo, feature: Feature) -> bool {
        if feature == Feature::Btf && (self.types.get().is_some() || types_are_given()) {
            return self.types().is_ok();
        }
        if self.attaches_nothing
            && feature != Feature::Kprobe
            && !*self.can_test_features.get_or_init(|| crate::system::kernel::features::may_ask().is_ok())
        {
            let known = inferred_features::KernelFacts { sys, config: &|_| None, symbols: &|| true };
            return inferred_features::has(&known, feature);
        }
        let kept = !types_are_given();
        if let Some(known) = known_features::get(feature).filter(|_| kept) {
            return known;
        }
        // A positive answer is valid until the next boot; a negative one may have other reasons.
        let (holds, lasts) = if feature == Feature::SharedStacks {
            match self.types() {
                Ok(types) => (types.named(TypeName::Enum, "priv_stack_mode").is_some(), true),
                // Assume what is safe everywhere.
                Err(_) => (true, false),
            }
        } else if matches!(feature, Feature::RecursionCheck | Feature::SocketCookie | Feature::StructArguments | Feature::ManyArguments) {
            let facts = inferred_features::KernelFacts { sys, config: &|_| None, symbols: &|| false };
            let holds = inferred_features::has(&facts, feature);
            // the kernel's own types answer it, so a negative answer is valid if there are types
            (holds, holds || self.types().is_ok())
        } else if feature == Feature::Trampoline {
            let holds = *self.trampoline.get_or_init(|| {
                // A function for tests of trampolines (net/bpf/test_run.c), which nothing else calls.
                self.function_for_test("bpf_fentry_test1").is_some_and(crate::system::kernel::features::trampoline)
            });
            (holds, holds)
        } else if feature == Feature::NumberPointers {
            let holds = *self.number_pointers.get_or_init(|| {
                // Its last argument has always been a `loff_t *`.
                self.function_for_test("vfs_read").is_some_and(|id| crate::system::kernel::features::takes_argument(id, 3))
            });
            (holds, holds)
        } else {
            return self.features.has(feature);
        };
        if kept && lasts {
            known_features::learn(feature, holds);
        }
        holds
    }

    /// The ID of a function of the kernel on which a program is loaded as a test.
    fn function_for_test(&self, name: &str) -> Option<u32> {
        let find = || self.prototype(Some(functions::KERNEL), name).map(|found| found.id);
        if types_are_given() { find() } else { known_features::target(&format!("fentry/{}:{name}", functions::KERNEL), find) }
    }

    /// The index of functions, if the list has one.
    fn indexed(&self) -> Option<&Functions> {
        if self.function_list.is_some() {
            return self.functions().ok();
        }
        if let Some(Ok(all)) = self.functions.get() {
            return Some(all);
        }
        let index = Index::here()?;
        let kept = index.load().or_else(|| index.for_symbols().load())?;
        self.functions.get_or_init(|| Ok(kept)).as_ref().ok()
    }

    fn read_functions(&self) -> Result<Functions, Missing> {
        if let Some(path) = &self.function_list {
            let read = input::read(path, input::LIST).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            let text = read.map_err(|e| Missing {
                what: format!("cannot read the traceable functions in {}: {}", path.display(), reason(&e)),
                help: Some("--traceable-functions needs a file with one function name per line".into()),
            })?;
            return Ok(Functions::parse(&text, &BTreeSet::new(), ""));
        }
        let index = Index::here();
        if let Some(kept) = index.as_ref().and_then(Index::load) {
            return Ok(kept);
        }
        let listed = self.tracefs().and_then(|t| {
            t.read("available_filter_functions").map_err(|e| Missing {
                what: format!("cannot read the kernel's list of traceable functions: {}", reason(&e)),
                help: Some("the kernel must be built with CONFIG_FUNCTION_TRACER=y; --traceable-functions can name another list".into()),
            })
        });
        match listed.and_then(|text| if text.is_empty() { Err(no_functions()) } else { Ok(text) }) {
            Ok(text) => {
                // A line: first and last address, a tab, the name (kernel/kprobes.c). Without permission, the list is empty.
                let blacklist = tracefs::read_debugfs("kprobes/blacklist").unwrap_or_default();
                let blocked = blacklist.lines().filter_map(|l| l.split('\t').nth(1)).collect();
                let kallsyms = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
                let all = Functions::parse(&text, &blocked, &kallsyms);
                if let Some(index) = index {
                    index.save(&all);
                }
                Ok(all)
            }
            // The symbol table also has functions that cannot be traced, but all that can.
            Err(why) => {
                let index = index.map(Index::for_symbols);
                if let Some(kept) = index.as_ref().and_then(Index::load) {
                    return Ok(kept);
                }
                let text = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
                if text.is_empty() {
                    return Err(why);
                }
                let all = Functions::parse(&functions::from_symbols(&text), &BTreeSet::new(), "");
                if let Some(index) = index {
                    index.save(&all);
                }
                Ok(all)
            }
        }
    }
}

fn no_functions() -> Missing {
    Missing { what: "the kernel's list of traceable functions is empty".into(), help: None }
}

impl TargetInfo for Live {
    fn for_messages(&self) -> &dyn TargetInfo {
        self
    }

    fn type_named(&self, kind: TypeName, name: &str) -> Option<Type> {
        self.types().ok()?.named(kind, name)
    }

    fn type_in_binary(&self, path: &Path, offset: u64, kind: TypeName, name: &str) -> Result<Option<Type>, AmbiguousType> {
        self.types_of(path).map_or(Ok(None), |types| types.named(offset, kind, name))
    }

    fn types_missing_in_binary(&self, path: &Path) -> Option<Missing> {
        self.types_of(path).ok()?.absent().cloned()
    }

    fn enumerators_in_binary(&self, path: &Path, offset: u64, name: &str) -> Vec<(Arc<Enum>, i64)> {
        self.types_of(path).map_or_else(|_| Vec::new(), |types| types.enumerators(offset, name))
    }

    fn arguments(&self, path: &Path, function: &Function) -> Result<Option<Vec<Argument>>, Missing> {
        let types = self.types_of(path)?;
        match (types.arguments(function), types.absent_at(function.addr)) {
            (None, Some(why)) => Err(why.clone()),
            (known, _) => Ok(known),
        }
    }

    fn source_line(&self, path: &Path, file: &str, line: u32, column: Option<u32>) -> Result<Line, Missing> {
        let types = self.types_of(path)?;
        let found = types.line(file, line, column);
        // With a missing unit, the first address of a function is unknown.
        let absent = |all: &[u64]| all.iter().find_map(|at| types.absent_at(*at)).cloned();
        match &found {
            Line::Code(all) => absent(all).map_or(Ok(found), Err),
            Line::Bare(_) | Line::Columns(_) | Line::NoFile(_) => Ok(found),
        }
    }

    fn retval(&self, path: &Path, function: &Function) -> Result<Option<Int>, NoLocation> {
        self.types_of(path).map_or(Ok(None), |types| types.retval(function))
    }

    fn result_type(&self, path: &Path, function: &Function) -> Option<Type> {
        self.types_of(path).ok()?.result_type(function)
    }

    fn never_returns(&self, path: &Path, function: &Function) -> bool {
        self.types_of(path).is_ok_and(|types| types.never_returns(function))
    }

    fn inlined(&self, path: &Path, function: &str) -> Option<Inlined> {
        self.types_of(path).ok()?.inlined(function)
    }

    fn member(&self, structure: &Struct, name: &str) -> Option<Field> {
        match self.owner(structure) {
            Some(binary) => binary.member(structure, name),
            None => self.types().ok()?.member(structure, name),
        }
    }

    fn expand(&self, structure: &Struct) -> Option<Record> {
        match self.owner(structure) {
            Some(binary) => binary.expand(structure),
            None => self.types().ok()?.expand(structure),
        }
    }

    fn enumerator(&self, name: &str) -> Option<(Arc<Enum>, i64)> {
        self.types().ok()?.enumerator(name)
    }

    fn type_names(&self, kind: TypeName, each: &mut dyn FnMut(&str)) {
        if let Ok(types) = self.types() {
            types.names(kind, each);
        }
    }

    fn types_missing(&self) -> Option<Missing> {
        self.types().err()
    }

    fn types_identity(&self) -> Option<String> {
        (!types_are_given()).then(function_cache::key)
    }

    fn forget_searches(&self) {
        if let Some(Ok(types)) = self.types.get() {
            types.forget_searches();
        }
    }

    fn file(&self, path: &Path) -> Option<String> {
        let text = headers::text(path);
        self.headers.borrow_mut().0.insert(path.to_owned(), text.as_ref().map(digest));
        text
    }

    fn file_unread(&self, path: &Path) -> Option<String> {
        headers::unread(path)
    }

    fn header_folders(&self) -> Vec<HeaderFolder> {
        headers::folders()
    }

    fn tracepoints(&self) -> Result<&[(String, String)], Missing> {
        let all = self.tracepoints.get_or_init(|| self.tracefs()?.events());
        all.as_deref().map_err(Clone::clone)
    }

    fn is_dynamic_tracepoint(&self, category: &str, name: &str) -> bool {
        let read = || self.tracefs().ok()?.dynamic_events().ok();
        let all = self.dynamic_events.get_or_init(read);
        all.as_ref().is_none_or(|all| all.iter().any(|(c, n)| c == category && n == name))
    }

    fn has_tracepoint(&self, category: &str, name: &str) -> Result<bool, Missing> {
        Ok(self.tracefs()?.has(category, name))
    }

    fn tracepoint(&self, category: &str, name: &str) -> Result<Option<Tracepoint>, Missing> {
        self.tracefs()?.event(category, name, &|kind, name| self.type_named(kind, name))
    }

    fn event_id(&self, category: &str, name: &str) -> Result<Option<u64>, Missing> {
        self.tracefs()?.event_id(category, name)
    }

    fn raw_tracepoints(&self) -> Result<&[(String, String)], Missing> {
        let all = self.raw_tracepoints.get_or_init(|| Ok(self.types()?.raw_tracepoints()));
        all.as_deref().map_err(Clone::clone)
    }

    fn raw_tracepoint(&self, name: &str) -> Option<Vec<(String, Type)>> {
        Some(self.types().ok()?.raw_tracepoint(name)?.params)
    }

    fn syscall_number(&self, name: &str) -> Option<u32> {
        syscalls::number(self.arch(), name)
    }

    fn kernel_function(&self, name: &str) -> Option<u32> {
        self.types().ok()?.callable_id(name)
    }

    fn describes_function(&self, name: &str) -> bool {
        self.types().is_ok_and(|types| types.function_id(name).is_some())
    }

    fn kernel_variable(&self, name: &str) -> Option<String> {
        self.types().ok()?.variable_section(name)
    }

    fn may_call(&self, function: &str, program_type: u32) -> bool {
        self.kernel_function(function).is_some_and(|id| self.allows_call(id, program_type))
    }

    fn functions(&self) -> Result<&Functions, Missing> {
        self.functions.get_or_init(|| self.read_functions()).as_ref().map_err(Clone::clone)
    }

    fn function_homes(&self, name: &str) -> Result<Vec<FunctionLocation>, Missing> {
        let homes = |all: &Functions| {
            all.named(name).map(|f| FunctionLocation { module: f.module.into(), function: f.listed_name().into() }).collect()
        };
        if self.attaches_nothing {
            // Nothing will be attached, which would show the error. If the list cannot be read, continue as below.
            let _ = self.functions();
        }
        if let Some(all) = self.indexed() {
            return Ok(homes(all));
        }
        // A described function may be untraceable; attaching to it will show that.
        if let Some(described) = self.prototype(None, name) {
            return Ok(vec![FunctionLocation { module: described.module, function: name.to_owned() }]);
        }
        Ok(homes(self.functions()?))
    }

    fn kernel_types(&self) -> Option<&KernelTypes> {
        self.types().ok()
    }

    fn prototype(&self, module: Option<&str>, name: &str) -> Option<Prototype> {
        self.types().ok()?.function(module, name)
    }

    fn described_functions(&self, each: &mut dyn FnMut(&str, &str)) {
        if let Ok(types) = self.types() {
            types.functions(each);
        }
    }

    fn text_symbols(&self, name: &str) -> functions::Symbols {
        functions::symbols(&std::fs::read_to_string("/proc/kallsyms").unwrap_or_default(), name)
    }

    fn error_injectable(&self, function: &str) -> Option<bool> {
        // A line: name+offset/size, perhaps [module], and a tab before the kind of result (lib/error-inject.c).
        let list = tracefs::read_debugfs("error_injection/list").ok().filter(|l| !l.is_empty())?;
        Some(list.lines().any(|l| l.split(['+', '\t', ' ']).next() == Some(function)))
    }

    fn has_module(&self, name: &str) -> bool {
        // A name that is a path is not that of a module.
        name == functions::KERNEL || (!name.contains(['/', '.']) && Path::new("/sys/module").join(name).join("initstate").exists())
    }

    fn hidden_symbols(&self) -> Option<String> {
        rights::hidden_symbols()
    }

    fn kernel_place(&self, module: &str, function: &str, offset: u64) -> Result<InstructionBoundary, Missing> {
        // An image of the kernel, without its modules.
        if let Some(path) = IMAGES.iter().find_map(std::env::var_os).filter(|p| !p.is_empty() && module == functions::KERNEL) {
            let image = self.binary(Path::new(&path)).map_err(|m| Missing {
                what: format!("the kernel's image cannot be read: {}", m.what),
                help: Some("RBT_VMLINUX names an uncompressed one, with symbols; without it, only a function's length is checked".into()),
            })?;
            if let Some(f) = image.functions_named(function).next() {
                return Ok(instructions::placed(&image.path, f, offset));
            }
        }
        let length = functions::length(&std::fs::read_to_string("/proc/kallsyms").unwrap_or_default(), module, function);
        Ok(length.filter(|length| offset >= *length).map_or(InstructionBoundary::Unknown, InstructionBoundary::Outside))
    }

    fn kernel_symbol(&self, name: &str) -> Option<u64> {
        if let Some(known) = self.symbols.borrow().get(name) {
            return *known;
        }
        let found = File::open("/proc/kallsyms").ok().and_then(|file| find_symbol(file, name));
        self.symbols.borrow_mut().insert(name.to_owned(), found);
        found
    }

    fn running_programs(&self) -> Result<Vec<programs::ProgramFunction>, Missing> {
        programs::functions()
    }

    fn resolve_binary(&self, name: &str, pid: Option<u32>) -> Result<Vec<BinaryFile>, Missing> {
        let last = Path::new(name).file_name().unwrap_or_default().as_bytes();
        // A library matches without its extension, too.
        let matches_name = |path: &&PathBuf| {
            let rest = path.file_name().and_then(|own| own.as_bytes().strip_prefix(last));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b".so"))
        };
        match (self.replacement_files.iter().find(matches_name), &self.tree) {
            (Some(path), _) => elf::resolve(&std::path::absolute(path).unwrap_or_else(|_| path.clone()).to_string_lossy(), None),
            (None, Some(tree)) => locate::resolve_in(name, tree),
            (None, None) => elf::resolve(name, pid),
        }
    }

    fn regular_file(&self, name: &str) -> Option<PathBuf> {
        std::fs::canonicalize(name).ok().filter(|path| path.is_file())
    }

    fn binary(&self, path: &Path) -> Result<Arc<Binary>, Missing> {
        if let Some(known) = self.binaries.borrow().get(path) {
            return Ok(known.clone());
        }
        let opened = Arc::new(elf::open(path, &self.debug_dirs, &self.expected_machine(path))?);
        self.binaries.borrow_mut().insert(path.to_owned(), opened.clone());
        Ok(opened)
    }

    fn markers(&self, path: &Path) -> Result<Vec<Marker>, Missing> {
        usdt::markers(path, &self.expected_machine(path))
    }

    fn arch_of_binary(&self, path: &Path) -> &'static Arch {
        // without a described kernel, all binaries are for this machine
        self.described.map_or(HERE, |_| elf::arch_of(path))
    }

    fn has(&self, feature: Feature) -> bool {
        self.has_in(self, feature)
    }

    fn pid_namespace(&self) -> Option<(u64, u64)> {
        super::procfs::pid_namespace().ok().flatten()
    }

    fn possible_cpus(&self) -> u32 {
        (cpus("possible").len() as u32).max(1)
    }

    fn online_cpus(&self) -> Vec<u32> {
        cpus("online")
    }

    fn counts(&self, ty: u32, config: u64) -> Option<bool> {
        perf::counts(ty, config)
    }

    fn most_samples(&self) -> Option<u64> {
        perf::most_samples()
    }

    fn cgroup_id(&self, path: &str) -> Result<u64, Missing> {
        Ok(cgroup::find(path)?.id)
    }
}

/// Searches lines for ` name` at the end, or before the tab of a module: `ffffffff81000000 T name\t[module]`. The kernel
/// generates the text while it is read, so stopping early saves time.
fn find_symbol(mut lines: impl Read, name: &str) -> Option<u64> {
    let needle = format!(" {name}");
    let finder = memchr::memmem::Finder::new(needle.as_bytes());
    let mut buffer = vec![0u8; 64 << 10];
    let mut kept = 0;
    loop {
        let n = lines.read(buffer.get_mut(kept..)?).ok()?;
        let filled = kept + n;
        let text = buffer.get(..filled)?;
        for at in finder.find_iter(text) {
            let after = text.get(at + needle.len());
            let pattern = match after {
                Some(after) => matches!(after, b'\n' | b'\t'),
                None => n == 0, // the very end
            };
            if !pattern {
                continue;
            }
            let start = text.get(..at)?.iter().rposition(|b| *b == b'\n').map_or(0, |p| p + 1);
            let address = std::str::from_utf8(text.get(start..at)?).ok()?.split(' ').next()?;
            // All zero: kptr_restrict hides addresses from this user.
            return u64::from_str_radix(address, 16).ok().filter(|a| *a != 0);
        }
        if n == 0 {
            return None;
        }
        // The last line may be incomplete: search it again.
        let line = text.iter().rposition(|b| *b == b'\n').map_or(0, |p| p + 1);
        buffer.copy_within(line..filled, 0);
        kept = filled - line;
        if kept == buffer.len() {
            return None; // no line is this long
        }
    }
}

/// Parses `0-3,8` of `/sys/devices/system/cpu/<which>` into numbers. Without the file, the C library provides the count.
fn cpus(which: &str) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/{which}"));
    let list = text.map(|t| cpu_list(&t)).unwrap_or_default();
    if !list.is_empty() {
        return list;
    }
    if which == "possible"
        && let Ok(n) = processors::possible()
    {
        return (0..n as u32).collect();
    }
    // SAFETY: takes and returns numbers.
    let n = unsafe { libc::sysconf(if which == "online" { libc::_SC_NPROCESSORS_ONLN } else { libc::_SC_NPROCESSORS_CONF }) };
    (0..u32::try_from(n).unwrap_or(1).max(1)).collect()
}

fn cpu_list(text: &str) -> Vec<u32> {
    let ranges = text.trim().split(',').filter_map(|range| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        Some(from.trim().parse::<u32>().ok()?..=to.trim().parse::<u32>().ok()?.min(1 << 16))
    });
    ranges.flatten().collect()
}

/// Does the environment name the file of the kernel's types?
fn types_are_given() -> bool {
    BTF_FILES.iter().any(|var| std::env::var_os(var).is_some_and(|v| !v.is_empty()))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn timed<T>(what: &str, f: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let value = f();
        println!("{:>9.3} ms  {what}", start.elapsed().as_secs_f64() * 1e3);
        value
    }

    /// Run it with `--nocapture` to see the times.
    #[test]
    fn this_machine_answers() {
        let live = timed("new", Live::new);
        if let Some(missing) = timed("open types", || live.types_missing()) {
            eprintln!("skipped: needs BTF: {}", missing.what);
            return;
        }
        let task = timed("struct task_struct", || live.type_named(TypeName::Struct, "task_struct"));
        let Some(Type::Struct(task)) = task else { panic!("{task:?}") };
        let parent = timed("member real_parent", || live.member(&task, "real_parent")).unwrap();
        assert_eq!(parent.ty, Type::Struct(task.clone()).ptr(crate::types::Space::Kernel));
        assert_eq!(live.member(&task, "comm").unwrap().ty, Type::Str(16));
        assert_eq!(live.member(&task, "tgid").unwrap().ty, Type::int(4));
        assert_eq!(timed("missing member", || live.member(&task, "no_such_member")), None);
        let whole = timed("expand task_struct", || live.expand(&task)).unwrap();
        assert_eq!(whole.size, task.size);
        assert!(whole.fields.iter().any(|f| f.name == "tgid") && whole.fields.iter().all(|f| !f.name.is_empty()));
        assert_eq!(timed("typedef pid_t", || live.type_named(TypeName::Plain, "pid_t")), Some(Type::int(4)));
        assert_eq!(timed("missing struct", || live.type_named(TypeName::Struct, "no_such_struct")), None);
        let (family, value) = timed("enumerator TCP_ESTABLISHED", || live.enumerator("TCP_ESTABLISHED")).unwrap();
        assert_eq!(value, 1, "{family:?}");
        timed("enumerator again", || live.enumerator("TCP_ESTABLISHED")).unwrap();
        assert!(live.enumerator("NO_SUCH_VARIANT").is_none());

        let args = timed("raw tracepoint sched_switch", || live.raw_tracepoint("sched_switch")).unwrap();
        let names: Vec<&str> = args.iter().map(|(n, _)| n.as_str()).collect();
        assert!(names.starts_with(&["preempt", "prev", "next"]), "{args:?}");
        assert_eq!(args[1].1, Type::Struct(task).ptr(crate::types::Space::Kernel));
        let raw = timed("raw tracepoints", || live.raw_tracepoints().map(<[_]>::len)).unwrap();
        assert!(raw > 100, "{raw}");
        assert!(live.raw_tracepoints().unwrap().contains(&("vmlinux".into(), "sched_switch".into())));
    }

    #[test]
    fn every_tracepoint_can_be_described() {
        let live = Live::new();
        let all = match timed("all tracepoints", || live.tracepoints()) {
            Ok(all) => all,
            Err(missing) => return eprintln!("skipped: needs tracefs: {}", missing.what),
        };
        assert!(all.is_sorted() && all.len() > 100);
        // The kernel's own list, which takes 20 ms.
        let listed = live.tracefs().unwrap().read("available_events").unwrap();
        let mut listed: Vec<(String, String)> =
            listed.lines().filter_map(|l| l.split_once(':')).map(|(c, n)| (c.into(), n.into())).collect();
        listed.sort();
        assert_eq!(all, listed);
        assert!(timed("has_tracepoint", || live.has_tracepoint("sched", "sched_switch")).unwrap());
        assert!(!live.has_tracepoint("sched", "no_such_event").unwrap() && !live.has_tracepoint("..", "events").unwrap());
        assert_eq!(live.tracepoint("sched", "no_such_event"), Ok(None));
        let openat = timed("record of sys_enter_openat", || live.tracepoint("syscalls", "sys_enter_openat")).unwrap().unwrap();
        let filename = openat.fields.iter().find(|f| f.field.name == "filename").unwrap();
        assert_eq!(filename.field.ty, Type::int(1).ptr(crate::types::Space::User));
        assert_eq!(live.tracefs().unwrap().event_id("syscalls", "sys_enter_openat"), Ok(Some(openat.id)));
        timed("records of all", || {
            for (category, name) in all {
                let event = live.tracepoint(category, name).unwrap().unwrap_or_else(|| panic!("{category}:{name} has no format"));
                for f in &event.fields {
                    assert!(!f.field.name.is_empty() && !f.field.name.contains([' ', '*', '[']), "{category}:{name}: {f:?}");
                    // The type of an unknown typedef shows only its size.
                    if let (Type::Array(elem, _), false) = (&f.field.ty, f.decl.contains('[')) {
                        assert!(f.loc.is_some() || elem.size() == 1, "{category}:{name}: {f:?}");
                    }
                }
            }
        });
    }

    #[test]
    fn features_and_numbers() {
        let live = Live::new();
        for feature in
            [Feature::UprobeMulti, Feature::PerfCookie, Feature::RawTracepointCookie, Feature::CpuV4, Feature::Btf, Feature::Loop]
        {
            let has = timed(&format!("{feature:?}"), || live.has(feature));
            println!("{:>12}  = {has}", "");
        }
        assert!(!live.online_cpus().is_empty() && live.possible_cpus() as usize >= live.online_cpus().len());
        let symbol = timed("kernel symbol", || live.kernel_symbol("schedule"));
        println!("schedule = {symbol:x?}");
        timed("missing kernel symbol", || assert_eq!(live.kernel_symbol("no_such_symbol"), None));
        match live.cgroup_id("/") {
            Ok(id) => assert!(id > 0, "the root has an id: {id}"),
            Err(missing) => eprintln!("skipped: needs cgroup2: {}", missing.what),
        }
        assert!(live.cgroup_id("no/such/group").is_err());
    }

    #[test]
    fn symbols_are_found_whole() {
        let text =
            b"ffffffff81000010 T ab\nffffffff81000020 t a\n0000000000000000 T hidden\nffffffffc0000000 t c\t[m]\nffffffff81000030 t end";
        let find = |name: &str| find_symbol(&text[..], name);
        assert_eq!(find("a"), Some(0xffff_ffff_8100_0020));
        assert_eq!(find("ab"), Some(0xffff_ffff_8100_0010));
        assert_eq!(find("c"), Some(0xffff_ffff_c000_0000));
        assert_eq!(find("end"), Some(0xffff_ffff_8100_0030));
        assert_eq!((find("b"), find("hidden"), find("T")), (None, None, None));
    }

    #[test]
    fn cpu_lists() {
        assert_eq!(cpu_list("0-2,5,7-8\n"), [0, 1, 2, 5, 7, 8]);
        assert_eq!(cpu_list("\n"), [] as [u32; 0]);
    }

    #[test]
    fn every_syscall_tracepoint_has_a_number() {
        let live = Live::new();
        let events = match live.tracepoints() {
            Ok(all) => all,
            Err(missing) => return eprintln!("skipped: needs tracefs: {}", missing.what),
        };
        let calls: Vec<&str> = events.iter().filter(|(c, _)| c == "syscalls").filter_map(|(_, n)| n.strip_prefix("sys_enter_")).collect();
        let unknown: Vec<&&str> = calls.iter().filter(|n| syscalls::number(crate::system::machine::arch::HERE, n).is_none()).collect();
        assert!(unknown.is_empty(), "of {}: {unknown:?}", calls.len());
    }

    /// The kernel itself confirms each number: the count of the event grows in this thread after the call.
    #[test]
    #[allow(unsafe_code)] // makes the calls that it counts
    fn numbers_lead_to_their_events() {
        use crate::system::syscalls::{event, perf_event_open};
        const PERF_TYPE_TRACEPOINT: u32 = 2;
        use std::fs::File;
        use std::io::Read;
        let live = Live::new();
        let Ok(tracefs) = live.tracefs() else { return eprintln!("skipped: needs tracefs") };
        // All calls fail or do nothing: every argument is -1.
        let calls = ["newfstat", "newstat", "newlstat", "newuname", "sendfile64", "umount", "statmount", "mseal", "file_getattr", "uprobe"];
        let mut counted = 0;
        for call in calls {
            let Ok(Some(id)) = tracefs.event_id("syscalls", &format!("sys_enter_{call}")) else { continue };
            let mut count = match perf_event_open(&event(PERF_TYPE_TRACEPOINT, id), 0, -1) {
                Ok(fd) => File::from(fd),
                Err(e) => return eprintln!("skipped: needs perf_event_open: {e}"),
            };
            let mut read = || {
                let mut value = [0; 8];
                count.read_exact(&mut value).unwrap();
                u64::from_ne_bytes(value)
            };
            let before = read();
            // SAFETY: as above.
            unsafe {
                libc::syscall(
                    i64::from(syscalls::number(crate::system::machine::arch::HERE, call).unwrap()),
                    -1i64,
                    -1i64,
                    -1i64,
                    -1i64,
                    -1i64,
                    -1i64,
                )
            };
            assert_eq!(read() - before, 1, "{call}");
            counted += 1;
        }
        println!("{counted} numbers counted by the kernel");
    }
}
