//! Runs cases in virtual machines. Two machines run in parallel. Each boots once, and runs this test binary with half of the
//! cases.

use super::case::Case;
use super::{Verdict, run, times};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

/// The number of machines. It is the number of test threads, because each thread waits for one machine. RBT_TEST_MACHINES
/// overrides it.
const MACHINES: usize = 2;
/// The number of cases that justify another machine.
const ENOUGH: usize = 16;

/// The number of machines that may run the cases of a batch one after the other.
const BOOTS: usize = 3;

/// The kernels of cases that only the matrix runs.
pub const MATRIX: &str = "matrix";

/// The kernel names for `VM`, with patterns of their releases. `yes` means the first kernel.
fn known() -> impl Iterator<Item = (&'static str, &'static str)> {
    let words = |l: &'static str| (!l.starts_with('#')).then(|| l.split_whitespace());
    include_str!("../vm/kernels").lines().filter_map(words).filter_map(|mut w| Some((w.next()?, w.next()?)))
}

/// Does this process run in a virtual machine?
pub fn is_inside() -> bool {
    std::env::var_os("RBT_TEST_VM_BATCH").is_some()
}

/// The factor by which a case may take longer here than outside of a virtual machine.
pub fn slowness() -> f64 {
    if is_inside() { slowness_inside(cfg!(target_arch = "aarch64")) } else { 1.0 }
}

/// That factor in a virtual machine. QEMU emulates the instructions of an arm64 processor.
fn slowness_inside(arm64: bool) -> f64 {
    if arm64 { 20.0 } else { 6.0 }
}

/// The environment variable that names the arm64 build of this test, which tests/vm/matrix.sh makes.
const ARM64: &str = "RBT_TEST_ARM64";

/// Parses the value of `VM`: `yes`, `no`, `matrix`, or names of kernels.
pub fn releases(value: &str) -> Result<Vec<String>, String> {
    let one = |w: &str| match w {
        "yes" => known().next().map(|(name, _)| name.to_string()).ok_or("tests/vm/kernels is empty".into()),
        MATRIX => Ok(MATRIX.into()),
        _ => known().find(|(name, _)| *name == w).map(|(n, _)| n.to_string()).ok_or(format!("unknown kernel {w:?}")),
    };
    value.split_whitespace().filter(|w| *w != "no").map(one).collect()
}

/// The kernels of a case, each with its name and pattern. RBT_TEST_KERNEL, a name or a pattern, replaces them.
fn kernels(case: &Case) -> Vec<(String, String)> {
    let glob = |name: &str| known().find(|(n, _)| *n == name).map(|(_, glob)| glob.to_string());
    match std::env::var("RBT_TEST_KERNEL") {
        _ if case.vm.is_empty() => Vec::new(),
        Ok(name) => match glob(&name) {
            Some(glob) => vec![(name, glob)],
            None => {
                let release = name.split('.').take(2).collect::<Vec<_>>().join(".");
                vec![(release.trim_end_matches(['*', '-']).to_string(), name)]
            }
        },
        Err(_) => case.vm.iter().filter_map(|name| Some((name.clone(), glob(name)?))).collect(),
    }
}

/// The cases of one boot, and their results, which are available after the first request.
pub struct Batch {
    name: String,
    kernel: String,
    cases: Vec<Arc<Case>>,
    done: OnceLock<Result<BTreeMap<String, Verdict>, Verdict>>,
}

/// A case on a kernel.
pub struct Trial {
    pub name: String,
    pub case: Arc<Case>,
    pub batch: Arc<Batch>,
}

/// All selected cases for virtual machines. The cases of one kernel are distributed over its machines.
pub fn trials(cases: &[Arc<Case>], selected: impl Fn(&str) -> bool) -> Vec<Trial> {
    type Named = (String, Arc<Case>);
    let mut by_kernel: BTreeMap<(String, String), Vec<Named>> = BTreeMap::new();
    for case in cases {
        for (release, glob) in kernels(case) {
            let name = format!("vm-{release}::{}::{}", super::stem(&case.file), case.name);
            if selected(&name) {
                by_kernel.entry((release, glob)).or_default().push((name, case.clone()));
            }
        }
    }
    let mut all = Vec::new();
    for ((release, kernel), cases) in by_kernel {
        let most = std::env::var("RBT_TEST_MACHINES").ok().and_then(|v| v.parse().ok()).unwrap_or(MACHINES).max(1);
        let machines = if cases.len() < ENOUGH { 1 } else { most };
        let batch = |number| {
            let mine = cases.iter().enumerate().filter(|(i, _)| i % machines == number).map(|(_, (_, c))| c.clone()).collect();
            let name = format!("{release}.{}", number + 1);
            Arc::new(Batch { name, kernel: kernel.clone(), cases: mine, done: OnceLock::new() })
        };
        let batches: Vec<_> = (0..machines).map(batch).collect();
        let turns = cases.into_iter().zip(batches.iter().cycle().cloned());
        all.extend(turns.map(|((name, case), batch)| Trial { name, case, batch }));
    }
    all
}

impl Batch {
    /// Returns the result of one case. The first request boots the machine.
    pub fn result(&self, case: &Case) -> Verdict {
        match self.done.get_or_init(|| self.boot()) {
            Ok(all) => all.get(&case.full_name()).cloned().unwrap_or_else(|| Verdict::Fail("no result".into())),
            Err(v) => v.clone(),
        }
    }

    fn boot(&self) -> Result<BTreeMap<String, Verdict>, Verdict> {
        let arm64 = self.kernel.ends_with("-arm64");
        if let Some(what) = lacking(&self.kernel, arm64) {
            return Err(Verdict::Skip(format!("{what}: run tests/vm/vm-fetch.sh to install it")));
        }
        let fail = |e: std::io::Error| Verdict::Fail(format!("virtual machine: {e}"));
        let program: PathBuf = match (arm64, std::env::var_os(ARM64)) {
            (false, _) => std::env::current_exe().map_err(fail)?,
            (true, Some(program)) => program.into(),
            (true, None) => return Err(Verdict::Skip(format!("{ARM64}, the tests for arm64, which tests/vm/matrix.sh builds"))),
        };
        // The machine can always read the project's directory, even with another root directory.
        let list = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rbt-batch.{}.{}", std::process::id(), self.name));
        for case in &self.cases {
            super::travel::build(case).map_err(Verdict::Fail)?;
        }
        if arm64 {
            run::build_fixtures("aarch64");
        }
        let begun = Instant::now();
        let mut all = BTreeMap::new();
        let mut left: Vec<&Case> = self.cases.iter().map(AsRef::as_ref).collect();
        // The case in which a machine ends has failed. Another machine runs the cases after it.
        for _ in 0..BOOTS {
            let names: Vec<_> = left.iter().map(|c| c.full_name()).collect();
            std::fs::write(&list, names.join("\n")).map_err(fail)?;
            let mut machine = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vm/vmrun.sh"));
            if arm64 {
                machine.args(["-r", env!("CARGO_MANIFEST_DIR")]).env_remove("RBT_TEST_BIN");
            }
            machine.args(["-k", &self.kernel, "--"]).arg(&program).env("RBT_TEST_VM_BATCH", &list);
            machine.env("VM_TIMEOUT", std::env::var("VM_TIMEOUT").unwrap_or_else(|_| "1800".into()));
            let end = self.run_machine(machine, &left).map_err(fail)?;
            left.drain(..end.verdicts.len());
            all.extend(end.verdicts);
            if left.is_empty() {
                break;
            }
            let case = left.remove(0).full_name();
            eprintln!("virtual machine {}: ended in {case}: {}", self.name, end.reason);
            all.insert(case, Verdict::Fail(format!("the machine ended in this case: {}", end.reason)));
        }
        let lost = || Verdict::Fail(format!("not run, because {BOOTS} machines ended in other cases"));
        all.extend(left.into_iter().map(|case| (case.full_name(), lost())));
        let _ = std::fs::remove_file(&list);
        eprintln!("virtual machine {}: {} cases in {:.0} s", self.name, all.len(), begun.elapsed().as_secs_f64());
        Ok(all)
    }

    /// Runs a machine until its command ends, or until it has not reported a result for a long time.
    fn run_machine(&self, mut machine: Command, cases: &[&Case]) -> std::io::Result<MachineEnd> {
        let begun = Instant::now();
        let mut machine = machine.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (sender, lines) = mpsc::channel();
        let out = machine.stdout.take();
        std::thread::spawn(move || {
            out.into_iter().flat_map(|out| BufReader::new(out).lines()).flatten().try_for_each(|line| sender.send(line))
        });
        let mut err = machine.stderr.take();
        let (teller, told) = mpsc::channel();
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = err.as_mut().map(|err| err.read_to_end(&mut text));
            teller.send(String::from_utf8_lossy(&text).into_owned())
        });
        let slowness = slowness_inside(self.kernel.ends_with("-arm64"));
        let (mut verdicts, mut work, mut silent) = (Vec::new(), Duration::ZERO, false);
        loop {
            // After the last case, a machine only ends.
            let longest = cases.get(verdicts.len()).map_or(Duration::ZERO, |case| run::limit(case, slowness));
            match lines.recv_timeout(longest + Duration::from_secs_f64(20.0 * slowness)) {
                Ok(line) => {
                    if let Some((name, verdict, took)) = read(&line) {
                        times::note(&format!("vm-{}::{name}", self.name), took);
                        work += took;
                        verdicts.push((name, verdict));
                    }
                }
                // vmrun.sh ends the machine. One signal is enough: another one would interrupt vmrun.sh while it does so.
                Err(mpsc::RecvTimeoutError::Timeout) if !silent => {
                    silent = true;
                    run::terminate(&machine);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    machine.kill()?;
                    break;
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = machine.wait()?;
        times::note(&format!("vm-{}, boot and end", self.name), begun.elapsed().saturating_sub(work));
        let silence = if silent { "no result for a long time, " } else { "" };
        // A process of a machine that was killed can have the messages' pipe open.
        let told = told.recv_timeout(Duration::from_secs(10)).unwrap_or_default();
        Ok(MachineEnd { verdicts, reason: format!("{silence}{status}\n{told}") })
    }
}

/// The results of a machine in order, and why it ended.
struct MachineEnd {
    verdicts: Vec<(String, Verdict)>,
    reason: String,
}

/// Runs the listed cases in the virtual machine, and prints a line of JSON for each.
pub fn inside(list: &Path) -> ExitCode {
    let wanted = std::fs::read_to_string(list).unwrap_or_default();
    let (cases, _) = super::load();
    for name in wanted.lines() {
        let Some(case) = cases.iter().find(|c| c.full_name() == name) else { continue };
        let begun = Instant::now();
        let (verdict, text) = match run::run(case) {
            Verdict::Pass => ("pass", String::new()),
            Verdict::Skip(why) => ("skip", why),
            Verdict::Fail(why) => ("fail", why),
        };
        println!("{}", json!({"name": name, "verdict": verdict, "text": text, "seconds": begun.elapsed().as_secs_f64()}));
        let _ = std::io::stdout().flush();
    }
    ExitCode::SUCCESS
}

fn read(line: &str) -> Option<(String, Verdict, Duration)> {
    let v: Value = serde_json::from_str(line).ok()?;
    let text = v["text"].as_str()?.to_string();
    let verdict = match v["verdict"].as_str()? {
        "pass" => Verdict::Pass,
        "skip" => Verdict::Skip(text),
        _ => Verdict::Fail(text),
    };
    Some((v["name"].as_str()?.into(), verdict, Duration::try_from_secs_f64(v["seconds"].as_f64()?).ok()?))
}

/// Returns the part of the machine that is missing.
fn lacking(glob: &str, arm64: bool) -> Option<&'static str> {
    let kernels = cache().join("kernels");
    let (start, end) = glob.split_once('*').unwrap_or((glob, ""));
    let named = |name: &str| name.strip_prefix(start).is_some_and(|rest| rest.ends_with(end));
    let any = std::fs::read_dir(kernels).into_iter().flatten().flatten().any(|e| named(&e.file_name().to_string_lossy()));
    let (qemu, folder) = if arm64 { ("qemu-system-aarch64", "arm64/qemu") } else { ("qemu-system-x86_64", "qemu") };
    let here = cache().join(folder).join("usr/bin").join(qemu).exists() || super::need::missing(&[qemu.into()]).is_none();
    match (any, here) {
        (false, _) => Some("a kernel for the virtual machine"),
        (_, false) => Some("QEMU"),
        _ => None,
    }
}

/// The directory in which vm-fetch.sh stores files.
fn cache() -> PathBuf {
    let var = |n| std::env::var_os(n).filter(|v| !v.is_empty()).map(PathBuf::from);
    let user = || var("XDG_CACHE_HOME").or_else(|| Some(var("HOME")?.join(".cache")));
    var("VM_CACHE").unwrap_or_else(|| user().unwrap_or_default().join("rbt-vm"))
}
