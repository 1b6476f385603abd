use std::collections::BTreeSet;

use super::*;
use crate::system::kernel_types::btf::{Blob, Kind, Writer};
use crate::system::{TargetInfo, TypeName};
use crate::types::Type;

const FORMAT: &str = "name: sched_switch\nID: 316\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n";

/// Small contents of every kind; `noise` makes sections differ in size and in compressibility.
fn contents(noise: usize) -> Contents {
    let mut w = Writer::new(None);
    let int = w.add(Kind::Int, false, "int", 0, 4, &[1 << 24 | 32]);
    let (pid, cookie, func) = (w.string("pid"), w.string("cookie"), w.string("BPF_FUNC_loop"));
    w.add(Kind::Struct, false, "task_struct", 1, 4, &[pid, int, 0]);
    w.add(Kind::Struct, false, "bpf_raw_tp_link", 1, 4, &[cookie, int, 0]);
    w.add(Kind::Enum, false, "bpf_func_id", 1, 4, &[func, 181]);
    let proto = w.add(Kind::FuncProto, false, "", 1, int, &[pid, int]);
    w.add(Kind::Func, false, "vfs_read", 1, proto, &[]);
    let vmlinux = w.finish();
    let base = Blob::from_vec(vmlinux.clone(), None).unwrap();
    let mut m = Writer::new(Some(&base));
    let own = m.string("own");
    m.add(Kind::Struct, false, "fuse_conn", 1, 8, &[own, int, 0]);
    let module = m.finish();
    let words = |head: &str| (0..noise).map(|i| format!("{head}{:x}", i.wrapping_mul(0x9e37_79b9) % 1000)).collect::<BTreeSet<_>>();
    let untraceable: BTreeSet<String> = words("raw_").into_iter().chain(["inlined.isra.0".to_owned()]).collect();
    Contents {
        about: SnapshotInfo {
            release: "6.1.0-test".into(),
            machine: "x86_64".into(),
            build_id: "ab01".into(),
            source: "a test".into(),
            possible_cpus: 4,
        },
        btf: vec![("vmlinux".into(), vmlinux), ("fuse".into(), module)],
        events: Some(vec![
            Event { category: "sched".into(), name: "sched_switch".into(), format: FORMAT.into() },
            Event { category: "sched".into(), name: "sched_wakeup".into(), format: FORMAT.replace("316", "317") },
        ]),
        functions: Some(Functions::parse("vfs_read\nvfs_write\nfuse_open [fuse]\n", &BTreeSet::from(["vfs_write"]), "")),
        untraceable: Some(untraceable.into_iter().collect()),
        variables: Some(vec!["jiffies".into()]),
        modules: Some(vec!["fuse".into()]),
        error_injectable: Some(vec!["vfs_read".into()]),
        features: BTreeMap::from([(Feature::Loop, true), (Feature::UprobeMulti, false)]),
        callable: Some(BTreeMap::from([("bpf_task_from_pid".into(), vec![2, 26])])),
        config: Some("CONFIG_BPF=y\n# CONFIG_FPROBE is not set\nCONFIG_BPF_KPROBE_OVERRIDE=y\n".into()),
        scripts: Some(BTreeSet::from([7, u64::MAX])),
        missing: BTreeMap::from([("injectable".into(), "a reason".into())]),
    }
}

fn bytes(of: &Contents) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(of, &mut bytes).unwrap();
    bytes
}

struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("rbt-snapshot-{name}-{}", std::process::id())))
    }

    fn open(&self, bytes: &[u8]) -> Result<Snapshot, Missing> {
        std::fs::write(&self.0, bytes).unwrap();
        Snapshot::open(&self.0)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn snapshots_round_trip() {
    let file = File::new("whole");
    for noise in [0, 3000] {
        let was = contents(noise);
        let snapshot = file.open(&bytes(&was)).unwrap();
        let is = snapshot.contents().unwrap();
        assert_eq!((&is.about, &is.events, &is.untraceable, &is.config), (&was.about, &was.events, &was.untraceable, &was.config));
        assert_eq!((&is.features, &is.callable, &is.missing), (&was.features, &was.callable, &was.missing));
        assert_eq!(is.scripts, was.scripts);
        assert_eq!((&is.functions, &is.variables, &is.error_injectable), (&was.functions, &was.variables, &was.error_injectable));
        assert_eq!(is.btf, was.btf);
        assert_eq!(bytes(&is), bytes(&was));
    }
    // an empty snapshot knows nothing
    let nothing = file.open(&bytes(&Contents::default())).unwrap();
    assert!(nothing.types_missing().is_some() && nothing.tracepoints().is_err() && nothing.functions().is_err());
    assert!(nothing.has(Feature::ShortKeys) && nothing.has(Feature::SharedStacks) && !nothing.has(Feature::Loop));
    assert_eq!((nothing.error_injectable("f"), nothing.config("CONFIG_BPF")), (None, None));
}

#[test]
fn questions_are_answered() {
    let file = File::new("answers");
    let s = file.open(&bytes(&contents(10))).unwrap();
    assert_eq!(s.about().release, "6.1.0-test");
    let Some(Type::Struct(task)) = s.type_named(TypeName::Struct, "task_struct") else { panic!() };
    assert_eq!(s.member(&task, "pid").unwrap().ty, Type::int(4));
    let Some(Type::Struct(own)) = s.type_named(TypeName::Struct, "fuse_conn") else { panic!() };
    assert_eq!(s.member(&own, "own").unwrap().offset, 0);
    assert!(s.type_named(TypeName::Struct, "none").is_none());
    let event = s.tracepoint("sched", "sched_wakeup").unwrap().unwrap();
    assert_eq!((event.id, event.fields.len()), (317, 2));
    assert_eq!((s.has_tracepoint("sched", "sched_switch"), s.has_tracepoint("sched", "no")), (Ok(true), Ok(false)));
    assert_eq!(s.tracepoints().unwrap().len(), 2);
    assert_eq!(s.function_homes("fuse_open").unwrap()[0].module, "fuse");
    assert_eq!(s.function_homes("inlined"), Ok(vec![]));
    assert_eq!(s.text_symbols("inlined").parts, ["inlined.isra.0"]);
    assert!(s.text_symbols("vfs_read").is_exact && !s.text_symbols("vfs_rea").is_exact);
    assert!(s.kernel_symbol("jiffies").is_some() && s.kernel_symbol("jiffie").is_none());
    assert_eq!((s.error_injectable("vfs_read"), s.error_injectable("vfs_write")), (Some(true), Some(false)));
    assert!(s.may_call("bpf_task_from_pid", 26) && !s.may_call("bpf_task_from_pid", 5) && !s.may_call("vfs_read", 2));
    assert!(s.has_module("fuse") && s.has_module("vmlinux") && !s.has_module("xfs"));
    assert_eq!((s.possible_cpus(), s.online_cpus().len()), (4, 4));
    assert_eq!(s.prototype(None, "vfs_read").unwrap().params[0].0, "pid");
}

/// Tested features take precedence over those inferred from the types, the symbols and the configuration.
#[test]
fn features_are_reported() {
    let file = File::new("features");
    let all = contents(0);
    let has = |contents: &Contents, feature| file.open(&bytes(contents)).unwrap().has(feature);
    for (feature, want) in [
        (Feature::UprobeMulti, false),
        (Feature::Loop, true),
        (Feature::Btf, true),
        (Feature::RawTracepointCookie, true),
        (Feature::KprobeMulti, false),
        (Feature::Override, true),
        (Feature::SharedStacks, false),
        (Feature::ShortKeys, true),
    ] {
        assert_eq!(has(&all, feature), want, "{feature:?}");
    }
    let untried = Contents { features: BTreeMap::new(), ..all.clone() };
    assert!(has(&untried, Feature::Loop) && !has(&untried, Feature::UprobeMulti));
    let symbols = Contents { untraceable: Some(vec!["check_atomic".into()]), ..untried };
    assert!(has(&symbols, Feature::Fetch) && !has(&symbols, Feature::ShortKeys));
}

fn error(of: Result<Snapshot, Missing>) -> String {
    let missing = of.err().expect("it was taken");
    assert!(missing.help.is_some(), "{missing:?}");
    missing.what
}

/// A file that is cut or changed at any byte is rejected with a reason.
#[test]
fn damage_is_reported() {
    let file = File::new("damage");
    let whole = bytes(&contents(2));
    assert!(file.open(&whole).is_ok());
    for n in 0..whole.len() {
        let message = error(file.open(&whole[..n]));
        let wanted = if n == 0 { "is not a snapshot" } else { "is truncated" };
        assert!(message.contains(wanted), "cut to {n}: {message}");
        let mut odd = whole.clone();
        odd[n] ^= 1 << (n % 8);
        let message = error(file.open(&odd));
        let known = ["is not a snapshot", "is truncated", "is damaged", "has the format", "is too large"];
        assert!(known.iter().any(|k| message.contains(k)), "changed at {n}: {message}");
    }
    assert!(error(file.open(&[&whole[..], b"x"].concat())).contains("damaged"));
    assert!(error(file.open(b"#!/bin/sh\n")).contains("is not a snapshot"));
    // the error names a damaged section
    let last = whole.len() - 1;
    let mut odd = whole.clone();
    odd[last] ^= 1;
    assert!(error(file.open(&odd)).contains("`btf/fuse`"));
    assert!(error(Snapshot::open(&std::env::temp_dir())).contains("cannot read"));
    assert!(error(Snapshot::open(Path::new("/no/such/file"))).contains("cannot read"));
}

#[test]
fn other_versions() {
    let file = File::new("versions");
    let mut newer = bytes(&contents(0));
    (newer[8], newer[10]) = (7, 0);
    newer[16..20].copy_from_slice(b"99.1");
    let missing = file.open(&newer).err().unwrap();
    assert!(missing.what.contains("has the format 7.0") && missing.what.contains(env!("CARGO_PKG_VERSION")), "{missing:?}");
    assert!(missing.help.unwrap().contains("use rbt 99.1"));
    // sections of a later minor version are ignored
    let mut sections = parts::sections(&contents(0));
    sections.insert(1, ("of tomorrow".into(), vec![1, 2, 3]));
    let mut out = Vec::new();
    file::write(&sections, &mut out, &mut |_| {}).unwrap();
    let read = file.open(&out).unwrap();
    assert_eq!(read.contents().unwrap().btf, contents(0).btf);
}

/// The sizes in a file are bounded by the size of the file.
#[test]
fn rejects_decompression_bombs() {
    let file = File::new("bomb");
    let written = |sections: &[(&str, Vec<u8>)]| {
        let sections: Vec<(String, Vec<u8>)> = sections.iter().map(|(n, b)| ((*n).to_owned(), b.clone())).collect();
        let mut out = Vec::new();
        file::write(&sections, &mut out, &mut |_| {}).map(|()| out)
    };
    // 8 MB of newlines pack to some hundred bytes, which would be rejected, so they are stored uncompressed
    let zeros = written(&[("about", b"release\t1\n".to_vec()), ("config", vec![b'\n'; 8 << 20])]).unwrap();
    let read = file.open(&zeros).unwrap();
    assert!(zeros.len() > 8 << 20 && read.config("CONFIG_BPF") == Some(""));
    // a table with a false unpacked size of a section
    let honest = written(&[("about", b"release\t1\n".to_vec()), ("config", b"CONFIG_BPF=y\n".repeat(1000))]).unwrap();
    let at = honest.windows(6).position(|w| w == b"config").unwrap() + 6 + 1 + 16;
    for raw in [1u64 << 62, 1 << 40, 4 << 20, 12_999, 13_001, 0] {
        let mut odd = honest.clone();
        odd[at..at + 8].copy_from_slice(&raw.to_le_bytes());
        file::sign(&mut odd);
        match file.open(&odd) {
            Err(missing) => assert!(raw > 2 << 20 && missing.what.contains("is too large"), "{raw}: {missing:?}"),
            Ok(read) => assert!(read.contents().unwrap_err().what.contains("damaged") && read.config("CONFIG_BPF").is_none(), "{raw}"),
        }
    }
}

/// The digests are corrected, so that the readers behind them are tested: no input causes a panic.
#[test]
fn forged_files_do_not_panic() {
    let file = File::new("forged");
    let whole = bytes(&contents(2));
    let about = contents(2);
    for n in (48..whole.len()).step_by(2) {
        let mut odd = whole.clone();
        odd[n] = odd[n].wrapping_add(1 + (n % 5) as u8);
        file::sign(&mut odd);
        let Ok(s) = file.open(&odd) else { continue };
        let _ = s.contents();
        for feature in Feature::ALL {
            s.has(feature);
        }
        let _ = s.tracepoint("sched", "sched_switch");
        s.text_symbols("inlined");
        let _ = s.function_homes("vfs_read");
        s.type_named(TypeName::Struct, "fuse_conn");
        s.raw_tracepoints().map(<[_]>::len).unwrap_or(0);
    }
    // and within sections: of text, then of BTF
    for (section, at) in [("events", 3), ("events", 20), ("features", 2), ("callable", 19), ("functions", 4), ("about", 0)] {
        for change in [0, b'\t', b'\n', b'9', 0xff] {
            let mut sections = parts::sections(&about);
            let (_, raw) = sections.iter_mut().find(|(n, _)| n == section).unwrap();
            raw[at] = change;
            let mut out = Vec::new();
            file::write(&sections, &mut out, &mut |_| {}).unwrap();
            let Ok(s) = file.open(&out) else { continue };
            let _ = s.contents();
            let _ = s.tracepoints();
            let _ = s.tracepoint("sched", "sched_switch");
            s.may_call("bpf_task_from_pid", 26);
            let _ = s.function_homes("vfs_read");
            s.has(Feature::Loop);
        }
    }
}

#[test]
fn a_kernel_for_another_processor() {
    let of = |machine: &str| {
        let mut contents = contents(0);
        contents.about.machine = machine.into();
        Snapshot::of(&contents)
    };
    assert_eq!(of("aarch64").unwrap().arch().name, "aarch64");
    assert_eq!(of("aarch64").unwrap().syscall_number("openat"), Some(56));
    assert_eq!(of("x86_64").unwrap().syscall_number("openat"), Some(257));
    assert_eq!(of("").unwrap().arch().name, std::env::consts::ARCH);
    let why = of("riscv64").map(|_| ()).unwrap_err().what;
    assert!(why.contains("a kernel for riscv64; rbt supports x86_64 and aarch64"), "{why}");
}

/// This machine's kernel, captured, written and read back, answers like the machine itself.
#[test]
fn snapshot_agrees_with_this_machine() {
    let live = Live::new();
    if let Some(missing) = live.types_missing() {
        return eprintln!("skipped: needs BTF: {}", missing.what);
    }
    let all = capture::capture(&mut |_| {});
    let file = File::new("here");
    let s = file.open(&bytes(&all)).unwrap();
    for kind in [TypeName::Struct, TypeName::Union, TypeName::Enum, TypeName::Plain] {
        let names = |of: &dyn TargetInfo| {
            let mut names = Vec::new();
            of.type_names(kind, &mut |name| names.push(name.to_owned()));
            names
        };
        let names = (names(&live), names(&s));
        assert!(names.0 == names.1 && !names.0.is_empty());
        for name in names.0.iter().step_by(1999) {
            assert_eq!(live.type_named(kind, name), s.type_named(kind, name), "{name}");
        }
    }
    let Some(Type::Struct(task)) = live.type_named(TypeName::Struct, "task_struct") else { panic!() };
    assert_eq!(live.expand(&task), s.expand(&task));
    assert_eq!(live.raw_tracepoints(), s.raw_tracepoints());
    assert_eq!(live.raw_tracepoint("sched_switch"), s.raw_tracepoint("sched_switch"));
    assert_eq!(live.prototype(None, "vfs_read"), s.prototype(None, "vfs_read"));
    assert_eq!((live.possible_cpus(), live.has_module("vmlinux")), (s.possible_cpus(), s.has_module("vmlinux")));
    match &all.events {
        None => eprintln!("skipped in part: needs tracefs: {:?}", all.missing.get("events")),
        Some(events) => {
            for event in events.iter().step_by(37) {
                let (category, name) = (&event.category, &event.name);
                assert_eq!(live.tracepoint(category, name), s.tracepoint(category, name), "{category}:{name}");
            }
            let missing = live.tracepoints().unwrap().iter().filter(|e| !s.tracepoints().unwrap().contains(e));
            assert!(missing.clone().all(|(c, n)| live.is_dynamic_tracepoint(c, n)), "{:?}", missing.collect::<Vec<_>>());
        }
    }
    if let Ok(functions) = live.functions() {
        assert!(s.functions().unwrap().lines() == functions.lines(), "other functions");
        for name in ["vfs_read", "do_sys_openat2", "no_such_function", "copy_process"] {
            assert_eq!(live.function_homes(name), s.function_homes(name), "{name}");
            assert_eq!(live.text_symbols(name).is_exact, s.text_symbols(name).is_exact, "{name}");
        }
    }
    if all.features.is_empty() {
        return eprintln!("skipped in part: needs the right to load programs");
    }
    for feature in Feature::ALL {
        assert_eq!(live.has(feature), s.has(feature), "{feature:?}");
    }
    for name in ["bpf_task_from_pid", "bpf_get_dentry_xattr", "vfs_read"] {
        for ty in [2, 5, 7, 17] {
            assert_eq!(live.may_call(name, ty), s.may_call(name, ty), "{name} {ty}");
        }
    }
    // The inferred features agree with the tested ones; but a machine may refuse what its kernel supports.
    let told = file.open(&bytes(&Contents { features: BTreeMap::new(), ..all })).unwrap();
    let differ: Vec<Feature> = Feature::ALL.into_iter().filter(|f| live.has(*f) != told.has(*f)).collect();
    let refused = |f: &Feature| matches!(f, Feature::NumberPointers | Feature::Trampoline) && !live.has(Feature::Trampoline);
    assert!(differ.iter().all(refused), "{differ:?}");
}
