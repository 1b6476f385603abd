//! The processes that rbt follows from the start; `emit/follow.rs` is the kernel's side.
#![allow(unsafe_code)] // bpf(2)

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

use anyhow::Context;

use super::Session;
use super::load::MapFd;
use crate::codegen::artifact::IN_NAMESPACE;
use crate::system::machine::procfs;

impl Session<'_> {
    /// Starts to follow the process of `-c` or `-p`, if the script needs it.
    pub(super) fn follow(&mut self) -> anyhow::Result<()> {
        for (fd, tracepoint) in &self.cx.loaded.followers {
            self.links.follow(tracepoint, *fd).with_context(|| format!("cannot follow processes by {tracepoint}"))?;
        }
        let Some(map) = self.cx.loaded.followed else { return Ok(()) };
        if self.cx.loaded.followers.is_empty() {
            anyhow::bail!("cannot follow processes: the kernel has no BTF");
        }
        // in a PID namespace, the kernel's numbers are unknown
        let key = |pid: u32| if self.sys.pid_namespace().is_some() { pid | IN_NAMESPACE } else { pid };
        let child = self.options.child_pid;
        if child > 0 {
            add(map, key(child))?;
        }
        let Some(pid) = self.cx.settings.pid else { return Ok(()) };
        // processes that it starts after this are added as they start; some of its children may have done so meanwhile
        let mut known = BTreeSet::from([pid]);
        add(map, key(pid))?;
        loop {
            let new: Vec<u32> =
                parents().into_iter().filter(|(child, of)| known.contains(of) && !known.contains(child)).map(|p| p.0).collect();
            if new.is_empty() {
                return Ok(());
            }
            for child in new {
                add(map, key(child))?;
                known.insert(child);
            }
        }
    }
}

fn add(map: MapFd, pid: u32) -> anyhow::Result<()> {
    let value = 1u64;
    // SAFETY: the key and the value have the map's sizes
    match unsafe { libbpf_sys::bpf_map_update_elem(map.fd, (&raw const pid).cast(), (&raw const value).cast(), 0) } {
        error if error < 0 => Err(io::Error::from_raw_os_error(-error)).context("cannot follow a process"),
        _ => Ok(()),
    }
}

/// Each process's parent.
fn parents() -> BTreeMap<u32, u32> {
    let parent = |pid: u32| {
        let stat = fs::read_to_string(procfs::file(pid, "stat")).ok()?;
        // the name is in parentheses, and may contain any character
        stat.get(stat.rfind(')')? + 1..)?.split_whitespace().nth(1)?.parse().ok()
    };
    procfs::all().filter_map(|pid| Some((pid, parent(pid)?))).collect()
}
