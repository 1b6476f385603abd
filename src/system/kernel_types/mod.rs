//! The kernel's types: converts BTF entries to [`Type`]s on demand, module by module.
//!
//! Types are expanded lazily: a struct is its name, size and ID, and a pointer only names its target. [`Struct::id`] is a BTF
//! ID (below 2^20, `BTF_MAX_TYPE`) with a module number, from 1, above it. IDs from 0xf000_0000 upward never appear here; they
//! belong to types of a script and, from 0xf800_0000 upward, of traced binaries.
//!
//! Data may be invalid: chains of types are followed for at most `DEPTH` steps, and members count against a budget, so
//! a cycle yields no answer instead of an endless loop.

pub mod btf;
pub mod c_text;
mod functions;
mod paged_file;
mod used_types;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::failure::reason;
use crate::system::kernel_types::btf::{Blob, Entry, Kind};
use crate::system::{Missing, TypeName};
use crate::types::{Enum, Field, Int, Record, Space, Struct, Type};

/// Limit for chains of types: pointers, arrays, typedefs, structs within structs.
const DEPTH: u32 = 16;
/// Limit for the fields of one struct.
const FIELDS: u32 = 1 << 16;
/// IDs of one BTF file are below 2 to this power (`BTF_MAX_TYPE` + 1).
const MODULE_SHIFT: u32 = 20;
const MODULES: usize = 0xeff;

const STRUCTS: u32 = Kind::Struct.bit() | Kind::Union.bit();
const ENUMS: u32 = Kind::Enum.bit() | Kind::Enum64.bit();
/// Qualifiers and typedefs, which do not change the layout.
const MODIFIER_KINDS: u32 =
    Kind::Typedef.bit() | Kind::Volatile.bit() | Kind::Const.bit() | Kind::Restrict.bit() | Kind::DeclTag.bit() | Kind::TypeTag.bit();
const PLAIN: u32 = Kind::Typedef.bit() | Kind::Int.bit() | Kind::Float.bit();

/// Environment variables with a file of raw BTF to use instead of the kernel's.
pub const BTF_FILES: [&str; 2] = ["RBT_BTF", "BPFTRACE_BTF"];

/// The prototype of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Prototype {
    /// Its module, or `vmlinux`.
    pub module: String,
    /// The ID of its `FUNC` (or, for a raw tracepoint, its typedef) in that file, for `attach_btf_id`.
    pub id: u32,
    /// Names and types; a name may be empty.
    pub params: Vec<(String, Type)>,
    /// The type of the result, which may be `Void`.
    pub returns: Type,
}

struct Module {
    name: String,
    blob: OnceCell<Option<Blob>>,
}

/// Returns the BTF of a module by its name.
pub type ReadModule = Box<dyn Fn(&str) -> Option<Vec<u8>>>;

/// Where to find the BTF of modules.
enum Source {
    /// Only modules that are added explicitly.
    Nowhere,
    /// `/sys/kernel/btf`
    Folder(PathBuf),
    /// A list of names, and a function that reads one.
    Given(Vec<String>, ReadModule),
}

/// The BTF of the kernel and, once a name is not in there, of its modules.
pub struct KernelTypes {
    base: Blob,
    source: Source,
    modules: OnceCell<Vec<Module>>,
    enums: RefCell<BTreeMap<u32, Arc<Enum>>>,
    variants: RefCell<BTreeMap<String, Option<(u32, i64)>>>,
    /// Results of `find`, by name and set of kinds.
    found: RefCell<BTreeMap<(String, u32), Option<u32>>>,
    /// Cached sections of variables, and whether functions are tagged as callable.
    sections: RefCell<BTreeMap<String, Option<String>>>,
    callable: RefCell<BTreeMap<String, Option<u32>>>,
    /// Does this BTF record the sign of enums? Before 6.0 it does not, and the sign must be guessed from the values.
    records_enum_signs: OnceCell<bool>,
    /// The targets of forward declarations, by ID.
    forward_targets: RefCell<BTreeMap<u32, Option<u32>>>,
    /// The number of lookups of functions; after some, the sorted names of the kernel's functions with their IDs.
    function_lookups: Cell<u32>,
    functions: OnceCell<Vec<(u32, u32)>>,
    /// The same for raw tracepoints.
    raw_tracepoint_lookups: Cell<u32>,
    events: OnceCell<BTreeMap<String, u32>>,
    /// The entries used so far, if they are recorded.
    used: Option<RefCell<used_types::UsedTypes>>,
}

/// The BTF of the running kernel and of its modules.
const FOLDER: &str = "/sys/kernel/btf";
/// The name of the kernel's own.
const KERNEL: &str = "vmlinux";

fn unreadable(why: &str) -> Missing {
    Missing {
        what: format!("the kernel's types (BTF) cannot be read: {why}"),
        help: Some(
            "the kernel must be built with CONFIG_DEBUG_INFO_BTF=y and /sys be mounted; or name a file of raw BTF in RBT_BTF".into(),
        ),
    }
}

impl KernelTypes {
    /// Opens `RBT_BTF` or `BPFTRACE_BTF` (a raw BTF file), else the BTF of the running kernel.
    pub fn open() -> Result<Self, Missing> {
        for var in BTF_FILES {
            if let Some(path) = std::env::var_os(var).filter(|p| !p.is_empty()) {
                let base = Blob::open(Path::new(&path), None).map_err(|e| Missing {
                    what: format!("cannot read the types in ${var}: {e}"),
                    help: Some(format!(
                        "{var} names a file of raw BTF, such as a copy of /sys/kernel/btf/vmlinux; unset it to use this kernel's"
                    )),
                })?;
                return Ok(Self::new(base, Source::Nowhere));
            }
        }
        let folder = Path::new(FOLDER);
        let base = Blob::open(&folder.join(KERNEL), None).map_err(|e| unreadable(&e))?;
        Ok(Self::new(base, Source::Folder(folder.to_owned())))
    }

    /// What [`KernelTypes::open`] returns where `/sys` is not mounted, or the kernel was built without BTF.
    pub fn absent() -> Missing {
        let why = std::io::Error::from_raw_os_error(libc::ENOENT);
        unreadable(&format!("{FOLDER}/{KERNEL}: {}", reason(&why)))
    }

    /// Creates it from the BTF of a kernel, without modules.
    pub fn from_vec(bytes: Vec<u8>) -> Result<Self, String> {
        Ok(Self::new(Blob::from_vec(bytes, None)?, Source::Nowhere))
    }

    /// Creates it from the BTF of a kernel that was validated before, and modules whose BTF `read` returns on demand.
    pub fn kept(bytes: Vec<u8>, mut modules: Vec<String>, read: ReadModule) -> Result<Self, String> {
        modules.truncate(MODULES);
        Ok(Self::new(Blob::kept(bytes)?, Source::Given(modules, read)))
    }

    /// The BTF of the kernel itself, without that of modules.
    pub fn kernel_btf(&self) -> &[u8] {
        self.base.bytes()
    }

    fn new(base: Blob, source: Source) -> Self {
        Self {
            base,
            source,
            modules: OnceCell::new(),
            records_enum_signs: OnceCell::new(),
            enums: RefCell::default(),
            variants: RefCell::default(),
            found: RefCell::default(),
            sections: RefCell::default(),
            callable: RefCell::default(),
            forward_targets: RefCell::default(),
            function_lookups: Cell::default(),
            functions: OnceCell::new(),
            raw_tracepoint_lookups: Cell::default(),
            events: OnceCell::new(),
            used: None,
        }
    }

    /// Looks up a struct, union or enum by tag, or a typedef or base type by name. Accepts C's spellings of base types
    /// (`unsigned long`, `bool`).
    pub fn named(&self, kind: TypeName, name: &str) -> Option<Type> {
        let kinds = match kind {
            TypeName::Struct => Kind::Struct.bit(),
            TypeName::Union => Kind::Union.bit(),
            TypeName::Enum => ENUMS,
            TypeName::Plain => {
                if let Some(int) = c_int(name) {
                    return Some(int);
                }
                PLAIN
            }
        };
        self.ty(self.find(name, kinds)?, 0)
    }

    /// See [`TargetInfo::member`](crate::system::TargetInfo::member).
    pub fn member(&self, structure: &Struct, name: &str) -> Option<Field> {
        let mut budget = FIELDS;
        let mut found = None;
        self.each_member(structure.id, 0, 0, &mut budget, &mut |module, offset, member, flag| {
            if self.string(module, member[0]) != Some(name) {
                return Visit::Pass;
            }
            found = Some(self.field(module, offset, member, flag));
            Visit::Stop
        })?;
        found?
    }

    /// See [`TargetInfo::expand`](crate::system::TargetInfo::expand). Structs nested deeper than 16 stay [`Type::Struct`].
    pub fn expand(&self, structure: &Struct) -> Option<Record> {
        let mut budget = FIELDS;
        self.record(structure, 0, &mut budget)
    }

    /// See [`TargetInfo::enumerator`](crate::system::TargetInfo::enumerator).
    pub fn enumerator(&self, name: &str) -> Option<(Arc<Enum>, i64)> {
        let known = self.variants.borrow().get(name).copied();
        let found = known.unwrap_or_else(|| {
            let found = self.find_variant(name);
            self.variants.borrow_mut().insert(name.to_owned(), found);
            found
        });
        let (id, value) = found?;
        Some((self.enumeration(id)?, value))
    }

    /// Visits the names of all types of a kind, file by file, without unnamed ones.
    pub fn names(&self, kind: TypeName, each: &mut dyn FnMut(&str)) {
        let kinds = match kind {
            TypeName::Struct => Kind::Struct.bit(),
            TypeName::Union => Kind::Union.bit(),
            TypeName::Enum => ENUMS,
            TypeName::Plain => PLAIN,
        };
        for module in 0..=self.modules().len() as u32 {
            let Some(blob) = self.blob(module) else { continue };
            let wanted = blob.entries().filter(|(_, e)| kinds & e.kind.bit() != 0);
            let names = wanted.filter_map(|(_, e)| self.string(module, e.name));
            names.filter(|n| !n.is_empty()).for_each(&mut *each);
        }
    }

    /// Adds the BTF of a module.
    pub fn add_module(&mut self, name: &str, bytes: Vec<u8>) -> Result<(), String> {
        let blob = Blob::from_vec(bytes, Some(&self.base))?;
        let mut modules = self.modules.take().unwrap_or_default();
        modules.push(Module { name: name.to_owned(), blob: OnceCell::from(Some(blob)) });
        self.modules = OnceCell::from(modules);
        self.found.borrow_mut().clear();
        self.variants.borrow_mut().clear();
        Ok(())
    }

    /// Frees memory that only makes searches faster.
    pub fn forget_searches(&self) {
        self.base.forget_searches();
        let modules = self.modules.get().into_iter().flatten();
        modules.filter_map(|module| module.blob.get()?.as_ref()).for_each(Blob::forget_searches);
    }

    // ── Files, ids and strings

    fn modules(&self) -> &[Module] {
        self.modules.get_or_init(|| {
            let names = match &self.source {
                Source::Nowhere => Vec::new(),
                Source::Given(names, _) => names.clone(),
                Source::Folder(folder) => {
                    let mut names = module_names(folder);
                    names.truncate(MODULES);
                    names
                }
            };
            names.into_iter().map(|name| Module { name, blob: OnceCell::new() }).collect()
        })
    }

    fn module_name(&self, module: u32) -> String {
        match module {
            0 => "vmlinux".into(),
            n => self.modules().get(n as usize - 1).map_or_else(String::new, |m| m.name.clone()),
        }
    }

    /// The BTF file of a module; 0 is the kernel itself.
    fn blob(&self, module: u32) -> Option<&Blob> {
        if module == 0 {
            return Some(&self.base);
        }
        let module = self.modules().get(module as usize - 1)?;
        module
            .blob
            .get_or_init(|| {
                // A module that was just unloaded, or BTF of another kernel, has no types.
                match &self.source {
                    Source::Nowhere => None,
                    Source::Folder(folder) => Blob::open(&folder.join(&module.name), Some(&self.base)).ok(),
                    Source::Given(_, read) => Blob::from_vec(read(&module.name)?, Some(&self.base)).ok(),
                }
            })
            .as_ref()
    }

    /// Converts an ID in a module's file to a global ID.
    fn global_id(&self, module: u32, id: u32) -> u32 {
        if module == 0 || id < self.base.next_id() { id } else { module << MODULE_SHIFT | (id & ((1 << MODULE_SHIFT) - 1)) }
    }

    fn entry(&self, id: u32) -> Option<Entry<'_>> {
        self.note(id);
        self.entry_unrecorded(id)
    }

    /// Reads an entry without recording it.
    fn entry_unrecorded(&self, id: u32) -> Option<Entry<'_>> {
        self.blob(id >> MODULE_SHIFT)?.entry(id & ((1 << MODULE_SHIFT) - 1))
    }

    fn string(&self, module: u32, offset: u32) -> Option<&str> {
        self.base.string(offset).or_else(|| if module == 0 { None } else { self.blob(module)?.string(offset) })
    }

    /// Finds the first entry of these kinds with this name, in the kernel, then in its modules.
    fn find(&self, name: &str, kinds: u32) -> Option<u32> {
        let key = (name.to_owned(), kinds);
        if let Some(known) = self.found.borrow().get(&key) {
            return *known;
        }
        let id = self.search(name, kinds);
        if let Some(id) = id {
            self.note(id);
        }
        self.found.borrow_mut().insert(key, id);
        id
    }

    fn search(&self, name: &str, kinds: u32) -> Option<u32> {
        let shared = self.base.find_string(name);
        if let Some(id) = shared.iter().find_map(|s| self.base.find_named(*s, kinds)) {
            return Some(id);
        }
        (1..=self.modules().len() as u32).find_map(|module| {
            let blob = self.blob(module)?;
            let offsets = blob.find_string(name);
            let id = shared.iter().chain(&offsets).find_map(|s| blob.find_named(*s, kinds))?;
            Some(self.global_id(module, id))
        })
    }

    // ── Entries to types

    /// Converts an entry to a type. `depth` counts the references so far.
    fn ty(&self, id: u32, depth: u32) -> Option<Type> {
        if depth > DEPTH {
            return None;
        }
        let (id, _) = self.bare(id)?;
        if id == 0 {
            return Some(Type::Void);
        }
        let module = id >> MODULE_SHIFT;
        let entry = self.entry(id)?;
        Some(match entry.kind {
            Kind::Void | Kind::FuncProto => Type::Void,
            Kind::Int => self.int(module, &entry)?,
            Kind::Float => float(entry.size_or_type),
            Kind::Ptr => {
                let (to, user) = self.bare(self.global_id(module, entry.size_or_type))?;
                // A pointer is valid even if its target is missing or unusual.
                let to = self.ty(to, depth + 1).unwrap_or(Type::Void);
                to.ptr(if user { Space::User } else { Space::Kernel })
            }
            Kind::Array => {
                let (elem, n) = (self.global_id(module, entry.word(0)?), entry.word(2)?);
                let text = self.is_char(elem);
                let elem = self.ty(elem, depth + 1)?;
                if n > 0 && text { Type::Str(n) } else { Type::Array(Box::new(elem), n) }
            }
            Kind::Struct | Kind::Union | Kind::Fwd => {
                let (id, entry) = match self.forward(id, &entry) {
                    Some(full) => (full, self.entry(full)?),
                    None => (id, entry),
                };
                let forward = entry.kind == Kind::Fwd;
                Type::Struct(Arc::new(Struct {
                    name: self.string(id >> MODULE_SHIFT, entry.name).unwrap_or_default().to_owned(),
                    union: entry.kind == Kind::Union || (forward && entry.flag),
                    size: if forward { 0 } else { entry.size_or_type },
                    id,
                }))
            }
            Kind::Enum | Kind::Enum64 => Type::Enum(self.enumeration(id)?),
            Kind::Typedef
            | Kind::Volatile
            | Kind::Const
            | Kind::Restrict
            | Kind::Func
            | Kind::Var
            | Kind::Datasec
            | Kind::DeclTag
            | Kind::TypeTag => return None,
        })
    }

    /// Skips qualifiers and typedefs. Returns true if there was a `user` tag. (`percpu` and `rcu` tags are skipped: such a
    /// pointer is an offset in each CPU's area, or a plain pointer, both in kernel memory.)
    fn bare(&self, mut id: u32) -> Option<(u32, bool)> {
        let mut user = false;
        for _ in 0..4 * DEPTH {
            if id == 0 {
                return Some((0, user));
            }
            let entry = self.entry(id)?;
            if entry.kind.bit() & MODIFIER_KINDS == 0 {
                return Some((id, user));
            }
            user |= entry.kind == Kind::TypeTag && self.string(id >> MODULE_SHIFT, entry.name) == Some("user");
            id = self.global_id(id >> MODULE_SHIFT, entry.size_or_type);
        }
        None
    }

    /// Is it the type `char`, so that an array of it is text?
    fn is_char(&self, id: u32) -> bool {
        let entry = self.bare(id).and_then(|(id, _)| Some((id >> MODULE_SHIFT, self.entry(id).filter(|_| id != 0)?)));
        entry.is_some_and(|(module, e)| e.kind == Kind::Int && e.size_or_type == 1 && self.string(module, e.name) == Some("char"))
    }

    fn int(&self, module: u32, entry: &Entry<'_>) -> Option<Type> {
        // BTF_INT_SIGNED 1, BTF_INT_CHAR 2, BTF_INT_BOOL 4.
        let encoding = entry.word(0)? >> 24;
        if encoding & 4 != 0 && entry.size_or_type == 1 {
            return Some(Type::Bool);
        }
        // Kernels since 6.2 are built with -funsigned-char, and no compiler sets BTF_INT_CHAR, so the name determines whether
        // it is text.
        let text = encoding & 2 != 0 || self.string(module, entry.name) == Some("char");
        Some(match entry.size_or_type {
            1 => Type::Int(Int { bytes: 1, signed: text || encoding & 1 != 0 }),
            bytes @ (2 | 4 | 8) => Type::Int(Int { bytes: bytes as u8, signed: encoding & 1 != 0 }),
            other => raw_bytes(other),
        })
    }

    fn enumeration(&self, id: u32) -> Option<Arc<Enum>> {
        if let Some(known) = self.enums.borrow().get(&id) {
            return Some(known.clone());
        }
        let (module, entry) = (id >> MODULE_SHIFT, self.entry(id)?);
        let bytes = match entry.size_or_type {
            bytes @ (1 | 2 | 4 | 8) => bytes as u8,
            _ => return None,
        };
        let name = |offset| self.string(module, offset).unwrap_or_default().to_owned();
        let guess = !self.signs_known();
        let variants = variants(&entry, guess).map(|(offset, value)| (name(offset), value)).collect::<Vec<_>>();
        let signed = entry.flag || (guess && variants.iter().any(|(_, v)| *v < 0));
        let enumeration = Arc::new(Enum { name: name(entry.name), int: Int { bytes, signed }, variants });
        self.enums.borrow_mut().insert(id, enumeration.clone());
        Some(enumeration)
    }

    fn find_variant(&self, name: &str) -> Option<(u32, i64)> {
        let shared = self.base.find_string(name);
        (0..=self.modules().len() as u32).find_map(|module| {
            // Modules are read only if the kernel does not have the variant.
            let blob = self.blob(module)?;
            let mut names = if module == 0 { Vec::new() } else { blob.find_string(name) };
            names.extend(&shared);
            if names.is_empty() {
                return None;
            }
            let guess = !self.signs_known();
            blob.find_entry(ENUMS, |id, entry| {
                let (_, value) = variants(entry, guess).find(|(n, _)| names.contains(n))?;
                Some((self.global_id(module, id), value))
            })
        })
    }

    fn signs_known(&self) -> bool {
        *self.records_enum_signs.get_or_init(|| self.base.has_entry(ENUMS, |e| e.flag))
    }

    /// The definition of a forward declaration, if there is one.
    fn forward(&self, id: u32, entry: &Entry<'_>) -> Option<u32> {
        if entry.kind != Kind::Fwd {
            return None;
        }
        if let Some(known) = self.forward_targets.borrow().get(&id) {
            return *known;
        }
        let kind = if entry.flag { Kind::Union } else { Kind::Struct };
        let full = self.string(id >> MODULE_SHIFT, entry.name).and_then(|name| {
            let offsets = self.base.find_string(name);
            let here = offsets.iter().find_map(|s| self.base.find_named(*s, kind.bit()));
            // For the kernel's own declarations, search only modules that are already loaded: printing a type must not load all
            // of them.
            here.or_else(|| {
                let module = id >> MODULE_SHIFT;
                let blob = (module != 0).then(|| self.blob(module)).flatten()?;
                let id = offsets.iter().chain(&blob.find_string(name)).find_map(|s| blob.find_named(*s, kind.bit()))?;
                Some(self.global_id(module, id))
            })
        });
        self.forward_targets.borrow_mut().insert(id, full);
        full
    }

    // ── Members

    /// Visits named members, including those of anonymous members, until `visit` stops: (module, offset of the struct that
    /// contains the member, `struct btf_member`, its `kind_flag`).
    fn each_member(
        &self,
        id: u32,
        offset: u32,
        depth: u32,
        budget: &mut u32,
        visit: &mut dyn FnMut(u32, u32, [u32; 3], bool) -> Visit,
    ) -> Option<bool> {
        if depth > DEPTH {
            return None;
        }
        let (module, entry) = (id >> MODULE_SHIFT, self.entry(id)?);
        if entry.kind.bit() & STRUCTS == 0 {
            return None;
        }
        for (n, member) in entry.parts::<3>().enumerate() {
            *budget = budget.checked_sub(1)?;
            if self.string(module, member[0]).is_some_and(|n| !n.is_empty()) {
                match visit(module, offset, member, entry.flag) {
                    Visit::Pass => {}
                    Visit::Take => self.note_member(id, n),
                    Visit::Stop => {
                        self.note_member(id, n);
                        return Some(false);
                    }
                }
                continue;
            }
            self.note_member(id, n);
            let (inner, _) = self.bare(self.global_id(module, member[1]))?;
            if inner == 0 || self.entry(inner)?.kind.bit() & STRUCTS == 0 {
                continue; // an unnamed bit-field: padding
            }
            let bits = if entry.flag { member[2] & 0xff_ffff } else { member[2] };
            if !self.each_member(inner, offset.checked_add(bits / 8)?, depth + 1, budget, visit)? {
                return Some(false);
            }
        }
        Some(true)
    }

    /// With `kind_flag`, the upper byte of the offset is the width of a bit-field; without it, the type may be an int with
    /// fewer bits.
    fn field(&self, module: u32, base: u32, [name, type_id, offset]: [u32; 3], flag: bool) -> Option<Field> {
        let id = self.global_id(module, type_id);
        let ty = self.ty(id, 0)?;
        let (mut bit, mut width) = if flag { (offset & 0xff_ffff, offset >> 24) } else { (offset, 0) };
        if !flag {
            let (int, _) = self.bare(id)?;
            if let Some(entry) = self.entry(int).filter(|e| int != 0 && e.kind == Kind::Int) {
                let data = entry.word(0)?;
                let (skip, bits) = (data >> 16 & 0xff, data & 0xff);
                if skip != 0 || bits != entry.size_or_type.saturating_mul(8) {
                    (bit, width) = (bit.checked_add(skip)?, bits);
                }
            }
        }
        let name = self.string(module, name)?.to_owned();
        if width == 0 || !ty.is_scalar() {
            return Some(Field { name, offset: base.checked_add(bit / 8)?, bits: None, ty });
        }
        bit_field(name, base, bit, width, ty)
    }

    fn record(&self, structure: &Struct, depth: u32, budget: &mut u32) -> Option<Record> {
        let mut fields = Vec::new();
        self.each_member(structure.id, 0, 0, budget, &mut |module, offset, member, flag| {
            // A member that cannot be described is skipped.
            fields.extend(self.field(module, offset, member, flag));
            Visit::Take
        })?;
        for field in &mut fields {
            field.ty.deepen(&mut |inner| if depth + 1 < DEPTH { self.record(inner, depth + 1, budget) } else { None });
        }
        Some(Record { name: structure.name.clone(), size: structure.size, fields, variants: None })
    }
}

/// What to do with a visited member.
enum Visit {
    /// Ignore it.
    Pass,
    /// Accept it and continue.
    Take,
    /// Accept it and stop.
    Stop,
}

/// The modules with BTF in a directory such as `/sys/kernel/btf`, sorted.
pub(in crate::system) fn module_names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|n| n != "vmlinux").collect();
    names.sort();
    names
}

/// Finds an integer type by any of its C spellings: `unsigned long`, `long unsigned int`, `char`, `bool`, `__u32`, `int16_t`.
pub fn c_int(name: &str) -> Option<Type> {
    let fixed = name.strip_prefix("__").unwrap_or(name);
    let int = |bytes, signed| Some(Type::Int(Int { bytes, signed }));
    match fixed {
        "u8" | "uint8_t" => return int(1, false),
        "u16" | "uint16_t" | "be16" | "le16" => return int(2, false),
        "u32" | "uint32_t" | "be32" | "le32" => return int(4, false),
        "u64" | "uint64_t" | "be64" | "le64" => return int(8, false),
        "s8" | "int8_t" => return int(1, true),
        "s16" | "int16_t" => return int(2, true),
        "s32" | "int32_t" => return int(4, true),
        "s64" | "int64_t" => return int(8, true),
        _ => {}
    }
    if name == "bool" || name == "_Bool" {
        return Some(Type::Bool);
    }
    let (mut bytes, mut signed, mut longs) = (0, true, 0);
    for word in name.split_whitespace() {
        match word {
            "unsigned" => signed = false,
            "signed" => {}
            "long" => longs += 1,
            "int" if bytes == 0 => bytes = 4,
            "int" => {}
            "short" => bytes = 2,
            "char" => bytes = 1,
            _ => return None,
        }
    }
    match (bytes, longs) {
        (0, 0) if name.trim().is_empty() => None,
        (0, 0) => int(4, signed),
        (0 | 4, 1 | 2) => int(8, signed),
        (bytes, 0) => int(bytes, signed),
        _ => None,
    }
}

/// Names (offsets) and values. With `guess`, for BTF without the flag, values that look like small negative 32-bit numbers are
/// treated as such.
fn variants<'a>(entry: &Entry<'a>, guess: bool) -> impl Iterator<Item = (u32, i64)> + use<'a> {
    let (wide, signed) = (entry.kind == Kind::Enum64, entry.flag);
    let narrow = (!wide).then(|| entry.parts::<2>());
    let wide = wide.then(|| entry.parts::<3>());
    let narrow = narrow.into_iter().flatten().map(move |[name, value]| {
        (name, if signed || (guess && value > 0xffff_0000) { i64::from(value as i32) } else { i64::from(value) })
    });
    let wide = wide.into_iter().flatten().map(|[name, low, high]| (name, (u64::from(high) << 32 | u64::from(low)) as i64));
    narrow.chain(wide)
}

/// Makes a bit-field of `width` bits, `bit` bits after byte `base`. It is in its declared storage unit, unless the struct is
/// packed; then it is in the narrowest unit that contains it, from its first byte.
pub(in crate::system) fn bit_field(name: String, base: u32, bit: u32, width: u32, ty: Type) -> Option<Field> {
    let unit = ty.size().saturating_mul(8).max(8);
    let (start, ty) = if (bit % unit).checked_add(width)? <= unit {
        (bit - bit % unit, ty)
    } else {
        let need = (bit % 8).checked_add(width)?.div_ceil(8).next_power_of_two();
        let signed = ty.as_int().is_some_and(|i| i.signed);
        (bit - bit % 8, Type::Int(Int { bytes: u8::try_from(need).ok().filter(|n| *n <= 8)?, signed }))
    };
    let bits = Some((u8::try_from(bit - start).ok()?, u8::try_from(width).ok()?));
    Some(Field { name, offset: base.checked_add(start / 8)?, bits, ty })
}

/// A type that no integer can hold: a 128-bit integer as two of 64 bits, others as bytes.
pub(in crate::system) fn raw_bytes(size: u32) -> Type {
    match size {
        bytes @ (1 | 2 | 4 | 8) => Type::uint(bytes as u8),
        16 => Type::Array(Box::new(Type::U64), 2),
        other => Type::Array(Box::new(Type::uint(1)), other),
    }
}

/// A floating-point type, or bytes for types that rbt cannot print (`long double`).
pub(in crate::system) fn float(size: u32) -> Type {
    Type::float(size).unwrap_or_else(|| raw_bytes(size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::kernel_types::btf::Writer;

    /// Makes types: int, char, and a `struct s` that `build` defines with their IDs.
    fn built(build: impl FnOnce(&mut Writer, u32, u32)) -> KernelTypes {
        let mut w = Writer::new(None);
        let int = w.add(Kind::Int, false, "int", 0, 4, &[1 << 24 | 32]);
        let char = w.add(Kind::Int, false, "char", 0, 1, &[8]);
        build(&mut w, int, char);
        KernelTypes::from_vec(w.finish()).unwrap()
    }

    fn a_struct(types: &KernelTypes, name: &str) -> Arc<Struct> {
        match types.named(TypeName::Struct, name) {
            Some(Type::Struct(s)) => s,
            other => panic!("{name}: {other:?}"),
        }
    }

    fn member(types: &KernelTypes, name: &str) -> Field {
        types.member(&a_struct(types, "s"), name).unwrap_or_else(|| panic!("no {name}"))
    }

    #[test]
    fn every_kind_has_its_type() {
        let types = built(|w, int, char| {
            let tag = w.add(Kind::TypeTag, false, "user", 0, char, &[]);
            let user = w.add(Kind::Ptr, false, "", 0, tag, &[]);
            let konst = w.add(Kind::Const, false, "", 0, char, &[]);
            let text = w.add(Kind::Ptr, false, "", 0, konst, &[]);
            let name = w.add(Kind::Array, false, "", 0, 0, &[char, int, 16]);
            let flexible = w.add(Kind::Array, false, "", 0, 0, &[char, int, 0]);
            let matrix = w.add(Kind::Array, false, "", 0, 0, &[name, int, 3]);
            let wide = w.add(Kind::Int, false, "__int128", 0, 16, &[1 << 24 | 128]);
            let proto = w.add(Kind::FuncProto, false, "", 0, int, &[]);
            let call = w.add(Kind::Ptr, false, "", 0, proto, &[]);
            let forward = w.add(Kind::Fwd, false, "later", 0, 0, &[]);
            let later = w.add(Kind::Ptr, false, "", 0, forward, &[]);
            let opaque = w.add(Kind::Fwd, true, "never", 0, 0, &[]);
            let never = w.add(Kind::Ptr, false, "", 0, opaque, &[]);
            let (red, blue) = (w.string("RED"), w.string("BLUE"));
            let color = w.add(Kind::Enum, true, "color", 2, 4, &[red, 1, blue, -1i32 as u32]);
            let big = w.string("BIG");
            let huge = w.add(Kind::Enum64, false, "huge", 1, 8, &[big, 5, 1]);
            let double = w.add(Kind::Float, false, "double", 0, 8, &[]);
            let mut tail = Vec::new();
            let members = [
                ("user", user),
                ("text", text),
                ("name", name),
                ("flexible", flexible),
                ("matrix", matrix),
                ("wide", wide),
                ("call", call),
                ("later", later),
                ("never", never),
                ("color", color),
                ("huge", huge),
                ("double", double),
            ];
            for (i, (n, id)) in members.into_iter().enumerate() {
                tail.extend([w.string(n), id, i as u32 * 64]);
            }
            w.add(Kind::Struct, false, "s", members.len() as u32, 96, &tail);
            w.add(Kind::Struct, false, "later", 0, 8, &[]);
        });
        let ty = |name: &str| member(&types, name).ty;
        assert_eq!(ty("user"), Type::int(1).ptr(Space::User));
        assert_eq!(ty("text"), Type::int(1).ptr(Space::Kernel));
        assert_eq!(ty("name"), Type::Str(16));
        assert_eq!(ty("flexible"), Type::Array(Box::new(Type::int(1)), 0));
        assert_eq!(ty("matrix"), Type::Array(Box::new(Type::Str(16)), 3));
        assert_eq!(ty("wide"), Type::Array(Box::new(Type::U64), 2));
        assert_eq!(ty("call"), Type::Void.ptr(Space::Kernel));
        assert_eq!(ty("later"), Type::Struct(a_struct(&types, "later")).ptr(Space::Kernel));
        assert!(matches!(ty("never"), Type::Ptr(to, _) if matches!(&*to, Type::Struct(s) if s.union && s.size == 0 && s.name == "never")));
        assert!(matches!(ty("color"), Type::Enum(e) if e.int.signed && e.variants[1] == ("BLUE".into(), -1)));
        assert_eq!(types.enumerator("BIG").unwrap().1, 0x1_0000_0005);
        assert_eq!(Some(ty("double")), Type::float(8));
        assert_eq!(member(&types, "color").offset, 72);
    }

    #[test]
    fn bit_fields_of_both_forms() {
        let new = built(|w, int, char| {
            let (a, b, c, d) = (w.string("a"), w.string("b"), w.string("c"), w.string("d"));
            // c is at bits 12..20 of a packed struct; d is an entire int.
            let tail = [a, int, 3 << 24 | 5, b, char, 2 << 24 | 30, c, char, 8 << 24 | 12, d, int, 64];
            w.add(Kind::Struct, true, "s", 4, 12, &tail);
        });
        assert_eq!((member(&new, "a").offset, member(&new, "a").bits), (0, Some((5, 3))));
        assert_eq!((member(&new, "b").offset, member(&new, "b").bits), (3, Some((6, 2))));
        let c = member(&new, "c");
        assert_eq!((c.offset, c.bits, c.ty), (1, Some((4, 8)), Type::int(2)));
        assert_eq!((member(&new, "d").offset, member(&new, "d").bits), (8, None));
        let old = built(|w, int, _| {
            let three = w.add(Kind::Int, false, "unsigned int", 0, 4, &[2 << 16 | 3]);
            let (a, b) = (w.string("a"), w.string("b"));
            w.add(Kind::Struct, false, "s", 2, 8, &[a, int, 0, b, three, 32]);
        });
        assert_eq!(member(&old, "a").bits, None);
        assert_eq!((member(&old, "b").offset, member(&old, "b").bits), (4, Some((2, 3))));
    }

    #[test]
    fn cycles_end() {
        let types = built(|w, int, _| {
            let typedef = w.add(Kind::Typedef, false, "turn", 0, 3, &[]);
            let pointer = w.add(Kind::Ptr, false, "", 0, 4, &[]);
            let array = w.add(Kind::Array, false, "", 0, 0, &[5, 5, 2]);
            let (a, b) = (w.string("a"), w.string("b"));
            let tail = [a, pointer, 0, b, array, 0, 0, 6, 0, 0, 6, 0, 0, 7, 0, a, int, 64];
            let s = w.add(Kind::Struct, false, "s", 6, 8, &tail);
            assert_eq!((typedef, pointer, array, s), (3, 4, 5, 6));
            w.add(Kind::Struct, false, "inside", 2, 8, &[a, 7, 0, b, 7, 0]);
        });
        assert_eq!(types.named(TypeName::Plain, "turn"), None);
        let s = a_struct(&types, "s");
        assert!(types.member(&s, "a").is_some());
        assert_eq!((types.member(&s, "b"), types.member(&s, "c"), types.expand(&s)), (None, None, None));
        // A struct that contains itself twice would have 2^16 fields.
        let inside = types.expand(&a_struct(&types, "inside")).unwrap();
        assert_eq!(inside.fields.len(), 2);
    }

    #[test]
    fn modules_continue_the_ids_of_the_kernel() {
        let mut w = Writer::new(None);
        let int = w.add(Kind::Int, false, "int", 0, 4, &[1 << 24 | 32]);
        let a = w.string("a");
        w.add(Kind::Struct, false, "s", 1, 4, &[a, int, 0]);
        let bytes = w.finish();
        let base = Blob::from_vec(bytes.clone(), None).unwrap();
        let module = |name: &str| {
            let mut m = Writer::new(Some(&base));
            let pointer = m.add(Kind::Ptr, false, "", 0, 2, &[]);
            let own = m.string("own");
            let id = m.add(Kind::Struct, false, name, 2, 16, &[a, pointer, 0, own, int, 64]);
            let variant = m.string("IN_MODULE");
            m.add(Kind::Enum, false, "e", 1, 4, &[variant, id]);
            let proto = m.add(Kind::FuncProto, false, "", 2, 0, &[0, 0, a, pointer]);
            let pointer = m.add(Kind::Ptr, false, "", 0, proto, &[]);
            m.add(Kind::Typedef, false, "btf_trace_event", 0, pointer, &[]);
            m.finish()
        };
        let mut types = KernelTypes::from_vec(bytes).unwrap();
        assert_eq!(types.named(TypeName::Struct, "second"), None);
        types.add_module("one", module("first")).unwrap();
        types.add_module("two", module("second")).unwrap();
        let second = a_struct(&types, "second");
        assert_eq!(second.id >> MODULE_SHIFT, 2);
        assert_eq!(types.member(&second, "a").unwrap().ty, Type::Struct(a_struct(&types, "s")).ptr(Space::Kernel));
        assert_eq!(types.member(&second, "own").unwrap().offset, 8);
        assert_eq!(types.enumerator("IN_MODULE").unwrap().1, 4);
        let names = types.raw_tracepoints();
        assert_eq!(names, [("one".into(), "event".into()), ("two".into(), "event".into())] as [(String, String); 2]);
        let event = types.raw_tracepoint("event").unwrap();
        assert_eq!((event.module.as_str(), event.params[0].0.as_str()), ("one", "a"));
    }

    #[test]
    fn spellings_of_c() {
        for (name, ty) in [
            ("int", Type::int(4)),
            ("unsigned", Type::uint(4)),
            ("long unsigned int", Type::uint(8)),
            ("unsigned long long", Type::uint(8)),
            ("short int", Type::int(2)),
            ("char", Type::int(1)),
            ("unsigned char", Type::uint(1)),
            ("__u16", Type::uint(2)),
            ("bool", Type::Bool),
        ] {
            assert_eq!(c_int(name), Some(ty), "{name}");
        }
        for name in ["", "pid_t", "unsigned pid_t", "double"] {
            assert_eq!(c_int(name), None, "{name}");
        }
    }

    /// Data that are truncated at any length, or with any byte changed, may give other answers but cause no panic.
    #[test]
    fn invalid_data_does_not_panic() {
        let whole = {
            let mut w = Writer::new(None);
            let int = w.add(Kind::Int, false, "int", 0, 4, &[1 << 24 | 32]);
            let pointer = w.add(Kind::Ptr, false, "", 0, 5, &[]);
            let array = w.add(Kind::Array, false, "", 0, 0, &[int, int, 4]);
            let (a, b, c) = (w.string("a"), w.string("b"), w.string("VARIANT"));
            let inner = w.add(Kind::Union, false, "", 1, 16, &[b, array, 0]);
            w.add(Kind::Struct, true, "s", 3, 32, &[a, pointer, 0, 0, inner, 64, c, int, 3 << 24 | 192]);
            w.add(Kind::Enum, false, "e", 1, 4, &[c, 1]);
            let proto = w.add(Kind::FuncProto, false, "", 2, 0, &[0, 0, a, pointer]);
            let to = w.add(Kind::Ptr, false, "", 0, proto, &[]);
            w.add(Kind::Typedef, false, "btf_trace_t", 0, to, &[]);
            w.add(Kind::Func, false, "__traceiter_t", 1, proto, &[]);
            w.finish()
        };
        let ask = |bytes: Vec<u8>| {
            let Ok(types) = KernelTypes::from_vec(bytes) else { return false };
            for kind in [TypeName::Struct, TypeName::Enum, TypeName::Plain] {
                let found = types.named(kind, "s");
                if let Some(Type::Struct(s)) = found {
                    types.member(&s, "b");
                    types.expand(&s);
                }
            }
            types.enumerator("VARIANT");
            types.raw_tracepoint("t");
            types.raw_tracepoints();
            types.function(None, "__traceiter_t");
            true
        };
        assert!(ask(whole.clone()));
        for length in 0..whole.len() {
            assert!(!ask(whole[..length].to_vec()), "cut to {length} bytes it was still taken");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 3, 5, 0x0d, 0x7f, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                ask(bytes);
            }
        }
    }
}
