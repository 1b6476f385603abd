//! Types in the syntax of the debug information, for `-lv`.

use std::fmt::Write;

use gimli::{DW_AT_count, DW_AT_type, DW_AT_upper_bound};

use super::{BinaryTypes, DEPTH, Die, Entry};

/// Qualifiers of a type, and their keywords.
const QUALIFIERS: [(gimli::DwTag, &str); 4] = [
    (gimli::DW_TAG_const_type, "const"),
    (gimli::DW_TAG_volatile_type, "volatile"),
    (gimli::DW_TAG_restrict_type, "restrict"),
    (gimli::DW_TAG_atomic_type, "_Atomic"),
];
/// Pointers and references, and their signs.
const LEADING: [(gimli::DwTag, &str); 3] =
    [(gimli::DW_TAG_pointer_type, "*"), (gimli::DW_TAG_reference_type, "&"), (gimli::DW_TAG_rvalue_reference_type, "&&")];
/// Types whose name includes a tag.
const TAGGED: [(gimli::DwTag, &str); 4] = [
    (gimli::DW_TAG_structure_type, "struct"),
    (gimli::DW_TAG_class_type, "class"),
    (gimli::DW_TAG_union_type, "union"),
    (gimli::DW_TAG_enumeration_type, "enum"),
];

fn find_name(table: &[(gimli::DwTag, &'static str)], entry: &Entry) -> Option<&'static str> {
    table.iter().find(|(tag, _)| *tag == entry.tag()).map(|(_, word)| *word)
}

impl BinaryTypes {
    /// The text of a type, without the name that it declares.
    pub(super) fn spelled(&self, die: Option<Die>) -> String {
        self.around(die, String::new(), 0)
    }

    /// The type around a declarator: `declarator` is the text so far, from the name outwards.
    fn around(&self, of: Option<Die>, declarator: String, depth: u32) -> String {
        let before = |word: &str| match declarator.starts_with(['(', '[']) {
            true => format!("{word} {declarator}"),
            false => format!("{word}{declarator}"),
        };
        let Some(die) = of else { return before("void") };
        let Some(entry) = self.entry(die).filter(|_| depth <= DEPTH) else { return before("?") };
        let to = self.referred(die, &entry, DW_AT_type);
        let down = |declarator: String| self.around(to, declarator, depth + 1);
        let kind = to.and_then(|to| self.entry(to));
        if let Some(sign) = find_name(&LEADING, &entry) {
            let postfix = kind.is_some_and(|e| matches!(e.tag(), gimli::DW_TAG_array_type | gimli::DW_TAG_subroutine_type));
            return down(if postfix { format!("({sign}{declarator})") } else { format!("{sign}{declarator}") });
        }
        if let Some(word) = find_name(&QUALIFIERS, &entry) {
            // The qualifier of a pointer follows its star.
            if kind.is_some_and(|e| find_name(&LEADING, &e).is_some()) {
                return down(format!(" {word}{declarator}"));
            }
            return format!("{word} {}", down(declarator));
        }
        let name = String::from_utf8_lossy(self.name(die, &entry).unwrap_or_default()).into_owned();
        if let Some(tag) = find_name(&TAGGED, &entry) {
            return before(&if name.is_empty() { format!("{tag} {{...}}") } else { format!("{tag} {name}") });
        }
        if entry.tag() == gimli::DW_TAG_array_type {
            return down(format!("{declarator}{}", self.lengths(die)));
        }
        if entry.tag() == gimli::DW_TAG_subroutine_type {
            return down(format!("{declarator}({})", self.taken(die, depth)));
        }
        before(if name.is_empty() { "?" } else { &name })
    }

    /// `[2][3]`
    fn lengths(&self, array: Die) -> String {
        let mut text = String::new();
        for (_, e) in self.children(array).iter().filter(|(_, e)| e.tag() == gimli::DW_TAG_subrange_type) {
            let count = Self::number(e, DW_AT_count).or_else(|| Self::number(e, DW_AT_upper_bound)?.checked_add(1));
            let _ = write!(text, "[{}]", count.map(|n| n.to_string()).unwrap_or_default());
        }
        text
    }

    /// The parameter list of a function.
    fn taken(&self, function: Die, depth: u32) -> String {
        let one = |(die, e): &(Die, Entry)| {
            if e.tag() == gimli::DW_TAG_unspecified_parameters {
                return Some("...".to_owned());
            }
            let ty = self.referred(*die, e, DW_AT_type);
            (e.tag() == gimli::DW_TAG_formal_parameter).then(|| self.around(ty, String::new(), depth + 1))
        };
        let all: Vec<String> = self.children(function).iter().filter_map(one).collect();
        if all.is_empty() { "void".to_owned() } else { all.join(", ") }
    }
}
