//! Measures attaching and detaching of few and many probes of each kind.

#![allow(unsafe_code)] // waitpid(2)

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::process::{adopt, attached, command, has_kprobes, interrupt, ms};
use crate::stats::{Samples, rounds};

const NUMBERS: [usize; 3] = [1, 100, 1000];

/// A kind: its name, further options, and a function that returns a number of its attach points.
type Kind = (&'static str, &'static [&'static str], fn(&Path, usize) -> Vec<String>);

const KINDS: &[Kind] = &[
    ("tracepoint with perf", &["--no-feature", "raw_tracepoint,raw_syscalls"], |_, n| listed("tracepoint:*", n)),
    ("tracepoint by default", &[], |_, n| listed("tracepoint:*", n)),
    ("rawtracepoint", &[], |_, n| listed("rawtracepoint:*", n)),
    ("uprobe with perf", &["--no-feature", "uprobe_multi"], |file, n| in_file("uprobe", file, "f", n)),
    ("uprobe by default", &[], |file, n| in_file("uprobe", file, "f", n)),
    ("uretprobe by default", &[], |file, n| in_file("uretprobe", file, "f", n)),
    ("usdt", &[], |file, n| in_file("usdt", file, "bench:m", n)),
    ("profile", &[], |_, n| timed("profile", n)),
    ("interval", &[], |_, n| timed("interval", n)),
    ("kprobe with perf", &["--no-feature", "fentry,kprobe_multi"], |_, n| functions("kprobe", n)),
    ("kprobe by default", &[], |_, n| functions("kprobe", n)),
    ("fentry", &[], |_, n| functions("fentry", n)),
    ("software", &[], |_, n| (0..n).map(|i| format!("software:page-faults:{}", 1_000_000 + i)).collect()),
];

/// Lists existing probes, except one that the kernel rejects with perf because perf itself triggers it.
fn listed(pattern: &str, n: usize) -> Vec<String> {
    let out = command(&["-l", pattern]).output().expect("rbt").stdout;
    String::from_utf8_lossy(&out).lines().filter(|l| !l.ends_with(":irq_work_exit")).take(n).map(str::to_owned).collect()
}

/// Lists functions that answer reads of sysfs. There are thousands of them, and they are rarely called. The list is empty if
/// programs cannot be attached to functions.
fn functions(kind: &str, n: usize) -> Vec<String> {
    if has_kprobes() { listed(&format!("{kind}:*_show"), n) } else { Vec::new() }
}

fn in_file(kind: &str, file: &Path, prefix: &str, n: usize) -> Vec<String> {
    (0..n).map(|i| format!("{kind}:{}:{prefix}{i}", file.display())).collect()
}

/// Lists timer probes whose events are too rare to affect the measurement.
fn timed(kind: &str, n: usize) -> Vec<String> {
    (0..n).map(|i| format!("{kind}:ms:{}", 60_000 + i)).collect()
}

pub fn attach() {
    adopt();
    let folder = std::env::temp_dir().join(format!("rbt-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = target(&folder);
    for (name, options, points) in KINDS {
        for n in NUMBERS {
            let points = points(&file, n);
            if points.len() < n {
                println!("  {name}, {n}: this machine has only {}", points.len());
                continue;
            }
            let script = folder.join("script.bt");
            // perf rejects a name that several functions share.
            let text = format!("config = {{ missing_probes = warn; }}\n{} {{ @ = count() }}\n", points.join(",\n"));
            std::fs::write(&script, text).expect("a script");
            let [mut start, mut attach, mut exit, mut detached]: [Samples; 4] = Default::default();
            // With perf, a thousand probes take the kernel more than a minute.
            for _ in 0..rounds(if n == 1000 { 1 } else { 5 }) {
                let args: Vec<&str> = options.iter().copied().chain(["-v", script.to_str().expect("a plain path")]).collect();
                let since = Instant::now();
                let said = folder.join("said");
                let to = std::fs::File::create(&said).expect("a file");
                let rbt = attached(&args, Stdio::null(), Stdio::from(to));
                start.add(ms(since));
                let since = Instant::now();
                interrupt(rbt);
                exit.add(ms(since));
                // SAFETY: This waits for orphaned processes of rbt, which become children of this process.
                while unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } > 0 {}
                detached.add(ms(since));
                let said = std::fs::read_to_string(said).expect("what it said");
                let took = said.lines().find_map(|l| l.strip_prefix("attach ")?.trim().strip_suffix(" ms")?.parse().ok());
                attach.add(took.unwrap_or_else(|| panic!("{args:?} was not attached: {said}")));
            }
            start.show(&format!("{name}, {n}: from start until attached"), "ms");
            // The mechanism that replaces the script's is attached at load time.
            attach.show(&format!("{name}, {n}:   of which after loading"), "ms");
            exit.show(&format!("{name}, {n}: from SIGINT to exit"), "ms");
            detached.show(&format!("{name}, {n}: until all probes are detached"), "ms");
        }
    }
    let _ = std::fs::remove_dir_all(folder);
}

/// Makes a library that no process has mapped. It has a thousand functions, each with a marker.
fn target(folder: &Path) -> PathBuf {
    let mut text = String::from(MARKER);
    for i in 0..1000 {
        let _ = writeln!(text, "void f{i}(void) {{ asm volatile(NOTE(\"m{i}\")); }}");
    }
    let (source, file) = (folder.join("target.c"), folder.join("target.so"));
    std::fs::write(&source, text).expect("a source");
    let status = Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).args([&file, &source]).status();
    assert!(status.is_ok_and(|s| s.success()), "cc is needed");
    file
}

/// A marker in the format of SystemTap's sys/sdt.h.
const MARKER: &str = r#"
#define NOTE(name) \
    "990: nop\n" \
    ".pushsection .note.stapsdt,\"\",\"note\"\n" \
    ".balign 4\n" \
    ".4byte 992f-991f, 994f-993f, 3\n" \
    "991: .asciz \"stapsdt\"\n" \
    "992: .balign 4\n" \
    "993: .8byte 990b\n" \
    ".8byte 0\n" \
    ".8byte 0\n" \
    ".asciz \"bench\"\n" \
    ".asciz \"" name "\"\n" \
    ".asciz \"\"\n" \
    "994: .balign 4\n" \
    ".popsection\n"
"#;
