//! Names of C++ and Rust functions as their authors wrote them, from the symbols that compilers make of them.
//!
//! C++: the Itanium ABI's mangling, symbols that begin with `_Z`. Rust: its own (RFC 2603), `_R`, and the one before, which looks
//! like C++'s but ends in a hash.

use std::fmt;

use super::matches;

/// Reads a symbol.
type Reader = fn(&str) -> Option<Name>;

/// Languages whose functions have such names: the word by which an attach point asks for one, and how its symbols are read.
const LANGUAGES: &[(&str, Reader)] = &[("rust", rust), ("cpp", cpp)];

/// A function's name in its language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// `cpp` or `rust`.
    pub language: &'static str,
    /// All of it: `int ns::twice<int>(int)`.
    pub full: String,
    /// Without a result's type: `ns::twice<int>(int)`.
    typed: String,
    /// Without parameters either: `ns::twice<int>`, `ns::twice`.
    bare: Vec<String>,
}

impl Name {
    /// Is this what a pattern means? A list of parameters counts only where the pattern has one. Blanks never count.
    pub fn is(&self, pattern: &str) -> bool {
        let pattern = squeezed(pattern);
        let with_parameters = pattern.replace(ANONYMOUS, "").replace("operator()", "").contains('(');
        let mut bare = self.bare.iter();
        if with_parameters {
            [&self.full, &self.typed].iter().any(|name| matches(&pattern, &squeezed(name)))
        } else {
            bare.any(|name| matches(&pattern, &squeezed(name)))
        }
    }

    /// Its shortest form, for suggestions.
    pub fn short(&self) -> &str {
        self.bare.last().unwrap_or(&self.full)
    }
}

/// As an attach point has it.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:\"{}\"", self.language, self.full.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

/// The words for languages.
pub fn languages() -> impl Iterator<Item = &'static str> {
    LANGUAGES.iter().map(|(name, _)| *name)
}

/// The language of this name, in any case.
pub fn language(word: &str) -> Option<&'static str> {
    languages().find(|name| name.eq_ignore_ascii_case(word))
}

/// Does a pattern look as if it were of such a name rather than of a symbol?
pub fn looks_plain(pattern: &str) -> bool {
    pattern.contains("::") || pattern.contains(['(', '<', '~', ' '])
}

/// What a symbol is called in its language; none for C, and for the parts that the compiler splits off from a function
/// (`.cold`, `.part.0`), which begin in its midst.
pub fn name(symbol: &str) -> Option<Name> {
    if !symbol.starts_with("_Z") && !symbol.starts_with("_R") || symbol.contains(".cold") || symbol.contains(".part.") {
        return None;
    }
    LANGUAGES.iter().find_map(|(_, read)| read(symbol))
}

/// Can a symbol be of a function that a pattern means? Far cheaper than [`name`]: identifiers are in symbols as they are written.
pub fn may_be(symbol: &str, pattern: &str) -> bool {
    // what the ABIs have shorter forms for, and what is no identifier
    const SHORTENED: [&str; 6] = ["operator", "alloc", "basic_", "lambda", "unnamed", "closure"];
    let named = pattern.split(['(', '<']).next().unwrap_or("");
    let identifier = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let last = named.trim_end_matches(|c| !identifier(c)).rsplit(|c| !identifier(c)).next().unwrap_or("");
    !named.is_ascii()
        || SHORTENED.iter().any(|s| named.contains(s))
        || named.ends_with("stream")
        || named.ends_with("string")
        || symbol.contains(last)
}

/// What names of C++ call a namespace without a name.
const ANONYMOUS: &str = "(anonymousnamespace)";

fn squeezed(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

fn rust(symbol: &str) -> Option<Name> {
    if !symbol.starts_with("_R") && !has_hash(symbol) {
        return None;
    }
    let full = format!("{:#}", rustc_demangle::try_demangle(symbol).ok()?);
    // what a generic function was made for
    let generic = full.strip_suffix('>').and_then(|f| f.find("::<")).and_then(|at| full.get(..at));
    let bare = std::iter::once(full.clone()).chain(generic.filter(|g| !g.is_empty()).map(str::to_owned)).collect();
    Some(Name { language: "rust", typed: full.clone(), bare, full })
}

/// `_ZN` … `17h0123456789abcdefE`, perhaps with a suffix of LLVM's.
fn has_hash(symbol: &str) -> bool {
    let Some((_, hash)) = symbol.rsplit_once("17h") else { return false };
    let digits = hash.find(|c: char| !matches!(c, '0'..='9' | 'a'..='f')).unwrap_or(hash.len());
    digits == 16 && hash.get(digits..).is_some_and(|end| end == "E" || end.starts_with("E."))
}

fn cpp(symbol: &str) -> Option<Name> {
    let read = cpp_demangle::Symbol::new(symbol).ok()?;
    let told = |options: cpp_demangle::DemangleOptions| read.demangle_with_options(&options).ok();
    let options = cpp_demangle::DemangleOptions::new;
    let full = read.demangle().ok()?;
    let typed = told(options().no_return_type())?;
    let bare = told(options().no_params().no_return_type())?;
    // with its result's type, as some write the names of templates
    let result = full.strip_suffix(typed.as_str()).map(|result| format!("{result}{bare}"));
    Some(Name { language: "cpp", bare: result.into_iter().chain([bare]).collect(), typed, full })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(symbol: &str, pattern: &str) -> bool {
        let is = name(symbol).unwrap().is(pattern);
        assert!(!is || may_be(symbol, pattern), "{symbol} {pattern}");
        is
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
        assert!(!may_be("_ZN12_GLOBAL__N_16hiddenEi", "ns::f") && is("_ZNSaIcED1Ev", "std::allocator<char>::~allocator"));
        assert!(is("_ZN2ns1fEi.isra.0", "ns::f"), "{:?}", name("_ZN2ns1fEi.isra.0"));
        assert_eq!((name("_ZN2ns1fEi.cold"), name("main"), name("_Z"), name("_ZN2ns1fEi.part.0")), (None, None, None, None));
    }

    #[test]
    fn rust_names() {
        let old = "_ZN4demo5outer5inner17h0123456789abcdefE";
        assert_eq!(name(old).unwrap().to_string(), "rust:\"demo::outer::inner\"");
        assert!(is(old, "demo::*::inner") && is(&format!("{old}.llvm.123"), "demo::outer::inner"));
        // demo::twice::<i32>
        let new = "_RINvCs1234_4demo5twicelEB2_";
        // demo::main::{closure#0}
        let closure = "_RNCNvCs1234_4demo4main0B3_";
        assert!(is(closure, "demo::*closure*") && is(closure, "demo::main::{closure#0}"), "{:?}", name(closure));
        assert!(is(new, "demo::twice") && is(new, "demo::twice::<i32>"), "{:?}", name(new));
    }

    #[test]
    fn any_text_is_a_name_or_none() {
        for symbol in ["_ZN", "_R", "_RNvC", "_ZNSt", "_Z99999f", "_ZZZZZZ", "_ZN17h0123456789abcdefE", "_Zé"] {
            name(symbol);
        }
    }
}
