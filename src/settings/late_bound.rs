//! Arguments of a run that its code does not contain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// The capacity of a text argument, with its NUL.
pub const MAX_ARGUMENT_TEXT: u32 = 128;

/// An argument that a script uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Argument {
    /// A named option.
    Option(String),
    /// `$n` as a number.
    Number(u32),
    /// `$n` as text.
    Text(u32),
    /// `$#`
    Count,
}

/// The arguments of a run that its code does not contain, because the code is compiled before they are known (`rbt build`). It
/// reads them from memory that the loader fills.
#[derive(Clone, Debug, Default)]
pub struct LateBound {
    /// The traced processes: `-p`, `-c`, `--follow` and `--cgroup`.
    pub target: bool,
    /// The names of sites.
    pub names: bool,
    /// Offsets in the memory of the arguments.
    places: BTreeMap<Argument, u32>,
    size: u32,
    used: Arc<Mutex<BTreeSet<Argument>>>,
}

impl LateBound {
    /// With arguments of the script, each with its size in bytes. If `target` is set, the names of sites are late-bound, too.
    pub fn new(target: bool, arguments: impl IntoIterator<Item = (Argument, u32)>) -> Self {
        let mut all = Self { target, names: target, ..Self::default() };
        for (argument, size) in arguments {
            all.places.insert(argument, all.size);
            all.size += size.next_multiple_of(8);
        }
        all
    }

    /// With the names of sites in the code, whose types are as long as these names.
    pub fn with_known_names(self) -> Self {
        Self { names: false, ..self }
    }

    /// Is this an argument that the code does not contain?
    pub fn contains(&self, argument: &Argument) -> bool {
        self.places.contains_key(argument)
    }

    /// The offset of such an argument, which the code will use.
    pub fn use_place(&self, argument: &Argument) -> Option<u32> {
        let place = self.places.get(argument).copied()?;
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(argument.clone());
        Some(place)
    }

    /// The argument at an offset.
    pub fn argument_at(&self, place: u32) -> Option<&Argument> {
        self.places.iter().find(|(_, at)| **at == place).map(|(argument, _)| argument)
    }

    /// The arguments that were used, with their offsets.
    pub fn used(&self) -> Vec<(Argument, u32)> {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.iter().filter_map(|argument| Some((argument.clone(), *self.places.get(argument)?))).collect()
    }

    /// Bytes of all arguments.
    pub fn size(&self) -> u32 {
        self.size
    }
}
