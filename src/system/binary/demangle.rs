//! Demangles names of C++ and Rust functions.
//!
//! C++: the Itanium ABI's mangling, with symbols that begin with `_Z`. Rust: its own mangling (RFC 2603), `_R`, and the older
//! one, which looks like C++'s but ends in a hash.

use std::fmt::{self, Write};

use crate::system::matches;

/// Parses a symbol.
type Reader = fn(&str) -> Option<Name>;

/// Languages with mangled names: the keyword in attach points, and the parser of symbols.
const LANGUAGES: &[(&str, Reader)] = &[("rust", rust), ("cpp", cpp)];

/// The beginning of an ABI tag in a demangled name.
const ABI_TAG: &str = "[abi:";

/// The demangled name of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// `cpp` or `rust`.
    pub language: &'static str,
    /// The full name: `int ns::twice<int>(int)`.
    pub full: String,
    /// The full name with the hash of Rust's older mangling, if the symbol has one, which makes it unique.
    exact: String,
    /// The name without the type of the result: `ns::twice<int>(int)`.
    typed: String,
    /// The names without parameters: `ns::twice<int>`, `ns::twice`.
    bare: Vec<String>,
}

impl Name {
    /// Does a pattern match the name? Parameters are compared only if the pattern has them, and spaces are ignored.
    pub fn is(&self, pattern: &str) -> bool {
        let pattern = without_spaces(pattern);
        let with_parameters = pattern.replace(ANONYMOUS, "").replace("operator()", "").contains('(');
        let mut bare = self.bare.iter();
        if with_parameters {
            [&self.full, &self.typed].iter().any(|name| matches(&pattern, &without_spaces(name)))
        } else {
            bare.any(|name| matches(&pattern, &without_spaces(name)))
        }
    }

    /// The form that matches only this function, if there is one: see [`Name`]'s `Display`.
    pub fn exact(&self) -> Option<Self> {
        (self.exact != self.full).then(|| Self { full: self.exact.clone(), ..self.clone() })
    }

    /// The shortest form, for suggestions.
    pub fn short(&self) -> &str {
        self.bare.last().unwrap_or(&self.full)
    }
}

/// The form for attach points.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:\"{}\"", self.language, self.full.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

/// The keywords of languages.
pub fn languages() -> impl Iterator<Item = &'static str> {
    LANGUAGES.iter().map(|(name, _)| *name)
}

/// The language with this keyword, in upper or lower case.
pub fn language(word: &str) -> Option<&'static str> {
    languages().find(|name| name.eq_ignore_ascii_case(word))
}

/// Is a pattern more likely a demangled name than a symbol?
pub fn looks_plain(pattern: &str) -> bool {
    pattern.contains("::") || pattern.contains(['(', '<', '~', ' '])
}

/// Demangles a symbol. `None` for C, and for the parts that the compiler splits off from a function (`.cold`, `.part.0`),
/// because they are not entry points.
pub fn name(symbol: &str) -> Option<Name> {
    if !is_mangled(symbol) || symbol.contains(".cold") || symbol.contains(".part.") {
        return None;
    }
    LANGUAGES.iter().find_map(|(_, read)| read(symbol))
}

/// The name of a function in stacks: its full name, with the suffixes of copies and parts that the compiler made (`f(int)
/// [clone .cold]`). `None` for C.
pub fn readable(symbol: &str) -> Option<String> {
    if !is_mangled(symbol) {
        return None;
    }
    rust_name(symbol).or_else(|| cpp_name(&cpp_symbol(symbol)?, cpp_demangle::DemangleOptions::new()))
}

/// The same with the hash of Rust's older mangling, as in attach points. It distinguishes instances of a generic function,
/// which otherwise have the same name.
pub fn readable_instance(symbol: &str) -> Option<String> {
    name(symbol)?.exact().map(|name| name.full)
}

/// The part of a symbol in Rust's older mangling before the hash.
pub fn before_hash(symbol: &str) -> Option<&str> {
    symbol.starts_with("_Z").then(|| hash(symbol)).flatten().map(|(before, _)| before)
}

/// Does a symbol have the prefix of a mangled name? The demanglers accept too much: bare types (`i` is `int`), and the prefixes
/// of other systems, which are ordinary C names in an ELF file.
fn is_mangled(symbol: &str) -> bool {
    symbol.starts_with("_Z") || symbol.starts_with("_R")
}

/// Can a pattern match this symbol's name? Much cheaper than [`name`], because symbols contain identifiers verbatim.
pub fn may_match(symbol: &str, pattern: &str) -> bool {
    // Identifiers that the ABIs abbreviate, and words that are not identifiers.
    const NOT_IDENTIFIERS: [&str; 6] = ["operator", "alloc", "basic_", "lambda", "unnamed", "closure"];
    let named = pattern.split(['(', '<']).next().unwrap_or("");
    let identifier = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let last = named.trim_end_matches(|c| !identifier(c)).rsplit(|c| !identifier(c)).next().unwrap_or("");
    !named.is_ascii()
        || NOT_IDENTIFIERS.iter().any(|s| named.contains(s))
        || named.ends_with("stream")
        || named.ends_with("string")
        || symbol.contains(last)
}

/// The name of an anonymous namespace in demangled C++ names.
const ANONYMOUS: &str = "(anonymousnamespace)";

fn without_spaces(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

fn rust(symbol: &str) -> Option<Name> {
    let full = rust_name(symbol)?;
    // The type arguments of a generic function.
    let generic = full.strip_suffix('>').and_then(|f| f.find("::<")).and_then(|at| full.get(..at));
    let exact =
        bounded(|out| write!(out, "{}", rustc_demangle::try_demangle(symbol).map_err(|_| fmt::Error)?)).filter(|_| has_hash(symbol));
    let exact = exact.unwrap_or_else(|| full.clone());
    let bare = [exact.clone(), full.clone()].into_iter().chain(generic.filter(|g| !g.is_empty()).map(str::to_owned)).collect();
    Some(Name { language: "rust", exact, typed: full.clone(), bare, full })
}

/// Demangles a Rust symbol without its hash.
fn rust_name(symbol: &str) -> Option<String> {
    if !symbol.starts_with("_R") && !has_hash(symbol) {
        return None;
    }
    bounded(|out| write!(out, "{:#}", rustc_demangle::try_demangle(symbol).map_err(|_| fmt::Error)?))
}

/// Does it have the form `_ZN` … `17h0123456789abcdefE`, perhaps with a suffix of LLVM?
fn has_hash(symbol: &str) -> bool {
    hash(symbol).is_some()
}

/// Splits a symbol before its hash.
fn hash(symbol: &str) -> Option<(&str, &str)> {
    let (before, rest) = symbol.rsplit_once("17h")?;
    let (hash, end) = rest.split_at_checked(rest.find(|c: char| !matches!(c, '0'..='9' | 'a'..='f')).unwrap_or(rest.len()))?;
    (hash.len() == 16 && (end == "E" || end.starts_with("E."))).then_some((before, hash))
}

fn cpp(symbol: &str) -> Option<Name> {
    let read = cpp_symbol(symbol)?;
    let options = cpp_demangle::DemangleOptions::new;
    let full = cpp_name(&read, options())?;
    let typed = cpp_name(&read, options().no_return_type())?;
    let bare = cpp_name(&read, options().no_params().no_return_type())?;
    // Names of templates may include the type of the result.
    let result = full.strip_suffix(typed.as_str()).map(|result| format!("{result}{bare}"));
    let mut bare: Vec<String> = result.into_iter().chain([bare]).collect();
    // the source does not contain the tags that the library gives to a function, such as one that returns std::string
    let untagged: Vec<String> = bare.iter().filter_map(|name| without_tags(name)).collect();
    bare.extend(untagged);
    Some(Name { language: "cpp", exact: full.clone(), bare, typed, full })
}

/// A name without its ABI tags (`name[abi:cxx11]`), if it has any.
fn without_tags(name: &str) -> Option<String> {
    let mut parts = name.split(ABI_TAG);
    let first = parts.next()?.to_owned();
    let rest: Vec<&str> = parts.map(|part| part.split_once(']').map_or(part, |(_, rest)| rest)).collect();
    (!rest.is_empty()).then(|| first + &rest.concat())
}

fn cpp_symbol(symbol: &str) -> Option<cpp_demangle::BorrowedSymbol<'_>> {
    let (read, rest) = cpp_demangle::BorrowedSymbol::with_tail(symbol.as_bytes()).ok()?;
    rest.is_empty().then_some(read)
}

fn cpp_name(read: &cpp_demangle::BorrowedSymbol<'_>, options: cpp_demangle::DemangleOptions) -> Option<String> {
    bounded(|out| read.structured_demangle(out, &options))
}

/// Longer than the name of any real function. Names can refer to their own parts, so a few bytes could expand to gigabytes.
const MAX_NAME_LEN: usize = 1 << 16;

/// Returns the written text, unless it is too long.
fn bounded(write: impl FnOnce(&mut BoundedString) -> fmt::Result) -> Option<String> {
    let mut out = BoundedString(String::new());
    write(&mut out).ok()?;
    Some(out.0)
}

struct BoundedString(String);

impl Write for BoundedString {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_NAME_LEN {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(symbol: &str, pattern: &str) -> bool {
        let is = name(symbol).unwrap().is(pattern);
        assert!(!is || may_match(symbol, pattern), "{symbol} {pattern}");
        is
    }

    #[test]
    fn abi_tags() {
        let (f, method) = ("_Z5r_strB5cxx11i", "_ZN1M4nameB5cxx11Ev");
        assert!(is(f, "r_str") && is(f, "r_str[abi:cxx11]") && is(f, "r_str[abi:cxx11](int)") && !is(f, "str"));
        assert!(is(method, "M::name") && is(method, "M::name[abi:cxx11]()"));
        assert_eq!(name(f).unwrap().short(), "r_str");
    }

    #[test]
    fn cpp_names() {
        // ns::f(int, char const*)
        let f = "_ZN2ns1fEiPKc";
        assert_eq!(name(f).unwrap().to_string(), "cpp:\"ns::f(int, char const*)\"");
        assert!(is(f, "ns::f") && is(f, "ns::*") && is(f, "*::f") && is(f, "ns::f(*") && is(f, "ns::f(int,char const*)"));
        assert!(!is(f, "f") && !is(f, "*int*") && !is(f, "ns::f(int)"));
        // int ns::twice<int>(int)
        let twice = "_ZN2ns5twiceIiEET_S1_";
        assert!(is(twice, "ns::twice<int>") && is(twice, "int ns::twice<int>") && is(twice, "ns::twice<int>(int)"), "{:?}", name(twice));
        // ns::A::get() const, ns::A::A(), ns::A::operator()(int)
        assert!(is("_ZNK2ns1A3getEv", "ns::A::get") && is("_ZN2ns1AC2Ev", "ns::A::A") && is("_ZN2ns1AclEi", "ns::A::operator()"));
        assert!(is("_ZN12_GLOBAL__N_16hiddenEi", "(anonymous namespace)::hidden"));
        // main::{lambda(int)#1}::operator()(int) const
        let lambda = "_ZZ4mainENKUliE_clEi";
        assert!(is(lambda, "*lambda*") && is(lambda, "main::*") && is(lambda, "*{lambda(int)#1}*(int) const"), "{:?}", name(lambda));
        assert!(!may_match("_ZN12_GLOBAL__N_16hiddenEi", "ns::f") && is("_ZNSaIcED1Ev", "std::allocator<char>::~allocator"));
        assert!(is("_ZN2ns1fEi.isra.0", "ns::f"), "{:?}", name("_ZN2ns1fEi.isra.0"));
        assert_eq!((name("_ZN2ns1fEi.cold"), name("main"), name("_Z"), name("_ZN2ns1fEi.part.0")), (None, None, None, None));
    }

    #[test]
    fn rust_names() {
        let old = "_ZN4demo5outer5inner17h0123456789abcdefE";
        assert_eq!(name(old).unwrap().to_string(), "rust:\"demo::outer::inner\"");
        let exact = name(old).unwrap().exact().unwrap().to_string();
        assert_eq!(exact, "rust:\"demo::outer::inner::h0123456789abcdef\"");
        assert!(is(old, "demo::outer::inner::h0123456789abcdef") && !is(old, "demo::outer::inner::h0123456789abcdee"));
        assert_eq!(before_hash(&format!("{old}.llvm.123")), Some("_ZN4demo5outer5inner"));
        assert_eq!(readable_instance(old).as_deref(), Some("demo::outer::inner::h0123456789abcdef"));
        assert!(is(old, "demo::*::inner") && is(&format!("{old}.llvm.123"), "demo::outer::inner"));
        // demo::twice::<i32>
        let new = "_RINvCs1234_4demo5twicelEB2_";
        // demo::main::{closure#0}
        let closure = "_RNCNvCs1234_4demo4main0B3_";
        assert!(is(closure, "demo::*closure*") && is(closure, "demo::main::{closure#0}"), "{:?}", name(closure));
        assert!(is(new, "demo::twice") && is(new, "demo::twice::<i32>"), "{:?}", name(new));
    }

    #[test]
    fn stacks_show() {
        let shown = [
            ("_ZN2ns1fEiPKc", "ns::f(int, char const*)"),
            ("_ZN2ns1fEi.isra.0.cold", "ns::f(int) [clone .isra.0] [clone .cold]"),
            ("_ZN2ns1fEi.llvm.123", "ns::f(int) [clone .llvm.123]"),
            ("_ZN2ns5twiceIiEET_S1_", "int ns::twice<int>(int)"),
            ("_ZN4demo5outer5inner17h0123456789abcdefE", "demo::outer::inner"),
            ("_ZN4demo5outer5inner17h0123456789abcdefE.llvm.123", "demo::outer::inner"),
            ("_RINvCs1234_4demo5twicelEB2_", "demo::twice::<i32>"),
        ];
        for (symbol, name) in shown {
            assert_eq!(readable(symbol).as_deref(), Some(name));
        }
    }

    /// The demanglers would turn `i` into `int`, `Pc` into `char*` and `St` into `std`, and accept the prefixes of other
    /// systems.
    #[test]
    fn c_names_are_unchanged() {
        let letters = || (b'A'..=b'Z').chain(b'a'..=b'z').chain([b'_', b'0', b'1']).map(char::from);
        let short = letters().flat_map(|a| [a.to_string()].into_iter().chain(letters().map(move |b| format!("{a}{b}"))));
        let mut names = 0;
        for start in short {
            for symbol in [start.clone()].into_iter().chain(letters().map(|c| format!("{start}{c}"))) {
                names += 1;
                if !is_mangled(&symbol) {
                    assert_eq!((readable(&symbol), name(&symbol)), (None, None), "{symbol}");
                }
            }
        }
        assert!(names > 150_000, "{names}");
        for symbol in
            ["__Z1fv", "ZN4demo1f17h0123456789abcdefE", "RNvC4demo1f", "_GLOBAL__I_main", "_GLOBAL__sub_I_main", "_Z", "_R", "_Ralf"]
        {
            assert_eq!((readable(symbol), name(symbol)), (None, None), "{symbol}");
        }
    }

    /// Each argument is a pair of the previous one with itself.
    #[test]
    fn short_symbols_of_long_names() {
        let symbol = "_Z1fSt4pairIiiES_IS0_S0_ES_IS1_S1_ES_IS2_S2_ES_IS3_S3_ES_IS4_S4_ES_IS5_S5_ES_IS6_S6_ES_IS7_S7_ES_IS8_S8_ES_IS9_S9_E\
                      S_ISA_SA_ES_ISB_SB_ES_ISC_SC_ES_ISD_SD_ES_ISE_SE_ES_ISF_SF_ES_ISG_SG_ES_ISH_SH_ES_ISI_SI_ES_ISJ_SJ_E";
        assert!(cpp_symbol(symbol).is_some());
        assert_eq!((readable(symbol), name(symbol)), (None, None));
    }

    #[test]
    fn accepts_any_symbol() {
        for symbol in ["_ZN", "_R", "_RNvC", "_ZNSt", "_Z99999f", "_ZZZZZZ", "_ZN17h0123456789abcdefE", "_Zé"] {
            name(symbol);
        }
    }
}
