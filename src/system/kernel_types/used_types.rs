//! Records which types were used, and makes BTF that contains only those and gives the same answers.
//!
//! An answer depends on the entries read for it and on searches by name, whose first match counts. A subset in the same order
//! has the same first matches, and names that are absent remain absent.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::{KernelTypes, MODULE_SHIFT};
use crate::system::kernel_types::btf::{Blob, Entry, Kind, Writer};

/// The used entries, and the used members of structs and unions.
#[derive(Default)]
pub struct UsedTypes {
    entries: BTreeSet<u32>,
    members: BTreeSet<(u32, u32)>,
}

impl KernelTypes {
    /// Records the entries that are used from now on.
    pub fn noting(self) -> Self {
        Self { used: Some(RefCell::default()), ..self }
    }

    pub(super) fn note(&self, id: u32) {
        if let Some(used) = &self.used {
            used.borrow_mut().entries.insert(id);
        }
    }

    pub(super) fn note_member(&self, id: u32, index: usize) {
        if let Some(used) = &self.used {
            used.borrow_mut().members.insert((id, index as u32));
        }
    }

    /// Records all entries of these kinds (a set of [`Kind::bit`]) with matching names as used.
    pub fn note_all(&self, kinds: u32, wanted: &dyn Fn(&str) -> bool) {
        for module in 0..=self.modules().len() as u32 {
            let Some(blob) = self.blob(module) else { continue };
            for (id, entry) in blob.entries().filter(|(_, e)| kinds & e.kind.bit() != 0) {
                if self.string(module, entry.name).is_some_and(wanted) {
                    self.note(self.global_id(module, id));
                }
            }
        }
    }

    /// Makes BTF of the recorded entries by module, the kernel first; modules without any are omitted.
    pub fn used(&self) -> Result<Vec<(String, Vec<u8>)>, String> {
        let Some(used) = &self.used else { return Ok(Vec::new()) };
        let used = used.borrow();
        let mut kept: BTreeMap<u32, Vec<u32>> = BTreeMap::from([(0, Vec::new())]);
        for id in used.entries.iter().filter(|id| **id != 0) {
            kept.entry(id >> MODULE_SHIFT).or_default().push(*id);
        }
        let mut ids: BTreeMap<u32, u32> = BTreeMap::new();
        let mut all = Vec::new();
        let mut base: Option<Blob> = None;
        for (module, mut own) in kept {
            if module == 0 {
                own.extend(self.related_entries(&used.entries));
                own.sort_unstable();
            }
            let first = base.as_ref().map_or(1, Blob::next_id);
            ids.extend(own.iter().copied().zip(first..));
            let mut writer = Writer::new(base.as_ref());
            for id in &own {
                self.copy(*id, module, &ids, &used, &mut writer);
            }
            if module == 0 {
                self.marks(&mut writer);
            }
            let bytes = writer.finish();
            if module == 0 {
                base = Some(Blob::from_vec(bytes.clone(), None)?);
            }
            all.push((self.module_name(module), bytes));
        }
        Ok(all)
    }

    /// Entries of the kernel that belong to the kept ones but that these do not refer to: sections of variables, tags of
    /// functions.
    fn related_entries(&self, kept: &BTreeSet<u32>) -> Vec<u32> {
        let tags = self.base.find_string(CALLABLE);
        let of = |entry: &Entry| match entry.kind {
            Kind::Datasec => entry.parts::<3>().any(|[ty, _, _]| kept.contains(&ty)),
            Kind::DeclTag => tags.contains(&entry.name) && kept.contains(&entry.size_or_type),
            Kind::Void
            | Kind::Int
            | Kind::Ptr
            | Kind::Array
            | Kind::Struct
            | Kind::Union
            | Kind::Enum
            | Kind::Fwd
            | Kind::Typedef
            | Kind::Volatile
            | Kind::Const
            | Kind::Restrict
            | Kind::Func
            | Kind::FuncProto
            | Kind::Var
            | Kind::Float
            | Kind::TypeTag
            | Kind::Enum64 => false,
        };
        self.base.entries().filter(|(id, e)| of(e) && !kept.contains(id)).map(|(id, _)| id).collect()
    }

    /// Adds entries whose mere presence is an answer.
    fn marks(&self, writer: &mut Writer) {
        if self.signs_known() {
            writer.add(Kind::Enum, true, "", 0, 4, &[]);
        }
        let tags = self.base.find_string(CALLABLE);
        if self.base.entries().any(|(_, e)| e.kind == Kind::DeclTag && tags.contains(&e.name)) {
            writer.add(Kind::DeclTag, false, CALLABLE, 0, 0, &[u32::MAX]);
        }
    }

    /// Copies an entry; references to entries that were not recorded become `void`.
    fn copy(&self, id: u32, module: u32, ids: &BTreeMap<u32, u32>, used: &UsedTypes, to: &mut Writer) {
        let Some(entry) = self.entry_unrecorded(id) else { return };
        let refer = |id: u32| ids.get(&self.global_id(module, id)).copied().unwrap_or(0);
        let name = |offset: u32| self.string(module, offset).unwrap_or_default();
        let mut tail = Vec::new();
        let mut vlen = entry.vlen;
        let mut size_or_type = entry.size_or_type;
        match entry.kind {
            Kind::Void | Kind::Float | Kind::Fwd => {}
            Kind::Int => tail.extend(entry.word(0)),
            Kind::Ptr | Kind::Typedef | Kind::Volatile | Kind::Const | Kind::Restrict | Kind::TypeTag | Kind::Func => {
                size_or_type = refer(size_or_type)
            }
            Kind::Array => tail.extend([refer(entry.word(0).unwrap_or(0)), refer(entry.word(1).unwrap_or(0)), entry.word(2).unwrap_or(0)]),
            Kind::Struct | Kind::Union => {
                let members = entry.parts::<3>().zip(0..).filter(|(_, n)| used.members.contains(&(id, *n)));
                let members: Vec<[u32; 3]> = members.map(|([n, ty, at], _)| [to.string(name(n)), refer(ty), at]).collect();
                vlen = members.len() as u32;
                tail.extend(members.concat());
            }
            Kind::Enum => entry.parts::<2>().for_each(|[n, value]| tail.extend([to.string(name(n)), value])),
            Kind::Enum64 => entry.parts::<3>().for_each(|[n, low, high]| tail.extend([to.string(name(n)), low, high])),
            Kind::FuncProto => {
                entry.parts::<2>().for_each(|[n, ty]| tail.extend([to.string(name(n)), refer(ty)]));
                size_or_type = refer(size_or_type);
            }
            Kind::Var | Kind::DeclTag => {
                tail.extend(entry.word(0));
                size_or_type = refer(size_or_type);
            }
            Kind::Datasec => {
                let kept: Vec<[u32; 3]> = entry.parts::<3>().filter(|[ty, _, _]| refer(*ty) != 0).collect();
                vlen = kept.len() as u32;
                tail.extend(kept.into_iter().flat_map(|[ty, at, size]| [refer(ty), at, size]));
            }
        }
        to.add(entry.kind, entry.flag, name(entry.name), vlen, size_or_type, &tail);
    }
}

/// The tag of functions that BPF programs can call.
pub(super) const CALLABLE: &str = "bpf_kfunc";
