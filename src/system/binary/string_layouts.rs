//! The layout of string types with a length: Go's `string`, Rust's `&str` and `String`, C++'s `std::string`.
//!
//! Debug information describes the members of these structs like those of any other. Their names depend on the library of each
//! language and its version.

use std::sync::Arc;

use crate::system::TargetInfo;
use crate::types::{Struct, Type};

/// Where a struct has the address and the length of its text: two words, as offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StringLayout {
    /// Offset of the address.
    pub data: u32,
    /// Offset of the length.
    pub length: u32,
    /// Size of the reference counts before the text, in bytes.
    pub header: u32,
    /// Number of bytes at the end of the length that are not text: a NUL.
    pub tail: u32,
    /// Short text is in the struct itself, as in libc++: see `LIBCXX`.
    pub short: bool,
}

impl StringLayout {
    const fn plain(data: u32, length: u32) -> Self {
        Self { data, length, header: 0, tail: 0, short: false }
    }

    /// Encodes it for [`StringLayout::from_numbers`].
    pub fn numbers(self) -> [i64; 5] {
        [self.data.into(), self.length.into(), self.header.into(), self.tail.into(), self.short.into()]
    }

    /// Decodes the result of [`StringLayout::numbers`].
    pub fn from_numbers(numbers: &[i64]) -> Option<Self> {
        let [data, length, header, tail, short] = *numbers else { return None };
        Some(Self { data: data as u32, length: length as u32, header: header as u32, tail: tail as u32, short: short != 0 })
    }
}

/// The string of libc++. The lowest bit of the first byte distinguishes long text from short text. Short text follows this
/// byte, whose other bits are its length. For long text, the second word is the length and the third the address.
const LIBCXX: StringLayout = StringLayout { short: true, ..StringLayout::plain(16, 8) };
/// A member that identifies this string, and the size of the string.
const LIBCXX_MEMBERS: (&[&str], u32) = (&["__r_", "__rep_"], 24);

/// Structs by name (up to `*`), and the paths to the two members, newer library versions first.
const MEMBER_PATHS: &[(&[&str], &[&str], &[&str])] = &[
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
            "alloc::boxed::Box<std::path::Path*",
            "alloc::boxed::Box<std::ffi::os_str::OsStr*",
        ],
        &["data_ptr"],
        &["length"],
    ),
    (C_STR, &["data_ptr"], &["length"]),
    (C_STRING, &["inner"], &["inner"]),
    (
        &["Rc<str*", "Arc<str*", "Rc<[u8]*", "Arc<[u8]*", "Rc<std::path::Path*", "Arc<std::path::Path*"],
        &["ptr.pointer.data_ptr"],
        &["ptr.pointer.length"],
    ),
    (&["Vec<u8>", "Vec<u8,*"], VEC, &["len"]),
    (&["String"], &["vec"], &["vec"]),
    (&["OsString", "PathBuf", "Buf"], &["inner"], &["inner"]),
    (&["basic_string<char>", "basic_string<char,*"], &["_M_dataplus._M_p"], &["_M_string_length"]),
    (&["basic_string_view<char>", "basic_string_view<char,*"], &["_M_str", "__data_", "__data"], &["_M_len", "__size_", "__size"]),
];

/// Structs whose length includes a NUL.
const C_STR: &[&str] = &["&core::ffi::c_str::CStr", "&std::ffi::c_str::CStr", "alloc::boxed::Box<core::ffi::c_str::CStr*"];
const C_STRING: &[&str] = &["CString"];

/// Rust's `Cow`, both of whose variants have these words in the same place.
const BORROWED_OR_OWNED: &str = "Cow<";
const VEC: &[&str] = &["buf.inner.ptr.pointer.pointer", "buf.ptr.pointer.pointer", "buf.ptr.pointer"];

/// Limit for the nesting of these structs.
const DEPTH: u32 = 6;

/// The struct that a value of this type is or points to.
pub fn structure(ty: &Type) -> Option<&Arc<Struct>> {
    let ty = if let Type::Ptr(to, _) = ty { to } else { ty };
    if let Type::Struct(structure) = ty { Some(structure) } else { None }
}

/// Is a value of this type text in a struct, or its address?
pub fn is_text(sys: &dyn TargetInfo, ty: &Type) -> bool {
    structure(ty).is_some_and(|structure| string_layout(sys, structure).is_some())
}

/// The remedy for a type of which only the name is known.
pub const ONLY_DECLARED: &str = "the debug information has only its name; Clang describes it with -fstandalone-debug";

/// Is it a string of C++ of which the debug information has only the name? Clang describes the classes of the library only with
/// `-fstandalone-debug`.
pub fn is_only_declared(structure: &Struct) -> bool {
    structure.size == 0 && structure.name.starts_with("basic_string")
}

/// Returns the layout of the text in a struct; `None` if it is not a string type.
pub fn string_layout(sys: &dyn TargetInfo, structure: &Struct) -> Option<StringLayout> {
    within(sys, structure, 0)
}

fn within(sys: &dyn TargetInfo, structure: &Struct, depth: u32) -> Option<StringLayout> {
    if depth > DEPTH {
        return None;
    }
    if structure.name.starts_with(BORROWED_OR_OWNED) {
        let [a, b] = ["Borrowed.__0", "Owned.__0"].map(|path| {
            let (at, ty) = member(sys, structure, path)?;
            inner(sys, at, &ty, depth)
        });
        return a.filter(|a| Some(*a) == b);
    }
    let called = |name: &str| name.strip_suffix('*').map_or(structure.name == name, |start| structure.name.starts_with(start));
    let (names, data, length) = MEMBER_PATHS.iter().find(|(names, ..)| names.iter().any(|name| called(name)))?;
    let Some((data, ty)) = data.iter().find_map(|path| member(sys, structure, path)) else {
        let (members, size) = LIBCXX_MEMBERS;
        let theirs = called("basic_string<char*") && structure.size == size && members.iter().any(|m| sys.member(structure, m).is_some());
        return theirs.then_some(LIBCXX);
    };
    let place = if let Type::Ptr(to, _) = &ty {
        let (length, _) = length.iter().find_map(|path| member(sys, structure, path)).filter(|(_, ty)| ty.size() == 8)?;
        StringLayout { header: header(sys, to), ..StringLayout::plain(data, length) }
    } else {
        inner(sys, data, &ty, depth)?
    };
    Some(StringLayout { tail: u32::from(*names == C_STR || *names == C_STRING), ..place })
}

/// Size of the reference counts before the text in `Rc` and `Arc`, in bytes.
fn header(sys: &dyn TargetInfo, to: &Type) -> u32 {
    let Type::Struct(counted) = to else { return 0 };
    ["value", "data"].iter().find_map(|name| sys.member(counted, name)).map_or(0, |text| text.offset)
}

fn inner(sys: &dyn TargetInfo, offset: u32, ty: &Type, depth: u32) -> Option<StringLayout> {
    let Type::Struct(structure) = ty else { return None };
    let place = within(sys, structure, depth + 1)?;
    // Short text is only supported at the start of the outer struct.
    let fits = !place.short || offset == 0;
    fits.then_some(StringLayout { data: place.data.checked_add(offset)?, length: place.length.checked_add(offset)?, ..place })
}

/// Follows a path of members: the offset in bytes, and the type.
fn member(sys: &dyn TargetInfo, structure: &Struct, path: &str) -> Option<(u32, Type)> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let field = sys.member(structure, first)?;
    match (rest, &field.ty) {
        (None, _) => Some((field.offset, field.ty)),
        (Some(rest), Type::Struct(structure)) => {
            let (at, ty) = member(sys, structure, rest)?;
            Some((field.offset.checked_add(at)?, ty))
        }
        (Some(_), _) => None,
    }
}
