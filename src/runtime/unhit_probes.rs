//! Probes that were never hit, and the likely reasons.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::load::MapFd;
use super::maps;
use crate::codegen::artifact::{AttachSite, Manifest};
use crate::diag::plural;
use crate::probes::{Attach, syscall};
use crate::system::machine::procfs;
use crate::system::{Function, TargetInfo, kernel::noreturn};

/// Notes about the attach points whose sites were never hit. `failed` sites were not attached.
pub(super) fn notes(manifest: &Manifest, hits: MapFd, failed: &BTreeSet<String>, pid: Option<u32>, sys: &dyn TargetInfo) -> Vec<String> {
    let Some(bytes) = maps::first(hits) else { return Vec::new() };
    let hit = |index: usize| bytes.get(index).is_some_and(|b| *b != 0);
    // for each attach point, in the script's order: whether one of its sites was hit, and the number of its sites
    let mut points: Vec<(&AttachSite, bool, usize)> = Vec::new();
    for of in &manifest.hits {
        let Some(program) = manifest.programs.get(of.program) else { continue };
        let (from, many) = of.sites;
        for (i, site) in program.sites.iter().skip(from).take(many).enumerate().filter(|(_, s)| !failed.contains(&s.name)) {
            let was = hit(of.first as usize + if of.each { i } else { 0 });
            match points.iter_mut().find(|(first, ..)| first.pos == site.pos) {
                Some((_, any, n)) => {
                    *any |= was;
                    *n += 1;
                }
                None => points.push((site, was, 1)),
            }
        }
    }
    points.sort_by_key(|(site, ..)| (site.pos.file.clone(), site.pos.line, site.pos.col));
    let note = |(site, _, n): &(&AttachSite, bool, usize)| {
        // a marker has a site for each place at which the compiler inlined it
        let others = if *n > 1 && !matches!(site.attach, Attach::Usdt { .. }) { format!(" and {} more", n - 1) } else { String::new() };
        let verb = if others.is_empty() { "was" } else { "were" };
        format!("note: {}{others} {verb} never hit: {}", site.name, reason(&site.attach, pid, sys))
    };
    points.iter().filter(|(_, any, _)| !any).map(note).collect()
}

/// The likely reason.
fn reason(attach: &Attach, pid: Option<u32>, sys: &dyn TargetInfo) -> String {
    if never_returns(attach, sys) {
        return "it does not return".into();
    }
    if let Attach::Uprobe { path, function, .. } = attach
        && sys.binary(path).is_ok_and(|binary| binary.variants(function).next().is_some())
    {
        return "the compiler split or copied it, and callers may use those functions".into();
    }
    if let Some(path) = attach.binary() {
        let marker = matches!(attach, Attach::Usdt { .. });
        return match users_of(path, pid) {
            Users { in_namespace: 0, replaced: Some(pid) } => format!("process {pid} runs an older version of this {}", path.display()),
            Users { in_namespace: 0, replaced: None } => match pid {
                Some(pid) => format!("process {pid} does not have that file mapped now"),
                None => "no process has that file mapped now".into(),
            },
            Users { in_namespace: n, .. } => {
                let have = plural(n, "process has", "processes have");
                let how = if marker { "; some programs must enable their markers first" } else { "" };
                format!("{have} that file mapped, but did not reach the probe{how}")
            }
        };
    }
    if let Attach::Kprobe { function, .. } | Attach::Trampoline { function, .. } = attach
        && !sys.text_symbols(function).parts.is_empty()
    {
        return "the compiler split or copied it, and callers may use those functions".into();
    }
    "no event occurred".into()
}

/// Is it the return of a function that does not return?
fn never_returns(attach: &Attach, sys: &dyn TargetInfo) -> bool {
    if let Attach::Kprobe { function, ret: true, .. } | Attach::Trampoline { function, exit: true, .. } = attach {
        return noreturn::is_noreturn_kernel_function(function);
    }
    let Attach::Uprobe { path, offset, ret: true, .. } = attach else { return syscall::never_exits(attach, sys) };
    let never = |f: &Function| noreturn::is_noreturn_library_function(&f.name) || sys.never_returns(path, f);
    sys.binary(path).is_ok_and(|binary| binary.functions.iter().any(|f| f.offset == *offset && never(f)))
}

/// Processes that have mapped a file as code.
struct Users {
    in_namespace: usize,
    /// A process that has mapped another file, which had this name before.
    replaced: Option<u32>,
}

fn users_of(path: &Path, only: Option<u32>) -> Users {
    let mut users = Users { in_namespace: 0, replaced: None };
    let Ok(meta) = fs::metadata(path) else { return users };
    let pids: Vec<u32> = match only {
        Some(pid) => vec![pid],
        None => procfs::all().collect(),
    };
    let gone = format!("{} (deleted)", path.display());
    for pid in pids {
        // `start-end perms offset major:minor inode  path`
        let Ok(maps) = fs::read_to_string(procfs::file(pid, "maps")) else { continue };
        let of = |line: &&str| line.split(' ').nth(4).and_then(|inode| inode.parse().ok()) == Some(meta.ino());
        let runs = |line: &&str| line.split(' ').nth(1).is_some_and(|perms| perms.contains('x'));
        let same_name = |line: &str| path.file_name().is_some_and(|name| line.ends_with(&*name.to_string_lossy()));
        if maps.lines().filter(runs).any(|line| of(&line) && same_name(line)) {
            users.in_namespace += 1;
        } else if maps.lines().filter(runs).any(|line| line.ends_with(&gone)) {
            users.replaced = Some(pid);
        }
    }
    users
}
