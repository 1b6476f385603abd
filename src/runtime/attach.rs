//! Attaches the sites of a program: one function per mechanism.
//!
//! rbt creates links by system calls instead of libbpf, because libbpf requires a mounted tracefs and one call per offset.
//! Programs that several sites share distinguish them by the link's cookie, which is the index of the site.
#![allow(unsafe_code)] // bpf(2) and perf ioctls

use std::collections::BTreeSet;
use std::ffi::{CString, c_ulong};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};

use libbpf_sys::{
    BPF_F_KPROBE_MULTI_RETURN, BPF_F_UPROBE_MULTI_RETURN, BPF_PERF_EVENT, BPF_TRACE_KPROBE_MULTI, BPF_TRACE_KPROBE_SESSION,
    BPF_TRACE_UPROBE_MULTI, bpf_link_create_opts, bpf_raw_tp_opts,
};

use super::perf::{self, Scope};
use super::poll::FIRST;
use super::{background_detach, iter, optimized_uprobe, proc_maps};
use crate::codegen::artifact::{AttachSite, Manifest, Program};
use crate::emit::{AttachOrder, LinkScope};
use crate::failure::without_os_error;
use crate::probes::{Attach, FileLocation, ProgramType, SamplePeriod, raw_syscall_event};
use crate::settings::Settings;
use crate::system::machine::procfs;
use crate::system::{Feature, TargetInfo};

/// A probe that failed to attach.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot attach {probe}: {reason}")]
pub struct AttachFailed {
    /// The value of `probe`.
    pub probe: String,
    /// The attach point in the script.
    pub pos: crate::value::Pos,
    /// The kernel's reason, and what it means here if that is known.
    pub reason: String,
}

/// A descriptor, and the number of the program that it attaches.
type AttachedLink = (Option<usize>, OwnedFd);

/// The attached programs. Detached when dropped, in the background if that is slow.
#[derive(Default)]
pub(super) struct Links {
    quick: Vec<AttachedLink>,
    slow: Vec<AttachedLink>,
    timers: Vec<AttachedLink>,
    /// The thread that detaches the slow ones during the run.
    detacher: Option<Sender<Vec<AttachedLink>>>,
    /// The program that is being attached, by number; rbt's own have none.
    program: Option<usize>,
    /// Iterators in the script's order, and the paths at which they are pinned, if any.
    pub iters: Vec<(OwnedFd, Option<PathBuf>)>,
    /// Number of attached probes: a name in a binary counts as one, no matter how many places it has.
    pub sites: u64,
    named: BTreeSet<(String, (u32, u32))>,
}

impl Links {
    /// The number of links that take long to detach.
    pub fn slow(&self) -> usize {
        self.slow.len()
    }

    /// Attaches one of rbt's own programs, which follow processes.
    pub fn follow(&mut self, tracepoint: &str, program: RawFd) -> io::Result<()> {
        self.quick.push((None, raw_tracepoint(tracepoint, program, 0)?));
        Ok(())
    }

    /// Programs attached after this call belong to this program.
    pub fn of(&mut self, program: usize) {
        self.program = Some(program);
    }

    /// Starts the thread in which [`Links::detach`] waits. Until a program is detached, it takes time on each event, so the thread has
    /// priority, and exists before: the first turn of a new one may take long on a busy machine. If it cannot be created, a later one,
    /// or the caller, waits.
    pub fn begin_detacher(&mut self) {
        let (sender, links) = mpsc::channel::<Vec<AttachedLink>>();
        let detach = move || {
            let _ = rustix::process::setpriority_process(None, FIRST);
            links.into_iter().for_each(drop);
        };
        let thread = std::thread::Builder::new().name("rbt-detach".into()).stack_size(1 << 16).spawn(detach);
        self.detacher = thread.is_ok().then_some(sender);
    }

    /// Detaches a program while the others continue. The kernel takes tens of milliseconds for some, so another thread
    /// waits.
    pub fn detach(&mut self, program: usize) {
        self.detach_if(|held| held.0 == Some(program));
    }

    /// The same for all programs.
    pub fn detach_all(&mut self) {
        self.detach_if(|_| true);
    }

    fn detach_if(&mut self, which: impl Fn(&AttachedLink) -> bool) {
        [&mut self.timers, &mut self.quick].into_iter().for_each(|held| held.retain(|link| !which(link)));
        let slow: Vec<AttachedLink> = self.slow.extract_if(.., |link| which(link)).collect();
        let left = match &self.detacher {
            _ if slow.is_empty() => return,
            Some(detacher) => detacher.send(slow).err().map(|not_sent| not_sent.0),
            None => Some(slow),
        };
        if let Some(slow) = left {
            // if no thread can be created, this one waits
            let _ = std::thread::Builder::new().stack_size(1 << 16).spawn(move || drop(slow));
        }
    }

    /// Detaches programs in files that this process has mapped, too, without waiting: breakpoints in malloc(3) would
    /// slow down the remaining work, even if their programs return at once. Call it when the run is over.
    pub fn detach_from_own_files(&mut self, manifest: &Manifest) {
        let in_files: Vec<(usize, &Path)> =
            (0..).zip(&manifest.programs).flat_map(|(i, p)| p.sites.iter().filter_map(move |s| Some((i, s.attach.binary()?)))).collect();
        if in_files.is_empty() {
            return;
        }
        let mapped = proc_maps::own_files();
        let ours = |path: &Path| proc_maps::identity(path).is_some_and(|file| mapped.contains(&file));
        let programs: BTreeSet<usize> = in_files.into_iter().filter(|(_, path)| ours(path)).map(|(program, _)| program).collect();
        background_detach::sweep(
            self.slow.extract_if(.., |held| held.0.is_some_and(|program| programs.contains(&program))).map(|(_, fd)| fd).collect(),
        );
    }

    /// Stops all timers. (Tracepoints and uprobes can only be silenced by detaching them: their programs run whatever
    /// the state of their event.)
    pub fn quiet(&self) {
        self.timers.iter().for_each(|(_, event)| perf::disable(event));
    }

    fn count(&mut self, site: &AttachSite) {
        // one name in a binary may stand for several places
        let named = matches!(site.attach, Attach::Usdt { .. } | Attach::Uprobe { .. });
        if !named || self.named.insert((site.name.clone(), (site.pos.line, site.pos.col))) {
            self.sites += 1;
        }
    }

    fn add(&mut self, fds: LinkFds) {
        match fds {
            LinkFds::Fast(link) => self.quick.push((self.program, link)),
            LinkFds::Slow(fds) => self.slow.extend(fds.into_iter().map(|fd| (self.program, fd))),
            LinkFds::Perf(events, links) => {
                self.timers.extend(events.into_iter().map(|fd| (self.program, fd)));
                self.quick.extend(links.into_iter().map(|fd| (self.program, fd)));
            }
            LinkFds::Iter(link, pin) => self.iters.push((link, pin)),
        }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.timers.clear();
        self.quick.clear();
        background_detach::sweep(std::mem::take(&mut self.slow).into_iter().map(|(_, fd)| fd).collect());
    }
}

/// Descriptors of an attachment.
enum LinkFds {
    Fast(OwnedFd),
    Slow(Vec<OwnedFd>),
    Perf(Vec<OwnedFd>, Vec<OwnedFd>),
    Iter(OwnedFd, Option<PathBuf>),
}

/// The order for attaching programs, as indices. Kernels run programs on a tracepoint or a function's return in the order of
/// attaching, but those on a uprobe or a function's entry in the opposite order. The result keeps the script's order. Timers
/// come last, so that they start when everything else is attached.
pub(super) fn order(manifest: &Manifest) -> Vec<usize> {
    let rank = |program: &Program| if returns(program) { AttachOrder::OldestFirst } else { program.ty.row().order };
    let mut order: Vec<usize> = (0..manifest.programs.len()).collect();
    order.sort_by_key(|&i| {
        let rank = manifest.programs.get(i).map_or(AttachOrder::NewestFirst, rank);
        (rank, if rank == AttachOrder::NewestFirst { usize::MAX - i } else { i })
    });
    order
}

/// Is it on returns of functions?
fn returns(program: &Program) -> bool {
    matches!(program.sites.first().map(|s| &s.attach), Some(Attach::Kprobe { ret: true, .. }))
}

/// What attaching depends on besides the program.
#[derive(Clone, Copy)]
pub(super) struct AttachCx<'a> {
    /// Settings of the run.
    pub settings: &'a Settings,
    /// This machine.
    pub sys: &'a dyn TargetInfo,
    /// The process of `-c`.
    pub command: Option<u32>,
}

impl AttachCx<'_> {
    /// For this program.
    fn of(self, program: &Program) -> Self {
        Self { command: self.command.filter(|_| program.of_command), ..self }
    }

    /// The only process to attach to.
    fn pid(self) -> Option<u32> {
        self.settings.only_pid().or(self.command)
    }
}

/// Attaches the sites of a program, and passes those that fail to `failed`, which decides whether to continue.
pub(super) fn attach(
    links: &mut Links,
    program: &Program,
    fd: RawFd,
    cx: AttachCx<'_>,
    failed: &mut dyn FnMut(AttachFailed) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let cx = cx.of(program);
    let sys = cx.sys;
    let sites: Vec<(u64, &AttachSite)> = (0..).zip(&program.sites).collect();
    let together = match program.ty.row().link {
        LinkScope::Functions => return functions(links, &sites, fd, BPF_TRACE_KPROBE_MULTI, sys, failed),
        LinkScope::FunctionsAndReturns => {
            let entries = sites.get(..sites.len() / 2).unwrap_or_default();
            return functions(links, entries, fd, BPF_TRACE_KPROBE_SESSION, sys, failed);
        }
        LinkScope::FileOffsets => sites.len() > 1,
        LinkScope::Site => program.sites.first().is_some_and(|s| s.attach.properties().shares_link),
    };
    // a link has places in one file
    for sites in sites.chunk_by(|(_, a), (_, b)| a.attach.binary() == b.attach.binary()) {
        attach_group(links, (program, sites), (fd, together), cx, failed)?;
    }
    Ok(())
}

/// Attaches sites in one file, or in the kernel: `together`, if a link can have several.
fn attach_group(
    links: &mut Links,
    (program, sites): (&Program, &[(u64, &AttachSite)]),
    (fd, together): (RawFd, bool),
    cx: AttachCx<'_>,
    failed: &mut dyn FnMut(AttachFailed) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let sys = cx.sys;
    if together {
        match link(program.ty, sites, fd, cx) {
            Ok(made) => {
                links.add(made);
                sites.iter().for_each(|(_, site)| links.count(site));
                return Ok(());
            }
            Err(why) if program.ty.row().link == LinkScope::Site => {
                for (_, site) in sites {
                    failed(failure(site, &why, sys))?;
                }
                return Ok(());
            }
            // the kernel does not say which failed, so try them one by one
            Err(_) => {}
        }
    }
    for site in sites {
        match link(program.ty, std::slice::from_ref(site), fd, cx) {
            Ok(made) => {
                links.add(made);
                links.count(site.1);
            }
            Err(why) => failed(failure(site.1, &why, sys))?,
        }
    }
    Ok(())
}

/// Functions by one link, of this attach type. The kernel does not say which of them it rejects, so halves are tried
/// until it is found.
fn functions(
    links: &mut Links,
    sites: &[(u64, &AttachSite)],
    program: RawFd,
    how: u32,
    sys: &dyn TargetInfo,
    failed: &mut dyn FnMut(AttachFailed) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let why = match kprobes(sites, program, how) {
        Ok(link) => {
            links.add(LinkFds::Slow(vec![link]));
            links.sites += sites.len() as u64 * if how == BPF_TRACE_KPROBE_SESSION { 2 } else { 1 };
            return Ok(());
        }
        Err(why) => why,
    };
    match sites {
        [] => Ok(()),
        [(_, site)] => failed(failure(site, &why, sys)),
        many => {
            let (left, right) = many.split_at(many.len() / 2);
            functions(links, left, program, how, sys, failed)?;
            functions(links, right, program, how, sys, failed)
        }
    }
}

/// Attaches to several functions with one link, by name.
fn kprobes(sites: &[(u64, &AttachSite)], program: RawFd, how: u32) -> io::Result<OwnedFd> {
    let mut names = Vec::with_capacity(sites.len());
    let mut cookies: Vec<u64> = Vec::with_capacity(sites.len());
    let mut returns = false;
    for (cookie, site) in sites {
        if let Attach::Kprobe { function, ret, .. } = &site.attach {
            names.push(CString::new(function.as_str())?);
            cookies.push(*cookie);
            returns = *ret;
        }
    }
    let mut symbols: Vec<*const libc::c_char> = names.iter().map(|n| n.as_ptr()).collect();
    let mut opts = bpf_link_create_opts { sz: size_of::<bpf_link_create_opts>() as u64, ..Default::default() };
    opts.__bindgen_anon_1.kprobe_multi = libbpf_sys::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_2 {
        flags: if returns { BPF_F_KPROBE_MULTI_RETURN } else { 0 },
        cnt: symbols.len() as u32,
        syms: symbols.as_mut_ptr(),
        addrs: std::ptr::null(),
        cookies: cookies.as_ptr(),
    };
    // SAFETY: what the options point to outlives the call
    made(unsafe { libbpf_sys::bpf_link_create(program, 0, how, &opts) })
}

fn link(ty: ProgramType, sites: &[(u64, &AttachSite)], program: RawFd, cx: AttachCx<'_>) -> io::Result<LinkFds> {
    let AttachCx { settings, sys, .. } = cx;
    let Some((cookie, site)) = sites.first() else { return Err(io::Error::from_raw_os_error(libc::EINVAL)) };
    match &site.attach {
        Attach::Begin | Attach::End | Attach::Signal | Attach::Test { .. } => Ok(LinkFds::Slow(Vec::new())),
        Attach::RawTracepoint { typed: true, .. } => to_target(program).map(LinkFds::Fast),
        Attach::RawTracepoint { name, typed: false } => raw_tracepoint(name, program, *cookie).map(LinkFds::Fast),
        Attach::Syscall { .. } if ty.row().has_target => to_target(program).map(LinkFds::Fast),
        Attach::Syscall { enter, .. } => raw_tracepoint(raw_syscall_event(*enter), program, 0).map(LinkFds::Fast),
        Attach::Tracepoint { category, event } => {
            let missing = |m: crate::system::Missing| io::Error::other(m.what);
            let found = sys.event_id(category, event).map_err(missing)?;
            let id = found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
            on_event(perf::tracepoint(id)?, program, *cookie).map(LinkFds::Slow)
        }
        Attach::Uprobe { .. } | Attach::Usdt { .. } => match optimized_uprobe::attach_location(&site.attach, settings) {
            Some(place) => in_file(ty, place, sites, program, cx),
            None => crate::bug!("{} is in a file", site.name),
        },
        Attach::Kprobe { module, function, offset, ret, .. } => {
            let name = match module {
                Some(module) => format!("{module}:{function}"),
                None => function.clone(),
            };
            let name = CString::new(name)?;
            let event = perf::kprobe((!function.is_empty()).then_some(&name), *offset, *ret)?;
            on_event(event, program, *cookie).map(LinkFds::Slow)
        }
        Attach::Trampoline { .. } => to_target(program).map(|link| LinkFds::Slow(vec![link])),
        Attach::Iter { name, pin, of_tasks } => {
            iter::link(name, settings.pid.filter(|_| *of_tasks), program).map(|link| LinkFds::Iter(link, pin.clone()))
        }
        Attach::Perf { ty, config, period, all_cpus } => {
            events(scopes(*all_cpus, cx.pid(), sys)?, program, *cookie, |scope| perf::counter(*ty, *config, *period, scope))
        }
        Attach::Breakpoint { address, length, mode } => {
            events(scopes(true, cx.pid(), sys)?, program, *cookie, |scope| perf::breakpoint(*address, *length, *mode, scope))
        }
    }
}

/// One program on an event for each scope.
fn events(scopes: Vec<Scope>, program: RawFd, cookie: u64, open: impl Fn(Scope) -> io::Result<OwnedFd>) -> io::Result<LinkFds> {
    let (mut events, mut links) = (Vec::new(), Vec::new());
    for scope in scopes {
        let mut fds = on_event(open(scope)?, program, cookie)?;
        events.extend(fds.pop());
        links.extend(fds);
    }
    Ok(LinkFds::Perf(events, links))
}

/// Attaches to places in a file with one link, or to one place with an event: its offset and that of its semaphore.
fn in_file(
    ty: ProgramType,
    place: FileLocation<'_>,
    sites: &[(u64, &AttachSite)],
    program: RawFd,
    cx: AttachCx<'_>,
) -> io::Result<LinkFds> {
    let FileLocation { path, offset, semaphore, ret } = place;
    if ty.row().link == LinkScope::FileOffsets {
        return uprobes(path, sites, ret, program, cx).map(|link| LinkFds::Slow(vec![link]));
    }
    let cookie = sites.first().map_or(0, |(cookie, _)| *cookie);
    on_event(perf::uprobe(&c_path(path)?, offset, semaphore, ret, cx.pid())?, program, cookie).map(LinkFds::Slow)
}

/// `profile` is on every CPU, or on every thread of the process; `interval` is on one CPU, whatever the process.
fn scopes(all_cpus: bool, pid: Option<u32>, sys: &dyn TargetInfo) -> io::Result<Vec<Scope>> {
    let cpus = sys.online_cpus().into_iter().map(|cpu| Scope { pid: -1, cpu: cpu as i32 });
    Ok(match (all_cpus, pid) {
        (false, _) => cpus.take(1).collect(),
        (true, None) => cpus.collect(),
        (true, Some(pid)) => fs::read_dir(procfs::file(pid, "task"))
            .map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .map(|tid| Scope { pid: tid, cpu: -1 })
            .collect(),
    })
}

/// Attaches a program to a perf event: by a link, which carries the cookie, or directly on kernels before 5.15. The
/// event's descriptor comes last.
pub(super) fn on_event(event: OwnedFd, program: RawFd, cookie: u64) -> io::Result<Vec<OwnedFd>> {
    let mut opts = bpf_link_create_opts { sz: size_of::<bpf_link_create_opts>() as u64, ..Default::default() };
    opts.__bindgen_anon_1.perf_event.bpf_cookie = cookie;
    // SAFETY: the options outlive the call, and are those of a perf event
    match made(unsafe { libbpf_sys::bpf_link_create(program, event.as_raw_fd(), BPF_PERF_EVENT, &opts) }) {
        Ok(link) => Ok(vec![link, event]),
        Err(why) if why.raw_os_error() == Some(libc::EINVAL) && cookie == 0 => {
            perf::set_program(&event, program)?;
            Ok(vec![event])
        }
        Err(why) => Err(why),
    }
}

pub(super) fn raw_tracepoint(name: &str, program: RawFd, cookie: u64) -> io::Result<OwnedFd> {
    let name = CString::new(name)?;
    let mut opts = bpf_raw_tp_opts { sz: size_of::<bpf_raw_tp_opts>() as u64, tp_name: name.as_ptr(), cookie };
    // SAFETY: options and name outlive the call
    made(unsafe { libbpf_sys::bpf_raw_tracepoint_open_opts(program, &mut opts) })
}

/// Attaches a program to the function or tracepoint for which it was loaded. Kernels before 5.19 have only this call.
pub(super) fn to_target(program: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes no name
    made(unsafe { libbpf_sys::bpf_raw_tracepoint_open(std::ptr::null(), program) })
}

/// Attaches to several offsets of a file with one link.
fn uprobes(path: &Path, sites: &[(u64, &AttachSite)], ret: bool, program: RawFd, cx: AttachCx<'_>) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    let mut offsets: Vec<c_ulong> = Vec::with_capacity(sites.len());
    let mut counters: Vec<c_ulong> = Vec::with_capacity(sites.len());
    let mut cookies: Vec<u64> = Vec::with_capacity(sites.len());
    for (cookie, site) in sites {
        if let Some(place) = optimized_uprobe::attach_location(&site.attach, cx.settings) {
            offsets.push(place.offset);
            counters.push(place.semaphore);
            cookies.push(*cookie);
        }
    }
    let mut opts = bpf_link_create_opts { sz: size_of::<bpf_link_create_opts>() as u64, ..Default::default() };
    opts.__bindgen_anon_1.uprobe_multi = libbpf_sys::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_3 {
        flags: if ret { BPF_F_UPROBE_MULTI_RETURN } else { 0 },
        cnt: offsets.len() as u32,
        path: path.as_ptr(),
        offsets: offsets.as_ptr(),
        ref_ctr_offsets: if counters.iter().any(|c| *c != 0) { counters.as_ptr() } else { std::ptr::null() },
        cookies: cookies.as_ptr(),
        pid: cx.pid().unwrap_or(0),
        ..Default::default()
    };
    // SAFETY: what the options point to outlives the call
    made(unsafe { libbpf_sys::bpf_link_create(program, 0, BPF_TRACE_UPROBE_MULTI, &opts) })
}

/// libbpf's functions return a descriptor or a negative errno.
fn made(fd: libc::c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: new, and not owned elsewhere
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

fn failure(site: &AttachSite, why: &io::Error, sys: &dyn TargetInfo) -> AttachFailed {
    AttachFailed { probe: site.name.clone(), pos: site.pos.clone(), reason: reason(&site.attach, why, sys) }
}

/// The meaning of an errno for a mechanism; perf_event_open and bpf return one number for many causes.
fn reason(attach: &Attach, why: &io::Error, sys: &dyn TargetInfo) -> String {
    let text = without_os_error(&why.to_string());
    let Some(errno) = why.raw_os_error() else { return text };
    let text = match errno {
        libc::EILSEQ => "EILSEQ".to_owned(),                         // whose text is of characters
        524 => "not supported by this kernel (ENOTSUPP)".to_owned(), // the kernel's own, unknown to strerror
        _ => text,
    };
    let denied = if errno == libc::EACCES { super::privileges::perf_denied() } else { None };
    let means = match (attach, errno) {
        (_, libc::EPERM) => super::privileges::missing().unwrap_or_else(|| "the kernel does not permit it".into()),
        (_, libc::EACCES) if denied.is_some() => denied.unwrap_or_default(),
        (Attach::RawTracepoint { .. }, libc::ENOENT) => "no such raw tracepoint".into(),
        (Attach::Tracepoint { .. }, libc::ENOENT) => "no such tracepoint".into(),
        // it runs the handler of a kprobe or uprobe, which accepts only programs of that type (kernel/events/core.c)
        (Attach::Tracepoint { category, event }, libc::EINVAL) if sys.is_dynamic_tracepoint(category, event) => {
            "an event created at run time does not support tracepoint programs: trace the function itself (kprobe, uprobe)".into()
        }
        (Attach::Tracepoint { .. }, libc::EACCES) => "the program reads beyond the end of the tracepoint's record".into(),
        (Attach::Uprobe { path, .. } | Attach::Usdt { path, .. }, libc::ENOENT) => format!("{} does not exist", path.display()),
        // a machine without such a counter reports that there is no such event
        (Attach::Perf { ty: libbpf_sys::PERF_TYPE_HARDWARE, .. }, libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            "this machine does not count that event".into()
        }
        (Attach::Breakpoint { .. }, libc::ENOSPC) => "no free breakpoint: each CPU has four, and others may use some".into(),
        (Attach::Breakpoint { .. }, libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => "this machine has no hardware breakpoints".into(),
        (Attach::Breakpoint { .. }, libc::EINVAL) => "the kernel does not allow this watchpoint".into(),
        (Attach::Breakpoint { .. }, libc::ESRCH) => "the process has ended".into(),
        (Attach::Uprobe { .. } | Attach::Usdt { .. } | Attach::Iter { .. }, libc::ESRCH)
        | (Attach::Perf { .. }, libc::ESRCH | libc::ENOENT) => "the process has ended".into(),
        (Attach::Uprobe { offset, .. } | Attach::Usdt { offset, .. }, libc::EINVAL) => {
            format!("the kernel does not accept a probe at offset {offset:#x} of that file")
        }
        (Attach::Uprobe { .. } | Attach::Usdt { .. }, libc::EILSEQ | libc::EIO | 524) => {
            "not the start of an instruction, or an instruction that cannot be probed".into()
        }
        (Attach::Kprobe { .. }, libc::EADDRNOTAVAIL) => "several functions have that name: give the module, or use fentry".into(),
        (Attach::Kprobe { function, .. }, libc::ENOENT | libc::ESRCH) if function.is_empty() => {
            "the kernel has no code at that address".into()
        }
        (Attach::Kprobe { function, .. }, libc::ENOENT | libc::ESRCH) => match sys.text_symbols(function).parts.first() {
            Some(part) => format!("the compiler inlined the function, or turned it into `{part}`"),
            None => "the kernel has no such function, or does not allow probing it".into(),
        },
        (Attach::Kprobe { .. }, libc::EILSEQ) => "not the start of an instruction".into(),
        (Attach::Kprobe { offset: 0, .. }, libc::EINVAL) => "the kernel does not allow a probe there".into(),
        (Attach::Kprobe { .. }, libc::EINVAL) => "not the start of an instruction, or an instruction that cannot be probed".into(),
        (Attach::Perf { period: SamplePeriod::Frequency(_), .. }, libc::EINVAL) => {
            let max = sys.most_samples().map_or(String::new(), |max| format!(" = {max}"));
            format!("the rate may be over the limit, kernel.perf_event_max_sample_rate{max}")
        }
        (_, libc::E2BIG) => "too many programs are attached to it".into(),
        (_, libc::EMFILE) => "too many open files: see ulimit -n".into(),
        _ => return text,
    };
    format!("{means} ({text})")
}

/// The mechanism of a program, for `-v`, and why it is not the usual one.
pub(super) fn mechanism(program: &Program, settings: &Settings, sys: &dyn TargetInfo) -> String {
    let Some(attach) = program.sites.first().map(|s| &s.attach) else { return "nothing".into() };
    if matches!(attach, Attach::Usdt { .. }) && optimized_uprobe::applies_to(attach, settings) {
        return "optimized uprobe (a call instead of a trap)".into();
    }
    let name = attach.mechanism(program.ty);
    let (multi, feature) = match (attach, program.ty) {
        (Attach::Uprobe { .. } | Attach::Usdt { .. }, ProgramType::Uprobe) => ("uprobe.multi", Feature::UprobeMulti),
        (Attach::Kprobe { wildcard: true, .. }, ProgramType::Kprobe) => ("kprobe.multi", Feature::KprobeMulti),
        _ => return name.into(),
    };
    let why = if sys.has(feature) { format!("the code was compiled without {multi}") } else { format!("this kernel has no {multi}") };
    format!("{name} ({why})")
}
