//! Damaged binaries: every reader of untrusted files returns an answer or an error.

use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection};

use crate::random::Random;
use crate::system::binary::debug_files::DebugInformation;
use crate::system::machine::live::Live;
use crate::system::{TargetInfo, TypeName, binary::debug_files, binary::demangle, binary::elf, binary::instructions, binary::python};

fn made(folder: &Path, compiler: &str, source: &str) -> PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(source);
    let out = folder.join(source.replace('.', "-"));
    let done = Command::new(compiler).args(["-g", "-O1", "-o"]).arg(&out).arg(from).status().unwrap();
    assert!(done.success());
    out
}

/// Runs every query on a binary, for its functions at least: how many had an answer.
fn ask(path: &Path) -> usize {
    let live = Live::new();
    let mut answers = 0;
    let mut check = |yes: bool| answers += usize::from(yes);
    check(live.markers(path).is_ok_and(|all| !all.is_empty()));
    for name in ["node", "point", "Cage", "small"] {
        let found = live.type_in_binary(path, 0, TypeName::Struct, name);
        check(matches!(found, Ok(Some(_))));
        if let Ok(Some(crate::types::Type::Struct(s))) = found {
            check(live.expand(&s).is_some());
        }
    }
    check(!live.enumerators_in_binary(path, 0, "BLUE").is_empty());
    for file in ["shapes.c", "markers.c", "names.cc"] {
        for line in [1, 20, 40] {
            check(live.source_line(path, file, line, None).is_ok());
        }
    }
    check(matches!(debug_files::debug_information(path, path, &[]), Some(DebugInformation::Separate(_))));
    check(elf::segments(path).is_some());
    check(elf::go_functions(path).is_some());
    check(python::read_file(path, path).is_some());
    let Ok(binary) = live.binary(path) else { return answers };
    for f in binary.functions.iter().take(200) {
        check(demangle::name(&f.name).is_some());
        check(live.arguments(path, f).is_ok_and(|a| a.is_some()));
        check(live.retval(path, f).is_err());
        check(instructions::starts_at(path, f.offset, f.size.min(4096)).is_some());
        check(instructions::returns(path, f.offset, f.size).is_some());
        check(binary.addr_of_offset(f.offset) == Some(f.addr));
    }
    answers
}

/// Changes bytes of a file, in the parts that are read.
fn damaged(whole: &[u8], n: usize, random: &mut Random) -> Vec<u8> {
    let parts: Vec<(usize, usize)> = {
        let elf = object::File::parse(whole).unwrap();
        let told = [".debug_info", ".debug_abbrev", ".debug_line", ".debug_str", ".note.stapsdt", ".symtab", ".strtab", ".dynsym"];
        let split = |n: &str| n.ends_with(".dwo") || n.ends_with("u_index");
        let told = elf
            .sections()
            .filter(|s| s.name().is_ok_and(|n| told.contains(&n) || n.starts_with(".gnu_debug") || n.starts_with(".note") || split(n)));
        told.filter_map(|s| s.file_range()).map(|(at, size)| (at as usize, size as usize)).filter(|(_, size)| *size > 0).collect()
    };
    let sections = u64::from_le_bytes(whole[40..48].try_into().unwrap()) as usize;
    let mut bytes = whole.to_vec();
    if n.is_multiple_of(10) {
        bytes.truncate(random.below(whole.len()));
        return bytes;
    }
    for _ in 0..=random.below(6) {
        let (at, size) = match n % 3 {
            0 => (4, 900.min(whole.len() - 4)),
            1 => (sections, whole.len() - sections),
            _ => parts[random.below(parts.len())],
        };
        let at = at + random.below(size);
        bytes[at] = [0, 0xff, 0x7f, 0x80, 1, random.below(256) as u8][random.below(6)];
    }
    bytes
}

#[test]
fn damaged_files_do_not_panic() {
    let folder = std::env::temp_dir().join(format!("rbt-damage-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut files = vec![
        made(&folder, "cc", "shapes.c"),
        made(&folder, "cc", "markers.c"),
        made(&folder, "c++", "names.cc"),
        made(&folder, "cc", "fake_python.c"),
    ];
    // compressed symbols in the file
    let packed = folder.join("packed");
    let script = "objcopy --only-keep-debug names-cc d && objcopy -g d m && xz -f m && objcopy --strip-all --add-section .gnu_debugdata=m.xz names-cc packed";
    if Command::new("sh").args(["-c", script]).current_dir(&folder).status().is_ok_and(|s| s.success()) {
        files.push(packed);
    }
    let bad = folder.join("bad");
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    for file in &files {
        let whole = std::fs::read(file).unwrap();
        let sound = ask(file);
        assert!(sound > 10, "{}: {sound}", file.display());
        let mut answered = 0;
        for n in 0..150 {
            // a new file each time, because the previous one may still be mapped
            std::fs::remove_file(&bad).ok();
            std::fs::write(&bad, damaged(&whole, n, &mut random)).unwrap();
            answered += usize::from(ask(&bad) > 0);
        }
        assert!(answered > 50, "{}: {answered}", file.display());
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// Damaged split debug information of a binary: in its own file, and in a package.
#[test]
fn damaged_split_files_do_not_panic() {
    let folder = std::env::temp_dir().join(format!("rbt-damage-split-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/shapes.c");
    let build = "cc -g -gsplit-dwarf -O1 $FLAGS -c -o shapes.o \"$SOURCE\" && cc -o shapes shapes.o";
    let package = "llvm-dwp-19 -e shapes -o shapes.dwp && rm shapes.dwo";
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    let mut asked = 0;
    for (flags, script, name) in [
        ("-gdwarf-4", build.to_owned(), "shapes.dwo"),
        ("-gdwarf-5", build.to_owned(), "shapes.dwo"),
        ("-gdwarf-5 -fdebug-types-section", build.to_owned(), "shapes.dwo"),
        ("-gdwarf-4 -fdebug-types-section", format!("{build} && {package}"), "shapes.dwp"),
        ("-gdwarf-5", format!("{build} && {package}"), "shapes.dwp"),
    ] {
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).env("SOURCE", &source).env("FLAGS", flags).current_dir(&folder);
        // not every machine has the packaging tool
        if !shell.output().unwrap().status.success() {
            assert!(name.ends_with(".dwp"), "{flags}");
            continue;
        }
        let (program, split) = (folder.join("shapes"), folder.join(name));
        let whole = std::fs::read(&split).unwrap();
        let sound = ask(&program);
        std::fs::remove_file(&split).unwrap();
        let without = ask(&program);
        assert!(sound > without + 10, "{flags} {name}: {sound}, {without} without");
        let mut answered = 0;
        for n in 0..150 {
            std::fs::remove_file(&split).ok();
            std::fs::write(&split, damaged(&whole, n, &mut random)).unwrap();
            answered += usize::from(ask(&program) > without);
        }
        assert!(answered > 30, "{flags} {name}: {answered}");
        std::fs::remove_file(&split).unwrap();
        asked += 1;
    }
    assert!(asked >= 3);
    std::fs::remove_dir_all(folder).unwrap();
}
