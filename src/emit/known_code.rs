//! The code of rbt's own functions, from earlier compilations. `subroutines.cpp` describes its contents and its use.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::c_void;
use std::slice;

use serde::{Deserialize, Serialize};

/// The digest of a function.
type Key = [u8; 16];

/// Above this number of functions, only those of the last compilation remain.
const MAX_FUNCTIONS: usize = 1000;

/// Code by function.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct KnownCode {
    functions: BTreeMap<Key, Vec<u8>>,
    /// Functions of the current compilation whose code was known.
    #[serde(skip)]
    used: BTreeSet<Key>,
    /// The others; they become known if the compilation succeeds.
    #[serde(skip)]
    new: BTreeMap<Key, Vec<u8>>,
    #[serde(skip)]
    has_grown: bool,
    /// Whole modules, if they are kept.
    #[serde(skip)]
    modules: Option<HashMap<ModuleKey, ModuleResult>>,
}

/// A module as bitcode, and what else determines its code.
pub(super) type ModuleKey = (Vec<u8>, String);

/// The object of a module, or the messages of LLVM.
pub(super) type ModuleResult = Result<Vec<u8>, Vec<String>>;

/// `KnownCode` of `subroutines.h`.
#[repr(C)]
pub(super) struct Callbacks {
    context: *mut c_void,
    find: unsafe extern "C" fn(*mut c_void, *const Key, *mut *const u8, *mut usize) -> bool,
    keep: unsafe extern "C" fn(*mut c_void, *const Key, *const u8, usize),
}

impl KnownCode {
    /// Keeps the results of whole modules, too. They stay in memory, for who compiles one script for many targets.
    pub fn with_modules() -> Self {
        Self { modules: Some(HashMap::new()), ..Self::default() }
    }

    /// Are the results of whole modules kept?
    pub(super) fn has_modules(&self) -> bool {
        self.modules.is_some()
    }

    /// What LLVM made of a module.
    pub(super) fn module(&self, key: &ModuleKey) -> Option<&ModuleResult> {
        self.modules.as_ref()?.get(key)
    }

    /// Keeps what LLVM made of a module.
    pub(super) fn keep_module(&mut self, key: ModuleKey, result: ModuleResult) {
        if let Some(modules) = &mut self.modules {
            modules.insert(key, result);
        }
    }

    /// Has it code that it had not when it was created?
    pub fn has_grown(&self) -> bool {
        self.has_grown
    }

    /// The functions for C++, which may use them while the result exists.
    pub(super) fn callbacks(&mut self) -> Callbacks {
        Callbacks { context: std::ptr::from_mut(self).cast(), find, keep }
    }

    /// Forgets what the current compilation has found so far.
    pub(super) fn start(&mut self) {
        self.used.clear();
        self.new.clear();
    }

    /// Keeps the new code of a compilation that succeeded.
    pub(super) fn finish(&mut self) {
        self.has_grown |= !self.new.is_empty();
        if self.functions.len() + self.new.len() > MAX_FUNCTIONS {
            let used = &self.used;
            self.functions.retain(|key, _| used.contains(key));
        }
        self.functions.append(&mut self.new);
    }
}

/// Finds the code of a function; false if it is not known.
///
/// # Safety
/// The first argument is from [`KnownCode::callbacks`], and the others point to memory of the caller.
unsafe extern "C" fn find(context: *mut c_void, key: *const Key, bytes: *mut *const u8, size: *mut usize) -> bool {
    // SAFETY: see above; the code stays in place until the compilation ends, because nothing is removed before
    unsafe {
        let known = &mut *context.cast::<KnownCode>();
        let Some(code) = known.functions.get(&*key) else { return false };
        known.used.insert(*key);
        (*bytes, *size) = (code.as_ptr(), code.len());
    }
    true
}

/// Keeps the code of a function that was not known.
///
/// # Safety
/// As for [`find`]; `bytes` has `size` bytes.
unsafe extern "C" fn keep(context: *mut c_void, key: *const Key, bytes: *const u8, size: usize) {
    // SAFETY: see above
    unsafe {
        let known = &mut *context.cast::<KnownCode>();
        known.new.insert(*key, slice::from_raw_parts(bytes, size).to_vec());
    }
}
