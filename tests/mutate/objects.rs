//! Links damaged BPF objects into a script. Each must yield an object or a message: rbt, libbpf's linker, and libbpf when it opens
//! the result must not crash.

use crate::change;
use object::{Object as _, ObjectSection};
use rbt::diag::{Source, Span};
use rbt::probes::Env;
use rbt::settings::Settings;
use rbt::system::bpf_object;
use rbt::system::fake::Fake;
use rbt::{codegen, sema, syntax};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Arc;

const OBJECT: &str = "tests/mutate/linked.bpf.c";
const SCRIPT: &str =
    r#"begin { $x = (uint64)1; $i = (int32)2; twice(&$x); printf("%d %d %d %d\n", triple(1), total(2, 3), odd(4), add_to(&$i)); }"#;

/// Links `count` damaged objects, most of which are damaged in their types or symbols.
pub fn run(seed: u64, count: u64) -> Result<(), String> {
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(OBJECT);
    let built = Command::new("clang").args(["-target", "bpf", "-O2", "-g", "-c", "-o", "-"]).arg(&source).output();
    let whole = built.map_err(|e| format!("clang: {e}"))?.stdout;
    let range = |name| object::File::parse(&*whole).ok().and_then(|file| file.section_by_name(name)?.file_range());
    let parts: Vec<(u64, u64)> = [".BTF", ".BTF.ext", ".symtab", ".text", ".rel.text", ".maps"].into_iter().filter_map(range).collect();
    if link(whole.clone()).is_none() || parts.is_empty() {
        return Err("the whole object is not linked".into());
    }
    let mut linked = 0;
    for number in 0..count {
        let (start, size) = parts[number as usize % parts.len()];
        let file = change::file(&whole, start as usize..(start + size) as usize, seed, number);
        match catch_unwind(AssertUnwindSafe(|| link(file))) {
            Ok(result) => linked += u64::from(result.is_some()),
            Err(_) => return Err(format!("object {number} of seed {seed} panics")),
        }
    }
    // Damaged objects that are linked must be tested, too.
    if linked * 20 > count { Ok(()) } else { Err(format!("only {linked} of {count} were linked")) }
}

/// The object of the script with this object in it, as libbpf opens it.
fn link(bytes: Vec<u8>) -> Option<()> {
    let object = bpf_object::read("damaged.bpf.o".into(), bytes).ok()?;
    let mut tree = syntax::parse(&Source { name: "s.bt".into(), text: SCRIPT.into() }).ok()?;
    tree.objects.push((Arc::new(object), Span::default()));
    let (fake, settings) = (Fake::new("").ok()?, Settings::default());
    let env = Env::new(&fake, &settings);
    let (script, _) = sema::check(&tree, &env).ok()?;
    let compiled = codegen::compile(&script, &env, &[], Default::default()).ok()?;
    libbpf_rs::set_print(None);
    let _ = libbpf_rs::ObjectBuilder::default().open_memory(&compiled.artifact.elf);
    Some(())
}
