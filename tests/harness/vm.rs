//! Cases in a virtual machine: two machines side by side, each booted once, with this very
//! program run inside over half of the cases.

use crate::case::Case;
use crate::{Verdict, run};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// As many as there are test threads: each waits for one.
const MACHINES: usize = 2;

/// Is this the run within the machine?
pub fn is_inside() -> bool {
    std::env::var_os("RBT_TEST_VM_BATCH").is_some()
}

/// A case's name, as run in the machine.
pub fn name(case: &Case) -> String {
    let pattern = kernel();
    let release = pattern.split('.').take(2).collect::<Vec<_>>().join(".");
    format!("vm-{}::{}::{}", release.trim_end_matches(['*', '-']), crate::stem(&case.file), case.name)
}

/// The glob of the kernel's release.
fn kernel() -> String {
    std::env::var("RBT_TEST_KERNEL").unwrap_or_else(|_| "6.1.0-*-cloud-amd64".into())
}

/// The cases of one boot, and its results once somebody asked.
pub struct Batch {
    number: usize,
    cases: Vec<Arc<Case>>,
    done: OnceLock<Result<BTreeMap<String, Verdict>, Verdict>>,
}

/// Each case with the batch that it is in, the batches taking turns.
pub fn batches(cases: Vec<Arc<Case>>) -> Vec<(Arc<Case>, Arc<Batch>)> {
    let batch = |number| {
        let mine = cases.iter().enumerate().filter(|(i, _)| i % MACHINES == number).map(|(_, c)| c.clone()).collect();
        Arc::new(Batch { number, cases: mine, done: OnceLock::new() })
    };
    let all: Vec<_> = (0..MACHINES).map(batch).collect();
    cases.iter().cloned().zip(all.iter().cycle().cloned()).collect()
}

impl Batch {
    /// The verdict on one case; the first who asks boots the machine.
    pub fn result(&self, case: &Case) -> Verdict {
        match self.done.get_or_init(|| self.boot()) {
            Ok(all) => all.get(&case.full_name()).cloned().unwrap_or_else(|| Verdict::Fail("no result".into())),
            Err(v) => v.clone(),
        }
    }

    fn boot(&self) -> Result<BTreeMap<String, Verdict>, Verdict> {
        if let Some(what) = lacking() {
            return Err(Verdict::Skip(format!("{what}: tests/vm/vm-fetch.sh gets it")));
        }
        let fail = |e: std::io::Error| Verdict::Fail(format!("virtual machine: {e}"));
        let list = std::env::temp_dir().join(format!("rbt-batch.{}.{}", std::process::id(), self.number));
        let names: Vec<_> = self.cases.iter().map(|c| c.full_name()).collect();
        std::fs::write(&list, names.join("\n")).map_err(fail)?;
        let begun = Instant::now();
        let out = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vm/vmrun.sh"))
            .args(["-k", &kernel(), "--"])
            .arg(std::env::current_exe().map_err(fail)?)
            .env("RBT_TEST_VM_BATCH", &list)
            .env("VM_TIMEOUT", std::env::var("VM_TIMEOUT").unwrap_or_else(|_| "540".into()))
            .stdin(Stdio::null())
            .output()
            .map_err(fail)?;
        let _ = std::fs::remove_file(&list);
        let mut all = BTreeMap::new();
        for line in String::from_utf8_lossy(&out.stdout).lines() {
            if let Some((name, v)) = read(line) {
                all.insert(name, v);
            }
        }
        eprintln!("virtual machine {}: {} cases in {:.0} s", self.number + 1, all.len(), begun.elapsed().as_secs_f64());
        let err = String::from_utf8_lossy(&out.stderr);
        for name in names {
            all.entry(name).or_insert_with(|| Verdict::Fail(format!("the machine ended before this case did: {}\n{err}", out.status)));
        }
        Ok(all)
    }
}

/// Within the machine: runs the listed cases, a line of JSON for each.
pub fn inside(list: &Path) -> ExitCode {
    let wanted = std::fs::read_to_string(list).unwrap_or_default();
    let (cases, _) = crate::load();
    for name in wanted.lines() {
        let Some(case) = cases.iter().find(|c| c.full_name() == name) else { continue };
        let (verdict, text) = match run::run(case) {
            Verdict::Pass => ("pass", String::new()),
            Verdict::Skip(why) => ("skip", why),
            Verdict::Fail(why) => ("fail", why),
        };
        println!("{}", json!({"name": name, "verdict": verdict, "text": text}));
        let _ = std::io::stdout().flush();
    }
    ExitCode::SUCCESS
}

fn read(line: &str) -> Option<(String, Verdict)> {
    let v: Value = serde_json::from_str(line).ok()?;
    let text = v["text"].as_str()?.to_string();
    let verdict = match v["verdict"].as_str()? {
        "pass" => Verdict::Pass,
        "skip" => Verdict::Skip(text),
        _ => Verdict::Fail(text),
    };
    Some((v["name"].as_str()?.into(), verdict))
}

/// What of the machine's parts is not here.
fn lacking() -> Option<&'static str> {
    let kernels = cache().join("kernels");
    let glob = kernel();
    let start = glob.split('*').next().unwrap_or("");
    let any = std::fs::read_dir(kernels).into_iter().flatten().flatten().any(|e| e.file_name().to_string_lossy().starts_with(start));
    let qemu = "qemu-system-x86_64";
    let here = cache().join("qemu/usr/bin").join(qemu).exists() || crate::need::missing(&[qemu.into()]).is_none();
    match (any, here) {
        (false, _) => Some("a kernel for the virtual machine"),
        (_, false) => Some("QEMU"),
        _ => None,
    }
}

/// Where vm-fetch.sh puts things.
fn cache() -> PathBuf {
    let var = |n| std::env::var_os(n).filter(|v| !v.is_empty()).map(PathBuf::from);
    let user = || var("XDG_CACHE_HOME").or_else(|| Some(var("HOME")?.join(".cache")));
    var("VM_CACHE").unwrap_or_else(|| user().unwrap_or_default().join("rbt-vm"))
}
