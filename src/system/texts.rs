//! Where languages keep text that has a length: Go's `string`, Rust's `&str` and `String`, C++'s `std::string`.
//!
//! Debug information tells the members of these structs like those of any other. What their names are is up to each language's
//! library, and its version.

use std::sync::Arc;

use super::System;
use crate::types::{Struct, Type};

/// Where a struct has the address of its bytes and how many there are: two words, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPlace {
    /// The address.
    pub data: u32,
    /// The number.
    pub length: u32,
}

/// Structs by their names (up to `*`), the members that lead to the two words, older versions' after newer ones'.
const PLACES: &[(&[&str], &[&str], &[&str])] = &[
    (&["string"], &["str"], &["len"]),
    (&["[]uint8"], &["array"], &["len"]),
    (
        &[
            "&str",
            "&mut str",
            "&[u8]",
            "&mut [u8]",
            "&std::path::Path",
            "&std::ffi::os_str::OsStr",
            "alloc::boxed::Box<str*",
            "alloc::boxed::Box<[u8]*",
        ],
        &["data_ptr"],
        &["length"],
    ),
    (&["Vec<u8>", "Vec<u8,*"], VEC, &["len"]),
    (&["String"], &["vec"], &["vec"]),
    (&["OsString", "PathBuf", "Buf"], &["inner"], &["inner"]),
    (&["basic_string<char>", "basic_string<char,*"], &["_M_dataplus._M_p"], &["_M_string_length"]),
    (&["basic_string_view<char>", "basic_string_view<char,*"], &["_M_str", "__data_", "__data"], &["_M_len", "__size_", "__size"]),
];

/// The parts of Rust's `Cow`, which both have their words in the same place.
const BORROWED_OR_OWNED: &str = "Cow<";
const VEC: &[&str] = &["buf.inner.ptr.pointer.pointer", "buf.ptr.pointer.pointer", "buf.ptr.pointer"];

/// How many of them may be in each other.
const DEPTH: u32 = 6;

/// The struct that a value of this type is, or points to.
pub fn structure(ty: &Type) -> Option<&Arc<Struct>> {
    let ty = if let Type::Ptr(to, _) = ty { to } else { ty };
    if let Type::Struct(of) = ty { Some(of) } else { None }
}

/// Where a struct has its text; none where it is no struct of text.
pub fn place(sys: &dyn System, of: &Struct) -> Option<TextPlace> {
    within(sys, of, 0)
}

fn within(sys: &dyn System, of: &Struct, depth: u32) -> Option<TextPlace> {
    if depth > DEPTH {
        return None;
    }
    if of.name.starts_with(BORROWED_OR_OWNED) {
        let [a, b] = ["Borrowed.__0", "Owned.__0"].map(|path| {
            let (at, ty) = member(sys, of, path)?;
            inner(sys, at, &ty, depth)
        });
        return a.filter(|a| Some(*a) == b);
    }
    let called = |name: &str| name.strip_suffix('*').map_or(of.name == name, |start| of.name.starts_with(start));
    let (_, data, length) = PLACES.iter().find(|(names, ..)| names.iter().any(|name| called(name)))?;
    let (data, ty) = data.iter().find_map(|path| member(sys, of, path))?;
    if matches!(ty, Type::Ptr(..)) {
        let (length, _) = length.iter().find_map(|path| member(sys, of, path)).filter(|(_, ty)| ty.size() == 8)?;
        return Some(TextPlace { data, length });
    }
    inner(sys, data, &ty, depth)
}

fn inner(sys: &dyn System, at: u32, ty: &Type, depth: u32) -> Option<TextPlace> {
    let Type::Struct(of) = ty else { return None };
    let place = within(sys, of, depth + 1)?;
    Some(TextPlace { data: place.data.checked_add(at)?, length: place.length.checked_add(at)? })
}

/// A member of members: bytes from the start, and its type.
fn member(sys: &dyn System, of: &Struct, path: &str) -> Option<(u32, Type)> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let field = sys.member(of, first)?;
    match (rest, &field.ty) {
        (None, _) => Some((field.offset, field.ty)),
        (Some(rest), Type::Struct(of)) => {
            let (at, ty) = member(sys, of, rest)?;
            Some((field.offset.checked_add(at)?, ty))
        }
        (Some(_), _) => None,
    }
}
