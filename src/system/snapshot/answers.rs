//! A snapshot as a [`TargetInfo`].

use std::path::Path;
use std::sync::Arc;

use super::queries::Queries;
use super::{Snapshot, capture, inferred_features, parts, section};
use crate::system::kernel::functions::{Functions, KERNEL, Symbols};
use crate::system::kernel_types::{KernelTypes, Prototype};
use crate::system::machine::arch::Arch;
use crate::system::{
    AmbiguousType, Argument, Binary, BinaryFile, Feature, Function, FunctionLocation, HeaderFolder, Inlined, Line, Marker, Missing,
    NoLocation, TargetInfo, Tracepoint, TypeName, events::syscalls, events::tracefs,
};
use crate::types::{Enum, Field, Int, Record, Struct, Type};

/// Stands for the address of any symbol, because addresses differ between boots.
const PLACEHOLDER_ADDRESS: u64 = 0xffff_ffff_8100_0000;

impl TargetInfo for Snapshot {
    fn for_messages(&self) -> &dyn TargetInfo {
        self
    }

    fn arch(&self) -> &'static Arch {
        self.arch
    }

    fn type_named(&self, kind: TypeName, name: &str) -> Option<Type> {
        self.types().ok()?.named(kind, name)
    }

    fn type_in_binary(&self, path: &Path, offset: u64, kind: TypeName, name: &str) -> Result<Option<Type>, AmbiguousType> {
        self.files.type_in_binary(path, offset, kind, name)
    }

    fn types_missing_in_binary(&self, path: &Path) -> Option<Missing> {
        self.files.types_missing_in_binary(path)
    }

    fn enumerators_in_binary(&self, path: &Path, offset: u64, name: &str) -> Vec<(Arc<Enum>, i64)> {
        self.files.enumerators_in_binary(path, offset, name)
    }

    fn arguments(&self, path: &Path, function: &Function) -> Result<Option<Vec<Argument>>, Missing> {
        self.files.arguments(path, function)
    }

    fn source_line(&self, path: &Path, file: &str, line: u32, column: Option<u32>) -> Result<Line, Missing> {
        self.files.source_line(path, file, line, column)
    }

    fn retval(&self, path: &Path, function: &Function) -> Result<Option<Int>, NoLocation> {
        self.files.retval(path, function)
    }

    fn result_type(&self, path: &Path, function: &Function) -> Option<Type> {
        self.files.result_type(path, function)
    }

    fn never_returns(&self, path: &Path, function: &Function) -> bool {
        self.files.never_returns(path, function)
    }

    fn inlined(&self, path: &Path, function: &str) -> Option<Inlined> {
        self.files.inlined(path, function)
    }

    fn member(&self, structure: &Struct, name: &str) -> Option<Field> {
        if self.files.owns(structure) { self.files.member(structure, name) } else { self.types().ok()?.member(structure, name) }
    }

    fn expand(&self, structure: &Struct) -> Option<Record> {
        if self.files.owns(structure) { self.files.expand(structure) } else { self.types().ok()?.expand(structure) }
    }

    fn enumerator(&self, name: &str) -> Option<(Arc<Enum>, i64)> {
        self.types().ok()?.enumerator(name)
    }

    fn type_names(&self, kind: TypeName, each: &mut dyn FnMut(&str)) {
        self.record_query(|a| a.type_names = true);
        if let Ok(types) = self.types() {
            types.names(kind, each);
        }
    }

    fn types_missing(&self) -> Option<Missing> {
        self.types().err()
    }

    fn file(&self, path: &Path) -> Option<String> {
        self.files.file(path)
    }

    fn file_unread(&self, path: &Path) -> Option<String> {
        self.files.file_unread(path)
    }

    fn header_folders(&self) -> Vec<HeaderFolder> {
        self.files.header_folders()
    }

    fn tracepoints(&self) -> Result<&[(String, String)], Missing> {
        self.record_query(|a| a.all_events = true);
        Ok(&self.events()?.names)
    }

    fn has_tracepoint(&self, category: &str, name: &str) -> Result<bool, Missing> {
        self.record_query(|a| {
            a.events.entry((category.to_owned(), name.to_owned())).or_default();
        });
        Ok(self.event(category, name)?.is_some())
    }

    /// Snapshots do not contain such events.
    fn is_dynamic_tracepoint(&self, _category: &str, _name: &str) -> bool {
        false
    }

    fn tracepoint(&self, category: &str, name: &str) -> Result<Option<Tracepoint>, Missing> {
        self.record_query(|a| {
            a.events.insert((category.to_owned(), name.to_owned()), true);
        });
        let Some((from, to)) = self.event(category, name)? else { return Ok(None) };
        let formats = self.formats.get_or_init(|| parts::formats(&self.sections)).as_ref().map_err(|e| self.damaged(e))?;
        let text = formats.get(from..to).unwrap_or_default();
        Ok(tracefs::parse_format(text, category, &|kind, name| self.type_named(kind, name)))
    }

    fn raw_tracepoints(&self) -> Result<&[(String, String)], Missing> {
        self.record_query(|a| a.all_raw_tracepoints = true);
        let all = self.raw_tracepoints.get_or_init(|| Ok(self.types()?.raw_tracepoints()));
        all.as_deref().map_err(Clone::clone)
    }

    fn raw_tracepoint(&self, name: &str) -> Option<Vec<(String, Type)>> {
        Some(self.types().ok()?.raw_tracepoint(name)?.params)
    }

    fn syscall_number(&self, name: &str) -> Option<u32> {
        syscalls::number(self.arch, name)
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
        let all = self.callable.get_or_init(|| parts::read_callable(&self.sections).ok().flatten());
        all.as_ref().and_then(|all| all.get(function)).is_some_and(|types| types.contains(&program_type))
    }

    fn functions(&self) -> Result<&Functions, Missing> {
        let read = || match self.sections.text(section::FUNCTIONS) {
            Ok(Some(text)) => Ok(self.list(text)),
            Ok(None) => Err(self.lacks(section::FUNCTIONS, "which functions can be traced")),
            Err(e) => Err(self.damaged(&e)),
        };
        self.functions.get_or_init(read).as_ref().map_err(Clone::clone)
    }

    fn function_homes(&self, name: &str) -> Result<Vec<FunctionLocation>, Missing> {
        match self.functions() {
            Ok(all) => {
                Ok(all.named(name).map(|f| FunctionLocation { module: f.module.into(), function: f.listed_name().into() }).collect())
            }
            // A described function may be untraceable.
            Err(missing) => match self.prototype(None, name) {
                Some(described) => Ok(vec![FunctionLocation { module: described.module, function: name.to_owned() }]),
                None => Err(missing),
            },
        }
    }

    fn kernel_types(&self) -> Option<&KernelTypes> {
        self.types().ok()
    }

    fn prototype(&self, module: Option<&str>, name: &str) -> Option<Prototype> {
        self.types().ok()?.function(module, name)
    }

    fn described_functions(&self, each: &mut dyn FnMut(&str, &str)) {
        self.record_query(|a| a.described = true);
        if let Ok(types) = self.types() {
            types.functions(each);
        }
    }

    fn text_symbols(&self, name: &str) -> Symbols {
        let part = format!("{name}.");
        let mut found = Symbols::default();
        for list in self.functions().into_iter().chain(self.untraceable()) {
            found.is_exact |= list.named(name).next().is_some();
            found.parts.extend(list.starting(&part).map(|f| f.name.to_owned()));
        }
        found.parts.sort_unstable();
        found.parts.dedup();
        found
    }

    fn error_injectable(&self, function: &str) -> Option<bool> {
        let read = || self.sections.text(section::INJECTABLE).ok().flatten().map(|text| self.list(text));
        Some(self.injectable.get_or_init(read).as_ref()?.named(function).next().is_some())
    }

    fn has_module(&self, name: &str) -> bool {
        self.record_query(|a| {
            a.modules.insert(name.to_owned());
        });
        self.knows_module(name)
    }

    fn hidden_symbols(&self) -> Option<String> {
        None
    }

    /// The existence of a symbol is known, but not its address.
    fn kernel_symbol(&self, name: &str) -> Option<u64> {
        let read = || self.sections.text(section::VARIABLES).ok().flatten().map(|text| self.list(text));
        let data = || self.variables.get_or_init(read).as_ref().is_some_and(|all| all.named(name).next().is_some());
        (self.text_symbols(name).is_exact || data() || self.kernel_variable(name).is_some()).then_some(PLACEHOLDER_ADDRESS)
    }

    fn resolve_binary(&self, name: &str, pid: Option<u32>) -> Result<Vec<BinaryFile>, Missing> {
        self.files.resolve_binary(name, pid)
    }

    fn binary(&self, path: &Path) -> Result<Arc<Binary>, Missing> {
        self.files.binary(path)
    }

    fn arch_of_binary(&self, path: &Path) -> &'static Arch {
        self.files.arch_of_binary(path)
    }

    fn markers(&self, path: &Path) -> Result<Vec<Marker>, Missing> {
        self.files.markers(path)
    }

    fn has(&self, feature: Feature) -> bool {
        let kept = self.features.get_or_init(|| parts::features(&self.sections).unwrap_or_default());
        if let Some(known) = kept.get(&feature) {
            return *known;
        }
        if let Some(known) = self.answered.borrow().get(&feature) {
            return *known;
        }
        let config = |option: &str| self.config(option).map(str::to_owned);
        let known = inferred_features::KernelFacts { sys: self, config: &config, symbols: &|| self.knows_symbols() };
        let answer = inferred_features::has(&known, feature);
        self.answered.borrow_mut().insert(feature, answer);
        answer
    }

    fn possible_cpus(&self) -> u32 {
        self.about.possible_cpus.max(1)
    }

    fn online_cpus(&self) -> Vec<u32> {
        (0..self.possible_cpus().min(1 << 16)).collect()
    }

    /// Cgroups are created at run time, so any path may exist.
    fn cgroup_id(&self, _path: &str) -> Result<u64, Missing> {
        Ok(PLACEHOLDER_ADDRESS)
    }

    fn knows_cgroups(&self) -> bool {
        false
    }

    fn loads_on_demand(&self, module: &str) -> bool {
        module != KERNEL && self.about.source != capture::THIS_MACHINE && self.knows_module(module)
    }
}

impl Snapshot {
    /// The kernel's types, or the reason why there are none.
    pub fn types(&self) -> Result<&KernelTypes, Missing> {
        let read = || {
            let vmlinux = format!("{}{KERNEL}", section::BTF);
            let bytes = self.sections.get(&vmlinux).map_err(|e| self.damaged(&e))?;
            let bytes = bytes.ok_or_else(|| self.lacks(&vmlinux, "the kernel's types (BTF)"))?;
            let modules = self.sections.names().filter_map(|n| n.strip_prefix(section::BTF)).filter(|n| *n != KERNEL);
            let modules = modules.map(str::to_owned).collect();
            let sections = self.sections.clone();
            let read = move |name: &str| sections.get(&format!("{}{name}", section::BTF)).ok().flatten();
            let types = KernelTypes::kept(bytes, modules, Box::new(read));
            let types = types.map_err(|e| self.damaged(&format!("its types cannot be read: {e}")))?;
            Ok(if self.queries.is_some() { types.noting() } else { types })
        };
        self.types.get_or_init(read).as_ref().map_err(Clone::clone)
    }

    /// If the list of modules is incomplete, a module with other data is known.
    pub(super) fn knows_module(&self, name: &str) -> bool {
        let read = || self.sections.text(section::MODULES).ok().flatten().map(|text| Functions::from_index(text, 0));
        if let Some(all) = self.modules.get_or_init(read) {
            return name == KERNEL || all.named(name).next().is_some();
        }
        let described = || self.sections.sizes(&format!("{}{name}", section::BTF)).is_some();
        name == KERNEL || described() || self.functions().is_ok_and(|all| all.all().any(|f| f.module == name))
    }

    pub(super) fn record_query(&self, what: impl FnOnce(&mut Queries)) {
        if let Some(queries) = &self.queries {
            what(&mut queries.borrow_mut());
        }
    }

    fn list(&self, text: String) -> Functions {
        let list = Functions::from_index(text, 0);
        if self.queries.is_some() { list.noting() } else { list }
    }

    fn events(&self) -> Result<&parts::EventIndex, Missing> {
        let read = || match parts::events(&self.sections) {
            Ok(Some(all)) => Ok(all),
            Ok(None) => Err(self.lacks(section::EVENTS, "the kernel's events (tracepoints)")),
            Err(e) => Err(self.damaged(&e)),
        };
        self.events.get_or_init(read).as_ref().map_err(Clone::clone)
    }

    /// The range of an event's format.
    fn event(&self, category: &str, name: &str) -> Result<Option<(usize, usize)>, Missing> {
        let all = self.events()?;
        let at = all.names.binary_search_by(|(c, n)| (c.as_str(), n.as_str()).cmp(&(category, name)));
        Ok(at.ok().and_then(|at| all.ranges.get(at).copied()))
    }

    pub(super) fn untraceable(&self) -> Option<&Functions> {
        let read = || self.sections.text(section::UNTRACEABLE).ok().flatten().map(|text| self.list(text));
        self.untraceable.get_or_init(read).as_ref()
    }

    /// Does it contain all names of kernel code?
    pub(super) fn knows_symbols(&self) -> bool {
        self.functions().is_ok() && self.untraceable().is_some()
    }

    /// The value of a configuration option; empty if it is not set. `None` if the configuration is unknown.
    pub fn config(&self, option: &str) -> Option<&str> {
        self.record_query(|a| {
            a.options.insert(option.to_owned());
        });
        let text = self.config.get_or_init(|| self.sections.text(section::CONFIG).ok().flatten()).as_ref()?;
        let value = text.lines().find_map(|line| line.strip_prefix(option)?.strip_prefix('='));
        Some(value.unwrap_or("").trim())
    }

    fn lacks(&self, section: &str, what: &str) -> Missing {
        let why = parts::missing(&self.sections).ok().and_then(|all| all.get(section).cloned());
        let why = why.map_or(String::new(), |why| format!(": {why}"));
        Missing {
            what: format!("the snapshot {} lacks {what}{why}", self.path.display()),
            help: Some("make it as root: `rbt snapshot -o FILE`".into()),
        }
    }

    pub(super) fn damaged(&self, why: &str) -> Missing {
        Missing {
            what: format!("the snapshot {} is damaged: {why}", self.path.display()),
            help: Some("create it again: `rbt snapshot -o FILE`".into()),
        }
    }
}
