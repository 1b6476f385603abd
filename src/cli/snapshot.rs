//! The options of `rbt snapshot`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser};

use super::{Command, Program};
use crate::failure::{Failure, reason};

/// Exit status after wrong usage, as for `rbt check`.
const WRONG: u8 = 2;
/// Exit status if a file is unreadable or unwritable.
pub const NOT_DONE: u8 = 3;

/// A request to make or show snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The task.
    pub task: Task,
    /// Color on standard error.
    pub color: bool,
}

/// The task of [`Snapshot`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Describe a kernel.
    Make {
        /// The kernel.
        from: Origin,
        /// `--for`: keep what these scripts need. If there are none, keep everything.
        scripts: Vec<Program>,
        /// `-o`. Without it, the file is named after the kernel; `-` is standard output.
        to: Option<PathBuf>,
        /// `-q`
        quiet: bool,
    },
    /// Show the contents of these snapshots.
    Show(Vec<PathBuf>),
}

/// Describe a kernel in a file, so that you can check scripts against it elsewhere.
///
/// A snapshot contains the types (BTF) of the kernel and its modules, its events and their formats, the functions that can and
/// cannot be traced, its BPF features, and its configuration. It contains nothing about the workload or the users of the
/// machine. `rbt check --against FILE` and `rbt -l --against FILE` read it, and need neither root nor BPF.
///
/// Measured sizes are 2 MB for a kernel without modules, 5 MB for a package of Linux 6.1 with 1,100 modules, and 27 MB for one of
/// Linux 7.2 with 1,000. With --for, 70 scripts need 30 to 60 kB, and one script about 5 kB.
#[derive(Parser, Debug)]
#[command(
    name = "rbt snapshot",
    bin_name = "rbt snapshot",
    override_usage = "rbt snapshot [-o FILE] [--for SCRIPTS] [--from SNAPSHOT | --from-package DIR | --from-vmlinux FILE]
       rbt snapshot --show FILES",
    disable_version_flag = true,
    args_override_self = true,
    after_help = EXAMPLES
)]
pub(super) struct Raw {
    /// Write to FILE, or to standard output for `-`, and replace an existing file atomically [default: named after the kernel, such as 6.1.0-18-amd64.rbts]
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Keep only what these scripts need, where a directory stands for the scripts (*.bt) in it
    #[arg(long = "for", value_name = "SCRIPTS", num_args = 1.., value_hint = clap::ValueHint::FilePath)]
    scripts: Vec<OsString>,
    /// With --for, read this snapshot instead of the running kernel
    #[arg(long, value_name = "SNAPSHOT", group = "place", value_hint = clap::ValueHint::FilePath)]
    from: Option<PathBuf>,
    /// Read a kernel package, unpacked into this directory (dpkg-deb -x, rpm2cpio), instead of the running kernel
    #[arg(long, value_name = "DIR", group = "place", value_hint = clap::ValueHint::DirPath)]
    from_package: Option<PathBuf>,
    /// Read a kernel image, vmlinux or vmlinuz, which does not describe modules
    #[arg(long, value_name = "FILE", group = "place", value_hint = clap::ValueHint::FilePath)]
    from_vmlinux: Option<PathBuf>,
    /// Show the contents of these snapshots instead of making one
    #[arg(long, value_name = "FILES", num_args = 1.., conflicts_with_all = ["output", "quiet", "scripts", "place"], value_hint = clap::ValueHint::FilePath)]
    show: Vec<PathBuf>,
    /// Print nothing on success
    #[arg(short, long)]
    quiet: bool,
    /// Color messages: auto, always or never
    #[arg(long, value_name = "WHEN")]
    color: Option<String>,
}

const EXAMPLES: &str =
    "Root can read everything. Other users can read the types, the names of symbols, and often the configuration. rbt reports the \
     facts that it could not read, which are missing from the snapshot. The files of a kernel package can be read without root, but \
     do not contain the list of loaded modules, the IDs of events, and the kernel functions that BPF programs may call.

Examples:
  sudo rbt snapshot                          describe this machine in a file named after its kernel
  ssh root@host rbt snapshot -o - > k.rbts   describe another machine
  rbt snapshot --for *.bt -o small.rbts      keep only what some scripts need
  dpkg-deb -x linux-image-*.deb k && rbt snapshot --from-package k
                                             describe a kernel from its package
  rbt snapshot --show k.rbts                 show the kernel and the contents of a snapshot
  rbt -lv 'tracepoint:sched:*' --against k.rbts
                                             list the probes of that kernel

Exit status:
  0    success, even if something could not be read
  2    wrong usage
  3    an unreadable or unwritable file, or a damaged snapshot";

/// The source of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The running kernel.
    Machine,
    /// Another snapshot.
    Snapshot(PathBuf),
    /// A kernel image.
    Vmlinux(PathBuf),
    /// A directory with the files of a kernel package.
    Package(PathBuf),
}

/// Parses the arguments after `rbt snapshot`.
pub(super) fn parse(args: &[OsString]) -> Result<Command, Failure> {
    let error = |f: Failure| f.status(WRONG);
    let found = match super::usage::matches("snapshot", Raw::command(), args).map_err(error)? {
        Ok(found) => found,
        Err(help) => return Ok(Command::Say(help)),
    };
    let raw = Raw::from_arg_matches(&found).map_err(|e| error(Failure::new(e.to_string())))?;
    let task = if raw.show.is_empty() {
        let from = match (raw.from, raw.from_package, raw.from_vmlinux) {
            (Some(file), _, _) => Origin::Snapshot(file),
            (_, Some(dir), _) => Origin::Package(dir),
            (_, _, Some(file)) => Origin::Vmlinux(file),
            (None, None, None) => Origin::Machine,
        };
        Task::Make { from, scripts: scripts(raw.scripts).map_err(error)?, to: raw.output, quiet: raw.quiet }
    } else {
        Task::Show(raw.show)
    };
    let color = super::color(raw.color.as_deref()).map_err(error)?;
    Ok(Command::Subcommand(Box::new(Snapshot { task, color })))
}

/// Scripts by their paths and names, and those of directories.
fn scripts(words: Vec<OsString>) -> Result<Vec<Program>, Failure> {
    let mut all = Vec::new();
    for word in words {
        let folder = PathBuf::from(&word);
        if !folder.is_dir() {
            all.push(Program::of(word));
            continue;
        }
        let cannot = |why: String| Failure::new(format!("cannot read the directory {}: {why}", folder.display())).code("not-readable");
        let entries = std::fs::read_dir(&folder).map_err(|e| cannot(reason(&e)))?;
        let mut found: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "bt")).collect();
        if found.is_empty() {
            return Err(cannot("it contains no script (.bt)".into()).help("name the scripts"));
        }
        found.sort();
        all.extend(found.into_iter().map(Program::File));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::any::Any;

    use super::*;

    fn parsed(args: &[&str]) -> Result<Command, Failure> {
        super::super::parse(["rbt", "snapshot"].iter().chain(args).map(OsString::from))
    }

    fn task(args: &[&str]) -> Task {
        match parsed(args) {
            Ok(Command::Subcommand(action)) => (action as Box<dyn Any>).downcast::<Snapshot>().unwrap().task,
            other => panic!("{args:?}: {other:?}"),
        }
    }

    #[test]
    fn options_select_the_task() {
        let plain = Task::Make { from: Origin::Machine, scripts: vec![], to: None, quiet: false };
        assert_eq!(task(&[]), plain);
        assert_eq!(task(&["-qo", "-"]), Task::Make { from: Origin::Machine, scripts: vec![], to: Some("-".into()), quiet: true });
        let Task::Make { from, scripts, .. } = task(&["--for", "a.bt", "opensnoop", "--from", "k"]) else { panic!() };
        assert_eq!((from, scripts.len(), &scripts[0]), (Origin::Snapshot("k".into()), 2, &Program::File("a.bt".into())));
        assert!(matches!(scripts[1], Program::Tool(_)));
        assert_eq!(task(&["--show", "a", "b"]), Task::Show(vec!["a".into(), "b".into()]));
        for args in [
            &["a"][..],
            &["--show"],
            &["--show", "a", "-o", "b"],
            &["--shwo", "a"],
            &["--for", "/sys"],
            &["--from", "a", "--from-package", "b"],
        ] {
            let failure = parsed(args).unwrap_err();
            assert_eq!((failure.status, failure.help.is_some()), (2, true), "{args:?}: {failure:?}");
        }
        let Ok(Command::Say(help)) = parsed(&["--help"]) else { panic!() };
        assert!(help.contains("--show") && help.contains("Exit status"), "{help}");
    }
}
