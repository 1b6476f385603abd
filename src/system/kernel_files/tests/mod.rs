//! Tests with synthetic kernels, intact and damaged, and with real ones for measurements.

mod made;

use std::io::Write;
use std::time::{Duration, Instant};

use made::{Form, Table};

use super::*;
use crate::random::Random;
use crate::system::events::tracefs::parse_format;
use crate::types::Type;

/// A directory that is removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rbt-kernel-files-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn names(contents: &Contents) -> Vec<(String, String, bool)> {
    contents.functions.as_ref().unwrap().all().map(|f| (f.name.to_owned(), f.module.to_owned(), f.no_kprobe)).collect()
}

#[test]
fn reads_a_synthetic_kernel() {
    let folder = Folder::new("whole");
    for form in [Form::Before, Form::Absolute, Form::After, Form::Itself] {
        let path = folder.put("vmlinux", &made::kernel(form));
        let contents = from_vmlinux(&path, &mut |_| {}).unwrap();
        assert_eq!((contents.about.release.as_str(), contents.about.machine.as_str()), ("6.0.0-made", "x86_64"));
        let v = |name: &str, no_kprobe| (name.to_owned(), "vmlinux".to_owned(), no_kprobe);
        let want = [
            v("__do_sys_open", false),
            v("__x64_sys_open", false),
            v("vfs_read", false),
            v("vfs_read_too", false),
            v("without_kprobe", true),
        ];
        assert_eq!(names(&contents), want, "{form:?}");
        let functions = contents.functions.as_ref().unwrap();
        assert_eq!(functions.named("__x64_sys_open").next().unwrap().alias_of, Some("__do_sys_open"));
        assert_eq!(
            contents.untraceable.as_deref().unwrap(),
            ["_einittext", "_etext", "_sinittext", "_stext", "not_to_trace", "start_kernel"]
        );
        assert_eq!(contents.error_injectable.as_deref().unwrap(), ["__do_sys_open"]);
        assert_eq!(contents.features.get(&Feature::Loop), Some(&true));
        assert_eq!(contents.features.get(&Feature::ForEach), Some(&false));
        assert_eq!(contents.features.get(&Feature::Fetch), Some(&true));
        assert_eq!(contents.features.get(&Feature::SleepingUprobes), None);
        assert_eq!((contents.config.as_deref(), contents.btf.len()), (Some("CONFIG_OF_THE_IMAGE=y\n"), 1));

        let events = contents.events.as_ref().unwrap();
        let all: Vec<_> = events.iter().map(|e| (e.category.as_str(), e.name.as_str())).collect();
        assert_eq!(all, [("sched", "made_switch"), ("syscalls", "sys_enter_open")]);
        let fields: Vec<&str> = events[0].format.lines().skip(8).collect();
        let want = [
            "\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;",
            "\tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;",
            "\tfield:u64 at;\toffset:32;\tsize:8;\tsigned:0;",
            "\tfield:__data_loc char[] text;\toffset:40;\tsize:4;\tsigned:0;",
        ];
        assert_eq!(fields, want);
        let open = parse_format(&events[1].format, "syscalls", &|_, _| None).unwrap();
        let fields: Vec<_> = open.fields.iter().map(|f| (f.field.name.as_str(), f.field.offset)).collect();
        assert_eq!(fields, [("__syscall_nr", 8), ("filename", 16), ("flags", 24)]);
        assert_eq!(open.fields[2].field.ty, Type::int(4));
    }
}

/// Symbols are found in every possible place. Without symbols, functions are unknown.
#[test]
fn other_tables_of_symbols() {
    let folder = Folder::new("symbols");
    let (image, _) = made::kernel_with(Table::File);
    let of_file = from_vmlinux(&folder.put("vmlinux", &image), &mut |_| {}).unwrap();
    let (image, map) = made::kernel_with(Table::Elsewhere);
    let nowhere = from_vmlinux(&folder.put("vmlinux", &image), &mut |_| {}).unwrap();
    folder.put("lib/modules/6.0.0-made/vmlinux", &image);
    folder.put("lib/modules/6.0.0-made/System.map", map.as_bytes());
    let of_map = from_package(&folder.0, &mut |_| {}).unwrap();
    for contents in [of_file, of_map] {
        assert_eq!(names(&contents).len(), 5);
        assert_eq!(contents.events.as_ref().map(Vec::len), Some(2));
    }
    assert!(nowhere.functions.is_none() && nowhere.events.is_none() && nowhere.untraceable.is_none() && nowhere.error_injectable.is_none());
    assert!(nowhere.missing.contains_key("functions"));
}

/// Without symbols of variables, the contents show the same tables.
#[test]
fn tables_without_symbols() {
    let folder = Folder::new("contents");
    for form in [Form::Before, Form::After, Form::Itself] {
        let of = |table| from_vmlinux(&folder.put("vmlinux", &made::kernel_with(table).0), &mut |_| {}).unwrap();
        let (all, code) = (of(Table::Own(form)), of(Table::OwnOfCode(form)));
        assert_eq!(names(&code), names(&all), "{form:?}");
        assert_eq!((&code.untraceable, &code.error_injectable), (&all.untraceable, &all.error_injectable), "{form:?}");
        assert_eq!((code.events.as_ref().map(Vec::len), &code.events), (Some(2), &all.events), "{form:?}");
    }
}

/// If one event cannot be read, all are unknown, because an absent event counts as missing.
#[test]
fn events_are_complete_or_absent() {
    let folder = Folder::new("events");
    let mut image = made::kernel(Form::After);
    let at = memchr::memmem::find(&image, b"made_switch\0").unwrap();
    image[at] = b'/';
    let contents = from_vmlinux(&folder.put("vmlinux", &image), &mut |_| {}).unwrap();
    assert!(contents.events.is_none() && contents.functions.is_some());
}

/// Makes a package: a compressed `boot/vmlinuz-…`, and modules in each compression format.
fn package(folder: &Folder) {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&made::kernel(Form::After)).unwrap();
    folder.put("boot/vmlinuz-6.0.0-made", &gzip.finish().unwrap());
    folder.put("boot/config-6.0.0-made", b"CONFIG_KPROBE_EVENTS=y\n# CONFIG_FPROBE is not set\n");
    folder.put("boot/System.map-6.0.0-made", b"ffffffffffffffff B a_stub\n");
    let modules = "usr/lib/modules/6.0.0-made";
    folder.put(&format!("{modules}/kernel/fs/made-one.ko"), &made::module());
    folder.put(&format!("{modules}/kernel/two.ko.zst"), &zstd::stream::encode_all(made::module().as_slice(), 1).unwrap());
    folder.put(&format!("{modules}/modules.dep"), b"");
}

#[test]
fn reads_a_synthetic_package() {
    let folder = Folder::new("package");
    package(&folder);
    let mut told = Vec::new();
    let contents = from_package(&folder.0, &mut |what| told.push(what.to_owned())).unwrap();
    assert_eq!(contents.btf.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["vmlinux", "made_one", "two"]);
    let mut types = KernelTypes::from_vec(contents.btf[0].1.clone()).unwrap();
    types.add_module("two", contents.btf[2].1.clone()).unwrap();
    assert!(types.named(crate::system::TypeName::Struct, "of_module").is_some());
    let of_modules: Vec<_> = names(&contents).into_iter().filter(|(_, module, _)| module != "vmlinux").collect();
    let m = |module: &str| ("mod_read".to_owned(), module.to_owned(), false);
    assert_eq!(of_modules, [m("made_one"), m("two")]);
    assert!(contents.untraceable.as_ref().unwrap().iter().any(|n| n == "mod_other"));
    let events = contents.events.as_ref().unwrap();
    let made = events.iter().find(|e| e.category == "made").unwrap();
    assert_eq!((made.name.as_str(), made.format.lines().last().unwrap()), ("mod_event", "\tfield:int n;\toffset:8;\tsize:4;\tsigned:1;"));
    assert_eq!(contents.features.get(&Feature::Kprobe), Some(&true));
    assert!(contents.config.as_ref().unwrap().contains("KPROBE_EVENTS"));
    assert!(told.iter().any(|t| t == "modules: 2 of 2"), "{told:?}");
    assert_eq!(contents.missing.keys().map(String::as_str).collect::<Vec<_>>(), ["callable"]);
    assert_eq!(contents.modules.as_ref().map(Vec::len), Some(2));
    assert!(contents.variables.as_ref().unwrap().iter().any(|v| v == "sys_call_table"));
}

#[test]
fn reports_errors_in_packages() {
    let folder = Folder::new("wrong");
    let said = |dir: &Path| from_package(dir, &mut |_| {}).unwrap_err().what;
    assert!(said(&folder.0).contains("has no kernel"));
    assert!(said(Path::new("/nowhere/at/all")).contains("has no kernel"));
    package(&folder);
    let bad = folder.put("usr/lib/modules/6.0.0-made/kernel/bad.ko.xz", b"\xfd7zXZ\0 and no more");
    let why = said(&folder.0);
    assert!(why.contains("1 of 3 modules") && why.contains("bad.ko.xz") && why.contains("xz data"), "{why}");
    std::fs::remove_file(bad).unwrap();
    folder.put("boot/vmlinuz-6.1.0-other", b"");
    let why = said(&folder.0);
    assert!(why.contains("several kernels: 6.0.0-made, 6.1.0-other"), "{why}");
    let said = |bytes: &[u8]| from_vmlinux(&folder.put("image", bytes), &mut |_| {}).unwrap_err().what;
    assert!(said(b"").contains("neither an ELF file nor a bzImage"));
    assert!(said(&made::module()).contains("not a kernel"));
    let image = |at: usize, magic: &[u8]| [&vec![0u8; at], magic, &[0u8; 64]].concat();
    assert!(said(&image(0x38, b"ARM\x64")).contains("do not tell where it is linked"));
    assert!(said(&image(0x38, b"RSC\x05")).contains("an image for riscv64; rbt supports x86_64 and aarch64"));
    assert!(said(&[b"MZ\0\0zimg".as_slice(), &[0; 64]].concat()).contains("neither an ELF file"));
    let mut other = made::kernel(Form::Before);
    other[18..20].copy_from_slice(&243u16.to_le_bytes());
    assert!(said(&other).contains("it is for riscv64; rbt supports x86_64 and aarch64"));
    assert!(from_vmlinux(Path::new("/nowhere"), &mut |_| {}).unwrap_err().what.contains("no such file"));
}

/// An image without sections gives the same description as the ELF file.
#[test]
fn reads_an_arm64_image() {
    let folder = Folder::new("flat");
    for (form, packings) in [(Form::Before, 1), (Form::After, 1), (Form::Itself, 3)] {
        let whole = from_vmlinux(&folder.put("vmlinux", &made::kernel(form)), &mut |_| {}).unwrap();
        for relocated in [form == Form::Before, true] {
            let image = made::image(form, relocated);
            let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packed.write_all(&image).unwrap();
            let packed = packed.finish().unwrap();
            let started = [b"MZ\0\0zimg".as_slice(), &24u32.to_le_bytes(), &(packed.len() as u32).to_le_bytes(), &[0; 8], &packed].concat();
            for bytes in [&image, &packed, &started].into_iter().take(packings) {
                let flat = from_vmlinux(&folder.put("Image", bytes), &mut |_| {}).unwrap();
                assert_eq!((flat.about.release.as_str(), flat.about.machine.as_str()), ("6.0.0-made", "aarch64"));
                assert_eq!(names(&flat), names(&whole), "{form:?} {relocated}");
                assert_eq!((&flat.btf, &flat.events, &flat.config), (&whole.btf, &whole.events, &whole.config), "{form:?} {relocated}");
                assert_eq!((&flat.untraceable, &flat.error_injectable), (&whole.untraceable, &whole.error_injectable));
                assert_eq!(flat.features, whole.features);
            }
            // A truncated image is either read or rejected.
            let cuts = if relocated && form == Form::Itself { 4 } else { 0 };
            for cut in [0x3b, 0x40, image.len() / 3, image.len() - 1].into_iter().take(cuts) {
                let _ = from_vmlinux(&folder.put("Image", &image[..cut]), &mut |_| {});
            }
        }
    }
}

/// Whatever the bytes, the result is an answer or an error, and comes soon.
#[test]
fn reads_or_rejects_damaged_images() {
    let folder = Folder::new("damaged");
    let mut numbers = Random::new(0x9e37_79b9_7f4a_7c15);
    let mut random = |below: usize| numbers.below(below);
    let wholes = [made::kernel(Form::Before), made::kernel(Form::Itself), made::module()];
    let mut read = 0;
    for n in 0..600 {
        let mut bytes = wholes[n % 3].clone();
        if n % 7 == 0 {
            bytes.truncate(random(bytes.len()));
        }
        for _ in 0..=random(8) {
            // Change the header, the section table at the end, or any byte.
            let end = bytes.len().max(1000);
            let at = [random(64), end - 1 - random(900), random(end)][random(3)];
            if let Some(byte) = bytes.get_mut(at) {
                *byte = [0, 0xff, 0x80, random(256) as u8][random(4)];
            }
        }
        let start = Instant::now();
        if n % 3 < 2 {
            read += usize::from(from_vmlinux(&folder.put("image", &bytes), &mut |_| {}).is_ok());
        } else {
            read += usize::from(modules::read_module("made", &bytes, 1 << 33, None).is_ok());
        }
        assert!(start.elapsed() < Duration::from_secs(20));
    }
    assert!(read > 0);
}
