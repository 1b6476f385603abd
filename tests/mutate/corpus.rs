//! Collects the scripts of the repository.

use std::path::{Path, PathBuf};

/// The scripts, in a fixed order.
pub fn scripts() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |p: PathBuf| std::fs::read_to_string(p).unwrap_or_default();
    let mut all: Vec<String> = Vec::new();
    for dir in ["one-liners", "tests/cases/check"] {
        all.extend(files(&root.join(dir), "bt").into_iter().map(read));
    }
    for dir in ["tests/cases/run", "tests/cases/cli"] {
        files(&root.join(dir), "case").into_iter().for_each(|p| programs(&read(p), &mut all));
    }
    all.extend(rbt::builtins::all().map(|b| b.example.to_string()));
    all.extend(rbt::probes::KINDS.iter().map(|k| k.example().to_string()));
    for line in read(root.join("README.md")).lines() {
        all.extend(line.split_once("-e '").and_then(|(_, t)| t.rsplit_once('\'')).map(|(t, _)| t.to_string()));
    }
    all.extend(EXTRA.iter().map(|s| s.to_string()));
    // Cases build these files, which do not exist here.
    all.iter_mut().for_each(|s| *s = s.replace("{{fix}}/loop", "/bin/demo").replace("{{fix}}", "/bin").replace("{{", "").replace("}}", ""));
    all.retain(|s| s.contains('{') && s.len() < 20_000);
    all
}

fn files(dir: &Path, ext: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    let mut list: Vec<_> = entries.filter(|p| p.extension().is_some_and(|e| e == ext)).collect();
    list.sort();
    list
}

/// The programs in a `.case` file, whose syntax `tests/harness/mod.rs` describes.
fn programs(text: &str, to: &mut Vec<String>) {
    let mut program: Option<String> = None;
    for line in text.lines().chain(["END"]) {
        match (&mut program, line.strip_prefix(' ')) {
            (Some(p), Some(more)) => {
                p.push_str(more.strip_prefix(" |").unwrap_or(more));
                p.push('\n');
            }
            (_, Some(_)) => {}
            (p, None) => {
                to.extend(p.take());
                *p = line.strip_prefix("PROG ").map(|t| format!("{t}\n")).or(line.starts_with("FILE ").then(String::new));
            }
        }
    }
}

/// Constructs that are rare in the repository.
const EXTRA: &[&str] = &[
    "#include <linux/sched.h>\n#define N 3 /* n */\nstruct a { int b; union { long c; char d[4]; }; } __attribute__((packed));\n\
     config = { max_strlen = 64; missing_probes = \"warn\" }\nimport \"x.bt\";\nmacro m($a, @b, c) { @b[$a] = c; $a + 1 }\n\
     fn f($a: uint64, $b: struct a *): int64 { if $a > 1 { return $b->b; } return -1 }\nlet @m = lruhash(100);\n\
     begin { $x = (1, \"a\", (uint8)3); $r = (a=1, b=$x.1); @m[$x, 2] = sum($r.a); print((1,)); }\n\
     x=tracepoint:sched:sched_switch, tracepoint:sched:sched_wakeup /pid != 0 && comm == \"a\"/ { @[kstack(3), comm] = count(); }\n",
    "begin { let $a: int8[4] = (int8[4])1; $b = $a[1] ? 2 : $a[2] ?: 3; $c = if $b { 1 } else if $b > 2 { 2 } else { { let $d = 3; $d } };\n\
     for ($i : 0..(3 + $b)) { if $i == 2 { continue } else { break } } for $kv : @x { print($kv.0); } while $b < 10 { $b++ } unroll(3) { @x[$b] = 1 } }",
    "interval:s:1 { printf(\"%-16s %5d %llx %s\\n\", comm, pid, nsecs, kstack); print(@a, 3, 1000); clear(@a); zero(@b); @a[tid] = hist(nsecs); @b = lhist(pid, 0, 100, 10); @c = stats(3); }",
    "begin { $t = curtask; print(sizeof(struct task_struct)); print($t->parent.tgid); print(offsetof(struct task_struct, pid)); print(*(uint32 *)$t); }",
    "begin { $s = str($1, 3); if (strncmp($s, \"ab\", 2) == 0 || strcontains($s, \"x\")) { exit(1); } printf(\"%s %r %d\", $s, buf(\"abc\", 3), getopt(\"n\", 3)); }",
];
