//! BPF objects that a script imports, as the stages exchange them: their bytes, and the functions that the script can call.
//! `system/bpf_object.rs` reads them, and `emit/link.rs` links them.

use std::fmt;

use crate::types::Int;

/// An imported object.
#[derive(Clone, PartialEq)]
pub struct Object {
    /// The path, as messages show it.
    pub name: String,
    /// The ELF file.
    pub bytes: Vec<u8>,
    /// Identifies the contents.
    pub digest: u128,
    /// Its functions with global linkage.
    pub functions: Vec<Function>,
}

/// Without its bytes: the text identifies a script in the cache, and the digest stands for them.
impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object").field("name", &self.name).field("digest", &self.digest).finish_non_exhaustive()
    }
}

/// A function of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its symbol.
    pub name: String,
    /// Its parameters and result, or why a script cannot call it.
    pub signature: Result<Signature, String>,
}

/// The types of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// Names and types of its parameters, at most [`MAX_PARAMETERS`].
    pub params: Vec<(String, CType)>,
    /// The type of its result.
    pub result: CType,
}

/// The number of parameters that BPF passes in registers; it has no others.
pub const MAX_PARAMETERS: usize = 5;

/// A type in C, without qualifiers and typedefs.
#[derive(Clone, Debug, PartialEq)]
pub enum CType {
    /// No value, or unknown memory.
    Void,
    /// `bool`
    Bool,
    /// An integer or a character.
    Int(Int),
    /// An enumeration of this name.
    Enum(String, Int),
    /// A structure or union of this name, which may be empty.
    Struct {
        /// Its tag.
        name: String,
        /// Is it a union?
        union: bool,
    },
    /// An array of a number of elements.
    Array(Box<CType>, u32),
    /// A pointer.
    Pointer(Box<CType>),
}
