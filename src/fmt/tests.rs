use super::*;
use crate::diag::Source;
use crate::syntax;

/// Formats a script, and holds it to its promises.
fn fmt(text: &str) -> String {
    let (tree, out) = once(text).unwrap_or_else(|| panic!("does not parse:\n{text}"));
    let Some((tree_again, again)) = once(&out) else { panic!("what was made does not parse:\n{text}\n--- made\n{out}") };
    assert_eq!(out, again, "not idempotent:\n{text}\n--- once\n{out}\n--- twice\n{again}");
    assert!(same_words(text, &out), "words differ:\n{text}\n--- made\n{out}");
    assert_eq!(spanless(&tree), spanless(&tree_again), "means something else:\n{text}\n--- made\n{out}");
    out
}

fn once(text: &str) -> Option<(syntax::ast::Script, String)> {
    let source = Source { name: "t".into(), text: text.into() };
    let (tree, shape) = syntax::parse_with_shape(&source).ok()?;
    Some((tree, format(text, &shape?)))
}

fn spanless(tree: &syntax::ast::Script) -> String {
    let spans = regex::Regex::new(r"Span \{[^}]*\}").unwrap();
    let mut tree = tree.clone();
    tree.c_part.iter_mut().for_each(|c| c.text = c.text.trim_end().replace("\r\n", "\n"));
    spans.replace_all(&format!("{tree:?}"), "").into_owned()
}

#[test]
fn knows_every_shape() {
    const WORDS: &[Rule] = &[];
    let _ = WORDS;
    fmt("begin{@a=1;printf(\"x\",1,2)}");
}

#[test]
fn tries() {
    for file in std::env::var("TRY").unwrap_or_default().split(' ').filter(|f| !f.is_empty()) {
        println!("{}", fmt(&std::fs::read_to_string(file).unwrap()));
    }
}
