//! Runs a tracer, and caches the results of bpftrace.

use super::row::{Kind, Row};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Said {
    pub status: i32,
    pub out: String,
    pub err: String,
}

/// The two tracers.
pub struct Tracers {
    theirs: PathBuf,
    /// A text that identifies the build of bpftrace.
    version: String,
    kept: PathBuf,
}

/// The maximum duration of a run in seconds.
const TIMEOUT: &str = "300";

impl Tracers {
    pub fn new(theirs: &Path) -> std::io::Result<Self> {
        let meta = std::fs::metadata(theirs)?;
        let version = format!("{} {:?} {}", theirs.display(), meta.modified()?, meta.len());
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("oracle");
        std::fs::create_dir_all(&kept)?;
        Ok(Self { theirs: theirs.into(), version, kept })
    }

    pub fn ours(&self, row: &Row, text: &str, json: bool) -> Said {
        let rbt = std::env::var_os("RBT_TEST_BIN").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_rbt")), PathBuf::from);
        run(&rbt, row, text, json)
    }

    /// The file that caches the result of bpftrace.
    fn place(&self, row: &Row, text: &str, json: bool) -> PathBuf {
        let mut hash = DefaultHasher::new();
        (&self.version, text, &row.args, json, row.kind == Kind::Shell).hash(&mut hash);
        self.kept.join(format!("{:016x}", hash.finish()))
    }

    /// Removes the result of bpftrace from the cache.
    pub fn forget(&self, row: &Row, text: &str, json: bool) {
        let _ = std::fs::remove_file(self.place(row, text, json));
    }

    pub fn theirs(&self, row: &Row, text: &str, json: bool) -> Said {
        let place = self.place(row, text, json);
        if let Some(said) = std::fs::read_to_string(&place).ok().and_then(|t| unpack(&t)) {
            return said;
        }
        let said = run(&self.theirs, row, text, json);
        // A timeout says nothing about the script.
        if said.status != 124 {
            let _ = std::fs::write(&place, format!("{} {}\n{}{}", said.status, said.out.len(), said.out, said.err));
        }
        said
    }
}

/// Removes bpftrace's warnings about the script, which precede its output. A warning consists of the position and the text, the
/// script's line, and marks below it.
fn without_warnings(out: &str) -> String {
    let (mut kept, mut within) = (String::new(), false);
    for line in out.split_inclusive('\n') {
        let marks = !line.trim().is_empty() && line.trim().chars().all(|c| c == '~');
        let begins = ["stdin:", "stdlib/", "HINT: "].iter().any(|from| line.starts_with(from))
            && [": WARNING: ", "HINT: "].iter().any(|w| line.contains(w));
        match (within, begins, marks) {
            (_, true, _) => within = !line.starts_with("HINT: "),
            (true, false, true) => within = false,
            (true, false, false) => {}
            (false, false, _) => kept.push_str(line),
        }
    }
    kept
}

/// The directory of the compiled fixtures.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("fixtures")
}

fn unpack(text: &str) -> Option<Said> {
    let (head, rest) = text.split_once('\n')?;
    let (status, length) = head.split_once(' ')?;
    let (out, err) = rest.split_at_checked(length.parse().ok()?)?;
    Some(Said { status: status.parse().ok()?, out: out.into(), err: err.into() })
}

fn run(tracer: &Path, row: &Row, text: &str, json: bool) -> Said {
    let fixtures = fixtures();
    let format = if json { "-f json" } else { "" };
    let mut c = Command::new("timeout");
    let shell = match row.kind {
        Kind::Shell => text.to_string(),
        Kind::Statements | Kind::Script => format!("exec $T {format} -q -e \"$SCRIPT\" {}", row.args),
    };
    c.args([TIMEOUT, "sh", "-c", &shell]).env("SCRIPT", text).env("T", tracer).env("F", &fixtures).env("FORMAT", format);
    c.env_remove("BPFTRACE_COLOR").stdin(Stdio::null());
    match c.output() {
        Ok(out) => Said {
            status: out.status.code().unwrap_or(-1),
            out: without_warnings(&String::from_utf8_lossy(&out.stdout)),
            err: String::from_utf8_lossy(&out.stderr).into_owned(),
        },
        Err(e) => Said { status: -1, out: String::new(), err: e.to_string() },
    }
}
