//! Functions, variables and raw tracepoints, as BTF describes them.

use std::collections::BTreeMap;

use super::used_types::CALLABLE;
use super::{Entry, KernelTypes, Kind, MODULE_SHIFT, Prototype};

/// Number of names that are looked up without sorting.
const MAX_LINEAR_SEARCH: u32 = 16;
/// The prefix of the typedefs that describe raw tracepoints.
const EVENT: &str = "btf_trace_";

impl KernelTypes {
    /// Finds a function, for probes on its entry and exit. Of several functions with one name, it returns the first, in
    /// `module` (`vmlinux` is the kernel itself) if one is given.
    pub fn function(&self, module: Option<&str>, name: &str) -> Option<Prototype> {
        let id = self.function_named(module, name)?;
        self.prototype(id, self.entry(id)?.size_or_type, 0)
    }

    pub(super) fn function_named(&self, module: Option<&str>, name: &str) -> Option<u32> {
        let Some(module) = module else { return self.find(name, Kind::Func.bit()) };
        let number = (0..=self.modules().len() as u32).find(|n| self.module_name(*n) == module)?;
        self.function_in(number, name)
    }

    /// The BTF ID of a function of the kernel itself.
    pub fn function_id(&self, name: &str) -> Option<u32> {
        self.find(name, Kind::Func.bit()).filter(|id| *id < self.base.next_id())
    }

    /// The BTF ID of a function that BPF programs can call. Kernels since 6.10 tag these; on older ones, it can be any
    /// function.
    pub fn callable_id(&self, name: &str) -> Option<u32> {
        if let Some(known) = self.callable.borrow().get(name) {
            return *known;
        }
        let found = self.find_callable(name);
        self.callable.borrow_mut().insert(name.to_owned(), found);
        found
    }

    fn find_callable(&self, name: &str) -> Option<u32> {
        let id = self.function_id(name)?;
        let tags = self.base.find_string(CALLABLE);
        let mut is_any_tagged = false;
        let is_tag_of_it = |e: &Entry| {
            let is_tag = tags.contains(&e.name);
            is_any_tagged |= is_tag;
            is_tag && e.size_or_type == id
        };
        let is_tagged = self.base.has_entry(Kind::DeclTag.bit(), is_tag_of_it);
        (is_tagged || !is_any_tagged).then_some(id)
    }

    /// The functions of the kernel itself that BPF programs can call, with their IDs, sorted: those that are tagged or, without
    /// any tags, those with the usual prefix.
    pub fn callable(&self) -> Vec<(String, u32)> {
        let tags = self.base.find_string(CALLABLE);
        let is_tag = |e: &Entry| e.kind == Kind::DeclTag && tags.contains(&e.name);
        let tagged: Vec<u32> = self.base.entries().filter(|(_, e)| is_tag(e)).map(|(_, e)| e.size_or_type).collect();
        let name = |e: Entry| self.base.string(e.name).map(str::to_owned);
        let mut all: Vec<(String, u32)> = if tagged.is_empty() {
            let functions = self.base.entries().filter(|(_, e)| e.kind == Kind::Func);
            functions.filter_map(|(id, e)| Some((name(e)?, id))).filter(|(name, _)| name.starts_with("bpf_")).collect()
        } else {
            tagged.into_iter().filter_map(|id| Some((name(self.base.entry(id)?)?, id))).collect()
        };
        all.sort_unstable();
        all.dedup_by(|a, b| a.0 == b.0);
        all
    }

    /// The section of a global variable of the kernel itself. BTF has only per-CPU variables.
    pub fn variable_section(&self, name: &str) -> Option<String> {
        if let Some(known) = self.sections.borrow().get(name) {
            return known.clone();
        }
        let found = self.find_section(name);
        self.sections.borrow_mut().insert(name.to_owned(), found.clone());
        found
    }

    fn find_section(&self, name: &str) -> Option<String> {
        let id = self.find(name, Kind::Var.bit()).filter(|id| *id < self.base.next_id())?;
        let name = |e: &Entry| e.parts::<3>().any(|[ty, _, _]| ty == id).then_some(e.name);
        let section = self.base.find_entry(Kind::Datasec.bit(), |_, e| name(e))?;
        self.base.string(section).map(str::to_owned)
    }

    /// After some lookups, the names of all functions are sorted once, which takes as long as about twenty lookups.
    fn function_in(&self, module: u32, name: &str) -> Option<u32> {
        let blob = self.blob(module)?;
        let lookups = self.function_lookups.get();
        self.function_lookups.set(lookups.saturating_add(1));
        if module != 0 || lookups < MAX_LINEAR_SEARCH || blob.has_index() {
            let shared = self.base.find_string(name);
            let module_strings = if module == 0 { Vec::new() } else { blob.find_string(name) };
            let id = shared.iter().chain(&module_strings).find_map(|s| blob.find_named(*s, Kind::Func.bit()))?;
            return Some(self.global_id(module, id));
        }
        let sorted = self.functions.get_or_init(|| {
            let mut all: Vec<(u32, u32)> = Vec::new();
            blob.each_entry(Kind::Func.bit(), |id, e| all.push((e.name, id)));
            all.sort_by(|(a, x), (b, y)| (self.string(0, *a), x).cmp(&(self.string(0, *b), y)));
            all
        });
        let at = sorted.partition_point(|(s, _)| self.string(0, *s) < Some(name));
        sorted.get(at).filter(|(s, _)| self.string(0, *s) == Some(name)).map(|(_, id)| *id)
    }

    /// Visits the names of all functions with their modules, file by file.
    pub fn functions(&self, each: &mut dyn FnMut(&str, &str)) {
        for module in 0..=self.modules().len() as u32 {
            let Some(blob) = self.blob(module) else { continue };
            let home = self.module_name(module);
            for (_, entry) in blob.entries().filter(|(_, e)| e.kind == Kind::Func) {
                if let Some(name) = self.string(module, entry.name) {
                    each(name, &home);
                }
            }
        }
    }

    /// The arguments of a raw tracepoint. The typedef `btf_trace_<name>` has their types, and a `tp_btf` program attaches by
    /// its ID. The function `__traceiter_<name>` also has their names (`include/linux/tracepoint.h`); on older kernels, only
    /// `__bpf_trace_<name>` may have them. The first parameter, a `void *`, is internal and omitted.
    pub fn raw_tracepoint(&self, name: &str) -> Option<Prototype> {
        let (id, target) = self.event_prototype(name)?;
        let mut found = self.prototype(id, target, 1)?;
        for ((to, _), from) in found.params.iter_mut().zip(self.event_names(name, 1).unwrap_or_default()) {
            *to = from;
        }
        Some(found)
    }

    /// The typedef and the prototype of a raw tracepoint.
    pub(super) fn event_prototype(&self, name: &str) -> Option<(u32, u32)> {
        let id = self.event_named(name)?;
        let module = id >> MODULE_SHIFT;
        let target = self.global_id(module, self.entry(id)?.size_or_type);
        let entry = self.entry(target)?;
        Some((id, if entry.kind == Kind::Ptr { self.global_id(module, entry.size_or_type) } else { target }))
    }

    /// The typedef of a raw tracepoint: the first in the kernel or in its modules.
    fn event_named(&self, name: &str) -> Option<u32> {
        let lookups = self.raw_tracepoint_lookups.get();
        self.raw_tracepoint_lookups.set(lookups.saturating_add(1));
        if lookups < MAX_LINEAR_SEARCH || self.base.has_index() {
            return self.find(&format!("{EVENT}{name}"), Kind::Typedef.bit());
        }
        let all = self.events.get_or_init(|| {
            let mut all = BTreeMap::new();
            for module in 0..=self.modules().len() as u32 {
                let Some(blob) = self.blob(module) else { continue };
                blob.each_entry(Kind::Typedef.bit(), |id, entry| {
                    if let Some(name) = self.string(module, entry.name).and_then(|n| n.strip_prefix(EVENT)) {
                        all.entry(name.to_owned()).or_insert_with(|| self.global_id(module, id));
                    }
                });
            }
            all
        });
        let id = *all.get(name)?;
        self.note(id);
        Some(id)
    }

    /// The names of a raw tracepoint's arguments after the first `skip`; `None` unless all have names.
    pub(super) fn event_names(&self, name: &str, skip: usize) -> Option<Vec<String>> {
        let (id, target) = self.event_prototype(name)?;
        let count = self.entry(target)?.vlen as usize;
        let function = |name: &str| match self.function_in(id >> MODULE_SHIFT, name) {
            Some(found) => {
                self.note(found);
                Some(found)
            }
            None => self.find(name, Kind::Func.bit()),
        };
        let named = |prefix: &str| function(&format!("{prefix}{name}")).and_then(|f| self.parameter_names(f));
        let names = ["__traceiter_", "__probestub_", "__bpf_trace_"].into_iter().find_map(|p| named(p).filter(|n| n.len() == count))?;
        Some(names.into_iter().skip(skip).collect())
    }

    /// Names of raw tracepoints, sorted: (module or `vmlinux`, name).
    pub fn raw_tracepoints(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for module in 0..=self.modules().len() as u32 {
            let Some(blob) = self.blob(module) else { continue };
            blob.each_entry(Kind::Typedef.bit(), |_, entry| {
                if let Some(name) = self.string(module, entry.name).and_then(|n| n.strip_prefix(EVENT)) {
                    all.push((self.module_name(module), name.to_owned()));
                }
            });
        }
        all.sort();
        all.dedup();
        all
    }

    fn prototype(&self, id: u32, target: u32, skip: usize) -> Option<Prototype> {
        let module = id >> MODULE_SHIFT;
        let target = self.global_id(module, target);
        let entry = self.entry(target).filter(|e| e.kind == Kind::FuncProto)?;
        let params = entry.parts::<2>().skip(skip).map(|[name, ty]| {
            let name = self.string(module, name).unwrap_or_default().to_owned();
            Some((name, self.ty(self.global_id(module, ty), 0)?))
        });
        Some(Prototype {
            module: self.module_name(module),
            id: id & ((1 << MODULE_SHIFT) - 1),
            params: params.collect::<Option<_>>()?,
            returns: self.ty(self.global_id(module, entry.size_or_type), 0)?,
        })
    }

    fn parameter_names(&self, function: u32) -> Option<Vec<String>> {
        let module = function >> MODULE_SHIFT;
        let proto = self.entry(self.global_id(module, self.entry(function)?.size_or_type)).filter(|e| e.kind == Kind::FuncProto)?;
        proto.parts::<2>().map(|[name, _]| Some(self.string(module, name)?.to_owned())).collect()
    }
}
