//! `rbt info`: the features of this machine and this build. It only reads, and works without root as far as possible.

use std::io::{self, Write};

use rustix::process::{Resource, getrlimit};

use crate::diag::{plain, plural};
use crate::input::line;
use crate::probes::{ContextFeatures, Env, KINDS};
use crate::runtime;
use crate::system::machine::rights::{self, CAPABILITIES};
use crate::system::{Feature, TargetInfo};

/// Writes the report: groups with a heading, each with names and values.
pub fn report(env: &Env, out: &mut dyn Write) -> io::Result<()> {
    let caps = rights::effective();
    let missing = runtime::missing_privileges();
    let may_ask = missing.is_none();
    group(out, "System", system(env.sys))?;
    group(out, "Build", build())?;
    group(out, "Rights", rights_held(caps, missing))?;
    group(out, "Kernel features", features(env.sys, may_ask))?;
    group(out, "Limits", limits())?;
    // counting the probes of each kind takes longer than everything before
    out.flush()?;
    group(out, "Probe kinds", kinds(env))?;
    if !may_ask {
        writeln!(out, "\nRun as root to see everything: sudo rbt info")?;
    }
    out.flush()
}

type Rows = Vec<(String, String)>;

fn group(out: &mut dyn Write, title: &str, rows: Rows) -> io::Result<()> {
    writeln!(out, "{title}")?;
    rows.iter().try_for_each(|(name, value)| writeln!(out, "  {name:26} {}", plain(value)))
}

fn row(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_string(), value.into())
}

fn yes(b: bool) -> &'static str {
    if b { "yes" } else { "no" }
}

fn system(sys: &dyn TargetInfo) -> Rows {
    let os = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let os = os.lines().find_map(|l| l.strip_prefix("PRETTY_NAME=")).unwrap_or("unknown").trim_matches('"');
    vec![
        row("OS", os),
        row("Kernel", line("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into())),
        row("Kernel build", line("/proc/sys/kernel/version").unwrap_or_else(|| "unknown".into())),
        row("Arch", std::env::consts::ARCH),
        row("CPUs", format!("{} online, {} possible", sys.online_cpus().len(), sys.possible_cpus())),
    ]
}

fn build() -> Rows {
    let llvm = if cfg!(feature = "dynamic-llvm") { "19, shared library" } else { "19, built in" };
    let libbpf = locked("libbpf-sys").map_or("built in", |v| v.split('+').next().unwrap_or(v));
    vec![
        row("rbt", format!("v{}", crate::VERSION)),
        row("LLVM", llvm),
        row("libbpf", libbpf),
        row("blazesym", locked("blazesym").unwrap_or("built in")),
    ]
}

/// A dependency's version in this build.
fn locked(name: &str) -> Option<&'static str> {
    let lock = include_str!("../Cargo.lock");
    let (_, after) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    after.split('"').next()
}

fn rights_held(caps: u64, missing: Option<String>) -> Rows {
    let mut rows: Rows = CAPABILITIES.iter().map(|c| row(c.name, format!("{:5}{}", yes(caps >> c.bit & 1 == 1), c.doc))).collect();
    rows.push(row("can trace", missing.map_or_else(|| "yes".into(), |m| format!("no: {m}"))));
    rows.push(row("lockdown", rights::lockdown().unwrap_or_else(|| "unknown (no securityfs)".into())));
    for (name, path) in [
        ("perf_event_paranoid", "/proc/sys/kernel/perf_event_paranoid"),
        ("kptr_restrict", "/proc/sys/kernel/kptr_restrict"),
        ("unprivileged_bpf_disabled", "/proc/sys/kernel/unprivileged_bpf_disabled"),
    ] {
        rows.push(row(name, line(path).unwrap_or_else(|| "unknown".into())));
    }
    rows
}

fn features(sys: &dyn TargetInfo, may_ask: bool) -> Rows {
    let mut rows = vec![row(
        "types (BTF)",
        match sys.types_missing() {
            None => "yes".to_string(),
            Some(missing) => format!("no: {}", missing.what),
        },
    )];
    let modules = std::fs::read_dir("/sys/kernel/btf").map(|d| d.count().saturating_sub(1)).unwrap_or(0);
    rows.push(row("types of modules", plural(modules, "module", "modules")));
    rows.push(row(
        "tracefs",
        match sys.has_tracepoint("sched", "sched_switch") {
            Ok(_) => tracefs_place().unwrap_or("not mounted; rbt uses a private mount").to_string(),
            Err(missing) => format!("no: {}", missing.what),
        },
    ));
    rows.push(row(
        "BPF JIT",
        match line("/proc/sys/net/core/bpf_jit_enable").as_deref() {
            Some("0") => "no",
            Some(_) => "yes",
            None => "unknown",
        },
    ));
    for feature in [
        Feature::Kprobe,
        Feature::KprobeMulti,
        Feature::KprobeSession,
        Feature::Trampoline,
        Feature::UprobeMulti,
        Feature::PerfCookie,
        Feature::RawTracepointCookie,
        Feature::CpuV4,
        Feature::Override,
        Feature::Loop,
        Feature::ForEach,
        Feature::Fetch,
    ] {
        rows.push(row(feature.title(), if may_ask { yes(sys.has(feature)) } else { "unknown (needs CAP_BPF)" }));
    }
    rows
}

fn tracefs_place() -> Option<&'static str> {
    ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].into_iter().find(|p| std::path::Path::new(p).join("events").is_dir())
}

fn limits() -> Rows {
    let limit = |which, scale: u64| {
        let text = |n: Option<u64>| n.map_or_else(|| "unlimited".to_string(), |n| (n / scale).to_string());
        let limit = getrlimit(which);
        format!("{} (at most {})", text(limit.current), text(limit.maximum))
    };
    let stats = line("/proc/sys/kernel/bpf_stats_enabled").map_or("unknown", |v| yes(v != "0"));
    vec![
        row("open files", limit(Resource::Nofile, 1)),
        row("locked memory, KiB", limit(Resource::Memlock, 1024)),
        row("BPF run times kept", stats),
    ]
}

/// Kinds of the kernel are counted by listing them.
fn kinds(env: &Env) -> Rows {
    let describe = |kind: &&dyn crate::probes::ProbeKind| {
        let name = kind.name();
        if let Some(why) = kind.unavailable(env) {
            return row(name, format!("no: {}", why.what));
        }
        if kind.offers().contains(ContextFeatures::BINARY) {
            return row(name, kind.usage());
        }
        let mut count = 0u64;
        let counted = kind.list(&["*".into()], env, &mut |_| count += 1);
        row(
            name,
            match counted {
                Err(missing) => format!("no: {}", missing.what),
                Ok(()) if count > 1 => format!("{} ({count} here)", kind.usage()),
                Ok(()) => kind.usage().to_string(),
            },
        )
    };
    KINDS.iter().map(describe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use crate::system::machine::live::Live;

    #[test]
    fn the_report_has_its_groups() {
        let (sys, settings) = (Live::new(), Settings::default());
        let mut out = Vec::new();
        report(&Env::new(&sys, &settings), &mut out).unwrap();
        let text = String::from_utf8_lossy(&out);
        for part in ["System\n", "Build\n", "Kernel features\n", "CAP_BPF", "blazesym", "libbpf                     1."] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
